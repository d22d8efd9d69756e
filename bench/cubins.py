"""Every distinct Triton kernel of the six models, all variants, compiled offline: no spills, accesses of 16 bytes.

    python bench/cubins.py [--models bert,t5] [--archs 80,90] [--jobs 2] [--out bench/results/cubins.json]

No GPU is needed. Kernels that differ only in their name are one. A contiguous access of an aligned variant is to be as
wide as min(16 bytes, elements per thread x item size), and the widest element type of each kernel to be accessed by 16
bytes. The exit status is 1 if any variant spills or has a narrower access.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from typing import Any

from symshape.tools.measure import write_result
from symshape.tools.terminal import Progress, table
from symshape.tools.zoo import MODELS


@dataclass(frozen=True)
class Row:
    """One launch of a variant. ``narrow``: accesses of an aligned variant that are not as wide as they should be;
    ``widest``: bytes of those of the widest element type, 0 where a thread has too few elements for 16."""

    model: str
    kernel: str
    variant: str
    function: str
    arch: int
    aligned: bool
    registers: int
    shared: int
    stack: int
    spills: int
    narrow: tuple[str, ...]
    widest: int

    @property
    def good(self) -> bool:
        return not self.spills and not self.narrow


def distinct_kernels(names: list[str], progress: Progress) -> dict[str, tuple[str, Any]]:
    """Source without the kernel's name -> the first model that has it, and the kernel's report."""
    import torch

    import symshape

    found: dict[str, tuple[str, Any]] = {}
    for name in names:
        progress.say(f"{name}: tracing")
        model = MODELS[name]
        torch._dynamo.reset()
        with torch.no_grad():
            report = symshape.explain(model.build(), **model.inputs(model.first_shapes[0]))
        for kernel in (kernel for graph in report.graphs for kernel in graph.kernels):
            found.setdefault(re.sub(rf"\b{kernel.name}", "kernel", kernel.triton_source), (name, kernel))
        progress.step()
    return found


def compile_one(model: str, loops: Any, variant: Any, aligned: bool, arch: int) -> list[Row]:
    """In a worker process: Triton to machine code, and what it costs."""
    from access_width import accesses, widest

    from symshape.codegen.triton.kernel import emit_triton
    from symshape.tools.compile_ahead import compile_for

    warnings.filterwarnings("ignore")
    kernel = emit_triton(loops, [variant])
    rows = []
    for stage in kernel.variants[0].stages:
        compiled = compile_for(kernel, kernel.variants[0], stage, arch)
        found = accesses(loops, kernel, variant, stage, compiled.ptx)
        narrow = tuple(f"{a.op} {a.argument}: {a.width} of {a.expected}" for a in found if aligned and not a.wide)
        cost = {name: getattr(compiled, name) for name in ("registers", "shared", "stack", "spills")}
        rows.append(
            Row(
                model,
                loops.name,
                variant.name,
                stage.function,
                arch,
                aligned,
                narrow=narrow,
                widest=widest(found),
                **cost,
            )
        )
    return rows


def jobs_of(kernels: dict[str, tuple[str, Any]], archs: list[int]) -> Iterator[tuple[Any, ...]]:
    from symshape.prover.numbers.condition import TRUE

    for model, kernel in kernels.values():
        names = {variant.name for variant in kernel.plans}
        for variant in kernel.plans:
            # Where everything is aligned at every size there is no second variant of that name.
            aligned = bool(variant.aligned) and f"{variant.name}_aligned" not in names
            always = replace(variant, condition=TRUE)
            yield from ((model, kernel.loops, always, aligned, arch) for arch in archs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--archs", default="90")
    parser.add_argument("--out")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")

    names = options.models.split(",")
    with Progress("kernels", len(names)) as progress:
        kernels = distinct_kernels(names, progress)
    work = list(jobs_of(kernels, [int(arch) for arch in options.archs.split(",")]))
    rows: list[Row] = []
    # Forking a process that has run PyTorch's threads can hang it.
    context = multiprocessing.get_context("spawn")
    with Progress("cubins", len(work)) as progress, ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
        for future in as_completed([pool.submit(compile_one, *job) for job in work]):
            rows += future.result()
            progress.step(f"{rows[-1].model} {rows[-1].kernel} {rows[-1].variant} sm_{rows[-1].arch}")
    body = []
    for name in names:
        own = [row for row in rows if row.model == name]
        count = sum(model == name for model, _ in kernels.values())
        body.append(
            [
                name,
                count,
                len(own),
                max((r.registers for r in own), default=0),
                sum(r.spills for r in own),
                sum(bool(r.narrow) for r in own),
                sum(0 < r.widest < 16 for r in own if r.aligned),
            ]
        )
    print(table(["model", "new kernels", "cubins", "most registers", "spill bytes", "narrow", "below 128 bits"], body))
    bad = [row for row in rows if not row.good]
    for row in bad:
        what = f"spills {row.spills} bytes" if row.spills else "; ".join(row.narrow)
        print(f"{row.model} {row.function} {row.variant} sm_{row.arch}: {what}")
    if options.out:
        write_result(options.out, "cubins", [asdict(row) for row in rows], kernels=len(kernels), bad=len(bad))
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
