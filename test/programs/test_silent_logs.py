"""Text that PyTorch computes for its logs is computed only if the log is enabled."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import pytest
import torch
from torch._dynamo import guards
from torch._dynamo.output_graph import OutputGraph
from torch._logging._internal import trace_log

import symshape


@pytest.mark.parametrize("level", [logging.DEBUG, logging.WARNING])
def test_guards_are_timed_for_their_log(
    level: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[Any] = []
    usual = guards.profile_guard_manager
    monkeypatch.setattr(guards, "profile_guard_manager", lambda *given: timed.append(given) or usual(*given))
    x = torch.randn(4, 5)
    with caplog.at_level(level, logger=guards.guards_log.name):
        torch.testing.assert_close(symshape.compile(lambda x: x.sin() * 2)(x), x.sin() * 2)
    assert len(timed) == (level == logging.DEBUG)


@pytest.mark.parametrize("read", [False, True], ids=["silent", "read"])
def test_sizes_are_printed_for_the_trace(read: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[Any] = []
    usual = OutputGraph.get_graph_sizes_structured
    monkeypatch.setattr(OutputGraph, "get_graph_sizes_structured", lambda self: printed.append(self) or usual(self))
    monkeypatch.setattr(trace_log, "handlers", [logging.NullHandler()] if read else [])
    x = torch.randn(4, 5)
    torch.testing.assert_close(symshape.compile(lambda x: x.cos() * 2)(x), x.cos() * 2)
    assert bool(printed) == read


def test_questions_about_layouts_are_not_recorded() -> None:
    """PyTorch warns where it records one ("Raw SymInt value"): a cell's gates are written into a slice."""
    cell = torch.nn.LSTMCell(4, 6)

    def function(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = cell(x[:, 0, :4])[0]
        return result

    torch._dynamo.reset()
    compiled = symshape.compile(function, fullgraph=True, strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rows in (3, 1, 0, 13):
            x = torch.randn(rows, 2, 5, requires_grad=True)
            other = x.detach().requires_grad_()
            expected, found = function(x), compiled(other)
            torch.testing.assert_close(found, expected)
            expected.sum().backward()
            found.sum().backward()
            torch.testing.assert_close(other.grad, x.grad)
