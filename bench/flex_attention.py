"""``flex_attention`` on a CPU, one thread: processor time of a call, over that of Inductor with dynamic sizes.

    python bench/flex_attention.py [--kinds causal,window,alibi,document,cap] [--lengths 1,2,17,128,129,1000,1025]
                                   [--ways inductor,symshape] [--rounds 7] [--dtype float32] [--out FILE.json]

Batch 1, 8 heads of 64 features, without gradients; block masks are made before the clock starts. Each way has a process
of its own, which compiles a kind once and then runs every length; both are there at a time, and take turns for every
sample. Figures are medians of processor time; a ratio below 1 says that symshape is faster. Results are compared with
eager mode's first.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from first_call import ROOT
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from symshape.tools.measure import geometric_mean, seconds_per_call, write_result
from symshape.tools.terminal import Progress, table

KINDS = "causal,window,alibi,document,cap"
LENGTHS = "1,2,17,128,129,1000,1025"
HEADS, FEATURES, WINDOW, DOCUMENT = 8, 64, 256, 100
TOLERANCES = {"float32": 2e-5, "bfloat16": 3e-2, "float16": 4e-3}

_slopes = torch.exp2(-torch.arange(1.0, HEADS + 1))
_documents = torch.arange(1 << 14) // DOCUMENT


def _causal(b: Any, h: Any, q: Any, k: Any) -> Any:
    return q >= k


def _window(b: Any, h: Any, q: Any, k: Any) -> Any:
    return (q >= k) & (q - k <= WINDOW)


def _document(b: Any, h: Any, q: Any, k: Any) -> Any:
    return _documents[q] == _documents[k]


def _alibi(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return score + _slopes[h] * (k - q)


def _cap(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return 20 * torch.tanh(score / 20)  # a global float would be a tensor, which Inductor refuses


FUNCTIONS: dict[str, tuple[Callable[..., Any] | None, Callable[..., Any] | None]] = {
    "causal": (None, _causal),
    "window": (None, _window),
    "alibi": (_alibi, _causal),
    "document": (None, _document),
    "cap": (_cap, _causal),
}


def _program(kind: str) -> Callable[..., Any]:
    score = FUNCTIONS[kind][0]

    def program(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return flex_attention(q, k, v, score_mod=score, block_mask=mask)

    return program


def _inputs(kind: str, length: int, dtype: torch.dtype) -> list[Any]:
    torch.manual_seed(length)
    tensors = [torch.randn(1, HEADS, length, FEATURES).to(dtype) for _ in range(3)]
    mask = FUNCTIONS[kind][1]
    return [*tensors, create_block_mask(mask, None, None, length, length, device="cpu") if mask else None]


def serve(way: str, dtype: str) -> None:
    """Answers lines "kind length" with seconds per call, in a process of its own."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    compiled: dict[str, Callable[..., Any]] = {}
    inputs: dict[tuple[str, int], list[Any]] = {}
    with torch.no_grad():
        for line in sys.stdin:
            kind, length = line.split()
            at = kind, int(length)
            if kind not in compiled:
                compiled[kind] = _compile(way, _program(kind))
            if at not in inputs:
                inputs[at] = _inputs(*at, getattr(torch, dtype))
                found, expected = (f(*inputs[at]).float() for f in (compiled[kind], _program(kind)))
                torch.testing.assert_close(found, expected, atol=TOLERANCES[dtype], rtol=TOLERANCES[dtype])
            run = compiled[kind]
            seconds = seconds_per_call(lambda: run(*inputs[at]), at_least=0.1, clock=time.process_time)  # noqa: B023
            print(json.dumps(seconds), flush=True)


def _compile(way: str, program: Callable[..., Any]) -> Callable[..., Any]:
    import symshape

    torch._dynamo.config.recompile_limit = 64
    return symshape.compile(program) if way == "symshape" else torch.compile(program, backend=way, dynamic=True)


class Served:
    """A process that measures one way."""

    def __init__(self, way: str, dtype: str) -> None:
        paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.way = way
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", way, "--dtype", dtype],
            env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def sample(self, kind: str, length: int) -> float:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{kind} {length}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.way} failed at {kind}, length {length}")
        return float(json.loads(line))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default=KINDS)
    parser.add_argument("--lengths", default=LENGTHS)
    parser.add_argument("--ways", default="inductor,symshape")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--dtype", default="float32", choices=TOLERANCES)
    parser.add_argument("--out")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.dtype)
        return
    served = [Served(way, options.dtype) for way in options.ways.split(",")]
    lengths = [int(length) for length in options.lengths.split(",")]
    # First a length that no kernel is specialised for: the others are to run with what was compiled for it.
    order = sorted(lengths, key=lambda length: length != max(lengths))
    rows = []
    with Progress("flex_attention", len(options.kinds.split(",")) * len(lengths)) as progress:
        for kind in options.kinds.split(","):
            for length in order:
                turns = [{one.way: one.sample(kind, length) for one in served} for _ in range(options.rounds)]
                seconds = {one.way: statistics.median(turn[one.way] for turn in turns) for one in served}
                rows.append({"kind": kind, "length": length, "seconds": seconds})
                progress.step()
    first, *_, last = served if len(served) > 1 else [*served, *served]
    ratios = [row["seconds"][last.way] / row["seconds"][first.way] for row in rows]
    cells = [
        [row["kind"], str(row["length"]), *(1e6 * s for s in row["seconds"].values()), ratio]
        for row, ratio in zip(rows, ratios)
    ]
    print(table(["kind", "length", *(f"{one.way}, us" for one in served), "ratio"], cells))
    summary = {"geometric mean": geometric_mean(ratios), "worst": max(ratios)}
    print(", ".join(f"{name} {value:.2f}" for name, value in summary.items()))
    if options.out:
        write_result(options.out, "flex_attention", rows, **summary)


if __name__ == "__main__":
    main()
