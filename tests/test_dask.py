"""Rows in Dask collections, on Dask's own scheduler and on workers that die."""

# SPDX-License-Identifier: BSD-3-Clause

import contextlib
import os
import pickle
import signal
import threading
import time

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks
from test_common import FIXED_START, expected_failures

from skrbfkmeans import RBFKMeans as LocalRBFKMeans
from skrbfkmeans._engine.rows import Rows
from skrbfkmeans._engine.steps import Moments
from skrbfkmeans.schedules import Constant, Cyclic, Geometric

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

from skrbfkmeans.dask import RBFKMeans, _carriers, _chunks  # noqa: E402

pytestmark = pytest.mark.compiled

X = make_blobs(3000, 4, centers=12, cluster_std=3.0, random_state=0)[0]
WEIGHTS = np.random.default_rng(1).integers(0, 4, len(X)).astype(float)
START = X[:12]


@pytest.fixture(autouse=True)
def own_scheduler():
    """Tests run on Dask's own scheduler unless they ask for workers."""
    with dask.config.set(scheduler="sync"):
        yield


@contextlib.contextmanager
def two_workers():
    """A client of two worker processes."""
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address=":0",
            silence_logs=50,
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def client():
    with two_workers() as client:
        yield client


@pytest.fixture
def mortal_client():
    """Its workers may be killed."""
    with two_workers() as client:
        yield client


def fits(chunks, client=None, weights=None, X=X, **parameters):
    """A plain fit and one in chunks, from the same start."""
    options = {"n_clusters": 12, "init": START, "random_state": 0, **parameters}
    plain = LocalRBFKMeans(**options).fit(X, sample_weight=weights)
    if not isinstance(X, da.Array):
        X = da.from_array(X, chunks=chunks)
    return plain, RBFKMeans(**options, client=client).fit(X, sample_weight=weights)


def assert_same(plain, chunked, tolerance=1e-9):
    scale = np.abs(plain.cluster_centers_).max()
    np.testing.assert_allclose(
        chunked.cluster_centers_, plain.cluster_centers_, rtol=0, atol=tolerance * scale
    )
    np.testing.assert_array_equal(chunked.labels_, plain.labels_)
    np.testing.assert_allclose(chunked.inertia_, plain.inertia_, rtol=tolerance)
    np.testing.assert_allclose(chunked.sigma_, plain.sigma_, rtol=tolerance)
    assert chunked.cluster_centers_.dtype == plain.cluster_centers_.dtype
    assert chunked.hardened_ == plain.hardened_
    assert chunked.n_iter_ == plain.n_iter_
    for name in "sigma", "free_energy", "inertia", "shift", "soft_fraction", "support":
        values = plain.history_[name]
        np.testing.assert_allclose(
            chunked.history_[name], values, rtol=1e-6, atol=1e-6 * scale
        )


# --- the same as on one machine ----------------------------------------------


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


# --- starts and swaps --------------------------------------------------------


def test_few_rows_are_all_in_the_sample():
    plain = LocalRBFKMeans(12, random_state=0).fit(X)
    blocks = da.from_array(X, chunks=(700, 4))
    assert_same(plain, RBFKMeans(12, random_state=0).fit(blocks))
    plain = LocalRBFKMeans(12, init="random", n_init=3, refine=None, random_state=1)
    chunked = RBFKMeans(12, init="random", n_init=3, refine=None, random_state=1)
    assert_same(plain.fit(X), chunked.fit(blocks))


def test_swaps_on_some_rows_help_all(monkeypatch):
    monkeypatch.setattr(_chunks, "LEAST_SAMPLED", 600)
    monkeypatch.setattr(_chunks, "SAMPLED_ROWS", 20)
    rows = make_blobs(6000, 2, centers=40, cluster_std=0.2, random_state=3)[0]
    blocks = da.from_array(rows, chunks=(999, 2))
    without = RBFKMeans(40, refine=None, random_state=0).fit(blocks)
    model = RBFKMeans(40, random_state=0).fit(blocks)
    best = LocalRBFKMeans(40, random_state=0).fit(rows).inertia_
    assert without.inertia_ > 1.1 * best
    assert model.inertia_ < 1.01 * best
    assert model.hardened_
    assert model.history_["swaps_kept"].sum() > 0
    assert model.n_iter_ == len(model.history_["sigma"])


def test_swaps_that_do_not_help_all_are_not_kept(monkeypatch):
    def spoil(rows, run, centers, n_kept, **options):
        return go_on(rows, run, centers + 50.0, n_kept, **{**options, "max_iter": 1})

    from skrbfkmeans._run import refinement

    go_on = refinement.go_on
    blocks = da.from_array(X, chunks=(700, 4))
    options = {"init": START, "random_state": 0}
    without = RBFKMeans(12, **options).fit(blocks)
    monkeypatch.setattr(refinement, "go_on", spoil)
    model = RBFKMeans(12, refine=20, **options).fit(blocks)
    assert model.inertia_ == without.inertia_
    assert model.history_["swaps_kept"].sum() == 0


def gathered(rows, weights=None, chunks=700):
    model = RBFKMeans(12)
    blocks = da.from_array(rows, chunks=(chunks, rows.shape[1]))
    rows = model._gather_rows(blocks, weights, reset=True)
    rows.choose_units()
    return rows


def test_chunks_measure_what_all_rows_measure():
    ordered = X[np.argsort(X[:, 0])] + 1e4  # means that differ from chunk to chunk
    for weights in None, WEIGHTS:
        chunked = gathered(ordered, weights)
        variances = chunked.measure()
        with Rows(ordered, weights) as rows:
            np.testing.assert_allclose(variances, rows.measure(), rtol=1e-9)
            np.testing.assert_allclose(chunked.mean, rows.mean, rtol=1e-13)
            np.testing.assert_array_equal(chunked.box, rows.box)
            assert chunked.weight == pytest.approx(rows.weight)
            scatter = chunked.scatter(chunked.mean)
            np.testing.assert_allclose(scatter, rows.scatter(rows.mean), atol=1e-6)


def test_a_sample_has_one_row_of_each_part_whatever_the_chunks(monkeypatch):
    monkeypatch.setattr(_chunks, "LEAST_SAMPLED", 100)
    monkeypatch.setattr(_chunks, "SAMPLED_ROWS", 10)
    numbers = np.arange(3000.0)[:, np.newaxis]
    samples = [
        gathered(numbers, chunks=chunks).sample(12, np.random.RandomState(0))
        for chunks in (3000, 700, 13)
    ]
    for sample in samples:
        np.testing.assert_array_equal(sample.X, samples[0].X)
        assert sample.is_unweighted
    np.testing.assert_array_equal(samples[0].X[:, 0] // 25, np.arange(120))


def test_rows_are_drawn_by_their_weights(monkeypatch):
    monkeypatch.setattr(_chunks, "LEAST_SAMPLED", 200)
    monkeypatch.setattr(_chunks, "SAMPLED_ROWS", 10)
    numbers, weights = np.arange(3000.0)[:, np.newaxis], np.ones(3000)
    weights[:1500], weights[2000] = 0.0, 1500.0
    sample = gathered(numbers, weights).sample(12, np.random.RandomState(0))
    drawn = sample.X[:, 0]
    assert len(np.unique(drawn)) == len(drawn)
    assert sample.weights.sum() == 200.0
    assert drawn.min() >= 1500.0
    assert abs(sample.weights[drawn == 2000.0] - 100) <= 1


def test_a_sample_has_enough_rows_even_if_one_weighs_all(monkeypatch):
    monkeypatch.setattr(_chunks, "LEAST_SAMPLED", 100)
    monkeypatch.setattr(_chunks, "SAMPLED_ROWS", 10)
    weights = np.full(len(X), 1e-9)
    weights[7] = 1.0
    for init in "random", "k-means++":
        model = RBFKMeans(12, init=init, random_state=0)
        model.fit(da.from_array(X, chunks=(700, 4)), sample_weight=weights)
        assert len(np.unique(model.labels_)) == 12


@pytest.mark.parametrize("where", [0, 2, 5])
def test_empty_chunks_take_no_weights_away(where):
    blocks = [da.from_array(X[i : i + 600], 600) for i in range(0, 3000, 600)]
    weights = [da.from_array(WEIGHTS[i : i + 600], 600) for i in range(0, 3000, 600)]
    none = da.ones(5, chunks=5)
    none = none[none < 0.0]
    blocks.insert(where, none[:, np.newaxis] * np.zeros((1, 4)))
    weights.insert(where, none)
    plain = LocalRBFKMeans(12, random_state=0).fit(X, sample_weight=WEIGHTS)
    chunked = RBFKMeans(12, random_state=0).fit(
        da.concatenate(blocks, allow_unknown_chunksizes=True),
        sample_weight=da.concatenate(weights, allow_unknown_chunksizes=True),
    )
    assert_same(plain, chunked)


def test_the_callable_is_given_the_collection():
    def first(X, n_clusters, random_state):
        assert isinstance(X, da.Array)
        return X[:n_clusters]

    blocks = da.from_array(X, chunks=(700, 4))
    chunked = RBFKMeans(12, init=first, n_init=1, refine=None).fit(blocks)
    assert_same(LocalRBFKMeans(12, init=START).fit(X), chunked)


# --- collections -------------------------------------------------------------


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


def test_to_local_is_the_plain_estimator():
    blocks = da.from_array(X, chunks=(700, 4))
    model = RBFKMeans(12, alpha=2.0, random_state=0).fit(blocks)
    local = model.to_local()
    assert type(local) is LocalRBFKMeans
    np.testing.assert_array_equal(local.predict(X), model.labels_)
    np.testing.assert_array_equal(
        local.predict_proba(X), model.predict_proba(blocks).compute()
    )
    assert local.score(X) == pytest.approx(-local.inertia_)
    assert local.get_params() == {
        name: value for name, value in model.get_params().items() if name != "client"
    }
    local.partial_fit(X[:100])


def test_batches_that_fail_are_not_remembered():
    spoilt = X.copy()
    spoilt[2500, 2] = np.nan
    model = RBFKMeans(12, random_state=0).partial_fit(da.from_array(X[:500], 500))
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit(da.from_array(spoilt, chunks=(700, 4)))
    model.to_local().partial_fit(X[:100])
    assert model.n_steps_ == 1
    assert sum(len(rows) for rows, _ in model._stream.young) == 500


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


# --- what is wrong is said ---------------------------------------------------


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


def test_collections_that_are_no_tables_are_refused():
    bag = pytest.importorskip("dask.bag").from_sequence([1, 2, 3])
    model = RBFKMeans(12, random_state=0).fit(X)
    for method in "fit", "predict", "predict_proba", "transform", "score":
        with pytest.raises(ValueError, match="must be a Dask array or data frame"):
            getattr(model, method)(bag)
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


# --- what stays with the chunks ----------------------------------------------


def test_moments_add_up_about_any_origins(rng):
    k, d = 3, 2
    centers, rows = X[:k, :d], X[:, :d]
    whole = Rows(rows)
    parts = [Rows(rows[:100]), Rows(rows[100:])]
    with whole, parts[0], parts[1]:
        whole.measure()
        expected = whole.e_step(1.5)(centers, 2.0)
        moments = []
        for part in parts:
            part.box = whole.box
            moments.append(part.e_step(1.5)(centers, 2.0))
    moved = moments[1]
    moved = Moments(moved.origins + 5.0, moved.sums - 5.0 * moved.masses[:, None],
                    moved.masses, moved.totals)  # fmt: skip
    added, mark = _chunks.add_shares([(None, 1), (moments[0], 2), (moved, 4)])
    np.testing.assert_allclose(added.masses, expected.masses)
    np.testing.assert_allclose(added.means(slice(None)), expected.means(slice(None)))
    np.testing.assert_allclose(added.free_energy, expected.free_energy)
    assert mark == 7
    assert _chunks.add_shares([(None, 5)]) == (None, 5)


def take_steps(rows, model, n=3, disturb=lambda chunk: None):
    """Moments of n steps of k-means, with something done to the chunk in between."""
    units = _chunks.Units(np.dtype(float), np.dtype(float), 0, 0)
    chunk = _chunks.check(model, 0, rows, None)
    box = rows.min(axis=0), rows.max(axis=0)
    steps = []
    for step in range(n):
        turn = _chunks.Turn(0, step)
        steps.append(_chunks.share(chunk, units, turn, 1.5, box, rows[:12], 0.0)[0])
        chunk = disturb(chunk) or chunk
    return steps


def test_rows_whose_share_is_proved_are_left_alone_in_chunks_too():
    rows = np.concatenate([X] * 10)
    steps = take_steps(rows, LocalRBFKMeans(12).fit(X))
    assert steps[0].n_picked == len(rows)
    assert steps[1].n_picked < 0.1 * len(rows)
    assert [step.n_changed for step in steps] == [len(rows), 0.0, 0.0]


def turn_back(chunk):
    chunk.memory = _chunks.Turn(0, 5), chunk.memory[1]


@pytest.mark.parametrize(
    "disturb", [lambda chunk: pickle.loads(pickle.dumps(chunk)), turn_back]
)
def test_a_chunk_that_has_travelled_or_missed_a_step_begins_anew(disturb):
    steps = take_steps(X, LocalRBFKMeans(12).fit(X), disturb=disturb)
    assert [step.n_picked for step in steps] == [len(X)] * 3
    assert [step.n_changed for step in steps] == [len(X)] * 3


def test_a_fit_settles_though_its_chunks_forget(monkeypatch):
    def forget(chunk, *args):
        chunk.memory = None
        return share(chunk, *args)

    share = _chunks.share
    monkeypatch.setattr(_chunks, "share", forget)
    assert_same(*fits((700, 4)))


def test_answers_are_as_large_for_many_rows_as_for_few():
    model = LocalRBFKMeans(12).fit(X)
    sizes = [len(pickle.dumps(take_steps(X[:n], model)[-1])) for n in (200, 3000)]
    assert sizes[0] == sizes[1] < 2000


def test_chunks_in_memory_are_asked_together_and_every_thread_is_busy():
    groups = _carriers._in_groups(list(range(10)), [100] * 10, 4, 1e9)
    assert [i for group in groups for i in group] == list(range(10))
    assert len(groups) == 4
    assert _carriers._in_groups([3, 5, 8], [10] * 9, 1, np.inf) == [[3, 5, 8]]


def test_large_chunks_are_not_brought_into_memory_together():
    assert _carriers._in_groups([3, 5, 8], [10] * 9, 1, 50) == [[3], [5], [8]]
    assert _carriers._in_groups([3, 5, 8], [10] * 9, 1, 60) == [[3, 5, 8]]


# --- workers -----------------------------------------------------------------


@pytest.mark.parametrize("parameters", [{}, {"alpha": 1.0}, {"schedule": 2.0}], ids=str)
def test_workers_find_what_one_machine_finds(client, parameters):
    plain, chunked = fits((500, 2), client, WEIGHTS, **parameters)
    assert_same(plain, chunked)
    plain, chunked = fits((500, 4), client, init="k-means++", **parameters)
    assert_same(plain, chunked)
    blocks = da.from_array(X, chunks=(500, 4))
    assert chunked.score(blocks) == -chunked.inertia_
    lazy = client.compute(chunked.predict(blocks)).result()
    np.testing.assert_array_equal(lazy, chunked.labels_)


def test_the_default_client_is_found_and_may_be_overruled(client):
    model = RBFKMeans()
    assert model._find_client() is None
    with dask.config.set(scheduler=client):
        assert model._find_client() is client
    with client.as_current(), dask.config.set(scheduler=None):
        assert model._find_client() is client
    assert RBFKMeans(client=client)._find_client() is client


def test_large_arguments_are_sent_once(client, monkeypatch):
    monkeypatch.setattr(_carriers, "LARGE", 0)
    assert_same(*fits((500, 4), client))


def fit_in_a_task(chunks):
    blocks = da.from_array(X, chunks=(chunks, 4))
    model = RBFKMeans(12, init=START, random_state=0).fit(blocks)
    return model.inertia_, -model.score(blocks)


def test_fits_inside_tasks_do_not_wait_for_each_other(client):
    futures = client.map(fit_in_a_task, [500, 600, 700])
    expected = LocalRBFKMeans(12, init=START, random_state=0).fit(X).inertia_
    for future in futures:
        np.testing.assert_allclose(future.result(timeout=100), expected)


def test_weights_in_memory_are_cut_by_the_client_too(client):
    blocks = client.persist(da.from_array(X, chunks=(500, 4)))
    blocks = blocks[blocks[:, 0] < np.inf]  # of unknown sizes
    model = RBFKMeans(12, init=START, random_state=0, client=client)
    plain = LocalRBFKMeans(12, init=START, random_state=0)
    plain.fit(X, sample_weight=WEIGHTS)
    assert_same(plain, model.fit(blocks, sample_weight=WEIGHTS))


def test_a_client_that_is_none_is_named():
    with pytest.raises(ValueError, match="client must be a"):
        RBFKMeans(client="tcp://somewhere").fit(da.from_array(X, chunks=(500, 4)))


def test_a_client_is_kept_by_clones_and_left_behind_by_pickles(client):
    model = RBFKMeans(5, client=client)
    assert clone(model).client is client
    assert pickle.loads(pickle.dumps(model)).client is None
    assert "client" not in model.to_local().get_params()
    assert model.client is client


def test_what_workers_object_to_reaches_the_user(client):
    spoilt = X.copy()
    spoilt[2500, 2] = np.inf
    model = RBFKMeans(12, client=client)
    with pytest.raises(ValueError, match="X contains infinity"):
        model.fit(da.from_array(spoilt, chunks=(500, 4)))
    assert not hasattr(model, "labels_")


def kill_one(client):
    """Kill a worker that holds something; another takes its place after a while."""
    pids = client.run(os.getpid)
    busy = max(client.has_what().items(), key=lambda item: len(item[1]))[0]
    os.kill(pids[busy], signal.SIGKILL)


@pytest.mark.parametrize(("at", "is_at_work"), [(1, True), (9, False)])
def test_a_fit_survives_the_death_of_a_worker(
    mortal_client, monkeypatch, at, is_at_work
):
    n_passes = 0
    ask = _carriers.Workers._ask

    def ask_and_kill(self, *args):
        nonlocal n_passes
        n_passes += 1
        if n_passes == at and not is_at_work:
            kill_one(mortal_client)
        asked = ask(self, *args)
        if n_passes == at and is_at_work:
            kill_one(mortal_client)
        return asked

    monkeypatch.setattr(_carriers.Workers, "_ask", ask_and_kill)
    monkeypatch.setattr(_carriers, "LOOK", 0.2)
    plain, chunked = fits((500, 4), mortal_client, WEIGHTS)
    assert n_passes > at
    assert_same(plain, chunked)


def fit_for_ever(model, blocks):
    while True:
        model.fit(blocks)


def test_chunks_that_are_lost_for_good_end_in_an_error(mortal_client, monkeypatch):
    monkeypatch.setattr(_carriers, "LOOK", 0.2)
    parts = mortal_client.scatter([X[:1500], X[1500:]])
    blocks = da.concatenate(
        [da.from_delayed(dask.delayed(part), (1500, 4), float) for part in parts]
    )
    model = RBFKMeans(12, init=START, client=mortal_client).fit(blocks)
    before = model.to_local()
    timer = threading.Timer(0.3, kill_one, [mortal_client])
    timer.start()
    with pytest.raises(RuntimeError, match="could not be computed anew"):
        fit_for_ever(model, blocks)
    timer.join()
    assert_same(model.to_local(), before)


def test_a_fit_without_workers_ends_in_an_error(monkeypatch):
    monkeypatch.setattr(_carriers, "LOOK", 0.1)
    monkeypatch.setattr(_carriers, "PATIENCE", 0.5)
    with (
        distributed.LocalCluster(
            n_workers=0, processes=False, dashboard_address=":0", silence_logs=50
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        start = time.monotonic()
        with pytest.raises(RuntimeError, match="no workers"):
            RBFKMeans(12, client=client).fit(da.from_array(X, chunks=(500, 4)))
        assert time.monotonic() - start < 30.0
    with pytest.raises(RuntimeError, match="closed"):
        RBFKMeans(12, client=client).fit(da.from_array(X, chunks=(500, 4)))


# --- scikit-learn ------------------------------------------------------------


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
