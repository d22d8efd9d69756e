"""Refused questions: breaks the graph at a condition on sizes instead of adding a guard.

Each condition that the user's Python evaluates makes a guard. Where a line evaluates one with another outcome at each
call (``for i in range(x.shape[0])``), a function would be compiled for every size. At a refused line Dynamo breaks the
graph instead, as it does for data-dependent conditions: the part before it serves all sizes.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, NoReturn

from torch._guards import TracingContext

from symshape.frontend.bridge.dynamo import is_control_flow, unimplemented
from symshape.frontend.bridge.question_origins import Line, users_line_now

_REFUSED: ContextVar[frozenset[Line]] = ContextVar("symshape_refused", default=frozenset())
_RAISED: ContextVar[Exception | None] = ContextVar("symshape_refusal", default=None)  # what `refuse` raised last


@contextlib.contextmanager
def refused(lines: frozenset[Line]) -> Iterator[None]:
    """While entered, conditions on sizes at these user lines break the graph."""
    token = _REFUSED.set(lines)
    try:
        yield
    finally:
        _REFUSED.reset(token)


def refused_line() -> Line | None:
    """The user's line that is being traced, if its questions are refused."""
    lines = _REFUSED.get()
    line = users_line_now() if lines else None
    return line if line in lines else None


@contextlib.contextmanager
def refusals_kept() -> Iterator[None]:
    """Raises a refusal where C++ has made another error of it: what converts the arguments of an operator (`std` with a
    symbolic correction) makes a RuntimeError of whatever Python raises in there."""
    token = _RAISED.set(None)
    try:
        yield
    except RuntimeError as error:
        refusal = _RAISED.get()
        if refusal is None or is_control_flow(error):
            raise
        raise refusal from error
    finally:
        _RAISED.reset(token)


def refuse(line: Line) -> NoReturn:
    """Breaks the graph. In a loop Dynamo cannot resume: it compiles the part before the statement, and the rest of the
    frame runs in eager mode. Else it resumes after the jump or the call. In an inlined function, the graph is broken at
    the call, and the function is a frame of its own."""
    try:
        _break_at(line)
    except Exception as error:
        _RAISED.set(error)
        raise


def _break_at(line: Line) -> NoReturn:
    from torch._dynamo import exc
    from torch._dynamo.symbolic_convert import InstructionTranslator

    reason = f"it asks for a size at {line}"
    asker = _asker()
    is_outermost = len(TracingContext.extract_stack()) == 1
    if asker != "operator" and is_outermost and _is_at_loop(InstructionTranslator.current_tx()):
        raise exc.StepUnsupported(reason)
    if asker == "jump" and is_outermost:
        raise exc.UserError(exc.UserErrorType.ANTI_PATTERN, reason)  # what a jump takes for data-dependent
    unimplemented(f"a call at {line}", reason, None)


def _asker() -> str:
    """What evaluates the condition: an "operator" (a node of the graph that runs on fake values), a "jump", or another
    instruction."""
    frame: Any = sys._getframe(3)
    while frame is not None:
        name, module = frame.f_code.co_qualname, frame.f_globals.get("__name__")
        if (name, module) == ("get_fake_value", "torch._dynamo.utils"):
            return "operator"
        if module == "torch._dynamo.symbolic_convert":
            return "jump" if name.startswith("generic_jump.") else "instruction"
        frame = frame.f_back
    return "operator"


def _is_at_loop(translator: Any) -> bool:
    """Whether the outermost frame that is traced is in a loop, or on the line of one (``range(n)``, the first test of
    ``while``)."""
    instructions = translator.instructions
    positions = {id(one): position for position, one in enumerate(instructions)}
    here = positions[id(translator.current_instruction)]
    line = translator.lineno
    for end, one in enumerate(instructions):
        start = end if one.target is None else positions.get(id(one.target), end)
        if start < end and (start <= here <= end or line in (_line(one), _line(instructions[start]))):
            return True
    return False


def _line(instruction: Any) -> int | None:
    return instruction.positions.lineno if instruction.positions is not None else None
