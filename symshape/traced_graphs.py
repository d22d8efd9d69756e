"""Compiles a traced graph; computations on parameters alone are moved out of it first, and run when a parameter
changes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

import torch

from symshape.batched_tangents import takes_batches
from symshape.cache.compiled_graphs import compile_or_reuse
from symshape.frontend.bridge.aot_autograd import (
    takes_boxed_arguments,
    takes_undefined_gradients,
    tangents_of,
    traced_later,
)
from symshape.frontend.bridge.fake_tensors import shape_env_of
from symshape.frontend.bridge.guards import guard_counts, ignored_guards
from symshape.frontend.bridge.repro_settings import repro_after
from symshape.frontend.bridge.running_operators import without_modes
from symshape.frontend.importer.requirements import LateGuard
from symshape.machine.mlir_library import load_mlir
from symshape.options import Options
from symshape.pipeline import Timings, timed
from symshape.runtime.postponed_activations import PostponedActivations, with_activations
from symshape.runtime.torch_c import without_autocast
from symshape.runtime.undefined_gradients import with_undefined_gradients, with_zeros
from symshape.stack_room import with_room

if TYPE_CHECKING:
    from symshape.frontend.graph_rewrites.parameter_graph import ParameterGraph
    from symshape.tools.report import Fallback

NAME: Final = "pack-convolutions"
POSTPONED: Final = "postpone-activations"


def compile_traced(gm: torch.fx.GraphModule, options: Options, *, kind: str, keep_stages: bool = False) -> Any:
    """``compile_or_reuse``. In an inference graph on a CPU, convolutions are packed first: ``entry`` then has layouts
    of further arguments, behind those of the graph, which ``run`` adds. A forward graph of convolutions with batch
    norms in eval mode has a second program, for calls without ``backward``: the arguments of the backward program are
    then those of ``backward_program``."""
    may_pack = options.target != "triton" and NAME not in options.disable_passes and _has_convolutions(gm)
    if kind == "inference" and may_pack:
        return _compile_packed(gm, options, keep_stages)
    compiled = compile_or_reuse(gm, options, kind=kind, keep_stages=keep_stages)
    if kind == "forward" and may_pack and POSTPONED not in options.disable_passes:
        with timed(POSTPONED, compiled.report.timings):
            _postpone_activations(gm, options, compiled)
    return compiled


def backward_program(
    run: Callable[[list[Any]], Any], graph: torch.fx.GraphModule, options: Options, waits: bool
) -> Callable[[list[Any]], Any]:
    """``run`` of a compiled backward graph as AOTAutograd calls it: with undefined tangents, with a batch of tangents,
    or with activations that wait, which they do if ``waits`` (`postpones`)."""
    (output,) = graph.graph.find_nodes(op="output")
    gradients = tangents_of(graph)
    tangents = [i for i, node in enumerate(graph.graph.find_nodes(op="placeholder")) if node in gradients]
    make = None
    if len(tangents) > 1:
        make = functools.partial(with_room, _pruned_program, graph, options, traced_later())
    program = takes_batches(with_undefined_gradients(run, tangents, len(output.args[0]), make))
    program = with_activations(program) if waits else program
    takes_boxed_arguments(program)
    zeros = functools.cache(functools.partial(_zeros, graph)) if len(tangents) > 1 else None
    takes_undefined_gradients(program, functools.partial(with_zeros, tangents, zeros))
    return program


def _zeros(gm: torch.fx.GraphModule) -> Callable[..., list[torch.Tensor]]:
    from symshape.frontend.graph_rewrites.undefined_gradients import zeros_for_gradients

    with without_modes():
        return zeros_for_gradients(gm)


def _pruned_program(
    gm: torch.fx.GraphModule,
    options: Options,
    traced: Callable[[], AbstractContextManager[Any]],
    undefined: frozenset[int],
) -> Callable[[list[Any]], Any]:
    """Compiles a backward graph without some of its tangents, between calls. It runs as library calls if its program
    would take a guard. ``traced``: see ``traced_later``."""
    from symshape.frontend.graph_rewrites.undefined_gradients import without_gradients

    env = shape_env_of(gm)
    guards = guard_counts(env), ignored_guards(env)
    with traced(), without_modes(), torch.no_grad(), without_autocast():
        graph = without_gradients(gm, undefined)
        try:
            run = compile_traced(graph, options, kind="backward").run
        except LateGuard:
            run = None
        if run is None or (guard_counts(env), ignored_guards(env)) != guards:
            from symshape.graph_as_calls import graph_as_calls

            run = graph_as_calls(graph, env, kind="backward").run
    return run


def postpones(run: Callable[[list[Any]], Any]) -> bool:
    """Whether a compiled forward graph may leave its activations to ``backward``."""
    return getattr(run, "postponed", None) is not None


def _compile_packed(gm: torch.fx.GraphModule, options: Options, keep_stages: bool) -> Any:
    """Compiles an inference graph."""
    timings: Timings = []
    fallbacks: list[Fallback] = []
    with timed(NAME, timings):
        graph, parameters = _packed(gm, options, fallbacks)
    compiled = compile_or_reuse(graph, options, kind="inference", keep_stages=keep_stages)
    compiled.report.timings[:0] = timings
    compiled.report.fallbacks[:0] = fallbacks
    if parameters is not None:
        compiled.run = _with_constants(compiled.run, parameters)
    return compiled


def _postpone_activations(gm: torch.fx.GraphModule, options: Options, compiled: Any) -> None:
    """Gives a compiled forward graph a second program, which is compiled at the second call, if its convolutions can be
    packed. The report is the first program's."""
    from symshape.frontend.graph_rewrites.packed_convolutions import folds_norms
    from symshape.frontend.graph_rewrites.results_alone import results_alone

    if options.stage or repro_after() == "aot":
        return
    alone = results_alone(gm)
    if alone is None or not folds_norms(alone.graph):
        return
    compiled.report.remarks[POSTPONED] = ["computes results alone from the second call on, until backward is called"]
    make = functools.partial(with_room, _results_program, alone.graph, options, traced_later())
    postponed = PostponedActivations(compiled.run, make, alone.places)
    run = postponed.forward

    def forward(args: list[Any]) -> Any:
        return run(args)

    forward.postponed = postponed  # type: ignore[attr-defined]
    takes_boxed_arguments(forward)
    compiled.run = forward


def _results_program(
    gm: torch.fx.GraphModule, options: Options, traced: Callable[[], AbstractContextManager[Any]]
) -> Callable[[list[Any]], Any] | None:
    """Compiles the graph of results alone, between calls. None if its convolutions are not packed, or if that would
    take a guard: those of the frame are in force already. ``traced``: see ``traced_later``."""
    env = shape_env_of(gm)
    guards = guard_counts(env), ignored_guards(env)
    fallbacks: list[Fallback] = []
    try:
        with traced(), without_modes(), torch.no_grad(), without_autocast():
            graph, parameters = _packed(gm, options, fallbacks)
            other = None if parameters is None else compile_or_reuse(graph, options, kind="inference")
    except LateGuard:
        return None
    if parameters is None or other is None or (guard_counts(env), ignored_guards(env)) != guards:
        return None
    return _with_constants(other.run, parameters)


def _packed(
    gm: torch.fx.GraphModule, options: Options, fallbacks: list[Fallback]
) -> tuple[torch.fx.GraphModule, ParameterGraph | None]:
    """A copy of the graph with its convolutions packed; the graph itself where that does not pay, or fails."""
    from symshape.frontend.graph_rewrites.packed_convolutions import pack_convolutions

    try:
        copy = _copy(gm)
        parameters = pack_convolutions(copy, options.cpu)
    except Exception as error:
        load_mlir()
        from symshape.fallbacks import rewrite_fallback

        fallbacks.append(rewrite_fallback(NAME, gm, error, options))
        return gm, None
    return (gm, None) if parameters is None else (copy, parameters)


def _has_convolutions(gm: torch.fx.GraphModule) -> bool:
    """Whether there is anything to pack. Reports of other graphs are not touched: those of graphs from the cache are
    decoded when somebody asks for them."""
    return bool(gm.graph.find_nodes(op="call_function", target=torch.ops.aten.convolution.default))


def _copy(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Nodes and metadata are copied, and constants are shared."""
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in gm.graph.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    copy = torch.fx.GraphModule(gm, graph)
    copy.meta = gm.meta
    return copy


def _with_constants(run: Callable[[list[Any]], Any], parameters: ParameterGraph) -> Callable[[list[Any]], Any]:
    """Wraps a program: passes the constants computed from its parameters as further arguments."""
    from symshape.runtime.parameter_constants import ParameterConstants

    constants = ParameterConstants(parameters.graph, parameters.positions)

    def with_constants(args: list[Any]) -> Any:
        args += constants.of(args)
        return run(args)

    takes_boxed_arguments(with_constants)
    return with_constants
