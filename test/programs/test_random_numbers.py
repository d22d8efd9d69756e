"""Numbers of eager mode under a seed: what is drawn, the generator afterwards, results and gradients."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
from random_numbers import CHECKPOINTS, PROGRAMS, Program
from torch._subclasses.fake_tensor import FakeTensorMode

import symshape
from symshape.backend import symshape_backend
from symshape.errors import CompileError
from symshape.frame_compiler import compile_with
from symshape.frontend.bridge.traced_values import fill_values
from symshape.tools.report import GraphReport


@dataclass
class Outcome:
    """``states``: of the generator after forward and after backward."""

    results: list[Any]
    gradient: torch.Tensor | None
    states: list[torch.Tensor]


def outcome(function: Callable[..., Any], program: Program, n: int) -> Outcome:
    made = torch.Generator().manual_seed(n)
    x = program.layout(torch.randn(n, *program.shape, generator=made, dtype=torch.float64).to(program.dtype))
    x = x.detach().requires_grad_()
    torch.manual_seed(3)
    results = pytree.tree_leaves(function(x))
    states = [torch.get_rng_state()]
    differentiable = [one for one in results if one.requires_grad]
    if differentiable:
        torch.autograd.backward(differentiable, [torch.ones_like(one) for one in differentiable])
    return Outcome(results, x.grad, [*states, torch.get_rng_state()])


def compare(function: Callable[..., Any], program: Program, n: int) -> None:
    expected = outcome(program.call, program, n)
    actual = outcome(function, program, n)
    for ours, theirs in zip(actual.results, expected.results, strict=True):
        assert ours.stride() == theirs.stride()
        if program.exact:
            assert ours.dtype == theirs.dtype and torch.equal(ours, theirs)
        else:
            torch.testing.assert_close(ours, theirs)
            assert torch.equal(ours == 0, theirs == 0)
    assert (actual.gradient is None) == (expected.gradient is None)
    if expected.gradient is not None:
        torch.testing.assert_close(actual.gradient, expected.gradient)
    assert all(map(torch.equal, actual.states, expected.states)), "the generator is in another state"


# One of each kind of cause; all others are marked as long.
FAST = (
    "created",
    "normal_ strided",
    "bernoulli_",
    "by tensors",
    "dropout of a transposed tensor",
    "rrelu",
    "causal attention",
    "between kernels",
    "in backward",
    "in branches",
    "seeded inside",
    "checkpoint",
    "checkpoint, new numbers",
)


def marked() -> list[Any]:
    return [name if name in FAST else pytest.param(name, marks=pytest.mark.long) for name in PROGRAMS]


def check(compile_: Callable[..., Any], program: Program) -> None:
    """At all sizes, by graphs of ours."""
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return symshape_backend(graph, inputs)

    function = compile_(program.call, backend)
    for n in program.sizes:
        compare(function, program, n)
    assert bool(graphs) == program.compiled


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", marked())
def test_numbers_of_eager_mode(name: str) -> None:
    check(compile_with, PROGRAMS[name])


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in CHECKPOINTS if name != "checkpoint, new numbers"])
def test_checkpoints_of_torch_compile(name: str) -> None:
    """Under ``torch.compile`` itself, where numbers that are not preserved are those of forward."""
    function = torch.compile(PROGRAMS[name].call, backend="symshape", dynamic=True)
    for n in PROGRAMS[name].sizes:
        compare(function, PROGRAMS[name], n)


@pytest.mark.parametrize("name", ["bernoulli_", "checkpoint"])
def test_numbers_of_jit(name: str) -> None:
    function = symshape.jit(PROGRAMS[name].call)
    for n in PROGRAMS[name].sizes:
        compare(function, PROGRAMS[name], n)


@pytest.mark.parametrize("name", ["seeded inside", "forked inside", "restored inside"])
def test_jit_does_not_ask_the_generator(name: str) -> None:
    """It would be asked once, while tracing."""
    with pytest.raises(CompileError, match="asks the generator of random numbers for"):
        symshape.jit(PROGRAMS[name].call)(torch.randn(5, 6))


def test_fast_numbers() -> None:
    """They are others than eager mode's, the same again under the same seed, and draws that nothing reads are none."""
    reports: list[GraphReport] = []

    def call(x: torch.Tensor) -> torch.Tensor:
        torch.rand(3)
        return F.dropout(x, 0.5)

    def backend(graph: Any, inputs: Any) -> Any:
        return symshape_backend(graph, inputs, options={"random": "fast"}, reports=reports)

    function, x = compile_with(call, backend), torch.ones(40, 50)
    torch.manual_seed(2)
    first = function(x)
    torch.manual_seed(2)
    assert torch.equal(function(x), first) and 0.45 < (first == 0).float().mean() < 0.55
    assert [report.library_calls for report in reports] == [["aten.rand.default"]]


def test_library_of_draws() -> None:
    """PyTorch's own test of an operator; and a draw that there is nothing to fill with leaves the generator alone."""
    arguments = ("normal_.default", [3, 4], [1, 3], [0.0, 1.0], None)
    options = {"dtype": torch.float32, "device": torch.device("cpu")}
    torch.library.opcheck(torch.ops.symshape.draw.default, arguments, options)
    state = torch.get_rng_state()
    assert torch.ops.symshape.draw("dropout", [0, 4], [4, 1], [0.5], None, **options).shape == (0, 4)
    assert torch.equal(state, torch.get_rng_state())


def test_values_that_a_pass_left_out() -> None:
    """A call without a traced value gets one: of its parts, or by running it."""
    x = torch.empty(3, 4, device="meta")
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(x)
    graph = torch.fx.Graph()
    argument = graph.placeholder("x")
    whole = graph.call_function(torch.ops.aten.max.dim, (argument, 1))
    parts = [graph.call_function(operator.getitem, (whole, i)) for i in range(2)]
    negative = graph.call_function(torch.ops.aten.neg.default, (argument,))
    graph.output((*parts, negative))
    argument.meta["val"] = fake
    for part, dtype in zip(parts, (torch.float32, torch.int64), strict=True):
        with mode:
            part.meta["val"] = torch.empty(3, dtype=dtype, device="meta")
    fill_values(torch.fx.GraphModule(torch.nn.Module(), graph))
    assert [one.dtype for one in whole.meta["val"]] == [torch.float32, torch.int64]
    assert negative.meta["val"].shape == (3, 4)
