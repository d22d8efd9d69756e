"""While a frame is traced and compiled nothing of the runtime is called: `bench/runtime_calls.py` on a small model."""

from __future__ import annotations

import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import torch

BENCH: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[2] / "bench" / "runtime_calls.py"), run_name="bench")


class Small(torch.nn.Module):
    """Kernels of all kinds, draws of random numbers, a mask and an opaque call."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = torch.nn.LayerNorm(6), torch.nn.Linear(6, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.dropout(self.linear(self.norm(x)), 0.5, self.training).softmax(-1)
        return y.sum() + y[y > 0.1].mean() + torch.linalg.matrix_norm(y.cumsum(0)[(y > 0.2).nonzero()[:, 0]])


def test_no_function_of_the_runtime() -> None:
    found: Counter[Any] = BENCH["calls_while_compiling"](Small, {"x": torch.randn(5, 6)})
    assert not BENCH["counted"](found)
    called = {function for *_, function in found}
    assert "runtime.program.load_program" in called  # it is seen what loads the program
    assert "runtime.torch_c.user_lines" in called
