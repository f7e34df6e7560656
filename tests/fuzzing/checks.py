"""What must hold of any fitted model and its answers."""

# SPDX-License-Identifier: BSD-3-Clause

import collections
import copy
import warnings

import naive
import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from fuzzing.draws import WORK, Data, model_weights, unit

EPS = np.finfo(np.float64).eps
WIDE = np.longdouble  # on most machines its squares do not underflow
LOST = 1e-220 if np.finfo(WIDE).max > 1e4000 else 1e-50  # distance to the largest
CALLS = collections.Counter()


class FailedError(AssertionError):
    """Something that must hold does not."""


def require(condition, reason, *numbers):
    """Fail with a reason, the numbers after a colon, unless the condition holds."""
    if not condition:
        raise FailedError(
            reason + (f": {', '.join(map(str, numbers))}" if numbers else "")
        )


# --- helpers ------------------------------------------------------------------


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


# --- checks -------------------------------------------------------------------


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


def fits_in_range(data, centers):
    """Whether distances can be written in the dtype of the rows."""
    high = 120 if getattr(data.X, "dtype", None) == np.float32 else 1020
    return unit(data.dense, centers) < high


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
