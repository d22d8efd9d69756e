"""Reads the frame and the graph that Dynamo is compiling."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from types import CodeType
from typing import Any, NoReturn

import torch
from torch._dynamo.convert_frame import compile_lock as compile_lock  # one lock for all that change settings
from torch.fx._lazy_graph_module import _LazyGraphModule

from symshape.frontend.bridge.fake_tensors import is_fake


def code_of(fn: Any) -> CodeType | None:
    """The code of the frame that Dynamo sees when ``fn``, a function or a module, is called; None where that is one of
    PyTorch's own."""
    from torch._dynamo import trace_rules
    from torch._dynamo.eval_frame import innermost_fn

    called = fn.forward if isinstance(fn, torch.nn.Module) else fn
    called = innermost_fn(called) if callable(called) else called
    code = getattr(getattr(called, "__func__", called), "__code__", None)
    return code if isinstance(code, CodeType) and not trace_rules.check(called) else None


def compiled_code() -> CodeType | None:
    """The code of the frame whose graph is being compiled."""
    traced = torch._guards.TracingContext.get_traced_code() if torch._guards.TracingContext.try_get() else None
    return traced[0] if traced else None


def name_of_code(code: CodeType) -> str:
    """The name of a function; for a resume function of Dynamo's, with the line where it starts."""
    from torch._dynamo.resume_execution import TORCH_DYNAMO_RESUME_IN_PREFIX

    if not code.co_name.startswith(TORCH_DYNAMO_RESUME_IN_PREFIX):
        return code.co_qualname
    name, _, line = code.co_name.removeprefix(f"{TORCH_DYNAMO_RESUME_IN_PREFIX}_").rpartition("_at_")
    return f"{name}, from line {line} on"


def is_part(code: CodeType) -> bool:
    """Whether Dynamo made it as a part of a function: the code after a graph break, or a comprehension."""
    from torch._dynamo.resume_execution import TORCH_DYNAMO_RESUME_IN_PREFIX

    comprehensions = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
    return code.co_name.startswith(TORCH_DYNAMO_RESUME_IN_PREFIX) or code.co_name in comprehensions


def is_rest_of(code: CodeType, whole: CodeType) -> bool:
    """Whether ``code`` is a resume function: the part of ``whole`` that follows a graph break."""
    from torch._dynamo.resume_execution import TORCH_DYNAMO_RESUME_IN_PREFIX

    resumed = code.co_name.startswith(f"{TORCH_DYNAMO_RESUME_IN_PREFIX}_{whole.co_name}_at_")
    return resumed and code.co_filename == whole.co_filename


def is_control_flow(error: BaseException) -> bool:
    """Whether an error is Dynamo's own way to go on: to analyse the frame again, to break the graph, to skip it."""
    from torch._dynamo import exc

    return isinstance(error, exc.TorchDynamoException)


def shape_env_of_output(graph: Any) -> Any:
    """The ShapeEnv of the graph that Dynamo writes (``OutputGraph``); None for another tracer."""
    return getattr(graph, "shape_env", None)


def is_in_try(output: Any) -> bool:
    """Whether what is traced is in a ``try`` or ``with`` statement, which may catch an error."""
    translator = output.current_tx
    while translator is not None and translator.current_instruction.exn_tab_entry is None:
        translator = getattr(translator, "parent", None)
    return translator is not None


def is_number_of_random(node: torch.fx.Node) -> bool:
    """Whether a placeholder of a Dynamo graph is what ``random.random()`` or its like returned."""
    return type(getattr(node, "_dynamo_source", None)).__name__ == "RandomValueSource"


def takes_fake_tensors(gm: torch.fx.GraphModule) -> bool:
    """Whether a Dynamo graph was traced for a call with tensors without memory. Their dispatch keys are guarded: calls
    with other tensors never reach it."""
    return any(is_fake(_given(node)) for node in gm.graph.find_nodes(op="placeholder"))


def in_eager_mode(gm: torch.fx.GraphModule) -> Callable[..., Any]:
    """A function that runs Dynamo's graph operator by operator. The graph's own call prints a program's error before it
    raises it."""

    def run(*args: Any) -> Any:
        _LazyGraphModule.force_recompile(gm)
        return gm.forward(*args)

    return run


def _given(placeholder: torch.fx.Node) -> Any:
    """The value of a graph's argument at this call."""
    return getattr(placeholder.meta.get("grapharg"), "example", None)


def hints_of_sizes(graph: Any) -> dict[Any, int]:
    """The values at this call of inputs' sizes that are symbols in the trace, by symbol."""
    found: dict[Any, int] = {}
    for node in graph.graph.nodes if graph is not None else ():
        example = _given(node) if node.op == "placeholder" else None
        fake = node.meta.get("example_value")
        if isinstance(example, torch.Tensor) and isinstance(fake, torch.Tensor) and example.dim() == fake.dim():
            for size, real in zip(fake.shape, example.shape):
                if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                    found[size.node.expr] = int(real)
    return found


def unimplemented(what: str, reason: str, error: Exception | None, hint: str = "") -> NoReturn:
    """Raises Dynamo's exception for a graph break. ``hint``: what the user can do."""
    from torch._dynamo import exc

    cause: Any = {} if error is None else {"from_exc": error}
    exc.unimplemented(
        gb_type="Data-dependent call",
        context=what,
        explanation=f"{what} cannot be compiled: {reason}",
        hints=[hint] if hint else [],
        **cause,
    )


@functools.cache
def output_code_log() -> logging.Logger:
    """The logger of TORCH_LOGS="output_code". A child of one of PyTorch's loggers, which TORCH_LOGS gives handlers."""
    found: logging.Logger = torch._logging.getArtifactLogger("torch._inductor.symshape", "output_code")
    return found
