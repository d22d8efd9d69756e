"""Settings that must be made before a test imports anything, and the same random numbers in every run."""

import gc
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Generator
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
gc.disable()  # until all is imported: there are no cycles yet to be found


def pytest_collection_finish() -> None:
    """Freezes modules and tests, which live until the end: walking them took longer than what a collection saved."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks all but every n-th case of a test as ``long`` if the test is marked ``sample(n)``. An n without a common
    factor with the lengths of the test's tables takes each value of each table in turn."""
    cases: Counter[str] = Counter()
    for item in items:
        sample = item.get_closest_marker("sample")
        if sample is not None:
            name = item.nodeid.partition("[")[0]
            if cases[name] % sample.args[0]:
                item.add_marker("long")
            cases[name] += 1


def _without_trace() -> Generator[None]:
    """Removes pytest's handlers from PyTorch's structured trace. pytest adds them to every logger that does not pass
    its records on, and with a handler the trace has the text of every graph and stage: a tenth of the tests' time."""
    trace = logging.getLogger("torch.__trace")
    for handler in [one for one in trace.handlers if type(one).__module__ == "_pytest.logging"]:
        trace.removeHandler(handler)
    return (yield)


# Last is innermost, after pytest has begun to listen.
pytest_runtest_setup = pytest.hookimpl(wrapper=True, trylast=True)(_without_trace)
pytest_runtest_call = pytest.hookimpl(wrapper=True, trylast=True)(_without_trace)


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
