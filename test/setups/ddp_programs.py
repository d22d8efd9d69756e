"""What runs in each of two processes: training under DistributedDataParallel, with and without our backend.

``python ddp_programs.py RANK FILE OUTPUT PROGRAM...``: the processes meet at FILE, and rank RANK writes to OUTPUT
(JSON) the launches of each program. What is not as in eager mode is an error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import torch
import torch.distributed as dist
import torch.nn.functional as F
from launches import counted_launches
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import symshape

WORLD = 2
STEPS = ((4, 6), (3, 5), (1, 6))  # rows of each step in rank 0 and in rank 1


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(6, 16), nn.LayerNorm(16), nn.Linear(16, 6)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.norm(self.up(x))))


def sequential() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3))


def wide() -> nn.Module:
    """Of more than two megabytes, the smallest bucket is one: gradients of the last layers are sent while those of the
    first ones are computed, and Dynamo splits the graph there."""
    return nn.Sequential(nn.Linear(6, 256), nn.GELU(), nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 300))


def compiled_inside(model: nn.Module) -> nn.Module:
    return DistributedDataParallel(symshape.compile(model))


def compiled_outside(model: nn.Module) -> Any:
    return symshape.compile(DistributedDataParallel(model))


def small_buckets(model: nn.Module) -> Any:
    return symshape.compile(DistributedDataParallel(model, bucket_cap_mb=1))


def compiled_in_place(model: nn.Module) -> nn.Module:
    model.compile(backend="symshape", dynamic=True)
    return DistributedDataParallel(model)


PROGRAMS: dict[str, tuple[Callable[[], nn.Module], Callable[[nn.Module], Any]]] = {
    "compiled inside": (sequential, compiled_inside),
    "compiled outside": (sequential, compiled_outside),
    "compiled outside, a module of ours": (Residual, compiled_outside),
    "compiled in place": (Residual, compiled_in_place),
    "small buckets": (wide, small_buckets),
}


def train(make: Callable[[], nn.Module], wrap: Callable[[nn.Module], Any], rank: int) -> list[Tensor]:
    """The loss of each step, then the parameters."""
    torch.manual_seed(0)
    model = make()
    forward = wrap(model)
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
    for rows in STEPS:
        loss = F.cross_entropy(forward(torch.randn(rows[rank], 6)), torch.arange(rows[rank]) % 3)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return [*losses, *(p.detach() for p in model.parameters())]


def main(rank: int, meeting: str, output: str, *programs: str) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=WORLD, timeout=timedelta(seconds=120)
    )
    found = {}
    for name in programs:
        make, wrap = PROGRAMS[name]
        torch._dynamo.reset()
        with counted_launches() as launches:
            actual = train(make, wrap, rank)
        torch.testing.assert_close(actual, train(make, DistributedDataParallel, rank))
        found[name] = launches
    Path(output).write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
