"""Compiled graphs on disk: a graph that was compiled before is loaded. A hit imports no MLIR.

An entry holds plain data: the host program's source, its checks, kernels (machine code of CPU kernels, source of Triton
kernels), the requirements on the inputs, and the report. It is used if its requirements can be added as guards again.
Tensor constants of the graph are not in it: the program gets those of the present graph. See docs/cache.md.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import logging
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import torch

import symshape
from symshape.artifact.compiled_program import Program, target_name
from symshape.artifact.kernel_image import KernelImage
from symshape.cache.graph_key import GraphKey, graph_key
from symshape.cache.own_files import own_digest
from symshape.cache.records import from_json, to_json
from symshape.errors import CacheError, CompileError
from symshape.frontend.bridge.aot_autograd import lasting_inputs, takes_boxed_arguments, written_inputs
from symshape.frontend.bridge.fake_tensors import shape_env_of
from symshape.frontend.bridge.guards import guard_counts
from symshape.frontend.bridge.shape_env import symbol_hints
from symshape.frontend.importer.requirements import Requirements
from symshape.frontend.importer.returned_tensors import relations
from symshape.live_line import compiling
from symshape.machine.instruction_sets import processor
from symshape.machine.mlir_library import load_mlir
from symshape.options import Options
from symshape.passes.framework import registry
from symshape.prover.numbers.condition import Condition
from symshape.prover.numbers.expr import Expr
from symshape.recording import is_recording
from symshape.runtime.load_kernels import load_kernels
from symshape.runtime.program import Capture, load_program, resolve_target
from symshape.runtime.store import Cache, open_cache
from symshape.trace_artifacts import trace_compiled, trace_graph

if TYPE_CHECKING:  # at run time these would load MLIR
    from symshape.codegen.host.entry_guards import EntryGuards
    from symshape.compiler import Compiled
    from symshape.graph_as_calls import GraphAsCalls
    from symshape.tools.report import GraphReport

log = logging.getLogger("symshape.cache")
KIND = "graphs"


@dataclass(frozen=True)
class Entry:
    """The kept result of a compile, without machine code and report.

    ``constants``: how the program's constants are found: ("attribute", path in the graph), ("callable", name) or
    ("value", plain data). ``requirements`` are over canonical names of symbols; ``symbols``: name -> canonical name.
    """

    program: Program
    constants: tuple[tuple[str, Any], ...]
    kernels: KernelImage
    requirements: tuple[tuple[Condition, str], ...]
    symbols: Mapping[str, str]


@dataclass
class Loaded:
    """A graph from the cache; like ``symshape.compiler.Compiled``, but the report is only decoded on use."""

    run: Any
    sections: Mapping[str, bytes]
    hints: Mapping[str, int]  # the sizes first seen, by the entry's names
    seconds: float
    captures: list[str]  # what is captured, which is not known before calls

    @functools.cached_property
    def report(self) -> GraphReport:
        report: GraphReport = from_json(self.sections["report"])
        report.symbols = [dataclasses.replace(row, hint=self.hints.get(row.name, -1)) for row in report.symbols]
        report.timings = [("cache", self.seconds)]
        report.cache = "hit"
        report.cuda_graphs = self.captures
        return report

    @functools.cached_property
    def entry(self) -> EntryGuards:
        guards: EntryGuards = from_json(self.sections["guards"])
        return guards


def compile_or_reuse(
    gm: torch.fx.GraphModule, options: Options, *, kind: str = "forward", keep_stages: bool = False
) -> Compiled | GraphAsCalls | Loaded:
    """``symshape.compiler.compile_graph``, or its stored result for an equal graph. With ``keep_stages``, and while
    graphs are recorded, the graph is always compiled, since stages are not stored; the result is stored all the same.
    With a stage of the user's nothing is stored."""
    trace_graph(gm, options, kind)
    with compiling(f"{kind} graph"):
        compiled = _compiled_or_reused(gm, options, kind, keep_stages)
    trace_compiled(compiled)
    return compiled


def _compiled_or_reused(
    gm: torch.fx.GraphModule, options: Options, kind: str, keep_stages: bool
) -> Compiled | GraphAsCalls | Loaded:
    cache = open_cache(KIND) if options.cache and not options.stage else None
    if cache is None:
        return _compile(gm, options, kind, keep_stages)
    started = time.perf_counter()
    env = shape_env_of(gm)
    try:
        graph = graph_key(gm, env)
        key = entry_key(graph, gm, options, kind)
    except Exception as error:  # whatever a graph has in it, it can still be compiled
        if options.strict and not isinstance(error, CacheError):
            raise
        outcome = _not_cached(error)
        log.info("%s graph: %s", kind, outcome)
        compiled = _compile(gm, options, kind, keep_stages)
        compiled.report.cache = outcome
        return compiled
    loaded = None if keep_stages or is_recording() else _load(cache, key, graph, gm, env, options, started)
    log.info("%s graph %s: %s", kind, key[:12], "hit" if loaded else "miss")
    return loaded or _compile_and_store(cache, key, graph, gm, env, options, kind, keep_stages)


def _not_cached(error: Exception) -> str:
    """The outcome in the report where a graph cannot be kept: why, where, and what to do about it."""
    if not isinstance(error, CacheError):
        return f"not cached: {type(error).__name__}: {error}"
    where = f" ({error.where})" if error.where else ""
    return f"not cached: {error.what}{where}; {error.next_step}"


def has_program(compiled: Compiled | GraphAsCalls) -> TypeGuard[Compiled]:
    """Whether there is a program."""
    return hasattr(compiled, "program")


def _compile(gm: torch.fx.GraphModule, options: Options, kind: str, keep_stages: bool) -> Compiled | GraphAsCalls:
    load_mlir()
    from symshape.compiler import compile_graph

    return compile_graph(gm, options, kind=kind, keep_stages=keep_stages)


# --- the key ----------------------------------------------------------------------------------------------------------


def entry_key(graph: GraphKey, gm: torch.fx.GraphModule, options: Options, kind: str) -> str:
    """The key of an entry: a digest of ``graph_key``'s text and of everything else that the program depends on
    (versions, options, passes, processor). CacheError for passes that no file of the options defines, and if our own
    code cannot be read."""
    if not _IMPORTED:
        raise CacheError(
            "symshape's own files cannot be read, so that versions of its code cannot be told apart",
            next_step="install it where this user can read its files",
        )
    for element in options.passes:
        if not registry.is_from(element, options.pass_files):
            raise CacheError(
                f"the pass {element} is defined outside of pass_files",
                next_step="name its file in options={'pass_files': [...]}",
            )
    parts = {
        "graph": graph.digest,
        "kind": kind,
        "returned": list(relations(gm.graph, kind).values()),
        "written": [] if options.cuda_graphs else written_inputs(gm, kind),
        "versions": versions(),
        "options": options.in_key() | {"disable_passes": sorted(options.disable_passes)},
        "pass files": [_digest(Path(file).read_bytes()) for file in options.pass_files],
        "device": _device(gm, options),
    }
    log.debug("%s", parts)
    return _digest(to_json(parts))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@functools.cache
def versions() -> Mapping[str, str]:
    """The versions of everything that makes or runs compiled code; ours with a digest of our own files, since they may
    be edited."""
    found = {"python": sys.version, "torch": f"{torch.__version__} {torch.version.git_version}"}
    for name in ("torch-mlir", "triton", "llvmlite", "islpy", "sympy"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = ""
    return {**found, "symshape": f"{symshape.__version__} {_IMPORTED}".rstrip()}


# Of the files as this process has imported them: somebody may edit them while it runs.
_IMPORTED = own_digest()


def _device(gm: torch.fx.GraphModule, options: Options) -> list[Any]:
    """The processor and its features, or the level that code is limited to: code for more would crash on a processor
    with less."""
    found: list[Any] = [platform.machine(), *processor(options.cpu)]
    devices = {
        value.device
        for node in gm.graph.find_nodes(op="placeholder")
        if isinstance(value := node.meta.get("val"), torch.Tensor)
    }
    for device in sorted(map(str, devices)):
        if device.startswith("cuda"):
            found += [device, torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device)]
    return [*found, os.environ.get("TRITON_INTERPRET", "0")]


# --- writing ----------------------------------------------------------------------------------------------------------


def _compile_and_store(
    cache: Cache,
    key: str,
    graph: GraphKey,
    gm: torch.fx.GraphModule,
    env: Any,
    options: Options,
    kind: str,
    keep_stages: bool,
) -> Compiled | GraphAsCalls:
    before = guard_counts(env)
    compiled = _compile(gm, options, kind, keep_stages)
    report = compiled.report
    if not has_program(compiled) or report.fallbacks:
        report.cache = "not cached: it was not compiled whole"
        return compiled
    try:
        if own_digest() != _IMPORTED:
            raise CacheError(
                "the files of symshape have changed since this process imported them",
                next_step="start the process anew",
            )
        if not compiled.requirements and guard_counts(env) != before:
            raise CacheError(
                "the compile changed the ShapeEnv in a way that cannot be repeated",
                next_step="a pass that needs a condition asks for it by PassContext.require, which an entry keeps",
            )
        sections = _sections(compiled, graph, gm)
    except CacheError as error:
        report.cache = _not_cached(error)
    else:
        report.cache = "stored" if cache.put(key, sections) else "not cached: no room on disk"
    log.info("%s graph %s: %s", kind, key[:12], report.cache)
    return compiled


def _sections(compiled: Compiled, graph: GraphKey, gm: torch.fx.GraphModule) -> dict[str, bytes]:
    """CacheError where something is no plain data."""
    report, program, image = compiled.report, compiled.program, compiled.kernels
    entry = Entry(
        dataclasses.replace(program, constants=[]),
        tuple(_constant(value, gm) for value in program.constants),
        dataclasses.replace(image, object_code=b""),
        tuple((_renamed(condition, graph.symbols), reason) for condition, reason in compiled.requirements),
        graph.symbols,
    )
    kept = dataclasses.replace(report, stages={}, constraints=[], specialisations=[], timings=[], cuda_graphs=[])
    about = {
        "graph": report.kind,
        "target": report.target,
        "kernels": len(report.kernels),
        "library calls": len(report.library_calls),
        "versions": versions(),
    }
    return {
        "about": to_json(about),
        "entry": to_json(entry),
        "report": to_json(kept),
        "guards": to_json(compiled.entry),
        "object": image.object_code,
    }


def _constant(value: Any, gm: torch.fx.GraphModule) -> tuple[str, Any]:
    """How a hit finds a Python object that the program uses: from the graph, as a callable by name, or as plain
    data."""
    for path in _attributes(gm):
        if _attribute(gm, path) is value:
            return "attribute", path
    if isinstance(value, (torch._ops.OpOverload, torch._ops.HigherOrderOperator)):
        return "callable", target_name(value)
    if isinstance(value, complex):
        return "complex", (value.real, value.imag)
    to_json(value)
    return "value", value


def _attributes(gm: torch.fx.GraphModule) -> Iterator[str]:
    """The paths of all that a graph names, and of what subgraphs name."""
    for node in gm.graph.find_nodes(op="get_attr"):
        path = str(node.target)
        yield path
        found = _attribute(gm, path)
        if isinstance(found, torch.fx.GraphModule):
            yield from (f"{path}.{inner}" for inner in _attributes(found))


def _attribute(gm: torch.fx.GraphModule, path: str) -> Any:
    return functools.reduce(getattr, path.split("."), gm)


def _renamed(condition: Condition, names: Mapping[str, str]) -> Condition:
    missing = condition.symbols - set(names)
    if missing:
        raise CacheError(
            f"`{condition}` is required, and {', '.join(sorted(missing))} is no symbol of the graph",
            next_step="state a requirement over sizes of the graph's inputs",
        )
    return condition.substitute({name: Expr.symbol(names[name]) for name in condition.symbols})


# --- reading ----------------------------------------------------------------------------------------------------------


def _load(
    cache: Cache, key: str, graph: GraphKey, gm: torch.fx.GraphModule, env: Any, options: Options, started: float
) -> Loaded | None:
    """Loads an entry. None if there is none, or its requirements do not hold for these inputs."""
    sections = cache.get(key)
    if sections is None:
        return None
    try:
        entry: Entry = from_json(sections["entry"])
        program = dataclasses.replace(entry.program, constants=[_found(c, gm) for c in entry.constants])
        image = dataclasses.replace(entry.kernels, object_code=sections["object"])
        capture = Capture(lasting_inputs(gm)) if options.cuda_graphs else None
        kernels = load_kernels(image, autotune=options.autotune)
        run: Any = load_program(program, kernels, capture, options.pad_products)
    except Exception as error:  # whatever is wrong with it, the graph can still be compiled
        log.warning("entry %s cannot be loaded: %s: %s", key, type(error).__name__, error)
        with contextlib.suppress(OSError):  # the directory may be read-only
            cache.remove(key)
        return None
    names = {canonical: name for name, canonical in graph.symbols.items()}
    if not _require(entry.requirements, env, names):
        return None
    takes_boxed_arguments(run)
    hints = symbol_hints(env)
    own = {
        name: hint
        for name, canonical in entry.symbols.items()
        if (hint := hints.get(names.get(canonical, ""))) is not None
    }
    remarks = [] if capture is None else capture.remarks
    return Loaded(run, sections, own, time.perf_counter() - started, remarks)


def _found(constant: tuple[str, Any], gm: torch.fx.GraphModule) -> Any:
    kind, value = constant
    found = {
        "attribute": lambda: _attribute(gm, value),
        "callable": lambda: resolve_target(value),
        "complex": lambda: complex(*value),
        "value": lambda: value,
    }
    return found[kind]()


def _require(requirements: Sequence[tuple[Condition, str]], env: Any, names: Mapping[str, str]) -> bool:
    """Requires all that the compile required. False, and nothing is required, where that is not possible."""
    if not requirements:
        return True
    require = Requirements(env)
    wanted = [(_renamed(condition, names), reason) for condition, reason in requirements]
    if not all(require.could_be(condition) for condition, _ in wanted):
        return False
    try:
        for condition, reason in wanted:
            require(condition, reason)
    except CompileError:
        return False
    return True
