"""The pipeline: every step of a compile, in order, one entry each (``symshape-opt --list-pipeline``).

``symshape-opt --list-pipeline`` prints it, ``GraphReport.timings`` has the time of each step by its name, and
``options={"disable_passes": [...]}`` disables optional ones. The passes of a stage are in ``passes/stages.py``, which
``symshape-opt`` shares; all other steps are here. (One list, after tinygrad's ``full_rewrite_to_sink``.)
"""

from __future__ import annotations

import importlib
import operator
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from symshape.activity import note
from symshape.errors import OptionError
from symshape.passes.framework.registry import TABLE, lookup, names
from symshape.passes.stages import STAGES

# The object that a step works on.
DYNAMO, COPY = "Dynamo's graph, in place", "a copy of Dynamo's graph"
JOINT, TRACED = "the joint graph, before it is partitioned", "each traced graph"
IR, KERNEL, PROGRAM = "IR", "each kernel", "the program"

Timings = list[tuple[str, float]]  # (step, seconds), in order


@dataclass(frozen=True)
class Step:
    """One step: its name, what it works on, ``module:name`` of its code, and a description.

    ``optional``: results are correct without it. ``stage``: the stage of a pass.
    """

    name: str
    on: str
    code: str
    does: str
    optional: bool = False
    stage: str = ""

    def function(self) -> Callable[..., Any]:
        """The function that ``code`` names."""
        module, _, name = self.code.partition(":")
        found: Callable[..., Any] = operator.attrgetter(name)(importlib.import_module(module))
        return found

    @property
    def file(self) -> str:
        """The file, or the folder if it is a package, that ``code`` names, from the top of the repository."""
        path = self.code.partition(":")[0].removeprefix("symshape.").replace(".", "/")
        return f"{path}/" if (Path(__file__).parent / path).is_dir() else f"{path}.py"


def _passes() -> Iterator[Step]:
    for stage, elements in STAGES.items():
        for name in elements:
            yield Step(name, IR, TABLE[name], "", optional=True, stage=stage)


_REWRITES: Final = "symshape.frontend.graph_rewrites"
_CALLS = "symshape.frontend.opaque_calls.selection"
_SIZES, _OFFSETS = "symshape.frontend.importer", "symshape.frontend.patches.python.storage_offsets"
_IMPORT, _LOOPS = "symshape.frontend.importer.import_fx", "symshape.analysis"
_KERNELS, _OBJECTS = "symshape.codegen", "symshape.codegen.cpu.objects.compile_objects"
_HOST, _RUNTIME = "symshape.codegen.host.host_program", "symshape.runtime.program"

PIPELINE: Final[tuple[Step, ...]] = (
    Step(
        "guard-view-sizes",
        DYNAMO,
        f"{_REWRITES}.uncertain_views:guard_observable_views",
        "guards on sizes that decide whether a result is a view",
    ),
    Step("replace-marked", DYNAMO, f"{_CALLS}:replace_marked", "calls that cannot be traced become opaque calls"),
    Step("inline-calls", DYNAMO, f"{_REWRITES}.inlined_calls:inline_calls", "higher-order calls are inlined"),
    Step("assert-items", DYNAMO, f"{_REWRITES}.asserted_sizes:assert_items", "asserted items get a check in the graph"),
    Step(
        "copy-changed-items",
        DYNAMO,
        f"{_REWRITES}.changed_items:copy_changed_items",
        "items that are updated in place are read as copies",
    ),
    Step(
        "copy-into-outs",
        DYNAMO,
        f"{_REWRITES}.out_arguments:copy_into_outs",
        "calls with out= become a call and a copy",
    ),
    Step(
        "drop-unread-blocks",
        DYNAMO,
        f"{_REWRITES}.unread_blocks:drop_unread_blocks",
        "CPU: block masks without lists of query blocks",
    ),
    Step(
        "trace-layers-once",
        COPY,
        f"{_REWRITES}.repeated_layers:trace_layers_once",
        "layers that are equal are outlined, and traced once",
        optional=True,
    ),
    Step("mask-to-where", JOINT, f"{_REWRITES}.masks:rewrite_masks", "boolean masks become where", optional=True),
    Step(
        "check-marked-sizes",
        TRACED,
        f"{_SIZES}.specialisations:check_marked",
        "error for a size that is marked dynamic but specialised",
    ),
    Step(
        "guard-offsets", TRACED, f"{_OFFSETS}:guard_where_absolute", "guards on offsets where memory is read by address"
    ),
    Step(
        "guard-assumptions",
        TRACED,
        f"{_SIZES}.assumptions:Assumptions.add_guards",
        "assume=[...] becomes guards",
    ),
    Step(
        "postpone-activations",
        TRACED,
        f"{_REWRITES}.results_alone:results_alone",
        "a forward graph has a second program, without what is saved for backward",
        optional=True,
    ),
    Step(
        "pack-convolutions",
        TRACED,
        f"{_REWRITES}.packed_convolutions:pack_convolutions",
        "CPU: convolutions by our kernels, weights packed once",
        optional=True,
    ),
    Step("merge-equal-nodes", TRACED, f"{_REWRITES}.common_subexpressions:common_subexpressions", "CSE", optional=True),
    Step(
        "gather-items",
        TRACED,
        f"{_REWRITES}.items_in_kernels:gather_items",
        "items at data-dependent indices are gathered in kernels",
        optional=True,
    ),
    Step("split-biases", TRACED, f"{_REWRITES}.split_biases:split_biases", "GPU: kernels add biases", optional=True),
    Step("import-graph", TRACED, f"{_IMPORT}:import_graph", "one host.call for each node"),
    *_passes(),
    Step("verify", IR, "symshape.dialects.verify:verify", "the IR is valid; else each pass is verified"),
    Step("read-kernel", KERNEL, f"{_LOOPS}.read_kernel:read_kernel", "its loop program"),
    Step("fold-loops", KERNEL, f"{_LOOPS}.fold_loops:fold", "known index arithmetic is folded", optional=True),
    Step(
        "guard-empty-tensors",
        KERNEL,
        f"{_LOOPS}.empty_tensors:guard_empty_tensors",
        "reads of empty tensors are masked",
    ),
    Step("normalise-loops", KERNEL, f"{_LOOPS}.normalise_loops:normalise", "dims are split, merged and ordered"),
    Step("read-variants", KERNEL, f"{_KERNELS}.variants:read_variants", "GPU: its table of variants"),
    Step("emit-triton", KERNEL, f"{_KERNELS}.triton.kernel:emit_triton", "Triton source"),
    Step("emit-cpu", KERNEL, f"{_KERNELS}.cpu.emit.kernel:emit_cpu", "MLIR text, vectorised"),
    Step("compile-cpu", PROGRAM, f"{_OBJECTS}:compile_objects", "one object file of all kernels"),
    Step("program", PROGRAM, f"{_HOST}:emit_program", "the host program's Python source"),
    Step("load", PROGRAM, f"{_RUNTIME}:load_program", "source and kernels become a callable"),
)

OPTIONAL: Final = tuple(step.name for step in PIPELINE if step.optional)


def steps_on(what: str) -> list[Step]:
    """The steps that work on this, in order."""
    return [step for step in PIPELINE if step.on == what]


def check_optional(wanted: Collection[str], more: Collection[str] = ()) -> None:
    """OptionError for a name that is no optional step, no pass of a plugin and none of ``more``, the user's further
    steps; and for a pass of ours that is in ``more`` too, since the name would be ambiguous."""
    if not wanted:
        return
    known = [*(name for name in OPTIONAL if name not in TABLE), *names()]
    needed = [name for name in wanted if any(s.name == name and not s.optional for s in PIPELINE)]
    if needed:
        raise OptionError(
            f"disable_passes: {', '.join(needed)} cannot be left out", next_step=f"passes: {', '.join(known)}"
        )
    if both := sorted({*wanted} & {*more} & {*TABLE}):
        hint = 'options={"pass_options": {"NAME": "option=value"}} is for options of the pipeline\'s own pass'
        raise OptionError(f"{', '.join(both)}: in both disable_passes and passes", next_step=hint)
    unknown = sorted(set(wanted) - set(known) - set(more))
    if unknown:
        raise OptionError(
            f"disable_passes: no pass is called {', '.join(unknown)}", next_step=f"passes: {', '.join(known)}"
        )


@contextmanager
def timed(name: str, timings: Timings) -> Iterator[None]:
    """Notes how long the step in here takes, whether it fails or not."""
    note(name)
    start = time.perf_counter()
    try:
        yield
    finally:
        timings.append((name, time.perf_counter() - start))


def pipeline_text() -> str:
    """The list, as ``symshape-opt --list-pipeline`` prints it: name, whether it can be left out, what it does, file."""
    lines: list[str] = []
    group = ""
    for step in PIPELINE:
        title = f"{step.on}: to stage '{step.stage}'" if step.stage else step.on
        lines += [] if title == group else [f"{title}"]
        group = title
        cls = lookup(step.name) if step.stage else None
        does = cls.description() if cls else step.does
        lines.append(f"  {step.name:<28} {'optional' if step.optional else '        '}  {does} ({step.file})")
    return "\n".join(lines) + "\n"
