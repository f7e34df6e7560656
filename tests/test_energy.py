"""The mathematics of soft k-means, as functions of arrays."""

# SPDX-License-Identifier: BSD-3-Clause

import naive
import numpy as np
import pytest
from scipy import sparse

from skrbfkmeans.energy import (
    critical_sigma,
    free_energy,
    hardening_sigma,
    responsibilities,
)

ALPHAS = (1.0, 1.25, 1.5, 2.0, 3.0)
ONE = np.zeros((1, 1))


@pytest.fixture(params=[3, 20], ids=["few features", "many features"])
def data(request, rng):
    """Rows, centres among them, weights of which a fifth are zero."""
    X = 2.0 * rng.standard_normal((60, request.param))
    weights = rng.uniform(0.5, 2.0, size=60)
    weights[::5] = 0.0
    return X, X[:7] + 0.1, weights


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("sigma", [0.1, 1.0, 4.0, 30.0])
def test_free_energy_stays_within_its_bounds(data, alpha, sigma):
    X, centers, weights = data
    d2 = naive.squared_distances(X, centers)
    inertia = weights @ d2.min(axis=1)
    r = responsibilities(X, centers, sigma, alpha=alpha)
    soft = weights @ (r * d2).sum(axis=1)
    width = 2.0 * weights.sum() * sigma**2 * naive.largest_entropy(7, alpha)
    value = free_energy(X, centers, sigma, alpha=alpha, sample_weight=weights)
    slack = 1e-12 * (inertia + width)
    assert inertia - width - slack <= value <= inertia + slack
    assert inertia - slack <= soft <= inertia + width + slack


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("sigma", [0.0, 0.5, 2.0, 10.0])
def test_free_energy_and_gradient_equal_the_formula(data, alpha, sigma):
    X, centers, weights = data
    value, gradient = free_energy(
        X, centers, sigma, alpha=alpha, sample_weight=weights, return_gradient=True
    )
    expected = naive.free_energy(X, centers, sigma, alpha, weights)
    assert value == pytest.approx(expected[0], rel=1e-12)
    atol = 1e-12 * np.abs(expected[1]).max()
    np.testing.assert_allclose(gradient, expected[1], rtol=0.0, atol=atol)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("sigma", [1.0, 3.0])
def test_the_gradient_is_the_slope_of_the_free_energy(data, rng, alpha, sigma):
    X, centers, weights = data
    options = {"alpha": alpha, "sample_weight": weights}
    gradient = free_energy(X, centers, sigma, return_gradient=True, **options)[1]
    for _ in range(3):
        direction = rng.standard_normal(centers.shape)
        step = 1e-5 * direction
        slope = (
            free_energy(X, centers + step, sigma, **options)
            - free_energy(X, centers - step, sigma, **options)
        ) / 2e-5
        assert slope == pytest.approx(np.sum(gradient * direction), rel=1e-5, abs=1e-4)


def test_free_energy_rises_to_the_inertia_as_the_temperature_falls(data):
    X, centers, _ = data
    values = [free_energy(X, centers, sigma) for sigma in (8.0, 4.0, 2.0, 1.0, 0.0)]
    assert np.all(np.diff(values) > 0.0)
    inertia = naive.squared_distances(X, centers).min(axis=1).sum()
    assert values[-1] == pytest.approx(inertia, rel=1e-13)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_softmax_and_entmax_free_energies_have_their_closed_forms(alpha):
    value = free_energy([[0.0]], [[3.0]], 2.0, alpha=alpha)
    assert value == 9.0  # one centre
    copies = free_energy([[0.0]], [[3.0]] * 4, 2.0, alpha=alpha)
    assert copies == pytest.approx(9.0 - 8.0 * naive.largest_entropy(4, alpha))


def test_return_gradient_changes_nothing_but_the_return(data):
    X, centers, _ = data
    value, gradient = free_energy(X, centers, 1.0, return_gradient=True)
    assert type(value) is float
    assert value == free_energy(X, centers, 1.0)
    assert gradient.shape == centers.shape
    assert gradient.dtype == np.float64


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("sigma", [0.0, 0.5, 2.0, 10.0, 1e9])
def test_responsibilities_sum_to_one_and_peak_at_the_nearest(data, alpha, sigma):
    X, centers, _ = data
    centers = np.concatenate([centers, centers])  # every row has a tie
    r = responsibilities(X, centers, sigma, alpha=alpha)
    assert r.min() >= 0.0
    np.testing.assert_allclose(r.sum(axis=1), 1.0, rtol=1e-14)
    nearest = naive.squared_distances(X, centers).argmin(axis=1)
    np.testing.assert_array_equal(r.argmax(axis=1), nearest)


@pytest.mark.parametrize("alpha", [1.25, 1.5, 2.0, 3.0])
def test_a_centre_far_enough_has_no_share_at_all(alpha):
    sigma = 0.5
    width = 2.0 * sigma**2 / (alpha - 1.0)  # of squared distance
    X, nearest = [[0.0]], [0.0]
    at = responsibilities(X, [nearest, [np.sqrt(width)]], sigma, alpha=alpha)
    before = responsibilities(X, [nearest, [np.sqrt(0.99 * width)]], sigma, alpha=alpha)
    assert at[0, 1] == 0.0 or np.sqrt(width) ** 2 < width
    assert before[0, 1] > 0.0


@pytest.mark.parametrize("sigma", [0.0, 1e-200, 5e-324])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_vanishing_temperature_is_the_hard_limit(data, sigma, alpha):
    X, centers, weights = data
    r = responsibilities(X, centers, sigma, alpha=alpha)
    np.testing.assert_array_equal(r, naive.responsibilities(X, centers, 0.0, alpha))
    value, gradient = free_energy(
        X, centers, sigma, alpha=alpha, sample_weight=weights, return_gradient=True
    )
    expected = naive.free_energy(X, centers, 0.0, alpha, weights)
    assert value == pytest.approx(expected[0], rel=1e-13)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("alpha", [1.0, 1.25, 1.5, 2.0])
def test_low_temperatures_give_no_nan(alpha):
    X = [[3.0], [1e6]]
    r = responsibilities(X, [[0.0], [7.0]], 0.05, alpha=alpha)
    np.testing.assert_array_equal(r, [[1.0, 0.0], [0.0, 1.0]])


@pytest.mark.parametrize("scale", [1e-150, 2.0**-40, 2.0**40, 1e150])
@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_everything_scales_with_the_unit_of_the_data(data, scale, alpha):
    X, centers, weights = data
    options = {"alpha": alpha, "sample_weight": weights, "return_gradient": True}
    r = responsibilities(X, centers, 1.5, alpha=alpha)
    value, gradient = free_energy(X, centers, 1.5, **options)
    X_scaled, centers_scaled, sigma = scale * X, scale * centers, scale * 1.5
    scaled = responsibilities(X_scaled, centers_scaled, sigma, alpha=alpha)
    np.testing.assert_allclose(scaled, r, rtol=1e-11, atol=1e-14)
    value_scaled, gradient_scaled = free_energy(
        X_scaled, centers_scaled, sigma, **options
    )
    assert value_scaled / scale / scale == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(gradient_scaled / scale, gradient, rtol=1e-10)
    critical = critical_sigma(X_scaled, 3, alpha=alpha) / scale
    assert critical == pytest.approx(critical_sigma(X, 3, alpha=alpha), rel=1e-12)
    hardening = hardening_sigma(X_scaled, centers_scaled, alpha=alpha) / scale
    expected = hardening_sigma(X, centers, alpha=alpha)
    assert hardening == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_common_offset_changes_nothing(data, alpha):
    X, centers, weights = (np.round(array * 1024.0) / 1024.0 for array in data)
    options = {"alpha": alpha, "sample_weight": weights, "return_gradient": True}
    offset = 2.0**30  # exactly representable sums
    r = responsibilities(X, centers, 1.5, alpha=alpha)
    moved = responsibilities(X + offset, centers + offset, 1.5, alpha=alpha)
    np.testing.assert_allclose(moved, r, rtol=1e-10, atol=1e-13)
    value, gradient = free_energy(X, centers, 1.5, **options)
    value_moved, gradient_moved = free_energy(
        X + offset, centers + offset, 1.5, **options
    )
    assert value_moved == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(gradient_moved, gradient, rtol=1e-11, atol=1e-11)
    critical = critical_sigma(X, 4, alpha=alpha, sample_weight=weights)
    critical_moved = critical_sigma(X + offset, 4, alpha=alpha, sample_weight=weights)
    assert critical_moved == pytest.approx(critical, rel=1e-12)
    hardening = hardening_sigma(X, centers, alpha=alpha)
    hardening_moved = hardening_sigma(X + offset, centers + offset, alpha=alpha)
    assert hardening_moved == pytest.approx(hardening, rel=1e-11)


def test_one_centre_far_away_does_not_cost_the_others_their_digits(rng):
    X = rng.standard_normal((50, 20))
    centers = np.concatenate([X[:4] + 0.1, np.full((1, 20), 1e8)])
    r = responsibilities(X, centers, 1.0)
    expected = naive.responsibilities(X, centers, 1.0, 1.5)
    np.testing.assert_allclose(r, expected, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("function", ["free_energy", "critical_sigma"])
def test_a_whole_weight_is_that_many_rows(data, function):
    X, centers, _ = data
    counts = np.arange(len(X)) % 4
    repeated = np.repeat(X, counts, axis=0)
    if function == "free_energy":
        once = free_energy(X, centers, 1.5, sample_weight=counts, return_gradient=True)
        often = free_energy(repeated, centers, 1.5, return_gradient=True)
        assert once[0] == pytest.approx(often[0], rel=1e-12)
        np.testing.assert_allclose(once[1], often[1], rtol=1e-10, atol=1e-11)
    else:
        once = critical_sigma(X, 3, sample_weight=counts)
        assert once == pytest.approx(critical_sigma(repeated, 3), rel=1e-12)


@pytest.mark.parametrize("factor", [1e-300, 0.3, 1e300])
def test_the_scale_of_all_weights_scales_the_free_energy_alone(data, factor):
    X, centers, weights = data
    X, centers = X / 64.0, centers / 64.0  # so that 1e300 stays in range
    options = {"return_gradient": True}
    value, gradient = free_energy(X, centers, 0.02, sample_weight=weights, **options)
    scaled = free_energy(X, centers, 0.02, sample_weight=factor * weights, **options)
    assert scaled[0] / factor == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(scaled[1] / factor, gradient, rtol=1e-9, atol=1e-12)
    critical = critical_sigma(X, 3, sample_weight=weights)
    assert critical_sigma(X, 3, sample_weight=factor * weights) == pytest.approx(
        critical
    )


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("k", [1, 2, 9])
@pytest.mark.parametrize("shape", [(50, 1), (50, 4), (5, 30)])
def test_critical_sigma_equals_its_formula(rng, alpha, k, shape):
    X = rng.standard_normal(shape) * np.linspace(1.0, 3.0, shape[1])
    weights = rng.uniform(size=shape[0])
    sigma = critical_sigma(X, k, alpha=alpha, sample_weight=weights)
    assert sigma == pytest.approx(naive.critical_sigma(X, k, alpha, weights), rel=1e-12)


def test_critical_sigma_of_equal_rows_is_zero():
    assert critical_sigma(np.full((5, 2), 0.1), 3) == pytest.approx(0.0, abs=1e-16)


@pytest.mark.parametrize("alpha", [1.1, 1.25, 1.5, 1.7, 2.0, 3.0])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_every_row_is_one_hot_at_the_hardening_temperature_to_the_last_bit(
    alpha, dtype
):
    for seed in range(60):
        rng = np.random.default_rng(seed)
        X = rng.normal(30.0 * (seed % 2), size=(60, 1 + seed % 7)).astype(dtype)
        centers = X[:6].astype(np.float64) + 0.1 * rng.normal(size=(6, X.shape[1]))
        sigma = hardening_sigma(X, centers, alpha=alpha)
        shares = responsibilities(X, centers, sigma, alpha=alpha)
        assert np.count_nonzero(shares) == len(X)
        shares = responsibilities(X, centers, sigma * (1.0 + 1e-2), alpha=alpha)
        assert np.count_nonzero(shares) > len(X)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_hardening_sigma_equals_its_formula(data, alpha):
    X, centers, _ = data
    sigma = hardening_sigma(X, centers, alpha=alpha)
    assert sigma == pytest.approx(naive.hardening_sigma(X, centers, alpha), rel=1e-10)


@pytest.mark.parametrize("alpha", [1.25, 1.5, 2.0, 3.0])
def test_every_row_is_one_hot_below_the_hardening_temperature_and_not_above(
    data, alpha
):
    X, centers, _ = data
    sigma = hardening_sigma(X, centers, alpha=alpha)
    assert sigma > 0.0
    below = responsibilities(X, centers, (1.0 - 1e-9) * sigma, alpha=alpha)
    above = responsibilities(X, centers, (1.0 + 1e-9) * sigma, alpha=alpha)
    assert np.all(np.count_nonzero(below, axis=1) == 1)
    assert np.sum(np.count_nonzero(above, axis=1) > 1) == 1


@pytest.mark.parametrize("alpha", ALPHAS)
def test_softmax_never_hardens_and_one_centre_always_has(alpha):
    assert hardening_sigma(np.eye(3), np.eye(3), alpha=1.0) == 0.0
    assert hardening_sigma(np.eye(3), np.eye(3)[:1]) == np.inf


def test_centres_in_the_same_place_never_harden():
    assert hardening_sigma([[0.0], [3.0]], [[1.0], [1.0], [2.0]]) == 0.0


@pytest.mark.parametrize("dtype", ["f2", ">f8", "i4", "?", "f4", "f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_any_real_array_is_accepted_and_left_alone(rng, dtype, order):
    X = np.array(rng.integers(0, 2, size=(20, 4)), dtype=dtype, order=order)
    X.setflags(write=False)
    before = X.copy()
    centers = np.asfortranarray([[0.0, 1, 0, 1], [1, 0, 1, 0]])
    centers.setflags(write=False)
    weights = np.arange(20)
    weights.setflags(write=False)
    r = responsibilities(X, centers, 1.0)
    assert r.dtype == (np.float32 if dtype == "f4" else np.float64)
    expected = naive.responsibilities(X, centers, 1.0, 1.5)
    np.testing.assert_allclose(r, expected, atol=1e-6 if dtype == "f4" else 1e-14)
    free_energy(X, centers, 1.0, sample_weight=weights)
    critical_sigma(X, 2, sample_weight=weights)
    hardening_sigma(X, centers)
    np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_one_row_is_enough(k):
    X, centers = np.array([[1.0, 2.0]]), np.arange(2.0 * k).reshape(k, 2)
    r = responsibilities(X, centers, 1.0)
    np.testing.assert_allclose(r, naive.responsibilities(X, centers, 1.0, 1.5))
    value = free_energy(X, centers, 1.0)
    assert value == pytest.approx(
        naive.free_energy(X, centers, 1.0, 1.5, np.ones(1))[0], rel=1e-14
    )
    assert critical_sigma(X, k) == 0.0


def wrong_arguments():
    """Every function with every wrong value, and the name that must be told."""
    nan, inf = np.array([[np.nan]]), np.array([[np.inf]])
    wrong = {
        "X": [nan, inf, np.zeros((0, 1)), np.zeros(3), np.zeros((2, 2, 2))],
        "centers": [nan, inf, np.zeros((0, 1)), np.zeros((2, 5)), np.zeros(3), [["a"]]],
        "sigma": [-1.0, np.nan, np.inf, "1", None, True, [1.0]],
        "alpha": [0.5, np.nan, np.inf, "1", None, True],
        "sample_weight": [[-1.0], [np.nan], [np.inf], [0.0], [1.0, 1.0], [[1.0]]],
        "n_clusters": [0, -1, 2.0, True, "2", None],
    }
    takes = {
        responsibilities: ("X", "centers", "sigma", "alpha"),
        free_energy: ("X", "centers", "sigma", "alpha", "sample_weight"),
        critical_sigma: ("X", "n_clusters", "alpha", "sample_weight"),
        hardening_sigma: ("X", "centers", "alpha"),
    }
    return [
        pytest.param(function, name, value, id=f"{function.__name__}-{name}-{number}")
        for function, names in takes.items()
        for name in names
        for number, value in enumerate(wrong[name])
    ]


@pytest.mark.parametrize(("function", "name", "value"), wrong_arguments())
def test_a_wrong_argument_is_named(function, name, value):
    right = {"X": ONE, "centers": ONE, "sigma": 1.0, "n_clusters": 1}
    if function is critical_sigma:
        del right["centers"], right["sigma"]
    elif function is hardening_sigma:
        del right["sigma"], right["n_clusters"]
    else:
        del right["n_clusters"]
    words = {
        "X": r"\bX\b|[Aa]rray|2D",
        "sample_weight": "[Ss]ample.weight",
    }  # sklearn's
    with pytest.raises(ValueError, match=words.get(name, rf"\b{name}\b")):
        function(**{**right, name: value})


def test_weights_that_are_all_zero_are_told_in_words():
    with pytest.raises(ValueError, match=r"(?i)(?=.*zero)(?=.*weight)"):
        free_energy(ONE, ONE, 1.0, sample_weight=[0.0])


@pytest.mark.parametrize("sigma", [0.0, 1e199])
def test_a_free_energy_beyond_floats_is_an_error_that_names_the_range(sigma):
    with pytest.raises(ValueError, match=r"too large: .* range of float64"):
        free_energy([[1e200]], [[-1e200]], sigma)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_critical_sigma_of_very_many_features_equals_the_singular_values(kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 600)) * (rng.random((12, 600)) < 0.3) + 1.0
    weights = rng.random(12)
    centered = (X - weights @ X / weights.sum()) * np.sqrt(weights / weights.sum())[
        :, None
    ]
    expected = np.linalg.svd(centered, compute_uv=False)[0]
    found = critical_sigma(kind(X), 1, sample_weight=weights)
    assert found == pytest.approx(expected, rel=1e-10)
    assert critical_sigma(kind(np.ones((12, 600))), 3) < 1e-6
