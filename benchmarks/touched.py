"""The share of rows that an iteration looks at, and how near it is to the limit.

Draws, for some data, the share of rows whose distances to all centres are computed
at each iteration from random rows to labels that repeat; then prints, with one
thread, what the first E-step costs beside the matrix product alone, and what a late
one costs beside reading the bounds once. Run it with
``python benchmarks/touched.py [--output touched.png] [--repeats 11]``.
"""

# SPDX-License-Identifier: BSD-3-Clause

import argparse

import numpy as np
from threadpoolctl import threadpool_limits
from timing import interleaved
from versus import DATA

from skrbfkmeans._engine.rows import Rows
from skrbfkmeans._run.annealing import m_step

DRAWN = (
    "blobs 100,000 x 10, k = 50",
    "blobs 50,000 x 64, k = 100",
    "photo 68,320 x 3, k = 256",
    "uniform 50,000 x 8, k = 50",
)


def start_of(X, k):
    chosen = np.random.default_rng(0).choice(len(X), size=k, replace=False)
    return X[chosen].astype(np.float64)


def shares(X, k, annealed):
    """Share of rows looked at, for each iteration."""
    found, centers = [], start_of(X, k)
    with Rows(X) as rows:
        spread = np.sqrt(rows.e_step(1.5)(centers, 0.0).free_energy / X.size)
        sigmas = [spread, spread / 2, spread / 4] if annealed else []
        e_step, n_changed = rows.e_step(1.5), np.inf
        while n_changed > 0:
            sigma = sigmas.pop(0) if sigmas else 0.0
            step = e_step(centers, sigma)
            centers = m_step(centers, step, 1.0, 0.0)
            found.append(step.n_picked / len(X))
            n_changed = np.inf if sigmas else step.n_changed
    return found


def limits(X, k, repeats):
    """Milliseconds: first E-step, product in float64 and float32; last, bounds."""
    centers = start_of(X, k)
    with Rows(X) as rows:
        product = np.zeros((len(X), k))
        product32 = product.astype(np.float32)
        X32, centers32 = X.astype(np.float32), centers.astype(np.float32)
        late = rows.e_step(1.5)
        step = late(centers, 0.0)
        settled = centers
        while step.n_changed > 0:
            settled = m_step(settled, step, 1.0, 0.0)
            step = late(settled, 0.0)
        late(settled, 0.0)
        upper, lower = np.ones((2, len(X)))
        functions = [
            lambda: rows.e_step(1.5)(centers, 0.0),
            lambda: np.dot(X, centers.T, out=product),
            lambda: np.dot(X32, centers32.T, out=product32),
            lambda: late(settled, 0.0),
            lambda: (upper.max(), lower.max()),
        ]
        return [1e3 * seconds for seconds in interleaved(functions, repeats)]


def draw(output):
    """One panel without annealing and one with it."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, 2, figsize=(9, 3.4), layout="constrained", sharey=True
    )
    for ax, annealed in zip(axes, (False, True), strict=True):
        for name in DRAWN:
            make, k = DATA[name]
            found = shares(make(), k, annealed)
            ax.plot(np.arange(1, len(found) + 1), found, label=name)
        ax.set(
            title="annealed: 1, 1/2, 1/4 spread" if annealed else "k-means alone",
            xlabel="iteration", xscale="log", ylim=(0.0, 1.05),
        )  # fmt: skip
    axes[0].set_ylabel("share of rows looked at")
    axes[1].legend(frameon=False)
    figure.savefig(output, dpi=100)
    print(f"written: {output}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", default="touched.png")
    parser.add_argument("--repeats", type=int, default=11)
    options = parser.parse_args()
    with threadpool_limits(1):
        draw(options.output)
        print(f"\n{'milliseconds':30} {'first':>8} {'dot f8':>8} {'dot f4':>8}", end="")
        print(f" {'last':>8} {'bounds':>8}")
        for name, (make, k) in DATA.items():
            times = limits(make(), k, options.repeats)
            cells = " ".join(f"{milliseconds:8.2f}" for milliseconds in times)
            print(f"{name:30} {cells}", flush=True)


if __name__ == "__main__":
    main()
