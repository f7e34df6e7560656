"""Sparse rows in every state, for the tests of sparse rows."""

# SPDX-License-Identifier: BSD-3-Clause

import itertools
import warnings

import numpy as np
import pytest
from estimator_helpers import FEATURES, assert_methods_agree
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from skrbfkmeans import RBFKMeans

ALPHAS = [1.0, 1.25, 1.5, 2.0, 3.0]


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
