"""``SpecialisationPolicy``: which sizes are symbols, and what happens past the limit of a function."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

import symshape
from symshape import SpecialisationPolicy
from symshape.errors import OptionError
from symshape.frontend.bridge.frame_callback import is_argument_of_compile

FEW = SpecialisationPolicy(limit=2)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def _graphs() -> int:
    return int(counters["stats"]["unique_graphs"])


def _said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What is shown without any settings, of all loggers."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def _loop(x: torch.Tensor) -> torch.Tensor:
    y = x * 2 + 1
    total = torch.zeros(4)
    for i in range(x.shape[0]):
        total = total + y[i].sin()
    return torch.softmax(total, 0) * 3


def _while(x: torch.Tensor) -> torch.Tensor:
    n, y = x.shape[0], x * 2 + 1
    while n > 0:
        y = y + n
        n = n - 1
    return y.relu() * 3


def _comprehension(x: torch.Tensor) -> torch.Tensor:
    y = x * 2 + 1
    rows = [y[i] * i for i in range(y.shape[0])]
    return torch.stack(rows).cos() if rows else y


def _split(x: torch.Tensor) -> torch.Tensor:
    y = x * 2 + 1
    return torch.stack([part.sum() for part in y.split(2)]).relu() * 3 if len(x) else y


def _rows(x: torch.Tensor) -> torch.Tensor:
    y, total = x * 2 + 1, torch.zeros(4)
    for row in y:
        total = total + row
    return total.relu() * 3


def _reshape(x: torch.Tensor) -> torch.Tensor:
    y = x * 2 + 1
    n = int(x.shape[0])
    return y.reshape({3: 4}.get(n, n or 1), -1).relu() * 3


def _summed(y: torch.Tensor) -> torch.Tensor:
    y, total = y.sin() + 1, torch.zeros(4)
    for i in range(y.shape[0]):
        total = total + y[i]
    return total.cos()


def _callee(x: torch.Tensor) -> torch.Tensor:
    y = x * 2 + 1
    return torch.softmax(_summed(y), 0) * y.sum()


def _paths(x: torch.Tensor) -> torch.Tensor:
    y, n = x * 2 + 1, x.shape[0]
    if n <= 2:
        return y.sin()
    if n <= 4:
        return y.cos() * 2
    if n <= 6:
        return y.tanh() * 3
    return y.relu() * 4


def _in_block(x: torch.Tensor) -> torch.Tensor:
    y = x * 2 + 1
    with torch.no_grad():
        for i in range(x.shape[0]):
            y = y + i
    return y.relu() * 3


def _two(x: torch.Tensor) -> torch.Tensor:
    y = x * 2 + 1
    for i in range(x.shape[0]):
        for _ in range(x.shape[1] - i):
            y = y + i
    return y.relu() * 3


# The graphs that are left when there are two for values of the size: see each.
PROGRAMS: dict[Callable[..., Any], int] = {
    _while: 3,  # what comes before the loop
    _comprehension: 3,
    _rows: 3,
    _in_block: 3,
    _two: 3,
    _reshape: 4,  # before and after the call
    _callee: 5,  # before and after the call, and what comes before the loop of the function that is called
    _split: 5,  # before, and two for what follows, which has a list of so many
}


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_past_the_limit(function: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    compiled = symshape.compile(function, policy=FEW)
    for n in (3, 5, 2, 9, 0, 1, 14, 5, 7):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), function(x))
    assert 3 <= _graphs() <= PROGRAMS[function]
    (message,) = _said(caplog)
    assert "2 values of x.size(0)" in message and function.__name__ in message


def test_past_the_limit_in_the_arguments_of_an_operator(caplog: pytest.LogCaptureFixture) -> None:
    """C++ makes an error of its own of what is raised while it reads them."""

    def function(x: torch.Tensor, number: float) -> torch.Tensor:
        return (x * 2).var(1, correction=number) + 1

    compiled = symshape.compile(function, policy=FEW)
    x = torch.randn(3, 4, dtype=torch.complex64)
    for number in (0.5, 0.25, 1.5, 2.5):
        torch.testing.assert_close(compiled(x, number), function(x, number))
    assert _graphs() <= 4 and len(_said(caplog)) == 1


def test_a_loop_over_fifty_lengths(caplog: pytest.LogCaptureFixture) -> None:
    """Five graphs with the default policy: four for lengths, and one for what comes before the loop."""
    compiled = symshape.compile(_loop)
    for n in range(50):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), _loop(x))
    assert _graphs() == 5 and len(_said(caplog)) == 1
    frames = counters["frames"]["total"]
    compiled(torch.randn(2, 4))
    compiled(torch.randn(60, 4))
    assert counters["frames"]["total"] == frames
    caplog.clear()
    x = torch.randn(9, 4, requires_grad=True)  # another graph, and no other message
    other = x.detach().clone().requires_grad_()
    compiled(x).sum().backward()
    _loop(other).sum().backward()
    torch.testing.assert_close(x.grad, other.grad)
    assert _graphs() == 6 and not _said(caplog)


def test_what_comes_before_is_compiled() -> None:
    """Past the limit only the loop and what follows it are operators of PyTorch."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(x) * 2
        for i in range(x.shape[0]):
            y = y - i
        return y.sin()

    def operators(run: Callable[..., Any], n: int) -> set[str]:
        with torch.profiler.profile() as profile:
            run(torch.ones(n, 4))
        return {event.name for event in profile.events()} & {"aten::tanh", "aten::mul", "aten::sub", "aten::sin"}

    compiled = symshape.compile(function, policy=FEW)
    for n in (2, 3, 4):
        compiled(torch.ones(n, 4))
    assert operators(function, 9) == {"aten::tanh", "aten::mul", "aten::sub", "aten::sin"}
    assert operators(compiled, 9) == {"aten::sub", "aten::sin"}


def test_one_graph_is_never_broken() -> None:
    compiled = symshape.compile(_loop, fullgraph=True, policy=SpecialisationPolicy(limit=1))
    for n in (2, 3, 4):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), _loop(x))
    assert _graphs() == 3


@pytest.mark.skipif(not is_argument_of_compile("recompile_limit"), reason="PyTorch has no such argument")
def test_before_dynamo_gives_up() -> None:
    """The last graph that ``recompile_limit`` leaves is one for all values."""
    compiled = symshape.compile(_loop, recompile_limit=2)
    for n in (2, 3, 4, 5):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), _loop(x))
    assert _graphs() == 2 and counters["frames"]["total"] == 2


def test_many_lines_that_ask(caplog: pytest.LogCaptureFixture) -> None:
    """Each with two answers: they are refused when there would be no other graph."""
    calls = (1, 3, 5, 8, 2, 4, 6, 9, 0)
    for limit, messages in ((8, 0), (2, 1)):
        torch._dynamo.reset()
        caplog.clear()
        compiled = symshape.compile(_paths, policy=FEW)
        with torch._dynamo.config.patch(recompile_limit=limit):
            for n in calls:
                x = torch.randn(n, 4)
                torch.testing.assert_close(compiled(x), _paths(x))
        assert len(_said(caplog)) == messages


class _Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls


@pytest.mark.parametrize("integers", [1, 3])
def test_an_integer_that_keeps_changing(integers: int) -> None:
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(3))  # Dynamo has made its table of methods
    before = _graphs()
    module = _Counting()
    compiled = symshape.compile(module, policy=SpecialisationPolicy(integers=integers))
    for call in range(1, 13):
        assert torch.equal(compiled(torch.ones(3)), torch.full((3,), float(call)))
    assert module.calls == 12 and _graphs() == before + integers + 1


def _plain(x: torch.Tensor, k: int = 3) -> torch.Tensor:
    return x * k


SCALES = [2.0]
SHAPES = ((4, 5), (3, 5), (3, 6), (7, 5))


@pytest.mark.parametrize(
    "policy, graphs",
    [
        (SpecialisationPolicy(), 1),
        (SpecialisationPolicy(static=["x.size(1)"]), 2),
        (SpecialisationPolicy(static=["x"]), 4),
        (SpecialisationPolicy(sizes="changed"), 3),
        (SpecialisationPolicy(sizes="static"), 4),
        (SpecialisationPolicy(sizes="static", dynamic=["x.shape[0]"]), 2),
        (SpecialisationPolicy(sizes="static", dynamic=["x"]), 1),
    ],
)
def test_which_sizes_are_symbols(policy: SpecialisationPolicy, graphs: int) -> None:
    compiled = symshape.compile(_plain, policy=policy)
    for shape in SHAPES:
        x = torch.randn(shape)
        assert torch.equal(compiled(x), _plain(x))
    assert _graphs() == graphs


@pytest.mark.parametrize(
    "policy, graphs",
    [
        (SpecialisationPolicy(), 1),
        (SpecialisationPolicy(static=["k"]), 3),
        (SpecialisationPolicy(sizes="static", dynamic=["k"]), 1),
    ],
)
def test_which_integers_are_symbols(policy: SpecialisationPolicy, graphs: int) -> None:
    compiled = symshape.compile(_plain, policy=policy)
    x = torch.randn(4, 5)
    for k in (5, -2, 0):
        assert torch.equal(compiled(x, k), _plain(x, k))
    assert _graphs() == graphs


def _mark(name: str, x: torch.Tensor) -> torch.Tensor:
    from torch._dynamo import decorators

    getattr(decorators, name)(x, 1)
    return x


@pytest.mark.parametrize("mark, graphs", [("mark_dynamic", 1), ("mark_unbacked", 1), ("mark_static", 2)])
def test_marks(mark: str, graphs: int) -> None:
    compiled = symshape.compile(_plain)
    for shape in SHAPES:
        x = torch.randn(shape)
        assert torch.equal(compiled(_mark(mark, x.clone())), _plain(x))
    assert _graphs() == graphs


CONTRADICTIONS: list[tuple[tuple[str, ...], SpecialisationPolicy, str, str, str]] = [
    (("mark_static", "mark_dynamic"), SpecialisationPolicy(), "", "mark_dynamic", "mark_static"),
    (("mark_static", "mark_unbacked"), SpecialisationPolicy(), "", "mark_unbacked", "mark_static"),
    (("mark_dynamic",), SpecialisationPolicy(static=["x"]), "", "mark_dynamic", "policy's `static`"),
    (("mark_static",), SpecialisationPolicy(dynamic=["x.size(1)"]), "", "policy's `dynamic`", "mark_static"),
    (("mark_static",), SpecialisationPolicy(), "dynamic_sources", "dynamic_sources", "mark_static"),
    ((), SpecialisationPolicy(static=["x.size(1)"]), "unbacked_sources", "unbacked_sources", "policy's `static`"),
]


@pytest.mark.parametrize("marks, policy, setting, dynamic, static", CONTRADICTIONS)
def test_contradictions(
    marks: tuple[str, ...], policy: SpecialisationPolicy, setting: str, dynamic: str, static: str
) -> None:
    x = torch.randn(3, 4)
    for mark in marks:
        _mark(mark, x)
    compiled = symshape.compile(_plain, policy=policy)
    sources = {setting: "L['x']:1" if torch.__version__ >= "2.13" else "L['x']"} if setting else {}
    with torch.compiler.config.patch(**sources), pytest.raises(OptionError) as raised:
        compiled(x)
    what = str(raised.value).partition("\n")[0]
    assert what.startswith("x.size(1) is dynamic by ") and dynamic in what.partition(", and ")[0]
    assert static in what.partition(", and ")[2]


@pytest.mark.skipif("shapes_spec" not in torch.compile.__kwdefaults__, reason="PyTorch has no shapes_spec")
def test_marks_and_a_specification() -> None:
    from torch.fx.experimental.dynamic_spec import ParamsSpec, ShapesSpec, ShapeVar, TensorSpec

    spec = ShapesSpec(ParamsSpec({"x": TensorSpec([ShapeVar("n"), None])}))
    compiled = symshape.compile(lambda x: x * 2, shapes_spec=spec)
    assert torch.equal(compiled(torch.ones(3, 4)), torch.full((3, 4), 2.0))
    with pytest.raises(OptionError, match=r"x.size\(1\) is dynamic by .*mark_dynamic, and static by shapes_spec"):
        compiled(_mark("mark_dynamic", torch.ones(5, 4)))
    with pytest.raises(OptionError, match="policy and shapes_spec both say"):
        symshape.compile(_plain, shapes_spec=spec, policy=SpecialisationPolicy(static=["x"]))


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"sizes": "some"}, "sizes cannot be 'some'"),
        ({"static": "x"}, "static cannot be 'x'"),
        ({"dynamic": ["x.size(a)"]}, r"dynamic cannot have 'x.size\(a\)'"),
        (
            {"static": ["x.size(1)"], "dynamic": ["x"]},
            r"x.size\(1\) is among the static sizes, and x among the dynamic",
        ),
        ({"limit": 0}, "limit cannot be 0"),
        ({"integers": True}, "integers cannot be True"),
    ],
)
def test_what_is_no_policy(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        SpecialisationPolicy(**fields)


def test_names_of_nothing() -> None:
    unknown = SpecialisationPolicy(dynamic=["nothing.size(0)"])
    refused = pytest.raises(
        OptionError, match=r"policy: nothing.size\(0\) is no argument, or no size of one\n  next: names: x, k"
    )
    for make in (
        lambda: symshape.compile(_plain, policy=unknown),
        lambda: symshape.explain(_plain, torch.ones(3), options={"policy": unknown}),
        lambda: symshape.jit(_plain, options={"policy": unknown}),
    ):
        with refused:
            make()

    def closed(x: torch.Tensor) -> torch.Tensor:
        local = x * SCALES[0]
        return local.sum(-1)

    inner = SpecialisationPolicy(static=["SCALES[0]", "local.size(0)"])  # of a global, and of the rest after a break
    assert torch.equal(symshape.compile(closed, policy=inner)(torch.ones(3, 4)), torch.full((3,), 8.0))
    module = SpecialisationPolicy(static=["self.weight", "input"])  # whose arguments a wrapper of Dynamo's takes
    linear = torch.nn.Linear(4, 4)
    torch.testing.assert_close(symshape.compile(linear, policy=module)(torch.ones(3, 4)), linear(torch.ones(3, 4)))


def test_where_there_is_no_policy() -> None:
    with pytest.raises(OptionError, match="policy cannot be 3"):
        symshape.compile(_plain, policy=3)
    with pytest.raises(OptionError, match="dynamic=False contradicts"):
        symshape.compile(_plain, dynamic=False, policy=SpecialisationPolicy(sizes="changed"))
    with pytest.raises(OptionError, match="torch.compile takes no policy"):
        torch.compile(_plain, backend="symshape", options={"policy": FEW})(torch.ones(3))
    for policy, message in ((FEW, "limit has no meaning"), (SpecialisationPolicy(sizes="changed"), "cannot be 'chang")):
        with pytest.raises(OptionError, match=message):
            symshape.jit(_plain, options={"policy": policy})


def test_entries() -> None:
    """``symshape.jit`` takes what a policy says of sizes."""
    for policy, count in ((SpecialisationPolicy(static=["x.size(1)"]), 1), (SpecialisationPolicy(sizes="static"), 2)):
        jitted = symshape.jit(lambda x: x * 2, options={"policy": policy})
        for shape in SHAPES[:2]:
            x = torch.randn(shape)
            assert torch.equal(jitted(x), x * 2)
        assert len(jitted.entries) == count
    policy = SpecialisationPolicy(static=["x.size(0)"])
    jitted = symshape.jit(_plain, dynamic_shapes={"x": {0: "rows"}}, options={"policy": policy})
    with pytest.raises(
        OptionError, match=r"x.size\(0\) is static by the policy's `static`, and dynamic by dynamic_shap"
    ):
        jitted(torch.ones(3, 4))


def test_the_level_of_the_message(caplog: pytest.LogCaptureFixture) -> None:
    """Each further graph is told at a level that is off, the limit at one that is on."""
    caplog.set_level(logging.INFO, "symshape.graphs")
    compiled = symshape.compile(_loop, policy=FEW)
    for n in (2, 3, 4, 5):
        compiled(torch.randn(n, 4))
    levels = [record.levelname for record in caplog.records if record.name == "symshape.graphs"]
    assert levels == ["INFO", "INFO", "WARNING"]
