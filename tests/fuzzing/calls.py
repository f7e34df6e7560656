"""Calls in any order, bad input among them, and what must hold after each."""

# SPDX-License-Identifier: BSD-3-Clause

import copy
import pickle
import warnings

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from fuzzing.checks import (
    CALLS,
    FailedError,
    call,
    check_fit,
    check_outputs,
    fits_in_range,
    frozen,
    require,
    same,
    shares_close,
)
from fuzzing.draws import (
    Data,
    draw_data,
    draw_init,
    draw_layout,
    draw_proba_sigma,
    draw_schedule,
    draw_shape,
    model_weights,
    unit,
)
from skrbfkmeans.schedules import Constant, Cyclic, Geometric, Linear


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
