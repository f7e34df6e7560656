"""What is asked of arrays before any pass over their rows.

Squares of very large or very small numbers cannot be represented, so data in
such a range are worked on in other units: divided by a power of two, which is
exact and changes no digit of the result. For float32, float64 is enough.
"""

# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from scipy import sparse
from sklearn.utils.validation import _check_sample_weight, check_array

# Within these bounds of the largest magnitude, squares are safe.
SAFE = {np.dtype(np.float64): (1e-100, 1e100), np.dtype(np.float32): (1e-10, 1e10)}

# Beyond them, the largest magnitude becomes 2 to this power: as large as its
# squares permit, so that the smallest are lost as late as possible.
HEADROOM = 400


def check_finite(array, name, estimator=None):
    """Raise scikit-learn's ValueError if an entry is NaN or infinite.

    Returns the sum of the squares, which tells most of the time, in one fast
    pass, that there is nothing to raise; infinite if it is too large.
    """
    total = _sum_of_squares(array)
    if not np.isfinite(total):
        with np.errstate(all="ignore"):
            check_array(
                _numbers(array), input_name=name, estimator=estimator, ensure_2d=False
            )
        return np.inf
    return total


def rows_in_safe_units(X, squares, weights=None, *more):
    """Rows of X in a precision and in units in which no square gets lost.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n_samples, n_features)
        The data, float32 or float64.
    squares : float
        The sum of their squares, infinite if it is too large for X's dtype.
    weights : ndarray of shape (n_samples,), default=None
        Weights of the rows.
    *more : ndarray
        Further numbers that are to be safe in the same units.

    Returns
    -------
    rows : Rows
        The passes over them.
    exponent : int
        They are divided by 2 to this power.
    """
    precision, exponent = safe_units(X.dtype, squares, more, lambda: magnitude(X))
    return in_units(X, weights, precision, exponent), exponent


def in_units(X, weights, precision, exponent):
    """Rows of X in a precision and in units of ``2**exponent``."""
    from ._engine.rows import Rows

    return Rows(scaled(X.astype(precision, copy=False), exponent), weights, X.dtype)


def safe_units(dtype, squares, more, measure):
    """The precision and the exponent that `rows_in_safe_units` needs.

    `measure` is asked for the `magnitude` of the data if `squares` is not enough.
    """
    if _is_safe(dtype, squares, more):
        return dtype, 0
    squares, largest = measure()
    precision = np.dtype(np.float64)
    if _is_safe(precision, squares, more):
        return precision, 0
    largest = max(largest, *(magnitude(array)[1] for array in more), 0.0)
    return precision, int(np.frexp(largest)[1]) - HEADROOM if largest > 0.0 else 0


def magnitude(X):
    """Sum of the squares, in float64, and the largest magnitude of the numbers of X."""
    numbers = _numbers(X).astype(np.float64, copy=False)
    return _sum_of_squares(numbers), float(np.max(np.abs(numbers), initial=0.0))


def _is_safe(dtype, squares, more):
    """Whether sums of squares with this precision are sure to be right."""
    low, high = SAFE[np.dtype(dtype)]
    squares += sum(_sum_of_squares(array.astype(np.float64)) for array in more)
    return low**2 < squares < high**2


def _numbers(array):
    """The stored numbers of an array or a sparse matrix, as one vector."""
    return (array.data if sparse.issparse(array) else array).reshape(-1)


def _sum_of_squares(array):
    """In the array's own precision; infinite or NaN if its numbers are too large."""
    flat = _numbers(array)
    with np.errstate(all="ignore"):
        return float(np.einsum("i,i->", flat, flat))


def scaled(array, exponent):
    """The array in units of ``2**exponent``; the same array if that is 1."""
    if not exponent:
        return array
    if sparse.issparse(array):
        parts = np.ldexp(array.data, -exponent), array.indices, array.indptr
        return type(array)(parts, shape=array.shape)
    return np.ldexp(array, -exponent)


def stored(centers, dtype):
    """Centres in the precision of the rows, whose range long steps may leave."""
    if dtype == np.float64:
        return centers
    largest = np.finfo(dtype).max
    return np.clip(centers, -largest, largest).astype(dtype)


def unscaled_inertia(value, x_exponent, w_exponent, names="X or sample_weight"):
    """A weighted sum of squares back in the user's units."""
    with np.errstate(over="ignore"):
        value = float(np.ldexp(value, 2 * x_exponent + w_exponent))
    if not np.isfinite(value):
        raise ValueError(
            f"{names} is too large: the weighted sum of squared distances "
            f"exceeds the range of float64, {np.finfo(np.float64).max:.3g}."
        )
    return value


def check_centers(centers, X, name):
    """Centres as float64, with the features of X, or a ValueError that names them."""
    try:
        centers = check_array(
            centers, dtype=np.float64, order="C", copy=True, input_name=name
        )
    except (TypeError, ValueError) as error:
        reason = str(error).split("\n")[0]  # the rest repeats the array
        if name not in reason:
            reason = f"{name} is not an array of centres: {reason}"
        raise ValueError(reason) from error
    if centers.shape[1] != X.shape[1]:
        raise ValueError(
            f"{name} has {centers.shape[1]} features, but X has {X.shape[1]}."
        )
    return centers


def canonical(X):
    """A CSR matrix with sorted indices, no entry twice and none that is zero.

    A copy if need be.
    """
    if not sparse.issparse(X):
        return X
    if X.indices.dtype != X.indptr.dtype:  # older SciPy takes no rows of these
        indices, indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
        X = type(X)((X.data, indices, indptr), shape=X.shape)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    if np.count_nonzero(X.data) < X.data.size:
        X = X.copy()
        X.eliminate_zeros()
    return X


def check_weights(sample_weight, X, may_vanish=False):
    """Weights of the rows as float64, or None, and the exponent of their unit.

    Raises
    ------
    ValueError
        If a weight is negative, NaN or infinite, if all are zero unless they
        `may_vanish`, or if the shape is not that of one weight a row.
    """
    if sample_weight is None:
        return None, 0
    weights = check_each_weight(sample_weight, X)
    largest = weights.max()
    exponent = 0 if may_vanish and largest == 0.0 else weight_exponent(largest)
    return scaled(weights, exponent), exponent


def check_each_weight(sample_weight, X):
    """Weights of the rows as float64: as many as rows, finite and not negative."""
    if _is_zero(sample_weight, X.shape[0]):  # newer scikit-learn does not pass them
        return np.zeros(X.shape[0])
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64)
    if np.any(weights < 0.0):
        raise ValueError(
            f"sample_weight must not be negative; its least entry is {weights.min()!r}."
        )
    return weights


def weight_exponent(largest):
    """The exponent of the unit of weights, by the largest, or a ValueError."""
    if largest == 0.0:
        raise ValueError("sample_weight is zero for every row: no weight is left.")
    return 0 if 1e-30 < largest < 1e30 else int(np.frexp(largest)[1])


def _is_zero(sample_weight, n):
    """Whether these are n weights, all of them 0."""
    weights = np.asarray(sample_weight)
    is_real = weights.dtype.kind in "biuf"
    return is_real and weights.shape == (n,) and not np.any(weights)
