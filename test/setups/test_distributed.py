"""DistributedDataParallel by gloo in two processes: what each rank computes is what it computes in eager mode."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from ddp_programs import PROGRAMS, WORLD

PROGRAM = Path(__file__).parent / "ddp_programs.py"


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank found of each program."""
    folder = tmp_path_factory.mktemp("ddp")
    outputs = [folder / f"rank{rank}.json" for rank in range(WORLD)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    processes = [
        subprocess.Popen([sys.executable, PROGRAM, str(rank), folder / "meeting", output], env=environment,
                         stderr=subprocess.PIPE, text=True)
        for rank, output in enumerate(outputs)
    ]  # fmt: skip
    try:
        errors = [process.communicate(timeout=300)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert not any(process.returncode for process in processes), "\n".join(errors)
    return [json.loads(output.read_text(encoding="utf-8")) for output in outputs]


@pytest.mark.parametrize("program", PROGRAMS)
def test_two_processes_train(program: str, ranks: list[dict[str, Any]], launches: Counter[str]) -> None:
    for found in ranks:
        assert found[program]["launches"], "this rank launched no kernel"
        launches.update(found[program]["launches"])
        for actual, expected in zip(found[program]["actual"], found[program]["expected"], strict=True):
            assert actual == pytest.approx(expected, rel=1e-4, abs=1e-6)
