"""Minimal subsets (delta debugging): the facts that imply an answer; and the facts that are relevant to a condition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from symshape.prover.numbers.condition import Condition
from symshape.prover.solver.proof import Fact

T = TypeVar("T")


def smallest(items: Sequence[T], suffices: Callable[[list[T]], bool]) -> list[T]:
    """A subset of the items that passes the test ``suffices`` and is minimal. All items must pass, and supersets of
    passing sets too.

    Removes halves, then quarters, then single items (A. Zeller and R. Hildebrandt, "Simplifying and isolating
    failure-inducing input", 2002); later items first. If the test answers False because its budget is spent, an item
    too many is kept, which is sound.
    """
    kept = list(items)
    if not kept or suffices([]):
        return []
    size = (len(kept) + 1) // 2
    while True:
        position = len(kept)
        while position > 0:
            start = max(position - size, 0)
            without = kept[:start] + kept[position:]
            if len(without) < len(kept) and suffices(without):
                kept = without
            position = start
        if size == 1:
            return kept
        size = (size + 1) // 2 if size > 2 else 1


def connected(facts: Sequence[Fact], condition: Condition) -> list[Fact]:
    """The facts that share symbols with the condition, or with another such fact, in order."""
    known, chosen, others = set(condition.symbols), set[int](), dict(enumerate(facts))
    while fresh := [number for number, fact in others.items() if not known.isdisjoint(fact.condition.symbols)]:
        known.update(*(others.pop(number).condition.symbols for number in fresh))
        chosen.update(fresh)
    return [facts[number] for number in sorted(chosen)]
