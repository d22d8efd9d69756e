"""Gives a plain graph, and its autograd function, calls with little Python (``runtime/autograd_calls.py``)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch._functorch.aot_autograd  # first: its parts import one another
from torch._functorch._aot_autograd import runtime_wrappers
from torch._functorch._aot_autograd.schemas import OutputType

from symshape.frontend.patches.patch import Changes
from symshape.runtime.autograd_calls import Results, backward_of, called_plainly, forward_of
from symshape.runtime.torch_c import plain_apply


def plain_graphs_are_called_plainly(changes: Changes) -> None:
    """Replaces what AOTAutograd puts around graphs that need none of it."""
    changes.wrap(runtime_wrappers._AOTDispatchAutogradFunctionFactory, "build", _with_short_calls)
    changes.wrap(runtime_wrappers, "_create_runtime_wrapper", _called_plainly)


def _with_short_calls(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def build(factory: Any) -> Any:
        function, spec = original(factory), factory.spec
        meta = spec.fw_metadata
        special = spec.maybe_subclass_meta is not None or spec.backward_state_indices or spec.disable_amp
        if special or not _is_plain(meta) or not getattr(spec.compiled_fw_func, "_boxed_call", False):
            return function
        differentiated = [
            i
            for i, info in enumerate(meta.output_info)
            if info.output_type in _DIFFERENTIATED
            and issubclass(info.raw_type, torch.Tensor)
            and info.requires_grad_for_backward
        ]
        results = Results(
            meta.num_forward_returns,
            tuple(i for i, info in enumerate(meta.output_info) if not info.requires_grad),
            tuple(meta.unsafe_view_out_indices),
            meta.tensors_saved_for_backwards_with_vc_check_slice,
            meta.symints_saved_for_backwards_slice,
        )
        if len(differentiated) != len(meta.subclass_tangent_meta):
            return function
        tangents = [(i, _is_contiguous(kind)) for i, kind in zip(differentiated, meta.subclass_tangent_meta)]

        def run() -> Any:
            compiled = function.compiled_bw
            return compiled if getattr(compiled, "_boxed_call", False) and not meta.bw_donated_idxs else None

        function.forward = staticmethod(forward_of(spec.compiled_fw_func, results, _mark_saved(meta)))
        deterministic = meta.deterministic is None or meta.deterministic
        function.backward = staticmethod(backward_of(run, tangents, _layouts(meta), function.backward, deterministic))
        return function

    return build


_DIFFERENTIATED = (OutputType.non_alias, OutputType.unsafe_view_alias, OutputType.custom_function_view)


def _is_plain(meta: Any) -> bool:
    """Whether a graph has only results that are no views, writes to no input, and draws and orders nothing by arguments
    of its own."""
    special = (
        meta.num_mutated_inp_runtime_indices,
        meta.num_outputs_aliased,
        meta.num_intermediate_bases,
        meta.num_graphsafe_rng_states,
        meta.is_rng_op_functionalized,
        meta.num_backward_tokens,
        meta.num_tensors_saved_with_no_vc_check,
        meta.num_opaque_objects_saved_for_bw,
        meta.indices_of_inputs_that_requires_grad_with_mutations_in_bw,
        meta.grad_enabled_mutation is not None,
        len(meta.tokens),
        meta.mutated_graph_handled_indices_seen_by_autograd,
    )
    return not any(special)


def _layouts(meta: Any) -> Callable[[Any, int], torch.Tensor]:
    def in_layout(x: Any, k: int) -> torch.Tensor:
        kind, described = meta.subclass_tangent_meta[k], meta.traced_tangents_descs[k]
        lines = meta.tangent_source_stack_traces
        found, _ = runtime_wrappers.AOTDispatchAutograd.process_runtime_tangent(
            x, kind, k, described, meta.compile_id_str, lines[k] if lines else None
        )
        return found

    return in_layout


def _is_contiguous(kind: Any) -> bool:
    return kind.memory_format is not None and kind.memory_format.memory_format is torch.contiguous_format


def _mark_saved(meta: Any) -> Callable[[list[torch.Tensor]], None] | None:
    dims = list(meta.dynamic_saved_tensors_idxs.items())
    return _marking(dims) if dims else None


def _marking(dims: list[tuple[int, set[int]]]) -> Callable[[list[Any]], None]:
    """Says of tensors which of their dims were symbols, which Dynamo reads where they are inputs of another graph."""

    def mark(tensors: list[Any]) -> None:
        for i, which in dims:
            runtime_wrappers.mark_dynamo_propagated_dynamic_indices(tensors[i], which)

    return mark


def _called_plainly(original: Callable[..., Any]) -> Callable[..., Any]:
    def create(
        compiled_fn: Any,
        *,
        runtime_metadata: Any,
        indices_of_inps_to_detach: list[int],
        trace_joint: bool,
        keep_input_mutations: bool,
        disable_amp: bool,
    ) -> Any:
        wrapper = original(
            compiled_fn,
            runtime_metadata=runtime_metadata,
            indices_of_inps_to_detach=indices_of_inps_to_detach,
            trace_joint=trace_joint,
            keep_input_mutations=keep_input_mutations,
            disable_amp=disable_amp,
        )
        special = disable_amp or indices_of_inps_to_detach or not _is_plain(runtime_metadata)
        special = special or getattr(compiled_fn, "_boxed_call", False) == trace_joint
        special = special or trace_joint and not isinstance(getattr(compiled_fn, "__self__", None), type)
        if special or trace_joint and runtime_wrappers._should_disable_saved_tensors_hooks():
            return wrapper
        outputs = enumerate(runtime_metadata.output_info)
        dims = [(i, info.dynamic_dims) for i, info in outputs if info.dynamic_dims is not None]
        marking = _marking(dims) if runtime_metadata.dynamic_outputs and dims else None
        run = plain_apply(compiled_fn.__self__) if trace_joint else compiled_fn
        plain = functools.wraps(wrapper)(called_plainly(run, wrapper, trace_joint, marking))
        return plain

    return create
