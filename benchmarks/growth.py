"""How the seconds of a run grow with rows, features and clusters; and its memory.

Draws the seconds of ``RBFKMeans(k, refine=None)`` and of ``KMeans(k, n_init=1)``, both
seeding included, on overlapping Gaussian clusters, and prints the highest memory of a
run on 1,000,000 x 10 rows with 1,000 clusters beyond its input. Run it with
``python benchmarks/growth.py [--output growth.png] [--threads 1] [--repeats 3]``;
``--memory`` prints the memory alone.
"""

# SPDX-License-Identifier: BSD-3-Clause

import argparse
import subprocess
import sys

import numpy as np
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits
from timing import interleaved

from skrbfkmeans import RBFKMeans

# What grows, and what stays: rows, features, clusters.
GROWTH = {
    "rows": [(n, 10, 100) for n in (10_000, 31_600, 100_000, 316_000, 1_000_000)],
    "features": [(20_000, d, 100) for d in (2, 8, 32, 128, 512)],
    "clusters": [(50_000, 10, k) for k in (10, 40, 160, 640, 2000)],
}

MEMORY = """
import numpy as np
from skrbfkmeans import RBFKMeans

def highest():  # kilobytes (Linux)
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line[:6] == "VmHWM:")

rng = np.random.default_rng(0)
RBFKMeans(5, max_iter=3, random_state=0).fit(rng.normal(size=(100_000, 10)))
X = rng.normal(size=(1_000_000, 10))
before = highest()
RBFKMeans(1000, refine=None, max_iter=5, random_state=0).fit(X)
print(highest() - before)
"""


def blobs(n, d, k):
    """Clusters whose neighbours overlap a little, in any number of features."""
    rng = np.random.default_rng(0)
    centers = rng.normal(scale=4.0 / d**0.25, size=(k, d))
    return centers[rng.integers(k, size=n)] + rng.normal(size=(n, d))


def seconds(repeats):
    """Of both, for each size."""
    found = {}
    for name, sizes in GROWTH.items():
        print(
            f"\n{'rows':>10} {'features':>9} {'clusters':>9} {'KMeans':>9} {'ours':>9}"
        )
        found[name] = []
        for n, d, k in sizes:
            X = blobs(n, d, k)
            models = (
                KMeans(k, n_init=1, random_state=0),
                RBFKMeans(k, refine=None, random_state=0),
            )
            pair = interleaved([lambda m=m, X=X: m.fit(X) for m in models], repeats)
            found[name].append(pair)
            print(f"{n:10,} {d:9} {k:9} {pair[0]:9.3f} {pair[1]:9.3f}", flush=True)
    return found


def draw(found, output):
    """One panel for each of what grows."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
    for ax, (name, sizes), column in zip(axes, GROWTH.items(), range(3), strict=True):
        x = [size[column] for size in sizes]
        theirs, ours = zip(*found[name], strict=True)
        ax.loglog(x, theirs, "o--", color="0.5", label="KMeans(n_init=1)")
        ax.loglog(x, ours, "o-", color="C0", label="RBFKMeans")
        n, d, k = sizes[0]
        fixed = {
            "rows": f"{d} features, {k} clusters",
            "features": f"{n:,} rows, {k} clusters",
            "clusters": f"{n:,} rows, {d} features",
        }
        ax.set(xlabel=name, title=fixed[name])
    axes[0].set_ylabel("seconds of a fit")
    axes[0].legend(frameon=False)
    figure.savefig(output, dpi=100)
    print(f"\nwritten: {output}")


def memory():
    """Print by how much a fit raises the highest resident set of a process."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY], check=True, capture_output=True, text=True
    )
    mebibytes = float(done.stdout) / 2**10
    print(f"\nmemory of 1,000,000 x 10, k = 1,000 beyond the rows: {mebibytes:.0f} MiB")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", default="growth.png")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory", action="store_true")
    options = parser.parse_args()
    if not options.memory:
        with threadpool_limits(options.threads):
            draw(seconds(options.repeats), options.output)
    memory()


if __name__ == "__main__":
    main()
