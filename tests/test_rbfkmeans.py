"""The estimator as scikit-learn users meet it.

The label before a group of tests is its number on the list of what broke for the
users of other packages.
"""

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
from estimator_helpers import (
    FEATURES,
    INIT,
    METHODS,
    TRUTH,
    WEIGHTS,
    WIDE,
    B,
    X,
    assert_same_state,
    clear_blobs,
    labelled_blobs,
    make,
)
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import adjusted_rand_score, silhouette_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from skrbfkmeans import RBFKMeans
from skrbfkmeans.schedules import Cyclic, Geometric

pytestmark = pytest.mark.compiled


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


# --- H1, H4, H5, H11 ----------------------------------------------------------


def test_a_search_works_without_classes_with_them_and_with_a_callable_score():
    X, truth = clear_blobs(n=60, k=3), np.repeat([0, 1, 2], 20)
    order = np.random.default_rng(0).permutation(60)
    X, truth = X[order], truth[order]
    grid = {"n_clusters": [2, 3]}
    search = GridSearchCV(make(), {**grid, "schedule": ["auto", 1.0]}, cv=3).fit(X)
    assert search.best_params_["n_clusters"] == 3
    search = GridSearchCV(make(), grid, scoring="adjusted_rand_score", cv=3)
    assert search.fit(X, truth).best_score_ == 1.0

    def silhouette(model, X, y=None):
        labels = model.predict(X)
        return silhouette_score(X, labels) if len(set(labels)) > 1 else -1.0

    hot = {**grid, "schedule": ["auto", 1e6]}
    search = GridSearchCV(make(), hot, scoring=silhouette, cv=3).fit(X)
    assert search.best_params_ == {"n_clusters": 3, "schedule": "auto"}


def test_names_of_features_are_checked_as_scikit_learn_does():
    frame = pd.DataFrame(B, columns=["a", "b"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = make(n_clusters=2).fit(frame)
        for method in METHODS:
            getattr(model, method)(frame)
    for method in METHODS:
        with pytest.warns(UserWarning, match="feature names"):
            getattr(model, method)(B)
        with pytest.raises(ValueError, match="feature names"):
            getattr(model, method)(frame[["b", "a"]])


def test_a_failed_first_fit_leaves_the_model_unfitted():
    model = make(n_clusters=2)
    bad = B.copy()
    bad[7, 0] = np.nan
    with pytest.raises(ValueError, match="X contains NaN"):
        model.fit(bad)
    for method in METHODS:
        with pytest.raises(NotFittedError):
            getattr(model, method)(B)
    assert not hasattr(model, "n_features_in_")


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
    data = labelled_blobs(n=20_000, k=8, d=d, spread=4.0)[0].astype(dtype)
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


# --- the representation -------------------------------------------------------


def test_the_representation_links_to_the_page_of_the_class():
    page = "/generated/skrbfkmeans.RBFKMeans.html"
    assert RBFKMeans()._get_doc_link().endswith(page)
    assert page in RBFKMeans()._repr_html_()
    page = "/generated/skrbfkmeans.schedules.Geometric.html"
    assert Geometric()._get_doc_link().endswith(page)

    class Derived(RBFKMeans):  # somebody else's
        __module__ = "elsewhere"

    assert Derived()._get_doc_link() == ""
