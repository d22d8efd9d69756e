"""Dynamo's counters: graphs, graph breaks, compilations."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager
from typing import Any

import torch._dynamo.utils
from torch._dynamo.utils import counters


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


def compile_ids() -> set[str]:
    """Dynamo's numbers of compilations: ``frame/attempt``."""
    return {str(metrics.compile_id) for metrics in torch._dynamo.utils.get_compilation_metrics()}


def with_limits_of_recompiles(each: int, together: int) -> AbstractContextManager[Any]:
    """While entered, the recompile limit is ``each`` for a function alone, ``together`` for it with its resume
    functions."""
    return torch._dynamo.config.patch(recompile_limit=each, accumulated_recompile_limit=together)
