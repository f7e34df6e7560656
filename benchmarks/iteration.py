"""One EM iteration next to one Lloyd iteration of scikit-learn.

Prints, for 1 and 2 threads, the time of one iteration of ours divided by one of
scikit-learn's Lloyd on the same centres: hard, entmax-1.5 at falling
temperatures (in multiples of the spread of the clusters), and softmax; then
`predict` next to `KMeans.predict`, and the peak memory of `predict` and `score`
on 1,000,000 x 10 rows with 1,000 centres. Medians of interleaved runs.

Run it with ``python benchmarks/iteration.py [--repeats 11]``.
"""

# SPDX-License-Identifier: BSD-3-Clause

import argparse
import threading

import numpy as np
from sklearn.cluster import KMeans
from sklearn.cluster._k_means_lloyd import lloyd_iter_chunked_dense
from threadpoolctl import threadpool_limits
from timing import interleaved

from skrbfkmeans import RBFKMeans
from skrbfkmeans._engine.rows import Rows
from skrbfkmeans._run.annealing import m_step

CASES = [(100_000, 10, 50), (50_000, 64, 100)]
SOFT = [(1.5, 0.0), (1.5, 0.25), (1.5, 0.5), (1.5, 1.0), (1.5, 2.0), (1.0, 1.0)]


def blobs(n, d, k, seed=0):
    """Overlapping Gaussian clusters, and some of the rows to start from."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(scale=3.0 / d**0.25, size=(k, d))
    X = centers[rng.integers(k, size=n)] + rng.normal(size=(n, d))
    return X, X[:k].copy()


def iterations(n, d, k, n_threads, repeats):
    X, centers = blobs(n, d, k)
    labels = np.full(n, -1, dtype=np.int32)
    weights, masses, shift = np.ones(n), np.empty(k), np.empty(k)
    new = np.empty_like(centers)

    def lloyd():
        lloyd_iter_chunked_dense(
            X, weights, centers, new, masses, labels, shift, n_threads
        )

    with threadpool_limits(1, user_api="blas"), Rows(X) as rows:
        settled = centers
        for _ in range(3):
            settled = m_step(settled, rows.e_step(1.5)(settled, 0), 1.0, 0.0)
        spread = np.sqrt(rows.inertia(settled, rows.assign(settled)) / (n * d))
        centers = settled

        def em(alpha, multiple):
            sigma = multiple * spread
            return lambda: m_step(settled, rows.e_step(alpha)(settled, sigma), 1.0, 0.0)

        steps = [em(*case) for case in SOFT]
        reference, *ours = interleaved([lloyd, *steps], repeats)
    print(f"{n:,} x {d}, k = {k}, {n_threads} threads: Lloyd {1e3 * reference:.1f} ms")
    for (alpha, multiple), seconds in zip(SOFT, ours, strict=True):
        print(f"    alpha {alpha}, sigma {multiple:4.2f}: {seconds / reference:.2f}")


def predictions(n, d, k, n_threads, repeats):
    X, centers = blobs(n, d, k)
    options = dict(init=centers, n_init=1, max_iter=1)
    peer = KMeans(k, **options).fit(X)
    ours = RBFKMeans(k, schedule=0, **options).fit(X)
    theirs, mine = interleaved(
        [lambda: peer.predict(X), lambda: ours.predict(X)], repeats
    )
    print(f"predict {n:,} x {d}, k = {k}, {n_threads} threads: {mine / theirs:.2f}")


def memory(n=1_000_000, d=10, k=1000):
    """Growth of the resident set, at its highest, while predicting."""
    X, centers = blobs(n, d, k)
    model = RBFKMeans(k, schedule=0, init=centers, max_iter=1).fit(X[:10_000])
    for name in ("predict", "score"):
        peak, done = [resident()], threading.Event()

        def watch(peak=peak, done=done):
            while not done.wait(0.002):
                peak[0] = max(peak[0], resident())

        start = resident()
        watcher = threading.Thread(target=watch)
        watcher.start()
        getattr(model, name)(X)
        done.set()
        watcher.join()
        print(f"{name} {n:,} x {d}, k = {k}: {(peak[0] - start) / 2**20:.0f} MiB more")


def resident():
    """Resident bytes of this process (Linux)."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=11)
    repeats = parser.parse_args().repeats
    for n_threads in (1, 2):
        with threadpool_limits(n_threads, user_api="openmp"):
            for case in CASES:
                iterations(*case, n_threads, repeats)
            for case in [*CASES, (1_000_000, 10, 8), (100_000, 2, 8)]:
                predictions(*case, n_threads, repeats)
    memory()


if __name__ == "__main__":
    main()
