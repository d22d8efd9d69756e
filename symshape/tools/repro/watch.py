"""Failures of graphs while a program runs, each written as a file: ``TORCHDYNAMO_REPRO_AFTER=dynamo`` or ``aot``."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from symshape.errors import AccuracyError, CompileError
from symshape.fallbacks import USER_ERRORS, causes_of, heard
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
from symshape.tools.repro.source import How, compiled_text, file_text

log = logging.getLogger("symshape.repro")
_ALWAYS, _ACCURACY = 3, 4  # levels


@dataclass(frozen=True)
class Watched:
    """A graph, as it was before it was compiled. ``key``: of fake values in ``meta``; ``entry``: what compiles it."""

    gm: torch.fx.GraphModule
    key: str
    options: Options
    entry: str

    @property
    def grad(self) -> bool:
        """Whether gradients are computed: of Dynamo's graphs; AOTAutograd's are forward or backward."""
        return self.key == "example_value"

    def write(self, error: str, given: Sequence[Any] | None = None) -> None:
        """``given``: the inputs of the call that failed. What cannot be written is said, and is no error."""
        try:
            first = values_at(self.gm, self.key, given) if given is not None else None
            found = read_graph(self.gm, self.key, shape_env_of(self.gm, self.key), first)
            compiled = compiled_text(self.entry, self.options)
            how = How(self.entry, error, repro_level() == _ACCURACY, self.grad, compiled)
            text = file_text(found.module, found.arguments, found.sizes, how)
            file = _new_file(repro_folder())
            file.write_text(text, encoding="utf-8")
        except Exception as reason:  # noqa: BLE001 - the program's own error matters more
            log.warning("no file shows this failure again: %s: %s", type(reason).__name__, reason)
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
    """A graph that is about to be compiled, which changes it."""
    return Watched(copied(gm), key, options, entry)


def refuse_comparison() -> None:
    """CompileError for the compile by which PyTorch would compare numbers, which makes all sizes constants; it takes
    the error for no difference. Ours are compared when the graph is called."""
    if is_compiled_again() and repro_level() == _ACCURACY:
        raise CompileError("numbers are compared when the graph is called, not while it is traced")


def compile_watched(graph: Watched, compile_: Callable[[], Any]) -> Any:
    """``compile_()``; what it raises, and what it falls back for, is written."""
    if repro_level() == _ALWAYS:
        graph.write("It was written before it was compiled.")
    with heard() as fallbacks:
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
    """Whether it is one of ours: not the user's own, and no way to go on, of Dynamo's or ours."""
    others = (*USER_ERRORS, Reanalyse)
    return not any(isinstance(one, others) or is_control_flow(one) for one in causes_of(error))


def run_watched(graph: Watched, run: Callable[..., Any], *, boxed: bool) -> Callable[..., Any]:
    """``run``, whose failing calls are written; with level 4 also those with other numbers than eager mode's, which
    raise AccuracyError. ``boxed``: it takes all inputs in one list, which it clears."""

    def call(*args: Any) -> Any:
        if not boxed and any(isinstance(one, torch.SymInt) for one in args):
            # PyTorch's own search for failures, while it traces.
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
    """A compiled graph as a module: PyTorch's own search for failures asks what it runs for its parameters."""

    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__()
        self.run = run

    def forward(self, *args: Any) -> Any:
        return self.run(*args)


def _compare(graph: Watched, run: Callable[..., Any], given: Sequence[Any], boxed: bool) -> None:
    """Runs both on copies, with the same random numbers. What only one of them raises is not for here."""
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
    """Tensors with the same numbers, in memory of their own, in the same layout."""
    return [
        copy_of_tensor(one).requires_grad_(one.requires_grad) if isinstance(one, torch.Tensor) else one for one in given
    ]
