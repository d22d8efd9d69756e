"""fuse-kernels: outlines groups of compute operations as kernel functions; main only allocates, launches and calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from torch_mlir import ir

from symshape.dialects.accessors import main_functions, rename_function, text_of_kernel
from symshape.dialects.function_facts import facts_of
from symshape.dialects.host import LaunchOp
from symshape.dialects.reals import to_bits
from symshape.dialects.types import dtype_of, tensor_type
from symshape.passes.framework.base import Pass, PassContext
from symshape.passes.fusion.anchors import choose_anchors, read_by_one_kernel
from symshape.passes.fusion.compute_graph import Compute, Graph, read_graph
from symshape.passes.fusion.group import Group, Grouping, place
from symshape.passes.fusion.kernel_plan import KernelPlan, Step, plan_kernel
from symshape.passes.fusion.kernel_sizes import KernelSizes, kernel_sizes, likeness, numbers_of
from symshape.passes.fusion.kernel_writer import KernelWriter
from symshape.passes.fusion.merge_readers import merge_with_readers
from symshape.passes.fusion.siblings import Siblings
from symshape.passes.fusion.sort import sort_block
from symshape.prover.numbers.condition import Condition
from symshape.prover.numbers.expr import Expr
from symshape.prover.numbers.facts import Facts
from symshape.prover.numbers.magnitudes import Magnitudes


@dataclass(frozen=True)
class FuseKernels(Pass):
    """Groups ``linalg.generic`` operations over one iteration space and outlines each group; equal kernels are shared.

    Before::

        %m = linalg.generic {...} ins(%x) outs(%i) {symshape.combiner = "max"}
        %e = linalg.generic {...} ins(%x, %m) outs(%j) { exp(x - m) }

    After::

        func.func private @kernel_0(%x, %dest, %s0: index) attributes {symshape.kernel} {...}
        %d = tensor.empty(%s0)
        %e = "host.launch"(%x, %d, %s0) {callee = @kernel_0}

    A kernel takes the sizes that it uses, so that loops over feature maps of other resolutions and numbers of channels
    are one kernel (``passes/fusion/kernel_sizes.py``).

    ``vertical``     fuse producers with consumers over equal domains
    ``siblings``     merge groups over one space that read a common tensor
    ``max_members``  stored or reduced values in one kernel, at most
    """

    name: ClassVar[str] = "fuse-kernels"
    statistics: ClassVar[dict[str, str]] = {
        "kernels": "different kernels",
        "launches": "launches of them",
    }
    # Outlining cannot be left out, only fusing: each operation is then a kernel of its own.
    instead: ClassVar[str] = "fuse-kernels{vertical=false siblings=false}"
    vertical: bool = True
    siblings: bool = True
    max_members: int = 64

    def run(self, module: ir.Module, context: PassContext) -> None:
        mains = [self._planned(function) for function in main_functions(module)]
        with ir.InsertionPoint(module.body), ir.Location.unknown():
            shared = _differ_in_numbers(mains)
            names: dict[str, str] = {}
            callees = [[_outline(main, plan, shared, names) for plan in main.plans] for main in mains]
        for main, outlined in zip(mains, callees, strict=True):
            launched: dict[ir.Value, ir.Value] = {}
            for plan, (callee, taken) in zip(main.plans, outlined, strict=True):
                _launch(main.graph, main.block, plan, callee, taken, launched)
            _erase_dead(main.block)
            sort_block(main.block)
        self.count(context, kernels=len(names), launches=sum(map(len, callees)))

    def _planned(self, function: Any) -> _Main:
        """The plans of a function's kernels; no IR is written yet."""
        block = function.regions[0].blocks[0]
        graph = read_graph(block)
        facts = facts_of(function, graph.sizes)
        grouping = self._group(graph, facts)
        readers = _readers(grouping)
        plans = [plan for g in grouping.groups if (plan := _plan(grouping, g, readers)).stores]
        return _Main(block, graph, facts, plans)

    def _group(self, graph: Graph, facts: Facts) -> Grouping:
        """Anchors are chosen before groups are known; those that turn out not to be needed float after all."""
        anchors = choose_anchors(graph)
        grouping = self._place(graph, facts, anchors)
        floating = read_by_one_kernel(grouping)
        return self._place(graph, facts, anchors - floating) if floating else grouping

    def _place(self, graph: Graph, facts: Facts, anchors: set[Compute]) -> Grouping:
        """Greedy, in program order. Reductions over a tensor meet before anything is computed from their results;
        other groups that could merge do so at the end, when they cannot be in the way of a consumer any more."""
        grouping = Grouping(graph, facts, self.max_members, anchors)
        siblings = Siblings(grouping)
        for node in graph.computes:
            if node in grouping.anchors:
                group, new = place(grouping, node, vertical=self.vertical)
                if self.siblings and new and node.accumulates:
                    siblings.merge(group, [node])
                else:
                    siblings.enter(group, [node])
        if self.vertical:
            for group in merge_with_readers(grouping):
                siblings.enter(group, group.placements)
        for group in grouping.groups if self.siblings else ():
            siblings.merge(group, group.placements)
        grouping.groups = [group for group in grouping.groups if group.placements]
        return grouping


@dataclass(frozen=True)
class _Main:
    """A function of the host program, and the kernels that do its work. ``rows``: ranges of its sizes."""

    block: ir.Block
    graph: Graph
    facts: Facts
    plans: Sequence[KernelPlan]
    rows: dict[Expr, list[Condition]] = field(default_factory=dict)

    @cached_property
    def magnitudes(self) -> Magnitudes:
        """Upper bounds of its sizes."""
        return Magnitudes(self.graph.sizes.shapes_in_memory(), self.facts)


def _readers(grouping: Grouping) -> dict[ir.Value, set[int]]:
    """The groups that read a value, by their numbers."""
    readers: dict[ir.Value, set[int]] = {}
    for node, reads in grouping.reads.items():
        for access in reads:
            readers.setdefault(access.base, set()).add(grouping.group_of[node].index)
    return readers


def _plan(grouping: Grouping, group: Group, readers: dict[ir.Value, set[int]]) -> KernelPlan:
    """The plan that stores what operations outside the group need in memory."""
    stored = [
        r
        for node in sorted(group.placements, key=lambda n: n.index)
        for r in node.results
        if r in grouping.graph.buffer_uses or readers.get(r, set()) - {group.index}
    ]
    return plan_kernel(grouping, group, stored)


_Written = tuple[Any, str, KernelSizes]  # a kernel: its function, that one's text, the sizes that it takes
_Shared = dict[int, _Written]  # by the identity of a plan


def _differ_in_numbers(mains: Sequence[_Main]) -> _Shared:
    """The kernels that are equal but for numbers, each written with those as arguments."""
    alike: dict[Any, list[tuple[_Main, KernelPlan, tuple[int, ...]]]] = {}
    for main in mains:
        for plan in main.plans:
            if numbers := numbers_of(plan, main.graph):
                alike.setdefault((len(numbers), likeness(plan)), []).append((main, plan, numbers))
    found: _Shared = {}
    for candidates in alike.values():
        if len({numbers for _, _, numbers in candidates}) == 1:
            continue
        by_text: dict[str, list[tuple[KernelPlan, tuple[int, ...], _Written]]] = {}
        for main, plan, numbers in candidates:
            written = _write(main, plan, kernel_sizes(plan, main.graph, main.magnitudes, numbers))
            by_text.setdefault(written[1], []).append((plan, numbers, written))
        for equal in by_text.values():
            if len({numbers for _, numbers, _ in equal}) > 1:
                found.update((id(plan), written) for plan, _, written in equal)
            else:
                for _, _, written in equal:
                    written[0].erase()
    return found


def _write(main: _Main, plan: KernelPlan, taken: KernelSizes) -> _Written:
    function = KernelWriter(plan, main.graph, main.facts, taken, main.rows).write()
    return function, text_of_kernel(function), taken


def _outline(main: _Main, plan: KernelPlan, shared: _Shared, names: dict[str, str]) -> tuple[str, KernelSizes]:
    """Writes the kernel function, if that is not done; its name, and the sizes that it takes."""
    written = shared.get(id(plan)) or _write(main, plan, kernel_sizes(plan, main.graph, main.magnitudes))
    function, text, taken = written
    if text in names:
        function.erase()
    else:
        names[text] = f"kernel_{len(names)}"
        rename_function(function, names[text])
    return names[text], taken


def _launch(
    graph: Graph,
    block: ir.Block,
    plan: KernelPlan,
    callee: str,
    taken: KernelSizes,
    launched: dict[ir.Value, ir.Value],
) -> None:
    """Writes destinations and the launch at the end of main; the block is sorted afterwards."""
    terminator = block.operations[len(block.operations) - 1]
    last = max((item.node for item in plan.items if isinstance(item, Step)), key=lambda n: n.index)
    with ir.InsertionPoint(terminator), last.op.location:
        dests = []
        for store in plan.stores:
            sizes = graph.layout(store.value).sizes
            type_ = tensor_type([s.as_int() for s in sizes], dtype_of(store.value))
            dynamic = [graph.sizes.value(s) for s in sizes if s.as_int() is None]
            dests.append(ir.Operation.create("tensor.empty", [type_], dynamic).result)
        bits = {name: to_bits(value) for value, name in taken.reals.items()}
        indices = [bits.get(size) or graph.sizes.value(size) for size in taken.arguments]
        inputs = [launched.get(v, v) for v in plan.inputs]
        op = LaunchOp(callee, [*inputs, *dests, *indices], [d.type for d in dests]).operation
        for store, result in zip(plan.stores, op.results):
            if not any(use.owner.operation.name == "symshape.bind" for use in store.value.uses):
                layout = graph.layout(store.value)
                values = [graph.sizes.value(e) for e in (*layout.sizes, *layout.strides, layout.offset)]
                ir.Operation.create("symshape.bind", [], [result, *values])
    for store, result in zip(plan.stores, op.results):
        # The generics still use the value as well; they go with the dead code.
        store.value.replace_all_uses_with(result)
        launched[store.value] = result


def _erase_dead(block: ir.Block) -> None:
    """Removes computes, their inits, views and size arithmetic that nothing uses any more, with their binds."""
    removable = ("linalg.generic", "tensor.empty", "tensor.splat", "symshape.view")
    for view in reversed(list(block.operations)):
        op = view.operation
        pure = op.name in removable or op.name.startswith("arith.")
        if not pure:
            continue
        users = [use.owner for r in op.results for use in r.uses]
        if all(u.operation.name == "symshape.bind" and u.operation.operands[0].owner == op for u in users):
            for user in {u.operation for u in users}:
                user.erase()
            op.erase()
