"""The figures of README.md are those of the results files."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from symshape.tools import cli

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"


def _result(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def measured() -> str:
    """The table of README.md."""
    calls, first = _result("steady_state_cpu"), _result("compile_time_cpu")
    seconds = {row["model"]: row for row in first["rows"]}
    rows = ["| | over eager | over Inductor | first call | Inductor's |", "|---|---|---|---|---|"]
    for model, ratios in calls["summary"]["ratios"].items():
        row = seconds.get(model)
        took = [f"{row[name]:.0f} s" for name in ("symshape", "inductor")] if row else ["", ""]
        cells = [model, f"{ratios['eager']:.2f}", f"{ratios['inductor']:.2f}", *took]
        rows.append(" ".join(["|", " | ".join(cells), "|"]))
    date, processor = (calls["environment"][key] for key in ("date", "processor"))
    assert [first["environment"][key] for key in ("date", "processor")] == [date, processor]
    return "\n".join([*rows, "", f"(`bench/results/`, {date}, PyTorch {calls['environment']['packages']['torch']}.)"])


def test_the_table_is_that_of_the_results() -> None:
    assert measured() in (ROOT / "README.md").read_text(encoding="utf-8"), f"the results say:\n{measured()}"


def test_the_plot_is_drawn_with_its_results() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (plot,) = re.findall(r"!\[[^\]]*\]\(([^)]+\.png)\)", text)
    assert (ROOT / plot).with_suffix(".json").is_file()
    (kernels,) = re.findall(r"for (\d+) kernels", text)
    summary = json.loads((ROOT / plot).with_suffix(".json").read_text(encoding="utf-8"))["summary"]
    assert int(kernels) == len(summary["graphs"])


def test_the_figures_of_training_are_those_of_the_results() -> None:
    ratios = _result("models_cpu")["summary"]["ratios"]
    whole, worst = (f"{ratios[name]['seconds over eager']:.2f}" for name in ("all", "dlrm"))
    assert ratios["dlrm"] == max(ratios.values(), key=lambda row: row["seconds over eager"]) and len(ratios) == 9
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"a step of eight models takes {whole} of eager mode's time, one of DLRM {worst}" in text


def test_every_bench_that_is_named_exists() -> None:
    for name in re.findall(r"`symshape bench (\w+)", (ROOT / "README.md").read_text(encoding="utf-8")):
        assert (ROOT / "bench" / f"{name}.py").is_file()


def test_every_command_extra_and_page_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    commands, *_ = re.findall(r"\{([\w,]+)\}\n", capsys.readouterr().out)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = [*commands.split(","), *(extras.keys() - {"test", "dev"})]
    pages = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert [name for name in named if f"`{name}`" not in text] == []
    assert [page for page in pages if f"]({page})" not in text] == []
