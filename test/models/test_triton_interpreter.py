"""The six tiny models through Triton kernels on the CPU: Triton's interpreter runs them, and they equal eager."""

from __future__ import annotations

import pytest
import torch

from symshape.tools.measure import compile_for, relative_error
from symshape.tools.zoo import Model

pytest.importorskip("triton")

TOLERANCE = 1e-4


def test_interpreted_kernels_equal_eager(model: Model) -> None:
    module = model.build("tiny")
    compiled = compile_for("symshape", module, target="triton")
    with torch.no_grad():
        for shape in model.tiny_shapes:
            inputs = model.inputs(shape)
            assert relative_error(compiled(**inputs), module(**inputs)) <= TOLERANCE, model.describe(shape)
