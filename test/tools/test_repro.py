"""``TORCHDYNAMO_REPRO_AFTER``: a graph that fails becomes a file that fails in the same way, with dynamic sizes."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import symshape
from symshape.errors import AccuracyError, CompileError, OptionError, ShapeConstraintError
from symshape.frontend.bridge.fake_tensors import traced_env_of
from symshape.frontend.opaque_calls.frame_decisions import Reanalyse
from symshape.options import Options
from symshape.random_tensors import strided_tensor
from symshape.tools.reduce.comparison import differ, differ_beyond_rounding
from symshape.tools.repro import watch
from symshape.tools.repro.from_graph import Graph, read_graph, values_at
from symshape.tools.repro.minify import _fitted, minify
from symshape.tools.repro.problem import Argument, Problem, marked
from symshape.tools.repro.run import main, run
from symshape.tools.repro.source import GraphFailure, compiled_text, file_text

FAULTS = Path(__file__).parent / "Inputs" / "planted_faults.py"
OPTIONS = {"passes": ["planted-fault"], "pass_files": [str(FAULTS)], "strict": True, "cache": False}

MODEL = f"""
import sys
import torch
import symshape

options = {OPTIONS!r} | {{"strict": sys.argv[2] == "strict"}}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)

    def forward(self, x, y, n):
        hidden = torch.relu(self.first(x)) + y[: x.shape[0]]
        hidden = torch.softmax(hidden, -1) * 3.0
        return self.last(torch.sin(hidden) + hidden.cos()) + n, hidden.sum(0)


if sys.argv[1] == "symshape":
    compiled = symshape.compile(Model(), options=options)
else:
    compiled = torch.compile(Model(), backend="symshape", dynamic=True, options=options)
for n in (5, 8):
    a, b = compiled(torch.randn(n, 6), torch.randn(n + 2, 6), n)
    (a.sum() + b.sum()).backward()
print("ran")
"""


def _run(folder: Path, words: list[Any], planted: str = "", after: str = "", level: int = 2) -> tuple[int, str]:
    unset = ("TORCHDYNAMO_REPRO_AFTER", "TORCHDYNAMO_REPRO_LEVEL", "SYMSHAPE_STRICT")
    environment = {key: value for key, value in os.environ.items() if key not in unset}
    environment |= {"PLANTED": planted}
    environment |= {"TORCHDYNAMO_REPRO_AFTER": after, "TORCHDYNAMO_REPRO_LEVEL": str(level)} if after else {}
    done = subprocess.run(
        [sys.executable, *map(str, words)], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    return done.returncode, done.stdout + done.stderr


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("torch_compile_debug/*/minifier/symshape_repro_*.py"))


def _written(
    folder: Path, entry: str, planted: str, after: str, level: int, strict: str = "strict"
) -> tuple[str, Path]:
    """What the program says, and the file that it leaves."""
    (folder / "model.py").write_text(MODEL)
    status, said = _run(folder, ["model.py", entry, strict], planted, after, level)
    assert (status == 0) == (strict != "strict"), said
    file = _files(folder)[0]
    assert f"{file} shows this failure again" in said
    text = file.read_text()
    assert len(re.findall(r"torch\._dynamo\.mark_dynamic\(", text)) >= 2
    assert len(re.findall(r"^    \{'s\d+': .*\},$", text, re.MULTILINE)) == 3
    return said, file


CRASH = "'math.sin' op is a planted fault"
WRONG = "AccuracyError: the compiled graph computes other numbers than eager mode"


def test_a_crash_after_aot(tmp_path: Path) -> None:
    said, file = _written(tmp_path, "symshape", "crash", "aot", 2)
    assert CRASH in said
    status, said = _run(tmp_path, [file], "crash")
    assert status == 1 and f"PassFailure: pass 'planted-fault' failed: {CRASH}" in said


@pytest.mark.long
@pytest.mark.parametrize("entry", ["symshape", "torch"])
@pytest.mark.parametrize("after", ["dynamo", "aot"])
@pytest.mark.parametrize("planted", ["crash", "wrong"])
def test_each_setting(tmp_path: Path, entry: str, after: str, planted: str) -> None:
    error = CRASH if planted == "crash" else WRONG
    said, file = _written(tmp_path, entry, planted, after, 2 if planted == "crash" else 4)
    assert error in said
    assert ("symshape.compile(fn, " in file.read_text()) == (entry == "symshape")
    status, said = _run(tmp_path, [file], planted)
    assert status == 1 and error in said
    assert _run(tmp_path, [file]) == (0, "no failure at 3 sizes\n")
    status, said = _run(tmp_path, [file, "minify", "-o", "less.py"], planted)
    assert status == 0 and re.search(r"less.py: [12] of \d+ operations", said), said
    text = (tmp_path / "less.py").read_text()
    assert "mark_dynamic(" in text
    status, said = _run(tmp_path, ["less.py"], planted)
    assert status == 1 and error in said
    assert _run(tmp_path, ["less.py"])[0] == 0


@pytest.mark.long
@pytest.mark.parametrize("entry", ["symshape", "torch"])
@pytest.mark.parametrize(("after", "level"), [("dynamo", 2), ("dynamo", 4), ("aot", 2), ("aot", 4)])
def test_nothing_is_written_where_nothing_fails(tmp_path: Path, entry: str, after: str, level: int) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    status, said = _run(tmp_path, ["model.py", entry, "strict"], "", after, level)
    assert status == 0 and "ran\n" in said
    assert not _files(tmp_path)


@pytest.mark.long
def test_a_fallback_is_a_failure_too(tmp_path: Path) -> None:
    said, file = _written(tmp_path, "symshape", "crash", "aot", 1, strict="falls back")
    assert "ran\n" in said
    status, said = _run(tmp_path, [file], "crash")
    assert status == 1 and CRASH in said


@pytest.mark.long
def test_level_3_writes_before_it_compiles(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    assert _run(tmp_path, ["model.py", "symshape", "strict"], "", "aot", 3)[0] == 0
    assert len(_files(tmp_path)) == 2  # forward and backward


# --- in this process ------------------------------------------------------------------------------------------------


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Callable[[Any], Any]]:
    monkeypatch.chdir(tmp_path)

    def plant(fault: str) -> Callable[[Any], Any]:
        monkeypatch.setenv("PLANTED", fault)
        return compiled

    return plant


def compiled(fn: Any) -> Any:
    return symshape.compile(fn, options=OPTIONS)


def _dynamo_graph(fn: Any, *inputs: Any) -> tuple[torch.fx.GraphModule, Any]:
    """What a backend gets; the graph keeps its fake values."""
    found: list[Any] = []

    def backend(gm: torch.fx.GraphModule, _inputs: Any) -> Any:
        found.append((gm, traced_env_of(gm)))
        return gm.forward

    torch._dynamo.reset()
    torch.compile(fn, backend=backend, dynamic=True)(*inputs)
    return found[0]


def test_integers_are_read_off_tensors() -> None:
    def fn(x: torch.Tensor, n: int, m: int) -> torch.Tensor:
        return x[:n] * m + x.size(1)

    gm, env = _dynamo_graph(fn, torch.ones(7, 5), 3, 9)
    graph = read_graph(gm, "example_value", env)
    assert all(isinstance(one, Argument) for one in graph.arguments)
    assert [one.dynamic for one in graph.arguments][0] == [0, 1]
    assert len(graph.arguments) == 3 and all(one.sizes[1:] == [0] for one in graph.arguments[1:])
    for sizes in graph.sizes:
        arguments = marked(graph.arguments, sizes)
        (found,) = graph.module(*arguments)
        x, n, m = arguments[0], arguments[1].size(0), arguments[2].size(0)
        assert torch.equal(found, fn(x, n, m)) or torch.equal(found, fn(x, m, n))


def test_sizes_are_such_that_guards_hold() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        torch._check(x.size(0) % 4 == 0)
        return (x.view(-1, 4).sum(1) if x.size(0) > 10 else x).sum() + y

    gm, env = _dynamo_graph(fn, torch.ones(12), torch.ones(3))
    graph = read_graph(gm, "example_value", env)
    assert len(graph.sizes) == 3
    position = next(i for i, one in enumerate(graph.arguments) if one.at(graph.sizes[0]).numel() == 12)
    numbers = [one.at(sizes).size(0) for sizes in graph.sizes for one in [graph.arguments[position]]]
    assert numbers[0] == 12 and all(n % 4 == 0 and n > 10 for n in numbers) and len(set(numbers)) == 3


def test_values_of_symbols_are_read_off_a_call() -> None:
    gm, env = _dynamo_graph(lambda x: x.sin() * x.size(0), torch.ones(4, 3))
    graph = read_graph(gm, "example_value", env)
    traced = [node.meta["example_value"] for node in gm.graph.find_nodes(op="placeholder")]
    numbers = iter((9, 2))  # the order in which Dynamo reads sizes
    given = [torch.ones(9, 2) if isinstance(one, torch.Tensor) else next(numbers) for one in traced]
    first = values_at(gm, "example_value", given)
    assert sorted(first.values()) == [2, 9]
    assert sorted(read_graph(gm, "example_value", env, first).sizes[0].values()) == [2, 9]
    assert graph.arguments[0].dynamic == [0, 1]


def _problem(fn: Any, *inputs: Any, accuracy: bool = False) -> Problem:
    gm, env = _dynamo_graph(fn, *inputs)
    graph: Graph = read_graph(gm, "example_value", env)
    arguments = graph.arguments
    return Problem(graph.module, arguments, graph.sizes, lambda s: marked(arguments, s), compiled, accuracy)


def _fn(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    hidden = torch.softmax(x @ w, -1) * 3.0
    return hidden.sin().sum(0), (hidden + 1).relu(), hidden.amax(1)


@pytest.mark.long
def test_a_graph_gets_small(planted: Callable[[str], Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planted("wrong")
    problem = _problem(_fn, torch.ones(5, 4), torch.ones(4, 6), accuracy=True)
    with pytest.raises(AccuracyError):
        run(problem)
    minify(problem, tmp_path / "less.py")
    assert re.search(r"less.py: 1 of \d+ operations", capsys.readouterr().out)
    spec = importlib.util.spec_from_file_location("less", tmp_path / "less.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (argument,) = module.ARGUMENTS
    assert argument.dynamic and len(module.SIZES) == 3
    planted("")
    with pytest.raises(OptionError, match="does not fail"):
        minify(problem, tmp_path / "none.py")


def test_a_file_has_constants_and_graphs_within(tmp_path: Path) -> None:
    table = torch.tensor([1.5, float("inf"), -2.0])

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,)) + table

    gm, env = _dynamo_graph(fn, torch.ones(4, 3))
    graph = read_graph(gm, "example_value", env)
    graph_failure = GraphFailure(
        "symshape.compile", "an error", True, True, compiled_text("symshape.compile", Options())
    )
    text = file_text(graph.module, graph.arguments, graph.sizes, graph_failure)
    (tmp_path / "file.py").write_text(text)
    spec = importlib.util.spec_from_file_location("file", tmp_path / "file.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    arguments = module.inputs(module.SIZES[1])
    assert torch.equal(module.Repro()(*arguments)[0], graph.module(*arguments)[0])
    assert 'symshape.compile(fn, options={"cache": False' in text.replace("'", '"')


@pytest.mark.parametrize("error", [r"no \d+ in C:\Users\N", 'ends """', "ends with \\"])
def test_an_error_of_any_text_is_in_the_docstring(error: str) -> None:
    gm = torch.fx.symbolic_trace(lambda x: x + 1)
    argument = Argument("x", ["s0", 4], [4, 1], torch.float32)
    text = file_text(gm, [argument], [{"s0": 3}], GraphFailure("symshape.compile", error, False, True, "fn"))
    docstring = ast.get_docstring(ast.parse(text))
    assert docstring is not None and error.replace('"""', "'''") in docstring


def test_a_size_that_a_file_computes() -> None:
    rows = [({"s0": size}, size // 3 + 1) for size in (4, 7, 11)]
    assert _fitted(rows, ["s0//2", "math.floor(s0/3) + 1"]) == "math.floor(s0/3) + 1"
    assert _fitted([({"s0": size}, 3 * size + 2) for size in (4, 7)], []) == "3*s0 + 2"


def test_options_that_a_file_says() -> None:
    said = compiled_text("torch.compile", Options.parse({"target": "triton", "disable_passes": ["lower-aten"]}))
    assert said.startswith('torch.compile(fn, backend="symshape", options={')
    given = eval(said.partition("options=")[2][:-1])
    assert given == {"cache": False, "strict": True, "target": "triton", "disable_passes": ["lower-aten"]}
    said = compiled_text("symshape.compile", Options.parse({"pass_options": {"fuse-kernels": "max-members=3"}}))
    assert "'pass_options': {'fuse-kernels': 'max-members=3'}" in said


def test_rounding_is_no_difference() -> None:
    wanted, got = [torch.tensor([1e-9, -2e-9])], [torch.tensor([5e-9, 3e-9])]
    assert differ(got, wanted)
    assert not differ_beyond_rounding(got, wanted, lambda: [torch.tensor([-1e-9, 1e-9])])
    assert differ_beyond_rounding(got, wanted, lambda: wanted)
    assert differ_beyond_rounding([torch.tensor([3.5])], [torch.tensor([3.0])], lambda: [torch.tensor([3.0000005])])


def test_random_tensors_of_any_layout() -> None:
    generator = torch.Generator().manual_seed(0)
    for sizes, strides, offset in (((3, 4), (1, 3), 2), ((2, 0), (1, 1), 1), ((), (), 5), ((3, 2), (0, 1), 0)):
        made = strided_tensor(sizes, strides, offset, torch.int64, generator)
        assert (tuple(made.shape), made.stride(), made.storage_offset()) == (sizes, strides, offset)
        assert made.numel() == 0 or 0 <= int(made.min()) <= int(made.max()) <= 1


def test_a_command_line_that_says_nothing_is_an_error() -> None:
    problem = Problem(torch.nn.Module(), [], [], lambda _: [], compiled)
    with pytest.raises(OptionError, match="--output does nothing"):
        main(problem, ["run", "-o", "x.py"])


class _Going(Reanalyse):
    def __init__(self) -> None:
        Exception.__init__(self, "again")


def test_what_is_no_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    written: list[str] = []
    monkeypatch.setattr(watch.Watched, "write", lambda self, error, given=None: written.append(error))
    graph = watch.Watched(torch.fx.GraphModule({}, torch.fx.Graph()), "val", Options(), "symshape.compile")
    for error in (OptionError("a user's"), ShapeConstraintError("a user's"), _Going()):
        with pytest.raises(type(error)):
            watch.compile_watched(graph, _raising(error))
    assert not written
    with pytest.raises(CompileError):
        watch.compile_watched(graph, _raising(CompileError("of a pass")))
    assert written == ["CompileError: of a pass"]


def _raising(error: Exception) -> Callable[[], Any]:
    def compile_() -> Any:
        raise error

    return compile_
