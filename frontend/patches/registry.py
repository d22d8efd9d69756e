"""Every change that symshape makes to PyTorch, in one table, and the one way to make them.

The rows stand in ``frontend/patches/tables/``, by what is being traced. ``in_force`` makes the changes of a scope under
Dynamo's compile lock and reverts them, whatever raises. A scope inside of another one, in the same thread, makes what
the other has not made; settings it sets again. Rows are in the order in which they are made: of two that replace one
function the later one calls the earlier one.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence

from torch._dynamo.convert_frame import compile_lock

from symshape.frontend.patches.patch import Changes, Patch, Scope
from symshape.frontend.patches.settings import Change
from symshape.frontend.patches.tables.frame_rows import FRAME_PATCHES, SETTINGS
from symshape.frontend.patches.tables.graph_rows import GRAPH_PATCHES
from symshape.frontend.patches.tables.jit_rows import JIT_PATCHES

# (title, when, rows), in the order in which rows are made.
TABLES: tuple[tuple[str, str, tuple[Patch, ...]], ...] = (
    ("Settings", "While Dynamo traces a frame, or `symshape.jit` a function.", SETTINGS),
    ("Frames", "While Dynamo traces a frame, or `symshape.jit` a function.", FRAME_PATCHES),
    ("Graphs", "While AOTAutograd traces a graph, or splits it.", GRAPH_PATCHES),
    ("symshape.jit", "While `symshape.jit` traces, and while the user's function runs in it.", JIT_PATCHES),
)
PATCHES: tuple[Patch, ...] = tuple(patch for _, _, rows in TABLES for patch in rows)
CURRENT: tuple[Patch, ...] = tuple(patch for patch in PATCHES if patch.is_for_this_version)

_in_force: set[str] = set()  # names of rows, under the compile lock
_probed: set[str] = set()


@contextlib.contextmanager
def in_force(scope: Scope, more: Sequence[Change] = ()) -> Iterator[None]:
    """While entered, the changes of a scope are made, and ``more`` settings. PatchError, and nothing is changed, if
    PyTorch is not what they were made for."""
    with compile_lock, contextlib.ExitStack() as stack:
        changes = stack.enter_context(Changes())
        require_known(scope)
        changes.scope(scope)
        for patch in _rows(scope):
            if patch.is_setting:
                patch.change(changes)
            elif patch.name not in _in_force:
                changes.callback(_in_force.discard, patch.name)
                _in_force.add(patch.name)
                patch.change(changes)
        for change in more:
            change(changes)
        yield


def splitting() -> contextlib.AbstractContextManager[None]:
    """The scope in which a joint graph is split into forward and backward."""
    return in_force(Scope("split"))


@functools.cache
def _rows(scope: Scope) -> tuple[Patch, ...]:
    return tuple(patch for patch in CURRENT if patch.is_for(scope))


def require_known(scope: Scope) -> None:
    """PatchError if PyTorch is not what the changes of a scope were made for. Each is looked at once."""
    with compile_lock:
        for patch in _rows(scope):
            if patch.name not in _probed:
                patch.require_known()
                _probed.add(patch.name)


def probe_all() -> dict[str, str]:
    """What is wrong with each patch of this version, by name; "" for those that PyTorch is as they need it."""
    return {patch.name: "; ".join(patch.wrong()) for patch in CURRENT}
