"""Squared distances and free energy for PyTorch, with derivatives of any order.

Both keep little for the backward pass: the rows and centres themselves, and the
responsibilities.
"""

# SPDX-License-Identifier: BSD-3-Clause

import contextlib

import torch

from ._tracing import expm1, number_like

# A squared distance this small, relative to the squares it is the difference of, is
# taken from the differences of the coordinates instead.
CANCELLED = 2.0**-6


class SquaredDistances(torch.autograd.Function):
    """Squared distances of rows to centres; memory for one matrix of that shape."""

    @staticmethod
    def forward(rows, centers):
        origin = middle_of(centers)
        x, c = rows - origin, centers - origin
        x2, c2 = (x * x).sum(dim=1, keepdim=True), (c * c).sum(dim=1)
        d2 = torch.addmm(c2, x, c.T, alpha=-2.0).add_(x2)
        _restore_cancelled(d2, rows, centers, x2, c2)
        return d2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        rows, centers = ctx.saved_tensors
        by_rows = by_centers = None
        with full_precision(g.device):
            origin = middle_of(centers)
            x, c = rows - origin, centers - origin
            if ctx.needs_input_grad[0]:
                by_rows = 2.0 * (x * g.sum(dim=1, keepdim=True) - g @ c)
            if ctx.needs_input_grad[1]:
                by_centers = 2.0 * (c * g.sum(dim=0)[:, None] - g.T @ x)
        return by_rows, by_centers


class FreeEnergy(torch.autograd.Function):
    r"""Free energy of each row; its gradient is the responsibilities.

    They come in as an argument, which gets no gradient: but differentiated once more,
    the gradient leads through them.
    """

    @staticmethod
    def forward(d2, r, two_sigma2, alpha):
        r"""Free energy, of shape (n_rows,).

        With :math:`p_0` the largest responsibility, that of the nearest centre, the
        gaps in squared distance are :math:`2 \sigma^2 (p_0^a - p_j^a) / a` on the
        support, for :math:`a = \alpha - 1`. That leaves :math:`\min d^2 + 2 \sigma^2
        ((p_0^a - 1) / a + (1 - \sum_j p_j^\alpha) / \alpha)`.
        """
        lowest, largest = d2.amin(dim=-1), r.amax(dim=-1)
        if isinstance(two_sigma2, torch.Tensor):
            two_sigma2 = two_sigma2.to(d2.dtype)
        elif two_sigma2 == 0.0:
            return lowest
        if alpha == 1.0:
            return lowest + two_sigma2 * largest.log()
        if alpha == 1.5:
            powers = r.sqrt() * r
        elif alpha == 2.0:
            powers = r * r
        else:
            powers = r.pow(number_like(alpha, r))
        a = number_like(alpha - 1.0, r)
        alpha = number_like(alpha, r)
        first = expm1(a * largest.log()) / a
        return lowest + two_sigma2 * (first + (1.0 - powers.sum(dim=-1)) / alpha)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, g):
        (r,) = ctx.saved_tensors
        return g[:, None] * r, None, None, None


def _restore_cancelled(d2, rows, centers, x2, c2):
    """Take those squared distances that have lost digits from differences, in place."""
    doubtful = d2.amin(dim=1, keepdim=True) < CANCELLED * (x2 + c2.amax())
    picked = doubtful.squeeze(1).nonzero().squeeze(1)
    if len(picked) == 0:
        return
    some = d2[picked]
    i, j = (some < CANCELLED * (x2[picked] + c2)).nonzero(as_tuple=True)
    i = picked[i]
    step = max(len(rows), d2.numel() // rows.shape[1])
    for i_part, j_part in zip(i.split(step), j.split(step), strict=True):
        difference = rows[i_part] - centers[j_part]
        d2[i_part, j_part] = (difference * difference).sum(dim=1)


def middle_of(centers):
    """A point amid the centres, wherever a few of them may be."""
    # not torch.median, which one NaN spoils, and which is not deterministic on a GPU
    return centers.detach().sort(dim=0).values[(len(centers) - 1) // 2]


def differences(x, centers):
    """Squared distances from differences, of shape (..., n_clusters).

    For what is traced: no second look, at the price of memory for all coordinates.
    """
    return (x[..., None, :] - centers).square().sum(dim=-1)


def full_precision(device):
    """Context without autocast: products would lose most digits of a distance."""
    if not torch.is_autocast_enabled(device.type):  # nothing to write down if traced
        return contextlib.nullcontext()
    return torch.autocast(device.type, enabled=False)
