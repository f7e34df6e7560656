"""Values known to 25 digits; see data/README.rst."""

# SPDX-License-Identifier: BSD-3-Clause

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skrbfkmeans import RBFKMeans
from skrbfkmeans._engine.rows import Rows
from skrbfkmeans.energy import (
    critical_sigma,
    free_energy,
    hardening_sigma,
    responsibilities,
)
from skrbfkmeans.entmax import entmax

pytestmark = pytest.mark.kernel

ORACLE = json.loads((Path(__file__).parent / "data" / "oracle.json").read_text())
TOLERANCE = {np.float64: 1e-12, np.float32: 1e-5}


def each(section):
    """Every case of a section in every dtype that holds its rows exactly."""
    cases = []
    for case in ORACLE[section]:
        for dtype in TOLERANCE:
            rows = np.array(case.get("X", case.get("x", case.get("z"))))
            if dtype == np.float32 and (
                "_offset" in case["tag"] or np.any(rows.astype(dtype) != rows)
            ):
                continue
            name = f"{case['id']}-{case['tag']}-{dtype.__name__}"
            cases.append(pytest.param(case, dtype, id=name))
    return pytest.mark.parametrize(("case", "dtype"), cases)


def numbers(values):
    return np.array(values, dtype=np.float64)


def weights_of(case):
    return None if case["weights"] is None else np.array(case["weights"])


def assert_close(actual, expected, dtype, tolerance=None):
    """Within the dtype's tolerance, of one plus the largest entry."""
    expected = numbers(expected)
    tolerance = TOLERANCE[dtype] if tolerance is None else tolerance
    atol = tolerance * (1.0 + np.abs(expected).max())
    np.testing.assert_allclose(actual, expected, rtol=0.0, atol=atol)


def assert_probabilities(p, expected, case, dtype):
    """Close, and zero exactly where the truth is, unless rounding may decide."""
    margin = np.inf if case["margin"] is None else float(case["margin"])
    clear = margin > 1e-11
    tolerance = 1e-7 if case["alpha"] == 3 and not clear else TOLERANCE[dtype]
    assert p.dtype == dtype
    assert_close(p, expected, dtype, tolerance)
    if clear and case["alpha"] > 1 and dtype == np.float64:
        np.testing.assert_array_equal(p == 0.0, numbers(expected) == 0.0)


@each("entmax")
def test_entmax(case, dtype):
    p = entmax(np.array(case["z"], dtype=dtype), case["alpha"])
    assert_probabilities(p, case["p"], case, dtype)


@each("responsibilities")
def test_responsibilities(case, dtype):
    X = np.array(case["X"], dtype=dtype)
    r = responsibilities(X, case["centers"], case["sigma"], alpha=case["alpha"])
    assert_probabilities(r, case["r"], case, dtype)


@each("two_centres")
def test_shares_of_two_centres(case, dtype):
    X = np.array([case["x"]], dtype=dtype)
    r = responsibilities(X, case["centers"], case["sigma"], alpha=case["alpha"])
    assert_close(r[0], case["p"], dtype)


@each("free_energy")
def test_free_energy_and_gradient(case, dtype):
    X = np.array(case["X"], dtype=dtype)
    value, gradient = free_energy(
        X,
        case["centers"],
        case["sigma"],
        alpha=case["alpha"],
        sample_weight=weights_of(case),
        return_gradient=True,
    )
    scale = 1.0 + np.abs(numbers(case["row_values"])).max()
    assert abs(value - float(case["value"])) <= TOLERANCE[dtype] * scale * len(X)
    assert_close(gradient, case["gradient"], dtype)


@each("free_energy")
def test_free_energy_of_each_row(case, dtype):
    X = np.array(case["X"], dtype=dtype)
    values = [
        free_energy(X[i : i + 1], case["centers"], case["sigma"], alpha=case["alpha"])
        for i in range(len(X))
    ]
    assert_close(values, case["row_values"], dtype)


@each("soft_em_step")
def test_masses_of_one_step(case, dtype):
    X = np.array(case["X"], dtype=dtype)
    with Rows(X, weights_of(case)) as rows:
        step = rows.e_step(case["alpha"])(np.array(case["centers"]), case["sigma"])
    assert_close(step.masses, case["mass"], dtype)


@pytest.mark.filterwarnings(
    f"ignore::{ConvergenceWarning.__module__}.ConvergenceWarning"
)
@each("soft_em_step")
def test_one_step_of_any_length(case, dtype):
    X = np.array(case["X"], dtype=dtype)
    for step in [{"learning_rate": 1.0, "centers": case["means"]}, *case["steps"]]:
        model = RBFKMeans(
            n_clusters=len(case["centers"]),
            schedule=float(case["sigma"]),
            alpha=case["alpha"],
            learning_rate=step["learning_rate"],
            init=np.array(case["centers"]),
            max_iter=1,
        ).fit(X, sample_weight=weights_of(case))
        known = [j for j, center in enumerate(step["centers"]) if center is not None]
        assert known
        expected = [step["centers"][j] for j in known]
        assert_close(model.cluster_centers_[known], expected, dtype)


@each("critical_sigma")
def test_critical_sigma(case, dtype):
    X = np.array(case["X"], dtype=dtype)
    sigma = critical_sigma(
        X, case["k"], alpha=case["alpha"], sample_weight=weights_of(case)
    )
    assert_close(sigma, case["sigma_c"], dtype)


@each("hardening_sigma")
def test_hardening_sigma(case, dtype):
    X = np.array(case["X"], dtype=dtype)
    sigma = hardening_sigma(X, case["centers"], alpha=case["alpha"])
    assert_close(sigma, case["sigma_h"], dtype)
