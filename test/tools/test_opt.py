"""symshape-opt as a program: what it costs to start, what it never imports, and that a failure can be replayed."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from symshape import opt

HERE = Path(__file__).parent


def test_start_is_fast() -> None:
    """Beside a bare interpreter in the same run: a machine under load slows both."""

    def start(*arguments: str) -> float:
        begin = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        return time.perf_counter() - begin

    pairs = [(start("-m", "symshape.opt", "--help"), start("-c", "pass")) for _ in range(5)]
    assert min(tool / bare for tool, bare in pairs) <= 25


def test_torch_is_never_imported(tmp_path: Path) -> None:
    source = tmp_path / "in.mlir"
    source.write_text(
        'func.func @f() { "host.call"() {target = "aten.no_such_op", arguments = "()"} : () -> ()\n return }'
    )
    code = (
        "import sys; from symshape import opt; "
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
