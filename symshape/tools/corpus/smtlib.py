"""Questions as SMT-LIB 2: scripts that any SMT solver reads.

The integers are unbounded. SMT-LIB's ``div`` and ``mod`` are Euclid's; Python's are floors. They agree where the
divisor is positive, so ``a // b`` is ``(div a b)`` there and ``(div (- a) (- b))`` where it is negative. That no
divisor is 0 is asserted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from symshape.tools.corpus.condition_text import Relation, divisors, names_in, read, read_expression
from symshape.tools.corpus.questions import Corpus, Question

_NUMBER = re.compile(r"\d+|\(- \d+\)")


class SmtLib:
    """Text to terms of SMT-LIB."""

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
    if _NUMBER.fullmatch(divisor):
        return negative if divisor.startswith("(") else positive
    return f"(ite (> {divisor} 0) {positive} {negative})"


def _fold(values: Sequence[str], relation: str) -> str:
    found = values[0]
    for value in values[1:]:
        found = f"(ite ({relation} {found} {value}) {found} {value})"
    return found


def term(text: str) -> str:
    """The condition as a term."""
    found: str = read(text, SmtLib())
    return found


def nonzero(texts: Iterable[str]) -> list[str]:
    """For each divisor that is no number, that it is not 0."""
    found = [read_expression(divisor, SmtLib()) for text in texts for divisor in divisors(text)]
    return [f"(not (= {one} 0))" for one in dict.fromkeys(found)]


def script(corpus: Corpus, questions: Sequence[Question]) -> str:
    """A script with two checks for each question: can it be false, can it be true. Unsatisfiable are both answers of a
    question whose facts cannot hold; the first alone where it always holds, the second alone where it never does."""
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
