"""
===============================
A radial basis function network
===============================

A radial basis function network is a layer of Gaussian bumps with a linear model on top.
With centres found by k-means [1]_ it is a pipeline of two steps:
:class:`~skrbfkmeans.RBFKMeans` with ``features="rbf"`` and a linear classifier. Two
relatives have the same shape, and differ in where their centres are:
:class:`~sklearn.kernel_approximation.Nystroem` draws rows at random [2]_, and
:class:`~sklearn.svm.SVC` keeps the rows that support its margin. Which needs how many
centres?
"""

# %%
# Three networks
# --------------
#
# Handwritten digits, 64 pixels each, scaled to 0..1. A third of them is set aside to
# choose the width of the bumps; all that comes after uses the other two thirds.
# Features of overlapping bumps are much alike, so the linear classifier wants a small
# penalty.

# SPDX-License-Identifier: BSD-3-Clause

from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    cross_validate,
    train_test_split,
)
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from skrbfkmeans import RBFKMeans

X, y = load_digits(return_X_y=True)
X, X_search, y, y_search = train_test_split(
    X / 16.0, y, test_size=1 / 3, stratify=y, random_state=0
)
cv = StratifiedKFold(n_splits=5, shuffle=True, random_state=0)

networks = {
    "RBFKMeans": make_pipeline(
        RBFKMeans(n_clusters=100, features="rbf", random_state=0),
        RidgeClassifier(alpha=1e-3),
    ),
    "Nystroem": make_pipeline(
        Nystroem(n_components=100, random_state=0), RidgeClassifier(alpha=1e-3)
    ),
    "SVC": make_pipeline(SVC(C=10.0)),
}
colors = {"RBFKMeans": "tab:red", "Nystroem": "tab:blue", "SVC": "0.3"}

# %%
# The width must be chosen
# ------------------------
#
# A bump is :math:`\exp(-d^2 / (2 \sigma^2))`, and ``proba_sigma`` is its width. Left at
# ``"auto"`` it is ``sigma_``, the spread of a cluster *in one feature*. But a squared
# distance is a sum over all features. In 64 dimensions a typical row lies
# :math:`\sqrt{64} = 8` times ``sigma_`` from its own centre, where a bump of that width
# has long vanished. So the widths on offer go from ``sigma_`` up, doubling each time.
# For the other two the same width is ``gamma``, :math:`1 / (2 \sigma^2)`.

clusters = RBFKMeans(n_clusters=100, random_state=0).fit(X_search)
to_own = clusters.transform(X_search).min(axis=1)
distance = np.sqrt(np.mean(to_own**2))
bumps = [np.exp(-(distance**2) / (2 * s**2)) for s in (clusters.sigma_, distance)]
print(f"sigma_                         {clusters.sigma_:.3f}")
print(f"root mean square distance      {distance:.3f}")
print(f"bump there, of width sigma_    {bumps[0]:.0e}")
print(f"bump there, of that width      {bumps[1]:.2f}")

widths = clusters.sigma_ * 2.0 ** np.arange(6)
gammas = 1.0 / (2.0 * widths**2)
grids = {
    "RBFKMeans": {"rbfkmeans__proba_sigma": widths},
    "Nystroem": {"nystroem__gamma": gammas},
    "SVC": {"svc__gamma": gammas},
}
searches = {
    name: GridSearchCV(network, grids[name], cv=3).fit(X_search, y_search)
    for name, network in networks.items()
}

print("\nAccuracy by width, in multiples of sigma_")
print(f"{'':<10}" + "".join(f"{2**i:>8}" for i in range(6)))
for name, search in searches.items():
    accuracies = search.cv_results_["mean_test_score"]
    print(f"{name:<10}" + "".join(f"{accuracy:>8.3f}" for accuracy in accuracies))

figure, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
for name, search in searches.items():
    accuracies = search.cv_results_["mean_test_score"]
    ax.plot(widths, accuracies, "o-", color=colors[name], label=name)
for width, text in (clusters.sigma_, "sigma_"), (distance, "distance to\nown centre"):
    ax.axvline(width, color="0.6", linestyle="--", zorder=0)
    ax.annotate(text, (width, 0.02), xytext=(4, 0), textcoords="offset points")
ax.set(xlabel="width σ", ylabel="accuracy", xscale="log", ylim=(0, 1.05))
ax.set_xticks(widths, [f"{width:.2f}" for width in widths])
ax.minorticks_off()
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, loc="center right")

# %%
# How many centres
# ----------------
#
# Each network keeps its width and is cross-validated on the rows not seen so far. The
# SVC chooses the number of its centres itself: the support vectors. A time is the
# shortest of several, the one least disturbed by what else the computer does: of the
# fits of all folds, and of ten predictions of all rows by one of them.


def seconds_to_predict(network, n_repeats=10):
    """Return the shortest time the network took to classify all rows."""
    times = []
    for _ in range(n_repeats):
        start = perf_counter()
        network.predict(X)
        times.append(perf_counter() - start)
    return min(times)


n_centres = [10, 20, 50, 100, 200]
results = {"RBFKMeans": [], "Nystroem": [], "SVC": []}
for name, search in searches.items():
    for n in n_centres if name != "SVC" else [None]:
        network = search.best_estimator_
        if name == "RBFKMeans":
            network.set_params(rbfkmeans__n_clusters=n)
        elif name == "Nystroem":
            network.set_params(nystroem__n_components=n)
        result = cross_validate(network, X, y, cv=cv, return_estimator=True)
        if name == "SVC":
            n = np.mean([fit[0].n_support_.sum() for fit in result["estimator"]])
        result["predict_time"] = seconds_to_predict(result["estimator"][0])
        results[name].append((n, result))

row = "{:<10}{:>8}{:>17}{:>11}{:>13}".format
print("\n" + row("", "centres", "accuracy", "fit, ms", "predict, ms"))
for name, curve in results.items():
    for n, result in curve:
        score = result["test_score"]
        times = 1000 * result["fit_time"].min(), 1000 * result["predict_time"]
        accuracy = f"{score.mean():.3f} ± {score.std():.3f}"
        print(row(name, f"{n:.0f}", accuracy, *(f"{time:.1f}" for time in times)))

# %%
# Centres of clusters are worth more than random rows: with few of them the network of
# ``RBFKMeans`` is well ahead of Nystroem's. With many, all three networks agree to
# within the spread over the folds, and none is a clear winner; the SVC needs several
# hundred support vectors for it, and so takes longest to predict. With many centres,
# clustering takes several times as long as drawing rows. So it is worth its time where
# the network is to be small; with a hundred centres or more, random rows do about as
# well.

figure, axes = plt.subplots(2, 1, figsize=(6, 6), sharex=True, layout="constrained")
for name, curve in results.items():
    n = [n for n, _ in curve]
    score = np.array([result["test_score"] for _, result in curve])
    time = [1000 * result["predict_time"] for _, result in curve]
    style = {
        "color": colors[name],
        "marker": "*" if name == "SVC" else "o",
        "markersize": 14 if name == "SVC" else 6,
    }
    axes[0].errorbar(
        n, score.mean(axis=1), score.std(axis=1), capsize=3, label=name, **style
    )
    axes[1].plot(n, time, **style)
axes[0].set(ylabel="accuracy", xscale="log")
axes[0].legend(frameon=False, loc="lower right")
axes[1].set(ylabel="time to predict\nall rows, ms", xlabel="centres", ylim=0)
axes[1].set_xticks(n_centres, n_centres)
for ax in axes:
    ax.minorticks_off()
    ax.spines[["top", "right"]].set_visible(False)

plt.show()

# %%
# .. [1] J. Moody and C. J. Darken, "Fast learning in networks of locally-tuned
#    processing units", Neural Computation 1 (1989).
# .. [2] C. K. I. Williams and M. Seeger, "Using the Nyström method to speed up kernel
#    machines", NIPS (2000).
