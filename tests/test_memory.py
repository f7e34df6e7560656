"""No matrix of rows by clusters is built, and what the peaks are.

The label before a group of tests is its number on the list of what broke for the
users of other packages.
"""

# SPDX-License-Identifier: BSD-3-Clause

import time

import numpy as np
import pytest
from estimator_helpers import make

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
