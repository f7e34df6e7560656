"""The package where it cannot write, where numba is not, and models on their way."""

# SPDX-License-Identifier: BSD-3-Clause

import contextlib
import copy
import ctypes
import importlib
import io
import os
import pickle
import pickletools
import shutil
import sys
import zipfile
from pathlib import Path

import joblib
import numpy as np
import pytest
from estimator_helpers import METHODS

import skrbfkmeans
from skrbfkmeans import RBFKMeans
from skrbfkmeans.schedules import Geometric

pytestmark = [pytest.mark.compiled, pytest.mark.process]

SOURCE = Path(skrbfkmeans.__file__).parent
KERNELS = Path(SOURCE.name, "_engine", "kernels")
X = np.random.default_rng(0).normal(size=(300, 3))

ARRAYS = ["cluster_centers_", "labels_"]

# Compiling all kernels takes this long on a slow machine.
COMPILING = {"timeout": 240}


def fit(**parameters):
    return RBFKMeans(**{"n_clusters": 4, "random_state": 0, **parameters}).fit(X)


def fitted():
    """Centres of a fit, and where the package and its kernels come from."""
    model = fit()
    assert model.hardened_
    return model.cluster_centers_.tolist(), skrbfkmeans.__file__


def transformed():
    """Distances to given centres: the quickest to compile of what there is."""
    model = RBFKMeans(4)
    model.cluster_centers_, model.n_features_in_ = X[:4].copy(), 3
    distances = np.linalg.norm(X[:, np.newaxis] - X[:4], axis=2)
    np.testing.assert_allclose(model.transform(X), distances, atol=1e-14)
    return skrbfkmeans.__file__


def log_of_cache():
    """What numba says about its cache during `transformed`."""
    with contextlib.redirect_stdout(io.StringIO()) as log:
        transformed()
    return log.getvalue()


def cached(folder):
    """The files of numba's cache in a folder."""
    return sorted(Path(folder).rglob("*.nb[ic]"))


@pytest.fixture
def site(tmp_path):
    """A folder with a copy of the package, to be made read-only."""
    site = tmp_path / "site-packages"
    shutil.copytree(SOURCE, site / SOURCE.name, ignore=lambda *_: ["__pycache__"])
    yield site
    for folder in folders_of(site):
        folder.chmod(0o700)


def folders_of(site):
    """Where the package is, and all its folders down to that of the kernels."""
    return [site / folder for folder in [*reversed(KERNELS.parents), KERNELS]]


def obey_permissions():
    """Before Python starts: give up root's right to write everywhere."""
    if os.getuid() == 0:
        pr_capbset_drop, cap_dac_override = 24, 1
        if ctypes.CDLL(None).prctl(pr_capbset_drop, cap_dac_override, 0, 0, 0):
            os.setuid(65534)


def make_read_only(site):
    """Options that make a process unable to write into the package."""
    if not hasattr(os, "fork"):
        pytest.skip("Windows has other permissions.")
    for folder in folders_of(site):
        folder.chmod(0o500)
    return {"package": site, "preexec_fn": obey_permissions}


def assert_unwritable(*folders):
    for folder in folders:
        with pytest.raises(OSError, match=r"denied|Not a directory"):
            (Path(folder) / "probe").touch()


# --- places for compiled code ------------------------------------------------


def fitted_without_a_place(*folders):
    assert_unwritable(*folders)
    return fitted()


@pytest.mark.slow
def test_a_fit_needs_no_place_for_compiled_code(python, site, tmp_path):
    nowhere = tmp_path / "file" / "below"
    nowhere.parent.touch()
    environment = dict.fromkeys(["HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR"], nowhere)
    centers, place = python(
        fitted_without_a_place,
        *map(str, folders_of(site)),
        str(nowhere),
        environment=environment,
        **make_read_only(site),
        **COMPILING,
    )
    assert place.startswith(str(site))
    assert centers == fit().cluster_centers_.tolist()
    assert not cached(tmp_path)


def test_a_pycache_that_is_a_file_is_no_obstacle(python, site, tmp_path):
    (site / KERNELS / "__pycache__").touch()
    nowhere = tmp_path / "file" / "below"
    nowhere.parent.touch()
    environment = dict.fromkeys(["HOME", "XDG_CACHE_HOME"], nowhere)
    environment["NUMBA_CACHE_DIR"] = None
    place = python(transformed, environment=environment, package=site, **COMPILING)
    assert place.startswith(str(site))
    assert not cached(tmp_path)


def test_a_read_only_installation_keeps_compiled_code_at_home(python, site, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    environment = {"HOME": home, "XDG_CACHE_HOME": home, "NUMBA_CACHE_DIR": None}
    options = {"environment": environment, **make_read_only(site), **COMPILING}
    assert python(transformed, **options).startswith(str(site))
    assert cached(home)
    assert not cached(site)


def test_numba_cache_dir_is_where_compiled_code_is_kept_and_found(
    python, site, tmp_path
):
    places = {"NUMBA_CACHE_DIR": tmp_path / "cache", "NUMBA_DEBUG_CACHE": 1}
    options = {"environment": places, "package": site, **COMPILING}
    log = python(log_of_cache, **options)
    assert "data saved to" in log
    assert "data loaded from" not in log
    files = cached(tmp_path / "cache")
    assert files == cached(tmp_path)
    assert any("distance_rows" in path.name for path in files)
    log = python(log_of_cache, **options)
    assert "data loaded from" in log
    assert "data saved to" not in log
    assert cached(tmp_path) == files


def shared_out():
    """The shares of rows halfway between two centres, and what numba's cache says."""
    model = RBFKMeans(2, proba_sigma=1.0)
    model.sigma_ = 1.0
    model.cluster_centers_, model.n_features_in_ = np.array([[0.0], [1.0]]), 1
    with contextlib.redirect_stdout(io.StringIO()) as log:
        shares = model.predict_proba(np.full((3, 1), 0.5))
    return shares.tolist(), log.getvalue()


@pytest.mark.slow
def test_a_change_in_a_function_that_a_kernel_calls_is_seen_from_any_file(
    python, site, tmp_path
):
    places = {
        "NUMBA_CACHE_DIR": tmp_path / "cache",
        "NUMBA_DEBUG_CACHE": 1,
        "PYTHONDONTWRITEBYTECODE": 1,
    }
    options = {"environment": places, "package": site, **COMPILING}
    for _ in range(2):
        shares, log = python(shared_out, **options)
        assert shares == [[0.5, 0.5]] * 3
    assert "data loaded from" in log
    assert "data saved to" not in log

    kernels = site / KERNELS
    assert "def responsibility_rows" in (kernels / "responsibilities.py").read_text()
    helper = kernels / "entmax.py"
    text = helper.read_text()
    assert text.count("p[j] /= total") == 1
    helper.write_text(text.replace("p[j] /= total", "p[j] /= 2.0 * total"))
    for is_new in (True, False):
        shares, log = python(shared_out, **options)
        assert shares == [[0.25, 0.25]] * 3
        assert ("data saved to" in log) == is_new
        assert ("data loaded from" in log) != is_new


def log_without_stamps():
    """`log_of_cache` where numba's index has no stamp of the name known today."""
    from numba.core.caching import IndexDataCacheFile

    IndexDataCacheFile.__init__ = lambda self, *args, **kwargs: None
    return log_of_cache()


def test_where_a_change_cannot_be_seen_no_compiled_code_is_kept(python, tmp_path):
    places = {"NUMBA_CACHE_DIR": tmp_path / "cache", "NUMBA_DEBUG_CACHE": 1}
    log = python(log_without_stamps, environment=places, **COMPILING)
    assert "data" not in log
    assert not cached(tmp_path)


def fitted_with_a_full_disk():
    """A fit when no byte can be written any more, though files can be made."""
    import resource
    import signal

    importlib.import_module("skrbfkmeans._engine.kernels")

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    with pytest.raises(OSError), open("probe", "w") as probe:
        probe.write("full")
    return fitted()


@pytest.mark.slow
def test_a_disk_that_fills_between_import_and_fit_is_no_obstacle(
    python, site, tmp_path
):
    pytest.importorskip("resource")
    cache = tmp_path / "cache"
    environment = {"NUMBA_CACHE_DIR": cache, "PYTHONDONTWRITEBYTECODE": 1}
    options = {"package": site, "cwd": tmp_path, **COMPILING}
    centers, place = python(fitted_with_a_full_disk, environment=environment, **options)
    assert place.startswith(str(site))
    assert centers == fit().cluster_centers_.tolist()
    assert not any(path.stat().st_size for path in cache.rglob("*") if path.is_file())


def transformed_when_the_cache_is_gone(cache):
    importlib.import_module("skrbfkmeans._engine.kernels")

    shutil.rmtree(cache)
    Path(cache).touch()  # so that it cannot be made again
    transformed()


def test_a_cache_that_goes_between_import_and_use_is_no_obstacle(
    python, site, tmp_path
):
    cache = tmp_path / "cache"
    options = {"environment": {"NUMBA_CACHE_DIR": cache}, "package": site, **COMPILING}
    python(transformed_when_the_cache_is_gone, str(cache), **options)
    assert cache.is_file()


@pytest.mark.slow
@pytest.mark.parametrize(("suffix", "length"), [(".nbi", 0), (".nbc", 30)])
def test_a_damaged_cache_is_no_obstacle_and_is_mended(
    python, site, tmp_path, suffix, length
):
    cache = tmp_path / "cache"
    places = {"NUMBA_CACHE_DIR": cache, "NUMBA_DEBUG_CACHE": 1}
    options = {"environment": places, "package": site, **COMPILING}
    python(log_of_cache, **options)
    damaged = [path for path in cached(cache) if path.suffix == suffix]
    assert damaged
    for path in damaged:
        path.write_bytes(path.read_bytes()[:length])
    python(log_of_cache, **options)
    log = python(log_of_cache, **options)
    assert "data loaded from" in log
    assert "data saved to" not in log


@pytest.mark.slow
def test_the_package_runs_from_a_zip_file(python, tmp_path):
    archive = tmp_path / "packages.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in SOURCE.rglob("*.py"):
            file.write(path, path.relative_to(SOURCE.parent))
    centers, place = python(fitted, package=archive, **COMPILING)
    assert place.startswith(str(archive))
    assert centers == fit().cluster_centers_.tolist()


# --- what is imported --------------------------------------------------------

OPTIONAL = ["numba", "torch", "dask", "distributed", "matplotlib", "pandas"]


def test_the_import_brings_in_no_optional_package_nor_the_compiler(python):
    python(f"""
import sys
import sklearn.cluster, sklearn.utils.validation  # may bring in pandas
before = set(sys.modules)
import skrbfkmeans, skrbfkmeans.schedules
new = {{name.partition(".")[0] for name in set(sys.modules) - before}}
assert not new & set({OPTIONAL!r}), new
""")


def test_a_fit_needs_no_optional_package(python):
    python(f"""
import sys
import numpy as np
class Missing:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {OPTIONAL[1:]!r}:
            raise ImportError(name)
sys.meta_path.insert(0, Missing)
from skrbfkmeans import RBFKMeans
X = np.random.default_rng(0).normal(size=(300, 3))
assert RBFKMeans(4, random_state=0).fit(X).predict_proba(X).shape == (300, 4)
""")


def test_without_numba_the_import_works_and_a_fit_names_what_is_missing(
    python, tmp_path
):
    path = tmp_path / "model.pickle"
    path.write_bytes(pickle.dumps(fit()))
    python(f"""
import sys
sys.modules["numba"] = None
import pickle
import numpy as np
from skrbfkmeans import RBFKMeans
X = np.random.default_rng(0).normal(size=(300, 3))
model = RBFKMeans(4)
with open({str(path)!r}, "rb") as file:
    loaded = pickle.load(file)
uses = [lambda: model.fit(X)] + [
    lambda name=name: getattr(loaded, name)(X) for name in {METHODS!r}
]
for use in 2 * uses:
    try:
        use()
    except ImportError as error:
        assert "numba" in str(error) and "pip install numba" in str(error), error
    else:
        raise AssertionError("It works without numba?")
assert vars(model) == vars(RBFKMeans(4))
""")


# --- models on their way -----------------------------------------------------

MODELS = {
    "hard": {},
    "soft": {"schedule": 1.0, "alpha": 2.0, "features": "rbf"},
    "softmax": {"schedule": Geometric(harden=False), "alpha": 1.0},
    "init": {"init": X[:4], "n_init": 1, "proba_sigma": 0.7},
}
models = pytest.mark.parametrize("parameters", MODELS.values(), ids=MODELS)


def answers(model):
    return [np.asarray(getattr(model, method)(X)) for method in METHODS]


def assert_same_answers(model, other):
    for ours, theirs in zip(answers(model), answers(other), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def predicted_from(path):
    """Load a model where no compiler has been imported, and use it."""
    with open(path, "rb") as file:
        model = pickle.load(file)
    assert "numba" not in sys.modules
    labels = model.predict(X).tolist()
    assert "numba" in sys.modules
    return labels, model.predict_proba(X).tolist()


def test_a_pickled_model_loads_where_numba_comes_with_predict_only(python, tmp_path):
    model = fit()
    path = tmp_path / "model.pickle"
    path.write_bytes(pickle.dumps(model))
    labels, shares = python(predicted_from, str(path))
    assert labels == model.labels_.tolist()
    assert shares == model.predict_proba(X).tolist()


# What a pickle may name: of this package these classes, and what numpy needs.
OURS = {"skrbfkmeans._rbfkmeans.RBFKMeans", "skrbfkmeans._run.streaming.Stream"}
GEOMETRIC = "skrbfkmeans.schedules.Geometric"
OTHERS = {"numpy", "builtins", "copyreg", "collections", "_codecs"}


@models
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_pickle_holds_arrays_and_parameters_and_nothing_compiled(
    parameters, protocol
):
    model = fit(**parameters)
    model.predict_proba(X)  # a use leaves nothing behind either
    data = pickle.dumps(model, protocol=protocol)
    needed = set()

    class Unpickler(pickle.Unpickler):
        def find_class(self, module, name):
            needed.add(f"{module}.{name}")
            return super().find_class(module, name)

    loaded = Unpickler(io.BytesIO(data)).load()
    ours = {name for name in needed if name.startswith("skrbfkmeans.")}
    schedule = parameters.get("schedule")
    assert ours == OURS | ({GEOMETRIC} if isinstance(schedule, Geometric) else set())
    assert {name.partition(".")[0] for name in needed - ours} <= OTHERS
    strings = [a for _, a, _ in pickletools.genops(data) if isinstance(a, str)]
    text = " ".join([*needed, *strings])
    for name in "numba", "__main__", "lambda", "_engine":
        assert name not in text
    values = [*vars(model).values(), *model.history_.values()]
    size = sum(value.nbytes for value in values if isinstance(value, np.ndarray))
    assert size < len(data) < size + 3000
    assert_same_answers(loaded, model)


@models
def test_a_deep_copy_shares_nothing_and_answers_alike(parameters):
    model = fit(**parameters)
    twin = copy.deepcopy(model)
    assert_same_answers(twin, model)
    for name in ARRAYS:
        assert not np.shares_memory(getattr(twin, name), getattr(model, name))
    before = answers(model)
    twin.cluster_centers_ += 1.0
    for ours, theirs in zip(answers(model), before, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@models
def test_a_mapped_model_answers_alike_and_a_new_fit_does_not_write_to_it(
    parameters, tmp_path
):
    model = fit(**parameters)
    path = tmp_path / "model.joblib"
    joblib.dump(model, path)
    content = path.read_bytes()
    mapped = joblib.load(path, mmap_mode="r")
    for name in ARRAYS:
        array = getattr(mapped, name)
        assert isinstance(array, np.memmap)
        assert not array.flags.writeable
    assert_same_answers(mapped, model)
    assert mapped.set_params(proba_sigma=2.0).predict_proba(X).shape == (300, 4)

    other = mapped.cluster_centers_  # of the model, and then a start that is mapped
    mapped.set_params(init=other, n_init=1, schedule=0.5, proba_sigma="auto")
    mapped.fit(2.0 * X)
    expected = model.set_params(
        init=np.array(other), n_init=1, schedule=0.5, proba_sigma="auto"
    )
    assert_same_answers(mapped, expected.fit(2.0 * X))
    assert type(mapped.cluster_centers_) is np.ndarray
    assert mapped.cluster_centers_.flags.writeable
    assert path.read_bytes() == content


def test_a_mapped_model_in_a_file_that_is_read_only_can_be_fitted_anew(tmp_path):
    path = tmp_path / "model.joblib"
    joblib.dump(fit(), path)
    path.chmod(0o400)
    mapped = joblib.load(path, mmap_mode="r")
    assert_same_answers(mapped.fit(X), fit())
