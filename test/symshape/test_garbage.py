"""Python's garbage collector is as it was before a compile, however that ends."""

import gc
import threading

import pytest
import torch

import symshape
from symshape.garbage import collected_later


def test_it_waits_and_goes_on() -> None:
    with collected_later():
        assert not gc.isenabled()
        with collected_later():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_goes_on_after_an_error() -> None:
    with pytest.raises(ValueError), collected_later():
        raise ValueError
    assert gc.isenabled()


def test_what_the_user_switched_off_stays_off() -> None:
    gc.disable()
    try:
        with collected_later():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_two_threads_that_end_in_another_order() -> None:
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with collected_later():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with collected_later():
        thread.start()
        assert inside.wait(10)
    assert not gc.isenabled()  # the other one still runs
    leave.set()
    thread.join()
    assert gc.isenabled()


def test_a_compile_leaves_it_on() -> None:
    compiled = symshape.compile(lambda x: x.sin() + 1, cache=False)
    x = torch.randn(5)
    torch.testing.assert_close(compiled(x), x.sin() + 1)
    assert gc.isenabled()
