"""What several tests of PyTorch use."""

# SPDX-License-Identifier: BSD-3-Clause

import pytest

torch = pytest.importorskip("torch")

from skrbfkmeans.torch import RBFKMeansLayer  # noqa: E402

ALPHAS = (1.0, 1.25, 1.5, 2.0, 3.0)
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


def layer_at(centers, alpha=1.5, sigma=1.0):
    """A layer with these centres, in their precision."""
    centers = torch.as_tensor(centers)
    layer = RBFKMeansLayer(*centers.shape, alpha, sigma, dtype=centers.dtype)
    layer.centers.data.copy_(centers)
    return layer


def gradients(value, *inputs):
    return torch.autograd.grad(value, inputs, create_graph=True)
