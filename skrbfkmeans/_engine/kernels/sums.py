"""Sums of rows, of which means, variances and inertia are made."""

# SPDX-License-Identifier: BSD-3-Clause

from ..jit import FAST, jit


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
