"""Backward programs for calls in which some results of forward have no gradient.

``backward`` reaches some results of a function and not others. For these autograd has no gradient (an undefined tensor,
None in Python), and eager mode computes nothing. A program of its own is compiled for each set of them that occurs, at
the first call in which it does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from symshape.errors import CompileError

Run = Callable[[list[Any]], Any]  # of a compiled graph: the list of its inputs, which it empties


def with_undefined_gradients(
    run: Run, tangents: Sequence[int], results: int, make: Callable[[frozenset[int]], Run] | None
) -> Run:
    """``run`` of a backward graph, in which the arguments at the positions ``tangents`` may be None. ``results``: their
    number. ``make(undefined)``: compiles the graph without the arguments at these positions; None for a
    graph of one tangent."""
    programs: dict[frozenset[int], Run] = {}
    making = threading.Lock()

    def call(args: list[Any]) -> Any:
        undefined = [i for i in tangents if args[i] is None]
        if not undefined:
            return run(args)
        if len(undefined) == len(tangents):
            args.clear()
            return [None] * results
        assert make is not None
        chosen = frozenset(undefined)
        with making:
            if chosen not in programs:
                programs[chosen] = make(chosen)
        kept = [x for i, x in enumerate(args) if i not in chosen]
        args.clear()
        return programs[chosen](kept)

    return call


def with_zeros(
    tangents: Sequence[int], zeros: Callable[[], Callable[..., Sequence[torch.Tensor]]] | None, args: list[Any]
) -> list[Any]:
    """The arguments of a backward graph with zeros for undefined gradients. ``zeros()`` computes those of all tangents,
    of the other arguments; None for a graph of one tangent."""
    if all(args[i] is not None for i in tangents):
        return args
    if zeros is None:
        raise CompileError(
            "compiled autograd calls a backward graph although none of its results has a gradient",
            next_step="detach the results that backward does not reach, or call backward without compiled autograd",
        )
    others = [x for i, x in enumerate(args) if i not in tangents]
    for i, made in zip(tangents, zeros()(*others), strict=True):
        args[i] = made if args[i] is None else args[i]
    return args
