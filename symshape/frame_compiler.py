"""Frames that Dynamo compiles for ``symshape.compile``: with the changes of PyTorch that are made for them in force."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

import torch._dynamo.config
from torch._dynamo.code_context import code_context
from torch._dynamo.convert_frame import CatchErrorsWrapper
from torch._dynamo.exc import TorchDynamoException

from symshape.errors import OptionError
from symshape.frontend.opaque_calls.selection import Place, compile_with_breaks
from symshape.frontend.patches.dynamo_errors import raised_by_patch, users_error
from symshape.frontend.patches.patch import Scope
from symshape.frontend.patches.registry import in_force
from symshape.frontend.patches.settings import DYNAMO, MORE_SETTINGS, Change, configured


def compile_with(
    fn: Any,
    backend: Any = "symshape",
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    tracing: Tracing | None = None,
    **habits: Any,
) -> Any:
    """``torch.compile(fn, backend=backend)`` with the changes of a frame in force whenever it compiles.

    ``habits``: what else ``torch._dynamo.optimize`` takes. OptionError for what this
    version of PyTorch does not know.
    """
    for name in habits:
        if not is_known(name):
            raise OptionError(f"PyTorch {torch.__version__} has no {name}", next_step=f"leave {name} out")
    tracing = replace(tracing or Tracing(), more="static" if dynamic is False else "", one_graph=fullgraph)
    return _compiled(fn, backend, tracing, habits)


def compile_apart(fn: Any, backend: Any, tracing: Tracing) -> Any:
    """``fn`` compiled beside all other code of it: neither uses that of the other, and no limit counts."""
    habits = {"isolate_recompiles": True} if is_known("isolate_recompiles") else {}
    return _compiled(fn, backend, replace(tracing, more="unlimited"), habits)


def is_known(name: str) -> bool:
    """Whether this version of PyTorch has an argument of ``torch.compile``."""
    return name in inspect.signature(torch._dynamo.eval_frame._optimize).parameters


@dataclass(frozen=True)
class Tracing:
    """How frames are traced. ``probe``: operators without a fake rule are run on made-up operands; ``strict``: an error
    of ours while tracing is an error; ``more``: a key of ``MORE_SETTINGS``; ``one_graph``: a break is an error."""

    probe: bool = True
    strict: bool = True
    more: str = ""
    one_graph: bool = False


def _compiled(fn: Any, backend: Any, tracing: Tracing, habits: dict[str, Any]) -> Any:
    context: Any = torch._dynamo.optimize(backend, nopython=tracing.one_graph, **habits)
    if hasattr(context, "callback"):  # not when Dynamo is switched off
        context.callback = FrameCompiler(context.callback, tracing)
    return context(fn)


_APART = "symshape: compiled apart"  # in what Dynamo keeps for a code object, until it is reset: how often


def _may_be_this_ranks_alone(error: BaseException) -> bool:
    from symshape.fallbacks import is_local, several_ranks

    return several_ranks() and is_local(error)


class FrameCompiler(CatchErrorsWrapper):
    """What Dynamo calls for a frame that it has no code for. It stands where Dynamo's own does (not around it: some
    stances of ``torch.compiler.set_stance`` look for the backend two steps below), and is pickled and copied like it.
    """

    def __init__(self, usual: CatchErrorsWrapper, tracing: Tracing) -> None:
        super().__init__(usual._torchdynamo_orig_backend, usual.hooks)
        self._tracing = tracing
        self._breaks: dict[Place, str] = {}

    def __call__(self, frame: Any, cache_entry: Any, frame_state: Any) -> Any:
        usual = functools.partial(super().__call__, frame, cache_entry, frame_state)
        before = sys.exception()
        more = (*MORE_SETTINGS[self._tracing.more], *self._limits(frame.f_code))
        try:
            return self._traced(usual, more, patched=True)
        except TorchDynamoException as error:
            found = users_error(error, before)
            if found is not None:
                raise found from None
            if self._tracing.strict or not raised_by_patch(error) or _may_be_this_ranks_alone(error):
                raise
            return self._traced_by_usual_rules(usual, more, error)

    def _traced(self, usual: Callable[[], Any], more: Sequence[Change], patched: bool) -> Any:
        with in_force(Scope("frame", run_operators=self._tracing.probe, only_settings=not patched), more):
            return compile_with_breaks(usual, self._breaks, self._tracing.one_graph)

    def _traced_by_usual_rules(
        self, usual: Callable[[], Any], more: Sequence[Change], error: TorchDynamoException
    ) -> Any:
        """Where a change of PyTorch's rules fails, the frame is traced without any; said once."""
        from symshape.fallbacks import say
        from symshape.tools.report import Fallback

        try:
            traced = self._traced(usual, more, patched=False)
        except Exception:
            raise error from None
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        say((Fallback("trace", reason, "a function was traced by PyTorch's own rules"),), "traced")
        return traced

    def _limits(self, code: CodeType) -> tuple[Change, ...]:
        """What was compiled apart of a function stays beside the rest of its code, and does not count for that."""
        if self._tracing.more == "unlimited":
            context = code_context.get_context(code)
            context[_APART] = context.get(_APART, 0) + 1
            return ()
        apart = code_context.get_context(code).get(_APART, 0) if code_context.has_context(code) else 0
        limit = torch._dynamo.config.accumulated_recompile_limit
        return (configured(DYNAMO, accumulated_recompile_limit=limit + apart),) if apart else ()
