"""CPU kernels from hand-built loop programs, against PyTorch eager: pointwise work, memory accesses, conversions."""

from __future__ import annotations

import gc

import pytest
import torch
from loop_builder import D0, D1, KINDS, ONE, SIZES, SYMBOLS, ZERO, Builder, build, cpu_target, softmax

from symshape.codegen.cpu.emit.kernel import emit_cpu
from symshape.codegen.cpu.emit.writer import Writer
from symshape.codegen.cpu.objects.compile_objects import compile_objects
from symshape.errors import KernelError
from symshape.prover.numbers.expr import Expr
from symshape.runtime.cpu.load_objects import load_object

__all__ = ["cpu_target"]  # every test here runs once per target


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


def test_pointwise() -> None:
    cases = [
        ("f32", "arith.addf", torch.float32),
        ("f64", "arith.mulf", torch.float64),
        ("i64", "arith.addi", torch.int64),
        ("i32", "arith.muli", torch.int32),
        ("i8", "arith.subi", torch.int8),
        ("i16", "arith.maxsi", torch.int16),
        ("f16", "arith.addf", torch.float16),
        ("bf16", "arith.mulf", torch.bfloat16),
        ("ui8", "arith.addi", torch.uint8),
        ("i1", "arith.xori", torch.bool),
    ]
    apply = {
        "addf": torch.add,
        "mulf": torch.mul,
        "addi": torch.add,
        "muli": torch.mul,
        "subi": torch.sub,
        "maxsi": torch.maximum,
        "xori": torch.logical_xor,
    }
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


def test_index_with_a_long_history() -> None:
    """Every step uses the one before twice: whether an index depends on d1 is not asked along all 2**64 paths."""
    n, m = SYMBOLS[:2]
    b = Builder("long_history", [n, m])
    x, start, out = b.arg("f32", [n, m]), b.arg("i64", [n]), b.arg("f32", [n, m], output=True)
    first = index = b.load(start, D0)
    for _ in range(64):
        index = b.add("arith.andi", b.add("arith.ori", index, first, dtype="i64"), index, dtype="i64")
    index = b.add("check_index", b.add("arith.index_cast", index, dtype="index"), dtype="index", address=n)
    b.store(b.add("extract", index, b.add("index", dtype="index", address=D1), arg=x), out, D0 * m + D1)
    (function,) = build(b)
    for a, c in ((1, 1), (17, 3), (5, 40)):
        values, indices, found = torch.randn(a, c), torch.randperm(a), torch.zeros(a, c)
        error = torch.zeros((), dtype=torch.int64)
        function(values, indices, found, a, c, error)
        assert torch.equal(found, values[indices]) and error == 0


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
        for a, b in ((3, 5), (1, 40), (40, 1), (2, 50), (33, 70), (0, 3), (40, 8), (8, 40), (33, 5), (7, 17), (9, 9)):
            x = (torch.randn(b, a) * 30).to(dtype)
            out = torch.empty(a, b, dtype=dtype)
            function(x, out, a, b)
            assert torch.equal(out, x.t())


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
        inside = b.add(
            "arith.cmpi",
            b.add("index", dtype="index", address=D1),
            b.add("index", dtype="index", address=m - 1),
            dtype="i1",
            predicate="slt",
        )
        even = b.add(
            "arith.cmpi",
            b.add("index", dtype="index", address=D1 % 2),
            b.constant(0, "index"),
            dtype="i1",
            predicate="eq",
        )
        other = b.add("arith.select", even, plain, first, dtype=dtype)
        b.store(b.add("arith.select", inside, value, other, dtype=dtype), out, D0 + D1 * n)
        builders.append(b)
    for function, dtype in zip(build(*builders), KINDS.values()):
        for a, b in ((3, 5), (2, 40), (1, 1), (5, 16)):
            x = (torch.randn(a, 2 * b) * 30).to(dtype)
            out = torch.empty(b, a, dtype=dtype)
            function(x, out, a, b)
            expected = torch.cat([x[:, 1 : 2 * b - 2 : 2], x[:, b - 1 : b] if b % 2 else x[:, :1]], 1)
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
        out, slot = torch.empty_like(x), torch.zeros(1, dtype=torch.int64)
        function(x, y, out, len(x), slot)
        safe = ~((x == limits.min) & (y == -1))
        mode = "floor" if op == "floordivsi" else "trunc"
        expected = torch.fmod(x[safe], y[safe]) if op == "remsi" else torch.div(x[safe], y[safe], rounding_mode=mode)
        assert torch.equal(out[safe], expected), (op, dtype)
        assert not slot.item()
        function(x, torch.zeros_like(y), out, len(x), slot)
        assert slot.item() == 2
        x, y = (torch.randint(limits.min // 2, limits.max // 2, (1000,)).to(KINDS[dtype]) for _ in range(2))
        y = torch.where((y == 0) | (torch.arange(1000) > 500), torch.tensor(7, dtype=KINDS[dtype]), y)
        out = torch.empty_like(x)
        function(x, y, out, len(x), slot)
        expected = torch.fmod(x, y) if op == "remsi" else torch.div(x, y, rounding_mode=mode)
        assert torch.equal(out, expected), (op, dtype)


def test_integer_division_by_constants_and_by_zero() -> None:
    """Constant divisors need no checks; a zero among the others is reported where the kernel has an error slot."""
    n = SYMBOLS[0]
    builders = []
    for divisor in (3, -1, -4):
        b = Builder(f"by_{abs(divisor)}", [n], symbols=1)
        x, out = b.arg("i64", [n]), b.arg("i64", [n], output=True)
        b.store(b.add("arith.divsi", b.load(x, D0), b.constant(divisor, "i64"), dtype="i64"), out, D0)
        builders.append(b)
    b = Builder("checked", [n], symbols=1)
    x, y, out = b.arg("i64", [n]), b.arg("i64", [n]), b.arg("i64", [n], output=True)
    index = b.add("check_index", b.add("index", dtype="index", address=D0), dtype="index", address=n)
    value = b.add("extract", index, dtype="i64", arg=x)
    b.store(b.add("arith.divsi", value, b.load(y, D0), dtype="i64"), out, D0)
    *constants, checked = build(*builders, b)
    x = torch.cat([torch.randint(-(1 << 62), 1 << 62, (50,)), torch.arange(-20, 20)])
    out = torch.empty_like(x)
    for function, divisor in zip(constants, (3, -1, -4)):
        function(x, out, len(x))
        assert torch.equal(out, torch.div(x, divisor, rounding_mode="trunc"))
    y, error = torch.ones_like(x), torch.zeros((), dtype=torch.int64)
    checked(x, y, out, len(x), error)
    assert torch.equal(out, x) and error == 0
    y[-1] = 0
    checked(x, y, out, len(x), error)
    assert error == 2


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
    cases += [
        ("arith.uitofp", "ui8", "f32"),
        ("arith.uitofp", "i1", "f32"),
        ("arith.extui", "i1", "i64"),
        ("arith.extsi", "i8", "i64"),
        ("arith.trunci", "i64", "i8"),
        ("arith.extui", "ui8", "i32"),
    ]
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
    data, _ = compile_objects([emit_cpu(pointwise().kernel())])
    for _ in range(20):
        functions = load_object(data, {"pointwise_f32_addf": 4})
        x = torch.ones(40)
        out = torch.empty(40)
        functions["pointwise_f32_addf"](x.data_ptr(), x.data_ptr(), out.data_ptr(), 40)
        assert torch.equal(out, x + x)
        del functions
    gc.collect()


@pytest.mark.parametrize(("operations", "carries", "copies"), [(3, True, 3), (12, True, 1), (3, False, 1)])
def test_short_bodies_of_reductions_are_written_twice(operations: int, carries: bool, copies: int) -> None:
    """And once more for the round that is left over; every loop tests its condition at the end of a round."""
    writer = Writer()
    bounds = [writer.argument(name) for name in ("%first", "%last", "%step")]

    def body(index: str, names: list[str]) -> list[str]:
        value = index
        for _ in range(operations):
            value = writer.emit(f"arith.xori {value}, {index} : i64")
        return [value] if names else []

    found = writer.loop((bounds[0], bounds[1], bounds[2]), [("%first", "i64")] if carries else [], body)
    text = "\n".join(writer.body())
    assert len(found) == carries
    assert text.count("arith.xori") == operations * copies
    assert text.count("scf.while") == text.count("scf.condition") == 1 and "scf.for" not in text


@pytest.mark.sample(3)
@pytest.mark.parametrize("length", [*range(6), 16, 17, 31, 33, 47, 48, 49, 64, 331])
def test_rows_of_any_number_of_rounds(length: int) -> None:
    kernel = softmax().kernel()
    functions = load_object(compile_objects([emit_cpu(kernel)])[0], {kernel.name: len(kernel.args) + 2})
    x, out = torch.randn(5, length), torch.empty(5, length)
    functions[kernel.name](x.data_ptr(), out.data_ptr(), 5, length)
    torch.testing.assert_close(out, torch.softmax(x, 1))
