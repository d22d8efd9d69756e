"""Records compiled graphs: a folder for each, from which it can be compiled again without the model.

``SYMSHAPE_RECORD=DIR`` writes ``DIR/<number>-<kind>-<hash>/``; ``symshape replay`` reads it (docs/debugging.md). It
contains no data of the user: of constants only layouts, unless ``SYMSHAPE_RECORD_DATA`` requests their values.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from symshape import knobs
from symshape.artifact.compiled_program import target_name
from symshape.errors import OptionError
from symshape.frontend.bridge.fake_tensors import is_fake
from symshape.frontend.bridge.guards import deferred_runtime_asserts, shape_env_guards
from symshape.frontend.bridge.running_operators import without_modes
from symshape.frontend.bridge.shape_env import replacements, symbol_hint, symbol_range, symbol_sources, symbols_of
from symshape.machine.instruction_sets import processor
from symshape.options import Options
from symshape.policy import SpecialisationPolicy
from symshape.random_tensors import extent
from symshape.stage_header import with_header

if TYPE_CHECKING:  # a graph from the cache needs neither
    from symshape.tools.report import GraphReport

FORMAT: Final = 1
ABOUT, OPTIONS, PROGRAM, CONSTANTS = "about.json", "options.json", "program.py", "constants.pt"
KERNELS, FILES = "kernels", "files"
SUFFIXES: Final = {"cpu": "mlir", "triton": "py"}


def is_recording() -> bool:
    """Whether graphs are recorded."""
    return knobs.RECORD.read() is not None


def record_graph(gm: torch.fx.GraphModule, env: Any, options: Options, kind: str) -> Recording | None:
    """Begins the recording of a graph, where graphs are recorded. OptionError where it cannot be written."""
    root = knobs.RECORD.read()
    if root is None:
        return None
    text = gm.print_readable(print_output=False, include_stride=True, include_device=True)
    about = {
        "format": FORMAT,
        "kind": kind,
        "outcome": "not finished",
        "versions": _versions(options),
        "arguments": [describe(node.name, node.meta.get("val")) for node in gm.graph.find_nodes(op="placeholder")],
    }
    try:
        folder = _new_folder(Path(root), f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:12]}")
        (folder / "graph.txt").write_text(text + "\n", encoding="utf-8")
        _write_json(folder / "environment.json", _environment(env))
        _write_json(folder / OPTIONS, _options(options, folder))
    except OSError as error:
        raise _unwritable(root, error) from error
    recording = Recording(folder, about)
    recording.write_about()
    return recording


@dataclass(frozen=True)
class Recording:
    """A recording that is being written. ``about``: the present contents of ``about.json``."""

    folder: Path
    about: dict[str, Any]

    def imported(self, target: str, device: str, constants: Sequence[Any]) -> None:
        """Called when the graph has become IR, for this target and device of buffers."""
        described = [describe_constant(one) for one in constants]
        self.about.update(target=target, device=device, constants=described)
        self.write_about()
        if knobs.RECORD_DATA.read():
            with without_modes():
                values = {i: one.detach().cpu() for i, one in enumerate(constants) if _has_values(one)}
                torch.save(values, self.folder / CONSTANTS)

    def stage(self, stage: str, text: str) -> None:
        """The IR after a stage; a later attempt at the compile writes it again."""
        self._write(f"{stage}.mlir", with_header(stage, text))

    def failed(self, error: Exception) -> None:
        """Called when an attempt at the compile has failed."""
        self.about["outcome"] = f"failed: {error}"
        self.write_about()

    def end(self, report: GraphReport) -> None:
        """The graph is compiled."""
        self.about["outcome"] = "library calls" if report.target == "calls" else "compiled"
        self.about["fallbacks"] = [dataclasses.asdict(one) for one in report.fallbacks]
        self._write(PROGRAM, report.program_source)
        for kernel in report.kernels:
            self._write(f"{KERNELS}/{kernel.name}.{SUFFIXES[kernel.target]}", kernel.source)
        self.write_about()

    def write_about(self) -> None:
        """Writes what is known so far, which remains if the compile crashes the process."""
        self._write(ABOUT, _json(self.about))

    def _write(self, name: str, text: str) -> None:
        file = self.folder / name
        try:
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise _unwritable(str(self.folder), error) from error


def _unwritable(folder: str, error: OSError) -> OptionError:
    return OptionError(
        f"nothing can be recorded in {folder}: {error}", next_step=f"set {knobs.RECORD.name} to another folder"
    )


def _new_folder(root: Path, name: str) -> Path:
    """A folder with the next free number; several processes may record into one folder."""
    root.mkdir(parents=True, exist_ok=True)
    number = 1 + max((int(one.name.partition("-")[0]) for one in recordings_in(root)), default=-1)
    while True:
        try:
            (folder := root / f"{number:04d}-{name}").mkdir()
            return folder
        except FileExistsError:
            number += 1


def recordings_in(root: Path) -> list[Path]:
    """The recordings of a folder, in order."""
    return sorted(one for one in root.iterdir() if one.is_dir() and one.name.partition("-")[0].isdigit())


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def _write_json(file: Path, value: Any) -> None:
    file.write_text(_json(value), encoding="utf-8")


# --- what is written --------------------------------------------------------------------------------------------------


def describe(name: str, value: Any) -> dict[str, Any]:
    """An argument of the graph: sizes and strides as expressions, no values."""
    found: dict[str, Any] = {"name": name, "type": type(value).__name__}
    if isinstance(value, torch.Tensor):
        found |= {"dtype": str(value.dtype), "device": str(value.device), "layout": str(value.layout)}
        found |= {"shape": list(map(str, value.size())), "requires_grad": value.requires_grad}
        if value.layout == torch.strided:
            found |= {"stride": list(map(str, value.stride())), "offset": str(value.storage_offset())}
    elif isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        found["expression"] = str(value)
    return found


def describe_constant(value: Any) -> dict[str, Any]:
    """A Python object that the IR refers to by position: a tensor's layout, an operator's name, else its type."""
    if isinstance(value, torch.Tensor):
        sizes = {"shape": list(value.size())} | ({"stride": list(value.stride())} if _is_strided(value) else {})
        return {"kind": "tensor", "dtype": str(value.dtype), "device": str(value.device), **sizes}
    if isinstance(value, (torch._ops.OpOverload, torch._ops.HigherOrderOperator)):
        return {"kind": "operator", "name": target_name(value)}
    return {"kind": "object", "type": type(value).__name__}


def _has_values(constant: Any) -> bool:
    return isinstance(constant, torch.Tensor) and not is_fake(constant)


def _is_strided(value: torch.Tensor) -> bool:
    return value.layout == torch.strided


def _environment(env: Any) -> dict[str, Any]:
    """The facts of the ShapeEnv, as text."""
    if env is None:
        return {"symbols": [], "guards": [], "asserted": [], "replaced": []}
    sources = {str(symbol): names for symbol, names in symbol_sources(env).items()}
    return {
        "symbols": [
            {
                "name": name,
                "sources": sources.get(name, []),
                "range": symbol_range(env, symbol),
                "hint": symbol_hint(env, symbol),
            }
            for name, symbol in symbols_of(env).items()
        ],
        "guards": [{"condition": str(one), "line": _line(line)} for one, line in shape_env_guards(env)],
        "asserted": [{"condition": str(one), "message": text} for one, text in deferred_runtime_asserts(env)],
        "replaced": [{"symbol": str(s), "by": str(by), "line": _line(line)} for s, by, line in replacements(env)],
    }


def _line(line: tuple[str, int]) -> str:
    return f"{line[0]}:{line[1]}" if line[1] else line[0]


def _versions(options: Options) -> Mapping[str, Any]:
    from symshape.cache.compiled_graphs import versions

    return {**versions(), "processor": [str(one) for one in processor(options.cpu)]}


def _options(options: Options, folder: Path) -> dict[str, Any]:
    """All options. The files that they name are copied into the folder."""
    values = dataclasses.asdict(options)
    values["pass_files"] = [_copied(f"{i}-", file, folder) for i, file in enumerate(options.pass_files)]
    values["stage"] = {stage: _copied(f"{stage}-", file, folder) for stage, file in options.stage}
    values["pass_options"] = dict(options.pass_options)
    return {**values, "debug_dir": str(options.debug_dir)}


def _copied(before: str, file: str | Path, folder: Path) -> str:
    name = f"{FILES}/{before}{Path(file).name}"
    (folder / FILES).mkdir(exist_ok=True)
    shutil.copyfile(file, folder / name)
    return name


# --- what is read -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recorded:
    """A recording that was read. ``kernels``: source by name; ``stages``: IR by stage."""

    folder: Path
    about: Mapping[str, Any]
    options: Options
    stages: Mapping[str, str]
    program: str
    kernels: Mapping[str, str]

    @property
    def is_compiled(self) -> bool:
        """Whether there is a program to compare with."""
        return self.about["outcome"] == "compiled"

    def other_versions(self) -> list[str]:
        """Names of the versions that differ between the recording and this process."""
        here = _versions(self.options)
        return [name for name, version in self.about["versions"].items() if here.get(name) != version]


def read_recording(folder: Path) -> Recorded:
    """Reads a recording. OptionError for a folder that is none, or has another format."""
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        options = json.loads((folder / OPTIONS).read_text(encoding="utf-8"))
        texts = {file.stem: file.read_text(encoding="utf-8") for file in folder.glob("*.mlir")}
        kernels = {file.stem: file.read_text(encoding="utf-8") for file in sorted((folder / KERNELS).glob("*"))}
        program = (folder / PROGRAM).read_text(encoding="utf-8") if (folder / PROGRAM).exists() else ""
    except (OSError, ValueError) as error:
        raise OptionError(
            f"{folder} is no recording: {error}", next_step=f"{knobs.RECORD.name}=DIR makes some, each a folder of DIR"
        ) from error
    if about.get("format") != FORMAT:
        what = f"{folder} is a recording of format {about.get('format')}, and this is {FORMAT}"
        raise OptionError(what, next_step="replay it with the version of symshape that made it")
    return Recorded(folder, about, _read_options(options, folder), texts, program, kernels)


def _read_options(values: dict[str, Any], folder: Path) -> Options:
    policy: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in values["policy"].items()}
    values["policy"] = SpecialisationPolicy(**policy)
    values["pass_files"] = [str(folder / file) for file in values["pass_files"]]
    values["stage"] = {stage: str(folder / file) for stage, file in values["stage"].items()}
    return Options.parse(values)


def constants_of(recorded: Recorded) -> list[Any]:
    """Values for the constants of a recorded graph: recorded ones if there are any, else zeros and ones in the same
    layout; operators, which must be registered; None for any other object."""
    kept = _kept_values(recorded.folder)
    described = enumerate(recorded.about["constants"])
    return [kept[i].to(one["device"]) if i in kept else _stand_in(one, i) for i, one in described]


def _kept_values(folder: Path) -> dict[int, torch.Tensor]:
    """The values of constants by position, as far as they were recorded."""
    file = folder / CONSTANTS
    return dict(torch.load(file, weights_only=True)) if file.exists() else {}


def _stand_in(described: Mapping[str, Any], seed: int) -> Any:
    if described["kind"] == "operator":
        from symshape.runtime.program import resolve_target

        return resolve_target(described["name"])
    if described["kind"] != "tensor" or "stride" not in described:
        return None
    dtype = getattr(torch, described["dtype"].removeprefix("torch."))
    shape, strides = described["shape"], described["stride"]
    values = torch.randint(0, 2, (extent(shape, strides),), generator=torch.Generator().manual_seed(seed))
    return values.to(dtype).to(described["device"]).as_strided(shape, strides)


def missing_constants(recorded: Recorded) -> Iterator[str]:
    """Constants of a recorded graph that nothing can stand for."""
    for i, one in enumerate(recorded.about["constants"]):
        if one["kind"] == "object" or (one["kind"] == "tensor" and "stride" not in one):
            yield f"constant {i}, a {one.get('type', 'tensor without strides')}"
