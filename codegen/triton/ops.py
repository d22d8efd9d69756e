"""Prints scalar operations as Triton code: a table by MLIR op name, and operations whose text depends on types."""

from __future__ import annotations

import math
from typing import Final

from symshape.analysis.loops import Instr
from symshape.artifact.element_types import HALF
from symshape.errors import KernelError

TYPES: Final = {
    "f32": "tl.float32",
    "f64": "tl.float64",
    "f16": "tl.float16",
    "bf16": "tl.bfloat16",
    "i1": "tl.int1",
    "i8": "tl.int8",
    "i16": "tl.int16",
    "i32": "tl.int32",
    "i64": "tl.int64",
    "index": "tl.int64",
    "ui8": "tl.int8",
}
UNSIGNED: Final = {
    "i8": "tl.uint8",
    "i16": "tl.uint16",
    "i32": "tl.uint32",
    "i64": "tl.uint64",
    "index": "tl.uint64",
    "ui8": "tl.uint8",
}

# {a} {b} {c}: operands; {T}: result type; {V}: its unsigned counterpart; {ua} {ub}: operands bitcast to unsigned.
# "op:f64" applies to a first operand of that type, "op:->i1" to a result of that type; both take precedence over "op".
OPS: Final = {
    "arith.addf": "{a} + {b}",
    "arith.subf": "{a} - {b}",
    "arith.mulf": "{a} * {b}",
    "arith.divf": "tl.div_rn({a}, {b})",
    "arith.divf:f64": "{a} / {b}",
    "arith.remf": "{a} % {b}",
    "arith.negf": "{a} * -1.0",  # not 0 - x, which loses the sign of zero
    "arith.maximumf": "tm.maximum({a}, {b})",
    "arith.minimumf": "tm.minimum({a}, {b})",
    "arith.maxnumf": "tm.maxnum({a}, {b})",
    "arith.minnumf": "tm.minnum({a}, {b})",
    "arith.addi": "{a} + {b}",
    "arith.subi": "{a} - {b}",
    "arith.muli": "{a} * {b}",
    "arith.divsi": "{a} // {b}",
    "arith.remsi": "{a} % {b}",
    "arith.divui": "({ua} // {ub}).to({T}, bitcast=True)",
    "arith.remui": "({ua} % {ub}).to({T}, bitcast=True)",
    "arith.floordivsi": "tm.floor_div({a}, {b})",
    "arith.ceildivsi": "tm.ceil_div({a}, {b})",
    "arith.maxsi": "tl.maximum({a}, {b})",
    "arith.minsi": "tl.minimum({a}, {b})",
    "arith.maxui": "tl.where({ua} > {ub}, {a}, {b})",
    "arith.minui": "tl.where({ua} < {ub}, {a}, {b})",
    "arith.maxui:i1": "{a} | {b}",
    "arith.minui:i1": "{a} & {b}",
    "arith.andi": "{a} & {b}",
    "arith.ori": "{a} | {b}",
    "arith.xori": "{a} ^ {b}",
    "arith.shli": "{a} << {b}",
    "arith.shrsi": "{a} >> {b}",
    "arith.shrui": "({ua} >> {ub}).to({T}, bitcast=True)",
    "arith.select": "tl.where({a}, {b}, {c})",
    "arith.extf": "{a}.to({T})",
    "arith.truncf": "{a}.to({T})",
    "arith.truncf:->bf16": "tm.to_bfloat16({a})",
    "arith.extsi": "{a}.to({T})",
    "arith.extsi:i1": "-({a}.to({T}))",
    "arith.extui": "{ua}.to({T})",
    "arith.extui:i1": "{a}.to({T})",
    "arith.trunci": "{a}.to({T})",
    "arith.trunci:->i1": "({a} & 1) != 0",
    "arith.sitofp": "{a}.to({T})",
    "arith.sitofp:i1": "(0 - {a}.to(tl.int8)).to({T})",
    "arith.uitofp": "{ua}.to({T})",
    "arith.uitofp:i1": "{a}.to({T})",
    "arith.fptosi": "{a}.to({T})",
    "arith.fptoui": "{a}.to({V}).to({T}, bitcast=True)",
    "arith.bitcast": "{a}.to({T}, bitcast=True)",
    "arith.index_cast": "{a}.to({T})",
    "arith.index_cast:i1": "-({a}.to({T}))",
    "arith.index_castui": "{ua}.to({T})",
    "arith.index_castui:i1": "{a}.to({T})",
    "math.absf": "tl.abs({a})",
    "math.absi": "tl.abs({a})",
    "math.acos": "tm.acos({a})",
    "math.acosh": "tm.acosh({a})",
    "math.asin": "tm.asin({a})",
    "math.asinh": "tm.asinh({a})",
    "math.atan": "tm.atan({a})",
    "math.atan2": "tm.atan2({a}, {b})",
    "math.atanh": "tm.atanh({a})",
    "math.ceil": "tl.ceil({a})",
    "math.copysign": "tm.copysign({a}, {b})",
    "math.cos": "tl.cos({a})",
    "math.cosh": "tm.cosh({a})",
    "math.cttz": "tm.cttz({a})",
    "math.erf": "tl.erf({a})",
    "math.erfc": "tm.erfc({a})",
    "math.exp": "tm.exp({a})",
    "math.exp2": "tl.exp2({a})",
    "math.expm1": "tm.expm1({a})",
    "math.floor": "tl.floor({a})",
    "math.fma": "tl.fma({a}, {b}, {c})",
    "math.isfinite": "tl.abs({a}) < float('inf')",
    "math.isinf": "tl.abs({a}) == float('inf')",
    "math.isnan": "{a} != {a}",
    "math.log": "tl.log({a})",
    "math.log10": "tm.log10({a})",
    "math.log1p": "tm.log1p({a})",
    "math.log2": "tl.log2({a})",
    "math.powf": "tm.powf({a}, {b})",
    "math.round": "tm.round_away({a})",
    "math.roundeven": "tm.roundeven({a})",
    "math.rsqrt": "tl.rsqrt({a})",
    "math.sin": "tl.sin({a})",
    "math.sinh": "tm.sinh({a})",
    "math.sqrt": "tl.sqrt_rn({a})",
    "math.sqrt:f64": "tl.sqrt({a})",
    "math.tan": "tm.tan({a})",
    "math.tanh": "tm.tanh({a})",
    "math.trunc": "tm.trunc({a})",
}
COMPARISONS: Final = {
    "eq": "{a} == {b}",
    "ne": "{a} != {b}",
    "slt": "{a} < {b}",
    "sle": "{a} <= {b}",
    "sgt": "{a} > {b}",
    "sge": "{a} >= {b}",
    "ult": "{ua} < {ub}",
    "ule": "{ua} <= {ub}",
    "ugt": "{ua} > {ub}",
    "uge": "{ua} >= {ub}",
}
# For NaN, Triton's < <= > >= == are false and != is true.
FLOAT_COMPARISONS: Final = {
    "oeq": "{a} == {b}",
    "ogt": "{a} > {b}",
    "oge": "{a} >= {b}",
    "olt": "{a} < {b}",
    "ole": "{a} <= {b}",
    "one": "({a} < {b}) | ({a} > {b})",
    "ord": "({a} == {a}) & ({b} == {b})",
    "uno": "({a} != {a}) | ({b} != {b})",
    "ueq": "~(({a} < {b}) | ({a} > {b}))",
    "ugt": "~({a} <= {b})",
    "uge": "~({a} < {b})",
    "ult": "~({a} >= {b})",
    "ule": "~({a} > {b})",
    "une": "{a} != {b}",
    "false": "({a} != {a}) & ({a} == {a})",
    "true": "({a} != {a}) | ({a} == {a})",
}
# Operations that work on half types directly; all others compute in float32 and round the result.
_ANY_TYPE: Final = frozenset({"arith.select", "arith.extf", "arith.truncf", "arith.bitcast"})
_ROUND: Final = {"bf16": "tm.to_bfloat16({})", "f16": "({}).to(tl.float16)"}
# Operations in which a constant may be a bare number, because the other operand determines the type.
_BARE: Final = frozenset(
    {
        "arith.addf",
        "arith.subf",
        "arith.mulf",
        "arith.cmpf",
        "arith.cmpi",
        "arith.addi",
        "arith.subi",
        "arith.muli",
    }
)


def literal(value: int | float | bool) -> str:
    """A Python literal for a constant."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def typed(value: int | float | bool, dtype: str) -> str:
    """A typed constant. A bare number in tl.where, or on its own, would get another type."""
    return f"tl.full((), {literal(value)}, {TYPES[dtype]})"


def bare_operand(instr: Instr, position: int, constants: list[bool]) -> bool:
    """Whether a constant operand may be printed as a bare number."""
    wide = instr.source_dtype in ("f32", "f64", "i32", "i64", "index")
    return wide and instr.op in _BARE and not constants[1 - position]


def op_text(instr: Instr, operands: list[str], where: str) -> str:
    """The expression for an arith or math instruction. KernelError if it has no Triton code."""
    template = _template(instr)
    if template is None:
        what = f"{instr.op} {instr.predicate} on {instr.source_dtype} has no Triton code"
        step = "add it to OPS in codegen/triton/ops.py, or lower the op to a library call"
        raise KernelError(what, where=where, next_step=step)
    source = instr.source_dtype
    widened = instr.op not in _ANY_TYPE
    if widened and source in HALF:
        operands = [f"{text}.to(tl.float32)" for text in operands]
    names = dict(zip("abc", operands, strict=False))
    if source in UNSIGNED:
        same = ".to(tl.int64)" if source == "index" else ""  # an index may be 32 bits wide
        names.update({"u" + n: f"{text}{same}.to({UNSIGNED[source]}, bitcast=True)" for n, text in names.items()})
    rounded = _ROUND.get(instr.dtype) if widened else None
    type_ = "tl.float32" if rounded else TYPES[instr.dtype]
    text = template.format(T=type_, V=UNSIGNED.get(instr.dtype, ""), **names)
    return rounded.format(text) if rounded else text


def _template(instr: Instr) -> str | None:
    if instr.op == "arith.cmpi":
        template = COMPARISONS.get(instr.predicate)
        ordered = instr.source_dtype == "i1" and instr.predicate not in ("eq", "ne")
        return None if ordered else template
    if instr.op == "arith.cmpf":
        return FLOAT_COMPARISONS.get(instr.predicate)
    for key in (f"{instr.op}:->{instr.dtype}", f"{instr.op}:{instr.source_dtype}", instr.op):
        if key in OPS:
            return OPS[key]
    return None
