"""Calls AOTAutograd: from a Dynamo graph to forward and backward graphs of operators."""

from __future__ import annotations

import copy
import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

import torch
from torch._dynamo.exc import TensorifyScalarRestartAnalysis
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensor
from torch.multiprocessing.reductions import StorageWeakRef


def aot_compile(
    gm: torch.fx.GraphModule,
    example_inputs: list[Any],
    *,
    forward: Any,
    backward: Any,
    inference: Any,
    joint: Any,
    splitting: Callable[[], AbstractContextManager[Any]],
    decompositions: dict[Any, Any],
) -> Any:
    """AOTAutograd with these decompositions. ``joint`` rewrites forward and backward before they are split;
    ``splitting()`` is entered while they are."""
    from torch._dynamo.eval_frame import innermost_fn

    how = {"fw_compiler": forward, "bw_compiler": without_donations(backward), "inference_compiler": inference}
    partition = partition_after(joint, splitting, leaves_with_gradient(torch.utils._pytree.tree_leaves(example_inputs)))
    how |= {"decompositions": decompositions, "partition_fn": partition}
    if os.environ.get("TORCH_COMPILE_DEBUG") == "1" or any(isinstance(x, list | tuple | dict) for x in example_inputs):
        from torch._dynamo.backends.common import aot_autograd  # writes files, or flattens inputs

        with unbacked_sizes_allowed():
            return innermost_fn(aot_autograd(**how)(gm, example_inputs))  # Dynamo keeps out of what a backend returns
    with unbacked_sizes_allowed():
        return _aot_module(gm, example_inputs, **how)


@contextmanager
def unbacked_sizes_allowed() -> Iterator[None]:
    """Where Dynamo breaks graphs at operators whose sizes depend on data (``torch.compile`` without our settings), its
    environment forbids them in what AOTAutograd traces too: the gradient of ``y[mask] = x`` would fail."""
    context = TracingContext.try_get()
    env = context.fake_mode.shape_env if context is not None and context.fake_mode is not None else None
    if env is None:
        yield
        return
    before = env.settings
    env.settings = dataclasses.replace(before, allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True)
    try:
        yield
    finally:
        env.settings = before


def _aot_module(gm: torch.fx.GraphModule, example_inputs: list[Any], bw_compiler: Any, **how: Any) -> Any:
    """``torch._dynamo.backends.common.aot_autograd`` without its import of Inductor for log files."""
    from torch._dynamo.utils import counters
    from torch._functorch.aot_autograd import aot_module_simplified

    counted = counters["aot_autograd"]
    counted["total"] += 1
    outcome = "not_ok"
    try:
        compiled = aot_module_simplified(gm, example_inputs, bw_compiler=_untraced(bw_compiler), **how)
        outcome = "ok"
    except TensorifyScalarRestartAnalysis:
        outcome = ""  # Dynamo traces once more
        raise
    finally:
        if outcome:
            counted[outcome] += 1
    return compiled


def _untraced(compiler: Callable[..., Any]) -> Callable[..., Any]:
    """A backward compiler that Dynamo does not trace, nor the code that it returns."""

    def compile_backward(*args: Any, **kwargs: Any) -> Any:
        compiled = torch._dynamo.disable(compiler, reason="do not trace backward compiler function")(*args, **kwargs)
        return torch._dynamo.disable(compiled, reason="do not trace generated backwards pass")

    compile_backward._is_wrapped_bw_compiler = True  # type: ignore[attr-defined]
    return compile_backward


def without_donations(compiler: Callable[..., Any]) -> Callable[..., Any]:
    """A backward compiler for graphs that may run several times. AOTAutograd donates buffers that are saved for one
    backward graph alone, and then rejects ``retain_graph=True``. Our programs only read them."""

    def compile_backward(*args: Any, **kwargs: Any) -> Any:
        context = TracingContext.try_get()
        metadata = context.fw_metadata if context is not None else None
        donated = metadata.bw_donated_idxs if metadata is not None else None
        if donated:
            donated.clear()  # one list: the metadata of tensor subclasses and of their parts share it
        return compiler(*args, **kwargs)

    return compile_backward


def leaves_with_gradient(inputs: Iterable[Any]) -> list[int]:
    """The positions of parameters among inputs: of tensors that an optimiser may write to, and no operator."""
    return [i for i, x in enumerate(inputs) if isinstance(x, torch.Tensor) and x.requires_grad and x.is_leaf]


def partition_after(
    rewrite: Callable[[torch.fx.GraphModule], torch.fx.GraphModule],
    splitting: Callable[[], AbstractContextManager[Any]],
    parameters: Iterable[int],
) -> Callable[..., Any]:
    """A partition function for AOTAutograd: splits a joint graph into forward and backward, after ``rewrite`` (CSE, and
    tags for what is saved) and within the context ``splitting()``. ``parameters``: positions of inputs
    (``shared_with_the_caller``)."""
    from torch._functorch._aot_autograd.descriptors import PlainAOTInput
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    kinds = {PlainAOTInput(idx=i) for i in parameters}

    def partition(joint: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
        for node in joint.graph.find_nodes(op="placeholder"):
            node.meta[_PARAMETER] = node.meta.get("desc") in kinds
        joint = rewrite(joint)
        if not computes_in_backward(joint):
            _save_nothing(joint)
        with splitting():
            return min_cut_rematerialization_partition(joint, *args, **kwargs)

    return partition


def tangents_of(gm: torch.fx.GraphModule) -> set[torch.fx.Node]:
    """The placeholders of a joint or backward graph for gradients of results: those that PyTorch's partitioner takes
    for them."""
    from torch._functorch.partitioners import _is_tangent

    return set(filter(_is_tangent, gm.graph.find_nodes(op="placeholder")))


def computes_in_backward(joint: torch.fx.GraphModule) -> bool:
    """Whether a joint graph has nodes of backward; in one without, the gradients are the tangents themselves."""
    tangents = tangents_of(joint)
    return any(
        not tangents.isdisjoint(node.all_input_nodes) or "backward" in node.meta.get("partitioner_tag", "")
        for node in joint.graph.nodes
        if node.op not in ("placeholder", "output")
    )


def _save_nothing(joint: torch.fx.GraphModule) -> None:
    """Drops the tags of what is to be saved. PyTorch saves what has one even where there are no nodes of backward to
    read it."""
    for node in joint.graph.nodes:
        node.meta.pop("recompute", None)


_PARAMETER: Final = "symshape_parameter"  # says it of a placeholder


def is_recomputed(node: torch.fx.Node) -> bool:
    """Whether a node of a joint graph is in a checkpoint, and is to be computed again in backward."""
    from torch._functorch.partitioners import must_recompute

    return bool(must_recompute(node))


def mutated_inputs(joint: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """The placeholders of a joint graph for inputs that the caller's program writes to."""
    from torch._functorch._aot_autograd.descriptors import InputMutationAOTOutput

    (output,) = joint.graph.find_nodes(op="output")
    written = {one.mutated_input for one in output.meta["desc"] if isinstance(one, InputMutationAOTOutput)}
    return [node for node in joint.graph.find_nodes(op="placeholder") if node.meta.get("desc") in written]


def shared_with_the_caller(joint: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """The nodes of a joint graph whose memory the caller has too: results, and inputs but parameters."""
    from torch._functorch._aot_autograd.descriptors import GradAOTOutput, InputMutationAOTOutput, PlainAOTInput

    placeholders = joint.graph.find_nodes(op="placeholder")
    inputs = [node for node in placeholders if isinstance(node.meta.get("desc"), PlainAOTInput)]
    shared = [node for node in inputs if not node.meta.get(_PARAMETER)]
    (output,) = joint.graph.find_nodes(op="output")
    for node, kind in zip(output.args[0], output.meta["desc"], strict=True):
        if isinstance(node, torch.fx.Node) and not isinstance(kind, InputMutationAOTOutput | GradAOTOutput):
            shared.append(node)
    return [node for node in shared if isinstance(node.meta.get("val"), torch.Tensor)]


def base_arguments(gm: torch.fx.GraphModule) -> list[int]:
    """Positions of the inputs that AOTAutograd has put in the place of inputs that share memory."""
    from torch._functorch._aot_autograd.descriptors import SyntheticBaseAOTInput, ViewBaseAOTInput

    kinds = (SyntheticBaseAOTInput, ViewBaseAOTInput)
    placeholders = gm.graph.find_nodes(op="placeholder")
    return [i for i, node in enumerate(placeholders) if isinstance(node.meta.get("desc"), kinds)]


OTHER: Final = -1
MADE_OF_INPUT: Final = -2


def written_inputs(gm: torch.fx.GraphModule, kind: str) -> list[int]:
    """For each result of a graph the position of the input that AOTAutograd copies it to after the call, if the graph
    may as well write there itself: where autograd does not see it, and the layout is unchanged. MADE_OF_INPUT for
    results that AOTAutograd replaces by an input or a view of one; OTHER for all others. Empty if nothing may be
    written. ``kind``: of the graph; a backward graph writes nothing."""
    from torch._functorch._aot_autograd.descriptors import (
        InputMutationAOTOutput,
        MetadataMutationAOTOutput,
        PlainAOTOutput,
    )
    from torch._functorch._aot_autograd.schemas import OutputType

    (output,) = gm.graph.find_nodes(op="output")
    context = TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    told = _descriptions(output)
    if kind == "backward" or metadata is None or not told or base_arguments(gm):
        return []
    made = (OutputType.is_input, OutputType.alias_of_input)
    position = {node.meta.get("desc"): i for i, node in enumerate(gm.graph.find_nodes(op="placeholder"))}
    mutations = [one for one in told if isinstance(one, InputMutationAOTOutput | MetadataMutationAOTOutput)]
    if len(mutations) != len(metadata.mutated_inp_runtime_indices):
        return []  # a tensor subclass, whose parts are written to
    places: dict[Any, int] = {}
    for index, one in zip(metadata.mutated_inp_runtime_indices, mutations):
        if isinstance(one, InputMutationAOTOutput) and _is_only_data(metadata.input_info[index]):
            places[one] = position.get(one.mutated_input, OTHER)
    for one in told:
        if isinstance(one, PlainAOTOutput) and metadata.output_info[one.idx].output_type in made:
            places[one] = MADE_OF_INPUT
    found = [places.get(one, OTHER) for one in told]
    return found if max(found, default=OTHER) >= 0 else []


def _descriptions(output: torch.fx.Node) -> list[Any]:
    """AOTAutograd's description of each result of a graph. If it has removed the tokens of operators with side effects
    from the graph, as it does without Dynamo, it still describes them, before all others. Empty if the descriptions do
    not match the results."""
    from torch._functorch._aot_autograd.descriptors import ForwardTokenAOTOutput

    told, results = list(output.meta.get("desc") or ()), output.args[0]
    count = len(results) if isinstance(results, tuple | list) else 1
    without = [one for one in told if not isinstance(one, ForwardTokenAOTOutput)]
    return next((one for one in (told, without) if len(one) == count), [])


def saved_for_backward(gm: torch.fx.GraphModule) -> list[bool]:
    """For each result of a forward graph, whether it is saved for backward. Empty where that is not known."""
    from torch._functorch._aot_autograd.descriptors import (
        SavedForBackwardsAOTOutput,
        SavedForBackwardsNoVcCheckAOTOutput,
    )

    (output,) = gm.graph.find_nodes(op="output")
    kinds = (SavedForBackwardsAOTOutput, SavedForBackwardsNoVcCheckAOTOutput)
    return [isinstance(one, kinds) for one in _descriptions(output)]


def _is_only_data(info: Any) -> bool:
    """Whether an input is written to without autograd, and keeps its sizes, strides and memory."""
    unseen = info.mutations_hidden_from_autograd or info.mutations_under_no_grad_or_inference_mode
    other = info.mutates_metadata or info.mutates_storage_metadata or info.mutation_inductor_storage_resize
    return info.mutates_data and not other and (unseen or not info.requires_grad)


def restrided_and_written() -> list[int]:
    """Inputs of the graph that is compiled which change their elements and their sizes or strides. AOTAutograd gives
    them the layout of their new values, which are in memory of their own: it writes elsewhere where an input is a part
    of other memory."""
    context = TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    infos = metadata.input_info if metadata is not None else ()
    return [i for i, info in enumerate(infos) if info.mutates_data and info.mutates_metadata]


def lasting_inputs(gm: torch.fx.GraphModule) -> frozenset[int]:
    """Positions of the inputs of a forward or backward graph that are parameters and buffers: their memory stays where
    it is from call to call, as a rule."""
    from torch._functorch._aot_autograd.descriptors import PlainAOTInput

    context = TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    known = set(metadata.static_input_indices if metadata is not None else ()) | gm.meta.get(_LASTING, set())
    described = [node.meta.get("desc") for node in gm.graph.find_nodes(op="placeholder")]
    return frozenset(i for i, d in enumerate(described) if isinstance(d, PlainAOTInput) and d.idx in known)


def traced_later() -> Callable[[], AbstractContextManager[Any]]:
    """The TracingContext of the graph that is compiled now, to be entered when another graph is compiled from it after
    the trace. AOTAutograd compiles backward graphs in the same way."""
    context = TracingContext.try_get()
    return nullcontext if context is None else functools.partial(tracing, copy.copy(context))


_LASTING = "symshape_lasting"


def mark_lasting(gm: torch.fx.GraphModule, arguments: Iterable[int]) -> None:
    """Records for ``lasting_inputs`` which arguments of the traced function are parameters and buffers, if the tracer
    was not told."""
    gm.meta[_LASTING] = set(arguments)


def takes_boxed_arguments(run: Callable[..., Any]) -> None:
    """Tells AOTAutograd that a compiled function takes its arguments as one list, which it may clear."""
    run._boxed_call = True  # type: ignore[attr-defined]


_UNDEFINED: Final = "symshape_undefined_gradients"


def takes_undefined_gradients(run: Callable[..., Any], as_zeros: Callable[[list[Any]], list[Any]]) -> None:
    """Says of a compiled backward graph that its tangents may be None. ``as_zeros`` of its arguments replaces them, for
    who runs the traced graph itself."""
    setattr(run, _UNDEFINED, as_zeros)


def undefined_gradients_of(run: Any) -> Callable[[list[Any]], list[Any]] | None:
    """``as_zeros`` of a compiled backward graph whose tangents may be None; None for others."""
    return getattr(run, _UNDEFINED, None)


def written_arguments() -> list[int]:
    """Positions of the arguments that the graph that AOTAutograd has just traced writes to; [] if it traced none. Bases
    come first where there are any."""
    context = TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    return list(metadata.mutated_inp_runtime_indices) if metadata is not None else []


def parts_of_bases(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> list[set[int]]:
    """For each base among the arguments of a graph, in their order, the positions of the traced ``inputs`` that are
    parts of it."""
    placeholders = gm.graph.find_nodes(op="placeholder")
    memory = {i: StorageWeakRef(x.untyped_storage()) for i, x in enumerate(inputs) if isinstance(x, torch.Tensor)}
    known = (placeholders[i].meta["desc"].base_of.idx for i in base_arguments(gm))
    return [{i for i, one in memory.items() if one == memory[part]} for part in known]


def written_with_bases(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> set[int]:
    """The same as ``written_arguments`` in positions of the traced ``inputs``, for a graph with bases: all parts of a
    base that is written to are among them."""
    from torch._functorch._aot_autograd.descriptors import PlainAOTInput

    parts = parts_of_bases(gm, inputs)
    described = [node.meta.get("desc") for node in gm.graph.find_nodes(op="placeholder")]
    others = [one.idx for one in described if isinstance(one, PlainAOTInput)]
    given = [*parts, *({i} for i in others)]
    return set().union(*(given[i] for i in written_arguments()))


def plain_tensors(gm: torch.fx.GraphModule) -> list[int]:
    """Positions of the arguments of a Dynamo graph that are dense tensors and of no class of their own."""
    values = [node.meta.get("example_value") for node in gm.graph.find_nodes(op="placeholder")]
    return [
        i
        for i, value in enumerate(values)
        if isinstance(value, FakeTensor) and value.layout == torch.strided and not value.is_nested
    ]
