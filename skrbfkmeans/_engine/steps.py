"""The E-steps of one run: rows whose share is proved are not touched.

A row that belongs to one centre alone goes on doing so until centres have moved
far enough that another could have a share. Until then its contribution stays
in running sums. How far, its bounds tell: an upper bound on its distance to its
own centre and a lower bound on that to all others.

Rows are cut into strips, each with running sums of its own. A job is a number of
strips that follow one another. A thread takes a job at a time, and works on all its
rows with one call of each kernel, for a call costs as much as a look at thousands of
rows. Jobs of more rows than a call should take, lest Ctrl-C has to wait, are worked on
in several calls.
"""

# SPDX-License-Identifier: BSD-3-Clause

import itertools
from collections import namedtuple

import numpy as np

from . import kernels
from .codebook import distances_to_next, heat_of, make_softmax, middle_of

# Softmax shares are added up about a single point for all centres, as long as no
# coordinate of a centre is farther from it than this many sigma: with more, sums would
# lose more than four of their digits.
COMPACT = 1e4

# And as long as more than this share of the weight belongs to soft rows: each row costs
# as much as any other there, while bounds spare those that are not soft.
MOSTLY_SOFT = 0.2

# From this many rows a centre on, the distances between all pairs of centres cost
# little beside a pass over the rows, and sharpen their bounds.
ROWS_TO_PART_A_CENTRE = 20

# Nanoseconds that it takes to look at the bounds of one row.
LOOK = 4.0

# Nanoseconds that it takes to measure the distance of one row to its own centre,
# besides those for each feature: the row is fetched from anywhere in memory.
MEASURE = 15.0

# Nanoseconds for each feature of that row.
MEASURE_FEATURE = 0.5

# Nanoseconds that it takes to find the nearest centre of one row, besides those for
# each centre and feature.
FIND = 10.0

# Nanoseconds for each centre, and each feature of it: one multiplication in a product.
FIND_FEATURE = 0.05

# As much as this many features of a centre costs what is done with each score of it.
FEATURES_PER_SCORE = 3

# Nanoseconds up to which a pass is made by one thread: to wake another takes as long.
ALONE = 4e5

# Nanoseconds up to which each thread gets one job. Beyond, it gets several, so that
# none waits long for another that has harder ones.
BUSY, JOBS_PER_THREAD = 5e6, 4

# Nanoseconds that it must take to find the nearest centres of all rows for bounds to
# pay: below, the calls that look at them cost more than they spare.
BOUNDS_PAY = 2e5

# The shift of products is chosen anew when the farthest centre is this many times as
# far from it as when it was chosen: rounding grows with the square of that.
SHIFT_ANEW = 8.0

# Running sums are taken anew when a centre has lost all but this share of the mass it
# once had: it may lose three digits to what has left.
LEAST_LEFT = 1e-3

# And when mass times squared distance from their origins, summed over the centres, is
# this many times the free energy, which is a difference of such sums.
MOST_MOVED = 1e3

# Bounds reckon with moves that are longer by this factor, for they are sums of rounded
# numbers.
MORE_THAN_ROUNDING = 1.0 + 1e-12

# A run that has ceased to measure begins again when less than this share of the rows
# is picked that was picked then: bounds tell more by now.
MEASURE_ANEW = 0.7

# What the kernels share: see `kernels.e_step`.
Bounds = namedtuple("Bounds", "labels limits moves")
Sums = namedtuple("Sums", "ends origins norms held soft totals")


class Moments(namedtuple("Moments", "origins sums masses totals")):
    """What one E-step leaves for the M-step: sums that add up over any rows.

    ``sums`` (n_clusters, n_features) of the responsibilities times the rows
    less the ``origins`` of the centres, ``masses`` (n_clusters,) of the
    responsibilities, and ``totals`` (8,), which the properties name. With an
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


class Memory:
    """What a run remembers from one E-step to the next.

    It belongs to certain rows in a certain order, but does not hold them.

    Parameters
    ----------
    n_rows, k, d : int
        Numbers of rows, centres and features.
    n_strips : int
        Number of strips that the rows are cut into.

    Attributes
    ----------
    labels : ndarray of shape (n_rows,), int32
        Nearest centre of each row, or -1 where it is not known yet.
    must_begin : bool
        Whether the next step is to forget all bounds and running sums.
    centers : ndarray of shape (k, d)
        The centres of the last step.
    limits, moves
        Bounds on distances of the rows, and how far centres have moved since they
        were first taken: see `kernels.e_step`.
    measuring : bool
        Whether to measure the distance of a row to its centre before anything else.
    n_picked, least_picked : int
        How many rows the last step has picked; and, while not measuring, from how
        many on it is worth while again.
    origins, norms, held, soft
        Running sums, see `kernels.e_step`.
    holders : ndarray of shape (n_rows,), int32
        Whose running sum each row is in, or -1.
    is_soft : ndarray of shape (n_strips,), bool
        Whether the strip's `soft` sums may be other than zero.
    known : ndarray of shape (k, d + 3)
        The sums `held` of all strips together.
    heaviest : ndarray of shape (k,)
        The largest mass that each centre has had in `known`.
    n_moved : float
        How many labels have changed since the beginning.
    soft_fraction : float
        Share of the weight that belonged to soft rows in the last step.
    shift : ndarray of shape (d,), or None
        What centres are shifted by in products.
    unit : float
        Unit of the centres when `shift` was chosen.
    """

    def __init__(self, n_rows, k, d, n_strips):
        self.labels = np.full(n_rows, -1, dtype=np.int32)
        self.must_begin, self.soft_fraction = True, 1.0
        self.shift, self.unit = None, None
        self.n_picked = n_rows
        self.limits = np.empty((2, n_rows))
        self.holders = np.empty(n_rows, dtype=np.int32)
        self.held = np.zeros((n_strips, k, d + 3))
        self.soft = np.zeros((n_strips, k, d + 1))
        self.is_soft = np.zeros(n_strips, dtype=bool)

    def begin(self, centers, origins):
        """Forget all bounds and running sums, which henceforth are about `origins`."""
        k, d = centers.shape
        self.centers, self.origins = centers, origins
        self.norms = np.einsum("ij,ij->i", origins, origins)
        self.limits[kernels.UPPER] = np.inf
        self.limits[kernels.LOWER] = -np.inf
        self.holders.fill(-1)
        self.moves, self.heaviest = np.zeros((3, k)), np.zeros(k)
        self.held.fill(0.0)
        self.known = np.zeros((k, d + 3))
        self.measuring, self.n_moved = True, 0.0

    def follow(self, centers):
        """Note how far the centres have moved."""
        kernels.follow(centers, self.centers, self.moves)
        self.centers = centers

    def bounds(self, apart):
        """What `kernels.e_step` asks for, with distances from each centre to the next.

        Lower bounds on them; 0 where none are known.
        """
        moves = self.moves * MORE_THAN_ROUNDING
        moves[kernels.APART] = apart
        return Bounds(self.labels, self.limits, moves)

    def clear_soft(self):
        """Set all soft sums to zero."""
        if self.is_soft.any():
            self.soft[self.is_soft] = 0.0
            self.is_soft[:] = False

    def learn_to_measure(self, totals, d):
        """Measure distances to own centres where that spares enough of the others."""
        n_measured, n_picked = totals[kernels.MEASURED], totals[kernels.PICKED]
        if self.measuring and n_measured > 0.0:
            spared = (n_measured - n_picked) * cost_of_finding(len(self.centers), d)
            self.measuring = spared > n_measured * (MEASURE + MEASURE_FEATURE * d)
            self.least_picked = MEASURE_ANEW * n_picked
        elif not self.measuring:
            self.measuring = n_picked < self.least_picked

    def digits_at_risk(self, moved, free_energy):
        """Whether running sums could lose digits, and should be taken anew.

        `moved` is the mass times the squared distance of the centres from their
        origins, summed.
        """
        masses = self.known[:, -3]
        np.maximum(self.heaviest, masses, out=self.heaviest)
        light = masses < LEAST_LEFT * self.heaviest
        if light.any() and masses[light].any():
            return True
        return bool(moved > MOST_MOVED * float(free_energy))


class EStep:
    """The E-steps of one run, called with centres and temperatures in turn.

    Parameters
    ----------
    rows : Rows
        The data.
    alpha : float
        Tsallis index of the responsibilities.
    memory : Memory, default=None
        What former steps with the same rows have left; nothing by default.
    box : tuple of ndarray of shape (n_features,), default=(-inf, inf)
        Bounds on the coordinates of the rows. Sums are about points inside it, so that
        a centre far from all rows costs no digits.

    Attributes
    ----------
    memory : Memory or None
        What the last step has left; None before the first.
    """

    def __init__(self, rows, alpha, memory=None, box=(-np.inf, np.inf)):
        self.rows, self.alpha, self.memory, self._box = rows, float(alpha), memory, box
        self._strips = None

    @property
    def labels(self):
        """Nearest centre of each row: (n_samples,), int32."""
        return self.memory.labels

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
        if self._strips is None:
            self._prepare(*centers.shape)
        memory, codebook = self.memory, self._codebook(centers)
        as_softmax = self._suits_softmax(codebook, sigma)
        if as_softmax:
            self._begin(centers, np.tile(codebook.shift, (len(centers), 1)))
        elif memory.must_begin:
            self._begin(centers, centers)
        memory.follow(centers)
        if as_softmax:
            self._run_softmax(centers, 2.0 * sigma * sigma)
        else:
            self._run(codebook, sigma)
        moments, moved = self._add_up(centers)
        if self._leaves_traces(moments):
            self._begin(centers, centers)
            self._run(codebook, sigma)
            moments, moved = self._add_up(centers)
        at_risk = memory.digits_at_risk(moved, moments.free_energy)
        memory.must_begin = as_softmax or at_risk
        return moments

    def costliest(self, centers, n):
        """As `Rows.costliest`, with the labels of the last step."""
        return self.rows.costliest(centers, self.labels, n)

    # --- before a pass ---

    def _prepare(self, k, d):
        """Cut the rows, and find room for a pass and for what the run remembers."""
        rows = self.rows
        self._strips = rows.strips(k, k * d)
        self._ends = np.array([strip.stop for strip in self._strips])
        self._totals = np.empty((len(self._strips), kernels.N_TOTALS))
        self._looks_at_all = rows.n_rows * cost_of_finding(k, d) < BOUNDS_PAY
        self._picked = np.empty(rows.n_rows, dtype=np.int64)
        if self._looks_at_all:
            self._picked[:] = np.arange(rows.n_rows)
        if self.memory is None:
            self.memory = Memory(rows.n_rows, k, d, len(self._strips))

    def _begin(self, centers, origins):
        """Begin with sums about `origins`, or the nearest points in the box."""
        self.memory.begin(centers, np.clip(origins, *self._box))

    def _codebook(self, centers):
        """Centres as the kernels need them, less a shift that is near most of them."""
        memory = self.memory
        codebook = self.rows.codebook(centers, memory.shift)
        if memory.shift is None or codebook.unit > SHIFT_ANEW * memory.unit:
            memory.shift = middle_of(centers)
            codebook = self.rows.codebook(centers, memory.shift)
            memory.unit = codebook.unit
        return codebook

    def _suits_softmax(self, codebook, sigma):
        """Whether `kernels.softmax_rows` can be used, and is worth it."""
        if self.alpha != 1.0 or sigma * sigma == 0.0 or self.rows.is_sparse:
            return False
        reach = np.max(np.abs(codebook.centers - codebook.shift))
        return self.memory.soft_fraction > MOSTLY_SOFT and reach <= COMPACT * sigma

    def _apart(self, codebook):
        """Lower bounds on the distance from each centre to the next, if they pay."""
        rows, k = self.rows, len(codebook.centers)
        if rows.is_sparse or self._looks_at_all:
            return 0.0
        if k * ROWS_TO_PART_A_CENTRE > rows.n_rows:
            return 0.0
        return distances_to_next(codebook)

    # --- a pass ---

    def _run(self, codebook, sigma):
        """Pass over the rows that are in doubt, each strip into its own sums."""
        rows, memory, (k, d) = self.rows, self.memory, codebook.centers.shape
        memory.clear_soft()
        self._totals.fill(0.0)
        data, weights, heat = (
            rows.arrays,
            rows.stored_weights,
            heat_of(sigma, self.alpha),
        )
        bounds = memory.bounds(self._apart(codebook))
        sums = Sums(
            self._ends, memory.origins, memory.norms, memory.held, memory.soft,
            self._totals,
        )  # fmt: skip

        def work(_, start, stop):
            picked = self._picked[start:stop]
            if not self._looks_at_all:
                n = kernels.pick_rows(
                    data, start, picked, codebook, bounds, heat[2], memory.measuring,
                    sums,
                )  # fmt: skip
                picked = picked[:n]
            if len(picked) == 0:
                return
            kernels.share_rows(
                data, weights, picked, codebook, rows.work(k), heat, bounds, sums
            )
            kernels.hold_rows(data, weights, picked, bounds, memory.holders, sums)

        cost = rows.n_rows * LOOK + memory.n_picked * cost_of_finding(k, d)
        rows.run(work, self._jobs(cost), heavy=True)
        if self._looks_at_all:
            self._totals[0, kernels.PICKED] = rows.n_rows
        memory.is_soft[:] = self._totals[:, kernels.SOFT_WEIGHT] > 0.0

    def _run_softmax(self, centers, two_sigma2):
        """Pass over all rows, all of which are soft."""
        rows, memory = self.rows, self.memory
        X, weights, labels = rows.X, rows.stored_weights, memory.labels
        memory.soft.fill(0.0)
        memory.is_soft[:] = True
        self._totals.fill(0.0)
        softmax = make_softmax(centers, memory.origins[0])

        def work(s, start, stop):
            kernels.softmax_rows(
                X[start:stop], weights[start:stop], softmax,
                rows.softmax_work(len(centers)), two_sigma2, labels[start:stop],
                memory.soft[s], self._totals[s],
            )  # fmt: skip

        rows.run(work, self._strips, heavy=True)
        self._totals[0, kernels.PICKED] = rows.n_rows

    def _jobs(self, cost):
        """Ranges of rows for the threads to take in turn, each of whole strips.

        The more nanoseconds a pass costs, the more jobs it is worth. Each range's step
        is the number of rows for one call, few enough for Ctrl-C to be heard in time.
        """
        strips, n = self._strips, self.rows.n_threads
        n = 1 if cost <= ALONE or n == 1 else n if cost <= BUSY else n * JOBS_PER_THREAD
        n = min(len(strips), n)
        cuts = [len(strips) * i // n for i in range(n + 1)]
        return [
            range(strips[a].start, strips[b - 1].stop, strips[0].step)
            for a, b in itertools.pairwise(cuts)
        ]

    # --- after a pass ---

    def _add_up(self, centers):
        """Sums over all strips, in order; and what `Memory.digits_at_risk` asks for."""
        memory, is_sparse, d = self.memory, self.rows.is_sparse, centers.shape[1]
        totals = self._totals.sum(axis=0)
        if totals[kernels.HELD] > 0.0:
            memory.known.fill(0.0)
            kernels.add_up(memory.held, memory.known)
        sums, origins = memory.known.copy(), memory.origins
        masses = sums[:, d]
        inertia, moved = kernels.moments_about(sums, centers, origins, is_sparse)
        totals[[kernels.OBJECTIVE, kernels.INERTIA]] += inertia
        totals[kernels.SUPPORT] += masses.sum()
        memory.soft_fraction = totals[kernels.SOFT_WEIGHT] / self.rows.weight
        memory.learn_to_measure(totals, d)
        memory.n_picked = totals[kernels.PICKED]
        if memory.is_soft.any():
            kernels.add_up(memory.soft, sums)
        # Sums of sparse rows are about zero, so that means of zeros are zero.
        origins = np.zeros(origins.shape) if is_sparse else origins.copy()
        return Moments(origins, sums[:, :d], masses, totals), moved

    def _leaves_traces(self, moments):
        """Whether sums of sparse rows, at the end of a run, are not quite zeros.

        Rows that came and went leave rounding in features their cluster has not.
        """
        self.memory.n_moved += moments.n_changed
        is_last = moments.soft_weight == 0.0 and moments.n_changed == 0.0
        return self.rows.is_sparse and is_last and self.memory.n_moved > 0.0


def cost_of_finding(k, d):
    """Nanoseconds that it takes to find the nearest of k centres, for each row."""
    return FIND + FIND_FEATURE * k * (d + FEATURES_PER_SCORE)
