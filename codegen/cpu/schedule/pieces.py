"""Splits the lane dim where masks or comparisons of indices change, so that each piece has a loop without them.

Concatenation, padding, roll and triangles compare indices of the lane dim at each point: masks, comparisons,
remainders. Between two cuts of a row all these have one value. So a piece of a concatenation is a copy, and the
interior of a padding is a contiguous load without the edges' masks. A comparison may depend on the row, and so may a
cut. (Loop index-set splitting.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from symshape.analysis.fold_loops import fold, open_choices
from symshape.analysis.kernel_facts import SpaceFacts, space_facts
from symshape.analysis.loops import Instr, LoopKernel
from symshape.analysis.normalise_loops import normalise
from symshape.codegen.cpu.schedule.layout import Layout, layout
from symshape.codegen.cpu.schedule.sweep_order import Schedule, access_cost, schedule, weight
from symshape.prover.numbers.expr import Atom, Expr, Function
from symshape.prover.numbers.facts import Facts

_MOST = 8  # pieces; further comparisons are evaluated at each point
_MOST_CODE = 256  # cheap operations in all of them together, for the sake of compile time
_FREE = ("index", "constant", "arith.index_cast")  # outside of the loop, or part of other operations
_READS = ("load", "extract")
_MOST_ROUNDS = 3  # of an index around a dim
_SHORT_VECTORS = 2  # a row of no more vectors has too few points for loops of its own


@dataclass(frozen=True)
class Piece:
    """The code at the points of one piece, and its schedule. ``reads_outside``: it loads a value that is the same at
    all of its points. Such a load is hoisted before the loop, and may be out of bounds if the piece has no points."""

    plan: Schedule
    division: Layout
    reads_outside: bool
    count: int = 0  # of cuts


@dataclass(frozen=True)
class Cut:
    """The points below an index of the lane dim, and those from it on. The index may be outside of the row. ``whole``:
    a row is not cut: it is ``above`` if ``at`` >= 0, else ``below``."""

    at: Expr
    below: Piece | Cut
    above: Piece | Cut
    whole: bool = False

    @property
    def count(self) -> int:
        """The maximal number of cuts of a row."""
        if self.whole:
            return max(self.below.count, self.above.count)
        return 1 + self.below.count + self.above.count


@dataclass
class _Part:
    """A piece under construction: the facts at its points, and, once it is cut, the index and the two parts."""

    kernel: LoopKernel
    facts: SpaceFacts
    at: Expr | None = None
    whole: bool = False
    parts: tuple[_Part, ...] = ()


def with_joined_dims(kernel: LoopKernel) -> LoopKernel:
    """The kernel with comparisons of indices as masks, if dims can then be merged: a concatenation along the first dim
    is one along a single dim."""
    if len(kernel.dims) < 2 or any(dim.reduced for dim in kernel.dims):
        return kernel
    names = {dim.name for dim in kernel.dims}
    found = {number: e for number, e in open_choices(kernel)[0].items() if not names.isdisjoint(e.symbols)}
    if not found:
        return kernel
    holds = [
        Instr("holds", one.results, (), "i1", one.row, mask=(found[one.results[0]],))
        if one.results and one.results[0] in found
        else one
        for one in kernel.code
    ]
    joined = normalise(fold(replace(kernel, code=tuple(holds))))
    return joined if len(joined.dims) < len(kernel.dims) else kernel


def pieces(kernel: LoopKernel, plan: Schedule, usual: Layout, width: int) -> Cut | None:
    """The pieces of a row of a kernel without reductions; None if nothing depends on a point's position in the row."""
    lane = usual.lane
    if lane is None or usual.tile is not None or any(dim.reduced for dim in kernel.dims):
        return None
    size = lane.size.as_int()
    if size is not None and size <= _SHORT_VECTORS * width:
        return None
    points = space_facts(kernel.args, kernel.dims).at(one.expr for one in kernel.known if one.kind == "ge")
    root = _Part(kernel, points)
    waiting, count, code = [root], 1, _code(kernel)
    while waiting and count < _MOST and code <= _MOST_CODE:
        part = waiting.pop(0)
        facts = part.facts.full
        for question in _questions(part, lane.name):
            if facts.nonnegative(question) or facts.nonnegative(-1 - question):
                continue
            code -= _code(part.kernel)
            part.at, part.parts = _cut(part, question, lane.name)
            part.whole = lane.name not in question.symbols
            waiting += part.parts
            code, count = code + sum(_code(one.kernel) for one in part.parts), count + 1
            break
    if max(_cost(one.kernel, lane.name) for one in _ends(root)) >= _cost(kernel, lane.name):
        return None  # nothing but masks, which cost less than loops do
    found = _finished(root, plan, width)
    return found if isinstance(found, Cut) else None


def _code(kernel: LoopKernel) -> int:
    return sum(map(weight, kernel.code))


def _cost(kernel: LoopKernel, lane: str) -> int:
    """The cost of a point, in cheap vector operations."""
    return sum(weight(instr) + access_cost(instr, lane) for instr in kernel.code if instr.op not in _FREE)


def _ends(part: _Part) -> Iterator[_Part]:
    """The leaves: parts that are not cut."""
    if part.at is None:
        yield part
    for one in part.parts:
        yield from _ends(one)


def _questions(part: _Part, lane: str) -> Iterator[Expr]:
    """Expressions whose sign decides what is computed, and changes at one index of the lane dim; then those whose sign
    is the same in a whole row, and decides what is read."""
    compared, extrema = open_choices(part.kernel, part.facts)
    yield from (expr for expr in extrema if _is_of(expr, lane))
    for instr in part.kernel.code:
        found = [*instr.mask, *(compared[result] for result in instr.results if result in compared)]
        if instr.address is not None and instr.op in ("load", "index"):
            found += _wraps(instr.address, part.facts.full)
        yield from (expr for expr in found if _is_of(expr, lane))
    yield from (e for one in part.kernel.code for e in one.mask if one.op == "load" and lane not in e.symbols)


def _is_of(expr: Expr, lane: str) -> bool:
    """Whether the expression's sign changes at most once along the lane dim, at an index that can be computed."""
    slope = expr.coefficient(lane)
    return slope is not None and slope.as_int() in (1, -1)


def _wraps(address: Expr, facts: Facts) -> Iterator[Expr]:
    """For each remainder ``index % divisor`` of an index within a few multiples of the divisor: the expressions whose
    sign tells which multiple."""
    for atom in dict.fromkeys(atom for _, atoms in address.terms for atom in atoms):
        if isinstance(atom, Function) and atom.kind == "mod":
            index, divisor = atom.args
            low, high = -divisor * _MOST_ROUNDS, divisor * _MOST_ROUNDS
            if facts.less_equal(low, index) and facts.less_equal(index + 1, high):
                yield from (index - divisor * rounds for rounds in range(1 - _MOST_ROUNDS, _MOST_ROUNDS))


def _cut(part: _Part, question: Expr, lane: str) -> tuple[Expr, tuple[_Part, _Part]]:
    """The index at which the sign of ``question`` changes, and the parts on both sides."""
    no, yes = _decided(part, -1 - question), _decided(part, question)
    rest = question.substitute({lane: 0})
    if lane not in question.symbols:
        return question, (no, yes)
    if question.coefficient(lane) == 1:  # d + rest >= 0
        return -rest, (no, yes)
    return rest + 1, (yes, no)


def _decided(part: _Part, known: Expr) -> _Part:
    """The part restricted to points with ``known`` >= 0, simplified with that fact."""
    points = part.facts.at([known])
    facts = points.full

    def simplified(instr: Instr) -> Instr:
        if any(facts.nonnegative(-1 - expr) for expr in instr.mask):
            if part.kernel.args[instr.arg].by_value and instr.op != "holds":
                return instr
            zero = False if instr.dtype == "i1" else 0
            return Instr("constant", instr.results, (), instr.dtype, instr.row, value=zero)
        mask = tuple(expr for expr in instr.mask if not facts.nonnegative(expr))
        if instr.op == "holds" and not mask:
            return Instr("constant", instr.results, (), "i1", instr.row, value=True)
        address = instr.address
        if address is not None and any(isinstance(atom, Function) for atom in address.atoms):
            address = facts.simplify(address).map_atoms(lambda atom: _quotient(atom, facts))
        return replace(instr, mask=mask, address=address)

    code = tuple(map(simplified, part.kernel.code))
    return _Part(fold(replace(part.kernel, code=code), points), points)


def _quotient(atom: Atom, facts: Facts) -> Expr | None:
    """The value of a floordiv, if it is the same at all points; else None."""
    if not isinstance(atom, Function) or atom.kind != "floordiv":
        return None
    index, divisor = atom.args
    for rounds in range(-_MOST_ROUNDS, _MOST_ROUNDS):
        rest = index - divisor * rounds
        if facts.nonnegative(rest) and facts.nonnegative(divisor - 1 - rest):
            return Expr.const(rounds)
    return None


def _finished(part: _Part, plan: Schedule, width: int) -> Piece | Cut:
    if part.at is not None:
        below, above = (_finished(one, plan, width) for one in part.parts)
        return Cut(part.at, below, above, part.whole)
    own = schedule(part.kernel, lane=plan.lane)
    reads = [one.address for one in part.kernel.code if one.op in _READS]
    lane = "" if plan.lane is None else part.kernel.dims[plan.lane].name
    outside = any(address is None or lane not in address.symbols for address in reads)
    return Piece(own, layout(part.kernel, own, width, tiled=False), outside)
