"""Numbers that the modules ``random`` and ``numpy.random`` draw while a function is traced without Dynamo.

They would be drawn once, by the trace, and be constants of the entry; what seeds the modules would be run once too.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy

from symshape.errors import CompileError, with_text
from symshape.frontend.bridge.source_lines import is_users


def refusing_draws(run: Callable[[], Any]) -> Any:
    """What ``run`` returns. CompileError at the user's line, and the modules are as they were, if it has drawn."""
    before = _states()
    result = run()
    drawn = _changed(before, _states())
    if not drawn:
        return result
    line = _line_that_draws(run, before)
    _restore(before)
    raise CompileError(
        f"the function draws from the module `{drawn}`, or seeds it",
        where=with_text(line),
        next_step="symshape.compile breaks the graph there; or draw with torch.rand, or outside of the function",
    )


def _states() -> dict[str, Any]:
    return {"random": random.getstate(), "numpy.random": numpy.random.get_state()}


def _restore(states: dict[str, Any]) -> None:
    random.setstate(states["random"])
    numpy.random.set_state(states["numpy.random"])


def _changed(before: dict[str, Any], after: dict[str, Any]) -> str:
    """The module whose state is another; "" if none is."""
    if before["random"] != after["random"]:
        return "random"
    ours, theirs = before["numpy.random"], after["numpy.random"]
    same = ours[0] == theirs[0] and numpy.array_equal(ours[1], theirs[1]) and ours[2:] == theirs[2:]
    return "" if same else "numpy.random"


def _line_that_draws(run: Callable[[], Any], before: dict[str, Any]) -> str:
    """``file:line``: ``run`` is run again, and looked at after each line of the user's and before each call in it."""
    found: list[str] = []
    last: dict[FrameType, int] = {}  # line of a frame that is being run

    def look(frame: FrameType | None, line: int) -> None:
        if not found and frame is not None and _is_of_interest(frame) and _changed(before, _states()):
            found.append(f"{frame.f_code.co_filename}:{line}")

    def step(frame: FrameType, event: str, _arg: Any) -> Any:
        look(frame, last.get(frame, frame.f_lineno))
        last[frame] = frame.f_lineno
        if event == "return":
            del last[frame]
        return step

    def enter(frame: FrameType, _event: str, _arg: Any) -> Any:
        look(frame.f_back, frame.f_back.f_lineno if frame.f_back else 0)
        return step if not found and _is_of_interest(frame) else None

    _restore(before)
    usual = sys.gettrace()
    sys.settrace(enter)
    try:
        run()
    finally:
        sys.settrace(usual)
    return found[0] if found else ""


def _is_of_interest(frame: FrameType) -> bool:
    return is_users(frame) and frame.f_globals.get("__name__", "").split(".")[0] not in ("random", "numpy")
