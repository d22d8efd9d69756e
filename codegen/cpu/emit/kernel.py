"""`emit_cpu`: the MLIR text of one kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from symshape.analysis.loops import LoopKernel
from symshape.codegen.cpu.emit import launch, scan, scatter, sorted_scatter, split, staged
from symshape.codegen.cpu.emit.body import Body
from symshape.codegen.cpu.emit.index_arithmetic import scalar
from symshape.codegen.cpu.emit.state import State
from symshape.codegen.cpu.emit.writer import Writer
from symshape.codegen.cpu.objects.target import Target, default
from symshape.codegen.cpu.schedule.forms import Form, cost, forms_of, in_order
from symshape.codegen.cpu.schedule.layout import MAX_SPLITS, SPLITS, Layout
from symshape.codegen.cpu.schedule.sweep_order import weight
from symshape.codegen.scatter_kernels import copy_of, memories
from symshape.prover.numbers.expr import product

_UNIT_WORK = 256  # a unit's own cost, in elementwise operations


def emit_cpu(kernel: LoopKernel, target: Target | None = None) -> str:
    """MLIR text: the C function ``kernel.name`` and its internal functions, then the helper functions they call.

    Destinations must not overlap inputs or each other.
    """
    target = target or default()
    if kernel.scatter is not None:
        return _scatter(kernel, target)
    if kernel.is_scan:
        return _scan(kernel, target)
    shared: dict[str, str] = {}
    forms = forms_of(kernel, target)
    lines = _entry(kernel, forms, target)
    for form in forms:
        lines += _functions(kernel.name, form, target, shared)
    return "\n".join([*lines, *(launch.shared(name, text) for name, text in shared.items()), ""])


def _scatter(kernel: LoopKernel, target: Target) -> str:
    """Copies the source to the destination, unless it is written in place, then runs the body of the scatter."""
    shared: dict[str, str] = {}
    writer = Writer()
    state = State(writer, kernel, target)
    names = launch.words(writer, launch.arguments(kernel))
    state.symbols.update(zip(kernel.symbols, names[len(kernel.args) :], strict=False))
    source, dest = memories(kernel)
    moved = writer.pure(f"arith.cmpi ne, {names[source]}, {names[dest]} : i64")
    copy = copy_of(kernel)

    def start_copy() -> list[str]:
        writer.effect(f"llvm.call @{copy.name}(%words) : (!llvm.ptr) -> ()")
        return []

    writer.branch(moved, [], start_copy)
    context = launch.context(writer, names)
    plan = scatter.plan(kernel)
    ascending = sorted_scatter.plan(plan)
    work = scalar(state, product(dim.size for dim in kernel.dims) * scatter.COST)

    def usual() -> list[str]:
        launch.start(writer, f"{kernel.name}_body", context, scalar(state, plan.units), work)
        return []

    if ascending is None:
        usual()
    else:
        _sorted(state, ascending, context, work, usual)
    lines = launch.function(kernel.name, "%words: !llvm.ptr", writer, public=True)

    def body(suffix: str, compute: Callable[[State, str, str], None]) -> None:
        state = State(Writer(), kernel, target, shared=shared)
        _enter(state, None, ("%begin", "%end"))
        compute(state, "%begin", "%end")
        parameters = "%context: !llvm.ptr, %begin: i64, %end: i64"
        lines.extend(launch.function(f"{kernel.name}_{suffix}", parameters, state.writer))

    body("body", lambda state, begin, end: scatter.compute(state, plan, begin, end))
    if ascending is not None:
        body("test", lambda state, begin, end: sorted_scatter.test(state, ascending, begin, end))
        body("rows", lambda state, begin, end: sorted_scatter.compute(state, ascending, begin, end))
    own = lines
    copies = forms_of(copy, target)[:1]
    lines = _entry(copy, copies, target) + _functions(copy.name, copies[0], target, shared)
    return "\n".join([*lines, *own, *(launch.shared(name, text) for name, text in shared.items()), ""])


def _sorted(state: State, plan: sorted_scatter.Plan, context: str, work: str, usual: Callable[[], list[str]]) -> None:
    """Tests at run time whether the index is ascending, if that may pay, and then runs the form for ascending
    indices."""
    writer, name = state.writer, state.kernel.name
    larger = [writer.pure(f"arith.cmpi sge, {scalar(state, a)}, {scalar(state, b)} : i64") for a, b in plan.pays]
    never = state.constant(False, "i1")
    pays = reduce(lambda left, right: writer.pure(f"arith.andi {left}, {right} : i1"), larger)

    def look() -> list[str]:
        launch.clear_flag(writer, context)
        launch.first(writer, f"{name}_test", context)  # most indices that do not ascend show it there
        return writer.branch(launch.flag_is_clear(writer, context), ["i1"], look_at_all, lambda: [never])

    def look_at_all() -> list[str]:
        launch.start(writer, f"{name}_test", context, scalar(state, plan.test_units), scalar(state, plan.points.size))
        return [launch.flag_is_clear(writer, context)]

    def rows() -> list[str]:
        launch.start(writer, f"{name}_rows", context, scalar(state, plan.units), work)
        return []

    (ascend,) = writer.branch(pays, ["i1"], look, lambda: [never])
    writer.branch(ascend, [], rows, usual)


def _scan(kernel: LoopKernel, target: Target) -> str:
    shared: dict[str, str] = {}
    writer = Writer()
    state = State(writer, kernel, target)
    names = launch.words(writer, launch.arguments(kernel))
    state.symbols.update(zip(kernel.symbols, names[len(kernel.args) :], strict=False))
    context = launch.context(writer, names)
    plan = scan.plan(kernel, state.width)
    launch.start(writer, f"{kernel.name}_body", context, scalar(state, plan.units), scalar(state, plan.work))
    lines = launch.function(kernel.name, "%words: !llvm.ptr", writer, public=True)
    state = State(Writer(), kernel, target, shared=shared)
    _enter(state, None, ("%begin", "%end"))
    scan.compute(state, plan, "%begin", "%end")
    lines += launch.function(f"{kernel.name}_body", "%context: !llvm.ptr, %begin: i64, %end: i64", state.writer)
    return "\n".join([*lines, *(launch.shared(name, text) for name, text in shared.items()), ""])


def _functions(kernel: str, form: Form, target: Target, shared: dict[str, str]) -> list[str]:
    """The functions of one form: the body, and the second stage of a split reduction; or all stages of a staged
    kernel."""
    name, division = kernel + form.suffix, form.division

    def enter(names: tuple[str, ...]) -> State:
        state = State(Writer(), form.kernel, target, shared=shared, groups=division.groups)
        _enter(state, division, names)
        return state

    if division.staged:
        return staged.functions(name, form.plan, division, enter)
    state = enter(("%begin", "%end"))
    Body(state, form.plan, division, form.pieces).compute("%begin", "%end")
    lines = launch.function(f"{name}_body", "%context: !llvm.ptr, %begin: i64, %end: i64", state.writer)
    if division.split is not None:
        state = enter(("%count",))
        Body(state, form.plan, division).join("%count")
        lines += launch.function(f"{name}_join", "%context: !llvm.ptr, %count: i64", state.writer)
    return lines


def _enter(state: State, division: Layout | None, names: tuple[str, ...]) -> None:
    """Reads the context: pointers, symbols, error slot, and the state of a split reduction."""
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
    if division is not None and division.split is not None:
        state.symbols[SPLITS] = word(launch.SPLITS_WORD)
        state.workspace = pointer(word(launch.WORKSPACE_WORD))


def _entry(kernel: LoopKernel, forms: list[Form], target: Target) -> list[str]:
    """The C function: stores the arguments in a context on the stack, selects the form by the sizes, computes units and
    work, calls `ss_launch`."""
    writer = Writer()
    state = State(writer, kernel, target)
    names = launch.words(writer, launch.arguments(kernel))
    state.symbols.update(zip(kernel.symbols, names[len(kernel.args) :], strict=False))
    context = launch.context(writer, names)

    def start(form: Form) -> list[str]:
        _start(state, form, context)
        return []

    def choose(left: list[Form]) -> list[str]:
        first, *others = left
        if not others:
            return start(first)
        writer.branch(_holds(state, first), [], lambda: start(first), lambda: choose(others))
        return []

    choose(in_order(forms))
    return launch.function(kernel.name, "%words: !llvm.ptr", writer, public=True)


def _holds(state: State, form: Form) -> str:
    """Whether the sizes are within the form's bounds (an i1)."""
    pure, conditions = state.writer.pure, []
    for size, how, number in form.comparisons:
        conditions.append(pure(f"arith.cmpi {how}, {scalar(state, size)}, {state.constant(number, 'i64')} : i64"))
    return reduce(lambda left, right: pure(f"arith.andi {left}, {right} : i1"), conditions)


def _start(state: State, form: Form, context: str) -> None:
    """Launches one form of the kernel."""
    dims, writer, division = form.kernel.dims, state.writer, form.division
    name = state.kernel.name + form.suffix
    points = product(dim.size for dim in dims)

    def work(operations: int) -> str:
        return scalar(state, points * (operations + 2) + division.units * _UNIT_WORK)

    if division.split is None:
        launch.start(writer, f"{name}_body", context, scalar(state, division.units), work(cost(form.plan)))
        return
    splits = state.symbols[SPLITS] = scalar(state, division.splits(dims))
    if division.staged:
        launch.workspace(writer, context, splits, staged.workspace_bytes(state, form.plan, division))
        sweeps = [sum(map(weight, one.code)) for one in form.plan.sweeps]
        staged.start(state, name, form.plan, division, context, lambda number: work(sweeps[number]))
        return
    reductions = Body(state, form.plan, division).reductions[0]
    sets = 1 if division.across else division.copies
    launch.workspace(writer, context, splits, MAX_SPLITS * split.slot_bytes(reductions, sets, state.width))
    launch.start(writer, f"{name}_body", context, scalar(state, division.units), work(cost(form.plan)))
    many = writer.pure(f"arith.cmpi sgt, {splits}, {state.constant(1, 'i64')} : i64")
    count = writer.pure(f"arith.divui {scalar(state, division.units)}, {splits} : i64")
    writer.branch(many, [], lambda: launch.call(writer, f"{name}_join", context, count))
