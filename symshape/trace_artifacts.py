"""Writes the artifacts of a compile to PyTorch's structured trace (``TORCH_TRACE=DIR``), for ``tlparse``.

Each is an artifact of the frame that is compiled: ``symshape_options``, ``symshape_graph``, ``symshape_ir_<stage>``,
``symshape_program``, ``symshape_guard_stub``. Nothing is rendered if there is no trace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch._logging import trace_structured

from symshape.options import Options

if TYPE_CHECKING:  # a graph from the cache needs no report
    from symshape.tools.report import GraphReport


def trace(name: str, text: Callable[[], str]) -> None:
    """``text()`` as the artifact ``symshape_<name>``."""
    about = {"name": f"symshape_{name}", "encoding": "string"}
    trace_structured("artifact", metadata_fn=lambda: about, payload_fn=text, expect_trace_id=False)


def trace_graph(gm: torch.fx.GraphModule, options: Options, kind: str) -> None:
    """Writes the options and the graph. The options come first: without a trace, the first artifact of a process is
    rendered all the same, before PyTorch finds out."""
    trace("options", lambda: f"{kind} graph\n{options}")
    trace("graph", lambda: gm.print_readable(print_output=False, include_stride=True, include_device=True))


def trace_compiled(compiled: Any) -> None:
    """Writes the results; the report of ``compiled`` is only decoded if there is a trace."""
    trace("program", lambda: _program(compiled.report))
    trace("guard_stub", lambda: compiled.report.stub_source)


def _program(report: GraphReport) -> str:
    """The host program, and the kernels in comments of their own, as ``TORCH_LOGS=output_code`` has them."""
    kernels = [f"# --- {kernel.name} ({kernel.kind}, {kernel.target})\n{kernel.source}" for kernel in report.kernels]
    return "\n\n".join([report.program_source, *kernels])
