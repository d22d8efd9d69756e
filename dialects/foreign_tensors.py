"""Foreign tensors: tensors that kernels cannot read, marked on their ``symshape.bind``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch_mlir import ir

from symshape.dialects.accessors import bound_device, is_negated


@dataclass(frozen=True)
class Foreign:
    """Why kernels cannot read a tensor. ``device``: where it lies, "" for where they run; ``negated``: its elements are
    those in memory times -1; ``by_value``: kernels can be given the number that it is."""

    device: str
    negated: bool
    by_value: bool = False

    def __str__(self) -> str:
        parts = ["a negative view"] * self.negated + [f"on {self.device}"] * bool(self.device)
        return " ".join(parts)


def foreign_of(bind: Any) -> Foreign | None:
    """Of ``symshape.bind``; None for a tensor that kernels can read."""
    if not len(bind.operation.attributes):  # as nearly all: this is asked of every tensor, after every pass
        return None
    device, negated = bound_device(bind), is_negated(bind)
    if not device and not negated:
        return None
    rank = ir.RankedTensorType(bind.operands[0].type).rank
    return Foreign(device, negated, by_value=device == "cpu" and not negated and rank == 0)
