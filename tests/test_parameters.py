"""Starts, bounds of the iterations, seeds, and parameters as objects.

The label before a group of tests is its number on the list of what broke for the
users of other packages.
"""

# SPDX-License-Identifier: BSD-3-Clause

import copy
import warnings

import numpy as np
import pandas as pd
import pytest
from estimator_helpers import INIT, WIDE, B, X, assert_same_state, labelled_blobs, make
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from skrbfkmeans import RBFKMeans
from skrbfkmeans.schedules import Constant, Cosine, Cyclic, Geometric, Linear

pytestmark = pytest.mark.compiled


# --- init and n_init ----------------------------------------------------------


@pytest.mark.parametrize(
    "convert",
    [
        lambda a: a.tolist(),
        pd.DataFrame,
        np.asfortranarray,
        lambda a: lambda X, n_clusters, random_state: a,
        lambda a: lambda X, n_clusters, random_state: a.tolist(),
    ],
    ids=["list", "frame", "fortran", "callable", "callable list"],
)
def test_a_start_of_any_kind_equals_the_array(convert):
    model = RBFKMeans(3, init=convert(INIT), random_state=0).fit(X)
    assert_same_state(model, RBFKMeans(3, init=INIT, random_state=0).fit(X))


@pytest.mark.parametrize("schedule", ["auto", 0.0, 1.0])
def test_the_array_given_as_start_is_never_written(schedule):
    init = INIT.copy()
    init.setflags(write=False)
    model = RBFKMeans(3, init=init, schedule=schedule).fit(X)
    assert_array_equal(init, INIT)
    assert model.init is init
    assert not np.shares_memory(init, model.cluster_centers_)


def test_a_start_that_is_settled_stays_to_the_last_bit():
    model = RBFKMeans(3, random_state=0).fit(X)
    again = RBFKMeans(3, init=model.cluster_centers_, schedule=0.0).fit(X)
    assert_allclose(again.cluster_centers_, model.cluster_centers_, rtol=1e-14)
    assert_array_equal(again.labels_, model.labels_)
    assert again.n_iter_ <= 2


def test_a_callable_start_is_called_with_the_rows_once_a_run():
    calls = []

    def init(rows, n_clusters, random_state):
        calls.append((rows, n_clusters, random_state))
        return rows[random_state.permutation(len(rows))[:n_clusters]]

    RBFKMeans(3, init=init, n_init=4, random_state=0).fit(X)
    assert len(calls) == 4
    for rows, n_clusters, random_state in calls:
        assert_array_equal(rows, X)
        assert n_clusters == 3
        assert isinstance(random_state, np.random.RandomState)


def count_runs(model, capfd):
    """Number of runs of one fit, told by what it prints."""
    capfd.readouterr()
    clone(model).set_params(verbose=1).fit(X)
    out, err = capfd.readouterr()
    assert err == ""
    return out.count("start ")


def draw(rows, n_clusters, random_state):
    return rows[random_state.permutation(len(rows))[:n_clusters]]


@pytest.mark.parametrize(
    ("init", "n_init", "n_runs"),
    [
        ("k-means++", "auto", 1),
        ("k-means++", 3, 3),
        ("random", "auto", 10),
        ("random", 2, 2),
        (draw, "auto", 10),
        (draw, 2, 2),
        (INIT, "auto", 1),
        (INIT, 1, 1),
    ],
)
def test_n_init_is_the_number_of_runs(init, n_init, n_runs, capfd):
    model = RBFKMeans(3, init=init, n_init=n_init, refine=None, random_state=0)
    assert count_runs(model, capfd) == n_runs


def test_an_array_start_with_many_runs_is_run_once_with_one_warning(capfd):
    model = RBFKMeans(3, init=INIT, n_init=10)
    with pytest.warns(RuntimeWarning, match="n_init=10") as record:
        assert count_runs(model, capfd) == 1
    assert [w.filename for w in record] == [__file__]


@pytest.mark.parametrize("schedule", [0.0, Geometric(unit="absolute"), 1.0])
def test_the_best_of_several_runs_is_kept(schedule):
    data, _ = labelled_blobs(n=200, k=12, spread=0.5)
    model = RBFKMeans(12, init="random", schedule=schedule, refine=None)
    random_state = np.random.RandomState(3)
    single = [
        clone(model).set_params(n_init=1, random_state=random_state).fit(data)
        for _ in range(6)
    ]
    best = clone(model).set_params(n_init=6, random_state=3).fit(data)
    scores = [m.history_["free_energy"][-1] for m in single]
    assert np.ptp(scores) > 1.0
    assert_same_state(best, single[int(np.argmin(scores))])


# --- max_iter, tol, learning_rate ---------------------------------------------


@pytest.mark.parametrize("schedule", ["auto", 0.0, 1.5, Cyclic(), [3.0, 2.0, 1.0]])
@pytest.mark.parametrize("max_iter", [1, 2, 3])
def test_max_iter_bounds_all_iterations_of_a_run(schedule, max_iter):
    model = RBFKMeans(8, schedule=schedule, max_iter=max_iter, random_state=0)
    model.fit(X)
    assert model.n_iter_ == max_iter
    assert not model.hardened_
    for values in model.history_.values():
        assert len(values) == max_iter


@pytest.mark.parametrize("factor", [1000.0, 1e-3, 2.0**40])
@pytest.mark.parametrize("schedule", ["auto", Constant(0.8), Cosine(harden=False)])
def test_the_unit_of_the_data_changes_neither_labels_nor_iterations(schedule, factor):
    model = RBFKMeans(4, schedule=schedule, random_state=0)
    here, there = clone(model).fit(X), clone(model).fit(X * factor)
    assert here.n_iter_ == there.n_iter_
    assert_array_equal(here.labels_, there.labels_)
    assert_allclose(here.cluster_centers_ * factor, there.cluster_centers_)
    assert_allclose(here.sigma_ * factor, there.sigma_)


def test_a_smaller_tol_needs_more_iterations_and_settles_more():
    models = [
        RBFKMeans(4, schedule=3.0, tol=tol, refine=None, random_state=0).fit(X)
        for tol in (1e-1, 1e-4, 1e-8, 0.0)
    ]
    n_iter = [model.n_iter_ for model in models]
    assert n_iter == sorted(n_iter)
    assert n_iter[0] < n_iter[2]
    variance = X.var(axis=0).mean()
    for model, tol in zip(models[:3], (1e-1, 1e-4, 1e-8), strict=True):
        squared = model.history_["shift"] ** 2
        assert squared[-1] <= tol * variance
        assert (squared[:-1] > tol * variance).all()


@pytest.mark.parametrize("tol", [0.0, 1e-100])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_a_hardening_run_ends_by_itself_even_without_tolerance(tol, dtype, alpha):
    model = RBFKMeans(4, tol=tol, alpha=alpha, random_state=0, max_iter=10_000)
    model.fit(X.astype(dtype))
    assert model.hardened_
    assert model.n_iter_ < 100


def test_the_learning_rate_is_the_length_of_the_soft_step():
    one = RBFKMeans(3, init=INIT, schedule=4.0, max_iter=1).fit(X)
    step = one.cluster_centers_ - INIT
    for rate in 0.25, 0.5, 1.5:
        model = clone(one).set_params(learning_rate=rate).fit(X)
        assert_allclose(model.cluster_centers_, INIT + rate * step)


def test_the_hard_phase_ignores_the_learning_rate():
    slow = RBFKMeans(3, init=INIT, schedule=0.0, learning_rate=0.1).fit(X)
    assert_same_state(slow, RBFKMeans(3, init=INIT, schedule=0.0).fit(X))


@pytest.mark.parametrize("rate", [0.3, 1.0, 1.7])
def test_any_learning_rate_ends_in_a_fixed_point_of_kmeans(rate):
    model = RBFKMeans(3, learning_rate=rate, random_state=0).fit(X)
    assert model.hardened_
    for j in range(3):
        own = X[model.labels_ == j]
        assert_allclose(model.cluster_centers_[j], own.mean(axis=0))


# --- random_state -------------------------------------------------------------


@pytest.mark.parametrize("init", ["k-means++", "random", draw])
@pytest.mark.parametrize("n_init", ["auto", 3])
def test_the_same_seed_gives_the_same_bits(init, n_init):
    model = RBFKMeans(6, init=init, n_init=n_init, random_state=5)
    first = clone(model).fit(WIDE)
    assert_same_state(clone(model).fit(WIDE), first)
    model.set_params(random_state=np.random.RandomState(5))
    assert_same_state(model.fit(WIDE), first)


@pytest.mark.parametrize("init", ["k-means++", "random", draw])
def test_another_seed_gives_another_start(init):
    starts = [
        RBFKMeans(6, init=init, n_init=1, max_iter=1, random_state=seed)
        .fit(WIDE)
        .cluster_centers_
        for seed in range(4)
    ]
    assert len(np.unique(starts, axis=0)) == 4


def test_a_random_state_object_goes_on_from_fit_to_fit():
    model = RBFKMeans(6, max_iter=1, random_state=np.random.RandomState(0))
    first, second = (model.fit(WIDE).cluster_centers_ for _ in range(2))
    assert not np.array_equal(first, second)


def test_the_global_random_state_is_left_alone_by_a_seeded_fit():
    np.random.seed(7)  # noqa: NPY002
    expected = np.random.RandomState(7).uniform()
    RBFKMeans(3, random_state=0, init="random").fit(X)
    assert np.random.uniform() == expected  # noqa: NPY002


# --- parameters ---------------------------------------------------------------


ARRAYS = [
    {"init": INIT},
    {"init": INIT.tolist()},
    {"init": pd.DataFrame(INIT)},
    {"schedule": np.geomspace(4.0, 1.0, 5)},
    {"schedule": [4.0, 2.0, 1.0]},
    {"schedule": (4.0, 2.0)},
    {"schedule": Geometric(start=2.0, n_steps=3)},
    {"schedule": Cyclic(unit="critical")},
    {"n_clusters": np.int64(3)},
    {"schedule": np.float32(2.0), "alpha": np.float64(1.5)},
    {"schedule": 2, "alpha": 2},
]


@pytest.mark.parametrize("parameters", ARRAYS)
def test_fit_leaves_every_parameter_the_very_object_it_was(parameters):
    model = RBFKMeans(**{"n_clusters": 3, "random_state": 0, **parameters})
    before = model.get_params(deep=False)
    copied = copy.deepcopy(before)
    model.fit(X)
    after = model.get_params(deep=False)
    assert before.keys() == after.keys()
    for name in before:
        assert after[name] is before[name]
    assert repr(copied) == repr(after)


@pytest.mark.parametrize("parameters", ARRAYS)
def test_a_clone_before_or_after_fit_fits_the_same(parameters):
    model = RBFKMeans(**{"n_clusters": 3, "random_state": 0, **parameters})
    early = clone(model)
    model.fit(X)
    late = clone(model)
    assert not hasattr(late, "cluster_centers_")
    assert_same_state(early.fit(X), model)
    assert_same_state(late.fit(X), model)
    assert repr(early) == repr(late)
    again = RBFKMeans().set_params(**model.get_params(deep=False))
    assert_same_state(again.fit(X), model)


def test_refitting_forgets_the_fit_before():
    model = RBFKMeans(4, random_state=0).fit(pd.DataFrame(WIDE).add_prefix("x"))
    model.set_params(n_clusters=3, schedule=2.0).fit(X)
    fresh = RBFKMeans(3, schedule=2.0, random_state=0).fit(X)
    assert_same_state(model, fresh)


@pytest.mark.parametrize("float_kind", [float, int, np.float32, np.float64])
def test_a_float_schedule_equals_a_constant_absolute_one(float_kind):
    model = RBFKMeans(3, schedule=float_kind(2), init=INIT).fit(X)
    other = RBFKMeans(3, schedule=Constant(2.0, unit="absolute"), init=INIT).fit(X)
    assert_same_state(model, other)
    assert_same_state(model, RBFKMeans(3, schedule=[2.0], init=INIT).fit(X))


def test_auto_is_the_default_geometric_schedule():
    model = RBFKMeans(3, random_state=0).fit(X)
    other = RBFKMeans(3, schedule=Geometric(), random_state=0).fit(X)
    assert_same_state(model, other)


# --- G4 to G7 -----------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.asarray, np.ndarray.tolist, pd.DataFrame])
def test_an_array_start_makes_one_run_and_warns_only_if_more_were_asked_for(kind):
    init = kind(B[[0, -1]])
    for n_init in "auto", 1:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            make(n_clusters=2, init=init, n_init=n_init).fit(B)
    with pytest.warns(RuntimeWarning, match="init") as record:
        make(n_clusters=2, init=init, n_init=10).fit(B)
    assert len(record) == 1


@pytest.mark.parametrize("tol", [0.0, 1e-100, 1e-4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("schedule", ["auto", 0.0, Cyclic()])
def test_a_run_ends_when_the_labels_repeat(tol, dtype, schedule):
    X = np.random.default_rng(0).normal(size=(2000, 3)).astype(dtype)
    model = make(n_clusters=5, tol=tol, schedule=schedule, max_iter=5000).fit(X)
    assert model.n_iter_ < 300
    assert model.hardened_


@pytest.mark.parametrize("schedule", [0.8, Linear(harden=False)])
def test_a_soft_run_without_tolerance_still_ends(schedule):
    X = np.random.default_rng(0).normal(size=(200, 2))
    model = make(n_clusters=3, tol=0.0, schedule=schedule, max_iter=2000).fit(X)
    assert model.n_iter_ < 2000
    assert model.history_["shift"][-1] < 1e-14  # nothing but rounding


def test_constant_features_do_not_distort_the_tolerance():
    X = np.random.default_rng(0).normal(size=(200, 2))
    padded = np.hstack([X, np.full((200, 2), 1e6)])
    init = X[:3]
    model = make(n_clusters=3, schedule=0.6, init=init, tol=1e-6).fit(X)
    other = make(
        n_clusters=3,
        schedule=0.6,
        init=np.hstack([init, np.full((3, 2), 1e6)]),
        tol=2e-6,  # the mean variance is halved by two constant features
    ).fit(padded)
    assert model.n_iter_ == other.n_iter_
    assert_allclose(other.cluster_centers_[:, :2], model.cluster_centers_, rtol=1e-9)


@pytest.mark.parametrize("max_iter", [1, 4, 9])
def test_a_long_schedule_is_cut_at_max_iter(max_iter):
    X = np.random.default_rng(0).normal(size=(100, 2))
    for schedule in Geometric(n_steps=50, n_iter=5), Cyclic(n_cycles=9), [1.0] * 40:
        model = make(n_clusters=4, schedule=schedule, max_iter=max_iter).fit(X)
        assert model.n_iter_ == max_iter
    with pytest.raises(ValueError, match="max_iter"):
        make(max_iter=0).fit(X)


def test_nothing_is_printed_by_a_hundred_silent_fits(capfd):
    for seed in range(100):
        make(n_clusters=2, random_state=seed).fit(B)
    assert capfd.readouterr() == ("", "")


# --- H1 -----------------------------------------------------------------------


def test_arrays_as_parameters_survive_clone_repr_and_a_grid():
    init, sigmas = B[[0, -1]], np.geomspace(1.0, 0.01, 5)
    model = make(n_clusters=2, init=init, schedule=sigmas)
    assert model.get_params()["schedule"] is sigmas
    assert "RBFKMeans" in repr(model)
    twin = clone(model)
    assert_array_equal(twin.init, init)
    assert_array_equal(twin.fit(B).labels_, model.fit(B).labels_)
    grid = {"schedule": [sigmas, 2 * sigmas, [1.0, 0.0], Geometric(), "auto", 0.5]}
    search = GridSearchCV(model, grid, cv=2).fit(B)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_the_temperature_of_memberships_changes_no_score():
    model = RBFKMeans(3, random_state=0).fit(X)
    before, soft = model.score(X), model.predict_proba(X)
    model.set_params(proba_sigma=10.0 * model.sigma_)
    assert model.score(X) == before
    assert not np.array_equal(model.predict_proba(X), soft)
