"""Strings with sizes and numbers in them, and warnings: in one graph, as eager gives them."""

from __future__ import annotations

import functools
import logging
import warnings
from typing import Any

import pytest
import torch
from torch._higher_order_ops import InvokeQuant

import symshape


class Parts(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part2, self.part3 = torch.nn.Linear(4, 2), torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor, n: int, scale: float) -> tuple[torch.Tensor, str]:
        text = f"{n} of {x.shape[0]}, {tuple(x.shape)} by {scale!r}: {n:>4}|{scale:.2e}"
        return getattr(self, f"part{n}")(x) * scale, text


def test_numbers_in_strings() -> None:
    """They are those of the call, and a string may be a name."""
    module = Parts()
    compiled = symshape.compile(module, fullgraph=True)
    for rows, n, scale in ((6, 3, 0.5), (6, 3, 0.75), (6, 2, -1.5), (9, 2, 3.0)):
        x = torch.randn(rows, 4)
        with torch.compiler.set_stance("fail_on_recompile" if scale == 0.75 else "default"):
            actual = compiled(x, n, scale)
        torch.testing.assert_close(actual[0], module(x, n, scale)[0])
        assert actual[1] == module(x, n, scale)[1]


def test_names_of_classes_are_strings() -> None:
    """Of a parameter's class too, which Dynamo calls in the graph: libraries ask where a weight comes from."""
    module = torch.nn.Linear(4, 2)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, str]:
        kind = type(module.weight)
        scale = 3.0 if kind.__module__.startswith("torch.") else 5.0
        return module(x) * scale, f"{kind.__name__.lower()} of {module.weight.__class__.__module__.upper()}"

    compiled = symshape.compile(function, fullgraph=True)
    for rows in (5, 1, 0):
        x = torch.randn(rows, 4)
        found, expected = compiled(x), function(x)
        torch.testing.assert_close(found[0], expected[0])
        assert found[1] == expected[1] == "parameter of TORCH.NN.PARAMETER"


def scripted(x: torch.Tensor, other: torch.Tensor | None, n: int) -> torch.Tensor:
    if torch.jit.isinstance(other, torch.Tensor):
        x = torch.cat([x, other]) if torch.jit.isinstance(x, (int, torch.Tensor)) else other
    return x * n if torch.jit.isinstance(n, int) else x


def test_types_of_torchscript() -> None:
    compiled = symshape.compile(scripted, fullgraph=True)
    for rows in (5, 1, 0):
        for other in (None, torch.randn(rows + 1, 3)):
            x = torch.randn(rows, 3)
            torch.testing.assert_close(compiled(x, other, 3), scripted(x, other, 3))


@pytest.mark.filterwarnings("ignore:The inner type of a container")
def test_types_of_containers_are_asked_in_eager_mode() -> None:
    def function(x: list[torch.Tensor], asked: Any) -> torch.Tensor:
        return x[0] * 2 if torch.jit.isinstance(x, asked) else x[0] * 3

    compiled = symshape.compile(function)
    x = [torch.randn(4)]
    for asked in (list[torch.Tensor], list[int]):
        torch.testing.assert_close(compiled(x, asked), function(x, asked))
    for one in (compiled, function):
        with pytest.raises(RuntimeError, match="without a contained type"):
            one(x, list)


def warning(x: torch.Tensor, scale: float) -> torch.Tensor:
    if x.shape[0] > 3:
        warnings.warn(f"{tuple(x.shape)} rows, scaled by {scale}", FutureWarning, stacklevel=1)
    inner(x)
    return x * scale


def inner(x: torch.Tensor) -> None:
    warnings.warn("of the caller", stacklevel=2)


def test_warnings_are_given_at_their_lines() -> None:
    seen = []
    for function in (symshape.compile(warning, fullgraph=True), warning):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.testing.assert_close(function(torch.ones(5, 2), 0.5), torch.full((5, 2), 0.5))
        seen.append([(str(one.message), one.category, one.filename, one.lineno) for one in caught])
    assert seen[0] == seen[1]
    assert [text for text, *_ in seen[0]] == ["(5, 2) rows, scaled by 0.5", "of the caller"]


def test_messages_that_a_logger_says_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """They are said at compile time, and are then known; a message that is said at each call breaks the graph."""
    say = functools.cache(lambda self, text, *parts: self.warning(text, *parts))
    monkeypatch.setattr(logging.Logger, "warning_once", say, raising=False)
    logger: Any = logging.getLogger(__name__)

    def function(x: torch.Tensor) -> torch.Tensor:
        logger.warning_once("two %s", "parts")
        return x.sin() + 1

    compiled = symshape.compile(function, fullgraph=True)
    for rows in (5, 1, 0, 13):
        x = torch.randn(rows)
        torch.testing.assert_close(compiled(x), function(x))
    assert [record.getMessage() for record in caplog.records] == ["two parts"]

    def repeated(x: torch.Tensor) -> torch.Tensor:
        logger.warning("again")
        return x.sin() + 1

    compiled = symshape.compile(repeated)
    for rows in (5, 1):
        compiled(torch.randn(rows))
    assert [record.getMessage() for record in caplog.records][1:] == ["again"] * 2


def test_warnings_that_are_errors() -> None:
    compiled = symshape.compile(warning)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        with pytest.raises(FutureWarning, match="rows, scaled by 0.5"):
            compiled(torch.ones(5, 2), 0.5)
        torch.testing.assert_close(compiled(torch.ones(2, 2), 0.5), torch.full((2, 2), 0.5))


def quantised(x: torch.Tensor, y: torch.Tensor) -> Any:
    """A call in a call, with a tensor that is a constant."""
    table = torch.tensor([0.5, 2.0])

    def inside(a: torch.Tensor) -> tuple[torch.Tensor]:
        return (a.cos() * table[1],)

    def outside(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return a.sin() * b, InvokeQuant()(inside, a)[0] + b

    first, second = InvokeQuant()(outside, x, y)
    return first * 2, second


def test_calls_that_only_call_are_kernels() -> None:
    report = symshape.explain(quantised, torch.randn(3, 4, requires_grad=True), torch.randn(4))
    assert all(not graph.library_calls for graph in report.graphs), str(report)
    compiled = symshape.compile(quantised, fullgraph=True)
    for rows in (3, 7, 1):
        found = []
        x, y = torch.randn(rows, 4), torch.randn(4)
        for function in (compiled, quantised):
            leaf = x.clone().requires_grad_()
            results = function(leaf, y)
            found.append((*results, *torch.autograd.grad(sum(r.square().sum() for r in results), leaf)))
        torch.testing.assert_close(*found)
