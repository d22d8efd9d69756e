"""Programs that are loaded in a process that has traced nothing, and what one call leaves for the next."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

import symshape
from symshape.artifact.compiled_program import Program
from symshape.runtime import program

SCRIPT = """
import sys

from symshape.runtime.program import resolve_target

for target in sys.argv[1:]:
    found = resolve_target(target)  # some are the plain functions
    assert not hasattr(found, "namespace") or found.name() == target.replace(".", "::", 1).removesuffix(".default")
assert not any(name.startswith("symshape.frontend") for name in sys.modules)
"""


def _operators() -> list[str]:
    """Those that modules of the runtime define, and have a default overload."""
    texts = [file.read_text() for file in Path(program.__file__).parent.glob("*.py")]
    return sorted({name for text in texts for name in re.findall(r"define\(\s*f?\"(\w+)\(", text)})


def test_operators_of_ours_are_registered() -> None:
    """As `symshape replay` does with a graph that has a recurrent layer, and a cached graph in a new process."""
    names = _operators()
    assert {"opaque_call", "opaque_random_call_gradient", "jagged_attention", "scatter", "draw"} <= set(names)
    command = [sys.executable, "-c", SCRIPT, *(f"symshape.{name}.default" for name in names)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr


@pytest.mark.parametrize("autotune", [False, True])
def test_an_index_error_of_a_gpu_is_raised_once(monkeypatch: pytest.MonkeyPatch, autotune: bool) -> None:
    """There one word serves all calls: the calls after are not blamed for what it said."""
    word = torch.zeros(1, dtype=torch.int64)
    monkeypatch.setattr(program, "_slot_maker", lambda _program: lambda: word)
    run = symshape.compile(lambda x, i: x[i] * 2, target="triton", cache=False, autotune=autotune)
    x, i = torch.randn(5, 3), torch.tensor([0, 4, 1])
    for _ in range(2):
        with pytest.raises(IndexError, match="out of range|out of bounds"):
            run(x, i + 1)
        torch.testing.assert_close(run(x, i), x[i] * 2)


def test_the_error_word_of_a_gpu_is_a_tensor_with_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are loaded, not called, while PyTorch's fake mode is on."""
    on_a_gpu = Program("", {}, device="cuda:0", pointers=False)
    zeros = torch.zeros
    monkeypatch.setattr(torch, "zeros", lambda *sizes, pin_memory=False, **rest: zeros(*sizes, **rest))
    with FakeTensorMode():
        slot = program._slot_maker(on_a_gpu)
    assert not isinstance(slot(), FakeTensor)
    assert slot() is slot() and program._error_code(slot()) == 0
