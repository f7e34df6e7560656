"""The nearest centre of each row, found by a matrix product and bounds on its error.

Rows are worked on in blocks, and inside a block the rows are the lanes: the
score of centre ``j`` for row ``i`` stands at ``scores[j, i]``, so that the two
smallest per row are found by elementwise comparisons of whole vectors.

Scores come from a matrix product in float32, ``||c||^2 - 2 <x, c>``, whose
rounding error is bounded. They only nominate: wherever a decision could hang on
that error, the distances in question are computed by `squared_distance`. So a
label never depends on which rows happen to stand in the same block.
"""

# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from ..jit import FAST, jit
from .distances import squared_distance

# Scores are float32, in units of the farthest centre. They may lose so much by
# underflow, and are not used for rows whose squared length is larger than this, nor
# if in the user's units a doubt is so small that float64 could lose it.
UNDERFLOW, OVERFLOW, LEAST_DOUBT = 1e-32, 1e30, 1e-290


@jit(inner=True)
def two_least(value, j, low, high, who):
    """The two least of ``low <= high`` and a value, and whose the least is."""
    less = value < low
    loser = low if less else value
    high = loser if loser < high else high
    who = j if less else who
    low = value if less else low
    return low, high, who


@jit(inner=True)
def two_smallest(scores, low, high, who):
    """The two smallest of ``scores[j, i]`` over j, for each lane i.

    `who` gets the first j of the smallest. With one centre, `high` is infinite.
    """
    k, n_lanes = scores.shape
    for i in range(n_lanes):
        low[i], high[i], who[i] = np.inf, np.inf, 0
    j = 0
    while j + 3 < k:  # four centres a pass: the running minima stay in registers
        s0, s1, s2, s3 = scores[j], scores[j + 1], scores[j + 2], scores[j + 3]
        j0, j1, j2, j3 = np.int32(j), np.int32(j + 1), np.int32(j + 2), np.int32(j + 3)
        for i in range(n_lanes):
            a, b, c = low[i], high[i], who[i]
            a, b, c = two_least(s0[i], j0, a, b, c)
            a, b, c = two_least(s1[i], j1, a, b, c)
            a, b, c = two_least(s2[i], j2, a, b, c)
            a, b, c = two_least(s3[i], j3, a, b, c)
            low[i], high[i], who[i] = a, b, c
        j += 4
    while j < k:
        s0, j0 = scores[j], np.int32(j)
        for i in range(n_lanes):
            low[i], high[i], who[i] = two_least(s0[i], j0, low[i], high[i], who[i])
        j += 1


# --- blocks of rows ----------------------------------------------------------
#
# `codebook` and `work` are the named tuples of `rows`. `weights` of size 0
# stands for ones.


@jit(fastmath=FAST, inner=True)
def load_rows(X, picked, shift, per_unit, rows, lengths):
    """Copy some rows less `shift`, times `per_unit`, and their squared lengths."""
    for i in range(picked.size):
        x, total = X[picked[i]], 0.0
        for f in range(shift.size):
            value = (x[f] - shift[f]) * per_unit
            rows[i, f] = value
            total += value * value
        lengths[i] = total


@jit(fastmath=FAST, inner=True)
def score_sparse_rows(csr, picked, factor, per_unit, scores, lengths, dots):
    """`score_rows` of sparse rows; `dots` is scratch for one of them."""
    values, indices, indptr = csr
    for i in range(picked.size):
        dots[:] = factor[factor.shape[0] - 1]
        total = 0.0
        for p in range(indptr[picked[i]], indptr[picked[i] + 1]):
            value, column = values[p] * per_unit, factor[indices[p]]
            total += value * value
            for j in range(dots.size):
                dots[j] += value * column[j]
        lengths[i] = total
        for j in range(dots.size):
            scores[j, i] = dots[j]


@jit(inner=True)
def score_rows(X, csr, picked, codebook, work):
    """Score some rows, no more than a block.

    A squared distance in units of the codebook is ``work.lengths[i] +
    scores[j, i]``, less at most the codebook's `rounding` times the squared
    length of the row, plus at most the same and twice that of the centre.

    Returns the scores, of shape (centres, lanes).
    """
    n_lanes = min((picked.size + 15) // 16 * 16, work.lengths.size)  # whole vectors
    k, per_unit = codebook.lengths.size, 1.0 / codebook.unit
    scores = work.scores[: k * n_lanes].reshape((k, n_lanes))
    if X is not None:
        load_rows(X, picked, codebook.shift, per_unit, work.rows, work.lengths)
        np.dot(codebook.factor, work.rows[:n_lanes].T, scores)
    if csr is not None:
        score_sparse_rows(
            csr, picked, codebook.factor, per_unit, scores, work.lengths, work.shares
        )
    return scores


@jit(inner=True)
def find_nearest(scores, n_rows, codebook, work, width):
    """Find the nearest centre of each of the n rows that have been scored.

    Where scores tell that every other centre is more than `width` farther, in
    squared distance, the lane is ``clear``: ``who`` is the nearest,
    ``smallest`` an upper bound on its squared distance, and ``second`` a lower
    bound on that of all others. Where they do not, `list_candidates` is for.
    """
    two_smallest(scores, work.low, work.high, work.who)
    unit2 = codebook.unit * codebook.unit
    for i in range(n_rows):
        length = work.lengths[i]
        low, high = np.float64(work.low[i]), np.float64(work.high[i])
        rough = codebook.rounding * (length + codebook.lengths[work.who[i]])
        doubt = 2.0 * (rough + UNDERFLOW)
        is_usable = (length < OVERFLOW) & (doubt * unit2 > LEAST_DOUBT)
        gap = high - low - doubt
        work.clear[i] = is_usable & (gap > 0.0) & (gap * unit2 >= width)
        work.doubts[i] = doubt if is_usable else np.inf
        work.smallest[i] = max(low + length + doubt, 0.0) * unit2
        work.second[i] = max(high + length - doubt, 0.0) * unit2


@jit(inner=True)
def list_candidates(X, csr, row, i, scores, codebook, work, width):
    """List the centres that can have a share in the row of lane i.

    Those are the centres less than `width` farther, in squared distance, than
    the nearest. They stand in ``work.members`` in increasing order, their
    squared distances less the smallest in ``work.gaps``. Sets ``who`` to the
    first of the nearest, ``smallest`` to its squared distance, and ``second``
    to a lower bound on that of all others.

    Returns how many there are.
    """
    unit2, n_centers = codebook.unit * codebook.unit, codebook.lengths.size
    limit = work.low[i] + width / unit2 + work.doubts[i]
    n = 0
    for j in range(n_centers):  # no branch: most guesses of one would fail
        work.members[n] = j
        n += (scores[j, i] <= limit) | (work.doubts[i] == np.inf)
    best, smallest = 0, np.inf
    for c in range(n):
        value = squared_distance(
            X, csr, row, codebook.centers, codebook.norms, work.members[c]
        )
        work.gaps[c] = value
        if value < smallest:
            best, smallest = c, value
    second = np.inf
    if n < n_centers:
        second = max(limit + work.lengths[i] - work.doubts[i], 0.0) * unit2
    work.who[i] = work.members[best]
    n_members = 0
    for c in range(n):
        if c != best:
            second = min(second, work.gaps[c])
        gap = work.gaps[c] - smallest
        if gap < width or c == best:
            work.members[n_members], work.gaps[n_members] = work.members[c], gap
            n_members += 1
    work.smallest[i], work.second[i] = smallest, second
    return n_members


@jit
def label_rows(X, csr, start, stop, codebook, work, labels):
    """Nearest centre of each row; the first, in case of ties."""
    n_lanes = work.lengths.size
    for first in range(start, stop, n_lanes):
        picked = np.arange(first, min(first + n_lanes, stop))
        scores = score_rows(X, csr, picked, codebook, work)
        find_nearest(scores, picked.size, codebook, work, 0.0)
        for i in range(picked.size):
            if not work.clear[i]:
                list_candidates(X, csr, picked[i], i, scores, codebook, work, 0.0)
            labels[picked[i]] = work.who[i]
