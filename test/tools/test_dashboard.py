"""The dashboard: what is resumed and what is not, figures, means, regressions, and the page's elements."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from symshape.errors import OptionError
from symshape.tools import commit
from symshape.tools.dashboard import history
from symshape.tools.dashboard.figures import FIGURES, AtSize, at_sizes, by_model, means, passes
from symshape.tools.dashboard.measurements import Key, Measurement, Setting, Store
from symshape.tools.dashboard.operator_databases import operator_results
from symshape.tools.dashboard.page import html

ROOT = Path(__file__).resolve().parents[2]
HERE = Setting("a processor, 2 cores", "Python 3.11", "1 threads")


def one(model: str, way: str = "symshape", turn: int = 0, call: float = 1.0, **changed: object) -> Measurement:
    """``call``: seconds over eager mode's, at two sizes."""
    key = Key("c1", HERE, "zoo", model, way, turn)
    seconds = {"a": {"eager": [1.0, 2.0, 3.0], way: [2 * call]}, "b": {"eager": [8.0], way: [8 * call]}}
    figures = {"first": 4.0, "memory": 10**6, "graphs": 1, "kernels": 5, "seconds": seconds, "errors": {"a": 1e-7}}
    return Measurement(key, "2026-01-01 10:00", **{**figures, **changed})


def test_a_run_goes_on_where_it_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    store = Store(path)
    for model in ("bert", "t5"):
        store.add(one(model))
    with path.open("a") as file:
        file.write('{"key": {"commit": "c1", "set')  # killed while it wrote
    again = Store(path)
    again.add(one("vit"))
    last = Store(path)
    assert [found.key.model for found in last.having("c1", HERE)] == ["bert", "t5", "vit"]
    assert last.measurements == again.measurements
    assert last.broken == 1 and "1 unfinished" in last.kept([], "c1", HERE)


def test_other_commits_and_machines_are_not_mixed_in(tmp_path: Path) -> None:
    store = Store(tmp_path / "rows.jsonl")
    mine, elsewhere = one("bert"), replace(HERE, machine="another")
    store.add(mine)
    store.add(replace(mine, key=replace(mine.key, commit="c2")))
    store.add(replace(mine, key=replace(mine.key, setting=elsewhere)))
    wanted = [mine.key, replace(mine.key, turn=1)]
    assert store.having("c1", HERE) == [mine]
    said = store.kept(wanted, "c1", HERE)
    assert said == "1 of 2 measurements are there already; 2 of other commits, machines or conditions are not used"


def test_the_commit_tells_changes_of_code_but_not_results(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a", *words], cwd=tmp_path, check=True)

    (tmp_path / "bench" / "results").mkdir(parents=True)
    (tmp_path / "code.py").write_text("1\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "one")
    clean = commit.current(tmp_path)
    (tmp_path / "bench" / "results" / "rows.json").write_text("{}")
    assert commit.current(tmp_path) == clean and "+" not in clean
    (tmp_path / "new.py").write_text("2\n")
    untracked = commit.current(tmp_path)
    (tmp_path / "code.py").write_text("3\n")
    assert untracked.startswith(f"{clean}+")
    assert commit.current(tmp_path) not in (clean, untracked)
    assert commit.of_file(tmp_path, tmp_path / "code.py") and not commit.of_file(tmp_path, tmp_path / "new.py")


def test_a_folder_of_another_checkout_has_no_commit(tmp_path: Path) -> None:
    author = ["-c", "user.name=a", "-c", "user.email=a"]
    for words in (["init", "-q"], [*author, "commit", "-q", "--allow-empty", "-m", "theirs"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    installed = tmp_path / "site-packages"
    installed.mkdir()
    with pytest.raises(OptionError, match="site-packages/ of another checkout"):
        commit.current(installed)


def test_figures_are_medians_over_turns() -> None:
    (row,) = by_model([one("bert", turn=turn, call=call) for turn, call in enumerate((1.0, 2.0, 4.0))])
    found = row.figures["over_eager"]
    assert (found.median, found.low, found.high, found.turns) == (2.0, 1.0, 4.0, 3)
    assert row.figures["per_call"].median == pytest.approx(8.0)  # sqrt(4 * 16)
    assert "bytes" not in row.figures and row.passed


def test_times_at_each_size() -> None:
    rows = by_model([one("bert", call=2.0), one("bert", "aot_eager", call=3.0), one("t5", seconds={}, error="fails")])
    assert at_sizes(rows, "zoo") == [
        AtSize("bert", "a", True, 2.0, {"symshape": 4.0, "aot_eager": 6.0}),
        AtSize("bert", "b", False, 8.0, {"symshape": 16.0, "aot_eager": 24.0}),
    ]


def test_what_fails_is_a_row() -> None:
    rows = by_model(
        [
            one("bert", errors={"a": 0.5}),
            one("t5", errors={"a": float("nan")}),
            one("vit", turn=0),
            one("vit", turn=1, error="RuntimeError: no"),
            Measurement(Key("c1", HERE, "zoo", "gpt2", "symshape", 0), "", error="not done"),
        ]
    )
    said = {row.model: row.error for row in rows}
    assert said["bert"] == "numbers differ from eager's by 0.5" and said["t5"]
    assert said["vit"] == "RuntimeError: no" and said["gpt2"] == "not done"
    assert passes(rows) == {"zoo": {"symshape": (0, 4)}}
    assert not means(rows)


def test_means_are_over_the_models_that_all_ways_have() -> None:
    rows = by_model(
        [
            one("bert", call=0.5),
            one("t5", call=2.0),
            one("vit", call=100.0),
            one("bert", "aot_eager", call=1.0, kernels=None),
            one("t5", "aot_eager", call=4.0, kernels=None),
            one("vit", "aot_eager", error="fails", kernels=None),
        ]
    )
    found = {mean.figure.name: mean for mean in means(rows)}
    assert found["over_eager"].models == 2
    assert found["over_eager"].values == pytest.approx({"symshape": 1.0, "aot_eager": 2.0})
    assert list(found["over_eager"].values) == ["symshape", "aot_eager"]
    assert found["kernels"].models == 3 and list(found["kernels"].values) == ["symshape"]


def _run(code: str, calls: dict[str, tuple[float, ...]], **changed: object) -> history.Run:
    rows = by_model(
        [one(m, turn=i, call=call, **changed) for m, turns in calls.items() for i, call in enumerate(turns)]
    )
    return history.run_of(code, "2026-01-01", HERE, rows)


def test_regressions_are_named_beyond_noise_only() -> None:
    old = _run("c1", {"bert": (1.0, 1.1), "t5": (1.0, 1.1), "vit": (1.0, 1.1)})
    new = _run("c2", {"bert": (1.5, 1.6), "t5": (1.11, 1.12), "vit": (0.5, 0.55)})
    found = history.changes(old, new)
    assert [(change.model, change.what) for change in found] == [
        ("zoo/bert", "time of a call over eager's"),
        ("zoo/vit", "time of a call over eager's"),
    ]
    assert found[0].ratio > 1 > found[1].ratio
    assert not history.changes(old, old)


def test_without_turns_there_is_no_noise_and_only_counts_are_compared() -> None:
    old, new = _run("c1", {"bert": (1.0,)}), _run("c2", {"bert": (9.0,)}, kernels=6)
    (change,) = history.changes(old, new)
    assert (change.what, change.before, change.after) == ("kernels launched", 5, 6)
    timed = next(figure for figure in FIGURES if figure.name == "over_eager")
    assert history.noise(timed, old, new) is None


def test_a_model_that_fails_now_is_the_worst_change() -> None:
    old, new = _run("c1", {"bert": (1.0, 1.0), "t5": (1.0, 1.0)}), _run("c2", {"bert": (2.0, 2.0)})
    new = replace(new, failed={"zoo/t5": "CompileError: no"})
    worst = history.changes(old, new)[0]
    assert (worst.model, worst.what, worst.text) == ("zoo/t5", "passed, and fails now", "CompileError: no")


def test_history_keeps_a_line_for_each_commit_and_setting(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    runs = [_run("c1", {"bert": (1.0, 2.0)}), _run("c2", {"bert": (1.0, 3.0)})]
    elsewhere = replace(runs[0], commit="c0", setting=replace(HERE, machine="another"))
    again = _run("c2", {"bert": (5.0, 5.0)})
    history.write(path, history.added([*runs, elsewhere], again))
    found = history.read(path)
    assert found == [runs[0], elsewhere, again]
    assert history.before(found, again) == runs[0]
    assert history.before(found[1:], again) is None
    fewer = _run("c3", {"t5": (1.0, 1.0)})
    assert history.before([runs[0], fewer], again) == runs[0]  # it has the model
    assert history.trend([*runs, fewer, elsewhere], again) == runs


class _Elements(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_the_page_is_one_file_that_keyboards_can_use() -> None:
    pytest.importorskip("jinja2")
    calls = {"bert": (1.0, 1.0), "t5": (1.0, 1.0)}
    rows = by_model(
        [
            *(one(m, turn=i, call=2 * c) for m, turns in calls.items() for i, c in enumerate(turns)),
            one("vit", error="RuntimeError: <b>"),
            one("bert", "inductor_static"),
        ]
    )
    runs = [_run("c0", calls), history.run_of("c1", "2026-01-02", HERE, rows)]
    text = html(rows, runs, operator_results(ROOT), [])
    elements = _Elements(text).found
    ids = {attributes["id"] for _, attributes in elements if "id" in attributes}
    links = {str(attributes["href"])[1:] for tag, attributes in elements if tag == "a"}
    assert links <= ids and {"passes", "operators", "failed", "geometric-means", "worse", "zoo"} <= ids
    boxes = [attributes for _, attributes in elements if "box" in str(attributes.get("class", "")).split()]
    assert boxes and all(box["tabindex"] == "0" and box["aria-label"] for box in boxes)
    assert not [tag for tag, a in elements if tag in ("script", "link") or str(a.get("src", "data:"))[:5] != "data:"]
    assert "http" not in text and "RuntimeError: &lt;b&gt;" in text
    assert "2 of 3" in text and "1 to 2, 2 times" in text


def test_operator_results_have_their_commit_and_date() -> None:
    first, *_ = operator_results(ROOT)
    recorded = json.loads((ROOT / "bench" / "results" / first.file).read_text())
    assert not first.options and first.date == recorded["environment"]["date"] and first.commit
    assert 0 < first.passed <= first.operators


@pytest.mark.long
def test_a_model_is_measured_once(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    command = [sys.executable, str(ROOT / "bench" / "dashboard.py"), "--models", "transformers/regnet", "--sizes", "2"]
    command += ["--ways", "symshape,aot_eager", "--rounds", "1", "--jobs", "1", "--turns", "1", "--out", str(tmp_path)]
    command += ["--rows", str(tmp_path / "rows.jsonl")]
    first = subprocess.run(command, capture_output=True, text=True, check=True)
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "2 measurements in" in first.stdout and "0 measurements in" in again.stdout
    assert "2 of 2 measurements are there already" in again.stderr
    rows = {json.loads(line)["key"]["way"]: json.loads(line) for line in (tmp_path / "rows.jsonl").open()}
    assert not rows["symshape"]["error"] and rows["symshape"]["graphs"] == 1 and rows["symshape"]["kernels"] > 0
    assert rows["symshape"]["bytes"] > 0 and rows["aot_eager"]["bytes"] is None
    assert len((tmp_path / "dashboard_history.jsonl").read_text().splitlines()) == 1
    assert (tmp_path / "dashboard-over_eager.png").stat().st_size > 1000
    assert "data:image/svg+xml" in (tmp_path / "dashboard.html").read_text()
