"""Figures of a fit: how it cooled, where its centres went, what belongs to several.

Each display follows scikit-learn's convention: `from_estimator` computes what is
drawn, `plot` draws it, and can do so again on other axes. Matplotlib is imported when
something is drawn.
"""

# SPDX-License-Identifier: BSD-3-Clause

import numpy as np
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_array, check_is_fitted

from ._checks import check_sigma, shown
from ._sklearn import check_sample_weight
from .energy import critical_sigma, hardening_sigma, responsibilities
from .entmax import tsallis_entropy

__all__ = ["AnnealingDisplay", "MembershipDisplay", "TrajectoryDisplay"]

# A point belongs to one cluster for certain if its membership is at least this.
CERTAIN = 0.99

# How much of a colour is left where it fills an area.
TINT = 0.55

# Colours that people tell apart who see fewer than most: blue, red, green, amber.
BLUE, RED, GREEN, AMBER = "#0072b2", "#c44e52", "#009e73", "#b8860b"


class AnnealingDisplay:
    """How a fit cooled, iteration by iteration, in three panels.

    The first shows the temperature between the critical temperature, above which all
    centres meet, and the hardening temperature, below which no row has more than one
    membership. The second shows the free energy, which lies between its two bounds:
    the inertia, and the inertia less ``2 * sigma**2`` times the largest entropy. The
    third shows how much of the weight is soft, and how many memberships a row has. The
    k-means phase is shaded. Lines mark where the schedule reheated, and where swaps of
    centres were kept.

    It is recommended to use `from_estimator`.

    Parameters
    ----------
    history : dict of str to ndarray of shape (n_iter,)
        The attribute ``history_`` of a fitted model.
    lower_bound : ndarray of shape (n_iter,)
        Lower bound on the free energy.
    critical_sigma : float
        The critical temperature, in the units of the data.
    hardening_sigma : float
        The hardening temperature of the fitted centres, in the units of the data.

    Attributes
    ----------
    ax_ : ndarray of shape (3,) of matplotlib Axes
        Temperature, energy and softness.
    figure_ : matplotlib Figure
        The figure they are in.

    See Also
    --------
    TrajectoryDisplay : Where the centres went meanwhile.
    skrbfkmeans.energy.critical_sigma : The upper temperature.
    skrbfkmeans.energy.hardening_sigma : The lower temperature.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skrbfkmeans import RBFKMeans
    >>> from skrbfkmeans.inspection import AnnealingDisplay
    >>> X = load_iris().data
    >>> model = RBFKMeans(3, random_state=0).fit(X)
    >>> display = AnnealingDisplay.from_estimator(model, X)
    >>> [ax.get_ylabel() for ax in display.ax_]
    ['temperature σ', 'energy', 'soft share']
    """

    def __init__(self, history, lower_bound, critical_sigma, hardening_sigma):
        self.history = history
        self.lower_bound = lower_bound
        self.critical_sigma = critical_sigma
        self.hardening_sigma = hardening_sigma

    @classmethod
    def from_estimator(cls, estimator, X, *, sample_weight=None, ax=None):
        """Draw how an estimator cooled.

        Parameters
        ----------
        estimator : RBFKMeans or Pipeline
            A fitted model, or a fitted pipeline that ends in one.
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The rows it was fitted to.
        sample_weight : array-like of shape (n_samples,), default=None
            The weights it was fitted with.
        ax : matplotlib Axes or array-like of three, default=None
            Where to draw; one Axes is divided into three panels.

        Returns
        -------
        display : AnnealingDisplay
            What was drawn.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        NotFittedError
            If the estimator is not fitted.
        ValueError
            If the estimator was fitted by ``partial_fit``, which keeps no history.
        """
        _import_pyplot(cls)
        model, X = _last_step(estimator, X)
        if not hasattr(model, "history_"):
            raise ValueError(
                f"This {type(model).__name__} has no history: it was fitted by "
                "partial_fit, and only fit keeps one."
            )
        k, alpha = len(model.cluster_centers_), float(model.alpha)
        weights = check_sample_weight(sample_weight, X, dtype=np.float64)
        entropy = float(tsallis_entropy(np.full(k, 1.0 / k), alpha))
        depth = 2.0 * model.history_["sigma"] ** 2 * entropy * weights.sum()
        display = cls(
            model.history_,
            model.history_["inertia"] - depth,
            critical_sigma(X, k, alpha=alpha, sample_weight=sample_weight),
            hardening_sigma(X[weights > 0.0], model.cluster_centers_, alpha=alpha),
        )
        return display.plot(ax)

    def plot(self, ax=None):
        """Draw the three panels.

        Parameters
        ----------
        ax : matplotlib Axes or array-like of three, default=None
            Where to draw; one Axes is divided into three panels.

        Returns
        -------
        self : AnnealingDisplay
            The display.
        """
        self.ax_ = _three_panels(_import_pyplot(type(self)), ax)
        self.figure_ = self.ax_[0].figure
        iterations = np.arange(1, len(self.history["sigma"]) + 1)
        self._plot_temperature(self.ax_[0], iterations)
        self._plot_energy(self.ax_[1], iterations)
        self._plot_softness(self.ax_[2], iterations)
        self._mark_phases(iterations)
        self.ax_[2].set_xlabel("iteration")
        self.ax_[2].xaxis.get_major_locator().set_params(integer=True)
        return self

    def _plot_temperature(self, ax, iterations):
        sigma = self.history["sigma"]
        soft = sigma > 0.0
        ax.plot(iterations[soft], sigma[soft], color=BLUE, marker="o", markersize=4)
        limits = {"critical": self.critical_sigma, "hardening": self.hardening_sigma}
        for (name, limit), style in zip(limits.items(), ("--", ":"), strict=True):
            if 0.0 < limit < np.inf:
                ax.axhline(limit, color="0.45", linestyle=style, label=name)
        ax.set(ylabel="temperature σ", yscale="log")
        if ax.get_legend_handles_labels()[0]:
            ax.legend(fontsize="small", ncols=2)

    def _plot_energy(self, ax, iterations):
        inertia, energy = self.history["inertia"], self.history["free_energy"]
        ax.fill_between(
            iterations, self.lower_bound, inertia, color=AMBER, alpha=0.2, linewidth=0,
            label="bounds",
        )  # fmt: skip
        ax.plot(iterations, inertia, color=AMBER, label="inertia")
        ax.plot(
            iterations, energy, color=RED, marker="o", markersize=4, label="free energy"
        )
        shown = np.append(inertia, energy)
        margin = 0.08 * np.ptp(shown) or 0.05 * abs(shown[0]) or 1.0
        ax.set(ylabel="energy", ylim=(shown.min() - margin, shown.max() + margin))
        ax.legend(fontsize="small", ncols=3)

    def _plot_softness(self, ax, iterations):
        ax.plot(
            iterations, self.history["soft_fraction"], color=GREEN, marker="o",
            markersize=4,
        )  # fmt: skip
        ax.set(ylabel="soft share", ylim=(-0.05, 1.05))
        ax.yaxis.label.set_color(GREEN)
        support = ax.twinx()
        support.plot(iterations, self.history["support"], color="0.35", linestyle="--")
        support.set_ylabel("memberships of a row", color="0.35")
        support.set_ylim(bottom=0.0)

    def _mark_phases(self, iterations):
        sigma, kept = self.history["sigma"], self.history["swaps_kept"]
        reheated = iterations[1:][np.diff(sigma) > 0.0]
        swapped = iterations[kept > 0]
        hard = np.flatnonzero(sigma == 0.0)
        for ax in self.ax_:
            if hard.size:
                first, last = iterations[hard[0]], iterations[-1]
                ax.axvspan(first - 0.5, last + 0.5, color="0.5", alpha=0.15, zorder=0)
            for iteration in reheated:
                ax.axvline(iteration, color=RED, linewidth=1, alpha=0.6)
            for iteration in swapped:
                ax.axvline(iteration + 0.5, color=GREEN, linewidth=1, alpha=0.6)
        names = [
            name
            for name, where in [
                ("shaded: k-means", hard),
                ("red lines: reheated", reheated),
                ("green lines: swaps kept", swapped),
            ]
            if where.size
        ]
        self.ax_[0].set_title(", ".join(names), fontsize="small", color="0.45")


class TrajectoryDisplay:
    """The paths of the centres over the data, in a plane.

    It is recommended to use `from_estimator`.

    Parameters
    ----------
    path : ndarray of shape (n_iter + 1, n_clusters, 2)
        Where the centres were before each iteration, and at last.
    points : ndarray of shape (n_points, 2)
        Rows of the data, to draw the paths over.
    axis_labels : tuple of two str
        What the two axes are.

    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes.
    figure_ : matplotlib Figure
        The figure they are in.

    See Also
    --------
    AnnealingDisplay : The temperatures meanwhile.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skrbfkmeans import RBFKMeans
    >>> from skrbfkmeans.inspection import TrajectoryDisplay
    >>> X = load_iris(as_frame=True).data
    >>> model = RBFKMeans(3, store_path=True, random_state=0).fit(X)
    >>> display = TrajectoryDisplay.from_estimator(model, X, features=(2, 3))
    >>> display.axis_labels
    ('petal length (cm)', 'petal width (cm)')
    """

    def __init__(self, path, points, axis_labels):
        self.path = path
        self.points = points
        self.axis_labels = axis_labels

    @classmethod
    def from_estimator(cls, estimator, X, *, features=None, max_points=2000, ax=None):
        """Draw where the centres of an estimator went.

        Parameters
        ----------
        estimator : RBFKMeans or Pipeline
            A model fitted with ``store_path=True``, or a fitted pipeline that ends in
            one.
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The rows it was fitted to.
        features : pair of int or str, default=None
            The features to draw. By default the two that there are, or, of more, the
            first two principal components of the rows.
        max_points : int, default=2000
            Most rows that are drawn; of more, some are taken at even distances.
        ax : matplotlib Axes, default=None
            Where to draw.

        Returns
        -------
        display : TrajectoryDisplay
            What was drawn.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        NotFittedError
            If the estimator is not fitted.
        ValueError
            If the estimator has kept no path, or if `features` are not two of its
            features.
        """
        _import_pyplot(cls)
        model, X = _last_step(estimator, X)
        if not hasattr(model, "path_"):
            raise ValueError(
                f"This {type(model).__name__} has kept no path of its centres: fit it "
                "with store_path=True."
            )
        rows = X[:: max(1, -(-X.shape[0] // max_points))]
        n_iter, k, d = model.path_.shape
        if d < 2:
            raise ValueError("X has one feature; paths are drawn in a plane of two.")
        path = model.path_.reshape(n_iter * k, d)
        if features is None and d > 2:
            pca = PCA(2, random_state=0).fit(X)
            points, path = pca.transform(rows), pca.transform(path)
            shares = pca.explained_variance_ratio_
            labels = tuple(
                f"principal component {i + 1} ({share:.0%} of the variance)"
                for i, share in enumerate(shares)
            )
        else:
            names = _feature_names(model)
            pair = _feature_pair((0, 1) if features is None else features, names)
            points, path = rows[:, pair], path[:, pair]
            points = points.toarray() if sparse.issparse(points) else points
            labels = tuple(names[i] for i in pair)
        return cls(path.reshape(n_iter, k, 2), points, labels).plot(ax)

    def plot(self, ax=None):
        """Draw the rows, the paths, and the centres at their ends.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw.

        Returns
        -------
        self : TrajectoryDisplay
            The display.
        """
        pyplot = _import_pyplot(type(self))
        self.ax_ = ax = pyplot.subplots()[1] if ax is None else ax
        self.figure_ = ax.figure
        ax.scatter(*self.points.T, s=6, color="0.7", linewidths=0, rasterized=True)
        for j, color in enumerate(_colors(self.path.shape[1])):
            x, y = self.path[:, j].T
            ax.plot(x, y, color=color, linewidth=1.5, marker=".", markersize=4)
            ax.plot(x[0], y[0], "o", color=color, markerfacecolor="white", markersize=6)
            ax.plot(
                x[-1], y[-1], "o", color=color, markeredgecolor="black", markersize=8
            )
        ax.set(xlabel=self.axis_labels[0], ylabel=self.axis_labels[1])
        return self


class MembershipDisplay:
    """The plane, shaded by the memberships of its points.

    Each cluster has a colour, and a point the mixture of those it belongs to. Between
    two lines runs the soft band, where no membership reaches 0.99.

    It is recommended to use `from_estimator`.

    Parameters
    ----------
    x, y : ndarray of shape (n_x,) and (n_y,)
        Coordinates of the grid.
    memberships : ndarray of shape (n_y, n_x, n_clusters)
        Memberships of its points.
    points : ndarray of shape (n_samples, 2)
        The rows of the data.
    labels : ndarray of shape (n_samples,)
        Their labels.
    centers : ndarray of shape (n_clusters, 2) or None
        The centres, if they are to be drawn.
    axis_labels : tuple of two str
        What the two axes are.

    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes.
    figure_ : matplotlib Figure
        The figure they are in.

    See Also
    --------
    sklearn.inspection.DecisionBoundaryDisplay : Any method of any estimator.
    skrbfkmeans.energy.responsibilities : The memberships.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skrbfkmeans import RBFKMeans
    >>> from skrbfkmeans.inspection import MembershipDisplay
    >>> X = load_iris().data[:, 2:]
    >>> model = RBFKMeans(3, random_state=0).fit(X)
    >>> display = MembershipDisplay.from_estimator(model, X, grid_resolution=50)
    >>> display.memberships.shape
    (50, 50, 3)
    """

    def __init__(self, x, y, memberships, points, labels, centers, axis_labels):
        self.x = x
        self.y = y
        self.memberships = memberships
        self.points = points
        self.labels = labels
        self.centers = centers
        self.axis_labels = axis_labels

    @classmethod
    def from_estimator(
        cls, estimator, X, *, sigma=None, grid_resolution=300, margin=0.08, ax=None
    ):
        """Draw the memberships of a model of two features.

        Parameters
        ----------
        estimator : RBFKMeans or Pipeline
            A model fitted to two features, or a fitted pipeline that ends in one and
            is given two features.
        X : array-like of shape (n_samples, 2)
            The rows to draw, and to take the limits from.
        sigma : float, default=None
            Temperature of the memberships, in the units of the rows that the model
            is given. By default that of ``predict_proba``.
        grid_resolution : int, default=300
            Number of grid points along each axis.
        margin : float, default=0.08
            How far the grid goes beyond the rows, as a share of their range.
        ax : matplotlib Axes, default=None
            Where to draw.

        Returns
        -------
        display : MembershipDisplay
            What was drawn.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        NotFittedError
            If the estimator is not fitted.
        ValueError
            If X has not two features, or if sigma is negative or not finite.
        """
        _import_pyplot(cls)
        check_is_fitted(estimator)
        columns = X.columns if hasattr(X, "iloc") else None
        points = check_array(X, dtype=np.float64)
        if points.shape[1] != 2:
            raise ValueError(
                f"X has {points.shape[1]} features; memberships are drawn of models of "
                "two."
            )
        low, high = points.min(axis=0), points.max(axis=0)
        room = margin * np.where(high > low, high - low, 1.0)
        x, y = np.linspace(low - room, high + room, grid_resolution).T
        grid = np.stack(np.meshgrid(x, y), axis=2).reshape(-1, 2)
        if columns is not None:
            grid = type(X)(grid, columns=columns)
        model, inner = _last_step(estimator, grid)
        if sigma is None:
            memberships = estimator.predict_proba(grid)
        else:
            memberships = responsibilities(
                inner, model.cluster_centers_, check_sigma(sigma), alpha=model.alpha
            )
        return cls(
            x, y, memberships.reshape(len(y), len(x), -1), points, estimator.predict(X),
            None if model is not estimator else model.cluster_centers_,
            ("feature 0", "feature 1") if columns is None else tuple(columns),
        ).plot(ax)  # fmt: skip

    def plot(self, ax=None):
        """Draw the shaded plane, the rows and the centres.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw.

        Returns
        -------
        self : MembershipDisplay
            The display.
        """
        pyplot = _import_pyplot(type(self))
        self.ax_ = ax = pyplot.subplots()[1] if ax is None else ax
        self.figure_ = ax.figure
        colors = _colors(self.memberships.shape[2])
        image = 1.0 - TINT * (1.0 - self.memberships @ colors)
        extent = (self.x[0], self.x[-1], self.y[0], self.y[-1])
        ax.imshow(
            image.clip(0.0, 1.0), extent=extent, origin="lower", aspect="auto",
            interpolation="bilinear",
        )  # fmt: skip
        largest = self.memberships.max(axis=2)
        if largest.min() < CERTAIN < largest.max():
            ax.contour(
                self.x, self.y, largest, levels=[CERTAIN], colors="0.3", linewidths=0.8
            )
        ax.scatter(*self.points.T, s=10, c=0.75 * colors[self.labels], linewidths=0)
        if self.centers is not None:
            ax.scatter(
                *self.centers.T, s=70, c=colors, edgecolors="black", marker="X"
            )  # fmt: skip
        ax.set(xlabel=self.axis_labels[0], ylabel=self.axis_labels[1])
        return self


def _import_pyplot(display):
    """The module matplotlib.pyplot, or an error that tells how to get it."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(
            f"{display.__name__} draws with matplotlib, which is not installed: "
            'install it, or skrbfkmeans with its extra "plot".'
        ) from error
    return pyplot


def _last_step(estimator, X):
    """The model at the end of a fitted estimator, and X as that is given it."""
    check_is_fitted(estimator)
    if isinstance(estimator, Pipeline):
        X, estimator = estimator[:-1].transform(X), estimator[-1]
    reset = {"dtype": [np.float64, np.float32], "accept_sparse": "csr"}
    return estimator, check_array(X, **reset)


def _three_panels(pyplot, ax):
    """Three axes, one above the other: new ones, those given, or parts of one."""
    if ax is None:
        size = {"figsize": (6.4, 6.4), "layout": "constrained"}
        return pyplot.subplots(3, sharex=True, **size)[1]
    axes = np.ravel(np.asarray(ax, dtype=object))
    if len(axes) == 3:
        return axes
    if len(axes) != 1:
        raise ValueError(f"ax must be one Axes or three. Got {len(axes)} instead.")
    whole = axes[0]
    whole.set_axis_off()
    parts = whole.get_subplotspec().subgridspec(3, 1)
    return parts.subplots(sharex=True)


def _colors(k):
    """One colour a cluster, in red, green and blue; neighbours in number differ."""
    from matplotlib import colormaps
    from matplotlib.colors import hsv_to_rgb

    if k <= 10:
        return np.array(colormaps["tab10"].colors)[:k]
    hues = np.arange(k) * 0.618034 % 1.0  # the golden ratio spreads them evenly
    values = 0.75 + 0.2 * (np.arange(k) % 2)
    return hsv_to_rgb(np.column_stack([hues, np.full(k, 0.6), values]))


def _feature_names(model):
    """Names of the features of a model, or their numbers in words."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return [f"feature {i}" for i in range(model.n_features_in_)]
    return [str(name) for name in names]


def _feature_pair(features, names):
    """Indices of two features, given by index or name."""
    pair = [names.index(f) if f in names else f for f in features]
    if len(pair) == 2 and all(f in range(len(names)) for f in pair):
        return [int(f) for f in pair]
    raise ValueError(
        f"features must be two of the model's {len(names)} features, by index or by "
        f"name. Got {shown(features)} instead."
    )
