"""Why there is another graph of a function, or another entry: the user's line, the condition and the value."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from imported import line
from torch.utils.checkpoint import checkpoint

import symshape
from symshape.graphs import FurtherGraph


def _branching(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    if x.shape[0] > 3:
        y = y + 1
    if x.shape[1] == 5:
        y = y.sin()
    return y


def _further(function: Callable[..., Any], *calls: Any) -> list[FurtherGraph]:
    report = symshape.explain(function, *calls[0])
    for arguments in calls[1:]:
        report.run(*arguments)
    assert len(report.graphs) == len(report.further) + 1
    return report.further


def _shapes(*shapes: tuple[int, ...]) -> list[tuple[torch.Tensor]]:
    return [(torch.randn(shape),) for shape in shapes]


def test_the_line_the_condition_and_the_value() -> None:
    second, third = _further(_branching, *_shapes((4, 4), (2, 4), (7, 5)))
    above, equal = line(_branching, "x.shape[0] > 3"), line(_branching, "x.shape[1] == 5")
    assert second.function == "_branching" and second.number == 2
    assert second.line == f"{__file__}:{_branching.__code__.co_firstlineno}"
    (reason,) = second.reasons
    assert (reason.graph, reason.condition, reason.line) == (1, "4 <= x.size(0)", above)
    assert reason.values == (("x.size(0)", "2"),) and reason.text == "if x.shape[0] > 3:" and not reason.asked
    first, upper = third.reasons
    assert (first.condition, first.line) == ("x.size(1) != 5", equal)
    assert (upper.graph, upper.line, upper.values) in ((2, above, (("x.size(0)", "7"),)), (2, equal, first.values))


def test_a_size_that_is_pinned() -> None:
    (further,) = _further(_branching, *_shapes((2, 5), (2, 6)))
    (reason,) = further.reasons
    assert reason.condition == "x.size(1) == 5" and reason.values == (("x.size(1)", "6"),)
    assert reason.line == line(_branching, "x.shape[1] == 5")


@pytest.mark.parametrize(
    "function, first",
    [
        (lambda x: x.squeeze() + 1, 3),
        (lambda x: x.squeeze(0) * 2, 1),
        (lambda x: torch.squeeze(input=x, dim=(0, 1)) * 2, 3),
    ],
    ids=["all", "one", "some"],
)
def test_squeezes(function: Callable[..., Any], first: int) -> None:
    """The rank of the result depends on the size: the user's line, and what it calls."""
    x, other = torch.randn(first, 4), torch.randn(4 - first, 4)
    (further,) = _further(function, (x,), (other,))
    (reason,) = further.reasons
    assert reason.line == f"{__file__}:{function.__code__.co_firstlineno}" and "squeeze" in reason.text
    assert reason.values == (("x.size(0)", str(len(other))),) and reason.asked == "PyTorch's squeeze"
    jitted = symshape.jit(function)
    jitted(x)
    jitted(other)
    entry = jitted.entries[0].further
    assert entry is not None and entry.kind == "entry" and entry.number == 2
    assert entry.reasons[0].line == reason.line and entry.reasons[0].values == reason.values


class _Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.eps, self.mode = 0.5, "plus"

    def forward(self, xs: list[torch.Tensor], k: Any = 2) -> torch.Tensor:
        found = xs[0] * k + self.eps
        return found.sin() if self.mode == "plus" else found


def test_reasons_besides_sizes() -> None:
    module, x = _Scaled(), torch.randn(3, 4)
    report = symshape.explain(module, [x])
    changes: list[tuple[Callable[[], Any], str, str]] = [
        (lambda: report.run([x.double()]), "xs[0].dtype == Float", "Double"),
        (lambda: report.run([x[0]]), "xs[0].rank == 2", "1"),
        (lambda: report.run([x, x]), "len(xs) == 1", "2"),
        (lambda: report.run([x], 2.5), "type(k) is int", "float"),
        (lambda: setattr(module, "eps", 0.25) or report.run([x]), "self.eps == 0.5", "0.25"),
        (lambda: setattr(module, "mode", "less") or report.run([x]), "self.mode == 'plus'", "'less'"),
    ]
    for change, condition, value in changes:
        module.eps, module.mode = 0.5, "plus"
        change()
        reason = report.further[-1].reasons[0]
        assert (reason.graph, reason.condition) == (1, condition)
        assert [shown for _, shown in reason.values] == [value]
    assert report.further[-1].reasons[0].line == line(_Scaled.forward, 'self.mode == "plus"')
    text = str(report)
    assert "why there are further graphs:\ngraph 2 of _Scaled.forward" in text
    assert " for self.mode == 'plus', here self.mode = 'less': `return found.sin()" in text


def test_reasons_of_entries() -> None:
    jitted = symshape.jit(lambda x, k=3: x * k)
    x = torch.randn(3, 4)
    for arguments in ((x,), (x.double(),), (x, 1), (x, 7)):
        jitted(*arguments)
    newest_first = [entry.further for entry in jitted.entries]
    found = {further.number: further.reasons for further in newest_first if further is not None}
    assert newest_first.count(None) == 1 and sorted(found) == [2, 3, 4]
    assert found[2][0].condition == "x.dtype == torch.float32"
    assert "another number" in found[3][0].condition
    assert found[4][-1].condition == "k == 1" and found[4][-1].values == (("k", "7"),)


def test_the_log(caplog: pytest.LogCaptureFixture) -> None:
    compiled = symshape.compile(_branching)
    with caplog.at_level(logging.INFO, "symshape.graphs"):
        for (x,) in _shapes((4, 4), (2, 4), (3, 6)):
            compiled(x)
    (record,) = caplog.records
    text = record.getMessage()
    assert text.startswith("graph 2 of _branching (") and "here x.size(0) = 2: `if x.shape[0] > 3:` at" in text


def test_the_variable_of_pytorch() -> None:
    """PyTorch reads it when it is imported, and so before symshape."""
    script = """
import torch, symshape
compiled = symshape.compile(lambda x: x.sum() if x.shape[0] > 3 else x)
for n in (4, 2, 7):
    compiled(torch.randn(n))
"""
    environment = {**os.environ, "TORCH_LOGS": "symshape.graphs"}
    command = [sys.executable, "-c", script]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert ran.stderr.count("graph 2 of <lambda>") == 1 and "graph 3" not in ran.stderr
    assert "graph 1 holds for 4 <= x.size(0), here x.size(0) = 2" in ran.stderr


def test_a_line_of_a_library_is_the_users() -> None:
    """The condition of transformers' attention decides; a later one of the same bound is not named."""
    from transformers import BertConfig, BertModel

    config = BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, vocab_size=9)
    model = BertModel(config).eval()
    with torch.no_grad():
        calls = [(torch.ones(shape, dtype=torch.long),) for shape in ((2, 3), (3, 4), (2, 1), (4, 1))]
        (further,) = _further(model, *calls)
    (reason,) = further.reasons
    assert "q_length > 1" in reason.text and "transformers" in reason.line and not reason.asked
    ((name, value),) = reason.values
    assert name.endswith(".size(1)") and value == "1"


class _InLoop(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.BatchNorm1d(3) for _ in range(2)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return x


def test_a_checkpoint_that_breaks_the_graph_says_why(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", "symshape.frames"):
        report = symshape.explain(_InLoop(), torch.randn(5, 3, requires_grad=True))
    assert not report.graphs
    (said,) = [record.getMessage() for record in caplog.records if "checkpoint" in record.getMessage()]
    assert "backward writes again" in said and "test_graphs.py" in said


def _told_in_between(x: torch.Tensor) -> torch.Tensor:
    y = _told(x * 2)
    if y.sum() > 3:
        return y + 1
    return y


def _told(x: torch.Tensor) -> torch.Tensor:
    print(x.sum().item())
    return x.sin()


def test_where_a_graph_is_broken() -> None:
    """A break in a called function has the line of that function, a resume function's its own."""
    x = torch.ones(3)
    report = symshape.explain(_told_in_between, x)
    torch.testing.assert_close(report.result, _told_in_between(x))
    told, branch = report.breaks
    assert told.line == line(_told, "print(") and told.text == "print(x.sum().item())"
    assert told.reason.startswith("Failed to trace builtin operator. ") and "`print`" in told.reason
    assert branch.line == line(_told_in_between, "if y.sum()") and branch.text == "if y.sum() > 3:"
    assert branch.reason == "a branch on a value that is not known while tracing"
    assert str(told) in str(report) and str(branch) in str(report)
    report.run(torch.ones(4))
    assert report.breaks == [told, branch]


def _told_in_a_loop(x: torch.Tensor) -> torch.Tensor:
    for _ in range(2):
        print("once more")
        x = x + 1
    return x


def test_why_a_function_is_not_compiled() -> None:
    report = symshape.explain(_told_in_a_loop, torch.ones(3))
    assert not report.graphs
    (broken,) = report.breaks
    assert broken.line == line(_told_in_a_loop, "print(") and broken.text == 'print("once more")'
    assert broken.reason.startswith("Failed to trace builtin operator. ")
    assert broken.reason.endswith("; so the function runs in eager mode") and str(broken) in str(report)


def test_no_break_is_reported_of_one_graph() -> None:
    report = symshape.explain(_branching, torch.ones(3, 4))
    assert not report.breaks and "broken" not in str(report)


def _branching_in_a_loop(x: torch.Tensor) -> torch.Tensor:
    y = x.exp() + 1
    x = x * y
    for _ in range(2):
        x = x + 1
        if x.sum() > 3:
            x = x * 2
    return x


def _broken_in_a_try(x: torch.Tensor) -> torch.Tensor:
    y = x.exp() + 1
    x = x * y
    try:
        x = x + 1
        print("inside")
    except ValueError:
        pass
    return x


@pytest.mark.parametrize(
    ("fn", "at", "title"),
    [
        (_branching_in_a_loop, "if x.sum()", "Data-dependent branching. "),
        (_broken_in_a_try, "print(", "Failed to trace builtin operator. "),
    ],
)
def test_why_the_rest_of_a_function_is_not_compiled(fn: Any, at: str, title: str) -> None:
    """What comes before is a graph; the break is not the line where that ends, but what cannot be traced."""
    report = symshape.explain(fn, torch.ones(3))
    assert len(report.graphs) == 1
    torch.testing.assert_close(report.result, fn(torch.ones(3)))
    (broken,) = report.breaks
    assert broken.line == line(fn, at) and broken.text.startswith(at)
    assert broken.reason.startswith(title) and broken.reason.endswith(
        "; so the rest of the function runs in eager mode"
    )
