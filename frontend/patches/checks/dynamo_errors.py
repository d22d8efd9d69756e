"""Lets errors meant for the user pass through Dynamo unchanged. Dynamo wraps errors of a backend in
BackendCompilerFailed and errors of tracing in TorchRuntimeError, which ``except symshape.ShapeConstraintError`` would
not catch.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

from torch._dynamo.exc import InternalTorchDynamoError, ShortenTraceback, TorchDynamoException, TorchRuntimeError

from symshape.errors import ContradictionError, OptionError, PatchError, ShapeConstraintError, SymshapeError
from symshape.frontend.bridge.tracing_errors import MistakenCall, RefusedCall

USERS = (OptionError, ShapeConstraintError, ContradictionError, PatchError)
_SAID = ("what", "where", "next_step", "constraint", "values", "reasons")
P = ParamSpec("P")
R = TypeVar("R")


def passing_dynamo(backend: Callable[P, R]) -> Callable[P, R]:
    """Wraps a backend so that errors meant for the user keep their type."""

    @functools.wraps(backend)
    def compile_graph(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return backend(*args, **kwargs)
        except USERS as error:
            raise passing(error) from error

    return compile_graph


def passing(error: SymshapeError) -> Exception:
    """The error as a subclass that Dynamo does not wrap; Dynamo adds the user's line to its text."""
    kind: Any = type(error)
    return _restored(_passing_kind(kind), error.args, vars(ShortenTraceback(first_useful_frame=None)) | vars(error))


@functools.cache
def _passing_kind(kind: Any) -> Any:
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__reduce__": _reduce, "kind": kind}
    return type(kind.__name__, (kind, ShortenTraceback), names)


def _reduce(error: Any) -> Any:
    """Pickles and copies as the public class."""
    return _restored, (error.kind, error.args, {k: v for k, v in vars(error).items() if k in _SAID})


def _restored(kind: Any, args: Any, state: Any) -> Exception:
    made: Exception = kind.__new__(kind, *args)
    made.__dict__.update(state)
    return made


def users_error(error: BaseException, before: BaseException | None) -> SymshapeError | None:
    """The error meant for the user that caused an error of Dynamo, or None.

    ``before``: the exception being handled when Dynamo was called; it is in the chain, but not a cause.
    """
    for step in _causes(error, before):
        if isinstance(step, USERS) and not isinstance(step, TorchDynamoException):
            return step
    return None


def eager_error(error: BaseException, before: BaseException | None) -> Exception | None:
    """The error that eager mode has for the call that an error of Dynamo is about, or None; ``before`` as above."""
    for step in _causes(error, before):
        if isinstance(step, MistakenCall):
            return step.found
    return None


def _causes(error: BaseException, before: BaseException | None) -> Iterator[Exception]:
    seen: set[int] = set()
    step: BaseException | None = error
    while isinstance(step, Exception) and step is not before and id(step) not in seen:
        yield step
        seen.add(id(step))
        step = step.__cause__ or step.__context__


def eager_error_passing(found: Exception) -> Exception:
    """An error of eager mode's as one that Dynamo does not wrap. Where the user called Dynamo it is ``found`` itself,
    where compiled code did, after a graph break, of a subclass of its type."""
    kind: Any = type(found)
    state = vars(ShortenTraceback(first_useful_frame=None)) | {"found": found}
    return _restored(_eager_kind(kind), found.args, state)


@functools.cache
def _eager_kind(kind: Any) -> Any:
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    methods: dict[str, Any] = {"remove_dynamo_frames": _found, "__str__": lambda self: str(self.found)}
    return type(kind.__name__, (ShortenTraceback, kind), names | methods)


def _found(self: Any) -> Exception:
    """What ``torch.compile`` raises in place of this error, to whose text Dynamo adds."""
    error: Exception = self.found
    return error


def raised_by_patch(error: BaseException) -> bool:
    """Whether a patch may be the reason why tracing failed: Dynamo met an internal error, or a function of symshape
    that replaces an operator raised."""
    if isinstance(error, InternalTorchDynamoError):
        return True
    if isinstance(error, TorchDynamoException) and not isinstance(error, TorchRuntimeError):
        return False
    chain: list[BaseException] = []
    step: BaseException | None = error
    while step is not None and step not in chain:
        chain.append(step)
        step = step.__cause__ or step.__context__
    if any(isinstance(one, RefusedCall) for one in chain):  # others repeat it, with its traceback
        return False
    for one in chain:
        frames = [frame for frame, _ in traceback.walk_tb(one.__traceback__)]
        if frames and str(frames[-1].f_globals.get("__name__", "")).partition(".")[0] == "symshape":
            return True
    return False
