"""Scalar code in the body of a ``linalg.generic``: arithmetic that follows PyTorch's dtype rules.

Half types are widened to f32 on entry and rounded on exit; "ui8" values are held as i8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch_mlir import ir

from symshape.artifact.element_types import FLOATS, HALF, ITEM_SIZE
from symshape.dialects.accessors import set_as_stored
from symshape.prover.numbers.expr import Expr

_CMPI = {"eq": 0, "ne": 1, "slt": 2, "sle": 3, "sgt": 4, "sge": 5, "ult": 6, "ule": 7, "ugt": 8, "uge": 9}
_CMPF = {
    "oeq": 1,
    "ogt": 2,
    "oge": 3,
    "olt": 4,
    "ole": 5,
    "one": 6,
    "ord": 7,
    "ueq": 8,
    "ugt": 9,
    "uge": 10,
    "ult": 11,
    "ule": 12,
    "une": 13,
    "uno": 14,
}
_WIDTH = {dtype: 8 * size for dtype, size in ITEM_SIZE.items()} | {"i1": 1}  # bits
# name: (on floats, on signed integers, on ui8 and i1)
_ARITHMETIC = {
    "add": ("arith.addf", "arith.addi", "arith.addi"),
    "sub": ("arith.subf", "arith.subi", "arith.subi"),
    "mul": ("arith.mulf", "arith.muli", "arith.muli"),
    "max": ("arith.maximumf", "arith.maxsi", "arith.maxui"),
    "min": ("arith.minimumf", "arith.minsi", "arith.minui"),
    "div": ("arith.divf", "arith.divsi", "arith.divui"),
    "floordiv": ("", "arith.floordivsi", "arith.divui"),
    "rem": ("arith.remf", "arith.remsi", "arith.remui"),
    "and": ("", "arith.andi", "arith.andi"),
    "or": ("", "arith.ori", "arith.ori"),
    "xor": ("", "arith.xori", "arith.xori"),
    "shl": ("", "arith.shli", "arith.shli"),
    "shr": ("", "arith.shrsi", "arith.shrui"),
}


def compute_type(dtype: str) -> str:
    """The type in which values of a dtype are computed."""
    return "f32" if dtype in HALF else dtype


def is_float(dtype: str) -> bool:
    return dtype in FLOATS


@dataclass(frozen=True)
class Scalar:
    """A scalar SSA value and its dtype."""

    value: ir.Value
    dtype: str


class Body:
    """Writes scalar operations at the current insertion point."""

    def __init__(self, size_value: Callable[[Expr], ir.Value], real_value: Callable[[Expr], ir.Value | None]) -> None:
        """``size_value``: a size as an index; ``real_value``: as f64, where 64 bits may be too few for it."""
        self._types: dict[str, ir.Type] = {}
        self._size_value, self._real_value = size_value, real_value

    def type(self, dtype: str) -> ir.Type:
        """The MLIR type that holds a scalar of a dtype in a body."""
        found = self._types.get(dtype)
        if found is None:
            found = self._types[dtype] = ir.Type.parse("i8" if dtype == "ui8" else dtype)
        return found

    def op(self, name: str, dtype: str, *operands: Scalar, **attributes: ir.Attribute) -> Scalar:
        """One operation with a result of ``dtype``."""
        values = [x.value for x in operands]
        return Scalar(ir.Operation.create(name, [self.type(dtype)], values, attributes).result, dtype)

    def constant(self, value: Any, dtype: str) -> Scalar:
        type_ = self.type(dtype)
        if is_float(dtype):
            attribute: ir.Attribute = ir.FloatAttr.get(type_, float(value))
        elif dtype == "i1":
            attribute = ir.IntegerAttr.get(type_, int(bool(value)))
        else:
            attribute = ir.IntegerAttr.get(type_, _wrap(int(value), _WIDTH.get(dtype, 64)))
        return Scalar(ir.Operation.create("arith.constant", [type_], attributes={"value": attribute}).result, dtype)

    def arithmetic(self, name: str, x: Scalar, y: Scalar) -> Scalar:
        on_floats, on_signed, on_unsigned = _ARITHMETIC[name]
        op = on_floats if is_float(x.dtype) else on_unsigned if x.dtype in ("ui8", "i1") else on_signed
        return self.op(op, x.dtype, x, y)

    def add(self, x: Scalar, y: Scalar) -> Scalar:
        return self.arithmetic("or", x, y) if x.dtype == "i1" else self.arithmetic("add", x, y)

    def sub(self, x: Scalar, y: Scalar) -> Scalar:
        return self.arithmetic("sub", x, y)

    def mul(self, x: Scalar, y: Scalar) -> Scalar:
        return self.arithmetic("and", x, y) if x.dtype == "i1" else self.arithmetic("mul", x, y)

    def div(self, x: Scalar, y: Scalar) -> Scalar:
        return self.arithmetic("div", x, y)

    def max(self, x: Scalar, y: Scalar) -> Scalar:
        return self.arithmetic("max", x, y)

    def min(self, x: Scalar, y: Scalar) -> Scalar:
        return self.arithmetic("min", x, y)

    def math(self, name: str, x: Scalar, *more: Scalar) -> Scalar:
        return self.op(f"math.{name}", x.dtype, x, *more)

    def neg(self, x: Scalar) -> Scalar:
        return self.op("arith.negf", x.dtype, x) if is_float(x.dtype) else self.sub(self.constant(0, x.dtype), x)

    def logical_not(self, x: Scalar) -> Scalar:
        return self.op("arith.xori", "i1", x, self.constant(True, "i1"))

    def compare(self, kind: str, x: Scalar, y: Scalar) -> Scalar:
        """``kind``: eq ne lt le gt ge; NaN compares unequal, and false for the rest."""
        i64 = ir.IntegerType.get_signless(64)
        if is_float(x.dtype):
            predicate = _CMPF["une" if kind == "ne" else "o" + kind]
            return self.op("arith.cmpf", "i1", x, y, predicate=ir.IntegerAttr.get(i64, predicate))
        prefix = "" if kind in ("eq", "ne") else "u" if x.dtype in ("ui8", "i1") else "s"
        return self.op("arith.cmpi", "i1", x, y, predicate=ir.IntegerAttr.get(i64, _CMPI[prefix + kind]))

    def is_nan(self, x: Scalar) -> Scalar:
        i64 = ir.IntegerType.get_signless(64)
        return self.op("arith.cmpf", "i1", x, x, predicate=ir.IntegerAttr.get(i64, _CMPF["uno"]))

    def select(self, condition: Scalar, x: Scalar, y: Scalar) -> Scalar:
        return self.op("arith.select", x.dtype, condition, x, y)

    def size(self, expr: Expr, dtype: str = "i64") -> Scalar:
        """A symbolic size as a number."""
        constant = expr.as_int()
        if constant is not None:
            return self.constant(constant, dtype)
        real = self._real_value(expr) if is_float(dtype) else None
        if real is not None:
            return self.cast(Scalar(real, "f64"), dtype)
        value = self._size_value(expr)
        return self.cast(self.op("arith.index_cast", "i64", Scalar(value, "index")), dtype)

    def number(self, value: Any, dtype: str) -> Scalar:
        """A scalar, a Python number or a symbolic size, as a scalar of a dtype."""
        if isinstance(value, Scalar):
            return self.cast(value, dtype)
        return self.size(value, dtype) if isinstance(value, Expr) else self.constant(value, dtype)

    def rounded(self, x: Scalar, dtype: str) -> Scalar:
        """The nearest number of a dtype, in its compute type; no later step undoes that."""
        wide = self.cast(x, compute_type(dtype))
        return wide if wide.dtype == dtype else self.cast(self.round_explicitly(wide, dtype), wide.dtype)

    def position(self, dim: int) -> Scalar:
        """The iteration index of a dim."""
        attribute = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), dim)
        index = ir.IndexType.get()
        return Scalar(ir.Operation.create("linalg.index", [index], attributes={"dim": attribute}).result, "index")

    def dim_index(self, dim: int) -> Scalar:
        """The iteration index of a dim, as i64."""
        return self.op("arith.index_cast", "i64", self.position(dim))

    def check_index(self, x: Scalar, size: Expr, message: str, error: str = "") -> Scalar:
        """An integer as an index into ``size`` elements; eager mode's error at run time if it is out of range.
        ``error``: a key of ``INDEX_ERRORS``."""
        index = self.op("arith.index_cast", "index", self.cast(x, "i64"))
        limit = Scalar(self._size_value(size), "index")
        more = {"error": ir.StringAttr.get(error)} if error else {}
        return self.op("symshape.check_index", "index", index, limit, message=ir.StringAttr.get(message), **more)

    def clamped_index(self, x: Scalar, size: Expr) -> Scalar:
        """An integer as an index into ``size`` elements, which is promised to be in range; it is clamped, so that no
        other memory is read."""
        index = self.op("arith.index_cast", "index", self.cast(x, "i64"))
        last = Scalar(self._size_value(size - 1), "index")
        return self.op("arith.maxsi", "index", self.op("arith.minsi", "index", index, last), self.constant(0, "index"))

    def wrapped(self, index: Scalar, size: Expr) -> Scalar:
        """An index, negative ones counted from the end."""
        index = self.cast(index, "i64")
        negative = self.compare("lt", index, self.constant(0, "i64"))
        return self.select(negative, self.add(index, self.size(size)), index)

    def extract(self, source: ir.Value, indices: Sequence[Scalar], dtype: str) -> Scalar:
        """An element of a tensor, in its compute type."""
        element = ir.RankedTensorType(source.type).element_type
        operands = [source, *(i.value for i in indices)]
        return self.enter(ir.Operation.create("tensor.extract", [element], operands).result, dtype)

    def enter(self, value: ir.Value, dtype: str, as_stored: bool = False) -> Scalar:
        """An element as a scalar of its compute type. ``as_stored``: one of a half type is rounded to it, even if the
        kernel that computes it never stores it."""
        if dtype == "ui8":
            return self.op("builtin.unrealized_conversion_cast", dtype, Scalar(value, dtype))
        wide = self.cast(Scalar(value, dtype), compute_type(dtype))
        if as_stored and compute_type(dtype) != dtype:
            set_as_stored(wide.value.owner)
        return wide

    def cast(self, x: Scalar, dtype: str) -> Scalar:
        """Converts as ``Tensor.to`` does."""
        source = x.dtype
        if source == dtype:
            return x
        if dtype == "i1":
            return self.compare("ne", x, self.constant(0, source)) if not is_float(source) else self._nonzero(x)
        if is_float(source) and is_float(dtype):
            return self._cast_float(x, dtype)
        if is_float(dtype):
            return self._int_to_float(x, dtype)
        if is_float(source):
            return self._float_to_int(x, dtype)
        if _WIDTH[source] == _WIDTH[dtype]:
            return Scalar(x.value, dtype)
        if _WIDTH[source] > _WIDTH[dtype]:
            return self.op("arith.trunci", dtype, x)
        return self.op("arith.extui" if source in ("ui8", "i1") else "arith.extsi", dtype, x)

    def _nonzero(self, x: Scalar) -> Scalar:
        return self.compare("ne", x, self.constant(0.0, x.dtype))

    def _cast_float(self, x: Scalar, dtype: str) -> Scalar:
        if _WIDTH[x.dtype] < _WIDTH[dtype]:
            return self.op("arith.extf", dtype, x)
        if _WIDTH[x.dtype] == _WIDTH[dtype] or x.dtype == "f64" and dtype != "f32":
            return self.cast(self.cast(x, "f32"), dtype)  # f16 <-> bf16, and f64 to half as PyTorch does it
        return self.op("arith.truncf", dtype, x)

    def round_explicitly(self, x: Scalar, dtype: str) -> Scalar:
        """Rounds an f32 to a half type where the program asks for it: no later widening may undo it."""
        nearest_even = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 0)
        return self.op("arith.truncf", dtype, x, roundingmode=nearest_even)

    def _int_to_float(self, x: Scalar, dtype: str) -> Scalar:
        wide = compute_type(dtype)
        return self.cast(self.op("arith.uitofp" if x.dtype in ("ui8", "i1") else "arith.sitofp", wide, x), dtype)

    def _float_to_int(self, x: Scalar, dtype: str) -> Scalar:
        wide = self.op("arith.fptosi", "i64" if dtype in ("i64", "ui8") else "i32", self.cast(x, compute_type(x.dtype)))
        return self.cast(wide, dtype)


def _wrap(value: int, width: int) -> int:
    """Two's complement of ``width`` bits."""
    return (value + (1 << (width - 1))) % (1 << width) - (1 << (width - 1)) if width > 1 else value & 1
