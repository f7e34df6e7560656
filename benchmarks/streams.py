"""Batches: `partial_fit` next to that of MiniBatchKMeans, at equal time.

Both get the rows of a stationary stream in the same batches. MiniBatchKMeans, where it
is faster, goes through them again until it has taken as long. Printed is by how much
the inertia of all rows exceeds that of one `fit` to all of them, in percent, as medians
over seeds. Run it with ``python benchmarks/streams.py [--seeds 5]``.
"""

# SPDX-License-Identifier: BSD-3-Clause

import argparse
from time import perf_counter

import numpy as np
from sklearn.cluster import MiniBatchKMeans
from sklearn.datasets import load_digits, load_sample_image, make_blobs

from skrbfkmeans import RBFKMeans

BATCHES = 100, 1000, 10_000


def streams():
    """Rows by name, and the number of clusters to find in them."""
    rng = np.random.default_rng(0)
    photo = load_sample_image("china.jpg").reshape(-1, 3) / 255.0
    digits = np.repeat(load_digits().data, 20, axis=0)
    overlapping = {"cluster_std": 2.0, "random_state": 0}
    narrow = {"cluster_std": 0.8, "center_box": (-20, 20), "random_state": 1}
    return {
        "blobs x 5, k = 20": (make_blobs(50_000, 5, centers=20, **overlapping)[0], 20),
        "blobs x 2, k = 50": (make_blobs(60_000, 2, centers=50, **narrow)[0], 50),
        "uniform x 4, k = 30": (rng.uniform(size=(100_000, 4)), 30),
        "photo x 3, k = 32": (photo, 32),
        "digits x 64, k = 10": (digits + rng.normal(size=digits.shape), 10),
    }


def follow(model, X, size, seconds=0.0):
    """Give the model all batches, and again until the time is up; the time taken."""
    begin = perf_counter()
    while True:
        for start in range(0, len(X), size):
            model.partial_fit(X[start : start + size])
        taken = perf_counter() - begin
        if taken >= seconds:
            return taken


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    row = "{:<20}{:>8}{:>15}{:>9}{:>8}{:>10}".format
    print(row("stream", "batch", "MiniBatch, %", "ours, %", "worst", "seconds"))
    for name, (X, k) in streams().items():
        best = min(RBFKMeans(k, random_state=seed).fit(X).inertia_ for seed in seeds)
        for size in BATCHES:
            found = []
            for seed in seeds:
                rows = X[np.random.default_rng(seed).permutation(len(X))]
                ours = RBFKMeans(k, random_state=seed)
                theirs = MiniBatchKMeans(k, random_state=seed)
                taken = follow(ours, rows, size)
                follow(theirs, rows, size, taken)
                excess = [100.0 * (-m.score(X) / best - 1.0) for m in (theirs, ours)]
                found.append((*excess, taken))
            theirs, ours, taken = np.median(found, axis=0)
            worst = np.max(found, axis=0)[1]
            cells = f"{theirs:.2f}", f"{ours:.2f}", f"{worst:.2f}", f"{taken:.2f}"
            print(row(name, f"{size:,}", *cells), flush=True)


if __name__ == "__main__":
    main()
