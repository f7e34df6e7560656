"""Exported layers equal the layer, on other inputs than the example."""

# SPDX-License-Identifier: BSD-3-Clause

import logging
import warnings
from math import inf

import pytest

torch = pytest.importorskip("torch")

from torch_helpers import ALPHAS, layer_at  # noqa: E402

from skrbfkmeans.schedules import Geometric  # noqa: E402
from skrbfkmeans.torch import RBFKMeansLayer, _tracing, entmax  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")
# A program has hundreds of steps for the other alphas, and takes seconds to write.
OFTEN = [
    1.0,
    1.5,
    2.0,
    *(pytest.param(alpha, marks=pytest.mark.slow) for alpha in (1.25, 3.0)),
]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


class Call(torch.nn.Module):
    """A method of a layer, or a function, as the forward pass of a module."""

    def __init__(self, module, name="forward", **options):
        super().__init__()
        self.module, self.name, self.options = module, name, options

    def forward(self, *args):
        return getattr(self.module, self.name)(*args, **self.options)


class Entmax(torch.nn.Module):
    def __init__(self, alpha):
        super().__init__()
        self.alpha = alpha

    def forward(self, z):
        return entmax(z, self.alpha)


def exported(module, *example):
    """A program of `torch.export`, for any number of rows."""
    shapes = {0: torch.export.Dim("n")}
    if isinstance(module, Call):  # one entry for all of its *args
        shapes = (tuple(shapes for _ in example),)
    else:
        shapes = tuple(shapes for _ in example)
    return torch.export.export(module, example, dynamic_shapes=shapes).module()


def traced(module, *example):
    """A program of `torch.jit.trace`; no warning but that it is deprecated."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
        return torch.jit.trace(module, example)


def in_onnx(module, *example):
    """What onnxruntime makes of a file."""
    pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    shapes = {0: torch.export.Dim("n")}
    shapes = tuple(shapes for _ in example)
    if isinstance(module, Call):
        shapes = (shapes,)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, of its own code
        program = torch.onnx.export(
            module, example, dynamo=True, dynamic_shapes=shapes, verbose=False
        )
    session = runtime.InferenceSession(program.model_proto.SerializeToString())
    names = [i.name for i in session.get_inputs()]

    def run(*args):
        values = {name: a.detach().numpy() for name, a in zip(names, args, strict=True)}
        return torch.from_numpy(session.run(None, values)[0])

    return run


def rows(layer, blobs):
    """Far rows, rows on a centre, and rows with exact ties."""
    x = torch.tensor(blobs).to(layer.centers.dtype)
    centers = layer.centers.detach()
    middle = (centers[:1] + centers[1:2]) / 2.0
    return torch.cat([x, 30.0 * x[:20], centers, middle])


def compare(program, layer, x):
    expected, r = layer(x).detach(), program(x).detach()
    assert r.dtype == expected.dtype
    torch.testing.assert_close(r, expected, rtol=0, atol=TOLERANCE[r.dtype])
    if layer.alpha > 1.0:  # softmax has no zeros but those of underflow
        assert torch.equal(r == 0.0, expected == 0.0)


@pytest.mark.parametrize("write", [exported, traced])
@pytest.mark.parametrize("alpha", OFTEN)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_exported_layer_equals_the_layer(blobs, write, alpha, dtype):
    centers = torch.tensor(blobs[:7]).round().to(dtype)
    for sigma in (0.0, 2.0) if alpha == 1.5 else (2.0,):
        layer = layer_at(centers, alpha, 1.0)
        layer.sigma.fill_(sigma)
        x = rows(layer, blobs)
        program = write(layer, x[:9].clone())
        compare(program, layer, x)
        compare(program, layer, x[:1])


@pytest.mark.slow
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sigma", [0.0, 2.0])
def test_a_layer_in_onnx_equals_the_layer(blobs, alpha, dtype, sigma):
    layer = layer_at(torch.tensor(blobs[:7]).round().to(dtype), alpha, sigma)
    x = rows(layer, blobs)
    program = in_onnx(layer, x[:9].clone())
    compare(program, layer, x)
    compare(program, layer, x[:1])


def test_the_default_layer_in_onnx_equals_the_layer(blobs):
    layer = layer_at(torch.tensor(blobs[:7]).round().float(), sigma=2.0)
    x = rows(layer, blobs)
    compare(in_onnx(layer, x[:9].clone()), layer, x)


def test_sigma_is_a_number_of_the_program(blobs):
    layer = layer_at(torch.tensor(blobs[:7]).round(), sigma=2.0)
    x = rows(layer, blobs)
    program = exported(layer.eval(), x[:9].clone())
    for sigma in (0.0, 0.5, 1e-200):
        layer.sigma.fill_(sigma)
        program.sigma.fill_(sigma)
        compare(program, layer, x)


def test_leading_dimensions_are_exported(blobs):
    layer = layer_at(torch.tensor(blobs[:7]), sigma=2.0)
    x = torch.tensor(blobs).reshape(10, 4, 5, 3)
    with torch.no_grad():
        for write in (exported, traced):
            compare(write(layer, x[:2].clone()), layer, x)


@pytest.mark.parametrize("write", [exported, traced])
@pytest.mark.parametrize("alpha", [*ALPHAS, 1.0 + 1e-9])
def test_exported_entmax_equals_entmax(rng, write, alpha):
    z = 5.0 * torch.tensor(rng.standard_normal((60, 6)))
    z[0], z[1, 2], z[2, 3] = 1.0, -inf, 1e20
    program = write(Entmax(alpha), torch.zeros(3, 6, dtype=z.dtype))
    p, expected = program(z), entmax(z, alpha)
    torch.testing.assert_close(p, expected, rtol=0, atol=1e-12)
    assert torch.equal(p == 0.0, expected == 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [*ALPHAS, 1.0 + 1e-9, 1.01, 1.3, 1.7])
def test_entmax_in_onnx_equals_entmax(rng, alpha):
    z = 5.0 * torch.tensor(rng.standard_normal((60, 6)))
    z[0], z[1, 2], z[2, 3] = 1.0, -inf, 1e20
    p = in_onnx(Entmax(alpha), torch.zeros(3, 6, dtype=z.dtype))(z)
    expected = entmax(z, alpha)
    torch.testing.assert_close(p, expected, rtol=0, atol=1e-12)
    assert torch.equal(p == 0.0, expected == 0.0)


@pytest.mark.parametrize("write", [exported, traced, in_onnx])
@pytest.mark.parametrize("sigma", [0.0, 2.0])
def test_labels_are_exported(blobs, write, sigma):
    layer = layer_at(torch.tensor(blobs[:7]).round().float(), sigma=sigma)
    x = rows(layer, blobs)
    program = write(Call(layer, "predict"), x[:9].clone())
    assert torch.equal(program(x), layer.predict(x))


@pytest.mark.parametrize("write", [exported, traced])
@pytest.mark.parametrize("alpha", OFTEN)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_free_energy_is_exported(blobs, write, alpha, reduction):
    layer = layer_at(torch.tensor(blobs[:7]), alpha, 2.0)
    x = rows(layer, blobs)
    weight = torch.linspace(0.0, 1.0, len(x), dtype=x.dtype)
    for args in ((x,), (x, weight)):
        module = Call(layer, "free_energy", reduction=reduction)
        program = write(module, *(a[:9].clone() for a in args))
        expected = layer.free_energy(*args, reduction=reduction).detach()
        torch.testing.assert_close(program(*args), expected, rtol=1e-10, atol=1e-10)
    layer.sigma.zero_()
    program = write(Call(layer, "free_energy"), x[:9].clone())
    torch.testing.assert_close(program(x), layer.free_energy(x).detach())


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [1.0, 1.3, 1.5, 2.0])
def test_the_free_energy_in_onnx_equals_that_of_the_layer(blobs, alpha):
    layer = layer_at(torch.tensor(blobs[:7]), alpha, 2.1)
    x = rows(layer, blobs)
    weight = torch.linspace(0.0, 1.0, len(x), dtype=x.dtype)
    program = in_onnx(Call(layer, "free_energy"), x[:9].clone(), weight[1:10].clone())
    expected = layer.free_energy(x, weight).detach()
    torch.testing.assert_close(program(x, weight), expected, rtol=1e-11, atol=0)


@pytest.mark.parametrize("method", ["em_step_", "init_centers_", "measure_"])
def test_what_changes_the_layer_cannot_be_exported(method):
    layer = RBFKMeansLayer(2, 3)
    with pytest.raises(RuntimeError, match=f"{method} cannot be exported"):
        traced(Call(layer, method), torch.randn(5, 3))


def test_rows_of_another_width_are_named_when_exported():
    with pytest.raises(ValueError, match="x must have n_features=3"):
        traced(RBFKMeansLayer(2, 3), torch.randn(5, 1))


def test_a_temperature_that_is_not_known_is_nan_in_the_program():
    layer = RBFKMeansLayer(2, 3, sigma=Geometric())
    with pytest.raises(RuntimeError, match="sigma is not known"):
        traced(layer, torch.randn(5, 3))
    assert exported(layer, torch.randn(5, 3))(torch.randn(4, 3)).isnan().all()


@pytest.mark.parametrize("x", [1e-18, 1e-9, 1e-3, 0.4, 2.0, -1e-17, -1e-9, -0.6, -40.0])
def test_logarithms_keep_their_digits_in_a_program(monkeypatch, x):
    x = torch.tensor(x, dtype=torch.float64)
    expected = x.log1p() if x >= -1.0 else None, x.expm1()
    monkeypatch.setattr(_tracing, "is_exporting", lambda: True)
    if expected[0] is not None:
        torch.testing.assert_close(_tracing.log1p(x), expected[0], rtol=1e-15, atol=0)
    torch.testing.assert_close(_tracing.expm1(x), expected[1], rtol=1e-15, atol=0)
