"""
===================================
Hardening and critical temperatures
===================================

Two temperatures say what a soft k-means model can be. Above the critical temperature
all its centres meet at the mean of the data. Below the hardening temperature every row
has one membership, and the model is k-means, exactly. This script cools a model from
one end to the other and looks at it on the way.
"""

# %%
# A fit, and its figure
# ---------------------
#
# The petals of 150 iris flowers, in centimetres. The schedule begins just below the
# critical temperature and takes twenty steps.

# SPDX-License-Identifier: BSD-3-Clause

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_iris

from skrbfkmeans import RBFKMeans
from skrbfkmeans.energy import critical_sigma, hardening_sigma
from skrbfkmeans.inspection import AnnealingDisplay, MembershipDisplay
from skrbfkmeans.schedules import Geometric

X = load_iris(as_frame=True).data[["petal length (cm)", "petal width (cm)"]]
schedule = Geometric(start=0.9, stop=0.02, n_steps=20, unit="critical")
model = RBFKMeans(3, schedule=schedule, refine=None, random_state=0).fit(X)

critical = critical_sigma(X, 3)
hardening = hardening_sigma(X, model.cluster_centers_)
print(f"critical temperature   {critical:.3f} cm")
print(f"hardening temperature  {hardening:.3f} cm")

# %%
# The free energy (red) starts far below the inertia, near its lower bound, and meets it
# where the last row hardens. The temperature there may be well above the hardening
# temperature, which is that of the closest call among all rows.

display = AnnealingDisplay.from_estimator(model, X)

# %%
# All centres at one point
# ------------------------
#
# To see the critical temperature itself, we keep the temperature constant, a little
# above and a little below it, and look at how far the centres end up from their mean.


def extent(sigma):
    """Return the largest distance of a centre from the mean of all, at one sigma."""
    fit = RBFKMeans(3, schedule=sigma, tol=0.0, max_iter=2000, random_state=0).fit(X)
    return np.ptp(fit.cluster_centers_, axis=0).max()


print("\nsigma / critical   extent of the centres")
for factor in (1.2, 1.05, 0.95, 0.8):
    print(f"{factor:>16}   {extent(factor * critical):.6f} cm")

# %%
# Memberships on the way down
# ---------------------------
#
# The same centres at three temperatures. Between the thin lines runs the soft band, in
# which no membership reaches 0.99. At the hardening temperature it has become so narrow
# that no flower is left in it.

spread = model.sigma_
temperatures = {
    "twice the spread": 2 * spread,
    "the spread": spread,
    "hardening": hardening,
}
figure, axes = plt.subplots(
    1, 3, figsize=(9, 3.6), sharex=True, sharey=True, layout="constrained"
)
for ax, (name, sigma) in zip(axes, temperatures.items(), strict=True):
    shown = MembershipDisplay.from_estimator(model, X, sigma=sigma, ax=ax)
    memberships = model.set_params(proba_sigma=sigma).predict_proba(X)
    n_soft = np.count_nonzero((memberships > 0).sum(axis=1) > 1)
    ax.set_title(f"{name}\nσ = {sigma:.2f} cm, {n_soft} soft", fontsize=11)
    ax.label_outer()

plt.show()
