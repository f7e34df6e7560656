"""Centres that are computed from other tensors are set, or refused by name."""

# SPDX-License-Identifier: BSD-3-Clause

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn.utils import parametrizations, parametrize, prune  # noqa: E402

from skrbfkmeans.torch import RBFKMeansLayer  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning"),
]


class Negative(torch.nn.Module):
    def forward(self, value):
        return -value

    right_inverse = forward


class Bounded(torch.nn.Module):
    def forward(self, value):
        return value.tanh()


class Clipped(Bounded):
    def right_inverse(self, value):
        return value.clamp(-0.9, 0.9).atanh()


def register(module):
    return lambda layer: parametrize.register_parametrization(
        layer, "centers", module()
    )


def plain(layer):
    centers = layer.centers.detach().clone()
    del layer.centers
    layer.centers = centers


def buffer(layer):
    centers = layer.centers.detach().clone()
    del layer.centers
    layer.register_buffer("centers", centers)


def expanded(layer):
    del layer.centers
    layer.centers = torch.zeros(1, 3).expand(4, 3)


ACCEPT = {
    "frozen": lambda layer: layer.requires_grad_(False),
    "weight_norm": lambda layer: parametrizations.weight_norm(layer, "centers"),
    "old_weight_norm": lambda layer: torch.nn.utils.weight_norm(layer, "centers"),
    "unpruned": lambda layer: prune.identity(layer, "centers"),
    "inverse": register(Negative),
    "plain": plain,
    "buffer": buffer,
}
REFUSE = {
    "spectral_norm": lambda layer: parametrizations.spectral_norm(layer, "centers"),
    "orthogonal": lambda layer: parametrizations.orthogonal(layer, "centers"),
    "pruned": lambda layer: prune.random_unstructured(layer, "centers", 0.3),
    "no_inverse": register(Bounded),
    "clipped": register(Clipped),
    "expanded": expanded,
}


@pytest.fixture
def x():
    return torch.randn(100, 3, generator=torch.Generator().manual_seed(0)) + 2.0


@pytest.mark.parametrize("kind", ACCEPT)
def test_parametrized_centres_are_set(x, kind):
    layer, expected = RBFKMeansLayer(4, 3), RBFKMeansLayer(4, 3)
    ACCEPT[kind](layer)
    close = torch.testing.assert_close
    for method, options in (("init_centers_", {"random_state": 0}), ("em_step_", {})):
        getattr(expected, method)(x, **options)
        getattr(layer, method)(x, **options)
        close(layer.centers.detach(), expected.centers.detach())
        close(layer(x), expected(x))  # whatever a hook computes before
        close(layer.centers.detach(), expected.centers.detach())
    model = layer.to_estimator()
    np.testing.assert_array_equal(model.cluster_centers_, layer.centers.detach())
    assert torch.equal(layer.predict(x), expected.predict(x))
    assert type(layer).from_estimator(model).centers.is_leaf
    if kind in ("frozen", "weight_norm", "inverse", "buffer"):
        other = RBFKMeansLayer(4, 3)
        ACCEPT[kind](other)
        other.load_state_dict(copy.deepcopy(layer.state_dict()))
        assert torch.equal(other.centers, layer.centers)


@pytest.mark.parametrize("kind", REFUSE)
def test_a_parametrization_that_cannot_take_the_centres_says_so(x, kind):
    layer = RBFKMeansLayer(4, 3)
    REFUSE[kind](layer)
    layer.eval()  # in training, reading a spectral norm changes it
    before = layer.centers.detach().clone()
    for method in (layer.init_centers_, layer.em_step_):
        with pytest.raises(RuntimeError, match=r"^centers cannot be set"):
            method(x)
        assert torch.equal(layer.centers, before)


def test_older_hooks_are_asked_before_the_free_energy(x):
    layer = RBFKMeansLayer(4, 3)
    torch.nn.utils.weight_norm(layer, "centers")
    with torch.no_grad():
        layer.centers_v.copy_(x[:4])
        layer.centers_g.copy_(x[:4].norm(dim=1, keepdim=True))
    expected = RBFKMeansLayer(4, 3)
    expected.centers.data.copy_(x[:4])
    torch.testing.assert_close(layer.free_energy(x), expected.free_energy(x))
    assert torch.equal(layer.predict(x), expected.predict(x))
