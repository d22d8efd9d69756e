"""What a solver of the corpus is, and the meaning of its answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, Protocol

# "always": the condition holds for all sizes that the facts allow; "never": for none; "sometimes": for some and not for
# others; "no sizes": the facts allow none; "unknown": nothing is claimed; "timeout": the limit of time ended first;
# "error": the solver has raised an exception.
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
    """One solver. ``tell`` is called once for each set of facts, ``ask`` for each of its questions; both are timed.

    Before that, and not timed, ``prepare_facts`` and then ``prepare`` for each question turn text into its own form.
    """

    def prepare_facts(self, facts: Sequence[str]) -> Any: ...

    def tell(self, facts: Any) -> None: ...

    def prepare(self, condition: str) -> Any: ...

    def ask(self, condition: Any) -> Answer: ...


def answer_of(can_be_false: bool | None, can_be_true: bool | None) -> Answer:
    """The answer from whether the condition can be false, and can be true; None where that is not known."""
    if can_be_false is False:
        return "no sizes" if can_be_true is False else "always"
    if can_be_true is False:
        return "never"
    return "unknown" if can_be_false is None or can_be_true is None else "sometimes"
