"""`symshape.jit` of layers and functions whose Python code in PyTorch looks at data."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import symshape
from symshape.tools.measure import Graphs


def _layer(kind: type[torch.nn.Module]) -> Any:
    layer = kind(3, 4, batch_first=True)  # type: ignore[call-arg]

    def run(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        padded: torch.Tensor = pad_packed_sequence(layer(packed)[0], batch_first=True)[0]
        return padded

    return run


@pytest.mark.parametrize("kind", [torch.nn.GRU, torch.nn.RNN, torch.nn.LSTM])
def test_layers_over_packed_rows(kind: type[torch.nn.Module]) -> None:
    torch.manual_seed(0)
    run = _layer(kind)
    jitted = symshape.jit(run)
    for n in (5, 3, 1):
        x, lengths = torch.randn(3, n, 3, requires_grad=True), torch.tensor([1, n, max(n - 1, 1)])
        expected, actual = run(x, lengths), jitted(x, lengths)
        torch.testing.assert_close(actual, expected)
        grads = [torch.autograd.grad(y.sin().sum(), x) for y in (expected, actual)]
        torch.testing.assert_close(*grads)
    assert len(jitted.entries) == 1


def _padded_to(x: torch.Tensor, lengths: torch.Tensor, total: int) -> Any:
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(packed, batch_first=True, padding_value=2.0, total_length=total)


@pytest.mark.parametrize("compiler", [symshape.compile, symshape.jit])
def test_a_total_length(compiler: Any) -> None:
    compiled = compiler(_padded_to)
    with Graphs() as graphs:
        for n in (5, 2, 7):
            x, lengths = torch.randn(3, n, 2), torch.tensor([1, n, 1])
            torch.testing.assert_close(compiled(x, lengths, 9), _padded_to(x, lengths, 9))
        with pytest.raises((ValueError, RuntimeError), match="at least the length of the longest"):
            compiled(x, lengths, 6)
    breaks_at_checks = compiler is symshape.compile and torch.__version__ < "2.13"  # at each torch._check_value
    assert breaks_at_checks or not graphs.breaks and graphs.graphs <= 2


def test_a_decoder_with_a_mask_that_may_be_causal() -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerDecoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    decoder = torch.nn.TransformerDecoder(layer, 2)

    def decode(x: torch.Tensor, memory: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = decoder(x, memory, tgt_mask=mask)
        return found

    jitted = symshape.jit(decode)
    for n in (5, 3):
        x, memory = torch.randn(2, n, 8), torch.randn(2, 4, 8)
        for mask in (torch.nn.Transformer.generate_square_subsequent_mask(n), torch.zeros(n, n)):
            torch.testing.assert_close(jitted(x, memory, mask), decode(x, memory, mask), rtol=1e-4, atol=1e-5)
    assert len(jitted.entries) == 1


@pytest.mark.parametrize("sizes", [(4, 3), (4,), (4, 1)])
def test_gaussian_nll_loss(sizes: tuple[int, ...]) -> None:
    jitted = symshape.jit(F.gaussian_nll_loss)
    x, y, var = torch.randn(4, 3, requires_grad=True), torch.randn(4, 3), torch.rand(sizes, requires_grad=True)
    for options in ({}, {"full": True, "reduction": "none"}, {"reduction": "sum", "eps": 0.3}):
        expected, actual = F.gaussian_nll_loss(x, y, var, **options), jitted(x, y, var, **options)
        torch.testing.assert_close(actual, expected)
        grads = [torch.autograd.grad(one.sum(), (x, var)) for one in (expected, actual)]
        torch.testing.assert_close(*grads)
    with pytest.raises(ValueError, match="negative"):
        jitted(x, y, var - 1)


def test_bounds_of_slices_that_are_tensors() -> None:
    def part(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[:, n:] = 0.0
        return x[:n] * 2 + y[:n]

    jitted = symshape.jit(part)
    x = torch.randn(7, 5)
    for n in (3, 0, 5):
        torch.testing.assert_close(jitted(x, torch.tensor(n)), part(x, torch.tensor(n)))
    assert len(jitted.entries) == 1


def test_sizes_are_of_their_class() -> None:
    def sizes(x: torch.Tensor) -> Any:
        return x.shape, {"size": x.t().size()}, tuple(x.shape), x * 2

    jitted, alone = symshape.jit(sizes), symshape.jit(lambda x: x.shape)
    for n in (3, 5):
        x = torch.randn(n, 2)
        found = jitted(x)
        torch.testing.assert_close(found, sizes(x))
        assert type(alone(x)) is type(found[0]) is type(found[1]["size"]) is torch.Size and type(found[2]) is tuple
        assert alone(x) == x.shape
    assert len(jitted.entries) == len(alone.entries) == 1
