"""Normalises the iteration space of a loop program: splits, drops, orders (by stride) and merges dims.

A contiguous pointwise kernel ends up with one dim, a softmax over the last dim with one parallel and one reduced dim.
What is computed at each point is unchanged, and so is the row-major order of reduced dims if an arg-reduction or a scan
depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from symshape.analysis.kernel_facts import divides, space_facts
from symshape.analysis.loops import Dim, Instr, LoopKernel
from symshape.prover.numbers import polynomial as poly
from symshape.prover.numbers.expr import Expr, Function

_MAX_SPLITS: Final = 8
# Value assumed for every symbol when dims are ordered by stride; a wrong guess costs only speed.
_TYPICAL_SIZE: Final = 97
_FAR: Final = 1 << 20

Rewrite = Callable[[Expr], Expr]


@dataclass(frozen=True)
class _Space:
    """The iteration space, and the current form of each address and mask, keyed by its form in the original kernel."""

    dims: tuple[Dim, ...]
    addresses: dict[Expr, Expr]
    masks: dict[Expr, Expr]

    def rewrite(self, dims: Iterable[Dim], address: Rewrite, mask: Rewrite | None = None) -> _Space:
        addresses = {old: address(new) for old, new in self.addresses.items()}
        return _Space(tuple(dims), addresses, {old: (mask or address)(new) for old, new in self.masks.items()})

    def substitute(self, dims: Iterable[Dim], values: dict[str, Expr]) -> _Space:
        return self.rewrite(dims, lambda e: e.substitute(values))

    @property
    def exprs(self) -> list[Expr]:
        return [*self.addresses.values(), *self.masks.values()]


def normalise(kernel: LoopKernel) -> LoopKernel:
    """The kernel over its normalised iteration space."""
    names = frozenset(d.name for d in kernel.dims)
    addresses = {e: e for i in kernel.code if (e := i.address) is not None and not names.isdisjoint(e.symbols)}
    masks = {e: e for i in kernel.code for e in i.mask}
    space = _Space(kernel.dims, addresses, masks)
    space = _split_dims(kernel, space)
    space = _drop_unit_dims(space)
    space = _order_dims(kernel, space)
    space = _merge_dims(space)
    space = _rename_dims(space)
    code = tuple(_rewritten(instr, space) for instr in kernel.code)
    return replace(kernel, dims=space.dims, code=code)


def _rewritten(instr: Instr, space: _Space) -> Instr:
    address = space.addresses.get(instr.address, instr.address) if instr.address is not None else None
    mask = tuple(space.masks[e] for e in instr.mask)
    return instr if address == instr.address and mask == instr.mask else replace(instr, address=address, mask=mask)


# Splitting: d becomes d_hi*k + d_lo if d//k or d%k keep addresses from being linear.


def _split_dims(kernel: LoopKernel, space: _Space) -> _Space:
    tried: set[tuple[str, Expr]] = set()
    for number in range(_MAX_SPLITS):
        found = None
        for dim, factor in _split_candidates(space):
            if (dim.name, factor) not in tried:
                tried.add((dim.name, factor))
                found = _split(kernel, space, dim, factor, number)
            if found is not None:
                break
        if found is None:
            break
        space = found
    return space


def _split_candidates(space: _Space) -> Iterator[tuple[Dim, Expr]]:
    """Pairs (dim, k): for each n//q or n%q, dims with a coefficient c in n such that q == c*k (or q == -c*k, for a dim
    that runs backwards)."""
    by_name = {d.name: d for d in space.dims}
    for function in _functions(space.exprs):
        if function.kind not in ("floordiv", "mod") or not by_name.keys().isdisjoint(function.args[1].symbols):
            continue
        numerator, divisor = function.args
        for name in sorted(numerator.symbols & by_name.keys()):
            factor = numerator.coefficient(name)
            if factor is None or factor == 0 or not by_name.keys().isdisjoint(factor.symbols):
                continue
            part = poly.divide_exactly(divisor._polynomial, factor._polynomial)
            if part is not None and Expr(part) != 1:
                yield by_name[name], Expr(part)
                yield by_name[name], -Expr(part)


def _split(kernel: LoopKernel, space: _Space, dim: Dim, factor: Expr, number: int) -> _Space | None:
    """The space with a dim split by ``factor``; None if that does not divide its size, or simplifies nothing."""
    facts = space_facts(kernel.args, space.dims).full
    if not facts.nonnegative(factor) or not divides(facts, factor, dim.size):
        return None
    high = Dim(f"{dim.name}_{number}h", facts.simplify(dim.size // factor), dim.reduced)
    low = Dim(f"{dim.name}_{number}l", factor, dim.reduced, dim.origin)
    dims = [part for d in space.dims for part in ((high, low) if d is dim else (d,))]
    points = space_facts(kernel.args, dims)
    reduced = {d.name for d in dims if d.reduced}
    value = {dim.name: Expr.symbol(high.name) * factor + Expr.symbol(low.name)}

    def rewrite(expr: Expr) -> Expr:
        if dim.name not in expr.symbols:
            return expr
        expr = expr.substitute(value)
        return points.simplify(expr, reduced.isdisjoint(expr.symbols))

    result = space.rewrite(dims, rewrite)
    return result if _functions_of_dims(result) < _functions_of_dims(space) else None


def _functions_of_dims(space: _Space) -> int:
    names = {d.name for d in space.dims}
    return sum(1 for function in _functions(space.exprs) if not names.isdisjoint(function.symbols))


def _functions(exprs: Iterable[Expr]) -> Iterator[Function]:
    """All functions (floordiv, mod, max, min) in the expressions, outermost first, each once per expression."""
    for expr in exprs:
        for atom in dict.fromkeys(atom for _, atoms in expr.terms for atom in atoms):
            if isinstance(atom, Function):
                yield atom
                yield from _functions(atom.args)


# Dropping and ordering.


def _drop_unit_dims(space: _Space) -> _Space:
    """Drops dims of size 1, except for the last reduced dim: reductions need a full level."""
    unit = {d.name for d in space.dims if d.size == 1}
    reduced = [d.name for d in space.dims if d.reduced]
    if reduced and unit.issuperset(reduced):
        unit.discard(reduced[-1])
    if not unit:
        return space
    return space.substitute((d for d in space.dims if d.name not in unit), {name: Expr.const(0) for name in unit})


def _order_dims(kernel: LoopKernel, space: _Space) -> _Space:
    """Orders dims: parallel ones first, each kind by descending stride in the stores, then in the loads."""
    stores = [i.address for i in kernel.code if i.op == "store"]
    loads = [i.address for i in kernel.code if i.op == "load"]
    addresses = [space.addresses[e] for e in dict.fromkeys([*stores, *loads]) if e in space.addresses]
    if any(function.kind in ("floordiv", "mod") and function.args[1].symbols for function in _functions(addresses)):
        return space  # with guessed sizes a divisor may be 0
    origin = {name: _TYPICAL_SIZE for e in addresses for name in e.symbols} | {d.name: 0 for d in space.dims}
    at_origin = [e.evaluate(origin) for e in addresses]
    fixed = kernel.is_scan or any(i.combiner in ("argmax", "argmin") for i in kernel.code)

    def distances(dim: Dim) -> tuple[int, ...]:
        far = {**origin, dim.name: _FAR}
        return tuple(-abs(e.evaluate(far) - start) for e, start in zip(addresses, at_origin, strict=True))

    parallel = sorted((d for d in space.dims if not d.reduced), key=distances)
    reduced = [d for d in space.dims if d.reduced]
    return replace(space, dims=(*parallel, *(reduced if fixed else sorted(reduced, key=distances))))


# Merging.


def _merge_dims(space: _Space) -> _Space:
    i = 0
    while i + 1 < len(space.dims):
        merged = _merge(space, i)
        if merged is None:
            i += 1
        else:
            space, i = merged, max(i - 1, 0)
    return space


def _merge(space: _Space, i: int) -> _Space | None:
    """The space with dims i and i+1 merged, named like the second; None if an expression prevents it."""
    outer, inner = space.dims[i], space.dims[i + 1]
    if outer.reduced != inner.reduced:
        return None
    masks = {old: _joined_mask(e, outer, inner) for old, e in space.masks.items()}
    if not all(_joins(e, outer, inner) for e in (*space.addresses.values(), *masks.values())):
        return None
    dims = (*space.dims[:i], replace(inner, size=outer.size * inner.size), *space.dims[i + 2 :])
    return replace(space, masks=masks).substitute(dims, {outer.name: Expr.const(0)})


def _joins(expr: Expr, outer: Dim, inner: Dim) -> bool:
    if outer.name not in expr.symbols and inner.name not in expr.symbols:
        return True
    slow, fast = expr.coefficient(outer.name), expr.coefficient(inner.name)
    return slow is not None and fast is not None and inner.name not in slow.symbols and slow == fast * inner.size


def _joined_mask(expr: Expr, outer: Dim, inner: Dim) -> Expr:
    """Extends a mask e >= 0 of the outer dim to both: e*S + d >= 0 (or e*S + S-1-d >= 0) for d in [0, S)."""
    if inner.name in expr.symbols:
        return expr
    fast = Expr.symbol(inner.name)
    slow = expr.coefficient(outer.name)
    if slow == 1:
        return expr * inner.size + fast
    return (expr + 1) * inner.size - 1 - fast if slow == -1 else expr


def _rename_dims(space: _Space) -> _Space:
    names = {d.name: f"d{i}" for i, d in enumerate(space.dims)}
    if all(old == new for old, new in names.items()):
        return space
    dims = [replace(d, name=names[d.name]) for d in space.dims]
    return space.substitute(dims, {old: Expr.symbol(new) for old, new in names.items()})
