"""Masks, and sizes that are in the data. On a GPU nothing of a mask that vanishes may wait for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from gpu_machine import Machine, cases_of, same

import symshape
from symshape.tools.measure import no_synchronisation

SIZES = ((5, 7), (1, 1), (2, 16))
LARGE = ((3, 65), (1009, 513), (3, 100_003))  # on a GPU
Program = Callable[..., Any]


def assigned(x: Any, y: Any, m: Any) -> Any:
    z = x * y
    z[m] = torch.tanh(z[m])
    return z


def normalised(x: Any, y: Any, m: Any) -> Any:
    """The layer norm of rows that a mask of rows selects."""
    rows = m.any(1) | True
    h = F.layer_norm(x[rows], (x.shape[1],))
    return (h * h).sum()


def weighted(x: Any, y: Any, m: Any) -> Any:
    return (x[m] * torch.sigmoid(y[m])).sum() / m.sum().clamp(min=1)


MASKED: dict[str, Program] = {
    "sum of a chain": lambda x, y, m: (x[m] * 2).exp().sum(),
    "loss": lambda x, y, m: F.mse_loss(x[m], y[m]),
    "cross entropy": lambda x, y, m: F.cross_entropy(x[m[:, 0]], y.argmax(1)[m[:, 0]]),
    "assignment": assigned,
    "constant": lambda x, y, m: x.masked_fill(m, -torch.inf).softmax(1),
    "fill by index": lambda x, y, m: x.index_put((m,), x.new_zeros(())) * y,
    "two masks": lambda x, y, m: x[m][x[m] > 0].sum() + y[~m].sum(),
    "statistics": lambda x, y, m: (x[m].mean(), x[m].var(), y[m].std()),
    "extrema": lambda x, y, m: (x[m | True].max(), y[m | True].amin()),
    "norm": lambda x, y, m: x[m].norm() + torch.logsumexp(y[m | True], 0),
    "weights": weighted,
    "rows": normalised,
    "count": lambda x, y, m: x.sum() * x[m].shape[0],
}


def cases(machine: Machine, gradients: bool = False) -> list[tuple[Any, ...]]:
    torch.manual_seed(1)
    made = []
    for n, m in machine.pick(SIZES, SIZES + LARGE):
        mask = torch.rand(n, m) > 0.4
        mask[0, 0] = True
        mask = mask if mask.sum() > 1 else torch.ones_like(mask)
        x, y = torch.randn(n, m, requires_grad=gradients), torch.randn(n, m, requires_grad=gradients)
        made.append(machine.put((x, y, mask)))
    return made


@pytest.mark.parametrize("name", cases_of(MASKED, ["fill by index", "two masks", "norm", "rows", "count"]))
def test_nothing_waits_for_a_mask(machine: Machine, name: str) -> None:
    fn = MASKED[name]
    if name == "norm" and torch.__version__ < "2.12":
        pytest.skip("PyTorch 2.11 traces no norm of an unbacked number of elements: it is one opaque call")
    every = cases(machine)
    report = symshape.explain(fn, *every[0], options=machine.options)
    called = {call for graph in report.graphs for call in graph.library_calls}
    assert called <= {"aten._assert_async.msg"}, report  # which does not wait
    report.run(*every[1])
    for x, y, m in every:
        with no_synchronisation(machine.is_gpu):
            actual = report.run(x, y, m)
        same(actual, fn(x, y, m), rtol=1e-4, atol=1e-4)
    assert len(report.graphs) == 1, report


@pytest.mark.parametrize("name", ["sum of a chain", "loss", "assignment", "weights"])
def test_nothing_waits_for_a_mask_in_training(machine: Machine, name: str) -> None:
    fn = MASKED[name]
    compiled = machine.compile(fn)

    def gradients(run: Program, x: Any, y: Any, m: Any) -> Sequence[torch.Tensor]:
        return torch.autograd.grad(run(x, y, m).sum(), [x, y], allow_unused=True)

    every = cases(machine, gradients=True)
    gradients(compiled, *every[0])
    for inputs in every:
        with no_synchronisation(machine.is_gpu):
            actual = gradients(compiled, *inputs)
        expected = gradients(fn, *inputs)
        assert [g is None for g in actual] == [g is None for g in expected]
        same([g for g in actual if g is not None], [g for g in expected if g is not None], rtol=1e-4, atol=1e-5)


def test_what_waits_is_found(machine: Machine) -> None:
    """The mode of these tests finds eager mode's wait, and the one that a returned mask needs."""
    machine.only_on_a_gpu("nothing waits for a CPU")
    x = torch.randn(100, device="cuda")
    with pytest.raises(RuntimeError, match="synchroniz"), no_synchronisation(machine.is_gpu):
        x[x > 0].sum()
    compiled = machine.compile(lambda x: x[x > 0])
    compiled(x)
    with pytest.raises(RuntimeError, match="synchroniz"), no_synchronisation(machine.is_gpu):
        compiled(x)


def test_a_pointwise_program_does_not_wait(machine: Machine) -> None:
    """Launches, allocations, checks and transfers of pinned memory."""
    compiled = machine.compile(lambda x, s: torch.softmax(x * s, -1).sum(0))
    for n, m in ((3, 5), (1, 1), (7, 129)):
        x, s = torch.randn(n, m), torch.tensor(2.0)
        given = machine.put(x)
        compiled(given, s)
        with no_synchronisation(machine.is_gpu):
            actual = compiled(given, s)
        same(actual, torch.softmax(given * s, -1).sum(0))


UNBACKED: dict[str, Program] = {
    "selected": lambda x, i: x[x > 0] * 2,
    "selected rows": lambda x, i: x[x[:, 0] > 0].sum(1),
    "positions": lambda x, i: x.nonzero() + 1,
    "positions as indices": lambda x, i: x[(x > 0).nonzero(as_tuple=True)].exp(),
    "masked_select": lambda x, i: torch.masked_select(x, x < 0).relu(),
    "two of one mask": lambda x, i: x[x > 0] * (x * x)[x > 0],
    "made as large as an element": lambda x, i: torch.arange(i.max().item(), device=x.device) * 2,
    "split at an element": lambda x, i: x.reshape(-1)[: i[0].item()].exp(),
    "repeated": lambda x, i: torch.repeat_interleave(torch.arange(i.shape[0], device=x.device), i) + 1,
    "padded to an element": lambda x, i: F.pad(x, (0, i[0].item())).abs().sum(1),
    "unique": lambda x, i: (torch.unique(i) * 2).sum(),
    "none selected": lambda x, i: x[x > 100].sum() + x[x > 100].shape[0],
}


@pytest.mark.parametrize(
    "name", cases_of(UNBACKED, ["selected rows", "two of one mask", "masked_select", "none selected", "unique"])
)
def test_sizes_in_the_data(machine: Machine, name: str) -> None:
    """The same compiled code whatever the data says, none and all of it among that."""
    fn = UNBACKED[name]
    compiled = machine.compile(fn)
    torch.manual_seed(2)
    for n, m in ((5, 7), (1, 1), machine.pick((2, 600), (1009, 2003))):
        x, i = machine.put((torch.randn(n, m), torch.randint(0, min(n * m, 9), (4,))))
        for given in (x, x.abs(), -x.abs()) if n * m < 100 or machine.is_gpu else (x,):
            same(compiled(given, i), fn(given, i), rtol=1e-5, atol=1e-5)
