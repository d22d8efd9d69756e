"""Every scalar operation of the Triton table against eager, under the interpreter."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from kernel_text import KernelText
from triton_cases import S0, runner

from symshape.codegen.triton.ops import COMPARISONS, FLOAT_COMPARISONS, OPS

pytestmark = pytest.mark.filterwarnings("ignore")
TORCH = {
    "f32": torch.float32,
    "f64": torch.float64,
    "bf16": torch.bfloat16,
    "i1": torch.bool,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "ui8": torch.uint8,
}
inf, nan = math.inf, math.nan
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, inf, -inf, nan, 1e30, -1e30, 1e-30, 88.5, -88.5, 27.0, 9.5]

Unary = Callable[[torch.Tensor], torch.Tensor]
UNARY: dict[str, Unary] = {
    "arith.negf": torch.neg,
    "math.absf": torch.abs,
    "math.acos": torch.acos,
    "math.acosh": torch.acosh,
    "math.asin": torch.asin,
    "math.asinh": torch.asinh,
    "math.atan": torch.atan,
    "math.atanh": torch.atanh,
    "math.ceil": torch.ceil,
    "math.cos": torch.cos,
    "math.cosh": torch.cosh,
    "math.erf": torch.erf,
    "math.erfc": torch.special.erfc,
    "math.exp": torch.exp,
    "math.exp2": torch.exp2,
    "math.expm1": torch.expm1,
    "math.floor": torch.floor,
    "math.log": torch.log,
    "math.log10": torch.log10,
    "math.log1p": torch.log1p,
    "math.log2": torch.log2,
    "math.roundeven": torch.round,
    "math.rsqrt": torch.rsqrt,
    "math.sin": torch.sin,
    "math.sinh": torch.sinh,
    "math.sqrt": torch.sqrt,
    "math.tan": torch.tan,
    "math.tanh": torch.tanh,
    "math.trunc": torch.trunc,
    "math.round": lambda x: torch.copysign((x.abs() + 0.5).floor(), x),
}
BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "arith.addf": torch.add,
    "arith.subf": torch.sub,
    "arith.mulf": torch.mul,
    "arith.divf": torch.div,
    "arith.remf": torch.fmod,
    "arith.maximumf": torch.maximum,
    "arith.minimumf": torch.minimum,
    "arith.maxnumf": torch.fmax,
    "arith.minnumf": torch.fmin,
    "math.atan2": torch.atan2,
    "math.copysign": torch.copysign,
    "math.powf": torch.pow,
    "arith.addi": torch.add,
    "arith.subi": torch.sub,
    "arith.muli": torch.mul,
    "arith.divsi": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "arith.remsi": torch.fmod,
    "arith.floordivsi": torch.floor_divide,
    "arith.ceildivsi": lambda a, b: (-torch.floor_divide(-a.long(), b)).to(a.dtype),
    "arith.maxsi": torch.maximum,
    "arith.minsi": torch.minimum,
    "arith.andi": torch.bitwise_and,
    "arith.ori": torch.bitwise_or,
    "arith.xori": torch.bitwise_xor,
}
BINARY_FLOAT = [op for op in BINARY if op.endswith("f") or op.startswith("math.")]
UNSIGNED: dict[str, Callable[[int, int], int]] = {
    "arith.divui": lambda a, b: a // b,
    "arith.remui": lambda a, b: a % b,
    "arith.maxui": max,
    "arith.minui": min,
}
BINARY_INT = [*(op for op in BINARY if op not in BINARY_FLOAT), *UNSIGNED]
SHIFTS: dict[str, Callable[[int, int, int], int]] = {
    "arith.shli": lambda a, b, bits: a << b,
    "arith.shrsi": lambda a, b, bits: a >> b,
    "arith.shrui": lambda a, b, bits: (a % (1 << bits)) >> b,
}


def apply(body: str, result: str, *inputs: tuple[str, torch.Tensor]) -> torch.Tensor:
    """A pointwise kernel with this body over the inputs."""
    k = KernelText("op", 1, [(S0, "p")])
    loads = [k.view(k.arg(dtype, [S0]), "(d0) -> (d0)") for dtype, _ in inputs]
    k.store(k.generic(loads, result, body), k.arg(result, [S0], output=True), "(d0) -> (d0)")
    n = inputs[0][1].numel()
    out = torch.empty(n, dtype=TORCH[result])
    runner(k)(*(tensor for _, tensor in inputs), out, n)
    return out


def floats(dtype: str, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    special = torch.tensor(SPECIAL, dtype=torch.float64)
    scales = (1e-3, 0.3, 1.0, 10.0, 60.0)
    random = torch.cat([torch.randn(60, generator=generator, dtype=torch.float64) * s for s in scales])
    values = torch.cat([special, special.roll(seed), random, random.sign() * random.abs().round()])
    return values[torch.randperm(values.numel(), generator=generator)].to(TORCH[dtype])


def integers(dtype: str, seed: int) -> torch.Tensor:
    info = torch.iinfo(TORCH[dtype])
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(info.min, info.max, (100,), generator=generator, dtype=torch.int64)
    return torch.cat([values, torch.randint(-9, 9, (100,), generator=generator)]).to(TORCH[dtype])


def close(actual: torch.Tensor, expected: torch.Tensor, ulp: float = 16, zeros: bool = True) -> None:
    """Equal but for a few ulp, with the same NaN, infinities and signs (of ``zeros`` too)."""
    if actual.is_floating_point():
        eps = torch.finfo(actual.dtype).eps * ulp
        torch.testing.assert_close(actual, expected, rtol=eps, atol=1e-30, equal_nan=True)
        signed = ~expected.isnan() & (zeros | (expected != 0))
        assert torch.equal(torch.signbit(actual)[signed], torch.signbit(expected)[signed])
    else:
        assert torch.equal(actual, expected)


def test_every_operation_is_tested() -> None:
    here = {
        *UNARY,
        *BINARY,
        *BINARY_INT,
        *SHIFTS,
        *CASTS,
        "math.fma",
        "arith.select",
        "arith.bitcast",
        "math.isfinite",
        "math.isinf",
        "math.isnan",
        "math.absi",
        "math.cttz",
    }
    assert {key.split(":")[0] for key in OPS} == here


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("op", UNARY)
def test_unary(op: str, dtype: str) -> None:
    x = floats(dtype, 1)
    close(apply(f"%r = {op} %a0 : {dtype}", dtype, (dtype, x)), UNARY[op](x.double()).to(x.dtype))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("op", BINARY_FLOAT)
def test_binary_float(op: str, dtype: str) -> None:
    x, y = floats(dtype, 1), floats(dtype, 2)
    expected = BINARY[op](x, y)
    body = f"%r = {op} %a0, %a1 : {dtype}"
    ulp = 2000 if op == "math.powf" and dtype == "f64" else 16
    close(apply(body, dtype, (dtype, x), (dtype, y)), expected, ulp, zeros="max" not in op and "min" not in op)


@pytest.mark.parametrize("dtype", ["i8", "i16", "i32", "i64"])
@pytest.mark.parametrize("op", BINARY_INT)
def test_binary_int(op: str, dtype: str) -> None:
    x, y = integers(dtype, 1), integers(dtype, 2)
    y[y == 0] = 3
    y[(y == -1) & (x == torch.iinfo(x.dtype).min)] = 2
    if op in UNSIGNED:
        bits = torch.iinfo(x.dtype).bits
        mask = (1 << bits) - 1
        values = [UNSIGNED[op](a & mask, b & mask) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
        expected = torch.tensor([v - (1 << bits) if v >> (bits - 1) else v for v in values], dtype=x.dtype)
    else:
        expected = BINARY[op](x, y)
    close(apply(f"%r = {op} %a0, %a1 : {dtype}", dtype, (dtype, x), (dtype, y)), expected)


@pytest.mark.parametrize("dtype,bits", [("i8", 8), ("i32", 32), ("i64", 64)])
@pytest.mark.parametrize("op", SHIFTS)
def test_shifts(op: str, dtype: str, bits: int) -> None:
    x = integers(dtype, 1)
    by = torch.arange(x.numel()) % bits
    values = [SHIFTS[op](a, b, bits) % (1 << bits) for a, b in zip(x.tolist(), by.tolist(), strict=True)]
    expected = torch.tensor([v - (1 << bits) if v >> (bits - 1) else v for v in values], dtype=x.dtype)
    close(apply(f"%r = {op} %a0, %a1 : {dtype}", dtype, (dtype, x), (dtype, by.to(x.dtype))), expected)


@pytest.mark.parametrize("dtype", ["i32", "i64"])
def test_zeros_below(dtype: str) -> None:
    x = integers(dtype, 1)
    bits = torch.iinfo(x.dtype).bits
    x = torch.cat([x[x != 0], torch.ones(bits, dtype=x.dtype) << torch.arange(bits, dtype=x.dtype)])
    expected = torch.tensor([(v & -v).bit_length() - 1 for v in x.tolist()], dtype=x.dtype)
    close(apply(f"%r = math.cttz %a0 : {dtype}", dtype, (dtype, x)), expected)


@pytest.mark.parametrize("predicate", FLOAT_COMPARISONS)
def test_float_comparisons(predicate: str) -> None:
    x, y = floats("f32", 1), floats("f32", 2)
    ordered = ~(x.isnan() | y.isnan())
    compare = {"eq": x == y, "gt": x > y, "ge": x >= y, "lt": x < y, "le": x <= y, "ne": x != y}
    fixed = {"ord": ordered, "uno": ~ordered, "false": ordered & False, "true": ordered | True}
    expected = (
        fixed[predicate]
        if predicate in fixed
        else (compare[predicate[1:]] & ordered if predicate[0] == "o" else compare[predicate[1:]] | ~ordered)
    )
    close(apply(f"%r = arith.cmpf {predicate}, %a0, %a1 : f32", "i1", ("f32", x), ("f32", y)), expected)


@pytest.mark.parametrize("dtype", ["i8", "i64"])
@pytest.mark.parametrize("predicate", COMPARISONS)
def test_integer_comparisons(predicate: str, dtype: str) -> None:
    x, y = integers(dtype, 1), integers(dtype, 2)
    y[::3] = x[::3]
    a, b = x.long(), y.long()
    if predicate[0] == "u":  # the order of unsigned numbers: the sign bit flipped
        least = torch.iinfo(torch.int64).min
        a, b = a ^ least, b ^ least
    how = {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}
    expected = how[predicate if predicate in how else predicate[1:]]
    close(apply(f"%r = arith.cmpi {predicate}, %a0, %a1 : {dtype}", "i1", (dtype, x), (dtype, y)), expected)


# op -> (source, target, what eager says of the source values).
CASTS: dict[str, list[tuple[str, str, Unary]]] = {
    "arith.extf": [("bf16", "f32", lambda x: x.float()), ("f32", "f64", lambda x: x.double())],
    "arith.truncf": [("f32", "bf16", lambda x: x.bfloat16()), ("f64", "f32", lambda x: x.float())],
    "arith.extsi": [("i8", "i64", lambda x: x.long()), ("i1", "i32", lambda x: -x.int())],
    "arith.extui": [("i8", "i32", lambda x: x.int() & 255), ("i1", "i64", lambda x: x.long())],
    "arith.trunci": [("i64", "i8", lambda x: x.to(torch.int8)), ("i32", "i1", lambda x: (x & 1).bool())],
    "arith.sitofp": [
        ("i8", "f32", lambda x: x.float()),
        ("i32", "bf16", lambda x: x.bfloat16()),
        ("i1", "f32", lambda x: (-x.int()).float()),
    ],
    "arith.uitofp": [("i8", "f32", lambda x: (x.int() & 255).float()), ("i1", "f32", lambda x: x.float())],
    "arith.fptosi": [("f32", "i32", lambda x: x.int())],
    "arith.fptoui": [("f32", "i8", lambda x: x.int().to(torch.int8))],
    "arith.index_cast": [("i8", "i64", lambda x: x.long())],
    "arith.index_castui": [("i8", "i64", lambda x: x.long() & 255), ("i1", "i64", lambda x: x.long())],
}


@pytest.mark.parametrize("op,case", [(op, i) for op, cases in CASTS.items() for i in range(len(cases))])
def test_casts(op: str, case: int) -> None:
    source, target, eager = CASTS[op][case]
    if source == "i1":
        x = integers("i8", 1) > 0
    elif source[0] == "i":
        x = integers(source, 1)
    else:
        x = floats(source, 1)
    if op.startswith("arith.fpto"):
        x = torch.rand(100) * 250 if op.endswith("ui") else torch.randn(100) * 1000
    if op.startswith("arith.index"):
        body = f"%i = {op} %a0 : {source} to index\n    %r = arith.index_cast %i : index to {target}"
    else:
        body = f"%r = {op} %a0 : {source} to {target}"
    close(apply(body, target, (source, x)), eager(x), 0)


def test_fma_select_bitcast_and_classes() -> None:
    x, y = floats("f32", 1), floats("f32", 2)
    exact = (x.double() * y.double() + x.double()).float()
    close(apply("%r = math.fma %a0, %a1, %a0 : f32", "f32", ("f32", x), ("f32", y)), exact)
    for op, eager in (("isnan", torch.isnan), ("isinf", torch.isinf), ("isfinite", torch.isfinite)):
        close(apply(f"%r = math.{op} %a0 : f32", "i1", ("f32", x)), eager(x))
    close(apply("%r = arith.bitcast %a0 : f32 to i32", "i32", ("f32", x)), x.view(torch.int32))
    i = integers("i32", 1)
    close(apply("%r = math.absi %a0 : i32", "i32", ("i32", i)), i.abs())
    body = """%c = arith.constant 0x7F800000 : f32
    %z = arith.constant 0.5 : f32
    %t = arith.cmpf olt, %a0, %z : f32
    %r = arith.select %t, %c, %a0 : f32"""
    close(apply(body, "f32", ("f32", x)), torch.where(x < 0.5, inf, x))


def test_uint8_and_constants_of_small_types() -> None:
    x = torch.arange(256, dtype=torch.uint8)
    body = """%b = builtin.unrealized_conversion_cast %a0 : ui8 to i8
    %c = arith.constant 3 : i8
    %s = arith.addi %b, %c : i8
    %r = builtin.unrealized_conversion_cast %s : i8 to ui8"""
    close(apply(body, "ui8", ("ui8", x)), x + 3)
    body = "%b = builtin.unrealized_conversion_cast %a0 : ui8 to i8\n    %r = arith.uitofp %b : i8 to f32"
    close(apply(body, "f32", ("ui8", x)), x.float())
    flag = x > 7
    body = "%t = arith.constant true\n    %r = arith.xori %a0, %t : i1"
    close(apply(body, "i1", ("i1", flag)), ~flag)


def test_half_operations_are_computed_in_float32() -> None:
    x, y = floats("bf16", 1), floats("bf16", 2)
    close(apply("%r = arith.mulf %a0, %a1 : bf16", "bf16", ("bf16", x), ("bf16", y)), x * y, 0)
    close(apply("%r = arith.cmpf olt, %a0, %a1 : bf16", "i1", ("bf16", x), ("bf16", y)), x < y)
