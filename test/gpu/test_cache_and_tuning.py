"""Compiled graphs on disk, for this GPU; variants of kernels chosen by measured time, kept there too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from gpu_machine import Machine, cases_of, same

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYMSHAPE_CACHE", "1")
    monkeypatch.setenv("SYMSHAPE_CACHE_DIR", str(tmp_path))


CACHED: dict[str, tuple[Callable[..., Any], Callable[[int, int], list[torch.Tensor]]]] = {
    "pointwise": (lambda x: (x * 2).exp() + 1, lambda n, m: [torch.randn(n, m)]),
    "reduction": (lambda x: torch.softmax(x, -1), lambda n, m: [torch.randn(n, m)]),
    "constant": (
        lambda x: x.sum(1)[:, None] + torch.tensor([1.0, 2.0, 3.0], device=x.device),
        lambda n, m: [torch.randn(n, m)],
    ),
    "indices": (
        lambda x, i: torch.zeros_like(x).index_add(0, i, x) + x[i],
        lambda n, m: [torch.randn(n, m), torch.randint(0, n, (n,))],
    ),
    "number of the CPU": (lambda x: x * torch.tensor(2.5), lambda n, m: [torch.randn(n, m)]),
}


@pytest.mark.parametrize("name", cases_of(CACHED, ["pointwise", "number of the CPU"]))
def test_a_hit_computes_what_was_compiled(machine: Machine, name: str, outcomes: Callable[[], list[str]]) -> None:
    fn, make = CACHED[name]
    for sizes, expected in (((5, 7), ["miss", "stored"]), ((2, 33), ["hit"]), ((1, 1), ["hit"])):
        torch._dynamo.reset()
        inputs = machine.put(make(*sizes))
        same(machine.compile(fn)(*inputs), fn(*inputs), rtol=1e-5, atol=1e-5)
        assert outcomes() == expected


def test_forward_and_backward_are_kept(machine: Machine, outcomes: Callable[[], list[str]]) -> None:
    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.gelu(F.layer_norm(x @ w, (3,))).sum()

    w = machine.put(torch.randn(4, 3, requires_grad=True))
    for rows, expected in ((5, ["miss", "stored"] * 2), (9, ["hit"] * 2), (1, ["hit"] * 2)):
        torch._dynamo.reset()
        x = machine.put(torch.randn(rows, 4))
        found = [torch.autograd.grad(run(x, w), w)[0] for run in (machine.compile(fn), fn)]
        same(*found, rtol=1e-3, atol=1e-4)
        assert outcomes() == expected


PROGRAM = """
    import json, sys, torch, symshape
    from gpu_machine import machine_here, same
    machine = machine_here()
    def fn(x):
        return torch.softmax(x * 2, -1).sum(0)
    compiled = machine.compile(fn)
    for n, m in ((3, 5), (1, 1), (9, 65)):
        x = machine.put(torch.randn(n, m))
        same(compiled(x), fn(x), rtol=1e-5, atol=1e-5)
    print(json.dumps({"mlir": "torch_mlir" in sys.modules, "device": machine.device}))
"""


@pytest.mark.long
def test_another_process_compiles_nothing(machine: Machine, tmp_path: Path) -> None:
    """The second process loads no MLIR, and Triton's machine code comes from Triton's own cache."""
    paths = [str(ROOT), str(ROOT / "test" / "support"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "TRITON_CACHE_DIR": str(tmp_path / "triton")}
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(PROGRAM))
    found = []
    for _ in range(2):
        done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout.splitlines()[-1]))
    assert found == [{"mlir": first, "device": machine.device} for first in (True, False)]


TUNED: dict[str, Callable[[torch.Tensor], Any]] = {
    "pointwise": lambda x: x * 2 + 1,
    "transposed": lambda x: x.t().contiguous() + 1,
    "reduction": lambda x: torch.softmax(x, -1),
    "columns": lambda x: x.abs().sum(0),
}


@pytest.mark.parametrize("name", cases_of(TUNED, ["transposed", "columns"]))
def test_tuned_kernels(machine: Machine, name: str) -> None:
    """Whatever is found fastest is right, at sizes of other buckets and beside their edges too."""
    fn = TUNED[name]
    compiled = machine.compile(fn, autotune=True)
    for n, m in ((5, 7), (1, 1), (0, 3), *machine.pick(((4, 16),), ((4, 16), (3, 100_003), (4096, 1024)))):
        x = machine.put(torch.randn(n, m))
        for _ in range(2):
            same(compiled(x), fn(x), rtol=1e-5, atol=1e-5)


def test_measuring_writes_to_nothing_of_the_callers(machine: Machine) -> None:
    """A kernel that updates an input in place is run on copies as often as it takes."""

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(y).mul_(0.5)
        return x.sum(1)

    compiled = machine.compile(step, mode="max-autotune-no-cudagraphs")
    for n, m in ((5, 7), (1, 1), (3, 33)):
        x, y = machine.put((torch.randn(n, m), torch.randn(n, m)))
        other = x.clone()
        for _ in range(2):
            same(compiled(x, y), step(other, y), rtol=1e-5, atol=1e-5)
            same(x, other)


def test_what_was_measured_is_kept(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later process measures nothing for the buckets that are known."""
    from symshape.runtime import autotune
    from symshape.runtime.triton import tuned_launch

    measured: list[str] = []
    usual = autotune.Autotuner._seconds

    def seconds(self: Any, run: Any) -> float:
        measured.append("a run")
        return usual(self, run)

    monkeypatch.setattr(autotune.Autotuner, "_seconds", seconds)
    counts = []
    for _ in range(2):
        torch._dynamo.reset()
        tuned_launch._tuner.cache_clear()
        x = machine.put(torch.randn(3, 40))
        same(machine.compile(TUNED["reduction"], autotune=True)(x), torch.softmax(x, -1), rtol=1e-5, atol=1e-6)
        counts.append(len(measured))
    assert counts[0] > 1 and counts[1] == counts[0]
