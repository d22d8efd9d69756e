"""What passes do with collectives, in a group of one rank: all are made, in eager mode's order, and waited for late."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch import Tensor

import symshape


@pytest.fixture(scope="module", autouse=True)
def _group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    meeting = tmp_path_factory.mktemp("group") / "meeting"
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def _group_of_one() -> dist.ProcessGroup:
    group = dist.group.WORLD
    assert group is not None
    return group


def work_of(function: Callable[[Tensor], Tensor], stage: str = "kernels") -> list[str]:
    """Launches, collectives, waits and other calls of main, in order; the result is compared with eager mode."""
    x = torch.linspace(-1, 1, 24).view(4, 6)
    report = symshape.explain(function, x)
    for rows in (4, 1, 7, 0):
        x = torch.linspace(-1, 1, rows * 6).view(rows, 6)
        torch.testing.assert_close(report.run(x), function(x))
    (graph,) = report.graphs
    (main,) = re.findall(r"func\.func @main.*?\n  }", graph.stages[stage], re.S)
    return [name or "launch" for name in re.findall(r'"host\.launch"|target = "(?:_c10d_functional|aten)\.(\w+)', main)]


def test_kernels_run_before_the_wait() -> None:
    def function(x: Tensor) -> Tensor:
        reduced = funcol.all_reduce(torch.sin(x), "sum", _group_of_one())
        other = torch.softmax(torch.softmax(x * 3, 1) @ torch.ones(6, 6), 1) @ torch.ones(6, 6)
        return reduced - other

    work = work_of(function)
    assert work.index("all_reduce") < work.index("mm") < work.index("wait_tensor"), work
    assert work[-2:] == ["wait_tensor", "launch"], work


def test_collectives_keep_their_order() -> None:
    """The second one could be made before anything else."""

    def function(x: Tensor) -> Tensor:
        first = funcol.all_reduce(torch.softmax(x, 1) @ torch.ones(6, 6), "sum", _group_of_one())
        second = funcol.all_gather_single(x, 0, _group_of_one())
        third = funcol.all_reduce(second.sum(0), "sum", _group_of_one())
        return first.exp() + third

    for stage in ("imported", "kernels"):
        work = work_of(function, stage)
        found = [one for one in work if one in ("all_reduce", "all_gather_into_tensor")]
        assert found == ["all_reduce", "all_gather_into_tensor", "all_reduce"], work
        assert work.count("wait_tensor") == 3


@pytest.mark.long
def test_equal_collectives_are_all_made() -> None:
    def function(x: Tensor) -> Tensor:
        y = torch.sin(x)
        funcol.all_reduce(y, "sum", _group_of_one())
        return funcol.all_reduce(y, "sum", _group_of_one()) + funcol.all_reduce(y, "sum", _group_of_one())

    assert work_of(function).count("all_reduce") == 3


@pytest.mark.long
def test_layers_with_collectives_are_not_shared() -> None:
    """Each layer's collective is one of main's."""

    def function(x: Tensor) -> Tensor:
        for _ in range(4):
            x = funcol.all_reduce(torch.softmax(x, 1) @ torch.ones(6, 6), "sum", _group_of_one())
        return x

    assert work_of(function).count("all_reduce") == 4
    assert work_of(function, "linalg").count("all_reduce") == 4


@pytest.mark.long
def test_an_argument_is_written_after_the_wait() -> None:
    """What is gathered is what the argument was."""

    def function(x: Tensor) -> Tensor:
        y = funcol.wait_tensor(funcol.all_gather_single(x, 0, _group_of_one()))
        x.mul_(2)
        return y + x

    compiled = symshape.compile(function)
    for rows in (4, 1, 7):
        mine, theirs = torch.ones(rows, 6), torch.ones(rows, 6)
        torch.testing.assert_close(compiled(mine), function(theirs))
        torch.testing.assert_close(mine, theirs)
