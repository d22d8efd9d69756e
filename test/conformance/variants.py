"""What is run: the variants of PyTorch's operator, module, higher-order and custom-operator databases."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

CLASSES = ("unary", "binary", "reduction", "view", "indexing", "library", "other")

# Operators by what they do, where neither the type of their OpInfo nor the start of their name says it; without
# "nn.functional.". A library's are those whose work is sorting, searching for bins, solving, transforming, convolving,
# pooling or scanning: they may be calls by design.
_BY_CLASS = {
    "view": """T mT H mH alias_copy as_strided as_strided_copy as_strided_scatter block_diag broadcast_tensors
        broadcast_to cat column_stack combinations chunk clone constant_pad_nd diag diag_embed diagonal diagonal_copy
        diff expand expand_as expand_copy flatten flip kron meshgrid movedim narrow narrow_copy pad permute
        permute_copy pixel_shuffle pixel_unshuffle channel_shuffle ravel repeat repeat_interleave reshape reshape_as
        resize_ resize_as_ roll rot90 select slice slice_scatter split split_list_args split_with_sizes
        split_with_sizes_copy squeeze squeeze_copy stack t t_copy tensor_split tile transpose transpose_copy tril triu
        unbind unbind_copy unflatten unfold unfold_copy unsafe_chunk unsafe_split unsqueeze unsqueeze_copy view view_as
        view_as_complex view_as_real view_copy cartesian_prod contiguous diagflat hsplit vsplit dsplit hstack
        vstack dstack atleast_1d atleast_2d atleast_3d select_scatter diagonal_scatter _chunk_cat""",
    "indexing": """__getitem__ argwhere embedding embedding_bag gather grid_sample grid_sampler_2d grid_sampler_3d
        index_add index_copy index_fill index_put index_reduce index_select interpolate masked_fill masked_scatter
        masked_select nonzero nonzero_static one_hot put scatter scatter_add scatter_reduce take take_along_dim
        tril_indices triu_indices unravel_index upsample_bilinear upsample_nearest where _unsafe_masked_index
        _unsafe_masked_index_put_accumulate""",
    "reduction": """aminmax batch_norm binary_cross_entropy binary_cross_entropy_with_logits corrcoef
        cosine_embedding_loss cosine_similarity cov cross_entropy dist gaussian_nll_loss group_norm
        hinge_embedding_loss huber_loss instance_norm kl_div l1_loss layer_norm linalg.norm linalg.vector_norm
        local_response_norm log_softmax logsumexp margin_ranking_loss max min mse_loss multi_margin_loss
        multilabel_margin_loss multilabel_soft_margin_loss native_batch_norm native_layer_norm native_group_norm
        nll_loss norm normalize pairwise_distance poisson_nll_loss renorm rms_norm smooth_l1_loss soft_margin_loss
        softmax softmin std_mean sum_to_size trace trapezoid trapz triplet_margin_loss
        triplet_margin_with_distance_loss var_mean cdist pdist allclose equal _softmax_backward_data
        _batch_norm_with_update _native_batch_norm_legit dot vdot linalg.vecdot _safe_softmax logaddexp2""",
    "library": """addbmm addmm addmv addr baddbmm bilinear bmm cholesky cholesky_inverse cholesky_solve conv1d conv2d
        conv3d conv_transpose1d conv_transpose2d conv_transpose3d einsum geqrf inner linear logdet lu lu_solve lu_unpack
        matmul __rmatmul__ matrix_exp mm multi_head_attention_forward mv ormqr outer pca_lowrank pinverse qr
        scaled_dot_product_attention svd svd_lowrank tensordot triangular_solve stft istft ctc_loss fold unfold
        sort argsort msort topk kthvalue median nanmedian quantile nanquantile mode unique unique_consecutive
        histogram histogramdd histc bincount bucketize searchsorted isin cumsum cumprod cummax cummin logcumsumexp
        cumulative_trapezoid adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d
        adaptive_max_pool2d adaptive_max_pool3d avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d
        fractional_max_pool2d fractional_max_pool3d max_unpool1d max_unpool2d max_unpool3d
        max_pool2d_with_indices_backward masked.median masked.cumsum masked.cumprod _segment_reduce
        linear_cross_entropy""",
    "binary": "addcdiv addcmul clamp lerp heaviside polar threshold prelu logaddexp2",
    "unary": """celu elu gelu glu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu relu6 rrelu
        selu silu softplus softshrink softsign tanhshrink to zero_ fill conj_physical resolve_conj resolve_neg real imag
        positive""",
}
_NAMES = {name: group for group, names in _BY_CLASS.items() for name in names.split()}


@dataclass(frozen=True)
class Variant:
    """``kind``: op, module, hop or custom; ``group``: one of CLASSES for an op, else its kind."""

    kind: str
    name: str
    group: str
    info: Any

    @property
    def key(self) -> str:
        return f"{self.kind}/{self.name}"


@functools.cache
def variants() -> dict[str, Variant]:
    """All of them, by key."""
    from torch.testing._internal import common_methods_invocations as invocations
    from torch.testing._internal.common_modules import module_db
    from torch.testing._internal.custom_op_db import custom_op_db
    from torch.testing._internal.hop_db import hop_db

    # Operators with random numbers seed themselves through it, which cannot be traced; here the caller seeds.
    invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    found: dict[str, Variant] = {}
    for kind, infos in (("op", invocations.op_db), ("hop", hop_db), ("custom", custom_op_db), ("module", module_db)):
        for info in infos:
            name = info.name if kind == "module" else ":".join(filter(None, (info.name, info.variant_test_name)))
            while f"{kind}/{name}" in found:  # some of the higher-order ones share a name
                name += "'"
            found[f"{kind}/{name}"] = Variant(kind, name, class_of(info) if kind == "op" else kind, info)
    return found


def class_of(info: Any) -> str:
    """The class of an operator, one of CLASSES."""
    short = info.name.removeprefix("torch.ops.aten.").removesuffix(".default").removeprefix("nn.functional.")
    if short in _NAMES:
        return _NAMES[short]
    if info.name.startswith("masked."):
        return "reduction"
    if info.name.startswith(("linalg.", "fft.", "signal.")) or "attention" in info.name or "_mm" in info.name:
        return "library"
    kind = type(info).__name__
    return {
        "UnaryUfuncInfo": "unary",
        "BinaryUfuncInfo": "binary",
        "ReductionOpInfo": "reduction",
        "ShapeFuncInfo": "view",
    }.get(kind, "other")


def dtype_for(info: Any, wanted: torch.dtype) -> torch.dtype | None:
    """``wanted``, or for float32 the first that the operator has on a CPU; None if it has none."""
    dtypes = info.dtypes if not hasattr(info, "supported_dtypes") else info.supported_dtypes("cpu")
    if wanted in dtypes:
        return wanted
    others = (torch.int64, torch.bool, torch.complex64, torch.float64) if wanted == torch.float32 else ()
    return next((dtype for dtype in others if dtype in dtypes), None)


def tenth() -> list[str]:
    """Keys of every tenth operator of each class, by name: the same ones in every run."""
    chosen: list[str] = []
    for group in CLASSES:
        members: Sequence[str] = sorted(key for key, one in variants().items() if one.group == group)
        chosen += members[5::10]
    return chosen
