"""
==================================
More rows than the workers' memory
==================================

1.3 gigabytes of rows are given to two workers that may take 0.6 gigabytes each. Dask
moves to their disks what does not fit, and :class:`~skrbfkmeans.dask.RBFKMeans` asks
for one chunk after the other. In each step only the centres go out, and sums come back.
"""

# %%
# The rows
# --------
#
# Forty chunks of thirty-two megabytes. Each is made by the worker that needs it; all
# chunks have the same ten clusters.

# SPDX-License-Identifier: BSD-3-Clause

import logging

import dask.array as da
import matplotlib.pyplot as plt
import numpy as np
from distributed import Client, LocalCluster

from skrbfkmeans.dask import RBFKMeans

N_CHUNKS, N_ROWS, N_FEATURES, N_CLUSTERS = 40, 125_000, 64, 10


def make_rows(block_info=None):
    """Rows of one chunk."""
    centers = np.random.default_rng(0).normal(0.0, 2.0, (N_CLUSTERS, N_FEATURES))
    rng = np.random.default_rng(block_info[None]["chunk-location"][0])
    noise = rng.standard_normal((N_ROWS, N_FEATURES), dtype=np.float32)
    return 2.0 * noise + centers[rng.integers(N_CLUSTERS, size=N_ROWS)].astype("f4")


X = da.map_blocks(
    make_rows,
    chunks=((N_ROWS,) * N_CHUNKS, (N_FEATURES,)),
    meta=np.empty((0, 0), dtype=np.float32),
)

# %%
# The fit
# -------
#
# ``memory_limit`` is what a worker may take; one that needs much more is stopped. The
# guard is there because each worker is a process that imports this file.


def fit(X):
    """Fit on two workers, whose memory together is smaller than X."""
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            memory_limit="600MB",
            dashboard_address=":0",
            silence_logs=logging.ERROR,  # that they wait for their disks, now and then
        ) as cluster,
        Client(cluster),
    ):
        model = RBFKMeans(N_CLUSTERS, random_state=0).fit(X)
        share = model.predict_proba(X[:N_ROWS]).max(axis=1).mean().compute()
    return model, share


if __name__ == "__main__":
    print(f"{X.nbytes / 1e6:,.0f} MB in {X.npartitions} chunks")
    model, share = fit(X)
    print(f"{model.n_iter_} steps, hardened: {model.hardened_}")
    print(f"inertia a row: {model.inertia_ / len(X):.2f}")
    print(f"mean largest membership: {share:.3f}")

# %%
# What is fitted is here: NumPy arrays, and with ``to_local`` the plain estimator.

if __name__ == "__main__":
    rows = make_rows({None: {"chunk-location": (0, 0)}})[:2000]
    labels = model.to_local().predict(rows)
    scattered = model.cluster_centers_ - model.cluster_centers_.mean(axis=0)
    plane = np.linalg.svd(scattered)[2][:2].T
    seen, centers = rows @ plane, model.cluster_centers_ @ plane
    figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
    ax.scatter(*seen.T, c=labels, s=4, cmap="tab10")
    ax.scatter(*centers.T, marker="x", color="black")
    ax.set(title="2,000 of 5,000,000 rows, and the centres", xticks=[], yticks=[])
    plt.show()
