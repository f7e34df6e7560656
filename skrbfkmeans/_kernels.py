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

import numpy as np

from ._jit import FAST, jit

# Scores are direct, (x - c)^2, with at most this many features, or with at most
# this many numbers in all centres; beyond, a matrix product is faster.
N_FEATURES_DIRECT, SIZE_DIRECT = 9, 256

# A sparse row's squared distance below this share of the centre's squared length
# has lost too many digits in a difference of lengths, and is summed anew.
CANCELLATION = 1e-3

# A nearest distance in whose square rounding could be larger than this, relative
# to it, is computed directly.
DISTANCE_TOLERANCE = 1e-12

# exp(-LOG_ROUNDING) is below the rounding of a float64 sum that holds a one.
LOG_ROUNDING = 36.0
LEAST_SHARE = 2.3195228302435696e-16

# What `em_rows` adds up besides sums and masses.
OBJECTIVE, SOFT_WEIGHT, SUPPORT, CHANGED = range(4)


# --- distances ---------------------------------------------------------------


@jit
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


@jit
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


@jit(inline=True)
def dense_squared_distance(X, i, centers, j):
    """`squared_distance` of a dense row."""
    n_features = centers.shape[1]
    s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
    f = 0
    while f + 3 < n_features:  # four independent sums keep the adders busy
        d0, d1 = X[i, f] - centers[j, f], X[i, f + 1] - centers[j, f + 1]
        d2, d3 = X[i, f + 2] - centers[j, f + 2], X[i, f + 3] - centers[j, f + 3]
        s0, s1, s2, s3 = s0 + d0 * d0, s1 + d1 * d1, s2 + d2 * d2, s3 + d3 * d3
        f += 4
    while f < n_features:
        d0 = X[i, f] - centers[j, f]
        s0 += d0 * d0
        f += 1
    return (s0 + s1) + (s2 + s3)


@jit(fastmath={"contract"})
def direct_scores(columns, centers, scores):
    """Squared distances by (x - c)^2, for `columns` of shape (features, rows)."""
    n_features, n_rows = columns.shape
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


@jit
def load_columns(X, start, stop, columns):
    """Copy a block of rows, transposed; lanes without a row repeat the last."""
    n_features, n_lanes = columns.shape
    n = stop - start
    for f in range(n_features):
        column = columns[f]
        for i in range(n):
            column[i] = X[start + i, f]
        for i in range(n, n_lanes):
            column[i] = column[n - 1]


@jit(fastmath=FAST)
def load_rows(X, start, stop, shift, rows, norms):
    """Copy a block of rows less `shift`; `norms` gets their squared lengths."""
    n_lanes, n_features = rows.shape
    for i in range(n_lanes):
        row = min(start + i, stop - 1)
        total = 0.0
        for f in range(n_features):
            value = X[row, f] - shift[f]
            rows[i, f] = value
            total += value * value
        norms[i] = total


@jit
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
            value = o0 + slope * s0[i]
            less = value < low
            loser = low if less else value
            high = loser if loser < high else high
            who = j if less else who
            low = value if less else low
            value = o1 + slope * s1[i]
            less = value < low
            loser = low if less else value
            high = loser if loser < high else high
            who = j + 1 if less else who
            low = value if less else low
            value = o2 + slope * s2[i]
            less = value < low
            loser = low if less else value
            high = loser if loser < high else high
            who = j + 2 if less else who
            low = value if less else low
            value = o3 + slope * s3[i]
            less = value < low
            loser = low if less else value
            high = loser if loser < high else high
            who = j + 3 if less else who
            low = value if less else low
            smallest[i], second[i], nearest[i] = low, high, who
        j += 4
    while j < k:
        s0, o0 = scores[j], offsets[j]
        for i in range(n_lanes):
            low, high, who = smallest[i], second[i], nearest[i]
            value = o0 + slope * s0[i]
            less = value < low
            loser = low if less else value
            high = loser if loser < high else high
            who = j if less else who
            low = value if less else low
            smallest[i], second[i], nearest[i] = low, high, who
        j += 1


# --- responsibilities --------------------------------------------------------


@jit
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


@jit
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


@jit
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


@jit
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


@jit
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


@jit(fastmath=FAST)
def sparse_scores(csr, start, stop, transposed, scores, norms, dots):
    """Products of sparse rows with the centres, and squared lengths of the rows.

    `transposed` are the centres, of shape (features, centres); `dots` is
    scratch for one row.
    """
    values, indices, indptr = csr
    for i in range(stop - start):
        dots[:] = 0.0
        total = 0.0
        for p in range(indptr[start + i], indptr[start + i + 1]):
            value, column = np.float64(values[p]), transposed[indices[p]]
            total += value * value
            for j in range(dots.size):
                dots[j] += value * column[j]
        norms[i] = total
        for j in range(dots.size):
            scores[j, i] = dots[j]


@jit
def score_block(X, csr, start, stop, codebook, work):
    """Fill ``work.scores`` and the two smallest for rows start to stop.

    A squared distance is ``norms[i] + offsets[j] + slope * scores[j, i]``;
    `slope` is returned. In the direct case norms and offsets are zero.
    """
    slope = -2.0
    if csr is not None:
        sparse_scores(
            csr, start, stop, codebook.factor, work.scores, work.norms, work.logits
        )
    if X is not None:
        if codebook.rounding == 0.0:
            slope = 1.0
            load_columns(X, start, stop, work.columns)
            direct_scores(work.columns, codebook.centers, work.scores)
        else:
            load_rows(X, start, stop, codebook.shift, work.rows, work.norms)
            np.dot(codebook.factor, work.rows.T, work.products)
            if work.products.itemsize == 4:  # else `products` is `scores`
                for j in range(work.scores.shape[0]):
                    source, target = work.products[j], work.scores[j]
                    for i in range(target.size):
                        target[i] = source[i]
    two_smallest(
        work.scores, codebook.offsets, slope, work.smallest, work.second, work.nearest
    )
    return slope


@jit
def list_candidates(
    X,
    csr,
    start,
    stop,
    codebook,
    work,
    slope,
    two_sigma2,
    width,
    measuring,
):
    """List the centres that can have a share in each row of a scored block.

    Those are the centres less than `width` farther, in squared distance, than
    the nearest. For lane i, ``counts[i]`` of them stand in ``members[i]`` in
    increasing order, their squared distances less the smallest in
    ``gaps[i]``; ``smallest[i]`` becomes that smallest squared distance and
    ``nearest[i]`` the first centre that has it. Unless `measuring`, the
    smallest distance of a row with a single candidate may be left out.
    """
    centers, offsets, rounding = codebook.centers, codebook.offsets, codebook.rounding
    scores, norms, nearest = work.scores, work.norms, work.nearest
    members, gaps, counts = work.members, work.gaps, work.counts
    if rounding == 0.0 and not measuring:
        return  # `score_block` has found the nearest centre, and no more is wanted
    n_centers = scores.shape[0]
    tolerance = codebook.tolerance * two_sigma2
    for i in range(stop - start):
        row = start + i
        scale = norms[i] + codebook.norms[nearest[i]]
        doubt = 2.0 * rounding * scale
        gap = work.second[i] - work.smallest[i]
        if gap > doubt and gap >= width + doubt:
            counts[i] = 1
            members[i, 0] = nearest[i]
            gaps[i, 0] = 0.0
            if measuring and rounding > 0.0:
                j = nearest[i]
                work.smallest[i] += norms[i] + rounding * codebook.norms[j]
                if codebook.unit * scale > DISTANCE_TOLERANCE * work.smallest[i]:
                    work.smallest[i] = squared_distance(
                        X, csr, row, centers, codebook.norms, j
                    )
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
                    X, csr, row, centers, codebook.norms, members[i, c]
                )
        else:
            for c in range(n):
                gaps[i, c] += norms[i] + rounding * codebook.norms[members[i, c]]
        best = 0
        for c in range(1, n):
            if gaps[i, c] < gaps[i, best]:
                best = c
        smallest = gaps[i, best]
        work.smallest[i] = max(smallest, 0.0)
        nearest[i] = members[i, best]
        counts[i] = 0
        for c in range(n):
            difference = gaps[i, c] - smallest
            if difference < width or c == best:
                members[i, counts[i]] = members[i, c]
                gaps[i, counts[i]] = difference
                counts[i] += 1


# --- passes over rows --------------------------------------------------------


@jit
def margin_rows(X, csr, start, stop, codebook, work, totals):
    """Lower ``totals[0]`` to the least gap of two smallest squared distances."""
    n_lanes = work.smallest.size
    k = codebook.centers.shape[0]
    margin = totals[0]
    for first in range(start, stop, n_lanes):
        last = min(first + n_lanes, stop)
        slope = score_block(X, csr, first, last, codebook, work)
        for i in range(last - first):
            scale = work.norms[i] + codebook.norms[work.nearest[i]]
            doubt = 2.0 * codebook.rounding * scale
            if work.second[i] - work.smallest[i] - doubt >= margin:
                continue
            smallest, second = np.inf, np.inf
            limit = work.second[i] + doubt
            for j in range(k):
                if codebook.offsets[j] + slope * work.scores[j, i] <= limit:
                    value = squared_distance(
                        X,
                        csr,
                        first + i,
                        codebook.centers,
                        codebook.norms,
                        j,
                    )
                    if value < smallest:
                        smallest, second = value, smallest
                    elif value < second:
                        second = value
            margin = min(margin, second - smallest)
    totals[0] = margin


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
    X,
    csr,
    start,
    stop,
    codebook,
    work,
    alpha,
    two_sigma2,
    width,
    out,
    origin,
):
    """Responsibilities of each row into `out`, which begins with row `origin`.

    Where rounding makes an earlier centre's share equal to the nearest one's,
    the latter is raised by one unit in the last place, so that the argmax of a
    row is always its label.
    """
    n_lanes = work.smallest.size
    for first in range(start, stop, n_lanes):
        last = min(first + n_lanes, stop)
        slope = score_block(X, csr, first, last, codebook, work)
        list_candidates(
            X,
            csr,
            first,
            last,
            codebook,
            work,
            slope,
            two_sigma2,
            width,
            True,
        )
        for i in range(last - first):
            row, n = first + i - origin, work.counts[i]
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


@jit
def em_rows(
    X,
    csr,
    weights,
    start,
    stop,
    codebook,
    work,
    alpha,
    two_sigma2,
    width,
    measuring,
    labels,
    moments,
):
    """One E-step and the sums that the M-step needs, for rows start to stop.

    Adds to ``moments.sums`` (k, d) the responsibilities times the rows less
    the origins, to ``moments.masses`` (k,) the responsibilities, and to
    ``moments.totals`` the free energy, the weight of the rows with more than
    one share, the weighted number of shares, and the number of labels that
    changed; all weighted. Rows of zero weight get a label and no more. With
    ``sums`` of shape (0, 0), sums and masses are left out; unless `measuring`,
    all but the labels is.
    """
    sums, masses, totals = moments.sums, moments.masses, moments.totals
    nearest, counts, smallest = work.nearest, work.counts, work.smallest
    members, gaps, origins = work.members, work.gaps, moments.origins
    logits, shares = work.logits, work.shares
    objective, soft_weight, support, changed = 0.0, 0.0, 0.0, 0
    summing = sums.shape[0] > 0
    n_lanes = work.smallest.size
    for first in range(start, stop, n_lanes):
        last = min(first + n_lanes, stop)
        slope = score_block(X, csr, first, last, codebook, work)
        list_candidates(
            X,
            csr,
            first,
            last,
            codebook,
            work,
            slope,
            two_sigma2,
            width,
            measuring,
        )
        if not measuring:
            for i in range(last - first):
                labels[first + i] = nearest[i]
            continue
        for i in range(last - first):
            row = first + i
            j, n = nearest[i], counts[i]
            w = weights[row] if weights.size else 1.0
            if labels[row] != j:
                labels[row] = j
                changed += w > 0.0
            if not w > 0.0:
                continue
            if n == 1:
                shares[0] = 1.0
                objective += w * smallest[i]
                support += w
            else:
                for c in range(n):
                    logits[c] = -gaps[i, c] / two_sigma2
                entmax_row(logits, n, alpha, shares)
                energy, n_shares = -two_sigma2 * entropy_row(shares, n, alpha), 0
                for c in range(n):
                    energy += shares[c] * gaps[i, c]
                    n_shares += shares[c] > 0.0
                objective += w * (smallest[i] + energy)
                support += w * n_shares
                soft_weight += w if n_shares > 1 else 0.0
            if not summing:
                continue
            for c in range(n):
                share = w * shares[c]
                if share > 0.0:
                    j = members[i, c]
                    if X is not None:
                        add_dense_share(X, row, share, j, origins, sums, masses)
                    if csr is not None:
                        add_sparse_share(csr, row, share, j, sums, masses)
    totals[OBJECTIVE] += objective
    totals[SOFT_WEIGHT] += soft_weight
    totals[SUPPORT] += support
    totals[CHANGED] += changed


@jit(inline=True)
def add_dense_share(X, row, w, j, origins, sums, masses):
    """Add a dense row with weight w to centre j."""
    x, origin, total = X[np.uint64(row)], origins[np.uint64(j)], sums[np.uint64(j)]
    masses[j] += w
    for f in range(x.size):
        total[f] += w * (x[f] - origin[f])


@jit(inline=True)
def add_sparse_share(csr, row, w, j, sums, masses):
    """Add a sparse row, whose origin is 0, with weight w to centre j."""
    values, indices, indptr = csr
    masses[j] += w
    for p in range(indptr[row], indptr[row + 1]):
        sums[j, indices[p]] += w * values[p]


@jit
def softmax_rows(X, weights, start, stop, codebook, work, two_sigma2, labels, moments):
    """`em_rows` for alpha = 1 and sigma > 0, as whole vectors and products.

    Shares that are lost in the rounding of their sum are 0.
    """
    sums, masses, totals = moments.sums, moments.masses, moments.totals
    shares, row_sums, rates = work.scores, work.second, work.limits
    smallest, norms, nearest = work.smallest, work.norms, work.nearest
    counts = work.counts
    lengths, shift = codebook.norms, moments.origins[0]
    k, n_lanes = shares.shape
    for first in range(start, stop, n_lanes):
        last = min(first + n_lanes, stop)
        slope = score_block(X, None, first, last, codebook, work)
        restore_scores(X, first, last, codebook, work, slope, two_sigma2)
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
        for i in range(last - first):
            row = first + i
            j = nearest[i]
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
            row = min(first + i, stop - 1)
            for f in range(shift.size):
                work.centered[i, f] = X[row, f] - shift[f]
        np.dot(shares, work.centered, work.block_sums)
        for j in range(k):
            for f in range(shift.size):
                sums[j, f] += work.block_sums[j, f]


@jit
def restore_scores(X, start, stop, codebook, work, slope, two_sigma2):
    """Recompute directly the scores of the lanes where rounding could tell."""
    if codebook.rounding == 0.0:
        return
    tolerance = codebook.tolerance * two_sigma2
    for i in range(stop - start):
        scale = work.norms[i] + codebook.norms[work.nearest[i]]
        gap = work.second[i] - work.smallest[i]
        doubt = 2.0 * codebook.rounding * scale
        if codebook.unit * scale <= tolerance and gap > doubt:
            continue
        smallest = np.inf
        for j in range(codebook.norms.size):
            value = dense_squared_distance(X, start + i, codebook.centers, j)
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
def seed_rows(
    X,
    csr,
    weights,
    start,
    stop,
    candidates,
    norms,
    closest,
    potentials,
):
    """What is left of each row's squared distance when a candidate is added.

    ``potentials[c]`` gets the weighted sum over the rows of the smaller of
    ``closest[i]`` and the squared distance to candidate c. With no potentials,
    ``closest`` itself is lowered to the distance to the only candidate.
    """
    lowering = potentials.size == 0
    for i in range(start, stop):
        w = weights[i] if weights.size else 1.0
        if lowering or w > 0.0:
            for c in range(candidates.shape[0]):
                value = closest[i]
                if X is not None:
                    value = min(value, dense_squared_distance(X, i, candidates, c))
                if csr is not None:
                    distance = sparse_squared_distance(csr, i, candidates, norms, c)
                    value = min(value, distance)
                if lowering:
                    closest[i] = value
                else:
                    potentials[c] += w * value
