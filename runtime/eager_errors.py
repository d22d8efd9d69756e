"""Raises eager mode's error: when a call fails, its graph is run op by op to find it.

The type of an error (IndexError, ValueError, RuntimeError) and its text are decided by each operator of PyTorch;
compiled code only detects that a size or an index is invalid. A failing call may be slow, and has not changed its
inputs. On a GPU an index out of range would end the process in eager mode, so compiled code's errors are raised there;
on a CPU the same holds for invalid offsets of rows, with which PyTorch's operators read out of bounds.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from symshape.errors import OffsetsError, with_text
from symshape.runtime.torch_c import (
    active_fake_mode,
    dispatch_modes,
    expects_fake_results,
    is_differentiating_forward,
    user_lines,
)

# In a node's ``meta``: what eager mode calls in the place of the node's function; None if it does nothing there.
EAGER_FORM = "symshape_eager_form"
_OURS = "Runtime assertion failed"  # the tracer's words for what it asserts of sizes itself


def with_eager_errors(run: Callable[..., Any], gm: torch.fx.GraphModule) -> Callable[..., Any]:
    """``run``, compiled from a Dynamo graph, with its errors; it is called with the graph's inputs. Under a
    FakeTensorMode or a ``dual_level``, which Dynamo's guards do not see, the graph itself: what ``run`` allocates has
    no memory there, or no tangent. Not where DDP asks ``run`` for fake results while it compiles the parts of a
    graph."""

    def call(*args: Any) -> Any:
        if is_differentiating_forward():
            return gm(*args)
        if dispatch_modes() and active_fake_mode() is not None and not expects_fake_results():
            return gm(*args)
        try:
            return run(*args)
        except (RuntimeError, IndexError) as error:
            found = error_instead(error, args, lambda *copies: _replayed(gm, copies))
            if found is None:
                raise
            raise found from error

    return call


def _replayed(gm: torch.fx.GraphModule, args: tuple[Any, ...]) -> None:
    """Runs the graph; an error has the user's line."""
    replay = _Replay(gm)
    try:
        replay.run(*args)
    except Exception as error:
        for file, line in replay.lines[-1:]:
            error.add_note(f"  at: {with_text(f'{file}:{line}')}")
        raise


class NoError(Exception):
    """Eager mode runs a call that cannot be traced."""


def error_instead(
    error: Exception, args: Sequence[Any], run: Callable[..., object], *, traced: bool = False
) -> Exception | None:
    """The error of eager mode that replaces ``error``, which a call has raised for ``args``; None if the type is right
    already. ``run`` is the call in eager mode, and gets copies. ``traced``: the error is one of a trace; the type alone
    is not enough then, and NoError is raised if eager mode raises none."""
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    if isinstance(error, (torch.OutOfMemoryError, OffsetsError)) or any(t.device.type != "cpu" for t in tensors):
        return None
    with torch.set_grad_enabled(traced and torch.is_grad_enabled()), torch.random.fork_rng(devices=[]), _silent(traced):
        try:
            run(*(copy_of_input(a, traced) if isinstance(a, torch.Tensor) else a for a in args))
        except Exception as found:  # noqa: BLE001 - whatever eager mode raises
            same = isinstance(error, type(found)) and (not traced or str(error) == str(found))
            return None if same or _has_no_rule(found) else found.with_traceback(None)
    if traced:
        raise NoError
    return None


@contextlib.contextmanager
def _silent(traced: bool) -> Iterator[None]:
    """A trace has given the warnings already."""
    with warnings.catch_warnings():
        if traced:
            warnings.simplefilter("ignore")
        yield


def copy_of_input(x: torch.Tensor, differentiated: bool) -> torch.Tensor:
    """A copy; with ``differentiated``, as much of a leaf as ``x``, and with its ``requires_grad``."""
    if not (differentiated and x.requires_grad):
        return copy_of_tensor(x)
    leaf = copy_of_tensor(x).requires_grad_()
    return leaf if x.is_leaf else leaf.clone()


def _has_no_rule(error: Exception) -> bool:
    """Whether an error only says that eager mode lacks an operator for nested tensors, which compiled code has."""
    return isinstance(error, NotImplementedError) and any(isinstance(one, torch._ops.OpOverload) for one in error.args)


def copy_of_tensor(x: torch.Tensor) -> torch.Tensor:
    """A copy with the same layout, in new memory; a leaf for autograd."""
    if x.layout != torch.strided:
        return x.detach().clone()
    extent = 1 + sum((size - 1) * stride for size, stride in zip(x.size(), x.stride())) if x.numel() else 0
    memory = x.detach().as_strided((extent,), (1,)).clone()
    return memory.as_strided(x.size(), x.stride(), 0)


class _Replay(torch.fx.Interpreter):
    """Runs a graph without the assertions on sizes that tracing added: eager mode has none."""

    def __init__(self, gm: torch.fx.GraphModule) -> None:
        super().__init__(gm)
        self.extra_traceback = False
        self.lines: list[tuple[str, int]] = []
        self.eager_form: Any = None

    def run_node(self, n: torch.fx.Node) -> Any:
        if n.meta.get(EAGER_FORM, n) is None or _OURS in str(n.args[1:2]):
            return None
        self.lines = user_lines(n)
        self.eager_form = n.meta.get(EAGER_FORM)
        return super().run_node(n)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        return super().call_function(self.eager_form or target, args, kwargs)
