"""Where the centres start, and how large the unit of the temperatures is.

Asked by a fit, by a stream and by the layer for PyTorch alike.
"""

# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from .._checks import check_init
from ..schedules import Geometric, Schedule


def starting_centers(init, rows, X, n_clusters, random_state):
    """Starting centres of one run.

    Parameters
    ----------
    init : {"k-means++", "random"}, callable or ndarray
        The parameter, checked.
    rows : Passes
        The data.
    X : object
        The data as a callable is given them.
    n_clusters : int
        Number of centres.
    random_state : RandomState
        Source of the draws.

    Returns
    -------
    centers : ndarray of shape (n_clusters, n_features), float64
        In the units of the rows.
    """
    from .seeding import kmeans_plusplus, random_rows  # numba comes with them

    if isinstance(init, np.ndarray):
        return rows.units.into(init.astype(np.float64))
    if callable(init):
        centers = init(X, n_clusters, random_state=random_state)
        centers = check_init(centers, n_clusters, rows.n_features, rows.dtype)
        return rows.units.into(centers.astype(np.float64))
    choose = kmeans_plusplus if init == "k-means++" else random_rows
    with rows.sample(n_clusters, random_state) as some:
        return some.at(choose(some, n_clusters, random_state))


def temperatures(schedule, rows, centers, alpha):
    """Temperatures of a run, in the units of the rows, its limit of 0 included.

    Parameters
    ----------
    schedule : "auto", float, array-like or Schedule
        The parameter, checked.
    rows : Passes
        The data.
    centers : ndarray of shape (n_clusters, n_features)
        Where the centres start.
    alpha : float
        Tsallis index of the responsibilities.

    Returns
    -------
    sigmas : ndarray of shape (n_temperatures,)
    """
    schedule = Geometric() if isinstance(schedule, str) else schedule
    if not isinstance(schedule, Schedule):
        return rows.units.into(np.array(schedule, dtype=np.float64, ndmin=1))
    return sigmas_of(schedule, unit_size(schedule.unit, rows, centers, alpha))


def sigmas_of(schedule, scale):
    """Temperatures of a schedule object, the limit of 0 at its end included."""
    sigmas = schedule.sigmas(scale)
    return np.append(sigmas, 0.0) if schedule.harden else sigmas


def unit_size(unit, rows, centers, alpha):
    """The size of a schedule's unit, in the units of the rows.

    Parameters
    ----------
    unit : {"spread", "critical", "absolute"}
        Its name.
    rows, centers, alpha
        As in `temperatures`.

    Returns
    -------
    size : float
    """
    if unit == "spread":
        # by the kernel that the run needs too: it is compiled but once
        inertia = rows.e_step(alpha)(centers, 0.0).free_energy
        return np.sqrt(inertia / (rows.weight * rows.n_features))
    if unit == "critical":
        return critical_size(rows, len(centers), alpha)
    return rows.units.into(1.0)


def critical_size(rows, n_clusters, alpha):
    """The temperature above which all centres meet, in the units of the rows."""
    power = float(n_clusters) ** (alpha - 1.0)
    return np.sqrt(power * rows.largest_variance())
