"""What cannot be computed is refused clearly, early, and without a trace."""

# SPDX-License-Identifier: BSD-3-Clause

import copy
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from estimator_helpers import METHODS
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from skrbfkmeans import RBFKMeans
from skrbfkmeans.schedules import (
    Constant,
    Cosine,
    Cyclic,
    Geometric,
    Linear,
    Schedule,
)

X = np.random.default_rng(0).normal(size=(30, 3))
ONES = np.ones(30)


def with_entry(value, dtype=np.float64):
    """The rows with one bad entry."""
    rows = X.astype(dtype)
    rows[17, 1] = value
    return rows


def weights_with(value):
    """Weights with one bad entry."""
    weights = ONES.copy()
    weights[3] = value
    return weights


ROWS = {
    "NaN": (with_entry(np.nan), "X contains NaN"),
    "NaN in float32": (with_entry(np.nan, np.float32), "X contains NaN"),
    "infinity": (with_entry(np.inf), "X contains infinity"),
    "minus infinity": (with_entry(-np.inf), "X contains infinity"),
    "inf in float32": (with_entry(np.inf, np.float32), "X contains infinity"),
    "NaN in a frame": (pd.DataFrame(with_entry(np.nan)), "X contains NaN"),
    "missing": (
        pd.DataFrame(X, columns=list("abc")).convert_dtypes().mask(X > 2.0),
        "X contains NaN",
    ),
    "no rows": (X[:0], "0 sample"),
    "no columns": (X[:, :0], "0 feature"),
    "1-D": (X[:, 0], "Reshape your data"),
    "3-D": (X[:, :, np.newaxis], "dim 3"),
    "a number": (1.0, "scalar array"),
    "text": (np.full((30, 3), "a"), "numeric|convert"),
    "objects": (np.full((30, 3), "a", dtype=object), "convert"),
    "complex": (X + 1j, "Complex data"),
    "ragged": ([[1.0, 2.0], [3.0]], "inhomogeneous|sequence"),
}

WEIGHTS = {
    "negative": (weights_with(-1.0), "sample_weight"),
    "a little negative": (weights_with(-1e-300), "sample_weight"),
    "NaN": (weights_with(np.nan), "sample_weight"),
    "infinite": (weights_with(np.inf), "sample_weight"),
    "all zero": (0.0 * ONES, "(?i)weight.*zero"),
    "scalar zero": (0.0, "(?i)weight.*zero"),
    "a column": (ONES[:, np.newaxis], "(?i)sample.?weight"),
    "two columns": (np.ones((30, 2)), "(?i)sample.?weight"),
    "too short": (ONES[:-1], "sample_weight"),
    "too long": (np.ones(31), "sample_weight"),
    "none": ([], "sample_weight|0 sample"),
    "text": (["a"] * 30, "convert|sample_weight"),
}

PARAMETERS = {
    "n_clusters": [0, -1, 2.5, "3", True, None, np.nan, 31, np.int64(0)],
    "schedule": [
        "cold", -1.0, np.nan, np.inf, -np.inf, None, True,
        [], [1.0, 2.0], [1.0, np.nan], [np.inf, 1.0], [1.0, -1.0], [[1.0, 0.5]],
        ["a", "b"], np.array([]), np.array([0.5, 0.6]), np.array([[1.0]]),
        np.array(["warm"]), [1.0, None], [2.0, 1j],
        Constant(start=-1.0), Geometric(start=0.0), Geometric(start=1.0, stop=2.0),
        Geometric(start=np.nan), Geometric(start=np.inf), Linear(stop=-0.5),
        Linear(n_steps=0), Linear(n_steps=2.5), Cosine(n_iter=0), Cosine(unit="kelvin"),
        Cyclic(n_cycles=0), Cyclic(decay=0.0), Cyclic(decay=1.5), Cyclic(harden="no"),
        Schedule,
    ],
    "alpha": [0.999, 0.0, -1.0, np.nan, np.inf, "1.5", None, True, [1.5]],
    "learning_rate": [0, 2, 0.0, 2.0, -0.5, 2.5, np.nan, np.inf, "1", None, True],
    "init": [
        "k++", "kmeans++", "", None, 3, X[:4], X[:3, :2], X[0], X[:3, :, np.newaxis],
        with_entry(np.nan)[15:18], with_entry(np.inf)[15:18], [["a"] * 3] * 3,
        np.full((3, 3), "a"), X[:3] + 1j, np.zeros((0, 3)),
    ],
    "n_init": [0, -1, 2.5, "many", None, np.nan],
    "max_iter": [0, -1, 2.5, "300", None, True],
    "tol": [-1e-9, -1.0, np.nan, "0", None],
    "features": ["rbfs", "", None, 1, ["rbf"]],
    "proba_sigma": [-1.0, np.nan, "cold", None],
    "verbose": [-1, "yes", None],
    "random_state": [-1, 0.5, "seed", np.random.default_rng(0)],
}  # fmt: skip

CASES = [(name, value) for name, values in PARAMETERS.items() for value in values]


def label(value):
    """Short name of a parameter's value in the name of a test."""
    text = value if isinstance(value, str) else repr(value).partition(" at 0x")[0]
    return " ".join(text.split())[:40]


def fitted(**parameters):
    return RBFKMeans(**{"n_clusters": 3, "random_state": 0, **parameters}).fit(X)


def assert_as_before(model, before):
    """A failure has changed nothing that the model has learnt."""
    assert vars(model).keys() == vars(before).keys()
    for name, value in vars(before).items():
        if name.endswith("_"):
            if isinstance(value, dict):
                for key in value:
                    assert_array_equal(vars(model)[name][key], value[key])
            else:
                assert_array_equal(vars(model)[name], value)
    for method in METHODS:
        assert_array_equal(getattr(model, method)(X), getattr(before, method)(X))


def assert_unfitted(model):
    learnt = [name for name in vars(model) if name.endswith("_")]
    assert learnt == []
    with pytest.raises(NotFittedError):
        model.predict(X)


# --- rows ---------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "message"), ROWS.values(), ids=ROWS)
def test_bad_rows_are_refused_by_fit_which_leaves_no_trace(rows, message):
    model = RBFKMeans(3, random_state=0)
    for method in "fit", "fit_predict", "fit_transform":
        with pytest.raises((ValueError, TypeError), match=message):
            getattr(model, method)(rows)
        assert_unfitted(model)
    model = fitted()
    before = copy.deepcopy(model)
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(rows)
    assert_as_before(model, before)


@pytest.mark.parametrize(("rows", "message"), ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("features", ["distance", "rbf", "responsibility"])
def test_bad_rows_are_refused_by_every_method(rows, message, method, features):
    if isinstance(rows, pd.DataFrame):
        rows = rows.set_axis(range(3), axis=1)
    model = fitted(features=features)
    before = copy.deepcopy(model)
    with pytest.raises((ValueError, TypeError), match=message):
        getattr(model, method)(rows)
    assert_as_before(model, before)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n_features", [1, 2, 4])
def test_another_number_of_features_is_refused(method, n_features):
    with pytest.raises(ValueError, match=f"X has {n_features} features"):
        getattr(fitted(), method)(np.zeros((5, n_features)))


@pytest.mark.parametrize("n_rows", [1, 2, 4])
def test_fewer_rows_than_clusters_are_refused_with_both_numbers(n_rows):
    model = RBFKMeans(5)
    with pytest.raises(ValueError, match=f"n_samples={n_rows}.*n_clusters=5"):
        model.fit(X[:n_rows])
    assert_unfitted(model)


# --- weights ------------------------------------------------------------------


@pytest.mark.parametrize(("weights", "message"), WEIGHTS.values(), ids=WEIGHTS)
def test_bad_weights_are_refused_by_fit_which_leaves_no_trace(weights, message):
    model = RBFKMeans(3, random_state=0)
    for method in "fit", "fit_predict", "fit_transform":
        with pytest.raises((ValueError, TypeError), match=message):
            getattr(model, method)(X, sample_weight=weights)
        assert_unfitted(model)
    model = fitted()
    before = copy.deepcopy(model)
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(X, sample_weight=weights)
    assert_as_before(model, before)


@pytest.mark.parametrize(("weights", "message"), WEIGHTS.values(), ids=WEIGHTS)
def test_bad_weights_are_refused_by_score(weights, message):
    model = fitted()
    before = copy.deepcopy(model)
    with pytest.raises((ValueError, TypeError), match=message):
        model.score(X, sample_weight=weights)
    assert_as_before(model, before)


# --- parameters ---------------------------------------------------------------


@pytest.mark.parametrize(("name", "value"), CASES, ids=label)
def test_a_bad_parameter_is_refused_by_fit_and_named(name, value):
    model = RBFKMeans(**{"n_clusters": 3, name: value})
    message = "(?s)start|stop|n_|unit|decay|harden" if is_schedule(value) else name
    with pytest.raises((ValueError, TypeError), match=message) as raised:
        model.fit(X)
    assert "\n" not in str(raised.value).strip() or name == "random_state"
    assert_unfitted(model)
    assert getattr(model, name) is value


def is_schedule(value):
    return isinstance(value, Schedule)


@pytest.mark.parametrize(("name", "value"), CASES, ids=label)
def test_a_bad_parameter_leaves_a_fitted_model_as_it_was(name, value):
    model = fitted(schedule=0.7)
    before = copy.deepcopy(model)
    kept = getattr(model, name)
    model.set_params(**{name: value})
    with pytest.raises((ValueError, TypeError)):
        model.fit(X[::-1])
    model.set_params(**{name: kept})
    assert_as_before(model, before)


@pytest.mark.parametrize("n_clusters", [np.int64(3), np.int32(3), np.uint8(3)])
def test_any_whole_number_counts_clusters(n_clusters):
    assert fitted(n_clusters=n_clusters).cluster_centers_.shape == (3, 3)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("schedule", np.float32(0.5)),
        ("schedule", 0),
        ("schedule", np.array([1, 1, 0])),
        ("schedule", pd.Series([2.0, 1.0], index=[5, 3])),
        ("alpha", 1),
        ("alpha", np.float32(1.5)),
        ("alpha", 50.0),
        ("learning_rate", np.float64(1.9)),
        ("learning_rate", 1),
        ("tol", 0),
        ("tol", np.float32(0.1)),
        ("max_iter", np.int32(5)),
        ("proba_sigma", 0),
        ("verbose", False),
        ("random_state", np.int64(3)),
        ("random_state", None),
    ],
    ids=label,
)
def test_numbers_of_any_kind_are_fine_as_parameters(name, value):
    model = fitted(**{name: value})
    assert np.isfinite(model.cluster_centers_).all()
    assert np.isfinite(model.predict_proba(X)).all()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (X[:4], "init"),
        (X[:3, :2], "init"),
        (with_entry(np.nan)[15:18], "init"),
        (None, "init|Expected 2D"),
        ("text", "init|Expected 2D"),
    ],
)
def test_a_callable_start_is_checked_like_an_array(answer, message):
    model = RBFKMeans(3, init=lambda X, n_clusters, random_state: answer)
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(X)
    assert_unfitted(model)


@pytest.mark.parametrize(
    "answer",
    [[], [1.0, np.nan], [np.inf, 1.0], [1.0, -1.0], [[1.0]], ["a"], None],
    ids=label,
)
def test_temperatures_of_a_schedule_of_ones_own_are_checked(answer):
    class Own(Schedule):
        unit, harden = "spread", True

        def multiples(self):
            return answer

    model = RBFKMeans(3, schedule=Own())
    with pytest.raises((ValueError, TypeError), match=r"Own|multiples|schedule"):
        model.fit(X)
    assert_unfitted(model)


def test_the_failure_of_a_callable_start_comes_through_and_leaves_no_trace():
    def fail(X, n_clusters, random_state):
        raise KeyboardInterrupt

    model = fitted()
    before = copy.deepcopy(model)
    model.set_params(init=fail)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:, :2])
    model.set_params(init="k-means++")
    assert_as_before(model, before)


# --- unfitted -----------------------------------------------------------------


@pytest.mark.parametrize("features", ["distance", "rbf", "responsibility"])
def test_an_unfitted_model_says_so_in_every_method(features):
    model = RBFKMeans(3, features=features)
    for method in METHODS:
        with pytest.raises(NotFittedError, match="RBFKMeans instance is not fitted"):
            getattr(model, method)(X)
    with pytest.raises(NotFittedError):
        model.get_feature_names_out()
    with pytest.raises(NotFittedError):
        clone(fitted()).predict(X)
    assert_unfitted(model)


# --- size ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "big",
    [X * 1e160, X * 1e300, np.sign(X) * 1e307],
    ids=["1e160", "1e300", "close to the largest"],
)
def test_an_inertia_beyond_float64_is_refused_with_the_range(big):
    model = fitted()
    before = copy.deepcopy(model)
    with pytest.raises(ValueError, match=r"too large.*1\.8e\+308"):
        model.fit(big)
    assert_as_before(model, before)
    with pytest.raises(ValueError, match=r"too large.*1\.8e\+308"):
        model.score(big)
    with pytest.raises(ValueError, match=r"too large.*1\.8e\+308"):
        model.fit(X, sample_weight=1e308 * ONES)
    assert_as_before(model, before)


# --- before anything is compiled ----------------------------------------------

CODE = """
import sys
import numpy as np
from skrbfkmeans import RBFKMeans
X, w = np.random.default_rng(0).normal(size=(30, 3)), np.ones(30)
bad, model = X.copy(), RBFKMeans(3)
bad[3, 1] = np.nan
w[0] = -1.0
trials = [
    (dict(n_clusters=3), bad, None),
    (dict(n_clusters=3), X[:2], None),
    (dict(n_clusters=3), X[:, 0], None),
    (dict(n_clusters=3), X, w),
    (dict(n_clusters=3), X, 0 * w),
    (dict(n_clusters=3), X, w[:-1]),
    (dict(n_clusters=0), X, None),
    (dict(n_clusters=True), X, None),
    (dict(alpha=0.5), X, None),
    (dict(schedule=[1.0, 2.0]), X, None),
    (dict(schedule=-1.0), X, None),
    (dict(init=X[:2]), X, None),
    (dict(init=bad[2:5]), X, None),
    (dict(init="k++"), X, None),
    (dict(learning_rate=2), X, None),
]
for parameters, rows, weights in trials:
    try:
        RBFKMeans(**{"n_clusters": 3, **parameters}).fit(rows, sample_weight=weights)
    except (ValueError, TypeError):
        pass
    else:
        print("no error:", parameters)
    if "numba" in sys.modules:
        print("numba:", parameters)
for method in "predict", "score", "transform", "predict_proba":
    try:
        getattr(RBFKMeans(), method)(X)
    except ValueError:
        pass
print("numba" in sys.modules)
"""


def test_a_fit_that_fails_in_the_checks_has_not_loaded_the_compiler():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", CODE],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "False\n"


# --- with scikit-learn's checks turned off ------------------------------------


@pytest.mark.parametrize("kind", ["dense", "float32", "sparse"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("k", [1, 3])
def test_numbers_that_are_not_finite_are_named_even_when_taken_for_finite(kind, bad, k):
    X = np.random.default_rng(0).normal(size=(60, 20))
    X[7, 3] = bad
    X = {"dense": X, "float32": X.astype("f4"), "sparse": sparse.csr_matrix(X)}[kind]
    good = np.random.default_rng(1).normal(size=(60, 20))
    fitted = RBFKMeans(k, random_state=0).fit(good)
    word = "NaN" if np.isnan(bad) else "infinity"
    with config_context(assume_finite=True):
        for name in ("fit", "partial_fit"):
            with pytest.raises(ValueError, match=word):
                getattr(RBFKMeans(k, random_state=0), name)(X)
        for name in METHODS:
            with pytest.raises(ValueError, match=word):
                getattr(fitted, name)(X)
        for options in ({"init": "random"}, {"init": np.full((k, 20), bad)}):
            with pytest.raises(ValueError, match=word):
                RBFKMeans(k, **options).fit(X)
        with pytest.raises(ValueError, match=word):
            RBFKMeans(k, init=np.full((k, 20), bad)).fit(good)
        with pytest.raises(ValueError, match=word):
            RBFKMeans(k).fit(good, sample_weight=np.append(np.ones(59), abs(bad)))
