"""Random constraint sets in small boxes, with three meanings: for the store, by brute force (numpy), for z3.

A tree is an int, a name, or (operator, tree, ...); the prover's own expressions are only what `build` makes of one.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np

from symshape.prover.numbers import condition as conditions
from symshape.prover.numbers.expr import Expr, ceildiv, maximum, minimum

Tree = Any
LARGEST_COEFFICIENT = 16
MODULI = range(2, 65)
# Values of each symbol in the box at most, by number of symbols: brute force looks at all points.
WIDTHS = {2: 90, 3: 24, 4: 11, 5: 7, 6: 5}

BUILD: Mapping[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "ceil": ceildiv,
    "max": maximum,
    "min": minimum,
    "==": conditions.equals,
    "!=": conditions.differs,
    ">=": conditions.at_least,
    ">": conditions.greater,
    "<=": lambda a, b: conditions.at_least(b, a),
    "<": lambda a, b: conditions.greater(b, a),
    "and": conditions.all_of,
    "or": conditions.any_of,
    "not": conditions.negation,
    "implies": lambda a, b: conditions.any_of(conditions.negation(a), b),
}
COMPUTE: Mapping[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "ceil": lambda a, b: -(-a // b),
    "max": np.maximum,
    "min": np.minimum,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
    "implies": lambda a, b: np.logical_or(np.logical_not(a), b),
}


@dataclass
class ConstraintSet:
    """Facts over symbols in a box (inclusive ends), and questions about them."""

    box: dict[str, tuple[int, int]]
    facts: list[Tree]
    goals: list[Tree]


def evaluate(tree: Tree, table: Mapping[str, Callable[..., Any]], leaf: Callable[[Any], Any]) -> Any:
    """The tree with its operators from the table and its leaves made by `leaf`."""
    if not isinstance(tree, tuple):
        return leaf(tree)
    return table[tree[0]](*(evaluate(child, table, leaf) for child in tree[1:]))


def build(tree: Tree) -> Any:
    """The prover's Expr or Condition."""
    return evaluate(tree, BUILD, lambda leaf: Expr.symbol(leaf) if isinstance(leaf, str) else Expr.const(leaf))


def points_of(box: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    """All points of the box: for each symbol the array of its values."""
    axes = [np.arange(low, high + 1) for low, high in box.values()]
    return dict(zip(box, (grid.ravel() for grid in np.meshgrid(*axes, indexing="ij")), strict=True))


def truth(tree: Tree, points: Mapping[str, Any]) -> Any:
    """Where a condition holds, point by point."""
    count = len(next(iter(points.values())))
    return np.broadcast_to(evaluate(tree, COMPUTE, lambda leaf: points.get(leaf, leaf)), (count,))


def to_z3(tree: Tree, z3: Any) -> Any:
    """The tree for z3; its / and % round as ours where divisors are positive, as all of them are here."""
    table = dict(COMPUTE) | {
        "//": lambda a, b: a / b,
        "ceil": lambda a, b: -(-a / b),
        "max": lambda a, b: z3.If(a >= b, a, b),
        "min": lambda a, b: z3.If(a <= b, a, b),
        "and": z3.And,
        "or": z3.Or,
        "not": z3.Not,
        "implies": z3.Implies,
    }
    return evaluate(tree, table, lambda leaf: z3.Int(leaf) if isinstance(leaf, str) else z3.IntVal(leaf))


# Generation. Facts are made to hold at a hidden point, so that most sets have solutions.


@dataclass
class _Draft:
    rng: random.Random
    values: dict[str, int]
    products: bool
    facts: list[Tree] = field(default_factory=list)
    goals: list[Tree] = field(default_factory=list)

    def value(self, tree: Tree) -> int:
        return int(evaluate(tree, COMPUTE, lambda leaf: self.values.get(leaf, leaf)))

    def coefficient(self) -> int:
        largest = self.rng.choice((2, 4, 8, LARGEST_COEFFICIENT))
        return self.rng.choice((-1, 1)) * self.rng.randint(1, largest)

    def name(self) -> str:
        return self.rng.choice(list(self.values))

    def names(self, count: int) -> list[str]:
        return self.rng.sample(list(self.values), min(count, len(self.values)))

    def sum(self, names: Sequence[str]) -> Tree:
        return reduce(lambda a, b: ("+", a, b), [("*", self.coefficient(), name) for name in names])

    def atom(self) -> Tree:
        rng = self.rng
        if self.products and rng.random() < 0.5:
            kind = rng.choice(("*", "*", "*", "//", "%"))
            return (kind, self.name(), self.name())
        choice = rng.random()
        if choice < 0.6:
            return self.name()
        if choice < 0.9:
            inner = ("+", self.sum(self.names(rng.choice((1, 1, 2)))), rng.randint(-16, 16))
            return (rng.choice(("//", "%", "ceil")), inner, rng.choice(MODULI))
        return (rng.choice(("max", "min")), self.name(), ("+", self.name(), rng.randint(-8, 8)))

    def expression(self) -> Tree:
        terms = [("*", self.coefficient(), self.atom()) for _ in range(self.rng.choice((1, 2, 2, 3)))]
        return reduce(lambda a, b: ("+", a, b), terms)

    def relation(self, *, true: bool) -> Tree:
        """A comparison; one that holds at the hidden point if `true`, else one that comes near."""
        rng, expression = self.rng, self.expression()
        value = self.value(expression)
        kind = rng.choice(("==", "!=", ">=", ">=", "<=", "<", ">", "%", "%"))
        shift = 0 if true and kind in ("==", "%") else rng.choice((0, 0, 1, 2, 5, 20) if true else (0, 0, 0, 1))
        if kind == "%":
            modulus = rng.choice(MODULI)
            return ("==", ("%", expression, modulus), (value + shift) % modulus)
        if kind in ("!=", "<", "<="):
            return (kind, expression, value + max(shift, int(kind != "<=")))
        return (kind, expression, value - max(shift, int(kind == ">")))

    def condition(self, *, true: bool) -> Tree:
        rng = self.rng
        if rng.random() < 0.8:
            return self.relation(true=true)
        first, second = self.relation(true=true), self.relation(true=False)
        match rng.choice(("or", "implies", "and", "not")):
            case "or":
                return ("or", first, second)
            case "implies":
                return ("implies", second, first)
            case "and":
                return ("and", first, self.relation(true=true))
            case _:
                return ("not", ("and", ("not", first), second))

    def box(self) -> dict[str, tuple[int, int]]:
        result = {}
        for name, value in self.values.items():
            below = self.rng.randint(0, WIDTHS[len(self.values)] - 1)
            above = self.rng.randint(0, WIDTHS[len(self.values)] - 1 - below)
            result[name] = (max(value - below, 1) if self.products else value - below, value + above)
        return result


def _order(draft: _Draft) -> None:
    """x <= y + c, y <= z + d: x <= z + c + d."""
    x, y, z = (draft.names(3) * 2)[:3]
    rng, value = draft.rng, draft.values
    first, second = (value[a] - value[b] + rng.randint(0, 3) for a, b in ((x, y), (y, z)))
    draft.facts += [("<=", x, ("+", y, first)), ("<=", y, ("+", z, second))]
    draft.goals.append(("<=", x, ("+", z, first + second + rng.choice((-1, 0, 0, 0, 1)))))


def _sum(draft: _Draft) -> None:
    """Two inequalities, and their sum."""
    rng = draft.rng
    left, right = (draft.sum(draft.names(2)) for _ in range(2))
    low, high = draft.value(left) - rng.randint(0, 6), draft.value(right) - rng.randint(0, 6)
    draft.facts += [(">=", left, low), (">=", right, high)]
    draft.goals.append((">=", ("+", left, right), low + high - rng.choice((-1, 0, 0, 0, 2))))


def _substitution(draft: _Draft) -> None:
    """x == a*y + c, and a remainder or a bound of y: one of x."""
    rng = draft.rng
    x, y = draft.names(2)
    factor, shift, modulus = rng.randint(1, 6), rng.randint(-6, 6), rng.choice(MODULI)
    draft.values[x] = max(factor * draft.values[y] + shift, 1)
    shift = draft.values[x] - factor * draft.values[y]
    rest = draft.values[y] % modulus
    draft.facts += [("==", x, ("+", ("*", factor, y), shift)), ("==", ("%", y, modulus), rest)]
    divisor = rng.choice([d for d in range(2, 65) if (factor * modulus) % d == 0])
    draft.goals.append(("==", ("%", x, divisor), (factor * rest + shift) % divisor))


def _remainders(draft: _Draft) -> None:
    """Remainders of two sums by one number: of their combination."""
    rng, modulus = draft.rng, draft.rng.choice(MODULI)
    x, y = draft.names(2)
    rests = [draft.values[name] % modulus for name in (x, y)]
    draft.facts += [("==", ("%", name, modulus), rest) for name, rest in zip((x, y), rests, strict=True)]
    a, b = draft.coefficient(), draft.coefficient()
    divisor = rng.choice([d for d in range(2, modulus + 1) if modulus % d == 0])
    whole = ("+", ("*", a, x), ("*", b, y))
    draft.goals.append(("==", ("%", whole, divisor), (a * rests[0] + b * rests[1]) % divisor))


def _common_multiple(draft: _Draft) -> None:
    """Remainders of one symbol by two numbers: by a third."""
    rng, x = draft.rng, draft.name()
    first, second = rng.choice(range(2, 17)), rng.choice(range(2, 17))
    for modulus in (first, second):
        draft.facts.append(("==", ("%", x, modulus), draft.values[x] % modulus))
    divisor = rng.choice([d for d in MODULI if (first * second) % d == 0] or [first])
    draft.goals.append(("==", ("%", x, divisor), draft.values[x] % divisor))


def _growing_products(draft: _Draft) -> None:
    """y >= z + c, x >= a: x*y >= x*z + a*c and the like."""
    rng, value = draft.rng, draft.values
    x, y, z = (draft.names(3) * 2)[:3]
    gap, least = value[y] - value[z], max(value[x] - rng.randint(0, 2), 1)
    draft.facts += [(">=", y, ("+", z, gap)), (">=", x, least)]
    bound = gap * least if gap >= 0 else gap * WIDTHS[2]
    draft.goals.append((">=", ("-", ("*", x, y), ("*", x, z)), bound + rng.choice((0, 0, 0, 1))))


def _exact_product(draft: _Draft) -> None:
    """x == y*z (+ r): x // y, x % y, divisibility of x."""
    rng, value = draft.rng, draft.values
    x, y, z = (draft.names(3) * 2)[:3]
    if x in (y, z):
        return _growing_products(draft)
    value[x] = value[y] * value[z]
    draft.facts.append(("==", x, ("*", y, z)))
    number = rng.choice([d for d in (2, 3, 4, 5, 6, 8) if value[y] % d == 0] or [1])
    if number > 1:
        draft.facts.append(("==", ("%", y, number), 0))
    options = [("==", ("//", x, y), z), ("==", ("%", x, y), 0), (">=", x, z), (">=", ("+", x, 1), ("+", y, z))]
    if number > 1:
        options += [("==", ("%", x, number), 0)] * 3
    draft.goals.append(rng.choice(options))


def _cancellation(draft: _Draft) -> None:
    """x*y == x*z: y == z."""
    x, y, z = (draft.names(3) * 2)[:3]
    draft.values[y] = draft.values[z]
    draft.facts.append(("==", ("*", x, y), ("*", x, z)))
    if x not in (y, z):
        draft.goals.append(("==", y, z))


_LINEAR = (_order, _sum, _substitution, _remainders, _common_multiple)
_PRODUCTS = (_growing_products, _exact_product, _cancellation)


def random_set(rng: random.Random, *, products: bool) -> ConstraintSet:
    """One set: facts from one or two patterns that imply something together, others at random, two or more goals."""
    count = rng.randint(2, 6)
    low, high = (1, 12) if products else (-16, 48)
    draft = _Draft(rng, {f"s{i}": rng.randint(low, high) for i in range(count)}, products)
    for _ in range(rng.randint(1, 2)):
        pattern = rng.choice(_PRODUCTS if products and rng.random() < 0.6 else _LINEAR)
        pattern(draft)
    # A later pattern may have changed a value that an earlier one used.
    draft.facts = [fact for fact in draft.facts if evaluate(fact, COMPUTE, lambda leaf: draft.values.get(leaf, leaf))]
    for _ in range(rng.randint(0, 3)):
        draft.facts.append(draft.condition(true=rng.random() < 0.97))
    draft.goals.append(draft.condition(true=rng.random() < 0.3))
    rng.shuffle(draft.facts)
    return ConstraintSet(draft.box(), draft.facts, draft.goals)


def random_sets(seed: int, count: int, product_share: float = 0.4) -> Iterator[ConstraintSet]:
    """The same sets for the same seed."""
    for number in range(count):
        rng = random.Random(f"{seed}/{number}")
        yield random_set(rng, products=rng.random() < product_share)


def guard_set(rng: random.Random, symbols: int = 64, count: int = 1000) -> tuple[dict[str, int], list[Tree]]:
    """(values, constraints that hold at them): equalities in chains, remainders, bounds, sums, "or", products."""
    names = [f"s{i}" for i in range(symbols)]
    values: dict[str, int] = {}
    links: list[Tree] = []
    for i, name in enumerate(names):
        if i < symbols // 3:
            values[name] = rng.choice((1, 2, 4, 8, 16)) * rng.randint(2, 64)
            continue
        other, factor, shift = rng.choice(names[:i]), rng.choice((1, 1, 2, 3, 4)), rng.choice((0, 0, 0, 1, -1, 7))
        values[name] = max(factor * values[other] + shift, 2)
        links.append(("==", name, ("+", ("*", factor, other), values[name] - factor * values[other])))
    kinds = {_linked: 25, _divisible: 15, _bounded: 25, _compared: 20, _apart: 5, _either: 5, _multiplied: 5}
    chosen = rng.choices(list(kinds), list(kinds.values()), k=count)
    return values, [kind(rng, values, links, rng.sample(names, 3)) for kind in chosen]


Links = Sequence[Tree]
Values = Mapping[str, int]


def _linked(rng: random.Random, values: Values, links: Links, names: Sequence[str]) -> Tree:
    return rng.choice(links)


def _divisible(rng: random.Random, values: Values, links: Links, names: Sequence[str]) -> Tree:
    divisor = rng.choice([d for d in MODULI if values[names[0]] % d == 0] or [1])
    return ("==", ("%", names[0], divisor), 0)


def _bounded(rng: random.Random, values: Values, links: Links, names: Sequence[str]) -> Tree:
    value = values[names[0]]
    return (
        (">=", names[0], rng.randint(0, value))
        if rng.random() < 0.7
        else ("<=", names[0], value + rng.randint(0, 4000))
    )


def _compared(rng: random.Random, values: Values, links: Links, names: Sequence[str]) -> Tree:
    a, b, c = names
    whole = ("-", ("*", rng.randint(1, 8), a), ("*", rng.randint(1, 8), b))
    if rng.random() < 0.5:
        whole = ("+", whole, ("*", rng.randint(-8, 8), c))
    value = evaluate(whole, COMPUTE, lambda leaf: values.get(leaf, leaf))
    return (">=", whole, int(value) - rng.randint(0, 200))


def _apart(rng: random.Random, values: Values, links: Links, names: Sequence[str]) -> Tree:
    modulus = rng.choice(MODULI)
    return ("!=", ("%", names[0], modulus), (values[names[0]] + rng.randint(1, modulus - 1)) % modulus)


def _either(rng: random.Random, values: Values, links: Links, names: Sequence[str]) -> Tree:
    a, b, _ = names
    return ("or", (">=", a, rng.randint(1, 2 * values[a])), (">=", b, rng.randint(0, values[b])))


def _multiplied(rng: random.Random, values: Values, links: Links, names: Sequence[str]) -> Tree:
    a, b, _ = names
    return (">=", ("*", a, b), rng.randint(0, values[a] * values[b]))
