"""Seconds of scikit-learn's KMeans over ours, from the same start and by default.

Every table is a ratio: both are run in turn, in one process, and their medians
divided. Run it with ``python benchmarks/versus.py``; ``--table`` chooses one,
``--repeats`` the number of runs, ``--threads`` the numbers of threads.
"""

# SPDX-License-Identifier: BSD-3-Clause

import argparse
import os
import platform
import statistics
import time
import warnings

import numpy as np
import sklearn
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, load_sample_image, make_blobs
from threadpoolctl import threadpool_limits

import skrbfkmeans
from skrbfkmeans import RBFKMeans


def blobs(n, d, k):
    return make_blobs(n, d, centers=k, random_state=0)[0]


def photo(step):
    """Colours of every `step`-th pixel of a photograph, between 0 and 1."""
    return load_sample_image("china.jpg").reshape(-1, 3)[::step] / 255.0


def uniform(n, d):
    return np.random.default_rng(0).uniform(size=(n, d))


DATA = {
    "blobs 100,000 x 2, k = 100": (lambda: blobs(100_000, 2, 100), 100),
    "blobs 100,000 x 10, k = 50": (lambda: blobs(100_000, 10, 50), 50),
    "blobs 50,000 x 64, k = 100": (lambda: blobs(50_000, 64, 100), 100),
    "blobs 10,000 x 784, k = 10": (lambda: blobs(10_000, 784, 10), 10),
    "blobs 10,000 x 784, k = 100": (lambda: blobs(10_000, 784, 100), 100),
    "photo 136,640 x 3, k = 64": (lambda: photo(2), 64),
    "photo 68,320 x 3, k = 256": (lambda: photo(4), 256),
    "uniform 50,000 x 8, k = 50": (lambda: uniform(50_000, 8), 50),
    "uniform 50,000 x 2, k = 500": (lambda: uniform(50_000, 2), 500),
    "digits 1,797 x 64, k = 10": (lambda: load_digits().data, 10),
    "digits 1,797 x 64, k = 50": (lambda: load_digits().data, 50),
}


def interleaved(functions, repeats):
    """Median seconds of each function, run in turn."""
    times = [[] for _ in functions]
    for _ in range(repeats):
        for function, seconds in zip(functions, times, strict=True):
            start = time.perf_counter()
            function()
            seconds.append(time.perf_counter() - start)
    return [statistics.median(seconds) for seconds in times]


def same_start(X, k, repeats):
    """Lloyd's seconds from random rows, and how often the others' fit into them."""
    init = X[np.random.default_rng(0).choice(len(X), size=k, replace=False)]
    options = dict(init=init, n_init=1, tol=0, max_iter=10_000)
    models = [
        KMeans(k, **options),
        KMeans(k, algorithm="elkan", **options),
        RBFKMeans(k, schedule=0.0, **options),
        RBFKMeans(k, **options),
    ]
    lloyd, *others = interleaved([lambda m=m: m.fit(X) for m in models], repeats)
    iterations = [m.n_iter_ for m in models]
    return lloyd, [lloyd / other for other in others], iterations


def geometric_mean(ratios):
    return np.exp(np.mean(np.log(ratios), axis=0))


def print_same_start(repeats, names):
    print("Same start, same fixed point: seconds of Lloyd over those of each\n")
    print(
        f"{'data':30} {'Lloyd s':>8} {'Elkan':>6} {'hard':>6} {'annealed':>8}"
        "  iterations"
    )
    table = []
    for name in names:
        make, k = DATA[name]
        lloyd, ratios, iterations = same_start(make(), k, repeats)
        table.append(ratios)
        cells = " ".join(f"{r:{w}.2f}" for r, w in zip(ratios, (6, 6, 8), strict=True))
        print(f"{name:30} {lloyd:8.3f} {cells}  {iterations}", flush=True)
    mean, least = geometric_mean(table), np.min(table, axis=0)
    for title, row in (("geometric mean", mean), ("least", least)):
        cells = " ".join(f"{r:{w}.2f}" for r, w in zip(row, (6, 6, 8), strict=True))
        print(f"{title:30} {'':8} {cells}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        f"{platform.machine()}, {os.cpu_count()} cores; Python "
        f"{platform.python_version()}, NumPy {np.__version__}, scikit-learn "
        f"{sklearn.__version__}, skrbfkmeans {skrbfkmeans.__version__}"
    )
    names = [name for name in DATA if options.only in name]
    RBFKMeans(2).fit(np.eye(3))  # compile
    for n_threads in options.threads:
        print(f"\n{n_threads} threads")
        with threadpool_limits(n_threads):
            print_same_start(options.repeats, names)


if __name__ == "__main__":
    main()
