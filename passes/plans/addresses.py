"""Finds the tensor arguments of kernels that start at an allocation at every launch, and are therefore aligned."""

from __future__ import annotations

from typing import Any

from torch_mlir import ir

from symshape.analysis.mixed_reductions import positions_taken
from symshape.dialects.accessors import (
    MIXED,
    body_of,
    callee_of,
    function_name,
    is_fresh,
    kernel_functions,
    kernel_kind,
    main_functions,
)


def allocated_arguments(module: ir.Module) -> dict[str, set[int]]:
    """By kernel, positions of the tensor arguments that are whole buffers of the host program at every launch.

    Allocators align such buffers to at least 64 bytes. Tensors of the user or of another graph may start anywhere.
    """
    found: dict[str, set[int]] = {}
    known: dict[ir.Value, bool] = {}
    for function in main_functions(module):
        for op in body_of(function):
            if op.name != "host.launch":
                continue
            tensors = [v for v in op.operands if isinstance(v.type, ir.RankedTensorType)]
            here = {i for i, v in enumerate(tensors) if _is_allocated(v, known)}
            callee = callee_of(op)
            found[callee] = found.get(callee, here) & here
    for function in kernel_functions(module):
        if kernel_kind(function) == MIXED:
            _enter(function, found)
    return found


def _enter(mixture: Any, found: dict[str, set[int]]) -> None:
    """Propagates the aligned arguments of a mixture to the kernels that it launches."""
    block = mixture.regions[0].blocks[0]
    tensors = [v for v in block.arguments if isinstance(v.type, ir.RankedTensorType)]
    own = found.get(function_name(mixture), set())
    launches = [op for op in body_of(mixture) if op.name == "host.launch"]
    for op, given in positions_taken(launches, {v: i for i, v in enumerate(tensors)}):
        here, callee = {i for i, position in enumerate(given) if position in own}, callee_of(op)
        found[callee] = found.get(callee, here) & here


def _is_allocated(value: ir.Value, known: dict[ir.Value, bool]) -> bool:
    if value not in known:
        known[value] = False if isinstance(value.owner, ir.Block) else _is_start(value.owner, value, known)
    return known[value]


def _is_start(op: Any, value: ir.Value, known: dict[ir.Value, bool]) -> bool:
    name = op.name
    if name == "tensor.empty":
        return True
    if name == "host.launch":  # a result of a launch is the destination it wrote
        tensors = [v for v in op.operands if isinstance(v.type, ir.RankedTensorType)]
        return _is_allocated(tensors[len(tensors) - len(op.results) + list(op.results).index(value)], known)
    if name == "symshape.reuse":
        return _is_allocated(op.operands[0], known)
    return name == "host.call" and is_fresh(op) and len(op.results) == 1
