"""Kernels of bench/gpu.py: against Inductor at each size, split counts against a sweep, bandwidth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import torch
from accuracy import Errors, accurate, draws
from gpu_run import Job, Row, Run, Work
from gpu_timing import Times, ratio
from kernel_programs import PROGRAMS, KernelProgram, Shape, elements, meet
from torch.fx.experimental.symbolic_shapes import ConstraintViolationError

from symshape.tools.measure import relative_error, tensors_of

DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16}
# In the order in which they are measured: large and aligned, primes, few long rows, many short ones, all of it; small.
PLANES: Final[tuple[Shape, ...]] = (
    (4096, 4096),
    (10_007, 9973),
    (8, 1_048_576),
    (1, 100_000_007),
    (1_000_003, 31),
    (50_000_017, 2),
    (1009, 991),
    (64, 512),
    (131_072, 8),
    (31, 1_000_003),
    (7, 151),
)
LINES: Final[tuple[Shape, ...]] = (
    (16_777_216,),
    (100_000_007,),
    (1_000_003,),
    (33_554_432,),
    (10_007,),
    (1009,),
    (100_003,),
    (10_000_019,),
)
# Rows whose sum is split among programs, and into how many parts.
SPLITS: Final[tuple[Shape, ...]] = ((1, 100_000_000), (1, 1_000_000), (8, 1_000_000), (32, 4_000_000), (4, 100_000))
PARTS_OF_A_ROW: Final = tuple(1 << i for i in range(12))
HALVES: Final = ("softmax", "layer_norm", "rms_norm", "gelu", "pointwise_chain", "sum_last")
WIDE: Final[dict[str, Shape]] = {  # what should run at the speed of the memory
    "pointwise_chain": (268_435_456,),
    "softmax": (65_536, 4096),
    "layer_norm": (65_536, 4096),
    "sum_last": (65_536, 4096),
}
COPIED: Final = 1 << 30  # bytes of the copy that measures the device
# Bytes per second of the memory, as the data sheets say, by a part of PyTorch's name of the device.
DATA_SHEET: Final = {
    "H200": 4.8e12,
    "H100 80GB HBM3": 3.35e12,
    "H100 NVL": 3.9e12,
    "H100 PCIe": 2.0e12,
    "A100-SXM4-80GB": 2.039e12,
    "A100 80GB PCIe": 1.935e12,
    "A100-SXM4-40GB": 1.555e12,
    "L40S": 0.864e12,
    "L4": 0.3e12,
    "A10": 0.6e12,
    "V100": 0.9e12,
}


class Sweep:
    """One program: its dynamic compilations, which meet a small size first, and a static one for each shape."""

    def __init__(self, run: Run, program: KernelProgram, dtype: str) -> None:
        self.run, self.program, self.dtype = run, program, dtype
        self.dynamic = {name: self.met(name) for name in ("inductor_dynamic", "symshape")}

    def met(self, name: str) -> Callable[..., Any]:
        """A dynamic compilation that has met the small size. Where Inductor narrows the ranges that were asked for, to
        index with int32, it has its usual ones, which exclude 0 and 1."""
        first = self.program.first
        compiled = torch.compile(self.program.copy(), dynamic=True, **self.run.backend(name))
        try:
            meet(compiled, self.inputs(first))
        except ConstraintViolationError:
            if name == "symshape":
                raise
            compiled = torch.compile(self.program.copy(), dynamic=True, **self.run.backend(name))
            compiled(*self.inputs(first))
        return compiled

    def inputs(self, shape: Shape, seed: int = 0) -> tuple[torch.Tensor, ...]:
        return self.program.inputs(shape, self.run.device, DTYPES[self.dtype], seed)

    def measure(self, shape: Shape) -> Work:
        """One row, but for its key."""
        inputs = self.inputs(shape)
        static = torch.compile(self.program.copy(), dynamic=False, **self.run.backend("inductor_static"))
        calls = {"eager": self.program.run, **self.dynamic, "inductor_static": static}
        errors = self.errors(shape, calls)
        again = [self.dynamic["symshape"](*inputs) for _ in range(2)]
        repeats = all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(*map(tensors_of, again), strict=True))
        del again, inputs  # the memory is needed meanwhile
        yield
        inputs = self.inputs(shape)
        bound = {name: partial(call, *inputs) for name, call in calls.items()}
        times = self.run.times(bound)
        return {
            "elements": elements(shape),
            **compared(times),
            "errors": errors,
            "accurate": accurate(errors["symshape"], errors["eager"], DTYPES[self.dtype]),
            "repeats": repeats,
            "bytes_per_second": moved(self.program, shape, self.dtype) / times["symshape"].seconds["device"],
        }

    def errors(self, shape: Shape, calls: dict[str, Callable[..., Any]]) -> dict[str, float]:
        """Against float64, for several draws of the inputs where the result is a few numbers."""
        found, seed, count = {name: Errors() for name in calls}, 0, 1
        while seed < count:
            inputs = self.inputs(shape, seed)
            expected = self.program.reference(inputs)
            count = draws(expected, elements(shape))
            for name, call in calls.items():
                found[name].add(call(*inputs), expected)
            seed += 1
        return {name: one.largest() for name, one in found.items()}


def compared(times: dict[str, Times], own: str = "symshape") -> Row:
    """Medians, and the time of ``own`` over each of the others'."""
    others = [name for name in times if name != own]
    return {
        "seconds": {name: one.seconds for name, one in times.items()},
        "ratios": {
            name: {kind: ratio(times[own], times[name], kind) for kind in ("device", "call")} for name in others
        },
    }


def moved(program: KernelProgram, shape: Shape, dtype: str) -> float:
    """Bytes that the program reads and writes at least."""
    return program.accesses * elements(shape) * DTYPES[dtype].itemsize


def measure_kernel(run: Run, name: str, dtype: str, shape: Shape) -> Work:
    sweep: Sweep = run.shared(("kernels", name, dtype), lambda: Sweep(run, PROGRAMS[name], dtype))
    return sweep.measure(shape)


def kernel_jobs(dry: bool, kernels: Iterable[str], dtype: str, ranks: range) -> list[Job]:
    """The sizes of these ranks: one rank of every kernel, then the next."""
    planes: tuple[Shape, ...] = ((3, 5), (2, 70)) if dry else PLANES
    lines: tuple[Shape, ...] = ((1,), (300,)) if dry else LINES
    shapes = {name: lines if len(PROGRAMS[name].first) == 1 else planes for name in kernels}
    found = [(name, own[i]) for i in ranks for name, own in shapes.items() if i < len(own)]
    return [
        Job("kernels", name, dtype, shape, partial(measure_kernel, name=name, dtype=dtype, shape=shape))
        for name, shape in found
    ]


# Split reductions.


def chosen_variant(kernel: Any, sizes: Mapping[str, int], processors: int) -> str:
    """The name of the variant that runs for values of the symbols, at addresses that divide by 16."""
    names = {f"address{i}": 0 for i in range(len(kernel.tensors))} | {**sizes, "processors": processors}
    return next(v.name for v in kernel.variants if eval(v.condition, {"max": max, "min": min}, names))


def _launches(run: Run, shape: Shape) -> tuple[Any, dict[str, Callable[..., None]]]:
    """The kernel as planned, and its launches: as planned, and split into 1, 2, 4, ... parts."""
    import symshape
    from symshape.codegen.triton.kernel import emit_triton
    from symshape.prover.numbers.condition import TRUE
    from symshape.prover.numbers.expr import Expr
    from symshape.runtime.triton.launch import load_triton

    program = PROGRAMS["sum_last"]
    report = symshape.explain(program.copy(), *program.inputs(program.first, run.device), options=run.options)
    kernel = report.graphs[0].kernels[0]
    planned = emit_triton(kernel.loops, kernel.plans)
    split = next(v for v in kernel.plans if v.form == "split")
    swept = emit_triton(kernel.loops, [replace(split, condition=TRUE, splits=Expr.symbol("processors"))])
    counts = [n for n in PARTS_OF_A_ROW[: 3 if run.dry else None] if n * split.rblock <= 2 * shape[1]]
    launches = {"planned": load_triton(planned)} | {str(n): load_triton(swept, n) for n in counts}
    return (kernel, planned), launches


def measure_splits(run: Run, shape: Shape) -> Work:
    """The sum of rows: what the planner chooses, against the same kernel split into 1, 2, 4, ... parts."""
    from symshape.runtime.triton.launch import processor_count

    (kernel, planned), launches = _launches(run, shape)
    x = PROGRAMS["sum_last"].inputs(shape, run.device)[0]
    out = torch.empty(shape[0], device=run.device)
    calls = {name: partial(launch, x, out, *shape) for name, launch in launches.items()}
    expected, errors = x.double().sum(-1), {}
    for name, call in calls.items():
        out.fill_(torch.nan)
        call()
        errors[name] = relative_error(out.double(), expected)
    yield
    seconds = {name: one.seconds for name, one in run.times(calls).items()}
    best = min((name for name in seconds if name != "planned"), key=lambda name: seconds[name]["device"])
    sizes = dict(zip(kernel.loops.symbols, shape, strict=True))
    return {
        "variant": chosen_variant(planned, sizes, processor_count(x.device)),
        "seconds": seconds,
        "best": int(best),
        "over_best": seconds["planned"]["device"] / seconds[best]["device"],
        "accurate": errors["planned"] <= 1e-5,
        "errors": errors,
    }


def split_jobs(dry: bool) -> list[Job]:
    return [
        Job("splits", "sum_last", "float32", shape, partial(measure_splits, shape=shape))
        for shape in (((2, 3000),) if dry else SPLITS)
    ]


# Bandwidth.


def device_bandwidth(run: Run) -> dict[str, float]:
    """Bytes per second, read and written, of a copy of `COPIED` bytes; of the data sheet where the device is known."""
    source = torch.empty((1 << 16 if run.dry else COPIED) // 4, device=run.device)
    target = torch.empty_like(source)
    (times,) = run.times({"copy": partial(target.copy_, source)}).values()
    name = torch.cuda.get_device_name() if run.device != "cpu" else ""
    sheet = next((value for part, value in DATA_SHEET.items() if part in name), None)
    copied = {"copy": 2.0 * source.numel() * source.itemsize / times.seconds["device"]}
    return copied | ({} if sheet is None else {"data_sheet": sheet})


def measure_bandwidth(run: Run, name: str, dtype: str, shape: Shape) -> Work:
    """Of a kernel that is bound by memory: bytes per second over the device's."""
    program = PROGRAMS[name]
    compiled = torch.compile(program.copy(), dynamic=True, **run.backend("symshape"))
    meet(compiled, program.inputs(program.first, run.device, DTYPES[dtype]))
    inputs = program.inputs(shape, run.device, DTYPES[dtype])
    off = relative_error(compiled(*inputs), program.run(*inputs))
    del inputs
    yield
    inputs = program.inputs(shape, run.device, DTYPES[dtype])
    peaks = run.shared("bandwidth", lambda: device_bandwidth(run))
    (times,) = run.times({"symshape": partial(compiled, *inputs)}).values()
    reached = moved(program, shape, dtype) / times.seconds["device"]
    return {
        "seconds": {"symshape": times.seconds},
        "bytes_per_second": reached,
        "peaks": peaks,
        "over_peak": {peak: reached / value for peak, value in peaks.items()},
        "error": off,
        "accurate": off <= (1e-4 if dtype == "float32" else 2e-2),
    }


def bandwidth_jobs(dry: bool) -> list[Job]:
    tiny = {1: (300,), 2: (3, 70)}
    return [
        Job("bandwidth", name, dtype, own, partial(measure_bandwidth, name=name, dtype=dtype, shape=own))
        for name, shape in WIDE.items()
        for dtype in (("float32",) if dry else DTYPES)
        for own in [tiny[len(shape)] if dry else shape]
    ]
