"""The E-step: rows in doubt, their nearest centres and their shares."""

# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from ..jit import jit
from .distances import sparse_squared_distance, squared_distance
from .entmax import entmax_row, entropy_row
from .nearest import find_nearest, list_candidates, score_rows
from .sums import add_row

# Bounds on squared distances are trusted but for this relative error.
SLACK = 1.0 + 1e-10

# What an E-step adds up besides sums of rows.
OBJECTIVE, INERTIA, SOFT_WEIGHT, SUPPORT, CHANGED, MEASURED, PICKED = range(7)
N_TOTALS = 7


# Three passes over the rows from `start` to `stop`: pick those whose share is in
# doubt, find who has a share in them, and hold each that belongs to one centre alone
# in its running sums. A row's strip, whose sums it adds to, ends before row
# ``ends[strip]``. Sums, `held` and `soft`, are of shape (strips, centres, features +
# 2): coordinates less the origin of the centre, or about zero for sparse rows, then
# weights, then squared distances to the origin, all weighted.


@jit
def pick_rows(
    X, csr, start, stop, codebook, bounds, labels, width, measuring, picked, totals
):
    """List the rows whose share is in doubt, and return their number.

    A row that belongs to one centre alone still does if, in squared distance,
    every other centre is more than `width` farther. Its distance to its own is
    at most ``upper`` plus what that centre has moved since, and to the others
    at least ``lower`` less what any of them has, and at least the distance
    from its own centre to the next less the first [1]_. If those bounds do not
    tell, the first is measured, if `measuring`. All rows that are passed over
    are such.

    References
    ----------
    .. [1] G. Hamerly, "Making k-means even faster", SDM (2010).
    """
    upper, lower, moved = bounds.upper, bounds.lower, bounds.moved
    fallen, apart = bounds.fallen, bounds.apart
    n_maybe = 0
    for i in range(start, stop):  # no branch: it would be guessed wrong too often
        j = np.uint64(max(labels[i], 0))
        near, far = upper[i] + moved[j], lower[i] - fallen[j]
        other = apart[j] - near
        far = far if far > other else other
        safe = (far > 0.0) & (far * far > SLACK * (near * near + width))
        picked[n_maybe] = i
        n_maybe += 1 - safe
    n = n_maybe if not measuring else 0
    for c in range(n_maybe if measuring else 0):
        i = picked[c]
        picked[n] = i  # stays if n is raised
        if lower[i] == -np.inf:
            n += 1
            continue
        j = np.int64(labels[i])
        square = squared_distance(X, csr, i, codebook.centers, codebook.norms, j)
        near, far = np.sqrt(square), lower[i] - fallen[j]
        upper[i] = near - moved[j]
        other = apart[j] - near
        far = far if far > other else other
        n += 1 - ((far > 0.0) & (far * far > SLACK * (square + width)))
        totals[MEASURED] += 1.0
    totals[PICKED] += n
    return n


@jit
def share_rows(
    X, csr, picked, weights, codebook, work, alpha, two_sigma2, width, bounds, labels,
    strip, ends, origins, soft, touched, totals,
):  # fmt: skip
    """Find the label of each row in `picked`, its bounds, and who has a share in it.

    A row that belongs to one centre alone gets bounds. Any other gets none,
    and its shares are added to the sums `soft` of its strip, which is `touched`.

    Adds to ``totals[strip]`` the free energy of the soft rows, their inertia, their
    weight, their weighted number of shares, and the number of labels that changed.
    Rows of zero weight get a label and no more.
    """
    upper, lower, moved, fallen = (
        bounds.upper, bounds.lower, bounds.moved, bounds.fallen
    )  # fmt: skip
    members, shares, n_lanes = work.members, work.shares, work.lengths.size
    for first in range(0, picked.size, n_lanes):
        some = picked[first : first + n_lanes]
        scores = score_rows(X, csr, some, codebook, work)
        find_nearest(scores, some.size, codebook, work, width)
        for i in range(some.size):
            row, n = some[i], 1
            while row >= ends[strip]:
                strip += 1
            w = weights[row] if weights.size else 1.0
            if not work.clear[i]:
                n = list_candidates(X, csr, row, i, scores, codebook, work, width)
            j = work.who[i]
            if labels[row] != j:
                labels[row] = j
                totals[strip, CHANGED] += w > 0.0
            upper[row] = np.sqrt(work.smallest[i]) - moved[j]
            lower[row] = np.sqrt(work.second[i]) + fallen[j]
            if n == 1:
                continue
            energy, n_shares = share_out(
                work.gaps, n, alpha, two_sigma2, work.logits, shares
            )
            if n_shares == 1:
                continue
            upper[row], lower[row] = np.inf, -np.inf
            if not w > 0.0:
                continue
            totals[strip, OBJECTIVE] += w * (work.smallest[i] + energy)
            totals[strip, INERTIA] += w * work.smallest[i]
            totals[strip, SOFT_WEIGHT] += w
            totals[strip, SUPPORT] += w * n_shares
            touched[strip] = True
            for c in range(n):
                if shares[c] > 0.0:
                    add_row(
                        X, csr, row, w * shares[c], members[c], origins, soft[strip]
                    )


@jit(inner=True)
def share_out(gaps, n, alpha, two_sigma2, logits, shares):
    """Shares of the n candidates of a row, whose squared distances exceed by `gaps`.

    Returns the free energy of the row, less the smallest squared distance, and
    the number of shares that are not zero.
    """
    for c in range(n):
        logits[c] = -gaps[c] / two_sigma2
    entmax_row(logits, n, alpha, shares)
    energy, n_shares = -two_sigma2 * entropy_row(shares, n, alpha), 0
    for c in range(n):
        energy += shares[c] * gaps[c]
        n_shares += shares[c] > 0.0
    return energy, n_shares


@jit
def hold_rows(
    X, csr, picked, weights, labels, lower, holders, strip, ends, origins,
    origin_norms, held, counts, touched,
):  # fmt: skip
    """Move rows between running sums, so that each is held by whom it belongs to.

    That is the centre of its label, if it has bounds, and no one, if not;
    ``holders[row]`` tells who holds it now, or -1. The sums `held` are of
    ``counts[strip, j]`` rows; strips whose sums change are `touched`.
    """
    for i in range(picked.size):
        row = picked[i]
        while row >= ends[strip]:
            strip += 1
        owner = labels[row] if lower[row] > -np.inf else -1
        w = weights[row] if weights.size else 1.0
        if owner == holders[row] or not w > 0.0:
            continue
        touched[strip] = True
        for sign in (1, -1):  # to its new centre, and away from the old
            j = owner if sign == 1 else holders[row]
            if j < 0:
                continue
            square = add_row(X, csr, row, sign * w, j, origins, held[strip])
            if csr is not None:
                square = sparse_squared_distance(csr, row, origins, origin_norms, j)
            held[strip, j, held.shape[2] - 1] += sign * w * square
            counts[strip, j] += sign
            if counts[strip, j] == 0:
                held[strip, j, :] = 0.0  # leave no rounding behind
        holders[row] = owner
