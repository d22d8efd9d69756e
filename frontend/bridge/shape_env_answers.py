"""Evaluates conditions in PyTorch's shape environment without a trace: for `symshape corpus solve`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
from torch.fx.experimental.symbolic_shapes import ShapeEnv


class QueriedShapeEnv:
    """A new ShapeEnv with unbacked integer symbols, and facts about them as of ``torch._check``."""

    def __init__(self, count: int) -> None:
        self._env = ShapeEnv()
        self.symbols = [self._env.create_unbacked_symint().node.expr for _ in range(count)]
        self._env.pending_fresh_unbacked_symbols.clear()

    def assume(self, facts: Sequence[Any]) -> bool:
        """False where the environment finds that a fact cannot hold."""
        return all(fact is not sympy.false and self._env.guard_or_defer_runtime_assert(fact, "") for fact in facts)

    def answer(self, condition: Any) -> bool | None:
        """Whether the condition is statically known to be true or false; None if neither."""
        found = self._env._maybe_evaluate_static(condition)
        return {sympy.true: True, sympy.false: False}.get(found)
