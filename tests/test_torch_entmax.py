"""Entmax for PyTorch: values, derivatives, precisions and transforms."""

# SPDX-License-Identifier: BSD-3-Clause

import math
from math import inf, nan

import naive
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch_helpers import (  # noqa: E402
    ALPHAS,
    gradients,
    ignore_instance,
    ignore_leaf,
    ignore_script,
    layer_at,
)

import skrbfkmeans.entmax as arrays  # noqa: E402
from skrbfkmeans.torch import RBFKMeansLayer, _entmax, entmax  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")
SHAPES = ((3, 4), (1, 1, 5), (2, 2, 3), (3, 1), (6,))


# --- entmax: values -----------------------------------------------------------


@pytest.mark.parametrize("alpha", [*ALPHAS, 1.1, 1.75, 1.0 + 1e-9])
@pytest.mark.parametrize("as_tensor", [False, True])
def test_entmax_equals_that_of_arrays(rng, alpha, as_tensor):
    for scale in (1e-9, 0.1, 1.0, 30.0, 1e3, 1e4, 1e5, 1e6):
        for k in (1, 2, 7, 100):
            z = scale * rng.standard_normal((100, k))
            argument = torch.tensor(alpha, dtype=torch.float64) if as_tensor else alpha
            p = entmax(torch.tensor(z), argument)
            np.testing.assert_allclose(p, arrays.entmax(z, alpha), rtol=0, atol=1e-12)
            np.testing.assert_allclose(p.sum(-1), 1.0, rtol=0, atol=1e-14)


def test_entmax_for_large_alpha_is_as_exact_as_that_of_arrays(rng):
    """A probability about to become 0 is ill-conditioned: only its power is not."""
    z = rng.standard_normal((100, 50))
    p, expected = entmax(torch.tensor(z), 4.5).numpy(), arrays.entmax(z, 4.5)
    np.testing.assert_allclose(p**3.5, expected**3.5, rtol=0, atol=1e-8)


@pytest.mark.parametrize("scale", [1e3, 1e6])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_peaked_float32_scores_of_distances_give_the_exact_answer(rng, alpha, scale):
    z = (-scale * np.abs(rng.standard_normal((200, 100)))).astype(np.float32)
    p = entmax(torch.tensor(z), alpha)
    assert p.dtype == torch.float32
    np.testing.assert_allclose(p, arrays.entmax(z, alpha), rtol=0, atol=1e-5)
    np.testing.assert_allclose(p.sum(-1), 1.0, rtol=0, atol=1e-6)


@pytest.mark.parametrize("alpha", [1.25, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_far_below_the_largest_get_exactly_zero(alpha, dtype):
    gap = 1.0 / (alpha - 1.0)
    z = torch.tensor([[0.0, -gap, -2.0 * gap], [0.0, -0.99 * gap, -gap]], dtype=dtype)
    p = entmax(z, alpha)
    assert p[0].tolist() == [1.0, 0.0, 0.0]
    assert p[1, 1] > 0.0
    assert p[1, 2] == 0.0


def test_known_values_of_two_scores():
    """Centres 0 and 4 at sigma 2."""
    x = torch.tensor([[0.0], [1.0], [1.5], [2.0]], dtype=torch.float64)
    layer = layer_at(torch.tensor([[0.0], [4.0]], dtype=torch.float64), sigma=2.0)
    second = layer(x)[:, 1].tolist()
    assert second[0] == 0.0
    assert second[1:] == pytest.approx([0.1693, 0.3260, 0.5], abs=5e-5)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_equal_scores_get_equal_shares(alpha):
    p = entmax(torch.full((2, 7), 3.3, dtype=torch.float64), alpha)
    np.testing.assert_allclose(p, 1.0 / 7.0, rtol=4e-16)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2])
def test_entmax_works_along_any_dimension(normal, alpha, dim):
    z = normal(3, 4, 5)
    p = entmax(z, alpha, dim)
    assert p.shape == z.shape
    last = entmax(z.movedim(dim, -1).contiguous(), alpha)
    torch.testing.assert_close(p.movedim(dim, -1), last, rtol=0, atol=1e-15)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_an_empty_batch_gives_no_probabilities(alpha):
    z = torch.zeros(0, 3, requires_grad=True)
    p = entmax(z, alpha)
    assert p.shape == (0, 3)
    p.sum().backward()
    assert z.grad.shape == (0, 3)


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_scores_of_minus_infinity_are_as_if_absent(alpha, as_tensor):
    alpha = torch.tensor(alpha) if as_tensor else alpha
    z = torch.tensor([[0.3, -inf, 0.1, -inf], [-inf, -inf, 7.0, -inf]])
    z.requires_grad_()
    p = entmax(z, alpha)
    torch.testing.assert_close(p[0, [0, 2]], entmax(z[0, [0, 2]], alpha))
    assert p[1].tolist() == [0.0, 0.0, 1.0, 0.0]
    assert p[0, [1, 3]].tolist() == [0.0, 0.0]
    (slope,) = gradients(p[:, 2].sum(), z)
    assert slope.isfinite().all()
    if slope.requires_grad:
        assert gradients(slope[0, 0], z)[0].isfinite().all()
    assert not slope[:, [1, 3]].any()


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("row", [[-inf, -inf], [nan, 0.0], [inf, 0.0], [inf, -inf]])
def test_a_row_without_probabilities_is_nan_and_no_other(alpha, row, as_tensor):
    alpha = torch.tensor(alpha) if as_tensor else alpha
    z = torch.tensor([[0.5, 0.1], row, [-0.2, 0.1]]).requires_grad_()
    p = entmax(z, alpha)
    assert p.isnan().all(dim=1).tolist() == [False, True, False]
    (slope,) = gradients(p[:, 0].sum(), z)
    assert slope[[0, 2]].isfinite().all()
    assert slope[1].isnan().all()
    torch.testing.assert_close(p[[0, 2]], entmax(z[[0, 2]], alpha))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_entmax_leaves_its_scores_alone(normal, alpha):
    z = normal(4, 6).detach()
    before = z.clone()
    entmax(z, alpha)
    entmax(z, torch.tensor(alpha))
    assert torch.equal(z, before)


# --- entmax: derivatives ------------------------------------------------------


@ignore_script
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_first_two_derivatives_of_entmax_are_exact(normal, shape, alpha):
    z = normal(*shape)
    options = {"check_forward_ad": True, "check_batched_grad": True}
    assert torch.autograd.gradcheck(lambda z: entmax(z, alpha), z, **options)
    assert torch.autograd.gradgradcheck(lambda z: entmax(z, alpha), z)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_ties_away_from_kinks_have_exact_derivatives(alpha):
    z = torch.tensor([[1.0, 1.0, 0.8, -9.0], [0.0, 0.0, 0.0, 0.0]]).double()
    z.requires_grad_()
    assert torch.autograd.gradcheck(lambda z: entmax(z, alpha), z)
    assert torch.autograd.gradgradcheck(lambda z: entmax(z, alpha), z)


@ignore_script
@pytest.mark.parametrize("alpha", ALPHAS[1:])
@pytest.mark.parametrize(
    ("shape", "alpha_shape"),
    [((3, 4), ()), ((3, 4), (3, 1)), ((2, 2, 3), (2, 1, 1)), ((3, 1), (3, 1))],
)  # fmt: skip
def test_derivatives_by_alpha_are_exact(normal, shape, alpha_shape, alpha):
    z, alphas = normal(*shape), torch.full(alpha_shape, alpha).double()
    alphas = (alphas + 0.01 * normal(*alpha_shape).abs()).detach().requires_grad_()
    assert torch.autograd.gradcheck(entmax, (z, alphas), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(entmax, (z, alphas))


def test_the_derivative_by_alpha_at_one_is_the_limit(normal):
    z = normal(5, 6)
    one = torch.ones(5, 1, dtype=torch.float64, requires_grad=True)
    p = entmax(z, one)
    torch.testing.assert_close(p, z.softmax(-1), rtol=0, atol=1e-15)
    (slope,) = gradients((p * z.detach()).sum(), one)
    step = 1e-6
    further = (entmax(z, 1.0 + step) - entmax(z, 1.0)) * z / step
    torch.testing.assert_close(slope[:, 0], further.sum(-1), rtol=1e-4, atol=1e-5)
    h = p.log()
    by_formula = -p * (h**2 - (p * h**2).sum(-1, keepdim=True)) / 2.0
    torch.testing.assert_close(slope[:, 0], (by_formula * z).sum(-1))


@pytest.mark.parametrize("a1", [1e-12, 1e-3, 0.004, 0.02, 0.5])
def test_the_series_near_alpha_one_equals_its_formula(a1):
    p = np.geomspace(1e-3, 1.0, 50)[:-1]
    x = a1 * np.log(p.astype(np.longdouble))
    terms = [(n + 1) * x**n / math.factorial(n + 2) for n in range(40)]
    expected = np.log(p) ** 2 * sum(terms).astype(float)
    q = _entmax.curvature(torch.tensor(p), a1)
    np.testing.assert_allclose(q, expected, rtol=1e-12)


def test_many_scores_at_the_threshold_cost_no_digits(rng):
    z = -2.0 * (1.0 + 1e-3 * rng.standard_normal((50, 10_000)))
    z[:, 0] = 0.0
    p = entmax(torch.tensor(z)).numpy()
    np.testing.assert_allclose(p, naive.entmax(z, 1.5), rtol=0, atol=1e-14)


def test_alpha_of_the_entries_broadcasts_along_any_dimension(normal):
    z = normal(4, 5)
    alphas = torch.tensor([[1.0, 1.25, 1.5, 2.0, 3.0]], dtype=torch.float64)
    p = entmax(z, alphas, dim=0)
    for j, alpha in enumerate(alphas[0].tolist()):
        torch.testing.assert_close(p[:, j], entmax(z[:, j], alpha))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_entmax_keeps_nothing_but_its_probabilities(alpha):
    z, kept = torch.randn(64, 50, requires_grad=True), {}

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        p = entmax(2.0 * z, alpha)
    assert sum(kept.values()) == 4 * p.numel()


@pytest.mark.parametrize("alpha", [1.25, 1.5, 2.0])
def test_entmax_equals_that_of_the_entmax_package(normal, alpha):
    peer = pytest.importorskip("entmax")
    theirs = {1.5: peer.entmax15, 2.0: peer.sparsemax}.get(alpha)
    if theirs is None:
        alphas = torch.tensor(alpha, dtype=torch.float64)
        theirs = lambda z: peer.entmax_bisect(z, alphas, n_iter=60)  # noqa: E731
    z, v = 2.0 * normal(50, 20), normal(50, 20).detach()
    torch.testing.assert_close(entmax(z, alpha), theirs(z), rtol=0, atol=1e-12)
    ours = gradients((entmax(z, alpha) * v).sum(), z)
    other = torch.autograd.grad((theirs(z) * v).sum(), z)
    torch.testing.assert_close(ours, other, rtol=0, atol=1e-9)


# --- entmax: precisions, transforms, errors -----------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_half_precision_is_computed_in_float32(normal, alpha, dtype):
    z = normal(20, 9).detach().to(dtype).requires_grad_()
    p = entmax(z, alpha)
    assert p.dtype == dtype
    assert torch.equal(p, entmax(z.float(), alpha).to(dtype))
    p[:, 0].sum().backward()
    assert z.grad.dtype == dtype
    assert z.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_under_autocast_half_precision_gives_float32_as_softmax_does(alpha, dtype):
    z = torch.randn(4, 5).to(torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        p = entmax(z.to(dtype), alpha)
        assert entmax(z.double(), alpha).dtype == torch.float64
    assert p.dtype == torch.float32
    assert torch.equal(p, entmax(z.to(dtype).float(), alpha))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_vmap_equals_a_loop(normal, alpha):
    z = normal(3, 6, 5).detach()
    batched = torch.func.vmap(lambda z: entmax(z, alpha, dim=0), in_dims=1)(z)
    expected = torch.stack([entmax(z[:, i], alpha, dim=0) for i in range(6)])
    torch.testing.assert_close(batched, expected, rtol=0, atol=1e-15)


def test_vmap_takes_batches_along_any_dimension(normal):
    z, alphas = normal(4, 5, 3).detach(), 1.0 + normal(4, 1, 3).detach().abs()
    function = _entmax.TransformedEntmax.apply
    p = torch.func.vmap(function, in_dims=(2, 2), out_dims=2)(z, alphas)
    torch.testing.assert_close(
        p, function(z.movedim(2, 0), alphas.movedim(2, 0)).movedim(0, 2)
    )
    p = torch.func.vmap(function, in_dims=(1, None))(z, 1.5)
    torch.testing.assert_close(p, function(z.movedim(1, 0), 1.5))


def test_vmap_over_alphas_equals_a_loop(normal):
    z, alphas = normal(5, 4).detach(), torch.tensor(ALPHAS, dtype=torch.float64)
    one_z = torch.func.vmap(lambda alpha: entmax(z, alpha))(alphas)
    pairs = torch.func.vmap(entmax)(z, alphas)
    rows = alphas.reshape(1, 5, 1).expand(3, 5, 1)
    blocks = torch.func.vmap(entmax, in_dims=(None, 0))(z, rows)
    for i, alpha in enumerate(ALPHAS):
        torch.testing.assert_close(one_z[i], entmax(z, alpha))
        torch.testing.assert_close(pairs[i], entmax(z[i], alpha))
        torch.testing.assert_close(blocks[2, i], entmax(z[i], alpha))


@ignore_script
@pytest.mark.parametrize("alpha", ALPHAS)
def test_function_transforms_combine(normal, alpha):
    z = normal(6).detach()

    def first(z):
        return entmax(z, alpha)[0]

    by_rows = torch.func.vmap(torch.func.grad(first))(torch.stack([z, -z]))
    torch.testing.assert_close(by_rows[1], torch.func.grad(first)(-z))
    forward, reverse = torch.func.jacfwd, torch.func.jacrev
    torch.testing.assert_close(forward(first)(z), reverse(first)(z))
    torch.testing.assert_close(torch.func.hessian(first)(z), reverse(reverse(first))(z))


@pytest.mark.slow
@ignore_instance
@ignore_leaf
@pytest.mark.parametrize("alpha", ALPHAS)
def test_compiled_entmax_equals_entmax(normal, alpha):
    torch.compiler.reset()
    compiled = torch.compile(
        lambda z: entmax(z, alpha), fullgraph=True, backend="aot_eager"
    )
    for scale in (1.0, 30.0):
        z = scale * normal(20, 7).detach()
        z = torch.cat([z, z.new_tensor([[-inf] * 6 + [0.0], [nan] * 7])])
        z.requires_grad_()
        p, expected = compiled(z), entmax(z, alpha)
        torch.testing.assert_close(p, expected, rtol=0, atol=1e-14, equal_nan=True)
        ours, other = (
            torch.autograd.grad(q[:-1, 0].sum(), z)[0] for q in (p, expected)
        )
        torch.testing.assert_close(ours[:-1], other[:-1], rtol=0, atol=1e-13)


@pytest.mark.parametrize("alpha", [1.0 + 1e-9, 1.03, 1.25, 1.5, 1.75, 2.0])
@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
def test_the_threshold_of_what_is_traced_equals_that_by_steps(
    normal, monkeypatch, alpha, scale
):
    z = scale * normal(1000, 20).detach()
    expected = entmax(z, alpha)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    torch.testing.assert_close(entmax(z, alpha), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("z", "error"),
    [([0.0, 1.0], TypeError), (np.zeros(3), TypeError), (torch.arange(3), TypeError),
     (torch.zeros(2, 0), ValueError), (torch.tensor(1.0), ValueError),
     (torch.zeros(3, dtype=torch.complex64), TypeError)],
)  # fmt: skip
def test_wrong_scores_are_named(z, error):
    with pytest.raises(error, match=r"^z must"):
        entmax(z)


def test_a_dimension_that_is_not_there_is_an_error():
    with pytest.raises(ValueError, match="dim 2"):
        entmax(torch.zeros(3, 4), dim=2)


@pytest.mark.parametrize("alpha", [0.99, nan, inf, "2", None, True])
def test_a_wrong_alpha_is_named(alpha):
    with pytest.raises(ValueError, match="alpha"):
        entmax(torch.zeros(3), alpha)
    with pytest.raises(ValueError, match="alpha"):
        RBFKMeansLayer(2, 3, alpha)


@pytest.mark.parametrize(
    "alpha",
    [torch.tensor(0.99), torch.tensor(nan), torch.full((4, 5), 1.5), torch.ones(1),
     torch.ones(3, 1), torch.ones(1, 5), torch.tensor([[1.0], [1.0], [0.5], [2.0]]),
     torch.ones((), device="meta")],
)  # fmt: skip
def test_a_wrong_tensor_of_alphas_is_named(alpha):
    with pytest.raises(ValueError, match=r"^alpha "):
        entmax(torch.zeros(4, 5), alpha)


def test_an_alpha_of_integers_is_named():
    with pytest.raises(TypeError, match=r"^alpha must"):
        entmax(torch.zeros(4, 5), torch.tensor(2))
