"""What is installed: every package and file, the entry points, and nothing twice."""

from __future__ import annotations

import tomllib
import zipfile
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from project_wheel import build_wheel

from symshape.version import VERSION

ROOT = Path(__file__).resolve().parents[2]


def _settings() -> dict[str, dict[str, object]]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


# Those at the top of the repository.
FOLDERS = tuple(folder for folder in _settings()["tool"]["setuptools"]["package-dir"].values() if folder != "symshape")  # type: ignore[index]


def _sources() -> set[str]:
    """All modules, as paths inside of the wheel."""
    own = {path.relative_to(ROOT) for path in (ROOT / "symshape").rglob("*.py")}  # which does not follow links
    return {str(path) for path in own if path.parts[1] not in FOLDERS} | {
        f"symshape/{path.relative_to(ROOT)}" for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")
    }


def test_every_package_is_listed() -> None:
    listed = set(_settings()["tool"]["setuptools"]["packages"])  # type: ignore[index]
    present = {str(Path(source).parent).replace("/", ".") for source in _sources()}
    assert listed == present


def test_the_tools_print_the_version_of_the_package() -> None:
    assert _settings()["project"]["version"] == VERSION


def test_links_lead_to_the_folders() -> None:
    for folder in FOLDERS:
        link = ROOT / "symshape" / folder
        assert link.is_symlink()
        assert link.resolve() == ROOT / folder


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    return zipfile.ZipFile(build_wheel(tmp_path_factory.mktemp("wheel")))


def test_the_wheel_holds_every_file_once(wheel: zipfile.ZipFile) -> None:
    modules = [name for name in wheel.namelist() if name.endswith(".py")]
    assert len(modules) == len(set(modules))
    assert set(modules) == _sources()


def test_the_wheel_is_typed_and_has_its_license(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    assert "symshape/py.typed" in names
    assert any(name.endswith("dist-info/licenses/LICENSE") for name in names)
    metadata = wheel.read(next(name for name in names if name.endswith("dist-info/METADATA"))).decode()
    assert "License-Expression: BSD-3-Clause" in metadata


@pytest.mark.parametrize("page", ["html_report", "dashboard"])
def test_the_wheel_has_the_templates(wheel: zipfile.ZipFile, page: str) -> None:
    folder = f"symshape/tools/{page}/templates"
    present = {f"{folder}/{path.name}" for path in (ROOT / folder).iterdir()}
    assert present and present == {name for name in wheel.namelist() if name.startswith(f"{folder}/")}


def test_the_wheel_has_the_entry_points(wheel: zipfile.ZipFile) -> None:
    name = next(name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    text = wheel.read(name).decode()
    assert "symshape = symshape.backend:symshape_backend" in text
    for tool in (
        "symshape-opt = symshape.tools.opt:main",
        "symshape-translate = ",
        "symshape = symshape.tools.cli:main",
    ):
        assert tool in text


def test_entry_points_can_be_loaded() -> None:
    (backend,) = entry_points(group="torch_dynamo_backends", name="symshape")
    assert callable(backend.load())
    for script in _settings()["project"]["scripts"]:  # type: ignore[attr-defined]
        (entry,) = entry_points(group="console_scripts", name=script)
        assert callable(entry.load())
