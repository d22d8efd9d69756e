"""DistributedDataParallel by gloo in two processes: what each rank computes is what it computes in eager mode."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from ddp_programs import PROGRAMS, WORLD

SCRIPT = Path(__file__).parent / "ddp_programs.py"
FAST = ("compiled outside", "small buckets")
LONG = tuple(name for name in PROGRAMS if name not in FAST)
SECONDS = 300


@pytest.mark.parametrize("programs", [FAST, pytest.param(LONG, marks=pytest.mark.long)])
def test_two_processes_train(programs: tuple[str, ...], tmp_path: Path, launches: Counter[str]) -> None:
    outputs = [tmp_path / f"rank{rank}.json" for rank in range(WORLD)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    processes = [
        subprocess.Popen(
            [sys.executable, SCRIPT, str(rank), tmp_path / "meeting", output, *programs],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, output in enumerate(outputs)
    ]
    try:
        errors = [process.communicate(timeout=SECONDS)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert not any(process.returncode for process in processes), "\n".join(errors)
    for output in outputs:
        found = json.loads(output.read_text(encoding="utf-8"))
        assert all(found[name] for name in programs), "a rank launched no kernel"
        for counts in found.values():
            launches.update(counts)
