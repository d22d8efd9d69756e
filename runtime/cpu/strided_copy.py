"""Machine code that copies a float32 tensor of four dims into another layout."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from symshape.machine.instruction_sets import NATIVE
from symshape.runtime.cpu.kept_objects import kept_object
from symshape.runtime.cpu.llvm_text import Function
from symshape.runtime.cpu.load_objects import Library
from symshape.runtime.cpu.machine_code import WORD

_DIMS: Final = 4


def copy_words(sizes: Sequence[int], strides: Sequence[int], to: Sequence[int]) -> tuple[int, ...]:
    """The words of a copy behind its two addresses: sizes, strides of the source and of the result, in elements."""
    if len(sizes) != _DIMS:
        raise ValueError(f"a copy of {len(sizes)} dims")
    order = sorted(range(_DIMS), key=lambda dim: -to[dim])  # the result is written in order,
    if sizes[order[-1]] < sizes[order[-2]]:  # but few channels are not the innermost loop: a row is in L1
        order[-2:] = order[:-3:-1]
    return tuple(which[dim] for which in (sizes, strides, to) for dim in order)


def _text() -> str:
    f = Function("strided_copy", {"words": "ptr"}, linkage="")
    source, result = f.address_word("%words", 0), f.address_word("%words", 1)
    sizes, strides, to = ([f.word("%words", 2 + _DIMS * k + dim) for dim in range(_DIMS)] for k in range(3))

    def at(base: str, steps: Sequence[str], index: Sequence[str]) -> str:
        for step, number in zip(steps, index):
            base = f.floats(base, f.mul(step, number))
        return base

    with f.loop("0", sizes[0]) as a, f.loop("0", sizes[1]) as b, f.loop("0", sizes[2]) as c:
        begin, end = at(source, strides, (a, b, c)), at(result, to, (a, b, c))
        with f.loop("0", sizes[3]) as d:
            value = f.value(f"load float, ptr {f.floats(begin, f.mul(strides[3], d))}, align 4")
            f.effect(f"store float {value}, ptr {f.floats(end, f.mul(to[3], d))}, align 4")
    return "\n".join((WORD, f.text()))


@cache
def copying() -> tuple[int, Any]:
    """The address of the function, and what keeps it alive."""
    library = Library(kept_object("strided copy", _text(), NATIVE))
    return library.address("strided_copy"), library
