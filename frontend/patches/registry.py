"""The table of all patches of PyTorch, and `in_force`, the only way to apply them.

The rows of a subject are in its folder (``frontend/patches/sizes/size_rows.py``), beside the replacements.
``in_force`` applies the changes of a scope under Dynamo's compile lock, and reverts them whatever is raised. A nested
scope (of the same thread) applies only changes that are not in force yet, but sets settings again. Rows are applied in
order: if two rows replace the same function, the later replacement calls the earlier one.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from types import ModuleType

from torch._dynamo.convert_frame import compile_lock

from symshape.frontend.patches import settings_rows
from symshape.frontend.patches.aot_autograd import aot_autograd_rows
from symshape.frontend.patches.checks import check_rows
from symshape.frontend.patches.fake_results import fake_result_rows
from symshape.frontend.patches.inputs import input_rows
from symshape.frontend.patches.jit import jit_rows
from symshape.frontend.patches.nested_tensors import nested_tensor_rows
from symshape.frontend.patches.opaque_calls import opaque_call_rows
from symshape.frontend.patches.patch import Changes, Patch, Scope
from symshape.frontend.patches.python import python_rows
from symshape.frontend.patches.settings import Change
from symshape.frontend.patches.sizes import size_rows
from symshape.frontend.patches.speed import import_rows, speed_rows
from symshape.frontend.patches.subgraphs import subgraph_rows
from symshape.frontend.patches.unbacked import unbacked_rows

# Title and module of each table; the module's docstring describes it in the reference. The order matters if rows of two
# tables replace one function: a cache wraps the rules whose results it keeps (sizes before speed), and opaque calls
# handle errors that other rows of `run_node` leave (sizes, checks, opaque calls). Rows that replace decompositions
# import Inductor's table first, so what makes that import faster comes before all of them.
TABLES: tuple[tuple[str, ModuleType], ...] = (
    ("Settings", settings_rows),
    ("Imports", import_rows),
    ("Inputs", input_rows),
    ("Sizes 0 and 1", size_rows),
    ("Nested tensors", nested_tensor_rows),
    ("Unbacked sizes", unbacked_rows),
    ("Fake results", fake_result_rows),
    ("Speed", speed_rows),
    ("Python", python_rows),
    ("Checks", check_rows),
    ("Subgraphs", subgraph_rows),
    ("Opaque calls and fake rules", opaque_call_rows),
    ("AOTAutograd", aot_autograd_rows),
    ("symshape.jit", jit_rows),
)
PATCHES: tuple[Patch, ...] = tuple(patch for _, table in TABLES for patch in table.ROWS)
CURRENT: tuple[Patch, ...] = tuple(patch for patch in PATCHES if patch.is_for_this_version)

_in_force: set[str] = set()  # names of the rows in force; accessed under the compile lock
_probed: set[str] = set()


@contextlib.contextmanager
def in_force(scope: Scope, more: Sequence[Change] = ()) -> Iterator[None]:
    """A context in which the changes of a scope, and the settings ``more``, are in force. PatchError, before anything
    is changed, if a probe fails."""
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
    """The scope in which a joint graph is partitioned into forward and backward."""
    return in_force(Scope("split"))


@functools.cache
def _rows(scope: Scope) -> tuple[Patch, ...]:
    return tuple(patch for patch in CURRENT if patch.is_for(scope))


def require_known(scope: Scope) -> None:
    """PatchError if a patch of a scope cannot be applied to this PyTorch. Each patch is checked once per process."""
    with compile_lock:
        for patch in _rows(scope):
            if patch.name not in _probed:
                patch.require_known()
                _probed.add(patch.name)


def probe_all() -> dict[str, str]:
    """What is wrong with each patch for this version, by name; "" if all its probes succeed."""
    return {patch.name: "; ".join(patch.wrong()) for patch in CURRENT}
