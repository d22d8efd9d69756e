"""Inputs of a frame: which of their integers, floats, ranges and sizes become symbols, and which constants."""

from __future__ import annotations

from symshape.frontend.patches.inputs import (
    changed_sizes,
    declared_sizes,
    float_constants,
    float_numbers,
    integer_inputs,
    module_tensors,
)
from symshape.frontend.patches.patch import Patch, Scope
from symshape.frontend.patches.probes import Exists, Says, Takes
from symshape.frontend.patches.torch_names import AUTOGRAD, VARIABLES


def _is_plain(scope: Scope) -> bool:
    return scope.plain


ROWS: tuple[Patch, ...] = (
    Patch(
        "integers in inputs",
        ("frame",),
        ("torch._subclasses.fake_tensor.FakeTensorConverter.from_real_tensor",),
        integer_inputs.items_are_unbacked,
        "`item` of an integer input would be guarded, with recompiles for 0, 1 and each branch on it",
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
        (f"{VARIABLES}.lists.RangeVariable.__init__",),
        integer_inputs.ranges_are_constants,
        "the bounds of a range that is an input, or is passed on at a graph break, would become dynamic, which fails",
        (
            Takes(f"{VARIABLES}.lists.RangeVariable.__init__", "self, items, **kwargs"),
            Takes("torch._dynamo.utils.specialize_symnode", "arg"),
        ),
    ),
    Patch(
        "floats that are no arguments",
        ("frame",),
        ("torch._dynamo.variables.builder.VariableBuilder.wrap_symfloat",),
        float_constants.floats_are_constants,
        "a symbol for every `eps` of a module makes Dynamo trace the frame twice",
        (
            Takes("torch._dynamo.variables.builder.VariableBuilder.wrap_symfloat", "self, value"),
            Says("torch._dynamo.variables.builder.VariableBuilder.wrap_symfloat", "assume_static_by_default"),
            Exists("torch._dynamo.config.assume_static_by_default", "bool"),
            Takes("torch._dynamo.source.get_local_source_name", "source, only_allow_input"),
        ),
    ),
    Patch(
        "floats stay numbers",
        ("frame",),
        (f"{AUTOGRAD}.tensorify_python_scalars", "torch.fx.passes._tensorify_python_scalars.SUPPORTED_OPS"),
        float_numbers.floats_stay_numbers,
        "AOTAutograd makes constants of floats that are symbols, where it knows no operator that takes them as tensors",
        (
            Takes(f"{AUTOGRAD}.tensorify_python_scalars", "gm, shape_env, fake_mode"),
            Says(f"{AUTOGRAD}._apply_tensorify_python_scalars", "tensorify_python_scalars"),
            Exists("torch.fx.passes._tensorify_python_scalars.SUPPORTED_OPS", "dict"),
            Exists("torch.utils._sympy.symbol.SymT.FLOAT"),
            Exists("torch._dynamo.symbolic_convert.TensorifyState.force_specializations", "set"),
            Says("torch._dynamo.symbolic_convert.TensorifyState.should_specialize", "force_specializations"),
        ),
    ),
    Patch(
        "sizes of parameters and buffers",
        ("frame",),
        (f"{VARIABLES}.builder._automatic_dynamic",),
        module_tensors.changed_sizes_are_symbols,
        "a buffer that grows (a cache, a table of positions) and pruned parameters would have a graph for each size",
        (
            Takes(
                f"{VARIABLES}.builder._automatic_dynamic",
                "e, tx, source, static_shapes, outer_only, tensor_spec | e, tx, source, static_shapes, outer_only",
            ),
            Exists("torch._dynamo.config.automatic_dynamic_shapes", "bool"),
            Says("torch._dynamo.output_graph.OutputGraph.dump_guards_state", "local_scope"),
            Says("torch._dynamo.output_graph.OutputGraph.dump_guards_state", "global_scope"),
        ),
    ),
    Patch(
        "sizes of plain frames",
        ("frame",),
        (f"{VARIABLES}.builder._automatic_dynamic", f"{VARIABLES}.builder.VariableBuilder.wrap_symint"),
        changed_sizes.constant_sizes_are_kept,
        "each size that changes would be made a symbol by itself, with a graph for each",
        (
            Takes(
                f"{VARIABLES}.builder._automatic_dynamic",
                "e, tx, source, static_shapes, outer_only, tensor_spec | e, tx, source, static_shapes, outer_only",
            ),
            Takes(f"{VARIABLES}.builder.VariableBuilder.wrap_symint", "self, value, dynamism, context"),
            Exists("torch._dynamo.config.assume_static_by_default", "bool"),
            Exists("torch._dynamo.config.automatic_dynamic_shapes", "bool"),
        ),
        when=_is_plain,
    ),
    Patch(
        "declared sizes",
        ("frame",),
        (f"{VARIABLES}.builder._automatic_dynamic",),
        declared_sizes.declared_sizes,
        "PyTorch has no policies by name, and silently resolves marks that contradict one another",
        (
            Takes(
                f"{VARIABLES}.builder._automatic_dynamic",
                "e, tx, source, static_shapes, outer_only, tensor_spec | e, tx, source, static_shapes, outer_only",
            ),
            Says("torch._dynamo.mark_dynamic", "_dynamo_dynamic_indices"),
            Says("torch._dynamo.mark_static", "_dynamo_static_indices"),
            Says("torch._dynamo.decorators.mark_unbacked", "_dynamo_unbacked_indices"),
            Says("torch._dynamo.decorators.mark_unbacked", "_dynamo_strict_unbacked_indices"),
            Takes(f"{VARIABLES}.builder.is_dynamic_source", "source_name, dim | source_name"),
            Takes(f"{VARIABLES}.builder.is_unbacked_source", "source_name, dim | source_name"),
        ),
    ),
    Patch(
        "declared integers",
        ("frame",),
        (f"{VARIABLES}.builder.VariableBuilder._type_dispatch", "torch._dynamo.utils.is_int_specialization_case"),
        declared_sizes.declared_integers,
        "an integer that is not an argument would stay constant, and a function that counts be recompiled at each call",
        (
            Takes(f"{VARIABLES}.builder.VariableBuilder.wrap_literal", "self, value"),
            Takes(f"{VARIABLES}.builder.VariableBuilder.wrap_symint", "self, value, dynamism, context"),
            Takes(f"{VARIABLES}.builder.VariableBuilder.install_guards", "self, *guards"),
            Says(f"{VARIABLES}.builder.VariableBuilder.wrap_literal", "wrap_symint"),
            Takes(f"{VARIABLES}.builder.VariableBuilder._type_dispatch", ""),
            Says(f"{VARIABLES}.builder.VariableBuilder._wrap", "_type_dispatch"),
            Takes("torch._dynamo.utils.is_int_specialization_case", "value, source"),
            Exists("torch._dynamo.symbolic_convert.InstructionTranslator.current_tx"),
        ),
    ),
)
