"""Rows in Dask collections, on Dask's own scheduler."""

# SPDX-License-Identifier: BSD-3-Clause

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks
from test_common import FIXED_START, expected_failures

from skrbfkmeans import RBFKMeans as LocalRBFKMeans
from skrbfkmeans.schedules import Constant, Cyclic, Geometric

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

from dask_helpers import START, WEIGHTS, X, assert_same, fits  # noqa: E402

from skrbfkmeans.dask import RBFKMeans  # noqa: E402

pytestmark = [pytest.mark.compiled, pytest.mark.usefixtures("own_scheduler")]


# --- the same as on one machine -----------------------------------------------


@pytest.mark.parametrize("chunks", [(3000, 4), (333, 1), ((1, 2998, 1), 4)])
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"alpha": 1.0},
        {"alpha": 2.0, "schedule": Geometric(harden=False)},
        {"schedule": 2.5, "learning_rate": 0.7},
        {"schedule": [4.0, 2.0, 1.0, 0.0]},
        {"schedule": Cyclic(n_cycles=2)},
        {"schedule": Constant(unit="critical"), "max_iter": 20},
        {"refine": 10},
    ],
    ids=str,
)
def test_centres_and_labels_do_not_depend_on_the_chunks(chunks, parameters):
    assert_same(*fits(chunks, **parameters))


@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_weights_count_as_on_one_machine(alpha):
    assert_same(*fits((700, 4), weights=WEIGHTS, alpha=alpha))
    assert_same(*fits((700, 4), weights=WEIGHTS * 1e200, alpha=alpha))


def test_single_precision_stays_single():
    plain, chunked = fits((700, 4), X=X.astype(np.float32))
    assert chunked.cluster_centers_.dtype == np.float32
    assert_same(plain, chunked, 1e-6)


@pytest.mark.parametrize(
    "kind", [sparse.csr_matrix, sparse.csc_matrix, sparse.coo_array]
)
def test_blocks_may_be_sparse(kind):
    dense = np.where(X > 3.0, X, 0.0)
    plain = LocalRBFKMeans(12, init=dense[:12], random_state=0).fit(
        sparse.csr_matrix(dense)
    )
    blocks = da.from_array(dense, chunks=(800, 4)).map_blocks(kind)
    chunked = RBFKMeans(12, init=dense[:12], random_state=0).fit(blocks)
    assert_same(plain, chunked)
    np.testing.assert_array_equal(chunked.predict(blocks).compute(), plain.labels_)
    assert chunked.score(blocks) == pytest.approx(-plain.inertia_)


def test_sizes_of_chunks_may_be_unknown_and_chunks_empty():
    kept = X[X[:, 0] > -5.0]
    blocks = da.from_array(X[np.argsort(X[:, 0])], chunks=(500, 4))
    blocks = blocks[blocks[:, 0] > -5.0]  # the first chunks are empty now
    order = np.argsort(kept[:, 0])
    plain = LocalRBFKMeans(12, init=START, random_state=0).fit(kept[order])
    weights = np.ones(len(kept))
    for sample_weight in None, weights, da.ones(3000, chunks=500), 2.0:
        if isinstance(sample_weight, da.Array):
            sample_weight = sample_weight[da.from_array(np.sort(X[:, 0]) > -5.0, 500)]
        chunked = RBFKMeans(12, init=START, random_state=0)
        chunked.fit(blocks, sample_weight=sample_weight)
        if sample_weight is None:
            assert_same(plain, chunked)
        np.testing.assert_array_equal(chunked.labels_, plain.labels_)
    for method in "predict", "predict_proba", "transform":
        lazy = getattr(chunked, method)(blocks).compute()
        np.testing.assert_allclose(lazy, getattr(plain, method)(kept[order]), atol=1e-9)
    lazy = chunked.set_params(features="responsibility", sparse_output=True)
    assert sparse.issparse(lazy.transform(blocks).compute())


def test_an_empty_centre_gets_the_row_that_costs_most_of_all_chunks():
    init = np.concatenate([START[:9], np.full((3, 4), 1e4)])
    init[-3:, 0] += [0.0, 1.0, 2.0]
    plain, chunked = fits((250, 4), init=init, weights=WEIGHTS, schedule=0.0)
    assert_same(plain, chunked)
    assert len(np.unique(chunked.labels_)) == 12


@pytest.mark.parametrize("scale", [1e150, 1e-170, 1e-280])
def test_data_of_any_size(scale):
    plain, chunked = fits((700, 4), X=X * scale, init=START * scale)
    assert_same(plain, chunked)
    blocks = da.from_array(X * scale, chunks=(700, 4))
    assert chunked.score(blocks) == pytest.approx(-chunked.inertia_, rel=1e-12)
    np.testing.assert_array_equal(chunked.predict(blocks).compute(), chunked.labels_)


def test_an_inertia_out_of_range_is_an_error():
    for scale, dtype in (1e165, "f8"), (1e200, "f8"):
        blocks = da.from_array((X * scale).astype(dtype), chunks=(700, 4))
        model = RBFKMeans(12, init=START * scale, schedule=0.0)
        with pytest.raises(ValueError, match="range of float64"):
            model.fit(blocks)
        assert not hasattr(model, "cluster_centers_")


def test_labels_and_inertia_are_those_of_predict_and_score():
    blocks = da.from_array(X, chunks=(700, 2))
    model = RBFKMeans(12, random_state=0).fit(blocks, sample_weight=WEIGHTS)
    assert isinstance(model.labels_, np.ndarray)
    assert isinstance(model.cluster_centers_, np.ndarray)
    np.testing.assert_array_equal(model.predict(blocks).compute(), model.labels_)
    assert model.score(blocks, sample_weight=WEIGHTS) == -model.inertia_
    assert model.labels_.dtype == np.int32
    assert model.n_features_in_ == 4
    assert model.fit_predict(blocks).shape == (3000,)
    assert isinstance(model.fit_transform(blocks), da.Array)


def test_too_few_distinct_rows_are_told():
    blocks = da.from_array(np.repeat(X[:5], 40, axis=0), chunks=(40, 4))
    with pytest.warns(ConvergenceWarning, match="only 5 distinct rows"):
        model = RBFKMeans(8, random_state=0).fit(blocks)
    assert len(np.unique(model.labels_)) == 5
    assert model.inertia_ == 0.0


# --- collections --------------------------------------------------------------


def test_frames_have_names_and_arrays_need_not():
    frame = pd.DataFrame(X, columns=list("abcd"))
    lazy = pytest.importorskip("dask.dataframe").from_pandas(frame, npartitions=3)
    plain = LocalRBFKMeans(12, init=START).fit(frame)
    model = RBFKMeans(12, init=START).fit(lazy, sample_weight=lazy["a"] * 0.0 + 1.0)
    np.testing.assert_array_equal(model.labels_, plain.labels_)
    np.testing.assert_array_equal(model.feature_names_in_, list("abcd"))
    for method in "predict", "predict_proba", "transform":
        result = getattr(model, method)(lazy)
        assert isinstance(result, da.Array)
        np.testing.assert_allclose(
            result.compute(), getattr(plain, method)(frame), atol=1e-9
        )
    with pytest.raises(ValueError, match="feature names"):
        model.predict(lazy[["b", "a", "c", "d"]])
    assert model.score(lazy) == pytest.approx(-model.inertia_)


def test_predictions_are_lazy():
    def fail(block):
        raise AssertionError("computed")

    blocks = da.from_array(X, chunks=(700, 4))
    model = RBFKMeans(12, random_state=0).fit(blocks)
    late = blocks.map_blocks(fail, meta=np.empty((0, 0)))
    for method, width in (
        ("predict", ()),
        ("predict_proba", (12,)),
        ("transform", (12,)),
    ):
        lazy = getattr(model, method)(late)
        assert lazy.shape == (3000, *width)
        with pytest.raises(AssertionError, match="computed"):
            lazy.compute()
    size = len(pickle.dumps(dict(model.predict(blocks).dask)))
    assert size < 2 * blocks.nbytes  # and what was fitted does not travel along
    twice = RBFKMeans(12, random_state=0).fit(da.concatenate([blocks] * 2))
    assert len(pickle.dumps(twice._predictor())) == len(
        pickle.dumps(model._predictor())
    )


def test_dtypes_are_those_of_the_results():
    blocks = da.from_array(X, chunks=(700, 4))
    model = RBFKMeans(12, random_state=0).fit(blocks)
    for dtype in "f4", "f8", "i8":
        for method in "predict", "predict_proba", "transform":
            lazy = getattr(model, method)(blocks.astype(dtype))
            assert lazy.dtype == lazy.compute().dtype


def test_batches_are_the_chunks():
    blocks = da.from_array(X, chunks=(700, 4))
    plain, chunked = LocalRBFKMeans(12, random_state=0), RBFKMeans(12, random_state=0)
    for start in range(0, 3000, 700):
        plain.partial_fit(X[start : start + 700], sample_weight=WEIGHTS[start:][:700])
    chunked.partial_fit(blocks, sample_weight=WEIGHTS)
    np.testing.assert_array_equal(chunked.cluster_centers_, plain.cluster_centers_)
    assert chunked.n_steps_ == 5


def test_batches_that_fail_are_not_remembered():
    spoilt = X.copy()
    spoilt[2500, 2] = np.nan
    model = RBFKMeans(12, random_state=0).partial_fit(da.from_array(X[:500], 500))
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit(da.from_array(spoilt, chunks=(700, 4)))
    model.to_local().partial_fit(X[:100])
    assert model.n_steps_ == 1
    assert sum(len(batch.X) for batch in model._stream.young) == 500


def test_set_output_does_not_compute_collections():
    blocks = da.from_array(X, chunks=(700, 4))
    model = RBFKMeans(12, random_state=0).fit(blocks).set_output(transform="pandas")
    with pytest.raises(ValueError, match="set_output is not for Dask"):
        model.transform(blocks)
    assert isinstance(model.transform(X), pd.DataFrame)
    lazy = model.set_output(transform="default").transform(blocks.rechunk(3000))
    with sklearn.config_context(transform_output="pandas"):  # of who computes
        assert isinstance(lazy.compute(), np.ndarray)


def test_arrays_in_memory_are_left_to_the_plain_estimator():
    plain = LocalRBFKMeans(12, random_state=0).fit(X, sample_weight=WEIGHTS)
    model = RBFKMeans(12, random_state=0).fit(X, sample_weight=WEIGHTS)
    np.testing.assert_array_equal(model.cluster_centers_, plain.cluster_centers_)
    for method in "predict", "predict_proba", "transform":
        np.testing.assert_array_equal(
            getattr(model, method)(X), getattr(plain, method)(X)
        )
    assert model.score(X, sample_weight=WEIGHTS) == -model.inertia_


# --- what is wrong is said ----------------------------------------------------


def test_what_is_wrong_with_one_chunk_is_told():
    spoilt = X.copy()
    spoilt[2500, 2] = np.nan
    for weights, rows, message in (
        (None, spoilt, "X contains NaN"),
        (-WEIGHTS, X, "sample_weight must not be negative"),
        (0.0 * WEIGHTS, X, "sample_weight is zero"),
        (WEIGHTS[:-1], X, "sample_weight.shape"),
        (WEIGHTS[:, np.newaxis], X, "sample_weight"),
        (da.from_array(WEIGHTS[:-1], 700), X, "sample_weight.shape"),
        (np.where(WEIGHTS > 2, np.nan, 1.0), X, "sample_weight contains NaN"),
        (None, X[:, 0], "X must be a 2-D Dask array"),
        (None, X[:7], "n_samples=7 should be >= n_clusters=12"),
        (None, np.array([["a", "b"]] * 20), "convert"),
    ):
        model = RBFKMeans(12, random_state=0)
        with pytest.raises(ValueError, match=message):
            model.fit(da.from_array(rows, chunks=700), sample_weight=weights)
        assert not hasattr(model, "labels_")


def kinds_of_collections():
    """One of each, and what is said of it."""
    frame = pytest.importorskip("dask.dataframe").from_pandas(
        pd.DataFrame({"a": np.ones(9), "b": np.ones(9)}), npartitions=3
    )
    bag = pytest.importorskip("dask.bag").from_sequence([1, 2, 3])
    return {
        "series": (frame["a"], r"it is a series.* frame\[\['a'\]\]"),
        "nameless": (frame["a"].rename(None), r"it is a series.* to_frame\(\)"),
        "scalar": (frame["a"].sum(), "Scalar"),
        "frame": (frame, "DataFrame"),
        "0-d": (da.ones(9, chunks=3).sum(), r"shape is \(\)"),
        "1-d": (da.ones(9, chunks=3), r"shape is \(9,\)"),
        "2-d": (da.ones((9, 2), chunks=3), r"shape is \(9, 2\)"),
        "3-d": (da.ones((9, 2, 2), chunks=3), r"shape is \(9, 2, 2\)"),
        "bag": (bag, "dask.bag.core.Bag"),
        "item": (bag.sum(), "dask.bag.core.Item"),
        "delayed": (dask.delayed(np.ones)((9, 2)), "dask.delayed.Delayed"),
    }


METHODS = "fit", "predict", "predict_proba", "transform", "score", "partial_fit"


@pytest.mark.parametrize("method", METHODS)
def test_collections_that_are_no_tables_are_refused(method):
    model = RBFKMeans(2, random_state=0).fit(X[:9, :2])
    for kind, (collection, said) in kinds_of_collections().items():
        if kind in ("frame", "2-d"):
            continue
        with pytest.raises(ValueError, match=f"(?s)X must be a .*{said}"):
            getattr(model, method)(collection)


@pytest.mark.parametrize("method", ["fit", "score", "partial_fit"])
def test_collections_that_are_no_columns_are_no_weights(method):
    kinds = kinds_of_collections()
    model = RBFKMeans(2, random_state=0)
    for rows in (da.from_array(X[:9, :2], chunks=3), kinds["frame"][0]):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # all rows are equal
            model.fit(rows)
        for kind, (collection, said) in kinds.items():
            if kind in ("series", "nameless", "1-d"):
                continue
            with pytest.raises(ValueError, match=f"sample_weight must be .*{said}"):
                getattr(model, method)(rows, sample_weight=collection)


def test_no_rows_have_no_score():
    model = RBFKMeans(12, random_state=0).fit(X)
    with pytest.raises(ValueError, match="no rows"):
        model.score(da.zeros((0, 4)))


def test_weights_of_unknown_chunks_must_be_cut_alike():
    blocks, weights = da.from_array(X, chunks=(700, 4)), da.ones(3000, chunks=3000)
    with pytest.raises(ValueError, match="sample_weight has 1 chunks, but X has 5"):
        RBFKMeans(12).fit(blocks[blocks[:, 0] < np.inf], sample_weight=weights)
    model = RBFKMeans(12, random_state=0).fit(blocks, sample_weight=weights)
    assert model.inertia_ == RBFKMeans(12, random_state=0).fit(blocks).inertia_


def test_other_features_than_in_fit_are_told_at_once():
    blocks = da.from_array(X, chunks=(700, 4))
    with pytest.raises(NotFittedError):
        RBFKMeans().predict(blocks)
    model = RBFKMeans(12, random_state=0).fit(blocks)
    for method in "predict", "predict_proba", "transform", "score":
        with pytest.raises(ValueError, match="3 features"):
            getattr(model, method)(blocks[:, :3])


# --- scikit-learn -------------------------------------------------------------


estimator = RBFKMeans(**FIXED_START)
checks = parametrize_with_checks([estimator], expected_failed_checks=expected_failures)
names, values = checks.args


@pytest.mark.parametrize(names, list(values), **checks.kwargs)
def test_the_estimator_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


WITHOUT_DASK = """
import sys
sys.modules["dask"] = None
import skrbfkmeans
try:
    import skrbfkmeans.dask
except ImportError as error:
    assert 'pip install "skrbfkmeans[dask]"' in str(error)
else:
    raise AssertionError
"""


def test_without_dask_its_module_tells_what_to_install(python):
    python(WITHOUT_DASK)
