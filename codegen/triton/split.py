"""Prints split reductions: several programs share a row and write partial results to a workspace.

A second launch combines them, or the program that ends last.

For each sweep of the schedule, ``partialK`` computes a part of the reduced points in steps (``heldK``, form
"split_persistent", holds its part at once). ``combineK`` combines the partial results in order, runs the row-level work
and stores that become possible, and keeps what later sweeps need. A last sweep that only stores has no ``combine``. No
atomics add them up, so that results are bitwise reproducible.

With ``one_launch`` of the variant, ``partialK`` or ``heldK`` is followed by ``combineK`` in that program of a group of
rows that ends last: ``partial_combinedK``, ``held_combinedK``. The programs of a group count themselves in a counter,
as in "threadFenceReduction" of NVIDIA's CUDA samples; none waits for another.

The workspace of an element type has a value per row for each result that a later sweep needs, then a value per row and
part for each partial result. The parts of a row are contiguous; in reductions of columns, neighbouring rows are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from symshape.analysis.loops import Instr, LoopKernel
from symshape.analysis.online import Online
from symshape.artifact.triton_kernels import TritonStage
from symshape.codegen.triton.forms import groups_text
from symshape.codegen.triton.function import WHOLE, FunctionText, branch, online_terms
from symshape.codegen.triton.reduce import accumulate, finish, is_arg, start
from symshape.codegen.triton.schedule import Schedule, closure, schedule
from symshape.codegen.variants import Variant
from symshape.dialects.accessors import MIXED
from symshape.machine.targets import GPU_MOST_WARPS

# Rows whose partial results a program combines (8, that is 32 bytes, the smallest memory transaction, if rows are
# contiguous), partial results combined at a time, and warps.
_COMBINED_ROWS: Final = 8
_COMBINED: Final = 4096
_COMBINED_IN_PARTS: Final = 2048  # the same in one launch, which has as many registers as the parts need
_COMBINE_WARPS: Final = 8
_COMBINED_BY_A_WARP: Final = 512
_UNROLLED: Final = 2  # unroll factor of the loop, for loads in flight; not used for larger steps
_STORED: Final = {"i1": "i8"}  # element type in the workspace, if it differs
_PART: Final = {"split": "partial", "split_persistent": "held"}  # functions that compute a part of a row, by form
_COMBINE: Final = "combine"
_COUNTERS: Final = "counters"  # the argument of functions whose programs count themselves
# Constants of a function that combines: rows, partial results at a time, points of a part, unroll factor, and whether
# several programs share its rows.
_COMBINING: Final = ("XBLOCK", "RBLOCK", "STEP", "UNROLLED", "SHARED")


@dataclass(frozen=True)
class Workspace:
    """Slots in the workspace by value number: (element type, index). ``kept`` per row, ``partial`` per row and part;
    ``column``: neighbouring rows, rather than parts, are contiguous."""

    kept: dict[int, tuple[str, int]]
    partial: dict[int, tuple[str, int]]
    column: bool

    @property
    def dtypes(self) -> list[str]:
        return sorted({dtype for dtype, _ in [*self.kept.values(), *self.partial.values()]})

    def count(self, slots: dict[int, tuple[str, int]], dtype: str) -> int:
        return sum(found == dtype for found, _ in slots.values())

    def sizes(self, rows: str = "xnumel") -> tuple[tuple[str, str], ...]:
        """Element types of the workspaces, each with Python for its number of elements."""
        return tuple((dtype, self._size(dtype, rows)) for dtype in self.dtypes)

    def _size(self, dtype: str, rows: str) -> str:
        kept, partial = self.count(self.kept, dtype), self.count(self.partial, dtype)
        parts = "splits" if partial == 1 else f"{partial} * splits"
        return f"{rows} * ({kept} + {parts})" if kept else f"{rows} * {parts}"

    def row(self, number: int) -> str:
        """The address of a kept result, for the program's rows."""
        dtype, slot = self.kept[number]
        return f"workspace_{dtype} + ({_times(slot, 'xnumel')}x)" if slot else f"workspace_{dtype} + x"

    def part(self, number: int, part: str, size: str = "xnumel", at: str = "x") -> str:
        """The address of a partial result. ``size`` and ``at`` are the names of the number of rows and of the row."""
        dtype, slot = self.partial[number]
        rows = self.count(self.kept, dtype)
        place = f"{part} * {size} + {at}" if self.column else f"{at} * splits + {part}"
        return f"workspace_{dtype} + ({_times(rows, size)}{_times(slot, f'{size} * splits')}{place})"


def _times(count: int, size: str) -> str:
    return f"{count} * {size} + " if count > 1 else f"{size} + " if count else ""


def is_column(kernel: LoopKernel) -> bool:
    """Whether the fast dim of the reduced tensor is parallel, so that neighbouring threads take neighbouring rows."""
    parallel = [d for d in kernel.dims if not d.reduced]
    reduced = [d for d in kernel.dims if d.reduced]
    votes = 0
    for instr in kernel.code:
        if instr.op == "load" and instr.address is not None and parallel and reduced:
            along_x = instr.address.coefficient(parallel[-1].name) == 1
            along_r = instr.address.coefficient(reduced[-1].name) == 1
            both = any(d.name in instr.address.symbols for d in reduced)
            votes += (along_x - along_r) if both else 0
    return votes > 0


class SplitWriter:
    """Prints the functions of split forms, in launch order."""

    def __init__(
        self,
        kernel: LoopKernel,
        name: str,
        bounds: frozenset[str],
        workspace: Workspace | None = None,
        kept: Iterable[int] = (),
    ) -> None:
        """``workspace``: shared with another writer; ``kept``: further results to keep for other functions."""
        self.kernel, self.name, self.bounds = kernel, name, bounds
        self.plan: Schedule = schedule(kernel)
        self.types = {n: t for i in kernel.code if i.op == "reduce" for n, t in zip(i.results, _types(i), strict=True)}
        self.sweeps = [k for k, one in enumerate(self.plan.sweeps) if one.body]
        self.workspace = workspace or Workspace(
            slots(sorted({*self._kept(), *kept}), self.types), slots(self._partial(), self.types), is_column(kernel)
        )

    def functions(self, form: str, one_launch: bool = False) -> list[FunctionText]:
        """All functions of a form, in launch order."""
        partial = self._partial_function if form == "split" else self._held_function
        write = {_PART[form]: partial, _COMBINE: self._combine_function}
        functions: list[FunctionText] = []
        for kind, k in self._launches(form):
            functions.append(write[kind](k))
            if one_launch and kind == _COMBINE:
                functions.append(self._combined_function(functions[-2], functions[-1], k))
        return functions

    def stages(self, variant: Variant) -> list[TritonStage]:
        """The launches of a variant. The launcher computes ``splits``, the number of programs that share a row."""
        groups = groups_text(variant.xblock)
        blocks = (("XBLOCK", variant.xblock), ("RBLOCK", variant.rblock))
        shared = f"({groups}) * splits" if " " in groups else f"{groups} * splits"
        stages = []
        for kind, k in self._launches(variant.form):
            if kind != _COMBINE:
                stages.append(TritonStage(f"{self.name}_{kind}{k}", blocks, variant.num_warps, shared))
            elif variant.one_launch:
                stages[-1] = self._combined_stage(stages[-1], variant, k)
            else:
                stages.append(combine_stage(f"{self.name}_combine{k}", variant))
        return stages

    def reductions(self) -> list[FunctionText]:
        """The functions of form "split_persistent" without the last sweep, which has no reduction."""
        return self.functions("split_persistent")[:-1]

    def reduction_stages(self, variant: Variant) -> list[TritonStage]:
        """The launches of `reductions`."""
        return self.stages(replace(variant, form="split_persistent"))[:-1]

    def combine(self) -> FunctionText:
        """The function that combines the partial results of a kernel with a single sweep."""
        return self._combine_function(self.sweeps[0])

    def combine_name(self) -> str:
        return f"{self.name}_combine{self.sweeps[0]}"

    def _launches(self, form: str) -> Iterator[tuple[str, int]]:
        for k in self.sweeps:
            yield _PART[form], k
            if self.plan.sweeps[k].reductions:
                yield _COMBINE, k

    # Addresses in the workspace.

    def _online(self, k: int) -> list[Online]:
        """The online sums of a sweep."""
        found = (self.plan.after(i.results[0]) for i in self.plan.sweeps[k].reductions)
        return [online for online in found if online]

    def _partial(self) -> list[int]:
        numbers = [n for one in self.plan.sweeps for i in one.reductions for n in i.results]
        return numbers + list(self.plan.online)

    def _kept(self) -> list[int]:
        """Results that later sweeps need, or row-level work after later sweeps."""
        used = [n for k in self.sweeps for n in self._earlier(self._rows_of_sweep(k), self.plan.sweeps[k].body)]
        used += [n for k in self.sweeps for n in self._earlier(self._rows_after(k)) if n not in self._found_in(k)]
        return used

    def _found_in(self, k: int) -> set[int]:
        numbers = {n for i in self.plan.sweeps[k].reductions for n in i.results}
        return numbers | {online.result for online in self._online(k)}

    def _earlier(self, *codes: Iterable[Instr]) -> list[int]:
        """Results of reductions that the code uses, also as operands of other reductions: they are row-level values."""
        online = self.plan.online
        operands = {n for code in codes for i in code if online.keys().isdisjoint(i.results) for n in i.operands}
        return sorted(operands & self.types.keys())

    def _rows_of_sweep(self, k: int) -> list[Instr]:
        """Row-level instructions that a sweep depends on."""
        code = closure(self.kernel.code, self.plan.sweeps[k].body)
        return [i for i in code if i.row or i.op == "constant"]

    def _rows_after(self, k: int) -> list[Instr]:
        """Row-level instructions that run after a sweep: stores, and the centres of its online sums."""
        due = (self.plan.sweeps[k + 1].rows if k + 1 < len(self.plan.sweeps) else ()) + (
            self.plan.sweeps[0].rows if k == 0 else ()
        )
        stores = [i for i in due if i.op in ("store", "check_index")]
        code = closure(self.kernel.code, stores, [online.centre for online in self._online(k)])
        sums = {online.result for online in self._online(k)}
        wanted = {id(i) for i in code}
        return [i for i in self.kernel.code if id(i) in wanted or not sums.isdisjoint(i.results)]

    # The functions.

    def _function(
        self, kind: str, blocks: Sequence[str], *more: str, calls: FunctionText | None = None, passes_on: bool = False
    ) -> FunctionText:
        own = [*(f"workspace_{dtype}" for dtype in self.workspace.dtypes), "splits", *more]
        f = FunctionText(
            *(self.kernel, f"{self.name}_{kind}", blocks), own=own, bounds=self.bounds, calls=calls, passes_on=passes_on
        )
        f.line("splits = tl.cast(splits, INDEX)")
        f.bound("xnumel", f.parallel)
        f.bound("rnumel", f.reduced)
        return f

    def load_kept(self, f: FunctionText, numbers: Iterable[int]) -> None:
        """Loads combined results of the program's rows."""
        for number in numbers:
            self._load(f, f"v{number}", number, self.workspace.row(number), "xmask")
            f.body.known([number])

    def _load(self, f: FunctionText, name: str, number: int, address: str, mask: str) -> None:
        truth = " != 0" if self.types[number] == "i1" else ""
        f.line(f"{name} = tl.load({address}, mask={mask}, other=0){truth}")

    def _partial_function(self, k: int) -> FunctionText:
        f = self._function(f"partial{k}", ["XBLOCK", "RBLOCK"])
        f.programs("split")
        f.line(
            "blocks = tl.cdiv(rnumel, RBLOCK)",
            "steps = tl.cdiv(blocks, splits)",
            "begin = tl.minimum(split * steps, blocks) * RBLOCK",
            "end = tl.minimum((split + 1) * steps, blocks) * RBLOCK",
        )
        one, rows = self.plan.sweeps[k], self._rows_of_sweep(k)
        self.load_kept(f, self._earlier(rows, one.body))
        for instr in rows:
            f.body.emit(instr)
        f.reduce_sweep(self.plan, one.body, "tr.loop_end(begin)", "tr.loop_end(end)")
        sums = self._online(k)
        if any(online.kind == "square" for online in sums):
            f.line("count = tl.maximum(tl.minimum(end, rnumel) - begin, 0)")
        for online in sums:
            if online.kind == "exp":
                terms = f"tr.exp_merge(acc{online.first}, acc{online.result}, v{online.first})"
            else:
                terms = online_terms(online, "count", f"tr.mean(v{online.first}, count)")
            f.line(f"v{online.result} = tr.row_sum({terms})")
        self._store_parts(f, k)
        return f

    def _held_function(self, k: int) -> FunctionText:
        """Like `_partial_function`, but the program holds all its points at once: no step waits for a previous one's
        loads, and squares are relative to the part's mean from the start.

        All parts of a row but the last are full, and computed without a mask, which would prevent vector accesses if
        its bound is not a multiple of 16.
        """
        points = self._held_points(k)
        f = self._function(f"held{k}", ["XBLOCK", "RBLOCK"], calls=points)
        given = [*f.given(), *f.own, "split", "x", "r", "{}", *f.constants]
        call = f"{points.name}({', '.join(given)})"
        masked = call.format(f.mask("r"))
        f.groups("split")
        f.line(
            "x = (program % groups) * XBLOCK + tl.arange(0, XBLOCK)[:, None]",
            "begin = split * RBLOCK",
            "r = (begin + tl.arange(0, RBLOCK)[None, :]).to(INDEX)",
            *branch("begin + RBLOCK <= rnumel", call.format("tl.full([1, RBLOCK], True, tl.int1)"), masked),
        )
        f.constants.append(WHOLE)
        return f

    def _held_points(self, k: int) -> FunctionText:
        """The function that computes one part, called with and without a mask."""
        f = self._function(f"held{k}_points", ["XBLOCK", "RBLOCK"], "split", "x", "r", "rmask")
        f.line("xmask = tr.rows(x, xnumel, XBLOCK)")
        f.body.recover("x", f.parallel)
        one, rows = self.plan.sweeps[k], self._rows_of_sweep(k)
        self.load_kept(f, self._earlier(rows, one.body))
        for instr in rows:
            f.body.emit(instr)
        f.body.recover("r", f.reduced)
        for instr in one.body:
            f.body.emit(instr)
            online = self.plan.after(instr.results[0]) if instr.op == "reduce" else None
            if online is not None:
                first, value = f"v{online.first}", f.body.operand(instr.operands[0])
                count = "" if online.kind == "exp" else "tl.minimum(rnumel - split * RBLOCK, RBLOCK), "
                f.line(f"v{online.result} = tr.row_sum(tr.{online.kind}_held({value}, {first}, {count}rmask))")
        self._store_parts(f, k)
        return f

    def _store_parts(self, f: FunctionText, k: int) -> None:
        """Stores the partial results of a part."""
        reductions = self.plan.sweeps[k].reductions
        for number in [*(n for i in reductions for n in i.results), *(o.result for o in self._online(k))]:
            f.line(f"tl.store({self.workspace.part(number, 'split')}, {self._stored(number)}, mask=xmask)")

    def _stored(self, number: int) -> str:
        return f"v{number}.to(tl.int8)" if self.types[number] == "i1" else f"v{number}"

    def _combine_function(self, k: int) -> FunctionText:
        f = self._function(f"{_COMBINE}{k}", _COMBINING)
        f.line("group = tr.group(tl.program_id(0).to(INDEX), xnumel, XBLOCK, SHARED)")
        f.points("group")
        reductions = self.plan.sweeps[k].reductions
        for instr in reductions:
            f.line(*start(instr, "tl.int64"))
        f.loop("0", "tr.loop_end(splits)", lambda: self._combine_step(f, reductions), "UNROLLED")
        for instr in reductions:
            f.line(*finish(instr))
            f.body.known(instr.results)
        rows = self._rows_after(k)
        self.load_kept(f, [n for n in self._earlier(rows) if n not in self._found_in(k)])
        for instr in rows:
            online = self.plan.online.get(instr.results[0]) if instr.op == "reduce" else None
            if online is None:
                f.body.emit(instr)
            else:
                self._combine_sum(f, online)
        for number in sorted(self._found_in(k) & self.workspace.kept.keys()):
            f.line(f"tl.store({self.workspace.row(number)}, {self._stored(number)}, mask=xmask)")
        return f

    def _combined_function(self, partial: FunctionText, combine: FunctionText, k: int) -> FunctionText:
        """Both in one launch."""
        kind = partial.name.removeprefix(f"{self.name}_").removesuffix(str(k))
        f = self._function(
            f"{kind}_combined{k}", ["XBLOCK", "RBLOCK", "COMBINED", "UNROLLED"], _COUNTERS, passes_on=True
        )
        as_here = {"RBLOCK": "COMBINED", "STEP": "RBLOCK", "SHARED": "True"}
        given = [*f.given(), *partial.own]
        constants = [as_here.get(name, name) for name in combine.constants]
        f.line(
            f"{partial.name}({', '.join([*given, *partial.constants])})",
            "group = tr.group(tl.program_id(0).to(INDEX), xnumel, XBLOCK, True)",
            f"if tr.is_last({_COUNTERS} + group, splits):",
            f"    {combine.name}({', '.join([*given, *constants])})",
        )
        f.constants = list(dict.fromkeys([*f.constants, *partial.constants]))
        return f

    def _combined_stage(self, partial: TritonStage, variant: Variant, k: int) -> TritonStage:
        """The launch of `_combined_function`: as many partial results at a time as keep the registers of the part."""
        block = min(variant.yblock, max(1, _COMBINED_IN_PARTS // variant.xblock))
        name = f"{self.name}_{_PART[variant.form]}_combined{k}"
        constants = (*partial.constants, ("COMBINED", block), ("UNROLLED", _UNROLLED))
        return replace(partial, function=name, constants=constants)

    def _combine_step(self, f: FunctionText, reductions: Iterable[Instr]) -> None:
        self._parts(f)
        for instr in reductions:
            for number in instr.results:
                self._load(f, f"p{number}", number, self.workspace.part(number, "r"), "rmask & xmask")
            at = f"p{instr.results[1]}" if is_arg(instr) else ""
            f.line(*accumulate(instr, f"p{instr.results[0]}", at))

    def _parts(self, f: FunctionText) -> None:
        f.line("r = (chunk + tl.arange(0, RBLOCK)[None, :]).to(INDEX)", "rmask = r < splits")

    def _combine_sum(self, f: FunctionText, online: Online) -> None:
        """Combines an online sum: sums the contribution of each part, now that its centre is known."""
        acc, first, second = f"acc{online.result}", f"p{online.first}", f"p{online.result}"
        f.line(f"{acc} = tl.zeros([XBLOCK, RBLOCK], v{online.first}.dtype)")

        def step() -> None:
            self._parts(f)
            for number in (online.first, online.result):
                self._load(f, f"p{number}", number, self.workspace.part(number, "r"), "rmask & xmask")
            centre = f.body.operand(online.centre)
            counts = "tr.part_counts(r, rnumel, splits, STEP), "
            terms = (
                f"tr.exp_terms({first}, {second}, {centre})"
                if online.kind == "exp"
                else f"tr.square_parts({first}, {second}, {counts}{centre})"
            )
            f.line(f"{acc} += tl.where(rmask, {terms}, 0.0)")

        f.loop("0", "tr.loop_end(splits)", step, "UNROLLED")
        f.line(f"v{online.result} = tr.row_sum({acc})")
        f.body.known([online.result])


def _types(instr: Instr) -> list[str]:
    return [instr.dtype, "i64"][: len(instr.results)]


def combine_stage(function: str, variant: Variant, rows: str = "xnumel") -> TritonStage:
    """The launch that combines a variant's partial results. ``rows``: the name of the number of rows."""
    step = variant.yblock
    most = _COMBINED_ROWS if variant.form == MIXED else min(_COMBINED_ROWS, variant.xblock)
    block = min(most, max(1, _COMBINED // step))
    warps = min(GPU_MOST_WARPS, max(_COMBINE_WARPS, block * step // _COMBINED_BY_A_WARP))
    unrolled = _UNROLLED if block * step <= _COMBINED else 1
    constants = (("XBLOCK", block), ("RBLOCK", step), ("STEP", variant.rblock), ("UNROLLED", unrolled), ("SHARED", 0))
    return TritonStage(function, constants, warps, groups_text(block, rows))


def slots(numbers: Iterable[int], types: dict[int, str]) -> dict[int, tuple[str, int]]:
    """Slots for values, numbered within each element type."""
    counts: dict[str, int] = {}
    result = {}
    for number in numbers:
        dtype = _STORED.get(types[number], types[number])
        result[number] = (dtype, counts.get(dtype, 0))
        counts[dtype] = counts.get(dtype, 0) + 1
    return result
