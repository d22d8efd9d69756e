"""Environment variables are declared in ``symshape.knobs`` and read there alone."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

from symshape import knobs
from symshape.errors import OptionError
from symshape.options import Options

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("symshape", "frontend", "analysis", "dialects", "passes", "codegen", "runtime", "prover")
# What these read belongs to others: the platform, the terminal, Triton.
READ_FOREIGN_VARIABLES = {
    "frontend/bridge/aot_autograd.py",
    "runtime/store.py",
    "runtime/triton/launch.py",
    "runtime/triton/lib/math.py",
    "symshape/cache/compiled_graphs.py",
    "symshape/tools/smoke.py",
    "symshape/tools/terminal.py",
}


def _tracked(*folders: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *folders],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return [ROOT / name for name in listed if (ROOT / name).is_file()]


def _reads_environment(file: Path) -> bool:
    return any(
        (isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv"))
        or (isinstance(node, ast.ImportFrom) and node.module == "os" and any("env" in name.name for name in node.names))
        for node in ast.walk(ast.parse(file.read_text()))
    )


def test_the_environment_is_read_in_one_place() -> None:
    sources = [path for path in _tracked(*FOLDERS) if path.suffix == ".py"]
    readers = {str(path.relative_to(ROOT)) for path in sources if _reads_environment(path)}
    assert readers == READ_FOREIGN_VARIABLES | {"symshape/knobs.py"}


def test_every_name_in_the_repository_is_declared() -> None:
    declared = {variable.name for variable in knobs.VARIABLES}
    for path in _tracked():
        if path.suffix in (".py", ".md", ".toml", ".mlir", ".test") or path.name == "Makefile":
            used = set(re.findall(r"\bSYMSHAPE_[A-Z]+(?:_[A-Z]+)*\b", path.read_text()))
            assert used <= declared, f"{path.relative_to(ROOT)}: {used - declared}"


def test_all_are_listed() -> None:
    assert set(knobs.VARIABLES) == {v for v in vars(knobs).values() if isinstance(v, knobs.Variable)}
    assert len({variable.name for variable in knobs.VARIABLES}) == len(knobs.VARIABLES)


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        (knobs.CACHE, None, True),
        (knobs.CACHE, "", True),
        (knobs.CACHE, "Off", False),
        (knobs.CACHE, "0", False),
        (knobs.CACHE, "1", True),
        (knobs.CACHE_DIR, "", None),
        (knobs.CACHE_DIR, "/here", "/here"),
        (knobs.CACHE_SIZE, None, 1024),
        (knobs.CACHE_SIZE, "7", 7),
        (knobs.CACHE_SIZE, "2GB", 1907),
        (knobs.CACHE_SIZE, "1.5 GiB", 1536),
        (knobs.CACHE_SIZE, "900kb", 0),
        (knobs.CACHE_DIR, "~", str(Path.home())),
        (knobs.RECORD, "~/graphs", str(Path.home() / "graphs")),
        (knobs.RECORD_DATA, "YES", True),
        (knobs.VERIFY_EACH, "false", False),
        (knobs.CPU, "", "native"),
        (knobs.CPU, "x86-64-v3", "x86-64-v3"),
        (knobs.STRICT, None, False),
        (knobs.STRICT, "", False),
        (knobs.STRICT, "0", False),
        (knobs.STRICT, "No", False),
        (knobs.STRICT, "1", True),
        (knobs.PROGRAMS, "1", 1),
    ],
)
def test_values(variable: knobs.Variable, text: str | None, value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(variable.name, raising=False)
    if text is not None:
        monkeypatch.setenv(variable.name, text)
    assert variable.read() == value


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        (knobs.CACHE, "2"),
        (knobs.CACHE_DIR, "~nobody-of-this-name/x"),
        (knobs.CACHE_SIZE, "much"),
        (knobs.CACHE_SIZE, "-1"),
        (knobs.CACHE_SIZE, "2GX"),
        (knobs.STRICT, "perhaps"),
        (knobs.PROGRAMS, "few"),
    ],
)
def test_what_is_no_value(variable: knobs.Variable, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable.name, text)
    message = f"{variable.name} cannot be '{re.escape(text)}'\n  next: it is {re.escape(variable.values)}"
    with pytest.raises(OptionError, match=message):
        variable.read()
    if not variable.tests_only:
        with pytest.raises(OptionError, match=message):  # before anything is traced
            Options.parse(None)
