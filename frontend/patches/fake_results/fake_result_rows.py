"""Fake results that differ from eager mode's: types, layouts, memory, and zero tensors without memory."""

from __future__ import annotations

from symshape.frontend.patches import operator_kernels
from symshape.frontend.patches.fake_results import fake_results, zero_tensors
from symshape.frontend.patches.opaque_calls import operator_rules
from symshape.frontend.patches.patch import Patch
from symshape.frontend.patches.probes import Exists, Says, Takes, added
from symshape.frontend.patches.torch_names import FAKE_MODE, VIEWS

ROWS: tuple[Patch, ...] = (
    Patch(
        "writes into a part of a memory",
        ("frame", "graph"),
        (
            added(f"{VIEWS}.op_implementations_dict[aten.as_strided_scatter.default]"),
            f"{FAKE_MODE}._cached_dispatch_impl",
        ),
        operator_rules.writes_into_memory,
        "the tracer's rule for as_strided_scatter takes a tensor's elements for all of its storage",
        (
            Takes(f"{FAKE_MODE}._cached_dispatch_impl", "self, func, types, args, kwargs"),
            Takes(f"{FAKE_MODE}._dispatch_impl", "self, func, types, args, kwargs"),
            Exists(f"{VIEWS}.op_implementations_dict", "dict"),
            Exists("torch.ops.prims.as_strided_scatter.default", "OpOverload"),
            Says(f"{VIEWS}.dispatch_to_op_implementations_dict", "op_implementations_dict"),
        ),
    ),
    Patch(
        "layouts of paddings",
        ("frame", "graph"),
        (
            "torch._decomp.decomposition_table[aten.constant_pad_nd.default]",
            added(f"{VIEWS}.op_implementations_dict[aten.constant_pad_nd.default]"),
        ),
        operator_kernels.layouts_of_paddings,
        "the tracer assumes that an amount of padding that may be 0 is not, and so misses the layout of a clone;"
        " and it assumes that negative padding removes no more than there is",
        (
            Takes("torch._decomp.decomposition_table[aten.constant_pad_nd.default]", "input, pad, value, out"),
            Says(f"{VIEWS}.dispatch_to_op_implementations_dict", "op_implementations_dict"),
            Says(f"{FAKE_MODE}._dispatch_impl", "op_implementations_checks"),
        ),
    ),
    Patch(
        "types of results",
        ("frame", "graph"),
        operator_kernels.type_targets,
        operator_kernels.types_of_results,
        "type promotion of operands with and without dims differs between the tracer and eager mode",
        operator_kernels.TYPE_PROBES,
    ),
    Patch(
        "tangents that are zero",
        ("frame", "graph", "jit"),
        ("torch._ops.OpOverload._get_dispatch",),
        zero_tensors.zeros_of_any_size,
        "forward-mode differentiation uses zero tensors without memory, whose kernels in C++ make sizes constant",
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
        "cached fake results",
        ("frame", "graph"),
        ("torch._subclasses.fake_tensor.FakeTensorMode._cache_key",),
        fake_results.cache_entries_are_separated,
        "results of PyTorch's rules and of our rules for the same operator must not share entries of the cache",
        (
            Takes("torch._subclasses.fake_tensor.FakeTensorMode._cache_key", "self, state, func, args, kwargs"),
            Says("torch._subclasses.fake_tensor.FakeTensorMode._cached_dispatch_impl", "_cache_key"),
            Says("torch._subclasses.fake_tensor._DispatchCacheKey.__eq__", "key"),
            Says("torch._subclasses.fake_tensor._DispatchCacheKey.__hash__", "hashvalue"),
        ),
    ),
)
