"""How the code that Dynamo writes for a frame reads the sizes that a graph takes as arguments.

Dynamo's own functions leave Dynamo and enter it again for each size, so that what a tensor subclass does when it is
asked for its size is not compiled: 2 us for each. A plain tensor runs no Python code then, and is asked at once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._dynamo import utils
from torch._dynamo.codegen import PyCodegen
from torch._dynamo.eval_frame import skip_code
from torch._dynamo.output_graph import OutputGraph
from torch._functorch._aot_autograd import graph_compile
from torch._subclasses.fake_tensor import FakeTensor

from symshape.frontend.patches.patch import Changes

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def call_size(x: Any, i: int) -> int:
    """``x.size(i)``"""
    return x.size(i) if type(x) in _PLAIN else utils.call_size(x, i)


def call_stride(x: Any, i: int) -> int:
    """``x.stride(i)``"""
    return x.stride(i) if type(x) in _PLAIN else utils.call_stride(x, i)


def call_storage_offset(x: Any) -> int:
    """``x.storage_offset()``"""
    return x.storage_offset() if type(x) in _PLAIN else utils.call_storage_offset(x)


def record_pregraph_bytecode_enter() -> Any:
    """Begins what a profiler shows of the reads."""
    return utils.record_pregraph_bytecode_enter() if torch.autograd.profiler._is_profiler_enabled else None


def record_pregraph_bytecode_exit(shown: Any) -> None:
    """Ends it."""
    if shown is not None:
        utils.record_pregraph_bytecode_exit(shown)


_OURS = {
    function.__name__: function
    for function in (
        call_size,
        call_stride,
        call_storage_offset,
        record_pregraph_bytecode_enter,
        record_pregraph_bytecode_exit,
    )
}
for _function in _OURS.values():
    skip_code(_function.__code__)  # Dynamo does not look at frames of it


def read_sizes_at_once(changes: Changes) -> None:
    """Frames that are compiled read sizes by the functions above."""
    changes.wrap(PyCodegen, "load_import_from", _from_here)


def _from_here(usual: Callable[..., None]) -> Callable[..., None]:
    def load_import_from(codegen: Any, module: str, name: str) -> None:
        ours = module == utils.__name__ and name in _OURS
        usual(codegen, __name__ if ours else module, name)

    return load_import_from


def sizes_of_tensors_are_not_passed(changes: Changes) -> None:
    """A graph for inference is not given the sizes of its tensors beside them."""
    changes.wrap(OutputGraph, "remove_unused_graphargs", _without_sizes_of_tensors)
    changes.wrap(graph_compile, "tensorify_python_scalars", _with_sizes_of_tensors)


@functools.cache
def _without_sizes_of_tensors(usual: Callable[[OutputGraph], None]) -> Callable[[OutputGraph], None]:
    @functools.wraps(usual)
    def remove_unused_graphargs(output: OutputGraph) -> None:
        usual(output)
        given = [(node, node.meta["grapharg"]) for node in output.placeholders]
        fakes = [argument.fake_tensor for _, argument in given if type(argument.fake_tensor) is FakeTensor]
        if _may_be_trained(output) or _share_memory(fakes):
            return
        sizes: list[Any] = [size for fake in fakes for size in fake.shape]
        known = {size.node.expr for size in sizes if isinstance(size, torch.SymInt)}
        for node, argument in given:
            number = argument.example
            if isinstance(number, torch.SymInt) and not node.users and number.node.expr in known:
                del node.meta["grapharg"]
                output.remove_node(node)
                output.real_value_cache.pop(node, None)

    return remove_unused_graphargs


def _may_be_trained(output: OutputGraph) -> bool:
    """What is saved for backward would be a size of each tensor, where it is one argument for all that are equal."""
    with output.restore_global_state():
        if not torch.is_grad_enabled():
            return False
    values = pytree.tree_leaves([node.meta.get("example_value") for node in output.graph.nodes])
    return any(value.requires_grad for value in values if isinstance(value, torch.Tensor))


def _share_memory(fakes: Sequence[torch.Tensor]) -> bool:
    """AOTAutograd makes one base of inputs that share memory, where one is written to: its graph is given the base, not
    the tensors whose sizes are asked for."""
    memory = [fake.untyped_storage()._cdata for fake in fakes]
    return len(set(memory)) < len(memory)


@functools.cache
def _with_sizes_of_tensors(usual: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(usual)
    def tensorify_python_scalars(gm: torch.fx.GraphModule, *arguments: Any) -> None:
        values = [node.meta.get("val") for node in gm.graph.nodes]
        if any(isinstance(value, torch.SymFloat) for value in values):
            _ask_tensors_for_sizes(gm.graph)
        usual(gm, *arguments)

    return tensorify_python_scalars


def _ask_tensors_for_sizes(graph: torch.fx.Graph) -> None:
    """Has each size of an argument as a node: floats that are made of sizes are computed anew from these. Those that
    nothing reads are left out there."""
    arguments = graph.find_nodes(op="placeholder")
    if not arguments:
        return
    numbers = [node.meta.get("val") for node in arguments]
    known = {number.node.expr for number in numbers if isinstance(number, torch.SymInt)}
    with graph.inserting_after(arguments[-1]):
        for node in arguments:
            for dim, size in enumerate(getattr(node.meta.get("val"), "shape", ())):
                if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol and size.node.expr not in known:
                    known.add(size.node.expr)
                    graph.call_function(torch.ops.aten.sym_size.int, (node, dim)).meta["val"] = size
