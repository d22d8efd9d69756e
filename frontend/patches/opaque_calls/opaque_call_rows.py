"""Calls without a fake rule: opaque calls, graph breaks, and fake rules that are supplied or inferred."""

from __future__ import annotations

from symshape.frontend.patches.opaque_calls import dynamo_nodes, operator_rules
from symshape.frontend.patches.opaque_calls.error_texts import message_of_symbolic_sizes
from symshape.frontend.patches.patch import Patch, Versions
from symshape.frontend.patches.probes import Behaves, Exists, HasLocal, Says, Takes, added
from symshape.frontend.patches.torch_names import FUNCTIONAL, RULES, SIZES, TRANSLATOR, VARIABLES

ROWS: tuple[Patch, ...] = (
    Patch(
        "opaque calls",
        ("frame",),
        ("torch._dynamo.utils.run_node",),
        dynamo_nodes.opaque_calls,
        "a call that cannot be traced, because it asks for an unbacked size, becomes one operator",
        (
            Takes("torch._dynamo.utils.run_node", "tracer, node, args, kwargs, nnmodule"),
            Says("torch._dynamo.utils._get_fake_value_impl", "run_node"),
            HasLocal("torch.fx.interpreter.Interpreter.run_node", "n"),
            Says(f"{SIZES}.ShapeEnv._make_data_dependent_error", "Could not guard on"),
            Says(f"{SIZES}.ShapeEnv._make_data_dependent_error", " (unhinted"),
            Behaves("torch._C._to_dlpack", message_of_symbolic_sizes),
        ),
    ),
    Patch(
        "unbacked sizes in Dynamo",
        ("frame",),
        (f"{TRANSLATOR}.call_function", f"{VARIABLES}.builtin.BuiltinVariable.call_function"),
        dynamo_nodes.breaks_at_unbacked_sizes,
        "where Dynamo itself asks for an unbacked size it raises an error; the graph breaks instead",
        (
            Takes(f"{TRANSLATOR}.call_function", "self, fn, args, kwargs"),
            Takes(f"{VARIABLES}.builtin.BuiltinVariable.call_function", "self, tx, args, kwargs"),
            Exists("torch._dynamo.exc.Unsupported"),
            Exists(f"{VARIABLES}.base.AsPythonConstantNotImplementedError"),
        ),
    ),
    Patch(
        "missing fake rules",
        ("frame", "graph"),
        operator_rules.fake_rule_targets,
        operator_rules.missing_rules,
        "PyTorch has no fake rule for these operators",
        (
            Takes("torch._library.simple_registry.singleton.find", "qualname"),
            Takes(f"{RULES}.Kernel", "func, source"),
            Exists("torch._library.fake_impl.FakeImplHolder.kernel", "property"),
        ),
    ),
    Patch(
        "rules of custom operators",
        ("frame",),
        (f"{RULES}.can_generate_trivial_fake_impl", f"{RULES}.generate_trivial_fake_impl"),
        operator_rules.inferred_rules,
        "a custom operator of torch.library without a fake rule gets one that is inferred by running it",
        (
            Takes(f"{RULES}.can_generate_trivial_fake_impl", "op"),
            Takes(f"{RULES}.generate_trivial_fake_impl", "op, *args, **kwargs"),
            Takes(f"{RULES}.is_builtin", "op"),
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
        "a custom operator of torch.library without a fake rule gets one that is inferred by running it",
        (
            Exists("torch._subclasses.fake_tensor.op_implementations_checks", "list"),
            Takes(f"{RULES}.can_generate_trivial_fake_impl", "op"),
            Takes(f"{RULES}.is_builtin", "op"),
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
        "the tracer would take a user's kernel that is registered for all devices for a fake rule",
        (
            Takes("torch._subclasses.fake_tensor.has_meta", "func"),
            Says("torch._subclasses.fake_tensor.FakeTensorMode._dispatch_impl", "has_meta"),
        ),
    ),
    Patch(
        "gradients inside of kernels",
        ("graph", "jit"),
        (f"{FUNCTIONAL}.__torch_dispatch__",),
        operator_rules.gradients_inside_of_kernels,
        "below autograd the kernel of a user's operator without a formula is one call, without the gradient that eager "
        "mode finds inside",
        (
            Takes(f"{FUNCTIONAL}.__torch_dispatch__", "self, func, types, args, kwargs"),
            Exists("torch.library._impls", "set"),
            Exists("torch.library.Library.impl"),
        ),
    ),
)
