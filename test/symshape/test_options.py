"""Options of a compile: an error names the valid choices, and each option has its effect."""

from __future__ import annotations

import ast
import shlex
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import symshape
from symshape.errors import CompileError, OptionError
from symshape.options import Options

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "drop_noop_views.py"
FAILING = ROOT / "test" / "tools" / "Inputs" / "failing_passes.py"
TOOLS = Path(sys.executable).parent


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def fn(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.softmax(x @ w, -1)
    return y.t() + 1, y.sum(0)


def inputs(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rows, 4), torch.randn(4, 6)


def run(**keywords: Any) -> Callable[..., Any]:
    """Compiled by name, and compared with eager at two sizes."""
    compiled = torch.compile(fn, backend="symshape", dynamic=True, **keywords)
    for rows in (5, 9):
        x, w = inputs(rows)
        torch.testing.assert_close(compiled(x, w), fn(x, w))
    return compiled


BAD_OPTIONS = [
    (
        {"tarket": "cpu"},
        r"unknown option 'tarket'\n  next: did you mean 'target'\? options: assume, autotune, cache, cpu, ",
    ),
    ({"target": "gpu"}, r"unknown target 'gpu'\n  next: targets: auto, cpu, triton"),
    ({"target": 3}, r"unknown target 3\n  next: targets: auto, cpu, triton"),
    ({"opt_level": 4}, r"opt_level cannot be 4\n  next: it is an integer from 0 to 3"),
    ({"opt_level": True}, r"opt_level cannot be True\n  next: it is an integer from 0 to 3"),
    ({"random": "slow"}, r"random cannot be 'slow'\n  next: values: eager, fast"),
    ({"debug_dir": 5}, r"debug_dir cannot be 5\n  next: it is the path of a folder"),
    ({"passes": "cse"}, r"passes cannot be 'cse'\n  next: it is a list of texts"),
    ({"passes": [3]}, r"passes cannot be \[3\]\n  next: it is a list of texts"),
    ({"pass_options": "fuse-kernels"}, r"pass_options cannot be 'fuse-kernels'\n  next: it maps passes to options"),
    ({"pass_options": {"fuse-kernels": 3}}, r"options of 'fuse-kernels' cannot be 3\n  next: they are a text such as"),
    (
        {"pass_options": {"fuse-kernel": "max-members=3"}},
        r"the pipeline has no pass 'fuse-kernel'\n  next: did you mean 'fuse-kernels'\? passes: simplify-constraints, ",
    ),
    ({"pass_options": {"my-pass": "n=3"}}, r"no pass 'my-pass'\n  next: a pass of `passes` takes its options there"),
    (
        {"pass_options": {"reuse-buffers": "max-writers=2"}, "disable_passes": ["reuse-buffers"]},
        r"'reuse-buffers' is in disable_passes, and pass_options says 'max-writers=2'",
    ),
]
BAD_PASSES = [
    ({"disable_passes": ["fuse"]}, r"no pass is called fuse\n  next: passes: .*fuse-kernels, .*lower-aten"),
    ({"passes": ["fuse"]}, r"no such pass or option: 'fuse'.*\n  next: .*fuse-kernels, .*lower-aten.*of mlir-opt"),
    ({"passes": ["lower-aten{never=1}"]}, r"pass 'lower-aten' has no option 'never'\n  next: its options: keep, only"),
    ({"pass_options": {"lower-aten": "never=1"}}, r"'lower-aten' has no option 'never'\n  next: its options: keep, "),
    ({"pass_options": {"fuse-kernels": {"max_members": "many"}}}, r"option 'max_members' cannot be 'many'"),
    (
        {"pass_options": {"fuse-kernels": "max-members=3 max_members=4"}},
        r"pass 'fuse-kernels': option 'max_members' is given twice",
    ),
    (
        {"disable_passes": ["lower-aten"], "passes": ["lower-aten{only=aten.exp.default}"]},
        r"lower-aten: in both disable_passes and passes\n  next: options=.\"pass_options\"",
    ),
    ({"pass_files": ["/no/such/file.py"]}, r"no Python file with passes at '/no/such/file.py'"),
]


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS, ids=str)
def test_a_bad_option_is_an_error_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Options.parse(options)
    with pytest.raises(OptionError, match=message):
        symshape.compile(fn, **options)
    with pytest.raises(OptionError, match=message):
        symshape.explain(fn, *inputs(3), options=options)


@pytest.mark.parametrize(("options", "message"), [*BAD_OPTIONS[:2], *BAD_PASSES], ids=str)
def test_torch_compile_shows_the_message(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        run(options=options)


def test_an_unknown_mode_lists_the_modes() -> None:
    message = r"unknown mode 'fast'\n  next: modes: default, reduce-overhead, max-autotune"
    with pytest.raises(OptionError, match=message):
        run(mode="fast")
    with pytest.raises(OptionError, match=message):
        symshape.compile(fn, mode="fast")


def test_modes_switch_options_on() -> None:
    switched = {
        "default": (False, False),
        "reduce-overhead": (False, True),
        "max-autotune": (True, True),
        "max-autotune-no-cudagraphs": (True, False),
    }
    for mode, options in switched.items():
        parsed = Options.parse(None, mode)
        assert (parsed.autotune, parsed.cuda_graphs) == options
    assert not Options.parse({"cuda_graphs": False}, "reduce-overhead").cuda_graphs
    assert Options.parse(None).pad_products


def test_reduce_overhead_says_nothing_on_a_cpu() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(mode="reduce-overhead")
    (graph,) = symshape.explain(fn, *inputs(4), options={"cuda_graphs": True}).graphs
    assert graph.cuda_graphs == ["runs as it is: CUDA graphs are for GPUs, and this is cpu"]
    (graph,) = symshape.explain(fn, *inputs(4)).graphs
    assert graph.cuda_graphs == []


@pytest.mark.parametrize("target", ["cpu", "triton"])
@pytest.mark.parametrize(
    "disabled",
    [[], ["lower-aten"], ["fuse-kernels"], ["lower-aten", "fuse-kernels"]],
    ids=lambda d: "+".join(d) or "none",
)
def test_passes_can_be_left_out(disabled: list[str], target: str) -> None:
    run(options={"disable_passes": disabled, "target": target})
    (graph,) = symshape.explain(fn, *inputs(4), options={"disable_passes": disabled}).graphs
    if "lower-aten" in disabled:
        assert not graph.kernels and {"aten.exp.default", "aten.permute.default"} <= set(graph.library_calls)
    else:
        # One kernel for the softmax and what reads it at its points, one for the sum over the other dim.
        assert graph.library_calls == ["aten.mm.default"]
        assert len(graph.kernels) > 2 if "fuse-kernels" in disabled else len(graph.kernels) == 2


def test_a_pass_of_a_file_runs() -> None:
    code = ast.parse(EXAMPLE.read_text())
    for node in [code, *(node for node in code.body if isinstance(node, ast.ClassDef))]:
        node.body = node.body[1:]  # without what explains it
    assert len([line for line in ast.unparse(code).splitlines() if line]) <= 25
    options = {"pass_files": [str(EXAMPLE)], "passes": ["drop-noop-views{limit=3}", "canonicalize", "func.func(cse)"]}
    run(options=options)
    (graph,) = symshape.explain(fn, *inputs(4), options={**options, "pass_files": [EXAMPLE]}).graphs
    assert "dropped" in graph.statistics["drop-noop-views"]


@pytest.mark.parametrize(
    ("options", "unrolled"),
    [(None, 1), ("max-points=2", 0), ({"max-points": 2}, 0), ({"max_points": 4}, 1), ("", 1)],
    ids=str,
)
def test_options_of_the_pipelines_passes(options: Any, unrolled: int) -> None:
    def row_sums(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(-1, 4).sum(-1) + 1

    given = {} if options is None else {"pass_options": {"unroll-reductions": options}}
    for rows in (0, 1, 5):
        x = torch.randn(rows, 4)
        report = symshape.explain(row_sums, x, options={**given, "strict": True, "cache": False})
        torch.testing.assert_close(report.result, row_sums(x))
        assert report.graphs[0].statistics["unroll-reductions"] == {"unrolled": unrolled}
    torch.testing.assert_close(symshape.jit(row_sums, options=given)(x), row_sums(x))


def test_options_of_passes_take_lists_and_switches() -> None:
    both = {"lower-aten": {"only": ("aten.exp.default", "aten.mm.default")}, "fuse-kernels": {"vertical": False}}
    run(options={"pass_options": both})
    (graph,) = symshape.explain(fn, *inputs(4), options={"pass_options": both}).graphs
    assert "aten.permute.default" in graph.library_calls
    # The order of a mapping is not a part of it: the same options are the same backend.
    assert Options.parse({"pass_options": both}) == Options.parse({"pass_options": dict(reversed(both.items()))})


LOGGED = """
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from symshape.passes.framework.base import Pass

with (Path(__file__).parent / "ran.txt").open("a") as log:
    log.write("x")


@dataclass(frozen=True)
class Logged(Pass):
    \"\"\"Counts what VALUE says.\"\"\"

    name: ClassVar[str] = "logged"
    statistics: ClassVar[dict[str, str]] = {"value": "of this version"}

    def run(self, module, context):
        self.count(context, value=1)
        return False
"""


def test_a_file_of_passes_is_run_once_for_each_text(tmp_path: Path) -> None:
    file = tmp_path / "logged.py"
    options = {"pass_files": [str(file)], "passes": ["logged"], "strict": True, "cache": False}
    for runs, value in enumerate((1, 2), start=1):
        file.write_text(LOGGED.replace("value=1", f"value={value}"))
        x = torch.randn(3, 4, requires_grad=True)
        report = symshape.explain(lambda x: x.sin().sum(0) * 2, x, options=options)
        assert len(report.graphs) == 2  # forward and backward
        assert [graph.statistics["logged"] for graph in report.graphs] == [{"value": value}] * 2
        assert (tmp_path / "ran.txt").read_text() == "x" * runs
    with pytest.raises(OptionError, match="no such pass or option: 'logged'"):  # it was the other compiles' alone
        run(options={"passes": ["logged"]})


def _failure(options: dict[str, Any]) -> str:
    with pytest.raises(Exception) as raised:
        run(options=options)
    return str(raised.value)


def _replay(text: str) -> subprocess.CompletedProcess[str]:
    """Runs the command that an error prints, in a shell's way."""
    command = next(line.strip() for line in text.splitlines() if line.strip().startswith("symshape-"))
    tool, *arguments = shlex.split(command)
    return subprocess.run([TOOLS / tool, *arguments], capture_output=True, text=True, check=False)


def test_a_failing_pass_names_op_and_line_and_is_replayed(tmp_path: Path) -> None:
    options = {"pass_files": [str(FAILING)], "passes": ["fail-at-op{text=fails}"], "debug_dir": str(tmp_path)}
    text = _failure(options)
    assert "pass 'fail-at-op' failed: 'func.func' op fails" in text
    done = _replay(text)
    assert done.returncode == 1
    assert "symshape-opt: error: pass 'fail-at-op' failed: 'func.func' op fails" in done.stderr


def test_a_crash_in_a_pass_is_replayed(tmp_path: Path) -> None:
    text = _failure({"pass_files": [str(FAILING)], "passes": ["crash"], "debug_dir": str(tmp_path)})
    assert "pass 'crash' failed: ZeroDivisionError: no pass should" in text
    done = _replay(text)
    assert done.returncode == 1 and "ZeroDivisionError: no pass should" in done.stderr


def test_the_ir_before_a_failure_shows_the_users_lines(tmp_path: Path) -> None:
    _failure({"pass_files": [str(FAILING)], "passes": ["fail-at-op"], "debug_dir": str(tmp_path)})
    (dump,) = tmp_path.glob("*.mlir")
    assert f'"{__file__}"' in dump.read_text()


@pytest.mark.parametrize("stage", ["kernel code", "program"])
def test_a_failure_after_the_passes_names_the_stage(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the failure is put in; what the command meets again is the IR, of which it prints what it can."""
    from symshape import compiler

    def fail(*args: Any, **kwargs: Any) -> None:
        raise KeyError("no such thing")

    monkeypatch.setattr(compiler, "build_kernels" if stage == "kernel code" else "emit_program", fail)
    text = _failure({"debug_dir": str(tmp_path)})
    assert f"StepFailure: stage '{stage}' failed: KeyError: 'no such thing'" in text
    done = _replay(text)
    assert done.returncode == 0
    assert ("llvm.func @kernel_0" if stage == "kernel code" else "def program(args):") in done.stdout


def test_a_device_without_code_is_a_clear_error() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    from symshape.compiler import choose_target

    with FakeTensorMode(), torch.device("xpu"):
        gm = make_fx(lambda x: x + 1)(torch.empty(3))
    with pytest.raises(
        CompileError, match=r"no code is generated for device xpu:0\n  at: tensor .*\n  next: move it to cpu"
    ):
        choose_target(gm, Options())


def test_tensors_without_elements_are_left_to_library_calls() -> None:
    compiled = symshape.compile(lambda a, x: ((a @ a.t()).relu(), x * 2), fullgraph=True)
    for n in (3, 5):
        x = torch.randn(n)
        result, doubled = compiled(torch.empty(n, 4, device="meta"), x)
        assert result.device.type == "meta" and result.shape == (n, n)
        torch.testing.assert_close(doubled, x * 2)


def test_cpu_code_for_a_gpu_is_a_clear_error() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    from symshape.compiler import choose_target

    with FakeTensorMode(), torch.device("cuda"):
        gm = make_fx(lambda x: x + 1)(torch.empty(3))
    assert choose_target(gm, Options()) == ("triton", "cuda:0")
    with pytest.raises(symshape.SymshapeError, match="target 'cpu' was asked for, but a tensor is on a GPU"):
        choose_target(gm, Options(target="cpu"))
    assert issubclass(CompileError, symshape.SymshapeError)
