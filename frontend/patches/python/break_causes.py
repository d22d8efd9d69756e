"""The cause of a graph break that Dynamo cannot resume from: in a loop, or in a block of ``try`` or ``with``.

Dynamo goes back to an earlier line, ends the graph there, and keeps that line with the words ``step_unsupported``. What
it could not trace is only logged.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch._dynamo.output_graph import GraphCompileReason
from torch._dynamo.symbolic_convert import InstructionTranslatorBase
from torch._dynamo.utils import graph_break_reasons

from symshape.frontend.bridge.dynamo_counters import GOES_BACK
from symshape.frontend.patches.patch import Changes


def causes_are_kept(changes: Changes) -> None:
    """Remembers what is logged at the point that tracing goes back to, which outlives the new attempt from the
    function's beginning, and puts it in the place of those words."""
    changes.wrap(InstructionTranslatorBase, "log_graph_break", _remembering)
    changes.wrap(InstructionTranslatorBase, "step_graph_break", _telling)


@functools.cache
def _remembering(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def log_graph_break(self: Any, code_options: Any, reason: str, exc: Any) -> None:
        if self.current_speculation is not None:
            cause = exc.__cause__ or exc  # of a break in a loop: `broken_loops.py`
            stack = getattr(cause, "real_stack", None) or [self.frame_summary()]
            text = f"{GOES_BACK}\n{getattr(cause, 'msg', cause)}"
            self.current_speculation.reason = GraphCompileReason(text, list(stack), graph_break=False)
        original(self, code_options, reason, exc)

    return log_graph_break


@functools.cache
def _telling(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def step_graph_break(self: Any, continue_inst: Any) -> None:
        cause = self.current_speculation.reason
        original(self, continue_inst)
        found = next((one for one in reversed(graph_break_reasons) if one.reason == GOES_BACK), None)
        if cause is not None and found is not None:
            found.reason, found.user_stack = cause.reason, cause.user_stack

    return step_graph_break
