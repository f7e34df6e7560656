"""The E-step of softmax, as whole vectors and products."""

# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from ..jit import jit
from .distances import dense_squared_distance
from .e_step import CHANGED, INERTIA, OBJECTIVE, SOFT_WEIGHT, SUPPORT
from .nearest import load_rows, two_smallest

EPS = 2.0**-52

# exp(-LOG_ROUNDING) is below the rounding of a float64 sum that holds a one.
LOG_ROUNDING = 36.0
LEAST_SHARE = 2.3195228302435696e-16

# Typical rounding of a float64 product may move a logit by this much.
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
