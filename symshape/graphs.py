"""Explains why a function has another graph, or ``symshape.jit`` another entry: report and log.

The log ``symshape.graphs`` prints it for each further graph: ``TORCH_LOGS="symshape.graphs"``, or
``logging.getLogger("symshape.graphs").setLevel(logging.INFO)``. PyTorch reads the names in TORCH_LOGS when it is
imported, before a log could be registered; it accepts the name of a module, so this module is named like its log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import CodeType

from symshape.frontend.bridge.dynamo import name_of_code
from symshape.frontend.bridge.earlier_entries import Failure
from symshape.frontend.bridge.question_origins import Line, Origin
from symshape.frontend.importer.specialisations import plain_source

log = logging.getLogger(__name__)
_PLURALS = {"graph": "graphs", "entry": "entries"}


@dataclass(frozen=True)
class Reason:
    """Why an earlier graph does not serve a call.

    ``graph``      its number, from 1 on
    ``condition``  the guard that fails: ``x.size(1) > 1``
    ``values``     the values in the condition, at this call: ``(("x.size(1)", "1"),)``
    ``line``       ``file:line`` of the user's line that made the guard; "" if there is none
    ``text``       the text of that line
    ``asked``      what evaluated the condition, if not user code: ``PyTorch's squeeze``, or the framework's line
    """

    graph: int
    condition: str
    values: tuple[tuple[str, str], ...] = ()
    line: str = ""
    text: str = ""
    asked: str = ""

    def __str__(self) -> str:
        return _told([self], "graph")

    @property
    def here(self) -> str:
        """The values at this call, and the origin of the guard, in words."""
        values = ", ".join(f"{name} = {value}" for name, value in self.values)
        return (f", here {values}" if values else "") + (f": {self._origin}" if self._origin else "")

    @property
    def _origin(self) -> str:
        if self.line:
            line = (f"`{self.text}` at " if self.text else "") + self.line
            return f"{self.asked}, called by {line}" if self.asked else line
        return f"by no line of yours, {self.asked}" if self.asked else ""


@dataclass(frozen=True)
class FurtherGraph:
    """Another graph of a function, or another entry of ``symshape.jit``.

    ``function``  its name
    ``line``      ``file:line`` of it
    ``number``    of the graph, from 2 on
    ``reasons``   why the earlier ones are not for this call, one for each
    ``kind``      "graph", or "entry" of ``symshape.jit``
    """

    function: str
    line: str
    number: int
    reasons: tuple[Reason, ...]
    kind: str = "graph"

    def __str__(self) -> str:
        alike: dict[str, list[Reason]] = {}
        for reason in self.reasons:
            alike.setdefault(reason.here, []).append(reason)
        head = f"{self.kind} {self.number} of {self.function} ({self.line})"
        return "\n  ".join([head, *(_told(reasons, self.kind) for reasons in alike.values())])


_OPERATOR = "PyTorch's "  # before its name


def _told(reasons: Sequence[Reason], kind: str) -> str:
    """Reasons that differ at most in the condition: ``graph 1 holds for n == 3, graph 2 for n == 4, here n = 5``."""
    graphs: dict[str, list[int]] = {}
    for reason in reasons:
        graphs.setdefault(reason.condition, []).append(reason.graph)
    told: list[str] = []
    for condition, numbers in graphs.items():
        several = len(numbers) > 1
        verb = "" if told else " hold" if several else " holds"
        told.append(f"{_PLURALS[kind] if several else kind} {', '.join(map(str, numbers))}{verb} for {condition}")
    return ", ".join(told) + reasons[0].here


def further_graph(code: CodeType, number: int, failures: Iterable[Failure]) -> FurtherGraph:
    """The graph of a code object that is about to be compiled."""
    reasons = tuple(_reason(failure) for failure in failures)
    return FurtherGraph(name_of_code(code), f"{code.co_filename}:{code.co_firstlineno}", number, reasons)


def _reason(failure: Failure) -> Reason:
    values = tuple((plain_source(name), value) for name, value in failure.values)
    line, text, asked = origin_text(failure.origin)
    return Reason(failure.number, plain_source(failure.condition), values, line, text, asked)


def origin_text(origin: Origin) -> tuple[str, str, str]:
    """The user's line and its text, and, if the framework evaluated the condition, its line in words."""
    if origin.operator:
        asked = _OPERATOR + origin.operator
    else:
        asked = "" if origin.is_by_python or origin.asked is None else _inside(origin.asked)
    return (str(origin.user), origin.user.text, asked) if origin.user is not None else ("", "", asked)


def origin_at(location: str) -> Origin:
    """The origin for a ``file:line``."""
    file, _, number = location.partition("\n")[0].rpartition(":")
    line = Line(file, int(number)) if number.isdigit() else None
    return Origin() if line is None else Origin(asked=line) if line.owner else Origin(line)


def _inside(line: Line) -> str:
    return f"{line} inside {line.owner}" if line.owner else str(line)


def log_further_graph(graph: FurtherGraph) -> None:
    log.info("%s", graph)


def log_limit(graph: FurtherGraph, name: str, lines: Sequence[Line], count: int) -> None:
    """Logs that a function has been compiled for enough values (``count``) of a size."""
    asked = {reason.line: reason.asked for reason in graph.reasons if reason.asked.startswith(_OPERATOR)}
    where = ", ".join(
        (f"{asked[str(line)]}, called by " if str(line) in asked else "") + f"`{line.text}` at {line}" for line in lines
    )
    log.warning(
        "%s (%s) has graphs for %s of %s, and now meets another one: %s. From now on the graph is broken there; "
        "what comes before is one graph for all values. symshape.SpecialisationPolicy(limit=...) says how many",
        graph.function,
        graph.line,
        "one value" if count == 1 else f"{count} values",
        plain_source(name),
        where,
    )
