"""Speed: unnecessary work while tracing, and what compiled frames read at each call."""

from __future__ import annotations

from symshape.frontend.bridge.size_cache import BINARY
from symshape.frontend.patches import operator_kernels
from symshape.frontend.patches.patch import Patch, Versions
from symshape.frontend.patches.probes import Behaves, Exists, Says, Takes
from symshape.frontend.patches.speed import (
    common_factors,
    fake_tensor_creation,
    free_symbols,
    generator_states,
    graph_code,
    layout_cache,
    minimum_cut,
    needless_work,
    plain_calls,
    silent_logs,
    size_reads,
    size_recording,
    symbolic_arithmetic,
)
from symshape.frontend.patches.torch_names import (
    AUTOGRAD,
    FAKE_MODE,
    NODE,
    OUTPUT,
    PARTITIONERS,
    RUNTIME,
    SIZES,
    STUB,
    TRANSLATOR,
)

ROWS: tuple[Patch, ...] = (
    Patch(
        "calls of plain graphs",
        ("graph", "jit"),
        (f"{RUNTIME}._AOTDispatchAutogradFunctionFactory.build", f"{RUNTIME}._create_runtime_wrapper"),
        plain_calls.plain_graphs_are_called_plainly,
        "general code for views, subclasses and writes takes longer than the kernels of a small training step",
        (
            Takes(f"{RUNTIME}._AOTDispatchAutogradFunctionFactory.build", "self"),
            Takes(
                f"{RUNTIME}._create_runtime_wrapper",
                "compiled_fn, runtime_metadata, indices_of_inps_to_detach, trace_joint, keep_input_mutations, "
                "disable_amp",
            ),
            Takes(
                f"{RUNTIME}.AOTDispatchAutograd.process_runtime_tangent",
                "x, meta, tangent_idx, tangent_desc, compile_id_str, tangent_stack_trace",
            ),
            Takes(f"{RUNTIME}.mark_dynamo_propagated_dynamic_indices", "t, dims"),
            Takes(f"{RUNTIME}._should_disable_saved_tensors_hooks", ""),
            Says(f"{RUNTIME}._AutogradSavedState.save_from_forward", "_tensors_no_vc_check"),
            Says(f"{RUNTIME}._AutogradForwardEpilogue.finalize", "_materialize_non_diff_grads"),
        ),
        versions=Versions(first="2.13", last="2.13"),
        only_speed=True,
    ),
    Patch(
        "code of graphs",
        ("frame", "graph"),
        ("torch.fx.GraphModule.__new__",),
        graph_code.code_waits_for_a_call,
        "AOTAutograd and its partitioner generate the code of each copy of a graph and call hardly any",
        (
            Takes("torch.fx.GraphModule.__new__", "cls, *args, **kwargs"),
            Behaves("torch.fx._lazy_graph_module._LazyGraphModule.recompile", graph_code.lazy_code_is_new),
        ),
        only_speed=True,
    ),
    Patch(
        "arithmetic on sizes",
        ("frame", "graph"),
        (
            *(f"{NODE}.{name}" for name in (*BINARY, "expr", "maybe_as_int", "wrap_int")),
            f"{SIZES}.ShapeEnv.evaluate_sym_node",
            f"{SIZES}.uninteresting_files",
        ),
        symbolic_arithmetic.remember_arithmetic,
        "sympy computes the same few expressions hundreds of times for each tensor",
        (
            *(Takes(f"{NODE}.{name}", "self, other") for name in BINARY),
            Takes(f"{NODE}.maybe_as_int", "self"),
            Takes(f"{NODE}.wrap_int", "self, num"),
            Takes(f"{SIZES}.ShapeEnv.evaluate_sym_node", "self, sym_node, size_oblivious, fallback_value"),
            Says(f"{SIZES}.ShapeEnv._get_user_frame", "uninteresting_files"),
            Says(f"{SIZES}.ShapeEnv._set_replacement", "_replacements_version_counter"),
            Behaves(f"{NODE}.__init__", symbolic_arithmetic.nodes_are_as_made),
        ),
        versions=Versions(first="2.12"),  # earlier, a ShapeEnv does not count its replacements of symbols
        only_speed=True,
    ),
    Patch(
        "common factors of quotients",
        ("frame", "graph"),
        ("torch.utils._sympy.functions.FloorDiv.eval",),
        common_factors.factors_are_divided_by_terms,
        "sympy.simplify takes seconds to divide a sum of minima and maxima by a factor of each of its terms",
        (
            Takes("torch.utils._sympy.functions.FloorDiv.eval", "base, divisor"),
            Says("torch.utils._sympy.functions.FloorDiv.eval", "simplify"),
            Takes("torch.utils._sympy.functions.simple_floordiv_gcd", "p, q"),
        ),
        only_speed=True,
    ),
    Patch(
        "symbols of sizes",
        ("frame", "graph"),
        ("sympy.core.basic.Basic.free_symbols",),
        free_symbols.remember_free_symbols,
        "PyTorch asks each operand's sizes for their symbols, and sympy visits the whole expression each time",
        (Exists("sympy.core.basic.Basic.free_symbols", "property", own=True),),
        only_speed=True,
    ),
    Patch(
        "views from the cache",
        ("frame", "graph"),
        (f"{FAKE_MODE}._get_output_tensor_from_cache_entry",),
        fake_tensor_creation.views_are_made_once,
        "the size in bytes of a view's storage is computed twice, from symbolic sizes",
        (
            Takes(f"{FAKE_MODE}._get_output_tensor_from_cache_entry", "self, state, entry, key, func, args"),
            Takes("torch._subclasses.fake_tensor.in_kernel_invocation_manager", "fake_mode"),
            Takes(f"{STUB}.extract", "self, key, shape_env"),
            Exists("torch._subclasses._fake_tensor_utils._CacheKeyState.shape_env", "member_descriptor"),
        ),
        versions=Versions(first="2.12", last="2.14"),
        only_speed=True,
    ),
    Patch(
        "entries of the cache",
        ("frame", "graph"),
        (
            f"{FAKE_MODE}._get_output_info_for_cache_entry",
            f"{FAKE_MODE}._get_output_tensor_from_cache_entry",
        ),
        fake_tensor_creation.entries_are_not_tried,
        "to find the dispatch keys of a result, a second one is created with all its symbolic sizes",
        (
            Takes(f"{FAKE_MODE}._get_output_info_for_cache_entry", "self, state, key, func, args, kwargs, output"),
            Takes(
                f"{FAKE_MODE}._get_output_tensor_from_cache_entry",
                "self, state, entry, key, func, args | self, state, entry, key, args",
            ),
            Says(f"{FAKE_MODE}._get_output_info_for_cache_entry", "_dispatch_key_set"),
            Says(f"{FAKE_MODE}._output_from_cache_entry", "_get_output_tensor_from_cache_entry"),
        ),
        versions=Versions(first="2.12"),
        only_speed=True,
    ),
    Patch(
        "memory of wrappers",
        ("frame", "graph"),
        ("torch._subclasses.functional_tensor.FunctionalTensor.__new__",),
        fake_tensor_creation.wrappers_have_a_memory,
        "functionalisation computes the size of each wrapper's storage and records it in the graph",
        (
            Takes("torch._subclasses.functional_tensor.FunctionalTensor.__new__", "cls, elem, mode"),
            Says("torch._subclasses.functional_tensor.FunctionalTensor.__new__", "is_inference_mode_enabled"),
            Exists("torch.Tensor._make_wrapper_subclass"),
            Exists("torch._subclasses.functional_tensor.FunctionalTensor._extra_dispatch_keys"),
        ),
        versions=Versions(first="2.12", last="2.14"),
    ),
    Patch(
        "layouts of sizes and strides",
        ("frame", "graph"),
        (
            "torch._prims_common.check_contiguous_sizes_strides",
            "torch._prims_common.suggest_memory_format",
            "torch._subclasses.fake_tensor.suggest_memory_format",
        ),
        layout_cache.layouts_are_cached,
        "whether a tensor is contiguous or channels-last is asked several times, with twenty operations on sizes each",
        (
            Takes("torch._prims_common.check_contiguous_sizes_strides", "sizes, strides, false_if_dde"),
            Takes("torch._prims_common.suggest_memory_format", "x"),
            Says("torch._prims_common.is_contiguous", "check_contiguous_sizes_strides"),
            Says("torch._subclasses.fake_tensor.extract_tensor_metadata", "suggest_memory_format"),
        ),
        only_speed=True,
        versions=Versions(first="2.12"),
    ),
    Patch(
        "comparisons of sizes",
        ("frame", "graph"),
        ("torch.fx.experimental.proxy_tensor.thunkify",),
        size_recording.comparisons_are_recorded_when_used,
        "each comparison of sizes that tracing decides is recorded in the graph, and later removed as dead code",
        (
            Takes("torch.fx.experimental.proxy_tensor.thunkify", "tracer, f, *args, **kwargs"),
            Says("torch.fx.experimental.proxy_tensor._sym_register", "thunkify"),
            Takes("torch.fx.experimental.proxy_tensor._compute_proxy", "tracer, func, args, out"),
            Takes("torch.utils._thunk.Thunk.__init__", "self, f"),
        ),
        only_speed=True,
        versions=Versions(first="2.12"),
    ),
    Patch(
        "states of generators",
        ("frame", "graph"),
        ("torch._decomp.decompositions_for_rng.PhiloxState.reset",),
        generator_states.unused_states_are_shared,
        "AOTAutograd creates a dozen tensors inside of its modes for states of generators that nothing reads",
        (
            Takes("torch._decomp.decompositions_for_rng.PhiloxState.reset", "self"),
            Says("torch._decomp.decompositions_for_rng.PhiloxState.reset", "relative_offset"),
            Says("torch._decomp.decompositions_for_rng.PhiloxState.reset", "offset_advanced_at_least_once"),
            Exists("torch._functorch.config.functionalize_rng_ops", "bool"),
        ),
        only_speed=True,
        versions=Versions(first="2.12"),  # in 2.11 the attribute has another name
    ),
    Patch(
        "minimum cuts",
        ("split",),
        ("networkx.minimum_cut",),
        minimum_cut.cuts_are_found_in_lists,
        "NetworkX pushes flow through nested dictionaries, along edges that are unlimited but for a few",
        (
            Says(f"{PARTITIONERS}.solve_min_cut", "minimum_cut"),
            Behaves("networkx.minimum_cut", minimum_cut.cuts_are_the_same),
        ),
        only_speed=True,
    ),
    Patch(
        "maps over devices",
        ("frame",),
        ("torch._dynamo.variables.higher_order_ops.LocalMapWrappedHigherOrderVariable.should_wrap_in_hop",),
        needless_work.local_maps_are_imported_by_their_users,
        "Dynamo imports large parts of torch.distributed only to see that a value is not its local_map",
        (
            Takes(
                "torch._dynamo.variables.higher_order_ops.LocalMapWrappedHigherOrderVariable.should_wrap_in_hop",
                "value",
            ),
            Says(
                "torch._dynamo.variables.higher_order_ops.LocalMapWrappedHigherOrderVariable.should_wrap_in_hop",
                "torch.distributed.tensor.experimental._func_map",
            ),
        ),
        only_speed=True,
    ),
    Patch(
        "names in silent logs",
        ("frame",),
        ("torch._dynamo.symbolic_convert.get_funcname",),
        silent_logs.no_names_for_silent_logs,
        "Dynamo tokenises each source file that it traces, for a log that is off",
        (
            Takes("torch._dynamo.symbolic_convert.get_funcname", "filename, lineno"),
            Says(f"{TRANSLATOR}.get_line_of_code_header", "get_funcname"),
            Exists("torch._dynamo.symbolic_convert.trace_call_log", "Logger"),
            Exists("torch._dynamo.symbolic_convert.trace_source_log", "Logger"),
        ),
        only_speed=True,
    ),
    Patch(
        "times in silent logs",
        ("frame",),
        ("torch._dynamo.guards.profile_guard_manager",),
        silent_logs.no_times_for_silent_logs,
        "Dynamo measures the time of each frame's guards with empty caches, for a log that is off",
        (
            Exists("torch._dynamo.guards.profile_guard_manager"),
            Says("torch._dynamo.guards.CheckFunctionManager.__init__", "profile_guard_manager"),
            Exists("torch._dynamo.guards.guards_log", "Logger"),
            Exists("torch._logging._internal.trace_log", "Logger"),
        ),
        only_speed=True,
    ),
    Patch(
        "shapes in silent logs",
        ("frame",),
        (f"{OUTPUT}.OutputGraph.get_graph_sizes_structured",),
        silent_logs.no_shapes_for_silent_logs,
        "Dynamo prints the sizes of each traced tensor, for a metric that is only in the trace",
        (
            Takes(f"{OUTPUT}.OutputGraph.get_graph_sizes_structured", "self"),
            Says("torch._dynamo.convert_frame._compile", "get_graph_sizes_structured"),
            Exists("torch._logging._internal.trace_log", "Logger"),
        ),
        only_speed=True,
    ),
    Patch(
        "sizes of batch normalisations",
        ("frame", "graph"),
        operator_kernels.batch_norm_targets,
        operator_kernels.sizes_of_batch_norms,
        "to find a result's sizes, PyTorch runs the decomposition: twenty operators on symbolic sizes",
        (
            Takes(
                "torch._decomp.decomposition_table[aten._native_batch_norm_legit_no_training.default]",
                "input, weight, bias, running_mean, running_var, momentum, eps",
            ),
            *(
                Takes(
                    f"torch._decomp.decomposition_table[aten.{name}.default]",
                    "input, weight, bias, running_mean, running_var, training, momentum, eps",
                )
                for name in ("_native_batch_norm_legit", "_native_batch_norm_legit_functional")
            ),
            Says("torch._decomp.decompositions.native_batch_norm_helper", "new_zeros"),
        ),
        only_speed=True,
        versions=Versions(first="2.12"),
    ),
    Patch(
        "how frames read sizes",
        ("frame",),
        ("torch._dynamo.codegen.PyCodegen.load_import_from",),
        size_reads.read_sizes_at_once,
        "Dynamo's functions that read a size leave Dynamo and enter it again: 2 us for each size of a call",
        (
            Takes("torch._dynamo.codegen.PyCodegen.load_import_from", "self, module_name, object_name"),
            Takes("torch._dynamo.utils.call_size", "x, i"),
            Takes("torch._dynamo.utils.call_stride", "x, i"),
            Takes("torch._dynamo.utils.call_storage_offset", "x"),
        ),
    ),
    Patch(
        "sizes beside tensors",
        ("frame",),
        (f"{OUTPUT}.OutputGraph.remove_unused_graphargs", f"{AUTOGRAD}.tensorify_python_scalars"),
        size_reads.sizes_of_tensors_are_not_passed,
        "a frame reads each size of each tensor at every call, although inference graphs can read them from tensors",
        (
            Takes(f"{OUTPUT}.OutputGraph.remove_unused_graphargs", "self"),
            Takes(f"{OUTPUT}.OutputGraph.remove_node", "self, *args, **kwargs"),
            Takes(f"{AUTOGRAD}.tensorify_python_scalars", "gm, shape_env, fake_mode"),
            Says(f"{AUTOGRAD}._apply_tensorify_python_scalars", "tensorify_python_scalars"),
        ),
    ),
)
