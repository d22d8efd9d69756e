"""Fallbacks after a pass, a step of code generation or loading fails: results are eager's, and a warning is given.

One program is traced once, and compiled anew for each failure that is put in.
"""

from __future__ import annotations

import builtins
import importlib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch_mlir import ir

import symshape
from symshape import compiler, errors, fallbacks
from symshape.analysis import loop_form
from symshape.dialects.accessors import body_of, main_functions
from symshape.frontend.bridge.aot_autograd import aot_compile
from symshape.frontend.decompositions.table import decomposition_table
from symshape.frontend.graph_rewrites import joint_graph
from symshape.frontend.patches.patch import is_traced_by_our_rules
from symshape.frontend.patches.registry import splitting
from symshape.options import Options
from symshape.passes.framework import registry
from symshape.tools.report import GraphReport

PLANS = ("mix-reductions", "plan-reductions", "plan-tiles", "plan-index-width", "plan-alignment")  # for Triton only
# Where a step of code generation is looked up: what is put in its place there fails.
STEPS = {
    "import-graph": ("symshape.compiler", "import_graph", "cpu"),
    "emit-cpu": ("symshape.codegen.cpu.emit.kernel", "emit_cpu", "cpu"),
    "compile-cpu": ("symshape.codegen.cpu.objects.compile_objects", "compile_objects", "cpu"),
    "read-variants": ("symshape.codegen.build_kernels", "read_variants", "triton"),
    "emit-triton": ("symshape.codegen.triton.kernel", "emit_triton", "triton"),
    "program": ("symshape.compiler", "emit_program", "cpu"),
    "load": ("symshape.compiler", "load_program", "cpu"),
}


def program(x: torch.Tensor, w: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """A product, pointwise work, reductions, a mask, a scatter and a view: every pass has something to do."""
    hidden = torch.relu(x @ w + 1)
    mask = hidden > 0.5
    rows = F.softmax(hidden, -1)
    added = torch.zeros(x.shape[0], w.shape[1]).index_add(0, i, rows)
    found = hidden[mask] * 2
    return added.sum(0), found.sum(), torch.where(mask, hidden, rows).mean(), hidden.argmax(-1), x.t() + 1, found


def inputs(n: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(n)
    return (
        torch.randn(n, 6, generator=generator),
        torch.randn(6, 5, generator=generator),
        torch.randint(0, n, (n,), generator=generator),
    )


class Traced:
    """A function with its traced graph; ``compile`` decides what the next calls run."""

    def __init__(self, fn: Callable[..., Any], *example: Any) -> None:
        self.fn, self.graph, self.run = fn, torch.fx.GraphModule({}, torch.fx.Graph()), fn

        def keep(graph: torch.fx.GraphModule, _inputs: Any) -> Any:
            self.graph = graph

            def run(args: list[Any]) -> Any:
                return self.run(args)

            run._boxed_call = True  # type: ignore[attr-defined]
            return run

        def backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
            return aot_compile(
                gm,
                example_inputs,
                forward=keep,
                backward=keep,
                inference=keep,
                joint=lambda graph: graph,
                splitting=splitting,
                decompositions=decomposition_table(),
            )

        from symshape.frame_compiler import compile_with

        self.compiled = compile_with(fn, backend, fullgraph=True)
        self.run = None
        with pytest.raises(TypeError):
            self.compiled(*example)  # only traced: there is nothing to run yet

    def compile(self, **options: Any) -> GraphReport:
        made = compiler.compile_graph(self.graph, Options.parse(options), kind="inference")
        self.run = made.run
        return made.report

    def check(self, *sizes: int) -> None:
        for n in sizes:
            torch.testing.assert_close(self.compiled(*inputs(n)), self.fn(*inputs(n)))


@pytest.fixture(scope="module")
def traced() -> Iterator[Traced]:
    torch._dynamo.reset()
    yield Traced(program, *inputs(5))
    torch._dynamo.reset()


@pytest.fixture
def tolerant(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Failures are not errors, as for users; dumps go to the folder returned."""
    monkeypatch.setenv("SYMSHAPE_STRICT", "0")
    monkeypatch.chdir(tmp_path)
    fallbacks._said.clear()  # every failure is new again
    return tmp_path


def fails(*_args: Any, **_kwargs: Any) -> Any:
    raise KeyError("planted")


def expect(traced: Traced, step: str, **options: Any) -> GraphReport:
    """The graph is compiled with one warning that names the step, and is right at every size."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        report = traced.compile(**options)
        traced.check(5, 8, 2)  # sizes 0 and 1 are graphs of their own
    said = [str(one.message) for one in caught if one.category is errors.FallbackWarning]
    assert len(said) == 1 and "planted" in said[0] and "replay it with" in said[0]
    assert {one.step for one in report.fallbacks} == {step}
    assert all("planted" in one.reason and one.command for one in report.fallbacks)
    assert "fallback: " in str(report)
    with pytest.raises(errors.StepFailure, match="planted"):
        traced.compile(strict=True, **options)
    return report


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", registry.TABLE)
def test_a_pass_that_fails_is_left_out(
    name: str, traced: Traced, tolerant: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cls = registry.lookup(name)
    assert cls is not None
    monkeypatch.setattr(cls, "run", fails)
    report = expect(traced, name, target="triton" if name in PLANS else "cpu")
    assert bool(report.kernels) == (name not in ("lower-aten", "fuse-kernels"))


@pytest.mark.parametrize("strict", [False, True])
def test_invalid_ir_is_found_and_names_its_pass(
    strict: bool, traced: Traced, tolerant: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several passes come after the one that leaves it, and then it is verified for the first time."""
    cls = registry.lookup("inline-scans")
    assert cls is not None
    tried = []

    def spoil(self: Any, module: Any, context: Any) -> None:
        call = next(op for op in body_of(main_functions(module)[0]) if op.name == "host.call")
        call.attributes["arguments"] = ir.StringAttr.get("($77)")
        tried.append(call)

    monkeypatch.setattr(cls, "run", spoil)
    if strict:
        with pytest.raises(errors.StepFailure, match="inline-scans.*(?s:.*)replay it with"):
            traced.compile(strict=True)
    else:
        with pytest.warns(errors.FallbackWarning, match="inline-scans"):
            report = traced.compile()
        traced.check(5, 8, 2)
        assert {one.step for one in report.fallbacks} == {"inline-scans"} and report.kernels
    assert len(tried) == 2


@pytest.mark.parametrize("target", ["cpu", "triton"])
@pytest.mark.parametrize("step", (*loop_form.READING, *loop_form.FINISHING))
def test_a_step_of_every_kernel_fails(
    step: str, target: str, traced: Traced, tolerant: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = loop_form.READING if step in loop_form.READING else loop_form.FINISHING
    monkeypatch.setitem(table, step, fails)
    assert not expect(traced, step, target=target).kernels


@pytest.mark.parametrize("step", STEPS)
def test_a_step_of_code_generation_fails(
    step: str, traced: Traced, tolerant: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, name, target = STEPS[step]
    monkeypatch.setattr(importlib.import_module(module), name, fails)
    assert not expect(traced, step, target=target).kernels


def test_one_operation_fails_and_the_others_are_compiled(
    traced: Traced, tolerant: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule that fails, and a kernel that is not printed: what they compute is called, the rest has kernels."""
    from symshape.codegen.cpu.emit import kernel as emit
    from symshape.passes.lowering.lower_aten import rules

    whole = traced.compile()
    monkeypatch.setitem(rules(), "aten.index_add.default", fails)
    monkeypatch.setitem(rules(), "aten.relu.default", fails)
    report = expect(traced, "lower-aten")
    assert "aten.relu.default" in report.library_calls and report.kernels
    monkeypatch.undo()
    monkeypatch.setenv("SYMSHAPE_STRICT", "0")
    monkeypatch.chdir(tolerant)
    usual = emit.emit_cpu

    def emit_but_argmax(kernel: Any, *args: Any) -> str:
        text: str = usual(kernel, *args)
        if "argmax" in repr(kernel):
            raise KeyError("planted")
        return text

    monkeypatch.setattr(emit, "emit_cpu", emit_but_argmax)
    fallbacks._said.clear()  # every failure is new again
    report = expect(traced, "emit-cpu")
    assert "aten.argmax.default" in report.library_calls
    assert 0 < len(report.kernels) <= len(whole.kernels)


def test_one_kernel_that_does_not_compile_is_found(
    traced: Traced, tolerant: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from symshape.codegen.cpu.objects import compile_objects as jit

    usual = jit.compile_objects
    first = traced.compile().kernels[0]

    def compile_others(texts: Any, *args: Any) -> Any:
        if any(first.source == text for text in texts):
            raise errors.KernelError("planted")
        return usual(texts, *args)

    monkeypatch.setattr(jit, "compile_objects", compile_others)
    assert expect(traced, "compile-cpu").kernels


def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    mask = y > 0
    return (F.layer_norm(x, (8,)).exp()[mask] - y[mask]).square().mean()


@pytest.mark.parametrize("planted", ["mask-to-where", "fuse-kernels", "import-graph", "program"])
def test_training(planted: str, tolerant: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward and backward fall back alike; one that is compiled reads what the other has saved."""
    from symshape import backend

    if planted == "mask-to-where":
        monkeypatch.setattr(backend, "rewrite_masks", fails)
    elif planted == "fuse-kernels":
        cls: Any = registry.lookup(planted)
        monkeypatch.setattr(cls, "run", fails)
    else:
        usual, seen = getattr(compiler, STEPS[planted][1]), []

        def fails_at_first(*args: Any, **kwargs: Any) -> Any:
            seen.append(1)
            return usual(*args, **kwargs) if len(seen) > 1 else fails()

        monkeypatch.setattr(compiler, STEPS[planted][1], fails_at_first)
    torch._dynamo.reset()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compiled = symshape.compile(loss)
        for n in (4, 7, 3):
            x, y = torch.randn(n, 8, requires_grad=True), torch.randn(n, 8)
            ours = torch.autograd.grad(compiled(x, y), x)
            torch.testing.assert_close(ours, torch.autograd.grad(loss(x, y), x))
    assert sum(one.category is errors.FallbackWarning for one in caught) == 1
    torch._dynamo.reset()


def test_a_function_that_aotautograd_cannot_trace_runs_in_eager_mode(
    tolerant: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from symshape import backend

    monkeypatch.setattr(backend, "aot_compile", fails)
    torch._dynamo.reset()
    with pytest.warns(errors.FallbackWarning, match="the graph is run in eager mode, .*planted"):
        report = symshape.explain(loss, torch.randn(4, 8, requires_grad=True), torch.randn(4, 8))
    report.result.backward()
    assert report.totals()["fallbacks"] == 1 and report.graphs[0].kind == "eager"
    with pytest.raises(Exception, match="planted"):
        symshape.compile(loss, strict=True)(torch.randn(4, 8), torch.randn(4, 8))
    torch._dynamo.reset()


def plain(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    compiled: Callable[..., Any] = torch.compile(function, backend="symshape", dynamic=True, options=options)
    return compiled


@pytest.mark.parametrize("compile_", (symshape.compile, plain))
@pytest.mark.parametrize("is_told", (True, False), ids=("dynamo tells", "after a reset"))
@pytest.mark.parametrize("name", ["run_numbered", "with_lists"])
def test_a_rule_of_ours_that_fails_while_dynamo_traces(
    name: str, is_told: bool, compile_: Any, tolerant: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The frame is traced again by PyTorch's own rules, with or without plain frames before it."""
    from symshape.frontend.opaque_calls import selection

    torch._dynamo.reset()
    if is_told:
        plain(torch.neg)(torch.ones(2))
    monkeypatch.setattr(selection, name, fails)
    compiled = compile_(loss)
    with pytest.warns(errors.FallbackWarning, match="traced by PyTorch's own rules"):
        for rows in (4, 7, 1):
            x, y = torch.randn(rows, 8), torch.randn(rows, 8)
            torch.testing.assert_close(compiled(x, y), loss(x, y))
    with pytest.raises(Exception, match="planted"):
        compile_(loss, strict=True)(x, y)
    assert not is_traced_by_our_rules()
    torch._dynamo.reset()


@pytest.mark.parametrize("compile_", (symshape.compile, plain))
@pytest.mark.parametrize("kind", (KeyError, IndexError, AssertionError, RuntimeError))
def test_a_fake_rule_of_ours_that_fails(
    kind: type[Exception], compile_: Any, tolerant: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it raises, and after a part of the function that is broken off."""
    from symshape.frontend.patches.python import number_in_list

    def planted(*_: Any) -> Any:
        raise kind("planted")

    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        torch._dynamo.graph_break()
        return y.sum() if 3 in x.shape else y * 2

    torch._dynamo.reset()
    plain(torch.neg)(torch.ones(2))
    named = {"__name__": "symshape.planted", "__builtins__": builtins}
    function = FunctionType(planted.__code__, named, closure=planted.__closure__)
    monkeypatch.setattr(number_in_list, "_is_asked", function)
    compiled = compile_(broken)
    with pytest.warns(errors.FallbackWarning, match="traced by PyTorch's own rules"):
        torch.testing.assert_close(compiled(torch.ones(4, 2)), broken(torch.ones(4, 2)))
    torch._dynamo.reset()


def test_an_error_of_the_call_is_no_reason_for_other_rules(tolerant: Path, recwarn: pytest.WarningsRecorder) -> None:
    torch._dynamo.reset()
    plain(torch.neg)(torch.ones(2))
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        plain(torch.matmul)(torch.randn(2, 3), torch.randn(4, 5))
    assert not [one for one in recwarn if one.category is errors.FallbackWarning]
    torch._dynamo.reset()


def test_explain_counts_fallbacks(tolerant: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cls: Any = registry.lookup("reuse-buffers")
    monkeypatch.setattr(cls, "run", fails)
    torch._dynamo.reset()
    with pytest.warns(errors.FallbackWarning, match="reuse-buffers"):
        report = symshape.explain(lambda x: x.exp().sum(0) / 2, torch.randn(5, 6))
    assert report.totals()["fallbacks"] == 1
    assert report.graphs[0].fallbacks[0].action == "the graph was compiled without the pass reuse-buffers"
    torch._dynamo.reset()


def test_a_users_error_is_none_of_ours(traced: Traced, tolerant: Path) -> None:
    with pytest.raises(errors.OptionError, match="no pass is called"):
        traced.compile(disable_passes=["no-such-pass"])
    with pytest.raises(errors.OptionError, match="strict cannot be"):
        traced.compile(strict="yes")


def test_ranks_fall_back_alike(traced: Traced, tolerant: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With several ranks what the graph decides falls back as ever; what one rank's machine decides is an error."""
    monkeypatch.setattr(fallbacks, "several_ranks", lambda: True)
    cls: Any = registry.lookup("reuse-buffers")
    monkeypatch.setattr(cls, "run", fails)
    expect(traced, "reuse-buffers")

    def full(*_: Any) -> Any:
        raise OSError("no space left on device")

    monkeypatch.setattr(cls, "run", full)
    with pytest.raises(errors.StepFailure, match="no space left"):
        traced.compile()
    monkeypatch.undo()
    monkeypatch.setattr(fallbacks, "several_ranks", lambda: True)
    monkeypatch.setattr(compiler, "load_program", fails)
    with pytest.raises(errors.StepFailure, match="planted"):
        traced.compile(strict=False)


def test_jit_falls_back_and_its_guards_hold(tolerant: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def halves(x: torch.Tensor) -> torch.Tensor:
        return x.exp() * 2 if x.shape[0] % 2 == 0 else x.sum(0)

    monkeypatch.setattr(compiler, "emit_program", fails)
    compiled = symshape.jit(halves)
    with pytest.warns(errors.FallbackWarning, match="run as library calls"):
        for n in (4, 6, 5, 3, 8):
            x = torch.randn(n, 3)
            torch.testing.assert_close(compiled(x), halves(x))
    assert len(compiled.entries) == 2


def test_a_graph_whose_inputs_show_no_symbol_runs_as_calls(tolerant: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient of EmbeddingBag gets sizes such as ``(a * b + a - 1) // a`` alone, in jit, if it is not given the
    symbols too."""
    monkeypatch.setattr(joint_graph, "keep_symbols", lambda joint: None)
    layer = torch.nn.EmbeddingBag(10, 4)
    compiled = symshape.jit(layer)
    with pytest.warns(errors.FallbackWarning, match="cannot be read from any input"):
        for rows in (3, 2, 7):
            x = torch.randint(0, 10, (rows, 5))
            expected = torch.autograd.grad(layer(x).sum(), layer.weight)
            torch.testing.assert_close(torch.autograd.grad(compiled(x).sum(), layer.weight), expected)


def test_what_the_user_said_is_checked_all_the_same(tolerant: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An assumption that does not hold, a file of passes that cannot be run: errors, whatever else fails."""
    from symshape import backend

    monkeypatch.setattr(backend, "aot_compile", fails)
    torch._dynamo.reset()

    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    with pytest.raises(errors.ShapeConstraintError, match="does not hold"):
        symshape.compile(double, assume=["x.size(0) % 4 == 0"])(torch.randn(6))
    monkeypatch.undo()
    monkeypatch.setenv("SYMSHAPE_STRICT", "0")
    (tolerant / "bad.py").write_text("import no_such_module")
    with pytest.raises(errors.OptionError, match="cannot be run: ModuleNotFoundError"):
        symshape.compile(double, pass_files=[str(tolerant / "bad.py")])(torch.randn(6))
    torch._dynamo.reset()


def test_a_check_in_jit_is_never_left_out(tolerant: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def some(x: torch.Tensor) -> torch.Tensor:
        found = x.nonzero()
        torch._check(found.size(0) >= 3)
        return found * 2

    monkeypatch.setattr(compiler, "emit_program", fails)
    with pytest.raises(errors.SymshapeError):
        symshape.jit(some)(torch.tensor([1.0, 0.0, 0.0]))
