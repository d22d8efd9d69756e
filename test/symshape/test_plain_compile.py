"""Plain ``torch.compile(backend="symshape")``: frames are traced by our rules, and one graph serves all sizes."""

from __future__ import annotations

import functools
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.callback import callback_handler
from torch._dynamo.utils import counters

from symshape.frontend.patches.patch import is_traced_by_our_rules

plain = functools.partial(torch.compile, backend="symshape")
SIZES = (3, 0, 1, 2, 7, 64, 1009)


@pytest.fixture(autouse=True)
def _counted() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def graphs() -> int:
    return int(counters["stats"]["unique_graphs"])


def slopes(x: torch.Tensor) -> torch.Tensor:
    """The biases of ALiBi, from a buffer of the largest length."""
    length = x.shape[1]
    distance = torch.arange(1024)[None] - torch.arange(1024)[:, None]
    bias = 2.0 ** -torch.arange(1.0, 3.0)[:, None, None] * distance
    return torch.softmax(x @ x.transpose(1, 2) + bias[:, :length, :length], -1) @ x


def kernel(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A Gaussian kernel, computed as one product of augmented points."""
    x, y = x - x.mean(0), y - x.mean(0)
    left = torch.cat([-2.0 * x, x.square().sum(-1, keepdim=True), torch.ones_like(x[:, :1])], -1)
    right = torch.cat([y, torch.ones_like(y[:, :1]), y.square().sum(-1, keepdim=True)], -1)
    return (left @ right.mT).clamp_min_(0).div(-2).exp_()


def boxes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    corner = torch.min(x[:, None, 2:], y[:, 2:]) - torch.max(x[:, None, :2], y[:, :2])
    return corner.clamp(min=0).prod(-1)


def advantages(rewards: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return (rewards - values).flip(0).cumsum(0).flip(0)


# name: function, shapes of its operands for a size, sizes
PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[int], list[tuple[int, ...]]], tuple[int, ...]]] = {
    "vmap": (lambda x, y: torch.vmap(lambda row: (row * y).sum() + row.max())(x), lambda n: [(n, 4), (4,)], SIZES),
    "vmap of a convolution": (
        lambda x, w: torch.vmap(lambda row: F.conv1d(row[None], w)[0])(x),
        lambda n: [(n, 3, 8), (2, 3, 3)],
        SIZES[:1] + SIZES[2:],
    ),
    "quantile": (lambda x: torch.quantile(x, 0.3, dim=0), lambda n: [(n, 5)], SIZES[:1] + SIZES[2:]),
    "histc": (lambda x: torch.histc(x, 10, -2, 2), lambda n: [(n,)], SIZES),
    "bilinear": (F.bilinear, lambda n: [(n, 4), (n, 5), (3, 4, 5)], SIZES[:1] + SIZES[2:]),
    "stft": (
        lambda x, w: torch.view_as_real(torch.stft(x, 64, 16, window=w, return_complex=True)),
        lambda n: [(2, 64 + n), (64,)],
        SIZES,
    ),
    "contiguous": (lambda x: x.transpose(1, 2).contiguous() + 1, lambda n: [(n, 4, 5)], SIZES),
    "biases by distance": (slopes, lambda n: [(2, n, 4)], SIZES[:1] + SIZES[2:-1]),
    "kernel": (kernel, lambda n: [(n, 3), (5, 3)], SIZES),
    "boxes": (boxes, lambda n: [(n, 4), (5, 4)], SIZES),
    "advantages": (advantages, lambda n: [(n, 3), (n, 3)], SIZES),
    "halves": (lambda x: torch.mul(*x.chunk(2, -1)), lambda n: [(n, 3, 8)], SIZES),
    "products": (lambda x, y: torch.einsum("nid,njd->nij", x, y), lambda n: [(n, 3, 8), (n, 5, 8)], SIZES),
    "two sizes": (lambda x, y: x.softmax(1) @ y, lambda n: [(n, n // 2 + 1), (n // 2 + 1, 4)], SIZES),
}


_not_in_2_11 = pytest.mark.xfail(
    torch.__version__ < "2.12", raises=RuntimeError, reason="quantile of 2.11 asks for values"
)


@pytest.mark.parametrize("dynamic", (True, None))
@pytest.mark.parametrize(
    "program", [pytest.param(p, id=n, marks=[_not_in_2_11] * (n == "quantile")) for n, p in PROGRAMS.items()]
)
def test_one_graph_serves_all_sizes(program: Any, dynamic: bool | None) -> None:
    """Without ``dynamic=True`` the first graph is for the sizes of the first call."""
    function, shapes, sizes = program
    compiled = plain(function, dynamic=dynamic, fullgraph=True)
    for n in sizes:
        operands = [torch.randn(shape) for shape in shapes(n)]
        torch.testing.assert_close(compiled(*operands), function(*operands), equal_nan=True)
    assert graphs() == (1 if dynamic else 2)


def test_gradients_of_all_sizes() -> None:
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    compiled = plain(layer, dynamic=True)
    for batch, length in ((3, 5), (1, 5), (4, 1), (1, 1), (2, 9)):
        x = torch.randn(batch, length, 8)
        found = []
        for run in (compiled, layer):
            layer.zero_grad()
            run(x).square().sum().backward()
            found.append([p.grad.clone() for p in layer.parameters()])
        torch.testing.assert_close(*found)
    assert graphs() == 1


def test_equal_sizes_of_the_first_call() -> None:
    function = lambda x, y: x.sum(0) + y.mean()  # noqa: E731
    compiled = plain(function, dynamic=True)
    for rows, others in ((4, 4), (4, 5), (1, 0), (1, 1)):
        x, y = torch.randn(rows, 3), torch.randn(others, 3)
        torch.testing.assert_close(compiled(x, y), function(x, y), equal_nan=True)
    assert graphs() == 1


def test_a_call_that_is_a_view_at_some_sizes() -> None:
    """Where it shows, the frame is traced again, and a size of 1 has its own graph."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.reshape(-1)
        y.add_(1)
        return x * 2

    compiled = plain(function, dynamic=True)
    for rows, columns in ((4, 3), (1, 3), (4, 1), (5, 2)):
        x = torch.arange(float(rows * columns)).reshape(columns, rows).t()
        y = torch.arange(float(rows * columns)).reshape(columns, rows).t()
        torch.testing.assert_close(compiled(x), function(y))
        torch.testing.assert_close(x, y)


def test_frames_of_other_backends_are_traced_by_their_rules() -> None:
    ours = []

    def backend(gm: torch.fx.GraphModule, _: Any) -> Any:
        ours.append(is_traced_by_our_rules())
        return gm

    function = lambda x: x.cumsum(0)  # noqa: E731
    plain(function, dynamic=True)(torch.randn(3, 4))
    torch.compile(function, backend=backend, dynamic=True)(torch.randn(3, 4))
    assert ours == [False] and not is_traced_by_our_rules()


def test_nothing_stays_in_force_where_a_frame_fails() -> None:
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        plain(lambda x, y: x @ y, dynamic=True)(torch.randn(2, 3), torch.randn(4, 5))
    assert not is_traced_by_our_rules()


def routed(x: torch.Tensor) -> torch.Tensor:
    """A sum over experts, each for the rows that chose it. There is no graph before the loop."""
    for expert in range(3):
        (rows,) = torch.where(x[:, 0] > expert)
        x = x.index_add(0, rows, x[rows] * expert)
    return x


def test_rules_are_in_force_after_a_reset() -> None:
    """Dynamo forgets the functions that it calls when it begins to compile, but not ours: a graph break in the loop
    would leave the whole function to eager mode, and the backend would not be called."""
    for _ in range(2):
        torch._dynamo.reset()
        counters.clear()
        compiled = plain(routed, dynamic=True)
        for rows in (4, 1, 0, 7):
            x = torch.randn(rows, 3) * 3
            torch.testing.assert_close(compiled(x), routed(x))
        assert graphs() == 1 and not counters["graph_break"]
    assert len(callback_handler.start_callbacks) == 1


def test_values_are_part_of_the_graph_and_sizes_as_dynamic_says() -> None:
    """``item`` does not break the graph; without ``dynamic`` a size is a constant until it changes."""
    compiled = plain(lambda x: x + x.sum().item())
    for rows, expected in ((3, 1), (4, 2), (5, 2)):
        x = torch.ones(rows)
        torch.testing.assert_close(compiled(x), x + rows)
        assert graphs() == expected
    assert not counters["graph_break"]


def test_numbers_of_numpy_are_those_of_eager_mode() -> None:
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return x + numpy.random.rand()

    compiled = plain(noisy, dynamic=True)
    for rows in (3, 1):
        numpy.random.seed(rows)
        expected = noisy(torch.ones(rows))
        numpy.random.seed(rows)
        torch.testing.assert_close(compiled(torch.ones(rows)), expected)


def test_recurrent_layers_are_part_of_the_graph() -> None:
    layer = torch.nn.GRU(3, 4, batch_first=True)
    compiled = plain(lambda x: layer(x.relu())[0] * 2, dynamic=True)
    for rows, length in ((2, 5), (1, 1), (3, 7)):
        x = torch.randn(rows, length, 3)
        torch.testing.assert_close(compiled(x), layer(x.relu())[0] * 2)
    assert graphs() == 1 and not counters["graph_break"]


@pytest.mark.parametrize(
    "of",
    [
        lambda x: 2 * x[x > 1],
        lambda x: torch.nonzero(x > 1) + 1,
        lambda x: torch.unique(x).sum(),
        lambda x: torch.masked_select(x.exp(), x > 1).sum(),
        lambda x: x.exp().repeat_interleave((x > 1).long()) + 1,
    ],
    ids=["mask", "nonzero", "unique", "masked_select", "repeat_interleave"],
)
def test_sizes_in_the_data(of: Any) -> None:
    """They are part of the graph, whatever Dynamo's settings say, and nothing falls back for it."""
    for options in ({}, {"fullgraph": True}):
        torch._dynamo.reset()
        counters.clear()
        compiled = plain(of, dynamic=True, options={"strict": True}, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for rows in (5, 1, 0, 13):
                x = torch.arange(float(rows))
                torch.testing.assert_close(compiled(x), of(x))
        assert graphs() == 1 and not counters["graph_break"]


@pytest.mark.parametrize("dynamic", [True, None])
def test_sizes_in_the_data_that_an_operator_of_the_users_says(dynamic: bool | None) -> None:
    """Run on random numbers, it has as many results as operands: that is not believed."""

    @torch.library.custom_op(f"symshape_tests::distinct_{dynamic}", mutates_args=())
    def distinct(x: torch.Tensor) -> torch.Tensor:
        return torch.unique(x)

    @distinct.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return x.new_empty(torch.library.get_ctx().new_dynamic_size())

    def program(x: torch.Tensor) -> torch.Tensor:
        return distinct((x * 2).round()) * 3

    compiled = plain(program, dynamic=dynamic)
    for rows in (6, 5, 2, 1, 0):
        x = torch.arange(rows) // 2 / 2
        torch.testing.assert_close(compiled(x), program(x))
    assert not counters["graph_break"]


def test_in_a_process_that_has_not_imported_us() -> None:
    program = """
        import torch
        from torch._dynamo.utils import counters
        compiled = torch.compile(lambda x, y: x.softmax(0) @ y, backend="symshape", dynamic=True, fullgraph=True)
        for rows in (3, 1, 0, 7):
            x, y = torch.randn(rows, 4), torch.randn(4, rows)
            torch.testing.assert_close(compiled(x, y), x.softmax(0) @ y)
        print(counters["stats"]["unique_graphs"])
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1"]


def written(y: torch.Tensor, mask: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    filled = y.clone()
    filled[mask] = x
    return filled, y.index_put((mask,), x.sum(), accumulate=True)


def test_gradients_whose_sizes_depend_on_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamo captures the writes by itself; their gradients select elements."""
    monkeypatch.setenv("SYMSHAPE_STRICT", "1")
    compiled = plain(written, dynamic=True)
    for size in (7, 1, 0, 64):
        y, mask = torch.randn(size, 3), torch.arange(size) % 3 == 0
        x = torch.randn(int(mask.sum()), 3)
        found = []
        for run in (compiled, written):
            given = [one.clone().requires_grad_() for one in (y, x)]
            results = run(given[0], mask, given[1])
            found.append((*results, *torch.autograd.grad([one.sin().sum() for one in results], given)))
        torch.testing.assert_close(*found)
    assert graphs() == 1
