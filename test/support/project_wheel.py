"""Builds the wheel, for tests of what is installed."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def build_wheel(folder: Path) -> Path:
    """The wheel of the working tree, made in ``folder``: from a copy, so that nothing is left behind in the checkout.
    RuntimeError with the output of pip where it fails."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    tops = {*settings["tool"]["setuptools"]["package-dir"].values(), "pyproject.toml", "README.md", "LICENSE"}
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    tree = folder / "tree"
    for name in listed:
        source, target = ROOT / name, tree / name
        if source.is_file() and name.split("/")[0] in tops:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    done = subprocess.run(
        [*command, "--wheel-dir", str(folder), str(tree)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return next(folder.glob("symshape-*.whl"))
