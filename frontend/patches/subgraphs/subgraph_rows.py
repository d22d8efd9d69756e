"""Subgraphs: branches, loops, scans, checkpoints, and regions that are traced once."""

from __future__ import annotations

from symshape.frontend.patches.patch import Patch, Versions
from symshape.frontend.patches.probes import Exists, Says, Takes, added
from symshape.frontend.patches.subgraphs import (
    associative_scans,
    branch_results,
    checkpoints,
    nested_regions,
    scan_gradients,
)
from symshape.frontend.patches.torch_names import (
    ASSOCIATIVE,
    ASSOCIATIVE_VARIABLE,
    CHECKPOINT,
    OUTPUT,
    PARTIAL,
    REGIONS,
    VARIABLES,
)

ROWS: tuple[Patch, ...] = (
    Patch(
        "regions that are traced once",
        ("frame",),
        (f"{REGIONS}.find_reuse_match", f"{REGIONS}.find_reuse_entry_by_key"),
        nested_regions.sizes_of_regions_are_bound,
        "a second call of a region fails with a KeyError if a guard has meanwhile made a size it takes constant",
        (
            Exists(f"{REGIONS}.LiftedBoundSymbol"),
            Says(f"{REGIONS}.stamp_out_subgraph", "bound_symbols"),
            Says(f"{REGIONS}.stamp_out_subgraph", "subgraph_input_mapping"),
        ),
        versions=Versions(first="2.13"),
    ),
    Patch(
        "results of branches",
        ("frame",),
        ("torch._higher_order_ops.cond._merge_output",),
        branch_results.results_of_branches_are_merged,
        "the rule compares strides with 1, which makes guards, and fails on unbacked strides",
        (Takes("torch._higher_order_ops.cond._merge_output", "a, b, mode"),),
    ),
    Patch(
        "values that steps of a scan save",
        ("frame",),
        ("torch._higher_order_ops.scan.ScanAutogradImpl._optimize_forward_intermediates",),
        scan_gradients.values_saved_by_steps_are_copies,
        "a carry that is also saved for backward, as in most recurrent cells, is rejected as an alias of itself",
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
        (f"{VARIABLES}.UserFunctionVariable.call_function", added("torch._inductor.utils.is_pointwise_use")),
        associative_scans.one_operator,
        "the generic mode would be traced as its recursion, with a graph for each length",
        (
            Takes(f"{VARIABLES}.UserFunctionVariable.call_function", "self, tx, args, kwargs"),
            Takes(f"{ASSOCIATIVE}.associative_scan", "combine_fn, xs, dim, reverse, combine_mode"),
            Says(f"{ASSOCIATIVE}.associative_scan", "generic_associative_scan"),
            Takes(f"{ASSOCIATIVE}.generic_associative_scan", "operator, leaves, dim, additional_inputs"),
            Takes("torch._dynamo.variables.functions.FunctoolsPartialVariable.__init__", PARTIAL),
            Says(f"{ASSOCIATIVE_VARIABLE}._call_function", "is_pointwise_use"),
        ),
    ),
    Patch(
        "checkpoints that are recomputed",
        ("frame",),
        (f"{CHECKPOINT}._call_function",),
        checkpoints.breaks_where_recomputed,
        "recomputation writes running statistics again, and with preserve_rng_state=False draws new random numbers",
        (
            Exists("torch._dynamo.config.skip_fwd_side_effects_in_bwd_under_checkpoint"),
            Takes(f"{CHECKPOINT}._call_function", "self, tx, args, kwargs"),
            Takes(
                f"{CHECKPOINT}.create_wrapped_node",
                "self, tx, fn_vt, fn_args_vt, kwargs, description, subgraph_name"
                " | self, tx, fn_vt, fn_args_vt, kwargs, description, subgraph_name, set_subgraph_inputs",
            ),
        ),
    ),
    Patch(
        "floats that subgraphs read",
        ("frame",),
        (f"{OUTPUT}.SubgraphTracer.lift_tracked_freevar_to_input",),
        checkpoints.floats_are_recreated,
        "`cond`, `while_loop` and `scan` accept no floats, but a body may read a float that the frame read before",
        (
            Takes(f"{OUTPUT}.SubgraphTracer.lift_tracked_freevar_to_input", "self, proxy"),
            Takes("torch._dynamo.utils.set_example_value", "node, example_value"),
        ),
    ),
    Patch(
        "floats of subgraphs",
        ("frame",),
        (f"{VARIABLES}.builder.VariableBuilder.wrap_symfloat",),
        checkpoints.floats_belong_to_the_frame,
        "Dynamo reuses the float of one checkpoint's graph in the next one, which fails with an AssertionError",
        (
            Takes(f"{VARIABLES}.builder.VariableBuilder.wrap_symfloat", "self, value"),
            Takes(f"{VARIABLES}.builder.VariableBuilder.install_guards", "self, *guards"),
            Says(f"{VARIABLES}.builder.VariableBuilder.wrap_symfloat", "CONSTANT_MATCH"),
            Takes(f"{VARIABLES}.ConstantVariable.create", "value, **kwargs"),
            Exists(f"{VARIABLES}.higher_order_ops.AutogradFunctionApplyVariable._HOP_NAME", "str"),
            Says("torch._dynamo.output_graph.SubgraphTracer.__init__", "source_target"),
            Says("torch._dynamo.output_graph.OutputGraph.subtracer", "tracers"),
        ),
    ),
)
