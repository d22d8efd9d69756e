"""All passes by name: one flat table. A new pass is one line in it; a plugin adds its own at run time."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import threading
import zlib
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from symshape.errors import OptionError
from symshape.machine.mlir_library import load_mlir

if TYPE_CHECKING:  # at run time this would load MLIR, which `symshape-opt --help` has no use for
    from symshape.passes.framework.base import Pass

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
    "drop-repeated-checks": "symshape.passes.lowering.drop_repeated_checks:DropRepeatedChecks",
    "inline-into-gathers": "symshape.passes.lowering.inline_into_gathers:InlineIntoGathers",
    "fuse-kernels": "symshape.passes.fusion.fuse_kernels:FuseKernels",
    "outline-scatters": "symshape.passes.fusion.outline_scatters:OutlineScatters",
    "fuse-into-scatters": "symshape.passes.fusion.fuse_into_scatters:FuseIntoScatters",
    "mix-reductions": "symshape.passes.plans.mix_reductions:MixReductions",
    "plan-reductions": "symshape.passes.plans.plan_reductions:PlanReductions",
    "plan-tiles": "symshape.passes.plans.plan_tiles:PlanTiles",
    "plan-index-width": "symshape.passes.plans.plan_index_width:PlanIndexWidth",
    "plan-alignment": "symshape.passes.plans.plan_alignment:PlanAlignment",
    "inline-layers": "symshape.passes.layers.inline_layers:InlineLayers",
    "sink-waits": "symshape.passes.memory.sink_waits:SinkWaits",
    "write-slices": "symshape.passes.memory.write_slices:WriteSlices",
    "write-inputs": "symshape.passes.memory.write_inputs:WriteInputs",
    "reuse-buffers": "symshape.passes.memory.reuse_buffers:ReuseBuffers",
}

ENTRY_POINT_GROUP = "symshape.passes"

_plugins: dict[str, type[Pass]] = {}  # registered at run time
_MODULE = "symshape_plugin_"  # how modules begin that are made of files of passes
_ran: dict[Path, tuple[bytes, tuple[type[Pass], ...]]] = {}  # files of passes: the text that was run, and its passes
_running = threading.RLock()  # a file is run once, also where threads compile side by side


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
    """All pass names that ``lookup`` knows, sorted."""
    installed = {entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)}
    return sorted({*TABLE, *_plugins, *installed})


def register(cls: type[Pass]) -> type[Pass]:
    """Adds a pass class under its name (usable as a decorator). Registering the same name again replaces it."""
    _check_name(cls)
    _plugins[cls.name] = cls
    return cls


def _check_name(cls: type[Pass]) -> None:
    if not cls.name:
        raise OptionError(
            f"pass class {cls.__qualname__} has no name", next_step="set `name: ClassVar[str] = 'my-pass'`"
        )
    if cls.name in TABLE:
        raise OptionError(
            f"'{cls.name}' is the name of a built-in pass", next_step="give the plugin's pass another name"
        )


def load_pass_file(path: str | Path) -> tuple[type[Pass], ...]:
    """Registers the passes of a Python file (``passes_of_file``), for a tool that names passes in its arguments."""
    found = passes_of_file(path)
    for cls in found:
        register(cls)
    return found


def passes_of_file(path: str | Path) -> tuple[type[Pass], ...]:
    """Every ``Pass`` subclass that a Python file defines. The file is run once, and again if its text has changed.

    OptionError for a file that does not exist, cannot be run, or defines no pass, and for a pass with the name of a
    built-in one.
    """
    file = Path(path).resolve()
    if file.suffix != ".py" or not file.is_file():
        raise OptionError(f"no Python file with passes at '{path}'", next_step="give the path of a .py file")
    with _running:
        text = file.read_bytes()
        if file not in _ran or _ran[file][0] != text:
            _ran[file] = text, _run(file, path)
        return _ran[file][1]


def _run(file: Path, path: str | Path) -> tuple[type[Pass], ...]:
    load_mlir()
    from symshape.passes.framework.base import Pass

    spec = importlib.util.spec_from_file_location(f"{_MODULE}{zlib.crc32(bytes(file)):x}_{file.stem}", file)
    assert spec is not None and spec.loader is not None  # there are, for a name that ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up while the file runs
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise OptionError(
            f"the file of passes '{path}' cannot be run: {type(error).__name__}: {error}",
            next_step=f"run it by itself (python {path}), or leave it out",
        ) from error
    classes = [c for c in vars(module).values() if inspect.isclass(c) and issubclass(c, Pass)]
    own = tuple(dict.fromkeys(c for c in classes if c.__module__ == spec.name))  # a class may have two names
    if not own:
        raise OptionError(
            f"'{path}' defines no pass",
            next_step="define a subclass of symshape.passes.framework.base.Pass with a name",
        )
    for cls in own:
        _check_name(cls)
    return own


def is_from(element: str, files: Sequence[str | Path]) -> bool:
    """Whether the pass of a pipeline element is a built-in one, MLIR's, or one that these files define.

    No file is run for that, which would load MLIR: the passes of a file are known once the compiler has run it.
    """
    name = element.partition("{")[0].strip()
    ran = [cls for file in files if (known := _ran.get(Path(file).resolve())) for cls in known[1]]
    if name in TABLE or any(cls.name == name for cls in ran):
        return True
    return name not in _plugins and all(entry.name != name for entry in entry_points(group=ENTRY_POINT_GROUP))


def file_of(cls: type[Pass]) -> Path | None:
    """The file of passes that defines it; None for one of an importable module."""
    return Path(inspect.getfile(cls)) if cls.__module__.startswith(_MODULE) else None


def _import(name: str, target: str) -> type[Pass]:
    module_name, _, class_name = target.partition(":")
    cls = getattr(importlib.import_module(module_name), class_name)
    if cls.name != name:
        raise OptionError(
            f"{target} calls itself '{cls.name}', the table calls it '{name}'", next_step="give both the same name"
        )
    return cls  # type: ignore[no-any-return]
