"""The prover as the constraint passes use it: facts of a function, and queries about its constraints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from symshape.dialects.accessors import reading_of, symbol_name
from symshape.dialects.function_facts import row_of
from symshape.errors import ContradictionError
from symshape.prover.numbers.atoms import Function
from symshape.prover.numbers.condition import Condition, negation
from symshape.prover.numbers.decided import learn
from symshape.prover.numbers.expr import Expr, has_functions
from symshape.prover.numbers.facts import Facts, Row
from symshape.prover.solver.condition_store import ConditionStore
from symshape.prover.solver.presburger import Limits

Answer = Literal["proven", "refuted", "unknown"]
_MOST_ALTERNATIVES = 4  # of an "or"; the proof of each needs a copy of the facts
# The constraint store's budget for one query (some milliseconds), and the most facts that are passed to it.
_LIMITS = Limits(operations=1024, sets=16)
_MOST_FACTS = 64


class Knowledge:
    """Facts about symbols: their ranges and the conditions assumed so far. Sound: unknown is never taken for an answer.

    ``proves`` uses the fast engine (``Facts``) alone, like lowering and code generation. ``answer`` and ``follows``
    also query the constraint store (isl): for conditions that would otherwise be checked at run time.
    """

    def __init__(self, rows: Mapping[str, Row]) -> None:
        self._rows = dict(rows)
        self._assumed: list[Condition] = []
        self._store: _Store | None = None
        self._facts = Facts(rows)
        self._equalities = any(row.divisor > 1 or row.min == row.max is not None for row in rows.values())
        self._known: set[Condition] = set()  # what facts cannot hold (!=, or) is at least found again

    def copy(self) -> Knowledge:
        """An independent copy."""
        child = Knowledge({})
        child._rows, child._assumed = self._rows, list(self._assumed)
        child._facts, child._known = self._facts.copy(), set(self._known)
        child._equalities = self._equalities
        return child

    def assume(self, condition: Condition) -> None:
        """The condition holds from now on."""
        self._assumed.append(condition)
        for part in parts_of(condition):
            self._equalities |= part.kind != "ne"  # bounds that meet are one as well
            self._known |= {part, self.simplify(part)}
            learn(self._facts, part)

    def simplify(self, condition: Condition) -> Condition:
        """An equivalent condition under the facts, with every expression in canonical form."""
        try:
            return condition.map_exprs(self._facts.simplify)
        except ZeroDivisionError:  # a divisor is known to be 0: the condition has no value
            return condition

    def simplify_expr(self, expr: Expr) -> Expr:
        """The canonical form of an expression under the facts."""
        if not self._equalities and not has_functions(expr):
            return expr  # nothing can stand for a symbol in it, and there is nothing else to simplify
        return self._facts.simplify(expr)

    def answer(self, condition: Condition) -> Answer:
        """Whether it always or never holds; "unknown" for both "sometimes" and "cannot tell"."""
        if self.proves(condition):
            return "proven"
        if self.proves(negation(condition)):
            return "refuted"
        if len(self._assumed) > _MOST_FACTS:
            return "unknown"
        if self._store is None:
            self._store = _Store(self._rows)
        return self._store.answer(condition, self._assumed)

    def follows(self, condition: Condition) -> bool:
        """Whether the condition is proven, by either engine."""
        return self.proves(condition) or self.answer(condition) == "proven"

    def proves(self, condition: Condition) -> bool:
        """Whether it is proven to hold."""
        if condition in self._known:
            return True
        condition = self.simplify(condition)
        match condition.kind:
            case "true" | "false":
                return condition.kind == "true"
            case "eq":
                return condition in self._known or self._facts.equal(condition.expr, 0)
            case "ge":
                return condition in self._known or self._facts.nonnegative(condition.expr)
            case "ne":
                return condition in self._known or self._is_never_zero(condition.expr)
            case "and":
                return all(self.proves(part) for part in condition.operands)
            case "or":
                return condition in self._known or self._proves_any(condition.operands)
            case "real":
                return condition in self._known

    def never_zero(self, expr: Expr) -> bool:
        """Whether the expression is proven to have no zero: it is fit to be a divisor."""
        return self._is_never_zero(self._facts.simplify(expr))

    def _is_never_zero(self, expr: Expr) -> bool:
        return self._facts.nonnegative(expr - 1) or self._facts.nonnegative(-expr - 1)

    def _proves_any(self, alternatives: tuple[Condition, ...]) -> bool:
        """Whether one of the conditions is proven, or the last one under the negation of the others."""
        if any(self.proves(part) for part in alternatives):
            return True
        if len(alternatives) > _MOST_ALTERNATIVES:
            return False
        otherwise = self.copy()
        for part in alternatives[:-1]:
            otherwise.assume(negation(part))
        return otherwise.proves(alternatives[-1])


class _Store:
    """A constraint store to which facts and symbols are added when a query first needs them."""

    def __init__(self, rows: Mapping[str, Row]) -> None:
        self._rows, self._told, self._names = rows, 0, set[str]()
        self._store = ConditionStore(_LIMITS)
        self._contradictory = False

    def answer(self, condition: Condition, facts: Sequence[Condition]) -> Answer:
        try:
            for fact in facts[self._told :]:
                self._name(fact)
                self._store.assume(fact)
            self._told = len(facts)
            self._name(condition)
        except ContradictionError:  # no size is possible: whatever is said of them is as good as anything else
            self._contradictory = True
        if self._contradictory:
            return "unknown"
        status = self._store.prove(condition).status
        return status if status in ("proven", "refuted") else "unknown"

    def _name(self, condition: Condition) -> None:
        for name in sorted(condition.symbols - self._names):
            self._names.add(name)
            self._store.symbol(name, self._rows.get(name, Row(None, None)))


def parts_of(condition: Condition) -> tuple[Condition, ...]:
    """The conjuncts of a condition; none if it is true."""
    if condition.kind == "and":
        return condition.operands
    return () if condition.kind == "true" else (condition,)


def trusted_rows(operations: Iterable[Any]) -> dict[str, Row]:
    """The rows of symbols that hold without a check.

    Of an unbacked symbol only that a size or stride is not negative: the range that its op states comes from checks in
    this very program, and must not prove them.
    """
    rows: dict[str, Row] = {}
    for op in operations:
        if op.name == "symshape.symbol":
            rows[symbol_name(op)] = row_of(op)
        elif op.name == "symshape.unbacked_symbol":
            is_size = reading_of(op)[0] in ("size", "stride")
            rows[symbol_name(op)] = Row(0 if is_size else None, None)
    return rows


def backed_symbols(operations: Iterable[Any]) -> frozenset[str]:
    """The backed symbols."""
    return frozenset(symbol_name(op) for op in operations if op.name == "symshape.symbol")


def divisors_of(condition: Condition) -> set[Expr]:
    """Everything that is divided by in a condition."""
    found: set[Expr] = set()
    todo = [condition]
    while todo:
        part = todo.pop()
        todo += part.operands
        _collect_divisors(part.expr, found)
    return found


def _collect_divisors(expr: Expr, found: set[Expr]) -> None:
    for atom in expr.atoms:
        if isinstance(atom, Function):
            if atom.kind in ("floordiv", "mod") and atom.args[1].as_int() is None:
                found.add(atom.args[1])
            for argument in atom.args:
                _collect_divisors(argument, found)
