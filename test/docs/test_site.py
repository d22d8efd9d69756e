"""The site: what its menu names exists, anchors lead somewhere, it is built without a warning and loads nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MENU = re.findall(r"^ +- (?:.+: )?([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
OUTSIDE = {"index.md", "CONTRIBUTING.md", "CHANGELOG.md"}


def _anchors(page: Path) -> set[str]:
    """Those that GitHub gives the headings of a page, and the site too."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_the_menu_has_every_page() -> None:
    there = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert len(MENU) == len(set(MENU))
    assert there == set(MENU) - OUTSIDE


@pytest.mark.parametrize(
    "page", [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=str
)
def test_anchors_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text()):
        if "://" not in target:
            assert anchor in _anchors(page.parent / target if target else page), f"{target}#{anchor}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("material") is None:
        pytest.skip("needs symshape[site]")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.long
def test_it_is_built_and_loads_nothing(site: Path) -> None:
    loaded = re.compile(r'(?:<(?:script|img|iframe)[^>]* src|<link[^>]* href)="?((?:https?:)?//[^">]+)')
    for page in site.rglob("*.html"):
        assert not loaded.findall(page.read_text()), page
        assert not re.findall(r"url\((?:https?:)?//|@import", page.read_text()), page
    for sheet in site.rglob("*.css"):
        assert not re.findall(r"url\([\"']?(?:https?:)?//", sheet.read_text()), sheet


@pytest.mark.long
def test_files_that_pages_link_to_are_shown(site: Path) -> None:
    shown = (site / "files/examples/drop_mul_by_one.py.html").read_text()
    assert "DropMulByOne" in shown and 'class="highlight"' in shown
    assert 'href="files/examples.html"' in (site / "index.html").read_text()
    assert "drop_mul_by_one.py.html" in (site / "files/examples.html").read_text()
