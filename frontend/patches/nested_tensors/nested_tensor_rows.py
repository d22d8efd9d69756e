"""Nested tensors of the jagged layout: views, attention, functions, products of matrices."""

from __future__ import annotations

from symshape.frontend.patches.nested_tensors import nested_attention, nested_functions, nested_products, nested_views
from symshape.frontend.patches.patch import Patch, Versions
from symshape.frontend.patches.probes import Exists, Says, Takes, added
from symshape.frontend.patches.torch_names import BUILDER, NESTED, VIEWS

ROWS: tuple[Patch, ...] = (
    Patch(
        "nested tensors that are views",
        ("frame",),
        (added(f"{NESTED}._is_view"),),
        nested_views.nested_views_are_tensors,
        "for a view, its base is traced and guarded; a nested tensor returned by an operator has none",
        (
            Exists(f"{NESTED}._is_view"),
            Says(f"{BUILDER}._automatic_dynamic", "_is_view"),
            Says(f"{BUILDER}.VariableBuilder.wrap_tensor", "_is_view"),
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
        "they are detached; if they are a view of an input, AOTAutograd replays that, and the result has no gradient",
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
        "on CPUs it reads the lengths on the host and creates a tensor for each row, which breaks the graph",
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
        "variance, cumulative sums, slices, concatenation etc. have no rule, and sums over the ragged dim no gradient",
        (
            Takes("torch.nested._internal.ops.jagged_torch_function", "func, *args, **kwargs"),
            Says(f"{NESTED}.__torch_function__", "jagged_torch_function"),
            Exists("torch.ops.aten._jagged_to_padded_dense_forward.default", "OpOverload"),
            Exists("torch.ops.aten._padded_dense_to_jagged_forward.default", "OpOverload"),
        ),
    ),
    Patch(
        "empty values of nested tensors",
        ("frame", "graph", "jit"),
        (f"{VIEWS}.op_implementations_dict[aten._padded_dense_to_jagged_forward.default]",),
        nested_functions.totals_may_be_zero,
        "a given number of values would be asked whether it is 0, and be an unbacked size if it is",
        (
            Takes(f"{VIEWS}._padded_dense_to_jagged_forward", "fake_mode, func, padded, offsets, total_L"),
            Says(f"{VIEWS}.dispatch_to_op_implementations_dict", "op_implementations_dict"),
        ),
        versions=Versions(last="2.12"),  # since 2.13 PyTorch tests whether it is None
    ),
    Patch(
        "products of nested tensors",
        ("frame", "graph"),
        ("torch.nested._internal.ops.JAGGED_OPS_TABLE[torch.ops.aten.matmul_backward.default]",),
        nested_products.gradients_of_values,
        "the gradient of a matrix that multiplies all rows is computed as one product of all values, not one per row",
        (
            Exists("torch.ops.aten.matmul_backward.default", "OpOverload"),
            Says("torch.nested._internal.ops.matmul_backward_default", "mask"),
        ),
    ),
)
