"""The ``torch.compile`` backend: calls AOTAutograd, with the compiler for forward and backward."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from symshape.activity import note
from symshape.errors import CompileError, OptionError
from symshape.frontend.bridge.aot_autograd import (
    aot_compile,
    base_arguments,
    parts_of_bases,
    plain_tensors,
    written_arguments,
    written_with_bases,
)
from symshape.frontend.bridge.dynamo import in_eager_mode, is_control_flow, takes_fake_tensors
from symshape.frontend.bridge.fake_tensors import shape_env_of, traced_env_of
from symshape.frontend.bridge.guards import track_sources
from symshape.frontend.bridge.repro_settings import repro_after
from symshape.frontend.bridge.size_cache import start_caching
from symshape.frontend.bridge.traced_layers import forget_traces
from symshape.frontend.decompositions.random_numbers import with_python_numbers
from symshape.frontend.decompositions.table import decomposition_table
from symshape.frontend.graph_rewrites.data_assignments import has_assignments, parts_between_assignments, run_parts
from symshape.frontend.graph_rewrites.data_writes import take_data
from symshape.frontend.graph_rewrites.joint_graph import ready_to_split
from symshape.frontend.graph_rewrites.masks import NAME, MaskReport, rewrite_masks
from symshape.frontend.graph_rewrites.nested_results import take_results_apart
from symshape.frontend.graph_rewrites.repeated_layers import TRACE_LAYERS_ONCE, trace_layers_once
from symshape.frontend.importer.assumptions import Assumptions
from symshape.frontend.importer.specialisations import check_marked, specialisations
from symshape.frontend.opaque_calls.frame_decisions import Reanalyse
from symshape.frontend.opaque_calls.selection import mark_failing_call, replace_marked
from symshape.frontend.patches.aot_autograd.written_layouts import MemoryIsRead
from symshape.frontend.patches.checks.dynamo_errors import passing_dynamo
from symshape.frontend.patches.patch import Scope, is_frame_of_ours
from symshape.frontend.patches.python.input_views import take_layouts_out
from symshape.frontend.patches.python.storage_offsets import guard_where_absolute
from symshape.frontend.patches.registry import in_force, require_known, splitting
from symshape.input_bases import check_bases, or_in_eager_mode
from symshape.live_line import compiling
from symshape.machine.mlir_library import load_mlir
from symshape.options import Options
from symshape.output_code import log_output_code
from symshape.pipeline import DYNAMO, Timings, steps_on, timed
from symshape.plain_frames import traced_by_our_rules
from symshape.policy import SpecialisationPolicy
from symshape.runtime.eager_errors import with_eager_errors
from symshape.runtime.shared_inputs import in_eager_mode_if_shared
from symshape.traced_graphs import backward_program, compile_traced, postpones

if TYPE_CHECKING:  # a graph from the cache needs no report
    from symshape.tools.report import Fallback, GraphReport

log = logging.getLogger("symshape.frames")


@traced_by_our_rules
@passing_dynamo
@compiling("")  # what the frame's compiler has named, or a graph says
def symshape_backend(
    gm: torch.fx.GraphModule,
    example_inputs: list[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | Options | None = None,
    reports: list[GraphReport] | None = None,
    assumptions: Assumptions | None = None,
) -> Any:
    """Compiles a Dynamo graph. ``reports``, if given, takes the report of every graph, with the IR of its stages;
    ``assumptions``: those of ``options``, where they are parsed already."""
    parsed = options if isinstance(options, Options) else Options.parse(options, mode)
    if reports is None and takes_fake_tensors(gm):
        return gm.forward  # there is nothing to be computed
    if parsed is not options and parsed.policy != SpecialisationPolicy():
        raise OptionError("torch.compile takes no policy", next_step="use symshape.compile(fn, policy=...)")
    assumed = assumptions or Assumptions(parsed.assume)
    if repro_after() != "dynamo":
        return _compiled(gm, example_inputs, parsed, reports, assumed)
    from symshape.tools.repro.watch import compile_watched, refuse_comparison, run_watched, watched

    if not is_frame_of_ours():
        refuse_comparison()
    graph = watched(gm, "example_value", parsed, _entry())
    run = compile_watched(graph, lambda: _compiled(gm, example_inputs, parsed, reports, assumed))
    return run_watched(graph, run, boxed=False)


def _entry() -> str:
    """The name of the function that compiles the current frame."""
    return "symshape.compile" if is_frame_of_ours() else "torch.compile"


def _compiled(
    gm: torch.fx.GraphModule,
    example_inputs: list[Any],
    parsed: Options,
    reports: list[GraphReport] | None,
    assumed: Assumptions,
) -> Any:
    """The callable that replaces Dynamo's graph."""
    if has_assignments(gm) and not takes_fake_tensors(gm):
        try:
            return _compiled_in_parts(gm, parsed, reports, assumed)
        except CompileError as error:
            return _as_calls(gm, error, parsed, reports, assumed)
    return _compiled_dynamo_graph(gm, example_inputs, parsed, reports, assumed)


def _compiled_in_parts(
    gm: torch.fx.GraphModule, parsed: Options, reports: list[GraphReport] | None, assumed: Assumptions
) -> Any:
    """A Dynamo graph with ``p.data = v``, split there. CompileError if it cannot be split."""
    parts = parts_between_assignments(gm)
    runs = [_compiled_dynamo_graph(part.graph, part.examples, parsed, reports, assumed) for part in parts]
    return run_parts(gm, parts, runs)


def _compiled_dynamo_graph(
    gm: torch.fx.GraphModule,
    example_inputs: list[Any],
    parsed: Options,
    reports: list[GraphReport] | None,
    assumed: Assumptions,
) -> Any:
    """The callable that replaces a Dynamo graph, or a part of one (``_compiled_in_parts``).

    AOTAutograd traces the graph again whenever a call had to become opaque, a storage must be copied as a whole, or the
    trace of one layer does not serve for another.
    """
    fakes, graphs = takes_fake_tensors(gm), _TracedGraphs(parsed, reports, assumed, _entry())
    callbacks = graphs.callbacks()
    before, scope = len(reports or ()), Scope("graph", eager_draws=parsed.random == "eager")
    require_known(Scope("graph"))  # no fallback serves where PyTorch is another one
    start_caching(traced_env_of(gm))
    _rewrite_before_tracing(gm, graphs.timings)
    example_inputs, give_data = take_data(gm, example_inputs)
    restore_layouts = take_layouts_out(gm)
    rebuild_nested = take_results_apart(gm)
    traced = _outlined(gm, parsed, graphs.timings)
    while True:  # each round makes one more call opaque, copies whole storages, or traces each layer
        graphs.forget()
        try:
            with in_force(scope):
                note("AOTAutograd")
                run = aot_compile(traced, example_inputs, **callbacks)
                _require_fit(parsed, graphs.staged)
                track_sources(traced_env_of(gm))
                if fakes:
                    run = gm
                else:
                    run = _for_inputs_that_share_memory(run, gm, example_inputs, graphs.bases)
                return give_data(restore_layouts(rebuild_nested(with_python_numbers(with_eager_errors(run, gm), gm))))
        except MemoryIsRead:
            scope = replace(scope, keeps_memory=True)
        except Exception as error:
            del (reports or [])[before:]
            if traced is not gm and not isinstance(error, Reanalyse) and not is_control_flow(error):
                log.info("layers are traced one by one: %s", error or type(error).__name__)
                traced = gm
                continue
            if not mark_failing_call(gm, error):
                return restore_layouts(rebuild_nested(_as_calls(gm, error, parsed, reports, assumed)))
            traced = gm
        finally:
            forget_traces(traced)
        replace_marked(gm)


def _for_inputs_that_share_memory(
    run: Callable[..., Any], gm: torch.fx.GraphModule, inputs: list[Any], bases: Sequence[torch.fx.GraphModule]
) -> Callable[..., Any]:
    """``run``, compiled from ``gm`` for ``inputs``, or eager mode where another overlap of inputs requires it.
    ``bases``: the graph, if it takes bases in the place of inputs."""
    eager, tensors = in_eager_mode(gm), plain_tensors(gm)
    if not bases:
        return in_eager_mode_if_shared(run, eager, tensors, written_arguments())
    parts, written = parts_of_bases(bases[-1], inputs), written_with_bases(bases[-1], inputs)
    return in_eager_mode_if_shared(or_in_eager_mode(run, eager), eager, tensors, sorted(written), parts)


@dataclass
class _TracedGraphs:
    """Compiles the graphs that AOTAutograd traces from one Dynamo graph. Their reports go to ``reports``, if given."""

    options: Options
    reports: list[GraphReport] | None
    assumed: Assumptions
    entry: str
    timings: Timings = field(default_factory=list)  # of steps before the next graph is compiled
    masks: list[MaskReport] = field(default_factory=list)
    fallbacks: list[Fallback] = field(default_factory=list)
    staged: list[GraphReport] = field(default_factory=list)  # of graphs that a file of the option ``stage`` may be for
    bases: list[torch.fx.GraphModule] = field(
        default_factory=list
    )  # the graph, if it takes bases in the place of inputs
    waits: bool = False  # whether the forward graph may leave its activations to backward

    def forget(self) -> None:
        """Clears the state of the last trace, before the graph is traced again."""
        del self.masks[:], self.fallbacks[:], self.bases[:], self.staged[:]

    def callbacks(self) -> dict[str, Any]:
        """The arguments of ``aot_compile``."""
        kinds = ("forward", "backward", "inference")
        compilers: dict[str, Any] = {kind: functools.partial(self._compile, kind) for kind in kinds}
        decompositions = decomposition_table(self.options.random == "eager")
        joint = ready_to_split(self._without_masks)
        return compilers | {"decompositions": decompositions, "joint": joint, "splitting": splitting}

    def _compile(self, kind: str, graph: torch.fx.GraphModule, _inputs: Any) -> Any:
        graph = self._without_masks(graph) if kind == "inference" else graph
        env = shape_env_of(graph)
        _add_guards(graph, env, self.assumed, self.timings)
        compiled, run = _compiled_graph(graph, self.options, kind, self.reports is not None, self.entry)
        log_output_code(compiled)
        if self.options.stage:  # a report from disk is decoded on use
            self.staged.append(compiled.report)
        if self.reports is not None:
            compiled.report.timings[:0], self.timings[:] = self.timings, []  # the first graph's report has them
            self.reports.append(_completed(compiled.report, env, self.masks, self.fallbacks))
        if kind == "backward":
            return backward_program(run, graph, self.options, self.waits)
        self.waits = postpones(run)
        if not base_arguments(graph):
            return run
        self.bases.append(graph)
        return check_bases(graph, env, run)

    def _without_masks(self, graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
        """Rewrites boolean masks. In a joint graph that is done before it is split into forward and backward, since the
        elements that a mask selects would be saved for backward."""
        if NAME in self.options.disable_passes:
            return graph
        try:
            with timed(NAME, self.timings):
                graph, self.masks[:] = rewrite_masks(graph)
        except Exception as error:
            load_mlir()
            from symshape.fallbacks import rewrite_fallback

            self.fallbacks[:] = [rewrite_fallback(NAME, graph, error, self.options)]
        return graph


def _compiled_graph(
    graph: torch.fx.GraphModule, options: Options, kind: str, keep_stages: bool, entry: str
) -> tuple[Any, Any]:
    """Compiles a graph of AOTAutograd. Returns the compiled graph and the function that runs it."""
    compile_ = functools.partial(compile_traced, graph, options, kind=kind, keep_stages=keep_stages)
    if repro_after() != "aot":
        compiled = compile_()
        return compiled, compiled.run
    from symshape.tools.repro.watch import compile_watched, run_watched, watched

    traced = watched(graph, "val", options, entry)
    compiled = compile_watched(traced, compile_)
    return compiled, run_watched(traced, compiled.run, boxed=True)


def _require_fit(options: Options, staged: Sequence[GraphReport]) -> None:
    """OptionError for a file of the option ``stage`` that fits none of a function's graphs."""
    if options.stage:
        from symshape.stage_files import require_fit

        require_fit(options, staged)


def _rewrite_before_tracing(gm: torch.fx.GraphModule, timings: Timings) -> None:
    """Rewrites Dynamo's graph in place, before AOTAutograd traces it (the steps of ``symshape/pipeline.py``)."""
    for step in steps_on(DYNAMO):
        with timed(step.name, timings):
            step.function()(gm)


def _outlined(gm: torch.fx.GraphModule, options: Options, timings: Timings) -> torch.fx.GraphModule:
    """The graph that AOTAutograd traces: ``gm``, or a copy with its equal layers outlined."""
    if TRACE_LAYERS_ONCE in options.disable_passes:
        return gm
    with timed(TRACE_LAYERS_ONCE, timings):
        return trace_layers_once(gm) or gm


def _add_guards(graph: torch.fx.GraphModule, env: Any, assumed: Assumptions, timings: Timings) -> None:
    """Adds guards that the trace has not made, and raises for conditions that cannot hold."""
    with timed("check-marked-sizes", timings):
        check_marked(env)
    with timed("guard-offsets", timings):
        guard_where_absolute(graph, env)
    with timed("guard-assumptions", timings):
        assumed.add_guards(env)


def _completed(
    report: GraphReport, env: Any, masks: Sequence[MaskReport], fallbacks: Sequence[Fallback]
) -> GraphReport:
    """Adds to a report the findings from before the graph was compiled: specialisations, masks, fallbacks."""
    report.specialisations = specialisations(env)
    report.remarks[NAME] = list(masks)
    report.fallbacks[:0] = fallbacks
    return report


def _as_calls(
    gm: torch.fx.GraphModule,
    error: Exception,
    options: Options,
    reports: list[GraphReport] | None,
    assumed: Assumptions,
) -> Callable[..., Any]:
    """The fallback for a graph that AOTAutograd could not trace: it runs operator by operator, as in eager mode, with
    one warning. Raises the error if no fallback is allowed."""
    load_mlir()
    from symshape.fallbacks import eager_graph_report, may_fall_back

    if isinstance(error, Reanalyse) or not may_fall_back(error, options.strict):
        raise error
    assumed.add_guards(traced_env_of(gm))  # what the user has said of sizes is checked all the same
    report = eager_graph_report(gm, error, options)
    if reports is not None:
        reports.append(report)
    return in_eager_mode(gm)
