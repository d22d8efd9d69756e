"""The builder that rules get: pointwise operations, reductions, scans and views over tensors of symbolic size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch_mlir import ir

from symshape.dialects.accessors import SCAN, combiner_attribute, scan_results
from symshape.dialects.conditions import emit_condition
from symshape.dialects.host import CallOp
from symshape.dialects.reals import from_size
from symshape.dialects.sizes import Sizes
from symshape.dialects.types import tensor_type
from symshape.dialects.views import create_view
from symshape.passes.lowering.aten.scalar_body import Body, Scalar, compute_type, is_float
from symshape.prover.numbers.condition import at_least
from symshape.prover.numbers.expr import Expr, has_functions, minimum, product
from symshape.prover.numbers.facts import Facts
from symshape.prover.numbers.magnitudes import Magnitudes

ONE = Expr.const(1)
ZERO = Expr.const(0)


@dataclass(frozen=True)
class Tensor:
    """A tensor value, its symbolic sizes and its element type."""

    value: ir.Value
    sizes: tuple[Expr, ...]
    dtype: str

    @property
    def rank(self) -> int:
        return len(self.sizes)


@dataclass(frozen=True)
class Result:
    """A result that a call must produce: its sizes and dtype."""

    sizes: tuple[Expr, ...]
    dtype: str


Addresses = tuple[Expr, Sequence[Expr], Sequence[Any]]  # in a memory: the first, sizes and strides, in elements


class Unsupported(Exception):
    """Raised by a rule that cannot lower this call; it stays a library call, with the reason in the report."""


_IDENTITY: dict[str, Callable[[str], Any]] = {
    "add": lambda t: 0,
    "mul": lambda t: 1,
    "or": lambda t: False,
    "and": lambda t: True,
    "max": lambda t: lowest(t),
    "min": lambda t: highest(t),
    "argmax": lambda t: lowest(t),
    "argmin": lambda t: highest(t),
}
_INT_RANGE = {"i8": 7, "i16": 15, "i32": 31, "i64": 63}


def lowest(dtype: str) -> Any:
    if is_float(dtype):
        return float("-inf")
    return 0 if dtype in ("ui8", "i1") else -(2 ** _INT_RANGE[dtype])


def highest(dtype: str) -> Any:
    if is_float(dtype):
        return float("inf")
    return {"ui8": 255, "i1": 1}.get(dtype) or 2 ** _INT_RANGE[dtype] - 1


class Builder:
    """Emits at the current insertion point. ``results``: the results that the call being lowered must produce;
    ``target``: "cpu" or "triton"; ``written``: arguments that the caller wants results copied to."""

    def __init__(self, sizes: Sizes, facts: Facts, target: str = "cpu", written: Iterable[ir.Value] = ()) -> None:
        self.sizes, self.facts, self.target = sizes, facts, target
        self._written = set(written)  # and what is made of one by scatters
        self.results: list[Result] = []
        self.is_discontinuous = False  # the function that the call computes: half operands are rounded before it
        self.addresses: list[Addresses | None] = []  # that the call's result is read at; None: unknown ones
        self.body = Body(self._size_before_body, self._real_before_body)
        self._known_shapes = 0
        self._of_shapes = Magnitudes(frozenset(), facts)
        self._parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>")
        self._reduction = ir.Attribute.parse("#linalg.iterator_type<reduction>")

    # --- sizes -------------------------------------------------------------------------------------------------

    def is_one(self, size: Expr) -> bool:
        return size.as_int() == 1

    def simplify(self, expr: Expr) -> Expr:
        return self.facts.simplify(expr)

    def dim(self, dim: int, rank: int) -> int:
        """A dim as a number in [0, rank)."""
        return dim % max(rank, 1)

    def type(self, sizes: Sequence[Expr], dtype: str) -> ir.Type:
        return tensor_type([s.as_int() for s in sizes], dtype)

    def dynamic(self, sizes: Sequence[Expr]) -> list[ir.Value]:
        """SSA values of the sizes that the type leaves open."""
        return [self.sizes.value(s) for s in sizes if s.as_int() is None]

    def _size_before_body(self, expr: Expr) -> ir.Value:
        """A size used in a body, emitted before its op, so that later ops reuse it."""
        with ir.InsertionPoint(self._generic_op):
            return self.sizes.value(expr)

    def _real_before_body(self, expr: Expr) -> ir.Value | None:
        """As ``_size_before_body``, as a real number, if 64 bits may be too few for the integer (Python's are
        unbounded)."""
        if expr.as_symbol() is not None or self._magnitudes.fit(expr):
            return None
        with ir.InsertionPoint(self._generic_op):
            return from_size(self.sizes.value(expr))

    @property
    def _magnitudes(self) -> Magnitudes:
        """Upper bounds of sizes, from the tensors known so far."""
        layouts = self.sizes.layouts
        if self._known_shapes != len(layouts):
            self._known_shapes = len(layouts)
            self._of_shapes = Magnitudes(self.sizes.shapes_in_memory(), self.facts)
        return self._of_shapes

    def expect_at_most(self, small: Expr, large: Expr, message: str) -> None:
        """Emits a check ``small <= large`` at run time, unless it is proven."""
        if not self.facts.less_equal(small, large):
            condition = emit_condition(self.sizes, at_least(large, small))
            ir.Operation.create("symshape.expect_true", [], [condition], {"message": ir.StringAttr.get(message)})

    # --- views -------------------------------------------------------------------------------------------------

    def view(
        self,
        x: Tensor,
        sizes: Sequence[Expr],
        map: Callable[..., Sequence[Expr]],
        domain: Callable[..., Sequence[Expr]] | None = None,
        *,
        simplified: bool = False,
    ) -> Tensor:
        """result[d...] = x[map(d...)]; where ``domain(d...)`` is given, only points with every expression >= 0 are
        read. ``simplified``: the map has its simplest form already."""
        dims = [Expr.symbol(f"d{i}") for i in range(len(sizes))]
        exprs = list(map(*dims))
        if not simplified and any(has_functions(e) for e in exprs):
            facts = self.facts.with_dims({f"d{i}": s for i, s in enumerate(sizes)})
            exprs = [facts.simplify(e) for e in exprs]
        conditions = list(domain(*dims)) if domain else []
        value = create_view(self.sizes, x.value, self.type(sizes, x.dtype), sizes, exprs, conditions)
        return Tensor(value, tuple(sizes), x.dtype)

    def broadcast(self, x: Tensor, sizes: Sequence[Expr]) -> Tensor:
        """Expands x to sizes by PyTorch's rules; x itself if nothing changes.

        A size that is not known to be that of the result is 1 or the same: the step over it is 0 or 1, by its value.
        """
        lead = len(sizes) - x.rank
        steps = [self.step(s, sizes[lead + i]) for i, s in enumerate(x.sizes)]
        if lead == 0 and all(step == ONE for step in steps):
            return x
        return self.view(x, sizes, lambda *d: [d[lead + i] * step for i, step in enumerate(steps)])

    def step(self, size: Expr, wanted: Expr) -> Expr:
        """The index step along a dim of the wanted size in a tensor of this size: 0 if it is broadcast, else 1."""
        if size == wanted:
            return ONE
        if self.is_one(size):
            return ZERO
        return ONE if self.facts.equal(size, wanted) else minimum(size - 1, ONE)

    # --- pointwise ---------------------------------------------------------------------------------------------

    def pointwise(
        self, sizes: Sequence[Expr], dtype: str, inputs: Sequence[Tensor], code: Callable[..., Scalar]
    ) -> Tensor:
        """A pointwise result: ``code`` gets a scalar per input (half types widened), its result is cast to dtype."""
        inputs = [self.broadcast(x, sizes) for x in inputs]
        empty = ir.Operation.create("tensor.empty", [self.type(sizes, dtype)], self.dynamic(sizes)).result
        rank = len(sizes)
        identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(rank))
        op = self._generic([x.value for x in inputs], [empty], [identity] * (len(inputs) + 1), [self._parallel] * rank)
        block = op.regions[0].blocks[0]
        try:
            with ir.InsertionPoint(block):
                scalars = [self.body.enter(a, x.dtype, self.is_discontinuous) for a, x in zip(block.arguments, inputs)]
                ir.Operation.create("linalg.yield", [], [self._leave(code(*scalars), dtype)])
        except Unsupported:
            op.erase()
            raise
        return Tensor(op.result, tuple(sizes), dtype)

    def _generic(
        self, ins: list[ir.Value], outs: list[ir.Value], maps: list[Any], iterators: list[Any], combiner: str = ""
    ) -> Any:
        attributes: dict[str, ir.Attribute] = {
            "indexing_maps": ir.ArrayAttr.get(maps),
            "iterator_types": ir.ArrayAttr.get(iterators),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(ins), len(outs)]),
            **combiner_attribute(combiner),
        }
        op = ir.Operation.create("linalg.generic", [v.type for v in outs], [*ins, *outs], attributes, regions=1)
        op.regions[0].blocks.append(*(ir.RankedTensorType(v.type).element_type for v in (*ins, *outs)))
        self._generic_op = op
        return op

    def _leave(self, scalar: Scalar, dtype: str) -> ir.Value:
        value = self.body.cast(scalar, dtype).value
        if dtype == "ui8":
            ui8 = ir.Type.parse("ui8")
            return ir.Operation.create("builtin.unrealized_conversion_cast", [ui8], [value]).result
        return value

    def scatter(
        self,
        x: Tensor,
        values: Tensor,
        dims: Sequence[int],
        sizes: Sequence[Expr],
        coordinates: Sequence[Any],
        combiner: str,
        *,
        repeats: bool = False,
        wraps: bool = False,
    ) -> Tensor:
        """``symshape::scatter`` into a copy of ``x``, in its dtype; ``outline-scatters`` makes a kernel of it, which
        writes into the copy. ``coordinates``: for each dim of ``x`` a dim of the space, or (index, its dims in the
        space). Where ``x`` is an argument that is written to, another kernel checks the indices, so that
        ``write-inputs`` may let this one write to the argument itself.
        """
        checked = x.value in self._written
        if checked:
            limits = enumerate(zip(coordinates, x.sizes, strict=True))
            coordinates = [
                one if isinstance(one, int) else (self._checked_before(one[0], sizes, limit, wraps, dim), one[1])
                for dim, (one, limit) in limits
            ]
        operands = [self.pointwise(x.sizes, x.dtype, [x], lambda v: v).value, values.value]

        def text(value: Any) -> str:
            operands.append(value.value if isinstance(value, Tensor) else self.sizes.value(value))
            return f"${len(operands) - 1}"

        def joined(parts: Iterable[str]) -> str:
            return "(" + "".join(f"{part}, " for part in parts) + ")"

        along = tuple(one if isinstance(one, int) else -1 for one in coordinates)
        indexed = [one for one in coordinates if not isinstance(one, int)]
        indices = ", ".join(text(index) for index, _ in indexed)
        index_dims = tuple(dim for _, runs_along in indexed for dim in runs_along)
        space = joined(map(text, sizes))
        arguments = (
            f"($0, $1, {tuple(dims)}, {repeats}, {space}, {along}, [{indices}], {index_dims}, '{combiner}', "
            f"{wraps and not checked}, {checked})"
        )
        type_ = self.type(x.sizes, x.dtype)
        op = CallOp("symshape.scatter.default", arguments, operands, [type_], fresh=True).operation
        strides = [product(x.sizes[i + 1 :]) for i in range(x.rank)]
        layout = [self.sizes.value(e) for e in (*x.sizes, *strides, ZERO)]
        ir.Operation.create("symshape.bind", [], [op.results[0], *layout])
        self._written.update(op.results if checked else ())
        return Tensor(op.results[0], x.sizes, x.dtype)

    def _checked_before(self, index: Tensor, space: Sequence[Expr], size: Expr, wraps: bool, dim: int) -> Tensor:
        """A checked index. If the space has no points, any index is in range of a nonzero size."""
        points = product(space)
        if self.facts.less_equal(ONE, points):
            return self.checked_index(index, index.sizes, size, wraps, dim)
        m = self.body

        def code(value: Scalar) -> Scalar:
            value = m.cast(value, "i64")
            some = m.compare("gt", m.size(minimum(points, ONE)), m.constant(0, "i64"))
            return m.select(some, value, m.constant(0, "i64"))

        return self.checked_index(self.pointwise(index.sizes, "i64", [index], code), index.sizes, size, wraps, dim)

    def checked_index(self, index: Tensor, space: Sequence[Expr], size: Expr, wraps: bool, dim: int) -> Tensor:
        """An index into dim ``dim`` (of ``size``) of a destination, at every point of a space; with ``wraps`` negative
        ones count from the end. Others are an error at run time."""
        m = self.body
        message = f"index is out of bounds for dimension {dim}"

        def code(value: Scalar) -> Scalar:
            value = m.wrapped(value, size) if wraps else m.cast(value, "i64")
            return m.op("arith.index_cast", "i64", m.check_index(value, size, message))

        return self.pointwise(space, "i64", [index], code)

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        return x if x.dtype == dtype else self.pointwise(x.sizes, dtype, [x], lambda v: v)

    def full(self, sizes: Sequence[Expr], dtype: str, value: Any) -> Tensor:
        """``value``: a Python number, a size or a real that is computed of sizes."""
        return self.pointwise(sizes, dtype, [], lambda: self.body.number(value, compute_type(dtype)))

    # --- reductions --------------------------------------------------------------------------------------------

    def reduce(self, x: Tensor, dims: Sequence[int], combiner: str, keepdim: bool = False) -> tuple[Tensor, ...]:
        """Combines over dims in x's own dtype (the accumulator's). argmax/argmin give (value, i64 row-major index)."""
        reduced = {self.dim(d, x.rank) for d in dims} if x.rank else set()
        kept = [i for i in range(x.rank) if i not in reduced]
        sizes = [x.sizes[i] for i in kept]
        dtypes = [x.dtype, "i64"] if combiner.startswith("arg") else [x.dtype]
        outs = [self._splat(sizes, t, i, combiner) for i, t in enumerate(dtypes)]
        source = ir.AffineMapAttr.get(ir.AffineMap.get_identity(x.rank))
        target = ir.AffineMapAttr.get(ir.AffineMap.get(x.rank, 0, [ir.AffineExpr.get_dim(i) for i in kept]))
        iterators = [self._reduction if i in reduced else self._parallel for i in range(x.rank)]
        op = self._generic([x.value], outs, [source] + [target] * len(outs), iterators, combiner)
        block = op.regions[0].blocks[0]
        with ir.InsertionPoint(block):
            results = self._combine(combiner, x, sorted(reduced), block.arguments)
            ir.Operation.create("linalg.yield", [], results)
        tensors = [Tensor(r, tuple(sizes), t) for r, t in zip(op.results, dtypes)]
        return tuple(self._restore(t, x, reduced) if keepdim else t for t in tensors)

    def scan(
        self,
        xs: Sequence[Tensor],
        dim: int,
        start: Sequence[tuple[str, Any]],
        dtypes: Sequence[str],
        code: Callable[[Sequence[Scalar], Sequence[Scalar]], Sequence[Scalar]],
    ) -> tuple[Tensor, ...]:
        """A scan along ``dim``: at each point, in order, ``code`` maps the values of the point before and the elements
        of ``xs`` (which have the same sizes) to the next values. ``start``: (signed dtype, initial number) of each
        value; ``dtypes``: of the results, to which values are cast."""
        sizes, rank = xs[0].sizes, xs[0].rank
        dim = self.dim(dim, rank)
        kept = [i for i in range(rank) if i != dim]
        carried = [self._splat_of([sizes[i] for i in kept], dtype, number) for dtype, number in start]
        full = [
            ir.Operation.create("tensor.empty", [self.type(sizes, dtype)], self.dynamic(sizes)).result
            for dtype in dtypes
        ]
        identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(rank))
        row = ir.AffineMapAttr.get(ir.AffineMap.get(rank, 0, [ir.AffineExpr.get_dim(i) for i in kept]))
        maps = [*[identity] * len(xs), *[row] * len(start), *[identity] * len(start)]
        iterators = [self._reduction if i == dim else self._parallel for i in range(rank)]
        op = self._generic([x.value for x in xs], [*carried, *full], maps, iterators, SCAN)
        block = op.regions[0].blocks[0]
        with ir.InsertionPoint(block):
            elements = [self._scalar(a, x.dtype) for a, x in zip(block.arguments, xs)]
            before = [Scalar(a, dtype) for a, (dtype, _) in zip(list(block.arguments)[len(xs) :], start)]
            values = code(before, elements)
            results = [self._leave(value, dtype) for value, dtype in zip(values, dtypes, strict=True)]
            ir.Operation.create("linalg.yield", [], [*(value.value for value in values), *results])
        return tuple(Tensor(r, sizes, dtype) for r, dtype in zip(scan_results(op), dtypes))

    def _splat(self, sizes: Sequence[Expr], dtype: str, position: int, combiner: str) -> ir.Value:
        return self._splat_of(sizes, dtype, 0 if position else _IDENTITY[combiner](dtype))

    def _splat_of(self, sizes: Sequence[Expr], dtype: str, value: Any) -> ir.Value:
        body_type = ir.Type.parse(dtype)
        if is_float(dtype):
            attribute = ir.FloatAttr.get(body_type, float(value))
        elif dtype == "ui8":
            attribute = ir.IntegerAttr.get(ir.Type.parse("i8"), value - 256 if value > 127 else value)
        else:
            attribute = ir.IntegerAttr.get(body_type, value)
        constant = ir.Operation.create("arith.constant", [attribute.type], attributes={"value": attribute}).result
        if dtype == "ui8":
            constant = ir.Operation.create("builtin.unrealized_conversion_cast", [body_type], [constant]).result
        return ir.Operation.create("tensor.splat", [self.type(sizes, dtype)], [constant, *self.dynamic(sizes)]).result

    def _combine(self, combiner: str, x: Tensor, reduced: list[int], arguments: Any) -> list[ir.Value]:
        body, dtype = self.body, x.dtype
        if not combiner.startswith("arg"):
            value, total = (self._scalar(a, dtype) for a in (arguments[0], arguments[1]))
            return [self._leave(body.arithmetic(combiner, total, value), dtype)]
        value, best, at = (
            self._scalar(arguments[0], dtype),
            self._scalar(arguments[1], dtype),
            Scalar(arguments[2], "i64"),
        )
        index = body.constant(0, "i64")
        for d in reduced:
            index = body.add(body.mul(index, body.size(x.sizes[d])), body.dim_index(d))
        better = body.compare("gt" if combiner == "argmax" else "lt", value, best)
        if is_float(dtype):
            first_nan = body.op("arith.andi", "i1", body.is_nan(value), body.logical_not(body.is_nan(best)))
            better = body.op("arith.ori", "i1", better, first_nan)
        return [self._leave(body.select(better, value, best), dtype), body.select(better, index, at).value]

    def _scalar(self, argument: ir.Value, dtype: str) -> Scalar:
        if dtype == "ui8":
            return self.body.enter(argument, dtype)
        return Scalar(argument, dtype)

    def _restore(self, t: Tensor, x: Tensor, reduced: set[int]) -> Tensor:
        """Puts the reduced dims back, with size 1."""
        kept = [i for i in range(x.rank) if i not in reduced]
        sizes = [ONE if i in reduced else s for i, s in enumerate(x.sizes)]
        return self.view(t, sizes, lambda *d: [d[i] for i in kept])

    def count(self, x: Tensor, dims: Sequence[int]) -> Expr:
        """The number of elements that a reduction over dims combines."""
        return product([x.sizes[self.dim(d, x.rank)] for d in dims]) if x.rank else ONE
