"""A frame of plain ``torch.compile`` that cannot be traced by our rules is traced once more, by PyTorch's own ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch._dynamo import convert_frame

from symshape.frontend.opaque_calls.frame_decisions import current_frame
from symshape.frontend.patches.patch import Changes


def frames_choose_their_rules(changes: Changes) -> None:
    """Lets a frame say how Dynamo traces it (``Frame.traced``)."""
    changes.wrap(convert_frame, "trace_frame", _as_the_frame_says)


def _as_the_frame_says(trace_frame: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(trace_frame)

    def trace_by_some_rules(*args: Any, **kwargs: Any) -> Any:
        traced = current_frame().traced
        if traced is None:
            return trace_frame(*args, **kwargs)
        given = signature.bind(*args, **kwargs).arguments
        return traced(given["code"], given["speculation_log"], lambda: trace_frame(*args, **kwargs))

    return trace_by_some_rules
