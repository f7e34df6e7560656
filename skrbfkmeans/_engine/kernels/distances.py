"""Squared distances of rows and centres, each in one fixed order of summation."""

# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from ..jit import FAST, jit

# A sparse row's squared distance below this share of the centre's squared length
# has lost too many digits in a difference of lengths, and is summed anew.
CANCELLATION = 1e-3


@jit(inner=True)
def squared_distance(data, i, centers, norms, j):
    """Squared distance of row i and centre j, in one fixed order of summation.

    `norms`, the squared lengths of the centres, are for sparse rows only. Call it
    with indices of one type, int64, so that it is compiled once.
    """
    value = 0.0
    if len(data) == 1:
        value = dense_squared_distance(data[0], i, centers, j)
    else:
        value = sparse_squared_distance(data, i, centers, norms, j)
    return value


@jit(inner=True)
def sparse_squared_distance(data, i, centers, norms, j):
    """`squared_distance` of a sparse row.

    Where the row stores a value, the difference is squared. Everywhere else the
    centre alone counts, and what it has there is its squared length less the squares
    where the row stores a value: a difference, which may cancel.
    """
    values, indices, indptr = data
    near, shared = 0.0, 0.0
    for p in range(indptr[i], indptr[i + 1]):
        c = centers[j, indices[p]]
        difference = values[p] - c
        near += difference * difference
        shared += c * c
    rest = norms[j] - shared
    if near + rest >= CANCELLATION * norms[j]:
        return near + rest
    # Little is left of the difference: add up what stands between the stored values.
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
    x, c = X[np.uint64(i)], centers[np.uint64(j)]  # unsigned: no negative index
    total = 0.0
    for f in range(c.size):
        difference = x[f] - c[f]
        total += difference * difference
    return total


@jit
def label_distance_rows(data, start, stop, codebook, labels, out):
    """Squared distance of each row to the centre that its label names."""
    for i in range(start, stop):
        j = np.int64(labels[i])
        out[i] = squared_distance(data, i, codebook.centers, codebook.norms, j)


@jit
def distance_rows(data, start, stop, codebook, out, origin):
    """Squared distance of each row to each centre into `out`, from row `origin` on."""
    for i in range(start, stop):
        for j in range(codebook.lengths.size):
            out[i - origin, j] = squared_distance(
                data, i, codebook.centers, codebook.norms, j
            )
