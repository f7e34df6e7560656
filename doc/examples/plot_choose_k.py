"""
===============================
Choosing the number of clusters
===============================

The inertia falls with every cluster that is added, so it cannot say how many there
should be. Here five criteria are asked, on data where the answer is known: the elbow of
the inertia, the silhouette, the stability of the labels, the share of soft rows, and
the free energy. Some work, some do not, and none always does.
"""

# %%
# Three data sets
# ---------------
#
# Six blobs, six blobs around the same centres but twice as wide, so that they overlap,
# and 178 wines from three cultivars, described by 13 measurements.

# SPDX-License-Identifier: BSD-3-Clause

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine, make_blobs
from sklearn.metrics import adjusted_rand_score, silhouette_score
from sklearn.preprocessing import scale
from sklearn.utils import resample

from skrbfkmeans import RBFKMeans
from skrbfkmeans.energy import free_energy

blobs = {"n_samples": 400, "centers": 6, "random_state": 0}
wine, cultivar = load_wine(return_X_y=True)
data = {
    "narrow blobs": (make_blobs(cluster_std=1.0, **blobs)[0], 6),
    "wide blobs": (make_blobs(cluster_std=2.0, **blobs)[0], 6),
    "wine": (scale(wine), len(np.unique(cultivar))),
}
ks = np.arange(2, 11)

# %%
# Five criteria
# -------------
#
# * The elbow [1]_: where the curve of the inertia bends. As a number we take how far
#   the curve is below the straight line between its ends, both axes scaled to
#   0..1.
# * The silhouette [2]_: how much closer a row is to its own cluster than to the next.
# * The stability [3]_: fit to bootstrap samples, label all rows by each, and compare
#   with the labels of the fit to all rows, by the adjusted Rand index. One fit of
#   :class:`~skrbfkmeans.RBFKMeans` rarely ends in a poor optimum, so what varies is due
#   to the sample and not to the start.
# * The soft rows: the share of rows with more than one cluster at ``sigma_``, the
#   spread of the fitted clusters. A boundary through a cluster makes its rows soft, one
#   through a gap none.
# * The free energy at ``sigma_``. It is below the inertia, by the more the softer the
#   rows, and one may hope for a minimum.


def stability(X, model, n_samples=8):
    """Return the mean agreement of the labels with those of bootstrap fits."""
    rng = np.random.RandomState(0)
    again = RBFKMeans(model.n_clusters, random_state=0)
    return np.mean(
        [
            adjusted_rand_score(
                model.labels_, again.fit(resample(X, random_state=rng)).predict(X)
            )
            for _ in range(n_samples)
        ]
    )


def depth_of_elbow(inertia):
    """Return how far each point is below the line between the ends."""
    fall = (inertia - inertia[-1]) / (inertia[0] - inertia[-1])
    return np.linspace(1.0, 0.0, len(inertia)) - fall


def criteria(X):
    """Return the values of each criterion, one for each number of clusters."""
    models = [RBFKMeans(n_clusters=k, random_state=0).fit(X) for k in ks]
    return {
        "inertia": np.array([m.inertia_ for m in models]),
        "elbow": depth_of_elbow(np.array([m.inertia_ for m in models])),
        "silhouette": np.array([silhouette_score(X, m.labels_) for m in models]),
        "stability": np.array([stability(X, m) for m in models]),
        "soft rows": np.array(
            [np.mean(m.predict_proba(X).max(axis=1) < 1.0) for m in models]
        ),
        "free energy": np.array(
            [free_energy(X, m.cluster_centers_, m.sigma_) for m in models]
        ),
    }


values = {name: criteria(X) for name, (X, _) in data.items()}

# %%
# What each would choose
# ----------------------
#
# The elbow, the silhouette and the stability are to be high, the share of soft rows
# and the free energy low.

choices = {
    "elbow": np.argmax,
    "silhouette": np.argmax,
    "stability": np.argmax,
    "soft rows": np.argmin,
    "free energy": np.argmin,
}
for name, measured in values.items():
    print(f"{name}: {data[name][1]} clusters")
    print(f"{'k':>4}" + "".join(f"{heading:>12}" for heading in measured))
    for i, k in enumerate(ks):
        cells = [
            f"{v[i]:>12.3f}" if abs(v).max() < 10 else f"{v[i]:>12.1f}"
            for v in measured.values()
        ]
        print(f"{k:>4}" + "".join(cells))
    chosen = [ks[best(measured[c])] for c, best in choices.items()]
    print(f"{'chosen':>16}" + "".join(f"{k:>12}" for k in chosen) + "\n")

# %%
# The free energy is no criterion: it falls with the inertia, all the way. The elbow is
# weak: the curves bend gently, it misses the number of blobs, and finds that of the
# wines by little. The silhouette finds the wines, but in the narrow blobs it prefers
# two groups of blobs, which is a fair answer to another question. The stability finds
# both. It is high for the two groups too, which are just as reproducible, so look at
# all its peaks. The share of soft rows finds the narrow blobs and comes for free, but
# does not tell two kinds of wine from three. Nothing finds the six blobs where they
# overlap.
#
# In the figure a ring marks the true number, and a large dot what the criterion would
# choose. The dashed lines are the free energy; that of the wines hides behind their
# inertia.

figure, axes = plt.subplots(2, 2, figsize=(7, 6), sharex=True, layout="constrained")
colors = dict(zip(data, ("tab:blue", "tab:orange", "tab:green"), strict=True))
for ax, criterion in zip(axes.flat, list(choices)[:-1], strict=True):
    for name, measured in values.items():
        true = np.flatnonzero(ks == data[name][1])[0]
        chosen = choices[criterion](measured[criterion])
        curve, color = measured[criterion], colors[name]
        if criterion == "elbow":
            curve = measured["inertia"] / measured["inertia"][0]
            energy = measured["free energy"] / measured["inertia"][0]
            ax.plot(ks, energy, color=color, linestyle="--")
        ax.plot(ks, curve, ".-", color=color, label=name)
        ax.plot(ks[chosen], curve[chosen], "o", color=color, markersize=8)
        ax.plot(
            ks[true], curve[true], "o", color=color, fillstyle="none", markersize=14
        )
    ax.set_title(criterion)
    ax.spines[["top", "right"]].set_visible(False)
axes[0, 0].set_ylabel("inertia, relative to k=2")
axes[0, 0].legend(frameon=False)
for ax in axes[1]:
    ax.set(xlabel="number of clusters k", xticks=ks[::2])

plt.show()

# %%
# How little an elbow says is shown in [4]_.
#
# .. [1] R. L. Thorndike, "Who belongs in the family?",
#    Psychometrika 18 (1953).
# .. [2] P. J. Rousseeuw, "Silhouettes: a graphical aid to the interpretation and
#    validation of cluster analysis", J. Comput. Appl. Math. 20 (1987).
# .. [3] U. von Luxburg, "Clustering stability: an overview", Foundations and Trends in
#    Machine Learning 2 (2010).
# .. [4] E. Schubert, "Stop using the elbow criterion for k-means and how to choose the
#    number of clusters instead", SIGKDD Explorations 25 (2023).
