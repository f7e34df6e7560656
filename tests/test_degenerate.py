"""Duplicates, far centres, one cluster, as many clusters as rows.

The label before a group of tests is its number on the list of what broke for the
users of other packages.
"""

# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import pytest
from estimator_helpers import (
    ALPHAS,
    METHODS,
    B,
    assert_finite,
    assert_fixed_point_of_lloyd,
    assert_methods_agree,
    assert_split,
    clear_blobs,
    make,
)
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from skrbfkmeans.energy import hardening_sigma
from skrbfkmeans.schedules import Constant, Cyclic, Geometric

pytestmark = pytest.mark.compiled


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
    X = clear_blobs(d=1)
    model = make(n_clusters=2, alpha=alpha).fit(X)
    assert_split(model.labels_)


@pytest.mark.parametrize("method", METHODS)
def test_no_rows_are_refused_as_scikit_learn_does(method):
    model = make(n_clusters=2).fit(B)
    with pytest.raises(ValueError, match=r"0 sample.*minimum of 1"):
        getattr(model, method)(B[:0])


# --- B12 ----------------------------------------------------------------------


@pytest.mark.parametrize("init", ["k-means++", "random"])
@pytest.mark.parametrize(("n", "d", "k"), [(200, 3, 50), (60, 1, 50), (80, 20, 70)])
def test_many_clusters_are_all_used(init, n, d, k):
    X = np.random.default_rng(0).normal(size=(n, d))
    for seed in range(10):
        model = make(n_clusters=k, init=init, n_init=1, random_state=seed).fit(X)
        assert len(np.unique(model.labels_)) == k
        assert model.hardened_
