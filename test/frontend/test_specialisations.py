"""Which line pinned which size: the log of ``symshape.explain``, and the error for a size that is marked dynamic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from imported import line

import symshape
from symshape.frontend.importer.specialisations import plain_source


def _log(fn: Callable[..., Any], *args: Any) -> dict[str, tuple[str, tuple[str, ...]]]:
    torch._dynamo.reset()
    report = symshape.explain(fn, *args)
    return {one.text: (one.reason, one.lines) for one in report.specialisations}


def test_a_line_that_pins_a_size() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] == 5:
            return x + 1
        return x - 1

    report = symshape.explain(fn, torch.randn(5, 4))
    (one,) = report.specialisations
    assert one.text == "x.size(0) == 5" and one.lines == (line(fn, "x.shape[0] == 5"),)
    assert str(one) == f"x.size(0) == 5   pinned at {one.lines[0]} (if x.shape[0] == 5:)"
    assert f"  {one}" in str(report).splitlines()


def test_sizes_that_become_equal() -> None:
    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = x + 1
        return y @ w

    log = _log(fn, torch.randn(5, 6), torch.randn(6, 8))
    assert log == {"x.size(1) == w.size(0)": ("pinned at", (line(fn, "y @ w"),))}


def test_sizes_of_parameters_have_the_users_names() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(6, 4))
    ((text, (reason, lines)),) = _log(module, torch.randn(5, 6)).items()
    assert text.endswith(".size(1) == 6") and "'" not in text and reason == "pinned at"
    assert "linear.py:" in lines[0]


def test_an_expression_is_pinned() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        rows = x.view(-1, 4)
        return rows * y if rows.shape[0] == 1 else rows + y

    log = _log(fn, torch.randn(4), torch.randn(4))
    assert log["x.size(0) // 4 == 1"] == ("pinned at", (line(fn, "rows * y"),))
    reason, lines = log["x.size(0) == 4"]  # a multiple of 4, and 1 when divided by 4
    assert reason == "pinned together at" and set(lines) == {line(fn, "rows * y"), line(fn, "x.view")}


def test_divisibility_pins_nothing() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.view(5, -1) * 2

    assert _log(fn, torch.randn(10)) == {}


def test_sizes_zero_and_one_are_not_pinned() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x + y).softmax(0)

    assert _log(fn, torch.randn(1, 4), torch.randn(1)) == {}


def test_equal_sizes_of_plain_torch_compile() -> None:
    """Sizes that are equal at the first call are one symbol there, and those of 0 and 1 are constants."""
    from symshape.backend import symshape_backend

    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.sum() + y

    def backend(graph: Any, inputs: Any) -> Any:
        return symshape_backend(graph, inputs, reports=reports)

    torch._dynamo.reset()
    reports: list[Any] = []
    torch.compile(fn, backend=backend, dynamic=True)(torch.randn(4, 1), torch.randn(4))
    first, equal = reports[0].specialisations
    assert first.text == "x.size(1) == 1" and "sizes 0 and 1 have graphs of their own" in first.reason
    assert equal.text == "y.size(0) == x.size(0)" and equal.reason.startswith("equal at the first call")


def _joint(x: torch.Tensor) -> torch.Tensor:
    a, b = x.shape
    if a > b:
        return x + 1
    if a < b:
        return x - 1
    if a + b != 10:
        return x + 2
    return x + 3


def test_lines_that_pin_a_size_together() -> None:
    log = _log(_joint, torch.randn(5, 5))
    where = tuple(line(_joint, text) for text in ("a > b", "a < b", "a + b"))
    assert log["x.size(1) == 5"] == ("pinned together at", where)


def test_a_marked_size_that_lines_pin_together_is_an_error() -> None:
    torch._dynamo.reset()
    x = torch.randn(5, 5)
    torch._dynamo.mark_dynamic(x, 1)
    with pytest.raises(Exception, match="marked dynamic") as raised:
        symshape.compile(_joint)(x)
    text = str(raised.value)
    assert "x.size(1) is marked dynamic" in text and "leave it the value 5 only" in text
    for part in ("a > b", "a < b", "a + b"):
        assert line(_joint, part) in text
    assert "next: do not mark x.size(1)" in text


def test_a_marked_size_that_varies_is_none() -> None:
    torch._dynamo.reset()
    x = torch.randn(4, 6)
    torch._dynamo.mark_dynamic(x, 1)
    torch.testing.assert_close(symshape.compile(_joint)(x), x - 1)


@pytest.mark.parametrize(
    ("source", "plain"),
    [
        ("L['x'].size()[0]", "x.size(0)"),
        ("L['args'][0].stride()[2]", "args[0].stride(2)"),
        ("L['self']._modules['q']._parameters['weight'].size()[1]", "self.q.weight.size(1)"),
        ("G['W']", "W"),
    ],
)
def test_names(source: str, plain: str) -> None:
    assert plain_source(source) == plain
