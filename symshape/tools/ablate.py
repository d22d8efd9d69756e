"""What a pass is worth: a model with the pass left out, or with one more, beside the whole pipeline.

    symshape ablate bert t5                                    each pass of the pipeline left out
    symshape ablate bert --without fuse-kernels,reuse-buffers
    symshape ablate model.py:fn --load-pass mine.py --with my-pass --with "my-pass{limit=1}"

All variants of a model have the same weights and inputs, and are timed in turns. ``x`` is the time over the
pipeline's of the same turn: the median, and the bounds that it lies between with a confidence of 0.95. Bounds on
both sides of 1 say that no difference was measured, and equal code that there is none. ``error`` is the largest
difference to eager mode over the largest value of a result; beyond what rounding explains the results are wrong,
and the command fails. Nothing of the repository is needed.
"""

from __future__ import annotations

import functools
import math
import statistics
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

import symshape
from symshape.errors import FallbackWarning, OptionError
from symshape.passes.stages import STAGES
from symshape.tools import zoo
from symshape.tools.measure import CLOCKS, median_interval, relative_error, samples, tensors_of, write_result
from symshape.tools.report import Report
from symshape.tools.subjects import Subject, find_subject
from symshape.tools.terminal import Progress, table

PIPELINE = "pipeline"
_HEADER = (
    "model",
    "variant",
    "graphs",
    "kernels",
    "launches",
    "calls",
    "fallbacks",
    "MB",
    "backend s",
    "ms",
    "x",
    "from",
    "to",
    "error",
    "",
)
_COUNTS = ("graphs", "kernels", "launches", "library_calls", "fallbacks")


@dataclass(frozen=True)
class Variant:
    """A pipeline: ``options`` are those of ``symshape.compile``."""

    name: str
    options: dict[str, Any]


@dataclass(frozen=True)
class How:
    """``rounds`` samples of each variant, of at least so many seconds of a clock (``measure.CLOCKS``)."""

    rounds: int = 7
    at_least: float = 0.05
    clock: str = "wall"


@dataclass(frozen=True)
class Row:
    """What was compiled, and how fast it is.

    ``fallbacks``        what failed, so that less was compiled
    ``bytes``            read and written by kernels and library calls, at the sizes of the inputs; None where a size is
                         in the data
    ``backend_seconds``  of the steps of ``symshape/pipeline.py``
    ``seconds``          of a call, the median
    ``ratio``            over the pipeline's of the same turn, the median
    ``ratio_from``       of it, with a confidence of 0.95 (``measure.median_interval``)
    ``ratio_to``         the same
    ``same_code``        programs and kernels are the pipeline's: a ratio of another size than 1 is noise
    ``error``            the largest difference to eager mode over the largest value of a result
    ``wrong``            the error is beyond the square root of what the results' type can tell from 1
    ``statistics``       what an added pass has counted
    """

    subject: str
    variant: str
    graphs: int
    kernels: int
    launches: int
    library_calls: int
    fallbacks: int
    bytes: int | None
    backend_seconds: float
    seconds: float
    ratio: float
    ratio_from: float
    ratio_to: float
    same_code: bool
    error: float
    wrong: bool
    statistics: dict[str, int]

    @property
    def verdict(self) -> str:
        """In words; "" for the pipeline itself."""
        if self.wrong:
            return "wrong results"
        if self.variant == PIPELINE:
            return ""
        if self.same_code:
            return "the same code"
        if self.ratio_from <= 1 <= self.ratio_to:
            return "no difference measured"
        return "slower" if self.ratio > 1 else "faster"


def pipeline_passes() -> list[str]:
    """Names of the passes that the pipeline runs."""
    return [element.split("{")[0] for elements in STAGES.values() for element in elements]


def variants(left_out: Sequence[str], added: Sequence[str], pass_files: Sequence[str]) -> list[Variant]:
    """The pipeline as it is, without each of some passes, and with each of ``added`` at the end of stage linalg. An
    added pass that fails is an error."""
    unknown = [name for name in left_out if name not in pipeline_passes()]
    if unknown:
        known = ", ".join(pipeline_passes())
        raise OptionError(f"the pipeline has no pass {', '.join(unknown)}", next_step=f"passes: {known}")
    chosen: list[tuple[str, dict[str, Any]]] = [
        (PIPELINE, {}),
        *((f"without {name}", {"disable_passes": [name]}) for name in dict.fromkeys(left_out)),
        *(
            (f"with {text}", {"passes": [text], "pass_files": list(pass_files), "strict": True})
            for text in dict.fromkeys(added)
        ),
    ]
    return [Variant(name, {**options, "cache": False}) for name, options in chosen]  # or nothing would be compiled


def measure(subject: Subject, variants: Sequence[Variant], how: How, progress: Progress) -> list[Row]:
    """One row for each variant. A variant that gives no result is an error of its own: nothing is left out."""
    reports: dict[str, Report] = {}
    errors: dict[str, float] = {}
    with torch.no_grad():
        torch.manual_seed(0)
        expected = subject.fn(*subject.inputs, **subject.keywords)
        for variant in variants:
            progress.say(f"{subject.name} {variant.name}")
            torch.manual_seed(0)
            report = symshape.explain(subject.fn, *subject.inputs, options=variant.options, **subject.keywords)
            reports[variant.name], errors[variant.name] = report, relative_error(report.result, expected)
            progress.step()
        runs: dict[str, Callable[[], Any]] = {
            name: functools.partial(report.run, *subject.inputs, **subject.keywords) for name, report in reports.items()
        }
        seconds = samples(runs, how.rounds, how.at_least, CLOCKS[how.clock])
    limit = _rounding(expected)
    return [
        Row(
            subject.name,
            name,
            **{key: report.totals()[key] for key in _COUNTS},
            bytes=_bytes(report),
            backend_seconds=sum(time for graph in report.graphs for _, time in graph.timings),
            seconds=statistics.median(seconds[name]),
            **_ratios(seconds[name], seconds[PIPELINE]),
            same_code=_code(report) == _code(reports[PIPELINE]),
            error=errors[name],
            wrong=errors[name] > limit,
            statistics=_statistics(report, name.removeprefix("with ").split("{")[0]),
        )
        for name, report in reports.items()
    ]


def _ratios(seconds: Sequence[float], usual: Sequence[float]) -> dict[str, Any]:
    """Of each turn: a slow minute of the machine hits both."""
    ratios = [a / b for a, b in zip(seconds, usual, strict=True)]
    low, high = median_interval(ratios)
    return {"ratio": statistics.median(ratios), "ratio_from": low, "ratio_to": high}


def _code(report: Report) -> list[Any]:
    return [(graph.program_source, [kernel.source for kernel in graph.kernels]) for graph in report.graphs]


def _rounding(output: Any) -> float:
    """The relative error that a result in another order of operations may have: half the digits of the coarsest type.
    Integers have none."""
    types = {tensor.dtype for tensor in tensors_of(output)}
    return max((math.sqrt(torch.finfo(one).eps) for one in types if one.is_floating_point or one.is_complex), default=0)


def _statistics(report: Report, added: str) -> dict[str, int]:
    found: Counter[str] = Counter()
    for graph in report.graphs:
        found.update(graph.statistics.get(added, {}))
    return dict(found)


def _bytes(report: Report) -> int | None:
    try:
        return sum(graph.bytes_accessed() + graph.library_bytes_accessed() for graph in report.graphs)
    except OptionError:  # no size is known
        return None


def ablate(
    names: Sequence[str],
    left_out: Sequence[str],
    added: Sequence[str],
    pass_files: Sequence[str],
    how: How,
    out: str | None,
) -> list[Row]:
    """The rows, which ``out`` gets as JSON. Without names all models of the zoo; with neither passes to leave out nor
    to add, each pass of the pipeline is left out."""
    if not left_out and not added:
        left_out = pipeline_passes()
    chosen = variants(left_out, added, pass_files)
    names = names or list(zoo.MODELS)
    found = [find_subject(name) for name in names]  # a wrong name is said before anything is measured
    rows: list[Row] = []
    with warnings.catch_warnings(), Progress("ablation", len(names) * len(chosen)) as progress:
        warnings.simplefilter("ignore", FallbackWarning)  # they are counted
        for build in found:
            rows += measure(build(), chosen, how, progress)
    if out:
        write_result(out, "ablation", [asdict(row) for row in rows])
    return rows


def shown(rows: Sequence[Row]) -> str:
    """As a table, with what added passes have counted."""
    counted = [
        f"{row.subject} {row.variant}: " + ", ".join(f"{name}: {count}" for name, count in row.statistics.items())
        for row in rows
        if row.statistics
    ]
    return "\n".join([table(_HEADER, [_cells(row) for row in rows]), *counted])


def _cells(row: Row) -> list[Any]:
    moved = "?" if row.bytes is None else row.bytes / 1e6
    counts = [getattr(row, name) for name in _COUNTS]
    ratios = [row.ratio, row.ratio_from, row.ratio_to] if row.variant != PIPELINE and not row.same_code else ["-"] * 3
    times = [row.backend_seconds, 1e3 * row.seconds, *ratios]
    return [row.subject, row.variant, *counts, moved, *times, row.error, row.verdict]
