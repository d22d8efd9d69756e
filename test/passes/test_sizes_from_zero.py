"""A size that may be 0 costs no kernel, no library call and no buffer: what is compiled for sizes from 0 on is what is
compiled for sizes from 2 on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch_mlir import ir

import symshape
from symshape import dialects
from symshape.compiler import stage_pipelines
from symshape.options import Options
from symshape.passes.framework.base import PassContext
from symshape.passes.framework.manager import run_pipeline

Inputs = tuple[Any, ...]


def _batch() -> Inputs:
    return torch.randn(6, 8, requires_grad=True), torch.randint(0, 8, (6,))


def _heads() -> Inputs:
    return tuple(torch.randn(2, 4, 7, 8, requires_grad=True) for _ in range(3))


def _image() -> Inputs:
    return torch.randn(2, 3, 9, 11, requires_grad=True), torch.randn(4, 3, 3, 3, requires_grad=True)


def _masked_mean(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    mask = (t > 2)[:, None]
    return (x * mask).sum(0) / mask.sum().clamp(min=1)


def _normalised(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    return F.gelu(F.layer_norm(x, x.shape[-1:])) * F.softmax(x, -1) + t[:, None]


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], Inputs]]] = {
    "cross entropy": (lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), _batch),
    "largest": (lambda x, t: x.max(1).values * 2 + x.amin(1) + t, _batch),
    "gathered": (lambda x, t: x.log_softmax(-1).gather(1, t[:, None]).mean(), _batch),
    "embedding": (lambda x, t: F.embedding(t % 6, x * 2).tanh().var(0), _batch),
    "masked mean": (_masked_mean, _batch),
    "normalised": (_normalised, _batch),
    "joined": (lambda x, t: torch.cat([x, x.flip(0)]).cumsum(0) * torch.tril(x + x.sum(0)).sum(), _batch),
    "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True) + q, _heads),
    "pooled": (lambda x, w: F.avg_pool2d(F.max_pool2d(F.conv2d(x, w, padding=1), 3, 2, 1), 2), _image),
}


def _compiled_for(text: str, kind: str) -> tuple[Counter[str], list[str]]:
    """How many kernels and library calls there are, and the shapes of buffers."""
    context = ir.Context()
    dialects.load(context)
    with context, ir.Location.unknown():
        module = ir.Module.parse(text)
    options = Options()
    given = PassContext({"target": "cpu", "cpu": options.cpu, "kind": kind}, require=lambda *_: None)
    for stage, steps in stage_pipelines(options):
        if stage != "planned":
            run_pipeline(module, steps, given)
    main = str(module).split("func.func private", 1)[0]
    calls = re.findall(r'"(host\.launch)"|target = "([^"]+)"', main)
    return Counter(map("".join, calls)), sorted(re.findall(r"tensor\.empty\(.*\) : (\S+)", main))


def _from_two(text: str) -> str:
    return re.sub(r'min = 0 : i64(, name = "s\d+")', r"min = 2 : i64\1", text)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_costs_nothing(name: str) -> None:
    function, make = PROGRAMS[name]
    report = symshape.explain(function, *make())
    report.result.sum().backward()
    assert [graph.kind for graph in report.graphs] == ["forward", "backward"]
    for graph in report.graphs:
        text = graph.stage("imported")
        assert "min = 0 : i64" in text
        assert _compiled_for(text, graph.kind) == _compiled_for(_from_two(text), graph.kind)
