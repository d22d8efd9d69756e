"""Functions whose C++ takes an integer: one graph for all sizes, as in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import symshape

Tensor = torch.Tensor


def spaced(x: Tensor) -> tuple[Tensor, ...]:
    rows, columns = x.shape
    return (
        torch.linspace(-1.0, 1.0, columns, dtype=x.dtype, device=x.device) * x,
        torch.linspace(start=0.1, end=rows - 1, steps=rows),
        torch.linspace(x.new_full((), 3), -0.7, rows * columns, dtype=torch.float64),
        torch.linspace(0, 10, rows + 1, dtype=torch.int64),
        torch.linspace(0, 1, 5),
    )


def filled(x: Tensor) -> tuple[Tensor, ...]:
    rows = x.shape[0]
    product, tall = x @ x.t(), torch.cat([x, x, x, x])
    product.fill_diagonal_(0.5)
    torch.Tensor.fill_diagonal_(tall, 2, wrap=True)
    assert x.clone().fill_diagonal_(1).shape[0] == rows
    return product, tall, x.clone().fill_diagonal_(fill_value=3).sin(), (x > 0).fill_diagonal_(True)


def powers(x: Tensor) -> tuple[Tensor, ...]:
    rows, columns = x.shape
    return torch.logspace(-1, 2, rows), torch.logspace(0.5, -2, steps=columns, base=2.0, dtype=torch.float64)


def windows(x: Tensor) -> tuple[Tensor, ...]:
    rows, columns = x.shape
    made = (torch.hann_window, torch.hamming_window, torch.blackman_window, torch.bartlett_window, torch.kaiser_window)
    return (
        *(window(rows, dtype=torch.float64) for window in made),
        *(window(columns, periodic=False) for window in made),
        torch.hann_window(window_length=rows + 1),
        torch.hamming_window(rows, False, 0.6, 0.4) + torch.kaiser_window(rows, True, beta=5.0),
    )


def combined(x: Tensor) -> tuple[Tensor, ...]:
    y = x.sum(1).cos()
    return (
        torch.combinations(y),
        torch.combinations(y, 3).prod(1),
        torch.combinations(input=y, r=1),
        torch.combinations(torch.arange(x.shape[0]), with_replacement=True),
        torch.combinations(y, 3, True).sum(),
    )


def triangles(x: Tensor) -> tuple[Tensor, ...]:
    rows = x.shape[0]
    i, j = torch.triu_indices(rows, rows, offset=1)
    return (
        *(torch.triu_indices(rows, rows, offset=offset) for offset in (0, 1, 3)),
        *(torch.tril_indices(rows, rows, offset, dtype=torch.int32) for offset in (0, -1, -2)),
        (x @ x.t())[i, j],
    )


def frequencies(x: Tensor) -> tuple[Tensor, ...]:
    rows, columns = x.shape[0] + 1, x.shape[1] + 1
    return (
        torch.fft.fftfreq(rows),
        torch.fft.rfftfreq(columns, d=0.5),
        torch.fft.fftfreq(columns, 2.0, dtype=torch.float64),
    )


def classes(x: Tensor) -> tuple[Tensor, ...]:
    rows, columns = x.shape
    places = torch.arange(rows * columns).view(rows, columns)
    return F.one_hot(places % (rows + 1), rows + 1), F.one_hot(places.t(), num_classes=rows * columns + 1) * 2


def numbers(x: Tensor) -> tuple[Tensor, ...]:
    rows, columns = x.shape
    return (
        torch.as_tensor([rows, columns, 7]),
        torch.as_tensor((rows, 1.5)) * 2,
        torch.as_tensor(columns / 4, dtype=torch.float64),
        torch.as_tensor(data=[rows], device="cpu", dtype=torch.int32),
    )


def averages(x: Tensor) -> tuple[Tensor, ...]:
    columns = x.shape[1]
    return F.adaptive_avg_pool1d(x, columns // 2 + 1), F.adaptive_avg_pool1d(x[None], output_size=columns + 2)


def kroneckers(x: Tensor) -> tuple[Tensor, ...]:
    pair, one = torch.tensor([1.0, -2.0]), x.new_full((), 3.0)
    return torch.kron(x, x), x.kron(pair), torch.kron(pair[:, None, None], x), torch.kron(x, other=one)


def padded(x: Tensor) -> tuple[Tensor, ...]:
    rows, columns = x.shape
    numbers = torch.arange(columns)
    return (
        F.pad(x, (1, 2), value=columns - 1),
        F.pad(x, (0, rows, 1, 0), "constant", 1 / (columns + 1)),
        F.pad(input=numbers, pad=(2, 0), value=-rows),
        F.pad(numbers, [0, 1], value=rows),
    )


def blocks(x: Tensor) -> tuple[Tensor, ...]:
    whole = torch.arange(6).view(2, 3)
    return torch.block_diag(x, x.t(), x[0] * 2), torch.block_diag(x.sum(), whole, x, whole), torch.block_diag(x)


def chains(x: Tensor) -> tuple[Tensor, ...]:
    dot, y = torch.linalg.multi_dot, x.t()
    return dot([x, y, x]), dot([x[0], y, x, y]), dot((y, x, y, x, y[:, 0])), dot([x[0], y, y[0]])


@pytest.mark.parametrize("compile", [symshape.compile, symshape.jit])
@pytest.mark.parametrize(("function", "most"), [(blocks, 1), (chains, 2)])
def test_lists_of_matrices(function: Callable[..., Any], most: int, compile: Callable[..., Any]) -> None:
    """Tall matrices and wide ones are multiplied in another order."""
    compiled: Any = compile(function)
    torch._dynamo.utils.counters.clear()
    for rows, columns in ((5, 3), (7, 2), (16, 3), (3, 9), (2, 31)):
        found = []
        for run in (compiled, function):
            x = torch.arange(rows * columns).view(rows, columns).sin().requires_grad_()
            results = run(x)
            sum(one.square().sum() for one in results).backward()
            found.append((*results, x.grad))
            assert [one.stride() for one in results] == [one.stride() for one in found[0][:-1]]
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
    stats = torch._dynamo.utils.counters["stats"]
    assert (len(compiled.entries) if compile is symshape.jit else stats["unique_graphs"]) <= most


def spoken(x: Tensor) -> tuple[Tensor, ...]:
    """Signals that end where the frames do, before, and behind."""
    window, n = torch.hann_window(8), x.shape[-1]
    frames = torch.stft(x, 8, window=window, return_complex=True)
    others = torch.stft(x, 8, hop_length=3, window=torch.ones(8), normalized=True, return_complex=True)
    narrow = torch.stft(x, 8, hop_length=3, win_length=6, window=torch.hann_window(6), return_complex=True)
    return (
        torch.istft(frames, 8, window=window, length=n),
        frames[0].istft(8, window=window, length=n - 1),
        torch.istft(others, 8, 3, normalized=True, length=n + 9),
        torch.istft(others, 8, 3, None, None, False, True, True, n // 2),
        torch.istft(narrow, 8, 3, 6, torch.hann_window(6), length=n - 8),
    )


@pytest.mark.parametrize("compile", [symshape.compile, symshape.jit])
def test_lengths_of_signals(compile: Callable[..., Any]) -> None:
    compiled: Any = compile(spoken)
    torch._dynamo.utils.counters.clear()
    for n in (40, 23, 16, 101):
        found = []
        for run in (compiled, spoken):
            torch.manual_seed(n)
            x = torch.randn(2, n, requires_grad=True)
            results = run(x)
            sum(one.square().sum() for one in results).backward()
            found.append((*results, x.grad))
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
    graphs = (
        compiled.entries if compile is symshape.jit else range(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    )
    assert len(graphs) == 1


def test_no_window_reaches_a_sample() -> None:
    """Eager's error."""

    def function(x: Tensor) -> Tensor:
        frames = torch.stft(x, 8, window=torch.hann_window(8), center=False, return_complex=True)
        return torch.istft(frames, 8, window=torch.hann_window(8), center=False, length=x.shape[-1])

    for run in (function, symshape.compile(function)):
        with pytest.raises(RuntimeError, match="window overlap add min: 1"):
            run(torch.randn(2, 40))


def complex_numbers(x: Tensor) -> Tensor:
    return torch.linspace(0, 1j, x.shape[0]).real


@pytest.mark.sample(3)
@pytest.mark.parametrize("compile", [symshape.compile, symshape.jit])
@pytest.mark.parametrize(
    "function",
    [spaced, filled, powers, windows, triangles, combined, frequencies, classes, numbers, kroneckers, padded],
)
def test_values(function: Callable[..., Any], compile: Callable[..., Any]) -> None:
    compiled: Any = compile(function)
    torch._dynamo.utils.counters.clear()
    for rows, columns in ((5, 3), (1, 7), (2, 1), (3, 0), (0, 2), (16, 33), (101, 10)):
        x = torch.randn(rows, columns)
        actual, expected = compiled(x), function(x)
        torch.testing.assert_close(actual, expected, rtol=2e-6, atol=2e-6)
        assert [t.stride() for t in actual if t.numel()] == [t.stride() for t in expected if t.numel()]
    graphs = (
        compiled.entries if compile is symshape.jit else range(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    )
    assert len(graphs) == 1


@pytest.mark.parametrize("compile", [symshape.compile, symshape.jit])
def test_windows_in_a_number_of_the_sizes(compile: Callable[..., Any]) -> None:
    """Eager mode refuses averages of nothing."""
    compiled: Any = compile(averages)
    torch._dynamo.utils.counters.clear()
    for rows, columns in ((5, 3), (3, 7), (2, 1), (16, 33)):  # one channel is a layout of its own
        inputs = [torch.arange(rows * columns).view(rows, columns).sin().requires_grad_() for _ in range(2)]
        found, expected = compiled(inputs[0]), averages(inputs[1])
        torch.testing.assert_close(found, expected)
        for results in (found, expected):
            sum(t.square().sum() for t in results).backward()
        torch.testing.assert_close(inputs[0].grad, inputs[1].grad)
    stats = torch._dynamo.utils.counters["stats"]
    assert (len(compiled.entries) if compile is symshape.jit else stats["unique_graphs"]) == 1


def test_half_types_are_rounded_once() -> None:
    """Eager mode rounds the step, and each product and sum."""
    compiled = symshape.compile(lambda x: torch.linspace(2, -5, x.shape[0], dtype=torch.bfloat16))
    for size in (7, 1, 100):
        assert compiled(torch.zeros(size)).equal(torch.linspace(2, -5, size).bfloat16())
    window = symshape.compile(lambda x: torch.bartlett_window(x.shape[0], dtype=torch.bfloat16))
    for size in (700, 1001):  # from 257 on there are places that are no numbers of the type
        assert window(torch.zeros(size)).equal(torch.bartlett_window(size).bfloat16())


def test_gradients() -> None:
    def function(x: Tensor) -> Tensor:
        return ((x * 2).fill_diagonal_(1.0) * torch.linspace(0, 1, x.shape[1])).sum()

    compiled = symshape.compile(function)
    for size in (4, 1, 7):
        found = []
        for run in (compiled, function):
            x = torch.ones(3, size, requires_grad=True)
            run(x).backward()
            found.append(x.grad)
        torch.testing.assert_close(*found)


def test_inputs_are_written_in_place() -> None:
    compiled = symshape.compile(lambda x: x.fill_diagonal_(2) + 1)
    for rows, columns in ((3, 4), (1, 1), (6, 2)):
        x = torch.zeros(rows, columns)
        found = compiled(x)
        assert x.equal(torch.zeros(rows, columns).fill_diagonal_(2)) and found.equal(x + 1)


def test_what_is_left_as_it_is() -> None:
    compiled = symshape.compile(complex_numbers)
    for size in (4, 5):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), complex_numbers(x))
    with pytest.raises(RuntimeError, match="number of steps must be non-negative"):
        symshape.compile(lambda x: torch.linspace(0, 1, x.shape[0] - 5))(torch.randn(3))


@pytest.mark.parametrize(("value", "message"), [(-1, "must be non-negative"), (5, "must be smaller than num_classes")])
def test_values_that_are_no_class(value: int, message: str) -> None:
    compiled = symshape.compile(lambda x, i: F.one_hot(i, x.shape[0]) * x)
    for size in (5, 4):
        assert compiled(torch.ones(size), torch.tensor([2, 1])).sum() == 2
    with pytest.raises(RuntimeError, match=message):
        compiled(torch.ones(5), torch.tensor([2, value]))


@pytest.mark.parametrize("counts", [(-1, 5, -1, 7), (6, -1, 4)])
def test_a_number_of_classes_may_be_left_to_the_data(counts: tuple[int, ...]) -> None:
    compiled = symshape.compile(lambda i, count: F.one_hot(i, num_classes=count), dynamic=True)
    for index in (torch.tensor(3), torch.tensor([2, 0, 3])):
        for count in counts:
            assert torch.equal(compiled(index, count), F.one_hot(index, count))


def test_classes_that_are_in_the_data_have_eager_modes_layout() -> None:
    compiled = symshape.compile(lambda i: F.one_hot(i.t()))
    x = torch.arange(12).view(3, 4)
    actual, expected = compiled(x), F.one_hot(x.t())
    assert actual.equal(expected) and actual.stride() == expected.stride()
