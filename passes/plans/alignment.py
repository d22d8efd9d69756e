"""Computes which addresses and sizes must be multiples of 16 for accesses of 16 bytes per thread (vector accesses)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from symshape.analysis.access_patterns import Access, KernelAccesses
from symshape.analysis.loops import Dim
from symshape.dialects.plans import ALIGNMENT, address_name
from symshape.prover.numbers.atoms import Function, Symbol
from symshape.prover.numbers.expr import Expr

_VECTOR: Final = 128  # bits of the widest access of a thread
_PART: Final = "%part"  # prefix of symbols for quotients; no dim or symbol of a kernel has it


@dataclass(frozen=True)
class Needs:
    """The requirements of a kernel on alignment: the ``names`` of arguments, symbols and bounds that must be multiples
    of 16; those of them that are ``proven`` to be; and for the others the expressions to be ``tested`` at launch."""

    names: tuple[str, ...]
    proven: tuple[str, ...]
    tested: tuple[Expr, ...]


def needs_of(
    kernel: KernelAccesses, tile: tuple[str, ...], allocated: Collection[int], whole: bool = False
) -> Needs | None:
    """The alignment that a kernel needs for vector accesses along its fast dim, or along both dims of a ``tile``. None
    if no access can be a vector access.

    ``allocated``: positions of the tensor arguments known to be aligned. ``whole``: full blocks of reduced points are
    read without a mask.
    """
    sides = [dim for name in tile for dim in kernel.dims if dim.name == name]
    if not tile and kernel.fast is not None:
        sides = [kernel.fast]
    search = _Search(kernel, whole)
    for side in sides:
        if not search.along(side, in_tile=bool(tile)):
            return None
    return search.result(allocated) if search.arguments else None


class _Search:
    """Collects arguments, symbols and bounds of masks. Facts are given to the compiler about symbols only: it derives
    those about expressions."""

    def __init__(self, kernel: KernelAccesses, whole: bool) -> None:
        self.kernel, self.whole = kernel, whole
        self.symbols: dict[str, None] = {}
        self.arguments: dict[int, None] = {}
        self.bounds: dict[str, Expr] = {}

    def along(self, side: Dim, *, in_tile: bool) -> bool:
        """Adds the accesses that are contiguous along a dim; False if masks rule out vector accesses."""
        kernel = self.kernel
        run, size = kernel.run_of(side)
        axis = [d for d in kernel.dims if d.reduced == side.reduced]
        seen = [_in_parts(a, side) for a in kernel.accesses if side.name not in a.guards]
        fast = [a for a in seen if a.stride(side) == 1]
        # In a tile only strides count: code generation may have merged the dim with others, or split it.
        whole = [] if in_tile else [a for a in fast if _numbers(a, axis)]
        vectors = [v for access in whole if (v := self._take(access, axis))]
        before = dict(self.symbols), dict(self.arguments)
        others = [v for access in fast if access not in whole and (v := self._take(access, run))]
        parts = any(d not in run and d.size != 1 for d in axis)
        if others and parts and not in_tile and not self._multiple(size, min(others)):
            self.symbols, self.arguments = before  # contiguous runs end at other places than vectors do
            if not vectors:
                return False
            others = []
        if not vectors and not others:
            return True
        least = min(vectors + others)
        if in_tile:
            return self._multiple(size, least)
        if not any(d.reduced for d in kernel.dims) or self.whole and side.reduced:
            return True  # full blocks have no mask (codegen/triton/forms.py, split.py)
        name, bound = ("rnumel", kernel.rnumel) if side.reduced else ("xnumel", kernel.xnumel)
        return self._bound(name, bound, least)

    def _take(self, access: Access, run: list[Dim]) -> int:
        """Adds an access; returns the number of its elements in 16 bytes if it can be a vector access, else 0."""
        vector = max(1, _VECTOR // self.kernel.arguments[access.arg].bits)
        if not self._address(access, run, vector):
            return 0
        self.arguments[access.arg] = None
        return vector

    def _address(self, access: Access, run: list[Dim], vector: int) -> bool:
        """Whether the address without the fast index can be a multiple of ``vector``; adds its symbols if so."""
        others = [dim.name for dim in self.kernel.dims if dim not in run]
        others += [name for name in sorted(access.address.symbols) if name.startswith(_PART)]
        origin = access.address.substitute(dict.fromkeys((*others, *(dim.name for dim in self.kernel.dims)), 0))
        parts = [origin]
        for name in others:
            stride = access.address.coefficient(name)
            if stride is None:
                return False
            parts.append(stride)
        wanted = dict(self.symbols)
        if not all(self._multiple(part, vector) for part in parts):
            self.symbols = wanted
            return False
        return True

    def _multiple(self, expr: Expr, vector: int) -> bool:
        """Whether ``expr`` is a multiple of ``vector`` once some symbols are multiples of 16; adds these symbols."""
        for coefficient, atoms in expr.terms:
            names = [atom.name for atom in atoms if isinstance(atom, Symbol)]
            if coefficient % vector == 0 or not self.symbols.keys().isdisjoint(names):
                continue
            if not names:
                return False
            proven = [name for name in names if self.kernel.facts.divides(ALIGNMENT, Expr.symbol(name))]
            self.symbols[(proven or names)[-1]] = None
        return True

    def _bound(self, name: str, bound: Expr, vector: int) -> bool:
        """Adds a mask's bound: as a symbol if it is a multiple of one, else under ``name`` ("xnumel", "rnumel")."""
        if bound.as_int() is not None:
            return bound.as_int() % vector == 0  # type: ignore[operator]
        before = dict(self.symbols)
        single = len(bound.terms) == 1 and len(bound.symbols) == 1
        if self._multiple(bound, vector) and (single or self.symbols == before):
            return True
        self.symbols = before
        self.bounds[name] = bound
        return True

    def result(self, allocated: Collection[int]) -> Needs:
        """All needs, with what facts do not prove."""
        kernel = self.kernel
        wanted: list[tuple[str, Expr, bool]] = []
        for i in sorted(self.arguments):
            wanted.append((kernel.arguments[i].name, Expr.symbol(address_name(i)), i in allocated))
        for name, expr in [*((s, Expr.symbol(s)) for s in self.symbols), *self.bounds.items()]:
            wanted.append((name, expr, kernel.facts.divides(ALIGNMENT, expr)))
        return Needs(
            tuple(name for name, _, _ in wanted),
            tuple(name for name, _, proven in wanted if proven),
            tuple(expr for _, expr, proven in wanted if not proven),
        )


def _in_parts(access: Access, side: Dim) -> Access:
    """The access with a dim of its own for quotients, so that it counts as contiguous between their multiples: in an
    address with ``d % 32``, that is ``d - d // 32 * 32``, the quotient ``d // 32`` becomes a symbol."""
    dim = Expr.symbol(side.name)

    def part(atom: Symbol | Function) -> Expr | None:
        if not isinstance(atom, Function) or atom.kind != "floordiv" or atom.args[0] != dim:
            return None
        length = atom.args[1].as_int()
        return Expr.symbol(f"{_PART}{length}") if length and length % ALIGNMENT == 0 else None

    return replace(access, address=access.address.map_atoms(part))


def _numbers(access: Access, axis: list[Dim]) -> bool:
    """Whether the address enumerates all points of these dims in row-major order, so that their sizes do not matter."""
    step = Expr.const(1)
    for dim in reversed(axis):
        if dim.size != 1 and access.stride(dim) != step:
            return False
        step = step * dim.size
    return True
