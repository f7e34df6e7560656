"""The unit of the weights changes nothing in the layer for PyTorch."""

# SPDX-License-Identifier: BSD-3-Clause

from math import inf

import pytest

torch = pytest.importorskip("torch")

from torch_helpers import layer_at  # noqa: E402

from skrbfkmeans.schedules import Geometric  # noqa: E402
from skrbfkmeans.torch import RBFKMeansLayer  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")
UNITS = (5e-324, 1e-300, 1e300, 4e307)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("sigma", [0.0, 2.0])
def test_an_em_step_does_not_depend_on_the_unit_of_the_weights(blobs, sigma, unit):
    x, weight = torch.tensor(blobs), torch.tensor([1.0, 2.0, 3.0, 4.0] * 50).double()
    layer, other = layer_at(x[:5].clone(), sigma=sigma), layer_at(x[:5].clone(), 1.5)
    other.sigma.fill_(sigma)
    layer.em_step_(x, weight)
    other.em_step_(x, weight * unit)
    torch.testing.assert_close(other.centers, layer.centers, rtol=1e-12, atol=1e-12)
    assert not torch.equal(layer.centers, x[:5])


@pytest.mark.parametrize("unit", UNITS)
def test_the_start_and_the_measure_do_not_depend_on_it(blobs, unit):
    x, weight = torch.tensor(blobs), torch.tensor([1.0, 2.0, 3.0, 4.0] * 50).double()
    layers = [RBFKMeansLayer(5, 3, sigma=Geometric(), dtype=x.dtype) for _ in "ab"]
    for layer, w in zip(layers, (weight, weight * unit), strict=True):
        layer.init_centers_(x, w, random_state=0)
    assert torch.equal(layers[0].centers, layers[1].centers)
    assert layers[1].sigma.item() == pytest.approx(layers[0].sigma.item(), rel=1e-9)
    for layer, w in zip(layers, (weight, weight * unit), strict=True):
        layer.measure_(x, w)
    assert layers[1].sigma.item() == pytest.approx(layers[0].sigma.item(), rel=1e-9)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_weights_of_few_digits_are_taken_exactly(blobs, dtype):
    x = torch.tensor(blobs)
    weight = torch.linspace(0.1, 1.0, 200).to(dtype)
    largest = torch.finfo(dtype).max
    huge = (weight * (0.5 * largest)).clamp_max(largest)
    for w in (weight, huge, weight * torch.finfo(dtype).tiny):
        layer, other = (layer_at(x[:5].clone(), sigma=2.0) for _ in "ab")
        value = layer.free_energy(x, w)
        torch.testing.assert_close(value, other.free_energy(x, w.double()))
        expected = (layer.free_energy(x, reduction="none") * w.double()).sum()
        torch.testing.assert_close(
            value, expected / w.double().sum(), rtol=1e-12, atol=0
        )
        layer.em_step_(x, w), other.em_step_(x, w.double())
        assert torch.equal(layer.centers, other.centers)


def test_weights_of_many_orders_of_magnitude_count_as_they_are(blobs):
    x = torch.tensor(blobs)
    weight = torch.logspace(-12, 4, 200, dtype=torch.float64)
    for unit in (1.0, 2.0**-1000, 2.0**1000):
        layer = layer_at(x[:5].clone(), sigma=3.0)
        shares = layer(x).detach() * weight[:, None]
        layer.em_step_(x, weight * unit)
        means = shares.T @ x / shares.sum(0)[:, None]
        torch.testing.assert_close(layer.centers.detach(), means, rtol=0, atol=1e-11)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("unit", UNITS)
def test_sums_and_terms_scale_or_overflow_as_they_must(dtype, unit):
    x = torch.tensor([[0.0], [2.0], [1.0]], dtype=dtype)  # the first on a centre
    layer = layer_at(torch.tensor([[0.0], [9.0]], dtype=dtype), sigma=0.0)
    weight = torch.tensor([3.0, 1.0, 1.0], dtype=torch.float64) * unit
    terms = layer.free_energy(x, weight, reduction="none")
    assert terms.dtype == dtype
    expected = torch.tensor([0.0, 4.0, 1.0]).double() * weight
    assert torch.equal(terms, expected.to(dtype))
    assert not terms.isnan().any()
    total = layer.free_energy(x, weight, reduction="sum")
    assert (
        total.item() == torch.tensor(5.0 * unit, dtype=torch.float64).to(dtype).item()
    )
    assert layer.free_energy(x, weight).item() == pytest.approx(1.0, rel=1e-6)


def test_terms_of_both_signs_that_overflow_make_no_nan():
    layer = layer_at(torch.tensor([[0.0], [0.1]]).double(), 1.0, 1.0)
    x = torch.tensor([[0.0], [30.0], [0.0]]).double()
    terms = layer.free_energy(x, reduction="none")
    assert terms.min() < 0.0 < terms.max()
    weight = torch.full((3,), 1.5e308, dtype=torch.float64)
    assert layer.free_energy(x, weight, reduction="sum").item() == inf
    assert layer.free_energy(x, weight).isfinite()


def test_a_weight_keeps_its_gradient():
    layer = layer_at(torch.randn(2, 3).double())
    x = torch.randn(4, 3).double()
    weight = torch.rand(4).double().requires_grad_()
    for reduction in ("mean", "sum", "none"):
        assert torch.autograd.gradcheck(
            lambda w, r=reduction: layer.free_energy(x, w, r), weight
        )
