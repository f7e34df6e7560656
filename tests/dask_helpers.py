"""Fits in chunks and their plain twins, for the tests of Dask."""

# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from skrbfkmeans import RBFKMeans as LocalRBFKMeans

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

from skrbfkmeans.dask import RBFKMeans  # noqa: E402

X = make_blobs(3000, 4, centers=12, cluster_std=3.0, random_state=0)[0]
WEIGHTS = np.random.default_rng(1).integers(0, 4, len(X)).astype(float)
START = X[:12]


def fits(chunks, client=None, weights=None, X=X, **parameters):
    """A plain fit and one in chunks, from the same start."""
    options = {"n_clusters": 12, "init": START, "random_state": 0, **parameters}
    plain = LocalRBFKMeans(**options).fit(X, sample_weight=weights)
    if not isinstance(X, da.Array):
        X = da.from_array(X, chunks=chunks)
    return plain, RBFKMeans(**options, client=client).fit(X, sample_weight=weights)


def assert_same(plain, chunked, tolerance=1e-9):
    scale = np.abs(plain.cluster_centers_).max()
    np.testing.assert_allclose(
        chunked.cluster_centers_, plain.cluster_centers_, rtol=0, atol=tolerance * scale
    )
    np.testing.assert_array_equal(chunked.labels_, plain.labels_)
    np.testing.assert_allclose(chunked.inertia_, plain.inertia_, rtol=tolerance)
    np.testing.assert_allclose(chunked.sigma_, plain.sigma_, rtol=tolerance)
    assert chunked.cluster_centers_.dtype == plain.cluster_centers_.dtype
    assert chunked.hardened_ == plain.hardened_
    assert chunked.n_iter_ == plain.n_iter_
    for name in "sigma", "free_energy", "inertia", "shift", "soft_fraction", "support":
        values = plain.history_[name]
        np.testing.assert_allclose(
            chunked.history_[name], values, rtol=1e-6, atol=1e-6 * scale
        )
