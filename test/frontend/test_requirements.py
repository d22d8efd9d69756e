"""One set of guards protects an entry: what lowering requires of inputs, in forward and in backward, reaches Dynamo."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import symshape
from symshape.errors import CompileError
from symshape.frame_compiler import compile_with
from symshape.frontend.bridge.aot_autograd import aot_compile
from symshape.frontend.bridge.fake_tensors import shape_env_of
from symshape.frontend.decompositions.table import decomposition_table
from symshape.frontend.graph_rewrites.joint_graph import ready_to_split
from symshape.frontend.importer.requirements import Requirements
from symshape.frontend.patches.registry import splitting
from symshape.passes.framework.base import PassContext
from symshape.prover.numbers.condition import all_of, any_of, at_least, differs, equals
from symshape.prover.numbers.expr import Expr, maximum
from symshape.tools.measure import Graphs

PASS = str(Path(__file__).parents[1] / "support" / "need_blocks.py")


def _fn(x: torch.Tensor) -> torch.Tensor:
    return (x.exp() * 2).sum()


def _gradient(fn: Callable[..., Any], size: int) -> torch.Tensor:
    x = torch.linspace(0, 1, size).requires_grad_()
    (gradient,) = torch.autograd.grad(fn(x), x)
    return gradient


def _compile(*passes: str, **options: Any) -> Any:
    return symshape.compile(_fn, pass_files=[PASS], passes=list(passes), **options)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


# --- a failure while backward is lowered -----------------------------------------------------------------------------


def test_a_failure_in_backward_is_raised_at_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    from symshape import backend

    original, kinds = backend.compile_traced, []

    def fails_in_backward(*args: Any, kind: str, **kwargs: Any) -> Any:
        kinds.append(kind)
        if kind == "backward":
            raise CompileError("planted")
        return original(*args, kind=kind, **kwargs)

    monkeypatch.setattr(backend, "compile_traced", fails_in_backward)
    with pytest.raises(Exception, match="CompileError: planted"):
        symshape.compile(_fn)(torch.randn(4, requires_grad=True))  # forward alone: backward is never called
    assert sorted(kinds) == ["backward", "forward"]


def test_a_requirement_that_the_first_input_breaks_is_an_error() -> None:
    with pytest.raises(Exception, match=r"requires `s\d+ % 2 == 0` of an input: need-blocks works in") as raised:
        _gradient(_compile("need-blocks{block=2}"), 5)
    assert "= 5" in str(raised.value)


# --- a requirement that arises only while backward is lowered --------------------------------------------------------


def test_what_backward_requires_guards_the_entry() -> None:
    compiled = _compile("need-blocks")
    with Graphs() as graphs:
        for size, known in ((8, 1), (12, 1), (6, 2), (4, 2), (10, 2), (7, 3), (9, 3), (16, 3)):
            torch.testing.assert_close(_gradient(compiled, size), _gradient(_fn, size))
            assert graphs.read().graphs == known, size


def test_sizes_that_no_entry_is_right_for_run_none() -> None:
    compiled = _compile("need-blocks{block=2}")
    torch.testing.assert_close(_gradient(compiled, 4), _gradient(_fn, 4))
    with pytest.raises(Exception, match="requires `"):
        _gradient(compiled, 7)
    torch.testing.assert_close(_gradient(compiled, 8), _gradient(_fn, 8))


def test_the_guard_says_why(capfd: pytest.CaptureFixture[str]) -> None:
    import torch._logging

    torch._logging.set_logs(guards=True)
    try:
        _gradient(_compile("need-blocks"), 4)
    finally:
        torch._logging.set_logs()
    lines = [
        line for line in capfd.readouterr().err.splitlines() if "symshape: need-blocks works in blocks of 4" in line
    ]
    assert any("L['x'].size()[0] % 4" in line for line in lines)


# --- what cannot become a guard --------------------------------------------------------------------------------------


def _while_compiling(act: Callable[[Requirements], Any], *, freeze: bool = False) -> Any:
    """What ``act`` returns, called while the backend compiles a graph of two sizes and a data-dependent one."""
    results = []

    def compiler(gm: torch.fx.GraphModule, _inputs: Any) -> Any:
        env = shape_env_of(gm)
        if freeze:
            env.freeze()
        results.append(act(Requirements(env)))
        return gm

    def backend(gm: Any, inputs: Any) -> Any:
        how: dict[str, Any] = dict.fromkeys(("forward", "backward", "inference"), compiler)
        how |= {"joint": ready_to_split(lambda g: g), "splitting": splitting}
        return aot_compile(gm, inputs, **how, decompositions=decomposition_table())

    compile_with(lambda x: x + x.nonzero().size(0), backend)(torch.randn(6, 4))
    return results[0]


def test_a_requirement_after_the_guards_were_made_is_an_error() -> None:
    def act(requirements: Requirements) -> str:
        name = next(name for name in requirements.symbols if name.startswith("s"))
        with pytest.raises(CompileError, match="the guards of the entry are complete"):
            requirements(equals(Expr.symbol(name) % 2, 0), "why")
        return "done"

    assert _while_compiling(act, freeze=True) == "done"


def test_a_requirement_of_a_data_dependent_size_is_an_error() -> None:
    def act(requirements: Requirements) -> str:
        name = next(name for name in requirements.symbols if name.startswith("u"))
        with pytest.raises(CompileError, match=f"{name} is no size of an input") as raised:
            requirements(at_least(Expr.symbol(name), 2), "why")
        return str(raised.value)

    assert "symshape.expect_true" in _while_compiling(act)


def test_a_pass_without_a_frontend_requires_nothing() -> None:
    with pytest.raises(CompileError, match="requires `s0 % 2 == 0`"):
        PassContext().require(equals(Expr.symbol("s0") % 2, 0), "why")


def test_every_form_of_condition_becomes_a_guard() -> None:
    def act(requirements: Requirements) -> list[str]:
        a, b = (Expr.symbol(name) for name in sorted(n for n in requirements.symbols if n.startswith("s")))
        before = len(requirements.env.guards)
        for condition in (
            equals((a + b) % 2, 0),
            differs(a, 7),
            at_least(a * b, 10),
            any_of(equals(a, 100), at_least(12, a + b)),
            all_of(at_least(maximum(a, b) // 2, 2), at_least(a - b, -20)),
        ):
            requirements(condition, "why")
        return [str(guard.expr) for guard in requirements.env.guards[before:]]

    assert len(_while_compiling(act)) == 5


def test_what_follows_from_guards_is_no_new_one() -> None:
    def act(requirements: Requirements) -> int:
        name = next(name for name in requirements.symbols if name.startswith("s"))
        before = len(requirements.env.guards)
        requirements(at_least(Expr.symbol(name), 0), "a size is not negative")
        return len(requirements.env.guards) - before

    assert _while_compiling(act) == 0
