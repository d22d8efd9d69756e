"""Options of passes as text, and pipelines as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from symshape.errors import OptionError
from symshape.passes.framework import registry
from symshape.passes.framework.base import Pass
from symshape.passes.framework.pipeline_text import parse_pipeline, parse_step, print_pipeline, split_top_level
from symshape.passes.stages import STAGES, last_pass, passes_between


@registry.register
@dataclass(frozen=True)
class Example(Pass):
    """Has an option
    of each type.

    More text.
    """

    name: ClassVar[str] = "example-of-options"
    flag: bool = False
    count: int = 3
    scale: float = 1.0
    text: str = ""
    only_these: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()


def test_options_are_read_and_printed() -> None:
    text = "example-of-options{flag=true count=-4 scale=0.5 text=a only-these=x,y sizes=8,16}"
    step = parse_step(text)
    assert step == Example(True, -4, 0.5, "a", ("x", "y"), (8, 16))
    assert isinstance(step, Example) and step.as_text() == text
    assert parse_step("example-of-options{flag}") == Example(flag=True)
    assert Example().as_text() == "example-of-options"
    assert Example.description() == "Has an option of each type."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("example-of-options{nosuch=1}", "has no option 'nosuch'"),
        ("example-of-options{count=many}", "option 'count' cannot be 'many'"),
        ("example-of-options{flag=maybe}", "option 'flag' cannot be 'maybe'"),
        ("example-of-options{count=1 count=2}", "option 'count' is given twice"),
    ],
)
def test_wrong_options_are_named(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_step(text)


def test_pipelines_are_split_at_top_level_commas() -> None:
    text = "builtin.module(example-of-options{sizes=1,2},func.func(cse,canonicalize{a=b c=d}),symbol-dce)"
    steps = parse_pipeline(text)
    assert steps == [Example(sizes=(1, 2)), "func.func(cse,canonicalize{a=b c=d})", "symbol-dce"]
    assert print_pipeline(steps) == text
    assert parse_pipeline(" cse , canonicalize ") == ["cse", "canonicalize"]
    assert parse_pipeline("") == []


@pytest.mark.parametrize("text", ["a(b", "a)b", "a{b]'", "'a"])
def test_unbalanced_pipelines_are_errors(text: str) -> None:
    with pytest.raises(OptionError, match="unbalanced"):
        split_top_level(text, ",")


@pytest.mark.parametrize("name", sorted(registry.TABLE))
def test_every_pass_says_what_it_counts(name: str) -> None:
    assert registry.lookup(name).statistics


def test_stages() -> None:
    between = [*STAGES["shaped"], *STAGES["linalg"], *STAGES["kernels"]]
    assert passes_between("imported", "kernels") == between
    assert passes_between("linalg", "kernels") == list(STAGES["kernels"])
    assert passes_between("kernels", "kernels") == []
    with pytest.raises(OptionError, match="stage 'linalg' comes before stage 'kernels'"):
        passes_between("kernels", "linalg")
    assert last_pass("linalg") == STAGES["linalg"][-1]
    assert last_pass("no such stage") is None
    with pytest.raises(OptionError, match="unknown stage 'nosuch'"):
        passes_between("imported", "nosuch")
