"""Entmax for PyTorch: its threshold, and its derivatives of any order."""

# SPDX-License-Identifier: BSD-3-Clause

import math

import torch

from .._checks import check_alpha
from ._checks import check_alphas, check_floating, output_dtype, working_dtype
from ._tracing import is_exporting, is_traced, log1p, number_like, shape_of

# Newton's method ends long before.
MOST_STEPS = 200

# Nearer to zero than this, the formula of `curvature` loses digits and a series does
# not: its next term is below rounding.
NEAR_ZERO = 2.0**-5
SERIES = [1 / 2, 1 / 3, 1 / 8, 1 / 30, 1 / 144, 1 / 840, 1 / 5760, 1 / 45360]


def entmax(z, alpha=1.5, dim=-1):
    r"""Alpha-entmax of a tensor, differentiable any number of times.

    The point of the probability simplex that maximises :math:`\langle p, z \rangle +
    H_\alpha(p)`, as `skrbfkmeans.entmax.entmax` does, which this equals. Its
    Jacobian product is exact [1]_,

    .. math::

        J v = s \circ (v - \langle s, v \rangle / \textstyle\sum_j s_j),
        \quad s = p^{2 - \alpha}
        \text{ on the support},

    and only p is kept for it. Where a probability is about to become 0 the
    derivative jumps; there it is that of the support as it is.

    Parameters
    ----------
    z : tensor of floating point numbers
        Scores, of any shape with at least one entry along `dim`. Minus infinity gets
        probability 0. float16 and bfloat16 are computed in float32.
    alpha : float or tensor, default=1.5
        Tsallis index, at least 1: 1 is softmax, 1.5 entmax-1.5, 2 sparsemax. A tensor
        has either a single entry without dimensions, or as many dimensions as z, with
        size 1 along `dim`, and broadcasts against z; it gets a gradient too, at 1 the
        one-sided limit. A float is faster.
    dim : int, default=-1
        The dimension along which probabilities sum to one.

    Returns
    -------
    p : tensor of the shape of z
        Probabilities, in the dtype of z; under autocast, float16 and bfloat16 scores
        give float32, as with `torch.softmax`.

    Raises
    ------
    TypeError
        If z is not a tensor of floating point numbers.
    ValueError
        If an alpha is less than 1 or not finite, if the shape of alpha does not suit
        that of z, if both are on different devices, or if z has no entry along `dim`.

    See Also
    --------
    skrbfkmeans.entmax.entmax : The same, of arrays.
    RBFKMeansLayer : Entmax of squared distances to centres.

    Notes
    -----
    Scores that leave no probabilities give NaN, as `torch.softmax` does: a row of
    minus infinity alone, and one with plus infinity or NaN. Other rows, and their
    gradients, are not affected. For alpha above 3, a probability that is about to
    become 0 changes so fast with the scores that it has few digits.

    Reverse and forward mode, ``torch.func.vmap`` and their combinations, such as
    ``torch.func.hessian``, work. ``torch.compile`` traces it as a whole: by a sort for
    an alpha of 1.5 or 2, by halving a bracket for others, so that results may differ
    in rounding. In the same way it is exported, by ``torch.export``, ``torch.onnx`` and
    ``torch.jit.trace``; such a program has no derivatives.

    References
    ----------
    .. [1] B. Peters, V. Niculae and A. F. T. Martins, "Sparse sequence-to-sequence
       models", ACL (2019).
    .. [2] G. M. Correia, V. Niculae and A. F. T. Martins, "Adaptively sparse
       transformers", EMNLP (2019), for the gradient with respect to alpha.

    Examples
    --------
    >>> import torch
    >>> from skrbfkmeans.torch import entmax
    >>> z = torch.tensor([2.0, 1.0, -1.0], requires_grad=True)
    >>> p = entmax(z)
    >>> p.detach()
    tensor([0.8307, 0.1693, 0.0000])
    >>> p[0].backward()
    >>> z.grad.abs()
    tensor([0.2835, 0.2835, 0.0000])
    """
    check_floating(z, "z")
    if not -z.ndim <= dim < z.ndim or shape_of(z)[dim] == 0:
        raise ValueError(
            f"z must have entries along dim {dim}; its shape is {shape_of(z)}."
        )
    if isinstance(alpha, torch.Tensor):
        alpha = check_alphas(alpha, z, dim)
    else:
        alpha = check_alpha(alpha)
    dtype = working_dtype(z.dtype)
    scores = z.to(dtype)
    if isinstance(alpha, float) and alpha == 1.0:
        p = torch.softmax(scores, dim=dim)
    else:
        scores = scores.movedim(dim, -1)
        if is_exporting():
            p = Entmax.forward(scores.detach(), alpha)
        else:
            function = Entmax if is_traced() else TransformedEntmax
            p = function.apply(scores, alpha)
        p = p.movedim(-1, dim)
    return p.to(output_dtype(z.dtype, z.device))


class Entmax(torch.autograd.Function):
    """Entmax of the last dimension, for ``alpha > 1`` or a tensor of alphas.

    Nothing but the probabilities is kept for the backward pass. That is written in
    differentiable operations on them, so it can be differentiated again.
    """

    @staticmethod
    def forward(z, alpha):
        """Probabilities of the scores z; alpha is a float or broadcasts against z."""
        y = z - z.amax(dim=-1, keepdim=True)
        # A tensor is checked here and not by the caller: torch.func.vmap would hide its
        # values there.
        if isinstance(alpha, torch.Tensor):
            are_right = torch.isfinite(alpha) & (alpha >= 1.0)
            if is_traced():
                alpha = alpha.masked_fill(~are_right, math.nan)
            elif not are_right.all():
                raise ValueError("alpha has an entry that is not a finite number >= 1.")
            p = entmax_any(y, alpha - 1.0)
        elif alpha == 1.5:
            p = entmax15(y)
        elif alpha == 2.0:
            p = sparsemax(y)
        else:
            p = entmax_any(y, alpha - 1.0)
        return p.div_(p.sum(dim=-1, keepdim=True))

    @staticmethod
    def setup_context(ctx, inputs, output):
        """Keep what the backward pass needs."""
        alpha = inputs[1]
        is_tensor = isinstance(alpha, torch.Tensor)
        ctx.alpha = None if is_tensor else alpha
        ctx.save_for_backward(output, *([alpha] if is_tensor else []))
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, gradient):
        """Product with the Jacobian, which is symmetric."""
        if gradient is None:
            return None, None
        p, *alphas = ctx.saved_tensors
        alpha = alphas[0] if alphas else ctx.alpha
        product = jacobian_product(p, alpha, gradient)
        if not (alphas and ctx.needs_input_grad[1]):
            return product, None
        by_alpha = -(product * curvature(p, alpha - 1.0)).sum(dim=-1, keepdim=True)
        return product, by_alpha.sum_to_size(alpha.shape)


class TransformedEntmax(Entmax):
    """The same, for forward mode and vmap as well: too much for `torch.compile`."""

    @staticmethod
    def setup_context(ctx, inputs, output):
        """Keep what the backward pass needs, for a forward one as well."""
        Entmax.setup_context(ctx, inputs, output)
        alphas = [inputs[1]] if ctx.alpha is None else []
        ctx.save_for_forward(output, *alphas)

    @staticmethod
    def jvp(ctx, z_tangent, alpha_tangent):
        """The same product, for derivatives in forward mode."""
        p, *alphas = ctx.saved_tensors
        alpha = alphas[0] if alphas else ctx.alpha
        v = torch.zeros_like(p) if z_tangent is None else z_tangent
        if alpha_tangent is not None:
            v = v - alpha_tangent * curvature(p, alpha - 1.0)
        return jacobian_product(p, alpha, v)

    @staticmethod
    def vmap(info, in_dims, z, alpha):
        """A batch of scores is a tensor with one more dimension, the first."""
        z_dim, alpha_dim = in_dims
        if z_dim is None:
            z = z.expand(info.batch_size, *z.shape)
        else:
            z = z.movedim(z_dim, 0)
        if alpha_dim is not None:
            alpha = alpha.movedim(alpha_dim, 0)
            alpha = alpha.reshape(-1, *[1] * (z.ndim - alpha.ndim), *alpha.shape[1:])
        return TransformedEntmax.apply(z, alpha), 0


def jacobian_product(p, alpha, v):
    r"""Product of a vector with the Jacobian of entmax.

    .. math:: J v = s \circ (v - \langle s, v \rangle / \textstyle\sum_j s_j),

    with :math:`s = p^{2 - \alpha}` on the support and 0 elsewhere.
    """
    support = p > 0.0
    if isinstance(alpha, float) and alpha == 2.0:
        s = support.to(p.dtype)
    elif isinstance(alpha, float) and alpha == 1.5 and not torch.is_grad_enabled():
        s = p.sqrt()
    else:  # a power of 0 has no derivative, not even one that counts for nothing
        s = p.masked_fill(~support, 1.0).pow(2.0 - alpha) * support
    mean = (s * v).sum(dim=-1, keepdim=True) / s.sum(dim=-1, keepdim=True)
    return s * (v - mean)


def curvature(p, a1):
    r"""The vector q of :math:`\partial p / \partial \alpha = -J q`.

    Scores are :math:`z = (p^a - 1) / a + c` on the support, with :math:`a = \alpha -
    1`. Differentiating that by a at constant z leaves :math:`q = \partial_a (p^a -
    1) / a = (\log p)^2 \varphi(a \log p)`, where :math:`\varphi(x) = (x e^x - e^x +
    1) / x^2`, which is 1/2 at 0.
    """
    logarithm = p.masked_fill(~(p > 0.0), 1.0).log()
    x = a1 * logarithm
    is_near = x.abs() < NEAR_ZERO
    series = torch.zeros_like(x)
    near = x.masked_fill(~is_near, 0.0)
    for coefficient in reversed(SERIES):
        series = series * near + coefficient
    far = x.masked_fill(is_near, 1.0)
    formula = (far * far.exp() - torch.expm1(far)) / (far * far)
    return logarithm * logarithm * torch.where(is_near, series, formula)


# --- thresholds --------------------------------------------------------------
#
# Of scores y along the last dimension, whose largest is 0; NaN stays NaN. They may be
# overwritten. What is traced must not ask for values: then the support comes from a
# sort, or the threshold from halving its bracket as often as it has digits.


def entmax15(y):
    """Entmax with alpha 1.5, but for its sum: max(y / 2 - tau, 0)².

    The norm of max(y / 2 - tau, 0) is convex in tau, so Newton's steps towards 1
    approach from the left: the support shrinks until it stops changing.
    """
    u = y.mul_(0.5)
    if is_traced():
        margin = (u - _sorted_threshold15(u)).relu()
        return margin * margin
    enough = 2.0 * torch.finfo(y.dtype).eps
    margin = u.add_(1.0).relu_()
    for _ in range(MOST_STEPS):
        norm = torch.linalg.vector_norm(margin, dim=-1, keepdim=True)
        step = (norm - 1.0) * norm / margin.sum(dim=-1, keepdim=True)
        margin = margin.sub_(step.clamp_min(0.0)).relu_()
        if not (step > enough).any():
            break
    return margin.mul_(margin)


def sparsemax(y):
    """Entmax with alpha 2, but for its sum: max(y - tau, 0).

    The threshold of all candidates is too low; raising it to that of the candidates
    above it ends at the solution, after finitely many steps.
    """
    if is_traced():
        return (y - _sorted_threshold2(y)).relu()
    enough = 2.0 * torch.finfo(y.dtype).eps
    margin = y.add_(1.0).relu_()
    for _ in range(MOST_STEPS):
        count = margin.sign().sum(dim=-1, keepdim=True)
        step = (margin.sum(dim=-1, keepdim=True) - 1.0) / count
        margin = margin.sub_(step.clamp_min(0.0)).relu_()
        if not (step > enough).any():
            break
    return margin


def entmax_any(y, a1):
    """Entmax with any alpha, a1 = alpha - 1 >= 0, but for its sum.

    Written as p = (1 + a1 (y - s))^{1 / a1}, which tends to exp(y - s) as a1 tends
    to 0 and loses no digits there. Newton's method on the norm of p, kept inside a
    shrinking bracket of s. A float a1 is positive, a tensor may hold zeros.
    """
    is_softmax = None
    divisor, log_k = a1, math.log(shape_of(y)[-1])
    if isinstance(a1, torch.Tensor):
        is_softmax = a1 == 0.0
        divisor = a1.masked_fill(is_softmax, 1.0)
        high = torch.where(is_softmax, log_k, torch.expm1(-a1 * log_k) / -divisor)
    else:
        high = y.new_tensor(-math.expm1(-a1 * log_k) / a1)
    y = y.clamp_min(torch.finfo(y.dtype).min / 4.0)  # zero times it is zero
    low = torch.zeros_like(y[..., :1])
    low, high = torch.broadcast_tensors(low, high)
    if is_traced():
        return _halved(y, high, a1, divisor, is_softmax)
    s = low
    enough = 2.0 * torch.finfo(y.dtype).eps
    for _ in range(MOST_STEPS):
        p, base = _power(y, s, a1, divisor, is_softmax)
        total = p.sum(dim=-1, keepdim=True)
        slope = (p / base).sum(dim=-1, keepdim=True)
        log_total = total.log()
        step = (a1 * log_total).expm1() / divisor
        if is_softmax is not None:
            step = torch.where(is_softmax, log_total, step)
        step = step * ((1.0 - a1) * log_total).exp() / slope
        low = torch.where(total >= 1.0, s, low)
        high = torch.where(total < 1.0, s, high)
        following = s + step
        is_last = (step.abs() <= enough * (1.0 + s)) | total.isnan()
        is_inside = (low < following) & (following < high)
        s = torch.where(is_last | is_inside, following, 0.5 * (low + high))
        if not (~is_last & (low < s) & (s < high)).any():
            break
    return _power(y, s, a1, divisor, is_softmax)[0]


def _halved(y, high, a1, divisor, is_softmax):
    """Entmax with any alpha, by halving the bracket from 0 to `high` of s.

    The steps are as many as y has digits, and short, for each is in the program.
    """
    n_steps = 2 - round(math.log2(torch.finfo(y.dtype).eps))
    if isinstance(a1, float) and a1 >= NEAR_ZERO:  # else 1 + a1 y loses digits
        inverse, a1 = number_like(1.0 / a1, y), number_like(a1, y)
        high, base = a1 * high, a1 * y + 1.0

        def power(s):
            return (base - s).clamp_min(0.0).pow(inverse)
    else:
        a1, divisor = number_like(a1, y), number_like(divisor, y)

        def power(s):
            return _power(y, s, a1, divisor, is_softmax)[0]

    low = torch.zeros_like(high)
    for step in range(1, n_steps + 1):
        middle = low + high * 0.5**step
        total = power(middle).sum(dim=-1, keepdim=True)
        low = torch.where(total >= 1.0, middle, low)
    return power(low)


def _power(y, s, a1, divisor, is_softmax):
    """The power in `entmax_any`, and its base; outside the support it is 0."""
    difference = y - s
    t = (a1 * difference).clamp_min_(-1.0)
    exponent = log1p(t) / divisor
    if is_softmax is not None:
        exponent = torch.where(is_softmax, difference, exponent)
    return exponent.exp_(), t.add_(1.0).clamp_min_(torch.finfo(t.dtype).tiny)


def _sorted_threshold15(u):
    """Threshold for alpha 1.5 by a sort: of the prefixes that keep all they have."""
    ordered, n = _descending(u)
    mean = ordered.cumsum(dim=-1) / n
    scatter = (ordered * ordered).cumsum(dim=-1) - n * mean * mean
    thresholds = mean - ((1.0 - scatter) / n).clamp_min(0.0).sqrt()
    return _last_kept(thresholds, ordered)


def _sorted_threshold2(y):
    """Threshold for alpha 2 by a sort."""
    ordered, n = _descending(y)
    return _last_kept((ordered.cumsum(dim=-1) - 1.0) / n, ordered)


def _descending(scores):
    """Scores in descending order, and how many each is the last of.

    What is below -1, where no threshold is, is set well below: sums stay finite.
    """
    ordered = scores.clamp_min(-2.0).sort(dim=-1, descending=True).values
    n = torch.arange(1, shape_of(scores)[-1] + 1, device=scores.device)
    return ordered, n.to(scores.dtype)


def _last_kept(thresholds, ordered):
    """The threshold of the longest prefix whose last score is above it."""
    count = (thresholds < ordered).sum(dim=-1, keepdim=True)
    return thresholds.gather(-1, (count - 1).clamp_min(0))
