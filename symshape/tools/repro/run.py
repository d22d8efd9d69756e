"""The main program of a repro file: runs its graph in eager mode and compiled, at each of its sizes."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch.utils._pytree as pytree

from symshape.errors import AccuracyError, OptionError
from symshape.frontend.bridge.repro_settings import without_repro
from symshape.tools.reduce.comparison import differ_beyond_rounding, rounded_otherwise
from symshape.tools.repro.problem import Problem


def main(problem: Problem, argv: Sequence[str] | None = None) -> None:
    """Runs a command. ``run`` (default) raises the graph's failure, or prints that there is none; ``minify`` writes a
    file with a smaller graph whose sizes are still dynamic."""
    parser = argparse.ArgumentParser(description="A graph that failed, with dynamic sizes.")
    parser.add_argument("command", nargs="?", choices=("run", "minify"), default="run")
    parser.add_argument("-o", "--output", metavar="FILE", help="of minify (default: this file's name, with .min)")
    given = parser.parse_args(argv)
    if given.output and given.command == "run":
        raise OptionError("--output does nothing without minify", next_step="leave it out")
    with without_repro():
        if given.command == "run":
            run(problem)
            print(f"no failure at {len(problem.sizes)} sizes")
            return
        from symshape.tools.repro.minify import minify

        here = Path(sys.argv[0])
        minify(problem, Path(given.output) if given.output else here.with_name(f"{here.stem}.min{here.suffix}"))


def run(problem: Problem) -> None:
    """Raises the failure of the compiled graph, if any. RuntimeError if eager mode fails at the first sizes; other
    sizes at which it fails are skipped."""
    torch._dynamo.reset()
    compiled = problem.compiled(problem.graph)
    for position, sizes in enumerate(problem.sizes):
        try:
            wanted = results(problem, problem.graph, sizes)
        except Exception as error:
            if position == 0:
                raise RuntimeError(f"eager mode fails at {dict(sizes)}: {error}") from error
            continue  # these sizes violate assumptions under which the graph was traced
        found = results(problem, compiled, sizes)
        rounded = functools.partial(results, problem, problem.graph, sizes, rounded_otherwise)
        if problem.accuracy and (difference := differ_beyond_rounding(found, wanted, rounded)):
            raise AccuracyError(
                f"the compiled graph computes other numbers than eager mode: {difference}",
                where=f"sizes {dict(sizes)}",
                next_step="run this file with minify, or see docs/how-to/wrong-result.md",
            )


def results(
    problem: Problem, fn: Any, sizes: Mapping[str, int], change: Callable[[Any], Any] = lambda x: x
) -> list[Any]:
    """The outputs of ``fn`` at these sizes, followed by gradients of the arguments that require them. ``change`` is
    applied to each argument first."""
    torch.manual_seed(0)
    return outputs(fn, list(map(change, problem.inputs(sizes))), grad=problem.grad)


def outputs(fn: Any, arguments: Sequence[Any], *, grad: bool) -> list[Any]:
    """All outputs of a function, and gradients of their randomly weighted sum (those of a plain sum are often 0)."""
    with torch.set_grad_enabled(grad):
        found = pytree.tree_leaves(fn(*arguments))
        summed = [one for one in found if isinstance(one, torch.Tensor) and one.requires_grad]
        wanted = [one for one in arguments if isinstance(one, torch.Tensor) and one.requires_grad]
        plain = [one.detach().clone() if isinstance(one, torch.Tensor) else one for one in found]
        if not grad or not summed or not wanted:
            return plain
        generator = torch.Generator().manual_seed(0)
        total = torch.stack([_weighted(one, generator) for one in summed]).sum()
        return [*plain, *torch.autograd.grad(total, wanted, allow_unused=True)]


def _weighted(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    real = torch.view_as_real(x) if x.is_complex() else x
    return (real * torch.rand(real.shape, generator=generator).to(real)).sum().to("cpu", torch.float64)
