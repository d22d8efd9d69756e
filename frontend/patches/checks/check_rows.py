"""Checks and their messages, and errors while tracing."""

from __future__ import annotations

from symshape.frontend.patches.checks import assert_messages, pytorch_rules, repro_files, torch_checks
from symshape.frontend.patches.fake_results import fake_results
from symshape.frontend.patches.patch import Patch, Versions
from symshape.frontend.patches.probes import Exists, HasLocal, Says, Takes
from symshape.frontend.patches.torch_names import DEBUG, IN_GRAPH, OUTPUT

ROWS: tuple[Patch, ...] = (
    Patch(
        "messages of checks",
        ("frame",),
        torch_checks.targets(torch_checks.CHECK),
        torch_checks.messages_show_sizes,
        "a message of torch._check that contains sizes would break the graph",
        (*torch_checks.probes(torch_checks.CHECK), *torch_checks.MESSAGE_PROBES),
        issue="pytorch/pytorch#163668",
    ),
    Patch(
        "messages of checks that raise other errors",
        ("frame",),
        torch_checks.targets(torch_checks.OTHER_CHECKS),
        torch_checks.messages_of_others_show_sizes,
        "a message of torch._check_value and similar functions that contains sizes would break the graph",
        (*torch_checks.probes(torch_checks.OTHER_CHECKS), *torch_checks.MESSAGE_PROBES),
        issue="pytorch/pytorch#181552",
        versions=Versions(first="2.13"),  # before, Dynamo traces them as calls like any other
    ),
    Patch(
        "messages of asserts (before 2.13)",
        ("frame",),
        (f"{OUTPUT}.insert_deferred_runtime_asserts",),
        assert_messages.asserts_keep_messages,
        "the assertion that is inserted for a torch._check decided at call time lacks the check's message",
        (
            Takes(f"{OUTPUT}.insert_deferred_runtime_asserts", "gm, shape_env, name, export"),
            Says("torch.fx.passes.runtime_assert.insert_deferred_runtime_asserts", assert_messages.OWN_TEXT),
            Says(f"{IN_GRAPH}._get_handlers", "_check_message"),
        ),
        versions=Versions(last="2.12"),
    ),
    Patch(
        "failed checks",
        ("frame",),
        ("torch._dynamo.utils.run_node",),
        torch_checks.failed_checks_are_constraints,
        "a torch._check that fails during tracing must raise a ShapeConstraintError",
        (
            Takes("torch._dynamo.utils.run_node", "tracer, node, args, kwargs, nnmodule"),
            Says("torch._check_with", "Expected cond to be True"),
            HasLocal("torch._check_with", "cond"),
            HasLocal("torch._check_with", "message"),
        ),
        issue="pytorch/pytorch#129327",
    ),
    Patch(
        "logged errors of tracing",
        ("frame",),
        fake_results.filter_targets,
        fake_results.errors_are_only_raised,
        "errors that are caught, after which the operator becomes an opaque call, would be logged to the user",
        (Says("torch._subclasses.fake_tensor.FakeTensorMode._dispatch_impl", "failed while attempting to run meta"),),
    ),
    Patch(
        "frames that our rules fail for",
        ("plain",),
        ("torch._dynamo.convert_frame.trace_frame",),
        pytorch_rules.frames_choose_their_rules,
        "with plain torch.compile an error of our rules would be the user's; the frame is traced again by PyTorch's",
        (
            Takes(
                "torch._dynamo.convert_frame.trace_frame",
                "code, globals, locals, builtins, closure, compiler_fn, tf_mode_stack, one_graph, speculation_log,"
                " instructions, code_options, export, export_constraints, frame_state, distributed_state, package",
            ),
            Says("torch._dynamo.convert_frame.compile_frame", "trace_frame"),
            *(
                HasLocal("torch._dynamo.convert_frame._compile", name)
                for name in ("code", "compiler_fn", "globals", "locals", "one_graph")
            ),
            Says("torch._dynamo.convert_frame._compile", "install_callbacks"),
            Says("torch._dynamo.convert_frame._compile", "stack"),
            Says("torch._dynamo.convert_frame.compile_frame", "RestartAnalysis"),
            Exists("torch._dynamo.callback.callback_handler.start_callbacks"),
            Says("torch._dynamo.callback.CompilationCallbackHandler.clear", "start_callbacks"),
            Exists("torch._TorchCompileWrapper"),
        ),
    ),
    Patch(
        "files of failures",
        ("frame",),
        (f"{DEBUG}.__call__",),
        repro_files.backends_are_called,
        "PyTorch's minifier makes all sizes constant, and fails itself if an integer is a symbol",
        (
            Takes(f"{DEBUG}.__call__", "self, gm, example_inputs, **kwargs"),
            Says(f"{DEBUG}.__call__", "_torchdynamo_orig_backend"),
        ),
        when=repro_files.where_failures_are_written,
    ),
)
