"""Measurements of the dashboard, and the append-only file that stores them, from which an interrupted run resumes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

Samples = dict[str, list[float]]


@dataclass(frozen=True)
class Setting:
    """What figures depend on besides model and way. Only figures of equal settings are comparable.

    ``machine``     processor and number of cores
    ``software``    versions of Python and of packages
    ``conditions``  threads, clock, sizes, rounds
    """

    machine: str
    software: str
    conditions: str


@dataclass(frozen=True)
class Key:
    """Identifies a measurement. ``commit`` includes a digest of uncommitted changes (`symshape.tools.commit`)."""

    commit: str
    setting: Setting
    group: str
    model: str
    way: str
    turn: int


@dataclass(frozen=True)
class Measurement:
    """One model run in one way, in a process of its own. Parts that were not reached after a failure are None or empty.

    ``first``      seconds of processor time of the first call, including compilers run as subprocesses
    ``first_wall`` wall time of the first call, in seconds
    ``compile``    seconds of these spent in the backend; None without a backend (aot_eager)
    ``later``      seconds of processor time of the first calls at the other sizes, with any recompiles
    ``seconds``    seconds per call by size: samples of eager mode and of this way, taken in turns
    ``errors``     largest difference to eager mode by size, relative to the largest value
    ``memory``     bytes of peak memory beyond that of eager mode at all sizes
    ``graphs``     number of graphs compiled over all sizes
    ``kernels``    kernel launches per call at the first size
    ``bytes``      bytes that kernels and library calls of such a call read and write; None if not known for this way
    ``error``      what failed; "" if nothing did
    """

    key: Key
    date: str
    first: float | None = None
    first_wall: float | None = None
    compile: float | None = None
    later: float | None = None
    seconds: dict[str, Samples] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    memory: int | None = None
    graphs: int | None = None
    kernels: int | None = None
    bytes: int | None = None
    error: str = ""


FIGURES = tuple(one.name for one in fields(Measurement) if one.name not in ("key", "date"))


def of_figures(key: Key, date: str, figures: Mapping[str, Any]) -> Measurement:
    """A measurement from the figures that the measuring process printed."""
    return Measurement(key, date, **{name: figures[name] for name in FIGURES if name in figures})


class Store:
    """Measurements as JSON lines, each written as soon as it is taken. Incomplete lines of a killed run are skipped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.measurements: dict[Key, Measurement] = {}
        self.broken = 0
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        self._unfinished = bool(text) and not text.endswith("\n")
        for line in text.splitlines():
            try:
                found = _read(json.loads(line))
            except (ValueError, TypeError, KeyError):
                self.broken += 1
                continue
            self.measurements[found.key] = found

    def add(self, measurement: Measurement) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(("\n" if self._unfinished else "") + json.dumps(asdict(measurement)) + "\n")
        self._unfinished = False
        self.measurements[measurement.key] = measurement

    def having(self, commit: str, setting: Setting) -> list[Measurement]:
        """The measurements of one commit and setting."""
        return [one for key, one in self.measurements.items() if (key.commit, key.setting) == (commit, setting)]

    def kept(self, wanted: Iterable[Key], commit: str, setting: Setting) -> str:
        """A sentence on how many of the ``wanted`` measurements exist, and which are ignored."""
        every = list(wanted)
        there = sum(key in self.measurements for key in every)
        others = len(self.measurements) - len(self.having(commit, setting))
        said = [f"{there} of {len(every)} measurements are there already"]
        said += [f"{others} of other commits, machines or conditions are not used"] if others else []
        said += [f"{self.broken} unfinished lines are left out"] if self.broken else []
        return "; ".join(said)


def _read(record: Mapping[str, Any]) -> Measurement:
    key = dict(record["key"])
    return Measurement(**{**record, "key": Key(**{**key, "setting": Setting(**key["setting"])})})
