"""Unbacked sizes: rules of PyTorch that ask about one decide at call time, or do not ask."""

from __future__ import annotations

from symshape.frontend.decompositions.data_dependent import size_kernels
from symshape.frontend.patches import (
    autograd_kernels,
    broadcast_rules,
    convolution_layouts,
    empty_sizes,
    torch_layers,
    view_layouts,
)
from symshape.frontend.patches.patch import Patch
from symshape.frontend.patches.probes import Documents, Exists, Says, Takes
from symshape.frontend.patches.tables.torch_names import SIZES, VARIABLES, VIEWS

ROWS: tuple[Patch, ...] = (
    Patch(
        "layouts of views",
        ("frame",),
        (f"{VIEWS}._view_has_unbacked_input",),
        view_layouts.views_by_strides,
        "the usual rule for views guards on which size divides which",
        (
            Takes(f"{VIEWS}._view_has_unbacked_input", "a, shape"),
            Says(f"{VIEWS}._view_meta", "_view_has_unbacked_input"),
            Exists(f"{VIEWS}._view_unbacked_meta"),
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
        "the tracer takes an unbacked size for one that is not 1; here it may be either",
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
        "causal masks",
        ("frame",),
        (f"{VARIABLES}.UserFunctionVariable.call_function",),
        torch_layers.masks_are_not_looked_at,
        "whether a mask is causal is in the data, and is only a hint to attention",
        (
            Takes(f"{VARIABLES}.UserFunctionVariable.call_function", "self, tx, args, kwargs"),
            Takes("torch.nn.modules.transformer._detect_is_causal_mask", "mask, is_causal, size"),
        ),
    ),
    Patch(
        "bounds of empty sizes",
        ("frame",),
        (f"{SIZES}.ShapeEnv._constrain_range_for_size",),
        empty_sizes.bounds_allow_one,
        "a new size that is at most 0 or 1 could not take the place of one that was thought to be more",
        (Takes(f"{SIZES}.ShapeEnv._constrain_range_for_size", "self, a, min, max"),),
    ),
    Patch(
        "bounds of more than 64 bits",
        ("frame",),
        (f"{SIZES}.ShapeEnv._constrain_range_for_size",),
        empty_sizes.bounds_fit,
        "what a mask selects has a bound that no integer has, where the mask's size is in the data",
        (Takes(f"{SIZES}.ShapeEnv._constrain_range_for_size", "self, a, min, max"),),
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
        "layouts of convolutions",
        ("frame",),
        ("torch._C._select_conv_backend", "torch._C._conv_determine_backend_memory_format"),
        convolution_layouts.layouts_of_convolutions,
        "the choice of a library guards on the batch and on the number of elements",
        (
            Documents("torch._C._select_conv_backend", "input: torch.Tensor, weight: torch.Tensor, bias"),
            Exists("torch._C._ConvBackend.Slow2d"),
            Takes("torch._prims_common.are_strides_like_channels_last_or_false", "shape, strides"),
            Says(f"{VIEWS}.conv", "_select_conv_backend"),
            Says(f"{VIEWS}.conv", "_conv_determine_backend_memory_format"),
        ),
    ),
)
