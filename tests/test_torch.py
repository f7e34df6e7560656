"""Entmax and the k-means layer for PyTorch."""

# SPDX-License-Identifier: BSD-3-Clause

import copy
import io
import math
import pickle

import naive
import numpy as np
import pytest
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import NotFittedError

torch = pytest.importorskip("torch")

import skrbfkmeans.entmax as arrays  # noqa: E402
from skrbfkmeans import RBFKMeans, energy  # noqa: E402
from skrbfkmeans.schedules import (  # noqa: E402
    Constant,
    Cosine,
    Cyclic,
    Geometric,
    Linear,
    Schedule,
)
from skrbfkmeans.torch import (  # noqa: E402
    RBFKMeansLayer,
    _entmax,
    entmax,
)

ALPHAS = (1.0, 1.25, 1.5, 2.0, 3.0)
SHAPES = ((3, 4), (1, 1, 5), (2, 2, 3), (3, 1), (6,))
METHODS = ("forward", "free_energy", "predict", "em_step_", "init_centers_", "measure_")
inf, nan = float("inf"), float("nan")

# What PyTorch says of its own code.
ignore_script = pytest.mark.filterwarnings(
    "ignore:`torch.jit.script` is deprecated:DeprecationWarning"
)
ignore_instance = pytest.mark.filterwarnings(
    "ignore:.*should not be instantiated:DeprecationWarning"
)
ignore_leaf = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor:UserWarning"
)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)


@pytest.fixture
def normal():
    """Standard normal tensors, float64, with gradients."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        x = torch.randn(shape, generator=generator, dtype=torch.float64)
        return x.requires_grad_()

    return draw


def layer_at(centers, alpha=1.5, sigma=1.0):
    """A layer with these centres, in their precision."""
    centers = torch.as_tensor(centers)
    layer = RBFKMeansLayer(*centers.shape, alpha, sigma, dtype=centers.dtype)
    layer.centers.data.copy_(centers)
    return layer


def gradients(value, *inputs):
    return torch.autograd.grad(value, inputs, create_graph=True)


# --- entmax: values ----------------------------------------------------------


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


# --- entmax: derivatives -----------------------------------------------------


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


# --- entmax: precisions, transforms, errors ----------------------------------


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
    is_whole = alpha in (1.0, 1.5, 2.0)
    torch.compiler.reset()
    compiled = torch.compile(
        lambda z: entmax(z, alpha), fullgraph=is_whole, backend="aot_eager"
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


@pytest.mark.parametrize("alpha", [1.5, 2.0])
@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
def test_the_threshold_by_a_sort_equals_that_by_steps(
    normal, monkeypatch, alpha, scale
):
    z = scale * normal(1000, 20).detach()
    expected = entmax(z, alpha)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    torch.testing.assert_close(entmax(z, alpha), expected, rtol=0, atol=1e-14)


@pytest.mark.slow
@ignore_instance
def test_a_compiled_whole_graph_of_another_alpha_is_an_error(normal):
    torch.compiler.reset()
    compiled = torch.compile(
        lambda z: entmax(z, 1.25), fullgraph=True, backend="aot_eager"
    )
    with pytest.raises(torch._dynamo.exc.Unsupported):
        compiled(normal(3, 4))


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


# --- the free energy ---------------------------------------------------------


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("sigma", [0.0, 1e-4, 0.3, 1.0, 4.0, 1e3])
def test_values_equal_those_of_arrays(blobs, rng, alpha, sigma):
    centers, weights = blobs[:7], rng.uniform(size=len(blobs))
    layer, x = layer_at(centers, alpha, sigma), torch.tensor(blobs)
    r = energy.responsibilities(blobs, centers, sigma, alpha=alpha)
    np.testing.assert_allclose(layer(x).detach(), r, rtol=0, atol=1e-11)
    expected, gradient = energy.free_energy(
        blobs, centers, sigma, alpha=alpha, sample_weight=weights, return_gradient=True
    )
    total = layer.free_energy(x, torch.tensor(weights), reduction="sum")
    assert total.item() == pytest.approx(expected, rel=1e-12)
    total.backward()
    scale = np.abs(gradient).max()
    np.testing.assert_allclose(layer.centers.grad, gradient, rtol=0, atol=1e-11 * scale)


@pytest.mark.parametrize("shape", [(4, 2), (1, 1, 2), (2, 3, 2), (2,)])
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("k", [1, 4])
def test_the_first_two_derivatives_of_the_free_energy_are_exact(
    normal, shape, alpha, k
):
    layer = layer_at(normal(k, 2).detach(), alpha, 0.9)

    def value(x, centers):
        parameters = {"centers": centers}
        return torch.func.functional_call(Loss(layer), named(parameters), (x,))

    inputs = normal(*shape), layer.centers
    assert torch.autograd.gradcheck(value, inputs)
    assert torch.autograd.gradgradcheck(value, inputs)


class Loss(torch.nn.Module):
    """The free energy as the forward pass of a module."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer.free_energy(x, reduction="none")


def named(parameters):
    return {f"layer.{name}": value for name, value in parameters.items()}


@pytest.mark.parametrize("alpha", ALPHAS)
def test_derivatives_of_responsibilities_are_exact(normal, alpha):
    layer = layer_at(normal(4, 2).detach(), alpha, 0.9)
    x = normal(3, 2)
    assert torch.autograd.gradcheck(layer, x)
    assert torch.autograd.gradgradcheck(layer, x)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_gradient_is_that_of_fixed_responsibilities(normal, alpha):
    layer, x = layer_at(normal(4, 2).detach(), alpha, 1.1), normal(9, 2)
    d2 = (x[:, None] - layer.centers).square().sum(-1)
    fixed = (layer(x).detach() * d2).sum()
    expected = torch.autograd.grad(fixed, (x, layer.centers))
    value = layer.free_energy(x, reduction="sum")
    torch.testing.assert_close(torch.autograd.grad(value, (x, layer.centers)), expected)


@pytest.mark.parametrize("alpha", [1.25, 1.5, 2.0])
def test_the_gradient_never_goes_through_the_responsibilities(
    normal, alpha, monkeypatch
):
    layer, x = layer_at(normal(4, 2).detach(), alpha, 1.1), normal(9, 2)
    products = []
    exact = _entmax.jacobian_product
    monkeypatch.setattr(
        _entmax, "jacobian_product", lambda *a: products.append(a) or exact(*a)
    )
    layer.free_energy(x).backward()
    assert not products
    layer(x)[:, 0].sum().backward()
    assert len(products) == 1


def test_function_transforms_apply_to_the_free_energy(normal):
    layer, x = layer_at(normal(4, 2).detach()), normal(9, 2).detach()

    def value(centers):
        parameters = named({"centers": centers})
        return torch.func.functional_call(Loss(layer), parameters, (x,)).sum()

    centers = layer.centers.detach()
    curves = torch.func.jacrev(torch.func.grad(value))(centers)
    expected = torch.autograd.functional.hessian(value, centers)
    torch.testing.assert_close(curves, expected)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_free_energy_is_between_its_bounds(normal, alpha):
    layer, x = layer_at(normal(4, 2).detach(), alpha, 0.7), normal(50, 2)
    value = layer.free_energy(x, reduction="none")
    largest = 2.0 * 0.7**2 * arrays.tsallis_entropy(np.full(4, 0.25), alpha)
    layer.sigma.zero_()
    inertia = layer.free_energy(x, reduction="none")
    assert (value <= inertia + 1e-14).all()
    assert (value >= inertia - largest - 1e-14).all()


def test_reductions_are_the_weighted_mean_sum_and_terms(normal):
    layer, x = layer_at(normal(3, 2).detach()), normal(4, 5, 2)
    weight = torch.rand(4, 5)
    terms = layer.free_energy(x, reduction="none")
    assert terms.shape == (4, 5)
    close = torch.testing.assert_close
    close(layer.free_energy(x), terms.mean())
    close(layer.free_energy(x, reduction="sum"), terms.sum())
    weighted = terms * weight
    close(layer.free_energy(x, weight, reduction="none"), weighted)
    close(layer.free_energy(x, weight, "sum"), weighted.sum())
    close(layer.free_energy(x, weight), weighted.sum() / weight.double().sum())


def test_integer_weights_equal_repetition(normal):
    layer, x = layer_at(normal(3, 2).detach()), normal(4, 2).detach()
    weight = torch.tensor([2, 1, 0, 3])
    repeated = x.repeat_interleave(weight, dim=0)
    torch.testing.assert_close(
        layer.free_energy(x, weight), layer.free_energy(repeated)
    )
    other = copy.deepcopy(layer)
    layer.em_step_(x, weight), other.em_step_(repeated)
    torch.testing.assert_close(layer.centers, other.centers, rtol=0, atol=1e-14)


@pytest.mark.parametrize("sigma", [0.0, 1e-160, 1e-4, 1.0])
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_row_exactly_on_a_centre_has_finite_gradients(normal, alpha, sigma, dtype):
    centers = (normal(5, 3).detach() + 100.0).to(dtype)
    layer = layer_at(centers, alpha, sigma)
    x = centers.clone().requires_grad_()
    values = layer.free_energy(x, reduction="none")
    slopes = gradients(values.sum(), x, layer.centers)
    curves = gradients(slopes[0].square().sum() + slopes[1].square().sum(), x)
    if sigma < 1.0:
        assert not values.any()
        assert torch.equal(layer(x), torch.eye(5, dtype=dtype))
    for tensor in (values, *slopes, *curves):
        assert tensor.isfinite().all()
    for tensor in gradients(layer(x)[:, 0].sum(), x, layer.centers):
        assert tensor.isfinite().all()


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_low_temperature_has_the_gradients_of_kmeans(blobs, alpha):
    x = torch.tensor(blobs, dtype=torch.float32)
    layer = layer_at(x[:6].clone(), alpha, 1e-4)
    hard = layer_at(x[:6].clone(), alpha, 0.0)
    for model in (layer, hard):
        model.free_energy(x).backward()
    assert torch.equal(layer.centers.grad, hard.centers.grad)


def test_at_sigma_zero_ties_go_to_the_lowest_index():
    layer = layer_at([[0.0], [2.0], [2.0]], sigma=0.0)
    x = torch.tensor([[1.0], [2.0], [-1.0]], requires_grad=True)
    assert layer(x).tolist() == [[1, 0, 0], [0, 1, 0], [1, 0, 0]]
    assert not gradients(layer(x)[:, 0].sum(), x)[0].any()
    assert layer.free_energy(x, reduction="none").tolist() == [1.0, 0.0, 1.0]
    layer.free_energy(x, reduction="sum").backward()
    assert x.grad.tolist() == [[2.0], [0.0], [-2.0]]
    assert layer.centers.grad.tolist() == [[0.0], [0.0], [0.0]]
    assert layer.predict(x).tolist() == [0, 1, 0]


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("sigma", [1e-4, 1.0])
def test_huge_distances_give_no_nan(alpha, sigma):
    x = torch.tensor([[1e15, 0.0], [-1e15, 1.0], [3.0, 1e12]], requires_grad=True)
    layer = layer_at([[0.0, 0.0], [1e14, 0.0], [5.0, 5.0]], alpha, sigma)
    value = layer.free_energy(x)
    value.backward()
    for tensor in (layer(x), value, x.grad, layer.centers.grad):
        assert tensor.isfinite().all()


@pytest.mark.parametrize("offset", [1e4, 1e6])
def test_float32_far_from_the_origin_is_labelled_right(rng, offset):
    centers = 30.0 * rng.standard_normal((20, 8))
    labels = rng.integers(20, size=500)
    x = torch.tensor(centers[labels] + rng.standard_normal((500, 8)) + offset).float()
    layer = layer_at(torch.tensor(centers + offset).float(), sigma=3.0)
    assert layer(x).argmax(1).tolist() == labels.tolist()
    assert layer.predict(x).tolist() == labels.tolist()
    exact = layer_at(layer.centers.detach().double(), sigma=3.0)
    torch.testing.assert_close(layer(x), exact(x).float(), rtol=0, atol=1e-4)


def test_one_far_centre_costs_the_others_no_digits(rng):
    x = torch.tensor(rng.standard_normal((100, 3))).float()
    centers = torch.cat([x[:5], torch.full((1, 3), 1e8)])
    layer = layer_at(centers)
    exact = layer_at(centers.double())
    torch.testing.assert_close(layer(x), exact(x.double()).float(), rtol=0, atol=1e-5)


def test_clusters_far_apart_are_told_within_each_of_them(rng):
    """Where a product of matrices loses every digit of the small distances."""
    fine = rng.standard_normal((6, 3))
    offsets = 1e5 * np.repeat(np.eye(3), 2, axis=0)
    centers = torch.tensor(fine + offsets).float()
    away = torch.full((2, 3), -3e5)  # whose distances need no second look
    x = torch.cat([away, *[centers] * 5])
    layer, exact = layer_at(centers, sigma=0.5), layer_at(centers.double(), sigma=0.5)
    torch.testing.assert_close(layer(x), exact(x.double()).float(), rtol=0, atol=1e-4)


@pytest.mark.parametrize("far", [False, True])
def test_gradients_keep_their_digits_far_from_the_origin(rng, far):
    x = torch.tensor(rng.standard_normal((50, 3)) + (0.0 if far else 1e5)).float()
    centers = torch.cat([x[:5] + 0.1, torch.full((1, 3), 1e7)])[: 6 if far else 5]
    layer, exact = layer_at(centers), layer_at(centers.double())
    x.requires_grad_()
    ours = gradients(layer.free_energy(x, reduction="sum"), x, layer.centers)
    x = x.detach().double().requires_grad_()
    other = gradients(exact.free_energy(x, reduction="sum"), x, exact.centers)
    for a, b in zip(ours, other, strict=True):
        torch.testing.assert_close(a, b.float(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("features", [16, 256])
def test_a_step_keeps_one_matrix_of_rows_and_centres(features):
    batch, k, kept = 128, 50, {}
    x = torch.randn(batch, features, requires_grad=True)
    layer = RBFKMeansLayer(k, features, sigma=features**0.5)
    inputs = {
        x.untyped_storage().data_ptr(),
        layer.centers.untyped_storage().data_ptr(),
    }

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        value = layer.free_energy(x)
    value.backward()
    sizes = [size for pointer, size in kept.items() if pointer not in inputs]
    assert sum(sizes) == 4 * batch * k


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_rows_and_autocast_are_computed_in_float32(normal, dtype):
    layer, x = layer_at(normal(4, 3).detach().float()), normal(20, 3).detach().to(dtype)
    exact = layer(x.float())
    assert torch.equal(layer(x), exact)
    assert layer.free_energy(x).dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer(x), exact)
        value = layer.free_energy(x.float())
        assert torch.equal(value, layer.free_energy(x))
        value.backward()
    under = layer.centers.grad.clone()
    wide = layer_at(layer.centers.detach().double())
    wide.free_energy(x.double()).backward()
    torch.testing.assert_close(under, wide.centers.grad.float(), rtol=1e-5, atol=1e-6)
    layer.centers.grad = None
    layer.free_energy(x).backward()
    assert torch.equal(under, layer.centers.grad)
    half = layer.to(dtype)
    assert half(x).dtype == dtype
    assert half.free_energy(x).dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert half(x).dtype == torch.float32
    half.free_energy(x).backward()
    assert half.centers.grad.dtype == dtype


def test_rows_in_another_precision_than_the_centres_are_promoted(normal):
    layer = layer_at(normal(4, 3).detach().float())
    x = normal(5, 3)
    assert layer(x).dtype == torch.float64
    assert layer.double()(x.float()).dtype == torch.float64


@pytest.mark.slow
@ignore_instance
@ignore_leaf
def test_a_compiled_layer_equals_the_layer(normal):
    torch.compiler.reset()
    layer, x = layer_at(normal(4, 3).detach()), normal(20, 3)
    compiled = torch.compile(Loss(layer), backend="aot_eager")
    torch.testing.assert_close(compiled(x), Loss(layer)(x))


# --- the centres -------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("alpha", [1.0, 1.25, 1.5, 2.0])
@pytest.mark.parametrize("sigma", [0.0, 0.5, 2.0, 6.0])
def test_em_gradient_descent_and_the_estimator_make_the_same_step(
    blobs, rng, alpha, sigma, weighted
):
    centers = blobs[:5].copy()
    weights = rng.uniform(size=len(blobs)) if weighted else None
    weight = None if weights is None else torch.tensor(weights)
    x = torch.tensor(blobs)
    layer, other = layer_at(centers, alpha, sigma), layer_at(centers, alpha, sigma)
    assert layer.em_step_(x, weight) is layer
    mass = other(x).detach() * (1.0 if weight is None else weight[:, None])
    other.free_energy(x, weight, reduction="sum").backward()
    descended = other.centers - other.centers.grad / (2.0 * mass.sum(0)[:, None])
    torch.testing.assert_close(layer.centers, descended, rtol=0, atol=1e-12)
    model = RBFKMeans(
        5, init=centers, schedule=sigma, alpha=alpha, max_iter=1, refine=None
    ).fit(blobs, sample_weight=weights)
    np.testing.assert_allclose(
        layer.centers.detach(), model.cluster_centers_, rtol=0, atol=1e-12
    )


def test_gradient_descent_by_an_optimizer_makes_em_steps(blobs):
    """With a step for each centre, which is what the learning rate is a unit of."""
    x, layer = torch.tensor(blobs), layer_at(blobs[:1], sigma=2.0)
    other = layer_at(blobs[:1], sigma=2.0)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    layer.free_energy(x).backward()  # the mass of one centre is 1 in the mean
    optimizer.step()
    torch.testing.assert_close(layer.centers, other.em_step_(x).centers)


@pytest.mark.parametrize("learning_rate", [0.1, 1.0, 1.7])
def test_the_learning_rate_is_that_of_the_estimator(blobs, learning_rate):
    layer = layer_at(blobs[:5], sigma=3.0)
    layer.em_step_(torch.tensor(blobs), learning_rate=learning_rate)
    model = RBFKMeans(
        5, init=blobs[:5], schedule=3.0, max_iter=1, learning_rate=learning_rate
    ).fit(blobs)
    np.testing.assert_allclose(
        layer.centers.detach(), model.cluster_centers_, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("learning_rate", [0.3, 1.0])
def test_em_steps_never_raise_the_free_energy(blobs, alpha, learning_rate):
    layer, x = layer_at(blobs[:5], alpha, 2.0), torch.tensor(blobs)
    values = []
    for _ in range(20):
        values.append(layer.free_energy(x).item())
        layer.em_step_(x, learning_rate=learning_rate)
    assert np.diff(values).max() <= 1e-13 * abs(values[0])
    assert values[-1] < values[0]


@pytest.mark.parametrize("sigma", [0.0, 0.5])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_a_centre_without_mass_stays(sigma, scale):
    x = torch.tensor([[0.0], [1.0], [50.0]], dtype=torch.float64)
    layer = layer_at(torch.tensor([[0.4], [50.0], [99.0]]).double(), sigma=sigma)
    weight = scale * torch.tensor([1.0, 1.0, 1e-14], dtype=torch.float64)
    layer.em_step_(x, weight)
    moved_by_little = 50.0  # exact either way: its only row is there
    assert layer.centers.flatten().tolist() == [0.5, moved_by_little, 99.0]


def test_next_to_no_mass_is_none(blobs):
    x = torch.tensor([[0.0], [1.0], [50.0]], dtype=torch.float64)
    layer = layer_at(torch.tensor([[0.5], [51.0]]).double(), sigma=0.5)
    layer.em_step_(x, torch.tensor([1.0, 1.0, 1e-13]))
    assert layer.centers.flatten().tolist() == [0.5, 51.0]
    layer.em_step_(x, torch.tensor([1.0, 1.0, 1e-11]))
    assert layer.centers.flatten().tolist() == [0.5, 50.0]


@pytest.mark.parametrize("weight", [None, torch.zeros(0)])
def test_an_empty_batch_moves_nothing(weight):
    layer = layer_at([[0.0], [1.0]])
    layer.em_step_(torch.zeros(0, 1), weight)
    assert layer.centers.flatten().tolist() == [0.0, 1.0]
    assert layer(torch.zeros(0, 1)).shape == (0, 2)
    assert layer.predict(torch.zeros(3, 0, 1)).shape == (3, 0)
    assert layer.free_energy(torch.zeros(0, 1), weight, "sum").item() == 0.0


def test_weights_of_zero_move_nothing():
    layer = layer_at([[0.0], [1.0]])
    layer.em_step_(torch.ones(3, 1), torch.zeros(3))
    assert layer.centers.flatten().tolist() == [0.0, 1.0]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_first_centres_are_those_of_the_estimator(blobs, rng, dtype, weighted):
    X = blobs.astype(dtype)
    weights = rng.uniform(size=len(X)) if weighted else None
    weight = None if weights is None else torch.tensor(weights)
    model = RBFKMeans(6, random_state=3, store_path=True, schedule=1.0, refine=None)
    model.fit(X, sample_weight=weights)
    x = torch.tensor(X)
    layer = RBFKMeansLayer(6, 3, dtype=x.dtype)
    for random_state in (3, np.random.RandomState(3)):
        layer.init_centers_(x.reshape(20, 10, 3), None if weight is None else
                            weight.reshape(20, 10), random_state)  # fmt: skip
        np.testing.assert_array_equal(layer.centers.detach(), model.path_[0])
    assert layer.centers.requires_grad


def test_the_draws_follow_generators_of_pytorch(blobs):
    x, layer = torch.tensor(blobs), RBFKMeansLayer(6, 3)

    def centers(seed=None, random_state=None):
        if seed is not None:
            torch.manual_seed(seed)
        layer.init_centers_(x, random_state=random_state)
        return layer.centers.detach().clone()

    first = centers(seed=1)
    assert not torch.equal(first, centers())
    assert torch.equal(first, centers(seed=1))
    assert torch.equal(first, centers(None, torch.Generator().manual_seed(1)))


# --- the temperature ---------------------------------------------------------


def test_sigma_stays_float64():
    layer = RBFKMeansLayer(3, 2, sigma=0.1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 2), layer)
    for cast in (model.half, model.bfloat16, model.float, lambda: model.to(torch.half)):
        cast()
        assert layer.sigma.dtype == torch.float64
        assert layer.sigma.item() == 0.1
    assert layer.centers.dtype == torch.float16
    assert model.double()[1].sigma.item() == 0.1


def test_a_layer_moves_to_another_device_as_a_whole():
    layer = RBFKMeansLayer(3, 2, sigma=0.1).to("meta")
    assert {t.device.type for t in layer.state_dict().values()} == {"meta"}
    assert "sigma=unknown" in repr(layer)
    layer = layer.to_empty(device="cpu")
    layer.load_state_dict(RBFKMeansLayer(3, 2, sigma=0.2).state_dict())
    assert layer.sigma.item() == 0.2
    assert layer.sigma.dtype == torch.float64


@pytest.mark.parametrize(
    "schedule",
    [Geometric(), Geometric(harden=False), Linear(n_steps=5, n_iter=2), Cyclic(),
     Cosine(unit="absolute"), Constant(unit="critical"), Constant(harden=True)],
)  # fmt: skip
def test_schedules_drive_sigma_as_they_do_in_the_estimator(blobs, schedule):
    model = RBFKMeans(5, schedule=schedule, random_state=0, refine=None)
    sigmas = model._begin_stream(blobs, 1.0, None).sigmas
    layer = RBFKMeansLayer(5, 3, sigma=schedule)
    layer.init_centers_(torch.tensor(blobs), random_state=0)
    seen = []
    for _ in range(len(sigmas) + 2):
        seen.append(layer.sigma.item())
        assert layer.step_sigma_() is layer
    assert seen[: len(sigmas)] == sigmas.tolist()
    assert seen[-2:] == [sigmas[-1]] * 2
    assert (seen[-1] == 0.0) == schedule.harden
    assert layer.set_progress_(0.0).sigma.item() == sigmas[0]
    assert layer.set_progress_(1.0).sigma.item() == sigmas[-1]
    n = len(sigmas)
    by_progress = [
        layer.set_progress_((i + 0.5) / n).sigma.item() for i in range(len(sigmas))
    ]
    assert by_progress == sigmas.tolist()


def test_measuring_anew_keeps_the_multiple_of_the_spread(blobs):
    x = torch.tensor(blobs)
    layer = RBFKMeansLayer(5, 3, sigma=Geometric(), dtype=torch.float64)
    layer.init_centers_(x, random_state=0).step_sigma_()
    sigma = layer.sigma.item()
    layer.centers.data *= 0.01
    centers = layer.centers.detach().clone()
    layer.measure_(0.01 * x)
    assert layer.sigma.item() == pytest.approx(0.01 * sigma, rel=1e-12)
    assert torch.equal(layer.centers, centers)
    layer.sigma.fill_(1.0)
    assert layer.measure_(x).sigma.item() != 1.0


def test_the_unit_of_a_schedule_must_be_measured_first(blobs):
    x = torch.tensor(blobs)
    layer = RBFKMeansLayer(5, 3, sigma=Geometric())
    assert layer.sigma.isnan()
    for use in (layer, layer.free_energy, layer.em_step_):
        with pytest.raises(RuntimeError, match=r"init_centers_\(x\) or measure_\(x\)"):
            use(x)
    assert layer.predict(x).shape == (200,)
    with pytest.raises(RuntimeError, match="sigma is not known"):
        layer.to_estimator()
    assert layer.measure_(x)(x).isfinite().all()
    assert RBFKMeansLayer(5, 3, sigma=Geometric(unit="absolute")).sigma.item() == 1.0


def test_without_a_schedule_sigma_stays(blobs):
    layer = RBFKMeansLayer(5, 3, sigma=0.7)
    layer.step_sigma_().set_progress_(1.0).init_centers_(torch.tensor(blobs))
    assert layer.sigma.item() == 0.7
    layer.sigma.fill_(0.5)
    assert layer.measure_(torch.tensor(blobs)).sigma.item() == 0.5


def test_a_schedule_of_ones_own_drives_sigma():
    class Halving(Schedule):
        unit, harden = "absolute", False

        def multiples(self):
            return 0.5 ** np.arange(3)

    layer = RBFKMeansLayer(2, 1, sigma=Halving())
    assert layer.step_sigma_().step_sigma_().sigma.item() == 0.25


# --- states and estimators ---------------------------------------------------


@pytest.mark.parametrize("sigma", [0.3, Geometric(n_steps=5)])
def test_a_state_dict_restores_the_layer(blobs, sigma):
    x = torch.tensor(blobs)
    layer = RBFKMeansLayer(5, 3, sigma=sigma, dtype=torch.float64)
    layer.init_centers_(x, random_state=0).step_sigma_().step_sigma_()
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other = RBFKMeansLayer(5, 3, sigma=sigma, dtype=torch.float64)
    other.load_state_dict(torch.load(file, weights_only=True))
    for _ in range(3):
        assert torch.equal(other.sigma, layer.sigma)
        assert torch.equal(other(x), layer(x))
        layer.step_sigma_(), other.step_sigma_()


def test_layers_can_be_copied_and_pickled(blobs):
    x = torch.tensor(blobs)
    layer = RBFKMeansLayer(5, 3, sigma=Geometric()).init_centers_(x)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other(x), layer(x))
        assert repr(other) == repr(layer)


def test_the_representation_tells_the_arguments():
    assert repr(RBFKMeansLayer(3, 2, 1.25, 0.5)) == (
        "RBFKMeansLayer(n_clusters=3, n_features=2, alpha=1.25, sigma=0.5)"
    )
    assert "schedule=Geometric(" in repr(RBFKMeansLayer(3, 2, sigma=Geometric(2.0)))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("alpha", [1.0, 1.25, 1.5, 2.0])
@pytest.mark.parametrize("schedule", ["auto", 2.0, 0.0])
def test_layer_and_estimator_become_each_other(dtype, alpha, schedule):
    X = load_digits().data[:300].astype(dtype)
    model = RBFKMeans(10, alpha=alpha, schedule=schedule, random_state=0).fit(X)
    layer, x = RBFKMeansLayer.from_estimator(model), torch.tensor(X)
    np.testing.assert_array_equal(layer.predict(x), model.predict(X))
    assert layer.sigma.item() == model.sigma_
    tolerance = 1e-4 if dtype == "f4" else 1e-10
    np.testing.assert_allclose(
        layer(x).detach(), model.predict_proba(X), rtol=0, atol=tolerance
    )
    back = layer.to_estimator()
    np.testing.assert_array_equal(back.predict(X), model.labels_)
    np.testing.assert_array_equal(back.cluster_centers_, model.cluster_centers_)
    np.testing.assert_array_equal(back.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(back.transform(X), model.transform(X))
    assert back.score(X) == model.score(X)
    assert back.get_params()["schedule"] == model.sigma_
    for name in ("labels_", "inertia_", "n_iter_", "hardened_", "history_"):
        assert not hasattr(back, name)
    with pytest.raises(ValueError, match="features"):
        back.predict(X[:, 1:])


def test_the_estimator_does_not_follow_the_layer(blobs):
    layer = layer_at(blobs[:5])
    model = layer.to_estimator()
    layer.centers.data.zero_()
    np.testing.assert_array_equal(model.cluster_centers_, blobs[:5])
    other = RBFKMeansLayer.from_estimator(model)
    other.centers.data.zero_()
    np.testing.assert_array_equal(model.cluster_centers_, blobs[:5])


def test_the_temperature_of_predict_proba_is_taken(blobs):
    model = RBFKMeans(5, proba_sigma=3.0, random_state=0).fit(blobs)
    assert RBFKMeansLayer.from_estimator(model).sigma.item() == 3.0


def test_batches_after_to_estimator_make_an_em_step(blobs):
    layer = layer_at(blobs[:5], sigma=2.0)
    model = layer.to_estimator().partial_fit(blobs)
    layer.em_step_(torch.tensor(blobs))
    np.testing.assert_allclose(
        layer.centers.detach(), model.cluster_centers_, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_centres_become_float32_in_the_estimator(blobs, dtype):
    x = torch.tensor(blobs).to(dtype)
    layer = layer_at(x[:5].clone())
    model = layer.to_estimator()
    assert model.cluster_centers_.dtype == np.float32
    np.testing.assert_array_equal(layer.predict(x), model.predict(x.float().numpy()))


@pytest.mark.parametrize("seed", range(5))
def test_labels_are_those_of_the_estimator_on_a_grid_of_ties(seed):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 5, size=(200, 2)).astype(np.float32)
    layer = layer_at(torch.tensor(X[:8]))
    x = torch.tensor(X)
    labels = layer.predict(x.reshape(10, 20, 2))
    assert labels.shape == (10, 20)
    assert labels.dtype == torch.int64
    d2 = (x[:, None] - layer.centers).square().sum(-1)
    assert torch.equal(labels.flatten(), d2.argmin(1))
    np.testing.assert_array_equal(labels.flatten(), layer.to_estimator().predict(X))


def test_an_estimator_must_be_fitted_and_of_this_package():
    with pytest.raises(NotFittedError):
        RBFKMeansLayer.from_estimator(RBFKMeans())
    with pytest.raises(TypeError, match=r"^model must be an RBFKMeans"):
        RBFKMeansLayer.from_estimator(object())


def test_an_encoder_and_its_clusters_learn_together():
    X = make_blobs(300, 10, centers=4, random_state=0)[0]
    x = torch.tensor(X).float()
    x = (x - x.mean(0)) / x.std(0)
    torch.manual_seed(0)
    encoder = torch.nn.Linear(10, 2)
    layer = RBFKMeansLayer(4, 2, sigma=Geometric(n_steps=30))
    layer.init_centers_(encoder(x), random_state=0)
    optimizer = torch.optim.Adam([*encoder.parameters(), *layer.parameters()], 0.01)
    before = layer.free_energy(encoder(x)).item()
    for step in range(60):
        optimizer.zero_grad()
        layer.set_progress_(step / 60)
        layer.free_energy(encoder(x)).backward()
        optimizer.step()
    assert layer.free_energy(encoder(x)).item() < before
    assert len(np.unique(layer.predict(encoder(x)))) > 1


# --- errors ------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("x", "error", "match"),
    [(np.zeros((4, 3)), TypeError, "x must be a tensor of floating point"),
     (torch.zeros(4, 3, dtype=torch.int64), TypeError, "x must .* torch.int64"),
     (torch.zeros(4, 2), ValueError, r"x must have n_features=3 .* \(4, 2\)"),
     (torch.tensor(1.0), ValueError, "x must have n_features=3"),
     (torch.zeros(4, 3, device="meta"), ValueError, "x is on meta, but centers")],
)  # fmt: skip
def test_wrong_rows_are_named(method, x, error, match):
    with pytest.raises(error, match=match):
        getattr(RBFKMeansLayer(2, 3), method)(x)


@pytest.mark.parametrize("method", ["predict", "init_centers_", "measure_", "em_step_"])
@pytest.mark.parametrize("value", [nan, inf])
def test_rows_that_are_not_finite_are_named(method, value):
    x = torch.zeros(4, 3)
    x[1, 1] = value
    with pytest.raises(ValueError, match="x contains NaN or infinity"):
        getattr(RBFKMeansLayer(2, 3), method)(x)


@pytest.mark.parametrize("sigma", [0.0, 1.0])
def test_a_row_of_nan_spoils_itself_alone(sigma):
    layer = layer_at(torch.randn(4, 3), sigma=sigma)
    x = torch.randn(5, 3)
    x[2, 1] = nan
    assert layer(x).isnan().all(1).tolist() == [False, False, True, False, False]
    values = layer.free_energy(x, reduction="none")
    assert values.isnan().tolist() == [False, False, True, False, False]


@pytest.mark.parametrize("method", ["free_energy", "em_step_", "init_centers_"])
@pytest.mark.parametrize(
    ("weight", "error"),
    [([1.0] * 4, TypeError), (torch.ones(4, dtype=torch.complex64), TypeError),
     (torch.ones(3), ValueError), (torch.ones(4, 1), ValueError),
     (torch.tensor([1.0, -1.0, 1.0, 1.0]), ValueError),
     (torch.tensor([1.0, nan, 1.0, 1.0]), ValueError),
     (torch.tensor([1.0, inf, 1.0, 1.0]), ValueError),
     (torch.ones(4, device="meta"), ValueError)],
)  # fmt: skip
def test_wrong_weights_are_named(method, weight, error):
    with pytest.raises(error, match=r"^weight "):
        getattr(RBFKMeansLayer(2, 3), method)(torch.randn(4, 3), weight)


@pytest.mark.parametrize("method", ["free_energy", "init_centers_", "measure_"])
def test_weights_of_zero_alone_are_named(method):
    with pytest.raises(ValueError, match=r"^weight is zero"):
        getattr(RBFKMeansLayer(2, 3), method)(torch.randn(4, 3), torch.zeros(4))


def test_weights_of_zero_alone_make_a_sum_of_zero():
    layer = RBFKMeansLayer(2, 3)
    x = torch.randn(4, 3, requires_grad=True)
    layer.free_energy(x, torch.zeros(4), reduction="sum").backward()
    assert not x.grad.any()
    values = layer.free_energy(x, torch.zeros(4), reduction="none")
    assert values.tolist() == [0.0] * 4


@pytest.mark.parametrize("unit", [1e-300, 1e-50, 1e300])
def test_the_unit_of_the_weights_does_not_matter_to_the_mean(unit):
    layer = layer_at(torch.randn(4, 3), sigma=1.0)
    x, weight = torch.randn(5, 3), torch.arange(1, 6, dtype=torch.float64)
    mean = layer.free_energy(x, weight)
    torch.testing.assert_close(layer.free_energy(x, weight * unit), mean)


def test_centres_that_are_not_finite_are_named_and_spoil_themselves_alone():
    centers = torch.randn(3, 2)
    centers[1] = nan
    layer = RBFKMeansLayer(3, 2, sigma=1.0)
    layer.centers.data.copy_(centers)
    with pytest.raises(ValueError, match="centers contain NaN"):
        layer.measure_(torch.randn(4, 2))
    d2 = layer._squared_distances(torch.randn(4, 2))
    assert d2.isnan().all(0).tolist() == [False, True, False]


def test_progress_leaves_no_temperature_out():
    schedule = Geometric(n_steps=100, harden=False, unit="absolute")
    layer, seen = RBFKMeansLayer(2, 3, sigma=schedule), set()
    for epoch in range(100):
        seen.add(int(layer.set_progress_(epoch / 100).position))
    assert seen == set(range(100))


def test_a_layer_of_an_estimator_is_on_the_cpu():
    model = RBFKMeans(2, random_state=0).fit([[0.0], [1.0], [9.0], [10.0]])
    with torch.device("meta"):
        layer = RBFKMeansLayer.from_estimator(model)
    assert {t.device.type for t in layer.state_dict().values()} == {"cpu"}


def test_rows_without_probabilities_cost_no_more_steps(monkeypatch):
    steps = 0
    power = _entmax._power

    def count(*args):
        nonlocal steps
        steps += 1
        return power(*args)

    monkeypatch.setattr(_entmax, "_power", count)
    z = torch.randn(20, 5)
    entmax(z, 1.25)
    few, steps = steps, 0
    z[3] = -inf
    assert entmax(z, 1.25)[3].isnan().all()
    assert steps <= few + 1


@pytest.mark.parametrize(
    ("name", "value"),
    [("n_clusters", 0), ("n_clusters", 2.5), ("n_clusters", True), ("n_features", -1),
     ("n_features", "3"), ("sigma", -1.0), ("sigma", nan), ("sigma", inf),
     ("sigma", "auto"), ("sigma", None)],
)  # fmt: skip
def test_wrong_arguments_of_the_layer_are_named(name, value):
    arguments = {"n_clusters": 2, "n_features": 3, name: value}
    with pytest.raises(ValueError, match=name):
        RBFKMeansLayer(**arguments)


def test_a_dtype_of_integers_is_named():
    with pytest.raises(TypeError, match="dtype"):
        RBFKMeansLayer(2, 3, dtype=torch.int32)


def test_a_schedule_with_wrong_parameters_is_named():
    with pytest.raises(ValueError, match="n_steps"):
        RBFKMeansLayer(2, 3, sigma=Geometric(n_steps=0))


@pytest.mark.parametrize("value", [0.0, 2.0, -1.0, nan, True, "1"])
def test_a_wrong_learning_rate_is_named(value):
    with pytest.raises(ValueError, match="learning_rate"):
        RBFKMeansLayer(2, 3).em_step_(torch.randn(4, 3), learning_rate=value)


@pytest.mark.parametrize("value", [-0.1, 1.1, nan, "1"])
def test_a_wrong_progress_is_named(value):
    with pytest.raises(ValueError, match="progress"):
        RBFKMeansLayer(2, 3).set_progress_(value)


def test_a_wrong_reduction_is_named():
    with pytest.raises(ValueError, match="reduction"):
        RBFKMeansLayer(2, 3).free_energy(torch.randn(4, 3), reduction="max")


def test_too_few_rows_to_choose_centres_from_are_named():
    with pytest.raises(ValueError, match=r"x has 4 rows, fewer than n_clusters=5"):
        RBFKMeansLayer(5, 3).init_centers_(torch.randn(4, 3))
    with pytest.raises(ValueError, match="x has no rows"):
        RBFKMeansLayer(5, 3).measure_(torch.randn(0, 3))


def test_centres_that_are_not_finite_are_named():
    layer = layer_at([[0.0], [nan]])
    for use in (layer.to_estimator, lambda: layer.predict(torch.zeros(2, 1))):
        with pytest.raises(ValueError, match=r"^centers contain NaN"):
            use()


# --- the import --------------------------------------------------------------


def test_neither_the_import_nor_a_fit_imports_pytorch(python):
    script = """
import sys
import numpy as np
import skrbfkmeans, skrbfkmeans.energy, skrbfkmeans.entmax, skrbfkmeans.schedules
assert "torch" not in sys.modules
X = np.random.default_rng(0).normal(size=(50, 2))
skrbfkmeans.RBFKMeans(4, random_state=0).fit(X).predict_proba(X)
assert "torch" not in sys.modules
"""
    python(script, environment={"NUMBA_DISABLE_JIT": "1"})


def test_without_pytorch_the_import_says_how_to_install_it(python):
    python("""
import sys
class Missing:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ImportError(name)
sys.meta_path.insert(0, Missing)
try:
    import skrbfkmeans.torch
except ImportError as error:
    assert 'pip install "skrbfkmeans[torch]"' in str(error)
else:
    raise AssertionError
import skrbfkmeans
""")
