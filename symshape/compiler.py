"""The compiler: runs the named steps from an FX graph to a callable."""

from __future__ import annotations

import contextlib
import functools
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch_mlir import ir

from symshape import dialects, knobs
from symshape.analysis.loop_form import LoopSteps
from symshape.artifact.compiled_program import Program
from symshape.artifact.kernel_image import KernelImage
from symshape.codegen.build_kernels import KernelCode, KernelSet, build_kernels
from symshape.codegen.host.entry_guards import EntryGuards
from symshape.codegen.host.host_program import emit_program
from symshape.codegen.host.program_text import ProgramText
from symshape.dialects.accessors import main_functions
from symshape.dialects.verify import verify
from symshape.errors import (
    CompileError,
    KernelError,
    KernelFailure,
    OptionError,
    StepFailure,
    SymshapeError,
    joined_steps,
)
from symshape.fallbacks import Attempt, next_attempt, warn_of_fallbacks, write_graph
from symshape.frontend.bridge.aot_autograd import lasting_inputs, takes_boxed_arguments, written_inputs
from symshape.frontend.bridge.fake_tensors import shape_env_of
from symshape.frontend.graph_rewrites.common_subexpressions import common_subexpressions
from symshape.frontend.graph_rewrites.items_in_kernels import gather_items
from symshape.frontend.graph_rewrites.split_biases import split_biases
from symshape.frontend.importer.import_fx import import_graph
from symshape.frontend.importer.requirements import Requirements
from symshape.garbage import collected_later
from symshape.graph_as_calls import GraphAsCalls, graph_as_calls
from symshape.ir_text import text_of
from symshape.options import Options
from symshape.passes.framework.base import LOOPS, PassContext
from symshape.passes.framework.diagnostics import collect_diagnostics
from symshape.passes.framework.manager import Hooks, UnverifiedFailure, run_pipeline, write_ir
from symshape.passes.framework.pipeline_text import parse_pipeline, pass_with, step_name
from symshape.passes.framework.registry import passes_of_file
from symshape.passes.lowering.lower_aten import LowerAten
from symshape.passes.stages import STAGES, TARGETS, stages_after
from symshape.pipeline import Timings, check_optional, timed
from symshape.prover.numbers.condition import Condition
from symshape.recording import Recording, record_graph
from symshape.runtime.load_kernels import load_kernels
from symshape.runtime.program import Capture, load_program
from symshape.runtime.triton.binary import hash_of_triton
from symshape.stack_room import with_room
from symshape.stage_files import with_file
from symshape.stage_header import with_header
from symshape.tools.constraint_report import read_constraints
from symshape.tools.report import Fallback, GraphReport, KernelReport
from symshape.trace_artifacts import trace

Runner = Callable[[list[Any]], Any]
Result = TypeVar("Result")


@dataclass
class Compiled:
    """A compiled graph: ``run(args)`` takes the flat argument list and clears it; ``entry``: requirements on inputs.

    Further fields are for the cache: program and kernels as plain data, and the conditions that passes required of
    inputs.
    """

    run: Runner
    report: GraphReport
    entry: EntryGuards
    program: Program
    kernels: KernelImage
    requirements: Sequence[tuple[Condition, str]]


@dataclass(frozen=True)
class Start:
    """The state from which a compile continues: a module in a stage, and what belongs to it.

    ``constants``: the Python objects that the module names by position; ``kind``: "inference", "forward" or "backward";
    ``device``: of the buffers; ``require``: is called with the conditions that passes require of inputs.
    """

    module: ir.Module
    constants: list[Any]
    kind: str
    target: str
    device: str
    require: Require
    stage: str = "imported"
    symbols: Sequence[Any] = ()


class Require(Protocol):
    """A callback for conditions on inputs, with the reason of each. ``made``: all conditions so far."""

    @property
    def made(self) -> list[tuple[Condition, str]]: ...

    def __call__(self, condition: Condition, reason: str) -> None: ...


@dataclass(frozen=True)
class Built:
    """A program before it is loaded, and the module that it was generated from."""

    program: Program
    kernels: KernelSet
    text: ProgramText
    report: GraphReport
    module: ir.Module


@dataclass(frozen=True)
class Watch:
    """Passes the IR of each stage to PyTorch's structured trace, to a recording, and to the report (if ``keep``)."""

    keep: bool = False
    recording: Recording | None = None

    def stage(self, report: GraphReport, stage: str, module: ir.Module) -> None:
        """Called when the module has reached a stage."""
        text = functools.cache(functools.partial(text_of, module))
        trace(f"ir_{stage}", lambda: with_header(stage, text()))
        if self.keep:
            report.stages[stage] = text()
        if self.recording is not None:
            self.recording.stage(stage, text())


def compile_graph(
    gm: torch.fx.GraphModule, options: Options, *, kind: str = "forward", keep_stages: bool = False
) -> Compiled | GraphAsCalls:
    """Compiles a functional ATen graph. ``keep_stages``: the report keeps the IR text of every stage.

    If a step fails, less of the graph is compiled (``symshape.fallbacks``). With ``SYMSHAPE_RECORD`` the graph is
    recorded (``symshape.recording``).
    """
    recording = record_graph(gm, shape_env_of(gm), options, kind)
    watch = Watch(keep_stages, recording)
    compiled, fallbacks = attempts(lambda attempt: _compile(gm, options, attempt, kind, watch), options, recording)
    compiled.report.fallbacks += fallbacks
    warn_of_fallbacks(fallbacks, kind)
    if recording is not None:
        recording.end(compiled.report)
    return compiled


def attempts(
    compile_once: Callable[[Attempt], Result], options: Options, recording: Recording | None = None
) -> tuple[Result, tuple[Fallback, ...]]:
    """Repeats a compile with less of the graph until it succeeds. Returns its result and the fallbacks."""
    attempt = Attempt(verify_each=knobs.VERIFY_EACH.read())
    while True:
        try:
            with collected_later():
                return with_room(compile_once, attempt), attempt.fallbacks
        except Exception as error:
            if recording is not None and not isinstance(error, UnverifiedFailure):  # that is tried again
                recording.failed(error)
            attempt = next_attempt(attempt, error, options.strict, _folder(options))


def _compile(
    gm: torch.fx.GraphModule, options: Options, attempt: Attempt, kind: str, watch: Watch
) -> Compiled | GraphAsCalls:
    """One attempt. StepFailure if a step fails."""
    timings: Timings = []
    with timed("merge-equal-nodes", timings):
        graph = gm if "merge-equal-nodes" in options.disable_passes else common_subexpressions(gm)
    env = shape_env_of(graph)
    if attempt.as_calls:
        return graph_as_calls(graph, env, kind=kind)
    target, device = choose_target(gm, options)
    if device.startswith("cuda"):
        with contextlib.suppress(ImportError):  # load_kernels says what is missing
            hash_of_triton()
    if "gather-items" not in options.disable_passes:
        with timed("gather-items", timings):
            gather_items(graph)
    if target == "triton" and "split-biases" not in options.disable_passes:
        with timed("split-biases", timings):
            split_biases(graph)
    of_user = options.pass_files or options.passes  # may create ops of any dialect
    context = dialects.load(ir.Context()) if of_user else dialects.context_of_compile()
    # A CUDA graph reads copies of inputs that move, and what is written to a copy is lost.
    written = () if options.cuda_graphs else written_inputs(gm, kind)
    with timed("import-graph", timings), _importing(gm, options):
        imported = import_graph(graph, context, env, kind=kind, device=device, written=written)
    if watch.recording is not None:
        watch.recording.imported(target, device, imported.constants)
    start = Start(
        imported.module, imported.constants, kind, target, device, Requirements(env), symbols=imported.symbols
    )
    return load(build(start, options, attempt, watch, timings), options, start.require, lasting_inputs(gm))


def build(start: Start, options: Options, attempt: Attempt, watch: Watch, timings: Timings | None = None) -> Built:
    """Compiles a module of any stage to a program. StepFailure if a step fails."""
    timings = [] if timings is None else timings
    disabled = frozenset(options.disable_passes)
    target, module = start.target, start.module
    report = GraphReport(kind=start.kind, target=target, symbols=list(start.symbols), timings=timings)
    module = with_file(module, start.stage, options, report)
    watch.stage(report, start.stage, module)

    chosen = {"target": target, "cpu": options.cpu, "kind": start.kind}
    pass_context = PassContext(options=chosen, disabled=disabled, require=start.require)
    pipelines = dict(stage_pipelines(options, attempt, target))
    for stage in stages_after(start.stage):
        hooks = Hooks(timings=timings)
        steps, each = pipelines.get(stage, ()), attempt.verify_each
        run_pipeline(module, steps, pass_context, hooks=hooks, debug_dir=_folder(options), verify_each=each)
        before, module = module, with_file(module, stage, options, report)
        if module is not before:
            pass_context.scratch.clear()
        if stage in pipelines or stage in TARGETS or module is not before:  # a stage is there for every target
            watch.stage(report, stage, module)
    if not attempt.verify_each:
        with timed("verify", timings):
            _verify(module)
    report.statistics, report.remarks = pass_context.statistics, pass_context.remarks
    report.constraints = read_constraints(module, pass_context) if watch.keep else []

    with module.context, ir.Location.unknown(module.context):
        with _replayable("kernel code", target, module, options):
            loop_steps = LoopSteps(disabled)
            read = pass_context.scratch.get(LOOPS, {})
            kernels = build_kernels(module, target, options.opt_level, options.cpu, read, loop_steps)
        timings += loop_steps.timings.items()
        functions = main_functions(module)
        with timed("program", timings), _replayable("program", "program", module, options):
            text = emit_program(functions, kernels.callees)
    program = Program(
        source=text.source,
        targets=text.targets,
        checks=text.checks,
        constants=start.constants,
        device=start.device,
        pointers=target == "cpu",
        user_lines=text.user_lines,
        launches=len(text.launches) + len(text.calls),
        uncaptured=text.uncaptured,
        segments=text.segments,
    )
    _fill(report, text, kernels, options.cpu)
    return Built(program, kernels, text, report, module)


def _verify(module: ir.Module) -> None:
    """UnverifiedFailure if a pass has left invalid IR behind."""
    with collect_diagnostics(module.context) as diagnostics, module.context, ir.Location.unknown():
        valid = verify(module)
    if not valid:
        said = "; ".join(diagnostic.message for diagnostic in diagnostics)
        raise UnverifiedFailure(f"the passes produced invalid IR: {said}", step="verify")


def load(built: Built, options: Options, require: Require, lasting: Collection[int] = ()) -> Compiled:
    """Loads a program. ``lasting``: positions of inputs whose memory does not move. StepFailure if it cannot be
    loaded."""
    program, image = built.program, built.kernels.image
    capture = Capture(lasting, built.report.cuda_graphs) if options.cuda_graphs else None
    with timed("load", built.report.timings), _replayable("load", built.kernels.target, built.module, options):
        run = load_program(program, load_kernels(image, autotune=options.autotune), capture, options.pad_products)
    takes_boxed_arguments(run)
    return Compiled(run, built.report, built.text.entry, program, image, require.made)


def stage_pipelines(
    options: Options, attempt: Attempt | None = None, target: str = "triton"
) -> list[tuple[str, list[Any]]]:
    """The passes of each stage, after the user's additions and removals, and those of an ``attempt``; without stages
    that are for other targets only. OptionError for an unknown pass or option."""
    attempt = attempt or Attempt()
    own = {cls.name: cls for file in options.pass_files for cls in passes_of_file(file)}
    extra = [step for element in options.passes for step in parse_pipeline(element, own)]
    check_optional(options.disable_passes, [step_name(step) for step in extra])
    changed = {name: pass_with(name, text) for name, text in options.pass_options}
    disabled = {*options.disable_passes, *attempt.without}
    if extra or disabled & {"lower-aten", "inline-layers"}:  # the user's passes see every layer
        disabled.add("outline-layers")
    pipelines = []
    for stage, elements in STAGES.items():
        if target not in TARGETS.get(stage, (target,)):
            continue
        steps = [changed.get(name) or step for name in elements for step in parse_pipeline(name)]
        steps += extra if stage == "linalg" else []
        steps = [kept for step in steps for kept in _unless(disabled, step)]
        steps = [replace(s, keep=(*s.keep, *attempt.calls)) if isinstance(s, LowerAten) else s for s in steps]
        if steps:
            pipelines.append((stage, steps))
    return pipelines


def _unless(disabled: Set[str], step: Any) -> list[Any]:
    """The step, or its replacement if it is left out."""
    if step_name(step) not in disabled:
        return [step]
    instead = getattr(step, "instead", "")
    return list(parse_pipeline(instead)) if instead else []


def choose_target(gm: torch.fx.GraphModule, options: Options) -> tuple[str, str]:
    """("cpu" | "triton", device of kernels and buffers): of several GPUs the one that most tensors are on.

    Tensors on other devices are left to library calls, and so are all on "meta". CompileError for a device without a
    code generator.
    """
    found: list[tuple[torch.device, str]] = []
    for node in _nodes(gm):
        value = node.meta.get("val")
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(item, torch.Tensor):
                found.append((item.device, node.name))
    return target_of_devices(found, options)


def target_of_devices(tensors: Iterable[tuple[torch.device, str]], options: Options) -> tuple[str, str]:
    """``choose_target``, for the device of each tensor and its name."""
    devices: Counter[torch.device] = Counter()
    first: dict[torch.device, str] = {}
    for device, name in tensors:
        devices[device] += 1
        first.setdefault(device, name)
    for foreign in (d for d in devices if d.type not in ("cpu", "cuda", "meta")):
        raise CompileError(
            f"no code is generated for device {foreign}",
            where=f"tensor {first[foreign]}",
            next_step="move it to cpu or cuda, or leave this part out of torch.compile",
        )
    cuda = [d for d, _ in devices.most_common() if d.type == "cuda"]
    if options.target == "cpu" and cuda:
        raise OptionError(
            "target 'cpu' was asked for, but a tensor is on a GPU",
            where=first[cuda[0]],
            next_step="leave the target out, or move the tensors to the CPU",
        )
    target = "triton" if cuda or options.target == "triton" else "cpu"
    return target, str(cuda[0]) if cuda else "cpu"


def _nodes(gm: torch.fx.GraphModule) -> Iterator[torch.fx.Node]:
    """The nodes of a graph and of its subgraphs."""
    for graph in gm.modules():
        if isinstance(graph, torch.fx.GraphModule):
            yield from graph.graph.nodes


def _folder(options: Options) -> Path:
    return Path(options.debug_dir)


@contextmanager
def _importing(gm: torch.fx.GraphModule, options: Options) -> Iterator[None]:
    """Converts an error inside to a StepFailure of the step "import-graph"."""
    try:
        yield
    except Exception as error:
        cause = _as_ours(error)
        file = write_graph(gm, "import-graph", error, _folder(options))
        raise StepFailure(
            f"the graph cannot be imported: {cause.what}",
            step="import-graph",
            where=cause.where,
            command=f"cat {file}",
            next_step=joined_steps(cause.next_step, f"the graph is in {file}"),
        ) from error


@contextmanager
def _replayable(stage: str, to: str, module: ir.Module, options: Options) -> Iterator[None]:
    """Adds to an error inside the stage, and the command that replays it on the IR."""
    try:
        yield
    except Exception as error:
        file = write_ir(module, stage, _folder(options))
        level = [f"--cpu={options.cpu}"] if to == "cpu" else []
        command = shlex.join(["symshape-translate", str(file), "--from-stage=planned", f"--to={to}", *level])
        cause = _as_ours(error)
        kind = KernelFailure if isinstance(error, KernelError) else StepFailure
        step, operations = (error.step, error.operations) if isinstance(error, StepFailure) else (stage, ())
        raise kind(
            f"stage '{stage}' failed: {cause.what}",
            step=step,
            operations=operations,
            command=command,
            where=cause.where,
            next_step=joined_steps(cause.next_step, f"the IR is in {file}; replay it with\n    {command}"),
        ) from error


def _as_ours(error: Exception) -> SymshapeError:
    """The error, or one of ours with its type and text. Whoever raises it says what to do next."""
    return error if isinstance(error, SymshapeError) else CompileError(f"{type(error).__name__}: {error}")


def _fill(report: GraphReport, text: ProgramText, kernels: KernelSet, cpu: str) -> None:
    report.program_source, report.stub_source = text.source, text.stub
    report.launched = text.launches
    report.called = text.calls
    report.kernels = [_kernel_report(k, kernels.target, report, cpu) for k in kernels.kernels]


def _kernel_report(kernel: KernelCode, target: str, report: GraphReport, cpu: str) -> KernelReport:
    module = report.stages.get("planned", "")
    return KernelReport(kernel.name, kernel.kind, target, kernel.source, kernel.loops, kernel.variants, module, cpu)
