"""``symshape ablate``: what a pass is worth."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from symshape.tools import cli

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
    assert whole["ratio"] == 1


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
