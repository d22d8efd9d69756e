"""Choosing by measured time: each bucket of sizes once, remembered on disk, never at the price of a result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from triton_cases import emit, softmax

import symshape
from symshape.codegen.variants import Variant
from symshape.errors import KernelError, OptionError
from symshape.options import Options
from symshape.prover.numbers.condition import TRUE, at_least
from symshape.prover.numbers.expr import Expr
from symshape.runtime.autotune import Autotuner, bucket_of
from symshape.runtime.store import Cache
from symshape.runtime.triton import tuned_launch as triton_tuned
from symshape.runtime.triton.tuned_launch import load_tuned

CPU = torch.device("cpu")


class _Timer:
    """Seconds of each run, from a table: runs are told apart by what they append to ``ran``."""

    def __init__(self, seconds: dict[Any, float]) -> None:
        self.seconds, self.ran = seconds, []  # type: ignore[var-annotated]

    def __call__(self, run: Callable[[], None]) -> float:
        run()
        return self.seconds[self.ran[-1]]


def _tuner(seconds: dict[Any, float], folder: Path) -> tuple[Autotuner, _Timer]:
    timer = _Timer(seconds)
    return Autotuner(CPU, timer, Cache(folder)), timer


def test_the_fastest_is_chosen_and_remembered(tmp_path: Path) -> None:
    tuner, timer = _tuner({0: 3e-6, 1: 1e-6, 2: 2e-6}, tmp_path)
    names = ["a", "b", "c"]
    assert tuner.choose("kernel", "(3, 4)", names, timer.ran.append) == 1
    assert set(timer.ran) == {0, 1, 2}
    again, other = _tuner({}, tmp_path)  # another process
    assert again.choose("kernel", "(3, 4)", names, other.ran.append) == 1
    assert again.choose("kernel", "(3, 4)", ["b"], other.ran.append) == 0
    assert not other.ran
    other.seconds = {0: 1.0, 1: 2.0, 2: 3.0}
    for changed in (("kernel", "(3, 5)", names), ("another", "(3, 4)", names), ("kernel", "(3, 4)", ["c", "b", "a"])):
        assert again.choose(*changed, other.ran.append) == 0
    (file, *_) = tmp_path.iterdir()
    for file in tmp_path.iterdir():
        file.write_bytes(b"damage")
    assert again.choose("kernel", "(3, 4)", names, other.ran.append) == 0  # measured anew


def test_what_cannot_run_is_never_chosen(tmp_path: Path) -> None:
    tuner, timer = _tuner({1: 5.0}, tmp_path)

    def run(i: int) -> None:
        if i != 1:
            raise RuntimeError("out of resources")
        timer.ran.append(i)

    assert tuner.choose("kernel", "()", ["a", "b", "c"], run) == 1
    with pytest.raises(KernelError, match="no variant can run: out of resources"):
        tuner.choose("kernel", "()", ["a", "c"], lambda i: run(0))


def test_buckets_are_powers_of_two() -> None:
    assert [bucket_of(n)[0] for n in (0, 1, 2, 3, 4, 7, 8)] == [0, 1, 2, 2, 3, 3, 4]


def test_a_kernel_is_measured_once_for_each_bucket(tmp_path: Path) -> None:
    """Among the variants whose conditions hold; measuring writes to no tensor of the caller's."""
    columns = Expr.symbol("s1")
    kernel = emit(
        softmax(),
        [
            Variant("short", "persistent", at_least(16, columns), 2, rblock=16),
            Variant("long", "persistent", at_least(64, columns), 2, rblock=64),
            Variant("looped", "looped", TRUE, 2, rblock=16),
            Variant("split", "split", TRUE, 2, 4, rblock=16, splits=Expr.const(2)),
        ],
    )
    measured: list[tuple[str, tuple[str, ...]]] = []

    class Fake(Autotuner):
        def choose(self, kernel: str, bucket: str, candidates: Any, run: Callable[[int], None]) -> int:
            measured.append((bucket, tuple(candidates)))
            for i in range(len(candidates)):
                run(i)
            return len(candidates) - 1 - len(measured) % 2

    launch = load_tuned(kernel, lambda device: Fake(device, cache=Cache(tmp_path)))
    for rows, length in ((3, 9), (2, 15), (3, 40), (3, 100)):
        x = torch.randn(rows, length)
        before = x.clone()
        out = torch.full((rows, length), -1.0)
        launch(x, out, rows, length)
        torch.testing.assert_close(out, torch.softmax(x, -1))
        assert torch.equal(x, before)
    assert measured == [
        ("(2, 4)", ("short", "looped", "split")),  # "long" holds four times as many as are needed
        ("(2, 6)", ("long", "looped", "split")),
        ("(2, 7)", ("looped", "split")),
    ]
    launch(torch.randn(0, 9), torch.empty(0, 9), 0, 9)


def test_the_mode_switches_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not Options.parse(None).autotune and not Options.parse(None, "default").autotune
    assert Options.parse(None, "max-autotune").autotune
    assert not Options.parse({"autotune": False}, "max-autotune").autotune
    with pytest.raises(OptionError, match="autotune cannot be 1"):
        Options.parse({"autotune": 1})
    used = []

    class Fake(Autotuner):
        def choose(self, kernel: str, bucket: str, candidates: Any, run: Callable[[int], None]) -> int:
            used.append(candidates)
            return 0

    monkeypatch.setattr(triton_tuned, "_tuner", Fake)
    x = torch.randn(5, 33)
    torch._dynamo.reset()
    compiled = symshape.compile(lambda x: x * 2 + 1, mode="max-autotune", target="triton")
    torch.testing.assert_close(compiled(x), x * 2 + 1)
    assert len(used) == 1
