"""Unbacked sizes: rules of PyTorch that ask for one are made to decide at call time, or not to ask."""

from __future__ import annotations

from symshape.frontend.decompositions.data_dependent import size_kernels
from symshape.frontend.patches import operator_kernels
from symshape.frontend.patches.patch import Patch
from symshape.frontend.patches.probes import Documents, Exists, Says, Takes
from symshape.frontend.patches.torch_names import SIZES, VARIABLES, VIEWS
from symshape.frontend.patches.unbacked import (
    broadcast_rules,
    convolution_layouts,
    size_bounds,
    torch_layers,
    truth_values,
    view_layouts,
)

ROWS: tuple[Patch, ...] = (
    Patch(
        "layouts of views",
        ("frame",),
        (f"{VIEWS}._view_has_unbacked_input", f"{VIEWS}._view_unbacked_meta"),
        view_layouts.views_by_strides,
        "the rule for views guards on divisibility of sizes, and that for one element squeezes the wrong dim",
        (
            Takes(f"{VIEWS}._view_has_unbacked_input", "a, shape"),
            Says(f"{VIEWS}._view_meta", "_view_has_unbacked_input"),
            Says(f"{VIEWS}._view_meta", "_view_unbacked_meta"),
        ),
    ),
    Patch(
        "sizes of composite operators",
        ("frame",),
        operator_kernels.kernel_targets(size_kernels),
        operator_kernels.sizes_of_composites,
        "composite operators whose C++ code asks for sizes could not be traced with unbacked ones",
        (*operator_kernels.KERNEL_PROBES,),
    ),
    Patch(
        "sizes of logsumexp",
        ("frame",),
        ("torch._decomp.decomposition_table[aten.logsumexp.default]",),
        operator_kernels.sizes_of_logsumexp,
        "the decomposition asks whether there are elements to sum",
        (Takes("torch._decomp.decomposition_table[aten.logsumexp.default]", "self, dim, keepdim, out"),),
    ),
    Patch(
        "sizes of softmax",
        ("frame",),
        (
            "torch._decomp.decomposition_table[aten._softmax.default]",
            "torch._decomp.decomposition_table[aten._log_softmax.default]",
        ),
        operator_kernels.sizes_of_softmax,
        "the decompositions ask whether there are elements to take the maximum of",
        (
            Takes("torch._decomp.decomposition_table[aten._softmax.default]", "x, dim, half_to_float, out"),
            Takes("torch._decomp.decomposition_table[aten._log_softmax.default]", "x, dim, half_to_float, out"),
        ),
    ),
    Patch(
        "broadcasting",
        ("frame",),
        (
            "torch._refs._broadcast_shapes",
            "torch._meta_registrations._broadcast_shapes",
            "torch._refs._conversions._broadcast_shapes",
            f"{VIEWS}.infer_size",
            "torch._refs._maybe_broadcast",
            "torch._meta_registrations._maybe_broadcast",
        ),
        broadcast_rules.broadcast_at_call_time,
        "the tracer assumes that an unbacked size is not 1; here it may be either",
        (
            Takes("torch._refs._broadcast_shapes", "*_shapes"),
            Takes("torch._meta_registrations._broadcast_shapes", "*_shapes"),
            Takes("torch._refs._conversions._broadcast_shapes", "*_shapes"),
            Takes(f"{VIEWS}.infer_size", "a, b"),
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
        "the tracer assumes that an expanded dim of unbacked size is not 1",
        (Takes("torch._decomp.decomposition_table[aten.expand.default]", "a, *shape, implicit"),),
    ),
    Patch(
        "checks of normalisations",
        ("frame",),
        ("torch.nn.functional._verify_batch_size", "torch.nn.functional._verify_spatial_size"),
        torch_layers.checks_of_layers_at_call_time,
        "whether there is more than one value per channel cannot be known for unbacked sizes during tracing",
        (
            Takes("torch.nn.functional._verify_batch_size", "size"),
            Takes("torch.nn.functional._verify_spatial_size", "size"),
            Says("torch.nn.functional.batch_norm", "_verify_batch_size"),
            Says("torch.nn.functional.instance_norm", "_verify_spatial_size"),
        ),
    ),
    Patch(
        "causal masks",
        ("frame",),
        (f"{VARIABLES}.UserFunctionVariable.call_function",),
        torch_layers.masks_are_not_read,
        "whether a mask is causal is data-dependent, and only a hint for attention",
        (
            Takes(f"{VARIABLES}.UserFunctionVariable.call_function", "self, tx, args, kwargs"),
            Takes("torch.nn.modules.transformer._detect_is_causal_mask", "mask, is_causal, size"),
        ),
    ),
    Patch(
        "bounds of empty sizes",
        ("frame",),
        (f"{SIZES}.ShapeEnv._constrain_range_for_size",),
        size_bounds.bounds_allow_one,
        "a new size of at most 0 or 1 could not replace one that is assumed to be larger",
        (Takes(f"{SIZES}.ShapeEnv._constrain_range_for_size", "self, a, min, max"),),
    ),
    Patch(
        "bounds of more than 64 bits",
        ("frame",),
        (f"{SIZES}.ShapeEnv._constrain_range_for_size",),
        size_bounds.bounds_fit,
        "the size of a mask's selection gets a bound of more than 64 bits if the mask's own size is unbacked",
        (Takes(f"{SIZES}.ShapeEnv._constrain_range_for_size", "self, a, min, max"),),
    ),
    Patch(
        "new sizes of fake rules",
        ("frame", "graph"),
        ("torch._library.fake_impl.FakeImplCtx.create_unbacked_symint",),
        size_bounds.new_sizes_start_at_zero,
        "a user's fake rule that gives no minimum would create a size of at least 2",
        (Takes("torch._library.fake_impl.FakeImplCtx.create_unbacked_symint", "self, min, max"),),
    ),
    Patch(
        "layouts of convolutions",
        ("frame",),
        ("torch._C._select_conv_backend", "torch._C._conv_determine_backend_memory_format"),
        convolution_layouts.layouts_of_convolutions,
        "the choice of a library for convolutions guards on the batch and on the number of elements",
        (
            Documents("torch._C._select_conv_backend", "input: torch.Tensor, weight: torch.Tensor, bias"),
            Exists("torch._C._ConvBackend.Slow2d"),
            Takes("torch._prims_common.are_strides_like_channels_last_or_false", "shape, strides"),
            Says(f"{VIEWS}.conv", "_select_conv_backend"),
            Says(f"{VIEWS}.conv", "_conv_determine_backend_memory_format"),
        ),
    ),
    Patch(
        "truth of numbers in the data",
        ("frame",),
        ("torch._dynamo.symbolic_convert.guard_bool",),
        truth_values.truth_of_data_breaks_the_graph,
        "`if n.item():` would end in an error, where `if n.item() > 0:` breaks the graph",
        (
            Takes("torch._dynamo.symbolic_convert.guard_bool", "a"),
            Says("torch._dynamo.symbolic_convert.generic_jump", "guard_bool"),
            Says("torch._dynamo.symbolic_convert.generic_jump", "UserError"),
        ),
    ),
)
