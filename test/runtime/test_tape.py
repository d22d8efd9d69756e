"""Recorded segments: the plan of their memory, and their results against eager mode's."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn as nn

import symshape
from symshape.runtime.cpu import tape
from symshape.runtime.cpu.load_objects import Library
from symshape.runtime.cpu.recorder import Unrecordable
from symshape.runtime.cpu.strided_copy import copy_words, copying
from symshape.runtime.cpu.tape import Segment, planned


def test_buffers_that_live_together_do_not_overlap() -> None:
    rng = random.Random(0)
    for _ in range(50):
        lives = [(rng.randrange(0, 5000), *sorted(rng.choices(range(12), k=2))) for _ in range(20)]
        offsets, size = planned(lives)
        for i, (bytes_, first, last) in enumerate(lives):
            assert offsets[i] % 64 == 0 and offsets[i] + bytes_ <= size
            for j, (others, begin, end) in enumerate(lives[:i]):
                if first <= end and begin <= last and bytes_ and others:
                    assert offsets[i] + bytes_ <= offsets[j] or offsets[j] + others <= offsets[i]


def test_a_chain_takes_two_buffers() -> None:
    offsets, size = planned([(640, i, i + 1) for i in range(10)])
    assert size == 1280 and {*offsets} == {0, 640}


@pytest.mark.parametrize("sizes", [(2, 3, 5, 40), (1, 40, 3, 2), (2, 1, 1, 1), (3, 7, 1, 9)])
def test_copies(sizes: tuple[int, ...]) -> None:
    x = torch.randn(sizes[::-1]).permute(3, 2, 1, 0)
    for layout in (torch.contiguous_format, torch.channels_last):
        result = torch.empty(sizes).to(memory_format=layout)
        address, library = copying()
        assert isinstance(library, Library) and address
        words = copy_words(x.shape, x.stride(), result.stride())
        library.function("strided_copy", 2 + len(words))(x.data_ptr(), result.data_ptr(), *words)
        assert torch.equal(result, x)


class Excited(nn.Module):
    """A stem, a depthwise convolution with a gate, a pooling, and a product that is PyTorch's."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.SiLU())
        self.deep = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.ReLU6())
        self.down, self.up = nn.Conv2d(16, 8, 1), nn.Conv2d(8, 16, 1)
        self.last, self.head = nn.Conv2d(16, 24, 1), nn.Linear(24, 10)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.stem(x)
        y = self.deep(x)
        y = y * self.up(self.down(y.mean((2, 3), keepdim=True)).relu()).sigmoid()
        y = torch.nn.functional.max_pool2d(self.last(y + x), 3, 2, 1)
        return self.head(y.mean((2, 3))), y


def small() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)).eval()


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The tapes that are replayed."""
    found: list[Any] = []
    usual = tape._Tape.__call__

    def counted(self: Any, given: Any) -> Any:
        found.append(self)
        return usual(self, given)

    monkeypatch.setattr(tape._Tape, "__call__", counted)
    torch._dynamo.reset()
    yield found


def same(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("how", ["compile", "jit"])
def test_results_are_those_of_eager_mode(how: str, replays: list[Any]) -> None:
    model = Excited().eval()
    compiled = symshape.compile(model) if how == "compile" else symshape.jit(model)
    results: list[tuple[Any, Any]] = []
    with torch.no_grad():
        for _ in range(3):
            for batch, height, width in ((2, 32, 48), (1, 17, 9), (0, 8, 8), (3, 64, 64)):
                x = torch.randn(batch, 3, height, width)
                results.append((compiled(x), model(x)))
        assert len(replays) >= 8, "the second and the third call of each size"
        for parameter in model.parameters():
            parameter.data.mul_(1.1)
        results.append((compiled(x), model(x)))
        model.up.bias.data = torch.randn(32)[::2]  # other strides: another layout
        results.append((compiled(x), model(x)))
        with several_threads():
            results.append((compiled(x), model(x)))
    for found, expected in results:  # now: no later call has written to an earlier result
        same(found, expected)


@contextlib.contextmanager
def several_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def test_threads_have_memory_of_their_own(replays: list[Any]) -> None:
    model = small()
    compiled = symshape.jit(model)
    images = [torch.randn(2, 3, 64, 64) for _ in range(4)]
    wrong: list[int] = []
    with torch.no_grad():
        expected = [model(x) for x in images]
        compiled(images[0])

    def call(i: int) -> None:
        with torch.no_grad():
            for _ in range(10):
                found = compiled(images[i])
                if not torch.allclose(found, expected[i], rtol=2e-5, atol=2e-5):
                    wrong.append(i)

    threads = [threading.Thread(target=call, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(replays) >= 36


def test_few_layouts_are_kept(replays: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tape, "_MOST", 3)
    found: list[Segment] = []
    usual = Segment._recorded
    monkeypatch.setattr(Segment, "_recorded", lambda self, given: found.append(self) or usual(self, given))
    model = small()
    compiled = symshape.jit(model)
    with torch.no_grad():
        for size in (8, 8, 9, 9, 10, 10, 11, 11, 8, 8):
            x = torch.randn(1, 3, size, size)
            same(compiled(x), model(x))
    assert len(replays) == len(found) == 5 and len(found[0]._tapes) == 3


def test_what_cannot_be_recorded_runs_as_it_is(replays: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def record(*_: Any) -> None:
        tried.append(1)
        raise Unrecordable("not today")

    monkeypatch.setattr(tape, "record", record)
    model, x = small(), torch.randn(1, 3, 8, 8)
    compiled = symshape.jit(model)
    with torch.no_grad():
        for _ in range(4):
            same(compiled(x), model(x))
    assert tried == [1] and not replays
