"""One change to PyTorch, as a row of the table (``registry``), and the stack that makes changes and reverts them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from symshape.errors import PatchError
from symshape.frontend.patches.probes import Exists, Probe, Target

# frame: Dynamo traces a frame, or `symshape.jit` a function; graph: AOTAutograd traces what Dynamo found;
# jit: AOTAutograd traces for `symshape.jit`; split: it splits a joint graph into forward and backward; function: the
# user's function runs in the trace of `symshape.jit`.
Phase = Literal["frame", "graph", "jit", "split", "function"]


@dataclass(frozen=True)
class Versions:
    """Releases of PyTorch, from ``first`` to ``last`` inclusive: ``"2.11"``."""

    first: str = "2.11"
    last: str = "2.15"

    def __str__(self) -> str:
        return self.first if self.first == self.last else f"{self.first} to {self.last}"

    def has(self, version: str) -> bool:
        """Whether a version is among them. One that nothing here is known for stands for the nearest that is: a row
        that ends with the last known version goes on, and its probes say whether it may."""
        release = min(max(_release(version), _release(Versions.first)), _release(Versions.last))
        return _release(self.first) <= release <= _release(self.last)


def _release(version: str) -> tuple[int, ...]:
    """(2, 13) of ``"2.13.0+cpu"``"""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


KNOWN_VERSIONS = Versions()  # what the tests were run with; pyproject.toml has the same range


@dataclass(frozen=True)
class Scope:
    """What is being traced. Of a frame: ``run_operators``: users' operators without a fake rule are run on made-up
    operands; ``only_settings``: PyTorch's tracing rules stay as they are; ``writes_failures``: of Dynamo's graphs, as
    files. Of a graph: ``eager_draws``: random numbers are eager mode's; ``keeps_memory``: what is written in place
    stays in a copy of all of its memory."""

    phase: Phase
    run_operators: bool = True
    eager_draws: bool = True
    only_settings: bool = False
    writes_failures: bool = False
    keeps_memory: bool = False


_SCOPES: list[Scope] = []  # those that are entered, under the compile lock, the innermost last


def may_run_operators() -> bool:
    """``run_operators`` of the innermost frame, for replacements that are in force for several."""
    return next(scope for scope in reversed(_SCOPES) if scope.phase == "frame").run_operators


def outermost_phase() -> Phase:
    """What is being traced: scopes of graphs are inside of a frame's, or on their own."""
    return _SCOPES[0].phase


def is_frame_of_ours() -> bool:
    """Whether a frame is being compiled by ``symshape.compile``; not by ``torch.compile``."""
    return any(scope.phase == "frame" for scope in _SCOPES)


_MISSING: Any = object()


class Changes:
    """Changes of PyTorch, reverted when it is closed.

    What reverts a change is known before the change is made, and reverting twice is reverting once: whatever raises,
    and an interrupt between two lines, leaves nothing behind.
    """

    def __init__(self) -> None:
        self._reverts: list[Callable[[], object]] = []

    def __enter__(self) -> Changes:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._revert()
        finally:
            self._revert()  # where an interrupt came in between

    def _revert(self) -> None:
        failed: Exception | None = None
        while self._reverts:
            try:
                self._reverts[-1]()
            except Exception as error:  # noqa: BLE001 - raised when the others are reverted
                failed = failed or error
            self._reverts.pop()
        if failed is not None:
            raise failed

    def callback(self, revert: Callable[..., object], *arguments: Any) -> None:
        """``revert(*arguments)`` when it is closed, after what is changed from now on is reverted."""
        self._reverts.append(functools.partial(revert, *arguments))

    def scope(self, scope: Scope) -> None:
        """``scope`` is the current one."""
        self.callback(_cut, len(_SCOPES))
        _SCOPES.append(scope)

    def attribute(self, owner: Any, name: str, value: Any) -> None:
        """``owner.name = value``"""
        self.callback(_put_attribute, owner, name, vars(owner).get(name, _MISSING))
        setattr(owner, name, value)

    def wrap(self, owner: Any, name: str, wrapper: Callable[[Callable[..., Any]], Any]) -> None:
        """``owner.name`` is what ``wrapper`` makes of it."""
        self.attribute(owner, name, wrapper(getattr(owner, name)))

    def items(self, table: MutableMapping[Any, Any], values: Mapping[Any, Any]) -> None:
        """``table[key] = value`` for each of ``values``."""
        self.callback(_put_items, table, {key: table.get(key, _MISSING) for key in values})
        table.update(values)

    def kernels(self, op: Any, table: MutableMapping[Any, Any], values: Mapping[Any, Any]) -> None:
        """As ``items`` of a table of an operator's kernels: what the operator remembers of that is forgotten."""
        self.callback(op._dispatch_cache.clear)
        self.items(table, values)
        op._dispatch_cache.clear()

    def without(self, table: MutableMapping[Any, Any], key: Any) -> None:
        """``table`` has no such key."""
        self.callback(_put_items, table, {key: table.get(key, _MISSING)})
        table.pop(key, None)


def _cut(length: int) -> None:
    del _SCOPES[length:]


def _put_attribute(owner: Any, name: str, value: Any) -> None:
    if value is not _MISSING:
        setattr(owner, name, value)
    elif name in vars(owner):
        delattr(owner, name)


def _put_items(table: MutableMapping[Any, Any], values: Mapping[Any, Any]) -> None:
    for key, value in values.items():
        if value is _MISSING:
            table.pop(key, None)
        else:
            table[key] = value


_SHOWN = 6  # of the targets of a row


def always(_scope: Scope) -> bool:
    """For every scope of the phases."""
    return True


@dataclass(frozen=True)
class Patch:
    """``targets``: what is replaced, or a function that returns it; ``change`` makes the change on a stack that reverts
    it; ``probes``: what the change relies on; ``versions``: for which PyTorch the row is, where versions need other
    changes, or none; ``is_setting``: a configuration value, which is set again by every scope,
    also where PyTorch's own rules hold; ``when``: for which scopes of its phases; ``only_speed``: nothing is traced
    otherwise than without it, only faster."""

    name: str
    phases: tuple[Phase, ...]
    targets: tuple[Target, ...] | Callable[[], Sequence[Target]]
    change: Callable[[Changes], None]
    why: str
    probes: tuple[Probe, ...] = ()
    issue: str | None = None
    versions: Versions = KNOWN_VERSIONS
    is_setting: bool = False
    only_speed: bool = False
    when: Callable[[Scope], bool] = always

    @property
    def all_targets(self) -> tuple[Target, ...]:
        return tuple(self.targets() if callable(self.targets) else self.targets)

    def facts(self) -> Iterator[tuple[str, str]]:
        """All but the name and the reason, for people."""
        targets = [str(target).removeprefix("torch.ops.") for target in self.all_targets]
        shown = ", ".join(f"`{target}`" for target in targets[:_SHOWN])
        yield "replaces", shown + (f" and {len(targets) - _SHOWN} more" if len(targets) > _SHOWN else "")
        if not self.is_setting:
            yield "made by", f"`{self.change.__module__.removeprefix('symshape.')}.{self.change.__name__}`"
        yield "phases", ", ".join(self.phases)
        yield "PyTorch", str(self.versions) + (f"; {self.issue}" if self.issue else "")
        if self.probes:
            yield "relies on", "; ".join(map(str, self.probes))

    @property
    def is_for_this_version(self) -> bool:
        return self.versions.has(torch.__version__)

    def is_for(self, scope: Scope) -> bool:
        """Whether the row is for a scope, whatever the version."""
        return scope.phase in self.phases and (self.is_setting or not scope.only_settings) and self.when(scope)

    def wrong(self, also_slow: bool = True) -> list[str]:
        """What of PyTorch is not as it was: what is replaced, and what the change relies on besides."""
        targets = (Exists(target, own=True) for target in self.all_targets if isinstance(target, str))
        found = (probe.wrong() for probe in (*self.probes, *targets) if also_slow or not probe.slow)
        return [text for text in found if text]

    def require_known(self) -> None:
        """PatchError if PyTorch is not what the change was made for. Runs no slow probes."""
        wrong = self.wrong(also_slow=False)
        if wrong:
            raise PatchError(
                f"PyTorch {torch.__version__} is not what the patch '{self.name}' was made for: {'; '.join(wrong)}",
                where=str(self.all_targets[0]),
                next_step=f"use PyTorch {KNOWN_VERSIONS}, or correct the patch: symshape patches --probe",
            )
