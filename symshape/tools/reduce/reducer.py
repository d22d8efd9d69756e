"""The reduction: applies transformations to as many sites at once as keep the failure, until none applies.

Sites are halved as in delta debugging (Zeller, Hildebrandt: Simplifying and Isolating Failure-Inducing Input). Each
candidate is a copy that is verified before the check runs.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from torch_mlir import ir

from symshape.dialects import verify
from symshape.ir_text import text_of
from symshape.passes.framework.diagnostics import collect_diagnostics
from symshape.tools.reduce.edits import copied, operations_in
from symshape.tools.reduce.transformations import TABLE, Transformation

_CLEANUP: Final = TABLE[:2]  # run after each transformation that applied
_COARSE: Final = 16  # maximum number of parts tried of the sites of a coarse transformation


class Check(Protocol):
    """Whether a module fails as the input does. The check may change the module passed to it."""

    def fails(self, module: ir.Module) -> bool: ...


@dataclass(frozen=True)
class State:
    """Progress: operations left, candidates checked, seconds, and what the current transformation does."""

    operations: int
    tries: int
    seconds: float
    doing: str


@dataclass
class Reduction:
    """A reduction of one module. ``module`` always is valid and fails; ``finished`` once no transformation applies.

    ``limit``: time limit in seconds. ``show`` is called after each check, ``keep`` with each smaller module.
    """

    module: ir.Module
    check: Check
    limit: float = float("inf")
    show: Callable[[State], None] = lambda state: None
    keep: Callable[[ir.Module], None] = lambda module: None
    tries: int = 0
    finished: bool = False
    _begin: float = 0.0
    _operations: int = 0
    _seen: set[bytes] = field(default_factory=set)

    def run(self) -> None:
        """Reduces until no transformation applies, the time limit is over, or KeyboardInterrupt is raised."""
        self._begin = time.monotonic()
        self._operations = len(operations_in(self.module))
        self._seen.add(_digest(self.module))
        try:
            while self._round():
                pass
            self.finished = True
        except (_TimeOver, KeyboardInterrupt):
            pass

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begin

    def _round(self) -> bool:
        changed = False
        for transformation in TABLE:
            if self._reduce(transformation):
                changed = True
                for cleanup in _CLEANUP:
                    self._reduce(cleanup)
        return changed

    def _reduce(self, transformation: Transformation) -> bool:
        """Tries all sites at once, then each half, and so on down to single sites."""
        changed = False
        count = len(transformation.sites(self.module))
        size = count
        finest = max(count // _COARSE, 1) if transformation.coarse else 1
        while count and size >= finest:
            start = 0
            while start < count:
                if not self._try(transformation, start, start + size):
                    start += size
                    continue
                changed = True
                left = len(transformation.sites(self.module))
                start += size if left >= count else 0
                count = left
            size = min(size // 2, max(count, 1)) if size > 1 else 0
        return changed

    def _try(self, transformation: Transformation, start: int, end: int) -> bool:
        if self.seconds > self.limit:
            raise _TimeOver
        with collect_diagnostics(self.module.context), ir.Location.unknown(self.module.context):
            candidate = self._candidate(transformation, start, end)
            if candidate is None:
                return False
            self.tries += 1
            fails = self.check.fails(copied(candidate))
        if fails:
            self.module = candidate
            self._operations = len(operations_in(candidate))
            self.keep(candidate)
        self.show(State(self._operations, self.tries, self.seconds, transformation.does))
        return fails

    def _candidate(self, transformation: Transformation, start: int, end: int) -> ir.Module | None:
        """A copy with the transformation applied; None if it is invalid or was tried before."""
        candidate = copied(self.module)
        try:
            candidate = transformation.apply(candidate, transformation.sites(candidate)[start:end]) or candidate
        except ir.MLIRError:
            return None
        digest = _digest(candidate)
        if digest in self._seen:
            return None
        self._seen.add(digest)
        try:
            return candidate if verify(candidate) else None
        except ir.MLIRError:
            return None


class _TimeOver(Exception):
    pass


def _digest(module: ir.Module) -> bytes:
    return hashlib.sha256(text_of(module).encode()).digest()
