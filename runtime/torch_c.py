"""Private PyTorch APIs that compiled code needs when it is loaded or called."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.autograd.forward_ad as forward_ad
import torch.autograd.profiler as profiler
import torch.utils._device as device_modes
from torch._C._dynamo import guards
from torch._guards import TracingContext
from torch._guards import active_fake_mode as active_fake_mode
from torch.nested._internal.nested_tensor import NestedTensor, _nt_view_dummy

# The stubs do not have them.
empty_strided_cpu: Callable[..., torch.Tensor] = guards._empty_strided_cpu  # type: ignore[attr-defined]


reinterpret_tensor: Callable[..., torch.Tensor] = guards._reinterpret_tensor  # type: ignore[attr-defined]


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have elements in the same memory. False is exact."""
    return bool(guards.compute_overlapping_tensors([one, other]))


def storage_uses(storage: torch.UntypedStorage) -> int:
    """How many know a storage: tensors of any kind, and the Python object."""
    return int(torch._C._storage_Use_Count(storage._cdata))


# The address of a tensor's memory. `data_ptr()` counts as a write (`watch_writes`), this does not.
address_of: Callable[[torch.Tensor], int] = torch._C._data_address  # type: ignore[attr-defined]


def watch_writes(x: torch.Tensor) -> bool:
    """Makes the memory of a tensor copy-on-write, with the tensor as its only user: it `is_watched` until somebody
    writes there, or asks for its address to write to. Nothing is ever copied, and the address stays. False, and without
    effect, for memory that PyTorch has not allocated for this process alone, and for memory that others know of, who
    may have asked for the address before."""
    if type(x) not in (torch.Tensor, torch.nn.Parameter) or storage_uses(x.untyped_storage()) != _USES_OF_ONE:
        return False
    with torch.no_grad():
        try:
            torch._lazy_clone(x.detach())  # is freed at once
        except RuntimeError:  # memory of NumPy, of another process, of a file
            return False
    return is_watched(x)


# Whether nobody has written to the memory of a tensor since `watch_writes`.
is_watched: Callable[[torch.Tensor], bool] = torch._C._is_cow_tensor  # type: ignore[attr-defined]
_only = torch.empty(1, device="cpu")
_USES_OF_ONE: Final = storage_uses(_only.untyped_storage())  # of a storage that one tensor has


def differentiable_view(x: torch.Tensor, sizes: Sequence[int], strides: Sequence[int], offset: int) -> torch.Tensor:
    """As ``reinterpret_tensor``, with the result registered as a view of ``x`` for autograd. ``offset``: in
    elements."""
    with torch.enable_grad():  # a view made without it may not be written to with it
        return x.as_strided(sizes, strides, x.storage_offset() + offset)


def memory_of(x: torch.Tensor, size: int, offset: int) -> torch.Tensor:
    """Elements of the memory that ``x`` is in, from ``offset`` elements after its own beginning. RuntimeError where the
    memory ends before."""
    return x.detach().as_strided((size,), (1,), x.storage_offset() + offset)


def tensor_at(x: torch.Tensor) -> torch.Tensor:
    """A tensor at the address of ``x``, with the same layout, that does not own the memory."""
    storage = x.untyped_storage()
    if not storage.nbytes():
        return x
    made = torch._C._construct_storage_from_data_pointer(storage.data_ptr(), x.device, storage.nbytes())
    return torch.empty(0, dtype=x.dtype, device=x.device).set_(made, x.storage_offset(), x.size(), x.stride())


def view_base(x: torch.Tensor) -> torch.Tensor | None:
    """The tensor that ``x`` is a view of for autograd; None if it is no view."""
    return x._base


def copy_all(destinations: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    """Copies each source to its destination; the types of all are the same. Few launches for many tensors."""
    if destinations:
        torch._foreach_copy_(destinations, sources)


def static_launcher() -> tuple[Callable[..., Any], Callable[..., None]] | None:
    """The functions that load machine code on a GPU and launch it. None in builds without them."""
    launcher = getattr(torch._C, "_StaticCudaLauncher", None)
    return None if launcher is None else (launcher._load_kernel, launcher._launch_kernel)


def current_gpu() -> int:
    """The number of the current GPU, in a process that has used one: ``torch.cuda.current_device`` looks at that first,
    at each launch."""
    return int(torch._C._cuda_getDevice())


def raw_stream(device: int) -> int:
    """The handle of a GPU's current stream."""
    return int(torch._C._cuda_getCurrentRawStream(device))


def clear_library_workspaces() -> None:
    """The workspaces that PyTorch keeps for cuBLAS, of each handle and stream, are allocated anew when they are next
    needed."""
    clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)  # not in builds without CUDA
    if clear is not None:
        clear()


@contextlib.contextmanager
def differentiated() -> Iterator[None]:
    """While entered, autograd records operators, also in a kernel or a graph that AOTAutograd runs below autograd,
    where gradients computed inside would be zeros."""
    key = torch._C.DispatchKey
    exclude = torch._C._dispatch_tls_local_exclude_set()
    for one in (key.AutogradFunctionality, key.AutogradOther, key.ADInplaceOrView):
        exclude = exclude.remove(one)
    include = torch._C._dispatch_tls_local_include_set()
    with torch._C._ForceDispatchKeyGuard(include, exclude), torch.enable_grad():
        yield


def keeps_graph() -> bool:
    """Whether the backward that is under way keeps what is saved for it (``retain_graph``). True outside of one."""
    return bool(torch._C._autograd._get_current_graph_task_keep_graph())


def in_function() -> bool:
    """Whether ``forward`` of a ``torch.autograd.Function`` runs, which AOTAutograd puts around a backward graph for
    ``create_graph=True``."""
    return not torch._C._is_fwd_grad_enabled()


def is_in_batch() -> bool:
    """Whether a batch of tangents (``is_grads_batched``) is in force."""
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    return bool(level)


@contextlib.contextmanager
def outside_batch() -> Iterator[int | None]:
    """While entered, the innermost batch of tangents (``is_grads_batched``) is not in force. Yields its level; None
    without one."""
    nesting: Any = torch._C
    level = nesting._vmapmode_increment_nesting() - 1
    nesting._vmapmode_decrement_nesting()
    if not level:
        yield None
        return
    nesting._vmapmode_decrement_nesting()
    try:
        yield level
    finally:
        nesting._vmapmode_increment_nesting()


def unbatched(x: torch.Tensor, level: int) -> torch.Tensor:
    """The tensor that a batched one holds, with the batch as first dim: of size 1 for a tensor that is not batched."""
    return torch._remove_batch_dim(x, level, 1, 0)


def batched(x: torch.Tensor, level: int) -> torch.Tensor:
    """``x``, whose first dim is the batch, as one of a batch."""
    return torch._add_batch_dim(x, 0, level)


def saves_through_hooks() -> bool:
    """Whether what is saved for backward goes through hooks (``torch.autograd.graph.saved_tensors_hooks``)."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def compiles_backward() -> bool:
    """Whether compiled autograd traces backward passes, as far as that is known before one."""
    settings, tracer = (sys.modules.get(f"torch._dynamo.{name}") for name in ("config", "compiled_autograd"))
    return bool(getattr(settings, "compiled_autograd", False) or getattr(tracer, "compiled_autograd_enabled", False))


def versions_of(values: Sequence[Any]) -> tuple[int, ...] | None:
    """How often the memory of each tensor among values was written to; None where one is not counted."""
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    if any(tensor.is_inference() for tensor in tensors):
        return None
    return tuple(tensor._version for tensor in tensors)


def is_differentiating_forward() -> bool:
    """Whether a ``dual_level`` is entered: a tensor may have a tangent."""
    return forward_ad._current_level >= 0


def expects_fake_results() -> bool:
    """Whether a part of a split graph is called for the fake inputs of the next part: AOTAutograd answers the first
    call of what it has compiled with fake results (``torch/_dynamo/backends/distributed.py``)."""
    context = TracingContext.try_get()
    return context is not None and context.fakify_first_call


def is_profiling() -> bool:
    """Whether ``torch.profiler`` is recording."""
    return profiler._is_profiler_enabled


def has_both_libraries() -> bool:
    """Whether PyTorch was built with MKL and with oneDNN."""
    return bool(torch._C.has_mkl and torch._C._has_mkldnn)


def onednn_is_enabled() -> bool:
    """Whether the user lets PyTorch call oneDNN (``torch.backends.mkldnn.flags``)."""
    return bool(torch._C._get_mkldnn_enabled())


def has_fake_rule(op: Any) -> bool:
    """Whether an operator has a fake rule, or needs none."""
    from torch._library.utils import has_fake_kernel

    return bool(has_fake_kernel(op))


def declaration_of(op: Any) -> tuple[str, list[str]]:
    """The name of an operator overload, as ``torch.library`` takes it, and the names of its arguments."""
    schema = op._schema
    name = schema.name + (f".{schema.overload_name}" if schema.overload_name else "")
    return name, [argument.name for argument in schema.arguments]


def first_seen(value: Any) -> Any:
    """The hint of a SymInt or SymFloat; None for an unbacked one, and for a ragged size, which stands for offsets."""
    node = value.node
    return node.pytype(node.hint) if node.has_hint() and not isinstance(node.hint, torch.SymInt) else None


_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def user_lines(node: torch.fx.Node) -> list[tuple[str, int]]:
    """(file, line) of the user's frames that a node comes from, the innermost one last; none if unknown."""
    return [(file, int(line)) for file, line in _FRAME.findall(node.meta.get("stack_trace") or "")]


def tensor_check(
    examples: Sequence[torch.Tensor], sizes: Sequence[Sequence[int | None]], strides: Sequence[Sequence[int | None]]
) -> Callable[..., bool]:
    """One C++ call that compares tensors with the examples: class, dtype, device, dispatch keys, requires_grad, rank,
    and those sizes and strides that are not None."""
    dims: Any = [list(dims) for dims in sizes]
    steps: Any = [list(dims) for dims in strides]
    made: Any = guards.TensorGuards
    check: Callable[..., bool] = made(*examples, dynamic_dims_sizes=dims, dynamic_dims_strides=steps).check
    return check


dispatch_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack  # how many are active


# How generated code reads which modes are active: function modes, dispatch modes, the default device, and forward
# differentiation (-1: none).
MODES = ("function_modes()", "dispatch_modes()", "device_modes.CURRENT_DEVICE", "forward_ad._current_level")


MODE_FUNCTIONS: dict[str, Any] = {
    "function_modes": torch._C._len_torch_function_stack,
    "dispatch_modes": dispatch_modes,
    "device_modes": device_modes,
    "forward_ad": forward_ad,
}


def modes_now() -> tuple[Any, ...]:
    """The values that ``MODES`` read."""
    return (
        torch._C._len_torch_function_stack(),
        dispatch_modes(),
        device_modes.CURRENT_DEVICE,
        forward_ad._current_level,
    )


def without_autocast() -> Any:
    """A context manager within which no operator is autocast."""
    return torch._C._DisableAutocast()


def autocast_state() -> Any:
    """The autocast settings in force; None without autocast."""
    if not torch._C._is_any_autocast_enabled():
        return None
    devices = [device for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)]
    return tuple((device, torch.get_autocast_dtype(device)) for device in devices)


def is_jagged(x: Any) -> bool:
    """Whether a value is a nested tensor of the jagged layout."""
    return isinstance(x, NestedTensor)


@dataclass(frozen=True)
class Rows:
    """The parts of a nested tensor of the jagged layout. ``shortest``, ``longest``: known bounds of the rows' lengths,
    each as the first size of an empty tensor; ``dim``: the ragged one; ``name``: identifies its ragged size: equal
    where eager mode takes two ragged sizes for equal."""

    values: torch.Tensor
    offsets: torch.Tensor
    lengths: torch.Tensor | None
    shortest: torch.Tensor | None
    longest: torch.Tensor | None
    dim: int
    name: Any


PARTS: Final = ("values", "offsets", "lengths", "shortest", "longest")  # the tensors that a nested tensor is made of


def rows_of(x: Any) -> Rows:
    """The parts of a nested tensor; its values as a differentiable view where a gradient is wanted."""
    with torch._C.DisableTorchFunctionSubclass():
        wanted = x.requires_grad and torch.is_grad_enabled()
    values, known = torch._nested_get_values(x) if wanted else x._values, x._metadata_cache
    node = x._size[x._ragged_idx].node
    name = node.nested_int() if node.is_nested_int() else None
    return Rows(values, x._offsets, x._lengths, known.get("min_seqlen"), known.get("max_seqlen"), x._ragged_idx, name)


def nested_of(rows: Rows) -> torch.Tensor:
    """The nested tensor: a view of its values where a gradient is wanted or in a trace; to make a view takes longer."""
    if rows.values.requires_grad or type(rows.values) is not torch.Tensor:
        view: Any = torch._nested_view_from_jagged
        parts = (rows.values, rows.offsets, _nt_view_dummy(), rows.lengths, rows.dim, rows.shortest, rows.longest)
        made: torch.Tensor = view(*parts)
        return made
    known = {"min_seqlen": rows.shortest, "max_seqlen": rows.longest}
    cache = {key: tensor for key, tensor in known.items() if tensor is not None}
    made = NestedTensor(rows.values, rows.offsets, lengths=rows.lengths, _ragged_idx=rows.dim, _metadata_cache=cache)
    return made


# Whether a tensor is a view for autograd.
is_view: Callable[[torch.Tensor], bool] = torch.Tensor._is_view
set_grad_enabled: Callable[[bool], None] = torch._C._set_grad_enabled


def in_transform() -> bool:
    """Whether a transform of ``torch.func`` is under way."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def keep_in_context(ctx: Any) -> None:
    """Sets what AOTAutograd's own backward, and compiled autograd, read of the context of a plain graph's autograd
    function."""
    ctx._tensors_no_vc_check = []
    ctx._materialize_non_diff_grads = False


def in_context_of_backward(run: Callable[[list[Any]], Any], args: list[Any]) -> Any:
    """``run(args)`` with the context variables of the thread that has called ``backward``."""
    if torch._C._is_key_in_tls("context") and (context := torch._C._get_obj_in_tls("context")) is not None:
        return context.run(run, args)
    return run(args)


def plain_apply(function: Any) -> Callable[[list[Any]], Any]:
    """``function.apply`` of an autograd function, which takes its arguments as a list. PyTorch's looks into each of
    them for a transform of ``torch.func`` that has ended; parameters and numbers are never in one."""
    apply = super(torch.autograd.Function, function).apply
    unwrapped = torch._C._functorch.unwrap_if_dead

    def call(args: list[Any]) -> Any:
        if torch._C._are_functorch_transforms_active():
            return function.apply(*args)
        return apply(*[unwrapped(x) if isinstance(x, torch.Tensor) and type(x) is not _PARAMETER else x for x in args])

    return call


_PARAMETER = torch.nn.Parameter
