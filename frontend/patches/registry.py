"""Every change that symshape makes to PyTorch, in one table, and the one way to make them.

``in_force`` makes the changes of a scope under Dynamo's compile lock and reverts them, whatever raises. A scope inside
of another one, in the same thread, makes what the other has not made; settings it sets again. Rows are in the order in
which they are made: of two that replace one function the later one calls the earlier one.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence

from torch._dynamo.convert_frame import compile_lock

from symshape.frontend.bridge import general_shape_env
from symshape.frontend.bridge.size_memory import BINARY
from symshape.frontend.decompositions.broadcasting import broadcasting_kernels, transformed_kernels
from symshape.frontend.decompositions.data_dependent import gradient_kernels, size_kernels
from symshape.frontend.decompositions.margin_losses import margin_loss_kernels
from symshape.frontend.patches import (
    assert_messages,
    associative_scan_gradients,
    associative_scans,
    autograd_kernels,
    branch_results,
    broadcast_rules,
    checkpoints,
    convolution_layouts,
    data_parallel,
    declared_sizes,
    dynamo_nodes,
    empty_sizes,
    fake_results,
    float_constants,
    general_sizes,
    generators,
    input_views,
    integer_inputs,
    integer_parameters,
    jit_tracing,
    layout_questions,
    lazy_modules,
    lost_sizes,
    needless_work,
    nested_attention,
    nested_functions,
    nested_products,
    nested_regions,
    nested_views,
    number_arguments,
    number_functions,
    operator_rules,
    random_draws,
    repro_files,
    scan_gradients,
    scattered_sources,
    silent_logs,
    size_reads,
    size_recording,
    storage_offsets,
    symbolic_arithmetic,
    tensor_making,
    torch_checks,
    torch_layers,
    trace_messages,
    view_layouts,
    zero_tensors,
)
from symshape.frontend.patches.foreign_texts import message_of_symbolic_sizes
from symshape.frontend.patches.patch import Changes, Patch, Scope, Versions
from symshape.frontend.patches.probes import Behaves, Documents, Exists, HasLocal, Says, Takes, added
from symshape.frontend.patches.settings import DYNAMO, FUNCTORCH, Change, setting

_SIZES = "torch.fx.experimental.symbolic_shapes"
_NODE = "torch.fx.experimental.sym_node.SymNode"
_FAKE_MODE = "torch._subclasses.fake_tensor.FakeTensorMode"
_STUB = "torch._subclasses._fake_tensor_utils._SymIntOutputStub"
_VARIABLES = "torch._dynamo.variables"
_TENSOR = f"{_VARIABLES}.tensor.TensorVariable"
_IN_GRAPH = f"{_VARIABLES}.torch.TorchInGraphFunctionVariable"
_TRANSLATOR = "torch._dynamo.symbolic_convert.InstructionTranslatorBase"
_OUTPUT = "torch._dynamo.output_graph"
_PARTITIONERS = "torch._functorch.partitioners"
_AUTOGRAD = "torch._functorch._aot_autograd.graph_compile"
_CAPTURE = "torch._functorch._aot_autograd.graph_capture"
_CHECKPOINT = f"{_VARIABLES}.higher_order_ops.CheckpointHigherOrderVariable"
_NESTED = "torch.nested._internal.nested_tensor.NestedTensor"
_BUILDER = f"{_VARIABLES}.builder"
_REGIONS = f"{_VARIABLES}.invoke_subgraph"
_VIEWS = "torch._subclasses.fake_impls"
_RULES = "torch._library.utils"
_DEBUG = "torch._dynamo.repro.after_dynamo.WrapBackendDebug"
_HIGHER_ORDER = "torch._higher_order_ops"
_ASSOCIATIVE = f"{_HIGHER_ORDER}.associative_scan"
_MATERIALIZE = "fn, args, include_key_set, exclude_key_set, force_enable_grad, subgraph_decomp_table"
_ASSOCIATIVE_VARIABLE = f"{_VARIABLES}.higher_order_ops.AssociativeScanHigherOrderVariable"
_PARTIAL = "self, func, args, keywords, original_cache_hash, **kwargs"
_DIVISIONS = ("mod", "int_floordiv", "int_truediv", "float_truediv", "float_pow")
_FUNCTIONS = ("_sym_sqrt", "_sym_log2", "_sym_asin", "_sym_acos")

SETTINGS: tuple[Patch, ...] = (
    setting(
        "torch.fx.experimental._config",
        "use_duck_shape",
        False,
        ("frame",),
        "two sizes that happen to be equal at the first call would become one symbol, and a guard on their equality",
    ),
    setting(
        DYNAMO,
        "assume_static_by_default",
        False,
        ("frame",),
        "dynamic sizes; `dynamic=True` sets and reverts it at every call, which takes 5 us",
    ),
    setting(DYNAMO, "capture_scalar_outputs", True, ("frame",), "item() would break the graph"),
    setting(
        DYNAMO, "capture_dynamic_output_shape_ops", True, ("frame",), "nonzero() and the like would break the graph"
    ),
    setting(DYNAMO, "use_numpy_random_stream", True, ("frame",), "numpy.random would draw from PyTorch's generator"),
    setting(
        DYNAMO, "allow_rnn", True, ("frame",), "recurrent layers would break the graph; they are calls (recurrent.py)"
    ),
)

FRAME_PATCHES: tuple[Patch, ...] = (
    Patch(
        "layouts of views",
        ("frame",),
        (f"{_VIEWS}._view_has_unbacked_input",),
        view_layouts.views_by_strides,
        "the usual rule for views guards on which size divides which",
        (
            Takes(f"{_VIEWS}._view_has_unbacked_input", "a, shape"),
            Says(f"{_VIEWS}._view_meta", "_view_has_unbacked_input"),
            Exists(f"{_VIEWS}._view_unbacked_meta"),
        ),
    ),
    Patch(
        "nested tensors that are views",
        ("frame",),
        (added(f"{_NESTED}._is_view"),),
        nested_views.nested_views_are_tensors,
        "of a view the base is traced and guarded, which a nested tensor that an operator made does not have",
        (
            Exists(f"{_NESTED}._is_view"),
            Says(f"{_BUILDER}._automatic_dynamic", "_is_view"),
            Says(f"{_BUILDER}.VariableBuilder.wrap_tensor", "_is_view"),
            Says("torch._subclasses.meta_utils.MetaTensorDescriber.describe_tensor", "_is_view"),
        ),
    ),
    Patch(
        "values of nested tensors",
        ("frame", "graph"),
        tuple(
            f"torch.nested._internal.ops.JAGGED_OPS_TABLE[torch.ops.aten.{name}.default]"
            for name in ("values", "_nested_get_values")
        ),
        nested_views.values_are_differentiable_views,
        "they are detached, which AOTAutograd repeats where they are a view of an input: the result has no gradient",
        (
            Exists("torch.ops.aten._nested_get_values.default", "OpOverload"),
            Exists("torch.ops.aten.alias.default", "OpOverload"),
            Says("torch.nested._internal.ops.values_default", "detach"),
        ),
    ),
    Patch(
        "attention of nested tensors",
        ("frame",),
        ("torch.nested._internal.ops.jagged_scaled_dot_product_attention",),
        nested_attention.nested_attention_is_one_operator,
        "on CPUs it reads the lengths on the host and makes a tensor of each row, which is a graph break",
        (
            Takes(
                "torch.nested._internal.sdpa.jagged_scaled_dot_product_attention",
                "query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa",
            ),
            Says("torch.nested._internal.ops.jagged_torch_function", "jagged_scaled_dot_product_attention"),
            Takes("torch.nested._internal.sdpa._autocast", "query, key, value, attn_mask"),
            Takes(
                "torch.nested._internal.sdpa._validate_sdpa_input",
                "query, key, value, attn_mask, dropout_p, is_causal, scale",
            ),
        ),
    ),
    Patch(
        "functions of nested tensors",
        ("frame",),
        ("torch.nested._internal.ops.jagged_torch_function",),
        nested_functions.nested_functions_have_rules,
        "variance, cumulative sums, slices, joined rows and more have no rule, sums over the ragged dim no gradient",
        (
            Takes("torch.nested._internal.ops.jagged_torch_function", "func, *args, **kwargs"),
            Says(f"{_NESTED}.__torch_function__", "jagged_torch_function"),
            Exists("torch.ops.aten._jagged_to_padded_dense_forward.default", "OpOverload"),
            Exists("torch.ops.aten._padded_dense_to_jagged_forward.default", "OpOverload"),
        ),
    ),
    Patch(
        "products of nested tensors",
        ("frame", "graph"),
        ("torch.nested._internal.ops.JAGGED_OPS_TABLE[torch.ops.aten.matmul_backward.default]",),
        nested_products.gradients_of_values,
        "the gradient of a matrix that all rows are multiplied by is one product of all values, not one for each row",
        (
            Exists("torch.ops.aten.matmul_backward.default", "OpOverload"),
            Says("torch.nested._internal.ops.matmul_backward_default", "mask"),
        ),
    ),
    Patch(
        "regions that are traced once",
        ("frame",),
        (f"{_REGIONS}.find_reuse_match", f"{_REGIONS}.find_reuse_entry_by_key"),
        nested_regions.sizes_of_regions_are_bound,
        "a region that takes a size which a guard has made a number since is a KeyError where it is called again",
        (
            Exists(f"{_REGIONS}.LiftedBoundSymbol"),
            Says(f"{_REGIONS}.stamp_out_subgraph", "bound_symbols"),
            Says(f"{_REGIONS}.stamp_out_subgraph", "subgraph_input_mapping"),
        ),
        versions=Versions(first="2.13"),
    ),
    Patch(
        "integers in inputs",
        ("frame",),
        ("torch._subclasses.fake_tensor.FakeTensorConverter.from_real_tensor",),
        integer_inputs.items_are_unbacked,
        "`item` of an integer input would be guarded, and compiled anew for 0, 1 and what is branched on",
        (
            Takes(
                "torch._subclasses.fake_tensor.FakeTensorConverter.from_real_tensor",
                "self, fake_mode, t, make_constant, shape_env, source, symbolic_context, trace",
            ),
            Exists("torch._subclasses.fake_tensor.FakeTensor.item_memo"),
        ),
    ),
    Patch(
        "ranges in inputs",
        ("frame",),
        (f"{_VARIABLES}.lists.RangeVariable.__init__",),
        integer_inputs.ranges_are_constants,
        "the ends of a range that is an input, or is handed on where the graph is broken, would be dynamic: an error",
        (
            Takes(f"{_VARIABLES}.lists.RangeVariable.__init__", "self, items, **kwargs"),
            Takes("torch._dynamo.utils.specialize_symnode", "arg"),
        ),
    ),
    Patch(
        "sizes 0 and 1",
        ("frame",),
        (
            f"{_OUTPUT}.ShapeEnv",
            f"{_SIZES}.make_symbol",
            f"{_SIZES}.uninteresting_files",
        ),
        general_sizes.zero_and_one_are_sizes,
        "each size that is 0 or 1 at the first call would be a constant, with a graph of its own",
        (
            HasLocal("torch._dynamo.utils.run_node", "node"),  # who asks (question_origins.py)
            HasLocal(f"{_FAKE_MODE}.__torch_dispatch__", "func"),
            Takes(
                f"{_SIZES}.ShapeEnv.create_symbol",
                "self, val, source, dynamic_dim, constraint_dim, positive, do_not_specialize_zero_one,"
                " symbolic_context",
            ),
            Says(f"{_SIZES}.ShapeEnv.create_symbol", "make_symbol"),
            Takes(
                f"{_SIZES}.ShapeEnv.evaluate_expr",
                "self, orig_expr, hint, fx_node, size_oblivious, fallback_value, forcing_spec",
            ),
            Takes(
                f"{_SIZES}.ShapeEnv._maybe_evaluate_static",
                "self, expr, unbacked_only, compute_hint, size_oblivious, axioms, var_to_range",
            ),
            Takes(f"{_SIZES}.ShapeEnv.create_symintnode", "self, sym, hint, source"),
            Takes(f"{_SIZES}.ShapeEnv._get_stack_summary", "self, is_debug, framework_loc"),
            Takes(f"{_SIZES}.ShapeEnv._set_replacement", "self, a, tgt, msg"),
            Exists(f"{_SIZES}.ShapeEnv._update_var_to_range"),
            Says(f"{_SIZES}.ShapeEnv.produce_guards_verbose", " <= "),
            Exists("torch._dynamo.exc.StepUnsupported"),
            Exists("torch._dynamo.symbolic_convert.InstructionTranslator.current_tx"),
            Says("torch._dynamo.symbolic_convert.InstructionTranslatorBase.step", "StepUnsupported"),
            Takes("torch._dynamo.utils.get_fake_value", "node, tx, allow_non_graph_fake"),
            Says("torch._dynamo.symbolic_convert.generic_jump", "UserError"),
            Takes(
                f"{_SIZES}.ShapeEnv._compute_symbolic_stride",
                "self, source, size, ex_size, ex_stride, dynamic_strides, constraint_strides, are_sizes_static,"
                " symbolic_context",
            ),
            Takes(
                f"{_SIZES}.ShapeEnv.produce_guards_verbose",
                "self, placeholders, sources, source_ref, guards, input_contexts, equalities_inputs, _simplified,"
                " ignore_static, langs",
            ),
            Behaves(f"{_SIZES}.ShapeEnv.produce_guards_verbose", general_shape_env.strides_are_guarded_as_text),
            Takes(f"{_SIZES}.make_symbol", "prefix, idx, **kwargs"),
            Says(f"{_SIZES}.ShapeEnv._get_user_frame", "uninteresting_files"),
            Says("torch._prims_common._is_non_overlapping_and_dense_or_false", "guard_or_false"),
            Says("torch._prims_common.are_strides_like_channels_last_or_false", "guard_or_true"),
            Says("torch._prims_common.check_contiguous_sizes_strides", "guard_or_true"),
            Says("torch._prims_common.compute_elementwise_output_logical_to_physical_perm", "guard_or_false"),
            Says("torch._prims_common.is_contiguous", "guard_or_false"),
            Says("torch._prims_common.is_channels_last_contiguous_2d", "guard_or_true"),
            Says("torch._prims_common.is_channels_last_contiguous_3d", "guard_or_true"),
        ),
    ),
    Patch(
        "strides where a size is 1",
        ("frame",),
        ("torch._dynamo.guards.GuardBuilder.TENSOR_MATCH",),
        general_sizes.strides_that_matter,
        "the stride of a dim of size 1, or of a tensor without elements, would be a guard",
        (
            Takes("torch._dynamo.guards.GuardBuilder.TENSOR_MATCH", "self, guard, value"),
            Says("torch._dynamo.guards.GuardBuilder.TENSOR_MATCH", "input_source_to_sizes_strides"),
            Takes("torch._dynamo.guards.convert_to_concrete_values", "size_or_stride"),
        ),
    ),
    Patch(
        "strides of contiguous tensors",
        ("frame",),
        ("torch._prims_common.sym_max", f"{_NODE}.sym_max", "torch.SymInt.__sym_max__"),
        general_sizes.strides_are_products,
        "PyTorch writes max(size, 1) for each size in them, where a size may be 0",
        (
            Takes("torch._prims_common.sym_max", "a, b"),
            Says("torch._prims_common.make_contiguous_strides_for", "sym_max"),
            Takes(f"{_NODE}.sym_max", "self, other"),
            Takes("torch.SymInt.__sym_max__", "self, other"),
        ),
    ),
    Patch(
        "contiguity in C++",
        ("frame",),
        (f"{_NODE}.has_hint",),
        general_sizes.sizes_have_no_value_in_cpp,
        "C++ compares each size with 0 and 1, with a guard, where the sizes have values",
        (Takes(f"{_NODE}.has_hint", "self"), Says(f"{_NODE}.expect_true", "has_hint")),
    ),
    Patch(
        "division by a size",
        ("frame",),
        tuple(f"{_NODE}.{name}" for name in (*_DIVISIONS, *_FUNCTIONS)),
        general_sizes.division_by_nothing,
        "a rule that is right for every size may divide by one that is 0 at the first call",
        (
            *(Takes(f"{_NODE}.{name}", "self, other") for name in _DIVISIONS),
            *(Takes(f"{_NODE}.{name}", "self") for name in _FUNCTIONS),
            Exists("torch.fx.experimental.sym_node._NO_HINT", "object"),
            *(
                Exists(f"torch.fx.experimental.sym_node.{name}")
                for name in ("to_node", "wrap_node", "method_to_operator")
            ),
            Takes("torch.fx.experimental.proxy_tensor.handle_sym_dispatch", "func, args, kwargs"),
        ),
    ),
    Patch(
        "conditions that do not hold",
        ("frame",),
        (f"{_TENSOR.replace('TensorVariable', 'SymNodeVariable')}.as_proxy",),
        general_sizes.decided_conditions_are_bools,
        "the value of `n > 1 and x is None` is a SymBool where n is 1, which operators do not take for a bool",
        (Takes(f"{_TENSOR.replace('TensorVariable', 'SymNodeVariable')}.as_proxy", "self"),),
    ),
    Patch(
        "ranks that depend on sizes",
        ("frame", "graph"),
        (
            "torch._decomp.decomposition_table[aten.squeeze.dims]",
            "torch._decomp.decomposition_table[aten.cat.default]",
        ),
        general_sizes.ranks_are_guarded,
        "whether `squeeze` drops a dim, and `cat` an empty operand, must be known",
        (
            Takes("torch._decomp.decomposition_table[aten.squeeze.dims]", "a, dim"),
            Takes("torch._decomp.decomposition_table[aten.cat.default]", "tensors, dim, out"),
        ),
    ),
    Patch(
        "bounds of slices",
        ("frame", "graph"),
        (f"{_VIEWS}._compute_slice_index",),
        general_sizes.slices_of_any_size,
        "`x[1:]` of what may be empty would have a size and an offset that are in the data",
        (Takes(f"{_VIEWS}._compute_slice_index", "size, index"),),
        versions=Versions(last="2.11"),  # then it is the lesser of bound and size
    ),
    Patch(
        "errors of imagined sizes",
        ("frame",),
        ("torch._dynamo.utils.run_node",),
        general_sizes.errors_of_imagined_sizes,
        "a rule that takes no size for 1 may refuse what is repeated",
        (
            Takes("torch._dynamo.utils.run_node", "tracer, node, args, kwargs, nnmodule"),
            Says("torch._dynamo.utils._get_fake_value_impl", "run_node"),
        ),
    ),
    Patch(
        "sizes of rolls",
        ("frame", "graph"),
        ("torch._decomp.decomposition_table[aten.roll.default]",),
        general_sizes.sizes_of_rolls,
        "the usual rule divides by a size, and asks whether there is anything",
        (Takes("torch._decomp.decomposition_table[aten.roll.default]", "a, shifts, dims, out"),),
    ),
    Patch(
        "indices that are sizes",
        ("frame", "graph"),
        (f"{_VIEWS}.op_implementations_dict[aten.select.int]",),
        general_sizes.indices_are_guarded,
        "the usual rules ask whether an index is out of range without a guard where it is not at the first call",
        (
            Takes(f"{_VIEWS}.meta_select", "fake_mode, func, self, dim, index"),
            Says(f"{_VIEWS}.dispatch_to_op_implementations_dict", "op_implementations_dict"),
            Says(f"{_FAKE_MODE}._dispatch_impl", "op_implementations_checks"),
        ),
    ),
    Patch(
        "sources of scatters",
        ("frame", "graph"),
        lambda: [
            *(f"torch._decomp.decomposition_table[{op}]" for op in scattered_sources.DECOMPOSED),
            *(added(f"{_VIEWS}.op_implementations_dict[{op}]") for op in scattered_sources.scatters()),
        ],
        scattered_sources.sources_are_guarded,
        "the usual rules take a source for as large as what it replaces",
        (
            Says(f"{_VIEWS}.dispatch_to_op_implementations_dict", "op_implementations_dict"),
            Says(f"{_FAKE_MODE}._dispatch_impl", "op_implementations_checks"),
        ),
    ),
    Patch(
        "writes into a part of a memory",
        ("frame", "graph"),
        (
            added(f"{_VIEWS}.op_implementations_dict[aten.as_strided_scatter.default]"),
            f"{_FAKE_MODE}._cached_dispatch_impl",
        ),
        operator_rules.writes_into_memory,
        "the tracer's rule for a write by strides takes a tensor's elements for all of the memory that it is in",
        (
            Takes(f"{_FAKE_MODE}._cached_dispatch_impl", "self, func, types, args, kwargs"),
            Takes(f"{_FAKE_MODE}._dispatch_impl", "self, func, types, args, kwargs"),
            Exists(f"{_VIEWS}.op_implementations_dict", "dict"),
            Exists("torch.ops.prims.as_strided_scatter.default", "OpOverload"),
            Says(f"{_VIEWS}.dispatch_to_op_implementations_dict", "op_implementations_dict"),
        ),
    ),
    Patch(
        "arithmetic on sizes",
        ("frame", "graph"),
        (
            *(f"{_NODE}.{name}" for name in (*BINARY, "expr", "maybe_as_int", "wrap_int")),
            f"{_SIZES}.ShapeEnv.evaluate_sym_node",
            f"{_SIZES}.uninteresting_files",
        ),
        symbolic_arithmetic.remember_arithmetic,
        "sympy computes the same few expressions some hundred times for each tensor",
        (
            *(Takes(f"{_NODE}.{name}", "self, other") for name in BINARY),
            Takes(f"{_NODE}.maybe_as_int", "self"),
            Takes(f"{_NODE}.wrap_int", "self, num"),
            Takes(f"{_SIZES}.ShapeEnv.evaluate_sym_node", "self, sym_node, size_oblivious, fallback_value"),
            Says(f"{_SIZES}.ShapeEnv._get_user_frame", "uninteresting_files"),
            Says(f"{_SIZES}.ShapeEnv._set_replacement", "_replacements_version_counter"),
            Behaves(f"{_NODE}.__init__", symbolic_arithmetic.nodes_are_as_made),
        ),
        versions=Versions(first="2.12"),  # before, a ShapeEnv does not count the symbols that it replaces
        only_speed=True,
    ),
    Patch(
        "views from the cache",
        ("frame", "graph"),
        (f"{_FAKE_MODE}._get_output_tensor_from_cache_entry",),
        tensor_making.views_are_made_once,
        "the bytes of a view's memory are computed twice, from symbolic sizes",
        (
            Takes(f"{_FAKE_MODE}._get_output_tensor_from_cache_entry", "self, state, entry, key, func, args"),
            Takes("torch._subclasses.fake_tensor.in_kernel_invocation_manager", "fake_mode"),
            Takes(f"{_STUB}.extract", "self, key, shape_env"),
            Exists("torch._subclasses._fake_tensor_utils._CacheKeyState.shape_env", "member_descriptor"),
        ),
        versions=Versions(first="2.12", last="2.14"),
        only_speed=True,
    ),
    Patch(
        "entries of the cache",
        ("frame", "graph"),
        (
            f"{_FAKE_MODE}._get_output_info_for_cache_entry",
            f"{_FAKE_MODE}._get_output_tensor_from_cache_entry",
        ),
        tensor_making.entries_are_not_tried,
        "for the dispatch keys of a result a second one is made, with all its symbolic sizes",
        (
            Takes(f"{_FAKE_MODE}._get_output_info_for_cache_entry", "self, state, key, func, args, kwargs, output"),
            Takes(
                f"{_FAKE_MODE}._get_output_tensor_from_cache_entry",
                "self, state, entry, key, func, args | self, state, entry, key, args",
            ),
            Says(f"{_FAKE_MODE}._get_output_info_for_cache_entry", "_dispatch_key_set"),
            Says(f"{_FAKE_MODE}._output_from_cache_entry", "_get_output_tensor_from_cache_entry"),
        ),
        versions=Versions(first="2.12"),
        only_speed=True,
    ),
    Patch(
        "memory of wrappers",
        ("frame", "graph"),
        ("torch._subclasses.functional_tensor.FunctionalTensor.__new__",),
        tensor_making.wrappers_have_a_memory,
        "functionalisation computes, and records in the graph, the bytes of each wrapper's memory",
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
        layout_questions.layouts_are_asked_once,
        "whether a tensor is contiguous or channels-last is asked several times of each, by twenty operations on sizes",
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
        "each comparison of sizes that a decision takes is recorded in the graph, and removed from it as dead code",
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
        "maps over devices",
        ("frame",),
        ("torch._dynamo.variables.higher_order_ops.LocalMapWrappedHigherOrderVariable.should_wrap_in_hop",),
        needless_work.local_maps_are_imported_by_their_users,
        "Dynamo imports much of torch.distributed to see that a value is not its local_map",
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
        "lists of composite operators",
        ("frame",),
        ("torch._export.utils._materialize_cpp_cia_ops",),
        needless_work.operators_are_listed_once,
        "the table of decompositions makes objects of all composite operators, once for each namespace",
        (
            Takes("torch._export.utils._materialize_cpp_cia_ops", ""),
            Says("torch._export.utils._collect_all_valid_cia_ops_for_namespace", "_materialize_cpp_cia_ops"),
            Exists("torch._C._dispatch_get_registrations_for_dispatch_key"),
        ),
        only_speed=True,
    ),
    Patch(
        "names in silent logs",
        ("frame",),
        ("torch._dynamo.symbolic_convert.get_funcname",),
        silent_logs.no_names_for_silent_logs,
        "Dynamo tokenises each source file that it traces, for lines of a log that is off",
        (
            Takes("torch._dynamo.symbolic_convert.get_funcname", "filename, lineno"),
            Says(f"{_TRANSLATOR}.get_line_of_code_header", "get_funcname"),
            Exists("torch._dynamo.symbolic_convert.trace_call_log", "Logger"),
            Exists("torch._dynamo.symbolic_convert.trace_source_log", "Logger"),
        ),
        only_speed=True,
    ),
    Patch(
        "floats that are no arguments",
        ("frame",),
        ("torch._dynamo.variables.builder.VariableBuilder.wrap_symfloat",),
        float_constants.floats_are_constants,
        "a symbol for each `eps` of a module makes Dynamo trace the frame twice",
        (
            Takes("torch._dynamo.variables.builder.VariableBuilder.wrap_symfloat", "self, value"),
            Says("torch._dynamo.variables.builder.VariableBuilder.wrap_symfloat", "assume_static_by_default"),
            Exists("torch._dynamo.config.assume_static_by_default", "bool"),
            Takes("torch._dynamo.source.get_local_source_name", "source, only_allow_input"),
        ),
    ),
    Patch(
        "sizes of composite operators",
        ("frame",),
        autograd_kernels.kernel_targets(size_kernels),
        autograd_kernels.sizes_of_composites,
        "operators that are made of others by code which asks for sizes could not be traced with unknown ones",
        (*autograd_kernels.KERNEL_PROBES,),
    ),
    Patch(
        "sizes of logsumexp",
        ("frame",),
        ("torch._decomp.decomposition_table[aten.logsumexp.default]",),
        autograd_kernels.sizes_of_logsumexp,
        "the usual rule asks whether there is anything to sum",
        (Takes("torch._decomp.decomposition_table[aten.logsumexp.default]", "self, dim, keepdim, out"),),
    ),
    Patch(
        "sizes of softmax",
        ("frame",),
        (
            "torch._decomp.decomposition_table[aten._softmax.default]",
            "torch._decomp.decomposition_table[aten._log_softmax.default]",
        ),
        autograd_kernels.sizes_of_softmax,
        "the usual rules ask whether there is anything to take the largest of",
        (
            Takes("torch._decomp.decomposition_table[aten._softmax.default]", "x, dim, half_to_float, out"),
            Takes("torch._decomp.decomposition_table[aten._log_softmax.default]", "x, dim, half_to_float, out"),
        ),
    ),
    Patch(
        "sizes of batch normalisations",
        ("frame", "graph"),
        autograd_kernels.batch_norm_targets,
        autograd_kernels.sizes_of_batch_norms,
        "for the sizes of a result PyTorch runs the decomposition, twenty operators on symbolic sizes",
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
        "broadcasting",
        ("frame",),
        (
            "torch._refs._broadcast_shapes",
            "torch._meta_registrations._broadcast_shapes",
            "torch._refs._conversions._broadcast_shapes",
            f"{_VIEWS}.infer_size",
            "torch._refs._maybe_broadcast",
            "torch._meta_registrations._maybe_broadcast",
        ),
        broadcast_rules.broadcast_at_call_time,
        "the tracer takes an unbacked size for one that is not 1; here it may be either",
        (
            Takes("torch._refs._broadcast_shapes", "*_shapes"),
            Takes("torch._meta_registrations._broadcast_shapes", "*_shapes"),
            Takes("torch._refs._conversions._broadcast_shapes", "*_shapes"),
            Takes(f"{_VIEWS}.infer_size", "a, b"),
            Takes("torch._refs._maybe_broadcast", "*args, preserve_cpu_scalar_tensors"),
            Takes("torch._meta_registrations._maybe_broadcast", "*args, preserve_cpu_scalar_tensors"),
        ),
        issue="pytorch/pytorch#152656",
    ),
    Patch(
        "sizes of expand",
        ("frame",),
        ("torch._decomp.decomposition_table[aten.expand.default]",),
        broadcast_rules.expand_at_call_time,
        "a dim of an unbacked size that is expanded is taken for one that is not 1",
        (Takes("torch._decomp.decomposition_table[aten.expand.default]", "a, *shape, implicit"),),
    ),
    Patch(
        "checks of normalisations",
        ("frame",),
        ("torch.nn.functional._verify_batch_size", "torch.nn.functional._verify_spatial_size"),
        torch_layers.checks_of_layers_at_call_time,
        "that there is more than one value would have to be known of sizes in the data",
        (
            Takes("torch.nn.functional._verify_batch_size", "size"),
            Takes("torch.nn.functional._verify_spatial_size", "size"),
            Says("torch.nn.functional.batch_norm", "_verify_batch_size"),
            Says("torch.nn.functional.instance_norm", "_verify_spatial_size"),
        ),
    ),
    Patch(
        "bounds of empty sizes",
        ("frame",),
        (f"{_SIZES}.ShapeEnv._constrain_range_for_size",),
        empty_sizes.bounds_allow_one,
        "a new size that is at most 0 or 1 could not take the place of one that was thought to be more",
        (Takes(f"{_SIZES}.ShapeEnv._constrain_range_for_size", "self, a, min, max"),),
    ),
    Patch(
        "bounds of more than 64 bits",
        ("frame",),
        (f"{_SIZES}.ShapeEnv._constrain_range_for_size",),
        empty_sizes.bounds_fit,
        "what a mask selects has a bound that no integer has, where the mask's size is in the data",
        (Takes(f"{_SIZES}.ShapeEnv._constrain_range_for_size", "self, a, min, max"),),
    ),
    Patch(
        "new sizes of fake rules",
        ("frame", "graph"),
        ("torch._library.fake_impl.FakeImplCtx.create_unbacked_symint",),
        empty_sizes.new_sizes_start_at_zero,
        "a rule of a user's operator that names no least size got one of at least 2",
        (Takes("torch._library.fake_impl.FakeImplCtx.create_unbacked_symint", "self, min, max"),),
    ),
    Patch(
        "factors that may be 0",
        ("frame",),
        (f"{_SIZES}.try_solve",),
        empty_sizes.zero_factors_are_kept,
        "the tracer divides an equation by a size that may be 0",
        (
            Takes(f"{_SIZES}.try_solve", "expr, thing, trials, floordiv_inequality"),
            Says(f"{_SIZES}.ShapeEnv._maybe_guard_rel", "try_solve"),
        ),
    ),
    Patch(
        "how frames read sizes",
        ("frame",),
        ("torch._dynamo.codegen.PyCodegen.load_import_from",),
        size_reads.read_sizes_at_once,
        "Dynamo's own functions leave Dynamo and enter it again: 2 us for each size of a call",
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
        (f"{_OUTPUT}.OutputGraph.remove_unused_graphargs", f"{_AUTOGRAD}.tensorify_python_scalars"),
        size_reads.sizes_of_tensors_are_not_passed,
        "a frame reads each size of each tensor at every call; graphs for inference can ask their tensors",
        (
            Takes(f"{_OUTPUT}.OutputGraph.remove_unused_graphargs", "self"),
            Takes(f"{_OUTPUT}.OutputGraph.remove_node", "self, *args, **kwargs"),
            Takes(f"{_AUTOGRAD}.tensorify_python_scalars", "gm, shape_env, fake_mode"),
            Says(f"{_AUTOGRAD}._apply_tensorify_python_scalars", "tensorify_python_scalars"),
        ),
    ),
    Patch(
        "lazy modules",
        ("frame",),
        (f"{_VARIABLES}.nn_module.initialize_lazy_module",),
        lazy_modules.lazy_modules_are_initialised,
        "Dynamo initialises them from traced sizes, of which no parameter can be made",
        (
            Takes(f"{_VARIABLES}.nn_module.initialize_lazy_module", "tx, mod, args, kwargs"),
            Says(f"{_VARIABLES}.nn_module.initialize_lazy_module", "_infer_parameters"),
            Takes("torch.nn.modules.lazy.LazyModuleMixin._infer_parameters", "self, module, args, kwargs"),
        ),
        issue="pytorch/pytorch#167191",
    ),
    Patch(
        "causal masks",
        ("frame",),
        (f"{_VARIABLES}.UserFunctionVariable.call_function",),
        torch_layers.masks_are_not_looked_at,
        "whether a mask is causal is in the data, and is only a hint to attention",
        (
            Takes(f"{_VARIABLES}.UserFunctionVariable.call_function", "self, tx, args, kwargs"),
            Takes("torch.nn.modules.transformer._detect_is_causal_mask", "mask, is_causal, size"),
        ),
    ),
    Patch(
        "numbers in f-strings",
        ("frame",),
        (f"{_TRANSLATOR}._format_value",),
        trace_messages.numbers_in_strings,
        "a string with a size or a number in it would break the graph",
        (
            Takes(f"{_TRANSLATOR}._format_value", "self, fmt_spec, flags"),
            Takes(
                f"{_VARIABLES}.misc.StringFormatVariable.create",
                "format_string, sym_args, sym_kwargs | tx, format_string, sym_args, sym_kwargs",
            ),
        ),
    ),
    Patch(
        "warnings",
        ("frame",),
        (f"{_VARIABLES}.SkipFunctionVariable.call_function",),
        trace_messages.warnings_are_given,
        "a warning would break the graph; it is given when the frame is compiled",
        (Takes(f"{_VARIABLES}.SkipFunctionVariable.call_function", "self, tx, args, kwargs"),),
        issue="pytorch/pytorch#135688",
    ),
    Patch(
        "layouts of paddings",
        ("frame", "graph"),
        (
            "torch._decomp.decomposition_table[aten.constant_pad_nd.default]",
            added(f"{_VIEWS}.op_implementations_dict[aten.constant_pad_nd.default]"),
        ),
        autograd_kernels.layouts_of_paddings,
        "the tracer takes an amount that may be 0 for one that adds something: the result is not laid out like a clone;"
        " and it takes for granted that no more is cut off than there is",
        (
            Takes("torch._decomp.decomposition_table[aten.constant_pad_nd.default]", "input, pad, value, out"),
            Says(f"{_VIEWS}.dispatch_to_op_implementations_dict", "op_implementations_dict"),
            Says(f"{_FAKE_MODE}._dispatch_impl", "op_implementations_checks"),
        ),
    ),
    Patch(
        "types of results",
        ("frame", "graph"),
        autograd_kernels.type_targets,
        autograd_kernels.types_of_results,
        "the tracer's type differs from eager mode's for operands with and without dims",
        autograd_kernels.TYPE_PROBES,
    ),
    Patch(
        "missing fake rules",
        ("frame", "graph"),
        operator_rules.fake_rule_targets,
        operator_rules.missing_rules,
        "PyTorch has no tracing rule for these operators",
        (
            Takes("torch._library.simple_registry.singleton.find", "qualname"),
            Takes(f"{_RULES}.Kernel", "func, source"),
            Exists("torch._library.fake_impl.FakeImplHolder.kernel", "property"),
        ),
    ),
    Patch(
        "cached fake results",
        ("frame", "graph"),
        ("torch._subclasses.fake_tensor.FakeTensorMode._cache_key",),
        fake_results.caches_are_apart,
        "a result that was traced by PyTorch's rules would be taken where the rules above say another, and vice versa",
        (
            Takes("torch._subclasses.fake_tensor.FakeTensorMode._cache_key", "self, state, func, args, kwargs"),
            Says("torch._subclasses.fake_tensor.FakeTensorMode._cached_dispatch_impl", "_cache_key"),
            Says("torch._subclasses.fake_tensor._DispatchCacheKey.__eq__", "key"),
            Says("torch._subclasses.fake_tensor._DispatchCacheKey.__hash__", "hashvalue"),
        ),
    ),
    Patch(
        "tangents that are zero",
        ("frame", "graph", "jit"),
        ("torch._ops.OpOverload._get_dispatch",),
        zero_tensors.zeros_of_any_size,
        "forward differentiation writes zeros without memory, and what C++ has for these makes their sizes constants",
        (
            Takes("torch._ops.OpOverload._get_dispatch", "self, key"),
            Says("torch._ops.OpOverload._get_dispatch", "_dispatch_cache"),
            Says("torch._ops.OpOverload._get_dispatch", "add_cached_op"),
            Exists("torch._ops.OpOverload.__init__"),
            Says("torch._ops.OpOverload.__init__", "is_view"),
            Takes("torch._ops.get_cached_ops", ""),
            Exists("torch._C.DispatchKey.ZeroTensor"),
            Exists("torch._C._dispatch_has_kernel_for_dispatch_key"),
            Exists("torch.ops.aten._efficientzerotensor.default", "OpOverload"),
        ),
    ),
    Patch(
        "logged errors of tracing",
        ("frame",),
        fake_results.filter_targets,
        fake_results.errors_are_only_raised,
        "errors that are raised, and handled by calling an operator as it is, would be shown to the user",
        (Says("torch._subclasses.fake_tensor.FakeTensorMode._dispatch_impl", "failed while attempting to run meta"),),
    ),
    Patch(
        "in-place views of inputs",
        ("frame",),
        (f"{_TENSOR}.call_method", f"{_IN_GRAPH}.call_function"),
        input_views.views_of_inputs,
        "Dynamo refuses `x.t_()` of an argument, which AOTAutograd can trace",
        (
            Takes(f"{_TENSOR}.call_method", "self, tx, name, args, kwargs"),
            Takes(f"{_IN_GRAPH}.call_function", "self, tx, args, kwargs"),
            Takes(f"{_IN_GRAPH}.call_tensor_method", "self, tx, args, kwargs"),
            Exists(f"{_TENSOR}.synchronize_attributes"),
        ),
        issue="pytorch/pytorch#100787",
    ),
    Patch(
        "names of in-place views",
        ("frame",),
        (f"{_TENSOR}.tp_getattro_impl",),
        input_views.names_of_views,
        "Dynamo decides where a method is named that the graph is broken where it is called",
        (
            Takes(f"{_TENSOR}.tp_getattro_impl", "self, tx, name"),
            Says(f"{_TENSOR}.tp_getattro_impl", "DelayGraphBreakVariable"),
        ),
        issue="pytorch/pytorch#100787",
        versions=Versions(first="2.14"),
    ),
    Patch(
        "names of in-place views (before 2.14)",
        ("frame",),
        (f"{_TENSOR}.var_getattr",),
        input_views.names_of_views_2_11,
        "Dynamo decides where a method is named that the graph is broken where it is called",
        (
            Takes(f"{_TENSOR}.var_getattr", "self, tx, name"),
            Says(f"{_TENSOR}.var_getattr", "DelayGraphBreakVariable"),
        ),
        issue="pytorch/pytorch#100787",
        versions=Versions(last="2.13"),
    ),
    Patch(
        "integer parameters",
        ("frame",),
        (f"{_IN_GRAPH}.call_function", f"{_TENSOR}.call_method"),
        integer_parameters.sizes_are_taken,
        "functions whose C++ takes an integer make a number of a size, and a graph for each",
        (
            Takes(f"{_IN_GRAPH}.call_function", "self, tx, args, kwargs"),
            Takes(f"{_TENSOR}.call_method", "self, tx, name, args, kwargs"),
            Takes("torch._dynamo.utils.proxy_args_kwargs", "args, kwargs"),
            Takes(f"{_VARIABLES}.builder.wrap_fx_proxy", "tx, proxy, example_value, subclass_type, **options"),
        ),
    ),
    Patch(
        "arguments that are numbers",
        ("frame",),
        (f"{_IN_GRAPH}.call_function", f"{_TENSOR}.call_method"),
        number_arguments.arguments_become_numbers,
        "C++ reads a tensor as a symbol that no result has, an error, and takes no SymBool, which breaks the graph",
        (
            Takes(f"{_IN_GRAPH}.call_function", "self, tx, args, kwargs"),
            Takes(f"{_TENSOR}.call_method", "self, tx, name, args, kwargs"),
        ),
    ),
    Patch(
        "functions of numbers",
        ("frame",),
        (
            f"{_IN_GRAPH}.call_function",
            f"{_TENSOR.replace('TensorVariable', 'SymNodeVariable')}.call_method",
            f"{_VARIABLES}.builtin.BuiltinVariable.call_function",
            "torch.utils._sympy.interp._run_sympy_handler",
            "torch.fx.passes._tensorify_python_scalars._run_sympy_handler",
        ),
        number_functions.numbers_are_traced,
        "functions of math make a number of a size, and a graph for each",
        (
            Takes(f"{_IN_GRAPH}.call_function", "self, tx, args, kwargs"),
            Takes(
                f"{_TENSOR.replace('TensorVariable', 'SymNodeVariable')}.call_method", "self, tx, name, args, kwargs"
            ),
            Takes(f"{_VARIABLES}.builtin.BuiltinVariable.call_function", "self, tx, args, kwargs"),
            Takes("torch.utils._sympy.interp._run_sympy_handler", "analysis, args, expr, index_dtype"),
            Takes("torch.fx.experimental.proxy_tensor.handle_sym_dispatch", "func, args, kwargs"),
        ),
    ),
    Patch(
        "one_hot",
        ("frame",),
        (f"{_IN_GRAPH}._get_handlers()[torch.nn.functional.one_hot]",),
        torch_layers.class_counts_are_traced,
        "without a number of classes it would break the graph",
        (Takes(f"{_IN_GRAPH}._get_handlers", ""), Exists(f"{_IN_GRAPH}._get_handlers()[torch.nn.functional.one_hot]")),
        issue="pytorch/pytorch#122171",
    ),
    Patch(
        "layouts of convolutions",
        ("frame",),
        ("torch._C._select_conv_backend", "torch._C._conv_determine_backend_memory_format"),
        convolution_layouts.layouts_of_convolutions,
        "the choice of a library guards on the batch and on the number of elements",
        (
            Documents("torch._C._select_conv_backend", "input: torch.Tensor, weight: torch.Tensor, bias"),
            Exists("torch._C._ConvBackend.Slow2d"),
            Takes("torch._prims_common.are_strides_like_channels_last_or_false", "shape, strides"),
            Says(f"{_VIEWS}.conv", "_select_conv_backend"),
            Says(f"{_VIEWS}.conv", "_conv_determine_backend_memory_format"),
        ),
    ),
    Patch(
        "results of branches",
        ("frame",),
        ("torch._higher_order_ops.cond._merge_output",),
        branch_results.results_of_branches_are_merged,
        "the usual rule compares strides with 1, which guards, or cannot be known",
        (Takes("torch._higher_order_ops.cond._merge_output", "a, b, mode"),),
    ),
    Patch(
        "values that steps of a scan save",
        ("frame",),
        ("torch._higher_order_ops.scan.ScanAutogradImpl._optimize_forward_intermediates",),
        scan_gradients.values_saved_by_steps_are_copies,
        "a carry that is saved for backward as well, as in most recurrent cells, is refused as an alias of itself",
        (
            Takes("torch._higher_order_ops.scan.ScanAutogradImpl._optimize_forward_intermediates", "self"),
            Takes(
                "torch._higher_order_ops.scan.ScanAutogradImpl._insert_clone",
                "self, need_copy_node, output_node",
            ),
        ),
    ),
    Patch(
        "associative scans",
        ("frame",),
        (f"{_VARIABLES}.UserFunctionVariable.call_function", added("torch._inductor.utils.is_pointwise_use")),
        associative_scans.one_operator,
        "the generic mode would be traced as its recursion, which is a graph for each length",
        (
            Takes(f"{_VARIABLES}.UserFunctionVariable.call_function", "self, tx, args, kwargs"),
            Takes(f"{_ASSOCIATIVE}.associative_scan", "combine_fn, xs, dim, reverse, combine_mode"),
            Says(f"{_ASSOCIATIVE}.associative_scan", "generic_associative_scan"),
            Takes(f"{_ASSOCIATIVE}.generic_associative_scan", "operator, leaves, dim, additional_inputs"),
            Takes("torch._dynamo.variables.functions.FunctoolsPartialVariable.__init__", _PARTIAL),
            Says(f"{_ASSOCIATIVE_VARIABLE}._call_function", "is_pointwise_use"),
        ),
    ),
    Patch(
        "messages of checks",
        ("frame",),
        torch_checks.targets(torch_checks.CHECK),
        torch_checks.messages_show_sizes,
        "a message of torch._check with sizes in it would break the graph",
        (*torch_checks.probes(torch_checks.CHECK), *torch_checks.MESSAGE_PROBES),
        issue="pytorch/pytorch#163668",
    ),
    Patch(
        "messages of checks that raise other errors",
        ("frame",),
        torch_checks.targets(torch_checks.OTHER_CHECKS),
        torch_checks.messages_of_others_show_sizes,
        "a message of torch._check_value and its like with sizes in it would break the graph",
        (*torch_checks.probes(torch_checks.OTHER_CHECKS), *torch_checks.MESSAGE_PROBES),
        issue="pytorch/pytorch#181552",
        versions=Versions(first="2.13"),  # before, Dynamo traces them as calls like any other
    ),
    Patch(
        "messages of asserts (before 2.13)",
        ("frame",),
        (f"{_OUTPUT}.insert_deferred_runtime_asserts",),
        assert_messages.asserts_keep_messages,
        "an assertion for a torch._check that is decided at call time has not the message of the check",
        (
            Takes(f"{_OUTPUT}.insert_deferred_runtime_asserts", "gm, shape_env, name, export"),
            Says("torch.fx.passes.runtime_assert.insert_deferred_runtime_asserts", assert_messages.OWN_TEXT),
            Says(f"{_IN_GRAPH}._get_handlers", "_check_message"),
        ),
        versions=Versions(last="2.12"),
    ),
    Patch(
        "failed checks",
        ("frame",),
        ("torch._dynamo.utils.run_node",),
        torch_checks.failed_checks_are_constraints,
        "a torch._check that fails while it is traced is a ShapeConstraintError",
        (
            Takes("torch._dynamo.utils.run_node", "tracer, node, args, kwargs, nnmodule"),
            Says("torch._check_with", "Expected cond to be True"),
            HasLocal("torch._check_with", "cond"),
            HasLocal("torch._check_with", "message"),
        ),
        issue="pytorch/pytorch#129327",
    ),
    Patch(
        "storage offsets",
        ("frame",),
        (storage_offsets.METHOD_ENTRY,),
        storage_offsets.storage_offsets_are_traced,
        "Dynamo breaks the graph at x.storage_offset(), or does not guard the number",
        (
            Says(f"{_TENSOR}.call_method", "tp_methods"),
            Exists(f"{_TENSOR}.tp_methods", "dict"),
            Takes(f"{_VARIABLES}.base.Method", "handler"),
            *storage_offsets.OFFSET_PROBES,
        ),
        issue="pytorch/pytorch#197224",
        versions=Versions(first="2.14"),
    ),
    Patch(
        "storage offsets (before 2.14)",
        ("frame",),
        (added(f"{_TENSOR}.method_storage_offset"),),
        storage_offsets.storage_offsets_are_traced_2_11,
        "Dynamo breaks the graph at x.storage_offset(), or does not guard the number",
        (Says(f"{_TENSOR}.call_method", "method_"), *storage_offsets.OFFSET_PROBES),
        issue="pytorch/pytorch#197224",
        versions=Versions(last="2.13"),
    ),
    Patch(
        "DistributedDataParallel and FSDP2",
        ("frame",),
        ("torch._dynamo.trace_rules.check",),
        data_parallel.module_of_data_parallel_is_traced,
        "Dynamo skips the forward method of a wrapped or sharded module whose class is one of torch.nn",
        (
            Takes("torch._dynamo.trace_rules.check", "obj, is_inlined_call | obj, is_inlined_call, frame"),
            Exists("torch.nn.parallel.DistributedDataParallel._get_active_ddp_module"),
            Exists("torch.distributed.fsdp.FSDPModule"),
            HasLocal("torch.nn.Sequential.forward", "self"),
        ),
    ),
    Patch(
        "files of failures",
        ("frame",),
        (f"{_DEBUG}.__call__",),
        repro_files.backends_are_called,
        "PyTorch's search for failures makes sizes constants, and fails itself where an integer is a symbol",
        (
            Takes(f"{_DEBUG}.__call__", "self, gm, example_inputs, **kwargs"),
            Says(f"{_DEBUG}.__call__", "_torchdynamo_orig_backend"),
        ),
        when=repro_files.where_failures_are_written,
    ),
    Patch(
        "draws of checkpoints",
        ("frame",),
        (f"{_CHECKPOINT}._call_function",),
        checkpoints.breaks_at_new_draws,
        "with preserve_rng_state=False backward draws new numbers, which a graph cannot",
        (
            Takes(f"{_CHECKPOINT}._call_function", "self, tx, args, kwargs"),
            Takes(
                f"{_CHECKPOINT}.create_wrapped_node",
                "self, tx, fn_vt, fn_args_vt, kwargs, description, subgraph_name"
                " | self, tx, fn_vt, fn_args_vt, kwargs, description, subgraph_name, set_subgraph_inputs",
            ),
        ),
    ),
    Patch(
        "floats in bodies",
        ("frame",),
        (f"{_VARIABLES}.builder.VariableBuilder.wrap_symfloat",),
        checkpoints.floats_belong_to_the_frame,
        "Dynamo finds a float of one checkpoint's graph when the next one reads it: an AssertionError",
        (
            Takes(f"{_VARIABLES}.builder.VariableBuilder.wrap_symfloat", "self, value"),
            Takes(f"{_VARIABLES}.builder.VariableBuilder.install_guards", "self, *guards"),
            Says(f"{_VARIABLES}.builder.VariableBuilder.wrap_symfloat", "CONSTANT_MATCH"),
            Takes(f"{_VARIABLES}.ConstantVariable.create", "value, **kwargs"),
            Exists(f"{_VARIABLES}.higher_order_ops.AutogradFunctionApplyVariable._HOP_NAME", "str"),
            Says("torch._dynamo.output_graph.SubgraphTracer.__init__", "source_target"),
            Says("torch._dynamo.output_graph.OutputGraph.subtracer", "tracers"),
        ),
    ),
    Patch(
        "declared sizes",
        ("frame",),
        (f"{_VARIABLES}.builder._automatic_dynamic",),
        declared_sizes.declared_sizes,
        "PyTorch has no policy with names, and of marks that contradict each other takes one without a word",
        (
            Takes(
                f"{_VARIABLES}.builder._automatic_dynamic",
                "e, tx, source, static_shapes, outer_only, tensor_spec | e, tx, source, static_shapes, outer_only",
            ),
            Says("torch._dynamo.mark_dynamic", "_dynamo_dynamic_indices"),
            Says("torch._dynamo.mark_static", "_dynamo_static_indices"),
            Says("torch._dynamo.decorators.mark_unbacked", "_dynamo_unbacked_indices"),
            Says("torch._dynamo.decorators.mark_unbacked", "_dynamo_strict_unbacked_indices"),
            Takes(f"{_VARIABLES}.builder.is_dynamic_source", "source_name, dim | source_name"),
            Takes(f"{_VARIABLES}.builder.is_unbacked_source", "source_name, dim | source_name"),
        ),
    ),
    Patch(
        "declared integers",
        ("frame",),
        (f"{_VARIABLES}.builder.VariableBuilder._type_dispatch",),
        declared_sizes.declared_integers,
        "an integer that is no argument would be a constant for good, and a function that counts compiled at each call",
        (
            Takes(f"{_VARIABLES}.builder.VariableBuilder.wrap_literal", "self, value"),
            Takes(f"{_VARIABLES}.builder.VariableBuilder.wrap_symint", "self, value, dynamism, context"),
            Takes(f"{_VARIABLES}.builder.VariableBuilder.install_guards", "self, *guards"),
            Says(f"{_VARIABLES}.builder.VariableBuilder.wrap_literal", "wrap_symint"),
            Takes(f"{_VARIABLES}.builder.VariableBuilder._type_dispatch", ""),
            Says(f"{_VARIABLES}.builder.VariableBuilder._wrap", "_type_dispatch"),
        ),
    ),
    Patch(
        "opaque calls",
        ("frame",),
        ("torch._dynamo.utils.run_node",),
        dynamo_nodes.opaque_calls,
        "a call whose tracing asks for an unbacked size becomes one operator",
        (
            Takes("torch._dynamo.utils.run_node", "tracer, node, args, kwargs, nnmodule"),
            Says("torch._dynamo.utils._get_fake_value_impl", "run_node"),
            HasLocal("torch.fx.interpreter.Interpreter.run_node", "n"),
            Says(f"{_SIZES}.ShapeEnv._make_data_dependent_error", "Could not guard on"),
            Says(f"{_SIZES}.ShapeEnv._make_data_dependent_error", " (unhinted"),
            Behaves("torch._C._to_dlpack", message_of_symbolic_sizes),
        ),
    ),
    Patch(
        "questions of Dynamo",
        ("frame",),
        (f"{_TRANSLATOR}.call_function", f"{_VARIABLES}.builtin.BuiltinVariable.call_function"),
        dynamo_nodes.breaks_at_questions,
        "where Dynamo itself asks for a size that is in the data it raises an error; here the graph breaks",
        (
            Takes(f"{_TRANSLATOR}.call_function", "self, fn, args, kwargs"),
            Takes(f"{_VARIABLES}.builtin.BuiltinVariable.call_function", "self, tx, args, kwargs"),
            Exists("torch._dynamo.exc.Unsupported"),
            Exists(f"{_VARIABLES}.base.AsPythonConstantNotImplementedError"),
        ),
    ),
    Patch(
        "comparisons with tensors",
        ("frame",),
        (f"{_VARIABLES}.SymNodeVariable.create",),
        dynamo_nodes.comparisons_with_tensors,
        "Dynamo takes `x.shape[0] == n` with a tensor `n` for a number; `assert` of it is an error",
        (
            Takes(f"{_VARIABLES}.SymNodeVariable.create", "tx, proxy, sym_num, **options"),
            Takes("torch._dynamo.utils.get_fake_value", "node, tx, allow_non_graph_fake"),
            Takes(f"{_VARIABLES}.builder.wrap_fx_proxy", "tx, proxy, example_value, subclass_type, **options"),
        ),
    ),
    Patch(
        "rules of custom operators",
        ("frame",),
        (f"{_RULES}.can_generate_trivial_fake_impl", f"{_RULES}.generate_trivial_fake_impl"),
        operator_rules.inferred_rules,
        "an operator of torch.library without a fake rule is traced by one that is found by running it",
        (
            Takes(f"{_RULES}.can_generate_trivial_fake_impl", "op"),
            Takes(f"{_RULES}.generate_trivial_fake_impl", "op, *args, **kwargs"),
            Takes(f"{_RULES}.is_builtin", "op"),
            Says("torch._library.custom_ops.CustomOpDef._register_fake_dispatcher_impl", "generate_trivial_fake_impl"),
            Says("torch._subclasses.fake_tensor.FakeTensorMode._dispatch_impl", "generate_trivial_fake_impl"),
        ),
        versions=Versions(first="2.13"),
    ),
    Patch(
        "rules of custom operators (before 2.13)",
        ("frame",),
        (
            added("torch._library.custom_ops.CustomOpDef._abstract_fn"),
            "torch._subclasses.fake_tensor.op_implementations_checks",
        ),
        operator_rules.inferred_rules_2_11,
        "an operator of torch.library without a fake rule is traced by one that is found by running it",
        (
            Exists("torch._subclasses.fake_tensor.op_implementations_checks", "list"),
            Takes(f"{_RULES}.can_generate_trivial_fake_impl", "op"),
            Takes(f"{_RULES}.is_builtin", "op"),
            Says("torch._library.custom_ops.CustomOpDef._register_to_dispatcher", "_abstract_fn"),
            Says("torch._library.custom_ops.CustomOpDef.register_fake", "_abstract_fn"),
            Says("torch._subclasses.fake_tensor.FakeTensorMode._dispatch_impl", "op_implementations_checks"),
        ),
        versions=Versions(last="2.12"),
    ),
    Patch(
        "kernels for all devices",
        ("frame",),
        ("torch._subclasses.fake_tensor.has_meta",),
        operator_rules.kernels_are_no_rules,
        "the tracer would take a user's kernel for all devices for a rule",
        (
            Takes("torch._subclasses.fake_tensor.has_meta", "func"),
            Says("torch._subclasses.fake_tensor.FakeTensorMode._dispatch_impl", "has_meta"),
        ),
    ),
)

GRAPH_PATCHES: tuple[Patch, ...] = (
    Patch(
        "gradients of associative scans",
        ("frame", "graph", "jit"),
        (f"{_ASSOCIATIVE}.associative_scan_op.py_kernels",),
        associative_scan_gradients.gradients_step_by_step,
        "PyTorch's rule makes a matrix of all pairs of steps, is right for one operand alone, and refuses closures",
        (
            Exists(f"{_ASSOCIATIVE}.associative_scan_op.py_kernels", "dict"),
            Exists(f"{_ASSOCIATIVE}.associative_scan_op._dispatch_cache", "dict"),
            Takes(f"{_HIGHER_ORDER}.utils.materialize_as_graph", _MATERIALIZE),
            Takes(f"{_HIGHER_ORDER}.utils.split_into_chunks", "iterable, chunk_sizes"),
            Takes(f"{_HIGHER_ORDER}.utils.save_values_for_backward", "ctx, args"),
            Takes(f"{_HIGHER_ORDER}.utils.saved_values", "ctx"),
        ),
    ),
    setting(
        FUNCTORCH,
        "force_non_lazy_backward_lowering",
        True,
        ("graph", "jit"),
        "an exception in backward must surface, and what it requires of inputs must still reach the guards",
    ),
    setting(
        FUNCTORCH,
        "unlift_effect_tokens",
        True,
        ("jit",),
        "tokens that order effects (the error checks of torch.linalg) are made in the graph, and are no inputs of it",
    ),
    setting(FUNCTORCH, "cse", False, ("split",), "PyTorch's CSE merges more than may be (common_subexpressions.py)"),
    setting(
        FUNCTORCH,
        "graphsafe_rng_functionalization",
        False,
        ("split",),
        "generators as arguments of graphs are for CUDA graphs",
    ),
    setting(
        "torch._inductor.config",
        "fallback_random",
        True,
        ("graph", "jit"),
        "dead code elimination would drop draws that nothing reads",
        when=lambda scope: scope.eager_draws,
    ),
    Patch(
        "graphs in silent logs",
        ("graph",),
        (f"{_AUTOGRAD}._log_joint_graph", f"{_AUTOGRAD}._log_fw_bw_graphs"),
        silent_logs.no_graphs_for_silent_logs,
        "AOTAutograd prints forward, backward and both together, for logs that are off",
        (
            Takes(f"{_AUTOGRAD}._log_joint_graph", "fx_g, aot_config"),
            Takes(
                f"{_AUTOGRAD}._log_fw_bw_graphs", "fw_module, bw_module, maybe_subclass_meta, fw_metadata, aot_config"
            ),
            Exists(f"{_AUTOGRAD}.aot_joint_log", "Logger"),
            Exists(f"{_AUTOGRAD}.aot_graphs_log", "Logger"),
            Exists("torch._logging._internal.trace_log", "Logger"),
            Says(f"{_AUTOGRAD}.aot_stage2_autograd", "_log_fw_bw_graphs"),
        ),
        only_speed=True,
    ),
    Patch(
        "inputs of one memory",
        ("graph", "jit"),
        (added(f"{_VIEWS}.op_implementations_dict[aten.set_.source_Storage]"),),
        operator_rules.memory_of_unknown_size,
        "the tracer's rule for a tensor of a whole memory reads its size as a number",
        (
            Exists(f"{_VIEWS}.op_implementations_dict", "dict"),
            Exists("torch.ops.aten.set_.source_Storage_storage_offset", "OpOverload"),
            Says(f"{_VIEWS}.dispatch_to_op_implementations_dict", "op_implementations_dict"),
            Says("torch._functorch._aot_autograd.runtime_wrappers.merge_view_inputs", "set_"),
        ),
    ),
    Patch(
        "dropout",
        ("graph", "jit"),
        ("torch.ops.aten.dropout.default.py_kernels",),
        random_draws.dropout_as_eager,
        "the tracer makes native_dropout of it, which draws other numbers than eager mode on a CPU",
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
        "functionalisation fills a contiguous tensor, whatever the layout: other numbers than eager mode's",
        (
            Exists("torch.ops.aten.normal_.default.python_key_table", "dict"),
            Exists("torch._subclasses.functional_tensor.FunctionalTensorMode"),
        ),
        when=lambda scope: scope.eager_draws,
    ),
    Patch(
        "draws in subgraphs",
        ("graph", "jit"),
        ("torch.fx.Node.is_impure",),
        random_draws.draws_are_impure,
        "dead code elimination would drop higher-order operators whose subgraphs draw",
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
        "a cond in a checkpoint is marked to be computed again like other operators",
        (
            Exists("torch.utils.checkpoint._CachingTorchDispatchMode"),
            Says("torch._ops.HigherOrderOperator.dispatch", "supports_higher_order_operators"),
        ),
    ),
    Patch(
        "order of backward",
        ("graph", "jit"),
        (f"{_PARTITIONERS}.reordering_to_mimic_autograd_engine",),
        random_draws.backward_keeps_order,
        "the partitioner's reordering drops draws that nothing reads, and changes their order",
        (
            Takes(f"{_PARTITIONERS}.reordering_to_mimic_autograd_engine", "gm"),
            Says(f"{_PARTITIONERS}.min_cut_rematerialization_partition", "reordering_to_mimic_autograd_engine"),
        ),
    ),
    Patch(
        "states of checkpoints",
        ("graph", "jit"),
        (f"{_PARTITIONERS}.functionalize_rng_ops",),
        random_draws.states_have_values,
        "the calls that the partitioner writes for draws in a checkpoint have no values",
        (
            Takes(f"{_PARTITIONERS}.functionalize_rng_ops", "joint_module, fw_module, bw_module, num_sym_nodes"),
            Says(f"{_PARTITIONERS}.min_cut_rematerialization_partition", "functionalize_rng_ops"),
        ),
    ),
    Patch(
        "gradients of unbacked sizes",
        ("graph",),
        autograd_kernels.kernel_targets(gradient_kernels),
        autograd_kernels.gradients_of_unknown_sizes,
        "the usual gradients ask how many elements there are",
        autograd_kernels.KERNEL_PROBES,
    ),
    Patch(
        "sizes lost before a trace",
        ("graph", "jit"),
        (f"{_CAPTURE}._create_graph",),
        lost_sizes.are_not_looked_for,
        "a slice, up to a number of the data, of what is written to has a size that AOTAutograd loses and then misses",
        (
            Takes(f"{_CAPTURE}._create_graph", "f, args, args_descs, aot_config"),
            Says("torch.fx.experimental.symbolic_shapes.compute_unbacked_bindings", "pending_fresh_unbacked_symbols"),
        ),
    ),
    Patch(
        "margin losses of several targets",
        ("graph", "jit"),
        autograd_kernels.kernel_targets(margin_loss_kernels),
        autograd_kernels.margin_losses,
        "the decomposition of multilabel_margin_loss counts targets behind the first -1 as class 0",
        (
            *autograd_kernels.KERNEL_PROBES,
            Takes("torch._decomp.decompositions.multilabel_margin_loss_forward", "input, target, reduction, out"),
        ),
    ),
    Patch(
        "broadcasts in transforms",
        ("frame", "graph", "jit"),
        autograd_kernels.transform_targets(transformed_kernels),
        autograd_kernels.broadcasts_in_transforms,
        "a transform of torch.func differentiates with sizes that are not known to be 1",
        (*autograd_kernels.KERNEL_PROBES, *autograd_kernels.LEVEL_PROBES),
    ),
    Patch(
        "gradients of broadcasts",
        ("graph", "jit"),
        autograd_kernels.kernel_targets(broadcasting_kernels),
        autograd_kernels.gradients_of_broadcasts,
        "the gradient of an operand that may be repeated is summed where it was",
        autograd_kernels.KERNEL_PROBES,
    ),
)

JIT_PATCHES: tuple[Patch, ...] = (
    Patch(
        "associative scans without Dynamo",
        ("function",),
        (f"{_ASSOCIATIVE}.generic_associative_scan",),
        associative_scans.one_operator_for_jit,
        "the generic mode would be traced as its recursion, which is a graph for each length",
        (
            Takes(f"{_HIGHER_ORDER}.utils._maybe_compile_and_run_fn", "fn, *args"),
            Takes("torch._functorch.apis.vmap", "func, in_dims, out_dims, randomness, chunk_size"),
        ),
    ),
    Patch(
        "Python scalars",
        ("jit",),
        (f"{_AUTOGRAD}.tensorify_python_scalars",),
        jit_tracing.scalars_stay_numbers,
        "it is for floats that Dynamo made symbols, and relies on sizes that Dynamo made arguments",
        (
            Takes(f"{_AUTOGRAD}.tensorify_python_scalars", "gm, shape_env, fake_mode"),
            Says(f"{_AUTOGRAD}._apply_tensorify_python_scalars", "tensorify_python_scalars"),
        ),
    ),
    Patch(
        "compiled functions",
        ("jit",),
        ("torch._dynamo.eval_frame._callback_from_stance",),
        jit_tracing.compiled_functions_are_inlined,
        "what torch.compile made of a function is to be part of the trace",
        (
            Takes("torch._dynamo.eval_frame._callback_from_stance", "callback"),
            Takes("torch._higher_order_ops.utils._in_hop_compile", ""),
        ),
    ),
    Patch(
        "as_subclass",
        ("function",),
        (added("torch.Tensor.as_subclass"),),
        jit_tracing.tensors_keep_their_class,
        "of a traced tensor it would make one of another class, which the tracer does not see; modes are not asked",
        (
            Exists("torch.Tensor.as_subclass", "method_descriptor"),
            Exists("torch.ops.aten.alias.default", "OpOverload"),
        ),
    ),
    Patch(
        "torch.compiler.is_compiling",
        ("function",),
        ("torch.compiler._is_compiling_flag",),
        jit_tracing.function_sees_compiler,
        "the user's function asks whether it is being compiled",
        (
            Exists("torch.compiler._is_compiling_flag", "bool"),
            Says("torch.compiler.is_compiling", "_is_compiling_flag"),
        ),
    ),
    Patch(
        "nested tensors of values and offsets",
        ("function",),
        ("torch.fx._symbolic_trace.is_fx_tracing",),
        jit_tracing.nested_tensors_are_made,
        "nested_tensor_from_jagged takes every trace for one that calls no operators, and refuses it",
        (
            Takes("torch.fx._symbolic_trace.is_fx_tracing", ""),
            Says("torch.nested.nested_tensor_from_jagged", "is_fx_tracing"),
        ),
    ),
    Patch(
        "count of frames",
        ("function",),
        ("torch._dynamo.eval_frame.set_fullgraph_compiled_frame_count",),
        jit_tracing.frames_are_not_counted,
        "a compiled function inside, which must be one graph, would be told that nothing was compiled",
        (Exists("torch._dynamo.eval_frame.set_fullgraph_compiled_frame_count", "builtin_function_or_method"),),
        versions=Versions(first="2.12"),  # before, Dynamo counts none
    ),
    Patch(
        "generators in graphs",
        ("jit",),
        ("torch.fx._symbolic_trace.is_opaque_type", "torch.fx._symbolic_trace.is_opaque_reference_type"),
        jit_tracing.generators_are_attributes,
        "the tracer takes no generator for an argument of a draw",
        (
            Takes("torch.fx._symbolic_trace.is_opaque_type", "cls"),
            Takes("torch.fx._symbolic_trace.is_opaque_reference_type", "cls"),
            Says("torch.fx._symbolic_trace.Tracer.create_arg", "is_opaque_type"),
            Says("torch.fx._symbolic_trace.Tracer.create_arg", "is_opaque_reference_type"),
        ),
        versions=Versions(last="2.12"),  # then PyTorch registers the type itself
    ),
    Patch(
        "methods of generators",
        ("function",),
        generators.method_targets,
        generators.generators_are_not_asked,
        "torch.manual_seed, g.manual_seed and their like would be run once, by the trace",
        (
            Exists("torch.Generator.manual_seed"),
            Exists("torch.Generator.set_state"),
            Behaves("torch.Generator", generators.methods_can_be_replaced, slow=False),
        ),
    ),
    Patch(
        "new generators",
        ("function",),
        ("torch.Generator",),
        generators.generators_are_not_made,
        "a generator that the function makes would be made once, by the trace",
        (Exists("torch.Generator.device"),),
    ),
)

PATCHES: tuple[Patch, ...] = (*SETTINGS, *FRAME_PATCHES, *GRAPH_PATCHES, *JIT_PATCHES)
CURRENT: tuple[Patch, ...] = tuple(patch for patch in PATCHES if patch.is_for_this_version)

_in_force: set[str] = set()  # names of rows, under the compile lock
_probed: set[str] = set()


@contextlib.contextmanager
def in_force(scope: Scope, more: Sequence[Change] = ()) -> Iterator[None]:
    """While entered, the changes of a scope are made, and ``more`` settings. PatchError, and nothing is changed, if
    PyTorch is not what they were made for."""
    with compile_lock, contextlib.ExitStack() as stack:
        changes = stack.enter_context(Changes())
        require_known(scope)
        changes.scope(scope)
        for patch in _rows(scope):
            if patch.is_setting:
                patch.change(changes)
            elif patch.name not in _in_force:
                changes.callback(_in_force.discard, patch.name)
                _in_force.add(patch.name)
                patch.change(changes)
        for change in more:
            change(changes)
        yield


def splitting() -> contextlib.AbstractContextManager[None]:
    """The scope in which a joint graph is split into forward and backward."""
    return in_force(Scope("split"))


@functools.cache
def _rows(scope: Scope) -> tuple[Patch, ...]:
    return tuple(patch for patch in CURRENT if patch.is_for(scope))


def require_known(scope: Scope) -> None:
    """PatchError if PyTorch is not what the changes of a scope were made for. Each is looked at once."""
    with compile_lock:
        for patch in _rows(scope):
            if patch.name not in _probed:
                patch.require_known()
                _probed.add(patch.name)


def probe_all() -> dict[str, str]:
    """What is wrong with each patch of this version, by name; "" for those that PyTorch is as they need it."""
    return {patch.name: "; ".join(patch.wrong()) for patch in CURRENT}
