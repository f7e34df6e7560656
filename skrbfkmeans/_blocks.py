"""Rows in fixed strips over threads, partial sums added in order.

The cut into strips depends on the shape of the data and never on the number
of threads, each strip is worked on by one thread alone, and partial results
are added in the order of the strips: so every number comes out the same, to
the last bit, for any number of threads.
"""

# SPDX-License-Identifier: BSD-3-Clause

import itertools
import threading
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
from sklearn.utils._openmp_helpers import _openmp_effective_n_threads
from sklearn.utils.parallel import _get_threadpool_controller

from . import _kernels

# A strip is worth a thread's while from this many multiplications on. There are
# at most so many strips, and so many numbers in all their partial sums.
STRIP_WORK, MAX_STRIPS, MAX_PARTIAL = 2**20, 64, 2**22

# Rows that are converted together outside the kernels.
BLOCK_ROWS = 1024

# Besides its distances, a row costs about as much as this many multiplications.
ROW_WORK = 32

Codebook = namedtuple("Codebook", "centers shifted offsets norms shift rounding")
Work = namedtuple(
    "Work",
    "columns rows norms products scores smallest second nearest "
    "limits counts members values logits shares flat scratch centered block_sums",
)


class Moments(namedtuple("Moments", "sums masses totals")):
    """What one E-step leaves for the M-step: sums that add up over any rows.

    ``sums`` (n_clusters, n_features) of the responsibilities times the rows
    less the shift, ``masses`` (n_clusters,) of the responsibilities, and
    ``totals`` (4,), which the properties name.
    """

    __slots__ = ()

    free_energy = property(lambda self: self.totals[_kernels.OBJECTIVE])
    soft_weight = property(lambda self: self.totals[_kernels.SOFT_WEIGHT])
    support = property(lambda self: self.totals[_kernels.SUPPORT])
    n_changed = property(lambda self: self.totals[_kernels.CHANGED])


class _SingleThreadedBLAS:
    """Hold BLAS to one thread while any thread of ours is inside.

    Counts its users, so that runs which overlap in time leave the limit as
    the first of them found it.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._users = 0

    def __enter__(self):
        with self._lock:
            if self._users == 0:
                controller = _get_threadpool_controller()
                self._limiter = controller.limit(limits=1, user_api="blas")
            self._users += 1

    def __exit__(self, *exception):
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._limiter.restore_original_limits()


single_threaded_blas = _SingleThreadedBLAS()


class Rows:
    """The rows of one array, for all passes that one call makes over them.

    Use it as a context manager: threads and the limit on BLAS live inside.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features), float32 or float64, C order
        The data; read only.
    weights : ndarray of shape (n_samples,), float64, default=None
        Weights of the rows, 1 by default.
    """

    def __init__(self, X, weights=None):
        self.X = _read_only(X)
        self._weights = _read_only(np.empty(0) if weights is None else weights)
        self.n_rows, self.n_features = X.shape
        self.shift = None

    def __enter__(self):
        single_threaded_blas.__enter__()
        self._n_threads = _openmp_effective_n_threads()
        self._pool = None
        self._works = {}
        return self

    def __exit__(self, *exception):
        if self._pool is not None:
            self._pool.shutdown()
        single_threaded_blas.__exit__(*exception)

    @property
    def weights(self):
        """Weights of the rows, of shape (n_samples,)."""
        if self._weights.size == 0:
            return np.broadcast_to(1.0, self.n_rows)
        return self._weights

    def at(self, indices):
        """Some of the rows, as float64."""
        return self.X[indices].astype(np.float64)

    # --- passes ---

    def measure(self):
        """Total weight, and mean and variance of each feature.

        The mean becomes the shift of all later passes.

        Returns
        -------
        variances : ndarray of shape (n_features,)
        """
        strips = self._strips(self.n_features)
        shift = np.zeros(self.n_features)
        for _ in range(2):  # the second pass, about the mean, loses no digits
            partial = np.zeros((len(strips), 2, self.n_features))

            def work(s, start, stop, shift=shift, partial=partial):
                _kernels.moment_rows(
                    self.X, self._weights, start, stop, shift, *partial[s]
                )

            self._run(work, strips)
            self.weight = float(self.weights.sum())
            mean, square = partial.sum(axis=0) / self.weight
            shift = shift + mean
        self.shift = shift
        return np.maximum(square - mean**2, 0.0)

    def assign(self, centers, measuring=True):
        """Labels of the rows, and their inertia if `measuring`."""
        labels = np.zeros(self.n_rows, dtype=np.int32)
        step = self._e_step(centers, 0.0, 2.0, labels, False, measuring)
        return labels, float(step.free_energy)

    def em_step(self, centers, sigma, alpha, labels):
        """One E-step at temperature sigma, and what the M-step needs.

        Parameters
        ----------
        centers : ndarray of shape (n_clusters, n_features)
        sigma : float
            Temperature; 0 is the hard limit.
        alpha : float
        labels : ndarray of shape (n_samples,), int32
            Overwritten with the nearest centres.

        Returns
        -------
        moments : Moments
            Over all rows.
        """
        return self._e_step(centers, sigma, alpha, labels, True, True)

    def _e_step(self, centers, sigma, alpha, labels, summing, measuring):
        """`em_step`; unless `summing` or `measuring`, with the less."""
        codebook = self._codebook(centers)
        k, d = centers.shape if summing else (0, 0)
        strips = self._strips(centers.size)
        parts = [Moments(np.zeros((k, d)), np.zeros(k), np.zeros(4)) for _ in strips]
        two_sigma2 = 2.0 * sigma * sigma
        width = share_width(sigma, alpha)

        def work(s, start, stop):
            common = self.X, self._weights, start, stop, codebook, self._work(codebook)
            if alpha == 1.0 and two_sigma2 > 0.0:
                _kernels.softmax_rows(*common, two_sigma2, labels, parts[s])
            else:
                _kernels.em_rows(
                    *common, alpha, two_sigma2, width, measuring, labels, parts[s]
                )

        self._run(work, strips)
        total = parts[0]
        for part in parts[1:]:
            for ours, theirs in zip(total, part, strict=True):
                ours += theirs
        return total

    def responsibilities(self, centers, sigma, alpha):
        """Responsibilities, of shape (n_samples, n_clusters), in X's dtype."""
        codebook = self._codebook(centers)
        out = np.empty((self.n_rows, centers.shape[0]), dtype=self.X.dtype)
        two_sigma2 = 2.0 * sigma * sigma
        width = share_width(sigma, alpha, exact=True)

        def work(s, start, stop):
            _kernels.responsibility_rows(
                self.X, start, stop, codebook, self._work(codebook), alpha,
                two_sigma2, width, out,
            )  # fmt: skip

        self._run(work, self._strips(centers.size))
        return out

    def squared_distances(self, centers):
        """Squared distances, of shape (n_samples, n_clusters), float64."""
        codebook = self._codebook(centers)
        out = np.empty((self.n_rows, centers.shape[0]))

        def work(s, start, stop):
            _kernels.distance_rows(self.X, start, stop, codebook, out)

        self._run(work, self._strips(centers.size))
        return out

    def squared_distances_to(self, centers, labels):
        """Squared distance of each row to the centre that its label names."""
        out = np.empty(self.n_rows)
        for start in range(0, self.n_rows, BLOCK_ROWS):
            block = slice(start, start + BLOCK_ROWS)
            difference = self.at(block) - centers[labels[block]]
            out[block] = np.einsum("ij,ij->i", difference, difference)
        return out

    def margin(self, centers):
        """Least gap between the two smallest squared distances of a row."""
        codebook = self._codebook(centers)
        strips = self._strips(centers.size)
        totals = np.zeros((len(strips), 1))

        def work(s, start, stop):
            _kernels.margin_rows(
                self.X, start, stop, codebook, self._work(codebook), totals[s]
            )

        self._run(work, strips)
        return float(totals.min())

    def lower(self, closest, center):
        """Lower ``closest`` to the squared distances to a new centre, in place."""

        def work(s, start, stop):
            _kernels.seed_rows(
                self.X, self._weights, start, stop, center, closest, np.empty(0)
            )

        self._run(work, self._strips(self.n_features))

    def potentials(self, closest, candidates):
        """Weighted sum of squared distances if each candidate were a centre."""
        strips = self._strips(candidates.size)
        parts = np.zeros((len(strips), candidates.shape[0]))

        def work(s, start, stop):
            _kernels.seed_rows(
                self.X, self._weights, start, stop, candidates, closest, parts[s]
            )

        self._run(work, strips)
        return parts.sum(axis=0)

    # --- how a pass runs ---

    def _strips(self, size):
        """Cut the rows, each worth about `size` multiplications."""
        n_worth = self.n_rows * (size + ROW_WORK) // STRIP_WORK
        n = min(n_worth, MAX_STRIPS, MAX_PARTIAL // size)
        bounds = np.linspace(0, self.n_rows, max(n, 1) + 1).astype(np.int64)
        return list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))

    def _run(self, work, strips):
        """Call ``work(s, start, stop)`` for every strip, on all threads."""
        turn = itertools.count()
        stopped = False

        def loop():
            while not stopped:
                s = next(turn)
                if s >= len(strips):
                    return
                work(s, *strips[s])

        n_helpers = min(self._n_threads, len(strips)) - 1
        if n_helpers > 0 and self._pool is None:
            self._pool = ThreadPoolExecutor(self._n_threads - 1)
        helpers = [self._pool.submit(loop) for _ in range(n_helpers)]
        try:
            loop()
        finally:
            stopped = True
            wait(helpers)
        for helper in helpers:
            helper.result()

    def _codebook(self, centers):
        """Centres in the forms that the kernels use."""
        k, d = centers.shape
        centers = np.ascontiguousarray(centers, dtype=np.float64)
        if d <= _kernels.N_FEATURES_DIRECT:
            zeros = np.zeros(k)
            shift = np.zeros(d) if self.shift is None else self.shift
            shifted = np.zeros((0, 0), dtype=self.X.dtype)
            return Codebook(centers, shifted, zeros, zeros, shift, 0.0)
        shift = np.median(centers, axis=0) if self.shift is None else self.shift
        shifted = (centers - shift).astype(self.X.dtype)
        norms = np.einsum("ij,ij->i", shifted, shifted, dtype=np.float64)
        rounding = relative_rounding(self.X.dtype, d)
        return Codebook(
            centers, shifted, (1.0 - rounding) * norms, norms, shift, rounding
        )

    def _work(self, codebook):
        """Buffers of this thread, whose size depends on the shape of the centres."""
        k, d = codebook.centers.shape
        key = threading.get_ident(), k
        if key not in self._works:
            self._works[key] = make_work(k, d, self.X.dtype)
        return self._works[key]


def make_work(k, d, dtype):
    """Buffers for blocks of rows against k centres in d features."""
    lanes = 264 if k <= 128 else 136 if k <= 512 else 72  # scores stay in cache
    direct = d <= _kernels.N_FEATURES_DIRECT
    scores = np.empty((k, lanes))
    return Work(
        columns=np.empty((d, lanes) if direct else (0, 0)),
        rows=np.empty((0, 0) if direct else (lanes, d), dtype=dtype),
        norms=np.zeros(lanes),
        products=scores if dtype == np.float64 else np.empty((k, lanes), dtype),
        scores=scores,
        smallest=np.empty(lanes),
        second=np.empty(lanes),
        nearest=np.empty(lanes, dtype=np.int64),
        limits=np.empty(lanes),
        counts=np.empty(lanes, dtype=np.int64),
        members=np.empty((lanes, k), dtype=np.int64),
        values=np.empty((lanes, k)),
        logits=np.empty(k),
        shares=np.empty(k),
        flat=scores.reshape(-1),
        scratch=np.empty(k * lanes),
        centered=np.empty((lanes, d)),
        block_sums=np.empty((k, d)),
    )


def share_width(sigma, alpha, exact=False):
    """Least excess of squared distance at which a centre has no share.

    ``2 sigma^2 / (alpha - 1)``; unless `exact`, at most the excess at which a
    share is lost in rounding, which is what ends it for softmax.
    """
    two_sigma2 = 2.0 * sigma * sigma
    if two_sigma2 == 0.0:
        return 0.0
    width = two_sigma2 / (alpha - 1.0) if alpha > 1.0 else np.inf
    return width if exact else min(width, _kernels.LOG_ROUNDING * two_sigma2)


def relative_rounding(dtype, n_features):
    """Bound on the rounding of a score, relative to ``||x||^2 + ||c||^2``.

    The smaller of the worst case and eight standard deviations of independent
    roundings [1]_, doubled for ``(a + b)^2 <= 2 a^2 + 2 b^2``.

    References
    ----------
    .. [1] N. J. Higham and T. Mary, "A new approach to probabilistic rounding
       error analysis", SIAM J. Sci. Comput. 41 (2019).
    """
    unit = np.finfo(dtype).eps / 2.0
    return 2.0 * unit * (min(n_features, 8.0 * np.sqrt(n_features)) + 6.0)


def _read_only(array):
    """A read-only view, so that one compiled version serves every array."""
    view = array.view()
    view.setflags(write=False)
    return view
