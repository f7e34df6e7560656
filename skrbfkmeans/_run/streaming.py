"""Rows that come in batches: centres that are the means of all they have seen.

Assumes that everything has been checked. What a stream has learnt is in the units of
the data, so that each batch can be worked on in units of its own.
"""

# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass, field, replace

import numpy as np
from scipy import sparse

from .._checks import check_finite, check_weights, rows_in_safe_units, scaled

# numba comes with the first batch, not with a model that is loaded from a file.

# A stream is young until it has brought so many rows a cluster, or so many numbers.
YOUNG_ROWS, YOUNG_NUMBERS = 1000, 2**24


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
    young : list of (X, weights)
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

    def follow(self, X, squares, weights, w_exponent, *, n_swaps, max_iter, **options):
        """The stream after one more batch.

        While it is young, the centres are fitted to all rows so far each time these
        have doubled in number; else they make one online step. `squares` is the sum of
        the squares of X, weights are in units of ``2**w_exponent``, `n_swaps` is the
        most swaps to try, and the options are those of `annealing.cool`.
        """
        step = {name: options[name] for name in ("alpha", "learning_rate")}
        batch = X, squares, weights, w_exponent
        if not self.is_refined:
            return self._absorb(*batch, **step)
        n_rows, (k, d) = self.n_rows + X.shape[0], self.centers.shape
        enough = min(YOUNG_ROWS * k, YOUNG_NUMBERS // d)
        is_young = n_rows < enough
        is_due = not is_young or n_rows >= 2 * self.n_settled
        options |= {"n_swaps": n_swaps, "max_iter": max_iter}
        if not is_due:
            after = self._absorb(*batch, **step)
        elif X.shape[0] < enough:
            after = self._settle(*_together([*self.young, _kept(*batch)]), **options)
        else:  # so many rows that they had better not be copied
            after = self._settle(*batch, **options)
            if self.young:
                after = after._absorb(*_together(self.young), **step)
        if not is_young:
            return replace(after, is_refined=False, young=[], n_rows=0)
        young = [*self.young, _kept(*batch, copy=True)]
        n_settled = n_rows if is_due else self.n_settled
        n_batches = self.n_batches + 1
        return replace(
            after, young=young, n_rows=n_rows, n_settled=n_settled, n_batches=n_batches
        )

    def _absorb(self, X, squares, weights, w_exponent, **options):
        """The stream after an online step."""
        rows, exponent = rows_in_safe_units(X, squares, weights, self.centers)
        with rows, np.errstate(over="ignore"):
            centers, masses = absorb(
                rows,
                scaled(self.centers, exponent),
                np.ldexp(self.masses, -w_exponent),
                float(np.ldexp(self.sigma, -exponent)),
                **options,
            )
        return self._moved(centers, exponent, masses, w_exponent)

    def _settle(self, X, squares, weights, w_exponent, *, tol, **options):
        """The stream after a fit to all its rows."""
        rows, exponent = rows_in_safe_units(X, squares, weights, self.centers)
        with rows:
            centers, masses = settle(
                rows,
                scaled(self.centers, exponent),
                float(np.ldexp(self.sigma, -exponent)),
                tol=tol * rows.measure().mean(),
                **options,
            )
        return self._moved(centers, exponent, masses, w_exponent)

    def _moved(self, centers, exponent, masses, w_exponent):
        """The stream with other centres and masses, of a batch in its own units."""
        return replace(
            self,
            centers=scaled(centers, -exponent),
            masses=np.ldexp(masses, w_exponent),
            n_batches=self.n_batches + 1,
        )


def absorb(rows, centers, masses, sigma, *, alpha, learning_rate):
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
    alpha : float
        Tsallis index of the responsibilities.
    learning_rate : float
        Length of the soft steps, in EM steps.

    Returns
    -------
    centers : ndarray of shape (n_clusters, n_features)
        The centres, moved; those without a share stay.
    masses : ndarray of shape (n_clusters,)
        The masses, grown.
    """
    from .annealing import LEAST_MASS, LEAST_SHARE

    step = rows.e_step(alpha)(centers, sigma)
    is_hard = step.soft_weight == 0.0
    heavy = step.masses > (LEAST_MASS if is_hard else LEAST_SHARE * rows.weight)
    masses, moved = masses + step.masses, centers.copy()
    rates = (1.0 if is_hard else learning_rate) * step.masses[heavy] / masses[heavy]
    moved[heavy] += rates[:, np.newaxis] * (step.means(heavy) - centers[heavy])
    return moved, masses


def settle(rows, centers, sigma, *, n_swaps, **options):
    """Fit the centres to all rows of a young stream, at one temperature, with swaps.

    Parameters
    ----------
    rows : Rows
        All rows so far, measured.
    centers, sigma
        As in `absorb`.
    n_swaps : float
        Most swaps to try.
    **options
        As in `annealing.cool`.

    Returns
    -------
    centers : ndarray of shape (n_clusters, n_features)
        The centres.
    masses : ndarray of shape (n_clusters,)
        Their shares of the rows.
    """
    from .annealing import cool
    from .refinement import refine

    options |= {"verbose": False, "store_path": False, "task": None}
    run = cool(rows, centers, np.array([sigma]), **options)
    if run.settled:
        run = refine(rows, run, n_swaps, **options)
    return run.centers, rows.e_step(options["alpha"])(run.centers, run.sigma).masses


def _kept(X, _, weights, w_exponent, copy=False):
    """A batch as it is kept, with weights in the units of the data."""
    weights = np.ones(X.shape[0]) if weights is None else np.ldexp(weights, w_exponent)
    return X.copy() if copy else X, weights


def _together(batches):
    """Batches that are kept, as one: X, the sum of its squares, weights, their unit."""
    some, weights = zip(*batches, strict=True)
    is_sparse = any(sparse.issparse(X) for X in some)
    X = sparse.vstack(some, format="csr") if is_sparse else np.concatenate(some)
    return X, check_finite(X, "X"), *check_weights(np.concatenate(weights), X)
