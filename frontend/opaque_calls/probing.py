"""Finds the results of a call by running it with values picked for the unbacked sizes.

A tracing rule that needs the value of an unbacked size fails, but the call itself needs only sizes that match. It runs
on tensors without data for several choices: rank and type of its results must be the same for all, 0 and 1 among them.
A size of a result that equals one of an operand in every run, and changed in some, is that size; any other is unbacked.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils._pytree as pytree

from symshape.frontend.bridge.fake_tensors import is_wrapped, storage_of, version_of
from symshape.frontend.bridge.running_operators import observed_operators, without_modes
from symshape.frontend.bridge.symbolic_sizes import first_seen_sizes, size_at
from symshape.frontend.opaque_calls.sample_tensors import MOST_ELEMENTS, USUAL_SIZES
from symshape.frontend.opaque_calls.write_calls import NotOpaque

_MOST_RUNS = 120
Values = Mapping[Any, int]
Shapes = list[tuple[str, tuple[int, ...]]]  # element type and sizes of each result


@dataclass
class Probe:
    """A call to probe: ``call(tensors, sizes)`` runs it; ``tensors`` and ``sizes`` are its operands as they were
    traced."""

    call: Callable[[Sequence[torch.Tensor], Sequence[int]], Any]
    tensors: Sequence[torch.Tensor]
    sizes: Sequence[Any]
    known: Values = field(default_factory=dict)  # what some unbacked sizes are at this call
    random: bool = False
    shares: bool = False  # whether a result is in the memory of an operand
    by_values: bool = False  # whether sizes of results are in the data of operands
    runs: list[tuple[Values, Shapes]] = field(default_factory=list)

    def results(self) -> list[tuple[str, list[Any]]]:
        """For each result its element type and, for each dim, an int, ("tensor", i, dim), ("size", j) or ("fresh",).

        NotOpaque if it fails for all sizes, or if rank or type of its results depend on them.
        """
        self.inputs, self.symbols = first_seen_sizes([*self.sizes, *(s for t in self.tensors for s in t.shape)])
        first = next(filter(self._try, itertools.islice(self._choices(), _MOST_RUNS)), None)
        if first is None:
            raise NotOpaque("it fails for all sizes that were tried")
        covered = self._vary(first)
        kinds = {tuple((dtype, len(shape)) for dtype, shape in found) for _, found in self.runs}
        if len(kinds) > 1:
            raise NotOpaque("the rank of its results depends on sizes")
        return [
            (dtype, [self._origin(r, d, covered) for d in range(len(shape))])
            for r, (dtype, shape) in enumerate(self.runs[0][1])
        ]

    # --- choices -----------------------------------------------------------------------------------------------------

    def _choices(self) -> Iterator[Values]:
        if all(symbol in self.known for symbol in self.symbols):
            yield {symbol: self.known[symbol] for symbol in self.symbols}
        fixed = {s for t in self.tensors for s in t.shape if type(s) is int and 1 < s < 100}
        numbers = list(dict.fromkeys([*sorted(fixed), *USUAL_SIZES]))
        for number in numbers:
            yield dict.fromkeys(self.symbols, number) | self._known()
        for chosen in itertools.product(numbers, repeat=len(self.symbols)):
            yield dict(zip(self.symbols, chosen)) | self._known()

    def _known(self) -> dict[Any, int]:
        return {symbol: self.known[symbol] for symbol in self.symbols if symbol in self.known}

    def _vary(self, first: Values) -> bool:
        """Runs it with other sizes, one by one or, where they must be equal, together. Whether each could be moved:
        those of inputs as well, which are only known at the first call."""
        first = {**self.inputs, **first}
        together: dict[int, list[Any]] = {}
        for symbol, value in first.items():
            together.setdefault(value, []).append(symbol)
        covered = True
        for symbol, value in first.items():
            groups = [[symbol], together[value]] if len(together[value]) > 1 else [[symbol]]
            covered &= any(self._move(first, group) for group in groups)
        return covered

    def _move(self, first: Values, group: Sequence[Any]) -> bool:
        value = first[group[0]]
        for other in (1, 0) if not any(symbol in self.inputs for symbol in group) else ():
            self._try({**first, **dict.fromkeys(group, other)})
        others = (value + 1, 2 * value, value + 2, 3 * value)
        moved = [self._try({**first, **dict.fromkeys(group, other)}) for other in others]
        return any(moved)

    # --- runs --------------------------------------------------------------------------------------------------------

    def _try(self, values: Values) -> bool:
        """Runs it and remembers what came back; False if it fails."""
        at = {**self.inputs, **values}
        shapes = [[size_at(s, at) for s in t.shape] for t in self.tensors]
        sizes = [size_at(s, at) for s in self.sizes]
        if any(s < 0 for shape in shapes for s in shape):
            return False
        small = sum(math.prod(shape) for shape in shapes) < MOST_ELEMENTS
        devices = ("meta", "cpu") if self.runs else ("cpu", "meta")  # a write to an operand shows on a CPU only
        for device in devices if small else ("meta",):
            with without_modes(), torch.random.fork_rng(devices=[]), torch.no_grad():
                operands = [_made(t.dtype, shape, device) for t, shape in zip(self.tensors, shapes)]
                before = [t.clone() for t in operands] if device == "cpu" else operands
                versions = [version_of(t) for t in operands]
                try:
                    with observed_operators() as seen, warnings.catch_warnings():
                        warnings.simplefilter("ignore")  # about made-up sizes
                        result = self.call(operands, sizes)
                except NotOpaque:
                    raise
                except Exception:  # noqa: BLE001 - sizes that do not fit, or no rule for tensors without data
                    continue
                # Versions do not show everything: running statistics of a batch norm are written behind their back.
                kept = device == "meta" or all(map(torch.equal, before, operands))
            if any(map(is_wrapped, pytree.tree_leaves(result))):
                raise NotOpaque("it is inside of a transform of torch.func, whose tangents would be lost")
            if versions != [version_of(t) for t in operands] or not kept:
                raise NotOpaque("it changes an operand")
            self.runs.append((at, _shapes(result)))
            self.random |= seen.random
            self.by_values |= seen.sizes_of_values
            taken = {storage_of(t) for t in operands}
            # It is not visible whether an empty tensor is an operand's.
            self.shares |= any(t.numel() and storage_of(t) in taken for t in pytree.tree_leaves(result))
            return True
        return False

    # --- what the runs say -------------------------------------------------------------------------------------------

    def _origin(self, result: int, dim: int, covered: bool) -> Any:
        seen = [shapes[result][1][dim] for _, shapes in self.runs]
        if self.by_values:
            return ["fresh"]
        if len(set(seen)) == 1 and covered:
            return seen[0]
        sources: list[tuple[Any, Any]] = []
        for i, tensor in enumerate(self.tensors):
            sources += [(("tensor", i, d), s) for d, s in enumerate(tensor.shape)]
        sources += [(("size", j), s) for j, s in enumerate(self.sizes)]
        found: dict[Any, Any] = {}
        for origin, size in sources:
            values = [size_at(size, at) for at, _ in self.runs]
            if values == seen and len(set(values)) > 1:
                found.setdefault(str(size), origin)
        return list(next(iter(found.values()))) if len(found) == 1 else ["fresh"]


def _made(dtype: torch.dtype, shape: Sequence[int], device: str) -> torch.Tensor:
    if device == "cpu" and dtype.is_floating_point:
        return torch.rand(shape, dtype=dtype)
    return torch.zeros(shape, dtype=dtype, device=device)


def _shapes(result: Any) -> Shapes:
    leaves = pytree.tree_leaves(result)
    if not leaves or not all(isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided for leaf in leaves):
        raise NotOpaque("it returns something other than tensors")
    return [(str(leaf.dtype).removeprefix("torch."), tuple(leaf.shape)) for leaf in leaves]
