"""Caches results of arithmetic on symbolic sizes and decisions about them, for one shape environment.

The operations that ask are in ``frontend/patches/speed/symbolic_arithmetic.py``. An environment has a cache only if it
traces for symshape (``start_caching``): other threads trace with environments of their own, and see nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

ON_INTEGERS = (
    "add", "sub", "mul", "int_floordiv", "eq", "ne", "lt", "le", "gt", "ge", "sym_max", "sym_min",
)  # fmt: skip
ON_BOOLEANS = ("and_", "or_")
BINARY = (*ON_INTEGERS, *ON_BOOLEANS)  # methods of SymNode; `mod` asks for the ranges of symbols, and is not here
ATTRIBUTE = "symshape_memory"  # of a shape environment

# What a SymNode is made of: its expression, type, value at the first call, and whether it is a sum of symbols.
Parts = tuple[Any, type, Any, bool]


class SizeCache:
    """The cache of one shape environment.

    ``decisions``: (expression, size-oblivious, default, guards suppressed) -> the answer, for which there is a guard
    unless it is the default; ``integers``: expression -> the number that it is, or None; ``numbers``: number -> its
    ``SymNode``; ``layouts``: what was asked, sizes and strides, guards suppressed -> the answer. None of them ever
    changes. ``general``: of the same questions, an answer that is right for other sizes than those at hand, and the
    number of guards: who asks without a default makes a guard of the other answer, which holds from then on.
    ``empty``: (size, guards suppressed), of those that were asked whether they are 0.
    """

    def __init__(self, env: Any) -> None:
        self._version = env._replacements_version_counter
        self._results: dict[str, dict[tuple[Any, Any], Parts]] = {name: {} for name in BINARY}
        self.decisions: dict[tuple[Any, bool, bool | None, bool], Any] = {}
        self.general: dict[tuple[Any, bool, bool | None, bool], tuple[Any, int]] = {}
        self.integers: dict[Any, int | None] = {}
        self.numbers: dict[int, Any] = {}
        self.layouts: dict[Any, Any] = {}
        self.empty: set[tuple[Any, bool]] = set()

    def results(self, operation: str, env: Any) -> dict[tuple[Any, Any], Parts]:
        """Operands -> the result of ``operation``. Forgotten when a symbol is replaced: an operand is kept as it was
        made, and means another expression then."""
        version = env._replacements_version_counter
        if version != self._version:
            for results in self._results.values():
                results.clear()
            self._version = version
        return self._results[operation]


def start_caching(env: Any) -> None:
    """``env`` has a cache from now on, unless PyTorch is asked to record or to validate what is done with it, or is
    one (2.11) that does not count replacements."""
    if env is None or hasattr(env, ATTRIBUTE) or not hasattr(env, "_replacements_version_counter"):
        return
    if not env._translation_validation_enabled and not env.should_record_events:
        setattr(env, ATTRIBUTE, SizeCache(env))


def cache_of(env: Any) -> SizeCache | None:
    """The cache of a shape environment, if it has one."""
    cache: SizeCache | None = getattr(env, ATTRIBUTE, None)
    return cache


def cache_of_sizes(sizes: Iterable[Any]) -> SizeCache | None:
    """The cache of the shape environment that the sizes of a tensor are traced in; None if all are known."""
    for size in sizes:
        if isinstance(size, torch.SymInt):
            return cache_of(size.node.shape_env)
    return None
