"""Branch and bound for a point at which conditions hold: branches where isl's point violates an "or" or a product.

A point that satisfies the rows may violate an "or" or a product. Then the set is split so that no part contains the
point: one part for each alternative; or, for m = x*y violated at x = v, the parts x <= v - 1, x == v (where the product
is linear) and x >= v + 1, with tighter envelopes each. That is spatial branch and bound (see A. H. Land and A. G. Doig,
1960), and complete if the factors have finitely many values, given the budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from symshape.prover.numbers.condition import Condition
from symshape.prover.numbers.decided import decided, facts_from
from symshape.prover.numbers.evaluate import holds_everywhere
from symshape.prover.numbers.expr import Expr
from symshape.prover.solver.encode import Clause, Problem, Row, is_linear
from symshape.prover.solver.envelopes import envelopes, row_products
from symshape.prover.solver.presburger import Budget, OutOfBudget, Presburger
from symshape.prover.solver.propagate import Ranges, propagate

Point = dict[str, int]
_RAW_OPERATIONS: Final = 4096
_RAW_SETS: Final = 12


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a search: "sat" with a point at which all conditions were evaluated and hold; "unsat"; or
    "unknown"."""

    kind: Literal["sat", "unsat", "unknown"]
    point: Point | None = None


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the search space: rows in addition to the problem's, clauses not yet decided, ranges."""

    rows: tuple[Row, ...]
    clauses: tuple[Clause, ...]
    ranges: Ranges


def solve(conditions: Sequence[Condition], presburger: Presburger, budget: Budget) -> Outcome:
    """Whether the conjunction of the conditions is satisfiable. Divisors in them are assumed to be nonzero."""
    if any(condition.kind == "false" for condition in conditions):
        return Outcome("unsat")
    linear = all(_is_linear(condition) for condition in conditions)
    first = budget if linear else Budget(min(budget.operations, _RAW_OPERATIONS), min(budget.sets, _RAW_SETS))
    outcome = _Search(conditions, conditions, presburger, first, _same).run()
    has_equations = any(condition.kind == "eq" for condition in conditions)
    if outcome.kind != "unknown" or budget.is_spent or not (has_equations or not linear):
        return outcome
    return _solve_normalised(conditions, presburger, budget)


def _solve_normalised(conditions: Sequence[Condition], presburger: Presburger, budget: Budget) -> Outcome:
    """``solve`` after substituting equalities and cancelling products: fewer variables."""
    facts = facts_from(conditions)
    normal = [condition.map_exprs(facts.normal) for condition in conditions]
    return _Search(conditions, normal, presburger, budget, facts.normal).run()


def impossible(facts: Sequence[Condition], goal: Condition, presburger: Presburger, budget: Budget) -> bool:
    """Whether the goal is proven to contradict the facts; False if not decided."""
    if budget.is_spent:
        return False
    outcome = solve([*facts, goal], presburger, budget)
    return outcome.kind == "unsat" or (outcome.kind == "unknown" and decided(facts_from(facts), goal) is False)


def _is_linear(condition: Condition) -> bool:
    return is_linear(condition.expr) and all(map(_is_linear, condition.operands))


def _same(expr: Expr) -> Expr:
    return expr


class _Search:
    """One depth-first search. `normal` are the conditions to encode; `restore` maps an expression to their symbols."""

    def __init__(
        self,
        conditions: Sequence[Condition],
        normal: Iterable[Condition],
        presburger: Presburger,
        budget: Budget,
        restore: Callable[[Expr], Expr],
    ) -> None:
        self._conditions, self._presburger, self._budget = conditions, presburger, budget
        self._problem = Problem()
        self._problem.add(normal)
        names = sorted(frozenset[str]().union(*(condition.symbols for condition in conditions)))
        self._restored = {name: restore(Expr.symbol(name)) for name in names}

    def run(self) -> Outcome:
        size = self._problem.size
        ranges = Ranges([None] * size, [None] * size)
        parts = [_Part((), tuple(self._problem.clauses), ranges)]
        try:
            while parts:
                part = parts.pop()
                point = self._point_of(part)
                if point is None:
                    continue
                named = self._named(point)
                if named is not None and holds_everywhere(self._conditions, named):
                    return Outcome("sat", named)
                children = self._split(part, point)
                if children is None:  # a point of the encoding at which some divisor is 0: no case of ours
                    return Outcome("unknown")
                parts += children
        except OutOfBudget:
            return Outcome("unknown")
        return Outcome("unsat")

    def _point_of(self, part: _Part) -> list[int] | None:
        problem = self._problem
        rows = [*problem.rows, *part.rows]
        if not propagate(rows, problem.products, part.ranges):
            return None
        rows += envelopes(problem.products, part.ranges)
        rows += row_products([*problem.rows, *part.rows], problem.products, part.ranges)
        rows += _range_rows(part.ranges, problem.products)
        return self._presburger.point(rows, problem.size, self._budget)

    def _named(self, point: list[int]) -> Point | None:
        """The values of all symbols; symbols that no row mentions (a fact made them redundant) are 1."""
        values = {symbol: 1 for expr in self._restored.values() for symbol in expr.symbols}
        values.update((name, point[variable]) for name, variable in self._problem.symbols.items())
        try:
            return {name: expr.evaluate(values) for name, expr in self._restored.items()}
        except ZeroDivisionError:
            return None

    def _split(self, part: _Part, point: list[int]) -> list[_Part] | None:
        """Parts whose union has all solutions of the part, and not the point. The last part is searched first."""
        for index, clause in enumerate(part.clauses):
            if any(alternative.holds(point) for alternative in clause):
                continue
            others = part.clauses[:index] + part.clauses[index + 1 :]
            return [
                _Part(part.rows + alternative.rows, others + alternative.clauses, part.ranges.copy())
                for alternative in reversed(clause)
            ]
        broken = [
            (left, right)
            for (left, right), result in self._problem.products.items()
            if point[result] != point[left] * point[right]
        ]
        if not broken:
            return None
        variable = min((v for pair in broken for v in pair), key=lambda v: _branch_key(part.ranges, v))
        return [part for part in self._halves(part, variable, point[variable]) if not part.ranges.is_empty()]

    def _halves(self, part: _Part, variable: int, value: int) -> list[_Part]:
        below, above, at = part.ranges.copy(), part.ranges.copy(), part.ranges.copy()
        below.lower_high(variable, value - 1)
        above.raise_low(variable, value + 1)
        at.raise_low(variable, value)
        at.lower_high(variable, value)
        return [_Part(part.rows, part.clauses, ranges) for ranges in (below, above, at)]


def _branch_key(ranges: Ranges, variable: int) -> tuple[bool, int, int]:
    """Variables with few values first."""
    width = ranges.width(variable)
    return width is None, width or 0, variable


def _range_rows(ranges: Ranges, products: Mapping[tuple[int, int], int]) -> list[Row]:
    """The ranges of factors of products as rows: branches narrow ranges, which the problem's rows do not show."""
    result = []
    for variable in sorted({v for pair, product in products.items() for v in (*pair, product)}):
        low, high = ranges.low[variable], ranges.high[variable]
        if low is not None:
            result.append(Row(((variable, 1),), -low))
        if high is not None:
            result.append(Row(((variable, -1),), high))
    return result
