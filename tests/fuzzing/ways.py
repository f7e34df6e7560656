"""Other ways to the same answer: again, in threads, in other units, by hand."""

# SPDX-License-Identifier: BSD-3-Clause

import naive
import numpy as np
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from fuzzing.checks import (
    EPS,
    call,
    check_shares,
    distances_in_units,
    effective_sigma,
    require,
    rounding_of_distance,
    same,
    shares_close,
)
from fuzzing.draws import model_weights, unit
from skrbfkmeans.energy import free_energy, hardening_sigma, responsibilities


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
