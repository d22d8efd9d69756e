"""Transformations that remove operations, operands and results (`transformations.py` lists them)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch_mlir import ir

from symshape.dialects.accessors import body_of
from symshape.tools.reduce.edits import (
    binds_of,
    block_of,
    erase,
    erase_arguments,
    functions_of,
    is_main,
    is_used,
    keep_outputs,
    nested,
    operations_in,
    to_argument,
    uncalled_functions,
    unused_arguments,
    update_type,
)


def interface(module: ir.Module) -> list[Any]:
    """Uncalled functions, and unused arguments of main as (function, position)."""
    arguments = [(f, i) for f in functions_of(module) if is_main(f) for i in unused_arguments(f)]
    return [*uncalled_functions(module), *arguments]


def erase_unused(module: ir.Module, sites: Sequence[Any]) -> None:
    positions: dict[ir.Operation, list[int]] = {}
    for site in reversed(sites):
        if isinstance(site, tuple):
            positions.setdefault(site[0], []).append(site[1])
        elif not any(map(is_used, site.results)):
            erase(site)
    for function, erased in positions.items():
        erase_arguments(function, erased)


def outputs(module: ir.Module) -> list[tuple[ir.Operation, int]]:
    """Pairs (function, position) of all values that main functions return."""
    mains = [function for function in functions_of(module) if is_main(function)]
    return [(function, i) for function in mains for i in range(len(body_of(function)[-1].operands))]


def drop_outputs(module: ir.Module, sites: Sequence[tuple[ir.Operation, int]]) -> None:
    for function in dict.fromkeys(function for function, _ in sites):
        dropped = {i for owner, i in sites if owner == function}
        count = len(body_of(function)[-1].operands)
        keep_outputs(function, [i for i in range(count) if i not in dropped])


def returned_early(module: ir.Module) -> list[tuple[ir.Operation, int, ir.Value]]:
    """Triples (return, position, value): tensor operands of the operation that computes a returned value."""
    found = []
    for function, i in outputs(module):
        returned = body_of(function)[-1]
        owner = returned.operands[i].owner
        if not isinstance(owner, ir.Block):
            tensors = [v for v in owner.operation.operands if isinstance(v.type, ir.RankedTensorType)]
            found += [(returned, i, v) for v in tensors if not isinstance(v.owner, ir.Block)]
    return found


def return_early(module: ir.Module, sites: Sequence[tuple[ir.Operation, int, ir.Value]]) -> None:
    reroute(module, sites)
    for returned in dict.fromkeys(op for op, _, _ in sites):
        update_type(returned.parent.operation)


def operations(module: ir.Module) -> list[ir.Operation]:
    """Counted operations other than arithmetic on sizes. In called functions only unused ones, since results cannot
    become arguments there."""
    found = []
    for op in operations_in(module):
        is_scalar = op.name.startswith("arith.")
        if not is_scalar and (is_main(op.parent) or not any(map(is_used, op.results))):
            found.append(op)
    return found


def cut_operations(module: ir.Module, sites: Sequence[ir.Operation]) -> None:
    for op in reversed(sites):
        function = op.parent.operation
        for result in op.results:
            if is_main(function):
                to_argument(function, result)
        if not any(map(is_used, op.results)):
            erase(op)


def forwardable(module: ir.Module) -> list[tuple[ir.Operation, ir.Value]]:
    """Pairs (operation with one result, operand of the same type): the operand can replace the result."""
    found = []
    for op in operations_in(module):
        if len(op.results) == 1 and isinstance(op.results[0].type, ir.RankedTensorType):
            found += [(op, v) for v in dict.fromkeys(op.operands) if v.type == op.results[0].type]
    return found


def forward_operands(module: ir.Module, sites: Sequence[tuple[ir.Operation, ir.Value]]) -> None:
    first: dict[ir.Operation, ir.Value] = {}
    for op, operand in sites:
        first.setdefault(op, operand)
    for op, operand in reversed(first.items()):  # in reverse, so that operands still exist
        for bind in binds_of(op.results[0]):
            bind.erase()
        op.results[0].replace_all_uses_with(operand)
        op.erase()


def operands(module: ir.Module) -> list[tuple[ir.Operation, int, ir.Value]]:
    """Triples (operation, position, value): an earlier value of equal type and layout could be read instead."""
    return [site for function in functions_of(module) for site in _operands(function)]


def _operands(function: ir.Operation) -> list[tuple[ir.Operation, int, ir.Value]]:
    first: dict[tuple[Any, ...], ir.Value] = {}
    kinds: dict[ir.Value, tuple[Any, ...]] = {}

    def learn(values: Sequence[ir.Value]) -> None:
        for value in values:
            if isinstance(value.type, ir.RankedTensorType):
                layouts = [tuple(bind.operands)[1:] for bind in binds_of(value)]
                kinds[value] = (value.type, layouts[0] if layouts else ())
                first.setdefault(kinds[value], value)

    learn(list(block_of(function).arguments))
    found = []
    for op in body_of(function):
        if op.name != "symshape.bind":
            earliest = [(i, first[kinds[v]], v) for i, v in enumerate(op.operands) if v in kinds]
            found += [(op, i, value) for i, value, current in earliest if value != current]
        learn(list(op.results))
    return found


def reroute(module: ir.Module, sites: Sequence[tuple[ir.Operation, int, ir.Value]]) -> None:
    for op, position, value in sites:
        op.operands[position] = value


def bodies(module: ir.Module) -> list[tuple[ir.Operation, int, ir.Value]]:
    """Triples (linalg.yield, position, argument): the argument could be yielded instead of a computed value."""
    found = []
    for op in operations_in(module):
        for inner in nested(op):
            if inner.name == "linalg.yield":
                arguments = list(inner.block.arguments)
                for i, value in enumerate(inner.operands):
                    same = [a for a in arguments if a.type == value.type]
                    if same and not isinstance(value.owner, ir.Block):
                        found.append((inner, i, same[0]))
    return found
