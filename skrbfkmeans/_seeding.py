"""Starting centres."""

# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from scipy.spatial.distance import cdist

from . import _kernels
from ._blocks import middle_of

# With more features, distances are taken by BLAS, of so many rows at once, unless
# less than this share of the squared lengths is left of their difference.
MOST_FEATURES, AT_ONCE, LEAST_LEFT = 16, 512, 1e-10


def kmeans_plusplus(rows, n_clusters, random_state):
    """Greedy k-means++: rows drawn with probability weight times distance².

    Of ``2 + log(n_clusters)`` rows drawn at each step, the one that lowers the
    weighted sum of squared distances most becomes a centre [1]_, as in
    scikit-learn. Rows of zero weight are never drawn. When the rows drawn so
    far cover all distinct rows, further centres repeat some of them.

    Parameters
    ----------
    rows : Rows
        The data and their weights.
    n_clusters : int
        Number of centres.
    random_state : RandomState
        Source of the draws.

    Returns
    -------
    indices : ndarray of shape (n_clusters,)
        The rows chosen.

    References
    ----------
    .. [1] D. Arthur and S. Vassilvitskii, "k-means++: the advantages of careful
       seeding", SODA (2007).
    """
    n_trials = 2 + int(np.log(n_clusters))
    indices = np.empty(n_clusters, dtype=np.int64)
    distances = Distances(rows, n_clusters, n_trials)
    trials = distances.draw(1, random_state)
    for c in range(n_clusters):
        best = np.argmax(distances.gains(trials))
        indices[c] = trials[best]
        distances.claim(best)
        if c + 1 < n_clusters:
            trials = distances.draw(n_trials, random_state)
    return indices


class Distances:
    """Squared distances of the rows to the nearest centre chosen so far.

    Parameters
    ----------
    rows : Rows
        The data.
    n_clusters : int
        Most centres.
    n_trials : int
        Most centres on trial at a time.
    """

    def __init__(self, rows, n_clusters, n_trials):
        self.rows, self.n_chosen = rows, 0
        self._centers = np.empty((n_clusters, rows.n_features))
        self._closest = np.full(rows.n_rows, np.inf)
        self._owners = np.zeros(rows.n_rows, dtype=np.int32)
        self._strips = [
            range(start, min(start + strip.step, strip.stop), strip.step)
            for strip in rows.strips(n_trials)
            for start in strip
        ]
        self._left = np.zeros(len(self._strips))
        self._near = np.empty(rows.n_rows, dtype=np.int64)
        self._n_near = np.zeros(len(self._strips), dtype=np.int64)
        self._squares = np.empty((n_trials, rows.n_rows))

    def claim(self, trial):
        """Make one of the rows last on trial a centre."""
        rows, new = self.rows, self.n_chosen
        self._centers[new] = self._trials[trial]
        self.n_chosen += 1

        def work(s, start, stop):
            some = slice(start, start + self._n_near[s])
            self._left[s] = _kernels.claim_rows(
                rows.stored_weights, start, stop, self._near[some],
                self._squares[trial, some], new, self._closest, self._owners,
            )  # fmt: skip

        rows.run(work, self._strips)

    def draw(self, size, random_state):
        """Rows drawn with probability weight times squared distance.

        By weight alone once all distances are 0.
        """
        if self.n_chosen == 0 or not self._left.any():
            return _draw(self.rows.weights, size, random_state)
        ends = np.cumsum(self._left)
        draws = random_state.uniform(size=size) * ends[-1]
        which = np.searchsorted(ends, draws, side="right")
        which = np.minimum(which, np.flatnonzero(self._left)[-1])
        drawn = np.empty(size, dtype=np.int64)
        for s in np.unique(which):
            some = slice(self._strips[s].start, self._strips[s].stop)
            chances = self._closest[some]
            if not self.rows.is_unweighted:
                chances = chances * self.rows.weights[some]
            rest = draws[which == s] - (ends[s - 1] if s else 0.0)
            drawn[which == s] = some.start + _find(chances, rest)
        return drawn

    def gains(self, indices):
        """What each row would take off the sum of squared distances as a centre.

        Parameters
        ----------
        indices : ndarray of shape (n_trials,)

        Returns
        -------
        gains : ndarray of shape (n_trials,)
        """
        rows = self.rows
        self._trials = trials = rows.at(indices)
        norms = np.einsum("ij,ij->i", trials, trials)
        reach = np.full(1, -1.0)  # of the owner of all rows before there is any
        if self.n_chosen:
            chosen = self._centers[: self.n_chosen]
            reach = cdist(chosen, trials, "sqeuclidean").min(axis=1)
            reach *= 0.25 - 1e-10  # less what rounding could hide
        parts = np.zeros((len(self._strips), len(trials)))

        def work(s, start, stop):
            n_near = _kernels.reach_rows(
                start, stop, self._closest, self._owners, reach, self._near
            )
            self._n_near[s] = n_near
            near = self._near[start : start + n_near]
            squares = self._squares[:, start : start + n_near]
            if rows.is_sparse or rows.n_features <= MOST_FEATURES:
                _kernels.trial_rows(*rows.arrays, near, trials, norms, squares)
            else:
                squares_by_product(rows.X, near, trials, squares)
            _kernels.gain_rows(
                rows.stored_weights, near, squares, self._closest, parts[s]
            )

        rows.run(work, self._strips)
        return parts.sum(axis=0)


def squares_by_product(X, rows, trials, squares):
    """Squared distances of rows to trials, by BLAS where no digits are lost by it."""
    shift = middle_of(trials)
    trials = trials - shift
    norms = np.einsum("ij,ij->i", trials, trials)
    work_rows, row_norms = np.empty((AT_ONCE, trials.shape[1])), np.empty(AT_ONCE)
    _kernels.product_rows(
        X, rows, shift, trials, norms, LEAST_LEFT, work_rows, row_norms, squares
    )


def random_rows(rows, n_clusters, random_state):
    """Distinct rows drawn with probabilities proportional to their weights.

    When fewer than `n_clusters` rows have weight, rows without fill the rest.
    """
    chances = rows.weights / rows.weights.sum()
    n_drawn = min(n_clusters, np.count_nonzero(chances))
    drawn = random_state.choice(rows.n_rows, size=n_drawn, replace=False, p=chances)
    rest = np.setdiff1d(np.arange(rows.n_rows), drawn)
    return np.concatenate([drawn, rest[: n_clusters - n_drawn]])


def _draw(chances, size, random_state):
    """Indices drawn with probabilities proportional to `chances`."""
    return _find(chances, random_state.uniform(size=size) * np.sum(chances))


def _find(chances, draws):
    """Where the running sum of `chances` passes each of the draws."""
    found = np.searchsorted(np.cumsum(chances), draws, side="right")
    if found.max() == len(chances):  # rounding has pushed a draw past the end
        found = np.minimum(found, np.flatnonzero(chances)[-1])
    return found
