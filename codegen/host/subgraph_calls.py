"""Generates calls of subgraphs in the host program: branches, bodies of loops, functions of tiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch_mlir import ir

from symshape.artifact.element_types import TORCH_NAMES
from symshape.dialects.accessors import (
    branches_of,
    carried_count,
    is_read,
    lists_count,
    sliced_count,
    stacks_steps,
    subgraphs_of,
    written_results,
)
from symshape.dialects.sizes import Layout
from symshape.dialects.types import dtype_of

if TYPE_CHECKING:
    from symshape.codegen.host.host_program import Writer


def write_cond(w: Writer, op: Any) -> None:
    """``t1, = (a if predicate else b)([...])``."""
    predicate, *operands = op.operands
    true, false = branches_of(op)
    names = [w.result_name(result) for result in op.results]
    arguments = ", ".join(map(w.operand, operands))
    w.lines.append(f"{_targets(names)}({true} if {w.operand(predicate)} else {false})([{arguments}])")
    for result in op.results:
        w.ensure_layout(result)


def write_while(w: Writer, op: Any) -> None:
    """The values that are carried go by names of their own where every step of them is kept, else by the results'."""
    cond, body = subgraphs_of(op)
    count, stacked = carried_count(op), stacks_steps(op)
    given = [w.operand(value) for value in op.operands]
    carried = [f"carried{i}" if stacked else w.result_name(op.results[i]) for i in range(count)]
    stacks = {i: w.result_name(op.results[i]) for i in range(count) if stacked and is_read(op.results[i])}
    arguments = ", ".join([*carried, *given[count:]])
    w.lines.append(f"{_targets(carried)}{_tuple(given[:count])}")
    w.lines += [f"steps{i} = []" for i in stacks]
    w.lines.append(f"while {cond}([{arguments}])[0]:")
    w.lines.append(f"    {_targets(carried)}{body}([{arguments}])")
    w.lines += [f"    steps{i}.append({carried[i]})" for i in stacks]
    w.lines += [f"{name} = torch.stack(steps{i} or [{carried[i]}])" for i, name in stacks.items()]
    if stacked:
        w.lines.append("del " + ", ".join([*carried, *(f"steps{i}" for i in stacks)]))
    else:
        _own_memory(w, op, given, carried)
    for result in op.results:
        w.ensure_layout(result)


def write_scan(w: Writer, op: Any) -> None:
    """Slices are views. A stack is allocated before the loop; its slices are written by the step, or copied to."""
    (body,) = subgraphs_of(op)
    count, slices, written = carried_count(op), sliced_count(op), written_results(op)
    given = [w.operand(value) for value in op.operands]
    carried = [w.result_name(result) for result in list(op.results)[:count]]
    layouts = [w.layout(value) for value in list(op.operands)[count : count + slices]]
    if carried:
        w.lines.append(f"{_targets(carried)}{_tuple(given[:count])}")
    stacks: dict[int, str] = {}  # the slice of each
    for i in range(count, len(op.results)):
        result = op.results[i]
        if i in written or is_read(result):
            layout, dtype = w.layout(result), TORCH_NAMES[dtype_of(result)]
            sizes, strides = w.tuple(layout.sizes), w.tuple(layout.strides)
            w.lines.append(f"{w.name(result)} = empty_strided({sizes}, {strides}, {dtype})")
            stacks[i] = _slice(w, w.name(result), layout)
    arguments = [
        *carried,
        *(_slice(w, name, layout) for name, layout in zip(given[count:], layouts)),
        *given[count + slices :],
        *(stacks[i] for i in written),
    ]
    steps = {i: f"step{i}" for i in range(count, len(op.results))}
    copies = [f"    {slice_}.copy_({steps[i]})" for i, slice_ in stacks.items() if i not in written]
    w.lines.append(f"for position in range({w.size(layouts[0].sizes[0])}):")
    w.lines.append(f"    {_targets([*carried, *steps.values()])}{body}([{', '.join(arguments)}])")
    w.lines += copies
    if steps:  # the last step's are held no longer
        w.lines.append(f"{' = '.join(steps.values())} = None")
    _own_memory(w, op, given, carried)
    for result in list(op.results)[:count]:
        w.ensure_layout(result)


def write_associative_scan(w: Writer, op: Any) -> None:
    """The first slice of a result is the operand's; each later one is combined from the one before it."""
    (combine,) = subgraphs_of(op)
    count, written = sliced_count(op), written_results(op)
    given = [w.operand(value) for value in op.operands]
    xs = [w.layout(value) for value in list(op.operands)[:count]]
    names, layouts = [w.name(result) for result in op.results], [w.layout(result) for result in op.results]
    slices = [_slice(w, name, layout) for name, layout in zip(names, layouts)]
    for name, result, layout in zip(names, op.results, layouts):
        sizes, strides = w.tuple(layout.sizes), w.tuple(layout.strides)
        w.lines.append(f"{name} = empty_strided({sizes}, {strides}, {TORCH_NAMES[dtype_of(result)]})")
    before = [_slice(w, name, layout, "(position - 1)") for name, layout in zip(names, layouts)]
    elements = [_slice(w, name, layout) for name, layout in zip(given, xs)]
    arguments = [*before, *elements, *given[count:], *(slices[i] for i in written)]
    w.lines.append(f"for position in range({w.size(xs[0].sizes[0])}):")
    w.lines.append("    if not position:")
    w.lines += [f"        {slice_}.copy_({element})" for slice_, element in zip(slices, elements)]
    w.lines.append("        continue")
    steps = [f"step{i}" for i in range(count)]
    w.lines.append(f"    {_targets(steps)}{combine}([{', '.join(arguments)}])")
    w.lines += [f"    {slices[i]}.copy_({steps[i]})" for i in range(count) if i not in written]
    w.lines.append(f"{' = '.join(steps)} = None")


def write_attention(w: Writer, op: Any) -> None:
    """Allocates the results; the tiles are found at run time, from the block mask."""
    scores, weights, *whole = subgraphs_of(op)
    given, count, written = [w.operand(value) for value in op.operands], lists_count(op), written_results(op)
    for result in op.results:
        layout, dtype = w.layout(result), TORCH_NAMES[dtype_of(result)]
        sizes, strides = w.tuple(layout.sizes), w.tuple(layout.strides)
        w.lines.append(f"{w.name(result)} = empty_strided({sizes}, {strides}, {dtype})")
    lists, block, captured = given[3 : 3 + count], given[3 + count : 5 + count], given[5 + count :]
    groups = [given[:3], lists, block, captured, [w.name(result) for result in op.results]]
    tuples = ", ".join(f"({_tuple(group)})" for group in groups)
    functions, memory = ", ".join([scores, weights, *(whole or ["None"])]), tuple(i in written for i in range(3))
    w.lines.append(f"tiled_attention({functions}, {tuples}, {memory})")


def _slice(w: Writer, name: str, layout: Layout, position: str = "position") -> str:
    """A slice of a tensor at a position along its first dim."""
    sizes, strides, step = w.tuple(layout.sizes[1:]), w.tuple(layout.strides[1:]), w.size(layout.strides[0])
    return f"reinterpret({name}, {sizes}, {strides}, {position} * {step})"


def _own_memory(w: Writer, op: Any, given: Sequence[str], carried: Sequence[str]) -> None:
    """Copies initial values for a loop without steps, which must return new memory."""
    for value, before, after in zip(op.operands, given, carried):
        if isinstance(value.type, ir.RankedTensorType):
            w.lines.append(f"if {after} is {before}: {after} = {after}.clone()")


def _targets(names: Sequence[str]) -> str:
    """The targets of an assignment of a tuple; "" for an empty one."""
    return f"{_tuple(names)} = " if names else ""


def _tuple(parts: Sequence[str]) -> str:
    return f"{', '.join(parts)}{',' if len(parts) == 1 else ''}"
