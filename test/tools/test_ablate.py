"""``symshape ablate``: what a pass is worth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from symshape.errors import OptionError
from symshape.tools import ablate, cli
from symshape.tools.measure import median_interval

MODEL = """
from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Scale:
    by: float


def chain(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * Scale(2.0).by, -1) + x.sum(0)


def inputs() -> tuple[torch.Tensor, ...]:
    return (torch.randn(6, 9),)
"""
FAILING = """
from dataclasses import dataclass
from typing import ClassVar

from symshape.passes.framework.base import Pass


@dataclass(frozen=True)
class Failing(Pass):
    name: ClassVar[str] = "failing"

    def run(self, module, context):
        raise ValueError("nothing works")
"""

WRONG = """
from dataclasses import dataclass
from typing import ClassVar

from symshape.dialects.accessors import body_of, main_functions
from symshape.passes.framework.base import Pass


@dataclass(frozen=True)
class NoProducts(Pass):
    name: ClassVar[str] = "no-products"

    def run(self, module, context):
        ops = [op for function in main_functions(module) for op in body_of(function) if op.name == "linalg.generic"]
        for op in (inner.operation for op in ops for inner in op.regions[0].blocks[0].operations):
            if op.name == "arith.mulf":
                op.results[0].replace_all_uses_with(op.operands[0])
"""
IDLE = """
from dataclasses import dataclass
from typing import ClassVar

from symshape.passes.framework.base import Pass


@dataclass(frozen=True)
class Idle(Pass):
    name: ClassVar[str] = "idle"

    def run(self, module, context):
        pass
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return f"{path}:chain"


def test_rows(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "rows.json"
    assert (
        cli.main(["ablate", model, "--without", "fuse-kernels,reuse-buffers", "--rounds", "1", "--out", str(out)]) == 0
    )
    shown = capsys.readouterr().out
    assert [name in shown for name in ("pipeline", "without fuse-kernels", "without reuse-buffers")] == [True] * 3
    rows = {row["variant"]: row for row in json.loads(out.read_text())["rows"]}
    whole, unfused = rows["pipeline"], rows["without fuse-kernels"]
    assert len(rows) == 3 and all(row["subject"] == model and row["graphs"] == 1 for row in rows.values())
    assert unfused["kernels"] > whole["kernels"] and unfused["bytes"] > whole["bytes"]
    assert all(row["error"] < 1e-6 and row["fallbacks"] == 0 and row["seconds"] > 0 for row in rows.values())
    assert whole["ratio"] == whole["ratio_from"] == whole["ratio_to"] == 1 and whole["same_code"]
    assert not unfused["same_code"] and unfused["ratio_from"] <= unfused["ratio"] <= unfused["ratio_to"]
    assert not any(row["wrong"] for row in rows.values())


def test_a_pass_that_changes_results_is_flagged(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(WRONG)
    assert cli.main(["ablate", model, "--load-pass", str(path), "--with", "no-products", "--rounds", "1"]) == 1
    pipeline, wrong = (line for line in capsys.readouterr().out.splitlines() if line.startswith(model))
    assert wrong.endswith("wrong results") and not pipeline.endswith("wrong results")


def test_equal_code_has_no_ratio(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "idle.py"
    path.write_text(IDLE)
    added = ["--load-pass", str(path), "--with", "idle"]
    assert cli.main(["ablate", model, *added, "--rounds", "2", "--threads", "1"]) == 0
    (row,) = (line.split() for line in capsys.readouterr().out.splitlines() if " with idle" in line)
    assert row[-7:-4] == ["-", "-", "-"] and row[-3:] == ["the", "same", "code"]


def test_median_interval() -> None:
    assert median_interval([3.0, 1.0, 2.0]) == (1, 3)
    assert median_interval(range(7)) == (0, 6)  # 2 / 2^7 is 0.016; with one left out on each side 0.125
    assert median_interval(range(20)) == (5, 14)  # table A.18 of Wilcox and others: ranks 6 and 15
    assert median_interval([4.0]) == (4, 4)


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ({"ratio_from": 0.9, "ratio_to": 1.1}, "no difference measured"),
        ({"ratio_from": 1.02}, "slower"),
        ({"ratio": 0.9, "ratio_from": 0.8, "ratio_to": 0.99}, "faster"),
        ({"same_code": True}, "the same code"),
        ({"wrong": True, "same_code": True}, "wrong results"),
        ({"variant": ablate.PIPELINE}, ""),
    ],
)
def test_verdicts(rows: dict[str, Any], verdict: str) -> None:
    counts = dict.fromkeys(("graphs", "kernels", "launches", "library_calls", "fallbacks", "bytes"), 0)
    times = {"backend_seconds": 0.1, "seconds": 1e-3, "ratio": 1.05, "ratio_from": 1.04, "ratio_to": 1.2}
    usual = {"subject": "f", "variant": "with p", **counts, **times, "same_code": False, "error": 0.0, "wrong": False}
    assert ablate.Row(**{**usual, "statistics": {}, **rows}).verdict == verdict


@pytest.mark.parametrize(
    ("dtype", "limit"), [(torch.float64, 1.5e-8), (torch.float32, 3.5e-4), (torch.complex64, 3.5e-4), (torch.int64, 0)]
)
def test_what_rounding_explains(dtype: torch.dtype, limit: float) -> None:
    assert ablate._rounding([torch.ones(2, dtype=dtype), torch.ones(2, dtype=torch.bool)]) == pytest.approx(limit, 0.03)


def test_a_pass_that_fails_is_an_error(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "failing.py"
    path.write_text(FAILING)
    assert cli.main(["ablate", model, "--load-pass", str(path), "--with", "failing", "--rounds", "1"]) == 1
    assert "pass 'failing' failed: ValueError: nothing works" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--without", "nothing"], "the pipeline has no pass nothing"), (["--with", "nothing"], "'nothing'")],
)
def test_unknown_passes(model: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ablate", model, *arguments]) == 1
    assert message in capsys.readouterr().err


def test_a_wrong_name_is_said_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(*_: object) -> list[object]:
        raise AssertionError("something was measured")

    monkeypatch.setattr(ablate, "measure", measure)
    with pytest.raises(OptionError, match="no model, file or module is called 'nothing'"):
        ablate.ablate(["bert", "nothing"], ["fuse-kernels"], [], [], ablate.Timing(1), None)
