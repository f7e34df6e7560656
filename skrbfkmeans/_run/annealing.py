"""One run: temperature by temperature, until it is k-means.

Assumes that everything has been checked and prepared. `rows` is whatever offers
`_engine.passes.Passes`: the rows of one array, or of many chunks.
"""

# SPDX-License-Identifier: BSD-3-Clause

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from .._engine.units import stored

# Relative to the scatter of the centres at the start; with less they have collapsed,
# and little is left of what the start knew.
COLLAPSE = 0.25

# Relative to the total weight; a soft centre of no more stays where it is, for its
# mean would be made of rounding.
LEAST_SHARE = 1e-12

# Mass; below it the sums of any centre lose digits.
LEAST_MASS = 1e-290

# Temperatures; the squares of colder ones cannot be represented, so they are the hard
# limit, and hotter ones make no difference.
COLDEST, HOTTEST = 1e-150, 1e150

# In units of sigma; centres nearer to each other count as one when the schedule cools,
# and are parted by `NUDGE`.
GLUED, NUDGE = 1e-3, 1e-2

# Steps; the free energy is not expected to fall by more than this many times its last
# step.
STEPS_AHEAD = 10.0

# Relative to the coordinates; a shift of the centres by less is rounding.
ROUNDING = 4.0 * np.finfo(np.float64).eps


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
            clock.look_at_shift(centers, moved)
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


class Clock:
    """Which temperature it is, whether it has settled, and which comes next.

    Parameters
    ----------
    sigmas : ndarray of shape (n_temperatures,)
        Temperatures; 0 is the hard limit.
    tol : float
        A soft temperature has settled when the squared shift of all centres together
        is at most this.

    Attributes
    ----------
    sigma : float
        The temperature.
    shift : float
        Root of the sum of the squared moves of the centres in the last step.
    is_last : bool
        Whether it is the last temperature.
    """

    def __init__(self, sigmas, tol):
        self._sigmas = np.where(sigmas < COLDEST, 0.0, np.minimum(sigmas, HOTTEST))
        self._tol, self._position, self._last = tol, 0, len(sigmas) - 1
        self._was_hard = self._at_means = self._is_settled = False
        self.shift, self._former_shift = np.inf, np.inf

    @property
    def sigma(self):
        return self._sigmas[self._position]

    @property
    def is_last(self):
        return self._position == self._last

    @property
    def is_settled_at_last(self):
        """Whether the last temperature has been kept until convergence."""
        return bool(self._is_settled and self.is_last)

    def is_at_kmeans(self, is_hard):
        """Whether the steps are those of k-means from now on.

        They are once the rows are, and stay, with one centre each, at the last
        temperature, and always in the hard limit.
        """
        return is_hard and (self.sigma == 0.0 or (self._was_hard and self.is_last))

    def look_at_labels(self, centers, moved, is_same, at_means):
        """Look at a step in which each row belonged to one centre alone.

        `is_same` tells that no row has changed its centre, `at_means` that the step
        puts the centres at the means of their rows.
        """
        self.shift = _shift(centers, moved)
        self._is_settled = self._at_means and is_same
        self._was_hard, self._at_means = True, at_means

    def look_at_shift(self, centers, moved):
        """Look at a soft step."""
        self.shift = _shift(centers, moved)
        rounding = ROUNDING * np.sqrt(np.sum(moved**2))
        is_small = self.shift <= max(np.sqrt(self._tol), rounding)
        # a growing shift means that centres are still parting
        self._is_settled = is_small and self.shift <= self._former_shift
        self._was_hard = self._at_means = False

    def interrupt(self):
        """Note that the temperature ends before it has settled."""
        self._is_settled = False

    def expect_growing_shifts(self):
        """Note that centres have been parted, so that the next shift is no end."""
        self._former_shift = 0.0

    def go_on(self, is_hard, is_stopped):
        """Go on to the temperature of the next iteration.

        A temperature that has settled, or is stopped, gets no further iteration. Once
        all rows are hard, what remains of a falling schedule changes nothing.

        Returns whether the temperature has fallen, and not to 0.
        """
        former = self.sigma
        if not self.is_last:
            rest = self._sigmas[self._position :]
            if is_hard and np.all(np.diff(rest) <= 0.0):
                self._position = self._last
            else:
                if self._is_settled or is_stopped:
                    self._skip_the_same()
                self._position = min(self._position + 1, self._last)
            self._is_settled = False
        self._former_shift = self.shift if self.sigma == former else np.inf
        return 0.0 < self.sigma < former

    def _skip_the_same(self):
        """Go to the last of the iterations at this very temperature."""
        while not self.is_last and self._sigmas[self._position + 1] == self.sigma:
            self._position += 1


class Journal:
    """What is told of a run: its history, printed lines, and callbacks.

    Parameters
    ----------
    settings : Settings
        How the run is made.
    task : StartTask or None
        Told of each iteration, and asked whether to go on.

    Attributes
    ----------
    history : dict of str to list
        One entry an iteration.
    """

    def __init__(self, settings, task):
        self._settings, self._task = settings, task
        self.history = defaultdict(list)

    def begin(self, sigma, centers):
        """Tell that an iteration begins. Returns whether the run shall stop instead."""
        if self._task is not None and self._task.begin_iteration(sigma):
            return True
        if self._settings.store_path:
            self.history["centers"].append(centers)
        return False

    def end(self, sigma, step, shift, centers, weight):
        """Note an iteration. Returns whether its temperature shall end with it.

        `step` is what its E-step found, `centers` are those after it, and `weight` is
        that of all rows.
        """
        entry = {
            "sigma": sigma,
            "free_energy": step.free_energy,
            "inertia": step.inertia,
            "shift": shift,
            "soft_fraction": step.soft_weight / weight,
            "support": step.support / weight,
            "swaps_tried": 0,
            "swaps_kept": 0,
        }
        if self.history["sigma"] and self.history["sigma"][-1] != sigma:
            self._print_temperature()
        for name, value in entry.items():
            self.history[name].append(value)
        return self._task is not None and self._task.end_iteration(
            centers, sigma, step.inertia
        )

    def close(self):
        """Tell that the run has ended."""
        self._print_temperature()

    def _print_temperature(self):
        """Print one line about the temperature that has just ended."""
        if not self._settings.verbose:
            return
        sigmas = np.array(self.history["sigma"])
        n_iter = int(np.argmin(np.append(sigmas[::-1] == sigmas[-1], False)))
        print(
            f"sigma {sigmas[-1]:.4g}: {n_iter} iterations, "
            f"free energy {self.history['free_energy'][-1]:.6g}, "
            f"soft {100 * self.history['soft_fraction'][-1]:.1f} %"
        )


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


def _shift(centers, moved):
    """Root of the sum of the squared moves."""
    moves = moved - centers
    return np.sqrt(np.einsum("ij,ij->", moves, moves))
