"""Kernels and models on a CUDA GPU: eager, Inductor (dynamic and static), symshape; and split counts against a sweep.

    python bench/gpu.py --out bench/results/gpu.json [--budget 510] [--only kernels,splits,models] [--rounds 7]

Everything in one process and within the budget of seconds, the most telling measurements first; the file is written
after each. The dynamic compilations meet a small size first and stay for the whole run; the static one is compiled for
each size by itself. ``device`` is time on the GPU, ``call`` what the caller sees. Results are compared with float64.
``--dry-run`` runs all of it at tiny sizes on the CPU, kernels by Triton's interpreter: no time in it means anything.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from accuracy import Errors, accurate, draws
from gpu_timing import Times, measure, ratio
from kernel_programs import PROGRAMS, KernelProgram, Shape, elements, meet

from symshape.tools.measure import compile_for, geometric_mean, relative_error, tensors_of, write_result
from symshape.tools.terminal import heading, table
from symshape.tools.zoo import MODELS

PARTS: Final = ("kernels", "splits", "models")
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
BF16: Final = ("softmax", "layer_norm", "rms_norm", "gelu", "pointwise_chain", "sum_last")


@dataclass
class Run:
    """The state of a run: where, how long, and what has been found."""

    device: str
    dry: bool
    rounds: int
    deadline: float
    out: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    sweeps: dict[tuple[str, str], Sweep] = field(default_factory=dict)
    longest: dict[str, float] = field(default_factory=dict)  # seconds of the longest measurement of each part so far

    def backend(self, name: str) -> dict[str, Any]:
        """Arguments of torch.compile. A dry run has no Inductor: it would compile C++ for minutes."""
        if name == "symshape":
            return {"backend": "symshape", "options": {"target": "triton"}} if self.dry else {"backend": "symshape"}
        return {"backend": "eager" if self.dry else "inductor"}

    def time_left(self) -> float:
        return self.deadline - time.monotonic()


class Sweep:
    """One program: its dynamic compilations, which live as long as the run, and a static one for each shape."""

    def __init__(self, run: Run, program: KernelProgram, dtype: str) -> None:
        self.run, self.program, self.dtype = run, program, dtype
        self.dynamic = {
            name: torch.compile(program.copy(), dynamic=True, **run.backend(name))
            for name in ("inductor_dynamic", "symshape")
        }
        for compiled in self.dynamic.values():
            meet(compiled, self.inputs(program.first))

    def inputs(self, shape: Shape, seed: int = 0) -> tuple[torch.Tensor, ...]:
        return self.program.inputs(shape, self.run.device, DTYPES[self.dtype], seed)

    def measure(self, shape: Shape) -> dict[str, Any]:
        """One row."""
        inputs = self.inputs(shape)
        static = torch.compile(self.program.copy(), dynamic=False, **self.run.backend("inductor_static"))
        calls = {"eager": self.program.run, **self.dynamic, "inductor_static": static}
        errors = self.errors(shape, calls)
        again = [self.dynamic["symshape"](*inputs) for _ in range(2)]
        repeats = all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(*map(tensors_of, again), strict=True))
        del again
        bound = {name: partial(call, *inputs) for name, call in calls.items()}
        times = measure(bound, self.run.rounds, self.run.device)
        moved = self.program.accesses * elements(shape) * DTYPES[self.dtype].itemsize
        return {
            "part": "kernels",
            "kernel": self.program.name,
            "dtype": self.dtype,
            "shape": shape,
            "elements": elements(shape),
            **compared(times),
            "errors": errors,
            "accurate": accurate(errors["symshape"], errors["eager"], DTYPES[self.dtype]),
            "repeats": repeats,
            "gigabytes_per_second": 1e-9 * moved / times["symshape"].seconds["device"],
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


def compared(times: dict[str, Times]) -> dict[str, Any]:
    """Medians, and symshape's time over each of the others'."""
    others = [name for name in times if name != "symshape"]
    return {
        "seconds": {name: one.seconds for name, one in times.items()},
        "ratios": {
            name: {kind: ratio(times["symshape"], times[name], kind) for kind in ("device", "call")} for name in others
        },
    }


def measure_kernel(run: Run, name: str, dtype: str, shape: Shape) -> dict[str, Any]:
    key = (name, dtype)
    if key not in run.sweeps:
        run.sweeps[key] = Sweep(run, PROGRAMS[name], dtype)
    return run.sweeps[key].measure(shape)


def chosen_variant(kernel: Any, sizes: Mapping[str, int], processors: int) -> str:
    """The name of the variant that runs for values of the symbols, at addresses that divide by 16."""
    names = {f"address{i}": 0 for i in range(len(kernel.tensors))} | {**sizes, "processors": processors}
    return next(v.name for v in kernel.variants if eval(v.condition, {"max": max, "min": min}, names))


def measure_splits(run: Run, shape: Shape) -> dict[str, Any]:
    """The sum of rows: what the planner chooses, against the same kernel split into 1, 2, 4, ... parts."""
    import symshape
    from symshape.codegen.triton.kernel import emit_triton
    from symshape.prover.numbers.condition import TRUE
    from symshape.prover.numbers.expr import Expr
    from symshape.runtime.triton.launch import load_triton, processor_count

    program = PROGRAMS["sum_last"]
    options = {"target": "triton"} if run.dry else {}
    report = symshape.explain(program.copy(), *program.inputs(program.first, run.device), options=options)
    kernel = report.graphs[0].kernels[0]
    x = program.inputs(shape, run.device)[0]
    out = torch.empty(shape[0], device=run.device)
    sizes = dict(zip(kernel.loops.symbols, shape, strict=True))
    planned = emit_triton(kernel.loops, kernel.plans)
    split = next(v for v in kernel.plans if v.form == "split")
    swept = emit_triton(kernel.loops, [replace(split, condition=TRUE, splits=Expr.symbol("processors"))])
    processors = processor_count(x.device)
    calls = {"planned": partial(load_triton(planned), x, out, *shape)}
    for parts in PARTS_OF_A_ROW[: 3 if run.dry else None]:
        if parts * split.rblock <= 2 * shape[1]:
            calls[str(parts)] = partial(load_triton(swept, parts), x, out, *shape)
    expected = x.double().sum(-1)
    errors = {}
    for name, call in calls.items():
        out.fill_(torch.nan)
        call()
        errors[name] = relative_error(out.double(), expected)
    seconds = {name: one.seconds for name, one in measure(calls, run.rounds, run.device).items()}
    best = min((name for name in seconds if name != "planned"), key=lambda name: seconds[name]["device"])
    return {
        "part": "splits",
        "shape": shape,
        "variant": chosen_variant(planned, sizes, processors),
        "seconds": seconds,
        "best": int(best),
        "over_best": seconds["planned"]["device"] / seconds[best]["device"],
        "accurate": max(errors.values()) <= 1e-5,
        "errors": errors,
    }


def measure_model(run: Run, name: str) -> dict[str, Any]:
    """One of the six models at a few shapes; the compilations have met another one first."""
    model = MODELS[name]
    built = model.build("tiny" if run.dry else "full").to(run.device)
    options = {"target": "triton"} if run.dry else {}
    calls: dict[str, Callable[..., Any]] = {
        "eager": built,
        "inductor_dynamic": compile_for("eager" if run.dry else "inductor", built),
        "symshape": compile_for("symshape", built, **options),
    }
    first, *shapes = model.tiny_shapes[:2] if run.dry else [model.first_shapes[0], *model.large_shapes[12:15]]
    found = []
    with torch.no_grad():
        for call in calls.values():
            call(**_on(run, model.inputs(first)))
        for shape in shapes:
            inputs = _on(run, model.inputs(shape))
            expected = built(**inputs)
            off = relative_error(calls["symshape"](**inputs), expected)
            times = measure({key: partial(call, **inputs) for key, call in calls.items()}, run.rounds, run.device)
            found.append({"shape": shape, "error": off, **compared(times)})
    return {"part": "models", "model": name, "accurate": all(one["error"] <= 2e-3 for one in found), "shapes": found}


def _on(run: Run, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value.to(run.device) for name, value in inputs.items()}


@dataclass(frozen=True)
class Job:
    """One measurement."""

    part: str
    name: str
    work: Callable[[Run], dict[str, Any]]


def jobs(dry: bool, parts: tuple[str, ...], kernels: tuple[str, ...]) -> list[Job]:
    """Everything, the most telling first."""
    planes: tuple[Shape, ...] = ((3, 5), (2, 70)) if dry else PLANES
    lines: tuple[Shape, ...] = ((1,), (300,)) if dry else LINES
    shapes = {name: lines if len(PROGRAMS[name].first) == 1 else planes for name in kernels}

    def sweep(ranks: range, dtype: str = "float32", names: tuple[str, ...] = kernels) -> list[Job]:
        return [_kernel(name, dtype, shapes[name][i]) for i in ranks for name in names if i < len(shapes[name])]

    halves = tuple(name for name in BF16 if name in kernels)
    splits = [
        Job("splits", f"split {_text(shape)}", partial(measure_splits, shape=shape))
        for shape in (((2, 3000),) if dry else SPLITS)
    ]
    models = [
        Job("models", f"model {name}", partial(measure_model, name=name))
        for name in MODELS
        if not dry or name == "bert"
    ]
    every = [*sweep(range(3)), *splits, *models, *sweep(range(2), "bfloat16", halves), *sweep(range(3, len(PLANES)))]
    return [job for job in every if job.part in parts]


def _kernel(name: str, dtype: str, shape: Shape) -> Job:
    work = partial(measure_kernel, name=name, dtype=dtype, shape=shape)
    return Job("kernels", f"{name} {dtype} {_text(shape)}", work)


def _text(shape: Shape) -> str:
    return "x".join(map(str, shape))


def perform(run: Run, work: list[Job]) -> None:
    """Job after job while there is time for one more; what fails is told and left."""
    for number, job in enumerate(work, 1):
        if run.time_left() < run.longest.get(job.part, 0.0):
            run.skipped.append(job.name)
            continue
        start = time.monotonic()
        try:
            row = job.work(run)
        except Exception as failure:  # the rest is still worth measuring
            row = {"part": "failed", "what": job.name, "error": f"{type(failure).__name__}: {failure}"[:2000]}
        row["measured_in"] = time.monotonic() - start
        run.longest[job.part] = max(run.longest.get(job.part, 0.0), row["measured_in"])
        run.rows.append(row)
        print(f"[{number}/{len(work)}, {run.time_left():.0f} s left] {job.name}: {line(row)}", flush=True)
        save(run)


def line(row: dict[str, Any]) -> str:
    """A row in one line."""
    if row["part"] == "failed":
        return str(row["error"]).splitlines()[0]
    wrong = "" if row["accurate"] and row.get("repeats", True) else "  INACCURATE"
    if row["part"] == "splits":
        return f"{row['variant']}, {row['over_best']:.2f}x the best of {row['best']} parts{wrong}"
    rows = row["shapes"] if row["part"] == "models" else [row]
    texts = [", ".join(f"{v['device']:.2f}x {name}" for name, v in one["ratios"].items()) for one in rows]
    return "; ".join(texts) + wrong


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures that count."""
    found = [row for row in rows if row["part"] == "kernels"]
    result: dict[str, Any] = {
        "failed": [row["what"] for row in rows if row["part"] == "failed"],
        "inaccurate": [row for row in rows if not row.get("accurate", True)],
    }
    for other in ("inductor_static", "inductor_dynamic", "eager"):
        values = {f"{r['kernel']} {r['dtype']} {_text(r['shape'])}": r["ratios"][other]["device"] for r in found}
        if values:
            worst = max(values, key=lambda key: values[key])
            result[other] = {"mean": geometric_mean(values.values()), "worst": values[worst], "worst_at": worst}
    splits = [row["over_best"] for row in rows if row["part"] == "splits"]
    return result | ({"splits_over_best": max(splits)} if splits else {})


def save(run: Run) -> None:
    if run.out:
        write_result(run.out, "gpu", run.rows, **summary(run.rows), skipped=run.skipped, dry_run=run.dry)


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Time on the GPU over Inductor static for each kernel and shape."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no plot: matplotlib is not installed")
        return
    found = [row for row in rows if row["part"] == "kernels"]
    kernels = list(dict.fromkeys(row["kernel"] for row in found))
    if not kernels:
        return
    columns = min(4, len(kernels))
    figure = Figure(figsize=(4 * columns, 3 * -(-len(kernels) // columns)), layout="constrained")
    panels = list(figure.subplots(-(-len(kernels) // columns), columns, squeeze=False, sharey=True).flat)
    for panel in panels[len(kernels) :]:
        panel.set_visible(False)
    for panel, kernel in zip(panels, kernels):
        own = [row for row in found if row["kernel"] == kernel and row["dtype"] == "float32"]
        for name, colour in (("eager", "0.6"), ("inductor_dynamic", "tab:orange"), ("symshape", "tab:blue")):
            values = [r["seconds"][name]["device"] / r["seconds"]["inductor_static"]["device"] for r in own]
            panel.plot(range(len(own)), values, "o", color=colour, label=name.replace("_", " "))
        panel.axhline(1.0, color="black", linewidth=0.8)
        panel.set(yscale="log", title=kernel.replace("_", " "), xticks=range(len(own)))
        panel.set_xticklabels([_text(row["shape"]) for row in own], rotation=60, ha="right", fontsize=7)
        panel.grid(alpha=0.3)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    figure.supylabel("time over Inductor static")
    figure.savefig(path, dpi=110)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="")
    parser.add_argument("--budget", type=float, default=510.0, help="seconds, compilation included")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--kernels", default=",".join(PROGRAMS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    start = time.monotonic()
    warnings.filterwarnings("ignore")
    if not options.dry_run and not torch.cuda.is_available():
        print("no CUDA GPU here; --dry-run checks the logic")
        return 2
    if options.dry_run and os.environ.get("TRITON_INTERPRET") != "1":
        print("a dry run needs TRITON_INTERPRET=1 in the environment")
        return 2
    torch._dynamo.config.recompile_limit = 1000  # beyond it Dynamo would silently run eager code
    device = "cpu" if options.dry_run else "cuda"
    run = Run(device, options.dry_run, 1 if options.dry_run else options.rounds, start + options.budget, options.out)
    perform(run, jobs(run.dry, tuple(options.only.split(",")), tuple(options.kernels.split(","))))
    save(run)
    print(heading("symshape's time over theirs, on the GPU"))
    found = summary(run.rows)
    body = [[name, *found[name].values()] for name in ("inductor_static", "inductor_dynamic", "eager") if name in found]
    print(table(["", "geometric mean", "worst", "at"], body))
    print(
        f"{len(run.rows)} measurements, {len(found['failed'])} failed, {len(found['inaccurate'])} inaccurate, "
        f"{len(run.skipped)} skipped"
    )
    if options.out:
        plot(run.rows, Path(options.out).with_suffix(".png"))
    return 1 if found["failed"] or found["inaccurate"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
