"""The forms of a CPU kernel, and the sizes at which each is chosen. The entry of the kernel chooses at every call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd

from symshape.analysis.loops import EFFECTS, Dim, LoopKernel
from symshape.codegen.cpu.emit import rows_along_lanes
from symshape.codegen.cpu.emit.combiners import reduction
from symshape.codegen.cpu.emit.moments import with_moments
from symshape.codegen.cpu.objects.target import Target
from symshape.codegen.cpu.schedule import lane_work, packed_rows
from symshape.codegen.cpu.schedule import layout as layouts
from symshape.codegen.cpu.schedule.broadcast_sizes import perhaps_repeated, with_more, with_ones
from symshape.codegen.cpu.schedule.lane_work import LaneWork
from symshape.codegen.cpu.schedule.layout import Layout, layout
from symshape.codegen.cpu.schedule.pieces import Cut, pieces, with_joined_dims
from symshape.codegen.cpu.schedule.small_dims import chooses, unrolled
from symshape.codegen.cpu.schedule.sweep_order import Schedule, access_cost, closure, contiguous, schedule, weight
from symshape.machine.targets import CPU_MOST_INTERLEAVED
from symshape.prover.numbers.condition import Condition, all_of, at_least
from symshape.prover.numbers.expr import Expr, product
from symshape.prover.numbers.facts import Facts, Row

_FORMS = 4  # numbers of elements of a dim of unknown size that have a form of their own
_THIN, _THINNER = 4, 2  # dims this small leave most of a square tile empty
_SHORT_VECTORS = 16  # rows of more vectors take so long that how their sums are finished does not matter
_FEW_VECTORS = 8  # rows of a known length of more vectors gain nothing by it, so they need no second form
_LONG = 65536  # elements: two sweeps over a row of fewer find it in the cache
_FEW = 8  # rows: of more, each has a thread of its own, and its second sweep finds it in the cache
_MOST_TWICE = 160  # cheap operations per element: kernels with more have one form, for the sake of compile time


@dataclass(frozen=True)
class Form:
    """One way to run a kernel, for sizes that satisfy all ``bounds``: (size, minimum, maximum). ``suffix``
    distinguishes its functions; ``kernel`` is its loop program, with the arguments of the kernel itself."""

    suffix: str
    kernel: LoopKernel
    plan: Schedule
    division: Layout
    bounds: tuple[tuple[Expr, int, int | None], ...] = ()
    pieces: Cut | None = None  # of each row, where these are computed in different ways

    @property
    def comparisons(self) -> list[tuple[Expr, str, int]]:
        """The comparisons that make up the bounds: each a size that is "sge" (at least) or "sle" (at most) a number."""
        least = [(size, "sge", bound) for size, bound, _ in self.bounds if bound]
        return [*least, *((size, "sle", bound) for size, _, bound in self.bounds if bound is not None)]

    @property
    def is_settled(self) -> bool:
        """Whether a bound is about a constant: the form is never taken, or the usual form is for that constant."""
        return any(
            number is not None and (most is not None or number < least)
            for number, least, most in ((size.as_int(), least, most) for size, least, most in self.bounds)
        )

    @property
    def condition(self) -> Condition:
        """The conjunction of all bounds."""
        return all_of(*(at_least(*((s, n) if how == "sge" else (n, s))) for s, how, n in self.comparisons))


def in_order(forms: list[Form]) -> list[Form]:
    """The order in which a kernel's entry tests them: the first whose condition holds is run."""
    return [*forms[1:], forms[0]]


def forms_of(kernel: LoopKernel, target: Target) -> list[Form]:
    """The usual form, then those for the sizes at which another one is faster (``in_order`` tries these first)."""
    names = perhaps_repeated(kernel)
    ones = with_ones(kernel, names) if names else kernel
    if not names or not _is_cheaper(ones, kernel):
        return _forms_of(kernel, target)
    several = len(names) > 1  # some may be 1 and others not: for these the usual form
    usual, *others = _forms_of(kernel if several else with_more(kernel, names), target)
    found = [*_where(_forms_of(ones, target), "_ones", [(Expr.symbol(name), 1, 1) for name in names]), *others]
    if several:
        more = _forms_of(with_more(kernel, names), target)
        found = [*_where(more, "_more", [(Expr.symbol(name), 2, None) for name in names]), *found]
    return [usual, *found]


def _where(forms: list[Form], suffix: str, bounds: Sequence[tuple[Expr, int, int | None]]) -> list[Form]:
    """The forms, in the order in which they are tested, with further bounds."""
    return [replace(form, suffix=suffix + form.suffix, bounds=(*bounds, *form.bounds)) for form in in_order(forms)]


def _is_cheaper(first: LoopKernel, second: LoopKernel) -> bool:
    """Whether a point of the first kernel costs less, and neither kernel is large: both are printed, with all their
    forms."""
    plans = schedule(first), schedule(second)
    if max(map(cost, plans)) > _MOST_TWICE:
        return False
    costs = []
    for plan, kernel in zip(plans, (first, second)):
        lane = "" if plan.lane is None else kernel.dims[plan.lane].name
        costs.append(sum(weight(one) + access_cost(one, lane) for one in kernel.code))
    return costs[0] < costs[1]


def _forms_of(kernel: LoopKernel, target: Target) -> list[Form]:
    """The forms of a kernel in which no broadcast is undecided, or deciding it costs nothing."""
    whole = with_joined_dims(kernel)
    kernel = _without_small(whole)
    packed = _packed_instead(whole, kernel, target)
    if packed is not None:
        return [packed]
    plan, width = schedule(kernel), target.lanes
    usual = layout(kernel, plan, width)
    found = _usual(kernel, plan, usual, width)
    work = lane_work.find(kernel, plan) if usual.tile is None and found[-1].pieces is None else None
    if work is not None:
        found[0] = _sharing(kernel, plan, work, width)
    if usual.tile is not None:
        found += _thin(kernel, plan, usual, width)
    elif usual.across:
        found += [*_small(kernel, plan.lane, range(1, _FORMS + 1), width), *_rows(kernel, plan, width)]
    else:
        reduced = [position for position, dim in enumerate(kernel.dims) if dim.reduced]
        single = [*reduced, plan.lane] if reduced else []
        counts = range(1, _FORMS + 1) if cost(plan) <= layouts.LIGHT else (1,)
        found += [form for position in single for form in _small(kernel, position, counts, width)]
        if usual.lane is not None and usual.copies > 1 and reduced:
            narrow = layout(kernel, plan, width, narrow=True)
            found.append(Form("_narrow", kernel, plan, narrow, ((usual.lane.size, 0, width),)))
    found = [found[0], *_packed(kernel, target), *found[1:], *_long(kernel, plan, usual, width)]
    return [form for form in found if not form.is_settled and not _is_excluded(form, kernel)]


def _sharing(kernel: LoopKernel, plan: Schedule, work: LaneWork, width: int) -> Form:
    """The usual form where rows share work."""
    if work.kept:
        (one,) = plan.sweeps
        sinks = [instr for instr in one.code if instr.op in EFFECTS]
        plan = replace(plan, sweeps=(closure(kernel.code, sinks, [instr.results[0] for instr in work.kept]),))
    return Form("", kernel, plan, layouts.shared(kernel, plan, work, width))


def _usual(kernel: LoopKernel, plan: Schedule, usual: Layout, width: int) -> list[Form]:
    """The usual form, in pieces if rows have some. A short row with little work is not split: loops over pieces take
    longer than a vector or two with masks."""
    parts = pieces(kernel, plan, usual, width)
    if parts is None or not parts.count or usual.lane is None or any(instr.op == "extract" for instr in kernel.code):
        return [Form("", kernel, plan, usual, pieces=parts)]
    size, least = usual.lane.size, parts.count * width + 1
    number = size.as_int()
    if number is not None:
        return [Form("", kernel, plan, usual, pieces=parts if number >= least else None)]
    long = Form("_pieces", kernel, plan, usual, ((size, least, None),), parts)
    return [Form("", kernel, plan, usual), long]


def _is_excluded(form: Form, kernel: LoopKernel) -> bool:
    """Whether facts exclude the sizes of a form: one is known to be larger, or to be 0, where there is no work."""
    bounded = [(size, most) for size, _, most in form.bounds if most is not None]
    if any(_is_multiple(size, most + 1) for size, most in bounded):
        return True
    least = dict(filter(None, map(_least, kernel.known)))
    if not any(number > 1 for number in least.values()):
        return False
    facts = Facts({name: Row(least.get(name, 0), None) for size, _ in bounded for name in size.symbols})
    return any((low := facts.bounds(size)[0]) is not None and low > most for size, most in bounded)


def _is_multiple(size: Expr, least: int) -> bool:
    """Whether a size is a multiple of a constant of at least ``least``."""
    return gcd(*(coefficient if atoms else 1 for coefficient, atoms in size.terms)) >= least


def _least(condition: Condition) -> tuple[str, int] | None:
    """(symbol, constant) of a condition ``symbol >= constant``; else None."""
    names = condition.symbols
    if condition.kind != "ge" or len(names) != 1:
        return None
    (name,) = names
    number = (Expr.symbol(name) - condition.expr).as_int()
    return None if number is None else (name, number)


def cost(plan: Schedule) -> int:
    """The cost of a point, in cheap vector operations."""
    return sum(weight(instr) for one in plan.sweeps for instr in one.code)


def _without_small(kernel: LoopKernel, most: int = CPU_MOST_INTERLEAVED) -> LoopKernel:
    """The kernel without dims that are known to have few elements, ``most`` of all together, if they are reduced, or
    would fill a small part of each vector."""
    for position, dim in enumerate(kernel.dims):
        size = dim.size.as_int()
        if size is None or not 1 <= size <= most or len(kernel.dims) == 1 and not dim.reduced:
            continue
        # A row of 8 is a vector or half of one; shuffles pay only if its elements are computed in different ways.
        plan, different = schedule(kernel), chooses(kernel, dim.name)
        pays = size < 8 or size == 8 and dim.reduced or different
        if pays and (dim.reduced or plan.lane == position):
            smaller = unrolled(kernel, position, size)
            affordable = max(_MOST_TWICE, size * cost(plan) if different else 0)
            if smaller is not None and cost(schedule(smaller)) <= affordable:
                return _without_small(smaller, most // size)
    return kernel


def _small(kernel: LoopKernel, position: int | None, counts: Iterable[int], width: int) -> Iterator[Form]:
    """A form for each possible number of elements of a dim, with the dim unrolled."""
    for count in counts:
        smaller = None if position is None else unrolled(kernel, position, count)
        if smaller is None:
            return
        plan = schedule(smaller)
        if count > 1 and cost(plan) > _MOST_TWICE:
            return
        assert position is not None
        bounds = ((kernel.dims[position].size, count, count),)
        yield Form(f"_{kernel.dims[position].name}_{count}", smaller, plan, layout(smaller, plan, width), bounds)


def _packed(kernel: LoopKernel, target: Target) -> Iterator[Form]:
    """Forms with several short rows in a vector."""
    if not target.permutes or cost(schedule(kernel)) > _MOST_TWICE:
        return
    for rows, inner in packed_rows.candidates(kernel):
        bounds = ((product(dim.size for dim in inner), 1, target.lanes - 1), (rows.size, 2, None))
        yield replace(_packed_form(kernel, rows, inner), suffix=f"_packed_{len(inner)}", bounds=bounds)


def _packed_form(kernel: LoopKernel, rows: Dim, inner: Sequence[Dim]) -> Form:
    plan = schedule(kernel, lane=kernel.dims.index(rows))
    return Form("", kernel, plan, layouts.packed(kernel, rows, inner))


def _packed_instead(kernel: LoopKernel, smaller: LoopKernel, target: Target) -> Form | None:
    """The kernel with several rows of a known length in a vector, if that costs less than ``smaller``, where rows may
    be unrolled."""
    points = [product(dim.size for dim in one.dims) for one in (kernel, smaller)]
    plan = schedule(smaller)
    if not target.permutes or points[1] == 0 or plan.lane is None:
        return None
    count = points[0].exact_quotient(points[1])
    if count is None or count.as_int() is None:
        return None
    division = layout(smaller, plan, target.lanes)
    shuffled = {instr: member.stride for instr, member in division.groups.items()}
    lane, number = smaller.dims[plan.lane], count.as_int() or 1
    least = packed_rows.cost_of_others(smaller, lane, number, shuffled, target.lanes)
    for rows, inner in packed_rows.candidates(kernel):
        found = packed_rows.cost(kernel, rows, inner, target)
        if found is not None and found < least:
            return _packed_form(kernel, rows, inner)
    return None


def _thin(kernel: LoopKernel, plan: Schedule, usual: Layout, width: int) -> Iterator[Form]:
    """Forms without tiles, which would be nearly empty: one for each small number of elements, or, if the dim's size is
    not one symbol, with the lanes along the other of the two dims."""
    assert usual.lane is not None and usual.tile is not None and plan.lane is not None
    other = kernel.dims.index(usual.tile)
    flat = list(_small(kernel, other, range(1, _FORMS + 1), width))
    along = list(_small(kernel, plan.lane, range(1, _FORMS + 1), width))
    yield from flat
    yield from along
    if not flat:
        division = layout(kernel, plan, width, tiled=False)
        yield Form("_flat", kernel, plan, division, ((usual.tile.size, 0, _THIN),))
    if not along:
        sideways = schedule(kernel, lane=other)
        division = layout(kernel, sideways, width, tiled=False)
        yield Form("_along", kernel, sideways, division, ((usual.lane.size, 0, _THINNER),))


def _rows(kernel: LoopKernel, plan: Schedule, width: int) -> list[Form]:
    """A form that computes a vector of rows at a time, if there are enough rows: side by side if a row fits into a
    vector, one after the other if it is a few vectors long."""
    assert plan.lane is not None
    if sum(dim.reduced for dim in kernel.dims) > 1 or cost(plan) > _MOST_TWICE:
        return []
    rows = schedule(kernel, short=plan.lane)
    if rows.lane is None:
        return []
    length, many = kernel.dims[plan.lane].size, (kernel.dims[rows.lane].size, width, None)
    found, division = [], layout(kernel, rows, width)
    if division.transposed:
        found.append(Form("_rows", kernel, rows, division, ((length, 0, width), many)))
    elif _is_apart(kernel, plan):
        sideways = schedule(kernel, lane=rows.lane)
        division = layout(kernel, sideways, width, tiled=False)
        found.append(Form("_sideways", kernel, sideways, division, ((length, 0, width * 3 // 4), many)))
    most, constant = _SHORT_VECTORS * width, length.as_int()
    numbers = all(rows_along_lanes.fits(reduction(instr)) for one in plan.sweeps for instr in one.reduces)
    if numbers and (constant is None or constant <= _FEW_VECTORS * width):
        division = layouts.rows_along_lanes(kernel, plan, kernel.dims[rows.lane], width, most)
        short = ((length, 0, most),) if constant is None else ()
        found.append(Form("_rows_along_lanes", kernel, plan, division, (*short, many)))
    return found


def _is_apart(kernel: LoopKernel, plan: Schedule) -> bool:
    """Whether elements of a row are read once, and one by one (a diagonal, every second element): then a row wastes the
    lanes that it does not fill, and of the rows there are enough for all lanes."""
    if len(plan.sweeps) != 1:
        return False
    (one,) = plan.sweeps
    return not any(instr.op == "extract" or contiguous(kernel, instr, plan.lane) for instr in one.code)


def _long(kernel: LoopKernel, plan: Schedule, usual: Layout, width: int) -> list[Form]:
    """Forms for rows that do not fit into the cache: read once for a variance, and shared by threads if there are few
    rows."""
    once = kernel
    if usual.across and sum(dim.reduced for dim in kernel.dims) == 1 and cost(plan) <= _MOST_TWICE:
        once = with_moments(kernel)
    if once is kernel:
        return _staged(kernel, plan, usual)
    plan = schedule(once, lane=plan.lane)
    division = layout(once, plan, width)
    assert division.lane is not None
    long = ((division.lane.size, _LONG, None),)
    return [*_staged(once, plan, division), Form("_long", once, plan, division, long)]


def _staged(kernel: LoopKernel, plan: Schedule, usual: Layout) -> list[Form]:
    """A form with a launch for each sweep, where rows are so few and so long that threads must share them."""
    if not any(one.reduces for one in plan.sweeps) or cost(plan) > _MOST_TWICE:
        return []
    division = layouts.staged(kernel, usual)
    units = Expr.const(_FEW + 1) if division is None else division.rows_apart
    if division is None or (units.as_int() or 0) > _FEW:
        return []
    few = ((units, 0, _FEW),) if units.as_int() is None else ()
    return [Form("_staged", kernel, plan, division, (*few, (division.splits(kernel.dims), 2, None)))]
