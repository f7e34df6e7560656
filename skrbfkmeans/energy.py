r"""The mathematics of soft k-means, as functions of arrays.

Responsibilities of row i are the alpha-entmax over centres j of
:math:`-d_{ij}^2 / (2 \sigma^2)`, with :math:`d_{ij}` the Euclidean distance.
Sigma is a temperature and a distance, in the units of the data.
"""

# SPDX-License-Identifier: BSD-3-Clause

from numbers import Integral, Real

import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh
from sklearn.utils import check_array

from ._checks import (
    canonical,
    check_centers,
    check_finite,
    check_weights,
    rows_in_safe_units,
    scaled,
    unscaled_inertia,
)
from .entmax import check_alpha

# Up to this many features the whole covariance is formed.
EIGH_FEATURES = 512

__all__ = ["critical_sigma", "free_energy", "hardening_sigma", "responsibilities"]

# The hardening temperature is rounded down by this much, so that rounding leaves no
# share of a second centre at it.
ROUNDING = 8.0 * np.finfo(np.float64).eps


def responsibilities(X, centers, sigma, *, alpha=1.5, sparse_output=False):
    r"""Share of each centre in each row, at temperature sigma.

    .. math::

        r_{i \cdot} = \mathrm{entmax}_\alpha(-d_{i \cdot}^2 / (2 \sigma^2)).

    For ``alpha > 1`` a centre has no share at all, exactly 0, in the rows that
    are at least :math:`2 \sigma^2 / (\alpha - 1)` farther from it, in squared
    distance, than from their nearest centre. At ``sigma = 0`` all is given to
    the nearest centre, the first in case of ties.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        The rows.
    centers : array-like of shape (n_clusters, n_features)
        The centres.
    sigma : float
        Temperature, in the units of the data; not negative.
    alpha : float, default=1.5
        Tsallis index, at least 1: 1 is softmax, 1.5 entmax-1.5, 2 sparsemax.
    sparse_output : bool, default=False
        Whether to return a sparse matrix, without the exact zeros.

    Returns
    -------
    R : ndarray or CSR matrix of shape (n_samples, n_clusters)
        Rows that sum to one; float32 for float32 data, else float64. The
        argmax of a row is its nearest centre.

    Raises
    ------
    ValueError
        If an array is not 2-D, finite and of matching shape, if sigma is
        negative or not finite, or if alpha is less than 1.

    See Also
    --------
    free_energy : What the responsibilities minimise.
    skrbfkmeans.entmax.entmax : The same map, of any scores.

    References
    ----------
    .. [1] K. Rose, "Deterministic annealing for clustering, compression,
       classification, regression, and related optimization problems",
       Proc. IEEE 86 (1998), for alpha = 1.
    .. [2] S. Miyamoto and K. Umayahara, "Fuzzy clustering by quadratic
       regularization", FUZZ-IEEE (1998), for alpha = 2.

    Examples
    --------
    >>> from skrbfkmeans.energy import responsibilities
    >>> responsibilities([[0.0], [1.0], [2.0]], [[0.0], [4.0]], 2.0).round(4)
    array([[1.    , 0.    ],
           [0.8307, 0.1693],
           [0.5   , 0.5   ]])
    """
    rows, centers, sigma, alpha, _ = _prepare(X, centers, sigma, alpha)
    with rows:
        return rows.responsibilities(centers, sigma, alpha, sparse_output)


def free_energy(
    X, centers, sigma, *, alpha=1.5, sample_weight=None, return_gradient=False
):
    r"""Free energy of the centres at temperature sigma, and its gradient.

    .. math::

        F_\sigma(\mu) = \sum_i w_i \min_r \Bigl[ \sum_j r_j d_{ij}^2
                        - 2 \sigma^2 H_\alpha(r) \Bigr],

    which for ``alpha = 1`` is :math:`-2 \sigma^2 \sum_i w_i \log \sum_j
    \exp(-d_{ij}^2 / (2 \sigma^2))`. With J the inertia and
    :math:`H_{\max} = H_\alpha(1/k, ..., 1/k)`, it lies between
    :math:`J - 2 \sigma^2 H_{\max} \sum_i w_i` and J, and tends to J as sigma
    tends to 0. Its gradient is

    .. math::

        \partial F_\sigma / \partial \mu_j = 2 \sum_i w_i r_{ij} (\mu_j - x_i),

    the responsibilities held fixed, by the envelope theorem.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        The rows.
    centers : array-like of shape (n_clusters, n_features)
        The centres.
    sigma : float
        Temperature, in the units of the data; not negative. At 0 the free
        energy is the inertia.
    alpha : float, default=1.5
        Tsallis index, at least 1.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows, all 1 by default.
    return_gradient : bool, default=False
        Whether to return the gradient as well.

    Returns
    -------
    value : float
        The free energy, in squared units of the data.
    gradient : ndarray of shape (n_clusters, n_features)
        Its gradient with respect to the centres; only with
        ``return_gradient=True``.

    Raises
    ------
    ValueError
        If an array is not finite or of the wrong shape, if sigma is negative,
        if alpha is less than 1, if a weight is negative or all are zero, or if
        the value is too large for a float.

    See Also
    --------
    responsibilities : The minimising shares.
    skrbfkmeans.entmax.tsallis_entropy : The entropy in the formula.

    Examples
    --------
    >>> from skrbfkmeans.energy import free_energy
    >>> X, centers = [[0.0], [1.0], [2.0]], [[0.0], [4.0]]
    >>> round(free_energy(X, centers, 2.0), 4)
    1.3826
    >>> free_energy(X, centers, 0.0)
    5.0
    """
    rows, centers, sigma, alpha, exponents = _prepare(
        X, centers, sigma, alpha, sample_weight
    )
    with rows:
        rows.measure()
        step = rows.e_step(alpha)(centers, sigma)
    value = unscaled_inertia(
        step.free_energy, *exponents, names="X, sigma or sample_weight"
    )
    if not return_gradient:
        return value
    x_exponent, w_exponent = exponents
    moved = step.masses[:, np.newaxis] * (centers - step.origins)
    gradient = 2.0 * (moved - step.sums)
    return value, np.ldexp(gradient, x_exponent + w_exponent)


def critical_sigma(X, n_clusters, *, alpha=1.5, sample_weight=None):
    r"""Temperature above which all centres meet at the mean.

    .. math:: \sigma_c = \sqrt{k^{\alpha - 1} \lambda_{\max}(\mathrm{Cov}(X))}

    Just below it the centres part along the first principal component [1]_.
    Annealing does nothing above it.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        The rows.
    n_clusters : int
        Number of centres, k.
    alpha : float, default=1.5
        Tsallis index, at least 1.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows, all 1 by default.

    Returns
    -------
    sigma : float
        The critical temperature, in the units of the data.

    Raises
    ------
    ValueError
        If X is not 2-D and finite, if n_clusters is not a positive integer, if
        alpha is less than 1, or if a weight is negative or all are zero.

    See Also
    --------
    hardening_sigma : The other end: where soft k-means becomes k-means.

    References
    ----------
    .. [1] K. Rose, "Deterministic annealing for clustering, compression,
       classification, regression, and related optimization problems",
       Proc. IEEE 86 (1998).

    Examples
    --------
    >>> from skrbfkmeans.energy import critical_sigma
    >>> critical_sigma([[0.0], [2.0], [4.0], [6.0]], 4, alpha=2)
    4.47213595499958
    """
    alpha = check_alpha(alpha)
    if (
        isinstance(n_clusters, bool)
        or not isinstance(n_clusters, Integral)
        or n_clusters < 1
    ):
        raise ValueError(f"n_clusters must be an integer >= 1; got {n_clusters!r}.")
    X, squares = _check_rows(X)
    weights, _ = check_weights(sample_weight, X)
    rows, exponent = rows_in_safe_units(X, squares, weights)
    with rows:
        rows.measure()
        variance = largest_variance(rows)
    return float(
        np.ldexp(np.sqrt(float(n_clusters) ** (alpha - 1.0) * variance), exponent)
    )


def hardening_sigma(X, centers, *, alpha=1.5):
    r"""Temperature below which the soft model is k-means, exactly.

    .. math:: \sigma_h = \sqrt{(\alpha - 1) \gamma / 2}

    with :math:`\gamma` the least gap, over the rows, between the two smallest
    squared distances to a centre. At ``sigma <= sigma_h`` every row belongs to
    one centre alone, so that a fixed point of k-means is a fixed point of the
    soft model, and the other way round.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        The rows.
    centers : array-like of shape (n_clusters, n_features)
        The centres.
    alpha : float, default=1.5
        Tsallis index, at least 1.

    Returns
    -------
    sigma : float
        The hardening temperature, in the units of the data, rounded down: 0 for
        softmax, which never hardens, and infinite for a single centre.

    Raises
    ------
    ValueError
        If an array is not 2-D, finite and of matching shape, or if alpha is
        less than 1.

    See Also
    --------
    critical_sigma : The other end: where all centres meet.

    Examples
    --------
    >>> from skrbfkmeans.energy import hardening_sigma
    >>> round(hardening_sigma([[0.0], [1.0]], [[0.0], [4.0]]), 6)
    1.414214
    """
    rows, centers, _, alpha, (exponent, _) = _prepare(X, centers, 1.0, alpha)
    if alpha == 1.0:
        return 0.0
    with rows:
        margin = rows.margin(centers)
    sigma = np.sqrt((alpha - 1.0) * margin / 2.0) * (1.0 - ROUNDING)
    return float(np.ldexp(sigma, exponent))


def largest_variance(rows):
    """Largest eigenvalue of the weighted covariance of the rows, once measured."""
    d = rows.n_features
    if d <= EIGH_FEATURES:
        covariance = rows.scatter(rows.mean) / rows.weight
        # LAPACK would rescale a matrix of extreme size, by no power of two
        exponent = int(np.frexp(np.abs(covariance).max())[1])
        largest = np.linalg.eigvalsh(np.ldexp(covariance, -exponent))[-1]
        return max(float(np.ldexp(largest, exponent)), 0.0)

    def times(v):
        return rows.scatter(rows.mean, v) / rows.weight

    covariance = LinearOperator((d, d), matvec=times, dtype=np.float64)
    start = np.random.RandomState(0).standard_normal(d)
    if not np.any(times(start)):
        return 0.0
    return max(
        float(eigsh(covariance, k=1, v0=start, return_eigenvectors=False)[0]), 0.0
    )


def check_sigma(sigma, name="sigma"):
    """Sigma as a float, or a ValueError that names it."""
    if (
        isinstance(sigma, bool)
        or not isinstance(sigma, Real)
        or not 0.0 <= sigma < np.inf
    ):
        raise ValueError(f"{name} must be a finite number >= 0; got {sigma!r}.")
    return float(sigma)


def _check_rows(X):
    """X as a finite array in C order or CSR matrix, and the sum of its squares."""
    X = check_array(
        X,
        accept_sparse="csr",
        dtype=[np.float64, np.float32],
        order="C",
        ensure_all_finite=False,
        input_name="X",
    )
    X = canonical(X)
    return X, check_finite(X, "X")


def _prepare(X, centers, sigma, alpha, sample_weight=None):
    """Checked arguments, in units in which squares can be represented."""
    alpha, sigma = check_alpha(alpha), check_sigma(sigma)
    X, squares = _check_rows(X)
    centers = check_centers(centers, X, "centers")
    weights, w_exponent = check_weights(sample_weight, X)
    rows, x_exponent = rows_in_safe_units(X, squares, weights, centers)
    with np.errstate(over="ignore"):  # nothing is hotter than infinity
        sigma = float(np.ldexp(sigma, -x_exponent))
    return rows, scaled(centers, x_exponent), sigma, alpha, (x_exponent, w_exponent)
