"""
====================
The ambiguous digits
====================

A hard label says nothing about how sure it is. The memberships of
:class:`~skrbfkmeans.RBFKMeans` do: most rows belong to one cluster with a membership of
exactly 1, and the others tell between which clusters they lie. Here they find the
handwritten digits that are hard to place, without a look at the labels.
"""

# %%
# Clusters of digits
# ------------------
#
# Images of 8 × 8 pixels. There are more clusters than digits, since people write one
# digit in several ways. The labels are used for one thing only, to check: a cluster
# stands for the digit that most of its images show, and an image is misplaced if it
# shows another.

# SPDX-License-Identifier: BSD-3-Clause

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from skrbfkmeans import RBFKMeans

X, y = load_digits(return_X_y=True)
model = RBFKMeans(n_clusters=20, random_state=0).fit(X)
majority = np.array(
    [np.bincount(y[model.labels_ == j]).argmax() for j in range(model.n_clusters)]
)
misplaced = majority[model.labels_] != y
print(f"{len(X)} images, {misplaced.mean():.1%} of them misplaced")

# %%
# How soft to look
# ----------------
#
# The centres are those of k-means; how far a membership reaches is a matter of the
# temperature it is taken at, ``proba_sigma``. It can be changed without a new fit. The
# default ``sigma_`` is the spread of a cluster in one pixel. A gap between two
# distances adds up over 64 pixels, so few images are soft at that temperature. Higher
# ones find more of them. At each, an image that belongs to several clusters is
# misplaced more often than one that belongs to one alone.

row = "{:<13}{:>8}{:>19}{:>19}".format
print("\n" + row("proba_sigma", "soft", "misplaced of soft", "misplaced of hard"))
for multiple in 1, 2, 3, 4:
    model.set_params(proba_sigma=multiple * model.sigma_)
    soft = model.predict_proba(X).max(axis=1) < 1.0
    shares = soft.mean(), misplaced[soft].mean(), misplaced[~soft].mean()
    print(row(f"{multiple} × sigma_", *(f"{share:.1%}" for share in shares)))

# %%
# Sure and unsure
# ---------------
#
# From here on we take three times ``sigma_``. The lower the largest membership of an
# image, the more evenly it is shared. Sorted by it, the images fall into groups; the
# more evenly shared, the more of a group are misplaced (dashed line: of all images).
# That soft memberships rank doubtful rows first is an old argument for fuzzy clusters
# [1]_; that they are exactly 1 for the others comes from entmax [2]_.

memberships = model.set_params(proba_sigma=3.0 * model.sigma_).predict_proba(X)
largest = memberships.max(axis=1)
group = np.digitize(largest, [0.6, 0.75, 0.9, 1.0])
names = ["below 0.6", "0.6 to 0.75", "0.75 to 0.9", "0.9 to 1", "exactly 1"]
counts = np.bincount(group, minlength=len(names))
rates = np.bincount(group, misplaced, minlength=len(names)) / counts

row = "{:<20}{:>8}{:>11}".format
print("\n" + row("largest membership", "images", "misplaced"))
for name, count, rate in zip(names, counts, rates, strict=True):
    print(row(name, count, f"{rate:.1%}"))

figure, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
labels = [f"{name}\n{count} images" for name, count in zip(names, counts, strict=True)]
ax.bar(labels, 100.0 * rates, color="tab:red")
ax.axhline(100.0 * misplaced.mean(), color="0.4", linestyle="--")
ax.set(xlabel="largest membership", ylabel="misplaced, %")
ax.spines[["top", "right"]].set_visible(False)

# %%
# What they look like
# -------------------
#
# Top row: the five images that are shared most evenly, and three of the sure ones, each
# from another cluster and the farthest in it from all other centres. Below each the
# centres it belongs to most, with its memberships; what is missing to 100 % belongs to
# further clusters. The sure ones have one centre and no other.

squares = np.sort(model.transform(X), axis=1) ** 2
margin = squares[:, 1] - squares[:, 0]
surest = [
    np.where(model.labels_ == j, margin, -np.inf).argmax()
    for j in range(model.n_clusters)
]
surest.sort(key=lambda i: -margin[i])
shown = [*largest.argsort(kind="stable")[:5], *surest[:3]]

figure, axes = plt.subplots(4, 8, figsize=(8.4, 5.2), layout="constrained")
for ax in axes.flat:
    ax.set_axis_off()
for column, i in zip(axes.T, shown, strict=True):
    column[0].imshow(X[i].reshape(8, 8), cmap="gray_r")
    column[0].set_title("unsure" if largest[i] < 1.0 else "sure", fontsize=13)
    nearest = memberships[i].argsort()[::-1][:3]
    for ax, j in zip(column[1:], nearest, strict=True):
        if memberships[i, j] > 0.0:
            ax.imshow(model.cluster_centers_[j].reshape(8, 8), cmap="Blues")
            ax.set_title(f"{memberships[i, j]:.0%}", fontsize=13)

plt.show()

# %%
# .. [1] J. C. Bezdek, *Pattern Recognition with Fuzzy Objective Function Algorithms*,
#    Plenum Press (1981).
# .. [2] B. Peters, V. Niculae and A. F. T. Martins, "Sparse sequence-to-sequence
#    models", ACL (2019).
