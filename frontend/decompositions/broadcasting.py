"""Broadcasting of sizes that may be 1: whether a dim is expanded is decided at call time.

The tracer assumes that an unbacked size is not 1, and asserts that it equals the size that it broadcasts with. Here the
size of the result is right in both cases, and eager mode's own rule is asserted. A backed size with hint 1 is treated
likewise; two other sizes are guarded to be equal. Where a tensor must be expanded explicitly (for a gradient, or by
``expand``) its elements are gathered: ``i * min(size - 1, 1)`` is i, or 0 if the size is 1.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.utils._pytree as pytree

from symshape.frontend.bridge.general_shape_env import is_general
from symshape.frontend.bridge.operators import AutogradKernel, in_transform
from symshape.frontend.bridge.shape_env import env_of_size
from symshape.frontend.bridge.symbolic_sizes import (
    either,
    expression_of,
    is_unbacked,
    known_at_most_one,
    known_equal,
    known_not_one,
    seen_as_one,
)
from symshape.frontend.decompositions.eager_layouts import order_of_clone

aten: Any = torch.ops.aten
_torch: Any = torch  # these have no types
_check, _sym_min, _sym_max = _torch._check, _torch.sym_min, _torch.sym_max
Size = Any  # int | torch.SymInt


def broadcasting_kernels() -> dict[Any, AutogradKernel]:
    """For ``differentiate_by``: operands that may have to be expanded are expanded before they are differentiated."""
    return {
        **transformed_kernels(),
        **dict.fromkeys((aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims), _squeeze),
        **dict.fromkeys(
            (aten.squeeze_copy.default, aten.squeeze_copy.dim, aten.squeeze_copy.dims), _copy_of(aten.squeeze)
        ),
    }


def transformed_kernels() -> dict[Any, AutogradKernel]:
    """For ``transform_by``: as ``broadcasting_kernels``, without data-dependent assertions."""
    in_place = dict.fromkeys(_IN_PLACE, _pointwise_in_place)
    more: dict[Any, AutogradKernel] = {
        aten.expand.default: _expand,
        aten.linalg_cross.default: _cross,
        aten.linalg_solve.default: _solve,
        aten.linalg_solve_triangular.default: _solve_triangular,
    }
    return {**dict.fromkeys(_POINTWISE, _pointwise), **in_place, **more}


_POINTWISE = (
    aten.add.Tensor,
    aten.sub.Tensor,
    aten.rsub.Tensor,
    aten.mul.Tensor,
    aten.div.Tensor,
    aten.div.Tensor_mode,
    aten.where.self,
    aten.maximum.default,
    aten.minimum.default,
    aten.fmax.default,
    aten.fmin.default,
    aten.pow.Tensor_Tensor,
    aten.atan2.default,
    aten.hypot.default,
    aten.remainder.Tensor,
    aten.fmod.Tensor,
    aten.lerp.Tensor,
    aten.lerp.Scalar,
    aten.addcmul.default,
    aten.addcdiv.default,
    aten.logaddexp.default,
    aten.logaddexp2.default,
    aten.masked_fill.Scalar,
    aten.masked_fill.Tensor,
    aten.xlogy.Tensor,
    aten.copysign.Tensor,
    aten.complex.default,
    aten.special_xlog1py.default,
    aten.clamp.Tensor,
    aten.clamp_min.Tensor,
    aten.clamp_max.Tensor,
    aten.igamma.default,
    aten.igammac.default,
    aten.special_zeta.default,
    aten.ldexp.Tensor,
    aten.nextafter.default,
)

_IN_PLACE = (
    aten.add_.Tensor,
    aten.sub_.Tensor,
    aten.mul_.Tensor,
    aten.div_.Tensor,
    aten.div_.Tensor_mode,
    aten.pow_.Tensor,
    aten.atan2_.default,
    aten.hypot_.default,
    aten.remainder_.Tensor,
    aten.fmod_.Tensor,
    aten.lerp_.Tensor,
    aten.lerp_.Scalar,
    aten.addcmul_.default,
    aten.addcdiv_.default,
    aten.masked_fill_.Scalar,
    aten.masked_fill_.Tensor,
    aten.xlogy_.Tensor,
    aten.copysign_.Tensor,
    aten.clamp_.Tensor,
    aten.clamp_min_.Tensor,
    aten.clamp_max_.Tensor,
    aten.igamma_.default,
    aten.igammac_.default,
    aten.ldexp_.default,
    aten.nextafter_.default,
    aten.copy_.default,
)


def joined(a: Size, b: Size) -> Size:
    """The size that two sizes broadcast to. What eager requires of them is asserted, and checked when known."""
    if not undecided(a, b):
        return b if type(a) is int and a == 1 else a
    ours, theirs = _joined_of(a), _joined_of(b)
    if ours <= theirs or theirs <= ours:  # that they fit was checked when they were joined
        whole = a if theirs <= ours else b
        return next((size for size in (a, b) if type(size) is int), whole)
    if _is_full(a, b) or _is_full(b, a):
        full, other = (a, b) if _is_full(a, b) else (b, a)
        _check(either(other == 1, other == full), lambda: _MESSAGE)
        return full
    _check(either(a == b, a == 1, b == 1), lambda: _MESSAGE)
    size = _sym_max(a, b) * _sym_min(_sym_min(a, b), 1)  # the other one, unless there is nothing
    if isinstance(size, torch.SymInt):
        _JOINED.setdefault(env_of_size(size), {})[expression_of(size)] = ours | theirs
    return size


# By shape environment: of the sizes that others broadcast to, which these are. A residual network adds the same two
# sizes again in each layer: of a size that was joined with itself the expression would grow exponentially.
_JOINED: WeakKeyDictionary[Any, dict[Any, frozenset[Any]]] = WeakKeyDictionary()


def _joined_of(size: Size) -> frozenset[Any]:
    """The sizes that a size is the broadcast of; for most sizes itself alone."""
    if type(size) is int:
        return frozenset({size} - {1})
    expression = expression_of(size)
    return _JOINED.get(env_of_size(size), {}).get(expression, frozenset({expression}))


_MESSAGE = "sizes that are broadcast must be the same, or 1"


def _is_full(a: Size, b: Size) -> bool:
    """Whether the size of the result is ``a``. If the other is unbacked, with a guard that ``a`` is not 1: that the
    unbacked one is 1 or equal could only be asserted, which would reject what eager mode broadcasts."""
    if known_not_one(a):
        return True
    if _is_unbacked(a) or seen_as_one(a):
        return False
    return bool(a != 1) if _is_unbacked(b) else True


def undecided(a: Size, b: Size) -> bool:
    """Whether it is decided only at call time which of two sizes is broadcast."""
    if not any(_is_unbacked(x) or seen_as_one(x) for x in (a, b)) or any(type(x) is int and x == 1 for x in (a, b)):
        return False
    if _joined_of(a) == _joined_of(b):
        return False
    return not known_equal(a, b) and not (known_not_one(a) and known_not_one(b))


def _is_unbacked(size: Size) -> bool:
    return isinstance(size, torch.SymInt) and is_unbacked(size)


def _aligned(shapes: Sequence[Sequence[Size]]) -> list[tuple[Size, ...]]:
    """For each dim of the result the sizes of the operands that broadcast."""
    rank = max(map(len, shapes), default=0)
    return list(zip(*([1] * (rank - len(shape)) + list(shape) for shape in shapes)))


def _is_open(shapes: Sequence[Sequence[Size]]) -> bool:
    return any(undecided(a, b) for sizes in _aligned(shapes) for i, a in enumerate(sizes) for b in sizes[i + 1 :])


def with_unknown_shapes(original: Callable[..., Any]) -> Callable[..., Any]:
    """The rule for the shape that some shapes are broadcast to."""

    def shapes(*given: Any) -> Any:
        whole = [(s,) if isinstance(s, (int, torch.SymInt)) else s for s in given if s is not None]
        if not _is_open(whole):
            return original(*given)
        result = []
        for sizes in _aligned(whole):
            if any(undecided(a, b) for i, a in enumerate(sizes) for b in sizes[i + 1 :]):
                result.append(functools.reduce(joined, sizes))
            else:
                result.extend(original(*((size,) for size in sizes)))
        return tuple(result)

    return shapes


def with_repeated_tensors(original: Callable[..., Any]) -> Callable[..., Any]:
    """The rule that broadcasts tensors, on tensors that are repeated where that may be needed."""

    def tensors(*given: Any, **options: Any) -> Any:
        shapes = [x.shape for x in given if isinstance(x, torch.Tensor)]
        if _is_open(shapes):
            given = tuple(repeated(given))
        elif any(is_general(size) for shape in shapes for size in shape):
            given = tuple(_widened(given))  # the usual rule would guard on each size, being 1 for instance
        return original(*given, **options)

    return tensors


def _widened(operands: Sequence[Any]) -> list[Any]:
    """The operands with dims of size 1 expanded, without guards on sizes."""
    tensors = [x for x in operands if isinstance(x, torch.Tensor)]
    whole = torch.broadcast_shapes(*(x.shape for x in tensors))

    def widened(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or x.dim() == 0:
            return x
        sizes = whole[len(whole) - x.dim() :]
        same = [s if type(old) is int and old == 1 else old for old, s in zip(x.shape, sizes)]
        return x if all(a is b for a, b in zip(same, x.shape)) else x.expand(same)

    return [widened(x) for x in operands]


def repeated(operands: Sequence[Any]) -> list[Any]:
    """The tensors among the operands, repeated in the dims where that is not known to be needed."""
    shapes = [x.shape for x in operands if isinstance(x, torch.Tensor)]
    whole = with_unknown_shapes(torch.broadcast_shapes)(*shapes)
    return [_repeat(x, whole) if isinstance(x, torch.Tensor) else x for x in operands]


def _repeat(x: torch.Tensor, sizes: Sequence[Size]) -> torch.Tensor:
    """Expands to the sizes. Dims keep their order in memory: if nothing is expanded, results computed from it have the
    layout that they have for ``x``. Of a dim with at most one element it is the layout of an expanded one."""
    wanted = [(dim, size) for dim, size in enumerate(sizes[len(sizes) - x.dim() :]) if undecided(x.size(dim), size)]
    if not wanted:
        return x
    order = [*order_of_clone(x, single=[dim for dim, _ in wanted if known_at_most_one(x.size(dim))])]
    in_order = order == sorted(order)
    x = x if in_order else x.permute(order)
    for dim, size in wanted:
        place = order.index(dim)
        if torch.is_grad_enabled() and x.requires_grad and not in_transform():
            x = _Repeated.apply(x, place, size)  # type: ignore[no-untyped-call]
        else:
            x = _picked(x, place, size)
    return x if in_order else x.permute(sorted(order, key=order.__getitem__))


def _picked(x: torch.Tensor, dim: int, size: Size) -> torch.Tensor:
    """Expands one dim, whose size is ``size`` or 1, by a gather."""
    step = _sym_min(x.size(dim) - 1, 1)
    return x.index_select(dim, torch.arange(size, device=x.device) * step)


class _Repeated(torch.autograd.Function):
    """``_repeat`` with the gradient summed over the copies, of which there is one if nothing is expanded. The gradient
    of a gather would be a scatter, in the order of its points."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, dim: int, size: Size) -> torch.Tensor:
        ctx.dim, ctx.own, ctx.size = dim, x.size(dim), size
        return _picked(x, dim, size)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        copies = ctx.size // _sym_max(ctx.own, 1)
        _check(ctx.own * copies == ctx.size)
        return gradient.unflatten(ctx.dim, (ctx.own, copies)).sum(ctx.dim + 1), None, None


def perhaps_squeezed(input: torch.Tensor, dim: Any = None) -> bool:
    """Whether it is data-dependent whether ``torch.squeeze(input, dim)`` drops a dim."""
    return any(_is_unbacked(input.size(d)) and not known_not_one(input.size(d)) for d in _squeezed(input, dim))


def _squeezed(x: torch.Tensor, dim: Any) -> Sequence[int]:
    dims = range(x.dim()) if dim is None else dim if isinstance(dim, Sequence) else [dim]
    return dims if x.dim() else ()


def _squeeze(original: Any, x: torch.Tensor, *dim: Any) -> torch.Tensor:
    """Traced so that a dim of an unbacked size stays, with an assertion that it is not 1."""
    for d in _squeezed(x, *(dim or (None,))):
        if _is_unbacked(size := x.size(d)):
            _check(size != 1, lambda: "a dim of size 1 would be dropped")
    result: torch.Tensor = original(x, *dim)
    return result


def _copy_of(view: Any) -> AutogradKernel:
    """Differentiates a copy of a view like the view: PyTorch's rule for the copy would guard on sizes once more."""

    def kernel(_: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return view(x, *args, **kwargs).clone(memory_format=torch.contiguous_format)

    return kernel


def _pointwise(original: Any, *args: Any, **kwargs: Any) -> Any:
    tensors = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    if not any(x.requires_grad for x in tensors) or not _is_open([x.shape for x in tensors]):
        return original(*args, **kwargs)
    found = iter(repeated(tensors))
    args, kwargs = pytree.tree_map_only(torch.Tensor, lambda _: next(found), (args, kwargs))
    return original(*args, **kwargs)


def _cross(original: Any, x: torch.Tensor, y: torch.Tensor, *, dim: int = -1) -> Any:
    """Broadcasts all dims but the components. For another number of components than three ``original`` raises the
    error."""
    valid = x.dim() == y.dim() and -x.dim() <= dim < x.dim()
    if not valid or not bool(x.size(dim) == 3) or not bool(y.size(dim) == 3):
        return original(x, y, dim=dim)
    return _pointwise(original, x, y, dim=dim)


def with_equal_batches(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
    """Matrices whose other dims are broadcast: if they are differentiated, repeated where that may be needed."""
    batches = [x.shape[:-2] for x in (a, b)]
    if min(a.dim(), b.dim()) < 2 or not (a.requires_grad or b.requires_grad) or not _is_open(batches):
        return [a, b]
    whole = with_unknown_shapes(torch.broadcast_shapes)(*batches)
    return [_repeat(x, [*whole, *x.shape[-2:]]) for x in (a, b)]


def _solve_triangular(original: Any, a: torch.Tensor, b: torch.Tensor, **how: Any) -> Any:
    return original(*with_equal_batches(a, b), **how)


def _solve(original: Any, a: torch.Tensor, b: torch.Tensor, **how: Any) -> Any:
    """With one dim less ``b`` may be vectors."""
    return original(a, b, **how) if b.dim() == a.dim() - 1 else original(*with_equal_batches(a, b), **how)


def _pointwise_in_place(original: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """An operand that is written to must have the size of the result."""
    tensors = [y for y in pytree.tree_leaves((x, args, kwargs)) if isinstance(y, torch.Tensor)]
    if not any(y.requires_grad for y in tensors) or not _is_open([y.shape for y in tensors]):
        return original(x, *args, **kwargs)

    def spread(y: torch.Tensor) -> torch.Tensor:
        found = _spread(y, x.shape) if y.dim() <= x.dim() else None
        return y if found is None else found

    args, kwargs = pytree.tree_map_only(torch.Tensor, spread, (args, kwargs))
    return original(x, *args, **kwargs)


def _spread(x: torch.Tensor, sizes: Sequence[Size]) -> torch.Tensor | None:
    """``x.expand(sizes)`` up to dims that are known to be repeated; None where all of it is known."""
    lead = len(sizes) - x.dim()
    wanted = [x.size(d) if type(s) is int and s == -1 else s for d, s in enumerate(sizes[lead:])]
    unknown = [(x.size(d), s) for d, s in enumerate(wanted) if not known_not_one(x.size(d)) and undecided(x.size(d), s)]
    if not unknown:
        return None
    for size, asked in unknown:
        _check(either(size == 1, size == asked), lambda: "a dim can be expanded if it is 1, or has that size")
    return _repeat(x, wanted)


@functools.cache
def expanded_sizes(original: Callable[..., Any]) -> Callable[..., Any]:
    """The rule for the result of ``expand``."""

    def sizes(x: torch.Tensor, *shape: Any, **options: Any) -> Any:
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
        spread = _spread(x, wanted)
        return original(x, *shape, **options) if spread is None else original(spread, wanted, **options)

    return sizes


def expand(x: torch.Tensor, sizes: Sequence[Size], **options: Any) -> Any:
    """``aten.expand`` for code below the autograd kernels (rules of nested tensors). A dim that may have to be expanded
    is gathered, as there; a view would have the layout of a dim that is not expanded."""
    spread = _spread(x, sizes)
    return NotImplemented if spread is None else aten.expand.default(spread, sizes, **options)


def _expand(original: Any, x: torch.Tensor, sizes: Sequence[Size], **options: Any) -> Any:
    spread = _spread(x, sizes)
    return original(x if spread is None else spread, sizes, **options)
