"""Refinement: centres of little use are moved to where they are of more.

From a fixed point of k-means no small step leads to a better one. A swap may: it
takes away a centre whose rows have others nearly as close, and puts it into a
cluster that is better served by two [1]_. Which swaps promise most is estimated
from what each cluster costs, as in breathing k-means [2]_. A swap concerns only the
clusters around. They are reheated, so that they rearrange [3]_, cooled, and left as
they were if their energy turns out not to be lower.

References
----------
.. [1] P. Fränti, "Efficiency of random swap clustering", J. Big Data 5 (2018).
.. [2] B. Fritzke, "The breathing k-means algorithm", arXiv:2006.15666 (2020).
.. [3] K. Rose, "Deterministic annealing for clustering, compression,
   classification, regression, and related optimization problems",
   Proc. IEEE 86 (1998).
"""

# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import replace

import numpy as np

from .._engine import kernels
from .._engine.codebook import heat_of
from .annealing import STEPS_AHEAD, cool, is_lower
from .estimates import Sample, closest_centers

# Clusters; a swap concerns the two that it names, and this many of the closest to each.
NEIGHBOURS = 16

# In units of their spread; the temperature that they are reheated to, for one step.
HEAT = 2.0

# Rows of a cluster; that step is made with about as many of each.
HEATED_ROWS = 100

# Gain of the split over cost of the removal; a swap that promises less is not tried. It
# is below 1, for neighbours that rearrange add to the gain and take off the cost.
HOPE = 0.3

# What a cluster promises counts less by this factor after each failure.
DISCOUNT = 0.7

# Relative to the inertia; a swap is kept if it lowers the energy by more.
LEAST_GAIN = 1e-5

# Failures in a row; a sweep ends with as many, or with more if there are many clusters:
# one for each `CLUSTERS_PER_FAILURE`.
PATIENCE = 12
CLUSTERS_PER_FAILURE = 20

# Clusters; the swap that promises most is sought among as many of the best to split,
# and as many of the best to remove.
SHORT_LIST = 16

# Centres; what a removal costs is estimated from as many of the closest others.
RIVALS = 6

# Features of clusters; estimates are made for no more at a time: 8 MB of float64.
MOST_ESTIMATES = 2**20

# Additions of a step; a trial of fewer is left to compiled functions alone: below that,
# all that surrounds the passes over the rows costs more.
FEW_ADDITIONS = 4e6

# Additions; what a distance costs besides one for each feature.
DISTANCE_WORK = 8

# Cost of a removal; a divisor is at least this, so that one of no cost can be compared.
TINY = np.finfo(np.float64).tiny


def refine(rows, run, n_swaps, settings, random_state, task=None):
    """Swap centres for as long as that pays, and let all of them settle.

    If the rows do not lie in one array, swaps are tried on some of them, and those
    that are kept there are kept if they lower the energy of all.

    Parameters
    ----------
    rows : Passes
        The data.
    run : Run
        A run that has settled.
    n_swaps : float
        Most swaps to try.
    settings : Settings
        How runs are made. ``max_iter`` bounds the iterations over all rows, those of
        the run included, and the iterations of each trial.
    random_state : RandomState
        Source of the draw of some rows, where they are drawn.
    task : StartTask, default=None
        As in `cool`; it is told of no trial.

    Returns
    -------
    run : Run
        One of lower energy, or the same. Its history holds the iterations over all
        rows, and after which of them how many swaps were tried and kept.
    """
    if settings.max_iter <= len(run.history["sigma"]):
        return run
    with rows.sample(len(run.centers), random_state) as some:
        if some is rows:
            return _refine(rows, run, n_swaps, settings, task)
        quiet = replace(settings, store_path=False)
        few = cool(
            some, run.centers, np.array([run.sigma]), replace(quiet, verbose=False)
        )
        if not few.settled:
            return run
        few = _refine(some, few, n_swaps, quiet)
    run.history["swaps_tried"][-1] += sum(few.history["swaps_tried"])
    n_kept = sum(few.history["swaps_kept"])
    if n_kept == 0:
        return run
    return go_on(rows, run, few.centers, n_kept, settings, task)


def _refine(rows, run, n_swaps, settings, task=None):
    """`refine` with all rows of one array."""
    while settings.max_iter > len(run.history["sigma"]):
        clusters = Clusters(
            rows, run, replace(settings, verbose=False, store_path=False)
        )
        n_tried, n_kept = clusters.sweep(n_swaps)
        n_swaps -= n_tried
        run.history["swaps_tried"][-1] += n_tried
        if settings.verbose:
            print(f"{n_kept} of {n_tried} swaps kept")
        if n_kept == 0:
            break
        settled = go_on(rows, run, clusters.centers, n_kept, settings, task)
        if settled is run:
            break
        run = settled
        if not (run.settled and clusters.is_gain(clusters.energy, run.energy)):
            break  # stopped, or nothing has changed since the last swaps failed
    return run


def go_on(rows, run, centers, n_kept, settings, task=None):
    """Let the centres settle that a run has got by swaps.

    Parameters
    ----------
    rows, run, settings, task
        As in `refine`.
    centers : ndarray of shape (n_clusters, n_features)
        The centres after the swaps.
    n_kept : int
        Number of swaps.

    Returns
    -------
    run : Run
        With both histories; the same if its energy is not lower.
    """
    n_left = settings.max_iter - len(run.history["sigma"])
    rest = replace(settings, max_iter=n_left, verbose=False)
    settled = cool(rows, centers, np.array([run.sigma]), rest, task=task)
    if not is_lower(settled.energy, run.energy, rows.dtype):
        return run
    run.history["swaps_kept"][-1] += n_kept
    for name, entries in settled.history.items():
        entries[:0] = run.history[name]
    return settled


class Clusters:
    """The clusters of a run, and which centres had better be elsewhere.

    Rows of no weight are left out.

    Parameters
    ----------
    rows : Rows
        The data.
    run : Run
        A run that has settled.
    settings : Settings
        How trials are made.

    Attributes
    ----------
    centers : ndarray of shape (n_clusters, n_features)
        The centres, with the swaps that were kept.
    energy : float
        The free energy of all rows.
    energies : ndarray of shape (n_clusters,)
        The inertia of the rows of each centre.
    """

    def __init__(self, rows, run, settings):
        labels = rows.assign(run.centers) if run.labels is None else run.labels
        present = np.flatnonzero(rows.weights)
        if len(present) < rows.n_rows:
            rows, labels = rows.part(present), labels[present]
        k, d = run.centers.shape
        self.rows, self._settings = rows, settings
        self.sigma, self.energy = run.sigma, run.energy
        self.centers = run.centers.copy()
        self._members = [None] * k
        self._masses, self._costs, self._gains, self.energies = np.zeros((4, k))
        self._halves = np.zeros((k, 2, d))
        self._failures, self._failed = np.zeros((2, k)), set()
        self._update(np.arange(k), rows, None, labels)

    def sweep(self, n_swaps):
        """Try one swap after the other, until nothing comes of it.

        Returns how many were tried, and how many were kept.
        """
        patience = max(PATIENCE, len(self.centers) // CLUSTERS_PER_FAILURE)
        n_tried = n_kept = n_failures = 0
        while n_failures < patience and n_tried < n_swaps:
            swap = self.best_swap()
            if swap is None:
                break
            kept = self.try_swap(*swap)
            n_tried, n_kept = n_tried + 1, n_kept + kept
            n_failures = 0 if kept else n_failures + 1
        return n_tried, n_kept

    def is_gain(self, before, after):
        """Whether an energy has become lower by more than `LEAST_GAIN`."""
        least = LEAST_GAIN * self.energies.sum()
        return is_lower(after, before - least, self.rows.dtype)

    def best_swap(self):
        """Whom to remove, and whom to split; None if no swap is worth a trial.

        What promises most is what gains most for its cost, unless it has failed.
        """
        discounts = DISCOUNT**self._failures
        costs, gains = self._costs / discounts[0], self._gains * discounts[1]
        removed = np.argsort(costs, kind="stable")[:SHORT_LIST, np.newaxis]
        split = np.argsort(-gains, kind="stable")[:SHORT_LIST]
        with np.errstate(over="ignore"):  # where a removal costs nothing
            promises = gains[split] / np.maximum(costs[removed], TINY)
        worth = (self._gains[split] > HOPE * self._costs[removed]) & (removed != split)
        promises[~worth] = -1.0
        for best in np.argsort(-promises, axis=None, kind="stable"):
            i, j = divmod(best, len(split))
            if not promises[i, j] >= 0.0:
                break
            if (swap := (removed[i, 0], split[j])) not in self._failed:
                return swap
        return None

    def try_swap(self, removed, split):
        """Move a centre, let those around settle, and keep that if it is better."""
        which = self._around(removed, split)
        rows, indices = self._rows_of(which)
        start = self.centers[which]
        halves = self.centers[split] + self._halves[split]
        start[np.searchsorted(which, [removed, split])] = halves
        mass, energy = self._masses[which].sum(), self.energies[which].sum()
        heat = HEAT * np.sqrt(energy / (mass * rows.n_features))
        goal = energy if self.sigma == 0.0 else self.energy
        centers, labels, energy = self._settle(rows, start, heat, goal)
        if not self.is_gain(goal, energy):
            self._failures[[0, 1], [removed, split]] += 1.0
            self._failed.add((removed, split))
            return False
        self.centers[which] = centers
        self._failures[:, which] = 0.0
        touched = set(which.tolist())
        self._failed = {swap for swap in self._failed if touched.isdisjoint(swap)}
        if labels is None:
            labels = rows.assign(centers)
        self._update(which, rows, indices, labels)
        self.energy = energy if self.sigma > 0.0 else self.energies.sum()
        return True

    def _around(self, *clusters):
        """The clusters close to some; all of them if their rows are shared."""
        k = len(self.centers)
        if self.sigma > 0.0 or k <= len(clusters) * (NEIGHBOURS + 1):
            return np.arange(k)
        near = closest_centers(self.centers, np.array(clusters), NEIGHBOURS)
        return np.unique(np.append(near, clusters))

    def _rows_of(self, which):
        """The rows of some clusters, and which those are; None if all."""
        if len(which) == len(self.centers):
            return self.rows, None
        indices = np.concatenate([self._members[j] for j in which])
        return self.rows.part(indices), indices

    def _settle(self, rows, start, heat, goal):
        """Reheat some centres and let them settle among their rows.

        Returns the centres, their labels if known, and the energy.
        """
        if self.sigma > 0.0:
            sigmas = np.array([max(heat, self.sigma), self.sigma])
            run = cool(rows, start, sigmas, self._settings, goal=goal)
            return run.centers, run.labels, run.energy
        k, d = start.shape
        stride = max(1, rows.n_rows // (HEATED_ROWS * k))
        if rows.n_rows * k * (d + DISTANCE_WORK) < FEW_ADDITIONS:
            return settle_few(rows, start, heat, stride, goal, self._settings)
        few = rows.part(slice(None, None, stride))
        warm = cool(few, start, np.array([heat]), replace(self._settings, max_iter=1))
        run = cool(rows, warm.centers, np.zeros(1), self._settings, goal=goal)
        return run.centers, run.labels, run.energy

    def _update(self, which, rows, indices, labels):
        """Note the members of some clusters, and estimate what swaps would change.

        `labels` number the clusters as they stand in `which`.
        """
        k, d = len(which), rows.n_features
        squares = rows.squared_distances_to(self.centers[which], labels)
        self._masses[which] = np.bincount(labels, rows.weights, k)
        self.energies[which] = np.bincount(labels, squares * rows.weights, k)
        order = np.argsort(labels, kind="stable")
        groups = np.split(order, np.cumsum(np.bincount(labels, minlength=k))[:-1])
        for j, group in zip(which, groups, strict=True):
            self._members[j] = group if indices is None else indices[group]
        size = max(1, MOST_ESTIMATES // d)
        for first in range(0, k, size):
            self._estimate(which[first : first + size])

    def _estimate(self, some):
        """Estimate what it costs to remove each of some clusters, and to split it."""
        sample = Sample(self.rows, [self._members[j] for j in some], self.centers[some])
        gains, self._halves[some] = sample.halve()
        self._gains[some] = self._masses[some] * gains
        near = closest_centers(self.centers, some, RIVALS)
        self._costs[some] = sample.removal_costs(
            self.centers[near] - self.centers[some],
            self._masses[some],
            self._masses[near],
        )


def settle_few(rows, start, heat, stride, goal, settings):
    """One soft step and then k-means, by compiled functions alone: for few rows."""
    data, weights, (k, d) = rows.arrays, rows.stored_weights, start.shape
    centers, norms = start.copy(), np.einsum("ij,ij->i", start, start)
    labels = np.full(rows.n_rows, -1, dtype=np.int32)
    lower, sums = np.empty(rows.n_rows), np.empty((k, d + 1))
    kernels.warm_rows(
        data, weights, np.arange(0, rows.n_rows, stride), centers, norms,
        heat_of(heat, settings.alpha), sums, np.empty(k, dtype=np.int64),
        np.empty((3, k)),
    )  # fmt: skip
    stop = goal, STEPS_AHEAD, settings.max_iter - 1
    energy = kernels.settle_rows(
        data, weights, centers, norms, labels, lower, sums, stop
    )
    return centers, labels, energy
