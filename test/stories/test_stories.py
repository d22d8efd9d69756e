"""Every program of docs/stories.md: symshape against eager at several sizes, and what the page says of PyTorch."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from stories import REFUSALS, STORIES, Refusal, Story, cat_of_split, parity

import symshape
from symshape.tools.measure import Graphs

PAGE = Path(__file__).parents[2] / "docs" / "stories.md"
the_page_speaks_of_this_pytorch = pytest.mark.skipif(
    not torch.__version__.startswith("2.13."), reason="docs/stories.md speaks of PyTorch 2.13"
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch._dynamo.reset()


def _plain(fn: Callable[..., Any], **options: Any) -> Any:
    return torch.compile(fn, dynamic=True, backend="eager", **options)


def _check(actual: Any, expected: Any) -> None:
    for one, other in zip(pytree.tree_leaves(actual), pytree.tree_leaves(expected), strict=True):
        torch.testing.assert_close(one, other)
        assert one.stride() == other.stride()


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_one_graph_is_right_at_all_sizes(story: Story) -> None:
    with Graphs() as graphs:
        compiled = symshape.compile(story.fn)
        for inputs in story.inputs:
            _check(compiled(*inputs), story.fn(*inputs))
    assert graphs.graphs == story.graphs and not graphs.breaks


@pytest.mark.parametrize("story", [s for s in STORIES if s.bad], ids=lambda story: story.name)
def test_inputs_that_break_the_constraint_name_the_line(story: Story) -> None:
    assert story.bad is not None
    torch._dynamo.reset()
    compiled = symshape.compile(story.fn)
    compiled(*story.inputs[0])
    inputs, words = story.bad
    with pytest.raises(Exception) as eager:
        story.fn(*inputs)
    with pytest.raises(Exception) as ours:
        compiled(*inputs)
    assert isinstance(ours.value, RuntimeError) or type(eager.value) is type(ours.value)
    text = str(ours.value)
    assert re.search(r"stories\.py[:\"]", text), text
    assert [word for word in words if word not in text] == [], text


def test_a_size_of_1_has_the_graph_of_the_others() -> None:
    story = STORIES[0]
    with Graphs() as graphs:
        compiled = symshape.compile(story.fn)
        for inputs in (*story.inputs, (torch.randn(1, 3),), *story.inputs):
            _check(compiled(*inputs), story.fn(*inputs))
    assert graphs.graphs == 1


def test_backward_of_cat_of_split() -> None:
    with Graphs() as graphs:
        compiled = symshape.compile(cat_of_split)
        for size, sizes in ((10, [7, 3]), (12, [5, 7]), (9, [2, 7])):
            x = torch.randn(size, requires_grad=True)
            ours, expected = (f(x, torch.tensor(sizes)) for f in (compiled, cat_of_split))
            weight = torch.randn(size)
            gradients = [torch.autograd.grad((y * weight).sum(), x)[0] for y in (ours, expected)]
            torch.testing.assert_close(*gradients)
    assert graphs.graphs == 1


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.name)
def test_an_error_names_the_line_and_the_remedy(refusal: Refusal) -> None:
    with pytest.raises(Exception) as raised:
        _call(symshape.compile, refusal)
    text = str(raised.value)
    assert "stories.py" in text and [word for word in refusal.words if word not in text] == [], text


def _call(compile_: Any, refusal: Refusal) -> Any:
    torch._dynamo.reset()
    first, *others = refusal.inputs
    first = first.clone()
    for dim in refusal.marked:
        torch._dynamo.mark_dynamic(first, dim)
    return compile_(refusal.fn, fullgraph=True)(first, *others)


# --- what the page says ----------------------------------------------------------------------------------------------


@the_page_speaks_of_this_pytorch
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_pytorch_needs_as_many_graphs_as_the_page_says(story: Story) -> None:
    with Graphs() as graphs:
        compiled = _plain(story.fn)
        for inputs in story.inputs:
            compiled(*inputs)
    assert (graphs.graphs, sum(graphs.breaks.values())) == story.eager


def test_a_padding_is_right_where_inductor_can_be_wrong() -> None:
    """Ours only: what Inductor returns depends on the processor, and that it compiles at all on a C++ compiler."""
    torch._dynamo.reset()
    compiled = symshape.compile(parity)
    for columns in (250, 251, 6, 7):
        inputs = torch.randn(1, 1, columns)
        assert compiled(inputs).shape == parity(inputs).shape == (1, 1, (columns + 1) // 2)


@the_page_speaks_of_this_pytorch
@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.name)
def test_pytorch_refuses_what_the_page_says(refusal: Refusal) -> None:
    if not refusal.eager:
        _call(_plain, refusal)
        return
    with pytest.raises(Exception):  # noqa: B017
        _call(_plain, refusal)


@pytest.mark.parametrize("story", [*STORIES, *REFUSALS], ids=lambda story: story.name)
def test_the_page_shows_the_program(story: Story | Refusal) -> None:
    shown = re.sub(r": Tensor|(?<=\)) -> [^:]+(?=:)", "", inspect.getsource(story.fn))
    assert shown in PAGE.read_text(encoding="utf-8")
