"""The report that ``symshape.explain`` returns: dataclasses for graphs, kernels, constraints, fallbacks."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import linecache
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from symshape.codegen.host.program_text import LibraryCall
from symshape.codegen.variants import Variant, for_loops, read_variants
from symshape.dialects.accessors import body_of, function_name, kernel_functions
from symshape.dialects.locations import known_lines
from symshape.dialects.plans import SEPARATE
from symshape.errors import KernelError, OptionError, SymshapeError
from symshape.frontend.bridge.dynamo_counters import GraphBreak
from symshape.frontend.importer.specialisations import Specialisation
from symshape.graphs import FurtherGraph
from symshape.machine.instruction_sets import NATIVE
from symshape.passes.stages import STAGES
from symshape.prover.numbers.condition import TRUE, Condition
from symshape.prover.numbers.expr import Expr
from symshape.tools.traffic import call_bytes, kernel_bytes, workspace_bytes

PROCESSORS = 132  # multiprocessors of an H100, which figures of a report assume


@dataclass(frozen=True)
class Choice:
    """One way to run a kernel: a form (CPU) or a variant (GPU). A launch runs the kernel's first one whose condition
    holds.

    ``name``       name of the form or variant
    ``condition``  condition over the kernel's index arguments (``loops.symbols``). For a variant also over
                   "processors", the GPU's number of multiprocessors, and "addressK", the data address of argument K
    ``does``       a short description of how the points are computed
    """

    name: str
    condition: Condition
    does: str


@dataclass(frozen=True)
class KernelReport:
    """One kernel.

    ``name``     name of the kernel's function in the IR
    ``kind``     "pointwise", "reduction", "scan", "scatter", or "mixed" (a mixture of several kernels in one launch,
                 made by ``mix-reductions``)
    ``target``   "cpu" or "triton"
    ``source``   MLIR text (cpu) or Python (triton)
    ``loops``    the loop program that the source was printed from
    ``planned``  the variants on a GPU; empty for the target "cpu"
    ``module``   MLIR text of the kernels, from which the GPU variants of a CPU kernel are planned on demand; kept by
                 ``explain`` only
    ``cpu``      the instruction set that a CPU kernel may use (``Options.cpu``)
    """

    name: str
    kind: str
    target: str
    source: str
    loops: Any
    planned: tuple[Variant, ...] = ()
    module: str = field(default="", repr=False)
    cpu: str = NATIVE

    @property
    def triton_source(self) -> str:
        """The kernel as Triton code, also if its target is the CPU."""
        return str(self._triton().source)

    @property
    def variants(self) -> tuple[str, ...]:
        """Names of the variants, among which the host program chooses at each call; ("default",) on a CPU."""
        return ("default",) if self.target == "cpu" else tuple(v.name for v in self._triton().variants)

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The forms or variants on the kernel's target, in the order in which a launch tries them."""
        if self.target != "cpu":
            return tuple(Choice(v.name, v.condition, _of_variant(v)) for v in self.plans)
        if self.loops.scatter is not None:
            return (Choice("scatter", TRUE, "points in the order of the destination"),)
        if self.loops.is_scan:
            return (Choice("scan", TRUE, "the points of a row in order, rows side by side"),)
        from symshape.codegen.cpu.objects.target import target_of
        from symshape.codegen.cpu.schedule.forms import forms_of, in_order

        forms = in_order(forms_of(self.loops, target_of(self.cpu)))
        return tuple(Choice(f.suffix.lstrip("_") or "usual", f.condition, _of_form(f)) for f in forms)

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines of user code that the kernel's operations come from, as ``file:line``, in order and without
        duplicates. Empty unless ``explain`` compiled the kernel."""
        return _lines(self.module).get(self.name, ()) if self.module else ()

    def ptx(self, arch: int = 90, variant: str | None = None) -> str:
        """PTX of one variant (default: the first) of the Triton code for sm_``arch``, also if the target is the CPU.

        Needs triton, but no GPU.
        """
        if importlib.util.find_spec("triton") is None:
            raise KernelError("triton is not installed", where=self.name, next_step="pip install 'symshape[triton]'")
        from symshape.tools.compile_ahead import compile_variant

        kernel = self._triton()
        known = {v.name: v for v in kernel.variants}
        if variant is not None and variant not in known:
            raise OptionError(f"{self.name} has no variant {variant!r}", next_step=f"variants: {', '.join(known)}")
        chosen = kernel.variants[0] if variant is None else known[variant]
        return compile_variant(kernel, chosen, arch).ptx

    def bytes_accessed(self, **symbols: int) -> int:
        """Bytes that one launch reads and writes. ``symbols`` are values of the kernel's index arguments
        (``loops.symbols``).

        On a GPU the workspace of a split reduction is included, for 132 multiprocessors. On a CPU it is not: it stays
        in the caches.
        """
        own = 0 if self.target == "cpu" else workspace_bytes(self._triton(), symbols, PROCESSORS)
        return kernel_bytes(self.loops, symbols) + own

    def _triton(self) -> Any:
        from symshape.codegen.triton.kernel import emit_triton

        return emit_triton(self.loops, self.plans)

    @property
    def plans(self) -> tuple[Variant, ...]:
        """The GPU variants, also if the target is the CPU."""
        plans = {} if self.planned or not self.module else _plans(self.module)
        return self.planned or for_loops(plans.get(self.name, ()), self.loops)


def _of_variant(variant: Variant) -> str:
    """A variant's form, block sizes, warps and index width, in words."""
    if variant.form == SEPARATE:
        return "separate, the kernels that it is made of one after the other"
    blocks = {"x": variant.xblock, "y": variant.yblock, "r": variant.rblock}
    sizes = " x ".join(f"{name} {size}" for name, size in blocks.items() if size)
    return f"{variant.form}, blocks {sizes}, {variant.num_warps} warps, {variant.index_bits}-bit addresses"


def _of_form(form: Any) -> str:
    """How a CPU form vectorises, tiles and splits the points, in words."""
    division = form.division
    words = [f"lanes along {division.lane.name}" if division.lane is not None else "no lanes"]
    words += [f"{division.copies} vectors at once"] if division.copies > 1 else []
    words += [f"tiles along {division.tile.name}"] if division.tile is not None else []
    words += [f"a vector of rows along {division.rows.name}"] if division.rows is not None else []
    words += [f"{division.split.name} may be split"] if division.split is not None else []
    words += ["a launch for each sweep"] if division.staged else []
    words += [f"in {form.pieces.count + 1} pieces"] if form.pieces is not None else []
    return ", ".join(words)


@contextlib.contextmanager
def _parsed(module: str) -> Iterator[Any]:
    from torch_mlir import ir

    from symshape import dialects

    with dialects.load(ir.Context()), ir.Location.unknown():
        yield ir.Module.parse(module)


@functools.lru_cache(maxsize=4)
def _plans(module: str) -> dict[str, tuple[Variant, ...]]:
    """The GPU variants of each kernel in a module, planned now."""
    from symshape.passes.framework.manager import run_pipeline

    with _parsed(module) as parsed:
        run_pipeline(parsed, ",".join(STAGES["planned"]))
        return {function_name(k): read_variants(k) for k in kernel_functions(parsed)}


@functools.lru_cache(maxsize=4)
def _lines(module: str) -> dict[str, tuple[str, ...]]:
    """The lines of user code that each kernel in a module comes from."""
    with _parsed(module) as parsed:
        found = {function_name(k): [op.location for op in body_of(k)] for k in kernel_functions(parsed)}
        return {
            name: tuple(dict.fromkeys(line for place in places for line in known_lines(place)))
            for name, places in found.items()
        }


@dataclass(frozen=True)
class ConstraintReport:
    """One constraint on sizes, and what the compiler did with it.

    ``text``     the condition over symbols
    ``kind``     "assume" (a guard of the tracer, checked before compiled code runs), "expect_true" (must hold), or
                 "guard" (holds for calls that this entry serves)
    ``status``   "assumed"; "proven" (follows from facts); "implied" (follows from facts and other constraints);
                 "hoisted" (checked at each call, earlier than written); or "checked" (checked at each call)
    ``source``   ``file:line`` in user code if known, else in the framework
    ``message``  the user's message for a violation
    ``sources``  the ``source`` of each constraint that was merged into this one
    """

    text: str
    kind: str
    status: str
    source: str
    message: str = ""
    sources: tuple[str, ...] = ()

    @property
    def source_text(self) -> str:
        """The line of code at ``source``; "" if it cannot be read."""
        file, _, line = self.source.rpartition(":")
        return linecache.getline(file, int(line)).strip() if line.isdigit() else ""

    def __str__(self) -> str:
        origin = f"{self.source}: {self.source_text}" if self.source_text else self.source
        origin = ", ".join([origin, *self.sources[1:]])
        return f"{self.status}: {self.text}" + (f' "{self.message}"' if self.message else "") + f" ({origin})"


@dataclass(frozen=True)
class Fallback:
    """One failure of the compiler, and what was done instead.

    ``step``     the pass or step of code generation that failed
    ``reason``   the error message
    ``action``   what was done instead
    ``command``  a command that reproduces the failure, or a file that shows it
    """

    step: str
    reason: str
    action: str
    command: str = ""

    def __str__(self) -> str:
        return f"fallback: {self.action}, since {self.reason}"


@dataclass(frozen=True)
class StageFile:
    """A file given to replace a stage of a graph (option ``stage``).

    ``stage``       name of the stage
    ``file``        path of the file
    ``difference``  why the file was not used, with both signatures; "" if it was used
    """

    stage: str
    file: str
    difference: str = ""

    def __str__(self) -> str:
        if self.difference:
            return f"stage {self.stage} was not taken from {self.file}: {self.difference}"
        return f"stage {self.stage} was taken from {self.file}"


@dataclass
class GraphReport:
    """One compiled graph.

    ``kind``             "inference", "forward" or "backward"
    ``target``           "cpu", "triton", or "calls" if the graph is run operator by operator
    ``symbols``          the symbols of sizes: name, range, divisor, hint and source of each
    ``timings``          (step, seconds) of each step of ``symshape/pipeline.py``, in the order in which they ran
    ``stages``           the IR text after each stage; kept by ``explain`` only
    ``statistics``       counters of passes, by pass and statistic
    ``remarks``          remarks of passes on single operations, by pass
    ``kernels``          the kernels, each listed once
    ``launched``         for each launch in the host program, the kernel's name and its index arguments
    ``called``           for each library call, the operator and its buffers
    ``constraints``      the constraints on sizes; kept by ``explain`` only
    ``specialisations``  sizes that lines of code fixed to a value or made equal; kept by ``explain`` only
    ``stage_files``      files that were to replace stages (option ``stage``), and whether they were used
    ``fallbacks``        failures of the compiler, and what was done instead (``symshape.fallbacks``)
    ``cuda_graphs``      with the option ``cuda_graphs``: which calls are replayed, and why others are not. Extended
                         while the graph is called
    ``cache``            "hit", "stored", the reason why the graph cannot be cached, or "" if the cache is disabled
    ``program_source``   the host program as Python text
    ``stub_source``      the guard stub, its first part, which binds symbols and checks unproven conditions before any
                         other work
    """

    kind: str
    target: str
    symbols: list[Any] = field(default_factory=list)
    timings: list[tuple[str, float]] = field(default_factory=list)
    stages: dict[str, str] = field(default_factory=dict)
    statistics: dict[str, dict[str, int]] = field(default_factory=dict)
    remarks: dict[str, list[Any]] = field(default_factory=dict)
    kernels: list[KernelReport] = field(default_factory=list)
    launched: list[tuple[str, tuple[Expr, ...]]] = field(default_factory=list)
    called: list[LibraryCall] = field(default_factory=list)
    constraints: list[ConstraintReport] = field(default_factory=list)
    specialisations: list[Specialisation] = field(default_factory=list)
    stage_files: list[StageFile] = field(default_factory=list)
    fallbacks: list[Fallback] = field(default_factory=list)
    cuda_graphs: list[str] = field(default_factory=list)
    cache: str = ""
    program_source: str = ""
    stub_source: str = ""

    @property
    def library_calls(self) -> list[str]:
        """Names of the operators called, in order."""
        return [call.target for call in self.called]

    @property
    def launches(self) -> int:
        """Number of kernel launches per call, each launch in the host program counted once."""
        return len(self.launched)

    @property
    def mask_remarks(self) -> list[str]:
        """Remarks of the passes for boolean masks: which masks remain, and why."""
        return [one for name in ("mask-to-where", "compact-masks") for one in self.remarks.get(name, ())]

    def stage(self, name: str) -> str:
        """The IR text after a stage, or the one before if no pass ran in it. SymshapeError if no IR is kept."""
        names = list(STAGES)
        if name in names:
            for stage in reversed(names[: names.index(name) + 1]):
                if stage in self.stages:
                    return self.stages[stage]
        known = ", ".join(names) if self.stages else "none: IR is kept by symshape.explain only"
        raise SymshapeError(f"no IR is kept for stage {name!r}", next_step=f"stages: {known}")

    def bytes_accessed(self, **sizes: int) -> int:
        """Bytes that the kernels read and write in one call: per launch, the distinct elements of its tensors.

        Library calls are not included. ``sizes`` are values of symbols by name; the default is the size first seen.
        OptionError for an unknown symbol, or an unbacked one without a value.
        """
        values = self._values(sizes, self._launch_sizes())
        kernels = {k.name: k for k in self.kernels}
        total = 0
        for name, arguments in self.launched:
            own = [expr.evaluate(values) for expr in arguments]
            total += kernels[name].bytes_accessed(**dict(zip(kernels[name].loops.symbols, own)))
        return total

    def library_bytes_accessed(self, **sizes: int) -> int:
        """Bytes of the buffers that library calls read and return in one call; ``sizes`` as in `bytes_accessed`.

        Each call counts each of its buffers once and in full; memory used inside a call is not known.
        """
        values = self._values(sizes, self._call_sizes())
        return sum(call_bytes(call, values) for call in self.called)

    def _values(self, sizes: Mapping[str, int], exprs: Iterable[Expr]) -> dict[str, int]:
        """Values of all symbols in ``exprs``: ``sizes``, else hints. OptionError for an unknown one or no value."""
        used = {symbol for expr in exprs for symbol in expr.symbols}
        every = {symbol for expr in (*self._launch_sizes(), *self._call_sizes()) for symbol in expr.symbols}
        sources = {row.name: row.source for row in self.symbols} | dict.fromkeys(every - self._names(), "")
        known = "symbols: " + (", ".join(f"{n} ({s})" if s else n for n, s in sources.items()) or "none")
        for name in sizes:
            if name not in sources:
                raise OptionError(f"the graph has no symbol {name!r}", next_step=known)
        values = {row.name: row.hint for row in self.symbols if row.hint >= 0} | dict(sizes)
        if missing := sorted(used - set(values)):
            raise OptionError(f"no size is known for {', '.join(missing)}", next_step=f"give one; {known}")
        return values

    def _launch_sizes(self) -> list[Expr]:
        return [expr for _, arguments in self.launched for expr in arguments]

    def _call_sizes(self) -> list[Expr]:
        return [expr for call in self.called for sizes, _ in call.buffers for expr in sizes]

    def _names(self) -> set[str]:
        return {row.name for row in self.symbols}

    def __str__(self) -> str:
        reasons = {kept.target: kept.reason for kept in self.remarks.get("lower-aten", ())}
        lines = [
            f"{self.kind} graph ({self.target}): {len(self.kernels)} kernels, {self.launches} launches, "
            f"{len(self.library_calls)} library calls; constraints: {_counts(c.status for c in self.constraints)}"
        ]
        for name, count in Counter(self.library_calls).most_common():
            lines.append(f"  {count:4d} x {name}" + (f" ({reasons[name]})" if name in reasons else ""))
        lines += [f"  {one}" for one in self.mask_remarks]
        lines += [f"  {one}" for one in (*self.specialisations, *self.stage_files, *self.fallbacks)]
        lines += [f"  CUDA graphs: {one}" for one in self.cuda_graphs]
        for name, counted in self.statistics.items():
            figures = ", ".join(f"{amount} {statistic.replace('_', ' ')}" for statistic, amount in counted.items())
            lines += [f"  {name}: {figures}"] if any(counted.values()) else []
        lines += [f"  {seconds * 1e3:8.1f} ms  {stage}" for stage, seconds in _longest(self.timings)]
        return "\n".join(lines)


def _longest(timings: Sequence[tuple[str, float]], shown: int = 6) -> list[tuple[str, float]]:
    """The ``shown`` longest steps, then one entry for all others."""
    steps: dict[str, float] = {}
    for name, seconds in timings:
        steps[name] = steps.get(name, 0.0) + seconds
    ordered = sorted(steps.items(), key=lambda step: -step[1])
    others = ordered[shown:]
    rest = [(f"{len(others)} other steps", sum(seconds for _, seconds in others))] if others else []
    return [*ordered[:shown], *rest]


def _counts(words: Iterable[str]) -> str:
    return ", ".join(f"{count} {word}" for word, count in sorted(Counter(words).items())) or "none"


@dataclass(frozen=True)
class FrameReport:
    """One frame that Dynamo traced.

    ``function``  name of the function
    ``line``      ``file:line`` of its definition
    ``seconds``   time from the call until the frame was compiled: tracing, and all steps for its graphs
    ``graphs``    number of graphs compiled in total, over all frames, when this frame was done
    ``breaks``    the lines at which a graph ended before the function did, and why; what follows is a frame of its own.
                  Last the line for which Dynamo does not compile the function, if there is one
    """

    function: str
    line: str
    seconds: float
    graphs: int
    breaks: tuple[GraphBreak, ...] = ()


@dataclass
class Report:
    """The result of ``symshape.explain``.

    ``graphs``    all graphs, in the order in which they were compiled
    ``further``   for each recompile, the reason
    ``frames``    the traced frames, in order
    ``result``    the function's result at the last call
    ``compiled``  the compiled function
    """

    graphs: list[GraphReport] = field(default_factory=list)
    further: list[FurtherGraph] = field(default_factory=list)
    frames: list[FrameReport] = field(default_factory=list)
    result: Any = None
    compiled: Callable[..., Any] | None = field(default=None, repr=False)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the compiled function. Anything compiled by that is added to the report."""
        assert self.compiled is not None
        self.result = self.compiled(*args, **kwargs)
        return self.result

    def html(self, path: str | os.PathLike[str], title: str = "") -> Path:
        """Writes the report as one self-contained HTML file and returns its path.

        OptionError if a required library is missing (``pip install 'symshape[report]'``).
        """
        from symshape.tools.html_report.page import html_page

        file = Path(path)
        file.write_text(html_page(self, title), encoding="utf-8")
        return file

    def __str__(self) -> str:
        total = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in self.totals().items())
        further = ["why there are further graphs:", *map(str, self.further)] if self.further else []
        breaks = ["where a graph was broken, and why:", *(f"  {one}" for one in self.breaks)] if self.breaks else []
        return "\n".join([total, *further, *breaks, *(f"[{i}] {g}" for i, g in enumerate(self.graphs))])

    @property
    def breaks(self) -> list[GraphBreak]:
        """The graph breaks of all frames, without duplicates."""
        return list(dict.fromkeys(one for frame in self.frames for one in frame.breaks))

    @property
    def specialisations(self) -> list[Specialisation]:
        """The specialisations of all graphs, without duplicates."""
        return list(dict.fromkeys(one for graph in self.graphs for one in graph.specialisations))

    def totals(self) -> Mapping[str, int]:
        """Counts over all graphs: graphs, kernels, launches, library calls, fallbacks."""
        return {
            "graphs": len(self.graphs),
            "kernels": sum(len(g.kernels) for g in self.graphs),
            "launches": sum(g.launches for g in self.graphs),
            "library_calls": sum(len(g.library_calls) for g in self.graphs),
            "fallbacks": sum(len(g.fallbacks) for g in self.graphs),
        }
