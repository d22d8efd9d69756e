"""Calls on a chunk of Python's frames of their own, and threads with a small stack."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from symshape.stack_room import with_room

ROOT = Path(__file__).resolve().parents[2]


def _at_depth(depth: int, function: Callable[[], int]) -> int:
    return function() if depth == 0 else _at_depth(depth - 1, function)


def _sum(values: list[int], /, *, times: int) -> int:
    return sum(values) * times


@pytest.mark.parametrize("depth", [0, 1, 50, 300])
def test_arguments_and_result(depth: int) -> None:
    assert _at_depth(depth, lambda: with_room(_sum, [1, 2, 3], times=depth)) == 6 * depth


def test_errors_pass() -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        with_room(_sum, ["a"], times=1)
    assert with_room(_sum, [2], times=1) == 2


def test_frame_needs_a_chunk_of_its_own() -> None:
    """A chunk is 16 KiB, 2048 words, and is doubled until the frame fits: CPython's ``allocate_chunk``."""
    words = with_room.__code__.co_stacksize + with_room.__code__.co_nlocals
    chunk = 2048
    while chunk < words:
        chunk *= 2
    assert words > 2048 and chunk - words > 4000


def test_calls_in_a_loop_begin_no_chunk() -> None:
    """What the kernel is asked for while a loop calls, at each place of a chunk at which the loop may run."""
    if sys.platform != "linux":
        pytest.skip("counts page faults as Linux does")
    import resource

    def leaf() -> int:
        return 0

    def loop() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(400):
            leaf()
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    assert not tracemalloc.is_tracing()
    faults = [_at_depth(depth, loop) for depth in range(200)]
    with_rooms = [_at_depth(depth, lambda: with_room(loop)) for depth in range(200)]
    if max(faults) < 400:
        pytest.skip("this Python keeps the chunk that was left last")
    assert max(with_rooms) < 400


SMALL = """
import sys, threading, torch
threading.stack_size(256 << 10)

def fn(x):
    return torch.softmax(x * 2, -1).sum(0)

def call():
    import symshape
    before = "torch_mlir" in sys.modules
    x = torch.ones(7, 5)
    torch.testing.assert_close(symshape.compile(fn)(x), fn(x))
    print(before, "torch_mlir" in sys.modules, threading.stack_size())

thread = threading.Thread(target=call)
thread.start()
thread.join()
"""


def test_a_thread_with_a_small_stack_compiles() -> None:
    """MLIR's own loading needs more than such a thread has."""
    environment = {**os.environ, "SYMSHAPE_CACHE": "0", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", SMALL], env=environment, capture_output=True, text=True)
    assert done.stdout == f"False True {256 << 10}\n", (done.returncode, done.stderr[-3000:])
