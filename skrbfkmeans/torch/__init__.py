r"""Soft k-means inside a network, for PyTorch.

The same mathematics as `skrbfkmeans.RBFKMeans`, with the same numbers: `entmax` of
tensors, with exact derivatives, and `RBFKMeansLayer`, whose free energy is a loss for
an encoder and the centres together. It needs ``pip install "skrbfkmeans[torch]"``;
nothing else in the package imports PyTorch.
"""

# SPDX-License-Identifier: BSD-3-Clause

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        "skrbfkmeans.torch needs PyTorch, which is not installed: "
        'pip install "skrbfkmeans[torch]".'
    ) from error

from ._entmax import entmax
from ._layer import RBFKMeansLayer

__all__ = ["RBFKMeansLayer", "entmax"]
