"""Questions about sizes of both kinds, of the data and of inputs: what the inputs settle is a guard."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sympy
import torch
from torch._dynamo.utils import counters

import symshape
from symshape.frontend.bridge.mixed_questions import settling_guards

U, V = sympy.symbols("u v", integer=True, nonnegative=True)
S, T = sympy.symbols("s t", integer=True, nonnegative=True)


def selected_and_all(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x[x > 0.5], x])


QUESTIONS: dict[str, Callable[[torch.Tensor], bool]] = {
    "==": lambda x: selected_and_all(x).numel() == 0,
    "!=": lambda x: selected_and_all(x).numel() != 0,
    "<": lambda x: 2 * selected_and_all(x).numel() - x.numel() < 1,
    ">=": lambda x: 3 <= selected_and_all(x).numel(),
    ">": lambda x: x.numel() > 5 - selected_and_all(x).numel(),
}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_one_graph_serves_sizes_that_settle_it(question: Callable[[torch.Tensor], bool]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return selected_and_all(x) * 2 if question(x) else selected_and_all(x) + 1

    torch._dynamo.reset()
    counters.clear()
    compiled = symshape.compile(function, fullgraph=True, strict=True)
    for size in (8, 5, 31):
        x = torch.linspace(-1, 2, size)
        torch.testing.assert_close(compiled(x), function(x))
    assert counters["stats"]["unique_graphs"] == 1


def test_size_that_does_not_settle_it() -> None:
    """Without a row of its own the input leaves open what is asked, and the frame is broken there."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return x.sum() + 7 if selected_and_all(x).numel() == 0 else selected_and_all(x) + 1

    torch._dynamo.reset()
    compiled = symshape.compile(function, strict=True)
    for size in (4, 0, 1):
        x = torch.linspace(0.7, 2, size)
        torch.testing.assert_close(compiled(x), function(x))


def test_guards() -> None:
    def guards(condition: sympy.Basic) -> list[tuple[sympy.Basic, bool]]:
        return list(settling_guards(condition, {U, V}, lambda symbol: (0, 9 if symbol == V else None)))

    assert guards(sympy.Eq(U + S, 0)) == [(sympy.Gt(S, 0, evaluate=False), False)]
    assert guards(sympy.Ne(V - S, 0)) == [(-S > 0, True), (9 - S < 0, True)]
    assert guards(S * U + T >= 4) == [(T - 4 >= 0, True)]
    assert guards(V <= T) == [(9 - T <= 0, True), (-T > 0, False)]
    assert guards(sympy.Lt(S, 2 * V + 1)) == [(S - 1 < 0, True), (S - 19 >= 0, False)]
    assert guards(sympy.Eq(U * U + S, 0)) == guards(sympy.Eq(U * V + S, 0)) == guards(sympy.Eq((S - T) * U, 2)) == []
