"""Rows, starts and weights of which some are out of all proportion to the rest."""

# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skrbfkmeans import RBFKMeans
from skrbfkmeans.energy import free_energy, responsibilities

BOTH = pytest.mark.parametrize("dtype", [np.float32, np.float64])
N = 400


def two_groups(dtype=np.float64, d=2):
    """Two clear groups of 200 rows each."""
    rng = np.random.default_rng(0)
    return (rng.normal(size=(N, d)) + 12.0 * (np.arange(N) % 2)[:, np.newaxis]).astype(
        dtype
    )


def own_means(rows, labels):
    """Mean of each group of rows, and how many groups there are."""
    found = np.unique(labels)
    return found, np.array([rows[labels == j].mean(axis=0) for j in found])


@pytest.mark.parametrize("alpha", [1.0, 1.5])
@pytest.mark.parametrize("d", [2, 20])
@pytest.mark.parametrize("far", [1e8, 1e12, 1e18, -1e30, 1e100])
def test_a_far_row_costs_the_other_centres_no_digit(far, d, alpha):
    rows = two_groups(d=d)
    X = np.concatenate([rows, np.full((1, d), far)])
    init = np.array([np.zeros(d), np.full(d, 12.0), np.full(d, far)])
    for schedule in (0.0, 0.5, "auto"):
        model = RBFKMeans(3, init=init, schedule=schedule, alpha=alpha).fit(X)
        found, means = own_means(rows, model.labels_[:N])
        if schedule == 0.0 or model.hardened_:
            assert_allclose(model.cluster_centers_[found], means, atol=1e-13)
        assert_array_equal(model.labels_, model.predict(X))
        assert model.inertia_ == -model.score(X)


@BOTH
@pytest.mark.parametrize("far", [1e20, 1e22, 1e30, 3e38])
def test_a_far_row_does_not_change_the_labels_of_the_others_in_predict(far, dtype):
    rows = two_groups(dtype, d=12)
    model = RBFKMeans(2, random_state=0).fit(rows)
    X = np.concatenate([rows, np.full((1, 12), far, dtype=dtype)])
    assert_array_equal(model.predict(X)[:N], model.labels_)
    assert model.predict_proba(X).dtype == dtype
    assert_array_equal(model.predict_proba(X)[:N], model.predict_proba(rows))


@BOTH
@pytest.mark.parametrize("far", [1e8, 1e20, 3e38])
@pytest.mark.parametrize("max_iter", [1, 2, 300])
def test_a_start_far_from_all_rows_costs_no_digit(far, max_iter, dtype):
    rows = two_groups(dtype)
    model = RBFKMeans(1, init=[[far, far]], schedule=0.0, max_iter=max_iter).fit(rows)
    exact = rows.mean(axis=0, dtype=np.float64).astype(dtype)
    rounding = 4.0 * np.finfo(dtype).eps * np.abs(rows).max()
    assert_allclose(model.cluster_centers_[0], exact, atol=rounding, rtol=0.0)
    assert model.cluster_centers_.dtype == dtype
    assert model.inertia_ == -model.score(rows)


def test_the_gradient_of_far_rows_keeps_its_digits():
    rows = two_groups() + 1e9
    centers = rows[:2] + 0.25
    _, gradient = free_energy(rows, centers, 0.0, return_gradient=True)
    labels = np.argmin(((rows[:, np.newaxis] - centers) ** 2).sum(axis=2), axis=1)
    for j in range(2):
        expected = 2.0 * (centers[j] - rows[labels == j]).sum(axis=0)
        assert_allclose(gradient[j], expected, rtol=1e-12)


def test_distances_too_large_for_float32_are_refused_with_a_reason():
    rows = two_groups(np.float32)
    model = RBFKMeans(2, random_state=0).fit(rows)
    with pytest.raises(
        ValueError, match=r"X is too far .* range of float32, 3\.4e\+38"
    ):
        model.transform(np.full((1, 2), 3e38, dtype=np.float32))
    assert np.isfinite(model.transform(np.full((1, 2), 2e38, dtype=np.float32))).all()


def test_a_start_too_large_for_float32_is_refused_with_a_reason():
    with pytest.raises(ValueError, match=r"init is too large for float32"):
        RBFKMeans(1, init=[[1e39, 0.0]]).fit(two_groups(np.float32))


@pytest.mark.parametrize("d", [2, 12])
def test_clusters_of_tiny_weight_are_clusters(d):
    rows = two_groups(d=d)
    weights = 10.0 ** -np.random.default_rng(0).integers(0, 30, size=N)
    weights[::2] *= 1e-40  # all of one group
    init = np.array([np.zeros(d), np.full(d, 12.0)])
    model = RBFKMeans(2, init=init, schedule=0.0).fit(rows, sample_weight=weights)
    assert model.hardened_
    assert model.n_iter_ <= 3
    assert_array_equal(model.labels_, np.arange(N) % 2)
    for j in range(2):
        mean = np.average(rows[j::2], axis=0, weights=weights[j::2])
        assert_allclose(model.cluster_centers_[j], mean, rtol=1e-12)


@pytest.mark.parametrize("d", [2, 20])
@pytest.mark.parametrize("alpha", [1.0, 1.5, 1.7])
def test_float32_memberships_do_not_depend_on_the_neighbours(d, alpha):
    X = (np.random.default_rng(0).normal(size=(300, d)) + 100.0).astype(np.float32)
    centers = X[:7]
    together = responsibilities(X, centers, 1.0, alpha=alpha)
    alone = [
        responsibilities(X[i : i + 1], centers, 1.0, alpha=alpha) for i in range(9)
    ]
    assert together.dtype == np.float32
    assert_allclose(together[:9], np.concatenate(alone), rtol=4e-7, atol=1e-30)
    few = responsibilities(X, centers, 1.0, alpha=alpha, sparse_output=True)
    assert_allclose(few.toarray(), together, rtol=4e-7, atol=1e-30)


def test_rows_one_rounding_apart_are_distinct_rows():
    X = 1.0 + np.arange(6.0)[:, np.newaxis] * np.finfo(np.float64).eps
    model = RBFKMeans(6, init=np.full((6, 1), 1.0), schedule=0.0).fit(X)
    assert len(np.unique(model.labels_)) == 6
    assert model.inertia_ == 0.0


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
def test_a_softmax_run_that_hardens_leaves_no_centre_empty(alpha):
    rng = np.random.default_rng(0)
    X = 50.0 * rng.normal(size=(6, 56))
    weights = [1e-6, 6e-8, 2e-10, 1e-3, 9e-4, 8e-3]
    init = np.concatenate([X[:3], 60.0 * rng.normal(size=(3, 56))])
    model = RBFKMeans(6, init=init, schedule=0.5, alpha=alpha)
    model.fit(X, sample_weight=weights)
    assert model.hardened_
    assert len(np.unique(model.labels_)) == 6


@BOTH
def test_runs_that_differ_by_rounding_only_are_a_tie(dtype):
    X = two_groups(dtype)
    starts = iter([X[[0, 1]], X[[1, 0]], X[[3, 2]], X[[5, 4]]])
    model = RBFKMeans(
        2, init=lambda X, k, random_state: next(starts), n_init=4, schedule=0.5
    )
    first = RBFKMeans(2, init=X[[0, 1]], schedule=0.5).fit(X)
    assert_array_equal(model.fit(X).labels_, first.labels_)


def test_the_best_of_huge_float32_runs_is_found_without_a_warning(recwarn):
    X = two_groups(np.float32) * np.float32(1e30)
    model = RBFKMeans(2, n_init=3, random_state=0).fit(X)
    assert len(np.unique(model.labels_)) == 2
    assert not recwarn.list


@pytest.mark.parametrize("alpha", [1.5, 2.7])
def test_a_free_energy_near_the_end_of_the_range_is_no_cause_for_a_warning(alpha):
    X = np.random.default_rng(0).normal(size=(20, 2))
    model = RBFKMeans(2, schedule=1e150, alpha=alpha, max_iter=3, random_state=0)
    model.fit(X, sample_weight=np.full(20, 1e6))
    assert np.all(model.history_["free_energy"] < -1e305)
    assert np.all(np.isfinite(model.cluster_centers_))
