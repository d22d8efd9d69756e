"""What Dynamo works out for its logs though nobody reads them."""

from __future__ import annotations

import logging

from torch._dynamo import symbolic_convert

from symshape.frontend.patches.patch import Changes


def no_names_for_silent_logs(changes: Changes) -> None:
    """The name of a function for a line of the logs ``trace_call`` and ``trace_source`` is found by tokenising its
    whole file, also where both logs are off: 0.15 s of a model's first call."""
    logs = (symbolic_convert.trace_call_log, symbolic_convert.trace_source_log)
    if not any(log.isEnabledFor(logging.DEBUG) for log in logs):
        changes.attribute(symbolic_convert, "get_funcname", _nameless)


def _nameless(filename: str, lineno: int) -> None:
    return None
