"""Triton kernels compile for sm_80 and sm_90 without a GPU, without spills, with wide memory accesses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

if __name__ != "__main__":  # the compiler needs a process in which triton was imported without TRITON_INTERPRET
    pytestmark = pytest.mark.filterwarnings("ignore")

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("arch", [80, 90])
def test_compiles(arch: int) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    path = os.pathsep.join([str(ROOT), str(Path(__file__).parent), environment.get("PYTHONPATH", "")])
    command = [sys.executable, __file__, str(arch)]
    result = subprocess.run(command, env={**environment, "PYTHONPATH": path}, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    rows = [line.split() for line in result.stdout.splitlines() if line]
    assert len(rows) >= 10
    for name, spills, width in rows:
        assert int(spills) == 0, name
        assert int(width) >= (32 if name.startswith("ops") else 128), name


def main(arch: int) -> None:
    """Prints kernel/variant, spilled bytes and the widest global access in bits."""
    import re
    from dataclasses import replace

    from triton_cases import concatenate, emit, gather, layer_norm, reduction, softmax, transpose

    from symshape.codegen.triton_compile import compile_variant

    cases = [
        (softmax(dtype="bf16"), ("persistent64", "persistent4096", "looped_wide")),
        (layer_norm(), ("persistent1024", "looped")),
        (transpose(), ("block1024",)),
        (concatenate(), ("block1024",)),
        (gather(), ("block1024",)),
        (reduction("add", column=True), ("persistent64", "looped")),
        (reduction("argmax"), ("persistent256", "looped")),
        *((ops_kernel(dtype), ("lane",)) for dtype in ("f32", "f64") if arch == 90),
    ]
    for text, names in cases:
        kernel = emit(text)
        lane = replace(kernel.variants[0], name="lane", xblock=32, num_warps=1)  # less code to compile
        for variant in (*kernel.variants, lane):
            if variant.name in names:
                compiled = compile_variant(kernel, variant, arch)
                accesses = re.findall(r"(?:ld|st)\.global\S*?(?:\.v(\d))?\.[a-z](\d+)", compiled.ptx)
                width = max(int(count or 1) * int(bits) for count, bits in accesses)
                print(f"{kernel.name}/{variant.name}", compiled.spills, width)


def ops_kernel(dtype: str):  # noqa: ANN201
    """One kernel with every float operation of the table: each has a lowering to machine code."""
    from kernel_text import KernelText
    from triton_cases import S0

    from symshape.codegen.triton_ops import OPS

    binary = {"math.atan2", "math.copysign", "math.powf"}
    names = sorted({k.split(":")[0] for k in OPS if k.startswith("math.") and "is" not in k and k != "math.absi"})
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
