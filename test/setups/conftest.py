"""Everyday set-ups: each is compared with eager mode, and fails if no kernel of ours was launched."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import counters

sys.path.insert(0, str(Path(__file__).parent))

from launches import counted_launches  # noqa: E402


@pytest.fixture(autouse=True)
def launches() -> Iterator[Counter[str]]:
    """Counts launches of kernels in the test, by name. Other processes add theirs: ``launches.update(found)``."""
    with counted_launches() as found:
        yield found
    assert found, "nothing was compiled: no kernel of ours was launched"


@pytest.fixture(autouse=True)
def _nothing_in_eager_mode() -> Iterator[None]:
    """Makes Dynamo's limit of recompiles an error: beyond it Dynamo runs the function in eager mode, and only warns."""
    torch._dynamo.reset()
    counters.clear()
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch._dynamo.reset()


@pytest.fixture
def graphs() -> Callable[[], int]:
    """The number of graphs that Dynamo has handed to backends in this test."""
    return lambda: counters["stats"]["unique_graphs"]
