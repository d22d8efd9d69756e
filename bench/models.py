"""Training steps (forward, backward, SGD) of the eight models; eager, inductor (dynamic=True), symshape in one run.

    python bench/models.py [--models bert,dlrm] [--size tiny] [--rounds 7] [--out bench/results/models_cpu.json]

Every backend is compiled and has met every shape before anything is timed; samples are taken in turns; a figure is the
median. Beside it the peak of live bytes in a step: of what the step itself allocates (activations, gradients,
workspace), as PyTorch's profiler sees its allocator. Ratios are geometric means over shapes.
"""

from __future__ import annotations

import argparse
import functools
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from steady_state import BACKENDS
from torch.profiler import ProfilerActivity, profile
from trained_models import TRAINED, TRAINING_SHAPES, without_dropout

from symshape.tools.measure import geometric_mean, interleaved, tensors_of, write_result
from symshape.tools.terminal import Progress, heading, table
from symshape.tools.zoo import Model, Shape, Size

_RATE = 1e-3


@dataclass(frozen=True)
class Row:
    """``peak``: bytes; ``loss_error``: symshape's loss against eager's, relative, after the same steps. What failed at
    some shape of the model is in neither."""

    model: str
    shape: Shape
    seconds: dict[str, float]
    peak: dict[str, int]
    loss_error: float


class Trainer:
    """A module, its compiled forward, its optimizer."""

    def __init__(self, model: Model, size: Size, compile_: Callable[[Any], Any], device: str = "cpu") -> None:
        module = without_dropout(model.build(size)).to(device)
        self.forward = compile_(module)
        self.optimizer = torch.optim.SGD(module.parameters(), lr=_RATE)

    def step(self, **inputs: Any) -> torch.Tensor:
        """One step; the loss before it."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = torch.stack([(tensor.float() ** 2).mean() for tensor in tensors_of(self.forward(**inputs))]).sum()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def peak_bytes(run: Callable[[], Any]) -> int:
    """The most that is allocated at once while ``run`` runs, beyond what was there before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        run()
    live = most = 0
    events = [event for event in recorded.profiler.kineto_results.events() if event.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        most = max(most, live)
    return most


def measure(model: Model, size: Size, backends: list[str], rounds: int, progress: Progress) -> list[Row]:
    """All backends of one model, compiled once, then timed at every shape."""
    torch._dynamo.reset()
    trainers = {name: Trainer(model, size, BACKENDS[name]) for name in backends}
    shapes, errors, losses = TRAINING_SHAPES[model.name], {}, {}
    for shape in shapes:
        progress.say(f"{model.name}: compiling and warming up at {model.describe(shape)}")
        for name, trainer in list(trainers.items()):
            try:
                losses[name] = trainer.step(**model.inputs(shape)).item()
            except Exception as error:
                if name in (backends[0], backends[-1]):
                    raise
                del trainers[name]
                print(f"{model.name}: {name} fails at {model.describe(shape)}: {str(error).splitlines()[0]}")
        errors[shape] = abs(losses[backends[-1]] - losses[backends[0]]) / abs(losses[backends[0]])
    rows = []
    for shape in shapes:
        progress.say(f"{model.name}: {model.describe(shape)}")
        runs = {name: functools.partial(one.step, **model.inputs(shape)) for name, one in trainers.items()}
        seconds = interleaved(runs, rounds)
        for one in trainers.values():
            one.optimizer.zero_grad(set_to_none=True)  # gradients belong to the step
        rows.append(Row(model.name, shape, seconds, {n: peak_bytes(run) for n, run in runs.items()}, errors[shape]))
        progress.step()
    return rows


def ratios(rows: list[Row], what: str, backend: str, other: str) -> float | str:
    """Geometric mean of ``backend``'s figure over the other's, where there is one."""
    found = [getattr(row, what) for row in rows if other in row.seconds]
    return geometric_mean(one[backend] / one[other] for one in found) if found else "-"


def summarise(rows: list[Row], backends: list[str]) -> dict[str, dict[str, float | str]]:
    """The last backend over the others, for each model and for all."""
    *others, ours = backends
    groups = {name: [row for row in rows if row.model == name] for name in dict.fromkeys(row.model for row in rows)}
    kinds = [(what, other) for what in ("seconds", "peak") for other in others]
    return {
        name: {f"{what} over {other}": ratios(group, what, ours, other) for what, other in kinds}
        for name, group in (groups | {"all": rows}).items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(TRAINED))
    parser.add_argument("--backends", default="eager,inductor,symshape", help="the last is compared with the others")
    parser.add_argument("--size", choices=["full", "tiny"], default="full")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")

    names, backends = options.models.split(","), options.backends.split(",")
    rows: list[Row] = []
    with Progress("models", sum(len(TRAINING_SHAPES[name]) for name in names)) as progress:
        for name in names:
            rows += measure(TRAINED[name], options.size, backends, options.rounds, progress)
            if options.out:  # after each model, since all of them take long
                write_result(options.out, "models", [asdict(row) for row in rows], ratios=summarise(rows, backends))
    ours = backends[-1]
    print(heading("milliseconds and megabytes per step"))
    body = [
        [
            r.model,
            "x".join(map(str, r.shape)),
            *(1e3 * r.seconds[b] if b in r.seconds else "-" for b in backends),
            *(r.peak[b] / 1e6 if b in r.peak else "-" for b in backends),
            r.loss_error,
        ]
        for r in rows
    ]
    print(table(["model", "shape", *backends, *(f"{b}: MB" for b in backends), "loss error"], body))
    summary = summarise(rows, backends)
    print(heading(f"{ours} over the others, geometric means over shapes (below 1 is better)"))
    print(table(["model", *summary["all"]], [[name, *values.values()] for name, values in summary.items()]))


if __name__ == "__main__":
    main()
