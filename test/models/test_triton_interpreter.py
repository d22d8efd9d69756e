"""The six tiny models through Triton kernels on the CPU: Triton's interpreter runs them, and they equal eager.

Each model runs in a process of its own: Triton reads TRITON_INTERPRET when it is imported.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from symshape.zoo import MODELS

pytest.importorskip("triton")

TOLERANCE = 1e-4
_SCRIPT = """
import sys, torch
from symshape.measure import compile_for, relative_error
from symshape.zoo import MODELS

model = MODELS[sys.argv[1]]
module = model.build("tiny")
compiled = compile_for("symshape", module, target="triton")
with torch.no_grad():
    for shape in model.tiny_shapes:
        inputs = model.inputs(shape)
        print("error", shape, relative_error(compiled(**inputs), module(**inputs)))
"""


@pytest.mark.parametrize("name", MODELS)
def test_interpreted_kernels_equal_eager(name: str) -> None:
    child = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-c", _SCRIPT, name]
    done = subprocess.run(command, env=child, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    errors = [float(line.rsplit(" ", 1)[1]) for line in done.stdout.splitlines() if line.startswith("error")]
    assert len(errors) == len(MODELS[name].tiny_shapes)
    assert max(errors) <= TOLERANCE, done.stdout
