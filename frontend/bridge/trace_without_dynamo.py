"""Tracing without Dynamo, for ``symshape.jit``."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
import torch.utils._device as device_modes
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx import traceback as node_meta
from torch.fx.experimental.proxy_tensor import (
    TorchFunctionMetadataMode,
    _temp_remove_metadata_torch_function_mode,
)

from symshape.frontend.bridge.aot_autograd import partition_after, without_donations
from symshape.frontend.bridge.errors_of_traced_calls import eager_error_of
from symshape.frontend.bridge.general_shape_env import trace_with_retry
from symshape.frontend.bridge.guards import deferred_runtime_asserts
from symshape.frontend.bridge.leaked_tensors import TracedTensors
from symshape.frontend.bridge.shape_env import source_name
from symshape.frontend.bridge.size_cache import start_caching
from symshape.frontend.bridge.source_lines import user_frame_now
from symshape.frontend.bridge.tracing_errors import is_data_dependent_error


def is_seen_by_others(values: Sequence[Any]) -> bool:
    """Whether a call with these values is part of what somebody else traces or transforms: what would be compiled for
    it would be no part of that."""
    if torch._C._len_torch_dispatch_stack() or torch._C._get_tracing_state() is not None:
        return True
    if torch.fx._symbolic_trace.is_fx_symbolic_tracing() or torch._C._functorch.peek_interpreter_stack() is not None:
        return True
    return forward_ad._current_level >= 0 or _has_users_mode() or any(map(_is_stand_in, values))


def _has_users_mode() -> bool:
    """Whether a function mode is active that is no default device."""
    count = torch._C._len_torch_function_stack()
    return count > 1 or count == 1 and device_modes.CURRENT_DEVICE is None


def _is_stand_in(value: Any) -> bool:
    """Whether a value is a fake tensor or symbol of a trace, or a tensor of a functorch transform, or one without
    data."""
    if not isinstance(value, torch.Tensor):
        return isinstance(value, (torch.fx.Proxy, torch.SymInt, torch.SymFloat, torch.SymBool))
    kinds = (FakeTensor, FunctionalTensor)
    return isinstance(value, kinds) or value.is_meta or torch._C._functorch.is_functorch_wrapped_tensor(value)


def guards_are_ours(env: Any) -> bool:
    """Whether compiled code itself must check the guards of a ShapeEnv (not Dynamo): it was made by ``Trace``."""
    return isinstance(env, _shape_env_class()) if env is not None else False


def _check_message() -> str:
    """The message of the ``torch._check`` that is being evaluated."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "_check_with" and frame.f_globals.get("__name__") == "torch":
            message = frame.f_locals.get("message")
            return str(message()) if callable(message) else ""
        frame = frame.f_back
    return ""


def reads_check_message(frame: Any) -> bool:
    """Whether ``frame`` runs for the message of a ``torch._check`` that has not failed: it keeps the symbols, whose
    numbers are known when it fails."""
    while frame is not None:
        if frame.f_code is _check_message.__code__:
            return True
        frame = frame.f_back
    return False


@functools.cache
def _shape_env_class() -> type:
    from symshape.frontend.bridge.general_shape_env import GeneralShapeEnv

    class GuardedShapeEnv(GeneralShapeEnv):
        """Places everything at the user's line, and keeps the messages of assertions."""

        def _get_user_frame(self) -> Any:
            return user_frame_now()

        def guard_or_defer_runtime_assert(  # type: ignore[override]
            self, orig_expr: Any, msg: str, fx_node: Any = None
        ) -> bool:
            frame = user_frame_now()
            line = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else ""
            return super().guard_or_defer_runtime_assert(orig_expr, f"{line}\n{_check_message()}", fx_node)

    return GuardedShapeEnv


Replaced = Callable[[Any, Any, Any], Any]


class _UserLines(TorchFunctionMetadataMode):
    """A dispatch mode that gives every traced operation the user's line, and detects reads of storage offsets.

    Derived from a class that PyTorch removes from the mode stack while Dynamo traces the function of a higher-order
    operator, and restores to run the result (``torch._higher_order_ops.utils.setup_compilation_env``).
    """

    reads_offset = False

    def __init__(self, env: Any, replaced: Replaced) -> None:  # the base class keeps a tracer of its own
        self.env, self.replaced = env, replaced
        self.inner: Any = None  # the tracer's mode of this class: PyTorch takes off only one
        self.made = TracedTensors()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.reads_offset = self.reads_offset or func in _OFFSET_READERS
        frame = user_frame_now()
        if frame is not None:
            line = f'  File "{frame.f_code.co_filename}", line {frame.f_lineno}, in {frame.f_code.co_name}\n'
            node_meta.set_stack_trace([line])
        kwargs = kwargs or {}
        traced = self.replaced(func, args, kwargs)
        try:
            if self.inner is not None and traced is func:
                result = self.inner.__torch_function__(func, types, args, kwargs)
            else:
                result = trace_with_retry(self.env, lambda: traced(*args, **kwargs))
        except Exception as error:
            found = None if is_data_dependent_error(error) else eager_error_of(error, func, args, kwargs)
            if found is None:
                raise
            raise found from error
        self.made.add(result)
        return result


_OFFSET_READERS = frozenset(
    {
        torch.Tensor.storage_offset,
        torch.as_strided,
        torch.Tensor.as_strided,
        torch.Tensor.untyped_storage,
        torch.Tensor.storage,
        torch.Tensor.set_,
        torch.Tensor.data_ptr,
    }
)


class Trace:
    """One trace of a function over fake tensors: symbols for the inputs' dynamic sizes, then AOTAutograd.

    Equal sizes get different symbols (no duck shaping); integers 0 and 1 are constants. ``replaced``: maps a function
    of PyTorch and its arguments to the function that is traced instead.
    """

    def __init__(self, replaced: Replaced) -> None:
        from torch._guards import TracingContext
        from torch._subclasses.fake_tensor import FakeTensorMode

        self.env: Any = _shape_env_class()(duck_shape=False)
        start_caching(self.env)
        self.mode = FakeTensorMode(shape_env=self.env, allow_non_fake_inputs=True)
        self.context = TracingContext(self.mode)
        self.lines = _UserLines(self.env, replaced)

    def tensor(self, value: torch.Tensor, name: str, dims: Sequence[tuple[int, int | None] | None]) -> torch.Tensor:
        """A fake tensor for an input. ``dims``: the inclusive range of each dynamic dim (None: no upper bound), None
        for a static one."""
        from torch._dynamo.source import ConstantSource
        from torch._subclasses.fake_tensor import FakeTensorConverter
        from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

        # Each input is traced as a tensor of its own: no view, and in no memory that another one is in. Where that
        # matters, the entry is not used for inputs that share memory (``changed``).
        value = value.data.requires_grad_(value.requires_grad)
        self.mode.fake_tensor_converter = FakeTensorConverter(copy_data=False, export=False)
        if all(dim is None for dim in dims) and value.is_contiguous():
            return self.mode.from_tensor(value, static_shapes=True, source=ConstantSource(name))
        context: Any = StatelessSymbolicContext(
            dynamic_sizes=[DimDynamic.STATIC if dim is None else DimDynamic.DYNAMIC for dim in dims],
            constraint_sizes=[None if dim is None else _range(*dim) for dim in dims],
        )
        return self.mode.from_tensor(value, source=ConstantSource(name), symbolic_context=context)

    def integer(self, value: int, name: str, low: int, high: int | None) -> Any:
        """A SymInt for an integer argument; an int for 0 and 1."""
        from torch._dynamo.source import ConstantSource
        from torch.fx.experimental.symbolic_shapes import DimDynamic

        source = ConstantSource(name)
        symbol = self.env.create_symbol(
            value, source=source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=_range(low, high), positive=None
        )
        made = self.env.create_symintnode(symbol, hint=value, source=source)
        return made if isinstance(made, torch.SymInt) and made.node.expr.free_symbols else value

    def name(self, size: Any, name: str) -> None:
        """Gives a symbolic size a name for messages (``Origin.parse``)."""
        from torch._dynamo.source import ConstantSource

        for symbol in size.node.expr.free_symbols if isinstance(size, torch.SymInt) else ():
            sources = self.env.var_to_sources[symbol]
            sources.insert(0, ConstantSource(f"{name}: {source_name(sources[0])}"))

    def run(
        self,
        module: Any,
        inputs: Sequence[Any],
        *,
        forward: Any,
        backward: Any,
        inference: Any,
        joint: Any,
        splitting: Any,
        decompositions: Any,
        parameters: Iterable[int],
    ) -> Any:
        """The compiled function of the list of flat inputs, which it empties. ``module``, an nn.Module without
        parameters and buffers, takes them one by one and returns a tuple of tensors and SymInts. ``joint`` and
        ``splitting``: as for ``aot_compile``; ``decompositions``: by operator; ``parameters``: as for
        ``partition_after``."""
        from torch._functorch.aot_autograd import aot_module_simplified
        from torch._guards import tracing

        with tracing(self.context):
            by_arguments: Any = aot_module_simplified(
                module,
                inputs,
                fw_compiler=forward,
                bw_compiler=without_donations(backward),
                inference_compiler=inference,
                decompositions=decompositions,
                partition_fn=partition_after(joint, splitting, parameters),
            )
        return by_arguments.__wrapped__  # it makes a list of parameters, of which there are none, and arguments

    def with_lines(self, fn: Callable[[], Any]) -> Any:
        """Calls the user's function; traced operations get its lines."""
        with node_meta.preserve_node_meta(), _temp_remove_metadata_torch_function_mode() as self.lines.inner:
            with self.lines:
                return fn()

    @property
    def changed(self) -> tuple[int, ...]:
        """Positions of the inputs that the traced function writes to."""
        metadata = self.context.fw_metadata
        assert metadata is not None
        return tuple(metadata.mutated_inp_runtime_indices)

    def condition(self, expr: Any) -> torch.SymBool:
        """A SymBool for a condition over the trace's symbols."""
        made: torch.SymBool = self.env.create_symboolnode(expr)
        return made

    def deferred(self) -> list[tuple[Any, str, str]]:
        """Assertions on data-dependent sizes, in order: (sympy condition, message, ``file:line``)."""
        found = []
        for condition, packed in deferred_runtime_asserts(self.env):
            line, _, message = packed.partition("\n")
            found.append((condition, message, line))
        return found


def _range(low: int, high: int | None) -> Any:
    from torch.fx.experimental.symbolic_shapes import StrictMinMaxConstraint
    from torch.utils._sympy.numbers import int_oo
    from torch.utils._sympy.value_ranges import ValueRanges

    return StrictMinMaxConstraint(vr=ValueRanges(low, int_oo if high is None else high), warn_only=False)
