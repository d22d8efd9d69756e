"""The patches that only make tracing faster change nothing else: the same graphs, requirements and errors without
them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import sympy
import torch
import torch.utils._pytree as pytree
from data_dependent import DATA_DEPENDENT
from masks import CASES, MASKS
from torch._dynamo.pgo import reset_code_state
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.common_methods_invocations import op_db

from symshape.backend import symshape_backend
from symshape.frame_compiler import compile_with
from symshape.frontend.bridge.fake_tensors import traced_env_of
from symshape.frontend.patches import registry
from symshape.tools.report import GraphReport
from symshape.tools.zoo import MODELS

OPERATORS = 200
LOCATION = re.compile(r"^(#loc\d*) = (.*)$", re.MULTILINE)
SIZE = re.compile(
    r"\s*(?P<name>%\w+) = (?P<text>(arith\.|index\.|\"symshape\.symbol\").*(: index|: i64|-> index)) loc\("
)
VALUE = re.compile(r"%\w+")
UNPLACED = re.compile(r" loc\(.*$")
RETURN = re.compile(r"(?<= return )(?P<start>.*\} |)(?P<values>%[^:]*) : (?P<types>.*) loc")
NUMBERED = re.compile(r'loc\("(\w+?)(_\d+)?"')  # the name of a node of the FX graph, in a location


@dataclass(frozen=True)
class Program:
    """``inputs()``: arguments of ``function``, made anew for each call; ``gradient``: of the sum of its results."""

    function: Callable[..., Any]
    inputs: Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]
    gradient: bool = False


@dataclass(frozen=True)
class Traced:
    """``graphs``: kind and IR; the rest as PyTorch's shape environment has it when the graphs were made, with the lines
    that it came from."""

    graphs: list[tuple[str, str]]
    guards: set[str]
    ranges: set[str]
    assertions: set[str]
    replacements: set[str]
    error: str
    environments: list[Any] = field(repr=False)


def run(program: Program, function: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    args, kwargs = program.inputs()
    if program.gradient:
        tensors = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        for x in tensors:
            x.requires_grad_(x.is_floating_point() and x.is_leaf)
    result = function(*args, **kwargs)
    outputs = [x for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor) and x.requires_grad]
    if program.gradient and outputs:
        torch.autograd.backward([x.abs().sum() for x in outputs])


def traced(program: Program) -> Traced:
    """What the compiler gets of a program, or the error."""
    torch._dynamo.reset()
    reset_code_state()  # which integers have changed so far
    FakeTensorMode.cache_clear()  # it outlives a compile
    reports: list[GraphReport] = []
    environments: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        environments.append(traced_env_of(graph))
        return symshape_backend(graph, inputs, options={"cache": False}, reports=reports)

    error = ""
    try:
        run(program, compile_with(program.function, backend))
    except Exception as raised:  # noqa: BLE001 - whatever it is, it must be the same one
        error = f"{type(raised).__name__}: {raised}"
    found = [facts_of(env) for env in environments if env is not None]
    merged = [set().union(*(facts[i] for facts in found)) for i in range(4)]
    graphs = [(report.kind, canonical(report.stages["imported"])) for report in reports]
    return Traced(graphs, *merged, error=re.sub(r"0x[0-9a-f]+", "0x", error), environments=environments)


def canonical(text: str) -> str:
    """IR with expressions in the place of size nodes, and with values and arguments in the order of their use: sizes
    are saved for backward in the order in which they were first computed. Without guards, which are compared alone."""
    places = dict(LOCATION.findall(text))
    lines = [one for one in LOCATION.sub("", text).splitlines() if one.strip()]
    sizes: dict[str, str] = {}
    symbols, rest = [], []
    for line in lines:
        found = SIZE.match(line)
        if "symshape.assume" in line:
            continue
        if found is None:
            line = RETURN.sub(lambda one: _with_sizes_in_order(one, sizes), line)
            rest.append(VALUE.sub(lambda one: sizes.get(one[0], one[0]), line))
        elif "symshape.symbol" in line:
            sizes[found["name"]] = re.findall(r'name = "(\w+)"', line)[0]
            symbols.append(re.sub(r"%\w+ = |binding = \S+ ", "", UNPLACED.sub("", line)))
        else:
            sizes[found["name"]] = f"({VALUE.sub(lambda one: sizes.get(one[0], one[0]), found['text'])})"
    (main,) = (i for i, line in enumerate(rest) if "func.func @main" in line)
    rest[main] = re.sub(r"%arg\d+: index loc\(\S+\)(, )?", "", rest[main])
    names: dict[str, str] = {}
    whole = "\n".join([*sorted(symbols), *rest])
    whole = re.sub(r"#loc\d*\b", lambda one: _resolved(one[0], places), whole)
    whole = re.sub(r"%\w+", lambda one: names.setdefault(one[0], f"%{len(names)}"), whole)
    return NUMBERED.sub(r'loc("\1"', whole)


def _with_sizes_in_order(found: re.Match[str], sizes: dict[str, str]) -> str:
    values = found["values"].split(", ")
    ordered = iter(sorted((value for value in values if value in sizes), key=lambda value: sizes[value]))
    return f"{found['start']}{', '.join(next(ordered) if value in sizes else value for value in values)} loc"


def _resolved(place: str, places: dict[str, str]) -> str:
    return re.sub(r"#loc\d*\b", lambda one: _resolved(one[0], places), places[place]) if place in places else place


def facts_of(env: Any) -> tuple[set[str], ...]:
    """Guards, ranges, runtime assertions, replacements."""
    asserted = [one for group in env.deferred_runtime_asserts.values() for one in group]
    return (
        {described(guard) for guard in noted(env).values()},
        {f"{symbol} in {bounds}" for symbol, bounds in env.var_to_range.items()},
        {f"{one.expr}: {one.msg}, {user_line(one.stack)}" for one in asserted},
        {f"{symbol} is {expr}" for symbol, expr in env.replacements.items()},
    )


def user_line(stack: Any) -> str:
    """The innermost line of these programs in a stack."""
    lines = [frame for frame in stack.summary() if "/test/" in frame.filename]
    return f"{lines[-1].filename}:{lines[-1].lineno}" if lines else ""


@contextmanager
def slowly() -> Iterator[None]:
    """Without the rows that only save time."""
    with pytest.MonkeyPatch.context() as patch:
        usual = registry._rows
        patch.setattr(registry, "_rows", lambda scope: tuple(row for row in usual(scope) if not row.only_speed))
        yield


def implied(one: Traced, other: Traced) -> set[str]:
    """The guards of ``one`` alone that follow from all that is known in the environments of ``other``: which of them
    PyTorch notes depends on what its cache of 256 decisions still has."""
    found = set()
    for env, others in zip(one.environments, other.environments):
        if env is None or {str(guard.expr) for guard in env.guards} == {str(guard.expr) for guard in others.guards}:
            continue
        others._update_version_counter()  # forgets what it could not decide before
        for text, guard in noted(env).items():
            if text not in noted(others) and others._maybe_evaluate_static(guard.expr) == sympy.true:
                found.add(described(guard))
    return found


def noted(env: Any) -> dict[str, Any]:
    """The guards, each when it was noted first: one may be again, at a line of PyTorch's."""
    return {str(guard.expr): guard for guard in reversed(env.guards)}


def described(guard: Any) -> str:
    return f"{guard.expr} at {guard.sloc.maybe_user_loc}"


def check(program: Program) -> Traced:
    """Traced both ways, which must agree."""
    fast = traced(program)
    with slowly():
        slow = traced(program)
    assert fast.error == slow.error
    for name in ("guards", "ranges", "assertions", "replacements"):
        ours, usual = getattr(fast, name), getattr(slow, name)
        if name == "guards":
            ours, usual = ours - implied(fast, slow), usual - implied(slow, fast)
        assert not ours ^ usual, f"{name}: {sorted(ours - usual)} in the place of {sorted(usual - ours)}"
    assert [kind for kind, _ in fast.graphs] == [kind for kind, _ in slow.graphs]
    for (kind, ours), (_, usual) in zip(fast.graphs, slow.graphs):
        differing = list(difflib.unified_diff(usual.splitlines(), ours.splitlines(), kind, "fast", lineterm="", n=0))
        assert not differing, "\n".join(differing[:20])
    return fast


# --- representatives -------------------------------------------------------------------------------------------------


def attention(x: torch.Tensor) -> torch.Tensor:
    heads = x.view(x.shape[0], x.shape[1], 2, -1).transpose(1, 2)
    mixed = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
    return mixed.transpose(1, 2).reshape(x.shape)


def convolved(x: torch.Tensor) -> torch.Tensor:
    images = torch.nn.functional.pad(x[:, None], (1, 2, 0, x.shape[0] % 3))
    normal = torch.nn.functional.batch_norm(images, torch.zeros(1), torch.ones(1), training=x.requires_grad)
    return torch.nn.functional.avg_pool2d(normal.relu(), 2).flatten(1)


def selected(x: torch.Tensor) -> torch.Tensor:
    rows = x[x[:, 0, 0] > 0]
    torch._check(rows.shape[0] <= x.shape[0], lambda: f"{rows.shape[0]} rows of {x.shape[0]}")
    return torch.cat([rows, rows * 2]).sum(0) + x.repeat(2, 1, 1).mean(0)


def branching(x: torch.Tensor) -> Any:
    if x.shape[0] * x.shape[1] > 20 and x.shape[1] != x.shape[2]:
        return x.reshape(-1, x.shape[2]).softmax(0)
    return x.split(2)[0].unfold(1, 2, 1)


def views(x: torch.Tensor) -> Any:
    y = x.t().transpose(0, 1) if x.dim() == 2 else x.permute(2, 0, 1)
    z = torch.view_as_real(torch.complex(y, y).conj().resolve_conj())
    return y.unsqueeze(1).expand(-1, 3, -1, -1), z[..., 0] + y, torch.as_strided(x, (x.shape[0], 2), (2, 1)), y.split(2)


def written(x: torch.Tensor) -> Any:
    y = x.clone()
    y[1:].mul_(2)
    y.transpose(0, 1)[2].add_(x.shape[0])
    return y, y.view(-1)[: x.shape[0] * 2]


def mismatched(x: torch.Tensor) -> Any:
    return x @ x


def not_broadcast(x: torch.Tensor) -> Any:
    return x + x[:, :-1]


def not_viewed(x: torch.Tensor) -> Any:
    return x.transpose(0, 1).view(-1)


def unchecked(x: torch.Tensor) -> Any:
    torch._check(x.shape[0] > 100, lambda: f"{x.shape[0]} is too small")
    return x * 2


def asked(x: torch.Tensor) -> Any:
    k = int(x.sum().item())
    return x * 2 if k > 3 else x[: k + 5]


def cube() -> Any:
    return (torch.linspace(-1, 1, 4 * 6 * 8).view(4, 6, 8),), {}


REPRESENTATIVES = (attention, convolved, selected, branching, views, written)
FAULTY = (mismatched, not_broadcast, not_viewed, unchecked, asked)


@pytest.mark.sample(5)
@pytest.mark.parametrize("function", REPRESENTATIVES, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("gradient", [False, True], ids=["forward", "gradient"])
def test_a_program(function: Any, gradient: bool) -> None:
    found = check(Program(function, cube, gradient))
    assert found.graphs and not found.error and found.ranges


@pytest.mark.parametrize("function", FAULTY, ids=lambda fn: fn.__name__)
def test_an_error(function: Any) -> None:
    found = check(Program(function, cube))
    assert found.error or function is asked


@pytest.mark.parametrize("name", ["bert", *(pytest.param(n, marks=pytest.mark.long) for n in MODELS if n != "bert")])
@pytest.mark.parametrize("gradient", [False, pytest.param(True, marks=pytest.mark.long)], ids=["forward", "gradient"])
def test_a_model(name: str, gradient: bool) -> None:
    model = MODELS[name]
    module = model.build("tiny")

    def call(**inputs: torch.Tensor) -> Any:
        return module(**inputs)

    found = check(Program(call, lambda: ((), model.inputs(model.tiny_shapes[0])), gradient))
    assert found.graphs and found.guards and not found.error


# --- all of them -----------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("name", [program.name for program in MASKS])
def test_a_mask(name: str) -> None:
    (program,) = (one for one in MASKS if one.name == name)
    assert check(Program(program.function, lambda: (program.inputs(CASES[0]), {}), program.gradient)).graphs


@pytest.mark.long
@pytest.mark.parametrize("name", [program.name for program in DATA_DEPENDENT])
def test_data(name: str) -> None:
    (program,) = (one for one in DATA_DEPENDENT if one.name == name)
    check(Program(program.function, lambda: (program.inputs(program.values[0]), {}), program.gradient))


def operators() -> list[Any]:
    """As many of PyTorch's database as `OPERATORS`, from all parts of it."""
    usable = [
        info for info in op_db if torch.float32 in info.dtypes and not info.name.startswith(("jiterator", "_refs"))
    ]
    return usable[:: max(1, len(usable) // OPERATORS)]


@pytest.mark.long
@pytest.mark.parametrize("index", range(len(operators())), ids=lambda i: operators()[i].formatted_name)
def test_an_operator(index: int) -> None:
    info = operators()[index]
    torch.manual_seed(0)
    samples = list(info.sample_inputs("cpu", torch.float32))
    sample = max(samples[:8], key=lambda one: one.input.numel() if isinstance(one.input, torch.Tensor) else 0)

    def call(*args: Any, **kwargs: Any) -> Any:
        return info.op(*args, **kwargs)

    def inputs() -> Any:
        given = ((sample.input, *sample.args), sample.kwargs)
        return pytree.tree_map_only(torch.Tensor, lambda x: x.detach().clone(), given)

    check(Program(call, inputs, gradient=info.supports_autograd))
