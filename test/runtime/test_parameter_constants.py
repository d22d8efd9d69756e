"""Changes of parameters are found, whoever makes them and whether their memory is watched or hashed."""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from symshape.runtime import parameter_constants
from symshape.runtime.parameter_constants import ParameterConstants
from symshape.runtime.torch_c import address_of, is_watched, watch_writes

LARGE = (64, 128)  # 32 KiB: watched


def doubled(*parameters: torch.Tensor) -> Sequence[torch.Tensor]:
    return [parameter * 2 for parameter in parameters]


def shared() -> torch.Tensor:
    return torch.randn(LARGE).share_memory_()


def of_numpy() -> torch.Tensor:
    return torch.from_numpy(np.ones(LARGE, np.float32))


def of_a_file() -> torch.Tensor:
    return torch.frombuffer(mmap.mmap(-1, 64 * 128 * 4), dtype=torch.float32).view(LARGE)


CHANGES: dict[str, Callable[[torch.Tensor], object]] = {
    "operator": lambda p: p.add_(1),
    "data": lambda p: p.data.mul_(3),
    "one element": lambda p: p.data[-1, -1].add_(1),
    "out": lambda p: torch.add(p, 1, out=p.data),
    "foreach": lambda p: torch._foreach_add_([p], 1.0),
    "copy": lambda p: p.data.copy_(torch.randn(LARGE)),
    "numpy": lambda p: p.detach().numpy().__iadd__(np.float32(1)),
    "dlpack": lambda p: torch.from_dlpack(p.detach()).add_(1),
    "address": lambda p: ctypes.c_float.from_address(p.data_ptr()).__setattr__("value", p[0, 0].item() + 1),
    "storage": lambda p: p.untyped_storage().copy_(torch.randn(LARGE).untyped_storage()),
    "new memory": lambda p: p.__setattr__("data", p.data + 1),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_each_kind_of_write_is_found(change: Callable[[torch.Tensor], object]) -> None:
    parameter = torch.nn.Parameter(torch.randn(LARGE))
    constants = ParameterConstants(doubled, [0])
    with torch.no_grad():
        for _ in range(3):
            before = constants.of([parameter])[0]
            torch.testing.assert_close(before, parameter * 2, rtol=0, atol=0)
            assert is_watched(parameter) and constants.of([parameter])[0] is before
            change(parameter)
            torch.testing.assert_close(constants.of([parameter])[0], parameter * 2, rtol=0, atol=0)
            assert constants.of([parameter])[0] is not before


@pytest.mark.parametrize("make", [shared, of_numpy, of_a_file])
def test_memory_that_is_not_only_ours_is_hashed(make: Callable[[], torch.Tensor]) -> None:
    parameter = make()
    write = ctypes.c_float.from_address(parameter.data_ptr())
    constants = ParameterConstants(doubled, [0])
    for n in range(3):
        write.value = float(n)
        assert constants.of([parameter])[0][0, 0].item() == 2 * n
        assert not is_watched(parameter)


def test_an_array_that_is_older_than_the_first_call() -> None:
    """Its owner has the address already, and asks for it no more."""
    parameter = torch.randn(LARGE)
    array, constants = parameter.numpy(), ParameterConstants(doubled, [0])
    for n in range(3):
        array[0, 0] = n
        assert constants.of([parameter])[0][0, 0].item() == 2 * n


def test_an_array_that_stays_after_a_write() -> None:
    parameter, constants = torch.randn(LARGE), ParameterConstants(doubled, [0])
    constants.of([parameter])
    array = parameter.numpy()
    for n in range(3):
        array[0, 0] = n
        assert constants.of([parameter])[0][0, 0].item() == 2 * n


def test_another_owner_of_constants_watches_anew() -> None:
    """What one finds and watches again is a change for the other too."""
    parameter = torch.randn(LARGE)
    one, other = ParameterConstants(doubled, [0]), ParameterConstants(doubled, [0])
    for n in range(4):
        parameter.data[0, 0] = n
        for constants in (one, other) if n % 2 else (other, one):
            assert constants.of([parameter])[0][0, 0].item() == 2 * n
    assert is_watched(parameter)


def test_parameters_that_exchange_their_memory() -> None:
    first, second = torch.randn(LARGE), torch.randn(LARGE)
    constants = ParameterConstants(doubled, [0, 1])
    for _ in range(3):
        for found, parameter in zip(constants.of([first, second]), (first, second), strict=True):
            torch.testing.assert_close(found, parameter * 2, rtol=0, atol=0)
        first.data, second.data = second.data, first.data


def test_memory_stays_where_it_is_and_is_not_copied() -> None:
    parameter = torch.randn(LARGE)
    address = address_of(parameter)
    assert watch_writes(parameter) and address_of(parameter) == address
    parameter.add_(1)
    assert not is_watched(parameter) and address_of(parameter) == parameter.data_ptr() == address
    alias = parameter.view(-1)
    assert not watch_writes(parameter) and not watch_writes(alias)


def test_memory_that_is_asked_for_at_each_call_is_hashed_in_the_end() -> None:
    parameter = torch.randn(LARGE)
    constants = ParameterConstants(doubled, [0])
    found = {constants.of([parameter])[0]}
    for _ in range(parameter_constants._MOST_ALARMS):
        parameter.data_ptr()
        found.add(constants.of([parameter])[0])
    parameter.data_ptr()
    found.add(constants.of([parameter])[0])
    assert len(found) == 1 and not is_watched(parameter)
    parameter.data[0, 0] = 7
    assert constants.of([parameter])[0][0, 0].item() == 14


def test_threads_that_read_while_one_watches() -> None:
    parameter = torch.randn(LARGE)
    expected = parameter * 2
    several = [ParameterConstants(doubled, [0]) for _ in range(4)]
    wrong: list[int] = []

    def call(n: int) -> None:
        for _ in range(20):
            parameter.data_ptr()
            if not torch.equal(several[n].of([parameter])[0], expected):
                wrong.append(n)

    threads = [threading.Thread(target=call, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
