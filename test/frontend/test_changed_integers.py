"""Integers of modules and global variables that change from call to call: constants at first, then symbols."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import symshape
from symshape.tools.measure import Graphs

plain = functools.partial(torch.compile, backend="symshape", options={"strict": True})
CALLS = 11  # more than Dynamo compiles


@pytest.fixture(autouse=True)
def _reset() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Counted(nn.Module):
    """A module with an integer, which ``of`` reads and may write."""

    def __init__(self, of: Callable[[Any, torch.Tensor], torch.Tensor], step: int = 0) -> None:
        super().__init__()
        self.of, self.step, self.state = of, step, {"step": step}
        self.register_buffer("table", torch.arange(300.0).reshape(100, 3))
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.of(self, x)


def counts(module: Any, x: torch.Tensor) -> torch.Tensor:
    module.step += 1
    return x * module.step


def counts_in_a_dictionary(module: Any, x: torch.Tensor) -> torch.Tensor:
    module.state["step"] += 1
    return x * 0.9 ** module.state["step"]


def moves_on(module: Any, x: torch.Tensor) -> torch.Tensor:
    """A table of positions, read from where the last call ended."""
    found: torch.Tensor = x + module.table[module.step : module.step + x.shape[0]]
    module.step += x.shape[0]
    return found


def starts_again(module: Any, x: torch.Tensor) -> torch.Tensor:
    module.step = (module.step + 2) % 5 - 1
    return x.roll(module.step, 0) + module.step


def is_warm(module: Any, x: torch.Tensor) -> torch.Tensor:
    module.step += 1
    return x * 2 if module.step < 5 else x + module.step


PROGRAMS = {counts: 2, counts_in_a_dictionary: 2, moves_on: 2, starts_again: 2, is_warm: 3}


@pytest.mark.parametrize("of", PROGRAMS)
def test_a_module_that_counts(of: Any) -> None:
    eager = Counted(of)
    module = copy.deepcopy(eager)
    compiled = plain(module)
    with Graphs() as graphs:
        for _ in range(CALLS):
            x = torch.randn(4, 3)
            torch.testing.assert_close(compiled(x), eager(x))
            assert module.step == eager.step and module.state == eager.state and type(module.step) is int
    assert graphs.read().graphs == PROGRAMS[of]


@pytest.mark.parametrize(("dynamic", "graphs"), [(True, 2), (False, CALLS)])
def test_what_the_user_says(dynamic: bool, graphs: int) -> None:
    compiled = plain(Counted(counts), dynamic=dynamic)
    with Graphs() as found:
        for n in range(CALLS):
            torch.testing.assert_close(compiled(torch.ones(2)), torch.ones(2) * (n + 1))
    assert found.read().graphs == graphs


_calls = 0


def _global_step(x: torch.Tensor) -> torch.Tensor:
    global _calls
    _calls += 1
    return x * _calls


def test_a_global_variable_that_counts() -> None:
    compiled, before = plain(_global_step), _calls
    with Graphs() as graphs:
        for n in range(CALLS):
            torch.testing.assert_close(compiled(torch.ones(2)), torch.ones(2) * (before + n + 1))
    assert graphs.read().graphs == 2


def test_numbers_of_layers_are_constants_of_each() -> None:
    """Layers of one class share their code: few have constants, and of many all others share a graph."""
    of = lambda module, x: x * module.step  # noqa: E731
    for count, expected in ((3, 3), (CALLS, 5)):
        torch._dynamo.reset()
        layers = [Counted(of, n + 2) for n in range(count)]
        for layer in layers:
            layer.compile(backend="symshape")
        with Graphs() as graphs:
            for _ in range(2):
                for n, layer in enumerate(layers):
                    torch.testing.assert_close(layer(torch.ones(3)), torch.full((3,), n + 2.0))
        assert graphs.read().graphs == expected


def _first_layers(module: Any, x: torch.Tensor) -> torch.Tensor:
    for layer in module.layers[: module.step]:
        x = layer(x)
    return x


def _one_layer(module: Any, x: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = module.layers[module.step](x)
    return found


@pytest.mark.parametrize("compiling", [plain, symshape.compile], ids=["plain", "compile"])
@pytest.mark.parametrize("of", [_first_layers, _one_layer])
def test_integers_that_python_needs(of: Any, compiling: Any) -> None:
    """A graph for each value, without a graph break: slices and elements of a ``ModuleList``."""
    module = Counted(of)
    compiled = compiling(module)
    with Graphs() as graphs:
        for module.step in (1, 2, 3, 4, 1, 3):
            x = torch.randn(2, 3)
            torch.testing.assert_close(compiled(x), of(module, x))
    found = graphs.read()
    assert found.graphs == 4 and not found.breaks
