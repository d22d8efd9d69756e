"""A run of bench/gpu.py: measurements in order while there is time, kept in a file that a later run goes on with.

A measurement is a generator: it compiles and checks, yields, takes times, and returns its row. Of processes that share
a GPU each brings all of its measurements to the ``yield``; then one process at a time takes times, alone on the GPU.

A row is known by its part, name, dtype and shape. What fails is a row too, and is not tried again unless it is asked
for: an illegal access ends everything that the process could still do on the GPU. A measurement that ended the process
itself is found by the next run, which counts it as failed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from gpu_timing import Times, measure

import symshape
from symshape.cache.own_files import own_digest
from symshape.tools.measure import write_result

Row = dict[str, Any]
Key = tuple[str, str, str, tuple[int, ...]]
Work = Generator[None, None, Row]
IDENTITY: Final = ("device", "torch", "symshape", "dry_run")
PREPARING: Final = 0.6  # of the time, where processes work together
_ENDED: Final = "the process ended while this was measured"


class Mismatch(Exception):
    """Rows of two devices, or of two versions, cannot stand in one file."""


class DeviceLost(Exception):
    """The process can do nothing more on the GPU."""


@dataclass(frozen=True)
class Job:
    """One measurement: what makes the row, but for its key. ``expected``: seconds, before one of the part was timed.
    ``work``: a generator (see above), or the row where no times are taken."""

    part: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    work: Callable[[Run], Work | Row] = field(compare=False)
    expected: float = 4.0

    @property
    def key(self) -> Key:
        return self.part, self.name, self.dtype, self.shape

    @property
    def group(self) -> tuple[str, ...]:
        """Jobs of which this is equal share compiled functions."""
        return self.part, self.name, self.dtype

    def __str__(self) -> str:
        return f"{self.part}: {self.name} {self.dtype} {'x'.join(map(str, self.shape))}"


@dataclass
class Run:
    """Where, how long, and what has been found. ``kept``: what jobs of one part share, such as compiled functions.
    ``lock``: a file that the processes which share the GPU hold while they take times; "" for a process alone."""

    device: str
    dry: bool
    rounds: int
    deadline: float
    out: str = ""
    lock: str = ""
    share: tuple[int, int] = (0, 1)  # of the jobs: which one, of how many
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    kept: dict[Any, Any] = field(default_factory=dict)
    large: tuple[Any, Any] | None = None
    longest: dict[str, float] = field(default_factory=dict)  # seconds of the longest measurement of each part so far

    def backend(self, name: str) -> dict[str, Any]:
        """Arguments of torch.compile. A dry run has no Inductor: it would compile C++ for minutes."""
        if name == "symshape":
            return {"backend": "symshape", "options": self.options}
        return {"backend": "eager" if self.dry else "inductor"}

    @property
    def options(self) -> dict[str, Any]:
        """Of symshape's compiles."""
        return {"target": "triton", "cache": False} if self.dry else {"cache": False}

    def times(self, calls: Mapping[str, Callable[[], Any]]) -> dict[str, Times]:
        """`gpu_timing.measure` of each call."""
        return measure(calls, self.rounds, self.device)

    @contextlib.contextmanager
    def holding(self, exclusive: bool) -> Iterator[None]:
        """The lock, which many processes hold to prepare, or one to take times."""
        if not self.lock:
            yield
            return
        with open(self.lock, "a") as file:  # closing it gives the lock back
            fcntl.flock(file, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
            yield

    def time_left(self) -> float:
        return self.deadline - time.monotonic()

    def put(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Keyword inputs on the device."""
        return {name: value.to(self.device) for name, value in inputs.items()}

    def shared(self, key: Any, make: Callable[[], Any]) -> Any:
        """What ``make`` makes, once for the key."""
        if key not in self.kept:
            self.kept[key] = make()
        return self.kept[key]

    def only(self, key: Any, make: Callable[[], Any]) -> Any:
        """The same of what holds much memory: that of the key before is let go."""
        if self.large is None or self.large[0] != key:
            self.large = None
            self.large = key, make()
        return self.large[1]

    def save(self, pending: Job | None = None) -> None:
        """Writes all rows; ``pending``: what is measured from now on."""
        if not self.out:
            return
        begun = {} if pending is None else {"pending": _head(pending)}
        write_result(self.out, "gpu", self.rows, identity=identity(self.dry), notes=self.notes, **begun)

    def load(self, retry: bool) -> None:
        """What an earlier run has left in the file. Mismatch where it was of another device or version."""
        if not self.out or not Path(self.out).exists():
            return
        record = json.loads(Path(self.out).read_text(encoding="utf-8"))
        require_equal([record["summary"]["identity"], identity(self.dry)], [self.out, "this run"])
        self.rows = record["rows"]
        if pending := record["summary"].get("pending"):
            self.rows.append({**pending, "failed": _ENDED})
        if retry:
            self.rows = [row for row in self.rows if "failed" not in row]
        for row in self.rows:
            self.longest[row["part"]] = max(self.longest.get(row["part"], 0.0), row.get("measured_in", 0.0))


def key_of(row: Row) -> Key:
    return row["part"], row["name"], row["dtype"], tuple(row["shape"])


def identity(dry: bool) -> dict[str, Any]:
    """What all rows of a file have in common."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() and not dry else "cpu"
    own = f"{symshape.__version__} {own_digest()[:12]}"
    return {"device": device, "torch": torch.__version__, "symshape": own, "dry_run": dry}


def require_equal(identities: list[dict[str, Any]], names: list[str]) -> None:
    """Mismatch, which says what differs, unless all are equal."""
    for what in IDENTITY:
        found = {name: str(one[what]) for name, one in zip(names, identities, strict=True)}
        if len(set(found.values())) > 1:
            raise Mismatch(f"{what} differs: " + ", ".join(f"{value} in {name}" for name, value in found.items()))


def merge(files: Iterable[str]) -> dict[str, Any]:
    """One record of several files. Of rows with one key the last that did not fail stays. Mismatch as above."""
    names = list(files)
    records = [json.loads(Path(name).read_text(encoding="utf-8")) for name in names]
    require_equal([record["summary"]["identity"] for record in records], names)
    rows: dict[Key, Row] = {}
    for row in (row for record in records for row in record["rows"]):
        if "failed" not in row or key_of(row) not in rows:
            rows[key_of(row)] = row
    notes = list(dict.fromkeys(note for record in records for note in record["summary"]["notes"]))
    return {"rows": list(rows.values()), "identity": records[0]["summary"]["identity"], "notes": notes}


def perform(run: Run, jobs: list[Job], line: Callable[[Row], str]) -> int:
    """Job after job while there is time for one more; the number of those that are left. DeviceLost if it is."""
    done = {key_of(row) for row in run.rows}
    todo = [job for job in jobs if job.key not in done]
    found = _together(run, todo, line) if run.lock else _in_turn(run, todo, line)
    return len(todo) - found


def _in_turn(run: Run, jobs: list[Job], line: Callable[[Row], str]) -> int:
    found = 0
    for job in jobs:
        if run.time_left() >= run.longest.get(job.part, job.expected):
            begun = _begin(run, job)
            _finish(run, begun, line)
            found += 1
    return found


def _together(run: Run, jobs: list[Job], line: Callable[[Row], str]) -> int:
    """With other processes: all is prepared first. The lock is exclusive once none of them prepares any more."""
    begun, end = [], run.deadline - (1 - PREPARING) * run.time_left()
    with run.holding(exclusive=False):
        for job in jobs:
            if end - time.monotonic() >= run.longest.get(job.part, job.expected):
                begun.append(_begin(run, job))
                _require_device(run)
    found = 0
    for one in begun:
        with run.holding(exclusive=True):
            if run.time_left() > 0:
                _finish(run, one, line)
                found += 1
    return found


@dataclass
class _Begun:
    """A job that waits for its times, and the seconds that it took so far; ``row``: of one that needs none."""

    job: Job
    work: Work | None = None
    seconds: float = 0.0
    row: Row | None = None


def _begin(run: Run, job: Job) -> _Begun:
    """To the ``yield``."""
    begun = _Begun(job)
    _advance(run, begun)
    return begun


def _finish(run: Run, begun: _Begun, line: Callable[[Row], str]) -> None:
    """Takes the times, keeps the row and says so."""
    job = begun.job
    if begun.row is None:
        _advance(run, begun)
    assert begun.row is not None, f"{job} yields twice"
    row = {**_head(job), **begun.row, "measured_in": begun.seconds}
    run.rows.append(row)
    run.save()
    print(f"[{len(run.rows)}, {run.time_left():.0f} s left] {job}: {line(row)}", flush=True)
    _require_device(run)


def _advance(run: Run, begun: _Begun) -> None:
    """To the ``yield``, or from there to the end."""
    run.save(pending=begun.job)
    start = time.monotonic()
    try:
        if begun.work is None:
            made = begun.job.work(run)
            if isinstance(made, dict):
                begun.row = made
            else:
                begun.work = made
        if begun.work is not None:
            next(begun.work)
    except StopIteration as end:
        begun.row = end.value
    except Exception as failure:  # the rest is still worth measuring
        begun.row = {"failed": f"{type(failure).__name__}: {failure}"[:2000]}
    begun.seconds += time.monotonic() - start
    run.longest[begun.job.part] = max(run.longest.get(begun.job.part, 0.0), begun.seconds)


def dealt(jobs: list[Job], share: int, shares: int) -> list[Job]:
    """The jobs of one of several processes: jobs that share compiled functions stay together, and the longest of these
    groups are dealt first, each to the process that has least to do."""
    groups: dict[tuple[str, ...], list[Job]] = {}
    for job in jobs:
        groups.setdefault(job.group, []).append(job)
    loads, taken = [0.0] * shares, set()
    for key, group in sorted(groups.items(), key=lambda one: -sum(job.expected for job in one[1])):
        least = loads.index(min(loads))
        loads[least] += sum(job.expected for job in group)
        taken |= {key} if least == share else set()
    return [job for job in jobs if job.group in taken]


def _head(job: Job) -> Row:
    return {"part": job.part, "name": job.name, "dtype": job.dtype, "shape": list(job.shape)}


def _require_device(run: Run) -> None:
    if run.device == "cpu":
        return
    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # for other processes
    except RuntimeError as error:
        raise DeviceLost(f"{error}\nrun it again: it goes on behind the measurement that failed") from error
