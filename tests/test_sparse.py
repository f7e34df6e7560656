"""Sparse rows: the same answers as dense ones, without their memory.

The label before a group of tests is its number on the list of what broke for the
users of other packages.
"""

# SPDX-License-Identifier: BSD-3-Clause

import itertools
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from skrbfkmeans import RBFKMeans
from skrbfkmeans._engine.rows import Rows
from skrbfkmeans.energy import (
    critical_sigma,
    free_energy,
    hardening_sigma,
    responsibilities,
)
from skrbfkmeans.schedules import Constant, Cyclic, Geometric

pytestmark = pytest.mark.compiled

ALPHAS = [1.0, 1.25, 1.5, 2.0, 3.0]
FEATURES = ["distance", "rbf", "responsibility"]
SCHEDULES = ["auto", 1.5, 0.0, Geometric(unit="critical"), Cyclic(), Constant(0.5)]


def make_rows(n=90, d=20, k=3, density=0.4, seed=0):
    """Rows of mostly zeros around k centres; two of them are all zero."""
    rng = np.random.default_rng(seed)
    centres = 6.0 * rng.normal(size=(k, d)) * (rng.random((k, d)) < 0.7)
    X = centres[np.arange(n) % k] + rng.normal(size=(n, d))
    X[rng.random((n, d)) > density] = 0.0
    X[[7, n - 1]] = 0.0
    return X


X = make_rows()
CSR = sparse.csr_array(X)
INIT = X[:3] + 0.25
WEIGHTS = np.random.default_rng(1).uniform(0.0, 3.0, len(X)).round(1)


def with_indices(csr, indices, indptr):
    """A copy whose two arrays of indices have these dtypes."""
    csr = csr.copy()
    csr.indices, csr.indptr = csr.indices.astype(indices), csr.indptr.astype(indptr)
    return csr


def unsorted(csr):
    """The same matrix, the entries of each row in reverse order."""
    bounds = itertools.pairwise(csr.indptr)
    order = np.concatenate([np.arange(*pair)[::-1] for pair in bounds])
    parts = csr.data[order], csr.indices[order], csr.indptr.copy()
    return type(csr)(parts, shape=csr.shape)


def with_duplicates(csr):
    """The same matrix, each entry stored as two that add up to it."""
    data = np.stack([0.25 * csr.data, 0.75 * csr.data], axis=1).ravel()
    parts = data, np.repeat(csr.indices, 2), 2 * csr.indptr
    return type(csr)(parts, shape=csr.shape)


def with_explicit_zeros(csr):
    """The same matrix, with every second of its zeros stored, some negative."""
    dense = csr.toarray()
    marked = np.where(dense != 0.0, dense, 0.5)
    marked[:, ::2] = dense[:, ::2]
    full = type(csr)(marked)
    absent = dense[np.repeat(np.arange(len(dense)), np.diff(full.indptr)), full.indices]
    full.data[absent == 0.0] = 0.0
    full.data[np.flatnonzero(absent == 0.0)[::3]] = -0.0
    return full


def read_only(csr):
    csr = csr.copy()
    for part in csr.data, csr.indices, csr.indptr:
        part.setflags(write=False)
    return csr


KINDS = {
    "csr_array": lambda c: c.copy(),
    "csr_matrix": lambda c: sparse.csr_matrix(c.copy()),
    "64-bit": lambda c: with_indices(c, np.int64, np.int64),
    "64-bit indices": lambda c: with_indices(c, np.int64, np.int32),
    "64-bit indptr": lambda c: with_indices(c, np.int32, np.int64),
    "64-bit matrix": lambda c: with_indices(sparse.csr_matrix(c), np.int64, np.int64),
    "csc": lambda c: sparse.csc_array(c.copy()),
    "csc_matrix": lambda c: sparse.csc_matrix(c.copy()),
    "coo": lambda c: sparse.coo_array(c.copy()),
    "coo_matrix": lambda c: sparse.coo_matrix(c.copy()),
    "lil": lambda c: sparse.lil_array(c.copy()),
    "unsorted": unsorted,
    "unsorted 64-bit": lambda c: unsorted(with_indices(c, np.int64, np.int64)),
    "duplicates": with_duplicates,
    "duplicates unsorted": lambda c: unsorted(with_duplicates(c)),
    "explicit zeros": with_explicit_zeros,
    "read-only": read_only,
    "read-only unsorted": lambda c: read_only(unsorted(c)),
    "read-only duplicates": lambda c: read_only(with_duplicates(c)),
}
kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def make(n_clusters=3, **parameters):
    return RBFKMeans(n_clusters, **{"random_state": 0, **parameters})


def quiet_fit(model, rows, **more):
    """Fit data that may well have fewer distinct rows than clusters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(rows, **more)


def bytes_of(matrix):
    """Everything that a sparse matrix stores."""
    names = [name for name in ("data", "indices", "indptr") if hasattr(matrix, name)]
    names += ["coords"] if hasattr(matrix, "coords") else []
    return [np.asarray(getattr(matrix, name)).tobytes() for name in names]


def assert_same_model(ours, theirs, rows, atol=1e-9):
    """Two fits agree, and so do all their answers for rows dense and sparse."""
    assert ours.cluster_centers_.dtype == theirs.cluster_centers_.dtype
    assert_array_equal(ours.labels_, theirs.labels_)
    assert ours.n_iter_ == theirs.n_iter_
    assert ours.hardened_ == theirs.hardened_
    assert_allclose(ours.cluster_centers_, theirs.cluster_centers_, 1e-12, atol)
    assert_allclose(ours.inertia_, theirs.inertia_, rtol=1e-9, atol=atol)
    assert_allclose(ours.sigma_, theirs.sigma_, rtol=1e-9, atol=atol)
    for name, values in theirs.history_.items():
        assert_allclose(ours.history_[name], values, 1e-7, 1e3 * atol, err_msg=name)
    dense, csr = rows, sparse.csr_array(rows)
    assert_allclose(
        ours.predict_proba(csr), theirs.predict_proba(dense), atol=10 * atol
    )
    for features in FEATURES:
        ours.set_params(features=features)
        theirs.set_params(features=features)
        a, b = ours.transform(csr), theirs.transform(dense)
        assert a.dtype == b.dtype
        assert_allclose(a, b, rtol=1e-9, atol=10 * atol)
    assert_methods_agree(ours, csr)


def assert_methods_agree(model, rows, sample_weight=None):
    labels = model.predict(rows)
    assert_array_equal(model.labels_, labels)
    P = model.predict_proba(rows)
    assert np.isfinite(P).all()
    assert_allclose(P.sum(axis=1), 1.0, atol=1e-6 if P.dtype == np.float32 else 1e-12)
    assert_array_equal(P.argmax(axis=1), labels)
    assert model.inertia_ == -model.score(rows, sample_weight=sample_weight)


# --- E7: every kind of sparse matrix ------------------------------------------


def test_the_kinds_are_what_they_are_called():
    assert not unsorted(CSR).has_sorted_indices
    assert not with_duplicates(CSR).has_canonical_format
    assert with_explicit_zeros(CSR).nnz > CSR.nnz
    assert with_explicit_zeros(CSR).count_nonzero() == CSR.nnz
    mixed = KINDS["64-bit indptr"](CSR)
    assert (mixed.indices.dtype, mixed.indptr.dtype) == (np.int32, np.int64)
    for kind in KINDS.values():
        assert_array_equal(kind(CSR).toarray(), X)


@kinds
def test_any_kind_of_sparse_matrix_fits_as_the_dense_rows_do(kind):
    rows = kind(CSR)
    before = bytes_of(rows)
    for schedule in "auto", 1.5:
        model = make(schedule=schedule).fit(rows, sample_weight=WEIGHTS)
        reference = make(schedule=schedule).fit(X, sample_weight=WEIGHTS)
        assert_same_model(
            make(schedule=schedule).fit(rows), make(schedule=schedule).fit(X), X
        )
        assert_array_equal(model.labels_, reference.labels_)
        assert_allclose(model.cluster_centers_, reference.cluster_centers_, atol=1e-9)
        assert model.inertia_ == -model.score(rows, sample_weight=WEIGHTS)
    assert_array_equal(make().fit_predict(rows), make().fit(X).labels_)
    assert_allclose(make().fit_transform(rows), make().fit_transform(X), atol=1e-9)
    assert bytes_of(rows) == before


@kinds
def test_any_kind_of_sparse_matrix_is_answered_as_the_dense_rows_are(kind):
    rows = kind(CSR)
    before = bytes_of(rows)
    model = make().fit(X).set_params(proba_sigma=3.0)
    assert_array_equal(model.predict(rows), model.predict(X))
    assert_allclose(model.predict_proba(rows), model.predict_proba(X), atol=1e-12)
    for features in FEATURES:
        model.set_params(features=features)
        assert_allclose(model.transform(rows), model.transform(X), atol=1e-11)
    assert_allclose(model.score(rows, None, WEIGHTS), model.score(X, None, WEIGHTS))
    assert bytes_of(rows) == before


@kinds
@pytest.mark.parametrize("alpha", ALPHAS)
def test_any_kind_of_sparse_matrix_is_fine_in_every_function(kind, alpha):
    rows = kind(CSR)
    before = bytes_of(rows)
    R = responsibilities(rows, INIT, 2.0, alpha=alpha)
    assert_allclose(R, responsibilities(X, INIT, 2.0, alpha=alpha), atol=1e-12)
    options = {"alpha": alpha, "sample_weight": WEIGHTS}
    for sigma in 0.0, 2.0:
        ours = free_energy(rows, INIT, sigma, return_gradient=True, **options)
        theirs = free_energy(X, INIT, sigma, return_gradient=True, **options)
        assert_allclose(ours[0], theirs[0], rtol=1e-12)
        assert_allclose(ours[1], theirs[1], atol=1e-10)
        assert free_energy(rows, INIT, sigma, **options) == ours[0]
    assert_allclose(
        critical_sigma(rows, 3, **options), critical_sigma(X, 3, **options), rtol=1e-12
    )
    sigma = hardening_sigma(rows, INIT, alpha=alpha)
    assert_allclose(sigma, hardening_sigma(X, INIT, alpha=alpha), rtol=1e-9)
    assert bytes_of(rows) == before


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, bool, np.longdouble])
def test_sparse_numbers_of_other_types_equal_the_same_float64(dtype):
    counts = np.abs(X).round().astype(dtype)
    model = make().fit(sparse.csr_array(counts))
    reference = make().fit(counts.astype(np.float64))
    assert_same_model(model, reference, counts.astype(np.float64))
    assert_array_equal(model.predict(sparse.csr_matrix(counts)), model.labels_)


@pytest.mark.parametrize("indices", [np.int32, np.int64])
@pytest.mark.parametrize("fitted", [np.float32, np.float64])
@pytest.mark.parametrize("asked", [np.float32, np.float64])
def test_either_width_of_sparse_floats_is_answered_whatever_was_fitted(
    indices, fitted, asked
):
    model = make().fit(with_indices(CSR.astype(fitted), indices, indices))
    assert model.cluster_centers_.dtype == fitted
    reference = make().fit(X.astype(fitted))
    assert_allclose(model.cluster_centers_, reference.cluster_centers_, atol=1e-5)
    rows = with_indices(CSR.astype(asked), indices, indices)
    assert_array_equal(model.predict(rows), reference.labels_)
    assert model.predict(rows).dtype == np.int32
    for features in FEATURES:
        model.set_params(features=features)
        reference.set_params(features=features)
        assert model.transform(rows).dtype == asked
        assert_allclose(model.transform(rows), reference.transform(X), atol=2e-4)
    assert model.predict_proba(rows).dtype == asked
    assert responsibilities(rows, INIT, 1.0).dtype == asked
    assert_allclose(model.score(rows), reference.score(X), rtol=1e-5)
    if asked == fitted:
        assert model.inertia_ == -model.score(rows)


# --- E9: equals dense, whatever the parameters --------------------------------


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
@pytest.mark.parametrize(
    "init", ["k-means++", "random", INIT], ids=["++", "r", "array"]
)
def test_sparse_rows_give_the_model_of_the_dense_rows(alpha, schedule, init):
    options = {"alpha": alpha, "schedule": schedule, "init": init, "tol": 1e-3}
    assert_same_model(make(**options).fit(CSR), make(**options).fit(X), X)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("schedule", ["auto", 1.5, 0.0])
def test_weights_of_sparse_rows_count_as_those_of_dense_rows(alpha, schedule):
    weights = WEIGHTS * np.where(np.arange(len(X)) % 7, 1.0, 1e10)
    options = {"alpha": alpha, "schedule": schedule}
    model = make(**options).fit(CSR, sample_weight=weights)
    reference = make(**options).fit(X, sample_weight=weights)
    assert_array_equal(model.labels_, reference.labels_)
    assert_allclose(model.cluster_centers_, reference.cluster_centers_, atol=1e-9)
    assert_allclose(model.inertia_, reference.inertia_, rtol=1e-9)
    assert_methods_agree(model, CSR, weights)


@pytest.mark.parametrize("alpha", [1.0, 1.5])
@pytest.mark.parametrize("schedule", ["auto", 1.5, 0.0])
def test_a_sparse_row_of_zero_weight_is_as_if_absent(alpha, schedule):
    present = WEIGHTS > 0.5
    options = {"alpha": alpha, "schedule": schedule, "init": INIT}
    model = make(**options).fit(CSR, sample_weight=WEIGHTS * present)
    without = make(**options).fit(CSR[present], sample_weight=WEIGHTS[present])
    assert_allclose(model.cluster_centers_, without.cluster_centers_, atol=1e-12)
    assert_array_equal(model.labels_[present], without.labels_)
    assert_allclose(model.inertia_, without.inertia_, rtol=1e-12)


@pytest.mark.parametrize("shape", [(40, 1), (12, 1), (30, 2), (25, 13), (20, 700)])
@pytest.mark.parametrize("alpha", [1.0, 1.5])
@pytest.mark.parametrize(
    "schedule", ["auto", 0.0, Geometric(unit="critical")], ids=repr
)
def test_few_and_many_features_are_the_same_sparse_or_dense(shape, alpha, schedule):
    rows = make_rows(*shape, density=0.6)
    options = {"alpha": alpha, "schedule": schedule, "n_clusters": 3}
    model = quiet_fit(make(**options), sparse.csr_array(rows))
    assert_same_model(model, quiet_fit(make(**options), rows), rows)


@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_critical_sigma_of_more_features_than_fit_into_a_matrix_is_that_of_dense_rows(
    offset,
):
    rows = make_rows(30, 700) + offset
    options = {"alpha": 2.0, "sample_weight": WEIGHTS[:30]}
    ours = critical_sigma(sparse.csr_array(rows), 4, **options)
    assert_allclose(ours, critical_sigma(rows, 4, **options), rtol=1e-10)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("schedule", ["auto", 1.0, 0.0])
@pytest.mark.parametrize("n_rows", [1, 30])
def test_one_cluster_of_sparse_rows_is_their_weighted_mean(alpha, schedule, n_rows):
    rows, weights = CSR[:n_rows], WEIGHTS[:n_rows] + 0.1
    model = make(1, alpha=alpha, schedule=schedule).fit(rows, sample_weight=weights)
    mean = np.average(X[:n_rows], axis=0, weights=weights)
    assert_allclose(model.cluster_centers_, [mean], atol=1e-14)
    assert_array_equal(model.predict_proba(rows), np.ones((n_rows, 1)))
    assert hardening_sigma(rows, model.cluster_centers_) == np.inf
    assert_methods_agree(model, rows, weights)


@pytest.mark.parametrize("alpha", [1.0, 1.5])
@pytest.mark.parametrize("init", ["k-means++", "random"])
def test_as_many_clusters_as_sparse_rows_give_each_its_own(alpha, init):
    with pytest.raises(ValueError, match=r"n_samples=6.*n_clusters=7"):
        make(7).fit(CSR[:6])
    model = make(7, alpha=alpha, init=init).fit(CSR[:7])
    assert_array_equal(np.sort(model.labels_), np.arange(7))
    assert model.inertia_ < 1e-20
    assert_methods_agree(model, CSR[:7])


@pytest.mark.parametrize("method", ["predict", "predict_proba", "transform", "score"])
def test_no_sparse_rows_are_refused_as_scikit_learn_does(method):
    with pytest.raises(ValueError, match=r"0 sample.*minimum of 1"):
        getattr(make().fit(X), method)(CSR[:0])


@pytest.mark.parametrize("method", ["predict", "predict_proba", "transform", "score"])
def test_sparse_rows_with_another_number_of_features_are_refused(method):
    with pytest.raises(ValueError, match="X has 19 features"):
        getattr(make().fit(CSR), method)(CSR[:, :19])


def test_a_sparse_start_is_refused_with_its_name():
    with pytest.raises(ValueError, match="init"):
        make(init=sparse.csr_array(INIT)).fit(CSR)


# --- B1, B2, B4: degenerate rows ----------------------------------------------


@pytest.mark.parametrize("alpha", [1.0, 1.5])
@pytest.mark.parametrize("schedule", ["auto", 0.0, 0.5, Geometric(unit="critical")])
@pytest.mark.parametrize("d", [1, 3, 700])
@pytest.mark.parametrize("init", ["k-means++", "random"])
def test_sparse_rows_of_nothing_but_zeros_give_centres_of_zeros(
    alpha, schedule, d, init
):
    rows = sparse.csr_array((10, d))
    model = make(alpha=alpha, schedule=schedule, init=init)
    with pytest.warns(ConvergenceWarning, match="only 1 distinct rows") as record:
        model.fit(rows)
    assert len(record) == 1
    assert_array_equal(model.cluster_centers_, np.zeros((3, d)))
    assert model.inertia_ == 0.0
    assert_array_equal(model.labels_, np.zeros(10))
    assert_methods_agree(model, rows)
    for values in model.history_.values():
        assert np.isfinite(values).all()
    assert critical_sigma(rows, 3) == 0.0
    assert free_energy(rows, np.zeros((2, d)), 0.0) == 0.0


@pytest.mark.parametrize("kind", [sparse.csr_array, with_explicit_zeros])
def test_sparse_duplicates_are_told_once_and_fitted(kind):
    rows = np.repeat([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [3.0, 0.0, 4.0]], 6, axis=0)
    rows = kind(sparse.csr_array(rows))
    with pytest.warns(ConvergenceWarning, match="only 3 distinct rows") as record:
        model = make(5).fit(rows)
    assert len(record) == 1
    assert model.inertia_ < 1e-20
    assert len(np.unique(model.labels_)) == 3
    assert model.n_iter_ < 50
    assert_methods_agree(model, rows)


@pytest.mark.parametrize("far", [1e6, 1e12])
@pytest.mark.parametrize("schedule", ["auto", 0.0, 0.5])
@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_a_centre_far_from_all_sparse_rows_stays_finite_and_stops_the_run(
    far, schedule, alpha
):
    init = np.vstack([INIT, np.full((1, X.shape[1]), far)])
    options = {"init": init, "schedule": schedule, "alpha": alpha}
    model = quiet_fit(make(4, **options), CSR)
    reference = quiet_fit(make(4, **options), X)
    assert_array_equal(model.labels_, reference.labels_)
    assert_allclose(model.cluster_centers_, reference.cluster_centers_, 1e-9, 1e-9)
    assert model.n_iter_ < 300
    assert_methods_agree(model, CSR)


# --- A1, A3, A5: numerics -----------------------------------------------------


@pytest.mark.parametrize("offset", [1e3, -1e6])
@pytest.mark.parametrize("d", [1, 2, 20])
@pytest.mark.parametrize("alpha", [1.0, 1.5])
@pytest.mark.parametrize("schedule", ["auto", 1.5, 0.0])
def test_a_common_offset_costs_sparse_rows_no_digits(offset, d, alpha, schedule):
    rows = np.round(make_rows(60, d, density=1.0) * 1024) / 1024  # shifted exactly
    init = rows[[0, 1, 2]]
    options = {"alpha": alpha, "schedule": schedule, "tol": 1e-3}
    here = make(init=init, **options).fit(rows)
    shifted = sparse.csr_array(rows + offset)
    there = make(init=init + offset, **options).fit(shifted)
    digits = 16 * np.spacing(abs(offset))
    assert_array_equal(here.labels_, there.labels_)
    assert here.n_iter_ == there.n_iter_
    assert_allclose(there.cluster_centers_ - offset, here.cluster_centers_, atol=digits)
    assert_allclose(here.inertia_, there.inertia_, rtol=1e-7, atol=1e3 * digits)
    for model in here, there:
        model.set_params(proba_sigma=2.0, features="distance")
    P = there.predict_proba(shifted)
    assert_allclose(P, here.predict_proba(rows), atol=100 * digits)
    D = there.transform(shifted)
    assert_allclose(D, here.transform(rows), atol=100 * digits)
    assert_methods_agree(there, shifted)
    centres = here.cluster_centers_.round(3)
    gap = hardening_sigma(shifted, centres + offset)
    assert_allclose(gap, hardening_sigma(rows, centres), rtol=1e-6)


def test_float32_sparse_rows_far_from_the_origin_are_split_as_they_stand():
    base = np.repeat([0.0, 1.0], 20)[:, np.newaxis] + np.linspace(0, 0.1, 40)[:, None]
    for offset in 1e4, 1e6:
        rows = sparse.csr_array((base + offset).astype(np.float32))
        model = make(2).fit(rows)
        assert len(np.unique(model.labels_[:20])) == 1
        assert len(np.unique(model.labels_[20:])) == 1
        assert model.labels_[0] != model.labels_[-1]
        assert_methods_agree(model, rows)


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6, 1e8])
def test_the_variances_of_sparse_rows_lose_no_digits_to_their_mean(offset):
    rows = np.round(make_rows(60, 3, density=0.8) * 1024) / 1024  # shifted exactly
    weights = WEIGHTS[:60]
    mean = np.average(rows, axis=0, weights=weights)
    expected = np.average((rows - mean) ** 2, axis=0, weights=weights)
    with Rows(sparse.csr_array(rows + offset), weights) as ours:
        assert_allclose(ours.measure(), expected, rtol=1e-6)


@pytest.mark.parametrize("offset", [1e6, 1e8])
def test_a_common_offset_of_sparse_rows_does_not_change_the_meaning_of_tol(offset):
    rows = np.round(make_rows(90, 6, density=1.0) * 64) / 1024  # shifted exactly
    options = {"alpha": 1.0, "schedule": 0.125, "tol": 1e-5}
    here = make(4, init=rows[:4], **options).fit(rows)
    there = make(4, init=rows[:4] + offset, **options)
    assert there.fit(sparse.csr_array(rows + offset)).n_iter_ == here.n_iter_


@pytest.mark.parametrize("factor", [1e-300, 1e-150, 1e-100, 1e100, 1e150])
@pytest.mark.parametrize("schedule", ["auto", Constant(0.5), 0.0])
@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_huge_and_tiny_sparse_rows_are_fitted_as_rows_of_common_size(
    factor, schedule, alpha
):
    unit = 2.0 ** np.round(np.log2(factor))
    model = make(schedule=schedule, alpha=alpha).fit(CSR * unit)
    reference = make(schedule=schedule, alpha=alpha).fit(CSR)
    assert_array_equal(model.labels_, reference.labels_)
    assert model.n_iter_ == reference.n_iter_
    centres = model.cluster_centers_ / unit
    assert_allclose(centres, reference.cluster_centers_, rtol=1e-12, atol=1e-12)
    assert_allclose(model.sigma_ / unit, reference.sigma_, rtol=1e-12)
    assert np.isfinite(model.inertia_)
    assert_methods_agree(model, CSR * unit)
    P = reference.predict_proba(CSR)
    assert_allclose(model.predict_proba(CSR * unit), P, atol=1e-12)
    assert_allclose(model.transform(CSR * unit) / unit, reference.transform(CSR))


def test_sparse_rows_whose_inertia_cannot_be_represented_are_refused():
    with pytest.raises(ValueError, match="too large"):
        make(2).fit(CSR * 1e160)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("sigma", [0.05, 1e-100, 1e-200, 0.0])
def test_a_cold_temperature_gives_sparse_rows_zeros_and_a_one(alpha, sigma):
    rows = sparse.csr_array([[3.0], [4.0], [0.0], [1e6]])
    p = responsibilities(rows, [[0.0], [7.0]], sigma, alpha=alpha)
    assert_array_equal(p, [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])


# --- B6: what is not a number -------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["csr_array", "csr_matrix", "csc", "coo", "64-bit"])
def test_a_stored_value_that_is_no_number_is_refused_everywhere(value, kind):
    rows = KINDS[kind](CSR)
    rows.data[11] = value
    message = "X contains NaN" if np.isnan(value) else "X contains infinity"
    unfitted, model = make(), make(features="rbf").fit(CSR)
    for fit in unfitted.fit, unfitted.fit_predict, unfitted.fit_transform:
        with pytest.raises(ValueError, match=message):
            fit(rows)
    assert not hasattr(unfitted, "cluster_centers_")
    for method in model.predict, model.predict_proba, model.transform, model.score:
        with pytest.raises(ValueError, match=message):
            method(rows)
    for function in (
        lambda: responsibilities(rows, INIT, 1.0),
        lambda: free_energy(rows, INIT, 1.0),
        lambda: critical_sigma(rows, 3),
        lambda: hardening_sigma(rows, INIT),
    ):
        with pytest.raises(ValueError, match=message):
            function()


# --- C, G: agreement, iterations and threads ----------------------------------


@pytest.mark.parametrize("max_iter", [1, 2, 300])
@pytest.mark.parametrize("tol", [0.0, 1e-1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("schedule", ["auto", 0.7])
def test_labels_of_sparse_rows_are_the_predictions_however_the_run_ends(
    max_iter, tol, dtype, schedule
):
    rows = sparse.csr_array(make_rows(300, 8, k=7, seed=1).astype(dtype))
    options = {"max_iter": max_iter, "tol": tol, "schedule": schedule}
    model = make(9, **options)
    assert_array_equal(model.fit_predict(rows), model.predict(rows))
    assert_methods_agree(model, rows)
    assert model.n_iter_ <= max_iter


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("sigma", [1e-3, 0.1, 1.0, 30.0, 1e3, 1e9])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_largest_membership_of_a_sparse_row_is_its_label(alpha, sigma, dtype):
    rows = sparse.csr_array(X.astype(dtype))
    model = make(6, alpha=alpha).fit(rows).set_params(proba_sigma=sigma)
    assert_methods_agree(model, rows)


@pytest.mark.parametrize("order", [1, -1])
def test_a_sparse_row_midway_belongs_to_the_first_centre(order):
    rows = sparse.csr_array([[2.0, 0.0], [0.0, 0.0]])
    centres = np.array([[0.0, 0.0], [4.0, 0.0]])[::order]
    for sigma in 0.1, 2.0, 1e9:
        p = responsibilities(rows, centres, sigma)
        assert p[0].argmax() == 0
        assert_array_equal(p[0], [0.5, 0.5])
    p = responsibilities(rows, centres, 0.0)
    assert_array_equal(p[0], [1.0, 0.0])
    p = responsibilities(sparse.csr_array((3, 2)), np.ones((2, 2)), 1.0)
    assert_array_equal(p, np.full((3, 2), 0.5))


def test_the_answer_for_a_sparse_row_does_not_depend_on_its_batch():
    model = make(5).fit(CSR).set_params(proba_sigma=2.0)
    whole, labels = model.predict_proba(CSR), model.predict(CSR)
    for size in 1, 3, 89:
        pieces = [CSR[i : i + size] for i in range(0, len(X), size)]
        parts = np.vstack([model.predict_proba(piece) for piece in pieces])
        assert_allclose(parts, whole, rtol=1e-13, atol=1e-13)
        assert_array_equal(np.concatenate([model.predict(p) for p in pieces]), labels)


@pytest.mark.parametrize("tol", [0.0, 1e-100])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("schedule", ["auto", 1.0, 0.0])
def test_a_sparse_run_without_tolerance_still_ends(tol, dtype, schedule):
    rows = sparse.random(2000, 30, density=0.2, format="csr", random_state=0)
    rows = rows.astype(dtype)
    model = make(6, tol=tol, schedule=schedule, max_iter=2000).fit(rows)
    assert model.n_iter_ < 2000
    scaled = make(6, tol=tol, schedule=schedule, max_iter=2000)
    if schedule != 1.0:
        assert scaled.fit(rows * dtype(1024)).n_iter_ == model.n_iter_


@pytest.mark.parametrize("alpha", [1.0, 1.5])
@pytest.mark.parametrize("schedule", ["auto", 0.1])
def test_any_number_of_threads_gives_the_same_bits_for_sparse_rows(
    alpha, schedule, monkeypatch
):
    rows = sparse.random(20_000, 300, density=0.05, format="csr", random_state=0)
    models = []
    for n_threads in 1, 2, 4:
        monkeypatch.setattr(
            "skrbfkmeans._engine.rows._openmp_effective_n_threads",
            lambda n=n_threads: n,
        )
        model = make(8, alpha=alpha, schedule=schedule, max_iter=6).fit(rows)
        models.append((model, model.predict_proba(rows)))
    (first, P), *others = models
    assert_array_equal(first.predict(rows.toarray()), first.labels_)
    for other, Q in others:
        assert_array_equal(other.cluster_centers_, first.cluster_centers_)
        assert_array_equal(other.labels_, first.labels_)
        assert other.inertia_ == first.inertia_
        assert_array_equal(Q, P)


# --- sparse output ------------------------------------------------------------


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("sigma", ["auto", 0.0, 1.0, 4.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array, sparse.csc_matrix])
def test_sparse_responsibilities_are_the_dense_ones_without_their_zeros(
    alpha, sigma, dtype, kind
):
    rows = kind(X.astype(dtype))
    model = make(5, alpha=alpha, proba_sigma=sigma, features="responsibility").fit(rows)
    dense = model.transform(rows)
    assert isinstance(dense, np.ndarray)
    R = model.set_params(sparse_output=True).transform(rows)
    assert R.format == "csr"
    assert R.dtype == dtype
    assert R.shape == (len(X), 5)
    assert R.has_canonical_format
    assert R.nnz == np.count_nonzero(dense)
    assert (R.data > 0.0).all()
    assert_array_equal(R.toarray(), dense)
    assert_array_equal(model.fit_transform(rows).toarray(), R.toarray())
    assert isinstance(model.predict_proba(rows), np.ndarray)
    if sigma != "auto":
        centres = model.cluster_centers_
        S = responsibilities(rows, centres, sigma, alpha=alpha, sparse_output=True)
        assert S.format == "csr"
        assert_array_equal(S.toarray(), R.toarray())
        assert (S.data != 0.0).all()


@pytest.mark.parametrize("features", ["distance", "rbf"])
def test_sparse_output_leaves_the_other_features_dense(features):
    model = make(features=features, sparse_output=True).fit(CSR)
    assert isinstance(model.transform(CSR), np.ndarray)


def test_sparse_responsibilities_of_many_rows_come_in_order():
    rows = np.arange(30_000.0)[:, np.newaxis]
    centres = np.linspace(0.0, 3e4, 64)[:, np.newaxis]
    R = responsibilities(rows, centres, 200.0, sparse_output=True)
    assert_array_equal(R.toarray(), responsibilities(rows, centres, 200.0))
    assert R.nnz < 0.1 * len(rows) * 64


@pytest.mark.parametrize("value", [None, "yes", 2])
def test_a_sparse_output_that_is_no_bool_is_refused(value):
    with pytest.raises(ValueError, match="sparse_output"):
        make(sparse_output=value).fit(CSR)


# --- E9: memory ---------------------------------------------------------------

LARGE = """
import numpy as np
from scipy import sparse
from skrbfkmeans import RBFKMeans
from skrbfkmeans.energy import free_energy, hardening_sigma, responsibilities
from skrbfkmeans.schedules import Constant, Geometric

def rows(n, d, nnz):
    rng = np.random.default_rng(0)
    X = sparse.csr_array(
        (rng.random(nnz), (rng.integers(0, n, nnz), rng.integers(0, d, nnz))),
        shape=(n, d),
    )
    X.sum_duplicates()
    return X

def use(X, **parameters):
    model = RBFKMeans(5, random_state=0, sparse_output=True, **parameters).fit(X)
    model.predict(X), model.predict_proba(X), model.score(X)
    for features in "distance", "rbf", "responsibility":
        model.set_params(features=features).transform(X)
    centers = model.cluster_centers_
    free_energy(X, centers, 0.1, return_gradient=True)
    hardening_sigma(X, centers)
    responsibilities(X, centers, 0.1, sparse_output=True)
    return model

use(rows(300, 50, 2_000), alpha={alpha}, schedule={schedule})
X = rows(20_000, 50_000, 100_000)
BEGIN
model = use(X, alpha={alpha}, schedule={schedule})
assert model.cluster_centers_.shape == (5, 50_000)
"""


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [1.0, 1.5])
@pytest.mark.parametrize("schedule", ["'auto'", "Constant(0.5)"])
def test_a_large_sparse_matrix_is_never_made_dense(peak_in_megabytes, alpha, schedule):
    code = LARGE.replace("{alpha}", str(alpha)).replace("{schedule}", schedule)
    assert peak_in_megabytes(code) < 200.0


@pytest.mark.parametrize("schedule", ["auto", 0.0])
def test_a_centre_is_exactly_zero_in_the_features_its_rows_do_not_have(schedule):
    rng = np.random.default_rng(3)
    rows = sparse.random(400, 60, density=0.05, format="csr", random_state=3)
    weights = rng.uniform(0.1, 1.0, size=400)
    model = make(12, schedule=schedule).fit(rows, sample_weight=weights)
    assert model.hardened_
    n_unseen = 0
    for j in range(12):
        own = rows[model.labels_ == j]
        unseen = np.asarray(own.sum(axis=0)).ravel() == 0.0
        assert np.all(model.cluster_centers_[j, unseen] == 0.0)
        n_unseen += unseen.sum()
    assert n_unseen > 100
