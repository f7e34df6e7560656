"""Fits on workers of Dask: what they send, and workers that die."""

# SPDX-License-Identifier: BSD-3-Clause

import contextlib
import itertools
import os
import pickle
import signal
import threading
import time

import numpy as np
import pytest
from sklearn.base import clone

from skrbfkmeans import RBFKMeans as LocalRBFKMeans

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

from dask_helpers import START, WEIGHTS, X, assert_same, fits  # noqa: E402

from skrbfkmeans.dask import RBFKMeans, _carriers  # noqa: E402

pytestmark = [pytest.mark.compiled, pytest.mark.usefixtures("own_scheduler")]


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


# --- workers ------------------------------------------------------------------


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


@pytest.mark.parametrize("error", [OSError, KeyError, ValueError])
def test_errors_that_are_no_losses_are_raised_as_they_are(client, monkeypatch, error):
    async def fail(*args, **kwargs):
        raise error("it is full")

    monkeypatch.setattr(_carriers, "LARGE", 0)
    monkeypatch.setattr(_carriers, "LOOK", 0.2)
    monkeypatch.setattr(client, "scatter", fail)
    with pytest.raises(error, match="it is full"):
        RBFKMeans(12, client=client).fit(da.from_array(X, chunks=(500, 4)))


def test_an_error_while_a_worker_dies_is_a_loss(mortal_client, monkeypatch):
    async def fail(*args, **kwargs):
        kill_one(mortal_client)
        monkeypatch.setattr(mortal_client, "scatter", scatter)
        raise OSError("closed")

    def kill_one(client):
        os.kill(pid, signal.SIGKILL)

    scatter, pid = (
        mortal_client.scatter,
        next(iter(mortal_client.run(os.getpid).values())),
    )
    monkeypatch.setattr(_carriers, "LARGE", 0)
    monkeypatch.setattr(mortal_client, "scatter", fail)
    assert_same(*fits((500, 4), mortal_client))


def test_workers_that_come_during_a_fit_get_chunks(mortal_client, monkeypatch):
    cluster, n_passes, homes = mortal_client.cluster, 0, []
    ask = _carriers.Workers._ask

    def ask_and_grow(self, *args):
        nonlocal n_passes
        n_passes += 1
        if n_passes == 6:
            cluster.scale(3)
            mortal_client.wait_for_workers(3)
        asked = ask(self, *args)
        homes.append({home: sorted(numbers) for home, numbers in self._groups})
        return asked

    monkeypatch.setattr(_carriers.Workers, "_ask", ask_and_grow)
    assert_same(*fits((500, 4), mortal_client, WEIGHTS))
    assert [len(some) for some in homes[:5]] == [2] * 5
    for some in homes[5:]:
        assert len(some) == 3
        assert sorted(itertools.chain(*some.values())) == list(range(6))
        assert min(map(len, some.values())) >= 1
    stayed = [set(homes[5][home]) <= set(homes[0][home]) for home in homes[0]]
    assert stayed == [True, True]


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
