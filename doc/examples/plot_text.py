"""
====================
Topics of docstrings
====================

Python carries a small library of texts with it: the docstrings of its modules. They
are clustered here by the words in them, as rows of a sparse matrix that is never made
dense, and the clusters compared with the modules. Memberships then show which texts
stand between two topics.
"""

# %%
# The texts
# ---------
#
# One text for each public function, class and method of a few modules that has a
# docstring of some length. The module is kept, only to compare with it. How many texts
# there are, and all that follows, depends a little on the version of Python.

# SPDX-License-Identifier: BSD-3-Clause

import inspect
import sys
from importlib import import_module

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import adjusted_mutual_info_score

from skrbfkmeans import RBFKMeans

MODULES = [
    *("argparse", "datetime", "decimal", "email.message", "fractions", "json"),
    *("logging", "math", "pathlib", "random", "socket", "statistics"),
    *("tarfile", "threading", "unittest", "zipfile"),
]
N_WORDS = 8


def public_members(namespace):
    """Return the public functions and classes of a module or class, by name."""
    kinds = classmethod, staticmethod
    return {
        name: member
        for name, member in sorted(vars(namespace).items())
        if not name.startswith("_")
        and (
            inspect.isroutine(member)
            or inspect.isclass(member)
            or isinstance(member, kinds)
        )
    }


def docstrings_of(module_name):
    """Return the docstrings of a module's functions, classes and methods, by name."""
    package = module_name.split(".")[0]
    found = {}
    for name, member in public_members(import_module(module_name)).items():
        origin = getattr(member, "__module__", None) or ""
        if origin.split(".")[0] != package:
            continue  # imported from elsewhere
        members = {name: member}
        if inspect.isclass(member):
            methods = public_members(member).items()
            members |= {f"{name}.{method}": m for method, m in methods}
        for path, m in members.items():
            doc = m.__doc__ if isinstance(m.__doc__, str) else ""
            found[f"{module_name}.{path}"] = inspect.cleandoc(doc)
    return {k: text for k, text in found.items() if len(text.split()) >= N_WORDS}


texts = {}  # a text that occurs twice is kept once
for module_name in MODULES:
    for name, text in docstrings_of(module_name).items():
        texts.setdefault(text, (name, module_name))
names, modules = (np.array(values) for values in zip(*texts.values(), strict=True))
version = ".".join(map(str, sys.version_info[:2]))
print(f"{len(texts)} texts of {len(set(modules))} modules in Python {version}")

# %%
# Rows of weighted words
# ----------------------
#
# :class:`~sklearn.feature_extraction.text.TfidfVectorizer` counts words, gives weight
# to the rare ones, and scales each row to length 1. So no normaliser is needed, and a
# squared distance is two minus twice the cosine. Its result goes into
# :class:`~skrbfkmeans.RBFKMeans` as it is.

vectorizer = TfidfVectorizer(
    stop_words="english", token_pattern="[A-Za-z]{3,}", min_df=3, sublinear_tf=True
)
X = vectorizer.fit_transform(texts)
words = vectorizer.get_feature_names_out()
print(f"{X.shape[1]} words, {X.nnz / np.prod(X.shape):.1%} of the entries are not zero")

# %%
# Clusters and modules
# --------------------
#
# As many clusters as modules, from five seeds, next to the best of ten starts of
# :class:`~sklearn.cluster.KMeans`. The adjusted mutual information with the modules is
# 1 if the clusters are the modules and 0 on average for random ones. It is not what
# either of the two minimises: that is the inertia.

k = len(MODULES)
seeds = range(5)
fits = {
    "RBFKMeans": [RBFKMeans(k, random_state=seed).fit(X) for seed in seeds],
    "KMeans": [KMeans(k, n_init=10, random_state=seed).fit(X) for seed in seeds],
}
row = "{:<10}{:>16}{:>28}".format
print()
print(row("", "inertia", "adjusted mutual information"))
for name, models in fits.items():
    inertia = [model.inertia_ for model in models]
    information = [adjusted_mutual_info_score(modules, m.labels_) for m in models]
    values = [
        f"{np.mean(inertia):.1f} ± {np.std(inertia):.1f}",
        f"{np.mean(information):.2f} ± {np.std(information):.2f}",
    ]
    print(row(name, *values))

# %%
# What the clusters are about
# ---------------------------
#
# The words of most weight in a centre name its topic. Rows of words are far from each
# other and from all centres, so expect one or two large clusters for what fits nowhere
# else.

model = min(fits["RBFKMeans"], key=lambda model: model.inertia_)
sizes = np.bincount(model.labels_, minlength=k)
top_words = [words[np.argsort(-center)[:5]] for center in model.cluster_centers_]
print("\n texts  top words")
for j in np.argsort(-sizes):
    print(f"{sizes[j]:>6}  {', '.join(top_words[j])}")

# %%
# Texts between topics
# --------------------
#
# The temperature ``sigma_`` is a spread a feature. There are many features, most of
# them zero, and it is low: nearly all texts belong to one cluster alone. A higher one,
# set by ``proba_sigma``, needs no new fit.

row = "{:>12}{:>12}{:>14}{:>14}".format
print()
print(row("temperature", "1 cluster", "2 clusters", "3 and more"))
for multiple in (1, 2, 4, 8):
    model.set_params(proba_sigma=multiple * model.sigma_)
    n_memberships = np.count_nonzero(model.predict_proba(X), axis=1)
    counts = [(n_memberships == n).sum() for n in (1, 2)]
    print(row(f"{multiple} σ", *counts, (n_memberships > 2).sum()))

# %%
# These are the texts whose second membership is the largest, with the first words of
# the two topics.

proba = model.set_params(proba_sigma=4 * model.sigma_).predict_proba(X)
first, second = np.argsort(-proba, axis=1, kind="stable")[:, :2].T
share = np.take_along_axis(proba, second[:, np.newaxis], axis=1).ravel()
print()
for i in np.argsort(-share, kind="stable")[:12]:
    topics = [
        f"{proba[i, j]:.2f} {'/'.join(top_words[j][:2])}" for j in (first[i], second[i])
    ]
    print(f"{names[i]:<38}{topics[0]:<26}{topics[1]}")

# %%
# A topic need not be a module. Some modules make a cluster of their own, others share
# one with their like, and large ones are split.

counts = np.array(
    [np.bincount(model.labels_[modules == name], minlength=k) for name in MODULES]
)
order = np.argsort(counts.argmax(axis=0) * len(texts) - counts.max(axis=0))
shares = counts[:, order] / counts.sum(axis=1, keepdims=True)

figure, ax = plt.subplots(figsize=(8, 6.5), layout="constrained")
image = ax.imshow(shares, cmap="Blues", vmin=0, vmax=1)
ax.set_yticks(range(len(MODULES)), MODULES)
topics = ["/".join(top_words[j][:2]) for j in order]
ax.set_xticks(range(k), topics, rotation=90)
ax.set_title("share of a module's texts in each cluster")
figure.colorbar(image, shrink=0.7)

plt.show()
