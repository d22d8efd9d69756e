"""Accessors: all attributes of operations and functions are read here, so that no other module needs their names.

Each function takes an ``ir.Operation`` or its ``OpView``, as walking over a block yields either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from torch_mlir import ir

from symshape.artifact.relations import OWN

_KERNEL, _SUBGRAPH, _LAYER, _OUTPUTS = "symshape.kernel", "symshape.subgraph", "symshape.layer", "symshape.outputs"
_RELATIONS, _WRITES = "symshape.relations", "symshape.writes"
_KIND, _IN_PLACE = "symshape.kind", "symshape.in_place"
_BY_VALUE, _DEVICE, _NEGATED = "symshape.by_value", "device", "negated"
_NUM_INPUTS, _NUM_OUTPUTS = "symshape.num_inputs", "symshape.num_outputs"
SCAN, ASSOCIATIVE_SCAN = "scan", "associative_scan"
MIXED = "mixed"
KERNEL_KINDS: Final = ("pointwise", "reduction", SCAN, "scatter", MIXED)
_COMBINER, _STATUS = "symshape.combiner", "symshape.status"
_AS_STORED = "symshape.as_stored"
_COLLECTIVE, _WAIT = "collective", "_c10d_functional.wait_tensor.default"
_CARRIED, _SLICED, _STACKED, _WRITTEN, _REASON = "carried", "sliced", "stacked", "written", "reason"
_LISTS = "lists"

# --- functions of a module ---------------------------------------------------------------------------------------


def is_kernel(function: Any) -> bool:
    """Whether a function is launched; others are the host program's."""
    return _KERNEL in function.operation.attributes


def is_subgraph(function: Any) -> bool:
    """Whether a function is a branch, the body of a loop, or computes a tile: what ``calls_subgraphs`` calls it."""
    return _SUBGRAPH in function.operation.attributes


def kernel_functions(module: ir.Module) -> list[Any]:
    """The kernels of a module, in order."""
    return [op for view in module.body.operations if is_kernel(op := view.operation)]


def main_functions(module: ir.Module) -> list[Any]:
    """The functions that the host program consists of, in order: main, subgraphs, and layers until they are inlined.
    Declarations, which have no body, are none of them."""
    found = (view.operation for view in module.body.operations)
    return [op for op in found if op.name == "func.func" and op.regions[0].blocks and not is_kernel(op)]


def body_of(function: Any) -> list[ir.Operation]:
    """The operations of a function's entry block, in order."""
    return [view.operation for view in function.operation.regions[0].blocks[0].operations]


def function_name(function: Any) -> str:
    """The name of its symbol."""
    return _text(function, "sym_name")


def rename_function(function: Any, name: str) -> None:
    """Gives a function's symbol another name; what calls it is the caller's business."""
    function.operation.attributes["sym_name"] = ir.StringAttr.get(name)


def text_of_kernel(function: Any) -> str:
    """A function's text without its location: the key by which equal kernels are found.

    Printed by itself: MLIR would number the values of the whole module first, for each function anew. It is not
    verified, which printing would do op by op, in Python.
    """
    text: str = function.get_asm(assume_verified=True, use_local_scope=True)
    return text


def mark_subgraph(function: Any) -> None:
    """Makes a function one that what ``calls_subgraphs`` may call."""
    function.operation.attributes[_SUBGRAPH] = ir.UnitAttr.get()


def is_layer(function: Any) -> bool:
    """Whether a function is what ``host.layer`` calls."""
    return _LAYER in function.operation.attributes


def layer_attributes() -> dict[str, ir.Attribute]:
    """The attributes of a function that ``host.layer`` calls."""
    return {_LAYER: ir.UnitAttr.get()}


def output_template(returned: Any) -> str | None:
    """The Python text of what main returns, ``$i`` the i-th operand; None where the operands are all of it."""
    return _text(returned, _OUTPUTS) if _OUTPUTS in returned.operation.attributes else None


def set_output_template(returned: Any, text: str) -> None:
    """See ``output_template``."""
    returned.operation.attributes[_OUTPUTS] = ir.StringAttr.get(text)


def returned_relations(returned: Any) -> list[str]:
    """``OWN``, ``VIEW``, ``DETACHED`` or ``OF_ARGUMENT`` for each operand of main's return."""
    if _RELATIONS not in returned.operation.attributes:
        return [OWN] * len(returned.operands)
    return _text(returned, _RELATIONS).split()


def set_returned_relations(returned: Any, relations: Sequence[str]) -> None:
    """See ``returned_relations``."""
    if any(one != OWN for one in relations):
        returned.operation.attributes[_RELATIONS] = ir.StringAttr.get(" ".join(relations))


def written_arguments(returned: Any) -> list[int]:
    """For each operand of main's return the index of the argument that the caller copies it to, and which is returned
    in its place; -1 if none."""
    attributes = returned.operation.attributes
    return list(ir.DenseI64ArrayAttr(attributes[_WRITES])) if _WRITES in attributes else [-1] * len(returned.operands)


def set_written_arguments(returned: Any, positions: Sequence[int]) -> None:
    """See ``written_arguments``."""
    attributes = returned.operation.attributes
    if any(one >= 0 for one in positions):
        attributes[_WRITES] = ir.DenseI64ArrayAttr.get(list(positions))
    elif _WRITES in attributes:
        del attributes[_WRITES]


# --- kernels -----------------------------------------------------------------------------------------------------


def kernel_attributes(
    kind: str,
    num_inputs: int,
    num_outputs: int,
    in_place: Sequence[tuple[int, int]] = (),
    by_value: Sequence[int] = (),
) -> dict[str, ir.Attribute]:
    """The attributes of a kernel function. ``in_place``: the pairs (input, output) that may share memory; ``by_value``:
    inputs that the host reads and passes as numbers."""
    i64 = ir.IntegerType.get_signless(64)
    attributes: dict[str, ir.Attribute] = {
        _KERNEL: ir.UnitAttr.get(),
        _KIND: ir.StringAttr.get(kind),
        _NUM_INPUTS: ir.IntegerAttr.get(i64, num_inputs),
        _NUM_OUTPUTS: ir.IntegerAttr.get(i64, num_outputs),
    }
    if in_place:
        attributes[_IN_PLACE] = ir.DenseI64ArrayAttr.get([number for pair in in_place for number in pair])
    if by_value:
        attributes[_BY_VALUE] = ir.DenseI64ArrayAttr.get(list(by_value))
    return attributes


def new_kernel(
    types: Sequence[ir.Type], results: Sequence[ir.Type], attributes: Mapping[str, ir.Attribute]
) -> ir.Operation:
    """A private function "kernel" with these ``kernel_attributes`` and an empty block of arguments; in no module."""
    named = {
        "sym_name": ir.StringAttr.get("kernel"),
        "sym_visibility": ir.StringAttr.get("private"),
        "function_type": ir.TypeAttr.get(ir.FunctionType.get(types, results)),
    }
    function = ir.Operation.create("func.func", regions=1, attributes={**named, **attributes})
    function.regions[0].blocks.append(*types)
    return function


def kernel_kind(function: Any) -> str:
    """One of ``KERNEL_KINDS`` (``MIXED``: a mixture of the kernels that it launches); "" for a kernel written by hand
    without the attribute."""
    return _text(function, _KIND) if _KIND in function.operation.attributes else ""


def num_inputs(function: Any) -> int:
    """The number of a kernel's input tensors, which are its first arguments; the other tensors are destinations."""
    return _number(function, _NUM_INPUTS)


def num_outputs(function: Any) -> int:
    """The number of a kernel's destinations, which are the tensors after its inputs."""
    return _number(function, _NUM_OUTPUTS)


def in_place_of(function: Any) -> list[tuple[int, int]]:
    """The pairs (input, output) of a kernel that may be one memory, counted among inputs and among outputs."""
    attributes = function.operation.attributes
    if _IN_PLACE not in attributes:
        return []
    flat = list(ir.DenseI64ArrayAttr(attributes[_IN_PLACE]))
    return list(zip(flat[::2], flat[1::2], strict=True))


def by_value_of(function: Any) -> frozenset[int]:
    """The inputs of a kernel that are passed as numbers: CPU tensors without dims, for a kernel on a GPU."""
    attributes = function.operation.attributes
    return frozenset(ir.DenseI64ArrayAttr(attributes[_BY_VALUE])) if _BY_VALUE in attributes else frozenset()


def bound_device(bind: Any) -> str:
    """The device of a ``symshape.bind``'s tensor, "" for the device of the kernels."""
    return _text(bind, _DEVICE) if _DEVICE in bind.operation.attributes else ""


def is_negated(bind: Any) -> bool:
    """Whether a ``symshape.bind``'s tensor has the negative bit: its elements are those in memory times -1."""
    return _NEGATED in bind.operation.attributes


def iterators(space: Any) -> list[str]:
    """The iterator types of a ``symshape.space``: "parallel" or "reduction" for each dim."""
    return [ir.StringAttr(kind).value for kind in ir.ArrayAttr(space.operation.attributes["iterators"])]


def combiner_of(generic: Any) -> str:
    """The combiner of a ``linalg.generic``: "add", "argmax", ...; "scan" or "associative_scan" for scans (``is_scan``);
    "" for a pointwise one."""
    return _text(generic, _COMBINER) if _COMBINER in generic.operation.attributes else ""


def is_scan(generic: Any) -> bool:
    """Whether a ``linalg.generic`` is a scan: a result at each point along its reduced dims, computed from the point
    before. "scan": its body maps carried values and elements to the next carried values and results, in order.
    "associative_scan": its body combines carried values with elements (its first operands, one per carried value; the
    carried values start as the first elements) and is associative; its results are the carried values."""
    return combiner_of(generic) in (SCAN, ASSOCIATIVE_SCAN)


def splat_number(value: ir.Value) -> int | float | bool:
    """The number in every element of a ``tensor.splat`` of a constant, or of the constant that MLIR folds it to."""
    op = value.owner
    if op.name == "arith.constant":
        attribute = ir.DenseElementsAttr(op.attributes["value"]).get_splat_value()
    else:
        attribute = op.operands[0].owner.attributes["value"]
    return attribute.value


def scan_results(generic: Any) -> list[ir.Value]:
    """The results of a scan (``is_scan``) over all dims. The results before them are the carried values."""
    results = list(generic.operation.results)
    return results[len(results) // 2 :]


def combiner_attribute(combiner: str) -> dict[str, ir.Attribute]:
    """The attribute that ``combiner_of`` reads, none for ""."""
    return {_COMBINER: ir.StringAttr.get(combiner)} if combiner else {}


def index_error(check: Any) -> str:
    """The error kind of a ``symshape.check_index``: a key of ``INDEX_ERRORS``."""
    return _text(check, "error") if "error" in check.operation.attributes else ""


def scatter_combiner(scatter: Any) -> str:
    """The combiner of a ``symshape.scatter``: "set", "add", "mul", "max" or "min"."""
    return _text(scatter, "combiner")


def scatter_dims(scatter: Any) -> list[int]:
    """For each dim of the destination of a ``symshape.scatter`` a dim of the space, or -1 for an index operand."""
    return [ir.IntegerAttr(dim).value for dim in ir.ArrayAttr(scatter.operation.attributes["dims"])]


def index_map(op: Any) -> ir.AffineMap:
    """The map of ``symshape.view``, ``symshape.store`` and ``affine.apply``."""
    return ir.AffineMapAttr(op.operation.attributes["map"]).value


def domain_of(view: Any) -> ir.Attribute | None:
    """The integer set of the points at which a ``symshape.view`` is defined; None if it is defined everywhere."""
    attributes = view.operation.attributes
    return attributes["domain"] if "domain" in attributes else None


# --- calls, launches and branches --------------------------------------------------------------------------------


def call_target(call: Any) -> str:
    """The target of a ``host.call``: "aten.mm.default"."""
    return _text(call, "target")


def call_arguments(call: Any) -> str:
    """The Python text of a call's arguments, ``$i`` its i-th operand."""
    return _text(call, "arguments")


def calls_of(function: Any, targets: Any) -> list[ir.Operation]:
    """The calls of a function whose targets are among these, in order."""
    return [op for op in body_of(function) if op.name == "host.call" and call_target(op) in targets]


def result_indices(call: Any) -> list[int] | None:
    """The indices of a call's results in the tuple that it returns; None if it returns no tuple."""
    attributes = call.operation.attributes
    return list(ir.DenseI64ArrayAttr(attributes["result_indices"])) if "result_indices" in attributes else None


def is_fresh(op: Any) -> bool:
    """Whether an operation is a call that changes no operand and whose results are new memory."""
    return "fresh" in op.operation.attributes


def draws_numbers(op: Any) -> bool:
    """Whether an operation moves the generator of random numbers on."""
    return "draws" in op.operation.attributes


def is_checked(call: Any) -> bool:
    """Whether sizes and types of a call's results are compared with the promised ones at run time."""
    return "checked" in call.operation.attributes


def collective_number(op: Any) -> int | None:
    """Which of its function's collectives a call is, from 0 on, in the order in which ranks meet; None of others."""
    return _number(op, _COLLECTIVE) if _COLLECTIVE in op.operation.attributes else None


def orders_of(op: Any) -> list[str]:
    """The kinds of operations to which one belongs that keep their order among themselves."""
    return [kind for kind in ("draws", _COLLECTIVE) if kind in op.operation.attributes]


def is_wait(op: Any) -> bool:
    """Whether an operation is a call that waits for a collective, whose result is its operand."""
    return bool(op.operation.name == "host.call" and call_target(op) == _WAIT)


def mark_call(
    call: Any, *, fresh: bool = False, draws: bool = False, checked: bool = False, collective: int | None = None
) -> None:
    """Sets what ``is_fresh``, ``draws_numbers``, ``is_checked`` and ``collective_number`` read."""
    for name, holds in (("fresh", fresh), ("draws", draws), ("checked", checked)):
        if holds:
            call.operation.attributes[name] = ir.UnitAttr.get()
    if collective is not None:
        call.operation.attributes[_COLLECTIVE] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), collective)


def reason_kept(call: Any) -> str:
    """Why the importer made an operator with subgraphs a library call; "" if unknown."""
    return _text(call, _REASON) if _REASON in call.operation.attributes else ""


def set_reason_kept(call: Any, reason: str) -> None:
    """See ``reason_kept``."""
    call.operation.attributes[_REASON] = ir.StringAttr.get(reason)


def callee_of(launch: Any) -> str:
    """The name of the kernel that a ``host.launch`` launches, or of the function that a ``host.layer`` calls."""
    return ir.FlatSymbolRefAttr(launch.operation.attributes["callee"]).value


def branches_of(cond: Any) -> tuple[str, str]:
    """The names of the functions that a ``host.cond`` calls for true and for false."""
    attributes = cond.operation.attributes
    return ir.FlatSymbolRefAttr(attributes["true"]).value, ir.FlatSymbolRefAttr(attributes["false"]).value


_SUBGRAPHS: Final = {
    "host.cond": ("true", "false"),
    "host.while": ("cond", "body"),
    "host.scan": ("body",),
    "host.associative_scan": ("combine",),
    "host.attention": ("scores", "weights", "whole"),
}


def calls_subgraphs(op: Any) -> bool:
    """Whether an operation is a ``host.cond``, a ``host.attention``, or a loop: ``host.while``, ``host.scan``,
    ``host.associative_scan``."""
    return op.name in _SUBGRAPHS


def subgraphs_of(op: Any) -> tuple[str, ...]:
    """The names of the functions that an operation calls which ``calls_subgraphs``, in the order of ``FORMS``; the last
    of a ``host.attention`` only where it has one."""
    attributes = op.operation.attributes
    keys = [key for key in _SUBGRAPHS[op.operation.name] if key in attributes]
    return tuple(ir.FlatSymbolRefAttr(attributes[key]).value for key in keys)


def carried_count(loop: Any) -> int:
    """The number of operands, the first ones, that a loop carries from step to step; 0 for
    ``host.associative_scan``."""
    return _number(loop, _CARRIED)


def sliced_count(scan: Any) -> int:
    """The number of operands, after the carried ones, of which each step of a ``host.scan`` gets a slice; for a
    ``host.associative_scan`` those whose slices it combines."""
    return _number(scan, _SLICED)


def stacks_steps(loop: Any) -> bool:
    """Whether a ``host.while`` returns what every step carried, and not the last one alone."""
    return _STACKED in loop.operation.attributes


def lists_count(attention: Any) -> int:
    """The number of operands of a ``host.attention``, after the first three, that list blocks."""
    return _number(attention, _LISTS)


def attention_attributes(lists: int) -> dict[str, ir.Attribute]:
    """The attributes that ``lists_count`` reads."""
    return {_LISTS: ir.IntegerAttr.get(ir.IntegerType.get_signless(64), lists)}


def written_results(scan: Any) -> list[int]:
    """Results of a ``host.scan`` or ``host.associative_scan`` whose slice each step writes itself: the last arguments
    of its function are those slices. For a ``host.attention``: which of its functions (0, 1, 2) write their first
    result to their last argument."""
    attributes = scan.operation.attributes
    return list(ir.DenseI64ArrayAttr(attributes[_WRITTEN])) if _WRITTEN in attributes else []


def set_written_results(scan: Any, positions: Sequence[int]) -> None:
    """See ``written_results``."""
    scan.operation.attributes[_WRITTEN] = ir.DenseI64ArrayAttr.get(list(positions))


def loop_attributes(carried: int, sliced: int | None = None, *, stacked: bool = False) -> dict[str, ir.Attribute]:
    """The attributes that ``carried_count``, ``sliced_count`` and ``stacks_steps`` read."""
    i64 = ir.IntegerType.get_signless(64)
    attributes: dict[str, ir.Attribute] = {_CARRIED: ir.IntegerAttr.get(i64, carried)}
    if sliced is not None:
        attributes[_SLICED] = ir.IntegerAttr.get(i64, sliced)
    if stacked:
        attributes[_STACKED] = ir.UnitAttr.get()
    return attributes


# --- symbols and constraints -------------------------------------------------------------------------------------


def symbol_name(symbol: Any) -> str:
    """The name of a ``symshape.symbol`` or ``symshape.unbacked_symbol``: "s0", "u0"."""
    return _text(symbol, "name")


def symbol_binding(symbol: Any) -> str:
    """Where a ``symshape.symbol`` is read: "arg0.size(1)". See ``parse_binding``."""
    return _text(symbol, "binding")


def symbol_source(symbol: Any) -> str:
    """The framework's name for a ``symshape.symbol``."""
    return _text(symbol, "source")


def symbol_range(symbol: Any) -> tuple[int, int, int]:
    """(min, max, divisor) of a symbol; the divisor of an unbacked one is 1."""
    divisor = _number(symbol, "divisor") if "divisor" in symbol.operation.attributes else 1
    return _number(symbol, "min"), _number(symbol, "max"), divisor


def symbol_hint(symbol: Any) -> int | None:
    """The size first seen of a symbol; None where there is none."""
    hint = _number(symbol, "hint") if "hint" in symbol.operation.attributes else -1
    return None if hint == -1 else hint


def reading_of(unbacked: Any) -> tuple[str, int]:
    """(kind, dim) of a ``symshape.unbacked_symbol``; the dim is 0 where the kind needs none."""
    dim = _number(unbacked, "dim") if "dim" in unbacked.operation.attributes else 0
    return _text(unbacked, "kind"), dim


def set_reading_dim(unbacked: Any, dim: int) -> None:
    """Changes the dim that ``reading_of`` gives."""
    unbacked.operation.attributes["dim"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), dim)


_MESSAGE: Final = {"symshape.expect_true": "message", "symshape.guard": "reason", "symshape.check_index": "message"}


def message_of(constraint: Any) -> str:
    """The message of a constraint that does not hold; "" for an assumption."""
    key = _MESSAGE.get(constraint.operation.name)
    return _text(constraint, key) if key else ""


def set_message(constraint: Any, text: str) -> None:
    """Replaces the message of a constraint that has one."""
    constraint.operation.attributes[_MESSAGE[constraint.operation.name]] = ir.StringAttr.get(text)


def destinations(launch: Any) -> list[ir.Value]:
    """The tensors that a launch writes: its last ones, one for each result."""
    tensors = [v for v in launch.operands if isinstance(v.type, ir.RankedTensorType)]
    return tensors[len(tensors) - len(launch.results) :]


def set_as_stored(widening: Any) -> None:
    """Marks an ``arith.extf`` of a half type in a kernel: its operand is rounded to that type first.

    A kernel rounds values that it stores, but not those that it passes on in registers. By its type the operand is
    rounded already, so MLIR's ``canonicalize`` would fold an ``arith.truncf`` that did so.
    """
    widening.operation.attributes[_AS_STORED] = ir.UnitAttr.get()


def is_as_stored(op: Any) -> bool:
    """See ``set_as_stored``."""
    return _AS_STORED in op.operation.attributes


def is_read(result: ir.Value) -> bool:
    """Whether anything but its bind reads a result."""
    return any(use.owner.operation.name != "symshape.bind" for use in result.uses)


def is_allocated(dest: ir.Value) -> bool:
    """Whether a destination is new memory: it may be an argument, or memory that is taken over."""
    return not isinstance(dest.owner, ir.Block) and dest.owner.name == "tensor.empty"


def status_of(constraint: Any) -> str:
    """The note of a pass that moved a constraint ("hoisted"); "" if none did."""
    return _text(constraint, _STATUS) if _STATUS in constraint.operation.attributes else ""


def set_status(constraint: Any, status: str) -> None:
    """See ``status_of``."""
    constraint.operation.attributes[_STATUS] = ir.StringAttr.get(status)


def _text(op: Any, name: str) -> str:
    text: str = ir.StringAttr(op.operation.attributes[name]).value
    return text


def _number(op: Any, name: str) -> int:
    number: int = ir.IntegerAttr(op.operation.attributes[name]).value
    return number
