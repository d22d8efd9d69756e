"""AOTAutograd: a Dynamo graph becomes graphs of operators, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch


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
    from torch._dynamo.backends.common import aot_autograd
    from torch._dynamo.eval_frame import innermost_fn

    compile_ = aot_autograd(
        fw_compiler=forward,
        bw_compiler=backward,
        inference_compiler=inference,
        decompositions=decompositions,
        partition_fn=partition_after(joint, splitting),
    )
    return innermost_fn(compile_(gm, example_inputs))  # Dynamo itself keeps out of what a backend returns


def partition_after(
    rewrite: Callable[[torch.fx.GraphModule], torch.fx.GraphModule],
    splitting: Callable[[], AbstractContextManager[Any]],
) -> Callable[..., Any]:
    """Splits a joint graph into forward and backward, after ``rewrite``, which merges equal calls and marks what is
    saved; ``splitting()`` is entered for it."""
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    def partition(joint: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
        joint = rewrite(joint)
        with splitting():
            return min_cut_rematerialization_partition(joint, *args, **kwargs)

    return partition


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


def base_arguments(gm: torch.fx.GraphModule) -> list[int]:
    """Positions of the inputs that AOTAutograd has put in the place of inputs that share memory."""
    from torch._functorch._aot_autograd.descriptors import SyntheticBaseAOTInput, ViewBaseAOTInput

    kinds = (SyntheticBaseAOTInput, ViewBaseAOTInput)
    placeholders = gm.graph.find_nodes(op="placeholder")
    return [i for i, node in enumerate(placeholders) if isinstance(node.meta.get("desc"), kinds)]


def takes_boxed_arguments(run: Callable[..., Any]) -> None:
    """Tells AOTAutograd that a compiled function takes its arguments as one list, which it may clear."""
    run._boxed_call = True  # type: ignore[attr-defined]
