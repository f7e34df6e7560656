"""Is an argument allowed? The one home of every such question.

Each function returns the argument as the rest of the package wants it, or raises an
error that names it. Tensors are asked about in `torch._checks`.
"""

# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral, Real

import numpy as np
from scipy import sparse
from sklearn import config_context
from sklearn.utils.validation import check_array, validate_data

from ._engine.units import Batch, numbers, sum_of_squares
from ._sklearn import check_sample_weight

# --- numbers -----------------------------------------------------------------


def check_alpha(alpha):
    """Alpha as a float, or a ValueError that names it."""
    if _is_bool(alpha) or not isinstance(alpha, Real) or not 1.0 <= alpha < np.inf:
        raise ValueError(f"alpha must be a finite number >= 1; got {alpha!r}.")
    return float(alpha)


def check_sigma(sigma, name="sigma"):
    """Sigma as a float, or a ValueError that names it."""
    if _is_bool(sigma) or not isinstance(sigma, Real) or not 0.0 <= sigma < np.inf:
        raise ValueError(f"{name} must be a finite number >= 0; got {sigma!r}.")
    return float(sigma)


def check_count(value, name):
    """A positive integer, or a ValueError that names it."""
    if _is_bool(value) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} must be an integer >= 1; got {value!r}.")
    return int(value)


def check_learning_rate(value):
    """The length of a step as a float, or a ValueError."""
    if _is_bool(value) or not isinstance(value, Real) or not 0.0 < value < 2.0:
        raise ValueError(f"learning_rate must be between 0 and 2; got {value!r}.")
    return float(value)


def check_temperatures(sigmas, name):
    """Temperatures as an array, or a ValueError that names them."""
    try:
        array = np.asarray(sigmas, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold numbers; got {sigmas!r}.") from error
    if array.ndim != 1 or array.size == 0:
        raise ValueError(
            f"{name} must be 1-D and not empty; its shape is {array.shape}."
        )
    if not np.all(np.isfinite(array)) or np.any(array < 0.0):
        raise ValueError(f"{name} must hold finite temperatures >= 0; got {sigmas!r}.")
    return array


def check_falling_temperatures(sigmas):
    """Check an array that was given as the parameter `schedule`."""
    array = check_temperatures(sigmas, "The 'schedule' array")
    if np.any(np.diff(array) > 0.0):
        raise ValueError(
            "The 'schedule' array must not increase; to reheat, use "
            f"skrbfkmeans.schedules.Cyclic. Got {sigmas!r} instead."
        )


def check_no_bools(estimator, names):
    """Check that no parameter that takes numbers is a bool."""
    for name in names:
        if _is_bool(value := getattr(estimator, name)):
            raise ValueError(
                f"The {name!r} parameter of {type(estimator).__name__} must not be a "
                f"bool. Got {value!r} instead."
            )


def check_enough_rows(n_samples, n_clusters):
    """Check that there are at least as many rows as clusters."""
    if n_samples < n_clusters:
        raise ValueError(f"n_samples={n_samples} should be >= n_clusters={n_clusters}.")


def _is_bool(value):
    return isinstance(value, (bool, np.bool_))


def checking_all():
    """Context in which scikit-learn looks for NaN whatever it has been told.

    A few centres or weights are soon looked at, and one NaN among them would end in
    an error that tells of something else.
    """
    return config_context(assume_finite=False)


# --- rows --------------------------------------------------------------------


def check_rows(X, estimator=None, reset=False):
    """Rows as a finite array in C order or CSR matrix, and the sum of their squares.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        The rows.
    estimator : estimator, default=None
        Whose number and names of features they must have.
    reset : bool, default=False
        Whether to note these instead.

    Returns
    -------
    X : ndarray or CSR matrix
        float32 or float64, without a copy where possible.
    squares : float
        As `check_finite` returns it.

    Raises
    ------
    ValueError
        If X is not 2-D, finite and of the right number of features.
    """
    options = {
        "accept_sparse": "csr",
        "dtype": [np.float64, np.float32],
        "order": "C",
        "ensure_all_finite": False,
    }
    if estimator is None:
        X = check_array(X, input_name="X", **options)
    else:
        X = validate_data(estimator, X, reset=reset, **options)
    X = canonical(X)
    return X, check_finite(X, "X", estimator)


def check_finite(array, name, estimator=None):
    """Raise scikit-learn's ValueError if an entry is NaN or infinite.

    With scikit-learn's ``assume_finite`` too: the look costs nothing, since the sum is
    needed anyway. Returns the sum of the squares, which tells most of the time, in one
    fast pass, that there is nothing to raise; infinite if it is too large.
    """
    total = sum_of_squares(array)
    if not np.isfinite(total):
        with np.errstate(all="ignore"), checking_all():
            check_array(
                numbers(array), input_name=name, estimator=estimator, ensure_2d=False
            )
        return np.inf
    return total


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


# --- weights -----------------------------------------------------------------


def check_weights(sample_weight, X, may_vanish=False):
    """Weights of the rows as float64, or None.

    Raises
    ------
    ValueError
        If a weight is negative, NaN or infinite, if all are zero unless they
        `may_vanish`, or if the shape is not that of one weight a row.
    """
    if sample_weight is None:
        return None
    if _is_zero(sample_weight, X.shape[0]):  # newer scikit-learn does not pass them
        weights = np.zeros(X.shape[0])
    else:
        with checking_all():
            weights = check_sample_weight(sample_weight, X, dtype=np.float64)
    if np.any(weights < 0.0):
        raise ValueError(
            f"sample_weight must not be negative; its least entry is {weights.min()!r}."
        )
    if not may_vanish:
        check_some_weight(weights.max())
    return weights


def check_some_weight(largest):
    """Check that the largest of all weights is not zero."""
    if largest == 0.0:
        raise ValueError("sample_weight is zero for every row: no weight is left.")


def _is_zero(sample_weight, n):
    """Whether these are n weights, all of them 0."""
    weights = np.asarray(sample_weight)
    is_real = weights.dtype.kind in "biuf"
    return is_real and weights.shape == (n,) and not np.any(weights)


def check_batch(X, sample_weight=None, estimator=None, reset=False, may_vanish=False):
    """Rows and their weights, checked, as one object."""
    X, squares = check_rows(X, estimator, reset)
    return Batch(X, squares, check_weights(sample_weight, X, may_vanish))


# --- centres -----------------------------------------------------------------


def check_centers(centers, n_features, name):
    """Centres as float64, with as many features as X, or a ValueError."""
    try:
        with checking_all():
            centers = check_array(
                centers, dtype=np.float64, order="C", copy=True, input_name=name
            )
    except (TypeError, ValueError) as error:
        reason = str(error).split("\n")[0]  # the rest repeats the array
        if name not in reason:
            reason = f"{name} is not an array of centres: {reason}"
        raise ValueError(reason) from error
    if centers.shape[1] != n_features:
        raise ValueError(
            f"{name} has {centers.shape[1]} features, but X has {n_features}."
        )
    return centers


def check_init(init, n_clusters, n_features, dtype):
    """Starting centres in the precision of the rows, or a ValueError."""
    with np.errstate(over="ignore"):
        init = check_centers(init, n_features, "init").astype(dtype)
    if not np.all(np.isfinite(init)):
        raise ValueError(
            f"init is too large for {dtype}, the precision of X: it exceeds "
            f"{np.finfo(dtype).max:.3g}."
        )
    if len(init) != n_clusters:
        raise ValueError(f"init has {len(init)} rows, but n_clusters={n_clusters}.")
    return init
