"""Texts of PyTorch's errors that are parsed here, but are not constants in its Python code."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from symshape.frontend.bridge.tracing_errors import is_data_dependent_error


def message_of_symbolic_sizes() -> str:
    """A probe: ``is_data_dependent_error`` must recognise, by its text, the error that C++ raises when it needs numbers
    from a tensor with symbolic sizes. Returns what is wrong, or ""."""
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    context: Any = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC, DimDynamic.STATIC])
    tensor = mode.from_tensor(torch.ones(4, 5), symbolic_context=context)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the function is deprecated
            torch._C._to_dlpack(tensor)
    except RuntimeError as error:
        return (
            ""
            if is_data_dependent_error(error)
            else f"the error of a symbolic size in C++ is {str(error).splitlines()[0]!r}"
        )
    return "C++ code takes a symbolic size for a number"
