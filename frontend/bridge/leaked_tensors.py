"""Finds tensors of a trace without Dynamo that the traced function has stored outside of it.

Such tensors are fake and have no data, and the code that stores them runs in the trace only. After the trace all traced
tensors are dead, except for those that something else refers to.
"""

from __future__ import annotations

import gc
import types
import weakref
from typing import Any

import torch

from symshape.frontend.bridge.source_lines import user_line_now


class TracedTensors:
    """The tensors that a traced function has received or computed, with the user's line."""

    def __init__(self) -> None:
        self._made: list[tuple[weakref.ref[torch.Tensor], str]] = []

    def add(self, value: Any) -> None:
        """Adds a tensor that the current line has computed, or those in a list or tuple."""
        if isinstance(value, torch.Tensor):
            self._made.append((weakref.ref(value), user_line_now()))
        elif isinstance(value, (list, tuple)):
            for one in value:
                self.add(one)

    def add_inputs(self, values: Any) -> None:
        self._made += [(weakref.ref(value), "") for value in values if isinstance(value, torch.Tensor)]

    def leaked(self) -> tuple[str, str] | None:
        """After the trace: for the first traced tensor that is still alive, the line that made it ("": an argument),
        and the name that it is stored under ("" if it has none)."""
        if all(reference() is None for reference, _ in self._made):
            return None
        gc.collect()  # cycles that the function has made
        for reference, line in self._made:  # a generator would refer to the tensor too
            tensor = reference()
            if tensor is not None and _is_held(tensor, is_input=not line):
                return line, _name_of(tensor)
        return None


def _is_held(tensor: torch.Tensor, is_input: bool) -> bool:
    """Whether something in Python refers to a tensor. Some are kept by PyTorch's C++ alone, or are a part of a nested
    tensor that is."""
    is_found = False
    for holder in gc.get_referrers(tensor):
        if isinstance(holder, types.FrameType):
            continue
        owners = gc.get_referrers(holder) if isinstance(holder, dict) else [None]
        wrappers = [one for one in (holder, *owners) if isinstance(one, torch.Tensor)]
        if wrappers:
            return any(_is_held(wrapper, is_input) for wrapper in wrappers)
        # The attributes of a tensor that C++ keeps have no owner to be found.
        is_found = is_found or bool(owners) or not is_input
    # Python does not find what `gc.freeze` has set aside. Of inputs C++ has references that count as Python's.
    return is_found or (not is_input and tensor._use_count() == 1)  # type: ignore[attr-defined]


def _name_of(tensor: torch.Tensor) -> str:
    for holder in gc.get_referrers(tensor):
        items = holder if isinstance(holder, dict) else getattr(holder, "__dict__", {})
        for name, value in items.items():
            if value is tensor and isinstance(name, str) and not isinstance(holder, types.FrameType):
                return name
    return ""
