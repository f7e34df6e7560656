"""Rows in Dask collections: more than one machine can hold, or get through.

Needs the extra ``dask``: ``python -m pip install "skrbfkmeans[dask]"``.
"""

# SPDX-License-Identifier: BSD-3-Clause

try:
    import dask
    from dask.array import Array, concatenate, from_delayed
except ImportError as error:
    raise ImportError(
        'skrbfkmeans.dask needs dask: python -m pip install "skrbfkmeans[dask]"'
    ) from error

import copy
from contextlib import nullcontext
from functools import partial

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from .._checks import check_init
from .._rbfkmeans import RBFKMeans as LocalRBFKMeans
from .._rbfkmeans import as_it_was_on_error
from .._sklearn import (
    check_feature_names,
    check_n_features,
    fit_context,
    get_output_config,
)
from . import _chunks
from ._carriers import OwnScheduler, Workers, without_a_thread
from ._collections import blocks_of, check_is_table, dtype_of, in_full_rows, weights_of

__all__ = ["RBFKMeans"]


class RBFKMeans(LocalRBFKMeans):
    """`skrbfkmeans.RBFKMeans` for Dask arrays and data frames.

    `fit` makes the same steps as on one machine, with the same code. The chunks stay
    with the workers, and so do the labels and bounds of their rows: in each iteration
    only the centres go out, and sums of the size of the centres come back. `predict`,
    `predict_proba` and `transform` are lazy, chunk by chunk. Whatever is not a Dask
    collection is left to the plain estimator.

    Starts are sought, and swaps are tried, among 1000 rows a cluster (at least 20,000
    rows, at most 64 MB, and all if there are no more), drawn by their weights;
    the swaps are kept if they lower the free energy of all rows. If `init` is an array,
    and nothing is refined, centres and labels are those of the plain estimator, but for
    rounding, for any chunks.

    Parameters
    ----------
    n_clusters, schedule, alpha, learning_rate : object
        As in `skrbfkmeans.RBFKMeans`.
    init : {"k-means++", "random"}, callable or array-like, default="k-means++"
        As in `skrbfkmeans.RBFKMeans`; a callable is given the Dask collection.
    n_init, refine, max_iter, tol, features, sparse_output : object
        As in `skrbfkmeans.RBFKMeans`.
    proba_sigma, store_path, verbose, random_state : object
        As in `skrbfkmeans.RBFKMeans`.
    client : distributed.Client, default=None
        Whose workers do the work; by default those of the scheduler that Dask uses at
        the time. Copies and pickles of the estimator leave it out, clones keep it.

    Attributes
    ----------
    cluster_centers_, labels_, inertia_, sigma_, n_iter_, hardened_ : object
        As in `skrbfkmeans.RBFKMeans`; arrays are NumPy's.
    history_, path_, n_steps_, n_features_in_, feature_names_in_ : object
        As in `skrbfkmeans.RBFKMeans`.

    See Also
    --------
    skrbfkmeans.RBFKMeans : The plain estimator, which also fits files larger than
        memory.

    Notes
    -----
    With `dask.distributed`, chunks that do not fit into the memory of the workers go
    to their disks. When a worker is lost, its chunks are computed anew elsewhere, and
    the fit goes on; if they cannot be, it ends in an error. With Dask's own scheduler
    every iteration computes the chunks anew: call ``X.persist()`` before if they fit
    into memory.

    Results do not depend on who works when, but sums are rounded in another order when
    the chunks lie with other workers.

    References
    ----------
    .. [1] M. Rocklin, "Dask: Parallel Computation with Blocked algorithms and Task
       Scheduling", SciPy (2015).

    Examples
    --------
    >>> import dask.array as da
    >>> from sklearn.datasets import make_blobs
    >>> from skrbfkmeans.dask import RBFKMeans
    >>> X, _ = make_blobs(1000, centers=5, random_state=0)
    >>> X = da.from_array(X, chunks=(250, 2))
    >>> model = RBFKMeans(n_clusters=5, random_state=0).fit(X)
    >>> model.predict(X)
    dask.array<..., shape=(1000,), dtype=int32, chunksize=(250,), ...>
    >>> model.to_local().predict([[0.0, 2.0]]).shape
    (1,)
    """

    _parameter_constraints: dict = {
        **LocalRBFKMeans._parameter_constraints,
        "client": "no_validation",
    }

    def __init__(
        self,
        n_clusters=8,
        *,
        schedule="auto",
        alpha=1.5,
        learning_rate=1.0,
        init="k-means++",
        n_init="auto",
        refine="auto",
        max_iter=300,
        tol=1e-4,
        features="distance",
        sparse_output=False,
        proba_sigma="auto",
        store_path=False,
        verbose=0,
        random_state=None,
        client=None,
    ):
        super().__init__(
            n_clusters,
            schedule=schedule,
            alpha=alpha,
            learning_rate=learning_rate,
            init=init,
            n_init=n_init,
            refine=refine,
            max_iter=max_iter,
            tol=tol,
            features=features,
            sparse_output=sparse_output,
            proba_sigma=proba_sigma,
            store_path=store_path,
            verbose=verbose,
            random_state=random_state,
        )
        self.client = client

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, sample_weight=None):
        """Find the centres.

        Parameters
        ----------
        X : Dask array or data frame of shape (n_samples, n_features)
            The rows; at least `n_clusters` of them. The blocks of an array may be
            sparse, and the numbers of rows in chunks unknown. Or what the plain
            estimator takes.
        y : Ignored
            Present for scikit-learn's conventions.
        sample_weight : Dask array or series, or array-like, of shape (n_samples,)
            Weights of the rows, all 1 by default. A row of weight 0 is as if absent.

        Returns
        -------
        self : RBFKMeans
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter, X or sample_weight has a value that is not allowed;
            the estimator then stays as it was.
        RuntimeError
            If workers are lost, and what they held cannot be computed anew, or if
            none is left.
        """
        if not dask.is_dask_collection(X):
            return super().fit(X, y, sample_weight)
        with as_it_was_on_error(self), self._waiting():
            rows = self._gather_rows(X, sample_weight, reset=True)
            self._check_parameters(rows.n_rows)
            init = self._check_init(rows)
            rows.choose_units(*self._given_centers(init))
            task = self._begin_task(init, X, y, sample_weight)
            self._fit(X, rows, init, task)
            if task is not None:
                task.end()
            return self

    def partial_fit(self, X, y=None, sample_weight=None):
        """Go on with one more batch of rows; each chunk of a collection is a batch.

        The chunks are brought to this process, one after the other.

        Parameters
        ----------
        X : Dask array or data frame of shape (n_samples, n_features)
            The rows; the first chunk needs at least `n_clusters`. Or what the plain
            estimator takes.
        y : Ignored
            Present for scikit-learn's conventions.
        sample_weight : Dask array or series, or array-like, of shape (n_samples,)
            Weights of the rows, all 1 by default.

        Returns
        -------
        self : RBFKMeans
            The estimator; its `labels_` and `inertia_` are those of the last chunk.

        Raises
        ------
        ValueError
            If a parameter, X or sample_weight has a value that is not allowed; the
            estimator then stays as it was.
        """
        if not dask.is_dask_collection(X):
            return super().partial_fit(X, y, sample_weight)
        blocks = blocks_of(X)
        weights_of_blocks = weights_of(X, blocks, sample_weight, self._compute)
        with as_it_was_on_error(self):
            for batch in zip(blocks, weights_of_blocks, strict=True):
                rows, weights = self._compute(*batch)
                if hasattr(rows, "tocsr"):
                    rows = rows.tocsr()
                if rows.shape[0] > 0:
                    super().partial_fit(rows, sample_weight=weights)
            if not hasattr(self, "cluster_centers_"):
                raise ValueError("X has no rows.")
        return self

    def predict(self, X):
        """Nearest centre of each row; the first, in case of ties.

        Parameters
        ----------
        X : Dask array or data frame of shape (n_samples, n_features)
            The rows. Or what the plain estimator takes.

        Returns
        -------
        labels : Dask array of shape (n_samples,), int32
            Indices of the centres, not computed yet.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        ValueError
            If X has another number of features than in `fit`.
        """
        if not dask.is_dask_collection(X):
            return super().predict(X)
        return self._lazily(X, "predict", np.empty(0, dtype=np.int32))

    def predict_proba(self, X):
        """Soft membership of each row in each cluster.

        Parameters
        ----------
        X : Dask array or data frame of shape (n_samples, n_features)
            The rows. Or what the plain estimator takes.

        Returns
        -------
        P : Dask array of shape (n_samples, n_clusters)
            Rows that sum to one, not computed yet.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        ValueError
            If X has another number of features than in `fit`.
        """
        if not dask.is_dask_collection(X):
            return super().predict_proba(X)
        return self._lazily(X, "predict_proba", np.empty((0, 0), dtype=dtype_of(X)))

    def transform(self, X):
        """Map each row to `n_clusters` new features, chosen by `features`.

        Parameters
        ----------
        X : Dask array or data frame of shape (n_samples, n_features)
            The rows. Or what the plain estimator takes.

        Returns
        -------
        X_new : Dask array of shape (n_samples, n_clusters)
            As the plain estimator's, not computed yet.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        ValueError
            If X has another number of features than in `fit`.
        """
        check_is_fitted(self)
        return self._transform(X)

    def _transform(self, X):
        if not dask.is_dask_collection(X):
            return super()._transform(X)
        if get_output_config("transform", self)["dense"] != "default":
            raise ValueError(
                "set_output is not for Dask collections: it would compute them. Use "
                'set_output(transform="default").'
            )
        meta = np.empty((0, 0), dtype=dtype_of(X))
        if self.sparse_output and self.features == "responsibility":
            meta = sparse.csr_matrix(meta)
        return self._lazily(X, "_transform", meta)

    def score(self, X, y=None, sample_weight=None):
        """Minus the inertia of the rows: the higher, the better.

        Parameters
        ----------
        X : Dask array or data frame of shape (n_samples, n_features)
            The rows. Or what the plain estimator takes.
        y : Ignored
            Present for scikit-learn's conventions.
        sample_weight : Dask array or series, or array-like, of shape (n_samples,)
            Weights of the rows, all 1 by default.

        Returns
        -------
        score : float
            Minus the weighted sum of the squared distances to the nearest centre.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        ValueError
            If X or sample_weight has a value that is not allowed.
        """
        if not dask.is_dask_collection(X):
            return super().score(X, y, sample_weight)
        check_is_fitted(self)
        centers = self.cluster_centers_.astype(np.float64)
        with self._waiting():
            rows = self._gather_rows(X, sample_weight, reset=False)
            if rows.n_rows == 0:
                raise ValueError("X has no rows.")
            rows.choose_units()
            centers = rows.units.into(centers)
            inertia = rows.score(centers)
        return -rows.units.inertia_back(inertia)

    def to_local(self):
        """The plain estimator, with the same parameters and what has been fitted.

        Returns
        -------
        model : skrbfkmeans.RBFKMeans
            It shares its arrays with this one.
        """
        parameters = self.get_params(deep=False)
        del parameters["client"]
        local = LocalRBFKMeans(**parameters)
        fitted = {
            name: value
            for name, value in vars(self).items()
            if name == "_stream" or (name.endswith("_") and not name.startswith("__"))
        }
        vars(local).update(fitted)
        return local

    # --- collections ---

    def _gather_rows(self, X, sample_weight, reset):
        """All rows of a collection, each chunk checked where it is."""
        blocks = blocks_of(X)
        self._check_features(X, reset)
        weights = weights_of(X, blocks, sample_weight, self._compute)
        model = self._predictor()
        vars(model).pop("cluster_centers_", None)
        chunks = [
            dask.delayed(partial(_chunks.check, model, number))(*block)
            for number, block in enumerate(zip(blocks, weights, strict=True))
        ]
        client = self._find_client()
        carrier = OwnScheduler(chunks) if client is None else Workers(client, chunks)
        return _chunks.ChunkedRows(
            carrier, self.n_features_in_, is_weighted=sample_weight is not None
        )

    def _check_features(self, X, reset):
        """Number and names of the features, from what is known without computing."""
        check_is_table(X)
        if not isinstance(X, Array):
            like = X._meta
        elif np.isnan(X.shape[1]):
            raise ValueError(
                "X must be a 2-D Dask array with a known number of columns; its shape "
                f"is {X.shape}."
            )
        else:
            like = np.broadcast_to(np.zeros(1), (1, X.shape[1]))
        check_feature_names(self, like, reset=reset)
        check_n_features(self, like, reset=reset)

    def _note(self, rows, run, centers, labels, *found):
        """As that of the plain estimator; labels are fetched from the chunks."""
        labels = labels() if callable(labels) else labels
        super()._note(rows, run, centers, labels, *found)

    def _find_client(self):
        """The client whose workers do the work; None for Dask's own scheduler."""
        if self.client is not None:
            if not hasattr(self.client, "scatter"):
                raise ValueError(
                    f"client must be a distributed.Client or None; got {self.client!r}."
                )
            return self.client
        owner = getattr(dask.base.get_scheduler(), "__self__", None)
        return owner if hasattr(owner, "scatter") else None

    def _waiting(self):
        """Context in which this thread waits for workers."""
        return nullcontext() if self._find_client() is None else without_a_thread()

    def _compute(self, *some):
        """What some delayed objects come to."""
        client = self._find_client()
        return dask.compute(*some, scheduler=None if client is None else client)

    def _predictor(self):
        """The plain estimator with all that predicting needs, and no more."""
        model = self.to_local()
        model.set_params(init="k-means++", schedule="auto", random_state=None)
        for name in "labels_", "history_", "path_", "_stream":
            vars(model).pop(name, None)
        return model

    def _lazily(self, X, method, meta):
        """What a method of the plain estimator returns, chunk by chunk."""
        check_is_fitted(self)
        self._check_features(X, reset=False)
        widths = (self._n_features_out,) if meta.ndim == 2 else ()
        call = partial(_call_method, self._predictor(), method, meta, widths)
        if isinstance(X, Array):
            X = in_full_rows(X)
            shape = X.chunks[:1] + tuple((width,) for width in widths)
            drop = {} if widths else {"drop_axis": 1}
            return X.map_blocks(call, chunks=shape, dtype=meta.dtype, meta=meta, **drop)
        blocks = [
            from_delayed(dask.delayed(call)(block), (np.nan, *widths), meta=meta)
            for block in blocks_of(X)
        ]
        return concatenate(blocks, allow_unknown_chunksizes=True)

    def _check_init(self, X):
        """As that of the plain estimator; collections are computed."""
        if dask.is_dask_collection(self.init):
            init = self._compute(self.init)[0]
            return check_init(init, self.n_clusters, X.shape[1], X.dtype)
        if callable(self.init):
            return self._call_init
        return super()._check_init(X)

    def _call_init(self, X, n_clusters, random_state):
        """What `init` returns, computed if it is a collection."""
        centers = self.init(X, n_clusters, random_state=random_state)
        return self._compute(centers)[0]

    # --- copies ---

    def __getstate__(self):
        """A client cannot travel."""
        state = super().__getstate__()
        return {**state, "client": None} if "client" in state else state

    def __sklearn_clone__(self):
        twin = super(RBFKMeans, copy.copy(self)).__sklearn_clone__()
        twin.client = self.client
        return twin


def _call_method(model, method, meta, widths, X):
    """A method of the plain estimator for one chunk, which may be empty."""
    if hasattr(X, "tocsr"):
        X = X.tocsr()
    if X.shape[0] == 0:
        empty = type(meta) if sparse.issparse(meta) else np.empty
        return empty((0, *widths), dtype=meta.dtype)
    return getattr(model, method)(X)
