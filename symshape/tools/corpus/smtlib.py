"""Questions as SMT-LIB 2: scripts that any SMT solver reads.

Integers are unbounded. SMT-LIB's ``div`` and ``mod`` are Euclidean, Python's round down. They agree for positive
divisors, so ``a // b`` becomes ``(div a b)`` if b is positive and ``(div (- a) (- b))`` if it is negative. All divisors
are asserted to be nonzero.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from symshape.tools.corpus.condition_text import Relation, divisors, names_in, read, read_expression
from symshape.tools.corpus.questions import Corpus, Question

_NUMBER = re.compile(r"\d+|\(- \d+\)")


class SmtLib:
    """The `Algebra` that builds SMT-LIB terms."""

    def number(self, value: int) -> str:
        return str(value) if value >= 0 else f"(- {-value})"

    def symbol(self, name: str) -> str:
        return name

    def add(self, left: str, right: str) -> str:
        return f"(+ {left} {right})"

    def subtract(self, left: str, right: str) -> str:
        return f"(- {left} {right})"

    def multiply(self, left: str, right: str) -> str:
        return f"(* {left} {right})"

    def floordiv(self, left: str, right: str) -> str:
        return _by_sign(right, f"(div {left} {right})", f"(div (- {left}) (- {right}))")

    def mod(self, left: str, right: str) -> str:
        return _by_sign(right, f"(mod {left} {right})", f"(- (mod (- {left}) (- {right})))")

    def maximum(self, values: Sequence[str]) -> str:
        return _fold(values, ">=")

    def minimum(self, values: Sequence[str]) -> str:
        return _fold(values, "<=")

    def compare(self, relation: Relation, left: str, right: str) -> str:
        if relation == "!=":
            return f"(not (= {left} {right}))"
        return f"({'=' if relation == '==' else relation} {left} {right})"

    def truth(self, value: bool) -> str:
        return "true" if value else "false"

    def all_of(self, parts: Sequence[str]) -> str:
        return f"(and {' '.join(parts)})"

    def any_of(self, parts: Sequence[str]) -> str:
        return f"(or {' '.join(parts)})"


def _by_sign(divisor: str, positive: str, negative: str) -> str:
    """One of two terms by the sign of ``divisor``: decided now for a number, by ``ite`` otherwise."""
    if _NUMBER.fullmatch(divisor):
        return negative if divisor.startswith("(") else positive
    return f"(ite (> {divisor} 0) {positive} {negative})"


def _fold(values: Sequence[str], relation: str) -> str:
    """Nested ``ite`` that pick the extreme value by ``relation``."""
    found = values[0]
    for value in values[1:]:
        found = f"(ite ({relation} {found} {value}) {found} {value})"
    return found


def term(text: str) -> str:
    """The condition as an SMT-LIB term."""
    found: str = read(text, SmtLib())
    return found


def nonzero(texts: Iterable[str]) -> list[str]:
    """Terms which state that the non-constant divisors in conditions are not 0."""
    found = [read_expression(divisor, SmtLib()) for text in texts for divisor in divisors(text)]
    return [f"(not (= {one} 0))" for one in dict.fromkeys(found)]


def script(corpus: Corpus, questions: Sequence[Question]) -> str:
    """A script with two ``check-sat`` per question: can the condition be false, can it be true. Only the first is unsat
    if the condition always holds, only the second if it never holds, and both if the facts contradict one another."""
    lines = ["(set-logic ALL)"]
    names = {name for question in questions for text in _texts(corpus, question) for name in names_in(text)}
    lines += [f"(declare-const {name} Int)" for name in sorted(names)]
    known: int | None = None
    for question in questions:
        if question.facts != known:
            lines += ["(pop 1)"] if known is not None else []
            known, facts = question.facts, corpus.facts_of(question)
            lines += ["(push 1)", *(f"(assert {one})" for one in (*nonzero(facts), *map(term, facts)))]
        text = corpus.text(question)
        lines += [f"; {text}", "(push 1)", *(f"(assert {one})" for one in nonzero([text]))]
        for goal in (f"(not {term(text)})", term(text)):
            lines += ["(push 1)", f"(assert {goal})", "(check-sat)", "(pop 1)"]
        lines.append("(pop 1)")
    return "\n".join([*lines, *(["(pop 1)"] if known is not None else []), ""])


def _texts(corpus: Corpus, question: Question) -> list[str]:
    return [corpus.text(question), *corpus.facts_of(question)]
