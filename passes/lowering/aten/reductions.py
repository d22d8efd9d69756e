"""Rules of reductions. Sums and products of half types accumulate in f32, those of integers in i64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from symshape.passes.lowering.aten.builder import ONE, Builder, Tensor, Unsupported
from symshape.passes.lowering.aten.scalar_body import Scalar, compute_type, is_float
from symshape.prover.numbers.expr import Expr


def dims_of(x: Tensor, dims: Any) -> list[int]:
    """The reduced dims: all of them for None or an empty list."""
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        return list(range(x.rank))
    return [d % max(x.rank, 1) for d in ([dims] if isinstance(dims, int) else dims)]


def accumulate(b: Builder, x: Tensor, dims: Any, combiner: str, keepdim: bool) -> Tensor:
    """Reduces in the accumulator type of the result and rounds once at the end. A sum of bools is whether any is true,
    their product whether all are."""
    dtype = b.results[0].dtype
    if dtype == "i1":
        combiner = {"add": "or", "mul": "and"}[combiner]
    wide = b.cast(x, compute_type(dtype))
    if dtype == "ui8":  # kernels do not reduce by it; what overflows is lost in either type
        wide = b.cast(wide, "i32")
    if not x.rank:
        return b.cast(wide, dtype)
    (total,) = b.reduce(wide, dims_of(x, dims), combiner, keepdim)
    return b.cast(total, dtype)


def sum_(b: Builder, x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    return accumulate(b, x, dim, "add", keepdim)


def prod(b: Builder, x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    return accumulate(b, x, dim, "mul", keepdim)


def mean(b: Builder, x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    out = b.results[0].dtype
    total = _sum(b, b.cast(x, compute_type(out)), dims_of(x, dim), keepdim)
    return _divide(b, total, b.count(x, dims_of(x, dim)), out)


def _sum(b: Builder, x: Tensor, dims: Sequence[int], keepdim: bool) -> Tensor:
    return b.reduce(x, dims, "add", keepdim)[0] if x.rank else x


def _divide(b: Builder, total: Tensor, count: Expr, dtype: str) -> Tensor:
    return b.pointwise(total.sizes, dtype, [total], lambda v: b.body.div(v, b.body.size(count, v.dtype)))


def extremum(combiner: str, *, of_nothing: bool = False) -> Callable[..., Tensor]:
    """``of_nothing``: that of no values is the least or largest of the type; else it is refused as in eager mode."""

    def rule(b: Builder, x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
        if not of_nothing:
            require_nonempty(b, x, dims_of(x, dim))
        if not x.rank:
            return b.cast(x, x.dtype)
        return b.cast(b.reduce(ordered(b, x), dims_of(x, dim), combiner, keepdim)[0], x.dtype)

    return rule


def ordered(b: Builder, x: Tensor) -> Tensor:
    """The values in a type that kernels reduce by order: a signed one."""
    return b.cast(x, "i32" if x.dtype in ("i1", "ui8") else compute_type(x.dtype))


def require_nonempty(b: Builder, x: Tensor, dims: Sequence[int]) -> None:
    """Unsupported for an extremum that may be of no element: such a call goes to the library, which raises the
    error."""
    low, _ = b.facts.bounds(b.count(x, dims))
    if low is None or low < 1:
        raise Unsupported("the reduced size may be 0, which must raise as eager does")


def arg_extremum(combiner: str) -> Callable[..., Tensor]:
    def rule(b: Builder, x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
        dims = dims_of(x, dim)
        require_nonempty(b, x, dims)
        if not x.rank:
            return b.full(x.sizes, "i64", 0)
        return b.reduce(ordered(b, x), dims, combiner, keepdim)[1]

    return rule


def extremum_dim(combiner: str) -> Callable[..., tuple[Tensor, Tensor]]:
    """``max.dim``/``min.dim``: values and indices."""

    def rule(b: Builder, x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        require_nonempty(b, x, [dim])
        if not x.rank:
            return b.cast(x, x.dtype), b.full(x.sizes, "i64", 0)
        value, index = b.reduce(ordered(b, x), [dim], combiner, keepdim)
        return b.cast(value, x.dtype), index

    return rule


def truth(combiner: str) -> Callable[..., Tensor]:
    """``any``/``all``: of a uint8 tensor the result is uint8."""

    def rule(b: Builder, x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
        flags = b.cast(x, "i1")
        result = b.reduce(flags, dims_of(x, dim), combiner, keepdim)[0] if x.rank else flags
        return b.cast(result, b.results[0].dtype)

    return rule


def moments(b: Builder, x: Tensor, dim: Any, correction: Any, keepdim: bool) -> tuple[Tensor, Tensor]:
    """Variance and mean in two passes over the row: the deviations are summed, so nothing cancels. On CPUs in float64,
    as in eager."""
    if not is_float(b.results[0].dtype):
        raise Unsupported("variance of complex or integer numbers")
    dims = dims_of(x, dim)
    wide = b.cast(x, "f64" if b.target == "cpu" else compute_type(x.dtype))
    count = b.count(x, dims)
    average = _divide(b, _sum(b, wide, dims, True), count, wide.dtype)
    body = b.body

    def square(v: Scalar, m: Scalar) -> Scalar:
        difference = body.sub(v, m)
        return body.mul(difference, difference)

    deviations = b.pointwise(wide.sizes, wide.dtype, [wide, average], square)
    total = _sum(b, deviations, dims, keepdim)
    degrees = 1 if correction is None else correction

    def normalise(v: Scalar) -> Scalar:
        left = body.sub(body.size(count, v.dtype), body.number(degrees, v.dtype))
        return body.div(v, body.max(left, body.constant(0, v.dtype)))

    variance = b.pointwise(total.sizes, b.results[0].dtype, [total], normalise)
    if not keepdim and x.rank:
        kept = [i for i in range(x.rank) if i not in {b.dim(d, x.rank) for d in dims}]
        average = b.view(
            average,
            [x.sizes[i] for i in kept],
            lambda *d: [d[kept.index(i)] if i in kept else ONE - ONE for i in range(x.rank)],
        )
    return variance, b.cast(average, b.results[0].dtype)


def var(b: Builder, x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Tensor:
    return moments(b, x, dim, correction, keepdim)[0]


def var_mean(
    b: Builder, x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    return moments(b, x, dim, correction, keepdim)


def std(b: Builder, x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Tensor:
    variance = moments(b, x, dim, correction, keepdim)[0]
    return b.pointwise(variance.sizes, variance.dtype, [variance], lambda v: b.body.math("sqrt", v))


RULES: dict[str, Callable[..., Any]] = {
    "aten.sum.default": sum_,
    "aten.sum.dim_IntList": sum_,
    "aten.prod.default": prod,
    "aten.prod.dim_int": prod,
    "aten.mean.default": mean,
    "aten.mean.dim": mean,
    "aten.amax.default": extremum("max"),
    "aten.amin.default": extremum("min"),
    "prims.amax.default": extremum("max", of_nothing=True),
    "aten.max.default": extremum("max"),
    "aten.min.default": extremum("min"),
    "aten.argmax.default": arg_extremum("argmax"),
    "aten.argmin.default": arg_extremum("argmin"),
    "aten.max.dim": extremum_dim("argmax"),
    "aten.min.dim": extremum_dim("argmin"),
    "aten.any.default": truth("or"),
    "aten.any.dim": truth("or"),
    "aten.any.dims": truth("or"),
    "aten.all.default": truth("and"),
    "aten.all.dim": truth("and"),
    "aten.all.dims": truth("and"),
    "aten.var.correction": var,
    "aten.var_mean.correction": var_mean,
    "aten.std.correction": std,
}
