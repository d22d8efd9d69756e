"""compact-masks: gathers selected elements at positions that are found once for each mask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch_mlir import ir

from symshape.artifact.element_types import NATIVE
from symshape.dialects.accessors import (
    call_arguments,
    call_target,
    calls_of,
    main_functions,
    reading_of,
    set_reading_dim,
)
from symshape.dialects.conditions import emit_condition
from symshape.dialects.function_facts import facts_of
from symshape.dialects.host import CallOp
from symshape.dialects.locations import source_line
from symshape.dialects.sizes import Sizes
from symshape.dialects.template import instantiate
from symshape.dialects.types import dtype_of, tensor_type
from symshape.machine import instruction_sets
from symshape.passes.framework.base import Pass, PassContext
from symshape.prover.numbers.condition import at_least
from symshape.prover.numbers.expr import Expr, product
from symshape.prover.numbers.facts import Facts


@dataclass(frozen=True)
class CompactMasks(Pass):
    """``x[m]`` and ``nonzero(m)`` become gathers at the positions where the mask is true, which fuse with their
    readers.

    For masks that mask-to-where could not remove. The positions are found once for each mask, by a count, a scan and
    one copy.

    Before::

        %a = "host.call"(%x, %m) {target = "aten.index.Tensor", arguments = "($0, [$1])"} : ...
        %u = "symshape.unbacked_symbol"(%a) {name = "u0", kind = "size", dim = 0, ...}
        "symshape.bind"(%a, %u, ...)

    After::

        %p = "host.call"(%m) {target = "symshape.mask_positions.default", arguments = "($0, 'cpu', 'native')"} : ...
        %u = "symshape.unbacked_symbol"(%p) {name = "u0", kind = "size", dim = 0, ...}
        "symshape.bind"(%p, %u, %c1, %c0)
        "symshape.assume"(%s0_ge_u)
        %a = "host.call"(%x, %p) {target = "symshape.select_at.default", arguments = "($0, $1, 0, 1)"}
        "symshape.bind"(%a, %u, ...)

    That at most all elements are selected is a fact for everything that follows. The host waits for the number of
    selected elements alone, since it allocates the results.
    """

    name: ClassVar[str] = "compact-masks"
    statistics: ClassVar[dict[str, str]] = {
        "compacted": "reads by a mask that became gathers",
        "kept": "reads by a mask that stay library calls",
    }

    def run(self, module: ir.Module, context: PassContext) -> bool:
        lines: list[str] = []
        target = str(context.options.get("target", "cpu"))
        cpu = str(context.options.get("cpu", instruction_sets.NATIVE))
        how = f"'{target}', '{cpu}'" if target == "cpu" else f"'{target}'"
        for function in main_functions(module):
            reads = calls_of(function, _READS)
            if reads:
                lines += _Function(function, how).run(reads)
        self.remark(context, *lines)
        compacted = sum(line.endswith("compacted") for line in lines)
        self.count(context, compacted=compacted, kept=len(lines) - compacted)
        return bool(lines)


@dataclass
class _Read:
    """A call that reads by a mask, which indexes dims dim, dim + 1, ... of ``x``; ``x`` is None for ``nonzero``."""

    op: Any
    mask: ir.Value
    x: ir.Value | None = None
    dim: int = 0


class _Function:
    def __init__(self, function: Any, how: str) -> None:
        self.block, self.how = function.regions[0].blocks[0], how
        self.facts: Facts = facts_of(function)
        operations = [view.operation for view in self.block.operations]
        self.sizes = Sizes(self.block)
        self.sizes.learn(operations)
        self.binds = {op.operands[0]: op for op in operations if op.name == "symshape.bind"}
        self.positions: dict[ir.Value, ir.Value] = {}

    def run(self, reads: list[Any]) -> list[str]:
        lines = []
        for op in reads:
            read = _READS[call_target(op)](op)
            if read is None:
                continue
            why = self.why_not(read)
            lines.append(f"mask at {source_line(op.location)}: " + (f"library call, {why}" if why else "compacted"))
            if not why:
                self.rewrite(read)
        return lines

    def why_not(self, read: _Read) -> str:
        """Why a read is not lowered: types must be native, and the mask as large as the indexed dims; "" if it is."""
        layouts = self.sizes.layouts
        values = [v for v in (read.mask, read.x, read.op.results[0]) if v is not None]
        if any(v not in layouts or dtype_of(v) not in NATIVE for v in values) or dtype_of(read.mask) != "i1":
            return "its element type has no kernels"
        if foreign := [self.sizes.foreign[v] for v in values if v in self.sizes.foreign]:
            return f"kernels cannot read a tensor of it, which is {foreign[0]}"
        if any(reading_of(symbol) != ("size", read.dim) for symbol in _symbols(read.op.results[0])):
            return "its number is read in another way"
        mask = layouts[read.mask].sizes
        over = layouts[read.x].sizes[read.dim : read.dim + len(mask)] if read.x is not None else mask
        if not mask or len(over) != len(mask) or not all(map(self.facts.equal, mask, over)):
            return "the mask is not known to be as large as what it selects from"
        return ""

    def rewrite(self, read: _Read) -> None:
        result, bind = read.op.results[0], self.binds[read.op.results[0]]
        mask = self.sizes.layouts[read.mask].sizes
        symbols = _symbols(result)
        at = self.positions.get(read.mask)
        is_new = at is None
        with read.op.location:
            if at is None:
                with ir.InsertionPoint(read.op):
                    at = self.positions[read.mask] = _call(
                        "mask_positions", f"($0, {self.how})", [read.mask], tensor_type([None], "i64")
                    )
            for symbol in symbols:
                symbol.operands[0] = at
                set_reading_dim(symbol, 0)
            with ir.InsertionPoint(bind):
                if is_new:
                    self.describe(at, bind, self.sizes.layouts[result].sizes[read.dim], product(mask))
                template, operands = (
                    (f"($0, $1, {read.dim}, {len(mask)})", [read.x, at])
                    if read.x is not None
                    else ("($0, $1)", [read.mask, at])
                )
                name = "unravel_positions" if read.x is None else "select_at"
                new = _call(name, template, operands, result.type)
        result.replace_all_uses_with(new)
        read.op.erase()

    def describe(self, at: ir.Value, bind: Any, count: Expr, most: Expr) -> None:
        """The layout of positions, and that they are no more than the mask has elements: written before ``bind``, which
        is where their number is known."""
        known = Sizes(self.block)
        for view in self.block.operations:
            if view.operation == bind:
                break
            known.read(view.operation)
        ir.Operation.create("symshape.bind", [], [at, known.value(count), known.value(1), known.value(0)])
        ir.Operation.create("symshape.assume", [], [emit_condition(known, at_least(most, count))])


def _symbols(value: ir.Value) -> list[Any]:
    """The operations that read new symbols off a value."""
    users = (use.owner.operation for use in value.uses)
    return [user for user in users if user.name == "symshape.unbacked_symbol"]


def _call(name: str, arguments: str, operands: list[Any], type_: ir.Type) -> ir.Value:
    return CallOp(f"symshape.{name}.default", arguments, operands, [type_], fresh=True).operation.results[0]


def _of_index(op: Any) -> _Read | None:
    """The read of an ``index`` call by one mask and nothing else; None for other indices."""
    args, _ = instantiate(call_arguments(op), list(op.operands))
    x, indices = args
    given = [i for i, index in enumerate(indices) if index is not None]
    by_mask = len(given) == 1 and dtype_of(indices[given[0]]) == "i1"
    return _Read(op, indices[given[0]], x, given[0]) if by_mask else None


def _of_nonzero(op: Any) -> _Read | None:
    return _Read(op, op.operands[0])


_READS = {"aten.index.Tensor": _of_index, "aten.nonzero.default": _of_nonzero}
