"""Entmax, the map from scores to sparse probabilities, and its entropy."""

# SPDX-License-Identifier: BSD-3-Clause

import numpy as np

from ._checks import check_alpha

__all__ = ["entmax", "tsallis_entropy"]


def entmax(Z, alpha=1.5, axis=-1):
    r"""Alpha-entmax: softmax, entmax-1.5, sparsemax and all between and beyond.

    The point of the probability simplex that maximises

    .. math:: \langle p, z \rangle + H_\alpha(p),

    with the Tsallis entropy :math:`H_\alpha` of `tsallis_entropy`. It is
    :math:`p_j = [(\alpha - 1) z_j - \tau]_+^{1 / (\alpha - 1)}`, with the
    threshold :math:`\tau` that makes p sum to one. For every ``alpha > 1``
    scores far enough below the largest get probability exactly 0.

    Alpha 1, 1.5 and 2 are solved in closed form once their support is found;
    any other alpha by Newton's method to the last useful bit.

    Parameters
    ----------
    Z : array-like
        Scores. An entry of minus infinity gets probability 0.
    alpha : float, default=1.5
        Tsallis index, at least 1: 1 is softmax [1]_, 1.5 entmax-1.5 [2]_ and
        2 sparsemax [3]_. The larger, the sparser.
    axis : int, default=-1
        The axis along which probabilities sum to one.

    Returns
    -------
    P : ndarray of the shape of Z
        Probabilities, float32 for float32 scores, else float64.

    Raises
    ------
    ValueError
        If alpha is less than 1 or not finite, if Z contains NaN or plus
        infinity, or if all scores along the axis are minus infinity.

    See Also
    --------
    tsallis_entropy : The entropy that entmax maximises with the scores.
    skrbfkmeans.energy.responsibilities : Entmax of squared distances.

    References
    ----------
    .. [1] J. S. Bridle, "Probabilistic interpretation of feedforward
       classification network outputs", Neurocomputing (1990).
    .. [2] B. Peters, V. Niculae and A. F. T. Martins, "Sparse
       sequence-to-sequence models", ACL (2019).
    .. [3] A. F. T. Martins and R. F. Astudillo, "From softmax to sparsemax",
       ICML (2016).

    Examples
    --------
    >>> from skrbfkmeans.entmax import entmax
    >>> entmax([[2.0, 1.0, -1.0]]).round(4)
    array([[0.8307, 0.1693, 0.    ]])
    >>> entmax([[2.0, 1.0, -1.0]], alpha=1).round(4)
    array([[0.7054, 0.2595, 0.0351]])
    """
    alpha = check_alpha(alpha)
    Z = np.asarray(Z)
    dtype = np.float32 if Z.dtype == np.float32 else np.float64
    if Z.dtype.kind not in "biuf":
        raise ValueError(f"Z must be an array of real numbers; its dtype is {Z.dtype}.")
    Z = Z.astype(np.float64, copy=False)
    if not -Z.ndim <= axis < Z.ndim or Z.shape[axis] == 0:
        raise ValueError(
            f"Z must have entries along axis {axis}; its shape is {Z.shape}."
        )
    if np.isnan(Z).any() or np.isposinf(Z).any():
        raise ValueError("Z contains NaN or plus infinity.")
    if np.isneginf(Z).all(axis=axis).any():
        raise ValueError(
            f"Z has only minus infinity at some place along axis {axis}: "
            "its probabilities are not defined."
        )
    from ._engine import kernels

    lines = np.moveaxis(Z, axis, -1)
    rows = np.ascontiguousarray(lines).reshape(-1, lines.shape[-1])
    P = np.empty(rows.shape)
    kernels.entmax_rows(rows, kernels.as_argument(alpha), P)
    P = np.moveaxis(P.reshape(lines.shape), -1, axis)
    return np.ascontiguousarray(P, dtype=dtype)


def tsallis_entropy(P, alpha=1.5, axis=-1):
    r"""Tsallis entropy, in the scale that goes with entmax.

    .. math::

        H_\alpha(p) = \frac{1}{\alpha (\alpha - 1)} \sum_j (p_j - p_j^\alpha),

    and its limit at ``alpha = 1``, Shannon's :math:`-\sum_j p_j \log p_j`.
    It is 0 for a one-hot p and largest, :math:`(1 - k^{1 - \alpha}) / (\alpha
    (\alpha - 1))` or :math:`\log k`, for the uniform one.

    Parameters
    ----------
    P : array-like
        Probabilities: not negative.
    alpha : float, default=1.5
        Tsallis index, at least 1.
    axis : int, default=-1
        The axis to sum over.

    Returns
    -------
    entropy : float or ndarray
        Entropy, of the shape of P without `axis`.

    Raises
    ------
    ValueError
        If alpha is less than 1 or not finite, or if P has a negative or NaN
        entry.

    See Also
    --------
    entmax : The probabilities that maximise scores plus entropy.

    References
    ----------
    .. [1] C. Tsallis, "Possible generalization of Boltzmann-Gibbs
       statistics", J. Stat. Phys. 52 (1988).

    Examples
    --------
    >>> from skrbfkmeans.entmax import tsallis_entropy
    >>> tsallis_entropy([0.5, 0.5], alpha=2)
    0.25
    >>> tsallis_entropy([[0.5, 0.5], [1.0, 0.0]], alpha=1).round(4)
    array([0.6931, 0.    ])
    """
    alpha = check_alpha(alpha)
    P = np.asarray(P, dtype=np.float64)
    if not (P >= 0.0).all():
        raise ValueError("P has a negative or NaN entry.")
    with np.errstate(divide="ignore"):
        logarithm = np.where(P > 0.0, np.log(P), 0.0)
    if alpha == 1.0:
        entropy = -np.sum(P * logarithm, axis=axis)
    else:
        terms = P * np.expm1((alpha - 1.0) * logarithm)
        entropy = -np.sum(terms, axis=axis) / (alpha * (alpha - 1.0))
    return entropy + 0.0 if np.ndim(entropy) else float(entropy) + 0.0
