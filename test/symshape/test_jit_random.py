"""``symshape.jit``: generators that are passed over to draws, and what would be drawn or seeded only by the trace."""

from __future__ import annotations

import inspect
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
import torch.utils.checkpoint

import symshape
from symshape.errors import CompileError

GENERATOR = torch.Generator()
STATE = torch.Generator().manual_seed(9).get_state()
RAND = numpy.random.rand  # as `from numpy.random import rand` has it

DRAWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rand": lambda x: x + torch.rand(x.shape[0], generator=GENERATOR, dtype=torch.float64),
    "randn": lambda x: x + torch.randn(x.shape[0], generator=GENERATOR),
    "randint": lambda x: x + torch.randint(7, (x.shape[0],), generator=GENERATOR),
    "randint from": lambda x: x + torch.randint(2, 7, (2, x.shape[0]), generator=GENERATOR, dtype=torch.int32),
    "normal": lambda x: x + torch.normal(0.0, 2.0, (x.shape[0],), generator=GENERATOR),
    "the default": lambda x: x + torch.rand(x.shape[0], generator=torch.default_generator),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_generator_goes_on_over_calls(name: str) -> None:
    jitted = symshape.jit(DRAWS[name])
    results = []
    for function in (DRAWS[name], jitted):
        GENERATOR.manual_seed(11)
        torch.manual_seed(3)
        drawn = [function(torch.arange(n, dtype=torch.float32)) for n in (5, 5, 7, 1, 0, 2)]
        results.append([*drawn, GENERATOR.get_state(), torch.get_rng_state()])
    for ours, theirs in zip(results[1], results[0], strict=True):
        assert ours.dtype == theirs.dtype and torch.equal(ours, theirs)


def _made(x: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator()
    return x + torch.rand(3, generator=generator)


def _seeded(x: torch.Tensor) -> torch.Tensor:
    GENERATOR.manual_seed(5)
    return x + torch.rand(3, generator=GENERATOR)


def _given_a_state(x: torch.Tensor) -> torch.Tensor:
    GENERATOR.set_state(STATE)
    return x + torch.rand(3, generator=GENERATOR)


def _put_back(x: torch.Tensor) -> torch.Tensor:
    state = GENERATOR.get_state()
    y = x + torch.rand(3, generator=GENERATOR)
    GENERATOR.set_state(state)
    return y


def _seeded_in_a_checkpoint(x: torch.Tensor) -> Any:
    return torch.utils.checkpoint.checkpoint(_seeded, x, use_reentrant=False)


def _default_seeded(x: torch.Tensor) -> torch.Tensor:
    torch.default_generator.manual_seed(1)
    return x + torch.rand(3)


def _python(x: torch.Tensor) -> torch.Tensor:
    x = x * 2
    x = x + random.random()
    return x * 3


def _python_seeded(x: torch.Tensor) -> torch.Tensor:
    random.seed(0)
    return x + random.randint(0, 9)


def _numpy(x: torch.Tensor) -> torch.Tensor:
    x = x * 2
    return x + numpy.random.rand()


def _numpy_by_another_name(x: torch.Tensor) -> torch.Tensor:
    x = x * 2
    return x + RAND()


REFUSED = [
    (_made, "makes a generator", "torch.Generator()"),
    (_seeded, "for `manual_seed`", "GENERATOR.manual_seed(5)"),
    (_given_a_state, "for `set_state`", "GENERATOR.set_state(STATE)"),
    (_put_back, "for `get_state`", "GENERATOR.get_state()"),
    (_seeded_in_a_checkpoint, "for `manual_seed`", "GENERATOR.manual_seed(5)"),
    (_default_seeded, "for `manual_seed`", "torch.default_generator.manual_seed(1)"),
    (_python, "the module `random`", "random.random()"),
    (_python_seeded, "the module `random`", "random.seed(0)"),
    (_numpy, "the module `numpy.random`", "numpy.random.rand()"),
    (_numpy_by_another_name, "the module `numpy.random`", "x + RAND()"),
]


@pytest.mark.parametrize("function, what, line", REFUSED)
def test_what_the_trace_alone_would_do_is_refused(function: Callable[..., Any], what: str, line: str) -> None:
    """At its line, and nothing is left behind."""
    before = random.getstate(), GENERATOR.get_state()
    with pytest.raises(CompileError) as caught:
        symshape.jit(function)(torch.ones(3))
    assert what in caught.value.what and line in caught.value.where and __file__ in caught.value.where
    assert "symshape.compile" in caught.value.next_step
    assert random.getstate() == before[0] and torch.equal(GENERATOR.get_state(), before[1])
    assert isinstance(GENERATOR.manual_seed(1), torch.Generator) and inspect.isclass(torch.Generator)


@pytest.mark.parametrize("draw", [random.random, numpy.random.rand])
def test_what_another_thread_draws_is_its_own(draw: Callable[[], float]) -> None:
    """A loader of data, for example."""
    ended, drawn = threading.Event(), []

    def load() -> None:
        while not ended.is_set():
            drawn.append(draw())

    loader = threading.Thread(target=load)
    loader.start()
    try:
        x = torch.ones(3, 4)
        assert torch.equal(symshape.jit(lambda x: x * 2)(x), x * 2)
        for function, what, line in REFUSED[-4:]:
            with pytest.raises(CompileError, match=what) as caught:
                symshape.jit(function)(torch.ones(3))
            assert line in caught.value.where
    finally:
        ended.set()
        loader.join()
    assert drawn


def test_a_search_for_draws_leaves_the_generator_of_numpy_as_it_was() -> None:
    """The other number of a normally distributed pair among it, and a generator of another kind."""
    usual = numpy.random.get_bit_generator()
    try:
        for generator in (usual, numpy.random.PCG64()):
            numpy.random.set_bit_generator(generator)
            numpy.random.randn()
            before = numpy.random.get_state(legacy=False)
            with pytest.raises(CompileError, match="the module `random`"):
                symshape.jit(_python)(torch.ones(3))
            assert repr(numpy.random.get_state(legacy=False)) == repr(before) and before["has_gauss"]
            assert numpy.random.get_bit_generator() is generator
    finally:
        numpy.random.set_bit_generator(usual)


def test_a_generator_of_its_own_is_a_constant() -> None:
    """What the function seeds itself, and nobody else has, draws the same at each call."""

    def call(x: torch.Tensor) -> torch.Tensor:
        return x + numpy.random.default_rng(0).random() + random.Random(1).random()

    jitted = symshape.jit(call)
    for n in (3, 3, 5):
        torch.testing.assert_close(jitted(torch.ones(n)), call(torch.ones(n)))
