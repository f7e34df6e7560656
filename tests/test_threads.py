"""Strips of rows in any number of threads, and the limit on those of BLAS."""

# SPDX-License-Identifier: BSD-3-Clause

import contextlib
import threading

import numpy as np
import pytest
from rows_helpers import dtypes, example
from threadpoolctl import threadpool_info, threadpool_limits

from skrbfkmeans import RBFKMeans
from skrbfkmeans._engine import threads as engine_threads
from skrbfkmeans._engine.rows import Rows
from skrbfkmeans._engine.threads import Threads, single_threaded_blas

# --- strips -------------------------------------------------------------------


def test_large_data_are_cut_into_several_strips():
    with Rows(np.broadcast_to(0.0, (10**6, 1)), np.broadcast_to(1.0, 10**6)) as rows:
        assert len(rows.strips(8)) > 1


@pytest.mark.parametrize("n", [1, 5, 1024, 10**5, 10**8])
@pytest.mark.parametrize("size", [1, 10**3, 10**6, 10**9])
def test_strips_cover_all_rows_once_and_do_not_depend_on_threads(n, size):
    X, weights = np.broadcast_to(0.0, (n, 1)), np.broadcast_to(1.0, n)
    with Rows(X, weights) as rows, Rows(X, weights, threads=Threads(7)) as others:
        strips = rows.strips(size)
        assert others.strips(size) == strips
    starts, stops, _ = np.array([(s.start, s.stop, s.step) for s in strips]).T
    assert starts[0] == 0
    assert stops[-1] == n
    np.testing.assert_array_equal(starts[1:], stops[:-1])
    assert np.all(stops > starts)


# --- threads ------------------------------------------------------------------


@pytest.fixture
def short_strips(monkeypatch):
    """Strips of 200 rows, so that small data are cut too."""

    def strips(self, n_vectors, size=1, start=0, stop=None):
        stop = self.n_rows if stop is None else stop
        return [range(s, min(s + 200, stop), 77) for s in range(start, stop, 200)]

    monkeypatch.setattr(Rows, "strips", strips)


def every_pass(X, centers, weights):
    """Raw bytes of all that the passes return."""
    results = []
    with Rows(X, weights) as rows:
        n_threads = rows.n_threads
        results += [rows.measures.variances]
        labels = rows.assign(centers)
        results += [labels, rows.inertia(centers, labels), rows.margin(centers)]
        for sigma in (0.0, 0.4):
            for alpha in (1.0, 1.5, 2.0, 3.0):
                e_step = rows.e_step(alpha)
                results += [*e_step(centers, sigma), e_step.labels]
                results.append(rows.responsibilities(centers, sigma, alpha))
    return n_threads, [np.asarray(result).tobytes() for result in results]


@pytest.mark.compiled
@dtypes
@pytest.mark.parametrize("d", [3, 20])
@pytest.mark.usefixtures("short_strips")
def test_any_number_of_threads_gives_the_same_bits(monkeypatch, d, dtype):
    monkeypatch.setenv("OMP_NUM_THREADS", "4")  # more than there may be cores
    X, centers, weights = example(5000, d, 6, dtype)
    runs = []
    for n_threads in (1, 2, 4, 3):
        with threadpool_limits(limits=n_threads, user_api="openmp"):
            used, results = every_pass(X, centers, weights)
        assert used == n_threads
        runs.append(results)
    for results in runs[1:]:
        assert results == runs[0]


@pytest.mark.compiled
@pytest.mark.usefixtures("short_strips")
def test_passes_in_several_python_threads_at_once_give_the_same_bits():
    X, centers, weights = example(5000, 20, 6)
    expected = every_pass(X, centers, weights)[1]
    found = []

    def work():
        found.append(every_pass(X, centers, weights)[1])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(results == expected for results in found)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_an_error_in_one_strip_reaches_the_caller(n_threads):
    def fail_at_the_third(s, start, stop):
        if s == 2:
            raise KeyError(start)

    strips = [range(start, start + 10, 10) for start in range(0, 90, 10)]
    with Rows(np.zeros((90, 1)), threads=Threads(n_threads)) as rows:
        with pytest.raises(KeyError):
            rows.run(fail_at_the_third, strips, heavy=True)
        done = []
        rows.run(lambda *strip: done.append(strip), strips, heavy=True)
    assert sorted(done) == [(s, r.start, r.stop) for s, r in enumerate(strips)]


def blas_threads():
    return {m["num_threads"] for m in threadpool_info() if m["user_api"] == "blas"}


def test_the_limit_on_blas_is_restored_after_nested_use():
    with threadpool_limits(limits=2, user_api="blas"):
        before = blas_threads()
        with single_threaded_blas:
            assert blas_threads() == {1}
            with single_threaded_blas:
                assert blas_threads() == {1}
            assert blas_threads() == {1}
        assert blas_threads() == before == {2}


def test_the_limit_on_blas_is_restored_after_an_error():
    with threadpool_limits(limits=2, user_api="blas"):
        with pytest.raises(KeyError), Rows(np.zeros((5, 1))):
            raise KeyError
        assert blas_threads() == {2}


def test_the_limit_on_blas_outlives_the_first_of_two_overlapping_users():
    with threadpool_limits(limits=2, user_api="blas"):
        first, second = Rows(np.zeros((5, 1))), Rows(np.zeros((5, 1)))
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert blas_threads() == {1}
        second.__exit__(None, None, None)
        assert blas_threads() == {2}


def test_a_blas_built_on_openmp_does_not_take_our_threads(monkeypatch):
    def limit_all():
        return threadpool_limits(limits=1)

    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr(engine_threads, "limit_blas", limit_all)
    with threadpool_limits(limits=2), Rows(np.zeros((5, 1))) as rows:
        assert rows.n_threads == 2


class OddError(Exception):
    """What an odd library raises."""


@pytest.mark.compiled
@pytest.mark.parametrize("when", ["made", "selected", "limited", "restored"])
def test_libraries_that_cannot_be_inspected_do_not_break_a_fit(monkeypatch, when):
    """Nor those that fail half-way."""

    class Limiter:
        def restore_original_limits(self):
            if when == "restored":
                raise OddError

    class Controller:
        def __init__(self):
            if when == "made":
                raise OddError

        def select(self, **_):
            if when == "selected":
                raise OddError
            return self

        def limit(self, **_):
            if when == "limited":
                raise OddError
            return Limited()

    class Limited(Limiter, contextlib.nullcontext):
        pass

    X, centers, _ = example(300, 3, 4)
    expected = RBFKMeans(4, init=centers).fit(X)
    monkeypatch.setattr(engine_threads, "threadpool_controller", Controller)
    model = RBFKMeans(4, init=centers).fit(X)
    np.testing.assert_array_equal(model.cluster_centers_, expected.cluster_centers_)
    np.testing.assert_array_equal(model.predict(X), expected.labels_)


@pytest.mark.compiled
def test_a_number_of_threads_that_cannot_be_told_does_not_break_a_fit(monkeypatch):
    def fail():
        raise OddError

    monkeypatch.setattr(engine_threads, "effective_n_threads", fail)
    X, centers, _ = example(300, 3, 4)
    RBFKMeans(4, init=centers).fit(X)
    with Threads() as threads:
        assert threads.n == 1


def test_each_strip_is_handed_out_once_to_however_many_threads():
    strips, done = [range(s, s + 1) for s in range(5000)], []
    with Threads(4) as threads:
        threads.run(lambda s, start, stop: done.append(s), strips, heavy=True)
    assert sorted(done) == list(range(5000))
