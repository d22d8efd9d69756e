"""Tracing that remembers what it computed with sizes is tracing all the same; and floats that are no arguments."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import symshape
from symshape import backend
from symshape.frontend.bridge import general_shape_env, size_memory, trace_without_dynamo
from symshape.frontend.bridge.size_memory import ATTRIBUTE, remember
from symshape.frontend.patches.patch import Scope
from symshape.frontend.patches.registry import in_force
from symshape.tools.zoo import MODELS


def _attention(x: torch.Tensor) -> torch.Tensor:
    heads = x.view(x.shape[0], x.shape[1], 2, -1).transpose(1, 2)
    mixed = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
    return mixed.transpose(1, 2).reshape(x.shape)


def _pooled(x: torch.Tensor) -> torch.Tensor:
    padded = torch.nn.functional.pad(x[:, None], (1, 2, 0, x.shape[0] % 3))
    return torch.nn.functional.avg_pool2d(padded, 2).flatten(1)


def _selected(x: torch.Tensor) -> torch.Tensor:
    rows = x[x[:, 0, 0] > 0]
    torch._check(rows.shape[0] <= x.shape[0])
    return torch.cat([rows, rows * 2]).sum(0) + x.repeat(2, 1, 1).mean(0)


def _branching(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] * x.shape[1] > 20 and x.shape[1] != x.shape[2]:
        return x.reshape(-1, x.shape[2]).softmax(0)
    return x.split(2)[0].unfold(1, 2, 1)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    fn.__name__: (fn, (torch.linspace(-1, 1, 4 * 6 * 8).view(4, 6, 8),))
    for fn in (_attention, _pooled, _selected, _branching)
}


def _traced(fn: Callable[..., Any], args: Any, kwargs: Any) -> list[tuple[Any, ...]]:
    """What the tracer hands on, for each graph: its IR, with guards, ranges and runtime assertions."""
    torch._dynamo.reset()
    report = symshape.explain(fn, *args, **kwargs)
    pinned = sorted(str(one) for one in report.specialisations)
    return [(graph.kind, graph.stages["imported"], pinned) for graph in report.graphs]


def _without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (backend, trace_without_dynamo, general_shape_env):
        monkeypatch.setattr(module, "remember", lambda env: None)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_graph_is_the_same_without_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fn, args = PROGRAMS[name]
    remembered = _traced(fn, args, {})
    with monkeypatch.context() as context:
        _without_memory(context)
        assert _traced(fn, args, {}) == remembered
    assert remembered


@pytest.mark.parametrize("name", ["bert", *(pytest.param(n, marks=pytest.mark.long) for n in MODELS if n != "bert")])
def test_a_model_is_the_same_without_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS[name]
    module, inputs = model.build("tiny"), model.inputs(model.tiny_shapes[0])
    remembered = _traced(module, (), inputs)
    with monkeypatch.context() as context:
        _without_memory(context)
        assert _traced(module, (), inputs) == remembered


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
    remember(env)
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
    remember(env)
    a, b = _sizes(env)
    with in_force(Scope("frame")):
        before = (a + b).node.expr
        assert bool(2 * a == b + 2)  # a guard, and from now on b is 2 * a - 2
        after = (a + b).node.expr
    assert len(before.free_symbols) == 2
    assert len(after.free_symbols) == 1 and after == env.replace(before)


def test_suppressed_guards_are_not_taken_for_guards() -> None:
    env: Any = ShapeEnv()
    remember(env)
    a, b = _sizes(env)
    with in_force(Scope("frame")):
        with env.suppress_guards():
            assert bool(a < b)
        assert not env.guards
        assert bool(a < b)
        assert len(env.guards) == 1


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


def test_an_environment_that_is_validated_has_no_memory() -> None:
    env: Any = ShapeEnv(should_record_events=True)
    size_memory.remember(env)
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
