"""Inputs on which k-means of today goes wrong, given to both estimators.

Runs scikit-learn's KMeans and RBFKMeans, in this process, on the same inputs
with the same checks, and prints a reST list-table. "Right" means that every
check of the case passed; anything else is what the check saw. The first
sentence of the docstring of a case is what the table says about it.

Run it with ``python tests/survive.py``; it exits with 1 if RBFKMeans is
wrong anywhere. The page "What it survives" holds its output.
"""

# SPDX-License-Identifier: BSD-3-Clause

import pickle
import sys
import warnings

import numpy as np
import sklearn
from scipy import sparse
from sklearn import config_context
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skrbfkmeans import RBFKMeans

HALVES = np.repeat([0, 1], 20)
BLOBS = np.repeat([[0.0, 0.0], [10.0, 10.0]], 20, axis=0)
BLOBS = BLOBS + np.random.default_rng(0).normal(size=BLOBS.shape)
CASES = []
IN_BATCHES = set()


class WrongError(Exception):
    """What a check saw instead of the truth."""


def case(function):
    """Put a case on the list."""
    CASES.append(function)
    return function


def in_batches(function):
    """Put a case with `partial_fit` on the list."""
    IN_BATCHES.add(function)
    return case(function)


def check(condition, seen):
    if not condition:
        raise WrongError(seen)


def check_split(labels, truth=HALVES):
    """The labels are the truth, up to their order."""
    pairs = set(zip(labels.tolist(), truth.tolist(), strict=True))
    n_clusters = len(set(truth.tolist()))
    found = len(set(labels.tolist()))
    check(found == n_clusters, f"{found} of {n_clusters} clusters")
    check(len(pairs) == n_clusters, "clusters mixed up")


def check_agreement(model, X, truth):
    """Labels, inertia and the methods for new rows tell the same, true story."""
    check_split(model.labels_, truth)
    n_other = int(np.sum(model.labels_ != model.predict(X)))
    check(n_other == 0, f"``predict`` differs from ``labels_`` in {n_other} rows")
    X = np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)
    centers = model.cluster_centers_.astype(np.float64)
    inertia = np.sum((X - centers[model.labels_]) ** 2)
    check_number("``inertia_``", model.inertia_, inertia)


def check_number(name, value, truth):
    if not abs(value - truth) <= 1e-5 * abs(truth):
        raise WrongError(f"{name} {value:.3g}, true {truth:.3g}")


# --- digits ------------------------------------------------------------------


def line(offset, dtype):
    """Two groups of rows in one feature, near the offset."""
    return (HALVES[:, None] + np.linspace(0.0, 0.1, 40)[:, None] + offset).astype(dtype)


@case
def near_ten_thousand(make):
    """Two groups in float32, near 10,000 and one apart."""
    X = line(1e4, np.float32)
    check_agreement(make(2).fit(X), X, HALVES)


@case
def near_hundred_million(make):
    """Two groups in float64, near 100,000,000 and one apart."""
    X = line(1e8, np.float64)
    check_agreement(make(2).fit(X), X, HALVES)


@case
def distances_far_from_zero(make):
    """Distances by ``transform``, of float64 rows near 1,000,000."""
    X = BLOBS + 1e6
    model = make(2).fit(X)
    truth = np.linalg.norm(X[:, np.newaxis] - model.cluster_centers_, axis=2)
    off = np.max(np.abs(model.transform(X) / truth - 1.0))
    check(off < 1e-9, f"off by up to {100 * off:.2g} %")


@case
def sparse_far_from_zero(make):
    """Sparse rows near 100,000,000."""
    X = sparse.csr_matrix(BLOBS + 1e8)
    check_agreement(make(2).fit(X), X, HALVES)


@case
def far_row(make):
    """One row in float32 a million away from two clear groups, three clusters."""
    X = np.append(BLOBS, [[1e6, 1e6]], axis=0).astype(np.float32)
    check_agreement(make(3, init=X[[0, 39, 40]]).fit(X), X, np.append(HALVES, 2))


@case
def very_far_row(make):
    """One row in float64 1e12 away from two clear groups, three clusters."""
    X = np.append(BLOBS, [[1e12, 1e12]], axis=0)
    check_agreement(make(3, init=X[[0, 39, 40]]).fit(X), X, np.append(HALVES, 2))


@case
def row_alone(make):
    """2,000 float32 rows of 20 features near 1,000, predicted one by one."""
    X = (np.random.default_rng(0).normal(size=(2000, 20)) + 1e3).astype(np.float32)
    model = make(8).fit(X)
    labels = model.predict(X)
    n_other = int(np.sum(model.labels_ != labels))
    check(n_other == 0, f"``predict`` differs from ``labels_`` in {n_other} rows")
    alone = np.concatenate([model.predict(X[i : i + 1]) for i in range(len(X))])
    n_other = int(np.sum(alone != labels))
    check(n_other == 0, f"{n_other} labels depend on the other rows")


@case
def timestamps(make):
    """Unix timestamps in float32, in three groups a day apart."""
    groups = np.repeat([0, 1, 2], 20)
    seconds = 1_790_000_000 + 86_400 * groups + 60 * (np.arange(60) % 20)
    X = seconds[:, np.newaxis].astype(np.float32)
    check_agreement(make(3).fit(X), X, groups)


@case
def far_center(make):
    """A centre at 1e11 among near ones, and a row beside it."""
    X = np.append(BLOBS, [[1e11, 1e11]], axis=0)
    start = np.array([[1e11, 1e11], [1.0, 1.0], [9.0, 9.0]])
    check_agreement(make(3, init=start).fit(X), X, np.append(HALVES, 2))


@case
def far_center_soft(make):
    """The same in a soft run, at a temperature of 1, where there is one."""
    X = np.append(BLOBS, [[1e11, 1e11]], axis=0)
    start = np.array([[1e11, 1e11], [1.0, 1.0], [9.0, 9.0]])
    model = make(3, init=start, **soft(make, 1.0)).fit(X)
    check_split(model.predict(X), np.append(HALVES, 2))
    means = [BLOBS[20 * j : 20 * j + 20].mean(axis=0) for j in range(2)]
    off = np.max(np.abs(model.cluster_centers_[1:] - means))
    check(off < 1e-6, f"near centres off by {off:.2g}")


def soft(make, sigma):
    """Parameters of a soft run, if the estimator has them."""
    return {"schedule": sigma} if hasattr(make(1), "schedule") else {}


# --- scales ------------------------------------------------------------------


@case
def huge_single(make):
    """Two groups in float32, at 1e20 times their scale."""
    check_finite(make(2).fit((BLOBS * 1e20).astype(np.float32)))


def check_finite(model):
    check_split(model.labels_)
    check(np.isfinite(model.inertia_), f"``inertia_`` {model.inertia_}")
    check(np.isfinite(model.cluster_centers_).all(), "centres not finite")


@case
def not_representable(make):
    """Data so large, 1e160, that the inertia is no float64: an error that says so."""
    try:
        model = make(2).fit(BLOBS * 1e160)
    except ValueError as error:
        check("too large" in str(error), short(error))
    else:
        check(False, f"no error, ``inertia_`` {model.inertia_}")


@case
def tiny(make):
    """Two groups in float64, at 1e-170 times their scale."""
    check_split(make(2).fit(BLOBS * 1e-170).labels_)


@case
def tiny_single(make):
    """Two groups in float32, at 1e-25 times their scale."""
    check_finite(make(2).fit((BLOBS * 1e-25).astype(np.float32)))


# --- kinds of arrays ---------------------------------------------------------


@case
def other_width(make):
    """Fit in float64, ``predict``, ``transform`` and ``score`` in float32."""
    model, X = make(2).fit(BLOBS), BLOBS.astype(np.float32)
    check_split(model.predict(X))
    model.transform(X)
    check_number("score", -model.score(X), model.inertia_)


@case
def other_width_reversed(make):
    """Fit in float32, ``predict`` in float64, dense and sparse."""
    model = make(2).fit(BLOBS.astype(np.float32))
    check_split(model.predict(BLOBS))
    check_split(model.predict(sparse.csr_matrix(BLOBS)))


@case
def long_indices(make):
    """A CSR matrix with 64-bit indices."""
    X = sparse.csr_matrix(BLOBS)
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    check_agreement(make(2).fit(X), X, HALVES)


@case
def entries_twice(make):
    """A CSR matrix in which every entry stands twice, as halves."""
    halves = np.tile(BLOBS / 2.0, 2).ravel()
    indices, indptr = np.tile([0, 1], 80), np.arange(0, 161, 4)
    X = sparse.csr_matrix((halves, indices, indptr), shape=BLOBS.shape)
    check_agreement(make(2).fit(X), X, HALVES)


@case
def layouts(make):
    """Read-only, Fortran-ordered, strided and reversed arrays."""
    frozen = BLOBS.copy()
    frozen.setflags(write=False)
    reversed_ = np.ascontiguousarray(BLOBS[:, ::-1])[:, ::-1]
    for X in frozen, np.asfortranarray(BLOBS), np.repeat(BLOBS, 2, 0)[::2], reversed_:
        check_agreement(make(2).fit(X), X, HALVES)


# --- weights and refusals ----------------------------------------------------

LINE = np.array([[0.0], [1.0], [2.0], [100.0]])


@case
def weightless_row(make):
    """An empty cluster next to a far row of zero weight."""
    model = make(2, init=np.array([[1.0], [1e6]]))
    model.fit(LINE, sample_weight=[1, 1, 1, 0])
    found = len(np.unique(model.labels_[:3]))
    check(found == 2, f"{found} of 2 clusters for 3 distinct rows")
    check(model.cluster_centers_.max() <= 2.0, "a centre at the weightless row")


@case
def tiny_weights(make):
    """Weights of 1e-320, all equal."""
    model = make(2).fit(LINE, sample_weight=np.full(4, 1e-320))
    seen = ", ".join(str(center) for center in np.sort(model.cluster_centers_.ravel()))
    check(np.allclose(np.sort(model.cluster_centers_[:, 0]), [1, 100]), seen)


@case
def weights_of_all_orders(make):
    """A cluster whose rows weigh 1e-300 of those of the other one."""
    weights = np.repeat([1.0, 1e-300], 20)
    model = make(2, init=BLOBS[[0, 20]]).fit(BLOBS, sample_weight=weights)
    check_means(model)


@case
def weights_beyond_floats(make):
    """Weights of 1e307 each, whose sum is beyond 1.8e308."""
    X = BLOBS * 1e-3
    model = make(2, init=X[[0, 20]]).fit(X, sample_weight=np.full(40, 1e307))
    check_means(model, 1e-3)


def check_means(model, scale=1.0):
    """The centres are the means of the two halves of the rows."""
    check_split(model.labels_)
    for j in range(2):
        mean = scale * BLOBS[20 * j : 20 * j + 20].mean(axis=0)
        center = model.cluster_centers_[model.labels_[20 * j]]
        seen = ", ".join(f"{x:.3g}" for x in center)
        check(np.allclose(center, mean), f"a centre at {seen}")


@case
def assumed_finite(make):
    """A NaN among the rows while scikit-learn is told to assume there is none."""
    X = BLOBS.copy()
    X[3, 1] = np.nan
    with config_context(assume_finite=True):
        try:
            model = make(2).fit(X)
        except ValueError as error:
            check("NaN" in str(error), short(error))
        else:
            n_lost = int(np.isnan(model.cluster_centers_).any(axis=1).sum())
            check(False, f"no error, {n_lost} of 2 centres NaN")


@case
def negative_weights(make):
    """A negative weight: an error that names ``sample_weight``."""
    model = make(2, init=np.array([[0.0], [100.0]]))
    try:
        model.fit(LINE, sample_weight=[1, 1, 1, -1])
    except ValueError as error:
        check("sample_weight" in str(error), short(error))
    else:
        check(False, f"no error, centres {model.cluster_centers_.ravel().tolist()}")


@case
def refused_fit(make):
    """A fitted model, after a refused fit on fewer rows than clusters."""
    model = make(2).fit(BLOBS)
    try:
        model.fit(np.zeros((1, 3)))
    except ValueError:
        pass
    else:
        check(False, "the fit was not refused")
    check_split(model.predict(BLOBS))


# --- batches -----------------------------------------------------------------


@in_batches
def moved_centers(make):
    """``partial_fit`` after ``cluster_centers_`` were replaced: on from these."""
    model = make(2, init=BLOBS[[0, 20]]).partial_fit(BLOBS)
    model.cluster_centers_ = model.cluster_centers_ + 1000.0
    model.partial_fit(BLOBS[:20] + 1000.0)
    off = np.max(np.abs(model.cluster_centers_.mean(axis=0) - 1005.0))
    check(off < 10.0, f"centres off by {off:.3g}")


@in_batches
def pickled_rows(make):
    """A pickle after ``partial_fit``, which should hold no row."""
    model = make(2).partial_fit(BLOBS).partial_fit(BLOBS + 0.1)
    stored = pickle.dumps(model)
    n_held = sum(row.tobytes() in stored for row in [*BLOBS, *(BLOBS + 0.1)])
    check(n_held == 0, f"{n_held} rows")
    check_split(pickle.loads(stored).partial_fit(BLOBS).predict(BLOBS))


@in_batches
def weightless_batch(make):
    """A first batch of which all weights are zero, and then another."""
    model = make(2).partial_fit(BLOBS + 1000.0, sample_weight=np.zeros(40))
    model.partial_fit(BLOBS)
    check_split(model.predict(BLOBS))
    seen = ", ".join(f"{x:.3g}" for x in model.cluster_centers_.ravel())
    check(np.max(np.abs(model.cluster_centers_)) < 20.0, f"centres {seen}")


# --- other tools -------------------------------------------------------------


@case
def exported(make):
    """Export: a fitted ``KMeans``, such as converters to ONNX know, in a pipeline."""
    pipeline = make_pipeline(StandardScaler(), make(2)).fit(BLOBS)
    kmeans = pipeline[-1]
    if hasattr(kmeans, "to_kmeans"):
        kmeans = kmeans.to_kmeans()
    check(type(kmeans) is KMeans, f"a {type(kmeans).__name__}")
    rows = pipeline[:-1].transform(BLOBS)
    check_split(kmeans.predict(rows))
    off = np.max(np.abs(kmeans.transform(rows) - pipeline.transform(BLOBS)))
    check(off < 1e-12, f"distances off by {off:.2g}")


@case
def borders(make):
    """``DecisionBoundaryDisplay`` with ``response_method="predict"``, of a pipeline."""
    from matplotlib.figure import Figure
    from sklearn.inspection import DecisionBoundaryDisplay

    for k in 2, 3:
        pipeline = make_pipeline(StandardScaler(), make(k)).fit(BLOBS)
        display = DecisionBoundaryDisplay.from_estimator(
            pipeline,
            BLOBS,
            response_method="predict",
            grid_resolution=20,
            ax=Figure().subplots(),
        )
        found = len(np.unique(display.response))
        check(found == k, f"{found} of {k} clusters")


# --- the table ---------------------------------------------------------------


def short(error):
    """The first words of an error message."""
    words = str(error).split("\n")[0].split()
    text = " ".join(words[:9]) + (" ..." if len(words) > 9 else "")
    return f"{type(error).__name__} “{text}”"


def outcome(function, estimator):
    """Right, or what was wrong; and what was warned of on the way."""

    if estimator is KMeans and function in IN_BATCHES:
        estimator = MiniBatchKMeans

    def make(n_clusters, **parameters):
        parameters = {"random_state": 0, "n_init": 1, **parameters}
        return estimator(n_clusters, **parameters)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            function(make)
        except WrongError as error:
            return f"wrong: {error}"
        except Exception as error:
            return f"wrong: {short(error)}"
    return "right"


def main():
    print(f"Made with scikit-learn {sklearn.__version__}.\n")
    print(".. list-table::\n   :header-rows: 1\n   :widths: 50 35 15\n")
    print("   * - What was tried\n     - KMeans\n     - RBFKMeans")
    wrong = False
    for function in CASES:
        print(f"   * - {function.__doc__}")
        for estimator in KMeans, RBFKMeans:
            result = outcome(function, estimator)
            print(f"     - {result}")
        wrong = wrong or result != "right"
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
