"""Forward programs that stop saving activations where ``backward`` is not called.

The first call runs the forward program. If a second call comes before any ``backward``, another program is made, which
computes the results alone, and runs from then on. AOTAutograd saves an empty tensor in the place of each activation;
the first of them knows the inputs. Once ``backward`` is called, the forward program runs with these inputs for the
activations, and at each later call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import torch

from symshape.runtime.torch_c import compiles_backward, outside_batch, saves_through_hooks, versions_of

Run = Callable[[list[Any]], Sequence[Any]]
_WAITING: Final = "symshape_waiting"
_NUMBER: Final = "symshape_activation"
_PROGRAM: Final = "symshape_program"  # the PostponedActivations whose forward program has saved a tensor


@dataclass(frozen=True)
class Place:
    """Where a result of the forward program is: among the inputs, among the results of the other program, or it is an
    activation, the one of this number."""

    source: Literal["input", "result", "activation"]
    index: int


class PostponedActivations:
    """``whole``: the forward program; ``make_results()``: compiles the one that computes results alone, None if it
    cannot; ``places``: of the results of ``whole``. Programs take their arguments in one list, and clear it."""

    def __init__(self, whole: Run, make_results: Callable[[], Run | None], places: Sequence[Place]) -> None:
        self._whole, self._make_results, self._places = whole, make_results, tuple(places)
        self._results: Run | None = None
        self._positions = [i for i, place in enumerate(places) if place.source == "activation"]
        self._others = [_empty(number) for number in range(1, len(self._positions))]
        self._calls = 0
        self._making = threading.Lock()
        self.is_wanted = False  # whether backward has been called

    def forward(self, args: list[Any]) -> Sequence[Any]:
        versions = None if self.is_wanted or saves_through_hooks() or compiles_backward() else versions_of(args)
        run = None if versions is None else self._results_alone()
        if versions is None or run is None:
            return self._saving(args)
        waiting = _Waiting(self, list(args), versions)
        first = _empty(0)
        setattr(first, _WAITING, waiting)
        sources = {"input": waiting.inputs, "result": run(args), "activation": [first, *self._others]}
        return [sources[place.source][place.index] for place in self._places]

    def _results_alone(self) -> Run | None:
        """The program that computes results alone, made at the second call; None in threads that do not make it."""
        self._calls += 1
        if self._results is None and self._calls > 1 and self._making.acquire(blocking=False):
            try:
                self._results = self._make_results()
                self.is_wanted |= self._results is None
            finally:
                self._making.release()
        return self._results

    def _saving(self, args: list[Any]) -> Sequence[Any]:
        results = self._whole(args)
        if not self.is_wanted:
            setattr(results[self._positions[0]], _PROGRAM, self)
        return results

    def activations(self, inputs: list[Any]) -> list[torch.Tensor]:
        """All of them, by number."""
        self.is_wanted = True
        with torch.no_grad():
            found = self._whole(list(inputs))
        return [found[i] for i in self._positions]


@dataclass(frozen=True)
class _Waiting:
    """A call whose activations are not computed yet."""

    program: PostponedActivations
    inputs: list[Any]
    versions: tuple[int, ...]

    def activations(self) -> list[torch.Tensor]:
        """RuntimeError, as autograd's, where an input is another one than it was."""
        if versions_of(self.inputs) != self.versions:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: "
                "an input or a parameter of a compiled function, between its call and backward"
            )
        return self.program.activations(self.inputs)


def with_activations(backward: Run) -> Run:
    """A backward program whose arguments may be activations that are not computed yet. Its forward program is told
    that activations are wanted."""

    def run(args: list[Any]) -> Sequence[Any]:
        waiting = next((found for one in args if (found := getattr(one, _WAITING, None)) is not None), None)
        for one in args:
            if (program := getattr(one, _PROGRAM, None)) is not None:
                program.is_wanted = True
        if waiting is not None:
            with outside_batch():
                activations = waiting.activations()
            for i, one in enumerate(args):
                number = getattr(one, _NUMBER, None)
                if number is not None:
                    args[i] = activations[number]
        return backward(args)

    return run


def _empty(number: int) -> torch.Tensor:
    made = torch.empty(0)
    setattr(made, _NUMBER, number)
    return made
