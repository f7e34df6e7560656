"""Rows in batches: `partial_fit`."""

# SPDX-License-Identifier: BSD-3-Clause

import copy
import pickle
import tracemalloc

import naive
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.cluster import MiniBatchKMeans
from sklearn.datasets import make_blobs
from threadpoolctl import threadpool_limits

from skrbfkmeans import RBFKMeans
from skrbfkmeans.schedules import Cyclic, Geometric

X, _ = make_blobs(1000, 3, centers=8, cluster_std=2.0, random_state=0)
INIT = X[:4] + 0.5
WEIGHTS = np.random.default_rng(0).integers(0, 4, len(X)) / 2.0


def make(**parameters):
    return RBFKMeans(**{"n_clusters": 4, "random_state": 0, **parameters})


def streamed(model, rows, size, weights=None):
    """The model after all rows, in batches of a size."""
    for start in range(0, rows.shape[0], size):
        some = slice(start, start + size)
        w = None if weights is None else weights[some]
        model.partial_fit(rows[some], sample_weight=w)
    return model


def blobs(n_rows, seed=0):
    """Rows of a stationary stream of twelve clusters, that overlap a little."""
    return make_blobs(
        n_rows, 4, centers=np.random.default_rng(1).uniform(-10, 10, (12, 4)),
        cluster_std=1.5, random_state=seed,
    )[0]  # fmt: skip


# --- the step -----------------------------------------------------------------


@pytest.mark.parametrize("schedule", [2.0, [3.0, 2.0, 1.0], [3.0, 0.0], 0.0])
@pytest.mark.parametrize("alpha", [1.0, 1.25, 1.5, 2.0])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "weighted"])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_batches_are_absorbed_as_by_the_twin(schedule, alpha, weights, kind):
    model = make(init=INIT, schedule=schedule, alpha=alpha)
    rows = sparse.csr_matrix(X) if kind == "sparse" else X
    streamed(model, rows, 150, weights)
    sigmas = np.ravel(schedule)
    w = np.ones(len(X)) if weights is None else weights
    centers, masses = INIT.copy(), np.zeros(4)
    for t, start in enumerate(range(0, len(X), 150)):
        some = slice(start, start + 150)
        sigma = sigmas[min(t, len(sigmas) - 1)]
        naive.absorb(X[some], w[some], centers, masses, sigma, alpha)
    assert_allclose(model.cluster_centers_, centers, rtol=1e-11, atol=1e-11)
    assert model.n_steps_ == 7


@pytest.mark.parametrize("rate", [0.5, 1.7])
def test_soft_steps_are_as_long_as_the_learning_rate_says(rate):
    one = make(init=INIT, schedule=3.0).partial_fit(X)
    other = make(init=INIT, schedule=3.0, learning_rate=rate).partial_fit(X)
    moved = other.cluster_centers_ - INIT
    assert_allclose(moved, rate * (one.cluster_centers_ - INIT), atol=1e-12)


def test_a_first_batch_makes_the_step_that_fit_makes():
    for schedule in (3.0, 0.0, Geometric(unit="absolute", start=3.0, stop=1.0)):
        fitted = make(init=INIT, schedule=schedule, max_iter=1).fit(X)
        model = make(init=INIT, schedule=schedule).partial_fit(X)
        assert_allclose(model.cluster_centers_, fitted.cluster_centers_, rtol=1e-12)


def test_each_call_takes_the_next_temperature_and_then_the_last():
    schedule = Cyclic(unit="absolute", start=3.0, stop=1.0, n_steps=2, n_cycles=2)
    sigmas = [*schedule.multiples(), 0.0, 0.0]
    model, seen = make(init=INIT, schedule=schedule), []
    for _ in sigmas:
        seen.append(model.partial_fit(X).sigma_)
    hard = np.array(sigmas) == 0.0
    assert_array_equal(np.array(seen)[~hard], np.array(sigmas)[~hard])
    spread = np.sqrt(model.inertia_ / X.size)
    assert seen[-1] == pytest.approx(spread)


def test_a_centre_without_a_share_stays_where_it_is():
    init = np.vstack([INIT[:3], [[1e3, 0.0, 0.0]]])
    model = streamed(make(init=init, schedule=0.0), X, 100)
    assert_array_equal(model.cluster_centers_[3], init[3])
    assert 3 not in model.labels_


def test_the_order_of_hard_batches_matters_little_and_of_equal_ones_not_at_all():
    halves = X[:500], X[500:]
    one = streamed(make(init=INIT, schedule=3.0), X, 500)
    other = streamed(make(init=INIT, schedule=3.0), np.vstack(halves[::-1]), 500)
    spread = np.ptp(X, axis=0).max()
    assert_allclose(one.cluster_centers_, other.cluster_centers_, atol=0.05 * spread)


# --- the stream ---------------------------------------------------------------


@pytest.mark.parametrize("size", [20, 300, 5000])
@pytest.mark.parametrize("schedule", ["auto", 0.7])
def test_a_stationary_stream_ends_where_fit_does(size, schedule):
    rows = blobs(20_000)
    fitted = make(n_clusters=12, schedule=schedule).fit(rows)
    model = streamed(make(n_clusters=12, schedule=schedule), rows, size)
    assert -model.score(rows) < 1.01 * fitted.inertia_
    assert -model.score(blobs(20_000, seed=1)) < 1.02 * fitted.inertia_


def test_it_is_better_than_batches_of_kmeans():
    rows = make_blobs(20_000, 2, centers=40, center_box=(-20, 20), random_state=0)[0]
    ours = streamed(make(n_clusters=40), rows, 200)
    theirs = streamed(MiniBatchKMeans(40, random_state=0), rows, 200)
    assert ours.score(rows) > 0.95 * theirs.score(rows)


def test_a_young_stream_keeps_its_rows_and_an_old_one_does_not():
    model = make(n_clusters=2).partial_fit(X[:300])
    assert_array_equal(model._stream.young[0].X, X[:300])
    streamed(model, np.tile(X, (3, 1)), 500)
    assert model._stream.young == ()
    unrefined = make(n_clusters=2, refine=None).partial_fit(X[:300])
    assert unrefined._stream.young == ()


def test_rows_of_a_young_stream_may_be_overwritten_by_the_caller():
    buffer, model = np.empty((100, 3)), make()
    for start in range(0, 1000, 100):
        buffer[:] = X[start : start + 100]
        model.partial_fit(buffer)
    other = streamed(make(), X, 100)
    assert_array_equal(model.cluster_centers_, other.cluster_centers_)


@pytest.mark.slow
def test_ten_million_rows_leave_it_stable():
    rows = blobs(100_000)
    model = streamed(make(n_clusters=12), rows, 1000)
    settled = model.cluster_centers_.copy()
    for _ in range(99):
        model.partial_fit(rows)
    assert np.isfinite(model.cluster_centers_).all()
    assert_allclose(model.cluster_centers_, settled, atol=0.05)
    assert model.n_steps_ == 199
    assert -model.score(rows) < 1.001 * make(n_clusters=12).fit(rows).inertia_


def test_a_large_batch_after_small_ones_counts_them_all():
    rows = blobs(13_000)
    model = streamed(make(n_clusters=12), rows[:600], 100)
    model.partial_fit(rows[600:])
    assert model._stream.masses.sum() == pytest.approx(13_000)
    assert model._stream.young == ()
    assert -model.score(rows) < 1.001 * make(n_clusters=12).fit(rows).inertia_


def test_a_million_batches_of_one_row_would_leave_the_masses_finite():
    model = make(init=INIT, schedule=0.0).partial_fit(X)
    model._stream.masses *= 1e300  # as if so much had been seen
    before = model.cluster_centers_.copy()
    streamed(model, X[:50], 1)
    assert_array_equal(model.cluster_centers_, before)


# --- what it says of itself ---------------------------------------------------


@pytest.mark.parametrize("kind", ["float64", "float32", "sparse"])
@pytest.mark.parametrize("schedule", ["auto", 2.0])
def test_labels_and_inertia_are_those_of_the_last_batch(kind, schedule):
    rows = sparse.csr_matrix(X) if kind == "sparse" else X.astype(kind)
    model = make(schedule=schedule)
    for start in (0, 200, 450):
        some = slice(start, start + 250)
        model.partial_fit(rows[some], sample_weight=WEIGHTS[some])
        assert_array_equal(model.labels_, model.predict(rows[some]))
        assert model.inertia_ == -model.score(rows[some], sample_weight=WEIGHTS[some])
        assert model.cluster_centers_.dtype == rows.dtype
        assert not model.hardened_


def test_a_fit_can_be_gone_on_with():
    model = make(schedule=2.0, store_path=True).fit(X, sample_weight=WEIGHTS)
    centers, masses = model.cluster_centers_.copy(), model._stream.masses.copy()
    assert masses.sum() == pytest.approx(WEIGHTS.sum())
    model.partial_fit(X[:100])
    naive.absorb(X[:100], np.ones(100), centers, masses, 2.0, 1.5)
    assert_allclose(model.cluster_centers_, centers, rtol=1e-12)
    assert model.n_steps_ == 1
    assert not hasattr(model, "path_")
    assert not hasattr(model, "history_")


def test_a_fit_begins_anew():
    model = streamed(make(), X, 100)
    assert_array_equal(model.fit(X).cluster_centers_, make().fit(X).cluster_centers_)
    assert not hasattr(model, "n_steps_")
    assert set(vars(model)) == set(vars(make().fit(X)))


def test_every_number_of_threads_gives_the_same_bits():
    found = []
    for n_threads in (1, 2, 4):
        with threadpool_limits(n_threads):
            found.append(streamed(make(n_clusters=12), blobs(5000), 700))
    for model in found[1:]:
        assert_array_equal(model.cluster_centers_, found[0].cluster_centers_)


def test_a_copy_goes_on_alike():
    model = streamed(make(), X[:500], 100)
    other = copy.deepcopy(model)
    for each in (model, other):
        streamed(each, X[500:], 100)
    assert_array_equal(other.cluster_centers_, model.cluster_centers_)
    assert not hasattr(clone(model), "n_steps_")


def test_a_pickle_of_a_grown_stream_goes_on_alike():
    model = streamed(make(n_clusters=12), blobs(13_000), 1000)
    other = pickle.loads(pickle.dumps(model))
    for each in (model, other):
        streamed(each, blobs(300, seed=1), 100)
    assert_array_equal(other.cluster_centers_, model.cluster_centers_)


@pytest.mark.parametrize("kind", ["float64", "float32", "sparse"])
def test_no_row_leaves_with_a_pickle_and_the_loaded_stream_makes_online_steps(kind):
    rows = sparse.csr_matrix(X) if kind == "sparse" else X.astype(kind)
    model = make()
    for start in (0, 200):
        some = slice(start, start + 200)
        model.partial_fit(rows[some], sample_weight=WEIGHTS[some])
    assert sum(batch.X.shape[0] for batch in model._stream.young) == 400
    pickled = pickle.dumps(model)
    for row in X[:200].astype("f4" if kind == "float32" else "f8"):
        assert row.tobytes() not in pickled
    other = pickle.loads(pickled)
    centers, masses = model._stream.centers.copy(), model._stream.masses.copy()
    other.partial_fit(X[400:500])
    sigma = model._stream.sigma
    naive.absorb(X[400:500], np.ones(100), centers, masses, sigma, 1.5)
    assert_allclose(other.cluster_centers_, centers, rtol=1e-5)
    assert other._stream.young == ()


def test_a_stream_of_sparse_rows_with_many_features_is_young_for_as_many_rows():
    """Stored numbers count, not the zeros between them."""
    rows = sparse.random(3000, 10**5, density=2e-5, random_state=0, format="csr")
    model = make(n_clusters=2, random_state=0)
    for start in range(0, 1500, 500):
        model.partial_fit(rows[start : start + 500])
    assert sum(batch.X.shape[0] for batch in model._stream.young) == 1500
    model.partial_fit(rows[1500:])
    assert model._stream.young == ()


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("refine", ["auto", None])
def test_centres_that_were_sorted_stay_sorted_and_keep_their_masses(
    dtype, in_place, refine
):
    rows = X.astype(dtype)
    model, other = (streamed(make(refine=refine), rows[:500], 100) for _ in range(2))
    order = np.argsort(model.cluster_centers_[:, 0])[::-1]
    if in_place:
        model.cluster_centers_[:] = model.cluster_centers_[order]
    else:
        model.cluster_centers_ = model.cluster_centers_[order]
    for each in (model, other):
        each.partial_fit(rows[500:560])
    assert_allclose(
        model.cluster_centers_, other.cluster_centers_[order], rtol=1e-5, atol=1e-5
    )
    assert_allclose(model._stream.masses, other._stream.masses[order], rtol=1e-5)


def test_centres_that_were_changed_are_where_the_stream_goes_on():
    model = streamed(make(refine=None), X[:500], 100)
    masses, sigma = model._stream.masses.copy(), model._stream.sigma
    changed = model.cluster_centers_ + 0.5
    model.cluster_centers_ = changed.tolist()
    model.partial_fit(X[500:600])
    naive.absorb(X[500:600], np.ones(100), changed, masses, sigma, 1.5)
    assert_allclose(model.cluster_centers_, changed, rtol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c[:, :1], "cluster_centers_ has 1 features"),
        (lambda c: c * np.nan, "cluster_centers_ contains NaN"),
        (lambda c: c[:2], "n_clusters=4, but the batches so far"),
    ],
)
def test_changed_centres_that_are_no_centres_are_named(change, message):
    model = streamed(make(), X[:500], 100)
    model.cluster_centers_ = change(model.cluster_centers_)
    with pytest.raises(ValueError, match=message):
        model.partial_fit(X[500:600])


@pytest.mark.parametrize("weights", [np.zeros(2), np.zeros(500)])
def test_a_first_batch_of_no_weight_is_as_if_there_had_been_none(weights):
    model = make()
    before = dict(vars(model))
    frame = pd.DataFrame(X[: len(weights)], columns=list("abc"))
    assert model.partial_fit(frame, sample_weight=weights) is model
    assert vars(model) == before
    model.partial_fit(np.arange(50.0).reshape(10, 5))
    assert model.n_features_in_ == 5


EXTREME_WEIGHTS = {
    "of many magnitudes": 10.0 ** np.linspace(-12, 4, 1000)[::7][np.arange(1000) % 143],
    "denormal": (1.0 + np.arange(1000) % 9) * 2.0**-1070,
    "whose sum is out of range": (1.0 + np.arange(1000) % 9) * 2.0**1019,
}


@pytest.mark.parametrize("refine", ["auto", None])
@pytest.mark.parametrize("name", EXTREME_WEIGHTS)
def test_only_the_ratios_of_weights_count_in_streams(name, refine):
    weights = EXTREME_WEIGHTS[name]
    common = np.ldexp(weights, -np.frexp(weights.max())[1])
    rows, found = X * 1e-3, []
    for w in (weights, common):
        model = make(refine=refine)
        for start in range(0, 1000, 125):
            some = slice(start, start + 125)
            model.partial_fit(rows[some], sample_weight=w[some])
        found.append(model)
    assert_allclose(found[0].cluster_centers_, found[1].cluster_centers_, rtol=1e-12)
    assert found[0].sigma_ == pytest.approx(found[1].sigma_, rel=1e-9)
    assert 0.0 < found[0].sigma_ < np.inf
    assert np.isfinite(found[0]._stream.masses).all()


def test_a_batch_far_lighter_or_heavier_than_all_before_counts_by_its_weight():
    model = make(n_clusters=1, refine=None, init=[[0.0]], schedule=0.0)
    model.partial_fit([[1.0]], sample_weight=[1e300])
    model.partial_fit([[5.0]], sample_weight=[1e-300])
    assert_array_equal(model.cluster_centers_, [[1.0]])
    model.partial_fit([[3.0]], sample_weight=[1e300])
    assert_array_equal(model.cluster_centers_, [[2.0]])
    light = make(n_clusters=1, refine=None, init=[[0.0]], schedule=0.0)
    light.partial_fit([[1.0]], sample_weight=[1e-300])
    light.partial_fit([[5.0]], sample_weight=[1e300])
    assert_array_equal(light.cluster_centers_, [[5.0]])


# --- all kinds of batches -----------------------------------------------------


def test_a_first_batch_that_is_too_small_is_an_error_and_later_ones_are_not():
    model = make()
    with pytest.raises(ValueError, match="n_samples=3 should be >= n_clusters=4"):
        model.partial_fit(X[:3])
    assert not hasattr(model, "cluster_centers_")
    model.partial_fit(X[:4]).partial_fit(X[4:5])
    assert model.labels_.shape == (1,)


@pytest.mark.parametrize("fitted", ["not yet", "by batches", "by fit"])
def test_a_batch_of_zero_weight_changes_nothing(fitted):
    model = make()
    if fitted == "by batches":
        model.partial_fit(X)
    elif fitted == "by fit":
        model.fit(X)
    before = pickle.dumps(model)
    model.partial_fit(X[:50], sample_weight=np.zeros(50))
    if fitted == "not yet":
        assert not hasattr(model, "cluster_centers_")
    else:
        assert pickle.dumps(model) == before


@pytest.mark.parametrize("factor", [1e-300, 1e-30, 1e30, 1e300])
@pytest.mark.parametrize("init", [INIT, "k-means++"], ids=["array", "drawn"])
def test_only_the_ratios_of_weights_count(factor, init):
    one = streamed(make(init=init), X, 100, WEIGHTS)
    other = streamed(make(init=init), X, 100, WEIGHTS * factor)
    assert_allclose(other.cluster_centers_, one.cluster_centers_, rtol=1e-9)
    assert_allclose(other.inertia_ / factor, one.inertia_, rtol=1e-9)


@pytest.mark.parametrize("scale", [1e-120, 1e-30, 1e30, 1e120])
def test_the_scale_of_the_rows_does_not_matter(scale):
    one, other = streamed(make(), X, 100), streamed(make(), X * scale, 100)
    assert_allclose(other.cluster_centers_ / scale, one.cluster_centers_, rtol=1e-9)
    assert_allclose(other.sigma_ / scale, one.sigma_, rtol=1e-9)


def test_a_weight_of_two_is_a_row_given_twice():
    one = make(init=INIT).partial_fit(X[:200], sample_weight=np.full(200, 2.0))
    other = make(init=INIT).partial_fit(np.repeat(X[:200], 2, axis=0))
    assert_allclose(other.cluster_centers_, one.cluster_centers_, rtol=1e-12)


def test_float32_batches_lose_no_digit_over_many():
    rows = X.astype("f4") + np.float32(100.0)
    model = streamed(make(init=rows[:4], schedule=0.0), np.tile(rows, (50, 1)), 100)
    wide = streamed(
        make(init=rows[:4].astype("f8"), schedule=0.0),
        np.tile(rows, (50, 1)).astype("f8"), 100,
    )  # fmt: skip
    assert model.cluster_centers_.dtype == np.float32
    assert_allclose(model.cluster_centers_, wide.cluster_centers_, rtol=1e-6)


def test_precisions_and_kinds_may_be_mixed():
    model = make().partial_fit(X[:200])
    model.partial_fit(X[200:400].astype("f4"))
    assert model.cluster_centers_.dtype == np.float64  # as in the first batch
    model.partial_fit(sparse.csr_matrix(X[400:600]))
    model.partial_fit(X[600:800].tolist())
    model.partial_fit(np.asfortranarray(X[800:]))
    other = streamed(make(), X, 200)
    assert_allclose(model.cluster_centers_, other.cluster_centers_, rtol=1e-5)


def test_frames_keep_their_names():
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = make().partial_fit(frame[:500]).partial_fit(frame[500:])
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names"):
        model.partial_fit(frame[["c", "b", "a"]])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"X": X[:, :2]}, "features"),
        ({"X": np.where(X > 3.0, np.nan, X)}, "NaN"),
        ({"sample_weight": -np.ones(len(X))}, "sample_weight"),
        ({"sample_weight": np.ones(3)}, "sample_weight"),
        ({"n_clusters": 5}, "n_clusters=5"),
        ({"alpha": 0.5}, "alpha"),
    ],
)
def test_bad_batches_are_refused_and_change_nothing(bad, message):
    model = make().partial_fit(X)
    batch = {name: bad.pop(name) for name in ("X", "sample_weight") if name in bad}
    model.set_params(**bad)
    before = pickle.dumps(model)
    with pytest.raises(ValueError, match=message):
        model.partial_fit(**{"X": X, **batch})
    assert pickle.dumps(model) == before


def test_fewer_distinct_rows_than_clusters_do_no_harm():
    model = make()
    for _ in range(3):
        model.partial_fit(np.ones((10, 3)))
    assert_array_equal(model.cluster_centers_, np.ones((4, 3)))
    assert model.inertia_ == 0.0


# --- files --------------------------------------------------------------------


@pytest.mark.compiled
@pytest.mark.parametrize("refine", [None, "auto"])
@pytest.mark.parametrize("method", ["fit", "predict", "score", "partial_fit"])
def test_a_mapped_file_is_never_copied(method, refine, tmp_path):
    rows = np.random.default_rng(0).normal(size=(20_000, 400)).astype("f4")
    rows += 3.0 * np.eye(400, dtype="f4")[np.arange(20_000) % 5]
    rows.tofile(tmp_path / "rows.f4")
    mapped = np.memmap(tmp_path / "rows.f4", "f4", "r", shape=rows.shape)
    model = make(n_clusters=5, refine=refine).fit(rows[:100])  # compiles
    if method == "partial_fit":
        model = make(n_clusters=5, refine=refine)
    tracemalloc.start()
    try:
        getattr(model, method)(mapped)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.25 * mapped.nbytes
