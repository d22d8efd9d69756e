# RUN: %python %s | filecheck %s
"""Reads the kernel of a size: one kernel serves every size, and chooses a way to run at each launch.

symshape explain examples/kernel_of_a_size.py:normalise --source       the code, from the command line
"""

import torch

import symshape


def normalise(x: torch.Tensor) -> torch.Tensor:
    """Softmax of each row: [rows, columns] -> [rows, columns]."""
    return torch.softmax(x, -1)


def inputs() -> tuple[torch.Tensor, ...]:
    """For ``symshape explain``."""
    return (torch.randn(128, 100),)


if __name__ == "__main__":
    (graph,) = symshape.explain(normalise, *inputs()).graphs
    (kernel,) = graph.kernels
    # CHECK: kernel_0 is a reduction over d0 x d1
    print(kernel.name, "is a", kernel.kind, "over", " x ".join(dim.name for dim in kernel.loops.dims))

    # On a CPU the entry of the kernel reads the sizes and chooses a form. Each form has a function, named by a suffix.
    # CHECK: CPU forms: kernel_0_body{{.*}}kernel_0_rows_body{{.*}}
    functions = [
        line.split("@")[1].split("(")[0] for line in kernel.source.splitlines() if "llvm.func internal" in line
    ]
    print("CPU forms:", ", ".join(name for name in functions if name.endswith("_body")))

    # On a GPU the launcher evaluates the table of variants and takes the first whose condition holds.
    # CHECK: persistent128
    # CHECK: looped
    for variant in kernel.plans:
        print(f"{variant.name:24} if {variant.condition}")

    # 128 rows of 100 and of 100,000 elements on 132 processors, below 4 GiB and aligned.
    # CHECK: 100 columns: persistent128
    # CHECK: 100000 columns: {{split|looped}}
    rows, columns = kernel.loops.symbols
    for count in (100, 100_000):
        addresses = {f"address{i}": 0 for i in range(2)}
        values = {rows: 128, columns: count, "processors": 132} | addresses
        chosen = next(variant for variant in kernel.plans if variant.condition.evaluate(values))
        print(f"{count} columns: {chosen.name}")
    # CHECK: tl.load(
    print(kernel.triton_source)
