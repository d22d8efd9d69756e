"""CPU kernels from hand-built loop programs, against PyTorch eager."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

from symshape.codegen.cpu.emit import emit_cpu
from symshape.codegen.cpu.jit import compile_objects
from symshape.codegen.cpu.target import Target, host
from symshape.codegen.loops import Arg, Dim, Instr, LoopKernel
from symshape.errors import KernelError
from symshape.prover.expr import Expr
from symshape.runtime.cpu_kernels import load_object

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

    def add(self, op: str, *operands: int, dtype: str = "f32", row: bool = False, results: Sequence[str] | None = None,
            **attributes: Any) -> int:
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


_target = host()


@pytest.fixture(params=["host", "narrow"], autouse=True)
def target(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test runs with this machine's vectors and as on a machine without AVX-512."""
    global _target
    _target = host() if request.param == "host" else Target(8, False, False)
    yield
    _target = host()


def build(*builders: Builder) -> list[Callable[..., None]]:
    """Compiled kernels, callable with tensors and ints."""
    kernels = [builder.kernel() for builder in builders]
    data, _ = compile_objects([emit_cpu(kernel, _target) for kernel in kernels])
    assert b"malloc" not in data
    counts = {k.name: len(k.args) + len(k.symbols) + k.checks_index for k in kernels}
    functions = load_object(data, counts)
    return [_with_tensors(functions[kernel.name]) for kernel in kernels]


def _with_tensors(function: Callable[..., None]) -> Callable[..., None]:
    return lambda *values: function(*(v.data_ptr() if isinstance(v, torch.Tensor) else v for v in values))


def pointwise(dtype: str = "f32", op: str = "arith.addf") -> Builder:
    n = SYMBOLS[0]
    b = Builder(f"pointwise_{dtype}_{op.split('.')[1]}", [n], symbols=1)
    x, y, out = b.arg(dtype, [n]), b.arg(dtype, [n]), b.arg(dtype, [n], output=True)
    b.store(b.add(op, b.load(x, D0), b.load(y, D0), dtype=dtype), out, D0)
    return b


def broadcast() -> Builder:
    """x[d0, d1] * w[d1] + c[d0] and a comparison, over [s0, s1]."""
    n, m = SYMBOLS[:2]
    b = Builder("broadcast", [n, m])
    x, w, c = b.arg("f32", [n, m]), b.arg("f32", [m]), b.arg("f32", [n])
    out, flags = b.arg("f32", [n, m], output=True), b.arg("i1", [n, m], output=True)
    value = b.add("arith.mulf", b.load(x, D0 * m + D1), b.load(w, D1))
    value = b.add("arith.addf", value, b.load(c, D0))
    b.store(value, out, D0 * m + D1)
    b.store(b.add("arith.cmpf", value, b.constant(0.0), dtype="i1", predicate="ogt"), flags, D0 * m + D1)
    return b


def softmax() -> Builder:
    n, m = SYMBOLS[:2]
    b = Builder("softmax", [n, m], [1])
    x, out = b.arg("f32", [n, m]), b.arg("f32", [n, m], output=True)
    value = b.load(x, D0 * m + D1)
    e = b.add("math.exp", b.add("arith.subf", value, b.reduce(value, "max")))
    b.store(b.add("arith.divf", e, b.reduce(e, "add")), out, D0 * m + D1)
    return b


def layer_norm(dtype: str = "f32") -> Builder:
    n, m = SYMBOLS[:2]
    b = Builder(f"layer_norm_{dtype}", [n, m], [1])
    x, w, c = b.arg(dtype, [n, m]), b.arg("f32", [m]), b.arg("f32", [m])
    out, mean_out = b.arg(dtype, [n, m], output=True), b.arg("f32", [n], output=True)
    value = b.load(x, D0 * m + D1)
    if dtype != "f32":
        value = b.add("arith.extf", value)
    count = b.add("arith.sitofp", b.add("arith.index_cast", b.add("index", dtype="index", row=True, address=m),
                                        dtype="i64", row=True), row=True)
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


def test_pointwise() -> None:
    cases = [("f32", "arith.addf", torch.float32), ("f64", "arith.mulf", torch.float64),
             ("i64", "arith.addi", torch.int64), ("i32", "arith.muli", torch.int32), ("i8", "arith.subi", torch.int8),
             ("i16", "arith.maxsi", torch.int16), ("f16", "arith.addf", torch.float16),
             ("bf16", "arith.mulf", torch.bfloat16), ("ui8", "arith.addi", torch.uint8),
             ("i1", "arith.xori", torch.bool)]
    apply = {"addf": torch.add, "mulf": torch.mul, "addi": torch.add, "muli": torch.mul, "subi": torch.sub,
             "maxsi": torch.maximum, "xori": torch.logical_xor}
    functions = build(*(pointwise(dtype, op) for dtype, op, _ in cases))
    for function, (_, op, dtype) in zip(functions, cases):
        for size in SIZES:
            x, y = ((torch.randn(size) * 50).to(dtype) for _ in range(2))
            out = torch.zeros(size + 1, dtype=dtype)
            function(x, y, out, size)
            expected = apply[op.split(".")[1]](x, y)
            assert torch.equal(out[:size], expected), (op, dtype, size)
            assert out[size] == 0


def test_broadcast() -> None:
    (function,) = build(broadcast())
    for n in (0, 1, 3, 40):
        for m in (0, 1, 15, 16, 17, 5000):
            x, w, c = torch.randn(n, m), torch.randn(m), torch.randn(n)
            out, flags = torch.empty(n, m), torch.empty(n, m, dtype=torch.bool)
            function(x, w, c, out, flags, n, m)
            torch.testing.assert_close(out, x * w + c[:, None])
            assert torch.equal(flags, out > 0)


def test_softmax_and_layer_norm() -> None:
    soft, norm, norm_half = build(softmax(), layer_norm(), layer_norm("bf16"))
    for n, m in ((0, 4), (1, 1), (3, 2), (5, 17), (64, 256), (3, 10_007)):
        x, w, c = torch.randn(n, m) + 3, torch.randn(m), torch.randn(m)
        out, mean = torch.empty(n, m), torch.empty(n)
        soft(x, out, n, m)
        torch.testing.assert_close(out, torch.softmax(x, 1))
        norm(x, w, c, out, mean, n, m)
        torch.testing.assert_close(mean, x.mean(1))
        torch.testing.assert_close(out, torch.nn.functional.layer_norm(x, [m], w, c), rtol=1e-5, atol=1e-5)
        x = x.bfloat16()
        half = torch.empty(n, m, dtype=torch.bfloat16)
        norm_half(x, w, c, half, mean, n, m)
        expected = torch.nn.functional.layer_norm(x.float(), [m], w, c)
        torch.testing.assert_close(half.float(), expected, rtol=8e-3, atol=1e-3)


def test_softmax_special_values() -> None:
    (soft,) = build(softmax())
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([[1.0, inf, 2.0], [nan, 1.0, 2.0], [-inf, 1.0, 2.0], [-inf, -inf, -inf]])
    out = torch.empty(4, 3)
    soft(x, out, 4, 3)
    torch.testing.assert_close(out, torch.softmax(x, 1), equal_nan=True)


@pytest.mark.parametrize("axis", [0, 1])
def test_reductions(axis: int) -> None:
    cases = [("add", "f32", torch.float32), ("max", "f32", torch.float32), ("min", "f64", torch.float64),
             ("add", "i64", torch.int64), ("mul", "f64", torch.float64), ("or", "i1", torch.bool),
             ("and", "i1", torch.bool), ("max", "ui8", torch.uint8), ("min", "i32", torch.int32),
             ("max", "bf16", torch.bfloat16), ("add", "f16", torch.float16)]
    apply = {"add": torch.sum, "max": torch.amax, "min": torch.amin, "mul": torch.prod, "or": torch.any,
             "and": torch.all}
    functions = build(*(reduction(c, d, axis) for c, d, _ in cases))
    for function, (combiner, _, dtype) in zip(functions, cases):
        for n, m in ((1, 1), (3, 2), (17, 33), (100, 70), (3, 5000), (5000, 3)):
            x = (torch.randn(n, m) * 2 + (combiner in ("or", "and"))).to(dtype)
            exact = x.double() if combiner == "add" and dtype.is_floating_point else x
            expected = apply[combiner](exact, axis).to(dtype)
            out = torch.empty_like(expected)
            function(x, out, n, m)
            tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype is torch.float32 else {}
            text = f"{combiner} {dtype} {n} {m}"
            torch.testing.assert_close(out, expected, msg=lambda m, text=text: f"{text}: {m}", **tolerance)


@pytest.mark.parametrize("axis", [0, 1])
def test_empty_reduction(axis: int) -> None:
    (function,) = build(reduction("add", "f32", axis))
    x = torch.empty((0, 5) if axis == 0 else (5, 0))
    out = torch.ones(5)
    function(x, out, *x.shape)
    assert torch.equal(out, torch.zeros(5))


@pytest.mark.parametrize("axis", [0, 1])
def test_arg_reductions(axis: int) -> None:
    functions = build(*(reduction(c, d, axis) for c in ("argmax", "argmin") for d in ("f32", "i64", "ui8")))
    cases = [(f, d) for f in (torch.max, torch.min) for d in (torch.float32, torch.int64, torch.uint8)]
    apply = {torch.max: torch.argmax, torch.min: torch.argmin}
    for function, (kind, dtype) in zip(functions, cases):
        for n, m in ((1, 1), (5, 3), (40, 100), (3, 5000), (70, 17)):
            for spread in (2, 1000):  # a small spread gives ties
                x = torch.randint(0, spread, (n, m)).to(dtype)
                if dtype is torch.float32 and n > 1:
                    x[1] = float("-inf") if kind is torch.max else float("inf")
                    x[2, m // 2:] = float("nan")
                values = torch.empty(x.shape[1 - axis], dtype=dtype)
                indices = torch.empty(x.shape[1 - axis], dtype=torch.int64)
                function(x, values, indices, n, m)
                assert torch.equal(indices, _first(x, apply[kind], axis)), (kind, dtype, n, m)
                torch.testing.assert_close(values, kind(x, axis).values, equal_nan=True)


def _first(x: torch.Tensor, kind: Callable[..., torch.Tensor], axis: int) -> torch.Tensor:
    """The first of equal extrema; NaN first of all."""
    y = x.double() if kind is torch.argmax else -x.double()
    if y.isnan().any():
        y = torch.where(y.isnan(), 1e300, y.clamp(-1e200, 1e200))
    best = y.amax(axis, keepdim=True)
    return (y == best).int().argmax(axis)


def test_sum_of_all_is_accurate_and_deterministic() -> None:
    n = SYMBOLS[0]
    b = Builder("total", [n], [0], symbols=1)
    x, out = b.arg("f32", [n]), b.arg("f32", [], output=True)
    b.store(b.reduce(b.load(x, D0), "add"), out, ZERO, row=True)
    (function,) = build(b)
    for size in (1, 100, 10_000_000):
        values = torch.rand(size)
        first, second = torch.empty(()), torch.empty(())
        function(values, first, size)
        with threads(1):
            function(values, second, size)
        assert torch.equal(first, second)
        assert abs(first.double() / values.double().sum() - 1) < 1e-6


class threads:  # noqa: N801 - reads as a statement
    def __init__(self, count: int) -> None:
        self.count, self.before = count, torch.get_num_threads()

    def __enter__(self) -> None:
        torch.set_num_threads(self.count)

    def __exit__(self, *_: object) -> None:
        torch.set_num_threads(self.before)


def test_thread_counts_agree_bitwise() -> None:
    functions = build(softmax(), reduction("add", "f32", 0), reduction("add", "f32", 1))
    for n, m in ((3, 50_000), (2000, 300), (100_000, 5)):
        x = torch.randn(n, m)
        for function, shape in zip(functions, ((n, m), (m,), (n,))):
            outs = [torch.empty(shape) for _ in range(3)]
            for out, count in zip(outs, (1, 2, 7)):
                with threads(count):
                    function(x, out, n, m)
            assert torch.equal(outs[0], outs[1]) and torch.equal(outs[0], outs[2])


def test_masked_loads_concatenate() -> None:
    """cat along either dim: two masked loads and a select."""
    n, m, p = SYMBOLS[:3]
    builders = []
    for axis, dtype in ((0, "f32"), (1, "f32"), (1, "ui8")):
        d, first = (D0, n) if axis == 0 else (D1, m)
        sizes = (n + p, m) if axis == 0 else (n, m + p)
        b = Builder(f"cat_{axis}_{dtype}", sizes, symbols=3)
        x = b.arg(dtype, [n, m])
        y = b.arg(dtype, [p, m] if axis == 0 else [n, p])
        out = b.arg(dtype, sizes, output=True)
        left = b.load(x, D0 * m + D1, mask=(first - 1 - d,))
        right = b.load(y, (D0 - n) * m + D1 if axis == 0 else D0 * p + D1 - m, mask=(d - first,))
        position = b.add("index", dtype="index", address=d)
        limit = b.add("index", dtype="index", address=first)
        inside = b.add("arith.cmpi", position, limit, dtype="i1", predicate="slt")
        b.store(b.add("arith.select", inside, left, right, dtype=dtype), out, D0 * sizes[1] + D1)
        builders.append(b)
    for function, (axis, dtype) in zip(build(*builders), ((0, torch.float32), (1, torch.float32), (1, torch.uint8))):
        for a, b, c in ((3, 5, 2), (1, 1, 1), (20, 40, 0), (20, 40, 33), (0, 7, 4), (7, 0, 4)):
            x, y = ((torch.randn(s) * 50).to(dtype) for s in ((a, b), (c, b) if axis == 0 else (a, c)))
            expected = torch.cat([x, y], axis)
            out = torch.empty_like(expected)
            function(x, y, out, a, b, c)
            assert torch.equal(out, expected)


def test_embedding_and_gather() -> None:
    """w[ids[d0], d1], and x[d0, ids[d0, d1]]: a contiguous and a per-lane data-dependent read."""
    n, m, vocabulary = SYMBOLS[:3]
    builders = []
    for per_lane in (False, True):
        b = Builder(f"extract_{per_lane}", [n, m], symbols=3)
        ids = b.arg("i64", [n, m] if per_lane else [n])
        w = b.arg("f32", [n, vocabulary] if per_lane else [vocabulary, m])
        out = b.arg("f32", [n, m], output=True)
        value = b.load(ids, D0 * m + D1 if per_lane else D0)
        index = b.add("arith.index_cast", value, dtype="index")
        index = b.add("check_index", index, dtype="index", address=vocabulary)
        other = b.add("index", dtype="index", address=D0 if per_lane else D1)
        pair = (other, index) if per_lane else (index, other)
        b.store(b.add("extract", *pair, arg=w), out, D0 * m + D1)
        builders.append(b)
    embedding, gather = build(*builders)
    for a, b, c in ((3, 5, 7), (20, 64, 100), (1, 17, 1)):
        error = torch.zeros((), dtype=torch.int64)
        out = torch.empty(a, b)
        ids, w = torch.randint(0, c, (a,)), torch.randn(c, b)
        embedding(ids, w, out, a, b, c, error)
        assert torch.equal(out, w[ids]) and error == 0
        ids, x = torch.randint(0, c, (a, b)), torch.randn(a, c)
        gather(ids, x, out, a, b, c, error)
        assert torch.equal(out, x.gather(1, ids)) and error == 0
        ids[-1, -1] = c
        gather(ids, x, out, a, b, c, error)
        assert error == 1
    error = torch.zeros((), dtype=torch.int64)
    out = torch.ones(2, 3)
    embedding(torch.zeros(2, dtype=torch.int64), torch.empty(0, 3), out, 2, 3, 0, error)
    assert error == 1 and torch.equal(out, torch.zeros(2, 3))


def test_strided_and_nonaffine_reads() -> None:
    """A transposed read, a flattened view (floordiv, mod), and a broadcast along the lanes."""
    n, m = SYMBOLS[:2]
    builders = []
    for dtype in ("f32", "i8"):
        b = Builder(f"transposed_{dtype}", [n, m])
        x, out = b.arg(dtype, [m, n]), b.arg(dtype, [n, m], output=True)
        b.store(b.load(x, D1 * n + D0), out, D0 * m + D1)
        builders.append(b)
    b = Builder("flat", [n * m])
    x, out = b.arg("f32", [m, n]), b.arg("f32", [n * m], output=True)
    b.store(b.load(x, (D0 % m) * n + D0 // m), out, D0)
    for function, dtype in zip(build(*builders, b), (torch.float32, torch.int8, torch.float32)):
        for a, b in ((3, 5), (1, 40), (40, 1), (33, 70), (0, 3)):
            x = (torch.randn(b, a) * 30).to(dtype)
            out = torch.empty(a, b, dtype=dtype)
            function(x, out, a, b)
            assert torch.equal(out, x.t())


KINDS = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
         "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "ui8": torch.uint8, "i1": torch.bool}


def test_every_dtype_through_every_kind_of_access() -> None:
    """out[d0, d1] = x[d0, 2*d1 + 1], where only d1 < s1 - 1 is read; the output's lanes are s0 apart."""
    n, m = SYMBOLS[:2]
    builders = []
    for dtype in KINDS:
        b = Builder(f"access_{dtype}", [n, m])
        x, out = b.arg(dtype, [n, m * 2]), b.arg(dtype, [n, m], [ONE, n], output=True)
        value = b.load(x, D0 * m * 2 + D1 * 2 + 1, mask=(m - 2 - D1,))
        plain = b.load(x, D0 * m * 2 + D1)
        first = b.load(x, D0 * m * 2)
        inside = b.add("arith.cmpi", b.add("index", dtype="index", address=D1),
                       b.add("index", dtype="index", address=m - 1), dtype="i1", predicate="slt")
        even = b.add("arith.cmpi", b.add("index", dtype="index", address=D1 % 2), b.constant(0, "index"), dtype="i1",
                     predicate="eq")
        other = b.add("arith.select", even, plain, first, dtype=dtype)
        b.store(b.add("arith.select", inside, value, other, dtype=dtype), out, D0 + D1 * n)
        builders.append(b)
    for function, dtype in zip(build(*builders), KINDS.values()):
        for a, b in ((3, 5), (2, 40), (1, 1), (5, 16)):
            x = (torch.randn(a, 2 * b) * 30).to(dtype)
            out = torch.empty(b, a, dtype=dtype)
            function(x, out, a, b)
            expected = torch.cat([x[:, 1:2 * b - 2:2], x[:, b - 1:b] if b % 2 else x[:, :1]], 1)
            assert torch.equal(out.t(), expected), dtype


def test_constant_sizes_and_single_points() -> None:
    """Full vectors without masks, rows of one vector, and a kernel without dims."""
    builders = []
    for size in (64, 48, 16, 5):
        b = Builder(f"constant_{size}", [SYMBOLS[0], Expr.const(size)], [1], symbols=1)
        x, out = b.arg("f32", [SYMBOLS[0], Expr.const(size)]), b.arg("f32", [SYMBOLS[0], Expr.const(size)], output=True)
        value = b.load(x, D0 * size + D1)
        e = b.add("math.tanh", value)
        b.store(b.add("arith.addf", e, b.reduce(e, "add")), out, D0 * size + D1)
        builders.append(b)
    point = Builder("point", [], symbols=0)
    x, out = point.arg("f32", []), point.arg("f32", [], output=True)
    point.store(point.add("math.exp", point.load(x, ZERO)), out, ZERO)
    *functions, single = build(*builders, point)
    for function, size in zip(functions, (64, 48, 16, 5)):
        x, out = torch.randn(7, size), torch.empty(7, size)
        function(x, out, 7)
        torch.testing.assert_close(out, x.tanh() + x.tanh().sum(1, keepdim=True))
    x, out = torch.tensor(1.5), torch.empty(())
    single(x, out)
    torch.testing.assert_close(out, x.exp())


def test_reduction_over_two_of_three_dims() -> None:
    """Mean and variance over dims 0 and 2, in two passes, and a sum over dims 0 and 1."""
    n, m, p = SYMBOLS[:3]
    b = Builder("batch_norm", [n, m, p], [0, 2], symbols=3)
    x, out = b.arg("f32", [n, m, p]), b.arg("f32", [n, m, p], output=True)
    value = b.load(x, (D0 * m + D1) * p + D2)
    count = b.add("arith.sitofp", b.add("index", dtype="index", row=True, address=n * p), row=True)
    mean = b.add("arith.divf", b.reduce(value, "add"), count, row=True)
    centred = b.add("arith.subf", value, mean)
    variance = b.add("arith.divf", b.reduce(b.add("arith.mulf", centred, centred), "add"), count, row=True)
    scale = b.add("math.rsqrt", b.add("arith.addf", variance, b.constant(1e-5, row=True), row=True), row=True)
    b.store(b.add("arith.mulf", centred, scale), out, (D0 * m + D1) * p + D2)
    c = Builder("leading", [n, m, p], [0, 1], symbols=3)
    x, out = c.arg("f32", [n, m, p]), c.arg("f32", [p], output=True)
    c.store(c.reduce(c.load(x, (D0 * m + D1) * p + D2), "add"), out, D2, row=True)
    norm, leading = build(b, c)
    for shape in ((2, 3, 5), (4, 1, 300), (3, 7, 16), (40, 50, 60), (300, 2, 3), (3000, 20, 2)):
        x = torch.randn(shape)
        out = torch.empty(shape)
        norm(x, out, *shape)
        mean, variance = x.mean((0, 2), keepdim=True), x.var((0, 2), keepdim=True, correction=0)
        torch.testing.assert_close(out, (x - mean) / (variance + 1e-5).sqrt(), rtol=1e-4, atol=1e-5)
        total = torch.empty(shape[2])
        leading(x, total, *shape)
        torch.testing.assert_close(total, x.double().sum((0, 1)).float(), rtol=1e-4, atol=1e-4)


def test_split_reductions() -> None:
    """Few rows, many columns: chunks of a row on all threads, also argmax, max with NaN and columns."""
    functions = build(*(reduction(c, "f32", axis) for c in ("argmax", "max", "add") for axis in (0, 1)))
    x = torch.randn(3, 300_000)
    x[1, 299_000] = x[1, 200_000] = float("nan")
    x[2, 123_456] = x[2, 200_000] = 9.0
    for k, axis in enumerate((0, 1)):
        y = x.t().contiguous() if axis == 0 else x
        values, indices = torch.empty(3), torch.empty(3, dtype=torch.int64)
        functions[k](y, values, indices, *y.shape)
        assert indices.tolist() == [int(x[0].argmax()), 200_000, 123_456]
        functions[2 + k](y, values, *y.shape)
        torch.testing.assert_close(values, x.amax(1), equal_nan=True)
        sums = [torch.empty(3) for _ in range(2)]
        for out, count in zip(sums, (1, 2)):
            with threads(count):
                functions[4 + k](y, out, *y.shape)
        torch.testing.assert_close(sums[0], x.double().sum(1).float(), rtol=1e-4, atol=1e-3, equal_nan=True)
        assert torch.equal(sums[0].nan_to_num(), sums[1].nan_to_num())


def test_integer_division_never_crashes() -> None:
    builders = []
    cases = [(op, dtype) for op in ("divsi", "remsi", "floordivsi") for dtype in ("i8", "i32", "i64")]
    for op, dtype in cases:
        builders.append(pointwise(dtype, f"arith.{op}"))
    for function, (op, dtype) in zip(build(*builders), cases):
        limits = torch.iinfo(KINDS[dtype])
        values = [limits.min, limits.min + 1, -7, -1, 1, 2, 5, limits.max]
        x = torch.tensor([a for a in values for _ in values], dtype=KINDS[dtype])
        y = torch.tensor([b for _ in values for b in values], dtype=KINDS[dtype])
        out = torch.empty_like(x)
        function(x, y, out, len(x))
        safe = ~((x == limits.min) & (y == -1))
        mode = "floor" if op == "floordivsi" else "trunc"
        expected = torch.fmod(x[safe], y[safe]) if op == "remsi" else torch.div(x[safe], y[safe], rounding_mode=mode)
        assert torch.equal(out[safe], expected), (op, dtype)
        function(x, torch.zeros_like(y), out, len(x))


def test_casts() -> None:
    n = SYMBOLS[0]
    floats = ("f32", "f64", "f16", "bf16")
    cases = []
    for source in floats:
        cast = "arith.truncf" if source in ("f64", "f32") else "arith.extf"
        cases += [(cast, source, t) for t in floats if t != source]
        cases += [("arith.fptosi", source, t) for t in ("i64", "i32", "i8")]
    for source in ("i64", "i32", "i8"):
        cases += [("arith.sitofp", source, t) for t in floats]
    cases += [("arith.uitofp", "ui8", "f32"), ("arith.uitofp", "i1", "f32"), ("arith.extui", "i1", "i64"),
              ("arith.extsi", "i8", "i64"), ("arith.trunci", "i64", "i8"), ("arith.extui", "ui8", "i32")]
    builders = []
    for op, source, target in cases:
        b = Builder(f"cast_{source}_{target}", [n], symbols=1)
        x, out = b.arg(source, [n]), b.arg(target, [n], output=True)
        b.store(b.add(op, b.load(x, D0), dtype=target), out, D0)
        builders.append(b)
    for function, (_, source, target) in zip(build(*builders), cases):
        x = torch.cat([torch.randn(50) * 60, torch.tensor([0.0, -0.0, 1.0, 0.5])])
        if source in floats and target in floats:
            x = torch.cat([x, torch.tensor([float("inf"), float("nan"), 1e-7, 65519.9, 3.4e38, -1e-40])])
        x = x.to(KINDS[source])
        out = torch.empty(len(x), dtype=KINDS[target])
        function(x, out, len(x))
        torch.testing.assert_close(out, x.to(KINDS[target]), rtol=0, atol=0, equal_nan=True)


def test_unknown_operation_is_a_kernel_error() -> None:
    with pytest.raises(KernelError, match="library call"):
        emit_cpu(pointwise("f32", "math.nothing").kernel())


def test_loading_and_freeing_many() -> None:
    data, timings = compile_objects([emit_cpu(pointwise().kernel())])
    assert timings.total < 2
    for _ in range(20):
        functions = load_object(data, {"pointwise_f32_addf": 4})
        x = torch.ones(40)
        out = torch.empty(40)
        functions["pointwise_f32_addf"](x.data_ptr(), x.data_ptr(), out.data_ptr(), 40)
        assert torch.equal(out, x + x)
        del functions
        gc.collect()
