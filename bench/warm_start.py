"""Warm start: the same model in a new process, whose compiled graphs are in the cache on disk.

    python bench/warm_start.py [--models bert,t5] [--repeat 3] [--training] [--out bench/results/warm_start.json]

For each model a process that compiles into an empty cache (cold), then processes that find everything there (warm).
Every process calls the model once, compares the result with eager's, and says what the first call took:

- backend: our own time in it: the key, reading, loading machine code, checks. Not Dynamo's and AOTAutograd's tracing,
  which happens again in every process and which aot_eager needs as well.
- imports: modules that the backend loads while it works, in a process that has imported symshape; llvmlite for most.
- import symshape: our own modules before the first call, torch imported before.
- kernels and MLIR: whether anything was compiled, and whether MLIR was imported.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from symshape.tools.terminal import Progress, table

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 0.2  # seconds of backend time in a warm process


def measure_here(name: str, training: bool) -> dict[str, Any]:
    """In a fresh process: imports, then the first call, and of it the share of the backend."""
    warnings.filterwarnings("ignore")
    import torch

    start = time.perf_counter()
    import symshape.backend  # noqa: F401  (what is measured is its import)
    from symshape import api

    imported = time.perf_counter() - start
    from symshape.tools.zoo import MODELS

    model = MODELS[name]
    module, inputs = model.build(), model.inputs(model.first_shapes[0])
    expected = _run(module, inputs, training)
    _warm_dynamo(torch)
    clock = _Clock()
    with clock:
        compiled = api.compile(module)
        start = time.perf_counter()
        actual = _run(compiled, inputs, training)
        first = time.perf_counter() - start
    from symshape.tools.measure import relative_error

    return {
        "first_call": first,
        "backend": clock.seconds - clock.imports,
        "imports": clock.imports,
        "import_symshape": imported,
        "graphs": clock.graphs,
        "mlir": "torch_mlir" in sys.modules,
        "error": relative_error(actual, expected),
    }


def _run(module: Any, inputs: dict[str, Any], training: bool) -> Any:
    import torch

    if not training:
        with torch.no_grad():
            return module(**inputs)
    from symshape.tools.measure import tensors_of

    outputs = [t for t in tensors_of(module(**inputs)) if t.requires_grad]
    sum(t.float().square().mean() for t in outputs).backward()
    parameters = getattr(module, "_orig_mod", module).parameters()
    # In one tensor: some are zero but for rounding (of a key's bias), and have no scale of their own.
    gradients = torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])
    module.zero_grad()
    return outputs, gradients


def _warm_dynamo(torch: Any) -> None:
    """The first torch.compile of a process imports sympy, Dynamo and AOTAutograd: no backend's doing."""
    from torch._dynamo.backends.registry import lookup_backend

    torch.compile(lambda x: x + 1, backend=lookup_backend("aot_eager"), dynamic=True)(torch.ones(2, 3))
    torch._dynamo.reset()


class _Clock:
    """The time inside the backend, outside of AOTAutograd; and of it the time that importing modules takes."""

    def __init__(self) -> None:
        self.seconds = self.imports = 0.0
        self.graphs = self._depth = 0

    def __enter__(self) -> None:
        import builtins

        from symshape import backend

        self._saved = backend.aot_compile, builtins.__import__
        usual_aot, usual_import = self._saved

        def aot_compile(gm: Any, inputs: Any, **kinds: Any) -> Any:
            timed = {kind: self._timed(kind, run) if callable(run) else run for kind, run in kinds.items()}
            return usual_aot(gm, inputs, **timed)

        def import_(*args: Any, **kwargs: Any) -> Any:
            if self._depth != 1:  # outside of the backend, or inside of an import
                return usual_import(*args, **kwargs)
            self._depth, start = 2, time.perf_counter()
            try:
                return usual_import(*args, **kwargs)
            finally:
                self.imports += time.perf_counter() - start
                self._depth = 1

        backend.aot_compile, builtins.__import__ = aot_compile, import_

    def __exit__(self, *_: Any) -> None:
        import builtins

        from symshape import backend

        backend.aot_compile, builtins.__import__ = self._saved

    def _timed(self, kind: str, run: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            self._depth, start = 1, time.perf_counter()
            try:
                return run(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - start
                self.graphs += kind != "joint"  # rewrites of forward and backward together, before they are split
                self._depth = 0

        return timed


def measure(name: str, training: bool, folder: str) -> dict[str, Any]:
    """The same in a subprocess of its own, with our cache in ``folder``."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    child = {**os.environ, "SYMSHAPE_CACHE_DIR": folder, "SYMSHAPE_CACHE": "1", "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, __file__, "--child", name, *(["--training"] if training else [])]
    done = subprocess.run(command, env=child, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr[-4000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def row_of(name: str, cold: dict[str, Any], warm: list[dict[str, Any]]) -> dict[str, Any]:
    keys = ("first_call", "backend", "imports", "import_symshape")
    medians = {key: statistics.median(one[key] for one in warm) for key in keys}
    return {
        "model": name,
        "graphs": cold["graphs"],
        "cold_first_call": cold["first_call"],
        "cold_backend": cold["backend"],
        **medians,
        "mlir_in_warm": any(one["mlir"] for one in warm),
        "error": max(one["error"] for one in (cold, *warm)),
        "samples": {"cold": cold, "warm": warm},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="bert,gpt2,t5,llama,vit,resnet")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--training", action="store_true", help="forward and backward instead of inference")
    parser.add_argument("--out")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure_here(options.child, options.training)))
        return 0

    names = options.models.split(",")
    rows = []
    with Progress("warm start", len(names) * (options.repeat + 1)) as progress:
        for name in names:
            samples = []
            with tempfile.TemporaryDirectory(prefix="symshape-bench-") as folder:
                for turn in range(options.repeat + 1):
                    progress.say(f"{name} {'warm' if turn else 'cold'}")
                    samples.append(measure(name, options.training, folder))
                    progress.step()
            rows.append(row_of(name, samples[0], samples[1:]))
    columns = (
        "graphs",
        "cold_backend",
        "backend",
        "imports",
        "import_symshape",
        "cold_first_call",
        "first_call",
        "mlir_in_warm",
        "error",
    )
    header = ["model", *(column.replace("_", " ") for column in columns)]
    print(table(header, [[row["model"], *(row[column] for column in columns)] for row in rows]))
    print("seconds; warm ones are medians. backend: our own time in the first call, imports not counted")
    worst = max(row["backend"] for row in rows)
    print(f"worst backend time of a warm start: {worst:.3f} s (limit {LIMIT})")
    if options.out:
        from symshape.tools.measure import write_result

        write_result(options.out, "warm_start", rows, training=options.training, limit=LIMIT)
    return int(worst > LIMIT or any(row["mlir_in_warm"] or row["error"] > 1e-4 for row in rows))


if __name__ == "__main__":
    sys.exit(main())
