"""A graph break in a loop: the part before it is compiled, and the rest of the function runs in eager mode.

Without this Dynamo runs the whole function in eager mode, since it cannot resume in a loop.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CodeType
from typing import Any, NoReturn

from torch._dynamo import exc
from torch._dynamo.symbolic_convert import InstructionTranslator, InstructionTranslatorBase

from symshape.frontend.patches.patch import Changes


def what_comes_before_is_compiled(changes: Changes) -> None:
    """Goes back to the last instruction before which the graph can end, as for a break that cannot be resumed from."""
    original = InstructionTranslatorBase.raise_loop_graph_break
    changes.attribute(InstructionTranslatorBase, "raise_loop_graph_break", staticmethod(_to_a_checkpoint(original)))


@functools.cache
def _to_a_checkpoint(original: Callable[[CodeType, Any], NoReturn]) -> Callable[[CodeType, Any], NoReturn]:
    @functools.wraps(original)
    def raise_loop_graph_break(code: CodeType, error: Any) -> NoReturn:
        translator = InstructionTranslator.current_tx()
        if translator.one_graph or translator.f_code is not code or translator.current_speculation is None:
            original(code, error)
        raise exc.StepUnsupported(f"a graph break in a loop: {error}") from error

    return raise_loop_graph_break
