"""Calls of sizes that do not fit fail while they are traced, with eager mode's message and numbers for sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import symshape
from symshape.frontend.bridge.errors_of_traced_calls import eager_error_of

ONES, LONG = torch.ones, torch.zeros(4, dtype=torch.long)
MISTAKES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "product": (lambda x, y: x @ y, (ONES(3, 5), ONES(4, 2))),
    "sum": (lambda x, y: x + y, (ONES(3, 5), ONES(3, 4))),
    "in place": (lambda x, y: x.add_(y), (ONES(3, 5), ONES(4, 5))),
    "cat": (lambda x, y: torch.cat([x, y]), (ONES(3, 5), ONES(3, 4))),
    "view": (lambda x, y: x.t()[y:].reshape(x.shape[0] + 1, -1), (ONES(3, 5), 0)),
    "linear": (F.linear, (ONES(3, 5), ONES(2, 4))),
    "channels": (F.conv1d, (ONES(3, 5, 9), ONES(2, 4, 3))),
    "target": (F.cross_entropy, (ONES(3, 5), LONG)),
    "index": (lambda x, y: x[7] + y, (ONES(3, 5), 3)),
    "split": (lambda x, y: torch.split(x, [2, 2]), (ONES(3, 5), 0)),
    "einsum": (lambda x, y: torch.einsum("ij,jk->ik", x, y), (ONES(3, 5), ONES(4, 2))),
    "cholesky": (lambda x, y: torch.linalg.cholesky(x), (ONES(3, 5), 0)),
    "norm": (lambda x, y: F.batch_norm(x[:y], None, None, training=True), (ONES(3, 5), 1)),
    "grid": (lambda x, y: F.affine_grid(x[:y], (y, 1, 2, 2), align_corners=False), (ONES(3, 2, 3), 0)),
    "division": (lambda x, y: x * (7 // x[:y].shape[0]), (ONES(3), 0)),
    "mask": (lambda x, y: torch.nn.MultiheadAttention(4, 2)(x, x, x, y)[0], (ONES(3, 2, 4), ONES(3, 2))),
    "heads": (F.scaled_dot_product_attention, (ONES(1, 3, 5), ONES(1, 3, 4), ONES(1, 3, 4))),
}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def plain(function: Callable[..., Any]) -> Any:
    return torch.compile(function, backend="symshape", dynamic=True)


@pytest.mark.parametrize("entry", [symshape.compile, plain, symshape.jit])
@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.filterwarnings("error::symshape.errors.FallbackWarning")
def test_the_words_of_eager_mode(name: str, entry: Callable[..., Any]) -> None:
    function, inputs = MISTAKES[name]
    with pytest.raises(Exception) as eager:
        function(*inputs)
    with pytest.raises(type(eager.value)) as ours:
        entry(lambda *args: function(*args))(*inputs)
    assert str(eager.value) == str(ours.value) and type(ours.value) is type(eager.value)


@pytest.mark.parametrize("entry", [symshape.compile, plain])
def test_the_function_may_handle_it_after_a_graph_break(entry: Callable[..., Any]) -> None:
    def normalised(x: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(x, None, None, training=True)

    def program(x: torch.Tensor) -> torch.Tensor:
        x = x * 2
        torch._dynamo.graph_break()
        try:
            return normalised(x)
        except ValueError as error:
            return x + len(str(error))

    compiled = entry(program)
    for size in (1, 3):
        torch.testing.assert_close(compiled(torch.ones(size, 5)), program(torch.ones(size, 5)))


def test_the_function_may_handle_it() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        try:
            return x.view(4, -1)
        except RuntimeError as error:
            return x + len(str(error))

    jitted = symshape.jit(program)
    for shape in ((3, 5), (2, 6)):
        torch.testing.assert_close(jitted(torch.ones(shape)), program(torch.ones(shape)))


def test_only_functions_of_pytorch_are_run() -> None:
    calls = []

    def users(x: torch.Tensor) -> torch.Tensor:
        calls.append(x)
        raise ValueError("the user's")

    given = (torch.ones(2),)
    assert eager_error_of(RuntimeError(), users, given, {}) is None and not calls
    assert eager_error_of(RuntimeError(), torch.autograd.grad, given * 2, {}) is None
    assert eager_error_of(RuntimeError(), "backward", given, {}) is None
    assert eager_error_of(NotImplementedError(), torch.mm, given * 2, {}) is None  # says that there is no rule
    assert eager_error_of(RuntimeError(), torch.mm, (torch.ones(2, 2),) * 2, {}) is None  # nothing is wrong with it
