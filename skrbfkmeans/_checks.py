"""What is asked of arrays before any pass over their rows.

Squares of very large or very small numbers cannot be represented, so data in
such a range are worked on in other units: divided by a power of two, which is
exact and changes no digit of the result.
"""

# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from sklearn.utils.validation import _check_sample_weight, check_array

# Within these bounds of the largest magnitude, no unit but 1 is needed.
SAFE = {np.dtype(np.float64): (1e-100, 1e100), np.dtype(np.float32): (1e-10, 1e10)}


def check_finite(array, name, estimator=None):
    """Raise scikit-learn's ValueError if an entry is NaN or infinite.

    Returns the sum of the squares, which tells most of the time, in one fast
    pass, that there is nothing to raise; infinite if it is too large.
    """
    flat, total = array.reshape(-1), 0.0
    with np.errstate(all="ignore"):
        for start in range(0, flat.size, 8192):  # short enough for one thread
            piece = flat[start : start + 8192]
            total += float(np.dot(piece, piece))
    if not np.isfinite(total):
        check_array(array, input_name=name, estimator=estimator)
        return np.inf
    return total


def power_of_two(X, squares, *more):
    """Exponent of the unit to work in: 0 unless squares could get lost.

    `squares` is the sum of the squares of X, `more` are further arrays.
    """
    low, high = SAFE[X.dtype]
    arrays = [X, *more]
    with np.errstate(over="ignore"):
        squares = squares + sum(np.sum(np.square(array)) for array in more)
    if low**2 < squares < high**2:
        return 0
    largest = max(float(np.max(np.abs(array))) for array in arrays)
    return int(np.frexp(largest)[1]) if largest > 0.0 else 0


def scaled(array, exponent):
    """The array in units of ``2**exponent``; the same array if that is 1."""
    return np.ldexp(array, -exponent) if exponent else array


def unscaled_inertia(value, x_exponent, w_exponent):
    """A weighted sum of squares back in the user's units."""
    with np.errstate(over="ignore"):
        value = float(np.ldexp(value, 2 * x_exponent + w_exponent))
    if not np.isfinite(value):
        raise ValueError(
            "X or sample_weight is too large: the weighted sum of squared distances "
            f"exceeds the range of float64, {np.finfo(np.float64).max:.3g}."
        )
    return value


def check_weights(sample_weight, X):
    """Weights of the rows as float64, or None, and the exponent of their unit.

    Raises
    ------
    ValueError
        If a weight is negative, NaN or infinite, if all are zero, or if the
        shape is not that of one weight a row.
    """
    if sample_weight is None:
        return None, 0
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64)
    if np.any(weights < 0.0):
        raise ValueError(
            f"sample_weight must not be negative; its least entry is {weights.min()!r}."
        )
    largest = weights.max()
    if largest == 0.0:
        raise ValueError("sample_weight is zero for every row: no weight is left.")
    exponent = 0 if 1e-30 < largest < 1e30 else int(np.frexp(largest)[1])
    return scaled(weights, exponent), exponent
