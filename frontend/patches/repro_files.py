"""Files that show a failure again (``TORCHDYNAMO_REPRO_AFTER=dynamo``) are ours for graphs of ours.

PyTorch's own have the sizes of one call as constants, and what it does to find failures makes them constants too: it
runs what the backend returned while the frame is still traced, with symbols in the place of integers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from symshape.frontend.patches.patch import Changes, Scope


def backends_are_called(changes: Changes) -> None:
    """What PyTorch puts around a backend only calls it."""
    from torch._dynamo.repro.after_dynamo import WrapBackendDebug

    changes.wrap(WrapBackendDebug, "__call__", _direct)


def where_failures_are_written(scope: Scope) -> bool:
    return scope.writes_failures


@functools.cache
def _direct(usual: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(usual)
    def __call__(self: Any, gm: Any, example_inputs: Any, **kwargs: Any) -> Any:
        return self._torchdynamo_orig_backend(gm, example_inputs, **kwargs)

    return __call__
