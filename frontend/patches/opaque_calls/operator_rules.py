"""Fake rules for operators that lack one: rules of ours, and rules inferred by running a user's operator."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._library import utils
from torch._library.custom_ops import CustomOpDef
from torch._library.simple_registry import singleton
from torch._library.utils import Kernel
from torch._subclasses import fake_impls, fake_tensor
from torch._subclasses.functional_tensor import FunctionalTensorMode

from symshape.frontend.bridge.operators import is_for_all_devices
from symshape.frontend.bridge.tracing_errors import unsupported
from symshape.frontend.decompositions.fake_rules import FAKE_RULES
from symshape.frontend.opaque_calls.inferred_rules import is_differentiated_inside, traced_by_inferred_rule
from symshape.frontend.patches.patch import Changes, may_run_operators
from symshape.frontend.patches.probes import Named, Target
from symshape.frontend.patches.sizes.scattered_sources import COPYING


def missing_rules(changes: Changes) -> None:
    """Registers our fake rules for operators of PyTorch that have none."""
    for op, rule in FAKE_RULES.items():
        found = singleton.find(op.name()).fake_impl
        if found.kernel is None:
            made = Kernel(rule, __name__)
            changes.callback(_remove, found.kernels, made)
            found.kernels.append(made)


def _remove(kernels: list[Any], rule: Any) -> None:
    if rule in kernels:
        kernels.remove(rule)


def fake_rule_targets() -> list[Target]:
    """The lists of rules that ``missing_rules`` extends."""
    return [Named(f"fake rules of {op}", functools.partial(_rules_of, op)) for op in FAKE_RULES]


def _rules_of(op: Any) -> list[Any]:
    return list(singleton.find(op.name()).fake_impl.kernels)


def inferred_rules(changes: Changes) -> None:
    """Traces custom operators of ``torch.library`` without a fake rule by one that is inferred by running them.

    ``custom_op`` registers a default rule that calls the two patched functions, and the tracer calls them if there is
    no rule at all.
    """
    module: Any = utils
    can_generate, generate = module.can_generate_trivial_fake_impl, module.generate_trivial_fake_impl

    def can(op: Any) -> bool:
        return can_generate(op) or not utils.is_builtin(op)

    def rule(op: Any, *args: Any, **kwargs: Any) -> Any:
        if can_generate(op):
            return generate(op, *args, **kwargs)
        return traced_by_inferred_rule(may_run_operators(), op, args, kwargs)

    changes.attribute(module, "can_generate_trivial_fake_impl", can)
    changes.attribute(module, "generate_trivial_fake_impl", rule)


def memory_of_unknown_size(changes: Changes) -> None:
    """Traces ``x.set_(y.untyped_storage())``, a tensor over a whole storage, for storages of symbolic size.

    AOTAutograd does this for inputs that share memory if one of them is written. PyTorch's rule reads the storage's
    size as a number, which fails if the tensor in it has dynamic sizes.
    """
    changes.items(fake_impls.op_implementations_dict, {_SET_ALL: _set_all})


_SET_ALL = torch.ops.aten.set_.source_Storage


def _set_all(_mode: Any, _op: Any, x: torch.Tensor, memory: torch.UntypedStorage) -> torch.Tensor:
    count = memory.nbytes() // x.element_size()
    set_part: Any = torch.ops.aten.set_.source_Storage_storage_offset
    result: torch.Tensor = set_part(x, memory, 0, [count], [1])
    return result


def writes_into_memory(changes: Changes) -> None:
    """Traces ``as_strided_scatter`` on the storage that a tensor is in, of which the tensor may be a part: ``x[1:]``.

    AOTAutograd emits it if inputs share memory; the base may be another graph's result with any storage offset.
    PyTorch's rule takes the number of the base's elements for the size of the storage. Results of this operator,
    ``slice_scatter`` and similar ones are not taken from the tracer's cache, because those would start at the beginning
    of their storage.
    """
    changes.items(fake_impls.op_implementations_dict, {_WRITE: _write})
    changes.wrap(fake_tensor.FakeTensorMode, "_cached_dispatch_impl", _uncached)


_WRITE = torch.ops.aten.as_strided_scatter.default


def _write(
    _mode: Any, _op: Any, x: torch.Tensor, source: torch.Tensor, size: Any, stride: Any, storage_offset: Any = None
) -> torch.Tensor:
    count = x.untyped_storage().nbytes() // x.element_size()
    first = x.storage_offset() if storage_offset is None else storage_offset
    write: Any = torch.ops.prims.as_strided_scatter.default
    written: torch.Tensor = write(x.as_strided((count,), (1,), 0), source, size, stride, first)
    return written.as_strided(x.size(), x.stride(), x.storage_offset())


def _uncached(original: Callable[..., Any]) -> Callable[..., Any]:
    placed = {_WRITE, *COPYING}

    @functools.wraps(original)
    def dispatch(self: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return (self._dispatch_impl if func in placed else functools.partial(original, self))(func, types, args, kwargs)

    return dispatch


def inferred_rules_2_11(changes: Changes) -> None:
    """Does what ``inferred_rules`` does before PyTorch 2.13, which only has the first of the two functions, and assumes
    that the result is None.

    The rule that ``custom_op`` registers calls the user's rule, an attribute of the object that ``custom_op`` returns.
    For operators of ``Library.define`` the tracer searches a list before it gives up.
    """
    without_rule: Any = _has_no_rule, _by_inferred_rule
    tracer: Any = fake_tensor
    changes.attribute(CustomOpDef, "_abstract_fn", property(_rule_of, _keep_rule))
    changes.attribute(tracer, "op_implementations_checks", [without_rule, *tracer.op_implementations_checks])


def _rule_of(definition: Any) -> Any:
    kept, op = vars(definition)["_abstract_fn"], vars(definition).get("_opoverload")
    if kept is not None or op is None or utils.can_generate_trivial_fake_impl(op):
        return kept
    return lambda *args, **kwargs: traced_by_inferred_rule(may_run_operators(), op, args, kwargs)


def _keep_rule(definition: Any, rule: Any) -> None:
    vars(definition)["_abstract_fn"] = rule


def _has_no_rule(op: Any) -> bool:
    tracer: Any = fake_tensor  # read here, because `kernels_are_no_rules` patches `has_meta`
    return not (utils.is_builtin(op) or utils.can_generate_trivial_fake_impl(op) or tracer.has_meta(op))


def _by_inferred_rule(_mode: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
    return traced_by_inferred_rule(may_run_operators(), op, args, kwargs)


def kernels_are_no_rules(changes: Changes) -> None:
    """Keeps the tracer from taking a user's kernel that is registered for all devices for a fake rule."""
    tracer: Any = fake_tensor
    original = tracer.has_meta
    changes.attribute(tracer, "has_meta", lambda op: original(op) and not is_for_all_devices(op))


def gradients_inside_of_kernels(changes: Changes) -> None:
    """Stops a trace at an operator whose kernel eager mode differentiates inside, before its gradient is lost."""
    changes.wrap(FunctionalTensorMode, "__torch_dispatch__", _seen_above_autograd)


@functools.cache
def _seen_above_autograd(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def dispatch(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_differentiated_inside(may_run_operators(), func, args, kwargs or {}):
            raise unsupported(func)
        return original(self, func, types, args, kwargs)

    return dispatch
