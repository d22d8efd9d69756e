"""All passes by name: one flat table. A new pass is one line in it; a plugin adds its own at run time."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import zlib
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from symshape.errors import OptionError
from symshape.machine.mlir_library import load_mlir

if TYPE_CHECKING:
    from symshape.passes.framework.base import (
        Pass,
    )  # at run time this would load MLIR, which `symshape-opt --help` has no use for

# Modules are imported on first use, so that the tools start fast.
TABLE: dict[str, str] = {
    "simplify-constraints": "symshape.passes.constraints.simplify_constraints:SimplifyConstraints",
    "eliminate-implied": "symshape.passes.constraints.eliminate_implied:EliminateImplied",
    "hoist-guards": "symshape.passes.constraints.hoist_guards:HoistGuards",
    "resolve-dims": "symshape.passes.constraints.resolve_dims:ResolveDims",
    "outline-layers": "symshape.passes.layers.outline_layers:OutlineLayers",
    "compact-masks": "symshape.passes.masks.compact_masks:CompactMasks",
    "lower-aten": "symshape.passes.lowering.lower_aten:LowerAten",
    "inline-scans": "symshape.passes.lowering.inline_scans:InlineScans",
    "unroll-reductions": "symshape.passes.lowering.unroll_reductions:UnrollReductions",
    "inline-into-gathers": "symshape.passes.lowering.inline_into_gathers:InlineIntoGathers",
    "fuse-kernels": "symshape.passes.fusion.fuse_kernels:FuseKernels",
    "outline-scatters": "symshape.passes.fusion.outline_scatters:OutlineScatters",
    "fuse-into-scatters": "symshape.passes.fusion.fuse_into_scatters:FuseIntoScatters",
    "plan-reductions": "symshape.passes.plans.plan_reductions:PlanReductions",
    "plan-tiles": "symshape.passes.plans.plan_tiles:PlanTiles",
    "plan-index-width": "symshape.passes.plans.plan_index_width:PlanIndexWidth",
    "plan-alignment": "symshape.passes.plans.plan_alignment:PlanAlignment",
    "inline-layers": "symshape.passes.layers.inline_layers:InlineLayers",
    "sink-waits": "symshape.passes.memory.sink_waits:SinkWaits",
    "write-slices": "symshape.passes.memory.write_slices:WriteSlices",
    "reuse-buffers": "symshape.passes.memory.reuse_buffers:ReuseBuffers",
}

ENTRY_POINT_GROUP = "symshape.passes"

_plugins: dict[str, type[Pass]] = {}  # registered at run time
_plugin_files: dict[str, Path] = {}  # pass name -> the file it came from, for replay commands


def lookup(name: str) -> type[Pass] | None:
    """The pass class called ``name``, or None: the name may then be one of MLIR's own passes."""
    if name in _plugins:
        return _plugins[name]
    if name in TABLE:
        return _import(name, TABLE[name])
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        if entry.name == name:
            return register(entry.load())
    return None


def names() -> list[str]:
    """Every pass name that ``lookup`` knows, sorted."""
    installed = {entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)}
    return sorted({*TABLE, *_plugins, *installed})


def register(cls: type[Pass]) -> type[Pass]:
    """Adds a pass class under its name (usable as a decorator). Registering the same name again replaces it."""
    if not cls.name:
        raise OptionError(
            f"pass class {cls.__qualname__} has no name", next_step="set `name: ClassVar[str] = 'my-pass'`"
        )
    if cls.name in TABLE:
        raise OptionError(
            f"'{cls.name}' is the name of a built-in pass", next_step="give the plugin's pass another name"
        )
    _plugins[cls.name] = cls
    return cls


def load_pass_file(path: str | Path) -> list[type[Pass]]:
    """Runs a Python file and registers every ``Pass`` subclass defined in it."""
    load_mlir()
    from symshape.passes.framework.base import Pass

    file = Path(path).resolve()
    spec = importlib.util.spec_from_file_location(f"symshape_plugin_{zlib.crc32(bytes(file)):x}_{file.stem}", file)
    if spec is None or spec.loader is None or not file.is_file():
        raise OptionError(f"no Python file with passes at '{path}'", next_step="give the path of a .py file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up while the file runs
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise OptionError(
            f"the file of passes '{path}' cannot be run: {type(error).__name__}: {error}",
            next_step=f"run it by itself (python {path}), or leave it out",
        ) from error
    own = [c for c in vars(module).values() if inspect.isclass(c) and issubclass(c, Pass) and c.__module__ == spec.name]
    if not own:
        raise OptionError(
            f"'{path}' defines no pass",
            next_step="define a subclass of symshape.passes.framework.base.Pass with a name",
        )
    for cls in own:
        register(cls)
        _plugin_files[cls.name] = file
    return own


def is_from(element: str, files: Sequence[str | Path]) -> bool:
    """Whether the pass of a pipeline element is a built-in one, MLIR's, or one that these files define."""
    name = element.partition("{")[0].strip()
    file = _plugin_files.get(name)
    if file is not None:
        return file in [Path(one).resolve() for one in files]
    return name not in _plugins and all(entry.name != name for entry in entry_points(group=ENTRY_POINT_GROUP))


def plugin_file(name: str) -> Path | None:
    """The file that ``load_pass_file`` read the pass from, or None."""
    return _plugin_files.get(name)


def _import(name: str, target: str) -> type[Pass]:
    module_name, _, class_name = target.partition(":")
    cls = getattr(importlib.import_module(module_name), class_name)
    if cls.name != name:
        raise OptionError(
            f"{target} calls itself '{cls.name}', the table calls it '{name}'", next_step="give both the same name"
        )
    return cls  # type: ignore[no-any-return]
