"""The estimator: parameters, checks and words. Loops over rows are elsewhere."""

# SPDX-License-Identifier: BSD-3-Clause

import sys
import warnings
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from numbers import Integral, Real

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ._callbacks import FitTask
from ._checks import (
    PlainMessagesMixin,
    check_batch,
    check_centers,
    check_enough_rows,
    check_falling_temperatures,
    check_init,
    check_nested_parameters,
    check_no_bools,
    check_sigma,
)
from ._engine.units import stored
from ._run.annealing import Settings, anneal, is_lower
from ._run.starts import starting_centers, temperatures
from ._run.streaming import Stream
from ._sklearn import (
    CallbackSupportMixin,
    DocumentationLinkMixin,
    Interval,
    StrOptions,
    copy_output_config,
    effective_n_threads,
    fit_context,
)
from .schedules import KINDS, Schedule

# Parameters that take numbers, for which Python would take True for 1.
NOT_BOOLS = (
    "n_clusters", "schedule", "alpha", "learning_rate", "n_init", "refine", "max_iter",
)  # fmt: skip

# numba is imported with the first computation, not with the package: it costs
# half a second that only those who compute should pay.


class RBFKMeans(
    PlainMessagesMixin,
    DocumentationLinkMixin,
    CallbackSupportMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    ClusterMixin,
    BaseEstimator,
):
    r"""K-means as the zero-temperature limit of a radial-basis-function network.

    Each row shares itself out over the centres by responsibilities, the
    alpha-entmax of :math:`-d_{ij}^2 / (2 \sigma^2)`. Moving the centres to
    their weighted means then lowers the free energy

    .. math::

        F_\sigma(\mu) = \sum_i w_i \min_r \Bigl[ \sum_j r_j d_{ij}^2
                        - 2 \sigma^2 H_\alpha(r) \Bigr].

    While the temperature :math:`\sigma` falls by the `schedule`, the model
    freezes into k-means. With ``alpha > 1`` it does so at a finite temperature
    and exactly: the result is a fixed point of k-means. `refine` then moves
    centres to where they are of more use, so that one fit finds a better
    optimum than the best of ten starts of k-means usually is. `predict_proba`
    gives sparse memberships, in which most entries are exactly 0.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centres.
    schedule : "auto", float, array-like or Schedule, default="auto"
        The temperatures.

        * ``"auto"``: ``Geometric()``, a few soft iterations and then k-means.
        * A float: this temperature, in the units of the data, until
          convergence. 0 is plain k-means.
        * An array-like: the temperature of each iteration, in the units of the
          data, never increasing; the last is kept until convergence.
        * An object from `skrbfkmeans.schedules`.

        A float or an array stays soft, unless it reaches 0 or every row comes
        to belong to one centre alone.
    alpha : float, default=1.5
        Tsallis index of the responsibilities, at least 1: 1 is softmax,
        1.5 entmax-1.5, 2 sparsemax. The larger, the sparser.
    learning_rate : float, default=1.0
        Length of the soft steps, between 0 and 2, in units of the EM step,
        which itself is a gradient step of 1 / (2 mass). The free energy never
        rises at constant temperature for values up to 1. K-means steps ignore
        it.
    init : {"k-means++", "random"}, callable or array-like, default="k-means++"
        Where the centres start: greedy k-means++, rows drawn at random, what
        ``init(X, n_clusters, random_state=random_state)`` returns, or the
        centres given, of shape (n_clusters, n_features).
    n_init : "auto" or int, default="auto"
        Number of runs from different starts, each of them refined, of which the
        best is kept. ``"auto"`` is 1; or 10, if nothing is refined, for
        ``init="random"`` or a callable.
    refine : "auto", int or None, default="auto"
        How many swaps of centres to try once a run has converged. A swap takes
        away a centre whose rows have others nearly as close, and puts it into a
        cluster that is better served by two [3]_ [4]_; those around are reheated
        for a step and cool again. It is kept if it lowers the free energy, the
        inertia if the run has hardened. So the result is never worse than
        without.

        * ``"auto"``: as many as promise to pay, and none if `init` is an array:
          centres that are given stay what they were meant to be.
        * An int: at most this many.
        * None: none.
    max_iter : int, default=300
        Most EM iterations of one run, over all temperatures, those between
        swaps included. The iterations of a swap on trial, which concern the
        clusters around alone, are not counted.
    tol : float, default=1e-4
        The last soft temperature ends when the squared shift of all centres
        together is at most `tol` times the mean variance of the features.
        K-means steps go on until the labels repeat.
    features : {"distance", "rbf", "responsibility"}, default="distance"
        What `transform` returns: the distance to each centre, the radial basis
        functions :math:`\exp(-d^2 / (2 \sigma^2))`, or the responsibilities. In many
        dimensions the default temperature is low for the latter two: choose a
        larger `proba_sigma`.
    sparse_output : bool, default=False
        Whether `transform` returns responsibilities as a CSR matrix, without
        the exact zeros.
    proba_sigma : "auto" or float, default="auto"
        Temperature of `predict_proba` and of the last two `features`, in the
        units of the data; ``"auto"`` is `sigma_`. Read when they are called, so
        that `set_params` needs no new fit. It changes neither labels nor `score`.
    store_path : bool, default=False
        Whether to keep the centres of every iteration in `path_`.
    verbose : int, default=0
        If positive, print one line a temperature, and one for each series of
        swaps.
    random_state : int, RandomState instance or None, default=None
        Source of the starts. Pass an int for reproducible results.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
        The centres.
    labels_ : ndarray of shape (n_samples,), int32
        Nearest centre of each row; the first, in case of ties.
    inertia_ : float
        Weighted sum of the squared distances to the nearest centre.
    sigma_ : float
        The temperature for soft memberships, in the units of the data: the
        last of the schedule if the model stayed soft, else the root of
        ``inertia_ / (sum of weights * n_features)``, the maximum-likelihood
        spread of the fitted clusters.
    n_iter_ : int
        Number of EM iterations.
    hardened_ : bool
        Whether the result is an exact fixed point of k-means: each centre the
        mean of its own rows, each label the nearest centre.
    n_steps_ : int
        Number of batches; only after `partial_fit`, which leaves no `n_iter_` and no
        `history_`.
    history_ : dict of str to ndarray of shape (`n_iter_`,)
        One entry an iteration: ``"sigma"``, the temperature, 0 in the k-means
        phase; ``"free_energy"`` and ``"inertia"`` of the centres before the step;
        ``"shift"``, the root of the sum of their squared shifts;
        ``"soft_fraction"``, the share of the weight in rows with more than one
        responsibility; ``"support"``, the mean number of responsibilities of a
        row; ``"swaps_tried"`` and ``"swaps_kept"``, the number of swaps after
        the iteration, mostly 0.
    path_ : ndarray of shape (`n_iter_` + 1, n_clusters, n_features)
        The centres before each iteration, and at last `cluster_centers_`; only with
        ``store_path=True``.
    n_features_in_ : int
        Number of features seen in `fit`.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features seen in `fit`, if all are strings.

    See Also
    --------
    sklearn.cluster.KMeans : Hard k-means.
    sklearn.mixture.GaussianMixture : Soft clusters with shapes of their own.
    skrbfkmeans.schedules : Temperature schedules.
    skrbfkmeans.inspection : Figures of a fit, its centres and its memberships.
    sklearn.inspection.DecisionBoundaryDisplay : Borders of the clusters, drawn with
        ``response_method="predict"``.

    Notes
    -----
    With scikit-learn 1.9 or newer, ``set_callbacks`` takes callbacks, such as
    ``sklearn.callback.ProgressBar``, which are told of each start, temperature and
    iteration.

    The number of threads follows OpenMP's limit, as in scikit-learn
    (``OMP_NUM_THREADS``, `threadpoolctl`, joblib); results are the same to the
    last bit for any number of threads.

    References
    ----------
    .. [1] F. Arredondo, Ucan Puc and Astengo Noguez, "K-Means as a Radial Basis
       function Network: a Variational and Gradient-based Equivalence",
       arXiv:2603.04625 (2026).
    .. [2] K. Rose, "Deterministic annealing for clustering, compression,
       classification, regression, and related optimization problems",
       Proc. IEEE 86 (1998).
    .. [3] P. Fränti, "Efficiency of random swap clustering", J. Big Data 5
       (2018).
    .. [4] B. Fritzke, "The breathing k-means algorithm", arXiv:2006.15666
       (2020).

    Examples
    --------
    >>> import numpy as np
    >>> from skrbfkmeans import RBFKMeans
    >>> X = np.array([[1.0, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]])
    >>> model = RBFKMeans(n_clusters=2, random_state=0).fit(X)
    >>> model.cluster_centers_[np.argsort(model.cluster_centers_[:, 0])]
    array([[ 1.,  2.],
           [10.,  2.]])
    >>> model.hardened_
    True
    >>> model = model.set_params(proba_sigma=4.0)
    >>> np.sort(model.predict_proba([[6.0, 2.0]])).round(3)
    array([[0.401, 0.599]])
    """

    _parameter_constraints: dict = {
        "n_clusters": [Interval(Integral, 1, None, closed="left")],
        "schedule": [
            StrOptions({"auto"}),
            Interval(Real, 0, None, closed="left"),
            "array-like",
            Schedule,
        ],
        "alpha": [Interval(Real, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, 2, closed="neither")],
        "init": [StrOptions({"k-means++", "random"}), callable, "array-like"],
        "n_init": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "refine": [
            StrOptions({"auto"}),
            Interval(Integral, 0, None, closed="left"),
            None,
        ],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "features": [StrOptions({"distance", "rbf", "responsibility"})],
        "sparse_output": ["boolean"],
        "proba_sigma": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left")],
        "store_path": ["boolean"],
        "verbose": ["verbose"],
        "random_state": ["random_state"],
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
    ):
        self.n_clusters = n_clusters
        self.schedule = schedule
        self.alpha = alpha
        self.learning_rate = learning_rate
        self.init = init
        self.n_init = n_init
        self.refine = refine
        self.max_iter = max_iter
        self.tol = tol
        self.features = features
        self.sparse_output = sparse_output
        self.proba_sigma = proba_sigma
        self.store_path = store_path
        self.verbose = verbose
        self.random_state = random_state

    def set_params(self, **params):
        """Set parameters of the estimator, or of its schedule.

        Parameters
        ----------
        **params : dict
            Parameters by their names; ``schedule__start`` is `start` of a schedule
            object.

        Returns
        -------
        self : RBFKMeans
            The estimator.

        Raises
        ------
        ValueError
            If there is no such parameter, such as one of ``schedule="auto"``; then
            none is set.
        """
        check_nested_parameters(self, params, {"schedule": KINDS})
        return super().set_params(**params)

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, sample_weight=None):
        """Find the centres.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The rows; at least `n_clusters` of them.
        y : Ignored
            Present for scikit-learn's conventions.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, all 1 by default. A row of weight 0 is as if
            absent.

        Returns
        -------
        self : RBFKMeans
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter, X or sample_weight has a value that is not allowed;
            the estimator then stays as it was.

        Warns
        -----
        ConvergenceWarning
            If fewer clusters than `n_clusters` were found, as when there are
            fewer distinct rows.
        """
        with as_it_was_on_error(self):
            batch = check_batch(X, sample_weight, self, reset=True)
            self._check_parameters(batch.X.shape[0])
            init = self._check_init(batch.X)
            rows = batch.rows(batch.units(*self._given_centers(init)))
            task = self._begin_task(init, batch.X, y, sample_weight)
            self._fit(batch.X, rows, init, task)
            if batch.units(self.cluster_centers_) != rows.units:
                # as `score` will, to the last bit: the starts needed other units
                self.labels_, self.inertia_ = self._assign(batch, measuring=True)
            if task is not None:
                task.end()
            return self

    @fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X, y=None, sample_weight=None):
        r"""Go on with one more batch of rows.

        A step of online EM: each centre moves towards the weighted mean of its share
        of the batch, by the part that share has in all the mass the centre has seen
        [1]_, :math:`\mu_j \leftarrow \mu_j + (N_j / M_j) (m_j - \mu_j)` with
        :math:`M_j` the sum of all :math:`N_j` so far. The t-th call is made at the
        t-th temperature of the `schedule`, later ones at its last. Centres without a
        share stay where they are.

        With refinement, the first 1000 rows a cluster are kept, and each time they have
        doubled in number the centres are fitted to all of them, with swaps: so little
        depends on the first batch. ``refine=None``, or an array as `init`, leaves that
        out. After `fit` the fitted model goes on, at its last temperature.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The rows of the batch. The first needs at least `n_clusters`, later ones
            may have a single one.
        y : Ignored
            Present for scikit-learn's conventions.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, all 1 by default. A batch of which all weights are 0
            changes nothing.

        Returns
        -------
        self : RBFKMeans
            The estimator; its `labels_` and `inertia_` are those of this batch.

        Raises
        ------
        ValueError
            If a parameter, X or sample_weight has a value that is not allowed, or if
            the first batch is too small; the estimator then stays as it was.

        See Also
        --------
        sklearn.cluster.MiniBatchKMeans : Hard clusters of batches.

        References
        ----------
        .. [1] J. MacQueen, "Some methods for classification and analysis of
           multivariate observations", Berkeley Symposium (1967).

        Examples
        --------
        >>> import numpy as np
        >>> from skrbfkmeans import RBFKMeans
        >>> model = RBFKMeans(n_clusters=2, random_state=0)
        >>> for batch in [[[1.0], [9.0]], [[2.0], [8.0]], [[3.0]]]:
        ...     model = model.partial_fit(batch)
        >>> np.sort(model.cluster_centers_, axis=0)
        array([[2. ],
               [8.5]])
        """
        with as_it_was_on_error(self):
            self._validate_params()  # scikit-learn checks them at the first call only
            is_first = not hasattr(self, "cluster_centers_")
            before = dict(vars(self))
            batch = check_batch(X, sample_weight, self, is_first, may_vanish=True)
            if batch.largest_weight == 0.0:  # as if there had been no call
                vars(self).clear()
                vars(self).update(before)
                return self
            self._check_parameters(batch.X.shape[0], is_first)
            if is_first:
                stream, dtype = self._begin_stream(batch), batch.X.dtype
            else:
                stream, dtype = self._resume_stream(batch.X.shape[1])
            self._follow(stream, batch, dtype)
            return self

    def _begin_task(self, init, X, y, sample_weight):
        """What tells callbacks about the fit; None if there are none."""
        if not hasattr(self, "_skl_callbacks"):
            return None
        data = {"X": X, "y": y, "metadata": {"sample_weight": sample_weight}}
        return FitTask(self, self._n_starts(init), **data)

    def _fit(self, X, rows, init, fit_task):
        """`fit` after the checks."""
        if isinstance(init, np.ndarray) and self.n_init not in ("auto", 1):
            _warn(
                f"init is an array, so n_init={self.n_init} makes one run only.",
                RuntimeWarning,
            )
        random_state = check_random_state(self.random_state)
        sigmas, best, best_score = None, None, np.inf
        with rows:
            settings = self._settings(rows.measures.variances.mean())
            for start in range(self._n_starts(init)):
                centers = starting_centers(init, rows, X, self.n_clusters, random_state)
                if sigmas is None:
                    alpha = float(self.alpha)
                    sigmas = temperatures(self.schedule, rows, centers, alpha)
                if self.verbose:
                    print(f"start {start + 1} of {self._n_starts(init)}")
                task = None
                if fit_task is not None:
                    as_fitted = partial(_fitted_attributes, rows)
                    task = fit_task.start(len(sigmas), as_fitted)
                run = self._run_once(rows, centers, sigmas, settings, init, task)
                centers = stored(rows.units.back(run.centers), rows.dtype)
                as_stored = rows.units.into(centers.astype(np.float64))
                assessed = rows.assess(as_stored, run.labels)
                score = assessed[1] if sigmas[-1] == 0.0 else run.energy
                if best is None or is_lower(score, best_score, rows.dtype):
                    best, best_score = (run, centers, *assessed), score
                if task is not None and task.end():
                    break
            self._note(rows, *best)

    def _run_once(self, rows, centers, sigmas, settings, init, task):
        """One run, and the swaps after it."""
        run = anneal(rows, centers, sigmas, settings, task)
        n_swaps = self._n_swaps(init)
        if run.settled and n_swaps > 0 and self.n_clusters > 1:
            from ._run.refinement import refine

            random_state = check_random_state(self.random_state)
            run = refine(rows, run, n_swaps, settings, random_state, task)
        return run

    def _note(self, rows, run, centers, labels, inertia, masses):
        """Make what has been found the attributes of a fitted model."""
        units = rows.units
        self.inertia_ = units.inertia_back(inertia)
        self.cluster_centers_ = centers
        self.labels_ = labels
        sigma = 0.0 if run.hardened else run.sigma
        self.sigma_ = _membership_sigma(sigma, inertia, rows, units)
        self.n_iter_ = len(run.history["sigma"])
        self.hardened_ = bool(run.hardened)
        self.history_ = _history_of(run, units)
        vars(self).pop("path_", None)
        if self.store_path:
            path = [stored(units.back(c), rows.dtype) for c in run.history["centers"]]
            self.path_ = np.array([*path, centers])
        self._stream = Stream(  # for `partial_fit` to go on with
            centers.astype(np.float64),
            masses,
            units.back(np.array([run.sigma])),
            units.w_exponent,
        )
        vars(self).pop("n_steps_", None)
        self._warn_if_too_few(rows, np.count_nonzero(masses))

    def predict(self, X):
        """Nearest centre of each row; the first, in case of ties.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        labels : ndarray of shape (n_samples,), int32
            Indices of the centres. They do not depend on any temperature.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        ValueError
            If X is not finite or has another number of features than in `fit`.
        """
        check_is_fitted(self)
        return self._assign(check_batch(X, estimator=self), measuring=False)[0]

    def predict_proba(self, X):
        r"""Soft membership of each row in each cluster.

        The alpha-entmax of :math:`-d^2 / (2 \sigma^2)` at the temperature
        `sigma_`, or at `proba_sigma` if that is a number. For ``alpha > 1``
        most entries are exactly 0.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        P : ndarray of shape (n_samples, n_clusters)
            Rows that sum to one; the argmax of a row is its label.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        ValueError
            If X is not finite or has another number of features than in `fit`,
            or if `proba_sigma` is negative or NaN.
        """
        check_is_fitted(self)
        return self._soft_features(check_batch(X, estimator=self), "responsibility")

    def transform(self, X):
        """Map each row to `n_clusters` new features, chosen by `features`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        X_new : ndarray or CSR matrix of shape (n_samples, n_clusters)
            Distances, radial basis functions or responsibilities; sparse only
            for responsibilities with ``sparse_output=True``.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        ValueError
            If X is not finite or has another number of features than in `fit`.
        """
        check_is_fitted(self)
        return self._transform(X)

    def score(self, X, y=None, sample_weight=None):
        """Minus the inertia of the rows: the higher, the better.

        It is taken at zero temperature, so that searches over schedules and alpha
        compare like with like. `proba_sigma` and `features` do not change it.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The rows.
        y : Ignored
            Present for scikit-learn's conventions.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, all 1 by default.

        Returns
        -------
        score : float
            Minus the weighted sum of the squared distances to the nearest
            centre.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        ValueError
            If X or sample_weight has a value that is not allowed.
        """
        check_is_fitted(self)
        batch = check_batch(X, sample_weight, self)
        return -self._assign(batch, measuring=True)[1]

    def fit_predict(self, X, y=None, sample_weight=None):
        """Find the centres and return the label of each row.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The rows.
        y : Ignored
            Present for scikit-learn's conventions.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, all 1 by default.

        Returns
        -------
        labels : ndarray of shape (n_samples,), int32
            The same as `labels_`.
        """
        return self.fit(X, sample_weight=sample_weight).labels_

    def fit_transform(self, X, y=None, sample_weight=None):
        """Find the centres and transform the rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The rows.
        y : Ignored
            Present for scikit-learn's conventions.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, all 1 by default.

        Returns
        -------
        X_new : ndarray of shape (n_samples, n_clusters)
            The same as ``fit(X).transform(X)``.
        """
        return self.fit(X, sample_weight=sample_weight)._transform(X)

    def to_kmeans(self):
        """The fitted model as scikit-learn's KMeans.

        For converters such as skl2onnx, model servers and colleagues who know no other.
        Its `predict`, `transform` and `score` do what these do here with
        ``features="distance"``. Memberships and temperatures get lost: a KMeans has
        no `predict_proba`.

        Returns
        -------
        model : sklearn.cluster.KMeans
            Fitted, with copies of the centres and of what else both have. `init` is
            the centres too, so that a new fit goes on from them. After `partial_fit`,
            `labels_` and `inertia_` are those of the last batch, and `n_iter_` is the
            number of batches.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.

        Notes
        -----
        Where distances are all but equal, as far from zero, rounding by KMeans may
        choose another centre. It takes rows in the precision of its centres only.

        Examples
        --------
        >>> import numpy as np
        >>> from skrbfkmeans import RBFKMeans
        >>> X = np.array([[1.0, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]])
        >>> model = RBFKMeans(n_clusters=2, random_state=0).fit(X)
        >>> kmeans = model.to_kmeans()
        >>> type(kmeans).__name__
        'KMeans'
        >>> bool((kmeans.predict(X) == model.predict(X)).all())
        True
        """
        from sklearn.cluster import KMeans

        check_is_fitted(self)
        centers = np.array(self.cluster_centers_, order="C")
        kmeans = KMeans(
            len(centers),
            init=centers.copy(),
            n_init=1,
            max_iter=self.max_iter,
            tol=self.tol,
            verbose=self.verbose,
            random_state=self.random_state,
        )
        kmeans.cluster_centers_ = centers
        kmeans.n_features_in_ = self.n_features_in_
        if hasattr(self, "labels_"):  # not of a layer's estimator
            kmeans.labels_ = self.labels_.copy()
            kmeans.inertia_ = self.inertia_
            kmeans.n_iter_ = getattr(self, "n_iter_", None) or self.n_steps_
        if hasattr(self, "feature_names_in_"):
            kmeans.feature_names_in_ = self.feature_names_in_.copy()
        # what KMeans.fit leaves for its other methods
        kmeans._n_threads = effective_n_threads()
        kmeans._n_features_out = len(centers)
        copy_output_config(self, kmeans)
        return kmeans

    # --- checks ---

    def _check_parameters(self, n_samples, is_first=True):
        """What scikit-learn's constraints cannot say about the parameters."""
        check_no_bools(self, NOT_BOOLS)
        if is_first:
            check_enough_rows(n_samples, self.n_clusters)
        elif len(self.cluster_centers_) != self.n_clusters:
            raise ValueError(
                f"n_clusters={self.n_clusters}, but the batches so far were clustered "
                f"with {len(self.cluster_centers_)}; call fit to start anew."
            )
        if not isinstance(self.schedule, (str, Real, Schedule)):
            check_falling_temperatures(self.schedule)

    def _check_init(self, X):
        """`init` as it is, or as a checked array of centres."""
        if isinstance(self.init, str) or callable(self.init):
            return self.init
        return check_init(self.init, self.n_clusters, X.shape[1], X.dtype)

    @staticmethod
    def _given_centers(init):
        """The centres that are known before any look at the rows, as a list."""
        return [init] if isinstance(init, np.ndarray) else []

    def _settings(self, variance=1.0):
        """How runs are made on rows with this mean variance of the features."""
        return Settings(
            alpha=float(self.alpha),
            learning_rate=float(self.learning_rate),
            max_iter=self.max_iter,
            tol=self.tol * variance,
            verbose=bool(self.verbose),
            store_path=self.store_path,
        )

    # --- batches ---

    def _begin_stream(self, batch):
        """A stream with starting centres and temperatures by its first batch."""
        init = self._check_init(batch.X)
        random_state = check_random_state(self.random_state)
        units = batch.units(*self._given_centers(init))
        with batch.rows(units) as rows:
            centers = starting_centers(
                init, rows, batch.X, self.n_clusters, random_state
            )
            sigmas = temperatures(self.schedule, rows, centers, float(self.alpha))
        return Stream(
            units.back(centers),
            np.zeros(self.n_clusters),
            units.back(sigmas),
            is_refined=self.n_clusters > 1 and self._n_swaps(init) > 0,
        )

    def _resume_stream(self, n_features):
        """The stream, from `cluster_centers_` as they are now, and their precision."""
        centers, stream = np.asarray(self.cluster_centers_), self._stream
        dtype = np.dtype(np.float32 if centers.dtype == np.float32 else np.float64)
        if not np.array_equal(centers, stored(stream.centers, dtype)):
            centers = check_centers(centers, n_features, "cluster_centers_")
            stream = stream.going_on_from(centers.astype(dtype))
        return stream, dtype

    def _follow(self, stream, batch, dtype):
        """Take in one more batch."""
        settings = replace(self._settings(), verbose=False, store_path=False)
        self._stream = stream.follow(batch, settings, self._n_swaps(None))
        self.cluster_centers_ = stored(self._stream.centers, dtype).copy()
        rows, centers = self._rows_and_centers(batch)
        with rows:
            self.labels_, inertia, _ = rows.assess(centers)
        self.inertia_ = rows.units.inertia_back(inertia)
        sigma = float(rows.units.into(stream.sigma))
        self.sigma_ = _membership_sigma(sigma, inertia, rows, rows.units)
        self.hardened_, self.n_steps_ = False, self._stream.n_batches
        for name in "n_iter_", "history_", "path_":  # they tell of fit alone
            vars(self).pop(name, None)

    # --- starts and swaps ---

    def _n_starts(self, init):
        if isinstance(init, np.ndarray):
            return 1
        if self.n_init != "auto":
            return self.n_init
        is_seeded = isinstance(init, str) and init == "k-means++"
        return 1 if is_seeded or self._n_swaps(init) > 0 else 10

    def _n_swaps(self, init):
        """Most swaps that refinement may try."""
        if self.refine is None:
            return 0
        if self.refine != "auto":
            return self.refine
        return 0 if isinstance(init, np.ndarray) else np.inf

    # --- the fitted model ---

    def _rows_and_centers(self, batch):
        """Passes over a batch, and the centres in the same units."""
        centers = self.cluster_centers_.astype(np.float64)
        rows = batch.rows(batch.units(centers))
        return rows, rows.units.into(centers)

    def _assign(self, batch, measuring):
        """Labels and, if `measuring`, inertia: the one way to both."""
        rows, centers = self._rows_and_centers(batch)
        with rows:
            labels = rows.assign(centers)
            inertia = rows.inertia(centers, labels) if measuring else 0.0
        return labels, rows.units.inertia_back(inertia)

    def _transform(self, X):
        batch = check_batch(X, estimator=self)
        if self.features != "distance":
            return self._soft_features(batch, self.features, self.sparse_output)
        rows, centers = self._rows_and_centers(batch)
        with rows:
            distances = rows.squared_distances(centers)
        np.sqrt(distances, out=distances)
        return _represent(rows.units.back(distances), rows.dtype)

    def _soft_features(self, batch, features, sparse_output=False):
        """Responsibilities or radial basis functions of checked rows."""
        sigma = self.sigma_
        if not (isinstance(self.proba_sigma, str) and self.proba_sigma == "auto"):
            sigma = check_sigma(self.proba_sigma, "proba_sigma")
        rows, centers = self._rows_and_centers(batch)
        sigma = float(rows.units.into(sigma))
        with rows:
            if features == "responsibility":
                return rows.responsibilities(
                    centers, sigma, float(self.alpha), sparse_output
                )
            if sigma * sigma == 0.0:
                return rows.responsibilities(centers, 0.0, 2.0)
            values = rows.squared_distances(centers)
        with np.errstate(over="ignore"):
            values /= -2.0 * sigma * sigma
        return np.exp(values, out=values).astype(rows.dtype, copy=False)

    def _warn_if_too_few(self, rows, n_found):
        """Warn if there are fewer clusters than asked for, and say why."""
        if n_found == self.n_clusters:
            return
        n_distinct = len(rows.distinct(self.n_clusters))
        if n_distinct < self.n_clusters:
            reason = f"X has only {n_distinct} distinct rows"
            if not rows.is_unweighted:
                reason += " of positive weight"
        elif self.hardened_ or self.history_["sigma"][-1] == 0.0:
            reason = "max_iter may be too small"
        else:
            return  # centres that meet at a high temperature are no failure
        _warn(
            f"Found {n_found} distinct clusters, fewer than "
            f"n_clusters={self.n_clusters}: {reason}.",
            ConvergenceWarning,
        )

    @property
    def _n_features_out(self):
        """Number of features that `transform` returns."""
        return self.cluster_centers_.shape[0]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _warn(message, category):
    """Warn at the line of the user's code that called for a fit."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(
        ("skrbfkmeans", "sklearn.")
    ):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def _represent(distances, dtype):
    """The distances in X's dtype, or a ValueError if it cannot hold them."""
    with np.errstate(over="ignore"):
        distances = distances.astype(dtype, copy=False)
    if not np.all(np.isfinite(distances)):
        raise ValueError(
            "X is too far from the centres: a distance exceeds the range of "
            f"{dtype}, {np.finfo(dtype).max:.3g}."
        )
    return distances


def _membership_sigma(sigma, inertia, rows, units):
    """`sigma_` of a run that ended at sigma, with the inertia in the same units."""
    if sigma == 0.0:
        sigma = np.sqrt(inertia / (rows.weight * rows.n_features))
    return float(units.back(sigma))


def _history_of(run, units):
    """`history_` of a run, in the units of the data."""
    history = {
        name: np.array(entries)
        for name, entries in run.history.items()
        if name != "centers"
    }
    for name in "sigma", "shift":
        history[name] = units.back(history[name])
    largest = np.finfo(np.float64).max  # a bad start may cost more than that
    for name in "free_energy", "inertia":
        energies = units.energies_back(history[name])
        history[name] = np.clip(energies, -largest, largest)
    return history


def _fitted_attributes(rows, centers, sigma, inertia):
    """What a callback's copy of the estimator needs, as if fit had ended here."""
    return {
        "cluster_centers_": stored(rows.units.back(centers), rows.dtype),
        "sigma_": _membership_sigma(sigma, inertia, rows, rows.units),
    }


@contextmanager
def as_it_was_on_error(estimator):
    """Undo every change to the estimator if the block does not finish.

    What scikit-learn keeps of callbacks stays: they must be told of the end.
    """
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        after = dict(vars(estimator))
        vars(estimator).clear()
        vars(estimator).update(before)
        for name in "_callback_fit_ctx", "_skl_callbacks_to_teardown":
            if name in after:
                setattr(estimator, name, after[name])
        raise
