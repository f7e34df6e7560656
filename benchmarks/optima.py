"""How good the optima are that clusterers find, and how long they take to find them.

Each method is fitted to each data set with the same seeds, one seed after the other.
Run it with ``python benchmarks/optima.py [--data DIR] [--seeds 10] [--threads 1]``.
DIR holds ``FAMILY/NAME.data.gz``, one row a point, with ``FAMILY/NAME.labels0.gz``,
the true cluster of each row from 1 on, or 0 for noise: the layout of the benchmark
suite of clustering data by Gagolewski et al. Without it, only data that come with
scikit-learn or are drawn at random are clustered. ``--methods`` chooses some methods,
``--only`` the data whose name contains it.

The columns: the median and the worst excess, in percent, over the least inertia that
any method found in this run with any seed; where the true clusters are Gaussian, the
worst centroid index [1]_, which is how many centres are in the wrong place; and the
median of the seconds of a fit. A mixture is scored by the inertia of its means.

.. [1] P. Fränti, M. Rezaei, Q. Zhao, "Centroid index: cluster level similarity
   measure", Pattern Recognition 47 (2014).
"""

# SPDX-License-Identifier: BSD-3-Clause

import argparse
import inspect
import os
import platform
import time
import warnings
from functools import partial
from importlib import metadata
from pathlib import Path

import numpy as np
import sklearn
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, load_sample_image, make_blobs
from sklearn.metrics import pairwise_distances_argmin, pairwise_distances_argmin_min
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

import skrbfkmeans
from skrbfkmeans import RBFKMeans

try:
    from bkmeans import BKMeans
except ImportError:  # its rows are left out
    BKMeans = None

METHODS = {
    "kmeans1": lambda k, seed: KMeans(k, n_init=1, random_state=seed),
    "kmeans10": lambda k, seed: KMeans(k, n_init=10, random_state=seed),
    "bkmeans": lambda k, seed: BKMeans(n_clusters=k, random_state=seed),
    "mixture": lambda k, seed: GaussianMixture(
        k, covariance_type="spherical", random_state=seed
    ),
    "unrefined": lambda k, seed: RBFKMeans(k, refine=None, random_state=seed),
    "refined": lambda k, seed: RBFKMeans(k, random_state=seed),
}

# A mixture is fitted to no more rows and features than these.
MIXTURE_ROWS, MIXTURE_FEATURES = 10_000, 64

# The data whose labels are true Gaussian clusters.
GAUSSIAN = [
    *("sipu/s1", "sipu/s2", "sipu/s3", "sipu/s4", "sipu/a1", "sipu/a2", "sipu/a3"),
    *("sipu/d31", "sipu/r15", "sipu/unbalance", "sipu/birch1", "sipu/birch2"),
]

# Refined inertia above the unrefined times this counts as worse.
TOLERANCE = 1.0 + 1e-9


def photo():
    """Colours of every second pixel of a photograph, between 0 and 1."""
    return load_sample_image("china.jpg").reshape(-1, 3)[::2] / 255.0


def uniform(n, d):
    return np.random.default_rng(0).uniform(size=(n, d))


def blobs(n, d, k):
    """Clusters that overlap."""
    return make_blobs(n, d, centers=k, cluster_std=5.0, random_state=0)[0]


DATA = {
    "digits-10": (lambda: load_digits().data, 10),
    "digits-50": (lambda: load_digits().data, 50),
    "photo": (photo, 64),
    "uniform": (lambda: uniform(50_000, 2), 500),
    "blobs": (lambda: blobs(10_000, 784, 50), 50),
}


def read(path, name):
    """Rows, number of clusters, and their true centres if they are Gaussian."""
    X = np.loadtxt(path, ndmin=2)
    labels_path = path.with_name(path.name.replace(".data.", ".labels0."))
    labels = np.loadtxt(labels_path).astype(int)
    clusters = np.unique(labels[labels > 0])
    truth = None
    if name in GAUSSIAN:
        truth = np.array([X[labels == cluster].mean(axis=0) for cluster in clusters])
    return X, len(clusters), truth


def data_sets(folder):
    """By name, functions that return rows, number of clusters and true centres."""
    found = {}
    for path in sorted(Path(folder).glob("*/*.data.gz")) if folder else []:
        name = f"{path.parent.name}/{path.name.removesuffix('.data.gz')}"
        found[name] = partial(read, path, name)
    for name, (make, k) in DATA.items():
        found[name] = lambda make=make, k=k: (make(), k, None)
    return found


def warm_up(methods):
    """Fit each method to few rows, so that nothing is compiled while it is timed."""
    for d in (2, 64):
        X = uniform(1000, d)
        for method in methods:
            METHODS[method](50, 0).fit(X)


def centers_and_inertia(model, X):
    """Of a fitted model; a mixture has no inertia, so its means are assigned rows."""
    if not isinstance(model, GaussianMixture):
        return model.cluster_centers_, model.inertia_
    distances = pairwise_distances_argmin_min(X, model.means_)[1]
    return model.means_, np.sum(distances**2)


def centroid_index(centers, truth):
    """Most orphans: those that no centre of the other kind has as its nearest."""
    orphans = (
        len(others) - len(np.unique(pairwise_distances_argmin(some, others)))
        for some, others in ((centers, truth), (truth, centers))
    )
    return max(orphans)


def fit_all(methods, n_seeds, X, k, truth):
    """Inertias, centroid indices and seconds of each method, one row a seed."""
    found = {method: [] for method in methods}
    for seed in range(n_seeds):
        for method in methods:
            model = METHODS[method](k, seed)
            start = time.perf_counter()
            model.fit(X)
            seconds = time.perf_counter() - start
            centers, inertia = centers_and_inertia(model, X)
            index = np.nan if truth is None else centroid_index(centers, truth)
            found[method].append((inertia, index, seconds))
    return {method: np.array(rows).T for method, rows in found.items()}


def compare(name, load, methods, n_seeds):
    """Fit all methods to one data set and print how they fared.

    Returns the figures of each, and for each seed whether refined is worse.
    """
    X, k, truth = load()
    n, d = X.shape
    print(f"\n{name}: {n:,} x {d}, k = {k}", flush=True)
    if n > MIXTURE_ROWS or d > MIXTURE_FEATURES:
        methods = [method for method in methods if method != "mixture"]
    if not methods:
        return {}, []
    found, table = fit_all(methods, n_seeds, X, k, truth), {}
    best = min(inertias.min() for inertias, _, _ in found.values())
    for method, (inertias, indices, seconds) in found.items():
        median, worst = np.median(inertias) / best - 1.0, inertias.max() / best - 1.0
        index, seconds = indices.max(), np.median(seconds)
        table[method] = median, worst, index, seconds
        shown = "" if truth is None else f"{index:.0f}"
        print(
            f"  {method:10} {100 * median:9.3f} {100 * worst:9.3f} {shown:>6} "
            f"{seconds:9.4f}",
            flush=True,
        )
    is_worse = []
    if {"refined", "unrefined"} <= found.keys():
        is_worse = found["refined"][0] > found["unrefined"][0] * TOLERANCE
        if is_worse.any():
            print(f"  refined is worse with seeds {np.flatnonzero(is_worse).tolist()}")
    return table, is_worse


def geometric_mean(values):
    return np.exp(np.mean(np.log(values)))


def times_slower(tables, method, other):
    """Geometric mean, over the data sets of both, of one's seconds over the other's."""
    both = [table for table in tables if method in table and other in table]
    ratios = [table[method][3] / table[other][3] for table in both]
    return f"{geometric_mean(ratios):.2f}" if both else ""


def print_summary(tables, methods):
    """All data sets that a method was fitted to, together.

    Geometric mean of the median excesses, worst excess, sum of the centroid indices
    and of how many sets, geometric mean of the seconds, and these over those of two
    others on the sets of both: below 1, the method is faster than the other.
    """
    print(f"\n{inspect.cleandoc(print_summary.__doc__)}\n")
    print(
        f"  {'':10} {'sets':>4} {'mean %':>9} {'worst %':>9} {'index':>6} {'of':>3} "
        f"{'s':>9} {'/bkmeans':>9} {'/kmeans1':>9}"
    )
    for method in methods:
        rows = [table[method] for table in tables if method in table]
        if not rows:
            continue
        medians, worst, indices, seconds = np.array(rows).T
        ratios = [times_slower(tables, method, peer) for peer in ("bkmeans", "kmeans1")]
        print(
            f"  {method:10} {len(rows):4} "
            f"{100 * (geometric_mean(1.0 + medians) - 1.0):9.3f} "
            f"{100 * worst.max():9.3f} {np.nansum(indices):6.0f} "
            f"{np.count_nonzero(~np.isnan(indices)):3} "
            f"{geometric_mean(seconds):9.4f} {ratios[0]:>9} {ratios[1]:>9}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", help="folder of FAMILY/NAME.data.gz")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--only", default="")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    sets = data_sets(options.data)
    if options.data and len(sets) == len(DATA):
        parser.error(f"no FAMILY/NAME.data.gz in {options.data}")
    sets = {name: load for name, load in sets.items() if options.only in name}
    if not sets or options.seeds < 1:
        parser.error("nothing to compare")
    methods = [name for name in METHODS if name in options.methods]
    peer = "not installed: left out" if BKMeans is None else metadata.version("bkmeans")
    if BKMeans is None and "bkmeans" in methods:
        methods.remove("bkmeans")
    print(
        f"{platform.machine()}, {os.cpu_count()} cores; Python "
        f"{platform.python_version()}, NumPy {np.__version__}, scikit-learn "
        f"{sklearn.__version__}, skrbfkmeans {skrbfkmeans.__version__}, bkmeans {peer}"
    )
    print(f"threads: {options.threads}, seeds: {options.seeds}")
    print(f"\n  {'':10} {'median %':>9} {'worst %':>9} {'index':>6} {'s':>9}")
    with threadpool_limits(options.threads):
        warm_up(methods)
        results = [
            compare(name, load, methods, options.seeds) for name, load in sets.items()
        ]
    print_summary([table for table, _ in results], methods)
    if {"refined", "unrefined"} <= set(methods):
        is_worse = np.concatenate([flags for _, flags in results])
        print(
            f"\nRefined is worse than unrefined in {np.count_nonzero(is_worse)} of "
            f"{len(is_worse)} pairs of data set and seed."
        )


if __name__ == "__main__":
    main()
