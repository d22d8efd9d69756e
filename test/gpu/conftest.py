"""Tests of what runs on GPUs. Without one they run too: Triton's interpreter runs the kernels, on CPU tensors."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from gpu_machine import Machine, machine_here
from interpreted_memory import watched

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks every test of this folder as ``gpu``."""
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(scope="session")
def machine() -> Machine:
    """The machine that the tests run on, a GPU or the interpreter; nothing else decides it."""
    return machine_here()


@pytest.fixture(autouse=True)
def _fresh(machine: Machine) -> Iterator[None]:
    """Removes compiled code of other tests, computes products in float32 on a GPU too, and waits for the test's
    kernels, so that their errors are its own. Interpreted launches are checked for races and accesses out of bounds."""
    torch._dynamo.reset()
    # Other tests of a process forbid to set the flag for good (torch.backends.disable_global_flags).
    watch = nullcontext() if machine.is_gpu else watched()
    with warnings.catch_warnings(), torch.backends.cudnn.flags(allow_tf32=False), watch:
        warnings.simplefilter("ignore")
        yield
    torch._dynamo.reset()
    if machine.is_gpu:
        torch.cuda.synchronize()
