"""
=======================
A photo with 64 colours
=======================

Each pixel of a photo is a point in a cube: so much red, green and blue. To keep 64
colours out of thousands is to find 64 centres in that cloud, a task for k-means. Here
:class:`~skrbfkmeans.RBFKMeans` does it next to scikit-learn's
:class:`~sklearn.cluster.KMeans`, on all pixels, and then tells something that hard
labels cannot: which pixels lie between two colours.
"""

# %%
# The cloud of colours
# --------------------
#
# One row a pixel, one column a channel, scaled to 0..1. Nothing is sampled.

# SPDX-License-Identifier: BSD-3-Clause

from pathlib import Path
from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_sample_image

from skrbfkmeans import RBFKMeans

photo = load_sample_image("china.jpg") / 255.0
X = photo.reshape(-1, 3)
print(f"{len(X):,} pixels, {len(np.unique(X, axis=0)):,} colours")

# %%
# Two fits
# --------
#
# The first fit of ``RBFKMeans`` in a new installation compiles its kernels and keeps
# them on disk. Both times are shown: the first fit as it came, and a second one.

models = {
    "KMeans": KMeans(n_clusters=64, n_init=1, random_state=0),
    "RBFKMeans": RBFKMeans(n_clusters=64, random_state=0),
}


def seconds_to_fit(model):
    """Fit the model to the pixels and return the time it took."""
    start = perf_counter()
    model.fit(X)
    return perf_counter() - start


first = {name: seconds_to_fit(model) for name, model in models.items()}
second = {name: seconds_to_fit(model) for name, model in models.items()}

# %%
# Between two colours
# -------------------
#
# A membership of ``RBFKMeans`` is exactly zero for all but the nearest centres. A pixel
# is soft if more than one is left. We go through the photo in stripes, so that no
# table of pixels by centres has to be held.


def soft_share(model):
    """Return the share of pixels that belong to more than one centre."""
    stripes = np.array_split(X, 32)
    n_soft = sum(
        np.count_nonzero(np.count_nonzero(model.predict_proba(stripe), axis=1) > 1)
        for stripe in stripes
    )
    return n_soft / len(X)


soft = {"KMeans": "—", "RBFKMeans": f"{soft_share(models['RBFKMeans']):.1%}"}

row = "{:<10}{:>9}{:>13}{:>13}{:>12}{:>13}".format
print()
print(row("", "inertia", "first fit", "second fit", "iterations", "soft pixels"))
for name, model in models.items():
    times = f"{first[name]:.2f} s", f"{second[name]:.2f} s"
    print(row(name, f"{model.inertia_:.2f}", *times, model.n_iter_, soft[name]))

# %%
# How it cooled
# -------------
#
# While ``sigma`` is high many pixels pull at several centres. A few iterations later
# the last of them has hardened (dashed line): from there on the free energy is the
# inertia, and the model is k-means, exactly, down to its fixed point. Note the
# logarithmic axis.

figure, axes = plt.subplots(
    2, 3, figsize=(9, 4.6), height_ratios=[1.5, 1], layout="constrained"
)

pictures = {"Original": photo} | {
    f"{name}, 64 colours": model.cluster_centers_[model.labels_].reshape(photo.shape)
    for name, model in models.items()
}
for ax, (title, picture) in zip(axes[0], pictures.items(), strict=True):
    ax.imshow(picture.clip(0, 1))
    ax.set_title(title)
    ax.set_axis_off()

history = models["RBFKMeans"].history_
curves = {
    "sigma": "temperature σ",
    "free_energy": "free energy",
    "soft_fraction": "share of soft pixels",
}
iterations = np.arange(1, len(history["sigma"]) + 1)
for ax, (name, title) in zip(axes[1], curves.items(), strict=True):
    ax.plot(iterations, history[name], color="tab:red")
    ax.axvline(1 + np.count_nonzero(history["sigma"]), color="0.5", linestyle="--")
    ax.set(title=title, xlabel="iteration", xscale="log")
    ax.spines[["top", "right"]].set_visible(False)

path = Path("quantize_photo.png").resolve()
figure.savefig(path, dpi=150)
print(f"\nThe picture is in {path}")
