"""Warnings of functions that run while a frame is compiled: each once, with numbers in the place of symbols.

A function of PyTorch's in the graph (`F.mse_loss` of sizes that differ) runs for each trace of a graph: while Dynamo
traces, and three times in AOTAutograd. Its warning named symbols (`torch.Size([s77, 1])`), and a line of the tracer.
"""

from __future__ import annotations

import re
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from symshape.frontend.bridge.fake_tensors import shape_env_of_mode, tracing_mode
from symshape.frontend.bridge.shape_env import symbol_hints
from symshape.frontend.bridge.source_lines import is_of_torch, traced_line_now
from symshape.frontend.patches.patch import Changes

_SYMBOL = re.compile(r"\bs\d+\b")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_ARITHMETIC = re.compile(r"[\d\s+*/()-]+")


def warnings_of_functions(changes: Changes) -> None:
    """Replaces what Python calls with a warning that its filters let pass."""
    python: Any = warnings
    changes.attribute(python, "_showwarnmsg", _once(python._showwarnmsg))


def _once(original: Callable[..., None]) -> Callable[..., None]:
    given: set[Any] = set()
    thread = threading.get_ident()

    def show(message: Any) -> None:
        if threading.get_ident() != thread:
            original(message)
            return
        by, text = sys._getframe(1), with_numbers(str(message.message), _hints())
        key = by.f_code, by.f_lineno, message.category, text
        if key not in given:
            given.add(key)
            original(_spoken(message, text))

    return show


def _hints() -> Mapping[str, int]:
    env = shape_env_of_mode(tracing_mode(()))
    return {} if env is None else symbol_hints(env)


def with_numbers(text: str, hints: Mapping[str, int]) -> str:
    """The text with the numbers of this call: symbols, and expressions that are items of a list, such as sizes."""
    if not any(name in hints for name in _SYMBOL.findall(text)):
        return text
    replaced = _SYMBOL.sub(lambda found: str(hints.get(found[0], found[0])), text)
    return _BRACKETS.sub(lambda found: "[" + ", ".join(map(_computed, found[1].split(", "))) + "]", replaced)


def _computed(item: str) -> str:
    if not _ARITHMETIC.fullmatch(item) or item.strip().isdigit():
        return item
    try:
        return str(eval(item))  # noqa: S307 - digits and operators alone
    except (SyntaxError, TypeError, ZeroDivisionError):
        return item


def _spoken(message: Any, text: str) -> Any:
    """The message with this text, at the user's line where it is at one of the tracer's."""
    file, _, line = traced_line_now().rpartition(":") if is_of_torch(message.filename) else ("", "", "")
    said = message.message if text == str(message.message) else message.category(text)
    where = (file, int(line)) if file else (message.filename, message.lineno)
    made: Any = warnings.WarningMessage
    return made(said, message.category, *where, None, None, message.source)
