"""The exchange with sympy, PyTorch's classes included, and conditions."""

from __future__ import annotations

import math
from typing import Any

import pytest
import sympy
from torch.utils._sympy import functions as torch_sympy

from symshape.prover.numbers.condition import (
    FALSE,
    TRUE,
    Condition,
    all_of,
    any_of,
    at_least,
    differs,
    equals,
    greater,
    negation,
)
from symshape.prover.numbers.expr import Expr, ceildiv, maximum, minimum
from symshape.prover.numbers.real_conditions import real_condition_from_sympy
from symshape.prover.numbers.sympy_bridge import UnsupportedExpr, condition_from_sympy, from_sympy, to_sympy

s0, s1 = map(Expr.symbol, ["s0", "s1"])
a, b = sympy.symbols("s0 s1", integer=True, positive=True)


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (sympy.Integer(7), Expr.const(7)),
        (a + 2 * b**2 - 3, s0 + 2 * s1 * s1 - 3),
        (torch_sympy.FloorDiv(a, 4), s0 // 4),
        (torch_sympy.Mod(a + 1, 8), (s0 + 1) % 8),
        (torch_sympy.PythonMod(a - b, 4), (s0 - s1) % 4),
        (torch_sympy.ModularIndexing(a, 4, 8), (s0 // 4) % 8),
        (torch_sympy.CeilDiv(a, 8), ceildiv(s0, 8)),
        (torch_sympy.CleanDiv(a * b, b), s0),
        (torch_sympy.Max(a, 3), maximum(s0, 3)),
        (torch_sympy.Min(a, b), minimum(s0, s1)),
        (torch_sympy.PowByNatural(a, sympy.Integer(3)), s0 * s0 * s0),
        (torch_sympy.Identity(a), s0),
        (torch_sympy.TruncToInt(torch_sympy.IntTrueDiv(a, 2)), s0 // 2),
        (sympy.floor(a / 4 + sympy.Rational(1, 2)), (s0 + 2) // 4),
        (sympy.floor(-a / 3), (-s0) // 3),
        (sympy.ceiling(a / b), ceildiv(s0, s1)),
        (sympy.Mod(a, 5), s0 % 5),
        (sympy.Max(a, b), maximum(s0, s1)),
    ],
)
def test_from_sympy_and_back(expr: Any, expected: Expr) -> None:
    assert from_sympy(expr) == expected
    assert from_sympy(to_sympy(expected)) == expected


@pytest.mark.parametrize(
    "expr",
    [
        sympy.Float(2.5),
        a * 0.5,
        a / 2,
        sympy.sqrt(a),
        2**a,
        sympy.oo,
        sympy.Symbol("z", real=True),
        torch_sympy.ToFloat(a),
        torch_sympy.TruncToInt(torch_sympy.IntTrueDiv(a - b, 2)),
        sympy.Piecewise((a, a > 1), (b, True)),
        "s0",
        1.5,
    ],
)
def test_unsupported(expr: Any) -> None:
    with pytest.raises(UnsupportedExpr):
        from_sympy(expr)


@pytest.mark.parametrize("mask", [0, 1, 6, 7, 40, 0b1011011, -1, -2, -8, -7, -41, 2**40])
def test_masks_of_bits(mask: int) -> None:
    functions = {
        torch_sympy.BitwiseFn_bitwise_and: lambda x: x & mask,
        torch_sympy.BitwiseFn_bitwise_or: lambda x: x | mask,
        torch_sympy.BitwiseFn_bitwise_xor: lambda x: x ^ mask,
    }
    for function, python in functions.items():
        for found in (from_sympy(function(a, sympy.Integer(mask))), from_sympy(function(sympy.Integer(mask), a))):
            assert all(found.evaluate({"s0": x}) == python(x) for x in (*range(-70, 140), 2**45 + 17))


@pytest.mark.parametrize("mask", [b, sympy.Integer(0b1010101010101), sympy.Integer(2**63)])
def test_masks_that_are_not_written(mask: Any) -> None:
    with pytest.raises(UnsupportedExpr):
        from_sympy(torch_sympy.BitwiseFn_bitwise_and(a, mask))


def test_names() -> None:
    assert from_sympy(a + b, lambda symbol: f"x_{symbol}") == Expr.symbol("x_s0") + Expr.symbol("x_s1")


@pytest.mark.parametrize(
    ("relation", "text"),
    [
        (sympy.Eq(a, 4 * b), "s0 == 4*s1"),
        (sympy.Eq(a / 2, b), "s0 == 2*s1"),
        (sympy.Ne(torch_sympy.Mod(a, 8), 0), "s0 % 8 != 0"),
        (a >= 3, "s0 >= 3"),
        (a < 3, "s0 <= 2"),
        (2 * a > 5, "s0 >= 3"),
        (a < b, "s1 > s0"),
        (a * b <= 1024, "s0*s1 <= 1024"),
        (sympy.Eq(2 * a, 5), "False"),
        (sympy.true, "True"),
        (False, "False"),
        (sympy.And(a > 4, sympy.Or(sympy.Eq(b, 3), b > a)), "s0 >= 5 and (s1 == 3 or s1 > s0)"),
        (sympy.Not(sympy.Eq(a, b)), "s0 != s1"),
    ],
)
def test_conditions(relation: Any, text: str) -> None:
    condition = condition_from_sympy(relation)
    assert str(condition) == text
    source, opposite = compile(text, "condition", "eval"), negation(condition)
    for x in range(1, 12):
        for y in range(1, 12):
            expected = bool(sympy.sympify(relation).subs({a: x, b: y}))
            values = {"s0": x, "s1": y}
            assert condition.evaluate(values) == eval(source, {}, values) == expected
            assert opposite.evaluate(values) != expected


def test_condition_of_a_number_is_unsupported() -> None:
    with pytest.raises(UnsupportedExpr):
        condition_from_sympy(a)
    with pytest.raises(UnsupportedExpr):
        condition_from_sympy(a > 0.5 * b)


def test_conditions_are_normal() -> None:
    assert equals(s1, s0) == equals(2 * s0, 2 * s1)
    assert at_least(4 * s0, 6) == at_least(s0, 2)
    assert greater(3, 3) == FALSE
    assert differs(2 * s0, 3) == TRUE
    assert negation(negation(at_least(s0, s1))) == at_least(s0, s1)
    p, q = equals(s0, 1), at_least(s1, 2)
    assert all_of(p, TRUE, all_of(q, p)) == all_of(p, q)
    assert all_of() == TRUE
    assert any_of(p, FALSE) == p
    assert any_of(p, TRUE) == TRUE
    assert negation(all_of(p, q)) == any_of(negation(p), negation(q))
    assert all_of(p, q).symbols == {"s0", "s1"}
    assert all_of(p, q).substitute({"s0": 1}) == q
    assert isinstance(p, Condition)
    assert p.as_bool() is None


_half = torch_sympy.FloatTrueDiv(torch_sympy.ToFloat(a), sympy.Float(2.0))
REALS = {
    "FloorDiv": torch_sympy.FloorDiv(a, b),
    "CleanDiv": torch_sympy.CleanDiv(a, b),
    "CeilDiv": torch_sympy.CeilDiv(a, b),
    "Mod": torch_sympy.Mod(a, b),
    "PythonMod": torch_sympy.PythonMod(a - b, b),
    "ModularIndexing": torch_sympy.ModularIndexing(a, 2, 3),
    "Where": torch_sympy.Where(a > b, _half, torch_sympy.ToFloat(b)),
    "LShift": torch_sympy.LShift(a, 2),
    "RShift": torch_sympy.RShift(a, 1),
    "Max": torch_sympy.Max(a, b, 4),
    "Min": torch_sympy.Min(a, b, 4),
    "PowByNatural": torch_sympy.PowByNatural(sympy.Integer(2), b),
    "FloatPow": torch_sympy.FloatPow(torch_sympy.ToFloat(a), sympy.Float(-0.5)),
    "FloatTrueDiv": _half,
    "IntTrueDiv": torch_sympy.IntTrueDiv(a, b),
    "ToFloat": torch_sympy.ToFloat(a),
    "TruncToInt": torch_sympy.TruncToInt(-_half),
    "TruncToFloat": torch_sympy.TruncToFloat(-_half),
    "FloorToInt": torch_sympy.FloorToInt(-_half),
    "CeilToInt": torch_sympy.CeilToInt(_half),
    "RoundToInt": torch_sympy.RoundToInt(_half),
    "RoundDecimal": torch_sympy.RoundDecimal(torch_sympy.IntTrueDiv(a, 3), sympy.Integer(1)),
    "Identity": torch_sympy.Identity(a + b),
    **{
        name: getattr(torch_sympy, name)(torch_sympy.FloatTrueDiv(torch_sympy.ToFloat(a), sympy.Float(16.0)))
        for name in dir(torch_sympy)
        if name.startswith("OpaqueUnaryFn_")
    },
    **{name: getattr(torch_sympy, name)(a, b) for name in dir(torch_sympy) if name.startswith("BitwiseFn_")},
}


def test_every_function_of_the_tracer_can_be_checked() -> None:
    """But for the one that it makes of layouts, which are not symbols here."""
    functions = {
        name
        for name, value in vars(torch_sympy).items()
        if isinstance(value, type) and issubclass(value, sympy.Function) and value.__module__ == torch_sympy.__name__
    }
    assert functions - {"IsNonOverlappingAndDenseIndicator"} <= {*REALS}


@pytest.mark.parametrize("name", REALS)
def test_conditions_that_floats_decide(name: str) -> None:
    expr = REALS[name]
    for first, second in ((1, 1), (5, 2), (7, 3), (12, 4), (3, 5)):
        value = expr.xreplace({a: sympy.Integer(first), b: sympy.Integer(second)})
        number = (int if value.is_Integer else float)(value)
        assert real_condition_from_sympy(sympy.Eq(expr, value)).evaluate({"s0": first, "s1": second}), (name, number)
        for relation, holds in ((expr > 2.25, number > 2.25), (sympy.Ne(expr, 1), number != 1)):
            condition = real_condition_from_sympy(relation)
            assert condition.evaluate({"s0": first, "s1": second}) == holds
            assert negation(condition).evaluate({"s0": first, "s1": second}) != holds
            moved = condition.substitute({"s0": s0 + 3, "s1": s0 // 2})
            assert moved.symbols <= {"s0"}
            if "s1" not in condition.symbols:
                assert moved.evaluate({"s0": first - 3}) == holds


def test_several_conditions_and_pieces_that_floats_decide() -> None:
    root = torch_sympy.OpaqueUnaryFn_sqrt(torch_sympy.ToFloat(a))
    pieces = sympy.Piecewise((2 * a, a > 5), (a + 1, True))
    condition = real_condition_from_sympy(sympy.And(sympy.Or(root > 2, b > 7), sympy.Not(sympy.Eq(pieces, 14))))
    for first in range(1, 12):
        for second in (1, 9):
            piece = 2 * first if first > 5 else first + 1
            holds = (math.sqrt(first) > 2 or second > 7) and piece != 14
            assert condition.evaluate({"s0": first, "s1": second}) == holds


def test_a_float_symbol_cannot_be_checked() -> None:
    with pytest.raises(UnsupportedExpr, match="not an integer"):
        real_condition_from_sympy(sympy.Symbol("zf0", real=True) > a)
