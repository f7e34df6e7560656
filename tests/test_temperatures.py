"""How soft memberships are: cold is k-means, and warm after the fit as asked.

The label before a group of tests is its number on the list of what broke for the
users of other packages.
"""

# SPDX-License-Identifier: BSD-3-Clause

import copy

import numpy as np
import pytest
from estimator_helpers import (
    ALPHAS,
    WEIGHTS,
    X,
    assert_fixed_point_of_lloyd,
    assert_same_state,
    clear_blobs,
    make,
)
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.cluster import KMeans

from skrbfkmeans import RBFKMeans
from skrbfkmeans.energy import free_energy, hardening_sigma, responsibilities
from skrbfkmeans.schedules import Geometric, Linear

pytestmark = pytest.mark.compiled


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
    X = clear_blobs(n=60, k=3)
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
