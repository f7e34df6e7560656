"""Rows that come in batches: centres that are the means of all they have seen.

Assumes that everything has been checked. What a stream has learnt is in the units of
the data, so that each batch can be worked on in units of its own.
"""

# SPDX-License-Identifier: BSD-3-Clause

import copy
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from .._engine.units import Batch, numbers, scaled, stored, sum_of_squares

# numba comes with the first batch, not with a model that is loaded from a file.

# Rows a cluster; a stream that has brought fewer is young.
YOUNG_ROWS = 1000

# Stored numbers; nor is one that has brought more, however few rows: 128 MB.
YOUNG_NUMBERS = 2**24


# What a stream is from then on, and whatever leaves this process.
GROWN_UP = {"is_refined": False, "young": (), "n_settled": 0}


@dataclass(eq=False)
class Stream:
    """What a model has learnt from its batches.

    Attributes
    ----------
    centers : ndarray of shape (n_clusters, n_features), float64
        The centres.
    masses : ndarray of shape (n_clusters,)
        What each centre has absorbed so far, in units of 2 to the power `w_exponent`:
        sums of weights may be out of the range of float64.
    sigmas : ndarray of shape (n_temperatures,)
        The temperatures, one a batch; the last is kept.
    w_exponent : int
        See `masses`.
    is_refined : bool
        Whether the rows are kept while the stream is young, to try swaps on them.
    n_batches : int
        Number of batches so far.
    young : tuple of Batch
        The batches that are kept. They stay in this process: a pickle leaves them
        out, and the stream that is loaded from it is not young any more.
    n_settled : int
        Number of rows that the centres were last fitted to.
    """

    centers: np.ndarray
    masses: np.ndarray
    sigmas: np.ndarray
    w_exponent: int = 0
    is_refined: bool = False
    n_batches: int = 0
    young: tuple = ()
    n_settled: int = 0

    def __getstate__(self):
        return {**vars(self), **GROWN_UP}

    def __deepcopy__(self, memo):
        return replace(self, **copy.deepcopy(vars(self), memo))

    @property
    def sigma(self):
        """Temperature of the next batch."""
        return float(self.sigmas[min(self.n_batches, len(self.sigmas) - 1)])

    def follow(self, batch, settings, n_swaps):
        """The stream after one more batch.

        While it is young, the centres are fitted to all rows so far each time these
        have doubled in number; else they make one online step. ``settings.tol`` is
        relative to the mean variance of the features, and `n_swaps` is the most swaps
        to try.
        """
        if not self.is_refined:
            return self._absorb(batch, settings)
        batches = *self.young, batch
        n_rows = sum(batch.X.shape[0] for batch in batches)
        is_young = self._are_few(batches)
        is_due = not is_young or n_rows >= 2 * self.n_settled
        if not is_due:
            after = self._absorb(batch, settings)
        elif self._are_few([batch]):
            after = self._settle(_together(batches), settings, n_swaps)
        else:  # too many rows to copy them
            after = self._settle(batch, settings, n_swaps)
            if self.young:
                after = after._absorb(_together(self.young), settings)
        if not is_young:
            return replace(after, **GROWN_UP)
        young = *self.young, batch.copy()
        n_settled = n_rows if is_due else self.n_settled
        n_batches = self.n_batches + 1
        return replace(after, young=young, n_settled=n_settled, n_batches=n_batches)

    def _are_few(self, batches):
        """Whether a stream of these batches alone is young."""
        n_rows = sum(batch.X.shape[0] for batch in batches)
        n_numbers = sum(numbers(batch.X).size for batch in batches)
        return n_rows < YOUNG_ROWS * len(self.centers) and n_numbers < YOUNG_NUMBERS

    def going_on_from(self, centers):
        """The stream with centres that were changed from outside.

        Centres that have only changed places keep what they have absorbed; else each
        place keeps what its former centre had.
        """
        former = stored(self.centers, centers.dtype)
        before, after = (np.lexsort(some.T[::-1]) for some in (former, centers))
        if not np.array_equal(former[before], centers[after]):
            return replace(self, centers=centers.astype(np.float64))
        places = np.empty_like(before)
        places[after] = before
        return replace(self, centers=self.centers[places], masses=self.masses[places])

    def _absorb(self, batch, settings):
        """The stream after an online step."""
        units = batch.units(self.centers)
        with batch.rows(units) as rows:
            centers, masses = absorb(
                rows,
                units.into(self.centers),
                scaled(self.masses, units.w_exponent - self.w_exponent),
                float(units.into(self.sigma)),
                settings,
            )
        exponent = units.w_exponent
        if self.masses.any():  # else there is nothing whose digits could be lost
            exponent = max(exponent, self.w_exponent)
        masses = scaled(masses, exponent - units.w_exponent)
        masses += scaled(self.masses, exponent - self.w_exponent)
        return self._moved(units, centers, masses, exponent)

    def _settle(self, batch, settings, n_swaps):
        """The stream after a fit to all its rows."""
        units = batch.units(self.centers)
        with batch.rows(units) as rows:
            tol = settings.tol * rows.measures.variances.mean()
            centers, masses = settle(
                rows,
                units.into(self.centers),
                float(units.into(self.sigma)),
                replace(settings, tol=tol),
                n_swaps,
            )
        return self._moved(units, centers, masses, units.w_exponent)

    def _moved(self, units, centers, masses, w_exponent):
        """The stream with other centres, in the units of a batch, and other masses."""
        return replace(
            self,
            centers=units.back(centers),
            masses=masses,
            w_exponent=w_exponent,
            n_batches=self.n_batches + 1,
        )


def absorb(rows, centers, masses, sigma, settings):
    """One online step of soft EM: the M-step over all that was ever seen.

    Each centre moves towards the mean of its share of the batch, by the part that
    this share has in all of its mass so far. A first batch makes the exact EM step.

    Parameters
    ----------
    rows : Rows
        The batch.
    centers : ndarray of shape (n_clusters, n_features)
        The centres.
    masses : ndarray of shape (n_clusters,)
        What each centre has absorbed so far; may be infinite.
    sigma : float
        Temperature; 0 is the hard limit.
    settings : Settings
        How steps are made.

    Returns
    -------
    centers : ndarray of shape (n_clusters, n_features)
        The centres, moved; those without a share stay.
    own : ndarray of shape (n_clusters,)
        Their shares of the batch.
    """
    from .._engine.steps import EStep
    from .annealing import LEAST_MASS, LEAST_SHARE

    # no box: the centres of a stream may well lie outside that of a batch
    step = EStep(rows, settings.alpha)(centers, sigma)
    is_hard = step.soft_weight == 0.0
    heavy = step.masses > (LEAST_MASS if is_hard else LEAST_SHARE * rows.weight)
    rate = 1.0 if is_hard else settings.learning_rate
    own, moved = step.masses, centers.copy()
    rates = rate * own[heavy] / (masses + own)[heavy]
    moved[heavy] += rates[:, np.newaxis] * (step.means(heavy) - centers[heavy])
    return moved, own


def settle(rows, centers, sigma, settings, n_swaps):
    """Fit the centres to all rows of a young stream, at one temperature, with swaps.

    Parameters
    ----------
    rows, centers, sigma, settings
        As in `absorb`, with all rows so far.
    n_swaps : float
        Most swaps to try.

    Returns
    -------
    centers : ndarray of shape (n_clusters, n_features)
        The centres.
    masses : ndarray of shape (n_clusters,)
        Their shares of the rows.
    """
    from .annealing import cool
    from .refinement import refine

    run = cool(rows, centers, np.array([sigma]), settings)
    if run.settled:
        run = refine(rows, run, n_swaps, settings, random_state=None)
    return run.centers, rows.e_step(settings.alpha)(run.centers, run.sigma).masses


def _together(batches):
    """Batches that are kept, as one."""
    some = [batch.X for batch in batches]
    is_sparse = any(sparse.issparse(X) for X in some)
    X = sparse.vstack(some, format="csr") if is_sparse else np.concatenate(some)
    if all(batch.weights is None for batch in batches):
        return Batch(X, sum_of_squares(X))
    weights = [
        np.ones(batch.X.shape[0]) if batch.weights is None else batch.weights
        for batch in batches
    ]
    return Batch(X, sum_of_squares(X), np.concatenate(weights))
