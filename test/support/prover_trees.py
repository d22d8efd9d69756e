"""Random expression trees with two meanings: built as an Expr, and computed directly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from symshape.prover.numbers.expr import Expr, maximum, minimum

Tree = Any  # an int, a name, or (operator, left, right)

_BUILD: Mapping[str, Callable[[Expr, Expr], Expr]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "max": maximum,
    "min": minimum,
}
_COMPUTE: Mapping[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "max": max,
    "min": min,
}


def trees(names: Sequence[str], max_leaves: int = 8) -> st.SearchStrategy[Tree]:
    """Trees over the names, small constants and all operators."""
    leaf = st.sampled_from(names) | st.integers(-6, 9)
    operators = st.sampled_from(["+", "+", "-", "*", "*", "//", "//", "%", "%", "max", "min"])
    return st.recursive(leaf, lambda child: st.tuples(operators, child, child), max_leaves=max_leaves)


def build(tree: Tree) -> Expr:
    """The Expr; ZeroDivisionError when a divisor is 0 for all values."""
    if isinstance(tree, tuple):
        return _BUILD[tree[0]](build(tree[1]), build(tree[2]))
    return Expr.symbol(tree) if isinstance(tree, str) else Expr.const(tree)


def compute(tree: Tree, values: Mapping[str, int]) -> int:
    """The value; ZeroDivisionError when a divisor is 0."""
    if isinstance(tree, tuple):
        return _COMPUTE[tree[0]](compute(tree[1], values), compute(tree[2], values))
    return values[tree] if isinstance(tree, str) else tree
