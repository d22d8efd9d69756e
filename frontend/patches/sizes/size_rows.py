"""No 0/1 specialisation: guards, strides, and rules of PyTorch that distinguish these sizes."""

from __future__ import annotations

from symshape.frontend.bridge import general_shape_env
from symshape.frontend.patches.patch import Patch, Versions
from symshape.frontend.patches.probes import Behaves, Exists, HasLocal, Says, Takes, added
from symshape.frontend.patches.sizes import contraction_orders, scattered_sources, slices, zero_one_specialisation
from symshape.frontend.patches.torch_names import (
    DIVISIONS,
    FAKE_MODE,
    FUNCTIONS,
    NODE,
    OUTPUT,
    SIZES,
    SYM_NODE,
    VIEWS,
)
from symshape.frontend.patches.unbacked import size_bounds

ROWS: tuple[Patch, ...] = (
    Patch(
        "sizes 0 and 1",
        ("frame",),
        (
            f"{OUTPUT}.ShapeEnv",
            f"{SIZES}.make_symbol",
            f"{SIZES}.uninteresting_files",
        ),
        zero_one_specialisation.zero_and_one_are_sizes,
        "each size that is 0 or 1 at the first call would become constant, with a graph of its own",
        (
            HasLocal(
                "torch._dynamo.utils.run_node", "node"
            ),  # identifies the operator that guards (question_origins.py)
            HasLocal(f"{FAKE_MODE}.__torch_dispatch__", "func"),
            Takes(
                f"{SIZES}.ShapeEnv.create_symbol",
                "self, val, source, dynamic_dim, constraint_dim, positive, do_not_specialize_zero_one,"
                " symbolic_context",
            ),
            Says(f"{SIZES}.ShapeEnv.create_symbol", "make_symbol"),
            Takes(
                f"{SIZES}.ShapeEnv.evaluate_expr",
                "self, orig_expr, hint, fx_node, size_oblivious, fallback_value, forcing_spec",
            ),
            Takes(
                f"{SIZES}.ShapeEnv._maybe_evaluate_static",
                "self, expr, unbacked_only, compute_hint, size_oblivious, axioms, var_to_range",
            ),
            Takes(f"{SIZES}.ShapeEnv.create_symintnode", "self, sym, hint, source"),
            Takes(f"{SIZES}.ShapeEnv._get_stack_summary", "self, is_debug, framework_loc"),
            Takes(f"{SIZES}.ShapeEnv._set_replacement", "self, a, tgt, msg"),
            Exists(f"{SIZES}.ShapeEnv._update_var_to_range"),
            Says(f"{SIZES}.ShapeEnv.produce_guards_verbose", " <= "),
            Exists("torch._dynamo.exc.StepUnsupported"),
            Exists("torch._dynamo.symbolic_convert.InstructionTranslator.current_tx"),
            Says("torch._dynamo.symbolic_convert.InstructionTranslatorBase.step", "StepUnsupported"),
            Takes("torch._dynamo.utils.get_fake_value", "node, tx, allow_non_graph_fake"),
            Says("torch._dynamo.symbolic_convert.generic_jump", "UserError"),
            Takes(
                f"{SIZES}.ShapeEnv._compute_symbolic_stride",
                "self, source, size, ex_size, ex_stride, dynamic_strides, constraint_strides, are_sizes_static,"
                " symbolic_context",
            ),
            Takes(
                f"{SIZES}.ShapeEnv.produce_guards_verbose",
                "self, placeholders, sources, source_ref, guards, input_contexts, equalities_inputs, _simplified,"
                " ignore_static, langs",
            ),
            Behaves(f"{SIZES}.ShapeEnv.produce_guards_verbose", general_shape_env.strides_are_guarded_as_text),
            Takes(f"{SIZES}.make_symbol", "prefix, idx, **kwargs"),
            Says(f"{SIZES}.ShapeEnv._get_user_frame", "uninteresting_files"),
            Exists("torch._C._current_autograd_node"),  # read by shortcuts.py
            Takes("torch.autograd.graph._engine_run_backward", "t_outputs, *args, **kwargs"),
            Says("torch._prims_common._is_non_overlapping_and_dense_or_false", "guard_or_false"),
            Says("torch._prims_common.are_strides_like_channels_last_or_false", "guard_or_true"),
            Says("torch._prims_common.check_contiguous_sizes_strides", "guard_or_true"),
            Says("torch._prims_common.compute_elementwise_output_logical_to_physical_perm", "guard_or_false"),
            Says("torch._prims_common.is_contiguous", "guard_or_false"),
            Says("torch._prims_common.is_channels_last_contiguous_2d", "guard_or_true"),
            Says("torch._prims_common.is_channels_last_contiguous_3d", "guard_or_true"),
            Says("torch._meta_registrations.meta_copy_", "_debug_has_internal_overlap"),
            Takes(
                "torch._subclasses.fake_impls.run_and_return_new_tensor_of_input_device",
                "fake_mode, func, args, kwargs",
            ),
        ),
    ),
    Patch(
        "strides where a size is 1",
        ("frame",),
        ("torch._dynamo.guards.GuardBuilder.TENSOR_MATCH",),
        zero_one_specialisation.irrelevant_strides_are_not_guarded,
        "the stride of a dim of size 1, or of a tensor without elements, would be guarded although it does not matter",
        (
            Takes("torch._dynamo.guards.GuardBuilder.TENSOR_MATCH", "self, guard, value"),
            Says("torch._dynamo.guards.GuardBuilder.TENSOR_MATCH", "input_source_to_sizes_strides"),
            Takes("torch._dynamo.guards.convert_to_concrete_values", "size_or_stride"),
        ),
    ),
    Patch(
        "strides of contiguous tensors",
        ("frame",),
        ("torch._prims_common.sym_max", f"{NODE}.sym_max", "torch.SymInt.__sym_max__"),
        zero_one_specialisation.strides_are_products,
        "PyTorch computes them with max(size, 1) for each size that may be 0",
        (
            Takes("torch._prims_common.sym_max", "a, b"),
            Says("torch._prims_common.make_contiguous_strides_for", "sym_max"),
            Takes(f"{NODE}.sym_max", "self, other"),
            Takes("torch.SymInt.__sym_max__", "self, other"),
        ),
    ),
    Patch(
        "contiguity in C++",
        ("frame",),
        (f"{NODE}.has_hint",),
        zero_one_specialisation.hints_are_hidden_from_cpp,
        "C++ compares each size that has a hint with 0 and 1, which makes guards",
        (Takes(f"{NODE}.has_hint", "self"), Says(f"{NODE}.expect_true", "has_hint")),
    ),
    Patch(
        "division by a size",
        ("frame",),
        tuple(f"{NODE}.{name}" for name in (*DIVISIONS, *FUNCTIONS)),
        zero_one_specialisation.divisions_by_zero_sizes,
        "a rule that is correct for all sizes may divide by a size that is 0 at the first call",
        (
            *(Takes(f"{NODE}.{name}", "self, other") for name in DIVISIONS),
            *(Takes(f"{NODE}.{name}", "self") for name in FUNCTIONS),
            Exists("torch.fx.experimental.sym_node._NO_HINT", "object"),
            *(
                Exists(f"torch.fx.experimental.sym_node.{name}")
                for name in ("to_node", "wrap_node", "method_to_operator")
            ),
            Takes("torch.fx.experimental.proxy_tensor.handle_sym_dispatch", "func, args, kwargs"),
        ),
    ),
    Patch(
        "conditions as arguments",
        ("frame",),
        (f"{SYM_NODE}.as_proxy",),
        zero_one_specialisation.decided_conditions_are_bools,
        "`n > 1 and x is None` is a SymBool if n is 1, which operators do not accept as a bool",
        (Takes(f"{SYM_NODE}.as_proxy", "self"),),
    ),
    Patch(
        "ranks that depend on sizes",
        ("frame", "graph"),
        (
            "torch._decomp.decomposition_table[aten.squeeze.dims]",
            "torch._decomp.decomposition_table[aten.cat.default]",
        ),
        zero_one_specialisation.ranks_are_guarded,
        "whether `squeeze` drops a dim, and `cat` an empty operand, must be known during tracing",
        (
            Takes("torch._decomp.decomposition_table[aten.squeeze.dims]", "a, dim"),
            Takes("torch._decomp.decomposition_table[aten.cat.default]", "tensors, dim, out"),
        ),
    ),
    Patch(
        "bounds of slices",
        ("frame", "graph"),
        (f"{VIEWS}._compute_slice_index",),
        zero_one_specialisation.slices_of_any_size,
        "`x[1:]` of a tensor that may be empty would have an unbacked size and offset",
        (Takes(f"{VIEWS}._compute_slice_index", "size, index"),),
        versions=Versions(last="2.11"),  # since 2.12 it is the minimum of bound and size
    ),
    Patch(
        "slices without their ends",
        ("frame", "graph"),
        (f"{VIEWS}.op_implementations_dict[aten.slice.Tensor]",),
        slices.ends_are_left_out,
        "the rule for `x[1:-1]` guards on the dim being as long, so that smaller sizes have graphs of their own",
        (
            Takes(
                f"{VIEWS}.op_implementations_dict[aten.slice.Tensor]", "fake_mode, func, self, dim, start, end, step"
            ),
            Says(f"{VIEWS}.dispatch_to_op_implementations_dict", "op_implementations_dict"),
        ),
    ),
    Patch(
        "sizes of pooled tensors",
        ("frame", "graph", "jit"),
        ("torch._meta_registrations.div_rtn",),
        zero_one_specialisation.quotients_are_floors,
        "the rule for windows that may reach past the end would have a graph for each answer whether they are whole",
        (
            Takes("torch._meta_registrations.div_rtn", "x, y"),
            Says("torch._meta_registrations.pooling_output_shape_pad_lr", "div_rtn"),
        ),
        versions=Versions(last="2.12"),  # since 2.13 it is `x // y` itself
    ),
    Patch(
        "broadcasts that are rejected",
        ("frame",),
        ("torch._dynamo.utils.run_node",),
        zero_one_specialisation.rejected_broadcasts_are_retried,
        "a rule that assumes that no size is 1 may reject valid broadcasts",
        (
            Takes("torch._dynamo.utils.run_node", "tracer, node, args, kwargs, nnmodule"),
            Says("torch._dynamo.utils._get_fake_value_impl", "run_node"),
        ),
    ),
    Patch(
        "sizes of rolls",
        ("frame", "graph"),
        ("torch._decomp.decomposition_table[aten.roll.default]",),
        zero_one_specialisation.sizes_of_rolls,
        "the decomposition divides by a size, and asks whether there are elements",
        (Takes("torch._decomp.decomposition_table[aten.roll.default]", "a, shifts, dims, out"),),
    ),
    Patch(
        "products with a vector",
        ("frame", "graph"),
        ("torch._decomp.decomposition_table[aten.mv.default]",),
        zero_one_specialisation.sizes_of_products_with_vectors,
        "the rule multiplies and sums up: it asks for the order of strides, which of windows depends on their number",
        (Takes("torch._decomp.decomposition_table[aten.mv.default]", "self, vec, out"),),
    ),
    Patch(
        "indices that are sizes",
        ("frame", "graph"),
        (f"{VIEWS}.op_implementations_dict[aten.select.int]",),
        zero_one_specialisation.indices_are_guarded,
        "the rules ask whether an index is out of range, and add no guard if it is in range at the first call",
        (
            Takes(f"{VIEWS}.meta_select", "fake_mode, func, self, dim, index"),
            Says(f"{VIEWS}.dispatch_to_op_implementations_dict", "op_implementations_dict"),
            Says(f"{FAKE_MODE}._dispatch_impl", "op_implementations_checks"),
        ),
    ),
    Patch(
        "sources of scatters",
        ("frame", "graph"),
        lambda: [
            *(f"torch._decomp.decomposition_table[{op}]" for op in scattered_sources.DECOMPOSED),
            *(added(f"{VIEWS}.op_implementations_dict[{op}]") for op in scattered_sources.scatters()),
        ],
        scattered_sources.sources_are_guarded,
        "the rules assume that a source has the size of what it replaces",
        (
            Says(f"{VIEWS}.dispatch_to_op_implementations_dict", "op_implementations_dict"),
            Says(f"{FAKE_MODE}._dispatch_impl", "op_implementations_checks"),
        ),
    ),
    Patch(
        "factors that may be 0",
        ("frame",),
        (f"{SIZES}.try_solve",),
        size_bounds.zero_factors_are_kept,
        "the tracer divides equations by sizes that may be 0",
        (
            Takes(f"{SIZES}.try_solve", "expr, thing, trials, floordiv_inequality"),
            Says(f"{SIZES}.ShapeEnv._maybe_guard_rel", "try_solve"),
        ),
    ),
    Patch(
        "orders of contractions",
        ("frame", "graph"),
        ("torch.backends.opt_einsum.m.get_opt_einsum",),
        contraction_orders.orders_are_of_first_sizes,
        "opt_einsum, where it is installed, makes the sizes of three operands of `einsum` constant",
        (
            Takes("torch.backends.opt_einsum.m.get_opt_einsum", ""),
            Says("torch.functional.einsum", "get_opt_einsum"),
            Says("torch.functional.einsum", "contract_path"),
        ),
    ),
)
