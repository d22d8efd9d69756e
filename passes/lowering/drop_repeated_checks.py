"""drop-repeated-checks: an index that was checked against the same size before is not checked again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from torch_mlir import ir

from symshape.analysis.read_body import PREDICATES
from symshape.dialects.accessors import index_error, main_functions
from symshape.dialects.function_facts import facts_of
from symshape.passes.framework.base import Pass, PassContext
from symshape.passes.fusion.compute_graph import Access, Compute, Graph, dim_symbols, read_graph
from symshape.prover.numbers.expr import Expr
from symshape.prover.numbers.facts import Facts

ZERO, ONE = Expr.const(0), Expr.const(1)
_SAME = frozenset({"arith.index_cast", "arith.extsi"})  # casts that keep the number


@dataclass(frozen=True)
class DropRepeatedChecks(Pass):
    """Replaces a check of an index whose elements an earlier check has found in range by a clamp.

    Before::

        %a = linalg.generic ins(%i) { %j = "symshape.check_index"(%in, %n);  tensor.extract %x[%j] }
        ...
        %b = linalg.generic ins(%i) { %j = "symshape.check_index"(%in, %n);  tensor.extract %y[%j] }

    After::

        %a = linalg.generic ins(%i) { %j = "symshape.check_index"(%in, %n);  tensor.extract %x[%j] }
        ...
        %b = linalg.generic ins(%i) { %j = max(min(%in, %n - 1), 0);  tensor.extract %y[%j] }

    ``k[:, :, i] += a`` reads and writes at the same index; a later read of ``k`` at that index would be checked after
    the write, so that the old ``k`` would have to be kept in case that the check fails (``write-inputs``). The clamp is
    needed because kernels may be reordered: no access is out of bounds whatever the index is, and the earlier check
    still ends the program with the error.

    An index is traced through the operations that wrap negative numbers, to the tensor that it was read from. The
    earlier check must cover all elements of that tensor, and must have points wherever the later one has.
    """

    name: ClassVar[str] = "drop-repeated-checks"
    statistics: ClassVar[dict[str, str]] = {"dropped": "checks of an index that were made before"}

    def run(self, module: ir.Module, context: PassContext) -> bool:
        count = sum(self._drop(function) for function in main_functions(module))
        self.count(context, dropped=count)
        return count > 0

    def _drop(self, function: Any) -> int:
        block = function.regions[0].blocks[0]
        generics = [view.operation for view in block.operations if view.operation.name == "linalg.generic"]
        if sum(1 for op in generics for _ in _checks(op)) < 2:
            return 0  # the usual case: the graph is not read for nothing
        graph = read_graph(block)
        facts = facts_of(function, graph.sizes)
        known: list[_Check] = []
        dropped = 0
        for node in graph.computes:
            points: Facts | None = None
            for op in list(_checks(node.op)):
                check = _read_check(graph, facts, node, op)
                if check is None:
                    continue
                if any(check.may_follow(one, facts) for one in known):
                    points = points or facts.with_dims({f"d{i}": size for i, size in enumerate(node.sizes)})
                    if any(check.may_follow(one, facts) and one.has_points(points) for one in known):
                        _clamp(op)
                        dropped += 1
                        continue
                if check.is_whole(graph, facts, node):
                    known.append(check)
        return dropped


def _checks(generic: Any) -> Iterator[Any]:
    """Its checks of indices; offsets have rules of their own."""
    for view in generic.regions[0].blocks[0].operations:
        op = view.operation
        if op.name == "symshape.check_index" and not index_error(op):
            yield op


def _clamp(op: Any) -> None:
    """The nearest index in range, in place of the check."""
    index, size = op.operands
    type_ = op.results[0].type
    with ir.InsertionPoint(op), op.location:
        zero, one = (
            ir.Operation.create("arith.constant", [type_], attributes={"value": ir.IntegerAttr.get(type_, n)}).result
            for n in (0, 1)
        )
        last = ir.Operation.create("arith.subi", [type_], [size, one]).result
        low = ir.Operation.create("arith.minsi", [type_], [index, last]).result
        clamped = ir.Operation.create("arith.maxsi", [type_], [low, zero]).result
    op.results[0].replace_all_uses_with(clamped)
    op.erase()


@dataclass(frozen=True)
class _Piece:
    """A number: the element plus ``offset``, or ``offset`` alone."""

    element: bool
    offset: Expr


_ELEMENT = _Piece(True, ZERO)


@dataclass(frozen=True)
class _Value:
    """The value that a body computes from one element of a tensor (``leaf``): ``negative`` if the element is below 0,
    else ``other``; pieces, or bools for a condition. ``positives``: valid only if all these sizes are above 0."""

    negative: _Piece | bool
    other: _Piece | bool
    leaf: Access | None = None
    positives: tuple[Expr, ...] = ()


@dataclass(frozen=True)
class _Check:
    """A check that elements of ``leaf`` are in [0, size), or in [-size, size) if ``wrapped``. It has points if all of
    ``positives`` are above 0."""

    leaf: Access
    size: Expr
    wrapped: bool
    positives: tuple[Expr, ...]

    def may_follow(self, earlier: _Check, facts: Facts) -> bool:
        """Whether the check holds wherever the earlier one was made and held."""
        same = self.leaf.base == earlier.leaf.base and (self.wrapped or not earlier.wrapped)
        return same and facts.equal(self.size, earlier.size)

    def has_points(self, points: Facts) -> bool:
        """Whether the check was made, given that another check has points."""
        return all(points.nonnegative(size - 1) for size in self.positives)

    def is_whole(self, graph: Graph, facts: Facts, node: Compute) -> bool:
        """Whether all elements of its tensor are checked."""
        seen: set[Expr] = set()
        for size, index in zip(graph.layout(self.leaf.base).sizes, self.leaf.map, strict=True):
            if index == ZERO and facts.equal(size, ONE):
                continue
            dims = [k for k, d in enumerate(dim_symbols("d", len(node.sizes))) if d == index and d not in seen]
            if not dims or not facts.equal(size, node.sizes[dims[0]]):
                return False
            seen.add(index)
        return True


def _read_check(graph: Graph, facts: Facts, node: Compute, op: Any) -> _Check | None:
    """The index and size of a check; None for an index of another form."""
    index, size = op.operands
    if node.accumulates or size not in graph.sizes:
        return None
    value = _Reader(graph, facts).value(index, node, tuple(dim_symbols("d", len(node.sizes))))
    if value is None or value.leaf is None or value.other != _ELEMENT:
        return None
    limit, negative = graph.sizes.expr(size), value.negative
    assert isinstance(negative, _Piece)
    wrapped = negative == _Piece(True, limit)
    fails = not negative.element and facts.nonnegative(negative.offset - limit)
    if not (wrapped or fails or negative == _ELEMENT):
        return None
    return _Check(value.leaf, limit, wrapped, (*value.positives, *node.sizes))


class _Reader:
    """Reads bodies as functions of one element."""

    def __init__(self, graph: Graph, facts: Facts) -> None:
        self.graph, self.facts = graph, facts

    def value(self, value: ir.Value, node: Compute, at: tuple[Expr, ...]) -> _Value | None:
        """A value in the body of ``node``, at a point; None if it is not understood."""
        owner: Any = value.owner
        if isinstance(owner, ir.Block):
            return self._input(node, ir.BlockArgument(value).arg_number, at)
        if value in self.graph.sizes:
            return _number(self.graph.sizes.expr(value))
        if owner.name == "arith.constant":
            whole = isinstance(value.type, (ir.IndexType, ir.IntegerType))
            return _number(Expr.const(ir.IntegerAttr(owner.attributes["value"]).value)) if whole else None
        if owner.name not in (*_SAME, "arith.addi", "arith.cmpi", "arith.select"):
            return None
        operands = []
        for one in owner.operands:  # one after the other: most of what is not understood has one operand
            found = self.value(one, node, at)
            if found is None:
                return None
            operands.append(found)
        match owner.name:
            case "arith.addi":
                return _combined(_sum, operands) if _is_wide(value) else None
            case "arith.cmpi":
                predicate = PREDICATES["arith.cmpi"][ir.IntegerAttr(owner.attributes["predicate"]).value]
                return self._compared(predicate, *operands)
            case "arith.select":
                return _selected(operands)
        return operands[0]

    def _input(self, node: Compute, position: int, at: tuple[Expr, ...]) -> _Value | None:
        """An operand of a body: a value that another body computes, or an element of a tensor."""
        if position >= len(node.inputs) or node.inputs[position].conditions:
            return None
        access = node.inputs[position]
        index = tuple(e.substitute({f"d{i}": one for i, one in enumerate(at)}) for e in access.map)
        maker = self.graph.producer.get(access.base)
        if maker is not None and not maker.accumulates:
            body = maker.op.regions[0].blocks[0]
            made = body.operations[len(body.operations) - 1].operands[maker.results.index(access.base)]
            found = self.value(made, maker, index)
            if found is not None:
                return found
        return _Value(_ELEMENT, _ELEMENT, Access(access.base, index))

    def _compared(self, predicate: str, left: _Value, right: _Value) -> _Value | None:
        """Whether an element is negative; whether a size is above 0."""
        if right != _number(ZERO):
            return None
        if predicate == "slt":
            negative, other = self._is_negative(left.negative, True), self._is_negative(left.other, False)
            return None if negative is None or other is None else _Value(negative, other, left.leaf, left.positives)
        if predicate == "sgt" and left.leaf is None:
            assert isinstance(left.other, _Piece)
            return _Value(True, True, positives=(*left.positives, left.other.offset))
        return None

    def _is_negative(self, piece: _Piece | bool, of_negative: bool) -> bool | None:
        assert isinstance(piece, _Piece)
        if piece.element:
            return of_negative if piece.offset == ZERO else None
        return False if self.facts.nonnegative(piece.offset) else None


def _number(expr: Expr) -> _Value:
    piece = _Piece(False, expr)
    return _Value(piece, piece)


def _is_wide(value: ir.Value) -> bool:
    """Whether a sum with a size is exact."""
    return isinstance(value.type, ir.IndexType) or value.type == ir.IntegerType.get_signless(64)


def _sum(left: _Piece, right: _Piece) -> _Piece | None:
    return None if left.element and right.element else _Piece(left.element or right.element, left.offset + right.offset)


def _selected(operands: list[_Value]) -> _Value | None:
    condition, yes, _ = operands
    if condition.leaf is None and condition.positives:  # elsewhere the other value is taken, which is then of no matter
        return _combined(lambda one: one, [yes], condition.positives)
    return _combined(lambda holds, one, other: one if holds else other, operands)


def _combined(
    function: Callable[..., _Piece | bool | None], operands: list[_Value], positives: tuple[Expr, ...] = ()
) -> _Value | None:
    """A function of values, which depend on at most one element."""
    leaves = [one.leaf for one in operands if one.leaf is not None]
    negative, other = function(*(one.negative for one in operands)), function(*(one.other for one in operands))
    if negative is None or other is None or any(one != leaves[0] for one in leaves):
        return None
    return _Value(negative, other, leaves[0] if leaves else None, sum((one.positives for one in operands), positives))
