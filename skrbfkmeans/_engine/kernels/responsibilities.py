"""Responsibilities of each row, as `predict_proba` returns them."""

# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from ..jit import jit
from .entmax import entmax_row
from .nearest import find_nearest, list_candidates, score_rows


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
