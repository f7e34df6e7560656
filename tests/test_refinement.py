"""Refinement: better optima by swaps, and never worse ones."""

# SPDX-License-Identifier: BSD-3-Clause

from dataclasses import replace

import naive
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from skrbfkmeans import RBFKMeans
from skrbfkmeans._engine import kernels
from skrbfkmeans._engine.rows import Rows, heat_of
from skrbfkmeans._run import estimates, refinement
from skrbfkmeans._run.annealing import Settings, cool
from skrbfkmeans._run.estimates import Sample, closest_centers
from skrbfkmeans._run.refinement import Clusters, settle_few
from skrbfkmeans.schedules import Constant, Cyclic, Geometric, Linear

KINDS = {
    "float64": lambda X: X,
    "float32": lambda X: X.astype(np.float32),
    "csr": sparse.csr_matrix,
}
kinds = pytest.mark.parametrize("kind", KINDS)
alphas = pytest.mark.parametrize("alpha", [1.0, 1.25, 1.5, 2.0])


@pytest.fixture
def grid():
    """Thirty-six clusters of 40 rows, in which single runs miss some."""
    centers = np.stack(np.meshgrid(np.arange(6.0), np.arange(6.0)), -1).reshape(-1, 2)
    return make_blobs(36 * 40, centers=centers, cluster_std=0.2, random_state=0)[0]


@pytest.fixture(params=["few rows", "many rows"])
def engine(request, monkeypatch):
    """Both ways of a trial, whatever the size of the data."""
    monkeypatch.setattr(
        refinement, "FEW_ADDITIONS", np.inf if request.param == "few rows" else 0.0
    )


SETTINGS = Settings(alpha=1.5, learning_rate=1.0, max_iter=300, tol=0.0)


def settled(rows, centers, sigma=0.0):
    """A run from given centres at one temperature, k-means by default."""
    return cool(rows, centers, np.array([sigma]), SETTINGS)


def final_energy(model):
    return model.history_["free_energy"][-1]


# --- what it finds -----------------------------------------------------------


def test_it_finds_all_of_many_separate_clusters(grid):
    corners = np.stack(np.meshgrid(np.arange(6.0), np.arange(6.0)), -1).reshape(-1, 2)
    best = KMeans(36, init=corners, n_init=1, tol=0.0).fit(grid).inertia_
    n_missed = 0
    for seed in range(10):
        model = RBFKMeans(36, random_state=seed).fit(grid)
        assert model.inertia_ <= best * (1.0 + 1e-9)
        single = RBFKMeans(36, random_state=seed, refine=None).fit(grid)
        n_missed += single.inertia_ > 1.01 * best
    assert n_missed > 5  # else the test is too easy


def test_it_beats_ten_restarts_where_clusters_overlap():
    X = load_digits().data
    ten = [KMeans(50, n_init=10, random_state=s).fit(X).inertia_ for s in range(3)]
    one = [RBFKMeans(50, random_state=s).fit(X).inertia_ for s in range(3)]
    assert max(one) < 0.998 * min(ten)


@pytest.mark.usefixtures("engine")
@kinds
@alphas
@pytest.mark.parametrize(
    "schedule", ["auto", 0.0, Cyclic(), Linear(n_steps=5), Geometric(stop=0.01)]
)
def test_a_hardened_run_is_refined_and_stays_a_fixed_point(grid, kind, alpha, schedule):
    X, weights = KINDS[kind](grid), np.linspace(0.5, 2.0, len(grid))
    options = {"alpha": alpha, "schedule": schedule, "random_state": 0}
    single = RBFKMeans(36, refine=None, **options).fit(X, sample_weight=weights)
    model = RBFKMeans(36, **options).fit(X, sample_weight=weights)
    assert model.inertia_ < 0.97 * single.inertia_
    assert model.hardened_
    assert_array_equal(model.labels_, model.predict(X))
    assert model.inertia_ == -model.score(X, sample_weight=weights)
    assert final_energy(model) == pytest.approx(model.inertia_, rel=1e-5)
    step = naive.em_step(grid, model.cluster_centers_, 0.0, 2.0, weights)
    means = step.sums / step.masses[:, np.newaxis]
    atol = 1e-6 if kind == "float32" else 1e-12
    assert_allclose(model.cluster_centers_, means, rtol=0.0, atol=atol)


@kinds
@alphas
@pytest.mark.parametrize(
    "schedule", [0.05, Constant(start=1.0), Geometric(harden=False), [0.3, 0.1]]
)
def test_a_soft_run_is_refined_by_its_free_energy(grid, kind, alpha, schedule):
    X = KINDS[kind](grid)
    options = {"alpha": alpha, "schedule": schedule, "random_state": 0}
    single = RBFKMeans(36, refine=None, **options).fit(X)
    model = RBFKMeans(36, **options).fit(X)
    assert final_energy(model) < 0.97 * final_energy(single)
    assert model.hardened_ or model.sigma_ == single.sigma_


@pytest.mark.usefixtures("engine")
@kinds
@pytest.mark.parametrize("schedule", ["auto", 0.0, Constant(start=0.7)])
@pytest.mark.parametrize("data", ["blobs", "digits", "uniform", "heavy"])
def test_it_is_never_worse_than_the_run_it_refines(data, schedule, kind):
    rng = np.random.default_rng(0)
    weights = None
    if data == "blobs":
        X = make_blobs(300, 3, centers=7, cluster_std=2.0, random_state=0)[0]
    elif data == "digits":
        X = load_digits().data[::4]
    elif data == "uniform":
        X = rng.uniform(size=(1500, 2))
    else:
        X, weights = rng.standard_normal((400, 2)), 10.0 ** rng.uniform(-6, 6, 400)
    for seed, k in enumerate([2, 3, 12, 40]):
        options = {"schedule": schedule, "random_state": seed}
        single, model = (
            RBFKMeans(k, refine=refine, **options).fit(KINDS[kind](X), None, weights)
            for refine in (None, "auto")
        )
        assert final_energy(model) <= final_energy(single)
        assert single.history_["swaps_tried"].sum() == 0


# --- what it tells -----------------------------------------------------------


def test_history_tells_after_which_iterations_swaps_were_tried_and_kept(grid):
    model = RBFKMeans(36, random_state=0).fit(grid)
    single = RBFKMeans(36, random_state=0, refine=None).fit(grid)
    history, n = model.history_, single.n_iter_
    for name in history:
        assert len(history[name]) == model.n_iter_ > n
        if "swaps" not in name:
            assert_array_equal(history[name][:n], single.history_[name])
    tried, kept = history["swaps_tried"], history["swaps_kept"]
    assert tried.dtype.kind == kept.dtype.kind == "i"
    assert np.all(kept[:-1][tried[:-1] == 0] == 0)
    assert tried[n - 1] >= kept[n - 1] > 0
    assert np.all(tried[: n - 1] == 0)
    before, after = history["free_energy"][[n - 1, n]]
    assert after < 0.97 * before
    assert np.all(np.diff(history["free_energy"][n - 1 :]) <= 0.0)


@pytest.mark.parametrize("refine", [0, 1, 3])
def test_refine_bounds_the_number_of_swaps(grid, refine):
    model = RBFKMeans(36, init="random", random_state=0, refine=refine).fit(grid)
    assert model.history_["swaps_tried"].sum() == refine


def test_refine_bounds_the_swaps_of_all_sweeps():
    X = np.random.default_rng(0).uniform(size=(6000, 2))
    options = {"n_clusters": 80, "random_state": 0, "max_iter": 1000}
    auto = RBFKMeans(**options).fit(X).history_["swaps_tried"]
    n_first = auto[np.flatnonzero(auto)[0]]
    assert auto.sum() > n_first + 3
    some = RBFKMeans(refine=int(n_first) + 3, **options).fit(X)
    assert some.history_["swaps_tried"].sum() == n_first + 3


def test_refine_0_and_none_are_the_run_alone(grid):
    one, other = (
        RBFKMeans(36, random_state=0, refine=refine).fit(grid) for refine in (0, None)
    )
    assert_array_equal(one.cluster_centers_, other.cluster_centers_)
    assert one.history_["swaps_tried"].sum() == 0


def test_a_line_a_sweep_is_printed_if_asked_for(grid, capsys):
    model = RBFKMeans(36, random_state=0, verbose=1).fit(grid)
    lines = [line for line in capsys.readouterr().out.splitlines() if "swaps" in line]
    kept = sum(int(line.split()[0]) for line in lines)
    assert kept == model.history_["swaps_kept"].sum() > 0


# --- when --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refine", "n_init", "n_runs"),
    [("auto", "auto", 1), (5, "auto", 1), (None, "auto", 10), (0, "auto", 10),
     ("auto", 4, 4), (None, 4, 4)],
)  # fmt: skip
def test_n_init_auto_is_one_run_if_that_is_refined(blobs, refine, n_init, n_runs):
    starts = []

    def init(X, k, random_state):
        starts.append(X[random_state.permutation(len(X))[:k]])
        return starts[-1]

    RBFKMeans(5, init=init, refine=refine, n_init=n_init, random_state=0).fit(blobs)
    assert len(starts) == n_runs


def test_centres_that_are_given_stay_unless_a_number_of_swaps_is_too(grid):
    init = grid[:36]
    model = RBFKMeans(36, init=init).fit(grid)
    assert model.history_["swaps_tried"].sum() == 0
    refined = RBFKMeans(36, init=init, refine=200).fit(grid)
    assert refined.inertia_ < 0.9 * model.inertia_


@pytest.mark.parametrize("max_iter", [1, 2, 4, 8, 16])
def test_max_iter_bounds_all_iterations_over_the_rows(grid, max_iter):
    for seed in range(5):
        options = {"max_iter": max_iter, "random_state": seed}
        model = RBFKMeans(36, **options).fit(grid)
        assert model.n_iter_ <= max_iter
        single = RBFKMeans(36, refine=None, **options).fit(grid)
        assert model.inertia_ <= single.inertia_
        assert_array_equal(model.labels_, model.predict(grid))


@pytest.mark.parametrize("refine", [-1, 2.5, "many", True, np.nan])
def test_other_values_of_refine_are_refused(blobs, refine):
    with pytest.raises(ValueError, match="'refine' parameter of RBFKMeans"):
        RBFKMeans(3, refine=refine).fit(blobs)


# --- what must not matter ----------------------------------------------------


@pytest.mark.usefixtures("engine")
@kinds
def test_the_number_of_threads_does_not_matter(kind):
    X = KINDS[kind](np.random.default_rng(0).uniform(size=(6000, 3)))
    options = {"n_clusters": 60, "random_state": 0, "refine": 40, "max_iter": 600}
    fits = []
    for n_threads in 1, 2, 4:
        with threadpool_limits(n_threads):
            fits.append(RBFKMeans(**options).fit(X))
    for other in fits[1:]:
        assert_array_equal(fits[0].cluster_centers_, other.cluster_centers_)
        assert_array_equal(fits[0].labels_, other.labels_)
        for name in fits[0].history_:
            assert_array_equal(fits[0].history_[name], other.history_[name])
    assert fits[0].history_["swaps_kept"].sum() > 0


@pytest.mark.usefixtures("engine")
@kinds
def test_rows_of_no_weight_are_as_if_absent(grid, kind):
    rng, init = np.random.default_rng(0), grid[:36]
    present = np.sort(rng.permutation(3 * len(grid))[: len(grid)])
    X = rng.uniform(-5.0, 5.0, size=(3 * len(grid), 2))
    weights = np.zeros(len(X))
    X[present], weights[present] = grid, 1.0
    options = {"init": init, "refine": 200}
    model = RBFKMeans(36, **options).fit(KINDS[kind](X), sample_weight=weights)
    alone = RBFKMeans(36, **options).fit(KINDS[kind](grid))
    assert_allclose(model.cluster_centers_, alone.cluster_centers_, rtol=1e-6)
    for name in "swaps_tried", "swaps_kept":
        assert_array_equal(model.history_[name], alone.history_[name])


@pytest.mark.parametrize("factor", [1e-300, 1e-20, 1e20, 1e290])
def test_the_unit_of_the_weights_does_not_matter(grid, factor):
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(grid))
    one, other = (
        RBFKMeans(36, random_state=1).fit(grid, sample_weight=w)
        for w in (weights, factor * weights)
    )
    assert_allclose(other.cluster_centers_, one.cluster_centers_, rtol=1e-9)
    assert one.history_["swaps_kept"].sum() > 0


@pytest.mark.parametrize("unit", [1e-140, 1e-20, 1e20, 1e140])
def test_the_unit_of_the_rows_does_not_matter(grid, unit):
    one, other = (RBFKMeans(36, random_state=1).fit(X) for X in (grid, unit * grid))
    assert_allclose(other.cluster_centers_ / unit, one.cluster_centers_, rtol=1e-9)


def test_one_row_far_away_leaves_the_rest_to_be_refined(grid):
    X = np.vstack([grid, [[1e9, -1e9]]])
    single, model = (
        RBFKMeans(37, random_state=1, refine=refine).fit(X) for refine in (None, "auto")
    )
    assert model.inertia_ < 0.97 * single.inertia_


@pytest.mark.parametrize("k", [1, 2, 3, 5, 7])
@kinds
def test_few_distinct_rows_are_no_trouble(k, kind):
    X = KINDS[kind](np.repeat([[0.0, 0.0], [5.0, 5.0], [9.0, 0.0]], 3, axis=0))
    model = RBFKMeans(k, random_state=0)
    if k > 3:
        with pytest.warns(ConvergenceWarning, match="Found 3 distinct clusters"):
            model.fit(X)
    else:
        model.fit(X)
    assert len(np.unique(model.labels_)) == min(k, 3)
    assert (model.inertia_ == 0.0) == (k >= 3)


def test_as_many_clusters_as_rows_are_no_trouble():
    X = np.random.default_rng(0).standard_normal((30, 2))
    assert RBFKMeans(30, random_state=0).fit(X).inertia_ == 0.0


# --- estimates and trials, beside their twins --------------------------------


@pytest.fixture
def clusters():
    """Weighted rows of six clusters, one of them empty and one of a single row."""
    rng = np.random.default_rng(1)
    X = np.vstack([c + rng.standard_normal((20, 3)) * [3, 1, 1] for c in range(4)])
    X = np.vstack([X, [[20.0, 0.0, 1.0]]])
    labels = np.append(np.repeat([0, 1, 3, 4], 20), 5)
    return X, labels, rng.uniform(0.5, 2.0, len(X))


def sample_of(kind, X, labels, weights, centers):
    rows = Rows(KINDS[kind](X), weights)
    return Sample(rows, [np.flatnonzero(labels == j) for j in range(6)], centers)


def centers_of(X, labels, weights):
    means = [
        np.average(X[labels == j], 0, weights[labels == j]) for j in (0, 1, 3, 4, 5)
    ]
    return np.insert(np.array(means), 2, 7.0, axis=0)


@kinds
def test_a_split_is_estimated_as_by_its_twin(clusters, kind, monkeypatch):
    monkeypatch.setattr(estimates, "POWER_STEPS", 200)
    X, labels, weights = clusters
    centers = centers_of(*clusters)
    gains, halves = sample_of(kind, *clusters, centers).halve()
    rtol = 1e-4 if kind == "float32" else 1e-9
    for j in 0, 1, 3, 4:
        own = labels == j
        saved, first, second = naive.halve(X[own], weights[own])
        assert gains[j] * weights[own].sum() == pytest.approx(saved, rel=rtol)
        found = centers[j] + halves[j]
        if not np.allclose(found[0], first, rtol=rtol):
            found = found[::-1]
        assert_allclose(found, [first, second], rtol=rtol)
    assert gains[2] == gains[5] == 0.0


@kinds
def test_a_removal_is_estimated_as_by_its_twin(clusters, kind):
    X, labels, weights = clusters
    centers = centers_of(*clusters)
    masses = np.bincount(labels, weights, 6)
    others = np.array([np.delete(np.arange(6), j) for j in range(6)]).T
    costs = sample_of(kind, *clusters, centers).removal_costs(
        centers[others] - centers, masses, masses[others]
    )
    for j in 0, 1, 3, 4, 5:
        own = labels == j
        expected = naive.removal_cost(X[own], weights[own], centers, j, masses)
        assert costs[j] == pytest.approx(expected, rel=1e-5)
    assert costs[2] == 0.0


def test_the_axis_is_about_that_of_largest_variance(clusters):
    axes = sample_of("float64", *clusters, centers_of(*clusters)).axes()
    assert np.all(np.abs(axes[[0, 1, 3, 4], 0]) > 0.9)
    assert_array_equal(axes[2], 0.0)


@pytest.mark.parametrize("n", [1, 3, 19, 50])
def test_the_closest_centres_are_found_in_pieces(rng, n, monkeypatch):
    monkeypatch.setattr(estimates, "MOST_GAPS", 70)
    centers, some = rng.standard_normal((20, 3)) + 1e6, np.arange(3, 20, 2)
    found = closest_centers(centers, some, n)
    d2 = naive.squared_distances(centers, centers)
    for j, column in zip(some, found.T, strict=True):
        assert set(column) == set(np.argsort(d2[j])[1 : n + 1])


@pytest.mark.kernel
@kinds
@alphas
@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize("heat", [0.0, 0.1, 2.0])
def test_few_rows_settle_as_by_their_twin(blobs, kind, alpha, stride, heat):
    weights = np.random.default_rng(0).uniform(0.1, 2.0, len(blobs))
    X = KINDS[kind](blobs)
    exact = X.astype(np.float64) if kind == "float32" else blobs
    rows = Rows(X, weights)
    centers, labels, energy = settle_few(
        rows, blobs[:6], heat, stride, np.inf, replace(SETTINGS, alpha=alpha)
    )
    expected = naive.settle(exact, blobs[:6], heat, alpha, weights, stride)
    assert_allclose(centers, expected[0], rtol=1e-9, atol=1e-9)
    assert_array_equal(labels, expected[1])
    assert energy == pytest.approx(expected[2], rel=1e-12)


def passes(blobs, kind):
    """What both kernels of few rows are handed: rows, weights, centres, their norms."""
    weights = np.random.default_rng(0).uniform(0.1, 2.0, len(blobs))
    rows, centers = Rows(KINDS[kind](blobs), weights), blobs[:6].copy()
    norms = np.einsum("ij,ij->i", centers, centers)
    exact = blobs.astype(np.float32).astype(np.float64) if kind == "float32" else blobs
    return rows, weights, centers, norms, exact


@kinds
@alphas
@pytest.mark.parametrize("heat", [0.0, 0.1, 2.0])
def test_a_soft_step_of_few_rows_is_that_of_its_twin(blobs, kind, alpha, heat):
    rows, weights, centers, norms, exact = passes(blobs, kind)
    some = np.arange(1, len(blobs), 3)
    kernels.warm_rows(
        rows.arrays, weights, some, centers, norms, heat_of(heat, alpha),
        np.empty((6, 4)), np.empty(6, dtype=np.int64), np.empty((3, 6)),
    )  # fmt: skip
    step = naive.em_step(exact[some], blobs[:6], heat, alpha, weights[some])
    assert_allclose(centers, naive.m_step(blobs[:6], step), rtol=1e-12, atol=1e-12)
    assert_allclose(norms, np.sum(centers**2, axis=1))


@kinds
@pytest.mark.parametrize("n_steps", [1, 2, 300])
def test_few_rows_take_the_steps_of_lloyd(blobs, kind, n_steps):
    rows, weights, centers, norms, exact = passes(blobs, kind)
    labels = np.full(len(blobs), -1, dtype=np.int32)
    inertia = kernels.settle_rows(
        rows.arrays, weights, centers, norms, labels, np.empty(len(blobs)),
        np.empty((6, 4)), (np.inf, 0.0, n_steps),
    )  # fmt: skip
    expected, last = naive.lloyd(exact, blobs[:6], weights, n_steps)
    assert_allclose(centers, expected, rtol=1e-12, atol=1e-12)
    assert_array_equal(labels, last)
    before = naive.lloyd(exact, blobs[:6], weights, n_steps - 1)[0]
    step = naive.em_step(exact, before, 0.0, 2.0, weights)
    assert inertia == pytest.approx(step.free_energy, rel=1e-12)


@pytest.mark.usefixtures("engine")
def test_a_trial_that_cannot_reach_its_goal_is_given_up(grid):
    with Rows(grid) as rows:
        run = settled(rows, rows.at(np.arange(36)))
        clusters = Clusters(rows, run, SETTINGS)
        start = rows.at(np.arange(36, 72))
        free = clusters._settle(rows, start, 0.5, np.inf)[2]
        short = clusters._settle(rows, start, 0.5, 0.5 * free)[2]
    assert short > free > 0.5 * free


@pytest.mark.parametrize("sigma", [0.0, 0.45])
def test_a_swap_that_fails_leaves_everything_as_it_was(grid, sigma):
    corners = np.stack(np.meshgrid(np.arange(6.0), np.arange(6.0)), -1).reshape(-1, 2)
    with Rows(grid) as rows:
        run = settled(rows, corners, sigma)
        clusters = Clusters(rows, run, SETTINGS)
        assert clusters.best_swap() is None
        assert not clusters.try_swap(3, 20)
        assert_array_equal(clusters.centers, run.centers)
        assert clusters.energy == run.energy


def test_a_swap_that_has_failed_is_not_the_best_any_more(grid, monkeypatch):
    with Rows(grid) as rows:
        clusters = Clusters(rows, settled(rows, rows.at(np.arange(36))), SETTINGS)
        none = (None, None, np.inf)
        monkeypatch.setattr(Clusters, "_settle", lambda *args, **options: none)
        swaps = []
        while (swap := clusters.best_swap()) is not None and len(swaps) < 40:
            assert not clusters.try_swap(*swap)
            swaps.append(swap)
    assert len(swaps) == len(set(swaps)) > 3
    assert len({removed for removed, _ in swaps}) > 1
    assert all(removed != split for removed, split in swaps)


def test_only_clusters_around_a_swap_move(monkeypatch):
    monkeypatch.setattr(refinement, "NEIGHBOURS", 4)
    X = np.random.default_rng(0).uniform(size=(3000, 2))
    with Rows(X) as rows:
        run = settled(rows, rows.at(np.arange(80)))
        clusters = Clusters(rows, run, SETTINGS)
        monkeypatch.setattr(refinement, "LEAST_GAIN", -1e9)  # whatever it is, keep it
        assert clusters.try_swap(3, 50)
    moved = np.flatnonzero(np.any(clusters.centers != run.centers, axis=1))
    d2 = naive.squared_distances(run.centers, run.centers)
    around = set(np.argsort(d2[3])[:5]) | set(np.argsort(d2[50])[:5])
    assert {3, 50} <= set(moved) <= around


@pytest.mark.parametrize("sigma", [10.0, 1e3, 1e6])
@alphas
def test_a_temperature_at_which_all_centres_meet_ends_in_few_trials(grid, sigma, alpha):
    options = {"alpha": alpha, "schedule": sigma, "random_state": 0, "max_iter": 30}
    single = RBFKMeans(4, refine=None, **options).fit(grid)
    model = RBFKMeans(4, **options).fit(grid)
    assert final_energy(single) < 0.0
    assert model.history_["swaps_tried"].sum() <= 2 * refinement.PATIENCE
    assert final_energy(model) <= final_energy(single)
