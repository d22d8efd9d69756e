"""The canonical form: what is equal by form, what it prints as, and that it never changes a value."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from prover_trees import Tree, build, compute, trees

from symshape.prover.numbers.expr import Expr, Function, Symbol, as_expr, ceildiv, maximum, minimum, product

NAMES = ["s0", "s1", "d0"]
s0, s1, s2, d0, d1, d2 = map(Expr.symbol, ["s0", "s1", "s2", "d0", "d1", "d2"])


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        ((s0 + 1) * (s0 - 1) + 1, s0 * s0),
        ((4 * s0) // 4, s0),
        ((4 * s0 + 6) // 4, s0 + 1),
        ((4 * s0 + 3) // 8, s0 // 2),
        ((s0 * s1 * s2) // (s1 * s2), s0),
        ((s0 * s1 * 6) // (s1 * 4), (3 * s0) // 2),
        ((s0 * s0 - 1) // (s0 + 1), s0 - 1),
        ((d0 * s0 * 64 + d1 * 64 + d2) // 64, d0 * s0 + d1 + d2 // 64),
        ((d0 * (s0 + 1) + d1) // (s0 + 1), d0 + d1 // (s0 + 1)),
        ((s0 // 4) // 8, s0 // 32),
        ((s0 // s1) // 8, s0 // (8 * s1)),
        ((s0 // 4 + 1) // 2, (s0 + 4) // 8),
        (s0 % 1, as_expr(0)),
        ((8 * s0) % 4, as_expr(0)),
        ((s0 * s1) % s1, as_expr(0)),
        ((d0 * s1 + d1) % s1, d1 % s1),
        ((s0 % 8) % 4, s0 % 4),
        ((s0 % 8) // 4, (s0 // 4) % 2),
        (4 * (s0 // 4) + s0 % 4, s0),
        (s1 * (s0 // s1) + s0 % s1, s0),
        (3 * s1 * (s0 // s1) + 3 * (s0 % s1) + 5, 3 * s0 + 5),
        ((s0 + 1) * (d0 // (s0 + 1)) + d0 % (s0 + 1), d0),
        (s0 // -2, (-s0) // 2),
        (maximum(s0, maximum(s1, s0)), maximum(s1, s0)),
        (maximum(s0, s0 + 2, s1), maximum(s0 + 2, s1)),
        (minimum(s0, 3, 5), minimum(3, s0)),
        (ceildiv(s0, 16), (s0 + 15) // 16),
        (product([s0, 2, s1]), 2 * s0 * s1),
        (as_expr(7) // 2 + as_expr(-7) % 4, as_expr(4)),
    ],
)
def test_equal_by_form(expr: Expr, expected: Expr) -> None:
    assert expr == expected
    assert hash(expr) == hash(expected)
    assert str(expr) == str(expected)


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (as_expr(0), "0"),
        (1 - s0, "1 - s0"),
        (-s0, "-s0"),
        (s1 + s0 * 4 - 1, "4*s0 + s1 - 1"),
        (-(s0 // 4), "-(s0 // 4)"),
        (4 * (s0 // 4), "4*(s0 // 4)"),
        ((s0 // 4) % 8, "(s0 // 4) % 8"),
        ((s0 * s1) // (4 * s2), "s0*s1 // (4*s2)"),
        (s0 // (s1 + 1), "s0 // (s1 + 1)"),
        ((s0 % 4) * (s1 % 8), "(s0 % 4)*(s1 % 8)"),
        (s0 - s1 % 4, "s0 - s1 % 4"),
        (maximum(s0 % 4, 2), "max(2, s0 % 4)"),
        (Expr.symbol("s10") + Expr.symbol("s2"), "s2 + s10"),
        ((s0 + 1) % 4, "(s0 + 1) % 4"),
    ],
)
def test_text(expr: Expr, text: str) -> None:
    assert expr.python() == str(expr) == text


def test_terms_show_mod_and_atoms_match() -> None:
    assert (3 * (s0 % s1) + 2).terms == ((3, (Function("mod", (s0, s1)),)), (2, ()))
    match (s0 // 4).terms:
        case ((1, (Function("floordiv", (left, right)),)),):
            assert (left, right) == (s0, 4)
        case other:
            pytest.fail(str(other))
    assert s0.terms == ((1, (Symbol("s0"),)),)


def test_queries() -> None:
    expr = s0 * s1 * 4 + s0 // 8 - d0 + 3
    assert expr.symbols == {"s0", "s1", "d0"}
    assert expr.as_int() is None
    assert (expr - expr).as_int() == 0
    assert expr.coefficient("s1") == 4 * s0
    assert expr.coefficient("d0") == -1
    assert expr.coefficient("s2") == 0
    assert expr.coefficient("s0") is None
    assert (s0 * s0).coefficient("s0") is None
    assert expr.evaluate({"s0": 17, "s1": 2, "d0": 1}) == 17 * 2 * 4 + 2 - 1 + 3
    assert (s0 * s1 + s0).exact_quotient(s0) == s1 + 1
    assert (s0 * s1 + 1).exact_quotient(s0) is None


def test_substitute_is_simultaneous_and_simplifies() -> None:
    assert (s0 - 2 * s1).substitute({"s0": s1, "s1": s0}) == s1 - 2 * s0
    assert ((s0 + d0) // s1).substitute({"s0": 4 * s1 * d1, "d0": 0}) == 4 * d1
    assert maximum(s0, s1).substitute({"s0": s1 + 1}) == s1 + 1


def test_constants_equal_ints() -> None:
    assert as_expr(3) == 3
    assert s0 - s0 + 3 == 3
    assert s0 != 3
    assert {as_expr(3), 3} == {3}


def test_copies_are_equal() -> None:
    expr = maximum(s0 % 4, s1 // s0) * d0
    assert pickle.loads(pickle.dumps(expr)) == expr
    assert copy.deepcopy(expr) == expr


def test_errors() -> None:
    with pytest.raises(ZeroDivisionError):
        s0 // 0
    with pytest.raises(ZeroDivisionError):
        s0 % (s1 - s1)
    with pytest.raises(TypeError):
        as_expr(1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        maximum()
    with pytest.raises(KeyError):
        s0.evaluate({})


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(trees(NAMES), st.lists(st.tuples(*[st.integers(-12, 12)] * 3), min_size=4, max_size=4))
def test_value_is_kept(tree: Tree, rows: list[tuple[int, ...]]) -> None:
    try:
        expr = build(tree)
    except ZeroDivisionError:
        assume(False)
    source = compile(expr.python(), "expr", "eval")
    swapped = expr.substitute({"s0": s1, "s1": s0})
    for row in rows:
        values = dict(zip(NAMES, row, strict=True))
        try:
            expected = compute(tree, values)
        except ZeroDivisionError:
            continue
        assert expr.evaluate(values) == expected
        assert eval(source, {"max": max, "min": min}, values) == expected
        assert swapped.evaluate(values | {"s0": values["s1"], "s1": values["s0"]}) == expected


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(trees(NAMES, 5), trees(NAMES, 5), trees(NAMES, 5))
def test_ring_laws_hold_by_form(left: Tree, middle: Tree, right: Tree) -> None:
    try:
        a, b, c = build(left), build(middle), build(right)
    except ZeroDivisionError:
        assume(False)
    assert (a + b) - b == a
    assert a * b == b * a
    assert a * (b + c) == a * b + a * c
    if b != 0:
        assert b * (a // b) + a % b == a
