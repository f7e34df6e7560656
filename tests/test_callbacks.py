"""scikit-learn's callbacks: told of all that a fit does, and heard."""

# SPDX-License-Identifier: BSD-3-Clause

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from skrbfkmeans import RBFKMeans
from skrbfkmeans._sklearn import CallbackSupportMixin
from skrbfkmeans.schedules import Constant, Cyclic, Geometric

X = np.random.default_rng(0).normal(size=(300, 2))
X[:100] += 5.0

try:
    from sklearn.callback import ProgressBar
except ImportError:  # before version 1.9
    ProgressBar = None

needs_callbacks = pytest.mark.skipif(
    ProgressBar is None, reason="scikit-learn has callbacks from version 1.9 on."
)


class Recorder:
    """Writes down what it is told, and asks to stop after a task that is named."""

    def __init__(self, stop_after=(None, -1)):
        self.events, self.scores, self.models = [], [], []
        self.stop_after = stop_after

    def setup(self, estimator, context):
        self.events.append("setup")

    def teardown(self, estimator, context):
        self.events.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.events.append(f"begin {context.task_name} {context.task_id}")

    def on_fit_task_end(
        self, estimator, context, *, X=None, metadata=None, fitted_estimator=None
    ):
        self.events.append(f"end {context.task_name} {context.task_id}")
        assert metadata.keys() == {"sample_weight"}
        self.scores.append(fitted_estimator.score(X))
        self.models.append(fitted_estimator)
        return (context.task_name, context.task_id) == self.stop_after

    def count(self, event):
        return sum(line.startswith(event) for line in self.events)


def make(**parameters):
    return RBFKMeans(**{"n_clusters": 4, "random_state": 0, **parameters})


@needs_callbacks
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"n_init": 3},
        {"refine": None, "schedule": Cyclic(n_cycles=2)},
        {"schedule": 1.0},
        {"schedule": 1e-3, "alpha": 1.0},
        {"schedule": Constant(n_iter=4)},
        {"schedule": Geometric(unit="critical", start=0.9, n_steps=20)},
        {"init": "random", "n_init": 2, "refine": 3},
    ],
    ids=repr,
)
def test_callbacks_are_told_of_starts_temperatures_and_iterations(parameters):
    recorder = Recorder()
    model = make(**parameters).set_callbacks(recorder).fit(X)
    events = recorder.events
    assert events[:2] == ["setup", "begin fit 0"]
    assert events[-2:] == ["end fit 0", "teardown"]
    nesting = []
    for event in events[1:-1]:
        what, task = event.split(" ", 1)
        if what == "begin":
            depth = ["fit", "start", "temperature", "iteration"].index(task.split()[0])
            assert depth == len(nesting)
            nesting.append(task)
        else:
            assert nesting.pop() == task
    n_starts = parameters.get("n_init", 1)
    assert recorder.count("begin start") == n_starts
    if n_starts == 1:
        assert recorder.count("end iteration") == model.n_iter_
    assert recorder.scores[-1] == model.score(X)


@needs_callbacks
def test_callbacks_change_nothing():
    told, alone = make(n_init=2).set_callbacks(Recorder()).fit(X), make(n_init=2).fit(X)
    assert_array_equal(told.cluster_centers_, alone.cluster_centers_)
    for name, values in alone.history_.items():
        assert_array_equal(told.history_[name], values)
    assert set(vars(told)) - set(vars(alone)) == {"_skl_callbacks"}


@needs_callbacks
def test_a_callback_sees_the_model_as_it_would_be():
    recorder = Recorder()
    model = make(store_path=True).set_callbacks(recorder).fit(X)
    ends = [event for event in recorder.events if event.startswith("end")]
    seen = [
        m.cluster_centers_
        for m, event in zip(recorder.models, ends, strict=True)
        if event.startswith("end iteration")
    ]
    for centers, kept in zip(seen[:3], model.path_[1:4], strict=True):
        assert_allclose(centers, kept)
    assert_array_equal(seen[-1], model.cluster_centers_)
    assert recorder.models[0].predict_proba(X).shape == (300, 4)


@needs_callbacks
def test_a_callback_can_stop_an_iteration_a_temperature_and_a_fit():
    full = make(n_init=3, schedule=2.0, tol=0.0, alpha=1.0).fit(X)
    model = make(schedule=2.0, tol=0.0, alpha=1.0)
    model.set_callbacks(Recorder(stop_after=("iteration", 2))).fit(X)
    assert model.n_iter_ == 3 < full.n_iter_
    model = make(schedule=[3.0, 2.0, 1.0], n_init=3)
    recorder = Recorder(stop_after=("temperature", 1))
    model.set_callbacks(recorder).fit(X)
    assert set(model.history_["sigma"]) == {3.0, 2.0}
    assert not model.hardened_
    assert model.sigma_ == 2.0
    recorder = Recorder(stop_after=("start", 1))
    model = make(n_init=5).set_callbacks(recorder).fit(X)
    assert recorder.count("begin start") == 2


@needs_callbacks
def test_an_iteration_that_is_the_last_of_its_temperature_leads_to_the_next():
    model = make(schedule=Geometric(n_steps=2, n_iter=4), refine=None)
    model.set_callbacks(Recorder(stop_after=("iteration", 0))).fit(X)
    first, second, third = model.history_["sigma"]
    assert first > second > third == 0.0


@needs_callbacks
def test_a_run_that_is_stopped_has_not_settled_and_is_not_refined():
    model = make(schedule=[5.0] * 200 + [1.0])
    model.set_callbacks(Recorder(stop_after=("temperature", 0))).fit(X)
    assert set(model.history_["sigma"]) == {5.0}
    assert model.n_iter_ < 200  # it had settled at this one
    assert model.history_["swaps_tried"].sum() == 0


@needs_callbacks
def test_iterations_between_swaps_are_told_and_can_be_stopped():
    corners = np.array([[0.0, 0.0], [50.0, 0.0], [0.0, 50.0], [50.0, 50.0]])
    rows = np.random.default_rng(0).normal(corners, 3.0, (50, 4, 2)).reshape(-1, 2)
    init = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 50.0], [50.0, 25.0]])
    model = make(init=init, refine=9, schedule=0.0)
    recorder = Recorder()
    model.set_callbacks(recorder).fit(rows)
    last_before_swaps = np.flatnonzero(model.history_["swaps_kept"])[0]
    assert last_before_swaps < model.n_iter_ - 1
    assert recorder.count("end iteration") == model.n_iter_
    model.set_callbacks(Recorder(stop_after=("iteration", last_before_swaps + 1)))
    model.fit(rows)
    assert model.n_iter_ == last_before_swaps + 2
    assert model.history_["swaps_tried"][-1] == 0


@needs_callbacks
def test_a_callback_that_fails_is_still_torn_down_and_the_model_as_it_was():
    class Failing(Recorder):
        def on_fit_task_end(self, estimator, context):
            raise KeyboardInterrupt

    recorder = Failing()
    model = make().set_callbacks(recorder)
    before = dict(vars(model))
    with pytest.raises(KeyboardInterrupt):
        model.fit(X)
    assert recorder.events[-1] == "teardown"
    assert vars(model) == before


@needs_callbacks
def test_bad_input_is_told_before_any_callback_begins():
    recorder = Recorder()
    with pytest.raises(ValueError, match="n_samples=3"):
        make().set_callbacks(recorder).fit(X[:3])
    assert recorder.events == []


@needs_callbacks
def test_the_progress_bar_shows_all_levels(capsys):
    pytest.importorskip("rich")
    make(n_init=2).set_callbacks(ProgressBar()).fit(X)
    out = capsys.readouterr().out
    for task in ("fit", "start #1", "temperature #2"):
        assert re.search(f"RBFKMeans - {task} .*100%", out), out


@needs_callbacks
def test_a_search_hands_its_callbacks_on():
    search = GridSearchCV(make(), {"n_clusters": [2, 3]}, cv=2)
    recorder = Recorder()
    recorder.max_propagation_depth = None
    recorder.on_fit_task_end = lambda estimator, context: None
    search.set_callbacks(recorder).fit(X)
    assert recorder.count("begin start") == 5  # two folds of two, and the refit


@needs_callbacks
def test_clones_and_searches_in_processes_work_with_callbacks():
    model = make().set_callbacks(ProgressBar())
    assert clone(model).fit(X[:50]).n_iter_ > 0


@pytest.mark.skipif(ProgressBar is not None, reason="For scikit-learn before 1.9.")
def test_without_callbacks_in_scikit_learn_there_is_no_way_to_set_them():
    assert not hasattr(make(), "set_callbacks")
    assert issubclass(RBFKMeans, CallbackSupportMixin)
    assert make().fit(X).n_iter_ > 0
