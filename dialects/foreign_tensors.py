"""Foreign tensors: tensors that kernels cannot read, marked on their ``symshape.bind``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch_mlir import ir

from symshape.dialects.accessors import bound_device, is_negated


@dataclass(frozen=True)
class Foreign:
    """Why kernels cannot read a tensor. ``device``: its device, "" for that of the kernels; ``negated``: it has the
    negative bit; ``by_value``: kernels can get its single element as a number."""

    device: str
    negated: bool
    by_value: bool = False

    def __str__(self) -> str:
        parts = ["a negative view"] * self.negated + [f"on {self.device}"] * bool(self.device)
        return " ".join(parts)


def foreign_of(bind: Any) -> Foreign | None:
    """The Foreign of a ``symshape.bind``'s tensor; None if kernels can read it."""
    if not len(bind.operation.attributes):  # the usual case; this runs for every tensor, after every pass
        return None
    device, negated = bound_device(bind), is_negated(bind)
    if not device and not negated:
        return None
    rank = ir.RankedTensorType(bind.operands[0].type).rank
    return Foreign(device, negated, by_value=device == "cpu" and not negated and rank == 0)
