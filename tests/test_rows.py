"""Passes over rows against their NumPy twins, however the rows are cut."""

# SPDX-License-Identifier: BSD-3-Clause

import naive
import numpy as np
import pytest
from rows_helpers import dtypes, example
from scipy import sparse

from skrbfkmeans._engine.kernels import exp_in_place
from skrbfkmeans._engine.rows import Rows
from skrbfkmeans._engine.steps import EStep

pytestmark = pytest.mark.kernel

ALPHAS = (1.0, 1.25, 1.5, 2.0, 3.0)
SIGMAS = (0.0, 1e-3, 0.3, 3.0, 1e6)
TOLERANCE = {"f8": 1e-12, "f4": 2e-5}
features = pytest.mark.parametrize("d", [1, 2, 5, 12, 13, 64])
clusters = pytest.mark.parametrize("k", [1, 2, 3, 7, 50])


def e_step(rows, centers, sigma, alpha):
    """Moments about zero, and labels."""
    e_step = rows.e_step(alpha)
    step = e_step(centers, sigma)
    sums = step.sums + step.masses[:, np.newaxis] * step.origins
    return step, sums, e_step.labels


def assert_close(actual, expected, tolerance, scale=1.0):
    np.testing.assert_allclose(actual, expected, rtol=0.0, atol=tolerance * scale)


# --- twins --------------------------------------------------------------------


@pytest.mark.compiled
@dtypes
@features
@clusters
def test_assign_equals_its_twin(d, k, dtype):
    X, centers, weights = example(300, d, k, dtype)
    d2 = naive.squared_distances(X, centers)
    with Rows(X, weights) as rows:
        labels = rows.assign(centers)
        inertia = rows.inertia(centers, labels)
    np.testing.assert_array_equal(labels, d2.argmin(axis=1))
    assert labels.dtype == np.int32
    assert inertia == pytest.approx(weights @ d2.min(axis=1), rel=1e-12)


@pytest.mark.compiled
@dtypes
@features
@clusters
@pytest.mark.parametrize("alpha", ALPHAS)
def test_em_step_equals_its_twin(d, k, dtype, alpha):
    X, centers, weights = example(60, d, k, dtype)
    total = weights.sum()
    scale = total * np.abs(X).max()
    with Rows(X, weights) as rows:
        for sigma in SIGMAS:
            step, sums, labels = e_step(rows, centers, sigma, alpha)
            twin = naive.em_step(X, centers, sigma, alpha, weights)
            tolerance = TOLERANCE[dtype]
            np.testing.assert_array_equal(labels, twin.labels)
            assert_close(step.masses, twin.masses, tolerance, total)
            assert_close(sums, twin.sums, tolerance, scale)
            energy = total * (1.0 + sigma**2)
            assert_close(step.free_energy, twin.free_energy, tolerance, energy)
            if dtype == "f8":
                assert_close(step.soft_weight, twin.soft_weight, 1e-12, total)
                assert_close(step.support, twin.support, 1e-12, total)


@pytest.mark.compiled
@dtypes
@features
@clusters
@pytest.mark.parametrize("alpha", ALPHAS)
def test_responsibilities_equal_their_twin(d, k, dtype, alpha):
    X, centers, _ = example(60, d, k, dtype)
    power = max(alpha - 1.0, 1.0)  # of r, as smooth as the distances
    with Rows(X) as rows:
        for sigma in SIGMAS:
            r = rows.responsibilities(centers, sigma, alpha)
            twin = naive.responsibilities(X, centers, sigma, alpha)
            assert r.dtype == X.dtype
            assert_close(r**power, twin**power, TOLERANCE[dtype])
            np.testing.assert_allclose(
                r.sum(axis=1), 1.0, atol=1e-15 + TOLERANCE[dtype]
            )
            np.testing.assert_array_equal(r.argmax(axis=1), twin.argmax(axis=1))


@dtypes
@pytest.mark.parametrize("d", [13, 64, 1024])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_centres_of_different_lengths_get_their_exact_shares(d, dtype, alpha):
    rng = np.random.default_rng(d)
    direction = rng.standard_normal(d)
    direction /= np.linalg.norm(direction)
    centers = np.outer([0.0, 0.1, -0.1, 20.0], direction)
    noise = rng.standard_normal((50, d)) / np.sqrt(d)
    X = (10.0 * direction + 0.3 * noise).astype(dtype)  # halfway
    power = max(alpha - 1.0, 1.0)
    with Rows(X) as rows:
        for sigma in (1.3, 2.0, 4.0):
            r = rows.responsibilities(centers, sigma, alpha)
            twin = naive.responsibilities(X, centers, sigma, alpha)
            assert_close(r**power, twin**power, power**2 * TOLERANCE[dtype])


@pytest.mark.compiled
@pytest.mark.parametrize("d", [3, 13])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_row_is_soft_exactly_if_it_has_more_than_one_share(d, alpha):
    X, centers, _ = example(200, d, 7)
    for sigma in np.geomspace(1e-4, 1.0, 20):
        for i in range(0, 200, 20):
            with Rows(X[i : i + 20]) as rows:
                step = e_step(rows, centers, sigma, alpha)[0]
            assert step.soft_weight <= step.support - 20.0
            assert (step.soft_weight > 0.0) == (step.support > 20.0)


@pytest.mark.compiled
@dtypes
@features
@clusters
def test_margin_and_distances_equal_their_twins(d, k, dtype):
    X, centers, _ = example(300, d, k, dtype)
    d2 = naive.squared_distances(X, centers)
    nearest = np.sort(np.column_stack([d2, np.full(len(X), np.inf)]), axis=1)
    with Rows(X) as rows:
        margin = rows.margin(centers)
        np.testing.assert_allclose(rows.squared_distances(centers), d2, rtol=1e-12)
    expected = (nearest[:, 1] - nearest[:, 0]).min()
    assert margin == pytest.approx(expected, rel=1e-12, abs=1e-14)


@dtypes
@features
def test_measures_equal_their_twin(d, dtype):
    X, _, weights = example(300, d, 1, dtype)
    X += np.dtype(dtype).type(1000.0)
    X64 = X.astype(np.float64)
    with Rows(X, weights) as rows:
        variances = rows.measures.variances
        mean = np.average(X64, axis=0, weights=weights)
        expected = np.average((X64 - mean) ** 2, axis=0, weights=weights)
        np.testing.assert_allclose(variances, expected, rtol=1e-11)
        assert rows.weight == pytest.approx(weights.sum(), rel=1e-14)


# --- blocks, strips and neighbours --------------------------------------------


@pytest.mark.compiled
@pytest.mark.parametrize("n", [1, 2, 263, 264, 265, 1023, 1024, 1025, 3000])
@pytest.mark.parametrize("d", [2, 20])
@pytest.mark.parametrize("k", [3, 140])
def test_no_row_is_lost_or_counted_twice_at_the_edge_of_a_block(n, d, k):
    X, centers, weights = example(n, d, k)
    for alpha in (1.0, 1.5):
        with Rows(X, weights) as rows:
            step, sums, labels = e_step(rows, centers, 0.5, alpha)
            r = rows.responsibilities(centers, 0.5, alpha)
            margin = rows.margin(centers)
        twin = naive.em_step(X, centers, 0.5, alpha, weights)
        np.testing.assert_array_equal(labels, twin.labels)
        assert_close(step.masses, twin.masses, 1e-11)
        assert_close(sums, twin.sums, 1e-11)
        assert step.free_energy == pytest.approx(twin.free_energy, rel=1e-11)
        assert step.n_changed == np.count_nonzero(weights)
        assert_close(r, naive.responsibilities(X, centers, 0.5, alpha), 1e-12)
        two = np.sort(naive.squared_distances(X, centers), axis=1)[:, :2]
        assert margin == pytest.approx(np.diff(two).min(), rel=1e-10)


@pytest.mark.compiled
@dtypes
@pytest.mark.parametrize("d", [3, 20])
def test_a_rows_answer_does_not_depend_on_its_neighbours(d, dtype):
    X, centers, _ = example(700, d, 9, dtype)
    centers[4:] = centers[:5] + 1e-9  # near ties
    some = np.random.default_rng(1).permutation(700)[:77]
    with Rows(X) as rows, Rows(X[some]) as fewer:
        labels = rows.assign(centers)
        np.testing.assert_array_equal(fewer.assign(centers), labels[some])
        d2 = rows.squared_distances(centers)
        np.testing.assert_array_equal(fewer.squared_distances(centers), d2[some])
        for alpha in ALPHAS:
            r = rows.responsibilities(centers, 0.7, alpha)
            again = fewer.responsibilities(centers, 0.7, alpha)
            assert_close(again, r[some], TOLERANCE[dtype])
            np.testing.assert_array_equal(r.argmax(axis=1), labels)
            np.testing.assert_array_equal(again.argmax(axis=1), labels[some])


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("sigma", [0.0, 0.5, 1e6])
def test_labels_are_the_same_in_every_pass(alpha, sigma):
    X, centers, weights = example(300, 20, 9)
    centers[3:6] = centers[:3] + 1e-13
    with Rows(X, weights) as rows:
        labels = rows.assign(centers)
        np.testing.assert_array_equal(e_step(rows, centers, sigma, alpha)[2], labels)
        r = rows.responsibilities(centers, sigma, alpha)
    np.testing.assert_array_equal(r.argmax(axis=1), labels)


@dtypes
@pytest.mark.parametrize("d", [2, 13, 64])
@pytest.mark.parametrize("sigma", [0.0, 1e-3, 0.7, 1e6])
def test_ties_go_to_the_lowest_index(d, dtype, sigma):
    X, centers, _ = example(100, d, 5, dtype)
    twice = np.concatenate([centers, centers])
    with Rows(X) as rows:
        labels = rows.assign(centers)
        np.testing.assert_array_equal(rows.assign(twice), labels)
        for alpha in (1.0, 1.5, 3.0):
            r = rows.responsibilities(twice, sigma, alpha)
            np.testing.assert_array_equal(r.argmax(axis=1), labels)
            np.testing.assert_array_equal(e_step(rows, twice, sigma, alpha)[2], labels)
        assert rows.margin(twice) == 0.0


def test_an_exact_tie_between_two_places_goes_to_the_lowest_index():
    X, centers = np.array([[0.0], [0.5], [1.0]]), np.array([[1.0], [0.0]])
    with Rows(X) as rows:
        np.testing.assert_array_equal(rows.assign(centers), [1, 0, 0])


@pytest.mark.parametrize("alpha", ALPHAS)
def test_rows_of_zero_weight_get_a_label_and_count_for_nothing(alpha):
    X, centers, weights = example(300, 5, 4)
    X[weights == 0.0] = 1e6
    present = weights > 0.0
    with Rows(X, weights) as rows, Rows(X[present], weights[present]) as fewer:
        step, sums, labels = e_step(rows, centers, 0.5, alpha)
        other, other_sums, other_labels = e_step(fewer, centers, 0.5, alpha)
    assert_close(sums, other_sums, 1e-10)
    assert_close(step.masses, other.masses, 1e-10)
    assert_close(step.totals[:5], other.totals[:5], 1e-10)
    np.testing.assert_array_equal(labels[present], other_labels)
    np.testing.assert_array_equal(
        labels, naive.squared_distances(X, centers).argmin(axis=1)
    )


def test_only_labels_that_change_are_counted():
    X, centers, weights = example(300, 5, 4)
    with Rows(X, weights) as rows:
        for alpha in (1.0, 1.5):
            e_step = rows.e_step(alpha)
            assert e_step(centers, 0.5).n_changed == np.count_nonzero(weights)
            memory = e_step.memory
            memory.must_begin = True  # look at all rows
            assert e_step(centers, 0.5).n_changed == 0
            memory.labels[np.flatnonzero(weights)[:7]] = -1
            memory.labels[np.flatnonzero(weights == 0.0)[:5]] = -1
            memory.must_begin = True
            assert EStep(rows, alpha, memory)(centers, 0.5).n_changed == 7


def test_the_rows_are_never_written(rng):
    X = rng.standard_normal((50, 20))
    X.setflags(write=False)
    weights = np.ones(50)
    weights.setflags(write=False)
    centers = X[:3] + 0.1
    before = centers.copy()
    with Rows(X, weights) as rows:
        e_step(rows, centers, 1.0, 1.0)
        e_step(rows, centers, 1.0, 1.5)
        rows.responsibilities(centers, 1.0, 1.5)
    np.testing.assert_array_equal(centers, before)


# --- the exponential ----------------------------------------------------------


def test_exp_is_right_to_two_units_in_the_last_place(rng):
    values = -np.concatenate(
        [
            rng.uniform(0, 1, 500),
            rng.uniform(0, 708, 500),
            10.0 ** rng.uniform(-20, 2, 500),
        ]
    )
    expected = np.exp(values)
    exp_in_place(values, np.empty_like(values))
    np.testing.assert_allclose(values, expected, rtol=4.5e-16)


def test_exp_of_zero_is_one_and_far_below_it_is_next_to_nothing():
    values = np.array([0.0, -0.0, -708.0, -709.0, -1e5, -1e300, -np.inf])
    exp_in_place(values, np.empty_like(values))
    np.testing.assert_array_equal(values[:2], 1.0)
    assert np.all(values[2:] > 0.0)
    np.testing.assert_allclose(values[2:], np.exp(-708.0), rtol=1e-12)


# --- sparse rows --------------------------------------------------------------


@pytest.mark.parametrize("d", [2, 20])
@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_sparse_rows_give_what_their_dense_twins_give(d, alpha):
    X, centers, weights = example(40, d, 3)
    X = np.where(np.arange(X.size).reshape(X.shape) % 3, 0.0, X)
    X[5] = 0.0
    centers[2] = X[7]  # a distance of exactly 0, after cancellation
    with Rows(X, weights) as dense, Rows(sparse.csr_matrix(X), weights) as rows:
        assert_close(rows.measures.variances, dense.measures.variances, 1e-13)
        for sigma in (0.0, 0.5):
            step, _, labels = e_step(dense, centers, sigma, alpha)
            twin, _, sparse_labels = e_step(rows, centers, sigma, alpha)
            np.testing.assert_array_equal(sparse_labels, labels)
            assert_close(twin.masses, step.masses, 1e-12)
            heavy = step.masses > 0.0
            assert_close(twin.means(heavy), step.means(heavy), 1e-11)
            assert_close(twin.totals[:5], step.totals[:5], 1e-11)
        ours, theirs = rows.squared_distances(centers), dense.squared_distances(centers)
        assert_close(ours, theirs, 1e-12)
        assert ours[7, 2] == 0.0
        assert_close(
            rows.squared_distances_to(centers, labels), theirs.min(axis=1), 1e-12
        )
        assert rows.margin(centers) == pytest.approx(dense.margin(centers))
        shares = rows.responsibilities(centers, 0.5, alpha, sparse_output=True)
        assert_close(
            shares.toarray(), dense.responsibilities(centers, 0.5, alpha), 1e-12
        )


@pytest.mark.parametrize("some", [slice(None, None, 3), np.array([7, 2, 2, 30])])
@pytest.mark.parametrize("kind", ["dense", np.int32, np.int64])
def test_a_part_of_the_rows_is_kept_in_arrays_of_the_same_kind(rng, some, kind):
    X, weights = rng.standard_normal((40, 5)), rng.uniform(size=40)
    expected, expected_weights = X[some], weights[some]
    if kind != "dense":
        X = sparse.csr_matrix(X)
        X.indices, X.indptr = X.indices.astype(kind), X.indptr.astype(kind)
    with Rows(X, weights) as rows:
        part = rows.part(some)
        for a, b in zip(rows.arrays, part.arrays, strict=True):
            assert (a.dtype, a.ndim) == (b.dtype, b.ndim)
            assert b.flags.c_contiguous
            assert not b.flags.writeable
        assert part.stored_weights.flags.c_contiguous
        np.testing.assert_array_equal(part.weights, expected_weights)
        np.testing.assert_array_equal(part.at(slice(None)), expected)
