"""Memory of large tensors is kept for the next call: a block is reused as soon as nothing uses it, and not before."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest
import torch

from symshape.knobs import KEPT_MEMORY
from symshape.runtime.cpu.kept_memory import KeptMemory

MIB = 1 << 18  # elements of float32


def empty(kept: KeptMemory, elements: int = MIB, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return kept.empty((elements // 4, 4), (4, 1), dtype)


USERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "itself": lambda x: x,
    "view": lambda x: x[3:, 2],
    "detached": lambda x: x.detach(),
    "array": lambda x: x.numpy(),
    "storage": lambda x: x.untyped_storage(),
    "typed storage": lambda x: x.storage(),
    "capsule": lambda x: torch.utils.dlpack.to_dlpack(x),
    "saved for backward": lambda x: torch.ones(4, requires_grad=True) * x,
}


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("user", USERS)
def test_a_block_is_taken_again_when_nobody_uses_it(user: str) -> None:
    kept = KeptMemory()
    first = empty(kept)
    address = first.data_ptr()
    using = USERS[user](first)
    del first
    second = empty(kept)
    assert second.data_ptr() != address
    del using
    assert empty(kept).data_ptr() == address


def test_a_block_serves_its_own_kind() -> None:
    kept = KeptMemory()
    address = empty(kept).data_ptr()
    others = [empty(kept, MIB + 4), empty(kept, MIB, torch.int32)]
    with torch.inference_mode():
        others.append(empty(kept))
    assert [one.is_inference() for one in others] == [False, False, True]
    assert address not in [one.data_ptr() for one in others]
    transposed = kept.empty((4, MIB // 4), (1, 4), torch.float32)
    assert transposed.data_ptr() == address
    assert transposed.shape == (4, MIB // 4) and transposed.stride() == (1, 4)
    assert transposed.untyped_storage().nbytes() == 4 * MIB
    assert not kept.empty((0, MIB), (MIB, 1), torch.float32).numel()


def test_gradients_of_what_is_given_out() -> None:
    kept = KeptMemory()
    with torch.inference_mode():
        empty(kept)
    x = empty(kept).fill_(2).requires_grad_()
    x.square().sum().backward()
    assert x.grad is not None and torch.equal(x.grad, torch.full_like(x, 4))


@pytest.mark.parametrize("change", ["shared", "resized"])
def test_memory_that_was_moved_is_not_taken(change: str) -> None:
    kept = KeptMemory()
    first = empty(kept)
    if change == "shared":
        first.share_memory_()
    else:
        first.untyped_storage().resize_(16)
    moved = first.data_ptr()
    del first
    second = empty(kept).zero_()
    assert second.data_ptr() != moved and second.untyped_storage().nbytes() == 4 * MIB


def test_the_bound() -> None:
    with KEPT_MEMORY.set_to("2"):
        kept = KeptMemory()
        first, second, third = (empty(kept) for _ in range(3))
        first.fill_(1)  # its block is forgotten, and it stays
        addresses = [one.data_ptr() for one in (second, third)]
        del second, third
        taken = [empty(kept), empty(kept), empty(kept, 3 * MIB)]
        assert sorted(one.data_ptr() for one in taken[:2]) == sorted(addresses)
        assert bool((first == 1).all())
    with KEPT_MEMORY.set_to("0"):
        kept = KeptMemory()
        empty(kept)
        assert not kept._blocks


def test_results_of_programs_are_their_own() -> None:
    """In a process of its own: the other tests give programs guarded memory."""
    program = """
    import resource, torch, symshape

    @symshape.compile
    def f(x, w):
        y = (x + 1).cumsum(1)
        return y.relu() @ w

    torch.set_num_threads(1)
    w = torch.randn(64, 64)
    results = []
    for n in (30000, 30000, 40000, 30000):
        x = torch.randn(n, 64)
        results.append((f(x, w), (x + 1).cumsum(1).relu() @ w))
    for found, expected in results:
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    del results, found, expected
    x = torch.randn(200000, 64)  # 49 MiB: the C library would map and clear it at each call
    g = symshape.compile(lambda x: (x * 2).relu())
    for _ in range(3):
        g(x)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        g(x)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 1000
    """
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr


def test_a_busy_lock() -> None:
    """Another thread, or a program that the garbage collector runs, gets memory of its own."""
    kept = KeptMemory()
    with kept._lock:
        assert empty(kept).untyped_storage().nbytes() == 4 * MIB
    assert not kept._blocks
