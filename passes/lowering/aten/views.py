"""Rules of views: each is one ``symshape.view`` with an index map."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from symshape.passes.lowering.aten.builder import ONE, ZERO, Builder, Tensor, Unsupported
from symshape.prover.numbers.expr import Expr, as_expr, maximum, minimum, product


def reshape(b: Builder, x: Tensor, *_: Any, **__: Any) -> Tensor:
    """Row-major regrouping of dims; the result's sizes are the tracer's, so -1 needs no solving here."""
    sizes = b.results[0].sizes
    if sizes == x.sizes:
        return x
    return b.view(x, sizes, lambda *d: regroup(b, x.sizes, sizes, d), simplified=True)


def regroup(b: Builder, source: Sequence[Expr], target: Sequence[Expr], dims: Sequence[Expr]) -> list[Expr]:
    """Source indices from target indices, group by group: a group is the shortest run of dims with equal products.

    Where no equal product can be proven the rest is one group, which is right for any sizes that agree in total.
    """
    if ZERO in (product(source), product(target)):  # nothing is read, and a radix of 0 has no digits
        return [ZERO] * len(source)
    result: list[Expr] = []
    i = j = 0
    while i < len(source):
        width_i, width_j = _group(b, source, target, i, j)
        linear = ZERO
        for size, index in zip(target[j : j + width_j], dims[j : j + width_j]):
            linear = linear * size + index
        group = source[i : i + width_i]
        digits = [_digit(linear, size, product(group[k + 1 :]), k == 0) for k, size in enumerate(group)]
        if width_i > 1 and width_j > 1:  # only a mixed group has digits that facts can make simpler
            facts = b.facts.with_dims({f"d{k}": s for k, s in enumerate(target)})
            digits = [facts.simplify(e) for e in digits]
        result += digits
        i, j = i + width_i, j + width_j
    return result


def _digit(linear: Expr, size: Expr, inner: Expr, leading: bool) -> Expr:
    if size.as_int() == 1:
        return ZERO
    return linear // inner if leading else (linear // inner) % size


def _group(b: Builder, source: Sequence[Expr], target: Sequence[Expr], i: int, j: int) -> tuple[int, int]:
    for total in range(2, len(source) - i + len(target) - j):
        for width_i in range(1, total):
            width_j = total - width_i
            if i + width_i > len(source) or j + width_j > len(target):
                continue
            left, right = product(source[i : i + width_i]), product(target[j : j + width_j])
            if b.facts.equal(left, right) and _rest_agrees(b, source[i + width_i :], target[j + width_j :]):
                return width_i, width_j
    return len(source) - i, len(target) - j


def _rest_agrees(b: Builder, source: Sequence[Expr], target: Sequence[Expr]) -> bool:
    """Whether the remaining dims of both sides are empty or nonempty alike: trailing dims of size 1 belong to the last
    group."""
    return bool(source) == bool(target)


def permute(b: Builder, x: Tensor, dims: Sequence[int]) -> Tensor:
    order = [b.dim(d, x.rank) for d in dims]
    inverse = [order.index(i) for i in range(x.rank)]
    return b.view(x, [x.sizes[d] for d in order], lambda *d: [d[i] for i in inverse])


def transpose(b: Builder, x: Tensor, first: int, second: int) -> Tensor:
    order = list(range(x.rank))
    if x.rank:
        first, second = b.dim(first, x.rank), b.dim(second, x.rank)
        order[first], order[second] = order[second], order[first]
    return permute(b, x, order)


def t(b: Builder, x: Tensor) -> Tensor:
    return x if x.rank < 2 else transpose(b, x, 0, 1)


def expand(b: Builder, x: Tensor, *_: Any, **__: Any) -> Tensor:
    return b.broadcast(x, b.results[0].sizes)


def unsqueeze(b: Builder, x: Tensor, dim: int) -> Tensor:
    position = dim % (x.rank + 1)
    sizes = [*x.sizes[:position], ONE, *x.sizes[position:]]
    return b.view(x, sizes, lambda *d: [*d[:position], *d[position + 1 :]])


def squeeze(b: Builder, x: Tensor, dims: Any = None) -> Tensor:
    """Drops dims of size 1: those that the tracer's result lacks."""
    wanted = (
        set(range(x.rank)) if dims is None else {b.dim(d, x.rank) for d in ([dims] if isinstance(dims, int) else dims)}
    )
    kept = [i for i in range(x.rank) if not (i in wanted and b.is_one(x.sizes[i]))]
    if len(kept) != len(b.results[0].sizes):
        raise Unsupported("which dims are 1 is not known while compiling")
    return b.view(
        x, [x.sizes[i] for i in kept], lambda *d: [d[kept.index(i)] if i in kept else ZERO for i in range(x.rank)]
    )


def clamp_start(b: Builder, start: Any, size: Expr) -> Expr:
    """PyTorch's normalisation of a slice bound: negative counts from the end, then clamped to [0, size]."""
    start = as_expr(start)
    low, high = b.facts.bounds(start)
    if high is not None and high < 0:
        start = start + size
    elif low is None or low < 0:
        raise Unsupported("the sign of a slice bound is not known while compiling")
    return b.simplify(minimum(maximum(start, ZERO), size))


def slice_(b: Builder, x: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> Tensor:
    position = b.dim(dim, x.rank)
    first = clamp_start(b, 0 if start is None else start, x.sizes[position])
    sizes = b.results[0].sizes
    if sizes == x.sizes and first == ZERO and step == 1:
        return x
    return b.view(x, sizes, lambda *d: [first + e * step if i == position else e for i, e in enumerate(d)])


def select(b: Builder, x: Tensor, dim: int, index: Any) -> Tensor:
    position = b.dim(dim, x.rank)
    at = as_expr(index)
    low, high = b.facts.bounds(at)
    if high is not None and high < 0:
        at = at + x.sizes[position]
    elif low is None or low < 0:
        raise Unsupported("the sign of an index is not known while compiling")
    sizes = [s for i, s in enumerate(x.sizes) if i != position]
    return b.view(x, sizes, lambda *d: [*d[:position], at, *d[position:]])


def split_with_sizes(b: Builder, x: Tensor, split_sizes: Sequence[Any], dim: int = 0) -> tuple[Tensor, ...]:
    position = b.dim(dim, x.rank)
    offset, pieces = ZERO, []
    for result, size in zip(b.results, split_sizes):
        pieces.append(b.view(x, result.sizes, _shift(position, offset)))
        offset = offset + size
    return tuple(pieces)


def split(b: Builder, x: Tensor, split_size: Any, dim: int = 0) -> tuple[Tensor, ...]:
    return split_with_sizes(b, x, [split_size] * len(b.results), dim)


def unbind(b: Builder, x: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    return tuple(select(b, x, dim, i) for i in range(len(b.results)))


def unfold(b: Builder, x: Tensor, dim: int, size: Any, step: Any) -> Tensor:
    """Windows of a dim, ``step`` apart; positions in a window are the last dim."""
    sizes = b.results[0].sizes
    if not x.rank:
        return b.view(x, sizes, lambda *d: [])
    position = b.dim(dim, x.rank)
    return b.view(x, sizes, lambda *d: [e * step + d[-1] if i == position else e for i, e in enumerate(d[:-1])])


def diagonal(b: Builder, x: Tensor, offset: Any = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    rows, columns = b.dim(dim1, x.rank), b.dim(dim2, x.rank)
    down, right = maximum(-as_expr(offset), ZERO), maximum(offset, ZERO)

    def read(*d: Expr) -> list[Expr]:
        others = iter(d[:-1])
        along = {rows: d[-1] + down, columns: d[-1] + right}
        return [along[i] if i in along else next(others) for i in range(x.rank)]

    return b.view(x, b.results[0].sizes, read)


def _shift(position: int, offset: Expr) -> Callable[..., list[Expr]]:
    return lambda *d: [offset + e if i == position else e for i, e in enumerate(d)]


def same(b: Builder, x: Tensor, *_: Any, **__: Any) -> Tensor:
    return x


RULES: dict[str, Callable[..., Any]] = {
    "aten.view.default": reshape,
    "aten._unsafe_view.default": reshape,
    "aten.reshape.default": reshape,
    "aten.permute.default": permute,
    "aten.transpose.int": transpose,
    "aten.t.default": t,
    "aten.expand.default": expand,
    "aten.unsqueeze.default": unsqueeze,
    "aten.squeeze.default": squeeze,
    "aten.squeeze.dim": squeeze,
    "aten.squeeze.dims": squeeze,
    "aten.slice.Tensor": slice_,
    "aten.select.int": select,
    "aten.split.Tensor": split,
    "aten.split_with_sizes.default": split_with_sizes,
    "aten.unbind.int": unbind,
    "aten.unfold.default": unfold,
    "aten.diagonal.default": diagonal,
    "aten.alias.default": same,
    "aten.detach.default": same,
    "aten.lift_fresh.default": same,
}
# Results of these share the storage of their operand, with the strides that their bind says.
# The results of the last are read in memory of their own, by addresses too: they are where the operand was in its own.
ALIASING = frozenset({*RULES, "aten.as_strided.default", "aten.as_strided_scatter.default"})
