"""Kernels and models on a CUDA GPU: eager, Inductor (dynamic and static), symshape; in several runs, if need be.

    python bench/gpu.py --out bench/results/gpu.json [--budget 510] [--only kernels,splits,masks] [--rounds 7] [--retry]
    python bench/gpu.py --out bench/results/gpu.json --workers 12
    python bench/gpu.py --merge a.json b.json --out bench/results/gpu.json

A run ends by itself within the budget of seconds; one with the same ``--out`` goes on where it stopped. Rows of several
files are merged if they are of one device and of the same versions of PyTorch and symshape. The dynamic compilations
meet a small size first; the static one is compiled for each size by itself. ``device`` is time on the GPU, ``call``
what the caller sees. ``--workers``: so many processes compile side by side; then one at a time measures. ``--dry-run``
runs all of it at tiny sizes on the CPU, kernels by Triton's interpreter and without Inductor: no time in it means
anything.

| part | what | file |
|---|---|---|
| kernels | 13 programs at many sizes, against Inductor for each | gpu_kernels.py |
| bandwidth | large pointwise programs, softmax, layer norm, sums: bytes per second over a copy's | gpu_kernels.py |
| splits | sums of long rows: the planned number of parts against a sweep | gpu_kernels.py |
| variants | reductions: the planned form and blocks against a sweep | gpu_variants.py |
| masks | boolean masks: whether a call waits for the GPU, time against Inductor's mask form | gpu_programs.py |
| mixed | programs of tensors on the CPU and on the GPU: equal to eager mode | gpu_programs.py |
| padding | matrix products of odd sizes, padded or not | gpu_programs.py |
| inference, training | models of the zoo | gpu_models.py |
| decode | Llama, a token at a time: CUDA graphs against eager mode and Inductor's graphs | gpu_models.py |
| compile | the share of compile time, over Inductor's | gpu_models.py |
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Final

import torch
from gpu_kernels import HALVES, LINES, PLANES, bandwidth_jobs, kernel_jobs, split_jobs
from gpu_models import compile_jobs, decode_jobs, model_jobs
from gpu_programs import mask_jobs, mixed_jobs, padding_jobs
from gpu_run import DeviceLost, Job, Mismatch, Run, dealt, merge, perform
from gpu_summary import line, plot, report, summary
from gpu_variants import variant_jobs
from kernel_programs import PROGRAMS

from symshape.tools.measure import write_result

PARTS: Final = (
    "kernels",
    "bandwidth",
    "splits",
    "variants",
    "masks",
    "mixed",
    "padding",
    "inference",
    "training",
    "decode",
    "compile",
)
_RANKS: Final = max(len(PLANES), len(LINES))


def jobs(run: Run, parts: tuple[str, ...], kernels: tuple[str, ...], ranks: int = _RANKS) -> list[Job]:
    """Everything, the most telling first; of each kernel so many sizes."""
    dry, halves = run.dry, [name for name in HALVES if name in kernels]
    every = [
        *kernel_jobs(dry, kernels, "float32", range(min(3, ranks))),
        *bandwidth_jobs(dry),
        *split_jobs(dry),
        *variant_jobs(dry, kernels),
        *mask_jobs(dry),
        *model_jobs(dry, "inference"),
        *decode_jobs(dry),
        *kernel_jobs(dry, halves, "bfloat16", range(min(2, ranks))),
        *model_jobs(dry, "training"),
        *mixed_jobs(dry),
        *(padding_jobs(run) if "padding" in parts else ()),
        *compile_jobs(dry),
        *kernel_jobs(dry, kernels, "float32", range(3, ranks)),
        *kernel_jobs(dry, halves, "bfloat16", range(2, ranks)),
    ]
    return dealt([job for job in every if job.part in parts], *run.share)


def work_together(options: argparse.Namespace) -> int:
    """Runs ``options.workers`` of these processes, each with a share of the jobs and a log beside its results; merges
    what they have found. 1 if any of them failed."""
    out = Path(options.out)
    alone = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}  # the processes keep the machine busy
    given = ["--budget", str(options.budget), "--only", options.only, "--kernels", options.kernels]
    given += ["--began", str(time.monotonic())]  # the clock is the machine's: so many imports take a minute
    given += ["--ranks", str(options.ranks), "--rounds", str(options.rounds), *(["--retry"] if options.retry else [])]
    given += ["--dry-run"] if options.dry_run else []
    files, running = [], []
    with contextlib.ExitStack() as logs:
        lock = options.lock or logs.enter_context(tempfile.NamedTemporaryFile()).name
        for worker in range(options.workers):
            files.append(str(out.with_name(f"{out.stem}.{worker}.json")))
            own = ["--out", files[-1], "--share", str(worker), str(options.workers), "--lock", lock]
            log = logs.enter_context(open(Path(files[-1]).with_suffix(".log"), "w"))
            command = [sys.executable, __file__, *given, *own]
            running.append(subprocess.Popen(command, env=os.environ | alone, stdout=log, stderr=subprocess.STDOUT))
        codes = [process.wait() for process in running]
    if missing := [file for file in files if not Path(file).exists()]:
        print(f"nothing was measured for {', '.join(missing)}: see the logs", file=sys.stderr)
        return 2
    merged(files, options.out)
    for file in files:
        last = (Path(file).with_suffix(".log").read_text().splitlines() or [""])[-1]
        if " are left: " in last:
            print(f"{Path(file).stem}: {last}")
    return int(any(codes))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="")
    parser.add_argument("--merge", nargs="+", metavar="FILE", help="merge these files into --out, measure nothing")
    parser.add_argument("--budget", type=float, default=510.0, help="seconds, compilation included")
    parser.add_argument("--began", type=float, help="time.monotonic() where the budget begins, by default now")
    parser.add_argument("--only", default=",".join(PARTS), help="parts")
    parser.add_argument("--kernels", default=",".join(PROGRAMS))
    parser.add_argument("--ranks", type=int, default=_RANKS, help="sizes of each kernel, the most telling ones")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--workers", type=int, default=1, help="processes that share the measurements")
    parser.add_argument(
        "--share", type=int, nargs=2, default=(0, 1), metavar=("I", "N"), help="measure I-th of N shares"
    )
    parser.add_argument("--lock", default="", help="a file to lock while times are taken, for whatever uses the GPU")
    parser.add_argument("--retry", action="store_true", help="measure again what failed in an earlier run")
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    if unknown := sorted(set(options.only.split(",")) - set(PARTS)):
        parser.error(f"no such parts: {', '.join(unknown)}; parts: {', '.join(PARTS)}")
    if (options.merge or options.workers > 1) and not options.out:
        parser.error("--merge and --workers write what they merge to --out")
    return options


def merged(files: list[str], out: str) -> int:
    """Writes the rows of all files to one."""
    record = merge(files)
    write_result(out, "gpu", record["rows"], identity=record["identity"], notes=record["notes"])
    print(report(record["rows"], record["notes"]))
    plot(record["rows"], Path(out).with_suffix(".png"))
    return 0


def cannot_run(dry: bool) -> str:
    """Why nothing can be measured in this process."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if not dry and (not torch.cuda.is_available() or interpreted):
        return "no CUDA GPU here, or TRITON_INTERPRET=1; --dry-run checks the logic"
    return "a dry run needs TRITON_INTERPRET=1 in the environment" if dry and not interpreted else ""


def measured(options: argparse.Namespace, start: float) -> int:
    """A run. 0 if nothing failed or was inaccurate, 1 if something was, 3 if the device was lost."""
    torch._dynamo.config.recompile_limit = 1000  # beyond it Dynamo would silently run eager code
    rounds = 1 if options.dry_run else options.rounds
    if options.dry_run:
        torch.set_num_threads(1)  # threads that wait for one another would take most of the time
    device, deadline = "cpu" if options.dry_run else "cuda", start + options.budget
    run = Run(device, options.dry_run, rounds, deadline, options.out, options.lock, tuple(options.share))
    run.load(options.retry)
    every = jobs(run, tuple(options.only.split(",")), tuple(options.kernels.split(",")), options.ranks)
    try:
        left = perform(run, every, line)
    except DeviceLost as lost:
        print(f"the GPU does no more in this process: {lost}", file=sys.stderr)
        return 3
    run.save()
    print(report(run.rows, run.notes))
    print(f"{left} of {len(every)} are left: run it again with the same --out" if left else "all are measured")
    if options.out and not options.lock:
        plot(run.rows, Path(options.out).with_suffix(".png"))
    found = summary(run.rows)
    return 1 if found["failed"] or found["inaccurate"] or found["not repeated"] or found["waiting"] else 0


def main() -> int:
    start, options = time.monotonic(), arguments()
    warnings.filterwarnings("ignore")
    try:
        if options.merge:
            return merged(options.merge, options.out)
        if why := cannot_run(options.dry_run):
            print(why)
            return 2
        if options.workers > 1:
            return work_together(options)
        return measured(options, start if options.began is None else options.began)
    except Mismatch as mismatch:
        print(mismatch, file=sys.stderr)
        return 2


if __name__ == "__main__":
    raise SystemExit(main())
