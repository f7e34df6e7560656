"""Rows that come in batches: centres that are the means of all they have seen.

Assumes that everything has been checked. What a stream has learnt is in the units of
the data, so that each batch can be worked on in units of its own.
"""

# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass, field, replace

import numpy as np
from scipy import sparse

from .._engine.units import Batch, sum_of_squares

# numba comes with the first batch, not with a model that is loaded from a file.

# Rows a cluster; a stream that has brought fewer is young.
YOUNG_ROWS = 1000

# Numbers; a stream that has brought more is not, whatever its clusters: 128 MB.
YOUNG_NUMBERS = 2**24


@dataclass(eq=False)
class Stream:
    """What a model has learnt from its batches.

    Attributes
    ----------
    centers : ndarray of shape (n_clusters, n_features), float64
        The centres.
    masses : ndarray of shape (n_clusters,)
        What each centre has absorbed so far.
    sigmas : ndarray of shape (n_temperatures,)
        The temperatures, one a batch; the last is kept.
    is_refined : bool
        Whether the rows are kept while the stream is young, to try swaps on them.
    n_batches : int
        Number of batches so far.
    young : list of Batch
        The batches that are kept.
    n_rows, n_settled : int
        Number of rows kept, and of those the centres were last fitted to.
    """

    centers: np.ndarray
    masses: np.ndarray
    sigmas: np.ndarray
    is_refined: bool = False
    n_batches: int = 0
    young: list = field(default_factory=list)
    n_rows: int = 0
    n_settled: int = 0

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
        n_new = batch.X.shape[0]
        n_rows, (k, d) = self.n_rows + n_new, self.centers.shape
        enough = min(YOUNG_ROWS * k, YOUNG_NUMBERS // d)
        is_young = n_rows < enough
        is_due = not is_young or n_rows >= 2 * self.n_settled
        if not is_due:
            after = self._absorb(batch, settings)
        elif n_new < enough:
            after = self._settle(_together([*self.young, batch]), settings, n_swaps)
        else:  # too many rows to copy them
            after = self._settle(batch, settings, n_swaps)
            if self.young:
                after = after._absorb(_together(self.young), settings)
        if not is_young:
            return replace(after, is_refined=False, young=[], n_rows=0)
        young = [*self.young, batch.copy()]
        n_settled = n_rows if is_due else self.n_settled
        n_batches = self.n_batches + 1
        return replace(
            after, young=young, n_rows=n_rows, n_settled=n_settled, n_batches=n_batches
        )

    def _absorb(self, batch, settings):
        """The stream after an online step."""
        units = batch.units(self.centers)
        with batch.rows(units) as rows:
            centers, masses = absorb(
                rows,
                units.into(self.centers),
                units.weights_into(self.masses),
                float(units.into(self.sigma)),
                settings,
            )
        return self._moved(units, centers, masses)

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
        return self._moved(units, centers, masses)

    def _moved(self, units, centers, masses):
        """The stream with other centres and masses, of a batch in its own units."""
        return replace(
            self,
            centers=units.back(centers),
            masses=units.weights_back(masses),
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
        What each centre has absorbed so far.
    sigma : float
        Temperature; 0 is the hard limit.
    settings : Settings
        How steps are made.

    Returns
    -------
    centers : ndarray of shape (n_clusters, n_features)
        The centres, moved; those without a share stay.
    masses : ndarray of shape (n_clusters,)
        The masses, grown.
    """
    from .._engine.steps import EStep
    from .annealing import LEAST_MASS, LEAST_SHARE

    # no box: the centres of a stream may well lie outside that of a batch
    step = EStep(rows, settings.alpha)(centers, sigma)
    is_hard = step.soft_weight == 0.0
    heavy = step.masses > (LEAST_MASS if is_hard else LEAST_SHARE * rows.weight)
    rate = 1.0 if is_hard else settings.learning_rate
    masses, moved = masses + step.masses, centers.copy()
    rates = rate * step.masses[heavy] / masses[heavy]
    moved[heavy] += rates[:, np.newaxis] * (step.means(heavy) - centers[heavy])
    return moved, masses


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
