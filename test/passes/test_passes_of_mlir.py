"""MLIR's own passes between ours: wherever they stand, the program computes the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import symshape
from symshape.passes.stages import STAGES
from symshape.tools import opt

STEPS = {
    "cse": "cse",
    "canonicalize": "func.func(canonicalize)",
    "inline": "inline",
    "inline with its default": "inline{default-pipeline=canonicalize}",
    "others": "sccp,loop-invariant-code-motion,control-flow-sink,remove-dead-values,topological-sort,symbol-dce",
}


def _two_results(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Of one type and shape, by two kernels and by one."""
    y = x @ x.t()
    return x + 1, x * 2, y + 1, y.softmax(-1), y.sum(-1), y.amax(-1)


def _copies(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.unsqueeze(1).expand(-1, 2, -1).clone().view(-1, x.shape[1]), x.t().contiguous(), x.clone()


def _half_types(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """What is rounded before ``floor``: elements of which some are at a step."""
    h = (x * 50).half()
    return (h * 7.3).floor(), (h * 7.5).round(), torch.fmod(h * 77, 0.25), (h * 7.3).long()


def _masks(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    mask = x > 0
    return x[mask] * 2, F.dropout(x, 0.0).cumsum(0), torch.where(mask, x, -x).index_add(0, torch.zeros(1).long(), x[:1])


PROGRAMS: dict[str, Callable[[torch.Tensor], tuple[torch.Tensor, ...]]] = {
    function.__name__[1:]: function for function in (_two_results, _copies, _half_types, _masks)
}


@pytest.fixture(scope="module")
def imported() -> dict[str, str]:
    texts = {}
    for name, program in PROGRAMS.items():
        torch._dynamo.reset()
        (graph,) = symshape.explain(program, torch.randn(6, 9)).graphs
        texts[name] = graph.stages["imported"]
    return texts


@pytest.mark.sample(5)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_pass_of_mlir_after_each_of_ours(name: str, step: str, imported: dict[str, str], tmp_path: Path) -> None:
    source, result = tmp_path / "imported.mlir", tmp_path / "kernels.mlir"
    source.write_text(imported[name])
    ours = [one for stage, passes in STAGES.items() if stage != "planned" for one in passes]
    pipeline = ",".join(f"{one},{STEPS[step]}" for one in ours)
    assert opt.main([str(source), f"--pass-pipeline=builtin.module({pipeline})", "-o", str(result)]) == 0
    for rows in (6, 2, 13):
        x = torch.randn(rows, 9)
        found = symshape.run_ir(result.read_text(), x, stage="kernels")
        torch.testing.assert_close(found, PROGRAMS[name](x))
