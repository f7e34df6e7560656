"""Sparse rows far from zero, huge, tiny, equal or none, and answers that agree.

The label before a group of tests is its number on the list of what broke for the
users of other packages.
"""

# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from estimator_helpers import assert_methods_agree
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sparse_helpers import (
    ALPHAS,
    CSR,
    INIT,
    KINDS,
    WEIGHTS,
    X,
    make,
    make_rows,
    quiet_fit,
    with_explicit_zeros,
)

from skrbfkmeans._engine.rows import Rows
from skrbfkmeans.energy import (
    critical_sigma,
    free_energy,
    hardening_sigma,
    responsibilities,
)
from skrbfkmeans.schedules import Constant, Geometric

pytestmark = pytest.mark.compiled


# --- B1, B2, B4: degenerate rows ----------------------------------------------


@pytest.mark.parametrize("alpha", [1.0, 1.5])
@pytest.mark.parametrize("schedule", ["auto", 0.0, 0.5, Geometric(unit="critical")])
@pytest.mark.parametrize("d", [1, 3, 700])
@pytest.mark.parametrize("init", ["k-means++", "random"])
def test_sparse_rows_of_nothing_but_zeros_give_centres_of_zeros(
    alpha, schedule, d, init
):
    rows = sparse.csr_array((10, d))
    model = make(alpha=alpha, schedule=schedule, init=init)
    with pytest.warns(ConvergenceWarning, match="only 1 distinct rows") as record:
        model.fit(rows)
    assert len(record) == 1
    assert_array_equal(model.cluster_centers_, np.zeros((3, d)))
    assert model.inertia_ == 0.0
    assert_array_equal(model.labels_, np.zeros(10))
    assert_methods_agree(model, rows)
    for values in model.history_.values():
        assert np.isfinite(values).all()
    assert critical_sigma(rows, 3) == 0.0
    assert free_energy(rows, np.zeros((2, d)), 0.0) == 0.0


@pytest.mark.parametrize("kind", [sparse.csr_array, with_explicit_zeros])
def test_sparse_duplicates_are_told_once_and_fitted(kind):
    rows = np.repeat([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [3.0, 0.0, 4.0]], 6, axis=0)
    rows = kind(sparse.csr_array(rows))
    with pytest.warns(ConvergenceWarning, match="only 3 distinct rows") as record:
        model = make(5).fit(rows)
    assert len(record) == 1
    assert model.inertia_ < 1e-20
    assert len(np.unique(model.labels_)) == 3
    assert model.n_iter_ < 50
    assert_methods_agree(model, rows)


@pytest.mark.parametrize("far", [1e6, 1e12])
@pytest.mark.parametrize("schedule", ["auto", 0.0, 0.5])
@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_a_centre_far_from_all_sparse_rows_stays_finite_and_stops_the_run(
    far, schedule, alpha
):
    init = np.vstack([INIT, np.full((1, X.shape[1]), far)])
    options = {"init": init, "schedule": schedule, "alpha": alpha}
    model = quiet_fit(make(4, **options), CSR)
    reference = quiet_fit(make(4, **options), X)
    assert_array_equal(model.labels_, reference.labels_)
    assert_allclose(model.cluster_centers_, reference.cluster_centers_, 1e-9, 1e-9)
    assert model.n_iter_ < 300
    assert_methods_agree(model, CSR)


# --- A1, A3, A5: numerics -----------------------------------------------------


@pytest.mark.parametrize("offset", [1e3, -1e6])
@pytest.mark.parametrize("d", [1, 2, 20])
@pytest.mark.parametrize("alpha", [1.0, 1.5])
@pytest.mark.parametrize("schedule", ["auto", 1.5, 0.0])
def test_a_common_offset_costs_sparse_rows_no_digits(offset, d, alpha, schedule):
    rows = np.round(make_rows(60, d, density=1.0) * 1024) / 1024  # shifted exactly
    init = rows[[0, 1, 2]]
    options = {"alpha": alpha, "schedule": schedule, "tol": 1e-3}
    here = make(init=init, **options).fit(rows)
    shifted = sparse.csr_array(rows + offset)
    there = make(init=init + offset, **options).fit(shifted)
    digits = 16 * np.spacing(abs(offset))
    assert_array_equal(here.labels_, there.labels_)
    assert here.n_iter_ == there.n_iter_
    assert_allclose(there.cluster_centers_ - offset, here.cluster_centers_, atol=digits)
    assert_allclose(here.inertia_, there.inertia_, rtol=1e-7, atol=1e3 * digits)
    for model in here, there:
        model.set_params(proba_sigma=2.0, features="distance")
    P = there.predict_proba(shifted)
    assert_allclose(P, here.predict_proba(rows), atol=100 * digits)
    D = there.transform(shifted)
    assert_allclose(D, here.transform(rows), atol=100 * digits)
    assert_methods_agree(there, shifted)
    centres = here.cluster_centers_.round(3)
    gap = hardening_sigma(shifted, centres + offset)
    assert_allclose(gap, hardening_sigma(rows, centres), rtol=1e-6)


def test_float32_sparse_rows_far_from_the_origin_are_split_as_they_stand():
    base = np.repeat([0.0, 1.0], 20)[:, np.newaxis] + np.linspace(0, 0.1, 40)[:, None]
    for offset in 1e4, 1e6:
        rows = sparse.csr_array((base + offset).astype(np.float32))
        model = make(2).fit(rows)
        assert len(np.unique(model.labels_[:20])) == 1
        assert len(np.unique(model.labels_[20:])) == 1
        assert model.labels_[0] != model.labels_[-1]
        assert_methods_agree(model, rows)


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6, 1e8])
def test_the_variances_of_sparse_rows_lose_no_digits_to_their_mean(offset):
    rows = np.round(make_rows(60, 3, density=0.8) * 1024) / 1024  # shifted exactly
    weights = WEIGHTS[:60]
    mean = np.average(rows, axis=0, weights=weights)
    expected = np.average((rows - mean) ** 2, axis=0, weights=weights)
    with Rows(sparse.csr_array(rows + offset), weights) as ours:
        assert_allclose(ours.measures.variances, expected, rtol=1e-6)


@pytest.mark.parametrize("offset", [1e6, 1e8])
def test_a_common_offset_of_sparse_rows_does_not_change_the_meaning_of_tol(offset):
    rows = np.round(make_rows(90, 6, density=1.0) * 64) / 1024  # shifted exactly
    options = {"alpha": 1.0, "schedule": 0.125, "tol": 1e-5}
    here = make(4, init=rows[:4], **options).fit(rows)
    there = make(4, init=rows[:4] + offset, **options)
    assert there.fit(sparse.csr_array(rows + offset)).n_iter_ == here.n_iter_


@pytest.mark.parametrize("factor", [1e-300, 1e-150, 1e-100, 1e100, 1e150])
@pytest.mark.parametrize("schedule", ["auto", Constant(0.5), 0.0])
@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_huge_and_tiny_sparse_rows_are_fitted_as_rows_of_common_size(
    factor, schedule, alpha
):
    unit = 2.0 ** np.round(np.log2(factor))
    model = make(schedule=schedule, alpha=alpha).fit(CSR * unit)
    reference = make(schedule=schedule, alpha=alpha).fit(CSR)
    assert_array_equal(model.labels_, reference.labels_)
    assert model.n_iter_ == reference.n_iter_
    centres = model.cluster_centers_ / unit
    assert_allclose(centres, reference.cluster_centers_, rtol=1e-12, atol=1e-12)
    assert_allclose(model.sigma_ / unit, reference.sigma_, rtol=1e-12)
    assert np.isfinite(model.inertia_)
    assert_methods_agree(model, CSR * unit)
    P = reference.predict_proba(CSR)
    assert_allclose(model.predict_proba(CSR * unit), P, atol=1e-12)
    assert_allclose(model.transform(CSR * unit) / unit, reference.transform(CSR))


def test_sparse_rows_whose_inertia_cannot_be_represented_are_refused():
    with pytest.raises(ValueError, match="too large"):
        make(2).fit(CSR * 1e160)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("sigma", [0.05, 1e-100, 1e-200, 0.0])
def test_a_cold_temperature_gives_sparse_rows_zeros_and_a_one(alpha, sigma):
    rows = sparse.csr_array([[3.0], [4.0], [0.0], [1e6]])
    p = responsibilities(rows, [[0.0], [7.0]], sigma, alpha=alpha)
    assert_array_equal(p, [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])


# --- B6: what is not a number -------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["csr_array", "csr_matrix", "csc", "coo", "64-bit"])
def test_a_stored_value_that_is_no_number_is_refused_everywhere(value, kind):
    rows = KINDS[kind](CSR)
    rows.data[11] = value
    message = "X contains NaN" if np.isnan(value) else "X contains infinity"
    unfitted, model = make(), make(features="rbf").fit(CSR)
    for fit in unfitted.fit, unfitted.fit_predict, unfitted.fit_transform:
        with pytest.raises(ValueError, match=message):
            fit(rows)
    assert not hasattr(unfitted, "cluster_centers_")
    for method in model.predict, model.predict_proba, model.transform, model.score:
        with pytest.raises(ValueError, match=message):
            method(rows)
    for function in (
        lambda: responsibilities(rows, INIT, 1.0),
        lambda: free_energy(rows, INIT, 1.0),
        lambda: critical_sigma(rows, 3),
        lambda: hardening_sigma(rows, INIT),
    ):
        with pytest.raises(ValueError, match=message):
            function()


# --- C, G: agreement, iterations and threads ----------------------------------


@pytest.mark.parametrize("max_iter", [1, 2, 300])
@pytest.mark.parametrize("tol", [0.0, 1e-1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("schedule", ["auto", 0.7])
def test_labels_of_sparse_rows_are_the_predictions_however_the_run_ends(
    max_iter, tol, dtype, schedule
):
    rows = sparse.csr_array(make_rows(300, 8, k=7, seed=1).astype(dtype))
    options = {"max_iter": max_iter, "tol": tol, "schedule": schedule}
    model = make(9, **options)
    assert_array_equal(model.fit_predict(rows), model.predict(rows))
    assert_methods_agree(model, rows)
    assert model.n_iter_ <= max_iter


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("sigma", [1e-3, 0.1, 1.0, 30.0, 1e3, 1e9])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_largest_membership_of_a_sparse_row_is_its_label(alpha, sigma, dtype):
    rows = sparse.csr_array(X.astype(dtype))
    model = make(6, alpha=alpha).fit(rows).set_params(proba_sigma=sigma)
    assert_methods_agree(model, rows)


@pytest.mark.parametrize("order", [1, -1])
def test_a_sparse_row_midway_belongs_to_the_first_centre(order):
    rows = sparse.csr_array([[2.0, 0.0], [0.0, 0.0]])
    centres = np.array([[0.0, 0.0], [4.0, 0.0]])[::order]
    for sigma in 0.1, 2.0, 1e9:
        p = responsibilities(rows, centres, sigma)
        assert p[0].argmax() == 0
        assert_array_equal(p[0], [0.5, 0.5])
    p = responsibilities(rows, centres, 0.0)
    assert_array_equal(p[0], [1.0, 0.0])
    p = responsibilities(sparse.csr_array((3, 2)), np.ones((2, 2)), 1.0)
    assert_array_equal(p, np.full((3, 2), 0.5))


def test_the_answer_for_a_sparse_row_does_not_depend_on_its_batch():
    model = make(5).fit(CSR).set_params(proba_sigma=2.0)
    whole, labels = model.predict_proba(CSR), model.predict(CSR)
    for size in 1, 3, 89:
        pieces = [CSR[i : i + size] for i in range(0, len(X), size)]
        parts = np.vstack([model.predict_proba(piece) for piece in pieces])
        assert_allclose(parts, whole, rtol=1e-13, atol=1e-13)
        assert_array_equal(np.concatenate([model.predict(p) for p in pieces]), labels)


@pytest.mark.parametrize("tol", [0.0, 1e-100])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("schedule", ["auto", 1.0, 0.0])
def test_a_sparse_run_without_tolerance_still_ends(tol, dtype, schedule):
    rows = sparse.random(2000, 30, density=0.2, format="csr", random_state=0)
    rows = rows.astype(dtype)
    model = make(6, tol=tol, schedule=schedule, max_iter=2000).fit(rows)
    assert model.n_iter_ < 2000
    scaled = make(6, tol=tol, schedule=schedule, max_iter=2000)
    if schedule != 1.0:
        assert scaled.fit(rows * dtype(1024)).n_iter_ == model.n_iter_


@pytest.mark.parametrize("alpha", [1.0, 1.5])
@pytest.mark.parametrize("schedule", ["auto", 0.1])
def test_any_number_of_threads_gives_the_same_bits_for_sparse_rows(
    alpha, schedule, monkeypatch
):
    rows = sparse.random(20_000, 300, density=0.05, format="csr", random_state=0)
    models = []
    for n_threads in 1, 2, 4:
        monkeypatch.setattr(
            "skrbfkmeans._engine.threads.effective_n_threads",
            lambda n=n_threads: n,
        )
        model = make(8, alpha=alpha, schedule=schedule, max_iter=6).fit(rows)
        models.append((model, model.predict_proba(rows)))
    (first, P), *others = models
    assert_array_equal(first.predict(rows.toarray()), first.labels_)
    for other, Q in others:
        assert_array_equal(other.cluster_centers_, first.cluster_centers_)
        assert_array_equal(other.labels_, first.labels_)
        assert other.inertia_ == first.inertia_
        assert_array_equal(Q, P)
