"""What Dynamo counts and keeps of its compilations: graphs, graph breaks with their lines."""

from __future__ import annotations

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


def breaks_after(count: int) -> list[GraphBreak]:
    """The graph breaks of this process but the first ``count``, in order and without duplicates."""
    return list(dict.fromkeys(_graph_break(reason) for reason in graph_break_reasons[count:]))


def break_count() -> int:
    """The number of graph breaks of this process. A frame that is traced again counts again."""
    return len(graph_break_reasons)


# Reasons of which Dynamo has no more than a name.
_IN_WORDS = {
    "generic_jump": "a branch on a value that is not known while tracing",
    "comprehension_graph_break": "Dynamo cannot trace this comprehension",
    "step_unsupported": "Dynamo cannot trace this line",
}


def _graph_break(reason: Any) -> GraphBreak:
    title, *rest = reason.reason.strip().splitlines()
    title = next((words for start, words in _IN_WORDS.items() if title.startswith(start)), title)
    explained = [line.partition(":")[2].strip() for line in rest if line.strip().startswith("Explanation:")]
    at = reason.user_stack[-1] if reason.user_stack else None
    line, text = (f"{at.filename}:{at.lineno}", at.line or "") if at is not None else ("", "")
    return GraphBreak(line, text, ". ".join([title.rstrip("."), *explained]))


def compile_ids() -> set[str]:
    """Dynamo's numbers of compilations: ``frame/attempt``."""
    return {str(metrics.compile_id) for metrics in torch._dynamo.utils.get_compilation_metrics()}


def with_limits_of_recompiles(each: int, together: int) -> AbstractContextManager[Any]:
    """While entered, the recompile limit is ``each`` for a function alone, ``together`` for it with its resume
    functions."""
    return torch._dynamo.config.patch(recompile_limit=each, accumulated_recompile_limit=together)
