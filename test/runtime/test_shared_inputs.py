"""Inputs of which one is written to, and which share memory at some calls only."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch._dynamo.utils import counters

import symshape

Tensor = torch.Tensor
Pair = tuple[Tensor, Tensor]


def base() -> Tensor:
    return torch.arange(1.0, 9.0)


INPUTS: dict[str, Callable[[], Pair]] = {
    "apart": lambda: (torch.ones(5), torch.ones(5)),
    "parts": lambda: (base()[:4], base()[4:]),
    "halves": lambda: base().chunk(2),  # type: ignore[return-value]
    "overlapping": lambda: (lambda b: (b[:-1], b[1:]))(base()),
    "views of one": lambda: (lambda b: (b[:], b[:]))(base()),
    "the same": lambda: (lambda b: (b, b))(base()),
    "every second": lambda: (lambda b: (b[::2], b[1::2]))(base()),
}


def first_written(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    return x + y


def second_written(x: Tensor, y: Tensor) -> Tensor:
    y.mul_(2)
    return x + y


def both_written(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    y.add_(1)
    return x - y


@pytest.mark.parametrize("first", INPUTS)
@pytest.mark.parametrize("program", [first_written, second_written, both_written])
def test_inputs_that_overlap_at_some_calls(program: Callable[..., Tensor], first: str) -> None:
    torch._dynamo.reset()
    compiled = symshape.compile(program)
    for name in (first, *INPUTS, first):
        ours, eagers = INPUTS[name](), INPUTS[name]()
        torch.testing.assert_close(compiled(*ours), program(*eagers), rtol=0, atol=0)
        torch.testing.assert_close(ours, eagers, rtol=0, atol=0)


def test_parts_of_one_memory_run_compiled_code() -> None:
    torch._dynamo.reset()
    counters.clear()
    compiled = symshape.compile(first_written, fullgraph=True)
    for name in ("apart", "parts", "halves"):
        ours, eagers = INPUTS[name](), INPUTS[name]()
        torch.testing.assert_close(compiled(*ours), first_written(*eagers), rtol=0, atol=0)
    assert counters["stats"]["unique_graphs"] == 1


def test_an_error_of_eager_mode() -> None:
    """Eager mode rejects an operator that writes to a part of what it reads."""
    torch._dynamo.reset()
    compiled = symshape.compile(lambda x, y: x.add_(y))
    x, y = torch.ones(5), torch.ones(5)
    torch.testing.assert_close(compiled(x, y), torch.full((5,), 2.0))
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        compiled(*INPUTS["overlapping"]())


def test_gradients() -> None:
    torch._dynamo.reset()

    def program(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        x.mul_(2)
        return (x * w + y * w).sum()

    compiled = symshape.compile(program)
    for name in ("apart", "overlapping", "apart"):
        ws = [torch.tensor(3.0, requires_grad=True) for _ in range(2)]
        for function, w in zip((compiled, program), ws):
            function(*INPUTS[name](), w).backward()
        torch.testing.assert_close(ws[0].grad, ws[1].grad)
