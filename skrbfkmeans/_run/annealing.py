"""One run: temperature by temperature, until it is k-means.

Assumes that everything has been checked and prepared. `rows` is whatever offers
`_engine.passes.Passes`: the rows of one array, or of many chunks.
"""

# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from .._engine.units import stored
from .clock import Clock
from .journal import Journal

# Relative to the scatter of the centres at the start; with less they have collapsed,
# and little is left of what the start knew.
COLLAPSE = 0.25

# Relative to the total weight; a soft centre of no more stays where it is, for its
# mean would be made of rounding.
LEAST_SHARE = 1e-12

# Mass; below it the sums of any centre lose digits.
LEAST_MASS = 1e-290

# In units of sigma; centres nearer to each other count as one when the schedule cools.
GLUED = 1e-3

# In units of sigma; they are parted by this much.
NUDGE = 1e-2

# Steps; the free energy is not expected to fall by more than this many times its last
# step.
STEPS_AHEAD = 10.0


@dataclass(frozen=True)
class Settings:
    """How runs are made: what stays the same from start to start.

    Attributes
    ----------
    alpha : float
        Tsallis index of the responsibilities.
    learning_rate : float
        Length of the soft steps, in EM steps.
    max_iter : int
        Most iterations, over all temperatures.
    tol : float
        The last temperature ends when the squared shift of all centres
        together is at most this.
    verbose : bool
        Whether to print one line a temperature, and one a sweep of swaps.
    store_path : bool
        Whether to keep the centres before each iteration in the history, as
        "centers".
    """

    alpha: float
    learning_rate: float
    max_iter: int
    tol: float
    verbose: bool = False
    store_path: bool = False


@dataclass
class Run:
    """What one run found.

    Attributes
    ----------
    centers : ndarray of shape (n_clusters, n_features)
        The centres.
    labels : ndarray of shape (n_samples,), int32, or None
        Nearest centres of the rows, if they are known.
    settled : bool
        Whether the last temperature was kept until convergence.
    hardened : bool
        Whether the centres are, besides, an exact fixed point of k-means.
    sigma : float
        The last temperature; 0 in the hard limit.
    history : dict of str to list
        One entry an iteration.
    collapsed : bool
        Whether the centres all but met on the way.
    """

    centers: np.ndarray
    labels: np.ndarray | None
    settled: bool
    hardened: bool
    sigma: float
    history: dict
    collapsed: bool

    @property
    def energy(self):
        """The last free energy."""
        return self.history["free_energy"][-1]


def anneal(rows, centers, sigmas, settings, task=None):
    """Cool the centres, and do not lose by it.

    A schedule so hot that the centres all but meet forgets where they started,
    and may freeze into something worse than no annealing at all would have
    found. In that case, and that case alone, the last temperature is tried from
    the start as well, and the lower free energy wins.

    Parameters
    ----------
    rows, centers, sigmas, settings, task
        As in `cool`.

    Returns
    -------
    run : Run
        Centres and how they came about.
    """
    run = cool(rows, centers, sigmas, settings, task=task)
    if run.collapsed and run.sigma == sigmas[-1] < sigmas[0]:
        direct = cool(rows, centers, sigmas[-1:], settings, task=task)
        if is_lower(direct.energy, run.energy, rows.dtype):
            return direct
    return run


def is_lower(energy, other, dtype):
    """Whether an energy is lower than another by more than rounding.

    Else it would be left to chance which of two runs with the same result wins.
    """
    tie = max(1e-9, 10.0 * float(np.finfo(dtype).eps))
    return energy < other - tie * abs(other)


def cool(rows, centers, sigmas, settings, *, goal=np.inf, task=None):
    """Alternate E- and M-steps, one temperature after the other.

    Each temperature but the last gets one iteration. The last is iterated
    until the centres move by less than ``settings.tol``, or, once every row belongs
    to one centre alone, until the labels repeat. From then on the steps are those
    of k-means, and what remains of a falling schedule can change nothing and
    is skipped.

    Parameters
    ----------
    rows : Passes
        The data.
    centers : ndarray of shape (n_clusters, n_features)
        Where the centres start.
    sigmas : ndarray of shape (n_temperatures,)
        Temperatures; 0 is the hard limit.
    settings : Settings
        How the run is made.
    goal : float, default=inf
        Stop as soon as the free energy of the last temperature seems not to fall
        below this.
    task : StartTask, default=None
        Told of each iteration, and asked whether to go on.

    Returns
    -------
    run : Run
        Centres and how they came about.
    """
    clock, journal = Clock(sigmas, settings.tol), Journal(settings, task)
    e_step, seeds, scatter = rows.e_step(settings.alpha), centers, _scatter(centers)
    collapsed = False
    for _ in range(settings.max_iter):
        if journal.begin(clock.sigma, centers):
            clock.interrupt()
            break
        sigma = clock.sigma
        step = e_step(centers, sigma)
        is_hard, relocated = step.soft_weight == 0.0, False
        rate, least_mass = settings.learning_rate, LEAST_SHARE * rows.weight
        if as_kmeans := clock.is_at_kmeans(is_hard):
            relocated = relocate_empty(e_step, centers, step)
            rate, least_mass = 1.0, LEAST_MASS
        moved = m_step(centers, step, rate, least_mass)
        if is_hard:  # a fixed point of the centres as they will be stored
            moved = stored(moved, rows.dtype).astype(np.float64, copy=False)
            is_same = step.n_changed == 0 and not relocated
            clock.look_at_labels(centers, moved, is_same, at_means=rate == 1.0)
        else:
            collapsed = collapsed or _scatter(moved) < COLLAPSE * scatter
            spread = np.sqrt(step.inertia / rows.weight)
            clock.look_at_shift(centers, moved, spread)
        centers = moved
        is_stopped = journal.end(
            0.0 if as_kmeans else sigma, step, clock.shift, centers, rows.weight
        )
        if clock.is_settled_at_last:
            break
        if clock.is_last and (is_stopped or is_hopeless(journal.history, goal)):
            break
        if clock.go_on(is_hard, is_stopped):
            parted = part_glued(centers, seeds, clock.sigma)
            if parted is not centers:
                centers = parted
                clock.expect_growing_shifts()
    journal.close()
    settled = clock.is_settled_at_last
    hardened = settled and is_hard
    labels = e_step.labels if hardened and clock.shift == 0.0 else None
    return Run(centers, labels, settled, hardened, sigma, journal.history, collapsed)


def is_hopeless(history, goal):
    """Whether the free energy falls too slowly to come below the goal."""
    sigma, energy = history["sigma"], history["free_energy"]
    if len(energy) < 2 or sigma[-1] != sigma[-2]:
        return False
    return energy[-1] - STEPS_AHEAD * (energy[-2] - energy[-1]) > goal


def m_step(centers, step, learning_rate, least_mass):
    """Move each centre towards the weighted mean of its share of the rows.

    ``learning_rate`` 1 puts it there, which is the exact M-step; it equals a
    gradient step of 1 / (2 mass) on the free energy. Centres of no more than
    `least_mass` stay.
    """
    heavy = step.masses > least_mass
    if learning_rate == 1.0 and heavy.all():
        return step.means(slice(None))
    means = step.means(heavy)
    moved = centers.copy()
    if learning_rate == 1.0:
        moved[heavy] = means
    else:
        moved[heavy] += learning_rate * (means - centers[heavy])
    return moved


def relocate_empty(e_step, centers, step):
    """Give each empty centre the row that costs most, in place of its sums.

    As in scikit-learn, except that a row's cost includes its weight and that
    no centre is robbed of its only row. Returns whether any row was moved;
    none is when all rows lie on their centres.
    """
    empty = np.flatnonzero(step.masses == 0.0)
    if empty.size == 0:
        return False
    # one for each empty centre, even if the last row of every other is left out
    costly, n_own = e_step.costliest(centers, len(empty) + len(centers))
    candidates = iter(costly)
    relocated = False
    for j in empty:
        candidate = next((c for c in candidates if n_own[c.label] > 1), None)
        if candidate is None:
            return relocated
        _, donor, w, row = candidate
        n_own[donor] -= 1
        step.masses[donor] -= w
        step.sums[donor] -= w * (row - step.origins[donor])
        step.origins[j], step.masses[j], step.sums[j] = row, w, 0.0
        relocated = True
    return relocated


def part_glued(centers, seeds, sigma):
    """Part centres that have met, each a little towards where it started.

    Equal centres get equal responsibilities, so soft steps alone would never
    part them again, however far the temperature falls. Sending each towards its
    own seed lets the copies split as evenly as the seeds were spread.
    """
    if len(centers) == 1:
        return centers
    gaps = cKDTree(centers).query(centers, k=2)[0][:, 1]
    glued = np.flatnonzero(gaps <= GLUED * sigma)
    if glued.size == 0:
        return centers
    directions = seeds[glued] - centers[glued]
    lengths = np.sqrt(np.sum(directions**2, axis=1))
    rng = np.random.RandomState(0)  # seeds may coincide too
    jitter = rng.standard_normal(directions.shape) / np.sqrt(directions.shape[1])
    directions += 1e-3 * max(lengths.max(), sigma) * jitter
    lengths = np.sqrt(np.sum(directions**2, axis=1))
    parted = centers.copy()
    parted[glued] += NUDGE * sigma * directions / lengths.max()
    return parted


def _scatter(centers):
    """Sum of squared distances of the centres from their mean."""
    return np.sum((centers - centers.mean(axis=0)) ** 2)
