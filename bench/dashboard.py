"""The dashboard: models of the zoo and of transformers in four ways, as one page, with a history over commits.

    python bench/dashboard.py [--models zoo/bert,transformers/t5] [--ways symshape,aot_eager] [--turns 2] [--sizes 3]
                              [--rounds 5] [--threads 1] [--clock processor] [--jobs 2] [--page-only]
                              [--out bench/results]

`make dashboard` runs it. Each measurement (model, way, turn) is a fresh process without caches, and is written to
``--rows`` at once: a run that was cut off goes on where it was. What was measured at another commit, on another machine
or under other conditions is never used. The ways of a model follow one another; ``--turns`` are symshape's, for the
noise; the others have one. ``--jobs`` models are measured at once, which processor time and one thread allow. The page
is ``dashboard.html`` in ``--out``, with plots beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from dashboard_measure import models
from first_call import ALONE, ROOT, compile_byte_code

from symshape.tools import commit
from symshape.tools.dashboard import history
from symshape.tools.dashboard.figures import OURS, WAYS, by_model
from symshape.tools.dashboard.measurements import Key, Measurement, Setting, Store, of_figures
from symshape.tools.dashboard.operator_databases import operator_results
from symshape.tools.dashboard.page import write_page
from symshape.tools.measure import environment, write_result
from symshape.tools.terminal import Progress

GROUPS = ("zoo", "transformers")
HISTORY = "dashboard_history.jsonl"
_CACHES = ("TORCHINDUCTOR_CACHE_DIR", "SYMSHAPE_CACHE_DIR", "TRITON_CACHE_DIR", "XDG_CACHE_HOME", "TMPDIR")


def setting_of(options: argparse.Namespace) -> Setting:
    found = environment()
    packages = ", ".join(f"{name} {version}" for name, version in found["packages"].items())
    return Setting(
        f"{found['processor']}, {found['cores']} cores",
        f"Python {platform.python_version()}, {packages}",
        f"{options.threads} threads, {options.clock} clock, {options.sizes} sizes, {options.rounds} rounds, "
        f"{options.jobs} at once",
    )


def wanted(options: argparse.Namespace, head: str, setting: Setting) -> list[Key]:
    """In the order in which they are measured: the turns of a model, and in each turn the ways."""
    names = options.models.split(",") if options.models else [f"{g}/{m}" for g in GROUPS for m in models(g)]
    known = {f"{group}/{model}" for group in GROUPS for model in models(group)}
    for text, every in ((names, known), (options.ways.split(","), set(WAYS))):
        if unknown := [name for name in text if name not in every]:
            raise SystemExit(f"unknown: {', '.join(unknown)}; there are {', '.join(sorted(every))}")
    return list(_keys(names, options, head, setting))


def _keys(names: list[str], options: argparse.Namespace, head: str, setting: Setting) -> Iterator[Key]:
    for name in names:
        group, _, model = name.partition("/")
        for turn in range(options.turns):
            for way in options.ways.split(","):
                if turn == 0 or way == OURS:
                    yield Key(head, setting, group, model, way, turn)


def measure(key: Key, options: argparse.Namespace) -> Measurement:
    """In a process of its own, with empty caches. A process that ends in another way than it should is an error too."""
    arguments = [key.group, key.model, key.way, str(options.sizes), str(options.rounds), options.clock]
    command = [sys.executable, str(ROOT / "bench" / "dashboard_measure.py"), *arguments, str(options.threads)]
    date = time.strftime("%Y-%m-%d %H:%M")
    with tempfile.TemporaryDirectory(prefix="symshape-dashboard-") as folder:
        caches = {name: str(Path(folder, name.lower())) for name in _CACHES}
        for path in caches.values():
            Path(path).mkdir(mode=0o700)
        paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        threads = {"OMP_NUM_THREADS": str(options.threads)}
        child = os.environ | ALONE | threads | caches | {"PYTHONPATH": paths}
        try:
            done = subprocess.run(
                command, env=child, capture_output=True, text=True, check=False, timeout=options.timeout
            )
        except subprocess.TimeoutExpired:
            return Measurement(key, date, error=f"not done after {options.timeout} seconds")
    if done.returncode or not done.stdout.strip():
        said = " ".join(done.stderr.split())[-500:]
        return Measurement(key, date, error=f"the process ended with status {done.returncode}: {said}")
    return of_figures(key, date, json.loads(done.stdout.splitlines()[-1]))


def measure_all(missing: list[Key], options: argparse.Namespace, store: Store) -> None:
    """What is missing, ``options.jobs`` models at once; of a model one measurement after another."""
    models: dict[tuple[str, str], list[Key]] = {}
    for key in missing:
        models.setdefault((key.group, key.model), []).append(key)
    done: queue.Queue[Measurement] = queue.Queue()
    stop = threading.Event()

    def measure_model(keys: list[Key]) -> None:
        for key in keys:
            if not stop.is_set():
                done.put(measure(key, options))

    with Progress("dashboard", len(missing)) as progress, ThreadPoolExecutor(options.jobs) as pool:
        running = [pool.submit(measure_model, keys) for keys in models.values()]
        try:
            for _ in missing:
                while (found := _next(done)) is None:
                    for one in running:  # an error of ours ends the run
                        if one.done():
                            one.result()
                if commit.current(ROOT) != found.key.commit:
                    raise SystemExit(f"the code is not that of {found.key.commit} any more: measure a copy of it")
                store.add(found)
                progress.step(f"{found.key.group}/{found.key.model} {found.key.way}")
        except BaseException:
            stop.set()
            raise


def _next(done: queue.Queue[Measurement]) -> Measurement | None:
    try:
        return done.get(timeout=1)
    except queue.Empty:
        return None


def report(found: list[Measurement], head: str, setting: Setting, out: Path) -> Path:
    """The page, the plots, the rows as JSON and the line of the history."""
    rows = by_model(found)
    runs = history.read(out / HISTORY)
    new = history.run_of(head, max(one.date for one in found), setting, rows)
    runs = history.added(runs, new)
    history.write(out / HISTORY, runs)
    write_result(out / "dashboard.json", "dashboard", [asdict(row) for row in rows], commit=head, **asdict(setting))
    return write_page(rows, runs, operator_results(ROOT), out)


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="", help="GROUP/NAME,...: of the groups zoo and transformers; all of them")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--turns", type=int, default=2, help="how often symshape is measured")
    parser.add_argument("--sizes", type=int, default=3, help="of each model, the one it is first called with in it")
    parser.add_argument("--rounds", type=int, default=5, help="samples of a call at each size")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=("processor", "wall"), default="processor", help="of calls")
    parser.add_argument("--jobs", type=int, default=2, help="how many models are measured at once")
    parser.add_argument("--timeout", type=float, default=900, help="seconds of a measurement")
    parser.add_argument("--rows", default=str(ROOT / "build" / "dashboard" / "rows.jsonl"))
    parser.add_argument("--out", default=str(ROOT / "bench" / "results"))
    parser.add_argument("--page-only", action="store_true", help="measure nothing: the page of what there is")
    return parser.parse_args(arguments)


def main() -> None:
    options = parsed()
    head, setting, store = commit.current(ROOT), setting_of(options), Store(Path(options.rows))
    keys = wanted(options, head, setting)
    print(f"commit {head}: {store.kept(keys, head, setting)}", file=sys.stderr)
    missing = [] if options.page_only else [key for key in keys if key not in store.measurements]
    if missing:
        compile_byte_code()
    started = time.monotonic()
    measure_all(missing, options, store)
    found = [store.measurements[key] for key in keys if key in store.measurements]
    if not found:
        raise SystemExit("nothing is measured at this commit yet")
    path = report(found, head, setting, Path(options.out))
    print(f"{path}: {len(missing)} measurements in {(time.monotonic() - started) / 60:.1f} minutes")


if __name__ == "__main__":
    main()
