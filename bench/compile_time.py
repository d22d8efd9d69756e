"""The backend's share of compile time: each measurement in a fresh process, with fresh and empty caches.

    python bench/compile_time.py [--models bert,t5] [--device cuda] [--repeat 3] [--out bench/results/compile_time.json]

First-call time is measured for `aot_eager` (tracing and AOTAutograd, no code generation), `inductor` and `symshape`;
share = (symshape - aot_eager) / (inductor - aot_eager). Cold means cold for all: Inductor's first call includes the
header it precompiles once per cache. Import time is not in the first-call time and stands beside it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from symshape.tools.terminal import Progress, table

BACKENDS = ("aot_eager", "inductor", "symshape")
# What a backend loads lazily after these is part of its first call, for either one.
BACKEND_MODULES = {"inductor": ("torch._inductor.compile_fx",), "symshape": ("symshape", "symshape.backend")}
CACHE_VARIABLES = ("TORCHINDUCTOR_CACHE_DIR", "SYMSHAPE_CACHE_DIR", "TRITON_CACHE_DIR", "XDG_CACHE_HOME", "TMPDIR")
ROOT = Path(__file__).resolve().parent.parent


def measure_here(
    model_name: str, backend: str, device: str = "cpu", size: Any = "full", options: Any = None
) -> dict[str, float]:
    """In a fresh process: the imports, the first call, the second call. ``options``: of symshape's compile."""
    warnings.filterwarnings("ignore")
    start = time.perf_counter()
    import torch

    torch_imported = time.perf_counter()
    for name in BACKEND_MODULES.get(backend, ()):
        importlib.import_module(name)
    backend_imported = time.perf_counter()
    from symshape.tools.measure import compile_for
    from symshape.tools.zoo import MODELS

    model = MODELS[model_name]
    module = model.build(size).to(device)
    shapes = model.first_shapes if size == "full" else model.tiny_shapes
    inputs = {name: value.to(device) for name, value in model.inputs(shapes[0]).items()}
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    with torch.no_grad():
        module(**inputs)
        warm_dynamo(torch)
        # Into an empty cache: writing is part of a first call.
        compiled = compile_for(backend, module, **({"cache": True} | (options or {})))
        seconds = []
        for _ in range(2):
            wait()
            called = time.perf_counter()
            compiled(**inputs)
            wait()
            seconds.append(time.perf_counter() - called)
        first, second = seconds
    imports = {"torch": torch_imported - start, "backend": backend_imported - torch_imported}
    return {"first_call": first, "second_call": second, **{f"import_{key}": value for key, value in imports.items()}}


def warm_dynamo(torch: Any) -> None:
    """The first torch.compile of a process imports sympy, Dynamo and AOTAutograd: no backend's doing, in all alike."""
    from torch._dynamo.backends.registry import lookup_backend

    torch.compile(lambda x: x + 1, backend=lookup_backend("aot_eager"), dynamic=True)(torch.ones(2, 3))
    torch._dynamo.reset()


def measure(model_name: str, backend: str, device: str = "cpu") -> dict[str, float]:
    """The same in a subprocess of its own, whose every cache directory is new and empty."""
    with tempfile.TemporaryDirectory(prefix="symshape-bench-") as folder:
        caches = {}
        for variable in CACHE_VARIABLES:
            caches[variable] = str(Path(folder) / variable.lower())
            Path(caches[variable]).mkdir(mode=0o700)
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        child = {**os.environ, **caches, "PYTHONPATH": os.pathsep.join(paths)}
        command = [sys.executable, __file__, "--child", model_name, backend, device]
        done = subprocess.run(command, env=child, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{model_name} {backend} failed:\n{done.stderr[-4000:]}")
        return dict(json.loads(done.stdout.splitlines()[-1]))


def summarise(name: str, samples: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    def median(backend: str, key: str) -> float | None:
        values = [sample[key] for sample in samples.get(backend, [])]
        return statistics.median(values) if values else None

    row: dict[str, Any] = {"model": name, "samples": samples}
    for backend in samples:
        row[backend] = median(backend, "first_call")
        row[f"import_{backend}"] = median(backend, "import_backend")
    if all(backend in row for backend in BACKENDS):
        row["share"] = (row["symshape"] - row["aot_eager"]) / (row["inductor"] - row["aot_eager"])
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="bert,gpt2,t5,llama,vit,resnet")
    parser.add_argument("--backends", default=",".join(BACKENDS))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure_here(*options.child)))
        return

    names, backends = options.models.split(","), options.backends.split(",")
    rows = []
    with Progress("compile time", len(names) * len(backends) * options.repeat) as progress:
        for name in names:
            samples: dict[str, list[dict[str, float]]] = {backend: [] for backend in backends}
            # In turns, so that a slow minute of the machine hits every backend.
            for turn in range(options.repeat):
                for backend in backends:
                    progress.say(f"{name} {backend} {turn + 1}/{options.repeat}")
                    samples[backend].append(measure(name, backend, options.device))
                    progress.step()
            rows.append(summarise(name, samples))
    columns = [*backends, "share", *(f"import_{backend}" for backend in backends)]
    header = ["model", *(column.replace("import_", "import ") for column in columns)]
    print(table(header, [[row["model"], *(row.get(column) or "-" for column in columns)] for row in rows]))
    print("seconds, medians; share = (symshape - aot_eager) / (inductor - aot_eager)")
    if options.out:
        from symshape.tools.measure import write_result

        write_result(options.out, "compile_time", rows)


if __name__ == "__main__":
    main()
