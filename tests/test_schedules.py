"""Temperature schedules."""

# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from skrbfkmeans import RBFKMeans
from skrbfkmeans.energy import critical_sigma
from skrbfkmeans.schedules import (
    Constant,
    Cosine,
    Cyclic,
    Geometric,
    Linear,
    Schedule,
)

pytestmark = pytest.mark.kernel

RAMPS = (Geometric, Linear, Cosine, Cyclic)
ALL = (*RAMPS, Constant)


class Halving(Schedule):
    """What a user would write."""

    def __init__(self, n=3, *, unit="absolute", harden=True):
        self.n = n
        self.unit = unit
        self.harden = harden

    def multiples(self):
        return [2.0**-t for t in range(self.n)]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (Geometric(8, 1, 4), [8, 4, 2, 1]),
        (Linear(8, 2, 4), [8, 6, 4, 2]),
        (Cosine(8, 2, 3), [8, 5, 2]),
        (Cosine(1, 0.5, 4), [1, 0.875, 0.625, 0.5]),
        (Cyclic(8, 2, 3, n_cycles=3), [8, 4, 2, 4, 8**0.5, 2, 2, 2, 2]),
        (Cyclic(8, 2, 2, n_cycles=2, decay=1.0), [8, 2, 8, 2]),
        (Constant(3), [3]),
        (Constant(3, n_iter=2), [3, 3]),
        (Halving(4), [1, 0.5, 0.25, 0.125]),
    ],
)
def test_temperatures_follow_the_formula(schedule, expected):
    sigmas = schedule.sigmas(scale=0.5)
    assert sigmas.dtype == np.float64
    np.testing.assert_allclose(sigmas, 0.5 * np.array(expected), rtol=1e-15)


@pytest.mark.parametrize("ramp", [Geometric, Linear, Cosine])
def test_a_ramp_falls_from_start_to_stop(ramp):
    sigmas = ramp(start=3.0, stop=0.1, n_steps=7).sigmas()
    assert sigmas.shape == (7,)
    assert sigmas[0] == 3.0
    assert sigmas[-1] == pytest.approx(0.1, rel=1e-15)
    assert np.all(np.diff(sigmas) < 0.0)


@pytest.mark.parametrize("ramp", RAMPS)
def test_each_temperature_is_kept_for_n_iter_iterations(ramp):
    once, thrice = ramp(n_iter=1).sigmas(), ramp(n_iter=3).sigmas()
    np.testing.assert_array_equal(np.repeat(once, 3), thrice)


@pytest.mark.parametrize("ramp", [Geometric, Linear, Cosine])
def test_a_ramp_of_one_step_is_its_start(ramp):
    np.testing.assert_array_equal(ramp(start=2.0, n_steps=1).sigmas(), [2.0])


@pytest.mark.parametrize("ramp", RAMPS)
def test_a_ramp_may_be_flat(ramp):
    np.testing.assert_allclose(ramp(start=2.0, stop=2.0).sigmas(), 2.0, rtol=1e-15)


def test_cyclic_reheats_to_a_lower_temperature_each_time():
    sigmas = Cyclic(start=8.0, stop=1.0, n_steps=4, n_cycles=3, decay=0.5).sigmas()
    reheated = np.flatnonzero(np.diff(sigmas) > 0.0) + 1
    np.testing.assert_array_equal(reheated, [4, 8])
    np.testing.assert_allclose(sigmas[reheated], [4.0, 2.0])


@pytest.mark.parametrize("schedule", [cls() for cls in ALL] + [Halving()])
def test_schedules_clone_and_print_like_estimators(schedule):
    schedule.set_params(unit="critical", harden=not schedule.harden)
    copy = clone(schedule)
    assert copy is not schedule
    assert copy.get_params() == schedule.get_params()
    assert repr(copy) == repr(schedule)
    assert "unit='critical'" in repr(schedule)
    np.testing.assert_array_equal(copy.sigmas(2.0), schedule.sigmas(2.0))


@pytest.mark.parametrize("cls", RAMPS)
def test_parameters_of_a_schedule_can_be_set_through_the_estimator(cls):
    model = RBFKMeans(schedule=cls())
    model.set_params(schedule__start=5.0, schedule__n_steps=2)
    assert model.schedule.sigmas()[0] == 5.0
    assert model.get_params()["schedule__n_steps"] == 2


def test_a_grid_search_over_a_schedule_leaves_the_original_alone(blobs):
    schedule = Geometric()
    search = GridSearchCV(
        RBFKMeans(5, schedule=schedule, random_state=0),
        {"schedule__start": [1.0, 2.0], "schedule__harden": [True, False]},
        cv=2,
    ).fit(blobs)
    assert search.best_estimator_.schedule.start in (1.0, 2.0)
    assert schedule.get_params() == Geometric().get_params()


def test_auto_is_the_geometric_schedule(blobs):
    auto = RBFKMeans(5, random_state=0).fit(blobs)
    geometric = RBFKMeans(5, schedule=Geometric(), random_state=0).fit(blobs)
    np.testing.assert_array_equal(auto.cluster_centers_, geometric.cluster_centers_)
    np.testing.assert_array_equal(auto.history_["sigma"], geometric.history_["sigma"])


def test_the_unit_spread_is_the_distance_to_the_nearest_start(blobs):
    init = blobs[:5]
    nearest = ((blobs[:, None] - init) ** 2).sum(axis=2).min(axis=1)
    spread = np.sqrt(nearest.mean() / blobs.shape[1])
    model = RBFKMeans(5, schedule=Constant(start=2.0), init=init).fit(blobs)
    assert model.sigma_ == pytest.approx(2.0 * spread, rel=1e-13)


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
def test_the_unit_critical_is_the_critical_temperature(blobs, alpha):
    schedule = Constant(start=0.5, unit="critical")
    weights = np.linspace(0.5, 2.0, len(blobs))
    model = RBFKMeans(5, schedule=schedule, alpha=alpha, random_state=0)
    model.fit(blobs, sample_weight=weights)
    critical = critical_sigma(blobs, 5, alpha=alpha, sample_weight=weights)
    assert model.sigma_ == pytest.approx(0.5 * critical, rel=1e-13)


@pytest.mark.parametrize("scale", [1.0, 2.0**400])
def test_the_unit_absolute_is_that_of_the_data(blobs, scale):
    schedule = Constant(start=3.0 * scale, unit="absolute")
    model = RBFKMeans(5, schedule=schedule, random_state=0).fit(scale * blobs)
    assert model.sigma_ == 3.0 * scale


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize("harden", [True, False])
def test_harden_decides_whether_the_end_is_k_means(blobs, cls, harden):
    model = RBFKMeans(5, schedule=cls(harden=harden), random_state=0).fit(blobs)
    assert model.hardened_ == harden
    assert (model.history_["sigma"][-1] == 0.0) == harden


def test_a_schedule_of_ones_own_is_used_as_it_is(blobs):
    model = RBFKMeans(5, schedule=Halving(3), random_state=0).fit(4.0 * blobs)
    np.testing.assert_array_equal(model.history_["sigma"][:3], [1.0, 0.5, 0.25])


def test_a_schedule_without_multiples_says_so():
    class Empty(Schedule):
        unit, harden = "absolute", True

    with pytest.raises(NotImplementedError, match=r"Empty must implement multiples"):
        Empty().sigmas()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("start", 0.0),
        ("start", -1.0),
        ("start", np.nan),
        ("start", np.inf),
        ("start", "1"),
        ("stop", 0.0),
        ("stop", 1e9),
        ("stop", np.nan),
        ("n_steps", 0),
        ("n_steps", 2.5),
        ("n_iter", 0),
        ("n_cycles", 0),
        ("decay", 0.0),
        ("decay", 1.5),
        ("unit", "data"),
        ("harden", "yes"),
    ],
)
def test_a_wrong_parameter_is_named(blobs, name, value):
    classes = [cls for cls in ALL if name in cls().get_params()]
    assert classes
    for cls in classes:
        schedule = cls().set_params(**{name: value})
        with pytest.raises(ValueError, match=f"'{name}'.*{cls.__name__}"):
            schedule.sigmas()
        with pytest.raises(ValueError, match=f"'{name}'.*{cls.__name__}"):
            RBFKMeans(2, schedule=schedule).fit(blobs)


@pytest.mark.parametrize(
    "multiples", [[], [[1.0]], [-1.0], [np.nan], [np.inf], ["a"], 1.0]
)
def test_wrong_temperatures_of_ones_own_schedule_are_an_error(blobs, multiples):
    class Wrong(Halving):
        def multiples(self):
            return multiples

    with pytest.raises(ValueError, match=r"Wrong|schedule|multiples"):
        RBFKMeans(2, schedule=Wrong()).fit(blobs)
