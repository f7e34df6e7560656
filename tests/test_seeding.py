"""Greedy k-means++: the draws of scikit-learn, and the distances behind them."""

import naive
import numpy as np
import pytest
from scipy import sparse
from sklearn.cluster import kmeans_plusplus as peer

from skrbfkmeans._blocks import Rows
from skrbfkmeans._seeding import Distances, kmeans_plusplus

dtypes = pytest.mark.parametrize("dtype", ["f8", "f4"])


def blobs(n, d, dtype="f8", offset=0.0):
    rng = np.random.default_rng([n, d])
    centers = 5.0 * rng.normal(size=(7, d)) + offset
    return (centers[rng.integers(7, size=n)] + rng.normal(size=(n, d))).astype(dtype)


def seeds(X, k, seed, weights=None):
    with Rows(X, weights) as rows:
        return kmeans_plusplus(rows, k, np.random.RandomState(seed))


@pytest.mark.compiled
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("d", [1, 2, 10, 17, 64])
def test_the_same_seed_draws_the_rows_that_scikit_learn_draws(d, weighted):
    X = blobs(2000, d)
    weights = np.random.default_rng(0).uniform(0.1, 2.0, 2000) if weighted else None
    for seed in range(5):
        theirs = peer(X, 20, sample_weight=weights, random_state=seed)[1]
        np.testing.assert_array_equal(seeds(X, 20, seed, weights), theirs)


@pytest.mark.compiled
@dtypes
@pytest.mark.parametrize("offset", [0.0, 1e3])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("d", [1, 3, 16, 17, 40])
def test_distances_and_gains_equal_their_twins(d, kind, offset, dtype):
    X = blobs(900, d, dtype, offset)
    X[100:120] = X[5]  # distances of exactly 0
    weights = np.random.default_rng(1).uniform(0.0, 2.0, 900)
    weights[::5] = 0.0
    scale = np.square(np.abs(X).max(), dtype=np.float64) * d
    with Rows(kind(X), weights) as rows:
        distances = Distances(rows, 8, 4)
        chosen = []
        for trials in np.random.default_rng(2).integers(900, size=(8, 4)):
            gains = distances.gains(trials)
            if chosen:
                closest = naive.squared_distances(X, X[chosen]).min(axis=1)
                left = naive.potentials(X, weights, closest, X[trials])
                atol = 1e-13 * scale * weights.sum()
                np.testing.assert_allclose(gains, weights @ closest - left, atol=atol)
            distances.claim(1)
            chosen.append(trials[1])
            closest = naive.squared_distances(X, X[chosen]).min(axis=1)
            present = weights > 0.0
            np.testing.assert_allclose(
                distances._closest[present], closest[present], atol=1e-13 * scale
            )
            assert np.all(distances._closest[chosen] == 0.0)


def test_rows_of_zero_weight_are_never_drawn():
    X = blobs(60, 2)
    weights = np.zeros(60)
    weights[::3] = 1.0
    for seed in range(10):
        assert np.all(seeds(X, 15, seed, weights) % 3 == 0)


def test_when_no_row_is_left_further_centres_repeat_some():
    X = np.repeat(blobs(4, 3), 5, axis=0)
    drawn = seeds(X, 9, 0)
    assert len(np.unique(X[drawn], axis=0)) == 4
