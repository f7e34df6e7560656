"""Data that several test modules use, and processes of their own."""

# SPDX-License-Identifier: BSD-3-Clause

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_blobs

import skrbfkmeans

# So that an assertion in them tells the values it compared.
pytest.register_assert_rewrite(
    *(f"{name}_helpers" for name in ("dask", "estimator", "sparse", "torch"))
)

# Python 3.12 warns of every fork while there are threads; we mean to do it.
WARNINGS = "error,ignore:This process:DeprecationWarning"


def pytest_addoption(parser):
    parser.addoption(
        "--few",
        type=int,
        metavar="N",
        help="run at most N cases of each test, spread over all of them",
    )


def pytest_collection_modifyitems(config, items):
    if config.getoption("--few") is None:
        return
    cases = {}
    for item in items:
        function = item.nodeid.partition("[")[0]
        cases.setdefault(function, []).append(item)
    kept = set()
    for some in cases.values():
        step = max(1, len(some) / config.getoption("--few"))
        kept |= {some[int(i)] for i in np.arange(0.0, len(some) - 0.5, step)}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def blobs():
    """Five overlapping clusters of 40 rows each in three features."""
    return make_blobs(200, 3, centers=5, cluster_std=4.0, random_state=0)[0]


@pytest.fixture(scope="session")
def python(tmp_path_factory):
    """Call a function of a test module in a process of its own.

    ``python(function, *arguments)`` returns what it returns, by way of JSON.
    Instead of a function, a script may be given; it returns nothing. The
    process and its children have `timeout` seconds; warnings in them are
    errors, and all keep their compiled code in one folder. `environment` adds
    variables or, if None, removes them, `package` is the folder or archive to
    import skrbfkmeans from, and other options are those of `subprocess.Popen`.
    """
    tests = os.path.dirname(__file__)
    home = str(Path(skrbfkmeans.__file__).parents[1])
    cache = os.environ.get("NUMBA_CACHE_DIR") or str(tmp_path_factory.mktemp("numba"))

    def call(
        function, *arguments, timeout=120, environment=(), package=home, **options
    ):
        if callable(function):
            module, name = function.__module__, function.__name__
            script = (  # Ctrl-C is ignored where a shell began all in the background
                "import signal\n"
                "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
                f"import json, {module}\n"
                f"result = {module}.{name}(*{arguments!r})\n"
                "print(json.dumps(result))\n"
            )
        else:
            script = function + "\nprint('null')\n"
        variables = os.environ | {
            "NUMBA_CACHE_DIR": cache,
            "OMP_NUM_THREADS": None,
            "PYTHONPATH": os.pathsep.join([str(package), tests]),
            "PYTHONWARNINGS": WARNINGS,
            **dict(environment),
        }
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", script],
            env={name: str(v) for name, v in variables.items() if v is not None},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a group, so that children end with it
            **options,
        )
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except BaseException:
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            print(process.communicate()[1], file=sys.stderr)
            raise
        assert process.returncode == 0, f"exit code {process.returncode}\n{stderr}"
        return json.loads(stdout.splitlines()[-1])

    return call


@pytest.fixture
def peak_in_megabytes():
    """Peak memory that code takes on top of what stands before `BEGIN` in it."""
    if not Path("/proc/self/status").exists():
        pytest.skip("the peak of the memory is read from /proc")

    def measure(code):
        before, after = code.split("BEGIN")
        peak = "int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"
        code = f"{before}\nstart = {peak}\n{after}\nprint(({peak} - start) / 1024)"
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return float(done.stdout)

    return measure


@pytest.fixture
def normal():
    """Standard normal tensors of PyTorch, float64, with gradients."""
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        x = torch.randn(shape, generator=generator, dtype=torch.float64)
        return x.requires_grad_()

    return draw


@pytest.fixture(scope="module")
def one_thread():
    """PyTorch has one thread."""
    torch = pytest.importorskip("torch")
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)


@pytest.fixture
def own_scheduler():
    """Dask's own scheduler, for tests that do not ask for workers."""
    with pytest.importorskip("dask").config.set(scheduler="sync"):
        yield
