"""The first call of a model: tracing and the backend apart, against AOTAutograd alone and Inductor.

    python bench/first_call.py [--models bert,bert-train] [--ways aot_static,aot,symshape,inductor] [--repeat 3]
                               [--layers 12,48]

Each measurement is in a fresh process with one thread and no cache; torch, transformers and symshape are imported
before, all else counts; symshape's byte code is there, as pip leaves it. ``aot`` is AOTAutograd with `dynamic=True`
and no backend, ``aot_static`` with `dynamic=False`. Figures are seconds of processor time, with those of compilers
that were run, medians of ``--repeat``; the ways take turns. ``trace`` is what passes until the backend has the
graphs, ``backend`` the rest. ``later`` is the second call over the tenth. ``--layers``: transformers of so many equal
layers, of width 32, instead of the models as they are measured elsewhere; only what is the same for each layer may
grow with their number.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

MODELS = "bert,gpt2,t5,llama,vit,resnet,bert-train,resnet-train"
WAYS = ("aot_static", "aot", "symshape", "inductor")
ROOT = Path(__file__).resolve().parent.parent
ALONE = {
    "OMP_NUM_THREADS": "1",
    "SYMSHAPE_CACHE": "0",
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
}


def compile_byte_code() -> None:
    """Of all modules of the repository that are imported, which an installation has and a checkout may not."""
    for folder in ROOT.iterdir():
        if (folder / "__init__.py").exists():
            compileall.compile_dir(folder, quiet=1)


def seconds() -> float:
    """Of processor time, with those of children that have ended."""
    return time.process_time() + sum(os.times()[2:4])


class Backend:
    """Sums what a backend takes."""

    def __init__(self) -> None:
        self.spent, self.graphs = 0.0, 0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            started = seconds()
            self.graphs += 1
            try:
                return function(*args, **kwargs)
            finally:
                self.spent += seconds() - started

        return run


def compiled_by(way: str, module: Any, backend: Backend) -> Any:
    """The module compiled in a way, with its backend timed where it is one that can be told apart from tracing."""
    import torch

    import symshape
    from symshape import backend as ours

    if way == "symshape":
        ours.compile_traced = backend.timed(ours.compile_traced)
        return symshape.compile(module)
    if way == "inductor":
        return torch.compile(module, dynamic=True)
    from functorch.compile import min_cut_rematerialization_partition
    from torch._dynamo.backends.common import aot_autograd
    from torch._dynamo.backends.debugging import boxed_nop

    nothing = aot_autograd(
        fw_compiler=backend.timed(boxed_nop),
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )
    return torch.compile(module, backend=nothing, dynamic=way == "aot")


def resize(layers: int) -> None:
    """Makes transformers with so many layers of little width, in this process."""
    from symshape.tools import zoo

    made = zoo._dimensions
    small = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 128, "num_hidden_layers": layers}
    zoo._dimensions = lambda size: made(size) | small


def measure_here(name: str, way: str, layers: int) -> dict[str, float]:
    """In a fresh process. ``layers``: 0 for the model as it is."""
    warnings.filterwarnings("ignore")
    import torch
    import transformers  # noqa: F401 - imported before the clock starts

    from symshape.tools.zoo import MODELS as ZOO

    torch.set_num_threads(1)
    if layers:
        resize(layers)
    model = ZOO[name.removesuffix("-train")]
    module, inputs = model.build(), model.inputs(model.first_shapes[0])
    backend = Backend()
    compiled = compiled_by(way, module, backend)

    def call() -> float:
        module.zero_grad()  # or the second step is the one that allocates memory for gradients, whoever compiled it
        started = seconds()
        if name.endswith("-train"):
            first = next(value for value in compiled(**inputs).values() if isinstance(value, torch.Tensor))
            first.float().pow(2).mean().backward()
        else:
            with torch.no_grad():
                compiled(**inputs)
        return seconds() - started

    times = [call() for _ in range(10)]
    found = {"first": times[0], "backend": backend.spent, "trace": times[0] - backend.spent}
    return found | {"second": times[1], "tenth": statistics.median(times[5:]), "graphs": float(backend.graphs)}


def measure(name: str, way: str, layers: int) -> dict[str, float]:
    """The same in a subprocess of its own."""
    command = [sys.executable, __file__, "--child", name, way, str(layers)]
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        command, env=os.environ | ALONE | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{name} {way} failed:\n{done.stderr[-4000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def summarise(name: str, layers: int, samples: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Medians, and their ratios."""

    def median(way: str, key: str) -> float:
        return statistics.median(sample[key] for sample in samples[way]) if samples.get(way) else float("nan")

    shown = f"{name} of {layers} layers" if layers else name
    row: dict[str, Any] = {"model": shown, "samples": samples}
    row |= {"trace": median("symshape", "trace"), "backend": median("symshape", "backend")}
    row["trace/aot"] = median("symshape", "trace") / median("aot", "trace")
    row |= {f"first/{way}": median("symshape", "first") / median(way, "first") for way in WAYS if way != "symshape"}
    row["later"] = median("symshape", "second") / median("symshape", "tenth")
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out")
    parser.add_argument("--layers", default="0")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        name, way, layers = options.child
        print(json.dumps(measure_here(name, way, int(layers))))
        return
    from symshape.tools.measure import write_result
    from symshape.tools.terminal import Progress, table

    compile_byte_code()
    names, ways, rows = options.models.split(","), options.ways.split(","), []
    counts = [int(count) for count in options.layers.split(",")]
    with Progress("first call", len(names) * len(counts) * len(ways) * options.repeat) as progress:
        for name, layers in ((name, count) for name in names for count in counts):
            samples: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
            for turn in range(options.repeat):
                for way in ways:
                    progress.say(f"{name} {way} {turn + 1}/{options.repeat}")
                    samples[way].append(measure(name, way, layers))
                    progress.step()
            rows.append(summarise(name, layers, samples))
    columns = [key for key in rows[0] if key not in ("model", "samples")]
    print(table(["model", *columns], [[row["model"], *(row[key] for key in columns)] for row in rows]))
    if options.out:
        write_result(options.out, "first_call", rows)


if __name__ == "__main__":
    main()
