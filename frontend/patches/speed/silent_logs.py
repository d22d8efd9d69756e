"""Skips work of the tracer for logs that are off."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

from torch._dynamo import guards, symbolic_convert
from torch._dynamo.output_graph import OutputGraph
from torch._functorch._aot_autograd import graph_compile
from torch._logging._internal import trace_log

from symshape.frontend.patches.patch import Changes


def no_names_for_silent_logs(changes: Changes) -> None:
    """Skips finding function names for the logs ``trace_call`` and ``trace_source`` if both are off. Dynamo tokenises
    each whole source file for it: 0.15 s of a model's first call."""
    logs = (symbolic_convert.trace_call_log, symbolic_convert.trace_source_log)
    if not any(log.isEnabledFor(logging.DEBUG) for log in logs):
        changes.attribute(symbolic_convert, "get_funcname", _nameless)


def _nameless(filename: str, lineno: int) -> None:
    return None


def no_times_for_silent_logs(changes: Changes) -> None:
    """Skips timing guards if nothing reads the result. Dynamo times each frame's guards with emptied caches, for the
    log ``guards``, for TORCH_TRACE, and as a metric: 20 ms and more, a twentieth of a small first call. If it is
    skipped, the metric ``guard_latency_us`` is 0."""
    changes.wrap(guards, "profile_guard_manager", _timed_where_read)


@functools.cache
def _timed_where_read(original: Callable[..., float]) -> Callable[..., float]:
    @functools.wraps(original)
    def profile_guard_manager(manager: Any, local_scope: dict[str, Any], rounds: int) -> float:
        is_read = bool(trace_log.handlers) or guards.guards_log.isEnabledFor(logging.DEBUG)
        return original(manager, local_scope, rounds) if is_read else 0.0

    return profile_guard_manager


def no_shapes_for_silent_logs(changes: Changes) -> None:
    """Skips printing the sizes of all tensors of Dynamo's graph if nothing reads them. They are for TORCH_TRACE and for
    the metric ``graph_node_shapes``, which is empty if they are skipped."""
    changes.wrap(OutputGraph, "get_graph_sizes_structured", _printed_where_read)


@functools.cache
def _printed_where_read(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def get_graph_sizes_structured(self: Any) -> Any:
        return original(self) if trace_log.handlers else {}

    return get_graph_sizes_structured


def no_graphs_for_silent_logs(changes: Changes) -> None:
    """Skips printing the graphs of a training step if nothing reads them. They are for the logs ``aot_joint_graph`` and
    ``aot_graphs``, for TORCH_TRACE, and for PyTorch's own cache, which stores no graphs of other backends. Printing
    takes up to a fifth of the tracing time, mostly for sizes."""
    changes.wrap(graph_compile, "_log_joint_graph", _where_read)
    changes.wrap(graph_compile, "_log_fw_bw_graphs", _both_where_read)


def _is_read() -> bool:
    logs = (graph_compile.aot_joint_log, graph_compile.aot_graphs_log)
    return bool(trace_log.handlers) or any(log.isEnabledFor(logging.INFO) for log in logs)


@functools.cache
def _where_read(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _log_joint_graph(fx_g: Any, aot_config: Any) -> Any:
        return original(fx_g, aot_config) if _is_read() else None

    return _log_joint_graph


@functools.cache
def _both_where_read(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _log_fw_bw_graphs(
        fw_module: Any, bw_module: Any, maybe_subclass_meta: Any, fw_metadata: Any, aot_config: Any
    ) -> Any:
        if _is_read():
            return original(fw_module, bw_module, maybe_subclass_meta, fw_metadata, aot_config)
        return None, None

    return _log_fw_bw_graphs
