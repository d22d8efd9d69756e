"""The points of a row of a scan: one at a time, or a vector of them.

The dependence of a point on the one before is a chain through the row, which is computed point by point. Two kinds of
chains are vectorised, with bitwise equal results: a single associative operation without rounding, and values that are
selected or kept (a running maximum), for vectors in which no point, or each point, is selected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from symshape.analysis.loops import INTEGER_DIVISIONS, Dim, Instr, LoopKernel
from symshape.codegen.cpu.emit import arithmetic, types
from symshape.codegen.cpu.emit.state import State, Value
from symshape.codegen.cpu.emit.sweep import Values, instruction

# Operations that may be computed in any order of brackets, and the value that changes nothing; None where a value
# combined with itself is that value.
_IDENTITIES: Final[dict[str, int | None]] = {
    "arith.addi": 0,
    "arith.muli": 1,
    "arith.xori": 0,
    **dict.fromkeys(("arith.andi", "arith.ori", "arith.maxsi", "arith.minsi", "arith.maxui", "arith.minui")),
    **dict.fromkeys(("arith.maximumf", "arith.minimumf")),
}


@dataclass(frozen=True)
class Carry:
    """A carried value. ``number``: identifies its instructions; ``start``: its value at the first point."""

    number: int
    dtype: str
    start: int | float | bool


def carries(kernel: LoopKernel) -> list[Carry]:
    """The carried values, by number."""
    found = (i for i in kernel.code if i.op == "carried")
    started = {i.carry: Carry(i.carry, i.dtype, i.value) for i in found if i.value is not None}
    return [started[number] for number in sorted(started)]


def recurrence(kernel: LoopKernel) -> tuple[list[Instr], list[Instr]]:
    """The instructions that compute the next carried values from the present ones, and the other instructions that
    depend on carried values."""
    carried = {i.results[0] for i in kernel.code if i.op == "carried"}
    depends = set(carried)
    for instr in kernel.code:
        if not depends.isdisjoint(instr.operands):
            depends.update(instr.results)
    needed: set[int] = set()
    for instr in reversed(kernel.code):
        if instr.op == "carry" or not needed.isdisjoint(instr.results):
            needed.update(instr.operands)
    chain, others = [], []
    for instr in kernel.code:
        if instr.op in ("carried", "carry") or not (depends & needed).isdisjoint(instr.results):
            chain.append(instr)
        elif not depends.isdisjoint(instr.operands):
            others.append(instr)
    return chain, others


@dataclass(frozen=True)
class _Chain:
    """The recurrence of some carried values. ``inside``: its instructions without those that carry; for each carry
    ``given`` is the number of the value before the point, ``made`` after it; ``wanted``: values that others read."""

    carries: list[Carry]
    code: list[Instr]
    inside: list[Instr]
    given: list[int]
    made: list[int]
    wanted: list[int]

    def maker(self, k: int) -> Instr | None:
        """The instruction that computes the next value of carry ``k``."""
        return next((i for i in self.inside if self.made[k] in i.results), None)

    @property
    def read(self) -> set[int]:
        """The values that it reads besides the carried ones."""
        inner = {number for instr in self.code for number in instr.results}
        return {number for instr in self.code for number in instr.operands} - inner

    @property
    def is_independent_of_brackets(self) -> bool:
        """Whether each carry is combined with a value of the point by one associative operation."""
        outside = self.read

        def combines(given: int, maker: Instr | None) -> bool:
            if maker is None or maker.op not in _IDENTITIES or given not in maker.operands:
                return False
            return len(maker.operands) == 2 and any(number in outside for number in maker.operands)

        pairs = [(given, self.maker(k)) for k, given in enumerate(self.given)]
        return len(self.inside) == len(pairs) and all(combines(*pair) for pair in pairs)

    @property
    def is_latency_bound(self) -> bool:
        """Whether it is computed point by point, each after the one before."""
        return not self.is_independent_of_brackets and self.choices() is None

    def choices(self) -> list[tuple[int, int, bool]] | None:
        """For each carry (condition, value, whether it is selected if the condition holds); None if a carry is computed
        otherwise."""
        if any(not i.op.startswith(("arith.", "math.")) or i.op in INTEGER_DIVISIONS for i in self.inside):
            return None
        outside, found = self.read, []
        for k, given in enumerate(self.given):
            maker = self.maker(k)
            if maker is None or maker.op != "arith.select":
                return None
            condition, *pair = maker.operands
            if pair[1] == given and pair[0] in outside:
                found.append((condition, pair[0], True))
            elif pair[0] == given and pair[1] in outside:
                found.append((condition, pair[1], False))
            else:
                return None
        return found


def _chain(kernel: LoopKernel, code: list[Instr], carried: list[Carry]) -> _Chain:
    inside = [i for i in code if i.op not in ("carried", "carry")]
    inner = {number for instr in code for number in instr.results}
    wanted = sorted({number for instr in kernel.code if instr not in code for number in instr.operands} & inner)
    given = {i.carry: i.results[0] for i in code if i.op == "carried"}
    made = {i.carry: i.operands[0] for i in code if i.op == "carry"}
    numbers = [one.number for one in carried]
    return _Chain(carried, code, inside, [given[n] for n in numbers], [made[n] for n in numbers], wanted)


def _chains(kernel: LoopKernel) -> list[_Chain]:
    """The recurrence as one chain if it can be vectorised, else in parts: carried values that depend on each other are
    one, after those that it depends on. A count beside a sum is then combined in the vector."""
    code, _ = recurrence(kernel)
    whole = _chain(kernel, code, carries(kernel))
    if len(whole.carries) < 2 or not whole.is_latency_bound:
        return [whole]
    numbers = [one.number for one in whole.carries]
    made = dict(zip(numbers, whole.made, strict=True))
    depends = {carry: _depending(code, {given}) for carry, given in zip(numbers, whole.given, strict=True)}
    needs = {one: {other for other in depends if made[one] in depends[other]} for one in depends}
    for middle in needs:
        for one in needs:
            if middle in needs[one]:
                needs[one] |= needs[middle]
    parts = {frozenset({one, *(other for other in needs[one] if one in needs[other])}): needs[one] for one in needs}
    found = []
    for part in sorted(parts, key=lambda part: (len(parts[part] | part), min(part))):
        inside = _needed(code, {made[carry] for carry in part}, set().union(*(depends[carry] for carry in part)))
        own = [i for i in code if i in inside or (i.op in ("carried", "carry") and i.carry in part)]
        found.append(_chain(kernel, own, [one for one in whole.carries if one.number in part]))
    return found


def _depending(code: list[Instr], start: set[int]) -> set[int]:
    """The values that depend on those of ``start``, and these."""
    found = set(start)
    for instr in code:
        if not found.isdisjoint(instr.operands):
            found.update(instr.results)
    return found


def _needed(code: list[Instr], wanted: set[int], among: set[int]) -> list[Instr]:
    """The instructions that compute the ``wanted`` values, of those whose results are ``among`` these."""
    wanted, found = wanted & among, []
    for instr in reversed(code):
        if instr.op != "carried" and not wanted.isdisjoint(instr.results):
            found.append(instr)
            wanted.update(among.intersection(instr.operands))
    return found


def is_latency_bound(kernel: LoopKernel) -> bool:
    """Whether something of a row is computed point by point, each after the one before."""
    return any(chain.is_latency_bound for chain in _chains(kernel))


def point(state: State, kernel: LoopKernel, values: Values, names: list[str]) -> list[str]:
    """A point of a row, or of a vector of rows; returns the next carried values."""
    return _step(state, carries(kernel), [instr for instr in kernel.code if not instr.row], values, names)


def vector(state: State, along: Dim, kernel: LoopKernel, values: Values, names: list[str]) -> list[str]:
    """A vector of points of one row; returns the next carried values. Values that do not depend on the point before are
    computed for all points first, those that depend on carried ones after the chains that they need."""
    chains, (code, others) = _chains(kernel), recurrence(kernel)
    dependent, chained = [*code, *others], [instr for chain in chains for instr in chain.code]
    waiting = [i for i in kernel.code if i in dependent and i not in chained and i.op != "carry"]
    state.lane = along.name
    for instr in kernel.code:
        if not instr.row and instr not in dependent:
            instruction(state, instr, values)
    numbers, after = {one.number: k for k, one in enumerate(carries(kernel))}, list(names)
    for chain in chains:
        positions = [numbers[one.number] for one in chain.carries]
        state.lane = None
        found = _points(state, chain, values, [names[k] for k in positions])
        state.lane = along.name
        for k, name in zip(positions, found):
            after[k] = name
        dtypes = {number: instr.dtype for instr in chain.code for number in instr.results}
        for number, name in zip(chain.wanted, found[len(positions) :], strict=True):
            values[number] = Value(name, dtypes[number], uniform=False)
        for instr in list(waiting):
            if instr.op != "store" and values.keys() >= set(instr.operands):
                instruction(state, instr, values)
                waiting.remove(instr)
    for instr in waiting:
        instruction(state, instr, values)
    state.lane = None
    return after


def _points(state: State, chain: _Chain, values: Values, names: list[str]) -> list[str]:
    """The next carried values, then a vector of each wanted value."""
    if chain.is_independent_of_brackets:
        return _combined(state, chain, values, names)
    choices = chain.choices()
    if choices is not None:
        return _chosen(state, chain, choices, values, names)
    return _one_by_one(state, chain, values, names)


def _one_by_one(state: State, chain: _Chain, values: Values, names: list[str]) -> list[str]:
    """The recurrence, point by point: the next carried values, then a vector of each wanted value."""
    found: dict[int, list[Value]] = {number: [] for number in chain.wanted}
    for k in range(state.width):
        at = {number: _element(state, values[number], k) for number in chain.read}
        names = _step(state, chain.carries, chain.code, at, names)
        for number in chain.wanted:
            found[number].append(at[number])
    return [*names, *(_gathered(state, elements) for elements in found.values())]


def _combined(state: State, chain: _Chain, values: Values, names: list[str]) -> list[str]:
    """Like `_one_by_one`: each point is combined with those 1, 2, 4, ... before it in the vector, then with the carried
    value."""
    carried, made = [], {}
    for k, name in enumerate(names):
        maker = chain.maker(k)
        assert maker is not None
        (number,) = set(maker.operands) - {chain.given[k]}
        kind, found = types.register(maker.dtype), Value(state.lanes(values[number]), maker.dtype, uniform=False)
        distance = 1
        while distance < state.width:
            before = Value(_moved(state, found.name, distance, _IDENTITIES[maker.op], kind), maker.dtype, uniform=False)
            found = arithmetic.apply(state, maker, [before, found])
            distance *= 2
        last = state.writer.pure(f"vector.extract {found.name}[{state.width - 1}] : {kind} from {state.vector(kind)}")
        start = Value(name, maker.dtype)
        carried.append(arithmetic.apply(state, maker, [start, Value(last, maker.dtype)]).name)
        made[chain.made[k]] = arithmetic.apply(state, maker, [start, found])
        if chain.given[k] in chain.wanted:
            made[chain.given[k]] = Value(_before(state, name, made[chain.made[k]]), maker.dtype, uniform=False)
    return [*carried, *(made[number].name for number in chain.wanted)]


def _moved(state: State, name: str, distance: int, identity: int | None, kind: str) -> str:
    """The lanes ``distance`` before each lane; the first lanes keep their own, or get the identity element."""
    filler = name if identity is None else state.splat(identity, kind)
    first = [state.width + lane for lane in range(distance)]
    lanes = ", ".join(map(str, [*first, *range(state.width - distance)]))
    vector = state.vector(kind)
    return state.writer.pure(f"vector.shuffle {name}, {filler} [{lanes}] : {vector}, {vector}")


def _before(state: State, first: str, value: Value) -> str:
    """The carried value that each point starts from: ``first``, then the values of the points before."""
    kind = types.register(value.dtype)
    lanes, vector = ", ".join(map(str, range(state.width - 1, 2 * state.width - 1))), state.vector(kind)
    return state.writer.pure(
        f"vector.shuffle {state.broadcast(first, kind)}, {state.lanes(value)} [{lanes}] : {vector}, {vector}"
    )


def _chosen(
    state: State,
    chain: _Chain,
    choices: list[tuple[int, int, bool]],
    values: Values,
    names: list[str],
) -> list[str]:
    """Like `_one_by_one`, for selections, by speculation: if no point is selected when all start from the carried
    value, all do start from it; if each point is selected when it starts from the one before, it does."""
    writer, dtypes = state.writer, {n: i.dtype for i in chain.code for n in i.results}
    carried = [types.register(one.dtype) for one in chain.carries]
    kinds = [*carried, *(state.vector(types.register(dtypes[number])) for number in chain.wanted)]
    bools = state.vector("i1")

    def outcome(before: list[Value]) -> tuple[Values, list[str]]:
        """The values of all points, and the lanes in which each carry changes, if ``before`` are the values that they
        start from."""
        at = {**values, **dict(zip(chain.given, before, strict=True))}
        for instr in chain.inside:
            instruction(state, instr, at)
        changes = [state.lanes(at[condition]) for condition, _, _ in choices]
        signs = [name if choice[2] else _not(state, name) for name, choice in zip(changes, choices, strict=True)]
        return at, list(dict.fromkeys(signs))

    def joined(operation: str, kind: str, signs: list[str]) -> str:
        found = signs[0]
        for sign in signs[1:]:
            found = writer.pure(f"{operation} {found}, {sign} : {bools}")
        return writer.pure(f"vector.reduction <{kind}>, {found} : {bools} into i1")

    same, signs = outcome([Value(name, one.dtype) for name, one in zip(names, chain.carries, strict=True)])

    def changing() -> list[str]:
        new = [values[number] for _, number, _ in choices]
        before = [Value(_before(state, n, v), v.dtype, uniform=False) for n, v in zip(names, new, strict=True)]
        each, signs = outcome(before)

        def last() -> list[str]:
            ends = [_element(state, value, state.width - 1).name for value in new]
            return [*ends, *(state.lanes(each[number]) for number in chain.wanted)]

        some = joined("arith.andi", "and", signs)
        return writer.branch(some, kinds, last, lambda: _one_by_one(state, chain, values, names))

    some = joined("arith.ori", "or", signs)
    return writer.branch(
        some, kinds, changing, lambda: [*names, *(state.lanes(same[number]) for number in chain.wanted)]
    )


def _not(state: State, name: str) -> str:
    return state.writer.pure(f"arith.xori {name}, {state.splat(True, 'i1')} : {state.vector('i1')}")


def _element(state: State, value: Value, k: int) -> Value:
    """Lane ``k`` of a value."""
    pure, kind = state.writer.pure, types.register(value.dtype)
    if value.uniform:
        return value
    if value.stride:
        name = pure(f"arith.addi {value.name}, {state.constant(k * value.stride, kind)} : {kind}")
    else:
        name = pure(f"vector.extract {value.name}[{k}] : {kind} from {state.vector(kind)}")
    return Value(name, value.dtype)


def _gathered(state: State, elements: list[Value]) -> str:
    """A vector from one scalar per lane."""
    kind = types.register(elements[0].dtype)
    name = state.broadcast(elements[0].name, kind)
    for k, element in enumerate(elements[1:], 1):
        name = state.writer.pure(f"vector.insert {element.name}, {name}[{k}] : {kind} into {state.vector(kind)}")
    return name


def _step(state: State, carried: list[Carry], code: Sequence[Instr], values: Values, names: list[str]) -> list[str]:
    """The instructions at one point; returns the next carried values."""
    numbers = {one.number: i for i, one in enumerate(carried)}
    after = list(names)
    for instr in code:
        if instr.op == "carried":
            values[instr.results[0]] = Value(names[numbers[instr.carry]], instr.dtype, uniform=state.lane is None)
        elif instr.op == "carry":
            if instr.carry in numbers:
                value = values[instr.operands[0]]
                after[numbers[instr.carry]] = value.name if state.lane is None else state.lanes(value)
        else:
            instruction(state, instr, values)
    return after
