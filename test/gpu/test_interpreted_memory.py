"""What all tests of this folder are checked for where kernels are interpreted: races, and accesses out of bounds."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from gpu_machine import Machine
from interpreted_memory import Access, Launch
from triton_cases import emit, softmax

from symshape.codegen.variants import Variant
from symshape.prover.numbers.condition import TRUE
from symshape.runtime.triton.launch import load_triton

ROWS = Variant("persistent", "persistent", TRUE, 1, rblock=128)


@pytest.fixture
def memory(machine: Machine) -> torch.Tensor:
    if machine.is_gpu:
        pytest.skip("interpreted launches only")
    return torch.randn(2000)


def test_rows_in_place_are_no_race(memory: torch.Tensor) -> None:
    x = memory[:1000].view(10, 100)
    expected = torch.softmax(x, 1)
    load_triton(emit(softmax(), [ROWS]))(x, x, 10, 100)
    torch.testing.assert_close(x, expected)


def test_a_row_that_another_program_writes(memory: torch.Tensor) -> None:
    launch = load_triton(emit(softmax(), [ROWS]))
    with pytest.raises(AssertionError, match="900 accesses: store of one program, load of another"):
        launch(memory[:1000].view(10, 100), memory[100:1100].view(10, 100), 10, 100)


def test_rows_that_are_not_there(memory: torch.Tensor) -> None:
    launch = load_triton(emit(softmax(), [ROWS]))
    with pytest.raises(AssertionError, match="100 elements of a load lie in none of the tensors"):
        launch(memory[:900].view(9, 100), memory[1000:].view(10, 100), 10, 100)


def test_orders_that_a_gpu_does_not_keep() -> None:
    x, slot = torch.zeros(4), torch.zeros(1, dtype=torch.int64)
    at = torch.tensor([x.data_ptr(), x.data_ptr() + 4, slot.data_ptr()]).numpy().view("uint64")
    values = torch.tensor([1.0, 2.0]).numpy()

    def problems(*accesses: Access) -> list[str]:
        return list(dict.fromkeys(Launch("f", [x, slot], list(accesses)).problems()))

    store, twice = Access("store", (0,), at[:2], 4, values), Access("store", (0,), at[[0, 0]], 4, values)
    assert problems(Access("load", (0,), at[:2], 4), store) == []
    assert problems(store, Access("load", (0,), at[1:2], 4)) == ["a program loads what it has stored"]
    barrier = Access("barrier", (0,), at[:0], 1)
    assert problems(store, barrier, Access("load", (0,), at[1:2], 4)) == []
    assert problems(twice) == ["a program stores several values at one address"]
    assert problems(store, Access("store", (1,), at[:1], 4, values[:1])) == [
        "2 accesses: store of one program, store of another"
    ]
    assert problems(Access("atomic", (0,), at[:1], 4), Access("atomic", (1,), at[:1], 4)) == []
    assert problems(Access("atomic", (0,), at[:1], 4), Access("load", (1,), at[:1], 4)) == [
        "1 accesses: atomic of one program, load of another"
    ]
    load, order = Access("load", (1,), at[:2], 4), Access("order", (0,), at[:1] + 12, 4)
    done, late = replace(order, program=(1,)), replace(store, program=(2,))
    assert problems(store, order, done, load) == []
    assert problems(order, store, done, load) == ["2 accesses: store of one program, load of another"]
    assert problems(store, order, load, done) == ["2 accesses: store of one program, load of another"]
    assert problems(done, load, late, replace(order, program=(2,))) == [
        "2 accesses: store of one program, load of another"
    ]
    assert problems(*(Access("store", (i,), at[2:], 8, values[:1]) for i in range(2))) == []  # the error slot
