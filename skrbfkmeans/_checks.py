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
from ._sklearn import SITE, check_sample_weight

MISSING = (
    "No distance can be taken to a row with missing values. Fill them in first, with "
    "an imputer of scikit-learn in a pipeline, or leave these rows out: "
    f"{SITE}/auto_examples/plot_missing_values.html"
)
INFINITE = (
    "No distance can be taken to a row with such an entry. Correct it, clip it or "
    "leave the row out; if it stands for a missing value, see "
    f"{SITE}/auto_examples/plot_missing_values.html"
)

# --- words -------------------------------------------------------------------


def shown(value, most=6):
    """A value as a message shows it: on one line, short, its numbers plain.

    Parameters
    ----------
    value : object
        What was given.
    most : int, default=6
        Most entries of an array, a list or a tuple.

    Returns
    -------
    text : str
    """
    if isinstance(value, np.ndarray):
        value = list(value[: most + 1]) if value.ndim else value[()]
    if isinstance(value, (np.number, np.bool_)):
        return str(value)
    if type(value) in (list, tuple):
        entries = [shown(entry, most) for entry in value[:most]]
        entries += ["..."] * (len(value) > most)
        text = ", ".join(entries)
        if isinstance(value, list):
            return f"[{text}]"
        return f"({text},)" if len(value) == 1 else f"({text})"
    text = " ".join(repr(value).split())
    return text if len(text) <= 200 else f"{text[:200]} ..."


class PlainMessagesMixin:
    """Has scikit-learn's messages about parameters show values as `shown` does."""

    def _validate_params(self):
        try:
            super()._validate_params()
        except ValueError as error:
            text = str(error)
            for value in self.get_params(deep=False).values():
                text = text.replace(f"Got {value!r} ", f"Got {shown(value)} ")
            raise type(error)(text) from None


# --- numbers -----------------------------------------------------------------


def check_alpha(alpha):
    """Alpha as a float, or a ValueError that names it."""
    if _is_bool(alpha) or not isinstance(alpha, Real) or not 1.0 <= alpha < np.inf:
        raise ValueError(f"alpha must be a finite number >= 1; got {shown(alpha)}.")
    return float(alpha)


def check_sigma(sigma, name="sigma"):
    """Sigma as a float, or a ValueError that names it."""
    if _is_bool(sigma) or not isinstance(sigma, Real) or not 0.0 <= sigma < np.inf:
        raise ValueError(f"{name} must be a finite number >= 0; got {shown(sigma)}.")
    return float(sigma)


def check_count(value, name):
    """A positive integer, or a ValueError that names it."""
    if _is_bool(value) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} must be an integer >= 1; got {shown(value)}.")
    return int(value)


def check_learning_rate(value):
    """The length of a step as a float, or a ValueError."""
    if _is_bool(value) or not isinstance(value, Real) or not 0.0 < value < 2.0:
        raise ValueError(f"learning_rate must be between 0 and 2; got {shown(value)}.")
    return float(value)


def check_temperatures(sigmas, name):
    """Temperatures as an array, or a ValueError that names them."""
    try:
        array = np.asarray(sigmas, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold numbers; got {shown(sigmas)}.") from error
    if array.ndim != 1 or array.size == 0:
        raise ValueError(
            f"{name} must be 1-D and not empty; its shape is {array.shape}."
        )
    if not np.all(np.isfinite(array)) or np.any(array < 0.0):
        raise ValueError(
            f"{name} must hold finite temperatures >= 0; got {shown(array)}."
        )
    return array


def check_falling_temperatures(sigmas):
    """Check an array that was given as the parameter `schedule`."""
    array = check_temperatures(sigmas, "The 'schedule' array")
    if np.any(np.diff(array) > 0.0):
        raise ValueError(
            "The 'schedule' array must not increase; to reheat, use "
            f"skrbfkmeans.schedules.Cyclic. Got {shown(array)} instead."
        )


def check_no_bools(estimator, names):
    """Check that no parameter that takes numbers is a bool."""
    for name in names:
        if _is_bool(value := getattr(estimator, name)):
            raise ValueError(
                f"The {name!r} parameter of {type(estimator).__name__} must not be a "
                f"bool. Got {shown(value)} instead."
            )


def check_nested_parameters(estimator, params, kinds):
    """Check that what has a parameter set, as in ``schedule__start``, has parameters.

    Parameters
    ----------
    estimator : estimator
        Whose parameters are to be set.
    params : dict
        As given to `set_params`.
    kinds : dict of str to sequence of classes
        By the name of a parameter, objects with parameters that it may be.

    Raises
    ------
    ValueError
        If the value of a parameter is no object with parameters of its own.
    """
    own = estimator.get_params(deep=False)
    for given in params:
        name, is_nested, _ = given.partition("__")
        value = params.get(name, own.get(name))
        has_parameters = hasattr(value, "set_params") and not isinstance(value, type)
        if not is_nested or name not in own or has_parameters:
            continue
        reason = f"{given} cannot be set: {name}={shown(value)} has no parameters."
        if name in kinds:
            nested = {
                key.removeprefix(f"{name}__"): value
                for key, value in params.items()
                if key.startswith(f"{name}__")
            }
            reason += f" {_advise_object(name, nested, kinds[name])}"
        raise ValueError(reason)


def _advise_object(name, nested, kinds):
    """Which of these kinds of objects have the parameters, in a sentence."""
    fitting = [k.__name__ for k in kinds if nested.keys() <= set(k().get_params())]
    if not fitting:
        names = ", ".join(kind.__name__ for kind in kinds)
        return f"No {name} object has them all; those there are: {names}."
    values = ", ".join(f"{key}={shown(value)}" for key, value in nested.items())
    others = f" {', '.join(fitting[1:])} would do, too." if fitting[1:] else ""
    return (
        f"Pass a {name} object that has, such as {name}={fitting[0]}({values}) "
        f"from {kinds[0].__module__}.{others}"
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
    try:
        if estimator is None:
            rows = check_array(X, input_name="X", **options)
        else:
            rows = validate_data(estimator, X, reset=reset, **options)
    except TypeError:
        if _has_objects_for_missing(X):  # which no float can stand for
            raise ValueError(f"Input X contains NaN.\n{MISSING}") from None
        raise
    rows = canonical(rows)
    return rows, check_finite(rows, "X")


def _has_objects_for_missing(X):
    """Whether an entry is None or pandas' NA."""
    return not sparse.issparse(X) and any(
        entry is None or type(entry).__name__ == "NAType"
        for entry in np.asarray(X, dtype=object).ravel()
    )


def check_finite(array, name):
    """Raise a ValueError that begins as scikit-learn's if an entry is not finite.

    Returns the sum of the squares, which tells most of the time, in one fast
    pass, that there is nothing to raise; infinite if it is too large. So it costs
    nothing to look even where scikit-learn is told to assume finite entries.
    """
    total = sum_of_squares(array)
    if not np.isfinite(total):
        with np.errstate(all="ignore"), checking_all():
            try:
                check_array(numbers(array), input_name=name, ensure_2d=False)
            except ValueError as error:
                reason = str(error).split("\n")[0]
                advice = MISSING if "NaN" in reason else INFINITE
                raise ValueError(f"{reason}\n{advice}") from None
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
            f"sample_weight must not be negative; its least entry is {weights.min()}."
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
        lines = str(error).split("\n")  # the others repeat the array
        reason = lines[0]
        if lines[-1].startswith("Reshape"):
            reason = f"{reason.rstrip(':')}. {lines[-1]}"
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
