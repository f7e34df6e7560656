"""
====================
Where the centres go
====================

With ``store_path=True`` a model keeps its centres of every iteration. Here they are
drawn over the data as they move: while the model is hot they huddle in the middle, part
as it cools, and come to rest as k-means.
"""

# %%
# A slow descent
# --------------
#
# Handwritten digits along their first two principal components, and ten centres. The
# schedule begins near the critical temperature, above which all centres would meet, and
# takes its time, for the sake of the picture: for good clusters the default needs three
# temperatures.

# SPDX-License-Identifier: BSD-3-Clause

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.animation import FuncAnimation
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from skrbfkmeans import RBFKMeans
from skrbfkmeans.inspection import TrajectoryDisplay
from skrbfkmeans.schedules import Geometric

X = PCA(2, random_state=0).fit_transform(load_digits().data)
schedule = Geometric(start=0.9, stop=0.05, n_steps=30, unit="critical")
model = RBFKMeans(
    10, schedule=schedule, refine=None, store_path=True, random_state=0
).fit(X)
print(f"{model.n_iter_} iterations, hardened: {model.hardened_}")

# %%
# The whole path of each centre, from its start (white) to its end:

display = TrajectoryDisplay.from_estimator(model, X)
display.ax_.set(xlabel="first component", ylabel="second component", aspect="equal")

# %%
# Frame by frame
# --------------
#
# Rows take the colour of their nearest centre; the ring shows the temperature, as a
# distance in the units of the data.

path, sigmas = model.path_, model.history_["sigma"]
colors = plt.get_cmap("tab10").colors
figure, ax = plt.subplots(figsize=(5.2, 5), layout="constrained")
rows = ax.scatter(*X.T, s=5, linewidths=0)
centers = ax.scatter(*path[0].T, s=90, c=colors, edgecolors="black", zorder=3)
ring = ax.add_patch(plt.Circle((0, 0), 1, fill=False, color="0.3", linestyle="--"))
ax.set(aspect="equal", xticks=[], yticks=[])


def draw(i):
    """Draw the centres before iteration i, and whose rows are whose."""
    distances = np.linalg.norm(X[:, np.newaxis] - path[i], axis=2)
    rows.set_color([colors[j] for j in distances.argmin(axis=1)])
    centers.set_offsets(path[i])
    sigma = sigmas[i] if i < len(sigmas) else 0.0
    ring.set_radius(sigma)
    ax.set_title(f"iteration {i}, σ = {sigma:.1f}" if sigma else f"iteration {i}")


animation = FuncAnimation(figure, draw, frames=range(0, len(path), 1), interval=250)
plt.show()
