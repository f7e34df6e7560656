"""Centres in the forms that other kernels use, and how far they have moved."""

# SPDX-License-Identifier: BSD-3-Clause

import math

import numpy as np

from ..jit import jit
from .e_step import FALLEN, MOVED


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
def follow(centers, former, moves):
    """Tell the bounds how far centres have moved.

    ``moves[MOVED, j]`` grows by the move of centre j, ``moves[FALLEN, j]`` by the
    longest of all others.
    """
    first, second, who = 0.0, 0.0, 0
    for j in range(centers.shape[0]):
        total = 0.0
        for f in range(centers.shape[1]):
            difference = centers[j, f] - former[j, f]
            total += difference * difference
        move = np.sqrt(total)
        moves[MOVED, j] += move
        if move > first:
            first, second, who = move, first, j
        elif move > second:
            second = move
    for j in range(centers.shape[0]):
        moves[FALLEN, j] += second if j == who else first
