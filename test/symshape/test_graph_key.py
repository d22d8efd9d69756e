"""The key of a graph in the cache, and the records that are stored under it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from symshape.cache import compiled_graphs as graph_cache
from symshape.cache.graph_key import graph_key
from symshape.cache.records import from_json, to_json
from symshape.errors import CacheError
from symshape.frontend.bridge.fake_tensors import shape_env_of
from symshape.frontend.bridge.trace_without_dynamo import Trace
from symshape.frontend.decompositions.integer_parameters import replaced
from symshape.frontend.decompositions.table import decomposition_table
from symshape.frontend.patches.patch import Scope
from symshape.frontend.patches.registry import in_force, splitting
from symshape.machine.instruction_sets import held
from symshape.options import Options
from symshape.prover.numbers.condition import all_of, any_of, at_least, differs, equals
from symshape.prover.numbers.expr import Expr, maximum

# --- records ----------------------------------------------------------------------------------------------------------


def test_records_keep_values_and_types() -> None:
    a, b = Expr.symbol("a"), Expr.symbol("b")
    expr = (3 * a + b * b - 4) // (b + 1) + 2 * (a % 8) + maximum(a, b + 3)
    condition = all_of(equals(a % 16, 0), any_of(at_least(b, 3), differs(a * b, 7)))
    words = {"x": b"\0\xff", 3: expr, None: "\u00e4"}
    value = (1, [2.5, float("inf"), None, (True,)], words, condition, Options(passes=("p",)))
    assert from_json(to_json(value)) == value
    for bad in (object(), torch.float32, {1}, torch.ones(1)):
        with pytest.raises(CacheError, match="is not plain data") as raised:
            to_json((1, {"a": [bad]}))
        assert raised.value.where == "[1]['a'][0]"
    for bad in (
        b'{"subprocess:Popen":[]}',
        b'{"symshape.cache.records:to_json":[]}',
        b'{"symshape.options:Options":[1]}',
    ):
        with pytest.raises(CacheError):
            from_json(bad)


# --- the key ----------------------------------------------------------------------------------------------------------


def _graphs(fn: Any, *inputs: Any) -> list[tuple[str, dict[str, str]]]:
    found = []

    def backend(gm: torch.fx.GraphModule, examples: list[Any]) -> Any:
        from torch._dynamo.backends.common import aot_autograd

        def compiler(graph: torch.fx.GraphModule, _inputs: Any) -> Any:
            key = graph_key(graph, shape_env_of(graph))
            found.append((key.digest, dict(key.symbols)))
            return graph

        return aot_autograd(fw_compiler=compiler)(gm, examples)

    torch._dynamo.reset()
    torch.compile(fn, backend=backend, dynamic=True)(*inputs)
    return found


def test_what_the_key_of_a_graph_depends_on() -> None:
    x, y = torch.randn(5, 7), torch.randn(7)

    def digest(fn: Any, *inputs: Any) -> str:
        ((found, _),) = _graphs(fn, *inputs)
        return found

    def usual(x: Any, y: Any) -> Any:
        return (x * 2 + y).sum(-1)

    def same(x: Any, y: Any) -> Any:
        z = x * 2  # other lines, other names
        return (z + y).sum(-1)

    def scale(x: Any, y: Any) -> Any:
        return (x * 3 + y).sum(-1)

    def guarded(x: Any, y: Any) -> Any:
        return (x * 2 + y).sum(-1) if x.size(0) % 5 == 0 else x

    def other_dim(x: Any, y: Any) -> Any:
        return (x * 2 + y).sum(0)

    first = digest(usual, x, y)
    assert digest(same, x, y) == first and digest(usual, torch.randn(9, 11), torch.randn(11)) == first
    others = [
        digest(scale, x, y),
        digest(guarded, x, y),
        digest(other_dim, x, y),
        digest(usual, x.double(), y),
        digest(usual, torch.randn(7, 5).t(), y),
        digest(usual, torch.randn(1, 7), y),
    ]
    assert len({first, *others}) == 1 + len(others)


def test_subgraphs_are_in_the_key() -> None:
    """Those of subgraphs too: the text of a graph only names them."""

    def nested(leaf: Any, depth: int) -> torch.fx.GraphModule:
        graph = torch.fx.Graph()
        x = graph.placeholder("x")
        x.meta["val"] = torch.empty(3)
        inner = {"inner": nested(leaf, depth - 1)} if depth else {}
        call = graph.call_function(leaf, (graph.get_attr("inner"), x) if depth else (x,))
        call.meta["val"] = torch.empty(3)
        graph.output(call)
        return torch.fx.GraphModule(inner, graph)

    def key(leaf: Any) -> str:
        graph = nested(torch.ops.aten.sin.default, 2)
        call = next(node for node in graph.inner.inner.graph.nodes if node.op == "call_function")
        call.target = leaf
        return graph_key(graph, None).digest

    assert key(torch.ops.aten.sin.default) == key(torch.ops.aten.sin.default) != key(torch.ops.aten.cos.default)


def test_what_a_users_operator_declares_is_in_the_key() -> None:
    """A process may define another operator of the same name: one whose result is a view, or that draws."""

    def key(schema: str, *tags: torch.Tag, effect: bool = False, within: bool = False) -> str:
        library = torch.library.Library("key_test", "FRAGMENT")
        try:
            library.define(f"op{schema}", tags=tags)
            op: Any = torch.ops.key_test.op.default
            if effect:
                library._register_effectful_op("key_test::op", torch._library.effects.EffectType.ORDERED)
            graph = torch.fx.Graph()
            x = graph.placeholder("x")
            x.meta["val"] = torch.empty(3)
            wrapped = torch.ops.higher_order.auto_functionalized
            call = graph.call_function(wrapped, (op,), {"x": x}) if within else graph.call_function(op, (x,))
            call.meta["val"] = torch.empty(3)
            graph.output(call)
            return graph_key(torch.fx.GraphModule({}, graph), None).digest
        finally:
            library._destroy()
            if hasattr(torch.ops.key_test, "op"):
                del torch.ops.key_test.op

    plain = "(Tensor x) -> Tensor"
    for within in (False, True):
        seeded = key(plain, torch.Tag.nondeterministic_seeded, within=within)
        view = key("(Tensor(a) x) -> Tensor(a)", within=within)
        written = key("(Tensor(a!) x) -> ()", within=within)
        assert key(plain, within=within) == key(plain, within=within)
        assert len({key(plain, within=within), seeded, view, written}) == 4
    assert key(plain, effect=True) != key(plain)


def test_symbols_of_other_numbers_are_the_same() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([x.flatten(), y.flatten()]) * 2

    def traced(taken: range) -> tuple[str, dict[str, str]]:
        trace, found = Trace(replaced), []
        trace.env.unique_ids.update(taken)  # what else the process traced before
        with in_force(Scope("frame")):
            x = trace.tensor(torch.empty(5, 7), "x", [(0, None)] * 2)
            inputs = [x, trace.tensor(torch.empty(3), "y", [(0, None)])]

        def compiler(graph: torch.fx.GraphModule, _inputs: Any) -> Any:
            found.append(graph_key(graph, trace.env))
            return graph

        kinds = dict.fromkeys(("forward", "backward", "inference"), compiler)
        how = {"joint": lambda graph: graph, "splitting": splitting, "decompositions": decomposition_table()}
        with in_force(Scope("jit")):
            trace.run(_Module(lambda x, y: (fn(x, y),)), inputs, parameters=(), **kinds, **how)
        (key,) = found
        return key.digest, dict(key.symbols)

    (first, names), (second, others) = traced(range(0)), traced(range(100))
    assert set(names).isdisjoint(others) and first == second
    assert list(names.values()) == ["v0", "v1", "v2"] == list(others.values())


class _Module(torch.nn.Module):
    def __init__(self, fn: Any) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: Any) -> Any:
        return self.fn(*args)


def test_versions_options_and_the_processor_are_in_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import llvmlite.binding as llvm

    gm = torch.fx.symbolic_trace(lambda x: x)
    file = tmp_path / "passes.py"
    file.write_text("# one")

    def key(kind: str = "forward", **options: Any) -> str:
        return graph_cache.entry_key(graph_key(gm, None), gm, Options(**{"cpu": "native", **options}), kind)

    keys = [
        key(),
        key("backward"),
        key(target="triton"),
        key(opt_level=1),
        key(disable_passes=("fuse-kernels",)),
        key(pass_files=(str(file),)),
    ]
    keys += [key(cpu=level) for level in held()]
    file.write_text("# two")
    keys.append(key(pass_files=(str(file),)))
    with monkeypatch.context() as patched:
        patched.setattr(llvm, "get_host_cpu_name", lambda: "another")
        keys.append(key())
    with monkeypatch.context() as patched:
        patched.setattr(graph_cache, "versions", lambda: {"symshape": "another"})
        keys.append(key())
    assert len(set(keys)) == len(keys) and key() == keys[0] == key(debug_dir="elsewhere")


def test_every_option_is_in_the_key_or_declared_not_to_be() -> None:
    """An option that is added changes the key by itself: an entry of another value of it is never taken."""
    gm = torch.fx.symbolic_trace(lambda x: x)
    other: dict[str, Any] = {
        "target": "cpu",
        "passes": ("cse",),
        "disable_passes": ("reuse-buffers",),
        "pass_options": (("unroll-reductions", "max-points=2"),),
        "opt_level": 3,
        "random": "fast",
    }
    assert set(Options().in_key()) == set(other)
    keys = [graph_cache.entry_key(graph_key(gm, None), gm, Options(), "forward")]
    for name, value in other.items():
        keys.append(graph_cache.entry_key(graph_key(gm, None), gm, Options(**{name: value}), "forward"))
    assert len(set(keys)) == len(keys)
