"""The layout of a convolution's result, without asking how large its operands are.

The tracer asks eager mode which library would run the call, and that depends on the batch (2 to 15), on the number of
elements and on what is empty: each answer guards sizes. All libraries for CPUs lay out their result alike (see
``_conv_determine_backend_memory_format`` in aten/src/ATen/native/Convolution.cpp): channels-last where an operand is,
contiguous elsewhere. So one of them is named, and the call itself still goes where eager mode sends it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from symshape.frontend.bridge.layouts import is_channels_last
from symshape.frontend.patches.patch import Changes

_C: Any = torch._C  # these have no types


def layouts_of_convolutions(changes: Changes) -> None:
    """No size is asked for."""
    changes.wrap(_C, "_select_conv_backend", _planar)
    changes.wrap(_C, "_conv_determine_backend_memory_format", _alike)


def _planar(usual: Callable[..., Any]) -> Callable[..., Any]:
    def select(*args: Any, **kwargs: Any) -> Any:
        x = args[0] if args else kwargs["input"]  # 2.11 gives names
        planar = x.dim() <= 4 and x.device.type == "cpu" and not x.is_mkldnn
        return _C._ConvBackend.Slow2d if planar else usual(*args, **kwargs)

    return select


def _alike(usual: Callable[..., Any]) -> Callable[..., Any]:
    """For the library that is named above: as C++ decides it, but C++ asks each size whether it is larger than 1."""

    def determine(x: torch.Tensor, weight: torch.Tensor, backend: Any) -> torch.memory_format:
        if backend != _C._ConvBackend.Slow2d or x.dim() != 4:
            return usual(x, weight, backend)  # type: ignore[no-any-return]
        return torch.channels_last if is_channels_last(x) or is_channels_last(weight) else torch.contiguous_format

    return determine
