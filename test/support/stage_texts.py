"""Checks of IR text of every stage: it is read back as it was printed, and compiled on from there."""

from __future__ import annotations

from collections.abc import Iterable

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


def check_compiling(report: GraphReport, stages: Iterable[str]) -> None:
    """From the texts of these stages on, the program and the kernels are the same."""
    expected = _made(report)
    for stage in stages:
        start = read_ir(report.stage(stage), stage, stage).start(report.target, "cpu", report.kind)
        assert _made(build(start, Options(), Attempt(), Watch()).report) == expected, stage


def _made(report: GraphReport) -> tuple[str, dict[str, str]]:
    return report.program_source, {kernel.name: kernel.source for kernel in report.kernels}
