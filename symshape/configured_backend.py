"""The backend with its options, which ``symshape.compile`` passes to Dynamo.

Dynamo stores compiled code at the code object of a function, and compares the backend of each entry with the present
one (``backend_match`` in torch/csrc/dynamo/extra_state.cpp uses ``==``). Backends with equal options are equal here, as
with ``torch.compile``: layers of one class that are compiled one by one share their code.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from symshape.backend import symshape_backend
from symshape.frontend.bridge.refused_questions import refused
from symshape.frontend.importer.assumptions import Assumptions
from symshape.options import Options

if TYPE_CHECKING:  # a graph from the cache needs no report
    from symshape.tools.report import GraphReport


@dataclass(frozen=True, eq=False)
class ConfiguredBackend:
    """``dynamic``: that of ``symshape.compile``, under which graphs are traced. ``reports``, if given, collects the
    report of every graph, and takes part in the comparison of backends."""

    options: Options
    assumptions: Assumptions
    dynamic: bool | None = None
    reports: list[GraphReport] | None = None
    pass_files: tuple[Any, ...] = field(init=False)
    compiler_name: ClassVar[str] = "symshape"  # what Dynamo shows in its messages

    def __post_init__(self) -> None:
        files = (*self.options.pass_files, *(file for _, file in self.options.stage))
        object.__setattr__(self, "pass_files", tuple(map(_state, files)))

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        with refused(frozenset()):  # what Dynamo has traced is compiled
            return symshape_backend(
                gm, example_inputs, options=self.options, reports=self.reports, assumptions=self.assumptions
            )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConfiguredBackend):
            return NotImplemented
        return self.reports is other.reports and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> Any:
        return self.options, self.assumptions, self.dynamic is not False, self.pass_files

    def get_compiler_config(self) -> dict[str, Any]:
        """The result of ``compiled.get_compiler_config()``: every option with its value."""
        return asdict(self.options)


def _state(file: str | Path) -> Any:
    """A value that changes when a file of passes, or of a stage, is edited, so that later calls compile anew."""
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
