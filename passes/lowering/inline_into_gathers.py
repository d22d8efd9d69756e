"""inline-into-gathers: computes the source of a gather at the gathered points, instead of all of it before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from torch_mlir import ir

from symshape.analysis.loops import INTEGER_DIVISIONS
from symshape.dialects.accessors import main_functions
from symshape.dialects.affine_maps import is_dim
from symshape.dialects.function_facts import facts_of
from symshape.dialects.types import dtype_of, tensor_type
from symshape.dialects.views import create_view
from symshape.passes.framework.base import Pass, PassContext
from symshape.passes.fusion.compute_graph import HEAVY, Access, Compute, Graph, is_constant, read_graph
from symshape.passes.fusion.sort import sort_block
from symshape.prover.numbers.expr import Expr
from symshape.prover.numbers.facts import Facts

Index = tuple[Expr, ...]  # over the reader's dims d0... and the indices x0... that its body computes


@dataclass(frozen=True)
class InlineIntoGathers(Pass):
    """A ``tensor.extract`` from a pointwise result that nothing else needs in memory extracts from its inputs instead.

    Before::

        %p = linalg.generic ins(%x, %lse) outs(%e) { x - lse }                     // tensor<?x?xf32>
        %g = linalg.generic ins(%target) outs(%f) {
          %j = arith.index_cast %target
          %i = linalg.index 0
          %v = tensor.extract %p[%i, %j]
        }

    After::

        %r = "symshape.view"(%lse, %s0) {map = affine_map<(d0) -> (d0, 0)>}
        %g = linalg.generic ins(%target, %r) outs(%f) {
          %j = arith.index_cast %target
          %i = linalg.index 0
          %a = tensor.extract %x[%i, %j]
          %v = arith.subf %a, %r
        }

    So the log-softmax of a cross entropy is never stored. Not inlined are producers that may raise an error (which they
    do for every element, gathered or not), and producers that cost more to recompute than to store: several operations
    on values that may be gathered more often than there are elements. An index that is computed from the point costs
    little: reflection padding, a gather for each dim, becomes one gather.

    ``max_weight``  scalar operations that may be repeated although more values may be read than exist
    ``max_index_weight``  the same for operations that compute the index of a value that is read
    """

    name: ClassVar[str] = "inline-into-gathers"
    statistics: ClassVar[dict[str, str]] = {
        "inlined": "values that gathers compute where they read them",
    }
    max_weight: int = 4
    max_index_weight: int = 64

    def run(self, module: ir.Module, context: PassContext) -> bool:
        total = 0
        for function in main_functions(module):
            while count := self._inline(function):  # again for what a gather that was inlined reads
                total += count
        self.count(context, inlined=total)
        return total > 0

    def _inline(self, function: Any) -> int:
        block = function.regions[0].blocks[0]
        if not any(v.operation.name == "linalg.generic" and any(_extracts(v.operation)) for v in block.operations):
            return 0  # the usual case: the graph is not read for nothing
        graph = read_graph(block)
        facts = facts_of(function, graph.sizes)
        plans = {}
        for node in graph.computes:
            found = {op: plan for op in _extracts(node.op) if (plan := self._plan(graph, facts, node, op))}
            if found:
                plans[node] = found
        for node in reversed(plans):  # readers first: what they read is replaced after them
            with ir.InsertionPoint(node.op), node.op.location:
                _Writer(graph, node, plans[node]).write()
        if plans:
            sort_block(block)
        return sum(map(len, plans.values()))

    def _plan(self, graph: Graph, facts: Facts, node: Compute, op: Any) -> _Value | None:
        """The producer of the value that the body extracts, if inlining it pays."""
        start = graph.resolve(op.operands[0], len(op.operands) - 1)
        indices = {f"d{i}": e for i, e in enumerate(_index_expr(op, i) for i in range(len(op.operands) - 1))}
        plan = _read(graph, start, indices)
        if plan is None or plan.node is None:
            return None
        light = plan.is_light(self.max_weight) or plan.is_index(self.max_index_weight)
        return plan if light or _reads_no_more(facts, node, plan.node) else None


def _reads_no_more(facts: Facts, reader: Compute, read: Compute) -> bool:
    """Whether at most as many values are gathered as there are. Without an element in either nothing is gathered."""
    sizes = dict.fromkeys((*reader.sizes, *read.sizes))
    apart = {f"e{i}": size for i, size in enumerate(sizes)}
    return facts.with_dims(apart).nonnegative(read.volume - reader.volume)


@dataclass(frozen=True)
class _Value:
    """A value of a tensor at an index: an element of ``base``, or the result of ``node`` at that index."""

    base: ir.Value
    index: Index
    node: Compute | None = None
    inputs: tuple[_Value, ...] = ()

    def steps(self) -> Iterator[_Value]:
        yield self
        for value in self.inputs:
            yield from value.steps()

    def is_light(self, weight: int) -> bool:
        """Whether one element is read, with few operations on it."""
        steps = list(self.steps())
        nodes = [one.node for one in steps if one.node is not None]
        gathered = {(one.base, one.index) for one in steps if one.node is None and one.is_gathered()}
        return len(gathered) <= 1 and not any(n.heavy for n in nodes) and sum(n.weight for n in nodes) <= weight

    def is_index(self, weight: int) -> bool:
        """Whether one element is read, at an index that is computed from the point alone."""
        nodes = [one.node for one in self.steps() if one.node is not None]
        if any(one.node is None for one in self.steps()) or sum(n.weight for n in nodes) > weight:
            return False
        inner = [view.operation.name for n in nodes for view in n.op.regions[0].blocks[0].operations]
        return inner.count("tensor.extract") == 1 and not any(n in HEAVY and n != "tensor.extract" for n in inner)

    def is_gathered(self) -> bool:
        return any(name.startswith("x") for e in self.index for name in e.symbols)


def _extracts(generic: Any) -> Iterator[Any]:
    """Its extracts from tensors that main computes, directly or through views."""
    for view in generic.regions[0].blocks[0].operations:
        op = view.operation
        if op.name == "tensor.extract" and _is_computed(op.operands[0]):
            yield op


def _is_computed(value: ir.Value) -> bool:
    while not isinstance(value.owner, ir.Block) and value.owner.name == "symshape.view":
        value = value.owner.operands[0]
    return not isinstance(value.owner, ir.Block) and value.owner.name == "linalg.generic"


def _index_expr(extract: Any, position: int) -> Expr:
    """A dim of the reader, or the name of the value that its body computes there."""
    value = extract.operands[position + 1]
    if not isinstance(value.owner, ir.Block) and value.owner.name == "linalg.index":
        return Expr.symbol(f"d{ir.IntegerAttr(value.owner.attributes['dim']).value}")
    return Expr.symbol(f"x{position}")


def _read(graph: Graph, access: Access, indices: dict[str, Expr]) -> _Value | None:
    """The value of ``access``, whose dims are ``indices``; None where it has to be in memory to be read."""
    if access.conditions:
        return None
    index = tuple(e.substitute(indices) for e in access.map)
    node = graph.producer.get(access.base)
    if node is None or node.accumulates or _may_fail(node) or _is_stored(graph, access.base):
        leaf = _Value(access.base, index)
        return leaf if not leaf.is_gathered() or all(_is_simple(e) for e in index) else None
    if node.has_index and not all(_is_simple(e) for e in index):
        return None
    own = {f"d{i}": e for i, e in enumerate(index)}
    inputs = [_read(graph, one, own) for one in node.inputs]
    found = tuple(one for one in inputs if one is not None)
    return _Value(access.base, index, node, found) if len(found) == len(inputs) else None


def _may_fail(node: Compute) -> bool:
    """Whether its body may raise an error that depends on data."""
    inner = [view.operation for view in node.op.regions[0].blocks[0].operations]
    divisions = (op for op in inner if op.name in INTEGER_DIVISIONS)
    checks = any(op.name == "symshape.check_index" for op in inner)
    return checks or any(not is_constant(op.operands[1]) for op in divisions)


def _is_simple(expr: Expr) -> bool:
    return expr.as_int() is not None or expr in {Expr.symbol(name) for name in expr.symbols}


def _is_stored(graph: Graph, value: ir.Value) -> bool:
    """Does something other than gathers need it in memory?"""
    return any(not isinstance(user, Compute) for user in graph.buffer_uses.get(value, ()))


class _Writer:
    """Writes a gather again, with the code of its operand instead of extracts."""

    def __init__(self, graph: Graph, node: Compute, plans: dict[Any, _Value]) -> None:
        self.graph, self.node, self.plans = graph, node, plans
        steps = (one for plan in plans.values() for one in plan.steps())
        leaves = (one for one in steps if one.node is None and not one.is_gathered())
        self.views = {key: self._view(*key) for key in dict.fromkeys((one.base, one.index) for one in leaves)}
        self.arguments: dict[tuple[ir.Value, Index], ir.Value] = {}

    def _view(self, base: ir.Value, index: Index) -> ir.Value:
        """A new operand: a tensor at an index that depends on the point alone, over the gather's dims."""
        sizes = self.node.sizes
        type_ = tensor_type([s.as_int() for s in sizes], dtype_of(base))
        return create_view(self.graph.sizes, base, type_, sizes, index)

    def write(self) -> None:
        op = self.node.op
        segments = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
        ins, outs = list(op.operands)[: segments[0]], list(op.operands)[segments[0] :]
        maps, new = list(ir.ArrayAttr(op.attributes["indexing_maps"])), list(self.views.values())
        identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(len(self.node.sizes)))
        attributes = {name: op.attributes[name] for name in op.attributes} | {
            "indexing_maps": ir.ArrayAttr.get([*maps[: len(ins)], *[identity] * len(new), *maps[len(ins) :]]),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(ins) + len(new), len(outs)]),
        }
        operands = [*ins, *new, *outs]
        result = ir.Operation.create(op.name, [r.type for r in op.results], operands, attributes, regions=1)
        block = result.regions[0].blocks.append(*(ir.RankedTensorType(v.type).element_type for v in operands))
        old, arguments = op.regions[0].blocks[0], list(block.arguments)
        self.arguments = dict(zip(self.views, arguments[len(ins) : len(ins) + len(new)]))
        with ir.InsertionPoint(block):
            self._body(old, dict(zip(old.arguments, [*arguments[: len(ins)], *arguments[len(ins) + len(new) :]])))
        for before, after in zip(op.results, result.results):
            before.replace_all_uses_with(after)
        op.erase()

    def _body(self, block: ir.Block, values: dict[ir.Value, ir.Value]) -> None:
        for view in block.operations:
            op = view.operation
            plan = self.plans.get(op)
            if plan is None:
                values.update(zip(op.results, _clone(op, values).results))
                continue
            given = {f"x{i}": values.get(v, v) for i, v in enumerate(list(op.operands)[1:])}
            values[op.results[0]] = self._value(plan, given)

    def _value(self, value: _Value, given: dict[str, ir.Value]) -> ir.Value:
        if value.node is not None:
            return self._computed(value, value.node, given)
        if not value.is_gathered():
            return self.arguments[value.base, value.index]
        indices = [self._index(e, given) for e in value.index]
        type_ = ir.RankedTensorType(value.base.type).element_type
        return ir.Operation.create("tensor.extract", [type_], [value.base, *indices]).result

    def _computed(self, value: _Value, node: Compute, given: dict[str, ir.Value]) -> ir.Value:
        body = node.op.regions[0].blocks[0]
        values = dict(zip(body.arguments, [self._value(one, given) for one in value.inputs]))
        for view in body.operations:
            op = view.operation
            if op.name == "linalg.yield":
                found = op.operands[node.results.index(value.base)]
                return values.get(found, found)
            if op.name == "linalg.index":
                values[op.results[0]] = self._index(value.index[ir.IntegerAttr(op.attributes["dim"]).value], given)
            else:
                values.update(zip(op.results, _clone(op, values).results))
        raise AssertionError("a body without a yield")

    def _index(self, expr: Expr, given: dict[str, ir.Value]) -> ir.Value:
        index, constant = ir.IndexType.get(), expr.as_int()
        if constant is not None:
            attributes = {"value": ir.IntegerAttr.get(index, constant)}
            return ir.Operation.create("arith.constant", [index], attributes=attributes).result
        (name,) = expr.symbols
        if name in given:
            return given[name]
        if not is_dim(name):
            return self.graph.sizes.value(expr)
        dim = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), int(name[1:]))
        return ir.Operation.create("linalg.index", [index], attributes={"dim": dim}).result


def _clone(op: Any, values: dict[ir.Value, ir.Value]) -> Any:
    clone = op.clone()
    for i, operand in enumerate(op.operands):
        clone.operands[i] = values.get(operand, operand)
    return clone
