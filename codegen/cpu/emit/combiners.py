"""Reductions: identity elements, combination of two accumulators, combination over the lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

from symshape.analysis.loops import Instr
from symshape.artifact.element_types import HALF
from symshape.codegen.cpu.emit import types
from symshape.codegen.cpu.emit.casts import from_f32, to_f32
from symshape.codegen.cpu.emit.state import State, Value
from symshape.errors import KernelError

_LAST = (1 << 63) - 1  # the index of "no element": any element goes before it
_OPERATIONS = {  # combiner -> (float operation, integer operation)
    "add": ("arith.addf", "arith.addi"),
    "mul": ("arith.mulf", "arith.muli"),
    "max": ("ogt", "arith.maxsi"),
    "min": ("olt", "arith.minsi"),
    "or": ("", "arith.ori"),
    "and": ("", "arith.andi"),
}
_UNSIGNED = {"arith.maxsi": "arith.maxui", "arith.minsi": "arith.minui"}


@dataclass(frozen=True)
class Reduction:
    """One reduce instruction. Its accumulator is a tuple of values of ``elements`` types: (value), (value, index),
    (value, NaN or any number), or moments (number of elements, sum, sum of squares around the mean)."""

    instr: Instr
    dtype: str  # of the values
    element: str  # of the accumulator
    arg: bool  # argmax, argmin
    combiner: str

    @property
    def flagged(self) -> bool:
        """Whether max or min of floats keeps the last NaN beside the value, which is cheaper per element than to
        propagate it. It is no i1 flag: AVX-512 has eight mask registers, and kernels need some of them for masks."""
        return not self.arg and self.combiner in ("max", "min") and types.is_float(self.element)

    @property
    def elements(self) -> tuple[str, ...]:
        if self.flagged:
            return (self.element, self.element)
        if self.combiner == "moments":
            return (self.element,) * 3
        return (self.element, "i64") if self.arg else (self.element,)

    @property
    def unsigned(self) -> bool:
        return self.dtype.startswith("ui") or self.dtype == "i1"


def reduction(instr: Instr) -> Reduction:
    """The accumulator that a reduce instruction needs; half types accumulate in f32."""
    arg = instr.combiner.startswith("arg")
    combiner = instr.combiner.removeprefix("arg")
    if combiner not in (*_OPERATIONS, "moments"):
        raise KernelError(f"CPU kernels have no reduction {instr.combiner!r}", next_step="make it a library call")
    element = "f32" if instr.dtype in HALF else types.register(instr.dtype)
    return Reduction(instr, instr.dtype, element, arg, combiner)


def identity(reduction: Reduction) -> float | int:
    """The identity element."""
    match reduction.combiner:
        case "add" | "or" | "moments":
            return 0
        case "mul":
            return 1
        case "and":
            return -1
    largest = reduction.combiner == "min"
    if types.is_float(reduction.element):
        return float("inf") if largest else float("-inf")
    width = types.bits(reduction.element)
    if reduction.unsigned:
        return (1 << width) - 1 if largest else 0
    return (1 << (width - 1)) - 1 if largest else -(1 << (width - 1))


def identities(state: State, reduction: Reduction, uniform: bool) -> list[str]:
    """The accumulators before the first element."""
    constant = state.constant if uniform else state.splat
    values = [constant(identity(reduction), reduction.element)]
    if reduction.flagged:
        return values * 2
    if reduction.combiner == "moments":
        return values * 3
    return [*values, constant(_LAST, "i64")] if reduction.arg else values


def accumulate(
    state: State,
    reduction: Reduction,
    accumulators: Sequence[str],
    value: Value,
    index: str,
    uniform: bool,
) -> list[str]:
    """The accumulators after one more element per active lane; ``index`` is the element's number, for argmax."""
    new = _alone(state, reduction, value, index, uniform)
    if state.mask is not None and not uniform and _lanes_meet(state):
        neutral = identities(state, reduction, uniform)
        mask, bools = state.mask, state.vector("i1")
        new = [
            state.writer.pure(f"arith.select {mask}, {one}, {other} : {bools}, {state.vector(element)}")
            for one, other, element in zip(new, neutral, reduction.elements)
        ]
    return combine(state, reduction, accumulators, new, uniform)


def _lanes_meet(state: State) -> bool:
    """Whether the lanes' accumulators are combined at the end. Else nobody reads those of lanes that are not active."""
    return any(dim.reduced for dim in state.kernel.dims if dim.name == state.lane)


def _alone(state: State, reduction: Reduction, value: Value, index: str, uniform: bool) -> list[str]:
    """The accumulators of one element."""
    name = value.name if uniform else state.lanes(value)
    if reduction.dtype in HALF:
        name = to_f32(state, name, reduction.dtype, uniform)
    if reduction.flagged:
        return [name, name]
    return [name, index] if reduction.arg else [name]


def combine(state: State, reduction: Reduction, left: Sequence[str], right: Sequence[str], uniform: bool) -> list[str]:
    """Combines two sets of accumulators."""
    type_ = reduction.element if uniform else state.vector(reduction.element)
    if reduction.arg:
        return _combine_arg(state, reduction, left, right, uniform)
    if reduction.combiner == "moments":
        return _combine_moments(state, left, right, type_)
    operation = _OPERATIONS[reduction.combiner][not types.is_float(reduction.element)]
    if reduction.flagged:
        return _combine_flagged(state, operation, type_, left, right, uniform)
    if not operation:
        what = f"CPU kernels cannot reduce {reduction.dtype} by {reduction.combiner!r}"
        raise KernelError(what, next_step="make the reduction a library call")
    if reduction.unsigned:
        operation = _UNSIGNED.get(operation, operation)
    return [state.writer.pure(f"{operation} {left[0]}, {right[0]} : {type_}")]


def _combine_flagged(
    state: State,
    order: str,
    type_: str,
    left: Sequence[str],
    right: Sequence[str],
    uniform: bool,
) -> list[str]:
    """The larger (smaller) number, and, if the accumulators keep a NaN, one if either had it."""
    pure, bools = state.writer.pure, "i1" if uniform else state.vector("i1")
    better = pure(f"arith.cmpf {order}, {right[0]}, {left[0]} : {type_}")
    prefix = "" if uniform else f"{bools}, "
    value = pure(f"arith.select {better}, {right[0]}, {left[0]} : {prefix}{type_}")
    pairs = [(old, new, _is_nan(state, new, type_)) for old, new in zip(left[1:], right[1:], strict=True)]
    return [value, *(pure(f"arith.select {nan}, {new}, {old} : {prefix}{type_}") for old, new, nan in pairs)]


def _is_nan(state: State, name: str, type_: str) -> str:
    return state.writer.pure(f"arith.cmpf uno, {name}, {name} : {type_}")


def any_nan(state: State, reduction: Reduction, name: str) -> str:
    """Whether there is a NaN in any lane of a vector (``i1``)."""
    lanes = _is_nan(state, name, state.vector(reduction.element))
    return state.writer.pure(f"vector.reduction <or>, {lanes} : {state.vector('i1')} into i1")


def nan_where(state: State, reduction: Reduction, flag: str, uniform: bool) -> str:
    """What a flagged reduction keeps beside its value, from whether there was a NaN."""
    constant, type_ = (state.constant, reduction.element) if uniform else (state.splat, state.vector(reduction.element))
    nan, number = (constant(value, reduction.element) for value in (float("nan"), identity(reduction)))
    prefix = "" if uniform else f"{state.vector('i1')}, "
    return state.writer.pure(f"arith.select {flag}, {nan}, {number} : {prefix}{type_}")


def _combine_arg(
    state: State, reduction: Reduction, left: Sequence[str], right: Sequence[str], uniform: bool
) -> list[str]:
    """The better value; of equal values the one with the lower index; NaN is better than any number."""
    pure = state.writer.pure
    type_ = reduction.element if uniform else state.vector(reduction.element)
    index, bools = ("i64", "i1") if uniform else (state.vector("i64"), state.vector("i1"))
    earlier = pure(f"arith.cmpi slt, {right[1]}, {left[1]} : {index}")
    if types.is_float(reduction.element):
        order = "ogt" if reduction.combiner == "max" else "olt"
        better = pure(f"arith.cmpf {order}, {right[0]}, {left[0]} : {type_}")
        same = pure(f"arith.cmpf oeq, {right[0]}, {left[0]} : {type_}")
        nan = pure(f"arith.cmpf uno, {right[0]}, {right[0]} : {type_}")
        number = pure(f"arith.cmpf ord, {left[0]}, {left[0]} : {type_}")
        first_nan = pure(f"arith.andi {nan}, {pure(f'arith.ori {number}, {earlier} : {bools}')} : {bools}")
        better = pure(f"arith.ori {better}, {first_nan} : {bools}")
    else:
        order = ("u" if reduction.unsigned else "s") + ("gt" if reduction.combiner == "max" else "lt")
        better = pure(f"arith.cmpi {order}, {right[0]}, {left[0]} : {type_}")
        same = pure(f"arith.cmpi eq, {right[0]}, {left[0]} : {type_}")
    better = pure(f"arith.ori {better}, {pure(f'arith.andi {same}, {earlier} : {bools}')} : {bools}")
    condition = "" if uniform else f"{bools}, "
    sides = zip(left, right, (type_, index))
    return [pure(f"arith.select {better}, {new}, {old} : {condition}{t}") for old, new, t in sides]


def _combine_moments(state: State, left: Sequence[str], right: Sequence[str], type_: str) -> list[str]:
    """(number, sum, squares) of both; a side without elements has no mean, and contributes nothing."""
    pure, vector = state.writer.pure, type_ != "f64"
    constant = state.splat if vector else state.constant
    one, zero = constant(1.0, "f64"), constant(0.0, "f64")

    def do(operation: str, a: str, b: str) -> str:
        return pure(f"arith.{operation} {a}, {b} : {type_}")

    def mean(side: Sequence[str]) -> str:
        return do("divf", side[1], do("maximumf", side[0], one))

    number = do("addf", left[0], right[0])
    weight = do("divf", do("mulf", left[0], right[0]), do("maximumf", number, one))
    apart = do("subf", mean(right), mean(left))
    between = do("mulf", do("mulf", apart, apart), weight)
    both = pure(f"arith.cmpf ogt, {weight}, {zero} : {type_}")
    added = pure(f"arith.select {both}, {between}, {zero} : {state.vector('i1') + ', ' if vector else ''}{type_}")
    return [number, do("addf", left[1], right[1]), do("addf", do("addf", left[2], right[2]), added)]


def is_sum(reduction: Reduction) -> bool:
    """Whether the reduction adds floats, so that rounding errors grow with the length of a chain of additions."""
    return reduction.combiner == "add" and types.is_float(reduction.element)


def wide(reduction: Reduction) -> Reduction:
    """The reduction for the last steps of a sum: float64 for float32 sums, so that the result is rounded once."""
    sums = reduction.combiner == "add" and reduction.element == "f32"
    return replace(reduction, element="f64") if sums else reduction


def widened(state: State, reduction: Reduction, accumulators: Sequence[str], uniform: bool) -> list[str]:
    """The accumulators converted to those of the wide reduction."""
    return _converted(state, "extf", reduction, wide(reduction), accumulators, uniform)


def narrowed(state: State, reduction: Reduction, accumulators: Sequence[str], uniform: bool) -> list[str]:
    """The inverse of `widened`."""
    return _converted(state, "truncf", wide(reduction), reduction, accumulators, uniform)


def _converted(
    state: State, way: str, old: Reduction, new: Reduction, accumulators: Sequence[str], uniform: bool
) -> list[str]:
    if old is new:
        return list(accumulators)
    before, after = (one.element if uniform else state.vector(one.element) for one in (old, new))
    return [state.writer.pure(f"arith.{way} {name} : {before} to {after}") for name in accumulators]


def across_lanes(state: State, reduction: Reduction, accumulators: Sequence[str]) -> list[str]:
    """The lanes combined pairwise, in log2 steps of a fixed order; scalars. The last four lanes of a sum are added in
    the wide type: most of the rounding error arises there."""
    if reduction.combiner == "moments":
        return _moments_across(state, reduction, accumulators)
    if reduction.flagged:
        number, nan = accumulators
        (found,) = _lane(state, reduction, _halved(state, reduction, [number], 0), 0)
        return [found, nan_where(state, reduction, any_nan(state, reduction, nan), True)]
    last = wide(reduction)
    if last is reduction:
        return _lane(state, reduction, _halved(state, reduction, accumulators, 0), 0)
    (four,) = _halved(state, reduction, accumulators, 2)
    return narrowed(state, reduction, [_sum_of_four(state, last, four)], True)


def _sum_of_four(state: State, last: Reduction, vector: str) -> str:
    """The first four lanes of an f32 vector, added in f64: lanes 0 and 2, lanes 1 and 3, then both sums."""
    pure, all_ = state.writer.pure, state.vector("f32")
    first = pure(f"vector.shuffle {vector}, {vector} [0, 1, 2, 3] : {all_}, {all_}")
    wider = pure(f"arith.extf {first} : vector<4xf32> to vector<4xf64>")
    halves = (f"vector.shuffle {wider}, {wider} [{pair}] : vector<4xf64>, vector<4xf64>" for pair in ("0, 1", "2, 3"))
    low, high = map(pure, halves)
    both = pure(f"arith.addf {low}, {high} : vector<2xf64>")
    left, right = (pure(f"vector.extract {both}[{k}] : f64 from vector<2xf64>") for k in range(2))
    return combine(state, last, [left], [right], True)[0]


def _halved(state: State, reduction: Reduction, accumulators: Sequence[str], least: int) -> list[str]:
    """Combines the upper half of the lanes with the lower half until ``least`` lanes are left."""
    current, half = list(accumulators), state.width // 2
    while half > least:
        order = ", ".join(str((lane + half) % state.width) for lane in range(state.width))
        moved = [
            state.writer.pure(f"vector.shuffle {name}, {name} [{order}] : {state.vector(e)}, {state.vector(e)}")
            for name, e in zip(current, reduction.elements)
        ]
        current = combine(state, reduction, current, moved, uniform=False)
        half //= 2
    return current


def _moments_across(state: State, reduction: Reduction, accumulators: Sequence[str]) -> list[str]:
    """Combines moments over the lanes at once: with the mean of all lanes, each lane adds the deviation of its own
    mean."""
    pure, type_ = state.writer.pure, state.vector("f64")
    total = replace(reduction, combiner="add")
    numbers, sums, squares = accumulators
    number, whole = (across_lanes(state, total, [name])[0] for name in (numbers, sums))
    one, ones = state.constant(1.0, "f64"), state.splat(1.0, "f64")
    mean = pure(f"arith.divf {whole}, {pure(f'arith.maximumf {number}, {one} : f64')} : f64")
    expected = pure(f"arith.mulf {state.broadcast(mean, 'f64')}, {numbers} : {type_}")
    some = pure(f"arith.maximumf {numbers}, {ones} : {type_}")
    apart = pure(f"arith.subf {sums}, {expected} : {type_}")
    between = pure(f"arith.divf {pure(f'arith.mulf {apart}, {apart} : {type_}')}, {some} : {type_}")
    (found,) = across_lanes(state, total, [pure(f"arith.addf {squares}, {between} : {type_}")])
    return [number, whole, found]


def _lane(state: State, reduction: Reduction, accumulators: Sequence[str], number: int) -> list[str]:
    return [
        state.writer.pure(f"vector.extract {name}[{number}] : {element} from {state.vector(element)}")
        for name, element in zip(accumulators, reduction.elements)
    ]


def results(state: State, reduction: Reduction, accumulators: Sequence[str], uniform: bool) -> list[Value]:
    """The instruction's results from combined accumulators."""
    if reduction.combiner == "moments":
        return [Value(name, reduction.dtype, uniform) for name in accumulators[1:]]
    name = accumulators[0]
    if reduction.flagged:
        type_ = reduction.element if uniform else state.vector(reduction.element)
        nan, prefix = accumulators[1], "" if uniform else f"{state.vector('i1')}, "
        name = state.writer.pure(f"arith.select {_is_nan(state, nan, type_)}, {nan}, {name} : {prefix}{type_}")
    if reduction.dtype in HALF:
        name = from_f32(state, name, reduction.dtype, uniform)
    values = [Value(name, reduction.dtype, uniform)]
    return [*values, Value(accumulators[1], "i64", uniform)] if reduction.arg else values


def combined(state: State, instr: Instr, operands: Sequence[Value]) -> list[Value]:
    """The results of a reduction of values that are all available (``combine``). Sums start at 0: the sum of -0.0 alone
    is 0.0."""
    one, uniform = reduction(instr), state.lane is None
    numbers = [(state.constant if uniform else state.splat)(k, "i64") if one.arg else "" for k in range(len(operands))]
    parts = [_alone(state, one, value, number, uniform) for value, number in zip(operands, numbers, strict=True)]
    if one.combiner == "add":
        parts.insert(0, identities(state, one, uniform))
    total = reduce(lambda left, right: combine(state, one, left, right, uniform), parts)
    return results(state, one, total, uniform)
