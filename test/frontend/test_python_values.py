"""Python that needs the value of a data-dependent integer: the graph breaks there, and results are eager mode's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape

Tensor = torch.Tensor
LIST = [10, 20, 30, 40, 50, 60, 70]


def last_of_range(x: Tensor, t: Tensor) -> Any:
    n = int(t)
    places = list(range(n))
    return x.sum() + places[-1] + len(range(n))


def of_a_list(x: Tensor, t: Tensor) -> Any:
    n = int(t)
    return x.sum() + LIST[n] + sum(LIST[:n])


def of_a_tuple(x: Tensor, t: Tensor) -> Any:
    n = t.item()
    return x.sum() + (1, 2, 3, 4, 5, 6, 7)[n]


def popped(x: Tensor, t: Tensor) -> Any:
    n = int(t)
    return x.sum() + [1, 2, 3, 4, 5, 6, 7].pop(n)


def unpacked(x: Tensor, t: Tensor) -> Any:
    n = int(t)
    first, *_ = range(1, n + 1)
    return x.sum() + [*range(n)][-1] + first


def of_a_module_list(x: Tensor, t: Tensor) -> Any:
    n = int(t)
    return LAYERS[n](x)


LAYERS = torch.nn.ModuleList(torch.nn.Linear(4, i + 1) for i in range(7))
PROGRAMS: tuple[Callable[[Tensor, Tensor], Any], ...] = (
    last_of_range,
    of_a_list,
    of_a_tuple,
    popped,
    unpacked,
    of_a_module_list,
)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_values(program: Callable[[Tensor, Tensor], Any]) -> None:
    torch._dynamo.reset()
    compiled = symshape.compile(program)
    for n in (4, 3, 1, 6):
        x = torch.randn(7, 4)
        torch.testing.assert_close(compiled(x, torch.tensor(n)), program(x, torch.tensor(n)))


def test_a_range_is_an_input() -> None:
    torch._dynamo.reset()

    def program(x: Tensor, steps: range) -> Tensor:
        return x[list(steps)] * len(steps)

    compiled = symshape.compile(program, fullgraph=True)
    for steps in (range(4), range(1, 3), range(6, 0, -2), range(0)):
        x = torch.randn(7, 4)
        torch.testing.assert_close(compiled(x, steps), program(x, steps))


def test_sizes_are_compared_with_tensors() -> None:
    """As Longformer of transformers checks its inputs."""

    def f(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        assert list(x.size()) == [x.shape[0], n], "another width"
        return torch.where(x.shape[0] < n, x, x + 1)

    compiled = symshape.compile(f)
    for rows, width in ((2, 7), (9, 5), (1, 1)):
        x, n = torch.randn(rows, width), torch.tensor(width)
        assert torch.equal(compiled(x, n), f(x, n))
    with pytest.raises(AssertionError, match="another width"):
        compiled(torch.ones(2, 3), torch.tensor(4))
