"""Finds operations that may raise an error depending on data, and the values that decide it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from torch_mlir import ir

from symshape.analysis.loops import INTEGER_DIVISIONS
from symshape.dialects.accessors import body_of, call_target, callee_of, in_place_of, is_fresh
from symshape.passes.fusion.compute_graph import is_constant

# Operations that raise nothing and write to nothing that they are given.
_HARMLESS = frozenset(
    {
        "host.attention",
        "symshape.assume",
        "symshape.bind",
        "symshape.reuse",
        "symshape.symbol",
        "symshape.view",
        "tensor.empty",
        "func.return",
    }
)
# Library calls that raise nothing for what is in their operands. Of all others it is not known.
_HARMLESS_CALLS = frozenset(
    {
        "_to_copy",
        "addmm",
        "baddbmm",
        "bmm",
        "cat",
        "clone",
        "constant",
        "convolution",
        "convolution_backward",
        "copy",
        "cumsum",
        "empty",
        "mm",
        "rand",
        "randint",
        "randn",
        "sort",
        "storage",
        "topk",
    }
)
# They may raise, and write to nothing that they are given.
_READING = frozenset({"host.launch", "symshape.expect_true", "symshape.guard", "symshape.unbacked_symbol"})
# What may be moved in front of others.
_MOVED = frozenset({"host.launch", "symshape.view", "tensor.empty"})
_HARMLESS_PREFIXES = ("_c10d_functional.", "aten._scaled_dot_product_")


def errors_of(op: Any, kernels: Mapping[str, Any]) -> list[frozenset[ir.Value]]:
    """The errors that an operation of main may raise: for each one the operands that decide it. ``kernels``: functions
    by name."""
    if op.name == "host.launch":
        operands = list(op.operands)
        return [frozenset(operands[i] for i in error) for error in _errors_of_kernel(kernels[callee_of(op)])]
    if op.name in _HARMLESS or op.name.startswith("arith."):
        return []
    if op.name == "host.call":
        target = call_target(op)
        namespace, _, name = target.partition(".")
        known = namespace in ("aten", "symshape") and name.partition(".")[0] in _HARMLESS_CALLS
        if known or target.startswith(_HARMLESS_PREFIXES):
            return []
    return [frozenset(op.operands)]


def _errors_of_kernel(function: Any) -> list[frozenset[int]]:
    """For each index check and integer division of a kernel the indices of the arguments that decide whether it
    fails."""
    entry = function.regions[0].blocks[0]
    found = []
    for op in body_of(function):
        for region in op.regions:
            for view in region.blocks[0].operations:
                inner = view.operation
                if inner.name == "symshape.check_index":
                    found.append(_read(entry, list(inner.operands)))
                elif inner.name in INTEGER_DIVISIONS and not _is_safe(inner.operands[1]):
                    found.append(_read(entry, [inner.operands[1]]))
    return found


def _is_safe(divisor: ir.Value) -> bool:
    """Whether a divisor is no number of a tensor: a constant, or computed of sizes and positions."""
    return is_constant(divisor) or isinstance(divisor.type, ir.IndexType)


def _read(entry: ir.Block, values: list[ir.Value]) -> frozenset[int]:
    """Positions of the arguments of a kernel that values in its bodies are computed of."""
    found: set[int] = set()
    seen: set[ir.Value] = set()
    stack = list(values)
    while stack:
        value = stack.pop()
        if value in seen:
            continue
        seen.add(value)
        owner: Any = value.owner
        if isinstance(owner, ir.Block):
            position = ir.BlockArgument(value).arg_number
            if owner == entry:
                found.add(position)
            else:
                stack.append(owner.owner.operands[position])  # of a linalg.generic: its inputs, then its outputs
            continue
        if owner.name == "linalg.generic":
            terminator = owner.regions[0].blocks[0].operations[-1]
            stack.append(terminator.operands[ir.OpResult(value).result_number])
        else:
            stack.extend(owner.operands)
    return frozenset(found)


def move_errors_up(operations: Sequence[Any], kernels: Mapping[str, Any], before: Sequence[Any]) -> None:
    """Moves launches that may raise an error, with their dependences, before the first operation of ``before`` and of
    the chain of launches in whose memory it may be computed. Launches that depend on that chain stay, and so do those
    after a call that may write to an operand."""
    position = {op: i for i, op in enumerate(operations)}
    chain = set(before)
    stack = [op for op in before if op.name == "host.launch"]
    while stack:
        launch = stack.pop()
        for i, _ in in_place_of(kernels[callee_of(launch)]):
            owner = launch.operands[i].owner
            if not isinstance(owner, ir.Block) and owner.name == "host.launch" and owner.operation not in chain:
                chain.add(owner.operation)
                stack.append(owner.operation)
    first = min((position[op] for op in chain), default=len(operations))
    moved: set[Any] = set()
    for op in operations[first:]:
        if op.name not in _HARMLESS | _READING and not op.name.startswith("arith.") and not is_fresh(op):
            break  # it may write to what a launch behind it reads
        if op.name == "host.launch" and op not in chain and errors_of(op, kernels):
            moved |= _needed(op, position, first, chain)
    for op in sorted(moved, key=position.__getitem__):
        op.move_before(operations[first])


def _needed(launch: Any, position: Mapping[Any, int], first: int, chain: Collection[Any]) -> set[Any]:
    """A launch and its dependences after ``first``; empty if one of them is in the chain, or cannot be moved."""
    found: set[Any] = set()
    stack = [launch]
    while stack:
        op = stack.pop()
        if op in chain or op.name not in _MOVED and not op.name.startswith("arith."):
            return set()
        found.add(op)
        owners = [value.owner.operation for value in op.operands if not isinstance(value.owner, ir.Block)]
        stack += [owner for owner in owners if position[owner] >= first]
    return found
