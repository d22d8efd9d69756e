"""Which engine of the prover answers the questions of compiles, and in what time: the figures behind its one facade.

    python -m bench.prover_engines FILE.mlir...     # modules in the stage `imported`, as `symshape.explain` keeps them

The pipeline runs on each module; a question is an outermost call of ``Facts`` (bounds and divisibility) or of
``ConditionStore``, which asks ``Facts`` first and isl where that does not suffice. Processor time.
"""

from __future__ import annotations

import functools
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch_mlir import ir

from symshape import dialects
from symshape.passes.framework.base import PassContext
from symshape.passes.framework.manager import run_pipeline
from symshape.passes.stages import STAGES
from symshape.prover.numbers.facts import Facts
from symshape.prover.solver import condition_store
from symshape.prover.solver.condition_store import ConditionStore

QUESTIONS = ("bounds", "divides", "nonnegative", "less_equal", "equal", "simplify")
NUMBERS, STORE, ISL = "numbers", "store, no isl", "store, isl"


class Count:
    """Questions and seconds by engine. Questions inside of questions count as part of the outer one."""

    def __init__(self) -> None:
        self.questions: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()
        self._depth, self._used_isl = 0, False

    def watch(self, owner: Any, name: str, engine: str) -> None:
        asked: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(asked)
        def counted(*args: Any, **kwargs: Any) -> Any:
            if engine == ISL:
                self._used_isl = True
                return asked(*args, **kwargs)
            if self._depth:
                return asked(*args, **kwargs)
            self._depth, self._used_isl, start = 1, False, time.process_time()
            try:
                return asked(*args, **kwargs)
            finally:
                self._depth = 0
                found = ISL if self._used_isl else engine
                self.questions[found] += 1
                self.seconds[found] += time.process_time() - start

        setattr(owner, name, counted)


def main(files: Sequence[str]) -> int:
    """Prints a line for each engine, and the share of the pipeline's time."""
    count, total = Count(), 0.0
    for name in QUESTIONS:
        count.watch(Facts, name, NUMBERS)
    for name in ("prove", "assume", "minimise"):
        count.watch(ConditionStore, name, STORE)
    count.watch(condition_store, "satisfy", ISL)
    for file in files:
        with dialects.load(ir.Context()), ir.Location.unknown():
            module = ir.Module.parse(Path(file).read_text())
            start = time.process_time()
            for steps in STAGES.values():
                if steps:
                    run_pipeline(module, ",".join(steps), PassContext())
            total += time.process_time() - start
    for engine in (NUMBERS, STORE, ISL):
        asked, seconds = count.questions[engine], count.seconds[engine]
        each = 1e6 * seconds / max(asked, 1)
        print(f"{engine:<14} {asked:8d} questions {1e3 * seconds:9.1f} ms {each:9.1f} us each {seconds / total:6.1%}")
    print(f"{len(files)} modules, {total:.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
