"""Makes the code that Dynamo generates for a frame read the sizes of arguments directly.

Dynamo's own functions leave Dynamo and enter it again for each size, 2 us each, so that Python code that a tensor
subclass runs for its size is not compiled. A plain tensor runs no such code, and its size is read directly.
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
    """``x.size(i)``, fast for plain tensors."""
    return x.size(i) if type(x) in _PLAIN else utils.call_size(x, i)


def call_stride(x: Any, i: int) -> int:
    """``x.stride(i)``, fast for plain tensors."""
    return x.stride(i) if type(x) in _PLAIN else utils.call_stride(x, i)


def call_storage_offset(x: Any) -> int:
    """``x.storage_offset()``, fast for plain tensors."""
    return x.storage_offset() if type(x) in _PLAIN else utils.call_storage_offset(x)


def record_pregraph_bytecode_enter() -> Any:
    """Begins the profiler's record of reading sizes, if a profiler is on."""
    return utils.record_pregraph_bytecode_enter() if torch.autograd.profiler._is_profiler_enabled else None


def record_pregraph_bytecode_exit(shown: Any) -> None:
    """Ends the profiler's record."""
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
    skip_code(_function.__code__)  # Dynamo does not trace its frames


def read_sizes_at_once(changes: Changes) -> None:
    """Makes compiled frames read sizes with the functions of this module."""
    changes.wrap(PyCodegen, "load_import_from", _from_here)


def _from_here(original: Callable[..., None]) -> Callable[..., None]:
    def load_import_from(codegen: Any, module: str, name: str) -> None:
        ours = module == utils.__name__ and name in _OURS
        original(codegen, __name__ if ours else module, name)

    return load_import_from


def sizes_of_tensors_are_not_passed(changes: Changes) -> None:
    """Drops the sizes of its tensors from the arguments of an inference graph."""
    changes.wrap(OutputGraph, "remove_unused_graphargs", _without_sizes_of_tensors)
    changes.wrap(graph_compile, "tensorify_python_scalars", _with_sizes_of_tensors)


@functools.cache
def _without_sizes_of_tensors(original: Callable[[OutputGraph], None]) -> Callable[[OutputGraph], None]:
    @functools.wraps(original)
    def remove_unused_graphargs(output: OutputGraph) -> None:
        original(output)
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
    """Whether gradients may be needed. Backward would then save a size per tensor, not a shared argument."""
    with output.restore_global_state():
        if not torch.is_grad_enabled():
            return False
    values = pytree.tree_leaves([node.meta.get("example_value") for node in output.graph.nodes])
    return any(value.requires_grad for value in values if isinstance(value, torch.Tensor))


def _share_memory(fakes: Sequence[torch.Tensor]) -> bool:
    """Whether inputs share memory. If one of them is written, AOTAutograd passes a common base instead of the tensors,
    whose sizes would be needed."""
    memory = [fake.untyped_storage()._cdata for fake in fakes]
    return len(set(memory)) < len(memory)


@functools.cache
def _with_sizes_of_tensors(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def tensorify_python_scalars(gm: torch.fx.GraphModule, *arguments: Any) -> None:
        values = [node.meta.get("val") for node in gm.graph.nodes]
        if any(isinstance(value, torch.SymFloat) for value in values):
            _ask_tensors_for_sizes(gm.graph)
        original(gm, *arguments)

    return tensorify_python_scalars


def _ask_tensors_for_sizes(graph: torch.fx.Graph) -> None:
    """Adds a node for each size of an argument, from which the following pass recomputes floats that are made of sizes.
    That pass removes unused nodes."""
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
