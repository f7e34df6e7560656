"""What error messages say: which parameter or array it is, in plain short words."""

# SPDX-License-Identifier: BSD-3-Clause

import re

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skrbfkmeans import RBFKMeans, energy
from skrbfkmeans._checks import shown
from skrbfkmeans._sklearn import SITE
from skrbfkmeans.schedules import Constant, Cyclic, Geometric, Linear, Schedule

X = np.random.default_rng(0).normal(size=(30, 3))
METHODS = [
    "fit", "fit_predict", "fit_transform", "partial_fit", "predict", "predict_proba",
    "transform", "score",
]  # fmt: skip


def message_of(call):
    with pytest.raises((ValueError, TypeError)) as raised:
        call()
    return str(raised.value)


# --- missing and infinite values ----------------------------------------------


def with_entry(value, dtype=np.float64):
    rows = X.astype(dtype)
    rows[17, 1] = value
    return rows


def frame_with(value, dtype):
    columns = {name: pd.Series(X[:, j]) for j, name in enumerate("abc")}
    columns["b"] = pd.Series([1, value] * 15, dtype=dtype)
    return pd.DataFrame(columns)


MISSING = {
    "dense": with_entry(np.nan),
    "float32": with_entry(np.nan, np.float32),
    "sparse": sparse.csr_matrix(with_entry(np.nan)),
    "CSC": sparse.csc_matrix(with_entry(np.nan, np.float32)),
    "list": with_entry(np.nan).tolist(),
    "list with None": with_entry(None, object).tolist(),
    "frame": pd.DataFrame(with_entry(np.nan), columns=list("abc")),
    "frame with NA in objects": frame_with(pd.NA, object),
    "frame with NA in integers": frame_with(pd.NA, "Int64"),
    "frame with NA in floats": frame_with(pd.NA, "Float32"),
    "frame with None": frame_with(None, object),
}
INFINITE = {
    "dense": with_entry(np.inf),
    "float32": with_entry(-np.inf, np.float32),
    "sparse": sparse.csr_matrix(with_entry(np.inf)),
    "frame": pd.DataFrame(with_entry(np.inf), columns=list("abc")),
}


def call(method, rows):
    """Call a method with rows, of a fitted model if need be."""
    model = RBFKMeans(3, random_state=0)
    if "fit" not in method:
        named = isinstance(rows, pd.DataFrame)
        model.fit(pd.DataFrame(X, columns=list("abc")) if named else X)
    return getattr(model, method)(rows)


@pytest.mark.compiled
@pytest.mark.parametrize("rows", MISSING.values(), ids=MISSING)
@pytest.mark.parametrize("method", METHODS)
def test_a_missing_value_is_told_with_the_page_that_helps(method, rows):
    message = message_of(lambda: call(method, rows))
    assert message.startswith("Input X contains NaN.\n")
    assert f"{SITE}/auto_examples/plot_missing_values.html" in message
    assert "HistGradientBoosting" not in message


@pytest.mark.compiled
@pytest.mark.parametrize("rows", INFINITE.values(), ids=INFINITE)
@pytest.mark.parametrize("method", METHODS)
def test_an_infinite_value_is_told_with_what_to_do(method, rows):
    message = message_of(lambda: call(method, rows))
    assert message.startswith("Input X contains infinity or a value too large for ")
    assert "clip" in message


def test_functions_tell_the_same_of_missing_values():
    rows = with_entry(np.nan)
    for function in (
        lambda: energy.responsibilities(rows, X[:3], 1.0),
        lambda: energy.hardening_sigma(rows, X[:3]),
    ):
        message = message_of(function)
        assert message.startswith("Input X contains NaN.\n")
        assert "plot_missing_values" in message


@pytest.mark.compiled
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_finite_rows_are_not_taken_on_trust(method, value):
    with config_context(assume_finite=True):
        message = message_of(lambda: call(method, with_entry(value)))
        assert message.startswith("Input X contains ")
        message = message_of(lambda: RBFKMeans(3, init=with_entry(value)[15:18]).fit(X))
        assert message.startswith("Input init contains ")
        weights = np.where(np.arange(30) == 7, value, 1.0)
        message = message_of(lambda: RBFKMeans(3).fit(X, sample_weight=weights))
        assert message.startswith("Input sample_weight contains ")


def test_other_entries_that_are_no_numbers_are_told_as_ever():
    with pytest.raises(TypeError, match="dict"):
        RBFKMeans(1).fit([[{}, 1.0]])


# --- parameters of a schedule -------------------------------------------------

NO_OBJECTS = {
    "auto": "auto",
    "float": 2.5,
    "NumPy float": np.float64(2.5),
    "array": np.geomspace(4.0, 1.0, 100),
    "list": [4.0, 2.0],
    "class": Geometric,
}


@pytest.mark.parametrize("schedule", NO_OBJECTS.values(), ids=NO_OBJECTS)
def test_a_schedule_without_parameters_is_told_with_one_that_has(schedule):
    model = RBFKMeans(alpha=2.0, schedule=schedule)
    with pytest.raises(ValueError) as raised:
        model.set_params(alpha=1.0, schedule__start=np.float64(3.0))
    message = str(raised.value)
    assert "schedule__start" in message
    assert f"schedule={shown(schedule)} has no parameters" in message
    assert "schedule=Geometric(start=3.0)" in message
    for other in "Constant", "Cosine", "Cyclic", "Linear":
        assert other in message
    assert len(message) < 400
    assert model.alpha == 2.0  # nothing is set


def test_the_schedule_that_is_advised_has_all_the_parameters():
    model = RBFKMeans()
    message = message_of(lambda: model.set_params(schedule__decay=0.5))
    assert "schedule=Cyclic(decay=0.5)" in message
    assert "Geometric" not in message
    values = {"schedule__start": 2, "schedule__n_cycles": 3}
    message = message_of(lambda: model.set_params(**values))
    assert "schedule=Cyclic(start=2, n_cycles=3)" in message
    message = message_of(lambda: model.set_params(schedule__stop=0.5))
    assert "Constant" not in message
    message = message_of(lambda: model.set_params(schedule__speed=3))
    assert re.search("No schedule object.*Geometric.*Cyclic", message)


def test_a_pipeline_or_a_search_tells_the_same():
    pipeline = make_pipeline(RBFKMeans(2))
    for function in (
        lambda: pipeline.set_params(rbfkmeans__schedule__start=3),
        lambda: GridSearchCV(RBFKMeans(2), {"schedule__start": [3]}).fit(X),
        lambda: GridSearchCV(pipeline, {"rbfkmeans__schedule__start": [3]}).fit(X),
    ):
        assert "schedule=Geometric(start=3)" in message_of(function)


def test_the_parameters_of_a_schedule_object_can_be_set():
    model = RBFKMeans(schedule=Geometric())
    assert model.set_params(schedule__start=3.0) is model
    assert model.schedule.start == 3.0
    model = RBFKMeans().set_params(schedule=Linear(), schedule__n_steps=5)
    assert model.schedule.n_steps == 5
    model = RBFKMeans().set_params(schedule__start=2.0, schedule=Constant())
    assert model.schedule.start == 2.0

    class Own(Schedule):
        unit, harden = "spread", True

        def __init__(self, speed=1.0):
            self.speed = speed

    assert RBFKMeans(schedule=Own()).set_params(schedule__speed=4).schedule.speed == 4


def test_other_parameters_have_none_of_their_own():
    for name in "init", "n_clusters", "random_state":
        given = {f"{name}__start": 3}
        message = message_of(lambda given=given: RBFKMeans().set_params(**given))
        assert f"{name}__start cannot be set" in message
    message = message_of(lambda: RBFKMeans().set_params(algorithm="elkan"))
    assert "Invalid parameter 'algorithm'" in message
    message = message_of(lambda: RBFKMeans().set_params(cooling__start=1))
    assert "Invalid parameter 'cooling'" in message


# --- numbers and arrays in messages -------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.float64(-0.99), "-0.99"),
        (np.float32(0.1), "0.1"),
        (np.int64(3), "3"),
        (np.True_, "True"),
        (np.float64(np.nan), "nan"),
        (np.array(2.5), "2.5"),
        (np.array([1.0, -1.0]), "[1.0, -1.0]"),
        (np.eye(2, dtype=int), "[[1, 0], [0, 1]]"),
        ([np.float64(1.0), None], "[1.0, None]"),
        ((np.float64(1.0),), "(1.0,)"),
        ([], "[]"),
        (list(range(9)), "[0, 1, 2, 3, 4, 5, ...]"),
        (np.arange(10**6), "[0, 1, 2, 3, 4, 5, ...]"),
        ("auto", "'auto'"),
        (None, "None"),
        (True, "True"),
        (pd.Series([1, 2], name="s"), "0 1 1 2 Name: s, dtype: int64"),
        ("a" * 1000, "'" + "a" * 199 + " ..."),
    ],
    ids=str,
)
def test_values_are_shown_plain_and_short(value, text):
    assert shown(value) == text


BAD = np.float64(-0.99)
LONG = -np.arange(1.0, 1000.0)
CALLS = {
    "weights": lambda: RBFKMeans(2).fit(X, sample_weight=np.full(30, BAD)),
    "tol": lambda: RBFKMeans(2, tol=BAD).fit(X),
    "alpha": lambda: RBFKMeans(2, alpha=BAD).fit(X),
    "alpha, long": lambda: RBFKMeans(2, alpha=LONG).fit(X),
    "alpha, a list": lambda: RBFKMeans(2, alpha=[BAD] * 1000).fit(X),
    "n_clusters": lambda: RBFKMeans(np.float64(2.0)).fit(X),
    "n_clusters, bool": lambda: RBFKMeans(np.True_).fit(X),
    "schedule": lambda: RBFKMeans(2, schedule=BAD).fit(X),
    "schedule, a list": lambda: RBFKMeans(2, schedule=[BAD]).fit(X),
    "schedule, long": lambda: RBFKMeans(2, schedule=LONG).fit(X),
    "schedule, rising": lambda: RBFKMeans(2, schedule=LONG[::-1] + 1000).fit(X),
    "schedule, series": lambda: RBFKMeans(2, schedule=pd.Series(LONG)).fit(X),
    "schedule, text": lambda: RBFKMeans(2, schedule=["a"] * 1000).fit(X),
    "start": lambda: Geometric(start=BAD).sigmas(),
    "stop": lambda: Cyclic(np.float64(1.0), np.float32(2.0)).sigmas(),
    "init": lambda: RBFKMeans(2, init=LONG).fit(X),
    "sigma": lambda: energy.responsibilities(X, X[:2], BAD),
    "alpha of a function": lambda: energy.responsibilities(X, X[:2], 1.0, alpha=BAD),
    "count": lambda: energy.critical_sigma(X, np.float64(2.0)),
}


@pytest.mark.parametrize("function", CALLS.values(), ids=CALLS)
def test_no_message_shows_how_numpy_writes_numbers_or_long_arrays(function):
    message = message_of(function)
    assert "np." not in message
    assert "array(" not in message
    assert len(message) < 300


@pytest.mark.compiled
def test_a_bad_proba_sigma_is_shown_plainly():
    model = RBFKMeans(2, random_state=0).fit(X).set_params(proba_sigma=BAD)
    message = message_of(lambda: model.predict_proba(X))
    assert message == "proba_sigma must be a finite number >= 0; got -0.99."


def test_a_flat_start_is_told_how_to_reshape():
    for init in [1, 2, 3], np.array([1.0, 2.0, 3.0]), np.arange(1000.0):
        message = message_of(lambda init=init: RBFKMeans(3, init=init).fit(X[:, :1]))
        assert "init" in message
        assert "Expected 2D array, got 1D array instead." in message
        assert "array.reshape(-1, 1)" in message
        assert "\n" not in message


def test_a_parameter_of_kmeans_that_is_not_ours_is_named():
    for name in "algorithm", "copy_x", "n_jobs":
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
            RBFKMeans(**{name: True})
