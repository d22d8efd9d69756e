"""Generates the guard stub: Python source that binds symbols and checks constraints.

All constraints are one boolean expression over local names, the fastest form in CPython. Which of them failed is found
afterwards, on the failing path only (``symshape.runtime.checks.fail``).

- A subexpression that occurs more than once is computed once, where it is first needed (``:=``).
- Cheap checks that are likely to fail come first: the best order for independent predicates of known cost and
  selectivity (Hellerstein and Stonebraker, "Predicate migration", 1993). A check that divides by a symbol comes after
  all others, which may exclude zero.
- Conditions on floats come last. A float function that is undefined for the sizes (the root of a negative number)
  raises an error, which is caught: such a check fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from symshape.artifact.constraint_checks import CheckText
from symshape.prover.numbers.condition import TRUE, Condition
from symshape.prover.numbers.expr import Atom, Symbol, Term

# Nested tuples: equal subexpressions are equal tuples. ("int", value), ("symbol", name), (kind, *operands) for mul,
# floordiv, mod, max and min, ("sum", for each operand whether it is subtracted, *operands).
Node = tuple[Any, ...]

_OPERATORS = {"floordiv": "//", "mod": "%"}
# Costs in CPython, in units of an addition of small integers (about 15 ns).
_COST = {"sum": 1.0, "mul": 1.5, "floordiv": 2.0, "mod": 2.0, "max": 6.0, "min": 6.0}
# How likely a check is to fail if nothing is known: an equality of sizes says much, a lower bound of 2 little.
_SELECTIVITY = {"eq": 0.9, "ge": 0.2, "ne": 0.05, "and": 0.5, "or": 0.2, "false": 1.0, "true": 0.01}


@dataclass(frozen=True)
class Constraint:
    """A condition that must hold, the message if it fails, and the user's ``file:line``."""

    condition: Condition
    message: str = ""
    location: str = ""


def check_texts(constraints: Sequence[Constraint], sources: dict[str, str]) -> tuple[CheckText, ...]:
    """The constraints as the error needs them; ``sources``: where each symbol comes from."""
    return tuple(
        CheckText(
            c.condition.python(),
            c.message,
            c.location,
            tuple((s, sources.get(s, "")) for s in sorted(c.condition.symbols)),
        )
        for c in constraints
    )


def check_lines(constraints: Sequence[Constraint], failure: str) -> list[str]:
    """Lines that run ``failure`` unless all hold; ``{values}`` in it becomes a dict of the symbols' values."""
    conditions = [c.condition for c in constraints if c.condition != TRUE]
    if not conditions:
        return []
    symbols = sorted(frozenset().union(*(c.symbols for c in conditions)))
    call = failure.format(values="{" + ", ".join(f"{s!r}: {s}" for s in symbols) + "}")
    parts = joint_texts(conditions)
    if len(parts) == 1:
        return [f"if not ({parts[0]}): {call}"]
    return ["if not (", *(f"    {'and ' if i else ''}{part}" for i, part in enumerate(parts)), f"): {call}"]


def joint_texts(conditions: Sequence[Condition]) -> list[str]:
    """Python texts whose conjunction, evaluated in this order, is that of the conditions."""
    ordered = in_order(conditions)
    printer = _Printer(ordered)
    return [printer.condition(condition, whole=len(ordered) == 1) for condition in ordered]


def in_order(conditions: Sequence[Condition]) -> list[Condition]:
    """The most likely rejection for the least work first; then divisions by symbols, then conditions on floats, both in
    the given order."""
    flat = [part for c in conditions for part in (c.operands if c.kind == "and" else (c,))]
    distinct = list(dict.fromkeys(part for part in flat if part != TRUE))
    whole = [part for part in distinct if not part.has_reals]
    plain = [part for part in whole if not _divides_by_symbol(part)]
    divisions = [part for part in whole if _divides_by_symbol(part)]
    return [*sorted(plain, key=_rank), *divisions, *(part for part in distinct if part.has_reals)]


def _rank(condition: Condition) -> float:
    return _condition_cost(condition) / _SELECTIVITY[condition.kind]


def _condition_cost(condition: Condition) -> float:
    if condition.operands:
        return sum(map(_condition_cost, condition.operands))
    return 1.0 + sum(_node_cost(side) for side in _sides(condition))


def _node_cost(node: Node) -> float:
    children = _children(node)
    own = _COST[node[0]] * max(len(children) - 1, 1) if children else 0.0
    return own + sum(map(_node_cost, children))


def _divides_by_symbol(condition: Condition) -> bool:
    def in_node(node: Node) -> bool:
        children = _children(node)
        divides = node[0] in _OPERATORS and children[1][0] != "int"
        return divides or any(map(in_node, children))

    if condition.operands:
        return any(map(_divides_by_symbol, condition.operands))
    return any(map(in_node, _sides(condition)))


def _sides(condition: Condition) -> tuple[Node, ...]:
    """Left and right of a comparison, without negative terms where possible; none for a decided condition."""
    if condition.as_bool() is not None:
        return ()
    terms = condition.expr.terms
    left = [term for term in terms if term[0] > 0]
    right = [(-coefficient, atoms) for coefficient, atoms in terms if coefficient < 0]
    return _of_terms(left), _of_terms(right)


def _of_terms(terms: Sequence[Term]) -> Node:
    if not terms:
        return "int", 0
    if len(terms) == 1:
        return _of_term(terms[0])
    return "sum", tuple(c < 0 for c, _ in terms), *(_of_term((abs(c), atoms)) for c, atoms in terms)


def _of_term(term: Term) -> Node:
    coefficient, atoms = term
    if not atoms:
        return "int", coefficient
    factors = tuple(map(_of_atom, atoms))
    product: Node = factors[0] if len(factors) == 1 else ("mul", *factors)
    return product if coefficient == 1 else ("mul", ("int", coefficient), product)


def _of_atom(atom: Atom) -> Node:
    if isinstance(atom, Symbol):
        return "symbol", atom.name
    return atom.kind, *(_of_terms(arg.terms) for arg in atom.args)


def _children(node: Node) -> tuple[Node, ...]:
    if node[0] in ("int", "symbol"):
        return ()
    return node[2:] if node[0] == "sum" else node[1:]


class _Printer:
    """Prints conditions in the order in which they are evaluated; knows which names are assigned by then."""

    def __init__(self, conditions: Sequence[Condition]) -> None:
        self.uses: Counter[Node] = Counter()  # how many places refer to a node; its own parts are counted once
        self.names: dict[Node, str] = {}
        self.assigned: set[Node] = set()
        for condition in conditions:
            self._count_condition(condition)

    def _count_condition(self, condition: Condition) -> None:
        for operand in condition.operands:
            self._count_condition(operand)
        for side in () if condition.operands or condition.real else _sides(condition):
            self._count(side)

    def _count(self, node: Node) -> None:
        self.uses[node] += 1
        if self.uses[node] == 1:
            for child in _children(node):
                self._count(child)

    def condition(self, condition: Condition, *, whole: bool = False) -> str:
        """The text; afterwards ``assigned`` are the names that are certain to be assigned if it held."""
        if condition.as_bool() is not None:
            return condition.python()
        if condition.real is not None:
            return f"real(lambda: {condition.python()})" if whole else f"(real(lambda: {condition.python()}))"
        if not condition.operands:
            sides, operator = _sides(condition), {"eq": "==", "ne": "!=", "ge": ">="}[condition.kind]
            if sides[0][0] == "int":  # s0 <= 64, not 64 >= s0
                sides, operator = sides[::-1], operator.replace(">", "<")
            left, right = map(self.node, sides)
            return f"{left} {operator} {right}"
        parts, certain = [], self.assigned
        for i, operand in enumerate(condition.operands):
            parts.append(self.condition(operand))
            if i == 0:
                certain = set(self.assigned)
        self.assigned = certain  # later operands may not have run
        text = f" {condition.kind} ".join(parts)
        return text if whole else f"({text})"

    def node(self, node: Node, binding: int = 0) -> str:
        """``binding``: 0 in a comparison, 1 as a term, 2 as a factor, 3 as a right operand of // and %."""
        if node in self.assigned:
            return self.names[node]
        if not _children(node) or self.uses[node] < 2:
            return self._plain(node, binding)
        text = self._plain(node, 0)
        name = self.names.setdefault(node, f"_{len(self.names)}")
        self.assigned.add(node)
        return f"({name} := {text})"

    def _plain(self, node: Node, binding: int) -> str:
        kind = node[0]
        if kind in ("int", "symbol"):
            return str(node[1])
        if kind in ("max", "min"):
            return f"{kind}({', '.join(self.node(child) for child in _children(node))})"
        if kind == "sum":
            text, own = self._sum(node), 1
        elif kind == "mul":
            text, own = "*".join(self.node(child, 2) for child in _children(node)), 2
        else:
            left, right = _children(node)
            text, own = f"{self.node(left, 2)} {_OPERATORS[kind]} {self.node(right, 3)}", 1  # no bare factor
            own = 1 if binding > 1 else 3
        return text if own >= binding else f"({text})"

    def _sum(self, node: Node) -> str:
        pieces: list[str] = []
        for negative, child in zip(node[1], _children(node)):
            sign = " - " if negative else " + "
            pieces.append((sign if pieces else sign.strip(" +")) + self.node(child, 2))
        return "".join(pieces)
