"""A backward graph for calls in which some results of forward have no gradient.

AOTAutograd traces backward with a gradient for each result, and passes zeros for a result that ``backward`` does not
reach. Eager mode computes nothing there: a gradient of zeros times an infinite derivative would be NaN, and a parameter
that is not reached has no gradient, so that an optimizer with weight decay leaves it alone.

Before: backward(%x, %tangent_a, %tangent_b): %g = mul(%tangent_a, 2); %r = div(%tangent_b, %x); return add(%g, %r)
After, without %tangent_b:  backward(%x, %tangent_a): %g = mul(%tangent_a, 2); return %g

Backward is linear in its tangents. An undefined gradient passes through operators that make zeros of zeros
(``_ZERO_OPERANDS``); a sum is its other operand. Where other operators read one, it is zeros there, as it is for a
``torch.autograd.Function``. In PyTorch's engine the same is an undefined tensor (``torch/csrc/autograd/engine.cpp``),
and ``torch.autograd.function.FunctionCtx.set_materialize_grads``.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import torch
from torch.fx import Node

from symshape.frontend.bridge.aot_autograd import tangents_of
from symshape.frontend.bridge.operators import is_view, schema_of
from symshape.frontend.bridge.size_nodes import nodes_of_sizes
from symshape.frontend.bridge.symbolic_sizes import known_equal

_aten: Any = torch.ops.aten
_FIRST: Final = (0,)
# By operator the operands that must be zeros, each by its position, for a result of zeros. Views are not listed.
_ZERO_OPERANDS: Final[Mapping[str, tuple[int, ...]]] = {
    **dict.fromkeys(("neg", "abs", "sign", "relu", "sin", "tanh", "conj", "real", "imag", "nan_to_num"), _FIRST),
    **dict.fromkeys(("div", "sum", "mean", "cumsum", "amax", "amin", "tril", "triu", "flip", "roll", "repeat"), _FIRST),
    **dict.fromkeys(("clone", "contiguous", "_to_copy", "convert_element_type", "_conj_physical", "view_of"), _FIRST),
    **dict.fromkeys(("gather", "index", "_unsafe_index", "index_select", "take", "_unsafe_view", "reshape"), _FIRST),
    **dict.fromkeys(("cat", "stack", "diag_embed", "sum_to_size", "_fft_r2c", "_fft_c2c", "_fft_c2r"), _FIRST),
    **dict.fromkeys(("complex", "maximum", "minimum"), (0, 1)),
    **dict.fromkeys(("slice_scatter", "select_scatter", "diagonal_scatter", "as_strided_scatter"), (0, 1)),
    **dict.fromkeys(("index_put", "_unsafe_index_put"), (0, 2)),
    **dict.fromkeys(("scatter_add", "scatter", "index_add", "index_copy"), (0, 3)),
    "masked_fill": (0, 2),
    "where": (1, 2),
    "copy": (1,),
    "cholesky_solve": (0,),
    "linalg_solve_triangular": (1,),
    "linalg_lu_solve": (2,),
}
_SUMS: Final = frozenset(("add", "sub", "rsub"))
_PRODUCTS: Final = frozenset(("mul", "mm", "bmm", "dot", "mv"))  # of two operands, one of which is zeros
_SUMS_OF_PRODUCTS: Final = {"addmm": 0, "baddbmm": 0, "addmv": 0, "addcmul": 0, "fma": 2}  # where the term is
_ZEROS: Final = frozenset(("zeros", "zeros_like", "new_zeros"))
_FILLS: Final = {"scalar_tensor": 0, "full": 1, "full_like": 1, "new_full": 2}  # by operator where the value is


def without_gradients(gm: torch.fx.GraphModule, undefined: Collection[int]) -> torch.fx.GraphModule:
    """A copy of a backward graph without the arguments at the positions ``undefined``, which are tangents. A gradient
    that is not computed is None. Nodes need ``meta["val"]``."""
    copy = torch.fx.GraphModule(gm, _Pruned(gm, undefined).graph)
    copy.meta = gm.meta
    return copy


def zeros_for_gradients(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """A graph that makes zeros for each tangent of a backward graph, of its other arguments."""
    graph, tangents = torch.fx.Graph(), tangents_of(gm)
    arguments = gm.graph.find_nodes(op="placeholder")
    for node in arguments:
        if node not in tangents:
            graph.node_copy(node)
    graph.output([_zeros_like(graph, node) for node in arguments if node in tangents])
    return torch.fx.GraphModule(gm, graph)


class _Pruned:
    """``graph``: the copy."""

    def __init__(self, gm: torch.fx.GraphModule, undefined: Collection[int]) -> None:
        self.graph = torch.fx.Graph()
        self._copies: dict[Node, Node] = {}  # of nodes that are not undefined
        self._materialised: dict[Node, Node] = {}  # of nodes that are
        arguments = gm.graph.find_nodes(op="placeholder")
        self._of_tangents = tangents_of(gm)  # what is computed from them is added
        self._undefined = {arguments[i] for i in undefined}
        self._zeros = set(self._undefined)  # and constants
        for node in gm.graph.nodes:
            self._visit(node)
        self.graph.eliminate_dead_code()

    def _visit(self, node: Node) -> None:
        operands = node.all_input_nodes
        if node.op == "output":
            results: Any = node.args[0]
            made = self.graph.output(tuple(self._copies.get(one) if isinstance(one, Node) else one for one in results))
            made.meta = dict(node.meta)
        elif node.op != "placeholder" or node not in self._undefined:
            if not self._of_tangents.isdisjoint(operands):
                self._of_tangents.add(node)
            if not self._undefined.isdisjoint(operands) and self._is_undefined(node):
                self._undefined.add(node)
                self._zeros.add(node)
            else:
                if self._is_constant_zero(node):
                    self._zeros.add(node)
                self._copies[node] = self._only_term(node) or self._copied(node)

    def _is_constant_zero(self, node: Node) -> bool:
        name = _name(node.target)
        if name in _FILLS:
            return self._holds_zeros(node.args[_FILLS[name]])
        return name in _ZEROS or is_view(node.target) and self._holds_zeros(node.args[0])

    def _is_undefined(self, node: Node) -> bool:
        """Whether an operator makes nothing but zeros of its operands, some of which are undefined."""
        name, args = _name(node.target), node.args
        if node.target is operator.getitem:
            return True
        if name in _SUMS:  # zeros and an undefined gradient are zeros
            return all(one in self._undefined for one in args[:2])
        if name in _PRODUCTS:
            return any(map(self._holds_zeros, args[:2]))
        if name in _SUMS_OF_PRODUCTS:
            term = _SUMS_OF_PRODUCTS[name]
            factors = [one for i, one in enumerate(args[:3]) if i != term]
            return self._holds_zeros(args[term]) and any(map(self._holds_zeros, factors))
        if name == "constant_pad_nd":
            return self._holds_zeros((args[0], *args[2:3]))
        if "backward" in name or "gradient" in name:
            gradients = self._of_tangents.intersection(node.all_input_nodes)
            return bool(gradients) and gradients <= self._undefined
        operands = _ZERO_OPERANDS.get(name, _FIRST if is_view(node.target) else None)
        return operands is not None and all(i < len(args) and self._holds_zeros(args[i]) for i in operands)

    def _holds_zeros(self, operand: Any) -> bool:
        if isinstance(operand, Node):
            return operand in self._zeros
        if isinstance(operand, list | tuple):
            return all(map(self._holds_zeros, operand))
        return isinstance(operand, int | float | complex) and operand == 0

    def _only_term(self, node: Node) -> Node | None:
        """The copy of the other operand of a sum with an undefined one, if it has the layout of the sum."""
        if _name(node.target) != "add" or node.kwargs or len(node.args) != 2:
            return None
        one, other = node.args if node.args[0] in self._undefined else reversed(node.args)
        if one not in self._undefined or not isinstance(other, Node) or not _alike(node, other):
            return None
        return self._copies[other]

    def _copied(self, node: Node) -> Node:
        optional = _optional_operands(node)

        def operand(one: Node) -> Any:
            if one not in self._undefined:
                return self._copies[one]
            return None if one in optional else self._as_zeros(one)

        return self.graph.node_copy(node, operand)

    def _as_zeros(self, node: Node) -> Node:
        """Zeros for an undefined gradient."""
        if node not in self._materialised:
            self._materialised[node] = _zeros_like(self.graph, node)
        return self._materialised[node]


def _zeros_like(graph: torch.fx.Graph, node: Node) -> Node:
    like = node.meta["val"]
    sizes = nodes_of_sizes(graph, like.shape)
    made = graph.call_function(_aten.full.default, (sizes, 0), {"dtype": like.dtype, "device": like.device})
    made.meta = {**node.meta, "val": like.new_zeros(like.shape)}
    return made


def _name(target: Any) -> str:
    """``add`` of ``aten.add.Tensor``; "" for what is no operator."""
    schema = schema_of(target)
    return "" if schema is None else schema.name.partition("::")[2]


def _alike(one: Node, other: Node) -> bool:
    """Whether the values of two nodes are known to have one type and layout."""
    a, b = one.meta["val"], other.meta["val"]
    if a.dtype != b.dtype or a.dim() != b.dim():
        return False
    return all(map(known_equal, (*a.shape, *a.stride()), (*b.shape, *b.stride())))


def _optional_operands(node: Node) -> set[Node]:
    """The operands of a gradient's operator for which it takes None: it differentiates by its own rules."""
    if "gradient" not in _name(node.target):
        return set()
    given = zip(schema_of(node.target).arguments, node.args, strict=False)
    optional: set[Node] = set()
    needed: set[Node] = set()
    for argument, value in given:
        (optional if "Optional[Tensor]" in str(argument.type) else needed).update(_nodes_in(value))
    return optional - needed


def _nodes_in(value: Any) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _nodes_in(one)
