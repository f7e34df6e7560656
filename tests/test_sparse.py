"""Sparse rows: the same answers as dense ones, without their memory.

The label before a group of tests is its number on the list of what broke for the
users of other packages.
"""

# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from estimator_helpers import FEATURES, assert_methods_agree
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sparse_helpers import (
    ALPHAS,
    CSR,
    INIT,
    KINDS,
    WEIGHTS,
    X,
    assert_same_model,
    bytes_of,
    kinds,
    make,
    make_rows,
    quiet_fit,
    unsorted,
    with_duplicates,
    with_explicit_zeros,
    with_indices,
)

from skrbfkmeans.energy import (
    critical_sigma,
    free_energy,
    hardening_sigma,
    responsibilities,
)
from skrbfkmeans.schedules import Constant, Cyclic, Geometric

pytestmark = pytest.mark.compiled
SCHEDULES = ["auto", 1.5, 0.0, Geometric(unit="critical"), Cyclic(), Constant(0.5)]


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
