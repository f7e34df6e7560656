"""What the fuzzer draws: rows in any layout, weights, starts, schedules, models."""

# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from skrbfkmeans import RBFKMeans
from skrbfkmeans.schedules import Constant, Cosine, Cyclic, Geometric, Linear

WORK = 3e6  # rows times centres times features of most cases


def unit(*arrays):
    """Exponent of a power of two near the largest magnitude of all arrays."""
    largest = max(float(np.max(np.abs(array), initial=0.0)) for array in arrays)
    return int(np.frexp(largest)[1]) if largest > 0.0 else 0


def model_weights(data):
    """The weights in the units of the user."""
    if data.weights is None:
        return np.ones(len(data.dense))
    return np.array(data.weights, dtype=np.float64)


@dataclass
class Data:
    """Rows and weights as a user hands them over, and what they mean.

    `dense` are the same rows as float64 in C order, `kind` is how they were drawn.
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
