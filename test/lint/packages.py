"""The list of packages stands in ``pyproject.toml`` (``[tool.setuptools]``); every other list must agree with it.

Run by ``make lint``; prints what differs, and fails if something does. Compared are: the folders on disk, the links
``symshape/X``, the lists of ruff, mypy, pyright and import-linter, and every list of folders in Python files.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MANY = 5  # a list in a Python file that names so many of the folders is meant to name all


def problems(root: Path = ROOT) -> list[str]:
    """What differs from the list of packages, a line each."""
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    tools = settings["tool"]
    packages: list[str] = tools["setuptools"]["packages"]
    folders = {name: folder for name, folder in tools["setuptools"]["package-dir"].items() if name != folder}
    return [
        *_on_disk(root, packages, folders),
        *_links(root, folders.values()),
        *_checkers(tools, sorted(folders.values())),
        *_mypy(root, tools["mypy"], folders),
        *_contracts(root, tools["importlinter"], packages, folders),
        *_python_lists(root, set(folders.values())),
    ]


def _on_disk(root: Path, packages: list[str], folders: dict[str, str]) -> Iterator[str]:
    present = {_name(path.parent, root) for path in (root / "symshape").rglob("__init__.py")}  # follows no links
    for folder in folders.values():
        present |= {f"symshape.{_name(path.parent, root)}" for path in (root / folder).rglob("__init__.py")}
    yield from _differences("packages", packages, present)
    below = {
        f"symshape.{path.name}" for path in (root / "symshape").iterdir() if path.is_dir() and not path.is_symlink()
    }
    top = {name for name in packages if name.count(".") == 1} - below
    yield from _differences("package-dir", folders, top)
    for name, folder in folders.items():
        if name != f"symshape.{folder}":
            yield f"package-dir: {name} is the folder {folder}"


def _name(folder: Path, root: Path) -> str:
    return ".".join(folder.relative_to(root).parts)


def _links(root: Path, folders: Iterable[str]) -> Iterator[str]:
    found = {path.name: path for path in (root / "symshape").iterdir() if path.is_symlink()}
    yield from _differences("links symshape/X", found, folders)
    for name, path in found.items():
        if path.readlink() != Path("..") / name:
            yield f"links: symshape/{name} leads to {path.readlink()}"


def _checkers(tools: dict[str, Any], folders: list[str]) -> Iterator[str]:
    ruff = tools["ruff"]
    own = [name for name in ruff["exclude"] if name.startswith("symshape/")]
    yield from _differences("ruff exclude", own, [f"symshape/{folder}" for folder in folders])
    banned = ruff["lint"]["flake8-tidy-imports"]["banned-api"]
    yield from _differences("ruff banned-api", banned, folders)
    for name, row in banned.items():
        if row["msg"] != f"import symshape.{name}":
            yield f"ruff banned-api: {name} says {row['msg']!r}"
    yield from _differences("pyright include", tools["pyright"]["include"], ["symshape", *folders])


def _mypy(root: Path, mypy: dict[str, Any], folders: dict[str, str]) -> Iterator[str]:
    yield from _differences("mypy packages", mypy["packages"], ["symshape"])
    for override in mypy["overrides"]:
        modules = override["module"] if isinstance(override["module"], list) else [override["module"]]
        for module in modules:
            if module.startswith("symshape") and not _is_module(root, module.removesuffix(".*"), folders):
                yield f"mypy overrides: there is no {module}"


def _contracts(root: Path, linter: dict[str, Any], packages: list[str], folders: dict[str, str]) -> Iterator[str]:
    layered: set[str] = set()
    above: set[str] = set()
    for contract in linter["contracts"]:
        layers = [name.strip() for layer in contract.get("layers", ()) for name in layer.split("|")]
        sources, forbidden = contract.get("source_modules", []), contract.get("forbidden_modules", [])
        layered |= set(layers)
        if any(name.startswith("symshape.") and name.count(".") == 1 for name in forbidden):  # not parts of a folder
            above |= set(forbidden)
            yield from _missing(f"import-linter, {contract['name']!r}", sources, folders)
        for name in (*layers, *sources, *forbidden):
            if name.startswith("symshape") and not _is_module(root, name, folders):
                yield f"import-linter, {contract['name']!r}: there is no {name}"
    yield from _missing("import-linter, layers", layered, folders)
    own = {name for name in packages if name.count(".") == 1} - set(folders)
    yield from _missing("import-linter, either a layer or forbidden to the layers", layered | above, own)


def _is_module(root: Path, name: str, folders: dict[str, str]) -> bool:
    parts = name.split(".")
    path = root.joinpath(*parts[1:] if ".".join(parts[:2]) in folders else parts)
    return (path / "__init__.py").is_file() or path.with_suffix(".py").is_file()


def _python_lists(root: Path, folders: set[str]) -> Iterator[str]:
    """Lists, tuples and sets of texts that name many of the folders, but not all."""
    tops = [path for path in root.iterdir() if path.is_dir() and not path.name.startswith(".") and path.name != "build"]
    for file in sorted(file for top in tops for file in top.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
                texts = [e.value for e in node.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)]
                named = {text.removeprefix("symshape.").rstrip("/") for text in texts} & folders
                if len(named) >= MANY and named != folders:
                    yield f"{file.relative_to(root)}:{node.lineno}: without {', '.join(sorted(folders - named))}"


def _missing(where: str, found: Iterable[str], wanted: Iterable[str]) -> Iterator[str]:
    if left := set(wanted) - set(found):
        yield f"{where}: without {', '.join(sorted(left))}"


def _differences(where: str, found: Iterable[str], wanted: Iterable[str]) -> Iterator[str]:
    found, wanted = set(found), set(wanted)
    yield from _missing(where, found, wanted)
    if more := found - wanted:
        yield f"{where}: too much is {', '.join(sorted(more))}"


def main() -> int:
    """Exit status 1 where a list differs."""
    found = problems()
    for line in found:
        print(f"packages: {line}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
