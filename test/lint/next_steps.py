"""Every error of ours says what to do next: the check of it.

Run by ``make lint``; prints ``file:line: class`` of each call of an error class of ``symshape/errors.py`` that gives no
``next_step``, and fails if there is one. Classes whose constructor has a next step of its own take none.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("frontend", "analysis", "dialects", "passes", "codegen", "runtime", "prover", "symshape")
# Functions that leave the next step to their callers, which raise the error again with the command that replays it.
COMPLETED = frozenset(
    {
        ("passes/framework/base.py", "fail"),
        ("passes/framework/manager.py", "_run_step"),
        ("symshape/compiler.py", "_as_ours"),
    }
)


def problems(root: Path = ROOT) -> list[str]:
    """The calls without a next step in the package, a line each."""
    classes = _taking_a_step((root / "symshape/errors.py").read_text())
    found = []
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):  # follows no links
            name = path.relative_to(root).as_posix()
            found += [f"{name}:{line}: {kind}" for line, kind in without_step(path.read_text(), classes, name)]
    return found


def _taking_a_step(source: str) -> frozenset[str]:
    """The classes of errors whose constructor, their own or an inherited one, has an argument ``next_step``."""
    takes: dict[str, bool] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            inherited = any(takes.get(ast.unparse(base), False) for base in node.bases)
            own = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
            takes[node.name] = "next_step" in ast.unparse(own[0].args) if own else inherited
    return frozenset(name for name, taken in takes.items() if taken)


def without_step(source: str, classes: frozenset[str], name: str = "") -> Iterator[tuple[int, str]]:
    """Line and class of each call without a next step. ``name``: of the file, for `COMPLETED`."""
    if not any(f"{one}(" in source for one in classes):
        return
    tree = ast.parse(source)
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and (name, node.name) in COMPLETED
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or id(node) in skipped:
            continue
        kind = ast.unparse(node.func).rpartition(".")[2]
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        step = given.get("next_step")
        empty = step is None or (isinstance(step, ast.Constant) and not step.value)
        if kind in classes and empty and None not in given:
            yield node.lineno, kind


if __name__ == "__main__":
    lines = problems()
    print("\n".join(lines), end="\n" if lines else "")
    sys.exit(bool(lines))
