"""The constraint store against brute force and z3, on random constraint sets; and what its operations cost.

    python bench/prover.py [--count 20000] [--seed 0] [--z3-share 1.0] [--out bench/results/prover.json]

A set is 2 to 6 symbols in a box, which is part of the facts, and some facts; coefficients are within +-16, moduli from
2 to 64. Its goals are asked one by one. The truth is known by looking at every point of the box; z3 (a second opinion,
with a time limit) is asked as well. The exit status is 1 if any answer was wrong.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from constraint_sets import ConstraintSet, Tree, build, guard_set, points_of, random_set, to_z3, truth

from symshape.errors import ContradictionError
from symshape.prover.numbers.facts import Row
from symshape.prover.solver.condition_store import ConditionStore
from symshape.tools.terminal import Progress, heading, table

KINDS = ("linear and modular", "with products")
PRODUCT_SHARE = 0.4
Z3_MILLISECONDS = 200
SYMBOLS, CONSTRAINTS, FACTS, REPEATS = 64, 1000, 1000, 5


def store_of(box: dict[str, tuple[int, int]], facts: Sequence[Tree]) -> ConditionStore:
    """A store with the box and the facts; ContradictionError when it finds that they cannot hold."""
    store = ConditionStore()
    for name, (low, high) in box.items():
        store.symbol(name, Row(low, high))
    for number, fact in enumerate(facts):
        store.assume(build(fact), f"fact {number}")
    return store


def status(always: bool, never: bool) -> str:
    return "proven" if always else "refuted" if never else "contingent"


class Judge:
    """Counts answers and compares them with the truth."""

    def __init__(self, z3_share: float) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.wrong: list[str] = []
        self.slowest = 0.0
        self.z3_share = z3_share

    def judge(self, kind: str, drawn: ConstraintSet, rng: random.Random) -> None:
        points = points_of(drawn.box)
        masks = [truth(fact, points) for fact in drawn.facts]
        allowed = np.logical_and.reduce(masks)
        self.counts[kind, "sets"] += 1
        try:
            store = store_of(drawn.box, drawn.facts)
        except ContradictionError:
            self.counts[kind, "contradictions found"] += 1
            if allowed.any():
                self.wrong.append(f"consistent facts called contradictory: {drawn}")
            return
        if not allowed.any():
            self.counts[kind, "contradictions missed"] += 1
            return
        for goal in drawn.goals:
            self._question(kind, store, drawn, goal, points, masks, allowed)
            if rng.random() < self.z3_share:
                self._second_opinion(kind, drawn, goal, truth(goal, points)[allowed])

    def _question(
        self,
        kind: str,
        store: ConditionStore,
        drawn: ConstraintSet,
        goal: Tree,
        points: dict[str, Any],
        masks: Sequence[Any],
        allowed: Any,
    ) -> None:
        values = truth(goal, points)
        expected = status(bool(values[allowed].all()), not values[allowed].any())
        start = time.perf_counter()
        proof = store.prove(build(goal))
        self.slowest = max(self.slowest, time.perf_counter() - start)
        self.counts[kind, "questions"] += 1
        self.counts[kind, expected] += 1
        if expected != "contingent":
            entailed = values if expected == "proven" else ~values
            alone = any(bool(entailed[mask].all()) for mask in masks) or bool(entailed.all())
            self.counts[kind, "entailed"] += 1
            self.counts[kind, "entailed, needing two facts"] += not alone
        if proof.status == "unknown":
            self.counts[kind, "unknown"] += 1
        elif proof.status != expected:
            self.wrong.append(f"{proof.status}, but it is {expected}: {goal} in {drawn}")
        for witness, wanted in zip(proof.witnesses, (True, False), strict=False):
            at = {name: np.array([witness[name]]) for name in drawn.box}
            if not all(truth(fact, at)[0] for fact in drawn.facts) or truth(goal, at)[0] != wanted:
                self.wrong.append(f"no witness: {witness} for {goal} in {drawn}")

    def _second_opinion(self, kind: str, drawn: ConstraintSet, goal: Tree, values: Any) -> None:
        import z3

        solver = z3.Solver()
        solver.set("timeout", Z3_MILLISECONDS)
        for name, (low, high) in drawn.box.items():
            solver.add(z3.Int(name) >= low, z3.Int(name) <= high)
        solver.add(*(to_z3(fact, z3) for fact in drawn.facts))
        formula = to_z3(goal, z3)
        false_at, true_at = solver.check(z3.Not(formula)), solver.check(formula)
        if z3.unknown in (false_at, true_at):
            self.counts[kind, "z3 unknown"] += 1
        elif status(false_at == z3.unsat, true_at == z3.unsat) != status(bool(values.all()), not values.any()):
            self.wrong.append(f"z3 and brute force differ: {goal} in {drawn}")
        else:
            self.counts[kind, "z3 agrees"] += 1

    def rate(self, kind: str, part: str, whole: str) -> float:
        return self.counts[kind, part] / max(self.counts[kind, whole], 1)


def accuracy(count: int, seed: int, z3_share: float) -> Judge:
    judge = Judge(z3_share)
    with Progress("random sets", count) as progress:
        for number in range(count):
            rng = random.Random(f"{seed}/{number}")
            products = rng.random() < PRODUCT_SHARE
            judge.judge(KINDS[products], random_set(rng, products=products), rng)
            progress.step(f"{len(judge.wrong)} wrong")
    return judge


def best(run: Callable[[], object], repeats: int = REPEATS) -> float:
    """Seconds of the fastest of some runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def guard_times(seed: int) -> dict[str, float]:
    """Seconds for 1,000 constraints over 64 symbols: minimised at once, and assumed one by one."""
    values, trees = guard_set(random.Random(seed), SYMBOLS, CONSTRAINTS)
    conditions = [build(tree) for tree in trees]
    if not all(condition.evaluate(values) for condition in conditions):
        raise AssertionError("the constraints do not hold at their own point")
    kept = 0

    def minimise() -> None:
        nonlocal kept
        store = ConditionStore()
        for name in values:
            store.symbol(name, Row(2, None))
        kept = len(store.minimise([(condition, (i,)) for i, condition in enumerate(conditions)]))

    def assume() -> None:
        store = ConditionStore()
        for name in values:
            store.symbol(name, Row(2, None))
        for number, condition in enumerate(conditions):
            store.assume(condition, f"constraint {number}")

    return {"minimise": best(minimise, 2), "assume": best(assume, 2), "kept": float(kept)}


def checkpoint_seconds() -> float:
    """Seconds of a checkpoint with its rollback in a store of 1,000 facts."""
    store = store_of({}, [(">=", f"s{i % SYMBOLS}", -i) for i in range(FACTS)])
    many = range(10000)

    def run() -> None:
        for _ in many:
            store.rollback(store.checkpoint())

    return best(run) / len(many)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--z3-share", type=float, default=1.0, help="the share of questions that z3 is asked as well")
    parser.add_argument("--out")
    options = parser.parse_args()

    judge = accuracy(options.count, options.seed, options.z3_share)
    names = [
        "sets",
        "questions",
        "proven",
        "refuted",
        "contingent",
        "unknown",
        "entailed",
        "entailed, needing two facts",
        "contradictions found",
        "contradictions missed",
        "z3 agrees",
        "z3 unknown",
    ]
    rows: list[list[object]] = [[name, *(judge.counts[kind, name] for kind in KINDS)] for name in names]
    rows.append(["unknown %", *(100 * judge.rate(kind, "unknown", "questions") for kind in KINDS)])
    rows.append(
        ["needing two facts %", *(100 * judge.rate(kind, "entailed, needing two facts", "entailed") for kind in KINDS)]
    )
    print(table(["", *KINDS], rows))
    for text in judge.wrong[:10]:
        print(f"WRONG {text}", file=sys.stderr)
    print(f"\nwrong answers: {len(judge.wrong)}; slowest answer: {1e3 * judge.slowest:.0f} ms")

    print(heading("times"))
    times, pair = guard_times(options.seed), checkpoint_seconds()
    print(
        f"{CONSTRAINTS} constraints over {SYMBOLS} symbols minimised: {times['minimise']:.2f} s, "
        f"{times['kept']:.0f} left; assumed one by one: {times['assume']:.2f} s"
    )
    print(f"checkpoint and rollback at {FACTS} facts: {1e6 * pair:.2f} us")
    if options.out:
        from symshape.tools.measure import write_result

        counts = [{"kind": kind, **{name: judge.counts[kind, name] for name in names}} for kind in KINDS]
        summary = {"wrong": len(judge.wrong), "slowest": judge.slowest, **times, "checkpoint": pair}
        write_result(options.out, "prover", counts, **summary)
    return int(bool(judge.wrong))


if __name__ == "__main__":
    sys.exit(main())
