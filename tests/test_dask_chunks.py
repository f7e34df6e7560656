"""What Dask's chunks keep and send: samples, moments, starts and swaps."""

# SPDX-License-Identifier: BSD-3-Clause

import contextlib
import pickle
import sys
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import make_blobs

from skrbfkmeans import RBFKMeans as LocalRBFKMeans
from skrbfkmeans._engine import passes
from skrbfkmeans._engine.rows import Candidate, Rows
from skrbfkmeans._engine.steps import EStep, Moments
from skrbfkmeans._engine.units import Units, numbers

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

from dask_helpers import START, WEIGHTS, X, assert_same, fits  # noqa: E402

from skrbfkmeans.dask import RBFKMeans, _carriers, _chunks  # noqa: E402

pytestmark = [pytest.mark.compiled, pytest.mark.usefixtures("own_scheduler")]


# --- starts and swaps ---------------------------------------------------------


def test_few_rows_are_all_in_the_sample():
    plain = LocalRBFKMeans(12, random_state=0).fit(X)
    blocks = da.from_array(X, chunks=(700, 4))
    assert_same(plain, RBFKMeans(12, random_state=0).fit(blocks))
    plain = LocalRBFKMeans(12, init="random", n_init=3, refine=None, random_state=1)
    chunked = RBFKMeans(12, init="random", n_init=3, refine=None, random_state=1)
    assert_same(plain.fit(X), chunked.fit(blocks))


def test_swaps_on_some_rows_help_all(monkeypatch):
    monkeypatch.setattr(passes, "LEAST_SAMPLED", 600)
    monkeypatch.setattr(passes, "SAMPLED_PER_CLUSTER", 20)
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
    def spoil(rows, run, centers, n_kept, settings, task):
        n_iter = len(run.history["sigma"]) + 1
        settings = replace(settings, max_iter=n_iter)
        return go_on(rows, run, centers + 50.0, n_kept, settings, task)

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
    return gathered_blocks(da.from_array(rows, chunks=(chunks, rows.shape[1])), weights)


def gathered_blocks(blocks, weights=None):
    rows = RBFKMeans(12)._gather_rows(blocks, weights, reset=True)
    rows.choose_units()
    return rows


def test_chunks_measure_what_all_rows_measure():
    ordered = X[np.argsort(X[:, 0])] + 1e4  # means that differ from chunk to chunk
    for weights in None, WEIGHTS:
        chunked = gathered(ordered, weights)
        variances = chunked.measures.variances
        with Rows(ordered, weights) as rows:
            np.testing.assert_allclose(variances, rows.measures.variances, rtol=1e-9)
            mean = rows.measures.mean
            np.testing.assert_allclose(chunked.measures.mean, mean, rtol=1e-13)
            np.testing.assert_array_equal(chunked.box, rows.box)
            assert chunked.weight == pytest.approx(rows.weight)
            np.testing.assert_allclose(
                chunked.scatter(mean), rows.scatter(mean), atol=1e-6
            )


def test_a_sample_has_one_row_of_each_part_whatever_the_chunks(monkeypatch):
    monkeypatch.setattr(passes, "LEAST_SAMPLED", 100)
    monkeypatch.setattr(passes, "SAMPLED_PER_CLUSTER", 10)
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
    monkeypatch.setattr(passes, "LEAST_SAMPLED", 200)
    monkeypatch.setattr(passes, "SAMPLED_PER_CLUSTER", 10)
    numbers, weights = np.arange(3000.0)[:, np.newaxis], np.ones(3000)
    weights[:1500], weights[2000] = 0.0, 1500.0
    sample = gathered(numbers, weights).sample(12, np.random.RandomState(0))
    drawn = sample.X[:, 0]
    assert len(np.unique(drawn)) == len(drawn)
    assert sample.weights.sum() == 200.0
    assert drawn.min() >= 1500.0
    assert abs(sample.weights[drawn == 2000.0] - 100) <= 1


def test_a_sample_has_enough_rows_even_if_one_weighs_all(monkeypatch):
    monkeypatch.setattr(passes, "LEAST_SAMPLED", 100)
    monkeypatch.setattr(passes, "SAMPLED_PER_CLUSTER", 10)
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


# --- what stays with the chunks -----------------------------------------------


def test_moments_add_up_about_any_origins(rng):
    k, d = 3, 2
    centers, rows = X[:k, :d], X[:, :d]
    whole = Rows(rows)
    parts = [Rows(rows[:100]), Rows(rows[100:])]
    with whole, parts[0], parts[1]:
        expected = EStep(whole, 1.5)(centers, 2.0)
        moments = []
        for part in parts:
            moments.append(EStep(part, 1.5, box=whole.box)(centers, 2.0))
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
    units = Units()
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


class Hesitant(_chunks.Chunk):
    """A chunk whose readers of memory wait for each other before they go on."""

    def __getattribute__(self, name):
        value = super().__getattribute__(name)
        if name == "memory":
            with contextlib.suppress(threading.BrokenBarrierError):
                vars(self)["barrier"].wait(2.0)
        return value


def test_what_a_chunk_remembers_is_given_to_one_task_alone():
    chunk = Hesitant(None, 0, memory=("turn", "labels"))
    chunk.barrier = threading.Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        taken = [pool.submit(chunk.take_memory) for _ in range(2)]
        taken = [one.result() for one in taken]
    assert sorted(taken, key=bool) == [None, ("turn", "labels")]


def test_each_of_two_passes_at_once_works_with_a_memory_of_its_own(monkeypatch):
    used = []

    class Spy(EStep):
        def __init__(self, rows, alpha, memory, box):
            super().__init__(rows, alpha, memory, box)
            used.append(memory)
            if len(used) == 2:  # another task repeats the step before this one ends
                again.append(share())

    from skrbfkmeans._engine import steps

    chunk, again = _chunks.check(LocalRBFKMeans(12).fit(X), 0, X, None), []
    monkeypatch.setattr(steps, "EStep", Spy)

    def share():
        turn = _chunks.Turn(0, min(len(used), 1))
        box = X.min(axis=0), X.max(axis=0)
        args = Units(), turn, 1.5, box, START, 0.0
        return _chunks.share(chunk, *args)

    share()
    moments, mark = share()
    assert [memory is None for memory in used] == [True, False, True]
    assert again[0][1] == mark
    np.testing.assert_allclose(again[0][0].masses, moments.masses)


def test_rows_in_other_units_are_converted_once_and_do_not_travel():
    model = LocalRBFKMeans(12).fit(X)
    for rows in X * 1e200, sparse.csr_matrix(X * 1e200):
        chunk = _chunks.check(model, 0, rows, WEIGHTS * 1e200)
        size, units = sys.getsizeof(chunk), chunk.batch.units()
        first, second = chunk.rows(units), chunk.rows(units)
        assert np.shares_memory(numbers(first.X), numbers(second.X))
        assert first.stored_weights.max() == second.stored_weights.max()
        assert sys.getsizeof(chunk) == size  # they were reckoned with
        assert size > 2 * X.nbytes
        assert pickle.loads(pickle.dumps(chunk)).converted is None
        other = replace(units, exponent=units.exponent + 1)
        factor = numbers(first.X)[0] / numbers(chunk.rows(other).X)[0]
        assert factor == 2.0
    chunk = _chunks.check(model, 0, X, None)
    chunk.rows(chunk.batch.units())
    assert chunk.converted is None


# --- labels and candidates ----------------------------------------------------


@pytest.mark.parametrize(("seed", "n_init"), [(0, 1), (0, 4), (1, 4), (2, 4)])
def test_labels_travel_once_and_in_few_bytes(monkeypatch, seed, n_init):
    def spy(self, function, *args):
        answers = carry(self, function, *args)
        sent[function.__name__].append(answers)
        return answers

    sent, carry = defaultdict(list), _carriers.OwnScheduler.map
    monkeypatch.setattr(_carriers.OwnScheduler, "map", spy)
    options = {"init": "random", "n_init": n_init, "refine": None, "random_state": seed}
    model = RBFKMeans(12, **options).fit(da.from_array(X, chunks=(700, 4)))
    assert_same(LocalRBFKMeans(12, **options).fit(X), model)
    assert len(sent["assess"]) == n_init
    assert len(pickle.dumps(sent["assess"])) < 4000 * n_init  # no labels among them
    [labels] = sent["tell_labels"]
    assert {part.dtype for part in labels} == {np.dtype(np.uint8)}
    assert model.labels_.dtype == np.int32


def test_labels_of_many_centres_take_the_bytes_they_need():
    dtypes = [_chunks.label_dtype(k) for k in (1, 256, 257, 65536, 65537)]
    assert dtypes == ["u1", "u1", "u2", "u2", "u4"]


def test_labels_of_a_former_start_are_found_again():
    rows = gathered(X)
    with rows:
        rows.measures  # noqa: B018
        first, second = rows.assess(START)[0], rows.assess(X[100:112])[0]
        with Rows(X) as plain:
            np.testing.assert_array_equal(first(), plain.assign(START))
            np.testing.assert_array_equal(second(), plain.assign(X[100:112]))


def costliest_first(candidates, n_own, n):
    """Costs of the rows that n empty centres get."""
    n_own, taken = n_own.copy(), []
    for candidate in candidates:
        if len(taken) < n and n_own[candidate.label] > 1:
            n_own[candidate.label] -= 1
            taken.append(candidate.cost)
    return taken


def test_no_more_candidates_are_kept_than_can_be_needed(rng):
    for _ in range(200):
        k, n, size = rng.integers(2, 6), rng.integers(1, 6), rng.integers(1, 5)
        costs = rng.integers(1, 20, 12).astype(float)  # some of them equal
        labels = rng.integers(k, size=12)
        every = [
            ((i // size, i), Candidate(cost, label, 1.0, None))
            for i, (cost, label) in enumerate(zip(costs, labels, strict=True))
        ]
        parts = []
        for first in range(0, 12, size):
            part = every[first : first + size]
            n_own = np.bincount(labels[first : first + size], minlength=k)
            parts.append((n, _chunks.spare(part, n, n_own), n_own))
        _, found, n_own = _chunks.add_candidates(parts)
        everything = sorted(every, key=lambda one: (-one[1].cost, one[0]))
        expected = costliest_first([one for _, one in everything], n_own, n)
        assert costliest_first([one for _, one in found], n_own, n) == expected
        assert len(found) <= n + k
        again = _chunks.add_candidates([parts[-1], _chunks.add_candidates(parts[:-1])])
        assert [where for where, _ in again[1]] == [where for where, _ in found]


def test_candidates_are_merged_on_the_way():
    rows = gathered(X, chunks=125)
    centers = np.concatenate([START[:9], np.full((3, 4), 1e4)])
    with rows, Rows(X) as plain:
        found, n_own = rows.e_step(1.5).costliest(centers, 3 + 12)
        labels = plain.assign(centers)
        expected, counts = plain.costliest(centers, labels, 3 + 12)
    assert len(found) == 3
    for one, other in zip(found, expected, strict=False):
        np.testing.assert_array_equal(one.row, other.row)
        assert one.cost == pytest.approx(other.cost)
    np.testing.assert_array_equal(n_own, counts)


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


def test_chunks_are_moved_to_newcomers_and_no_others():
    homes = {"a": [0, 1, 2, 3], "b": [4, 5]}
    threads = dict.fromkeys("abc", 1)
    move = _carriers._to_move
    assert move(homes, {"c"}, [10] * 6, threads) == [("c", 3), ("c", 2)]
    assert move(homes, {"c"}, [10] * 6, {"a": 4, "b": 1, "c": 1}) == [("c", 5)]
    assert move({"a": [0]}, {"b"}, [10], threads) == []
    assert move(homes, {"c", "d"}, [1] * 6, threads | {"d": 1}) == [("c", 3), ("d", 2)]


@pytest.mark.parametrize("is_persisted", [False, True])
def test_small_chunks_are_asked_by_few_tasks(is_persisted):
    blocks = da.from_array(X, chunks=(10, 4))
    blocks = blocks.persist() if is_persisted else blocks
    rows, n_tasks = gathered_blocks(blocks), 0

    def count(*args):
        nonlocal n_tasks
        n_tasks += 1

    with dask.callbacks.Callback(pretask=count):
        np.testing.assert_array_equal(rows.map(_chunks.weigh), [10.0] * 300)
    assert n_tasks <= _carriers.TASKS


def test_what_chunks_share_is_computed_once_a_pass():
    n_loaded = 0

    def load(block):
        nonlocal n_loaded
        n_loaded += 1
        return block

    blocks = da.from_array(X, chunks=(1000, 4))
    blocks = blocks.map_blocks(load, meta=np.empty((0, 0))).rechunk((600, 4))
    model = RBFKMeans(12, init=START, random_state=0)
    rows = gathered_blocks(blocks)
    n_loaded = 0
    np.testing.assert_array_equal(rows.map(_chunks.weigh), [600.0] * 5)
    assert n_loaded == 3
    plain = LocalRBFKMeans(12, init=START, random_state=0).fit(X)
    assert_same(plain, model.fit(blocks))
