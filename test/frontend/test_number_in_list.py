"""Numbers that are looked for among symbolic sizes, integers and floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import symshape


def _chosen(x: Tensor, condition: bool) -> Tensor:
    return x * 2 if condition else x - 1


CALLS: dict[str, tuple[Callable[..., Tensor], tuple[Any, ...]]] = {
    "size": (lambda x: _chosen(x, 3 in x.shape), ((4, 3), (3, 4), (5, 4), (3,), (0, 3), (1, 1))),
    "no size": (lambda x: _chosen(x, 1 not in x.shape), ((4, 3), (1, 4), (5, 1), (0, 2))),
    "among others": (lambda x: _chosen(x, 3 in (7, x.shape[0], "3")), ((4, 3), (3, 4), (0, 3), (7, 1))),
    "computed": (lambda x: _chosen(x, 6 in [x.shape[0] * 2, x.shape[0] + 1]), ((3, 1), (5, 1), (4, 1), (0, 1))),
    "values": (lambda x: _chosen(x, 3 in {"a": x.shape[0], "b": x.shape[1]}.values()), ((4, 3), (3, 4), (2, 2))),
    "index": (lambda x: x * (list(x.shape).index(3) if 3 in x.shape else 5), ((4, 3), (3, 4), (2, 2))),
    "pair": (lambda x: _chosen(x, (3, 4) in [tuple(x.shape), "3"]), ((4, 3), (3, 4), (2, 2), (3, 0))),
    "float": (lambda x: _chosen(x, 3.0 in x.shape), ((4, 3), (3, 4), (2, 2))),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("wrap", [symshape.compile, symshape.jit], ids=["compile", "jit"])
@pytest.mark.parametrize("name", CALLS)
def test_sizes(name: str, wrap: Callable[[Any], Any]) -> None:
    program, shapes = CALLS[name]
    compiled = wrap(program)
    for shape in (*shapes, *reversed(shapes)):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), program(x))


def test_a_truth_value_is_a_number() -> None:
    program = lambda x: _chosen(x, True in x.shape)  # noqa: E731
    compiled = symshape.compile(program)
    for shape in ((4, 1), (3, 4), (1, 0)):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), program(x))


@pytest.mark.parametrize("lists", [([1, 2], [1, 3], [2, 5], [4, 4]), ([1.0, 2.0], [1.5, 3.0], [2.0, 5.0], [4.0, 4.5])])
@pytest.mark.parametrize("kind", [list, tuple])
def test_arguments(lists: tuple[list[float], ...], kind: type) -> None:
    def program(x: Tensor, numbers: list[float]) -> Tensor:
        return _chosen(x, 2 in numbers)

    compiled = symshape.compile(program)
    for numbers in (*lists, *reversed(lists)):
        for size in (3, 1, 0):
            x = torch.randn(size)
            torch.testing.assert_close(compiled(x, kind(numbers)), program(x, kind(numbers)))
