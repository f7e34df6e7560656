"""Promises that hold for any rows, weights and temperatures, tried on random ones."""

# SPDX-License-Identifier: BSD-3-Clause

import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from skrbfkmeans import RBFKMeans
from skrbfkmeans.energy import responsibilities
from skrbfkmeans.schedules import Constant, Cosine, Cyclic, Geometric, Linear

pytestmark = pytest.mark.compiled

property_test = settings(
    derandomize=True,
    deadline=None,
    max_examples=40,
    database=None,
    suppress_health_check=list(HealthCheck),
)

seeds = st.integers(0, 2**32 - 1)
alphas = st.sampled_from([1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 3.0, 10.0])
features = st.sampled_from([1, 2, 3, 12, 13, 20])
exponents = st.sampled_from([-498, -340, -40, 0, 9, 340, 498])  # 1e-150 to 1e150


def spread_out(array):
    """A view of every second row and column of a larger array."""
    large = np.zeros((2 * array.shape[0], 2 * array.shape[1]), dtype=array.dtype)
    large[::2, 1::2] = array
    return large[::2, 1::2]


def read_only(array):
    array = array.copy()
    array.setflags(write=False)
    return array


LAYOUTS = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "strided": spread_out,
    "reversed": lambda a: a[::-1, ::-1].copy()[::-1, ::-1],
    "read-only": read_only,
    "other byte order": lambda a: a.astype(a.dtype.newbyteorder()),
    "csr": sparse.csr_array,
    "csr_matrix": sparse.csr_matrix,
    "csc": sparse.csc_array,
}
layouts = st.sampled_from(sorted(LAYOUTS))
dense_layouts = st.sampled_from(sorted(set(LAYOUTS) - {"csr", "csr_matrix", "csc"}))


@st.composite
def rows_of_any_kind(draw):
    """Numbers of common size, some of them degenerate, and a k to go with them."""
    n, d = draw(st.integers(1, 30)), draw(features)
    rng = np.random.default_rng(draw(seeds))
    X = rng.normal(scale=3.0, size=(n, d))
    kind = draw(
        st.sampled_from(
            ["normal", "whole", "duplicates", "constant columns", "zeros", "line",
             "outlier", "mostly zeros", "uneven columns"]
        )
    )  # fmt: skip
    if kind == "whole":
        X = X.round()
    elif kind == "duplicates":
        X = X[rng.integers(0, max(n // 4, 1), n)]
    elif kind == "constant columns":
        X[:, : max(d // 2, 1)] = 7.25
    elif kind == "zeros":
        X[:] = 0.0
    elif kind == "line":
        X[:] = np.arange(n)[:, np.newaxis]
    elif kind == "outlier":
        X[n // 2] *= 1e6
    elif kind == "mostly zeros":
        X *= rng.random((n, d)) < 0.15
    elif kind == "uneven columns":
        X *= 10.0 ** rng.integers(-6, 3, d)
    X += draw(st.sampled_from([0.0, 0.0, 1e3, -1e6]))
    k = draw(st.sampled_from([1, 2, 3, 5, n]))
    return X, min(k, n)


@st.composite
def weights_for(draw, n):
    """None, or weights over ten orders of magnitude, some of which may be zero."""
    kind = draw(st.sampled_from(["none", "even", "wide", "zeros"]))
    rng = np.random.default_rng(draw(seeds))
    if kind == "none":
        return None
    if kind == "even":
        return rng.uniform(0.5, 2.0, n)
    weights = 10.0 ** rng.uniform(-5.0, 5.0, n)
    if kind == "zeros":
        weights[rng.random(n) < 0.4] = 0.0
        weights[rng.integers(n)] = 1.0
    return weights


@st.composite
def schedules_in(draw, unit):
    """A schedule for data of this size."""
    return draw(
        st.sampled_from(
            [
                "auto",
                0.0,
                unit,
                1e-3 * unit,
                1e4 * unit,
                [3.0 * unit, unit, 0.5 * unit],
                [2.0 * unit, 0.0],
                Constant(0.7, harden=False),
                Geometric(unit="critical"),
                Geometric(start=30.0, n_steps=6, harden=False),
                Linear(),
                Cosine(harden=False),
                Cyclic(),
            ]
        )
    )


def fitted(model, X, sample_weight=None):
    """Fit; too few clusters, of which many of these data have few, are no failure."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, sample_weight=sample_weight)


def stored_bytes(X):
    if sparse.issparse(X):
        return [part.tobytes() for part in (X.data, X.indices, X.indptr)]
    return [np.asarray(X).tobytes()]


def unit_within_range(exponent, X, weights):
    """A power of two in which no free energy of these rows is beyond float64."""
    total = float(len(X) if weights is None else weights.sum())
    most = total * (1e9 + X.shape[1] * np.ptp(X) ** 2)
    return 2.0 ** min(exponent, int((1020.0 - np.log2(most)) / 2.0))


def part(centres):
    """Whether no two centres have met, as they do at a high temperature.

    Rounding alone then decides between their labels.
    """
    gaps = np.linalg.norm(centres[:, np.newaxis] - centres, axis=2)
    return (gaps + np.diag([np.inf] * len(gaps))).min() > 1e-3


def general_rows(seed, n, d):
    """Rows on a fine grid around three centres, where nothing ties."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(scale=4.0, size=(3, d))
    X = centres[np.arange(n) % 3] + rng.normal(size=(n, d))
    return np.round(X * 1024) / 1024


# --- any data, any parameters -------------------------------------------------


@property_test
@given(data=st.data(), layout=layouts, alpha=alphas)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_fit_is_finite_and_its_methods_agree(data, layout, alpha, dtype):
    X, k = data.draw(rows_of_any_kind())
    weights = data.draw(weights_for(X.shape[0]))
    exponent = data.draw(exponents)
    if dtype == np.float32:
        exponent = max(min(exponent, 60), -60)
    # However hot, no free energy is beyond float64: that is another test's.
    unit = unit_within_range(exponent, X, weights)
    X = LAYOUTS[layout]((X * unit).astype(dtype))
    model = RBFKMeans(
        k,
        schedule=data.draw(schedules_in(unit)),
        alpha=alpha,
        learning_rate=data.draw(st.sampled_from([1.0, 0.5, 1.9])),
        init=data.draw(st.sampled_from(["k-means++", "random"])),
        max_iter=data.draw(st.sampled_from([1, 2, 50])),
        n_init=data.draw(st.sampled_from([1, 2])),
        tol=data.draw(st.sampled_from([0.0, 1e-4, 0.1])),
        random_state=0,
    )
    before = stored_bytes(X)
    weights_before = None if weights is None else weights.copy()
    fitted(model, X, weights)

    assert np.isfinite(model.cluster_centers_).all()
    if layout != "other byte order":  # scikit-learn makes float64 of that
        assert model.cluster_centers_.dtype == dtype
    assert np.isfinite(model.inertia_)
    assert np.isfinite(model.sigma_)
    for values in model.history_.values():
        assert np.isfinite(values).all()
    labels = model.predict(X)
    assert_array_equal(model.labels_, labels)
    assert model.inertia_ == -model.score(X, sample_weight=weights)
    for sigma in "auto", 0.0, unit, 1e-3 * unit, 1e5 * unit:
        model.set_params(proba_sigma=sigma)
        P = model.predict_proba(X)
        assert (P >= 0.0).all()
        tolerance = 1e-6 if dtype == np.float32 else 1e-12
        assert_allclose(P.sum(axis=1, dtype=float), 1.0, rtol=0.0, atol=tolerance)
        assert_array_equal(P.argmax(axis=1), labels)
        rbf = model.set_params(features="rbf").transform(X)
        assert ((rbf >= 0.0) & (rbf <= 1.0)).all()
        model.set_params(features="responsibility", sparse_output=True)
        assert_array_equal(model.transform(X).toarray(), P)
        model.set_params(sparse_output=False)
    distances = model.set_params(features="distance").transform(X)
    assert np.isfinite(distances).all()
    assert_array_equal(distances[range(len(labels)), labels], distances.min(axis=1))
    assert stored_bytes(X) == before
    if weights is not None:
        assert_array_equal(weights, weights_before)


@property_test
@given(data=st.data(), alpha=alphas, sigma=st.sampled_from([0.0, 1e-3, 0.3, 1.0, 1e6]))
def test_responsibilities_share_out_every_row_dense_or_sparse(data, alpha, sigma):
    X, k = data.draw(rows_of_any_kind())
    rng = np.random.default_rng(data.draw(seeds))
    centres = X[rng.integers(0, len(X), k)] + rng.choice([0.0, 0.5], size=(k, 1))
    unit = 2.0 ** data.draw(exponents)
    R = responsibilities(X * unit, centres * unit, sigma * unit, alpha=alpha)
    assert (R >= 0.0).all()
    assert_allclose(R.sum(axis=1), 1.0, rtol=0.0, atol=1e-12)
    d2 = ((X[:, np.newaxis] - centres) ** 2).sum(axis=2)
    chosen = d2[range(len(X)), R.argmax(axis=1)]
    assert_allclose(chosen, d2.min(axis=1), rtol=1e-12)
    S = responsibilities(
        sparse.csr_array(X) * unit,
        centres * unit,
        sigma * unit,
        alpha=alpha,
        sparse_output=True,
    )
    assert (S.data > 0.0).all()
    if sigma >= 0.3:  # below, the rounding of a distance may tell
        assert_allclose(S.toarray(), R, atol=1e-3 if abs(X).max() > 1e5 else 1e-8)


# --- weights ------------------------------------------------------------------


@property_test
@given(
    seed=seeds,
    n=st.integers(12, 40),
    d=features,
    alpha=alphas,
    schedule=schedules_in(1.0),
    layout=layouts,
)
def test_a_weight_of_two_is_the_row_twice(seed, n, d, alpha, schedule, layout):
    X = general_rows(seed, n, d)
    counts = np.random.default_rng(seed).integers(1, 3, n)
    model = RBFKMeans(3, init=X[:3], schedule=schedule, alpha=alpha, tol=1e-3)
    once = fitted(model, LAYOUTS[layout](X), counts)
    centres, labels, inertia = once.cluster_centers_, once.labels_, once.inertia_
    twice = fitted(model, LAYOUTS[layout](np.repeat(X, counts, axis=0)))
    assert_allclose(twice.cluster_centers_, centres, rtol=1e-7, atol=1e-7)
    if part(centres):
        assert_array_equal(twice.labels_, np.repeat(labels, counts))
    assert_allclose(twice.inertia_, inertia, rtol=1e-7)


@property_test
@given(
    seed=seeds,
    n=st.integers(12, 40),
    d=features,
    alpha=alphas,
    schedule=schedules_in(1.0),
    layout=layouts,
    init=st.sampled_from(["array", "k-means++"]),
)
def test_a_row_of_zero_weight_is_as_if_absent(
    seed, n, d, alpha, schedule, layout, init
):
    X = general_rows(seed, n, d)
    rng = np.random.default_rng(seed)
    weights = 10.0 ** rng.uniform(-1.0, 1.0, n)
    weights[rng.random(n) < 0.3] = 0.0
    weights[:3] = 1.0
    X[weights == 0.0] += rng.choice([0.0, 1e4])
    start = X[:3] if init == "array" else init
    model = RBFKMeans(
        3, init=start, schedule=schedule, alpha=alpha, tol=1e-3, random_state=0
    )
    present = weights > 0.0
    whole = fitted(model, LAYOUTS[layout](X), weights)
    centres, labels, inertia = whole.cluster_centers_, whole.labels_, whole.inertia_
    rest = fitted(model, LAYOUTS[layout](X[present]), weights[present])
    assert_allclose(rest.cluster_centers_, centres, rtol=1e-7, atol=1e-7)
    if part(centres):
        assert_array_equal(rest.labels_, labels[present])
    assert_allclose(rest.inertia_, inertia, rtol=1e-7)


# --- symmetries ---------------------------------------------------------------


@property_test
@given(
    seed=seeds,
    d=features,
    alpha=alphas,
    schedule=schedules_in(1.0),
    layout=layouts,
    offset=st.sampled_from([1.0, -1e3, 1e6]),
)
def test_a_common_shift_of_rows_shifts_the_centres(
    seed, d, alpha, schedule, layout, offset
):
    X = general_rows(seed, 30, d)
    options = {"schedule": schedule, "alpha": alpha, "tol": 1e-3}
    here = fitted(RBFKMeans(3, init=X[:3], **options), LAYOUTS[layout](X))
    there = fitted(
        RBFKMeans(3, init=X[:3] + offset, **options), LAYOUTS[layout](X + offset)
    )
    if part(here.cluster_centers_):
        assert_array_equal(there.labels_, here.labels_)
    assert_allclose(there.cluster_centers_ - offset, here.cluster_centers_, atol=1e-6)
    assert_allclose(there.inertia_, here.inertia_, rtol=1e-6)


@property_test
@given(data=st.data(), alpha=alphas, layout=layouts, exponent=exponents)
def test_another_unit_of_the_data_changes_no_bit(data, alpha, layout, exponent):
    X, k = data.draw(rows_of_any_kind())
    weights = data.draw(weights_for(len(X)))
    unit = unit_within_range(exponent, X, weights)
    names = "auto", "float", "array", "cyclic", "soft"
    name = data.draw(st.sampled_from(names))

    def fit_in(unit):
        schedule = {
            "auto": "auto",
            "float": 1.5 * unit,
            "array": [4.0 * unit, 2.0 * unit, 0.0],
            "cyclic": Cyclic(),
            "soft": Constant(0.7, harden=False),
        }[name]
        model = RBFKMeans(k, schedule=schedule, alpha=alpha, random_state=0)
        return fitted(model, LAYOUTS[layout](X * unit), weights)

    one, other = fit_in(1.0), fit_in(unit)
    assert_array_equal(other.labels_, one.labels_)
    assert_array_equal(other.cluster_centers_ / unit, one.cluster_centers_)
    assert other.n_iter_ == one.n_iter_
    assert other.sigma_ / unit == one.sigma_
    assert_array_equal(other.history_["support"], one.history_["support"])
    assert_array_equal(
        other.predict_proba(LAYOUTS[layout](X * unit)),
        one.predict_proba(LAYOUTS[layout](X)),
    )


@property_test
@given(
    seed=seeds,
    d=features,
    alpha=alphas,
    factor=st.floats(1e-150, 1e150),
    schedule=st.sampled_from(["auto", 0.0, Geometric(unit="critical"), Cyclic()]),
)
def test_any_factor_of_the_data_scales_the_centres(seed, d, alpha, factor, schedule):
    X = general_rows(seed, 30, d)
    options = {"schedule": schedule, "alpha": alpha, "tol": 1e-3}
    one = fitted(RBFKMeans(3, init=X[:3], **options), X)
    other = fitted(RBFKMeans(3, init=X[:3] * factor, **options), X * factor)
    assert_array_equal(other.labels_, one.labels_)
    assert_allclose(
        other.cluster_centers_ / factor, one.cluster_centers_, rtol=1e-7, atol=1e-9
    )
    assert_allclose(other.sigma_ / factor, one.sigma_, rtol=1e-7)


@property_test
@given(data=st.data(), layout=layouts, alpha=alphas)
def test_the_order_of_rows_does_not_matter_to_their_predictions(data, layout, alpha):
    X, k = data.draw(rows_of_any_kind())
    model = fitted(RBFKMeans(k, alpha=alpha, random_state=0), X)
    model.set_params(proba_sigma=data.draw(st.sampled_from(["auto", 0.1, 3.0])))
    order = np.random.default_rng(data.draw(seeds)).permutation(len(X))
    rows, shuffled = LAYOUTS[layout](X), LAYOUTS[layout](X[order])
    assert_array_equal(model.predict(shuffled), model.predict(rows)[order])
    assert_allclose(
        model.predict_proba(shuffled),
        model.predict_proba(rows)[order],
        rtol=1e-10,
        atol=1e-12,
    )
    assert_array_equal(model.transform(shuffled), model.transform(rows)[order])


@property_test
@given(data=st.data(), layout=dense_layouts, alpha=alphas)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_layout_of_the_numbers_in_memory_changes_no_bit(data, layout, alpha, dtype):
    X, k = data.draw(rows_of_any_kind())
    X = X.astype(dtype)
    if data.draw(st.booleans()):
        X = np.broadcast_to(X[:1], X.shape)
    weights = data.draw(weights_for(len(X)))
    schedule = data.draw(schedules_in(1.0))
    model = RBFKMeans(k, alpha=alpha, schedule=schedule, random_state=0)
    plain = fitted(model, np.ascontiguousarray(X), weights)
    centres, labels, inertia = plain.cluster_centers_, plain.labels_, plain.inertia_
    proba = plain.predict_proba(X)
    if weights is not None:
        weights = np.repeat(weights, 3)[::3]
    rows = X if X.strides[0] == 0 else LAYOUTS[layout](X)
    other = fitted(model, rows, weights)
    # scikit-learn turns float32 in the other byte order into float64.
    if not (layout == "other byte order" and dtype == np.float32):
        assert_array_equal(other.cluster_centers_, centres)
        assert_array_equal(other.labels_, labels)
        assert other.inertia_ == inertia
        assert_array_equal(other.predict_proba(rows), proba)


# --- what the random rows found -----------------------------------------------


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_a_start_so_bad_that_its_energy_is_beyond_float64_leaves_no_infinity(kind):
    unit = 2.0**498
    X = kind(np.array([[0.0], [1.0], [2.0], [3e5]]) * unit)
    init = np.array([[0.0], [2.0]]) * unit  # until a centre moves to the last row
    model = RBFKMeans(2, init=init, schedule=0.0)
    refusal = None
    try:
        model.fit(X)
    except ValueError as error:
        refusal = str(error)
    if refusal is not None:
        assert "too large" in refusal
        return
    assert_array_equal(model.labels_[:3] == model.labels_[3], [False] * 3)
    assert np.isfinite(model.inertia_)
    for values in model.history_.values():
        assert np.isfinite(values).all()
