"""Truth of a number that is in the data: ``if not flag.item():``, ``while steps.item():``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from symshape.frontend.patches.patch import Changes


def truth_of_data_breaks_the_graph(changes: Changes) -> None:
    """Makes a jump on such a number what a jump on a comparison (``flag.item() > 0``) is: the graph is broken there.

    Dynamo asks ``number != 0``, and lets the tracer's error through.
    """
    from torch._dynamo import symbolic_convert

    changes.wrap(symbolic_convert, "guard_bool", _breaking)


@functools.cache
def _breaking(original: Callable[[Any], bool]) -> Callable[[Any], bool]:
    from torch._dynamo.exc import UserError, UserErrorType
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    @functools.wraps(original)
    def guard_bool(number: Any) -> bool:
        try:
            return original(number)
        except GuardOnDataDependentSymNode as error:
            raise UserError(UserErrorType.ANTI_PATTERN, str(error)) from error

    return guard_bool
