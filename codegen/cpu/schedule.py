"""What is computed when: the dim that runs over the lanes, the passes over the reduced dims, values kept between passes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from symshape.codegen.loops import Instr, LoopKernel

_HEAVY = 8  # a value of at least this weight is kept in memory between passes rather than computed again
_WEIGHTS = {"math.exp": 10, "math.exp2": 8, "math.tanh": 14, "math.erf": 16, "math.log": 12, "math.log2": 12, "math.sqrt": 4,
            "math.rsqrt": 8, "math.absf": 1, "math.floor": 1, "math.ceil": 1, "math.trunc": 1, "math.roundeven": 1,
            "math.copysign": 1, "math.fma": 1, "arith.divf": 3, "arith.remf": 100, "arith.divsi": 40, "arith.remsi": 40,
            "arith.floordivsi": 40, "constant": 0, "index": 0, "extract": 16}
_MATH = 24  # other functions


@dataclass(frozen=True)
class Pass:
    """One sweep over the reduced dims (over everything, without reductions): its full-level instructions in order."""

    code: tuple[Instr, ...]
    reduces: tuple[Instr, ...]
    kept: tuple[tuple[Instr, Instr], ...] = ()  # (instruction, store whose output holds its value until the last pass)
    loaded: tuple[tuple[Instr, Instr], ...] = ()  # values read back from there


@dataclass(frozen=True)
class Schedule:
    """``rows[k]`` runs before ``passes[k]``; one more after the last pass. ``lane`` is the index of the vector dim, None
    for a kernel of one point."""

    lane: int | None
    rows: tuple[tuple[Instr, ...], ...]
    passes: tuple[Pass, ...]


def weight(instr: Instr) -> int:
    """The cost of an instruction, in cheap vector operations."""
    return _WEIGHTS.get(instr.op, _MATH if instr.op.startswith("math.") else 1)


def schedule(kernel: LoopKernel) -> Schedule:
    """Each reduction runs in the first pass in which its operand can be computed; values are computed again per pass."""
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
    passes = [_closure(kernel, [instr for depth, instr in sinks if depth == k]) for k in range(count)]
    return Schedule(lane_dim(kernel), tuple(merged), _keep(kernel, passes, depths))


def _closure(kernel: LoopKernel, sinks: Iterable[Instr], given: Iterable[int] = ()) -> Pass:
    """The full-level instructions that the sinks need, without those whose results are given."""
    needed = {id(sink) for sink in sinks}
    wanted = {operand for sink in sinks for operand in sink.operands}
    have = set(given)
    code = []
    for instr in reversed(kernel.code):
        if instr.row:
            continue
        takes = instr.op != "reduce" and any(result in wanted and result not in have for result in instr.results)
        if id(instr) in needed or takes:
            code.append(instr)
            wanted.update(instr.operands)
    code.reverse()
    return Pass(tuple(code), tuple(instr for instr in code if instr.op == "reduce"))


def _keep(kernel: LoopKernel, passes: list[Pass], depths: dict[int, int]) -> tuple[Pass, ...]:
    """Heavy values that a later pass needs too wait in the row of an output that only the last pass stores."""
    stores = [instr for instr in passes[-1].code if instr.op == "store"] if len(passes) > 1 else []
    earlier = {instr.arg for one in passes[:-1] for instr in one.code if instr.op == "store"}
    stores = [s for s in stores if s.arg not in earlier and sum(o.arg == s.arg for o in stores) == 1]
    result = list(passes)
    for store in stores:
        dtype = kernel.args[store.arg].dtype
        taken = {instr.results[0] for one in result for instr, _ in one.loaded}
        for instr in passes[-1].code:
            if len(instr.results) != 1 or instr.results[0] in taken or instr.dtype != dtype or dtype == "i1":
                continue
            first = depths[instr.results[0]]
            if weight(instr) >= _HEAVY and instr in result[first].code and first < len(passes) - 1:
                _keep_one(kernel, result, first, instr, store)
                break
    return tuple(result)


def _keep_one(kernel: LoopKernel, passes: list[Pass], first: int, instr: Instr, store: Instr) -> None:
    """Stores the value in pass ``first`` and reads it in the later ones, which then compute less."""
    before = passes[first]
    passes[first] = Pass(before.code, before.reduces, (*before.kept, (instr, store)), before.loaded)
    for k in range(first + 1, len(passes)):
        if instr in passes[k].code:
            loaded = (*passes[k].loaded, (instr, store))
            sinks = [i for i in passes[k].code if i.op in ("reduce", "store")]
            reduced = _closure(kernel, sinks, [i.results[0] for i, _ in loaded])
            passes[k] = Pass(reduced.code, reduced.reduces, passes[k].kept, loaded)


def lane_dim(kernel: LoopKernel) -> int | None:
    """The dim along which most accesses are contiguous; among equals a long one, then a reduced one, then the last."""

    def score(position: int) -> tuple[int, int, int, int]:
        dim = kernel.dims[position]
        contiguous = 0
        for instr in kernel.code:
            if instr.address is None or instr.op not in ("load", "store") or (instr.row and dim.reduced):
                continue
            stride = instr.address.coefficient(dim.name)
            contiguous += (stride is not None and stride.as_int() == 1) * (1 if instr.row else 3)
            contiguous -= (stride is None or stride.as_int() not in (0, 1)) * 2
        for instr in kernel.code:
            if instr.op == "extract":
                contiguous += _extract_score(kernel, instr, position)
        size = dim.size.as_int()
        short = size is not None and size < 8
        return (contiguous - 8 * short - 8 * (size == 1), not short, dim.reduced, position)

    return max(range(len(kernel.dims)), key=score, default=None)


def _extract_score(kernel: LoopKernel, instr: Instr, position: int) -> int:
    """3 where the last index is this dim itself and has stride 1: a contiguous read."""
    strides = kernel.args[instr.arg].strides
    if not strides or strides[-1].as_int() != 1:
        return 0
    producers = {result: other for other in kernel.code for result in other.results}
    index = producers[instr.operands[-1]]
    while index.op.startswith("arith.index_cast"):
        index = producers[index.operands[0]]
    if index.op != "index" or index.address is None:
        return 0
    stride = index.address.coefficient(kernel.dims[position].name)
    return 3 if stride is not None and stride.as_int() == 1 else 0
