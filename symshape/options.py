"""The options of a compile: ``torch.compile(options={...}, mode=...)``."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from symshape import knobs
from symshape.errors import OptionError
from symshape.machine import instruction_sets as cpu_level
from symshape.passes.stages import STAGES
from symshape.policy import SpecialisationPolicy

TARGETS = ("auto", "cpu", "triton")
RANDOM = ("eager", "fast")
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
_AUTOTUNING = ("max-autotune", "max-autotune-no-cudagraphs")
_CAPTURING = ("reduce-overhead", "max-autotune")


def _not_in_key(**default: Any) -> Any:
    """An option that is no part of the key of a cache entry: what it changes is in the traced graph, which the key has;
    or it is read when a program is loaded or called; or the key has something else in its place (the text of files, the
    processor). Of all others the key has the value, so that a new option cannot be forgotten there."""
    return field(metadata={"key": False}, **default)


@dataclass(frozen=True)
class Options:
    """``target``          "auto": CPU code for CPU tensors, Triton for CUDA; "cpu"; "triton" (interpreted where the
                        tensors are on the CPU)
    ``passes``          further passes, run between lowering and fusion: pipeline elements such as "my-pass{n=2}"
    ``pass_files``      Python files that define passes
    ``disable_passes``  names of passes to leave out (fuse-kernels cannot be left out: each operation is then a kernel)
    ``pass_options``    options of the pipeline's own passes: {"unroll-reductions": "max-points=4"} as in the text of a
                        pipeline, or {"unroll-reductions": {"max-points": 4}} (docs/reference/passes.md lists them); a
                        pass of ``passes`` takes its options there
    ``assume``          facts about sizes, such as "x.size(1) % 8 == 0": the compiler may use them, a guard checks them
    ``debug_dir``       where the IR before a failing pass is written
    ``opt_level``       LLVM's optimisation level for CPU code, 0 to 3: that of its middle end
    ``cpu``             the instructions that CPU code may use: "native", all that this processor has, or "x86-64-v2",
                        "x86-64-v3", "x86-64-v4"; by default what the environment says (SYMSHAPE_CPU), else "native"
    ``autotune``        whether Triton kernels choose among their variants by measured time, for each bucket of sizes
                        (powers of two); mode "max-autotune" switches it on
    ``cuda_graphs``     whether the launches of a program on a GPU become one CUDA graph for each combination of sizes
                        that recurs, where that saves more than it costs (docs/kernels.md); modes "reduce-overhead" and
                        "max-autotune" switch it on. No effect on a CPU
    ``pad_products``    whether products of matrices of half types, whose rows are not aligned, are computed on padded
                        copies where a rule says that it pays (docs/kernels.md). On some GPUs; results are those of
                        eager mode up to the order of sums
    ``random``          "eager": under a seed a graph draws eager mode's numbers on a CPU, bit for bit, and leaves the
                        generator where eager mode does; "fast": it draws in the cheapest form (dropout by uniform
                        numbers, in the kernel that uses them), drops draws that nothing reads, and may reorder others
    ``cache``           whether compiled graphs are kept on disk and taken from there (docs/cache.md); the environment
                        can switch it off too, by SYMSHAPE_CACHE=0
    ``strict``          whether a failure of a pass, of code generation or of loading is an error; else less of the
                        graph is compiled, which is said (docs/passes.md). By default what SYMSHAPE_STRICT says
    ``probe_custom_operators``  whether an operator of torch.library without a fake rule is run on small made-up inputs
                        when it is traced, to find the sizes of what it returns (docs/custom-operators.md)
    ``policy``          a ``symshape.SpecialisationPolicy``: which sizes are symbols, and for how many values of one a
                        function is compiled (docs/tracing.md)
    ``stage``           the IR of a stage from a file, {"linalg": "edited.mlir"}: it takes the place of what passes made
                        of the graph with the same arguments and results (docs/debugging.md)
    """

    target: str = "auto"
    passes: tuple[str, ...] = ()
    pass_files: tuple[str, ...] = _not_in_key(default=())
    disable_passes: tuple[str, ...] = ()
    pass_options: tuple[tuple[str, str], ...] = ()
    assume: tuple[str, ...] = _not_in_key(default=())
    debug_dir: str = _not_in_key(default="symshape-debug")
    opt_level: int = 0
    cpu: str = _not_in_key(default_factory=cpu_level.from_environment)
    autotune: bool = _not_in_key(default=False)
    cuda_graphs: bool = _not_in_key(default=False)
    pad_products: bool = _not_in_key(default=True)
    random: str = "eager"
    cache: bool = _not_in_key(default=True)
    strict: bool = _not_in_key(default_factory=knobs.STRICT.read)
    probe_custom_operators: bool = _not_in_key(default=True)
    policy: SpecialisationPolicy = _not_in_key(default=SpecialisationPolicy())
    stage: tuple[tuple[str, str], ...] = _not_in_key(default=())

    def in_key(self) -> dict[str, Any]:
        """The options on which a compiled program depends, besides what its traced graph shows."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.metadata.get("key", True)}

    @classmethod
    def parse(cls, options: Mapping[str, Any] | None, mode: str | None = None) -> Options:
        """Checks names and values, and the environment; OptionError lists the valid ones."""
        knobs.check_environment()
        if mode not in (None, *MODES):
            raise OptionError(f"unknown mode {mode!r}", next_step=f"modes: {', '.join(MODES)}")
        fields = {f.name for f in dataclasses.fields(cls)}
        require_mapping(options)
        for name in options or {}:
            if name not in fields:
                near = difflib.get_close_matches(str(name), fields, 1)
                hint = f"did you mean {near[0]!r}? " if near else ""
                raise OptionError(f"unknown option {name!r}", next_step=f"{hint}options: {', '.join(sorted(fields))}")
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in (options or {}).items()}
        values["stage"] = _stages(values.get("stage", ()))
        values["pass_options"] = _pass_options(values.get("pass_options", ()))
        if mode in _AUTOTUNING:
            values.setdefault("autotune", True)
        if mode in _CAPTURING:
            values.setdefault("cuda_graphs", True)
        parsed = cls(**values)
        if parsed.target not in TARGETS:
            raise OptionError(f"unknown target {parsed.target!r}", next_step=f"targets: {', '.join(TARGETS)}")
        if parsed.random not in RANDOM:
            raise OptionError(f"random cannot be {parsed.random!r}", next_step=f"values: {', '.join(RANDOM)}")
        parsed._check_types()
        return dataclasses.replace(parsed, strict=True) if parsed.stage else parsed  # what a user edits is not left out

    def _check_types(self) -> None:
        if not isinstance(self.cpu, str):
            raise OptionError(f"cpu cannot be {self.cpu!r}", next_step=f"cpus: {', '.join(cpu_level.CPUS)}")
        cpu_level.check(self.cpu)
        if type(self.opt_level) is not int or not 0 <= self.opt_level <= 3:
            raise OptionError(f"opt_level cannot be {self.opt_level!r}", next_step="it is an integer from 0 to 3")
        for name in (f.name for f in dataclasses.fields(self) if f.type == "bool"):
            if type(getattr(self, name)) is not bool:
                raise OptionError(f"{name} cannot be {getattr(self, name)!r}", next_step="it is True or False")
        if not isinstance(self.policy, SpecialisationPolicy):
            hint = "it is a symshape.SpecialisationPolicy"
            raise OptionError(f"policy cannot be {self.policy!r}", next_step=hint)
        if not isinstance(self.debug_dir, (str, Path)):
            raise OptionError(f"debug_dir cannot be {self.debug_dir!r}", next_step="it is the path of a folder")
        for name in ("passes", "pass_files", "disable_passes", "assume"):
            value = getattr(self, name)
            kinds = (str, Path) if name == "pass_files" else str
            if not isinstance(value, tuple) or not all(isinstance(item, kinds) for item in value):
                shown = list(value) if isinstance(value, tuple) else value
                raise OptionError(f"{name} cannot be {shown!r}", next_step="it is a list of texts")
        for name, text in self.pass_options:
            if name in self.disable_passes:
                hint = "leave it out of one of them"
                raise OptionError(f"'{name}' is in disable_passes, and pass_options says '{text}'", next_step=hint)


def _pass_options(given: Any) -> tuple[tuple[str, str], ...]:
    """Passes and the text of their options, sorted by name. OptionError for a value of another type, or an unknown
    pass; the options themselves are parsed with the pass, by the compiler."""
    pairs = tuple(given.items()) if isinstance(given, Mapping) else given
    if not isinstance(pairs, tuple) or not all(isinstance(p, tuple) and len(p) == 2 for p in pairs):
        hint = 'it maps passes to options: {"unroll-reductions": "max-points=4"}'
        raise OptionError(f"pass_options cannot be {given!r}", next_step=hint)
    known = [name for names in STAGES.values() for name in names]
    for name, options in pairs:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 1)
            hint = f"did you mean {near[0]!r}? " if near else "a pass of `passes` takes its options there; "
            raise OptionError(
                f"pass_options: the pipeline has no pass {name!r}", next_step=f"{hint}passes: {', '.join(known)}"
            )
        if not isinstance(options, (str, Mapping)):
            hint = 'they are a text such as "max-points=4", or a mapping'
            raise OptionError(f"pass_options: options of '{name}' cannot be {options!r}", next_step=hint)
    return tuple(sorted((name, o if isinstance(o, str) else _options_text(o)) for name, o in pairs))


def _options_text(options: Mapping[str, Any]) -> str:
    """Options as the text between the braces of a pipeline element."""
    texts = {
        key: ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
        for key, value in options.items()
    }
    return " ".join(f'{key}="{text}"' for key, text in texts.items())


def require_mapping(options: Any) -> None:
    """OptionError for a value that is neither a dictionary nor None."""
    if options is not None and not isinstance(options, Mapping):
        raise OptionError(f"options cannot be {options!r}", next_step="it is a dictionary")


def _stages(given: Any) -> tuple[tuple[str, str], ...]:
    """The files of ``stage`` as pairs. OptionError for a value of another type, or a file that does not exist."""
    pairs = tuple(given.items()) if isinstance(given, Mapping) else given
    if not isinstance(pairs, tuple) or not all(
        isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[1], (str, Path)) for pair in pairs
    ):
        hint = 'it maps stages to files: {"linalg": "edited.mlir"}'
        raise OptionError(f"stage cannot be {given!r}", next_step=hint)
    for stage, file in pairs:
        if not isinstance(stage, str) or stage not in STAGES:
            raise OptionError(f"stage: unknown stage {stage!r}", next_step=f"stages: {', '.join(STAGES)}")
        if not Path(file).is_file():
            raise OptionError(
                f"stage: there is no file {file}", next_step="SYMSHAPE_RECORD=DIR writes files to start from"
            )
    return tuple((stage, str(file)) for stage, file in pairs)
