"""Hashes of the contents of tensors: which changes they see, by any number of threads and any code."""

from __future__ import annotations

import random

import pytest
import torch

from symshape.machine.instruction_sets import NATIVE, held
from symshape.runtime.cpu.content_hash import CHUNK, ContentHash

SIZES = (1, 4, 7, 8, 9, 63, 255, 256, 257, 520, 4096, CHUNK - 1, CHUNK, CHUNK + 4, 5 * CHUNK + 13)


def hashed(function: ContentHash, *tensors: torch.Tensor) -> bytes:
    return function([tensor.data_ptr() for tensor in tensors])


@pytest.mark.parametrize("size", SIZES)
def test_every_changed_bit_is_seen(size: int) -> None:
    data, other = torch.randint(0, 256, (size,), dtype=torch.uint8), torch.zeros(3, dtype=torch.uint8)
    function = ContentHash([size, 3])
    seen = {hashed(function, data, other)}
    draw = random.Random(size)
    places = {0, size - 1, *(draw.randrange(size) for _ in range(300))}
    for place in places:
        data[place] ^= 1 << draw.randrange(8)
        found = hashed(function, data, other)
        assert found not in seen and found == hashed(function, data.clone(), other)
        seen.add(found)


def test_what_is_moved_is_seen() -> None:
    data = torch.randint(0, 256, (3 * CHUNK,), dtype=torch.uint8)
    function = ContentHash([data.nbytes])
    before = hashed(function, data)
    for length in (4, 8, 64, 256, 2048, CHUNK):
        moved = data.clone()
        moved[:length], moved[length : 2 * length] = data[length : 2 * length].clone(), data[:length].clone()
        assert hashed(function, moved) != before
    assert hashed(function, data.roll(1)) != before
    zeros = torch.zeros(2, 4 * CHUNK)
    zeros[0, 5] = zeros[1, 6] = 1
    assert hashed(ContentHash([16 * CHUNK]), zeros[0]) != hashed(ContentHash([16 * CHUNK]), zeros[1])


def test_two_tensors_that_are_exchanged() -> None:
    one, other = torch.randn(100), torch.randn(100)
    function = ContentHash([400, 400])
    assert hashed(function, one, other) != hashed(function, other, one)


def test_threads_and_instructions_change_nothing() -> None:
    data = torch.randn(CHUNK)
    found = {hashed(ContentHash([data.nbytes], level), data) for level in (NATIVE, *held())}
    threads = torch.get_num_threads()
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            found.add(hashed(ContentHash([data.nbytes]), data))
    finally:
        torch.set_num_threads(threads)
    assert len(found) == 1


def test_no_tensors() -> None:
    assert ContentHash([])([]) == b""
