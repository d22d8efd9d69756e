"""Forms and blocks of bench/gpu.py: the planner's choice for a reduction against a sweep over all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final
from unittest import mock

import torch
from gpu_kernels import DTYPES, chosen_variant
from gpu_run import Job, Run, Work
from kernel_programs import PROGRAMS, KernelProgram, Shape, meet

from symshape.codegen.variants import Variant
from symshape.dialects.accessors import MIXED
from symshape.dialects.plans import MIXED_SPLIT, SEPARATE, SPLIT
from symshape.prover.numbers.condition import TRUE
from symshape.prover.numbers.expr import Expr
from symshape.tools.measure import relative_error

# By program, or program and kernel.
SHAPES: Final[dict[tuple[str, str], tuple[Shape, ...]]] = {
    ("softmax", "float32"): (
        (1_000_003, 31),
        (50_000_017, 2),
        (131_072, 8),
        (200_000, 151),
        (100_000, 512),
        (10_007, 9973),
        (30_000, 3001),
        (60_000, 1500),
        (20_000, 4096),
    ),
    ("softmax", "bfloat16"): ((1, 100_000_007), (1_000_003, 31), (50_000_017, 2), (131_072, 8)),
    ("rms_norm", "float32"): ((1_000_003, 31),),
    ("rms_norm", "bfloat16"): ((1_000_003, 31), (131_072, 8)),
    ("layer_norm", "bfloat16"): ((1_000_003, 31),),
    ("layer_norm", "float32"): ((1_000_003, 31), (10_007, 9973)),
    ("layer_norm_backward", "float32"): (
        (8, 1_048_576),
        (1_000_003, 31),
        (1, 100_000_007),
        (100_000, 768),
        (16_384, 4096),
        (131_072, 8),
    ),
    ("layer_norm_backward", "bfloat16"): ((100_000, 768), (8, 1_048_576)),
    ("variance", "float32"): ((1_000_003, 31), (10_007, 9973), (20_000, 4096)),
    ("cross_entropy", "float32"): ((2000, 50_257),),
    ("sum_last", "float32"): ((1_000_003, 31), (10_007, 9973), (4096, 4096), (8, 1_048_576)),
    ("sum_last", "bfloat16"): ((10_007, 9973), (4096, 4096), (8, 1_048_576)),
    ("sum_first", "float32"): ((4096, 4096), (1_000_003, 31)),
    ("sum_all", "float32"): ((1_000_003,), (16_777_216,), (33_554_432,), (100_000_007,)),
}
DRY: Final[dict[tuple[str, str], tuple[Shape, ...]]] = {
    ("sum_last", "float32"): ((3, 70), (2, 1100)),
    ("layer_norm_backward/kernel_2", "float32"): ((40, 7),),
}
LOOPED: Final = ((1024, 4), (1024, 8), (2048, 4), (2048, 8), (2048, 16), (4096, 8), (4096, 16))
PARTS: Final = ((2048, 4), (4096, 4), (4096, 8), (8192, 4), (8192, 8), (8192, 16), (16_384, 8), (16_384, 16))
COLUMNS: Final = (32, 64, 128, 256)  # neighbouring rows of a program
TAKEN: Final = 4096  # partial results that a program combines at a time, of all its rows
COMBINE: Final = (512, 2048, 4096, 16_384)  # partial results at a time
WARPS: Final = (4, 8, 16)
LONG: Final = 49_152  # points of the shortest row that is split
SHORT: Final = 1024  # points of the longest row that shares a program with others
TILES: Final = (512, 1024, 2048, 4096, 8192)  # points of a program of several rows
LARGEST: Final = 32_768  # points of a row that a program can hold
LEAST: Final = 1 << 19  # points of a kernel that is worth a sweep
EACH: Final = (32, 128, 512)  # rows of a program that reduces rows and columns
TOLERANCE: Final = 1e-2  # of a candidate's results against those of the plan


@dataclass(frozen=True)
class Recorded:
    """A kernel as it was launched: with the loops and plans that it was emitted from; ``others``: what it launches."""

    kernel: Any
    report: Any
    args: tuple[Any, ...]
    others: Mapping[str, Callable[..., None]] = field(default_factory=dict)

    @property
    def points(self) -> tuple[int, int]:
        """Rows, and points of each."""
        texts = self.kernel.xnumel, self.kernel.rnumel
        rows, points = (int(eval(text, {"max": max, "min": min}, self.sizes)) for text in texts)
        return rows, points

    @property
    def sizes(self) -> dict[str, int]:
        symbols = self.kernel.symbols
        start = len(self.kernel.tensors)
        return dict(zip(symbols, self.args[start : start + len(symbols)], strict=True))


def recorded(run: Run, program: KernelProgram, shape: Shape, dtype: str) -> list[Recorded]:
    """The launches of a call of the compiled program at a shape, in order."""
    import symshape
    from symshape.runtime.triton import launch

    found: list[tuple[Any, tuple[Any, ...], Mapping[str, Callable[..., None]]]] = []
    load = launch.load_triton

    def load_recorder(kernel: Any, others: Mapping[str, Callable[..., None]] | None = None) -> Callable[..., None]:
        others = others or {}
        own = load(kernel, others=others)

        def record(*args: Any) -> None:
            found.append((kernel, args, others))
            own(*args)

        return record

    first = program.inputs(program.first, run.device, DTYPES[dtype])
    report = symshape.explain(program.copy(), *first, options=run.options)
    loops = {one.name: one for graph in report.graphs for one in graph.kernels}
    with mock.patch.object(launch, "load_triton", load_recorder):
        compiled = torch.compile(program.copy(), dynamic=True, **run.backend("symshape"))
        meet(compiled, first)
        found.clear()
        compiled(*program.inputs(shape, run.device, DTYPES[dtype]))
    return [Recorded(kernel, loops[kernel.name], args, others) for kernel, args, others in found]


def candidates(base: Variant, rows: int, points: int, processors: int, column: bool) -> Iterator[Variant]:
    """Other ways to reduce ``rows`` rows of ``points``, all of them right there; ``column``: rows are neighbours."""
    plain = replace(base, condition=TRUE, xblock=1, yblock=0, splits=None)
    if column:
        yield from columns(plain, rows, points) if points > SHORT else wide_columns(plain, points)
        return
    if points <= SHORT:
        yield from shared(plain, points)
        return
    if points >= LONG and rows < 2 * processors:
        yield from divided(plain, points)
        return
    for rblock, warps in LOOPED:
        yield replace(plain, name=f"looped{rblock}_w{warps}", form="looped", rblock=rblock, num_warps=warps)
    for rblock, behind in blocks(points):
        form, at = ("headed", f"headed{rblock}_{behind}") if behind else ("persistent", f"persistent{rblock}")
        for warps in WARPS:
            own = replace(plain, name=f"{at}_w{warps}", form=form, rblock=rblock, yblock=behind, num_warps=warps)
            if 4 <= (rblock + behind) // (32 * warps) <= 64:
                yield own


def mixtures(plain: Variant, rows: int, points: int) -> Iterator[Variant]:
    """Ways to reduce rows and columns at once."""
    yield replace(plain, name=SEPARATE, form=SEPARATE, xblock=0, yblock=0, rblock=0, num_warps=0, splits=None)
    rblock = max(2, 1 << (points - 1).bit_length())
    if rblock > LARGEST // 4:
        for xblock in (1,) if rows == 1 else (1, 2, 4):
            for part in (1024, 2048, 4096):
                for warps in WARPS:
                    if 4 <= part // (32 * warps) <= 32:
                        at = f"split{xblock}x{part}_w{warps}"
                        own = replace(plain, name=at, form=MIXED_SPLIT, xblock=xblock, yblock=TAKEN, splits=None)
                        yield replace(own, rblock=part, num_warps=warps)
        return
    for xblock in dict.fromkeys(max(1, tile // rblock) for tile in (1024, 2048, 4096)):
        for warps in (1, 2, *WARPS):
            if 4 <= xblock * rblock // (32 * warps) <= 32:
                for each in EACH:
                    at = f"mixed{xblock}x{rblock}_w{warps}_rows{each}"
                    own = replace(plain, name=at, form=MIXED, xblock=xblock, yblock=512, rblock=rblock)
                    yield replace(own, num_warps=warps, splits=Expr.const(-(-rows // max(each, xblock))))


def divided(plain: Variant, points: int) -> Iterator[Variant]:
    """Rows of so many points, each shared by programs that hold a part: how much of it, and by how many warps."""
    for part, warps in PARTS:
        if part < points:
            own = replace(plain, form="split_persistent", yblock=TAKEN, rblock=part, num_warps=warps)
            yield replace(own, name=f"parts{part}_w{warps}")


def columns(plain: Variant, rows: int, points: int) -> Iterator[Variant]:
    """The same of neighbouring rows: how many to a program."""
    for width in COLUMNS:
        for part, warps in PARTS:
            rblock = part // width
            if width <= 2 * rows and 8 <= rblock < points and 8 <= part // (32 * warps) <= 64:
                own = replace(plain, form="split_persistent", xblock=width, rblock=rblock, num_warps=warps)
                yield replace(own, name=f"parts{width}x{rblock}_w{warps}", yblock=TAKEN // min(8, width))


def wide_columns(plain: Variant, points: int) -> Iterator[Variant]:
    """So few points that each thread reduces rows of its own."""
    for width in (512, 1024, 2048):
        for warps in (4, 8):
            for rblock in (2, 4, 8):
                if width * rblock <= 8192 and 1 <= width // (32 * warps) <= 16 and rblock <= 2 * points:
                    own = replace(plain, form="looped", xblock=width, rblock=rblock, num_warps=warps)
                    yield replace(own, name=f"columns{width}x{rblock}_w{warps}")


def shared(plain: Variant, points: int) -> Iterator[Variant]:
    """Rows of so many points, several of them to a program: how many, and by how many warps."""
    rblock = max(2, 1 << (points - 1).bit_length())
    for tile in TILES:
        for warps in (1, 2, *WARPS):
            if tile >= rblock and 2 <= tile // (32 * warps) <= 32:
                own = replace(plain, form="persistent", xblock=tile // rblock, rblock=rblock, num_warps=warps)
                yield replace(own, name=f"persistent{own.xblock}x{rblock}_w{warps}")


def blocks(points: int) -> list[tuple[int, int]]:
    """The blocks that hold so many points: one, or two of which the first is full."""
    whole = max(32, 1 << (points - 1).bit_length())
    if whole > LARGEST:
        return []
    head = whole // 2
    return [(whole, 0), *((head, part) for part in (head // 4, head // 2, head) if head + part >= points)]


def launches(one: Recorded, processors: int) -> dict[str, Callable[[], None]]:
    """As planned, the first, and as each candidate. Blocks are as asked for, also where registers do not suffice."""
    from symshape.codegen.triton import kernel as emitter
    from symshape.runtime.triton.launch import load_triton

    name = chosen_variant(one.kernel, one.sizes, processors)
    base = next(variant for variant in one.report.plans if variant.name == name)
    load = partial(load_triton, others=one.others)
    found = {f"planned: {name}": load(one.kernel)}
    column = one.report.plans[-1].xblock > 1
    with mock.patch.object(emitter, "fit", lambda variant, _kernel: variant):
        ways = mixtures(base, *one.points) if one.others else candidates(base, *one.points, processors, column)
        for variant in ways:
            found[variant.name] = load(emitter.emit_triton(one.report.loops, [variant]))
        if base.form in SPLIT:
            once = replace(base, condition=TRUE, one_launch=not base.one_launch)
            found["one launch" if once.one_launch else "two launches"] = load(
                emitter.emit_triton(one.report.loops, [once])
            )
        for step in COMBINE if base.form in SPLIT else ():
            kernel = emitter.emit_triton(one.report.loops, [replace(base, condition=TRUE, yblock=step)])
            found[f"combined{step}"] = load(kernel)
    return {name: partial(launch, *one.args) for name, launch in found.items()}


def worth_a_sweep(one: Recorded) -> bool:
    """Whether it reduces much."""
    rows, points = one.points
    general = one.report.plans[-1]
    return general.form in ("looped", SEPARATE) and rows * points >= LEAST


def measure_variants(run: Run, name: str, dtype: str, shape: Shape) -> Work:
    """Of the kernel that is named behind the program, else of its largest that reduces."""
    from symshape.runtime.triton.launch import processor_count

    program, _, wanted = name.partition("/")
    found = recorded(run, PROGRAMS[program], shape, dtype)
    kernels = [one for one in found if one.kernel.name.startswith(wanted) and (run.dry or worth_a_sweep(one))]
    one = max(kernels, key=lambda each: each.points[0] * each.points[1] * len(each.kernel.tensors))
    calls = launches(one, processor_count(torch.device(run.device)))
    written = [arg for (own, _), arg in zip(one.kernel.tensors, one.args) if own.startswith("out")]
    expected, errors = [], {}
    for own, call in list(calls.items()):
        for tensor in written:
            tensor.fill_(-7)
        try:
            call()
        except Exception as error:  # more registers or shared memory than there are
            if not expected:
                raise
            errors[own] = f"{type(error).__name__}: {error}"[:200]
            del calls[own]
            continue
        expected = expected or [tensor.clone() for tensor in written]
        errors[own] = max(relative_error(tensor, value) for tensor, value in zip(written, expected))
    del expected
    yield
    seconds = {own: times.seconds for own, times in run.times(calls).items()}
    planned, *others = seconds
    best = min(others, key=lambda own: seconds[own]["device"])
    return {
        "kernel": one.kernel.name,
        "rows": one.points,
        "seconds": seconds,
        "variant": planned,
        "best": best,
        "over_best": seconds[planned]["device"] / seconds[best]["device"],
        "errors": errors,
        "accurate": all(isinstance(error, str) or error <= TOLERANCE for error in errors.values()),
    }


def variant_jobs(dry: bool, programs: Collection[str]) -> list[Job]:
    """The sweeps of these programs."""
    shapes = {key: own for key, own in (DRY if dry else SHAPES).items() if key[0].partition("/")[0] in programs}
    return [
        Job("variants", name, dtype, shape, partial(measure_variants, name=name, dtype=dtype, shape=shape), 20.0)
        for (name, dtype), own in shapes.items()
        for shape in own
    ]
