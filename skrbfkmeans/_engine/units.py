"""Rows as they were given, and the units in which no square of theirs gets lost.

Squares of very large or very small numbers cannot be represented, so data in such a
range are worked on in other units: divided by a power of two, which is exact and
changes no digit of the result. That takes a copy. No float32 needs it: its squares are
computed in float64, where all can be represented.
"""

# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass

import numpy as np
from scipy import sparse

# Magnitudes; the square root of a sum of squares between them tells that all squares
# that matter can be represented in float64.
SAFE = 1e-100, 1e100

# Numbers; arrays are made float64 by blocks of no more: 8 MB.
BLOCK = 2**20

# Beyond them, the largest magnitude becomes 2 to this power: as large as its
# squares permit, so that the smallest are lost as late as possible.
HEADROOM = 400

# Weights; if the largest is between them, sums of weighted squares keep their range,
# and if all are larger than the least one, sums of the smallest keep their digits.
SAFE_WEIGHTS = 1e-30, 1e30
LEAST_SAFE_WEIGHT = 1e-200

# Beyond them, the largest weight becomes 2 to this power: as large as sums of weighted
# squares permit.
WEIGHT_HEADROOM = 200

# Weights in such units; a positive one of less counts as much, so that its row is not
# lost as if it had none.
LEAST_WEIGHT = 1e-280


@dataclass(frozen=True)
class Units:
    """In what units passes over some rows are made.

    Attributes
    ----------
    exponent : int
        Coordinates, distances and temperatures are in units of 2 to this power.
    w_exponent : int
        Weights and masses are in units of 2 to this power.
    """

    exponent: int = 0
    w_exponent: int = 0

    def into(self, lengths):
        """Coordinates, distances or temperatures in these units."""
        return scaled(lengths, self.exponent)

    def back(self, lengths):
        """Coordinates, distances or temperatures in those of the data again."""
        return scaled(lengths, -self.exponent)

    def weights_into(self, weights):
        """Weights in these units."""
        if not self.w_exponent:
            return weights
        into = scaled(weights, self.w_exponent)
        return np.where(weights > 0.0, np.maximum(into, LEAST_WEIGHT), 0.0)

    def energies_back(self, energies):
        """Weighted sums of squares in those of the data; infinite beyond float64."""
        return scaled(energies, -2 * self.exponent - self.w_exponent)

    def inertia_back(self, inertia, names="X or sample_weight"):
        """A weighted sum of squares in those of the data, or a ValueError."""
        inertia = float(self.energies_back(inertia))
        if not np.isfinite(inertia):
            raise ValueError(
                f"{names} is too large: the weighted sum of squared distances "
                f"exceeds the range of float64, {np.finfo(np.float64).max:.3g}."
            )
        return inertia


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows and weights as they were given, checked.

    Attributes
    ----------
    X : ndarray or CSR matrix of shape (n_samples, n_features)
        The rows, float32 or float64, finite; in C order, or canonical.
    squares : float
        The sum of the squares of X, infinite if it is too large for X's dtype.
    weights : ndarray of shape (n_samples,) or None
        Their weights, float64, finite and not negative.
    """

    X: np.ndarray
    squares: float
    weights: np.ndarray | None = None

    @property
    def largest_weight(self):
        """The largest weight; 0 without rows."""
        return 1.0 if self.weights is None else float(self.weights.max(initial=0.0))

    @property
    def least_weight(self):
        """The least positive weight; infinite if there is none."""
        if self.weights is None:
            return 1.0
        return float(np.min(self.weights, where=self.weights > 0.0, initial=np.inf))

    def units(self, *more):
        """Units in which no square gets lost, nor any of `more` arrays."""
        weights = self.least_weight, self.largest_weight
        return choose_units(self.squares, weights, self.magnitude, *more)

    def rows(self, units, **options):
        """Passes over the rows, in these units.

        The options are those of `rows.Rows`.
        """
        from .rows import Rows  # numba comes with the first pass

        X = self.X
        if units.exponent:
            X = units.into(X.astype(np.float64, copy=False))
        weights = self.weights
        if weights is not None:
            weights = units.weights_into(weights)
        return Rows(X, weights, units=units, **{"dtype": self.X.dtype, **options})

    def copy(self):
        """The same with arrays of its own."""
        weights = None if self.weights is None else self.weights.copy()
        return Batch(self.X.copy(), self.squares, weights)

    def magnitude(self):
        """Sum of the squares, in float64, and the largest magnitude of X."""
        values = numbers(self.X)
        blocks = (
            values[start : start + BLOCK].astype(np.float64, copy=False)
            for start in range(0, values.size, BLOCK)
        )
        return sum(map(sum_of_squares, blocks)), _largest(values)


def choose_units(squares, weights, magnitude, *more):
    """Units in which no square gets lost.

    Parameters
    ----------
    squares : float
        Sum of the squares of the rows, as it may be had at once: infinite if it is too
        large for their precision.
    weights : tuple of float
        Their least positive weight, and the largest.
    magnitude : callable
        Asked, if `squares` is not enough, for the sum of the squares in float64 and
        the largest magnitude.
    *more : ndarray
        Further coordinates that are to be safe in the same units.

    Returns
    -------
    units : Units
    """
    w_exponent, (least, heaviest), (low, high) = 0, weights, SAFE_WEIGHTS
    are_safe = low < heaviest < high and least > LEAST_SAFE_WEIGHT
    if heaviest > 0.0 and not are_safe:
        w_exponent = int(np.frexp(heaviest)[1]) - WEIGHT_HEADROOM
    if _are_safe(squares, more):
        return Units(0, w_exponent)
    squares, largest = magnitude()
    if _are_safe(squares, more):
        return Units(0, w_exponent)
    largest = max(largest, *map(_largest, more), 0.0)
    exponent = int(np.frexp(largest)[1]) - HEADROOM if largest > 0.0 else 0
    return Units(exponent, w_exponent)


def _are_safe(squares, more):
    """Whether sums of squares are sure to be right."""
    low, high = SAFE
    squares += sum(sum_of_squares(array.astype(np.float64)) for array in more)
    return low**2 < squares < high**2


def _largest(array):
    """The largest magnitude of an array."""
    return max(float(array.max(initial=0.0)), -float(array.min(initial=0.0)))


def numbers(array):
    """The stored numbers of an array or a sparse matrix, as one vector."""
    return (array.data if sparse.issparse(array) else array).reshape(-1)


def sum_of_squares(array):
    """In the array's own precision; infinite or NaN if its numbers are too large."""
    flat = numbers(array)
    with np.errstate(all="ignore"):
        return float(np.einsum("i,i->", flat, flat))


def scaled(array, exponent):
    """The array in units of ``2**exponent``; the same array if that is 1."""
    if not exponent:
        return array
    if sparse.issparse(array):
        parts = np.ldexp(array.data, -exponent), array.indices, array.indptr
        return type(array)(parts, shape=array.shape)
    with np.errstate(over="ignore"):
        return np.ldexp(array, -exponent)


def stored(centers, dtype):
    """Centres in the precision of the rows, whose range long steps may leave."""
    if dtype == np.float64:
        return centers
    largest = np.finfo(dtype).max
    return np.clip(centers, -largest, largest).astype(dtype)
