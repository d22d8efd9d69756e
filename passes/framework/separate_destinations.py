"""Restores one destination per launch after MLIR's CSE has merged equal allocations."""

from __future__ import annotations

from torch_mlir import ir

from symshape.dialects.accessors import body_of, is_allocated, main_functions


def separate_destinations(module: ir.Module) -> None:
    """Gives each destination of a launch a ``tensor.empty`` of its own.

    Two equal ``tensor.empty`` are one value, so MLIR's ``cse`` merges them. In stage ``kernels`` each is an allocation.
    """
    for function in main_functions(module):
        written = set[ir.Value]()
        for launch in [op for op in body_of(function) if op.name == "host.launch"]:
            tensors = [i for i, v in enumerate(launch.operands) if isinstance(v.type, ir.RankedTensorType)]
            for position in tensors[len(tensors) - len(launch.results) :]:
                value = launch.operands[position]
                if is_allocated(value) and value in written:
                    launch.operands[position] = _another(value, launch)
                written.add(value)


def _another(value: ir.Value, launch: ir.Operation) -> ir.Value:
    with ir.InsertionPoint(launch):
        made: ir.Value = value.owner.clone().results[0]
        return made
