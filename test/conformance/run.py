"""PyTorch's operator databases through ``torch.compile(backend="symshape", dynamic=True, fullgraph=True)``.

    python test/conformance/run.py                      # all; goes on where it was left
    python test/conformance/run.py --op op/add          # one variant here and now, with the traces of its errors
    python test/conformance/run.py --dtype bfloat16     # another dtype, where an operator has it
    python test/conformance/run.py --target triton --sample 3      # Triton code in its interpreter

Each variant is run with several samples and compared with eager mode in values, dtypes, strides, shared memory,
gradients, in place and with ``out=``; beside it the same with the backend "aot_eager". Results are appended to
build/conformance/NAME.jsonl; what is there is not run again, unless it was done with other sources (``--again``).
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))
BACKENDS = ("symshape", "aot_eager")


def main() -> int:
    """Exit status 1 if a value is wrong."""
    options = _options()
    os.environ["SYMSHAPE_CACHE"] = "0"
    if options.target == "triton":
        os.environ["TRITON_INTERPRET"] = "1"
    if options.op:
        return show(options)
    from publish import publish
    from variants import variants

    name = "conformance" + "".join(f"-{one}" for one in (options.dtype, options.target) if one not in ("float32", ""))
    log = ROOT / "build" / "conformance" / f"{name}.jsonl"
    if options.again:
        log.unlink(missing_ok=True)
    started = time.monotonic()
    records = run_all(options, log)
    again = functools.partial(command_for, dtype=options.dtype, target=options.target)
    return publish(records, options.out / name, again, time.monotonic() - started, len(variants()), _given())


def _given() -> str:
    """The options on the command line that decide what is run."""
    given = " ".join(sys.argv[1:])
    return re.sub(r" *--(jobs|out)[ =]\S+|--again", "", given).strip()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", help="only this variant, in this process")
    parser.add_argument("--sample", default="", help="of --op: only the cases whose label begins so")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--target", default="", choices=("", "cpu", "triton"))
    parser.add_argument("--only", default="", help="only variants with this text in their keys; several: a,b")
    parser.add_argument("--group", default="", help="only these classes (unary,binary,...)")
    parser.add_argument("--samples", type=int, default=0, help="at most so many samples of each variant")
    parser.add_argument("--every", type=int, default=1, help="only every so many-th variant")
    parser.add_argument("--backends", default=",".join(BACKENDS))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=240, help="seconds of processor time for one variant")
    parser.add_argument("--again", action="store_true", help="forget what was run before")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    return parser.parse_args()


def command_for(key: str, **options: str) -> str:
    """What runs a variant again."""
    more = "".join(f" --{name} {value}" for name, value in options.items() if value not in ("float32", ""))
    quoted = f'"{key}"' if set("'&* ") & set(key) else key
    return f"python test/conformance/run.py{more} --op {quoted}"


def show(options: argparse.Namespace) -> int:
    """One variant in this process, in full."""
    import torch
    from check import check
    from variants import variants
    from worker import settings

    failed = 0
    for backend in options.backends.split(","):
        with settings():
            result = check(
                variants()[options.op],
                getattr(torch, options.dtype),
                backend,
                options.samples,
                options.sample,
                options.target if backend == "symshape" else "",
            )
        print(f"{options.op} {backend}: {result.status}, {result.graphs} graphs, {result.seconds} s, {result.calls}")
        for one in result.outcomes:
            print(f"  {one.label}: {one.kind or 'equal'} {one.what}" + ("" if one.gradient else " (no gradient)"))
            if one.trace:
                print("    " + one.trace.replace("\n", "\n    "))
        failed |= backend == "symshape" and result.status not in ("pass", "none")
    return failed


def run_all(options: argparse.Namespace, log: Path) -> list[dict[str, Any]]:
    """Records of all variants, those of earlier runs among them."""
    from pool import results

    from symshape.tools.terminal import Progress

    backends = options.backends.split(",")
    keys = list(_keys(options))
    sources = digest(options)
    known = _known(log, backends, sources)
    tasks = [
        {
            "key": key,
            "dtype": options.dtype,
            "target": options.target,
            "most": options.samples,
            "backends": backends,
            "limit": options.limit,
        }
        for key in keys
        if key not in known
    ]
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))}
    with Progress("conformance", len(tasks)) as progress, log.open("a") as file:
        for task, found in results(tasks, options.jobs, 10 * options.limit, log.parent, environment):
            records = found if isinstance(found, list) else _died(task, found)
            known[task["key"]] = records
            print(json.dumps({"with": sources, "records": records}), file=file, flush=True)
            progress.step(task["key"])
    return [record for key in keys for record in known.get(key, [])]


def _keys(options: argparse.Namespace) -> Iterator[str]:
    from variants import variants

    texts, groups = options.only.split(","), options.group.split(",")
    keys = [
        key
        for key, one in variants().items()
        if any(text in key for text in texts) and (not options.group or one.group in groups)
    ]
    return iter(keys[:: options.every])


def digest(options: argparse.Namespace) -> str:
    """Of all that results depend on: our sources and PyTorch's, the runner, what was asked for."""
    from symshape.cache.compiled_graphs import versions

    own = [file.read_text() for file in sorted(HERE.glob("*.py"))]
    parts = [sorted(versions().items()), own, options.dtype, options.target, options.samples]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _known(log: Path, backends: list[str], sources: str) -> dict[str, list[dict[str, Any]]]:
    """What was run with the same sources; a line that was cut off counts for nothing."""
    known: dict[str, list[dict[str, Any]]] = {}
    for line in log.read_text().splitlines() if log.exists() else ():
        found = json.loads(line) if line.endswith("}") else {"with": "", "records": []}
        records = found["records"]
        if found["with"] == sources and [one["backend"] for one in records] == backends:
            known[records[0]["key"]] = records
    return known


def _died(task: dict[str, Any], why: str) -> list[dict[str, Any]]:
    """Whose fault it is shows when the backends are run one by one: the first one's is assumed."""
    from variants import variants

    outcome = {"label": "all", "kind": "error", "what": why, "gradient": False}
    group = variants()[task["key"]].group
    return [
        {
            "key": task["key"],
            "group": group,
            "backend": backend,
            "outcomes": [outcome],
            "calls": {},
            "graphs": 0,
            "seconds": 0.0,
            "status": "error",
        }
        for backend in task["backends"]
    ]


if __name__ == "__main__":
    sys.exit(main())
