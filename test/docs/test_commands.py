"""The commands and programs of README.md, CONTRIBUTING.md, the tutorial and the how-to pages run."""

from __future__ import annotations

import glob
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from symshape.tools import cli, opt, translate

ROOT = Path(__file__).resolve().parents[2]
TOOLS = {"symshape": cli.main, "symshape-opt": opt.main, "symshape-translate": translate.main}
PAGES = ("README.md", "CONTRIBUTING.md", "docs/tutorial.md")
# The steps of these pages build on each other: they are run in order, in a folder of their own.
HOW_TO = [
    pytest.param(str(page.relative_to(ROOT)), marks=[pytest.mark.long] if "symshape ablate" in page.read_text() else [])
    for page in sorted((ROOT / "docs" / "how-to").glob("*.md"))
]
BLOCK = re.compile(r"^( *)```(python|console)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


def _blocks(page: str) -> Iterator[tuple[str, str, int]]:
    """Language, text and line of each block that is run."""
    text = (ROOT / page).read_text()
    for found in BLOCK.finditer(text):
        yield found[2], textwrap.dedent(found[3]), text[: found.start(3)].count("\n")


def _lines(block: str) -> list[str]:
    return [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")]


def _commands() -> list[str]:
    blocks = [block for page in PAGES for language, block, _ in _blocks(page) if language == "console"]
    return sorted({line for block in blocks for line in _lines(block)})


def _run_program(page: str, block: str, above: int) -> None:
    exec(compile("\n" * above + block, str(ROOT / page), "exec"), {})  # messages show lines of the page


def _run_command(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tool, *arguments = shlex.split(command, comments=True)
    with monkeypatch.context() as changed:
        while "=" in tool:
            changed.setenv(*tool.split("=", 1))
            tool, *arguments = arguments
        found = [sorted(glob.glob(argument)) if "*" in argument else [argument] for argument in arguments]
        assert all(found), command
        torch._dynamo.reset()
        assert not TOOLS[tool]([argument for several in found for argument in several])


@pytest.mark.parametrize("command", _commands())
def test_commands_run(command: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    tool, *arguments = shlex.split(command, comments=True)
    if tool == "python":  # lit runs it
        (file,) = arguments
        assert file.startswith("examples/") and (ROOT / file).read_text().startswith("# RUN: %python %s")
        return
    if tool == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
        assert set(arguments) <= set(targets)
        return
    _run_command(command, monkeypatch)
    assert capfd.readouterr().out


@pytest.mark.parametrize("page", PAGES)
def test_programs_run(page: str) -> None:
    for language, block, above in _blocks(page):
        if language == "python":
            _run_program(page, block, above)


@pytest.mark.parametrize("page", HOW_TO)
def test_steps_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("examples")
    for language, block, above in _blocks(page):
        if language == "python":
            torch._dynamo.reset()
            _run_program(page, block, above)
        else:
            for line in _lines(block):
                _run_command(line, monkeypatch)


def test_makefile_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        for target in re.findall(r"[`$] ?make ([a-z][a-z-]+)", (ROOT / page).read_text()):
            assert re.search(rf"^{target}:", makefile, re.M), f"{page}: make {target}"


def test_logs_have_the_names_that_pages_give() -> None:
    """PyTorch is not imported if TORCH_LOGS has a name that it does not know."""
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md"]
    names = {name for page in pages for name in re.findall(r'TORCH_LOGS="?([\w.,+-]+)', page.read_text())}
    assert "symshape.graphs" in names
    environment = {**os.environ, "TORCH_LOGS": ",".join(sorted(names))}
    done = subprocess.run([sys.executable, "-c", "import torch"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
