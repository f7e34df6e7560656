"""What a run may ask of its rows, whoever holds them.

`rows.Rows` answers for the rows of one array, `dask._chunks.ChunkedRows` for those of
many chunks. A pass takes centres in the units of the rows and returns sums, labels or
a few rows: nothing of the size of the data leaves it but labels.
"""

# SPDX-License-Identifier: BSD-3-Clause

from abc import ABC, abstractmethod
from collections import namedtuple

import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh

# Features; up to this many the whole covariance is formed.
EIGH_FEATURES = 512

# Bytes; rows that take more are not copied, as starts and swaps need it, but some of
# them are: at most as many bytes.
MOST_COPIED = 2**26

# Rows of such a sample: as many for each cluster, and no fewer than the least.
SAMPLED_PER_CLUSTER = 1000
LEAST_SAMPLED = 20_000

# Weighted mean and variance of each feature, and the least and the greatest value of
# rows of positive weight.
Measures = namedtuple("Measures", "mean variances low high")


def sample_size(n_clusters, row_size):
    """Number of rows to seek starts and try swaps on, of `row_size` bytes each."""
    size = max(SAMPLED_PER_CLUSTER * n_clusters, LEAST_SAMPLED)
    return max(min(size, int(MOST_COPIED / max(row_size, 1.0))), 2 * n_clusters)


def spread_places(size, random_state):
    """Places between 0 and 1, one drawn from each of `size` equal parts."""
    return (np.arange(size) + random_state.uniform(size=size)) / size


class Passes(ABC):
    """The rows of one call, for all passes that it makes over them.

    Use it as a context manager: what the passes need lives inside.

    Attributes
    ----------
    shape : tuple of int
        Number of rows and of features.
    dtype : dtype
        The precision in which results are wanted.
    units : Units
        The units of the rows, and so of all centres, temperatures and sums.
    weight : float
        Total weight.
    is_unweighted : bool
        Whether all rows weigh the same.
    measures : Measures
        Of the features; the first look at them is a pass.
    """

    @property
    def n_rows(self):
        """Number of rows."""
        return self.shape[0]

    @property
    def n_features(self):
        """Number of features."""
        return self.shape[1]

    @property
    def box(self):
        """Bounds on the coordinates of the rows: the least and the greatest."""
        return self.measures.low, self.measures.high

    @abstractmethod
    def __enter__(self):
        """Begin the passes of a call."""

    @abstractmethod
    def __exit__(self, *exception):
        """End them."""

    @abstractmethod
    def e_step(self, alpha):
        """The E-steps of one run: an object to call with centres and temperatures.

        A call returns `steps.Moments`. The object has ``labels`` of the last step, or
        None where they are not at hand, and ``costliest(centers, n)``, which returns
        the n rows that cost most, for empty centres, and how many rows of positive
        weight each centre has.
        """

    @abstractmethod
    def assess(self, centers, labels=None):
        """Labels of the rows, their inertia, and the weight of each cluster.

        Labels that are known may be given.
        """

    @abstractmethod
    def scatter(self, mean, V=None):
        """Weighted scatter matrix of the rows about `mean`; its product with V, if any.

        Sparse rows are not made dense for the product with one vector.
        """

    @abstractmethod
    def distinct(self, enough):
        """Distinct rows of positive weight, as a set of bytes: all, or `enough`."""

    @abstractmethod
    def sample(self, n_clusters, random_state):
        """Rows of one array that stand for all, to find starts and try swaps on.

        A context manager that gives `rows.Rows`: these very rows, if they are in one
        array, else some of them.
        """

    def largest_variance(self):
        """Largest eigenvalue of the weighted covariance of the rows."""
        d, mean = self.n_features, self.measures.mean
        if d <= EIGH_FEATURES:
            covariance = self.scatter(mean) / self.weight
            # LAPACK would rescale a matrix of extreme size, by no power of two
            exponent = int(np.frexp(np.abs(covariance).max())[1])
            largest = np.linalg.eigvalsh(np.ldexp(covariance, -exponent))[-1]
            return max(float(np.ldexp(largest, exponent)), 0.0)

        def times(v):
            return self.scatter(mean, v) / self.weight

        covariance = LinearOperator((d, d), matvec=times, dtype=np.float64)
        start = np.random.RandomState(0).standard_normal(d)
        if not np.any(times(start)):
            return 0.0
        largest = eigsh(covariance, k=1, v0=start, return_eigenvectors=False)[0]
        return max(float(largest), 0.0)
