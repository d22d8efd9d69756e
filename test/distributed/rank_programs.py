"""Programs of several ranks. Each is run in eager mode and compiled, and returns what is to be the same.

A program takes ``compile_``, which compiles a function or module or leaves it as it is, and a ``Ranks``. Trainings take
three steps, with another number of rows in each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class Ranks:
    """This process among those that run the program: its rank, their number, and their group by name."""

    rank: int
    world: int
    group: Any

    def mesh(self) -> DeviceMesh:
        return init_device_mesh("cpu", (self.world,))

    def steps(self) -> tuple[int, ...]:
        """The rows of each step: 2, 3 and 5 for two ranks. DTensor asks whether there is a row for each rank, and makes
        a graph of its own for fewer."""
        return self.world, self.world + 1, 2 * self.world + 1

    def rows(self, rows: int, columns: int) -> Tensor:
        """Random numbers, others on each rank, the same in each run."""
        generator = torch.Generator().manual_seed(100 * rows + self.rank)
        return torch.randn(rows, columns, generator=generator)


Compile = Callable[[Any], Any]
Program = Callable[[Compile, Ranks], list[Any]]
PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    PROGRAMS[function.__name__] = function
    return function


def _over_rows(compile_: Compile, ranks: Ranks, function: Callable[[Tensor], Any], times: int = 1) -> list[Any]:
    """Results and gradients for inputs of several sizes."""
    call, found = compile_(function), []
    for rows in ranks.steps():
        x = ranks.rows(times * rows, 6).requires_grad_()
        result = call(x)
        result.square().sum().backward()
        found += [result.detach(), x.grad]
    return found


def _train(model: nn.Module, forward: Callable[[Tensor], Tensor], inputs: Sequence[Tensor]) -> list[Any]:
    """The loss of each step, then the parameters, whole."""
    optimizer, found = torch.optim.SGD(model.parameters(), lr=0.1), []
    for x in inputs:
        loss = forward(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.detach())
    return [*found, *(_whole(parameter.detach()) for parameter in model.parameters())]


def _whole(x: Tensor) -> Tensor:
    return x.full_tensor() if isinstance(x, DTensor) else x


def _sequential() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(6), nn.Linear(6, 16), nn.Linear(16, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(self.norm(x))))


def _mlp() -> MLP:
    torch.manual_seed(0)
    return MLP()


# --- functional collectives --------------------------------------------------------------------------------------


@program
def all_reduce(compile_: Compile, ranks: Ranks) -> list[Any]:
    def function(x: Tensor) -> Tensor:
        y = torch.sin(x) * 2
        return funcol.all_reduce(y, "sum", ranks.group) + y.exp()

    return _over_rows(compile_, ranks, function)


@program
def all_gather(compile_: Compile, ranks: Ranks) -> list[Any]:
    def function(x: Tensor) -> Tensor:
        return torch.cos(funcol.all_gather_single(torch.tanh(x), 0, ranks.group)) * 3

    return _over_rows(compile_, ranks, function)


@program
def all_gather_of_columns(compile_: Compile, ranks: Ranks) -> list[Any]:
    def function(x: Tensor) -> Tensor:
        return torch.cos(funcol.all_gather_single(torch.tanh(x), 1, ranks.group)) * 3

    return _over_rows(compile_, ranks, function)


@program
def reduce_scatter(compile_: Compile, ranks: Ranks) -> list[Any]:
    def function(x: Tensor) -> Tensor:
        return torch.cos(funcol.reduce_scatter_single(torch.tanh(x), "sum", 0, ranks.group)) * 3

    return _over_rows(compile_, ranks, function, times=ranks.world)


@program
def all_to_all(compile_: Compile, ranks: Ranks) -> list[Any]:
    """How many rows go to which rank is in the data; five ways of splitting."""

    def function(x: Tensor, owners: Tensor) -> tuple[Tensor, Tensor]:
        order = torch.argsort(owners, stable=True)
        sent = torch.zeros(ranks.world, dtype=torch.int64).scatter_add(0, owners, torch.ones_like(owners))
        received = funcol.all_to_all_single(sent, None, None, ranks.group)
        y = funcol.all_to_all_single(torch.sin(x)[order], received.tolist(), sent.tolist(), ranks.group)
        return y * 2 + 1, received

    call, found = compile_(function), []
    for split in range(5):
        rows = 4 + split
        owners = torch.arange(rows).mul(split + 1 + ranks.rank).remainder(3 + split).remainder(ranks.world)
        found += list(call(ranks.rows(rows, 6), owners))
    return found


@program
def two_all_reduces_of_one_value(compile_: Compile, ranks: Ranks) -> list[Any]:
    """Equal collectives are two: another rank waits for both."""

    def function(x: Tensor) -> Tensor:
        y = torch.sin(x)
        return funcol.all_reduce(y, "sum", ranks.group) * funcol.all_reduce(y, "sum", ranks.group)

    return _over_rows(compile_, ranks, function)


@program
def nobody_reads(compile_: Compile, ranks: Ranks) -> list[Any]:
    """A collective whose result is not used is done all the same, as the last of all here."""

    def function(x: Tensor) -> Tensor:
        y = torch.sin(x) * 2
        funcol.all_reduce(y, "sum", ranks.group)
        return y + 1

    return _over_rows(compile_, ranks, function)


@program
def chains(compile_: Compile, ranks: Ranks) -> list[Any]:
    """The second collective needs nothing of what the first one waits for, and is of another kind."""

    def function(x: Tensor) -> Tensor:
        y = torch.softmax(torch.softmax(x, 1) @ torch.ones(6, 6), 0)
        first = funcol.all_reduce(y, "sum", ranks.group)
        second = funcol.all_gather_single(x, 0, ranks.group)
        third = funcol.all_reduce(second.sum(0) * 2, "sum", ranks.group)
        return first.exp() + third

    return _over_rows(compile_, ranks, function)


@program
def in_flight(compile_: Compile, ranks: Ranks) -> list[Any]:
    """Much memory dies between a collective and the use of its result."""

    def function(x: Tensor) -> Tensor:
        y = torch.softmax(x, 1)
        reduced = funcol.all_reduce(y, "sum", ranks.group)
        for _ in range(4):
            x = torch.softmax(x * 3, 1) @ torch.ones(6, 6)
        return reduced - x

    return _over_rows(compile_, ranks, function, times=50)


# --- collectives that write to their arguments -------------------------------------------------------------------


@program
def in_place(compile_: Compile, ranks: Ranks) -> list[Any]:
    def function(x: Tensor) -> Tensor:
        y = torch.sin(x) * 2
        dist.all_reduce(y)
        return y.exp() + x

    call = compile_(function)
    return [call(ranks.rows(rows, 6)) for rows in ranks.steps()]


@program
def input_in_place(compile_: Compile, ranks: Ranks) -> list[Any]:
    """An argument is gathered and then written to."""

    def function(x: Tensor) -> Tensor:
        y = funcol.wait_tensor(funcol.all_gather_single(x, 0, ranks.group))
        x.mul_(2).add_(1)
        return y * 3

    call, found = compile_(function), []
    for rows in ranks.steps():
        x = ranks.rows(rows * 100, 6)
        found += [call(x), x]
    return found


@program
def into_tensors(compile_: Compile, ranks: Ranks) -> list[Any]:
    def function(x: Tensor) -> Tensor:
        gathered = x.new_empty(ranks.world * x.size(0), x.size(1))
        dist.all_gather_into_tensor(gathered, torch.sin(x))
        scattered = torch.empty_like(x)
        dist.reduce_scatter_tensor(scattered, gathered * 2)
        return scattered.exp()

    call = compile_(function)
    return [call(ranks.rows(rows, 6)) for rows in ranks.steps()]


# --- sizes that are not what was promised ------------------------------------------------------------------------


def _after_a_good_call(call: Callable[..., Any], good: Sequence[Any], bad: Sequence[Any]) -> list[Any]:
    """The type of the error that the second call raises: on this rank, or as another one has not come."""
    call(*good)
    dist.barrier()
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=3), dist.group.WORLD)
    try:
        call(*bad)
    except RuntimeError as error:
        return [type(error).__name__, str(error)]
    return ["no error", ""]


@program
def broken_promise(compile_: Compile, ranks: Ranks) -> list[Any]:
    """Rank 1 comes with an odd number of rows."""

    def function(x: Tensor) -> Tensor:
        torch._check(x.size(0) % 2 == 0, lambda: "rows come in pairs")
        return funcol.wait_tensor(funcol.all_reduce(torch.sin(x), "sum", ranks.group)) * 2

    return _after_a_good_call(compile_(function), [torch.ones(4, 3)], [torch.ones(4 + (ranks.rank == 1), 3)])


@program
def broken_split(compile_: Compile, ranks: Ranks) -> list[Any]:
    """Rank 1 says that it sends more rows than it has."""

    def function(x: Tensor, sent: Tensor) -> Tensor:
        received = funcol.all_to_all_single(sent, None, None, ranks.group)
        return funcol.wait_tensor(funcol.all_to_all_single(x * 2, received.tolist(), sent.tolist(), ranks.group)) + 1

    good = torch.full((ranks.world,), 2)
    return _after_a_good_call(
        compile_(function), [torch.ones(2 * ranks.world, 3), good], [torch.ones(2 * ranks.world, 3), good + ranks.rank]
    )


# --- modules -----------------------------------------------------------------------------------------------------


@program
def data_parallel(compile_: Compile, ranks: Ranks) -> list[Any]:
    model = _sequential()
    forward = compile_(DistributedDataParallel(model))
    return _train(model, forward, [ranks.rows(rows, 6) for rows in ranks.steps()])


@program
def sharded_sequential(compile_: Compile, ranks: Ranks) -> list[Any]:
    """FSDP2, compiled outside."""
    model = _sequential()
    fully_shard(model, mesh=ranks.mesh())
    return _train(model, compile_(model), [ranks.rows(rows, 6) for rows in ranks.steps()])


@program
def sharded_module(compile_: Compile, ranks: Ranks) -> list[Any]:
    model = _mlp()
    fully_shard(model, mesh=ranks.mesh())
    return _train(model, compile_(model), [ranks.rows(rows, 6) for rows in ranks.steps()])


@program
def tensor_parallel(compile_: Compile, ranks: Ranks) -> list[Any]:
    """An all-reduce after the second product."""
    model = _mlp()
    parallelize_module(model, ranks.mesh(), {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return _train(model, compile_(model), [ranks.rows(rows, 6) for rows in ranks.steps()])


@program
def sequence_parallel(compile_: Compile, ranks: Ranks) -> list[Any]:
    """An all-gather before the first product, a reduce-scatter after the second."""
    model = _mlp()
    plan = {
        "up": ColwiseParallel(input_layouts=Shard(0)),
        "down": RowwiseParallel(output_layouts=Shard(0)),
    }
    parallelize_module(model, ranks.mesh(), plan)
    return _train(model, compile_(model), [ranks.rows(rows, 6) for rows in ranks.steps()])


@program
def distributed_tensors(compile_: Compile, ranks: Ranks) -> list[Any]:
    mesh = ranks.mesh()

    def function(x: DTensor, w: DTensor) -> DTensor:
        return torch.softmax((x @ w).redistribute(mesh, [Replicate()]), 1) * 2

    call, found = compile_(function), []
    w = distribute_tensor(torch.linspace(-1, 1, 64).view(8, 8), mesh, [Shard(0)])
    for rows in ranks.steps():
        x = distribute_tensor(torch.linspace(0, 3, rows * 8).view(rows, 8), mesh, [Shard(1)])
        found.append(call(x, w).to_local())
    return found


@program
def sharded_by_layer(compile_: Compile, ranks: Ranks) -> list[Any]:
    """FSDP2 as its tutorial has it: each layer is sharded, then the whole. Layers of one class are one graph, where the
    first one's input wants a gradient as those of the others do."""
    torch.manual_seed(0)
    model = nn.Sequential(*(MLP() for _ in range(3)))
    mesh = ranks.mesh()
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return _train(model, compile_(model), [ranks.rows(rows, 6).requires_grad_() for rows in ranks.steps()])
