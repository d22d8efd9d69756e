"""Triton kernels compile for sm_80 and sm_90 without a GPU, without spills, with wide memory accesses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

if __name__ != "__main__":  # the compiler needs a process in which triton was imported without TRITON_INTERPRET
    pytestmark = pytest.mark.filterwarnings("ignore")

ROOT = Path(__file__).parents[2]


@pytest.mark.sample(2)
@pytest.mark.parametrize("arch", [80, 90])
def test_compiles(arch: int) -> None:
    """No spills. What a variant calls aligned is accessed as widely as can be, anything else by single elements."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    path = os.pathsep.join(
        [str(ROOT), str(ROOT / "test" / "support"), str(ROOT / "bench"), environment.get("PYTHONPATH", "")]
    )
    command = [sys.executable, __file__, str(arch)]
    result = subprocess.run(command, env={**environment, "PYTHONPATH": path}, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    rows = [json.loads(line) for line in result.stdout.splitlines() if line]
    assert len(rows) >= 10
    for row in rows:
        where = f"{row['kernel']} {row['variant']} {row['function']}"
        assert row["spills"] == 0, where
        assert row["narrow"] == [], where
        assert not row["aligned"] or row["widest"] in (0, 16), where
        assert row["aligned"] or row["wider_than_item"] == [], where
        assert not (row["variant"] == "short" and row["divides"]), where


def main(arch: int) -> None:
    """Prints a line of JSON for each function of each variant."""
    from access_width import accesses, item_size, widest

    from symshape.codegen.triton.kernel import emit_triton
    from symshape.tools.compile_ahead import compile_for

    for kernel, variants in cases(arch):
        emitted = emit_triton(kernel, variants)
        for variant, ready in zip(variants, emitted.variants, strict=True):
            for stage in ready.stages:
                compiled = compile_for(emitted, ready, stage, arch)
                found = accesses(kernel, emitted, variant, stage, compiled.ptx)
                print(
                    json.dumps(
                        {
                            "kernel": kernel.name,
                            "variant": variant.name,
                            "function": stage.function,
                            "spills": compiled.spills,
                            "aligned": bool(variant.aligned),
                            "narrow": [str(a) for a in found if variant.aligned and not a.wide],
                            "widest": widest(found),
                            "wider_than_item": [str(a) for a in found if a.width > item_size(a.dtype)],
                            "divides": "div.rn" in compiled.ptx,  # a rounded division: 30 instructions
                        }
                    )
                )
    for combiner, dtype in (("add", "f32"), ("max", "bf16")) if arch == 90 else ():
        emitted = emit_triton(scatter(combiner, dtype))
        for stage in emitted.variants[-1].stages:
            compiled = compile_for(emitted, emitted.variants[-1], stage, arch)
            print(
                json.dumps(
                    {
                        "kernel": f"scatter {combiner}",
                        "variant": "copied",
                        "function": stage.function,
                        "spills": compiled.spills,
                        "aligned": False,
                        "narrow": [],
                        "wider_than_item": [],
                        "divides": False,
                        "widest": 0,
                    }
                )
            )


def scatter(combiner: str, dtype: str):  # noqa: ANN201
    """out0 = in0, with rows of in1 combined at in2."""
    from symshape.analysis.loops import Arg, Dim, Instr, LoopKernel
    from symshape.prover.numbers.expr import Expr

    s0, s1, s2, d0, d1 = (Expr.symbol(name) for name in ("s0", "s1", "s2", "d0", "d1"))
    one = Expr.const(1)
    args = (
        Arg("in0", dtype, False, (s2, s1), (s1, one)),
        Arg("in1", dtype, False, (s0, s1), (s1, one)),
        Arg("in2", "i64", False, (s0,), (one,)),
        Arg("out0", dtype, True, (s2, s1), (s1, one)),
    )
    code = (
        Instr("load", (0,), (), "i64", False, arg=2, address=d1),
        Instr("arith.index_cast", (1,), (0,), "index", False, source_dtype="i64"),
        Instr("check_index", (2,), (1,), "index", False, address=s2),
        Instr("load", (3,), (), dtype, False, arg=1, address=d1 * s1 + d0),
        Instr("index", (4,), (), "index", False, address=d0),
        Instr("scatter", (), (3, 2, 4), dtype, False, arg=3, value=0, combiner=combiner),
    )
    dims = (Dim("d0", s1, False, "d1"), Dim("d1", s0, True, "d0"))
    return LoopKernel("scatter", dims, args, ("s0", "s1", "s2"), code)


def cases(arch: int):  # noqa: ANN201
    """Kernels with variants of every form."""
    from dataclasses import replace

    from triton_cases import S0, S1, concatenate, gather, layer_norm, loops, mixed, reduction, softmax, total, transpose

    from symshape.codegen.variants import Variant
    from symshape.prover.numbers.condition import TRUE
    from symshape.prover.numbers.expr import Expr

    processors = Expr.symbol("processors")

    def aligned(kernel, *more):  # noqa: ANN001, ANN002, ANN202
        return (*(a.name for a in kernel.args), *more)

    normal, soft, turned, types = (loops(t) for t in (layer_norm(), softmax(dtype="bf16"), transpose(), mixed()))
    column, argmax = loops(reduction("add", column=True)), loops(reduction("argmax", column=True))
    rows = aligned(normal, "s1", "rnumel")
    tile = Variant("unaligned", "tile", TRUE, 64, yblock=64, num_warps=8, dims=("d0", "d1"))
    yield (
        normal,
        [
            Variant("persistent", "persistent", TRUE, 1, rblock=1024, aligned=rows),
            Variant("looped", "looped", TRUE, 1, rblock=2048, num_warps=8, aligned=rows),
            Variant("split", "split", TRUE, 1, 512, rblock=2048, num_warps=8, aligned=rows, splits=processors),
            Variant("unaligned", "split", TRUE, 1, 512, rblock=2048, num_warps=8, splits=processors),
            Variant("once", "split", TRUE, 1, 512, 2048, num_warps=8, one_launch=True, aligned=rows, splits=processors),
        ],
    )
    yield turned, [replace(tile, name="tile", aligned=aligned(turned, "s0", "s1")), tile]
    columns = aligned(column, "s0", "xnumel")
    yield column, [Variant("split", "split", TRUE, 64, 512, rblock=32, num_warps=8, aligned=columns, splits=processors)]
    if arch != 90:
        return
    yield (
        soft,
        [
            Variant("persistent", "persistent", TRUE, 4, rblock=256, aligned=aligned(soft, "s1", "rnumel")),
            Variant("wide", "looped", TRUE, 1, rblock=2048, num_warps=8, index_bits=64, aligned=aligned(soft, "s1")),
            Variant("unaligned", "persistent", TRUE, 1, rblock=4096, num_warps=16),
        ],
    )
    yield loops(softmax()), [Variant("short", "persistent", TRUE, 16, rblock=32)]
    sums = loops(total())
    yield sums, [Variant("whole", "split_persistent", TRUE, 1, 2048, 8192, num_warps=8, aligned=("in0",))]
    columns = aligned(argmax, "s0", "xnumel")
    yield argmax, [Variant("split", "split", TRUE, 64, 512, rblock=32, num_warps=8, splits=processors, aligned=columns)]
    flat = Variant("flat", "pointwise", TRUE, 1024, aligned=aligned(types, "s1"))
    tiled = Variant("tile", "tile", TRUE, 256, yblock=4, aligned=aligned(types, "s1", "xnumel"), dims=("d0", "d1"))
    yield types, [flat, tiled, Variant("unaligned", "pointwise", TRUE, 1024)]
    joined = loops(bound_of_a_sum(S0, S1))
    yield joined, [Variant("flat", "pointwise", TRUE, 1024, aligned=aligned(joined, "xnumel"))]
    pieces = loops(concatenate())  # under masks that begin and end at s0
    yield pieces, [Variant("flat", "pointwise", TRUE, 1024, aligned=aligned(pieces, "s0", "s1"))]
    yield loops(gather()), [Variant("flat", "pointwise", TRUE, 1024)]
    for dtype in ("f32", "f64"):
        yield loops(ops_kernel(dtype)), [Variant("flat", "pointwise", TRUE, 32, num_warps=1)]  # less code to compile


def bound_of_a_sum(first, second):  # noqa: ANN001, ANN201
    """The mask bound s0 + s1 may divide by 16 where neither symbol does."""
    from kernel_text import KernelText

    k = KernelText("joined", 2, [(first + second, "p")])
    x, out = k.arg("f32", [first + second]), k.arg("f32", [first + second], output=True)
    k.store(k.generic([k.view(x, "(d0) -> (d0)")], "f32", "%r = arith.negf %a0 : f32"), out, "(d0) -> (d0)")
    return k


def ops_kernel(dtype: str):  # noqa: ANN201
    """One kernel with every float operation of the table: each has a lowering to machine code."""
    from kernel_text import KernelText
    from triton_cases import S0

    from symshape.codegen.triton.ops import OPS

    binary = {"math.atan2", "math.copysign", "math.powf"}
    integers = ("math.absi", "math.cttz")
    names = sorted({k.split(":")[0] for k in OPS if k.startswith("math.") and "is" not in k and k not in integers})
    lines, last = [], "%a0"
    for i, op in enumerate([*names, "arith.remf", "arith.divf", "arith.maximumf", "arith.minnumf"]):
        count = 2 if op in binary or op.startswith("arith.") else 3 if op == "math.fma" else 1
        operands = [last, "%a0", "%a0"][:count]
        lines += [f"%t{i} = {op} {', '.join(operands)} : {dtype}"]
        last = f"%t{i}"
    k = KernelText("ops", 1, [(S0, "p")])
    body = "\n    ".join([*lines, f"%r = arith.negf {last} : {dtype}"])
    value = k.generic([k.view(k.arg(dtype, [S0]), "(d0) -> (d0)")], dtype, body)
    k.store(value, k.arg(dtype, [S0], output=True), "(d0) -> (d0)")
    return k


if __name__ == "__main__":
    main(int(sys.argv[1]))
