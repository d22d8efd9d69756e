"""Calls a function on a new chunk of CPython's frame stack, so that calls in a loop do not cross a chunk's end.

CPython keeps frames in chunks of 16 KiB. A call that does not fit allocates a chunk, which is freed when it returns:
two system calls. A loop that happens to run at the end of a chunk pays that for every call, and where chunks end
depends on the depth of the user's own calls. Importing a graph of T5 took 0.04 s or 0.18 s, two frames deeper.

See ``push_chunk`` and ``_PyThreadState_PopFrame`` in CPython's Python/pystate.c.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
# Words of a frame that is in a chunk of twice its size: 63 KiB are left, some 300 frames.
_WORDS = 8200


def _call(function: Callable[Parameters, Result], /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
    return function(*args, **kwargs)


# ``with_room(function, ...)`` is ``function(...)``, on a chunk of its own: the frame claims more than it uses.
with_room = FunctionType(_call.__code__.replace(co_stacksize=_WORDS), globals(), "with_room")
