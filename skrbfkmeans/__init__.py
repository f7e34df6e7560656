"""Soft k-means done right: k-means as the cold limit of an RBF network."""

# SPDX-License-Identifier: BSD-3-Clause

from ._rbfkmeans import RBFKMeans

__version__ = "0.1.0"

__all__ = ["RBFKMeans", "__version__"]
