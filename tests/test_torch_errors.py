"""What the layer for PyTorch cannot compute is named, and spoils nothing else."""

# SPDX-License-Identifier: BSD-3-Clause

from math import inf, nan

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch_helpers import layer_at  # noqa: E402

from skrbfkmeans import RBFKMeans  # noqa: E402
from skrbfkmeans.schedules import Geometric  # noqa: E402
from skrbfkmeans.torch import RBFKMeansLayer, _entmax, entmax  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")
METHODS = ("forward", "free_energy", "predict", "em_step_", "init_centers_", "measure_")


# --- errors -------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("x", "error", "match"),
    [(np.zeros((4, 3)), TypeError, "x must be a tensor of floating point"),
     (torch.zeros(4, 3, dtype=torch.int64), TypeError, "x must .* torch.int64"),
     (torch.zeros(4, 2), ValueError, r"x must have n_features=3 .* \(4, 2\)"),
     (torch.tensor(1.0), ValueError, "x must have n_features=3"),
     (torch.zeros(4, 3, device="meta"), ValueError, "x is on meta, but centers")],
)  # fmt: skip
def test_wrong_rows_are_named(method, x, error, match):
    with pytest.raises(error, match=match):
        getattr(RBFKMeansLayer(2, 3), method)(x)


@pytest.mark.parametrize("method", ["predict", "init_centers_", "measure_", "em_step_"])
@pytest.mark.parametrize("value", [nan, inf])
def test_rows_that_are_not_finite_are_named(method, value):
    x = torch.zeros(4, 3)
    x[1, 1] = value
    with pytest.raises(ValueError, match="x contains NaN or infinity"):
        getattr(RBFKMeansLayer(2, 3), method)(x)


@pytest.mark.parametrize("sigma", [0.0, 1.0])
def test_a_row_of_nan_spoils_itself_alone(sigma):
    layer = layer_at(torch.randn(4, 3), sigma=sigma)
    x = torch.randn(5, 3)
    x[2, 1] = nan
    assert layer(x).isnan().all(1).tolist() == [False, False, True, False, False]
    values = layer.free_energy(x, reduction="none")
    assert values.isnan().tolist() == [False, False, True, False, False]


@pytest.mark.parametrize("method", ["free_energy", "em_step_", "init_centers_"])
@pytest.mark.parametrize(
    ("weight", "error"),
    [([1.0] * 4, TypeError), (torch.ones(4, dtype=torch.complex64), TypeError),
     (torch.ones(3), ValueError), (torch.ones(4, 1), ValueError),
     (torch.tensor([1.0, -1.0, 1.0, 1.0]), ValueError),
     (torch.tensor([1.0, nan, 1.0, 1.0]), ValueError),
     (torch.tensor([1.0, inf, 1.0, 1.0]), ValueError),
     (torch.ones(4, device="meta"), ValueError)],
)  # fmt: skip
def test_wrong_weights_are_named(method, weight, error):
    with pytest.raises(error, match=r"^weight "):
        getattr(RBFKMeansLayer(2, 3), method)(torch.randn(4, 3), weight)


@pytest.mark.parametrize("method", ["free_energy", "init_centers_", "measure_"])
def test_weights_of_zero_alone_are_named(method):
    with pytest.raises(ValueError, match=r"^weight is zero"):
        getattr(RBFKMeansLayer(2, 3), method)(torch.randn(4, 3), torch.zeros(4))


def test_weights_of_zero_alone_make_a_sum_of_zero():
    layer = RBFKMeansLayer(2, 3)
    x = torch.randn(4, 3, requires_grad=True)
    layer.free_energy(x, torch.zeros(4), reduction="sum").backward()
    assert not x.grad.any()
    values = layer.free_energy(x, torch.zeros(4), reduction="none")
    assert values.tolist() == [0.0] * 4


@pytest.mark.parametrize("unit", [1e-300, 1e-50, 1e300])
def test_the_unit_of_the_weights_does_not_matter_to_the_mean(unit):
    layer = layer_at(torch.randn(4, 3), sigma=1.0)
    x, weight = torch.randn(5, 3), torch.arange(1, 6, dtype=torch.float64)
    mean = layer.free_energy(x, weight)
    torch.testing.assert_close(layer.free_energy(x, weight * unit), mean)


def test_centres_that_are_not_finite_are_named_and_spoil_themselves_alone():
    centers = torch.randn(3, 2)
    centers[1] = nan
    layer = RBFKMeansLayer(3, 2, sigma=1.0)
    layer.centers.data.copy_(centers)
    with pytest.raises(ValueError, match="centers contain NaN"):
        layer.measure_(torch.randn(4, 2))
    d2 = layer._squared_distances(torch.randn(4, 2))
    assert d2.isnan().all(0).tolist() == [False, True, False]


def test_progress_leaves_no_temperature_out():
    schedule = Geometric(n_steps=100, harden=False, unit="absolute")
    layer, seen = RBFKMeansLayer(2, 3, sigma=schedule), set()
    for epoch in range(100):
        seen.add(int(layer.set_progress_(epoch / 100).position))
    assert seen == set(range(100))


def test_a_layer_of_an_estimator_is_on_the_cpu():
    model = RBFKMeans(2, random_state=0).fit([[0.0], [1.0], [9.0], [10.0]])
    with torch.device("meta"):
        layer = RBFKMeansLayer.from_estimator(model)
    assert {t.device.type for t in layer.state_dict().values()} == {"cpu"}


def test_rows_without_probabilities_cost_no_more_steps(monkeypatch):
    steps = 0
    power = _entmax._power

    def count(*args):
        nonlocal steps
        steps += 1
        return power(*args)

    monkeypatch.setattr(_entmax, "_power", count)
    z = torch.randn(20, 5)
    entmax(z, 1.25)
    few, steps = steps, 0
    z[3] = -inf
    assert entmax(z, 1.25)[3].isnan().all()
    assert steps <= few + 1


@pytest.mark.parametrize(
    ("name", "value"),
    [("n_clusters", 0), ("n_clusters", 2.5), ("n_clusters", True), ("n_features", -1),
     ("n_features", "3"), ("sigma", -1.0), ("sigma", nan), ("sigma", inf),
     ("sigma", "auto"), ("sigma", None)],
)  # fmt: skip
def test_wrong_arguments_of_the_layer_are_named(name, value):
    arguments = {"n_clusters": 2, "n_features": 3, name: value}
    with pytest.raises(ValueError, match=name):
        RBFKMeansLayer(**arguments)


def test_a_dtype_of_integers_is_named():
    with pytest.raises(TypeError, match="dtype"):
        RBFKMeansLayer(2, 3, dtype=torch.int32)


def test_a_schedule_with_wrong_parameters_is_named():
    with pytest.raises(ValueError, match="n_steps"):
        RBFKMeansLayer(2, 3, sigma=Geometric(n_steps=0))


@pytest.mark.parametrize("value", [0.0, 2.0, -1.0, nan, True, "1"])
def test_a_wrong_learning_rate_is_named(value):
    with pytest.raises(ValueError, match="learning_rate"):
        RBFKMeansLayer(2, 3).em_step_(torch.randn(4, 3), learning_rate=value)


@pytest.mark.parametrize("value", [-0.1, 1.1, nan, "1"])
def test_a_wrong_progress_is_named(value):
    with pytest.raises(ValueError, match="progress"):
        RBFKMeansLayer(2, 3).set_progress_(value)


def test_a_wrong_reduction_is_named():
    with pytest.raises(ValueError, match="reduction"):
        RBFKMeansLayer(2, 3).free_energy(torch.randn(4, 3), reduction="max")


def test_too_few_rows_to_choose_centres_from_are_named():
    with pytest.raises(ValueError, match=r"x has 4 rows, fewer than n_clusters=5"):
        RBFKMeansLayer(5, 3).init_centers_(torch.randn(4, 3))
    with pytest.raises(ValueError, match="x has no rows"):
        RBFKMeansLayer(5, 3).measure_(torch.randn(0, 3))


def test_centres_that_are_not_finite_are_named():
    layer = layer_at([[0.0], [nan]])
    for use in (layer.to_estimator, lambda: layer.predict(torch.zeros(2, 1))):
        with pytest.raises(ValueError, match=r"^centers contain NaN"):
            use()
