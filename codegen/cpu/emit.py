"""`emit_cpu`: the MLIR text of one kernel."""

from __future__ import annotations

from symshape.codegen.cpu import launch, split
from symshape.codegen.cpu.body import Body
from symshape.codegen.cpu.expressions import scalar
from symshape.codegen.cpu.layout import MAX_SPLITS, SPLITS, Layout, layout
from symshape.codegen.cpu.schedule import Schedule, schedule, weight
from symshape.codegen.cpu.state import State
from symshape.codegen.cpu.target import Target, host
from symshape.codegen.cpu.writer import Writer
from symshape.codegen.loops import LoopKernel
from symshape.prover.expr import product

_UNIT_WORK = 256  # a unit's own cost, in elementwise operations


def emit_cpu(kernel: LoopKernel, target: Target | None = None) -> str:
    """MLIR text: the C function ``kernel.name`` and its internal functions, then the helper functions they call.

    Destinations must not overlap inputs or each other.
    """
    target = target or host()
    plan = schedule(kernel)
    division = layout(kernel, plan, target.lanes)
    shared: dict[str, str] = {}
    lines = _entry(kernel, plan, division, target)
    state = State(Writer(), kernel, target, shared=shared)
    _enter(state, division, ("%begin", "%end"))
    Body(state, plan, division).compute("%begin", "%end")
    lines += launch.function(f"{kernel.name}_body", "%context: !llvm.ptr, %begin: i64, %end: i64", state.writer)
    if division.split is not None:
        state = State(Writer(), kernel, target, shared=shared)
        _enter(state, division, ("%count",))
        Body(state, plan, division).join("%count")
        lines += launch.function(f"{kernel.name}_join", "%context: !llvm.ptr, %count: i64", state.writer)
    return "\n".join([*lines, *(launch.shared(name, text) for name, text in shared.items()), ""])


def _enter(state: State, division: Layout, names: tuple[str, ...]) -> None:
    """Reads the context: pointers, symbols, error slot, and what a split reduction needs."""
    writer, kernel = state.writer, state.kernel
    for name in ("%context", *names):
        writer.argument(name)

    def word(index: int) -> str:
        address = writer.emit(launch.word(index))
        return writer.emit(f"llvm.load {address} {{alignment = 8 : i64}} : !llvm.ptr -> i64")

    def pointer(value: str) -> str:
        return writer.emit(f"llvm.inttoptr {value} : i64 to !llvm.ptr")

    words = [word(launch.HEADER + i) for i in range(launch.arguments(kernel))]
    count = len(kernel.args)
    state.pointers = [pointer(value) for value in words[:count]]
    state.symbols.update(zip(kernel.symbols, words[count:], strict=False))
    state.safe = "%context"
    if kernel.has_error_slot("cpu"):
        state.error = pointer(words[-1])
    if division.split is not None:
        state.symbols[SPLITS] = word(launch.SPLITS_WORD)
        state.workspace = pointer(word(launch.WORKSPACE_WORD))


def _entry(kernel: LoopKernel, plan: Schedule, division: Layout, target: Target) -> list[str]:
    """The C function: arguments into a context on the stack, sizes into units and work, then `ss_launch`."""
    writer = Writer()
    state = State(writer, kernel, target)
    names = [writer.argument(f"%a{i}") for i in range(launch.arguments(kernel))]
    state.symbols.update(zip(kernel.symbols, names[len(kernel.args):], strict=False))
    context = launch.context(writer, names)
    splits = None
    if division.split is not None:
        splits = state.symbols[SPLITS] = scalar(state, division.splits(kernel.dims))
        reductions = Body(state, plan, division).reductions[0]
        sets = 1 if division.across else division.copies
        room = MAX_SPLITS * split.slot_bytes(reductions, sets, target.lanes)
        launch.workspace(writer, context, splits, room)
    cost = sum(weight(instr) for one in plan.passes for instr in one.code) + 2
    work = scalar(state, product(dim.size for dim in kernel.dims) * cost + division.units * _UNIT_WORK)
    launch.start(writer, kernel.name, context, scalar(state, division.units), work)
    if splits is not None:
        many = writer.pure(f"arith.cmpi sgt, {splits}, {state.constant(1, 'i64')} : i64")
        count = writer.pure(f"arith.divui {scalar(state, division.units)}, {splits} : i64")
        writer.branch(many, [], lambda: launch.join_call(writer, kernel.name, context, count))
    return launch.function(kernel.name, ", ".join(f"{name}: i64" for name in names), writer, public=True)
