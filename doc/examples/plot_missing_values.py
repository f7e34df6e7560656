"""
==============
Missing values
==============

A distance to a centre cannot be taken where a value is missing, so
:class:`~skrbfkmeans.RBFKMeans` refuses such rows. An imputer before it in a pipeline
fills the gaps. How far do the clusters then stay those of the complete data, and does
it matter which imputer it is?
"""

# %%
# The clusters of the complete data
# ---------------------------------
#
# Thirteen measurements of wines. Their clusters, not the classes of the wines, are what
# the gaps may spoil.

# SPDX-License-Identifier: BSD-3-Clause

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skrbfkmeans import RBFKMeans

X = load_wine().data


def clusterer(*steps):
    """Return the pipeline of scaler, further steps and three clusters."""
    model = RBFKMeans(n_clusters=3, random_state=0)
    return make_pipeline(StandardScaler(), *steps, model)


complete = clusterer().fit_predict(X)

# %%
# Gaps
# ----
#
# Each value is lost with the same probability, whatever it is and whatever the others
# are. The scaler passes gaps on, the clusterer does not. Its message, of which only the
# first line is printed here, goes on to say what to do.


def with_gaps(rate, seed):
    """Return the rows with a share of their values replaced by NaN."""
    lost = np.random.default_rng(seed).random(X.shape) < rate
    return np.where(lost, np.nan, X)


try:
    clusterer().fit(with_gaps(0.1, seed=0))
except ValueError as error:
    print(f"ValueError: {str(error).splitlines()[0]}")

# %%
# Imputers
# --------
#
# :class:`~sklearn.impute.SimpleImputer` fills a gap with the mean of the column,
# :class:`~sklearn.impute.KNNImputer` [1]_ with the mean over the rows that are nearest
# in the values that are left, here 5 or 20. Both come after the scaler: for nearest
# rows the units matter. The share of rows without a gap says why the others are not
# simply dropped.
#
# .. [1] O. Troyanskaya et al., "Missing value estimation methods for DNA microarrays",
#    Bioinformatics 17 (2001).

imputers = {
    "SimpleImputer": SimpleImputer(),
    "KNNImputer, 5": KNNImputer(n_neighbors=5),
    "KNNImputer, 20": KNNImputer(n_neighbors=20),
}
rates = 0.05, 0.1, 0.2, 0.3, 0.4, 0.5
n_draws = 12
scores = {name: np.empty((len(rates), n_draws)) for name in imputers}
share_complete = np.empty((len(rates), n_draws))
for i, rate in enumerate(rates):
    for seed in range(n_draws):
        X_gaps = with_gaps(rate, seed)
        share_complete[i, seed] = np.isfinite(X_gaps).all(axis=1).mean()
        for name, imputer in imputers.items():
            labels = clusterer(imputer).fit_predict(X_gaps)
            scores[name][i, seed] = adjusted_rand_score(complete, labels)

row = ("{:>5}{:>15}" + len(imputers) * "{:>18}").format
print("\nadjusted Rand score with the clusters of the complete data, mean ± deviation")
print(row("gaps", "complete rows", *imputers))
for i, rate in enumerate(rates):
    texts = [f"{s[i].mean():.2f} ± {s[i].std():.2f}" for s in scores.values()]
    print(row(f"{rate:.0%}", f"{share_complete[i].mean():.0%}", *texts))

# %%
# The scores fall steadily as values are lost, with every imputer, but most of the
# clustering is still there when hardly a row is complete. Nearest rows keep more of it
# than the mean of the column; yet the imputers differ by about as much as the draws do,
# and how much is lost matters more than how it is filled.

figure, ax = plt.subplots(figsize=(8, 4.2), layout="constrained")
for shift, (name, values) in zip((-0.005, 0, 0.005), scores.items(), strict=True):
    x, mean, deviation = np.add(rates, shift), values.mean(axis=1), values.std(axis=1)
    ax.errorbar(x, mean, deviation, fmt="o-", capsize=3, label=name)
ax.plot(rates, share_complete.mean(axis=1), "k:", label="share of complete rows")
ax.set(xlabel="share of values lost", ylabel="adjusted Rand score", ylim=(0, 1))
ax.spines[["top", "right"]].set_visible(False)
ax.legend()

plt.show()
