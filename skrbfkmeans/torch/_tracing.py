"""What is traced: programs that are written down once and run on other numbers.

While one is written, nothing may depend on the value of a tensor: the branch that the
example takes would be the only one in the program.
"""

# SPDX-License-Identifier: BSD-3-Clause

import warnings

import torch


def is_traced():
    """Whether a program is being written: one of torch.compile, or for export."""
    return torch.compiler.is_compiling() or is_exporting()


def is_exporting():
    """Whether a program is being written that is to run without this package."""
    return (
        getattr(torch.compiler, "is_exporting", bool)()  # not before PyTorch 2.7
        or torch.jit.is_tracing()
        or torch.onnx.is_in_onnx_export()
    )


def refuse_export(name, instead):
    """RuntimeError while a program for export is being written."""
    if is_exporting():
        raise RuntimeError(f"{name} cannot be exported: {instead}.")


def shape_of(tensor):
    """Its shape in integers: in what `torch.jit.trace` writes, sizes are tensors."""
    if not torch.jit.is_tracing():
        return tuple(tensor.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        return tuple(int(size) for size in tensor.shape)


def number_like(value, tensor):
    """The number in the precision of the tensor: those in ONNX code may be float32."""
    if not torch.compiler.is_exporting() or isinstance(value, torch.Tensor):
        return value
    options = {"dtype": tensor.dtype, "device": tensor.device}
    if not torch.jit.is_tracing():
        return torch.tensor(value, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", torch.jit.TracerWarning)  # it is a constant
        return torch.tensor(value, **options)


def log1p(x):
    """log(1 + x), to all digits in an exported program too.

    ONNX has no such operator, and log(1 + x) loses those of a small x. Its rounding of
    1 + x is known, though.
    """
    if not is_exporting():
        return x.log1p()
    u = 1.0 + x
    is_lost = u == 1.0
    return torch.where(is_lost, x, u.log() * (x / (u - 1.0).masked_fill(is_lost, 1.0)))


def expm1(x):
    """exp(x) - 1, to all digits in an exported program too."""
    if not is_exporting():
        return x.expm1()
    u = x.exp()
    is_plain = (u == 1.0) | (u < 0.5)
    logarithm = u.masked_fill(is_plain, 2.0).log()
    return torch.where(
        u == 1.0, x, torch.where(is_plain, u - 1.0, (u - 1.0) * (x / logarithm))
    )
