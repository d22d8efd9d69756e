"""Fake results of operators: separates their cache entries by phase, and silences logs of errors that are handled."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

from torch._subclasses.fake_tensor import FakeTensorMode

from symshape.frontend.patches.patch import Changes, outermost_phase
from symshape.frontend.patches.probes import Named

LOGGER = "torch._subclasses.fake_tensor"


def cache_entries_are_separated(changes: Changes) -> None:
    """Separates cached results of PyTorch's rules from those of our rules. The cache outlives a compile, and a
    ShapeEnv's cache is filled by Dynamo before the backend runs."""
    changes.wrap(FakeTensorMode, "_cache_key", functools.partial(_marked, f"symshape {outermost_phase()}"))


@functools.cache
def _marked(mark: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def cache_key(self: Any, state: Any, func: Any, args: Any, kwargs: Any) -> Any:
        key = original(self, state, func, args, kwargs)
        # Changed in place: PyTorch has registered this object with finalizers. Rehashing all parts would take as long
        # as the first time.
        key.key, key.hashvalue = (*key.key, mark), hash((key.hashvalue, mark))
        return key

    return cache_key


def errors_are_only_raised(changes: Changes) -> None:
    """Silences the log of calls that cannot be traced. They raise, and then become opaque calls."""
    logger = logging.getLogger(LOGGER)
    changes.callback(logger.removeFilter, _is_no_error)
    logger.addFilter(_is_no_error)


def _is_no_error(record: logging.LogRecord) -> bool:
    return record.levelno < logging.ERROR


def filter_targets() -> list[Named]:
    """The filters of the tracer's logger, as a target."""
    return [Named(f"filters of the logger {LOGGER}", lambda: list(logging.getLogger(LOGGER).filters))]
