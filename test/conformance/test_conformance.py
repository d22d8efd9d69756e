"""A fixed tenth of `make conformance`: every tenth operator variant of each class against eager.

To be quick, one sample each: of every third in place and with ``out=``, of the others with gradients.
What PyTorch itself cannot trace, as "aot_eager" shows, is no failure; a wrong value always is.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

pytest.importorskip("expecttest")

from check import ERROR, check
from run import command_for
from variants import CLASSES, tenth, variants
from worker import settings

PARTS = [(group, part) for group in CLASSES for part in range(2)]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("group", "part"), PARTS)
def test_operators_equal_eager(group: str, part: int) -> None:
    failed: list[str] = []
    with settings():
        for i, key in enumerate(key for key in tenth() if variants()[key].group == group):
            if i % 2 == part:
                failed += _failures(key, writing=i % 3 == 2)
    assert not failed, "\n".join(failed)


def _failures(key: str, writing: bool) -> Iterator[str]:
    run = functools.partial(check, variants()[key], torch.float32, most=1, writing=writing)
    bad = [one for one in run().outcomes if one.kind]
    untraceable = {one.label for one in (run(backend="aot_eager").outcomes if bad else ()) if one.kind == ERROR}
    for one in bad:
        if one.kind != ERROR or one.label not in untraceable:
            yield f"{one.label}: {one.kind}: {one.what}\n    {command_for(key)}"


def test_the_script_finds_its_modules() -> None:
    """Here pytest's settings find them."""
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import run, worker, check"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
