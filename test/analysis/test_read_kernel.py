"""read_kernel and normalise: what is read, and that normalising changes no point's loads, stores and masks."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest
from kernel_text import KernelText, sym

from symshape.analysis.loops import LoopKernel
from symshape.analysis.normalise_loops import normalise
from symshape.errors import KernelError

S0, S1, S2 = sym(0), sym(1), sym(2)
ADD = "%r = arith.addf %a0, %a1 : f32"
COPY = "%r = arith.negf %a0 : f32"


def trace(kernel: LoopKernel, **symbols: int) -> list[Any]:
    """What happens at the points of a kernel, as a multiset: memory accesses with their masks, per row and point."""
    parallel = [d for d in kernel.dims if not d.reduced]
    reduced = [d for d in kernel.dims if d.reduced]

    def points(dims: list[Any]) -> list[dict[str, int]]:
        ranges = [range(d.size.evaluate(symbols)) for d in dims]
        return [dict(zip((d.name for d in dims), point, strict=True)) for point in product(*ranges)]

    def access(instr: Any, at: dict[str, int]) -> Any:
        values = {**symbols, **at}
        address = instr.address.evaluate(values) if instr.address is not None else None
        return instr.op, instr.arg, address, all(e.evaluate(values) >= 0 for e in instr.mask)

    rows = []
    for row in points(parallel):
        full = [tuple(access(i, {**row, **at}) for i in kernel.code if not i.row) for at in points(reduced)]
        ordered = any(i.combiner.startswith("arg") for i in kernel.code)
        level = tuple(access(i, row) for i in kernel.code if i.row)
        rows.append((level, tuple(full if ordered else sorted(full, key=repr))))
    return sorted(rows, key=repr)


def normalised(kernel: LoopKernel, *sizes: dict[str, int]) -> LoopKernel:
    result = normalise(kernel)
    for symbols in sizes:
        assert trace(kernel, **symbols) == trace(result, **symbols)
    return result


def shape(kernel: LoopKernel) -> list[str]:
    return [f"{d.name}:{d.size}{'r' if d.reduced else ''}" for d in kernel.dims]


def ops(kernel: LoopKernel) -> list[str]:
    return [i.op for i in kernel.code]


def addresses(kernel: LoopKernel, op: str) -> list[str]:
    return [str(i.address) for i in kernel.code if i.op == op]


def test_contiguous_pointwise_is_one_dim() -> None:
    k = KernelText("k", 2, [(S0, "p"), (S1, "p"), (64, "p")])
    x, y, out = k.arg("f32", [S0, S1, 64]), k.arg("f32", [S0, S1, 64]), k.arg("f32", [S0, S1, 64], output=True)
    identity = "(d0, d1, d2) -> (d0, d1, d2)"
    k.store(k.generic([k.view(x, identity), k.view(y, identity)], "f32", ADD), out, identity)
    kernel = k.read()
    assert ops(kernel) == ["load", "load", "arith.addf", "store"]
    assert [(a.name, a.output) for a in kernel.args] == [("in0", False), ("in1", False), ("out0", True)]
    kernel = normalised(kernel, {"s0": 2, "s1": 3}, {"s0": 1, "s1": 1}, {"s0": 0, "s1": 4})
    assert shape(kernel) == ["d0:64*s0*s1"]
    assert addresses(kernel, "load") == ["d0", "d0"]


def test_broadcast_and_transpose() -> None:
    k = KernelText("k", 2, [(S0, "p"), (S1, "p"), (8, "p")])
    bias, x = k.arg("f32", [8]), k.arg("f32", [S1, S0, 8])
    out = k.arg("f32", [S0, S1, 8], [8, 8 * S0, 1], output=True)
    loads = [k.view(bias, "(d0, d1, d2) -> (d2)"), k.view(x, "(d0, d1, d2) -> (d1, d0, d2)")]
    k.store(k.generic(loads, "f32", ADD), out, "(d0, d1, d2) -> (d0, d1, d2)")
    kernel = normalised(k.read(), {"s0": 2, "s1": 3})
    assert shape(kernel) == ["d0:s0*s1", "d1:8"]  # reordered: the transposed output has the transposed input's layout
    assert addresses(kernel, "load") == ["d1", "8*d0 + d1"]


def test_heads_split_vanishes() -> None:
    """[B, S, H*D] seen as [B, H, S, D] and back: the floordiv and mod of the flat dim go away."""
    k = KernelText("k", 2, [(S0, "p"), (S1, "p"), (768, "p")])
    x, out = k.arg("f32", [S0, 12, S1, 64]), k.arg("f32", [S0, S1, 768], output=True)
    v = k.view(x, "(d0, d1, d2) -> (d0, d2 floordiv 64, d1, d2 mod 64)")
    k.store(k.generic([v], "f32", COPY), out, "(d0, d1, d2) -> (d0, d1, d2)")
    kernel = normalised(k.read(), {"s0": 2, "s1": 3})
    assert shape(kernel) == ["d0:s0", "d1:s1", "d2:12", "d3:64"]
    assert not any("//" in text or "%" in text for text in addresses(kernel, "load"))


def test_symbolic_split_and_unprovable_split() -> None:
    for size, dims in ((S0 * S1, ["d0:s0", "d1:s1"]), (S2, ["d0:s2"])):
        k = KernelText("k", 3, [(size, "p")])
        x, out = k.arg("f32", [S0, S1], [1, S0]), k.arg("f32", [size], output=True)
        v = k.view(x, "(d0)[s0] -> (d0 floordiv s0, d0 mod s0)", [S1])
        k.store(k.generic([v], "f32", COPY), out, "(d0) -> (d0)")
        assert shape(normalised(k.read(), {"s0": 2, "s1": 3, "s2": 6})) == dims


def test_unit_dims_and_reduction() -> None:
    k = KernelText("k", 2, [(S0, "p"), (1, "p"), (S1, "r"), (8, "r"), (1, "r")])
    x, out = k.arg("f32", [S0, 1, S1, 8, 1]), k.arg("f32", [S0, 1], output=True)
    total = k.reduce(k.view(x, "(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)"), "add")
    k.store(total, out, "(d0, d1) -> (d0, d1)")
    kernel = normalised(k.read(), {"s0": 2, "s1": 3}, {"s0": 2, "s1": 0})
    assert shape(kernel) == ["d0:s0", "d1:8*s1r"]
    assert [i.row for i in kernel.code] == [False, False, True]


def test_reduction_of_outer_dims_keeps_argmax_order() -> None:
    for combiner, dims in (("add", ["d0:4", "d1:s0r", "d2:s1r"]), ("argmax", ["d0:4", "d1:s1r", "d2:s0r"])):
        k = KernelText("k", 2, [(S1, "r"), (4, "p"), (S0, "r")])
        x, out = k.arg("f32", [S0, S1, 4]), k.arg("f32", [4], output=True)
        result = k.reduce(k.view(x, "(d0, d1, d2) -> (d2, d0, d1)"), combiner)
        k.store(result if combiner == "add" else result[0], out, "(d0) -> (d0)")
        kernel = normalised(k.read(), {"s0": 2, "s1": 3})
        assert [d.size for d in kernel.dims] and sorted(shape(kernel)) == sorted(
            ["d0:4", "d1:s0*s1r"] if combiner == "add" else dims
        )


def test_masked_view_merges_over_the_slower_dim() -> None:
    k = KernelText("k", 2, [(S0 + S1, "p"), (4, "p")])
    x, y, out = k.arg("f32", [S0, 4]), k.arg("f32", [S1, 4]), k.arg("f32", [S0 + S1, 4], output=True)
    a = k.view(x, "(d0, d1)[s0] -> (d0, d1)", [S0], "(d0, d1)[s0] : (s0 - d0 - 1 >= 0)")
    b = k.view(y, "(d0, d1)[s0] -> (d0 - s0, d1)", [S0], "(d0, d1)[s0] : (d0 - s0 >= 0)")
    body = """%i = linalg.index 0 : index
    %c = arith.cmpi slt, %i, %s0 : index
    %r = arith.select %c, %a0, %a1 : f32"""
    k.store(k.generic([a, b], "f32", body), out, "(d0, d1) -> (d0, d1)")
    kernel = k.read()
    assert shape(normalised(kernel, {"s0": 2, "s1": 3})) == ["d0:s0 + s1", "d1:4"]  # the select's index does not merge
    assert [len(i.mask) for i in kernel.code if i.op == "load"] == [1, 1]
    # Without the index the masks alone merge.
    k2 = KernelText("k", 1, [(S0 + 3, "p"), (4, "p")])
    x, out = k2.arg("f32", [S0, 4]), k2.arg("f32", [S0 + 3, 4], output=True)
    low = k2.view(x, "(d0, d1)[s0] -> (d0, d1)", [S0], "(d0, d1)[s0] : (s0 - d0 - 1 >= 0)")
    high = k2.view(x, "(d0, d1)[s0] -> (d0 - 3, d1)", [S0], "(d0, d1)[s0] : (d0 - 3 >= 0)")
    k2.store(k2.generic([low, high], "f32", ADD), out, "(d0, d1) -> (d0, d1)")
    assert len(normalised(k2.read(), {"s0": 2}, {"s0": 5}).dims) == 1


def test_half_rounding_happens_at_stores_only() -> None:
    k = KernelText("k", 1, [(S0, "p")])
    x, out, other = k.arg("bf16", [S0]), k.arg("bf16", [S0], output=True), k.arg("bf16", [S0], output=True)
    body = "%w = arith.extf %a0 : bf16 to f32\n %e = math.exp %w : f32\n %r = arith.truncf %e : f32 to bf16"
    first = k.generic([k.view(x, "(d0) -> (d0)")], "bf16", body)
    k.store(first, out, "(d0) -> (d0)")
    k.store(k.generic([first], "bf16", body), other, "(d0) -> (d0)")
    expected = ["load", "arith.extf", "math.exp", "arith.truncf", "store", "math.exp", "arith.truncf", "store"]
    assert ops(k.read()) == expected


def test_gather_uint8_and_common_subexpressions() -> None:
    k = KernelText("k", 2, [(S0, "p"), (16, "p")])
    index, table, out = k.arg("i64", [S0]), k.arg("ui8", [S1, 16]), k.arg("f32", [S0, 16], output=True)
    body = f"""%i = arith.index_cast %a0 : i64 to index
    %k = "symshape.check_index"(%i, %s1) {{message = "index out of range"}} : (index, index) -> index
    %j = linalg.index 1 : index
    %t = tensor.extract {table}[%k, %j] : tensor<?x?xui8>
    %b = builtin.unrealized_conversion_cast %t : ui8 to i8
    %r = arith.uitofp %b : i8 to f32"""
    v = k.view(index, "(d0, d1) -> (d0)")
    first, second = k.generic([v], "f32", body), k.generic([v], "f32", body)
    k.store(k.generic([first, second], "f32", ADD), out, "(d0, d1) -> (d0, d1)")
    kernel = k.read()
    expected = ["load", "arith.index_cast", "check_index", "index", "extract", "arith.uitofp", "arith.addf", "store"]
    assert ops(kernel) == expected
    assert kernel.checks_index and kernel.code[2].address == S1
    assert kernel.code[4].operands == (kernel.code[2].results[0], kernel.code[3].results[0])


def test_softmax_levels() -> None:
    k = KernelText("k", 2, [(S0, "p"), (S1, "r")])
    x, out = k.arg("f32", [S0, S1]), k.arg("f32", [S0, S1], output=True)
    v = k.view(x, "(d0, d1) -> (d0, d1)")
    top = k.reduce(v, "max")
    e = k.generic([v, top], "f32", "%d = arith.subf %a0, %a1 : f32\n %r = math.exp %d : f32")
    k.store(k.generic([e, k.reduce(e, "add")], "f32", "%r = arith.divf %a0, %a1 : f32"), out, "(d0, d1) -> (d0, d1)")
    kernel = normalised(k.read(), {"s0": 2, "s1": 3})
    assert ops(kernel) == ["load", "reduce", "arith.subf", "math.exp", "reduce", "arith.divf", "store"]
    assert shape(kernel) == ["d0:s0", "d1:s1r"]


def test_errors_name_the_kernel() -> None:
    k = KernelText("broken", 1, [(S0, "p")])
    x, out = k.arg("f32", [S0]), k.arg("f32", [S0], output=True)
    body = "%z = complex.constant [0.0 : f32, 0.0 : f32] : complex<f32>\n    %r = complex.abs %z : complex<f32>"
    k.store(k.generic([k.view(x, "(d0) -> (d0)")], "f32", body), out, "(d0) -> (d0)")
    with pytest.raises(KernelError, match="complex.constant is not supported"):
        k.read()


def _random_kernel(seed: int) -> KernelText:
    """A few loads of reordered, flattened, broadcast, sliced and masked arguments, stored or reduced."""
    choose = random.Random(seed)
    options = [1, 2, 4, 6, S0, S1, 2 * S0, S0 * S1, 4 * S1]
    sizes: list[Any] = [choose.choice(options) for _ in range(choose.randint(1, 4))]
    kinds = [choose.choice("pppr") for _ in sizes]
    k = KernelText("random", 2, list(zip(sizes, kinds, strict=True)))
    dims = [f"d{i}" for i in range(len(sizes))]
    value = ""
    for _ in range(choose.randint(1, 3)):
        order = choose.sample(range(len(sizes)), len(sizes))
        shape, indices = [sizes[i] for i in order], [dims[i] for i in order]
        symbols: list[Any] = []
        kept = [i for i in range(len(order)) if choose.random() < 0.8]
        shape, indices = [shape[i] for i in kept], [indices[i] for i in kept]
        if kept and choose.random() < 0.5:  # split: the argument has the dim as two, with this factor
            i, factor = choose.randrange(len(kept)), choose.choice([2, S0, S1])
            symbols.append(factor)
            position = f"s{len(symbols) - 1}"
            shape[i : i + 1] = [shape[i], factor]
            indices[i : i + 1] = [f"{indices[i]} floordiv {position}", f"{indices[i]} mod {position}"]
        domain = ""
        header = f"({', '.join(dims)})[{', '.join(f's{i}' for i in range(len(symbols)))}]"
        if choose.random() < 0.3:
            domain = f"{header} : ({choose.choice(dims)} - {choose.randint(0, 2)} >= 0)"
        view = k.view(k.arg("f32", shape), f"{header} -> ({', '.join(indices)})", symbols, domain)
        value = k.generic([value, view], "f32", ADD) if value else view
    if "r" in kinds:
        value = k.reduce(value, choose.choice(["add", "max"]))
    parallel = [sizes[i] for i in k.parallel]
    order = choose.sample(range(len(parallel)), len(parallel))
    out = k.arg("f32", [parallel[i] for i in order], output=True)
    names = [f"d{i}" for i in range(len(parallel))]
    k.store(value, out, f"({', '.join(names)}) -> ({', '.join(names[i] for i in order)})")
    return k


@pytest.mark.parametrize("seed", range(60))
def test_normalise_keeps_every_access(seed: int) -> None:
    normalised(_random_kernel(seed).read(), {"s0": 1, "s1": 1}, {"s0": 2, "s1": 3}, {"s0": 3, "s1": 1})
