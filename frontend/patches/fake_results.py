"""Fake results of operators: which of them the tracer takes from its cache, and what it logs where there is none."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

from torch._subclasses.fake_tensor import FakeTensorMode

from symshape.frontend.patches.patch import Changes, outermost_phase
from symshape.frontend.patches.probes import Named

LOGGER = "torch._subclasses.fake_tensor"


def caches_are_apart(changes: Changes) -> None:
    """What was traced by PyTorch's rules is not taken for what ours would say, nor the other way round: the cache of
    fake results outlives a compile, and that of a ShapeEnv is filled by Dynamo before the backend has its turn."""
    changes.wrap(FakeTensorMode, "_cache_key", functools.partial(_marked, f"symshape {outermost_phase()}"))


@functools.cache
def _marked(mark: str, usual: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(usual)
    def cache_key(self: Any, state: Any, func: Any, args: Any, kwargs: Any) -> Any:
        key = usual(self, state, func, args, kwargs)
        # The same object: PyTorch has told the finalizers of what is in the key to remove it. To hash all of it again
        # would take as long as the first time.
        key.key, key.hashvalue = (*key.key, mark), hash((key.hashvalue, mark))
        return key

    return cache_key


def errors_are_only_raised(changes: Changes) -> None:
    """What cannot be traced is raised. Logged as well, it would look like an error where the call becomes opaque."""
    logger = logging.getLogger(LOGGER)
    changes.callback(logger.removeFilter, _is_no_error)
    logger.addFilter(_is_no_error)


def _is_no_error(record: logging.LogRecord) -> bool:
    return record.levelno < logging.ERROR


def filter_targets() -> list[Named]:
    """The filters of the tracer's logger."""
    return [Named(f"filters of the logger {LOGGER}", lambda: list(logging.getLogger(LOGGER).filters))]
