"""Converts the scalar operations in the body of a ``linalg.generic`` to instructions of a loop program."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from torch_mlir import ir

from symshape.analysis.instr_builder import InstrBuilder
from symshape.analysis.loops import Arg
from symshape.artifact.element_types import HALF
from symshape.dialects.accessors import index_error, index_map, is_as_stored
from symshape.dialects.affine_maps import read_exprs
from symshape.dialects.kernels import INDEX_ERRORS
from symshape.dialects.locations import source_line
from symshape.dialects.sizes import Sizes
from symshape.errors import KernelError
from symshape.prover.numbers.expr import Expr

_CMPI: Final = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
_CMPF: Final = (
    "false",
    "oeq",
    "ogt",
    "oge",
    "olt",
    "ole",
    "one",
    "ord",
    "ueq",
    "ugt",
    "uge",
    "ult",
    "ule",
    "une",
    "uno",
    "true",
)
PREDICATES: Final = {"arith.cmpi": _CMPI, "arith.cmpf": _CMPF}
# Operations that the body of a reduction may combine with. None are unsigned: unsigned values are widened first.
_COMBINES: Final = {
    "add": {"arith.addf", "arith.addi"},
    "mul": {"arith.mulf", "arith.muli"},
    "max": {"arith.maximumf", "arith.maxsi"},
    "min": {"arith.minimumf", "arith.minsi"},
    "or": {"arith.ori"},
    "and": {"arith.andi"},
}
ARG_COMBINERS: Final = frozenset({"argmax", "argmin"})
# Not folded into index expressions, because the sign of operands is not known in a body.
_SIGNED: Final = frozenset({"arith.remsi"})


@dataclass(frozen=True)
class Accumulator:
    """A value that depends on a reduction's accumulator; ``operand`` is the value combined with the accumulator."""

    operand: int | None = None


Scalar = int | Expr | Accumulator


@dataclass
class Body:
    """The generic whose body is being read: its level, its combiner, and the scalars read so far."""

    op: Any
    row: bool
    index_names: tuple[str, ...]  # the dims that linalg.index refers to
    combiner: str
    scalars: dict[ir.Value, Scalar] = field(default_factory=dict)


class BodyReader:
    """Converts body operations to instructions. One reader serves all bodies of a kernel."""

    def __init__(self, builder: InstrBuilder, sizes: Sizes, args: list[Arg], arg_of: dict[ir.Value, int]) -> None:
        self._builder, self._sizes, self._args, self._arg_of = builder, sizes, args, arg_of
        self._types: dict[ir.Type, str] = {}
        self._special = {
            "linalg.index": self._index,
            "affine.apply": self._apply,
            "arith.constant": self._constant,
            "tensor.extract": self._extract,
            "symshape.check_index": self._check_index,
            "builtin.unrealized_conversion_cast": self._reinterpret,
            "arith.extf": self._cast,
            "arith.truncf": self._cast,
        }

    def text(self, type_: ir.Type) -> str:
        """An element type as text, cached: printing a type costs more than reading the rest of an instruction."""
        found = self._types.get(type_)
        if found is None:
            found = self._types[type_] = str(type_)
        return found

    def read(self, op: Any, body: Body) -> None:
        """Reads one operation of a body. KernelError if it is not supported in kernels."""
        name = op.name
        operands = list(op.operands)
        if any(isinstance(body.scalars.get(value), Accumulator) for value in operands):
            body.scalars[op.results[0]] = self._combine(op, operands, body)
            return
        special = self._special.get(name)
        if special is not None:
            body.scalars[op.results[0]] = special(op, body)
            return
        if name not in _SIGNED and self._sizes.read(op) and op.results[0] in self._sizes:
            return
        if not name.startswith(("arith.", "math.")) or len(op.results) != 1:
            raise KernelError(
                f"{name} is not supported in a kernel",
                where=source_line(op.location),
                next_step="lower the op to a library call instead",
            )
        values = tuple(self.value(value, body) for value in operands)
        fields: dict[str, Any] = {"source_dtype": self.text(operands[0].type)} if operands else {}
        if name in PREDICATES:
            fields["predicate"] = PREDICATES[name][ir.IntegerAttr(op.attributes["predicate"]).value]
        dtype = self.text(op.results[0].type)
        body.scalars[op.results[0]] = self._builder.emit(name, values, dtype, row=body.row, **fields)

    def value(self, value: ir.Value, body: Body) -> int:
        """The value number of a scalar. An index expression becomes an "index" instruction."""
        scalar = self._scalar(value, body)
        if isinstance(scalar, Expr):
            return self._builder.index(scalar, row=body.row)
        if isinstance(scalar, Accumulator):
            raise KernelError(
                "a reduction's accumulator is used outside its combination",
                where=source_line(body.op.location),
                next_step="this is a bug of the lowering pass",
            )
        return scalar

    def reduce(self, value: int, out_types: list[ir.Type], body: Body) -> list[int]:
        """Value numbers of the results of reducing ``value``; half types are reduced in float32 and then rounded."""
        dtype = self.text(out_types[0])
        wide = "f32" if dtype in HALF else dtype
        if dtype in HALF:
            value = self._builder.cast("arith.extf", value, dtype, "f32")
        results = 2 if body.combiner in ARG_COMBINERS else 1
        first = self._builder.emit("reduce", (value,), wide, results=results, combiner=body.combiner)
        rounded = self._builder.cast("arith.truncf", first, "f32", dtype) if dtype in HALF else first
        return [rounded, first + 1][:results]

    def _scalar(self, value: ir.Value, body: Body) -> Scalar:
        scalar = body.scalars.get(value)
        if scalar is not None:
            return scalar
        if value in self._sizes:
            return self._sizes.expr(value)
        owner = value.owner
        if not isinstance(owner, ir.Block) and owner.operation.name.startswith(("arith.", "math.")):
            self.read(owner.operation, body)  # a scalar defined outside of the body: read at its first use
            return self._scalar(value, body)
        raise KernelError(
            f"kernel uses a scalar that is not its own: {value}",
            where=source_line(body.op.location),
            next_step="this is a bug of the fusion pass",
        )

    def _expr(self, value: ir.Value, body: Body) -> Expr:
        scalar = self._scalar(value, body)
        if not isinstance(scalar, Expr):
            raise KernelError(
                "affine.apply of an index that is data",
                where=source_line(body.op.location),
                next_step="use arith operations on it",
            )
        return scalar

    def _combine(self, op: Any, operands: list[ir.Value], body: Body) -> Accumulator:
        if body.combiner in ARG_COMBINERS:
            return Accumulator()
        others = [v for v in operands if not isinstance(body.scalars.get(v), Accumulator)]
        if op.name not in _COMBINES.get(body.combiner, ()) or len(operands) != 2 or len(others) != 1:
            raise KernelError(
                f"a reduction '{body.combiner}' combines with {op.name}",
                where=source_line(op.location),
                next_step=f"known combinations: {_COMBINES}",
            )
        return Accumulator(self.value(others[0], body))

    def _index(self, op: Any, body: Body) -> Scalar:
        expr = Expr.symbol(body.index_names[ir.IntegerAttr(op.attributes["dim"]).value])
        self._sizes.define(op.results[0], expr)
        return expr

    def _apply(self, op: Any, body: Body) -> Scalar:
        map_ = index_map(op)
        exprs = [self._expr(value, body) for value in op.operands]
        (expr,) = read_exprs(map_.results, exprs[: map_.n_dims], exprs[map_.n_dims :])
        self._sizes.define(op.results[0], expr)
        return expr

    def _constant(self, op: Any, body: Body) -> Scalar:
        attribute = op.attributes["value"]
        if isinstance(attribute, (ir.IntegerAttr, ir.FloatAttr, ir.BoolAttr)):
            dtype = self.text(op.results[0].type)
            value = attribute.value
            if dtype == "index":
                self._sizes.define(op.results[0], Expr.const(value))
                return Expr.const(value)
            value = bool(value) if dtype == "i1" else value
            return self._builder.emit("constant", (), dtype, row=body.row, value=value)
        raise KernelError(
            f"constant {attribute} in a kernel",
            where=source_line(op.location),
            next_step="scalars only: a tensor constant is a kernel input",
        )

    def _extract(self, op: Any, body: Body) -> Scalar:
        source, *indices = op.operands
        arg = self._arg_of.get(source)
        if arg is None:
            raise KernelError(
                "tensor.extract from a value that is no kernel argument",
                where=source_line(op.location),
                next_step="this is a bug of the fusion pass",
            )
        dtype = self._args[arg].dtype
        scalars = [self._scalar(value, body) for value in indices]
        exprs = [scalar for scalar in scalars if isinstance(scalar, Expr)]
        if len(exprs) == len(scalars):
            address = self._builder.simplify(address_of(exprs, self._args[arg]), body.row)
            return self._builder.emit("load", (), dtype, row=body.row, arg=arg, address=address)
        values = tuple(self.value(value, body) for value in indices)
        return self._builder.emit("extract", values, dtype, row=body.row, arg=arg)

    def _check_index(self, op: Any, body: Body) -> Scalar:
        index, size = op.operands
        address = self._builder.simplify(self._expr(size, body), body.row)
        code = INDEX_ERRORS[index_error(op)]
        number = self.value(index, body)
        return self._builder.emit("check_index", (number,), "index", row=body.row, address=address, value=code)

    def _reinterpret(self, op: Any, body: Body) -> Scalar:
        (value,) = op.operands
        return self._scalar(value, body)

    def _cast(self, op: Any, body: Body) -> Scalar:
        (operand,) = op.operands
        source, dtype = self.text(operand.type), self.text(op.results[0].type)
        for_good, cast = "roundingmode" in op.attributes, self._builder.cast
        value = cast(op.name, self.value(operand, body), source, dtype, row=body.row, for_good=for_good)
        if is_as_stored(op):
            value = cast("arith.truncf", value, dtype, source, row=body.row, for_good=True)
            value = cast("arith.extf", value, source, dtype, row=body.row)
        return value


def address_of(indices: list[Expr], arg: Arg) -> Expr:
    """The address of the element at ``indices``: in elements, relative to the argument's data pointer."""
    return sum((index * stride for index, stride in zip(indices, arg.strides, strict=True)), Expr.const(0))
