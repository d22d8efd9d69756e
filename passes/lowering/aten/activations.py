"""Rules of activation functions: of the few that no decomposition takes apart."""

from __future__ import annotations

from typing import Any

from symshape.passes.lowering.aten.arithmetic import clamped_below
from symshape.passes.lowering.aten.rule_combinators import Rule, to_result
from symshape.passes.lowering.aten.scalar_body import Body, Scalar


def relu(m: Body, x: Scalar) -> Scalar:
    return clamped_below(m, x, m.constant(0, x.dtype))


def threshold(m: Body, x: Scalar, bound: Any, value: Any) -> Scalar:
    return m.select(m.compare("le", x, m.number(bound, x.dtype)), m.number(value, x.dtype), x)


def silu(m: Body, x: Scalar) -> Scalar:
    return m.div(x, m.add(m.constant(1.0, x.dtype), m.math("exp", m.neg(x))))


RULES: dict[str, Rule] = {
    "aten.relu.default": to_result(relu),
    "aten.threshold.default": to_result(threshold),
    "aten.silu.default": to_result(silu),
}
