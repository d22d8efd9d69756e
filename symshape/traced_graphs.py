"""Compiles a traced graph; computations on parameters alone are moved out of it first, and run when a parameter
changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import torch

from symshape.cache.compiled_graphs import compile_or_reuse
from symshape.frontend.bridge.aot_autograd import takes_boxed_arguments
from symshape.machine.mlir_library import load_mlir
from symshape.options import Options
from symshape.pipeline import Timings, timed

if TYPE_CHECKING:
    from symshape.frontend.graph_rewrites.parameter_graph import ParameterGraph
    from symshape.tools.report import Fallback

NAME: Final = "pack-convolutions"


def compile_traced(gm: torch.fx.GraphModule, options: Options, *, kind: str, keep_stages: bool = False) -> Any:
    """``compile_or_reuse``. In an inference graph on a CPU, convolutions are packed first: ``entry`` then has layouts
    of further arguments, behind those of the graph, which ``run`` adds."""
    if kind != "inference" or options.target == "triton" or NAME in options.disable_passes:
        return compile_or_reuse(gm, options, kind=kind, keep_stages=keep_stages)
    timings: Timings = []
    fallbacks: list[Fallback] = []
    with timed(NAME, timings):
        graph, parameters = _packed(gm, options, fallbacks)
    compiled = compile_or_reuse(graph, options, kind=kind, keep_stages=keep_stages)
    compiled.report.timings[:0] = timings
    compiled.report.fallbacks[:0] = fallbacks
    if parameters is not None:
        compiled.run = _with_constants(compiled.run, parameters)
    return compiled


def _packed(
    gm: torch.fx.GraphModule, options: Options, fallbacks: list[Fallback]
) -> tuple[torch.fx.GraphModule, ParameterGraph | None]:
    """A copy of the graph with its convolutions packed; the graph itself if it has none, or that fails."""
    if not gm.graph.find_nodes(op="call_function", target=torch.ops.aten.convolution.default):
        return gm, None
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
