"""Custom operators without a fake rule: eager mode's results in one graph, or a log that says why not."""

from __future__ import annotations

import functools
import logging
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import symshape
from symshape.errors import CompileError, OptionError

from . import custom_operators as table

ONE_GRAPH = [case for case in table.CASES if case.graphs == 1 and not case.error]
BROKEN = [case for case in table.CASES if case.graphs > 1]
# One of each class; all of them are compiled together.
FEW = (
    "by_numpy",
    "of_two",
    "column_major",
    "joined",
    "half",
    "at_most",
    "places",
    "list_and_tensor",
    "count",
    "some_number",
    "add_in_place",
)
FEW_BROKEN = ("largest", "clip_and_report", "noise")


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


def check(cases, sizes) -> None:
    def programs(arguments):
        return [case.program(case.op, *given) for case, given in zip(cases, arguments)]

    compiled = symshape.compile(programs, fullgraph=True)
    for n in sizes:
        ours, eager = (f([case.arguments(n) for case in cases]) for f in (compiled, programs))
        torch.testing.assert_close(ours, eager)


def test_one_graph_for_operators_of_each_class() -> None:
    check([case for case in ONE_GRAPH if case.name in FEW], table.SIZES)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.mark.long
@pytest.mark.parametrize("case", ONE_GRAPH, ids=lambda case: case.name)
def test_one_graph(case) -> None:
    check([case], table.SIZES)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    check([case], (2, 1, 30))


def broken(case, caplog) -> None:
    def program(*args):
        return case.program(case.op, *args)

    compiled = symshape.compile(program)
    with caplog.at_level(logging.WARNING, "symshape.frames"):
        for n in table.SIZES:
            results = []
            for f in (compiled, program):
                torch.manual_seed(3)
                results.append(f(*case.arguments(n)))
            torch.testing.assert_close(*results)
    # "symshape.graphs" may say something of the operator's own code, which is compiled for each length of a text.
    broken_at = [record.getMessage() for record in caplog.records if record.name == "symshape.frames"]
    said = [message for message in broken_at if case.name in message]
    assert len(said) == 1 and case.why in said[0] and "custom_operators.py:" in said[0]
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match=f"(?s){case.name}.*{case.why.replace('(', '.')}"):
        symshape.compile(program, fullgraph=True)(*case.arguments(5))


@pytest.mark.parametrize("case", [case for case in BROKEN if case.name in FEW_BROKEN], ids=lambda case: case.name)
def test_eager_results_and_the_reason_where_an_operator_is_not_tried(case, caplog) -> None:
    broken(case, caplog)


@pytest.mark.long
@pytest.mark.parametrize("case", [case for case in BROKEN if case.name not in FEW_BROKEN], ids=lambda case: case.name)
def test_eager_results_and_the_reason_where_there_is_no_rule(case, caplog) -> None:
    broken(case, caplog)


def test_an_operator_that_returns_its_operand_is_an_error_as_in_eager_mode() -> None:
    case = next(case for case in table.CASES if case.error)
    for f in (case.program, symshape.compile(case.program)):
        with pytest.raises(RuntimeError, match=case.error):
            f(case.op, *case.arguments(5))


# --- what is said, and what is checked -------------------------------------------------------------------------------


def test_the_rule_is_said_once_and_can_be_registered_as_it_is_written(caplog) -> None:
    @torch.library.custom_op("symshape_said::windows", mutates_args=())
    def windows(x: Tensor, length: int) -> tuple[Tensor, Tensor]:
        return x.unfold(0, length, 2).clone(), (x > 0).t().contiguous().t()

    def program(x):
        first, second = windows(x * 2, 3)
        return first.sum(-1) + 1, second.logical_not()

    with caplog.at_level(logging.WARNING, "symshape.frames"):
        for _ in range(2):
            torch._dynamo.reset()
            symshape.compile(program, fullgraph=True)(torch.randn(9, 4))
    (said,) = [record.getMessage() for record in caplog.records if record.name == "symshape.frames"]
    assert "test_custom_operators.py:" in said
    code = said[said.index("    @torch.library.register_fake") :]
    exec("\n".join(line[4:] for line in code.splitlines()), {"torch": torch})
    torch._dynamo.reset()
    caplog.clear()
    x = torch.randn(11, 4)
    torch.testing.assert_close(symshape.compile(program, fullgraph=True)(x), program(x))
    assert not [record for record in caplog.records if record.name == "symshape.frames"]
    torch.library.opcheck(windows, (x, 3), test_utils="test_faketensor")


def test_a_result_of_other_sizes_than_were_found_is_an_error() -> None:
    @torch.library.custom_op("symshape_said::far_bound", mutates_args=())
    def far_bound(x: Tensor) -> Tensor:
        return x[:5000].clone()

    compiled = symshape.compile(lambda x: far_bound(x * 2) + 1)
    torch.testing.assert_close(compiled(torch.ones(7)), torch.full((7,), 3.0))
    with pytest.raises(symshape.ShapeConstraintError) as caught:
        compiled(torch.ones(6000))
    assert "[5000]" in str(caught.value) and "[6000]" in str(caught.value)
    assert 'register_fake("symshape_said::far_bound")' in str(caught.value)
    assert "test_custom_operators.py:" in str(caught.value)


def test_a_result_of_other_sizes_than_a_registered_rule_says_is_an_error() -> None:
    @torch.library.custom_op("symshape_said::wrong_rule", mutates_args=())
    def wrong_rule(x: Tensor) -> Tensor:
        return x[1:].clone()

    wrong_rule.register_fake(lambda x: torch.empty_like(x))
    with pytest.raises(symshape.ShapeConstraintError, match="fake rule says"):
        symshape.compile(lambda x: wrong_rule(x * 2) + 1)(torch.ones(7))


def test_what_is_switched_off_is_not_run() -> None:
    calls = []

    @torch.library.custom_op("symshape_said::counted", mutates_args=())
    def counted(x: Tensor) -> Tensor:
        calls.append(tuple(x.shape))
        return x * 2

    compiled = symshape.compile(lambda x: counted(x + 1) + 1, probe_custom_operators=False)
    torch.testing.assert_close(compiled(torch.ones(50)), torch.full((50,), 5.0))
    assert calls == [(50,)]
    with pytest.raises(torch._dynamo.exc.Unsupported, match="probe_custom_operators"):
        symshape.compile(lambda x: counted(x + 1) + 1, fullgraph=True, probe_custom_operators=False)(torch.ones(5))
    with pytest.raises(OptionError, match="probe_custom_operators"):
        symshape.compile(counted, probe_custom_operators="no")


def test_a_dim_is_a_constant() -> None:
    @torch.library.custom_op("symshape_said::sum_of", mutates_args=())
    def sum_of(x: Tensor, dim: int) -> Tensor:
        return x.sum(dim)

    compiled = symshape.compile(lambda x, dim: sum_of(x * 2, dim) + 1, fullgraph=True)
    for sizes, dim in (((3, 5, 4, 6), 2), ((3, 5, 7, 6), 2), ((3, 5, 7, 6), 3), ((2, 5, 7, 9), -1)):
        x = torch.randn(sizes)
        torch.testing.assert_close(compiled(x, dim), sum_of(x * 2, dim) + 1)


def test_trying_leaves_no_trace() -> None:
    @torch.library.custom_op("symshape_said::untagged_noise", mutates_args=())
    def untagged_noise(x: Tensor) -> Tensor:
        return x + torch.rand(x.shape) + float(np.random.rand()) + random.random()

    def seed() -> None:
        torch.manual_seed(3)
        np.random.seed(3)
        random.seed(3)

    x = torch.ones(5)
    seed()
    eager, state = untagged_noise(x) * 2, torch.get_rng_state()
    seed()
    ours = symshape.compile(lambda x: untagged_noise(x) * 2)(x)
    torch.testing.assert_close(ours, eager)
    assert torch.equal(torch.get_rng_state(), state)


def test_in_jit() -> None:
    cases = {case.name: case for case in table.CASES}
    for name in ("at_most", "positive"):
        case = cases[name]
        compiled = symshape.jit(lambda *args, case=case: case.program(case.op, *args))
        for n in (5, 7):
            torch.testing.assert_close(compiled(*case.arguments(n)), case.program(case.op, *case.arguments(n)))
    noise = cases["noise"]
    with pytest.raises(symshape.errors.CompileError, match="draws random numbers(.|\n)*register_fake"):
        symshape.jit(lambda x: noise.program(noise.op, x))(*noise.arguments(5))


# --- gradients -------------------------------------------------------------------------------------------------------


def test_gradients_by_registered_formulas_of_operators_without_a_rule() -> None:
    @torch.library.custom_op("symshape_trained::kept", mutates_args=())
    def kept(x: Tensor, times: int) -> tuple[Tensor, Tensor]:
        return x[x > 0], x.repeat(times, 1)

    @torch.library.custom_op("symshape_trained::spread", mutates_args=())
    def spread(x: Tensor, gradient: Tensor) -> Tensor:
        result = torch.zeros_like(x)
        result[x > 0] = gradient
        return result

    def remember(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.times = inputs[1]

    def backward(ctx, of_kept, of_repeated):
        (x,) = ctx.saved_tensors
        return spread(x, of_kept) + of_repeated.reshape(ctx.times, *x.shape).sum(0), None

    kept.register_autograd(backward, setup_context=remember)

    def program(x):
        first, second = kept(x * 2, 3)
        return first.sin().sum() + (second * second).sum()

    compiled = symshape.compile(program, fullgraph=True)
    for n in (5, 7, 12, 2):
        x, y = (torch.linspace(-1, 2, n * 4).reshape(n, 4).requires_grad_() for _ in range(2))
        results = compiled(x), program(y)
        torch.testing.assert_close(*results)
        torch.testing.assert_close(*(torch.autograd.grad(r, t)[0] for r, t in zip(results, (x, y))))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_an_operator_of_a_gradient_that_cannot_be_tried_breaks_the_graph_in_front() -> None:
    @torch.library.custom_op("symshape_trained::forward", mutates_args=())
    def forward(x: Tensor) -> Tensor:
        return x * 2

    @torch.library.custom_op("symshape_trained::picky", mutates_args=())
    def picky(x: Tensor) -> Tensor:
        if x[0] != 2.25:
            raise ValueError("it has to begin with 2.25")
        return x * 2

    forward.register_autograd(lambda ctx, gradient: picky(gradient))
    compiled = symshape.compile(lambda x: forward(x + 1) * 1.5)
    for n in (5, 7):
        x = torch.ones(n, requires_grad=True)
        torch.testing.assert_close(torch.autograd.grad(compiled(x).sum() * 1.5, x)[0], torch.full((n,), 4.5))


@pytest.fixture
def differentiated_inside() -> Iterator[Any]:
    """Operators without a formula: of differentiable operators, without a rule and with one, and of memory alone."""
    library = torch.library.Library("symshape_inside", "DEF")
    for name in ("unruled", "ruled", "memory"):
        library.define(f"{name}(Tensor x) -> Tensor")
    library.impl("unruled", lambda x: torch.sin(x * 2), "CPU")
    library.impl("ruled", lambda x: torch.sin(x * 2), "CPU")
    library.impl("memory", lambda x: torch.from_numpy(x.detach().numpy() * 2), "CPU")
    torch.library.register_fake("symshape_inside::ruled", torch.empty_like, lib=library)
    yield torch.ops.symshape_inside
    library._destroy()


_INSIDE: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "plain": lambda op, x: op(x * 2) * x,
    "checkpoint": lambda op, x: checkpoint(lambda y: op(y.cos()) * 2, x, use_reentrant=False).cos(),
}
_WARNED = pytest.mark.filterwarnings("ignore:.*an autograd kernel was not registered:UserWarning")


@_WARNED
@pytest.mark.parametrize("name", ["unruled", "ruled", "memory"])
@pytest.mark.parametrize("program", _INSIDE)
def test_what_eager_mode_differentiates_inside_of_an_operator(
    differentiated_inside: Any, program: str, name: str
) -> None:
    operator = getattr(differentiated_inside, name)
    function = functools.partial(_INSIDE[program], operator)
    compiled = symshape.compile(function, fullgraph=True)
    for n in (5, 7, 1, 0):
        found = []
        for one in (compiled, function):
            x = torch.linspace(-1, 2, n, requires_grad=True)
            result = one(x)
            found.append((result, torch.autograd.grad(result.sum(), x, allow_unused=True)[0]))
        torch.testing.assert_close(*found)


@_WARNED
def test_jit_says_that_it_would_lose_a_gradient(differentiated_inside: Any) -> None:
    for name in ("unruled", "ruled"):
        operator = getattr(differentiated_inside, name)
        for function in (lambda x, op=operator: op(x) * 2, functools.partial(_INSIDE["checkpoint"], operator)):
            jitted = symshape.jit(function)
            with pytest.raises(CompileError, match=f"symshape_inside.{name}.default.* lose its gradient"):
                jitted(torch.ones(3, requires_grad=True))
            torch.testing.assert_close(jitted(torch.ones(3)), function(torch.ones(3)))
    of_memory = symshape.jit(lambda x: differentiated_inside.memory(x * 2) + x)
    x = torch.linspace(-1, 2, 5, requires_grad=True)
    torch.testing.assert_close(torch.autograd.grad(of_memory(x).sum(), x)[0], torch.ones(5))


@_WARNED
def test_torch_compile_keeps_a_gradient_inside_of_an_operator(differentiated_inside: Any) -> None:
    function = functools.partial(_INSIDE["plain"], differentiated_inside.ruled)
    compiled = torch.compile(function, backend="symshape", dynamic=True)
    for n in (5, 7):
        x = torch.linspace(-1, 2, n, requires_grad=True)
        torch.testing.assert_close(*(torch.autograd.grad(f(x).sum(), x)[0] for f in (compiled, function)))


def test_element_types_that_kernels_do_not_have() -> None:
    @torch.library.custom_op("symshape_tests::to_float8", mutates_args=())
    def to_float8(x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.float8_e4m3fn)

    def program(x: torch.Tensor) -> torch.Tensor:
        return to_float8(x).float() + 1

    compiled = symshape.compile(program)
    for rows in (3, 5):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(compiled(x), program(x))


@pytest.mark.filterwarnings("ignore:`create_unbacked_symint` is deprecated:FutureWarning")
@pytest.mark.parametrize("entry", [symshape.compile, symshape.jit])
def test_a_new_size_whose_rule_names_no_least_one(entry: Callable[..., Any]) -> None:
    """As torchvision's ``nms`` has it, of one box or none. The name is an older one, with a default of 2."""
    name = f"symshape_tests::found_{entry.__name__}"

    @torch.library.custom_op(name, mutates_args=())
    def found(x: torch.Tensor) -> torch.Tensor:
        return (x > 0).nonzero()[:, 0]

    @found.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return x.new_empty(torch.library.get_ctx().create_unbacked_symint(), dtype=torch.long)

    def program(x: torch.Tensor) -> torch.Tensor:
        kept = found(x) + 1
        return kept * 2 if kept.shape[0] > 1 else kept - 1

    for function in (lambda x: found(x) + 1, program) if entry is symshape.compile else (lambda x: found(x) + 1,):
        compiled = entry(function)
        for n in (5, 2, 1, 0):
            torch.testing.assert_close(compiled(torch.ones(n)), function(torch.ones(n)))
