"""
==============================
Searching how to cool, and why
==============================

The parameters of :class:`~skrbfkmeans.RBFKMeans` can be searched over, those of its
schedule too. But a search finds only what its score can see. ``proba_sigma``, say,
moves no centre, so that all its values have the same score. Here
:class:`~sklearn.model_selection.GridSearchCV` searches twice in a pipeline: for the
cooling that finds the best centres, and for the number of clusters, which the score of
a clusterer cannot tell.
"""

# %%
# Wines
# -----
#
# 178 wines, each described by 13 chemical measurements, from three cultivars. The
# measurements have different units, so they are standardised, and the scaler is part
# of the pipeline: it learns from the training folds alone.

# SPDX-License-Identifier: BSD-3-Clause

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics import silhouette_score
from sklearn.model_selection import GridSearchCV, RepeatedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skrbfkmeans import RBFKMeans
from skrbfkmeans.schedules import Geometric

X, y = load_wine(return_X_y=True)
cv = RepeatedKFold(n_splits=5, n_repeats=2, random_state=0)


def folds(search, name):
    """Return what the search measured: one row a setting, one column a fold."""
    measured = search.cv_results_
    return np.column_stack(
        [measured[f"split{i}_{name}"] for i in range(cv.get_n_splits())]
    )


# %%
# How to cool
# -----------
#
# The parameters of the schedule have names with two underscores. We search over the
# first temperature and the number of temperatures, once for single runs
# (``refine=None``) and once with the default refinement. The number of clusters is
# the same for all, so their scores compare like with like: ``score`` is minus the
# inertia, whatever the temperature.

starts, n_steps, refines = [1.0, 2.0, 4.0], [3, 30], [None, "auto"]
cooling = GridSearchCV(
    make_pipeline(
        StandardScaler(),
        RBFKMeans(n_clusters=12, schedule=Geometric(), random_state=0),
    ),
    {
        "rbfkmeans__refine": refines,
        "rbfkmeans__schedule__n_steps": n_steps,
        "rbfkmeans__schedule__start": starts,
    },
    cv=cv,
    return_train_score=True,
).fit(X)

# %%
# The folds differ far more than the settings do. So each setting is compared with the
# default one in the same fold: by how much is its inertia higher? The spread is the
# standard deviation of that over the folds. The inertia of the training rows tells
# how good the optimum is, that of the held-out rows how well the centres carry over.

changes = {}
for name in "train_score", "test_score":
    inertia = -folds(cooling, name).reshape(
        len(refines), len(n_steps), len(starts), cv.get_n_splits()
    )
    # the default: refine="auto", n_steps=3, start=1
    changes[name] = 100.0 * (inertia / inertia[1, 0, 0] - 1.0)

row = "{:<8}{:>8}{:>7}{:>20}{:>20}".format
print("Inertia compared with the default")
print(row("refine", "n_steps", "start", "training rows", "held-out rows"))
for i, refine in enumerate(refines):
    for j, steps in enumerate(n_steps):
        for k, start in enumerate(starts):
            cells = [
                f"{change[i, j, k].mean():+.1f} ± {change[i, j, k].std():.1f} %"
                for change in changes.values()
            ]
            print(row(str(refine), steps, start, *cells))

# %%
# A single run gains from slow cooling from a high temperature, on the training rows:
# the lines on the left fall. Refinement gains more than any schedule, and leaves
# nothing for the schedule to do: the lines on the right are flat, within the spread.
# On the held-out rows the schedules with the same ``refine`` are closer to each other
# than the folds spread (the luck of the default there is in all rows of the table). So
# there is no need to search for a schedule as long as one refines.

figure, axes = plt.subplots(
    1, 2, figsize=(6.6, 3.4), sharex=True, sharey=True, layout="constrained"
)
for ax, refine, panel in zip(axes, refines, changes["train_score"], strict=True):
    for j, steps in enumerate(n_steps):
        ax.errorbar(
            np.array(starts) * 1.06**j,
            panel[j].mean(axis=-1),
            panel[j].std(axis=-1),
            color=("tab:orange", "tab:blue")[j],
            marker="o",
            capsize=3,
            label=f"{steps} temperatures",
        )
    ax.axhline(0.0, color="0.6", linestyle="--", zorder=0)
    ax.set(title=f"refine={refine!r}", xlabel="first temperature", xscale="log")
    ax.set_xticks(starts, [f"{start:g}" for start in starts])
    ax.minorticks_off()
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("training inertia\nabove the default, %")
axes[1].legend(frameon=False, loc="upper right")

# %%
# How many clusters
# -----------------
#
# Inertia falls with every centre that is added, on held-out rows too. A search that
# maximises ``score`` would take as many clusters as it is offered. There are two ways
# out: an explicit scorer that does not always favour more clusters, such as the
# silhouette, or a supervised end of the pipeline. Here the memberships become the
# features of a linear classifier, and the three scores are taken of the same fits.


def minus_inertia(pipeline, X, y=None):
    """Return the score of the clusterer before the classifier."""
    return pipeline[:-1].score(X)


def silhouette(pipeline, X, y=None):
    """Return the mean silhouette of the scaled rows."""
    scaled = pipeline[0].transform(X)
    return silhouette_score(scaled, pipeline[1].predict(scaled))


n_clusters, alphas = [2, 3, 4, 6, 8, 12], [1.0, 1.5]
counting = GridSearchCV(
    make_pipeline(
        StandardScaler(),
        RBFKMeans(features="responsibility", random_state=0),
        RidgeClassifier(alpha=0.01),
    ),
    {"rbfkmeans__alpha": alphas, "rbfkmeans__n_clusters": n_clusters},
    cv=cv,
    scoring={
        "minus inertia": minus_inertia,
        "silhouette": silhouette,
        "accuracy": "accuracy",
    },
    refit="accuracy",
).fit(X, y)

scores = {
    name: folds(counting, f"test_{name}").reshape(
        len(alphas), len(n_clusters), cv.get_n_splits()
    )
    for name in counting.scorer_
}

row = "{:<11}{:>17}{:>17}{:>17}".format
print("\nHeld-out scores, alpha=1.5")
print(row("n_clusters", *scores))
for k, n in enumerate(n_clusters):
    cells = [f"{s[1, k].mean():.3f} ± {s[1, k].std():.3f}" for s in scores.values()]
    print(row(n, *cells))

row = "{:<15}{:>12}{:>7}".format
print("\n" + row("Chosen by", "n_clusters", "alpha"))
for name, score in scores.items():
    i, k = np.unravel_index(score.mean(axis=-1).argmax(), score.shape[:2])
    print(row(name, n_clusters[k], alphas[i]))

# %%
# Minus the inertia rises to the end. The silhouette and the accuracy peak at few
# clusters. The spread over the folds (bars) is wide, and the values of ``alpha``
# differ by less: a search names a winner even where there is none to speak of, so look
# at the spread before you believe it.

figure, axes = plt.subplots(3, 1, figsize=(6, 7), sharex=True, layout="constrained")
for ax, (name, score) in zip(axes, scores.items(), strict=True):
    for i, alpha in enumerate(alphas):
        ax.errorbar(
            np.array(n_clusters) * 1.02**i,
            score[i].mean(axis=-1),
            score[i].std(axis=-1),
            color=("tab:orange", "tab:blue")[i],
            marker="o",
            capsize=3,
            label=f"alpha={alpha:g}",
        )
    ax.set(ylabel=name, xscale="log")
    ax.spines[["top", "right"]].set_visible(False)
axes[-1].set_xticks(n_clusters, n_clusters)
axes[-1].minorticks_off()
axes[-1].set_xlabel("number of clusters")
axes[-1].legend(frameon=False, loc="lower right")

plt.show()
