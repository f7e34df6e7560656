"""Rows, centres and weights for passes over rows."""

# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest

dtypes = pytest.mark.parametrize("dtype", ["f8", "f4"])


def example(n, d, k, dtype="f8", seed=0):
    """Rows about 3, centres of quite different lengths, weights some of which are 0."""
    rng = np.random.default_rng([seed, n, d, k])
    X = (3.0 + rng.standard_normal((n, d))).astype(dtype)
    X /= np.sqrt(np.dtype(dtype).type(d))  # distances are about 1 whatever d
    spread = rng.uniform(0.0, 2.0, size=(k, 1))
    centers = (3.0 + spread * rng.standard_normal((k, d))) / np.sqrt(d)
    weights = rng.uniform(0.5, 2.0, size=n)
    weights[rng.random(n) < 0.2] = 0.0
    weights[0] = 1.0
    return X, centers, weights
