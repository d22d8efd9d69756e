"""write-slices: lets each step of a scan write its slice of the stacked result in place."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

from torch_mlir import ir

from symshape.dialects.accessors import (
    body_of,
    calls_subgraphs,
    carried_count,
    destinations,
    function_name,
    is_allocated,
    is_fresh,
    is_read,
    main_functions,
    set_written_results,
    subgraphs_of,
    written_results,
)
from symshape.dialects.sizes import Sizes
from symshape.passes.framework.base import Pass, PassContext

_STACKING = ("host.scan", "host.associative_scan")


@dataclass(frozen=True)
class WriteSlices(Pass):
    """Each step of ``host.scan`` or ``host.associative_scan`` writes its results directly into its slice of the stack.

    The slice becomes an argument of the function. Without this pass, the host program copies the results there.

    Before::

        %ys = "host.scan"(%xs) {body = @step, carried = 0 : i64, sliced = 1 : i64}
        func.func @step(%x: tensor<?xf32>) {
          %d = tensor.empty(%s0) : tensor<?xf32>
          %y = "host.launch"(%x, %d, %s0) {callee = @kernel_0}
          return %y

    After::

        %ys = "host.scan"(%xs) {body = @step, carried = 0 : i64, sliced = 1 : i64, written = array<i64: 0>}
        func.func @step(%x: tensor<?xf32>, %d: tensor<?xf32>) {
          %y = "host.launch"(%x, %d, %s0) {callee = @kernel_0}
          return %y

    Results of library calls, and carried values and tensors that share memory with one, are still copied.

    The functions of ``host.attention`` get the memory of their first results in the same way: one buffer for all tiles,
    or the output itself if there is a single tile.
    """

    name: ClassVar[str] = "write-slices"
    statistics: ClassVar[dict[str, str]] = {
        "written": "stacks whose slices are written by the steps",
        "copied": "stacks whose slices are copied",
        "tiles": "functions of an attention that write to memory which all of its tiles share, or to its output",
    }

    def run(self, module: ir.Module, context: PassContext) -> bool:
        functions = {function_name(function): function for function in main_functions(module)}
        callings = [(f, op) for f in functions.values() for op in body_of(f) if calls_subgraphs(op)]
        callers = Counter(name for _, op in callings for name in subgraphs_of(op))
        count = {"written": 0, "copied": 0, "tiles": 0}
        for function, scan in callings:
            if written_results(scan):
                continue
            if scan.name == "host.attention":
                tiles = [
                    i for i, name in enumerate(subgraphs_of(scan)) if _written_tile(functions[name], callers[name])
                ]
                if tiles:
                    set_written_results(scan, tiles)
                count["tiles"] += len(tiles)
            if scan.name not in _STACKING:
                continue
            (body,) = subgraphs_of(scan)
            stacks = [i for i in range(carried_count(scan), len(scan.results)) if is_read(scan.results[i])]
            found = _written(scan, stacks, function, functions[body]) if callers[body] == 1 else []
            if found:
                set_written_results(scan, found)
            count["written"] += len(found)
            count["copied"] += len(stacks) - len(found)
        self.count(context, **count)
        return count["written"] + count["tiles"] > 0


def _written(scan: ir.Operation, stacks: list[int], caller: Any, body: Any) -> list[int]:
    """Makes destinations of stacked values arguments of the body; which results those are."""
    outer, inner = (_layouts(function) for function in (caller, body))
    returned = list(body_of(body)[-1].operands)
    found = []
    for i in stacks:
        value, stack = returned[i], outer.get(scan.results[i])
        layout = inner.get(value)
        if stack is None or layout is None or stack.strides[1:] != layout.strides or not _is_own(value, returned):
            continue
        if _take_destination(body, value):
            found.append(i)
    return found


def _written_tile(function: Any, callers: int) -> bool:
    """Makes the destination of a function's first result an argument, if no other result shares its memory."""
    returned = list(body_of(function)[-1].operands)
    return callers == 1 and _is_own(returned[0], returned) and _take_destination(function, returned[0])


def _take_destination(function: Any, value: ir.Value) -> bool:
    """Makes the destination of a launch's result the last argument of a function; False if it is not new memory."""
    block = function.regions[0].blocks[0]
    dest = next(d for d, result in zip(destinations(value.owner), value.owner.results) if result == value)
    if not is_allocated(dest):
        return False
    empty = dest.owner
    argument = block.add_argument(dest.type, empty.location)
    dest.replace_all_uses_with(argument)
    empty.erase()
    returned = [v.type for v in body_of(function)[-1].operands]
    kinds = ir.FunctionType.get([argument.type for argument in block.arguments], returned)
    function.attributes["function_type"] = ir.TypeAttr.get(kinds)
    return True


def _layouts(function: Any) -> dict[ir.Value, Any]:
    sizes = Sizes(function.regions[0].blocks[0])
    sizes.learn(body_of(function))
    return sizes.layouts


def _is_own(value: ir.Value, returned: list[ir.Value]) -> bool:
    """Whether a launch makes a value, and nothing else that is returned can be in its memory."""
    if isinstance(value.owner, ir.Block) or value.owner.name != "host.launch" or returned.count(value) > 1:
        return False
    return not any(_may_return(use.owner.operation, returned) for use in value.uses)


def _may_return(op: Any, returned: list[ir.Value]) -> bool:
    """Whether an operation may pass its operand's memory on to a returned value."""
    if op.name == "symshape.view":
        views = list(op.results)
        return any(v in returned or any(_may_return(u.owner.operation, returned) for u in v.uses) for v in views)
    if op.name in ("host.launch", "symshape.bind", "symshape.unbacked_symbol", "func.return"):
        return False
    return not is_fresh(op)
