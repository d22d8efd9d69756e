"""symshape-opt as a program: what it costs to start, what it never imports, and that a failure can be replayed."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from symshape.tools import cli, opt, translate

HERE = Path(__file__).parent


def test_start_is_fast() -> None:
    """Beside a bare interpreter in the same run: a machine under load slows both."""

    def start(*arguments: str) -> float:
        begin = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        return time.perf_counter() - begin

    pairs = [(start("-m", "symshape.tools.opt", "--help"), start("-c", "pass")) for _ in range(5)]
    assert min(tool / bare for tool, bare in pairs) <= 25


def test_torch_is_never_imported(tmp_path: Path) -> None:
    source = tmp_path / "in.mlir"
    source.write_text(
        'func.func @f() { "host.call"() {target = "aten.no_such_op", arguments = "()"} : () -> ()\n return }'
    )
    code = (
        "import sys; from symshape.tools import opt; "
        f"status = opt.main([{str(source)!r}, '--to-stage=kernels']); opt.main(['--list-passes']); "
        "sys.exit(status or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_help_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        opt.main(["--help"])
    text = capsys.readouterr().out
    assert exit_.value.code == 0
    assert all(flag in text for flag, _, _ in opt._FLAGS)


IDLE = [  # arguments that would do nothing -> what is said
    (["--to-stage=imported"], "no passes lead from stage 'imported' to itself"),
    (["--to-stage="], "unknown stage ''"),
    (["--pass-pipeline="], "the pipeline has no passes"),
    (["--pass-pipeline=", "--cse"], "give passes in one way only"),
    (["--list-passes", "--cse"], "--cse does nothing beside --list-passes"),
    (["--list-passes", "-o", "out"], "-o does nothing beside --list-passes"),
    (["--list-passes", "in.mlir"], "input does nothing beside --list-passes"),
    (["--cse", "--disable-pass=dce"], "--disable-pass=dce does nothing: no such pass is run\n  next: run: cse"),
    (["--cse", "--print-after=linalg"], "--print-after=linalg does nothing"),
    (["--cse", "--disable-pass=cse", "--print-after=cse"], "--print-after=cse does nothing"),
    (["--disable-pass=cse"], "--disable-pass does nothing without passes"),
    (["--mlir-timing", "--mlir-print-ir-after-all"], "--mlir-print-ir-after-all, --mlir-timing do nothing without"),
    (["--print-constraints", "--mlir-print-op-generic"], "--mlir-print-op-generic does nothing with"),
]


@pytest.mark.parametrize(("arguments", "message"), IDLE)
def test_arguments_that_would_do_nothing(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert opt.main(arguments) == 1
    shown = capsys.readouterr()
    assert f"symshape-opt: error: {message}" in shown.err and not shown.out


@pytest.mark.parametrize(
    ("run", "arguments"),
    [
        (opt.main, ["--to-stage=linalg", "--to-stage=kernels"]),
        (opt.main, ["--cse", "-o", "a", "-o", "b"]),
        (translate.main, ["--to=cpu", "--to=loops"]),
    ],
)
def test_of_two_values_none_is_dropped(run: Any, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(arguments)
    assert "given more than once" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to=loops", "--cpu=x86-64-v2"], "--cpu does nothing without --to=cpu"),
        (["--to=cpu", "--cpu=avx"], "unknown cpu 'avx'"),
        (["--to=cpu", "--from-stage=planned"], "there are no kernels in the module"),
        (["--to=triton"], "there are no kernels in the module"),
        (["--to=loops"], "there are no kernels in the module"),
    ],
)
def test_what_translate_cannot_print(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "in.mlir"
    source.write_text("func.func @f() { return }")
    assert translate.main([str(source), *arguments]) == 1
    shown = capsys.readouterr()
    assert f"symshape-translate: error: {message}" in shown.err and not shown.out


@pytest.mark.parametrize(
    "arguments",
    [
        ["demo", "--fast"],
        ["cache", "show", "--all"],
        ["explain", "bert", "--stage=lnialg"],
        ["explain", "bert", "more"],
        ["explain", "bert", "--source", "--kernel=kernel_0"],
    ],
)
def test_the_command_knows_its_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    assert exit_.value.code == 2 and not capsys.readouterr().out


@pytest.mark.parametrize("name", ["fail-at-op", "crash"])
def test_a_failure_is_replayed_by_the_command_it_prints(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.mlir").write_text("func.func @f() { return }\nfunc.func private @unused()\n")
    plugin = f"--load-pass={HERE / 'Inputs' / 'failing_passes.py'}"
    assert opt.main(["in.mlir", plugin, "--symbol-dce", f"--{name}", "-o", "out.mlir"]) == 1
    assert not Path("out.mlir").exists()
    first = capsys.readouterr().err
    command = shlex.split(
        next(line for line in first.splitlines() if line.strip().startswith("symshape-opt symshape-debug"))
    )
    assert "unused" not in Path(command[1]).read_text()
    assert opt.main(command[1:]) == 1
    again = capsys.readouterr().err
    failure = next(line for line in first.splitlines() if line.startswith("symshape-opt: error"))
    assert failure in again
