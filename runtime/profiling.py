"""What PyTorch's own tools show of compiled code: ``TORCH_LOGS=output_code``, names of kernels in ``torch.profiler``.

``TORCH_LOGS=guards,recompiles`` needs nothing here: Dynamo says them for every backend.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import Any

import torch


@cache
def _log() -> logging.Logger:
    """Below one of PyTorch's loggers, which have the handlers that TORCH_LOGS sets up."""
    found: logging.Logger = torch._logging.getArtifactLogger("torch._inductor.symshape", "output_code")
    return found


def log_output_code(compiled: Any) -> None:
    """The host program and the kernels of a compiled graph, as Inductor's logger shows its own. The report is only made
    where it is wanted: that of a graph from the cache imports the compiler."""
    log = _log()
    if log.isEnabledFor(logging.DEBUG):
        report = compiled.report
        log.debug("Output code of a %s graph (symshape, %s):\n%s", report.kind, report.target, report.program_source)
        for kernel in report.kernels:
            log.debug("%s (%s):\n%s", kernel.name, kernel.kind, kernel.source)


def with_name(name: str, kernel: Callable[..., None]) -> Callable[..., None]:
    """The kernel as an event of the profiler: ``symshape::NAME``."""

    def launch(*args: Any) -> None:
        with torch.profiler.record_function(f"symshape::{name}"):
            kernel(*args)

    return launch
