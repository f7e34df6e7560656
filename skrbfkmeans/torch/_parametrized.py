"""Set a tensor of a module, also one that is computed from others."""

# SPDX-License-Identifier: BSD-3-Clause

import torch
from torch.nn.utils import parametrize

# How exactly a parametrization must give what was asked, relative to the row.
ROUNDINGS, MOST = 1024.0, 1e-4


def recompute(module, name):
    """Compute the tensor anew where a hook does it, as before each forward pass.

    That is how the older functions of `torch.nn.utils`, and its pruning, work.
    """
    for hook in _hooks(module, name):
        hook(module, ())


@torch.no_grad()
def set_tensor(module, name, value, present=None):
    """Give the tensor these values, or raise a RuntimeError and leave it as it is.

    `present` is what it is now, if that is known: if nothing changes, nothing is done.
    """
    if present is not None and torch.equal(value, present):
        return
    hooks = _hooks(module, name)
    if not hooks and not parametrize.is_parametrized(module, name):
        try:
            getattr(module, name).copy_(value)
        except RuntimeError as error:
            raise _refusal(name, str(error).partition("\n")[0]) from error
        return
    value = value.to(getattr(module, name))
    before = {key: tensor.clone() for key, tensor in module.state_dict().items()}
    try:
        if hooks:
            _set_by_hooks(module, name, value)
        else:
            setattr(module, name, value)
        recompute(module, name)
        reason = _difference(getattr(module, name), value)
    except Exception as error:  # what a right_inverse of anybody's may raise
        _restore(module, name, before)
        raise _refusal(name, str(error).partition("\n")[0]) from error
    if reason:
        _restore(module, name, before)
        raise _refusal(name, reason)


def unparametrized(cls, name):
    """The class that a parametrization of this tensor has derived from."""
    return next(c for c in cls.__mro__ if not isinstance(vars(c).get(name), property))


def _hooks(module, name):
    return [
        hook
        for hook in module._forward_pre_hooks.values()
        if name in (getattr(hook, "name", None), getattr(hook, "_tensor_name", None))
    ]


def _set_by_hooks(module, name, value):
    """Set what the hooks compute the tensor from."""
    if hasattr(module, f"{name}_v") and hasattr(module, f"{name}_g"):
        (hook,) = _hooks(module, name)
        getattr(module, f"{name}_v").copy_(value)
        norm = torch.norm_except_dim(value, 2, hook.dim)
        getattr(module, f"{name}_g").copy_(norm)
    else:
        getattr(module, f"{name}_orig").copy_(value)


def _restore(module, name, before):
    """Put the state back as it was."""
    state = module.state_dict()
    for key, tensor in before.items():
        state[key].copy_(tensor)
    recompute(module, name)


def _difference(result, value):
    """What is wrong with the result, if it is not the value but for rounding."""
    if result.shape != value.shape:
        return f"the result has the shape {tuple(result.shape)}"
    eps = torch.finfo(value.dtype).eps
    relative = max(4.0 * eps, min(ROUNDINGS * eps, MOST))
    size = value.abs().double().amax(dim=1, keepdim=True)
    error = (result.double() - value.double()).abs()
    if (error <= relative * (size + size.median())).all():
        return ""
    return "it cannot represent them, the result differs"


def _refusal(name, reason):
    return RuntimeError(
        f"{name} cannot be set: the parametrization, or what has taken the place of "
        f"the parameter, does not accept the values ({reason or 'no reason given'})."
    )
