"""``make smoke``: a minimal check that the compiler works on this machine. Needs no test tools.

Runs a small model at several sizes on each target: CPU code, Triton kernels in Triton's interpreter, and Triton kernels
on a GPU if there is one. Each result is compared with eager mode, and a single compile must serve all sizes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

SIZES = ((2, 7), (5, 16), (3, 33))
WIDTH = 32


def main(argv: list[str] | None = None) -> int:
    """Runs each target in its own process, since TRITON_INTERPRET must be set before triton is imported."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments:
        return run(arguments[0])
    status = 0
    for target in ("cpu", "interpreter", "gpu"):
        environment = {**os.environ, "TRITON_INTERPRET": "1"} if target == "interpreter" else dict(os.environ)
        status |= subprocess.run(
            [sys.executable, "-m", "symshape.tools.smoke", target], env=environment, check=False
        ).returncode
    print("smoke: failed" if status else "smoke: passed")
    return status


def run(target: str) -> int:
    """Checks one target. Returns 0 if all sizes agree with eager mode after exactly one compile, else 1."""
    import torch

    if target == "gpu" and not torch.cuda.is_available():
        print("gpu          skipped: no GPU here")
        return 0
    device = "cuda" if target == "gpu" else "cpu"
    options = {"target": "triton"} if target == "interpreter" else {}
    torch.manual_seed(0)
    model = _model().to(device).eval()
    reports: list[Any] = []  # one per compiled graph

    def backend(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        from symshape.backend import symshape_backend

        return symshape_backend(gm, inputs, options=options, reports=reports)

    compiled = torch.compile(model, backend=backend, dynamic=True)
    start, worst = time.perf_counter(), 0.0
    with torch.no_grad():
        for batch, length in SIZES:
            x = torch.randn(batch, length, WIDTH, device=device)
            expected, got = model(x), compiled(x)
            worst = max(worst, (expected - got).abs().max().item())
    good = worst <= 1e-4 and len(reports) == 1
    seconds = time.perf_counter() - start
    facts = f"{len(SIZES)} sizes, {len(reports)} compile(s), off by {worst:.1e} at most, {seconds:.1f} s"
    print(f"{target:<12} {'ok' if good else 'FAILED'}: {facts}")
    return 0 if good else 1


def _model() -> torch.nn.Module:
    import torch

    class Block(torch.nn.Module):
        """Layer norm, a gated product, a softmax over the sequence, a residual: reductions of rows and of columns."""

        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.LayerNorm(WIDTH)
            self.up, self.gate = torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.Linear(WIDTH, 2 * WIDTH)
            self.down = torch.nn.Linear(2 * WIDTH, WIDTH)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.norm(x)
            y = self.down(torch.nn.functional.gelu(self.up(y)) * torch.sigmoid(self.gate(y)))
            return x + y * torch.softmax(y.mean(-1, keepdim=True), dim=1)

    return torch.nn.Sequential(Block(), Block())


if __name__ == "__main__":
    sys.exit(main())
