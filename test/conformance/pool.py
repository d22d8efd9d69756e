"""Tasks in processes of their own: a crash or a task that takes too long is a result, and the others go on."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WORKER = Path(__file__).parent / "worker.py"
TASKS = 120  # a worker makes way for a fresh one after so many: what tracing keeps in memory goes with it


@dataclass
class Worker:
    """A process and the task it is at."""

    log: Path
    environment: dict[str, str]
    process: subprocess.Popen[str] | None = None
    task: dict[str, Any] | None = None
    started: float = 0.0
    done: int = field(default=0)

    def give(self, task: dict[str, Any]) -> None:
        if self.process is None or self.process.poll() is not None or self.done >= TASKS:
            self.stop()
            with self.log.open("w") as log:
                self.process = subprocess.Popen(
                    [sys.executable, str(WORKER)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    env=os.environ | self.environment,
                )
            self.done = 0
        assert self.process.stdin is not None
        self.task, self.started, self.done = task, time.monotonic(), self.done + 1
        self.process.stdin.write(json.dumps(task) + "\n")
        self.process.stdin.flush()

    def stop(self) -> int:
        """Ends the process; its exit status."""
        if self.process is None:
            return 0
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    pass
        status, self.process = self.process.wait(), None
        return status


def results(
    tasks: Iterable[dict[str, Any]], jobs: int, limit: float, folder: Path, environment: dict[str, str]
) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]] | str]]:
    """(task, its records, or why there are none), in the order in which they are done.

    ``limit`` seconds for each; a worker ends itself after task["limit"] seconds of processor time.
    """
    waiting = iter(tasks)
    folder.mkdir(parents=True, exist_ok=True)
    workers = [Worker(folder / f"worker-{i}.log", environment) for i in range(jobs)]
    try:
        busy = [worker for worker in workers if _next(worker, waiting)]
        while busy:
            for worker in _ready(busy, limit):
                task = worker.task
                assert task is not None
                yield task, _outcome(worker, limit)
                if not _next(worker, waiting):
                    busy.remove(worker)
    finally:
        for worker in workers:
            worker.stop()


def _next(worker: Worker, waiting: Iterator[dict[str, Any]]) -> bool:
    task = next(waiting, None)
    if task is not None:
        worker.give(task)
    return task is not None


def _ready(busy: list[Worker], limit: float) -> list[Worker]:
    """Those that have answered, ended, or been at it for too long."""
    late = min(worker.started for worker in busy) + limit - time.monotonic()
    with selectors.DefaultSelector() as selector:
        for worker in busy:
            assert worker.process is not None and worker.process.stdout is not None
            selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
        found = [key.data for key, _ in selector.select(max(late, 0.0))]
    return found or [worker for worker in busy if time.monotonic() - worker.started >= limit]


def _outcome(worker: Worker, limit: float) -> list[dict[str, Any]] | str:
    assert worker.process is not None and worker.process.stdout is not None
    if time.monotonic() - worker.started >= limit:
        worker.stop()
        return "takes too long"
    line = worker.process.stdout.readline()
    if line:
        return list(json.loads(line))
    worker.process.wait()
    status = worker.process.returncode
    worker.stop()
    lines = [text.strip() for text in worker.log.read_text(errors="replace").splitlines() if text.strip()]
    name = signal.Signals(-status).name if status < 0 else f"status {status}"
    if name == "SIGXCPU":
        return "takes too long"
    return f"the process ends with {name}: {lines[-1] if lines else ''}"[:300]
