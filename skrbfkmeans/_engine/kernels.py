"""Every compiled function: arrays and scalars in, arrays filled.

Rows are worked on in blocks, and inside a block the rows are the lanes: the
score of centre ``j`` for row ``i`` stands at ``scores[j, i]``, so that the two
smallest per row are found by elementwise comparisons of whole vectors.

Scores come from a matrix product in float32, ``||c||^2 - 2 <x, c>``, whose
rounding error is bounded. They only nominate: wherever a decision could hang on
that error, the distances in question are computed by `squared_distance`. So a
label never depends on which rows happen to stand in the same block.

Rows come as two arguments, of which one is None: a 2-D array X, or `csr`, the
``(data, indices, indptr)`` of a sparse matrix with sorted indices. The compiler
drops the branch that asks for the one that is None.

All functions are in this one file because numba's cache does not notice a
change in another. Few of them call others: what a function calls is compiled
again with it. None is handed a row at a time with many arrays, unless it seldom
is: counting references to arrays would cost more than the work.
"""

# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np

from .jit import FAST, jit

# Scores are float32, in units of the farthest centre. They may lose so much by
# underflow, and are not used for rows whose squared length is larger than this, nor
# if in the user's units a doubt is so small that float64 could lose it.
UNDERFLOW, OVERFLOW, LEAST_DOUBT = 1e-32, 1e30, 1e-290

# A sparse row's squared distance below this share of the centre's squared length
# has lost too many digits in a difference of lengths, and is summed anew.
CANCELLATION = 1e-3

EPS = 2.0**-52

# Bounds on squared distances are trusted but for this relative error.
SLACK = 1.0 + 1e-10

# exp(-LOG_ROUNDING) is below the rounding of a float64 sum that holds a one.
LOG_ROUNDING = 36.0
LEAST_SHARE = 2.3195228302435696e-16

# Typical rounding of a float64 product may move a logit by this much.
LOGIT_TOLERANCE = 2e-14

# Rows whose squared distances are added up to one number, when seeding.
BLOCK = 1024

# What an E-step adds up besides sums of rows.
OBJECTIVE, INERTIA, SOFT_WEIGHT, SUPPORT, CHANGED, MEASURED, PICKED = range(7)
N_TOTALS = 7


# --- distances ---------------------------------------------------------------


@jit(inner=True)
def squared_distance(X, csr, i, centers, norms, j):
    """Squared distance of row i and centre j, in one fixed order of summation.

    `norms`, the squared lengths of the centres, are for sparse rows only. Call it
    with indices of one type, int64, so that it is compiled once.
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


# --- responsibilities --------------------------------------------------------
#
# An `alpha` of None is 1.5, the default: a kernel that is called with None compiles
# what that needs and no more.


def as_argument(alpha):
    """Alpha as kernels want it."""
    return None if alpha == 1.5 else alpha


@jit(inner=True)
def entmax_row(y, n, alpha, p):
    """Entmax of ``y[:n]``, whose largest is 0, into ``p[:n]``."""
    if alpha is None:
        entmax15_row(y, n, p)
    elif alpha == 1.0:
        for j in range(n):
            p[j] = np.exp(y[j])
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
    if alpha is None:
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
    limit = -2.0
    if alpha is not None:
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


@jit
def label_distance_rows(X, csr, start, stop, codebook, labels, out):
    """Squared distance of each row to the centre that its label names."""
    for i in range(start, stop):
        j = np.int64(labels[i])
        out[i] = squared_distance(X, csr, i, codebook.centers, codebook.norms, j)


@jit
def distance_rows(X, csr, start, stop, codebook, out, origin):
    """Squared distance of each row to each centre into `out`, from row `origin` on."""
    for i in range(start, stop):
        for j in range(codebook.lengths.size):
            out[i - origin, j] = squared_distance(
                X, csr, i, codebook.centers, codebook.norms, j
            )


@jit
def responsibility_rows(
    X, csr, start, stop, codebook, work, alpha, two_sigma2, width, out, origin
):
    """Responsibilities of each row into `out`, which begins with row `origin`.

    Where rounding makes an earlier centre's share equal to the nearest one's,
    the latter is raised by one unit in the last place, so that the argmax of a
    row is always its label.
    """
    n_lanes = work.lengths.size
    for first in range(start, stop, n_lanes):
        picked = np.arange(first, min(first + n_lanes, stop))
        scores = score_rows(X, csr, picked, codebook, work)
        find_nearest(scores, picked.size, codebook, work, width)
        for i in range(picked.size):
            shares, n = out[picked[i] - origin], 1
            shares[:] = 0.0
            if not work.clear[i]:
                n = list_candidates(X, csr, picked[i], i, scores, codebook, work, width)
            nearest = work.who[i]
            shares[nearest] = 1.0
            if n == 1:
                continue
            for c in range(n):
                work.logits[c] = -work.gaps[c] / two_sigma2
            entmax_row(work.logits, n, alpha, work.shares)
            for c in range(n):
                shares[work.members[c]] = work.shares[c]
            for j in range(nearest):
                if shares[j] >= shares[nearest]:
                    shares[nearest] = np.nextafter(shares[j], out.dtype.type(2.0))


# --- centres -----------------------------------------------------------------


@jit
def fill_codebook(centers, shift, rounding, factor, lengths):
    """Centres less the shift as `score_rows` needs them; returns their unit.

    That is a power of two, so that coordinates are at most one. Squared lengths
    are in that unit.
    """
    k, d = centers.shape
    largest = 0.0
    for j in range(k):
        for f in range(d):
            value = abs(centers[j, f] - shift[f])
            largest = value if value > largest else largest
    unit = math.ldexp(1.0, math.frexp(largest)[1]) if largest > 0.0 else 1.0
    for j in range(k):
        total = 0.0
        for f in range(d):
            value = (centers[j, f] - shift[f]) / unit
            factor[j, f] = -2.0 * value
            total += value * value
        lengths[j] = total
        factor[j, d] = (1.0 - rounding) * total
    return unit


@jit
def follow(centers, former, moved, fallen):
    """Tell the bounds how far centres have moved.

    ``moved[j]`` grows by the move of centre j, ``fallen[j]`` by the longest of
    all others.
    """
    first, second, who = 0.0, 0.0, 0
    for j in range(centers.shape[0]):
        total = 0.0
        for f in range(centers.shape[1]):
            difference = centers[j, f] - former[j, f]
            total += difference * difference
        move = np.sqrt(total)
        moved[j] += move
        if move > first:
            first, second, who = move, first, j
        elif move > second:
            second = move
    for j in range(centers.shape[0]):
        fallen[j] += second if j == who else first


@jit
def add_up(parts, sums):
    """Add up the sums of all strips, in order."""
    n_strips, k, d = parts.shape
    for s in range(n_strips):
        for j in range(k):
            for f in range(d):
                sums[j, f] += parts[s, j, f]


@jit
def moments_about(sums, centers, origins, is_sparse):
    """Inertia of the rows held, and how much of it the moves of the centres are.

    `sums` are about the origins, or about zero for sparse rows.
    """
    k, d = centers.shape
    squares, crossed, moved = 0.0, 0.0, 0.0
    for j in range(k):
        mass = sums[j, d]
        squares += sums[j, d + 1]
        for f in range(d):
            move = centers[j, f] - origins[j, f]
            about = mass * origins[j, f] if is_sparse else 0.0
            crossed += (sums[j, f] - about) * move
            moved += mass * move * move
    return max(squares - 2.0 * crossed + moved, 0.0), moved


# --- one E-step --------------------------------------------------------------
#
# Three passes over the rows from `start` to `stop`: pick those whose share is in
# doubt, find who has a share in them, and hold each that belongs to one centre alone
# in its running sums. A row's strip, whose sums it adds to, ends before row
# ``ends[strip]``. Sums, `held` and `soft`, are of shape (strips, centres, features +
# 2): coordinates less the origin of the centre, or about zero for sparse rows, then
# weights, then squared distances to the origin, all weighted.


@jit
def pick_rows(
    X, csr, start, stop, codebook, bounds, labels, width, measuring, picked, totals
):
    """List the rows whose share is in doubt, and return their number.

    A row that belongs to one centre alone still does if, in squared distance,
    every other centre is more than `width` farther. Its distance to its own is
    at most ``upper`` plus what that centre has moved since, and to the others
    at least ``lower`` less what any of them has, and at least the distance
    from its own centre to the next less the first [1]_. If those bounds do not
    tell, the first is measured, if `measuring`. All rows that are passed over
    are such.

    References
    ----------
    .. [1] G. Hamerly, "Making k-means even faster", SDM (2010).
    """
    upper, lower, moved = bounds.upper, bounds.lower, bounds.moved
    fallen, apart = bounds.fallen, bounds.apart
    n_maybe = 0
    for i in range(start, stop):  # no branch: it would be guessed wrong too often
        j = np.uint64(max(labels[i], 0))
        near, far = upper[i] + moved[j], lower[i] - fallen[j]
        other = apart[j] - near
        far = far if far > other else other
        safe = (far > 0.0) & (far * far > SLACK * (near * near + width))
        picked[n_maybe] = i
        n_maybe += 1 - safe
    n = n_maybe if not measuring else 0
    for c in range(n_maybe if measuring else 0):
        i = picked[c]
        picked[n] = i  # stays if n is raised
        if lower[i] == -np.inf:
            n += 1
            continue
        j = np.int64(labels[i])
        square = squared_distance(X, csr, i, codebook.centers, codebook.norms, j)
        near, far = np.sqrt(square), lower[i] - fallen[j]
        upper[i] = near - moved[j]
        other = apart[j] - near
        far = far if far > other else other
        n += 1 - ((far > 0.0) & (far * far > SLACK * (square + width)))
        totals[MEASURED] += 1.0
    totals[PICKED] += n
    return n


@jit
def share_rows(
    X, csr, picked, weights, codebook, work, alpha, two_sigma2, width, bounds, labels,
    strip, ends, origins, soft, touched, totals,
):  # fmt: skip
    """Find the label of each row in `picked`, its bounds, and who has a share in it.

    A row that belongs to one centre alone gets bounds. Any other gets none,
    and its shares are added to the sums `soft` of its strip, which is `touched`.

    Adds to ``totals[strip]`` the free energy of the soft rows, their inertia, their
    weight, their weighted number of shares, and the number of labels that changed.
    Rows of zero weight get a label and no more.
    """
    upper, lower, moved, fallen = (
        bounds.upper, bounds.lower, bounds.moved, bounds.fallen
    )  # fmt: skip
    members, shares, n_lanes = work.members, work.shares, work.lengths.size
    for first in range(0, picked.size, n_lanes):
        some = picked[first : first + n_lanes]
        scores = score_rows(X, csr, some, codebook, work)
        find_nearest(scores, some.size, codebook, work, width)
        for i in range(some.size):
            row, n = some[i], 1
            while row >= ends[strip]:
                strip += 1
            w = weights[row] if weights.size else 1.0
            if not work.clear[i]:
                n = list_candidates(X, csr, row, i, scores, codebook, work, width)
            j = work.who[i]
            if labels[row] != j:
                labels[row] = j
                totals[strip, CHANGED] += w > 0.0
            upper[row] = np.sqrt(work.smallest[i]) - moved[j]
            lower[row] = np.sqrt(work.second[i]) + fallen[j]
            if n == 1:
                continue
            energy, n_shares = share_out(
                work.gaps, n, alpha, two_sigma2, work.logits, shares
            )
            if n_shares == 1:
                continue
            upper[row], lower[row] = np.inf, -np.inf
            if not w > 0.0:
                continue
            totals[strip, OBJECTIVE] += w * (work.smallest[i] + energy)
            totals[strip, INERTIA] += w * work.smallest[i]
            totals[strip, SOFT_WEIGHT] += w
            totals[strip, SUPPORT] += w * n_shares
            touched[strip] = True
            for c in range(n):
                if shares[c] > 0.0:
                    add_row(
                        X, csr, row, w * shares[c], members[c], origins, soft[strip]
                    )


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


@jit(fastmath=FAST, inner=True)
def add_row(X, csr, row, w, j, origins, sums):
    """Add a row with weight w to the sums of centre j, but for the squares.

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
    total[origin.size] += w
    return square


@jit
def hold_rows(
    X, csr, picked, weights, labels, lower, holders, strip, ends, origins,
    origin_norms, held, counts, touched,
):  # fmt: skip
    """Move rows between running sums, so that each is held by whom it belongs to.

    That is the centre of its label, if it has bounds, and no one, if not;
    ``holders[row]`` tells who holds it now, or -1. The sums `held` are of
    ``counts[strip, j]`` rows; strips whose sums change are `touched`.
    """
    for i in range(picked.size):
        row = picked[i]
        while row >= ends[strip]:
            strip += 1
        owner = labels[row] if lower[row] > -np.inf else -1
        w = weights[row] if weights.size else 1.0
        if owner == holders[row] or not w > 0.0:
            continue
        touched[strip] = True
        for sign in (1, -1):  # to its new centre, and away from the old
            j = owner if sign == 1 else holders[row]
            if j < 0:
                continue
            square = add_row(X, csr, row, sign * w, j, origins, held[strip])
            if csr is not None:
                square = sparse_squared_distance(csr, row, origins, origin_norms, j)
            held[strip, j, held.shape[2] - 1] += sign * w * square
            counts[strip, j] += sign
            if counts[strip, j] == 0:
                held[strip, j, :] = 0.0  # leave no rounding behind
        holders[row] = owner


@jit
def softmax_rows(
    X, weights, start, stop, softmax, work, two_sigma2, labels, sums, totals
):
    """An E-step for alpha = 1 and sigma > 0, as whole vectors and products.

    `softmax` and `work` are named tuples of `rows`. All rows are soft, and
    sums are about the one origin of `softmax`. Shares that are lost in the
    rounding of their sum are 0.
    """
    shares, row_sums, rates = work.scores, work.high, work.rates
    smallest, nearest, counts = work.low, work.who, work.counts
    k, n_lanes = shares.shape
    for first in range(start, stop, n_lanes):
        n_rows = min(n_lanes, stop - first)
        for i in range(n_lanes):  # all lanes are worked on
            work.picked[i] = first + min(i, n_rows - 1)
        load_rows(X, work.picked, softmax.origin, 1.0, work.rows, work.lengths)
        np.dot(softmax.factor, work.rows.T, shares)
        two_smallest(shares, smallest, work.high, nearest)
        restore_scores(X, softmax, work, two_sigma2)
        for j in range(k):
            share = shares[j]
            for i in range(n_lanes):
                share[i] = (smallest[i] - share[i]) / two_sigma2
        exp_in_place(shares.reshape(-1), work.scratch)
        row_sums[:], counts[:], rates[:] = 0.0, 0, 0.0
        for j in range(k):
            share = shares[j]
            for i in range(n_lanes):
                value = share[i] if share[i] > LEAST_SHARE else 0.0
                share[i] = value
                row_sums[i] += value
                counts[i] += value > 0.0
        for i in range(n_rows):
            row, j = first + i, nearest[i]
            w = weights[row] if weights.size else 1.0
            if labels[row] != j:
                labels[row] = j
                totals[CHANGED] += w > 0.0
            if w > 0.0:
                rates[i] = w / row_sums[i]
                base = max(smallest[i] + work.lengths[i], 0.0)
                totals[OBJECTIVE] += w * (base - two_sigma2 * np.log(row_sums[i]))
                totals[INERTIA] += w * base
                totals[SOFT_WEIGHT] += w if counts[i] > 1 else 0.0
                totals[SUPPORT] += w * counts[i]
        for j in range(k):
            share = shares[j]
            for i in range(n_lanes):
                share[i] *= rates[i]
        np.dot(shares, work.rows, work.block_sums)
        for j in range(k):
            for f in range(softmax.origin.size + 1):
                sums[j, f] += work.block_sums[j, f]


@jit(inner=True)
def restore_scores(X, softmax, work, two_sigma2):
    """Recompute directly the scores of the lanes where rounding could tell."""
    tolerance = LOGIT_TOLERANCE * two_sigma2
    for i in range(work.picked.size):
        scale = work.lengths[i] + softmax.lengths[work.who[i]]
        gap = work.high[i] - work.low[i]
        if 0.5 * EPS * scale <= tolerance and gap > 2.0 * softmax.rounding * scale:
            continue
        smallest = np.inf
        for j in range(softmax.lengths.size):
            value = dense_squared_distance(X, work.picked[i], softmax.centers, j)
            if value < smallest:
                smallest, work.who[i] = value, j
            work.scores[j, i] = value
        work.low[i], work.lengths[i] = smallest, 0.0


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
                lows[f] = X[i, f] if X[i, f] < lows[f] else lows[f]
                highs[f] = X[i, f] if X[i, f] > highs[f] else highs[f]


# --- seeding -----------------------------------------------------------------
#
# Trial centres are compared with the closest so far by lower bounds on squared
# distances, `squares`, which are hardly less, in units whose square is `unit2`.
# ``masks[i]`` gets a bit for every trial that may be closer to row i.


@jit(fastmath=FAST)
def try_columns(
    columns, trials, start, stop, keep, doubt, unit2, weights, closest, masks, gains,
    scratch,
):  # fmt: skip
    """`gain_rows` for some `trials` of the rows.

    These are given as `columns`, of shape (blocks, features, rows of a block).
    Of squared distances the share `keep` counts, less `doubt`.
    """
    n_features, n_lanes, zero = columns.shape[1], scratch.shape[1], np.float32(0.0)
    square, closest32, weights32 = scratch[0], scratch[1], scratch[2]
    for first in range(start, stop, n_lanes):
        n, block = min(n_lanes, stop - first), columns[first // n_lanes]
        load_closest(weights, first, n, unit2, closest, closest32, weights32, masks)
        for t in range(trials.size):
            trial = columns[trials[t] // n_lanes, :, trials[t] % n_lanes]
            square[:] = -doubt / keep
            for f in range(0, n_features - 1, 2):  # fewer trips to memory
                x, y, x0, y0 = block[f], block[f + 1], trial[f], trial[f + 1]
                for i in range(n_lanes):
                    dx, dy = x[i] - x0, y[i] - y0
                    square[i] += dx * dx + dy * dy
            if n_features % 2 == 1:
                x, x0 = block[n_features - 1], trial[n_features - 1]
                for i in range(n_lanes):
                    dx = x[i] - x0
                    square[i] += dx * dx
            for i in range(n_lanes):
                square[i] = keep * square[i] if square[i] > zero else zero
            gain = add_gains(t, n, square, closest32, weights32, masks[first:])
            gains[t] += np.float64(gain) * unit2


@jit
def square_rows(X, csr, start, stop, codebook, work, squares):
    """Squared distances of rows to the centres of a codebook, less their rounding."""
    n_lanes, keep, zero = work.lengths.size, 1.0 - codebook.rounding, np.float32(0.0)
    for first in range(start, stop, n_lanes):
        picked = np.arange(first, min(first + n_lanes, stop))
        scores = score_rows(X, csr, picked, codebook, work)
        for i in range(picked.size):
            length = work.lengths[i]
            work.low[i] = keep * length - UNDERFLOW if length < OVERFLOW else -np.inf
        for j in range(codebook.lengths.size):
            square, score = squares[j, first : first + picked.size], scores[j]
            for i in range(square.size):
                value = score[i] + work.low[i]
                square[i] = value if value > zero else zero


@jit(fastmath=FAST)
def gain_rows(
    squares, trials, start, stop, unit2, weights, closest, masks, gains, scratch
):
    """What each trial centre would take off the weighted sum of squared distances.

    In float32, a `BLOCK` of rows at a time. `squares` are of shape (any, rows);
    those of `trials` count.
    """
    n_lanes, closest32, weights32 = scratch.shape[1], scratch[1], scratch[2]
    for first in range(start, stop, n_lanes):
        n = min(n_lanes, stop - first)
        load_closest(weights, first, n, unit2, closest, closest32, weights32, masks)
        for t in range(gains.size):
            gain = add_gains(
                t, n, squares[trials[t], first:], closest32, weights32, masks[first:]
            )
            gains[t] += np.float64(gain) * unit2


@jit(fastmath=FAST, inner=True)
def load_closest(weights, first, n, unit2, closest, closest32, weights32, masks):
    """Copy n distances and weights in float32, and clear the masks.

    All trials may be closer to rows whose distances leave its range.
    """
    per_unit2 = 1.0 / unit2
    for i in range(n):
        value = closest[first + i] * per_unit2
        fits = (value == 0.0) | ((value > UNDERFLOW) & (value < OVERFLOW))
        closest32[i] = value if value < OVERFLOW else OVERFLOW
        masks[first + i] = 0 if fits else 255
        weights32[i] = weights[first + i] if weights.size else 1.0


@jit(fastmath=FAST, inner=True)
def add_gains(t, n, square, closest, weights, masks):
    """Weighted sum of what trial t is closer by, and its bit to the masks."""
    zero = np.float32(0.0)
    total, bit = zero, np.uint8(1 << (t & 7))
    for i in range(n):
        gain = closest[i] - square[i]
        total += weights[i] * (gain if gain > zero else zero)
        masks[i] |= bit if gain > zero else np.uint8(0)
    return total


@jit(fastmath=FAST)
def claim_rows(
    X, csr, start, stop, center, norms, masks, bit, weights, closest, left, near
):
    """Give the rows a new centre: lower their squared distances to the closest.

    Of those whose mask has the bit. ``left`` gets their weighted sum for each
    `BLOCK` of rows; `start` is the first of one, and the masks fill it. `near` is
    scratch for a block.
    """
    n_lanes, words = near.size, masks.view(np.uint64)
    pattern = np.uint64(0x0101010101010101) * np.uint64(bit)
    for first in range(start, stop, n_lanes):
        last, n = min(first + n_lanes, stop), 0
        for word in range(first // 8, (last + 7) // 8):  # of eight rows
            if words[word] & pattern != 0:
                for i in range(8 * word, min(8 * word + 8, last)):
                    near[n] = i
                    n += (masks[i] & bit) > 0
        for c in range(n):
            i = near[c]
            square = squared_distance(X, csr, i, center, norms, np.int64(0))
            closest[i] = square if square < closest[i] else closest[i]
        total = 0.0
        for i in range(first, last):
            total += closest[i] * (weights[i] if weights.size else 1.0)
        left[first // n_lanes] = total


# --- refinement --------------------------------------------------------------


@jit
def settle_rows(
    X, csr, weights, centers, norms, labels, lower, stride, alpha, two_sigma2, width,
    goal, n_ahead, n_steps, sums, gaps, logits, shares, members,
):  # fmt: skip
    """A soft step, and then steps of k-means until the labels repeat.

    For a few rows. The soft step is made with every `stride`-th of them. Moves the
    centres, and finds the labels; `lower` is scratch for bounds on the distances to
    the second closest centres [1]_. Ends before if the inertia, were it to fall by
    `n_ahead` times as much as in the last step, would still exceed the goal.

    Returns the inertia.

    References
    ----------
    .. [1] G. Hamerly, "Making k-means even faster", SDM (2010).
    """
    k, d = centers.shape
    former, inertia, longest = np.inf, np.inf, np.inf
    for step in range(n_steps):
        former, inertia, n_changed = inertia, 0.0, 0
        sums[:, :] = 0.0
        for row in range(0, labels.size, 1 if step else stride):
            w = weights[row] if weights.size else 1.0
            nearest, smallest, second = np.int64(labels[row]), np.inf, np.inf
            if step > 1:
                lower[row] -= longest
                smallest = squared_distance(X, csr, row, centers, norms, nearest)
            if step < 2 or not lower[row] > np.sqrt(SLACK * smallest):
                smallest = np.inf
                for j in range(k):
                    gaps[j] = squared_distance(X, csr, row, centers, norms, j)
                    smallest, second, nearest = two_least(
                        gaps[j], j, smallest, second, nearest
                    )
                n_changed += labels[row] != nearest
                labels[row], lower[row] = nearest, np.sqrt(second)
            inertia += w * smallest
            if step > 0:
                add_row(X, csr, row, w, nearest, centers, sums)
                continue
            n = 0
            for j in range(k):
                if j == nearest or gaps[j] - smallest < width:
                    members[n], logits[n] = j, 0.0
                    if j != nearest:
                        logits[n] = (smallest - gaps[j]) / two_sigma2
                    n += 1
            entmax_row(logits, n, alpha, shares)
            for c in range(n):
                if shares[c] > 0.0:
                    add_row(X, csr, row, w * shares[c], members[c], centers, sums)
        if step > 1 and n_changed == 0:
            break
        if step > 1 and inertia - n_ahead * (former - inertia) > goal:
            break
        longest = move_to_means(centers, sums, csr is not None)
        for j in range(k):
            norms[j] = 0.0
            for f in range(d):
                norms[j] += centers[j, f] * centers[j, f]
    return inertia


@jit(inner=True)
def move_to_means(centers, sums, is_sparse):
    """Move each centre to the mean of its share; returns the longest move.

    The sums are less the centres, except of sparse rows. Centres of no mass stay.
    """
    longest = 0.0
    for j in range(centers.shape[0]):
        mass, square = sums[j, centers.shape[1]], 0.0
        for f in range(centers.shape[1] if mass > 0.0 else 0):
            move = sums[j, f] / mass
            move = move - centers[j, f] if is_sparse else move
            centers[j, f] += move
            square += move * move
        longest = max(longest, np.sqrt(square))
    return longest
