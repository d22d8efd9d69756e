"""The interface of the corpus's solvers, and the meaning of their answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, Protocol

# "always": the condition holds for all sizes that the facts admit; "never": for none; "sometimes": for some, not for
# all; "no sizes": the facts contradict one another; "unknown": not decided; "timeout": the time limit was exceeded;
# "error": the solver raised an exception.
Answer = Literal["always", "never", "sometimes", "no sizes", "unknown", "timeout", "error"]
LETTERS: Final[dict[Answer, str]] = {
    "always": "a",
    "never": "n",
    "sometimes": "s",
    "no sizes": "e",
    "unknown": "u",
    "timeout": "t",
    "error": "x",
}
DECIDED: Final = ("always", "never")


class Solver(Protocol):
    """A solver. ``tell`` is called once per set of facts, then ``ask`` for each of its questions; both are timed.

    Before that, ``prepare_facts`` and ``prepare`` (per question) convert texts to the solver's own form, untimed.
    """

    def prepare_facts(self, facts: Sequence[str]) -> Any: ...

    def tell(self, facts: Any) -> None: ...

    def prepare(self, condition: str) -> Any: ...

    def ask(self, condition: Any) -> Answer: ...


def answer_of(can_be_false: bool | None, can_be_true: bool | None) -> Answer:
    """The answer, from whether the condition can be false and whether it can be true; None means not known."""
    if can_be_false is False:
        return "no sizes" if can_be_true is False else "always"
    if can_be_true is False:
        return "never"
    return "unknown" if can_be_false is None or can_be_true is None else "sometimes"
