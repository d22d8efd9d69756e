"""Size expressions that may overflow 64 bits in a kernel: the host program computes them exactly.

In ``x * (n * (n + 1) / ((n - 1) * (n - 2) * (n - 3)))`` Python's integers have as many bits as they need. A kernel's
have 64, and the divisor overflows from n = 2,097,154 on.
"""

from __future__ import annotations

from typing import Any

from torch_mlir import ir

from symshape.dialects.reals import is_real, sizes_in
from symshape.passes.fusion.compute_graph import Graph, is_outer_scalar
from symshape.prover.numbers.expr import Expr
from symshape.prover.numbers.magnitudes import Magnitudes


def inexact_numbers(generic: Any, graph: Graph, magnitudes: Magnitudes) -> tuple[list[Expr], list[ir.Value]]:
    """Sizes used in the body of a ``linalg.generic`` that may overflow 64 bits, and real numbers computed from such
    sizes."""
    sizes: list[Expr] = []
    reals: list[ir.Value] = []
    for view in generic.regions[0].blocks[0].operations:
        for value in view.operation.operands:
            if value in graph.sizes:
                sizes.append(graph.sizes.expr(value))
            elif is_outer_scalar(value, generic) and is_real(value):
                reals.append(value)

    def is_inexact(value: ir.Value) -> bool:
        return not all(magnitudes.fit(graph.sizes.expr(size)) for size in sizes_in(value))

    return [size for size in sizes if not magnitudes.fit(size)], [value for value in reals if is_inexact(value)]
