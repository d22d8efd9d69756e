"""inline-scans: an associative scan whose function is pointwise is one operation, with the function as its body."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch_mlir import ir

from symshape.dialects.accessors import (
    ASSOCIATIVE_SCAN,
    body_of,
    call_target,
    calls_subgraphs,
    combiner_attribute,
    function_name,
    main_functions,
    scan_results,
    sliced_count,
    subgraphs_of,
)
from symshape.dialects.function_facts import facts_of
from symshape.dialects.reals import rebuild
from symshape.dialects.sizes import Sizes
from symshape.dialects.types import NATIVE, dtype_of, tensor_type
from symshape.dialects.views import create_view
from symshape.passes.framework.base import Pass, PassContext
from symshape.passes.fusion.compute_graph import Access, Compute, Graph, dim_symbols, is_outer_scalar, read_graph
from symshape.passes.lowering.aten.builder import Builder, Tensor
from symshape.prover.numbers.expr import Expr

# In which type a value of a kernel's scan is carried, where it is another one.
_CARRIED = {"f16": "f32", "bf16": "f32", "ui8": "i8"}
_CODE = frozenset(
    {
        "func.return",
        "linalg.generic",
        "symshape.assume",
        "symshape.bind",
        "symshape.symbol",
        "symshape.unbacked_symbol",
        "symshape.view",
        "tensor.empty",
        "tensor.splat",
    }
)


class _Kept(Exception):
    """The scan has to stay a loop; says why."""


@dataclass(frozen=True)
class KeptScan:
    """A remark: the scan with this function is a loop of the host program, and why."""

    function: str
    reason: str

    def __str__(self) -> str:
        return f"associative_scan of @{self.function}: a loop, {self.reason}"


@dataclass(frozen=True)
class InlineScans(Pass):
    """A ``host.associative_scan`` becomes a ``linalg.generic`` where each element of what its function returns is
    computed of one element of each of its operands. Others stay loops of the host program, as all do on GPUs.

    Before::

        %y = "host.associative_scan"(%x) {combine = @add, sliced = 1 : i64}          // tensor<?x?xf32>
        func.func @add(%l: tensor<?xf32>, %r: tensor<?xf32>) {
          %s = linalg.generic ins(%l, %r) outs(%e) { arith.addf }
          return %s

    After::

        %y:2 = linalg.generic {iterator_types = ["reduction", "parallel"], symshape.combiner = "associative_scan"}
          ins(%x) outs(%row, %e) { arith.addf }
    """

    name: ClassVar[str] = "inline-scans"
    statistics: ClassVar[dict[str, str]] = {
        "inlined": "associative scans that became operations of kernels",
        "kept": "associative scans that stay loops",
    }

    def run(self, module: ir.Module, context: PassContext) -> bool:
        functions = {function_name(function): function for function in main_functions(module)}
        calls = (op for function in functions.values() for op in body_of(function) if calls_subgraphs(op))
        callers = Counter(name for op in calls for name in subgraphs_of(op))
        target, inlined, kept = str(context.options.get("target", "cpu")), 0, []
        for name in reversed(functions):  # what is called first
            for op in body_of(functions[name]):
                if op.name != "host.associative_scan":
                    continue
                (combine,) = subgraphs_of(op)
                try:
                    if target != "cpu":
                        raise _Kept("kernels of GPUs have no scans")
                    _inline(functions[name], op, functions[combine])
                except _Kept as reason:
                    kept.append(KeptScan(combine, str(reason)))
                    continue
                inlined += 1
                callers[combine] -= 1
                if not callers[combine]:
                    functions[combine].operation.erase()
        self.remark(context, *kept)
        self.count(context, inlined=inlined, kept=len(kept))
        return inlined > 0


def _inline(function: Any, op: Any, combine: Any) -> None:
    sizes = Sizes(function.regions[0].blocks[0])
    operations = body_of(function)
    sizes.learn(operations)
    facts = facts_of(function, sizes)
    for before in operations:
        if before == op:
            break
        sizes.read(before)
    builder = Builder(sizes, facts)
    scan = _Scan(builder, op, combine)
    with ir.InsertionPoint(op), op.location:
        found = scan.write()
    for result, value in zip(op.results, found, strict=True):
        result.replace_all_uses_with(value.value)
    op.erase()


class _Scan:
    """``op`` as one operation. Its function is read before anything is written: _Kept where that cannot be."""

    def __init__(self, builder: Builder, op: Any, combine: Any) -> None:
        self.builder, self.op, self.count = builder, op, sliced_count(op)
        block = combine.regions[0].blocks[0]
        _check_code(block)
        self.graph: Graph = read_graph(block)
        self.parameters = {argument: i for i, argument in enumerate(block.arguments)}
        self.returned = list(body_of(combine)[-1].operands)
        self.xs = [self._tensor(value) for value in list(op.operands)[: self.count]]
        self.dims = dim_symbols("d", self.xs[0].rank - 1)
        if any(not self._equal(x.sizes, self.xs[0].sizes) for x in self.xs):
            raise _Kept("its operands have different sizes")
        self.rows: dict[tuple[ir.Value, tuple[Expr, ...]], None] = {}  # what it reads besides, and where
        self._checked: set[Compute] = set()
        for value in self.returned:
            self._check(self.graph.resolve(value, len(self.dims)))

    def _tensor(self, value: ir.Value) -> Tensor:
        layout, dtype = self.builder.sizes.layouts.get(value), dtype_of(value)
        if layout is None or dtype not in NATIVE:
            raise _Kept(f"an operand is of dtype {dtype}")
        return Tensor(value, layout.sizes, dtype)

    def _equal(self, a: Sequence[Expr], b: Sequence[Expr]) -> bool:
        return len(a) == len(b) and all(x == y or self.builder.facts.equal(x, y) for x, y in zip(a, b))

    def _check(self, access: Access) -> None:
        """Whether the point at hand is all that is read of slices, and what else is read is there before."""
        if access.conditions:
            raise _Kept("its function reads some elements alone")
        node = self.graph.producer.get(access.base)
        if node is None:
            self._check_parameter(access)
        elif not self._is_point(access.map):
            raise _Kept("its function moves elements")
        elif node.accumulates:
            raise _Kept("its function reduces slices")
        elif node.raises or node.captured:
            raise _Kept("its function may find an error")
        elif node not in self._checked:
            self._checked.add(node)
            for one in node.inputs:
                self._check(one)

    def _is_point(self, index: Sequence[Expr]) -> bool:
        return tuple(index) == tuple(self.dims) or self._equal(index, self.dims)

    def _check_parameter(self, access: Access) -> None:
        position = self.parameters.get(access.base)
        if position is None:
            raise _Kept("its function makes a tensor")
        if position < 2 * self.count:
            if not self._is_point(access.map):
                raise _Kept("its function moves elements")
            return
        value = self.op.operands[position - self.count]
        self._tensor(value)
        names = {name for e in access.map for name in e.symbols} - {name for d in self.dims for name in d.symbols}
        if any(Expr.symbol(name) not in self.builder.sizes for name in names):
            raise _Kept("its function has sizes of its own")
        self.rows[value, access.map] = None

    # Writing.

    def write(self) -> list[Tensor]:
        """The results, in the types of the operands."""
        b = self.builder
        carried = [_CARRIED.get(x.dtype, x.dtype) for x in self.xs]
        elements = [b.cast(x, dtype) for x, dtype in zip(self.xs, carried, strict=True)]
        rows = [self._row(value, index) for value, index in self.rows]
        inputs = [one.value for one in (*elements, *rows)]
        sizes, rank = self.xs[0].sizes, self.xs[0].rank
        starts = [self._start(sizes[1:], dtype) for dtype in carried]
        full = [ir.Operation.create("tensor.empty", [b.type(sizes, t)], b.dynamic(sizes)).result for t in carried]
        identity = ir.AffineMap.get_identity(rank)
        row = ir.AffineMap.get(rank, 0, [ir.AffineExpr.get_dim(i) for i in range(1, rank)])
        maps = [identity] * len(inputs) + [row] * self.count + [identity] * self.count
        kinds = ["reduction"] + ["parallel"] * (rank - 1)
        outs = [*starts, *full]
        attributes = {
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(one) for one in maps]),
            "iterator_types": ir.ArrayAttr.get([ir.Attribute.parse(f"#linalg.iterator_type<{k}>") for k in kinds]),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), len(outs)]),
            **combiner_attribute(ASSOCIATIVE_SCAN),
        }
        outer = self._outer()
        op = ir.Operation.create("linalg.generic", [v.type for v in outs], [*inputs, *outs], attributes, regions=1)
        block = op.regions[0].blocks.append(*(ir.RankedTensorType(v.type).element_type for v in (*inputs, *outs)))
        with ir.InsertionPoint(block):
            self._body(list(block.arguments), outer)
        results = [Tensor(v, sizes, dtype) for v, dtype in zip(scan_results(op), carried, strict=True)]
        return [b.cast(one, x.dtype) for one, x in zip(results, self.xs, strict=True)]

    def _row(self, value: ir.Value, index: tuple[Expr, ...]) -> Tensor:
        """What the function closes over, at every point."""
        x, sizes = self._tensor(value), self.xs[0].sizes
        shifted = {f"d{i}": Expr.symbol(f"d{i + 1}") for i in range(len(self.dims))}
        type_ = tensor_type([s.as_int() for s in sizes], x.dtype)
        at = [e.substitute(shifted) for e in index]
        return Tensor(create_view(self.builder.sizes, value, type_, sizes, at), tuple(sizes), x.dtype)

    def _start(self, sizes: Sequence[Expr], dtype: str) -> ir.Value:
        """Of the type of a row; the first elements take its place."""
        b = self.builder
        zero = b.body.constant(0, dtype).value
        return ir.Operation.create("tensor.splat", [b.type(sizes, dtype)], [zero, *b.dynamic(sizes)]).result

    def _outer(self) -> dict[ir.Value, ir.Value]:
        """Sizes and real numbers that the function's bodies use, as values of the caller."""
        found: dict[ir.Value, ir.Value] = {}
        for node in self._checked:
            for view in node.op.regions[0].blocks[0].operations:
                for value in view.operation.operands:
                    if value in found or isinstance(value.type, ir.RankedTensorType):
                        continue
                    if value in self.graph.sizes or value in self.parameters or is_outer_scalar(value, node.op):
                        found[value] = self._outer_value(value)
        return found

    def _outer_value(self, value: ir.Value) -> ir.Value:
        if value in self.graph.sizes:
            return self.builder.sizes.value(self.graph.sizes.expr(value))
        if value in self.parameters:
            given: ir.Value = self.op.operands[self.parameters[value] - self.count]
            return given
        return rebuild(value, self._outer_value)

    def _body(self, arguments: list[ir.Value], outer: dict[ir.Value, ir.Value]) -> None:
        count, ins = self.count, len(self.rows) + self.count
        elements, before = arguments[:count], arguments[ins : ins + count]
        values: dict[Any, ir.Value] = {}  # of each parameter, computed value, and (operand, where it is read)
        for parameter, i in self.parameters.items():
            if i < 2 * count:
                argument = before[i] if i < count else elements[i - count]
                values[parameter] = _stored(argument, self.xs[i % count].dtype)
        values |= zip(self.rows, arguments[count:ins])
        found = [self._value(self.graph.resolve(value, len(self.dims)), values, outer) for value in self.returned]
        carried = [_carried(value, x.dtype) for value, x in zip(found, self.xs, strict=True)]
        ir.Operation.create("linalg.yield", [], [*carried, *carried])

    def _value(self, access: Access, values: dict[Any, ir.Value], outer: dict[ir.Value, ir.Value]) -> ir.Value:
        """An element at the point, in the type of its tensor. Each is computed once."""
        if access.base in values:
            return values[access.base]
        node = self.graph.producer.get(access.base)
        if node is None:
            return values[self.op.operands[self.parameters[access.base] - self.count], access.map]
        body = node.op.regions[0].blocks[0]
        inside = outer | {
            argument: self._value(one, values, outer) for argument, one in zip(body.arguments, node.inputs)
        }
        for view in body.operations:
            op = view.operation
            if op.name == "linalg.yield":
                for result, value in zip(node.results, op.operands, strict=True):
                    values[result] = inside[value]
                break
            clone = op.clone()
            if op.name == "linalg.index":
                dim = ir.IntegerAttr(op.attributes["dim"]).value
                clone.attributes["dim"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), dim + 1)
            for i, operand in enumerate(op.operands):
                clone.operands[i] = inside[operand]
            inside.update(zip(op.results, clone.results))
        return values[access.base]


def _stored(value: ir.Value, dtype: str) -> ir.Value:
    """A carried value in the type that a tensor of a dtype has."""
    if dtype not in _CARRIED:
        return value
    name = "builtin.unrealized_conversion_cast" if dtype == "ui8" else "arith.truncf"
    return ir.Operation.create(name, [ir.Type.parse(dtype)], [value]).result


def _carried(value: ir.Value, dtype: str) -> ir.Value:
    """The other way."""
    if dtype not in _CARRIED:
        return value
    name = "builtin.unrealized_conversion_cast" if dtype == "ui8" else "arith.extf"
    return ir.Operation.create(name, [ir.Type.parse(_CARRIED[dtype])], [value]).result


def _check_code(block: ir.Block) -> None:
    for view in block.operations:
        op = view.operation
        if op.name in _CODE or op.name.startswith("arith."):
            continue
        raise _Kept(
            f"its function has {op.name}" if op.name != "host.call" else f"its function calls {call_target(op)}"
        )
