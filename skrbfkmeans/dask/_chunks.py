"""Rows in chunks that may be anywhere: what each is asked, and how answers add up.

`ChunkedRows` offers a run the passes of `_engine.passes`. Each pass calls one
function of this module for every chunk, where that is, and adds up what comes back:
centres go out, and sums of a size that does not depend on the number of rows return.
Who carries the calls is not known here, so that nothing here depends on Dask.
"""

# SPDX-License-Identifier: BSD-3-Clause

import hashlib
import itertools
import math
from collections import namedtuple
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from operator import xor

import numpy as np
from scipy import sparse

from .._checks import canonical, check_batch, check_some_weight
from .._engine.passes import Measures, Passes, sample_size, spread_places
from .._engine.threads import Threads
from .._engine.units import Batch, choose_units, numbers

# numba comes with the first pass, not with the module.

# What one look at a chunk tells.
Facts = namedtuple("Facts", "n_rows squares dtype n_stored least_weight largest_weight")

# Which step of which run.
Turn = namedtuple("Turn", "run step")


@dataclass(eq=False)
class Chunk:
    """Some of the rows, checked.

    Attributes
    ----------
    batch : Batch
        The rows and their weights.
    number : int
        Which of all chunks it is.
    memory : tuple of Turn and Memory, or None
        What the last E-step has left: labels, bounds and running sums. They do not
        travel, and do not go to the disk: they cost but one full pass. After the last
        step, its labels.
    converted : tuple of Units, rows and weights, or None
        The rows in other units than their own. They do not travel either.
    """

    batch: Batch
    number: int
    memory: tuple | None = None
    converted: tuple | None = None

    def __getstate__(self):
        return {**vars(self), "memory": None, "converted": None}

    def __sizeof__(self):
        X = self.batch.X
        n_bytes = _n_bytes(X) + 40 * X.shape[0]  # bounds to come among them
        if self.converted is not None:
            n_bytes += _n_bytes(self.converted[1])
        elif X.shape[0] > 0:
            units = self.batch.units()
            if units.exponent:  # they are to come, too, in float64
                n_bytes += _n_bytes(X) * 8 // X.dtype.itemsize
        return object.__sizeof__(self) + n_bytes

    @property
    def n_rows(self):
        """Number of rows."""
        return self.batch.X.shape[0]

    def take_memory(self):
        """What is remembered, which is forgotten: nobody else gets it.

        A pass may be made anew while a task of the first attempt is still at work on
        the same chunk. To pop an attribute is one step for all threads.
        """
        return vars(self).pop("memory", None)

    def rows(self, units):
        """Passes over the rows by this thread alone."""
        known = self.converted
        if known is not None and known[0] == units:
            from .._engine.rows import Rows

            return Rows(*known[1:], self.batch.X.dtype, units=units, **_alone())
        rows = self.batch.rows(units, **_alone())
        if not np.may_share_memory(numbers(rows.X), numbers(self.batch.X)):
            weights = None if self.batch.weights is None else rows.stored_weights
            self.converted = units, rows.X, weights
        return rows


def _alone():
    """Options of passes by one thread."""
    return {"threads": Threads(1), "n_strips": 1}


def _n_bytes(X):
    """Bytes of the rows."""
    arrays = (X.data, X.indices, X.indptr) if sparse.issparse(X) else (X,)
    return sum(array.nbytes for array in arrays)


# --- what a chunk is asked ---------------------------------------------------


def check(estimator, number, X, sample_weight):
    """A chunk of what the user gave.

    Parameters
    ----------
    estimator : RBFKMeans
        One that knows the number and the names of the features.
    number : int
        Which of all chunks it is.
    X : array-like, sparse matrix or data frame
        The rows; perhaps none.
    sample_weight : array-like of shape (n_samples,) or None
        Their weights.

    Returns
    -------
    chunk : Chunk
    """
    if hasattr(X, "tocsr"):
        X = X.tocsr()
    if X.shape[0] == 0:
        if sample_weight is not None and np.size(sample_weight) > 1:
            raise ValueError(
                f"sample_weight has {np.size(sample_weight)} entries for a chunk of X "
                "without rows."
            )
        weights = None if sample_weight is None else np.empty(0)
        dtype = np.float32 if getattr(X, "dtype", None) == np.float32 else np.float64
        return Chunk(Batch(np.empty((0, X.shape[1]), dtype), 0.0, weights), number)
    return Chunk(check_batch(X, sample_weight, estimator, may_vanish=True), number)


def tell_facts(chunk):
    """What decides about units, sizes and samples."""
    X, squares = chunk.batch.X, chunk.batch.squares
    n_stored = X.nnz if sparse.issparse(X) else X.size
    weights = chunk.batch.least_weight, chunk.batch.largest_weight
    return Facts(X.shape[0], float(squares), X.dtype, n_stored, *weights)


def tell_magnitude(chunk):
    """Sum of the squares in float64, and the largest magnitude."""
    return chunk.batch.magnitude()


def measure(chunk, units):
    """Weight and measures of the rows, or None if they have no weight."""
    with chunk.rows(units) as rows:
        if rows.n_rows == 0 or rows.weight == 0.0:
            return None
        return rows.weight, rows.measures


def scatter(chunk, units, mean, V):
    """As `Passes.scatter`."""
    with chunk.rows(units) as rows:
        return rows.scatter(mean, V)


def share(chunk, units, turn, alpha, box, centers, sigma):
    """One E-step: its moments, if rows have weight, and a mark of the labels.

    What it leaves in the chunk speeds up the next step. A chunk that has missed a
    step, or makes one for the second time, begins anew.
    """
    from .._engine.steps import EStep

    with chunk.rows(units) as rows:
        if rows.n_rows == 0 or rows.weight == 0.0:
            return None, 0
        former, memory = chunk.take_memory() or (None, None)
        if former != (turn.run, turn.step - 1):
            memory = None
        e_step = EStep(rows, alpha, memory, box)
        moments = e_step(centers, sigma)
        chunk.memory = turn, e_step.memory
    key = chunk.number.to_bytes(8, "little")
    mark = hashlib.blake2b(e_step.labels.tobytes(), digest_size=8, key=key)
    return moments, int.from_bytes(mark.digest(), "little")


def find_costliest(chunk, units, centers, n):
    """Rows for n empty centres, as many as can be needed, and where they are from.

    Returns n, a list of pairs of chunk and place and of `Candidate`, and how many rows
    of positive weight each centre has here.
    """
    with chunk.rows(units) as rows:
        if rows.n_rows == 0:
            return n, [], np.zeros(len(centers), dtype=np.int64)
        labels = rows.assign(centers)
        some, n_own = rows.costliest(centers, labels, n + len(centers))
    found = [((chunk.number, place), one) for place, one in enumerate(some)]
    return n, spare(found, n, n_own), n_own


def assess(chunk, units, turn, centers):
    """Inertia and masses, as `predict` and `score` find them.

    In units that suit the chunk, so that nothing depends on other chunks. The labels
    stay with the chunk, for `tell_labels`, unless there is no turn.
    """
    if chunk.n_rows == 0:
        return 0.0, np.zeros(len(centers))
    labels, inertia, masses, own = _assess(chunk, units, centers)
    if turn is not None:
        chunk.memory = turn, labels
    exponent, w_exponent = own.exponent - units.exponent, own.w_exponent
    with np.errstate(over="ignore"):
        inertia = float(np.ldexp(inertia, 2 * exponent + w_exponent - units.w_exponent))
        masses = np.ldexp(masses, w_exponent - units.w_exponent)
    return inertia, masses


def _assess(chunk, units, centers):
    """Labels, inertia and masses, and the units of the chunk."""
    centers = units.back(centers)
    own = chunk.batch.units(centers)
    rows = chunk.rows(units) if own == units else chunk.batch.rows(own, **_alone())
    with rows:
        labels, inertia, masses = rows.assess(own.into(centers))
    return labels.astype(label_dtype(len(centers))), inertia, masses, own


def tell_labels(chunk, units, turn, centers):
    """The labels of these centres: those that are remembered, or found anew."""
    if chunk.n_rows == 0:
        return np.empty(0, dtype=label_dtype(len(centers)))
    former, labels = chunk.take_memory() or (None, None)
    return labels if former == turn else _assess(chunk, units, centers)[0]


def label_dtype(k):
    """The smallest that holds the numbers of k centres."""
    return np.min_scalar_type(k - 1)


def find_distinct(chunk, units, enough):
    """As `Passes.distinct`."""
    return chunk.rows(units).distinct(enough)


def weigh(chunk, units):
    """Total weight of the rows."""
    return chunk.rows(units).weight


def draw(chunk, units, bounds, draws, by_weight):
    """Rows by their place among all, or along the running sum of all weights.

    Parameters
    ----------
    chunk : Chunk
    units : Units
    bounds : ndarray of shape (n_chunks + 1,)
        Where the chunks begin and end.
    draws : ndarray
        The places wanted, sorted; None for all.
    by_weight : bool
        Whether they are places along the weights.

    Returns
    -------
    X : ndarray or CSR matrix
        The rows, each once.
    weights : ndarray or None
        Their weights, if the rows have any; how often each was drawn, if by weight.
    """
    rows = chunk.rows(units)
    weights = None if chunk.batch.weights is None else rows.stored_weights
    if draws is None:
        return rows.X, weights
    start, stop = bounds[chunk.number : chunk.number + 2]
    mine = draws[np.searchsorted(draws, start) : np.searchsorted(draws, stop)] - start
    if not by_weight:
        places = np.unique(mine.astype(np.int64))
        return rows.X[places], None if weights is None else weights[places]
    last = np.max(np.flatnonzero(weights), initial=0)
    places = np.searchsorted(np.cumsum(weights), mine, side="right")
    places, counts = np.unique(np.minimum(places, last), return_counts=True)
    return rows.X[places], counts.astype(np.float64)


# --- how answers add up ------------------------------------------------------


def add_shares(some):
    """Moments of all rows, from those of chunks, about the origins of the first.

    The marks come to the mark of all labels.
    """
    moments, marks = zip(*some, strict=True)
    mark = reduce(xor, marks)
    moments = [one for one in moments if one is not None]
    if len(moments) < 2:
        return moments[0] if moments else None, mark
    origins, sums, masses, totals = (array.copy() for array in moments[0])
    for other in moments[1:]:
        sums += other.sums
        sums += other.masses[:, np.newaxis] * (other.origins - origins)
        masses += other.masses
        totals += other.totals
    return type(moments[0])(origins, sums, masses, totals), mark


def add(some):
    """Sum of arrays, in order."""
    return reduce(np.add, some)


def add_candidates(some):
    """What `find_costliest` returns, for several chunks together."""
    ns, candidates, n_own = zip(*some, strict=True)
    n_own = add(n_own)
    candidates = list(itertools.chain(*candidates))
    return ns[0], spare(candidates, ns[0], n_own), n_own


def spare(candidates, n, n_own):
    """The costliest rows up to that which is enough for n empty centres.

    No centre gives away its last row. One that has a row too few here may have more
    elsewhere; so all rows stay that come before the last that is sure to be needed.
    """
    candidates = sorted(candidates, key=lambda found: (-found[1].cost, found[0]))
    left, n_sure = n_own.copy(), 0
    for i, (_, candidate) in enumerate(candidates):
        if n_sure == n:
            return candidates[:i]
        if left[candidate.label] > 1:
            left[candidate.label] -= 1
            n_sure += 1
    return candidates


# --- all rows together -------------------------------------------------------


class ChunkedRows(Passes):
    """The rows of many chunks, for all passes that one call makes over them.

    Parameters
    ----------
    carrier : object
        ``carrier.map(function, *args)`` calls ``function(chunk, *args)`` for every
        chunk and returns a list, ``carrier.sum(add, function, *args)`` what `add`
        makes of it, in parts if it likes.
    n_features : int
        Number of features.
    is_weighted : bool
        Whether the chunks have weights.
    """

    def __init__(self, carrier, n_features, is_weighted):
        self._carrier = carrier
        self.is_unweighted = not is_weighted
        facts = carrier.map(tell_facts)
        self.counts = np.array([fact.n_rows for fact in facts], dtype=np.int64)
        self.shape = int(self.counts.sum()), n_features
        self._n_stored = sum(fact.n_stored for fact in facts)
        filled = [fact for fact in facts if fact.n_rows > 0]
        self.dtype = np.result_type(np.float32, *(fact.dtype for fact in filled))
        self._squares = sum(fact.squares for fact in filled)
        self._weights = (
            min((fact.least_weight for fact in filled), default=np.inf),
            max((fact.largest_weight for fact in filled), default=0.0),
        )
        self._runs = itertools.count()
        self.units = None

    def choose_units(self, *more):
        """Choose units in which no square gets lost, those of `more` included."""
        if not self.is_unweighted:
            check_some_weight(self._weights[1])
        self.units = choose_units(self._squares, self._weights, self._magnitude, *more)

    def _magnitude(self):
        squares, largest = zip(*self._carrier.map(tell_magnitude), strict=True)
        with np.errstate(over="ignore"):
            return float(np.sum(squares)), max(largest)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        """Nothing is left: each chunk has ended its own passes."""

    def map(self, function, *args):
        """Call a function of each chunk; a list of what it returns."""
        return self._carrier.map(function, self.units, *args)

    def sum(self, add, function, *args):
        """Call a function of each chunk, and add up what it returns."""
        return self._carrier.sum(add, function, self.units, *args)

    # --- the passes of a run ---

    @cached_property
    def _measured(self):
        """Total weight, and the measures of the features."""
        parts = [part for part in self.map(measure) if part is not None]
        weights, measures = zip(*parts, strict=True)
        weight = math.fsum(weights)
        shares = np.array(weights)[:, np.newaxis] / weight
        means, variances, lows, highs = map(list, zip(*measures, strict=True))
        means, variances = np.array(means), np.array(variances)
        mean = means[0] + (shares * (means - means[0])).sum(axis=0)
        variances = (shares * (variances + (means - mean) ** 2)).sum(axis=0)
        low, high = reduce(np.minimum, lows), reduce(np.maximum, highs)
        return weight, Measures(mean, variances, low, high)

    @property
    def weight(self):
        """Total weight."""
        return self._measured[0]

    @property
    def measures(self):
        """Mean, variance and range of each feature."""
        return self._measured[1]

    def scatter(self, mean, V=None):
        """As `Passes.scatter`."""
        return self.sum(add, scatter, mean, V)

    def e_step(self, alpha):
        """As `Passes.e_step`."""
        return ChunkedEStep(self, next(self._runs), float(alpha))

    def assess(self, centers, labels=None):
        """As `Passes.assess`, but the labels stay with the chunks.

        Instead of them, a function that fetches them.
        """
        turn = Turn(next(self._runs), "labels")
        inertias, masses = zip(*self.map(assess, turn, centers), strict=True)
        return partial(self._labels, turn, centers), math.fsum(inertias), add(masses)

    def score(self, centers):
        """Inertia of the rows."""
        return math.fsum(inertia for inertia, _ in self.map(assess, None, centers))

    def _labels(self, turn, centers):
        """The labels that a pass has found, which travel in as few bytes as will do."""
        return np.concatenate(self.map(tell_labels, turn, centers), dtype=np.int32)

    def distinct(self, enough):
        """As `Passes.distinct`."""
        return set().union(*self.map(find_distinct, enough))

    def sample(self, n_clusters, random_state):
        """Rows drawn by their weights, one from each of many equal parts of all.

        All of them, if they are few: then nothing is left to chance.

        Returns
        -------
        rows : Rows
            The rows drawn, in the units of all.
        """
        n_bytes = self._n_stored * self.dtype.itemsize
        size = sample_size(n_clusters, n_bytes / self.n_rows)
        if size >= self.n_rows:
            return self._collect(None, None, False)
        places = spread_places(size, random_state)
        if not self.is_unweighted:
            sample = self._draw(self.map(weigh), places, True)
            if sample.n_rows >= n_clusters:
                return sample
        return self._draw(self.counts, places, False)  # or a few rows weigh all

    def _draw(self, extents, places, by_weight):
        """Rows at places between 0 and 1 of the sum of all extents."""
        bounds = np.concatenate([[0], np.cumsum(extents)])
        draws = places * bounds[-1]
        if not by_weight:
            draws = np.minimum(draws.astype(np.int64), self.n_rows - 1)
        return self._collect(bounds, draws, by_weight)

    def _collect(self, *args):
        """What `draw` finds in the chunks."""
        from .._engine.rows import Rows

        parts, weights = zip(*self.map(draw, *args), strict=True)
        parts = [X for X in parts if X.shape[0] > 0]
        if any(sparse.issparse(X) for X in parts):
            X = canonical(sparse.vstack(parts, format="csr", dtype=parts[0].dtype))
        else:
            X = np.concatenate(parts)
        weights = None if self.is_unweighted else np.concatenate(weights)
        return Rows(X, weights, self.dtype, units=self.units)


class ChunkedEStep:
    """The E-steps of one run over chunks, called with centres and temperatures.

    Attributes
    ----------
    labels : None
        They stay with the chunks.
    """

    labels = None

    def __init__(self, rows, run, alpha):
        self._rows, self._alpha, self._mark = rows, alpha, None
        self._turns = (Turn(run, step) for step in itertools.count())

    def __call__(self, centers, sigma):
        """One E-step, as `_steps.EStep` makes it.

        Chunks may have forgotten their labels, so all rows together tell by their
        mark whether one has changed.
        """
        rows, turn, former = self._rows, next(self._turns), self._mark
        moments, self._mark = rows.sum(
            add_shares, share, turn, self._alpha, rows.box, centers, sigma
        )
        n_changed = 0.0 if self._mark == former else max(moments.n_changed, 1.0)
        return moments.with_changed(n_changed)

    def costliest(self, centers, n):
        """As `Rows.costliest`.

        `n` is one for each empty centre, and one for each centre that would not give
        away its only row.
        """
        _, found, n_own = self._rows.sum(
            add_candidates, find_costliest, centers, n - len(centers)
        )
        return [candidate for _, candidate in found], n_own
