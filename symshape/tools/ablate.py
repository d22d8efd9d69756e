"""What a pass is worth: a model with the pass left out, or with one more, beside the whole pipeline.

    symshape ablate bert t5                                    each pass of the pipeline left out
    symshape ablate bert --without fuse-kernels,reuse-buffers
    symshape ablate model.py:fn --load-pass mine.py --with my-pass --with "my-pass{limit=1}"

All variants of a model have the same weights and inputs, and are timed in turns. ``error`` is the largest difference
to eager mode over the largest value of a result. Nothing of the repository is needed.
"""

from __future__ import annotations

import functools
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
from symshape.tools.measure import interleaved, relative_error, write_result
from symshape.tools.report import Report
from symshape.tools.subjects import Subject, subject
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
    "error",
)
_COUNTS = ("graphs", "kernels", "launches", "library_calls", "fallbacks")


@dataclass(frozen=True)
class Variant:
    """A pipeline: ``options`` are those of ``symshape.compile``."""

    name: str
    options: dict[str, Any]


@dataclass(frozen=True)
class Row:
    """What was compiled, and how fast it is.

    ``fallbacks``        what failed, so that less was compiled
    ``bytes``            read and written by kernels and library calls, at the sizes of the inputs; None where a size is
                         in the data
    ``backend_seconds``  of the steps of ``symshape/pipeline.py``
    ``seconds``          of a call, the median
    ``ratio``            over the pipeline's
    ``error``            the largest difference to eager mode over the largest value of a result
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
    error: float
    statistics: dict[str, int]


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


def measure(subject: Subject, variants: Sequence[Variant], rounds: int, progress: Progress) -> list[Row]:
    """One row for each variant. A variant that gives no result is an error of its own: nothing is left out."""
    reports: dict[str, Report] = {}
    errors: dict[str, float] = {}
    with torch.no_grad():
        expected = subject.fn(*subject.inputs, **subject.keywords)
        for variant in variants:
            progress.say(f"{subject.name} {variant.name}")
            report = symshape.explain(subject.fn, *subject.inputs, options=variant.options, **subject.keywords)
            reports[variant.name], errors[variant.name] = report, relative_error(report.result, expected)
            progress.step()
        runs: dict[str, Callable[[], Any]] = {
            name: functools.partial(report.run, *subject.inputs, **subject.keywords) for name, report in reports.items()
        }
        seconds = interleaved(runs, rounds)
    return [
        Row(
            subject.name,
            name,
            **{key: report.totals()[key] for key in _COUNTS},
            bytes=_bytes(report),
            backend_seconds=sum(time for graph in report.graphs for _, time in graph.timings),
            seconds=seconds[name],
            ratio=seconds[name] / seconds[PIPELINE],
            error=errors[name],
            statistics=_statistics(report, name.removeprefix("with ").split("{")[0]),
        )
        for name, report in reports.items()
    ]


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
    rounds: int,
    out: str | None,
) -> str:
    """A table of the rows, which ``out`` gets as JSON. Without names all models of the zoo; with neither passes to
    leave out nor to add, each pass of the pipeline is left out."""
    if not left_out and not added:
        left_out = pipeline_passes()
    chosen = variants(left_out, added, pass_files)
    names = names or list(zoo.MODELS)
    rows: list[Row] = []
    with warnings.catch_warnings(), Progress("ablation", len(names) * len(chosen)) as progress:
        warnings.simplefilter("ignore", FallbackWarning)  # they are counted
        for name in names:
            rows += measure(subject(name), chosen, rounds, progress)
    if out:
        write_result(out, "ablation", [asdict(row) for row in rows])
    counted = [
        f"{row.subject} {row.variant}: " + ", ".join(f"{name}: {count}" for name, count in row.statistics.items())
        for row in rows
        if row.statistics
    ]
    return "\n".join([table(_HEADER, [_shown(row) for row in rows]), *counted])


def _shown(row: Row) -> list[Any]:
    moved = "?" if row.bytes is None else row.bytes / 1e6
    counts = [getattr(row, name) for name in _COUNTS]
    return [row.subject, row.variant, *counts, moved, row.backend_seconds, 1e3 * row.seconds, row.ratio, row.error]
