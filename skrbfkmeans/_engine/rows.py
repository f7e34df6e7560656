"""The passes over the rows of one array, on all threads."""

# SPDX-License-Identifier: BSD-3-Clause

import itertools
from collections import namedtuple
from contextlib import nullcontext
from functools import cached_property

import numpy as np
from scipy import sparse

from . import kernels
from .codebook import (
    heat_of,
    make_codebook,
    make_dense_work,
    make_softmax_work,
    make_work,
    middle_of,
)
from .passes import MOST_COPIED, Measures, Passes, sample_size, spread_places
from .threads import MAX_STRIPS, Threads, cut

# Numbers; rows are made float64 by blocks of no more, for their scatter matrix.
SCATTERED = 2**22

# Numbers; distances of which the two least are wanted are taken by blocks of no more.
MOST_DISTANCES = 2**16

# Stored numbers of sparse rows; they are looked at by blocks of no more, unless a
# single row has more.
MOST_STORED = 2**20

# Responsibilities that are computed densely at a time, before their zeros are left out:
# so few that they stay in the cache of a thread.
MOST_DENSE = 2**18

# Rows; distinct ones are sought among no more at a time.
ROWS_COMPARED = 4096

# Relative to a row's length; a row nearer to its centre than this lies on it.
ON_CENTER = 4.0 * np.finfo(np.float64).eps

# A row that an empty centre may be moved to.
Candidate = namedtuple("Candidate", "cost label weight row")


class Rows(Passes):
    """The rows of one array, for all passes that one call makes over them.

    Use it as a context manager: threads and the limit on BLAS live inside.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n_samples, n_features)
        The data, float32 or float64, in C order or with sorted indices; read
        only.
    weights : ndarray of shape (n_samples,), float64, default=None
        Weights of the rows, 1 by default.
    dtype : dtype, default=X.dtype
        The precision in which results are wanted.
    units : Units, default=None
        The units of X and of the weights, for whoever brings in centres; the passes
        do not ask.
    threads : Threads, default=None
        Who works on them; by default as many threads as OpenMP allows.
    n_strips : int, default=MAX_STRIPS
        Most strips that the rows are cut into.
    measures : Measures, default=None
        Those of the features, if they are known; a wider box will do.

    Attributes
    ----------
    arrays : tuple
        The rows as the compiled functions want them: ``(X,)``, or ``(data, indices,
        indptr)`` of sparse rows.
    stored_weights : ndarray of shape (n_samples,)
        Weights as they want them: of size 0 if all are 1.
    """

    def __init__(
        self, X, weights=None, dtype=None, *, units=None, threads=None,
        n_strips=MAX_STRIPS, measures=None,
    ):  # fmt: skip
        self.shape = X.shape
        self.dtype = np.dtype(X.dtype if dtype is None else dtype)
        self.units = units
        self.threads = threads or Threads()
        self.is_sparse = sparse.issparse(X)
        if self.is_sparse:
            self.X = X
            indptr = X.indptr.astype(np.int64, copy=False)
            arrays = X.data, X.indices, indptr
            self.arrays = tuple(_read_only(array) for array in arrays)
            self._row_size = max(1, X.nnz // max(1, X.shape[0]))
        else:
            self.X = _read_only(X)
            self.arrays = (self.X,)
            self._row_size = X.shape[1]
        self._n_strips = n_strips
        self.stored_weights = _read_only(np.empty(0) if weights is None else weights)
        if measures is not None:
            self.measures = measures

    def __enter__(self):
        self.threads.__enter__()
        return self

    def __exit__(self, *exception):
        self.threads.__exit__(*exception)

    @property
    def is_unweighted(self):
        """Whether all rows weigh the same."""
        return self.stored_weights.size == 0

    @property
    def weights(self):
        """Weights of the rows, of shape (n_samples,)."""
        if self.is_unweighted:
            return np.broadcast_to(1.0, self.n_rows)
        return self.stored_weights

    @cached_property
    def weight(self):
        """Total weight."""
        return float(self.weights.sum())

    def at(self, indices):
        """Some of the rows, dense, as float64."""
        rows = self.X[indices]
        return (rows.toarray() if self.is_sparse else rows).astype(np.float64)

    def part(self, indices, weights=None):
        """Some of the rows, for passes over them alone by the same threads.

        In arrays of the same kind, so that no kernel is compiled anew for them. Other
        weights may be given.
        """
        X = self.X[indices]
        if self.is_sparse:
            X.indices = X.indices.astype(self.X.indices.dtype, copy=False)
        else:
            X = np.ascontiguousarray(X)
        if weights is None and not self.is_unweighted:
            weights = np.ascontiguousarray(self.stored_weights[indices])
        return Rows(
            X, weights, self.dtype,
            units=self.units, threads=self.threads, measures=self.measures,
        )  # fmt: skip

    def sample(self, n_clusters, random_state):
        """As `Passes.sample`: these rows, or some of them if they take much memory.

        Who seeks starts and tries swaps copies what it works on.
        """
        n_bytes = sum(array.nbytes for array in self.arrays)
        if n_bytes <= MOST_COPIED:
            return nullcontext(self)
        size = sample_size(n_clusters, n_bytes / self.n_rows)
        if size >= self.n_rows:
            return nullcontext(self)
        places = spread_places(size, random_state)
        if self.is_unweighted:
            return nullcontext(self.part((places * self.n_rows).astype(np.int64)))
        ends = np.cumsum(self.stored_weights)
        drawn = np.searchsorted(ends, places * ends[-1], side="right")
        drawn = np.minimum(drawn, np.flatnonzero(self.stored_weights)[-1])
        drawn, counts = np.unique(drawn, return_counts=True)
        if len(drawn) < n_clusters:  # a few rows weigh all: they alone are no start
            return nullcontext(self.part((places * self.n_rows).astype(np.int64)))
        return nullcontext(self.part(drawn, counts.astype(np.float64)))

    # --- passes ---

    @cached_property
    def measures(self):
        """Mean, variance and range of each feature."""
        if self.is_sparse:
            return self._sparse_measures()
        some = np.arange(self.n_rows)
        if not self.is_unweighted:
            some = np.flatnonzero(self.stored_weights)
        some = some[:: max(1, len(some) // 100)]
        shift = self.at(some).mean(axis=0)  # near the mean no digits are lost
        strips = self.strips(1, 4 * self.n_features)
        partial = np.zeros((len(strips), 4, self.n_features))
        partial[:, 2:] = np.array([[[np.inf], [-np.inf]]])

        def work(s, start, stop):
            kernels.moment_rows(
                self.X, self.stored_weights, start, stop, shift, partial[s]
            )

        self.run(work, strips)
        mean, square = partial[:, :2].sum(axis=0) / self.weight
        variances = np.maximum(square - mean**2, 0.0)
        low, high = partial[:, 2].min(axis=0), partial[:, 3].max(axis=0)
        return Measures(shift + mean, variances, low, high)

    def _sparse_measures(self):
        """The same from the stored entries alone; the range is one for all features."""
        data, indices, _ = self.arrays
        d = self.n_features
        stored, sums, squares = np.zeros((3, d))
        for some, columns, weights in self._stored_blocks():
            stored += np.bincount(columns, weights, d)
            sums += np.bincount(columns, weights * some, d)
        mean = sums / self.weight
        for some, columns, weights in self._stored_blocks():
            squares += np.bincount(columns, weights * (some - mean[columns]) ** 2, d)
        full = np.bincount(indices, minlength=d) == self.n_rows  # no zero is left
        zeros = np.where(full, 0.0, np.maximum(self.weight - stored, 0.0))
        variances = (squares + zeros * mean**2) / self.weight
        low, high = np.min(data, initial=0.0), np.max(data, initial=0.0)
        return Measures(mean, variances, low, high)

    def _stored_blocks(self):
        """Blocks of stored numbers, their columns, and the weights of their rows."""
        data, indices, indptr = self.arrays
        cuts = np.searchsorted(indptr, np.arange(0, data.size, MOST_STORED))
        cuts = np.unique(np.append(cuts, self.n_rows))
        for first, last in itertools.pairwise(cuts):
            some = slice(indptr[first], indptr[last])
            counts = np.diff(indptr[first : last + 1])
            yield data[some], indices[some], np.repeat(self.weights[first:last], counts)

    def scatter(self, mean, V=None):
        """As `Passes.scatter`."""
        if V is not None and V.ndim == 1 and self.is_sparse:
            projected = self.weights * (self.X @ V - mean @ V)
            return self.X.T @ projected - mean * projected.sum()
        total, step = 0.0, max(1, SCATTERED // self.n_features)
        for start in range(0, self.n_rows, step):
            block = slice(start, start + step)
            centered = self.at(block) - mean
            shares = (centered.T * self.weights[block]).astype(np.float64, copy=False)
            total = total + shares @ (centered if V is None else centered @ V)
        return total

    def e_step(self, alpha):
        """As `Passes.e_step`."""
        from .steps import EStep

        return EStep(self, alpha, box=self.box)

    def costliest(self, centers, labels, n):
        """Rows for empty centres: the n that cost most, without those on their centres.

        Returns a list of `Candidate`, the most costly first, and the number of rows
        of positive weight of each centre.
        """
        distances = self.squared_distances_to(centers, labels)
        costs = self.weights * distances
        n_own = np.bincount(labels[self.weights > 0.0], minlength=len(centers))
        if self.is_sparse:  # they may seem to be off by the rounding of a mean
            origin = np.zeros((1, self.n_features))
            sizes = self.squared_distances_to(origin, np.zeros_like(labels))
            costs[distances <= ON_CENTER**2 * sizes] = 0.0
        order = np.argsort(-costs, kind="stable")[:n]
        order = order[costs[order] > 0.0]
        return [
            Candidate(costs[i], labels[i], self.weights[i], self.at([i])[0])
            for i in order
        ], n_own

    def assess(self, centers, labels=None):
        """As `Passes.assess`."""
        labels = self.assign(centers) if labels is None else labels
        inertia = self.inertia(centers, labels)
        return labels, inertia, np.bincount(labels, self.weights, len(centers))

    def distinct(self, enough):
        """As `Passes.distinct`."""
        found, present = set(), np.flatnonzero(self.weights)
        for start in range(0, len(present), ROWS_COMPARED):
            some = self.X[present[start : start + ROWS_COMPARED]]
            found.update(row_keys(some))
            if len(found) >= enough:
                break
        return set(itertools.islice(found, enough))

    def assign(self, centers):
        """Labels of the rows: the nearest centres, the first in case of ties."""
        codebook = self.codebook(centers)
        labels = np.empty(self.n_rows, dtype=np.int32)

        def work(s, start, stop):
            kernels.label_rows(
                self.arrays, start, stop, codebook, self.work(len(centers)), labels
            )

        self.run(work, self.strips(len(centers)))
        return labels

    def inertia(self, centers, labels):
        """Weighted sum of the squared distances to the centres the labels name."""
        squares = self.squared_distances_to(centers, labels)
        return float(np.sum(squares if self.is_unweighted else self.weights * squares))

    def responsibilities(self, centers, sigma, alpha, sparse_output=False):
        """Responsibilities, of shape (n_samples, n_clusters), in the dtype wanted.

        With `sparse_output`, a CSR matrix without the exact zeros.
        """
        codebook, k = self.codebook(centers), len(centers)
        heat = heat_of(sigma, alpha, exact=True)

        def share(out, start, stop, origin):
            kernels.responsibility_rows(
                self.arrays, start, stop, codebook, self.work(k), heat, out, origin
            )

        if sparse_output:
            return self._compressed(share, k)
        out = np.empty((self.n_rows, k), dtype=self.dtype)
        self.run(lambda _, start, stop: share(out, start, stop, 0), self.strips(k))
        return out

    def _compressed(self, share, k):
        """A CSR matrix of what `share` fills in, a few rows of it at a time."""
        size, strips = max(1, MOST_DENSE // k), self.strips(k)
        found = [[] for _ in strips]

        def work(s, start, stop):
            dense, values, columns = self.threads.buffers(
                make_dense_work, size, k, self.dtype
            )
            for first in range(start, stop, size):
                last = min(first + size, stop)
                out, counts = dense[: last - first], np.empty(last - first, np.int64)
                share(out, first, last, first)
                n = kernels.compress_rows(out, values, columns, counts)
                found[s].append((values[:n].copy(), columns[:n].copy(), counts))

        self.run(work, strips, heavy=True)
        parts = zip(*itertools.chain.from_iterable(found), strict=True)
        values, columns, counts = map(np.concatenate, parts)
        indptr = np.append(0, np.cumsum(counts))
        return sparse.csr_matrix((values, columns, indptr), (self.n_rows, k))

    def squared_distances(self, centers):
        """Squared distances, of shape (n_samples, n_clusters), float64."""
        codebook = self.codebook(centers)
        out = np.empty((self.n_rows, centers.shape[0]))

        def work(s, start, stop):
            kernels.distance_rows(self.arrays, start, stop, codebook, out, 0)

        self.run(work, self.strips(len(centers)))
        return out

    def squared_distances_to(self, centers, labels):
        """Squared distance of each row to the centre that its label names."""
        codebook = self.codebook(centers)
        out = np.empty(self.n_rows)

        def work(s, start, stop):
            kernels.label_distance_rows(self.arrays, start, stop, codebook, labels, out)

        self.run(work, self.strips(1))
        return out

    def margin(self, centers):
        """Least gap between the two smallest squared distances of a row."""
        if len(centers) == 1:
            return np.inf
        codebook = self.codebook(centers)
        size = max(1, MOST_DISTANCES // len(centers))
        jobs = [
            range(start, strip.stop, size)
            for strip in self.strips(len(centers))
            for start in strip
        ]
        margins = np.full(len(jobs), np.inf)

        def work(s, start, stop):
            out = np.empty((stop - start, len(centers)))
            kernels.distance_rows(self.arrays, start, stop, codebook, out, start)
            two = np.partition(out, 1, axis=1)[:, :2]
            margins[s] = min(margins[s], np.min(two[:, 1] - two[:, 0]))

        self.run(work, jobs)
        return float(margins.min())

    # --- how a pass runs ---

    @property
    def n_threads(self):
        """Number of threads that work on the rows."""
        return self.threads.n

    def strips(self, n_vectors, size=1, start=0, stop=None):
        """Cut the rows from start to stop, for products with `n_vectors` each.

        `size` is that of the partial sums of a strip.
        """
        stop = self.n_rows if stop is None else stop
        work = n_vectors * self._row_size
        return cut(start, stop, work, size, self._n_strips)

    def run(self, work, strips, heavy=False):
        """As `Threads.run`."""
        self.threads.run(work, strips, heavy)

    def codebook(self, centers, shift=None):
        """Centres in the forms that the kernels use.

        Dense rows are shifted, by the medians of the centres if not told
        otherwise, so that one centre far away does not cost the others' digits.
        """
        centers = np.ascontiguousarray(centers, dtype=np.float64)
        if self.is_sparse:
            shift = np.zeros(centers.shape[1])
        elif shift is None:
            shift = middle_of(centers)
        return make_codebook(centers, shift, self.is_sparse)

    def work(self, k):
        """Buffers of this thread for k centres."""
        d = 0 if self.is_sparse else self.n_features
        return self.threads.buffers(make_work, k, d)

    def softmax_work(self, k):
        """Buffers of this thread for k centres and `kernels.softmax_rows`."""
        return self.threads.buffers(make_softmax_work, k, self.n_features)


def row_keys(X):
    """The distinct rows, as bytes that are the same for equal rows alone."""
    if not sparse.issparse(X):
        return _distinct_bytes(X + 0.0)  # no negative zeros
    if np.count_nonzero(X.data) < X.data.size:
        X = X.copy()
        X.eliminate_zeros()
    keys, counts = [], np.diff(X.indptr)
    for count in np.unique(counts):
        at = X.indptr[:-1][counts == count, np.newaxis] + np.arange(count)
        pair = np.ascontiguousarray(X.indices[at], np.int64), X.data[at]
        parts = [part.view(np.uint8).reshape(len(at), -1) for part in pair]
        keys += _distinct_bytes(np.concatenate(parts, axis=1)) if count else [b""]
    return keys


def _distinct_bytes(table):
    """Bytes of the distinct rows of a 2-D array."""
    row = np.dtype((np.void, table.shape[1] * table.itemsize))
    return [key.tobytes() for key in np.unique(np.ascontiguousarray(table).view(row))]


def _read_only(array):
    """A read-only view, so that one compiled version serves every array."""
    view = array.view()
    view.setflags(write=False)
    return view
