"""AOTAutograd: random draws, gradients, writes to memory, and the partition of the joint graph."""

from __future__ import annotations

from symshape.frontend.decompositions.broadcasting import broadcasting_kernels, transformed_kernels
from symshape.frontend.decompositions.data_dependent import gradient_kernels
from symshape.frontend.decompositions.margin_losses import margin_loss_kernels
from symshape.frontend.patches import operator_kernels
from symshape.frontend.patches.aot_autograd import (
    batching_kernels,
    custom_views,
    foreach_lists,
    lost_sizes,
    random_draws,
    undefined_tangents,
    written_layouts,
)
from symshape.frontend.patches.opaque_calls import operator_rules
from symshape.frontend.patches.patch import Patch, Versions
from symshape.frontend.patches.probes import Exists, Says, Takes, added
from symshape.frontend.patches.settings import FUNCTORCH, setting
from symshape.frontend.patches.speed import silent_logs
from symshape.frontend.patches.subgraphs import associative_scan_gradients
from symshape.frontend.patches.torch_names import (
    ASSOCIATIVE,
    AUTOGRAD,
    CAPTURE,
    FUNCTIONAL,
    HIGHER_ORDER,
    MATERIALIZE,
    PARTITIONERS,
    RUNTIME,
    VIEWS,
)

ROWS: tuple[Patch, ...] = (
    Patch(
        "gradients of associative scans",
        ("frame", "graph", "jit"),
        (f"{ASSOCIATIVE}.associative_scan_op.py_kernels",),
        associative_scan_gradients.gradients_step_by_step,
        "PyTorch's rule builds a matrix of all pairs of steps, is correct for one operand only, and rejects closures",
        (
            Exists(f"{ASSOCIATIVE}.associative_scan_op.py_kernels", "dict"),
            Exists(f"{ASSOCIATIVE}.associative_scan_op._dispatch_cache", "dict"),
            Takes(f"{HIGHER_ORDER}.utils.materialize_as_graph", MATERIALIZE),
            Takes(f"{HIGHER_ORDER}.utils.split_into_chunks", "iterable, chunk_sizes"),
            Takes(f"{HIGHER_ORDER}.utils.save_values_for_backward", "ctx, args"),
            Takes(f"{HIGHER_ORDER}.utils.saved_values", "ctx"),
        ),
    ),
    setting(
        FUNCTORCH,
        "force_non_lazy_backward_lowering",
        True,
        ("graph", "jit"),
        "errors while backward is compiled must surface, and its constraints on inputs must still reach the guards",
    ),
    setting(
        FUNCTORCH,
        "unlift_effect_tokens",
        True,
        ("jit",),
        "tokens that order effects (the error checks of torch.linalg) are created in the graph, not passed as inputs",
    ),
    setting(FUNCTORCH, "cse", False, ("split",), "PyTorch's CSE merges more than is valid (common_subexpressions.py)"),
    setting(
        FUNCTORCH,
        "graphsafe_rng_functionalization",
        False,
        ("split",),
        "only CUDA graphs need generators as arguments of graphs",
    ),
    setting(
        "torch._inductor.config",
        "fallback_random",
        True,
        ("graph", "jit"),
        "dead code elimination would remove random draws whose results are unused",
        when=lambda scope: scope.eager_draws,
    ),
    Patch(
        "graphs in silent logs",
        ("graph",),
        (f"{AUTOGRAD}._log_joint_graph", f"{AUTOGRAD}._log_fw_bw_graphs"),
        silent_logs.no_graphs_for_silent_logs,
        "AOTAutograd prints the forward, backward and joint graphs for logs that are off",
        (
            Takes(f"{AUTOGRAD}._log_joint_graph", "fx_g, aot_config"),
            Takes(
                f"{AUTOGRAD}._log_fw_bw_graphs", "fw_module, bw_module, maybe_subclass_meta, fw_metadata, aot_config"
            ),
            Exists(f"{AUTOGRAD}.aot_joint_log", "Logger"),
            Exists(f"{AUTOGRAD}.aot_graphs_log", "Logger"),
            Exists("torch._logging._internal.trace_log", "Logger"),
            Says(f"{AUTOGRAD}.aot_stage2_autograd", "_log_fw_bw_graphs"),
        ),
        only_speed=True,
    ),
    Patch(
        "inputs of one memory",
        ("graph", "jit"),
        (added(f"{VIEWS}.op_implementations_dict[aten.set_.source_Storage]"),),
        operator_rules.memory_of_unknown_size,
        "the tracer's rule for a tensor over a whole storage reads the storage's size as a number",
        (
            Exists(f"{VIEWS}.op_implementations_dict", "dict"),
            Exists("torch.ops.aten.set_.source_Storage_storage_offset", "OpOverload"),
            Says(f"{VIEWS}.dispatch_to_op_implementations_dict", "op_implementations_dict"),
            Says("torch._functorch._aot_autograd.runtime_wrappers.merge_view_inputs", "set_"),
        ),
    ),
    Patch(
        "undefined gradients",
        ("graph", "jit"),
        (f"{RUNTIME}._AOTDispatchAutogradFunctionFactory.build",),
        undefined_tangents.tangents_may_be_undefined,
        "a result that backward does not reach gets a gradient of zeros, which an infinite derivative makes NaN",
        (
            Takes(f"{RUNTIME}._AOTDispatchAutogradFunctionFactory.build", "self"),
            Says(f"{RUNTIME}.AOTDispatchAutograd.process_runtime_tangent", "isinstance"),
            Exists("torch.autograd.function.FunctionCtx.set_materialize_grads"),
            Says("torch._dynamo.compiled_autograd.AutogradCompilerInstance.proxy_call_aot_backward", "_bw_prologue_fn"),
            Exists("torch._dynamo.compiled_autograd.in_compiled_autograd_region", "bool"),
        ),
        versions=Versions(first="2.13"),
    ),
    Patch(
        "views of custom functions",
        ("graph", "jit"),
        ("torch._functorch.aot_autograd.create_functional_call", "torch.Tensor.register_hook"),
        custom_views.custom_views_keep_their_gradient,
        "AOTAutograd makes outputs that share memory again as views, without custom functions and hooks between",
        (
            Takes("torch.Tensor.register_hook", "self, hook"),
            Says("torch._functorch.aot_autograd.prepare_aot_module_simplified", "create_functional_call"),
            Exists("torch.autograd.function.BackwardCFunction", "type"),
            Exists("torch._functorch._aot_autograd.schemas.OutputType.custom_function_view"),
        ),
    ),
    Patch(
        "dropout",
        ("graph", "jit"),
        ("torch.ops.aten.dropout.default.py_kernels",),
        random_draws.dropout_as_eager,
        "the tracer replaces it by native_dropout, which draws other numbers than eager mode does on CPUs",
        (
            Exists("torch.ops.aten.dropout.default.py_kernels[torch._C.DispatchKey.Autograd]"),
            Exists("torch.ops.aten.dropout.default.py_kernels[torch._C.DispatchKey.CompositeImplicitAutograd]"),
            Exists("torch.ops.aten.dropout.default._dispatch_cache", "dict"),
        ),
        issue="pytorch/pytorch#113169",
        when=lambda scope: scope.eager_draws,
    ),
    Patch(
        "fills",
        ("graph", "jit"),
        random_draws.fill_targets,
        random_draws.fills_as_eager,
        "functionalisation fills a contiguous tensor whatever the layout, and so draws other numbers than eager mode",
        (
            Exists("torch.ops.aten.normal_.default.python_key_table", "dict"),
            Exists(FUNCTIONAL),
        ),
        when=lambda scope: scope.eager_draws,
    ),
    Patch(
        "lists that share memory",
        ("graph", "jit"),
        foreach_lists.tables,
        foreach_lists.lists_are_written_in_order,
        "functionalisation of torch._foreach_* reads all tensors before it writes one; eager mode takes one at a time",
        (
            Exists("torch.ops.aten._foreach_mul_.List.python_key_table", "dict"),
            Exists(FUNCTIONAL),
        ),
    ),
    Patch(
        "layouts of what is written",
        ("graph", "jit"),
        (f"{FUNCTIONAL}.__torch_dispatch__",),
        written_layouts.dims_keep_their_order,
        "functionalisation gives an operand written in place the layout of the functional operator's result",
        written_layouts.PROBES,
        when=lambda scope: not scope.keeps_memory,
    ),
    Patch(
        "memory of what is written",
        ("graph", "jit"),
        (f"{FUNCTIONAL}.__torch_dispatch__",),
        written_layouts.memory_is_kept,
        "functionalisation gives a written part of a storage a storage of its own, which `as_strided` reveals",
        written_layouts.PROBES,
        when=lambda scope: scope.keeps_memory,
    ),
    Patch(
        "draws in subgraphs",
        ("graph", "jit"),
        ("torch.fx.Node.is_impure",),
        random_draws.draws_are_impure,
        "dead code elimination would remove higher-order operators whose subgraphs draw random numbers",
        (
            Takes("torch.fx.Node.is_impure", "self, impure_random"),
            Says("torch.fx.Graph.eliminate_dead_code", "is_impure"),
        ),
        when=lambda scope: scope.eager_draws,
    ),
    Patch(
        "conds in checkpoints",
        ("graph", "jit"),
        (added("torch.utils.checkpoint._CachingTorchDispatchMode.supports_higher_order_operators"),),
        random_draws.conds_in_checkpoints,
        "a cond in a checkpoint must be marked for recomputation like other operators",
        (
            Exists("torch.utils.checkpoint._CachingTorchDispatchMode"),
            Says("torch._ops.HigherOrderOperator.dispatch", "supports_higher_order_operators"),
        ),
    ),
    Patch(
        "order of backward",
        ("graph", "jit"),
        (f"{PARTITIONERS}.reordering_to_mimic_autograd_engine",),
        random_draws.backward_keeps_order,
        "the partitioner's reordering removes random draws whose results are unused, and changes the order of others",
        (
            Takes(f"{PARTITIONERS}.reordering_to_mimic_autograd_engine", "gm"),
            Says(f"{PARTITIONERS}.min_cut_rematerialization_partition", "reordering_to_mimic_autograd_engine"),
        ),
    ),
    Patch(
        "states of checkpoints",
        ("graph", "jit"),
        (f"{PARTITIONERS}.functionalize_rng_ops",),
        random_draws.states_have_values,
        "the calls that the partitioner inserts for random draws in a checkpoint lack fake values",
        (
            Takes(f"{PARTITIONERS}.functionalize_rng_ops", "joint_module, fw_module, bw_module, num_sym_nodes"),
            Says(f"{PARTITIONERS}.min_cut_rematerialization_partition", "functionalize_rng_ops"),
        ),
    ),
    Patch(
        "gradients of unbacked sizes",
        ("graph", "jit"),
        operator_kernels.kernel_targets(gradient_kernels),
        operator_kernels.gradients_of_unknown_sizes,
        "the gradient formulas in C++ ask for the number of elements",
        (*operator_kernels.KERNEL_PROBES, *operator_kernels.LEVEL_PROBES),
    ),
    Patch(
        "sizes lost before a trace",
        ("graph", "jit"),
        (f"{CAPTURE}._create_graph",),
        lost_sizes.lost_sizes_are_dropped,
        "a slice with a data-dependent end, of a tensor that is written, has an unbacked size that AOTAutograd loses",
        (
            Takes(f"{CAPTURE}._create_graph", "f, args, args_descs, aot_config"),
            Says("torch.fx.experimental.symbolic_shapes.compute_unbacked_bindings", "pending_fresh_unbacked_symbols"),
        ),
    ),
    Patch(
        "margin losses of several targets",
        ("graph", "jit"),
        operator_kernels.kernel_targets(margin_loss_kernels),
        operator_kernels.margin_losses,
        "the decomposition of multilabel_margin_loss counts targets after the first -1 as class 0",
        (
            *operator_kernels.KERNEL_PROBES,
            Takes("torch._decomp.decompositions.multilabel_margin_loss_forward", "input, target, reduction, out"),
        ),
    ),
    Patch(
        "broadcasts in transforms",
        ("frame", "graph", "jit"),
        operator_kernels.transform_targets(transformed_kernels),
        operator_kernels.broadcasts_in_transforms,
        "a transform of torch.func differentiates operators on sizes that may or may not be 1",
        (*operator_kernels.KERNEL_PROBES, *operator_kernels.LEVEL_PROBES),
    ),
    Patch(
        "batching rules",
        ("frame", "graph", "jit"),
        batching_kernels.batching_targets,
        batching_kernels.rules_for_any_batch,
        "in vmap, C++ makes the sizes of convolutions, `gather`, poolings and norms constant: a graph for each batch",
        (*operator_kernels.KERNEL_PROBES, *batching_kernels.PROBES),
    ),
    Patch(
        "gradients of broadcasts",
        ("graph", "jit"),
        operator_kernels.kernel_targets(broadcasting_kernels),
        operator_kernels.gradients_of_broadcasts,
        "the gradient of an operand that may have been broadcast must be summed at call time, if it was",
        operator_kernels.KERNEL_PROBES,
    ),
)
