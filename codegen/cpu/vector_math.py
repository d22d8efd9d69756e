"""Math functions that the CPU has no instruction for, as arithmetic on scalars or vectors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from symshape.codegen.cpu.floats import Floats
from symshape.codegen.cpu.libm import call_libm
from symshape.codegen.cpu.state import State
from symshape.codegen.loops import Instr

Expansion = Callable[[Floats, str], str]

_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4


def _exp(m: Floats, x: str) -> str:
    n = m.op("math.roundeven", m.mul(x, 1.4426950408889634))
    n = m.op("arith.maximumf", m.op("arith.minimumf", n, 200.0), -200.0)
    r = m.fma(n, -_LN2_HIGH, x)
    r = m.fma(n, -_LN2_LOW, r)
    p = m.polynomial((1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1), r)
    y = m.add(m.fma(p, m.mul(r, r), r), 1.0)
    i = m.to_int(n)
    half = m.int_op("shrsi", i, 1)
    y = m.mul(m.mul(y, m.power_of_two(half)), m.power_of_two(m.int_op("subi", i, half)))
    y = m.select(m.compare("ogt", x, 88.73), float("inf"), y)
    y = m.select(m.compare("olt", x, -104.0), 0.0, y)
    return m.select(m.compare("uno", x, x), x, y)


def _rsqrt(m: Floats, x: str) -> str:
    return m.div(1.0, m.op("math.sqrt", x))


_F32: dict[str, Expansion] = {"math.exp": _exp}
_ANY: dict[str, Expansion] = {"math.rsqrt": _rsqrt}
_LIBM = (
    "acos acosh asin asinh atan atan2 atanh cbrt cos cosh erf erfc exp exp2 expm1 log log10 log1p log2 powf sin sinh tan tanh"
).split()


def _expand(name: str, state: State, instr: Instr, names: list[str], element: str, uniform: bool) -> str:
    expansion = _ANY.get(name) or (_F32.get(name) if element == "f32" else None)
    if expansion is not None:
        return expansion(Floats(state, element, uniform), *names)
    function = name.removeprefix("math.")
    return call_libm(state, {"powf": "pow"}.get(function, function), names, element, uniform)


OPERATIONS = {name: partial(_expand, name) for name in [*_ANY, *(f"math.{f}" for f in _LIBM)]}
