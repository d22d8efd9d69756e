"""Orders the computation: the dim along the lanes, sweeps over the reduced dims, values kept between sweeps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from symshape.analysis.loops import Instr, LoopKernel
from symshape.codegen.cpu.schedule.interleave import find_groups

_HEAVY = 8  # a value of at least this weight is kept in memory between sweeps rather than computed again
_WEIGHTS = {
    "math.exp": 10,
    "math.exp2": 8,
    "math.tanh": 14,
    "math.erf": 16,
    "math.log": 12,
    "math.log2": 12,
    "math.rsqrt": 8,
    "math.sqrt": 4,
    "math.absf": 1,
    "math.floor": 1,
    "math.ceil": 1,
    "math.trunc": 1,
    "math.roundeven": 1,
    "math.copysign": 1,
    "math.fma": 1,
    "arith.divf": 3,
    "arith.remf": 20,
    "arith.divsi": 40,
    "arith.remsi": 40,
    "arith.floordivsi": 40,
    "constant": 0,
    "index": 0,
    "extract": 16,
}
_MATH = 24  # other functions
_GATHER, _NONAFFINE, _SCATTER = 16, 24, 40  # reads and writes with one address per lane
_TYPICAL_LANES = 16


@dataclass(frozen=True)
class Sweep:
    """One pass over the reduced dims (over everything, without reductions): its full-level instructions in order."""

    code: tuple[Instr, ...]
    reduces: tuple[Instr, ...]
    kept: tuple[tuple[Instr, Instr], ...] = ()  # (instruction, store whose output holds its value until the last sweep)
    loaded: tuple[tuple[Instr, Instr], ...] = ()  # values read back from there


@dataclass(frozen=True)
class Schedule:
    """``rows[k]`` runs before ``sweeps[k]``; one more after the last sweep. ``lane`` is the index of the lane dim, None
    for a kernel of one point. ``short``: the index of a reduced dim that fits into one vector but is not the lane dim;
    accesses that are contiguous along it are transposed."""

    lane: int | None
    rows: tuple[tuple[Instr, ...], ...]
    sweeps: tuple[Sweep, ...]
    short: int | None = None


def weight(instr: Instr) -> int:
    """The cost of an instruction, in cheap vector operations."""
    return _WEIGHTS.get(instr.op, _MATH if instr.op.startswith("math.") else 1)


def schedule(kernel: LoopKernel, short: int | None = None, lane: int | None = None) -> Schedule:
    """Each reduction runs in the first sweep that can compute its operand; other values are recomputed in every sweep.

    ``short``: see `Schedule`; ``lane``: the lane dim, if it is not to be the cheapest one.
    """
    depths: dict[int, int] = {}
    stages: list[tuple[int, Instr]] = []
    for instr in kernel.code:
        depth = max((depths[operand] for operand in instr.operands), default=0)
        stages.append((depth, instr))
        depths.update(dict.fromkeys(instr.results, depth + (instr.op == "reduce")))
    full = [(depth, instr) for depth, instr in stages if not instr.row]
    sinks = [(depth, instr) for depth, instr in full if instr.op in ("reduce", "store")]
    count = 1 + max((depth for depth, _ in sinks), default=-1)
    last = max([count, *(depth for depth, instr in stages if instr.row)])
    rows = [tuple(instr for depth, instr in stages if instr.row and depth == k) for k in range(last + 1)]
    merged = [*rows[:count], tuple(instr for group in rows[count:] for instr in group)]
    sweeps = [closure(kernel.code, [instr for depth, instr in sinks if depth == k]) for k in range(count)]
    code = [*(instr for one in sweeps for instr in one.code), *(i for i in kernel.code if i.row)]
    lane = lane_dim(kernel, code, short) if lane is None else lane
    return Schedule(lane, tuple(merged), _keep(kernel, sweeps, depths, lane, short), short)


def closure(program: Sequence[Instr], sinks: Iterable[Instr], given: Iterable[int] = ()) -> Sweep:
    """The full-level instructions that the sinks depend on, without those whose results are given."""
    needed = {id(sink) for sink in sinks}
    wanted = {operand for sink in sinks for operand in sink.operands}
    have = set(given)
    code = []
    for instr in reversed(program):
        if instr.row:
            continue
        takes = instr.op != "reduce" and any(result in wanted and result not in have for result in instr.results)
        if id(instr) in needed or takes:
            code.append(instr)
            wanted.update(instr.operands)
    code.reverse()
    return Sweep(tuple(code), tuple(instr for instr in code if instr.op == "reduce"))


def contiguous(kernel: LoopKernel, instr: Instr, dim: int | None) -> bool:
    """Whether an access is contiguous along the dim."""
    if dim is None or instr.op not in ("load", "store") or instr.address is None:
        return False
    return instr.address.coefficient(kernel.dims[dim].name) == 1


def _keep(
    kernel: LoopKernel, sweeps: list[Sweep], depths: dict[int, int], lane: int | None, short: int | None
) -> tuple[Sweep, ...]:
    """Keeps expensive values that later sweeps need again in the row of an output that only the last sweep stores."""
    stores = [instr for instr in sweeps[-1].code if instr.op == "store"] if len(sweeps) > 1 else []
    earlier = {instr.arg for one in sweeps[:-1] for instr in one.code if instr.op == "store"}
    stores = [s for s in stores if s.arg not in earlier and sum(o.arg == s.arg for o in stores) == 1]
    result = list(sweeps)
    for store in stores:
        dtype = kernel.args[store.arg].dtype
        if lane is None or dtype == "i1":
            continue
        if access_cost(store, kernel.dims[lane].name) > 1 and not contiguous(kernel, store, short):
            continue
        candidates = []
        for instr in result[-1].code:
            first = depths[instr.results[0]] if len(instr.results) == 1 else len(sweeps)
            if instr.dtype == dtype and first < len(sweeps) - 1 and instr in result[first].code:
                candidates.append((_cost(kernel, instr, kernel.dims[lane].name), first, instr))
        if candidates:
            cost, first, instr = max(candidates, key=lambda one: one[0])
            if cost >= _HEAVY:
                _keep_one(kernel, result, first, instr, store)
    return tuple(result)


def _cost(kernel: LoopKernel, instr: Instr, lane: str) -> int:
    """The cost of recomputing the value."""
    return sum(weight(one) + access_cost(one, lane) for one in closure(kernel.code, [instr]).code)


def access_cost(instr: Instr, lane: str) -> int:
    """The cost of a load or store along the lanes, in cheap vector operations; 0 for other instructions and uniform
    ones."""
    if instr.op not in ("load", "store") or instr.address is None or lane not in instr.address.symbols:
        return 0
    stride = instr.address.coefficient(lane)
    if stride is None:
        return _SCATTER if instr.op == "store" else _NONAFFINE
    if stride.as_int() == 1:
        return 1
    if stride.as_int() == -1 and instr.op == "load":
        return 2  # a vector turned round
    return _SCATTER if instr.op == "store" else _GATHER


def _keep_one(kernel: LoopKernel, sweeps: list[Sweep], first: int, instr: Instr, store: Instr) -> None:
    """Stores the value in sweep ``first`` and reads it in the later ones, which then compute less."""
    before = sweeps[first]
    sweeps[first] = Sweep(before.code, before.reduces, (*before.kept, (instr, store)), before.loaded)
    for k in range(first + 1, len(sweeps)):
        if instr in sweeps[k].code:
            loaded = (*sweeps[k].loaded, (instr, store))
            sinks = [i for i in sweeps[k].code if i.op in ("reduce", "store")]
            reduced = closure(kernel.code, sinks, [i.results[0] for i, _ in loaded])
            sweeps[k] = Sweep(reduced.code, reduced.reduces, sweeps[k].kept, loaded)


def lane_dim(kernel: LoopKernel, code: Sequence[Instr], short: int | None = None) -> int | None:
    """The dim along which the accesses of ``code`` (each instruction as often as it runs) cost least; of equals a
    reduced one, then the last. With a ``short`` dim, a parallel one."""
    code = [instr for instr in code if not contiguous(kernel, instr, short)]

    def cost(position: int) -> tuple[float, bool, int]:
        dim = kernel.dims[position]
        total = 4.0
        varying = _varying(kernel.code, dim.name)
        groups = find_groups(code, dim.name)
        for instr in code:
            if instr.op == "extract":
                total += _extract_cost(kernel, instr, position, varying)
            elif instr in groups:
                total += groups[instr].stride  # a vector, and shuffles with the others
            elif not (instr.row and dim.reduced):
                total += access_cost(instr, dim.name)
        size = dim.size.as_int()
        contiguous = any(access_cost(instr, dim.name) == 1 for instr in code)
        idle = max(1.0, _TYPICAL_LANES / max(size, 1)) if size is not None else 1.0  # lanes without work
        if size is None and position == 0 < len(kernel.dims) - 1 and not contiguous:
            idle = 4.0  # a batch, which may be small
        return (total * idle, not dim.reduced, -position)

    candidates = [i for i, dim in enumerate(kernel.dims) if short is None or not dim.reduced]
    return min(candidates, key=cost, default=None)


def _extract_cost(kernel: LoopKernel, instr: Instr, position: int, varying: Set[int]) -> int:
    """1 where the last index is this dim itself and has stride 1 (a contiguous read), 0 where no index varies."""
    if varying.isdisjoint(instr.operands):
        return 0
    producers = {result: other for other in kernel.code for result in other.results}
    strides = kernel.args[instr.arg].strides
    *others, last = instr.operands
    if strides[-1].as_int() != 1 or not varying.isdisjoint(others):
        return _GATHER
    index = producers[last]
    while index.op.startswith("arith.index_cast"):
        index = producers[index.operands[0]]
    name = kernel.dims[position].name
    stride = index.address.coefficient(name) if index.op == "index" and index.address is not None else None
    return 1 if stride is not None and stride.as_int() == 1 else _GATHER


def _varying(code: Iterable[Instr], name: str) -> set[int]:
    """The values that vary along the dim; results of reductions do not."""
    found: set[int] = set()
    for instr in code:
        here = instr.address is not None and name in instr.address.symbols
        if instr.op != "reduce" and (here or not found.isdisjoint(instr.operands)):
            found.update(instr.results)
    return found
