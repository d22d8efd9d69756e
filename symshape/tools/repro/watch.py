"""Writes a repro file for each failing graph of a running program: ``TORCHDYNAMO_REPRO_AFTER=dynamo`` or ``aot``."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from symshape.errors import AccuracyError, CompileError
from symshape.fallbacks import USER_ERRORS, causes_of, collected_fallbacks
from symshape.frontend.bridge.aot_autograd import takes_boxed_arguments
from symshape.frontend.bridge.dynamo import is_control_flow
from symshape.frontend.bridge.fake_tensors import shape_env_of
from symshape.frontend.bridge.repro_settings import (
    is_compiled_again,
    repro_folder,
    repro_level,
    without_repro,
)
from symshape.frontend.opaque_calls.frame_decisions import Reanalyse
from symshape.options import Options
from symshape.runtime.eager_errors import copy_of_tensor
from symshape.runtime.torch_c import first_seen
from symshape.tools.reduce.comparison import differ_beyond_rounding, rounded_otherwise
from symshape.tools.repro.from_graph import copied, read_graph, values_at
from symshape.tools.repro.run import outputs
from symshape.tools.repro.source import GraphFailure, compiled_text, file_text

log = logging.getLogger("symshape.repro")
_ALWAYS, _ACCURACY = 3, 4  # values of TORCHDYNAMO_REPRO_LEVEL


@dataclass(frozen=True)
class Watched:
    """A copy of a graph from before its compilation. ``key``: where ``meta`` has fake values; ``entry``: the public
    function that compiles."""

    gm: torch.fx.GraphModule
    key: str
    options: Options
    entry: str

    @property
    def grad(self) -> bool:
        """Whether to compute gradients: yes for Dynamo's graphs; AOTAutograd's are already forward or backward."""
        return self.key == "example_value"

    def write(self, error: str, given: Sequence[Any] | None = None) -> None:
        """Writes a repro file. ``given``: inputs of the failing call. A failure to write is logged, not raised."""
        try:
            first = values_at(self.gm, self.key, given) if given is not None else None
            found = read_graph(self.gm, self.key, shape_env_of(self.gm, self.key), first)
            compiled = compiled_text(self.entry, self.options)
            graph_failure = GraphFailure(self.entry, error, repro_level() == _ACCURACY, self.grad, compiled)
            text = file_text(found.module, found.arguments, found.sizes, graph_failure)
            file = _new_file(repro_folder())
            file.write_text(text, encoding="utf-8")
        except Exception as reason:  # noqa: BLE001 - must not replace the program's own error
            log.warning("no repro file was written: %s: %s", type(reason).__name__, reason)
        else:
            log.warning("%s shows this failure again; `python %s minify` makes it small", file, file)


def _new_file(folder: Path) -> Path:
    for number in itertools.count():
        file = folder / f"symshape_repro_{number}.py"
        try:
            file.touch(exist_ok=False)
            return file
        except FileExistsError:
            continue
    raise AssertionError


def watched(gm: torch.fx.GraphModule, key: str, options: Options, entry: str) -> Watched:
    """Copies a graph that is about to be compiled, since compilation changes it."""
    return Watched(copied(gm), key, options, entry)


def refuse_comparison() -> None:
    """Raises CompileError in the compile with which PyTorch's own accuracy check compares numbers, and which makes all
    sizes constant; PyTorch takes the error for "no difference". symshape compares when the graph is called."""
    if is_compiled_again() and repro_level() == _ACCURACY:
        raise CompileError(
            "numbers are compared when the graph is called, not while it is traced",
            next_step="call the compiled function: symshape compares there",
        )


def compile_watched(graph: Watched, compile_: Callable[[], Any]) -> Any:
    """Calls ``compile_`` and writes a repro file if it raises or falls back."""
    if repro_level() == _ALWAYS:
        graph.write("It was written before it was compiled.")
    with collected_fallbacks() as fallbacks:
        try:
            compiled = compile_()
        except Exception as error:
            if _is_failure(error):
                graph.write(f"{type(error).__name__}: {error}")
            raise
    if fallbacks:
        graph.write("\n".join(map(str, fallbacks)))
    return compiled


def _is_failure(error: BaseException) -> bool:
    """Whether an error is the compiler's failure, not the user's, nor control flow of Dynamo or symshape."""
    others = (*USER_ERRORS, Reanalyse)
    return not any(isinstance(one, others) or is_control_flow(one) for one in causes_of(error))


def run_watched(graph: Watched, run: Callable[..., Any], *, boxed: bool) -> Callable[..., Any]:
    """Wraps ``run`` to write a repro file if a call fails. At level 4 also if numbers differ from eager mode's, which
    raises AccuracyError. ``boxed``: ``run`` takes all inputs in one list and clears it."""

    def call(*args: Any) -> Any:
        if not boxed and any(isinstance(one, torch.SymInt) for one in args):
            # PyTorch's own minifier calls compiled graphs while it traces.
            return run(*(first_seen(one) if isinstance(one, torch.SymInt) else one for one in args))
        given = list(args[0]) if boxed else list(args)
        accuracy = repro_level() == _ACCURACY
        with without_repro():
            if accuracy:
                _compare(graph, run, given, boxed)
            copies = _copies(given)
            try:
                return run(*args)
            except Exception as error:
                if _is_failure(error) and _runs_in_eager_mode(graph, copies):
                    graph.write(f"{type(error).__name__}: {error}", copies)
                raise

    if not boxed:
        return _Module(call)
    takes_boxed_arguments(call)
    return call


class _Module(torch.nn.Module):
    """A compiled graph as a module, since PyTorch's own minifier asks it for parameters."""

    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__()
        self.run = run

    def forward(self, *args: Any) -> Any:
        return self.run(*args)


def _compare(graph: Watched, run: Callable[..., Any], given: Sequence[Any], boxed: bool) -> None:
    """Runs eager mode and the compiled graph on copies of the inputs, with the same random numbers, and raises
    AccuracyError if they differ. Returns silently if eager mode raises."""
    try:
        wanted = _outputs(graph, graph.gm, given)
    except Exception:  # noqa: BLE001 - the user's own
        return
    found = _outputs(graph, (lambda *args: run(list(args))) if boxed else run, given)
    if difference := differ_beyond_rounding(found, wanted, lambda: _outputs(graph, graph.gm, given, rounded_otherwise)):
        what = f"the compiled graph computes other numbers than eager mode: {difference}"
        graph.write(f"AccuracyError: {what}", given)
        raise AccuracyError(what, next_step="the log symshape.repro names a file that shows it again")


def _outputs(
    graph: Watched, fn: Callable[..., Any], given: Sequence[Any], change: Callable[[Any], Any] = lambda x: x
) -> list[Any]:
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        return outputs(fn, list(map(change, _copies(given))), grad=graph.grad and torch.is_grad_enabled())


def _runs_in_eager_mode(graph: Watched, given: Sequence[Any]) -> bool:
    try:
        _outputs(graph, graph.gm, given)
    except Exception:  # noqa: BLE001 - the user's own
        return False
    return True


def _copies(given: Iterable[Any]) -> list[Any]:
    """Copies of the inputs with equal values and layouts, in new memory."""
    return [
        copy_of_tensor(one).requires_grad_(one.requires_grad) if isinstance(one, torch.Tensor) else one for one in given
    ]
