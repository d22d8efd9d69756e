"""``SYMSHAPE_RECORD`` and ``symshape replay``: what is recorded, and that it compiles to the same without the model."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import symshape
from symshape.errors import FallbackWarning, OptionError
from symshape.options import Options
from symshape.passes.stages import STAGES
from symshape.recording import Recorded, constants_of, read_recording, recordings_in
from symshape.tools import cli
from symshape.tools.zoo import MODELS

PASSES = str(Path(__file__).parent / "Inputs" / "failing_passes.py")
WITHOUT_THE_MODEL = (
    "import sys; from symshape.tools import cli; status = cli.main(['replay', sys.argv[1], '--check']); "
    "sys.exit(status or 'transformers' in sys.modules)"
)


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that is recorded to."""
    folder = tmp_path / "recorded"
    monkeypatch.setenv("SYMSHAPE_RECORD", str(folder))
    return folder


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    torch._check(x.size(0) > 2)
    return torch.relu(x @ w + torch.tensor([1234.5])).sum(1)


def inputs() -> tuple[torch.Tensor, ...]:
    return torch.randn(5, 7), torch.randn(7, 9)


def replay(*arguments: Any) -> int:
    return cli.main(["replay", *map(str, arguments)])


# --- what is recorded -------------------------------------------------------------------------------------------------


def test_a_folder_for_each_graph(root: Path) -> None:
    symshape.compile(program)(*inputs())
    (folder,) = recordings_in(root)
    number, kind, digest = folder.name.split("-")
    assert (number, kind, len(digest)) == ("0000", "inference", 12)
    texts = {file.name for file in folder.iterdir()}
    assert texts >= {*(f"{stage}.mlir" for stage in STAGES), "program.py", "graph.txt", "environment.json"}
    assert "def program(args)" in (folder / "program.py").read_text()
    assert "torch.ops.aten.mm.default" in (folder / "graph.txt").read_text()
    about = json.loads((folder / "about.json").read_text())
    assert about["outcome"] == "compiled" and about["target"] == "cpu"
    assert about["constants"] == [
        {"kind": "tensor", "dtype": "torch.float32", "device": "cpu", "shape": [1], "stride": [1]}
    ]
    tensors = [one for one in about["arguments"] if one["type"] != "SymInt"]
    rows, columns = tensors[0]["shape"]
    assert tensors[0]["stride"] == [columns, "1"] and tensors[1]["shape"][0] == columns
    environment = json.loads((folder / "environment.json").read_text())
    (row,) = (one for one in environment["symbols"] if one["name"] == rows)
    assert row == {"name": rows, "sources": ["L['x'].size()[0]"], "range": [3, None], "hint": 5}
    assert [one["condition"] for one in environment["guards"]][0] == f"{rows} > 2"


def test_forward_and_backward(root: Path) -> None:
    x, w = inputs()
    symshape.compile(program)(x, w.requires_grad_()).sum().backward()
    assert [one.name.split("-")[1] for one in recordings_in(root)] == ["forward", "backward"]
    assert replay(root, "--check", "--run") == 0


def test_no_data(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the values of constants, unless they are asked for."""

    def with_constant(x: torch.Tensor) -> torch.Tensor:
        return x * torch.tensor([1234.5])

    symshape.compile(with_constant)(torch.ones(3))
    (folder,) = recordings_in(root)
    values = torch.tensor([1234.5]).numpy().tobytes()
    for file in folder.rglob("*"):
        if file.is_file() and file.name != "graph.txt":  # which shows the user's line
            assert values not in file.read_bytes() and b"1234.5" not in file.read_bytes(), file.name
    monkeypatch.setenv("SYMSHAPE_RECORD_DATA", "1")
    torch._dynamo.reset()
    symshape.compile(with_constant)(torch.ones(3))
    kept = torch.load(recordings_in(root)[1] / "constants.pt", weights_only=True)
    assert {i: x.tolist() for i, x in kept.items()} == {0: [1234.5]}


def test_graphs_that_are_in_the_cache(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SYMSHAPE_CACHE", "1")
    monkeypatch.setenv("SYMSHAPE_CACHE_DIR", str(tmp_path / "cache"))
    caplog.set_level(logging.INFO, "symshape.cache")
    for _ in range(2):
        torch._dynamo.reset()
        symshape.compile(program)(*inputs())
    monkeypatch.delenv("SYMSHAPE_RECORD")
    torch._dynamo.reset()
    symshape.compile(program)(*inputs())
    outcomes = [record.getMessage().partition(": ")[2] for record in caplog.records]
    assert outcomes == ["miss", "stored", "miss", "stored", "hit"]
    assert len(recordings_in(root)) == 2


def test_jit(root: Path) -> None:
    symshape.jit(program)(*inputs())
    assert replay(root, "--check", "--run") == 0


def test_options_of_passes(root: Path) -> None:
    symshape.compile(program, pass_options={"fuse-kernels": {"vertical": False}})(*inputs())
    (folder,) = recordings_in(root)
    assert read_recording(folder).options.pass_options == (("fuse-kernels", 'vertical="False"'),)
    assert replay(root, "--check") == 0


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SYMSHAPE_RECORD", str(tmp_path / "file"))
    with pytest.raises(OptionError, match="nothing can be recorded"):
        symshape.compile(program)(*inputs())


# --- replay -----------------------------------------------------------------------------------------------------------


def record_model(name: str, size: Any) -> None:
    model = MODELS[name]
    shape = (model.first_shapes if size == "full" else model.tiny_shapes)[0]
    with torch.no_grad():
        symshape.compile(model.build(size))(**model.inputs(shape))


def check_without_the_model(root: Path) -> None:
    assert recordings_in(root)
    command = [sys.executable, "-c", WITHOUT_THE_MODEL, str(root)]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout.count("are those that were recorded") == len(recordings_in(root))


def test_a_model_in_a_process_without_it(root: Path) -> None:
    record_model("bert", "tiny")
    check_without_the_model(root)


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
def test_models_in_a_process_without_them(name: str, root: Path) -> None:
    record_model(name, "full")
    check_without_the_model(root)


def test_triton(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    symshape.compile(program, target="triton")(*inputs())
    (folder,) = recordings_in(root)
    assert [file.name for file in (folder / "kernels").iterdir()] == ["kernel_0.py"]
    assert '"symshape.variant"' in (folder / "planned.mlir").read_text()
    assert replay(folder, "--check", "--run") == 0


def test_run(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    symshape.compile(program)(*inputs())
    (folder,) = recordings_in(root)
    symbol = json.loads((folder / "environment.json").read_text())["symbols"][0]["name"]
    assert replay(folder, "--run") == 0
    assert "results: float32[5]" in capsys.readouterr().out
    assert replay(folder, "--run", f"--size={symbol}=11") == 0
    assert "results: float32[11]" in capsys.readouterr().out
    for wrong, message in ((f"{symbol}=2", "3 or more"), ("q=2", "no symbol 'q'"), ("q", "NAME=NUMBER")):
        assert replay(folder, "--run", f"--size={wrong}") == 1
        assert message in capsys.readouterr().err
    assert replay(folder, f"--size={symbol}=11") == 1
    assert "--size does nothing without --run" in capsys.readouterr().err


def test_errors_of_a_run(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the graph raises for these inputs is printed."""

    def checked(x: torch.Tensor) -> torch.Tensor:
        n = x.max().item()
        torch._check(n >= 1000)
        return torch.ones(n)

    symshape.compile(checked)(torch.tensor([1000, 3]))
    assert replay(root, "--check", "--run") == 1
    assert "ShapeConstraintError" in capsys.readouterr().out


def _edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("program.py", "args.clear()", "args.pop()", "-    args.pop()"),
        ("kernels/kernel_0.mlir", "llvm.func", "llvm.fnuc", "-llvm.fnuc"),
        ("imported.mlir", "aten.relu.default", "aten.sin.default", "stage shaped"),
    ],
)
def test_differences_are_shown(
    file: str, old: str, new: str, message: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    symshape.compile(program)(*inputs())
    (folder,) = recordings_in(root)
    _edit(folder / file, old, new)
    assert replay(folder, "--check") == 1
    printed = capsys.readouterr().out
    assert "it is not what was recorded" in printed and message in printed


def test_no_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay(tmp_path / "nothing") == 1
    assert "there is no recording" in capsys.readouterr().err
    (tmp_path / "about.json").write_text('{"format": 0}')
    (tmp_path / "options.json").write_text("{}")
    with pytest.raises(OptionError, match="format 0"):
        read_recording(tmp_path)


# --- compiles that fail -----------------------------------------------------------------------------------------------


def test_a_failure_is_met_again_without_the_model(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # where the IR before a failing pass is written
    with pytest.raises(Exception, match="no pass should"):
        symshape.compile(program, pass_files=[PASSES], passes=["crash"])(*inputs())
    (folder,) = recordings_in(root)
    assert json.loads((folder / "about.json").read_text())["outcome"].startswith("failed: pass 'crash' failed")
    assert replay(folder, "--check") == 1
    assert "pass 'crash' failed: ZeroDivisionError" in capsys.readouterr().out


def test_fallbacks_are_repeated(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SYMSHAPE_STRICT", "0")
    with pytest.warns(FallbackWarning):
        symshape.compile(program, pass_files=[PASSES], passes=["fail-at-op{text=today}"])(*inputs())
    (folder,) = recordings_in(root)
    assert json.loads((folder / "about.json").read_text())["fallbacks"][0]["step"] == "fail-at-op"
    assert replay(folder, "--check") == 0
    assert "without the pass fail-at-op" in capsys.readouterr().out


@pytest.mark.parametrize("strides", [(1, 0), (5, 2), (1, 2)])
def test_stand_ins_have_the_layout(strides: tuple[int, ...]) -> None:
    described = {"kind": "tensor", "dtype": "torch.int8", "device": "cpu", "shape": [2, 3], "stride": [*strides]}
    (made,) = constants_of(Recorded(Path("none"), {"constants": [described]}, Options(), {}, "", {}))
    assert (made.dtype, made.shape, made.stride()) == (torch.int8, (2, 3), strides)
