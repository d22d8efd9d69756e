"""One change to PyTorch, as a row of the table (``registry``), and the stack that makes changes and reverts them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from symshape.errors import PatchError
from symshape.frontend.patches.probes import Probe, Target

# frame: Dynamo traces a frame, or `symshape.jit` a function; graph: AOTAutograd traces what Dynamo found;
# jit: AOTAutograd traces for `symshape.jit`; function: the user's function runs in that trace.
Phase = Literal["frame", "graph", "jit", "function"]
KNOWN_VERSIONS = "2.11 to 2.13"


@dataclass(frozen=True)
class Scope:
    """What is being traced. ``run_operators``: users' operators without a fake rule are run on made-up operands;
    ``eager_draws``: random numbers are eager mode's; ``transforms``: the graph has transforms of ``torch.func``;
    ``only_settings``: PyTorch's tracing rules stay as they are."""

    phase: Phase
    run_operators: bool = True
    eager_draws: bool = True
    transforms: bool = False
    only_settings: bool = False


_SCOPES: list[Scope] = []  # those that are entered, under the compile lock, the innermost last


def current_scope() -> Scope:
    """The innermost scope, for replacements that are in force for several."""
    return _SCOPES[-1]


_MISSING: Any = object()


class Changes(contextlib.ExitStack):
    """Changes of PyTorch, reverted when it is closed. What reverts a change is known before the change is made:
    whatever raises, and an interrupt between two lines, leaves nothing behind."""

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


def always(_scope: Scope) -> bool:
    """For every scope of the phases."""
    return True


@dataclass(frozen=True)
class Patch:
    """``targets``: what is replaced, or a function that returns it; ``change`` makes the change on a stack that reverts
    it; ``probes``: what the change relies on; ``is_setting``: a configuration value, which is set again by every scope,
    also where PyTorch's own rules hold; ``when``: for which scopes of its phases."""

    name: str
    phases: tuple[Phase, ...]
    targets: tuple[Target, ...] | Callable[[], Sequence[Target]]
    change: Callable[[Changes], None]
    why: str
    probes: tuple[Probe, ...] = ()
    issue: str | None = None
    versions: str = KNOWN_VERSIONS
    is_setting: bool = False
    when: Callable[[Scope], bool] = always

    @property
    def all_targets(self) -> tuple[Target, ...]:
        return tuple(self.targets() if callable(self.targets) else self.targets)

    def is_for(self, scope: Scope) -> bool:
        return scope.phase in self.phases and (self.is_setting or not scope.only_settings) and self.when(scope)

    def probe(self, also_slow: bool = True) -> None:
        """PatchError if what the change relies on is not as it was."""
        for probe in self.probes:
            if also_slow or not probe.slow:
                wrong = probe.wrong()
                if wrong:
                    raise PatchError(
                        f"PyTorch {torch.__version__} is not what the patch '{self.name}' was made for: {wrong}",
                        where=", ".join(map(str, self.all_targets[:3])),
                        next_step=f"use PyTorch {self.versions}, or correct the patch: symshape patches --probe",
                    )
