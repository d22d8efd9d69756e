"""Ablation of passes, ``symshape ablate``: measures models without a pass, or with an additional one.

    symshape ablate bert t5                                    each pass of the pipeline left out
    symshape ablate bert --without fuse-kernels,reuse-buffers
    symshape ablate model.py:fn --load-pass mine.py --with my-pass --with "my-pass{limit=1}"

All variants of a model have the same weights and inputs, and are timed in turns. Column ``x`` is the time of the
variant divided by the pipeline's in the same turn: the median, with a confidence interval of 95% (``from``, ``to``). An
interval that contains 1 means that no difference was measured; variants with equal code are not compared. ``error`` is
the largest difference to eager mode, relative to the largest value of the result. If it is larger than rounding
explains, the results count as wrong and the command fails. No checkout of the repository is needed.
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
    """A variant of the pipeline, as the ``options`` of ``symshape.compile`` that select it."""

    name: str
    options: dict[str, Any]


@dataclass(frozen=True)
class Timing:
    """How variants are timed: ``rounds`` samples of each, of ``at_least`` seconds on a clock of ``measure.CLOCKS``."""

    rounds: int = 7
    at_least: float = 0.05
    clock: str = "wall"


@dataclass(frozen=True)
class Row:
    """One model compiled with one variant: what was compiled, how fast it runs, and whether its results are right.

    ``fallbacks``        number of steps of the compiler that failed, so that less of the graph was compiled
    ``bytes``            bytes that kernels and library calls read and write at the inputs' sizes; None if a size is
                         unbacked
    ``backend_seconds``  compile time: the sum over the steps of ``symshape/pipeline.py``
    ``seconds``          median time per call
    ``ratio``            median over the turns of this variant's time divided by the unchanged pipeline's
    ``ratio_from``       lower bound of ``ratio`` at a confidence of 0.95 (``measure.median_interval``)
    ``ratio_to``         upper bound, likewise
    ``same_code``        whether host programs and kernels equal the unchanged pipeline's, so that ``ratio`` is only
                         noise
    ``error``            largest difference to eager mode, relative to the largest value of the result
    ``wrong``            whether ``error`` exceeds the square root of the result type's machine epsilon
    ``statistics``       the statistics of the added pass
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
        """The row's conclusion in words; "" for the unchanged pipeline."""
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
    """Names of the passes that the pipeline runs, in order."""
    return [element.split("{")[0] for elements in STAGES.values() for element in elements]


def variants(left_out: Sequence[str], added: Sequence[str], pass_files: Sequence[str]) -> list[Variant]:
    """The unchanged pipeline, then one variant without each pass of ``left_out``, then one with each pass of ``added``
    at the end of stage ``linalg``. Strict mode is on for added passes, so that a failing one is an error. OptionError
    for a name in ``left_out`` that the pipeline does not run."""
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


def measure(subject: Subject, variants: Sequence[Variant], timing: Timing, progress: Progress) -> list[Row]:
    """One row per variant, in order. A variant that fails raises; none is skipped."""
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
        seconds = samples(runs, timing.rounds, timing.at_least, CLOCKS[timing.clock])
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
    """The ratio of each turn, as median and bounds. Pairing by turn cancels noise of the machine that hits both."""
    ratios = [a / b for a, b in zip(seconds, usual, strict=True)]
    low, high = median_interval(ratios)
    return {"ratio": statistics.median(ratios), "ratio_from": low, "ratio_to": high}


def _code(report: Report) -> list[Any]:
    """The generated code of all graphs, to be compared for equality."""
    return [(graph.program_source, [kernel.source for kernel in graph.kernels]) for graph in report.graphs]


def _rounding(output: Any) -> float:
    """The relative error that reordered operations may cause: the square root of the machine epsilon of the coarsest
    type in ``output``; 0 if all tensors are integers."""
    types = {tensor.dtype for tensor in tensors_of(output)}
    return max((math.sqrt(torch.finfo(one).eps) for one in types if one.is_floating_point or one.is_complex), default=0)


def _statistics(report: Report, added: str) -> dict[str, int]:
    """The statistics of pass ``added``, summed over all graphs."""
    found: Counter[str] = Counter()
    for graph in report.graphs:
        found.update(graph.statistics.get(added, {}))
    return dict(found)


def _bytes(report: Report) -> int | None:
    """Bytes that kernels and library calls access; None if a size is unbacked."""
    try:
        return sum(graph.bytes_accessed() + graph.library_bytes_accessed() for graph in report.graphs)
    except OptionError:  # an unbacked size has no value to compute with
        return None


def ablate(
    names: Sequence[str],
    left_out: Sequence[str],
    added: Sequence[str],
    pass_files: Sequence[str],
    timing: Timing,
    out: str | None,
) -> list[Row]:
    """Measures the models ``names`` and returns the rows; they are also written to file ``out`` as JSON. No names mean
    all models of the zoo. If ``left_out`` and ``added`` are both empty, each pass of the pipeline is left out in
    turn."""
    if not left_out and not added:
        left_out = pipeline_passes()
    chosen = variants(left_out, added, pass_files)
    names = names or list(zoo.MODELS)
    found = [find_subject(name) for name in names]  # an unknown name is reported before anything is measured
    rows: list[Row] = []
    with warnings.catch_warnings(), Progress("ablation", len(names) * len(chosen)) as progress:
        warnings.simplefilter("ignore", FallbackWarning)  # fallbacks are counted in the rows
        for build in found:
            rows += measure(build(), chosen, timing, progress)
    if out:
        write_result(out, "ablation", [asdict(row) for row in rows])
    return rows


def shown(rows: Sequence[Row]) -> str:
    """The rows as a text table, followed by the statistics of added passes."""
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
