"""Settings that must be made before a test imports anything, and the same random numbers in every run."""

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))  # what several folders of tests share
sys.path.append(str(Path(__file__).parent.parent / "bench"))  # what tests and benchmarks share
os.environ.setdefault("TRITON_INTERPRET", "1")  # triton reads it when it is imported, which transformers does too
# Read when OpenMP is loaded. Two workers have more threads than the machine has cores, and a thread that waits for the
# others of its team keeps a core busy: models took up to five times as long.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ["SYMSHAPE_STRICT"] = "1"  # a failure of ours must not be hidden by what is done instead
os.environ["SYMSHAPE_CACHE"] = "0"  # what a test compiles must be compiled; the cache's own tests switch it on


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch = sys.modules.get("torch")  # the tools' tests must not import it
    if torch is not None:
        torch.manual_seed(0)


@pytest.fixture
def outcomes(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """ "hit", "miss", "stored" or "not cached: ..." for each graph since the last call."""
    caplog.set_level(logging.INFO, "symshape.cache")

    def read() -> list[str]:
        found = [record.getMessage().partition(": ")[2] for record in caplog.records]
        caplog.clear()
        return found

    return read
