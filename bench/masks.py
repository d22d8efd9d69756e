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
from typing import Any

import torch
from mask_programs import CASES, Case, check_meaning, differentiated, own

from symshape.tools.measure import compile_for, interleaved, relative_error, write_result
from symshape.tools.terminal import Progress, heading, table


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
