"""The HTML report in Chromium: what its script draws, at two widths, light and dark (``make test-browser``).

A script is added to a copy of the page; it uses the page as a person would, and leaves what it saw in an element, which
Chromium prints with the rest of the document. So no driver is needed.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

import symshape
from symshape.tools.report import Report

pytestmark = pytest.mark.browser

_FRAME = """
addEventListener("load", () => {
  const wait = () => document.documentElement.dataset.ready ? setTimeout(look, 50) : setTimeout(wait, 20);
  const look = () => {
    let seen;
    try { seen = { value: (() => { %s })() }; } catch (error) { seen = { error: String(error) }; }
    const made = document.createElement("pre");
    made.id = "seen";
    made.textContent = JSON.stringify(seen);
    if (parent === window) document.body.append(made);
    else parent.postMessage(made.outerHTML, "*");
  };
  wait();
});
"""
# Chromium's windows are at least 500 wide; a frame is not.
_NARROW = """<body style="margin: 0"><iframe src="copy.html" style="border: 0; width: %dpx; height: 1900px"></iframe>
<script>addEventListener("message", event => document.body.insertAdjacentHTML("beforeend", event.data));</script>"""

_CONTRAST = """
const parsed = text => { const n = text.match(/[0-9.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
const linear = c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
const light = rgb => {
  const [r, g, b] = rgb.map(c => linear(c / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ground = one => {
  for (let e = one; e; e = e.parentElement) {
    const c = parsed(getComputedStyle(e).backgroundColor);
    if (c[3] > 0) return c;
  }
  return [255, 255, 255, 1];
};
for (const one of document.querySelectorAll("details")) one.open = true;
const found = [];
for (const one of document.querySelectorAll("body *")) {
  if (!one.getClientRects().length || one.closest("svg")) continue;
  if (![...one.childNodes].some(node => node.nodeType === 3 && node.data.trim())) continue;
  const a = light(parsed(getComputedStyle(one).color).slice(0, 3)), b = light(ground(one).slice(0, 3));
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) found.push([one.className, one.textContent.slice(0, 40), ratio]);
}
return found;
"""


def normalised(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    # A comment, and text: "colours"
    y = torch.softmax(x, -1) @ w
    return torch.nn.functional.layer_norm(y, (y.size(1),)) + y.t().contiguous().sum()


@pytest.fixture(scope="module")
def report() -> Report:
    return symshape.explain(normalised, torch.randn(5, 7), torch.randn(7, 9))


@pytest.fixture(scope="module")
def page(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report.html(tmp_path_factory.mktemp("page") / "page.html", "normalised")


def _seen(page: Path, script: str, width: int = 1400, dark: bool = False) -> Any:
    """What a script returns that runs in the page when all of it is drawn."""
    chromium = shutil.which("chromium")
    assert chromium, "make test-browser installs chromium"
    copy = page.with_name("copy.html")
    added = f"<script>{_FRAME % script}</script></body>"
    copy.write_text(page.read_text(encoding="utf-8").replace("</body>", added), encoding="utf-8")
    shown = copy
    if width < 500:
        shown = page.with_name("narrow.html")
        shown.write_text(_NARROW % width, encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={width},2000"]
    options += ["--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=20000", "--dump-dom"]
    options += ["--blink-settings=preferredColorScheme=0"] if dark else []
    done = subprocess.run([chromium, *options, shown.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    (text,) = re.findall(r'<pre id="seen">(.*?)</pre>', done.stdout, re.DOTALL)
    seen = json.loads(html.unescape(text))
    assert "error" not in seen, seen
    return seen["value"]


@pytest.mark.parametrize("width", [1400, 420])
def test_the_page_does_not_scroll_sideways(page: Path, width: int) -> None:
    script = """
    for (const one of document.querySelectorAll("details")) one.open = true;
    const page = document.documentElement;
    return [page.clientWidth, page.scrollWidth, document.body.scrollWidth];
    """
    client, *scrolled = _seen(page, script, width)
    assert client == width and max(scrolled) <= client


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("pressed", [False, True])
def test_contrast(page: Path, dark: bool, pressed: bool) -> None:
    first = "document.querySelector('.stages button[data-line]:not([hidden])').click();" if pressed else ""
    background = _seen(page, "return getComputedStyle(document.body).backgroundColor", dark=dark)
    assert background == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")
    assert _seen(page, first + _CONTRAST, dark=dark) == []


def test_figures_follow_the_sliders(report: Report, page: Path) -> None:
    script = """
    const exact = document.querySelectorAll("[data-exact]");
    const read = () => [...document.querySelectorAll("[data-total]")].map(one => one.textContent);
    const before = read();
    exact.forEach((one, i) => { one.value = 100 + i; one.dispatchEvent(new Event("input")); });
    const after = read();
    const slider = document.querySelector("[data-symbol]");
    slider.value = slider.min;
    slider.dispatchEvent(new Event("input"));
    return [before, after, exact[0].value, [...exact].map(one => one.dataset.exact),
            [...document.querySelectorAll("[data-step] .moved")].map(one => one.textContent)];
    """
    (graph,) = report.graphs
    before, after, least, names, moved = _seen(page, script)
    values = {name: 100 + i for i, name in enumerate(names)}
    for shown, sizes in ((before, {}), (after, values)):
        assert _bytes(shown[0]) == pytest.approx(graph.bytes_accessed(**sizes), rel=1e-3)
        assert _bytes(shown[1]) == pytest.approx(graph.library_bytes_accessed(**sizes), rel=1e-3)
    assert int(least) == min(row.min for row in graph.symbols if row.name == names[0])
    assert len(moved) == graph.launches + len(graph.library_calls) and all(moved)


def _bytes(text: str) -> float:
    number, unit = text.split()
    return float(number) * 1024 ** ["B", "KiB", "MiB", "GiB"].index(unit)


def test_the_map_shows_what_runs(report: Report, page: Path) -> None:
    script = """
    const shown = [], kernel = document.querySelector('[data-field="kernel"]');
    for (const option of kernel.options) {
      kernel.value = option.value;
      kernel.dispatchEvent(new Event("input"));
      for (const size of [1, 2, 3, 9, 40, 700, 60000]) {
        for (const exact of document.querySelectorAll("[data-exact]")) {
          exact.value = size;
          exact.dispatchEvent(new Event("input"));
        }
        const count = what => document.querySelectorAll(what).length;
        const here = document.querySelector(".here").textContent;
        shown.push([Number(option.value), size, here, count('[data-plot="map"] rect'), count(".choices li")]);
      }
    }
    return shown;
    """
    (graph,) = report.graphs
    for number, size, here, cells, choices in _seen(page, script):
        kernel = graph.kernels[number]
        values = {row.name: max(size, row.min) for row in graph.symbols}
        arguments = next(own for name, own in graph.launched if name == kernel.name)
        own = {name: expr.evaluate(values) for name, expr in zip(kernel.loops.symbols, arguments)}
        taken = next(choice for choice in kernel.choices if choice.condition.evaluate(own))
        assert here.endswith(f"{kernel.name} runs as {taken.name} ({taken.does}).")
        assert cells > 0 and choices == len(kernel.choices)


def test_a_line_is_marked_in_every_stage(page: Path) -> None:
    script = """
    const root = document.querySelector(".stages");
    document.querySelector("tr[data-step] button.show").click();
    const kernel = root.querySelector('button[data-kernel][aria-pressed="true"]').dataset.kernel;
    const focused = document.activeElement.dataset.kernel;
    const line = root.querySelector("button[data-line]:not([hidden])");
    line.click();
    const marked = panel => [panel.dataset.stage, panel.querySelectorAll(".marked").length];
    const count = () => Object.fromEntries([...root.querySelectorAll(".panel")].map(marked));
    const within = count();
    root.querySelector('button[data-kernel=""]').click();
    line.click();
    return [kernel, focused, within, count()];
    """
    kernel, focused, within, everywhere = _seen(page, script)
    assert kernel == focused != ""
    assert list(within) == ["imported", "shaped", "linalg", "kernels", "planned", "code"]
    for stage in ("imported", "linalg", "kernels"):  # nothing changes in stage "shaped", and it says so
        assert everywhere[stage] >= within[stage] > 0, stage


def test_the_keyboard_reaches_what_the_mouse_does(page: Path) -> None:
    script = """
    const reached = [...document.querySelectorAll("button, select, input, summary, a, .box, .panels, .scroll")];
    const bad = reached.filter(one => one.getClientRects().length && one.tabIndex < 0).map(one => one.outerHTML);
    const button = document.querySelector(".stages button[data-kernel]");
    button.focus({ focusVisible: true });
    return [reached.length, bad, getComputedStyle(button).outlineStyle, getComputedStyle(button).outlineWidth];
    """
    count, bad, style, width = _seen(page, script)
    assert count > 20 and bad == []
    assert (style, width) == ("solid", "3px")
