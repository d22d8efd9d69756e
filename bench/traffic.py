"""Bytes that each model's graphs move and kernels that they launch, ours beside Inductor's.

    python bench/traffic.py [--models bert,t5] [--graphs inference,training] [--list] [--out FILE.json [--add]]

Each side traces the model in its own way, with the same partitioner, and counts at the sizes first seen. A kernel of
Inductor's is a scheduler node left after fusion that is neither a no-op nor an extern call. Bytes are those that the
points of a kernel reach, of each tensor at most the whole: rows of a table count as rows, for both sides. "its metric"
is what `TORCH_LOGS=inductor_metrics` says, which takes most of what a fused kernel touches for read whole. A library
call moves each of its buffers once, again on both sides, and is counted apart. Nothing is compiled.
"""

from __future__ import annotations

import argparse
import copy
import functools
import json
import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from inductor_nodes import schedule
from torch_mlir import ir

from symshape import dialects
from symshape.analysis.fold_loops import fold
from symshape.analysis.normalise_loops import normalise
from symshape.analysis.read_kernel import read_kernel
from symshape.codegen.host.host_program import Callees, emit_program
from symshape.compiler import stage_pipelines
from symshape.dialects.accessors import kernel_functions, main_functions
from symshape.frame_compiler import compile_with
from symshape.frontend.bridge.aot_autograd import aot_compile
from symshape.frontend.bridge.fake_tensors import shape_env_of
from symshape.frontend.decompositions.table import decomposition_table
from symshape.frontend.graph_rewrites.common_subexpressions import common_subexpressions
from symshape.frontend.graph_rewrites.joint_graph import ready_to_split
from symshape.frontend.graph_rewrites.masks import rewrite_masks
from symshape.frontend.importer.import_fx import import_graph
from symshape.frontend.importer.requirements import Requirements
from symshape.frontend.patches.patch import Scope
from symshape.frontend.patches.registry import in_force, splitting
from symshape.options import Options
from symshape.passes.framework.base import PassContext
from symshape.passes.framework.manager import run_pipeline
from symshape.tools.measure import write_result
from symshape.tools.terminal import Progress, heading, table
from symshape.tools.traffic import call_bytes, kernel_bytes
from symshape.tools.zoo import MODELS, Model

KINDS = ("inference", "forward", "backward")


@dataclass
class Side:
    """One compiler's version of a graph; lists have an entry for each launch and for each call."""

    kernel_bytes: list[int] = field(default_factory=list)
    reached_bytes: list[int] = field(default_factory=list)
    library_bytes: list[int] = field(default_factory=list)
    library_calls: list[str] = field(default_factory=list)
    details: list[str] = field(default_factory=list)


@dataclass
class Row:
    """One graph: ``kind`` is one of ``KINDS``."""

    model: str
    kind: str
    symshape: Side
    inductor: Side


def ours(graph: torch.fx.GraphModule, kind: str) -> Side:
    """Our stages up to the program."""
    graph = common_subexpressions(graph)
    env = shape_env_of(graph)
    context = dialects.load(ir.Context())
    imported = import_graph(graph, context, env)
    passes = PassContext(options={"target": "cpu", "kind": kind}, require=Requirements(env))
    for _, steps in stage_pipelines(Options.parse(None)):
        run_pipeline(imported.module, steps, passes)
    with context, ir.Location.unknown(context):
        read = [normalise(fold(read_kernel(function))) for function in kernel_functions(imported.module)]
        kernels = {kernel.name: kernel for kernel in read}
        host = main_functions(imported.module)
        checking = frozenset(k.name for k in kernels.values() if k.has_error_slot("cpu"))
        text = emit_program(host, Callees(pointers=True, checking=checking))
    hints = {row.name: row.hint for row in imported.symbols if row.hint >= 0}
    side = Side(library_calls=[call.target for call in text.calls])
    for name, arguments in text.launches:
        kernel = kernels[name]
        values = dict(zip(kernel.symbols, (e.evaluate(hints) for e in arguments)))
        side.kernel_bytes.append(kernel_bytes(kernel, values, whole=True))
        side.reached_bytes.append(kernel_bytes(kernel, values))
        side.details.append(_describe(kernel, values))
    side.library_bytes = [call_bytes(call, hints) for call in text.calls]
    return side


def _describe(kernel: Any, values: dict[str, int]) -> str:
    dims = " x ".join(f"{d.size.evaluate(values)}{' reduced' if d.reduced else ''}" for d in kernel.dims)
    args = [f"{a.name}:{a.dtype}{[s.evaluate(values) for s in a.sizes]}" for a in kernel.args]
    return f"{kernel.name} over {dims or 'one point'}: {', '.join(args)}"


def graphs_of(model: Model, training: bool) -> list[Row]:
    """Compares the graphs of an inference call, or those of a call with gradients."""
    mine = _compiled(model, training, lambda graph, inputs, kind: ours(graph, kind), _our_backend)
    theirs = _compiled(model, training, _inductors, _inductor_backend)
    return [Row(model.name, kind, mine[kind], theirs[kind]) for kind in KINDS if kind in mine]


def _inductors(graph: torch.fx.GraphModule, inputs: list[Any], kind: str) -> Side:
    lowered = schedule(copy.deepcopy(graph), inputs, kind=kind)
    return Side(
        lowered.kernel_bytes, lowered.reached_bytes, lowered.library_bytes, lowered.library_calls, lowered.details
    )


Measure = Callable[[torch.fx.GraphModule, list[Any], str], Side]


def _compiled(model: Model, training: bool, measure: Measure, backend: Callable[..., Any]) -> dict[str, Side]:
    """One call of the model, whose graphs are measured by kind and run as they were traced."""
    from torch._functorch.aot_autograd import make_boxed_func

    found: dict[str, Side] = {}

    def compiler(graph: torch.fx.GraphModule, inputs: list[Any], kind: str) -> Any:
        if kind in found:
            raise RuntimeError(f"{model.name} has several graphs")
        found[kind] = measure(graph, inputs, kind)
        return make_boxed_func(graph.forward)

    torch._dynamo.reset()
    with torch.set_grad_enabled(training):
        compile_with(model.build(), functools.partial(backend, compiler))(**model.inputs(model.first_shapes[0]))
    return found


def _our_backend(compiler: Any, graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
    """As `symshape.backend` does it."""

    def rewrite(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
        return rewrite_masks(gm)[0]

    def compile_one(kind: str, gm: torch.fx.GraphModule, fakes: list[Any]) -> Any:
        return compiler(rewrite(gm) if kind == "inference" else gm, fakes, kind)

    kinds = {kind: functools.partial(compile_one, kind) for kind in KINDS}
    with in_force(Scope("graph")):
        how: dict[str, Any] = {"joint": ready_to_split(rewrite), "splitting": splitting, **kinds}
        return aot_compile(graph, inputs, decompositions=decomposition_table(), **how)


def _inductor_backend(compiler: Any, graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
    from torch._functorch import config
    from torch._inductor.compile_fx import compile_fx

    def inner(gm: Any, fakes: Any, *, is_backward: bool = False, is_inference: bool = False, **_: Any) -> Any:
        return compiler(gm, fakes, "backward" if is_backward else "inference" if is_inference else "forward")

    with config.patch(force_non_lazy_backward_lowering=True):
        return compile_fx(graph, inputs, inner_compile=inner)


def report(rows: list[Row], listed: bool) -> None:
    cells = []
    for row in rows:
        mine, theirs = row.symshape, row.inductor
        kernels = len(mine.kernel_bytes), len(theirs.kernel_bytes)
        moved = sum(mine.reached_bytes), sum(theirs.reached_bytes)
        called = sum(mine.library_bytes), sum(theirs.library_bytes)
        cells.append(
            [
                row.model,
                row.kind,
                *kernels,
                _ratio(*kernels),
                *map(_kilobytes, moved),
                _ratio(*moved),
                _kilobytes(sum(theirs.kernel_bytes)),
                len(mine.library_calls),
                len(theirs.library_calls),
                *map(_kilobytes, called),
                _ratio(moved[0] + called[0], moved[1] + called[1]),
            ]
        )
    header = [
        "model",
        "graph",
        "kernels",
        "Inductor's",
        "ratio",
        "KB",
        "Inductor's",
        "ratio",
        "its metric",
        "calls",
        "extern",
        "calls KB",
        "extern KB",
        "kernels and calls: ratio",
    ]
    print(table(header, cells))
    for row in rows if listed else ():
        for name, side in (("symshape", row.symshape), ("Inductor", row.inductor)):
            print(heading(f"{row.model} {row.kind}: {name}"))
            for whole, reached, text in zip(side.kernel_bytes, side.reached_bytes, side.details):
                print(f"  {_kilobytes(whole):>10} {_kilobytes(reached):>10}  {text}")
            for size, text in zip(side.library_bytes, side.library_calls):
                print(f"  {_kilobytes(size):>21}  call {text}")


def _ratio(mine: int, theirs: int) -> float | str:
    return mine / theirs if theirs else "-"


def _kilobytes(size: int) -> str:
    return f"{size / 1024:.1f}"


def measure(names: Iterable[str], kinds: list[str]) -> list[Row]:
    chosen = list(names)
    rows: list[Row] = []
    with Progress("traffic", len(chosen) * len(kinds)) as progress:
        for name in chosen:
            for kind in kinds:
                progress.say(f"{name} {kind}")
                rows += graphs_of(MODELS[name], kind == "training")
                progress.step()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--graphs", default="inference,training")
    parser.add_argument("--list", action="store_true", help="every kernel and call of both sides")
    parser.add_argument("--out")
    parser.add_argument("--add", action="store_true", help="keep what the file says of other models")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    models = options.models.split(",")
    rows = measure(models, options.graphs.split(","))
    report(rows, options.list)
    if options.out:
        kept = _earlier(Path(options.out), models) if options.add else []
        found = sorted([*kept, *map(asdict, rows)], key=lambda row: list(MODELS).index(row["model"]))
        write_result(options.out, "traffic", found)


def _earlier(path: Path, models: list[str]) -> list[dict[str, Any]]:
    """The rows of a result that are not measured again."""
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    return [row for row in rows if row["model"] not in models]


if __name__ == "__main__":
    main()
