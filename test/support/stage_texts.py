"""IR text of every stage, put to the test: it is read back as it was printed, and compiled on from there."""

from __future__ import annotations

from typing import Any

from torch_mlir import ir

from symshape import dialects
from symshape.compiler import Watch, build
from symshape.fallbacks import Attempt
from symshape.ir_text import parse_module, text_of
from symshape.options import Options
from symshape.run_text import read_ir
from symshape.tools.report import GraphReport


def check_printing(report: GraphReport) -> None:
    """Each stage is the same text after it was read."""
    assert report.stages
    for stage, text in report.stages.items():
        assert text_of(parse_module(text, dialects.load(ir.Context()), stage)) == text, stage


def check_compiling(report: GraphReport, **options: Any) -> None:
    """From the text of each stage on, the program and the kernels are the same."""
    expected = _made(report)
    for stage, text in report.stages.items():
        ready = read_ir(text, stage, stage)
        start = ready.start(report.target, "cpu", report.kind, [None] * 1000)
        assert _made(build(start, Options.parse(options), Attempt(), Watch()).report) == expected, stage


def _made(report: GraphReport) -> tuple[str, dict[str, str]]:
    return report.program_source, {kernel.name: kernel.source for kernel in report.kernels}
