"""The forms that run in one launch: pointwise, tile, persistent, headed, looped. Prints the jit function of each."""

from __future__ import annotations

from collections.abc import Sequence

from symshape.analysis.loops import LoopKernel
from symshape.artifact.triton_kernels import TritonStage
from symshape.codegen.triton.body import Segment
from symshape.codegen.triton.function import WHOLE, FunctionText, branch, online_terms
from symshape.codegen.triton.register_pressure import register_limit
from symshape.codegen.triton.schedule import schedule
from symshape.codegen.variants import Variant
from symshape.prover.numbers.expr import Expr, ceildiv, product

Bounds = frozenset[str]


def pointwise(kernel: LoopKernel, name: str, bounds: Bounds) -> FunctionText:
    """Each program computes XBLOCK points of all dims, in row-major order.

    All blocks but the last are full and computed without a mask: if a mask's bound is not known to be a multiple of 16,
    the compiler cannot vectorise loads and stores under it.
    """
    points = FunctionText(kernel, f"{name}_points", [], own=("x", "xmask"))
    points.body.recover("x", points.parallel)
    for instr in kernel.code:
        points.body.emit(instr)
    f = FunctionText(kernel, name, ["XBLOCK"], bounds=bounds, calls=points)
    f.bound("xnumel", f.parallel)
    f.constants.append(WHOLE)
    call = f"{points.name}({', '.join([*f.given(), 'x', '{}', 'INDEX'])})"
    f.line(
        "begin = tl.program_id(0).to(INDEX) * XBLOCK",
        "x = begin + tl.arange(0, XBLOCK)",
        *branch("begin + XBLOCK <= xnumel", call.format("tl.full([XBLOCK], True, tl.int1)"), call.format("x < xnumel")),
    )
    return f


def tile(kernel: LoopKernel, name: str, bounds: Bounds, dims: Sequence[str]) -> FunctionText:
    """Each program computes YBLOCK x XBLOCK points of two dims, at one point of the other dims.

    Each access is coalesced along the dim that is contiguous for it. Data loaded along the first dim is exchanged
    through shared memory, to be stored along the second.
    """
    outer, inner = dims
    axis_of = {d.name: "" for d in kernel.dims} | {outer: "y", inner: "x"}
    f = FunctionText(kernel, name, ["XBLOCK", "YBLOCK"], bounds=bounds, axis_of=axis_of)
    f.bound("xnumel", [d for d in kernel.dims if d.name == inner])
    f.bound("ynumel", [d for d in kernel.dims if d.name == outer])
    f.line(
        "xtiles = tl.cdiv(xnumel, XBLOCK)",
        "ytiles = tl.cdiv(ynumel, YBLOCK)",
        "program = tl.program_id(0).to(INDEX)",
        "x = (program % xtiles) * XBLOCK + tl.arange(0, XBLOCK)[None, :]",
        "y = (program // xtiles % ytiles) * YBLOCK + tl.arange(0, YBLOCK)[:, None]",
        "xmask = x < xnumel",
        "ymask = y < ynumel",
        f"{outer} = y",
        f"{inner} = x",
    )
    rest = [d for d in kernel.dims if d.name not in dims]
    if rest:
        f.line("rest = program // xtiles // ytiles")
        f.body.recover("rest", rest)
    for instr in kernel.code:
        f.body.emit(instr)
    return f


def persistent(kernel: LoopKernel, name: str, bounds: Bounds) -> FunctionText:
    """Each program holds XBLOCK rows with all their reduced points, which are read once."""
    f = FunctionText(kernel, name, ["XBLOCK", "RBLOCK"], bounds=bounds)
    f.bound("xnumel", f.parallel)
    f.programs()
    f.bound("rnumel", f.reduced)
    f.reduced_points("0")
    for instr in kernel.code:
        f.body.emit(instr)
    return f


def headed(kernel: LoopKernel, name: str, bounds: Bounds) -> FunctionText:
    """Each program holds XBLOCK rows in two blocks of reduced points: RBLOCK, all present and thus without a mask, and
    up to YBLOCK further ones.

    A single block must have a power of two of lanes. For 9973 points it would have 16384, of which 40% are idle but
    take registers, so that two programs would not fit on a processor, one loading while the other computes.
    """
    segments = Segment(masked=False), Segment("t", block="YBLOCK")
    f = FunctionText(kernel, name, ["XBLOCK", "RBLOCK", "YBLOCK"], bounds=bounds, segments=segments)
    f.bound("xnumel", f.parallel)
    f.programs()
    f.bound("rnumel", f.reduced)
    f.reduced_points("0", segments[0])
    f.reduced_points("RBLOCK", segments[1])
    for instr in kernel.code:
        f.body.emit(instr)
    return f


def looped(kernel: LoopKernel, name: str, bounds: Bounds) -> FunctionText:
    """Each program reads XBLOCK rows in steps of RBLOCK reduced points, once per sweep of the schedule.

    Loads of the last sweep are evicted first from the cache, in favour of data that other programs will read again.
    """
    f = FunctionText(kernel, name, ["XBLOCK", "RBLOCK"], bounds=bounds)
    f.bound("xnumel", f.parallel)
    f.programs()
    size = f.bound("rnumel", f.reduced)
    end = "rnumel" if size.as_int() is not None else "tr.loop_end(rnumel)"
    plan = schedule(kernel)
    last = max((i for i, one in enumerate(plan.sweeps) if one.body), default=0)
    for i, one in enumerate(plan.sweeps):
        for instr in one.rows:
            online = plan.online.get(instr.results[0]) if instr.op == "reduce" else None
            if online is None:
                f.body.emit(instr)
                continue
            terms = online_terms(online, "rnumel", f.body.operand(online.centre))
            f.line(f"v{online.result} = tr.row_sum({terms})")
            f.body.known([online.result])
        if one.body:
            f.body.eviction = "evict_last" if i < last else "evict_first"
            f.reduce_sweep(plan, one.body, "0", end)
            f.body.eviction = ""
    return f


FORMS = {"pointwise": pointwise, "persistent": persistent, "headed": headed, "looped": looped}


def function_of(kernel: LoopKernel, name: str, bounds: Bounds, variant: Variant) -> FunctionText:
    """The jit function of a variant that takes one launch."""
    if variant.form == "tile":
        return tile(kernel, name, bounds, variant.dims)
    return FORMS[variant.form](kernel, name, bounds)


def stage_of(kernel: LoopKernel, name: str, variant: Variant) -> TritonStage:
    """The launch of that function: block sizes, warps, number of programs."""
    blocks = [("XBLOCK", variant.xblock)]
    if variant.form == "tile":
        sizes = {d.name: d.size for d in kernel.dims}
        rest = product(size for dim, size in sizes.items() if dim not in variant.dims)
        tiles = [ceildiv(sizes[variant.dims[0]], variant.yblock), ceildiv(sizes[variant.dims[1]], variant.xblock)]
        return TritonStage(
            name, (*blocks, ("YBLOCK", variant.yblock)), variant.num_warps, product([rest, *tiles]).python()
        )
    if variant.form != "pointwise":
        blocks.append(("RBLOCK", variant.rblock))
    if variant.form == "headed":
        blocks.append(("YBLOCK", variant.yblock))
    registers = register_limit(variant, kernel)
    return TritonStage(name, tuple(blocks), variant.num_warps, groups_text(variant.xblock), registers)


def groups_text(xblock: int, rows: str = "xnumel") -> str:
    """Python for the number of blocks of ``xblock`` rows."""
    return rows if xblock == 1 else ceildiv(Expr.symbol(rows), xblock).python()
