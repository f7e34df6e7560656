"""Responsibilities of each row, all of them, as `predict_proba` returns them."""

# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from ..jit import jit
from .entmax import entmax_row
from .nearest import (
    GAPS,
    LIMIT,
    LOGITS,
    SHARES,
    find_nearest,
    list_candidates,
    pick_all,
    score_rows,
)


@jit
def responsibility_rows(data, start, stop, codebook, work, heat, out, origin):
    """Responsibilities of each row into `out`, which begins with row `origin`.

    `heat` is (alpha, 2 sigma^2, width), as in `share_rows`.

    Where rounding makes an earlier centre's share equal to the nearest one's,
    the latter is raised by one unit in the last place, so that the argmax of a
    row is always its label.
    """
    alpha, two_sigma2, width = heat
    members, gaps = work.members, work.candidates[GAPS]
    logits, found = work.candidates[LOGITS], work.candidates[SHARES]
    for first in range(start, stop, work.picked.size):
        picked = pick_all(first, stop, work.picked)
        scores = score_rows(data, picked, codebook, work)
        find_nearest(scores, picked.size, codebook, work, width)
        for i in range(picked.size):
            shares, n = out[picked[i] - origin], 1
            shares[:] = 0.0
            if work.lanes[LIMIT, i] > -np.inf:
                n = list_candidates(data, picked[i], i, scores, codebook, work, width)
            nearest = work.who[i]
            shares[nearest] = 1.0
            if n == 1:
                continue
            for c in range(n):
                logits[c] = -gaps[c] / two_sigma2
            entmax_row(logits, n, alpha, found)
            for c in range(n):
                shares[members[c]] = found[c]
            for j in range(nearest):
                if shares[j] >= shares[nearest]:
                    shares[nearest] = np.nextafter(shares[j], out.dtype.type(2.0))


@jit
def compress_rows(out, values, columns, counts):
    """The positive numbers of `out`, row by row, and the columns they stand in.

    ``counts[i]`` gets how many there are in row i. Returns how many there are in all.
    """
    n = 0
    for i in range(out.shape[0]):
        before = n
        for j in range(out.shape[1]):  # no branch: it would be guessed wrong too often
            values[n], columns[n] = out[i, j], j
            n += out[i, j] > 0.0
        counts[i] = n - before
    return n
