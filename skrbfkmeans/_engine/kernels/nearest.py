"""The nearest centre of each row, by a matrix product and bounds on its rounding.

Rows are worked on in blocks, and inside a block the rows are the lanes: the
score of centre ``j`` for row ``i`` stands at ``scores[j, i]``, so that the two
smallest per row are found by elementwise comparisons of whole vectors.

Scores come from a matrix product in float32, ``||c||^2 - 2 <x, c>``, whose
rounding error is bounded. They only nominate: wherever a decision could hang on
that error, the distances in question are computed by `squared_distance`. So a
label never depends on which rows happen to stand in the same block.

A kernel that works on blocks is handed the buffers of its thread, `work`:

- ``picked`` (lanes,): which rows stand in the lanes,
- ``rows`` (lanes, features + 1): they themselves, less the codebook's shift, in its
  unit; and a one, which takes up the ``||c||^2`` in the product,
- ``scores``: room for the scores, of any number of lanes,
- ``minima`` (2, lanes): the two least scores, `LOW` and `HIGH`,
- ``who`` (lanes,): whose the least is,
- ``lanes`` (4, lanes): what is found out about each row, `LENGTH`, `LIMIT`,
  `SMALLEST` and `SECOND`,
- ``members`` (centres,): the candidates of the one row in doubt, and
- ``candidates`` (3, centres): their `GAPS`, `LOGITS` and `SHARES`.
"""

# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from ..jit import FAST, jit
from .distances import squared_distance

# What a squared length or a score in float32, in units of the codebook, may lose by
# underflow: far more than the least normal number, 1e-38, times any number of them.
UNDERFLOW = 1e-32

# Rows whose squared length, in units of the codebook, is larger get no use of their
# scores, for these may overflow: float32 ends at 3e38.
OVERFLOW = 1e30

# Nor do rows whose doubt, in squared units of the user, is not larger: float64 could
# lose it, for it ends at 1e-308.
LEAST_DOUBT = 1e-290

# Rows of ``work.minima``: the least score of each lane, and the second least.
LOW, HIGH = range(2)

# Rows of ``work.lanes``: squared length in units of the codebook; the score up to
# which a centre is a candidate, or -inf where the nearest is known; and, in squared
# units of the user, the squared distance to the nearest centre, or an upper bound on
# it, and a lower bound on the squared distance to all others.
LENGTH, LIMIT, SMALLEST, SECOND = range(4)

# Rows of ``work.candidates``: squared distances less the smallest, and room for what
# is made of them.
GAPS, LOGITS, SHARES = range(3)


# --- scores ------------------------------------------------------------------


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
def score_sparse_rows(data, picked, factor, per_unit, scores, lengths, dots):
    """`score_rows` of sparse rows; `dots` is scratch for one of them."""
    values, indices, indptr = data
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
def score_rows(data, picked, codebook, work):
    """Score some rows, no more than a block.

    A squared distance in units of the codebook is the row's `LENGTH` plus ``scores[j,
    i]``, less at most the codebook's `rounding` times the squared length of the row,
    plus at most the same and twice that of the centre.

    Returns the scores, of shape (centres, lanes).
    """
    lengths, k = work.lanes[LENGTH], codebook.lengths.size
    n_lanes = min((picked.size + 15) // 16 * 16, lengths.size)  # whole vectors
    per_unit = 1.0 / codebook.unit
    scores = work.scores[: k * n_lanes].reshape((k, n_lanes))
    if len(data) == 1:
        load_rows(data[0], picked, codebook.shift, per_unit, work.rows, lengths)
        np.dot(codebook.factor, work.rows[:n_lanes].T, scores)
    else:
        dots = work.candidates[SHARES]
        score_sparse_rows(
            data, picked, codebook.factor, per_unit, scores, lengths, dots
        )
    return scores


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
def two_smallest(scores, minima, who):
    """The two smallest of ``scores[j, i]`` over j, for each lane i.

    `who` gets the first j of the smallest. With one centre, the second is infinite.
    """
    low, high = minima[LOW], minima[HIGH]
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


# --- decisions ---------------------------------------------------------------


@jit(inner=True)
def find_nearest(scores, n_rows, codebook, work, width):
    """Find the nearest centre of each of the n rows that have been scored.

    Two scores of a row are in the order of its distances if they differ by more than
    the `doubt`: either may be wrong by half of it, through rounding in proportion to
    the squared lengths of row and centre, and through underflow.

    Where scores tell so that every other centre is more than `width` farther, in
    squared distance, ``who`` is the nearest, and ``lanes[LIMIT, i]`` is -inf. Where
    they do not, `list_candidates` is for, and every centre whose score is not above
    the limit is one. It is infinite where scores are of no use.
    """
    two_smallest(scores, work.minima, work.who)
    minima, lanes, lengths = work.minima, work.lanes, codebook.lengths
    unit2 = codebook.unit * codebook.unit
    for i in range(n_rows):
        length = lanes[LENGTH, i]
        low, high = np.float64(minima[LOW, i]), np.float64(minima[HIGH, i])
        rough = codebook.rounding * (length + lengths[work.who[i]])
        doubt = 2.0 * (rough + UNDERFLOW)
        is_usable = (length < OVERFLOW) & (doubt * unit2 > LEAST_DOUBT)
        gap = high - low - doubt
        is_clear = is_usable & (gap > 0.0) & (gap * unit2 >= width)
        limit = low + width / unit2 + doubt
        second = high if is_clear else limit  # the least score not looked at
        lanes[LIMIT, i] = -np.inf if is_clear else limit if is_usable else np.inf
        lanes[SMALLEST, i] = max(low + length + doubt, 0.0) * unit2
        lanes[SECOND, i] = max(second + length - doubt, 0.0) * unit2


@jit(inner=True)
def list_candidates(data, row, i, scores, codebook, work, width):
    """List the centres that can have a share in the row of lane i.

    Those are the centres less than `width` farther, in squared distance, than
    the nearest. They stand in ``work.members`` in increasing order, their
    squared distances less the smallest in ``work.candidates[GAPS]``. Sets ``who`` to
    the first of the nearest, `SMALLEST` to its squared distance, and `SECOND` to a
    lower bound on that of all others.

    Returns how many there are.
    """
    lanes, members, gaps = work.lanes, work.members, work.candidates[GAPS]
    limit, n_centers = lanes[LIMIT, i], codebook.lengths.size
    n = 0
    for j in range(n_centers):  # no branch: most guesses of one would fail
        members[n] = j
        n += not scores[j, i] > limit  # nor is a score that is not a number
    best, smallest = 0, np.inf
    for c in range(n):
        value = squared_distance(
            data, row, codebook.centers, codebook.norms, members[c]
        )
        gaps[c] = value
        if value < smallest:
            best, smallest = c, value
    second = lanes[SECOND, i] if n < n_centers else np.inf
    work.who[i] = members[best]
    n_members = 0
    for c in range(n):
        if c != best:
            second = min(second, gaps[c])
        gap = gaps[c] - smallest
        if gap < width or c == best:
            members[n_members], gaps[n_members] = members[c], gap
            n_members += 1
    lanes[SMALLEST, i], lanes[SECOND, i] = smallest, second
    return n_members


@jit
def label_rows(data, start, stop, codebook, work, labels):
    """Nearest centre of each row; the first, in case of ties."""
    n_lanes = work.picked.size
    for first in range(start, stop, n_lanes):
        picked = pick_all(first, stop, work.picked)
        scores = score_rows(data, picked, codebook, work)
        find_nearest(scores, picked.size, codebook, work, 0.0)
        for i in range(picked.size):
            if work.lanes[LIMIT, i] > -np.inf:
                list_candidates(data, picked[i], i, scores, codebook, work, 0.0)
            labels[picked[i]] = work.who[i]


@jit(inner=True)
def pick_all(first, stop, picked):
    """The rows from `first` on that fill a block, or end before `stop`."""
    n = min(picked.size, stop - first)
    for i in range(n):
        picked[i] = first + i
    return picked[:n]
