"""What PyTorch's own tools show: kernels by name in the profiler, TORCH_LOGS as of any backend."""

from __future__ import annotations

import os
import subprocess
import sys

import torch

import symshape

PROGRAM = """
import torch
f = torch.compile(lambda x, flag: x.softmax(1) if flag else x * 2, backend="symshape", dynamic=True)
f(torch.randn(3, 5), True)
f(torch.randn(4, 6), False)
"""


def test_profiler_shows_kernels_by_name() -> None:
    torch._dynamo.reset()

    def run(x: torch.Tensor) -> torch.Tensor:
        return (x @ x).softmax(1)

    compiled = torch.compile(run, backend="symshape", dynamic=True)
    x = torch.randn(5, 5)
    expected = compiled(x)
    with torch.profiler.profile() as profile:
        found = compiled(x)
    events = {event.key: event.count for event in profile.key_averages()}
    names = {f"symshape::{k.name}": 1 for graph in symshape.explain(run, x).graphs for k in graph.kernels}
    assert names and {name: count for name, count in events.items() if name.startswith("symshape::")} == names
    assert events["aten::mm"] == 1
    assert torch.equal(found, expected) and torch.equal(compiled(x), expected)


def test_torch_logs() -> None:
    """The host program and every kernel, guards, and why there was a second compile."""
    environment = {**os.environ, "TORCH_LOGS": "output_code,guards,recompiles", "SYMSHAPE_CACHE": "0"}
    result = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    lines = result.stderr.splitlines()
    assert sum("[__output_code] def program(args):" in line for line in lines) == 2
    assert any("[__output_code]" in line and "@kernel_0(" in line for line in lines)
    assert any("[__guards]" in line and "L['x']" in line for line in lines)
    assert any("[__recompiles]" in line and "flag" in line for line in lines)
    quiet = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**environment, "TORCH_LOGS": ""}, capture_output=True, text=True
    )
    assert "output_code" not in quiet.stderr + quiet.stdout
