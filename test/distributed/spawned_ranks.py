"""Starts the processes of several ranks, and collects what they found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).parent / "run_rank.py"
SECONDS = 900

Found = dict[str, list[dict[str, Any]]]  # name of a program -> what each rank found


def spawn(world: int, names: list[str], folder: Path) -> Found:
    """Runs the programs one after the other in ``world`` processes. A rank that ended before a program has run it says
    so as that program's error."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    logs = [folder / f"log{rank}" for rank in range(world)]
    processes = [
        subprocess.Popen(
            [sys.executable, SCRIPT, str(rank), str(world), folder, *names],
            env=environment,
            stdout=log.open("w"),
            stderr=subprocess.STDOUT,
        )
        for rank, log in enumerate(logs)
    ]
    try:
        for process in processes:
            process.wait(timeout=SECONDS)
    finally:
        for process in processes:
            process.kill()
    found = [_read(folder / str(rank)) for rank in range(world)]
    ended = [{"error": f"the process ended:\n{log.read_text()[-4000:]}"} for log in logs]
    return {name: [found[rank].get(name, ended[rank]) for rank in range(world)] for name in names}


def _read(file: Path) -> dict[str, Any]:
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return {one["name"]: one for one in map(json.loads, lines)}


if __name__ == "__main__":  # python spawned_ranks.py WORLD FOLDER PROGRAM...: a table
    for name, ranks in spawn(int(sys.argv[1]), sys.argv[3:], Path(sys.argv[2])).items():
        for rank, one in enumerate(ranks):
            error = one.get("error", "").strip().splitlines()
            print(name, rank, error[-1][:300] if error else {k: v for k, v in one.items() if k != "name"})
