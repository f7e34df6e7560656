"""What it would gain to split a cluster, and cost to do without its centre.

Estimated for many clusters at once, from some rows of each. Whoever moves a centre
finds out what it really changes: these numbers only tell where to try.
"""

# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from scipy import sparse

from .._engine.codebook import MOST_GAPS, middle_of

# Rows of a cluster; estimates are made from no more.
ROWS_PER_CLUSTER = 64

# Steps of the power method; a direction near the principal axis is enough.
POWER_STEPS = 3

# Relative to the mass of a cluster; a half of less weighs as much as rounding.
EPS = np.finfo(np.float64).eps

# Mass; a divisor is at least this, so that no cluster of no mass divides by zero.
TINY = np.finfo(np.float64).tiny


def closest_centers(centers, some, n):
    """The n closest to some of the centres, besides themselves, in no order.

    Returns an array of shape (n, n_some).
    """
    n = min(n, len(centers) - 1)
    shifted = centers - middle_of(centers)
    squares = np.einsum("ij,ij->i", shifted, shifted)
    closest = np.empty((n, len(some)), dtype=np.int64)
    size = max(1, MOST_GAPS // len(centers))
    for first in range(0, len(some), size):
        which = some[first : first + size]
        gaps = squares - 2.0 * (shifted[which] @ shifted.T)
        gaps[np.arange(len(which)), which] = np.inf
        closest[:, first : first + size] = np.argpartition(gaps, n - 1)[:, :n].T
    return closest


class Sample:
    """Some rows of several clusters, each seen from its centre.

    Parameters
    ----------
    rows : Rows
        The data.
    members : list of ndarray
        The rows of each cluster.
    centers : ndarray of shape (n_clusters, n_features)
        Their centres.
    """

    def __init__(self, rows, members, centers):
        members = [some[:: -(-len(some) // ROWS_PER_CLUSTER) or 1] for some in members]
        counts = np.array([len(some) for some in members])
        indices = np.concatenate(members)
        self.labels = np.repeat(np.arange(len(counts)), counts)
        self._ends = np.cumsum(counts)
        self._starts, self._filled = self._ends - counts, np.flatnonzero(counts)
        self.centers, self.is_sparse = centers, rows.is_sparse
        self.X = rows.X[indices].astype(np.float64, copy=False)
        weights = rows.weights[indices]
        self.weights = weights / self.totals(weights)[self.labels]
        if self.is_sparse:  # not shifted: products with the centres are taken off
            self._owners = np.repeat(np.arange(len(indices)), np.diff(self.X.indptr))
        else:
            self.X = self.X - centers[self.labels]

    def totals(self, values):
        """Sum of the values in each cluster."""
        return np.bincount(self.labels, values, len(self.centers))

    def largest(self, values):
        """Where the values are largest, first, in each cluster that has rows."""
        highest = np.zeros(len(self.centers))
        highest[self._filled] = np.maximum.reduceat(values, self._starts[self._filled])
        found = np.flatnonzero(values == highest[self.labels])
        return found[np.searchsorted(self.labels[found], self._filled)]

    def project(self, directions):
        """Product of each row with the direction of its cluster."""
        if not self.is_sparse:
            return np.einsum("ij,ij->i", self.X, directions[self.labels])
        X, owners = self.X, self._owners
        products = X.data * directions[self.labels[owners], X.indices]
        offsets = np.einsum("ij,ij->i", self.centers, directions)[self.labels]
        return np.bincount(owners, products, len(self.labels)) - offsets

    def sums(self, shares):
        """Sum of the rows of each cluster, times their shares."""
        pointers = np.append(0, self._ends)
        indices = np.arange(len(self.labels))
        sums = sparse.csr_matrix((shares, indices, pointers)) @ self.X
        if self.is_sparse:
            sums = sums.toarray() - self.totals(shares)[:, np.newaxis] * self.centers
        return sums

    def farthest(self):
        """The row of each cluster that is farthest from the centre."""
        if self.is_sparse:
            squares = np.bincount(self._owners, self.X.data**2, len(self.labels))
            squares = squares - 2.0 * self.project(self.centers)
        else:
            squares = np.einsum("ij,ij->i", self.X, self.X)
        rows = self.X[self.largest(squares)]
        if self.is_sparse:
            rows = rows.toarray() - self.centers[self._filled]
        farthest = np.zeros(self.centers.shape)
        farthest[self._filled] = rows
        return farthest

    def axes(self):
        """About the principal axis of each cluster, by the power method."""
        axes = unit(self.farthest())
        for _ in range(POWER_STEPS):
            axes = unit(self.sums(self.weights * self.project(axes)))
        return axes

    def halve(self):
        """Cut each cluster across its principal axis, where that saves most.

        Returns
        -------
        gains : ndarray of shape (n_clusters,)
            How much two centres would save, per unit of mass.
        halves : ndarray of shape (n_clusters, 2, n_features)
            The means of both halves, less the centre.
        """
        heights = self.project(self.axes())
        spreads = np.sqrt(self.totals(self.weights * heights**2))
        heights /= np.where(spreads > 0.0, spreads, 1.0)[self.labels]
        order = np.lexsort((heights, self.labels))
        masses, moments = self._running([self.weights, self.weights * heights], order)
        masses = np.clip(masses, EPS, 1.0 - EPS)  # running sums lose less than that
        rest = 1.0 - masses
        means = self.totals(self.weights * heights)[self.labels]
        saved = (moments - masses * means) ** 2 / (masses * rest)
        saved[self._ends[self._filled] - 1] = 0.0  # where nothing is left
        cuts, shares = np.zeros((2, len(self.centers)))
        cuts[self._filled] = best = self.largest(saved)
        shares[self._filled] = masses[best]
        shares = np.clip(shares, EPS, 1.0 - EPS)[:, np.newaxis]
        is_lower_half = np.empty(len(order))
        is_lower_half[order] = np.arange(len(order)) <= cuts[self.labels]
        lower = self.sums(self.weights * is_lower_half)
        upper = self.sums(self.weights) - lower
        halves = np.stack([lower / shares, upper / (1.0 - shares)], axis=1)
        gaps = halves[:, 0] - halves[:, 1]
        gains = np.einsum("ij,ij->i", shares * (1.0 - shares) * gaps, gaps)
        return gains, halves

    def _running(self, values, order):
        """Running sums within each cluster, of rows in some order."""
        sums = np.cumsum(np.array(values)[:, order], axis=1)
        before = np.insert(sums, 0, 0.0, axis=1)[:, self._starts]
        return sums - before[:, self.labels]

    def removal_costs(self, moves, masses, other_masses):
        """What it costs to do without each of the centres.

        The less of two estimates: each row goes to the closest of some other
        centres, which stay; or all go to one of them, and its mean follows. The
        latter is the same, to the last bit, whichever of two is removed.

        Parameters
        ----------
        moves : ndarray of shape (n_others, n_clusters, n_features)
            Some other centres, less this one.
        masses : ndarray of shape (n_clusters,)
            What the clusters weigh.
        other_masses : ndarray of shape (n_others, n_clusters)
            What those of the other centres weigh.
        """
        excess, merged = np.inf, np.inf
        for move, others in zip(moves, other_masses, strict=True):
            squares = np.einsum("ij,ij->i", move, move)
            joint = masses * others / np.maximum(masses + others, TINY)
            merged = np.minimum(merged, joint * squares)
            excess = np.minimum(excess, squares[self.labels] - 2.0 * self.project(move))
        return np.minimum(merged, masses * self.totals(self.weights * excess))


def unit(vectors):
    """Vectors of length one in the same directions; zeros stay zeros."""
    for norm in np.inf, 2:  # first to a size whose square can be represented
        lengths = np.linalg.norm(vectors, norm, axis=1, keepdims=True)
        vectors = vectors / np.where(lengths > 0.0, lengths, 1.0)
    return vectors
