"""`emit_cpu`: the MLIR text of one kernel."""

from __future__ import annotations

from symshape.codegen.cpu import launch
from symshape.codegen.cpu.body import Body, units
from symshape.codegen.cpu.expressions import scalar
from symshape.codegen.cpu.schedule import Schedule, schedule, weight
from symshape.codegen.cpu.state import State
from symshape.codegen.cpu.target import Target, host
from symshape.codegen.cpu.writer import Writer
from symshape.codegen.loops import LoopKernel
from symshape.prover.expr import product


def emit_cpu(kernel: LoopKernel, target: Target | None = None) -> str:
    """MLIR text: the C function ``kernel.name`` and its internal body function, then the helper functions they call.

    Destinations must not overlap inputs or each other.
    """
    target = target or host()
    plan = schedule(kernel)
    state = State(Writer(), kernel, target)
    body = _body(state, plan)
    entry = _entry(kernel, plan, target)
    helpers = [launch.shared(name, text) for name, text in state.shared.items()]
    return "\n".join([*entry, *body, *helpers, ""])


def _body(state: State, plan: Schedule) -> list[str]:
    kernel, writer = state.kernel, state.writer
    for name in ("%context", "%begin", "%end"):
        writer.argument(name)
    words = [writer.emit(launch.word(i)) for i in range(launch.arguments(kernel))]
    count = len(kernel.args)
    words = [writer.emit(f"llvm.load {address} {{alignment = 8 : i64}} : !llvm.ptr -> i64") for address in words]
    state.pointers = [writer.emit(f"llvm.inttoptr {word} : i64 to !llvm.ptr") for word in words[:count]]
    state.symbols.update(zip(kernel.symbols, words[count:]))
    if kernel.checks_index:
        state.error = writer.emit(f"llvm.inttoptr {words[-1]} : i64 to !llvm.ptr")
    state.safe = "%context"
    Body(state, plan).emit("%begin", "%end")
    return [
        f"llvm.func internal @{kernel.name}_body(%context: !llvm.ptr, %begin: i64, %end: i64)"
        ' attributes {passthrough = ["noinline"]} {',
        *writer.body(), "  llvm.return", "}",
    ]


def _entry(kernel: LoopKernel, plan: Schedule, target: Target) -> list[str]:
    """The C function: arguments into a context on the stack, sizes into units and work, then `launch.LAUNCH`."""
    writer = Writer()
    state = State(writer, kernel, target)
    names = [writer.argument(f"%a{i}") for i in range(launch.arguments(kernel))]
    state.symbols.update(zip(kernel.symbols, names[len(kernel.args):]))
    count = scalar(state, units(kernel.dims, plan.lane).count)
    cost = sum(weight(instr) for one in plan.passes for instr in one.code) + 2
    work = scalar(state, product(dim.size for dim in kernel.dims) * cost)
    launch.call(writer, kernel.name, names, count, work)
    parameters = ", ".join(f"{name}: i64" for name in names)
    return [f'llvm.func @{kernel.name}({parameters}) attributes {{passthrough = ["noinline"]}} {{', *writer.body(),
            "  llvm.return", "}"]
