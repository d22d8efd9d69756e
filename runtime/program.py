"""Loads a program: from plain data to a callable. Imports no MLIR."""

from __future__ import annotations

import ctypes
import functools
import importlib
import operator
import struct
import threading
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import torch
import torch.utils._pytree as pytree

from symshape.artifact.compiled_program import Program
from symshape.artifact.constraint_checks import CheckText
from symshape.artifact.element_types import DTYPES
from symshape.errors import OffsetsError, SymshapeError, with_text
from symshape.runtime.checks import fail
from symshape.runtime.compact import mask_positions, select_at, unravel_positions
from symshape.runtime.cpu.attention import tiled_attention
from symshape.runtime.cpu.convolutions import convolution as packed_convolution
from symshape.runtime.cpu.kept_memory import empty_strided_cpu
from symshape.runtime.cpu.matrix_products import cpu_products
from symshape.runtime.cpu.tape import Segment
from symshape.runtime.draw import draw, draw_and_save_state, draw_from_state
from symshape.runtime.number_functions import bit_length, has_integer_value, rounded
from symshape.runtime.profiling import with_name
from symshape.runtime.promised_results import promised, with_layout
from symshape.runtime.scatter import scatter
from symshape.runtime.slices import call_by_slices, combine_slices
from symshape.runtime.torch_c import differentiable_view, is_profiling, memory_of, reinterpret_tensor

Run = Callable[[list[Any]], Any]  # of a compiled program: the list of its inputs, which it empties
Kernels = Mapping[str, Callable[..., None]]  # by name


@dataclass(frozen=True)
class Capture:
    """Requests CUDA graphs for a program's launches. ``lasting``: positions of inputs whose memory does not move
    (parameters and buffers); ``remarks`` collects what is captured, and why other calls are not."""

    lasting: Collection[int] = ()
    remarks: list[str] = field(default_factory=list)


def load_program(program: Program, kernels: Kernels, capture: Capture | None = None, pad_products: bool = True) -> Run:
    """``program(args)`` takes the flat argument list, which it clears, and returns the flat result. ``pad_products``:
    whether products on a GPU may be computed on padded copies."""
    slot_of = _slot_maker(program)
    namespace: dict[str, Any] = {
        "torch": torch,
        "constant": program.constants,
        "reinterpret": reinterpret_tensor,
        "differentiable_view": differentiable_view,
        "memory_of": memory_of,
        "with_layout": with_layout,
        "promised": promised,
        "empty_strided": _allocator(program.device),
        "error_slot": slot_of,
        "address": ctypes.addressof,
        "error_code": _error_code,
        "number_of": _number_of,
        "bits_of": _bits_of,
        "tiled_attention": tiled_attention,
        "raise_index_error": raise_index_error,
        "inf": float("inf"),
        "nan": float("nan"),
        "fail": functools.partial(_fail, program.checks),
        **_DTYPES,
    }
    for constant in program.constants:
        call_by_slices(constant)
    products = _products(program.device, pad_products)
    namespace.update({name: products.get(target) or resolve_target(target) for name, target in program.targets.items()})

    code = compile(program.source, _FILE, "exec")
    convolutions = [name for name, target in program.targets.items() if target == _CONVOLUTION]

    def load(own: Kernels, is_recorded: bool) -> Run:
        given = {**namespace, **own}
        exec(code, given)
        for name in program.segments if is_recorded else ():
            given[name] = Segment(given[name], [*own], convolutions)
        run: Run = given["program"]
        return run

    named = functools.cache(lambda: load({name: with_name(name, kernel) for name, kernel in kernels.items()}, False))
    run = _with_user_lines(load(kernels, True), named, program.user_lines)
    return run if capture is None else _graphed(program, run, capture, slot_of)


_CONVOLUTION: Final = "symshape.packed_convolution.default"


def _products(device: str, pad: bool) -> Mapping[str, Callable[..., torch.Tensor]]:
    """Replacements for PyTorch's products of matrices on a device: target -> callable."""
    if device == "cpu":
        return cpu_products()
    if not pad:
        return {}
    from symshape.runtime.triton.padded_products import cuda_products

    return cuda_products()


def _graphed(program: Program, run: Run, capture: Capture, slot_of: Callable[[], Any]) -> Run:
    """Wraps a program so that its launches become CUDA graphs; returns the program itself if they cannot."""
    from symshape.runtime.triton.cuda_device import device_of_graphs, why_no_graphs
    from symshape.runtime.triton.cuda_graphs import GraphedProgram, Uncaptured

    why = why_no_graphs(program.device) or program.uncaptured
    if why:
        capture.remarks.append(f"runs as it is: {why}")
        return run

    def check() -> None:
        if code := _error_code(slot_of()):
            raise_index_error(code, "a kernel of a CUDA graph")

    checks = check if "error_slot()" in program.source else lambda: None
    own = Uncaptured(run, frozenset(capture.lasting), program.launches, program.constants, checks)
    return GraphedProgram(own, device_of_graphs(program.device), remarks=capture.remarks)


_FILE = "<symshape program>"


def _with_user_lines(
    run: Run,
    named: Callable[[], Run],
    user_lines: Sequence[tuple[int, str]],
) -> Run:
    """The program; an error that something it calls raises is the same error, with the user's line as a note.

    ``named()``: the same, with launches that a profiler sees.
    """

    def program(args: list[Any]) -> Any:
        try:
            return named()(args) if is_profiling() else run(args)
        except SymshapeError:
            raise  # says where itself
        except Exception as error:
            frames = traceback.walk_tb(error.__traceback__)
            lines = [line for frame, line in frames if frame.f_code.co_filename == _FILE]
            before = max((pair for pair in user_lines if lines and pair[0] <= lines[-1]), default=(0, ""))
            for line in filter(None, before[1].split("\n")):
                error.add_note(f"  at: {with_text(line)}")
            raise

    return program


_DTYPES = {name: getattr(torch, name) for name in DTYPES}


def _pairs(x: torch.Tensor) -> torch.Tensor:
    """``torch.view_as_real``, also of a lazily conjugated tensor, whose conjugate bit gradient tracers hide."""
    return torch.view_as_real(x.resolve_conj())


# What a program calls for these targets, instead of looking them up: plain functions, which reach the same kernels by a
# shorter path than the overload objects, and functions of the runtime, some of which are no operators.
_DIRECT: dict[str, Callable[..., Any]] = {
    "aten.mm.default": torch.mm,
    "aten.convolution.default": torch.convolution,
    "aten.addmm.default": torch.addmm,
    "aten.bmm.default": torch.bmm,
    "aten.view_as_real.default": _pairs,
    "higher_order.associative_scan": combine_slices,
    "symshape.bit_length": bit_length,
    "symshape.rounded": rounded,
    "symshape.draw.default": draw,
    "symshape.draw_and_save_state": draw_and_save_state,
    "symshape.draw_from_state": draw_from_state,
    "symshape.has_integer_value": has_integer_value,
    "symshape.mask_positions.default": mask_positions,
    _CONVOLUTION: packed_convolution,
    "symshape.scatter.default": scatter,
    "symshape.select_at.default": select_at,
    "symshape.unravel_positions.default": unravel_positions,
}

# The modules that register operators of ours, by the operator's name. All others (opaque calls) are registered by
# runtime/opaque_random_call.py and what it imports.
_DEFINED_BY = {
    **dict.fromkeys(("jagged_attention", "jagged_attention_backward"), "symshape.runtime.jagged_attention"),
    **dict.fromkeys(("pack_convolution_weight", "packed_convolution"), "symshape.runtime.packed_convolutions"),
}


def resolve_target(target: str) -> Callable[..., Any]:
    """The callable behind a ``host.call`` target; ``flat.`` before it: all items of its tuples in tuples, in order."""
    if target in _DIRECT:
        return _DIRECT[target]
    kind, _, rest = target.partition(".")
    if kind == "flat":
        nested = resolve_target(rest)
        return lambda *args, **kwargs: pytree.tree_leaves(nested(*args, **kwargs))
    if kind == "python":
        return _python_callable(rest)
    library: Any = torch.ops.higher_order if kind == "higher_order" else torch.ops
    path = [rest] if kind == "higher_order" else target.split(".")
    if kind == "symshape":  # in a process that has traced nothing these operators are not registered
        importlib.import_module(_DEFINED_BY.get(path[1], "symshape.runtime.opaque_random_call"))
    found: Callable[..., Any] = functools.reduce(getattr, path, library)
    return found


def _python_callable(path: str) -> Callable[..., Any]:
    module, _, name = path.rpartition(".")
    source: Any = operator if module == "_operator" else importlib.import_module(module)
    found: Callable[..., Any] = functools.reduce(getattr, name.split("."), source)
    return found


def _allocator(device: str) -> Callable[..., torch.Tensor]:
    if device == "cpu":
        return empty_strided_cpu
    return lambda sizes, strides, dtype: torch.empty_strided(sizes, strides, dtype=dtype, device=device)


def _slot_maker(program: Program) -> Callable[[], Any]:
    """A function that returns the error slot, an int64 that kernels write an error code to. On a GPU it is one pinned
    host word per program, which the host reads without synchronisation: an error is raised at a later check, like a
    device-side assertion."""
    if program.pointers:
        return ctypes.c_int64
    if program.device == "cpu":
        return lambda: torch.zeros(1, dtype=torch.int64)
    return _PinnedWord()


class _PinnedWord:
    """An int64 in pinned host memory that kernels on a GPU write to. It is allocated at the first call: a program is
    loaded while PyTorch's fake mode is on, where the tensor would be fake."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.word: torch.Tensor | None = None

    def __call__(self) -> torch.Tensor:
        with self.lock:  # of two words, one would never be looked at
            if self.word is None:
                self.word = torch.zeros(1, dtype=torch.int64, pin_memory=True)
            return self.word


def _number_of(tensor: torch.Tensor) -> int | float:
    """The element of a tensor on the CPU, as Triton kernels take it (``NUMBERS`` in artifact/triton_kernels.py)."""
    number: int | float = tensor.item()
    if tensor.dtype == torch.float64:
        return _bits_of(number)
    return int(number) if isinstance(number, bool) else number


def _bits_of(real: float) -> int:
    """The bits of a float64 as an integer: kernels take integers."""
    bits: int = struct.unpack("<q", struct.pack("<d", real))[0]
    return bits


def _error_code(slot: Any) -> int:
    """The errors of kernels since the last read. The word outlives a call and is cleared here, so each error is raised
    once."""
    if isinstance(slot, ctypes.c_int64):
        return slot.value
    word = ctypes.c_int64.from_address(
        slot.data_ptr()
    )  # replays of CUDA graphs read it too, and a tensor read takes 3 us
    code = word.value
    if code:
        word.value = 0
    return code


def raise_index_error(code: int, kernel: str) -> NoReturn:
    """Raises eager mode's error: IndexError for an index out of range, RuntimeError for an integer division by zero and
    for invalid row offsets."""
    if code == 2:
        raise RuntimeError("ZeroDivisionError")
    if code == 3:
        raise OffsetsError(kernel)
    raise IndexError(f"index out of range in self (found by {kernel})")


def _fail(checks: Sequence[CheckText], first: int, end: int, values: Mapping[str, int]) -> NoReturn:
    """Raises the error of the first failing check among several that are tested together."""
    fail(checks[first:end], values)
