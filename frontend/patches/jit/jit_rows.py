"""`symshape.jit`: its trace, and the user's function that runs in the trace."""

from __future__ import annotations

from symshape.frontend.patches.jit import generators, jit_tangents, jit_texts, jit_tracing
from symshape.frontend.patches.patch import Patch, Versions
from symshape.frontend.patches.probes import Behaves, Exists, Says, Takes, added
from symshape.frontend.patches.python import condition_operators, packed_sequences
from symshape.frontend.patches.subgraphs import associative_scans
from symshape.frontend.patches.torch_names import (
    ASSOCIATIVE,
    AUTOGRAD,
    FUNCTIONAL_TENSOR,
    HIGHER_ORDER,
)

ROWS: tuple[Patch, ...] = (
    Patch(
        "associative scans without Dynamo",
        ("function",),
        (f"{ASSOCIATIVE}.generic_associative_scan",),
        associative_scans.one_operator_for_jit,
        "the generic mode would be traced as its recursion, with a graph for each length",
        (
            Takes(f"{HIGHER_ORDER}.utils._maybe_compile_and_run_fn", "fn, *args"),
            Takes("torch._functorch.apis.vmap", "func, in_dims, out_dims, randomness, chunk_size"),
        ),
    ),
    Patch(
        "Python scalars",
        ("jit",),
        (f"{AUTOGRAD}.tensorify_python_scalars",),
        jit_tracing.scalars_stay_numbers,
        "the pass handles floats that Dynamo made symbols, and assumes sizes that Dynamo made arguments",
        (
            Takes(f"{AUTOGRAD}.tensorify_python_scalars", "gm, shape_env, fake_mode"),
            Says(f"{AUTOGRAD}._apply_tensorify_python_scalars", "tensorify_python_scalars"),
        ),
    ),
    Patch(
        "unbacked sizes of tangents",
        ("jit",),
        ("torch._functorch._aot_autograd.graph_capture_wrappers.sym_eq",),
        jit_tangents.tangents_are_as_large_as_results,
        "a result has a size of its own in each trace, and backward could not read the one of the first",
        (
            Takes("torch._functorch._aot_autograd.graph_capture_wrappers.sym_eq", "x, y"),
            Says("torch._functorch._aot_autograd.graph_capture_wrappers.create_joint", "sym_eq"),
            Takes("torch.fx.experimental.symbolic_shapes.ShapeEnv._rename_unbacked_to", "self, orig_s, new_s"),
        ),
    ),
    Patch(
        "compiled functions",
        ("jit",),
        ("torch._dynamo.eval_frame._callback_from_stance",),
        jit_tracing.compiled_functions_are_inlined,
        "a function compiled by torch.compile must become part of the trace",
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
        "it turns a traced tensor into another class that the tracer does not see, without consulting torch modes",
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
        "the user's function may ask whether it is being compiled",
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
        "nested_tensor_from_jagged rejects every trace, as if none called operators",
        (
            Takes("torch.fx._symbolic_trace.is_fx_tracing", ""),
            Says("torch.nested.nested_tensor_from_jagged", "is_fx_tracing"),
        ),
    ),
    Patch(
        "layers that read data",
        ("function",),
        ("torch.nn.modules.transformer._detect_is_causal_mask", "torch.nn.modules.rnn.RNNBase.check_forward_args"),
        jit_tracing.layers_read_no_data,
        "whether a mask is causal, and how many rows were packed, is data-dependent",
        (
            Takes("torch.nn.modules.transformer._detect_is_causal_mask", "mask, is_causal, size"),
            Takes("torch.nn.modules.rnn.RNNBase.check_forward_args", "self, input, hidden, batch_sizes"),
            Takes("torch.nn.modules.rnn.RNNBase.check_input", "self, input, batch_sizes"),
        ),
    ),
    Patch(
        "total_length of packed rows",
        ("function",),
        (packed_sequences.PADDING,),
        packed_sequences.lengths_are_asserted,
        "pad_packed_sequence asks whether the longest row fits, which is data-dependent",
        (
            Takes("torch.nn.utils.rnn.pad_packed_sequence", "sequence, batch_first, padding_value, total_length"),
            Says("torch.nn.utils.rnn.pad_packed_sequence", "unsorted_indices"),
        ),
    ),
    Patch(
        "count of frames",
        ("function",),
        ("torch._dynamo.eval_frame.set_fullgraph_compiled_frame_count",),
        jit_tracing.frames_are_not_counted,
        "a function compiled with fullgraph=True inside of the trace would report that nothing was compiled",
        (Exists("torch._dynamo.eval_frame.set_fullgraph_compiled_frame_count", "builtin_function_or_method"),),
        versions=Versions(first="2.12"),  # before, Dynamo counts none
    ),
    Patch(
        "generators in graphs",
        ("jit",),
        ("torch.fx._symbolic_trace.is_opaque_type", "torch.fx._symbolic_trace.is_opaque_reference_type"),
        jit_tracing.generators_are_attributes,
        "the tracer does not accept a generator as an argument of a random operator",
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
        "torch.manual_seed, g.manual_seed and similar calls would run once, during the trace",
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
        "a generator created by the function would be created once, during the trace",
        (Exists("torch.Generator.device"),),
    ),
    Patch(
        "texts of traced values",
        ("function",),
        (
            *(f"{kind}.__repr__" for kind in jit_texts.NAMES),
            *(added(f"{kind}.__format__") for kind in jit_texts.NAMES),
            f"{FUNCTIONAL_TENSOR}.__repr__",
            added(f"{FUNCTIONAL_TENSOR}.__format__"),
        ),
        jit_texts.texts_are_of_numbers,
        "the text of a size would be that of its symbol, and that of a tensor would say nothing of its elements",
        (
            *(Takes(f"{kind}.__repr__", "self") for kind in jit_texts.NAMES),
            Takes(f"{FUNCTIONAL_TENSOR}.__repr__", "self, tensor_contents"),
        ),
    ),
    Patch(
        "conditions as integers",
        ("function",),
        tuple(added(f"torch.SymBool.{name}") for name in ("__index__", "__float__", "__round__")),
        condition_operators.conditions_are_integers,
        "a bool is an integer, a SymBool is none: `[1, 2][x.shape[0] > 2]`",
        (Exists("torch.SymBool.__bool__"),),
    ),
    Patch(
        "divmod of sizes",
        ("function",),
        tuple(added(f"{kind}.{name}") for kind in jit_texts.NAMES for name in ("__divmod__", "__rdivmod__")),
        jit_texts.sizes_have_divmod,
        "symbolic numbers have `//` and `%` only",
        tuple(Exists(f"torch.SymInt.{name}") for name in ("__floordiv__", "__mod__", "__rmod__")),
    ),
)
