"""A whole run of k-means for few rows, for which all else would cost more."""

# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from ..jit import jit
from .distances import squared_distance
from .e_step import SLACK
from .entmax import entmax_row
from .nearest import two_least
from .sums import add_row


@jit
def settle_rows(
    X, csr, weights, centers, norms, labels, lower, stride, alpha, two_sigma2, width,
    goal, n_ahead, n_steps, sums, gaps, logits, shares, members,
):  # fmt: skip
    """A soft step, and then steps of k-means until the labels repeat.

    For a few rows. The soft step is made with every `stride`-th of them. Moves the
    centres, and finds the labels; `lower` is scratch for bounds on the distances to
    the second closest centres [1]_. Ends before if the inertia, were it to fall by
    `n_ahead` times as much as in the last step, would still exceed the goal.

    Returns the inertia.

    References
    ----------
    .. [1] G. Hamerly, "Making k-means even faster", SDM (2010).
    """
    k, d = centers.shape
    former, inertia, longest = np.inf, np.inf, np.inf
    for step in range(n_steps):
        former, inertia, n_changed = inertia, 0.0, 0
        sums[:, :] = 0.0
        for row in range(0, labels.size, 1 if step else stride):
            w = weights[row] if weights.size else 1.0
            nearest, smallest, second = np.int64(labels[row]), np.inf, np.inf
            if step > 1:
                lower[row] -= longest
                smallest = squared_distance(X, csr, row, centers, norms, nearest)
            if step < 2 or not lower[row] > np.sqrt(SLACK * smallest):
                smallest = np.inf
                for j in range(k):
                    gaps[j] = squared_distance(X, csr, row, centers, norms, j)
                    smallest, second, nearest = two_least(
                        gaps[j], j, smallest, second, nearest
                    )
                n_changed += labels[row] != nearest
                labels[row], lower[row] = nearest, np.sqrt(second)
            inertia += w * smallest
            if step > 0:
                add_row(X, csr, row, w, nearest, centers, sums)
                continue
            n = 0
            for j in range(k):
                if j == nearest or gaps[j] - smallest < width:
                    members[n], logits[n] = j, 0.0
                    if j != nearest:
                        logits[n] = (smallest - gaps[j]) / two_sigma2
                    n += 1
            entmax_row(logits, n, alpha, shares)
            for c in range(n):
                if shares[c] > 0.0:
                    add_row(X, csr, row, w * shares[c], members[c], centers, sums)
        if step > 1 and n_changed == 0:
            break
        if step > 1 and inertia - n_ahead * (former - inertia) > goal:
            break
        longest = move_to_means(centers, sums, csr is not None)
        for j in range(k):
            norms[j] = 0.0
            for f in range(d):
                norms[j] += centers[j, f] * centers[j, f]
    return inertia


@jit(inner=True)
def move_to_means(centers, sums, is_sparse):
    """Move each centre to the mean of its share; returns the longest move.

    The sums are less the centres, except of sparse rows. Centres of no mass stay.
    """
    longest = 0.0
    for j in range(centers.shape[0]):
        mass, square = sums[j, centers.shape[1]], 0.0
        for f in range(centers.shape[1] if mass > 0.0 else 0):
            move = sums[j, f] / mass
            move = move - centers[j, f] if is_sparse else move
            centers[j, f] += move
            square += move * move
        longest = max(longest, np.sqrt(square))
    return longest
