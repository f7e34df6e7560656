"""Digits: rows far from zero, huge or tiny, and scores with peaks, lose none.

The label before a group of tests is its number on the list of what broke for the
users of other packages.
"""

# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import pytest
from estimator_helpers import (
    ALPHAS,
    B,
    assert_finite,
    assert_methods_agree,
    assert_split,
    clear_blobs,
    make,
)
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_blobs

from skrbfkmeans import RBFKMeans
from skrbfkmeans.energy import responsibilities
from skrbfkmeans.entmax import entmax
from skrbfkmeans.schedules import Constant, Geometric, Linear

pytestmark = pytest.mark.compiled
STEPS = ["sigma", "free_energy", "shift", "soft_fraction", "support"]


# --- A1 -----------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0.0, 1e4, -1e5, 1e6])
@pytest.mark.parametrize("d", [1, 3, 20])
@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_float32_rows_far_from_the_origin_lose_no_digits(offset, d, alpha):
    base = np.repeat([0.0, 1.0], 20) + np.linspace(0, 0.1, 40)
    X = (np.repeat(base[:, np.newaxis], d, axis=1) + offset).astype(np.float32)
    model = make(n_clusters=2, alpha=alpha).fit(X)
    assert_split(model.labels_)
    assert_methods_agree(model, X)
    exact = X.astype(np.float64)  # the numbers that float32 can tell apart
    groups = [exact[:20], exact[20:]]
    inertia = sum(((g - g.mean(axis=0)) ** 2).sum() for g in groups)
    half_step = np.spacing(np.float32(abs(offset) + 1.0)) / 2  # centres are float32
    assert_allclose(model.inertia_, inertia, rtol=1e-5, atol=2 * 40 * d * half_step**2)
    p = model.set_params(proba_sigma=0.3).predict_proba(X)
    assert_allclose(p.sum(axis=1), 1.0, atol=1e-6)
    d2 = ((exact[:, np.newaxis] - model.cluster_centers_.astype(float)) ** 2).sum(
        axis=2
    )
    assert_allclose(model.transform(X), np.sqrt(d2), atol=1e-5)


@pytest.mark.parametrize("offset", [1e3, -1e6, 1e8])
@pytest.mark.parametrize("d", [2, 20])
@pytest.mark.parametrize("schedule", ["auto", 2.0, Linear(harden=False)])
def test_a_shift_of_float64_rows_shifts_the_centres_and_nothing_else(
    offset, d, schedule
):
    X = np.round(clear_blobs(n=60, k=3, d=d) * 1024) / 1024  # shifted without rounding
    init = X[[0, 20, 40]]
    here = make(n_clusters=3, init=init, schedule=schedule).fit(X)
    there = make(n_clusters=3, init=init + offset, schedule=schedule).fit(X + offset)
    assert_array_equal(here.labels_, there.labels_)
    assert_allclose(here.inertia_, there.inertia_, rtol=1e-7)
    digits = 4 * np.spacing(abs(offset))
    assert_allclose(there.cluster_centers_ - offset, here.cluster_centers_, atol=digits)
    assert here.n_iter_ == there.n_iter_
    for model in here, there:
        model.set_params(proba_sigma=5.0)
    assert_allclose(
        here.predict_proba(X), there.predict_proba(X + offset), atol=100 * digits
    )


@pytest.mark.parametrize("d", [2, 20])
def test_one_centre_far_away_does_not_cost_the_digits_of_the_others(d):
    X = clear_blobs(n=60, k=3, d=d)
    centres = np.vstack([X[[0, 20, 40]], np.full((1, d), 1e8)])
    p = responsibilities(X, centres, 5.0)
    assert_allclose(p[:, :3], responsibilities(X, centres[:3], 5.0), atol=1e-12)
    model = make(n_clusters=4, init=centres, schedule=0.0, max_iter=1).fit(X)
    model.cluster_centers_ = centres
    assert_array_equal(model.predict(X), p.argmax(axis=1))
    score = -((X[:, np.newaxis] - centres[:3]) ** 2).sum(axis=2).min(axis=1).sum()
    assert_allclose(model.score(X), score, rtol=1e-12)


# --- A3 -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("factor", "dtype"),
    [
        (1e20, np.float32),
        (1e36, np.float32),
        (1e-20, np.float32),
        (1e-36, np.float32),
        (1e20, np.float64),
        (1e120, np.float64),
        (1e150, np.float64),
        (1e-120, np.float64),
        (1e-200, np.float64),
        (1e-300, np.float64),
    ],
)
@pytest.mark.parametrize("d", [2, 20])
@pytest.mark.parametrize(
    "schedule", ["auto", Constant(0.5), Geometric(unit="critical")]
)
def test_huge_and_tiny_rows_are_split_as_rows_of_common_size(
    factor, dtype, d, schedule
):
    X = (clear_blobs(d=d) * factor).astype(dtype)
    model = make(n_clusters=2, schedule=schedule).fit(X)
    assert_finite(model, X)
    assert_split(model.labels_)
    assert_methods_agree(model, X)
    reference = make(n_clusters=2, schedule=schedule).fit(X / dtype(factor))
    assert model.n_iter_ == reference.n_iter_
    for name in "cluster_centers_", "sigma_":
        ours, theirs = getattr(model, name), getattr(reference, name)
        assert_allclose(ours / dtype(factor), theirs, rtol=1e-4)
    if 1e-150 < factor < 1e150:
        for name in STEPS:
            unit = {"sigma": factor, "shift": factor, "free_energy": factor**2}
            ours = model.history_[name] / unit.get(name, 1.0)
            assert_allclose(ours, reference.history_[name], rtol=1e-3, atol=1e-5)
        assert_allclose(model.inertia_ / factor**2, reference.inertia_, rtol=1e-4)
    for features in "distance", "rbf", "responsibility":
        ours = model.set_params(features=features).transform(X)
        theirs = reference.set_params(features=features).transform(X / dtype(factor))
        unit = dtype(factor) if features == "distance" else 1.0
        assert_allclose(ours / unit, theirs, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("factor", [1e155, 1e160, 1e300])
def test_rows_whose_inertia_cannot_be_represented_are_refused(factor):
    with pytest.raises(ValueError, match="too large"):
        make(n_clusters=2).fit(B * factor)


@pytest.mark.parametrize("size", [1e155, 1e200, 1e300])
def test_rows_in_one_huge_place_have_no_inertia_to_overflow(size):
    X = np.repeat([[size, 0.0], [0.0, size]], 5, axis=0)
    model = make(n_clusters=2).fit(X)
    assert model.inertia_ == 0.0
    assert_array_equal(np.sort(model.cluster_centers_, axis=0), [[0.0] * 2, [size] * 2])


# --- A5 -----------------------------------------------------------------------


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("sigma", [0.05, 1e-3, 1e-100, 1e-200, 5e-324, 0.0])
def test_a_cold_temperature_gives_rows_of_zeros_and_a_one(alpha, sigma):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        p = responsibilities([[3.0], [4.0]], [[0.0], [7.0]], sigma, alpha=alpha)
        assert_array_equal(p, [[1.0, 0.0], [0.0, 1.0]])
        p = responsibilities([[1e6]], [[0.0], [4.0]], max(sigma, 0.0), alpha=alpha)
        assert_array_equal(p, [[0.0, 1.0]])


# --- F1, F2 -------------------------------------------------------------------


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_of_minus_infinity_get_nothing_and_the_finite_one_all(alpha, dtype):
    Z = np.full((1, 5), -np.inf, dtype=dtype)
    with pytest.raises(ValueError, match="minus infinity"):
        entmax(Z, alpha)
    Z[0, 3] = -1e30
    assert_array_equal(entmax(Z, alpha), [[0, 0, 0, 1, 0]])
    Z[0, 1] = -1e30
    assert_allclose(entmax(Z, alpha), [[0, 0.5, 0, 0.5, 0]])
    for bad in np.inf, np.nan:
        Z[0, 0] = bad
        with pytest.raises(ValueError, match="Z"):
            entmax(Z, alpha)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1.0, 1e3, 1e6, 1e12])
def test_peaked_scores_are_solved_to_the_last_bit(dtype, scale):
    Z = -np.abs(np.random.default_rng(0).normal(size=(200, 100)) * scale).astype(dtype)
    for alpha in 1.25, 1.5, 1.75, 2.0:
        P = entmax(Z, alpha)
        assert np.isfinite(P).all()
        assert (P >= 0.0).all()
        eps = 1e-6 if dtype == np.float32 else 1e-12
        assert_allclose(P.sum(axis=1, dtype=float), 1.0, rtol=0, atol=eps)
        gaps = np.diff(np.sort(-Z, axis=1)[:, :2].astype(float), axis=1)[:, 0]
        alone = gaps >= 1.0 / (alpha - 1.0)
        assert_array_equal(P[alone].max(axis=1), np.ones(alone.sum()))
        assert (np.count_nonzero(P[alone], axis=1) == 1).all()
        if alpha == 2.0:
            ordered = -np.sort(-Z.astype(float), axis=1)
            tau = ((np.cumsum(ordered, axis=1) - 1.0) / np.arange(1, 101)).max(axis=1)
            expected = np.maximum(Z - tau[:, np.newaxis], 0.0)
            atol = 1e-6 if dtype == np.float32 else 1e-15 * scale + 1e-14
            assert_allclose(P, expected, atol=atol)


@pytest.mark.parametrize(
    ("x", "alpha", "share"),
    [
        (0.0, 1.5, 0.0),
        (1.0, 1.5, 0.1693),
        (1.5, 1.5, 0.3260),
        (2.0, 1.5, 0.5),
        (4.0, 1.5, 1.0),
        (1.0, 1.0, 0.2689),
        (1.0, 2.0, 0.0),
        (1.5, 2.0, 0.25),
    ],
)
def test_shares_of_two_centres_are_the_closed_form(x, alpha, share):
    p = responsibilities([[x]], [[0.0], [4.0]], 2.0, alpha=alpha)
    assert_allclose(p[0, 1], share, atol=5e-5)
    if share in (0.0, 0.5, 1.0):
        assert p[0, 1] == share


@pytest.mark.parametrize("alpha", [1.25, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("sigma", [0.5, 2.0, 16.0])
def test_a_share_is_exactly_zero_from_the_gap_of_the_rule_on(alpha, sigma):
    gap = 2.0 * sigma**2 / (alpha - 1.0)
    centres = np.array([[0.0], [8.0]])
    x = (64.0 - gap * np.array([1.0, 1.01, 0.99])) / 16.0  # d2 gap: 64 - 16 x
    p = responsibilities(x[:, np.newaxis], centres, sigma, alpha=alpha)[:, 1]
    assert p[0] == 0.0
    assert p[1] == 0.0
    assert 0.0 < p[2] < 0.1


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("k", [1, 2, 7, 1000])
def test_equal_scores_share_evenly(alpha, k):
    assert_allclose(entmax(np.full((2, k), -3.7), alpha), 1.0 / k, rtol=1e-12)
    p = responsibilities([[1.0, 2.0]], np.zeros((k, 2)), 0.3, alpha=alpha)
    assert_allclose(p, 1.0 / k, rtol=1e-12)
    assert p.argmax() == 0


# --- rows of their own --------------------------------------------------------


def test_one_enormous_row_does_not_change_the_labels_of_the_others():
    X, _ = make_blobs(40, 2, centers=[[0, 0], [10, 10]], random_state=0)
    model = RBFKMeans(2, random_state=0).fit(X)
    labels = model.predict(np.vstack([X, [[1e170, 0.0]]]))
    np.testing.assert_array_equal(labels[:-1], model.labels_)


@pytest.mark.parametrize("seed", range(240, 250))
def test_a_hardened_float32_model_is_a_fixed_point_of_the_centres_it_stores(seed):
    X = np.array([5, 6, 2, 8, 6, 7, 3, 0, 4, 2, 3], dtype=np.float32)[:, np.newaxis]
    model = RBFKMeans(3, schedule=0.0, random_state=seed).fit(X)
    assert model.hardened_
    means = [X[model.labels_ == j].mean(axis=0) for j in range(3)]
    np.testing.assert_allclose(model.cluster_centers_, means, rtol=1e-6)
