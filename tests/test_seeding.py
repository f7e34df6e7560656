"""Greedy k-means++: the draws of scikit-learn, and the distances behind them."""

# SPDX-License-Identifier: BSD-3-Clause

import naive
import numpy as np
import pytest
from scipy import sparse, stats
from sklearn.cluster import kmeans_plusplus as peer

from skrbfkmeans._engine import threads as engine_threads
from skrbfkmeans._engine.rows import Rows
from skrbfkmeans._engine.threads import Threads
from skrbfkmeans._run.seeding import (
    BatchedTrials,
    ColumnTrials,
    Distances,
    kmeans_plusplus,
)

pytestmark = pytest.mark.kernel


def blobs(n, d, dtype="f8", offset=0.0):
    rng = np.random.default_rng([n, d])
    centers = 5.0 * rng.normal(size=(7, d)) + offset
    return (centers[rng.integers(7, size=n)] + rng.normal(size=(n, d))).astype(dtype)


def seeds(X, k, seed, weights=None):
    with Rows(X, weights) as rows:
        return kmeans_plusplus(rows, k, np.random.RandomState(seed))


@pytest.mark.compiled
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("d", [1, 2, 10, 16])
def test_the_same_seed_draws_the_rows_that_scikit_learn_draws(d, weighted):
    X = blobs(6000, d)
    weights = np.random.default_rng(0).uniform(0.1, 2.0, 6000) if weighted else None
    for seed in range(5):
        theirs = peer(X, 20, sample_weight=weights, random_state=seed)[1]
        np.testing.assert_array_equal(seeds(X, 20, seed, weights), theirs)


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("kind", "weighted"), [(np.asarray, True), (sparse.csr_matrix, False)]
)
def test_rows_drawn_for_several_centres_have_the_distribution_of_scikit_learn(
    kind, weighted
):
    """Of 1200 seeds, the rows that become the second, fourth and last centre."""
    rng = np.random.default_rng(3)
    scales = np.array([1.0, 2.0, 4.0, 8.0]).repeat(5)[:, np.newaxis]
    X = kind(scales * rng.normal(size=(20, 20)))
    weights = rng.integers(1, 5, size=20).astype(np.float64) if weighted else None
    ours, theirs = [], []
    with Rows(X, weights) as rows:
        for seed in range(1200):
            ours.append(kmeans_plusplus(rows, 8, np.random.RandomState(seed)))
            theirs.append(
                peer(X, 8, sample_weight=weights, random_state=7000 + seed)[1]
            )
    ours, theirs = np.array(ours), np.array(theirs)
    for c in (0, 1, 3, 7):
        counts = [np.bincount(drawn[:, c], minlength=20) for drawn in (ours, theirs)]
        often = np.sum(counts, axis=0) >= 20
        assert stats.chi2_contingency(np.array(counts)[:, often]).pvalue > 1e-3


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("dtype", "offset"),
    [("f8", 0.0), ("f8", 1e3), ("f8", 1e12), ("f4", 0.0), ("f4", 1e3)],
)
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("d", [1, 3, 16, 17, 40])
def test_distances_and_gains_equal_their_twins(d, kind, offset, dtype):
    X = blobs(2100, d, dtype, offset)
    X[100:120] = X[5]  # distances of exactly 0
    weights = np.random.default_rng(1).uniform(0.0, 2.0, 2100)
    weights[::5] = 0.0
    scale = np.square(np.abs(X).max(), dtype=np.float64) * d
    rng = np.random.RandomState(2)
    with Rows(kind(X), weights) as rows:
        distances = Distances(rows)
        trials = (ColumnTrials if d <= 16 else BatchedTrials)(rows, distances, 4)
        chosen = list(distances.draw(1, rng))
        distances.claim(chosen[0], 0)
        for c in range(1, 9):
            closest = naive.squared_distances(X, X[chosen]).min(axis=1)
            np.testing.assert_allclose(
                distances.closest, closest, rtol=0.0, atol=1e-13 * scale
            )
            assert np.all(distances.closest[chosen] == 0.0)
            drawn, gains = trials.draw(c, 9 - c, rng)
            assert np.all((weights[drawn] > 0.0) & (closest[drawn] > 0.0))
            left = naive.potentials(X, weights, closest, X[drawn])
            total = weights @ closest
            atol = 0.02 * total + 1e-13 * scale * weights.sum()
            np.testing.assert_allclose(gains, total - left, rtol=0.0, atol=atol)
            chosen.append(drawn[c % 4])
            distances.claim(drawn[c % 4], c % 4)


@pytest.mark.compiled
@pytest.mark.parametrize("d", [2, 30])
def test_clusters_too_tight_for_float32_are_told_apart(d):
    """Two places far apart, each of which is five clusters of its own."""
    rng = np.random.default_rng(d)
    centers = rng.normal(size=(10, d))
    X = centers[rng.integers(10, size=3000)] + 1e-3 * rng.normal(size=(3000, d))
    X[:1500] += 1e9
    codes = [np.unique(X[seeds(X, 20, seed)].round(1), axis=0) for seed in range(5)]
    assert np.median([len(code) for code in codes]) >= 19


@pytest.mark.compiled
def test_more_trials_than_bits_are_tried():
    X = blobs(3000, 2)
    with Rows(X) as rows:
        distances = Distances(rows)
        trials = ColumnTrials(rows, distances, 19)
        distances.claim(0, 0)
        drawn, gains = trials.draw(1, 9, np.random.RandomState(0))
        left = naive.potentials(X, np.ones(3000), distances.closest, X[drawn])
        np.testing.assert_allclose(distances.closest.sum() - gains, left, rtol=1e-3)
        distances.claim(drawn[17], 17)
        closest = naive.squared_distances(X, X[[0, drawn[17]]]).min(axis=1)
        np.testing.assert_allclose(distances.closest, closest, atol=1e-12)


@pytest.mark.compiled
@pytest.mark.parametrize("d", [2, 30])
def test_seeds_are_the_same_for_any_number_of_threads(d, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    monkeypatch.setattr(engine_threads, "FEW_STRIPS", 2)
    X = blobs(70_000, d)
    found = []
    for n_threads in (1, 3):
        with Rows(X, threads=Threads(n_threads)) as rows:
            assert len(rows.strips(1)) > 1
            found.append(kmeans_plusplus(rows, 9, np.random.RandomState(0)))
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("d", [2, 20])
def test_rows_of_zero_weight_are_never_drawn(d):
    X = blobs(60, d)
    weights = np.zeros(60)
    weights[::3] = 1.0
    for seed in range(10):
        assert np.all(seeds(X, 15, seed, weights) % 3 == 0)


def test_when_no_row_is_left_further_centres_repeat_some():
    X = np.repeat(blobs(4, 3), 5, axis=0)
    drawn = seeds(X, 9, 0)
    assert len(np.unique(X[drawn], axis=0)) == 4


@pytest.mark.parametrize("d", [2, 20])
@pytest.mark.parametrize("kind", ["far and weightless", "tiny and heavy"])
def test_distances_beyond_the_range_of_float32_are_exact(kind, d):
    """The mean, which is their unit, is far from some of them."""
    X, weights = blobs(200, d), np.ones(200)
    if kind == "tiny and heavy":
        X[:100] *= 1e-20
        weights[:100] = 1e40
    else:
        X[:5] *= 1e30
        weights[:5] = 0.0
    rng = np.random.RandomState(0)
    with Rows(X, weights) as rows:
        distances = Distances(rows)
        trials = (ColumnTrials if d <= 16 else BatchedTrials)(rows, distances, 4)
        distances.claim(7, 0)
        chosen = [7]
        for c in range(1, 9):
            drawn, gains = trials.draw(c, 9 - c, rng)
            assert np.all(np.isfinite(gains))
            best = np.argmax(gains)
            chosen.append(drawn[best])
            distances.claim(drawn[best], best)
            closest = naive.squared_distances(X, X[chosen]).min(axis=1)
            np.testing.assert_allclose(distances.closest, closest, rtol=1e-12)


@pytest.mark.parametrize("d", [2, 20])
@pytest.mark.parametrize("exponent", [-74, -148, 127])
def test_weights_all_multiplied_draw_the_same_seeds(d, exponent):
    X, weights = blobs(300, d), np.random.default_rng(0).uniform(0.1, 2.0, 300)
    for seed in range(5):
        ours = seeds(X, 12, seed, np.ldexp(weights, exponent))
        np.testing.assert_array_equal(ours, seeds(X, 12, seed, weights))
