"""Plots: tidy rows as panels, files of figures, and results that are kept as JSON."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from symshape.errors import OptionError
from symshape.tools import cli
from symshape.tools.measure import write_result
from symshape.tools.plot_results import draw, regret
from symshape.tools.plots import Axes, Panel, Series, as_uri, lines, panels, points, save

ROWS = [
    {"kernel": "a", "way": "ours", "size": 8, "seconds": 2.0},
    {"kernel": "a", "way": "ours", "size": 4, "seconds": 1.0},
    {"kernel": "a", "way": "ours", "size": 8, "seconds": 4.0},
    {"kernel": "a", "way": "theirs", "size": 4, "seconds": 7.0},
    {"kernel": "b", "way": "theirs", "size": 4, "seconds": 5.0},
]


def test_rows_become_panels() -> None:
    merged = panels(ROWS, panel="kernel", series="way", x="size", y="seconds")
    assert merged[0] == Panel(
        "a", [Series("ours", [4, 8], [1.0, 3.0], [1.0, 2.0], [1.0, 4.0]), Series("theirs", [4], [7.0], [7.0], [7.0])]
    )
    assert [panel.title for panel in merged] == ["a", "b"]
    single = panels(ROWS, panel="kernel", series="way", x="size", y=lambda row: 2 * row["seconds"], merged=False)
    assert single[0].series[0] == Series("ours", [4, 8, 8], [2.0, 4.0, 8.0])


def test_figures_become_files(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    axes = Axes("size", "seconds", log_x=True, log_y=True, reference=1.0, limits=(0.1, 10))
    figure = lines(panels(ROWS, panel="kernel", series="way", x="size", y="seconds"), axes)
    assert save(figure, tmp_path / "new" / "a.png").read_bytes().startswith(b"\x89PNG")
    names = points(["x", "y"], [Series("ours", ["y", "x"], [1.0, 2.0])], Axes("", "seconds", reference=1.0))
    assert as_uri(names).startswith("data:image/svg+xml;base64,") and as_uri(names) == as_uri(names)
    assert [label.get_text() for label in names.axes[0].get_yticklabels()] == ["x", "y"]


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(OptionError, match="symshape\\[bench\\]"):
        lines([Panel("a", [])], Axes("x", "y"))


SWEEP = [
    {"program": "p", "size": str(n), "points": n, "parameter": "tile", "value": value, "seconds": n * (1 + turn)}
    for n in (4, 8)
    for value in ("1", "2")
    for turn in (0, 2)
]
ABLATION = [
    {"subject": subject, "variant": variant, "ratio": ratio}
    for subject in ("bert", "t5")
    for variant, ratio in (("pipeline", 1.0), ("without fuse-kernels", 3.0))
]


@pytest.mark.parametrize(("kind", "rows"), [("sweep", SWEEP), ("ablation", ABLATION)])
def test_results_are_drawn(kind: str, rows: list[dict[str, object]], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write_result(tmp_path / "a.json", kind, rows)
    assert cli.main(["plot", str(tmp_path / "a.json")]) == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in draw(tmp_path / "a.json", tmp_path / "b.svg").read_bytes()


def test_regret_is_drawn_with_the_range_of_samples() -> None:
    pytest.importorskip("matplotlib")
    (place,) = regret(SWEEP).axes
    assert place.get_title() == "p: tile"
    assert [list(line.get_ydata()) for line in place.get_lines()[:2]] == [[1.0, 1.0], [1.0, 1.0]]  # medians
    assert {round(float(y), 6) for band in place.collections for y in band.get_paths()[0].vertices[:, 1]} == {0.5, 1.5}


def test_what_is_no_result_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_result(tmp_path / "other.json", "guards", [{"a": 1}])
    (tmp_path / "list.json").write_text("[]")
    for name, said in (("other", "which has no plot"), ("list", "is no result"), ("missing", "is no result")):
        assert cli.main(["plot", str(tmp_path / f"{name}.json")]) == 1
        assert said in capsys.readouterr().err


def test_a_legend_is_not_wider_than_its_figure() -> None:
    series = [Series(f"a way with a name of some length: {i}", [1, 2], [1.0, 2.0]) for i in range(5)]
    figure = lines([Panel("one", series)], Axes("x", "y"))
    figure.canvas.draw()
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert 0 <= box.x0 and box.x1 <= figure.bbox.x1
    inside = points(["a"], [Series("s", ["a"], [90.0])], Axes("", "%", limits=(0, 102)))
    assert inside.axes[0].get_xlim() == (0, 102)
