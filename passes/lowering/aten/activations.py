"""Activation functions and pointwise backward formulas that survive decomposition, with PyTorch's formulas."""

from __future__ import annotations

import math
from typing import Any

from symshape.passes.lowering.aten.arithmetic import clamp, clamped_below, require_representable
from symshape.passes.lowering.aten.builder import Builder, Tensor
from symshape.passes.lowering.aten.math_functions import sigmoid
from symshape.passes.lowering.aten.rule_combinators import Code, Rule, to_result
from symshape.passes.lowering.aten.scalar_body import Body, Scalar

# Gelu's tanh form: tanh(BETA * (x + KAPPA * x**3)).
BETA, KAPPA = math.sqrt(2 / math.pi), 0.044715


def relu(m: Body, x: Scalar) -> Scalar:
    return clamped_below(m, x, m.constant(0, x.dtype))


def at_most(m: Body, x: Scalar, bound: Any) -> Scalar:
    return m.compare("le", x, m.number(bound, x.dtype))


def above(m: Body, x: Scalar, bound: Any) -> Scalar:
    return m.compare("gt", x, m.number(bound, x.dtype))


def between(m: Body, x: Scalar, low: Any, high: Any, strict: bool) -> Scalar:
    lower, upper = ("gt", "lt") if strict else ("ge", "le")
    inside = m.compare(lower, x, m.number(low, x.dtype)), m.compare(upper, x, m.number(high, x.dtype))
    return m.op("arith.andi", "i1", *inside)


def threshold(m: Body, x: Scalar, bound: Any, value: Any) -> Scalar:
    return m.select(at_most(m, x, bound), m.number(value, x.dtype), x)


def hardtanh(m: Body, x: Scalar, low: Any = -1, high: Any = 1) -> Scalar:
    require_representable(x.dtype, low, high)
    return clamp(m, x, m.number(low, x.dtype), m.number(high, x.dtype))


def leaky_relu(m: Body, x: Scalar, slope: Any = 0.01) -> Scalar:
    return m.select(above(m, x, 0.0), x, m.mul(x, m.number(slope, x.dtype)))


def prelu(m: Body, x: Scalar, weight: Scalar) -> Scalar:
    return m.select(above(m, x, 0.0), x, m.mul(weight, x))


def elu(m: Body, x: Scalar, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Scalar:
    alpha, scale, input_scale = (m.number(v, x.dtype) for v in (alpha, scale, input_scale))
    negative = m.mul(m.mul(m.math("expm1", m.mul(x, input_scale)), alpha), scale)
    return m.select(above(m, x, 0.0), m.mul(x, scale), negative)


def gelu(m: Body, x: Scalar, approximate: str = "none") -> Scalar:
    half, one = m.constant(0.5, x.dtype), m.constant(1.0, x.dtype)
    inner = m.math("tanh", _gelu_inner(m, x)) if approximate == "tanh" else _erf_of_root_half(m, x)
    return m.mul(m.mul(half, x), m.add(one, inner))


def _erf_of_root_half(m: Body, x: Scalar) -> Scalar:
    return m.math("erf", m.mul(x, m.constant(math.sqrt(0.5), x.dtype)))


def _gelu_inner(m: Body, x: Scalar) -> Scalar:
    cube = m.mul(m.mul(x, x), x)
    return m.mul(m.constant(BETA, x.dtype), m.add(x, m.mul(m.constant(KAPPA, x.dtype), cube)))


def gelu_backward(m: Body, grad: Scalar, x: Scalar, approximate: str = "none") -> Scalar:
    half, one = m.constant(0.5, x.dtype), m.constant(1.0, x.dtype)
    if approximate != "tanh":
        cdf = m.mul(half, m.add(one, _erf_of_root_half(m, x)))
        density = m.math("exp", m.mul(m.mul(x, x), m.constant(-0.5, x.dtype)))
        density = m.mul(density, m.constant(1 / math.sqrt(2 * math.pi), x.dtype))
        return m.mul(grad, m.add(cdf, m.mul(x, density)))
    inner = m.math("tanh", _gelu_inner(m, x))
    slope = m.add(one, m.mul(m.constant(3 * KAPPA, x.dtype), m.mul(x, x)))
    slope = m.mul(m.constant(BETA, x.dtype), slope)
    right = m.mul(m.mul(m.mul(half, x), m.sub(one, m.mul(inner, inner))), slope)
    return m.mul(grad, m.add(m.mul(half, m.add(one, inner)), right))


def silu(m: Body, x: Scalar) -> Scalar:
    return m.div(x, m.add(m.constant(1.0, x.dtype), m.math("exp", m.neg(x))))


def silu_backward(m: Body, grad: Scalar, x: Scalar) -> Scalar:
    one, gate = m.constant(1.0, x.dtype), sigmoid(m, x)
    return m.mul(m.mul(grad, gate), m.add(one, m.mul(x, m.sub(one, gate))))


def softplus(m: Body, x: Scalar, beta: Any = 1, bound: Any = 20) -> Scalar:
    beta = m.number(beta, x.dtype)
    scaled = m.mul(x, beta)
    smooth = m.div(m.math("log1p", m.math("exp", scaled)), beta)
    return m.select(above(m, scaled, bound), x, smooth)


def softplus_backward(m: Body, grad: Scalar, x: Scalar, beta: Any, bound: Any) -> Scalar:
    scaled = m.mul(x, m.number(beta, x.dtype))
    z = m.math("exp", scaled)
    smooth = m.div(m.mul(grad, z), m.add(z, m.constant(1.0, x.dtype)))
    return m.select(above(m, scaled, bound), grad, smooth)


def mish(m: Body, x: Scalar) -> Scalar:
    return m.mul(x, m.math("tanh", m.math("log1p", m.math("exp", x))))


def mish_backward(m: Body, grad: Scalar, x: Scalar) -> Scalar:
    one = m.constant(1.0, x.dtype)
    soft = m.math("tanh", m.math("log1p", m.math("exp", x)))
    slope = m.mul(m.mul(x, sigmoid(m, x)), m.sub(one, m.mul(soft, soft)))
    return m.mul(grad, m.add(soft, slope))


def hard_gate(m: Body, x: Scalar) -> Scalar:
    """clamp(x + 3, 0, 6)."""
    zero, three, six = (m.constant(v, x.dtype) for v in (0.0, 3.0, 6.0))
    return m.min(m.max(m.add(x, three), zero), six)


def hardsigmoid(m: Body, x: Scalar) -> Scalar:
    return m.div(hard_gate(m, x), m.constant(6.0, x.dtype))


def hardswish(m: Body, x: Scalar) -> Scalar:
    return m.div(m.mul(x, hard_gate(m, x)), m.constant(6.0, x.dtype))


def hardsigmoid_backward(m: Body, grad: Scalar, x: Scalar) -> Scalar:
    inside = m.mul(grad, m.constant(1 / 6, x.dtype))
    return m.select(between(m, x, -3.0, 3.0, strict=True), inside, m.constant(0.0, x.dtype))


def hardswish_backward(m: Body, grad: Scalar, x: Scalar) -> Scalar:
    zero, three, half = (m.constant(v, x.dtype) for v in (0.0, 3.0, 0.5))
    inner = m.mul(grad, m.add(m.div(x, three), half))
    above_three = m.compare("ge", x, three)
    below = m.compare("le", x, m.constant(-3.0, x.dtype))
    return m.select(below, zero, m.select(above_three, grad, inner))


def softshrink(m: Body, x: Scalar, lambd: Any = 0.5) -> Scalar:
    bound = m.number(lambd, x.dtype)
    low = m.select(m.compare("lt", x, m.neg(bound)), m.add(x, bound), m.mul(x, m.constant(0.0, x.dtype)))
    return m.select(m.compare("gt", x, bound), m.sub(x, bound), low)


def hardshrink(m: Body, x: Scalar, lambd: Any = 0.5) -> Scalar:
    bound = m.number(lambd, x.dtype)
    inside = m.op("arith.andi", "i1", m.compare("ge", x, m.neg(bound)), m.compare("le", x, bound))
    return m.select(inside, m.constant(0.0, x.dtype), x)


def threshold_backward(m: Body, grad: Scalar, x: Scalar, bound: Any) -> Scalar:
    return m.select(at_most(m, x, bound), m.constant(0, grad.dtype), grad)


def hardtanh_backward(m: Body, grad: Scalar, x: Scalar, low: Any, high: Any) -> Scalar:
    """The gradient passes strictly inside the bounds."""
    outside = m.op("arith.ori", "i1", at_most(m, x, low), m.compare("ge", x, m.number(high, x.dtype)))
    return m.select(outside, m.constant(0, grad.dtype), grad)


def leaky_relu_backward(m: Body, grad: Scalar, x: Scalar, slope: Any, from_result: bool = False) -> Scalar:
    return m.select(above(m, x, 0.0), grad, m.mul(grad, m.number(slope, x.dtype)))


def elu_backward_rule(
    b: Builder, grad: Tensor, alpha: Any, scale: Any, input_scale: Any, is_result: bool, x: Tensor
) -> Tensor:
    return to_result(elu_backward, 2)(b, grad, x, alpha, scale, input_scale, is_result)


def elu_backward(m: Body, grad: Scalar, x: Scalar, alpha: Any, scale: Any, input_scale: Any, is_result: bool) -> Scalar:
    alpha, scale, input_scale = (m.number(v, x.dtype) for v in (alpha, scale, input_scale))
    if is_result:
        negative = m.mul(m.mul(grad, input_scale), m.add(x, m.mul(alpha, scale)))
    else:
        curve = m.math("exp", m.mul(x, input_scale))
        negative = m.mul(m.mul(m.mul(m.mul(grad, input_scale), alpha), scale), curve)
    return m.select(at_most(m, x, 0.0), negative, m.mul(grad, scale))


def sigmoid_backward(m: Body, grad: Scalar, y: Scalar) -> Scalar:
    return m.mul(grad, m.mul(m.sub(m.constant(1.0, y.dtype), y), y))


def tanh_backward(m: Body, grad: Scalar, y: Scalar) -> Scalar:
    return m.mul(grad, m.sub(m.constant(1.0, y.dtype), m.mul(y, y)))


def logit_backward(m: Body, grad: Scalar, x: Scalar, eps: Any = None) -> Scalar:
    one = m.constant(1.0, x.dtype)
    slope = m.div(grad, m.mul(x, m.sub(one, x)))
    low = m.number(0.0 if eps is None else eps, x.dtype)
    outside = m.constant(math.nan if eps is None else 0.0, x.dtype)
    return m.select(between(m, x, low, m.sub(one, low), strict=False), slope, outside)


def _operands(arity: int, **codes: Code) -> dict[str, Rule]:
    return {f"aten.{name}.default": to_result(code, arity) for name, code in codes.items()}


RULES: dict[str, Rule] = {
    **_operands(
        1,
        relu=relu,
        threshold=threshold,
        hardtanh=hardtanh,
        leaky_relu=leaky_relu,
        elu=elu,
        gelu=gelu,
        silu=silu,
        softplus=softplus,
        mish=mish,
        hardsigmoid=hardsigmoid,
        hardswish=hardswish,
        softshrink=softshrink,
        hardshrink=hardshrink,
    ),
    **_operands(
        2,
        threshold_backward=threshold_backward,
        hardtanh_backward=hardtanh_backward,
        leaky_relu_backward=leaky_relu_backward,
        gelu_backward=gelu_backward,
        silu_backward=silu_backward,
        softplus_backward=softplus_backward,
        mish_backward=mish_backward,
        hardsigmoid_backward=hardsigmoid_backward,
        hardswish_backward=hardswish_backward,
        sigmoid_backward=sigmoid_backward,
        tanh_backward=tanh_backward,
        logit_backward=logit_backward,
    ),
    "aten.elu_backward.default": elu_backward_rule,
    "aten.relu6.default": to_result(lambda m, x: hardtanh(m, x, 0, 6)),
    "aten._prelu_kernel.default": to_result(prelu),
}
