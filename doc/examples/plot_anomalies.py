"""
===================================
Anomalies are far from every centre
===================================

Centres that serve the common rows well serve the rare ones badly. The distance of a
row to its nearest centre is therefore a score of anomaly, and so is the row's own
share of the free energy. Here both look for the few images of a rare digit among many
images of the nine others, next to :class:`~sklearn.ensemble.IsolationForest` [1]_ and
:class:`~sklearn.neighbors.LocalOutlierFactor` [2]_.

.. [1] F. T. Liu, K. M. Ting and Z.-H. Zhou, "Isolation forest", ICDM (2008).
.. [2] M. M. Breunig, H.-P. Kriegel, R. T. Ng and J. Sander, "LOF: identifying
   density-based local outliers", SIGMOD (2000).
"""

# %%
# Two scores
# ----------
#
# The free energy is a sum over rows. A row's term is the least value of
# :math:`\sum_j r_j d_j^2 - 2 \sigma^2 H_\alpha(r)`, attained at its responsibilities
# r. At ``alpha=1`` it is :math:`-2 \sigma^2 \log \sum_j \exp(-d_j^2 / (2 \sigma^2))`:
# up to a factor and a constant, minus the logarithm of a density with one Gaussian a
# centre. At ``sigma=0`` it is the squared distance to the nearest centre.

# SPDX-License-Identifier: BSD-3-Clause

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import IsolationForest
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.neighbors import LocalOutlierFactor

from skrbfkmeans import RBFKMeans
from skrbfkmeans.energy import free_energy, responsibilities
from skrbfkmeans.entmax import tsallis_entropy


def row_energies(X, centers, sigma, alpha=1.5):
    """Return the share of each row in the free energy."""
    squared = euclidean_distances(X, centers, squared=True)
    r = responsibilities(X, centers, sigma, alpha=alpha)
    return (r * squared).sum(axis=1) - 2 * sigma**2 * tsallis_entropy(r, alpha=alpha)


images, digit = load_digits(return_X_y=True)
few = RBFKMeans(n_clusters=20, random_state=0).fit(images)
total = free_energy(images, few.cluster_centers_, 4 * few.sigma_)
terms = row_energies(images, few.cluster_centers_, 4 * few.sigma_)
print(f"sum of the terms {terms.sum():.1f}, free energy {total:.1f}")

# %%
# Between two centres
# -------------------
#
# The distance has a ridge halfway between two centres. A row on it is as far from the
# centres as a row on the outer side, though it lies amidst the data. The energy smooths
# the ridge, the more so the higher the temperature: between centres it is lower than
# outside. With entmax it is the squared distance, exactly, where a row belongs to one
# centre alone; softmax shifts and smooths everywhere.

line = np.linspace(-3, 3, 301)[:, np.newaxis]
two_centers = np.array([[-1.0], [1.0]])
figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
for ax, alpha, name in zip(axes, (1.5, 1.0), ("entmax", "softmax"), strict=True):
    for sigma in (0.0, 0.7, 1.0):
        energy = row_energies(line, two_centers, sigma, alpha)
        ax.plot(line, energy, label=f"σ = {sigma:g}")
    ax.plot(two_centers, [-1.3, -1.3], "k^", markersize=9)
    ax.set(title=f"energy of a row, {name}", xlabel="position of the row")
    ax.spines[["top", "right"]].set_visible(False)
axes[0].legend()

# %%
# A rare digit
# ------------
#
# Each digit in turn becomes rare: ten of its images, drawn with another seed each time,
# among all images of the others. All methods see the rows without labels and score
# those same rows. The temperature is a multiple of ``sigma_``, the spread of the fitted
# clusters a feature.

N_RARE = 10
SIZES = 10, 20, 40
MULTIPLES = 4, 8
KINDS = {"entmax": 1.5, "softmax": 1.0}


def with_rare(rare, seed):
    """Return the rows with one class made rare, and which rows are of it."""
    members = np.flatnonzero(digit == rare)
    kept = np.random.default_rng(seed).choice(members, N_RARE, replace=False)
    rows = np.concatenate([np.flatnonzero(digit != rare), kept])
    return images[rows], digit[rows] == rare


def all_scores(X, seed):
    """Return the scores of anomaly by method, and the fitted models by size."""
    forest = IsolationForest(random_state=seed).fit(X)
    neighbours = LocalOutlierFactor().fit(X)
    scores = {
        ("IsolationForest", ""): -forest.score_samples(X),
        ("LocalOutlierFactor", ""): -neighbours.negative_outlier_factor_,
    }
    models = {}
    for k in SIZES:
        models[k] = RBFKMeans(n_clusters=k, random_state=seed).fit(X)
        centers, spread = models[k].cluster_centers_, models[k].sigma_
        name = f"{k} centres"
        scores[name, "distance"] = models[k].transform(X).min(axis=1)
        for kind, alpha in KINDS.items():
            for m in MULTIPLES:
                energies = row_energies(X, centers, m * spread, alpha)
                scores[name, f"{kind}, {m} σ"] = energies
    return scores, models


quality, won_a_centre = {}, {k: [] for k in SIZES}
for rare in range(10):
    X, is_rare = with_rare(rare, seed=rare)
    scores, models = all_scores(X, seed=rare)
    for name, score in scores.items():
        area = roc_auc_score(is_rare, score)
        precision = average_precision_score(is_rare, score)
        quality.setdefault(name, []).append((area, precision))
    for k, model in models.items():
        share = [is_rare[model.labels_ == j].mean() for j in range(k)]
        won_a_centre[k].append(np.max(share) > 0.5)

row = "{:<20}{:<14}{:>9}{:>10}{:>12}".format
print()
print(row("", "score", "ROC AUC", "its worst", "avg. prec."))
for (name, kind), values in quality.items():
    (area, precision), worst = np.mean(values, axis=0), np.min(values, axis=0)[0]
    print(row(name, kind, f"{area:.3f}", f"{worst:.3f}", f"{precision:.3f}"))
print()
for k, found in won_a_centre.items():
    print(f"{k} centres: the rare rows won a centre in {sum(found)} of {len(found)}")

# %%
# The number of centres decides. With too few, common rows are far from them too. With
# too many, the rare rows may win a centre of their own, and then they are not far from
# it: the worst case tells. There some temperature helps the ROC AUC, since common rows
# have several centres nearby, which lowers their energy, and the rare ones but one; the
# average precision, which looks at the top of the ranking, gains little or loses. Where
# the number of centres is right the energy adds nothing to the distance, and a high
# temperature spoils it, in softmax sooner than in entmax.
#
# The local outlier factor is as good as the distance to the best number of centres in
# the ROC AUC, without having to be told that number, and worse in the average
# precision. It keeps all rows, though, where the distance needs the centres alone. The
# forest, which cuts along one pixel at a time, finds these anomalies hard.

figure, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
for ax, kind in zip(axes, KINDS, strict=True):
    for k in SIZES:
        names = ["distance"] + [f"{kind}, {m} σ" for m in MULTIPLES]
        areas = [np.mean(quality[f"{k} centres", name], axis=0)[0] for name in names]
        ax.plot(areas, "o-", label=f"{k} centres")
    for name, style in ("LocalOutlierFactor", "--"), ("IsolationForest", ":"):
        area = np.mean(quality[name, ""], axis=0)[0]
        ax.axhline(area, color="0.4", linestyle=style, label=name)
    ticks = ["distance"] + [f"energy\nat {m} σ" for m in MULTIPLES]
    ax.set_xticks(range(len(ticks)), ticks)
    ax.set(title=kind, xlim=(-0.3, len(ticks) - 0.7))
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("mean ROC AUC")
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)

# %%
# The strangest images
# --------------------
#
# The sevens are rare now. Of the images farthest from every centre those of the rare
# digit have an orange frame. The others are common digits, written in an uncommon way.

X, is_rare = with_rare(7, seed=0)
model = RBFKMeans(n_clusters=20, random_state=0).fit(X)
strangest = np.argsort(-model.transform(X).min(axis=1))[:14]
print(f"\n{is_rare[strangest].sum()} of the {len(strangest)} strangest are rare")

figure, axes = plt.subplots(2, 7, figsize=(8, 2.6), layout="constrained")
for ax, i in zip(axes.flat, strangest, strict=True):
    ax.imshow(X[i].reshape(8, 8), cmap="gray_r")
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set(color="tab:orange" if is_rare[i] else "0.8", linewidth=4)

plt.show()
