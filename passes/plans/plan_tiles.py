"""plan-tiles: chooses blocks and warps of kernels without reductions; transposes get two-dimensional tiles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from symshape.analysis.access_patterns import Access, KernelAccesses
from symshape.analysis.loops import Dim
from symshape.dialects.plans import ALIGNMENT
from symshape.machine.targets import GPU_WARP
from symshape.passes.framework.base import Pass, PassContext
from symshape.passes.plans.variant_table import Row, at_most, processors, tables, write_all
from symshape.prover.numbers.condition import TRUE, Condition, all_of, at_least
from symshape.prover.numbers.expr import Expr


@dataclass(frozen=True)
class PlanTiles(Pass):
    """Plans blocks, elements per thread and warps from element types, access patterns and sizes.

    Before::

        "symshape.space"(%s0, %s1) {iterators = ["parallel", "parallel"]} : (index, index) -> ()
        %v = "symshape.view"(%x, %s0, %s1) {map = affine_map<(d0, d1) -> (d1, d0)>} : ...      // a transpose

    After::

        ...                                                    // 4 <= first size <= 8, second size >= 64
        "symshape.variant"(%flat) {name = "tile8x256", form = "tile", yblock = 8, xblock = 256, ...}
        ...                                                    // both sizes >= 16, few points for each processor
        "symshape.variant"(%small) {name = "tile32", form = "tile", yblock = 32, xblock = 32, dims = ["d0", "d1"], ...}
        ...                                                    // both sizes >= 16
        "symshape.variant"(%square) {name = "tile64", form = "tile", yblock = 64, xblock = 64, dims = ["d0", "d1"], ...}
        "symshape.variant"(%true) {name = "block1024", form = "pointwise", xblock = 1024, ...}

    In a flat block a thread has at least as many elements as 16 bytes hold of the widest type, so that all accesses can
    be vector accesses; if there are enough points twice as many, so that two accesses are in flight. Few points get
    small blocks, to occupy all processors. A tile spans two dims: the fast dim of the stores, and the fast dim of the
    loads that stride along the former. Both sides then access whole sectors, and data is exchanged through shared
    memory. For a short dim, that side of the tile is short. Blocks of reductions are those of plan-reductions.
    Transpose of 8 x 1,048,576 on an H200: 28 us with such a thin tile, 84 us with a tile of 64 x 64, 54 to 81 us with a
    flat block.

    ``warps``     warps of a flat block
    ``tile``      points of each side of a square tile
    ``shortest``  minimum size of both dims for square tiles; for smaller dims most of a tile would be empty
    ``thin``      lengths of the short side of tiles that are not square
    ``thinnest``  minimum size of the short dim for such tiles
    """

    name: ClassVar[str] = "plan-tiles"
    targets: ClassVar[tuple[str, ...]] = ("triton",)
    statistics: ClassVar[dict[str, str]] = {
        "kernels": "kernels without reductions that were planned",
        "tiled": "kernels whose loads and stores are fast along different dims, so that they use tiles",
        "tile": "variants with a block of two dims",
        "pointwise": "variants with flat blocks",
    }
    warps: int = 4
    tile: int = 64
    shortest: int = 16
    thin: tuple[int, ...] = (8, 32)
    thinnest: int = 4

    def run(self, module: ir.Module, context: PassContext) -> list[ir.Operation]:
        changed = []
        for table in tables(module, context):
            if not table.kernel.reduced:
                tiles, blocks = self._tiles(table.kernel), self._blocks(table.kernel)
                table.rows = [*tiles, blocks[-1]] if tiles else blocks
                self.count(context, kernels=1, tiled=bool(tiles), **Counter(row.form for row in table.rows))
                changed.append(table)
        return write_all(changed)

    def _blocks(self, kernel: KernelAccesses) -> list[Row]:
        vector = 8 * ALIGNMENT // max((a.bits for a in kernel.arguments), default=32)
        small = 2 * GPU_WARP * vector
        large = self.warps * GPU_WARP * max(2 * vector, 8)
        few = at_most(kernel.xnumel, processors() * large)
        return [
            Row(f"block{small}", "pointwise", few, small, num_warps=2),
            Row(f"block{large}", "pointwise", TRUE, large, num_warps=self.warps),
        ]

    def _tiles(self, kernel: KernelAccesses) -> list[Row]:
        sides = crossing(kernel)
        if sides is None:
            return []
        sizes = [kernel.run_of(side)[1] for side in sides]
        square = all_of(*(at_least(size, self.shortest) for size in sizes))
        tile = self.tile if max(a.bits for a in kernel.arguments) <= 32 else self.tile // 2
        few = at_most(kernel.xnumel, processors() * (2 * tile * tile))
        dims = tuple(side.name for side in sides)
        return [*self._thin(tile, sizes, dims), _tile(tile // 2, all_of(square, few), dims), _tile(tile, square, dims)]

    def _thin(self, tile: int, sizes: Sequence[Expr], dims: tuple[str, ...]) -> list[Row]:
        """Tiles with a short side in either dim: half the points of a square tile, 16 per thread."""
        rows, points = [], tile * tile // 2
        for short in self.thin:
            for y, x in ((short, points // short), (points // short, short)):
                narrow, wide = sizes if y == short else (sizes[1], sizes[0])
                fits = all_of(at_least(narrow, self.thinnest), at_most(narrow, short), at_least(wide, self.tile))
                warps = max(1, points // 512)
                rows.append(Row(f"tile{y}x{x}", "tile", fits, x, y, num_warps=warps, dims=dims))
        return rows


def _tile(side: int, condition: Condition, dims: tuple[str, ...]) -> Row:
    """A square tile with 16 points per thread; a small one has 8."""
    warps = max(1, side * side // (512 if side >= 64 else 256))
    return Row(f"tile{side}", "tile", condition, side, side, num_warps=min(8, warps), dims=dims)


def crossing(kernel: KernelAccesses) -> tuple[Dim, Dim] | None:
    """The two dims of a transpose: the fast dim of loads that stride along the other one, and the fast dim of the
    stores. None if loads and stores do not cross."""
    stored = _fast_dims(kernel, [access for access in kernel.accesses if access.store])
    if not stored:
        return None
    across = [a for a in kernel.accesses if not a.store and a.stride(stored[0]) not in (0, 1, None)]
    loaded = [dim for dim in _fast_dims(kernel, across) if dim is not stored[0]]
    return (loaded[0], stored[0]) if loaded else None


def _fast_dims(kernel: KernelAccesses, accesses: list[Access]) -> list[Dim]:
    """Dims along which accesses are contiguous, those of most accesses first."""
    votes: dict[Dim, int] = {}
    for access in accesses:
        for dim in kernel.dims:
            if dim.size != 1 and access.stride(dim) == 1:
                votes[dim] = votes.get(dim, 0) + 1
    return sorted(votes, key=lambda dim: -votes[dim])
