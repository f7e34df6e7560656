"""Rows left alone because their share is proved: no answer may change by it."""

# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from scipy import sparse

from skrbfkmeans import RBFKMeans
from skrbfkmeans._engine import kernels
from skrbfkmeans._engine import steps as engine_steps
from skrbfkmeans._engine.rows import Rows
from skrbfkmeans._engine.steps import EStep
from skrbfkmeans._run.annealing import m_step

pytestmark = pytest.mark.kernel


@pytest.fixture(autouse=True)
def bounds(monkeypatch):
    """Bounds also where there is so little to do that they would not pay."""
    monkeypatch.setattr(engine_steps, "BOUNDS_PAY", 0.0)


def blobs(d, dtype="f8"):
    """Rows about six centres, some of them on a grid and some equal: many ties."""
    rng = np.random.default_rng(d)
    centers = 3.0 * rng.normal(size=(6, d))
    X = centers[rng.integers(6, size=700)] + rng.normal(size=(700, d))
    X[:200] = np.round(X[:200])
    X[200:230] = X[200]
    return X.astype(dtype)


def weights_of(kind, n):
    rng = np.random.default_rng(0)
    if kind == "none":
        return None
    weights = rng.uniform(0.0, 2.0, size=n)
    weights[::7] = 0.0
    return weights if kind == "some" else weights * 10.0 ** -rng.integers(0, 12, size=n)


def steps(X, weights, centers, sigmas, alpha, pruned):
    """What each of some EM iterations finds, and how many rows were looked at."""
    found, n_picked = [], 0
    with Rows(X, weights) as rows:
        e_step = rows.e_step(alpha)
        for sigma in sigmas:
            step = e_step(centers, sigma)
            e_step.memory.must_begin |= not pruned
            n_picked += step.n_picked
            centers = m_step(centers, step, 1.0, 1e-290)
            found.append((e_step.labels.copy(), step, centers))
    return found, n_picked


SCHEDULES = {
    "hard": [0.0] * 25,
    "annealed": [2.0, 1.0, 0.5, 0.25] + [0.0] * 15,
    "soft": [0.4] * 15,
    "reheated": [1.0, 0.3, 0.0, 0.0, 1.0, 0.3, 0.1, 0.0, 0.0],
}


@pytest.mark.compiled
@pytest.mark.parametrize("kind", ["none", "some", "wide"])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("alpha", [1.0, 1.25, 1.5, 2.0])
@pytest.mark.parametrize("form", ["f8 2", "f8 12", "f8 40", "f4 2", "f4 12", "csr 12"])
def test_every_iteration_is_that_of_a_run_that_looks_at_all_rows(
    form, alpha, schedule, kind
):
    dtype, d = form.split()
    X = blobs(int(d), "f8" if dtype == "csr" else dtype)
    centers = X[[1, 50, 300, 301, 500, 600, 650, 699, 200]].astype(np.float64)
    X = sparse.csr_matrix(X) if dtype == "csr" else X
    weights = weights_of(kind, 700)
    sigmas = SCHEDULES[schedule]
    ours, n_looked = steps(X, weights, centers, sigmas, alpha, True)
    theirs, n_all = steps(X, weights, centers, sigmas, alpha, False)
    digits = 1e-5 if dtype == "f4" else 1e-11
    for (labels, step, moved), (other_labels, other, other_moved) in zip(
        ours, theirs, strict=True
    ):
        np.testing.assert_array_equal(labels, other_labels)
        assert step.n_changed == other.n_changed
        assert (step.soft_weight == 0.0) == (other.soft_weight == 0.0)
        size = np.abs(other_moved).max()
        np.testing.assert_allclose(moved, other_moved, rtol=0.0, atol=1e-12 * size)
        totals = step.totals[:4], other.totals[:4]
        np.testing.assert_allclose(*totals, rtol=digits, atol=digits * other.totals[3])
    assert n_all == 700 * len(sigmas)
    if schedule == "hard":
        assert n_looked < 0.7 * n_all


@pytest.mark.compiled
@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_with_little_to_do_all_rows_are_looked_at_with_the_same_result(
    monkeypatch, alpha
):
    X = blobs(12)
    centers, sigmas = X[:9].copy(), SCHEDULES["annealed"]
    ours, _ = steps(X, None, centers, sigmas, alpha, True)
    monkeypatch.setattr(engine_steps, "BOUNDS_PAY", np.inf)
    theirs, n_looked = steps(X, None, centers, sigmas, alpha, True)
    assert n_looked == 700 * len(sigmas)
    for (labels, step, moved), (other_labels, other, other_moved) in zip(
        ours, theirs, strict=True
    ):
        np.testing.assert_array_equal(labels, other_labels)
        assert step.n_changed == other.n_changed
        np.testing.assert_allclose(moved, other_moved, atol=1e-13 * np.abs(moved).max())


@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_what_a_run_remembers_serves_steps_that_are_made_anew(alpha):
    X, sigmas = blobs(12), SCHEDULES["reheated"]
    expected, n_expected = steps(X, None, X[:9], sigmas, alpha, True)
    centers, memory, n_picked = X[:9], None, 0
    for sigma, (labels, step, _) in zip(sigmas, expected, strict=True):
        with Rows(X) as rows:
            e_step = EStep(rows, alpha, memory, rows.box)
            found = e_step(centers, sigma)
        memory, n_picked = e_step.memory, n_picked + found.n_picked
        np.testing.assert_array_equal(memory.labels, labels)
        for ours, theirs in zip(found, step, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        centers = m_step(centers, found, 1.0, 1e-290)
    assert n_picked == n_expected


def test_a_centre_that_loses_nearly_all_its_mass_keeps_its_digits():
    """Running sums would keep the rounding of what has left."""
    heavy, light = np.full((1, 1), 3.0), np.array([[-1.0], [-1.1], [-1.3]])
    X = np.concatenate([heavy, light, [[3.1]]])
    weights = np.array([1e15, 1.0, 1.0, 1.0, 1e15])
    found, _ = steps(X, weights, np.array([[0.3], [9.0]]), [0.0], 1.5, True)
    with Rows(X, weights) as rows:
        e_step = rows.e_step(1.5)
        e_step(np.array([[0.3], [9.0]]), 0.0)
        for _ in range(2):
            step = e_step(np.array([[-1.0], [3.0]]), 0.0)
    mean = -1.0 - 0.4 / 3.0
    assert step.means(slice(None))[0, 0] == pytest.approx(mean, rel=1e-15)
    assert found[0][1].masses[0] == 2e15 + 3.0


def test_running_sums_leave_nothing_behind_in_an_empty_cluster():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3))
    with Rows(X, rng.uniform(size=500)) as rows:
        e_step = rows.e_step(1.5)
        e_step(np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]), 0.0)
        step = e_step(np.array([[0.0, 0.0, 0.0], [1e3, 1e3, 1e3]]), 0.0)
    assert step.masses[1] == 0.0
    assert np.all(step.sums[1] == 0.0)


@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_means_of_sparse_rows_are_zero_where_all_rows_are(alpha):
    X = np.random.default_rng(0).uniform(1.0, 2.0, size=(200, 6))
    X[:, 2:4] = 0.0
    with Rows(sparse.csr_matrix(X)) as rows:
        e_step, centers = rows.e_step(alpha), X[:3] + 0.1
        for sigma in (0.3, 0.1, 0.0, 0.0):
            centers = m_step(centers, e_step(centers, sigma), 1.0, 0.0)
            assert np.all(centers[:, 2:4] == 0.0)


def test_products_are_shifted_anew_once_centres_have_come_from_far_away():
    """Else rounding would leave every row in doubt for the rest of the run."""
    X = blobs(40)
    with Rows(X) as rows:
        e_step, centers = rows.e_step(1.5), X[:1] + 1e12
        for _ in range(3):
            centers = m_step(centers, e_step(centers, 0.0), 1.0, 0.0)
    assert np.abs(e_step.memory.shift).max() < 100.0


@pytest.mark.parametrize("d", [2, 20])
@pytest.mark.parametrize("sigma", [0.0, 1e-3])
def test_a_row_on_its_centre_is_held_once_however_near_the_next_is(sigma, d):
    """Its lower bound, less what rounding may be, could be that of no distance."""
    rng = np.random.default_rng(d)
    centers = 1e3 * rng.normal(size=(40, d))
    near = centers + rng.uniform(0.0, 3.0, size=(40, 1)) / np.sqrt(d)
    X = np.repeat(np.concatenate([centers, near]), 5, axis=0)
    for dtype in (np.float64, np.float32):
        rows_of = X.astype(dtype)
        start = rows_of[::5].astype(np.float64)
        with Rows(rows_of) as rows:
            e_step = rows.e_step(1.5)
            for _ in range(4):
                step = e_step(start, sigma)
                assert step.masses.sum() == len(X)
                np.testing.assert_array_equal(e_step.labels, np.arange(len(X)) // 5)
                start = start + 1e-9
            assert not np.isnan(e_step.memory.limits).any()


@pytest.mark.compiled
def test_an_alpha_that_is_an_integer_compiles_nothing_anew():
    X = blobs(2)
    RBFKMeans(3, alpha=2.0, random_state=0).fit(X)
    n_versions = len(kernels.share_rows.signatures)
    RBFKMeans(3, alpha=2, random_state=0).fit(X)
    assert len(kernels.share_rows.signatures) == n_versions
