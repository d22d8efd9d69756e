"""What runs in each process: ``python run_rank.py RANK WORLD FOLDER PROGRAM...``

Each program has a process group of its own, whose processes meet at a file of FOLDER, so that one that fails does not
spoil the next. What is found is a line of JSON for each program in ``FOLDER/RANK``. A program that takes too long ends
the process, with a traceback.
"""

from __future__ import annotations

import faulthandler
import json
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "setups"))

import torch
import torch.distributed as dist
from launches import counted_launches
from rank_programs import PROGRAMS, Ranks
from torch._dynamo.utils import counters

import symshape

COLLECTIVE_SECONDS = 160  # after which one that is not complete is an error: another rank may be compiling
PROGRAM_SECONDS = 240
BROKEN = ("broken_promise", "broken_split")  # whose results are errors


def _plain(model: Any) -> Any:
    return torch.compile(model, backend="symshape", dynamic=True)


def _mixed(model: Any) -> Any:
    return symshape.compile(model) if dist.get_rank() else model


ENTRIES: dict[str, Callable[[Any], Any]] = {"compile": symshape.compile, "plain": _plain, "mixed": _mixed}


def run(name: str, ranks: Ranks) -> dict[str, Any]:
    """What the compiled program did: graphs, launches, seconds. An error where it is not as in eager mode."""
    function, entry = PROGRAMS[name.partition("/")[0]], ENTRIES[name.partition("/")[2] or "compile"]
    expected = [] if name in BROKEN else function(lambda model: model, ranks)
    torch._dynamo.reset()
    counters.clear()
    start = time.perf_counter()
    with counted_launches() as launches, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        actual = function(entry, ranks)
    seconds = time.perf_counter() - start
    if name not in BROKEN:
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    breaks = [str(reason)[:100] for reason in counters["graph_break"]]
    return {
        "graphs": counters["stats"]["unique_graphs"],
        "launches": sum(launches.values()),
        "seconds": seconds,
        "breaks": breaks,
        "results": actual if name in BROKEN else [],
    }


def main(rank: int, world: int, folder: Path, names: list[str]) -> None:
    with (folder / str(rank)).open("w", encoding="utf-8") as output:
        for number, name in enumerate(names):
            faulthandler.dump_traceback_later(PROGRAM_SECONDS, exit=True)
            timeout = timedelta(seconds=COLLECTIVE_SECONDS)
            meeting = f"file://{folder / f'meeting{number}'}"
            dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world, timeout=timeout)
            try:
                found = run(name, Ranks(rank, world, dist.group.WORLD))
            except Exception:
                found = {"error": traceback.format_exc()}
            print(json.dumps({"name": name} | found), file=output, flush=True)
            dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
