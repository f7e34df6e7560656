"""`history_` and `verbose`: what a fit tells of its iterations."""

# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from estimator_helpers import INIT, STEPS_HISTORY, WEIGHTS, X
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone

from skrbfkmeans import RBFKMeans
from skrbfkmeans.schedules import Cosine, Cyclic, Linear

# --- history_ -----------------------------------------------------------------


SCHEDULES = [
    "auto",
    0.0,
    1.0,
    [3.0, 1.0, 0.0],
    [3.0, 1e-3],
    1e-3,
    Cyclic(),
    Linear(2.0, 0.5, harden=False),
    Cosine(unit="critical", start=0.9, stop=0.1),
]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
def test_history_tells_every_iteration(schedule, alpha):
    model = RBFKMeans(4, schedule=schedule, alpha=alpha, random_state=0)
    model.fit(X, sample_weight=WEIGHTS)
    history = model.history_
    assert set(history) == STEPS_HISTORY | {"swaps_tried", "swaps_kept"}
    for values in history.values():
        assert values.shape == (model.n_iter_,)
        assert np.isfinite(values).all()
    assert (history["sigma"] >= 0.0).all()
    assert (history["shift"] >= 0.0).all()
    assert (history["soft_fraction"] >= 0.0).all()
    assert (history["soft_fraction"] <= 1.0 + 1e-12).all()
    assert (history["support"] >= 1.0 - 1e-12).all()
    assert (history["support"] <= 4.0 + 1e-12).all()
    one_hot = history["soft_fraction"] == 0.0
    assert_allclose(history["support"][one_hot], 1.0)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "weighted"])
def test_history_of_a_hardened_model_ends_in_kmeans(schedule, weights):
    model = RBFKMeans(4, schedule=schedule, random_state=0)
    model.fit(X, sample_weight=weights)
    if not model.hardened_:
        assert model.history_["sigma"][-1] > 0.0
        assert model.history_["soft_fraction"][-1] > 0.0
        return
    assert model.history_["sigma"][-1] == 0.0
    assert model.history_["soft_fraction"][-1] == 0.0
    assert model.history_["shift"][-1] < 1e-9
    assert_allclose(model.history_["free_energy"][-1], model.inertia_, rtol=1e-9)


def test_these_schedules_both_harden_and_stay_soft():
    hardened = [
        RBFKMeans(4, schedule=schedule, random_state=0).fit(X).hardened_
        for schedule in SCHEDULES
    ]
    assert hardened == [True, True, False, True, True, True, True, False, True]


def test_free_energy_and_shift_are_those_of_the_step():
    init = INIT + 1.0
    model = RBFKMeans(3, init=init, schedule=0.0, max_iter=1).fit(X)
    d2 = ((X[:, np.newaxis] - init) ** 2).sum(axis=2)
    assert_allclose(model.history_["free_energy"], d2.min(axis=1).sum())
    shift = np.sqrt(((model.cluster_centers_ - init) ** 2).sum())
    assert_allclose(model.history_["shift"], shift)
    assert model.history_["sigma"] == 0.0


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("alpha", [1.0, 1.25, 1.5, 2.0])
@pytest.mark.parametrize("kind", ["float64", "float32", "sparse"])
def test_path_and_inertia_are_those_of_the_centres_before_each_step(
    schedule, alpha, kind
):
    rows = sparse.csr_matrix(X) if kind == "sparse" else X.astype(kind)
    model = RBFKMeans(4, schedule=schedule, alpha=alpha, store_path=True)
    model.set_params(random_state=0).fit(rows, sample_weight=WEIGHTS)
    assert model.path_.shape == (model.n_iter_ + 1, 4, 2)
    assert model.path_.dtype == rows.dtype
    assert_array_equal(model.path_[-1], model.cluster_centers_)
    path = model.path_[:-1].astype(np.float64)
    d2 = ((X.astype(rows.dtype)[:, np.newaxis] - path[:, np.newaxis]) ** 2).sum(axis=3)
    digits = 1e-12 if kind != "float32" else 1e-5
    inertia = d2.min(axis=2) @ WEIGHTS
    assert_allclose(model.history_["inertia"], inertia, rtol=digits)
    moves = np.linalg.norm(np.diff(model.path_, axis=0), axis=(1, 2))
    quiet = model.history_["swaps_kept"] == 0  # swaps move centres too
    size = np.abs(model.path_).max()
    assert_allclose(moves[quiet], model.history_["shift"][quiet], atol=digits * size)


def test_the_path_is_kept_on_demand_only_and_of_the_best_run():
    model = RBFKMeans(4, n_init=3, refine=None, store_path=True, random_state=0).fit(X)
    assert_array_equal(model.path_[-1], model.cluster_centers_)
    assert len(model.path_) == model.n_iter_ + 1
    model.set_params(store_path=False).fit(X)
    assert not hasattr(model, "path_")


@pytest.mark.parametrize("scale", [1e-120, 1e120])
def test_path_and_inertia_are_in_the_units_of_the_data(scale):
    model = RBFKMeans(4, store_path=True, random_state=0)
    one = clone(model).fit(X)
    other = clone(model).fit(X * scale)
    assert_allclose(other.path_ / scale, one.path_, rtol=1e-9)
    for power, name in enumerate(["shift", "inertia"], 1):
        expected = one.history_[name]
        assert_allclose(other.history_[name] / scale**power, expected, atol=1e-9)


@pytest.mark.compiled
def test_free_energy_never_rises_at_constant_temperature():
    for rate in 0.5, 1.0:
        for alpha in 1.0, 1.3, 1.5, 2.0:
            model = RBFKMeans(
                5, schedule=2.0, alpha=alpha, learning_rate=rate, tol=0.0,
                random_state=0, max_iter=60,
            ).fit(X)  # fmt: skip
            energies = model.history_["free_energy"]
            assert np.diff(energies).max() <= 1e-12 * abs(energies[0])


# --- verbose ------------------------------------------------------------------


def test_nothing_is_printed_unless_asked(capfd):
    for seed in range(20):
        RBFKMeans(3, random_state=seed, n_init=2).fit(X).predict_proba(X)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("schedule", ["auto", 0.0, 2.0, Cyclic(), [4.0, 2.0, 2.0]])
@pytest.mark.parametrize("max_iter", [2, 4, 6, 300])
def test_verbose_prints_one_line_a_temperature(schedule, max_iter, capfd):
    model = RBFKMeans(
        8, schedule=schedule, max_iter=max_iter, verbose=1, random_state=0
    )
    model.fit(X)
    out, err = capfd.readouterr()
    lines = [line for line in out.splitlines() if line.startswith("sigma ")]
    n_temperatures = 1 + np.count_nonzero(np.diff(model.history_["sigma"]))
    assert len(lines) == n_temperatures
    assert err == ""
