"""``symshape sweep``: measures a program with one parameter at several values, over several sizes.

    symshape sweep bert fuse-kernels.max-members 1,4,64 --sizes 2x8,4x64 --plot sweep.png
    symshape sweep model.py:fn opt-level 0,2,3 --sizes 64,4096 --out sweep.json
    symshape sweep llama plan-tiles.tile 16,32,64 --device cuda

A parameter is an option of a pass (PASS.OPTION), or an option of the compiler that is a number, a switch or a text.
Each value is compiled, run at all sizes and compared with eager mode before anything is timed; samples alternate
between values. Regret is the time at a value divided by the time at the best value for the same size. Passes that plan
GPU kernels have no effect on CPUs and are swept on a GPU only. No checkout of the repository is needed.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch

import symshape
from symshape.api import explain
from symshape.errors import OptionError
from symshape.options import Options
from symshape.passes.framework import registry
from symshape.passes.framework.pipeline_text import pass_with
from symshape.passes.stages import STAGES
from symshape.tools import commit, plot_results, plots
from symshape.tools.measure import CLOCKS, environment, relative_error, samples, write_result
from symshape.tools.report import Report
from symshape.tools.subjects import Sized, sized
from symshape.tools.terminal import Progress, table

Size = tuple[int, ...]
_FOR_GPUS = "planned"
_SIMPLE = ("int", "bool", "str")
_NO_EFFECT = ("cache", "debug_dir", "target", "strict", "probe_custom_operators")


@dataclass(frozen=True)
class Parameter:
    """A parameter to sweep: option ``option`` of the pass ``owner``, or of the compiler if ``owner`` is ""."""

    owner: str
    option: str

    @property
    def name(self) -> str:
        return f"{self.owner}.{self.option}" if self.owner else self.option.replace("_", "-")

    @property
    def stage(self) -> str:
        """The stage that the pass belongs to; "" for an option of the compiler."""
        return next((stage for stage, names in STAGES.items() if self.owner in names), "")

    def options(self, value: str) -> dict[str, Any]:
        """The options of ``symshape.compile`` that set the parameter to ``value``."""
        if self.owner:
            return {"pass_options": {self.owner: f"{self.option}={value}"}, "cache": False, "strict": True}
        kind = next(str(one.type) for one in fields(Options) if one.name == self.option)
        return {"strict": True, self.option: _read(self.name, kind, value), "cache": False}


def _read(name: str, kind: str, value: str) -> Any:
    """``value`` converted to type ``kind``. OptionError if it cannot be."""
    readers: dict[str, Callable[[str], Any]] = {
        "int": int,
        "str": str,
        "bool": lambda text: {"true": True, "1": True, "false": False, "0": False}[text.lower()],
    }
    try:
        return readers[kind](value)
    except (ValueError, KeyError) as error:
        raise OptionError(f"{name} cannot be {value!r}", next_step=f"it is of type {kind}") from error


def parameters() -> list[str]:
    """Names of all parameters that can be swept."""
    of_passes = []
    for name in (name for names in STAGES.values() for name in names):
        cls = registry.lookup(name)
        of_passes += [f"{name}.{one.name.replace('_', '-')}" for one in fields(cls)] if cls else []  # type: ignore
    simple = [one.name for one in fields(Options) if str(one.type) in _SIMPLE and one.name not in _NO_EFFECT]
    return [*of_passes, *(name.replace("_", "-") for name in simple)]


def parameter(text: str, values: Sequence[str], device: str) -> Parameter:
    """Parses a parameter's name. OptionError if it does not exist, does not take one of ``values``, or has no effect on
    ``device``."""
    owner, _, option = text.rpartition(".")
    if text.replace("_", "-") not in parameters():
        raise OptionError(f"no parameter is called {text!r}", next_step=f"parameters: {', '.join(parameters())}")
    found = Parameter(owner, option if owner else option.replace("-", "_"))
    for value in values:
        Options.parse(found.options(value))
        if owner:
            pass_with(owner, f"{option}={value}")
    on_gpus_only = found.stage == _FOR_GPUS or found.name in ("autotune", "cuda_graphs", "pad_products")
    if on_gpus_only and device == "cpu":
        step = "add --device cuda" if torch.cuda.is_available() else "run it on a machine with a GPU, --device cuda"
        raise OptionError(f"{text} changes what runs on GPUs only, and the device is the CPU", next_step=step)
    if device == "cuda" and not torch.cuda.is_available():
        raise OptionError("device cuda: PyTorch sees no GPU", next_step="leave --device out")
    return found


@dataclass(frozen=True)
class Row:
    """One timing sample. ``points`` is the product of the sizes; ``seconds`` is per call; ``error`` is the largest
    difference to eager mode, relative to the largest value; values of one pass that gave the same code have equal
    ``code``."""

    program: str
    size: str
    points: int
    parameter: str
    value: str
    repetition: int
    seconds: float
    error: float
    code: int
    commit: str
    machine: str


def measure(program: Sized, sizes: Sequence[Size], what: Parameter, values: Sequence[str], timing: Timing) -> list[Row]:
    """Compiles and checks all values at all sizes, then times them; one row per sample."""
    inputs = {size: program.inputs(size, timing.device) for size in sizes}
    with torch.no_grad(), Progress("sweep", len(values) + len(sizes)) as progress:
        fn = program.on(timing.device)
        expected = {size: fn(*given, **named) for size, (given, named) in inputs.items()}
        compiled: dict[str, Report] = {}
        errors: dict[tuple[str, Size], float] = {}
        for value in values:
            progress.say(f"{what.name}={value}")
            for size, (given, named) in inputs.items():
                compiled[value] = _called(compiled.get(value), fn, what.options(value), given, named)
                errors[value, size] = relative_error(compiled[value].result, expected[size])
            progress.step()
        codes, here = _codes(compiled, what), _origin()
        rows = []
        for size, (given, named) in inputs.items():
            shown = "x".join(map(str, size))
            progress.say(shown)
            runs = {value: _run(report, given, named, timing.device) for value, report in compiled.items()}
            for value, taken in samples(runs, timing.rounds, timing.at_least, CLOCKS[timing.clock]).items():
                made = errors[value, size], codes[value], *here
                first = program.name, shown, math.prod(size), what.name, value
                rows += [Row(*first, repetition, seconds, *made) for repetition, seconds in enumerate(taken)]
            progress.step()
    return rows


@dataclass(frozen=True)
class Timing:
    """How values are timed: ``rounds`` samples of each at each size, of ``at_least`` seconds on a clock of
    ``measure.CLOCKS``."""

    device: str = "cpu"
    rounds: int = 7
    at_least: float = 0.05
    clock: str = "wall"


def _called(report: Report | None, fn: Any, options: dict[str, Any], given: Any, named: Any) -> Report:
    """Calls the compiled function, after compiling it with ``options`` if ``report`` is None."""
    if report is None:
        return explain(fn, *given, options=options, **named)
    report.run(*given, **named)
    return report


def _run(report: Report, given: Any, named: Any, device: str) -> Callable[[], Any]:
    """A function that makes one call and, on a GPU, waits for it."""
    run = functools.partial(report.run, *given, **named)
    if device == "cpu":
        return run

    def and_wait() -> None:
        run()
        torch.cuda.synchronize()

    return and_wait


def _codes(compiled: dict[str, Report], what: Parameter) -> dict[str, int]:
    """A number for each value. Values of a pass's option have equal numbers if they gave equal programs and kernels. An
    option of the compiler may act after the text is generated, so that each of its values has its own number."""
    texts: dict[Any, int] = {}
    found = {}
    for value, report in compiled.items():
        text: Any = tuple((g.program_source, *(k.source for k in g.kernels)) for g in report.graphs)
        text = text if what.owner else value
        found[value] = texts.setdefault(text, len(texts))
    return found


def _origin() -> tuple[str, str]:
    """The commit (or version) of symshape, and a description of the machine."""
    here = environment()
    try:
        code = commit.current(Path(__file__).resolve().parents[2])
    except OptionError:  # installed from a wheel
        code = f"version {symshape.__version__}"
    return code, f"{here['processor']}, {here['cores']} cores, {here['threads']} threads"


def regrets(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Per size and value, the median time and the regret, as tidy rows."""
    times: dict[tuple[str, int], dict[str, list[float]]] = {}
    for row in rows:
        times.setdefault((row.size, row.points), {}).setdefault(row.value, []).append(row.seconds)
    found = []
    for (size, points), of_values in times.items():
        medians = {value: statistics.median(seconds) for value, seconds in of_values.items()}
        best = min(medians.values())
        found += [
            {"size": size, "points": points, "value": value, "seconds": seconds, "regret": seconds / best}
            for value, seconds in medians.items()
        ]
    return found


def sizes_of(text: str) -> list[Size]:
    """Parses sizes written as ``2x8,4x64``. OptionError for other text or negative sizes."""
    try:
        found = [tuple(int(one) for one in part.split("x")) for part in text.split(",") if part]
    except ValueError as error:
        raise OptionError(f"sizes cannot be {text!r}", next_step="write them as 2x8,4x64") from error
    if any(one < 0 for size in found for one in size):
        raise OptionError(f"sizes cannot be {text!r}", next_step="no size is negative")
    return found


def sweep(
    name: str,
    text: str,
    values: Sequence[str],
    sizes: Sequence[Size],
    timing: Timing,
    out: str | None,
    image: str | None,
) -> str:
    """Runs a sweep and returns its tables of times and regrets. ``out`` receives the rows as JSON, ``image`` the plot.
    If ``sizes`` is empty, the program's default sizes are used. OptionError for fewer than two different values."""
    if len(set(values)) < 2 or len(set(values)) < len(values):
        raise OptionError(f"the values of {text} are {', '.join(values)}", next_step="give two or more different ones")
    what = parameter(text, values, timing.device)
    program = sized(name)
    if not (sizes or program.sizes):
        raise OptionError(f"no sizes are given for {name}", next_step="add --sizes, such as --sizes 2x8,4x64")
    rows = measure(program, sizes or program.sizes, what, values, timing)
    found = regrets(rows)
    if out:
        write_result(out, "sweep", [asdict(row) for row in rows], regrets=found)
    if image:
        plots.save(plot_results.regret([asdict(row) for row in rows]), image)
    return _shown(rows, found, what, values)


def _shown(rows: Sequence[Row], found: Sequence[dict[str, Any]], what: Parameter, values: Sequence[str]) -> str:
    sizes = list(dict.fromkeys(one["size"] for one in found))
    by = {(one["size"], one["value"]): one for one in found}
    body = [
        [
            size,
            *(1e3 * by[size, value]["seconds"] for value in values),
            *(by[size, value]["regret"] for value in values),
            min(values, key=lambda value: by[size, value]["regret"]),
        ]
        for size in sizes
    ]
    mean = [statistics.geometric_mean([by[size, value]["regret"] for size in sizes]) for value in values]
    body.append(["geometric mean", *("-" for _ in values), *mean, values[mean.index(min(mean))]])
    header = ["size", *(f"{value}: ms" for value in values), *(f"{value}: regret" for value in values), "best"]
    said = [f"{what.name}, {rows[0].program}", table(header, body)]
    said += [f"largest difference to eager mode: {max(row.error for row in rows):.2g}"]
    codes = {row.value: row.code for row in rows}
    same = [value for value in values if list(codes.values()).count(codes[value]) > 1]
    said += [f"equal code: some of the values {', '.join(same)}; what differs between those is noise"] if same else []
    return "\n".join(said)
