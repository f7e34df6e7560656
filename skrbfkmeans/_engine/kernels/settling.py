"""A whole run of k-means for few rows, for which all else would cost more.

One soft step, and then steps of k-means until the labels repeat. Centres, their
squared lengths `norms` and `sums`, of shape (centres, features + 1), are changed.
"""

# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from ..jit import jit
from .distances import squared_distance
from .e_step import SLACK
from .entmax import entmax_row
from .nearest import GAPS, LOGITS, SHARES, two_least
from .sums import add_row


@jit
def warm_rows(data, weights, some, centers, norms, heat, sums, members, candidates):
    """A soft step with some of the rows.

    `heat` is (alpha, 2 sigma^2, width), as in `share_rows`; `members` (centres,) and
    `candidates` (3, centres) are scratch, as in `work`.
    """
    alpha, two_sigma2, width = heat
    gaps, logits, shares = candidates[GAPS], candidates[LOGITS], candidates[SHARES]
    k = centers.shape[0]
    sums[:, :] = 0.0
    for row in some:
        w = weights[row] if weights.size else 1.0
        nearest, smallest = np.int64(0), np.inf
        for j in range(k):
            gaps[j] = squared_distance(data, row, centers, norms, j)
            if gaps[j] < smallest:
                nearest, smallest = j, gaps[j]
        n = 0
        for j in range(k):
            if j == nearest or gaps[j] - smallest < width:
                members[n], logits[n] = j, 0.0
                if j != nearest:  # sigma may be 0
                    logits[n] = (smallest - gaps[j]) / two_sigma2
                n += 1
        entmax_row(logits, n, alpha, shares)
        for c in range(n):
            if shares[c] > 0.0:
                add_row(data, row, w * shares[c], members[c], centers, sums)
    move_to_means(centers, norms, sums, len(data) > 1)


@jit
def settle_rows(data, weights, centers, norms, labels, lower, sums, stop):
    """Steps of k-means until the labels repeat; finds the labels.

    `lower` (rows,) is scratch for lower bounds on the distances to the second closest
    centres. A row whose own centre is nearer than that keeps its label [1]_.

    `stop` is (goal, n_ahead, n_steps): ends after n steps, or before if the inertia,
    were it to fall by `n_ahead` times as much as in the last step, would still exceed
    the goal.

    Returns the inertia.

    References
    ----------
    .. [1] G. Hamerly, "Making k-means even faster", SDM (2010).
    """
    goal, n_ahead, n_steps = stop
    k = centers.shape[0]
    former, inertia, longest = np.inf, np.inf, np.inf
    for step in range(n_steps):
        former, inertia, n_changed = inertia, 0.0, 0
        sums[:, :] = 0.0
        for row in range(labels.size):
            w = weights[row] if weights.size else 1.0
            nearest, smallest, second = np.int64(labels[row]), np.inf, np.inf
            if step > 0:
                lower[row] -= longest  # no centre has come nearer by more
                smallest = squared_distance(data, row, centers, norms, nearest)
            if step == 0 or not lower[row] > np.sqrt(SLACK * smallest):
                smallest = np.inf
                for j in range(k):
                    square = squared_distance(data, row, centers, norms, j)
                    smallest, second, nearest = two_least(
                        square, j, smallest, second, nearest
                    )
                n_changed += labels[row] != nearest
                labels[row], lower[row] = nearest, np.sqrt(second)
            inertia += w * smallest
            add_row(data, row, w, nearest, centers, sums)
        if step > 0 and n_changed == 0:
            break
        if step > 0 and inertia - n_ahead * (former - inertia) > goal:
            break
        longest = move_to_means(centers, norms, sums, len(data) > 1)
    return inertia


@jit(inner=True)
def move_to_means(centers, norms, sums, is_sparse):
    """Move each centre to the mean of its share; returns the longest move.

    The sums are less the centres, except of sparse rows. Centres of no mass stay.
    """
    longest, d = 0.0, centers.shape[1]
    for j in range(centers.shape[0]):
        mass, square, norm = sums[j, d], 0.0, 0.0
        for f in range(d if mass > 0.0 else 0):
            move = sums[j, f] / mass
            move = move - centers[j, f] if is_sparse else move
            centers[j, f] += move
            square += move * move
        for f in range(d):
            norm += centers[j, f] * centers[j, f]
        norms[j], longest = norm, max(longest, np.sqrt(square))
    return longest
