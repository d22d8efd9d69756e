"""inline-scans: replaces a scan whose function is pointwise by one operation with that function as its body."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch_mlir import ir

from symshape.artifact.element_types import NATIVE
from symshape.dialects.accessors import (
    ASSOCIATIVE_SCAN,
    SCAN,
    body_of,
    call_target,
    calls_subgraphs,
    carried_count,
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
from symshape.dialects.types import dtype_of, tensor_type
from symshape.dialects.views import create_view
from symshape.passes.framework.base import Pass, PassContext
from symshape.passes.fusion.compute_graph import Access, Compute, Graph, dim_symbols, is_outer_scalar, read_graph
from symshape.passes.lowering.aten.builder import ONE, Builder, Tensor
from symshape.prover.numbers.expr import Expr

# In which type an associative scan carries values of these.
_WIDE = {"f16": "f32", "bf16": "f32", "ui8": "i8"}
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
_MOST_STATES = 4  # for each carried value; a function that moves elements each time has no end of them
Index = tuple[Expr, ...]  # over the dims of a slice


class _Kept(Exception):
    """The scan must stay a loop; the text is the reason."""


@dataclass(frozen=True)
class KeptScan:
    """A remark: the scan with this function is a loop of the host program, and why."""

    function: str
    reason: str

    def __str__(self) -> str:
        return f"scan of @{self.function}: a loop, {self.reason}"


@dataclass(frozen=True)
class InlineScans(Pass):
    """A ``host.scan`` or ``host.associative_scan`` whose function is pointwise becomes a ``linalg.generic``.

    Before::

        %y = "host.associative_scan"(%x) {combine = @add, carried = 0 : i64, sliced = 1 : i64}    // tensor<?x?xf32>
        func.func @add(%l: tensor<?xf32>, %r: tensor<?xf32>) {
          %s = linalg.generic ins(%l, %r) outs(%e) { arith.addf }
          return %s

    After::

        %y:2 = linalg.generic {iterator_types = ["reduction", "parallel"], symshape.combiner = "associative_scan"}
          ins(%x) outs(%row, %e) { arith.addf }

    Pointwise means that each element of the function's results is computed from one element of each carried value. A
    scan without carried values becomes a generic with parallel dims. Other scans stay loops of the host program, as all
    do on GPUs.
    """

    name: ClassVar[str] = "inline-scans"
    statistics: ClassVar[dict[str, str]] = {
        "inlined": "scans that became operations of kernels",
        "kept": "scans that stay loops",
    }

    def run(self, module: ir.Module, context: PassContext) -> bool:
        functions = {function_name(function): function for function in main_functions(module)}
        calls = (op for function in functions.values() for op in body_of(function) if calls_subgraphs(op))
        callers = Counter(name for op in calls for name in subgraphs_of(op))
        target, inlined, kept = str(context.options.get("target", "cpu")), 0, []
        for name in reversed(functions):  # what is called first
            for op in body_of(functions[name]):
                if op.name not in ("host.scan", "host.associative_scan"):
                    continue
                (called,) = subgraphs_of(op)
                try:
                    if target != "cpu":
                        raise _Kept("kernels of GPUs have no scans")
                    _inline(functions[name], op, functions[called])
                except _Kept as reason:
                    kept.append(KeptScan(called, str(reason)))
                    continue
                inlined += 1
                callers[called] -= 1
                if not callers[called]:
                    functions[called].operation.erase()
        self.remark(context, *kept)
        self.count(context, inlined=inlined, kept=len(kept))
        return inlined > 0


def _inline(function: Any, op: Any, called: Any) -> None:
    sizes = Sizes(function.regions[0].blocks[0])
    operations = body_of(function)
    sizes.learn(operations)
    facts = facts_of(function, sizes)
    for before in operations:
        if before == op:
            break
        sizes.read(before)
    code = _Code(Builder(sizes, facts), op, called)
    carries = code.associative or carried_count(op) > 0
    groups = _groups(code) if carries else [[i] for i in range(len(code.returned))]
    writers = [_Scan(code, group) if carries else _Map(code, group[0]) for group in groups]
    with ir.InsertionPoint(op), op.location:
        for group, writer in zip(groups, writers, strict=True):
            for i, value in zip(group, writer.write(), strict=True):
                op.results[i].replace_all_uses_with(value.value)
    op.erase()


class _Code:
    """The function of a scan, read for the place of ``op``. ``carried``: how many of its parameters, the first, stand
    for values of the step before; the next ``sliced`` stand for slices."""

    def __init__(self, builder: Builder, op: Any, called: Any) -> None:
        self.builder, self.op = builder, op
        self.associative = op.name == "host.associative_scan"
        self.sliced = sliced_count(op)
        self.carried = self.sliced if self.associative else carried_count(op)
        block = called.regions[0].blocks[0]
        for view in block.operations:
            name = view.operation.name
            if name not in _CODE and not name.startswith("arith."):
                what = f"calls {call_target(view.operation)}" if name == "host.call" else f"has {name}"
                raise _Kept(f"its function {what}")
        self.graph: Graph = read_graph(block)
        self.parameters = {argument: i for i, argument in enumerate(block.arguments)}
        self.returned = list(body_of(called)[-1].operands)

    def operand(self, position: int) -> ir.Value:
        """The operand for a parameter: for a slice the whole tensor, for a carried value its initial value."""
        value: ir.Value = self.op.operands[position - (self.carried if self.associative else 0)]
        return value

    def tensor(self, value: ir.Value) -> Tensor:
        """A tensor of the calling function."""
        layout, dtype = self.builder.sizes.layouts.get(value), dtype_of(value)
        if layout is None or dtype not in NATIVE:
            raise _Kept(f"it has a tensor of dtype {dtype}")
        return Tensor(value, layout.sizes, dtype)

    def equal(self, a: Sequence[Expr], b: Sequence[Expr]) -> bool:
        return len(a) == len(b) and all(x == y or self.builder.facts.equal(x, y) for x, y in zip(a, b))

    def space(self, result: int) -> tuple[Expr, ...]:
        """The sizes of all steps of a result."""
        length = self.tensor(self.operand(self.carried)).sizes[:1]
        sizes = self.tensor(self.op.results[result]).sizes
        return (*length, *sizes) if not self.associative and result < self.carried else (*length, *sizes[1:])

    def start(self, result: int, index: Index) -> Access:
        """A returned value at an index of its slice."""
        value = self.returned[result]
        return _inner(self.graph.resolve(value, ir.RankedTensorType(value.type).rank), index)


def _groups(code: _Code) -> list[list[int]]:
    """Results grouped by the sizes of their slices: each group becomes an operation over its own points, which
    recomputes the values that it needs of other groups."""
    groups: list[list[int]] = []
    for i in range(len(code.returned)):
        found = (group for group in groups if code.equal(code.space(i), code.space(group[0])))
        group = next(found, None)
        if group is None:
            groups.append([i])
        else:
            group.append(i)
    return groups


def _inner(access: Access, outer: Index) -> Access:
    """The access of a value at the index ``outer``."""
    at = {f"d{i}": e for i, e in enumerate(outer)}
    conditions = tuple(e.substitute(at) for e in access.conditions)
    return Access(access.base, tuple(e.substitute(at) for e in access.map), conditions)


class _Points:
    """The values that the points of some returned values are computed from, read before anything is emitted; _Kept if
    that is not possible.

    ``states``: (carried value, index) pairs: the value of the previous step at that index is needed to compute this
    step. A value with fewer dims than the point is carried for each point. ``reads``: (other parameter, index) pairs.
    """

    def __init__(self, code: _Code, space: Sequence[Expr], returned: Sequence[int]) -> None:
        self.code, self.space = code, tuple(space)
        self.dims = tuple(dim_symbols("d", len(space) - 1))
        self.fixed = code.carried * 2 if code.associative else code.carried
        self.states: dict[tuple[int, Index], None] = {}
        self.reads: dict[tuple[int, Index], None] = {}
        self._checked: dict[tuple[Compute, Index], None] = {}
        self._waiting = [(i, self.dims) for i in returned]
        self.states |= dict.fromkeys(state for state in self._waiting if state[0] < code.carried)
        while self._waiting:
            self._check(code.start(*self._waiting.pop()))

    def _check(self, access: Access) -> None:
        if access.conditions:
            raise _Kept("its function reads single elements (tensor.extract)")
        node = self.code.graph.producer.get(access.base)
        if node is None:
            self._check_parameter(access)
        elif node.accumulates:
            raise _Kept("its function reduces slices")
        elif node.raises or node.captured:
            raise _Kept("its function may raise an error")
        elif node.has_index and access.map != tuple(dim_symbols("d", len(node.sizes))):
            raise _Kept("its function moves values computed from positions")
        elif (node, access.map) not in self._checked:
            self._checked[node, access.map] = None
            for one in node.inputs:
                self._check(_inner(one, access.map))

    def _check_parameter(self, access: Access) -> None:
        code, position = self.code, self.code.parameters.get(access.base)
        if position is None:
            raise _Kept("its function makes a tensor")
        if position < self.fixed:
            state = (position % code.carried, access.map)
            if state not in self.states:
                if len(self.states) >= _MOST_STATES * code.carried:
                    raise _Kept("its function moves elements")
                self.states[state] = None
                self._waiting.append(state)
            return
        code.tensor(code.operand(position))
        names = {name for e in access.map for name in e.symbols} - {name for d in self.dims for name in d.symbols}
        if any(Expr.symbol(name) not in code.builder.sizes for name in names):
            raise _Kept("its function has sizes of its own")
        self.reads[position, access.map] = None

    def operands(self) -> list[Tensor]:
        """The operands, over the whole space."""
        return [self.operand(position, index) for position, index in self.reads]

    def operand(self, position: int, index: Index) -> Tensor:
        """A parameter at an index of each point: a slice of each step, or an initial value."""
        code, is_slice = self.code, 0 <= position - self.code.carried < self.code.sliced
        x = code.tensor(code.operand(position))
        shifted = {f"d{i}": Expr.symbol(f"d{i + 1}") for i in range(len(self.dims))}
        at = [*([Expr.symbol("d0")] if is_slice else []), *(e.substitute(shifted) for e in index)]
        if tuple(at) == tuple(dim_symbols("d", len(self.space))) and x.sizes == self.space:
            return x
        type_ = tensor_type([s.as_int() for s in self.space], x.dtype)
        view = create_view(code.builder.sizes, x.value, type_, self.space, at)
        return Tensor(view, self.space, x.dtype)

    def outer(self) -> dict[ir.Value, ir.Value]:
        """Sizes and real numbers that the bodies use, as values of the caller."""
        found: dict[ir.Value, ir.Value] = {}
        for node, _ in self._checked:
            for view in node.op.regions[0].blocks[0].operations:
                for value in view.operation.operands:
                    if value in found or isinstance(value.type, ir.RankedTensorType):
                        continue
                    sized = value in self.code.graph.sizes or value in self.code.parameters
                    if sized or is_outer_scalar(value, node.op):
                        found[value] = self._outer_value(value)
        return found

    def _outer_value(self, value: ir.Value) -> ir.Value:
        code = self.code
        if value in code.graph.sizes:
            return code.builder.sizes.value(code.graph.sizes.expr(value))
        return code.operand(code.parameters[value]) if value in code.parameters else rebuild(value, self._outer_value)

    def write(
        self,
        returned: Sequence[int],
        given: dict[tuple[int, Index], ir.Value],
        read: Sequence[ir.Value],
        outer: dict[ir.Value, ir.Value],
    ) -> list[ir.Value]:
        """Emits the next carried values, then returned values at the point, in the types of their tensors. ``given``:
        carried parameters, and elements of an associative scan; ``read``: the others."""
        values: dict[Any, ir.Value] = given | dict(zip(self.reads, read, strict=True))
        wanted = [*self.states, *((i, self.dims) for i in returned)]
        return [self._value(self.code.start(*one), values, outer) for one in wanted]

    def _value(self, access: Access, values: dict[Any, ir.Value], outer: dict[ir.Value, ir.Value]) -> ir.Value:
        """Emits a value, once."""
        node = self.code.graph.producer.get(access.base)
        if node is None:
            return values[self.code.parameters[access.base], access.map]
        key = (access.base, access.map)
        if key not in values:
            body = node.op.regions[0].blocks[0]
            given = [self._value(_inner(one, access.map), values, outer) for one in node.inputs]
            yielded = _cloned(body, outer | dict(zip(body.arguments, given)))
            values |= {(result, access.map): value for result, value in zip(node.results, yielded, strict=True)}
        return values[key]


def _cloned(body: ir.Block, values: dict[ir.Value, ir.Value]) -> list[ir.Value]:
    """Clones the code of a body, for points of slices with a dim before them; returns what it yields."""
    for view in body.operations:
        op = view.operation
        if op.name == "linalg.yield":
            return [values[value] for value in op.operands]
        clone = op.clone()
        if op.name == "linalg.index":
            dim = ir.IntegerAttr(op.attributes["dim"]).value
            clone.attributes["dim"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), dim + 1)
        for i, operand in enumerate(op.operands):
            clone.operands[i] = values[operand]
        values.update(zip(op.results, clone.results))
    raise AssertionError("a body without a yield")


def _generic(
    inputs: Sequence[ir.Value], outs: Sequence[ir.Value], carried: int, rank: int, combiner: str
) -> tuple[Any, list[ir.Value]]:
    """An empty ``linalg.generic``, of whose outs the first ``carried`` lack the scanned dim; and its block
    arguments."""
    identity = ir.AffineMap.get_identity(rank)
    row = ir.AffineMap.get(rank, 0, [ir.AffineExpr.get_dim(i) for i in range(1, rank)])
    maps = [identity] * len(inputs) + [row] * carried + [identity] * (len(outs) - carried)
    kinds = ["reduction" if carried else "parallel"] + ["parallel"] * (rank - 1)
    attributes = {
        "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(one) for one in maps]),
        "iterator_types": ir.ArrayAttr.get([ir.Attribute.parse(f"#linalg.iterator_type<{kind}>") for kind in kinds]),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), len(outs)]),
        **combiner_attribute(combiner),
    }
    op = ir.Operation.create("linalg.generic", [v.type for v in outs], [*inputs, *outs], attributes, regions=1)
    block = op.regions[0].blocks.append(*(ir.RankedTensorType(v.type).element_type for v in (*inputs, *outs)))
    return op, list(block.arguments)


def _empty(b: Builder, sizes: Sequence[Expr], dtype: str) -> ir.Value:
    return ir.Operation.create("tensor.empty", [b.type(sizes, dtype)], b.dynamic(sizes)).result


def _zeros(b: Builder, sizes: Sequence[Expr], dtype: str) -> ir.Value:
    """The initial content of carried rows, which nothing reads before it is written."""
    zero = b.body.constant(0, dtype).value
    return ir.Operation.create("tensor.splat", [b.type(sizes, dtype)], [zero, *b.dynamic(sizes)]).result


class _Map:
    """One result of a scan without carried values."""

    def __init__(self, code: _Code, result: int) -> None:
        self.code, self.number, self.result = code, result, code.tensor(code.op.results[result])
        self.points = _Points(code, self.result.sizes, [result])

    def write(self) -> list[Tensor]:
        b, x = self.code.builder, self.result
        inputs, out, outer = self.points.operands(), _empty(b, x.sizes, x.dtype), self.points.outer()
        op, arguments = _generic([one.value for one in inputs], [out], 0, x.rank, "")
        with ir.InsertionPoint(op.regions[0].blocks[0]):
            ir.Operation.create("linalg.yield", [], self.points.write([self.number], {}, arguments[:-1], outer))
        return [Tensor(op.result, x.sizes, x.dtype)]


class _Scan:
    """Results of one size of a scan that carries values. What is returned only is carried as well, as the form of scans
    has it; what nothing reads costs nothing."""

    def __init__(self, code: _Code, group: Sequence[int]) -> None:
        self.code, self.group = code, group
        self.space = code.space(group[0])
        self.points = _Points(code, self.space, group)
        self.states = list(self.points.states)
        self.stacked = [] if code.associative else [i for i in group if i >= code.carried]
        of_states = [code.tensor(code.op.results[i]).dtype for i, _ in self.states]
        self.dtypes = of_states + [code.tensor(code.op.results[i]).dtype for i in self.stacked]
        if code.associative:
            return
        if not code.builder.facts.less_equal(ONE, self.space[0]):
            raise _Kept("it may have no steps, and then returns its initial values")
        if any(dtype in _WIDE for dtype in self.dtypes):
            raise _Kept("carried values of a half type are rounded at each step")

    def write(self) -> list[Tensor]:
        return self._associative() if self.code.associative else self._in_order()

    def _associative(self) -> list[Tensor]:
        b, count, own = self.code.builder, len(self.states), self.code.carried
        wide = [_WIDE.get(dtype, dtype) for dtype in self.dtypes]
        xs = [self.points.operand(own + i, index) for i, index in self.states]
        elements = [b.cast(x, dtype) for x, dtype in zip(xs, wide, strict=True)]
        inputs = [one.value for one in (*elements, *self.points.operands())]
        op, arguments, outer = self._start(inputs, wide, ASSOCIATIVE_SCAN)
        with ir.InsertionPoint(op.regions[0].blocks[0]):
            before = arguments[len(inputs) : len(inputs) + count]
            given = {}
            for state, left, right, dtype in zip(self.states, before, arguments, self.dtypes):
                given[state] = _narrow(left, dtype)
                given[own + state[0], state[1]] = _narrow(right, dtype)
            found = self.points.write([], given, arguments[count : len(inputs)], outer)
            carried = [_wide(value, dtype) for value, dtype in zip(found, self.dtypes, strict=True)]
            ir.Operation.create("linalg.yield", [], [*carried, *carried])
        steps = [Tensor(v, self.space, t) for v, t in zip(scan_results(op), wide, strict=True)]
        return [b.cast(one, dtype) for one, dtype in zip(steps[: len(self.group)], self.dtypes)]

    def _in_order(self) -> list[Tensor]:
        b, count = self.code.builder, len(self.states)
        starts = [self.points.operand(i, index) for i, index in self.states]
        inputs = [one.value for one in (*starts, *self.points.operands())]
        op, arguments, outer = self._start(inputs, self.dtypes, SCAN)
        with ir.InsertionPoint(op.regions[0].blocks[0]):
            at = b.body.dim_index(0)
            first = b.body.compare("eq", at, b.body.constant(0, at.dtype)).value
            given = {}
            for state, start, value in zip(self.states, arguments, arguments[len(inputs) :]):
                given[state] = ir.Operation.create("arith.select", [value.type], [first, start, value]).result
            found = self.points.write(self.stacked, given, arguments[count : len(inputs)], outer)
            ir.Operation.create("linalg.yield", [], [*found, *found])
        steps = [Tensor(v, self.space, t) for v, t in zip(scan_results(op), self.dtypes, strict=True)]
        last = [self._last(one) for one in steps[: len(self.group) - len(self.stacked)]]
        return last + steps[count:]

    def _start(
        self, inputs: Sequence[ir.Value], dtypes: Sequence[str], combiner: str
    ) -> tuple[Any, list[ir.Value], dict[ir.Value, ir.Value]]:
        """An operation without code, its block arguments, and the values that its code uses from outside."""
        b = self.code.builder
        outs = [_zeros(b, self.space[1:], t) for t in dtypes] + [_empty(b, self.space, t) for t in dtypes]
        outer = self.points.outer()
        return *_generic(inputs, outs, len(dtypes), len(self.space), combiner), outer

    def _last(self, x: Tensor) -> Tensor:
        """The last step alone, in memory of its own."""
        b = self.code.builder
        row = b.view(x, x.sizes[1:], lambda *d: [x.sizes[0] - 1, *d])
        return b.pointwise(row.sizes, row.dtype, [row], lambda v: v)


def _narrow(value: ir.Value, dtype: str) -> ir.Value:
    """A carried value cast to the type of a tensor with a dtype."""
    if dtype not in _WIDE:
        return value
    name = "builtin.unrealized_conversion_cast" if dtype == "ui8" else "arith.truncf"
    return ir.Operation.create(name, [ir.Type.parse(dtype)], [value]).result


def _wide(value: ir.Value, dtype: str) -> ir.Value:
    """The other way."""
    if dtype not in _WIDE:
        return value
    name = "builtin.unrealized_conversion_cast" if dtype == "ui8" else "arith.extf"
    return ir.Operation.create(name, [ir.Type.parse(_WIDE[dtype])], [value]).result
