"""Fixtures for tests of whole models: the model, the backend and how to compile.

``SYMSHAPE_TEST_BACKEND=aot_eager`` runs them with another backend: it shows what the framework itself does with a
model, and checks the tests.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from symshape import knobs
from symshape.tools.measure import compile_for
from symshape.tools.zoo import MODELS, Model


@pytest.fixture
def backend() -> str:
    return knobs.TEST_BACKEND.read()


@pytest.fixture
def compiled(backend: str) -> Callable[[Any], Any]:
    """``symshape.compile``, or the same settings with the backend asked for."""
    return functools.partial(compile_for, backend)


@pytest.fixture(params=list(MODELS))
def model(request: pytest.FixtureRequest) -> Model:
    return MODELS[request.param]


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield
    torch._dynamo.reset()
