"""Hand-built loop programs, and how tests compile and call them on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from symshape.analysis.loops import Arg, Dim, Instr, LoopKernel
from symshape.codegen.cpu.emit.kernel import emit_cpu
from symshape.codegen.cpu.objects.compile_objects import compile_objects
from symshape.codegen.cpu.objects.target import Target, default, target_of
from symshape.machine import instruction_sets as cpu_level
from symshape.prover.numbers.expr import Expr
from symshape.runtime.cpu.load_objects import load_object

SYMBOLS = [Expr.symbol(f"s{i}") for i in range(4)]
D0, D1, D2 = (Expr.symbol(f"d{i}") for i in range(3))
ZERO, ONE = Expr.const(0), Expr.const(1)
SIZES = (0, 1, 2, 3, 15, 16, 17, 257, 100_000)


class Builder:
    """Builds a LoopKernel: each method appends an instruction and returns its result's number."""

    def __init__(self, name: str, sizes: Sequence[Expr], reduced: Sequence[int] = (), symbols: int = 2) -> None:
        self.name, self.symbols = name, tuple(f"s{i}" for i in range(symbols))
        self.dims = tuple(Dim(f"d{i}", size, i in reduced) for i, size in enumerate(sizes))
        self.args: list[Arg] = []
        self.code: list[Instr] = []
        self.dtypes: list[str] = []

    def arg(
        self, dtype: str, sizes: Sequence[Expr], strides: Sequence[Expr] | None = None, output: bool = False
    ) -> int:
        if strides is None:
            strides, step = [], ONE
            for size in reversed(sizes):
                strides.insert(0, step)
                step = step * size
        self.args.append(Arg(f"a{len(self.args)}", dtype, output, tuple(sizes), tuple(strides)))
        return len(self.args) - 1

    def add(
        self,
        op: str,
        *operands: int,
        dtype: str = "f32",
        row: bool = False,
        results: Sequence[str] | None = None,
        **attributes: Any,
    ) -> int:
        produced = [dtype] if results is None else list(results)
        numbers = tuple(range(len(self.dtypes), len(self.dtypes) + len(produced)))
        self.dtypes.extend(produced)
        source = self.dtypes[operands[0]] if operands else ""
        self.code.append(Instr(op, numbers, operands, dtype, row, source_dtype=source, **attributes))
        return numbers[0] if numbers else -1

    def load(self, arg: int, address: Expr, row: bool = False, mask: tuple[Expr, ...] = ()) -> int:
        return self.add("load", dtype=self.args[arg].dtype, row=row, arg=arg, address=address, mask=mask)

    def store(self, value: int, arg: int, address: Expr, row: bool = False) -> None:
        self.add("store", value, dtype=self.args[arg].dtype, row=row, arg=arg, address=address, results=[])

    def constant(self, value: float, dtype: str = "f32", row: bool = False) -> int:
        return self.add("constant", dtype=dtype, row=row, value=value)

    def reduce(self, value: int, combiner: str) -> int:
        dtype = self.dtypes[value]
        results = [dtype, "i64"] if combiner.startswith("arg") else [dtype]
        return self.add("reduce", value, dtype=dtype, combiner=combiner, results=results)

    def kernel(self) -> LoopKernel:
        return LoopKernel(self.name, self.dims, tuple(self.args), self.symbols, tuple(self.code))


KINDS = {
    "f32": torch.float32,
    "f64": torch.float64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "ui8": torch.uint8,
    "i1": torch.bool,
}


def narrow_target() -> Target:
    """The target of a machine without AVX-512: its vectors, and its instructions unless the run is held to a level."""
    if cpu_level.from_environment() == cpu_level.NATIVE and "x86-64-v3" in cpu_level.held():
        return target_of("x86-64-v3")
    return replace(default(), lanes=8, fast_masks=False, scalef=False)


_target = default()


@pytest.fixture(params=["host", "narrow"], autouse=True)
def cpu_target(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fixture: runs every test twice, for this machine and as on one without AVX-512."""
    global _target
    _target = default() if request.param == "host" else narrow_target()
    yield
    _target = default()


def build(*builders: Builder) -> list[Callable[..., None]]:
    """Compiled kernels, callable with tensors and ints."""
    kernels = [builder.kernel() for builder in builders]
    data, _ = compile_objects([emit_cpu(kernel, _target) for kernel in kernels], target=_target)
    assert b"malloc" not in data
    counts = {k.name: len(k.args) + len(k.symbols) + k.has_error_slot("cpu") for k in kernels}
    functions = load_object(data, counts)
    return [_with_tensors(functions[kernel.name]) for kernel in kernels]


def _with_tensors(function: Callable[..., None]) -> Callable[..., None]:
    return lambda *values: function(*(v.data_ptr() if isinstance(v, torch.Tensor) else v for v in values))


def softmax() -> Builder:
    n, m = SYMBOLS[:2]
    b = Builder("softmax", [n, m], [1])
    x, out = b.arg("f32", [n, m]), b.arg("f32", [n, m], output=True)
    value = b.load(x, D0 * m + D1)
    e = b.add("math.exp", b.add("arith.subf", value, b.reduce(value, "max")))
    b.store(b.add("arith.divf", e, b.reduce(e, "add")), out, D0 * m + D1)
    return b


def layer_norm(dtype: str = "f32", m: Expr = SYMBOLS[1]) -> Builder:
    n = SYMBOLS[0]
    b = Builder(f"layer_norm_{dtype}", [n, m], [1])
    x, w, c = b.arg(dtype, [n, m]), b.arg("f32", [m]), b.arg("f32", [m])
    out, mean_out = b.arg(dtype, [n, m], output=True), b.arg("f32", [n], output=True)
    value = b.load(x, D0 * m + D1)
    if dtype != "f32":
        value = b.add("arith.extf", value)
    count = b.add(
        "arith.sitofp",
        b.add("arith.index_cast", b.add("index", dtype="index", row=True, address=m), dtype="i64", row=True),
        row=True,
    )
    mean = b.add("arith.divf", b.reduce(value, "add"), count, row=True)
    b.store(mean, mean_out, D0, row=True)
    centred = b.add("arith.subf", value, mean)
    total = b.reduce(b.add("arith.mulf", centred, centred), "add")
    variance = b.add("arith.divf", total, count, row=True)
    scale = b.add("math.rsqrt", b.add("arith.addf", variance, b.constant(1e-5, row=True), row=True), row=True)
    value = b.add("arith.mulf", b.add("arith.mulf", centred, scale), b.load(w, D1))
    value = b.add("arith.addf", value, b.load(c, D1))
    if dtype != "f32":
        value = b.add("arith.truncf", value, dtype=dtype)
    b.store(value, out, D0 * m + D1)
    return b


def reduction(combiner: str, dtype: str, axis: int, name: str = "") -> Builder:
    """One reduction over dim ``axis`` of [s0, s1]."""
    n, m = SYMBOLS[:2]
    b = Builder(name or f"reduce_{combiner}_{dtype}_{axis}", [n, m], [axis])
    x = b.arg(dtype, [n, m])
    kept = D1 if axis == 0 else D0
    size = m if axis == 0 else n
    value = b.reduce(b.load(x, D0 * m + D1), combiner)
    out = b.arg(dtype, [size], output=True)
    b.store(value, out, kept, row=True)
    if combiner.startswith("arg"):
        b.store(value + 1, b.arg("i64", [size], output=True), kept, row=True)
    return b


class threads:  # noqa: N801 - reads as a statement
    def __init__(self, count: int) -> None:
        self.count, self.before = count, torch.get_num_threads()

    def __enter__(self) -> None:
        torch.set_num_threads(self.count)

    def __exit__(self, *_: object) -> None:
        torch.set_num_threads(self.before)
