"""Kernels that reduce rows and columns of the same points, in two forms; and the launches that they replace.

``mixed``: each program goes over its rows, some at a time with all their points. A row's reductions are known at once;
the sums of the columns go along in registers, a number for each lane, and are written to a workspace at the end. A
second launch for each kernel that sums columns combines the parts in their order, with what that kernel does then.

``mixed_split``: rows that no program can hold are reduced as in a split reduction. Then each program has a block of
columns and goes over all rows: it does what needs the rows' results, sums the columns, and does what needs the sums.

No atomics: two runs are bitwise equal. What is the same for all rows is read once.
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
from symshape.dialects.plans import MIXED
from symshape.errors import KernelError
from symshape.prover.numbers.expr import Expr, ceildiv

_COLUMN: Final = frozenset({"r"})  # the axes of a value of a column


class MixedWriter:
    """Writes the functions of both forms."""

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
        """All functions of a form, in the order in which they are launched."""
        if form == MIXED:
            return [self._rows(), *(writer.combine() for writer in self.columns)]
        return [*self.rows.reductions(), self._columns()]

    def stages(self, variant: Variant) -> list[TritonStage]:
        """Their launches; ``splits``, the number of programs that share something, is computed by the launcher."""
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
        """As of a variant."""
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
        """What is left to do where the rows' results are known, and which of these it needs."""
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
        """A loop over groups of rows, behind which the sums are defined. ``before`` prints what comes first in it."""
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
    """The instructions that do not depend on the row, and the others."""
    rows = {d.name for d in kernel.dims if not d.reduced}
    same: list[Instr] = []
    each: list[Instr] = []
    made: set[int] = set()  # by the first
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
    """Python that launches the kernels one after the other."""
    if kernel.mixed is None:
        raise KernelError(f"{kernel.name} launches no kernels", next_step="this is a bug of the code generator")
    return [f"{callee}({', '.join(arguments)})" for callee, arguments in kernel.mixed.launches]


def callees(kernel: LoopKernel) -> tuple[str, ...]:
    """The kernels that are launched one after the other, each once."""
    return () if kernel.mixed is None else tuple(dict.fromkeys(callee for callee, _ in kernel.mixed.launches))
