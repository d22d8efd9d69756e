"""What the tracer works out for its logs though nobody reads them."""

from __future__ import annotations

import logging

from torch._dynamo import symbolic_convert
from torch._functorch._aot_autograd import graph_compile
from torch._logging._internal import trace_log

from symshape.frontend.patches.patch import Changes


def no_names_for_silent_logs(changes: Changes) -> None:
    """The name of a function for a line of the logs ``trace_call`` and ``trace_source`` is found by tokenising its
    whole file, also where both logs are off: 0.15 s of a model's first call."""
    logs = (symbolic_convert.trace_call_log, symbolic_convert.trace_source_log)
    if not any(log.isEnabledFor(logging.DEBUG) for log in logs):
        changes.attribute(symbolic_convert, "get_funcname", _nameless)


def _nameless(filename: str, lineno: int) -> None:
    return None


def no_graphs_for_silent_logs(changes: Changes) -> None:
    """The graphs of a training step are printed for the logs ``aot_joint_graph`` and ``aot_graphs``, for TORCH_TRACE,
    and for PyTorch's own cache of them, which has none of a foreign backend; also where there are none of these. It
    is up to a fifth of the time that tracing takes, mostly for the text of sizes."""
    logs = (graph_compile.aot_joint_log, graph_compile.aot_graphs_log)
    if not trace_log.handlers and not any(log.isEnabledFor(logging.INFO) for log in logs):
        changes.attribute(graph_compile, "_log_joint_graph", _no_joint_graph)
        changes.attribute(graph_compile, "_log_fw_bw_graphs", _no_forward_and_backward)


def _no_joint_graph(fx_g: object, aot_config: object) -> None:
    return None


def _no_forward_and_backward(
    fw_module: object, bw_module: object, maybe_subclass_meta: object, fw_metadata: object, aot_config: object
) -> tuple[None, None]:
    return None, None
