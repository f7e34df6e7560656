"""Labels, memberships, inertia and scores tell one story, in every fit.

The label before a group of tests is its number on the list of what broke for the
users of other packages.
"""

# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from estimator_helpers import ALPHAS, assert_methods_agree, labelled_blobs, make
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import GridSearchCV

from skrbfkmeans import RBFKMeans
from skrbfkmeans.energy import responsibilities
from skrbfkmeans.schedules import Cyclic

pytestmark = pytest.mark.compiled


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


# --- methods agree ------------------------------------------------------------


CONFIGURATIONS = [
    {},
    {"alpha": 1.0},
    {"alpha": 2.0, "learning_rate": 0.5},
    {"schedule": 0.0, "init": "random", "n_init": 2},
    {"schedule": 1.0, "alpha": 1.0},
    {"schedule": Cyclic(harden=False)},
    {"max_iter": 1},
    {"max_iter": 2, "schedule": 3.0},
    {"tol": 0.1, "schedule": 3.0},
    {"tol": 0.0, "n_clusters": 12},
    {"n_clusters": 1},
    {"schedule": 1e3},
]


@pytest.mark.compiled
@pytest.mark.parametrize("parameters", CONFIGURATIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [1, 2, 12, 13, 40])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_labels_are_predictions_and_inertia_is_minus_the_score(
    parameters, dtype, d, offset
):
    data, _ = labelled_blobs(n=150, k=4, d=d, spread=4.0, seed=d)
    data = (data + offset).astype(dtype)
    weights = np.random.default_rng(0).uniform(0.0, 2.0, len(data))
    for w in None, weights:
        model = RBFKMeans(**{"n_clusters": 4, "random_state": 0, **parameters})
        labels = model.fit_predict(data, sample_weight=w)
        assert_array_equal(model.labels_, labels)
        assert_array_equal(model.predict(data), labels)
        assert_array_equal(model.predict(data[::3]), labels[::3])
        assert model.inertia_ == -model.score(data, sample_weight=w)


@pytest.mark.compiled
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("alpha", [1.0, 1.3, 1.5, 2.0, 4.0])
@pytest.mark.parametrize("d", [2, 20])
@pytest.mark.parametrize("n_clusters", [2, 30])
def test_the_largest_membership_is_the_label_at_every_temperature(
    dtype, alpha, d, n_clusters
):
    data, _ = labelled_blobs(n=100, k=4, d=d, seed=d)
    data = data.astype(dtype)
    model = RBFKMeans(n_clusters, alpha=alpha, random_state=0).fit(data)
    midway = (model.cluster_centers_[0] + model.cluster_centers_[1]) / 2
    rows = np.vstack([data, model.cluster_centers_, midway[np.newaxis]]).astype(dtype)
    labels = model.predict(rows)
    for sigma in 0.0, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1e3, 1e6:
        p = model.set_params(proba_sigma=sigma).predict_proba(rows)
        assert_array_equal(p.argmax(axis=1), labels)
        assert (p >= 0.0).all()
        tolerance = 1e-6 if dtype == np.float32 else 1e-12
        assert_allclose(p.sum(axis=1, dtype=np.float64), 1.0, rtol=0, atol=tolerance)
        assert_array_equal(model.predict(rows), labels)


@pytest.mark.parametrize("x", [2.0, 2.0 + 1e-15])
@pytest.mark.parametrize("order", [1, -1])
def test_a_row_midway_belongs_to_the_first_centre(x, order):
    centres = np.array([[0.0], [4.0]])[::order]
    model = RBFKMeans(2, init=centres, schedule=0.0).fit(centres)
    assert_array_equal(model.predict([[2.0]]), [0])
    for alpha in 1.0, 1.5, 1.7, 2.0:
        for sigma in 1e-3, 1.0, 1e3, 1e8:
            model.set_params(alpha=alpha, proba_sigma=sigma)
            p = model.predict_proba([[x]])
            assert_array_equal(p.argmax(axis=1), model.predict([[x]]))


@pytest.mark.compiled
def test_the_answer_for_a_row_does_not_depend_on_its_neighbours():
    rng = np.random.default_rng(0)
    for d in 3, 25:
        data = rng.normal(size=(400, d)) + 50.0
        for dtype in np.float32, np.float64:
            rows = data.astype(dtype)
            model = RBFKMeans(20, random_state=0, features="rbf").fit(rows)
            chunks = [rows[i : i + 1] for i in range(0, 400, 7)]
            eps = 1e-4 if dtype == np.float32 else 1e-9
            for method in "predict", "transform", "predict_proba":
                whole = getattr(model, method)(rows)[::7]
                single = np.concatenate([getattr(model, method)(c) for c in chunks])
                assert_allclose(single, whole, rtol=eps, atol=eps)
                if method == "predict":
                    assert_array_equal(single, whole)
