"""``symshape explain``, and the text of a report."""

from __future__ import annotations

import io
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import symshape
from symshape.tools import cli
from symshape.tools.command_line import exit_status
from symshape.tools.report import _longest
from symshape.tools.terminal import table

MODEL = """
import torch


def two_kernels(x):
    y = x.exp()
    return torch.mm(y, y), y.sort(0).values.sin()


def inputs():
    return (torch.randn(4, 4),)
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return path


def test_stage_alone_is_on_stdout(model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """So that it can be piped: what the report says goes to stderr."""
    assert cli.main(["explain", f"{model}:two_kernels", "--stage", "planned"]) == 0
    printed = capfd.readouterr()
    assert "2 library calls" in printed.err and "library calls" not in printed.out
    file = tmp_path / "stage.mlir"
    file.write_text(printed.out)
    x = torch.randn(5, 5)
    found = symshape.run_ir(file, x, stage="planned")
    torch.testing.assert_close(found[1], x.exp().sort(0).values.sin())


def test_a_step_is_left_out(model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for steps, kernels in (([], 2), (["--disable-pass", "lower-aten"], 0)):
        assert cli.main(["explain", f"{model}:two_kernels", *steps]) == 0
        assert f" {kernels} kernels, {kernels} launches" in capfd.readouterr().out
    assert cli.main(["explain", f"{model}:two_kernels", "--disable-pass", "x"]) == 1
    assert "no pass is called x" in capfd.readouterr().err


def test_lines_of_a_kernel(model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    sys.path.insert(0, str(model.parent))
    try:
        import model as made  # type: ignore[import-not-found]

        (graph,) = symshape.explain(made.two_kernels, torch.randn(4, 4)).graphs
    finally:
        sys.path.remove(str(model.parent))
        del sys.modules["model"]
    assert sorted(kernel.lines for kernel in graph.kernels) == [(f"{model}:6",), (f"{model}:7",)]
    assert cli.main(["explain", f"{model}:two_kernels", "--source"]) == 0
    assert f"# kernel_0 (pointwise), of\n# {model}:6\n" in capfd.readouterr().out


def test_one_kernel(model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", f"{model}:two_kernels", "--kernel", "kernel_1"]) == 0
    printed = capfd.readouterr()
    assert printed.out.startswith(f"# graph 0\n# kernel_1 (pointwise), of\n# {model}:7\n# of the ways")
    assert "@kernel_1" in printed.out and "@kernel_0" not in printed.out and "def program" not in printed.out
    assert "\n# usual if true: " in printed.out.lower() and "2 kernels" in printed.err
    assert cli.main(["explain", f"{model}:two_kernels", "--kernel", "kernel_7"]) == 1
    assert "no kernel is called 'kernel_7'\n  next: kernels: kernel_0, kernel_1" in capfd.readouterr().err


def test_what_matters_comes_first() -> None:
    def branch(x: torch.Tensor) -> torch.Tensor:
        return x.exp() if x.size(0) > 4 else x.sin()

    report = symshape.explain(branch, torch.randn(3))
    report.run(torch.randn(7))
    total, why, first, *others = str(report).splitlines()
    assert total == "2 graphs, 2 kernels, 2 launches, 0 library calls, 0 fallbacks"
    assert why == "why there are further graphs:" and first.startswith("graph 2 of ")
    details = next(i for i, line in enumerate(others) if line.startswith("[0] "))
    assert "x.size(0) > 4" in "".join(others[:details])


def test_steps_that_took_longest() -> None:
    timings = [("a", 1.0), ("b", 5.0), *((f"s{i}", 0.1) for i in range(9)), ("a", 3.0)]
    shown = _longest(timings, 3)
    assert shown[:2] == [("b", 5.0), ("a", 4.0)] and shown[3][0] == "8 other steps"
    assert sum(seconds for _, seconds in shown) == pytest.approx(9.9)
    assert _longest([("a", 1.0)], 3) == [("a", 1.0)]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["explain", "{model}:number"], "number of {model} cannot be called"),
        (["explain", "{rows}:two_kernels"], "inputs\\(\\) of {rows}:two_kernels returns a Tensor"),
        (["sweep", "{model}:two_kernels", "opt-level", "0,2", "--sizes", "4x4"], "inputs\\(\\) of .* the size 4x4"),
        (["report", "{model}:two_kernels", "-o", "{folder}/none/page.html"], "there is no folder {folder}/none"),
        (["sweep", "{model}:two_kernels", "opt-level", "0,2", "--plot", "{folder}/none/a.png"], "there is no folder"),
        (["ablate", "{model}:number", "--without", "fuse-kernels"], "number of {model} cannot be called"),
    ],
)
def test_errors_are_a_line(command: list[str], message: str, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = model.with_name("rows.py")
    model.write_text(f"{MODEL}\nnumber = 3\n")
    rows.write_text(MODEL.replace("(torch.randn(4, 4),)", "torch.randn(4, 4)"))
    names = {"model": str(model), "rows": str(rows), "folder": str(model.parent)}
    assert cli.main([word.format(**names) for word in command]) == 1
    assert re.match(f"symshape: error: .*{message.format(**names)}", capsys.readouterr().err)


def _nobody_reads() -> Any:
    """A stream whose other end is closed."""
    reading, writing = os.pipe()
    os.close(reading)
    return os.fdopen(writing, "w")


def test_nobody_reads_the_output(
    model: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As with ``| head``: quietly."""
    for stream in (_nobody_reads(), _nobody_reads()):
        monkeypatch.setattr("sys.stdout", stream)
        assert exit_status("symshape", [], lambda: print("lines\n" * 9999) or 0) == 1
        stream.close()
    assert capfd.readouterr().err == ""


def test_output_in_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", stream)
    assert exit_status("symshape", [], lambda: print(table(["a"], [["\u00d7"]])) or 0) == 0
    assert stream.buffer.getvalue().split() == [b"a", b"-", b"?"]  # type: ignore[attr-defined]


def test_files_that_the_command_line_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of a user's program are errors of that."""

    def read(file: Path) -> int:
        return len(file.read_text())

    there = tmp_path / "none" / "file"
    assert exit_status("symshape", [str(there)], lambda: read(there)) == 1
    assert "symshape: error: [Errno 2]" in capsys.readouterr().err
    with pytest.raises(FileNotFoundError):
        exit_status("symshape", [str(there)], lambda: read(tmp_path / "other"))
