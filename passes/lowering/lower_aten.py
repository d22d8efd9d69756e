"""lower-aten: replaces library calls that have a rule by ``linalg.generic`` and ``symshape.view``."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from torch_mlir import ir

from symshape.artifact.element_types import NATIVE
from symshape.dialects.accessors import (
    call_arguments,
    call_target,
    is_fresh,
    reading_of,
    reason_kept,
    written_arguments,
)
from symshape.dialects.foreign_tensors import Foreign
from symshape.dialects.function_facts import facts_of
from symshape.dialects.locations import node_names, source_line
from symshape.dialects.reals import is_real
from symshape.dialects.sizes import Layout, Sizes
from symshape.dialects.template import instantiate
from symshape.dialects.types import dtype_of
from symshape.errors import ContradictionError, OptionError, ShapeConstraintError, SymshapeError
from symshape.passes.framework.base import Pass, PassContext, fail
from symshape.passes.lowering.aten.builder import Builder, Result, Tensor, Unsupported
from symshape.passes.lowering.aten.scalar_body import Scalar, is_float
from symshape.passes.lowering.aten.strided import COPYING, addresses_read
from symshape.passes.lowering.aten.views import ALIASING

# The files of ``passes/lowering/aten/`` that have rules (``RULES``).
TABLES = (
    "arithmetic",
    "math_functions",
    "activations",
    "special",
    "float_representation",
    "integer_division",
    "polynomials",
    "pointwise",
    "factories",
    "views",
    "reductions",
    "scans",
    "indexing",
    "joining",
    "jagged",
    "segments",
    "scatters",
    "strided",
    "compact_reads",
)
# Discontinuous functions: eager mode takes one side of the step by the number that it has stored. So kernels round an
# operand of a half type before these, which they leave out elsewhere. Results that are integers or bools count too.
DISCONTINUOUS = frozenset(
    {
        "ceil",
        "floor",
        "floor_divide",
        "fmod",
        "frexp",
        "heaviside",
        "nextafter",
        "remainder",
        "round",
        "sign",
        "threshold",
        "trunc",
    }
)
DISCONTINUOUS_OVERLOADS = frozenset({"aten.div.Tensor_mode", "aten.div.Scalar_mode"})


def rules_of(table: str) -> Mapping[str, Callable[..., Any]]:
    """The rules of one of ``TABLES``: overload name to function."""
    found: Mapping[str, Callable[..., Any]] = importlib.import_module(f"symshape.passes.lowering.aten.{table}").RULES
    return found


@cache
def rules() -> dict[str, Callable[..., Any]]:
    """The union of all ``TABLES``: overload name -> rule."""
    merged: dict[str, Callable[..., Any]] = {}
    for table in TABLES:
        merged |= rules_of(table)
    return merged


@dataclass(frozen=True)
class KeptCall:
    """A remark: calls of this overload stay library calls, and the reason."""

    target: str
    reason: str

    def __str__(self) -> str:
        return f"{self.target}: library call, {self.reason}"


@dataclass(frozen=True)
class LowerAten(Pass):
    """Turns library calls that have a rule into native code; the rest stay, with the reason in the report.

    Before::

        %r = "host.call"(%a, %b) {target = "aten.add.Tensor", arguments = "($0, $1)"} : ...

    After::

        %e = tensor.empty(%s0) : tensor<?x256xf32>
        %r = linalg.generic {...} ins(%a, %b) outs(%e) { arith.addf }

    ``only``  overload names; where some are given, the calls of all others stay
    ``keep``  names of nodes of the traced graph whose calls stay
    """

    name: ClassVar[str] = "lower-aten"
    statistics: ClassVar[dict[str, str]] = {
        "lowered": "library calls that became native code",
        "kept": "library calls that stay",
    }
    only: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()

    def run(self, module: ir.Module, context: PassContext) -> None:
        kept: dict[str, str] = {}
        for function in module.body.operations:
            if function.operation.name == "func.func" and function.regions[0].blocks:
                lowered, left = self._lower_function(function, kept, str(context.options.get("target", "cpu")))
                self.count(context, lowered=lowered, kept=left)
        self.remark(context, *(KeptCall(target, reason) for target, reason in kept.items()))

    def _lower_function(self, function: Any, kept: dict[str, str], target_name: str) -> tuple[int, int]:
        """Lowers a function; returns the numbers of lowered calls and of those left; ``kept`` collects the reasons."""
        block = function.regions[0].blocks[0]
        sizes = Sizes(block)
        operations = [view.operation for view in block.operations]
        sizes.learn(operations)
        written = [block.arguments[place] for place in written_arguments(operations[-1]) if place >= 0]
        builder = Builder(sizes, facts_of(function, sizes), target_name, written)
        binds = _binds(block)
        table, keep = rules(), set(self.keep)
        calls = lowered = 0
        for op in operations:
            if op.name != "host.call":
                sizes.read(op)
                continue
            calls += 1
            target = call_target(op)
            rule = table.get(target)
            if rule is None or (self.only and target not in self.only):
                kept[target] = _reason(op, target, kept.get(target))
                continue
            if self.keep and not keep.isdisjoint(node_names(op.location)):
                kept[target] = "asked for"
                continue
            if foreign := _foreign_tensor(op, sizes.foreign):
                kept[target] = foreign
                continue
            try:
                _lower_call(builder, rule, op, binds)
                lowered += 1
            except Unsupported as reason:
                kept[target] = str(reason)
            except (OptionError, ShapeConstraintError, ContradictionError):
                raise
            except Exception as error:
                fail(op, error.what if isinstance(error, SymshapeError) else f"{type(error).__name__}: {error}")
        _update_results(function, operations[-1])
        return lowered, calls - lowered


def _foreign_tensor(op: Any, foreign: Mapping[ir.Value, Foreign]) -> str:
    """Why kernels, which run on one device and read plain memory, cannot do a call; "" if they can.

    As in eager mode, kernels on a GPU get the number in a CPU tensor without dims.
    """
    results = [f"its result is {foreign[value]}" for value in op.results if value in foreign]
    read = [foreign[value] for value in op.operands if value in foreign]
    operands = [f"an operand is {one}" for one in read if not one.by_value]
    return next(iter([*results, *operands]), "")


def _update_results(function: Any, terminator: Any) -> None:
    """Makes sizes that are found to be constant part of the tensors' types, and of the function's result types."""
    kinds = ir.FunctionType(ir.TypeAttr(function.operation.attributes["function_type"]).value)
    results = [value.type for value in terminator.operands]
    if results != list(kinds.results):
        changed = ir.FunctionType.get(list(kinds.inputs), results)
        function.operation.attributes["function_type"] = ir.TypeAttr.get(changed)


def _reason(op: Any, target: str, before: str | None) -> str:
    """Why a call without a rule stays: the importer's reason, if it gave one. An opaque call, which is no operator, has
    the lines that made it."""
    if not target.startswith("symshape.opaque_"):
        return before or reason_kept(op) or "no rule"
    text = call_arguments(op)
    function = re.search(r'"function": "(?:\S+ )?([^"]+)"', text)
    why = re.search(r'"why": "([^"]+)"', text)
    called = f"{function[1]} at {source_line(op.location)}" if function else source_line(op.location)
    reason = why[1] if why else "no tracing rule, or it asks for sizes that are in the data"
    return f"{before}, {called}" if before else f"{reason}: {called}"


def _binds(block: ir.Block) -> dict[ir.Value, Any]:
    """The bind of every tensor value, so that a call's result sizes are known before its bind is reached."""
    return {op.operands[0]: op.operation for op in block.operations if op.operation.name == "symshape.bind"}


def _lower_call(builder: Builder, rule: Callable[..., Any], op: Any, binds: dict[ir.Value, Any]) -> None:
    with ir.InsertionPoint(op), op.location:
        operands = [_operand(builder, v, binds) for v in op.operands]
        builder.results = [_result(builder, r, binds) for r in op.results]
        builder.is_discontinuous = _is_discontinuous(call_target(op), builder.results)
        builder.addresses = addresses_read(builder, op.results[0]) if call_target(op) in COPYING else []
        args, kwargs = instantiate(call_arguments(op), operands)
        outcome = rule(builder, *args, **kwargs)
        values = outcome if isinstance(outcome, tuple) else (outcome,)
        if any(value is None for value in values):
            raise Unsupported("a result is not produced")
        if call_target(op) not in ALIASING:
            values = tuple(
                value if _may_be_result(builder, value, op, result, binds) else _unaliased(builder, value, binds)
                for value, result in zip(values, op.results)
            )
    for result, value in zip(list(op.results), values):
        bind = binds.pop(result, None)
        result.replace_all_uses_with(value.value)
        if bind is not None:
            binds.setdefault(value.value, bind)
    op.erase()


def _is_discontinuous(target: str, results: Sequence[Result]) -> bool:
    if target in DISCONTINUOUS_OVERLOADS or target.split(".")[1] in DISCONTINUOUS:
        return True
    if target == "aten.signbit.default":  # the one question that rounding leaves as it was
        return False
    return not all(is_float(result.dtype) for result in results)


def _unaliased(builder: Builder, value: Tensor, binds: dict[ir.Value, Any]) -> Tensor:
    """A value as the result of an op that does not alias its operands: copied if it is one, or a view of one."""
    is_view = not isinstance(value.value.owner, ir.Block) and value.value.owner.name == "symshape.view"
    if is_view or value.value in binds:
        return builder.pointwise(value.sizes, value.dtype, [value], lambda v: v)
    return value


def _may_be_result(builder: Builder, value: Tensor, op: Any, result: ir.Value, binds: dict[ir.Value, Any]) -> bool:
    """Whether an operand may be the result as it is: memory of its own, laid out like it, that nothing else reads. The
    rows that are written to a slice of everything (``cache[:, i] = row``) are all of the tensor."""
    owner = value.value.owner
    if isinstance(owner, ir.Block) or not (owner.name == "linalg.generic" or is_fresh(owner)):
        return False
    readers = [use.owner.operation for use in value.value.uses if use.owner.operation.name != "symshape.bind"]
    if any(reader != op.operation for reader in readers) or value.value not in binds or result not in binds:
        return False
    return _layout(builder, binds[value.value]) == _layout(builder, binds[result])


def _layout(builder: Builder, bind: Any) -> Layout:
    value = bind.operands[0]
    if value not in builder.sizes.layouts:
        builder.sizes.read(bind)
    return builder.sizes.layouts[value]


def _operand(builder: Builder, value: ir.Value, binds: dict[ir.Value, Any]) -> Any:
    if isinstance(value.type, ir.RankedTensorType):
        dtype = dtype_of(value)
        if dtype not in NATIVE or value not in binds:
            raise Unsupported(f"dtype {dtype}")
        return Tensor(value, _layout(builder, binds[value]).sizes, dtype)
    if value in builder.sizes:
        return builder.sizes.expr(value)
    if is_real(value):
        return Scalar(value, "f64")
    raise Unsupported(f"an operand of type {value.type}")


def _result(builder: Builder, value: ir.Value, binds: dict[ir.Value, Any]) -> Result:
    if not isinstance(value.type, ir.RankedTensorType) or value not in binds:
        raise Unsupported(f"a result of type {value.type}")
    if any(_is_size_of_result(use.owner) for use in value.uses):
        raise Unsupported("the size of its result is data-dependent")
    dtype = dtype_of(value)
    if dtype not in NATIVE:
        raise Unsupported(f"dtype {dtype}")
    return Result(_layout(builder, binds[value]).sizes, dtype)


def _is_size_of_result(user: Any) -> bool:
    """Whether an operation reads a new symbol off the sizes or strides of its operand."""
    op = user.operation
    return op.name == "symshape.unbacked_symbol" and reading_of(op)[0] != "item"
