"""`Patch`, one row of the tables (``registry``), and `Changes`, the stack that applies changes and reverts them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from symshape.errors import PatchError
from symshape.frontend.patches.probes import Exists, Probe, Target

# When a row is in force. plain: while plain `torch.compile` compiles a frame, by whatever rules; frame: while Dynamo
# traces a frame, or `symshape.jit` a function; graph: while AOTAutograd traces Dynamo's graph; jit: while AOTAutograd
# traces for `symshape.jit`; split: while a joint graph is partitioned into forward and backward; function: while the
# user's function runs in the trace of `symshape.jit`.
Phase = Literal["plain", "frame", "graph", "jit", "split", "function"]


@dataclass(frozen=True)
class Versions:
    """A range of PyTorch releases, ``first`` to ``last`` inclusive, such as ``"2.11"``."""

    first: str = "2.11"
    last: str = "2.15"

    def __str__(self) -> str:
        return self.first if self.first == self.last else f"{self.first} to {self.last}"

    def has(self, version: str) -> bool:
        """Whether a version is in the range. A version outside of the known range counts as the nearest known one: a
        row that ends with the last known version stays in force, and its probes decide whether it may."""
        release = min(max(_release(version), _release(Versions.first)), _release(Versions.last))
        return _release(self.first) <= release <= _release(self.last)


def _release(version: str) -> tuple[int, ...]:
    """(2, 13) for ``"2.13.0+cpu"``."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


KNOWN_VERSIONS = Versions()  # the versions tested; pyproject.toml has the same range


@dataclass(frozen=True)
class Scope:
    """What is being traced, and how.

    For a frame: ``run_operators`` allows running users' operators without a fake rule on made-up operands;
    ``only_settings`` applies settings only; ``plain``: Dynamo compiles it for plain ``torch.compile``;
    ``writes_failures`` writes repro files for Dynamo's graphs. For a graph: ``eager_draws`` draws the random numbers of
    eager mode; ``keeps_memory`` keeps what is written in place at its offset in a copy of its whole storage."""

    phase: Phase
    run_operators: bool = True
    eager_draws: bool = True
    only_settings: bool = False
    plain: bool = False
    writes_failures: bool = False
    keeps_memory: bool = False


_SCOPES: list[Scope] = []  # the scopes that are entered, innermost last; accessed under the compile lock


def may_run_operators() -> bool:
    """``run_operators`` of the innermost frame. For replacements that stay in force in nested frames."""
    return next((scope.run_operators for scope in reversed(_SCOPES) if scope.phase == "frame"), True)


def outermost_phase() -> Phase:
    """The phase of the outermost scope. Scopes of graphs may be inside of a frame's, or outermost themselves."""
    return _SCOPES[0].phase


def is_frame_of_ours() -> bool:
    """Whether ``symshape.compile``, rather than plain ``torch.compile``, is compiling a frame."""
    return any(scope.phase == "frame" and not scope.plain for scope in _SCOPES)


def is_plain_frame() -> bool:
    """Whether plain ``torch.compile`` is compiling the innermost frame, by our rules."""
    return next((scope.plain for scope in reversed(_SCOPES) if scope.phase == "frame"), False)


def is_traced_by_our_rules() -> bool:
    """Whether a frame is being compiled by our rules."""
    return any(scope.phase == "frame" for scope in _SCOPES)


_MISSING: Any = object()


class Changes:
    """Applies changes to PyTorch and reverts them, in reverse order, when it is closed.

    The revert of a change is registered before the change is made, and reverting twice equals reverting once. Neither
    an error nor an interrupt between two lines leaves a change behind.
    """

    def __init__(self) -> None:
        self._reverts: list[Callable[[], object]] = []

    def __enter__(self) -> Changes:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._revert()
        finally:
            self._revert()  # if an interrupt stopped the first one

    def _revert(self) -> None:
        failed: Exception | None = None
        while self._reverts:
            try:
                self._reverts[-1]()
            except Exception as error:  # noqa: BLE001 - raised after all others are reverted
                failed = failed or error
            self._reverts.pop()
        if failed is not None:
            raise failed

    def callback(self, revert: Callable[..., object], *arguments: Any) -> None:
        """Calls ``revert(*arguments)`` on close, after later changes are reverted."""
        self._reverts.append(functools.partial(revert, *arguments))

    def scope(self, scope: Scope) -> None:
        """Makes ``scope`` the innermost one."""
        self.callback(_cut, len(_SCOPES))
        _SCOPES.append(scope)

    def attribute(self, owner: Any, name: str, value: Any) -> None:
        """Sets ``owner.name = value``."""
        self.callback(_put_attribute, owner, name, vars(owner).get(name, _MISSING))
        setattr(owner, name, value)

    def wrap(self, owner: Any, name: str, wrapper: Callable[[Callable[..., Any]], Any]) -> None:
        """Replaces ``owner.name`` by ``wrapper(owner.name)``."""
        self.attribute(owner, name, wrapper(getattr(owner, name)))

    def items(self, table: MutableMapping[Any, Any], values: Mapping[Any, Any]) -> None:
        """Sets ``table[key] = value`` for each item of ``values``."""
        self.callback(_put_items, table, {key: table.get(key, _MISSING) for key in values})
        table.update(values)

    def kernels(self, op: Any, table: MutableMapping[Any, Any], values: Mapping[Any, Any]) -> None:
        """Like `items`, for a table of an operator's kernels; also clears the operator's dispatch cache."""
        self.callback(op._dispatch_cache.clear)
        self.items(table, values)
        op._dispatch_cache.clear()

    def without(self, table: MutableMapping[Any, Any], key: Any) -> None:
        """Removes a key from ``table``."""
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


_SHOWN = 6  # number of targets of a row that are listed


def always(_scope: Scope) -> bool:
    """The default of ``Patch.when``: every scope."""
    return True


@dataclass(frozen=True)
class Patch:
    """One row of the tables: a change to PyTorch.

    ``targets``: what is replaced, or a function that returns it. ``change``: applies the change through a `Changes`.
    ``why``: the reason, for the reference. ``probes``: what the change relies on. ``versions``: the releases that the
    row is for, if others need another change or none. ``is_setting``: a configuration value, which every scope sets
    again, also if it applies settings only. ``only_speed``: tracing gives the same result without the row, only slower.
    ``when``: the scopes of its phases that the row is for."""

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
        """Everything but name and reason, as pairs (label, text), for the reference."""
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
        """Whether the row applies to a scope, regardless of the version."""
        left_out = scope.only_settings and not self.is_setting
        return scope.phase in self.phases and not left_out and self.when(scope)

    def wrong(self, also_slow: bool = True) -> list[str]:
        """Descriptions of what has changed in PyTorch: targets that are missing, and probes that fail."""
        targets = (Exists(target, own=True) for target in self.all_targets if isinstance(target, str))
        found = (probe.wrong() for probe in (*self.probes, *targets) if also_slow or not probe.slow)
        return [text for text in found if text]

    def require_known(self) -> None:
        """PatchError if a target is missing or a probe fails. Runs no slow probes."""
        wrong = self.wrong(also_slow=False)
        if wrong:
            raise PatchError(
                f"PyTorch {torch.__version__} is not what the patch '{self.name}' was made for: {'; '.join(wrong)}",
                where=str(self.all_targets[0]),
                next_step=f"use PyTorch {KNOWN_VERSIONS}, or correct the patch: symshape patches --probe",
            )
