"""Split reductions: accumulators of each chunk are stored in a workspace on the caller's stack, then combined in
order."""

from __future__ import annotations

from symshape.codegen.cpu.emit.combiners import Reduction, combine, identities, narrowed, wide, widened
from symshape.codegen.cpu.emit.state import State
from symshape.codegen.cpu.emit.sweep import Accumulators
from symshape.codegen.cpu.schedule.layout import SPLITS

LANE_BYTES = 8  # room for a lane of any type


def slot_bytes(reductions: list[Reduction], sets: int, width: int) -> int:
    """Bytes of the workspace per unit (chunk)."""
    return sets * sum(len(one.elements) for one in reductions) * width * LANE_BYTES


def _addresses(state: State, reductions: list[Reduction], sets: int, unit: str) -> list[list[list[str]]]:
    """The address of every accumulator of a unit, nested as the accumulators are."""
    pure, step = state.writer.pure, state.width * LANE_BYTES
    size = state.constant(slot_bytes(reductions, sets, state.width), "i64")
    offset = pure(f"arith.muli {unit}, {size} : i64")
    slot = pure(f"llvm.getelementptr {state.workspace}[{offset}] : (!llvm.ptr, i64) -> !llvm.ptr, i8")
    addresses = iter(
        pure(f"llvm.getelementptr {slot}[{k * step}] : (!llvm.ptr) -> !llvm.ptr, i8")
        for k in range(sets * sum(len(one.elements) for one in reductions))
    )
    return [[[next(addresses) for _ in one.elements] for one in reductions] for _ in range(sets)]


def save(state: State, reductions: list[Reduction], accumulators: list[Accumulators], unit: str, uniform: bool) -> None:
    """Stores the accumulators of a unit (a chunk) in the workspace."""
    sets = _addresses(state, reductions, len(accumulators), unit)
    for names, addresses in zip(accumulators, sets, strict=True):
        for one, values, targets in zip(reductions, names, addresses, strict=True):
            for value, target, element in zip(values, targets, one.elements, strict=True):
                type_ = element if uniform else state.vector(element)
                state.writer.effect(f"llvm.store {value}, {target} {{alignment = 8 : i64}} : {type_}, !llvm.ptr")


def load(state: State, reductions: list[Reduction], sets: int, unit: str, uniform: bool) -> list[Accumulators]:
    """The accumulators of all chunks of a unit, combined in order; sums in the wide type."""
    pure, splits = state.writer.pure, state.symbols[SPLITS]
    first = pure(f"arith.muli {unit}, {splits} : i64")
    every = reductions * sets

    def types_(chosen: list[Reduction]) -> list[str]:
        return [element if uniform else state.vector(element) for one in chosen for element in one.elements]

    start = [name for one in every for name in identities(state, wide(one), uniform)]

    def step(index: str, names: list[str]) -> list[str]:
        number = pure(f"arith.addi {first}, {index} : i64")
        current, kinds, result = iter(names), iter(types_(every)), []
        for addresses in _addresses(state, reductions, sets, number):
            for one, sources in zip(reductions, addresses, strict=True):
                before = [next(current) for _ in sources]
                new = [
                    state.writer.emit(f"llvm.load {source} {{alignment = 8 : i64}} : !llvm.ptr -> {next(kinds)}")
                    for source in sources
                ]
                result += combine(state, wide(one), before, widened(state, one, new, uniform), uniform)
        return result

    bounds = state.constant(0, "i64"), splits, state.constant(1, "i64")
    carried = list(zip(start, types_([wide(one) for one in every]), strict=True))
    totals = iter(state.writer.loop(bounds, carried, step))
    return [
        [narrowed(state, one, [next(totals) for _ in one.elements], uniform) for one in reductions] for _ in range(sets)
    ]
