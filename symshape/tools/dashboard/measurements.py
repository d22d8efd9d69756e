"""A measurement of the dashboard, and the file that they are appended to: a run that was cut off goes on from it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

Samples = dict[str, list[float]]


@dataclass(frozen=True)
class Setting:
    """What figures depend on besides the model and the way to run it: those of one setting may be compared.

    ``machine``     processor and number of cores
    ``software``    versions of Python and of packages
    ``conditions``  threads, clock, sizes, rounds
    """

    machine: str
    software: str
    conditions: str


@dataclass(frozen=True)
class Key:
    """``commit``: of the code, with a digest of what is changed in the working tree (`symshape.tools.commit`)."""

    commit: str
    setting: Setting
    group: str
    model: str
    way: str
    turn: int


@dataclass(frozen=True)
class Measurement:
    """A model in one way, in a process of its own.

    ``first``      seconds of processor time of the first call, with those of compilers that were run
    ``first_wall`` the same by the clock on the wall
    ``compile``    of these, the backend's seconds: None where there is none (aot_eager)
    ``later``      seconds of processor time of the first calls at the other sizes, what is compiled for them in it
    ``seconds``    of a call, for each size: samples of eager mode and of this way, taken in turns
    ``errors``     for each size the largest difference to eager mode over the largest value
    ``memory``     bytes by which the process has grown at its peak beyond that of eager mode at all sizes
    ``graphs``     over all sizes
    ``kernels``    launches of a call at the first size
    ``bytes``      that kernels and library calls of it read and write; None where the way has no such figure
    ``error``      what failed; what was not reached is None or empty
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
    """What the measuring process has printed, as a measurement."""
    return Measurement(key, date, **{name: figures[name] for name in FIGURES if name in figures})


class Store:
    """Measurements as JSON lines. Each is written as soon as it is there; one that a killed run has half written is
    left out, and what follows starts on a line of its own."""

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
        """Those of one commit and setting: others are never mixed in."""
        return [one for key, one in self.measurements.items() if (key.commit, key.setting) == (commit, setting)]

    def kept(self, wanted: Iterable[Key], commit: str, setting: Setting) -> str:
        """What a run that wants these finds, in a sentence."""
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
