"""Replacements for functions of PyTorch whose C++ takes an integer or a float: a symbolic number stays symbolic.

Each is written with functions that take symbolic sizes, and computes the same result. They are: the functions of
``native_functions.yaml`` with a parameter ``int`` that is a size (``steps``, ``window_length``, ``num_classes``), or
that read the sizes of a tensor as integers (``fill_diagonal_``).
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from symshape.frontend.bridge.operators import PAD, PAD_PACKED
from symshape.frontend.bridge.symbolic_sizes import expression_of, is_unbacked
from symshape.frontend.bridge.tracing_errors import RefusedArgument
from symshape.frontend.decompositions.combinations import combinations, takes_combinations
from symshape.frontend.decompositions.differences import (
    diff,
    gradient,
    matrix_norm,
    takes_diff,
    takes_gradient,
    takes_matrix_norm,
)
from symshape.frontend.decompositions.packed_sequences import pad_packed
from symshape.frontend.decompositions.real_parameters import (
    has_symbolic_factor,
    has_symbolic_float,
    is_symbolic,
    python_functions,
    rules,
    takes,
)
from symshape.frontend.decompositions.tensor_items import get_item, has_number, set_item

_torch: Any = torch  # these have no types


def linspace(
    start: Any, end: Any, steps: Any, *, dtype: torch.dtype | None = None, device: Any = None, layout: Any = None
) -> torch.Tensor:
    """``torch.linspace`` of strided tensors that are not complex. (steps,), from the nearer end, so that both ends are
    exact; integers are computed in float64 and truncated. RuntimeError of a negative number of steps."""
    torch._check(steps >= 0, lambda: "number of steps must be non-negative")
    dtype = dtype or torch.get_default_dtype()
    wide = _wide(dtype)
    at = torch.arange(steps, device=device)
    first, last = (_number(one, wide, at.device) for one in (start, end))
    step = (last - first) / _torch.sym_max(steps - 1, 1)
    rising, falling = first + step * at.to(wide), last - step * (steps - 1 - at).to(wide)
    return torch.where(at < _torch.sym_max(steps // 2, 1), rising, falling).to(dtype)


def _wide(dtype: torch.dtype) -> torch.dtype:
    """The type to compute in: half types cannot represent all positions."""
    return torch.promote_types(dtype, torch.float32) if dtype.is_floating_point else torch.float64


def _number(value: Any, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return value.to(dtype) if isinstance(value, torch.Tensor) else torch.full((), value, dtype=dtype, device=device)


def logspace(
    start: Any, end: Any, steps: Any, base: float = 10.0, *, dtype: torch.dtype | None = None, **how: Any
) -> torch.Tensor:
    """``torch.logspace`` of floating-point tensors: powers of what ``linspace`` has."""
    dtype = dtype or torch.get_default_dtype()
    return torch.pow(base, linspace(start, end, steps, dtype=_wide(dtype), **how)).to(dtype)


def _window(shape: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A function of ``torch.*_window``; ``shape``: computes it from the points 0, 1, ..., and the last point. A window
    of one point is 1, and a periodic one lacks the last point. Computed in float64: near its ends, a window is mostly
    rounding."""

    @functools.wraps(shape)
    def window(
        window_length: Any, periodic: bool = True, *more: float, dtype: Any = None, device: Any = None, **shaped: float
    ) -> torch.Tensor:
        torch._check(window_length >= 0, lambda: f"window_length must be non-negative, got {window_length}")
        dtype = dtype or torch.get_default_dtype()
        at = torch.arange(window_length, device=device).double()
        last = _torch.sym_max(window_length if periodic else window_length - 1, 1)
        is_one = torch.full((), window_length, device=device) == 1
        return torch.where(is_one, torch.ones_like(at), shape(at, last, *more, **shaped)).to(dtype)

    return window


@_window
def hamming_window(at: torch.Tensor, last: Any, alpha: float = 0.54, beta: float = 0.46) -> torch.Tensor:
    """``torch.hamming_window``"""
    return alpha - beta * (at * (2 * math.pi / last)).cos()


@_window
def hann_window(at: torch.Tensor, last: Any) -> torch.Tensor:
    """``torch.hann_window``"""
    return 0.5 - 0.5 * (at * (2 * math.pi / last)).cos()


@_window
def bartlett_window(at: torch.Tensor, last: Any) -> torch.Tensor:
    """``torch.bartlett_window``"""
    return 1 - (at * (2.0 / last) - 1).abs()


@_window
def blackman_window(at: torch.Tensor, last: Any) -> torch.Tensor:
    """``torch.blackman_window``"""
    angle = at * (2 * math.pi / last)
    return 0.42 - 0.5 * angle.cos() + 0.08 * (2 * angle).cos()


@_window
def kaiser_window(at: torch.Tensor, last: Any, beta: float = 12.0) -> torch.Tensor:
    """``torch.kaiser_window``"""
    place = at * (2.0 / last) - 1
    return torch.i0(beta * (1 - place * place).clamp(min=0).sqrt()) / torch.i0(torch.full_like(at, beta))


def triu_indices(row: Any, col: Any, offset: int = 0, *, dtype: Any = torch.long, device: Any = None) -> torch.Tensor:
    """``torch.triu_indices`` of a square, (2, elements), from its diagonal or one above."""
    width, count = _triangle(row, offset)
    from_its_end = count - 1 - torch.arange(count, device=device)  # a lower triangle
    row_index, column = _triangle_coordinates(from_its_end)
    return torch.stack([width - 1 - row_index, width - 1 - column + offset]).to(dtype)


def tril_indices(row: Any, col: Any, offset: int = 0, *, dtype: Any = torch.long, device: Any = None) -> torch.Tensor:
    """``torch.tril_indices`` of a square, (2, elements), from its diagonal or one below."""
    _, count = _triangle(row, offset)
    row_index, column = _triangle_coordinates(torch.arange(count, device=device))
    return torch.stack([row_index - offset, column]).to(dtype)


def _triangle(size: Any, offset: int) -> tuple[Any, Any]:
    """The width of the triangle that a diagonal leaves of a square, and its elements."""
    width = _torch.sym_max(size - abs(offset), 0)
    return width, width * (width + 1) // 2


def _triangle_coordinates(at: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Row and column of each element of a lower triangle in row-major order: exact below 2^50 elements."""
    row = (((8 * at + 1).double().sqrt() - 1) / 2).long()
    return row, at - row * (row + 1) // 2


def fftfreq(n: Any, d: float = 1.0, *, dtype: Any = None, device: Any = None) -> torch.Tensor:
    """``torch.fft.fftfreq`` of floating-point numbers: (n,), from 0 up, then from the lowest negative one up."""
    at = torch.arange(n, device=device)
    return _frequencies(torch.where(at < (n + 1) // 2, at, at - n), n, d, dtype)


def rfftfreq(n: Any, d: float = 1.0, *, dtype: Any = None, device: Any = None) -> torch.Tensor:
    """``torch.fft.rfftfreq`` of floating-point numbers: (n // 2 + 1,)."""
    return _frequencies(torch.arange(n // 2 + 1, device=device), n, d, dtype)


def _frequencies(at: torch.Tensor, n: Any, d: float, dtype: Any) -> torch.Tensor:
    dtype = dtype or torch.get_default_dtype()
    return (at.to(_wide(dtype)) * (1.0 / (_torch.sym_max(n, 1) * d))).to(dtype)


def one_hot(x: torch.Tensor, num_classes: Any) -> torch.Tensor:
    """``torch.nn.functional.one_hot`` with a number of classes, or with -1, which an argument of the user's function
    may be at some calls. RuntimeError for a value that is no class."""
    if not is_unbacked(num_classes) and num_classes == -1:
        return torch.nn.functional.one_hot(x)
    torch._check(num_classes >= 1, lambda: f"num_classes should be positive, got {num_classes}")
    torch.ops.aten._assert_async.msg((x >= 0).all(), "Class values must be non-negative.")
    torch.ops.aten._assert_async.msg((x < num_classes).all(), "Class values must be smaller than num_classes.")
    return is_class(x, num_classes)


def is_class(x: torch.Tensor, count: Any) -> torch.Tensor:
    """1 where a value is the index along the last dim, of size ``count``, else 0; contiguous, whatever the layout of
    the values."""
    rows = x.clone(memory_format=torch.contiguous_format)
    return (rows.unsqueeze(-1) == torch.arange(count, device=x.device)).to(torch.int64)


def fill_diagonal_(x: torch.Tensor, fill_value: Any, wrap: bool = False) -> torch.Tensor:
    """``Tensor.fill_diagonal_`` of a matrix; ``wrap``: in a tall one, the diagonal continues after an empty row."""
    if not wrap:
        x.diagonal().fill_(fill_value)
        return x
    rows, columns = (torch.arange(size, device=x.device) for size in x.shape)
    return x.masked_fill_(rows[:, None] % (x.shape[1] + 1) == columns, fill_value)


def kron(input: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """``torch.kron``: (a0 * b0, a1 * b1, ...) of sizes a and b, the shorter with ones before."""
    rank = max(input.dim(), other.dim())
    left, right = ([1] * (rank - x.dim()) + list(x.shape) for x in (input, other))
    spread = input.reshape([size for one in left for size in (one, 1)])
    product = spread * other.reshape([size for one in right for size in (1, one)])
    return product.reshape([one * factor for one, factor in zip(left, right)])


def istft(
    input: torch.Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: torch.Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: Any = None,
    return_complex: bool = False,
) -> torch.Tensor:
    """``torch.istft`` of real signals of a length: (..., length), with zeros where the frames end before. RuntimeError
    where no window reaches a sample."""
    torch._check(input.numel() > 0, lambda: "istft input tensor cannot be empty")
    hop, width = n_fft // 4 if hop_length is None else hop_length, n_fft if win_length is None else win_length
    window = torch.ones(width, dtype=input.real.dtype, device=input.device) if window is None else window
    before = (n_fft - width) // 2
    window = torch.nn.functional.pad(window, (before, n_fft - width - before))
    batched = input if input.dim() == 3 else input.unsqueeze(0)
    frames = torch.fft.irfft(batched.transpose(1, 2), n=n_fft, dim=-1, norm="ortho" if normalized else None) * window
    count, first = frames.shape[1], n_fft // 2 if center else 0
    covered = n_fft + hop * (count - 1)
    missing = _torch.sym_max(first + length - covered, 0)

    def added(parts: torch.Tensor, beyond: float) -> torch.Tensor:
        whole = torch.ops.aten.unfold_backward(parts, (parts.shape[0], covered), 1, n_fft, hop)
        return torch.nn.functional.pad(whole, (0, missing), value=beyond)[:, first : first + length]

    weights = added(window.square().expand(1, count, n_fft), 1.0)
    torch.ops.aten._assert_async.msg((weights.abs() >= 1e-11).all(), "window overlap add min: 1")
    signal: torch.Tensor = added(frames, 0.0) / weights
    return signal if input.dim() == 3 else signal.squeeze(0)


def adaptive_avg_pool1d(x: torch.Tensor, output_size: Any) -> torch.Tensor:
    """``torch.adaptive_avg_pool1d`` as 2-d pooling of images of one row, which takes a symbolic size, in the form
    without a guard for a single window."""
    pooled: torch.Tensor = torch.ops.aten._adaptive_avg_pool2d(x.unsqueeze(-2), (1, output_size))
    return pooled.squeeze(-2)


def affine_grid(theta: torch.Tensor, size: Sequence[Any], align_corners: bool | None = None) -> torch.Tensor:
    """``torch.nn.functional.affine_grid``, which guards on the smallest size. Without its warning that a size of 1 has
    another meaning since version 1.3. ValueError for a size of 0."""
    some = all(length > 0 for length in size)
    if not some and not (align_corners and any(length == 1 for length in size[2:])):
        raise RefusedArgument(f"Expected non-zero, positive output size. Got {size}")
    return torch.affine_grid_generator(theta, size, bool(align_corners))


def as_tensor(data: Any, dtype: torch.dtype | None = None, device: Any = None) -> torch.Tensor:
    """``torch.as_tensor`` of a number, (), or of several, (elements,)."""
    numbers = data if isinstance(data, (list, tuple)) else [data]
    is_real = any(isinstance(one, (float, torch.SymFloat)) for one in numbers)
    dtype = dtype or (torch.get_default_dtype() if is_real else torch.int64)
    made = [torch.full((), one, dtype=dtype, device=device) for one in numbers]
    return torch.stack(made) if numbers is data else made[0]


def pad(input: torch.Tensor, pad: Sequence[Any], mode: str = "constant", value: Any = None) -> torch.Tensor:
    """``torch.nn.functional.pad`` with a constant, which may be symbolic here."""
    padded: torch.Tensor = torch.ops.aten.constant_pad_nd(input, pad, value)
    return padded


@dataclass(frozen=True)
class Replacement:
    """A replacement. ``applies``: whether ``function`` replaces the usual one for these arguments."""

    function: Callable[..., Any]
    applies: Callable[[Sequence[Any], Mapping[str, Any]], bool]


def _has_symbolic_steps(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    steps = args[2] if len(args) > 2 else kwargs.get("steps")
    numbers = (*args, kwargs.get("start"), kwargs.get("end"))
    dtypes = [kwargs.get("dtype"), *(x.dtype for x in numbers if isinstance(x, torch.Tensor))]
    known = kwargs.keys() <= {"start", "end", "steps", "dtype", "device", "layout"}
    is_complex = any(isinstance(x, complex) for x in numbers) or any(d is not None and d.is_complex for d in dtypes)
    return (
        isinstance(steps, torch.SymInt) and known and kwargs.get("layout") in (None, torch.strided) and not is_complex
    )


def _has_floating_steps(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    dtype, base = kwargs.get("dtype"), kwargs.get("base", 10.0)
    numbers = (*args[3:], base)
    given = {name: value for name, value in kwargs.items() if name != "base"}
    is_real = all(isinstance(x, (int, float)) for x in numbers) and (dtype is None or dtype.is_floating_point)
    return len(args) <= 4 and is_real and _has_symbolic_steps(args, given)


def _has_symbolic_number(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether an argument is a symbolic number and the dtype is floating-point. C++ takes the shape of a window behind
    ``periodic`` alone."""
    dtype = kwargs.get("dtype")
    if kwargs.keys() & {"alpha", "beta"} and "periodic" not in kwargs and len(args) < 2:
        return False
    known = kwargs.keys() <= {"window_length", "n", "periodic", "alpha", "beta", "d", "dtype", "device"}
    return is_symbolic([args, kwargs]) and known and (dtype is None or dtype.is_floating_point)


def _leaves_a_triangle(upper: bool, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether ``tril_indices`` or ``triu_indices`` is called for a square of symbolic size, with a constant offset that
    leaves a full triangle."""
    if len(args) < 2 or not all(isinstance(size, torch.SymInt) for size in args[:2]):
        return False
    offset = args[2] if len(args) > 2 else kwargs.get("offset", 0)
    known = kwargs.keys() <= {"offset", "dtype", "device"} and type(offset) is int
    is_square = expression_of(args[0]) == expression_of(args[1])
    return known and is_square and (offset >= 0 if upper else offset <= 0)


def _has_symbolic_classes(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    classes = args[1] if len(args) > 1 else kwargs.get("num_classes")
    return isinstance(classes, torch.SymInt) and bool(args) and args[0].dtype == torch.int64


def _has_symbolic_value(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether ``pad`` gets a symbolic constant. A float would be truncated for integers."""
    x, _, mode, value = (*args, *[None] * 4)[:4]
    x, mode, value = (kwargs.get(name, one) for name, one in (("input", x), ("mode", mode), ("value", value)))
    if len(args) + len(kwargs) > 4 or mode not in (None, "constant") or not isinstance(x, torch.Tensor):
        return False
    return isinstance(value, torch.SymInt) or (isinstance(value, torch.SymFloat) and x.is_floating_point())


def _has_symbolic_windows(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    count = args[1] if len(args) > 1 else kwargs.get("output_size")
    return isinstance(count, torch.SymInt) and bool(args) and args[0].dim() in (2, 3)


def _has_symbolic_image(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    theta, size, align = (*args, *[None] * 3)[:3]
    size, align = kwargs.get("size", size), kwargs.get("align_corners", align)
    if len(args) + len(kwargs) != 3 or not args or type(align) is not bool or not isinstance(size, Sequence):
        return False  # also where a default is warned of
    dims = len(size) - 2
    is_symbolic = dims in (2, 3) and any(isinstance(length, torch.SymInt) for length in size)
    return is_symbolic and theta.is_floating_point() and theta.dim() == 3 and theta.shape[1:] == (dims, dims + 1)


def _has_symbolic_sizes(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    sizes = [size for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor) for size in x.shape]
    return len(args) + len(kwargs) == 2 and any(isinstance(size, torch.SymInt) for size in sizes)


def _is_matrix_of_symbolic_size(args: Sequence[Any], _: Mapping[str, Any]) -> bool:
    x = args[0]
    return x.dim() == 2 and any(isinstance(size, torch.SymInt) for size in x.shape)


def _has_signals_of_symbolic_length(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a length is symbolic and the arguments are valid; the usual function raises the errors."""
    try:
        given = inspect.signature(_is_taken).bind(*args, **kwargs)
    except TypeError:
        return False
    return _is_taken(*given.args, **given.kwargs)


def _is_taken(
    input: Any,
    n_fft: Any,
    hop_length: Any = None,
    win_length: Any = None,
    window: Any = None,
    center: Any = True,
    normalized: Any = False,
    onesided: Any = None,
    length: Any = None,
    return_complex: Any = False,
) -> bool:
    if not isinstance(length, torch.SymInt) or return_complex or onesided not in (None, True):
        return False
    if type(n_fft) is not int:
        return False
    hop, width = n_fft // 4 if hop_length is None else hop_length, n_fft if win_length is None else win_length
    if not (type(hop) is int and type(width) is int) or not 0 < hop <= width <= n_fft or n_fft < 3:
        return False
    fits = window is None or (window.shape == (width,) and window.is_floating_point())
    return fits and input.dim() in (2, 3) and input.is_complex() and input.shape[-2] == n_fft // 2 + 1


def _has_symbolic_numbers(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    data = args[0] if args else kwargs.get("data")
    numbers = data if isinstance(data, (list, tuple)) else [data]
    symbolic = (torch.SymInt, torch.SymFloat)
    is_flat = all(type(one) in (int, float, *symbolic) for one in numbers)
    return is_flat and any(isinstance(one, symbolic) for one in numbers)


def _always(_: Sequence[Any], __: Mapping[str, Any]) -> bool:
    """For a function that reads data too."""
    return True


GET_ITEM: Final = Replacement(get_item, has_number)
SET_ITEM: Final = Replacement(set_item, has_number)
REPLACEMENTS: Final[Mapping[Any, Replacement]] = {
    **{one: Replacement(rule, functools.partial(takes, rule)) for one, rule in rules().items()},
    **{
        one: Replacement(run, has_symbolic_factor if one is torch.nn.functional.interpolate else has_symbolic_float)
        for one, run in python_functions().items()
    },
    torch.combinations: Replacement(combinations, takes_combinations),
    torch.diff: Replacement(diff, takes_diff),
    torch.Tensor.diff: Replacement(diff, takes_diff),
    torch.gradient: Replacement(gradient, takes_gradient),
    torch.linalg.matrix_norm: Replacement(matrix_norm, takes_matrix_norm),
    torch.linspace: Replacement(linspace, _has_symbolic_steps),
    torch.logspace: Replacement(logspace, _has_floating_steps),
    torch.hamming_window: Replacement(hamming_window, _has_symbolic_number),
    torch.hann_window: Replacement(hann_window, _has_symbolic_number),
    torch.bartlett_window: Replacement(bartlett_window, _has_symbolic_number),
    torch.blackman_window: Replacement(blackman_window, _has_symbolic_number),
    torch.kaiser_window: Replacement(kaiser_window, _has_symbolic_number),
    torch.fft.fftfreq: Replacement(fftfreq, _has_symbolic_number),
    torch.fft.rfftfreq: Replacement(rfftfreq, _has_symbolic_number),
    torch.triu_indices: Replacement(triu_indices, functools.partial(_leaves_a_triangle, True)),
    torch.tril_indices: Replacement(tril_indices, functools.partial(_leaves_a_triangle, False)),
    torch.nn.functional.one_hot: Replacement(one_hot, _has_symbolic_classes),
    torch.adaptive_avg_pool1d: Replacement(adaptive_avg_pool1d, _has_symbolic_windows),
    torch.nn.functional.affine_grid: Replacement(affine_grid, _has_symbolic_image),
    torch.kron: Replacement(kron, _has_symbolic_sizes),
    torch.Tensor.kron: Replacement(kron, _has_symbolic_sizes),
    torch.istft: Replacement(istft, _has_signals_of_symbolic_length),
    torch.Tensor.istft: Replacement(istft, _has_signals_of_symbolic_length),
    torch.as_tensor: Replacement(as_tensor, _has_symbolic_numbers),
    PAD_PACKED: Replacement(pad_packed, _always),
    PAD: Replacement(pad, _has_symbolic_value),
    torch.nn.functional.pad: Replacement(pad, _has_symbolic_value),
    torch.Tensor.__getitem__: GET_ITEM,
    torch.Tensor.__setitem__: SET_ITEM,
    torch.Tensor.fill_diagonal_: Replacement(fill_diagonal_, _is_matrix_of_symbolic_size),
}


_REPLACED: Final = {replacement.function: function for function, replacement in REPLACEMENTS.items()}


def replaced_by(function: Any) -> Any:
    """The function of PyTorch that a replacement stands for; any other function itself."""
    return _REPLACED.get(function, function) if callable(function) else function


def replaced(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The function to be traced for one of PyTorch, of these arguments: in most cases that one."""
    found = REPLACEMENTS.get(function)
    return function if found is None or not found.applies(args, kwargs) else found.function
