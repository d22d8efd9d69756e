"""Walks a graph once, and keeps for each value that depends on a mask its full form, before selection."""

from __future__ import annotations

import operator
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node, map_arg

from symshape.frontend.bridge.guards import require_equal
from symshape.frontend.bridge.symbolic_sizes import assert_equal, expression_of, has_unbacked_sizes, is_unbacked
from symshape.frontend.graph_rewrites.masks.mask_space import (
    Cannot,
    Compact,
    Component,
    Joined,
    Positions,
    Scalar,
    Space,
    Uniform,
    Value,
    size_of,
)
from symshape.frontend.graph_rewrites.masks.node_writer import Writer, aten, prims
from symshape.runtime.torch_c import first_seen

Found = Value | Sequence[Value | None] | None
Rule = Callable[["Rewriter", Node], Found]


class Rewriter:
    """The state of one rewrite.

    ``values``: the rewritten form of each node that has one; for a node with several results a list of them.
    ``symbols``: the space whose elements an unbacked symbol counts. ``dropped``: assertions that were removed, each
    with a function that inserts it again where it is needed. ``returned``: the rewritten form of selected elements that
    are returned.
    """

    def __init__(self, graph: torch.fx.Graph, mode: Any) -> None:
        self.graph, self.write = graph, Writer(graph, mode)
        self.values: dict[Node, Value | Sequence[Value | None]] = {}
        self.components: dict[Node, Component] = {}
        self.spaces: dict[Node, Space] = {}
        self.symbols: dict[Any, Space | None] = {}
        self.dropped: dict[Node, Callable[[], None]] = {}
        self.returned: dict[Node, Node] = {}
        self.broadcast: dict[Any, Node] = {}  # masks over more dims, each once: a mask is known by its node
        self.of_rows: dict[Space, tuple[Space, list[str]]] = {}  # flattened rows: the space of rows, their sizes
        self.nonempty: dict[Space, None] = {}  # checked to have an element, with eager's error

    # What rules ask for.

    def compact(self, operand: Any) -> Compact | None:
        found = self.values.get(operand) if isinstance(operand, Node) else None
        return found if isinstance(found, Compact) else None

    def scalar(self, operand: Any) -> Scalar | None:
        found = self.values.get(operand) if isinstance(operand, Node) else None
        return found if isinstance(found, Scalar) else None

    def space_of(self, mask: Node) -> Space:
        """The space of a mask that is a node of the graph: a mask over whole tensors, or over selected elements."""
        if mask not in self.spaces:
            inner = self.compact(mask)
            if inner is None:
                self.spaces[mask] = Space(mask, mask, tuple(self.write.sizes(mask)))
            else:
                outer = self.write.mask_of(inner.space, mask.meta["val"].dim() - 1 - inner.dim)
                both = self.write.call(aten.logical_and.default, outer, inner.full)
                self.spaces[mask] = Space(mask, both, tuple(self.write.sizes(both)))
        return self.spaces[mask]

    def name_size(self, size: Any, space: Space) -> None:
        """Records that a size of the traced graph is the count of a space. A size that counts two masks is recorded for
        neither."""
        if isinstance(size, torch.SymInt) and is_unbacked(size):
            expr = expression_of(size)
            self.symbols[expr] = space if self.symbols.get(expr, space) is space else None

    def counted(self, size: Any) -> Space | None:
        """The space whose elements a size counts, given as a size, a node or a value of the traced graph."""
        if isinstance(size, Node):
            found = self.scalar(size)
            if found is not None:
                return found.counts
            size = size.meta.get("val")
        expr = expression_of(size) if isinstance(size, torch.SymInt) else None
        return self.symbols.get(expr) if expr is not None else None

    def full_sizes(self, sizes: Sequence[Any], space: Space, dim: int) -> list[Any]:
        """Sizes of the full form, from the sizes of a tensor whose dim ``dim`` is compact."""
        others = [*sizes[:dim], *sizes[dim + 1 :]]
        if any(self.scalar(size) is not None for size in others):
            raise Cannot("a size is computed from the number of selected elements")
        return [*sizes[:dim], *space.sizes, *sizes[dim + 1 :]]

    def whole(self, operand: Any, rank: int, space: Space, trailing: int) -> Any:
        """An operand reshaped for an operation on full forms with a result of rank ``rank`` and ``trailing`` dims
        behind the compact dim: the full form of a compact operand; another tensor with dims of size 1 inserted."""
        if not isinstance(operand, Node):
            return operand
        found = self.values.get(operand)
        if isinstance(found, Scalar):
            return found.tensor
        if isinstance(found, Compact):
            if found.space is not space:
                return self.spread(operand, operand.meta["val"].dim() - 1 - trailing, space)
            if operand.meta["val"].dim() - 1 - found.dim != trailing:
                raise Cannot("it combines selected elements at different dims")
            return found.full
        if isinstance(found, (Positions, Joined, list, tuple)):
            raise Cannot("selected elements, or their positions, are part of another tensor")
        value = operand.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.dim() <= trailing:
            return operand
        dim = value.dim() - 1 - trailing
        if size_of(value, dim) == 1:
            return self.write.unsqueeze(operand, dim, space.rank - 1)
        return self.spread(operand, dim, space)

    def spread(self, operand: Node, dim: int, space: Space) -> Node:
        """The full form of a tensor whose dim ``dim`` has one element per selected one: read at the positions where the
        mask is true. A dim of size 1 is broadcast; any other size is eager mode's error."""
        w, inner = self.write, self.compact(operand)
        ranks, count = w.ranks(space), w.count(space)
        if inner is None:
            if has_unbacked_sizes(operand.meta["val"]):
                raise Cannot("values of an unbacked number")
            source, size = operand, w.sizes(operand)[dim]
            last = size - 1 if isinstance(size, int) else w.call(operator.sub, size, 1)
            if last == -1:
                raise Cannot("values for selected elements, although none is selected")
            index = w.call(aten.clamp.default, w.call(aten.sub.Tensor, ranks, 1), 0, last)
            given = w.scalar(size, ranks.meta["val"])
        else:
            if inner.dim != dim:
                raise Cannot("it combines selected elements at different dims")
            given = w.count(inner.space)
            source = self.flattened(inner)
            wanted = w.call(aten.minimum.default, ranks, w.call(aten.clamp.default, given, 1))
            index = w.call(aten.searchsorted.Tensor, w.ranks(inner.space), wanted)
            index = w.call(aten.clamp.default, index, 0, w.call(operator.sub, self.length(inner.space), 1))
        same = w.call(aten.logical_or.default, w.call(aten.eq.Tensor, given, count), w.call(aten.eq.Scalar, given, 1))
        w.require(same, f"shape mismatch: one value, or one for each selected element of mask {space.origin.name}")
        read = w.call(aten.index_select.default, source, dim, index)
        if space.rank == 1:
            return read
        sizes = w.sizes(read)
        return w.reshape(read, [*sizes[:dim], *space.sizes, *sizes[dim + 1 :]])

    def same_size(self, a: Any, b: Any) -> bool:
        """Whether two sizes of the traced graph are equal. Backed sizes that are equal at the first call get a guard: a
        mask and what it selects from have equal sizes in almost every program. For unbacked sizes an assertion is
        inserted."""
        exprs = [expression_of(size) if isinstance(size, torch.SymInt) else size for size in (a, b)]
        if exprs[0] == exprs[1]:
            return True
        if not all(isinstance(size, int) or not is_unbacked(size) for size in (a, b)):
            return self.counted(a) is None and self.counted(b) is None and assert_equal(a, b)
        env = self.write.env
        return env is not None and require_equal(env, a, b, "mask-to-where: a mask and what it selects from")

    def selected_first(self, value: Compact, size: Any) -> Node:
        """The compact tensor itself, if its size is known without the data: element i is found by its rank."""
        w, ranks = self.write, self.write.ranks(value.space)
        wanted = w.call(
            prims.iota.default,
            size,
            start=1,
            step=1,
            dtype=torch.int64,
            device=ranks.meta["val"].device,
            requires_grad=False,
        )
        index = w.call(aten.searchsorted.Tensor, ranks, wanted)
        last = self.length(value.space)
        last = last - 1 if isinstance(last, int) else w.call(operator.sub, last, 1)
        index = w.call(aten.clamp.default, index, 0, last)
        return w.call(aten.index_select.default, self.flattened(value), value.dim, index)

    def length(self, space: Space) -> Any:
        """The number of elements of the mask, selected or not."""
        return self.write.sizes(self.write.ranks(space))[0]

    def flattened(self, value: Compact) -> Node:
        """The full form with the mask's dims flattened into one."""
        if value.space.rank == 1:
            return value.full
        sizes = self.write.sizes(value.full)
        kept = sizes[: value.dim], sizes[value.dim + value.space.rank :]
        return self.write.reshape(value.full, [*kept[0], self.length(value.space), *kept[1]])

    # The walk.

    def run(self, rules: Mapping[Any, Rule], sources: Container[Any], fallback: Rule) -> list[Component]:
        """Rewrites the graph. ``rules``: by target; those of ``sources`` start at a mask; ``fallback``: the rule of all
        other operations on values that depend on a mask. Returns the components with their outcome."""
        for node in list(self.graph.nodes):
            if node.op == "output":
                return self._finish(node)
            if node.op == "call_function":
                self._visit(node, rules.get(node.target, fallback), node.target in sources)
        return []

    def _visit(self, node: Node, rule: Rule, is_source: bool) -> None:
        inputs = [operand for operand in node.all_input_nodes if operand in self.components]
        tainted = [o for o in inputs if o in self.values and not isinstance(self.values[o], Uniform)]
        if not tainted and not is_source:
            return
        component = Component()
        for operand in tainted:
            component = component.join(self.components[operand])
        self.components[node], self.write.at = component, node
        try:
            found = rule(self, node)
            if found is None:
                if tainted and node not in self.dropped:
                    raise Cannot("it needs the selected elements in contiguous memory")
                return
            self.values[node] = found
            self._check(node, found)
            component.root().patterns.append(short_name(node))
        except Cannot as reason:
            self.values.pop(node, None)
            component.root().reasons.append((f"{short_name(node)}: {reason}", node))

    def _check(self, node: Node, found: Found) -> None:
        """Records the space of a rewritten value, and copies it to the traced dtype and layout where it has another
        one. Cannot if its full form has another dtype or rank than the mask implies."""
        if isinstance(found, (list, tuple)):
            return
        value = node.meta["val"]
        if isinstance(found, Compact):
            full = found.full.meta["val"]
            if full.dtype != value.dtype or full.dim() != value.dim() - 1 + found.space.rank:
                raise Cannot(f"its full form has another type or rank: {full.dtype}, {list(full.size())}")
            self.name_size(value.size(found.dim), found.space)
            self.own(node, found.space)
        elif isinstance(found, Positions):
            self.name_size(value.size(0), found.space)
            self.own(node, found.space)
        elif isinstance(found, Scalar) and found.counts is not None:
            self.own(node, found.counts)
        elif isinstance(found, Uniform) and isinstance(value, torch.Tensor):
            self.values[node] = Uniform(self._like(found.node, value))

    def own(self, node: Node, space: Space) -> None:
        owner = self.components[node].root()
        if space not in owner.spaces:
            owner.spaces.append(space)

    def _like(self, node: Node, value: torch.Tensor) -> Node:
        """``node``, converted to the dtype and copied to the strides of the traced ``value`` where they differ. Cannot
        if the ranks differ."""
        node = self.write.cast(node, value.dtype)
        made = node.meta["val"]
        if made.dim() != value.dim():
            raise Cannot(f"its rewritten form has {made.dim()} dims")
        strides = zip(made.stride(), value.stride(), value.size())
        if all(_same(a, b) or (isinstance(n, int) and n <= 1) for a, b, n in strides):
            return node
        order = sorted(range(value.dim()), key=lambda d: (-_hint(value.stride(d)), d))
        dense = self.write.call(aten.permute.default, node, order)
        dense = self.write.call(aten.clone.default, dense, memory_format=torch.contiguous_format)
        return self.write.call(aten.permute.default, dense, [order.index(d) for d in range(value.dim())])

    # The end.

    def _finish(self, output: Node) -> list[Component]:
        for operand in output.all_input_nodes:
            found = self.values.get(operand)
            if isinstance(found, Compact) and self._returned(output, operand, found):
                continue
            if found is not None and not isinstance(found, Uniform):
                what = "the number of selected elements is" if isinstance(found, Scalar) else "selected elements are"
                self.components[operand].root().reasons.append((f"{what} returned", operand))
        for node, check in self.dropped.items():
            if self._vanishes(node):
                self.write.at = node
                check()
                self.graph.erase_node(node)
        for operand, made in self.returned.items():
            if self._vanishes(operand):
                output.replace_input_with(operand, made)
        moved: dict[Node, torch.device] = {}
        for node, found in self.values.items():
            if isinstance(found, Uniform) and self._vanishes(node):
                node.replace_all_uses_with(found.node)
                before, after = (getattr(one.meta["val"], "device", None) for one in (node, found.node))
                if before is not None and before != after:
                    moved[found.node] = before
        self._move(moved)
        self._erase()
        return list(dict.fromkeys(component.root() for component in self.components.values()))

    def _move(self, moved: dict[Node, torch.device]) -> None:
        """Moves counts of selected elements from the host to the device of their mask, and the pointwise computations
        on them, which then do not synchronise. Other readers get a copy on the host, and so do operations with tensors
        on the host. ``moved``: nodes, with the device on which other readers expect them."""
        for node in list(self.graph.nodes) if moved else ():
            if not any(operand in moved for operand in node.all_input_nodes):
                continue
            made = self._with_new_operands(node)
            if made is not None:
                before, node.meta["val"] = node.meta["val"].device, made
                if made.device != before:
                    moved[node] = before
                continue
            self.write.at = node
            for operand in [one for one in node.all_input_nodes if one in moved]:
                back = self.write.call(aten._to_copy.default, operand, device=moved[operand])
                node.replace_input_with(operand, back)

    def _with_new_operands(self, node: Node) -> torch.Tensor | None:
        """The fake value of a pointwise operation with its present operands; None for any other operation, and where
        the operands are on different devices and must not be."""
        if node.op != "call_function" or torch.Tag.pointwise not in getattr(node.target, "tags", ()):
            return None
        target: Any = node.target
        read, named = map_arg((node.args, node.kwargs), lambda operand: operand.meta["val"])
        try:
            with self.write.mode:
                made = target(*read, **named)
        except RuntimeError:
            return None
        return made if isinstance(made, torch.Tensor) else None

    def _returned(self, output: Node, operand: Node, found: Compact) -> bool:
        """Rewrites returned selected elements whose number is the size of an input: the gradient of such an input."""
        value = operand.meta["val"]
        if has_unbacked_sizes(value):
            return False
        self.write.at = output
        size = value.size(found.dim)
        if isinstance(size, torch.SymInt):
            size = next((n for n in self.graph.nodes if _same_symbol(n.meta.get("val"), size)), None)
        if size is None:
            return False
        made = self.selected_first(found, size)
        if not all(_same(a, b) for a, b in zip(made.meta["val"].stride(), value.stride())):
            return False
        self.returned[operand] = made
        return True

    def _vanishes(self, node: Node) -> bool:
        return not self.components[node].root().reasons

    def _erase(self) -> None:
        """Erases nodes without users, last first: old forms of what was rewritten, new forms of what was not."""
        for node in reversed(list(self.graph.nodes)):
            if node.op != "call_function" or node.users:
                continue
            replaced = self.write.made.get(node)
            stays = node.is_impure() and (replaced not in self.components or self._vanishes(replaced))
            if not stays:
                self.graph.erase_node(node)


def short_name(node: Node) -> str:
    """The name of an operator without its namespace and overload."""
    packet = getattr(node.target, "overloadpacket", None)
    return str(packet or getattr(node.target, "__name__", node.target)).rpartition(".")[2]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, int) or isinstance(b, int):
        return type(a) is type(b) and a == b
    return bool(expression_of(a) == expression_of(b))


def _same_symbol(value: Any, size: torch.SymInt) -> bool:
    return isinstance(value, torch.SymInt) and bool(expression_of(value) == expression_of(size))


def _hint(stride: Any) -> int:
    found = stride if isinstance(stride, int) else first_seen(stride)
    if found is None:
        raise Cannot("its strides depend on data")
    return found
