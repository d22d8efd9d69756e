"""The check of the lists of packages finds a difference in each of them."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
problems: Callable[[Path], list[str]] = runpy.run_path(str(ROOT / "test" / "lint" / "packages.py"))["problems"]
FOLDERS = ("frontend", "analysis", "dialects", "passes", "codegen", "runtime", "prover")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The settings, empty modules, and links."""
    for top in (*FOLDERS, "symshape"):
        for file in (ROOT / top).rglob("*.py"):
            target = tmp_path / file.relative_to(ROOT)
            if not file.is_relative_to(ROOT / top / "nothing") and not _below_a_link(file):
                target.parent.mkdir(parents=True, exist_ok=True)
                target.touch()
    for folder in FOLDERS:
        (tmp_path / "symshape" / folder).symlink_to(Path("..") / folder)
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    return tmp_path


def _below_a_link(file: Path) -> bool:
    return any(parent.is_symlink() for parent in file.parents if parent != ROOT and parent.is_relative_to(ROOT))


def _edit(tree: Path, old: str, new: str) -> None:
    text = (tree / "pyproject.toml").read_text()
    assert old in text
    (tree / "pyproject.toml").write_text(text.replace(old, new))


@pytest.mark.long  # `make lint` says the same; the edited copies below start from lists that agree
def test_the_lists_agree(tree: Path) -> None:
    assert problems(ROOT) == []
    assert problems(tree) == []


# What is edited in pyproject.toml, what it becomes, and what is found.
EDITS = (
    ('    "symshape.passes.plans",\n', "", "packages: without symshape.passes.plans"),
    ('    "symshape.tools",\n', '    "symshape.tools",\n    "symshape.gone",\n', "packages: too much is symshape.gone"),
    ('"symshape.prover" = "prover"\n', "", "package-dir: without symshape.prover"),
    ('"symshape/prover", ', "", "ruff exclude: without symshape/prover"),
    ('"runtime".msg = "import symshape.runtime"\n', "", "ruff banned-api: without runtime"),
    ('"runtime".msg = "import symshape.runtime"', '"runtime".msg = "no"', "ruff banned-api: runtime says 'no'"),
    ('"codegen", "runtime", "prover"]\n', '"codegen", "runtime"]\n', "pyright include: without prover"),
    ('packages = ["symshape"]', 'packages = ["symshap"]', "mypy packages: without symshape"),
    ('"symshape.passes.stages"]', '"symshape.passes.stage"]', "mypy overrides: there is no symshape.passes.stage"),
    (
        '    "symshape.analysis",\n    "symshape.dialects",\n',
        "",
        "layers: without symshape.analysis, symshape.dialects",
    ),
    ('"symshape.dialects", "symshape.tools.opt"]', '"symshape.dialect"]', "there is no symshape.dialect"),
)


@pytest.mark.parametrize(("old", "new", "found"), EDITS, ids=[found for _, _, found in EDITS])
def test_differences_are_found(tree: Path, old: str, new: str, found: str) -> None:
    _edit(tree, old, new)
    assert any(found in line for line in problems(tree)), problems(tree)


def _add_package(tree: Path) -> None:
    (tree / "passes" / "new").mkdir()
    (tree / "passes" / "new" / "__init__.py").touch()


def _add_unlayered(tree: Path) -> None:
    (tree / "symshape" / "new").mkdir()
    (tree / "symshape" / "new" / "__init__.py").touch()
    _edit(tree, '    "symshape.tools",\n', '    "symshape.tools",\n    "symshape.new",\n')


def _break_link(tree: Path) -> None:
    (tree / "symshape" / "passes").unlink()
    (tree / "symshape" / "passes").symlink_to(Path("..") / "codegen")


def _add_list(tree: Path) -> None:
    (tree / "symshape" / "api.py").write_text('F = ["frontend", "dialects", "passes/", "codegen", "symshape.runtime"]')


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (_add_package, "packages: without symshape.passes.new"),
        (_add_unlayered, "either a layer or forbidden to the layers: without symshape.new"),
        (_break_link, "links: symshape/passes leads to ../codegen"),
        (_add_list, "symshape/api.py:1: without analysis, prover"),
    ],
)
def test_changes_of_the_tree_are_found(tree: Path, change: Callable[[Path], Any], found: str) -> None:
    change(tree)
    assert any(found in line for line in problems(tree)), problems(tree)
