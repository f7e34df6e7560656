"""Centres in the forms that the compiled functions read, buffers, and roundings."""

# SPDX-License-Identifier: BSD-3-Clause

from collections import namedtuple
from functools import lru_cache

import numpy as np

from . import kernels

# No distance is larger whose square is finite.
LARGEST_DISTANCE = 1e150

# Numbers; distances between centres are taken by blocks of no more.
MOST_GAPS = 2**16

# The centres in the forms that the kernels use: themselves, their squared lengths,
# `norms`, and in units of the one that is farthest from `shift` what rows are
# multiplied with, `factor`, squared lengths, and a bound on the relative rounding.
Codebook = namedtuple("Codebook", "centers norms shift unit factor lengths rounding")

# The same about one origin in float64, for `kernels.softmax_rows`.
Softmax = namedtuple("Softmax", "centers origin factor lengths rounding")

# The buffers of one thread: see `kernels.nearest` and `kernels.softmax`.
Work = namedtuple("Work", "picked rows scores minima who lanes members candidates")
SoftmaxWork = namedtuple(
    "SoftmaxWork",
    "picked rows lengths scores scratch minima who rates counts block_sums",
)


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


def make_dense_work(n_rows, k, dtype):
    """Responsibilities of a few rows, and the positive ones and their columns."""
    dense = np.empty((n_rows, k), dtype)
    return dense, np.empty(dense.size, dtype), np.empty(dense.size, np.int32)


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
    size = max(1, MOST_GAPS // k)
    for start in range(0, k, size):
        scores = rows[start : start + size] @ factor.T
        scores.reshape(-1)[start :: k + 1] = np.inf  # the nearest of all is itself
        least[start : start + size] = scores.min(axis=1)
    least += (1.0 - 4.0 * codebook.rounding) * lengths
    least -= 4.0 * kernels.UNDERFLOW
    return np.minimum(np.sqrt(np.maximum(least, 0.0)) * codebook.unit, LARGEST_DISTANCE)


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
