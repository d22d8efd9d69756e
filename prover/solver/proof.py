"""The data of a store's answers: facts, proofs, the four results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, final

from symshape.prover.numbers.condition import Condition

Status = Literal["proven", "refuted", "contingent", "unknown"]


@dataclass(frozen=True, slots=True)
class Reason:
    """A fact as it is shown to people: its text, and where it was assumed ("" if unknown)."""

    text: str
    origin: str = ""

    def __str__(self) -> str:
        return f"{self.text}  [{self.origin}]" if self.origin else self.text


@dataclass(frozen=True, slots=True)
class Fact:
    """A condition that is assumed, and its origin. Ranges and divisors of symbols are facts too."""

    condition: Condition
    origin: str = ""

    @property
    def reason(self) -> Reason:
        """The fact as it is shown to people."""
        return Reason(str(self.condition), self.origin)


@final
class Proof:
    """The answer to a query.

    ``status``     "proven": true wherever the facts hold; "refuted": false there; "contingent": there are points of
                   both kinds; "unknown": the budget ended first, nothing is claimed
    ``witnesses``  of a contingent answer: two assignments of all symbols under which every fact holds, the condition
                   true under the first and false under the second (both were evaluated); else ()
    ``reasons``    of a proven or refuted answer: a small set of facts that it follows from; found on first use
    """

    def __init__(
        self,
        status: Status,
        witnesses: tuple[Mapping[Any, int], ...] = (),
        find_reasons: Callable[[], tuple[Reason, ...]] | None = None,
    ) -> None:
        self.status, self.witnesses, self._find_reasons = status, witnesses, find_reasons

    @cached_property
    def reasons(self) -> tuple[Reason, ...]:
        """The facts that imply the answer; minimal, as far as the budget allowed."""
        return self._find_reasons() if self._find_reasons is not None else ()

    def __repr__(self) -> str:
        return f"Proof({self.status!r}, reasons={self.reasons!r}, witnesses={self.witnesses!r})"
