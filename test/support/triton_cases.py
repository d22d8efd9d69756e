"""Kernels for the Triton tests: written in the normal form, read, normalised and emitted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from kernel_text import KernelText, Size, sym

from symshape.analysis.loops import LoopKernel
from symshape.analysis.normalise_loops import normalise
from symshape.artifact.triton_kernels import TritonKernel
from symshape.codegen.triton.kernel import emit_triton
from symshape.codegen.variants import Variant
from symshape.prover.numbers.condition import TRUE, at_least
from symshape.prover.numbers.expr import product

S0, S1, S2 = sym(0), sym(1), sym(2)
IDENTITY = "(d0, d1) -> (d0, d1)"
ADD = "%r = arith.addf %a0, %a1 : f32"
WIDEN = "%r = arith.extf %a0 : bf16 to f32"


def loops(text: KernelText) -> LoopKernel:
    return normalise(text.read())


REDUCING = {
    v.name: v
    for v in (
        Variant("persistent", "persistent", TRUE, 4, rblock=128),
        Variant("looped", "looped", TRUE, 4, rblock=64),
        Variant("looped_wide", "looped", TRUE, 1, rblock=2048, num_warps=8, index_bits=64),
    )
}
FLAT = {
    v.name: v
    for v in (
        Variant("small", "pointwise", TRUE, 256, num_warps=2),
        Variant("large", "pointwise", TRUE, 1024),
        Variant("large_wide", "pointwise", TRUE, 1024, index_bits=64),
    )
}


def table(kernel: LoopKernel) -> list[Variant]:
    """Two variants: a form for small sizes with its condition, then one for all sizes."""
    reduced = [d.size for d in kernel.dims if d.reduced]
    small, large, _ = (REDUCING if reduced else FLAT).values()
    fits = at_least(128, product(reduced)) if reduced else at_least(1000, product(d.size for d in kernel.dims))
    return [replace(small, condition=fits), large]


def emit(text: KernelText | LoopKernel, variants: Sequence[Variant] = ()) -> TritonKernel:
    kernel = loops(text) if isinstance(text, KernelText) else text
    return emit_triton(kernel, variants or table(kernel))


def runner(text: KernelText | LoopKernel | TritonKernel, variant: str | Variant = "") -> Callable[..., None]:
    """The loaded kernel. ``variant``: the one that runs at every size, or its name above; "": the table's choice."""
    from symshape.runtime.triton.launch import load_triton

    if isinstance(text, TritonKernel):
        return load_triton(text)
    if isinstance(variant, str) and variant:
        variant = (REDUCING | FLAT)[variant]
    return load_triton(emit(text, [variant] if isinstance(variant, Variant) else ()))


def softmax(size: Size = S1, dtype: str = "f32") -> KernelText:
    k = KernelText("softmax", 2, [(S0, "p"), (size, "r")])
    x, out = k.arg(dtype, [S0, size]), k.arg(dtype, [S0, size], output=True)
    v = k.view(x, IDENTITY)
    v = k.generic([v], "f32", WIDEN) if dtype == "bf16" else v
    e = k.generic([v, k.reduce(v, "max")], "f32", "%d = arith.subf %a0, %a1 : f32\n    %r = math.exp %d : f32")
    tail = "%r = arith.divf %a0, %a1 : f32"
    if dtype == "bf16":
        tail = "%q = arith.divf %a0, %a1 : f32\n    %r = arith.truncf %q : f32 to bf16"
    k.store(k.generic([e, k.reduce(e, "add")], dtype, tail), out, IDENTITY)
    return k


def layer_norm(size: Size = S1) -> KernelText:
    """Two dependent reductions, a weight along the reduced dim, a row-level output."""
    k = KernelText("layer_norm", 2, [(S0, "p"), (size, "r")])
    x, w = k.arg("f32", [S0, size]), k.arg("f32", [size])
    out, inverse = k.arg("f32", [S0, size], output=True), k.arg("f32", [S0], output=True)
    v, weight = k.view(x, IDENTITY), k.view(w, "(d0, d1) -> (d1)")
    count = f"%n = arith.index_cast {k.index(size)} : index to i64\n    %f = arith.sitofp %n : i64 to f32\n    "
    mean = k.generic([k.reduce(v, "add")], "f32", count + "%r = arith.divf %a0, %f : f32", row=True)
    square = k.generic([v, mean], "f32", "%d = arith.subf %a0, %a1 : f32\n    %r = arith.mulf %d, %d : f32")
    body = (
        count
        + """%v = arith.divf %a0, %f : f32
    %eps = arith.constant 1.0e-5 : f32
    %e = arith.addf %v, %eps : f32
    %r = math.rsqrt %e : f32"""
    )
    scale = k.generic([k.reduce(square, "add")], "f32", body, row=True)
    body = "%d = arith.subf %a0, %a1 : f32\n    %m = arith.mulf %d, %a2 : f32\n    %r = arith.mulf %m, %a3 : f32"
    k.store(k.generic([v, mean, scale, weight], "f32", body), out, IDENTITY)
    k.store(scale, inverse, "(d0) -> (d0)")
    return k


def transpose() -> KernelText:
    k = KernelText("transpose", 2, [(S0, "p"), (S1, "p")])
    x, y, out = k.arg("f32", [S1, S0]), k.arg("f32", [S1]), k.arg("f32", [S0, S1], output=True)
    loads = [k.view(x, "(d0, d1) -> (d1, d0)"), k.view(y, "(d0, d1) -> (d1)")]
    k.store(k.generic(loads, "f32", ADD), out, IDENTITY)
    return k


def mixed() -> KernelText:
    """Loads of 1, 2 and 4 bytes, a row of weights, stores of 2 and 4 bytes: two dims that do not merge."""
    k = KernelText("mixed", 2, [(S0, "p"), (S1, "p")])
    x, y, flags = k.arg("f32", [S0, S1]), k.arg("bf16", [S0, S1]), k.arg("i1", [S0, S1])
    weight = k.arg("f32", [S1])
    half, single = k.arg("bf16", [S0, S1], output=True), k.arg("f32", [S0, S1], output=True)
    loads = [k.view(x, IDENTITY), k.view(y, IDENTITY), k.view(flags, IDENTITY), k.view(weight, "(d0, d1) -> (d1)")]
    body = """%w = arith.extf %a1 : bf16 to f32
    %s = arith.addf %a0, %w : f32
    %t = arith.mulf %s, %a3 : f32
    %u = arith.select %a2, %t, %w : f32
    """
    k.store(k.generic(loads, "bf16", body + "%r = arith.truncf %u : f32 to bf16"), half, IDENTITY)
    k.store(k.generic(loads, "f32", body + "%r = arith.negf %u : f32"), single, IDENTITY)
    return k


def concatenate() -> KernelText:
    k = KernelText("concatenate", 3, [(S2, "p"), (S0 + S1, "p")])
    x, y, out = k.arg("f32", [S2, S0]), k.arg("f32", [S2, S1]), k.arg("f32", [S2, S0 + S1], output=True)
    a = k.view(x, "(d0, d1)[s0] -> (d0, d1)", [S0], "(d0, d1)[s0] : (s0 - d1 - 1 >= 0)")
    b = k.view(y, "(d0, d1)[s0] -> (d0, d1 - s0)", [S0], "(d0, d1)[s0] : (d1 - s0 >= 0)")
    body = """%i = linalg.index 1 : index
    %c = arith.cmpi slt, %i, %s0 : index
    %r = arith.select %c, %a0, %a1 : f32"""
    k.store(k.generic([a, b], "f32", body), out, IDENTITY)
    return k


def gather() -> KernelText:
    k = KernelText("gather", 2, [(S0, "p"), (16, "p")])
    index, table, out = k.arg("i64", [S0]), k.arg("bf16", [S1, 16]), k.arg("f32", [S0, 16], output=True)
    body = f"""%i = arith.index_cast %a0 : i64 to index
    %k = "symshape.check_index"(%i, %s1) {{message = "index out of range"}} : (index, index) -> index
    %j = linalg.index 1 : index
    %t = tensor.extract {table}[%k, %j] : tensor<?x?xbf16>
    %r = arith.extf %t : bf16 to f32"""
    k.store(k.generic([k.view(index, "(d0, d1) -> (d0)")], "f32", body), out, IDENTITY)
    return k


def total() -> KernelText:
    """The sum of a vector."""
    k = KernelText("total", 1, [(S0, "r")])
    result = k.reduce(k.view(k.arg("f32", [S0]), "(d0) -> (d0)"), "add")
    k.store(result, k.arg("f32", [], output=True), "() -> ()")
    return k


def reduction(combiner: str, dtype: str = "f32", column: bool = False) -> KernelText:
    """One reduction of a matrix over its last dim, or over its first (``column``)."""
    k = KernelText(f"{combiner}_{dtype}", 2, [(S0, "p"), (S1, "r")])
    x = k.arg(dtype, [S0, S1], [1, S0] if column else None)
    loaded: Any = k.view(x, IDENTITY)
    if dtype in ("ui8", "bf16"):
        raise ValueError("widen first")
    result = k.reduce(loaded, combiner)
    for value in result if isinstance(result, list) else [result]:
        k.store(value, k.arg(k.types[value][0], [S0], output=True), "(d0) -> (d0)")
    return k
