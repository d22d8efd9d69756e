"""The settings of torch.compile that give the fewest graphs, for any backend.

They are in force only while a frame of ours is being compiled: nothing global changes for other users of torch.compile
in the same process, and a call of what is compiled pays nothing for them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch._dynamo.config
import torch.fx.experimental._config
from torch._dynamo.convert_frame import compile_lock

from symshape.runtime.broadcasting import broadcast_at_call_time
from symshape.runtime.convolution_layouts import layouts_of_convolutions
from symshape.runtime.data_dependent import traceable_sizes
from symshape.runtime.fake_rules import missing_fake_rules
from symshape.runtime.inferred_rules import rules_are_inferred
from symshape.runtime.input_views import views_of_inputs
from symshape.runtime.lazy_modules import lazy_modules_are_initialised
from symshape.runtime.messages import messages_are_traced
from symshape.runtime.size_reads import read_sizes_at_once
from symshape.runtime.torch_private import views_by_strides
from symshape.runtime.torch_unbacked import (
    checks_of_layers_at_call_time,
    class_counts_are_traced,
    items_are_unbacked,
    masks_are_not_looked_at,
    small_sizes_are_traced,
)
from symshape.runtime.wholes import Place, compile_with_breaks, whole_where_needed


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
    Setting(torch._dynamo.config, "allow_rnn", True, "recurrent layers would break it; they are calls (recurrent.py)"),
)
# Besides these, a view's layout is traced by the rule of eager mode, which looks at strides alone (`views_by_strides`):
# the tracer's own splits and joins dims one after the other, and guards on which size divides which.
# Left alone on purpose: `backed_size_oblivious`. It merges a batch of 1 into the graph of larger ones, but tracing then
# fails for rotary embeddings and for attention of a sequence of 1, which costs more graphs than it saves.


class InForce:
    """Context manager: every setting in force. ``probe``: operators without a fake rule are run on made-up operands."""

    def __init__(self, probe: bool = True) -> None:
        self._revert: list[Callable[[], None]] = []
        self._probe = probe

    def __enter__(self) -> None:
        self._revert = [change() for change in _changes()]
        self._revert += [whole_where_needed(self._probe), rules_are_inferred(self._probe)]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for revert in reversed(self._revert):
            revert()


@functools.cache
def _changes() -> tuple[Callable[[], Callable[[], None]], ...]:
    by_module: dict[int, tuple[Any, dict[str, bool]]] = {}
    for setting in FEWEST_GRAPHS:
        by_module.setdefault(id(setting.module), (setting.module, {}))[1][setting.name] = setting.value
    patches = [module._make_closure_patcher(**values) for module, values in by_module.values()]
    return (*patches, views_by_strides, items_are_unbacked, traceable_sizes, broadcast_at_call_time,
            checks_of_layers_at_call_time, small_sizes_are_traced, read_sizes_at_once,
            lazy_modules_are_initialised, masks_are_not_looked_at, messages_are_traced, missing_fake_rules,
            views_of_inputs, class_counts_are_traced, layouts_of_convolutions)  # fmt: skip


def compile_with(
    fn: Any, backend: Any = "symshape", *, fullgraph: bool = False, probe: bool = True, **options: Any
) -> Any:
    """``torch.compile(fn, backend=backend)`` with ``FEWEST_GRAPHS`` in force whenever it compiles. ``probe``: as for
    ``InForce``."""
    from torch._dynamo.backends.registry import lookup_backend

    compiler = lookup_backend(backend)

    def with_settings(graph: Any, inputs: Any, **kwargs: Any) -> Any:
        return compiler(graph, inputs, **kwargs, **({"options": options} if options else {}))

    with_settings.__name__ = getattr(compiler, "__name__", str(backend))  # for messages
    context: Any = torch._dynamo.optimize(with_settings, nopython=fullgraph)
    if hasattr(context, "callback"):  # not when Dynamo is switched off
        context.callback = _in_force(context.callback, fullgraph, probe)
    return context(fn)


def _in_force(compile_frame: Any, one_graph: bool, probe: bool) -> Any:
    """What Dynamo calls for a frame that it has no code for. The attribute is how it finds the backend behind it."""

    breaks: dict[Place, str] = {}

    @functools.wraps(compile_frame)
    def compile_in_force(*args: Any) -> Any:
        with compile_lock, InForce(probe):  # another thread must not see the settings come and go
            return compile_with_breaks(lambda: compile_frame(*args), breaks, one_graph)

    compile_in_force._torchdynamo_orig_backend = compile_frame  # type: ignore[attr-defined]
    return compile_in_force
