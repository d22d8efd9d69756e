"""Custom operators without a fake rule, each with a program that uses it and the arguments for a size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.types import Number

NAMESPACE = "symshape_custom"
SIZES = (5, 7, 12, 3, 17, 4)


@dataclass(frozen=True)
class Case:
    """``program(op, *arguments(n))``; ``graphs``: 1, or 2 where the graph is broken at the operator for ``why``, which
    is what the log says. ``error``: what eager mode raises."""

    name: str
    op: Any
    program: Callable[..., Any]
    arguments: Callable[[int], Sequence[Any]]
    graphs: int = 1
    why: str = ""
    error: str = ""
    trains: bool = False


CASES: list[Case] = []


def case(
    program: Callable[..., Any],
    arguments: Callable[[int], Sequence[Any]],
    *,
    mutates: Any = (),
    tags: Any = (),
    define: str = "",
    key: str = "CPU",
    **expected: Any,
) -> Callable[..., Any]:
    """Registers the function below as an operator: by ``custom_op``, or by ``Library.define`` where ``define`` is its
    schema without the name; ``key``: what it is registered for."""

    def register(fn: Callable[..., Any]) -> Any:
        name = fn.__name__
        if define:
            LIBRARY.define(f"{name}{define}")
            LIBRARY.impl(name, fn, key)
            op = getattr(getattr(torch.ops, NAMESPACE), name)
        else:
            op = torch.library.custom_op(f"{NAMESPACE}::{name}", fn, mutates_args=mutates, tags=tags)
        CASES.append(Case(name, op, program, arguments, **expected))
        return op

    return register


LIBRARY: Any = torch.library.Library(NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call]


def used(op: Any, *args: Any, **kwargs: Any) -> Any:
    """The operator between operations that are compiled."""
    tensors = [a + 1 if isinstance(a, Tensor) and a.is_floating_point() else a for a in args]
    result = op(*tensors, **kwargs)
    return torch.utils._pytree.tree_map_only(Tensor, lambda t: t * 2, result)


def row(n: int) -> list[Any]:
    return [torch.linspace(-1, 2, n)]


def matrix(n: int) -> list[Any]:
    return [torch.linspace(-1, 2, n * (n + 1)).reshape(n, n + 1)]


def square(n: int) -> list[Any]:
    return [torch.linspace(-1, 2, n * n).reshape(n, n) + 3 * torch.eye(n)]


def two(n: int) -> list[Any]:
    return [torch.linspace(-1, 2, n), torch.linspace(0, 1, n + 3)]


def alike(n: int) -> list[Any]:
    return [torch.linspace(-1, 2, n * 3).reshape(n, 3), torch.linspace(0, 1, n * 3).reshape(n, 3)]


def images(n: int) -> list[Any]:
    return [torch.linspace(-1, 2, 2 * 3 * (n + 8) * (n + 11)).reshape(2, 3, n + 8, n + 11)]


# --- sizes that are kept ---------------------------------------------------------------------------------------------


@case(used, matrix)
def doubled(x: Tensor) -> Tensor:
    return x * 2


@case(used, matrix)
def by_numpy(x: Tensor) -> Tensor:
    return torch.from_numpy(np.sin(x.numpy()))


@case(used, alike)
def of_two(x: Tensor, y: Tensor) -> Tensor:
    if x.shape != y.shape:
        raise ValueError("sizes differ")
    return x * y


@case(lambda op, x: used(op, x, scale=3.0, mode="up"), matrix)
def with_keywords(x: Tensor, scale: float = 2.0, mode: str = "down", flag: bool = True) -> Tensor:
    return x * scale if mode == "up" and flag else x / scale


@case(lambda op, x: used(op, x.transpose(0, 1)), matrix)
def strides_kept(x: Tensor) -> Tensor:
    return torch.empty_like(x).copy_(x) + 1


@case(used, matrix)
def to_other_type(x: Tensor) -> Tensor:
    return (x > 0).to(torch.int32)


@case(lambda op, x: op(x, torch.float64) + 1, matrix)
def to_given_type(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype, copy=True)


@case(lambda op, x: (op(x) * 2, op(x, x) * 2), matrix)
def with_optional(x: Tensor, y: Tensor | None = None) -> Tensor:
    return x + 1 if y is None else x + y


@case(used, square)
def inverse(x: Tensor) -> Tensor:
    return torch.linalg.inv(x)


# --- products and other arithmetic -----------------------------------------------------------------------------------


@case(used, matrix)
def transposed(x: Tensor) -> Tensor:
    return x.t().clone(memory_format=torch.contiguous_format)


@case(used, matrix)
def column_major(x: Tensor) -> Tensor:
    return x.clone().t().contiguous().t()


@case(used, matrix)
def flattened(x: Tensor) -> Tensor:
    return x.reshape(-1) + 0.5


@case(used, two)
def outer(x: Tensor, y: Tensor) -> Tensor:
    return x[:, None] * y[None]


@case(used, two)
def all_pairs(x: Tensor, y: Tensor) -> Tensor:
    return (x[:, None] - y[None]).reshape(-1)


@case(lambda op, x, y: used(op, [x, y]), two)
def joined(tensors: list[Tensor]) -> Tensor:
    return torch.cat(tensors)


@case(used, row)
def padded(x: Tensor) -> Tensor:
    return torch.nn.functional.pad(x, (2, 3))


@case(lambda op, x: used(op, x, 3), row)
def repeated(x: Tensor, times: int) -> Tensor:
    return x.repeat(times)


@case(lambda op, x: used(op, x, 3, stride=2), images)
def pooled(x: Tensor, size: int, stride: int) -> Tensor:
    return torch.nn.functional.max_pool2d(x, size, stride)


@case(used, images)
def pooled_and_flattened(x: Tensor) -> Tensor:
    return torch.nn.functional.avg_pool2d(x, 2).flatten(1)


@case(used, square)
def upper_triangle(x: Tensor) -> Tensor:
    return x[torch.ones_like(x).triu(1).bool()].clone() if x.size(0) else x.new_empty(0)


@case(used, matrix)
def smaller_side(x: Tensor) -> Tensor:
    return torch.diagonal(x).clone()


@case(used, row)
def half(x: Tensor) -> Tensor:
    return x[::2].clone()


@case(lambda op, x: used(op, x, 4), row)
def at_most(x: Tensor, most: int) -> Tensor:
    return x[:most].clone()


# --- constants -------------------------------------------------------------------------------------------------------


@case(used, matrix)
def total(x: Tensor) -> Tensor:
    return x.sum()


@case(used, matrix)
def moments(x: Tensor) -> Tensor:
    return torch.stack([x.mean(), x.var(), x.amax()])


@case(lambda op, x: op(3) + x.sum(), row)
def constant_table(n: int) -> Tensor:
    return torch.arange(float(n))


@case(used, matrix, define="(Tensor x, float by=2.0) -> Tensor", key="CompositeExplicitAutograd")
def for_all_devices(x: Tensor, by: float = 2.0) -> Tensor:
    return (x * by).sum(0)


@case(used, matrix, define="(Tensor x) -> Tensor", key="CompositeExplicitAutograd")
def for_all_devices_by_numpy(x: Tensor) -> Tensor:
    return torch.from_numpy(np.concatenate([x.numpy(), x.numpy()]))


@case(used, matrix, define="(Tensor x) -> Tensor", key="CompositeImplicitAutograd")
def made_of_others(x: Tensor) -> Tensor:
    return (x * 2).cumsum(0)


# --- sizes in the data -----------------------------------------------------------------------------------------------


@case(used, row)
def positive(x: Tensor) -> Tensor:
    return x[x > 1]


@case(used, matrix)
def places(x: Tensor) -> Tensor:
    return torch.from_numpy(np.stack(np.nonzero(x.numpy() > 1.5), axis=1))


@case(lambda op, x: op((x * 4).long()) * 2, row)
def different(x: Tensor) -> tuple[Tensor, Tensor]:
    values, counts = torch.unique(x, return_counts=True)
    return values, counts


@case(lambda op, x: op((x * 3).long().clamp(min=0)) + 1, row)
def histogram(x: Tensor) -> Tensor:
    return torch.bincount(x)


# --- several results, lists ------------------------------------------------------------------------------------------


@case(lambda op, x: [t * 2 for t in op(x)], matrix)
def two_results(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.sum(1), x + 1


@case(lambda op, x: [t * 2 for t in op(x)], matrix)
def list_of_results(x: Tensor) -> list[Tensor]:
    return [x + 1, x.sum(0), x[:, 0].clone()]


@case(lambda op, x: op(x)[0][1] * op(x)[1], matrix)
def list_and_tensor(x: Tensor) -> tuple[list[Tensor], Tensor]:
    return [x + 1, x * 2], x.sum()


# --- numbers ---------------------------------------------------------------------------------------------------------


@case(lambda op, x: x[: op(x)] * 2, row)
def count(x: Tensor) -> int:
    return int((x > 0).sum())


@case(lambda op, x: x * op(x) + 1, row, graphs=2, why="type float")
def largest(x: Tensor) -> float:
    return float(x.max())


@case(lambda op, x: (op(x)[0] * 2, x + op(x)[1]), row)
def tensor_and_number(x: Tensor) -> tuple[Tensor, int]:
    return x * 3, x.numel() + 1


@case(lambda op, x: x + 1 if op(x) else x - 1, row, graphs=2, why="type bool")
def flag(x: Tensor) -> bool:
    return bool(x.sum() > 0)


@case(lambda op, x: x + op(x), row)
def some_number(x: Tensor) -> Number:
    return float(x.min())


@case(lambda op, x: (x + len(op(x)), x * 2), row, define="(Tensor x) -> str", graphs=2, why="type str")
def text(x: Tensor) -> str:
    return "n" * x.numel()


# --- None, in place --------------------------------------------------------------------------------------------------


def _in_place(op: Any, x: Tensor) -> Any:
    y = x * 2
    op(y)
    return y + 1


@case(_in_place, matrix, mutates={"x"})
def add_in_place(x: Tensor) -> None:
    x.add_(1)


def _in_two_places(op: Any, x: Tensor) -> Any:
    y, z = x * 2, torch.zeros_like(x)
    op(y, z)
    return y + z


@case(_in_two_places, matrix, mutates={"x", "out"})
def swap_in_place(x: Tensor, out: Tensor) -> None:
    out.copy_(x)
    x.zero_()


def _count_in_place(op: Any, x: Tensor) -> Any:
    y = x * 2
    return op(y) * 2, y + 1


@case(_count_in_place, matrix, mutates={"x"}, graphs=2, why="changes operands")
def clip_and_report(x: Tensor) -> Tensor:
    clipped = (x > 1).sum()
    x.clamp_(max=1)
    return clipped


@case(lambda op, x: (op(x + 1), x * 2)[1], row, graphs=2, why="returns nothing")
def nothing(x: Tensor) -> None:
    x.sum()


# --- what is forbidden, what is not tried ----------------------------------------------------------------------------


@case(used, row, error="may not alias", why="may not alias")
def itself(x: Tensor) -> Tensor:
    return x


@case(used, matrix, define="(Tensor x) -> Tensor", graphs=2, why="return a clone")
def view(x: Tensor) -> Tensor:
    return x[:, 1:]


@case(used, row, tags=(torch.Tag.nondeterministic_seeded,), graphs=2, why="random numbers")
def noise(x: Tensor) -> Tensor:
    return x + torch.rand_like(x)


@case(lambda op, x: op(x + 1.5) * 2, row, graphs=2, why="failed on every input")
def picky(x: Tensor) -> Tensor:
    if not (x[0] == 0.5 and x[-1] == 3.5):
        raise ValueError("it has to begin with 0.5 and to end with 3.5")
    return x * 2
