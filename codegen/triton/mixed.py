"""Prints kernels that reduce rows and columns of the same points (`analysis/mixed_reductions.py`), in two forms.

``mixed``: each program loops over its rows, in groups that it holds with all their points. A row's reductions are
complete at once; sums of columns are accumulated in registers, one per lane, and written to a workspace at the end. For
each column kernel a second launch combines these partial sums in order, and runs the rest of that kernel.
``mixed_split``: rows too long to be held are first reduced as in a split reduction. Then each program takes a block of
columns and loops over all rows: it computes what needs the rows' results, sums the columns, and runs the epilogue.

No atomics are used, so that results are bitwise reproducible. Loads that do not depend on the row happen once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from symshape.analysis.loops import EFFECTS, Instr, LoopKernel
from symshape.artifact.triton_kernels import TritonStage
from symshape.codegen.triton.function import FunctionText
from symshape.codegen.triton.reduce import accumulate, start
from symshape.codegen.triton.schedule import schedule
from symshape.codegen.triton.split import SplitWriter, Workspace, combine_stage, slots
from symshape.codegen.variants import Variant
from symshape.dialects.accessors import MIXED
from symshape.errors import KernelError
from symshape.prover.numbers.expr import Expr, ceildiv

_COLUMN: Final = frozenset({"r"})  # axes of a value with one element per column


class MixedWriter:
    """Prints the functions of both forms."""

    def __init__(self, kernel: LoopKernel, name: str, bounds: frozenset[str]) -> None:
        assert kernel.mixed is not None
        self.kernel, self.mixed, self.name, self.bounds = kernel, kernel.mixed, name, bounds
        self.sums = [instr for instr in kernel.code if instr.op == "across"]
        types = {instr.results[0]: instr.dtype for instr in self.sums}
        self.workspace = Workspace({}, slots(types, types), column=True)
        self.columns = [
            SplitWriter(columns, f"{name}_columns{i}", frozenset(), self.workspace)
            for i, columns in enumerate(kernel.mixed.columns)
        ]
        self.last, self.kept = self._last_sweep()
        self.rows = SplitWriter(kernel.mixed.rows, f"{name}_split", bounds, kept=self.kept)

    def functions(self, form: str) -> list[FunctionText]:
        """All functions of a form, in launch order."""
        if form == MIXED:
            return [self._rows(), *(writer.combine() for writer in self.columns)]
        return [*self.rows.reductions(), self._columns()]

    def stages(self, variant: Variant) -> list[TritonStage]:
        """The launches of a variant. The launcher computes ``splits``, the number of programs that share the rows."""
        if variant.form == MIXED:
            blocks = (("XBLOCK", variant.xblock), ("RBLOCK", variant.rblock), ("STAGES", variant.num_stages))
            first = TritonStage(f"{self.name}_rows", blocks, variant.num_warps, "splits")
            return [first, *(combine_stage(w.combine_name(), variant, "rnumel") for w in self.columns)]
        block = variant.rblock // variant.xblock
        blocks = (("XBLOCK", variant.xblock), ("RBLOCK", block), ("STAGES", variant.num_stages))
        programs = ceildiv(Expr.symbol("rnumel"), block).python()
        last = TritonStage(f"{self.name}_tiles", blocks, variant.num_warps, programs)
        return [*self.rows.reduction_stages(replace(variant, xblock=1)), last]

    def workspace_sizes(self, form: str) -> tuple[tuple[str, str], ...]:
        """The workspace of a form, as `TritonVariant` has it."""
        return self.workspace.sizes("rnumel") if form == MIXED else self.rows.workspace.sizes()

    def _function(self, name: str, workspace: Workspace) -> FunctionText:
        own = [*(f"workspace_{dtype}" for dtype in workspace.dtypes), "splits"]
        blocks = ["XBLOCK", "RBLOCK", "STAGES"]
        f = FunctionText(self.kernel, f"{self.name}_{name}", blocks, own=own, bounds=self.bounds)
        f.line("splits = tl.cast(splits, INDEX)")
        f.bound("xnumel", f.parallel)
        f.bound("rnumel", f.reduced)
        f.line("program = tl.program_id(0).to(INDEX)", "groups = tl.cdiv(xnumel, XBLOCK)")
        return f

    def _rows(self) -> FunctionText:
        f = self._function("rows", self.workspace)
        f.line(
            "steps = tl.cdiv(groups, splits)",
            "begin = tl.minimum(program * steps, groups)",
            "end = tl.minimum((program + 1) * steps, groups)",
        )
        f.reduced_points("0")
        self._go(f, self.kernel.code, "tr.loop_end(begin)", "end")
        for instr in self.sums:
            (number,) = instr.results
            address = self.workspace.part(number, "program", size="rnumel", at="r")
            f.line(f"tl.store({address}, v{number}, mask=rmask)")
        return f

    def _columns(self) -> FunctionText:
        f = self._function("tiles", self.rows.workspace)
        f.reduced_points("program * RBLOCK")
        self._go(f, self.last, "0", "groups", lambda: self.rows.load_kept(f, self.kept))
        f.body.row = _COLUMN
        for instr in self.mixed.epilogue:
            f.body.emit(instr)
        return f

    def _last_sweep(self) -> tuple[list[Instr], list[int]]:
        """The instructions to run once the rows' results are known, and the values of those results that they need."""
        needed = {number for instr in self.mixed.epilogue for number in instr.operands}
        *before, _ = [sweep.body for sweep in schedule(self.mixed.rows).sweeps if sweep.body]
        done = [instr for body in before for instr in body if instr.op == "store"]
        code: list[Instr] = []
        results: list[int] = []
        for instr in reversed(self.kernel.code):
            root = instr.op == "across" or instr.op == "store" and not instr.row and instr not in done
            if not root and needed.isdisjoint(instr.results):
                continue
            if instr.op == "reduce":
                results += [number for number in instr.results if number in needed]
                continue
            needed.update(instr.operands)
            code.append(instr)
        return code[::-1], sorted(results)

    def _go(
        self,
        f: FunctionText,
        code: Sequence[Instr],
        begin: str,
        end: str,
        before: Callable[[], None] = lambda: None,
    ) -> None:
        """Prints a loop over groups of rows, then the definitions of column sums. ``before`` prints the start of the
        loop body."""
        same, each = _same_in_all_rows(self.kernel, code)
        for instr in same:
            f.body.emit(instr)
        for instr in self.sums:
            f.line(*start(instr))
        f.line(f"for group in tl.range({begin}, tr.loop_end({end}), num_stages=STAGES):")
        f.body.indent += "    "
        f.points("group")
        before()
        for instr in each:
            if instr.op == "across":
                f.line(*accumulate(instr, f.body.operand(instr.operands[0]), mask="xmask"))
            else:
                f.body.emit(instr)
        f.body.indent = f.body.indent[4:]
        for instr in self.sums:
            f.line(f"v{instr.results[0]} = tr.column_sum(acc{instr.results[0]})")
            f.body.known(instr.results, _COLUMN)


def _same_in_all_rows(kernel: LoopKernel, code: Iterable[Instr]) -> tuple[list[Instr], list[Instr]]:
    """Splits instructions into those that do not depend on the row, and the others."""
    rows = {d.name for d in kernel.dims if not d.reduced}
    same: list[Instr] = []
    each: list[Instr] = []
    made: set[int] = set()  # results of the former
    for instr in code:
        exprs = (*instr.mask, *(() if instr.address is None else (instr.address,)))
        depends = not made.issuperset(instr.operands) or any(not rows.isdisjoint(e.symbols) for e in exprs)
        if depends or instr.op in EFFECTS or instr.op in ("reduce", "across"):
            each.append(instr)
        else:
            made.update(instr.results)
            same.append(instr)
    return same, each


def call_lines(kernel: LoopKernel) -> list[str]:
    """Python lines that launch the separate kernels of a mixture, in order."""
    if kernel.mixed is None:
        raise KernelError(f"{kernel.name} launches no kernels", next_step="this is a bug of the code generator")
    return [f"{callee}({', '.join(arguments)})" for callee, arguments in kernel.mixed.launches]


def callees(kernel: LoopKernel) -> tuple[str, ...]:
    """Names of the separate kernels of a mixture, without duplicates."""
    return () if kernel.mixed is None else tuple(dict.fromkeys(callee for callee, _ in kernel.mixed.launches))
