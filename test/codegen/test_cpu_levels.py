"""Code held to a level of x86-64: which instructions it has, that it is right, and how a level is chosen."""

from __future__ import annotations

import platform
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import pytest
import torch
from loop_builder import D0, SYMBOLS, Builder

import symshape
from symshape.codegen.cpu.emit.kernel import emit_cpu
from symshape.codegen.cpu.objects.compile_objects import compile_objects
from symshape.codegen.cpu.objects.target import target_of
from symshape.errors import OptionError
from symshape.machine import instruction_sets as cpu_level
from symshape.machine.object_symbols import undefined
from symshape.options import Options
from symshape.runtime.compact import mask_positions
from symshape.runtime.cpu.load_objects import load_object

HELD = cpu_level.held()
END_OF_AVX = b"\xc5\xf8\x77"  # vzeroupper, where registers of 256 or 512 bits were used
WIDE = b"\x62\xf1\x7c\x48"  # the prefix of instructions of floats of 512 bits
N = SYMBOLS[0]


def conversion(name: str, operation: str, source: str, target: str, scalar: bool = False) -> Builder:
    """out[i] = the converted x[i]; ``scalar``: of x[0], which is a value of the whole vector."""
    b = Builder(name, [N], symbols=1)
    x, out = b.arg(source, [N]), b.arg(target, [N], output=True)
    b.store(b.add(operation, b.load(x, D0 * 0 if scalar else D0), dtype=target), out, D0)
    return b


def tangents() -> Builder:
    """Many multiplications with an addition, as all that is approximated has."""
    b = Builder("tangents", [N], symbols=1)
    x, out = b.arg("f32", [N]), b.arg("f32", [N], output=True)
    b.store(b.add("math.tanh", b.load(x, D0)), out, D0)
    return b


@cache
def objects(level: str) -> tuple[bytes, dict[str, Any]]:
    kernels = [
        b.kernel()
        for b in (
            conversion("widened", "arith.extf", "f16", "f32"),
            conversion("rounded", "arith.truncf", "f32", "f16"),
            conversion("widened_one", "arith.extf", "f16", "f32", True),
            conversion("rounded_one", "arith.truncf", "f32", "f16", True),
            tangents(),
        )
    ]
    target = target_of(level)
    data, _ = compile_objects([emit_cpu(kernel, target) for kernel in kernels], 2, target)
    return data, load_object(data, {kernel.name: 3 for kernel in kernels})


def same(actual: torch.Tensor, expected: torch.Tensor) -> bool:
    """With equal bits, or both NaN."""
    bits = torch.int32 if actual.dtype == torch.float32 else torch.int16
    return bool(((actual.view(bits) == expected.view(bits)) | actual.isnan() & expected.isnan()).all())


def run(function: Any, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    out = torch.empty(len(x), dtype=dtype)
    function(x.data_ptr(), out.data_ptr(), len(x))
    return out


@pytest.mark.parametrize("level", HELD)
def test_halves_are_converted_by_any_level(level: str) -> None:
    """All of them, and floats around each and between any two: instructions, or integer arithmetic below v3."""
    _, functions = objects(level)
    halves = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.float16)
    assert same(run(functions["widened"], halves, torch.float32), halves.float())
    next_ones = (halves.view(torch.int16) + 1).view(torch.float16).float()
    between = (halves.float() + next_ones) / 2
    around = [(between.view(torch.int32) + offset).view(torch.float32) for offset in (-1, 0, 1)]
    random = torch.randint(-(2**31), 2**31 - 1, (1 << 16,), dtype=torch.int32).view(torch.float32)
    floats = torch.cat([*around, random, torch.randn(1 << 12) * 1e-7, torch.tensor([1e-45, 65519.9, 65520.0, 1e38])])
    assert same(run(functions["rounded"], floats, torch.float16), floats.half())
    for value in (0.1, -7e-6, 65504.0, -65520.0, float("nan"), 0.0):
        x = torch.full((3,), value)
        assert same(run(functions["rounded_one"], x, torch.float16), x.half())
        assert same(run(functions["widened_one"], x.half(), torch.float32), x.half().float())


@pytest.mark.parametrize("level", HELD)
def test_an_object_has_the_instructions_of_its_level(level: str) -> None:
    data, functions = objects(level)
    assert (END_OF_AVX in data) == (level >= "x86-64-v3")
    assert (WIDE in data) == (level >= "x86-64-v4")
    called = {name for name in undefined(data) if not name.startswith(("omp_", "GOMP_"))}
    assert called == ({"fmaf", "fma"} & called if level < "x86-64-v3" else set())
    x = torch.linspace(-9, 9, 1001)
    exact = x.double().tanh().float()
    torch.testing.assert_close(run(functions["tangents"], x, torch.float32), exact, rtol=3e-7, atol=0)


def program(x: torch.Tensor) -> torch.Tensor:
    return x.half().sigmoid().float().softmax(0)


@pytest.mark.parametrize("level", HELD)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.uint8, torch.bool])
def test_rows_read_from_their_ends(level: str, dtype: torch.dtype) -> None:
    """Whole vectors, what is left of one, and a row that is padded as well."""

    def turned(x: torch.Tensor) -> list[torch.Tensor]:
        ends = torch.nn.functional.pad(x, (1, 2)).flip(1)
        return [x.flip(1), x.flip(0, 1), ends, x.flip(1)[:, :5], x.t().flip(0), x + x.flip(1)]

    compiled = torch.compile(turned, backend="symshape", dynamic=True, options={"cpu": level})
    for size in (1, 7, 16, 17, 33, 100):
        x = torch.randn(3, size).mul(50).to(dtype)
        assert all(map(torch.equal, compiled(x), turned(x)))


@pytest.mark.parametrize("level", HELD)
def test_long_integers_and_floats(level: str) -> None:
    """Small numbers, and vectors that hold some that are too large for a float64, or NaN."""

    def converted(n: torch.Tensor, m: torch.Tensor, x: torch.Tensor) -> list[torch.Tensor]:
        i = torch.arange(len(n))
        quotients = [torch.div(n, m, rounding_mode=mode) for mode in ("trunc", "floor")]
        return [n.double(), n.float(), (i * 3).float() + n, x.long(), x.double().long(), *quotients, n % m]

    compiled = torch.compile(converted, backend="symshape", dynamic=True, options={"cpu": level})
    edges = [sign * ((1 << power) + more) for power in (24, 50, 51, 52, 53, 62) for sign in (1, -1) for more in (-1, 1)]
    large = torch.tensor([*edges, 0, -1, (1 << 63) - 1, -(1 << 63)])
    for n in (large, torch.randint(-(1 << 50), 1 << 50, (33,)), torch.randint(-9, 9, (7,))):
        m = torch.randint(1, 1 << 20, n.shape) * (torch.arange(len(n)) % 2 * 2 - 1)
        x = n.float().clamp(-(2.0**62), 2.0**62) + 0.75
        assert all(map(torch.equal, compiled(n, m, x), converted(n, m, x)))


@pytest.mark.parametrize("level", HELD[:1])
def test_programs_of_a_level(level: str) -> None:
    compiled = torch.compile(program, backend="symshape", dynamic=True, options={"cpu": level})
    for n in (5, 1, 17):
        x = torch.randn(n, 3)
        torch.testing.assert_close(compiled(x), program(x), rtol=2e-3, atol=0)


@pytest.mark.parametrize("level", HELD[:1])
def test_positions_of_a_mask_are_found_by_code_of_the_level(level: str) -> None:
    def selected(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        return x[m] * 2

    def program(options: dict[str, Any]) -> str:
        report = symshape.explain(selected, x, x > 0, options={"cache": False, **options})
        return report.graphs[0].program_source

    x = torch.randn(33)
    other = mask_positions(x > 0, "cpu", level)
    assert torch.equal(other, mask_positions(x > 0, "cpu")) and torch.equal(other, (x > 0).nonzero().squeeze(1))
    assert f"'cpu', '{level}'" in program({"cpu": level}) and "'cpu', 'native'" in program({"cpu": "native"})


def test_what_is_no_level_of_this_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match=r"unknown cpu 'avx2'\n  next: cpus: native, x86-64-v2, .*SYMSHAPE_CPU"):
        Options.parse({"cpu": "avx2"})
    with pytest.raises(OptionError, match="cpu cannot be 3"):
        Options.parse({"cpu": 3})
    monkeypatch.setenv("SYMSHAPE_CPU", "x86-64-v9")
    with pytest.raises(OptionError, match="unknown cpu 'x86-64-v9'"):
        symshape.compile(program)
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert Options.parse({"cpu": "native"}).cpu == "native" and cpu_level.held() == ()
    message = "'x86-64-v2' is a level of x86-64, and this is aarch64\n  next: use 'native'"
    with pytest.raises(OptionError, match=message):
        Options.parse({"cpu": "x86-64-v2"})
    with monkeypatch.context() as patched:
        patched.setattr(platform, "machine", lambda: "x86_64")
        old = dict.fromkeys(cpu_level.features("x86-64-v2"), True)
        patched.setattr(llvm, "get_host_cpu_features", lambda: old)
        message = "cpu 'x86-64-v3': this processor has no avx, .*\n  next: use one of native, x86-64-v2"
        with pytest.raises(OptionError, match=message):
            Options.parse({"cpu": "x86-64-v3"})


@pytest.mark.skipif(not HELD, reason="levels are those of x86-64")
def test_the_environment_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SYMSHAPE_CPU", raising=False)
    assert Options.parse(None).cpu == "native"
    monkeypatch.setenv("SYMSHAPE_CPU", HELD[0])
    assert Options.parse(None).cpu == HELD[0] and Options.parse({"cpu": "native"}).cpu == "native"
