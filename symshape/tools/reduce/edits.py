"""Edits of a module that keep it consistent: turning results into arguments, removing arguments and returned values."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from torch_mlir import ir

from symshape.dialects.accessors import (
    body_of,
    function_name,
    is_kernel,
    is_layer,
    is_subgraph,
    output_template,
    returned_relations,
    set_output_template,
    set_returned_relations,
    set_written_arguments,
    symbol_binding,
    written_arguments,
)
from symshape.dialects.symbols import SYMBOLS
from symshape.prover.numbers.facts import INT64_MAX

BIND: Final = "symshape.bind"
# Operations that declare symbols, layouts and constants; not counted as operations.
SCAFFOLD: Final = frozenset({*SYMBOLS, BIND, "arith.constant", "func.return"})
_ARGUMENT = re.compile(r"\barg(\d+)")
_CALLEES = ("callee", "true", "false", "cond", "body")


def copied(module: ir.Module) -> ir.Module:
    """A copy of a module in the same context."""
    with module.context, ir.Location.unknown():
        new = ir.Module.create(module.operation.location)
        with ir.InsertionPoint(new.body):
            for function in module.body.operations:
                function.operation.clone()
        for name, value in module.operation.attributes.items():
            new.operation.attributes[name] = value
    return new


def functions_of(module: ir.Module) -> list[ir.Operation]:
    """All functions of a module that have a body."""
    views = module.body.operations
    return [v.operation for v in views if v.operation.name == "func.func" and len(v.operation.regions[0].blocks)]


def is_main(function: Any) -> bool:
    """Whether no operation calls this function, so that its arguments and results may change."""
    return not (is_kernel(function) or is_subgraph(function) or is_layer(function))


def block_of(function: Any) -> ir.Block:
    return function.regions[0].blocks[0]


def operations_in(module: ir.Module) -> list[ir.Operation]:
    """The operations of all functions that are counted, that is, without ``SCAFFOLD``."""
    return [op for function in functions_of(module) for op in body_of(function) if op.name not in SCAFFOLD]


def called_functions(module: ir.Module) -> set[str]:
    """Names of the functions that operations refer to."""
    found: set[str] = set()
    for function in functions_of(module):
        for op in body_of(function):
            attributes = op.attributes
            names = [attributes[key] for key in _CALLEES if key in attributes]
            found |= {ir.FlatSymbolRefAttr(name).value for name in names if isinstance(name, ir.FlatSymbolRefAttr)}
    return found


def uncalled_functions(module: ir.Module) -> list[ir.Operation]:
    """Functions other than main that nothing calls."""
    called = called_functions(module)
    return [f for f in functions_of(module) if not is_main(f) and function_name(f) not in called]


def users_of(value: ir.Value) -> list[ir.Operation]:
    return [use.owner.operation for use in value.uses]


def is_used(value: ir.Value) -> bool:
    """Whether any operation other than its own bind reads a value."""
    return any(user.name != BIND or user.operands[0] != value for user in users_of(value))


def binds_of(value: ir.Value) -> list[ir.Operation]:
    """The binds that give a tensor its layout."""
    return [user for user in users_of(value) if user.name == BIND and user.operands[0] == value]


def erase(op: ir.Operation) -> None:
    """Erases an operation and the binds of its results. The results must have no other uses."""
    for result in op.results:
        for bind in binds_of(result):
            bind.erase()
    op.erase()


def unused_operations(module: ir.Module) -> list[ir.Operation]:
    """Operations whose results are unused, or used by such operations only, in order."""
    return [op for function in functions_of(module) for op in _unused(function)]


def _unused(function: Any) -> list[ir.Operation]:
    dead: set[ir.Operation] = set()
    found: list[ir.Operation] = []
    for op in reversed(body_of(function)):
        if op.results and all(_is_dead_use(user, result, dead) for result in op.results for user in users_of(result)):
            dead.add(op)
            found.append(op)
            dead.update(bind for result in op.results for bind in binds_of(result))
        else:
            found += reversed([inner for inner in nested(op) if inner.results and not any(map(is_used, inner.results))])
    return found[::-1]


def _is_dead_use(user: ir.Operation, value: ir.Value, dead: Collection[ir.Operation]) -> bool:
    if user.name == BIND and user.operands[0] == value:
        return True
    while user.parent is not None and user.parent.operation.name != "func.func":
        user = user.parent.operation
    return user in dead


def nested(op: ir.Operation) -> Iterator[ir.Operation]:
    """All operations in an operation's regions, in order."""
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation
                yield from nested(inner.operation)


def add_argument(function: Any, type_: ir.Type) -> ir.Value:
    """Appends an argument to main and returns it."""
    argument = block_of(function).add_argument(type_, ir.Location.unknown(function.context))
    update_type(function)
    return argument


def update_type(function: Any) -> None:
    """Sets a function's type from its arguments and returned values."""
    block, operations = block_of(function), body_of(function)
    inputs, results = [a.type for a in block.arguments], [v.type for v in operations[-1].operands]
    with function.context:
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, results))


def to_argument(function: Any, value: ir.Value) -> None:
    """Replaces a result by a new argument. A tensor without a bind gets a contiguous one, with new symbols for its
    dynamic sizes."""
    if not is_used(value):
        return
    argument = add_argument(function, value.type)
    value.replace_all_uses_with(argument)
    if isinstance(value.type, ir.RankedTensorType) and not binds_of(argument):
        _bind(function, argument)


def _bind(function: Any, argument: ir.Value) -> None:
    type_ = ir.RankedTensorType(argument.type)
    number = len(block_of(function).arguments) - 1
    with ir.InsertionPoint.at_block_begin(block_of(function)), ir.Location.unknown(function.context):
        dims = [
            new_symbol(function, f"arg{number}.size({dim})")
            if type_.is_dynamic_dim(dim)
            else constant(type_.shape[dim])
            for dim in range(type_.rank)
        ]
        strides: list[ir.Value] = []
        step = constant(1)
        for size in reversed(dims):
            strides.insert(0, step)
            step = ir.Operation.create("arith.muli", [size.type], [step, size]).result
        ir.Operation.create(BIND, [], [argument, *dims, *strides, constant(0)])


def constant(value: int) -> ir.Value:
    """An index constant, created at the insertion point."""
    index = ir.IndexType.get()
    return ir.Operation.create("arith.constant", [index], attributes={"value": ir.IntegerAttr.get(index, value)}).result


def new_symbol(function: Any, binding: str, hint: int = 3, low: int = 0, high: int = INT64_MAX) -> ir.Value:
    """A backed symbol with a name that is new in the function, created at the insertion point."""
    taken = {ir.StringAttr(op.attributes["name"]).value for op in body_of(function) if op.name in SYMBOLS}
    name = next(name for i in range(len(taken) + 1) if (name := f"r{i}") not in taken)
    numbers = {"min": low, "max": high, "divisor": 1, "hint": hint}
    i64 = ir.IntegerType.get_signless(64)
    attributes: dict[str, ir.Attribute] = {key: ir.IntegerAttr.get(i64, value) for key, value in numbers.items()}
    attributes |= {key: ir.StringAttr.get(text) for key, text in (("name", name), ("source", ""), ("binding", binding))}
    return ir.Operation.create("symshape.symbol", [ir.IndexType.get()], attributes=attributes).result


def unused_arguments(function: Any) -> list[int]:
    """Positions of arguments that no operation reads and no symbol is bound to."""
    needed = {
        int(m[1])
        for op in body_of(function)
        if op.name == "symshape.symbol" and (m := _ARGUMENT.search(symbol_binding(op)))
    }
    return [i for i, a in enumerate(block_of(function).arguments) if i not in needed and not is_used(a)]


def erase_arguments(function: Any, positions: Collection[int]) -> None:
    """Erases unused arguments and renumbers the bindings of symbols."""
    block = block_of(function)
    for position in sorted(positions, reverse=True):
        for bind in binds_of(block.arguments[position]):
            bind.erase()
        block.erase_argument(position)
    for op in body_of(function):
        if op.name == "symshape.symbol":
            text = _ARGUMENT.sub(lambda m: f"arg{_moved(int(m[1]), positions)}", symbol_binding(op))
            with op.context:
                op.attributes["binding"] = ir.StringAttr.get(text)
        if op.name == "func.return":
            written = written_arguments(op)
            with op.context:
                left = (-1 if one in positions else _moved(one, positions) for one in written)
                set_written_arguments(op, [one if old >= 0 else -1 for old, one in zip(written, left)])
    update_type(function)


def _moved(position: int, erased: Collection[int]) -> int:
    return position - sum(one < position for one in erased)


def keep_outputs(function: Any, kept: Sequence[int]) -> None:
    """Makes main return only the values at the positions ``kept``."""
    returned = body_of(function)[-1]
    operands, relations = list(returned.operands), returned_relations(returned)
    template, written = output_template(returned), written_arguments(returned)
    with function.context, ir.InsertionPoint(returned), ir.Location.unknown():
        new = ir.Operation.create("func.return", [], [operands[i] for i in kept])
        if template is not None:
            names = {old: f"${i}" for i, old in enumerate(kept)}
            set_output_template(new, _renamed(template, names))
        set_returned_relations(new, [relations[i] for i in kept])
        set_written_arguments(new, [written[i] for i in kept])
    returned.erase()
    update_type(function)


def _renamed(template: str, names: dict[int, str]) -> str:
    return re.sub(r"\$(\d+)", lambda m: names.get(int(m[1]), "None"), template)
