"""How PyTorch traces sizes that are in the data, and what changes it."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import sympy
import torch
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from symshape.frontend.bridge.shape_env import symbol_hint


def never_one(size: Any) -> bool:
    """Whether a size is known not to be 1; nothing is assumed of a data-dependent one."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return size != 1 if type(size) is int else statically_known_true(size != 1)


def known_equal(a: Any, b: Any) -> bool:
    """Whether two sizes are known to be equal."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return a is b or statically_known_true(a == b)


def assert_equal(a: Any, b: Any) -> bool:
    """The tracer takes one size for the other from now on; False if it cannot."""
    torch._check(a == b)  # type: ignore[no-untyped-call]
    return known_equal(a, b)


def either(*conditions: Any) -> Any:
    """A condition on sizes that holds where one of these does; none of them has to be known."""
    from torch.fx.experimental.symbolic_shapes import sym_or

    return sym_or(*conditions)


def asks_for_sizes(error: BaseException | None) -> bool:
    """Whether an error of a trace says that it had to know a size that is in the data, or that there is no rule for
    what an operator returns."""
    return _question(error) is not None


def what_was_asked(error: BaseException) -> str:
    """The question about sizes, in the tracer's words."""
    text = str(_question(error) or error).partition("\n")[0]
    return text.partition(" (unhinted")[0].replace("Could not guard on", "not known:")


def _question(error: BaseException | None) -> BaseException | None:
    from torch._subclasses.fake_tensor import DynamicOutputShapeException, UnsupportedOperatorException
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    seen: set[int] = set()
    found = None
    while error is not None and id(error) not in seen:
        if isinstance(error, (GuardOnDataDependentSymNode, DynamicOutputShapeException, UnsupportedOperatorException)):
            return error
        if "with symbolic sizes/strides" in str(error):
            found = error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return found


def expression(size: Any, values: Mapping[Any, int]) -> int:
    """A traced size for these values of its symbols."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    return int(size.node.expr.xreplace({symbol: sympy.Integer(value) for symbol, value in values.items()}))


def first_seen_sizes(sizes: Sequence[Any]) -> tuple[dict[Any, int], list[Any]]:
    """Of the symbols in some sizes: what those of inputs were at the first call, and those that are in the data."""
    fixed: dict[Any, int] = {}
    unknown: dict[Any, None] = {}
    for size in sizes:
        for symbol in sorted(size.node.expr.free_symbols, key=str) if isinstance(size, torch.SymInt) else ():
            hint = symbol_hint(size.node.shape_env, symbol)
            if hint is None:
                unknown[symbol] = None
            else:
                fixed[symbol] = hint
    return fixed, list(unknown)


@contextlib.contextmanager
def without_modes() -> Iterator[None]:
    """While entered, operators run as they are: nothing is traced, nothing is fake, no rule in Python is asked."""
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes(), torch._C._DisablePythonDispatcher():
        yield


class _Run(TorchDispatchMode):  # type: ignore[no-untyped-call]
    random = False
    sizes_of_values = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.random = self.random or torch.Tag.nondeterministic_seeded in func.tags
        self.sizes_of_values = self.sizes_of_values or torch.Tag.dynamic_output_shape in func.tags
        return func(*args, **(kwargs or {}))


def what_is_run() -> Any:
    """A context that sees what operators do: whether random numbers are drawn (``random``), and whether sizes of
    results are in the data (``sizes_of_values``)."""
    made: Any = _Run
    return made()


def sizes_at_hand(graph: Any) -> dict[Any, int]:
    """What sizes of inputs that are traced as unknown are at this call, by symbol."""
    found: dict[Any, int] = {}
    for node in graph.graph.nodes if graph is not None else ():
        example = getattr(node.meta.get("grapharg"), "example", None) if node.op == "placeholder" else None
        fake = node.meta.get("example_value")
        if isinstance(example, torch.Tensor) and isinstance(fake, torch.Tensor) and example.dim() == fake.dim():
            for size, real in zip(fake.shape, example.shape):
                if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                    found[size.node.expr] = int(real)
    return found


_FAKE_LOG = logging.getLogger("torch._subclasses.fake_tensor")


def _unless_error(record: logging.LogRecord) -> bool:
    return record.levelno < logging.ERROR


@contextlib.contextmanager
def forgetting_new_sizes(env: Any) -> Iterator[Callable[[Any], None]]:
    """After an error in here, unknown sizes that were made and lost are forgotten.

    Yields what is told the result of a call: other sizes that were made on the way are lost as well. (A view of a
    tensor that was written to is made twice, once for its gradient.)
    """
    pending = env.pending_fresh_unbacked_symbols
    before = len(pending)
    _FAKE_LOG.addFilter(_unless_error)  # the error is raised as well

    def keep_those_of(result: Any) -> None:
        from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

        kinds = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)
        found = (free_unbacked_symbols(x) for x in pytree.tree_leaves(result) if isinstance(x, kinds))
        kept: set[Any] = set().union(*found)
        pending[before:] = [symbol for symbol in pending[before:] if symbol in kept]

    try:
        yield keep_those_of
    except Exception:
        del pending[before:]
        raise
    finally:
        _FAKE_LOG.removeFilter(_unless_error)


def unknown_size(env: Any) -> Any:
    """A new size that nobody knows."""
    from torch.fx.experimental.symbolic_shapes import _constrain_range_for_size

    size = env.create_unbacked_symint()
    _constrain_range_for_size(size)
    return size


def failing_node(error: BaseException) -> torch.fx.Node | None:
    """The node of a graph that was being run when an error was raised, the innermost one with a value from Dynamo."""
    found = None
    seen: set[int] = set()
    step: BaseException | None = error
    while step is not None and id(step) not in seen:
        seen.add(id(step))
        for frame, _ in traceback.walk_tb(step.__traceback__):
            node = frame.f_locals.get("n") if frame.f_code.co_name == "run_node" else None
            if isinstance(node, torch.fx.Node) and "example_value" in node.meta:
                found = node
        step = step.__cause__ or step.__context__
    return found


def unimplemented(what: str, reason: str, error: Exception | None, hint: str = "") -> NoReturn:
    """Dynamo's way of saying that a call is not for the graph. ``hint``: what the user may do."""
    from torch._dynamo import exc

    cause: Any = {} if error is None else {"from_exc": error}
    exc.unimplemented(
        gb_type="Data-dependent call",
        context=what,
        explanation=f"{what} cannot be compiled: {reason}",
        hints=[hint] if hint else [],
        **cause,
    )
