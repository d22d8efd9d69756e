"""``TORCH_LOGS=output_code``: logs the generated code of a graph, as Inductor does.

``TORCH_LOGS=guards,recompiles`` needs no code here: Dynamo logs them for every backend.
"""

from __future__ import annotations

import logging
from typing import Any

from symshape.frontend.bridge.dynamo import output_code_log


def log_output_code(compiled: Any) -> None:
    """Logs the host program and the kernels of a compiled graph. The report is only decoded if the log is on: for a
    graph from the cache that imports the compiler."""
    log = output_code_log()
    if log.isEnabledFor(logging.DEBUG):
        report = compiled.report
        log.debug("Output code of a %s graph (symshape, %s):\n%s", report.kind, report.target, report.program_source)
        for kernel in report.kernels:
            log.debug("%s (%s):\n%s", kernel.name, kernel.kind, kernel.source)
