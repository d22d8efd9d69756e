"""Errors of the vectorised math functions, in units in the last place, against float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy
import pytest
import torch
from loop_builder import narrow_target

import symshape
from symshape.analysis.loops import Arg, Dim, Instr, LoopKernel
from symshape.codegen.cpu.emit.kernel import emit_cpu
from symshape.codegen.cpu.objects.compile_objects import compile_objects
from symshape.codegen.cpu.objects.target import Target, default
from symshape.machine.instruction_sets import NATIVE, held
from symshape.prover.numbers.expr import Expr
from symshape.runtime.cpu.load_objects import load_object

N, D0, ONE, ZERO = Expr.symbol("s0"), Expr.symbol("d0"), Expr.const(1), Expr.const(0)
INF, NAN = float("inf"), float("nan")
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.0,
    -2.0,
    3.0,
    10.0,
    100.0,
    1000.0,
    INF,
    -INF,
    NAN,
    1e-45,
    -1e-45,
    1e-38,
    -1e-38,
    1.17549435e-38,
    3.4028235e38,
    -3.4028235e38,
    88.72283,
    88.72284,
    -103.97,
    -104.0,
    -87.4,
    1e-10,
    -1e-10,
    1e10,
    -1e10,
    3.1415927,
    1.5707964,
    -1.5707964,
    0.99999994,
    -0.99999994,
    1.0000001,
    16777216.0,
    127.99999,
    128.0,
    -149.0,
    -150.0,
    9.0,
    4.0,
    3.919,
    10.05,
    10.1,
]


@dataclass(frozen=True)
class Case:
    """``focus``: the range that gets more random values than the whole f32 range; ``bound`` in ulp."""

    name: str
    reference: Callable[..., torch.Tensor]
    focus: tuple[float, float]
    bound: float = 1.0
    arity: int = 1


CASES = [
    Case("exp", torch.exp, (-104, 89)),
    Case("exp2", torch.exp2, (-150, 128)),
    Case("expm1", torch.expm1, (-20, 89), 1.5),
    Case("log", torch.log, (0, 4)),
    Case("log2", torch.log2, (0, 4), 1.5),
    Case("log10", torch.log10, (0, 4), 1.5),
    Case("log1p", torch.log1p, (-1, 4), 1.5),
    Case("sin", torch.sin, (-100, 100), 1.5),
    Case("cos", torch.cos, (-100, 100), 1.5),
    Case("tan", torch.tan, (-100, 100)),
    Case("tanh", torch.tanh, (-10, 10), 2.0),
    Case("erf", torch.erf, (-4, 4), 1.5),
    Case("erfc", torch.erfc, (-4, 10.1)),
    Case("rsqrt", torch.rsqrt, (0, 100), 1.5),
    Case("sqrt", torch.sqrt, (0, 100), 0.5),
    Case("asin", torch.asin, (-1, 1)),
    Case("acos", torch.acos, (-1, 1)),
    Case("atan", torch.atan, (-10, 10)),
    Case("sinh", torch.sinh, (-90, 90)),
    Case("cosh", torch.cosh, (-90, 90)),
    Case("asinh", torch.asinh, (-10, 10)),
    Case("acosh", torch.acosh, (1, 10)),
    Case("atanh", torch.atanh, (-1, 1)),
    Case("cbrt", lambda x: torch.from_numpy(numpy.cbrt(x.numpy())), (-10, 10)),
    Case("powf", torch.pow, (-5, 5), 1.0, 2),
    Case("remf", torch.fmod, (-5, 5), 0.5, 2),
    Case("atan2", torch.atan2, (-5, 5), 1.0, 2),
]


def kernel(case: Case, dtype: str) -> LoopKernel:
    names = [f"x{i}" for i in range(case.arity)]
    args = [Arg(name, dtype, False, (N,), (ONE,)) for name in names]
    code = [Instr("load", (i,), (), dtype, False, arg=i, address=D0) for i in range(case.arity)]
    operands = tuple(range(case.arity))
    dialect = "arith" if case.name == "remf" else "math"
    code.append(Instr(f"{dialect}.{case.name}", (9,), operands, dtype, False, source_dtype=dtype))
    code.append(Instr("store", (), (9,), dtype, False, arg=case.arity, address=D0))
    return LoopKernel(
        f"{case.name}_{dtype}",
        (Dim("d0", N, False),),
        (*args, Arg("y", dtype, True, (N,), (ONE,))),
        ("s0",),
        tuple(code),
    )


def compiled(dtype: str, target: Target, cases: Sequence[Case] = CASES) -> dict[str, Callable[..., None]]:
    texts = [emit_cpu(kernel(case, dtype), target) for case in cases]
    data, _ = compile_objects(texts, target=target)
    return load_object(data, {f"{case.name}_{dtype}": case.arity + 2 for case in cases})


@pytest.fixture(scope="module", params=["host", "narrow"])
def functions(request: pytest.FixtureRequest) -> dict[str, Callable[..., None]]:
    return compiled("f32", default() if request.param == "host" else narrow_target())


def inputs(case: Case) -> list[torch.Tensor]:
    """Special values (all pairs for two operands), every kind of bit pattern, and the focus range."""
    generator = torch.Generator().manual_seed(7)
    count = 200_000
    special = torch.tensor(SPECIAL)
    columns = torch.cartesian_prod(*[special] * case.arity).reshape(-1, case.arity)
    bits = torch.randint(-(1 << 31), 1 << 31, (count, case.arity), generator=generator)
    patterns = bits.to(torch.int32).view(torch.float32)
    low, high = case.focus
    near = torch.rand(count, case.arity, generator=generator) * (high - low) + low
    small = torch.rand(count // 4, case.arity, generator=generator) - 0.5
    whole = torch.randint(-6, 7, (count // 4, case.arity), generator=generator).float()
    rows = torch.cat([columns, patterns, near, small, near.abs() * 1e-4, whole])
    return [column.contiguous() for column in rows.unbind(1)]


def ulp_errors(actual: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """|actual - expected| in f32 ulps of the expected value; 0 where both are NaN or the same infinity."""
    rounded = expected.float()
    exponent = torch.frexp(rounded.double().abs().clamp(2.0**-126)).exponent - 24
    errors = (actual.double() - expected).abs() / torch.ldexp(torch.ones_like(expected), exponent.clamp(min=-149))
    same = (actual == rounded) & rounded.isinf() | (actual.isnan() & rounded.isnan())
    return torch.where(same, 0.0, torch.where(errors.isnan(), INF, errors))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_f32(functions: dict[str, Callable[..., None]], case: Case) -> None:
    values = inputs(case)
    out = torch.empty_like(values[0])
    functions[f"{case.name}_f32"](*(v.data_ptr() for v in values), out.data_ptr(), len(out))
    expected = case.reference(*(v.double() for v in values))
    errors = ulp_errors(out, expected)
    worst = int(errors.argmax())
    where = [v[worst].item() for v in values]
    found = out[worst].item(), expected[worst].item()
    assert errors[worst] <= case.bound, (case.name, errors[worst].item(), where, *found)
    print(f"{case.name}: {errors[worst]:.3f} ulp at {where}")
    signed = (expected == 0) & (values[0] == 0) & (case.arity == 1)
    assert torch.equal(torch.signbit(out[signed]), torch.signbit(expected[signed]))


def test_erf_without_permutations() -> None:
    """Where no index known at run time permutes a register, coefficients cannot depend on the lane."""
    (case,) = (case for case in CASES if case.name == "erf")
    test_f32(compiled("f32", replace(narrow_target(), permutes=0), [case]), case)


def test_sigmoid() -> None:
    """It is made of other operations (`passes/lowering/aten/math_functions.py`)."""
    (x,) = inputs(Case("sigmoid", torch.sigmoid, (-105, 20)))
    errors = ulp_errors(symshape.compile(torch.sigmoid)(x), torch.sigmoid(x.double()))
    assert errors.max() <= 2.0, (x[errors.argmax()], errors.max())


@pytest.fixture(scope="module")
def doubles() -> dict[str, Callable[..., None]]:
    return compiled("f64", default())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_f64(doubles: dict[str, Callable[..., None]], case: Case) -> None:
    """Against PyTorch's own float64 functions, which are libm's or SLEEF's (1 ulp)."""
    values = [v.double() for v in inputs(case)]
    values = [torch.cat([v[:20_000], v[-120_000:]]) for v in values]
    out = torch.empty_like(values[0])
    doubles[f"{case.name}_f64"](*(v.data_ptr() for v in values), out.data_ptr(), len(out))
    tolerance = 1e-12 if case.name == "cbrt" else 2e-15
    expected = case.reference(*values)
    torch.testing.assert_close(out, expected, rtol=tolerance, atol=0, equal_nan=True)
    signed = (expected == 0) & (values[0] == 0) & (case.arity == 1)
    assert torch.equal(torch.signbit(out[signed]), torch.signbit(expected[signed]))


EDGES_F64 = [5e-324, 1e-310, 2.0**-1022, 1e-20, 1 - 2.0**-53, 709.7, 709.79, 710.4, 710.4758600739439, 711.0, 1023.99]
EDGES_F64 += [-36.5, -50.0, -745.2, -1022.0, -1074.4, -1074.9, 1e6 * numpy.pi, 2.0**29 - 0.5, 2.0**29, 1e300]


@pytest.mark.parametrize("level", ["native", "x86-64-v3"])
@pytest.mark.parametrize("name", [*"sin cos tan expm1 exp2 sinh log1p atanh atan asin acos cosh log2 log10".split()])
def test_f64_of_any_bits(name: str, level: str) -> None:
    """Against extended precision, in ulp."""
    if level not in (NATIVE, *held()):
        pytest.skip("this processor lacks the instructions")
    torch._dynamo.reset()  # functions of PyTorch share one limit of compiled graphs
    generator = torch.Generator().manual_seed(3)
    patterns = torch.randint(-(1 << 62), 1 << 62, (2000,), generator=generator).view(torch.float64)
    near = torch.randn(5000, dtype=torch.float64, generator=generator)
    turns = torch.arange(1, 2000, dtype=torch.float64) * (torch.pi / 2)
    edges = torch.tensor(EDGES_F64, dtype=torch.float64)
    x = torch.cat([edges, patterns, near, near * 200, near * 1e-6, turns, -turns])
    x = x[x.abs().argsort()]  # a vector with a large one is computed by the library
    actual = symshape.compile(getattr(torch, name), options={"cpu": level})(x)
    with numpy.errstate(all="ignore"):
        reference = getattr(numpy, f"arc{name[1:]}" if name.startswith("a") else name)
        expected = reference(x.numpy().astype(numpy.longdouble))
        rounded = expected.astype(numpy.float64)
        errors = abs(actual.numpy().astype(numpy.longdouble) - expected) / numpy.spacing(abs(rounded))
    same = (actual.numpy() == rounded) | (numpy.isnan(actual.numpy()) & numpy.isnan(rounded))
    errors = numpy.where(same, 0, errors)
    assert errors.max() <= 2.5, (x[int(errors.argmax())].item(), errors.max())
    zeros = torch.tensor([0.0, -0.0], dtype=torch.float64)
    found = symshape.compile(getattr(torch, name), options={"cpu": level})(zeros)
    assert torch.equal(torch.signbit(found), torch.signbit(getattr(torch, name)(zeros)))


def test_logarithms_of_powers_are_exact() -> None:
    powers = torch.arange(-1074, 1024, dtype=torch.float64)
    assert torch.equal(symshape.compile(torch.log2)(torch.exp2(powers)), powers)
    tens = torch.tensor([float(f"1e{k}") for k in range(23)], dtype=torch.float64)
    assert torch.equal(symshape.compile(torch.log10)(tens), torch.arange(23, dtype=torch.float64))


@pytest.mark.parametrize("level", ["native", "x86-64-v3", "x86-64-v2"])
def test_pow_of_f64_of_any_bits(level: str) -> None:
    """Against extended precision, in ulp; where a result is near overflow or underflow and where the base is near 1."""
    if level not in (NATIVE, *held()):
        pytest.skip("this processor lacks the instructions")
    compiled = symshape.compile(torch.pow, options={"cpu": level})
    generator = torch.Generator().manual_seed(3)
    edges = torch.tensor([*SPECIAL, *EDGES_F64, 5e-324, 1e308, -1e308], dtype=torch.float64)
    columns = torch.cartesian_prod(edges, edges)
    patterns = torch.randint(-(1 << 62), 1 << 62, (20_000, 2), generator=generator).view(torch.float64)
    base = torch.exp2(torch.rand(20_000, dtype=torch.float64, generator=generator) * 2100 - 1076)
    near = 1 + torch.randn(20_000, dtype=torch.float64, generator=generator) * 0.2
    bases = torch.cat([base, near.abs(), torch.rand(20_000, dtype=torch.float64, generator=generator) * 4])
    logs = torch.rand(60_000, dtype=torch.float64, generator=generator) * 1460 - 748  # of results
    x = torch.cat([columns[:, 0], patterns[:, 0], bases, bases])
    y = torch.cat([columns[:, 1], patterns[:, 1], logs / bases.log(), logs / 100])
    actual = compiled(x, y).numpy()
    with numpy.errstate(all="ignore"):
        expected = numpy.power(x.numpy().astype(numpy.longdouble), y.numpy().astype(numpy.longdouble))
        rounded = numpy.power(x.numpy(), y.numpy())
        errors = abs(actual.astype(numpy.longdouble) - expected) / numpy.spacing(abs(rounded))
    same = (actual == rounded) | (numpy.isnan(actual) & numpy.isnan(rounded))
    errors = numpy.where(same, 0, errors)
    worst = int(numpy.nan_to_num(errors, nan=INF).argmax())
    assert errors[worst] <= 1.0, (x[worst].item(), y[worst].item(), actual[worst], rounded[worst], errors[worst])
    zeros = rounded == 0
    assert (numpy.signbit(actual[zeros]) == numpy.signbit(rounded[zeros])).all()


def test_powers_that_are_numbers_are_exact() -> None:
    bases, exponents = torch.arange(-40, 41).double(), torch.arange(0, 11).double()
    x, y = torch.cartesian_prod(bases, exponents).unbind(1)
    whole = torch.tensor([float(int(a) ** int(b)) for a, b in zip(x.tolist(), y.tolist())], dtype=torch.float64)
    small = whole.abs() < 2.0**53
    assert torch.equal(symshape.compile(torch.pow)(x, y)[small], whole[small])
    powers = torch.arange(-1074, 1024, dtype=torch.float64)
    two = torch.full_like(powers, 2.0)
    assert torch.equal(symshape.compile(torch.pow)(two, powers), torch.exp2(powers))
    squares = torch.arange(1, 2000, dtype=torch.float64)
    assert torch.equal(symshape.compile(torch.pow)(squares * squares, torch.full_like(squares, 0.5)), squares)


def test_fmod_of_f64_is_exact() -> None:
    generator = torch.Generator().manual_seed(3)
    count = torch.randint(1, 10000, (4000,), generator=generator).double()
    y = torch.rand(4000, dtype=torch.float64, generator=generator)
    compiled = symshape.compile(torch.fmod)
    for x in (count * y, torch.nextafter(count * y, torch.zeros_like(y)), y * 2.0**60, -y, torch.full_like(y, INF)):
        with numpy.errstate(invalid="ignore"):
            expected = torch.from_numpy(numpy.fmod(x.numpy(), y.numpy()))
        torch.testing.assert_close(compiled(x, y), expected, rtol=0, atol=0, equal_nan=True)
