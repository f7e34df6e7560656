"""Sums of rows, of which means, variances and inertia are made."""

# SPDX-License-Identifier: BSD-3-Clause

from ..jit import FAST, jit

# What an E-step adds up over the rows of a strip, besides the rows: the free energy,
# the inertia, the weight and the weighted number of shares of rows that more than one
# centre shares; and how many rows have changed their label, have had the distance to
# their centre measured, have been looked at, and have changed their running sum.
OBJECTIVE, INERTIA, SOFT_WEIGHT, SUPPORT, CHANGED, MEASURED, PICKED, HELD = range(8)
N_TOTALS = 8


@jit(fastmath=FAST, inner=True)
def add_row(data, row, w, j, origins, sums):
    """Add a row with weight w to the sums of centre j, and w to its mass.

    Dense rows less the origin of the centre, sparse ones as they are.

    Returns the squared distance of a dense row to the origin.
    """
    total, origin = sums[j], origins[j]
    square = 0.0
    if len(data) == 1:
        x = data[0][row]
        for f in range(x.size):
            difference = x[f] - origin[f]
            total[f] += w * difference
            square += difference * difference
    else:
        values, indices, indptr = data
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

    `sums` are about the origins, or about zero for sparse rows. With x the rows of a
    centre c, o its origin and w their weights, sum w ||x - c||^2 is sum w ||x - o||^2
    less 2 <sum w (x - o), c - o> plus sum w ||c - o||^2.
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
def moment_rows(X, weights, start, stop, shift, moments):
    """Weighted sums, per feature, of the rows less `shift` and their squares.

    And the least and the greatest value of rows of positive weight. The four are the
    rows of `moments`.
    """
    for i in range(start, stop):
        w = weights[i] if weights.size else 1.0
        if w > 0.0:
            for f in range(shift.size):
                value = X[i, f] - shift[f]
                moments[0, f] += w * value
                moments[1, f] += w * value * value
                low, high = moments[2, f], moments[3, f]
                moments[2, f] = X[i, f] if X[i, f] < low else low
                moments[3, f] = X[i, f] if X[i, f] > high else high
