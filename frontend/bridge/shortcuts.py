"""Operators whose C++ code compares sizes to take a shortcut; their general case is right for every size.

The gradient of ``cumsum`` of at most one element is the incoming gradient, and the general case computes the same. So
the condition is evaluated as for larger sizes, without a guard. An operator is in these tables if all of its conditions
on 0 and 1 are of this kind. Conditions of operators that it calls are not affected: the condition must come from its
own C++.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# Nodes of PyTorch's graph of gradients.
GRADIENTS = frozenset(
    {
        "AddmmBackward0",  # whether an operand is transposed: of one column it does not matter
        "CummaxBackward0",
        "CumminBackward0",
        "CumsumBackward0",
        "FftC2RBackward0",  # of one or two elements no frequency counts twice: an empty part is multiplied by 2
        "FftR2CBackward0",  # and none is filled up with zeros
        "LogcumsumexpBackward0",
        "MmBackward0",
        "NativeGroupNormBackward0",  # which memory format the images have: of one image or one row it does not matter
        "RepeatBackward0",
    }
)


def run_in_full(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """For ``differentiate_by``: a composite C++ operator without its shortcuts."""
    return original(*args, **kwargs)


def is_shortcut(asking: Any) -> bool:
    """Whether the code that evaluates a condition, given as the innermost Python frame, is an operator of the
    tables."""
    if asking is None:
        return False
    if asking.f_code is _BACKWARD:
        node = torch._C._current_autograd_node()
        return node is not None and node.name() in GRADIENTS
    while asking is not None and asking.f_globals.get("__name__", "") in _CALLING:
        asking = asking.f_back
    return asking is not None and asking.f_code is run_in_full.__code__


_BACKWARD = torch.autograd.graph._engine_run_backward.__code__
_CALLING = ("torch._ops", "symshape.frontend.patches.operator_kernels")
