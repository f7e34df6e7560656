"""Dask: one worker and two, next to one machine and to `dask_ml.cluster.KMeans`.

Rows are drawn about random centres, so near to each other that no optimum is easy. All
make the same 20 iterations of k-means from the same start, and ours a default fit
besides. Printed are the seconds of the median run, inertias, what an iteration moves
between processes, and how good the starts of k-means|| are. Run it with
``python benchmarks/dask_scaling.py [--rows 1000000] [--runs 3]``; it needs dask-ml.
"""

# SPDX-License-Identifier: BSD-3-Clause

import argparse
import statistics
from pathlib import Path
from time import perf_counter

import dask.array as da
import numpy as np
from dask_ml.cluster import KMeans
from dask_ml.cluster.k_means import k_init
from distributed import Client, LocalCluster, wait
from threadpoolctl import threadpool_limits

from skrbfkmeans import RBFKMeans
from skrbfkmeans.dask import RBFKMeans as DaskRBFKMeans

N_CLUSTERS, N_FEATURES, N_CHUNKS = 100, 20, 8


def block_of_rows(size, block_info=None):
    """Rows about centres that are the same in each block."""
    centers = np.random.default_rng(0).uniform(-4.0, 4.0, (N_CLUSTERS, N_FEATURES))
    rng = np.random.default_rng(block_info[None]["chunk-location"][0])
    labels = rng.integers(N_CLUSTERS, size=size)
    return centers[labels] + 2.0 * rng.normal(size=(size, N_FEATURES))


def rows_of(n_rows):
    """A Dask array that the workers make, and keep."""
    size = n_rows // N_CHUNKS
    X = da.map_blocks(
        block_of_rows,
        size,
        chunks=((size,) * N_CHUNKS, (N_FEATURES,)),
        meta=np.empty((0, 0)),
    ).persist()
    wait(X)
    return X


def workers(n):
    """A client of so many processes, of one thread each."""
    cluster = LocalCluster(
        n_workers=n, threads_per_worker=1, memory_limit=0, dashboard_address=":0"
    )
    return cluster, Client(cluster)


def moved():
    """Bytes that have gone from process to process on this machine."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    [loopback] = [line for line in lines if line.strip().startswith("lo:")]
    return int(loopback.split()[1])


def timed(model, X, runs):
    """Median seconds of a fit after one to warm up; the last model."""
    seconds = []
    for _ in range(runs + 1):
        begin = perf_counter()
        model.fit(X)
        seconds.append(perf_counter() - begin)
    return statistics.median(seconds[1:]), model


def per_iteration(n_rows, start):
    """Bytes and seconds of an iteration of k-means, from runs of 10 and of 30."""
    X, found = rows_of(n_rows), []
    for max_iter in 10, 10, 30:  # the first warms up
        model = DaskRBFKMeans(
            N_CLUSTERS, init=start, schedule=0.0, max_iter=max_iter, tol=0.0
        )
        before, begin = moved(), perf_counter()
        model.fit(X)
        found.append(np.array([moved() - before, perf_counter() - begin]))
    return (found[2] - found[1]) / 20.0


def per_task(client):
    """Seconds that one more task takes to send, and to hear from."""

    def seconds(n):
        begin = perf_counter()
        client.gather(client.map(abs, range(n), pure=False))
        return perf_counter() - begin

    few, many = ([seconds(n) for _ in range(10)] for n in (2, 102))
    return (statistics.median(many) - statistics.median(few)) / 100.0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    row = "{:<36}{:>9}{:>12}{:>14}".format
    print(row("", "seconds", "iterations", "inertia/row"))

    def report(name, model, X, runs=options.runs):
        seconds, model = timed(model, X, runs)
        # that of dask-ml is no sum of squares
        last = RBFKMeans(N_CLUSTERS, init=np.asarray(model.cluster_centers_))
        last.set_params(schedule=0.0, max_iter=1).fit(local)
        inertia = f"{last.history_['inertia'][0] / len(X):.4f}"
        print(row(name, f"{seconds:.2f}", model.n_iter_, inertia), flush=True)

    cluster, client = workers(2)
    with cluster, client:
        local = rows_of(options.rows).compute()
    start = local[:: len(local) // N_CLUSTERS][:N_CLUSTERS].copy()
    steps = {"init": start, "max_iter": 20, "tol": 0.0}
    for n in 1, 2:
        with threadpool_limits(n):
            model = RBFKMeans(N_CLUSTERS, schedule=0.0, **steps)
            report(f"20 steps, RBFKMeans, {n} thread{'s' * (n > 1)}", model, local)
            model = RBFKMeans(N_CLUSTERS, random_state=0)
            report(f"fit, RBFKMeans, {n} thread{'s' * (n > 1)}", model, local)
        cluster, client = workers(n)
        with cluster, client:
            X = rows_of(options.rows)
            model = DaskRBFKMeans(N_CLUSTERS, schedule=0.0, **steps)
            report(f"20 steps, dask.RBFKMeans, {n} worker{'s' * (n > 1)}", model, X)
            model = DaskRBFKMeans(N_CLUSTERS, random_state=0)
            report(f"fit, dask.RBFKMeans, {n} worker{'s' * (n > 1)}", model, X)
            report(
                f"20 steps, dask_ml, {n} worker{'s' * (n > 1)}",
                KMeans(N_CLUSTERS, **steps),
                X,
                1,
            )

    cluster, client = workers(2)
    with cluster, client:
        print(f"\n{'an iteration, 2 workers':<36}{'bytes':>9}{'seconds':>12}")
        for n_rows in options.rows // 10, options.rows:
            n_bytes, seconds = per_iteration(n_rows, start)
            print(f"{f'{n_rows:,} rows':<36}{n_bytes:9,.0f}{seconds:12.3f}", flush=True)
        print(f"{'one more task':<45}{per_task(client):12.4f}", flush=True)

        print(
            f"\n{'starts, then k-means':<36}{'seconds':>9}{'inertia/row, 3 seeds':>26}"
        )
        X = rows_of(options.rows // 10)
        for name in "k-means||", "k-means++ on a sample":
            found, seconds = [], []
            for seed in range(3):
                begin = perf_counter()
                init = "k-means++"
                if name == "k-means||":
                    init = np.asarray(
                        k_init(X, N_CLUSTERS, random_state=seed, init="k-means||")
                    )
                model = DaskRBFKMeans(
                    N_CLUSTERS, init=init, schedule=0.0, refine=None, random_state=seed
                ).fit(X)
                seconds.append(perf_counter() - begin)
                found.append(model.inertia_ / len(X))
            mean, worst = np.mean(found), np.max(found)
            cells = f"{np.median(seconds):.2f}", f"{mean:.4f}, worst {worst:.4f}"
            print(f"{name:<36}{cells[0]:>9}{cells[1]:>26}", flush=True)


if __name__ == "__main__":
    main()
