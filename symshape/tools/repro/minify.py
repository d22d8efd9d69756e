"""Minifies a graph: removes what is not needed for it to fail in the same way, and keeps its sizes dynamic.

A smaller graph is kept if it still fails at one of the file's sizes. If a value becomes an input, its layout is written
over the graph's symbols, fitted to the layouts observed at all sizes.
"""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch

from symshape.errors import OptionError
from symshape.frontend.bridge.operators import schema_of
from symshape.tools.reduce.failing_checks import error_line, pattern_of
from symshape.tools.repro.from_graph import symbols_of_arguments
from symshape.tools.repro.problem import Argument, Problem, Size, marked, number
from symshape.tools.repro.run import results, run
from symshape.tools.repro.source import GraphFailure, file_text

_COEFFICIENTS: Final = 64  # limit of a and b in a fitted size a * symbol + b


@dataclass(frozen=True)
class State:
    """A failing graph and its arguments."""

    gm: torch.fx.GraphModule
    arguments: Sequence[Argument]


def minify(problem: Problem, output: Path) -> None:
    """Minifies a graph and writes each smaller one to ``output``. OptionError if the graph does not fail, or fails in
    another way when traced as one graph."""
    started = time.monotonic()
    gm = _as_graph(problem.graph)
    failure = failure_of(problem)
    if failure is None:
        raise OptionError("the graph does not fail", next_step="run the file without minify")
    pattern = re.compile(pattern_of(error_line(failure)) if not problem.accuracy else "AccuracyError")
    graph_failure = GraphFailure("", failure, problem.accuracy, problem.grad, _compiled_text(problem))
    state = State(gm, list(problem.arguments))
    before, search = _size(state), _Search(problem, pattern, lambda s: _write(output, s, problem, graph_failure))
    if not search.fails(state):
        raise OptionError("the graph fails in another way when it is traced as one", next_step="reduce the IR instead")
    state = search.smallest(state)
    seconds = time.monotonic() - started
    print(f"{output}: {_size(state)} of {before} operations, {search.tries} tries, {seconds:.0f} s")


def _as_graph(module: torch.nn.Module) -> torch.fx.GraphModule:
    try:
        return torch.fx.symbolic_trace(module)
    except Exception as error:
        raise OptionError(
            f"the graph cannot be taken apart: {error}", next_step="SYMSHAPE_RECORD=DIR and symshape reduce work on IR"
        ) from error


def failure_of(problem: Problem) -> str | None:
    """The failure of a graph as text; None if it does not fail."""
    try:
        run(problem)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _size(state: State) -> int:
    return sum(node.op not in ("placeholder", "output") for node in state.gm.graph.nodes)


def _compiled_text(problem: Problem) -> str:
    """The expression in the file that compiles the graph."""
    import inspect

    return inspect.getsource(problem.compiled).partition("return ")[2].strip()


def _write(output: Path, state: State, problem: Problem, graph_failure: GraphFailure) -> None:
    used = symbols_of_arguments(state.arguments)
    sizes = list({str(one): one for one in ({s: v for s, v in m.items() if s in used} for m in problem.sizes)}.values())
    draft = output.with_name(f"{output.name}.part")
    draft.write_text(file_text(state.gm, state.arguments, sizes, graph_failure), encoding="utf-8")
    draft.replace(output)


class _Search:
    """Searches for a smaller failing graph until nothing more can be removed."""

    def __init__(self, problem: Problem, pattern: re.Pattern[str], keep: Callable[[State], None]) -> None:
        self.problem, self.pattern, self.keep, self.tries = problem, pattern, keep, 0

    def fails(self, state: State) -> bool:
        """Whether a graph fails as the original does, and does not fail in eager mode."""
        self.tries += 1
        tried = replace(
            self.problem,
            graph=state.gm,
            arguments=state.arguments,
            inputs=lambda sizes: marked(state.arguments, sizes),
        )
        failure = failure_of(tried)
        if failure is None or failure.startswith("RuntimeError: eager mode fails"):
            return False
        return bool(self.pattern.search(failure))

    def take(self, state: State, made: State | None) -> State | None:
        """``made`` without unused nodes, if it is smaller than ``state`` and still fails; else None."""
        if made is None:
            return None
        made = _without_unused(made)
        if _weight(made) >= _weight(state) or not self.fails(made):
            return None
        self.keep(made)
        return made

    def smallest(self, state: State) -> State:
        state = self.take(state, state) or state
        while True:
            before = _weight(state)
            state = self.shortest(self.fewest_results(state))
            state = self.latest(state)
            state = self.shortcuts(state)
            if _weight(state) == before:
                return state

    def fewest_results(self, state: State) -> State:
        for node in _results(state.gm):
            made = self.take(state, _returning(state, node.name))
            if made is not None:
                return made
        return state

    def shortest(self, state: State) -> State:
        """Returns the first node's value for which the graph fails, and drops what comes after. A binary search: if a
        prefix of the graph fails, longer prefixes fail too."""
        low = 0
        while True:
            names = [node.name for node in state.gm.graph.nodes if _is_value(node)]
            middle = (low + len(names) - 1) // 2
            if low >= len(names) - 1:
                return state
            made = self.take(state, _returning(state, names[middle]))
            low, state = (low, made) if made is not None else (middle + 1, state)

    def latest(self, state: State) -> State:
        """Turns values into inputs, in chunks that halve in size, so that what computes them can be dropped."""
        layouts = _layouts(state, self.problem)
        count = len(layouts)
        while count:
            for names in _chunks(list(layouts), count):
                left = {n.name for n in state.gm.graph.nodes}
                made = self.take(state, _with_inputs(state, {n: layouts[n] for n in names if n in left}))
                state = made or state
            count //= 2
        return state

    def shortcuts(self, state: State) -> State:
        """Replaces operations by an operand of equal layout."""
        for name, operand in _alike(state, self.problem):
            if {name, operand} <= {node.name for node in state.gm.graph.nodes}:
                state = self.take(state, _replaced(state, name, operand)) or state
        return state


def _weight(state: State) -> tuple[int, int]:
    return _size(state), len(state.arguments) + len(_results(state.gm))


def _chunks(names: Sequence[str], count: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), count):
        yield names[start : start + count]


def _results(gm: torch.fx.GraphModule) -> list[torch.fx.Node]:
    (output,) = gm.graph.find_nodes(op="output")
    found: list[torch.fx.Node] = output.all_input_nodes
    return found


def _is_value(node: torch.fx.Node) -> bool:
    return node.op in ("call_function", "call_method", "call_module")


# --- smaller graphs -----------------------------------------------------------------------------------------------


def _copied(state: State) -> tuple[State, dict[str, torch.fx.Node]]:
    gm = torch.fx.GraphModule(state.gm, copy.deepcopy(state.gm.graph))
    return State(gm, list(state.arguments)), {node.name: node for node in gm.graph.nodes}


def _without_unused(state: State) -> State:
    """Removes unused nodes and arguments."""
    made, _ = _copied(state)
    graph = made.gm.graph
    for node in reversed(list(graph.nodes)):
        if not node.users and node.op != "output" and not _changes_inputs(node):
            graph.erase_node(node)
    made.gm.recompile()
    left = {node.name for node in graph.find_nodes(op="placeholder")}
    return State(made.gm, [one for one in state.arguments if one.name in left])


def _changes_inputs(node: torch.fx.Node) -> bool:
    if node.op == "call_method":
        return str(node.target).endswith("_")
    schema = schema_of(node.target) if isinstance(node.target, torch._ops.OpOverload) else None
    return bool(schema is not None and schema.is_mutable)


def _returning(state: State, name: str) -> State:
    made, nodes = _copied(state)
    (output,) = made.gm.graph.find_nodes(op="output")
    output.args = ((nodes[name],),)
    return made


def _with_inputs(state: State, layouts: Mapping[str, Argument]) -> State | None:
    if not layouts:
        return None
    made, nodes = _copied(state)
    graph = made.gm.graph
    for name, argument in layouts.items():
        last = graph.find_nodes(op="placeholder")
        with graph.inserting_after(last[-1]) if last else graph.inserting_before(next(iter(graph.nodes))):
            new = graph.placeholder(f"was_{name}")
        nodes[name].replace_all_uses_with(new)
        made.arguments.append(replace(argument, name=new.name))  # type: ignore[attr-defined]
    return made


def _replaced(state: State, name: str, operand: str) -> State:
    made, nodes = _copied(state)
    nodes[name].replace_all_uses_with(nodes[operand])
    return made


# --- what values are at the sizes ---------------------------------------------------------------------------------


class _Recorder(torch.fx.Interpreter):
    """Runs a graph and records all its tensors by node name."""

    def __init__(self, gm: torch.fx.GraphModule) -> None:
        super().__init__(gm)
        self.found: dict[str, torch.Tensor] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, torch.Tensor) and n.op != "output":
            self.found[n.name] = value.detach().requires_grad_(value.requires_grad)
        return value


def _values(state: State, problem: Problem) -> list[tuple[Mapping[str, int], dict[str, torch.Tensor]]]:
    """All tensors by name, for each of the sizes at which eager mode runs."""
    found = []
    for sizes in problem.sizes:
        recorder = _Recorder(state.gm)
        tried = replace(problem, inputs=lambda s: marked(state.arguments, s))
        try:
            results(tried, recorder.run, sizes)
        except Exception:  # noqa: BLE001 - sizes that the graph is not for
            continue
        found.append((sizes, recorder.found))
    return found


def _layouts(state: State, problem: Problem) -> dict[str, Argument]:
    """The values that can become inputs, last first, each with its layout over symbols."""
    values = _values(state, problem)
    texts = {s for one in state.arguments for s in (*one.sizes, *one.strides) if isinstance(s, str)}
    found: dict[str, Argument] = {}
    for node in reversed(list(state.gm.graph.nodes)):
        if _is_value(node) and values and all(node.name in tensors for _, tensors in values):
            layout = _layout(node.name, values, sorted(texts, key=lambda t: (len(t), t)))
            if layout is not None:
                found[node.name] = layout
    return found


def _layout(name: str, values: Sequence[Any], texts: Sequence[str]) -> Argument | None:
    first = values[0][1][name]
    if first.layout != torch.strided or any(tensors[name].dim() != first.dim() for _, tensors in values):
        return None

    def fitted(read: Callable[[torch.Tensor], int]) -> Size | None:
        return _fitted([(sizes, read(tensors[name])) for sizes, tensors in values], texts)

    sizes = [fitted(lambda t, d=d: t.size(d)) for d in range(first.dim())]  # type: ignore[misc]
    strides = [fitted(lambda t, d=d: t.stride(d)) for d in range(first.dim())]  # type: ignore[misc]
    if any(one is None for one in (*sizes, *strides)):
        return None
    known = [one for one in sizes if one is not None], [one for one in strides if one is not None]
    return Argument(name, *known, first.dtype, str(first.device), requires_grad=first.requires_grad)


def _fitted(rows: Sequence[tuple[Mapping[str, int], int]], texts: Sequence[str]) -> Size | None:
    """An expression that has the observed values: a constant, an expression of the graph, or a * symbol + b."""
    numbers = [found for _, found in rows]
    if len(set(numbers)) == 1:
        return numbers[0]
    for text in texts:
        if all(number(text, sizes) == found for sizes, found in rows):
            return text
    for symbol in rows[0][0]:
        (one, a), (other, b) = ((sizes[symbol], found) for sizes, found in rows[:2])
        factor = (a - b) // (one - other) if one != other else 0
        rest = a - factor * one
        if factor and max(abs(factor), abs(rest)) <= _COEFFICIENTS * max(numbers):
            if all(factor * sizes[symbol] + rest == found for sizes, found in rows):
                return f"{factor}*{symbol}" + (f" + {rest}" if rest else "")
    return None


def _alike(state: State, problem: Problem) -> list[tuple[str, str]]:
    """Pairs (node, operand of equal shape, type and device at all sizes), last first."""
    values = _values(state, problem)
    found = []
    for node in reversed(list(state.gm.graph.nodes)):
        for operand in node.all_input_nodes if _is_value(node) else ():
            pairs = [(tensors.get(node.name), tensors.get(operand.name)) for _, tensors in values]
            if pairs and all(a is not None and b is not None and _is_alike(a, b) for a, b in pairs):
                found.append((node.name, operand.name))
    return found


def _is_alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.device == b.device
