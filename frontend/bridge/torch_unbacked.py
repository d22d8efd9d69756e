"""How PyTorch traces sizes that are in the data, and what changes it.

One of the files that touch private PyTorch APIs (``torch_private``).
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import sympy
import torch
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from symshape.frontend.bridge.shape_env import symbol_hint
from symshape.frontend.bridge.symbolic_sizes import is_unbacked


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


def items_are_unbacked() -> Callable[[], None]:
    """``item`` of an integer input is a data-dependent size, as that of any other tensor. Returns what puts the usual
    rule back: a symbol with guards on the element, which are compiled anew for 0, for 1 and for what is branched on."""
    from torch._subclasses.fake_tensor import FakeTensorConverter

    usual: Any = FakeTensorConverter.from_real_tensor
    converter: Any = FakeTensorConverter
    converter.from_real_tensor = _without_item(usual)

    def revert() -> None:
        converter.from_real_tensor = usual

    return revert


@functools.cache
def _without_item(usual: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(usual)
    def from_real_tensor(self: Any, fake_mode: Any, t: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        fake = usual(self, fake_mode, t, *args, **kwargs)
        if fake.dtype == torch.int64 and fake.dim() == 0 and isinstance(fake.item_memo, torch.SymInt):
            if not is_unbacked(fake.item_memo):
                fake.item_memo = None
        return fake

    return from_real_tensor


def small_sizes_are_traced() -> Callable[[], None]:
    """Two mistakes of the tracer about tensors that may be empty. Returns what puts the usual ways back.

    A new size that is at most 0 or 1 can not take the place of one that was thought to be more: its bound is then 2,
    as that of the other one stays. And ``a * b == c * b`` says that ``a == c`` only where b is not 0.
    """
    from torch.fx.experimental import symbolic_shapes

    module: Any = symbolic_shapes
    solve, environment = module.try_solve, module.ShapeEnv
    bound = environment._constrain_range_for_size

    @functools.wraps(bound)
    def at_most_two(self: Any, a: Any, min: int | None = None, max: int | None = None) -> Any:
        return bound(self, a, min, max if max is None or max >= 2 else 2)

    @functools.wraps(solve)
    def try_solve(relation: Any, symbol: Any, *args: Any, **kwargs: Any) -> Any:
        return None if _divides_by_zero(relation, symbol) else solve(relation, symbol, *args, **kwargs)

    def revert() -> None:
        module.try_solve = solve
        environment._constrain_range_for_size = bound

    module.try_solve = try_solve
    environment._constrain_range_for_size = at_most_two
    return revert


def _divides_by_zero(relation: Any, symbol: Any) -> bool:
    """Whether an equation has a term in which a symbol stands beside a factor that may be 0."""
    terms = [term for side in relation.args for term in sympy.Add.make_args(side) if term.has(symbol)]
    factors = [factor for term in terms for factor in sympy.Mul.make_args(term) if not factor.has(symbol)]
    return not all(factor.is_nonzero for factor in factors)


def either(*conditions: Any) -> Any:
    """A condition on sizes that holds where one of these does; none of them has to be known."""
    from torch.fx.experimental.symbolic_shapes import sym_or

    return sym_or(*conditions)


def broadcast_rules() -> list[tuple[Any, str, Any]]:
    """The tracer's rules of broadcasting: (module, name in it, function)."""
    from torch import _meta_registrations, _refs
    from torch._refs import _conversions
    from torch._subclasses import fake_impls

    places = [(module, "_broadcast_shapes") for module in (_refs, _meta_registrations, _conversions)]
    places += [(module, "_maybe_broadcast") for module in (_refs, _meta_registrations)]
    return [(m, name, getattr(m, name)) for m, name in (*places, (fake_impls, "infer_size"))]


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


def with_breaks_at_questions() -> Callable[[], None]:
    """Where Dynamo itself asks for a size that is in the data (``tolist``), it breaks the graph, as it does for other
    things that it cannot trace. Returns what puts the usual way back, an error."""
    from torch._dynamo.exc import Unsupported
    from torch._dynamo.symbolic_convert import InstructionTranslatorBase

    translator: Any = InstructionTranslatorBase
    usual = translator.call_function

    @functools.wraps(usual)
    def call_function(self: Any, fn: Any, args: Any, kwargs: Any) -> Any:
        try:
            return usual(self, fn, args, kwargs)
        except Unsupported:
            raise
        except Exception as error:
            if _question(error) is None:
                raise
            unimplemented(str(fn), what_was_asked(error), error)

    def revert() -> None:
        translator.call_function = usual

    translator.call_function = call_function
    return revert


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


def with_node_runner(wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[[], None]:
    """What ``wrap`` makes of the function that Dynamo runs a node with: (graph, node, args, kwargs, module) -> result.
    Returns what puts the usual one back."""
    from torch._dynamo import utils

    usual = utils.run_node
    utils.run_node = wrap(usual)

    def revert() -> None:
        utils.run_node = usual

    return revert


def checks_of_layers_at_call_time() -> Callable[[], None]:
    """A normalisation of a single value is an error in training: asserted, where the tracer would have to know. Returns
    what puts the usual checks back."""
    import torch.nn.functional as functional

    module: Any = functional
    usual = {name: getattr(module, name) for name in ("_verify_batch_size", "_verify_spatial_size")}

    def assert_more_than_one(size: Sequence[Any], first: int) -> None:
        total: Any = 1 if first else size[0]
        for one in size[2:]:
            total = total * one
        check: Any = torch._check_value
        check(total != 1, lambda: f"Expected more than 1 value to normalise, got input size {size}")

    def wrapped(name: str, first: int) -> Callable[..., None]:
        def check(size: Sequence[Any]) -> None:
            if any(isinstance(one, torch.SymInt) and is_unbacked(one) for one in size):
                assert_more_than_one(size, first)
            else:
                usual[name](size)

        return check

    module._verify_batch_size = wrapped("_verify_batch_size", 0)
    module._verify_spatial_size = wrapped("_verify_spatial_size", 1)

    def revert() -> None:
        for name, function in usual.items():
            setattr(module, name, function)

    return revert


def masks_are_not_looked_at() -> Callable[[], None]:
    """Transformers compare a mask with a causal one, for a hint to attention that may be left out: whether it is one
    would be in the data. Returns what puts the comparison back."""
    from torch._dynamo.variables import ConstantVariable, UserFunctionVariable
    from torch.nn.modules.transformer import _detect_is_causal_mask

    function: Any = UserFunctionVariable
    usual = function.call_function

    @functools.wraps(usual)
    def call_function(self: Any, tx: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        said = (*args[1:2], *(value for name, value in kwargs.items() if name == "is_causal"))
        if self.fn is not _detect_is_causal_mask or any(not value.is_constant_none() for value in said):
            return usual(self, tx, args, kwargs)
        return ConstantVariable.create(False)

    def revert() -> None:
        function.call_function = usual

    function.call_function = call_function
    return revert


def class_counts_are_traced() -> Callable[[], None]:
    """``one_hot`` without a number of classes is a call like others. Returns what puts the usual way back, a break."""
    from torch._dynamo.variables.torch import TorchInGraphFunctionVariable

    handlers: Any = TorchInGraphFunctionVariable._get_handlers()
    usual = handlers.pop(torch.nn.functional.one_hot, None)

    def revert() -> None:
        if usual is not None:
            handlers[torch.nn.functional.one_hot] = usual

    return revert


def results_of_branches_are_merged() -> Callable[[], None]:
    """What the two branches of a ``cond`` return is merged without asking whether a stride is 1, where both results are
    contiguous: the result is. Returns what puts the usual rule back, which compares strides."""
    module: Any = importlib.import_module("torch._higher_order_ops.cond")  # as an attribute it is the function
    usual = module._merge_output

    def merged(a: Any, b: Any, mode: Any) -> Any:
        both = isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.dim() == b.dim() and a.dim() > 0
        if not both or not (_is_packed(a) and _is_packed(b)):
            return usual(a, b, mode)
        with mode:  # each size by the usual rule
            sizes = [usual(a.new_empty((m,)), b.new_empty((n,)), mode).size(0) for m, n in zip(a.size(), b.size())]
            return a.new_empty(sizes)

    module._merge_output = merged

    def revert() -> None:
        module._merge_output = usual

    return revert


def _is_packed(tensor: torch.Tensor) -> bool:
    """Whether the strides are those of a new tensor of the same sizes, as expressions."""
    from torch._prims_common import make_contiguous_strides_for
    from torch.fx.experimental.symbolic_shapes import SymIntEqByExpr

    wanted = make_contiguous_strides_for(tensor.size())
    starts_at_0 = isinstance(offset := tensor.storage_offset(), int) and offset == 0
    return (
        starts_at_0
        and tensor.layout == torch.strided
        and all(SymIntEqByExpr(x) == SymIntEqByExpr(y) for x, y in zip(tensor.stride(), wanted))
    )


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
