"""What type checkers see of the public names: mypy on a user's program, against the wheel and not the checkout."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from project_wheel import build_wheel

PROGRAM = Path(__file__).parent / "Inputs" / "users_program.py"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The interpreter of an environment with the wheel, and the packages of this one."""
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    zipfile.ZipFile(build_wheel(tmp_path)).extractall(packages)
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))  # whose own .pth files are not followed
    return environment / "bin" / "python"


@pytest.mark.long
def test_a_users_program_is_checked(installed: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(installed), "--config-file="]
    command += ["--cache-dir", str(tmp_path / "cache"), "--no-error-summary", str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert not done.stderr
    lines = PROGRAM.read_text().splitlines()
    found: dict[int, str] = {}
    for line in done.stdout.splitlines():
        number = int(line.removeprefix(f"{PROGRAM}:").split(":")[0])
        if revealed := re.search(r'note: Revealed type is "(.*)"', line):
            found[number] = f"type: {revealed[1].replace('builtins.', '')}"
        elif error := re.search(r"error: .*\[([\w-]+)\]$", line):
            found[number] = f"error: {error[1]}"
    expected = {
        i: match[1] for i, line in enumerate(lines, 1) if (match := re.search(r"  # ((?:type|error): .*)", line))
    }
    assert found == expected, done.stdout
