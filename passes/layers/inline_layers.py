"""inline-layers: replaces each call of a layer by its kernels and library calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch_mlir import ir

from symshape.dialects.accessors import (
    body_of,
    callee_of,
    function_name,
    is_layer,
    main_functions,
    symbol_binding,
)
from symshape.dialects.locations import parts_of, source_line
from symshape.dialects.symbols import parse_binding
from symshape.errors import CompileError
from symshape.passes.framework.base import Pass, PassContext


@dataclass(frozen=True)
class InlineLayers(Pass):
    """Inlines the layer functions that ``outline-layers`` made; no layer functions are left.

    Before::

        func.func private @layer_0(%x, %w, %s0: index) attributes {symshape.layer} {
          %1 = "host.call"(%x, %w) {target = "aten.mm.default"}   %2 = "host.launch"(%1, %d, %s0) {callee = @kernel_0}
          return %2
        }
        %a = "host.layer"(%0, %w0, %s0) {callee = @layer_0}
        %b = "host.layer"(%a, %w1, %s0) {callee = @layer_0}

    After::

        %1 = "host.call"(%0, %w0) {target = "aten.mm.default"}   %a = "host.launch"(%1, %d, %s0) {callee = @kernel_0}
        %3 = "host.call"(%a, %w1) {target = "aten.mm.default"}   %b = "host.launch"(%3, %e, %s0) {callee = @kernel_0}
    """

    name: ClassVar[str] = "inline-layers"
    statistics: ClassVar[dict[str, str]] = {"calls": "calls that became the operations of their layers"}

    def run(self, module: ir.Module, context: PassContext) -> bool:
        functions = main_functions(module)
        layers = {function_name(function): function for function in functions if is_layer(function)}
        if not layers:
            return False
        bodies = {name: _Body(function) for name, function in layers.items()}
        calls = [op for function in functions for op in body_of(function) if op.name == "host.layer"]
        for op in calls:
            bodies[callee_of(op)].inline(op)
        self.count(context, calls=len(calls))
        for function in layers.values():
            function.erase()
        return True


class _Body:
    """The operations of a layer's function. Its calls are in one block, and are inlined in order."""

    def __init__(self, function: Any) -> None:
        self.block = function.regions[0].blocks[0]
        self.locations = parts_of(function.location)
        *operations, self.returned = body_of(function)
        self.operations = [op for op in operations if not _is_about_sizes(op) and not _is_known(op)]
        # By the numbers that a call gives: what is made of them, written before the first such call and used by all.
        self.sizes: dict[tuple[ir.Value, ...], dict[ir.Value, ir.Value]] = {}

    def inline(self, call: Any) -> None:
        """Replaces a call by the operations."""
        with ir.InsertionPoint(call):
            given = dict(zip(self.block.arguments, list(call.operands)))
            instead = {here.attr: there for here, there in zip(self.locations, parts_of(call.location))}
            values = dict(given)
            numbers = tuple(value for value in call.operands if not isinstance(value.type, ir.RankedTensorType))
            known = self.sizes.setdefault(numbers, {})
            for op in self.operations:
                operands = [values[v] if v in values else self._size(v, given, known) for v in op.operands]
                self._write(op, operands, _moved(op.location, instead), values)
        for result, value in zip(call.results, self.returned.operands):
            for use in [use.owner.operation for use in result.uses]:
                if use.name == "symshape.bind":  # the layer says it of what it returns
                    use.erase()
            result.replace_all_uses_with(values[value])
        call.erase()

    def _write(
        self, op: Any, operands: list[ir.Value], location: ir.Location, values: dict[ir.Value, ir.Value]
    ) -> None:
        if op.regions:
            raise CompileError(
                f"{op.name} has a body, which cannot be inlined",
                where=source_line(op.location),
                next_step="run fuse-kernels before, which outlines such operations",
            )
        kinds = [result.type for result in op.results]
        clone = ir.Operation.create(op.name, kinds, operands, dict(op.attributes.items()), loc=location)
        values.update(zip(op.results, clone.results))

    def _size(self, value: ir.Value, given: dict[ir.Value, ir.Value], known: dict[ir.Value, ir.Value]) -> ir.Value:
        """A number computed from symbols, as a value of main."""
        if value in given:
            return given[value]
        if value not in known:
            op = value.owner
            if op.name == "symshape.symbol":
                binding = parse_binding(symbol_binding(op))
                assert binding is not None  # it is verified
                known[value] = given[self.block.arguments[binding[0]]]
            else:
                operands = [self._size(operand, given, known) for operand in op.operands]
                attributes = dict(op.attributes.items())
                known[value] = ir.Operation.create(op.name, [value.type], operands, attributes).result
        return known[value]


def _is_about_sizes(op: Any) -> bool:
    return bool(op.name == "symshape.symbol" or op.name.startswith("arith."))


def _is_known(op: Any) -> bool:
    """Whether an operation repeats one of main: a symbol, or a bind of an argument of the layer."""
    return bool(
        op.name == "symshape.assume" or op.name == "symshape.bind" and isinstance(op.operands[0].owner, ir.Block)
    )


def _moved(location: ir.Location, instead: dict[ir.Attribute, ir.Location]) -> ir.Location:
    """The location of the corresponding operation in another layer."""
    if location.attr in instead:
        return instead[location.attr]
    if isinstance(location, ir.FusedLoc):
        return ir.Location.fused([_moved(part, instead) for part in parts_of(location)])
    return location
