"""Programs of several ranks: each rank computes what it does in eager mode, in one graph, with kernels of ours.

``/plain`` is ``torch.compile(backend="symshape")``. In ``/mixed`` rank 0 runs in eager mode and the others are
compiled: that is no hang only where every collective is made, once, in eager mode's order.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

sys.path.insert(0, str(Path(__file__).parent))

from rank_programs import PROGRAMS
from spawned_ranks import Found, spawn

BROKEN = ["broken_promise", "broken_split"]
WHOLE = [name for name in PROGRAMS if name not in BROKEN]
FAST = ["all_to_all", "two_all_reduces_of_one_value/mixed", "sharded_sequential"]
MIXED = [
    "nobody_reads/mixed",
    "all_to_all/mixed",
    "chains/mixed",
    "in_place/mixed",
    "data_parallel/mixed",
    "sharded_module/mixed",
    "sequence_parallel/mixed",
]
PLAIN = ["all_reduce/plain", "sharded_module/plain", "tensor_parallel/plain"]
SLOW = [*(name for name in WHOLE if name not in FAST), *MIXED, *PLAIN]
OF_FOUR = [*WHOLE, *MIXED]


def _spawned(world: int, names: list[str], request: pytest.FixtureRequest, factory: pytest.TempPathFactory) -> Found:
    """What the programs found, which are started once, also where several workers run the tests of this file."""
    base = factory.getbasetemp()
    shared = base.parent if hasattr(request.config, "workerinput") else base
    file = shared / f"{request.fixturename}.json"
    with FileLock(f"{file}.lock"):
        if not file.exists():
            file.write_text(json.dumps(spawn(world, names, factory.mktemp("ranks"))), encoding="utf-8")
    found: Found = json.loads(file.read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def fast(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Found:
    return _spawned(2, FAST, request, tmp_path_factory)


@pytest.fixture(scope="module")
def slow(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Found:
    return _spawned(2, SLOW, request, tmp_path_factory)


@pytest.fixture(scope="module")
def of_four(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Found:
    return _spawned(4, OF_FOUR, request, tmp_path_factory)


@pytest.fixture(scope="module")
def broken(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Found:
    return _spawned(2, BROKEN, request, tmp_path_factory)


def _assert_compiled(ranks: list[dict[str, Any]], mixed: bool) -> None:
    for rank, found in enumerate(ranks):
        assert "error" not in found, f"rank {rank}: {found['error']}"
        if rank or not mixed:
            assert found["graphs"] == 1, f"rank {rank}: {found['breaks']}"
            assert found["launches"] > 0, f"rank {rank}: no kernel of ours was launched"


@pytest.mark.parametrize("name", FAST)
def test_two_ranks(name: str, fast: Found) -> None:
    _assert_compiled(fast[name], name.endswith("/mixed"))


@pytest.mark.long
@pytest.mark.parametrize("name", SLOW)
def test_two_ranks_of_more_programs(name: str, slow: Found) -> None:
    _assert_compiled(slow[name], name.endswith("/mixed"))


@pytest.mark.long
@pytest.mark.parametrize("name", OF_FOUR)
def test_four_ranks(name: str, of_four: Found) -> None:
    _assert_compiled(of_four[name], name.endswith("/mixed"))


@pytest.mark.long
@pytest.mark.parametrize("name", BROKEN)
def test_other_sizes_than_promised_are_an_error(name: str, broken: Found) -> None:
    """The rank that has them says so; the others do not wait for it longer than their group's timeout."""
    others, wrong = (found["results"] for found in broken[name])
    assert wrong[0] == ("ShapeConstraintError" if name == "broken_promise" else "RuntimeError"), wrong
    assert ("rows come in pairs" if name == "broken_promise" else "split") in wrong[1].lower(), wrong
    assert others[0] != "no error", others
