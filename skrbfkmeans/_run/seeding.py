"""Starting centres."""

# SPDX-License-Identifier: BSD-3-Clause

import itertools
import math

import numpy as np

from .._engine import kernels

# Features; with no more, distances are taken from columns of the rows in float32, and
# with more from products, for several centres at a time.
FEW_FEATURES = 16

# Candidates drawn at a time for the centres to come, where rows have many features.
MOST_TRIALS = 64

# Distances in float32 to all candidates drawn at a time: 64 MB.
MOST_SQUARES = 2**24

# Features a candidate; to load the features of a row costs as much as to compare the
# row with one candidate for each 12 of them, so fewer candidates would save nothing.
FEATURES_PER_TRIAL = 12

# Mean squared distance over its rounding; with less, distances in float32 are not
# trusted, and those in float64 take their place.
TRUSTED = 100.0

# The share of a squared distance of columns that counts. What is left out covers most
# of its rounding, and a constant the rest: (a - b)^2 >= KEEP a^2 - b^2 / (1 - KEEP).
KEEP = 1.0 - 1e-5


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
    n_trials = 2 + int(math.log(n_clusters))
    indices = np.empty(n_clusters, dtype=np.int64)
    distances = Distances(rows)
    kind = ColumnTrials if rows.n_features <= FEW_FEATURES else BatchedTrials
    trials = kind(rows, distances, n_trials)
    indices[0] = distances.draw(1, random_state)[0]
    distances.claim(indices[0], 0)
    for c in range(1, n_clusters):
        drawn, gains = trials.draw(c, n_clusters - c, random_state)
        best = np.argmax(gains)
        indices[c] = drawn[best]
        distances.claim(indices[c], best)
    return indices


class Distances:
    """Squared distances of the rows to the closest centre chosen so far.

    Parameters
    ----------
    rows : Rows
        The data.

    Attributes
    ----------
    closest : ndarray of shape (n_samples,)
        Squared distances.
    masks : ndarray of shape (n_samples,), uint8
        Which of the trials may be closer: the t-th, if bit t modulo 8 is set.
    """

    def __init__(self, rows):
        self.rows, block = rows, kernels.BLOCK
        n_blocks = -(-rows.n_rows // block)
        self._padded = np.zeros((n_blocks, block))
        self.closest = self._padded.reshape(-1)[: rows.n_rows]
        self.closest.fill(np.inf)
        self.masks = np.full(n_blocks * block, 255, dtype=np.uint8)
        self._left = np.full(n_blocks, np.inf)
        # about 1, so that none is lost in float32
        self._mean_weight = rows.weight / rows.n_rows
        self._weights = rows.stored_weights / self._mean_weight
        strips = rows.strips(1)
        cuts = [strip.start // block * block for strip in strips] + [rows.n_rows]
        step = max(1, strips[0].step // block) * block
        self.strips = [
            range(start, stop, step)
            for start, stop in itertools.pairwise(cuts)
            if start < stop
        ]

    @property
    def mean(self):
        """Weighted mean of the squared distances."""
        return self._left.sum() / self.rows.weight

    def claim(self, index, t):
        """Make a row a centre, the t-th of the last trials."""
        rows = self.rows
        center = rows.at([index])
        center = center, np.einsum("ij,ij->i", center, center)
        near, bit = (self.closest, self.masks), np.uint8(1 << (t % 8))

        def work(_, start, stop):
            kernels.claim_rows(
                rows.arrays, rows.stored_weights, start, stop, center, bit, near,
                self._left, np.empty(kernels.BLOCK, dtype=np.int64),
            )  # fmt: skip

        rows.run(work, self.strips)

    def gains(self, kernel, table, which, scale):
        """What each trial would take off the weighted sum of squared distances.

        As the kernel finds it in all strips, from a table and what stands in it.
        """
        near = self.closest, self.masks
        parts = np.zeros((len(self.strips), len(which)))

        def work(s, start, stop):
            kernel(
                table, which, start, stop, scale, self._weights, near, parts[s],
                np.empty((3, kernels.BLOCK), dtype=np.float32),
            )  # fmt: skip

        self.rows.run(work, self.strips)
        gains = parts.sum(axis=0)
        return gains if self.rows.is_unweighted else gains * self._mean_weight

    def draw(self, size, random_state):
        """Rows drawn with probability weight times squared distance.

        By weight alone before there is a centre, and once all distances are 0.
        """
        rows, left = self.rows, self._left
        draws = random_state.uniform(size=size)
        if left[0] == np.inf or not left.any():
            return _find(rows.weights, draws * rows.weight)
        ends = np.cumsum(left)
        draws *= ends[-1]
        if size * kernels.BLOCK > rows.n_rows:  # most blocks, or all
            chances = self.closest
            if not rows.is_unweighted:
                chances = chances * rows.stored_weights
            return _find(chances, draws)
        blocks = _find(left, draws)
        chances = self._padded[blocks]
        if not rows.is_unweighted:
            some = blocks[:, np.newaxis] * kernels.BLOCK + np.arange(kernels.BLOCK)
            chances *= rows.stored_weights[np.minimum(some, rows.n_rows - 1)]
        rest = draws - np.where(blocks > 0, ends[blocks - 1], 0.0)
        sums = np.cumsum(chances)
        starts = np.arange(size) * kernels.BLOCK
        rest += np.where(starts > 0, sums[starts - 1], 0.0)
        found = sums.searchsorted(rest, side="right") - starts
        for t in np.flatnonzero(found >= kernels.BLOCK):  # by rounding
            found[t] = np.flatnonzero(chances[t])[-1]
        return blocks * kernels.BLOCK + found


class Trials:
    """Rows on trial as centres: drawn, and what they would gain."""

    def __init__(self, rows, distances, n_trials):
        self.rows, self.distances, self.n_trials = rows, distances, n_trials

    def draw_exact(self, random_state):
        """Draw trials, and compute their squared distances in float64."""
        rows, n_trials = self.rows, self.n_trials
        drawn = self.distances.draw(n_trials, random_state)
        codebook = rows.codebook(rows.at(drawn))
        squares = np.empty((n_trials, rows.n_rows), dtype=np.float32)
        unit2 = self.distances.mean or 1.0
        largest = np.finfo(np.float32).max
        keep = 1.0 - 2.0 * float(np.finfo(np.float32).eps)

        def work(_, start, stop):
            out = np.empty((stop - start, n_trials))
            kernels.distance_rows(rows.arrays, start, stop, codebook, out, start)
            out *= keep / unit2
            squares[:, start:stop] = np.minimum(out, largest).T

        rows.run(work, self.distances.strips)
        return drawn, self.distances.gains(
            kernels.gain_rows, squares, np.arange(n_trials), unit2
        )


class ColumnTrials(Trials):
    """Trials of rows with few features, which are kept as columns in float32."""

    def __init__(self, rows, distances, n_trials):
        super().__init__(rows, distances, n_trials)
        shift = rows.at(slice(None, None, max(1, rows.n_rows // 100))).mean(axis=0)
        largest = float(max(rows.X.max(), -rows.X.min()))
        unit = math.ldexp(1.0, math.frexp(largest)[1] + 1) if largest else 1.0
        self._unit2 = unit * unit
        block = kernels.BLOCK
        n_blocks = -(-rows.n_rows // block)
        self._columns = np.zeros((n_blocks, rows.n_features, block), dtype=np.float32)

        def work(_, start, stop):
            for first in range(start, stop, block):
                some = (rows.at(slice(first, min(first + block, stop))) - shift) / unit
                self._columns[first // block, :, : len(some)] = some.T

        rows.run(work, distances.strips)
        reach = float(max(self._columns.max(), -self._columns.min()))
        roundoff = 2.0 * float(np.finfo(np.float32).eps) * reach
        self._doubt = rows.n_features * roundoff**2 / (1.0 - KEEP)

    def draw(self, n_before, n_left, random_state):
        """Draw trials; returns which rows they are and what they gain."""
        if self.distances.mean <= TRUSTED * self._doubt * self._unit2:
            return self.draw_exact(random_state)
        drawn = self.distances.draw(self.n_trials, random_state)
        scale = np.float32(KEEP), np.float32(self._doubt), self._unit2
        return drawn, self.distances.gains(
            kernels.try_columns, self._columns, drawn, scale
        )


class BatchedTrials(Trials):
    """Trials drawn for several centres at a time, with one pass over the rows.

    A row drawn when its squared distance was larger is accepted with the
    probability that it has become smaller by: what is accepted is drawn from
    the distribution of now [1]_.

    References
    ----------
    .. [1] V. Cohen-Addad et al., "Fast and accurate k-means++ via rejection
       sampling", NeurIPS (2020).
    """

    def __init__(self, rows, distances, n_trials):
        super().__init__(rows, distances, n_trials)
        n_most = max(n_trials, min(MOST_TRIALS, MOST_SQUARES // rows.n_rows))
        self._squares = np.empty((n_most, rows.n_rows), dtype=np.float32)
        self._batch, self._when_drawn = np.empty(0, dtype=np.int64), np.empty(0)
        self._next, self._unit2, self._is_exact = 0, 1.0, False

    def draw(self, n_before, n_left, random_state):
        """Draw trials; returns which rows they are and what they gain."""
        rows, closest, accepted = self.rows, self.distances.closest, []
        while len(accepted) < self.n_trials and not self._is_exact:
            if self._next == len(self._batch):
                n_ahead = 1 + min(n_before, n_left // 2)
                size = max(
                    n_ahead * self.n_trials, rows.n_features // FEATURES_PER_TRIAL
                )
                former = self._batch[accepted]
                accepted = list(range(len(accepted)))
                self._draw_batch(former, min(size, len(self._squares)), random_state)
                self._next = len(former)
                continue
            t = self._next
            self._next += 1
            chance = closest[self._batch[t]] / self._when_drawn[t]
            if chance == 1.0 or random_state.uniform() < chance:
                accepted.append(t)
        if self._is_exact:
            return self.draw_exact(random_state)
        accepted = np.array(accepted)
        return self._batch[accepted], self.distances.gains(
            kernels.gain_rows, self._squares, accepted, self._unit2
        )

    def _draw_batch(self, former, size, random_state):
        """Draw rows for several centres, besides those that have been accepted."""
        rows = self.rows
        drawn = self.distances.draw(size - len(former), random_state)
        self._batch = np.concatenate([former, drawn])
        self._when_drawn = self.distances.closest[self._batch]
        codebook = rows.codebook(rows.at(self._batch))
        self._unit2 = codebook.unit**2
        doubt = codebook.rounding * float(codebook.lengths.max()) * self._unit2
        self._is_exact = self.distances.mean <= TRUSTED * doubt
        if self._is_exact:
            return

        def work(_, start, stop):
            kernels.square_rows(
                rows.arrays, start, stop, codebook, rows.work(size), self._squares
            )

        rows.run(work, rows.strips(size))


def random_rows(rows, n_clusters, random_state):
    """Distinct rows drawn with probabilities proportional to their weights.

    When fewer than `n_clusters` rows have weight, rows without fill the rest.
    """
    chances = rows.weights / rows.weights.sum()
    n_drawn = min(n_clusters, np.count_nonzero(chances))
    drawn = random_state.choice(rows.n_rows, size=n_drawn, replace=False, p=chances)
    rest = np.setdiff1d(np.arange(rows.n_rows), drawn)
    return np.concatenate([drawn, rest[: n_clusters - n_drawn]])


def _find(chances, draws):
    """Where the running sum of `chances` passes each of the draws."""
    sums = chances.cumsum()
    found = sums.searchsorted(draws, side="right")
    if np.max(found) == len(sums):  # rounding has pushed a draw past the end
        found = np.minimum(found, np.flatnonzero(chances)[-1])
    return found
