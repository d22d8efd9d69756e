"""Parses conditions written as Python source (``Condition.python``), for any solver.

    condition    expr (== | != | >= | <= | > | <) expr, `and`, `or`, True, False
    expr         integers, names, + - *, // and % (Python's floor division and its remainder), max(...), min(...)

``read`` walks the text and calls an ``Algebra``, which builds the solver's own expressions. Other solvers thus get the
text without going through symshape's prover.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, Protocol

from symshape.errors import OptionError

Relation = Literal["==", "!=", ">=", "<=", ">", "<"]
_RELATIONS: Final[dict[type[ast.cmpop], Relation]] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.GtE: ">=",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.Lt: "<",
}


class Algebra(Protocol):
    """Builds a solver's own form of expressions and conditions; one method per operation of the grammar."""

    def number(self, value: int) -> Any: ...

    def symbol(self, name: str) -> Any: ...

    def add(self, left: Any, right: Any) -> Any: ...

    def subtract(self, left: Any, right: Any) -> Any: ...

    def multiply(self, left: Any, right: Any) -> Any: ...

    def floordiv(self, left: Any, right: Any) -> Any: ...

    def mod(self, left: Any, right: Any) -> Any: ...

    def maximum(self, values: Sequence[Any]) -> Any: ...

    def minimum(self, values: Sequence[Any]) -> Any: ...

    def compare(self, relation: Relation, left: Any, right: Any) -> Any: ...

    def truth(self, value: bool) -> Any: ...

    def all_of(self, parts: Sequence[Any]) -> Any: ...

    def any_of(self, parts: Sequence[Any]) -> Any: ...


class Operators:
    """The operations of an `Algebra` for expression classes that overload ``+``, ``-`` and ``*``."""

    def add(self, left: Any, right: Any) -> Any:
        return left + right

    def subtract(self, left: Any, right: Any) -> Any:
        return left - right

    def multiply(self, left: Any, right: Any) -> Any:
        return left * right


def read(text: str, algebra: Algebra) -> Any:
    """The condition in the form that ``algebra`` builds. OptionError if ``text`` is not a condition."""
    return _condition(parsed(text), algebra)


@functools.lru_cache(maxsize=1 << 16)
def parsed(text: str) -> ast.expr:
    """The text as a Python AST. OptionError if it does not parse."""
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise _no_condition(text) from error


def divisors(text: str) -> list[ast.expr]:
    """All divisors in a condition that are not constants. The condition is defined only where none of them is 0."""
    return [node.right for node in _divisions(parsed(text)) if not isinstance(node.right, ast.Constant)]


def read_expression(node: ast.expr, algebra: Algebra) -> Any:
    """An expression (for instance a divisor) in the form that ``algebra`` builds."""
    return _expression(node, algebra)


def names_in(text: str) -> set[str]:
    """Names of the symbols in a condition."""
    called = {id(node.func) for node in ast.walk(parsed(text)) if isinstance(node, ast.Call)}
    return {node.id for node in ast.walk(parsed(text)) if isinstance(node, ast.Name) and id(node) not in called}


def has_products(text: str) -> bool:
    """Whether a condition multiplies two sizes, which makes it nonlinear."""
    return any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mult)
        and not (_is_number(node.left) or _is_number(node.right))
        for node in ast.walk(parsed(text))
    )


def functions_in(text: str) -> set[str]:
    """Which of //, %, max and min a condition uses."""
    found = {"//" if isinstance(node.op, ast.FloorDiv) else "%" for node in _divisions(parsed(text))}
    calls = (node for node in ast.walk(parsed(text)) if isinstance(node, ast.Call))
    return found | {node.func.id for node in calls if isinstance(node.func, ast.Name)}


def _divisions(tree: ast.AST) -> Iterator[ast.BinOp]:
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Mod):
            yield node


def _is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp):
        return _is_number(node.operand)
    return isinstance(node, ast.Constant)


def _condition(node: ast.expr, algebra: Algebra) -> Any:
    match node:
        case ast.Constant(value=bool() as value):
            return algebra.truth(value)
        case ast.BoolOp(op=op, values=values):
            parts = [_condition(value, algebra) for value in values]
            return algebra.all_of(parts) if isinstance(op, ast.And) else algebra.any_of(parts)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _RELATIONS:
            return algebra.compare(_RELATIONS[type(op)], _expression(left, algebra), _expression(right, algebra))
    raise _no_condition(ast.unparse(node))


def _expression(node: ast.expr, algebra: Algebra) -> Any:
    match node:
        case ast.Constant(value=int() as value):
            return algebra.number(value)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as value)):
            return algebra.number(-value)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return algebra.multiply(algebra.number(-1), _expression(operand, algebra))
        case ast.Name(id=name):
            return algebra.symbol(name)
        case ast.BinOp(left=left, op=op, right=right):
            return _binary(op, _expression(left, algebra), _expression(right, algebra), algebra)
        case ast.Call(func=ast.Name(id="max" | "min" as name), args=args):
            values = [_expression(arg, algebra) for arg in args]
            return algebra.maximum(values) if name == "max" else algebra.minimum(values)
    raise _no_condition(ast.unparse(node))


def _binary(op: ast.operator, left: Any, right: Any, algebra: Algebra) -> Any:
    match op:
        case ast.Add():
            return algebra.add(left, right)
        case ast.Sub():
            return algebra.subtract(left, right)
        case ast.Mult():
            return algebra.multiply(left, right)
        case ast.FloorDiv():
            return algebra.floordiv(left, right)
        case ast.Mod():
            return algebra.mod(left, right)
    raise _no_condition(type(op).__name__)


def _no_condition(text: str) -> OptionError:
    return OptionError(f"no condition over sizes: {text}", next_step="corpus/README.md has the grammar")
