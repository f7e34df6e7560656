"""The estimator as scikit-learn users meet it."""

# SPDX-License-Identifier: BSD-3-Clause

import copy
import pickle
import pickletools
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from skrbfkmeans import RBFKMeans
from skrbfkmeans.schedules import Constant, Cosine, Cyclic, Geometric, Linear

METHODS = ["predict", "predict_proba", "transform", "score"]
FEATURES = ["distance", "rbf", "responsibility"]
STEPS_HISTORY = {
    "sigma", "free_energy", "inertia", "shift", "soft_fraction", "support",
}  # fmt: skip


def make_blobs(n=90, k=3, d=2, spread=1.0, seed=0):
    """Rows around k centres, and the centre of each."""
    rng = np.random.default_rng(seed)
    truth = np.arange(n) % k
    return rng.normal(scale=8.0, size=(k, d))[truth] + spread * rng.normal(
        size=(n, d)
    ), truth


X, TRUTH = make_blobs()
WIDE, _ = make_blobs(n=120, k=5, d=17, spread=4.0)
WEIGHTS = np.random.default_rng(1).uniform(0.0, 3.0, len(X)).round(1)
INIT = X[:3] + 0.5


def state(model):
    """Everything `fit` has learnt, as one flat dictionary."""
    fitted = {
        name: value
        for name, value in vars(model).items()
        if name.endswith("_") and name != "history_"
    }
    return {**fitted, **{f"history_{k}": v for k, v in model.history_.items()}}


def assert_same_state(model, other):
    ours, theirs = state(model), state(other)
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert_array_equal(ours[name], theirs[name], err_msg=name)
        assert np.asarray(ours[name]).dtype == np.asarray(theirs[name]).dtype


# --- in the place of KMeans ---------------------------------------------------


def test_takes_the_place_of_kmeans_with_the_same_result_on_clear_clusters():
    ours = RBFKMeans(3, random_state=0).fit(X)
    theirs = KMeans(3, random_state=0, n_init=5).fit(X)
    assert adjusted_rand_score(ours.labels_, theirs.labels_) == 1.0
    assert_allclose(ours.inertia_, theirs.inertia_, rtol=1e-9)
    order, other = (np.argsort(m.cluster_centers_[:, 0]) for m in (ours, theirs))
    assert_allclose(ours.cluster_centers_[order], theirs.cluster_centers_[other])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_output_has_the_shape_and_dtype_that_kmeans_gives(dtype):
    data = X.astype(dtype)
    ours, theirs = (
        kind(3, random_state=0, n_init=1).fit(data) for kind in (RBFKMeans, KMeans)
    )
    for name in "cluster_centers_", "labels_":
        mine, other = getattr(ours, name), getattr(theirs, name)
        assert mine.shape == other.shape
        assert mine.dtype == other.dtype
    for name in "predict", "transform", "fit_predict", "fit_transform":
        mine, other = getattr(ours, name)(data), getattr(theirs, name)(data)
        assert mine.shape == other.shape
        assert mine.dtype == other.dtype
    for name in "inertia_", "sigma_":
        assert type(getattr(ours, name)) is float
    assert type(ours.score(data)) is float
    assert type(ours.n_iter_) is int
    assert type(ours.hardened_) is bool


def test_a_given_start_at_zero_temperature_gives_the_fixed_point_of_lloyd():
    ours = RBFKMeans(3, init=INIT, schedule=0.0).fit(X)
    theirs = KMeans(3, init=INIT, n_init=1, tol=0.0).fit(X)
    assert_allclose(ours.cluster_centers_, theirs.cluster_centers_)
    assert_array_equal(ours.labels_, theirs.labels_)


@pytest.mark.parametrize("data", [X, WIDE], ids=["few features", "many features"])
@pytest.mark.parametrize("alpha", [1.0, 1.2, 1.5, 2.0, 3.0])
def test_a_hardened_model_is_an_exact_fixed_point_of_kmeans(data, alpha):
    model = RBFKMeans(5, alpha=alpha, random_state=2).fit(data)
    assert model.hardened_
    d2 = ((data[:, np.newaxis] - model.cluster_centers_) ** 2).sum(axis=2)
    assert_array_equal(model.labels_, d2.argmin(axis=1))
    for j in range(5):
        own = data[model.labels_ == j]
        assert_allclose(model.cluster_centers_[j], own.mean(axis=0), rtol=1e-13)


# --- methods ------------------------------------------------------------------


@pytest.mark.parametrize("features", FEATURES)
def test_fit_predict_and_fit_transform_equal_two_calls(features):
    model = RBFKMeans(4, features=features, random_state=0).fit(X, None, WEIGHTS)
    again = clone(model)
    assert_array_equal(again.fit_predict(X, None, WEIGHTS), model.predict(X))
    assert_same_state(again, model)
    again = clone(model)
    assert_array_equal(
        again.fit_transform(X, sample_weight=WEIGHTS), model.transform(X)
    )
    assert_same_state(again, model)


@pytest.mark.parametrize("data", [X, WIDE], ids=["few features", "many features"])
def test_transform_gives_what_features_says(data):
    model = RBFKMeans(4, random_state=0).fit(data)
    d = np.sqrt(((data[:, np.newaxis] - model.cluster_centers_) ** 2).sum(axis=2))
    assert_allclose(model.transform(data), d)
    model.set_params(features="rbf", proba_sigma=3.0)
    assert_allclose(model.transform(data), np.exp(-(d**2) / 18.0))
    model.set_params(features="responsibility")
    assert_array_equal(model.transform(data), model.predict_proba(data))


def test_responsibilities_are_the_closed_form_of_two_centres():
    model = RBFKMeans(2, init=[[0.0], [4.0]], schedule=0.0).fit([[0.0], [4.0]])
    model.set_params(proba_sigma=2.0)
    p = model.predict_proba([[0.0], [1.0], [1.5], [2.0]])[:, 1]
    assert_allclose(p, [0.0, 0.1693, 0.3260, 0.5], atol=5e-5)
    assert p[0] == 0.0
    model.set_params(alpha=1.0)
    assert_allclose(model.predict_proba([[1.0]])[0, 1], 0.2689, atol=5e-5)


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("n_clusters", [1, 3])
def test_output_features_are_named_after_the_class(features, n_clusters):
    model = RBFKMeans(n_clusters, features=features, random_state=0).fit(X)
    names = [f"rbfkmeans{j}" for j in range(n_clusters)]
    assert model.get_feature_names_out().tolist() == names


def test_set_output_gives_a_frame_with_the_index_of_the_rows():
    frame = pd.DataFrame(X, columns=["a", "b"], index=np.arange(len(X))[::-1] + 7)
    pipeline = make_pipeline(StandardScaler(), RBFKMeans(3, random_state=0))
    out = pipeline.set_output(transform="pandas").fit_transform(frame)
    assert out.columns.tolist() == ["rbfkmeans0", "rbfkmeans1", "rbfkmeans2"]
    assert out.index.equals(frame.index)
    assert_array_equal(out.to_numpy(), pipeline.transform(frame).to_numpy())
    model = RBFKMeans(3, random_state=0).set_output(transform="pandas")
    assert isinstance(model.fit_transform(frame), pd.DataFrame)
    assert isinstance(model.predict_proba(frame), np.ndarray)


def test_works_as_one_transformer_of_several():
    frame = pd.DataFrame(np.c_[X, TRUTH], columns=["a", "b", "c"])
    columns = ColumnTransformer(
        [
            ("soft", RBFKMeans(3, features="rbf", random_state=0), ["a", "b"]),
            ("same", "passthrough", ["c"]),
        ]
    ).set_output(transform="pandas")
    out = columns.fit_transform(frame)
    names = ["soft__rbfkmeans0", "soft__rbfkmeans1", "soft__rbfkmeans2", "same__c"]
    assert out.columns.tolist() == names
    alone = RBFKMeans(3, features="rbf", random_state=0).fit_transform(X)
    assert_allclose(out.to_numpy()[:, :3], alone)


@pytest.mark.parametrize("features", FEATURES)
def test_serves_as_a_feature_map_for_a_classifier(features):
    pipeline = make_pipeline(
        RBFKMeans(6, features=features, random_state=0), LogisticRegression()
    )
    assert cross_val_score(pipeline, X, TRUTH, cv=3).min() > 0.8


@pytest.mark.parametrize("kind", [np.asarray, pd.DataFrame])
def test_internal_calls_never_warn_about_feature_names(kind):
    model = RBFKMeans(3, random_state=0)
    data = kind(X)
    if kind is pd.DataFrame:
        data.columns = ["a", "b"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit_predict(data)
        model.fit_transform(data)
        for method in METHODS:
            getattr(model, method)(data)
    assert hasattr(model, "feature_names_in_") == (kind is pd.DataFrame)
    assert model.n_features_in_ == 2


def test_a_frame_with_other_columns_is_refused_and_an_array_warned_about():
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = RBFKMeans(3, random_state=0).fit(frame)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[["b", "a"]])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(X)


def test_y_is_ignored_everywhere():
    model = RBFKMeans(3, random_state=0).fit(X)
    y = np.array(["no", "numbers"] * (len(X) // 2))
    assert_same_state(RBFKMeans(3, random_state=0).fit(X, y), model)
    assert_array_equal(clone(model).fit_predict(X, y), model.labels_)
    assert_array_equal(clone(model).fit_transform(X, y), model.transform(X))
    assert model.score(X, y) == model.score(X)


# --- sample_weight ------------------------------------------------------------

MODELS = [
    {},
    {"schedule": 0.0},
    {"schedule": 2.0},
    {"schedule": [3.0, 1.0]},
    {"alpha": 1.0},
    {"alpha": 2.0, "schedule": Linear(harden=False)},
    {"schedule": Constant(unit="critical", start=0.4)},
    {"learning_rate": 0.6},
]


@pytest.mark.parametrize("parameters", MODELS)
def test_a_weight_of_two_is_the_same_as_the_row_twice(parameters):
    weights = np.random.default_rng(0).integers(1, 4, len(X))
    model = RBFKMeans(3, init=INIT, **parameters)
    weighted = clone(model).fit(X, sample_weight=weights)
    repeated = clone(model).fit(np.repeat(X, weights, axis=0))
    assert_allclose(weighted.cluster_centers_, repeated.cluster_centers_, rtol=1e-9)
    assert_allclose(weighted.inertia_, repeated.inertia_, rtol=1e-9)
    assert_allclose(weighted.sigma_, repeated.sigma_, rtol=1e-9)
    assert weighted.n_iter_ == repeated.n_iter_
    for name in STEPS_HISTORY:
        assert_allclose(
            weighted.history_[name], repeated.history_[name], rtol=1e-7, atol=1e-9
        )


@pytest.mark.parametrize("parameters", MODELS)
@pytest.mark.parametrize("n_zero", [1, 30])
def test_a_row_of_zero_weight_is_as_if_absent(parameters, n_zero):
    weights = np.ones(len(X))
    weights[-n_zero:] = 0.0
    data = X.copy()
    data[-1] = 1e6
    model = RBFKMeans(3, init=INIT, **parameters)
    with_zeros = clone(model).fit(data, sample_weight=weights)
    without = clone(model).fit(data[:-n_zero])
    assert_allclose(with_zeros.cluster_centers_, without.cluster_centers_, rtol=1e-9)
    assert_allclose(with_zeros.inertia_, without.inertia_, rtol=1e-9)
    assert_allclose(with_zeros.sigma_, without.sigma_, rtol=1e-9)
    assert with_zeros.n_iter_ == without.n_iter_
    assert_array_equal(with_zeros.labels_, with_zeros.predict(data))


@pytest.mark.parametrize("init", ["k-means++", "random"])
def test_no_start_is_a_row_of_zero_weight(init):
    weights = np.ones(len(X))
    weights[::2] = 0.0
    data = X.copy()
    data[::2] += 1e4
    for seed in range(10):
        model = RBFKMeans(3, init=init, n_init=1, max_iter=1, random_state=seed)
        model.fit(data, sample_weight=weights)
        assert np.abs(model.cluster_centers_).max() < 100.0


def test_score_is_the_weighted_sum_of_squares_at_zero_temperature():
    model = RBFKMeans(3, schedule=2.0, random_state=0).fit(X)
    assert not model.hardened_
    d2 = ((X[:, np.newaxis] - model.cluster_centers_) ** 2).sum(axis=2).min(axis=1)
    assert_allclose(model.score(X), -d2.sum())
    assert_allclose(model.score(X, None, WEIGHTS), -(WEIGHTS @ d2))
    model.set_params(proba_sigma=9.0, alpha=1.0)
    assert_allclose(model.score(X), -d2.sum())


@pytest.mark.parametrize(
    "weights",
    [
        WEIGHTS.tolist(),
        pd.Series(WEIGHTS, index=np.random.default_rng(0).permutation(len(X))),
        np.repeat(WEIGHTS, 2)[::2],
        WEIGHTS.astype(">f8"),
    ],
    ids=["list", "series with a shuffled index", "strided", "big-endian"],
)
def test_weights_of_any_kind_count_by_position(weights):
    model = RBFKMeans(3, random_state=0).fit(X, sample_weight=WEIGHTS)
    other = RBFKMeans(3, random_state=0).fit(X, sample_weight=weights)
    assert_same_state(model, other)
    assert model.score(X, sample_weight=weights) == -model.inertia_


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, bool, np.float32])
@pytest.mark.parametrize("x_dtype", [np.float32, np.float64])
def test_weights_of_any_number_type_equal_float_weights(dtype, x_dtype):
    weights = WEIGHTS.astype(dtype)
    data = X.astype(x_dtype)
    model = RBFKMeans(3, random_state=0).fit(data, sample_weight=weights)
    other = RBFKMeans(3, random_state=0).fit(data, None, weights.astype(float))
    assert_same_state(model, other)


def test_a_scalar_weight_is_the_weight_of_every_row():
    model = RBFKMeans(3, random_state=0).fit(X, sample_weight=2.0)
    other = RBFKMeans(3, random_state=0).fit(X, sample_weight=np.full(len(X), 2.0))
    assert_same_state(model, other)


def test_pipelines_and_searches_pass_weights_on_by_metadata_routing():
    with config_context(enable_metadata_routing=True):
        model = (
            RBFKMeans(3, random_state=0)
            .set_fit_request(sample_weight=True)
            .set_score_request(sample_weight=True)
        )
        pipeline = make_pipeline(
            StandardScaler().set_fit_request(sample_weight=True), model
        )
        pipeline.fit(X, sample_weight=WEIGHTS)
        scaled = StandardScaler().fit(X, sample_weight=WEIGHTS).transform(X)
        alone = RBFKMeans(3, random_state=0).fit(scaled, sample_weight=WEIGHTS)
        assert_same_state(pipeline[-1], alone)
        assert pipeline.score(X, sample_weight=WEIGHTS) == -alone.inertia_

        grid = {"n_clusters": [2, 3]}
        search = GridSearchCV(model, grid, cv=2).fit(scaled, sample_weight=WEIGHTS)
        unweighted = GridSearchCV(model, grid, cv=2).fit(scaled)
        assert_same_state(search.best_estimator_, alone)
        ours, theirs = (s.cv_results_["mean_test_score"] for s in (search, unweighted))
        assert not np.allclose(ours, theirs, rtol=1e-3)


def test_only_methods_that_use_weights_take_them():
    requests = RBFKMeans().get_metadata_routing()
    for method in "predict", "predict_proba", "transform":
        assert "sample_weight" not in getattr(requests, method).requests
    for method in "fit", "score":
        assert "sample_weight" in getattr(requests, method).requests


# --- dtypes -------------------------------------------------------------------


@pytest.mark.parametrize("data", [X, WIDE], ids=["few features", "many features"])
@pytest.mark.parametrize("fitted", [np.float32, np.float64])
@pytest.mark.parametrize("asked", [np.float32, np.float64])
@pytest.mark.parametrize("features", FEATURES)
def test_either_width_of_float_is_answered_whatever_was_fitted(
    data, fitted, asked, features
):
    model = RBFKMeans(3, features=features, random_state=0).fit(data.astype(fitted))
    reference = RBFKMeans(3, features=features, random_state=0).fit(data)
    assert model.cluster_centers_.dtype == fitted
    rows = data.astype(asked)
    assert model.transform(rows).dtype == asked
    assert model.predict_proba(rows).dtype == asked
    assert model.predict(rows).dtype == np.int32
    assert_array_equal(model.predict(rows), reference.labels_)
    assert_allclose(model.transform(rows), reference.transform(data), atol=2e-4)
    assert_allclose(model.predict_proba(rows), reference.predict_proba(data), atol=1e-4)
    assert_allclose(model.score(rows), reference.score(data), rtol=1e-5)


@pytest.mark.parametrize(
    "convert",
    [
        np.asfortranarray,
        lambda a: np.repeat(a, 2, axis=0)[::2],
        lambda a: a[:, ::-1].copy()[:, ::-1],
        lambda a: a.astype(">f8"),
        lambda a: a.tolist(),
        pd.DataFrame,
        lambda a: pd.DataFrame(a).convert_dtypes(),
    ],
    ids=["fortran", "strided", "reversed", "big-endian", "list", "frame", "nullable"],
)
def test_any_layout_of_the_same_numbers_gives_the_same_model(convert):
    data = convert(X)
    model = RBFKMeans(3, random_state=0).fit(data, sample_weight=WEIGHTS)
    reference = RBFKMeans(3, random_state=0).fit(X, sample_weight=WEIGHTS)
    assert_same_state(model, reference)
    for method in METHODS:
        assert_array_equal(getattr(model, method)(data), getattr(model, method)(X))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, bool, np.float16])
def test_whole_numbers_and_half_floats_equal_the_same_floats(dtype):
    data = (np.abs(X) * 4 if dtype is not bool else X > 2.0).astype(dtype)
    model = RBFKMeans(3, random_state=0).fit(data)
    reference = RBFKMeans(3, random_state=0).fit(data.astype(float))
    assert_array_equal(model.labels_, reference.labels_)
    assert_allclose(model.cluster_centers_, reference.cluster_centers_, rtol=1e-5)
    assert_array_equal(model.predict(data), model.labels_)


# --- init and n_init ----------------------------------------------------------


@pytest.mark.parametrize(
    "convert",
    [
        lambda a: a.tolist(),
        pd.DataFrame,
        np.asfortranarray,
        lambda a: lambda X, n_clusters, random_state: a,
        lambda a: lambda X, n_clusters, random_state: a.tolist(),
    ],
    ids=["list", "frame", "fortran", "callable", "callable list"],
)
def test_a_start_of_any_kind_equals_the_array(convert):
    model = RBFKMeans(3, init=convert(INIT), random_state=0).fit(X)
    assert_same_state(model, RBFKMeans(3, init=INIT, random_state=0).fit(X))


@pytest.mark.parametrize("schedule", ["auto", 0.0, 1.0])
def test_the_array_given_as_start_is_never_written(schedule):
    init = INIT.copy()
    init.setflags(write=False)
    model = RBFKMeans(3, init=init, schedule=schedule).fit(X)
    assert_array_equal(init, INIT)
    assert model.init is init
    assert not np.shares_memory(init, model.cluster_centers_)


def test_a_start_that_is_settled_stays_to_the_last_bit():
    model = RBFKMeans(3, random_state=0).fit(X)
    again = RBFKMeans(3, init=model.cluster_centers_, schedule=0.0).fit(X)
    assert_allclose(again.cluster_centers_, model.cluster_centers_, rtol=1e-14)
    assert_array_equal(again.labels_, model.labels_)
    assert again.n_iter_ <= 2


def test_a_callable_start_is_called_with_the_rows_once_a_run():
    calls = []

    def init(rows, n_clusters, random_state):
        calls.append((rows, n_clusters, random_state))
        return rows[random_state.permutation(len(rows))[:n_clusters]]

    RBFKMeans(3, init=init, n_init=4, random_state=0).fit(X)
    assert len(calls) == 4
    for rows, n_clusters, random_state in calls:
        assert_array_equal(rows, X)
        assert n_clusters == 3
        assert isinstance(random_state, np.random.RandomState)


def count_runs(model, capfd):
    """Number of runs of one fit, told by what it prints."""
    capfd.readouterr()
    clone(model).set_params(verbose=1).fit(X)
    out, err = capfd.readouterr()
    assert err == ""
    return out.count("start ")


def draw(rows, n_clusters, random_state):
    return rows[random_state.permutation(len(rows))[:n_clusters]]


@pytest.mark.parametrize(
    ("init", "n_init", "n_runs"),
    [
        ("k-means++", "auto", 1),
        ("k-means++", 3, 3),
        ("random", "auto", 10),
        ("random", 2, 2),
        (draw, "auto", 10),
        (draw, 2, 2),
        (INIT, "auto", 1),
        (INIT, 1, 1),
    ],
)
def test_n_init_is_the_number_of_runs(init, n_init, n_runs, capfd):
    model = RBFKMeans(3, init=init, n_init=n_init, refine=None, random_state=0)
    assert count_runs(model, capfd) == n_runs


def test_an_array_start_with_many_runs_is_run_once_with_one_warning(capfd):
    model = RBFKMeans(3, init=INIT, n_init=10)
    with pytest.warns(RuntimeWarning, match="n_init=10") as record:
        assert count_runs(model, capfd) == 1
    assert [w.filename for w in record] == [__file__]


@pytest.mark.parametrize("schedule", [0.0, Geometric(unit="absolute"), 1.0])
def test_the_best_of_several_runs_is_kept(schedule):
    data, _ = make_blobs(n=200, k=12, spread=0.5)
    model = RBFKMeans(12, init="random", schedule=schedule, refine=None)
    random_state = np.random.RandomState(3)
    single = [
        clone(model).set_params(n_init=1, random_state=random_state).fit(data)
        for _ in range(6)
    ]
    best = clone(model).set_params(n_init=6, random_state=3).fit(data)
    scores = [m.history_["free_energy"][-1] for m in single]
    assert np.ptp(scores) > 1.0
    assert_same_state(best, single[int(np.argmin(scores))])


# --- max_iter, tol, learning_rate ---------------------------------------------


@pytest.mark.parametrize("schedule", ["auto", 0.0, 1.5, Cyclic(), [3.0, 2.0, 1.0]])
@pytest.mark.parametrize("max_iter", [1, 2, 3])
def test_max_iter_bounds_all_iterations_of_a_run(schedule, max_iter):
    model = RBFKMeans(8, schedule=schedule, max_iter=max_iter, random_state=0)
    model.fit(X)
    assert model.n_iter_ == max_iter
    assert not model.hardened_
    for values in model.history_.values():
        assert len(values) == max_iter


@pytest.mark.parametrize("factor", [1000.0, 1e-3, 2.0**40])
@pytest.mark.parametrize("schedule", ["auto", Constant(0.8), Cosine(harden=False)])
def test_the_unit_of_the_data_changes_neither_labels_nor_iterations(schedule, factor):
    model = RBFKMeans(4, schedule=schedule, random_state=0)
    here, there = clone(model).fit(X), clone(model).fit(X * factor)
    assert here.n_iter_ == there.n_iter_
    assert_array_equal(here.labels_, there.labels_)
    assert_allclose(here.cluster_centers_ * factor, there.cluster_centers_)
    assert_allclose(here.sigma_ * factor, there.sigma_)


def test_a_smaller_tol_needs_more_iterations_and_settles_more():
    models = [
        RBFKMeans(4, schedule=3.0, tol=tol, refine=None, random_state=0).fit(X)
        for tol in (1e-1, 1e-4, 1e-8, 0.0)
    ]
    n_iter = [model.n_iter_ for model in models]
    assert n_iter == sorted(n_iter)
    assert n_iter[0] < n_iter[2]
    variance = X.var(axis=0).mean()
    for model, tol in zip(models[:3], (1e-1, 1e-4, 1e-8), strict=True):
        squared = model.history_["shift"] ** 2
        assert squared[-1] <= tol * variance
        assert (squared[:-1] > tol * variance).all()


@pytest.mark.parametrize("tol", [0.0, 1e-100])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_a_hardening_run_ends_by_itself_even_without_tolerance(tol, dtype, alpha):
    model = RBFKMeans(4, tol=tol, alpha=alpha, random_state=0, max_iter=10_000)
    model.fit(X.astype(dtype))
    assert model.hardened_
    assert model.n_iter_ < 100


def test_the_learning_rate_is_the_length_of_the_soft_step():
    one = RBFKMeans(3, init=INIT, schedule=4.0, max_iter=1).fit(X)
    step = one.cluster_centers_ - INIT
    for rate in 0.25, 0.5, 1.5:
        model = clone(one).set_params(learning_rate=rate).fit(X)
        assert_allclose(model.cluster_centers_, INIT + rate * step)


def test_the_hard_phase_ignores_the_learning_rate():
    slow = RBFKMeans(3, init=INIT, schedule=0.0, learning_rate=0.1).fit(X)
    assert_same_state(slow, RBFKMeans(3, init=INIT, schedule=0.0).fit(X))


@pytest.mark.parametrize("rate", [0.3, 1.0, 1.7])
def test_any_learning_rate_ends_in_a_fixed_point_of_kmeans(rate):
    model = RBFKMeans(3, learning_rate=rate, random_state=0).fit(X)
    assert model.hardened_
    for j in range(3):
        own = X[model.labels_ == j]
        assert_allclose(model.cluster_centers_[j], own.mean(axis=0))


# --- temperatures after the fit -----------------------------------------------


def test_sigma_is_the_last_temperature_of_a_soft_model():
    assert RBFKMeans(3, schedule=2.0, random_state=0).fit(X).sigma_ == 2.0
    model = RBFKMeans(3, schedule=[4.0, 2.5], random_state=0).fit(X)
    assert model.sigma_ == 2.5
    assert not model.hardened_


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_sigma_is_the_spread_of_the_clusters_of_a_hardened_model(weights):
    model = RBFKMeans(3, random_state=0).fit(X, sample_weight=weights)
    total = len(X) if weights is None else weights.sum()
    assert_allclose(model.sigma_, np.sqrt(model.inertia_ / (total * X.shape[1])))


def test_proba_sigma_is_read_when_asked_and_needs_no_new_fit():
    model = RBFKMeans(3, random_state=0).fit(X)
    before = copy.deepcopy(model)
    auto = model.predict_proba(X)
    assert_array_equal(
        model.set_params(proba_sigma=model.sigma_).predict_proba(X), auto
    )
    assert (model.set_params(proba_sigma=20.0).predict_proba(X) > 0.0).all()
    hard = model.set_params(proba_sigma=0).predict_proba(X)
    assert_array_equal(hard, np.eye(3)[model.labels_])
    assert_array_equal(model.set_params(features="rbf").transform(X), hard)
    assert_array_equal(model.set_params(proba_sigma="auto").predict_proba(X), auto)
    assert_array_equal(model.predict(X), before.predict(X))
    assert_same_state(model, before)


@pytest.mark.parametrize("sigma", [-1.0, np.nan, np.inf, "warm", None, True])
@pytest.mark.parametrize("features", ["responsibility", "rbf"])
def test_a_bad_proba_sigma_is_told_at_use(sigma, features):
    model = RBFKMeans(3, features=features, random_state=0).fit(X)
    model.set_params(proba_sigma=sigma)
    for method in "predict_proba", "transform":
        with pytest.raises(ValueError, match="proba_sigma"):
            getattr(model, method)(X)
    model.predict(X)


def test_memberships_grow_softer_with_the_temperature():
    model = RBFKMeans(3, random_state=0).fit(X)
    for alpha in 1.0, 1.5, 2.0:
        entropies = []
        for sigma in 0.1, 1.0, 10.0, 100.0:
            model.set_params(alpha=alpha, proba_sigma=sigma)
            p = model.predict_proba(X)
            entropies.append(1.0 - (p**2).sum(axis=1))
        assert (np.diff(entropies, axis=0) >= -1e-12).all()
        assert entropies[-1].min() > entropies[0].max()


# --- verbose ------------------------------------------------------------------


def test_nothing_is_printed_unless_asked(capfd):
    for seed in range(20):
        RBFKMeans(3, random_state=seed, n_init=2).fit(X).predict_proba(X)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("schedule", ["auto", 0.0, 2.0, Cyclic(), [4.0, 2.0, 2.0]])
@pytest.mark.parametrize("max_iter", [2, 4, 6, 300])
def test_verbose_prints_one_line_a_temperature(schedule, max_iter, capfd):
    model = RBFKMeans(
        8, schedule=schedule, max_iter=max_iter, verbose=1, random_state=0
    )
    model.fit(X)
    out, err = capfd.readouterr()
    lines = [line for line in out.splitlines() if line.startswith("sigma ")]
    n_temperatures = 1 + np.count_nonzero(np.diff(model.history_["sigma"]))
    assert len(lines) == n_temperatures
    assert err == ""


# --- random_state -------------------------------------------------------------


@pytest.mark.parametrize("init", ["k-means++", "random", draw])
@pytest.mark.parametrize("n_init", ["auto", 3])
def test_the_same_seed_gives_the_same_bits(init, n_init):
    model = RBFKMeans(6, init=init, n_init=n_init, random_state=5)
    first = clone(model).fit(WIDE)
    assert_same_state(clone(model).fit(WIDE), first)
    model.set_params(random_state=np.random.RandomState(5))
    assert_same_state(model.fit(WIDE), first)


@pytest.mark.parametrize("init", ["k-means++", "random", draw])
def test_another_seed_gives_another_start(init):
    starts = [
        RBFKMeans(6, init=init, n_init=1, max_iter=1, random_state=seed)
        .fit(WIDE)
        .cluster_centers_
        for seed in range(4)
    ]
    assert len(np.unique(starts, axis=0)) == 4


def test_a_random_state_object_goes_on_from_fit_to_fit():
    model = RBFKMeans(6, max_iter=1, random_state=np.random.RandomState(0))
    first, second = (model.fit(WIDE).cluster_centers_ for _ in range(2))
    assert not np.array_equal(first, second)


def test_the_global_random_state_is_left_alone_by_a_seeded_fit():
    np.random.seed(7)  # noqa: NPY002
    expected = np.random.RandomState(7).uniform()
    RBFKMeans(3, random_state=0, init="random").fit(X)
    assert np.random.uniform() == expected  # noqa: NPY002


# --- parameters ---------------------------------------------------------------

ARRAYS = [
    {"init": INIT},
    {"init": INIT.tolist()},
    {"init": pd.DataFrame(INIT)},
    {"schedule": np.geomspace(4.0, 1.0, 5)},
    {"schedule": [4.0, 2.0, 1.0]},
    {"schedule": (4.0, 2.0)},
    {"schedule": Geometric(start=2.0, n_steps=3)},
    {"schedule": Cyclic(unit="critical")},
    {"n_clusters": np.int64(3)},
    {"schedule": np.float32(2.0), "alpha": np.float64(1.5)},
    {"schedule": 2, "alpha": 2},
]


@pytest.mark.parametrize("parameters", ARRAYS)
def test_fit_leaves_every_parameter_the_very_object_it_was(parameters):
    model = RBFKMeans(**{"n_clusters": 3, "random_state": 0, **parameters})
    before = model.get_params(deep=False)
    copied = copy.deepcopy(before)
    model.fit(X)
    after = model.get_params(deep=False)
    assert before.keys() == after.keys()
    for name in before:
        assert after[name] is before[name]
    assert repr(copied) == repr(after)


@pytest.mark.parametrize("parameters", ARRAYS)
def test_a_clone_before_or_after_fit_fits_the_same(parameters):
    model = RBFKMeans(**{"n_clusters": 3, "random_state": 0, **parameters})
    early = clone(model)
    model.fit(X)
    late = clone(model)
    assert not hasattr(late, "cluster_centers_")
    assert_same_state(early.fit(X), model)
    assert_same_state(late.fit(X), model)
    assert repr(early) == repr(late)
    again = RBFKMeans().set_params(**model.get_params(deep=False))
    assert_same_state(again.fit(X), model)


def test_refitting_forgets_the_fit_before():
    model = RBFKMeans(4, random_state=0).fit(pd.DataFrame(WIDE).add_prefix("x"))
    model.set_params(n_clusters=3, schedule=2.0).fit(X)
    fresh = RBFKMeans(3, schedule=2.0, random_state=0).fit(X)
    assert_same_state(model, fresh)


@pytest.mark.parametrize("float_kind", [float, int, np.float32, np.float64])
def test_a_float_schedule_equals_a_constant_absolute_one(float_kind):
    model = RBFKMeans(3, schedule=float_kind(2), init=INIT).fit(X)
    other = RBFKMeans(3, schedule=Constant(2.0, unit="absolute"), init=INIT).fit(X)
    assert_same_state(model, other)
    assert_same_state(model, RBFKMeans(3, schedule=[2.0], init=INIT).fit(X))


def test_auto_is_the_default_geometric_schedule():
    model = RBFKMeans(3, random_state=0).fit(X)
    other = RBFKMeans(3, schedule=Geometric(), random_state=0).fit(X)
    assert_same_state(model, other)


# --- history_ -----------------------------------------------------------------

SCHEDULES = [
    "auto",
    0.0,
    1.0,
    [3.0, 1.0, 0.0],
    [3.0, 1e-3],
    1e-3,
    Cyclic(),
    Linear(2.0, 0.5, harden=False),
    Cosine(unit="critical", start=0.9, stop=0.1),
]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
def test_history_tells_every_iteration(schedule, alpha):
    model = RBFKMeans(4, schedule=schedule, alpha=alpha, random_state=0)
    model.fit(X, sample_weight=WEIGHTS)
    history = model.history_
    assert set(history) == STEPS_HISTORY | {"swaps_tried", "swaps_kept"}
    for values in history.values():
        assert values.shape == (model.n_iter_,)
        assert np.isfinite(values).all()
    assert (history["sigma"] >= 0.0).all()
    assert (history["shift"] >= 0.0).all()
    assert (history["soft_fraction"] >= 0.0).all()
    assert (history["soft_fraction"] <= 1.0 + 1e-12).all()
    assert (history["support"] >= 1.0 - 1e-12).all()
    assert (history["support"] <= 4.0 + 1e-12).all()
    one_hot = history["soft_fraction"] == 0.0
    assert_allclose(history["support"][one_hot], 1.0)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "weighted"])
def test_history_of_a_hardened_model_ends_in_kmeans(schedule, weights):
    model = RBFKMeans(4, schedule=schedule, random_state=0)
    model.fit(X, sample_weight=weights)
    if not model.hardened_:
        assert model.history_["sigma"][-1] > 0.0
        assert model.history_["soft_fraction"][-1] > 0.0
        return
    assert model.history_["sigma"][-1] == 0.0
    assert model.history_["soft_fraction"][-1] == 0.0
    assert model.history_["shift"][-1] < 1e-9
    assert_allclose(model.history_["free_energy"][-1], model.inertia_, rtol=1e-9)


def test_these_schedules_both_harden_and_stay_soft():
    hardened = [
        RBFKMeans(4, schedule=schedule, random_state=0).fit(X).hardened_
        for schedule in SCHEDULES
    ]
    assert hardened == [True, True, False, True, True, True, True, False, True]


def test_free_energy_and_shift_are_those_of_the_step():
    init = INIT + 1.0
    model = RBFKMeans(3, init=init, schedule=0.0, max_iter=1).fit(X)
    d2 = ((X[:, np.newaxis] - init) ** 2).sum(axis=2)
    assert_allclose(model.history_["free_energy"], d2.min(axis=1).sum())
    shift = np.sqrt(((model.cluster_centers_ - init) ** 2).sum())
    assert_allclose(model.history_["shift"], shift)
    assert model.history_["sigma"] == 0.0


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("alpha", [1.0, 1.25, 1.5, 2.0])
@pytest.mark.parametrize("kind", ["float64", "float32", "sparse"])
def test_path_and_inertia_are_those_of_the_centres_before_each_step(
    schedule, alpha, kind
):
    rows = sparse.csr_matrix(X) if kind == "sparse" else X.astype(kind)
    model = RBFKMeans(4, schedule=schedule, alpha=alpha, store_path=True)
    model.set_params(random_state=0).fit(rows, sample_weight=WEIGHTS)
    assert model.path_.shape == (model.n_iter_ + 1, 4, 2)
    assert model.path_.dtype == rows.dtype
    assert_array_equal(model.path_[-1], model.cluster_centers_)
    path = model.path_[:-1].astype(np.float64)
    d2 = ((X.astype(rows.dtype)[:, np.newaxis] - path[:, np.newaxis]) ** 2).sum(axis=3)
    digits = 1e-12 if kind != "float32" else 1e-5
    inertia = d2.min(axis=2) @ WEIGHTS
    assert_allclose(model.history_["inertia"], inertia, rtol=digits)
    moves = np.linalg.norm(np.diff(model.path_, axis=0), axis=(1, 2))
    quiet = model.history_["swaps_kept"] == 0  # swaps move centres too
    size = np.abs(model.path_).max()
    assert_allclose(moves[quiet], model.history_["shift"][quiet], atol=digits * size)


def test_the_path_is_kept_on_demand_only_and_of_the_best_run():
    model = RBFKMeans(4, n_init=3, refine=None, store_path=True, random_state=0).fit(X)
    assert_array_equal(model.path_[-1], model.cluster_centers_)
    assert len(model.path_) == model.n_iter_ + 1
    model.set_params(store_path=False).fit(X)
    assert not hasattr(model, "path_")


@pytest.mark.parametrize("scale", [1e-120, 1e120])
def test_path_and_inertia_are_in_the_units_of_the_data(scale):
    model = RBFKMeans(4, store_path=True, random_state=0)
    one = clone(model).fit(X)
    other = clone(model).fit(X * scale)
    assert_allclose(other.path_ / scale, one.path_, rtol=1e-9)
    for power, name in enumerate(["shift", "inertia"], 1):
        expected = one.history_[name]
        assert_allclose(other.history_[name] / scale**power, expected, atol=1e-9)


def test_the_representation_links_to_the_page_of_the_class():
    page = "/generated/skrbfkmeans.RBFKMeans.html"
    assert RBFKMeans()._get_doc_link().endswith(page)
    assert page in RBFKMeans()._repr_html_()
    page = "/generated/skrbfkmeans.schedules.Geometric.html"
    assert Geometric()._get_doc_link().endswith(page)

    class Derived(RBFKMeans):  # somebody else's
        __module__ = "elsewhere"

    assert Derived()._get_doc_link() == ""


@pytest.mark.compiled
def test_free_energy_never_rises_at_constant_temperature():
    for rate in 0.5, 1.0:
        for alpha in 1.0, 1.3, 1.5, 2.0:
            model = RBFKMeans(
                5, schedule=2.0, alpha=alpha, learning_rate=rate, tol=0.0,
                random_state=0, max_iter=60,
            ).fit(X)  # fmt: skip
            energies = model.history_["free_energy"]
            assert np.diff(energies).max() <= 1e-12 * abs(energies[0])


# --- methods agree ------------------------------------------------------------

CONFIGURATIONS = [
    {},
    {"alpha": 1.0},
    {"alpha": 2.0, "learning_rate": 0.5},
    {"schedule": 0.0, "init": "random", "n_init": 2},
    {"schedule": 1.0, "alpha": 1.0},
    {"schedule": Cyclic(harden=False)},
    {"max_iter": 1},
    {"max_iter": 2, "schedule": 3.0},
    {"tol": 0.1, "schedule": 3.0},
    {"tol": 0.0, "n_clusters": 12},
    {"n_clusters": 1},
    {"schedule": 1e3},
]


@pytest.mark.compiled
@pytest.mark.parametrize("parameters", CONFIGURATIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [1, 2, 12, 13, 40])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_labels_are_predictions_and_inertia_is_minus_the_score(
    parameters, dtype, d, offset
):
    data, _ = make_blobs(n=150, k=4, d=d, spread=4.0, seed=d)
    data = (data + offset).astype(dtype)
    weights = np.random.default_rng(0).uniform(0.0, 2.0, len(data))
    for w in None, weights:
        model = RBFKMeans(**{"n_clusters": 4, "random_state": 0, **parameters})
        labels = model.fit_predict(data, sample_weight=w)
        assert_array_equal(model.labels_, labels)
        assert_array_equal(model.predict(data), labels)
        assert_array_equal(model.predict(data[::3]), labels[::3])
        assert model.inertia_ == -model.score(data, sample_weight=w)


@pytest.mark.compiled
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("alpha", [1.0, 1.3, 1.5, 2.0, 4.0])
@pytest.mark.parametrize("d", [2, 20])
@pytest.mark.parametrize("n_clusters", [2, 30])
def test_the_largest_membership_is_the_label_at_every_temperature(
    dtype, alpha, d, n_clusters
):
    data, _ = make_blobs(n=100, k=4, d=d, seed=d)
    data = data.astype(dtype)
    model = RBFKMeans(n_clusters, alpha=alpha, random_state=0).fit(data)
    midway = (model.cluster_centers_[0] + model.cluster_centers_[1]) / 2
    rows = np.vstack([data, model.cluster_centers_, midway[np.newaxis]]).astype(dtype)
    labels = model.predict(rows)
    for sigma in 0.0, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1e3, 1e6:
        p = model.set_params(proba_sigma=sigma).predict_proba(rows)
        assert_array_equal(p.argmax(axis=1), labels)
        assert (p >= 0.0).all()
        tolerance = 1e-6 if dtype == np.float32 else 1e-12
        assert_allclose(p.sum(axis=1, dtype=np.float64), 1.0, rtol=0, atol=tolerance)
        assert_array_equal(model.predict(rows), labels)


@pytest.mark.parametrize("x", [2.0, 2.0 + 1e-15])
@pytest.mark.parametrize("order", [1, -1])
def test_a_row_midway_belongs_to_the_first_centre(x, order):
    centres = np.array([[0.0], [4.0]])[::order]
    model = RBFKMeans(2, init=centres, schedule=0.0).fit(centres)
    assert_array_equal(model.predict([[2.0]]), [0])
    for alpha in 1.0, 1.5, 1.7, 2.0:
        for sigma in 1e-3, 1.0, 1e3, 1e8:
            model.set_params(alpha=alpha, proba_sigma=sigma)
            p = model.predict_proba([[x]])
            assert_array_equal(p.argmax(axis=1), model.predict([[x]]))


@pytest.mark.compiled
def test_the_answer_for_a_row_does_not_depend_on_its_neighbours():
    rng = np.random.default_rng(0)
    for d in 3, 25:
        data = rng.normal(size=(400, d)) + 50.0
        for dtype in np.float32, np.float64:
            rows = data.astype(dtype)
            model = RBFKMeans(20, random_state=0, features="rbf").fit(rows)
            chunks = [rows[i : i + 1] for i in range(0, 400, 7)]
            eps = 1e-4 if dtype == np.float32 else 1e-9
            for method in "predict", "transform", "predict_proba":
                whole = getattr(model, method)(rows)[::7]
                single = np.concatenate([getattr(model, method)(c) for c in chunks])
                assert_allclose(single, whole, rtol=eps, atol=eps)
                if method == "predict":
                    assert_array_equal(single, whole)


# --- searches -----------------------------------------------------------------


def test_a_grid_search_runs_over_schedules_alpha_and_n_clusters():
    pipeline = make_pipeline(StandardScaler(), RBFKMeans(3, random_state=0))
    grid = [
        {
            "rbfkmeans__schedule": [Geometric()],
            "rbfkmeans__schedule__start": [0.5, 2.0],
            "rbfkmeans__schedule__n_steps": [2, 4],
        },
        {
            "rbfkmeans__schedule": [
                "auto", 0.0, 0.5, np.geomspace(1.0, 0.1, 4), [0.5, 0.2], Cyclic(),
            ],
        },
        {"rbfkmeans__alpha": [1.0, 1.5, 2.0], "rbfkmeans__n_clusters": [2, 3]},
    ]  # fmt: skip
    search = GridSearchCV(pipeline, grid, cv=2).fit(X)
    scores = search.cv_results_["mean_test_score"]
    assert len(scores) == 16
    assert np.isfinite(scores).all()
    assert (scores < 0.0).all()
    assert_array_equal(scores[11::2] > scores[10::2], [True] * 3)
    assert search.best_estimator_.predict(X).shape == (len(X),)


def test_a_grid_reaches_inside_the_schedule_of_a_bare_estimator():
    search = GridSearchCV(
        RBFKMeans(8, schedule=Geometric(), random_state=0),
        {"schedule__start": [1, 2, 4], "schedule__n_steps": [5, 10]},
        cv=2,
    ).fit(X)
    starts = [p["schedule__start"] for p in search.cv_results_["params"]]
    assert sorted(set(starts)) == [1, 2, 4]
    assert search.best_estimator_.schedule.start in (1, 2, 4)


def test_a_search_scored_with_known_classes_finds_their_number():
    search = GridSearchCV(
        RBFKMeans(random_state=0),
        {"n_clusters": [2, 3, 4]},
        scoring="adjusted_rand_score",
        cv=2,
    ).fit(X, TRUTH)
    assert search.best_params_ == {"n_clusters": 3}


# --- copies -------------------------------------------------------------------


@pytest.mark.parametrize(
    "copier", [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy]
)
def test_a_pickled_or_copied_model_answers_the_same(copier):
    model = RBFKMeans(3, schedule=Cyclic(), features="rbf", random_state=0).fit(X)
    other = copier(model)
    assert_same_state(model, other)
    for method in METHODS:
        assert_array_equal(getattr(model, method)(X), getattr(other, method)(X))
    assert_same_state(other.fit(X), model)


def test_a_pickle_names_no_compiled_code_and_holds_no_rows():
    many = np.tile(X, (50, 1))
    model = RBFKMeans(3, random_state=0, features="rbf").fit(many)
    model.predict_proba(many)
    text = pickle.dumps(model, protocol=4)
    strings = {str(arg) for _, arg, _ in pickletools.genops(text) if arg is not None}
    modules = {s for s in strings if s.isascii() and len(s) < 60}
    for word in "numba", "llvmlite", "__main__", "lambda", "_engine":
        assert not any(word in s for s in modules), word
    assert any("skrbfkmeans" in s for s in modules)
    assert len(text) < 4 * len(many) + 20_000


# --- threads and import -------------------------------------------------------


@pytest.mark.compiled
@pytest.mark.parametrize("d", [10, 30])
@pytest.mark.parametrize(
    "parameters",
    [{}, {"alpha": 1.0, "schedule": 1.0}, {"init": "random", "n_init": 2}],
    ids=["auto", "softmax", "random"],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_number_of_threads_gives_the_same_bits(d, parameters, dtype, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "4")  # else cores are the limit
    data = make_blobs(n=20_000, k=8, d=d, spread=4.0)[0].astype(dtype)
    weights = np.random.default_rng(0).uniform(size=len(data))
    model = RBFKMeans(8, random_state=0, max_iter=12, **parameters)
    fitted, answers = [], []
    for n_threads in 1, 2, 4:
        with threadpool_limits(limits=n_threads, user_api="openmp"):
            fitted.append(clone(model).fit(data, sample_weight=weights))
            answers.append(
                [getattr(fitted[-1], method)(data) for method in METHODS]
                + [fitted[-1].set_params(features="rbf").transform(data)]
            )
    for other, answer in zip(fitted[1:], answers[1:], strict=True):
        assert_same_state(fitted[0], other)
        for ours, theirs in zip(answers[0], answer, strict=True):
            assert_array_equal(ours, theirs)


def run_python(code):
    """Run code in a fresh interpreter and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "module", ["skrbfkmeans", "skrbfkmeans.schedules", "skrbfkmeans.entmax"]
)
def test_import_loads_nothing_that_is_slow_or_optional(module):
    loaded = run_python(f"import sys, {module}; print(*sys.modules)").split()
    for name in "numba", "llvmlite", "torch", "dask", "matplotlib":
        assert name not in loaded
    assert module in loaded
