"""Prints arith and math operations on scalars or vectors: one table from operation name to MLIR text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from symshape.analysis.loops import Instr
from symshape.artifact.element_types import HALF
from symshape.codegen.cpu.emit import division, exact_halves, types
from symshape.codegen.cpu.emit.casts import CASTS, from_f32, to_f32
from symshape.codegen.cpu.emit.index_arithmetic import per_lane, scalar
from symshape.codegen.cpu.emit.long_conversions import float_of_long
from symshape.codegen.cpu.emit.state import State, Value
from symshape.codegen.cpu.vector_math import functions as vector_math
from symshape.errors import KernelError

Operation = Callable[[State, Instr, list[str], str, bool], str]  # (state, instruction, names, element type, uniform)

# None may be contracted: a value is rounded the same in each kernel and loop that computes it, so that ``y - y.amax()``
# is 0 somewhere, as in eager mode. Operations that gain from a fused multiply-add use ``math.fma``.
_PLAIN = (
    "arith.addf arith.subf arith.mulf arith.divf arith.negf "
    "arith.addi arith.subi arith.muli arith.andi arith.ori arith.xori arith.shli arith.shrsi arith.shrui arith.maxsi "
    "arith.minsi arith.maxui arith.minui arith.maximumf arith.minimumf arith.maxnumf arith.minnumf "
    "math.absf math.absi math.ceil math.floor math.trunc math.roundeven math.sqrt math.copysign math.fma "
    "math.ctlz math.cttz math.ctpop math.isnan math.isinf math.isfinite math.isnormal"
).split()


def apply(state: State, instr: Instr, operands: list[Value]) -> Value:
    """The value of an arith or math instruction; a scalar when all operands are uniform."""
    if instr.op in _AFFINE:
        affine = _AFFINE[instr.op](state, instr, operands)
        if affine is not None:
            return affine
    uniform = all(operand.uniform for operand in operands)
    if instr.op in division.KINDS:
        return division.divide(state, instr, operands, uniform)
    bits = exact_halves.bits(state, instr, operands, uniform)
    if bits is not None and instr.dtype == "bf16":
        return Value(bits(), "bf16", uniform)
    return replace(_computed(state, instr, operands, uniform), bits=bits)


def _computed(state: State, instr: Instr, operands: list[Value], uniform: bool) -> Value:
    """The value of an instruction that needs no code of its own: from the tables of operations."""
    if instr.op == "arith.select":
        return _select(state, instr, operands, uniform)
    names = [operand.name if uniform else state.lanes(operand) for operand in operands]
    if instr.op == "arith.sitofp" and instr.dtype == "f32" and operands[0].stride and not state.target.converts_long:
        return Value(float_of_long(state, names[0], "f32"), "f32", uniform)
    cast = CASTS.get(instr.op)
    if cast is not None:
        return Value(cast(state, names[0], operands[0].dtype, instr.dtype, uniform), instr.dtype, uniform)
    operation = OPERATIONS.get(instr.op) or vector_math.OPERATIONS.get(instr.op)
    if operation is None:
        raise KernelError(f"CPU kernels cannot compute {instr.op}", next_step="make the operation a library call")
    dtypes = [operand.dtype for operand in operands]
    half = any(dtype in HALF for dtype in dtypes)
    if half:
        names = [to_f32(state, n, d, uniform) if d in HALF else n for n, d in zip(names, dtypes)]
    element = "f32" if half else types.register(dtypes[0])
    result = operation(state, instr, names, element, uniform)
    if half and instr.dtype in HALF:
        result = from_f32(state, result, instr.dtype, uniform)
    return Value(result, instr.dtype, uniform)


def type_of(state: State, element: str, uniform: bool) -> str:
    """The scalar or the vector type."""
    return element if uniform else state.vector(element)


def _plain(state: State, instr: Instr, names: list[str], element: str, uniform: bool) -> str:
    return state.writer.pure(f"{instr.op} {', '.join(names)} : {type_of(state, element, uniform)}")


def _compare(state: State, instr: Instr, names: list[str], element: str, uniform: bool) -> str:
    type_ = type_of(state, element, uniform)
    return state.writer.pure(f"{instr.op} {instr.predicate}, {', '.join(names)} : {type_}")


def _round(state: State, instr: Instr, names: list[str], element: str, uniform: bool) -> str:
    """C's round (halves away from zero): truncate |x| + the largest number below 0.5, with x's sign."""
    type_, pure = type_of(state, element, uniform), state.writer.pure
    half = 0.49999997 if element == "f32" else 0.49999999999999994
    constant = state.constant(half, element) if uniform else state.splat(half, element)
    signed = pure(f"math.copysign {constant}, {names[0]} : {type_}")
    return pure(f"math.trunc {pure(f'arith.addf {names[0]}, {signed} : {type_}')} : {type_}")


def _select(state: State, instr: Instr, operands: list[Value], uniform: bool) -> Value:
    condition, left, right = operands
    element = types.register(instr.dtype)
    type_ = type_of(state, element, uniform)
    if uniform or condition.uniform:
        pair = [o.name if uniform else state.lanes(o) for o in (left, right)]
        name = state.writer.pure(f"arith.select {condition.name}, {pair[0]}, {pair[1]} : {type_}")
    else:
        name = state.writer.pure(
            f"arith.select {condition.name}, {state.lanes(left)}, {state.lanes(right)} : {state.vector('i1')}, {type_}"
        )
    return Value(name, instr.dtype, uniform)


def _affine_sum(sign: int, state: State, instr: Instr, operands: list[Value]) -> Value | None:
    """The sum of two index values as base and stride, if at most one varies along the lanes and is affine; else
    None."""
    left, right = operands
    if not (left.affine and right.affine) or types.register(instr.dtype) != "i64":
        return None
    name = state.writer.pure(f"{instr.op} {left.name}, {right.name} : i64")
    stride = left.stride + sign * right.stride
    return Value(name, instr.dtype, uniform=left.uniform and right.uniform or stride == 0, stride=stride)


def _affine_cast(state: State, instr: Instr, operands: list[Value]) -> Value | None:
    (value,) = operands
    if value.uniform or not value.affine or types.register(instr.dtype) != "i64" != types.register(value.dtype):
        return None
    return Value(value.name, instr.dtype, uniform=False, stride=value.stride)


_AFFINE: dict[str, Callable[[State, Instr, list[Value]], Value | None]] = {
    "arith.addi": partial(_affine_sum, 1),
    "arith.subi": partial(_affine_sum, -1),
    "arith.index_cast": _affine_cast,
    "arith.index_castui": _affine_cast,
}

OPERATIONS: dict[str, Operation] = {
    **dict.fromkeys(_PLAIN, _plain),
    "arith.cmpi": _compare,
    "arith.cmpf": _compare,
    "math.round": _round,
}


def index(state: State, instr: Instr) -> Value:
    """An index expression: uniform, affine in the lane number, or per lane."""
    assert instr.address is not None
    stride = state.stride(instr.address)
    step = None if stride is None else stride.as_int()
    if step is None:
        return Value(per_lane(state, instr.address), "index", uniform=False)
    return Value(scalar(state, instr.address), "index", uniform=step == 0, stride=step)


def constant(state: State, instr: Instr) -> Value:
    """A constant, in the register form of its dtype."""
    assert instr.value is not None
    value = types.bfloat_bits(float(instr.value)) if instr.dtype == "bf16" else instr.value
    return Value(state.constant(value, types.register(instr.dtype)), instr.dtype, literal=instr.value)
