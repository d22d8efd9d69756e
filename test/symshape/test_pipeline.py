"""The list of all steps: each is there, in the order of a compile, and can be left out where it says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import symshape
from symshape.analysis.loop_form import FINISHING, READING
from symshape.compiler import stage_pipelines
from symshape.errors import OptionError
from symshape.options import Options
from symshape.passes.framework.registry import lookup
from symshape.passes.stages import STAGES, TARGETS
from symshape.pipeline import KERNEL, OPTIONAL, PIPELINE


def function(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    y = (x + 1).exp() + (x + 1).sin()
    return y.softmax(1)[i] + torch.arange(y.shape[1])


def inputs(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(n, n + 3), torch.arange(n)


def timed_steps(**options: Any) -> list[str]:
    torch._dynamo.reset()
    (graph,) = symshape.explain(function, *inputs(5), options=options).graphs
    assert all(seconds >= 0 for _, seconds in graph.timings)
    return [name for name, _ in graph.timings]


def test_each_step_has_code_and_a_name_of_its_own() -> None:
    names = [step.name for step in PIPELINE]
    assert len(set(names)) == len(names)
    assert all(callable(step.function()) for step in PIPELINE)
    assert all(Path(symshape.__file__).parent.joinpath(step.file).exists() for step in PIPELINE)
    steps = [*READING, *FINISHING]
    assert [step.name for step in PIPELINE if step.on == KERNEL][: len(steps)] == steps
    assert [step.name for step in PIPELINE if step.stage] == [name for names in STAGES.values() for name in names]


@pytest.mark.parametrize("target", ["cpu", "triton"])
def test_every_step_is_timed_in_order(target: str) -> None:
    other = {"split-biases", "emit-triton", "read-variants"} if target == "cpu" else {"emit-cpu", "compile-cpu"}
    plans = set(STAGES["planned"]) if target == "cpu" else {"read-kernel", "fold-loops"}  # plans have read kernels
    other |= {"postpone-activations", "pack-convolutions"}  # there are no convolutions
    expected = [step.name for step in PIPELINE if step.name not in other | plans]
    assert timed_steps(target=target) == expected


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", [name for name in OPTIONAL if name not in STAGES["planned"]])
def test_what_is_optional_can_be_left_out(name: str) -> None:
    torch._dynamo.reset()
    compiled = symshape.compile(function, disable_passes=[name], fullgraph=True, cache=False, strict=True)
    for n in (5, 2, 9):
        x, i = inputs(n)
        torch.testing.assert_close(compiled(x, i), function(x, i))


def test_what_is_not_optional_cannot() -> None:
    with pytest.raises(OptionError, match="normalise-loops cannot be left out"):
        symshape.compile(function, disable_passes=["normalise-loops"])(*inputs(5))


def test_stages_of_other_targets_are_not_loaded() -> None:
    """Which is right where none of their passes has anything to do."""
    for stage, targets in TARGETS.items():
        for name in STAGES[stage]:
            found = lookup(name)
            assert found is not None and found.targets == targets
    with_all, of_cpu = (dict(stage_pipelines(Options.parse(None), None, target)) for target in ("triton", "cpu"))
    assert with_all.keys() - of_cpu.keys() == TARGETS.keys()
