"""
==================================
Directions: clusters by the cosine
==================================

The length of a row may tell nothing: the same digit, photographed in more light, has
larger numbers in all pixels. What counts then is the direction of the row, and the
likeness of two rows is the cosine of the angle between them. No metric has to be set
for that. It is enough to put :class:`~sklearn.preprocessing.Normalizer` before
:class:`~skrbfkmeans.RBFKMeans`.
"""

# %%
# Squared distance and cosine
# ---------------------------
#
# For two rows of length 1 the squared distance is two minus twice the cosine. So the
# nearest of some directions is the one with the largest cosine.

# SPDX-License-Identifier: BSD-3-Clause

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.pairwise import cosine_similarity, euclidean_distances
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, normalize

from skrbfkmeans import RBFKMeans

X, digit = load_digits(return_X_y=True)
unit = normalize(X)
difference = euclidean_distances(unit, squared=True) - (2 - 2 * cosine_similarity(X))
print(f"largest difference of the two sides: {np.abs(difference).max():.0e}")

# %%
# Light that varies
# -----------------
#
# Each image is multiplied by a random factor, the exponential of a normal deviate. Its
# standard deviation is the strength: at 0 all stays as it was.


def lit(X, strength, seed=0):
    """Return the rows, each multiplied by a random factor."""
    deviates = np.random.default_rng(seed).standard_normal((len(X), 1))
    return X * np.exp(strength * deviates)


def by_distance():
    """Return the clusterer of the rows as they are."""
    return RBFKMeans(n_clusters=10, random_state=0)


def by_cosine():
    """Return the clusterer of their directions."""
    return make_pipeline(Normalizer(), RBFKMeans(n_clusters=10, random_state=0))


strengths = 0.0, 0.1, 0.2, 0.4, 0.8
scores = {"distance": [], "cosine": []}
reference = by_cosine().fit_predict(X)
n_changed = []
for strength in strengths:
    images = lit(X, strength)
    labels = by_cosine().fit_predict(images)
    n_changed.append(np.count_nonzero(labels != reference))
    scores["cosine"].append(adjusted_rand_score(digit, labels))
    labels = by_distance().fit_predict(images)
    scores["distance"].append(adjusted_rand_score(digit, labels))

row = "{:>8}{:>10}{:>10}{:>24}".format
print("\nadjusted Rand score with the digits")
print(row("strength", "distance", "cosine", "cosine, labels changed"))
for values in zip(strengths, *scores.values(), n_changed, strict=True):
    strength, *both, changed = values
    print(row(strength, *(f"{score:.3f}" for score in both), changed))

# %%
# By the cosine the light makes no difference, for the clusterer sees the same rows as
# before but for rounding. By the distance it soon is the light that is clustered, not
# the digit. Where all images are lit alike the two agree with the digits about as well.
#
# Directions of centres
# ---------------------
#
# A centre is the mean of rows on the sphere, and so lies inside it, the deeper the more
# its rows differ. In the zero-temperature limit the squared length of a centre is one
# minus the mean squared distance of its rows to it. To get directions, normalise the
# centres.

model = by_cosine().fit(X)[-1]
centers, labels = model.cluster_centers_, model.labels_
directions = normalize(centers)
squared = ((unit - centers[labels]) ** 2).sum(axis=1)

row = "{:>7}{:>7}{:>9}{:>17}{:>28}{:>14}".format
title = "squared length", "1 - mean squared distance", "mean cosine"
print()
print(row("centre", "rows", "length", *title))
for j, length in enumerate(np.linalg.norm(centers, axis=1)):
    own = labels == j
    cosine = (unit[own] @ directions[j]).mean()
    values = length, length**2, 1 - squared[own].mean(), cosine
    print(row(j, own.sum(), *(f"{value:.4f}" for value in values)))

# %%
# The length of a centre is also the mean cosine of its rows with its direction.
#
# Spherical k-means [1]_ compares a row with the directions, ``RBFKMeans`` with the
# centres themselves, whose lengths differ a little. So the nearest centre of a row need
# not be the one of the largest cosine, but seldom is another.
#
# .. [1] I. S. Dhillon and D. S. Modha, "Concept decompositions for large sparse text
#    data using clustering", Machine Learning 42 (2001).

largest_cosine = cosine_similarity(X, directions).argmax(axis=1)
n_other = np.count_nonzero(largest_cosine != labels)
print(f"\nlargest cosine not with the nearest centre: {n_other} of {len(X)} rows")

# %%
# Some digits in varying light, the directions found, and the scores. The digits are
# drawn in one scale of grey, cut off where a pixel is brighter than any was before.

figure = plt.figure(figsize=(9, 5.4), layout="constrained")
left, right = figure.subfigures(1, 2)
top, bottom = left.subfigures(2, 1)
pictures = {
    top: ("varying light, strength 0.8", lit(X, 0.8)[:10], X.max()),
    bottom: ("directions of the centres", directions, directions.max()),
}
for part, (title, rows, white) in pictures.items():
    part.suptitle(title)
    for ax, image in zip(part.subplots(2, 5).flat, rows, strict=True):
        ax.imshow(image.reshape(8, 8), cmap="gray", vmin=0, vmax=white)
        ax.set_axis_off()

ax = right.subplots()
for name, values in scores.items():
    ax.plot(strengths, values, "o-", label=f"by {name}")
ax.set(xlabel="strength of the variation", ylabel="adjusted Rand score")
ax.set_title("agreement with the digits")
ax.spines[["top", "right"]].set_visible(False)
ax.legend()

plt.show()
