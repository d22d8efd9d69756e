"""One measurement of the dashboard, in the process that it is called in: prints a line of JSON.

    python bench/dashboard_measure.py GROUP MODEL WAY SIZES ROUNDS CLOCK THREADS

Eager mode runs at all sizes first: its results are what others are compared with, and its peak of resident memory is
what others are measured beyond. All ways import the same before the clock starts, and cache nothing. Inductor's
compilers are processes of their own: their time counts in processor seconds, their memory does not.
"""

from __future__ import annotations

import functools
import json
import math
import os
import re
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from first_call import Backend, seconds

_AT_LEAST = 0.02  # seconds of a sample
_MOST_ERROR = 600  # characters of an error that are kept
_FOLDERS = re.compile(r"(?<![\w.])(?:/[\w.+-]+)+/(?=[\w.+-])")  # of files: another machine has others


@dataclass
class Compiled:
    """A way to run a module. ``totals`` gives launches and bytes, of the graphs that there are when it is called."""

    run: Callable[..., Any]
    backend: Backend | None = None
    totals: Callable[[], tuple[int | None, int | None]] = lambda: (None, None)
    entered: ExitStack = field(default_factory=ExitStack)


def _symshape(module: Any) -> Compiled:
    import symshape
    from symshape import backend as ours

    timer, compiled = Backend(), []
    compile_one = timer.timed(ours.compile_traced)

    @functools.wraps(ours.compile_traced)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        compiled.append(compile_one(*args, **kwargs))
        return compiled[-1]

    ours.compile_traced = recorded

    def totals() -> tuple[int | None, int | None]:
        from symshape.errors import OptionError

        reports = [one.report for one in compiled]
        launches = sum(report.launches for report in reports)
        try:
            return launches, sum(r.bytes_accessed() + r.library_bytes_accessed() for r in reports)
        except OptionError:  # a size is in the data
            return launches, None

    return Compiled(symshape.compile(module, cache=False), timer, totals)


def _inductor(module: Any, dynamic: bool) -> Compiled:
    import torch
    from inductor_nodes import watch_inductor
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    timer, entered = Backend(), ExitStack()
    seen = entered.enter_context(watch_inductor())
    inner = timer.timed(compile_fx_inner)

    def backend(graph: Any, inputs: Any) -> Any:
        return compile_fx(graph, inputs, inner_compile=inner)

    def totals() -> tuple[int | None, int | None]:
        return sum(len(one.kernels) for one in seen), sum(sum(one.reached_bytes + one.library_bytes) for one in seen)

    return Compiled(torch.compile(module, backend=backend, dynamic=dynamic), timer, totals, entered)


def _aot_eager(module: Any) -> Compiled:
    import torch

    return Compiled(torch.compile(module, backend="aot_eager", dynamic=True))


WAYS: dict[str, Callable[[Any], Compiled]] = {
    "symshape": _symshape,
    "inductor_dynamic": functools.partial(_inductor, dynamic=True),
    "inductor_static": functools.partial(_inductor, dynamic=False),
    "aot_eager": _aot_eager,
}


def models(group: str) -> dict[str, Any]:
    from symshape.tools.transformers_configs import TRANSFORMERS
    from symshape.tools.zoo import MODELS

    return {"zoo": MODELS, "transformers": TRANSFORMERS}[group]


def sizes_of(model: Any, count: int) -> list[Any]:
    """The one that the model is first called with, and others without a size of 1, evenly spread up to the largest."""
    first = model.first_shapes[0]
    others = sorted((shape for shape in model.large_shapes if shape != first), key=math.prod)
    steps = min(count - 1, len(others))
    return [first, *(others[round((i + 1) * len(others) / steps) - 1] for i in range(steps))]


def peak() -> int:
    """Bytes that the process has had resident at most (``VmHWM``)."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"))
    if found is None:
        raise RuntimeError("/proc/self/status has no VmHWM: peak memory is read on Linux only")
    return int(found.group(1)) * 1024


def measure_here(model: Any, way: str, sizes: int, rounds: int, clock: str) -> dict[str, Any]:
    """The figures of `measurements.Measurement`; what fails is in ``error``, with what was reached before."""
    import torch

    from symshape.tools.measure import Graphs

    inputs = {model.describe(shape): model.inputs(shape) for shape in sizes_of(model, sizes)}
    found: dict[str, Any] = {"error": ""}
    try:
        with torch.no_grad(), ExitStack() as entered:
            eager = model.build()
            expected = {name: eager(**given) for name, given in inputs.items()}
            eager_peak = peak()
            graphs = entered.enter_context(Graphs())
            compiled = WAYS[way](model.build())
            entered.enter_context(compiled.entered)
            _meet(compiled, inputs, expected, found)
            found |= {"memory": peak() - eager_peak, "graphs": graphs.read().graphs}
            _time(compiled.run, eager, inputs, way, rounds, clock, found)
    except Exception as error:  # noqa: BLE001 - a model that fails is a row of the dashboard
        last = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__} ({Path(last.filename).name}:{last.lineno}): {error}"
        found["error"] = " ".join(_FOLDERS.sub("", text).split())[:_MOST_ERROR]
    return found


def _meet(compiled: Compiled, inputs: dict[str, Any], expected: dict[str, Any], found: dict[str, Any]) -> None:
    """The first call at each size."""
    from symshape.tools.measure import relative_error

    found |= {"later": 0.0, "errors": {}}
    for number, (name, given) in enumerate(inputs.items()):
        started, wall = seconds(), time.perf_counter()
        result = compiled.run(**given)
        passed, wall = seconds() - started, time.perf_counter() - wall
        found["errors"][name] = relative_error(result, expected[name])
        if number:
            found["later"] += passed
            continue
        found |= {"first": passed, "first_wall": wall, "compile": compiled.backend and compiled.backend.spent}
        found["kernels"], found["bytes"] = compiled.totals()


def _time(
    run: Callable[..., Any],
    eager: Any,
    inputs: dict[str, Any],
    way: str,
    rounds: int,
    clock: str,
    found: dict[str, Any],
) -> None:
    """Of calls at sizes that were met before, in turns with eager mode."""
    from symshape.tools.measure import CLOCKS, samples

    found["seconds"] = {}
    for name, given in inputs.items():
        runs = {"eager": functools.partial(eager, **given), way: functools.partial(run, **given)}
        found["seconds"][name] = samples(runs, rounds, at_least=_AT_LEAST, clock=CLOCKS[clock])


def main() -> None:
    group, name, way, sizes, rounds, clock, threads = sys.argv[1:]
    warnings.filterwarnings("ignore")
    import torch
    import torch._inductor.compile_fx
    import transformers

    import symshape.backend  # noqa: F401 - imported before the clock starts, for all ways

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(int(threads))
    figures = measure_here(models(group)[name], way, int(sizes), int(rounds), clock)
    print(json.dumps(figures), flush=True)
    os._exit(0)  # destructors of loaded code are not measured


if __name__ == "__main__":
    main()
