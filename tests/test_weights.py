"""`sample_weight`: what it counts for, and which weights are taken.

The label before a group of tests is its number on the list of what broke for the
users of other packages.
"""

# SPDX-License-Identifier: BSD-3-Clause

import inspect

import numpy as np
import pandas as pd
import pytest
from estimator_helpers import (
    ALPHAS,
    INIT,
    STEPS_HISTORY,
    WEIGHTS,
    B,
    X,
    assert_same_state,
    make,
)
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skrbfkmeans import RBFKMeans
from skrbfkmeans.schedules import Constant, Cyclic, Geometric, Linear

pytestmark = pytest.mark.compiled


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


# --- D7, D9 -------------------------------------------------------------------


def test_weights_that_are_all_zero_are_refused():
    for weights in np.zeros(40), [0] * 40, np.zeros(40, dtype=bool):
        with pytest.raises(ValueError, match=r"(?i)weight.*zero"):
            make(n_clusters=2).fit(B, sample_weight=weights)


@pytest.mark.parametrize("shape", [(40, 1), (1, 40), (39,), (41,), (40, 2)])
def test_weights_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"(?i)sample.?weight"):
        make(n_clusters=2).fit(B, sample_weight=np.ones(shape))


# --- weights of any magnitude -------------------------------------------------

EXTREME_ROWS = np.random.default_rng(0).normal(size=(400, 3))
RATIOS = 10.0 ** np.random.default_rng(3).uniform(-12, 4, len(EXTREME_ROWS))
MAGNITUDES = {
    "of many magnitudes": RATIOS,
    "denormal": np.ceil(RATIOS % 50.0) * 5e-324,
    "whose sum is out of range": (0.5 + RATIOS % 1.0) * 1e308,
    "from the least to the largest": 10.0 ** np.linspace(-320, 300, len(EXTREME_ROWS)),
    "that one row has nearly all of": np.append(
        1e300, np.full(len(EXTREME_ROWS) - 1, 1e-300)
    ),
}


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("refine", ["auto", 40, None])
@pytest.mark.parametrize("k", [1, 2, 5, 8])
@pytest.mark.parametrize("name", MAGNITUDES)
def test_weights_of_any_magnitude_are_fitted_without_a_warning(name, k, refine, dtype):
    rows = (EXTREME_ROWS * 1e-6).astype(dtype)  # or the inertia is out of range
    model = RBFKMeans(k, random_state=0, refine=refine)
    model.fit(rows, sample_weight=MAGNITUDES[name])
    assert np.isfinite(model.cluster_centers_).all()
    assert 0.0 <= model.sigma_ < np.inf
    assert len(np.unique(model.labels_)) == k
    assert_array_equal(model.labels_, model.predict(rows))


@pytest.mark.parametrize("power", [-1060, -700, 700, 1010])
@pytest.mark.parametrize("refine", ["auto", None])
def test_scaling_all_weights_changes_nothing_but_the_inertia(power, refine):
    weights = 1.0 + np.arange(len(EXTREME_ROWS)) % 7
    rows = EXTREME_ROWS * 1e-3
    model = RBFKMeans(5, random_state=0, refine=refine).fit(rows, sample_weight=weights)
    other = RBFKMeans(5, random_state=0, refine=refine)
    other.fit(rows, sample_weight=np.ldexp(weights, power))
    assert_array_equal(other.cluster_centers_, model.cluster_centers_)
    assert_array_equal(other.labels_, model.labels_)
    assert other.sigma_ == model.sigma_
