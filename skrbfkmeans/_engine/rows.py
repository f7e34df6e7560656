"""Rows in fixed strips over threads, partial sums added in order.

The cut into strips depends on the shape of the data and never on the number
of threads, each strip is worked on by one thread alone, and partial results
are added in the order of the strips: so every number comes out the same, to
the last bit, for any number of threads.
"""

# SPDX-License-Identifier: BSD-3-Clause

import itertools
import os
import threading
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cached_property, lru_cache

import numpy as np
from scipy import sparse
from sklearn.utils._openmp_helpers import _openmp_effective_n_threads
from sklearn.utils.parallel import _get_threadpool_controller

from . import kernels

# A strip is worth a thread's while from this many multiplications on. There are
# at most so many strips, and so many numbers in all their partial sums.
STRIP_WORK, MAX_STRIPS, MAX_PARTIAL = 2**20, 64, 2**20

# To wake other threads takes about as long as to work on so many strips.
LIGHT = 24

# No distance is larger whose square is finite.
FAR = 1e150

# Rows are taken so many numbers at a time for their scatter matrix.
SCATTERED = 2**22

# Distances between many rows and centres are taken so many at a time.
AT_ONCE = 2**16

# No call of a kernel takes much more than this many multiplications.
PIECE_WORK = 2**29

# A row nearer to its centre than this, relative to its length, lies on it.
ROUNDING = 4.0 * np.finfo(np.float64).eps

# Besides its distances, a row costs about as much as this many multiplications.
ROW_WORK = 32

# The centres in the forms that the kernels use: themselves, their squared lengths,
# `norms`, and in units of the one that is farthest from `shift` what rows are
# multiplied with, `factor`, squared lengths, and a bound on the relative rounding.
Codebook = namedtuple("Codebook", "centers norms shift unit factor lengths rounding")

# The same about one origin in float64, for `kernels.softmax_rows`.
Softmax = namedtuple("Softmax", "centers origin factor lengths rounding")

# A row that an empty centre may be moved to.
Candidate = namedtuple("Candidate", "cost label weight row")

# The buffers of one thread: see `kernels.nearest` and `kernels.softmax`.
Work = namedtuple("Work", "picked rows scores minima who lanes members candidates")
SoftmaxWork = namedtuple(
    "SoftmaxWork",
    "picked rows lengths scores scratch minima who rates counts block_sums",
)


class _SingleThreadedBLAS:
    """Hold BLAS to one thread while any thread of ours is inside.

    Counts its users, so that runs which overlap in time leave the limit as
    the first of them found it.
    """

    def __init__(self):
        self._lock, self._users = threading.Lock(), 0

    def reset(self):
        """Forget the users; a forked child does not have them."""
        if self._users > 0:
            self._limiter.restore_original_limits()
        self._lock, self._users = threading.Lock(), 0

    def __enter__(self):
        with self._lock:
            if self._users == 0:
                self._limiter = limit_blas()
            self._users += 1

    def __exit__(self, *exception):
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._limiter.restore_original_limits()
                give_up_control()


def limit_blas():
    """Limit BLAS, and nothing else, to one thread; also in this thread alone."""
    blas = _get_threadpool_controller().select(user_api="blas")
    limiter = blas.limit(limits=1)
    give_up_control()
    return limiter


def give_up_control():
    """Let other threads set the limit of BLAS again.

    From version 3.8 on, threadpoolctl obeys only the thread that first set it,
    until a ``with`` block of that thread ends, or the thread.
    """
    blas = _get_threadpool_controller().select(user_api="blas")
    with blas.limit(limits=None):
        pass


single_threaded_blas = _SingleThreadedBLAS()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=single_threaded_blas.reset)


class Rows:
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

    Attributes
    ----------
    n_threads : int
        Number of threads; OpenMP's limit, if not set before.
    max_strips : int
        Most strips that the rows are cut into.
    box : tuple of ndarray of shape (n_features,)
        Bounds on the coordinates of the rows, once `measure` has been called.
    mean : ndarray of shape (n_features,)
        Weighted mean of the rows, from then on.
    """

    def __init__(self, X, weights=None, dtype=None):
        self.n_rows, self.n_features = self.shape = X.shape
        self.dtype = np.dtype(X.dtype if dtype is None else dtype)
        self.is_sparse = sparse.issparse(X)
        if self.is_sparse:
            self.X = X
            indptr = X.indptr.astype(np.int64, copy=False)
            arrays = X.data, X.indices, indptr
            self.arrays = tuple(_read_only(array) for array in arrays)
            self._row_size = max(1, X.nnz // self.n_rows)
        else:
            self.X = _read_only(X)
            self.arrays = (self.X,)
            self._row_size = self.n_features
        self.box = -np.inf, np.inf
        self.n_threads, self.max_strips = None, MAX_STRIPS
        self.stored_weights = _read_only(np.empty(0) if weights is None else weights)

    def __enter__(self):
        # first: to limit a BLAS that is built on OpenMP limits all of OpenMP
        self.n_threads = self.n_threads or _openmp_effective_n_threads()
        single_threaded_blas.__enter__()
        self._pool = None
        self._works = {}
        return self

    def __exit__(self, *exception):
        try:
            if self._pool is not None:
                self._pool.shutdown()
        finally:
            single_threaded_blas.__exit__(*exception)

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

    def part(self, indices):
        """Some of the rows, for passes over them alone by the same threads.

        In arrays of the same kind, so that no kernel is compiled anew for them.
        """
        X, weights = self.X[indices], None
        if self.is_sparse:
            X.indices = X.indices.astype(self.X.indices.dtype, copy=False)
        else:
            X = np.ascontiguousarray(X)
        if not self.is_unweighted:
            weights = np.ascontiguousarray(self.stored_weights[indices])
        part = Rows(X, weights, self.dtype)
        part.box, part.n_threads = self.box, self.n_threads
        part.run, part._works = self.run, self._works
        return part

    # --- passes ---

    def measure(self):
        """Measure the range and the variance of each feature.

        Returns
        -------
        variances : ndarray of shape (n_features,)
        """
        if self.is_sparse:
            return self._sparse_variances()
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
        self.box = partial[:, 2].min(axis=0), partial[:, 3].max(axis=0)
        self.mean = shift + mean
        return np.maximum(square - mean**2, 0.0)

    def _sparse_variances(self):
        """Variances of the features, from the stored entries alone."""
        data, indices, indptr = self.arrays
        self.box = np.min(data, initial=0.0), np.max(data, initial=0.0)
        d = self.n_features
        weights = np.repeat(self.weights, np.diff(indptr))
        stored = np.bincount(indices, weights, d)
        mean = np.bincount(indices, weights * data, d) / self.weight
        squares = np.bincount(indices, weights * (data - mean[indices]) ** 2, d)
        full = np.bincount(indices, minlength=d) == self.n_rows  # no zero is left
        zeros = np.where(full, 0.0, np.maximum(self.weight - stored, 0.0))
        self.mean = mean
        return (squares + zeros * mean**2) / self.weight

    def scatter(self, mean, V=None):
        """Weighted scatter matrix of the rows about `mean`; its product with V, if any.

        Sparse rows are not made dense for the product with one vector.
        """
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
        """The E-steps of one run."""
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
            sizes = np.asarray(self.X.multiply(self.X).sum(axis=1)).reshape(-1)
            costs[distances <= ROUNDING**2 * sizes] = 0.0
        order = np.argsort(-costs, kind="stable")[:n]
        order = order[costs[order] > 0.0]
        return [
            Candidate(costs[i], labels[i], self.weights[i], self.at([i])[0])
            for i in order
        ], n_own

    def assess(self, centers, labels=None):
        """Labels of the rows, their inertia, and the weight of each cluster."""
        labels = self.assign(centers) if labels is None else labels
        inertia = self.inertia(centers, labels)
        return labels, inertia, np.bincount(labels, self.weights, len(centers))

    def distinct(self, enough):
        """Distinct rows of positive weight, as a set of bytes: all, or `enough`."""
        found = set()
        for i in np.flatnonzero(self.weights):
            if self.is_sparse:
                stored = slice(self.X.indptr[i], self.X.indptr[i + 1])
                filled = self.X.data[stored] != 0
                parts = self.X.data[stored][filled], self.X.indices[stored][filled]
            else:
                parts = (self.X[i] + 0.0,)  # no negative zeros
            found.add(tuple(part.tobytes() for part in parts))
            if len(found) >= enough:
                break
        return found

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

        With `sparse_output`, a CSR matrix made of small dense pieces.
        """
        codebook = self.codebook(centers)
        heat = heat_of(sigma, alpha, exact=True)
        k, size = len(centers), self.n_rows
        if sparse_output:
            size = max(1, MAX_PARTIAL // (MAX_STRIPS * k))
        pieces = []
        for origin in range(0, self.n_rows, size):
            out = np.empty((min(size, self.n_rows - origin), k), dtype=self.dtype)

            def work(s, start, stop, out=out, origin=origin):
                kernels.responsibility_rows(
                    self.arrays, start, stop, codebook, self.work(k), heat, out, origin
                )

            self.run(work, self.strips(k, 1, origin, origin + len(out)))
            pieces.append(sparse.csr_matrix(out) if sparse_output else out)
        return sparse.vstack(pieces, format="csr") if sparse_output else pieces[0]

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
        size = max(1, AT_ONCE // len(centers))
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

    def strips(self, n_vectors, size=1, start=0, stop=None):
        """Cut the rows from start to stop, for products with so many vectors each.

        `size` is that of the partial sums of a strip. Each is a range, whose
        steps are short enough for Ctrl-C to be heard in time.
        """
        stop = self.n_rows if stop is None else stop
        row_work = n_vectors * self._row_size + ROW_WORK
        n_worth = (stop - start) * row_work // STRIP_WORK
        n = min(n_worth, stop - start, self.max_strips, MAX_PARTIAL // max(size, 1))
        n = max(n, 1)
        bounds = [start + (stop - start) * s // n for s in range(n + 1)]
        piece = max(PIECE_WORK // row_work, 1)
        return [range(*pair, piece) for pair in itertools.pairwise(bounds)]

    def run(self, work, strips, heavy=False):
        """Call ``work(s, start, stop)`` for each step of all strips, on all threads.

        On this thread alone if there are few strips, unless they are `heavy`.
        """
        turn = itertools.count()
        stopped = False

        def loop():
            nonlocal stopped
            try:
                for s in turn:
                    if s >= len(strips):
                        return
                    for start in strips[s]:
                        if stopped:
                            return
                        work(s, start, min(start + strips[s].step, strips[s].stop))
            except BaseException:  # Ctrl-C among them
                stopped = True
                raise

        is_shared = heavy or len(strips) >= LIGHT
        n_helpers = min(self.n_threads, len(strips)) - 1 if is_shared else 0
        if n_helpers > 0 and self._pool is None:
            self._pool = ThreadPoolExecutor(self.n_threads - 1, initializer=limit_blas)
        helpers = []
        try:
            for _ in range(n_helpers):
                helpers.append(self._pool.submit(loop))
        except RuntimeError:  # there are no more threads, or the interpreter ends
            self._pool.shutdown()
            self._pool, self.n_threads = None, 1
        try:
            loop()
            if helpers:
                wait(helpers)
        finally:
            stopped = True  # Ctrl-C may come while only helpers are at work
            if helpers:
                wait(helpers)
        for helper in helpers:
            helper.result()

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
        key = threading.get_ident(), k
        if key not in self._works:
            d = 0 if self.is_sparse else self.n_features
            self._works[key] = make_work(k, d)
        return self._works[key]

    def softmax_work(self, k):
        """Buffers of this thread for k centres and `kernels.softmax_rows`."""
        key = threading.get_ident(), k, "softmax"
        if key not in self._works:
            self._works[key] = make_softmax_work(k, self.n_features)
        return self._works[key]


def n_lanes_for(k):
    """Rows in a block, so that their scores stay in cache."""
    return 272 if k <= 128 else 144 if k <= 512 else 80


def make_work(k, d):
    """Buffers for blocks of dense rows with d features, or with ``d = 0`` sparse."""
    n_lanes = n_lanes_for(k)
    return Work(
        picked=np.empty(n_lanes, dtype=np.int64),
        rows=np.ones((n_lanes, d + 1), dtype=np.float32),  # the last is for offsets
        scores=np.empty(k * n_lanes, dtype=np.float32),
        minima=np.empty((2, n_lanes), dtype=np.float32),
        who=np.empty(n_lanes, dtype=np.int32),
        lanes=np.empty((4, n_lanes)),
        members=np.empty(k, dtype=np.int64),
        candidates=np.empty((3, k)),
    )


def make_softmax_work(k, d):
    """Buffers for `kernels.softmax_rows`."""
    n_lanes = n_lanes_for(k)
    return SoftmaxWork(
        picked=np.empty(n_lanes, dtype=np.int64),
        rows=np.ones((n_lanes, d + 1)),
        lengths=np.empty(n_lanes),
        scores=np.empty((k, n_lanes)),
        scratch=np.empty(k * n_lanes),
        minima=np.empty((2, n_lanes)),
        who=np.empty(n_lanes, dtype=np.int32),
        rates=np.empty(n_lanes),
        counts=np.empty(n_lanes, dtype=np.int64),
        block_sums=np.empty((k, d + 1)),
    )


def middle_of(centers):
    """Medians of the centres' coordinates, the lower of two."""
    middle = (len(centers) - 1) // 2
    return np.partition(centers, middle, axis=0)[middle]


def make_codebook(centers, shift, is_sparse):
    """The centres in all forms."""
    k, d = centers.shape
    rounding = relative_rounding(np.float32, d + 1)
    factor = np.empty((k, d + 1), dtype=np.float64 if is_sparse else np.float32)
    lengths = np.empty(k)
    unit = kernels.fill_codebook(centers, shift, rounding, factor, lengths)
    if is_sparse:
        factor = np.ascontiguousarray(factor.T)
    return Codebook(centers, lengths * unit**2, shift, unit, factor, lengths, rounding)


def make_softmax(centers, origin):
    """The centres as `kernels.softmax_rows` needs them."""
    shifted = centers - origin
    lengths = np.einsum("ij,ij->i", shifted, shifted)
    rounding = relative_rounding(np.float64, centers.shape[1] + 1)
    factor = np.column_stack([-2.0 * shifted, lengths])
    return Softmax(centers, origin, factor, lengths, rounding)


def distances_to_next(codebook):
    """Lower bounds on the distance from each dense centre to the next.

    A single one has none within reach.
    """
    k, lengths = len(codebook.lengths), codebook.lengths
    factor, least = codebook.factor, np.empty(k)
    rows = -0.5 * factor
    rows[:, -1] = 1.0
    size = max(1, AT_ONCE // k)
    for start in range(0, k, size):
        scores = rows[start : start + size] @ factor.T
        scores.reshape(-1)[start :: k + 1] = np.inf  # the nearest of all is itself
        least[start : start + size] = scores.min(axis=1)
    least += (1.0 - 4.0 * codebook.rounding) * lengths
    least -= 4.0 * kernels.UNDERFLOW
    return np.minimum(np.sqrt(np.maximum(least, 0.0)) * codebook.unit, FAR)


def share_width(sigma, alpha, exact=False):
    """Least excess of squared distance at which a centre has no share.

    ``2 sigma^2 / (alpha - 1)``; unless `exact`, at most the excess at which a
    share is lost in rounding, which is what ends it for softmax.
    """
    two_sigma2 = 2.0 * sigma * sigma
    if two_sigma2 == 0.0:
        return 0.0
    width = two_sigma2 / (alpha - 1.0) if alpha > 1.0 else np.inf
    return width if exact else min(width, kernels.LOG_ROUNDING * two_sigma2)


def heat_of(sigma, alpha, exact=False):
    """The temperature as kernels want it: alpha, 2 sigma^2 and `share_width`."""
    width = share_width(sigma, alpha, exact)
    return kernels.as_argument(alpha), 2.0 * sigma * sigma, width


@lru_cache
def relative_rounding(dtype, n_features):
    """Bound on the rounding of a score, relative to ``||x||^2 + ||c||^2``.

    The smaller of the worst case and eight standard deviations of independent
    roundings [1]_, doubled for ``(a + b)^2 <= 2 a^2 + 2 b^2``.

    References
    ----------
    .. [1] N. J. Higham and T. Mary, "A new approach to probabilistic rounding
       error analysis", SIAM J. Sci. Comput. 41 (2019).
    """
    unit = float(np.finfo(dtype).eps) / 2.0
    return 2.0 * unit * float(min(n_features, 8.0 * np.sqrt(n_features)) + 6.0)


def _read_only(array):
    """A read-only view, so that one compiled version serves every array."""
    view = array.view()
    view.setflags(write=False)
    return view
