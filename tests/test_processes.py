"""Fits in many threads, processes and forks, and the end of one by Ctrl-C."""

# SPDX-License-Identifier: BSD-3-Clause

import atexit
import contextlib
import hashlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
from joblib import Parallel, delayed, parallel_config
from sklearn.utils._openmp_helpers import _openmp_effective_n_threads
from threadpoolctl import threadpool_info, threadpool_limits

from skrbfkmeans import RBFKMeans

pytestmark = [pytest.mark.compiled, pytest.mark.process]

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="There is no fork.")
needs_sigint = pytest.mark.skipif(
    sys.platform == "win32", reason="Windows sends no SIGINT."
)
TWO_THREADS = {"OMP_NUM_THREADS": 2}  # even if there is but one core

BLAS_THREADS = {"OPENBLAS_NUM_THREADS": 2, "MKL_NUM_THREADS": 2}

# Whoever waits longer than this for a child waits for ever.
PATIENCE = 40


def example(n=20_000, d=20, seed=0):
    """Overlapping rows: about eight strips with 16 centres."""
    return np.random.default_rng(seed).normal(size=(n, d))


def fit(X, **parameters):
    parameters = {"n_clusters": 16, "max_iter": 10, "random_state": 0, **parameters}
    return RBFKMeans(**parameters).fit(X)


def digest(model):
    """A digest of every bit that a fit leaves behind."""
    arrays = [model.cluster_centers_, model.labels_, *model.history_.values()]
    numbers = [model.inertia_, model.sigma_, model.n_iter_, model.hardened_]
    sha = hashlib.sha256()
    for value in arrays + numbers:
        sha.update(np.asarray(value).tobytes())
    return sha.hexdigest()


def fitted_digest(*arguments, **parameters):
    return digest(fit(*arguments, **parameters))


def thread_limits():
    """What each pool of native threads and OpenMP would use now."""
    pools = {pool["filepath"]: pool["num_threads"] for pool in threadpool_info()}
    return pools, _openmp_effective_n_threads()


def at_once(*functions):
    """Call functions in threads of their own, all from the same moment on."""
    barrier = threading.Barrier(len(functions))

    def call(function):
        barrier.wait()
        return function()

    with ThreadPoolExecutor(len(functions)) as pool:
        return list(pool.map(call, functions))


# --- threads of Python -------------------------------------------------------


def four_threads():
    X = example()
    found = at_once(*4 * [lambda: fitted_digest(X)])  # compiled by all, too
    assert found == 4 * [fitted_digest(X)]
    found = at_once(*[lambda s=s: fitted_digest(X, random_state=s) for s in range(4)])
    assert found == [fitted_digest(X, random_state=s) for s in range(4)]
    assert len(set(found)) == 4


@pytest.mark.parametrize("layer", [None, "workqueue"])
def test_four_python_threads_may_fit_at_once(python, layer):
    python(four_threads, environment={**TWO_THREADS, "NUMBA_THREADING_LAYER": layer})


def blas_threads():
    pools = threadpool_info()
    return {pool["num_threads"] for pool in pools if pool["user_api"] == "blas"}


def limit_blas(n_threads):
    """Set a limit for good, and leave it to any thread to set another."""
    threadpool_limits(limits=n_threads, user_api="blas")
    with threadpool_limits(limits=None):
        pass


def limits_of_one_thread():
    X, during = example(), []

    def init(X, n_clusters, random_state):
        during.append(blas_threads())
        return X[:n_clusters]

    def failing_init(X, n_clusters, random_state):
        raise RuntimeError("no start today")

    with threadpool_limits(limits=3):  # a number that nothing would set by chance
        before = thread_limits()
        assert set(before[0].values()) == {3}
        model = fit(X, init=init, n_init=1)
        assert during == [{1}]
        assert thread_limits() == before
        with pytest.raises(RuntimeError, match="no start today"):
            fit(X, init=failing_init, n_init=1)
        assert thread_limits() == before
        for method in "predict", "predict_proba", "transform", "score":
            getattr(model, method)(X)
            assert thread_limits() == before


def test_limits_of_native_threads_are_put_back_after_fits_and_errors(python):
    python(limits_of_one_thread)


def limits_of_overlapping_fits(fails):
    """The first to begin is the first to end, and goes on living."""
    X, during, blas = example(), [], []
    second_began, first_ended, second_ended = (threading.Event() for _ in range(3))

    def first_init(X, n_clusters, random_state):
        assert second_began.wait(PATIENCE)
        if fails:
            raise RuntimeError("no start today")
        return X[:n_clusters]

    def second_init(X, n_clusters, random_state):
        second_began.set()
        assert first_ended.wait(PATIENCE)
        during.append(blas_threads())
        return X[:n_clusters]

    def first():
        threadpool_limits(limits=2, user_api="openmp")  # of this thread
        with contextlib.suppress(RuntimeError):
            fit(X, init=first_init, n_init=1)
        first_ended.set()
        assert second_ended.wait(PATIENCE)
        return _openmp_effective_n_threads()

    def second():
        threadpool_limits(limits=3, user_api="openmp")
        time.sleep(0.5)  # the first begins
        fit(X, init=second_init, n_init=1)
        blas.append(blas_threads())
        second_ended.set()
        return _openmp_effective_n_threads()

    fit(X)
    limit_blas(3)
    assert at_once(first, second) == [2, 3]
    assert during == [{1}]
    assert blas == [{3}]


@pytest.mark.parametrize("fails", [False, True])
def test_limits_are_put_back_when_fits_of_two_threads_overlap(python, fails):
    python(limits_of_overlapping_fits, fails, environment=TWO_THREADS)


def limits_of_others_after_a_fit():
    def limited():
        with threadpool_limits(limits=3, user_api="blas"):
            return blas_threads()

    assert at_once(limited) == [{3}]
    fit(example())
    assert at_once(limited) == [{3}]


def test_another_thread_can_limit_blas_after_a_fit(python):
    python(limits_of_others_after_a_fit)


def digests_of_all_kinds():
    X = example()
    weights = np.random.default_rng(1).uniform(size=len(X))
    kinds = [
        {},
        {"alpha": 2.0},
        {"schedule": 1.5},
        {"alpha": 1.0, "schedule": 1.0},
        {"init": "random", "n_init": 2},
    ]
    found = [fitted_digest(X, **kind) for kind in kinds]
    model = RBFKMeans(16, random_state=0).fit(X[:, :5], sample_weight=weights)
    found.append(digest(model))
    for method in "predict", "predict_proba", "transform", "score":
        values = np.asarray(getattr(model, method)(X[:, :5]))
        found.append(hashlib.sha256(values.tobytes()).hexdigest())
    return found


def test_any_process_with_any_number_of_threads_finds_the_same_bits(python):
    found = [
        python(digests_of_all_kinds, environment={"OMP_NUM_THREADS": n_threads})
        for n_threads in (1, 3)
    ]
    assert found[0] == found[1]


def test_thirty_fits_with_a_seed_find_the_same_bits():
    X = example(5000, 10)  # three strips with 64 centres
    found = set()
    for n_threads in (1, 2, 4):
        with threadpool_limits(limits=n_threads):
            found |= {fitted_digest(X, n_clusters=64) for _ in range(10)}
    assert len(found) == 1


def test_an_error_in_a_helper_stops_the_other_threads_and_is_raised():
    from skrbfkmeans._engine.threads import Threads

    main, n_steps, failed = threading.current_thread(), 0, threading.Event()

    def work(s, start, stop):
        nonlocal n_steps
        if threading.current_thread() is not main:
            failed.set()
            raise MemoryError("of the helper")
        assert failed.wait(PATIENCE)
        n_steps += 1
        time.sleep(0.01)

    with (
        threadpool_limits(limits=2),
        Threads(2) as threads,
        pytest.raises(MemoryError, match="of the helper"),
    ):
        threads.run(work, [range(1000), range(1000)], heavy=True)
    assert n_steps < 500


def fit_without_new_threads():
    X = example()
    expected = fitted_digest(X)
    start, n_left = threading.Thread.start, 1

    def start_one_more(thread):
        nonlocal n_left
        n_left -= 1
        if n_left < 0:
            raise RuntimeError("can't start new thread")
        start(thread)

    threading.Thread.start = start_one_more
    assert [fitted_digest(X) for _ in range(2)] == 2 * [expected]
    assert n_left < 0
    assert threading.active_count() == 1


def test_a_fit_makes_do_with_the_threads_that_the_system_allows(python):
    python(fit_without_new_threads, environment={"OMP_NUM_THREADS": 4})


def fit_at_exit(path):
    def fit_again():
        with open(path, "w") as file:
            file.write(fitted_digest(example()))

    atexit.register(fit_again)
    return fitted_digest(example())


def test_a_fit_in_a_handler_at_exit_is_a_fit_as_usual(python, tmp_path):
    path = tmp_path / "digest"
    expected = python(fit_at_exit, str(path), environment=TWO_THREADS)
    assert path.read_text() == expected


# --- forks and spawned processes ---------------------------------------------


def expect(expected, limits=None):
    """What a child does: fit, and compare with what its parent found."""
    assert fitted_digest(example()) == expected
    if limits is not None:
        assert thread_limits() == limits


def finish(process):
    """Whether a child ends well, in time."""
    process.start()
    process.join(PATIENCE)
    if process.exitcode is None:
        process.kill()
        pytest.fail("The child hangs.")
    assert process.exitcode == 0


def children(method):
    context = multiprocessing.get_context(method)
    expected, limits = fitted_digest(example()), thread_limits()
    finish(context.Process(target=expect, args=(expected, limits)))
    expect(expected, limits)
    finish(context.Process(target=expect, args=(expected, limits)))


@needs_fork
@pytest.mark.parametrize("layer", [None, "workqueue"])
def test_parent_and_forked_child_fit_after_a_fit(python, layer):
    environment = {**TWO_THREADS, "NUMBA_THREADING_LAYER": layer}
    python(children, "fork", environment=environment)


@pytest.mark.slow
def test_a_spawned_child_fits_like_its_parent(python):
    python(children, "spawn", environment=TWO_THREADS)


def forks_during_fits(n_forks, comparing_limits):
    X, context = example(), multiprocessing.get_context("fork")
    expected, limits = fitted_digest(X), thread_limits()
    stop, entered = threading.Event(), threading.Event()

    def init(X, n_clusters, random_state):
        entered.set()
        return X[:n_clusters]

    def keep_fitting():
        while not stop.is_set():
            fit(X, init=init, n_init=1)

    fitting = threading.Thread(target=keep_fitting)
    fitting.start()
    try:
        for _ in range(n_forks):
            entered.clear()
            assert entered.wait(PATIENCE)
            child_limits = limits if comparing_limits else None
            finish(context.Process(target=expect, args=(expected, child_limits)))
    finally:
        stop.set()
        fitting.join()
    expect(expected, limits)


@needs_fork
def test_a_child_forked_while_another_thread_fits_can_fit(python):
    python(forks_during_fits, 8, False, environment=TWO_THREADS)


@needs_fork
def test_a_child_forked_while_another_thread_fits_has_all_its_blas_threads(python):
    environment = TWO_THREADS | BLAS_THREADS
    python(forks_during_fits, 3, True, environment=environment)


# --- joblib ------------------------------------------------------------------


def use_everything(X, seed):
    """Digest of fits on X and of all methods, and the kind of memory X is in."""
    model = fit(X, random_state=seed)
    values = [
        model.predict(X),
        model.predict_proba(X),
        model.transform(X),
        model.score(X),
        fit(X, init=X[:16]).labels_,
    ]
    sha = hashlib.sha256(digest(model).encode())
    for value in values:
        sha.update(np.asarray(value).tobytes())
    return sha.hexdigest(), type(X).__name__, X.flags.writeable


def jobs(backend):
    X = example()
    assert X.nbytes > 2**20  # joblib maps what is larger, read-only
    memory = ("memmap", False) if backend == "loky" else ("ndarray", True)
    expected = [(use_everything(X, seed)[0], *memory) for seed in range(3)]
    assert len(set(expected)) == 3
    with parallel_config(backend=backend, n_jobs=2):
        found = Parallel()(delayed(use_everything)(X, seed) for seed in range(3))
    assert found == expected


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_jobs_of_joblib_find_the_same_bits_also_in_arrays_it_maps(python, backend):
    python(jobs, backend)


def search(X):
    from sklearn.model_selection import GridSearchCV

    grid = {"schedule": ["auto", 1.0], "alpha": [1.5, 2.0]}
    model = RBFKMeans(16, max_iter=5, random_state=0)
    alone = GridSearchCV(model, grid, cv=2).fit(example())
    shared = GridSearchCV(model, grid, cv=2, n_jobs=2, error_score="raise").fit(X)
    for key, scores in alone.cv_results_.items():
        if key.endswith("test_score"):
            assert np.isfinite(scores).all()
            np.testing.assert_array_equal(scores, shared.cv_results_[key])
    assert shared.best_params_ == alone.best_params_
    assert digest(shared.best_estimator_) == digest(alone.best_estimator_)


def searches(path):
    X = example()
    X.setflags(write=False)
    search(X)
    joblib.dump(example(), path)
    before = os.stat(path).st_size, joblib.hash(joblib.load(path))
    X = joblib.load(path, mmap_mode="r")
    assert isinstance(X, np.memmap)
    assert not X.flags.writeable
    search(X)
    assert use_everything(X, 0)[0] == use_everything(example(), 0)[0]
    assert (os.stat(path).st_size, joblib.hash(joblib.load(path))) == before


@pytest.mark.slow
def test_a_parallel_search_takes_a_read_only_array_and_a_mapped_file(python, tmp_path):
    python(searches, str(tmp_path / "rows.joblib"))


def count_helpers(seed):
    """Most threads that were added during a fit: Python's, and all, if known."""

    def count():
        tasks = "/proc/self/task"
        native = len(os.listdir(tasks)) if os.path.isdir(tasks) else 0
        return np.array([threading.active_count(), native])

    X = example(60_000)
    fit(X[:1000])
    stopped, most = threading.Event(), []

    def watch():
        while not stopped.wait(0.002):
            most.append(count())

    watcher = threading.Thread(target=watch)
    watcher.start()
    before = count()
    fit(X, random_state=seed)
    stopped.set()
    watcher.join()
    return (np.max(most, axis=0) - before).tolist()


def helpers_of_jobs(inner_max_num_threads):
    options = {"inner_max_num_threads": inner_max_num_threads}
    with parallel_config(backend="loky", n_jobs=2, **options):
        return Parallel()(delayed(count_helpers)(seed) for seed in range(2))


@pytest.mark.slow
def test_a_worker_fits_with_the_threads_that_it_is_allotted(python):
    for python_threads, native_threads in python(helpers_of_jobs, 3):
        assert python_threads == 2
        assert native_threads <= 2


@pytest.mark.slow
def test_two_workers_share_the_cores_unless_told_otherwise(python):
    share = max(joblib.cpu_count() // 2, 1)
    for python_threads, native_threads in python(helpers_of_jobs, None):
        assert python_threads <= share - 1
        assert native_threads <= share - 1


# --- Ctrl-C ------------------------------------------------------------------

# Fits that would take minutes: the shape of the rows, parameters, and a function
# that is at work when they are interrupted.
LONG = {
    "soft": (
        (50_000, 16),
        {"schedule": 1.5, "tol": 0.0, "learning_rate": 1e-3, "max_iter": 10**9},
        "cool",
    ),
    "hard": ((100_000, 16), {"schedule": 0.0, "n_clusters": 300}, "cool"),
    "one pass": ((60_000, 50), {"schedule": 0.0, "n_clusters": 30_000}, "cool"),
    "seeding": ((100_000, 16), {"n_clusters": 5000}, "kmeans_plusplus"),
}


def interrupt(phase):
    """Seconds from Ctrl-C in a long fit to the exception, all else being well."""
    shape, parameters, place = LONG[phase]
    X = example(*shape)
    rows, small, sent = X.copy(), example(500, 7), []

    def press():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    ctrl_c = threading.Timer(0.5, press)

    def init(X, n_clusters, random_state):
        ctrl_c.start()
        return X[:n_clusters]

    model = fit(small, schedule=2.0)
    usual, bits, labels = model.get_params(), digest(model), model.predict(small)
    if phase == "seeding":
        model.set_params(**parameters)
        ctrl_c.start()
    else:
        model.set_params(**{"init": init, "n_init": 1, "max_iter": 300, **parameters})
    state, limits = dict(vars(model)), thread_limits()
    try:
        model.fit(X)
    except KeyboardInterrupt as error:
        waited, trace = time.monotonic() - sent[0], error.__traceback__
    else:
        pytest.fail("The fit is not long enough.")
    functions = set()
    while trace is not None:
        functions.add(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert place in functions, functions
    ctrl_c.join()

    assert threading.active_count() == 1
    assert thread_limits() == limits
    np.testing.assert_array_equal(X, rows)
    assert vars(model).keys() == state.keys()
    assert all(vars(model)[name] is state[name] for name in state)
    assert digest(model) == bits
    np.testing.assert_array_equal(model.predict(small), labels)
    assert digest(model.set_params(**usual).fit(small)) == bits
    return waited


def interrupt_all():
    return {phase: interrupt(phase) for phase in LONG}


@needs_sigint
@pytest.mark.parametrize("n_threads", [1, 2])
def test_ctrl_c_ends_a_fit_in_time_and_leaves_all_as_it_was(python, n_threads):
    waited = python(interrupt_all, environment={"OMP_NUM_THREADS": n_threads})
    assert waited.keys() == LONG.keys()
    assert max(waited.values()) < 6.0, waited  # about 1 on a quiet machine


def interrupt_the_wait_for_a_helper(n_signals, step_seconds):
    """Ctrl-C when this thread has done its part and only a helper is at work."""
    from skrbfkmeans._engine.rows import Rows

    main, helper_began = threading.current_thread(), threading.Event()
    n_steps, before = 0, thread_limits()

    def work(s, start, stop):
        nonlocal n_steps
        if threading.current_thread() is main:
            assert helper_began.wait(PATIENCE)
        else:
            helper_began.set()
            n_steps += 1
            time.sleep(step_seconds)

    def press():
        for _ in range(n_signals):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)

    threading.Timer(0.5, press).start()
    with contextlib.suppress(KeyboardInterrupt), Rows(np.zeros((1000, 1))) as rows:
        rows.run(work, [range(1000), range(1000)], heavy=True)
        pytest.fail("Ctrl-C is lost.")
    assert thread_limits() == before
    return n_steps


@needs_sigint
def test_ctrl_c_stops_a_helper_that_alone_is_at_work(python):
    arguments = 1, 0.02
    n_steps = python(
        interrupt_the_wait_for_a_helper, *arguments, environment=TWO_THREADS
    )
    assert 0 < n_steps < 200


@needs_sigint
def test_an_impatient_user_who_presses_ctrl_c_again_gets_all_blas_threads_back(python):
    arguments = 3, 2.0
    environment = TWO_THREADS | BLAS_THREADS
    python(interrupt_the_wait_for_a_helper, *arguments, environment=environment)
