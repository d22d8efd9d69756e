"""Replaces PyTorch's repro files (``TORCHDYNAMO_REPRO_AFTER=dynamo``) by ours for graphs that symshape compiles.

PyTorch's files have the sizes of one call as constants, and its search for failures makes sizes constant: it runs the
backend's result while the frame is still being traced, with symbols in place of integers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from symshape.frontend.patches.patch import Changes, Scope


def backends_are_called(changes: Changes) -> None:
    """Makes PyTorch's wrapper around a backend just call the backend."""
    from torch._dynamo.repro.after_dynamo import WrapBackendDebug

    changes.wrap(WrapBackendDebug, "__call__", _direct)


def where_failures_are_written(scope: Scope) -> bool:
    return scope.writes_failures


@functools.cache
def _direct(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def __call__(self: Any, gm: Any, example_inputs: Any, **kwargs: Any) -> Any:
        return self._torchdynamo_orig_backend(gm, example_inputs, **kwargs)

    return __call__
