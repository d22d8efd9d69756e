"""Private PyTorch APIs."""

from __future__ import annotations

import functools
import glob
import linecache
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

import torch

from symshape.frontend.graph_rewrites.draw_order import draws, keep_draws
from symshape.frontend.graph_rewrites.saved_comparisons import save_what_is_compared
from symshape.runtime.torch_c import first_seen

__all__ = [
    "InputSizes",
    "add_guard",
    "aot_compile",
    "base_arguments",
    "code_of",
    "compiled_code",
    "are_guards_closed",
    "common_subexpressions",
    "deferred_runtime_asserts",
    "fake_mode_of",
    "global_hooks",
    "guard_counts",
    "has_unbacked_sizes",
    "input_sizes",
    "is_control_flow",
    "is_fake",
    "is_rest_of",
    "is_unbacked",
    "partition_after",
    "require_equal",
    "replacements",
    "shape_env_guards",
    "shape_env_of",
    "size_functions",
    "storage_of",
    "source_name",
    "symbol_hint",
    "symbol_range",
    "symbol_source",
    "symbol_sources",
    "traced_env_of",
    "user_frame",
]


def is_fake(value: Any) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(value, FakeTensor)


def storage_of(tensor: torch.Tensor) -> int:
    """The identity of a tensor's memory, while the tensor lives; fake tensors have one as well."""
    return int(tensor.untyped_storage()._cdata)


def symbol_hint(env: Any, symbol: Any) -> int | None:
    """The size first seen for a backed symbol (torch <= 2.11 calls the table ``var_to_val``)."""
    table = env.backed_var_to_val if hasattr(env, "backed_var_to_val") else env.var_to_val
    value = table.get(symbol)
    try:
        return None if value is None else int(value)
    except (TypeError, ValueError):
        return None


def place_of_symbol(path: Any) -> tuple[str, tuple[int, ...]]:
    """Where a node's result shows a new symbol: what of a tensor it is ("size", "stride"; "" for a number), and the
    positions on the way there."""
    kinds = [step.name for step in path if hasattr(step, "name")]
    return (kinds[0] if kinds else ""), tuple(step.idx for step in path if hasattr(step, "idx"))


def symbol_range(env: Any, symbol: Any) -> tuple[int | None, int | None]:
    """Inclusive bounds of a symbol; None where unbounded."""
    import sympy

    bounds = env.var_to_range.get(symbol)
    if bounds is None:
        return None, None

    def as_int(x: Any) -> int | None:
        return int(x) if isinstance(x, sympy.Integer) and abs(int(x)) < 2**62 else None

    return as_int(bounds.lower), as_int(bounds.upper)


def symbol_source(env: Any, symbol: Any) -> str:
    """The framework's name for where a symbol comes from, such as ``L['x'].size()[0]``; "" if unknown."""
    table = getattr(env, "var_to_sources", None) or getattr(env, "source_to_var", {})
    sources = table.get(symbol) or ()
    return next((source_name(source) for source in sources), "")


def symbol_sources(env: Any) -> dict[Any, list[str]]:
    """The framework's names for each backed symbol: several where sizes were equal at the first call."""
    return {symbol: [source_name(s) for s in sources] for symbol, sources in env.var_to_sources.items()}


def source_name(source: Any) -> str:
    """The framework's name of one source (a method in older versions)."""
    return source.name() if callable(source.name) else str(source.name)


def replacements(env: Any) -> list[tuple[Any, Any, tuple[str, int]]]:
    """Symbols that the ShapeEnv replaced: (symbol, by what, (file, line) of the first reason). Not data-dependent ones
    that a second trace gave another name."""
    reasons, renamed = env.replacements_slocs, env.unbacked_renamings
    found = [(s, env.replace(value), user_frame(reasons.get(s))) for s, value in env.replacements.items()]
    return [(s, value, place) for s, value, place in found if s not in renamed or value != env.replace(renamed[s])]


@dataclass(frozen=True)
class InputSizes:
    """Sizes of a tensor input; ``marked``: dims that the user marked dynamic; ``small``: those that could have been
    symbols but were 0 or 1 at the first call."""

    source: str
    sizes: tuple[Any, ...]
    marked: tuple[int, ...]
    small: tuple[int, ...]


def input_sizes(env: Any) -> list[InputSizes]:
    """Every tensor input that Dynamo traced with symbols."""
    found = []
    for tracked in env.tracked_fakes or ():
        context, tensor = tracked.symbolic_context, tracked.fake
        wanted = getattr(context, "constraint_sizes", None)
        if not isinstance(tensor, torch.Tensor) or wanted is None:
            continue
        sizes = tuple(tensor.size())
        marked = (d for d, one in enumerate(wanted) if one is not None and not one.warn_only)
        dynamic = (d for d, kind in enumerate(context.dynamic_sizes) if kind.name in ("DUCK", "DYNAMIC"))
        small = (d for d in dynamic if type(sizes[d]) is int and sizes[d] < 2)
        found.append(InputSizes(source_name(tracked.source), sizes, tuple(marked), tuple(small)))
    return found


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


def is_rest_of(code: CodeType, whole: CodeType) -> bool:
    """Whether it is what Dynamo made of the part of a function that follows a graph break."""
    from torch._dynamo.resume_execution import TORCH_DYNAMO_RESUME_IN_PREFIX

    resumed = code.co_name.startswith(f"{TORCH_DYNAMO_RESUME_IN_PREFIX}_{whole.co_name}_at_")
    return resumed and code.co_filename == whole.co_filename


_USER_LOCATION = re.compile(r"(.*?)\s*# (?!.*  # )(.+):(\d+) in \S+$")


def user_frame(sloc: Any) -> tuple[str, int]:
    """File and line of a guard's origin: the user's line where one exists, else the framework's. Where ``add_guard``
    was told the origin it is that, with line 0 if there is none in it."""
    match = _USER_LOCATION.match(str(getattr(sloc, "maybe_user_loc", None) or ""))
    if match:
        text, name, line = match.groups()
        return _whole_file_name(name, int(line), text), int(line)
    frame: Any = getattr(sloc, "framework_loc", None)
    if hasattr(frame, "filename"):
        return frame.filename, int(frame.lineno or 0)
    if isinstance(frame, str):
        file, _, number = frame.rpartition(":")
        return (file, int(number)) if number.isdigit() else (frame, 0)
    return "", 0


@functools.lru_cache(maxsize=1024)
def _whole_file_name(name: str, line: int, text: str) -> str:
    """The tracer shows a file without the folders that it shares with torch's own (where that is only the root: without
    its first letter as well). The line's text tells which file was meant."""
    shared = [str(folder / name) for folder in Path(torch.__file__).parents]
    for file in (*shared, *glob.glob("/?" + glob.escape(name))):
        if linecache.getline(file, line).strip() == text.strip():
            return file
    return name


def shape_env_guards(env: Any) -> list[tuple[Any, tuple[str, int]]]:
    """Every guard of a ShapeEnv as (sympy condition, (file, line))."""
    return [(guard.expr, user_frame(guard.sloc)) for guard in env.guards]


def deferred_runtime_asserts(env: Any) -> list[tuple[Any, str]]:
    """Every deferred runtime assertion as (sympy condition, message)."""
    table = env.deferred_runtime_asserts
    return [(item.expr, str(item.msg)) for items in table.values() for item in items]


def size_functions() -> dict[str, Any]:
    """PyTorch's sympy classes of the functions of sizes: those that its guards can be printed and solved with."""
    from torch.utils._sympy import functions

    return {"floordiv": functions.FloorDiv, "mod": functions.PythonMod, "max": functions.Max, "min": functions.Min}


def guard_counts(env: Any) -> tuple[int, ...]:
    """How much a ShapeEnv knows: guards, replaced symbols, deferred assertions."""
    if env is None:
        return ()
    return len(env.guards), len(env.replacements), len(deferred_runtime_asserts(env))


def are_guards_closed(env: Any) -> bool:
    """Whether Dynamo has written down the guards: later ones are ignored, with nothing but a log entry."""
    return bool(env.frozen)


def require_equal(env: Any, a: Any, b: Any, origin: str) -> bool:
    """Makes it a guard that two sizes are equal; False if at the first call they are not, or it is too late."""
    import sympy

    left, right = (x.node.expr if isinstance(x, torch.SymInt) else sympy.Integer(x) for x in (a, b))
    hints = [x if isinstance(x, int) else first_seen(x) for x in (a, b)]
    if None in hints or hints[0] != hints[1] or are_guards_closed(env):
        return False
    return add_guard(env, sympy.Eq(left, right), origin)


def add_guard(env: Any, relation: Any, origin: str) -> bool:
    """Adds a guard, which must hold for the sizes first seen. False if PyTorch does not take it.

    A condition that follows from other guards is none of its own.
    """
    before = len(env.guards)
    if env._suppress_guards_tls():
        return False
    if not env.evaluate_expr(relation):
        return False
    if len(env.guards) > before:
        guard = env.guards[-1]
        env.guards[-1] = type(guard)(guard.expr, type(guard.sloc)(origin, None), guard.size_oblivious)
    return True


def traced_env_of(gm: torch.fx.GraphModule) -> Any:
    """``shape_env_of`` for a graph of Dynamo's."""
    return shape_env_of(gm, "example_value")


def shape_env_of(gm: torch.fx.GraphModule, key: str = "val") -> Any:
    """The ShapeEnv behind a graph's fake values; None if all of its sizes are static."""
    for node in gm.graph.nodes:
        value = node.meta.get(key)
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(item, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                return item.node.shape_env
            if is_fake(item) and item.fake_mode.shape_env is not None:
                return item.fake_mode.shape_env
    return None


def fake_mode_of(gm: torch.fx.GraphModule) -> Any:
    """The mode under which a graph's values were traced; None if there are none."""
    for node in gm.graph.nodes:
        value = node.meta.get("val")
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if is_fake(item):
                return item.fake_mode
    return None


def common_subexpressions(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The same graph with repeated pure nodes merged. Strides are compared too: merged values keep their layout."""
    return torch.fx.GraphModule(gm, merged_nodes(gm.graph))


def merged_nodes(graph: torch.fx.Graph) -> torch.fx.Graph:
    """Nodes that read one value into data-dependent sizes of their own are kept: what follows is traced with both.
    So are those that draw random numbers, and those that differ in the sign of a zero alone, which Python takes for
    equal."""
    from torch._functorch.compile_utils import fx_graph_cse

    tag = "differs_by"
    for node in graph.nodes:
        text = _differences(node)
        if text:
            node.kwargs = {**node.kwargs, tag: text}
    found: torch.fx.Graph = fx_graph_cse(graph)
    for node in (*graph.nodes, *found.nodes):
        if tag in node.kwargs:
            node.kwargs = {name: value for name, value in node.kwargs.items() if name != tag}
    return found


def _differences(node: torch.fx.Node) -> str:
    """What tells a call from others that have equal arguments; "" if nothing does."""
    if node.op != "call_function":
        return ""
    symbols = sorted(map(str, node.meta.get("unbacked_bindings") or ()))
    numbers = [x for x in (*node.args, *node.kwargs.values()) if isinstance(x, float)]
    negative = any(x == 0 and math.copysign(1, x) < 0 for x in numbers)
    own = [node.name] if draws(node) else []
    return ",".join([*symbols, *own]) + (f" negative zeros: {numbers}" if negative else "")


def aot_compile(
    gm: torch.fx.GraphModule,
    example_inputs: list[Any],
    *,
    forward: Any,
    backward: Any,
    inference: Any,
    joint: Any,
    decompositions: dict[Any, Any],
) -> Any:
    """AOTAutograd with these decompositions. Backward is lowered at once: an exception there must surface, and
    what it requires of inputs must still reach the guards. ``joint`` rewrites forward and backward before they are
    split."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._dynamo.eval_frame import innermost_fn
    from torch._functorch import config

    compile_ = aot_autograd(
        fw_compiler=forward,
        bw_compiler=backward,
        inference_compiler=inference,
        decompositions=decompositions,
        partition_fn=partition_after(joint),
    )
    with config.patch(force_non_lazy_backward_lowering=True):
        return innermost_fn(compile_(gm, example_inputs))  # Dynamo itself keeps out of what a backend returns


def partition_after(rewrite: Callable[[torch.fx.GraphModule], torch.fx.GraphModule]) -> Callable[..., Any]:
    """Splits a joint graph into forward and backward, after ``rewrite``."""
    from torch._functorch import config
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    def partition(joint: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
        joint = rewrite(joint)
        joint.graph = merged_nodes(joint.graph)
        _save_what_reads_mutated_inputs(joint)
        save_what_is_compared(joint)
        keep_draws(joint)
        # Its own CSE merges more (``merged_nodes``); generators as arguments of graphs are for CUDA graphs.
        with config.patch(cse=False, graphsafe_rng_functionalization=False):
            return min_cut_rematerialization_partition(joint, *args, **kwargs)

    return partition


def is_unbacked(size: torch.SymInt) -> bool:
    """Whether a size is data-dependent."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return bool(free_unbacked_symbols(size))


def _save_what_reads_mutated_inputs(joint: torch.fx.GraphModule) -> None:
    """Backward does not compute again from an input that the caller's program writes to: autograd refuses to keep what
    is written to, and ``y = x * m.exp(); m.mul_(2)`` would be an error that eager mode has not."""
    from torch._functorch._aot_autograd.descriptors import InputMutationAOTOutput
    from torch.utils.checkpoint import CheckpointPolicy

    (output,) = joint.graph.find_nodes(op="output")
    written = {one.mutated_input for one in output.meta["desc"] if isinstance(one, InputMutationAOTOutput)}
    same = [node for node in joint.graph.find_nodes(op="placeholder") if node.meta.get("desc") in written]
    for node in same:  # and its views, which are added
        for user in node.users:
            if getattr(user.target, "is_view", False):
                same.append(user)
            elif isinstance(user.meta.get("val"), torch.Tensor):
                user.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def has_unbacked_sizes(tensor: torch.Tensor) -> bool:
    """Whether a size is data-dependent."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return bool(free_unbacked_symbols(tensor))


def is_control_flow(error: BaseException) -> bool:
    """Whether an error is Dynamo's own way to go on: to analyse the frame again, to break the graph, to skip it."""
    from torch._dynamo import exc

    return isinstance(error, exc.TorchDynamoException)


def base_arguments(gm: torch.fx.GraphModule) -> list[int]:
    """Positions of the inputs that AOTAutograd has put in the place of inputs that share memory."""
    from torch._functorch._aot_autograd.descriptors import SyntheticBaseAOTInput, ViewBaseAOTInput

    kinds = (SyntheticBaseAOTInput, ViewBaseAOTInput)
    placeholders = gm.graph.find_nodes(op="placeholder")
    return [i for i, node in enumerate(placeholders) if isinstance(node.meta.get("desc"), kinds)]


def global_hooks() -> list[Any]:
    """The tables of hooks that all modules have."""
    from torch.nn.modules import module

    names = (
        "_global_forward_hooks",
        "_global_forward_pre_hooks",
        "_global_backward_hooks",
        "_global_backward_pre_hooks",
    )
    return [getattr(module, name) for name in names]
