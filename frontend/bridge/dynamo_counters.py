"""What Dynamo counts and keeps of its compilations: graphs, graph breaks with their lines."""

from __future__ import annotations

import linecache
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch._dynamo.utils
from torch._dynamo.utils import counters, graph_break_reasons


def forget_counts() -> None:
    """Resets the counters to 0, and keeps metrics of up to ten thousand compilations."""
    counters.clear()
    torch._dynamo.utils.clear_compilation_metrics()
    torch._dynamo.utils.set_compilation_metrics_limit(10_000)


def graph_count() -> int:
    return int(counters["stats"]["unique_graphs"])


def break_counts() -> Counter[str]:
    """The number of graph breaks by reason."""
    return Counter(counters["graph_break"])


@dataclass(frozen=True)
class GraphBreak:
    """A line at which Dynamo ended a graph.

    ``line``    ``file:line`` of the innermost function that was traced; "" if Dynamo does not know it
    ``text``    the text of that line
    ``reason``  Dynamo's message: its title, then its explanation if there is one
    """

    line: str
    text: str
    reason: str

    def __str__(self) -> str:
        where = f"`{self.text}` at {self.line}" if self.text else self.line
        return f"{where}: {self.reason}" if where else self.reason


@dataclass(frozen=True)
class Past:
    """What Dynamo has kept so far: the number of graph breaks, and the record of its last compile."""

    breaks: int
    compile: Any


def past() -> Past:
    return Past(len(graph_break_reasons), _last_compile())


def breaks_since(past: Past) -> list[GraphBreak]:
    """The graph breaks since then, in order and without duplicates (a frame that is traced again breaks again); last
    the line for which Dynamo does not compile the frame at all, if there is one."""
    found = [_graph_break(reason) for reason in graph_break_reasons[past.breaks :]]
    last = _last_compile()
    if last is not None and last is not past.compile and last.fail_type in _NOT_COMPILED:
        found.append(_failure(last))
    return list(dict.fromkeys(found))


def _last_compile() -> Any:
    return next(iter(torch._dynamo.utils.get_compilation_metrics()[-1:]), None)


GOES_BACK = "step_unsupported"  # Dynamo's reason of a break that it cannot resume from; our cause follows in lines
_NOT_COMPILED = ("Unsupported", "UserError")  # errors after which Dynamo leaves a frame to eager mode
# Reasons of which Dynamo has no more than a name.
_IN_WORDS = {
    "generic_jump": "a branch on a value that is not known while tracing",
    "comprehension_graph_break": "Dynamo cannot trace this comprehension",
    GOES_BACK: "Dynamo cannot trace this line",
}


def _graph_break(reason: Any) -> GraphBreak:
    at = reason.user_stack[-1] if reason.user_stack else None
    line, text = (f"{at.filename}:{at.lineno}", at.line or "") if at is not None else ("", "")
    return GraphBreak(line, text, _in_words(reason.reason))


def _failure(compile_: Any) -> GraphBreak:
    file, number = compile_.fail_user_frame_filename, compile_.fail_user_frame_lineno
    line, text = (f"{file}:{number}", linecache.getline(file, number).strip()) if file and number else ("", "")
    return GraphBreak(line, text, f"{_in_words(compile_.fail_reason or '')}; so the function runs in eager mode")


def _in_words(message: str) -> str:
    if message.startswith(f"{GOES_BACK}\n"):
        return f"{_in_words(message.removeprefix(GOES_BACK))}; so the rest of the function runs in eager mode"
    title, *rest = message.strip().splitlines() or [""]
    title = next((words for start, words in _IN_WORDS.items() if title.startswith(start)), title)
    explained = [line.partition(":")[2].strip() for line in rest if line.strip().startswith("Explanation:")]
    return ". ".join(part.rstrip(".") for part in (title, *explained))


def compile_ids() -> set[str]:
    """Dynamo's numbers of compilations: ``frame/attempt``."""
    return {str(metrics.compile_id) for metrics in torch._dynamo.utils.get_compilation_metrics()}


def with_limits_of_recompiles(each: int, together: int) -> AbstractContextManager[Any]:
    """While entered, the recompile limit is ``each`` for a function alone, ``together`` for it with its resume
    functions."""
    return torch._dynamo.config.patch(recompile_limit=each, accumulated_recompile_limit=together)
