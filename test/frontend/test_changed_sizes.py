"""Plain ``torch.compile``: constants until the first size has changed, then one graph for all sizes of all inputs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from symshape.tools.measure import Graphs

plain = functools.partial(torch.compile, backend="symshape", options={"strict": True})


@pytest.fixture(autouse=True)
def _reset() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def graphs_of(function: Callable[..., Any], calls: Sequence[Sequence[Any]], **options: Any) -> list[int]:
    """The number of graphs after each call; each is compared with eager mode."""
    compiled, after = plain(function, **options), []
    with Graphs() as graphs:
        for given in calls:
            torch.testing.assert_close(compiled(*given), function(*given))
            after.append(graphs.read().graphs)
    return after


def step(x: torch.Tensor, weight: torch.Tensor, keys: torch.Tensor | None, scale: int) -> torch.Tensor:
    """The first call has no keys, as a model that generates text."""
    x = (x @ weight).relu() * scale
    return x if keys is None else torch.cat([keys, x], 1).sum(2) * keys.shape[1]


def operands(batch: int, length: int, cached: int | None = None, width: int = 4, scale: int = 2) -> tuple[Any, ...]:
    keys = None if cached is None else torch.randn(batch, cached, 5)
    return torch.randn(batch, length, width), torch.randn(width, 5), keys, scale


def test_one_graph_for_each_path_once_a_size_has_changed() -> None:
    """A path that is new is compiled for all sizes too, and sizes of 0 and 1 have no graph of their own."""
    calls = [operands(2, 5), operands(2, 1, 5), operands(2, 1, 6), operands(3, 7), operands(1, 9), operands(0, 2)]
    more = [operands(1, 1, 0), operands(4, 3, 2, width=7, scale=5), operands(2, 2, width=1, scale=0)]
    assert graphs_of(step, calls + more) == [1, 2, 2, 3, 3, 3, 3, 3, 3]


def test_an_integer_that_changes_makes_sizes_symbols() -> None:
    assert graphs_of(step, [operands(2, 5), operands(2, 5, scale=3), operands(4, 6, scale=4)]) == [1, 2, 2]


def test_another_type_alone_leaves_constants() -> None:
    """A graph that is compiled again for another reason is for the sizes at hand."""
    first, second = torch.randn(4, 3), torch.randn(4, 3, dtype=torch.float64)
    function = lambda x: x.softmax(1) * x.shape[0]  # noqa: E731
    assert graphs_of(function, [(first,), (second,), (first[:2],), (second[:3, :2],)]) == [1, 2, 3, 4]


def test_static_sizes_stay_constants() -> None:
    calls = [operands(2, n) for n in (3, 4, 5)]
    assert graphs_of(step, calls, dynamic=False) == [1, 2, 3]
    torch._dynamo.reset()
    with torch._dynamo.config.patch(automatic_dynamic_shapes=False):
        assert graphs_of(step, calls) == [1, 2, 3]


def test_marks_go_before() -> None:
    """A size that is marked static keeps a graph for each value; one that is marked dynamic was no constant."""
    function = lambda x: x.cumsum(0) * x.shape[1]  # noqa: E731
    calls = []
    for rows, columns in ((3, 4), (5, 4), (6, 4), (6, 5)):
        calls.append((torch.randn(rows, columns),))
        torch._dynamo.mark_static(calls[-1][0], 1)
    assert graphs_of(function, calls) == [1, 2, 2, 3]
    torch._dynamo.reset()
    calls = [(torch.randn(n, 4, dtype=t),) for n, t in ((3, torch.float32), (5, torch.float32), (6, torch.float64))]
    for (x,) in calls:
        torch._dynamo.mark_dynamic(x, 0)
    assert graphs_of(function, [*calls, (torch.randn(6, 3, dtype=torch.float64),)]) == [1, 1, 2, 3]


def test_other_frames_of_the_function_have_their_own_sizes() -> None:
    """What follows a graph break is a frame of its own."""

    def broken(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = x.sin() + 1
        torch._dynamo.graph_break()
        return x.sum() * y

    shapes = ((3, 4), (5, 4), (5, 6), (1, 1))
    calls = [(torch.randn(a, b), torch.randn(b, a)) for a, b in shapes]
    assert graphs_of(broken, calls) == [2, 4, 4, 4]


def test_sizes_in_containers_and_gradients() -> None:
    """Lists, dictionaries and objects; views, and a batch of another size in training."""
    layer = nn.Linear(4, 3)

    def loss(batch: dict[str, Any]) -> torch.Tensor:
        return (layer(batch["x"]).logsumexp(1) * batch["weights"][0]).sum()

    compiled = plain(loss)
    with Graphs() as graphs:
        for n in (4, 4, 7, 1, 2):
            batch = {"x": torch.randn(n, 8)[:, ::2].requires_grad_(), "weights": [torch.randn(n)]}
            found = [torch.autograd.grad(run(batch), [batch["x"], *layer.parameters()]) for run in (compiled, loss)]
            torch.testing.assert_close(*found)
    assert graphs.read().graphs == 2
