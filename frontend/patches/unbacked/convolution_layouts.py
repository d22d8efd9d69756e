"""Traces the layout of a convolution's result without asking for sizes.

The tracer asks eager mode which library would run the call. That depends on the batch (2 to 15), on the number of
elements, and on empty operands, and so guards sizes. All CPU libraries give the same result layout (see
``_conv_determine_backend_memory_format`` in aten/src/ATen/native/Convolution.cpp): channels-last if an operand is, else
contiguous. One of them is therefore named while tracing; the call itself still runs where eager mode sends it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from symshape.frontend.bridge.layouts import is_channels_last
from symshape.frontend.patches.patch import Changes

_C: Any = torch._C  # its functions have no type stubs


def layouts_of_convolutions(changes: Changes) -> None:
    """Selects the layout without asking for sizes."""
    changes.wrap(_C, "_select_conv_backend", _planar)
    changes.wrap(_C, "_conv_determine_backend_memory_format", _alike)


def _planar(original: Callable[..., Any]) -> Callable[..., Any]:
    def select(*args: Any, **kwargs: Any) -> Any:
        x = args[0] if args else kwargs["input"]  # PyTorch 2.11 passes keywords
        planar = x.dim() <= 4 and x.device.type == "cpu" and not x.is_mkldnn
        return _C._ConvBackend.Slow2d if planar else original(*args, **kwargs)

    return select


def _alike(original: Callable[..., Any]) -> Callable[..., Any]:
    """The layout for the library named above. Follows C++, which would ask whether each size is larger than 1."""

    def determine(x: torch.Tensor, weight: torch.Tensor, backend: Any) -> torch.memory_format:
        if backend != _C._ConvBackend.Slow2d or x.dim() != 4:
            return original(x, weight, backend)  # type: ignore[no-any-return]
        return torch.channels_last if is_channels_last(x) or is_channels_last(weight) else torch.contiguous_format

    return determine
