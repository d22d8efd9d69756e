"""outline-layers: makes equal layers calls of one function, which is lowered and fused once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from torch_mlir import ir

from symshape.dialects.accessors import (
    draws_numbers,
    layer_attributes,
    main_functions,
    mark_call,
    symbol_name,
)
from symshape.dialects.conditions import emit_condition
from symshape.dialects.function_facts import known_conditions
from symshape.dialects.host import LayerOp
from symshape.dialects.reals import rebuild, sizes_in
from symshape.dialects.sizes import Sizes
from symshape.dialects.symbols import SYMBOLS
from symshape.dialects.symshape import attribute
from symshape.passes.framework.base import Pass, PassContext
from symshape.passes.layers.repetition import Layers, Targets, find_layers
from symshape.passes.lowering.aten.views import ALIASING
from symshape.passes.lowering.lower_aten import rules
from symshape.prover.numbers.condition import Condition

_ROUNDS: Final = 8  # kinds of layers in a function


@dataclass(frozen=True)
class OutlineLayers(Pass):
    """Outlines one of several equal layers as a function, and makes all of them calls of it; ``inline-layers`` undoes
    that.

    Before::

        %1 = "host.call"(%0, %w0) {target = "aten.mm.default"}   %2 = "host.call"(%1) {target = "aten.tanh.default"}
        %3 = "host.call"(%2, %w1) {target = "aten.mm.default"}   %4 = "host.call"(%3) {target = "aten.tanh.default"}

    After::

        func.func private @layer_0(%x, %w) attributes {symshape.layer} {
          %1 = "host.call"(%x, %w) {target = "aten.mm.default"}   %2 = "host.call"(%1) {target = "aten.tanh.default"}
          return %2
        }
        %2 = "host.layer"(%0, %w0) {callee = @layer_0}
        %4 = "host.layer"(%2, %w1) {callee = @layer_0}

    Lowering, fusion and outlining of kernels then take the time of one layer, however many there are. The kernels are
    the same as without layers: layers start at operations where no kernel is cut in two
    (``passes/layers/repetition.py``).
    """

    name: ClassVar[str] = "outline-layers"
    statistics: ClassVar[dict[str, str]] = {"layers": "layers that are calls", "functions": "functions that they call"}

    def run(self, module: ir.Module, context: PassContext) -> bool:
        targets = Targets(frozenset(rules()), ALIASING)
        names, changed = 0, False
        for main in main_functions(module):
            block = main.regions[0].blocks[0]
            for _ in range(_ROUNDS):
                found, moved = find_layers(block, targets)
                changed = changed or moved or found is not None
                if found is None:
                    break
                _outline(block, found, f"layer_{names}")
                names += 1
                self.count(context, layers=len(found.operations), functions=1)
        return changed


def _outline(block: ir.Block, found: Layers, name: str) -> None:
    """Writes the function, and replaces each layer by a call."""
    writer = _Writer(block, found)
    with ir.InsertionPoint(block.owner):
        writer.write(name)
    results = [found.operations[0][at].results[number].type for at, number in found.results]
    draws = any(map(draws_numbers, found.operations[0]))
    instead: dict[ir.Value, ir.Value] = {}
    for operations, inputs in zip(found.operations, found.inputs, strict=True):
        given = [*(instead.get(value, value) for value in inputs), *(op.results[0] for op in writer.symbols)]
        with ir.InsertionPoint(operations[0]):
            location = _location([*found.shared, *operations])
            call = LayerOp(name, given, results, loc=location).operation
        mark_call(call, draws=draws)
        for (at, number), result in zip(found.results, call.results, strict=True):
            instead[operations[at].results[number]] = result
    for before, after in instead.items():
        before.replace_all_uses_with(after)
    said = set(instead.values())
    for operations in reversed(found.operations):
        for op in reversed(operations):
            if _is_call(op) or op.operands[0] not in said:  # what is said of results stays
                op.erase()


def _location(operations: Sequence[ir.Operation]) -> ir.Location:
    """The fused location of the calls among operations."""
    return ir.Location.fused([op.location for op in operations if _is_call(op)])


def _is_call(op: ir.Operation) -> bool:
    return bool(op.name == "host.call")


class _Writer:
    """Writes the function of equal layers, which is the first of them."""

    def __init__(self, block: ir.Block, found: Layers) -> None:
        self.found, self.outer = found, found.sizes
        self.operations = [*found.shared, *found.operations[0]]
        self.inputs = found.inputs[0]
        operations = [(op.name, op) for view in block.operations for op in (view.operation,)]
        first = found.operations[0][0]
        symbols = {symbol_name(op): op for name, op in operations if name in SYMBOLS and op.is_before_in_block(first)}
        # A layer does not know facts about sizes that are defined later.
        known = [c for c in known_conditions(operations, self.outer) if c.symbols <= symbols.keys()]
        self.conditions, names = _tied(known, self._symbols_used())
        self.symbols = [op for name, op in symbols.items() if name in names]

    def _symbols_used(self) -> set[str]:
        layouts = [self.outer.layouts[value] for value in self.inputs]
        layouts += [self.outer.layouts[op.operands[0]] for op in self.operations if not _is_call(op)]
        exprs = [e for layout in layouts for e in (*layout.sizes, *layout.strides, layout.offset)]
        for value in (value for op in self.operations if _is_call(op) for value in op.operands):
            if not isinstance(value.type, ir.RankedTensorType):
                exprs += map(self.outer.expr, sizes_in(value))
        return {name for expr in exprs for name in expr.symbols}

    def write(self, name: str) -> None:
        """Writes the function at the current insertion point, in the module."""
        index = ir.IndexType.get()
        types = [*(value.type for value in self.inputs), *(index for _ in self.symbols)]
        first = self.found.operations[0]
        returned = [first[at].results[number] for at, number in self.found.results]
        kind = ir.FunctionType.get(types, [value.type for value in returned])
        attributes = {
            "sym_name": ir.StringAttr.get(name),
            "sym_visibility": ir.StringAttr.get("private"),
            "function_type": ir.TypeAttr.get(kind),
            **layer_attributes(),
        }
        function = ir.Operation.create("func.func", attributes=attributes, regions=1, loc=_location(self.operations))
        block = function.regions[0].blocks.append(*types)
        self.sizes = Sizes(block)
        self.values = dict(zip(self.inputs, list(block.arguments)))
        with ir.InsertionPoint(block):
            self._know()
            for value in self.inputs:
                self._bind(value)
            for op in self.operations:
                with op.location:
                    self._call(op) if _is_call(op) else self._bind(op.operands[0])
            ir.Operation.create("func.return", [], [self.values[value] for value in returned])

    def _know(self) -> None:
        """The symbols, which are arguments here, and what holds of them."""
        for number, op in enumerate(self.symbols, len(self.inputs)):
            row = {key: op.attributes[key] for key in ("name", "min", "max")}
            row |= {key: op.attributes[key] for key in ("divisor", "hint", "source") if key in op.attributes}
            given = {"binding": attribute(f"arg{number}")}
            ir.Operation.create("symshape.symbol", [ir.IndexType.get()], attributes=_unbacked_row() | row | given)
        for view in self.sizes.block.operations:
            self.sizes.read(view.operation)
        for condition in self.conditions:
            ir.Operation.create("symshape.assume", [], [emit_condition(self.sizes, condition)])

    def _bind(self, value: ir.Value) -> None:
        layout = self.outer.layouts[value]
        operands = [self.sizes.value(e) for e in (*layout.sizes, *layout.strides, layout.offset)]
        ir.Operation.create("symshape.bind", [], [self.values[value], *operands])

    def _call(self, op: Any) -> None:
        clone = op.clone()
        with ir.InsertionPoint(clone):
            for number, value in enumerate(op.operands):
                clone.operands[number] = self._operand(value)
        self.values.update(zip(op.results, clone.results))

    def _operand(self, value: ir.Value) -> ir.Value:
        if isinstance(value.type, ir.RankedTensorType):
            return self.values[value]
        return rebuild(value, lambda size: self.sizes.value(self.outer.expr(size)))


def _unbacked_row() -> dict[str, ir.Attribute]:
    """Facts about an unbacked symbol that its own operation does not have."""
    return {"divisor": attribute(1), "hint": attribute(-1), "source": attribute("an argument of a layer")}


def _tied(conditions: Sequence[Condition], names: set[str]) -> tuple[list[Condition], set[str]]:
    """The conditions that have to do with symbols, directly or through others; and all their symbols."""
    while more := {n for c in conditions if not names.isdisjoint(c.symbols) for n in c.symbols} - names:
        names |= more
    return [c for c in conditions if not names.isdisjoint(c.symbols)], names
