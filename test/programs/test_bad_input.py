"""Inputs that do not fit: eager's type of exception, with the user's line, and nothing is written."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import symshape
from symshape.backend import symshape_backend
from symshape.frame_compiler import compile_with

Tensor = torch.Tensor
Inputs = tuple[Tensor, ...]


@dataclass(frozen=True)
class BadInput:
    """``good``: what it is compiled with; each of ``bad`` is an error in eager mode."""

    function: Callable[..., Any]
    good: Inputs
    bad: tuple[Inputs, ...]


def number(k: int) -> Tensor:
    return torch.tensor(k)


def numbers(*given: int) -> Tensor:
    return torch.tensor(given)


def written_mask(k: Tensor, x: Tensor) -> None:
    x[torch.arange(k.item()) > 0] = 1


def added_mask(k: Tensor, x: Tensor) -> None:
    x[torch.arange(k.item()) > 0] += 1


def read_mask(k: Tensor, x: Tensor) -> Tensor:
    return x[torch.arange(k.item()) > 0] * 2


def summed_mask(k: Tensor, x: Tensor) -> Tensor:
    return (x[torch.arange(k.item()) > 0] * 2).sum()


def mask_of_rows(m: Tensor, x: Tensor) -> None:
    x[m] = 1


def values_for_mask(m: Tensor, v: Tensor, x: Tensor) -> None:
    x[m] = v


def selected_rows(i: Tensor, x: Tensor) -> Tensor:
    return x.index_select(0, i) * 2


def added_rows(i: Tensor, x: Tensor) -> None:
    x.index_add_(0, i, torch.ones(i.size(0), 3))


def copied_rows(i: Tensor, x: Tensor) -> None:
    x.index_copy_(0, i, torch.ones(i.size(0), 3))


def indexed(i: Tensor, x: Tensor) -> Tensor:
    return x[i].exp()


def written_index(i: Tensor, x: Tensor) -> None:
    x[i] = 5


def gathered(i: Tensor, x: Tensor) -> Tensor:
    return torch.gather(x[:, 0], 0, i)[torch.tensor([1, 0])]


def scattered(i: Tensor, x: Tensor) -> None:
    x[:, 0].scatter_(0, i, 1.0)


def embedded(i: Tensor, x: Tensor) -> Tensor:
    return F.embedding(i, x).sum(1)


def written_row(k: Tensor, x: Tensor) -> None:
    x[k.item()] = 7


def narrowed(k: Tensor, x: Tensor) -> Tensor:
    return x.narrow(0, k.item(), 2) * 2


def repeated(k: Tensor, x: Tensor) -> Tensor:
    return x.repeat_interleave(k, dim=0) * 2


def split(k: Tensor, x: Tensor) -> Any:
    a, b = x.split(k.tolist())
    return a * 2, b.sum()


def targets_of_other_length(k: Tensor, x: Tensor) -> Tensor:
    return F.cross_entropy(x[: k.item()], torch.zeros(k.item(), dtype=torch.int64))


def targets_out_of_range(t: Tensor, x: Tensor) -> Tensor:
    return F.cross_entropy(x, t)


def written_before(k: Tensor, x: Tensor) -> Tensor:
    x.mul_(2)
    return x.index_select(0, k)


def x() -> Tensor:
    return torch.arange(18.0).view(6, 3)


def vector() -> Tensor:
    return torch.arange(6.0)


def flags(*places: int) -> Tensor:
    m = torch.zeros(6, dtype=torch.bool)
    m[list(places)] = True
    return m


LENGTHS = tuple((number(k), vector()) for k in (5, 9, 0, 1))
PLACES = ((numbers(0, 6), x()), (numbers(-7, 2), x()))
NO_NEGATIVES = (*PLACES, (numbers(1, -1), x()))

BAD_INPUTS = (
    BadInput(written_mask, (number(6), vector()), LENGTHS),
    BadInput(added_mask, (number(6), vector()), LENGTHS),
    BadInput(read_mask, (number(6), vector()), LENGTHS),
    BadInput(summed_mask, (number(6), vector()), LENGTHS),
    BadInput(mask_of_rows, (flags(0, 2), x()), ((flags(0)[:5], x()), (torch.ones(7, dtype=torch.bool), x()))),
    BadInput(values_for_mask, (flags(0, 2), torch.ones(2), vector()), ((flags(0, 1), torch.ones(3), vector()),)),
    BadInput(selected_rows, (numbers(0, 5), x()), NO_NEGATIVES),
    BadInput(added_rows, (numbers(0, 5), x()), NO_NEGATIVES),
    BadInput(copied_rows, (numbers(0, 5), x()), NO_NEGATIVES),
    BadInput(indexed, (numbers(0, -6), x()), PLACES),
    BadInput(written_index, (numbers(0, -6), x()), PLACES),
    BadInput(gathered, (numbers(0, 5), x()), NO_NEGATIVES),
    BadInput(scattered, (numbers(0, 5), x()), NO_NEGATIVES),
    BadInput(embedded, (numbers(0, 5), x()), NO_NEGATIVES),
    BadInput(written_row, (number(5), x()), ((number(6), x()), (number(-7), x()))),
    BadInput(narrowed, (number(4), x()), ((number(5), x()), (number(-7), x()))),
    BadInput(repeated, (numbers(0, 1, 2, 0, 1, 0), x()), ((numbers(0, -1, 2, 0, 1, 0), x()), (numbers(2, 1), x()))),
    BadInput(split, (numbers(2, 4), x()), ((numbers(2, 3), x()), (numbers(-1, 7), x()))),
    BadInput(targets_of_other_length, (number(3), x()), ((number(8), x()),)),
    BadInput(
        targets_out_of_range,
        (numbers(0, 1, 2, 0, 1, -100), x()),
        ((numbers(0, 3, 2, 0, 1, 0), x()), (numbers(0, -1, 2, 0, 1, 0), x())),
    ),
    BadInput(written_before, (numbers(0, 5), x()), NO_NEGATIVES),
)


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", BAD_INPUTS, ids=lambda case: case.function.__name__)
def test_the_error_is_eagers_and_nothing_is_written(case: BadInput) -> None:
    check(case, compile_with(case.function, symshape_backend, fullgraph=True))


BY_INDICES = (selected_rows, added_rows, copied_rows, indexed, written_index, gathered, scattered, embedded)


@pytest.mark.parametrize(
    "case", [one for one in BAD_INPUTS if one.function in BY_INDICES], ids=lambda case: case.function.__name__
)
def test_the_error_of_jit_is_eagers(case: BadInput) -> None:
    check(case, symshape.jit(case.function))


def test_an_error_of_jit_changes_no_module() -> None:
    class Rows(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(3)
            self.register_buffer("table", torch.zeros(5, 3))

        def forward(self, i: Tensor, x: Tensor) -> Tensor:
            return self.table.index_add(0, i, self.norm(x))

    module = Rows()
    compiled = symshape.jit(module)
    compiled(numbers(1, 2), torch.randn(2, 3))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    with pytest.raises(RuntimeError, match="index 5 is out of bounds|index out of range"):
        compiled(numbers(1, 5), torch.randn(2, 3))
    torch.testing.assert_close(module.state_dict(), before, rtol=0, atol=0)


def check(case: BadInput, function: Callable[..., Any]) -> None:
    lines, first = inspect.getsourcelines(case.function)
    place = re.compile("|".join(rf'{re.escape(__file__)}(:|", line ){first + i}\b' for i in range(1, len(lines))))
    ours, theirs = ([t.clone() for t in case.good] for _ in "12")
    torch.testing.assert_close((function(*ours), ours), (case.function(*theirs), theirs))
    for bad in case.bad:
        with pytest.raises((RuntimeError, IndexError, ValueError)) as expected:
            case.function(*(t.clone() for t in bad))
        given = [t.clone() for t in bad]
        with pytest.raises(expected.type) as actual:
            function(*given)
        text = "\n".join([str(actual.value), *getattr(actual.value, "__notes__", ())])
        assert place.search(text), text
        assert all(map(torch.equal, given, bad)), f"{given} instead of {bad}"
