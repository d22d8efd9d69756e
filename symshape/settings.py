"""The settings of torch.compile that give the fewest graphs, for any backend.

They are in force only while a frame of ours is being compiled: nothing global changes for other users of torch.compile
in the same process, and a call of what is compiled pays nothing for them.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import CodeType, TracebackType
from typing import Any

import torch._dynamo.config
import torch.fx.experimental._config
from torch._dynamo.code_context import code_context
from torch._dynamo.convert_frame import CatchErrorsWrapper, compile_lock
from torch._dynamo.exc import TorchDynamoException

from symshape.errors import OptionError
from symshape.frontend.bridge.torch_private import views_by_strides
from symshape.frontend.bridge.torch_tracing import compiled_functions_are_inlined
from symshape.frontend.bridge.torch_unbacked import (
    checks_of_layers_at_call_time,
    class_counts_are_traced,
    items_are_unbacked,
    masks_are_not_looked_at,
    results_of_branches_are_merged,
    small_sizes_are_traced,
)
from symshape.frontend.decompositions.data_dependent import traceable_sizes
from symshape.frontend.decompositions.fake_rules import missing_fake_rules
from symshape.frontend.opaque_calls.frame_decisions import FrameDecisions, compile_with_decisions
from symshape.frontend.opaque_calls.inferred_rules import rules_are_inferred
from symshape.frontend.opaque_calls.selection import opaque_where_needed
from symshape.frontend.patches.broadcasting import broadcast_at_call_time
from symshape.frontend.patches.checkpoints import checkpoints_as_in_eager_mode
from symshape.frontend.patches.convolution_layouts import layouts_of_convolutions
from symshape.frontend.patches.data_parallel import module_of_data_parallel_is_traced
from symshape.frontend.patches.dynamo_errors import raised_by_patch, users_error
from symshape.frontend.patches.input_views import views_of_inputs
from symshape.frontend.patches.lazy_modules import lazy_modules_are_initialised
from symshape.frontend.patches.size_reads import read_sizes_at_once
from symshape.frontend.patches.storage_offsets import storage_offsets_are_traced
from symshape.frontend.patches.torch_checks import checks_are_constraints
from symshape.frontend.patches.trace_messages import messages_are_traced


@dataclass(frozen=True)
class Setting:
    """One entry of a PyTorch configuration module, and why it is set."""

    module: Any
    name: str
    value: bool
    why: str


FEWEST_GRAPHS: tuple[Setting, ...] = (
    Setting(
        torch.fx.experimental._config,
        "use_duck_shape",
        False,
        "two sizes that happen to be equal at the first call would become one symbol, and a guard on their equality",
    ),
    Setting(
        torch._dynamo.config,
        "assume_static_by_default",
        False,
        "dynamic sizes; `dynamic=True` sets and reverts it at every call, which takes 5 us",
    ),
    Setting(torch._dynamo.config, "capture_scalar_outputs", True, "item() would break the graph"),
    Setting(torch._dynamo.config, "capture_dynamic_output_shape_ops", True, "nonzero() and the like would break it"),
    Setting(torch._dynamo.config, "use_numpy_random_stream", True, "numpy.random would draw from PyTorch's generator"),
    Setting(torch._dynamo.config, "allow_rnn", True, "recurrent layers would break it; they are calls (recurrent.py)"),
)
# Besides these, a view's layout is traced by the rule of eager mode, which looks at strides alone (`views_by_strides`):
# the tracer's own splits and joins dims one after the other, and guards on which size divides which.
# Left alone on purpose: `backed_size_oblivious`. It merges a batch of 1 into the graph of larger ones, but tracing then
# fails for rotary embeddings and for attention of a sequence of 1, which costs more graphs than it saves.


Change = Callable[[], Callable[[], None]]  # makes a change, and returns what reverts it
_patched = torch._dynamo.config._make_closure_patcher
# What else is in force for some compiles.
_MORE: dict[str, tuple[Change, ...]] = {
    "": (),
    "static": (_patched(assume_static_by_default=True, automatic_dynamic_shapes=False),),  # as for `dynamic=False`
    "unlimited": (_patched(recompile_limit=1 << 30, accumulated_recompile_limit=1 << 30),),
}


class InForce:
    """Context manager: every setting in force, and ``more``. ``probe``: operators without a fake rule are run on
    made-up operands. ``patched``: whether PyTorch's tracing rules are changed as well. Where a change fails, those
    before it are reverted.
    """

    def __init__(self, more: Sequence[Change] = (), probe: bool = True, patched: bool = True) -> None:
        self._more, self._probe, self._patched = more, probe, patched
        self._reverts = contextlib.ExitStack()

    def __enter__(self) -> None:
        with contextlib.ExitStack() as stack:
            for change in (*_settings(), *(self._patches() if self._patched else ()), *self._more):
                stack.callback(change())
            self._reverts = stack.pop_all()

    def _patches(self) -> list[Change]:
        return [*_PATCHES, *(functools.partial(one, self._probe) for one in (opaque_where_needed, rules_are_inferred))]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reverts.close()


@functools.cache
def _settings() -> tuple[Change, ...]:
    by_module: dict[int, tuple[Any, dict[str, bool]]] = {}
    for setting in FEWEST_GRAPHS:
        by_module.setdefault(id(setting.module), (setting.module, {}))[1][setting.name] = setting.value
    return tuple(module._make_closure_patcher(**values) for module, values in by_module.values())


# Changes of PyTorch's tracing rules.
_PATCHES: tuple[Change, ...] = (
    views_by_strides,
    items_are_unbacked,
    traceable_sizes,
    broadcast_at_call_time,
    checks_of_layers_at_call_time,
    small_sizes_are_traced,
    read_sizes_at_once,
    lazy_modules_are_initialised,
    masks_are_not_looked_at,
    messages_are_traced,
    missing_fake_rules,
    views_of_inputs,
    class_counts_are_traced,
    layouts_of_convolutions,
    results_of_branches_are_merged,
    checks_are_constraints,
    storage_offsets_are_traced,
    module_of_data_parallel_is_traced,
    compiled_functions_are_inlined,
    checkpoints_as_in_eager_mode,
)


def compile_with(
    fn: Any,
    backend: Any = "symshape",
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    tracing: Tracing | None = None,
    **habits: Any,
) -> Any:
    """``torch.compile(fn, backend=backend)`` with ``FEWEST_GRAPHS`` in force whenever it compiles.

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
    """How frames are traced. ``probe``: as for ``InForce``; ``strict``: an error of ours while tracing is an error;
    ``more``: a key of ``_MORE``; ``one_graph``: a graph break is an error."""

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
        self._decisions = FrameDecisions()

    def __call__(self, frame: Any, cache_entry: Any, frame_state: Any) -> Any:
        usual = functools.partial(super().__call__, frame, cache_entry, frame_state)
        before = sys.exception()
        more = (*_MORE[self._tracing.more], *self._limits(frame.f_code))
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
        # Another thread must not see the settings come and go.
        with compile_lock, InForce(more, self._tracing.probe, patched):
            return compile_with_decisions(usual, self._decisions, self._tracing.one_graph)

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
        return (_patched(accumulated_recompile_limit=limit + apart),) if apart else ()
