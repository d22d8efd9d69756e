"""IR of every stage is printed, read and printed again: the text is the same, and so is what is compiled from it."""

from __future__ import annotations

import copy
import functools
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from compare import together
from data_dependent import DATA_DEPENDENT
from masks import CASES, MASKS
from stage_texts import check_compiling, check_printing
from test_programs import GROUPS
from trained_models import without_dropout

import symshape
from symshape.passes.stages import STAGES
from symshape.tools.zoo import MODELS

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
Subject = tuple[Callable[..., Any], tuple[Any, ...]]


def _group(name: str) -> Subject:
    programs, n = GROUPS[name], next(n for n in (7, 16, 2, 1) if n in GROUPS[name][0].sizes)
    inputs = [list(program.inputs(n)) for program in programs]
    for own, program in zip(inputs, programs):
        for x in own:
            if program.gradient and isinstance(x, torch.Tensor) and x.is_floating_point():
                x.requires_grad_()
    return together(programs), tuple(inputs)


def _in_the_data(program: Any) -> Subject:
    return program.function, next(
        inputs for value in program.values if _is_taken(program, inputs := program.inputs(value))
    )


def _is_taken(program: Any, inputs: Any) -> bool:
    """Whether eager mode has a result: some programs refuse some sizes."""
    try:
        program.function(*copy.deepcopy(inputs))
    except (RuntimeError, IndexError):
        return False
    return True


def _masked(program: Any) -> Subject:
    torch.manual_seed(0)
    return program.function, program.inputs(CASES[0])


def _example(file: str, function: str, *inputs: Any) -> Subject:
    return runpy.run_path(str(EXAMPLES / file))[function], inputs


def _model(name: str) -> Subject:
    """A step of training, as small as it can be."""
    model = MODELS[name]
    module, inputs = without_dropout(model.build("tiny")).train(), model.inputs(model.tiny_shapes[0])
    return lambda **kwargs: module(**kwargs), (inputs,)


SUBJECTS: dict[str, Callable[[], Subject]] = {
    **{name: functools.partial(_group, name) for name in GROUPS},
    **{f"data: {program.name}": functools.partial(_in_the_data, program) for program in DATA_DEPENDENT},
    **{f"masks: {program.name}": functools.partial(_masked, program) for program in MASKS},
}
CHOSEN = [*list(SUBJECTS)[::40], "data: unique", "masks: positions"]
EXAMPLE_SUBJECTS = {
    "loss": lambda: _example("masks_without_waiting.py", "masked_loss", *_matrices()),
    "selected": lambda: _example("masks_without_waiting.py", "selected", *_matrices()[1:]),
    "kernel": lambda: _example("kernel_of_a_size.py", "normalise", torch.randn(128, 100)),
    "constraint": lambda: _example("stated_constraint.py", "first_columns", torch.randn(4, 9), torch.tensor(3)),
}


def _matrices() -> tuple[torch.Tensor, ...]:
    return torch.randn(40, 7), torch.randn(40, 7), torch.rand(40, 7) < 0.3


def check(subject: Subject, *stages: str) -> None:
    function, inputs = subject
    keywords = inputs[0] if len(inputs) == 1 and isinstance(inputs[0], dict) else {}
    for report in symshape.explain(function, *(() if keywords else inputs), **keywords).graphs:
        check_printing(report)
        check_compiling(report, stages)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", [name for name in CHOSEN if name in SUBJECTS])
def test_programs(name: str) -> None:
    check(SUBJECTS[name](), "linalg")


@pytest.mark.parametrize("name", EXAMPLE_SUBJECTS)
def test_examples(name: str) -> None:
    check(EXAMPLE_SUBJECTS[name](), *STAGES)


@pytest.mark.parametrize("name", ["bert", "resnet"])
def test_training(name: str) -> None:
    check(_model(name))


@pytest.mark.long
@pytest.mark.parametrize("name", SUBJECTS)
def test_all_programs(name: str) -> None:
    check(SUBJECTS[name](), *STAGES)
