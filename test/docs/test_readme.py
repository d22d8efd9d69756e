"""The figures of README.md are those of the results files."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from symshape.tools import cli
from symshape.tools.measure import geometric_mean

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"
INDUCTOR = ("inductor_dynamic", "inductor_static")


def _result(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def measured() -> str:
    """The table of README.md."""
    result = _result("dashboard")
    models: dict[str, dict[str, dict[str, float]]] = {}
    for row in result["rows"]:
        figures = {name: value["median"] for name, value in row["figures"].items() if value}
        models.setdefault(f"{row['group']}/{row['model']}", {})[row["way"]] = figures
    zoo = {name.partition("/")[2]: [name] for name in models if name.startswith("zoo/")}
    others = [name for name in models if name.startswith("transformers/")]
    groups = zoo | {f"{len(others)} of transformers": others, f"all {len(models)}": list(models)}
    rows = [
        "| | over eager | over Inductor | over static | first call | Inductor's | static |",
        "|---|---|---|---|---|---|---|",
    ]
    rows += [_row(label, [models[name] for name in names]) for label, names in groups.items()]
    environment = result["environment"]
    torch = environment["packages"]["torch"]
    return "\n".join([*rows, "", f"(`bench/results/`, {environment['date']}, PyTorch {torch}.)"])


def _row(label: str, models: list[dict[str, dict[str, float]]]) -> str:
    """Geometric means over the models that run in both of the ways that a cell is about."""

    def mean(way: str, figure: str, over: str = "") -> float:
        pairs = [(ways[way].get(figure), ways[over].get(figure) if over else 1.0) for ways in models]
        return geometric_mean(a / b for a, b in pairs if a is not None and b is not None)

    calls = [mean("symshape", "over_eager"), *(mean("symshape", "over_eager", way) for way in INDUCTOR)]
    first = [mean(way, "first") for way in ("symshape", *INDUCTOR)]
    return f"| {label} | {' | '.join([*(f'{x:.2f}' for x in calls), *(f'{x:.0f} s' for x in first)])} |"


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
