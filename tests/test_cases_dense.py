"""What broke for the users of other packages and must not break here: dense data.

The label before a group of tests is its number on the list of those cases.
"""

# SPDX-License-Identifier: BSD-3-Clause

import inspect
import time
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import silhouette_score
from sklearn.model_selection import GridSearchCV

from skrbfkmeans import RBFKMeans
from skrbfkmeans.energy import free_energy, hardening_sigma, responsibilities
from skrbfkmeans.entmax import entmax
from skrbfkmeans.schedules import Constant, Cyclic, Geometric, Linear

pytestmark = pytest.mark.compiled

ALPHAS = [1.0, 1.3, 1.5, 2.0]
STEPS = ["sigma", "free_energy", "shift", "soft_fraction", "support"]
SOFT_METHODS = ["predict", "predict_proba", "transform", "score"]


def make(**parameters):
    return RBFKMeans(**{"random_state": 0, **parameters})


def blobs(n=40, k=2, d=2, seed=0, spread=1.0, gap=10.0):
    """Rows around k clear centres, the rows of each one after the other."""
    rng = np.random.default_rng(seed)
    centres = gap * np.arange(k)[:, np.newaxis] * np.ones(d)
    return np.repeat(centres, n // k, axis=0) + spread * rng.normal(
        size=(n // k * k, d)
    )


B = blobs()
SPLIT = np.repeat([0, 1], 20)


def assert_split(labels, truth=SPLIT):
    """The labels are the truth, up to the order of the labels."""
    pairs = set(zip(labels.tolist(), truth.tolist(), strict=True))
    assert len(pairs) == len(set(truth.tolist())) == len(set(labels.tolist()))


def assert_finite(model, X):
    assert np.isfinite(model.cluster_centers_).all()
    assert np.isfinite(model.predict_proba(X)).all()
    assert np.isfinite(model.inertia_)
    assert np.isfinite(model.sigma_)
    for values in model.history_.values():
        assert np.isfinite(values).all()


def assert_methods_agree(model, X, sample_weight=None):
    assert_array_equal(model.labels_, model.predict(X))
    assert_array_equal(model.predict_proba(X).argmax(axis=1), model.labels_)
    assert model.inertia_ == -model.score(X, sample_weight=sample_weight)


def assert_fixed_point_of_lloyd(model, X):
    d2 = ((X[:, np.newaxis] - model.cluster_centers_) ** 2).sum(axis=2)
    assert_array_equal(model.labels_, d2.argmin(axis=1))
    for j in np.unique(model.labels_):
        own = X[model.labels_ == j]
        assert_allclose(model.cluster_centers_[j], own.mean(axis=0), rtol=1e-10)


# --- A1 -----------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0.0, 1e4, -1e5, 1e6])
@pytest.mark.parametrize("d", [1, 3, 20])
@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_float32_rows_far_from_the_origin_lose_no_digits(offset, d, alpha):
    base = np.repeat([0.0, 1.0], 20) + np.linspace(0, 0.1, 40)
    X = (np.repeat(base[:, np.newaxis], d, axis=1) + offset).astype(np.float32)
    model = make(n_clusters=2, alpha=alpha).fit(X)
    assert_split(model.labels_)
    assert_methods_agree(model, X)
    exact = X.astype(np.float64)  # the numbers that float32 can tell apart
    groups = [exact[:20], exact[20:]]
    inertia = sum(((g - g.mean(axis=0)) ** 2).sum() for g in groups)
    half_step = np.spacing(np.float32(abs(offset) + 1.0)) / 2  # centres are float32
    assert_allclose(model.inertia_, inertia, rtol=1e-5, atol=2 * 40 * d * half_step**2)
    p = model.set_params(proba_sigma=0.3).predict_proba(X)
    assert_allclose(p.sum(axis=1), 1.0, atol=1e-6)
    d2 = ((exact[:, np.newaxis] - model.cluster_centers_.astype(float)) ** 2).sum(
        axis=2
    )
    assert_allclose(model.transform(X), np.sqrt(d2), atol=1e-5)


@pytest.mark.parametrize("offset", [1e3, -1e6, 1e8])
@pytest.mark.parametrize("d", [2, 20])
@pytest.mark.parametrize("schedule", ["auto", 2.0, Linear(harden=False)])
def test_a_shift_of_float64_rows_shifts_the_centres_and_nothing_else(
    offset, d, schedule
):
    X = np.round(blobs(n=60, k=3, d=d) * 1024) / 1024  # shifted without rounding
    init = X[[0, 20, 40]]
    here = make(n_clusters=3, init=init, schedule=schedule).fit(X)
    there = make(n_clusters=3, init=init + offset, schedule=schedule).fit(X + offset)
    assert_array_equal(here.labels_, there.labels_)
    assert_allclose(here.inertia_, there.inertia_, rtol=1e-7)
    digits = 4 * np.spacing(abs(offset))
    assert_allclose(there.cluster_centers_ - offset, here.cluster_centers_, atol=digits)
    assert here.n_iter_ == there.n_iter_
    for model in here, there:
        model.set_params(proba_sigma=5.0)
    assert_allclose(
        here.predict_proba(X), there.predict_proba(X + offset), atol=100 * digits
    )


@pytest.mark.parametrize("d", [2, 20])
def test_one_centre_far_away_does_not_cost_the_digits_of_the_others(d):
    X = blobs(n=60, k=3, d=d)
    centres = np.vstack([X[[0, 20, 40]], np.full((1, d), 1e8)])
    p = responsibilities(X, centres, 5.0)
    assert_allclose(p[:, :3], responsibilities(X, centres[:3], 5.0), atol=1e-12)
    model = make(n_clusters=4, init=centres, schedule=0.0, max_iter=1).fit(X)
    model.cluster_centers_ = centres
    assert_array_equal(model.predict(X), p.argmax(axis=1))
    score = -((X[:, np.newaxis] - centres[:3]) ** 2).sum(axis=2).min(axis=1).sum()
    assert_allclose(model.score(X), score, rtol=1e-12)


# --- A3 -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("factor", "dtype"),
    [
        (1e20, np.float32),
        (1e36, np.float32),
        (1e-20, np.float32),
        (1e-36, np.float32),
        (1e20, np.float64),
        (1e120, np.float64),
        (1e150, np.float64),
        (1e-120, np.float64),
        (1e-200, np.float64),
        (1e-300, np.float64),
    ],
)
@pytest.mark.parametrize("d", [2, 20])
@pytest.mark.parametrize(
    "schedule", ["auto", Constant(0.5), Geometric(unit="critical")]
)
def test_huge_and_tiny_rows_are_split_as_rows_of_common_size(
    factor, dtype, d, schedule
):
    X = (blobs(d=d) * factor).astype(dtype)
    model = make(n_clusters=2, schedule=schedule).fit(X)
    assert_finite(model, X)
    assert_split(model.labels_)
    assert_methods_agree(model, X)
    reference = make(n_clusters=2, schedule=schedule).fit(X / dtype(factor))
    assert model.n_iter_ == reference.n_iter_
    for name in "cluster_centers_", "sigma_":
        ours, theirs = getattr(model, name), getattr(reference, name)
        assert_allclose(ours / dtype(factor), theirs, rtol=1e-4)
    if 1e-150 < factor < 1e150:
        for name in STEPS:
            unit = {"sigma": factor, "shift": factor, "free_energy": factor**2}
            ours = model.history_[name] / unit.get(name, 1.0)
            assert_allclose(ours, reference.history_[name], rtol=1e-3, atol=1e-5)
        assert_allclose(model.inertia_ / factor**2, reference.inertia_, rtol=1e-4)
    for features in "distance", "rbf", "responsibility":
        ours = model.set_params(features=features).transform(X)
        theirs = reference.set_params(features=features).transform(X / dtype(factor))
        unit = dtype(factor) if features == "distance" else 1.0
        assert_allclose(ours / unit, theirs, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("factor", [1e155, 1e160, 1e300])
def test_rows_whose_inertia_cannot_be_represented_are_refused(factor):
    with pytest.raises(ValueError, match="too large"):
        make(n_clusters=2).fit(B * factor)


@pytest.mark.parametrize("size", [1e155, 1e200, 1e300])
def test_rows_in_one_huge_place_have_no_inertia_to_overflow(size):
    X = np.repeat([[size, 0.0], [0.0, size]], 5, axis=0)
    model = make(n_clusters=2).fit(X)
    assert model.inertia_ == 0.0
    assert_array_equal(np.sort(model.cluster_centers_, axis=0), [[0.0] * 2, [size] * 2])


# --- A5 -----------------------------------------------------------------------


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("sigma", [0.05, 1e-3, 1e-100, 1e-200, 5e-324, 0.0])
def test_a_cold_temperature_gives_rows_of_zeros_and_a_one(alpha, sigma):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        p = responsibilities([[3.0], [4.0]], [[0.0], [7.0]], sigma, alpha=alpha)
        assert_array_equal(p, [[1.0, 0.0], [0.0, 1.0]])
        p = responsibilities([[1e6]], [[0.0], [4.0]], max(sigma, 0.0), alpha=alpha)
        assert_array_equal(p, [[0.0, 1.0]])


# --- B1, B2, G10 --------------------------------------------------------------

THREE = np.repeat([[0.0, 0.0], [5.0, 5.0], [9.0, 0.0]], 6, axis=0)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("init", ["k-means++", "random"])
@pytest.mark.parametrize("n_clusters", [4, 5, 18])
@pytest.mark.parametrize("schedule", ["auto", 0.0, Cyclic()])
def test_fewer_distinct_rows_than_clusters_are_told_once_and_fitted(
    alpha, init, n_clusters, schedule
):
    model = make(n_clusters=n_clusters, alpha=alpha, init=init, schedule=schedule)
    with pytest.warns(ConvergenceWarning) as record:
        model.fit(THREE)
    assert len(record) == 1
    message = str(record[0].message)
    assert "3 distinct clusters" in message
    assert f"n_clusters={n_clusters}" in message
    assert_finite(model, THREE)
    assert_methods_agree(model, THREE)
    assert len(np.unique(model.labels_)) == 3
    assert model.inertia_ < 1e-20
    assert model.hardened_
    assert model.n_iter_ < 50


@pytest.mark.parametrize("value", [0.0, 1.0, -1e5, 0.1])
@pytest.mark.parametrize("alpha", [1.0, 1.5])
@pytest.mark.parametrize("schedule", ["auto", 0.0, 0.5, Geometric(unit="critical")])
@pytest.mark.parametrize("d", [2, 20])
def test_equal_rows_give_equal_centres(value, alpha, schedule, d):
    X = np.full((10, d), value)
    with pytest.warns(ConvergenceWarning, match="1 distinct clusters"):
        model = make(n_clusters=3, alpha=alpha, schedule=schedule).fit(X)
    assert_finite(model, X)
    assert_allclose(model.cluster_centers_, value, rtol=1e-12)
    assert_array_equal(model.labels_, np.zeros(10))
    assert_allclose(model.inertia_, 0.0, atol=1e-20)
    assert_methods_agree(model, X)


def test_duplicate_rows_warn_once_a_fit_and_clear_data_never():
    X = np.repeat(np.arange(4.0), 3)[:, np.newaxis]
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        for seed in range(30):
            make(n_clusters=6, random_state=seed, n_init=3).fit(X)
    assert [w.category for w in record] == [ConvergenceWarning] * 30
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        make(n_clusters=6).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(30):
            make(n_clusters=4, random_state=seed).fit(X)
            make(n_clusters=2, random_state=seed, schedule=1e3).fit(X)


def test_the_warning_points_to_the_line_that_fits():
    with pytest.warns(ConvergenceWarning) as record:
        make(n_clusters=5).fit(THREE)
    assert [w.filename for w in record] == [__file__]


def test_rows_of_zero_weight_do_not_count_as_distinct_rows():
    weights = np.r_[np.ones(12), np.zeros(6)]
    with pytest.warns(ConvergenceWarning, match="2 distinct rows of positive weight"):
        make(n_clusters=3).fit(THREE, sample_weight=weights)


# --- B3 -----------------------------------------------------------------------


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("init", ["k-means++", "random"])
@pytest.mark.parametrize("n", [2, 5, 12])
def test_as_many_clusters_as_rows_give_each_its_own(alpha, init, n):
    X = np.random.default_rng(n).normal(size=(n, 3))
    with pytest.raises(ValueError, match=f"n_samples={n - 1}.*n_clusters={n}"):
        make(n_clusters=n).fit(X[:-1])
    model = make(n_clusters=n, alpha=alpha, init=init).fit(X)
    assert len(np.unique(model.labels_)) == n
    assert model.inertia_ < 1e-20


# --- B4 -----------------------------------------------------------------------


@pytest.mark.parametrize("far", [1e6, -1e3, 1e12])
@pytest.mark.parametrize("schedule", ["auto", 0.0, 0.5, Cyclic(), Constant(1.0)])
@pytest.mark.parametrize("alpha", [1.0, 1.5])
@pytest.mark.parametrize("d", [2, 20])
def test_a_centre_far_from_all_rows_stays_finite_and_stops_the_run(
    far, schedule, alpha, d
):
    X = np.random.default_rng(0).uniform(size=(40, d))
    init = np.vstack([X[:3], np.full((1, d), far)])
    model = make(n_clusters=4, init=init, schedule=schedule, alpha=alpha)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X)
    assert_finite(model, X)
    assert_methods_agree(model, X)
    assert model.n_iter_ < 300
    if model.hardened_:
        assert len(np.unique(model.labels_)) == 4
        assert_fixed_point_of_lloyd(model, X)


def test_a_centre_without_mass_stays_where_it_is_while_it_is_soft():
    X = np.random.default_rng(0).uniform(size=(40, 2))
    init = np.vstack([X[:3], [[1e6, 1e6]]])
    model = make(n_clusters=4, init=init, schedule=0.5).fit(X)
    assert_array_equal(model.cluster_centers_[3], [1e6, 1e6])


def test_an_empty_centre_moves_to_the_row_that_costs_most_by_weight():
    X = np.array([[0.0], [0.1], [-0.1], [5.0], [8.0], [100.0]])
    weights = [9.0, 9.0, 9.0, 10.0, 1.0, 0.0]
    model = make(n_clusters=2, init=[[0.0], [1e6]], schedule=0.0, max_iter=1)
    model.fit(X, sample_weight=weights)
    assert_allclose(model.cluster_centers_, [[8.0 / 28.0], [5.0]], atol=1e-14)


def test_many_clusters_for_few_rows_with_duplicates_end():
    rng = np.random.default_rng(0)
    for seed in range(20):
        X = np.r_[rng.normal(size=(7, 2)), rng.normal(size=(1, 2)).repeat(5, axis=0)]
        with pytest.warns(ConvergenceWarning, match="only 8 distinct rows"):
            model = make(n_clusters=10, random_state=seed).fit(X)
        assert_finite(model, X)
        assert len(np.unique(model.labels_)) == 8
        assert model.hardened_


# --- B8, B11 ------------------------------------------------------------------


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("shape", [(30, 1), (1, 1), (1, 5), (30, 20), (7, 2)])
@pytest.mark.parametrize("schedule", ["auto", 0.0, 1.0, Geometric(unit="critical")])
def test_one_cluster_is_the_weighted_mean(alpha, shape, schedule):
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=shape), rng.uniform(0.5, 2.0, size=shape[0])
    model = make(n_clusters=1, alpha=alpha, schedule=schedule).fit(X, None, weights)
    mean = np.average(X, axis=0, weights=weights)
    assert_allclose(model.cluster_centers_, [mean], atol=1e-14)
    assert_array_equal(model.predict_proba(X), np.ones((shape[0], 1)))
    assert_finite(model, X)
    assert hardening_sigma(X, model.cluster_centers_) == np.inf


@pytest.mark.parametrize("alpha", ALPHAS)
def test_one_feature_is_enough(alpha):
    X = blobs(d=1)
    model = make(n_clusters=2, alpha=alpha).fit(X)
    assert_split(model.labels_)


@pytest.mark.parametrize("method", SOFT_METHODS)
def test_no_rows_are_refused_as_scikit_learn_does(method):
    model = make(n_clusters=2).fit(B)
    with pytest.raises(ValueError, match=r"0 sample.*minimum of 1"):
        getattr(model, method)(B[:0])


# --- B9 -----------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("sigma", [10.0, 1e3, 1e8])
def test_centres_that_have_met_part_again_when_it_cools(alpha, sigma):
    X = np.array([[0.0], [1.0], [10.0], [11.0]])
    hot = make(n_clusters=2, alpha=alpha, schedule=1e8, init=[[0.0], [11.0]]).fit(X)
    assert_allclose(hot.cluster_centers_, 5.5, atol=1e-5)
    schedule = [*np.geomspace(sigma, 0.1, 12), 0.0]
    model = make(n_clusters=2, alpha=alpha, schedule=schedule).fit(X)
    assert_allclose(np.sort(model.cluster_centers_, axis=0), [[0.5], [10.5]])


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("end", [0.2, 0.0])
def test_centres_that_start_in_one_place_part_when_it_cools(alpha, end):
    X = np.array([[0.0], [1.0], [10.0], [11.0]])
    schedule = [*np.geomspace(3.0, 0.2, 12), end]
    init = [[0.0], [0.0], [10.5]]
    model = make(n_clusters=3, alpha=alpha, schedule=schedule, init=init).fit(X)
    assert_allclose(
        np.sort(model.cluster_centers_, axis=0), [[0], [1], [10.5]], atol=1e-3
    )


@pytest.mark.parametrize(
    "schedule",
    [
        Geometric(start=1e3, stop=0.25, n_steps=30),
        Geometric(start=1e3, stop=0.25, n_steps=4),
        Geometric(start=3.0, stop=0.1, n_steps=20, unit="critical"),
        Linear(start=1e3, stop=0.1, n_steps=20),
    ],
)
@pytest.mark.parametrize("alpha", [1.0, 1.5])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_schedule_that_starts_far_too_hot_still_finds_every_cluster(
    schedule, alpha, seed
):
    rng = np.random.default_rng(0)
    grid = 10.0 * np.stack(np.meshgrid(range(5), range(5)), axis=-1).reshape(-1, 2)
    X = np.repeat(grid, 12, axis=0) + rng.normal(size=(300, 2))
    hot = make(n_clusters=25, schedule=schedule, alpha=alpha, random_state=seed).fit(X)
    cold = make(n_clusters=25, schedule=0.0, random_state=seed).fit(X)
    assert len(np.unique(hot.labels_)) == 25
    assert len(np.unique(hot.cluster_centers_, axis=0)) == 25
    assert hot.inertia_ <= 1.05 * cold.inertia_


# --- B12 ----------------------------------------------------------------------


@pytest.mark.parametrize("init", ["k-means++", "random"])
@pytest.mark.parametrize(("n", "d", "k"), [(200, 3, 50), (60, 1, 50), (80, 20, 70)])
def test_many_clusters_are_all_used(init, n, d, k):
    X = np.random.default_rng(0).normal(size=(n, d))
    for seed in range(10):
        model = make(n_clusters=k, init=init, n_init=1, random_state=seed).fit(X)
        assert len(np.unique(model.labels_)) == k
        assert model.hardened_


# --- C1, C7 -------------------------------------------------------------------


@pytest.mark.parametrize("max_iter", [1, 2, 300])
@pytest.mark.parametrize("tol", [0.0, 1e-1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("alpha", [1.0, 1.5])
@pytest.mark.parametrize("schedule", ["auto", 0.7])
def test_labels_are_the_predictions_however_the_run_ends(
    max_iter, tol, dtype, alpha, schedule
):
    X = np.random.default_rng(0).normal(size=(300, 4)).astype(dtype)
    model = make(
        n_clusters=7, max_iter=max_iter, tol=tol, alpha=alpha, schedule=schedule
    )
    assert_array_equal(model.fit_predict(X), model.predict(X))
    assert_methods_agree(model, X)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_inertia_of_many_rows_is_exact_and_minus_the_score(dtype, weighted):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(100_000, 1)).astype(dtype)
    weights = rng.uniform(size=len(X)) if weighted else None
    model = make(n_clusters=4, max_iter=5).fit(X, sample_weight=weights)
    d2 = ((X.astype(float) - model.cluster_centers_[:, 0].astype(float)) ** 2).min(
        axis=1
    )
    expected = d2.sum() if weights is None else weights @ d2
    assert_allclose(model.inertia_, expected, rtol=1e-10)
    assert model.inertia_ == -model.score(X, sample_weight=weights)


# --- C4, C5 -------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("n_clusters", [1, 2, 1000])
@pytest.mark.parametrize("d", [2, 20])
def test_rows_of_memberships_are_distributions_with_the_label_in_front(
    dtype, alpha, n_clusters, d
):
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(n_clusters, d))
    rows = rng.normal(size=(20, d))
    X = np.vstack([rows, centres[:5], centres[:1] * 1e6, centres.mean(axis=0)[None]])
    X = X.astype(dtype)
    d2 = ((X[:, np.newaxis].astype(float) - centres) ** 2).sum(axis=2)
    tolerance = 1e-6 if dtype == np.float32 else 1e-12
    for sigma in 1e-3, 0.1, 1.0, 30.0, 1e3, 1e9:
        p = responsibilities(X, centres, sigma, alpha=alpha)
        assert p.dtype == dtype
        assert (p >= 0.0).all()
        assert_allclose(p.sum(axis=1, dtype=float), 1.0, rtol=0, atol=tolerance)
        assert_array_equal(p.argmax(axis=1), d2.argmin(axis=1))


# --- C8 -----------------------------------------------------------------------


@pytest.mark.parametrize("d", [3, 25])
@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_the_answer_for_one_row_does_not_depend_on_its_batch(d, alpha):
    X = np.random.default_rng(0).normal(size=(60, d)) + 30.0
    model = make(n_clusters=5, alpha=alpha).fit(X).set_params(proba_sigma=1.5)
    whole, labels = model.predict_proba(X), model.predict(X)
    for size in 1, 3, 59:
        pieces = [X[i : i + size] for i in range(0, 60, size)]
        parts = np.vstack([model.predict_proba(piece) for piece in pieces])
        assert_allclose(parts, whole, rtol=1e-11, atol=1e-12)
        assert_array_equal(np.concatenate([model.predict(p) for p in pieces]), labels)
    assert_array_equal(model.predict_proba(np.asfortranarray(X)), whole)


# --- C9 -----------------------------------------------------------------------


def test_weights_are_taken_where_they_matter_and_nowhere_else():
    for name in "predict", "predict_proba", "transform":
        assert list(inspect.signature(getattr(RBFKMeans, name)).parameters) == [
            "self",
            "X",
        ]
    for name in "fit", "fit_predict", "fit_transform", "score":
        parameters = inspect.signature(getattr(RBFKMeans, name)).parameters
        assert list(parameters) == ["self", "X", "y", "sample_weight"]


# --- D1 -----------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [1.0, 1.5])
@pytest.mark.parametrize("factor", [1.0, 1e-200, 1e200])
@pytest.mark.parametrize("least", [1e-7, 1e-3, 1.0])
def test_starts_are_drawn_by_weight(alpha, factor, least):
    X = np.array([[0.0], [3.0], [3.0], [40.0]])
    weights = np.array([5e6, 2e6, 4e6, least]) * factor
    for seed in range(20):
        model = make(n_clusters=2, alpha=alpha, n_init=1, random_state=seed)
        model.fit(X, sample_weight=weights)
        assert_allclose(np.sort(model.cluster_centers_[:, 0]), [0, 3], atol=1e-4)


# --- D3 -----------------------------------------------------------------------


@pytest.mark.parametrize("factor", [1e-300, 1e-100, 1e-9, 2.0, 1e9, 1e100, 1e300])
@pytest.mark.parametrize(
    "schedule", ["auto", 0.0, 1.5, Cyclic(), Geometric(unit="critical")]
)
@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_a_common_factor_of_all_weights_scales_the_inertia_and_nothing_else(
    factor, schedule, alpha
):
    X = np.random.default_rng(0).normal(size=(100, 3))
    weights = np.random.default_rng(1).uniform(0.0, 2.0, size=100)
    model = make(n_clusters=4, schedule=schedule, alpha=alpha)
    one = clone(model).fit(X, sample_weight=weights)
    other = clone(model).fit(X, sample_weight=weights * factor)
    assert_allclose(other.cluster_centers_, one.cluster_centers_, rtol=1e-9)
    assert_array_equal(other.labels_, one.labels_)
    assert_allclose(other.inertia_ / factor, one.inertia_, rtol=1e-9)
    energies = other.history_["free_energy"] / factor
    assert_allclose(energies, one.history_["free_energy"], rtol=1e-9)
    assert_allclose(other.sigma_, one.sigma_, rtol=1e-9)
    assert other.n_iter_ == one.n_iter_


# --- D4 -----------------------------------------------------------------------


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_inertia_and_score_are_weighted_and_not_normalised(alpha, dtype):
    X = np.array([[1.0], [3.0], [21.0], [25.0]], dtype=dtype)
    model = make(n_clusters=2, init=[[2.0], [23.0]], alpha=alpha)
    weighted = clone(model).fit(X, sample_weight=[1, 1, 3, 3])
    assert weighted.inertia_ == 26.0
    assert weighted.score(X, sample_weight=[1, 1, 3, 3]) == -26.0
    assert weighted.score(X) == -10.0
    assert clone(model).fit(X).inertia_ == 10.0
    repeated = clone(model).fit(np.repeat(X, [1, 1, 3, 3], axis=0))
    assert repeated.inertia_ == 26.0


# --- D5, E1, E12 --------------------------------------------------------------


@pytest.mark.parametrize("writeable", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("factor", [1.0, 1e20])
@pytest.mark.parametrize("d", [2, 20])
def test_the_arrays_of_the_caller_are_never_written(writeable, dtype, factor, d):
    X = (blobs(d=d) * factor).astype(dtype)
    weights, init = np.linspace(0.5, 2.0, 40), X[[0, -1]].copy()
    copies = [array.copy() for array in (X, weights, init)]
    for array in X, weights, init:
        array.setflags(write=writeable)
    model = make(n_clusters=2, init=init).fit(X, sample_weight=weights)
    for method in SOFT_METHODS:
        getattr(model, method)(X)
    model.score(X, sample_weight=weights)
    for array, kept in zip((X, weights, init), copies, strict=True):
        assert array.tobytes() == kept.tobytes()


def test_memmapped_rows_are_fine_in_every_method(tmp_path):
    np.save(tmp_path / "rows.npy", B)
    X = np.load(tmp_path / "rows.npy", mmap_mode="r")
    model = make(n_clusters=2).fit(X)
    assert_split(model.labels_)
    for method in SOFT_METHODS:
        assert_array_equal(getattr(model, method)(X), getattr(model, method)(B))


def test_zero_strides_and_transposed_views_are_fine():
    row = np.array([1.0, 2.0])
    with pytest.warns(ConvergenceWarning):
        model = make(n_clusters=2).fit(np.broadcast_to(row, (10, 2)))
    assert_array_equal(model.cluster_centers_, [row, row])
    transposed = make(n_clusters=2).fit(np.ascontiguousarray(B.T).T)
    assert_array_equal(
        transposed.cluster_centers_, make(n_clusters=2).fit(B).cluster_centers_
    )


def test_missing_values_of_nullable_columns_are_told():
    frame = pd.DataFrame(B).convert_dtypes()
    assert_split(make(n_clusters=2).fit(frame).labels_)
    frame.iloc[3, 1] = pd.NA
    with pytest.raises(ValueError, match=r"NaN|missing"):
        make(n_clusters=2).fit(frame)


# --- D7, D9 -------------------------------------------------------------------


def test_weights_that_are_all_zero_are_refused():
    for weights in np.zeros(40), [0] * 40, np.zeros(40, dtype=bool):
        with pytest.raises(ValueError, match=r"(?i)weight.*zero"):
            make(n_clusters=2).fit(B, sample_weight=weights)


@pytest.mark.parametrize("shape", [(40, 1), (1, 40), (39,), (41,), (40, 2)])
def test_weights_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"(?i)sample.?weight"):
        make(n_clusters=2).fit(B, sample_weight=np.ones(shape))


# --- F1, F2 -------------------------------------------------------------------


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_of_minus_infinity_get_nothing_and_the_finite_one_all(alpha, dtype):
    Z = np.full((1, 5), -np.inf, dtype=dtype)
    with pytest.raises(ValueError, match="minus infinity"):
        entmax(Z, alpha)
    Z[0, 3] = -1e30
    assert_array_equal(entmax(Z, alpha), [[0, 0, 0, 1, 0]])
    Z[0, 1] = -1e30
    assert_allclose(entmax(Z, alpha), [[0, 0.5, 0, 0.5, 0]])
    for bad in np.inf, np.nan:
        Z[0, 0] = bad
        with pytest.raises(ValueError, match="Z"):
            entmax(Z, alpha)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1.0, 1e3, 1e6, 1e12])
def test_peaked_scores_are_solved_to_the_last_bit(dtype, scale):
    Z = -np.abs(np.random.default_rng(0).normal(size=(200, 100)) * scale).astype(dtype)
    for alpha in 1.25, 1.5, 1.75, 2.0:
        P = entmax(Z, alpha)
        assert np.isfinite(P).all()
        assert (P >= 0.0).all()
        eps = 1e-6 if dtype == np.float32 else 1e-12
        assert_allclose(P.sum(axis=1, dtype=float), 1.0, rtol=0, atol=eps)
        gaps = np.diff(np.sort(-Z, axis=1)[:, :2].astype(float), axis=1)[:, 0]
        alone = gaps >= 1.0 / (alpha - 1.0)
        assert_array_equal(P[alone].max(axis=1), np.ones(alone.sum()))
        assert (np.count_nonzero(P[alone], axis=1) == 1).all()
        if alpha == 2.0:
            ordered = -np.sort(-Z.astype(float), axis=1)
            tau = ((np.cumsum(ordered, axis=1) - 1.0) / np.arange(1, 101)).max(axis=1)
            expected = np.maximum(Z - tau[:, np.newaxis], 0.0)
            atol = 1e-6 if dtype == np.float32 else 1e-15 * scale + 1e-14
            assert_allclose(P, expected, atol=atol)


@pytest.mark.parametrize(
    ("x", "alpha", "share"),
    [
        (0.0, 1.5, 0.0),
        (1.0, 1.5, 0.1693),
        (1.5, 1.5, 0.3260),
        (2.0, 1.5, 0.5),
        (4.0, 1.5, 1.0),
        (1.0, 1.0, 0.2689),
        (1.0, 2.0, 0.0),
        (1.5, 2.0, 0.25),
    ],
)
def test_shares_of_two_centres_are_the_closed_form(x, alpha, share):
    p = responsibilities([[x]], [[0.0], [4.0]], 2.0, alpha=alpha)
    assert_allclose(p[0, 1], share, atol=5e-5)
    if share in (0.0, 0.5, 1.0):
        assert p[0, 1] == share


@pytest.mark.parametrize("alpha", [1.25, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("sigma", [0.5, 2.0, 16.0])
def test_a_share_is_exactly_zero_from_the_gap_of_the_rule_on(alpha, sigma):
    gap = 2.0 * sigma**2 / (alpha - 1.0)
    centres = np.array([[0.0], [8.0]])
    x = (64.0 - gap * np.array([1.0, 1.01, 0.99])) / 16.0  # d2 gap: 64 - 16 x
    p = responsibilities(x[:, np.newaxis], centres, sigma, alpha=alpha)[:, 1]
    assert p[0] == 0.0
    assert p[1] == 0.0
    assert 0.0 < p[2] < 0.1


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("k", [1, 2, 7, 1000])
def test_equal_scores_share_evenly(alpha, k):
    assert_allclose(entmax(np.full((2, k), -3.7), alpha), 1.0 / k, rtol=1e-12)
    p = responsibilities([[1.0, 2.0]], np.zeros((k, 2)), 0.3, alpha=alpha)
    assert_allclose(p, 1.0 / k, rtol=1e-12)
    assert p.argmax() == 0


# --- F5 -----------------------------------------------------------------------


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_higher_sigma_is_softer(alpha):
    X = np.random.default_rng(0).normal(size=(50, 2))
    supports, largest = [], []
    for sigma in 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 1e3:
        p = responsibilities(X, X[:6], sigma, alpha=alpha)
        supports.append(np.count_nonzero(p > 1e-12, axis=1))
        largest.append(p.max(axis=1))
    assert (np.diff(supports, axis=0) >= 0).all()
    assert (np.diff(largest, axis=0) <= 1e-12).all()
    assert_allclose(largest[-1], 1 / 6, rtol=1e-3)
    for sigma in -1.0, np.nan, np.inf:
        with pytest.raises(ValueError, match="sigma"):
            responsibilities(X, X[:6], sigma, alpha=alpha)


# --- F6 -----------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
def test_the_cold_end_of_annealing_is_kmeans(alpha):
    ours, theirs = [], []
    for seed in range(50):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(60, 2))
        init = X[rng.permutation(60)[:5]]
        schedule = np.geomspace(0.5, 1e-6, 12)
        model = make(n_clusters=5, init=init, schedule=schedule, alpha=alpha).fit(X)
        assert model.hardened_
        assert_fixed_point_of_lloyd(model, X)
        ours.append(model.inertia_)
        theirs.append(KMeans(5, init=init, n_init=1, tol=0.0).fit(X).inertia_)
    assert np.mean(ours) <= np.mean(theirs)


def test_a_fixed_point_of_kmeans_is_one_of_the_soft_model_once_it_is_cold():
    X = blobs(n=60, k=3)
    hard = make(n_clusters=3, schedule=0.0).fit(X)
    threshold = hardening_sigma(X, hard.cluster_centers_)
    cold, warm = (
        make(n_clusters=3, init=hard.cluster_centers_, schedule=factor * threshold)
        for factor in (1.0, 1.5)
    )
    assert_allclose(cold.fit(X).cluster_centers_, hard.cluster_centers_, rtol=1e-13)
    assert cold.hardened_
    assert not warm.fit(X).hardened_
    energy = free_energy(X, hard.cluster_centers_, threshold)
    assert_allclose(energy, hard.inertia_, rtol=1e-12)


# --- F7 -----------------------------------------------------------------------


def test_memberships_after_annealing_to_zero_are_soft_and_adjustable():
    X = np.random.default_rng(0).normal(size=(300, 2))
    model = make(n_clusters=4).fit(X)
    assert model.hardened_
    p = model.predict_proba(X)
    assert (p.max(axis=1) < 0.999).mean() > 0.3
    labels = model.predict(X)
    for sigma in 0.0, 0.01, 10.0:
        assert_array_equal(model.set_params(proba_sigma=sigma).predict(X), labels)


# --- G1 -----------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_thirty_fits_give_one_result(alpha):
    X = np.random.default_rng(0).normal(size=(5000, 10))
    models = [make(n_clusters=6, alpha=alpha, max_iter=8).fit(X) for _ in range(30)]
    for model in models[1:]:
        assert_array_equal(model.cluster_centers_, models[0].cluster_centers_)
        assert_array_equal(model.labels_, models[0].labels_)
        assert model.inertia_ == models[0].inertia_


@pytest.mark.slow
def test_a_search_in_two_processes_gives_the_same_scores():
    X = np.random.default_rng(0).normal(size=(20_000, 20))  # 3 MB: read-only memmaps
    grid = {"n_clusters": [3, 4], "alpha": [1.0, 1.5]}
    one, two = (
        GridSearchCV(make(max_iter=5), grid, cv=2, n_jobs=n_jobs).fit(X)
        for n_jobs in (1, 2)
    )
    for name in "mean_test_score", "split0_test_score", "split1_test_score":
        assert_array_equal(one.cv_results_[name], two.cv_results_[name])


# --- G4 to G7 -----------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.asarray, np.ndarray.tolist, pd.DataFrame])
def test_an_array_start_makes_one_run_and_warns_only_if_more_were_asked_for(kind):
    init = kind(B[[0, -1]])
    for n_init in "auto", 1:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            make(n_clusters=2, init=init, n_init=n_init).fit(B)
    with pytest.warns(RuntimeWarning, match="init") as record:
        make(n_clusters=2, init=init, n_init=10).fit(B)
    assert len(record) == 1


@pytest.mark.parametrize("tol", [0.0, 1e-100, 1e-4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("schedule", ["auto", 0.0, Cyclic()])
def test_a_run_ends_when_the_labels_repeat(tol, dtype, schedule):
    X = np.random.default_rng(0).normal(size=(2000, 3)).astype(dtype)
    model = make(n_clusters=5, tol=tol, schedule=schedule, max_iter=5000).fit(X)
    assert model.n_iter_ < 300
    assert model.hardened_


@pytest.mark.parametrize("schedule", [0.8, Linear(harden=False)])
def test_a_soft_run_without_tolerance_still_ends(schedule):
    X = np.random.default_rng(0).normal(size=(200, 2))
    model = make(n_clusters=3, tol=0.0, schedule=schedule, max_iter=2000).fit(X)
    assert model.n_iter_ < 2000
    assert model.history_["shift"][-1] < 1e-14  # nothing but rounding


def test_constant_features_do_not_distort_the_tolerance():
    X = np.random.default_rng(0).normal(size=(200, 2))
    padded = np.hstack([X, np.full((200, 2), 1e6)])
    init = X[:3]
    model = make(n_clusters=3, schedule=0.6, init=init, tol=1e-6).fit(X)
    other = make(
        n_clusters=3,
        schedule=0.6,
        init=np.hstack([init, np.full((3, 2), 1e6)]),
        tol=2e-6,  # the mean variance is halved by two constant features
    ).fit(padded)
    assert model.n_iter_ == other.n_iter_
    assert_allclose(other.cluster_centers_[:, :2], model.cluster_centers_, rtol=1e-9)


@pytest.mark.parametrize("max_iter", [1, 4, 9])
def test_a_long_schedule_is_cut_at_max_iter(max_iter):
    X = np.random.default_rng(0).normal(size=(100, 2))
    for schedule in Geometric(n_steps=50, n_iter=5), Cyclic(n_cycles=9), [1.0] * 40:
        model = make(n_clusters=4, schedule=schedule, max_iter=max_iter).fit(X)
        assert model.n_iter_ == max_iter
    with pytest.raises(ValueError, match="max_iter"):
        make(max_iter=0).fit(X)


def test_nothing_is_printed_by_a_hundred_silent_fits(capfd):
    for seed in range(100):
        make(n_clusters=2, random_state=seed).fit(B)
    assert capfd.readouterr() == ("", "")


# --- H1, H4, H5, H11 ----------------------------------------------------------


def test_arrays_as_parameters_survive_clone_repr_and_a_grid():
    init, sigmas = B[[0, -1]], np.geomspace(1.0, 0.01, 5)
    model = make(n_clusters=2, init=init, schedule=sigmas)
    assert model.get_params()["schedule"] is sigmas
    assert "RBFKMeans" in repr(model)
    twin = clone(model)
    assert_array_equal(twin.init, init)
    assert_array_equal(twin.fit(B).labels_, model.fit(B).labels_)
    grid = {"schedule": [sigmas, 2 * sigmas, [1.0, 0.0], Geometric(), "auto", 0.5]}
    search = GridSearchCV(model, grid, cv=2).fit(B)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_a_search_works_without_classes_with_them_and_with_a_callable_score():
    X, truth = blobs(n=60, k=3), np.repeat([0, 1, 2], 20)
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
        for method in SOFT_METHODS:
            getattr(model, method)(frame)
    for method in SOFT_METHODS:
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
    for method in SOFT_METHODS:
        with pytest.raises(NotFittedError):
            getattr(model, method)(B)
    assert not hasattr(model, "n_features_in_")


# --- J1, J3 -------------------------------------------------------------------

MANY = """
import numpy as np
from skrbfkmeans import RBFKMeans
X = np.random.default_rng(0).normal(size=(200_000, 2))
model = RBFKMeans(2000, init="random", n_init=1, max_iter=1, random_state=0{more})
for rows in X[:3000],:  # compile first
    small = RBFKMeans(2000, init="random", n_init=1, max_iter=1, random_state=0{more})
    small.fit(rows).predict(rows), small.score(rows)
BEGIN
model.fit(X)
assert (model.labels_ == model.predict(X)).all()
assert model.inertia_ == -model.score(X)
"""


@pytest.mark.slow
@pytest.mark.parametrize("more", ["", ", alpha=1.0", ", schedule=0.05"])
def test_no_matrix_of_rows_by_clusters_is_built(more, peak_in_megabytes):
    assert peak_in_megabytes(MANY.format(more=more)) < 200.0  # a matrix has 3200


SOFT = """
import numpy as np
from skrbfkmeans import RBFKMeans
X = np.random.default_rng(0).normal(size=(50_000, 2))
model = RBFKMeans(500, init="random", n_init=1, max_iter=1).fit(X[:1000])
model.transform(X[:1000]), model.predict_proba(X[:1000])
BEGIN
for features in "distance", "rbf", "responsibility":
    assert model.set_params(features=features).transform(X).shape == (50_000, 500)
"""


@pytest.mark.slow
def test_features_take_the_memory_of_what_is_returned_once(peak_in_megabytes):
    assert peak_in_megabytes(SOFT) < 191.0 + 60.0


@pytest.mark.slow
def test_seeding_of_many_clusters_is_quick_and_small(peak_in_megabytes):
    X = np.random.default_rng(0).normal(size=(20_000, 2))
    make(n_clusters=20, max_iter=1).fit(X)  # compile first
    start = time.perf_counter()
    model = make(n_clusters=2000, max_iter=1, schedule=0.0).fit(X)
    assert time.perf_counter() - start < 20.0
    assert len(np.unique(model.labels_)) == 2000
    code = """
import numpy as np
from skrbfkmeans import RBFKMeans
X = np.random.default_rng(0).normal(size=(20_000, 2))
RBFKMeans(20, max_iter=1).fit(X)
BEGIN
RBFKMeans(1000, max_iter=1, schedule=0.0).fit(X)
"""
    assert peak_in_megabytes(code) < 60.0  # a matrix has 160


def test_one_enormous_row_does_not_change_the_labels_of_the_others():
    X, _ = make_blobs(40, 2, centers=[[0, 0], [10, 10]], random_state=0)
    model = RBFKMeans(2, random_state=0).fit(X)
    labels = model.predict(np.vstack([X, [[1e170, 0.0]]]))
    np.testing.assert_array_equal(labels[:-1], model.labels_)


@pytest.mark.parametrize("seed", range(240, 250))
def test_a_hardened_float32_model_is_a_fixed_point_of_the_centres_it_stores(seed):
    X = np.array([5, 6, 2, 8, 6, 7, 3, 0, 4, 2, 3], dtype=np.float32)[:, np.newaxis]
    model = RBFKMeans(3, schedule=0.0, random_state=seed).fit(X)
    assert model.hardened_
    means = [X[model.labels_ == j].mean(axis=0) for j in range(3)]
    np.testing.assert_allclose(model.cluster_centers_, means, rtol=1e-6)
