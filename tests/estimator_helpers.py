"""Rows, weights and comparisons that several tests of the estimator use."""

# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from skrbfkmeans import RBFKMeans

METHODS = ["predict", "predict_proba", "transform", "score"]
FEATURES = ["distance", "rbf", "responsibility"]
ALPHAS = [1.0, 1.3, 1.5, 2.0]
STEPS_HISTORY = {
    "sigma", "free_energy", "inertia", "shift", "soft_fraction", "support",
}  # fmt: skip


def labelled_blobs(n=90, k=3, d=2, spread=1.0, seed=0):
    """Rows around k centres, and the centre of each."""
    rng = np.random.default_rng(seed)
    truth = np.arange(n) % k
    return rng.normal(scale=8.0, size=(k, d))[truth] + spread * rng.normal(
        size=(n, d)
    ), truth


X, TRUTH = labelled_blobs()
WIDE, _ = labelled_blobs(n=120, k=5, d=17, spread=4.0)
WEIGHTS = np.random.default_rng(1).uniform(0.0, 3.0, len(X)).round(1)
INIT = X[:3] + 0.5


def state(model):
    """Everything `fit` has learnt, as one flat dictionary."""
    fitted = {
        name: value
        for name, value in vars(model).items()
        if name.endswith("_") and name != "history_"
    }
    return {**fitted, **{f"history_{k}": v for k, v in model.history_.items()}}


def assert_same_state(model, other):
    ours, theirs = state(model), state(other)
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert_array_equal(ours[name], theirs[name], err_msg=name)
        assert np.asarray(ours[name]).dtype == np.asarray(theirs[name]).dtype


def make(**parameters):
    return RBFKMeans(**{"random_state": 0, **parameters})


def clear_blobs(n=40, k=2, d=2, seed=0, spread=1.0, gap=10.0):
    """Rows around k clear centres, the rows of each one after the other."""
    rng = np.random.default_rng(seed)
    centres = gap * np.arange(k)[:, np.newaxis] * np.ones(d)
    return np.repeat(centres, n // k, axis=0) + spread * rng.normal(
        size=(n // k * k, d)
    )


B = clear_blobs()
SPLIT = np.repeat([0, 1], 20)


def assert_split(labels, truth=SPLIT):
    """The labels are the truth, up to the order of the labels."""
    pairs = set(zip(labels.tolist(), truth.tolist(), strict=True))
    assert len(pairs) == len(set(truth.tolist())) == len(set(labels.tolist()))


def assert_finite(model, X):
    assert np.isfinite(model.cluster_centers_).all()
    assert np.isfinite(model.predict_proba(X)).all()
    assert np.isfinite(model.inertia_)
    assert np.isfinite(model.sigma_)
    for values in model.history_.values():
        assert np.isfinite(values).all()


def assert_fixed_point_of_lloyd(model, X):
    d2 = ((X[:, np.newaxis] - model.cluster_centers_) ** 2).sum(axis=2)
    assert_array_equal(model.labels_, d2.argmin(axis=1))
    for j in np.unique(model.labels_):
        own = X[model.labels_ == j]
        assert_allclose(model.cluster_centers_[j], own.mean(axis=0), rtol=1e-10)


def assert_methods_agree(model, rows, sample_weight=None):
    labels = model.predict(rows)
    assert_array_equal(model.labels_, labels)
    P = model.predict_proba(rows)
    assert np.isfinite(P).all()
    assert_allclose(P.sum(axis=1), 1.0, atol=1e-6 if P.dtype == np.float32 else 1e-12)
    assert_array_equal(P.argmax(axis=1), labels)
    assert model.inertia_ == -model.score(rows, sample_weight=sample_weight)
