"""Option ``cuda_graphs`` (``mode="reduce-overhead"``) on a GPU: each combination of sizes that recurs becomes a CUDA
graph. Elsewhere programs run as they are."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from gpu_machine import Machine, same

import symshape

SIZES = ((3, 5), (1, 7), (4, 2))
TURNS = 6  # a graph is captured when sizes recur


def block(x: Any, w: Any) -> Any:
    """Several launches with products between them."""
    for _ in range(3):
        x = F.gelu(F.layer_norm(x @ w, (x.shape[-1],))) + x
    return x, x.sum(-1)


def rounds(machine: Machine) -> list[torch.Tensor]:
    """Inputs of each size in turns, each in memory of its own."""
    torch.manual_seed(0)
    return [machine.put(torch.randn(*size, 8)) for _ in range(machine.pick(2, TURNS)) for size in SIZES]


def test_results_stay_when_a_graph_is_replayed(machine: Machine) -> None:
    """Results of all calls are kept: one that a later replay writes to is no longer eager mode's at the end."""
    inputs, w = rounds(machine), machine.put(torch.randn(8, 8) / 3)
    report = symshape.explain(block, inputs[0], w, options={**machine.options, "cuda_graphs": True})
    kept = [(report.run(x, w), block(x, w)) for x in inputs]
    for actual, expected in kept:
        same(actual, expected, rtol=1e-4, atol=1e-4)
    assert len(report.graphs) == 1 and report.graphs[0].cuda_graphs, report  # what is replayed, or why nothing is


def test_gradients(machine: Machine) -> None:
    compiled = machine.compile(block, cuda_graphs=True)
    w, kept = machine.put(torch.randn(8, 8) / 3).requires_grad_(), []
    for x in rounds(machine):
        kept.append([torch.autograd.grad(run(x, w)[1].sum(), [w]) for run in (compiled, block)])
    for actual, expected in kept:
        same(actual, expected, rtol=1e-4, atol=1e-4)
