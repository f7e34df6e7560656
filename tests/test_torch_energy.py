"""The free energy of the layer for PyTorch, and its gradients."""

# SPDX-License-Identifier: BSD-3-Clause

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch_helpers import (  # noqa: E402
    ALPHAS,
    gradients,
    ignore_instance,
    ignore_leaf,
    layer_at,
)

import skrbfkmeans.entmax as arrays  # noqa: E402
from skrbfkmeans import energy  # noqa: E402
from skrbfkmeans.torch import RBFKMeansLayer, _entmax  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


# --- the free energy ----------------------------------------------------------


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
