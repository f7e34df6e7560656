"""Data that several test modules use."""

# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from sklearn.datasets import make_blobs


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def blobs():
    """Five overlapping clusters of 40 rows each in three features."""
    return make_blobs(200, 3, centers=5, cluster_std=4.0, random_state=0)[0]
