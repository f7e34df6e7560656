"""The E-step: rows in doubt, their nearest centres and their shares.

Three passes over rows that follow one another: `pick_rows` lists those whose share is
in doubt, `share_rows` finds who has a share in them, and `hold_rows` puts each that
belongs to one centre alone into its running sums. They share two named tuples.

`bounds`, of what is known about each row:

- ``labels`` (rows,): its nearest centre, or -1 if not known,
- ``limits`` (2, rows): `UPPER` and `LOWER` bounds on distances, infinite where the
  row belongs to more than one centre,
- ``moves`` (3, centres): how far each centre has `MOVED` since a beginning, how far
  at most any other has, whereby distances to them have `FALLEN`, and how far it is
  at least `APART` from the next.

`sums`, of sums that are taken over each strip of rows apart:

- ``ends`` (strips,): before which row each strip ends,
- ``origins`` (centres, features) and ``norms`` (centres,): the points that the sums of
  each centre are about, and their squared lengths,
- ``held`` (strips, centres, features + 3): of the rows that belong to one centre,
  weighted: coordinates less the origin, or about zero for sparse rows, weight, and
  squared distance to the origin; and how many rows there are,
- ``soft`` (strips, centres, features + 1): of rows with several shares, each weighted
  and times the share: the same coordinates, and weight,
- ``totals`` (strips, `N_TOTALS`): see `sums`.
"""

# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from ..jit import jit
from .distances import sparse_squared_distance, squared_distance
from .entmax import entmax_row, entropy_row
from .nearest import (
    GAPS,
    LIMIT,
    LOGITS,
    SECOND,
    SHARES,
    SMALLEST,
    find_nearest,
    list_candidates,
    score_rows,
)
from .sums import (
    CHANGED,
    HELD,
    INERTIA,
    MEASURED,
    OBJECTIVE,
    PICKED,
    SOFT_WEIGHT,
    SUPPORT,
    add_row,
)

# Bounds on squared distances are trusted but for this relative error.
SLACK = 1.0 + 1e-10

# Rows of ``bounds.limits``, in distances as they were at the beginning. A centre that
# has moved by m in all since then was nearer by at most m, or farther: so an upper
# bound of now is kept less m, a lower one is kept with m added. Whoever reads a bound
# undoes that with the moves of then, and what has come to them makes it worse.
UPPER, LOWER = range(2)

# Rows of ``bounds.moves``, distances too.
MOVED, FALLEN, APART = range(3)


@jit
def pick_rows(data, start, picked, codebook, bounds, width, measuring, sums):
    """List the rows whose share is in doubt, of as many as `picked` has room for.

    A row that belongs to one centre alone still does if, in squared distance,
    every other centre is more than `width` farther. Its distance to its own is
    at most its upper bound plus what that centre has moved since, and to the others
    at least its lower bound less what any of them has, and at least the distance
    from its own centre to the next less the first [1]_. If those bounds do not
    tell, the first is measured, if `measuring`. All rows that are passed over
    are such.

    Returns how many are listed.

    References
    ----------
    .. [1] G. Hamerly, "Making k-means even faster", SDM (2010).
    """
    labels, upper, lower = bounds.labels, bounds.limits[UPPER], bounds.limits[LOWER]
    moved, fallen = bounds.moves[MOVED], bounds.moves[FALLEN]
    apart = bounds.moves[APART]
    n_maybe = 0
    for i in range(start, start + picked.size):
        # No branch: it would be guessed wrong too often. A row without a label has
        # infinite bounds, and stays in doubt whichever centre it is asked about.
        j = np.uint64(max(labels[i], 0))
        near, far = upper[i] + moved[j], lower[i] - fallen[j]
        other = apart[j] - near
        far = far if far > other else other
        safe = (far > 0.0) & (far * far > SLACK * (near * near + width))
        picked[n_maybe] = i
        n_maybe += 1 - safe
    n = n_maybe if not measuring else 0
    n_measured = 0
    for c in range(n_maybe if measuring else 0):
        i = picked[c]
        picked[n] = i  # stays if n is raised
        if lower[i] == -np.inf:
            n += 1
            continue
        j = np.int64(labels[i])
        square = squared_distance(data, i, codebook.centers, codebook.norms, j)
        near, far = np.sqrt(square), lower[i] - fallen[j]
        upper[i] = near - moved[j]
        other = apart[j] - near
        far = far if far > other else other
        n += 1 - ((far > 0.0) & (far * far > SLACK * (square + width)))
        n_measured += 1
    strip = strip_of(start, 0, sums.ends)
    sums.totals[strip, MEASURED] += n_measured
    sums.totals[strip, PICKED] += n
    return n


@jit
def share_rows(data, weights, picked, codebook, work, heat, bounds, sums):
    """Find the label of each row in `picked`, its bounds, and who has a share in it.

    `heat` is (alpha, 2 sigma^2, width), of which the last is the excess of squared
    distance, over the least, from which on a centre has no share.

    A row that belongs to one centre alone gets bounds. Any other gets none,
    and its shares are added to the sums `soft` of its strip.

    Adds to ``totals[strip]`` the free energy of the soft rows, their inertia, their
    weight, their weighted number of shares, and the number of labels that changed.
    Rows of zero weight get a label and no more.
    """
    alpha, two_sigma2, width = heat
    labels, upper, lower = bounds.labels, bounds.limits[UPPER], bounds.limits[LOWER]
    moved, fallen = bounds.moves[MOVED], bounds.moves[FALLEN]
    ends, origins, soft, totals = sums.ends, sums.origins, sums.soft, sums.totals
    members, gaps = work.members, work.candidates[GAPS]
    logits, shares = work.candidates[LOGITS], work.candidates[SHARES]
    lanes, who, strip = work.lanes, work.who, 0
    for first in range(0, picked.size, who.size):
        some = picked[first : first + who.size]
        scores = score_rows(data, some, codebook, work)
        find_nearest(scores, some.size, codebook, work, width)
        for i in range(some.size):
            row, n = some[i], 1
            strip = strip_of(row, strip, ends)
            w = weights[row] if weights.size else 1.0
            if lanes[LIMIT, i] > -np.inf:
                n = list_candidates(data, row, i, scores, codebook, work, width)
            j = who[i]
            if labels[row] != j:
                labels[row] = j
                totals[strip, CHANGED] += w > 0.0
            upper[row] = np.sqrt(lanes[SMALLEST, i]) - moved[j]
            lower[row] = np.sqrt(lanes[SECOND, i]) + fallen[j]
            if n == 1:
                continue
            energy, n_shares = share_out(gaps, n, alpha, two_sigma2, logits, shares)
            if n_shares == 1:
                continue
            upper[row], lower[row] = np.inf, -np.inf
            if not w > 0.0:
                continue
            smallest = lanes[SMALLEST, i]
            totals[strip, OBJECTIVE] += w * (smallest + energy)
            totals[strip, INERTIA] += w * smallest
            totals[strip, SOFT_WEIGHT] += w
            totals[strip, SUPPORT] += w * n_shares
            for c in range(n):
                if shares[c] > 0.0:
                    add_row(data, row, w * shares[c], members[c], origins, soft[strip])


@jit(inner=True)
def strip_of(row, strip, ends):
    """The strip of a row, which is not before `strip`."""
    while row >= ends[strip]:
        strip += 1
    return strip


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
def hold_rows(data, weights, picked, bounds, holders, sums):
    """Move rows between running sums, so that each is held by whom it belongs to.

    That is the centre of its label, if it has bounds, and no one, if not;
    ``holders[row]`` tells who holds it now, or -1.
    """
    labels, lower, ends = bounds.labels, bounds.limits[LOWER], sums.ends
    origins, norms, held, totals = sums.origins, sums.norms, sums.held, sums.totals
    d, strip = origins.shape[1], 0
    for i in range(picked.size):
        row = picked[i]
        strip = strip_of(row, strip, ends)
        owner = labels[row] if lower[row] > -np.inf else -1
        w = weights[row] if weights.size else 1.0
        if owner == holders[row] or not w > 0.0:
            continue
        totals[strip, HELD] += 1
        for sign in (1, -1):  # to its new centre, and away from the old
            j = owner if sign == 1 else holders[row]
            if j < 0:
                continue
            square = add_row(data, row, sign * w, j, origins, held[strip])
            if len(data) > 1:
                square = sparse_squared_distance(data, row, origins, norms, j)
            held[strip, j, d + 1] += sign * w * square
            held[strip, j, d + 2] += sign
            if held[strip, j, d + 2] == 0.0:
                held[strip, j, :] = 0.0  # leave no rounding behind
        holders[row] = owner
