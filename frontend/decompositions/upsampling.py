"""Decomposes interpolation of images. Its gradient is eager mode's operator.

PyTorch traces the gradient of the decomposition: a scatter for each point of a window, 4 of a bilinear and 16 of a
bicubic one, which adds one element after the other. The operator adds along rows.

The nearest elements of images that grow by powers of two are the elements, each repeated: an ``expand``, whose gradient
is a sum of neighbours. Kernels read no computed index for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from symshape.frontend.bridge.general_shape_env import is_general
from symshape.frontend.bridge.layouts import is_channels_last, memory_format_of
from symshape.frontend.bridge.operators import AutogradKernel, in_transform
from symshape.frontend.bridge.symbolic_sizes import has_unbacked_sizes, is_unbacked, known_equal
from symshape.frontend.bridge.tracing_errors import RefusedCall

aten: Any = torch.ops.aten
_torch: Any = torch  # it has no types

GRADIENTS: dict[Any, Any] = {
    aten.upsample_nearest1d.vec: aten.upsample_nearest1d_backward.default,
    aten.upsample_nearest2d.vec: aten.upsample_nearest2d_backward.default,
    aten.upsample_nearest3d.vec: aten.upsample_nearest3d_backward.default,
    aten._upsample_nearest_exact1d.vec: aten._upsample_nearest_exact1d_backward.default,
    aten._upsample_nearest_exact2d.vec: aten._upsample_nearest_exact2d_backward.default,
    aten._upsample_nearest_exact3d.vec: aten._upsample_nearest_exact3d_backward.default,
    aten.upsample_linear1d.vec: aten.upsample_linear1d_backward.default,
    aten.upsample_bilinear2d.vec: aten.upsample_bilinear2d_backward.default,
    aten.upsample_trilinear3d.vec: aten.upsample_trilinear3d_backward.default,
    aten.upsample_bicubic2d.vec: aten.upsample_bicubic2d_backward.default,
}

_POWERS = (1, 2, 4, 8, 16, 32)


class _Upsampled(torch.autograd.Function):
    """The usual parts forward, the operator backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, original: Any, gradient: Any, arguments: tuple[Any, ...]) -> torch.Tensor:
        output_size, *corners, factors = arguments
        result: torch.Tensor = original(x, output_size, *corners, factors)
        scales = factors if factors is not None else [None] * (x.dim() - 2)
        ctx.operator, ctx.arguments = gradient, (result.shape[2:], x.shape, *corners, *scales)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        if not is_channels_last(gradient):
            gradient = gradient.contiguous()
        return ctx.operator(gradient, *ctx.arguments), None, None, None


def upsampling_kernels() -> dict[Any, AutogradKernel]:
    """For ``differentiate_by``."""

    def kernel(operator: Any, gradient: Any) -> AutogradKernel:
        name = str(operator)
        mode = "linear" if "linear" in name else "nearest" if "nearest" in name and "exact" not in name else ""

        def upsampled(original: Any, x: torch.Tensor, *arguments: Any) -> torch.Tensor:
            repeats = _repeats(x, arguments) if "nearest" in name else None
            if repeats is not None:
                repeated = _repeated(x, repeats)
                _require_elements(x, repeated)
                return repeated
            arguments = _with_factors_of_eager(mode, x, arguments)
            differentiated = torch.is_grad_enabled() and x.requires_grad and not in_transform()
            if differentiated and x.device.type == "cpu" and not has_unbacked_sizes(x):
                result: torch.Tensor = _Upsampled.apply(x, original, gradient, arguments)  # type: ignore[no-untyped-call]
            else:
                result = original(x, *arguments)
            _require_elements(x, result)
            return result

        return upsampled

    return {operator: kernel(operator, gradient) for operator, gradient in GRADIENTS.items()}


def _repeats(x: torch.Tensor, arguments: tuple[Any, ...]) -> list[int] | None:
    """How often each element of images (N, C, ...) is repeated along each dim: powers of two, by which eager mode's
    indices ``floor(i / repeats)`` are exact. None if interpolation is something else. Rows of channels-last images are
    read as they are by their channels: there an index for each pixel takes less time."""
    output_size, factors = arguments
    if factors is not None:
        found = [int(each) if type(each) is float and each in _POWERS else 0 for each in factors]
    else:
        pairs = zip(x.shape[2:], output_size)
        found = [next((k for k in _POWERS if known_equal(wanted, size * k)), 0) for size, wanted in pairs]
    return found if all(found) and memory_format_of(x) is torch.contiguous_format else None


def _repeated(x: torch.Tensor, repeats: Sequence[int]) -> torch.Tensor:
    """The images (N, C, ...) with each element repeated along each dim after the second."""
    sizes: list[Any] = list(x.shape[:2])
    for size, times in zip(x.shape[2:], repeats):
        sizes += [size, times]
    spread = x[(slice(None), slice(None), *(slice(None), None) * len(repeats))]
    grown = [size * times for size, times in zip(x.shape[2:], repeats)]
    return spread.expand(sizes).clone(memory_format=torch.contiguous_format).view(*x.shape[:2], *grown)


def sizes_by_factors(x: torch.Tensor, factors: Sequence[Any]) -> list[Any]:
    """The sizes of images (N, C, ...) that are interpolated by these factors."""
    return [_torch.sym_int(size * factor) for size, factor in zip(x.shape[2:], factors)]


def factors_of_eager(mode: str, x: torch.Tensor, factors: Sequence[Any]) -> list[Any]:
    """The factors by which eager mode reads images on a CPU. Where a dim keeps its size, in the modes "linear" and
    "nearest" it is copied, whatever the factor is, and where its size is doubled, in the mode "nearest", each element
    is repeated (aten/src/ATen/native/UpSample.h; in this mode only by the vectorised kernels); PyTorch's decomposition
    always reads by the factor."""
    found = list(factors)
    if mode not in ("linear", "nearest") or not x.is_cpu or has_unbacked_sizes(x):
        return found
    sizes = sizes_by_factors(x, factors)
    for d, (size, wanted, factor) in enumerate(zip(x.shape[2:], sizes, factors)):
        if isinstance(factor, torch.SymInt):
            continue  # by an integer a dim keeps its size, or is doubled, where this is 1 or 2
        is_symbolic = isinstance(factor, torch.SymFloat)
        if (is_symbolic or 1 < factor < 2) and wanted == size:
            found[d] = 1.0
        elif mode == "nearest" and (is_symbolic or 2 < factor < 3) and wanted == 2 * size:
            found[d] = 2.0
    if mode == "nearest" and found != list(factors) and not _is_vectorised(x, sizes):
        return list(factors)
    return found


def _is_vectorised(x: torch.Tensor, sizes: Sequence[Any]) -> bool:
    """Whether eager mode's vectorised kernel for the mode "nearest" makes images of these sizes
    (aten/src/ATen/native/cpu/UpSampleKernel.cpp, ``_use_vectorized_kernel_cond_2d`` and ``_3d``)."""
    if len(sizes) == 1:
        return False
    if len(sizes) == 2 and sum(sizes) <= 128:
        return True
    in_format = x.is_contiguous(memory_format=torch.channels_last_3d) if len(sizes) == 3 else is_channels_last(x)
    return bool(in_format and x.shape[1] > 3)


def _with_factors_of_eager(mode: str, x: torch.Tensor, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments ``output_size, ..., factors`` of an operator, which computes the same sizes by them."""
    *others, factors = arguments
    return arguments if factors is None else (*others, factors_of_eager(mode, x, factors))


def _require_elements(x: torch.Tensor, result: torch.Tensor) -> None:
    """Raises eager mode's error for sizes of 0, which PyTorch's decompositions do not check."""
    for size in (*x.shape[1:], *result.shape[2:]):
        if is_general(size) and not is_unbacked(size) and not size > 0:
            raise RefusedCall("Input and output sizes should be greater than 0")


def contiguous_sizes(gradient: torch.Tensor, output_size: Sequence[Any], input_size: Sequence[Any], *_: Any) -> Any:
    """The fake rule of the gradient in bicubic mode, which is contiguous."""
    return gradient.new_empty(input_size)


def gradient_sizes(gradient: torch.Tensor, output_size: Sequence[Any], input_size: Sequence[Any], *_: Any) -> Any:
    """The fake rule of the operators: the operand's sizes in the gradient's format; see `contiguous_sizes`."""
    if not is_channels_last(gradient):
        return gradient.new_empty(input_size)
    batch, channels, height, width = input_size
    return gradient.new_empty([batch, height, width, channels]).permute(0, 3, 1, 2)
