"""Every compiled function: arrays and scalars in, arrays filled.

Rows are worked on in blocks, and inside a block the rows are the lanes: the
score of centre ``j`` for row ``i`` stands at ``scores[j, i]``, so that the two
smallest per row are found by elementwise comparisons of whole vectors.

With few features a score is the squared distance itself. With more it comes
from a matrix product, ``||c||^2 - 2 <x, c>``, whose rounding error is bounded;
wherever a decision could hang on it, the distances in question are computed
again by `squared_distance`. So a label never depends on which rows happen to
stand in the same block.

Rows come as two arguments, of which one is None: a 2-D array X, or `csr`, the
``(data, indices, indptr)`` of a sparse matrix with sorted indices. The compiler
drops the branch that asks for the one that is None.

All functions are in this one file because numba's cache does not notice a
change in another.
"""

# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np

from ._jit import FAST, jit

# Scores are direct, (x - c)^2, with at most this many features, or with at most
# this many numbers in all centres; beyond, a matrix product is faster.
N_FEATURES_DIRECT, SIZE_DIRECT = 9, 256

# With at most this many features, coarse scores are found without BLAS.
N_FEATURES_COARSE = 16

# Coarse scores are float32, in units of the farthest centre. They may lose so much
# by underflow, and are not used for rows whose squared length is larger than this,
# nor if in the user's units a gap is so small that float64 could lose it.
UNDERFLOW, OVERFLOW, LEAST_GAP = 1e-32, 1e30, 1e-290

# A sparse row's squared distance below this share of the centre's squared length
# has lost too many digits in a difference of lengths, and is summed anew.
CANCELLATION = 1e-3

EPS = 2.0**-52

# Bounds on squared distances are trusted but for this relative error.
SLACK = 1.0 + 1e-10

# A block of rows is full when there is room for fewer than so many more.
LEAST_ROOM = 24

# exp(-LOG_ROUNDING) is below the rounding of a float64 sum that holds a one.
LOG_ROUNDING = 36.0
LEAST_SHARE = 2.3195228302435696e-16

# What an E-step adds up besides sums of rows.
OBJECTIVE, SOFT_WEIGHT, SUPPORT, CHANGED, MEASURED, PICKED = range(6)
N_TOTALS = 6


# --- distances ---------------------------------------------------------------


@jit(inner=True)
def squared_distance(X, csr, i, centers, norms, j):
    """Squared distance of row i and centre j, in one fixed order of summation.

    `norms`, the squared lengths of the centres, are for sparse rows only.
    """
    value = 0.0
    if X is not None:
        value = dense_squared_distance(X, i, centers, j)
    if csr is not None:
        value = sparse_squared_distance(csr, i, centers, norms, j)
    return value


@jit(inner=True)
def sparse_squared_distance(csr, i, centers, norms, j):
    """`squared_distance` of a sparse row."""
    values, indices, indptr = csr
    near, shared = 0.0, 0.0
    for p in range(indptr[i], indptr[i + 1]):
        c = centers[j, indices[p]]
        difference = values[p] - c
        near += difference * difference
        shared += c * c
    rest = norms[j] - shared
    if near + rest >= CANCELLATION * norms[j]:
        return near + rest
    rest, p, stop = 0.0, indptr[i], indptr[i + 1]
    for f in range(centers.shape[1]):
        if p < stop and indices[p] == f:
            p += 1
        else:
            rest += centers[j, f] * centers[j, f]
    return near + rest


@jit(fastmath=FAST, inner=True)
def dense_squared_distance(X, i, centers, j):
    """`squared_distance` of a dense row.

    The order of summation is the compiler's, and the same wherever it is called.
    """
    x, c = X[np.uint64(i)], centers[np.uint64(j)]
    total = 0.0
    for f in range(c.size):
        difference = x[f] - c[f]
        total += difference * difference
    return total


@jit(fastmath={"contract"}, inner=True)
def direct_scores(columns, centers, scores):
    """Squared distances by (x - c)^2, for `columns` of shape (features, rows)."""
    n_features, n_rows = columns.shape[0], scores.shape[1]
    for j in range(centers.shape[0]):
        score = scores[j]
        column, c = columns[0], centers[j, 0]
        for i in range(n_rows):
            difference = column[i] - c
            score[i] = difference * difference
        f = 1
        while f + 2 < n_features:  # three at a time: fewer trips to memory
            x0, x1, x2 = columns[f], columns[f + 1], columns[f + 2]
            c0, c1, c2 = centers[j, f], centers[j, f + 1], centers[j, f + 2]
            for i in range(n_rows):
                d0, d1, d2 = x0[i] - c0, x1[i] - c1, x2[i] - c2
                score[i] = ((score[i] + d0 * d0) + d1 * d1) + d2 * d2
            f += 3
        while f < n_features:
            column, c = columns[f], centers[j, f]
            for i in range(n_rows):
                difference = column[i] - c
                score[i] += difference * difference
            f += 1


@jit(inner=True)
def load_columns(X, picked, n, columns):
    """Copy a block of rows, transposed."""
    for f in range(columns.shape[0]):
        column = columns[f]
        for i in range(n):
            column[i] = X[picked[i], f]


@jit(fastmath=FAST, inner=True)
def load_rows(X, picked, n, shift, rows, norms):
    """Copy a block of rows less `shift`; `norms` gets their squared lengths."""
    for i in range(n):
        x = X[picked[i]]
        total = 0.0
        for f in range(shift.size):
            value = x[f] - shift[f]
            rows[i, f] = value
            total += value * value
        norms[i] = total


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
def two_smallest(scores, offsets, slope, smallest, second, nearest):
    """The two smallest of ``offsets[j] + slope * scores[j, i]`` over j.

    `nearest` gets the first j of the smallest. With one centre, `second` is
    infinite.
    """
    k, n_lanes = scores.shape
    for i in range(n_lanes):
        smallest[i], second[i], nearest[i] = np.inf, np.inf, 0
    j = 0
    while j + 3 < k:  # four centres a pass: the running minima stay in registers
        s0, s1, s2, s3 = scores[j], scores[j + 1], scores[j + 2], scores[j + 3]
        o0, o1, o2, o3 = offsets[j], offsets[j + 1], offsets[j + 2], offsets[j + 3]
        for i in range(n_lanes):
            low, high, who = smallest[i], second[i], nearest[i]
            low, high, who = two_least(o0 + slope * s0[i], j, low, high, who)
            low, high, who = two_least(o1 + slope * s1[i], j + 1, low, high, who)
            low, high, who = two_least(o2 + slope * s2[i], j + 2, low, high, who)
            low, high, who = two_least(o3 + slope * s3[i], j + 3, low, high, who)
            smallest[i], second[i], nearest[i] = low, high, who
        j += 4
    while j < k:
        s0, o0 = scores[j], offsets[j]
        for i in range(n_lanes):
            low, high, who = smallest[i], second[i], nearest[i]
            low, high, who = two_least(o0 + slope * s0[i], j, low, high, who)
            smallest[i], second[i], nearest[i] = low, high, who
        j += 1


@jit(fastmath={"contract"}, inner=True)
def coarse_two_smallest(
    columns, factor, offsets, n, partial, smallest, second, nearest
):
    """The two smallest of ``offsets[j] + <factor[j], columns[:, i]>`` over j.

    For the first n lanes, in float32. The number of features is even.
    """
    k, d = factor.shape
    for i in range(n):
        smallest[i], second[i], nearest[i] = np.inf, np.inf, 0
    p0, p1, p2, p3 = partial[0], partial[1], partial[2], partial[3]
    for j in range(0, k - 3, 4):  # four centres at a time, two features at a time
        j0, j1, j2, j3 = np.int32(j), np.int32(j + 1), np.int32(j + 2), np.int32(j + 3)
        o0, o1, o2, o3 = offsets[j0], offsets[j1], offsets[j2], offsets[j3]
        for i in range(n):
            p0[i], p1[i], p2[i], p3[i] = o0, o1, o2, o3
        for f in range(0, d, 2):
            x, y = columns[f], columns[f + 1]
            a0, a1, a2, a3 = factor[j0, f], factor[j1, f], factor[j2, f], factor[j3, f]
            b0, b1 = factor[j0, f + 1], factor[j1, f + 1]
            b2, b3 = factor[j2, f + 1], factor[j3, f + 1]
            if f < d - 2:
                for i in range(n):
                    p0[i] += a0 * x[i] + b0 * y[i]
                    p1[i] += a1 * x[i] + b1 * y[i]
                    p2[i] += a2 * x[i] + b2 * y[i]
                    p3[i] += a3 * x[i] + b3 * y[i]
                continue
            for i in range(n):
                low, high, who = smallest[i], second[i], nearest[i]
                value = p0[i] + a0 * x[i] + b0 * y[i]
                low, high, who = two_least(value, j0, low, high, who)
                value = p1[i] + a1 * x[i] + b1 * y[i]
                low, high, who = two_least(value, j1, low, high, who)
                value = p2[i] + a2 * x[i] + b2 * y[i]
                low, high, who = two_least(value, j2, low, high, who)
                value = p3[i] + a3 * x[i] + b3 * y[i]
                low, high, who = two_least(value, j3, low, high, who)
                smallest[i], second[i], nearest[i] = low, high, who
    for j in range(k - k % 4, k):
        j0, o0 = np.int32(j), offsets[j]
        for i in range(n):
            p0[i] = o0
        for f in range(0, d, 2):
            x, y, a0, b0 = columns[f], columns[f + 1], factor[j, f], factor[j, f + 1]
            for i in range(n):
                p0[i] += a0 * x[i] + b0 * y[i]
        for i in range(n):
            low, high, who = smallest[i], second[i], nearest[i]
            low, high, who = two_least(p0[i], j0, low, high, who)
            smallest[i], second[i], nearest[i] = low, high, who


# --- responsibilities --------------------------------------------------------


@jit(inner=True)
def entmax_row(y, n, alpha, p):
    """Entmax of ``y[:n]``, whose largest is 0, into ``p[:n]``."""
    if alpha == 1.0:
        for j in range(n):
            p[j] = np.exp(y[j])
    elif alpha == 1.5:
        entmax15_row(y, n, p)
    elif alpha == 2.0:
        sparsemax_row(y, n, p)
    else:
        entmax_any_row(y, n, alpha, p)
    total = 0.0
    for j in range(n):
        total += p[j]
    for j in range(n):
        p[j] /= total


@jit(inner=True)
def entmax15_row(y, n, p):
    """Entmax with alpha = 1.5, exactly: p = max(y / 2 - tau, 0)^2.

    ``sqrt(sum p)`` is convex in tau, so Newton's steps towards 1 approach from
    the left and never lose a member of the support; once the closed form of
    the members found keeps them all, it is the solution.
    """
    tau = -1.0
    while True:
        count, total, square, least = 0, 0.0, 0.0, 0.0
        for j in range(n):
            u = 0.5 * y[j]
            if u > tau:
                count += 1
                total += u
                square += u * u
                least = min(least, u)
        mean = total / count
        scatter = square - mean * total
        if scatter < 1.0:
            closed = mean - np.sqrt((1.0 - scatter) / count)
            if closed < least:
                tau = closed
                break
        slope = total - count * tau
        norm = np.sqrt(square - tau * (total + slope))
        step = (norm - 1.0) * norm / slope
        if not tau + step > tau:
            break
        tau += step
    for j in range(n):
        margin = 0.5 * y[j] - tau
        p[j] = margin * margin if margin > 0.0 else 0.0


@jit(inner=True)
def sparsemax_row(y, n, p):
    """Entmax with alpha = 2, exactly: p = max(y - tau, 0).

    The threshold of all candidates is too low; raising it to that of the
    candidates above it ends, after finitely many steps, at the solution.
    """
    tau = -1.0
    while True:
        count, total = 0, 0.0
        for j in range(n):
            if y[j] > tau:
                count += 1
                total += y[j]
        raised = (total - 1.0) / count
        if not raised > tau:
            break
        tau = raised
    for j in range(n):
        p[j] = max(y[j] - tau, 0.0)


@jit(inner=True)
def entmax_any_row(y, n, alpha, p):
    """Entmax with any alpha > 1, to the last useful bit.

    Written as p = (1 + (alpha - 1) (y - s))^{1 / (alpha - 1)}, which tends to
    exp(y - s) as alpha tends to 1 and loses no digits there. Newton's method
    on the norm of p, kept inside a shrinking bracket of s.
    """
    a1 = alpha - 1.0
    low, high = 0.0, -np.expm1(-a1 * np.log(n)) / a1
    s = low
    for _ in range(200):
        total, slope = 0.0, 0.0
        for j in range(n):
            t = a1 * (y[j] - s)
            if t > -1.0:
                logarithm = np.log1p(t)
                value = np.exp(logarithm / a1)
                total += value
                slope += value * np.exp(-logarithm)
        if total >= 1.0:
            low = s
        else:
            high = s
        if total > 0.0:
            log_total = np.log(total)
            step = np.expm1(a1 * log_total) / a1 * np.exp((2.0 - alpha) * log_total)
            s_next = s + step / slope
        else:
            s_next = high
        if not low < s_next < high:
            s_next = 0.5 * (low + high)
        if s_next == s or not low < s_next < high:
            break
        if abs(s_next - s) <= 1e-17 * (1.0 + s):
            break
        s = s_next
    for j in range(n):
        t = a1 * (y[j] - s)
        p[j] = np.exp(np.log1p(t) / a1) if t > -1.0 else 0.0


@jit(inner=True)
def entropy_row(p, n, alpha):
    """Tsallis entropy of ``p[:n]``, which sums to one; Shannon's at alpha 1."""
    total = 0.0
    if alpha == 1.5:
        for j in range(n):
            total += p[j] * np.sqrt(p[j])
        return (1.0 - total) / 0.75
    if alpha == 2.0:
        for j in range(n):
            total += p[j] * p[j]
        return (1.0 - total) / 2.0
    for j in range(n):
        if p[j] > 0.0:
            if alpha == 1.0:
                total -= p[j] * np.log(p[j])
            else:
                total -= p[j] * np.expm1((alpha - 1.0) * np.log(p[j]))
    return total if alpha == 1.0 else total / (alpha * (alpha - 1.0))


@jit
def entmax_rows(Z, alpha, P):
    """Entmax of each row of Z, whose entries may be minus infinity."""
    n, k = Z.shape
    y = np.empty(k)
    p = np.empty(k)
    members = np.empty(k, np.int64)
    limit = -np.inf if alpha == 1.0 else -1.0 / (alpha - 1.0)
    for i in range(n):
        largest = -np.inf
        for j in range(k):
            largest = max(largest, Z[i, j])
        count = 0
        for j in range(k):
            P[i, j] = 0.0
            difference = Z[i, j] - largest
            if difference > limit:
                y[count] = difference
                members[count] = j
                count += 1
        entmax_row(y, count, alpha, p)
        for c in range(count):
            P[i, members[c]] = p[c]


@jit(fastmath={"contract"})
def exp_in_place(values, scratch):
    """Exp of numbers <= 0, in place, to about one unit in the last place.

    exp(t) = 2^n exp(r), with n the integer nearest to t / log 2. The sum
    t / log 2 + 1.5 * 2^52 holds n in its lowest bits, and shifting them up
    into the exponent multiplies by 2^n. Written so that it becomes vector
    instructions, which numba's own exp does not. Below -708 the result is
    exp(-708).
    """
    magic = 6755399441055744.0
    for i in range(values.size):
        t = max(values[i], -708.0)
        shifted = t * 1.4426950408889634 + magic
        n = shifted - magic
        r = t - n * 0.6931471803691238
        r -= n * 1.9082149292705877e-10
        e = 1.0 / 479001600.0
        e = e * r + 1.0 / 39916800.0
        e = e * r + 1.0 / 3628800.0
        e = e * r + 1.0 / 362880.0
        e = e * r + 1.0 / 40320.0
        e = e * r + 1.0 / 5040.0
        e = e * r + 1.0 / 720.0
        e = e * r + 1.0 / 120.0
        e = e * r + 1.0 / 24.0
        e = e * r + 1.0 / 6.0
        e = e * r + 0.5
        e = e * r + 1.0
        values[i] = e * r + 1.0
        scratch[i] = shifted
    bits, exponents = values.view(np.int64), scratch.view(np.int64)
    for i in range(values.size):
        bits[i] += exponents[i] << 52


# --- blocks of rows ----------------------------------------------------------
#
# `codebook` and `work` are the named tuples of `_blocks`. All fields of `work`
# are overwritten for every block. `weights` of size 0 stands for ones.


@jit(fastmath=FAST, inner=True)
def sparse_scores(csr, picked, n, transposed, scores, norms, dots):
    """Products of sparse rows with the centres, and squared lengths of the rows.

    `transposed` are the centres, of shape (features, centres); `dots` is
    scratch for one row.
    """
    values, indices, indptr = csr
    for i in range(n):
        dots[:] = 0.0
        total = 0.0
        for p in range(indptr[picked[i]], indptr[picked[i] + 1]):
            value, column = np.float64(values[p]), transposed[indices[p]]
            total += value * value
            for j in range(dots.size):
                dots[j] += value * column[j]
        norms[i] = total
        for j in range(dots.size):
            scores[j, i] = dots[j]


@jit(inline=True)
def lanes_for(n, n_lanes):
    """Number of lanes to work on for n rows: whole vectors."""
    return min((n + 15) // 16 * 16, n_lanes)


@jit(inner=True)
def score_block(X, csr, picked, n, codebook, work):
    """Score the n rows in `picked`.

    Returns `slope` and the scores, of shape (centres, lanes): a squared
    distance is ``norms[i] + offsets[j] + slope * scores[j, i]``. In the direct
    case norms and offsets are zero.
    """
    k, n_lanes = codebook.centers.shape[0], lanes_for(n, picked.size)
    scores = work.flat[: k * n_lanes].reshape((k, n_lanes))
    slope = -2.0
    if csr is not None:
        sparse_scores(csr, picked, n, codebook.factor, scores, work.norms, work.logits)
    if X is not None:
        if codebook.rounding == 0.0:
            slope = 1.0
            load_columns(X, picked, n, work.columns)
            direct_scores(work.columns, codebook.centers, scores)
        else:
            load_rows(X, picked, n, codebook.shift, work.rows, work.norms)
            products = work.products[: k * n_lanes].reshape((k, n_lanes))
            np.dot(codebook.factor, work.rows[:n_lanes].T, products)
            if work.products.itemsize == 4:  # else `products` are the scores
                for j in range(k):
                    source, target = products[j], scores[j]
                    for i in range(n_lanes):
                        target[i] = source[i]
    return slope, scores


@jit(inner=True)
def find_nearest(X, picked, n, codebook, work, width):
    """The nearest centre of each of the n dense rows in `picked`.

    For lane i it becomes ``nearest[i]``, the first in case of ties;
    ``smallest[i]`` an upper bound on its squared distance, and ``second[i]`` a
    lower bound on the squared distances to all other centres. Scores in
    float32 tell most rows. Of the others all distances are computed if `width`
    is 0. If it is not, ``counts[i]`` becomes 0 where another centre could be
    less than `width` farther, and else 1.
    """
    coarse, rough = codebook.coarse, work.coarse
    if coarse.factor.shape[1] <= N_FEATURES_COARSE:
        load_coarse_columns(X, picked, n, coarse, rough.columns, rough.norms)
    else:
        load_coarse_rows(X, picked, n, coarse, rough.rows, rough.norms)
    score_coarse(n, coarse, rough)
    unit2 = coarse.unit * coarse.unit
    for i in range(n):
        j, norm = rough.nearest[i], rough.norms[i]
        low, high = np.float64(rough.smallest[i]), np.float64(rough.second[i])
        doubt = coarse.rounding * (norm + coarse.norms[j]) + UNDERFLOW
        gap = high - low
        clear = gap > 2.0 * doubt and norm < OVERFLOW and gap * unit2 > LEAST_GAP
        work.counts[i] = 1
        if clear and (gap - 2.0 * doubt) * unit2 >= width:
            work.nearest[i] = j
            work.smallest[i] = max(low + norm + 2.0 * doubt, 0.0) * unit2
            work.second[i] = max(high + norm - 2.0 * doubt, 0.0) * unit2
        elif width > 0.0:
            work.counts[i] = 0
        else:
            row, smallest, second = picked[i], np.inf, np.inf
            for j in range(codebook.centers.shape[0]):
                value = dense_squared_distance(X, row, codebook.centers, j)
                if value < smallest:
                    smallest, second, work.nearest[i] = value, smallest, j
                elif value < second:
                    second = value
            work.smallest[i], work.second[i] = smallest, second


@jit
def score_coarse(n, coarse, rough):
    """The two smallest scores of each of n rows that have been loaded."""
    k, size = coarse.factor.shape
    n_lanes = lanes_for(n, rough.norms.size)
    if size <= N_FEATURES_COARSE:
        coarse_two_smallest(
            rough.columns, coarse.factor, coarse.offsets, n_lanes, rough.products,
            rough.smallest, rough.second, rough.nearest,
        )  # fmt: skip
    else:
        products = rough.products.reshape(-1)[: k * n_lanes].reshape((k, n_lanes))
        np.dot(coarse.factor, rough.rows[:n_lanes].T, products)
        two_smallest(
            products, coarse.offsets, np.float32(1.0), rough.smallest, rough.second,
            rough.nearest,
        )  # fmt: skip


@jit(inner=True)
def load_coarse_columns(X, picked, n, coarse, columns, norms):
    """Copy a block of rows less the shift, in coarse units, transposed."""
    shift, per_unit = coarse.shift, 1.0 / coarse.unit
    norms[:] = 0.0
    for f in range(shift.size):
        column = columns[f]
        for i in range(n):
            value = (X[picked[i], f] - shift[f]) * per_unit
            column[i] = value
            norms[i] += value * value


@jit(fastmath=FAST, inner=True)
def load_coarse_rows(X, picked, n, coarse, rows, norms):
    """Copy a block of rows less the shift, in coarse units."""
    shift, per_unit = coarse.shift, 1.0 / coarse.unit
    for i in range(n):
        x, total = X[picked[i]], 0.0
        for f in range(shift.size):
            value = (x[f] - shift[f]) * per_unit
            rows[i, f] = value
            total += value * value
        norms[i] = total


@jit(inner=True)
def list_candidates(X, csr, picked, n_rows, codebook, work, two_sigma2, width):
    """List the centres that can have a share in each of the n rows in `picked`.

    Those are the centres less than `width` farther, in squared distance, than
    the nearest. For lane i, ``counts[i]`` of them stand in ``members[i]`` in
    increasing order, their squared distances less the smallest in
    ``gaps[i]``; ``nearest[i]`` becomes the first centre that has the smallest
    squared distance, ``smallest[i]`` that distance, if there are several
    candidates, else an upper bound on it, and ``second[i]`` a lower bound on
    the squared distances to all other centres.
    """
    slope, scores = score_block(X, csr, picked, n_rows, codebook, work)
    two_smallest(
        scores, codebook.offsets, slope, work.smallest, work.second, work.nearest
    )
    centers, offsets, rounding = codebook.centers, codebook.offsets, codebook.rounding
    norms, nearest = work.norms, work.nearest
    members, gaps, counts = work.members, work.gaps, work.counts
    n_centers, n_features = centers.shape
    direct_rounding = 4.0 * (n_features + 4) * EPS if rounding == 0.0 else 0.0
    tolerance = codebook.tolerance * two_sigma2
    for i in range(n_rows):
        j = nearest[i]
        scale = norms[i] + codebook.norms[j]
        doubt = 2.0 * rounding * scale + direct_rounding * work.smallest[i]
        gap = work.second[i] - work.smallest[i]
        if gap > doubt and gap >= width + doubt:
            counts[i], members[i, 0], gaps[i, 0] = 1, j, 0.0
            smallest = work.smallest[i] + norms[i]
            smallest += rounding * (scale + codebook.norms[j])
            second = work.second[i] + norms[i] - 2.0 * rounding * norms[i]
            work.smallest[i], work.second[i] = max(smallest, 0.0), max(second, 0.0)
            continue
        limit = work.smallest[i] + width + doubt
        n = 0
        for j in range(n_centers):  # no branch: most guesses of one would fail
            value = offsets[j] + slope * scores[j, i]
            members[i, n] = j
            gaps[i, n] = value
            n += value <= limit
        if doubt > 0.0 and (gap <= doubt or codebook.unit * scale > tolerance):
            for c in range(n):
                gaps[i, c] = squared_distance(
                    X, csr, picked[i], centers, codebook.norms, members[i, c]
                )
        else:
            for c in range(n):
                gaps[i, c] += norms[i] + rounding * codebook.norms[members[i, c]]
        best = 0
        for c in range(1, n):
            if gaps[i, c] < gaps[i, best]:
                best = c
        smallest = gaps[i, best]
        nearest[i] = members[i, best]
        second = limit + norms[i] - 2.0 * rounding * norms[i]
        counts[i] = 0
        for c in range(n):
            if c != best:
                second = min(second, gaps[i, c])
            difference = gaps[i, c] - smallest
            if difference < width or c == best:
                members[i, counts[i]] = members[i, c]
                gaps[i, counts[i]] = difference
                counts[i] += 1
        work.smallest[i], work.second[i] = max(smallest, 0.0), max(second, 0.0)


# --- centres -----------------------------------------------------------------


@jit
def coarsen(centers, shift, rounding, factor, offsets, norms):
    """Centres less the shift in float32, as `find_nearest` needs them.

    Returns their unit, a power of two.
    """
    k, d = centers.shape
    largest = 0.0
    for j in range(k):
        for f in range(d):
            largest = max(largest, abs(centers[j, f] - shift[f]))
    unit = 1.0
    if largest > 0.0:
        unit = math.ldexp(1.0, math.frexp(largest)[1])
    for j in range(k):
        total = 0.0
        for f in range(d):
            value = (centers[j, f] - shift[f]) / unit
            factor[j, f] = -2.0 * value
            total += value * value
        norms[j] = total
        offsets[j] = (1.0 - rounding) * total
    return unit


@jit
def follow(centers, former, moved, fallen):
    """Tell the bounds how far centres have moved.

    ``moved[j]`` grows by the move of centre j, ``fallen[j]`` by the longest of
    all others.
    """
    first, second, who = 0.0, 0.0, 0
    for j in range(centers.shape[0]):
        move = np.sqrt(dense_squared_distance(centers, j, former, j))
        moved[j] += move
        if move > first:
            first, second, who = move, first, j
        elif move > second:
            second = move
    for j in range(centers.shape[0]):
        fallen[j] += second if j == who else first


@jit
def add_up(held, soft, known, centers, origins, is_sparse, sums, masses):
    """Add up the sums of all strips, in order, into `sums` and `masses`.

    Of the running sums only those that are touched are added anew, into
    `known`. Those of sparse rows are about zero. Returns the inertia of the
    rows held, and how much of it would be left if they lay on the origins.
    """
    n_strips, k, d = held.sums.shape
    inertia, scatter = 0.0, 0.0
    for j in range(k):
        if held.touched[:, j].any():
            known.sums[j] = 0.0
            known.masses[j], known.squares[j] = 0.0, 0.0
            for s in range(n_strips):
                known.masses[j] += held.masses[s, j]
                known.squares[j] += held.squares[s, j]
                for f in range(d):
                    known.sums[j, f] += held.sums[s, j, f]
        mass = known.masses[j]
        masses[j] = mass
        crossed, moved = 0.0, 0.0
        for f in range(d):
            total = known.sums[j, f]
            sums[j, f] = total
            if is_sparse:  # it is about zero
                total -= mass * origins[j, f]
            move = centers[j, f] - origins[j, f]
            crossed += total * move
            moved += move * move
        inertia += known.squares[j] - 2.0 * crossed + mass * moved
        scatter += mass * moved
        if soft.touched[:, j].any():
            for s in range(n_strips):
                mass = soft.masses[s, j]
                masses[j] += mass
                for f in range(d):
                    sums[j, f] += soft.sums[s, j, f]
    return max(inertia, 0.0), scatter


# --- passes over rows --------------------------------------------------------


@jit(inner=True)
def pick_all(start, stop, picked):
    """List the rows from `start` on until a block is full; return their number."""
    n = min(stop - start, picked.size)
    for i in range(n):
        picked[i] = start + i
    return n


@jit
def margin_rows(X, csr, start, stop, codebook, work, totals):
    """Lower ``totals[0]`` to the least gap of two smallest squared distances."""
    centers, norms = codebook.centers, codebook.norms
    margin = totals[0]
    while start < stop:
        n = pick_all(start, stop, work.picked)
        slope, scores = score_block(X, csr, work.picked, n, codebook, work)
        two_smallest(
            scores, codebook.offsets, slope, work.smallest, work.second, work.nearest
        )
        for i in range(n):
            scale = work.norms[i] + norms[work.nearest[i]]
            doubt = 2.0 * codebook.rounding * scale
            if work.second[i] - work.smallest[i] - doubt >= margin:
                continue
            smallest, second = np.inf, np.inf
            limit = work.second[i] + doubt
            for j in range(centers.shape[0]):
                if codebook.offsets[j] + slope * scores[j, i] <= limit:
                    value = squared_distance(X, csr, start + i, centers, norms, j)
                    if value < smallest:
                        smallest, second = value, smallest
                    elif value < second:
                        second = value
            margin = min(margin, second - smallest)
        start += n
    totals[0] = margin


@jit
def label_rows(X, csr, start, stop, codebook, work, labels):
    """Nearest centre of each row; the first, in case of ties."""
    while start < stop:
        n = pick_all(start, stop, work.picked)
        if X is not None:
            find_nearest(X, work.picked, n, codebook, work, 0.0)
        if csr is not None:
            list_candidates(X, csr, work.picked, n, codebook, work, 0.0, 0.0)
        for i in range(n):
            labels[start + i] = work.nearest[i]
        start += n


@jit
def label_distance_rows(X, csr, start, stop, codebook, labels, out):
    """Squared distance of each row to the centre that its label names."""
    for i in range(start, stop):
        out[i] = squared_distance(
            X, csr, i, codebook.centers, codebook.norms, labels[i]
        )


@jit
def distance_rows(X, csr, start, stop, codebook, out):
    """Squared distance of each row to each centre, computed directly."""
    for i in range(start, stop):
        for j in range(codebook.centers.shape[0]):
            out[i, j] = squared_distance(X, csr, i, codebook.centers, codebook.norms, j)


@jit
def responsibility_rows(
    X, csr, start, stop, codebook, work, alpha, two_sigma2, width, out, origin
):
    """Responsibilities of each row into `out`, which begins with row `origin`.

    Where rounding makes an earlier centre's share equal to the nearest one's,
    the latter is raised by one unit in the last place, so that the argmax of a
    row is always its label.
    """
    while start < stop:
        n_rows = pick_all(start, stop, work.picked)
        list_candidates(X, csr, work.picked, n_rows, codebook, work, two_sigma2, width)
        for i in range(n_rows):
            row, n = start + i - origin, work.counts[i]
            for c in range(n):
                work.logits[c] = -work.gaps[i, c] / two_sigma2 if n > 1 else 0.0
            entmax_row(work.logits, n, alpha, work.shares)
            out[row, :] = 0.0
            for c in range(n):
                out[row, work.members[i, c]] = work.shares[c]
            nearest = work.nearest[i]
            for j in range(nearest):
                if out[row, j] >= out[row, nearest]:
                    out[row, nearest] = np.nextafter(out[row, j], out.dtype.type(2.0))
        start += n_rows


@jit(inner=True)
def pick_rows(X, csr, row, stop, codebook, bounds, labels, width, measuring, work):
    """List rows from `row` on, until a block is full, whose share is in doubt.

    Into ``work.picked`` those that belong to one centre alone, as far as is
    known, into ``work.unheld`` the others.

    A row that belongs to one centre alone still does if, in squared distance,
    every other centre is more than `width` farther. Its distance to its own is
    at most ``upper`` plus what that centre has moved since, and to the others
    at least ``lower`` less what any of them has, and at least the distance
    from its own centre to the next less the first [1]_. If those bounds do not
    tell, the first is measured, if `measuring`. All rows that are passed over
    are such.

    Returns the first row not looked at, the numbers of rows listed in both
    places, and that of the rows measured.

    References
    ----------
    .. [1] G. Hamerly, "Making k-means even faster", SDM (2010).
    """
    upper, lower, moved = bounds.upper, bounds.lower, bounds.moved
    fallen, apart, centers = bounds.fallen, bounds.apart, codebook.centers
    picked, unheld, maybe = work.picked, work.unheld, work.maybe
    n, n_unheld, n_measured, room = 0, 0, 0, picked.size
    while row < stop and room >= LEAST_ROOM:
        last, n_maybe = min(row + room, stop), 0
        for i in range(row, last):  # no branch: it would be guessed wrong too often
            j = np.uint64(max(labels[i], 0))
            near, far = upper[i] + moved[j], lower[i] - fallen[j]
            other = apart[j] - near
            far = far if far > other else other
            safe = (far > 0.0) & (far * far > SLACK * (near * near + width))
            maybe[n_maybe] = i
            n_maybe += 1 - safe
        row = last
        for c in range(n_maybe):
            i = maybe[c]
            if lower[i] == -np.inf:
                unheld[n_unheld] = i
                n_unheld += 1
                continue
            picked[n] = i  # stays if n is raised
            if not measuring:
                n += 1
                continue
            j = np.uint64(labels[i])
            if X is not None:
                square = dense_squared_distance(X, i, centers, j)
            if csr is not None:
                square = sparse_squared_distance(csr, i, centers, codebook.norms, j)
            near, far = np.sqrt(square), lower[i] - fallen[j]
            upper[i] = near - moved[j]
            other = apart[j] - near
            far = far if far > other else other
            n += 1 - ((far > 0.0) & (far * far > SLACK * (square + width)))
            n_measured += 1
        room = picked.size - n - n_unheld
    return row, n, n_unheld, n_measured


@jit(fastmath=FAST)
def em_rows(
    X, csr, weights, pieces, codebook, work, alpha, two_sigma2, width, bounds,
    measuring, labels, origins, origin_norms, held, soft, strip_totals,
):  # fmt: skip
    """One E-step, and the sums that the M-step needs, for some pieces of the rows.

    A piece ``(strip, start, stop)`` adds to the sums of its strip.

    Rows that belong to one centre alone are held in running sums: their
    weighted coordinates less the centres' origins, `sums`, their weights,
    `masses`, their weighted squared distances to the origins, `squares`, and
    their number, `counts`. Those whose `bounds` show that nothing has changed
    are not touched. Rows with several shares are added to the sums `soft`,
    which begin with zeros. Centres whose sums change are `touched`.

    Adds to ``strip_totals`` the free energy of the soft rows, their weight, their
    weighted number of shares, and the numbers of labels that changed, of rows
    measured, and of rows all of whose distances were computed. Rows of zero
    weight get a label and no more.
    """
    upper, lower, moved, fallen = (
        bounds.upper, bounds.lower, bounds.moved, bounds.fallen
    )  # fmt: skip
    nearest, counts, smallest = work.nearest, work.counts, work.smallest
    members, gaps, logits, shares = work.members, work.gaps, work.logits, work.shares
    for piece in range(pieces.shape[0]):
        strip, start, stop = pieces[piece]
        sums, masses, squares = (
            held.sums[strip], held.masses[strip], held.squares[strip]
        )  # fmt: skip
        held_counts, touched = held.counts[strip], held.touched[strip]
        sums_soft, masses_soft, touched_soft = (
            soft.sums[strip], soft.masses[strip], soft.touched[strip]
        )  # fmt: skip
        totals = strip_totals[strip]
        while start < stop:
            start, n_picked, n_unheld, n_measured = pick_rows(
                X, csr, start, stop, codebook, bounds, labels, width, measuring, work
            )
            totals[PICKED] += n_picked + n_unheld
            totals[MEASURED] += n_measured
            for exact in (False, True):  # coarse scores first, where they may tell
                is_coarse = False
                some = work.unheld if exact else work.picked
                n_rows = n_unheld if exact else n_picked
                if n_rows == 0:
                    continue
                if X is not None:
                    is_coarse = width == 0.0 or not exact
                    if is_coarse:
                        find_nearest(X, some, n_rows, codebook, work, width)
                if not is_coarse:
                    list_candidates(
                        X, csr, some, n_rows, codebook, work, two_sigma2, width
                    )
                for i in range(n_rows):
                    row, j, n = some[i], nearest[i], counts[i]
                    if n == 0:
                        work.unheld[n_unheld] = row
                        n_unheld += 1
                        continue
                    w = weights[row] if weights.size else 1.0
                    holder = labels[row] if lower[row] > -np.inf else -1
                    if labels[row] != j:
                        labels[row] = j
                        totals[CHANGED] += w > 0.0
                    if n > 1:
                        energy, n_shares = share_out(
                            gaps[i], n, alpha, two_sigma2, logits, shares
                        )
                        if n_shares > 1:
                            j, lower[row], upper[row] = -1, -np.inf, np.inf
                            totals[OBJECTIVE] += w * (smallest[i] + energy)
                            totals[SOFT_WEIGHT] += w
                            totals[SUPPORT] += w * n_shares
                    if j >= 0:
                        upper[row] = np.sqrt(smallest[i]) - moved[j]
                        lower[row] = np.sqrt(work.second[i]) + fallen[j]
                    if not w > 0.0:
                        continue
                    if j < 0:
                        for c in range(n):
                            share = w * shares[c]
                            if share > 0.0:
                                m = members[i, c]
                                touched_soft[m] = True
                                masses_soft[m] += share
                                add_row(X, csr, row, share, m, origins, sums_soft)
                    if j == holder:
                        continue
                    for sign in (1, -1):  # to its new centre, and away from the old
                        m = j if sign == 1 else holder
                        if m < 0:
                            continue
                        square = add_row(X, csr, row, sign * w, m, origins, sums)
                        if csr is not None:
                            square = sparse_squared_distance(
                                csr, row, origins, origin_norms, m
                            )
                        touched[m] = True
                        masses[m] += sign * w
                        squares[m] += sign * w * square
                        held_counts[m] += sign
                        if held_counts[m] == 0:  # leave no rounding behind
                            sums[m, :] = 0.0
                            masses[m] = squares[m] = 0.0


@jit(inner=True)
def share_out(gaps, n, alpha, two_sigma2, logits, shares):
    """Shares of the n candidates of a row, whose squared distances exceed by `gaps`.

    Returns the free energy of the row, less the smallest squared distance, and
    the number of shares that are not zero.
    """
    for c in range(n):
        logits[c] = -gaps[c] / two_sigma2
    entmax_row(logits, n, alpha, shares)
    energy, n_shares = -two_sigma2 * entropy_row(shares, n, alpha), 0
    for c in range(n):
        energy += shares[c] * gaps[c]
        n_shares += shares[c] > 0.0
    return energy, n_shares


@jit(inline=True)
def add_row(X, csr, row, w, j, origins, sums):
    """Add a row with weight w to the sum of centre j, of sparse rows about zero.

    Returns the squared distance of a dense row to the origin.
    """
    total, origin = sums[j], origins[j]
    square = 0.0
    if X is not None:
        x = X[row]
        for f in range(x.size):
            difference = x[f] - origin[f]
            total[f] += w * difference
            square += difference * difference
    if csr is not None:
        values, indices, indptr = csr
        for p in range(indptr[row], indptr[row + 1]):
            total[indices[p]] += w * values[p]
    return square


@jit
def softmax_rows(
    X, weights, start, stop, codebook, work, two_sigma2, labels, origins, sums,
    masses, totals,
):  # fmt: skip
    """`em_rows` for alpha = 1 and sigma > 0, as whole vectors and products.

    All rows are soft, and all origins the same. Shares that are lost in the
    rounding of their sum are 0.
    """
    shares, row_sums, rates = work.scores, work.second, work.limits
    smallest, norms, nearest = work.smallest, work.norms, work.nearest
    counts, lengths = work.counts, codebook.norms
    k, n_lanes = shares.shape
    while start < stop:
        n_rows = pick_all(start, stop, work.picked)
        work.picked[n_rows:] = stop - 1  # all lanes are worked on
        slope, scores = score_block(X, None, work.picked, n_lanes, codebook, work)
        two_smallest(
            scores, codebook.offsets, slope, work.smallest, work.second, work.nearest
        )
        restore_scores(X, n_rows, codebook, work, slope, two_sigma2)
        for i in range(n_lanes):
            smallest[i] = lengths[nearest[i]] + slope * shares[nearest[i], i]
        for j in range(k):
            share, length = shares[j], lengths[j]
            for i in range(n_lanes):
                share[i] = (smallest[i] - (length + slope * share[i])) / two_sigma2
        exp_in_place(work.flat, work.scratch)
        row_sums[:], counts[:] = 0.0, 0
        for j in range(k):
            share = shares[j]
            for i in range(n_lanes):
                value = share[i] if share[i] > LEAST_SHARE else 0.0
                share[i] = value
                row_sums[i] += value
                counts[i] += value > 0.0
        rates[:] = 0.0
        for i in range(n_rows):
            row, j = start + i, nearest[i]
            w = weights[row] if weights.size else 1.0
            if labels[row] != j:
                labels[row] = j
                totals[CHANGED] += w > 0.0
            if w > 0.0:
                rates[i] = w / row_sums[i]
                base = max(smallest[i] + norms[i], 0.0)
                totals[OBJECTIVE] += w * (base - two_sigma2 * np.log(row_sums[i]))
                totals[SOFT_WEIGHT] += w if counts[i] > 1 else 0.0
                totals[SUPPORT] += w * counts[i]
        for j in range(k):
            share = shares[j]
            mass = 0.0
            for i in range(n_lanes):
                share[i] *= rates[i]
                mass += share[i]
            masses[j] += mass
        for i in range(n_lanes):
            row = start + min(i, n_rows - 1)
            for f in range(origins.shape[1]):
                work.centered[i, f] = X[row, f] - origins[0, f]
        np.dot(shares, work.centered, work.block_sums)
        for j in range(k):
            for f in range(origins.shape[1]):
                sums[j, f] += work.block_sums[j, f]
        start += n_rows


@jit(inner=True)
def restore_scores(X, n_rows, codebook, work, slope, two_sigma2):
    """Recompute directly the scores of the lanes where rounding could tell."""
    if codebook.rounding == 0.0:
        return
    tolerance = codebook.tolerance * two_sigma2
    for i in range(n_rows):
        scale = work.norms[i] + codebook.norms[work.nearest[i]]
        gap = work.second[i] - work.smallest[i]
        doubt = 2.0 * codebook.rounding * scale
        if codebook.unit * scale <= tolerance and gap > doubt:
            continue
        smallest = np.inf
        for j in range(codebook.norms.size):
            value = dense_squared_distance(X, work.picked[i], codebook.centers, j)
            if value < smallest:
                smallest, work.nearest[i] = value, j
            work.scores[j, i] = (value - codebook.norms[j]) / slope
        work.norms[i] = 0.0


@jit(fastmath=FAST)
def moment_rows(X, weights, start, stop, shift, sums, squares, lows, highs):
    """Weighted sums, per feature, of the rows less `shift` and their squares.

    And the least and the greatest value of rows of positive weight.
    """
    for i in range(start, stop):
        w = weights[i] if weights.size else 1.0
        if w > 0.0:
            for f in range(shift.size):
                value = X[i, f] - shift[f]
                sums[f] += w * value
                squares[f] += w * value * value
                lows[f] = min(lows[f], X[i, f])
                highs[f] = max(highs[f], X[i, f])


@jit
def product_rows(
    X, rows, shift, trials, norms, least_left, work_rows, row_norms, squares
):
    """`trial_rows` by BLAS: `trials` are less `shift`, and so are their `norms`.

    Of squared lengths so nearly equal that less than `least_left` of them is left,
    the distances are taken directly.
    """
    n_lanes = row_norms.size
    for first in range(0, rows.size, n_lanes):
        some = rows[first : first + n_lanes]
        load_rows(X, some, some.size, shift, work_rows, row_norms)
        products = np.dot(work_rows[: some.size], trials.T)
        for c in range(some.size):
            for t in range(norms.size):
                scale = row_norms[c] + norms[t]
                square = scale - 2.0 * products[c, t]
                if square < least_left * scale:
                    square = dense_squared_distance(work_rows, c, trials, t)
                squares[t, first + c] = square


@jit
def reach_rows(start, stop, closest, owners, reach, near):
    """List the rows that a trial centre may be nearer to than their owner is.

    By the triangle inequality only those whose squared distance ``closest`` to
    the centre that owns them is more than a quarter of that between the two
    [1]_; ``reach[j]`` is that quarter for centre j and the trial next to it.
    They stand from ``near[start]`` on; returns their number.

    References
    ----------
    .. [1] E. Raff, "Exact acceleration of k-means++ and k-means||", IJCAI
       (2021).
    """
    n_near = 0
    for i in range(start, stop):
        near[start + n_near] = i
        n_near += closest[i] > reach[owners[i]]
    return n_near


@jit
def trial_rows(X, csr, rows, trials, norms, squares):
    """Squared distances of some rows to trial centres, of shape (trials, rows)."""
    for c in range(rows.size):
        for t in range(trials.shape[0]):
            squares[t, c] = squared_distance(X, csr, rows[c], trials, norms, t)


@jit(fastmath=FAST)
def gain_rows(weights, rows, squares, closest, gains):
    """What each trial centre would take off the weighted sum of squared distances."""
    for t in range(gains.size):
        total = 0.0
        for c in range(rows.size):
            w = weights[rows[c]] if weights.size else 1.0
            gain = closest[rows[c]] - squares[t, c]
            total += w * gain if gain > 0.0 else 0.0
        gains[t] += total


@jit
def claim_rows(weights, start, stop, rows, squares, new, closest, owners):
    """Give a new centre those of some rows that are nearer to it.

    Returns the weighted sum of the squared distances that are left, of the
    rows from start to stop.
    """
    for c in range(rows.size):
        i = rows[c]
        less = squares[c] < closest[i]
        closest[i] = squares[c] if less else closest[i]
        owners[i] = new if less else owners[i]
    total = 0.0
    for i in range(start, stop):
        total += closest[i] * (weights[i] if weights.size else 1.0)
    return total
