"""unroll-reductions: turns reductions of a few elements into pointwise code."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, ClassVar

from torch_mlir import ir

from symshape.dialects.accessors import combiner_of, main_functions
from symshape.dialects.reals import rebuild
from symshape.dialects.types import dtype_of, tensor_type
from symshape.dialects.views import create_view
from symshape.passes.framework.base import Pass, PassContext
from symshape.passes.fusion.compute_graph import Compute, Graph, dim_symbols, read_graph
from symshape.passes.fusion.sort import sort_block
from symshape.prover.numbers.expr import Expr

_COMBINERS = frozenset({"add", "mul", "max", "min", "or", "and"})
_FAR = 32  # users that are looked at, one behind the other


@dataclass(frozen=True)
class UnrollReductions(Pass):
    """Reductions over a constant, small number of elements become pointwise operations that read all of them.

    Before::

        %s = linalg.generic {iterator_types = ["parallel", "reduction"], symshape.combiner = "add"}
             ins(%x : tensor<?x2xf32>) outs(%zero : tensor<?xf32>) { out + in }

    After::

        %a = "symshape.view"(%x, %s0) {map = affine_map<(d0) -> (d0, 0)>} : (tensor<?x2xf32>, index) -> tensor<?xf32>
        %b = "symshape.view"(%x, %s0) {map = affine_map<(d0) -> (d0, 1)>} : (tensor<?x2xf32>, index) -> tensor<?xf32>
        %s = linalg.generic {iterator_types = ["parallel"]} ins(%a, %b) outs(%e) { (0 + a) + b }

    The result can then be computed wherever it is read, at any point: the sum over the heads that share a key fuses
    with the kernel that rotates the key's gradient back. Not unrolled are reductions whose input is worth storing or
    has other users, or whose result is combined with larger tensors again (a softmax): a kernel over rows is better for
    those.

    ``max_points``  maximum number of elements of a reduction
    """

    name: ClassVar[str] = "unroll-reductions"
    statistics: ClassVar[dict[str, str]] = {
        "unrolled": "reductions that became pointwise",
    }
    max_points: int = 8

    def run(self, module: ir.Module, context: PassContext) -> bool:
        count = sum(self._unroll(function.regions[0].blocks[0]) for function in main_functions(module))
        self.count(context, unrolled=count)
        return count > 0

    def _unroll(self, block: ir.Block) -> int:
        operations = (view.operation for view in block.operations)
        if not any(op.name == "linalg.generic" and self._points(op) for op in operations):
            return 0  # the usual case: the graph is not read for nothing
        graph = read_graph(block)
        few = [n for n in graph.computes if n.is_reduction and self._points(n.op)]
        chosen = [n for n in few if _is_alone(graph, n) and _stays_small(n) and not n.has_index]
        for node in chosen:
            with ir.InsertionPoint(node.op), node.op.location:
                _write(graph, node)
        if chosen:
            sort_block(block)
        return len(chosen)

    def _points(self, op: Any) -> int:
        """The number of elements that a reduction combines; 0 if it is no reduction, not constant, or too large."""
        if combiner_of(op) not in _COMBINERS:
            return 0
        type_ = ir.RankedTensorType(op.operands[0].type)
        kinds = ["reduction" in str(a) for a in ir.ArrayAttr(op.attributes["iterator_types"])]
        sizes = [-1 if type_.is_dynamic_dim(i) else type_.get_dim_size(i) for i, reduced in enumerate(kinds) if reduced]
        points = math.prod(sizes) if min(sizes, default=-1) > 0 else 0
        return points if points <= self.max_points else 0


def _is_alone(graph: Graph, node: Compute) -> bool:
    """Whether its operand has no other users, and is almost free to compute."""
    producers = [graph.producer[a.base] for a in node.inputs if a.base in graph.producer]
    return all(len(p.users) == 1 and not p.heavy and not p.accumulates for p in producers)


def _stays_small(node: Compute) -> bool:
    """Whatever is computed from the result, up to the next reduction, has no more points than the result."""
    points = len([size for size in node.result_sizes if size.as_int() != 1])
    seen: set[Compute] = set()
    stack = list(node.users)
    while stack:
        user = stack.pop()
        if user in seen:
            continue
        seen.add(user)
        if len(seen) > _FAR or len([size for size in user.sizes if size.as_int() != 1]) > points:
            return False
        stack.extend(() if user.accumulates else user.users)
    return True


def _write(graph: Graph, node: Compute) -> None:
    """Emits the same values as one pointwise operation, and erases the reduction."""
    op = node.op
    segments = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
    ins, out = list(op.operands)[: segments[0]], op.operands[segments[0]]
    static = [s.as_int() for s in node.result_sizes]
    sizes = [graph.sizes.value(s) for s in node.result_sizes]
    ranges = [range(size.as_int() or 0) for size, reduced in zip(node.sizes, node.reduced) if reduced]
    points = list(itertools.product(*ranges))
    views = [_element(graph, node, value, point) for point in points for value in ins]
    dynamic = [value for value, size in zip(sizes, static) if size is None]
    dest = ir.Operation.create("tensor.empty", [tensor_type(static, dtype_of(out))], dynamic).result
    identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(len(static)))
    parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>")
    attributes = {
        "indexing_maps": ir.ArrayAttr.get([identity] * (len(views) + 1)),
        "iterator_types": ir.ArrayAttr.get([parallel] * len(static)),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(views), 1]),
    }
    new = ir.Operation.create("linalg.generic", [dest.type], [*views, dest], attributes, regions=1)
    block = new.regions[0].blocks.append(*(ir.RankedTensorType(v.type).element_type for v in (*views, dest)))
    with ir.InsertionPoint(block):
        total = _start(graph, out.owner)
        arguments = list(block.arguments)
        for i in range(len(points)):
            total = _combine(op.regions[0].blocks[0], [*arguments[i * len(ins) : (i + 1) * len(ins)], total])
        ir.Operation.create("linalg.yield", [], [total])
    op.results[0].replace_all_uses_with(new.results[0])
    op.erase()


def _element(graph: Graph, node: Compute, value: ir.Value, point: tuple[int, ...]) -> ir.Value:
    """The operand of the reduction at one point of its reduced dims, over its other dims."""
    sizes = node.result_sizes
    kept, fixed = iter(dim_symbols("d", len(sizes))), iter(point)
    exprs = [Expr.const(next(fixed)) if reduced else next(kept) for reduced in node.reduced]
    type_ = tensor_type([size.as_int() for size in sizes], dtype_of(value))
    return create_view(graph.sizes, value, type_, sizes, exprs)


def _start(graph: Graph, init: Any) -> ir.Value:
    """The initial value of a reduction: the operand of a splat. MLIR folds one of static sizes to a constant."""
    if init.name == "arith.constant":
        value = ir.DenseElementsAttr(init.attributes["value"]).get_splat_value()
        return ir.Operation.create(init.name, [value.type], attributes={"value": value}).result
    return rebuild(init.operands[0], lambda size: size)


def _combine(body: ir.Block, arguments: list[ir.Value]) -> ir.Value:
    """The reduction's body at the current insertion point: the new total."""
    values = dict(zip(body.arguments, arguments))
    for view in body.operations:
        op = view.operation
        if op.name == "linalg.yield":
            return values.get(op.operands[0], op.operands[0])
        clone = op.clone()
        for i, operand in enumerate(op.operands):
            clone.operands[i] = values.get(operand, operand)
        values.update(zip(op.results, clone.results))
    raise AssertionError("a body without a yield")
