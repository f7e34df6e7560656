"""Random estimators on random inputs, and what must hold whatever they are.

Each case draws an estimator, rows and weights, fits, and then calls methods in
a random order, bad inputs among them. Everything is compared with the naive
twins of ``tests/naive.py`` or with another way to the same answer. Prints the
seed and the reason of each case that fails, and exits with 1 if any did.

Run it with ``python benchmarks/fuzz.py --minutes 10 --seed 0``, and one case
again, with its traceback, with ``python benchmarks/fuzz.py --one CASE_SEED``.
"""

# SPDX-License-Identifier: BSD-3-Clause

import argparse
import collections
import copy
import importlib.util
import pickle
import signal
import sys
import time
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from threadpoolctl import threadpool_limits

from skrbfkmeans import RBFKMeans
from skrbfkmeans.energy import free_energy, hardening_sigma, responsibilities
from skrbfkmeans.schedules import Constant, Cosine, Cyclic, Geometric, Linear

_spec = importlib.util.spec_from_file_location(
    "naive", Path(__file__).parents[1] / "tests" / "naive.py"
)
naive = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(naive)

EPS = np.finfo(np.float64).eps
WIDE = np.longdouble  # on most machines its squares do not underflow
LOST = 1e-220 if np.finfo(WIDE).max > 1e4000 else 1e-50  # distance to the largest
WORK = 3e6  # rows times centres times features of most cases
SECONDS = 120  # a case that takes longer hangs
CALLS = collections.Counter()


class FailedError(AssertionError):
    """Something that must hold does not."""


def require(condition, reason, *numbers):
    """Fail with a reason, the numbers after a colon, unless the condition holds."""
    if not condition:
        raise FailedError(
            reason + (f": {', '.join(map(str, numbers))}" if numbers else "")
        )


# --- what is drawn -----------------------------------------------------------


@dataclass
class Data:
    """Rows and weights as a user hands them over, and what they mean.

    `dense` are the same rows as float64 in C order, `plain` whether they are in
    general position: continuous and without ties.
    """

    X: object
    dense: np.ndarray
    weights: object
    kind: str

    @property
    def w(self):
        """The weights as float64, in the unit of the largest."""
        return np.ldexp(model_weights(self), -unit(model_weights(self)))

    @property
    def is_sparse(self):
        return sparse.issparse(self.X)

    @property
    def scale(self):
        """A typical distance between rows; never 0."""
        exponent = unit(self.dense)
        spread = np.sqrt(np.mean(np.var(np.ldexp(self.dense, -exponent), axis=0)))
        return float(np.ldexp(spread if spread > 1e-140 else 1.0, exponent))


def pick(rng, **chances):
    """One of the names, drawn with these chances."""
    p = np.array(list(chances.values()), dtype=np.float64)
    return str(rng.choice(list(chances), p=p / p.sum()))


def draw_shape(rng):
    """Numbers of rows, features and centres."""
    if rng.random() < 0.03:  # enough rows for several threads
        return int(rng.integers(2000, 6000)), int(rng.integers(2, 61)), 60
    while True:
        most = rng.choice([9, 80, 3000])
        n = int(np.ceil(most ** rng.random()))
        d = int(rng.choice([1, rng.integers(1, 13), rng.integers(1, 61)]))
        k = int(rng.choice([1, n, rng.integers(1, n + 1), min(n, rng.integers(1, 12))]))
        if n * k * d <= WORK and n * k <= 1e5:
            return n, d, k


def draw_rows(rng, n, d):
    """Rows as float64, and the name of their kind."""
    kind = pick(
        rng,
        normal=5,
        blobs=6,
        grid=4,
        duplicates=3,
        outliers=3,
        equal=1,
        constant_columns=3,
        heavy=2,
        units=2,
    )
    X = rng.normal(size=(n, d))
    if kind == "blobs":
        centers = 10 ** rng.uniform(-1, 3) * rng.normal(size=(rng.integers(1, 12), d))
        X += centers[rng.integers(len(centers), size=n)]
    elif kind == "grid":
        X = rng.integers(0, rng.integers(2, 9), size=(n, d)).astype(np.float64)
    elif kind == "duplicates":
        X = X[rng.integers(rng.integers(1, n + 1), size=n)]
    elif kind == "outliers":
        X[rng.random(n) < 0.05] *= 10 ** rng.uniform(1, rng.choice([12, 36, 100]))
    elif kind == "equal":
        X[:] = X[0]
    elif kind == "constant_columns":
        X[:, rng.random(d) < 0.5] = rng.choice([0.0, 1.0, 1e6])
    elif kind == "heavy":
        X = rng.standard_cauchy(size=(n, d))
    elif kind == "units":  # each column, or each row, in a unit of its own
        orders = rng.uniform(0, rng.choice([3, 15]))
        X *= 10 ** rng.uniform(-orders, orders, size=(rng.choice([1, n]), 1))
        X *= 10 ** rng.uniform(-orders, orders, size=d)
    return X, kind


def draw_layout(rng, X):
    """The same rows, dense, in one of many layouts."""
    layout = pick(
        rng, c=2, f=1, rows=1, columns=1, transposed=1, readonly=1, frozen=1, list=1
    )
    if layout == "f":
        return np.asfortranarray(X)
    if layout == "rows":
        return np.repeat(X, 2, axis=0)[::2]
    if layout == "columns":
        return np.ascontiguousarray(X[:, ::-1])[:, ::-1]
    if layout == "transposed":
        return np.ascontiguousarray(X.T).T
    if layout in ("readonly", "frozen"):
        X = X.copy(order="F" if layout == "frozen" else "C")
        X.setflags(write=False)
    if layout == "list" and X.size < 200 and X.dtype == np.float64:
        return X.tolist()
    return X


def draw_sparse(rng, X):
    """The same rows as a sparse matrix, in one of many states."""
    name = pick(rng, csr_matrix=3, csr_array=3, csc_matrix=1, coo_array=1)
    container = getattr(sparse, name)
    matrix = container(X)
    if matrix.format != "csr":
        return matrix
    data, indices, indptr = matrix.data, matrix.indices, matrix.indptr
    if rng.random() < 0.3:  # each entry twice, as halves, in no order
        rows = np.repeat(np.arange(len(X)), np.diff(indptr))
        order = rng.permutation(np.repeat(np.arange(data.size), 2))
        order = order[np.argsort(rows[order], kind="stable")]
        data, indices, indptr = data[order] / 2, indices[order], indptr * 2
        data = data.astype(X.dtype)
    if rng.random() < 0.3 and data.size:  # explicit zeros
        data = data.copy()
        data[rng.random(data.size) < 0.2] = 0.0
    if rng.random() < 0.4:
        indices, indptr = indices.astype(np.int64), indptr.astype(np.int64)
    matrix = container((data, indices, indptr), shape=X.shape)
    if rng.random() < 0.4:
        matrix.indices = indices.astype(np.int64)
        matrix.indptr = indptr.astype(np.int64)
    if rng.random() < 0.3:
        for array in (matrix.data, matrix.indices, matrix.indptr):
            array.setflags(write=False)
    return matrix


def draw_weights(rng, n):
    """Weights of n rows, or None."""
    kind = pick(rng, none=9, uniform=2, counts=2, orders=3, zeros=2, scaled=2)
    w = rng.uniform(0.1, 1.0, size=n)
    if kind == "none":
        return None
    if kind == "counts":
        w = rng.integers(0, 5, size=n)
    elif kind == "orders":
        w = 10 ** rng.uniform(-10, 0, size=n)
    elif kind == "zeros":
        w[rng.random(n) < rng.choice([0.2, 0.9])] = 0.0
    elif kind == "scaled":
        w = w * 10 ** rng.uniform(-250, 200)
    if not np.any(w):
        w[rng.integers(n)] = 1
    if kind == "uniform" and rng.random() < 0.5:
        return w.astype(np.float32)
    return w.tolist() if rng.random() < 0.2 else w


def draw_data(rng, n, d):
    X, kind = draw_rows(rng, n, d)
    dtype = pick(rng, f8=28, f4=15, i8=2, u1=1, f2=1, bool=1, **{">f8": 2})
    if dtype in ("f8", "f4", ">f8"):
        if rng.random() < 0.25:
            X += 10 ** rng.uniform(0, 12) * rng.choice([-1.0, 1.0], size=d)
        if rng.random() < 0.25:
            X *= 10 ** rng.uniform(*((-44, 37) if dtype == "f4" else (-155, 153)))
        if dtype == "f4":
            X = np.clip(X, -3e38, 3e38)
    else:
        X = np.abs(np.clip(np.round(X * 10), -250, 250))
    X = X.astype(dtype)
    if rng.random() < 0.25 and dtype in ("f8", "f4"):
        X[rng.random(X.shape) < rng.choice([0.3, 0.9])] = 0.0
        given = draw_sparse(rng, X)
        X = given.toarray()
    else:
        given = draw_layout(rng, X)
    return Data(given, X.astype(np.float64), draw_weights(rng, n), kind)


def some_rows(X, n_clusters, random_state):
    """Rows of X as starting centres, as a callable `init`."""
    chosen = random_state.choice(X.shape[0], n_clusters, replace=False)
    return X[chosen].toarray() if sparse.issparse(X) else X[chosen]


def draw_init(rng, data, k):
    kind = pick(rng, plusplus=9, random=2, function=2, rows=3, noisy=2, far=2)
    if kind in ("plusplus", "random"):
        return kind.replace("plusplus", "k-means++")
    if kind == "function":
        return some_rows
    init = data.dense[rng.choice(len(data.dense), k, replace=rng.random() < 0.3)]
    if kind == "noisy":
        init = init + data.scale * rng.normal(size=init.shape)
    elif kind == "far":
        far = rng.uniform(0, rng.choice([8, 200]))
        init[rng.integers(k)] += min(data.scale * 10**far, 1e250)
    if getattr(data.X, "dtype", None) == np.float32:
        init = np.clip(init, -3e38, 3e38)
        if rng.random() < 0.5:
            init = init.astype(np.float32)
    init.setflags(write=bool(rng.random() < 0.7))
    return init


def draw_schedule(rng, scale):
    kind = pick(rng, auto=5, zero=1, float=4, array=3, object=7)
    if kind == "auto":
        return "auto"
    if kind == "zero":
        return 0.0
    start = 10 ** rng.uniform(-2, 2)
    stop = start * 10 ** rng.uniform(-3, 0)
    if kind == "float":
        if rng.random() < 0.05:
            return float(rng.choice([5e-324, 1e-200, 1e200, 1e300]))
        return float(scale * start)
    if kind == "array":
        sigmas = scale * np.geomspace(start, stop, rng.integers(1, 8))
        if rng.random() < 0.3:
            sigmas[-1] = 0.0
        return sigmas.tolist() if rng.random() < 0.3 else sigmas
    options = dict(
        n_iter=int(rng.integers(1, 4)),
        unit=str(rng.choice(["spread", "critical", "absolute"])),
        harden=bool(rng.random() < 0.7),
    )
    if options["unit"] == "absolute":
        start, stop = float(scale * start), float(scale * stop)
        if not 0.0 < stop <= start:
            start = stop = 1.0
    choices = [Geometric, Linear, Cosine, Cyclic, Constant]
    kind = choices[rng.integers(len(choices))]
    if kind is Constant:
        return Constant(start, **options)
    if kind is Cyclic:
        options["n_cycles"] = int(rng.integers(1, 4))
        options["decay"] = float(rng.uniform(0.1, 1.0))
    return kind(start, stop, int(rng.integers(1, 7)), **options)


def draw_model(rng, data, k):
    near_one, between = 1.0 + 10 ** rng.uniform(-5, 0), rng.uniform(1.0, 3.0)
    slow, fast = rng.uniform(0.05, 1.0), rng.uniform(1.0, 1.99)
    return RBFKMeans(
        n_clusters=k if rng.random() < 0.7 else np.int64(k),
        schedule=draw_schedule(rng, data.scale),
        alpha=float(rng.choice([1.0, 1.5, 2.0, 3.0, near_one, between])),
        learning_rate=float(rng.choice([1.0, 1.0, slow, fast])),
        init=draw_init(rng, data, k),
        n_init=rng.choice(np.array(["auto", 1, 2, 3], dtype=object)),
        max_iter=int(rng.choice([1, 2, 5, 30, 300])),
        tol=float(rng.choice([0.0, 1e-12, 1e-4, 1e-1])),
        features=str(rng.choice(["distance", "rbf", "responsibility"])),
        sparse_output=bool(rng.random() < 0.5),
        proba_sigma=draw_proba_sigma(rng, data),
        random_state=int(rng.integers(2**31)),
    )


def draw_proba_sigma(rng, data):
    if rng.random() < 0.5:
        return "auto"
    some = data.scale * 10 ** rng.uniform(-3, 3)
    return float(rng.choice([0.0, some, 1e-200, 1e200], p=[0.1, 0.7, 0.1, 0.1]))


# --- helpers of the checks ---------------------------------------------------


def unit(*arrays):
    """Exponent of a power of two near the largest magnitude of all arrays."""
    largest = max(float(np.max(np.abs(array), initial=0.0)) for array in arrays)
    return int(np.frexp(largest)[1]) if largest > 0.0 else 0


def same(a, b):
    """Whether two values, arrays or containers are equal to the last bit."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return (
            type(a) is type(b)
            and a.dtype == b.dtype
            and a.shape == b.shape
            and a.tobytes() == b.tobytes()
        )
    if sparse.issparse(a):
        parts = "data", "indices", "indptr", "row", "col"
        return all(same(getattr(a, p, 0), getattr(b, p, 0)) for p in parts)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if hasattr(a, "get_params") or type(a).__name__ == "Stream":
        return type(a) is type(b) and same(vars(a), vars(b))
    return a is b or a == b


def frozen(*objects):
    """Copies to compare with later."""
    return copy.deepcopy(objects)


def call(function, *args, **kwargs):
    """Call, and fail on any warning but those that a fit may give."""
    CALLS[getattr(function, "__name__", "call")] += 1
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function(*args, **kwargs)
    allowed = 0
    for warning in caught:
        text = str(warning.message)
        converged = warning.category is ConvergenceWarning
        starts = warning.category is RuntimeWarning and "n_init" in text
        require(converged or starts, f"warning {warning.category.__name__} {text}")
        allowed += converged
    require(allowed <= 1, "more than one ConvergenceWarning")
    return result


def distances_in_units(data, centers):
    """Squared distances in the units of a power of two, and its exponent."""
    exponent = unit(data.dense, centers)
    rows = np.ldexp(data.dense, -exponent)
    centers = np.ldexp(np.asarray(centers, dtype=np.float64), -exponent)
    wide = rows.astype(WIDE)
    d2 = np.stack([((wide - c) ** 2).sum(axis=1) for c in centers], axis=1)
    return rows, centers, d2, exponent


def rounding_of_distance(data, n_features):
    """Bound on the relative rounding of a squared distance, ours and naive."""
    return 8.0 * EPS * (n_features + 4) * (1e3 if data.is_sparse else 1.0)


# --- checks ------------------------------------------------------------------


def check_fit(model, data):
    """All that must hold of a model that has just been fitted to the data."""
    k = model.n_clusters
    centers, labels = model.cluster_centers_, model.labels_
    require(np.isfinite(centers).all(), "a centre is not finite")
    require(0.0 <= model.inertia_ < np.inf, "inertia_", model.inertia_)
    require(0.0 <= model.sigma_ < np.inf, "sigma_", model.sigma_)
    for name, values in model.history_.items():
        require(np.isfinite(values).all(), f"history_[{name!r}] is not finite")
        require(len(values) == model.n_iter_, "history_ is not as long as n_iter_")
    require(1 <= model.n_iter_ <= model.max_iter, "n_iter_", model.n_iter_)
    require(centers.shape == (k, data.dense.shape[1]), "shape of the centres")
    wide = getattr(data.X, "dtype", None) != np.float32
    require(centers.dtype == (np.float64 if wide else np.float32), "dtype of centres")
    require(labels.dtype == np.int32, "dtype of labels")
    require(type(model.hardened_) is bool, "type of hardened_")

    require(same(labels, call(model.predict, data.X)), "labels_ is not predict")
    score = call(model.score, data.X, sample_weight=data.weights)
    require(model.inertia_ == -score, "inertia_ is not -score", model.inertia_, score)
    check_labels(model, data)
    if model.hardened_:
        check_fixed_point(model, data)
    if model.learning_rate <= 1.0:
        check_descent(model, data)


def check_labels(model, data):
    """Labels are nearest centres, and inertia_ is the sum of their distances."""
    _, _, d2, exponent = distances_in_units(data, model.cluster_centers_)
    chosen, best = d2[np.arange(len(d2)), model.labels_], d2.min(axis=1)
    rounding = rounding_of_distance(data, data.dense.shape[1])
    wrong = chosen > best * (1.0 + rounding) + WIDE(LOST) ** 2
    require(not wrong.any(), "a label is not the nearest centre", np.flatnonzero(wrong))
    w_unit = unit(model_weights(data))
    inertia = (data.w * best).sum()
    ours = np.ldexp(WIDE(model.inertia_), -2 * exponent - w_unit)
    tolerance = (1e-10 + rounding + 4.0 * EPS * len(d2)) * inertia
    tolerance += len(d2) * WIDE(LOST) ** 2
    require(
        abs(ours - inertia) <= tolerance or np.abs(model.inertia_) < 1e-290,
        "inertia_ is not that of the naive twin",
        ours,
        inertia,
    )


def model_weights(data):
    """The weights in the units of the user."""
    if data.weights is None:
        return np.ones(len(data.dense))
    return np.array(data.weights, dtype=np.float64)


def check_fixed_point(model, data):
    """Each centre is the mean of its own rows; `check_labels` does the rest.

    Clusters that hold less than 1e-12 of the weight count as empty.
    """
    exponent = unit(data.dense)
    rows, w = np.ldexp(data.dense, -exponent), data.w
    eps = float(np.finfo(model.cluster_centers_.dtype).eps)
    typical = np.quantile(np.abs(rows[w > 0.0]), 0.9, axis=0)
    for j in range(model.n_clusters):
        own = np.flatnonzero((model.labels_ == j) & (w > 0.0))
        if w[own].sum() <= 1.1e-12 * w.sum():
            continue
        base = rows[own[0]]
        mean = base + np.average(rows[own] - base, axis=0, weights=w[own])
        center = np.ldexp(model.cluster_centers_[j].astype(np.float64), -exponent)
        size = np.abs(rows[own]).max(axis=0)
        tolerance = (size + typical) * EPS * (16.0 + 8.0 * np.sqrt(len(own)))
        tolerance += eps * np.abs(mean) + 1e-10 * size
        if not data.is_sparse:  # rows that came and went leave rounding
            tolerance += 8.0 * EPS * np.abs(rows[w > 0.0]).max(axis=0)
            tolerance += EPS**1.5 * np.abs(rows[w > 0.0]).max()
        tiny = np.ldexp(float(np.finfo(model.cluster_centers_.dtype).tiny), -exponent)
        off = np.abs(center - mean) > tolerance + tiny
        require(not off.any(), "hardened_, but a centre is not the mean of its rows", j)
    found = len(np.unique(model.labels_[w > 0.0]))
    if found < model.n_clusters and w[w > 0].min() > 1e-10 * w.sum():
        distinct = len(np.unique(rows[w > 0.0], axis=0))
        require(
            found == distinct,
            "hardened_ with clusters to spare",
            f"found {found} of {model.n_clusters}, {distinct} distinct rows",
        )


def check_descent(model, data):
    """The free energy never rises while the temperature stays the same."""
    sigma, energy = model.history_["sigma"], model.history_["free_energy"]
    if len(sigma) < 2:
        return
    weight = float(np.sum(model_weights(data)))
    with np.errstate(all="ignore"):
        entropy = naive.largest_entropy(model.n_clusters, model.alpha)
        size = np.abs(energy) + 2.0 * sigma**2 * weight * entropy
        rounding = 1e-13 * (size + np.abs(energy[0])) * (1 + np.sqrt(len(data.dense)))
        length = np.abs(data.dense).max() * np.sqrt(data.dense.size)
        if model.cluster_centers_.dtype == np.float32:
            rounding = rounding * 1e7
        eps = float(np.finfo(model.cluster_centers_.dtype).eps)
        rounding = rounding + weight * (16.0 * eps * length) ** 2 + 1e-300
        rises = (np.diff(energy) > rounding[1:]) & (np.diff(sigma) == 0.0)
    first = np.flatnonzero(rises)[:1]
    require(
        not rises.any(),
        "the free energy rises at constant temperature",
        f"iteration {first}",
        f"sigma {sigma[first]}",
        energy[first],
        energy[first + 1],
    )


def check_shares(P, data, labels, centers, sigma, alpha):
    """Rows of P are responsibilities at sigma, and their argmax is the label."""
    P = P.toarray() if sparse.issparse(P) else P
    k = len(centers)
    require(P.shape == (len(data.dense), k), "shape of the responsibilities")
    require(np.isfinite(P).all() and (P >= 0.0).all(), "a responsibility is not finite")
    least = 1e-12 if P.dtype == np.float64 else 1e-6
    sums = P.sum(axis=1, dtype=np.float64)
    require(np.abs(sums - 1.0).max() <= least, "rows do not sum to one", sums)
    require(same(P.argmax(axis=1).astype(np.int32), labels), "argmax is not predict")
    rows = np.arange(len(P))
    if P.size * data.dense.shape[1] > 1e6:
        rows = rows[:: 1 + int(P.size * data.dense.shape[1] / 1e6)]
    part = Data(data.X, data.dense[rows], None, "")
    X, C, d2, exponent = distances_in_units(part, centers)
    with np.errstate(all="ignore"):
        with np.errstate(over="ignore"):
            sigma = float(np.ldexp(sigma, -exponent))
        two_sigma2 = 2.0 * sigma**2 if sigma < 1e150 else np.inf
        if two_sigma2 == 0.0 or two_sigma2 < 1e-100:
            return  # a matter of units: zero for one of us, not for the other
        power = 1.0 / (alpha - 1.0) if alpha > 1.0 else 1.0
        rounding = rounding_of_distance(data, X.shape[1])
        logit = 20.0 * (1e-5 if P.dtype == np.float32 else 2e-14)
        logit = logit + 2.0 * rounding * d2.min(axis=1).astype(float) / two_sigma2
        expected = naive.responsibilities(X, C, np.float64(sigma), alpha)
        tolerance = logit + 32.0 * EPS * power * (1.0 + power)
        if alpha > 2.0:
            tolerance = np.maximum(tolerance, 2.0 * tolerance**power)
        d2 = d2.astype(np.float64)
        gaps = d2 - d2.min(axis=1, keepdims=True)
        beyond = gaps > (two_sigma2 * power) * (1.0 + 1e-9 + 2.0 * logit[:, None])
    usable = tolerance < 0.1
    off = (np.abs(P[rows] - expected).max(axis=1) > tolerance) & usable
    require(
        not off.any(),
        "responsibilities are not those of the naive twin",
        f"rows {rows[off][:3]}",
        np.abs(P[rows] - expected).max(),
    )
    if alpha > 1.0:
        require(
            not (P[rows][usable] > 0.0)[beyond[usable]].any(),
            "a centre beyond the width has a share",
        )


def shares_close(P, Q):
    """Equal but for the rounding of a product, which depends on the block."""
    least = 1e-4 if P.dtype == np.float32 else 1e-11
    return P.dtype == Q.dtype and np.abs(P - Q).max() <= least


def effective_sigma(model):
    return model.sigma_ if isinstance(model.proba_sigma, str) else model.proba_sigma


def check_outputs(model, data):
    """`predict_proba` and `transform` of a fitted model, on any rows."""
    labels = call(model.predict, data.X)
    check_labels_only(model, data, labels)
    sigma = effective_sigma(model)
    P = call(model.predict_proba, data.X)
    check_shares(P, data, labels, model.cluster_centers_, sigma, model.alpha)
    if model.features == "distance" and not fits_in_range(data, model.cluster_centers_):
        return
    try:
        T = call(model.transform, data.X)
    except ValueError as error:
        single = model.cluster_centers_.dtype == np.float32
        require(single and "exceeds the range" in str(error), f"transform: {error}")
        return
    if model.features == "responsibility":
        require(sparse.issparse(T) == model.sparse_output, "sparse_output is ignored")
        close = shares_close(T.toarray() if sparse.issparse(T) else T, P)
        require(close, "transform is not predict_proba")
        if sparse.issparse(T):
            require((T.data > 0.0).all(), "an explicit zero in sparse output")
        return
    require(np.isfinite(T).all() and (T >= 0.0).all(), "transform is not finite")
    if T.size * data.dense.shape[1] > WORK:
        return
    _, _, d2, exponent = distances_in_units(data, model.cluster_centers_)
    rounding = rounding_of_distance(data, data.dense.shape[1])
    eps = float(np.finfo(T.dtype).eps)
    if model.features == "distance":
        distance = np.sqrt(d2)
        ours = np.ldexp(T.astype(WIDE), -exponent)
        tiny = WIDE(2.0) ** -exponent * np.finfo(T.dtype).tiny
        off = np.abs(ours - distance) > (rounding + eps) * distance + tiny + LOST
        require(not off.any(), "a distance is not that of the naive twin")
    else:
        require((T <= 1.0).all(), "a radial basis function exceeds 1")
        with np.errstate(over="ignore"):
            sigma = float(np.ldexp(sigma, -exponent))
        if 1e-50 < sigma < 1e50:
            exponents = (d2 / (2.0 * sigma**2)).astype(np.float64)
            expected = np.exp(-exponents)
            tolerance = (rounding * exponents + 8.0 * eps) * expected + 1e-37
            off = np.abs(T - expected) > tolerance
            require(not off.any(), "a radial basis function is not the naive one")


def check_labels_only(model, data, labels):
    _, _, d2, _ = distances_in_units(data, model.cluster_centers_)
    rounding = rounding_of_distance(data, data.dense.shape[1])
    chosen = d2[np.arange(len(d2)), labels]
    wrong = chosen > d2.min(axis=1) * (1.0 + rounding) + WIDE(LOST) ** 2
    require(not wrong.any(), "a new label is not the nearest centre")


# --- the same answer by another way ------------------------------------------


def fitted_bits(model):
    names = "cluster_centers_ labels_ inertia_ sigma_ n_iter_ hardened_ history_"
    return {name: getattr(model, name) for name in names.split()}


def refit_again(rng, model, data):
    other = call(clone(model).fit, data.X, sample_weight=data.weights)
    require(same(fitted_bits(model), fitted_bits(other)), "another fit, other bits")


def refit_with_threads(rng, model, data):
    for n_threads in (1, 2):
        with threadpool_limits(n_threads, user_api="openmp"):
            other = call(clone(model).fit, data.X, sample_weight=data.weights)
        require(
            same(fitted_bits(model), fitted_bits(other)), "other threads, other bits"
        )


def refit_contiguous(rng, model, data):
    """Plain C order gives the same bits as any other dense layout."""
    if data.is_sparse:
        return
    X = data.dense.astype(model.cluster_centers_.dtype)
    other = call(clone(model).fit, X, sample_weight=data.weights)
    require(same(fitted_bits(model), fitted_bits(other)), "other layout, other bits")


def same_clusters(other, model, expected):
    """Same labels and centres, to the last bit unless shares are subnormal."""
    if model.alpha > 1.0:
        return same(other.labels_, model.labels_) and same(
            other.cluster_centers_, expected
        )
    off = np.abs(other.cluster_centers_ - expected).max()
    return (
        np.mean(other.labels_ != model.labels_) < 0.01
        and off <= 1e-5 * np.abs(expected).max()
    )


def refit_in_other_units(rng, model, data):
    """Rows times a power of two: the same fit, times that power."""
    single = model.cluster_centers_.dtype == np.float32
    low, high = (-20, 20) if single else (-200, 200)
    exponent = int(rng.integers(low, high))
    ends = np.log2(np.abs(data.dense[data.dense != 0.0]))
    room = 24 if single else 450  # within which float32 is not worked as float64
    if ends.size and not -room < ends.min() + min(exponent, 0) * 1.0:
        return
    if ends.size and not ends.max() + max(exponent, 0) < room:
        return
    schedule = model.schedule
    parameters = {}
    if not isinstance(model.init, str) and not callable(model.init):
        parameters["init"] = np.ldexp(model.init, exponent)
    if getattr(schedule, "unit", "") == "absolute":
        for name in "start", "stop":
            if hasattr(schedule, name):
                value = float(np.ldexp(getattr(schedule, name), exponent))
                parameters[f"schedule__{name}"] = value
                if not 1e-300 < value < 1e150:
                    return
    elif not isinstance(schedule, str) and not hasattr(schedule, "unit"):
        scaled = np.ldexp(schedule, exponent)
        parameters["schedule"] = scaled
        both = np.append(np.asarray(schedule), scaled)
        if np.any((both != 0.0) & ((both < 1e-150) | (both > 1e150))):
            return
    X = np.ldexp(data.dense, exponent).astype(model.cluster_centers_.dtype)
    if data.is_sparse:
        X = data.X.copy()
        X.data = np.ldexp(X.data, exponent)
    other = clone(model).set_params(**parameters)
    try:
        call(other.fit, X, sample_weight=data.weights)
    except ValueError as error:
        require("too large" in str(error), f"other units: {error}")
        return
    expected = np.ldexp(model.cluster_centers_, exponent)
    equal = same_clusters(other, model, expected)
    require(equal, "other units, other clusters", f"2**{exponent}")


def refit_with_heavier_rows(rng, model, data):
    """All weights times a power of two: the same centres."""
    weights = model_weights(data)
    exponent = int(rng.integers(-100, 100))
    if weights[weights > 0].min() < 1e-260 or weights.max() > 1e260:
        return
    if data.dense.any() and not -300 < unit(data.dense) < 200:
        return
    heavier = np.ldexp(weights, exponent)
    other = call(clone(model).fit, data.X, sample_weight=heavier)
    equal = same_clusters(other, model, model.cluster_centers_)
    require(equal, "all weights multiplied, other clusters", f"2**{exponent}")


def refit_without_weightless_rows(rng, model, data):
    """Rows of zero weight are as if absent."""
    n = len(data.dense)
    weights = model_weights(data).copy()
    weights[rng.random(n) < 0.3] = 0.0
    kept = weights > 0.0
    if kept.sum() < model.n_clusters or data.kind not in ("normal", "blobs"):
        return
    if model.alpha == 1.0 or n * model.n_clusters * data.dense.shape[1] > 3e5:
        return
    if callable(model.init) or str(model.init) == "random":
        return
    X = data.X if data.is_sparse else data.dense.astype(model.cluster_centers_.dtype)
    X = X.tocsr() if data.is_sparse else X
    full = call(clone(model).fit, X, sample_weight=weights)
    part = call(clone(model).fit, X[np.flatnonzero(kept)], sample_weight=weights[kept])
    size = 1e-3 if X.dtype == np.float32 else 1e-6
    size = size * np.abs(full.cluster_centers_).max()
    require(
        np.allclose(full.cluster_centers_, part.cluster_centers_, rtol=0, atol=size)
        and np.mean(full.labels_[kept] != part.labels_) < 0.01,
        "rows of zero weight are not as if absent",
    )


def one_naive_step(rng, model, data):
    """The first EM step from given centres is that of the naive twin."""
    init, sigma = model.init, model.schedule
    if isinstance(init, str) or callable(init) or not isinstance(sigma, float):
        return
    dtype = model.cluster_centers_.dtype
    n, d, k = *data.dense.shape, model.n_clusters
    if sigma == 0.0 or dtype != np.float64 or n * d * k > 1e6:
        return
    other = call(
        clone(model).set_params(max_iter=1).fit, data.X, sample_weight=data.weights
    )
    X, C, d2, exponent = distances_in_units(data, init)
    sigma = float(np.ldexp(sigma, -exponent))
    if not 1e-50 < sigma < 1e50:
        return
    w = data.w
    step = naive.em_step(X, C, sigma, model.alpha, w)
    expected = naive.m_step(C, step, model.learning_rate)
    ours = np.ldexp(other.cluster_centers_, -exponent)
    rounding = rounding_of_distance(data, d)
    power = 1.0 / max(model.alpha - 1.0, 1e-300) if model.alpha > 1.0 else 1.0
    off = 4e-13 + 2.0 * rounding * d2.min(axis=1) / (2.0 * sigma**2)
    off = off + 32.0 * EPS * power * (1.0 + power)
    if model.alpha > 2.0:
        off = np.maximum(off, 2.0 * off**power)
    with np.errstate(all="ignore"):
        blur = 4.0 * (w @ np.minimum(off, 1.0)) / step.masses
    sure = (blur < 0.1) & (step.masses > 1e-11 * w.sum())
    tolerance = blur[:, None] * np.abs(X).max() + 64 * EPS * np.sqrt(n)
    wrong = (np.abs(ours - expected) > tolerance)[sure]
    require(not wrong.any(), "the first EM step is not that of the naive twin")


def functions_agree(rng, model, data):
    """The functions of the method on the fitted centres."""
    centers, alpha = model.cluster_centers_, model.alpha
    sigma = effective_sigma(model)
    R = call(responsibilities, data.X, centers, sigma, alpha=alpha)
    labels = call(model.predict, data.X)
    check_shares(R, data, labels, centers, sigma, alpha)
    S = call(responsibilities, data.X, centers, sigma, alpha=alpha, sparse_output=True)
    close = shares_close(S.toarray(), R)
    require(close, "sparse_output changes the responsibilities")
    value = call(hardening_sigma, data.X, centers, alpha=alpha)
    require(value >= 0.0 and not np.isnan(value), "hardening_sigma", value)
    exponent = unit(data.dense, centers)
    reduced = float(np.ldexp(sigma, -exponent))
    if not -300 < exponent < 300 or not 1e-50 < reduced < 1e50 or R.size > 3e4:
        return
    value, gradient = call(
        free_energy, data.X, centers, sigma, alpha=alpha, return_gradient=True
    )
    X, C, d2, _ = distances_in_units(data, centers)
    expected, slope = naive.free_energy(X, C, reduced, alpha, np.ones(len(X)))
    entropy = len(X) * 2 * reduced**2 * naive.largest_entropy(len(C), alpha)
    eps = 1e-3 if R.dtype == np.float32 else 1e-9
    tolerance = eps * (d2.min(axis=1).sum() + entropy) + 1e-100
    value = np.ldexp(value, -2 * exponent)
    require(abs(value - expected) <= tolerance, "free energy", value, expected)
    require(np.isfinite(gradient).all(), "gradient is not finite")
    if R.dtype == np.float64 and alpha <= 2.0 and reduced > 1e-3:
        off = np.abs(np.ldexp(gradient, -exponent) - slope)
        require(off.max() <= 1e-7 * len(X), "gradient", off.max())


OTHER_WAYS = [
    refit_again,
    refit_with_threads,
    refit_contiguous,
    refit_in_other_units,
    refit_with_heavier_rows,
    refit_without_weightless_rows,
    one_naive_step,
    functions_agree,
]


# --- sequences of calls ------------------------------------------------------


def new_rows(rng, model, data):
    """Outputs for other rows, alone and in other company."""
    n = int(rng.integers(1, 40))
    other = draw_data(rng, n, data.dense.shape[1])
    if rng.random() < 0.7:  # rows like those fitted, in another width or layout
        X = data.dense[rng.integers(len(data.dense), size=n)]
        if rng.random() < 0.2:  # one of them far from all
            X[rng.integers(n)] = 10 ** rng.uniform(0, rng.choice([36, 250]))
        if np.abs(X).max() < 3e38:
            X = X.astype(rng.choice([np.float32, np.float64]))
        given = sparse.csr_matrix(X) if rng.random() < 0.3 else draw_layout(rng, X)
        other = Data(given, X.astype(np.float64), None, "")
    if not fits_in_range(other, model.cluster_centers_):
        return
    check_outputs(model, other)
    if isinstance(other.X, list) or other.is_sparse:
        return
    order, one = rng.permutation(n), int(rng.integers(n))
    labels, P = call(model.predict, other.X), call(model.predict_proba, other.X)
    require(
        same(call(model.predict, other.X[order]), labels[order]),
        "labels depend on the order of rows",
    )
    alone = call(model.predict_proba, other.X[one : one + 1])
    if unit(other.dense, model.cluster_centers_) < unit(data.dense) + 3:
        require(shares_close(alone[0], P[one]), "shares depend on the other rows")
    if unit(other.dense) < unit(data.dense) + 400:  # else their squares do not meet
        require(call(model.predict, other.X[one : one + 1])[0] == labels[one], "alone")


def fits_in_range(data, centers):
    """Whether distances can be written in the dtype of the rows."""
    high = 120 if getattr(data.X, "dtype", None) == np.float32 else 1020
    return unit(data.dense, centers) < high


def set_soft_parameters(rng, model, data):
    """Parameters that are read at the time of the call."""
    model.set_params(
        proba_sigma=draw_proba_sigma(rng, data),
        features=str(rng.choice(["distance", "rbf", "responsibility"])),
        sparse_output=bool(rng.random() < 0.5),
    )
    check_outputs(model, data)


def round_trip(rng, model, data):
    """A pickle is the same model, and works on as it is."""
    other = pickle.loads(pickle.dumps(model))
    require(same(vars(other), vars(model)), "pickling changes the model")
    require(
        same(call(other.predict_proba, data.X), call(model.predict_proba, data.X)),
        "a pickled model predicts other shares",
    )


def cloned(rng, model, data):
    """A clone has the parameters and nothing else."""
    other = clone(model)
    require(same(other.get_params(), model.get_params()), "clone changes parameters")
    repr(other)
    for method in (other.predict, other.predict_proba, other.transform, other.score):
        refused(method, data.X, errors=NotFittedError)


def refit(rng, model, data):
    """The same object fitted to other data."""
    n, d, k = draw_shape(rng)
    n, k = min(n, 300), min(k, n, 20)
    other = draw_data(rng, n, d)
    model.set_params(
        n_clusters=k,
        init=draw_init(rng, other, k),
        schedule=draw_schedule(rng, other.scale),
    )
    if fit(model, other):
        check_fit(model, other)
        check_outputs(model, other)


def all_in_one(rng, model, data):
    """`fit_predict` and `fit_transform` are what their names say."""
    labels = call(clone(model).fit_predict, data.X, sample_weight=data.weights)
    require(same(labels, model.labels_), "fit_predict is not fit and labels_")
    single = model.cluster_centers_.dtype == np.float32
    if single and not fits_in_range(data, model.cluster_centers_):
        return
    T = call(clone(model).fit_transform, data.X, sample_weight=data.weights)
    again = call(model.transform, data.X)
    require(same(T, again), "fit_transform is not fit and transform")


def refused(function, *args, errors=(ValueError, TypeError), **kwargs):
    """The call must fail with a message, and with one of the errors."""
    CALLS["bad input"] += 1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", "init is an array, so n_init")
            function(*args, **kwargs)
    except errors as error:
        require(str(error), "an error without a message", type(error).__name__)
        return
    except Exception as error:
        raise FailedError(f"bad input: {type(error).__name__} {error}") from error
    raise FailedError(
        f"bad input accepted by {getattr(function, '__name__', function)}"
    )


def spoiled(rng, data):
    """Rows that no method may accept."""
    n, d = data.dense.shape
    X = data.dense.copy()
    X[rng.integers(n), rng.integers(d)] = rng.choice([np.nan, np.inf, -np.inf])
    return [
        X,
        sparse.csr_matrix(X),
        X[0],
        X[np.newaxis],
        data.dense[:0],
        np.full((n, d), "a"),
        np.full((n, d), None),
        data.dense + 1j,
        "rows",
        None,
        [[1.0, 2.0], [3.0]],
    ]


BAD_PARAMETERS = [
    dict(n_clusters=bad) for bad in (0, -1, 2.5, "3", True, None, np.nan, 10**9)
]
BAD_PARAMETERS += [
    dict(schedule=bad)
    for bad in (-1.0, np.nan, np.inf, "cold", [], [1.0, 2.0], [np.nan], [-1.0], [[1.0]],
                len, None, True, Geometric(-1.0), Geometric(1.0, 2.0),
                Linear(n_steps=0), Cyclic(decay=2.0), Constant(unit="mile"))
]  # fmt: skip
BAD_PARAMETERS += [dict(alpha=bad) for bad in (0.99, -1, np.nan, np.inf, "1.5", None)]
BAD_PARAMETERS += [dict(learning_rate=bad) for bad in (0, 2, -1.0, np.nan, "1", None)]
BAD_PARAMETERS += [
    dict(init=bad)
    for bad in ("k++", None, 3, [], [["a"]], [[np.nan]], np.zeros((2, 77)), np.zeros(3))
]
BAD_PARAMETERS += [dict(n_init=bad) for bad in (0, -1, "many", 1.5, None)]
BAD_PARAMETERS += [dict(max_iter=bad) for bad in (0, -1, 2.5, "9", None, True)]
BAD_PARAMETERS += [dict(tol=bad) for bad in (-1e-9, np.nan, "0", None)]
BAD_PARAMETERS += [dict(features=bad) for bad in ("all", 1, None)]
BAD_PARAMETERS += [dict(proba_sigma=bad) for bad in (-1.0, np.nan, "hot", None, np.inf)]
BAD_PARAMETERS += [dict(random_state="seed"), dict(random_state=-1)]


def in_batches(rng, model, data):
    """Batches of all sizes: what `partial_fit` says of the last one holds."""
    k, n = model.n_clusters, data.dense.shape[0]
    weights = model_weights(data)
    stream, start = clone(model), 0
    if rng.random() < 0.3:
        stream = copy.deepcopy(model)  # goes on after fit
    while start < n:
        least = k if not hasattr(stream, "cluster_centers_") else 1
        stop = min(n, start + int(rng.integers(least, max(least, n // 2) + 1)))
        some, start = slice(start, stop), stop
        if stop - some.start < least:
            return
        batch = np.asarray(data.X) if not data.is_sparse else data.X.tocsr()
        batch, w = batch[some], None if data.weights is None else weights[some]
        before = {name: copy.deepcopy(value) for name, value in vars(stream).items()}
        try:
            call(stream.partial_fit, batch, sample_weight=w)
        except ValueError as error:
            require("too large" in str(error), f"partial_fit raises {error}")
            require(before.keys() == vars(stream).keys(), "a refusal changes the model")
            return
        if w is not None and not w.any():
            require(before.keys() == vars(stream).keys(), "no weight, but a change")
            continue
        require(np.isfinite(stream.cluster_centers_).all(), "a centre is not finite")
        require(0.0 <= stream.sigma_ < np.inf, "sigma_", stream.sigma_)
        require(same(stream.labels_, call(stream.predict, batch)), "labels of a batch")
        score = call(stream.score, batch, sample_weight=w)
        require(stream.inertia_ == -score, "inertia of a batch", stream.inertia_, score)


def bad_input(rng, model, data):
    """Bad rows, weights and parameters raise, and change nothing."""
    n, d = data.dense.shape
    before = frozen(vars(model))
    rows = spoiled(rng, data)
    names = "fit", "predict", "predict_proba", "transform", "score"
    methods = [getattr(model, name) for name in names]
    for _ in range(4):
        refused(methods[rng.integers(5)], rows[rng.integers(len(rows))])
    wider = np.zeros((n, d + 1))
    refused(methods[rng.integers(1, 5)], wider, errors=ValueError)
    w = np.ones(n)
    negative, missing = w.copy(), w.copy()
    negative[rng.integers(n)] = -1.0
    missing[rng.integers(n)] = rng.choice([np.nan, np.inf])
    bad_weights = [negative, missing, 0 * w, w[:-1], np.ones(n + 1), w[:, None], "w"]
    bad = bad_weights[rng.integers(len(bad_weights))]
    refused(rng.choice([model.fit, model.score]), data.X, sample_weight=bad)
    require(same(before[0], vars(model)), "a refused input changes the model")
    for _ in range(3):
        bad = BAD_PARAMETERS[rng.integers(len(BAD_PARAMETERS))]
        broken = copy.deepcopy(model).set_params(**bad)
        before = frozen(vars(broken))
        refused(broken.fit, data.X)
        require(same(before[0], vars(broken)), "a refused parameter changes the model")


SEQUENCE = [
    new_rows,
    set_soft_parameters,
    round_trip,
    cloned,
    refit,
    all_in_one,
    in_batches,
    bad_input,
]


# --- one case ----------------------------------------------------------------


def fit(model, data):
    """Fit; False if the data are too large, and that is true."""
    parameters = {name: id(value) for name, value in vars(model).items()}
    before = frozen(model.get_params(), data.X, data.weights)
    old = {name: value for name, value in vars(model).items() if name.endswith("_")}
    try:
        call(model.fit, data.X, sample_weight=data.weights)
    except ValueError as error:
        init = model.init if isinstance(model.init, (np.ndarray, list)) else 0.0
        with np.errstate(all="ignore"):
            size = 2.0 * max(np.abs(data.dense).max(), np.abs(init).max())
            bound = model_weights(data).sum() * size * size * data.dense.shape[1]
        require("too large" in str(error), f"fit raises ValueError {error}")
        require(not bound < 1e305, "wrongly refused as too large", bound)
        now = {name: value for name, value in vars(model).items() if name.endswith("_")}
        require(same(old, now), "a refused fit changes the model")
        return False
    finally:
        require(
            same(before[0], model.get_params())
            and all(
                id(getattr(model, name)) == parameters[name]
                for name in model.get_params(deep=False)
            ),
            "fit changes a parameter",
        )
        require(same(before[1], data.X), "fit changes X")
        require(same(before[2], data.weights), "fit changes sample_weight")
    return True


def draw_case(seed):
    rng = np.random.default_rng(seed)
    n, d, k = draw_shape(rng)
    data = draw_data(rng, n, d)
    return rng, data, draw_model(rng, data, k)


def run_case(seed):
    """One estimator, one input and one sequence of calls."""
    rng, data, model = draw_case(seed)
    if not fit(model, data):
        return
    check_fit(model, data)
    check_outputs(model, data)
    state = frozen(vars(model), data.X, data.weights)
    for i in rng.choice(len(OTHER_WAYS), 2, replace=False):
        OTHER_WAYS[i](rng, model, data)
    require(same(state[0], vars(model)), "a method changes the model")
    for i in rng.integers(len(SEQUENCE), size=rng.integers(1, 4)):
        SEQUENCE[i](rng, model, data)
        if SEQUENCE[i] is refit:
            break
    require(same(state[1:], (data.X, data.weights)), "a method changes its input")


def hang(*_):
    raise FailedError(f"takes more than {SECONDS} seconds")


def described(seed):
    """What a case is, for those who want to see it again."""
    _, data, model = draw_case(seed)
    X = data.X
    return (
        f"{model}\nX: {type(X).__name__} {getattr(X, 'dtype', '')} {data.dense.shape}, "
        f"{data.kind}, largest {np.abs(data.dense).max():.3g}\n"
        f"weights: {type(data.weights).__name__}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--one", type=int, metavar="CASE_SEED")
    options = parser.parse_args()
    if options.one is not None:
        print(described(options.one))
        run_case(options.one)
        print("passed")
        return
    rng = np.random.default_rng(options.seed)
    end = time.monotonic() + 60.0 * options.minutes
    n_cases, reasons = 0, collections.Counter()
    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, hang)
    while time.monotonic() < end:
        seed = int(rng.integers(2**32))
        n_cases += 1
        if hasattr(signal, "SIGALRM"):
            signal.alarm(SECONDS)
        try:
            run_case(seed)
        except Exception as error:
            reason = " ".join(str(error).split())[:160]
            if not isinstance(error, FailedError):
                place = traceback.extract_tb(error.__traceback__)[-1]
                place = f"{Path(place.filename).name}:{place.lineno}"
                reason = f"{type(error).__name__} {reason} [{place}]"
            reasons[reason.split(":")[0][:80]] += 1
            print(f"seed {seed}: {reason}", flush=True)
        finally:
            if hasattr(signal, "SIGALRM"):
                signal.alarm(0)
    for reason, count in reasons.most_common():
        print(f"{count:6d} failed: {reason}")
    print(
        f"{n_cases:,} inputs tried in {sum(CALLS.values()):,} calls, "
        f"{CALLS['bad input']:,} of them with bad input; "
        f"{sum(reasons.values()):,} failed"
    )
    sys.exit(1 if reasons else 0)


if __name__ == "__main__":
    main()
