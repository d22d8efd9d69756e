"""Decomposes the gradient of a slice, but for steps along neighbouring elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def whole_if_stepping(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The decomposition of ``slice_backward`` into a choice at each element; on CPUs the operator stays for steps along
    the last dim, where most lanes of a vector would read nothing: eager mode writes zeros, and then each step's
    element."""

    def decomposition(gradient: torch.Tensor, sizes: Sequence[Any], dim: int, start: Any, end: Any, step: Any) -> Any:
        steps = not isinstance(step, int) or step > 1
        if gradient.is_cpu and steps and dim % max(len(sizes), 1) == len(sizes) - 1:
            return NotImplemented
        return rule(gradient, sizes, dim, start, end, step)

    return decomposition
