"""Caches of symbolic arithmetic while tracing, and when they are cleared; floats that are not arguments.

That what is traced is the same is tested by ``test/programs/test_fast_tracing.py``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
from sympy.core.cache import clear_cache
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv, guard_or_false
from torch.utils._sympy.functions import FloorDiv, Max, Min

import symshape
from symshape import backend
from symshape.frontend.bridge import general_shape_env, size_cache
from symshape.frontend.bridge.general_shape_env import GeneralShapeEnv
from symshape.frontend.bridge.size_cache import ATTRIBUTE, start_caching
from symshape.frontend.patches.patch import Scope
from symshape.frontend.patches.registry import in_force


def _sizes(env: Any) -> tuple[torch.SymInt, torch.SymInt]:
    """Two sizes of 4 and 6, of symbols of their own."""
    from torch._dynamo.source import ConstantSource
    from torch.fx.experimental.symbolic_shapes import DimDynamic

    made = []
    for value, name in ((4, "a"), (6, "b")):
        symbol = env.create_symbol(value, ConstantSource(name), dynamic_dim=DimDynamic.DYNAMIC)
        made.append(env.create_symintnode(symbol, hint=value, source=ConstantSource(name)))
    return made[0], made[1]


def test_results_are_new_nodes_of_the_same_expression() -> None:
    env: Any = ShapeEnv()
    start_caching(env)
    a, b = _sizes(env)
    with in_force(Scope("frame")):
        first, second = a * 2 + b, a * 2 + b
        assert first.node is not second.node
        assert first.node.expr == second.node.expr and first.node.hint == second.node.hint == 14
        assert (a < b).node.pytype is bool and bool(a < b) and bool(a < b)
        assert len(env.guards) == 1


def test_a_replaced_symbol_is_forgotten() -> None:
    """What is computed after two sizes were found to be equal is computed with one symbol."""
    env: Any = ShapeEnv()
    start_caching(env)
    a, b = _sizes(env)
    with in_force(Scope("frame")):
        before = (a + b).node.expr
        assert bool(2 * a == b + 2)  # a guard, and from now on b is 2 * a - 2
        after = (a + b).node.expr
    assert len(before.free_symbols) == 2
    assert len(after.free_symbols) == 1 and after == env.replace(before)


def test_suppressed_guards_are_not_taken_for_guards() -> None:
    env: Any = ShapeEnv()
    start_caching(env)
    a, b = _sizes(env)
    with in_force(Scope("frame")):
        with env.suppress_guards():
            assert bool(a < b)
        assert not env.guards
        assert bool(a < b)
        assert len(env.guards) == 1


def test_an_answer_without_a_guard_ends_with_a_guard_of_the_other_answer() -> None:
    env: Any = GeneralShapeEnv()
    a, _ = _sizes(env)
    with in_force(Scope("frame")):
        quotient = a // 4
        assert not guard_or_false(quotient == 1)  # as for larger sizes
        with env.suppress_guards():
            assert bool(quotient == 1)
        assert not guard_or_false(quotient == 1) and not env.guards
        assert bool(quotient == 1) and len(env.guards) == 1
        assert guard_or_false(quotient == 1) and not guard_or_false(quotient != 1)
        assert len(env.guards) == 1


def test_the_environment_is_not_asked_what_larger_sizes_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """An order of strides that the hints have too is that of larger sizes: what is known of them says no other."""
    env: Any = GeneralShapeEnv()
    a, b = _sizes(env)
    asked: list[Any] = []
    usual = GeneralShapeEnv._maybe_evaluate_static
    monkeypatch.setattr(env, "_maybe_evaluate_static", lambda expr: asked.append(expr) or usual(env, expr))
    monkeypatch.setattr(general_shape_env, "_layout_function", lambda: "ge")
    larger, either = (a * b * 3 >= a).node.expr, (a * 3 >= b).node.expr
    assert env._general_answer(larger, False) is True and not asked
    assert env._general_answer(either, False) is not True and asked == [either]


def test_symbols_of_an_expression_are_a_set_of_its_own() -> None:
    a, b = sympy.symbols("a b", integer=True)
    with in_force(Scope("graph")):
        expr = (a + 3) // (2 * b) + a**2
        expr.free_symbols.clear()
        assert expr.free_symbols == {a, b} and (expr - expr).free_symbols == set()
        assert sympy.Sum(a, (a, 1, b)).free_symbols == {b}
    assert expr.free_symbols == {a, b}


def test_common_factors_are_divided_out_without_simplify(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = sympy.symbols("a b", integer=True, positive=True)
    cases = [
        (4 * Max(a, b) + 2 * Min(a, 7), 6, "(2*Max(a, b) + Min(7, a))//3"),
        (6 * a * Max(a, b), 4 * a, "(3*Max(a, b))//2"),
        (a * b + a * Min(a, b), 3 * a, "(b + Min(a, b))//3"),
        (4 * FloorDiv(a, 16) + 4, FloorDiv(a, 16) + 1, "4"),
        (4 * a + 2, a + 3, "(4*a + 2)//(a + 3)"),
    ]
    clear_cache()  # sympy's of quotients
    with in_force(Scope("frame")), monkeypatch.context() as patched:
        patched.setattr(sympy, "simplify", lambda expr: pytest.fail(f"simplify({expr})"))
        found = [FloorDiv(base, sympy.sympify(divisor)) for base, divisor, _ in cases]
    for quotient, (base, divisor, text) in zip(found, cases, strict=True):
        assert str(quotient) in (text, f"({text})")
        for numbers in ({a: 5, b: 9}, {a: 40, b: 3}, {a: 1, b: 1}):
            wanted = int(base.subs(numbers)) // int(sympy.sympify(divisor).subs(numbers))
            assert int(quotient.subs(numbers)) == wanted


def test_another_thread_has_no_memory() -> None:
    """It traces for somebody else while a frame of ours is compiled."""
    found: list[Any] = []

    def trace() -> None:
        graph = make_fx(lambda x: x.view(-1, 2) * x.shape[0], tracing_mode="symbolic")(torch.randn(4, 6))
        (node,) = [node for node in graph.graph.nodes if node.op == "placeholder"]
        found.append(node.meta["val"].shape[0].node.shape_env)

    with in_force(Scope("frame")):
        thread = threading.Thread(target=trace)
        thread.start()
        thread.join()
    assert found and not hasattr(found[0], ATTRIBUTE)


def _norm(x: torch.Tensor) -> torch.Tensor:
    images = torch.nn.functional.batch_norm(x[:, None], torch.zeros(1), torch.ones(1), torch.ones(1), torch.zeros(1))
    return images.transpose(1, 2).reshape(x.shape[0], -1)[1:].contiguous() * x.shape[1]


def test_another_thread_traces_as_ever() -> None:
    """Graphs with every size node, by PyTorch's own rules."""
    found: list[str] = []

    def trace() -> None:
        functional = torch.func.functionalize(_norm)
        found.append(make_fx(functional, tracing_mode="symbolic")(torch.randn(4, 6, 8)).code)

    trace()
    with in_force(Scope("frame")), in_force(Scope("graph")):
        thread = threading.Thread(target=trace)
        thread.start()
        thread.join()
    assert found[0] == found[1]


def test_logs_that_are_read_have_the_graphs(caplog: pytest.LogCaptureFixture) -> None:
    """Of forward and backward, which nobody prints otherwise."""
    x = torch.randn(4, 6, requires_grad=True)

    def texts() -> str:
        caplog.clear()
        torch._dynamo.reset()
        symshape.compile(lambda x: (x.sin() * x).sum())(x).backward()
        return caplog.text

    caplog.set_level(logging.WARNING, "torch._functorch._aot_autograd.graph_compile")
    assert "Joint graph" not in texts()
    caplog.set_level(logging.INFO, "torch._functorch._aot_autograd.graph_compile")
    found = texts()
    assert "Joint graph" in found and "Forward graph" in found and "Backward graph" in found


def test_a_wrapper_has_the_memory_of_what_it_wraps() -> None:
    """Of a view: that of its base."""
    seen: list[tuple[Any, Any]] = []

    def inspect(x: Any) -> Any:
        seen.append((x.untyped_storage().size(), x.elem.untyped_storage().size()))
        return x

    env: Any = ShapeEnv()
    start_caching(env)
    with in_force(Scope("frame")), FakeTensorMode(shape_env=env) as fake, FunctionalTensorMode():
        x = FunctionalTensor.to_functional(fake.from_tensor(torch.randn(4, 6), static_shapes=False))
        for y in (x, x + 1, x.t(), (x * 2)[1:], x.view(-1)):
            inspect(y)
    assert all(str(ours) == str(inner) for ours, inner in seen) and len({str(size) for size, _ in seen}) == 1


def test_an_environment_that_is_validated_has_no_memory() -> None:
    env: Any = ShapeEnv(should_record_events=True)
    size_cache.start_caching(env)
    assert not hasattr(env, ATTRIBUTE)


# --- floats ----------------------------------------------------------------------------------------------------------


class _Scaled(torch.nn.Module):
    def __init__(self, by: float) -> None:
        super().__init__()
        self.by, self.norm = by, torch.nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x) * self.by


def _attempts(run: Callable[[], Any]) -> int:
    """How often Dynamo analysed a frame while ``run`` ran."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    seen: list[int] = []
    usual = torch._dynamo.convert_frame.trace_frame

    def trace_frame(*args: Any, **kwargs: Any) -> Any:
        seen.append(1)
        return usual(*args, **kwargs)

    torch._dynamo.convert_frame.trace_frame = trace_frame
    try:
        run()
    finally:
        torch._dynamo.convert_frame.trace_frame = usual
    return len(seen)


def test_a_model_is_analysed_once() -> None:
    module, x = _Scaled(0.5), torch.randn(3, 8)
    compiled = symshape.compile(module)
    assert _attempts(lambda: compiled(x)) == 1
    torch.testing.assert_close(compiled(x), module(x))


SCALE = 0.25


def test_a_float_that_changes() -> None:
    """Of a module, of the globals, of a closure: the result is that of the value at the call, and the graphs do not
    grow with the values."""
    global SCALE
    by = 0.5

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * by + x * SCALE + module(x)

    module, x, graphs = _Scaled(0.5), torch.randn(3, 8), []

    def counting(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        graphs.append(gm)
        return backend.symshape_backend(gm, inputs)

    from symshape.frame_compiler import compile_with

    torch._dynamo.reset()
    compiled = compile_with(fn, counting)
    try:
        for value in (0.5, 0.125, 1.5, 0.75, 2.25, 3.5):
            module.by = value
            torch.testing.assert_close(compiled(x), fn(x))
        for value in (0.625, 1.25, 1.75):
            SCALE = by = value
            torch.testing.assert_close(compiled(x), fn(x))
    finally:
        SCALE = 0.25
    assert 1 < len(graphs) <= 4, "one more for each of the three floats"


_LARGE = 2**64


def _compared(x: torch.Tensor) -> torch.Tensor:
    n = x.shape[0]
    return x + 1 if n < _LARGE and n != _LARGE and n > -_LARGE and n * _LARGE > 5 else x - 1


def _checked(x: torch.Tensor) -> torch.Tensor:
    found = x.nonzero()
    torch._check(found.shape[0] < _LARGE)
    return found * 2


def _computed(x: torch.Tensor) -> torch.Tensor:
    return x[: (x.shape[0] * _LARGE) // _LARGE - 1] + x.shape[0] % _LARGE


def _known_remainder(x: torch.Tensor) -> torch.Tensor:
    """With a guard that is not written in IR: Dynamo checks it."""
    return x + 1 if x.shape[0] % _LARGE == x.shape[0] else x - 1


@pytest.mark.parametrize(
    ("entry", "function"),
    [
        *(
            (entry, function)
            for entry in (symshape.compile, symshape.jit)
            for function in (_compared, _checked, _computed)
        ),
        (symshape.compile, _known_remainder),
    ],
)
def test_numbers_of_more_than_64_bits(entry: Callable[..., Any], function: Callable[..., Any]) -> None:
    torch._dynamo.reset()
    compiled = entry(function)
    for n in (3, 5, 2, 1):
        x = torch.arange(4.0 * n).reshape(n, 4)
        torch.testing.assert_close(compiled(x), function(x), rtol=0, atol=0)


def _by_capacity(x: torch.Tensor) -> torch.Tensor:
    """A mixture of experts': only products and maxima of the capacity are saved for backward."""
    n = x.shape[0]
    capacity = max(1, int(n * 1.25 / 4))
    return torch.einsum("nec,nd->ecd", torch.full((n, 5, capacity), 0.5), x)


def _by_square(x: torch.Tensor) -> torch.Tensor:
    k = round(x.shape[0] * 0.3) + 1
    return (x[:, None] * x.new_ones(k * k, 1)).exp().sum(1)


@pytest.mark.parametrize("function", [_by_capacity, _by_square])
@pytest.mark.parametrize("entry", [symshape.compile, symshape.jit])
def test_gradients_need_sizes_that_are_computed_by_floats(
    entry: Callable[..., Any], function: Callable[..., Any]
) -> None:
    torch._dynamo.reset()
    compiled = entry(function)
    for n in (5, 3, 20, 7, 1):
        x = torch.randn(n, 4)
        mine, eagers = x.clone().requires_grad_(), x.clone().requires_grad_()
        actual, expected = compiled(mine), function(eagers)
        torch.testing.assert_close(actual, expected)
        actual.square().sum().backward()
        expected.square().sum().backward()
        torch.testing.assert_close(mine.grad, eagers.grad)


class _KeepsFloat(torch.autograd.Function):
    """Keeps a float for backward, and reads another one there alone."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, k: float) -> torch.Tensor:
        ctx.k = k
        ctx.save_for_backward(x)
        return x.sin() * k

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (x,) = ctx.saved_tensors
        return gradients[0] * x.cos() * ctx.k * SCALE, None


def test_floats_of_an_autograd_function() -> None:
    """They are arguments of the graph: another value needs no other graph."""

    def program(x: torch.Tensor, k: float) -> torch.Tensor:
        return _KeepsFloat.apply(x, k) + _KeepsFloat.apply(x, k * 2)  # type: ignore[no-untyped-call, no-any-return]

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = symshape.compile(program)
    for n, k in ((3, 0.5), (5, 1.5), (2, 2.5), (7, -3.5)):
        x = torch.randn(n, 4)
        mine, eagers = x.clone().requires_grad_(), x.clone().requires_grad_()
        actual, expected = compiled(mine, k), program(eagers, k)
        torch.testing.assert_close(actual, expected)
        actual.sum().backward()
        expected.sum().backward()
        torch.testing.assert_close(mine.grad, eagers.grad)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def _bits_of_sizes(x: torch.Tensor, k: int) -> list[torch.Tensor]:
    n = x.shape[0]
    made = x.new_zeros((n | 7) + 1), x[: n & ~1] + 1, x.new_zeros((n + 7) & -8)
    return [*made, torch.softmax(x, -1) * (n & 1) + (k & 3), x * (n ^ 5) - (k | 1), x * (n & x.shape[1]) + (k ^ n)]


@pytest.mark.parametrize("wrap", [symshape.compile, symshape.jit])
def test_bits_of_sizes(wrap: Callable[..., Any]) -> None:
    compiled = wrap(_bits_of_sizes)
    for n, k in ((3, 5), (4, -6), (0, 2), (13, -(2**40) - 1)):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x, k), _bits_of_sizes(x, k))


def test_only_bits_of_two_sizes_are_calls() -> None:
    (graph,) = symshape.explain(_bits_of_sizes, torch.randn(3, 4), 5).graphs
    assert set(graph.library_calls) == {"python._operator.and_", "python._operator.xor"}
