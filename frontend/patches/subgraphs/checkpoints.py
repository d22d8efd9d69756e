"""Handles ``torch.utils.checkpoint`` where a graph would differ from eager mode.

- ``preserve_rng_state=False``: recomputation in backward draws new random numbers, and stops as soon as it has what it
  needs. A graph would reuse forward's numbers. If such a checkpoint draws, the graph breaks.
- What the body writes to an outside tensor (running statistics, a counter) is written again by recomputation. A graph
  would write once. The graph breaks there too, unless Dynamo is told to skip repeated effects
  (``skip_fwd_side_effects_in_bwd_under_checkpoint``).
- A float first read in a checkpoint (``math.pi``, an attribute) belongs to that checkpoint's graph, and Dynamo finds it
  there when the next checkpoint reads it: an AssertionError. In a body such a float becomes a guarded constant;
  likewise in the body of any operator that takes no floats, or may contain one (``cond``). A float first read in a
  user's ``autograd.Function`` is created outside of it and passed in.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch._dynamo import config
from torch._dynamo.guards import GuardBuilder
from torch._dynamo.output_graph import SubgraphTracer
from torch._dynamo.utils import set_example_value
from torch._dynamo.variables import ConstantVariable
from torch._dynamo.variables.builder import VariableBuilder
from torch._dynamo.variables.higher_order_ops import CheckpointHigherOrderVariable

from symshape.frontend.bridge.dynamo import unimplemented
from symshape.frontend.bridge.fake_tensors import is_fake, storage_of
from symshape.frontend.bridge.running_operators import observed_operators
from symshape.frontend.bridge.source_lines import traced_line_now
from symshape.frontend.opaque_calls.frame_decisions import log_broken_frame
from symshape.frontend.patches.patch import Changes


def breaks_where_recomputed(changes: Changes) -> None:
    """Breaks the graph at checkpoints that draw new numbers in backward, or write again."""
    changes.wrap(CheckpointHigherOrderVariable, "_call_function", _once)


def floats_belong_to_the_frame(changes: Changes) -> None:
    """Makes a float first read in the body of an operator a constant there, or creates it outside."""
    changes.wrap(VariableBuilder, "wrap_symfloat", _made_outside_of_bodies)


_HINT = "Set torch._dynamo.config.skip_fwd_side_effects_in_bwd_under_checkpoint, so that it does not."
# Names by which Dynamo says which operator a body is for.
_GIVEN_FLOATS = "autograd.Function"
_TAKES_FLOATS = (_GIVEN_FLOATS, "torch.utils.checkpoint.checkpoint")


def floats_are_recreated(changes: Changes) -> None:
    """Recomputes a float of the frame inside of a body whose operator takes no floats."""
    changes.wrap(SubgraphTracer, "lift_tracked_freevar_to_input", _made_again)


@functools.cache
def _made_again(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def lift(self: Any, proxy: Any) -> Any:
        node = proxy.node
        value = node.meta["example_value"]
        if not isinstance(value, torch.SymFloat) or node.op == "placeholder" or self.source_target in _TAKES_FLOATS:
            return original(self, proxy)
        made = _numbers(self)
        if node not in made:
            arguments = torch.fx.map_arg((node.args, node.kwargs), functools.partial(_proxy_of, proxy.tracer))
            again = self.create_proxy(node.op, node.target, *arguments)
            set_example_value(again.node, value)
            made[node] = again
        return made[node]

    return lift


def _proxy_of(tracer: Any, node: torch.fx.Node) -> Any:
    """The proxy of a node, one object per node: Dynamo compares operands of cond's bodies by identity."""
    made = _numbers(tracer)
    return made.setdefault(node, torch.fx.Proxy(node, tracer))


def _numbers(tracer: Any) -> dict[torch.fx.Node, torch.fx.Proxy]:
    made: dict[torch.fx.Node, torch.fx.Proxy] = vars(tracer).setdefault("symshape_numbers", {})
    return made


@functools.cache
def _once(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(variable: Any, tx: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        preserves = kwargs.get("preserve_rng_state")
        may_draw = preserves is None or not preserves.is_python_constant() or preserves.as_python_constant()
        wrap, bodies = type(variable).create_wrapped_node, []

        def create(*inner: Any, **named: Any) -> Any:
            made = wrap(variable, *inner, **named)
            bodies.append(made[4])
            return made

        outer = vars(variable).get("create_wrapped_node")  # of a checkpoint around this one, which is the same variable
        variable.create_wrapped_node = create
        try:
            result = original(variable, tx, args, kwargs)
        finally:
            del variable.create_wrapped_node
            if outer is not None:
                variable.create_wrapped_node = outer
        for draws, writes in map(_effects, bodies):
            if draws and not may_draw:
                _break("checkpoint with preserve_rng_state=False", "it draws new numbers in backward")
            if writes and not config.skip_fwd_side_effects_in_bwd_under_checkpoint:
                _break("checkpoint that writes to a tensor from outside", "backward writes again", _HINT)
        return result

    return call


def _break(what: str, reason: str, hint: str = "") -> NoReturn:
    """Breaks the graph. In a loop, Dynamo then runs the whole function in eager mode."""
    log_broken_frame(what, traced_line_now(), reason, hint)
    unimplemented(what, reason, None, hint)


def _effects(body: torch.fx.GraphModule) -> tuple[bool, bool]:
    """Runs a traced body on its fake inputs. Returns whether it draws random numbers, and whether it writes to its
    inputs and will be recomputed in backward."""
    fakes = [node.meta["example_value"] for node in body.graph.find_nodes(op="placeholder")]
    mode: Any = next((fake.fake_mode for fake in fakes if is_fake(fake)), None)
    if mode is None:
        return True, False
    with torch.no_grad(), mode.shape_env.ignore_fresh_unbacked_symbols(), mode, observed_operators() as seen:
        copies = [fake.clone() if is_fake(fake) else fake for fake in fakes]
        seen.written.clear()
        torch.fx.Interpreter(body).run(*copies)
    written = {storage_of(x) for x in copies if is_fake(x)} & {storage_of(x) for x in seen.written}
    needs_gradients = any(is_fake(fake) and fake.requires_grad for fake in fakes)
    return bool(seen.random), bool(written) and needs_gradients and torch.is_grad_enabled()


@functools.cache
def _made_outside_of_bodies(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrap(builder: Any, value: float) -> Any:
        output = builder.tx.output
        outermost, *bodies = output.tracers
        if not bodies or builder.name in output.unspec_variable_map:
            return original(builder, value)
        if any(body.source_target != _GIVEN_FLOATS for body in bodies):
            builder.install_guards(GuardBuilder.CONSTANT_MATCH)
            return ConstantVariable.create(value=value, source=builder.source)
        output.tracers.append(outermost)
        try:
            return original(builder, value)
        finally:
            output.tracers.pop()

    return wrap
