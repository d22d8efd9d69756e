"""Every distinct Triton kernel of the six models, all variants, compiled offline for sm_80 and sm_90: no spills.

    python bench/cubins.py [--models bert,t5] [--jobs 2] [--unaligned] [--out bench/results/cubins.json]

No GPU is needed. Kernels that differ only in their name are one. The exit status is 1 if any variant spills.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from typing import Any

from symshape.measure import write_result
from symshape.terminal import Progress, table
from symshape.zoo import MODELS

ARCHITECTURES = (80, 90)


@dataclass(frozen=True)
class Row:
    model: str
    kernel: str
    variant: str
    arch: int
    aligned: bool
    registers: int
    shared: int
    stack: int
    spills: int
    widest_load: int


def distinct_kernels(names: list[str], progress: Progress) -> dict[str, tuple[str, Any]]:
    """Source without the kernel's name -> the first model that has it, and the Triton kernel."""
    import torch

    import symshape
    from symshape.codegen.triton_kernel import emit_triton

    found: dict[str, tuple[str, Any]] = {}
    for name in names:
        progress.say(f"{name}: tracing")
        model = MODELS[name]
        torch._dynamo.reset()
        with torch.no_grad():
            report = symshape.explain(model.build(), **model.inputs(model.first_shapes[0]))
        for kernel in (kernel for graph in report.graphs for kernel in graph.kernels):
            triton_kernel = emit_triton(kernel.loops)
            found.setdefault(re.sub(rf"\b{kernel.name}", "kernel", triton_kernel.source), (name, triton_kernel))
        progress.step()
    return found


def compile_one(model: str, kernel: Any, variant: Any, arch: int, aligned: bool) -> Row:
    """In a worker process: Triton to machine code, and what it costs."""
    from symshape.codegen.triton_compile import compile_variant

    warnings.filterwarnings("ignore")
    compiled = compile_variant(kernel, variant, arch, aligned)
    widths = [int(width or 1) for width in re.findall(r"ld\.global(?:\.\w+)*?(?:\.v(\d+))?\.b32", compiled.ptx)]
    cost = {name: getattr(compiled, name) for name in ("registers", "shared", "stack", "spills")}
    return Row(model, kernel.name, variant.name, arch, aligned, widest_load=max(widths, default=0), **cost)


def jobs_of(kernels: dict[str, tuple[str, Any]], alignments: list[bool]) -> Iterator[tuple[Any, ...]]:
    for model, kernel in kernels.values():
        for variant in kernel.variants:
            for arch in ARCHITECTURES:
                yield from ((model, kernel, variant, arch, aligned) for aligned in alignments)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--unaligned", action="store_true", help="also as for sizes that do not divide by 16")
    parser.add_argument("--out")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")

    names = options.models.split(",")
    with Progress("kernels", len(names)) as progress:
        kernels = distinct_kernels(names, progress)
    work = list(jobs_of(kernels, [True, False] if options.unaligned else [True]))
    rows: list[Row] = []
    # Forking a process that has run PyTorch's threads can hang it.
    context = multiprocessing.get_context("spawn")
    with Progress("cubins", len(work)) as progress, ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
        for future in as_completed([pool.submit(compile_one, *job) for job in work]):
            rows.append(future.result())
            progress.step(f"{rows[-1].model} {rows[-1].kernel} {rows[-1].variant} sm_{rows[-1].arch}")
    spilling = [row for row in rows if row.spills]
    body = []
    for name in names:
        own = [row for row in rows if row.model == name]
        count = sum(model == name for model, _ in kernels.values())
        body.append([name, count, len(own), max((r.registers for r in own), default=0), sum(r.spills for r in own)])
    print(table(["model", "new kernels", "cubins", "most registers", "spill bytes"], body))
    for row in spilling:
        print(f"spills {row.spills} bytes: {row.model} {row.kernel} {row.variant} sm_{row.arch} aligned={row.aligned}")
    if options.out:
        write_result(options.out, "cubins", [asdict(row) for row in rows], kernels=len(kernels), spilling=len(spilling))
    return 1 if spilling else 0


if __name__ == "__main__":
    raise SystemExit(main())
