"""Starting centres."""

# SPDX-License-Identifier: BSD-3-Clause

import numpy as np


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
    indices[0] = _draw(rows.weights, 1, random_state)[0]
    closest = np.full(rows.n_rows, np.inf)
    rows.lower(closest, rows.at(indices[:1]))
    for c in range(1, n_clusters):
        chances = rows.weights * closest
        if not chances.any():
            chances = rows.weights
        trials = _draw(chances, n_trials, random_state)
        potentials = rows.potentials(closest, rows.at(trials))
        indices[c] = trials[np.argmin(potentials)]
        rows.lower(closest, rows.at(indices[c : c + 1]))
    return indices


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
    cumulative = np.cumsum(chances)
    draws = random_state.uniform(size=size) * cumulative[-1]
    last = np.flatnonzero(chances)[-1]  # rounding may push a draw past the end
    return np.minimum(np.searchsorted(cumulative, draws, side="right"), last)
