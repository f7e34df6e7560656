"""One run, from the first temperature to k-means."""

# SPDX-License-Identifier: BSD-3-Clause

import naive
import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs

from skrbfkmeans import RBFKMeans
from skrbfkmeans._engine.rows import Rows
from skrbfkmeans._run.annealing import part_glued, relocate_empty
from skrbfkmeans.energy import critical_sigma, hardening_sigma, responsibilities
from skrbfkmeans.schedules import Constant, Cosine, Cyclic, Geometric, Linear

alphas = pytest.mark.parametrize("alpha", [1.0, 1.25, 1.5, 2.0, 3.0])
HARDENING = [
    Geometric(),
    Geometric(start=8.0, stop=0.01, n_steps=9),
    Linear(n_iter=3),
    Cosine(start=4.0),
    Cyclic(n_cycles=3),
    Constant(harden=True, n_iter=5),
    Geometric(start=1.5, stop=0.1, unit="critical"),
    0.0,
    [2.0, 1.0, 0.0],
]


def fit(X, init, schedule, weights=None, **parameters):
    """A run from given centres."""
    parameters = {"max_iter": 5000, "tol": 0.0, **parameters}
    model = RBFKMeans(len(init), schedule=schedule, init=init, **parameters)
    return model.fit(X, sample_weight=weights)


def start(X, k, seed=0):
    return X[np.random.default_rng(seed).permutation(len(X))[:k]]


def is_fixed_point(X, centers, weights):
    """Whether each centre is the mean of its own rows, and has some."""
    step = naive.em_step(X, centers, 0.0, 2.0, weights)
    means = step.sums / step.masses[:, np.newaxis]
    return np.abs(means - centers).max() <= 1e-12 * np.abs(X).max()


# --- at one temperature ------------------------------------------------------


@alphas
@pytest.mark.parametrize("learning_rate", [0.3, 0.7, 1.0])
@pytest.mark.parametrize("sigma", [0.5, 2.0, 5.0])
def test_free_energy_never_rises_at_constant_temperature(
    blobs, alpha, learning_rate, sigma
):
    weights = np.linspace(0.0, 2.0, len(blobs))
    init = start(blobs, 5)
    options = {"alpha": alpha, "learning_rate": learning_rate, "max_iter": 60}
    history = fit(blobs, init, sigma, weights, **options).history_
    energy = history["free_energy"]
    assert len(energy) > 3
    assert energy[-1] < energy[0]
    assert np.diff(energy).max() <= 1e-12 * np.abs(energy).max()


@alphas
@pytest.mark.parametrize("learning_rate", [0.3, 1.0, 1.5])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_one_step_goes_that_part_of_the_way_to_the_weighted_means(
    blobs, alpha, learning_rate, offset
):
    X, weights = blobs + offset, np.linspace(0.1, 2.0, len(blobs))
    init = start(X, 5)
    options = {"alpha": alpha, "learning_rate": learning_rate, "max_iter": 1}
    centers = fit(X, init, 3.0, weights, **options).cluster_centers_
    step = naive.em_step(X, init, 3.0, alpha, weights)
    means = step.sums / step.masses[:, np.newaxis]
    expected = init + learning_rate * (means - init)
    scale = 1e-14 * np.abs(X).max()  # of the data
    np.testing.assert_allclose(centers, expected, rtol=0.0, atol=scale)


@alphas
def test_a_temperature_kept_to_the_end_is_a_fixed_point_of_the_soft_step(blobs, alpha):
    model = fit(blobs, start(blobs, 5), 4.0, alpha=alpha, tol=1e-26)
    assert not model.hardened_
    assert model.n_iter_ < 5000
    step = naive.em_step(blobs, model.cluster_centers_, 4.0, alpha, np.ones(200))
    means = step.sums / step.masses[:, np.newaxis]
    np.testing.assert_allclose(model.cluster_centers_, means, rtol=0.0, atol=1e-11)


@alphas
@pytest.mark.parametrize("learning_rate", [0.5, 1.0])
def test_every_iteration_equals_the_naive_run(blobs, alpha, learning_rate):
    weights = np.linspace(0.5, 2.0, len(blobs))
    init = start(blobs, 5, seed=3)
    variance = np.cov(blobs.T, aweights=weights, ddof=0).diagonal().mean()
    for sigmas in ([3.0, 2.0, 1.0, 0.5, 0.25, 0.0], [4.0, 4.0, 1.0], [0.0], [2.5]):
        options = {"learning_rate": learning_rate, "max_iter": 50}
        model = fit(blobs, init, sigmas, weights, alpha=alpha, tol=1e-3, **options)
        history, centers = naive.anneal(
            blobs,
            init,
            np.array(sigmas),
            alpha,
            weights,
            tol=1e-3 * variance,
            **options,
        )
        assert model.n_iter_ == len(history)
        names = "sigma", "free_energy", "shift", "soft_fraction", "support"
        for name, expected in zip(names, history.T, strict=True):
            actual = model.history_[name]
            np.testing.assert_allclose(
                actual, expected, rtol=1e-9, atol=1e-9, err_msg=name
            )
        np.testing.assert_allclose(model.cluster_centers_, centers, atol=1e-10)


@pytest.mark.parametrize("cls", [Geometric, Linear, Cosine])
def test_a_schedule_object_runs_like_the_array_of_its_temperatures(blobs, cls):
    init = start(blobs, 5)
    schedule = cls(start=4.0, stop=0.5, unit="absolute")
    model = fit(blobs, init, schedule)
    array = fit(blobs, init, [*schedule.sigmas(), 0.0])
    np.testing.assert_array_equal(model.cluster_centers_, array.cluster_centers_)
    np.testing.assert_array_equal(model.history_["sigma"], array.history_["sigma"])


# --- between the critical and the hardening temperature ----------------------


@pytest.mark.parametrize("k", [2, 4, 9])
@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
def test_centres_meet_above_the_critical_temperature_and_part_below(rng, k, alpha):
    X = rng.uniform(-1.0, 1.0, size=(80, 2)) * [3.0, 0.5]
    weights = rng.uniform(0.5, 2.0, size=80)
    mean = np.average(X, axis=0, weights=weights)
    critical = critical_sigma(X, k, alpha=alpha, sample_weight=weights)
    init = mean + 1e-3 * rng.standard_normal((k, 2))
    options = {"alpha": alpha, "max_iter": 400}
    above = fit(X, init, 1.05 * critical, weights, **options).cluster_centers_
    np.testing.assert_allclose(above, np.tile(mean, (k, 1)), rtol=0.0, atol=1e-9)
    below = fit(X, init, 0.95 * critical, weights, **options).cluster_centers_
    assert np.ptp(below[:, 0]) > 0.1  # along the first principal component


@pytest.mark.parametrize("alpha", [1.25, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("d", [2, 30])
def test_k_means_is_a_fixed_point_at_and_below_the_hardening_temperature(alpha, d):
    X = make_blobs(150, d, centers=4, cluster_std=2.0, random_state=1)[0]
    solution = KMeans(4, n_init=1, tol=0.0, random_state=0).fit(X).cluster_centers_
    solution = naive.lloyd(X, solution, np.ones(150))[0]  # exactly settled
    hardening = hardening_sigma(X, solution, alpha=alpha)
    assert hardening > 0.0
    for share in (1.0 - 1e-9, 0.5, 1e-3):
        model = fit(X, solution, share * hardening, alpha=alpha)
        assert model.hardened_
        np.testing.assert_allclose(model.cluster_centers_, solution, rtol=1e-12)
        assert np.all(model.history_["soft_fraction"] == 0.0)


@pytest.mark.parametrize("alpha", [1.25, 1.5, 2.0, 3.0])
def test_only_the_rows_within_the_margin_turn_soft_above_it(blobs, alpha):
    solution = naive.lloyd(blobs, start(blobs, 4), np.ones(200))[0]
    d2 = np.sort(naive.squared_distances(blobs, solution), axis=1)
    gaps = d2[:, 1] - d2[:, 0]
    hardening = hardening_sigma(blobs, solution, alpha=alpha)
    for factor in (1.0 + 1e-9, 1.5, 5.0):
        sigma = factor * hardening
        soft = gaps < 2.0 * sigma**2 / (alpha - 1.0)
        r = responsibilities(blobs, solution, sigma, alpha=alpha)
        np.testing.assert_array_equal(np.count_nonzero(r, axis=1) > 1, soft)
        model = fit(blobs, solution, sigma, alpha=alpha, max_iter=1)
        assert model.history_["soft_fraction"][0] == pytest.approx(soft.mean())
        assert not model.hardened_


# --- the hard end ------------------------------------------------------------


@alphas
@pytest.mark.parametrize("schedule", HARDENING, ids=str)
def test_every_hardening_schedule_ends_at_a_fixed_point_of_k_means(
    blobs, alpha, schedule
):
    weights = np.linspace(0.5, 2.0, len(blobs))
    for learning_rate in (0.5, 1.0):
        options = {"alpha": alpha, "learning_rate": learning_rate, "tol": 1e-1}
        model = fit(blobs, start(blobs, 5), schedule, weights, **options)
        assert model.hardened_
        assert is_fixed_point(blobs, model.cluster_centers_, weights)
        assert model.history_["sigma"][-1] == 0.0
        assert model.history_["free_energy"][-1] == pytest.approx(model.inertia_)


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
@pytest.mark.parametrize("seed", range(20))
def test_the_hard_limit_equals_k_means_from_the_same_start(seed):
    rng = np.random.default_rng(seed)
    n, d, k = rng.integers(30, 300), rng.integers(1, 20), rng.integers(2, 8)
    X = rng.standard_normal((n, d))
    init = start(X, k, seed)
    if seed % 3 == 0:  # one centre has no rows
        init[-1] = 1e3
    weights = rng.uniform(0.5, 2.0, size=n) if seed % 2 else None
    model = fit(X, init, 0.0, weights)
    kmeans = KMeans(k, init=init, n_init=1, algorithm="lloyd", tol=0.0)
    kmeans.fit(X, sample_weight=weights)
    np.testing.assert_array_equal(model.labels_, kmeans.labels_)
    assert model.inertia_ == pytest.approx(kmeans.inertia_, rel=1e-12)
    assert model.n_iter_ == kmeans.n_iter_
    assert model.hardened_
    np.testing.assert_allclose(
        model.cluster_centers_, kmeans.cluster_centers_, atol=1e-12
    )


@pytest.mark.parametrize("learning_rate", [0.5, 1.0])
def test_a_temperature_whose_square_underflows_is_the_hard_limit(blobs, learning_rate):
    init = start(blobs, 5)
    options = {"learning_rate": learning_rate}
    tiny, zero = fit(blobs, init, 1e-200, **options), fit(blobs, init, 0.0, **options)
    np.testing.assert_array_equal(tiny.cluster_centers_, zero.cluster_centers_)
    assert tiny.n_iter_ == zero.n_iter_
    assert tiny.hardened_


def test_the_rest_of_a_falling_schedule_is_skipped_once_every_row_is_one_hot():
    X = make_blobs(60, 2, centers=[[0, 0], [50, 0], [0, 50]], random_state=0)[0]
    schedule = Geometric(start=40.0, stop=1e-3, n_steps=100, unit="absolute")
    model = fit(X, X[:3], schedule)
    soft = model.history_["soft_fraction"] > 0.0
    first = soft.argmin()  # the first iteration without a soft row
    assert 0 < first < 50
    np.testing.assert_array_equal(model.history_["sigma"][first + 1 :], 0.0)
    assert model.n_iter_ < 60
    np.testing.assert_array_equal(
        model.history_["sigma"][: first + 1], schedule.sigmas()[: first + 1]
    )


def test_a_reheating_schedule_is_not_cut_short_by_one_hot_rows():
    X = make_blobs(60, 2, centers=[[0, 0], [50, 0], [0, 50]], random_state=0)[0]
    schedule = Cyclic(
        start=60.0, stop=0.1, n_steps=4, n_cycles=3, decay=0.9, unit="absolute"
    )
    history = fit(X, X[:3], schedule).history_
    sigmas = schedule.sigmas()
    n = 9  # up to and including the top of the last cycle
    np.testing.assert_array_equal(history["sigma"][:n], sigmas[:n])
    assert history["soft_fraction"][3] == 0.0
    assert np.all(history["soft_fraction"][[0, 4, 8]] > 0.0)


def test_max_iter_ends_a_run_anywhere(blobs):
    schedule = Geometric(n_steps=5)
    for max_iter in (1, 3, 5, 6):
        model = fit(blobs, start(blobs, 5), schedule, max_iter=max_iter)
        assert model.n_iter_ == max_iter
        assert {len(values) for values in model.history_.values()} == {max_iter}
        assert not model.hardened_


def test_tol_ends_the_last_temperature_and_never_the_hard_phase(blobs):
    init = start(blobs, 5)
    loose, tight = (fit(blobs, init, 4.0, tol=tol) for tol in (1e-1, 1e-12))
    assert loose.n_iter_ < tight.n_iter_
    variance = blobs.var(axis=0).mean()
    assert loose.history_["shift"][-1] ** 2 <= 1e-1 * variance
    assert np.all(loose.history_["shift"][:-1] ** 2 > 1e-1 * variance)
    hard = fit(blobs, init, 0.0, tol=1e10)
    np.testing.assert_array_equal(
        hard.cluster_centers_, fit(blobs, init, 0.0).cluster_centers_
    )


# --- empty and coinciding centres --------------------------------------------


def test_an_empty_centre_is_moved_to_the_row_that_costs_most():
    X, init = np.array([[0.0], [1.0], [2.0], [9.0]]), np.array([[1.0], [1e4]])
    centers = fit(X, init, 0.0, max_iter=1).cluster_centers_
    np.testing.assert_allclose(centers, [[1.0], [9.0]])


def test_the_weight_of_a_row_counts_in_its_cost():
    X, init = np.array([[0.0], [1.0], [4.0], [-5.0]]), np.array([[0.0], [1e4]])
    centers = fit(X, init, 0.0, [1.0, 1.0, 9.0, 1.0], max_iter=1).cluster_centers_
    np.testing.assert_allclose(centers, [[-4.0 / 3.0], [4.0]])
    absent = fit(X, init, 0.0, [1.0, 1.0, 0.0, 1.0], max_iter=1).cluster_centers_
    np.testing.assert_allclose(absent, [[0.5], [-5.0]])


def test_relocation_never_robs_a_singleton():
    X = np.array([[0.0], [1.0], [2.0], [10.0], [100.0]])
    init = np.array([[1.0], [60.0], [1e4]])  # 100 is alone and costs most
    centers = fit(X, init, 0.0, max_iter=1).cluster_centers_
    np.testing.assert_allclose(centers, [[1.0], [100.0], [10.0]])


def test_several_empty_centres_get_different_rows():
    X = np.array([[0.0], [1.0], [5.0], [-7.0], [9.0]])
    init = np.array([[0.0], [1e4], [2e4], [3e4]])
    centers = fit(X, init, 0.0, max_iter=1).cluster_centers_
    np.testing.assert_allclose(centers, [[0.5], [9.0], [-7.0], [5.0]])


def test_nothing_is_relocated_when_all_rows_lie_on_their_centres():
    X, centers = np.array([[0.0], [0.0], [1.0]]), np.array([[0.0], [1.0], [9.0]])
    with Rows(X) as rows:
        e_step = rows.e_step(2.0)
        step = e_step(centers, 0.0)
        masses = step.masses.copy()
        assert not relocate_empty(e_step, centers, step)
        np.testing.assert_array_equal(step.masses, masses)


def test_an_empty_centre_stays_finite_where_it_is_while_the_model_is_soft(blobs):
    init = np.concatenate([start(blobs, 3), [[1e5, 1e5, 1e5]]])
    centers = fit(blobs, init, 3.0).cluster_centers_
    np.testing.assert_array_equal(centers[-1], init[-1])
    assert np.isfinite(centers).all()


def test_centres_of_almost_no_mass_stay_and_of_little_mass_move():
    X, init = np.array([[0.0], [100.0]]), np.array([[1.0], [90.0]])
    moved = fit(X, init, 1.0, [1.0, 1e-11], max_iter=1).cluster_centers_
    np.testing.assert_allclose(moved, [[0.0], [100.0]], atol=1e-8)
    stayed = fit(X, init, 1.0, [1.0, 1e-13], max_iter=1).cluster_centers_
    np.testing.assert_allclose(stayed, [[0.0], [90.0]], atol=1e-8)


@pytest.mark.parametrize("k", [2, 6, 30])
def test_glued_centres_are_parted_a_little_and_always_alike(rng, k):
    seeds = rng.standard_normal((k, 3))
    glued = np.tile(seeds.mean(axis=0), (k, 1))
    glued[0] += 1e-6
    parted = part_glued(glued.copy(), seeds, 2.0)
    np.testing.assert_array_equal(parted, part_glued(glued.copy(), seeds, 2.0))
    assert len(np.unique(parted, axis=0)) == k
    assert 0.0 < np.abs(parted - glued).max() <= 0.1 * 2.0
    moved, wished = parted - glued, seeds - glued
    assert np.all(np.sum(moved * wished, axis=1) > 0.0)  # towards their seeds


def test_centres_well_apart_are_left_alone_when_others_are_parted(rng):
    centers = np.array([[0.0, 0.0], [0.0, 0.0], [5.0, 0.0]])
    parted = part_glued(centers.copy(), rng.standard_normal((3, 2)), 1.0)
    np.testing.assert_array_equal(parted[2], centers[2])
    assert np.any(parted[0] != parted[1])


def test_one_centre_and_coinciding_seeds_can_be_parted_too():
    one = np.array([[1.0, 2.0]])
    np.testing.assert_array_equal(part_glued(one.copy(), one, 1.0), one)
    same = np.tile(one, (4, 1))
    assert len(np.unique(part_glued(same.copy(), same, 1.0), axis=0)) == 4


@alphas
@pytest.mark.parametrize("harden", [True, False])
def test_coinciding_centres_end_up_distinct(blobs, alpha, harden):
    init = np.tile(blobs.mean(axis=0), (5, 1))
    schedule = Geometric(100.0, 0.3, 30, unit="absolute", harden=harden)
    model = fit(blobs, init, schedule, alpha=alpha, max_iter=300)
    assert len(np.unique(model.labels_)) == 5
    again = fit(blobs, init, schedule, alpha=alpha, max_iter=300)
    np.testing.assert_array_equal(model.cluster_centers_, again.cluster_centers_)


def test_coinciding_centres_become_distinct_in_the_hard_limit_alone(blobs):
    model = fit(blobs, np.tile(blobs.mean(axis=0), (5, 1)), 0.0)
    assert len(np.unique(model.labels_)) == 5
    assert is_fixed_point(blobs, model.cluster_centers_, np.ones(200))


def test_one_step_from_coinciding_centres_keeps_them_together(blobs):
    init = np.tile(blobs[0], (3, 1))
    centers = fit(blobs, init, 3.0, max_iter=1).cluster_centers_
    np.testing.assert_allclose(centers, np.tile(blobs.mean(axis=0), (3, 1)), rtol=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_no_centre_is_lost_among_many_equal_rows(seed):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 4, size=(60, 2)).astype(float)
    k = len(np.unique(X, axis=0)) - 2
    model = fit(X, np.tile(X[0], (k, 1)), 0.0, max_iter=300)
    assert len(np.unique(model.labels_)) == k
    assert model.hardened_
    assert is_fixed_point(X, model.cluster_centers_, np.ones(60))


def test_annealing_from_far_too_hot_keeps_what_the_start_knew():
    X = make_blobs(1000, 2, centers=25, cluster_std=0.3, random_state=0)[0]
    options = {"n_clusters": 25, "random_state": 0}
    hot = RBFKMeans(schedule=Geometric(start=1e3, n_steps=20), **options).fit(X)
    plain = RBFKMeans(schedule=0.0, **options).fit(X)
    assert hot.inertia_ <= 1.05 * plain.inertia_
    assert len(np.unique(hot.labels_)) == 25


# --- symmetries --------------------------------------------------------------


@alphas
@pytest.mark.parametrize("scale", [2.0**-500, 2.0**-30, 2.0**30, 2.0**500])
def test_a_power_of_two_changes_no_digit_of_a_run(blobs, alpha, scale):
    options = {"alpha": alpha, "random_state": 0, "n_clusters": 5}
    model, scaled = (
        RBFKMeans(**options).fit(blobs),
        RBFKMeans(**options).fit(scale * blobs),
    )
    np.testing.assert_array_equal(scaled.labels_, model.labels_)
    np.testing.assert_array_equal(
        scaled.cluster_centers_ / scale, model.cluster_centers_
    )
    np.testing.assert_array_equal(
        scaled.history_["sigma"] / scale, model.history_["sigma"]
    )
    assert scaled.sigma_ / scale == model.sigma_


@alphas
def test_an_offset_moves_the_centres_and_nothing_else(blobs, alpha):
    X = np.round(blobs * 1024.0) / 1024.0
    options = {"alpha": alpha, "random_state": 0, "n_clusters": 5}
    model = RBFKMeans(**options).fit(X)
    moved = RBFKMeans(**options).fit(X + 2.0**30)
    np.testing.assert_array_equal(moved.labels_, model.labels_)
    assert moved.inertia_ == pytest.approx(model.inertia_, rel=1e-8)
    np.testing.assert_allclose(
        moved.cluster_centers_ - 2.0**30, model.cluster_centers_, atol=1e-6
    )


@alphas
@pytest.mark.parametrize("factor", [1e-200, 7.0, 1e200])
def test_the_scale_of_all_weights_changes_nothing_but_the_inertia(blobs, alpha, factor):
    weights = np.linspace(0.0, 2.0, len(blobs))
    init = start(blobs, 5)
    model = fit(blobs, init, Geometric(), weights, alpha=alpha)
    scaled = fit(blobs, init, Geometric(), factor * weights, alpha=alpha)
    np.testing.assert_array_equal(scaled.labels_, model.labels_)
    np.testing.assert_allclose(scaled.cluster_centers_, model.cluster_centers_)
    assert scaled.inertia_ / factor == pytest.approx(model.inertia_)


@alphas
def test_a_whole_weight_is_that_many_rows(blobs, alpha):
    counts = np.arange(len(blobs)) % 4
    init = start(blobs, 5)
    once = fit(blobs, init, Geometric(), counts, alpha=alpha)
    often = fit(np.repeat(blobs, counts, axis=0), init, Geometric(), alpha=alpha)
    np.testing.assert_array_equal(np.repeat(once.labels_, counts), often.labels_)
    np.testing.assert_allclose(once.cluster_centers_, often.cluster_centers_, rtol=1e-9)
    np.testing.assert_allclose(once.history_["sigma"], often.history_["sigma"])
    np.testing.assert_allclose(
        once.history_["soft_fraction"], often.history_["soft_fraction"]
    )


# --- far centres and rows -----------------------------------------------------

NEAR = np.random.RandomState(0).uniform(0, 1, (80, 3))
NEAR_CENTERS = np.array([[0.1] * 3, [0.9] * 3])


@pytest.mark.parametrize("far", [1e4, 1e11, -1e11, 1e15])
@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
def test_a_far_centre_does_not_end_the_run_of_the_near_ones(far, alpha):
    options = {"schedule": 0.2, "tol": 0.0, "max_iter": 60, "alpha": alpha}
    init = np.concatenate([NEAR_CENTERS, [[far] * 3]])
    near = RBFKMeans(2, init=NEAR_CENTERS, **options).fit(NEAR)
    model = RBFKMeans(3, init=init, **options).fit(NEAR)
    assert model.n_iter_ == near.n_iter_
    assert_near = np.testing.assert_allclose
    assert_near(model.cluster_centers_[:2], near.cluster_centers_, atol=1e-14)


@pytest.mark.parametrize("n_far", [1, 5])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_far_rows_do_not_end_the_run_of_the_near_ones(n_far, offset):
    options = {"schedule": 0.2, "tol": 0.0, "max_iter": 60}
    rows = np.concatenate([NEAR, np.full((n_far, 3), 1e11)]) + offset
    init = np.concatenate([NEAR_CENTERS, [[1e11] * 3]]) + offset
    near = RBFKMeans(2, init=NEAR_CENTERS + offset, **options).fit(NEAR + offset)
    model = RBFKMeans(3, init=init, **options).fit(rows)
    np.testing.assert_allclose(
        model.cluster_centers_[:2], near.cluster_centers_, atol=1e-12 * (1.0 + offset)
    )


@pytest.mark.parametrize("offset", [0.0, 1.0, 1e6])
@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_without_tol_a_soft_run_ends_once_its_moves_are_rounding(offset, alpha):
    rows = NEAR + offset
    model = RBFKMeans(
        4, init=rows[:4], schedule=0.1, tol=0.0, max_iter=5000, alpha=alpha
    ).fit(rows)
    assert model.n_iter_ < 5000
    assert model.history_["shift"][-1] < 1e-14 * (1.0 + offset)
