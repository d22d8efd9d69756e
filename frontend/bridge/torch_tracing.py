"""Tracing without Dynamo, for ``symshape.jit``."""

from __future__ import annotations

import functools
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
import torch.utils._device as device_modes
import torch.utils._pytree as pytree
from torch._dynamo.convert_frame import compile_lock as compile_lock  # one lock for all that change settings
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx import traceback as node_meta
from torch.fx.experimental.proxy_tensor import (
    TorchFunctionMetadataMode,
    _temp_remove_metadata_torch_function_mode,
)

from symshape.frontend.bridge.aot_autograd import partition_after
from symshape.frontend.bridge.guards import deferred_runtime_asserts
from symshape.frontend.bridge.shape_env import source_name


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
    """A value of a trace, or a tensor of a transform or without data."""
    if not isinstance(value, torch.Tensor):
        return isinstance(value, (torch.fx.Proxy, torch.SymInt, torch.SymFloat, torch.SymBool))
    kinds = (FakeTensor, FunctionalTensor)
    return isinstance(value, kinds) or value.is_meta or torch._C._functorch.is_functorch_wrapped_tensor(value)


def guards_are_ours(env: Any) -> bool:
    """Whether nobody but us checks the guards of a ShapeEnv: it was made by ``Trace``."""
    return isinstance(env, _shape_env_class()) if env is not None else False


def _user_frame_now() -> Any:
    """The innermost frame that is neither PyTorch's nor ours."""
    frame = sys._getframe(1)
    while frame is not None and not _is_users(frame):
        frame = frame.f_back  # type: ignore[assignment]
    return frame


def user_line_now() -> str:
    """``file:line`` of the frame that is the user's; "" if there is none."""
    frame = _user_frame_now()
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""


_NOT_THE_USERS = frozenset({"torch", "symshape", "contextlib", "functools"})


def _check_message() -> str:
    """The message of the ``torch._check`` that is being evaluated."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "_check_with" and frame.f_globals.get("__name__") == "torch":
            message = frame.f_locals.get("message")
            return str(message()) if callable(message) else ""
        frame = frame.f_back
    return ""


@functools.cache
def _shape_env_class() -> type:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    class GuardedShapeEnv(ShapeEnv):
        """Places everything at the user's line, and keeps the messages of assertions."""

        def _get_user_frame(self) -> Any:
            return _user_frame_now()

        def guard_or_defer_runtime_assert(  # type: ignore[override]
            self, orig_expr: Any, msg: str, fx_node: Any = None
        ) -> bool:
            frame = _user_frame_now()
            place = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else ""
            return super().guard_or_defer_runtime_assert(orig_expr, f"{place}\n{_check_message()}", fx_node)

    return GuardedShapeEnv


class _UserLines(TorchFunctionMetadataMode):
    """Gives every traced operation the user's line, and sees what reads the position of a tensor in its storage.

    Of a class that PyTorch takes off the stack while Dynamo reads the function of a higher-order operator, and puts
    back when what Dynamo made of it runs (``torch._higher_order_ops.utils.setup_compilation_env``).
    """

    reads_offset = False

    def __init__(self) -> None:  # the base class keeps a tracer of its own
        self.inner: Any = None  # the tracer's mode of this class: PyTorch takes off only one

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.reads_offset = self.reads_offset or func in _OFFSET_READERS
        frame = _user_frame_now()
        if frame is not None:
            place = f'  File "{frame.f_code.co_filename}", line {frame.f_lineno}, in {frame.f_code.co_name}\n'
            node_meta.set_stack_trace([place])
        if self.inner is not None:
            return self.inner.__torch_function__(func, types, args, kwargs)
        return func(*args, **(kwargs or {}))


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

    No sizes are taken to be equal because they are (no duck shaping); sizes 0 and 1 are constants.
    """

    def __init__(self) -> None:
        from torch._guards import TracingContext
        from torch._subclasses.fake_tensor import FakeTensorMode

        self.env: Any = _shape_env_class()(duck_shape=False)
        self.mode = FakeTensorMode(shape_env=self.env, allow_non_fake_inputs=True)
        self.context = TracingContext(self.mode)
        self.lines = _UserLines()

    def tensor(self, value: torch.Tensor, name: str, dims: Sequence[tuple[int, int | None] | None]) -> torch.Tensor:
        """A fake of an input. ``dims``: the inclusive range of each dynamic dim (None: no upper bound), None for a
        static one."""
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
    ) -> Any:
        """The compiled function of the flat inputs. ``module``, an nn.Module, takes them and returns a tuple of tensors
        and SymInts. ``joint`` and ``splitting``: as for ``aot_compile``; ``decompositions``: by operator."""
        from torch._functorch.aot_autograd import aot_module_simplified
        from torch._guards import tracing

        with tracing(self.context):
            return aot_module_simplified(
                module,
                inputs,
                fw_compiler=forward,
                bw_compiler=backward,
                inference_compiler=inference,
                decompositions=decompositions,
                partition_fn=partition_after(joint, splitting),
            )

    def with_lines(self, fn: Callable[[], Any]) -> Any:
        """Calls the user's function; what it does is traced at its lines."""
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
        """A traced condition for an expression over the trace's symbols."""
        made: torch.SymBool = self.env.create_symboolnode(expr)
        return made

    def deferred(self) -> list[tuple[Any, str, str]]:
        """Assertions on data-dependent sizes, in order: (sympy condition, message, ``file:line``)."""
        found = []
        for condition, packed in deferred_runtime_asserts(self.env):
            place, _, message = packed.partition("\n")
            found.append((condition, message, place))
        return found


def _range(low: int, high: int | None) -> Any:
    from torch.fx.experimental.symbolic_shapes import StrictMinMaxConstraint
    from torch.utils._sympy.numbers import int_oo
    from torch.utils._sympy.value_ranges import ValueRanges

    return StrictMinMaxConstraint(vr=ValueRanges(low, int_oo if high is None else high), warn_only=False)


def user_line(error: BaseException) -> str:
    """``file:line`` of the innermost frame of the user's that an error passed; "" if there is none."""
    places = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if _is_users(frame)]
    return f"{places[-1][0].f_code.co_filename}:{places[-1][1]}" if places else ""


def _is_users(frame: Any) -> bool:
    return frame.f_globals.get("__name__", "").split(".")[0] not in _NOT_THE_USERS


def failed_check(error: BaseException) -> tuple[Any, str] | None:
    """If a ``torch._check`` of the user's raised the error: its condition (a sympy expression, or None where it was
    decided without one) and its ``file:line``."""
    places = list(traceback.walk_tb(error.__traceback__))
    check = places[-1][0]
    if check.f_code.co_name != "_check_with" or check.f_globals.get("__name__") != "torch":
        return None
    caller, line = next(place for place in reversed(places) if place[0].f_globals.get("__name__") != "torch")
    if not _is_users(caller):
        return None  # an operator's own check of its operands
    condition = check.f_locals.get("cond")
    expr = condition.node.expr if isinstance(condition, torch.SymBool) else None
    return expr, f"{caller.f_code.co_filename}:{line}"


def depends_on_values(error: BaseException) -> bool:
    """Whether an error of a trace says that a value of a tensor decided what to run."""
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    return isinstance(error, (GuardOnDataDependentSymNode, DataDependentOutputException, DynamicOutputShapeException))


_AUTOGRAD = (torch._C.DispatchKey.AutogradCPU, torch._C.DispatchKey.AutogradCUDA)
# A kernel gets the usual one, to call where it has nothing better.
AutogradKernel = Callable[..., Any]


def has_functional_transforms(gm: torch.fx.GraphModule) -> bool:
    """Whether a Dynamo graph, or one in it, has transforms of ``torch.func``: it enters and leaves their levels."""
    graphs = [module.graph for module in gm.modules() if isinstance(module, torch.fx.GraphModule)]
    names = (getattr(node.target, "__name__", "") for graph in graphs for node in graph.nodes)
    return any(name.endswith("_increment_nesting") for name in names)


def unsupported(op: Any) -> Exception:
    """The tracer's error for an operator that it has no rule for."""
    from torch._subclasses.fake_tensor import UnsupportedOperatorException

    return UnsupportedOperatorException(op)


def is_differentiated_inside(op: Any, values: Any) -> bool:
    """Whether eager mode differentiates what a user's operator does: it has no formula of its own. Its call is one
    operator then, which does the same (``symshape::whole``)."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    if not torch.is_grad_enabled() or any(has(op.name(), key) for key in ("Autograd", "AutogradCPU", "AutogradCUDA")):
        return False
    return any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in pytree.tree_leaves(values))


def is_for_all_devices(op: Any) -> bool:
    """Whether a user's operator has a kernel for all devices, and none for tensors without data."""
    from torch._library.utils import is_builtin

    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return not is_builtin(op) and has(op.name(), "CompositeExplicitAutograd") and not has(op.name(), "Meta")


def traced_by_its_kernel(op: Any, args: Any, kwargs: Any) -> Any:
    """The fake results of an operator by its own kernel, which is run on tensors without data."""
    from torch._subclasses.fake_tensor import in_kernel_invocation_manager

    mode = tracing_mode((args, kwargs))
    with in_kernel_invocation_manager(mode):
        result = op(*args, **kwargs)
    leaves = pytree.tree_leaves((args, kwargs))
    return mode.wrap_meta_outputs_with_default_device_logic(result, op, leaves, device=kwargs.get("device"))


def has_side_effects(op: Any) -> bool:
    """Whether an operator is declared to do more than to return results (``register_effect``)."""
    from torch._higher_order_ops.effects import has_effects

    return bool(has_effects(op))


def tracing_mode(values: Any) -> Any:
    """The tracer's mode behind some values, or the one that is in force; None without one."""
    from torch._guards import detect_fake_mode

    return detect_fake_mode(values)


def traced_line_now() -> str:
    """``file:line`` of the user's innermost frame that is being traced; "" if that is unknown."""
    from torch._guards import TracingContext

    frames = [f for f in TracingContext.extract_stack() or () if not f.filename.startswith(_TORCH_FOLDER)]
    if not frames:
        lines = _STACK_LINE.findall(node_meta.get_current_meta().get("stack_trace") or "")
        return f"{lines[-1][0]}:{lines[-1][1]}" if lines else ""
    return f"{frames[-1].filename}:{frames[-1].lineno}"


_TORCH_FOLDER = os.path.dirname(torch.__file__) + os.sep
_STACK_LINE = re.compile(r'File "(.+?)", line (\d+)')
