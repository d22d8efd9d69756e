"""Memory in flight: read by a collective until the wait for its result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch_mlir import ir

from symshape.dialects.accessors import collective_number, is_wait


def read_until(operations: Sequence[Any]) -> dict[Any, list[ir.Value]]:
    """For each wait, the tensors that its collective reads: they are in use until then, although they are no operands
    of the wait."""
    source: dict[ir.Value, ir.Value] = {}  # of views of results
    made: dict[ir.Value, list[ir.Value]] = {}  # result of a collective -> tensors that it reads
    found: dict[Any, list[ir.Value]] = {}
    for op in operations:
        if op.name == "symshape.view":
            source[op.results[0]] = source.get(op.operands[0], op.operands[0])
        elif op.name == "host.call" and collective_number(op) is not None:
            tensors = [value for value in op.operands if isinstance(value.type, ir.RankedTensorType)]
            made.update((result, tensors) for result in op.results)
        elif is_wait(op):
            waited = op.operands[0]
            found[op] = made.get(source.get(waited, waited), [])
    return found
