"""Reads the private tables of ``torch.nn.Module``."""

from __future__ import annotations

from typing import Any

import torch


def global_hooks() -> list[Any]:
    """The tables of hooks that all modules have."""
    from torch.nn.modules import module

    names = (
        "_global_forward_hooks",
        "_global_forward_pre_hooks",
        "_global_backward_hooks",
        "_global_backward_pre_hooks",
    )
    return [getattr(module, name) for name in names]


def tensor_tables(module: torch.nn.Module) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tables of a module's own parameters and of its own buffers, by name."""
    return module._parameters, module._buffers
