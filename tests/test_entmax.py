"""Entmax and its entropy."""

# SPDX-License-Identifier: BSD-3-Clause

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skrbfkmeans._engine.kernels import entmax_rows
from skrbfkmeans.entmax import entmax, tsallis_entropy

pytestmark = pytest.mark.kernel

ALPHAS = (1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 3.0, 4.5)

scores = st.lists(st.floats(-50.0, 50.0), min_size=1, max_size=12).map(np.array)
alphas = st.sampled_from(ALPHAS)
property_test = settings(deadline=None, max_examples=100, derandomize=True)


def errors(p, expected, alpha):
    """Differences of p^(alpha - 1), in which entmax is as smooth as its scores."""
    power = max(alpha - 1.0, 1.0)
    return np.abs(p**power - expected**power)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("k", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("scale", [1e-9, 0.1, 1.0, 30.0])
def test_entmax_equals_bisection(rng, alpha, k, scale):
    z = scale * rng.standard_normal((20, k))
    tolerance = 1e-13 if alpha <= 3.0 else 1e-11  # dp = dz p^(2 - alpha)
    assert errors(entmax(z, alpha), naive.entmax(z, alpha), alpha).max() < tolerance


@property_test
@given(scores, alphas)
def test_entmax_is_a_probability_in_the_order_of_the_scores(z, alpha):
    p = entmax(z, alpha)
    assert p.min() >= 0.0
    assert abs(p.sum() - 1.0) < 1e-14
    assert np.all(np.diff(p[np.argsort(z, kind="stable")]) >= 0.0)


@property_test
@given(scores, alphas, st.integers(-(2**20), 2**20))
def test_entmax_ignores_a_common_offset(z, alpha, offset):
    z = np.round(z * 1024.0) / 1024.0  # so that adding the offset is exact
    np.testing.assert_array_equal(entmax(z + offset, alpha), entmax(z, alpha))


@property_test
@given(scores, alphas, st.randoms(use_true_random=False))
def test_entmax_follows_a_permutation_of_its_scores(z, alpha, random):
    order = list(range(len(z)))
    random.shuffle(order)
    assert errors(entmax(z[order], alpha), entmax(z, alpha)[order], alpha).max() < 1e-14


@property_test
@given(scores, alphas)
def test_no_other_probability_gives_more_score_and_entropy(z, alpha):
    p = entmax(z, alpha)
    best = p @ z + tsallis_entropy(p, alpha)
    others = np.random.default_rng(len(z)).dirichlet(np.ones(len(z)), size=50)
    others = np.concatenate([others, np.eye(len(z)), 0.99 * p + 0.01 * others])
    values = others @ z + tsallis_entropy(others, alpha)
    assert values.max() <= best + 1e-12 * (1.0 + np.abs(z).max())


@pytest.mark.parametrize("alpha", [1.25, 1.5, 2.0, 3.0])
def test_scores_far_below_the_largest_get_exactly_zero(alpha):
    gap = 1.0 / (alpha - 1.0)
    assert entmax([0.0, -gap], alpha)[1] == 0.0
    assert entmax([0.0, -0.99 * gap], alpha)[1] > 0.0


def test_softmax_has_no_zeros():
    assert entmax([0.0, -700.0], alpha=1)[1] > 0.0


@pytest.mark.parametrize("alpha", ALPHAS)
def test_equal_scores_get_equal_shares(alpha):
    np.testing.assert_allclose(entmax(np.full(7, 3.3), alpha), 1.0 / 7.0, rtol=4e-16)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_scores_of_minus_infinity_are_as_if_absent(alpha):
    z = np.array([0.3, -np.inf, 0.1, -np.inf])
    p = entmax(z, alpha)
    np.testing.assert_array_equal(p[[0, 2]], entmax(z[[0, 2]], alpha))
    np.testing.assert_array_equal(p[[1, 3]], 0.0)


@pytest.mark.compiled  # interpreted, NumPy would warn of the overflow
@pytest.mark.parametrize("alpha", ALPHAS)
def test_huge_scores_give_one_hot_probabilities(alpha):
    z = [1e308, -1e308, 1e307]
    np.testing.assert_array_equal(entmax(z, alpha), [1.0, 0.0, 0.0])


@pytest.mark.parametrize("alpha", [1.0001, 1.0 + 1e-9, 1.0 + 2**-52])
def test_entmax_tends_to_softmax_as_alpha_tends_to_one(rng, alpha):
    z = 3.0 * rng.standard_normal((10, 6))
    p = entmax(z, alpha)
    assert np.abs(p - entmax(z, 1.0)).max() < 10.0 * (alpha - 1.0) + 1e-15


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_entmax_works_along_any_axis(rng, axis):
    z = rng.standard_normal((3, 4, 5))
    p = entmax(z, axis=axis)
    last = entmax(np.ascontiguousarray(np.moveaxis(z, axis, -1)))
    assert p.shape == z.shape
    assert p.flags.c_contiguous
    np.testing.assert_array_equal(np.moveaxis(p, axis, -1), last)


def test_no_lines_give_no_probabilities():
    assert entmax(np.zeros((0, 3))).shape == (0, 3)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f8", "i4", "?"])
def test_any_real_dtype_gives_float64_but_float32_stays(dtype):
    z = np.array([[1, 0, 0]], dtype=dtype)
    p = entmax(z)
    assert p.dtype == (np.float32 if dtype == "f4" else np.float64)
    np.testing.assert_allclose(p, entmax([[1.0, 0.0, 0.0]]), rtol=1e-6)


def test_entmax_leaves_its_scores_alone(rng):
    z = np.asfortranarray(rng.standard_normal((4, 6)))
    z.setflags(write=False)
    before = z.copy()
    np.testing.assert_array_equal(entmax(z[:, ::2]), entmax(before[:, ::2].copy()))
    np.testing.assert_array_equal(z, before)


@pytest.mark.parametrize("alpha", [0.99, 0.0, -1.0, np.nan, np.inf, "2", None, True])
@pytest.mark.parametrize("function", [entmax, tsallis_entropy])
def test_a_wrong_alpha_is_named(function, alpha):
    with pytest.raises(ValueError, match="alpha"):
        function([0.5, 0.5], alpha)


@pytest.mark.parametrize(
    "z",
    [
        [0.0, np.nan],
        [0.0, np.inf],
        [-np.inf, -np.inf],
        [[0.0, 1.0], [-np.inf, -np.inf]],
        np.zeros((2, 0)),
        1.0,
        ["a", "b"],
        [1j, 0.0],
    ],
)
def test_wrong_scores_are_named(z):
    with pytest.raises(ValueError, match=r"^Z "):
        entmax(z)


def test_an_axis_that_is_not_there_is_an_error():
    with pytest.raises(ValueError, match="axis"):
        entmax([[0.0, 1.0]], axis=2)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_entropy_equals_its_formula(rng, alpha):
    p = naive.entmax(rng.standard_normal((20, 5)), alpha)
    expected = naive.tsallis_entropy(p, alpha)
    np.testing.assert_allclose(tsallis_entropy(p, alpha), expected, atol=1e-14)
    np.testing.assert_array_equal(
        tsallis_entropy(p.T, alpha, axis=0), tsallis_entropy(p, alpha)
    )


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("k", [1, 2, 9])
def test_entropy_runs_from_zero_to_that_of_the_uniform(rng, alpha, k):
    largest = (
        np.log(k) if alpha == 1 else (1 - k ** (1 - alpha)) / (alpha * (alpha - 1))
    )
    uniform, one_hot = np.full(k, 1.0 / k), np.eye(k)[0]
    assert tsallis_entropy(uniform, alpha) == pytest.approx(largest, abs=1e-15)
    assert str(tsallis_entropy(one_hot, alpha)) == "0.0"  # not -0.0
    between = tsallis_entropy(rng.dirichlet(np.ones(k), size=100), alpha)
    assert between.min() >= 0.0
    assert between.max() <= largest + 1e-15


def test_entropy_keeps_its_digits_near_alpha_one():
    p = np.array([0.2, 0.3, 0.5])
    assert tsallis_entropy(p, 1 + 1e-12) == pytest.approx(tsallis_entropy(p, 1), 1e-11)


def test_entropy_is_a_float_for_one_and_an_array_for_many():
    assert type(tsallis_entropy([0.5, 0.5])) is float
    assert tsallis_entropy([[0.5, 0.5]]).shape == (1,)


@pytest.mark.parametrize("p", [[-0.1, 1.1], [np.nan, 1.0]])
def test_wrong_probabilities_are_named(p):
    with pytest.raises(ValueError, match=r"^P "):
        tsallis_entropy(p)


def test_the_kernel_fills_every_entry_of_its_output():
    P = np.full((2, 3), np.nan)
    entmax_rows(np.array([[0.0, -9.0, 0.0], [1.0, 1.0, 1.0]]), 1.5, P)
    np.testing.assert_allclose(P, [[0.5, 0.0, 0.5], [1 / 3, 1 / 3, 1 / 3]], rtol=1e-15)
