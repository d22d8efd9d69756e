"""Inputs of which one is written to, and which share memory at some calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

import symshape
from symshape.runtime.shared_inputs import in_eager_mode_if_shared

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


@pytest.mark.sample(4)
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


def rejected(x: Tensor, y: Tensor) -> Tensor:
    x.copy_(y.clone())
    y.add_(x)
    return y * 1


@pytest.mark.parametrize("first", ["apart", "the same", "overlapping"])
@pytest.mark.parametrize("compiler", [symshape.compile, lambda f: torch.compile(f, backend="symshape")])
def test_an_error_of_eager_mode(compiler: Any, first: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Eager mode rejects an operator that writes to a part of what it reads."""
    torch._dynamo.reset()
    compiled = compiler(rejected)
    for name in (first, "overlapping", "apart", "the same", "overlapping"):
        ours, eagers = INPUTS[name](), INPUTS[name]()
        if name == "overlapping":
            for program, inputs in ((compiled, ours), (rejected, eagers)):
                with pytest.raises(RuntimeError, match="refer to a single memory location"):
                    program(*inputs)
        else:
            torch.testing.assert_close(compiled(*ours), rejected(*eagers), rtol=0, atol=0)
        torch.testing.assert_close(ours, eagers, rtol=0, atol=0)
    assert not capfd.readouterr().err


def test_inputs_beside_those_that_share_memory_at_the_first_call() -> None:
    torch._dynamo.reset()

    def program(n: int, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        x.mul_(n)
        z.add_(1)
        return x + y + z

    def given(kind: str, size: int) -> tuple[Tensor, Tensor, Tensor]:
        b, c = torch.arange(size + 2.0), torch.ones(size)
        x, y = b[1:-1], b[:-2]
        return {"z apart": (x, y, c), "z on y": (x, y, b[2:]), "all one": (c, c, c), "all apart": (x, x + 1, c)}[kind]

    compiled = symshape.compile(program)
    for kind in ("z apart", "z on y", "z apart", "all one", "all apart", "z on y"):
        for size in (5, 8, 1):
            ours, eagers = given(kind, size), given(kind, size)
            torch.testing.assert_close(compiled(3, *ours), program(3, *eagers), rtol=0, atol=0)
            torch.testing.assert_close(ours, eagers, rtol=0, atol=0)


def test_each_layout_runs_once_in_eager_mode() -> None:
    log: list[int] = []
    run = in_eager_mode_if_shared(lambda *_: log.append(1), lambda *_: log.append(0), [0, 1], [0], [{0, 1}])
    b = base()
    for x, y in ((b[:4], b[2:6]), (b[:4], b[2:6]), (b[:5], b[1:6]), (b[:4], b[4:]), (b, b[:]), (b[:4], b[2:6])):
        run(x, y)
    assert log == [0, 1, 0, 1, 1, 1]


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
