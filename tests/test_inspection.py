"""The displays: they show what the model holds, wherever they are to draw it."""

# SPDX-License-Identifier: BSD-3-Clause

import sys

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.exceptions import NotFittedError
from sklearn.inspection import DecisionBoundaryDisplay
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skrbfkmeans import RBFKMeans
from skrbfkmeans.energy import critical_sigma, hardening_sigma, responsibilities
from skrbfkmeans.entmax import tsallis_entropy
from skrbfkmeans.inspection import (
    AnnealingDisplay,
    MembershipDisplay,
    TrajectoryDisplay,
)
from skrbfkmeans.schedules import Cyclic, Geometric

mpl.use("Agg")
import matplotlib.pyplot as plt

DISPLAYS = [AnnealingDisplay, MembershipDisplay, TrajectoryDisplay]
CORNERS = np.array([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0]])
PLANE = np.random.default_rng(0).normal(CORNERS, size=(40, 3, 2)).reshape(-1, 2)
WEIGHTS = np.arange(120) % 4.0


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def fit(X=PLANE, sample_weight=None, **parameters):
    parameters = {"random_state": 0, "store_path": True, **parameters}
    return RBFKMeans(3, **parameters).fit(X, sample_weight=sample_weight)


def lines(ax, color=None):
    return [line for line in ax.get_lines() if color in (None, line.get_color())]


# --- all displays -------------------------------------------------------------


@pytest.mark.parametrize("display", DISPLAYS)
def test_it_draws_on_axes_that_are_given_and_again_on_others(display):
    figure, ax = plt.subplots()
    shown = display.from_estimator(fit(), PLANE, ax=ax)
    assert shown.figure_ is figure
    assert shown.plot() is shown
    assert shown.figure_ is not figure


@pytest.mark.parametrize("display", DISPLAYS)
def test_it_says_what_is_missing_where_there_is_no_matplotlib(display, monkeypatch):
    model = fit()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=f"{display.__name__} draws with matplotlib"):
        display.from_estimator(model, PLANE)


def test_matplotlib_is_imported_only_where_something_is_drawn(python):
    python(
        "import sys, skrbfkmeans.inspection\n"
        "assert not [name for name in sys.modules if name.startswith('matplotlib')]"
    )


@pytest.mark.parametrize("display", DISPLAYS)
def test_a_model_that_is_not_fitted_is_an_error(display):
    with pytest.raises(NotFittedError, match="RBFKMeans"):
        display.from_estimator(RBFKMeans(3), PLANE)


@pytest.mark.parametrize("display", DISPLAYS)
def test_a_pipeline_is_drawn_in_the_space_of_its_last_step(display):
    frame = pd.DataFrame(PLANE, columns=["length", "width"])
    model = RBFKMeans(3, store_path=True, random_state=0)
    pipeline = make_pipeline(StandardScaler(), model).fit(frame)
    shown = display.from_estimator(pipeline, frame)
    scaled = StandardScaler().fit_transform(PLANE)
    if display is AnnealingDisplay:
        assert shown.critical_sigma == pytest.approx(critical_sigma(scaled, 3))
    elif display is TrajectoryDisplay:
        assert_allclose(shown.points, scaled)
    else:  # the plane is that of the rows as they are given
        assert_allclose(shown.points, PLANE)
        corner = pd.DataFrame([[shown.x[0], shown.y[-1]]], columns=frame.columns)
        assert_allclose(shown.memberships[-1, 0], pipeline.predict_proba(corner)[0])
        assert shown.axis_labels == ("length", "width")


# --- AnnealingDisplay ---------------------------------------------------------


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "weighted"])
def test_the_free_energy_lies_between_its_bounds(alpha, weights):
    schedule = Geometric(start=0.9, stop=0.02, unit="critical", n_steps=8)
    model = fit(alpha=alpha, schedule=schedule, sample_weight=weights)
    shown = AnnealingDisplay.from_estimator(model, PLANE, sample_weight=weights)
    energy, inertia = shown.history["free_energy"], shown.history["inertia"]
    rounding = 1e-12 * np.abs(energy)
    assert np.all(shown.lower_bound <= energy + rounding)
    assert np.all(energy <= inertia + rounding)
    total = 120.0 if weights is None else weights.sum()
    entropy = tsallis_entropy(np.full(3, 1 / 3), alpha)
    depth = 2.0 * total * shown.history["sigma"] ** 2 * entropy
    assert_allclose(inertia - shown.lower_bound, depth, rtol=1e-9, atol=1e-9)
    hard = shown.history["sigma"] == 0.0
    assert_allclose(shown.lower_bound[hard], inertia[hard])
    assert np.all(shown.lower_bound[~hard] < inertia[~hard])


def test_the_marks_are_at_the_critical_and_the_hardening_temperature():
    distances = np.sort(fit().transform(PLANE), axis=1)
    weights = WEIGHTS + 1.0
    weights[np.argmin(distances[:, 1] - distances[:, 0])] = 0.0  # as if absent
    model = fit(sample_weight=weights)
    shown = AnnealingDisplay.from_estimator(model, PLANE, sample_weight=weights)
    critical = critical_sigma(PLANE, 3, sample_weight=weights)
    hardening = hardening_sigma(PLANE[weights > 0.0], model.cluster_centers_)
    assert hardening > hardening_sigma(PLANE, model.cluster_centers_)
    marks = {
        line.get_label(): line.get_ydata()[0] for line in lines(shown.ax_[0], "0.45")
    }
    assert marks == {"critical": critical, "hardening": hardening}


def test_a_model_of_batches_has_no_history_to_draw():
    model = RBFKMeans(3, random_state=0).partial_fit(PLANE)
    with pytest.raises(ValueError, match="only fit keeps one"):
        AnnealingDisplay.from_estimator(model, PLANE)


def test_softmax_never_hardens_and_gets_no_mark_for_it():
    shown = AnnealingDisplay.from_estimator(fit(alpha=1.0), PLANE)
    labels = [line.get_label() for line in shown.ax_[0].get_lines()]
    assert "critical" in labels
    assert "hardening" not in labels


def test_reheats_and_kept_swaps_are_marked():
    X = PLANE + 20.0 * (PLANE > 2.5)
    init = np.array([[-0.5, 25.0], [0.5, 25.0], [12.0, 0.0]])
    schedule = Cyclic(n_cycles=2, n_steps=3, start=0.2, stop=0.05)
    model = fit(X, init=init, refine=5, schedule=schedule)
    assert model.history_["swaps_kept"].sum() > 0
    shown = AnnealingDisplay.from_estimator(model, X)
    title = shown.ax_[0].get_title()
    assert title == "shaded: k-means, red lines: reheated, green lines: swaps kept"
    upright = [line for line in shown.ax_[0].get_lines() if len(line.get_xdata()) == 2]
    drawn = {line.get_xdata()[0] for line in upright}
    reheated = 2 + np.flatnonzero(np.diff(model.history_["sigma"]) > 0.0)
    swapped = 1.5 + np.flatnonzero(model.history_["swaps_kept"])
    assert set(reheated) | set(swapped) <= drawn


def test_the_panels_can_be_three_axes_or_parts_of_one():
    model = fit()
    figure, axes = plt.subplots(3)
    shown = AnnealingDisplay.from_estimator(model, PLANE, ax=axes)
    assert list(shown.ax_) == list(axes)
    figure, (ax, _) = plt.subplots(1, 2)
    shown = AnnealingDisplay.from_estimator(model, PLANE, ax=ax)
    assert shown.ax_.shape == (3,)
    assert all(panel.figure is figure for panel in shown.ax_)
    with pytest.raises(ValueError, match="ax must be one Axes or three"):
        AnnealingDisplay.from_estimator(model, PLANE, ax=plt.subplots(2)[1])


def test_sparse_rows_are_welcome():
    X = sparse.csr_matrix(np.abs(PLANE))
    AnnealingDisplay.from_estimator(fit(X), X)
    wide = sparse.hstack([X, X], format="csr")
    shown = TrajectoryDisplay.from_estimator(fit(wide), wide)
    assert shown.points.shape == (120, 2)
    shown = TrajectoryDisplay.from_estimator(fit(X), X)
    assert_allclose(shown.points, np.abs(PLANE))


# --- TrajectoryDisplay --------------------------------------------------------


def test_the_paths_are_those_of_the_model():
    model = fit()
    shown = TrajectoryDisplay.from_estimator(model, PLANE)
    assert_array_equal(shown.path, model.path_)
    assert_array_equal(shown.points, PLANE)
    drawn = [line.get_xydata() for line in shown.ax_.get_lines()[::3]]
    assert_array_equal(drawn, model.path_.transpose(1, 0, 2))


def test_two_features_are_chosen_by_index_or_name():
    frame = pd.DataFrame(np.hstack([PLANE, PLANE[::-1]]), columns=list("abcd"))
    model = fit(frame)
    shown = TrajectoryDisplay.from_estimator(model, frame, features=("d", 0))
    assert_array_equal(shown.path, model.path_[:, :, [3, 0]])
    assert_array_equal(shown.points, frame[["d", "a"]])
    assert shown.axis_labels == ("d", "a")
    for features in [("a",), ("a", "e"), (0, 4), (-1, 0)]:
        with pytest.raises(ValueError, match="features must be two of the model's 4"):
            TrajectoryDisplay.from_estimator(model, frame, features=features)


def test_more_features_are_seen_along_their_principal_components():
    X = np.hstack([PLANE, 1e-3 * PLANE[::-1]])
    shown = TrajectoryDisplay.from_estimator(fit(X), X)
    centered = PLANE - PLANE.mean(axis=0)
    plane = np.linalg.norm(centered, axis=1)  # the two components span it
    assert_allclose(np.linalg.norm(shown.points, axis=1), plane, rtol=1e-2, atol=1e-2)
    assert shown.axis_labels[0].startswith("principal component 1 (")


def test_no_more_than_max_points_rows_are_drawn():
    shown = TrajectoryDisplay.from_estimator(fit(), PLANE, max_points=50)
    assert_array_equal(shown.points, PLANE[::3])


def test_a_model_without_a_path_and_a_single_feature_are_errors():
    with pytest.raises(ValueError, match="fit it with store_path=True"):
        TrajectoryDisplay.from_estimator(fit(store_path=False), PLANE)
    with pytest.raises(ValueError, match="X has one feature"):
        TrajectoryDisplay.from_estimator(fit(PLANE[:, :1]), PLANE[:, :1])


# --- MembershipDisplay --------------------------------------------------------


@pytest.mark.parametrize("sigma", [None, 2.0])
def test_the_plane_holds_the_memberships_of_its_points(sigma):
    model = fit()
    shown = MembershipDisplay.from_estimator(
        model, PLANE, sigma=sigma, grid_resolution=20
    )
    assert shown.memberships.shape == (20, 20, 3)
    grid = np.array([[x, y] for y in shown.y for x in shown.x])
    expected = responsibilities(grid, model.cluster_centers_, sigma or model.sigma_)
    assert_allclose(shown.memberships.reshape(-1, 3), expected, atol=1e-12)
    assert shown.x[0] < PLANE[:, 0].min() < PLANE[:, 0].max() < shown.x[-1]


def test_the_columns_of_a_frame_name_the_axes_and_nothing_warns():
    frame = pd.DataFrame(PLANE, columns=["length", "width"])
    shown = MembershipDisplay.from_estimator(fit(frame), frame, grid_resolution=20)
    assert (shown.ax_.get_xlabel(), shown.ax_.get_ylabel()) == ("length", "width")


def test_a_point_that_is_sure_has_the_colour_of_its_cluster_and_others_a_mixture():
    model = fit()
    shown = MembershipDisplay.from_estimator(model, PLANE)
    image = shown.ax_.get_images()[0].get_array()
    assert shown.ax_.get_images()[0].origin == "lower"
    sure = shown.memberships.max(axis=2) == 1.0
    assert 1 < np.unique(image[sure], axis=0).shape[0] <= 3
    assert np.unique(image[~sure], axis=0).shape[0] > 100


def test_the_soft_band_is_outlined_if_there_is_one():
    n_artists = {}
    for sigma in (1.0, 0.0):
        shown = MembershipDisplay.from_estimator(fit(), PLANE, sigma=sigma)
        n_artists[sigma] = len(shown.ax_.collections)
    assert n_artists == {1.0: 3, 0.0: 2}  # outline, rows and centres; rows and centres


def test_other_than_two_features_and_a_bad_sigma_are_errors():
    X = np.hstack([PLANE, PLANE])
    with pytest.raises(ValueError, match="X has 4 features"):
        MembershipDisplay.from_estimator(fit(X), X)
    for sigma in (-1.0, np.nan):
        with pytest.raises(ValueError, match="sigma"):
            MembershipDisplay.from_estimator(fit(), PLANE, sigma=sigma)


# --- scikit-learn's display of borders ----------------------------------------


def alone(model):
    return model


def in_a_pipeline(model):
    return make_pipeline(StandardScaler(), model)


def in_a_search(model):
    return GridSearchCV(model, {"refine": [None, 1]}, cv=2)


@pytest.mark.parametrize("k", [2, 3, 10])
@pytest.mark.parametrize("wrap", [alone, in_a_pipeline, in_a_search])
@pytest.mark.parametrize("names", [None, ["a", "b"]])
def test_borders_are_drawn_with_predict_as_of_any_kmeans(k, wrap, names):
    X = PLANE if names is None else pd.DataFrame(PLANE, columns=names)
    model = wrap(RBFKMeans(k, random_state=0)).fit(X)
    display = DecisionBoundaryDisplay.from_estimator(
        model, X, response_method="predict", grid_resolution=20
    )
    rows = np.column_stack([display.xx0.ravel(), display.xx1.ravel()])
    rows = rows if names is None else pd.DataFrame(rows, columns=names)
    assert_array_equal(display.response.ravel(), model.predict(rows))
    assert len(np.unique(display.response)) == k
    assert [display.ax_.get_xlabel(), display.ax_.get_ylabel()] == (names or ["", ""])


NOT_BY_DEFAULT = pytest.mark.xfail(
    raises=(TypeError, ValueError),
    strict=False,  # scikit-learn may learn it
    reason="The display draws predict_proba of three or more clusters only, and not of "
    "a pipeline or a search.",
)


@pytest.mark.parametrize(
    ("k", "wrap"),
    [
        (3, alone),
        (10, alone),
        pytest.param(2, alone, marks=NOT_BY_DEFAULT),
        pytest.param(3, in_a_pipeline, marks=NOT_BY_DEFAULT),
        pytest.param(3, in_a_search, marks=NOT_BY_DEFAULT),
    ],
)
def test_borders_are_drawn_by_default(k, wrap):
    try:
        DecisionBoundaryDisplay.from_estimator(KMeans(3).fit(PLANE), PLANE)
    except ValueError:
        pytest.skip("This scikit-learn draws no clusterer by default.")
    model = wrap(RBFKMeans(k, random_state=0)).fit(PLANE)
    display = DecisionBoundaryDisplay.from_estimator(model, PLANE, grid_resolution=20)
    assert_array_equal(
        display.response.argmax(axis=2).ravel(),
        model.predict(np.column_stack([display.xx0.ravel(), display.xx1.ravel()])),
    )
