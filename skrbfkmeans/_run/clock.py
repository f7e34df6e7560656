"""What keeps the time of a run: its temperature, and whether that has settled."""

# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from scipy.spatial import cKDTree

# Temperatures; the squares of colder ones cannot be represented, so they are the hard
# limit, and hotter ones make no difference.
COLDEST = 1e-150
HOTTEST = 1e150

# Relative to the coordinates of a centre and the spread of its rows; a move by less is
# rounding.
ROUNDING = 4.0 * np.finfo(np.float64).eps


class Clock:
    """Which temperature it is, whether it has settled, and which comes next.

    Parameters
    ----------
    sigmas : ndarray of shape (n_temperatures,)
        Temperatures; 0 is the hard limit.
    tol : float
        A soft temperature has settled when the squared shift of all centres together
        is at most this.

    Attributes
    ----------
    sigma : float
        The temperature.
    shift : float
        Root of the sum of the squared moves of the centres in the last step.
    is_last : bool
        Whether it is the last temperature.
    """

    def __init__(self, sigmas, tol):
        self._sigmas = np.where(sigmas < COLDEST, 0.0, np.minimum(sigmas, HOTTEST))
        self._tol, self._position, self._last = tol, 0, len(sigmas) - 1
        self._was_hard = self._at_means = self._is_settled = False
        self.shift, self._former_shift = np.inf, np.inf

    @property
    def sigma(self):
        return self._sigmas[self._position]

    @property
    def is_last(self):
        return self._position == self._last

    @property
    def is_settled_at_last(self):
        """Whether the last temperature has been kept until convergence."""
        return bool(self._is_settled and self.is_last)

    def is_at_kmeans(self, is_hard):
        """Whether the steps are those of k-means from now on.

        They are once the rows are, and stay, with one centre each, at the last
        temperature, and always in the hard limit.
        """
        return is_hard and (self.sigma == 0.0 or (self._was_hard and self.is_last))

    def look_at_labels(self, centers, moved, is_same, at_means):
        """Look at a step in which each row belonged to one centre alone.

        `is_same` tells that no row has changed its centre, `at_means` that the step
        puts the centres at the means of their rows.
        """
        self.shift = _shift(centers, moved)
        self._is_settled = self._at_means and is_same
        self._was_hard, self._at_means = True, at_means

    def look_at_shift(self, centers, moved, spread):
        """Look at a soft step.

        `spread` is the root of the mean squared distance of the rows to their nearest
        centres.
        """
        self.shift = _shift(centers, moved)
        is_small = self.shift <= np.sqrt(self._tol)
        is_small = is_small or are_rounding(centers, moved, spread)
        # a growing shift means that centres are still parting
        self._is_settled = is_small and self.shift <= self._former_shift
        self._was_hard = self._at_means = False

    def interrupt(self):
        """Note that the temperature ends before it has settled."""
        self._is_settled = False

    def expect_growing_shifts(self):
        """Note that centres have been parted, so that the next shift is no end."""
        self._former_shift = 0.0

    def go_on(self, is_hard, is_stopped):
        """Go on to the temperature of the next iteration.

        A temperature that has settled, or is stopped, gets no further iteration. Once
        all rows are hard, what remains of a falling schedule changes nothing.

        Returns whether the temperature has fallen, and not to 0.
        """
        former = self.sigma
        if not self.is_last:
            rest = self._sigmas[self._position :]
            if is_hard and np.all(np.diff(rest) <= 0.0):
                self._position = self._last
            else:
                if self._is_settled or is_stopped:
                    self._skip_the_same()
                self._position = min(self._position + 1, self._last)
            self._is_settled = False
        self._former_shift = self.shift if self.sigma == former else np.inf
        return 0.0 < self.sigma < former

    def _skip_the_same(self):
        """Go to the last of the iterations at this very temperature."""
        while not self.is_last and self._sigmas[self._position + 1] == self.sigma:
            self._position += 1


def are_rounding(centers, moved, spread):
    """Whether the moves of all centres are rounding, each by its own measure.

    A mean is rounded by its coordinates and by how far its rows spread. That is not
    known of each centre; taken for it is `spread`, that of all rows, or the distance
    to the next centre if that is less: so neither a far centre nor far rows count for
    the others.
    """
    moves = np.sqrt(np.sum((moved - centers) ** 2, axis=1))
    sizes = np.sqrt(np.sum(moved**2, axis=1))
    if np.any(moves > ROUNDING * (sizes + spread)):
        return False
    gaps = np.inf
    if len(moved) > 1:
        gaps = cKDTree(moved).query(moved, k=2)[0][:, 1]
    return bool(np.all(moves <= ROUNDING * (sizes + np.minimum(spread, gaps))))


def _shift(centers, moved):
    """Root of the sum of the squared moves."""
    moves = moved - centers
    return np.sqrt(np.einsum("ij,ij->", moves, moves))
