"""The E-steps of one run: rows whose share is proved are not touched.

A row that belongs to one centre alone goes on doing so until centres have moved
far enough that another could have a share. Until then its contribution stays
in running sums. How far, its bounds tell: an upper bound on its distance to its
own centre and a lower bound on that to all others.
"""

# SPDX-License-Identifier: BSD-3-Clause

import itertools
from bisect import bisect_right
from collections import namedtuple

import numpy as np

from . import kernels
from .codebook import distances_to_next, make_softmax, middle_of, share_width

# Softmax shares are added up about a point at most so many sigma from any centre,
# as long as at least this share of the rows is soft.
COMPACT, MOSTLY_SOFT = 1e4, 0.2

# Distances between centres are worth their while with this many rows a centre.
APART = 20

# What it costs, in nanoseconds, to measure the distance of a row to its own centre,
# and to find the nearest of all: for each, for each feature, or, the latter, for
# each centre and feature and three more.
MEASURE, MEASURE_FEATURE, FIND, FIND_FEATURE = 15.0, 0.5, 10.0, 0.05

# The same for a look at the bounds of a row; and from which cost on a pass is worth
# all threads, and so many jobs for each to take in turn.
LOOK, ALONE, BUSY, JOBS_PER_THREAD = 4.0, 4e5, 5e6, 4

# Where finding the nearest of all is cheaper than this for all rows together, bounds
# are not worth their while.
SMALL = 2e5

# The shift of products is chosen anew when centres have come so many times farther
# from it.
FAR = 8.0

# Running sums are taken anew when a centre has lost all but this share of its
# mass, or has moved so far that the sum of its squared distances from its origin is
# so many times the free energy: more digits are not to be lost.
LEAST_LEFT, MOST_MOVED = 1e-3, 1e3

Bounds = namedtuple("Bounds", "upper lower moved fallen apart")


class Moments(namedtuple("Moments", "origins sums masses totals")):
    """What one E-step leaves for the M-step: sums that add up over any rows.

    ``sums`` (n_clusters, n_features) of the responsibilities times the rows
    less the ``origins`` of the centres, ``masses`` (n_clusters,) of the
    responsibilities, and ``totals`` (7,), which the properties name. With an
    origin near it, no centre loses digits to rows that are far away.
    """

    __slots__ = ()

    free_energy = property(lambda self: self.totals[kernels.OBJECTIVE])
    inertia = property(lambda self: self.totals[kernels.INERTIA])
    soft_weight = property(lambda self: self.totals[kernels.SOFT_WEIGHT])
    support = property(lambda self: self.totals[kernels.SUPPORT])
    n_changed = property(lambda self: self.totals[kernels.CHANGED])
    n_picked = property(lambda self: self.totals[kernels.PICKED])

    def with_changed(self, n_changed):
        """The same with another number of rows whose label has changed."""
        totals = self.totals.copy()
        totals[kernels.CHANGED] = n_changed
        return self._replace(totals=totals)

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
        Labels that are known beforehand, -1 where they are not; overwritten.
    pruned : bool, default=True
        Whether to leave rows alone whose share is proved. The results are the
        same, but for the rounding of sums.

    Attributes
    ----------
    labels : ndarray of shape (n_samples,), int32
        Nearest centre of each row.
    """

    def __init__(self, rows, alpha, labels=None, pruned=True, box=None):
        self.rows, self.alpha, self.pruned = rows, float(alpha), pruned
        self._box = (-np.inf, np.inf) if box is None else box
        if labels is None:
            labels = np.full(rows.n_rows, -1, dtype=np.int32)
        self.labels = labels
        self._centers, self._must_begin, self._soft_fraction = None, True, 1.0
        self._shift = None

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
        width = share_width(sigma, self.alpha)
        if self._centers is None:
            self._allocate(*centers.shape)
        codebook = self._codebook(centers)
        as_softmax = self._suits_softmax(codebook, sigma)
        if as_softmax:
            self._begin(centers, np.tile(codebook.shift, (len(centers), 1)))
        elif self._must_begin or not self.pruned:
            self._begin(centers, centers)
        kernels.follow(centers, self._centers, self._moved, self._fallen)
        self._centers = centers
        self._totals.fill(0.0)
        if as_softmax:
            self._run_softmax(centers, 2.0 * sigma * sigma)
        else:
            self._run(codebook, 2.0 * sigma * sigma, width)
        moments = self._add_up(centers)
        if self._leaves_traces(moments):
            self._begin(centers, centers)
            self._totals.fill(0.0)
            self._run(codebook, 2.0 * sigma * sigma, width)
            moments = self._add_up(centers)
        self._must_begin = as_softmax or self._digits_at_risk(moments)
        return moments

    def costliest(self, centers, n):
        """As `Rows.costliest`, with the labels of the last step."""
        return self.rows.costliest(centers, self.labels, n)

    def _codebook(self, centers):
        """Centres as the kernels need them, less a shift that is near most of them."""
        codebook = self.rows.codebook(centers, self._shift)
        if self._shift is None or codebook.unit > FAR * self._unit:
            self._shift = middle_of(centers)
            codebook = self.rows.codebook(centers, self._shift)
            self._unit = codebook.unit
        return codebook

    # --- bounds and running sums ---

    def _allocate(self, k, d):
        """Arrays for one run, and how its passes are cut."""
        rows = self.rows
        self._strips = rows.strips(k, k * d)
        self._ends = np.array([strip.stop for strip in self._strips])
        n, n_busy = rows.n_threads, JOBS_PER_THREAD * rows.n_threads
        self._jobs = {
            cost: _jobs(self._strips, n_most if n > 1 else 1)
            for cost, n_most in ((BUSY, n_busy), (ALONE, n), (0.0, 1))
        }
        self._picked = np.empty(rows.n_rows, dtype=np.int64)
        self._n_picked = rows.n_rows
        self._upper, self._lower = np.empty((2, rows.n_rows))
        self._holders = np.empty(rows.n_rows, dtype=np.int32)
        self._apart = np.zeros(k)
        self._is_parting = k * APART <= rows.n_rows and not rows.is_sparse
        n = len(self._strips)
        self._totals = np.zeros((n, kernels.N_TOTALS))
        self._held, self._soft = np.zeros((2, n, k, d + 2))
        self._counts = np.zeros((n, k), dtype=np.int64)
        self._touched, self._soft_touched = np.zeros((2, n), dtype=bool)
        self._is_small = rows.n_rows * (FIND + FIND_FEATURE * k * (d + 3)) < SMALL
        if self._is_small:
            self._picked[:] = np.arange(rows.n_rows)

    def _begin(self, centers, origins):
        """Forget all bounds and running sums, which henceforth are about `origins`."""
        k, d = centers.shape
        self._centers = centers
        self._lower.fill(-np.inf)
        self._upper.fill(np.inf)
        self._holders.fill(-1)
        self._moved, self._fallen, self._heaviest = np.zeros((3, k))
        self._origins = np.clip(origins, *self._box)
        self._origin_norms = np.einsum("ij,ij->i", self._origins, self._origins)
        self._held.fill(0.0)
        self._counts.fill(0)
        self._known = np.zeros((k, d + 2))
        self._measuring, self._n_moved = True, 0.0

    def _suits_softmax(self, codebook, sigma):
        """Whether `kernels.softmax_rows` can be used, and is worth it."""
        if self.alpha != 1.0 or sigma * sigma == 0.0 or self.rows.is_sparse:
            return False
        reach = np.max(np.abs(codebook.centers - codebook.shift))
        return self._soft_fraction > MOSTLY_SOFT and reach <= COMPACT * sigma

    # --- a pass ---

    def _run(self, codebook, two_sigma2, width):
        """Pass over the rows that are in doubt, each strip into its own sums."""
        rows = self.rows
        self._touched.fill(False)
        if self._soft_touched.any():
            self._soft[self._soft_touched] = 0.0
            self._soft_touched.fill(False)
        drift = 1.0 + 1e-12  # more than the rounding of the sums
        if self._is_parting and not self._is_small:
            self._apart = distances_to_next(codebook)
        bounds = Bounds(
            self._upper, self._lower, self._moved * drift, self._fallen * drift,
            self._apart,
        )  # fmt: skip
        k, d = codebook.centers.shape
        ends = self._ends.tolist()

        def work(_, start, stop):
            strip = bisect_right(ends, start)
            picked = self._picked[start:stop]
            if self._is_small:
                self._totals[strip, kernels.PICKED] += len(picked)
            else:
                n = kernels.pick_rows(
                    *rows.arrays, start, stop, codebook, bounds, self.labels, width,
                    self._measuring, picked, self._totals[strip],
                )  # fmt: skip
                picked = picked[:n]
            if len(picked) == 0:
                return
            kernels.share_rows(
                *rows.arrays, picked, rows.stored_weights, codebook, rows.work(k),
                kernels.as_argument(self.alpha), two_sigma2, width, bounds,
                self.labels, strip, self._ends, self._origins, self._soft,
                self._soft_touched, self._totals,
            )  # fmt: skip
            kernels.hold_rows(
                *rows.arrays, picked, rows.stored_weights, self.labels, self._lower,
                self._holders, strip, self._ends, self._origins, self._origin_norms,
                self._held, self._counts, self._touched,
            )  # fmt: skip

        cost = rows.n_rows * LOOK + self._n_picked * (FIND + FIND_FEATURE * k * (d + 3))
        jobs = next(jobs for least, jobs in self._jobs.items() if cost > least)
        rows.run(work, jobs, heavy=True)

    def _run_softmax(self, centers, two_sigma2):
        """Pass over all rows, all of which are soft."""
        rows = self.rows
        self._soft.fill(0.0)
        self._soft_touched.fill(True)
        softmax = make_softmax(centers, self._origins[0])

        def work(s, start, stop):
            kernels.softmax_rows(
                rows.X, rows.stored_weights, start, stop, softmax,
                rows.softmax_work(len(centers)), two_sigma2, self.labels,
                self._soft[s], self._totals[s],
            )  # fmt: skip

        rows.run(work, self._strips, heavy=True)
        self._totals[0, kernels.PICKED] = rows.n_rows

    def _add_up(self, centers):
        """Sums over all strips, in order."""
        known, origins, is_sparse = self._known, self._origins, self.rows.is_sparse
        if self._touched.any():
            known.fill(0.0)
            kernels.add_up(self._held, known)
        sums, d = known.copy(), centers.shape[1]
        masses = sums[:, d]
        inertia, self._scatter = kernels.moments_about(
            sums, centers, origins, is_sparse
        )
        totals = self._totals.sum(axis=0)
        totals[[kernels.OBJECTIVE, kernels.INERTIA]] += inertia
        totals[kernels.SUPPORT] += masses.sum()
        self._soft_fraction = totals[kernels.SOFT_WEIGHT] / self.rows.weight
        self._learn_to_measure(totals, *centers.shape)
        self._n_picked = totals[kernels.PICKED]
        if self._soft_touched.any():
            kernels.add_up(self._soft, sums)
        if is_sparse:  # so that means of zeros are zero
            origins = np.zeros(origins.shape)
        return Moments(origins.copy(), sums[:, :d], masses, totals)

    def _learn_to_measure(self, totals, k, d):
        """Measure distances to own centres where that spares enough of the others."""
        n_measured, n_picked = totals[kernels.MEASURED], totals[kernels.PICKED]
        if self._measuring and n_measured > 0.0:
            spared = (n_measured - n_picked) * (FIND + FIND_FEATURE * k * (d + 3))
            self._measuring = spared > n_measured * (MEASURE + MEASURE_FEATURE * d)
            self._least_picked = 0.7 * n_picked
        elif not self._measuring:  # until bounds tell more rows
            self._measuring = n_picked < self._least_picked

    def _leaves_traces(self, moments):
        """Whether sums of sparse rows, at the end of a run, are not quite zeros.

        Rows that came and went leave rounding in features their cluster has not.
        """
        self._n_moved += moments.n_changed
        is_last = moments.soft_weight == 0.0 and moments.n_changed == 0.0
        return self.rows.is_sparse and is_last and self._n_moved > 0.0

    def _digits_at_risk(self, moments):
        """Whether running sums could lose digits, and should be taken anew."""
        masses = self._known[:, -2]
        np.maximum(self._heaviest, masses, out=self._heaviest)
        light = masses < LEAST_LEFT * self._heaviest
        if light.any() and masses[light].any():
            return True
        return bool(self._scatter > MOST_MOVED * float(moments.free_energy))


def _jobs(strips, n_most):
    """Ranges of rows for the threads to take in turn, each of whole strips.

    A kernel is given so few rows at once that Ctrl-C is heard in time.
    """
    n = min(len(strips), n_most)
    cuts = [len(strips) * i // n for i in range(n + 1)]
    return [
        range(strips[a].start, strips[b - 1].stop, strips[0].step)
        for a, b in itertools.pairwise(cuts)
    ]
