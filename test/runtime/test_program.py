"""Programs that are loaded in a process that has traced nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import sys

from symshape.runtime.program import resolve_target

found = resolve_target(sys.argv[1])
assert found.name() == sys.argv[1].replace(".", "::", 1).removesuffix(".default"), found.name()
assert not any(name.startswith("symshape.frontend") for name in sys.modules)
"""


@pytest.mark.parametrize("name", ["opaque_call", "opaque_random_call_gradient"])
def test_operators_of_ours_are_registered(name: str) -> None:
    """As `symshape replay` does with a graph that has a recurrent layer, and a cached graph in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, f"symshape.{name}.default"], capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr
