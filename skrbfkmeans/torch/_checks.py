"""What is asked of tensors, and in which precision they are computed."""

# SPDX-License-Identifier: BSD-3-Clause

import math

import torch

# --- kinds of numbers --------------------------------------------------------


def working_dtype(dtype):
    """The dtype to compute in."""
    return torch.promote_types(dtype, torch.float32)


def output_dtype(dtype, device):
    """The dtype of probabilities: as with softmax, half precision is not autocast's."""
    is_autocast = torch.is_autocast_enabled(device.type)
    return working_dtype(dtype) if is_autocast else dtype


def as_array(tensor):
    """The tensor as an array, float32 if NumPy has no such dtype."""
    tensor = tensor.detach().cpu()
    if tensor.is_floating_point():
        tensor = tensor.to(working_dtype(tensor.dtype))
    return tensor.numpy()


def wide_dtype(device):
    """float64, or float32 where the device has none."""
    return torch.float32 if device.type == "mps" else torch.float64


def in_own_unit(weight):
    """Weights in the widest dtype, and the exponent of the power of two they are in.

    The largest is then between 1/2 and 1, so sums neither overflow nor vanish. No
    digit changes.
    """
    weight = weight.to(wide_dtype(weight.device))
    if not weight.numel():
        return weight, 0
    exponent = int(torch.frexp(weight.detach().amax()).exponent)
    return scaled(weight, -exponent), exponent


def scaled(tensor, exponent):
    """The tensor times ``2**exponent``, in two steps: one may leave the range."""
    half = exponent // 2
    return tensor * math.ldexp(1.0, half) * math.ldexp(1.0, exponent - half)


def draw_seed(generator):
    """A seed for NumPy."""
    device = "cpu" if generator is None else generator.device
    return int(torch.randint(2**31 - 1, (), generator=generator, device=device))


# --- checks of arguments -----------------------------------------------------


def kind(value):
    """What a value is, for an error message."""
    if isinstance(value, torch.Tensor):
        return f"a tensor of {value.dtype}"
    return f"a {type(value).__name__}"


def check_floating(tensor, name):
    if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point():
        raise TypeError(
            f"{name} must be a tensor of floating point numbers; got {kind(tensor)}."
        )


def check_device(tensor, name, other, other_name):
    if tensor.device != other.device:
        raise ValueError(
            f"{name} is on {tensor.device}, but {other_name} on {other.device}: move "
            "one of them with .to(device)."
        )


def check_alphas(alpha, z, dim):
    """A tensor of alphas with the entmax dimension last."""
    check_floating(alpha, "alpha")
    check_device(alpha, "alpha", z, "z")
    if alpha.ndim == 0:
        return alpha.to(working_dtype(z.dtype))
    fits = alpha.ndim == z.ndim and alpha.shape[dim] == 1
    if not fits or any(
        a not in (1, n) for a, n in zip(alpha.shape, z.shape, strict=True)
    ):
        raise ValueError(
            f"alpha of shape {tuple(alpha.shape)} does not broadcast against z of "
            f"shape {tuple(z.shape)} with size 1 along dim {dim}."
        )
    return alpha.to(working_dtype(z.dtype)).movedim(dim, -1)
