"""Code around models: losses, sampling, decoding, signals, linear algebra, numpy. Each against eager at three sizes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Categorical, Dirichlet, MultivariateNormal, Normal, kl_divergence
from trials import Inputs, assert_as_eager

Made = tuple[Any, Inputs]
ROWS = (3, 5, 1)


def _rows(*widths: int, gradients: bool = True) -> Inputs:
    widths = widths or (4,)
    return [tuple(torch.randn(n, width, requires_grad=gradients) for width in widths) for n in ROWS]


def gaussians() -> Made:
    def program(mean: Tensor, scale: Tensor) -> Any:
        posterior, prior = Normal(mean, scale.exp()), Normal(torch.zeros_like(mean), torch.ones_like(scale))
        drawn = posterior.rsample()
        return drawn, posterior.log_prob(drawn), kl_divergence(posterior, prior), posterior.entropy()

    return program, _rows(3, 3)


def categories() -> Made:
    def program(logits: Tensor) -> Any:
        policy = Categorical(logits=logits)
        actions = policy.sample()
        return actions, policy.log_prob(actions), policy.entropy()

    return program, _rows()


def correlated_gaussians() -> Made:
    def program(mean: Tensor, factor: Tensor) -> Any:
        law = MultivariateNormal(mean, scale_tril=factor.tril() + 3 * torch.eye(factor.shape[-1]))
        drawn = law.rsample()
        return drawn, law.log_prob(drawn), Dirichlet(mean.exp()).log_prob(drawn.softmax(-1))

    return program, [(torch.randn(n, requires_grad=True), torch.randn(n, n)) for n in (3, 5, 2)]


def contrastive_loss() -> Made:
    def program(a: Tensor, b: Tensor) -> Tensor:
        logits = F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).T / 0.07
        own = torch.arange(len(a))
        return (F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own)) / 2

    return program, _rows(4, 4)


def hardest_triplets() -> Made:
    def program(x: Tensor, y: Tensor) -> Tensor:
        distances, same = torch.cdist(x, x), y[:, None] == y
        return F.relu((distances * same).amax(1) - (distances + 1e6 * same).amin(1) + 0.2).mean()

    return program, [(torch.randn(n, 4), torch.arange(n) % 2) for n in (4, 6, 3)]


def vector_quantisation() -> Made:
    codes = torch.randn(7, 4)

    def program(z: Tensor) -> Any:
        chosen = torch.cdist(z, codes).argmin(-1)
        nearest = codes[chosen]
        return z + (nearest - z).detach(), F.mse_loss(z, nearest), torch.bincount(chosen, minlength=7)

    return program, _rows()


def fake_quantisation() -> Made:
    def program(x: Tensor) -> Any:
        step = x.abs().amax() / 127
        zero, zeros = torch.zeros((), dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
        whole = torch.fake_quantize_per_tensor_affine(x, step.detach(), zero, -128, 127)
        rows = torch.fake_quantize_per_channel_affine(x, torch.full((4,), 0.1), zeros, 1, -128, 127)
        return whole, rows, x + ((x / step).round().clamp(-128, 127) * step - x).detach()

    return program, _rows()


def nucleus_sampling() -> Made:
    def program(logits: Tensor) -> Tensor:
        logits = logits / 0.8
        logits = logits.masked_fill(logits < logits.topk(3).values[:, -1:], -math.inf)
        ordered, places = logits.sort(descending=True)
        before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
        dropped = torch.zeros_like(before > 0.9).scatter(1, places, before > 0.9)
        return torch.multinomial(logits.masked_fill(dropped, -math.inf).softmax(-1), 1)

    return program, _rows(6, gradients=False)


def beam_search() -> Made:
    scores_of, embedding = nn.Linear(6, 6).requires_grad_(False), nn.Embedding(6, 6).requires_grad_(False)

    def program(prompt: Tensor) -> Any:
        scores, beams = torch.zeros(prompt.shape[0], 2), prompt[:, None].expand(-1, 2, -1)
        for _ in range(3):
            now = F.log_softmax(scores_of(embedding(beams).mean(2)), -1) + scores[..., None]
            scores, chosen = now.flatten(1).topk(2)
            kept = beams.gather(1, (chosen // 6)[..., None].expand(-1, -1, beams.shape[2]))
            beams = torch.cat([kept, (chosen % 6)[..., None]], -1)
        return beams, scores

    return program, [(torch.randint(0, 6, shape),) for shape in ((2, 3), (3, 5), (1, 2))]


def boxes_that_overlap() -> Made:
    """Non-maximum suppression in a loop."""

    def overlap(a: Tensor, b: Tensor) -> Tensor:
        low, high = torch.maximum(a[:, None, :2], b[None, :, :2]), torch.minimum(a[:, None, 2:], b[None, :, 2:])
        shared = (high - low).clamp(min=0).prod(-1)
        areas = [(x[:, 2:] - x[:, :2]).prod(-1) for x in (a, b)]
        return shared / (areas[0][:, None] + areas[1] - shared)

    def program(boxes: Tensor, scores: Tensor) -> Any:
        order = scores.argsort(descending=True)
        covers, keep = overlap(boxes[order], boxes[order]) > 0.3, torch.ones(len(boxes), dtype=torch.bool)
        for i in range(len(boxes)):
            keep = keep & ~(covers[i] & keep[i] & (torch.arange(len(boxes)) > i))
        return order[keep], boxes[order[keep]]

    corners = [torch.rand(n, 2) for n in (4, 6, 5)]
    return program, [(torch.cat([c, c + torch.rand(len(c), 2)], 1), torch.rand(len(c))) for c in corners]


def policy_gradient() -> Made:
    """Episodes end when they end: each has a length of its own."""

    def program(logits: Tensor, actions: Tensor, rewards: Tensor) -> Tensor:
        chosen = F.log_softmax(logits, -1).gather(1, actions[:, None])[:, 0]
        returns = rewards.flip(0).cumsum(0).flip(0)
        return -(chosen * (returns - returns.mean()) / (returns.std() + 1e-6)).mean()

    return program, [(torch.randn(n, 2, requires_grad=True), torch.arange(n) % 2, torch.randn(n)) for n in (5, 9, 2)]


def spectrograms() -> Made:
    window = torch.hann_window(16)

    def program(x: Tensor) -> Any:
        bins = torch.stft(x, 16, 8, window=window, return_complex=True)
        return (bins.abs() ** 2 + 1e-5).log(), torch.istft(bins, 16, 8, window=window, length=x.shape[-1])

    return program, [(torch.randn(*shape, requires_grad=True),) for shape in ((2, 64), (3, 100), (1, 50))]


def filters_in_frequency() -> Made:
    def program(x: Tensor) -> Any:
        bins = torch.fft.rfft(x)
        bins = bins * torch.exp(1j * torch.arange(bins.shape[-1]))
        return torch.fft.irfft(bins, n=x.shape[-1]), bins.abs(), bins.angle()

    return program, [(torch.randn(2, n),) for n in (8, 10, 7)]


def factorisations() -> Made:
    linalg = torch.linalg

    def program(a: Tensor, b: Tensor) -> Any:
        positive = a @ a.mT + 3 * torch.eye(a.shape[-1])
        lower, (q, r) = linalg.cholesky(positive), linalg.qr(a)
        return (
            lower,
            q @ r,
            linalg.solve(positive, b),
            linalg.slogdet(positive),
            linalg.inv(positive),
            linalg.eigvalsh(positive),
            linalg.svdvals(a),
            torch.cholesky_solve(b, lower),
            linalg.solve_triangular(lower, b, upper=False),
            linalg.matrix_exp(a * 0.1),
        )

    return program, [(torch.randn(2, n, n), torch.randn(2, n, 2)) for n in ROWS]


def special_functions() -> Made:
    special = torch.special

    def program(x: Tensor) -> Any:
        above = x.exp() + 1.5
        return (
            special.erfcx(x),
            special.i0e(x),
            special.ndtri(x.sigmoid()),
            special.zeta(above, above),
            special.log_ndtr(x),
            special.xlog1py(x, above),
            special.digamma(above),
            special.bessel_j0(x),
            special.sinc(x),
            special.entr(above),
            special.gammainc(above, above),
            special.polygamma(2, above),
        )

    return program, _rows(gradients=False)


def einsums() -> Made:
    def program(q: Tensor, k: Tensor, v: Tensor) -> Any:
        weights = torch.einsum("bhid,bhjd->bhij", q, k).softmax(-1)
        mixed = torch.einsum("bhij,bhjd->bihd", weights, v)
        return mixed.flatten(-2), torch.einsum("ii->i", weights[0, 0]), torch.einsum("...i,...j->...ij", q, k)

    return program, [
        tuple(torch.randn(b, 2, n, 4, requires_grad=True) for _ in "qkv") for b, n in ((2, 3), (3, 5), (1, 2))
    ]


def numpy_inside() -> Made:
    def program(x: Tensor) -> Tensor:
        a = x.numpy()
        b = np.sin(a) + np.sum(a, axis=-1, keepdims=True)
        return torch.from_numpy(np.where(b > 0, b, -b)) * 2

    return program, _rows(gradients=False)


def lists_of_tensors() -> Made:
    def program(given: list[Tensor]) -> Any:
        found = []
        for x in given:
            if x.shape[0] > 3:
                found.append(x[:3].mean(0))
            else:
                found.append(x.sum(0) if x.shape[0] % 2 else x.amax(0))
        padded = nn.utils.rnn.pad_sequence(given, batch_first=True, padding_value=-1.0)
        return torch.stack(found), padded, {"rows": sum(x.shape[0] for x in given)}

    return program, [([torch.randn(n, 4) for n in sizes],) for sizes in ((2, 4, 3), (5, 2), (7, 6, 5, 4))]


def segments() -> Made:
    def program(x: Tensor, lengths: Tensor) -> Any:
        owner = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
        return torch.segment_reduce(x, "sum", lengths=lengths), owner, x * owner

    return program, [(torch.randn(sum(n)), torch.tensor(n)) for n in ([2, 3], [1, 2, 4], [3])]


FAST = (numpy_inside, policy_gradient)
PROGRAMS: tuple[Callable[[], Made], ...] = (
    *FAST,
    gaussians,
    contrastive_loss,
    categories,
    correlated_gaussians,
    hardest_triplets,
    vector_quantisation,
    fake_quantisation,
    nucleus_sampling,
    beam_search,
    boxes_that_overlap,
    spectrograms,
    filters_in_frequency,
    factorisations,
    special_functions,
    einsums,
    lists_of_tensors,
    segments,
)


@pytest.mark.parametrize("make", [m if m in FAST else pytest.param(m, marks=pytest.mark.long) for m in PROGRAMS])
def test_programs(make: Callable[[], Made]) -> None:
    assert_as_eager(make)
