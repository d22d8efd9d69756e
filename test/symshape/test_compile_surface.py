"""``symshape.compile`` has torch.compile's signature and habits, in every form."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

import symshape
from symshape.configured_backend import ConfiguredBackend
from symshape.errors import OptionError
from symshape.frontend.importer.assumptions import Assumptions
from symshape.options import Options


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing compiled, and no inputs remembered: the stances that wait for them keep those of each line of code."""
    monkeypatch.setattr(torch._dynamo.eval_frame, "_EXAMPLE_INPUTS", None)
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.linear(x).relu()


def double(x: torch.Tensor) -> torch.Tensor:
    """Twice x."""
    return x * 2


def graphs() -> int:
    return counters["stats"]["unique_graphs"]


# --- one backend for equal options -----------------------------------------------------------------------------------


def run_layers(compile: Callable[[Any], Any], training: bool) -> list[int]:
    """How many graphs are compiled for 12 and for 100 layers of one class, of which none runs in eager mode."""
    torch._dynamo.reset()
    counters.clear()
    layers = [Block() for _ in range(100)]
    compiled = [compile(layer) for layer in layers]
    found = []
    for number, sizes in ((12, (3, 7, 1)), (100, (5,))):
        for size in sizes:
            with torch.set_grad_enabled(training):
                x = y = torch.ones(size, 4)
                for layer, one in zip(layers[:number], compiled):
                    x, y = layer(x), one(y)
            torch.testing.assert_close(x, y)
            if training:
                y.sum().backward()
        assert counters["frames"]["total"] == counters["frames"]["ok"] == graphs()
        found.append(graphs())
    return found


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_layers_that_are_compiled_one_by_one_share_their_graphs(training: bool) -> None:
    usual = run_layers(lambda layer: torch.compile(layer, backend="aot_eager", dynamic=True), training)
    ours = run_layers(symshape.compile, training)
    assert len(ours) == len(usual) and all(one <= other for one, other in zip(ours, usual))
    if not training:
        assert run_layers(lambda layer: symshape.compile(layer, assume=["x.size(1) == 4"]), training) == ours


def backend_for(fn: Any = double, dynamic: bool | None = None, **options: Any) -> ConfiguredBackend:
    parsed = Options.parse(options)
    return ConfiguredBackend(parsed, Assumptions(parsed.assume, fn), dynamic)


def test_equal_options_are_equal_backends(tmp_path: Path) -> None:
    assert backend_for(assume=["x.size(0) < 9"]) == backend_for(assume=["x.size(0) < 9"])
    assert hash(backend_for(opt_level=1)) == hash(backend_for(opt_level=1))
    assert backend_for(dynamic=True) == backend_for(dynamic=None) != backend_for(dynamic=False)
    assert backend_for(assume=["x.size(0) < 9"]) != backend_for(assume=["x.size(0) < 8"])
    assert backend_for(assume=["x.size(0) < 9"]) != backend_for(lambda x: x, assume=["x.size(0) < 9"])
    assert backend_for() == backend_for(lambda y: y)
    assert backend_for(opt_level=1) != backend_for()
    file = tmp_path / "passes.py"
    file.write_text("")
    before = backend_for(pass_files=[str(file)])
    assert before == backend_for(pass_files=[str(file)])
    file.write_text("# another pass")
    assert before != backend_for(pass_files=[str(file)])


def test_explain_reports_all_graphs_however_often() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y + 1

    x = torch.ones(3)
    compiled = symshape.compile(broken)
    compiled(x)
    before = graphs()
    with torch._dynamo.config.patch(recompile_limit=2, accumulated_recompile_limit=3):
        for _ in range(5):
            report = symshape.explain(broken, x)
            assert len(report.graphs) == 2
            torch.testing.assert_close(report.result, broken(x))
        after = graphs()
        compiled(torch.ones(5))
        symshape.compile(broken)(torch.ones(7))
        assert before == 2 and graphs() == after  # what was compiled before is used still
        compiled(torch.ones(5, dtype=torch.float64))
        assert graphs() == after + 2  # and what explain compiled counts for no limit


# --- forms -----------------------------------------------------------------------------------------------------------


def test_decorators() -> None:
    class Scaled:
        factor = 3

        @symshape.compile
        def plain(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor

        @symshape.compile(fullgraph=True, assume=["x.size(0) <= 8"])
        def assumed(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.factor

        @staticmethod
        @symshape.compile()
        def static(x: torch.Tensor) -> torch.Tensor:
            return x - 1

    x = torch.ones(4)
    torch.testing.assert_close(Scaled().plain(x), x * 3)
    torch.testing.assert_close(Scaled().assumed(x), x + 3)
    torch.testing.assert_close(Scaled.static(x), x - 1)
    with pytest.raises(symshape.ShapeConstraintError):
        Scaled().assumed(torch.ones(9))
    compiled = symshape.compile(double)
    assert compiled.__name__ == "double" and compiled.__doc__ == "Twice x."
    assert inspect.signature(compiled) == inspect.signature(double)


def test_classes_methods_and_callables() -> None:
    @symshape.compile
    class Compiled(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 5

    class Callable_:
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x * 7

    x, block = torch.ones(3, 4), Block()
    torch.testing.assert_close(Compiled()(x), x * 5)
    torch.testing.assert_close(symshape.compile(Callable_())(x), x * 7)
    torch.testing.assert_close(symshape.compile(block.forward)(x), block(x))
    torch.testing.assert_close(symshape.compile(torch.nn.functional.gelu)(x), torch.nn.functional.gelu(x))
    torch.testing.assert_close(symshape.compile(symshape.compile(block))(x), block(x))
    inner = symshape.compile(double)
    torch.testing.assert_close(symshape.compile(lambda x: inner(x) + 1, fullgraph=True)(x), x * 2 + 1)


def pickled(model: Any) -> Any:
    return pickle.loads(pickle.dumps(model))


def saved(model: Any) -> Any:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("copied", [pickled, saved, copy.deepcopy, copy.copy])
def test_a_module_is_copied_and_pickled(copied: Callable[[Any], Any]) -> None:
    model = symshape.compile(Block(), assume=["x.size(1) == 4"] if copied in (pickled, copy.deepcopy) else [])
    x = torch.ones(3, 4)
    expected = model(x)
    other = copied(model)
    torch.testing.assert_close(other(x), expected)
    assert type(other) is type(model) and counters["frames"]["ok"] == graphs()
    if copied is not copy.copy:
        with torch.no_grad():
            other.linear.weight.zero_(), other.linear.bias.zero_()  # type: ignore[union-attr, operator]
        torch.testing.assert_close(other(x), x)
        torch.testing.assert_close(model(x), expected)


def test_a_module_shows_what_it_wraps() -> None:
    block, seen = Block(), []
    model = symshape.compile(block)
    assert list(model.state_dict()) == [f"_orig_mod.{name}" for name in block.state_dict()]
    model.load_state_dict(model.state_dict())
    assert model.linear is block.linear and [*model.parameters()] == [*block.parameters()]
    model.eval()
    assert not block.training
    block.register_forward_hook(lambda *_: seen.append("inner"))
    model.register_forward_hook(lambda *_: seen.append("outer"))
    model(torch.ones(2, 4))
    assert seen == ["inner", "outer"]
    assert model.get_compiler_config()["target"] == "auto"


def test_model_compile() -> None:
    block, x = Block(), torch.ones(3, 4)
    expected = block(x)
    block.compile(backend="symshape", dynamic=True)
    torch.testing.assert_close(block(x), expected)
    assert graphs() == 1


# --- torch.compiler --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stance", "compiled"),
    [
        ("default", 1),
        ("force_eager", 0),
        ("eager_on_recompile", 0),
        ("eager_then_compile", 1),
        ("aot_eager_then_compile", 2),  # the first of them is that of aot_eager
    ],
)
def test_stances(stance: Any, compiled: int) -> None:
    fn = symshape.compile(double)
    with torch.compiler.set_stance(stance):
        for size in (3, 5, 7):
            torch.testing.assert_close(fn(torch.ones(size)), torch.full((size,), 2.0))
        assert graphs() == compiled
    torch.testing.assert_close(fn(torch.ones(9)), torch.full((9,), 2.0))
    assert graphs() == max(compiled, 1)


def test_fail_on_recompile() -> None:
    fn = symshape.compile(double)
    fn(torch.ones(3))
    with torch.compiler.set_stance("fail_on_recompile"):
        fn(torch.ones(5))
        with pytest.raises(RuntimeError, match="Detected recompile"):
            fn(torch.ones(5, dtype=torch.float64))


def test_disable_allow_in_graph_and_explain() -> None:
    @torch.compiler.disable
    def outside(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if not torch.compiler.is_compiling() else x

    def inside(x: torch.Tensor) -> torch.Tensor:
        return x.sin() if torch.compiler.is_compiling() else x

    x = torch.ones(3)
    torch.testing.assert_close(symshape.compile(lambda x: outside(x * 2) * 3)(x), torch.full((3,), 9.0))
    torch.testing.assert_close(symshape.compile(inside)(x), x.sin())
    torch.compiler.allow_in_graph(double)
    torch.testing.assert_close(symshape.compile(lambda x: double(x) + 1, fullgraph=True)(x), torch.full((3,), 3.0))
    assert torch._dynamo.explain(symshape.compile(inside))(x).graph_count == 1
    assert symshape.compile(double, disable=True) is double


# --- arguments -------------------------------------------------------------------------------------------------------


def times_length(x: torch.Tensor, text: str) -> torch.Tensor:
    return x * len(text)


def test_tensors_without_memory() -> None:
    """No kernel is given one, before and after one graph is compiled for tensors with memory."""

    def scaled(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * 2, -1)

    def made() -> torch.Tensor:
        return torch.ones(3) * 2

    def is_fake(x: torch.Tensor | None, shape: tuple[int, ...]) -> bool:
        return isinstance(x, FakeTensor) and x.shape == shape

    for entry in (symshape.compile, symshape.jit):
        torch._dynamo.reset()
        fresh, compiled, maker = entry(scaled), entry(scaled), entry(made)
        torch.testing.assert_close(compiled(torch.ones(4, 3)), scaled(torch.ones(4, 3)))
        assert torch.equal(maker(), made())
        with FakeTensorMode():
            x = torch.ones(4, 6, requires_grad=True)
            assert is_fake(maker(), (3,)) and is_fake(compiled(x), (4, 6)) and is_fake(fresh(x), (4, 6))
            compiled(x).sum().backward()
            assert is_fake(x.grad, (4, 6))
            linear = torch.nn.Linear(6, 2)
        assert is_fake(compiled(x), (4, 6)) and is_fake(entry(linear)(x), (4, 2))
        torch.testing.assert_close(compiled(torch.ones(4, 6)), scaled(torch.ones(4, 6)))
        assert torch.equal(maker(), made())
    report = symshape.explain(scaled, x.detach())
    assert is_fake(report.result, (4, 6)) and report.graphs[0].kernels


@pytest.mark.parametrize(("dynamic", "expected"), [(None, 1), (True, 1), (False, 4)])
def test_dynamic(dynamic: bool | None, expected: int) -> None:
    fn = symshape.compile(lambda x, n: x * n, dynamic=dynamic)
    for size, n in ((3, 2), (4, 2), (5, 2), (5, 9)):
        torch.testing.assert_close(fn(torch.ones(size), n), torch.full((size,), float(n)))
    assert graphs() == expected


def test_recompile_limits() -> None:
    x = torch.ones(3)
    fn = symshape.compile(times_length, recompile_limit=2)
    for n in range(4):
        torch.testing.assert_close(fn(x, "a" * n), x * n)
    assert graphs() == 2
    torch._dynamo.reset()
    whole = symshape.compile(times_length, recompile_limit=1, fullgraph=True)
    whole(x, "a")
    with pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit):
        whole(x, "aa")
    torch._dynamo.reset()
    fn = symshape.compile(times_length)
    with torch._dynamo.config.patch(recompile_limit=1, fail_on_recompile_limit_hit=True):
        fn(x, "a")
        with pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit):
            fn(x, "aa")


def test_arguments_of_newer_versions() -> None:
    """Or an OptionError that says which version of PyTorch there is."""
    known = inspect.signature(torch.compile).parameters
    if "isolate_recompiles" not in known:
        with pytest.raises(OptionError, match="has no isolate_recompiles"):
            symshape.compile(double, isolate_recompiles=True)
        return
    x = torch.ones(3)
    for fn in [symshape.compile(times_length, recompile_limit=2, isolate_recompiles=True) for _ in range(2)]:
        for n in range(2):
            torch.testing.assert_close(fn(x, "a" * n), x * n)
    assert graphs() == 4


def test_guard_filter() -> None:
    fn = symshape.compile(double, options={"guard_filter_fn": lambda entries: [False for _ in entries], "opt_level": 1})
    for size in (3, 1):
        fn(torch.ones(size))
    assert graphs() == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"backend": "inductor"}, "no backend 'inductor'"),
        ({"backend": "nonsense"}, "no backend 'nonsense'"),
        ({"mode": "default", "options": {"target": "cpu"}}, "cannot be given together"),
        ({"mode": "nonsense"}, "unknown mode 'nonsense'"),
        ({"options": 3}, "options cannot be 3"),
        ({"options": {"nonsense": 1}}, "unknown option 'nonsense'"),
        ({"options": {"target": "cpu"}, "target": "cpu"}, "'target' is given twice"),
        ({"dynamic": 3}, "dynamic cannot be 3"),
        ({"dynamic": True, "shapes_spec": "any"}, "dynamic and shapes_spec"),
        ({"nonsense": 1}, "unknown option 'nonsense'"),
        ({"options": {3: 4}}, "unknown option 3"),
        ({"fullgraph": "no"}, "fullgraph cannot be 'no'"),
        ({"disable": "no"}, "disable cannot be 'no'"),
        ({"isolate_recompiles": 1}, "isolate_recompiles cannot be 1"),
        ({"recompile_limit": "few"}, "recompile_limit cannot be 'few'"),
        ({"recompile_limit": -1}, "recompile_limit cannot be -1"),
        ({"guard_filter_fn": 3}, "guard_filter_fn cannot be 3"),
        ({"stage": (([], "file"),)}, r"unknown stage \[\]"),
    ],
    ids=str,
)
def test_what_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        symshape.compile(double, **arguments)
    with pytest.raises(OptionError, match=words):
        symshape.compile(**arguments)(double)


def test_options_as_keywords_and_as_a_dictionary() -> None:
    for arguments in ({"options": {"opt_level": 1}}, {"opt_level": 1}, {"mode": "default", "opt_level": 1}):
        assert symshape.compile(double, backend="symshape", **arguments).get_compiler_config()["opt_level"] == 1


@pytest.mark.parametrize("value", [None, 3, "a", int, torch], ids=str)
def test_what_cannot_be_compiled(value: Any) -> None:
    refused = pytest.raises(OptionError, match="cannot be compiled\n  next: pass a function or a module")
    if value is not None:  # without a function it is a decorator
        with refused:
            symshape.compile(value)
    with refused:
        symshape.compile()(value)
    with refused:
        symshape.explain(value)
