"""The calls of an operator variant: functions, and inputs that are made anew for every run."""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree
from variants import Variant, dtype_for

NARROW = (torch.float32, torch.float16, torch.bfloat16)
WIDE = dict.fromkeys(NARROW, torch.float64) | dict.fromkeys((torch.complex64, torch.complex32), torch.complex128)
GROUPS, EACH = 3, 2  # of an operator's samples: so many kinds of arguments, so many samples of each


@dataclass
class Case:
    """One call. Cases with one ``function`` share what is compiled of it.

    ``gradient``: whether that of its results is compared too; ``process`` makes results comparable that are no unique
    answer (signs of eigenvectors). ``parts``: labels of what a tuple of results consists of.
    """

    label: str
    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: dict[str, Any]
    gradient: bool = False
    process: Callable[[Any], Any] | None = None
    parts: tuple[str, ...] = ()
    wide: Case | None = None  # the same in float64
    redraw: Callable[[int], Case] | None = None  # the same of other numbers, by a seed

    def inputs(self) -> tuple[list[Any], dict[str, Any]]:
        return fresh((list(self.args), dict(self.kwargs)))


def fresh(tree: Any) -> Any:
    """A copy with layouts and shared memory as they are, of leaves that require gradients where these do."""
    leaves, spec = pytree.tree_flatten(tree)
    plain = [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    copies = [copy.deepcopy(leaf) if isinstance(leaf, torch.nn.Module) else leaf for leaf in plain]
    tensors = copy.deepcopy([leaf for leaf in plain if isinstance(leaf, torch.Tensor)])
    made = iter(tensors)
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            copies[i] = next(made).requires_grad_(leaf.requires_grad)
    return pytree.tree_unflatten(copies, spec)


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """All tensors, those of modules among them."""
    found: list[torch.Tensor] = []
    for leaf in pytree.tree_leaves(tree):
        if isinstance(leaf, torch.nn.Module):
            found += [*leaf.parameters(), *leaf.buffers()]
        elif isinstance(leaf, torch.Tensor):
            found.append(leaf)
    return found


def cases(variant: Variant, dtype: torch.dtype, most: int = 0, seed: int = 0) -> list[Case]:
    """The calls of a variant, at most ``most`` samples if that is given; none where it has no such dtype."""
    if variant.kind == "module":
        return _module_cases(variant.info, dtype, most or GROUPS)
    found = dtype_for(variant.info, dtype)
    return [] if found is None else _operator_cases(variant, found, most, seed)


def _operator_cases(variant: Variant, dtype: torch.dtype, most: int, seed: int) -> list[Case]:
    info = variant.info
    gradient = info.supports_autograd and dtype in info.supported_backward_dtypes("cpu")
    samples = _samples(info, dtype, gradient, seed)
    chosen = spread(samples, most or GROUPS * EACH)
    op = info.op

    def plain(x: Any, *args: Any, **kwargs: Any) -> Any:
        return op(x, *args, **kwargs)

    found = []
    for i in chosen:
        one = samples[i]
        case = Case(f"sample {i}", plain, (one.input, *one.args), one.kwargs, gradient, one.output_process_fn_grad)
        found.append(case)
    if variant.kind == "op" and chosen:
        found += _mutating(info, samples[chosen[0]], chosen[0])
    if dtype in NARROW and torch.float64 in info.supported_dtypes("cpu"):
        for k, case in enumerate(found):
            case.wide = widened(case)
            case.redraw = functools.partial(_redrawn, case, variant, dtype, most, k)
    return found


def _redrawn(case: Case, variant: Variant, dtype: torch.dtype, most: int, index: int, seed: int) -> Case:
    """The same call of the numbers that another seed makes."""
    with torch.random.fork_rng():
        made = cases(variant, dtype, most, seed)[index]
    return dataclasses.replace(made, function=case.function, redraw=None)


def _part(redraw: Callable[[int], Case], part: str, seed: int) -> Case:
    return next(one for one in alone(redraw(seed)) if one.parts == (part,))


def widened(case: Case) -> Case:
    """The same call on the same numbers in float64 (complex ones, as ``out=`` may hold: in pairs of float64)."""

    def wide(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            change = leaf.dtype in WIDE
            return leaf.detach().to(WIDE[leaf.dtype]).requires_grad_(leaf.requires_grad) if change else leaf
        if isinstance(leaf, torch.nn.Module):
            return copy.deepcopy(leaf).to(torch.float64)
        return WIDE.get(leaf, leaf) if isinstance(leaf, torch.dtype) else leaf

    args, kwargs = pytree.tree_map(wide, (list(case.args), case.kwargs))
    return dataclasses.replace(case, args=args, kwargs=kwargs)


def _samples(info: Any, dtype: torch.dtype, gradient: bool, seed: int) -> list[Any]:
    """``seed``: 0 for the numbers that the database chooses, which seeds for each sample."""
    torch.manual_seed(seed)
    found = info.sample_inputs("cpu", dtype, requires_grad=gradient, set_seed=not seed)
    return list(itertools.islice(found, 400))


def spread(samples: Sequence[Any], most: int) -> list[int]:
    """Which samples to take: of each kind of arguments some, as different ones as there are, in their order."""
    kinds: dict[Any, list[int]] = {}
    for i, one in enumerate(samples):
        kinds.setdefault(_kind((one.input, *one.args), one.kwargs), []).append(i)
    groups = [_apart(members, EACH) for members in _apart(list(kinds.values()), max(most // EACH, 1))]
    chosen = set(itertools.chain(*groups))
    rest = [i for i in range(len(samples)) if i not in chosen]
    return sorted([*sorted(chosen)[:most], *_apart(rest, max(most - len(chosen), 0))])


def _kind(args: Any, kwargs: Any) -> Any:
    leaves, spec = pytree.tree_flatten((args, kwargs))
    return str(spec), tuple(f"{x.dtype} {x.dim()}" if isinstance(x, torch.Tensor) else str(type(x)) for x in leaves)


def _apart(items: Sequence[Any], count: int) -> list[Any]:
    if len(items) <= count or not count:
        return list(items)[:count]
    return [items[i * (len(items) - 1) // max(count - 1, 1)] for i in range(count)]


def _mutating(info: Any, sample: Any, index: int) -> list[Case]:
    """Without gradients, inputs that are not contiguous: the plain call, in place, and with ``out=``."""
    with torch.no_grad():
        try:
            sample = sample.noncontiguous()
        except Exception:  # noqa: BLE001 - not every layout has such a form
            pass
        args, kwargs, op, in_place = sample.args, sample.kwargs, info.op, info.inplace_variant
        sample_input = pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, sample.input)
        args, kwargs = pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, (args, kwargs))
        result = _attempt(op, sample_input, args, kwargs)
        parts: dict[str, Any] = {"no_grad": ()}
        can_write = isinstance(sample_input, torch.Tensor) and not sample.broadcasts_input
        if in_place is not None and can_write and _attempt(in_place, *fresh((sample_input, args, kwargs))) is not None:
            parts["in-place"] = copy.deepcopy(sample_input)  # memory of its own: x is read afterwards
        if info.supports_out and (out := _outputs(result)) is not None:
            if _agrees(_attempt(op, *fresh((sample_input, args, kwargs | {"out": out}))), result):
                parts["out="] = _outputs(result)

    def each(label: str, given: Any, x: Any, args: Any, kwargs: Any) -> Any:
        if label == "no_grad":
            return op(x, *args, **kwargs)
        return in_place(given, *args, **kwargs) if label == "in-place" else op(x, *args, **kwargs, out=given)

    def together(given: Any, x: Any, args: Any, kwargs: Any) -> Any:
        return tuple([each(label, one, x, args, kwargs) for label, one in given.items()])

    labels = tuple(parts)
    return [
        Case(f"sample {index} {', '.join(labels)}", together, (parts, sample_input, args, kwargs), {}, parts=labels)
    ]


def alone(case: Case) -> list[Case]:
    """Each part of a case with several by itself."""
    given, *rest = case.args
    sample, found = case.label.split(" ")[1], []
    for part in case.parts:
        one = Case(f"sample {sample} {part}", case.function, ({part: given[part]}, *rest), {}, parts=(part,))
        one.wide = widened(one) if case.wide is not None else None
        one.redraw = functools.partial(_part, case.redraw, part) if case.redraw is not None else None
        found.append(one)
    return found


def _attempt(function: Callable[..., Any], x: Any, args: Any, kwargs: Any) -> Any:
    try:
        return function(x, *args, **kwargs)
    except Exception:  # noqa: BLE001 - what eager does not do is no case
        return None


def _agrees(written: Any, result: Any) -> bool:
    """Whether eager itself writes what it returns without ``out=``: native_batch_norm reads what was there before."""
    sides = pytree.tree_leaves(written), pytree.tree_leaves(result)
    return len(sides[0]) == len(sides[1]) and all(
        a.shape == b.shape and torch.allclose(a.to(b.dtype), b, equal_nan=True) for a, b in zip(*sides)
    )


def _outputs(result: Any) -> Any:
    """Tensors like the results, with other values in them; None where ``out=`` cannot take such."""
    leaves = list(result) if isinstance(result, (tuple, list)) else [result]
    if not leaves or not all(isinstance(one, torch.Tensor) and one.layout == torch.strided for one in leaves):
        return None
    made = [torch.ones(one.shape, dtype=one.dtype) for one in leaves]  # Dynamo takes contiguous ones only
    return tuple(made) if isinstance(result, (tuple, list)) else made[0]


def _call_module(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    return module(*args, **kwargs)


def _module_cases(info: Any, dtype: torch.dtype, most: int) -> list[Case]:
    if dtype not in info.dtypes:
        return []
    found: list[Case] = []
    for training in (True, False) if info.train_and_eval_differ else (True,):
        made = _modules(info, dtype, training)
        for i in _apart(range(len(made)), most):
            module, args, kwargs = made[i]
            label = f"sample {i}{'' if training else ' eval'}"
            case = Case(label, _call_module, (module, *args), kwargs, gradient=True)
            case.wide = widened(case)
            found.append(case)
    return found


def _modules(info: Any, dtype: torch.dtype, training: bool) -> list[Any]:
    torch.manual_seed(0)
    made = []
    for one in info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training):
        arguments = one.constructor_input
        module = info.module_cls(*arguments.args, **arguments.kwargs).to(dtype).train(training)
        made.append((module, one.forward_input.args, one.forward_input.kwargs))
    return made
