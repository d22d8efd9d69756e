"""Launches through PyTorch's launcher: what it is given, and what is left to Triton's. The launcher is a stand-in."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from symshape.runtime.triton import direct_launch as direct

TYPES = {"in0": "*fp32", "in1": "fp32", "s0": "i32", "s1": "i64", "INDEX": "constexpr", "error_slot": "*i64"}


@dataclasses.dataclass
class Metadata:
    """Of a kernel, as Triton 3.6 has it."""

    name: str = "softmax"
    shared: int = 128
    num_warps: int = 8
    num_ctas: int = 1
    global_scratch_size: int = 0
    profile_scratch_size: int = 0


class Launcher:
    """In the place of torch._C._StaticCudaLauncher. ``extra``: what later versions return before the function."""

    def __init__(self, extra: tuple[int, ...] = ()) -> None:
        self.extra, self.loaded, self.launched = extra, [], []  # type: ignore[var-annotated]

    def load(self, path: str, name: str, shared: int, device: int) -> tuple[int, ...]:
        self.loaded.append((Path(path).read_bytes(), name, shared, device))
        return (*self.extra, 77, 40, 0)

    def launch(self, *args: Any) -> None:
        self.launched.append(args)


def compiled(**changes: int) -> Any:
    return SimpleNamespace(metadata=Metadata(**changes), asm={"cubin": b"code"})


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Launcher:
    made = Launcher()
    monkeypatch.setattr(direct, "static_launcher", lambda: (made.load, made.launch))
    monkeypatch.setattr(direct, "raw_stream", lambda device: 1000 + device)
    return made


@pytest.mark.parametrize("extra", [(), (5,)], ids=["2.11", "2.13"])
def test_what_the_launcher_is_given(launcher: Launcher, extra: tuple[int, ...]) -> None:
    """Numbers and addresses by their kinds, and no scratch memory where the kernel has places for it."""
    launcher.extra = extra
    launch = direct.direct_launch(compiled(), TYPES, 1)
    assert launch is not None and launcher.loaded == [(b"code", "softmax", 128, 1)]
    launch(6, (4096, 0.5, 3, 2**40, "slot"))
    launch(7, (4096, 0.5, 3, 2**40, "slot"))
    args = (4096, 0.5, 3, 2**40, "slot", None, None)
    assert launcher.launched == [(77, n, 1, 1, 8, 128, "OfilOOO", args, 1001) for n in (6, 7)]


def test_what_is_left_to_triton(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    from triton import knobs

    assert direct.direct_launch(compiled(global_scratch_size=64), TYPES, 0) is None
    assert direct.direct_launch(compiled(num_ctas=2), TYPES, 0) is None
    assert direct.direct_launch(compiled(), TYPES | {"in1": "fp16"}, 0) is None
    assert direct.direct_launch(compiled(), {f"in{i}": "*fp32" for i in range(119)}, 0) is None
    monkeypatch.setattr(knobs.runtime, "launch_enter_hook", lambda _metadata: None)
    assert direct.direct_launch(compiled(), TYPES, 0) is None
    monkeypatch.undo()
    monkeypatch.setattr(direct, "static_launcher", lambda: None)
    assert direct.direct_launch(None, TYPES, 0) is None
    assert not launcher.loaded
