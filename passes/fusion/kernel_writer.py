"""Writes a kernel function in normal form (docs/kernels.md) from its plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch_mlir import ir

from symshape.dialects.accessors import combiner_attribute, combiner_of, kernel_attributes, new_kernel, scan_results
from symshape.dialects.affine_maps import affine_map
from symshape.dialects.conditions import emit_condition
from symshape.dialects.reals import from_bits, rebuild, sizes_in
from symshape.dialects.sizes import Layout, Sizes
from symshape.dialects.types import dtype_of, tensor_type
from symshape.dialects.views import create_view
from symshape.passes.fusion.compute_graph import Graph, is_outer_scalar
from symshape.passes.fusion.in_place import in_place_pairs
from symshape.passes.fusion.kernel_plan import KernelPlan, Load, Ref, Step
from symshape.passes.fusion.kernel_sizes import KernelSizes
from symshape.prover.numbers.condition import Condition
from symshape.prover.numbers.expr import Expr
from symshape.prover.numbers.facts import Facts


def _loop_attributes(maps: Sequence[Any], reduced: Sequence[bool], outs: int) -> dict[str, ir.Attribute]:
    """The attributes of a ``linalg.generic``; ``maps`` are those of all operands, the last ``outs`` of which are
    outputs."""
    kinds = [f"#linalg.iterator_type<{'reduction' if r else 'parallel'}>" for r in reduced]
    return {
        "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
        "iterator_types": ir.ArrayAttr.get([ir.Attribute.parse(kind) for kind in kinds]),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(maps) - outs, outs]),
    }


class KernelWriter:
    """Writes one kernel at the current insertion point (the module's body). ``taken``: the sizes that are arguments;
    ``rows``: facts about sizes, a cache that the kernels of a function share."""

    def __init__(
        self, plan: KernelPlan, graph: Graph, facts: Facts, taken: KernelSizes, rows: dict[Expr, list[Condition]]
    ) -> None:
        self.plan, self.graph, self.facts, self.taken, self.rows = plan, graph, facts, taken, rows
        self.space = [taken.inside(size) for size in plan.space]
        self.parallel = [i for i, r in enumerate(plan.reduced) if not r]
        self.has_reduction = any(plan.reduced)
        self.results: list[list[ir.Value]] = []
        self.row_names = {f"d{k}": Expr.symbol(f"d{i}") for i, k in enumerate(self.parallel)}

    def write(self) -> Any:
        plan = self.plan
        index = ir.IndexType.get()
        tensors = [*plan.inputs, *(s.value for s in plan.stores)]
        types = [self._buffer_type(v) for v in tensors] + [index] * len(self.taken.arguments)
        results = types[len(plan.inputs) : len(tensors)]
        function = new_kernel(types, results, self._attributes())
        block = function.regions[0].blocks[0]
        arguments = list(block.arguments)
        self.sizes = Sizes(block)
        self.arguments = dict(zip(plan.inputs, arguments))
        with ir.InsertionPoint(block):
            for size, value in zip(self.taken.arguments, arguments[len(tensors) :], strict=True):
                self.sizes.define(value, self.taken.inside(size))
            self._assume_rows()
            for value, argument in zip(tensors, arguments):
                self._bind(argument, self.taken.layout(self.graph.layout(value)))
            self._space()
            for item in plan.items:
                if isinstance(item, Load):
                    self.results.append([self._load(item)])
                    continue
                with item.node.op.location:  # of the op that a step comes from: errors show the user's line
                    self.results.append(self._step(item))
            stored = [self._store(s, arguments[len(plan.inputs) + i]) for i, s in enumerate(plan.stores)]
            ir.Operation.create("func.return", [], stored)
        return function

    def _attributes(self) -> dict[str, ir.Attribute]:
        scan = any(isinstance(item, Step) and item.node.is_scan for item in self.plan.items)
        kind = "scan" if scan else "reduction" if self.has_reduction else "pointwise"
        pairs = in_place_pairs(self.plan, self.graph)
        by_value = [i for i, value in enumerate(self.plan.inputs) if value in self.graph.sizes.foreign]
        return kernel_attributes(kind, len(self.plan.inputs), len(self.plan.stores), pairs, by_value)

    def _assume_rows(self) -> None:
        """The facts about each index argument: bounds and a divisor. Kernels are shared only if they agree."""
        for size in self.taken.arguments:
            if size not in self.rows:
                self.rows[size] = self.taken.known(size, self.facts)
            for condition in self.rows[size]:
                ir.Operation.create("symshape.assume", [], [emit_condition(self.sizes, condition)])

    def _buffer_type(self, value: ir.Value) -> ir.Type:
        """The type of a value in the kernel: its own type, which may be less precise than its layout, with sizes that
        are arguments made dynamic."""
        if not self.taken.numbers:
            return value.type
        shape = ir.RankedTensorType(value.type).shape
        return tensor_type([None if size in self.taken.numbers else size for size in shape], dtype_of(value))

    def _bind(self, argument: ir.Value, layout: Layout) -> None:
        operands = [self.sizes.value(e) for e in (*layout.sizes, *layout.strides, Expr.const(0))]
        ir.Operation.create("symshape.bind", [], [argument, *operands])

    def _space(self) -> None:
        kinds = [ir.StringAttr.get("reduction" if r else "parallel") for r in self.plan.reduced]
        sizes = [self.sizes.value(s) for s in self.space]
        ir.Operation.create("symshape.space", [], sizes, {"iterators": ir.ArrayAttr.get(kinds)})

    # --- levels ----------------------------------------------------------------------------------------------------

    def _level_sizes(self, row: bool) -> list[Expr]:
        return [self.space[i] for i in self.parallel] if row else self.space

    def _at_level(self, exprs: Iterable[Expr], row: bool) -> list[Expr]:
        own = map(self.taken.inside, exprs)
        return [e.substitute(self.row_names) for e in own] if row else list(own)

    def _level_type(self, row: bool, dtype: str) -> ir.Type:
        return tensor_type([s.as_int() for s in self._level_sizes(row)], dtype)

    def _dynamic(self, row: bool) -> list[ir.Value]:
        return [self.sizes.value(s) for s in self._level_sizes(row) if s.as_int() is None]

    # --- items -----------------------------------------------------------------------------------------------------

    def _load(self, item: Load) -> ir.Value:
        sizes = self._level_sizes(item.row)
        exprs, guards = self._at_level(item.map, item.row), self._at_level(item.conditions, item.row)
        type_ = self._level_type(item.row, dtype_of(item.base))
        return create_view(self.sizes, self.arguments[item.base], type_, sizes, exprs, guards)

    def _is_row(self, ref: Ref) -> bool:
        return self.plan.items[ref[0]].row

    def _step(self, item: Step) -> list[ir.Value]:
        node = item.node
        loop_row = item.row and not node.is_reduction
        ins = [self.results[i][j] for i, j in item.inputs]
        rank = len(self._level_sizes(loop_row))
        maps = [self._input_map(ref, loop_row) for ref in item.inputs]
        if node.accumulates and all(self._is_row(ref) for ref in item.inputs):
            # linalg reads the size of every loop off an operand, and no operand has the reduced dims.
            ins[0], maps[0] = self._at_full_level(ins[0]), ir.AffineMap.get_identity(rank)
        carried = [self._start(node, i) for i in range(len(node.results)) if node.accumulates]
        full = [] if node.is_reduction else [self._empty(item.row, dtype_of(r)) for r in node.results]
        outs, identity = [*carried, *full], ir.AffineMap.get_identity(rank)
        targets = [*[self._projection()] * len(carried), *[identity] * len(full)]
        iterators = self.plan.reduced if node.accumulates else [False] * rank
        attributes = _loop_attributes([*maps, *targets], iterators, len(outs))
        attributes |= combiner_attribute(combiner_of(node.op))
        source, at = node.op.regions[0].blocks[0], self._at_level(item.map, loop_row)
        outer = self._outer_values(node.op, source, at, rank)
        op = ir.Operation.create("linalg.generic", [v.type for v in outs], [*ins, *outs], attributes, regions=1)
        block = op.regions[0].blocks.append(*(ir.RankedTensorType(v.type).element_type for v in (*ins, *outs)))
        self._clone_body(source, block, at, rank, outer)
        return scan_results(op) if node.is_scan else list(op.results)

    def _at_full_level(self, value: ir.Value) -> ir.Value:
        """A row-level value broadcast to every point of its row."""
        type_ = self._level_type(False, dtype_of(value))
        dest = ir.Operation.create("tensor.empty", [type_], self._dynamic(False)).result
        identity = ir.AffineMap.get_identity(len(self.plan.space))
        attributes = _loop_attributes([self._projection(), identity], [False] * len(self.plan.space), 1)
        op = ir.Operation.create("linalg.generic", [type_], [value, dest], attributes, regions=1)
        block = op.regions[0].blocks.append(*[ir.RankedTensorType(type_).element_type] * 2)
        with ir.InsertionPoint(block):
            ir.Operation.create("linalg.yield", [], [block.arguments[0]])
        return op.results[0]

    def _projection(self) -> ir.AffineMap:
        dims = [ir.AffineExpr.get_dim(i) for i in self.parallel]
        return ir.AffineMap.get(len(self.plan.space), 0, dims)

    def _input_map(self, ref: Ref, row: bool) -> ir.AffineMap:
        if self._is_row(ref) and not row:
            return self._projection()
        return ir.AffineMap.get_identity(len(self._level_sizes(row)))

    def _empty(self, row: bool, dtype: str) -> ir.Value:
        return ir.Operation.create("tensor.empty", [self._level_type(row, dtype)], self._dynamic(row)).result

    def _start(self, node: Any, result: int) -> ir.Value:
        """The initial value of a reduction or a scan, in each row."""
        segments = list(ir.DenseI32ArrayAttr(node.op.attributes["operandSegmentSizes"]))
        start = node.op.operands[segments[0] + result]
        scalar, type_ = self._neutral(start.owner), self._level_type(True, dtype_of(start))
        return ir.Operation.create("tensor.splat", [type_], [scalar, *self._dynamic(True)]).result

    def _neutral(self, init: Any) -> ir.Value:
        """The operand of a splat. MLIR folds one of static sizes to a constant."""
        if init.name == "arith.constant":
            value = ir.DenseElementsAttr(init.attributes["value"]).get_splat_value()
            return ir.Operation.create(init.name, [value.type], attributes={"value": value}).result
        return rebuild(init.operands[0], self.sizes.value)

    def _store(self, store: Any, dest: ir.Value) -> ir.Value:
        rank = len(self._level_sizes(store.row))
        map_, symbols = affine_map(rank, self._at_level(store.map, store.row))
        i, j = store.item
        operands = [self.results[i][j], dest, *(self.sizes.value(e) for e in symbols)]
        return ir.Operation.create("symshape.store", [dest.type], operands, {"map": ir.AffineMapAttr.get(map_)}).result

    # --- bodies ----------------------------------------------------------------------------------------------------

    def _outer_values(self, generic: Any, source: ir.Block, map_: list[Expr], rank: int) -> dict[ir.Value, ir.Value]:
        """Values from outside that a body uses, written before its generic: sizes are not loop code."""
        outer: dict[ir.Value, ir.Value] = {}
        for op in source.operations:
            for v in op.operands:
                if v in self.graph.sizes:
                    outer[v] = self._size(v)
                elif v in self.taken.reals:
                    outer[v] = from_bits(self.sizes.value(self.taken.reals[v]))
                elif is_outer_scalar(v, generic):
                    for size in sizes_in(v):
                        outer[size] = self._size(size)
                elif v in self.arguments:
                    outer[v] = self.arguments[v]
        for symbol in affine_map(rank, map_)[1]:
            self.sizes.value(symbol)
        return outer

    def _size(self, value: ir.Value) -> ir.Value:
        """The kernel's value for a size of the graph."""
        return self.sizes.value(self.taken.inside(self.graph.sizes.expr(value)))

    def _clone_body(
        self, source: ir.Block, target: ir.Block, map_: list[Expr], rank: int, outer: dict[ir.Value, ir.Value]
    ) -> None:
        """Copies scalar code; the node's own indices become expressions of the kernel's."""
        values = outer | dict(zip(source.arguments, target.arguments))
        with ir.InsertionPoint(target):
            for view in source.operations:
                op = view.operation
                if op.name == "linalg.index":
                    values[op.results[0]] = self._index(map_[ir.IntegerAttr(op.attributes["dim"]).value], rank)
                    continue
                clone = op.clone()
                for i, operand in enumerate(op.operands):
                    if operand not in values:
                        with ir.InsertionPoint(clone):
                            values[operand] = rebuild(operand, lambda size: outer[size])
                    clone.operands[i] = values[operand]
                values.update(zip(op.results, clone.results))

    def _index(self, expr: Expr, rank: int) -> ir.Value:
        """An index expression over the kernel's dims, emitted in a body."""
        map_, symbols = affine_map(rank, [expr])
        i64, index = ir.IntegerType.get_signless(64), ir.IndexType.get()
        dims = [
            ir.Operation.create("linalg.index", [index], attributes={"dim": ir.IntegerAttr.get(i64, i)}).result
            for i in range(rank)
        ]
        attributes = {"map": ir.AffineMapAttr.get(map_)}
        return ir.Operation.create(
            "affine.apply", [index], [*dims, *(self.sizes.value(e) for e in symbols)], attributes
        ).result
