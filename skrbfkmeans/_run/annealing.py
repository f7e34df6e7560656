"""One run: temperature by temperature, until it is k-means.

Assumes that everything has been checked and prepared. `rows` is whatever
offers the passes of `_engine.rows.Rows`: those of one array, or of many chunks.
"""

# SPDX-License-Identifier: BSD-3-Clause

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from .._checks import stored
from .._engine.rows import ROUNDING

# The centres have collapsed when their scatter is less than this share of the
# scatter they started with: then little is left of what the start knew.
COLLAPSE = 0.25

# A soft centre moves only if it holds more than this share of the total weight,
# and any centre only if it holds more than this: its sums would lose digits.
LEAST_SHARE, LEAST_MASS = 1e-12, 1e-290

# Temperatures whose squares can be represented. Colder ones are the hard limit,
# and hotter ones make no difference.
COLDEST, HOTTEST = 1e-150, 1e150

# Centres nearer to each other than this, in units of sigma, count as one when
# the schedule cools; they are parted by this much.
GLUED, NUDGE = 1e-3, 1e-2

# The free energy is not expected to fall by more than so many times its last step.
STEPS_AHEAD = 10.0


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


def anneal(rows, centers, sigmas, **options):
    """Cool the centres, and do not lose by it.

    A schedule so hot that the centres all but meet forgets where they started,
    and may freeze into something worse than no annealing at all would have
    found. In that case, and that case alone, the last temperature is tried from
    the start as well, and the lower free energy wins.

    Parameters
    ----------
    rows, centers, sigmas, **options
        As in `cool`.

    Returns
    -------
    run : Run
        Centres and how they came about.
    """
    run = cool(rows, centers, sigmas, **options)
    if run.collapsed and run.sigma == sigmas[-1] < sigmas[0]:
        direct = cool(rows, centers, sigmas[-1:], **options)
        if is_lower(direct.energy, run.energy, rows.dtype):
            return direct
    return run


def is_lower(energy, other, dtype):
    """Whether an energy is lower than another by more than rounding.

    Else it would be left to chance which of two runs with the same result wins.
    """
    tie = max(1e-9, 10.0 * float(np.finfo(dtype).eps))
    return energy < other - tie * abs(other)


def cool(
    rows, centers, sigmas, *, alpha, learning_rate, max_iter, tol, goal=np.inf,
    verbose=False, store_path=False, task=None,
):  # fmt: skip
    """Alternate E- and M-steps, one temperature after the other.

    Each temperature but the last gets one iteration. The last is iterated
    until the centres move by less than `tol`, or, once every row belongs to
    one centre alone, until the labels repeat. From then on the steps are those
    of k-means, and what remains of a falling schedule can change nothing and
    is skipped.

    Parameters
    ----------
    rows : Rows
        The data.
    centers : ndarray of shape (n_clusters, n_features)
        Where the centres start.
    sigmas : ndarray of shape (n_temperatures,)
        Temperatures; 0 is the hard limit.
    alpha : float
        Tsallis index of the responsibilities.
    learning_rate : float
        Length of the soft steps, in EM steps.
    max_iter : int
        Most iterations, over all temperatures.
    tol : float
        The last temperature ends when the squared shift of all centres
        together is at most this.
    goal : float, default=inf
        Stop as soon as the free energy of the last temperature seems not to fall
        below this.
    verbose : bool, default=False
        Print one line a temperature.
    store_path : bool, default=False
        Keep the centres before each iteration in the history, as "centers".
    task : StartTask, default=None
        Told of each iteration, and asked whether to go on.

    Returns
    -------
    run : Run
        Centres and how they came about.
    """
    sigmas = np.where(sigmas < COLDEST, 0.0, np.minimum(sigmas, HOTTEST))
    seeds = centers
    e_step = rows.e_step(alpha)
    history = defaultdict(list)
    last = len(sigmas) - 1
    position = 0
    was_hard = at_means = settled = hardened = collapsed = False
    scatter = _scatter(centers)
    former_shift = np.inf
    for _ in range(max_iter):
        if task is not None and task.begin_iteration(sigmas[position]):
            settled = False
            break
        sigma = sigmas[position]
        if store_path:
            history["centers"].append(centers)
        step = e_step(centers, sigma)
        hard = step.soft_weight == 0.0
        relocated, rate = False, learning_rate
        as_kmeans = hard and (sigma == 0.0 or (was_hard and position == last))
        if as_kmeans:
            relocated, rate = relocate_empty(e_step, centers, step), 1.0
        least_mass = LEAST_MASS if as_kmeans else LEAST_SHARE * rows.weight
        moved = m_step(centers, step, rate, least_mass)
        if hard:  # a fixed point of the centres as they will be stored
            moved = stored(moved, rows.dtype).astype(np.float64, copy=False)
        moves = moved - centers
        shift = np.sqrt(np.einsum("ij,ij->", moves, moves))
        if hard:
            settled = at_means and step.n_changed == 0 and not relocated
        else:  # a growing shift means that centres are still parting
            rounding = ROUNDING * np.sqrt(np.sum(moved**2))
            settled = shift <= max(np.sqrt(tol), rounding) and shift <= former_shift
        centers, was_hard, at_means = moved, hard, hard and rate == 1.0
        collapsed = collapsed or (not hard and _scatter(moved) < COLLAPSE * scatter)
        entry = {
            "sigma": 0.0 if as_kmeans else sigma,
            "free_energy": step.free_energy,
            "inertia": step.inertia,
            "shift": shift,
            "soft_fraction": step.soft_weight / rows.weight,
            "support": step.support / rows.weight,
            "swaps_tried": 0,
            "swaps_kept": 0,
        }
        if verbose and history["sigma"] and history["sigma"][-1] != entry["sigma"]:
            _print_temperature(history)
        for name, value in entry.items():
            history[name].append(value)
        is_stopped = task is not None and task.end_iteration(
            centers, entry["sigma"], step.inertia
        )
        if settled and position == last:
            hardened = hard
            break
        if position == last and (is_stopped or is_hopeless(history, goal)):
            break
        following = _next_position(sigmas, position, hard, settled or is_stopped)
        former_shift = shift if sigmas[following] == sigma else np.inf
        if 0.0 < sigmas[following] < sigma:
            parted = part_glued(centers, seeds, sigmas[following])
            if parted is not centers:
                centers, former_shift = parted, 0.0
        position = following
    if verbose:
        _print_temperature(history)
    labels = e_step.labels if hardened and shift == 0.0 else None
    settled = bool(settled and position == last)
    return Run(centers, labels, settled, hardened, sigma, history, collapsed)


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
    # so many that, with the last row of each centre left out, they suffice
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


def _next_position(sigmas, position, hard, settled):
    """Index of the temperature of the next iteration."""
    last = len(sigmas) - 1
    if position == last or (hard and np.all(np.diff(sigmas[position:]) <= 0.0)):
        return last
    if settled:  # further iterations at this very temperature add nothing
        while position < last and sigmas[position + 1] == sigmas[position]:
            position += 1
    return min(position + 1, last)


def _print_temperature(history):
    """Print one line about the temperature that has just ended."""
    sigma = history["sigma"][-1]
    n_iter = 0
    while n_iter < len(history["sigma"]) and history["sigma"][-1 - n_iter] == sigma:
        n_iter += 1
    print(
        f"sigma {sigma:.4g}: {n_iter} iterations, "
        f"free energy {history['free_energy'][-1]:.6g}, "
        f"soft {100 * history['soft_fraction'][-1]:.1f} %"
    )
