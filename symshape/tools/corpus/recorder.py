"""Records the questions that the prover is asked during compilation.

A question is an outermost call of a method of ``Facts`` (bounds and divisibility), of ``decided``, or of a
``ConditionStore``. Calls that return a value rather than yes or no (``simplify``, ``bounds``) are not questions
themselves; the nonnegativity proofs that they ask for are. Calls that the prover makes while it answers a question are
not recorded. Questions that normalising the condition already decides are only counted.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from symshape.analysis.kernel_facts import forget_facts
from symshape.prover.numbers import decided as decided_module
from symshape.prover.numbers.bounds import forget_shared_bounds
from symshape.prover.numbers.condition import Condition, at_least, equals
from symshape.prover.numbers.expr import Expr, as_expr
from symshape.prover.numbers.facts import Facts, Row
from symshape.prover.numbers.sympy_bridge import UnsupportedExpr, condition_from_sympy
from symshape.prover.solver.condition_store import ConditionStore
from symshape.tools.corpus.questions import Corpus, Question

_LOG = "_corpus_log"
_PART = re.compile(r"(.+)/(\d+)")


class _Log:
    """One assumption and a link to the previous ones: a persistent list, which copies of ``Facts`` share."""

    __slots__ = ("condition", "number", "parent")

    def __init__(self, parent: _Log | None, condition: Condition) -> None:
        self.parent, self.condition = parent, condition
        self.number: int | None = None  # index of this set of facts in the table, once a question needed it

    def conditions(self) -> list[Condition]:
        """All assumptions, oldest first."""
        found, log = [], self
        while log is not None:
            found.append(log.condition)
            log = log.parent  # type: ignore[assignment]
        return found[::-1]


class Recorder:
    """Collects tables of conditions, sets of facts and questions while `in_force` is entered."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._lock = threading.RLock()
        self._depth = threading.local()
        self._conditions: dict[str, int] = {}
        self._numbers: dict[Condition, int] = {}
        self._facts: dict[tuple[int, ...], int] = {}
        self._tuples: dict[int, tuple[Any, int]] = {}  # by id; the facts are kept alive so that ids stay unique
        self._questions: dict[tuple[int, int], tuple[Counter[str], str | None]] = {}
        self._names: dict[str, str] = {}
        self._traced: dict[Any, Condition | None] = {}  # sympy conditions, translated
        self._empty = _Log(None, Condition("true"))

    # The tables.

    def corpus(self, about: Mapping[str, Any]) -> Corpus:
        """Everything recorded so far."""
        questions = [Question(f, c, dict(asked), answer) for (f, c), (asked, answer) in self._questions.items()]
        counted = {"raw": sum(sum(q.asked.values()) for q in questions), "distinct": len(questions), **self.counts}
        questions.sort(key=lambda question: question.facts)
        return Corpus({**about, "counts": counted}, tuple(self._conditions), tuple(self._facts), tuple(questions))

    def ask(self, facts: int, condition: Condition, asker: str, answer: str | None) -> None:
        """Records that ``asker`` asked whether ``facts`` (their index) imply a condition, and the answer it got."""
        with self._lock:
            if condition.as_bool() is not None:
                self.counts[f"decided by form: {asker}"] += 1
                return
            if condition.has_reals:
                self.counts[f"over floats: {asker}"] += 1
                return
            key = facts, self.number(condition)
            asked, known = self._questions.get(key, (Counter(), None))
            asked[asker] += 1
            self._questions[key] = asked, known if known not in (None, "unknown") else answer or known

    def number(self, condition: Condition) -> int:
        """The index of a condition in the table; added if new."""
        if condition not in self._numbers:
            text = self._named(condition).python()
            self._numbers[condition] = self._conditions.setdefault(text, len(self._conditions))
        return self._numbers[condition]

    def facts(self, conditions: Iterable[Condition]) -> int:
        """The index of a set of facts in the table; added if new. Conditions over floats are dropped, since nothing
        about sizes follows from them."""
        with self._lock:
            wanted = [c for c in conditions if c.kind != "true" and not c.has_reals]
            numbers = {self.number(condition) for condition in wanted}
            numbers |= {self.number(part) for part in self._parts(wanted)}
            return self._facts.setdefault(tuple(sorted(numbers)), len(self._facts))

    def _parts(self, conditions: Sequence[Condition]) -> Iterator[Condition]:
        """Definitions of the prover's names for fractions of symbols: "s0/8" times 8 equals s0."""
        for name in sorted({name for condition in conditions for name in condition.symbols}):
            found = _PART.fullmatch(name)
            if found is not None:
                yield equals(int(found[2]) * Expr.symbol(name), Expr.symbol(found[1]))

    def _named(self, condition: Condition) -> Condition:
        """The condition with symbols renamed to Python identifiers."""
        strange = {name for name in condition.symbols if not name.isidentifier()}
        for name in sorted(strange - self._names.keys()):
            plain = re.sub(r"\W", "_", name)
            taken = {*self._names.values()}
            self._names[name] = next(
                one for one in (plain, *(f"{plain}_{i}" for i in range(10**6))) if one not in taken
            )
        return (
            condition.substitute({name: Expr.symbol(self._names[name]) for name in strange}) if strange else condition
        )

    # The prover.

    @contextlib.contextmanager
    def in_force(self) -> Iterator[None]:
        """While entered, questions of all threads are recorded. ``Facts`` created earlier cannot be used inside."""
        forget_facts()
        forget_shared_bounds()
        changes: list[tuple[Any, str, Any]] = []

        def put(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
            changes.append((owner, name, getattr(owner, name)))
            setattr(owner, name, make(changes[-1][2]))

        put(Facts, "__init__", self._made)
        put(Facts, "copy", self._copied)
        put(Facts, "with_dims", self._with_dims)
        put(Facts, "assume_equal", functools.partial(self._assumed, equals))
        put(Facts, "assume_nonnegative", functools.partial(self._assumed, lambda expr: at_least(expr, 0)))
        put(Facts, "nonnegative", functools.partial(self._answered, lambda expr: at_least(expr, 0)))
        put(Facts, "less_equal", functools.partial(self._answered, lambda left, right: at_least(right, left)))
        put(Facts, "equal", functools.partial(self._answered, equals))
        put(Facts, "divides", functools.partial(self._answered, _is_multiple))
        put(Facts, "simplify", self._value)
        put(Facts, "bounds", self._value)
        put(Facts, "_proven", self._subquestion)
        put(ConditionStore, "prove", self._proven)
        put(ConditionStore, "minimise", self._minimised)
        original = decided_module.decided
        recorded = self._decided(original)
        _replace_everywhere("decided", original, recorded)
        try:
            yield
        finally:
            _replace_everywhere("decided", recorded, original)
            for owner, name, value in reversed(changes):
                setattr(owner, name, value)

    @contextlib.contextmanager
    def _inside(self) -> Iterator[bool]:
        """Marks a call of the prover; yields whether no other call encloses it."""
        depth = getattr(self._depth, "value", 0)
        self._depth.value = depth + 1
        try:
            yield depth == 0
        finally:
            self._depth.value = depth

    def _made(self, made: Any) -> Any:
        @functools.wraps(made)
        def init(facts: Facts, rows: Mapping[str, Row]) -> None:
            with self._inside() as outermost:
                made(facts, rows)
            if outermost:
                conditions = [one for name, row in rows.items() for one in row_conditions(name, row)]
                setattr(facts, _LOG, self._with(self._empty, conditions))

        return init

    def _copied(self, copied: Any) -> Any:
        @functools.wraps(copied)
        def copy(facts: Facts) -> Facts:
            with self._inside() as outermost:
                child: Facts = copied(facts)
            if outermost:
                setattr(child, _LOG, self._log(facts))
            return child

        return copy

    def _with_dims(self, made: Any) -> Any:
        @functools.wraps(made)
        def with_dims(facts: Facts, sizes: Mapping[str, Expr | int]) -> Facts:
            with self._inside() as outermost:
                child: Facts = made(facts, sizes)
            if outermost:
                dims = [(Expr.symbol(name), size) for name, size in sizes.items()]
                conditions = [one for dim, size in dims for one in (at_least(dim, 0), at_least(size, dim + 1))]
                setattr(child, _LOG, self._with(self._log(facts), conditions))
            return child

        return with_dims

    def _assumed(self, meaning: Callable[..., Condition], assumed: Any) -> Any:
        @functools.wraps(assumed)
        def assume(facts: Facts, *args: Any) -> None:
            with self._inside() as outermost:
                assumed(facts, *args)
            if outermost:
                setattr(facts, _LOG, self._with(self._log(facts), [meaning(*args)]))

        return assume

    def _answered(self, meaning: Callable[..., Condition], answered: Any) -> Any:
        @functools.wraps(answered)
        def answer(facts: Facts, *args: Any) -> bool:
            with self._inside() as outermost:
                found: bool = answered(facts, *args)
            if outermost:
                self._ask_facts(facts, meaning(*args), "proven" if found else "unknown")
            return found

        return answer

    def _value(self, computed: Any) -> Any:
        """Wraps a method that returns a value: the outermost proofs inside of it are recorded."""

        @functools.wraps(computed)
        def value(facts: Facts, expr: Expr | int) -> Any:
            with self._inside() as outermost:
                if not outermost:
                    return computed(facts, expr)
                self._depth.of_value = facts
                try:
                    return computed(facts, expr)
                finally:
                    self._depth.of_value = None

        return value

    def _subquestion(self, proven: Any) -> Any:
        """Wraps ``Facts._proven``: records the outermost proof inside of a `_value` call."""

        @functools.wraps(proven)
        def prove(facts: Facts, known: Expr, combined: int = 0) -> bool:
            if getattr(self._depth, "of_value", None) is not facts:
                return bool(proven(facts, known, combined))
            self._depth.of_value = None
            try:
                found: bool = proven(facts, known, combined)
            finally:
                self._depth.of_value = facts
            self._ask_facts(facts, at_least(known, 0), "proven" if found else "unknown", "simplify")
            return found

        return prove

    def _decided(self, answered: Any) -> Any:
        @functools.wraps(answered)
        def decided(facts: Facts, condition: Condition) -> bool | None:
            with self._inside() as outermost:
                found: bool | None = answered(facts, condition)
            if outermost:
                self._ask_facts(facts, condition, {True: "proven", False: "refuted", None: "unknown"}[found])
            return found

        return decided

    def _proven(self, proven: Any) -> Any:
        @functools.wraps(proven)
        def prove(store: ConditionStore, condition: Condition) -> Any:
            with self._inside() as outermost:
                proof = proven(store, condition)
            if outermost:
                self.ask(self._facts_of(store), condition, "store", proof.status)
            return proof

        return prove

    def _minimised(self, minimised: Any) -> Any:
        @functools.wraps(minimised)
        def minimise(store: ConditionStore, items: Iterable[Any]) -> Any:
            given = list(items)
            with self._inside() as outermost:
                found = minimised(store, given)
            if outermost:
                known = [fact.condition for fact in store.facts]
                listed = list(dict.fromkeys(condition for condition, _ in given))
                for condition in listed:
                    others = [one for one in listed if one != condition]
                    self.ask(self.facts([*known, *others]), condition, "minimise", None)
            return found

        return minimise

    def _ask_facts(self, facts: Facts, condition: Condition, answer: str, asker: str = "facts") -> None:
        log = self._log(facts)
        if log.number is None:
            log.number = self.facts(log.conditions())
        self.ask(self._with_parts(log, condition), condition, asker, answer)

    def _with_parts(self, log: _Log, condition: Condition) -> int:
        """The index of the facts, extended by definitions of fractions of symbols that only the question mentions."""
        assert log.number is not None
        return (
            self.facts([*log.conditions(), *self._parts([condition])])
            if any(map(_PART.fullmatch, condition.symbols))
            else log.number
        )

    def _facts_of(self, store: ConditionStore) -> int:
        facts = store.facts
        if id(facts) not in self._tuples:
            self._tuples[id(facts)] = facts, self.facts(fact.condition for fact in facts)
        return self._tuples[id(facts)][1]

    @staticmethod
    def _log(facts: Facts) -> _Log:
        found: _Log = getattr(facts, _LOG)
        return found

    @staticmethod
    def _with(log: _Log, conditions: Sequence[Condition]) -> _Log:
        for condition in conditions:
            log = _Log(log, condition)
        return log

    # PyTorch's shape environment.

    def ask_traced(self, facts: Sequence[Any], condition: Any, answer: bool | None, *, is_answer: bool) -> None:
        """Records a question to PyTorch's shape environment; facts and condition are sympy expressions."""
        found = self._from_sympy(condition)
        if found is None:
            self.counts["not over integers: trace"] += 1
            return
        known = [one for one in map(self._from_sympy, facts) if one is not None]
        self.counts["facts not over integers: trace"] += len(facts) - len(known)
        status = {True: "proven", False: "refuted", None: "unknown"}[answer] if is_answer else None
        self.ask(self.facts(known), found, "trace", status)

    def _from_sympy(self, condition: Any) -> Condition | None:
        if condition not in self._traced:
            try:
                self._traced[condition] = condition_from_sympy(condition)
            except UnsupportedExpr:
                self._traced[condition] = None
        return self._traced[condition]


def row_conditions(name: str, row: Row) -> list[Condition]:
    """The conditions that a row of symbol bounds states: minimum, maximum, divisor."""
    value = Expr.symbol(name)
    found = [] if row.min is None else [at_least(value, row.min)]
    found += [] if row.max is None else [at_least(row.max, value)]
    return found if row.divisor == 1 else [*found, equals(value % row.divisor, 0)]


def _is_multiple(number: int, expr: Expr | int) -> Condition:
    return equals(expr, 0) if number == 0 else equals(as_expr(expr) % abs(number), 0)


def _replace_everywhere(name: str, old: Any, new: Any) -> None:
    """Rebinds a function in all modules of the package that import it by name."""
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("symshape.") and getattr(module, name, None) is old:
            setattr(module, name, new)
