"""No matrix of rows by clusters is built, and what the peaks are.

The label before a group of tests is its number on the list of what broke for the
users of other packages.
"""

# SPDX-License-Identifier: BSD-3-Clause

import time

import numpy as np
import pytest
from estimator_helpers import make
from scipy import sparse

from skrbfkmeans._engine import passes
from skrbfkmeans._engine import rows as rows_module

pytestmark = pytest.mark.compiled


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


# --- copies of the rows -------------------------------------------------------

COPIES = """
import numpy as np
from skrbfkmeans import RBFKMeans
rng = np.random.default_rng(0)
centers = rng.uniform(-30, 30, (40, {d}))
X = (centers[rng.integers(40, size={n})] + rng.normal(size=({n}, {d}))) * {scale}
X = X.astype("{dtype}")
few = X[:4000]
weights = {weights}
light = None if weights is None else weights[:4000]
RBFKMeans(40, random_state=0).fit(few, sample_weight=light)
BEGIN
model = RBFKMeans(40, random_state=0, max_iter=40).fit(X, sample_weight=weights)
assert len(set(model.labels_)) == 40
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "d", "dtype", "scale", "weights"),
    [
        (1_600_000, 16, "f8", 1.0, "None"),
        (1_600_000, 32, "f4", 1e8, "None"),
        (1_600_000, 16, "f8", 1.0, "np.ones(len(X))"),
    ],
)
def test_fit_copies_no_more_than_a_part_of_its_rows(
    peak_in_megabytes, n, d, dtype, scale, weights
):
    """Besides 64 MB of them, 33 bytes a row: distances, bounds and labels."""
    code = COPIES.format(n=n, d=d, dtype=dtype, scale=scale, weights=weights)
    assert peak_in_megabytes(code) < 40e-6 * n + 2 * 64.0  # the rows take 205


@pytest.mark.parametrize("kind", ["dense", "sparse", "weighted"])
def test_starts_and_swaps_of_large_data_see_a_bounded_sample(monkeypatch, kind):
    monkeypatch.setattr(passes, "MOST_COPIED", 48_000)
    monkeypatch.setattr(rows_module, "MOST_COPIED", 48_000)
    X = np.random.default_rng(0).normal(size=(20_000, 3))
    weights = np.arange(20_000.0) % 5 if kind == "weighted" else None
    data = sparse.csr_matrix(X) if kind == "sparse" else X
    with rows_module.Rows(data, weights) as rows:
        for k in (2, 500):
            with rows.sample(k, np.random.RandomState(0)) as some:
                assert some is not rows
                assert sum(array.nbytes for array in some.arrays) <= max(
                    48_000, 2 * k * 3 * 16
                )
                assert some.n_rows >= 2 * k
    model = make(n_clusters=30, random_state=0).fit(data, sample_weight=weights)
    again = make(n_clusters=30, random_state=0).fit(data, sample_weight=weights)
    assert np.array_equal(model.cluster_centers_, again.cluster_centers_)
    alone = make(n_clusters=30, random_state=0, refine=None)
    alone.fit(data, sample_weight=weights)
    assert model.inertia_ <= alone.inertia_
    assert model.hardened_


def test_a_sample_has_its_rows_by_their_weights(monkeypatch):
    monkeypatch.setattr(rows_module, "MOST_COPIED", 100)
    monkeypatch.setattr(passes, "MOST_COPIED", 800)
    X, weights = np.arange(1000.0)[:, np.newaxis], np.zeros(1000)
    weights[::10], weights[500] = 1.0, 100.0
    rows = rows_module.Rows(X, weights)
    with rows, rows.sample(3, np.random.RandomState(0)) as some:
        assert (some.X[:, 0] % 10 == 0).all()
        assert some.weight == 100.0
        assert 45 <= some.weights[some.X[:, 0] == 500.0].sum() <= 55
