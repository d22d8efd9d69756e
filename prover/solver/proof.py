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
    """A fact as people see it: its text and where it was assumed ("" when nobody said)."""

    text: str
    origin: str = ""

    def __str__(self) -> str:
        return f"{self.text}  [{self.origin}]" if self.origin else self.text


@dataclass(frozen=True, slots=True)
class Fact:
    """A condition that holds, and where it comes from. Bounds and divisors of symbols are facts like any other."""

    condition: Condition
    origin: str = ""

    @property
    def reason(self) -> Reason:
        """The fact as people see it."""
        return Reason(str(self.condition), self.origin)


@final
class Proof:
    """An answer.

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
        """The facts used, none of which can be left out as far as the budget allowed to try."""
        return self._find_reasons() if self._find_reasons is not None else ()

    def __repr__(self) -> str:
        return f"Proof({self.status!r}, reasons={self.reasons!r}, witnesses={self.witnesses!r})"
