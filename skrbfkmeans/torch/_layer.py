"""K-means as a layer of a network: responsibilities, and a loss to train by."""

# SPDX-License-Identifier: BSD-3-Clause

import math
from numbers import Real

import numpy as np
import torch
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .._checks import (
    check_alpha,
    check_batch,
    check_count,
    check_init,
    check_learning_rate,
    check_sigma,
    shown,
)
from .._rbfkmeans import RBFKMeans
from .._run.annealing import LEAST_MASS, LEAST_SHARE
from .._run.starts import sigmas_of, starting_centers, unit_size
from .._run.streaming import Stream
from ..schedules import Schedule
from ._checks import (
    as_array,
    check_device,
    check_floating,
    draw_seed,
    in_own_unit,
    kind,
    output_dtype,
    scaled,
    wide_dtype,
    working_dtype,
)
from ._energy import (
    FreeEnergy,
    SquaredDistances,
    differences,
    full_precision,
    middle_of,
)
from ._entmax import entmax
from ._parametrized import recompute, set_tensor, unparametrized
from ._tracing import is_exporting, number_like, refuse_export, shape_of

# In the error of what changes the layer, while it is exported.
INSTEAD = "it changes the layer; call it before, and export forward"


class RBFKMeansLayer(torch.nn.Module):
    r"""Soft k-means as a layer: an encoder and its clusters, trained by one loss.

    The same model as `skrbfkmeans.RBFKMeans`. A row shares itself out over the
    centres by responsibilities, the alpha-entmax of :math:`-d^2 / (2 \sigma^2)`;
    `forward` returns them. `free_energy` is the loss,

    .. math::

        F_\sigma = \sum_i w_i \min_r \Bigl[ \sum_j r_j d_{ij}^2
                   - 2 \sigma^2 H_\alpha(r) \Bigr].

    By the envelope theorem its gradient is that of :math:`\sum_{ij} w_i r_{ij}
    d_{ij}^2` with r held fixed, so gradient descent on the centres with step :math:`1 /
    (2 N_j)`, where :math:`N_j = \sum_i w_i r_{ij}`, is the EM step that `em_step_`
    makes. Do not use :math:`\sum r d^2` of the responsibilities that `forward` returns
    as a loss: differentiated through r, that is another method, in which centres repel.

    Parameters
    ----------
    n_clusters : int
        Number of centres, k.
    n_features : int
        Number of features of a row, d.
    alpha : float, default=1.5
        Tsallis index of the responsibilities, at least 1: 1 is softmax,
        1.5 entmax-1.5, 2 sparsemax. The larger, the sparser.
    sigma : float or Schedule, default=1.0
        Temperature, in the units of the rows; 0 is the hard limit. Or an object from
        `skrbfkmeans.schedules`, which `step_sigma_` or `set_progress_` follow; unless
        its unit is "absolute", `init_centers_` or `measure_` must first measure that.
    device : device, default=None
        Where the centres are, PyTorch's default device if None.
    dtype : dtype, default=None
        Type of the centres, PyTorch's default dtype if None.

    Attributes
    ----------
    centers : Parameter of shape (n_clusters, n_features)
        The centres, at first standard normal; see `init_centers_`.
    sigma : tensor, float64
        The temperature, a buffer without dimensions. It stays float64 whatever the
        dtype of the module becomes. NaN as long as the unit of a schedule has not been
        measured. ``layer.sigma.fill_(0.5)`` sets it by hand.
    unit_size : tensor, float64
        Size of the schedule's unit, in the units of the rows; a buffer.
    position : tensor, int64
        Which temperature of the schedule `sigma` is; a buffer.
    schedule : Schedule or None
        The schedule, if `sigma` is one. It is not in ``state_dict()``, which holds
        the centres and the buffers.

    See Also
    --------
    skrbfkmeans.RBFKMeans : The estimator; `from_estimator` and `to_estimator` convert.
    entmax : The map from scores to responsibilities.

    Notes
    -----
    No root of a distance is taken, so gradients are finite for a row on a centre, and
    however low the temperature. Squared distances are products about the median of the
    centres, and those that would lose digits are taken from differences. A training
    step needs memory for some (n_rows, n_clusters) matrices. Rows and centres in
    float16 or bfloat16, or under autocast, are computed in float32. Squared distances
    beyond the range of the dtype give infinities or NaN.

    On a GPU each call waits for the device a few times: to read sigma, and to see which
    distances lose digits and when the support has stopped changing. Products of
    matrices should have full precision (``torch.set_float32_matmul_precision``).
    ``DistributedDataParallel`` and the like see `forward` alone: put the encoder and
    the layer into a module whose `forward` returns the loss.

    Reading sigma breaks the graph of ``torch.compile``. ``torch.func.vmap`` and forward
    mode are not supported; `forward` takes any number of leading dimensions.

    ``torch.export.export``, ``torch.onnx.export`` and ``torch.jit.trace`` write down
    `forward`, and in a module that calls them `free_energy` and `predict`, for any
    number of rows. In the program squared distances are those of differences, which
    takes memory for (n_rows, n_clusters, n_features) numbers; sigma, 0 included, is a
    number like the centres, NaN if it is not known. There are no derivatives, and rows
    and weights are not checked; labels may differ where distances differ by rounding.
    `init_centers_`, `measure_` and `em_step_` are an error there.

    Centres may be parametrized (``torch.nn.utils.parametrize``, and the older functions
    of ``torch.nn.utils``): `init_centers_` and `em_step_` set them by
    ``right_inverse``, and raise a RuntimeError if that does not give what they ask for.

    References
    ----------
    .. [1] F. Arredondo, Ucan Puc and Astengo Noguez, "K-Means as a Radial Basis
       function Network: a Variational and Gradient-based Equivalence",
       arXiv:2603.04625 (2026).

    Examples
    --------
    >>> import torch
    >>> from skrbfkmeans.torch import RBFKMeansLayer
    >>> x = torch.tensor([[0.0], [1.0], [9.0], [10.0]])
    >>> layer = RBFKMeansLayer(n_clusters=2, n_features=1, sigma=2.0)
    >>> layer = layer.init_centers_(x, random_state=0)
    >>> optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    >>> for _ in range(50):
    ...     optimizer.zero_grad()
    ...     layer.free_energy(x).backward()
    ...     optimizer.step()
    >>> layer.centers.detach().sort(dim=0).values
    tensor([[0.5000],
            [9.5000]])
    >>> layer(torch.tensor([[4.8]])).detach().sort().values
    tensor([[0.3429, 0.6571]])
    """

    def __init__(
        self, n_clusters, n_features, alpha=1.5, sigma=1.0, *, device=None, dtype=None
    ):
        super().__init__()
        self.n_clusters = check_count(n_clusters, "n_clusters")
        self.n_features = check_count(n_features, "n_features")
        self.alpha = check_alpha(alpha)
        self.schedule = sigma if isinstance(sigma, Schedule) else None
        if dtype is not None and not dtype.is_floating_point:
            raise TypeError(f"dtype must be a floating point type; got {dtype}.")
        shape = self.n_clusters, self.n_features
        centers = torch.randn(shape, device=device, dtype=dtype)
        self.centers = torch.nn.Parameter(centers)
        device = _with_float64(centers.device)
        number = {"device": device, "dtype": torch.float64}
        size = 1.0
        if self.schedule is None:
            sigma = check_sigma(sigma)
        else:
            size = 1.0 if self.schedule.unit == "absolute" else math.nan
            sigma = sigmas_of(self.schedule, size)[0]
        self.register_buffer("sigma", torch.tensor(sigma, **number))
        self.register_buffer("unit_size", torch.tensor(size, **number))
        self.register_buffer("position", torch.tensor(0, device=centers.device))

    # --- the model ---

    def forward(self, x):
        r"""Responsibilities of the centres for each row.

        Parameters
        ----------
        x : tensor of shape (..., n_features)
            The rows.

        Returns
        -------
        r : tensor of shape (..., n_clusters)
            Probabilities, in the dtype that x and the centres promote to, float32 at
            least under autocast. For ``alpha > 1`` those of centres farther by
            :math:`2 \sigma^2 / (\alpha - 1)`, in squared distance, than the nearest
            are exactly 0. At ``sigma = 0``, 1 for the nearest centre, the first in
            case of ties, and gradients of 0.

        Raises
        ------
        TypeError
            If x is not a tensor of floating point numbers.
        ValueError
            If x has another number of features or is on another device.
        RuntimeError
            If the unit of the schedule has not been measured.
        """
        self._check_x(x)
        with full_precision(x.device):
            r = self._shares(self._squared_distances(x), self._two_sigma2())
        dtype = torch.promote_types(x.dtype, self.centers.dtype)
        r = r.to(output_dtype(dtype, x.device))
        return r if is_exporting() else r.reshape(*x.shape[:-1], self.n_clusters)

    def free_energy(self, x, weight=None, reduction="mean"):
        r"""The loss, differentiable with respect to the rows and the centres.

        Its first derivative holds the responsibilities fixed, which is exact by the
        envelope theorem; its second is that of the free energy, through them. At
        ``sigma = 0`` it is the squared distance to the nearest centre.

        Parameters
        ----------
        x : tensor of shape (..., n_features)
            The rows.
        weight : tensor of shape (...), default=None
            Weights of the rows, all 1 by default; not negative.
        reduction : {"mean", "sum", "none"}, default="mean"
            The weighted mean over rows, the weighted sum, or the terms of that sum.

        Returns
        -------
        value : tensor
            Free energy, of the shape (...) for ``reduction="none"``, else a single
            number; float32 or float64.

        Raises
        ------
        TypeError
            If x or weight is not a tensor of numbers of the kind described.
        ValueError
            If a shape or device does not suit, if a weight is negative or not finite,
            if all weights are zero for the mean, or if reduction is another word.
        RuntimeError
            If the unit of the schedule has not been measured.

        See Also
        --------
        skrbfkmeans.energy.free_energy : The weighted sum, of arrays.
        """
        self._check_x(x)
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(
                f'reduction must be "mean", "sum" or "none"; got {reduction!r}.'
            )
        weight = self._check_weight(weight, x, may_vanish=reduction != "mean")
        recompute(self, "centers")
        two_sigma2 = self._two_sigma2()
        with full_precision(x.device):
            d2 = self._squared_distances(x)
            r = self._shares(d2, two_sigma2)
            if is_exporting():
                return self._exported_energy(d2, r, two_sigma2, weight, reduction)
            values = FreeEnergy.apply(d2, r, two_sigma2, self.alpha)
            values = values.reshape(x.shape[:-1])
            if weight is None:
                return getattr(values, reduction)() if reduction != "none" else values
            if reduction == "none":
                return (values * weight.to(wide_dtype(x.device))).to(values.dtype)
            weight, exponent = in_own_unit(weight)
            total = (values * weight).sum()
            if reduction == "mean":
                return (total / weight.sum()).to(values.dtype)
            return scaled(total, exponent).to(values.dtype)

    @torch.no_grad()
    def predict(self, x):
        """Nearest centre of each row; the first, in case of ties.

        The labels are those of ``to_estimator().predict``, to the last one: it is
        asked, on the CPU.

        Parameters
        ----------
        x : tensor of shape (..., n_features)
            The rows.

        Returns
        -------
        labels : tensor of shape (...), int64
            Indices of the centres, on the device of x. They do not depend on sigma.

        Raises
        ------
        TypeError
            If x is not a tensor of floating point numbers.
        ValueError
            If x has another number of features, is on another device, or is not
            finite.
        """
        if is_exporting():
            self._check_x(x)
            return self._squared_distances(x).argmin(dim=-1)
        self._check_x(x, finite=True)
        recompute(self, "centers")
        rows = as_array(x).reshape(-1, self.n_features)
        labels = np.empty(0, np.int64)
        if len(rows):
            estimator = self._as_estimator(sigma=1.0)
            labels = estimator.predict(rows).astype(np.int64)
        return torch.from_numpy(labels).to(x.device).reshape(x.shape[:-1])

    # --- the centres ---

    @torch.no_grad()
    def init_centers_(self, x, weight=None, random_state=None):
        """Choose rows to be the centres, by greedy k-means++.

        They are those that ``RBFKMeans(random_state=random_state)`` starts from. The
        unit of a schedule is measured too, and the schedule starts anew.

        Parameters
        ----------
        x : tensor of shape (..., n_features)
            The rows, at least `n_clusters` of them. They are copied to the CPU.
        weight : tensor of shape (...), default=None
            Weights of the rows, all 1 by default; not negative.
        random_state : int, RandomState, torch.Generator or None, default=None
            Source of the draws; None is PyTorch's own, so that ``torch.manual_seed``
            makes them reproducible.

        Returns
        -------
        self : RBFKMeansLayer
            The layer.

        Raises
        ------
        TypeError
            If x or weight is not a tensor of numbers of the kind described.
        ValueError
            If a shape or device does not suit, if x is not finite or has too few rows,
            or if a weight is negative or not finite, or all are zero.
        RuntimeError
            If a parametrization of the centres does not take these.
        """
        refuse_export("init_centers_", INSTEAD)
        self._check_x(x, finite=True)
        if x.numel() < self.n_clusters * self.n_features:
            raise ValueError(
                f"x has {x.numel() // self.n_features} rows, fewer than "
                f"n_clusters={self.n_clusters}."
            )
        if random_state is None or isinstance(random_state, torch.Generator):
            random_state = draw_seed(random_state)
        batch = self._as_batch(x, weight)
        with batch.rows(batch.units()) as rows:
            centers = starting_centers(
                "k-means++", rows, batch.X, self.n_clusters,
                check_random_state(random_state),
            )  # fmt: skip
            set_tensor(self, "centers", torch.from_numpy(rows.units.back(centers)))
            self._measure(rows, centers)
        return self._set_position(0)

    @torch.no_grad()
    def measure_(self, x, weight=None):
        """Measure the unit of the schedule anew; the centres and its position stay.

        For rows whose spread changes, as those of an encoder in training do: sigma then
        keeps its multiple of the spread, and memberships do not depend on the scale of
        the rows. The free energy falls with the square of that scale all the same: fix
        it as well, as by a batch normalisation without scale and offset.

        Parameters
        ----------
        x : tensor of shape (..., n_features)
            The rows.
        weight : tensor of shape (...), default=None
            Weights of the rows, all 1 by default; not negative.

        Returns
        -------
        self : RBFKMeansLayer
            The layer.

        Raises
        ------
        TypeError
            If x or weight is not a tensor of numbers of the kind described.
        ValueError
            If a shape or device does not suit, if x is not finite or has no rows, or
            if a weight is negative or not finite, or all are zero.
        """
        refuse_export("measure_", INSTEAD)
        self._check_x(x, finite=True)
        recompute(self, "centers")
        if x.numel() == 0:
            raise ValueError("x has no rows.")
        batch = self._as_batch(x, weight)
        centers = check_init(self._finite_centers(), *self.centers.shape, batch.X.dtype)
        with batch.rows(batch.units(centers)) as rows:
            self._measure(rows, rows.units.into(centers.astype(np.float64)))
        return self._set_position(int(self.position))

    @torch.no_grad()
    def em_step_(self, x, weight=None, learning_rate=1.0):
        r"""Move the centres towards the weighted means of their share of the rows.

        .. math:: \mu_j \leftarrow \mu_j + \eta (m_j - \mu_j)

        At ``learning_rate`` 1 this is the M-step in closed form, and equals a gradient
        step of :math:`1 / (2 N_j)` on ``free_energy(x, reduction="sum")``. A centre
        without mass, less than 1e-12 of the total at a positive sigma, stays.

        Parameters
        ----------
        x : tensor of shape (..., n_features)
            The rows.
        weight : tensor of shape (...), default=None
            Weights of the rows, all 1 by default; not negative. If all are 0, nothing
            moves.
        learning_rate : float, default=1.0
            Length of the step, between 0 and 2. The free energy does not rise for
            values up to 1.

        Returns
        -------
        self : RBFKMeansLayer
            The layer.

        Raises
        ------
        TypeError
            If x or weight is not a tensor of numbers of the kind described.
        ValueError
            If a shape or device does not suit, if x is not finite, if a weight is
            negative or not finite, or if learning_rate is not between 0 and 2.
        RuntimeError
            If the unit of the schedule has not been measured, or if a parametrization
            of the centres does not take these; then they stay.
        """
        refuse_export("em_step_", INSTEAD)
        self._check_x(x, finite=True)
        check_learning_rate(learning_rate)
        weight = self._check_weight(weight, x, may_vanish=True)
        recompute(self, "centers")
        with full_precision(x.device):
            wide = wide_dtype(x.device)
            two_sigma2 = self._two_sigma2()
            r = self._shares(self._squared_distances(x), two_sigma2).to(wide)
            total = float(r.shape[0])
            if weight is not None:
                weight = in_own_unit(weight)[0].reshape(-1, 1)
                r, total = r * weight, weight.sum()
            is_hard = two_sigma2 == 0.0
            mass = r.sum(dim=0)
            heavy = mass > (LEAST_MASS if is_hard else LEAST_SHARE * total)
            centers = self.centers.to(wide)
            origin = middle_of(centers)
            rows = x.reshape(-1, self.n_features).to(wide) - origin
            means = (r.T @ rows) / mass.clamp_min(LEAST_MASS)[:, None] + origin
            moves = learning_rate * (means - centers)
            moved = means if learning_rate == 1.0 else centers + moves
            set_tensor(
                self, "centers", torch.where(heavy[:, None], moved, centers), centers
            )
        return self

    # --- the temperature ---

    @torch.no_grad()
    def step_sigma_(self):
        """Go on to the next temperature of the schedule.

        After the last, which is 0 if the schedule hardens, nothing changes; nor
        without a schedule.

        Returns
        -------
        self : RBFKMeansLayer
            The layer.

        See Also
        --------
        set_progress_ : The same by the share of the training that is done.
        """
        return self._set_position(int(self.position) + 1)

    @torch.no_grad()
    def set_progress_(self, progress):
        """Set the temperature by the share of the training that is done.

        Every temperature of the schedule gets an equal share of it, the 0 that ends
        a schedule that hardens included. Without a schedule nothing changes.

        Parameters
        ----------
        progress : float
            From 0, the first temperature, to 1, the last.

        Returns
        -------
        self : RBFKMeansLayer
            The layer.

        Raises
        ------
        ValueError
            If progress is not between 0 and 1.

        See Also
        --------
        step_sigma_ : One temperature after the other.
        """
        if not isinstance(progress, Real) or not 0.0 <= progress <= 1.0:
            raise ValueError(
                f"progress must be between 0 and 1; got {shown(progress)}."
            )
        if self.schedule is None:
            return self
        n_temperatures = len(sigmas_of(self.schedule, 1.0))
        return self._set_position(int(progress * n_temperatures + 1e-9))

    # --- to and from the estimator ---

    @classmethod
    def from_estimator(cls, model):
        """Make a layer of a fitted estimator.

        Parameters
        ----------
        model : RBFKMeans
            A fitted estimator. Its centres, alpha and the temperature of its
            `predict_proba` are taken.

        Returns
        -------
        layer : RBFKMeansLayer
            A layer on the CPU, in the precision of the centres.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        TypeError
            If model is not an `RBFKMeans`.

        Examples
        --------
        >>> import torch
        >>> from skrbfkmeans import RBFKMeans
        >>> from skrbfkmeans.torch import RBFKMeansLayer
        >>> model = RBFKMeans(2, schedule=1.0, random_state=0)
        >>> model = model.fit([[0.0], [1.0], [9.0], [10.0]])
        >>> layer = RBFKMeansLayer.from_estimator(model)
        >>> x = torch.tensor([[2.0], [7.0]])
        >>> bool((layer.predict(x).numpy() == model.predict(x)).all())
        True
        """
        if not isinstance(model, RBFKMeans):
            raise TypeError(
                f"model must be an RBFKMeans; it is a {type(model).__name__}."
            )
        check_is_fitted(model)
        sigma = model.sigma_
        if not isinstance(model.proba_sigma, str):
            sigma = check_sigma(model.proba_sigma, "proba_sigma")
        centers = torch.from_numpy(np.array(model.cluster_centers_))
        cls = unparametrized(cls, "centers")
        layer = cls(*centers.shape, float(model.alpha), float(sigma), device="cpu")
        layer.centers = torch.nn.Parameter(centers)
        return layer

    def to_estimator(self):
        """Make a fitted estimator of the layer.

        Its labels are those of the layer. It has `cluster_centers_`, `sigma_` and
        `n_features_in_`, so `predict`, `predict_proba`, `transform` and `score` work;
        `labels_`, `inertia_`, `n_iter_`, `hardened_` and `history_` belong to a fit and
        are missing. The centres have no mass, so a first `partial_fit` makes an EM
        step.

        Returns
        -------
        model : RBFKMeans
            The estimator, with ``schedule`` the present sigma. Centres in float16 or
            bfloat16 become float32.

        Raises
        ------
        ValueError
            If the centres are not finite.
        RuntimeError
            If the unit of the schedule has not been measured.
        """
        recompute(self, "centers")
        return self._as_estimator(self._known_sigma())

    # --- internals ---

    def extra_repr(self):
        """Arguments in the representation of the layer.

        Returns
        -------
        text : str
            Number of centres and features, alpha and sigma.
        """
        sigma = "unknown" if self.sigma.is_meta else f"{self.sigma.item():.6g}"
        text = (
            f"n_clusters={self.n_clusters}, n_features={self.n_features}, "
            f"alpha={self.alpha:g}, sigma={sigma}"
        )
        return text if self.schedule is None else f"{text}, schedule={self.schedule}"

    def _apply(self, fn, *args, **kwargs):
        """Move or cast the module, but never cast the temperature."""
        exact = {name: self._buffers.pop(name) for name in ("sigma", "unit_size")}
        try:
            super()._apply(fn, *args, **kwargs)
        finally:
            self._buffers.update(exact)
        device = _with_float64(self.centers.device)
        for name, buffer in exact.items():
            is_lost = buffer.is_meta and device.type != "meta"
            move = torch.empty_like if is_lost else torch.Tensor.to
            self._buffers[name] = move(buffer, device=device)
        return self

    def _squared_distances(self, x):
        """Of all rows to all centres, of shape (n_rows, n_clusters)."""
        dtype = working_dtype(torch.promote_types(x.dtype, self.centers.dtype))
        if is_exporting():
            x = x.unflatten(-1, (self.n_features,)).detach()  # asks for that many
            return differences(x.to(dtype), self.centers.detach().to(dtype))
        rows = x.reshape(-1, self.n_features).to(dtype)
        return SquaredDistances.apply(rows, self.centers.to(dtype))

    def _shares(self, d2, two_sigma2):
        """Responsibilities, of squared distances."""
        tiny = torch.finfo(d2.dtype).tiny
        if is_exporting():  # both, for sigma is a number in the program
            is_hard = two_sigma2 < number_like(tiny, two_sigma2)
            gaps = d2 - d2.amin(dim=-1, keepdim=True)
            soft = entmax(-gaps / two_sigma2.masked_fill(is_hard, 1.0), self.alpha)
            return torch.where(is_hard, _one_hot(d2), soft)
        if two_sigma2 < tiny:
            return _one_hot(d2)
        # entmax ignores a common offset, and so does its derivative
        gaps = d2 - d2.detach().amin(dim=-1, keepdim=True)
        return entmax(gaps.div_(-two_sigma2), self.alpha)

    def _exported_energy(self, d2, r, two_sigma2, weight, reduction):
        """The free energy, without a look at any value."""
        values = FreeEnergy.forward(d2, r, two_sigma2, self.alpha)
        if weight is None:
            return values if reduction == "none" else getattr(values, reduction)()
        dtype, weight = values.dtype, weight.to(torch.float64)
        if reduction == "mean":
            weight = weight / weight.flatten().amax(dim=0)
            return ((values * weight).sum() / weight.sum()).to(dtype)
        values = values * weight
        return (values if reduction == "none" else values.sum()).to(dtype)

    def _two_sigma2(self):
        if is_exporting():
            if torch.jit.is_tracing():  # it has the number at hand
                self._known_sigma()
            return 2.0 * self.sigma * self.sigma
        sigma = self._known_sigma()
        return 2.0 * sigma * sigma

    def _known_sigma(self):
        """Sigma as a float."""
        sigma = float(self.sigma.numpy() if torch.jit.is_tracing() else self.sigma)
        if math.isnan(sigma):
            raise RuntimeError(
                "sigma is not known yet: the unit of its schedule is measured by "
                "init_centers_(x) or measure_(x)."
            )
        return sigma

    def _set_position(self, position):
        if self.schedule is None:
            return self
        sigmas = sigmas_of(self.schedule, float(self.unit_size))
        position = min(position, len(sigmas) - 1)
        self.position.fill_(position)
        self.sigma.fill_(float(sigmas[position]))
        return self

    def _as_batch(self, x, weight):
        """Rows and weights as the estimator would have them."""
        weight = self._check_weight(weight, x)
        weights = None if weight is None else as_array(weight).reshape(-1)
        return check_batch(as_array(x).reshape(-1, self.n_features), weights)

    def _measure(self, rows, centers):
        """Measure the unit of the schedule, with centres in the units of the rows."""
        if self.schedule is not None:
            size = unit_size(self.schedule.unit, rows, centers, self.alpha)
            self.unit_size.fill_(float(rows.units.back(size)))

    def _finite_centers(self):
        """A copy of the centres, as an array."""
        centers = as_array(self.centers).copy()
        if not np.isfinite(centers).all():
            raise ValueError("centers contain NaN or infinity.")
        return centers

    def _as_estimator(self, sigma):
        """A fitted estimator with these centres."""
        centers = self._finite_centers()
        model = RBFKMeans(self.n_clusters, schedule=sigma, alpha=self.alpha)
        model.cluster_centers_ = centers
        model.sigma_ = sigma
        model.n_features_in_ = self.n_features
        model._stream = Stream(
            centers.astype(np.float64), np.zeros(self.n_clusters), np.array([sigma])
        )
        return model

    # --- checks ---

    def _check_x(self, x, finite=False):
        check_floating(x, "x")
        if x.ndim == 0 or shape_of(x)[-1] != self.n_features:
            raise ValueError(
                f"x must have n_features={self.n_features} entries along its last "
                f"dimension; its shape is {shape_of(x)}."
            )
        check_device(x, "x", self.centers, "centers")
        if finite and not x.isfinite().all():
            raise ValueError("x contains NaN or infinity.")

    def _check_weight(self, weight, x, may_vanish=False):
        if weight is None:
            return None
        if not isinstance(weight, torch.Tensor) or weight.is_complex():
            raise TypeError(
                f"weight must be a tensor of real numbers; got {kind(weight)}."
            )
        if shape_of(weight) != shape_of(x)[:-1]:
            raise ValueError(
                f"weight must have one entry a row, the shape {tuple(x.shape[:-1])}; "
                f"its shape is {tuple(weight.shape)}."
            )
        check_device(weight, "weight", x, "x")
        if is_exporting():  # a program asks for no values
            return weight
        if not (weight.isfinite() & (weight >= 0)).all():
            raise ValueError("weight has a negative, infinite or NaN entry.")
        if not may_vanish and weight.numel() and not weight.any():
            raise ValueError("weight is zero for every row: no weight is left.")
        return weight


def _one_hot(d2):
    """Responsibilities at sigma = 0."""
    nearest = d2.argmin(dim=-1, keepdim=True)
    one_hot = torch.zeros_like(d2).scatter(-1, nearest, 1.0)
    return one_hot + 0.0 * d2.gather(-1, nearest)  # NaN stays NaN


def _with_float64(device):
    """The device, or the CPU where the device has no float64."""
    return torch.device("cpu") if device.type == "mps" else device
