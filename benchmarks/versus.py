"""Seconds of scikit-learn over ours: same start, seeding, default fits, predictions.

Every number of a table is a ratio: both are run in turn, in one process, and the
medians of their seconds divided; above 1, ours is faster. Run it with
``python benchmarks/versus.py``. ``--tables`` chooses some, ``--only`` the data whose
name contains it, ``--repeats`` the number of runs, ``--threads`` the numbers of
threads.
"""

# SPDX-License-Identifier: BSD-3-Clause

import argparse
import inspect
import os
import platform
import warnings

import numpy as np
import sklearn
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.datasets import load_digits, load_sample_image, make_blobs
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_info, threadpool_limits
from timing import interleaved

import skrbfkmeans
from skrbfkmeans import RBFKMeans
from skrbfkmeans._engine.rows import Rows
from skrbfkmeans._run import seeding

try:
    import faiss
except ImportError:  # its column stays empty
    faiss = None


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


def same_start(X, k, repeats):
    """From the same random rows to labels that repeat: Lloyd over the others.

    faiss-cpu, where it is installed, works in float32 and makes as many iterations
    as Lloyd.
    """
    init = X[np.random.default_rng(0).choice(len(X), size=k, replace=False)]
    options = dict(init=init, n_init=1, tol=0, max_iter=10_000)
    models = [
        KMeans(k, **options),
        KMeans(k, algorithm="elkan", **options),
        RBFKMeans(k, schedule=0.0, **options),
        RBFKMeans(k, **options),
    ]
    fits = [lambda m=m: m.fit(X) for m in models]
    if faiss is not None:
        fits.append(faiss_fit(X, init, models[0]))
    lloyd, *others = interleaved(fits, repeats)
    others += [np.nan] * (4 - len(others))
    iterations = ", ".join(str(m.n_iter_) for m in models)
    return lloyd, [lloyd / other for other in others], f"iterations {iterations}"


def faiss_fit(X, init, lloyd):
    """A fit of faiss, in float32, from the same rows; `lloyd` has been fitted before.

    It makes as many iterations as that.
    """
    k, d = init.shape
    X32, init32 = X.astype(np.float32), init.astype(np.float32)
    options = {"max_points_per_centroid": len(X), "min_points_per_centroid": 1}
    pools = (pool for pool in threadpool_info() if pool["user_api"] == "openmp")
    n_threads = min(pool["num_threads"] for pool in pools)

    def fit():
        faiss.omp_set_num_threads(n_threads)
        kmeans = faiss.Kmeans(d, k, niter=lloyd.n_iter_, **options)
        kmeans.train(X32, init_centroids=init32)

    return fit


def seeds(X, k, repeats):
    """Greedy k-means++, with as many candidates and from the same distribution."""
    found = {}

    def theirs():
        found["theirs"] = kmeans_plusplus(X, k, random_state=0)[1]

    def ours():
        with Rows(X) as rows:
            found["ours"] = seeding.kmeans_plusplus(rows, k, np.random.RandomState(0))

    seconds, other = interleaved([theirs, ours], repeats)
    n_same = np.count_nonzero(found["ours"] == found["theirs"])
    return seconds, [seconds / other], f"{n_same} of {k} rows drawn are the same"


def default_fits(X, k, repeats):
    """``KMeans(k, n_init=1)`` over ``RBFKMeans(k)``, without refinement and with.

    Seeding included, each repeat with a seed of its own; iterations over all rows and
    inertias are their medians.
    """
    kinds = {
        "theirs": lambda seed: KMeans(k, n_init=1, random_state=seed),
        "run alone": lambda seed: RBFKMeans(k, refine=None, random_state=seed),
        "refined": lambda seed: RBFKMeans(k, random_state=seed),
    }
    found = {name: [] for name in kinds}

    def fit(name):
        found[name].append(kinds[name](len(found[name])).fit(X))

    seconds, *others = interleaved([lambda n=n: fit(n) for n in kinds], repeats)
    n_iter, inertia = (
        [np.median([getattr(m, name) for m in models]) for models in found.values()]
        for name in ("n_iter_", "inertia_")
    )
    iterations = ", ".join(f"{n:.0f}" for n in n_iter)
    over = ", ".join(f"{value / inertia[0]:.4f}" for value in inertia[1:])
    note = f"iterations {iterations}; inertia over theirs {over}"
    return seconds, [seconds / other for other in others], note


def predictions(X, k, repeats):
    """`predict`, and `predict_proba` against that of a spherical mixture."""
    ours = RBFKMeans(k, random_state=0, max_iter=5).fit(X)
    peer = KMeans(k, n_init=1, init=ours.cluster_centers_, max_iter=1).fit(X)
    few = X[: max(2 * k, 1000)]
    mixture = GaussianMixture(
        k, covariance_type="spherical", means_init=ours.cluster_centers_, max_iter=1
    ).fit(few)
    seconds, other, theirs, proba = interleaved(
        [
            lambda: peer.predict(X),
            lambda: ours.predict(X),
            lambda: mixture.predict_proba(X),
            lambda: ours.predict_proba(X),
        ],
        2 * repeats + 1,
    )
    return seconds, [seconds / other, theirs / proba], ""


TABLES = {
    "start": (same_start, ["Elkan", "hard", "annealed", "faiss"]),
    "seeding": (seeds, ["seeding"]),
    "default": (default_fits, ["alone", "refined"]),
    "predict": (predictions, ["predict", "proba"]),
}


def print_table(function, columns, names, repeats):
    print(f"\n{inspect.cleandoc(function.__doc__)}\n")
    print(f"{'data':30} {'s':>8} " + " ".join(f"{name:>8}" for name in columns))
    table = []
    for name in names:
        make, k = DATA[name]
        seconds, ratios, note = function(make(), k, repeats)
        table.append(ratios)
        cells = " ".join(f"{ratio:8.2f}" for ratio in ratios)
        print(f"{name:30} {seconds:8.4f} {cells}  {note}", flush=True)
    rows = {
        "geometric mean": np.exp(np.mean(np.log(table), axis=0)),
        "least": np.min(table, axis=0),
    }
    for title, row in rows.items():
        print(f"{title:39} " + " ".join(f"{ratio:8.2f}" for ratio in row), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=TABLES)
    parser.add_argument("--only", default="")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        f"{platform.machine()}, {os.cpu_count()} cores; Python "
        f"{platform.python_version()}, NumPy {np.__version__}, scikit-learn "
        f"{sklearn.__version__}, skrbfkmeans {skrbfkmeans.__version__}"
    )
    names = [name for name in DATA if options.only in name]
    for n_threads in options.threads:
        print(f"\n{n_threads} thread{'s' if n_threads > 1 else ''}")
        with threadpool_limits(n_threads):
            for table in options.tables:
                print_table(*TABLES[table], names, options.repeats)


if __name__ == "__main__":
    main()
