"""mix-reductions: merges a kernel that reduces rows with kernels that sum the columns of the same points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from torch_mlir import ir

from symshape.analysis.access_patterns import KernelAccesses
from symshape.analysis.loop_form import LoopSteps, finished_loops, read_loops
from symshape.analysis.loops import LoopKernel
from symshape.analysis.mixed_reductions import ends_with_stores, mix, parts_of, reduces_rows, sums_columns
from symshape.dialects.accessors import (
    MIXED,
    body_of,
    by_value_of,
    callee_of,
    function_name,
    in_place_of,
    is_fresh,
    iterators,
    kernel_attributes,
    kernel_functions,
    kernel_kind,
    main_functions,
    new_kernel,
    num_inputs,
    rename_function,
    text_of_kernel,
)
from symshape.dialects.host import LaunchOp
from symshape.dialects.plans import MIXED_SPLIT, SEPARATE
from symshape.machine.targets import GPU_WARP
from symshape.passes.framework.base import Pass, PassContext
from symshape.passes.plans.variant_table import Row, Table, at_most, processors
from symshape.prover.numbers.condition import TRUE, Condition, all_of, at_least
from symshape.prover.numbers.expr import Expr, ceildiv, maximum

_FEW, _MANY, _SPLIT = 4, 32, 8  # points per thread: for rows of at most 32 points, for longer rows, for parts of rows
# Operations that a launch may be moved ahead of, since they do not change what it reads.
_CROSSED: Final = frozenset({"symshape.view", "symshape.bind", "symshape.reuse", "symshape.symbol", "tensor.empty"})


@dataclass(frozen=True)
class MixReductions(Pass):
    """Merges a launch that reduces rows with later launches that sum the columns of what it reads or writes.

    If there are many rows and a program can hold a row, rows are read once: each program keeps its sums of columns in
    registers from row to row, and a second launch combines the sums of all programs. At other sizes the kernels run one
    after the other.

    Before::

        %dx = "host.launch"(%grad, %x, %rstd, %d0, %s0, %s1) {callee = @kernel_0}            // of each row
        %y = "host.call"(%dx, %w) {target = "aten.mm.default", fresh, ...}
        %dw = "host.launch"(%grad, %x, %rstd, %d1, %s0, %s1) {callee = @kernel_1}            // of all rows

    After::

        %dx, %dw = "host.launch"(%grad, %x, %rstd, %d0, %d1, %s0, %s1) {callee = @kernel_2}
        %y = "host.call"(%dx, %w) {target = "aten.mm.default", fresh, ...}
        func.func private @kernel_2(...) attributes {symshape.kernel, symshape.kind = "mixed", ...} {
          %dx = "host.launch"(%grad, %x, %rstd, %d0, %s0, %s1) {callee = @kernel_0}
          %dw = "host.launch"(%grad, %x, %rstd, %d1, %s0, %s1) {callee = @kernel_1}
          "symshape.variant"(%short, %programs) {name = "mixed1024", form = "mixed", rblock = 1024, ...}
          "symshape.variant"(%true) {name = "separate", form = "separate", ...}
          return %dx, %dw
        }

    The gradients of a layer norm then move 3 tensors instead of 5 (with the gradient of a preceding bias, instead of
    6). The thresholds are Inductor's (``MixOrderReduction`` in torch/_inductor/scheduler.py): fewer points are still in
    the cache when they are read a second time, and with few rows the partial sums are as large as the input.

    ``rows``      minimum number of rows
    ``points``    minimum number of points of all rows
    ``ratio``     minimum ratio of the number of rows to the points of a row
    ``shortest``  minimum points of a row
    ``held``      for each variant the maximum points of a row that a program holds at once, ascending
    ``tile``      points of the group of rows held at a time, unless one row has more: for rows of at most 32 points,
                  for longer rows
    ``at_once``   points held on each processor; determines the number of programs, with at least ``programs``
    ``programs``  minimum number of programs for each processor
    ``least``     minimum rows of a program
    ``combined``  partial results combined at a time: for rows of at most 32 points and split rows, for other rows
    ``longest``   longest row, in points, that plan-reductions holds and thus reads once; longer rows are split into
                  parts
    ``part``      points of a part
    ``blocks``    minimum number of parts in a row, for each processor
    ``workspace``  maximum bytes of the partial results of rows
    """

    name: ClassVar[str] = "mix-reductions"
    targets: ClassVar[tuple[str, ...]] = ("triton",)
    statistics: ClassVar[dict[str, str]] = {
        "mixed": "launches that reduce both rows and columns",
        "joined": "launches that were merged into them",
    }
    rows: int = 4096
    points: int = 5 << 20
    ratio: int = 2
    shortest: int = 17
    held: tuple[int, ...] = (32, 64, 128, 256, 512, 1024, 2048, 4096)
    tile: tuple[int, int] = (2048, 1024)
    at_once: int = 8192
    programs: int = 4
    least: int = 16
    combined: tuple[int, int] = (4096, 512)
    longest: int = 16384
    part: int = 1024
    blocks: int = 2
    workspace: int = 4 << 20

    def run(self, module: ir.Module, context: PassContext) -> bool:
        kernels = _Kernels(module, LoopSteps(context.disabled))
        mixed = joined = 0
        for function in main_functions(module):
            for first, others in _mixtures(function, kernels):
                launched = kernels.launch(first, others)
                mixed, joined = mixed + 1, joined + len(others)
                if launched not in kernels.planned:
                    kernels.planned.add(launched)
                    self._plan(kernels.functions[launched], kernels)
        self.count(context, mixed=mixed, joined=joined)
        return bool(mixed)

    def _plan(self, function: Any, kernels: _Kernels) -> None:
        loops = read_loops(function, kernels.steps)
        table = Table(function, loops, {})
        rows, row = table.kernel.xnumel, table.kernel.rnumel
        pays = [at_least(rows, self.rows), at_least(rows * row, self.points), at_least(rows, self.ratio * row)]
        pays += [at_least(row, self.shortest)]
        table.rows = [self._held(rblock, rows, all_of(at_most(row, rblock), *pays)) for rblock in self.held]
        assert loops.mixed is not None
        if ends_with_stores(loops.mixed.rows) and not in_place_of(function):  # stored values are recomputed
            table.rows.append(self._split(table.kernel))
        table.rows.append(Row(SEPARATE, SEPARATE, TRUE, 0, num_warps=0))
        table.write()

    def _held(self, rblock: int, rows: Expr, condition: Condition) -> Row:
        """The variant for rows of at most ``rblock`` points. One warp holds a row as far as its registers suffice, so
        that sums along the row need no shared memory. (The variant that plan-alignment adds, which reads 16 bytes at a
        time, has other warps.)"""
        short = rblock <= GPU_WARP
        xblock = max(1, self.tile[not short] // rblock)
        waves = max(self.programs, self.at_once // (xblock * rblock))
        each = maximum(max(self.least, xblock), ceildiv(rows, waves * processors()))
        combined = self.combined[not short]
        warps = min(16, max(1, xblock * rblock // (_FEW if short else _MANY) // GPU_WARP))
        splits = ceildiv(rows, each)
        return Row(f"mixed{rblock}", MIXED, condition, xblock, combined, rblock=rblock, num_warps=warps, splits=splits)

    def _split(self, kernel: KernelAccesses) -> Row:
        """The variant for rows that are too long to be held, if there are columns enough for every processor."""
        rows, row = kernel.xnumel, kernel.rnumel
        wide = at_least(row, self.blocks * self.part * processors())
        room = at_most(rows * kernel.partial_bytes * (ceildiv(row, self.part) + 1), self.workspace)
        condition = all_of(at_least(row, self.longest + 1), wide, room)
        warps = min(16, max(1, self.part // (GPU_WARP * _SPLIT)))
        return Row("split", MIXED_SPLIT, condition, 1, self.combined[0], rblock=self.part, num_warps=warps)


@dataclass
class _Kernels:
    """The kernels of a module by name, and caches of what was read of them."""

    module: ir.Module
    steps: LoopSteps
    functions: dict[str, Any] = field(init=False)
    planned: set[str] = field(default_factory=set)
    _named: dict[str, str] = field(default_factory=dict)  # names of mixtures by the text of their functions

    def __post_init__(self) -> None:
        self.functions = {function_name(f): f for f in kernel_functions(self.module)}

    def loops(self, name: str) -> LoopKernel:
        return finished_loops(self.functions[name], self.steps)

    def iterators(self, name: str) -> list[str]:
        """Iterator types of a reduction's dims; empty for other kernels."""
        function = self.functions[name]
        if kernel_kind(function) != "reduction":
            return []
        return next((list(iterators(op)) for op in body_of(function) if op.name == "symshape.space"), [])

    def inputs(self, launch: Any) -> list[ir.Value]:
        """The tensors that a launch reads."""
        return list(launch.operands)[: num_inputs(self.functions[callee_of(launch)])]

    def ends_with(self, launch: Any, iterator: str) -> bool:
        """Whether a launch is of a reduction with parallel and reduced dims, the last of them of type ``iterator``."""
        found = self.iterators(callee_of(launch))
        return found[-1:] == [iterator] and len(set(found)) > 1

    def reduces_rows(self, launch: Any) -> bool:
        inputs = self.inputs(launch)
        if not set(launch.operands[len(inputs) :]).isdisjoint(inputs):
            return False  # it writes to one of its inputs
        return reduces_rows(self.loops(callee_of(launch)))

    def sums_columns(self, launch: Any) -> bool:
        return sums_columns(self.loops(callee_of(launch)))

    def fit(self, launches: Sequence[Any]) -> bool:
        """Whether the launches can be one kernel."""
        given = _Given(launches, self)
        tensors = {value: i for i, value in enumerate([*given.inputs, *given.dests])}
        symbols = {value: f"s{i}" for i, value in enumerate(given.numbers)}
        parts = parts_of(launches, tensors, symbols, self.loops)
        return mix("mixed", list(symbols.values()), len(given.inputs), parts[0], parts[1:]) is not None

    def launch(self, first: Any, others: Sequence[Any]) -> str:
        """Replaces several launches by one, at the place of the first; returns the name of the launched mixture."""
        launches = [first, *others]
        given = _Given(launches, self)
        function = self._function(launches, given)
        text = text_of_kernel(function)
        name = self._named.get(text)
        if name is None:
            number = len(self.functions)
            while f"kernel_{number}" in self.functions:
                number += 1
            name = self._named[text] = f"kernel_{number}"
            rename_function(function, name)
            self.functions[name] = function
        else:
            function.erase()
        for dest in given.dests:
            if not isinstance(dest.owner, ir.Block) and dest.owner.name == "tensor.empty":
                dest.owner.move_before(first)
        values = [*given.inputs, *given.dests, *given.numbers]
        results = [result for op in launches for result in op.results]
        with ir.InsertionPoint(first), first.location:
            made = LaunchOp(name, values, [result.type for result in results]).operation
        for old, new in zip(results, made.results, strict=True):
            old.replace_all_uses_with(new)
        for op in reversed(launches):
            op.erase()
        return name

    def _function(self, launches: Sequence[Any], given: _Given) -> Any:
        """The function of a mixture, which launches the kernels one after the other."""
        values = [*given.inputs, *given.dests, *given.numbers]
        results = [result.type for op in launches for result in op.results]
        counts = len(given.inputs), len(given.dests)
        attributes = kernel_attributes(MIXED, *counts, given.in_place, given.by_value)
        with ir.InsertionPoint(self.module.body), launches[0].location:
            function = new_kernel([v.type for v in values], results, attributes)
            self.module.body.append(function)
            block = function.regions[0].blocks[0]
            inside = dict(zip(values, block.arguments, strict=True))
            returned: list[ir.Value] = []
            with ir.InsertionPoint(block):
                for op in launches:
                    with op.location:
                        types = [result.type for result in op.results]
                        made = LaunchOp(callee_of(op), [inside[v] for v in op.operands], types).operation
                    inside.update(zip(op.results, made.results, strict=True))
                    returned += made.results
                ir.Operation.create("func.return", [], returned)
        return function


class _Given:
    """The operands of several launches as those of one. ``inputs``: tensors that none of the launches writes;
    ``dests``: destinations in order; ``in_place``: pairs (input, destination) that share memory."""

    def __init__(self, launches: Sequence[Any], kernels: _Kernels) -> None:
        made = {result for op in launches for result in op.results}
        inputs: dict[ir.Value, bool] = {}
        numbers: dict[ir.Value, None] = {}
        self.dests: list[ir.Value] = []
        for op in launches:
            callee = kernels.functions[callee_of(op)]
            tensors = [v for v in op.operands if isinstance(v.type, ir.RankedTensorType)]
            first, by_value = num_inputs(callee), by_value_of(callee)
            inputs.update((v, i in by_value) for i, v in enumerate(tensors[:first]) if v not in made)
            self.dests += tensors[first:]
            numbers.update(dict.fromkeys(v for v in op.operands if v not in set(tensors)))
        self.inputs, self.numbers = list(inputs), list(numbers)
        self.by_value = [i for i, is_number in enumerate(inputs.values()) if is_number]
        memories = [_memory(value) for value in self.inputs]
        self.in_place = [(i, j) for j, d in enumerate(self.dests) for i, m in enumerate(memories) if m == _memory(d)]


def _memory(value: ir.Value) -> ir.Value:
    """The tensor that owns a value's memory, as far as views and reuse in main show."""
    while not isinstance(value.owner, ir.Block) and value.owner.name in ("symshape.view", "symshape.reuse"):
        value = value.owner.operands[0]
    return value


def _mixtures(function: Any, kernels: _Kernels) -> list[tuple[Any, list[Any]]]:
    """Launches that reduce rows, each with the launches to merge into it. A launch that could be merged into several is
    merged into the one that it shares most tensors with."""
    operations = body_of(function)
    place = {op: i for i, op in enumerate(operations)}
    launches = [op for op in operations if op.name == "host.launch"]
    pairs = []
    columns = {op for op in launches if kernels.ends_with(op, "parallel")}
    for first in (op for op in launches if columns and kernels.ends_with(op, "reduction")):
        known = {*first.operands, *first.results}
        for op in _movable(operations, place[first]):
            shared = sum(value in known for value in kernels.inputs(op)) if op in columns else 0
            if shared and kernels.reduces_rows(first) and kernels.sums_columns(op):
                pairs.append((-shared, place[first], place[op]))
    found: dict[int, list[Any]] = {}
    taken: set[int] = set()
    for _, first, later in sorted(pairs):
        together = [operations[first], *found.get(first, ()), operations[later]]
        if later not in taken and _may_join(operations[later], operations[first], place, kernels):
            if kernels.fit(together):
                found[first] = together[1:]
                taken.add(later)
    return [(operations[first], others) for first, others in sorted(found.items())]


def _movable(operations: Sequence[Any], start: int) -> Iterator[Any]:
    """The launches after position ``start``, up to an operation that may change what they read."""
    for op in operations[start + 1 :]:
        if op.name == "host.launch":
            yield op
        elif not (op.name in _CROSSED or op.name.startswith("arith.") or is_fresh(op)):
            return


def _may_join(op: Any, first: Any, place: dict[Any, int], kernels: _Kernels) -> bool:
    """Whether all operands of a later launch are available where ``first`` runs, or are its results."""
    inputs = kernels.inputs(op)
    dests = [v for v in op.operands if isinstance(v.type, ir.RankedTensorType)][len(inputs) :]
    if any(isinstance(dest.owner, ir.Block) or dest.owner.name != "tensor.empty" for dest in dests):
        return False
    needed = [v for v in op.operands if v not in dests and v not in set(first.results)]
    needed += [v for dest in dests for v in dest.owner.operands]
    return all(isinstance(v.owner, ir.Block) or place[v.owner] < place[first] for v in needed)
