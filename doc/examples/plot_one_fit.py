"""
======================
One fit instead of ten
======================

K-means ends in whatever optimum its start leads to, so people start it ten times. Here
are fifty clusters that ten starts do not sort out: somewhere two centres share a
cluster, and somewhere else one centre has to do for two. A single fit of
:class:`~skrbfkmeans.RBFKMeans` moves such centres to where they are missing, and says
besides which points belong to more than one cluster.
"""

# %%
# Fifty clusters
# --------------
#
# Normal clusters, some of which overlap. Where they truly are is used to count mistakes
# only: a true cluster without a centre of its own is one (the centroid index of P.
# Fränti et al., Pattern Recognition 47, 2014, counts those).

# SPDX-License-Identifier: BSD-3-Clause

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.metrics import pairwise_distances_argmin

from skrbfkmeans import RBFKMeans
from skrbfkmeans.inspection import MembershipDisplay

X, _, truth = make_blobs(
    3000, centers=50, cluster_std=0.8, center_box=(-20, 20), random_state=1,
    return_centers=True,
)  # fmt: skip
models = {
    "KMeans, the best of ten": KMeans(50, n_init=10, random_state=0).fit(X),
    "RBFKMeans, one fit": RBFKMeans(50, random_state=0).fit(X),
}


def without_centre(model):
    """Return the true centres to which no centre of the model is the nearest."""
    found = pairwise_distances_argmin(model.cluster_centers_, truth)
    return truth[np.setdiff1d(np.arange(len(truth)), found)]


print(f"{'':<26}{'inertia':>9}{'without a centre':>20}")
for name, model in models.items():
    print(f"{name:<26}{model.inertia_:>9.1f}{len(without_centre(model)):>20}")

# %%
# Side by side
# ------------
#
# Rings mark true clusters without a centre. On the right the plane is shaded by the
# memberships of its points, at twice the spread of the clusters: where colours run into
# each other a point belongs to both.

figure, axes = plt.subplots(
    1, 2, figsize=(9, 4.6), sharex=True, sharey=True, layout="constrained"
)
hard, soft = models.values()
axes[0].scatter(*X.T, s=5, c="0.6", linewidths=0)
axes[0].scatter(*hard.cluster_centers_.T, s=70, c="white", edgecolors="k", marker="X")
MembershipDisplay.from_estimator(soft, X, sigma=2 * soft.sigma_, ax=axes[1])
for ax, (name, model) in zip(axes, models.items(), strict=True):
    ax.scatter(
        *without_centre(model).T, s=500, facecolors="none", edgecolors="red",
        linewidths=2,
    )  # fmt: skip
    ax.set(title=f"{name}: inertia {model.inertia_:.0f}", xticks=[], yticks=[])
    ax.set(xlabel="", ylabel="")

plt.show()
