"""Memory traffic in bytes: of a kernel, from its loop program, and of a library call, from its buffers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from symshape.errors import KernelError
from symshape.prover.numbers.expr import Expr, minimum, product


def kernel_bytes(loops: Any, values: Mapping[str, int], *, whole: bool = False) -> int:
    """Bytes of the distinct elements that one launch reads and writes, for ``values`` of the kernel's symbols.

    Each element counts once per tensor argument, however often the code reads it: a lower bound on the traffic, not
    what a target moves. Masked and gathered elements count as read, limited by the size of the tensor.
    ``whole``: each argument counts in full, as Inductor counts the traffic of a fused kernel.
    """
    return kernel_bytes_expr(loops, whole=whole).evaluate(values)


def kernel_bytes_expr(loops: Any, *, whole: bool = False) -> Expr:
    """`kernel_bytes` as an expression over the kernel's symbols, valid for non-negative sizes."""
    touched: dict[int, dict[Any, Expr]] = {}
    for instr in loops.code:
        if instr.op in ("load", "store"):
            touched.setdefault(instr.arg, {})[instr.address] = _points(instr.address, loops.dims)
        elif instr.op in ("extract", "scatter"):
            level = [d.size for d in loops.dims if not (instr.row and d.reduced)]
            touched.setdefault(instr.arg, {})[instr.operands] = product(level)
    total = Expr.const(0)
    for position, reads in touched.items():
        arg = loops.args[position]
        elements = product(arg.sizes)
        read = elements if whole else minimum(elements, sum(reads.values(), Expr.const(0)))
        total += read * item_size(arg.dtype)
    return total


def workspace_bytes(kernel: Any, values: Mapping[str, int], processors: int) -> int:
    """Bytes of partial results that one launch of a Triton kernel writes and reads back, on a GPU with ``processors``
    multiprocessors. 0 if the chosen variant does not split its rows."""
    numbers = _Numbers({**values, "processors": processors, "max": max, "min": min})
    numbers["xnumel"] = eval(kernel.xnumel, {}, numbers)
    numbers["rnumel"] = eval(kernel.rnumel, {}, numbers)
    chosen = next(v for v in kernel.variants if eval(v.condition, {}, numbers))
    if not chosen.splits:
        return 0
    numbers["splits"] = eval(chosen.splits, {}, numbers)
    return 2 * sum(eval(size, {}, numbers) * item_size(dtype) for dtype, size in chosen.workspace)


class _Numbers(dict[str, Any]):
    """Values by name. A missing name of an argument or address is 0, that is, an aligned address."""

    def __missing__(self, name: str) -> int:
        if name.startswith(("in", "out", "address")):
            return 0
        raise KeyError(name)


def call_bytes(call: Any, values: Mapping[str, int]) -> int:
    """Bytes of the buffers that a library call reads and returns, each once and in full, for values of the symbols."""
    return call_bytes_expr(call).evaluate(values)


def call_bytes_expr(call: Any) -> Expr:
    """`call_bytes` as an expression over the symbols."""
    return sum((product(sizes) * item_size(dtype) for sizes, dtype in call.buffers), Expr.const(0))


def _points(address: Expr, dims: Any) -> Expr:
    """Number of points of the iteration space with distinct addresses: the product of the dims that the address uses.
    Other dims count as one point, or none if empty."""
    return product(d.size if d.name in address.symbols else minimum(d.size, 1) for d in dims)


def item_size(dtype: str) -> int:
    """Bytes per element; ``dtype`` is an MLIR type as text ("f32", "i1", "complex<f32>", "f8E4M3FN")."""
    bits = re.search(r"\d+", dtype)
    if bits is None:
        hint = "this is a bug: `index` and other types without a width are no elements of tensors"
        raise KernelError(f"element type {dtype} has no size", next_step=hint)
    return max(1, int(bits.group()) // 8) * (2 if dtype.startswith("complex") else 1)
