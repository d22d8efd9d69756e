"""Texts of sizes and tensors, and ``divmod`` of sizes, under ``symshape.jit``."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch

import symshape
from symshape.errors import CompileError

Tensor = torch.Tensor
SIZES = ((2, 3), (12, 3), (1, 4), (7, 5))

TEXTS: dict[str, Callable[[Tensor], str]] = {
    "width": lambda x: f"{x.shape[0]:>5}|{x.shape[1]:03d}",
    "plain": lambda x: f"{x.shape[0]}",
    "str and repr": lambda x: str(x.shape[0]) + repr(x.shape[1]),
    "shape": lambda x: f"{x.shape} {list(x.shape)}",
    "quotient": lambda x: f"{x.shape[0] / 2:.2f} {x.shape[0] / 4}",
    "condition": lambda x: f"{x.shape[0] > 2}",
    "percent": lambda x: "%s %d" % (x.shape[0], x.shape[1]),  # noqa: UP031
    "format": lambda x: "{:>4}{}".format(x.shape[0], x.shape[1] * 2),  # noqa: UP032
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_of_sizes(name: str) -> None:
    def program(x: Tensor) -> Any:
        text = TEXTS[name](x)
        return x + len(text), text

    compiled = symshape.jit(program)
    for shape in SIZES:
        x = torch.ones(shape)
        found, text = compiled(x)
        wanted, wanted_text = program(x)
        assert text == wanted_text
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)


OF_TENSORS: dict[str, Callable[[Tensor], str]] = {
    "str": str,
    "repr": repr,
    "format": lambda x: f"{x}",
    "number": lambda x: f"{x.sum():.3f}",
    "in a list": lambda x: str([x]),
    "percent": lambda x: "%s" % x,  # noqa: UP031
}


@pytest.mark.parametrize("name", OF_TENSORS)
def test_a_text_of_a_tensor_is_an_error(name: str) -> None:
    with pytest.raises(CompileError, match="the text of a tensor depends on its elements") as raised:
        symshape.jit(lambda x: x + len(OF_TENSORS[name](x * 2)))(torch.ones(2, 3))
    assert "test_jit_texts.py" in str(raised.value) and "return the tensor and print it" in str(raised.value)


def test_a_text_of_an_item_is_an_error() -> None:
    with pytest.raises(CompileError, match="a value of a tensor decides"):
        symshape.jit(lambda x: x + len(f"{x.sum().item()}"))(torch.ones(2, 3))


def test_messages_and_logs_decide_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def program(x: Tensor) -> Tensor:
        torch._check(x.shape[0] > 1, lambda: f"{x.shape[0]} rows are not enough")
        logging.getLogger(__name__).warning("rows: %s", x.shape[0])
        return x * 2

    compiled = symshape.jit(program)
    for rows in (2, 5, 9):
        torch.testing.assert_close(compiled(torch.ones(rows, 3)), torch.full((rows, 3), 2.0))
    assert len(compiled.entries) == 1
    assert "rows: " in caplog.text
    with pytest.raises(Exception, match="1 rows are not enough"):
        compiled(torch.ones(1, 3))


def test_divmod_of_sizes() -> None:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        n = x.shape[0]
        numbers = (*divmod(n, 4), *divmod(7, n), *divmod(n, x.shape[1]), *divmod(7.5, n / 2), *divmod(n > 2, 2))
        return tuple(x + number for number in numbers)

    compiled = symshape.jit(program)
    for shape in SIZES:
        x = torch.ones(shape)
        torch.testing.assert_close(compiled(x), program(x), rtol=0, atol=0)


def test_divmod_is_not_decided() -> None:
    compiled = symshape.jit(lambda x: (x + divmod(x.shape[0], 4)[0], x * divmod(x.shape[0], 4)[1]))
    for rows in (1, 5, 9, 23):
        quotient, remainder = compiled(torch.ones(rows, 2))
        torch.testing.assert_close(quotient, torch.full((rows, 2), 1.0 + rows // 4))
        torch.testing.assert_close(remainder, torch.full((rows, 2), float(rows % 4)))
    assert len(compiled.entries) == 1
