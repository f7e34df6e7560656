"""Seeding: how much closer each of some trial centres would be to the rows.

Trial centres are compared with the closest so far by lower bounds on squared
distances, `squares`, which are hardly less, in units whose square is `unit2`. What is
known about the closest is the tuple `near`:

- ``closest`` (rows,): the squared distances, and
- ``masks`` (rows,): a bit for every trial that may be closer, the t-th if bit t modulo
  8 is set.

Rows are worked on in blocks of `BLOCK`; `scratch` (3, BLOCK) is for one, in float32.
"""

# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from ..jit import FAST, jit
from .distances import squared_distance
from .nearest import LENGTH, LOW, OVERFLOW, UNDERFLOW, pick_all, score_rows

# Rows whose squared distances are added up to one number, by which blocks are drawn.
BLOCK = 1024


@jit(fastmath=FAST)
def try_columns(columns, trials, start, stop, scale, weights, near, gains, scratch):
    """`gain_rows` for some `trials` of the rows.

    These are given as `columns`, of shape (blocks, features, rows of a block). `scale`
    is (keep, doubt, unit2): of squared distances the share `keep` counts, less `doubt`.
    """
    keep, doubt, unit2 = scale
    closest, masks = near
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
def square_rows(data, start, stop, codebook, work, squares):
    """Squared distances of rows to the centres of a codebook, less their rounding."""
    keep, zero = 1.0 - codebook.rounding, np.float32(0.0)
    lengths, offsets = work.lanes[LENGTH], work.minima[LOW]  # scratch in float32
    for first in range(start, stop, lengths.size):
        picked = pick_all(first, stop, work.picked)
        scores = score_rows(data, picked, codebook, work)
        for i in range(picked.size):
            length = lengths[i]
            offsets[i] = keep * length - UNDERFLOW if length < OVERFLOW else -np.inf
        for j in range(codebook.lengths.size):
            square, score = squares[j, first : first + picked.size], scores[j]
            for i in range(square.size):
                value = score[i] + offsets[i]
                square[i] = value if value > zero else zero


@jit(fastmath=FAST)
def gain_rows(squares, trials, start, stop, unit2, weights, near, gains, scratch):
    """What each trial centre would take off the weighted sum of squared distances.

    In float32, a `BLOCK` of rows at a time. `squares` are of shape (any, rows);
    those of `trials` count.
    """
    closest, masks = near
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
def claim_rows(data, weights, start, stop, center, bit, near, left, scratch):
    """Give the rows a new centre: lower their squared distances to the closest.

    Of those whose mask has the bit. ``left`` gets their weighted sum for each
    `BLOCK` of rows; `start` is the first of one, and the masks fill it. `center` is a
    tuple of two arrays, the centre and its squared length, of shapes (1, features) and
    (1,). `scratch` (BLOCK,) is for numbers of rows.
    """
    closest, masks = near
    centers, norms = center
    n_lanes, words = scratch.size, masks.view(np.uint64)
    pattern = np.uint64(0x0101010101010101) * np.uint64(bit)
    for first in range(start, stop, n_lanes):
        last, n = min(first + n_lanes, stop), 0
        for word in range(first // 8, (last + 7) // 8):  # of eight rows
            if words[word] & pattern != 0:
                for i in range(8 * word, min(8 * word + 8, last)):
                    scratch[n] = i
                    n += (masks[i] & bit) > 0
        for c in range(n):
            i = scratch[c]
            square = squared_distance(data, i, centers, norms, np.int64(0))
            closest[i] = square if square < closest[i] else closest[i]
        total = 0.0
        for i in range(first, last):
            total += closest[i] * (weights[i] if weights.size else 1.0)
        left[first // n_lanes] = total
