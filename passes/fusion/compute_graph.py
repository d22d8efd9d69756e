"""Main at the ``linalg`` stage as a graph of compute nodes; views are folded into the edges as index maps."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from torch_mlir import ir

from symshape.analysis.loops import INTEGER_DIVISIONS
from symshape.dialects.accessors import ASSOCIATIVE_SCAN, combiner_of, is_scan, orders_of, scan_results, symbol_name
from symshape.dialects.reals import sizes_in
from symshape.dialects.sizes import Layout, Sizes
from symshape.dialects.views import read_domain, read_map
from symshape.prover.numbers.expr import Expr, product

HEAVY = frozenset(
    {
        "math.exp",
        "math.erf",
        "math.tanh",
        "math.log",
        "math.powf",
        "math.sin",
        "math.cos",
        "math.expm1",
        "math.log1p",
        "math.exp2",
        "math.log2",
        "math.tan",
        "math.atan2",
        "tensor.extract",
        "arith.divsi",
        "arith.floordivsi",
        "arith.remsi",
        "math.erfc",
    }
)
FREE = frozenset({"arith.constant", "linalg.yield", "linalg.index", "arith.index_cast", "arith.extf", "arith.truncf"})


def dim_symbols(prefix: str, count: int) -> list[Expr]:
    return [Expr.symbol(f"{prefix}{i}") for i in range(count)]


@dataclass(frozen=True)
class Access:
    """A read: ``base`` (a buffer's value or a Compute result's) at ``map`` over the reader's dims d0...; it is defined
    where every expression of ``conditions`` is >= 0 (everywhere, if there are none)."""

    base: ir.Value
    map: tuple[Expr, ...]
    conditions: tuple[Expr, ...] = ()


@dataclass(eq=False)
class Compute:
    """A ``linalg.generic``: its iteration dims (sizes, which are reduced), its reads, and its results; of a scan those
    over all dims."""

    index: int
    op: Any
    sizes: tuple[Expr, ...]
    reduced: tuple[bool, ...]
    inputs: list[Access]
    captured: list[ir.Value]  # tensors that its body extracts from
    results: list[ir.Value]
    weight: int  # scalar operations in the body
    heavy: bool
    raises: bool  # its body may find an error: an index out of range, an integer division by zero
    is_scan: bool  # what it carries along its reduced dims is a result at each of their points
    users: list[Any] = field(default_factory=list)  # Computes, and other ops that need a result as a buffer

    @property
    def is_reduction(self) -> bool:
        """Whether the results lack dims that it iterates over."""
        return any(self.reduced) and not self.is_scan

    @property
    def is_associative(self) -> bool:
        """Whether it is an associative scan."""
        return combiner_of(self.op) == ASSOCIATIVE_SCAN

    @property
    def accumulates(self) -> bool:
        """Whether a point is computed of others: a reduction or a scan."""
        return any(self.reduced)

    @property
    def has_index(self) -> bool:
        """Whether its body uses the index of the point (``linalg.index``)."""
        return any(view.operation.name == "linalg.index" for view in self.op.regions[0].blocks[0].operations)

    @property
    def result_dims(self) -> list[int]:
        """The iteration dims that the results have."""
        return [i for i, r in enumerate(self.reduced) if self.is_scan or not r]

    @property
    def result_sizes(self) -> tuple[Expr, ...]:
        return tuple(self.sizes[i] for i in self.result_dims)

    @property
    def volume(self) -> Expr:
        return product(self.sizes)


@dataclass
class Graph:
    """``computes`` in program order; ``producer`` of each computed value; ``views`` from value to its source access."""

    sizes: Sizes
    computes: list[Compute] = field(default_factory=list)
    producer: dict[ir.Value, Compute] = field(default_factory=dict)
    views: dict[ir.Value, Access] = field(default_factory=dict)
    tensor_sizes: dict[ir.Value, tuple[Expr, ...]] = field(default_factory=dict)
    dead: list[Any] = field(default_factory=list)  # tensor.empty, tensor.splat: they vanish with their generics
    buffer_uses: dict[ir.Value, list[Any]] = field(default_factory=dict)  # computed value -> ops that need it stored
    symbol_tensors: dict[str, list[ir.Value]] = field(default_factory=dict)  # unbacked size -> what it is read from
    reads_numbers: bool = False  # whether main reads numbers from tensors
    called_before: dict[Any, list[Any]] = field(default_factory=dict)  # of calls that keep their order: those before

    def layout(self, value: ir.Value) -> Layout:
        """The layout of a tensor from its bind; contiguous for a value inside a lowering, which has no bind."""
        found = self.sizes.layouts.get(value)
        if found is None:
            sizes = _sizes_of(self, value)
            strides = tuple(product(sizes[i + 1 :]) for i in range(len(sizes)))
            found = self.sizes.layouts[value] = Layout(sizes, strides, Expr.const(0))
        return found

    def resolve(self, value: ir.Value, rank: int) -> Access:
        """The buffer or compute result behind a chain of views, read at every point of ``value``."""
        map_: tuple[Expr, ...] = tuple(dim_symbols("d", rank))
        conditions: tuple[Expr, ...] = ()
        while value in self.views:
            step = self.views[value]
            replacement = {f"d{i}": e for i, e in enumerate(map_)}
            conditions += tuple(c.substitute(replacement) for c in step.conditions)
            map_ = tuple(e.substitute(replacement) for e in step.map)
            value = step.base
        return Access(value, map_, conditions)

    def storage(self, value: ir.Value) -> ir.Value:
        """The value whose memory a view shares."""
        while value in self.views:
            value = self.views[value].base
        return value


def read_graph(block: ir.Block) -> Graph:
    """Reads the block; operations other than computes and views are left alone."""
    graph = Graph(Sizes(block))
    operations = [view.operation for view in block.operations]
    for op in operations:
        graph.sizes.read(op)
    last: dict[str, Any] = {}  # of each kind of calls that keep their order
    for op in operations:
        for kind in orders_of(op):
            if kind in last:
                graph.called_before.setdefault(op, []).append(last[kind])
            last[kind] = op
    for op in operations:
        name = op.name
        graph.reads_numbers |= any(not isinstance(one.type, ir.RankedTensorType) for one in op.results) and bool(
            tensors_behind(op.operands)
        )
        if name == "symshape.view":
            _read_view(graph, op)
        elif name in ("tensor.empty", "tensor.splat"):
            _read_init(graph, op)
        elif name == "linalg.generic":
            _read_generic(graph, op)
        elif name == "symshape.unbacked_symbol":
            graph.symbol_tensors[symbol_name(op)] = tensors_behind(op.operands)
    _find_buffer_uses(graph, operations)
    return graph


def _read_view(graph: Graph, op: Any) -> None:
    operands = list(op.operands)
    result = op.results[0]
    rank = ir.RankedTensorType(result.type).rank
    exprs = [graph.sizes.expr(v) for v in operands[1:]]
    dims, symbols = dim_symbols("d", rank), exprs[rank:]
    index, conditions = read_map(op, dims, symbols), read_domain(op, dims, symbols)
    graph.views[result] = Access(operands[0], tuple(index), tuple(conditions))
    graph.tensor_sizes[result] = tuple(exprs[:rank])


def _read_init(graph: Graph, op: Any) -> None:
    operands = list(op.operands)[1 if op.name == "tensor.splat" else 0 :]
    graph.tensor_sizes[op.results[0]] = _type_sizes(graph, op.results[0], operands)
    graph.dead.append(op)


def _type_sizes(graph: Graph, value: ir.Value, dynamic: list[ir.Value]) -> tuple[Expr, ...]:
    type_ = ir.RankedTensorType(value.type)
    remaining = iter(dynamic)
    return tuple(
        graph.sizes.expr(next(remaining)) if type_.is_dynamic_dim(i) else Expr.const(type_.get_dim_size(i))
        for i in range(type_.rank)
    )


def _read_generic(graph: Graph, op: Any) -> None:
    operands = list(op.operands)
    segments = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
    ins, outs = operands[: segments[0]], operands[segments[0] :]
    reduced = tuple("reduction" in str(a) for a in ir.ArrayAttr(op.attributes["iterator_types"]))
    rank = len(reduced)
    if any(reduced):
        sizes = _sizes_of(graph, ins[0])
    else:
        sizes = _sizes_of(graph, outs[0])
    captured, weight, heavy, raises = _scan_body(op)
    inputs = [graph.resolve(v, rank) for v in ins]
    scans = is_scan(op)
    results = list(scan_results(op)) if scans else list(op.results)
    node = Compute(len(graph.computes), op, sizes, reduced, inputs, captured, results, weight, heavy, raises, scans)
    graph.computes.append(node)
    for access in inputs:
        if access.base in graph.producer:
            graph.producer[access.base].users.append(node)
    for result in node.results:
        graph.producer[result] = node
        graph.tensor_sizes[result] = node.result_sizes


def _sizes_of(graph: Graph, value: ir.Value) -> tuple[Expr, ...]:
    if value in graph.tensor_sizes:
        return graph.tensor_sizes[value]
    return graph.sizes.layouts[value].sizes


def _scan_body(op: Any) -> tuple[list[ir.Value], int, bool, bool]:
    """The tensors that the body extracts from, its number of operations, whether one is expensive, whether one may
    raise an error."""
    captured: list[ir.Value] = []
    weight, heavy, raises = 0, False, False
    for view in op.regions[0].blocks[0].operations:
        inner = view.operation
        name = inner.name
        if name == "tensor.extract":
            captured.append(inner.operands[0])
        heavy |= name in HEAVY
        raises |= name == "tensor.extract" or name in INTEGER_DIVISIONS and not is_constant(inner.operands[1])
        weight += name not in FREE
    return captured, weight, heavy, raises


def outer_sizes(generic: Any, graph: Graph, without: Collection[ir.Value] = ()) -> list[Expr]:
    """Sizes of main that the body uses. ``without``: real numbers whose sizes are not included."""
    found: list[ir.Value] = []
    for view in generic.regions[0].blocks[0].operations:
        for v in view.operation.operands:
            is_real = v not in graph.sizes and v not in without and is_outer_scalar(v, generic)
            found.extend([v] if v in graph.sizes else sizes_in(v) if is_real else ())
    return [graph.sizes.expr(v) for v in found]


def tensors_behind_body(generic: Any) -> list[ir.Value]:
    """The tensors behind the numbers of main that the body uses."""
    operands = [v for view in generic.regions[0].blocks[0].operations for v in view.operation.operands]
    return tensors_behind(v for v in operands if is_outer_scalar(v, generic))


def is_outer_scalar(value: ir.Value, generic: Any) -> bool:
    """Whether a value used in a body is a constant, or a number that main computes from sizes: the arithmetic is cloned
    into the body."""
    if isinstance(value.owner, ir.Block) or isinstance(value.type, ir.RankedTensorType):
        return False
    return bool(value.owner.parent != generic)


def tensors_behind(values: Iterable[ir.Value]) -> list[ir.Value]:
    """The tensors that must exist before these values do: a tensor itself, and those that a number is computed from
    (``int(x.item()) // 2``)."""
    found: dict[ir.Value, None] = {}
    stack, seen = list(values), set[ir.Value]()
    while stack:
        value = stack.pop()
        if isinstance(value.type, ir.RankedTensorType):
            found[value] = None
        elif value not in seen and not isinstance(value.owner, ir.Block):
            seen.add(value)
            stack.extend(value.owner.operands)
    return list(found)


def is_constant(value: ir.Value) -> bool:
    return not isinstance(value.owner, ir.Block) and value.owner.name == "arith.constant"


_FREE = frozenset({"symshape.bind", "symshape.view", "linalg.generic", "tensor.empty", "tensor.splat"})


def _find_buffer_uses(graph: Graph, operations: list[Any]) -> None:
    """Computed values that a library call, a return, an unbacked symbol or a gather needs in memory."""
    for op in operations:
        if op.name in _FREE:
            continue
        for value in op.operands:
            _need(graph, value, op)
    for node in graph.computes:
        for value in node.captured:
            _need(graph, value, node)


def _need(graph: Graph, value: ir.Value, user: Any) -> None:
    storage = graph.storage(value)
    if storage in graph.producer:
        graph.buffer_uses.setdefault(storage, []).append(user)
