"""The exchange with sympy, PyTorch's classes included, and conditions."""

from __future__ import annotations

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
