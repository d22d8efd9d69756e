"""Caches results of arithmetic on symbolic sizes, and decided conditions on them, for one shape environment.

The cached operations are in ``frontend/patches/speed/symbolic_arithmetic.py``. An environment has a cache only if it
traces for symshape (``start_caching``): other threads trace with environments of their own, without it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

ON_INTEGERS = (
    "add", "sub", "mul", "int_floordiv", "eq", "ne", "lt", "le", "gt", "ge", "sym_max", "sym_min",
)  # fmt: skip
ON_BOOLEANS = ("and_", "or_")
BINARY = (*ON_INTEGERS, *ON_BOOLEANS)  # methods of SymNode; not `mod`, which reads the ranges of symbols
ATTRIBUTE = "symshape_memory"  # of a shape environment

# The parts of a SymNode: its expression, type, hint, and whether it is a sum of symbols.
Parts = tuple[Any, type, Any, bool]


class SizeCache:
    """The cache of one shape environment.

    ``decisions``: (expression, size-oblivious, default, guards suppressed) -> the answer, for which there is a guard
    unless it is the default; ``integers``: expression -> its constant value, or None; ``numbers``: number -> its
    ``SymNode``; ``layouts``: (property, sizes and strides, guards suppressed) -> the answer. These never change.
    ``general``: for the keys of ``decisions``, an answer that is right for other sizes than the hints, with the number
    of guards: code that evaluates the condition without a default makes a guard of the other answer, which holds from
    then on. ``empty``: (size, guards suppressed), of sizes that were compared with 0.
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
        """Operands -> the result of ``operation``. Cleared when a symbol is replaced: a cached operand keeps its old
        expression, which then means another one."""
        version = env._replacements_version_counter
        if version != self._version:
            for results in self._results.values():
                results.clear()
            self._version = version
        return self._results[operation]


def start_caching(env: Any) -> None:
    """Gives ``env`` a cache, unless PyTorch records or validates its operations, or is a version (2.11) that does not
    count replacements."""
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
