"""The layer for PyTorch: its centres, temperature, states, and the estimator."""

# SPDX-License-Identifier: BSD-3-Clause

import copy
import io
import pickle

import numpy as np
import pytest
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import NotFittedError

torch = pytest.importorskip("torch")

from torch_helpers import ALPHAS, layer_at  # noqa: E402

from skrbfkmeans import RBFKMeans  # noqa: E402
from skrbfkmeans._engine.units import Batch  # noqa: E402
from skrbfkmeans.schedules import (  # noqa: E402
    Constant,
    Cosine,
    Cyclic,
    Geometric,
    Linear,
    Schedule,
)
from skrbfkmeans.torch import RBFKMeansLayer  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


# --- the centres --------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("alpha", [1.0, 1.25, 1.5, 2.0])
@pytest.mark.parametrize("sigma", [0.0, 0.5, 2.0, 6.0])
def test_em_gradient_descent_and_the_estimator_make_the_same_step(
    blobs, rng, alpha, sigma, weighted
):
    centers = blobs[:5].copy()
    weights = rng.uniform(size=len(blobs)) if weighted else None
    weight = None if weights is None else torch.tensor(weights)
    x = torch.tensor(blobs)
    layer, other = layer_at(centers, alpha, sigma), layer_at(centers, alpha, sigma)
    assert layer.em_step_(x, weight) is layer
    mass = other(x).detach() * (1.0 if weight is None else weight[:, None])
    other.free_energy(x, weight, reduction="sum").backward()
    descended = other.centers - other.centers.grad / (2.0 * mass.sum(0)[:, None])
    torch.testing.assert_close(layer.centers, descended, rtol=0, atol=1e-12)
    model = RBFKMeans(
        5, init=centers, schedule=sigma, alpha=alpha, max_iter=1, refine=None
    ).fit(blobs, sample_weight=weights)
    np.testing.assert_allclose(
        layer.centers.detach(), model.cluster_centers_, rtol=0, atol=1e-12
    )


def test_gradient_descent_by_an_optimizer_makes_em_steps(blobs):
    """With a step for each centre, which is what the learning rate is a unit of."""
    x, layer = torch.tensor(blobs), layer_at(blobs[:1], sigma=2.0)
    other = layer_at(blobs[:1], sigma=2.0)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    layer.free_energy(x).backward()  # the mass of one centre is 1 in the mean
    optimizer.step()
    torch.testing.assert_close(layer.centers, other.em_step_(x).centers)


@pytest.mark.parametrize("learning_rate", [0.1, 1.0, 1.7])
def test_the_learning_rate_is_that_of_the_estimator(blobs, learning_rate):
    layer = layer_at(blobs[:5], sigma=3.0)
    layer.em_step_(torch.tensor(blobs), learning_rate=learning_rate)
    model = RBFKMeans(
        5, init=blobs[:5], schedule=3.0, max_iter=1, learning_rate=learning_rate
    ).fit(blobs)
    np.testing.assert_allclose(
        layer.centers.detach(), model.cluster_centers_, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("learning_rate", [0.3, 1.0])
def test_em_steps_never_raise_the_free_energy(blobs, alpha, learning_rate):
    layer, x = layer_at(blobs[:5], alpha, 2.0), torch.tensor(blobs)
    values = []
    for _ in range(20):
        values.append(layer.free_energy(x).item())
        layer.em_step_(x, learning_rate=learning_rate)
    assert np.diff(values).max() <= 1e-13 * abs(values[0])
    assert values[-1] < values[0]


@pytest.mark.parametrize("sigma", [0.0, 0.5])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_a_centre_without_mass_stays(sigma, scale):
    x = torch.tensor([[0.0], [1.0], [50.0]], dtype=torch.float64)
    layer = layer_at(torch.tensor([[0.4], [50.0], [99.0]]).double(), sigma=sigma)
    weight = scale * torch.tensor([1.0, 1.0, 1e-14], dtype=torch.float64)
    layer.em_step_(x, weight)
    moved_by_little = 50.0  # exact either way: its only row is there
    assert layer.centers.flatten().tolist() == [0.5, moved_by_little, 99.0]


def test_next_to_no_mass_is_none(blobs):
    x = torch.tensor([[0.0], [1.0], [50.0]], dtype=torch.float64)
    layer = layer_at(torch.tensor([[0.5], [51.0]]).double(), sigma=0.5)
    layer.em_step_(x, torch.tensor([1.0, 1.0, 1e-13]))
    assert layer.centers.flatten().tolist() == [0.5, 51.0]
    layer.em_step_(x, torch.tensor([1.0, 1.0, 1e-11]))
    assert layer.centers.flatten().tolist() == [0.5, 50.0]


@pytest.mark.parametrize("weight", [None, torch.zeros(0)])
def test_an_empty_batch_moves_nothing(weight):
    layer = layer_at([[0.0], [1.0]])
    layer.em_step_(torch.zeros(0, 1), weight)
    assert layer.centers.flatten().tolist() == [0.0, 1.0]
    assert layer(torch.zeros(0, 1)).shape == (0, 2)
    assert layer.predict(torch.zeros(3, 0, 1)).shape == (3, 0)
    assert layer.free_energy(torch.zeros(0, 1), weight, "sum").item() == 0.0


def test_weights_of_zero_move_nothing():
    layer = layer_at([[0.0], [1.0]])
    layer.em_step_(torch.ones(3, 1), torch.zeros(3))
    assert layer.centers.flatten().tolist() == [0.0, 1.0]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_first_centres_are_those_of_the_estimator(blobs, rng, dtype, weighted):
    X = blobs.astype(dtype)
    weights = rng.uniform(size=len(X)) if weighted else None
    weight = None if weights is None else torch.tensor(weights)
    model = RBFKMeans(6, random_state=3, store_path=True, schedule=1.0, refine=None)
    model.fit(X, sample_weight=weights)
    x = torch.tensor(X)
    layer = RBFKMeansLayer(6, 3, dtype=x.dtype)
    for random_state in (3, np.random.RandomState(3)):
        layer.init_centers_(x.reshape(20, 10, 3), None if weight is None else
                            weight.reshape(20, 10), random_state)  # fmt: skip
        np.testing.assert_array_equal(layer.centers.detach(), model.path_[0])
    assert layer.centers.requires_grad


def test_the_draws_follow_generators_of_pytorch(blobs):
    x, layer = torch.tensor(blobs), RBFKMeansLayer(6, 3)

    def centers(seed=None, random_state=None):
        if seed is not None:
            torch.manual_seed(seed)
        layer.init_centers_(x, random_state=random_state)
        return layer.centers.detach().clone()

    first = centers(seed=1)
    assert not torch.equal(first, centers())
    assert torch.equal(first, centers(seed=1))
    assert torch.equal(first, centers(None, torch.Generator().manual_seed(1)))


# --- the temperature ----------------------------------------------------------


def test_sigma_stays_float64():
    layer = RBFKMeansLayer(3, 2, sigma=0.1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 2), layer)
    for cast in (model.half, model.bfloat16, model.float, lambda: model.to(torch.half)):
        cast()
        assert layer.sigma.dtype == torch.float64
        assert layer.sigma.item() == 0.1
    assert layer.centers.dtype == torch.float16
    assert model.double()[1].sigma.item() == 0.1


def test_a_layer_moves_to_another_device_as_a_whole():
    layer = RBFKMeansLayer(3, 2, sigma=0.1).to("meta")
    assert {t.device.type for t in layer.state_dict().values()} == {"meta"}
    assert "sigma=unknown" in repr(layer)
    layer = layer.to_empty(device="cpu")
    layer.load_state_dict(RBFKMeansLayer(3, 2, sigma=0.2).state_dict())
    assert layer.sigma.item() == 0.2
    assert layer.sigma.dtype == torch.float64


@pytest.mark.parametrize(
    "schedule",
    [Geometric(), Geometric(harden=False), Linear(n_steps=5, n_iter=2), Cyclic(),
     Cosine(unit="absolute"), Constant(unit="critical"), Constant(harden=True)],
)  # fmt: skip
def test_schedules_drive_sigma_as_they_do_in_the_estimator(blobs, schedule):
    model = RBFKMeans(5, schedule=schedule, random_state=0, refine=None)
    sigmas = model._begin_stream(Batch(blobs, 1.0)).sigmas
    layer = RBFKMeansLayer(5, 3, sigma=schedule)
    layer.init_centers_(torch.tensor(blobs), random_state=0)
    seen = []
    for _ in range(len(sigmas) + 2):
        seen.append(layer.sigma.item())
        assert layer.step_sigma_() is layer
    assert seen[: len(sigmas)] == sigmas.tolist()
    assert seen[-2:] == [sigmas[-1]] * 2
    assert (seen[-1] == 0.0) == schedule.harden
    assert layer.set_progress_(0.0).sigma.item() == sigmas[0]
    assert layer.set_progress_(1.0).sigma.item() == sigmas[-1]
    n = len(sigmas)
    by_progress = [
        layer.set_progress_((i + 0.5) / n).sigma.item() for i in range(len(sigmas))
    ]
    assert by_progress == sigmas.tolist()


def test_measuring_anew_keeps_the_multiple_of_the_spread(blobs):
    x = torch.tensor(blobs)
    layer = RBFKMeansLayer(5, 3, sigma=Geometric(), dtype=torch.float64)
    layer.init_centers_(x, random_state=0).step_sigma_()
    sigma = layer.sigma.item()
    layer.centers.data *= 0.01
    centers = layer.centers.detach().clone()
    layer.measure_(0.01 * x)
    assert layer.sigma.item() == pytest.approx(0.01 * sigma, rel=1e-12)
    assert torch.equal(layer.centers, centers)
    layer.sigma.fill_(1.0)
    assert layer.measure_(x).sigma.item() != 1.0


def test_the_unit_of_a_schedule_must_be_measured_first(blobs):
    x = torch.tensor(blobs)
    layer = RBFKMeansLayer(5, 3, sigma=Geometric())
    assert layer.sigma.isnan()
    for use in (layer, layer.free_energy, layer.em_step_):
        with pytest.raises(RuntimeError, match=r"init_centers_\(x\) or measure_\(x\)"):
            use(x)
    assert layer.predict(x).shape == (200,)
    with pytest.raises(RuntimeError, match="sigma is not known"):
        layer.to_estimator()
    assert layer.measure_(x)(x).isfinite().all()
    assert RBFKMeansLayer(5, 3, sigma=Geometric(unit="absolute")).sigma.item() == 1.0


def test_without_a_schedule_sigma_stays(blobs):
    layer = RBFKMeansLayer(5, 3, sigma=0.7)
    layer.step_sigma_().set_progress_(1.0).init_centers_(torch.tensor(blobs))
    assert layer.sigma.item() == 0.7
    layer.sigma.fill_(0.5)
    assert layer.measure_(torch.tensor(blobs)).sigma.item() == 0.5


def test_a_schedule_of_ones_own_drives_sigma():
    class Halving(Schedule):
        unit, harden = "absolute", False

        def multiples(self):
            return 0.5 ** np.arange(3)

    layer = RBFKMeansLayer(2, 1, sigma=Halving())
    assert layer.step_sigma_().step_sigma_().sigma.item() == 0.25


# --- states and estimators ----------------------------------------------------


@pytest.mark.parametrize("sigma", [0.3, Geometric(n_steps=5)])
def test_a_state_dict_restores_the_layer(blobs, sigma):
    x = torch.tensor(blobs)
    layer = RBFKMeansLayer(5, 3, sigma=sigma, dtype=torch.float64)
    layer.init_centers_(x, random_state=0).step_sigma_().step_sigma_()
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other = RBFKMeansLayer(5, 3, sigma=sigma, dtype=torch.float64)
    other.load_state_dict(torch.load(file, weights_only=True))
    for _ in range(3):
        assert torch.equal(other.sigma, layer.sigma)
        assert torch.equal(other(x), layer(x))
        layer.step_sigma_(), other.step_sigma_()


def test_layers_can_be_copied_and_pickled(blobs):
    x = torch.tensor(blobs)
    layer = RBFKMeansLayer(5, 3, sigma=Geometric()).init_centers_(x)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other(x), layer(x))
        assert repr(other) == repr(layer)


def test_the_representation_tells_the_arguments():
    assert repr(RBFKMeansLayer(3, 2, 1.25, 0.5)) == (
        "RBFKMeansLayer(n_clusters=3, n_features=2, alpha=1.25, sigma=0.5)"
    )
    assert "schedule=Geometric(" in repr(RBFKMeansLayer(3, 2, sigma=Geometric(2.0)))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("alpha", [1.0, 1.25, 1.5, 2.0])
@pytest.mark.parametrize("schedule", ["auto", 2.0, 0.0])
def test_layer_and_estimator_become_each_other(dtype, alpha, schedule):
    X = load_digits().data[:300].astype(dtype)
    model = RBFKMeans(10, alpha=alpha, schedule=schedule, random_state=0).fit(X)
    layer, x = RBFKMeansLayer.from_estimator(model), torch.tensor(X)
    np.testing.assert_array_equal(layer.predict(x), model.predict(X))
    assert layer.sigma.item() == model.sigma_
    tolerance = 1e-4 if dtype == "f4" else 1e-10
    np.testing.assert_allclose(
        layer(x).detach(), model.predict_proba(X), rtol=0, atol=tolerance
    )
    back = layer.to_estimator()
    np.testing.assert_array_equal(back.predict(X), model.labels_)
    np.testing.assert_array_equal(back.cluster_centers_, model.cluster_centers_)
    np.testing.assert_array_equal(back.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(back.transform(X), model.transform(X))
    assert back.score(X) == model.score(X)
    assert back.get_params()["schedule"] == model.sigma_
    for name in ("labels_", "inertia_", "n_iter_", "hardened_", "history_"):
        assert not hasattr(back, name)
    with pytest.raises(ValueError, match="features"):
        back.predict(X[:, 1:])


def test_the_estimator_does_not_follow_the_layer(blobs):
    layer = layer_at(blobs[:5])
    model = layer.to_estimator()
    layer.centers.data.zero_()
    np.testing.assert_array_equal(model.cluster_centers_, blobs[:5])
    other = RBFKMeansLayer.from_estimator(model)
    other.centers.data.zero_()
    np.testing.assert_array_equal(model.cluster_centers_, blobs[:5])


def test_the_temperature_of_predict_proba_is_taken(blobs):
    model = RBFKMeans(5, proba_sigma=3.0, random_state=0).fit(blobs)
    assert RBFKMeansLayer.from_estimator(model).sigma.item() == 3.0


def test_batches_after_to_estimator_make_an_em_step(blobs):
    layer = layer_at(blobs[:5], sigma=2.0)
    model = layer.to_estimator().partial_fit(blobs)
    layer.em_step_(torch.tensor(blobs))
    np.testing.assert_allclose(
        layer.centers.detach(), model.cluster_centers_, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_centres_become_float32_in_the_estimator(blobs, dtype):
    x = torch.tensor(blobs).to(dtype)
    layer = layer_at(x[:5].clone())
    model = layer.to_estimator()
    assert model.cluster_centers_.dtype == np.float32
    np.testing.assert_array_equal(layer.predict(x), model.predict(x.float().numpy()))


@pytest.mark.parametrize("seed", range(5))
def test_labels_are_those_of_the_estimator_on_a_grid_of_ties(seed):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 5, size=(200, 2)).astype(np.float32)
    layer = layer_at(torch.tensor(X[:8]))
    x = torch.tensor(X)
    labels = layer.predict(x.reshape(10, 20, 2))
    assert labels.shape == (10, 20)
    assert labels.dtype == torch.int64
    d2 = (x[:, None] - layer.centers).square().sum(-1)
    assert torch.equal(labels.flatten(), d2.argmin(1))
    np.testing.assert_array_equal(labels.flatten(), layer.to_estimator().predict(X))


def test_an_estimator_must_be_fitted_and_of_this_package():
    with pytest.raises(NotFittedError):
        RBFKMeansLayer.from_estimator(RBFKMeans())
    with pytest.raises(TypeError, match=r"^model must be an RBFKMeans"):
        RBFKMeansLayer.from_estimator(object())


def test_an_encoder_and_its_clusters_learn_together():
    X = make_blobs(300, 10, centers=4, random_state=0)[0]
    x = torch.tensor(X).float()
    x = (x - x.mean(0)) / x.std(0)
    torch.manual_seed(0)
    encoder = torch.nn.Linear(10, 2)
    layer = RBFKMeansLayer(4, 2, sigma=Geometric(n_steps=30))
    layer.init_centers_(encoder(x), random_state=0)
    optimizer = torch.optim.Adam([*encoder.parameters(), *layer.parameters()], 0.01)
    before = layer.free_energy(encoder(x)).item()
    for step in range(60):
        optimizer.zero_grad()
        layer.set_progress_(step / 60)
        layer.free_energy(encoder(x)).backward()
        optimizer.step()
    assert layer.free_energy(encoder(x)).item() < before
    assert len(np.unique(layer.predict(encoder(x)))) > 1


# --- the import ---------------------------------------------------------------


def test_neither_the_import_nor_a_fit_imports_pytorch(python):
    script = """
import sys
import numpy as np
import skrbfkmeans, skrbfkmeans.energy, skrbfkmeans.entmax, skrbfkmeans.schedules
assert "torch" not in sys.modules
X = np.random.default_rng(0).normal(size=(50, 2))
skrbfkmeans.RBFKMeans(4, random_state=0).fit(X).predict_proba(X)
assert "torch" not in sys.modules
"""
    python(script, environment={"NUMBA_DISABLE_JIT": "1"})


def test_without_pytorch_the_import_says_how_to_install_it(python):
    python("""
import sys
class Missing:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ImportError(name)
sys.meta_path.insert(0, Missing)
try:
    import skrbfkmeans.torch
except ImportError as error:
    assert 'pip install "skrbfkmeans[torch]"' in str(error)
else:
    raise AssertionError
import skrbfkmeans
""")
