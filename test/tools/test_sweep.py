"""``symshape sweep``: a parameter at several values over sizes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from symshape.tools import cli
from symshape.tools.sweep import Row, parameters, regrets, sizes_of

PROGRAM = """
import torch


def rows(x):
    return torch.softmax(x * 2.0, -1) + x.sum(-1, keepdim=True)


def inputs(*size):
    return (torch.randn(*size),)
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return f"{path}:rows"


def test_rows_and_regrets(program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "rows.json"
    command = ["sweep", program, "fuse-kernels.vertical", "true,false", "--sizes", "4x9,17x3", "--rounds", "2"]
    assert cli.main([*command, "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "4x9" in shown and "geometric mean" in shown and "equal code" not in shown
    record = json.loads(out.read_text())
    rows = record["rows"]
    assert {(r["size"], r["value"], r["repetition"]) for r in rows} == {
        (size, value, turn) for size in ("4x9", "17x3") for value in ("true", "false") for turn in (0, 1)
    }
    assert {(r["value"], r["code"]) for r in rows} == {("true", 0), ("false", 1)}  # the pass was another one
    assert all(r["error"] < 1e-5 and r["seconds"] > 0 and r["commit"] and r["machine"] for r in rows)
    for size in ("4x9", "17x3"):
        assert min(one["regret"] for one in record["summary"]["regrets"] if one["size"] == size) == 1.0


def test_an_option_of_a_compile_and_values_that_make_equal_code(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    short = ["--sizes", "4x9", "--rounds", "1"]
    assert cli.main(["sweep", program, "opt-level", "0,3", *short]) == 0
    assert "opt-level" in capsys.readouterr().out
    assert cli.main(["sweep", program, "fuse-kernels.max-members", "63,64", *short]) == 0
    assert "equal code" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no-such.thing", "1,2"], "no parameter is called 'no-such.thing'"),
        (["fuse-kernels.max-members", "1,many"], "many"),
        (["opt-level", "0,9"], "opt_level cannot be 9"),
        (["opt-level", "0"], "give two or more"),
        (["opt-level", "0,0"], "give two or more"),
        (["plan-tiles.tile", "16,32"], "changes what runs on GPUs only, and the device is the CPU"),
        (["opt-level", "0,1", "--sizes", "4y9"], "write them as"),
    ],
)
def test_what_would_do_nothing_is_an_error(
    program: str, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = [] if "--sizes" in words else ["--sizes", "4x9"]
    assert cli.main(["sweep", program, *words, *sizes]) == 1
    assert said in capsys.readouterr().err


def test_sizes_of_a_model_have_its_axes(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sweep", program, "opt-level", "0,1"]) == 1
    assert "no sizes are given" in capsys.readouterr().err
    assert cli.main(["sweep", "bert", "opt-level", "0,1", "--sizes", "2x8x3"]) == 1
    assert "give BATCHxSEQUENCE" in capsys.readouterr().err


def test_parameters_are_read_from_declarations() -> None:
    known = parameters()
    assert {"fuse-kernels.max-members", "plan-tiles.tile", "opt-level", "cpu", "random"} <= set(known)
    assert not {"cache", "passes", "target"} & set(known)
    assert sizes_of("2x8,4") == [(2, 8), (4,)] and sizes_of("") == []


def test_regret_is_over_the_best_median() -> None:
    def row(value: str, seconds: float, repetition: int) -> Row:
        return Row("p", "4", 4, "n", value, repetition, seconds, 0.0, 0, "", "")

    times = {"1": (3.0, 1.0, 2.0), "2": (4.0, 4.0, 9.0)}
    found = regrets([row(value, one, i) for value, each in times.items() for i, one in enumerate(each)])
    assert {one["value"]: one["regret"] for one in found} == {"1": 1.0, "2": 2.0}
