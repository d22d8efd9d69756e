"""Programs over a boolean mask: symshape and Inductor on the mask form, symshape on a ``where`` written by hand.

``by hand`` is the program of the same meaning: nothing selected, NaN, infinities and places out of range where the mask
is false give the same values and gradients (checked first). ``plain`` is the shorter ``where`` that is only right if
what is hidden is finite and in range, and something is selected.

    python bench/masks.py [--elements 4194304] [--share 0.5] [--rounds 9] [--out bench/results/masks.json]

Forward, and forward with backward, on vectors (cross entropy: rows of 16 logits). All are compiled and warm before
anything is timed; samples are taken in turns; a figure is the median. Inductor gets the settings with which it captures
masks (without them it breaks the graph at each); ``eager`` is shown beside it.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F

from symshape.tools.measure import compile_for, interleaved, relative_error, write_result
from symshape.tools.terminal import Progress, heading, table

CLASSES = 16


@dataclass(frozen=True)
class Case:
    """``masked`` and ``by_hand`` compute the same of the same inputs, ``plain`` of harmless ones."""

    name: str
    masked: Callable[..., torch.Tensor]
    by_hand: Callable[..., torch.Tensor]
    plain: Callable[..., torch.Tensor]
    inputs: Callable[[int, float], tuple[torch.Tensor, ...]]


def vectors(n: int, share: float) -> tuple[torch.Tensor, ...]:
    return torch.randn(n), torch.randn(n), torch.rand(n) < share


def rows(n: int, share: float) -> tuple[torch.Tensor, ...]:
    count = n // CLASSES
    return torch.randn(count, CLASSES), torch.randint(0, CLASSES, (count,)), torch.rand(count) < share


def chain(x: torch.Tensor, _: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return (x[m] * 2).exp().sum()


def chain_by_hand(x: torch.Tensor, _: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return torch.where(m, (torch.where(m, x, 0) * 2).exp(), 0).sum()


def chain_plain(x: torch.Tensor, _: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return torch.where(m, (x * 2).exp(), 0).sum()


def mse(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(x[m], y[m])


def mse_by_hand(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    difference = torch.where(m, x - y, 0)
    return (difference * difference).sum() / m.sum()


def mse_plain(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return torch.where(m, F.mse_loss(x, y, reduction="none"), 0).sum() / m.sum()


def cross_entropy(x: torch.Tensor, t: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x[m], t[m])


def cross_entropy_by_hand(x: torch.Tensor, t: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(torch.where(m[:, None], x, 0), torch.where(m, t, -100))


def cross_entropy_plain(x: torch.Tensor, t: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return torch.where(m, F.cross_entropy(x, t, reduction="none"), 0).sum() / m.sum()


def assignment(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    z = y * x
    z[m] = torch.tanh(z[m])
    return z


def assignment_by_hand(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    z = y * x
    return torch.where(m, torch.tanh(torch.where(m, z, 0)), z)


def assignment_plain(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    z = y * x
    return torch.where(m, torch.tanh(z), z)


CASES = (
    Case("(x[m]*2).exp().sum()", chain, chain_by_hand, chain_plain, vectors),
    Case("mse(x[m], y[m])", mse, mse_by_hand, mse_plain, vectors),
    Case("cross_entropy(x[m], t[m])", cross_entropy, cross_entropy_by_hand, cross_entropy_plain, rows),
    Case("y[m] = tanh(y[m])", assignment, assignment_by_hand, assignment_plain, vectors),
)


@dataclass(frozen=True)
class Row:
    """Seconds per call. ``inductor``: its mask form against symshape's; ``by_hand``, ``plain``: symshape's mask form
    against symshape's ``where``."""

    program: str
    backward: bool
    seconds: dict[str, float]
    error: float

    @property
    def inductor(self) -> float:
        return self.seconds["inductor"] / self.seconds["symshape"]

    @property
    def by_hand(self) -> float:
        return self.seconds["symshape"] / self.seconds["by hand"]

    @property
    def plain(self) -> float:
        return self.seconds["symshape"] / self.seconds["plain"]


def own(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function with code of its own: Dynamo keeps its graphs with the code, and the first match would serve all."""
    return FunctionType(fn.__code__.replace(), fn.__globals__, fn.__name__)


def differentiated(fn: Callable[..., torch.Tensor], leaves: list[torch.Tensor]) -> Callable[..., Any]:
    def run(*inputs: torch.Tensor) -> Any:
        result = fn(*inputs)
        given = None if result.dim() == 0 else torch.ones_like(result)
        return torch.autograd.grad(result, leaves, given, allow_unused=True)

    return run


def check_meaning(case: Case) -> None:
    """The mask form and the one by hand agree in eager mode, whatever is hidden."""
    for share in (0.5, 0.0, 1.0):
        torch.manual_seed(1)
        first, second, m = case.inputs(40 * CLASSES, share)
        hidden = ~m.view(-1, *[1] * (first.dim() - 1))
        bad = [
            first.masked_fill(hidden, float("nan")),
            second.masked_fill(~m, float("inf") if second.is_floating_point() else 1000),
        ]
        found = []
        for f in (case.masked, case.by_hand):
            leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in bad]
            result = f(*leaves, m)
            wanted = [x for x in leaves if x.requires_grad]
            found.append([result, *torch.autograd.grad(result.sum(), wanted, allow_unused=True)])
        torch.testing.assert_close(*([None if y is None else y.detach() for y in one] for one in found), equal_nan=True)


def measure(case: Case, backward: bool, n: int, share: float, rounds: int) -> Row:
    check_meaning(case)
    torch._dynamo.reset()
    torch.manual_seed(0)
    inputs = case.inputs(n, share)
    leaves = [x.requires_grad_() for x in inputs if backward and x.is_floating_point()]
    functions: dict[str, Callable[..., Any]] = {
        "eager": case.masked,
        "inductor": compile_for("inductor", own(case.masked)),
        "symshape": compile_for("symshape", own(case.masked)),
        "by hand": compile_for("symshape", own(case.by_hand)),
        "plain": compile_for("symshape", own(case.plain)),
    }
    if backward:
        functions = {name: differentiated(fn, leaves) for name, fn in functions.items()}
    outputs = {name: fn(*inputs) for name, fn in functions.items()}
    pairs = zip(*(o if backward else (o,) for o in (outputs["symshape"], outputs["eager"])))
    error = max(relative_error(a.detach(), b.detach()) for a, b in pairs if b is not None)
    runs = {name: (lambda fn=fn: fn(*inputs)) for name, fn in functions.items()}
    return Row(case.name, backward, interleaved(runs, rounds), error)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=1 << 22)
    parser.add_argument("--share", type=float, default=0.5, help="how much of the mask is true")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", default="bench/results/masks.json")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    found = []
    with Progress("masks", 2 * len(CASES)) as progress:
        for case in CASES:
            for backward in (False, True):
                progress.step(f"{case.name}{', with backward' if backward else ''}")
                found.append(measure(case, backward, args.elements, args.share, args.rounds))
    print(heading(f"Masks: {args.elements} elements, {args.share:.0%} selected"))
    names = list(found[0].seconds)
    lines = [
        [
            r.program,
            "fwd+bwd" if r.backward else "fwd",
            *(f"{r.seconds[n] * 1e3:.2f}" for n in names),
            f"{r.inductor:.2f}",
            f"{r.by_hand:.2f}",
            f"{r.plain:.2f}",
            f"{r.error:.1e}",
        ]
        for r in found
    ]
    print(
        table(
            ["program", "", *(f"{n} ms" for n in names), "inductor/ours", "ours/by hand", "ours/plain", "error"], lines
        )
    )
    write_result(
        args.out,
        "masks",
        [
            {**asdict(r), "inductor_ratio": r.inductor, "by_hand_ratio": r.by_hand, "plain_ratio": r.plain}
            for r in found
        ],
        elements=args.elements,
        share=args.share,
    )


if __name__ == "__main__":
    main()
