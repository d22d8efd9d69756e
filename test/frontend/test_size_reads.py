"""Which code reads the sizes that a compiled frame passes to its graph, and which sizes are passed."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.nn.functional import batch_norm

import symshape
from symshape.frontend.patches.speed.size_reads import call_size, record_pregraph_bytecode_enter


def code_that_runs(call: Any) -> set[Any]:
    """The code objects of all Python functions that a call enters."""
    found = set()
    sys.setprofile(lambda frame, event, arg: found.add(frame.f_code) if event == "call" else None)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def test_sizes_of_plain_tensors_are_read_at_once() -> None:
    compiled = symshape.compile(lambda x: x * x.shape[0] + x.shape[1])
    usual = torch.compile(lambda x: x * x.shape[0] + x.shape[1], backend="aot_eager", dynamic=True)
    x = torch.randn(3, 5)
    for one in (compiled, usual):
        torch.testing.assert_close(one(x), x * 3 + 5)
    theirs = torch._dynamo.utils.call_size.__wrapped__.__code__
    own = code_that_runs(lambda: compiled(x))
    assert call_size.__code__ in own and theirs not in own
    other = code_that_runs(lambda: usual(x))  # nothing has changed for others
    assert theirs in other and call_size.__code__ not in other


class Counted(torch.Tensor):
    """A subclass that notes when it is asked for its size."""

    asked = 0

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        Counted.asked += func is torch.Tensor.size
        return super().__torch_function__(func, types, args, kwargs or {})


def test_subclasses_are_asked_by_dynamo() -> None:
    x = torch.randn(4, 2).as_subclass(Counted)
    before = Counted.asked
    assert call_size(x, 1) == 2 and Counted.asked == before + 1
    compiled = symshape.compile(lambda x: x + x.shape[0])
    for rows in (4, 6, 7):
        x = torch.randn(rows, 2)
        torch.testing.assert_close(compiled(x.as_subclass(Counted)).as_subclass(torch.Tensor), x + rows)


def test_a_graph_is_not_given_the_sizes_of_its_tensors() -> None:
    """A frame asks for a size only where the graph computes with it, and whether a profiler runs at once."""
    compiled = symshape.compile(lambda x, y: x + y)
    usual = torch.compile(lambda x, y: x + y, backend="aot_eager", dynamic=True)
    for rows in (3, 1, 0, 5):
        x = torch.randn(rows, 4)
        for one in (compiled, usual):
            torch.testing.assert_close(one(x, x.t().contiguous().t()), x + x)
    entered = code_that_runs(lambda: compiled(x, x))
    assert call_size.__code__ not in entered and record_pregraph_bytecode_enter.__code__ in entered
    assert torch._dynamo.utils.record_pregraph_bytecode_enter.__wrapped__.__code__ not in entered
    assert torch._dynamo.utils.call_size.__wrapped__.__code__ in code_that_runs(lambda: usual(x, x))


def test_autograd_saves_sizes_that_are_not_passed() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x.repeat(x.shape[1], 1) * w).cumsum(0).softmax(1).sum(0)

    compiled = symshape.compile(function)
    for rows, columns in ((3, 4), (1, 2), (5, 1), (0, 3)):
        x, w = torch.randn(rows, columns), torch.randn(columns, requires_grad=True)
        found = []
        for run in (compiled, function):
            (grad,) = torch.autograd.grad(run(x, w).square().sum(), w)
            found.append(grad)
        torch.testing.assert_close(*found)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x, w), function(x, w))


def test_floats_of_sizes_that_are_not_passed() -> None:
    """The variance of a batch norm's elements has a factor of sizes, which no line of the user's reads."""
    with_scale = symshape.compile(lambda x, m, v, scale: batch_norm(x, m, v, training=True) * (scale * x.shape[0]))
    without = symshape.compile(lambda x, m, v, _: batch_norm(x, m, v, training=True))
    for batch in (3, 1, 5):
        x = torch.randn(batch, 2, 3, 4)
        for compiled, scale in ((with_scale, 1.5 + batch), (without, 1.0 / batch)):
            for grad in (False, True):
                statistics = [(torch.zeros(2), torch.ones(2)) for _ in range(2)]
                ours = compiled(x.clone().requires_grad_(grad), *statistics[0], scale)
                torch.testing.assert_close(ours, batch_norm(x, *statistics[1], training=True) * scale * batch)
                torch.testing.assert_close(*statistics)


def test_sizes_are_passed_for_inputs_that_share_memory() -> None:
    """AOTAutograd's graph is given their base, where one is written to."""

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return torch.cat([x.flatten(), y * x.shape[0]]).sum(0) + y

    compiled = symshape.compile(function)
    for rows in (4, 1, 6, 2):
        found = []
        for run in (compiled, function):
            base = torch.arange(8.0 * rows)
            result = run(base[: 2 * rows].view(rows, 2), base[rows:])
            found.append((result, base))
        torch.testing.assert_close(*found)


def test_a_profiler_sees_the_reads() -> None:
    compiled = symshape.compile(lambda x: x + 1)
    compiled(torch.randn(3))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        compiled(torch.randn(5))
    assert "Pregraph bytecode" in {event.key for event in profile.key_averages()}


def test_the_host_program_asks_for_sizes_that_it_reads() -> None:
    """``symshape.jit`` gives a graph no sizes beside its tensors: those of ``y`` are the library's affair alone."""

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x.sin() * x.shape[1]).sum(0) + torch.linalg.det(y)

    jitted = symshape.jit(function)
    for rows, columns in ((4, 6), (1, 3), (0, 2), (7, 1)):
        found = []
        for run in (jitted, function):
            x = torch.linspace(-1, 1, rows * columns).reshape(rows, columns).requires_grad_()
            run(x, torch.eye(columns)).square().sum().backward()
            found.append(x.grad)
        torch.testing.assert_close(*found)
    with torch.no_grad():
        jitted(torch.randn(4, 6), torch.randn(3, 3))
    program = jitted.entries[-1].graphs[0].program_source
    assert "arg0.size(0)" in program and "arg0.size(1)" in program and "arg1.size(" not in program


def test_a_graph_without_arguments_draws_a_float() -> None:
    """The sizes of its arguments would be read for what is computed of the float."""

    def draw(_: list[int]) -> tuple[float, torch.Tensor]:
        return torch.empty(1).uniform_(0.5, 1.5).item() + 1, torch.randperm(4)

    compiled = symshape.compile(draw)
    for seed in (1, 2):
        torch.manual_seed(seed)
        expected = draw([seed])
        torch.manual_seed(seed)
        actual = compiled([seed])
        assert actual[0] == expected[0] and torch.equal(actual[1], expected[1])
