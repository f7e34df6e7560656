"""The E-step of softmax, as whole vectors and products."""

# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from ..jit import jit
from .distances import dense_squared_distance
from .nearest import HIGH, LOW, load_rows, two_smallest
from .sums import CHANGED, INERTIA, OBJECTIVE, SOFT_WEIGHT, SUPPORT

# Relative spacing of float64.
EPS = 2.0**-52

# Logits: a centre that is so far behind the nearest has a share that is lost in the
# rounding of a float64 sum that holds a one.
LOG_ROUNDING = 36.0

# exp(-LOG_ROUNDING). Shares up to it, relative to the largest of a row, are 0.
LEAST_SHARE = 2.3195228302435696e-16

# Logits: typical rounding of a float64 product may move one by this much.
LOGIT_TOLERANCE = 2e-14


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


@jit
def softmax_rows(X, weights, softmax, work, two_sigma2, labels, sums, totals):
    """An E-step for alpha = 1 and sigma > 0, as whole vectors and products.

    `softmax` and `work` are named tuples of `rows`. All rows are soft, and
    sums, of coordinates and weights, are about the one origin of `softmax`. Shares
    that are lost in the rounding of their sum are 0.
    """
    smallest, row_sums = work.minima[LOW], work.minima[HIGH]  # the latter later
    shares, rates, nearest, counts = work.scores, work.rates, work.who, work.counts
    (k, n_lanes), n_all = shares.shape, labels.size
    for first in range(0, n_all, n_lanes):
        n_rows = min(n_lanes, n_all - first)
        for i in range(n_lanes):  # all lanes are worked on
            work.picked[i] = first + min(i, n_rows - 1)
        load_rows(X, work.picked, softmax.origin, 1.0, work.rows, work.lengths)
        np.dot(softmax.factor, work.rows.T, shares)
        two_smallest(shares, work.minima, nearest)
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
                share[i] *= rates[i]  # 0 for lanes without a row of their own
        np.dot(shares, work.rows, work.block_sums)
        for j in range(k):
            for f in range(softmax.origin.size + 1):
                sums[j, f] += work.block_sums[j, f]


@jit(inner=True)
def restore_scores(X, softmax, work, two_sigma2):
    """Recompute directly the scores of the lanes where rounding could tell.

    That is where it could move a logit by more than is typical of a good one, or make
    another centre the nearest. Their rows get a length of 0: the scores are whole
    squared distances.
    """
    minima, lengths, who = work.minima, work.lengths, work.who
    tolerance = LOGIT_TOLERANCE * two_sigma2
    for i in range(lengths.size):
        scale = lengths[i] + softmax.lengths[who[i]]
        gap = minima[HIGH, i] - minima[LOW, i]
        if 0.5 * EPS * scale <= tolerance and gap > 2.0 * softmax.rounding * scale:
            continue
        smallest = np.inf
        for j in range(softmax.lengths.size):
            value = dense_squared_distance(X, work.picked[i], softmax.centers, j)
            if value < smallest:
                smallest, who[i] = value, j
            work.scores[j, i] = value
        minima[LOW, i], lengths[i] = smallest, 0.0
