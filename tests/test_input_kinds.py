"""Arrays and frames of every kind, in every method.

The label before a group of tests is its number on the list of what broke for the
users of other packages.
"""

# SPDX-License-Identifier: BSD-3-Clause

import array

import numpy as np
import pandas as pd
import pytest
from estimator_helpers import FEATURES, METHODS, B, assert_split, clear_blobs
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from skrbfkmeans import RBFKMeans
from skrbfkmeans.energy import (
    critical_sigma,
    free_energy,
    hardening_sigma,
    responsibilities,
)

pytestmark = pytest.mark.compiled


def make_rows(d=3, seed=0):
    """Whole numbers around three centres, which every type of number can hold."""
    rng = np.random.default_rng(seed)
    centres = np.array([10.0, 50.0, 100.0])[np.arange(45) % 3, np.newaxis]
    return (centres + rng.normal(scale=4.0, size=(45, d))).round().clip(0.0)


X = make_rows()
WIDE = make_rows(d=20)
WEIGHTS = np.random.default_rng(1).integers(1, 4, len(X))


def make(**parameters):
    return RBFKMeans(**{"n_clusters": 3, "random_state": 0, **parameters})


def assert_same_answers(rows, plain, exact=True, **parameters):
    """Fit, every method and every function give the same for both."""
    compare = assert_array_equal
    if not exact:

        def compare(a, b):
            assert_allclose(a, b, rtol=1e-5, atol=1e-5)

    ours, theirs = make(**parameters).fit(rows), make(**parameters).fit(plain)
    compare(ours.cluster_centers_, theirs.cluster_centers_)
    assert_array_equal(ours.labels_, theirs.labels_)
    assert_array_equal(make(**parameters).fit_predict(rows), ours.labels_)
    for features in FEATURES:
        ours.set_params(features=features)
        theirs.set_params(features=features)
        for method in METHODS:
            compare(getattr(ours, method)(rows), getattr(theirs, method)(plain))
    centres = plain[:3]
    compare(responsibilities(rows, centres, 9.0), responsibilities(plain, centres, 9.0))
    compare(free_energy(rows, centres, 9.0), free_energy(plain, centres, 9.0))
    compare(critical_sigma(rows, 3), critical_sigma(plain, 3))
    compare(hardening_sigma(rows, centres), hardening_sigma(plain, centres))


# --- E1 -----------------------------------------------------------------------


@pytest.mark.parametrize("plain", [X, WIDE], ids=["few features", "many features"])
@pytest.mark.parametrize("mode", ["r", "c", "r+"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_memory_mapped_rows_are_fine_and_their_file_is_left_alone(
    tmp_path, plain, mode, order, dtype
):
    path = tmp_path / "rows.npy"
    np.save(path, np.asarray(plain, dtype=dtype, order=order))
    before = path.read_bytes()
    rows = np.load(path, mmap_mode=mode)
    assert_same_answers(rows, plain.astype(dtype))
    rows.flush()
    assert path.read_bytes() == before


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csr_matrix])
def test_memory_mapped_sparse_rows_are_fine(tmp_path, kind):
    plain = sparse.csr_array(X)
    parts = []
    for name in "data", "indices", "indptr":
        np.save(tmp_path / f"{name}.npy", getattr(plain, name))
        parts.append(np.load(tmp_path / f"{name}.npy", mmap_mode="r"))
    assert_same_answers(kind(tuple(parts), shape=X.shape), X, exact=False)


def test_memory_mapped_weights_and_starts_are_fine(tmp_path):
    for name, values in ("weights", WEIGHTS.astype(float)), ("init", X[:3]):
        np.save(tmp_path / f"{name}.npy", values)
    weights, init = (
        np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("weights", "init")
    )
    model = make(init=init).fit(X, sample_weight=weights)
    assert model.init is init
    reference = make(init=X[:3]).fit(X, sample_weight=WEIGHTS)
    assert_array_equal(model.cluster_centers_, reference.cluster_centers_)
    assert model.score(X, sample_weight=weights) == -model.inertia_


# --- E3 -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "view",
    [
        lambda a: np.asfortranarray(a),
        lambda a: np.repeat(a, 3, axis=0)[::3],
        lambda a: np.repeat(a, 2, axis=1)[:, ::2],
        lambda a: a[::-1, ::-1].copy()[::-1, ::-1],
        lambda a: np.ascontiguousarray(a.T).T,
        lambda a: np.concatenate([a, a], axis=1)[:, : a.shape[1]],
        lambda a: (
            np.frombuffer(b"x" + a.tobytes(), np.uint8)[1:]
            .view(a.dtype)
            .reshape(a.shape)
        ),
    ],
    ids=["F", "rows", "columns", "reversed", "transposed", "part", "unaligned"],
)
@pytest.mark.parametrize("plain", [X, WIDE], ids=["few features", "many features"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_view_is_as_good_as_its_copy_in_every_method(view, plain, dtype):
    plain = plain.astype(dtype)
    assert_same_answers(view(plain), plain)


# --- E5 -----------------------------------------------------------------------


@pytest.mark.parametrize("code", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
@pytest.mark.parametrize("byteorder", ["<", ">"])
def test_whole_numbers_of_any_size_are_floats_in_every_method(code, byteorder):
    assert_same_answers(X.astype(byteorder + code), X)


def test_truth_values_are_zeros_and_ones():
    rows = WIDE > 53.0
    model = make(n_clusters=2).fit(rows)
    reference = make(n_clusters=2).fit(rows.astype(float))
    assert_array_equal(model.cluster_centers_, reference.cluster_centers_)
    assert_array_equal(model.predict(rows), reference.predict(rows.astype(float)))


def test_bytes_of_images_do_not_wrap_around():
    pixels = np.array([[200, 250], [250, 200], [0, 5], [5, 0]], dtype=np.uint8)
    init = np.array([[250, 250], [0, 0]], dtype=np.uint8)
    model = make(n_clusters=2, init=init, schedule=0.0).fit(pixels)
    assert_array_equal(model.labels_, [0, 0, 1, 1])
    assert_array_equal(model.cluster_centers_, [[225.0, 225.0], [2.5, 2.5]])
    assert model.inertia_ == 4 * 25.0**2 + 4 * 2.5**2
    p = responsibilities(pixels[:1], np.array([[250, 200], [200, 255]], np.uint8), 1e3)
    assert p.argmax() == 1


# --- E6 and other floats ------------------------------------------------------


@pytest.mark.parametrize("code", ["f2", "f4", "f8", "g"])
@pytest.mark.parametrize("byteorder", ["<", ">"])
def test_floats_of_any_width_and_byte_order_are_fine_in_every_method(code, byteorder):
    rows = X.astype(np.dtype(code).newbyteorder(byteorder))
    assert_same_answers(rows, X, exact=False)


@pytest.mark.parametrize("code", ["f2", ">f4", "i4", "O"])
def test_starts_of_other_types_are_floats(code):
    model = make(init=X[:3].astype(code)).fit(X)
    reference = make(init=X[:3]).fit(X)
    assert_array_equal(model.cluster_centers_, reference.cluster_centers_)


def test_half_floats_that_overflow_when_squared_are_fine():
    rows = (X * 500).astype(np.float16)  # up to 6e4; squares up to 4e9
    assert_same_answers(rows, rows.astype(np.float64), exact=False)
    rows[3, 1] = np.inf
    with pytest.raises(ValueError, match="X contains infinity"):
        make().fit(rows)


# --- E10, E13: objects and frames ---------------------------------------------


@pytest.mark.parametrize(
    "convert",
    [
        lambda a: a.astype(object),
        lambda a: a.astype(int).astype(object),
        lambda a: [tuple(row) for row in a],
        lambda a: [array.array("d", row) for row in a],
        lambda a: memoryview(np.ascontiguousarray(a)),
        lambda a: pd.DataFrame(a, dtype=object),
        lambda a: pd.DataFrame(a.astype(int)),
        lambda a: pd.DataFrame(a, dtype="Float64"),
        lambda a: pd.DataFrame(a, dtype="Int64"),
        lambda a: pd.DataFrame(a, dtype="UInt8"),
        lambda a: pd.DataFrame(a).astype({0: "Int32", 1: np.float64, 2: "Float64"}),
        lambda a: pd.DataFrame(a).astype(pd.SparseDtype(float, 0.0)),
    ],
    ids=[
        "objects", "int objects", "tuples", "array.array", "memoryview", "object frame",
        "int frame", "Float64", "Int64", "UInt8", "mixed frame", "sparse frame",
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:pandas.DataFrame with sparse columns")
def test_objects_and_frames_of_numbers_are_numbers_in_every_method(convert):
    assert_same_answers(convert(X), X, exact=False)


@pytest.mark.parametrize("dtype", ["Float64", "Float32", "Int64", "boolean"])
@pytest.mark.parametrize("missing", [pd.NA, None, np.nan])
def test_a_missing_value_in_a_nullable_frame_is_told_in_every_method(dtype, missing):
    frame = pd.DataFrame(X > 60.0 if dtype == "boolean" else X).astype(dtype)
    model = make(n_clusters=2).fit(frame)
    assert_array_equal(model.predict(frame), model.labels_)
    frame.iloc[4, 1] = missing
    for method in ("fit", "fit_predict", "fit_transform", *METHODS):
        with pytest.raises(ValueError, match="X contains NaN"):
            getattr(model, method)(frame)


def test_nullable_weights_are_weights_and_missing_ones_are_told():
    weights = pd.Series(WEIGHTS, dtype="Int64")
    model = make().fit(X, sample_weight=weights)
    reference = make().fit(X, sample_weight=WEIGHTS)
    assert_array_equal(model.cluster_centers_, reference.cluster_centers_)
    weights[5] = pd.NA
    with pytest.raises(ValueError, match="sample_weight"):
        make().fit(X, sample_weight=weights)


@pytest.mark.parametrize("entry", ["7", "seven", b"7", None, [7.0], 1j, pd.NA])
def test_an_object_that_is_no_number_is_refused_or_is_the_number_it_spells(entry):
    rows = X.astype(object)
    rows[2, 1] = entry
    if isinstance(entry, (str, bytes)) and len(entry) == 1:  # as in scikit-learn
        plain = X.copy()
        plain[2, 1] = 7.0
        assert_array_equal(make().fit(rows).labels_, make().fit(plain).labels_)
        return
    with pytest.raises((ValueError, TypeError)):
        make().fit(rows)


def test_more_features_than_rows_are_fine():
    rows = make_rows(d=400)[:6]
    model = make().fit(rows)
    assert_array_equal(model.labels_[:3], model.labels_[3:])
    assert len(set(model.labels_[:3])) == 3


# --- E12 ----------------------------------------------------------------------


class InterruptError(Exception):
    """What a callable start raises here."""


@pytest.mark.parametrize("error", [InterruptError, KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("kind", [np.array, np.asfortranarray, sparse.csr_array])
@pytest.mark.parametrize("factor", [1.0, 1e120])
def test_a_fit_that_is_broken_off_leaves_rows_weights_and_model_as_they_were(
    error, kind, factor
):
    calls = []

    def start(rows, n_clusters, random_state):
        if calls:
            raise error
        calls.append(n_clusters)
        return rows[:n_clusters].toarray() if sparse.issparse(rows) else rows[:3]

    rows, weights = kind(X * factor), WEIGHTS.astype(float)
    stored = rows.data if sparse.issparse(rows) else rows
    before = stored.tobytes(), weights.tobytes()
    model = make(init=start, n_init=2)
    with pytest.raises(error):
        model.fit(rows, sample_weight=weights)
    assert calls == [3]
    assert (stored.tobytes(), weights.tobytes()) == before
    assert not [name for name in vars(model) if name.endswith("_")]
    model.set_params(init="k-means++").fit(rows)
    centres = model.cluster_centers_.copy()
    with pytest.raises(error):
        model.set_params(init=start).fit(rows * 2.0)
    assert_array_equal(model.cluster_centers_, centres)
    assert_array_equal(model.predict(rows), model.labels_)


def test_a_start_that_writes_into_its_rows_does_not_write_into_the_callers():
    rows = X.copy()
    rows.setflags(write=False)

    def start(given, n_clusters, random_state):
        with pytest.raises(ValueError, match="read-only"):
            given[0] = 0.0
        return given[:n_clusters]

    make(init=start, n_init=1).fit(rows)
    assert_array_equal(rows, X)


# --- D5, E1, E12 --------------------------------------------------------------


@pytest.mark.parametrize("writeable", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("factor", [1.0, 1e20])
@pytest.mark.parametrize("d", [2, 20])
def test_the_arrays_of_the_caller_are_never_written(writeable, dtype, factor, d):
    X = (clear_blobs(d=d) * factor).astype(dtype)
    weights, init = np.linspace(0.5, 2.0, 40), X[[0, -1]].copy()
    copies = [part.copy() for part in (X, weights, init)]
    for part in X, weights, init:
        part.setflags(write=writeable)
    model = make(n_clusters=2, init=init).fit(X, sample_weight=weights)
    for method in METHODS:
        getattr(model, method)(X)
    model.score(X, sample_weight=weights)
    for part, kept in zip((X, weights, init), copies, strict=True):
        assert part.tobytes() == kept.tobytes()


def test_memmapped_rows_are_fine_in_every_method(tmp_path):
    np.save(tmp_path / "rows.npy", B)
    X = np.load(tmp_path / "rows.npy", mmap_mode="r")
    model = make(n_clusters=2).fit(X)
    assert_split(model.labels_)
    for method in METHODS:
        assert_array_equal(getattr(model, method)(X), getattr(model, method)(B))


def test_zero_strides_and_transposed_views_are_fine():
    row = np.array([1.0, 2.0])
    with pytest.warns(ConvergenceWarning):
        model = make(n_clusters=2).fit(np.broadcast_to(row, (10, 2)))
    assert_array_equal(model.cluster_centers_, [row, row])
    transposed = make(n_clusters=2).fit(np.ascontiguousarray(B.T).T)
    assert_array_equal(
        transposed.cluster_centers_, make(n_clusters=2).fit(B).cluster_centers_
    )


def test_missing_values_of_nullable_columns_are_told():
    frame = pd.DataFrame(B).convert_dtypes()
    assert_split(make(n_clusters=2).fit(frame).labels_)
    frame.iloc[3, 1] = pd.NA
    with pytest.raises(ValueError, match=r"NaN|missing"):
        make(n_clusters=2).fit(frame)
