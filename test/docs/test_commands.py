"""The commands and programs of README.md, CONTRIBUTING.md and the tutorial run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import torch

from symshape.tools import cli, opt, translate

ROOT = Path(__file__).resolve().parents[2]
TOOLS = {"symshape": cli.main, "symshape-opt": opt.main, "symshape-translate": translate.main}
PAGES = ("README.md", "CONTRIBUTING.md", "docs/tutorial.md")


def _blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.S)


def _commands() -> list[str]:
    lines = [line for page in PAGES for block in _blocks(page, "console") for line in block.splitlines()]
    return sorted({line.removeprefix("$ ") for line in lines if line.startswith("$ ")})


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
    torch._dynamo.reset()
    assert not TOOLS[tool](arguments)
    assert capfd.readouterr().out


@pytest.mark.parametrize("page", PAGES)
def test_programs_run(page: str) -> None:
    text = (ROOT / page).read_text()
    for found in re.finditer(r"```python\n(.*?)```", text, re.S):
        above = text[: found.start(1)].count("\n")  # messages show lines of the page
        exec(compile("\n" * above + found[1], str(ROOT / page), "exec"), {})


def test_makefile_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        for target in re.findall(r"[`$] ?make ([a-z][a-z-]+)", (ROOT / page).read_text()):
            assert re.search(rf"^{target}:", makefile, re.M), f"{page}: make {target}"
