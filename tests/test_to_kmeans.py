"""The fitted model as scikit-learn's KMeans, and from there to ONNX."""

# SPDX-License-Identifier: BSD-3-Clause

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from estimator_helpers import WEIGHTS, B, X
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from skrbfkmeans import RBFKMeans
from skrbfkmeans.schedules import Geometric

pytestmark = pytest.mark.compiled

ROWS = {
    "float64": X,
    "float32": X.astype(np.float32),
    "sparse": sparse.csr_matrix(X),
    "sparse float32": sparse.csr_matrix(X.astype(np.float32)),
    "frame": pd.DataFrame(X, columns=["a", "b"]),
}


def fitted(rows=X, **parameters):
    return RBFKMeans(**{"n_clusters": 3, "random_state": 0, **parameters}).fit(rows)


def assert_same_methods(kmeans, model, rows):
    """Both estimators tell the same of rows."""
    assert type(kmeans) is KMeans
    check_is_fitted(kmeans)
    loose = 1e-4 if kmeans.cluster_centers_.dtype == np.float32 else 1e-9
    distances = model.set_params(features="distance").transform(rows)
    assert_array_equal(kmeans.predict(rows), model.predict(rows))
    assert_allclose(kmeans.transform(rows), distances, rtol=loose)
    assert kmeans.transform(rows).dtype == distances.dtype
    assert_allclose(kmeans.score(rows), model.score(rows), rtol=loose)


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_kmeans_does_the_same_with_rows_of_any_kind(rows):
    model = fitted(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kmeans = model.to_kmeans()
        assert_same_methods(kmeans, model, rows)
    for name in "cluster_centers_", "labels_":
        ours, theirs = getattr(model, name), getattr(kmeans, name)
        assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype
        assert not np.shares_memory(ours, theirs)
    for name in "inertia_", "n_iter_", "n_features_in_":
        assert getattr(kmeans, name) == getattr(model, name)
    assert hasattr(kmeans, "feature_names_in_") == isinstance(rows, pd.DataFrame)
    expected = [f"kmeans{j}" for j in range(3)]
    assert_array_equal(kmeans.get_feature_names_out(), expected)


@pytest.mark.parametrize(
    "parameters",
    [
        {"schedule": 2.0},
        {"schedule": Geometric(harden=False), "alpha": 1.0},
        {"features": "rbf"},
        {"features": "responsibility", "sparse_output": True},
        {"n_clusters": 1},
        {"n_clusters": np.int64(5), "init": "random", "n_init": 2},
    ],
    ids=str,
)
def test_kmeans_does_the_same_after_fits_of_any_kind(parameters):
    model = fitted(**parameters)
    assert_same_methods(model.to_kmeans(), model, X)


def test_kmeans_knows_the_names_of_the_features():
    kmeans = fitted(ROWS["frame"]).to_kmeans()
    assert_array_equal(kmeans.feature_names_in_, ["a", "b"])
    with pytest.raises(ValueError, match="feature names"):
        kmeans.predict(ROWS["frame"][["b", "a"]])


def test_kmeans_has_the_weighted_score():
    model = fitted()
    theirs = model.to_kmeans().score(X, sample_weight=WEIGHTS)
    assert_allclose(theirs, model.score(X, sample_weight=WEIGHTS))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kmeans_after_batches_tells_of_the_last_one(dtype):
    model = RBFKMeans(3, random_state=0)
    for batch in np.array_split(X.astype(dtype), 3):
        model.partial_fit(batch)
    kmeans = model.to_kmeans()
    assert_same_methods(kmeans, model, batch)
    assert_array_equal(kmeans.labels_, model.predict(batch))
    assert kmeans.inertia_ == model.inertia_
    assert kmeans.n_iter_ == 3
    assert fitted().partial_fit(X).to_kmeans().n_iter_ == 1


def test_a_new_fit_of_kmeans_goes_on_from_the_centres():
    model = fitted()
    kmeans = clone(model.to_kmeans())
    assert not hasattr(kmeans, "cluster_centers_")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kmeans.fit(X)
    assert_array_equal(kmeans.labels_, model.labels_)
    assert_allclose(kmeans.cluster_centers_, model.cluster_centers_)
    assert kmeans.n_iter_ <= 2


def test_kmeans_takes_the_parameters_that_both_have():
    model = fitted(max_iter=77, tol=1e-5, verbose=0, random_state=3)
    model.set_params(n_clusters=9)  # not fitted yet
    parameters = model.to_kmeans().get_params()
    assert_array_equal(parameters.pop("init"), model.cluster_centers_)
    own = {"n_clusters": 3, "max_iter": 77, "tol": 1e-5, "random_state": 3}
    expected = {**KMeans().get_params(), "n_init": 1, **own}
    del expected["init"]
    assert parameters == expected


def test_a_fit_of_kmeans_leaves_the_model_alone():
    model = fitted()
    centers, labels = model.cluster_centers_.copy(), model.labels_.copy()
    kmeans = model.to_kmeans()
    kmeans.cluster_centers_ += 1.0
    kmeans.init += 1.0
    kmeans.labels_ += 1
    assert_array_equal(model.cluster_centers_, centers)
    assert_array_equal(model.labels_, labels)


def test_kmeans_survives_a_pickle():
    model = fitted()
    kmeans = pickle.loads(pickle.dumps(model.to_kmeans()))
    assert_same_methods(kmeans, model, X)


def test_kmeans_returns_the_container_that_was_asked_for():
    model = fitted().set_output(transform="pandas")
    assert isinstance(model.to_kmeans().transform(X), pd.DataFrame)
    model.set_output(transform="default")
    assert isinstance(model.to_kmeans().transform(X), np.ndarray)


def test_there_is_no_kmeans_before_a_fit():
    with pytest.raises(NotFittedError):
        RBFKMeans(3).to_kmeans()


def test_kmeans_comes_from_dask_too(own_scheduler):
    da = pytest.importorskip("dask.array")
    from skrbfkmeans.dask import RBFKMeans as DaskRBFKMeans

    model = DaskRBFKMeans(2, random_state=0).fit(da.from_array(B, chunks=(10, 2)))
    for kmeans in model.to_kmeans(), model.to_local().to_kmeans():
        assert_same_methods(kmeans, model.to_local(), B)
        assert_array_equal(kmeans.labels_, model.labels_)


# --- ONNX ---------------------------------------------------------------------


def run_in_onnx(estimator, rows):
    """Labels and distances that the estimator comes to as an ONNX graph."""
    skl2onnx = pytest.importorskip("skl2onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    graph = skl2onnx.to_onnx(estimator, rows[:1]).SerializeToString()
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: rows})


@pytest.mark.filterwarnings("default")  # those of other packages
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_onnx_gives_the_labels_and_distances_of_the_model(dtype):
    rows = X.astype(dtype)
    model = fitted(rows)
    labels, distances = run_in_onnx(model.to_kmeans(), rows)
    assert_array_equal(labels, model.predict(rows))
    assert_allclose(distances, model.transform(rows), rtol=1e-3)


@pytest.mark.filterwarnings("default")
def test_onnx_gives_the_labels_of_a_model_that_has_seen_batches():
    rows = X.astype(np.float32)
    model = RBFKMeans(3, random_state=0).partial_fit(rows).partial_fit(rows)
    assert_array_equal(run_in_onnx(model.to_kmeans(), rows)[0], model.predict(rows))


@pytest.mark.filterwarnings("default")
def test_onnx_gives_the_labels_of_a_pipeline():
    rows = (X * [1.0, 1e3] + [0.0, 5.0]).astype(np.float32)
    pipeline = make_pipeline(StandardScaler(), RBFKMeans(3, random_state=0)).fit(rows)
    scaler, model = pipeline[0], pipeline[-1]
    exported = make_pipeline(scaler, model.to_kmeans())
    assert_array_equal(run_in_onnx(exported, rows)[0], pipeline.predict(rows))
    assert len(np.unique(pipeline.predict(rows))) == 3
