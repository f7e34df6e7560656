"""The E-steps of one run: rows whose share is proved are not touched.

A row that belongs to one centre alone goes on doing so until centres have moved
far enough that another could have a share. Until then its contribution stays
in running sums. How far, its bounds tell: an upper bound on its distance to its
own centre and a lower bound on that to all others.
"""

# SPDX-License-Identifier: BSD-3-Clause

from collections import namedtuple

import numpy as np
from scipy.spatial.distance import cdist

from . import _kernels
from ._blocks import share_width

# Softmax shares are added up about a point at most so many sigma from any centre,
# as long as at least this share of the rows is soft.
COMPACT, MOSTLY_SOFT = 1e4, 0.2

# Distances between centres are worth their while with this many rows a centre.
APART = 20

# Running sums are taken anew when a centre has lost all but this share of its
# mass, or has moved so far that the sum of its squared distances from its origin is
# so many times the free energy: more digits are not to be lost.
LEAST_LEFT, MOST_MOVED = 1e-3, 1e3

Sums = namedtuple("Sums", "sums masses squares counts touched")
Bounds = namedtuple("Bounds", "upper lower moved fallen apart")


class Moments(namedtuple("Moments", "origins sums masses totals")):
    """What one E-step leaves for the M-step: sums that add up over any rows.

    ``sums`` (n_clusters, n_features) of the responsibilities times the rows
    less the ``origins`` of the centres, ``masses`` (n_clusters,) of the
    responsibilities, and ``totals`` (5,), which the properties name. With an
    origin near it, no centre loses digits to rows that are far away.
    """

    __slots__ = ()

    free_energy = property(lambda self: self.totals[_kernels.OBJECTIVE])
    soft_weight = property(lambda self: self.totals[_kernels.SOFT_WEIGHT])
    support = property(lambda self: self.totals[_kernels.SUPPORT])
    n_changed = property(lambda self: self.totals[_kernels.CHANGED])
    n_picked = property(lambda self: self.totals[_kernels.PICKED])

    def means(self, which):
        """Weighted means of the shares of some centres."""
        masses = self.masses[which, np.newaxis]
        return self.origins[which] + self.sums[which] / masses


class EStep:
    """The E-steps of one run, called with centres and temperatures in turn.

    Parameters
    ----------
    rows : Rows
        The data, measured.
    alpha : float
        Tsallis index of the responsibilities.
    labels : ndarray of shape (n_samples,), int32, default=None
        Labels that are known beforehand, -1 by default; overwritten.
    pruned : bool, default=True
        Whether to leave rows alone whose share is proved. The results are the
        same, but for the rounding of sums.

    Attributes
    ----------
    labels : ndarray of shape (n_samples,), int32
        Nearest centre of each row.
    """

    def __init__(self, rows, alpha, labels=None, pruned=True):
        self.rows, self.alpha, self.pruned = rows, alpha, pruned
        if labels is None:
            labels = np.full(rows.n_rows, -1, dtype=np.int32)
        self.labels = labels
        self._centers, self._must_begin, self._soft_fraction = None, True, 1.0

    def __call__(self, centers, sigma):
        """One E-step at temperature sigma; 0 is the hard limit.

        Parameters
        ----------
        centers : ndarray of shape (n_clusters, n_features)
        sigma : float

        Returns
        -------
        moments : Moments
            Over all rows.
        """
        codebook = self.rows.codebook(centers)
        as_softmax = self._suits_softmax(codebook, sigma)
        if self._centers is None:
            self._allocate(*centers.shape)
        if as_softmax:
            self._begin(centers, np.tile(codebook.shift, (len(centers), 1)))
        elif self._must_begin or not self.pruned:
            self._begin(centers, centers)
        else:
            self._follow(centers)
        self._run(codebook, sigma, as_softmax)
        moments = self._add_up(centers)
        self._must_begin = as_softmax or self._digits_at_risk(moments)
        return moments

    # --- bounds and running sums ---

    def _allocate(self, k, d):
        self._strips = self.rows.strips(k, k * d)
        n = len(self._strips)
        self._upper, self._lower = np.empty((2, self.rows.n_rows))
        self._totals = np.zeros((n, 5))
        self._held, self._soft = (
            Sums(
                np.zeros((n, k, d)),
                np.zeros((n, k)),
                np.zeros((n, k)),
                np.zeros((n, k), dtype=np.int64),
                np.zeros((n, k), dtype=bool),
            )
            for _ in range(2)
        )
        self._parts = [
            [Sums(*(array[s] for array in sums)) for sums in (self._held, self._soft)]
            for s in range(n)
        ]

    def _begin(self, centers, origins):
        """Forget all bounds and running sums, which henceforth are about `origins`."""
        k, d = centers.shape
        self._centers = centers
        self._lower.fill(-np.inf)
        self._moved, self._fallen, self._heaviest = np.zeros((3, k))
        self._origins = np.clip(origins, *self.rows.box)
        self._origin_norms = np.einsum("ij,ij->i", self._origins, self._origins)
        for array in self._held:
            array.fill(0)
        self._sums = np.zeros((k, d))
        self._masses, self._squares = np.zeros((2, k))

    def _follow(self, centers):
        """Let the bounds fall by what the centres have moved since the last step."""
        moves = np.sqrt(np.sum((centers - self._centers) ** 2, axis=1))
        self._centers = centers
        self._moved = self._moved + moves
        first = np.argmax(moves)
        others = np.full(len(moves), moves[first])
        others[first] = np.max(np.delete(moves, first), initial=0.0)
        self._fallen = self._fallen + others

    def _suits_softmax(self, codebook, sigma):
        """Whether `_kernels.softmax_rows` can be used, and is worth it."""
        if self.alpha != 1.0 or sigma * sigma == 0.0 or self.rows.is_sparse:
            return False
        reach = np.max(np.abs(codebook.centers - codebook.shift))
        return self._soft_fraction > MOSTLY_SOFT and reach <= COMPACT * sigma

    # --- a pass ---

    def _run(self, codebook, sigma, as_softmax):
        """Pass over the rows, each strip into its own sums."""
        rows, two_sigma2 = self.rows, 2.0 * sigma * sigma
        width = share_width(sigma, self.alpha)
        apart = self._distances_to_next(codebook)
        drift = 1.0 + 1e-12  # more than the rounding of the sums
        bounds = Bounds(
            self._upper, self._lower, self._moved * drift, self._fallen * drift, apart
        )
        self._held.touched.fill(False)
        soft = self._soft.touched
        self._soft.sums[soft], self._soft.masses[soft] = 0.0, 0.0
        soft.fill(False)
        self._totals.fill(0.0)

        def work(s, start, stop):
            held, soft = self._parts[s]
            work = rows.work(codebook, as_softmax)
            if as_softmax:
                _kernels.softmax_rows(
                    rows.X, rows.stored_weights, start, stop, codebook, work,
                    two_sigma2, self.labels, self._origins, soft, self._totals[s],
                )  # fmt: skip
            else:
                _kernels.em_rows(
                    *rows.arrays, rows.stored_weights, start, stop, codebook, work,
                    self.alpha, two_sigma2, width, bounds, self.labels,
                    self._origins, self._origin_norms, held, soft, self._totals[s],
                )  # fmt: skip

        rows.run(work, self._strips)

    def _distances_to_next(self, codebook):
        """Lower bounds on the distance from each centre to the next."""
        centers = codebook.centers
        k = len(centers)
        if k * APART > self.rows.n_rows or k == 1:
            return np.zeros(k)
        squares = cdist(centers, centers, "sqeuclidean")
        np.fill_diagonal(squares, np.inf)
        return np.sqrt(squares.min(axis=1)) * (1.0 - 1e-10)

    def _add_up(self, centers):
        """Sums over all strips, in order; those of untouched centres are known."""
        held, soft = self._held, self._soft
        touched = held.touched.any(axis=0)
        self._sums[touched] = held.sums[:, touched].sum(axis=0)
        self._masses[touched] = held.masses[:, touched].sum(axis=0)
        self._squares[touched] = held.squares[:, touched].sum(axis=0)
        sums, masses = self._about_origins(self._sums, self._masses), self._masses
        moved = centers - self._origins
        self._scatter = masses @ np.sum(moved**2, axis=1)
        crossed = np.einsum("ij,ij->", sums, moved)
        energy = max(self._squares.sum() - 2.0 * crossed + self._scatter, 0.0)
        totals = self._totals.sum(axis=0)
        totals[_kernels.OBJECTIVE] += energy
        totals[_kernels.SUPPORT] += masses.sum()
        touched = soft.touched.any(axis=0)
        if touched.any():
            sums, masses = sums.copy(), masses.copy()
            soft_masses = soft.masses[:, touched].sum(axis=0)
            soft_sums = soft.sums[:, touched].sum(axis=0)
            masses[touched] += soft_masses
            sums[touched] += self._about_origins(soft_sums, soft_masses, touched)
        self._soft_fraction = totals[_kernels.SOFT_WEIGHT] / self.rows.weight
        return Moments(self._origins.copy(), sums, masses.copy(), totals)

    def _about_origins(self, sums, masses, which=slice(None)):
        """Sums about the origins; the kernel leaves those of sparse rows about zero."""
        if not self.rows.is_sparse:
            return sums
        return sums - masses[:, np.newaxis] * self._origins[which]

    def _digits_at_risk(self, moments):
        """Whether running sums could lose digits, and should be taken anew."""
        self._heaviest = np.maximum(self._heaviest, self._masses)
        light = (self._masses > 0.0) & (self._masses < LEAST_LEFT * self._heaviest)
        return bool(light.any()) or self._scatter > MOST_MOVED * moments.free_energy
