"""Convolutions on CPUs with parameters as weights become calls of our kernels: weights packed once, batch norm folded.

Before: %y = convolution(%x, %w, %b); %z = mul(sub(%y, %mean), %scale); %r = clamp_min(add(%z, %other), 0)
After:  %p = pack_convolution_weight(mul(%w, %scale)); %c = mul(sub(%b, %mean), %scale)
        %r = packed_convolution(%x, %p, %c, None, [%other], epilogue="add y a0; low v0 0.0")

Computations on parameters alone, packing included, become a graph of their own (``parameter_graph``). It runs at the
first call, and again when a parameter has changed (``runtime/parameter_constants.py``). Results of the convolutions are
channels-last, and so are pointwise results computed from them (``changed_layouts``); results of the graph have the
layout that was traced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from symshape.frontend.bridge.fake_tensors import fake_mode_of
from symshape.frontend.graph_rewrites.changed_layouts import Layouts
from symshape.frontend.graph_rewrites.convolution_epilogues import Following, Number, factors_of, what_follows
from symshape.frontend.graph_rewrites.parameter_graph import ParameterGraph, made_of_parameters, parameters_of, take_out
from symshape.runtime.packed_convolutions import scales, supports

aten: Any = torch.ops.aten
symshape: Any = torch.ops.symshape
_Pair = tuple[Node | None, Node | None]  # scale and shift


def pack_convolutions(gm: torch.fx.GraphModule, cpu: str) -> ParameterGraph | None:
    """Replaces the convolutions of a traced graph in place, and returns the graph of parameters. None where there are
    no such convolutions, or it does not pay; the graph is then invalid. ``cpu``: the instruction set that the kernels
    may use. Nodes need ``meta["val"]``."""
    mode = fake_mode_of(gm)
    found = gm.graph.find_nodes(op="call_function", target=aten.convolution.default)
    if mode is None or not found:
        return None
    constants = made_of_parameters(gm, parameters_of(gm))
    wanted: list[Node] = []
    packed = 0
    layouts = Layouts(gm, mode)
    for node in found:
        if _is_supported(node, constants):
            packed += 1
            wanted += _replace(_Builder(gm.graph, mode, cpu), node, what_follows(node, constants), layouts)
    if not wanted:
        return None
    layouts.propagate()
    if layouts.conversions > packed // 2:
        return None  # most results would be transposed: group norms and attention read channels-first
    parameter_graph = take_out(gm, list(dict.fromkeys(wanted)))
    gm.recompile()
    return parameter_graph


def folds_norms(gm: torch.fx.GraphModule) -> bool:
    """Whether a batch norm in eval mode, or the like, would fold into the weights of a convolution."""
    constants = made_of_parameters(gm, parameters_of(gm))
    for node in gm.graph.find_nodes(op="call_function", target=aten.convolution.default):
        steps = what_follows(node, constants).folded if _is_supported(node, constants) else ()
        if any(isinstance(operand, Node) for _, operand in steps):
            return True
    return False


def _is_supported(node: Node, constants: Collection[Node]) -> bool:
    """Whether there is a kernel for a convolution: float32 on a CPU, weight and bias constant, constant strides and
    padding."""
    arguments: Any = node.args
    x, weight, bias, stride, padding, dilation, transposed, _, groups = arguments
    if transposed or node.kwargs or not isinstance(x, Node) or weight not in constants:
        return False
    if bias is not None and bias not in constants:
        return False
    values = [one.meta["val"] for one in (x, weight, bias) if isinstance(one, Node)]
    if any(value.dtype != torch.float32 or value.device.type != "cpu" for value in values):
        return False
    numbers = [*stride, *padding, *dilation, groups]
    if values[0].dim() not in (3, 4) or values[0].layout != torch.strided or not all(type(n) is int for n in numbers):
        return False
    channels, depth, *kernel = values[1].shape
    return supports((channels, depth, *_of_images(kernel, 1)), groups)


def _of_images(numbers: Sequence[int], filler: int) -> list[int]:
    """Parameters of a convolution for two spatial dims; a 1-d convolution is one of images of height 1."""
    return [filler] * (2 - len(numbers)) + list(numbers)


@dataclass(frozen=True)
class _Builder:
    """Inserts nodes into the graph."""

    graph: torch.fx.Graph
    mode: Any
    cpu: str

    def call(self, target: Any, *args: Any) -> Node:
        """A call with a fake value."""
        node = self.of_parameters(target, *args)
        with self.mode, torch.no_grad():
            node.meta["val"] = target(*map_arg(args, lambda one: one.meta["val"]))
        return node

    def of_parameters(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        """A call without a fake value: a node that only the parameter graph will have."""
        return self.graph.call_function(target, args, kwargs)


def _replace(build: _Builder, node: Node, following: Following, layouts: Layouts) -> list[Node]:
    """Replaces a convolution and what follows it. Returns the new nodes that are computed from parameters alone."""
    arguments: Any = node.args
    x, weight, bias, stride, padding, dilation, _, _, groups = arguments
    value = weight.meta["val"]
    channels, depth, *kernel = value.shape
    last, is_row = following.last, len(kernel) == 1
    geometry: list[Any] = [channels]
    for numbers, filler in ((kernel, 1), (stride, 1), (padding, 0), (dilation, 1)):
        geometry.append(_of_images(numbers, filler))
    with build.graph.inserting_before(last):
        scale, shift = _scale_and_shift(build, bias, following.folded, value)
        if scale is not None:
            scale = build.of_parameters(aten.view.default, scale, [-1, *[1] * (value.dim() - 1)])
            weight = build.of_parameters(aten.mul.Tensor, weight, scale)
        shape = [channels, depth, *geometry[1]]
        weight = build.of_parameters(aten.reshape.default, weight, shape) if is_row else weight
        packed = build.of_parameters(symshape.pack_convolution_weight.default, weight, groups, build.cpu)
        with build.mode:
            packed.meta["val"] = symshape.pack_convolution_weight.default(value.new_empty(shape), groups, build.cpu)
            if shift is not None and shift.op != "placeholder":
                shift.meta["val"] = value.new_empty([channels])
        images = [build.call(aten.unsqueeze.default, one, 2) if is_row else one for one in following.operands]
        x, factor = factors_of(node) if scales(kernel, padding, groups) else (x, None)
        x, factor = (build.call(aten.unsqueeze.default, one, 2) if is_row and one else one for one in (x, factor))
        given = (x, packed, shift, factor, images, *geometry, groups, str(following.epilogue), build.cpu)
        made = build.call(symshape.packed_convolution.default, *given)
        layouts.takes_any_layout(made)
        if is_row:
            made = build.call(aten.squeeze.dim, made, 2)
    made.meta = {**last.meta, "val": made.meta["val"]}
    layouts.replace(following.nodes, made)
    return [packed] if shift is None or shift.op == "placeholder" else [packed, shift]


def _scale_and_shift(
    build: _Builder, bias: Node | None, folded: Sequence[tuple[str, Node | Number]], weight: torch.Tensor
) -> _Pair:
    """Products and sums, applied to ``y + bias``, as ``y * scale + shift`` with one number per channel; None for a
    scale of 1 and a shift of 0."""
    scale, shift = None, bias
    for kind, given in folded:
        if isinstance(given, Node):
            flat = build.of_parameters(aten.view.default, given, [-1])
            operand = build.of_parameters(aten.expand.default, flat, [weight.shape[0]])
        else:
            kind_of = {"dtype": weight.dtype, "device": weight.device}
            operand = build.of_parameters(aten.full.default, [weight.shape[0]], given, **kind_of)
        scale, shift = _after_step(build.of_parameters, kind, operand, scale, shift)
    return scale, shift


def _after_step(make: Callable[..., Node], kind: str, operand: Node, scale: Node | None, shift: Node | None) -> _Pair:
    """Scale and shift after one more step."""
    if kind == "add":
        return scale, operand if shift is None else make(aten.add.Tensor, shift, operand)
    if kind == "sub":
        return _after_step(make, "add", make(aten.neg.default, operand), scale, shift)
    if kind == "rsub":
        negated = _after_step(make, "mul", make(aten.full_like.default, operand, -1), scale, shift)
        return _after_step(make, "add", operand, *negated)
    factor = operand if kind == "mul" else make(aten.reciprocal.default, operand)
    scaled, shifted = (None if one is None else make(aten.mul.Tensor, one, factor) for one in (scale, shift))
    return scaled or factor, shifted
