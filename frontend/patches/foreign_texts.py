"""Texts of PyTorch's errors that are read, where they are no constants of its Python code."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from symshape.frontend.bridge.tracing_errors import asks_for_sizes


def message_of_symbolic_sizes() -> str:
    """C++ code that asks a tensor with symbolic sizes for numbers raises an error that says so: ``asks_for_sizes``
    knows it by its text. Returns what is wrong."""
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    context: Any = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC, DimDynamic.STATIC])
    tensor = mode.from_tensor(torch.ones(4, 5), symbolic_context=context)
    try:
        torch._C._to_dlpack(tensor)
    except RuntimeError as error:
        return "" if asks_for_sizes(error) else f"the error of a symbolic size in C++ is {str(error).splitlines()[0]!r}"
    return "C++ code takes a symbolic size for a number"
