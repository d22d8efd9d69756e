"""The site in Chromium (``make test-browser``): no page scrolls sideways, and the search works from disk."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.browser
ROOT = Path(__file__).resolve().parents[2]

# All pages one after the other in a frame of this width; what is wider than it is told.
_PAGES = """<body><iframe style="border: 0; width: %dpx; height: 900px"></iframe><script>
const pages = %s, frame = document.querySelector("iframe"), seen = {};
const next = () => { pages.length ? frame.src = pages[0] : show(); };
const show = () => {
  document.body.insertAdjacentHTML("beforeend", "<pre id=seen></pre>");
  document.getElementById("seen").textContent = JSON.stringify(seen);
};
frame.onload = () => {
  const page = frame.contentDocument && frame.contentDocument.documentElement;
  if (!page || !pages.length || frame.contentDocument.URL === "about:blank") return;
  seen[pages.shift()] = [page.clientWidth, page.scrollWidth];
  next();
};
next();
</script>"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=True, capture_output=True)
    return folder


def _shown(address: str, width: int = 1400) -> str:
    chromium = shutil.which("chromium")
    assert chromium, "make test-browser installs chromium"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={width},1000"]
    options += ["--allow-file-access-from-files", "--host-resolver-rules=MAP * ~NOTFOUND"]
    options += ["--virtual-time-budget=60000", "--dump-dom"]
    return subprocess.run([chromium, *options, address], capture_output=True, text=True, timeout=300, check=True).stdout


@pytest.mark.parametrize("width", [1400, 420])
def test_no_page_scrolls_sideways(site: Path, width: int) -> None:
    pages = sorted(str(page.relative_to(site)) for page in site.rglob("*.html") if page.name != "404.html")
    (site / "all-pages.htm").write_text(_PAGES % (width, json.dumps(pages)))
    (text,) = re.findall(r"<pre id=\"seen\">(.*?)</pre>", _shown((site / "all-pages.htm").as_uri(), width + 100))
    seen = json.loads(html.unescape(text))
    assert set(seen) == set(pages)
    assert {page for page, (client, scrolled) in seen.items() if client != width or scrolled > client} == set()


def test_the_search_works_from_disk(site: Path) -> None:
    shown = _shown(f"{(site / 'index.html').as_uri()}?q=prover")
    assert re.search(r"\d+ matching documents", shown)
