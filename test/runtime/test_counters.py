"""Counters of programs that share rows: of each stream, grown when needed, and of each graph that is captured."""

from __future__ import annotations

import pytest
import torch

from symshape.runtime.triton import counters


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """A GPU with a current stream, and tensors on the CPU in place of its own."""
    state = {"stream": 7, "capturing": 0, "made": 0}

    def zeros(size: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        state["made"] += 1
        return torch.full((size,), 0, dtype=dtype)

    monkeypatch.setattr(counters, "_KEPT", {})
    monkeypatch.setattr(counters, "current_gpu", lambda: 0)
    monkeypatch.setattr(counters, "raw_stream", lambda _device: state["stream"])
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: bool(state["capturing"]))
    monkeypatch.setattr(torch, "zeros", zeros)
    return state


def test_a_stream_has_its_own(gpu: dict[str, int]) -> None:
    device = torch.device("cuda", 0)
    first = counters.zero_counters(3, device)
    assert first.dtype == torch.int32 and first.numel() >= 3 and not first.any()
    assert counters.zero_counters(1024, device) is first
    gpu["stream"] = 8
    other = counters.zero_counters(3, device)
    assert other is not first and counters.zero_counters(5, device) is other
    gpu["stream"] = 7
    more = counters.zero_counters(1025, device)
    assert more.numel() >= 1025 and counters.zero_counters(1, device) is more
    assert gpu["made"] == 3


def test_a_captured_graph_has_its_own(gpu: dict[str, int]) -> None:
    device = torch.device("cuda", 0)
    outside = counters.zero_counters(3, device)
    gpu["capturing"] = 1
    one, other = (counters.zero_counters(3, device) for _ in range(2))
    assert len({id(x) for x in (outside, one, other)}) == 3
    gpu["capturing"] = 0
    assert counters.zero_counters(3, device) is outside


def test_interpreted_launches_share_none() -> None:
    one, other = (counters.zero_counters(4, torch.device("cpu")) for _ in range(2))
    assert one is not other and one.tolist() == [0] * 4
