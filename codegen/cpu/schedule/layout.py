"""Divides a kernel's iteration space into units of work, vectors, and chunks of a split reduction.

A unit is one point of the parallel dims other than the lane dim, times one block of the lane dim where that is
parallel, times one chunk of a split reduction. Threads share the units; everything here depends on sizes only, never on
the number of threads, so results do not either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from symshape.analysis.loops import Dim, Instr, LoopKernel
from symshape.codegen.cpu.emit.transpose import tile_dim
from symshape.codegen.cpu.schedule.interleave import Member, find_groups
from symshape.codegen.cpu.schedule.lane_work import LaneWork
from symshape.codegen.cpu.schedule.sweep_order import Schedule, Sweep, contiguous, weight
from symshape.prover.numbers.expr import Expr, ceildiv, maximum, minimum, product

BLOCK_INDEX, TILE_INDEX, SPLIT_INDEX, SPLITS = "%block", "%tile", "%split", "%splits"  # unlike any symbol of a kernel
MAX_SPLITS = 64
_BLOCK = 2048  # elements of a parallel lane dim in one unit
_SPLIT_ELEMENTS = 65536  # of a reduction, per chunk at least
_LANE_GRANULE, _ROW_GRANULE = 4096, 64  # chunks are multiples of this many indices
_CHAIN, _LONG_CHAIN = 8, 12  # the weight of functions whose operations wait for each other
_LARGE = 240  # cheap operations in an iteration that are enough to keep the CPU busy; more only spill registers
_PEELED = 48  # cheap operations per element: above, masks do not matter
LIGHT = 8  # the same: several vectors in one iteration cost little code, and sums wait for each other
ROWS = 32  # that share what is computed for the lanes alone
_SHARED_BLOCK = 512  # elements of the lane dim for which it is kept
_VECTORS = 4  # of a parallel lane dim that a reduction walks along together: whole cache lines, independent sums


def unit_counters(dims: Iterable[Dim], blocks: Expr | None = None) -> tuple[tuple[str, Expr], ...]:
    """The counters that make up a unit's number: the parallel ones of ``dims``, then ``blocks``, if there are any; the
    last one varies fastest."""
    outer = tuple((dim.name, dim.size) for dim in dims if not dim.reduced)
    return outer if blocks is None else (*outer, (BLOCK_INDEX, blocks))


def unit_count(counters: Iterable[tuple[str, Expr]]) -> Expr:
    """The number of units."""
    return product(size for _, size in counters)


@dataclass(frozen=True)
class LanePlan:
    """A loop order without sweeps: a unit has up to ``block`` indices of the parallel dim ``lane`` (None: it is one
    point of all parallel dims)."""

    kernel: LoopKernel
    lane: Dim | None
    block: int

    @property
    def counters(self) -> tuple[tuple[str, Expr], ...]:
        """The parts of a unit's number: parallel dims, then the block of the lane dim."""
        blocks = ceildiv(self.lane.size, self.block) if self.lane is not None else None
        return unit_counters((dim for dim in self.kernel.dims if dim is not self.lane), blocks)

    @property
    def units(self) -> Expr:
        """The number of units."""
        return unit_count(self.counters)


@dataclass(frozen=True)
class Layout:
    """``copies``: vectors computed side by side in one iteration. ``block``: elements of the lane dim per unit, 0 if it
    is reduced or missing. ``tile``: the dim of which a unit covers as many indices as a vector has lanes, for the
    ``transposed`` reads; a reduced one is covered whole, and the ``returned`` stores are transposed too. ``split``: the
    reduced dim that may be split into `SPLITS` chunks of granules. ``peeled``: full vectors have a loop of their own,
    without masks; the remainder of a row has another. ``groups``: see `interleave`. ``rows``: the parallel dim of which
    a unit covers as many indices as a vector has lanes, one after the other, see `rows_along_lanes`. ``most``: an upper
    bound of the lane dim's size, if the form has one. ``staged``: every sweep is split, see `staged`. ``packed``: the
    inner dims that share a vector with the lane dim, see `packed`. ``work``: what rows share, see `lane_work`."""

    lane: Dim | None
    copies: int
    block: int
    counters: tuple[tuple[str, Expr], ...]  # what makes up a unit's number; the last one runs fastest
    tile: Dim | None
    transposed: tuple[Instr, ...]
    split: Dim | None
    granule: int
    returned: tuple[Instr, ...] = ()
    peeled: bool = False
    groups: Mapping[Instr, Member] = field(default_factory=dict)
    rows: Dim | None = None
    most: int | None = None
    staged: bool = False
    packed: tuple[Dim, ...] = ()
    work: LaneWork | None = None

    @property
    def short(self) -> bool:
        """Whether a unit is a vector of whole rows."""
        return self.tile is not None and self.tile.reduced

    @property
    def across(self) -> bool:
        """Whether the lanes run along a reduced dim."""
        return self.lane is not None and self.lane.reduced

    def full(self, width: int) -> bool:
        """Whether every vector is known to be full, so that no mask is needed."""
        size = None if self.lane is None else self.lane.size.as_int()
        return size is not None and size % (self.copies * width) == 0 and self.split is not self.lane

    @property
    def units(self) -> Expr:
        return unit_count(self.counters)

    @property
    def rows_apart(self) -> Expr:
        """The number of units, not counting chunks of a split."""
        return product(size for name, size in self.counters if name != SPLIT_INDEX)

    @property
    def chunk(self) -> Expr:
        """The number of indices of the split dim in one unit."""
        assert self.split is not None
        return ceildiv(ceildiv(self.split.size, self.granule), Expr.symbol(SPLITS)) * self.granule

    def splits(self, dims: Sequence[Dim]) -> Expr:
        """The number of chunks: more than one only where units are few and the reduction long."""
        assert self.split is not None
        units = maximum(self.rows_apart, 1)
        elements = product(dim.size for dim in dims)
        granules = ceildiv(self.split.size, self.granule)
        return maximum(minimum(granules, elements // (units * _SPLIT_ELEMENTS), MAX_SPLITS // units), 1)


def layout(kernel: LoopKernel, schedule: Schedule, width: int, *, narrow: bool = False, tiled: bool = True) -> Layout:
    """The division of a kernel for vectors of ``width`` lanes. ``narrow``: the lane dim fits into one vector;
    ``tiled``: reads may be transposed through tiles."""
    dims = kernel.dims
    lane = None if schedule.lane is None else dims[schedule.lane]
    if schedule.short is not None:
        return _short_layout(kernel, schedule, width)
    tile, transposed = tile_dim(kernel, lane, schedule.sweeps) if tiled else (None, ())
    copies = 1 if lane is None or tile is not None or narrow else _copies(dims, lane, schedule.sweeps, width)
    counters = [(dim.name, dim.size) for dim in dims if not dim.reduced and dim not in (lane, tile)]
    if tile is not None:
        counters.append((TILE_INDEX, ceildiv(tile.size, width)))
    block = 0
    if lane is not None and not lane.reduced:
        block = copies * width if any(dim.reduced for dim in dims) else _BLOCK
        blocks = ceildiv(lane.size, block)
        if blocks.as_int() != 1:
            counters.append((BLOCK_INDEX, blocks))
    split = _split_dim(kernel, schedule, lane)
    if split is not None:
        counters.append((SPLIT_INDEX, Expr.symbol(SPLITS)))
    granule = _LANE_GRANULE if split is lane else _ROW_GRANULE
    groups = find_groups([instr for one in schedule.sweeps for instr in one.code], lane.name if lane else None)
    found = Layout(lane, copies, block, tuple(counters), tile, transposed, split, granule, groups=groups)
    return replace(found, peeled=_is_peeled(found, schedule, any(dim.reduced for dim in dims), width))


def packed(kernel: LoopKernel, rows: Dim, inner: Sequence[Dim]) -> Layout:
    """A division in which a vector holds as many whole ``rows`` as it has lanes for; a row is the points of the
    ``inner`` dims."""
    counters = [(dim.name, dim.size) for dim in kernel.dims if dim is not rows and dim not in inner]
    counters.append((BLOCK_INDEX, ceildiv(rows.size, _BLOCK)))
    return Layout(rows, 1, _BLOCK, tuple(counters), None, (), None, 0, packed=tuple(inner))


def shared(kernel: LoopKernel, plan: Schedule, work: LaneWork, width: int) -> Layout:
    """A division in which a unit has several rows, which share the ``work`` on the lanes alone."""
    usual = layout(kernel, plan, width, tiled=False)
    assert usual.lane is not None
    block = _SHARED_BLOCK if work.kept else _BLOCK
    counters = [(dim.name, dim.size) for dim in kernel.dims if dim is not work.rows and dim is not usual.lane]
    counters += [(TILE_INDEX, ceildiv(work.rows.size, ROWS)), (BLOCK_INDEX, ceildiv(usual.lane.size, block))]
    found = replace(usual, copies=1, block=block, counters=tuple(counters), work=work)
    return replace(found, peeled=bool(work.kept) and _is_peeled(found, plan, False, width))


def rows_along_lanes(kernel: LoopKernel, schedule: Schedule, rows: Dim, width: int, most: int) -> Layout:
    """A division in which a unit is a vector of the ``rows``, whose reductions along the lanes are finished
    together."""
    assert schedule.lane is not None
    counters = [(dim.name, dim.size) for dim in kernel.dims if not dim.reduced and dim is not rows]
    counters.append((TILE_INDEX, ceildiv(rows.size, width)))
    lane = kernel.dims[schedule.lane]
    found = Layout(lane, 1, 0, tuple(counters), None, (), None, 0, rows=rows, most=most)
    return replace(found, peeled=_is_peeled(found, schedule, True, width))


def staged(kernel: LoopKernel, usual: Layout) -> Layout | None:
    """A division in which each sweep is split by itself; None if nothing long can be split."""
    found = _long_dim(kernel, usual.lane)
    if usual.split is not None or usual.tile is not None or found is None:
        return None
    granule = _LANE_GRANULE if found is usual.lane else _ROW_GRANULE
    size = found.size.as_int()
    if size is not None and size < 2 * granule:
        return None
    counters = (*usual.counters, (SPLIT_INDEX, Expr.symbol(SPLITS)))
    return replace(usual, counters=counters, split=found, granule=granule, staged=True)


def _is_peeled(found: Layout, schedule: Schedule, reduces: bool, width: int) -> bool:
    """Whether rows are long and the work per element is so small that masks would cost as much, or accesses can be
    grouped only in full vectors."""
    if found.lane is None or found.full(width) or found.tile is not None:
        return False
    work = sum(weight(instr) for one in schedule.sweeps for instr in one.code)
    if reduces and not found.across:  # each block of the lane dim is a loop over what is reduced
        return work <= LIGHT and found.block == found.copies * width
    return bool(found.groups) or work <= _PEELED


def _short_layout(kernel: LoopKernel, schedule: Schedule, width: int) -> Layout:
    """A unit is a vector of rows, each of which is no longer than a vector."""
    assert schedule.lane is not None and schedule.short is not None
    lane, tile = kernel.dims[schedule.lane], kernel.dims[schedule.short]
    moved = [
        instr
        for instr in kernel.code
        if contiguous(kernel, instr, schedule.short)
        and not instr.row
        and not instr.mask
        and instr.address is not None
        and lane.name in instr.address.symbols
        and instr.address.coefficient(lane.name) is not None
    ]
    counters = [(dim.name, dim.size) for dim in kernel.dims if not dim.reduced and dim is not lane]
    counters.append((BLOCK_INDEX, ceildiv(lane.size, width)))
    loads = tuple(instr for instr in moved if instr.op == "load")
    stores = tuple(instr for instr in moved if instr.op == "store")
    return Layout(lane, 1, width, tuple(counters), tile, loads, None, 0, stores)


def _copies(dims: Sequence[Dim], lane: Dim, sweeps: Sequence[Sweep], width: int) -> int:
    """The number of vectors that one iteration computes.

    Several, if operations wait for each other in long chains. But rows may be short, and the last iteration of each is
    always computed in full: four only if the lane dim is known to be long, or is the only dim.
    """
    size = lane.size.as_int()
    light = sum(weight(instr) for one in sweeps for instr in one.code) <= LIGHT
    chain = sum(weight(instr) for one in sweeps for instr in one.code if weight(instr) >= _CHAIN)
    reduces = any(dim.reduced for dim in dims)
    if reduces and not lane.reduced:
        total = sum(weight(instr) for one in sweeps for instr in one.code)
        wanted = _VECTORS if total <= 16 else _VECTORS // 2 if total <= 48 else 1  # code grows with it
        return wanted if size is None else max(1, min(wanted, -(-size // width)))
    if light and lane.reduced and (size is None or size >= 4 * _VECTORS * width):
        return _VECTORS
    if chain < (_LONG_CHAIN if reduces else _CHAIN) or size is not None and size <= width:
        return 1
    wanted = 4 if len(dims) == 1 or size is not None and size >= 16 * width else 2
    total = sum(weight(instr) for one in sweeps for instr in one.code)
    return wanted if wanted * total <= _LARGE else 2 if 2 * total <= _LARGE else 1


def _split_dim(kernel: LoopKernel, schedule: Schedule, lane: Dim | None) -> Dim | None:
    """The outermost long reduced dim, if the kernel is one sweep of reductions and an epilogue."""
    single = len(schedule.sweeps) == 1 and schedule.sweeps[0].reduces
    stores = [instr for instr in kernel.code if instr.op == "store"]
    if not single or any(not instr.row for instr in stores) or any(_writes(instr) for instr in schedule.rows[0]):
        return None
    return _long_dim(kernel, lane)


def _long_dim(kernel: LoopKernel, lane: Dim | None) -> Dim | None:
    """The outermost reduced dim that may be long."""
    reduced = [dim for dim in kernel.dims if dim.reduced and dim is not lane]
    if lane is not None and lane.reduced:
        reduced.append(lane)
    long = [dim for dim in reduced if dim.size.as_int() is None or (dim.size.as_int() or 0) >= 4 * _ROW_GRANULE]
    return long[0] if long else None


def _writes(instr: Instr) -> bool:
    return instr.op in ("store", "check_index")
