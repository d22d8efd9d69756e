"""Random programs against eager mode, resumable: ``make fuzz N=1000``.

    python test/fuzz/fuzz.py 1000                 seeds 0 to 999, less those that were run before
    python test/fuzz/fuzz.py 1000 --from 5000     seeds 5000 to 5999
    python test/fuzz/fuzz.py 100 --of edges       programs of one thing most of all, with longer rows
    python test/fuzz/fuzz.py --program 17         one seed again: its text, what differs, and what it shrinks to
    python test/fuzz/fuzz.py --file FILE          a saved program

The outcome of each seed is a line of build/fuzz/seeds.jsonl; programs that fail lie beside it. One in ten runs with
Triton's interpreter, one in ten through ``symshape.jit``, and three with the settings of ``symshape.compile``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

os.environ.setdefault("TRITON_INTERPRET", "1")
os.environ["SYMSHAPE_CACHE"] = "0"
os.environ.setdefault("SYMSHAPE_STRICT", "1")  # what cannot be compiled is an error, not a library call
HERE = Path(__file__).parent
FOLDER = Path("build/fuzz")
LIMIT = 120  # seconds of processor time for one program
MEMORY = 8 << 30  # bytes of address space: a statement that the generator tries may ask for a tensor of any size
EACH = 100  # programs that one process runs


def backend_of(seed: int) -> str:
    return {7: "jit", 9: "triton"}.get(seed % 10) or ("settings" if seed % 2 else "symshape")


def program_of(seed: int, focus: str = "") -> Any:
    from grammar import generate
    from vocabulary import FOCUSED

    if focus:
        return generate(random.Random(seed), (6, 16), (3, 5), 257, 70_000, families=FOCUSED[focus])
    if backend_of(seed) == "triton":  # interpreted: small
        return generate(random.Random(seed), (10, 30), (2, 3), 17, 2_000)
    return generate(random.Random(seed))


def outcome(seed: int, focus: str = "") -> dict[str, Any]:
    """Generates and checks one program; the line for it."""
    from agreement import check
    from interpreted_memory import watched

    def stop(*_: Any) -> None:
        raise TimeoutError(f"more than {LIMIT} s")

    start = time.monotonic()
    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    found = kind = message = ""
    source = None
    try:
        source = program_of(seed, focus)
        with watched() if backend_of(seed) == "triton" else nullcontext():  # races, accesses out of bounds
            finding = check(source, backend_of(seed), count_graphs=seed % 5 == 0)
        if finding:
            found, kind, message = finding.whose, finding.kind, finding.message
    except TimeoutError as error:
        found, kind, message = "symshape", "slow", str(error)
    except Exception:  # noqa: BLE001 (the next program must run)
        found, kind, message = "symshape", "harness", traceback.format_exc()[-1000:]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    if found == "symshape" and source is not None:
        (FOLDER / focus / f"{seed}.py").write_text(source.text)
    count = len(source.body) if source is not None else 0
    return {
        "seed": seed,
        "backend": backend_of(seed),
        "statements": count,
        "whose": found,
        "kind": kind,
        "message": message[:1000],
        "seconds": round(time.monotonic() - start, 2),
    }


def work(seeds: list[int], focus: str = "") -> None:
    """In a process of its own: a line for each seed, before it is begun and when it is done."""
    import logging

    hold_memory()
    logging.disable(logging.CRITICAL)
    for seed in seeds:
        print(json.dumps({"begun": seed}), flush=True)
        print(json.dumps(outcome(seed, focus)), flush=True)


def hold_memory() -> None:
    """An allocation beyond the limit is an error of its statement, and not the end of the process or of another one."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))


def run(seeds: list[int], focus: str = "") -> list[dict[str, Any]]:
    """All seeds, in processes that a crash ends alone."""
    sys.path.insert(0, str(HERE.parent.parent))
    from symshape.tools.terminal import Progress

    folder = FOLDER / focus
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "seeds.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    done = {line["seed"]: line for line in lines}
    left = [seed for seed in seeds if seed not in done]
    with Progress("fuzz", len(seeds)) as progress, log.open("a") as written:
        progress.done = len(seeds) - len(left)
        while left:
            command = [sys.executable, __file__, "--of", focus, "--work", *map(str, left[:EACH])]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            begun = left[0]
            assert process.stdout is not None
            for text in process.stdout:
                if not text.startswith("{"):
                    continue
                line = json.loads(text)
                if "begun" in line:
                    begun = line["begun"]
                    continue
                note(line, done, written, progress, focus)
                left.remove(line["seed"])
            if process.wait() and begun in left:
                crash = {
                    "seed": begun,
                    "backend": backend_of(begun),
                    "statements": 0,
                    "whose": "symshape",
                    "kind": "crash",
                    "message": f"exit status {process.returncode}",
                    "seconds": 0.0,
                }
                note(crash, done, written, progress, focus)
                left.remove(begun)
    return [done[seed] for seed in seeds]


def note(line: dict[str, Any], done: dict[int, Any], written: Any, progress: Any, focus: str) -> None:
    done[line["seed"]] = line
    written.write(json.dumps(line) + "\n")
    written.flush()
    if line["whose"] == "symshape":
        first = line["message"].splitlines()[0][:150] if line["message"] else ""
        print(
            f"\nseed {line['seed']} ({line['backend']}): {line['kind']}: {first}\n"
            f"    python test/fuzz/fuzz.py{f' --of {focus}' * bool(focus)} --program {line['seed']}",
            flush=True,
        )
    progress.step(f"{sum(x['whose'] == 'symshape' for x in done.values())} failed")


def show(source: Any, backend: str, small: bool) -> int:
    """One program: its text, what differs, what it shrinks to."""
    from agreement import check, differences
    from shrink import shrink

    print(source.text)
    finding = check(source, backend)
    if finding is None:
        print(f"{backend}: as eager")
        return 0
    print(f"{backend}: {finding.whose}: {finding.kind}: {finding.message}")
    if small:

        def same(smaller: Any) -> bool:
            found = check(smaller, backend) if finding.kind == "graphs" else differences(smaller, backend)[0]
            return found is not None and found.kind == finding.kind and found.type_ == finding.type_

        source = shrink(source, same)
        last = check(source, backend)
        print(f"\n# shrunk: {last.message if last else 'nothing differs any more'}\n{source.text}")
    return 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, nargs="?", default=100)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--of", default="", help="what programs are made of: edges", dest="focus")
    parser.add_argument("--program", type=int, help="a seed")
    parser.add_argument("--file", type=Path, help="a saved program")
    parser.add_argument("--backend", help="of a program: symshape, settings, jit, triton, aot_eager")
    parser.add_argument("--whole", action="store_true", help="do not shrink")
    parser.add_argument("--work", type=int, nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(given.work, given.focus)
        return 0
    if given.file or given.program is not None:
        from source import Source

        hold_memory()
        source = Source.parse(given.file.read_text()) if given.file else program_of(given.program, given.focus)
        return show(source, given.backend or backend_of(given.program or 0), not given.whole)
    if given.backend or given.whole:
        parser.error("--backend and --whole are of --program and --file")
    lines = run(list(range(given.first, given.first + given.count)), given.focus)
    counts = Counter(f"{line['whose']}: {line['kind']}" if line["whose"] else "as eager" for line in lines)
    for what, count in counts.most_common():
        print(f"{count:6d}  {what}")
    return int(any(line["whose"] == "symshape" for line in lines))


if __name__ == "__main__":
    sys.exit(main())
