"""``symshape.compile(fn, assume=[...])``: the user's facts about sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from imported import read

import symshape
from symshape.errors import ContradictionError, OptionError, ShapeConstraintError
from symshape.frontend.importer.assumptions import ORIGIN, Assumptions
from symshape.tools.measure import Graphs
from symshape.tools.report import GraphReport


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def _fn(x: torch.Tensor, n: int = 3) -> torch.Tensor:
    return torch.softmax(x * n, -1)


def _graph(*assume: str, fn: Any = _fn, args: Any = None) -> GraphReport:
    args = args or (torch.randn(6, 16),)
    report = symshape.explain(fn, *args, options={"assume": list(assume)})
    (graph,) = report.graphs
    torch.testing.assert_close(report.result, fn(*args))
    return graph


def _facts(*assume: str, **options: Any) -> list[tuple[str, str]]:
    """What the IR takes for true because of the assumptions, with x.size(i) instead of the symbols, and where from."""
    main = read(_graph(*assume, **options).stage("imported"))
    names = {op.attributes["name"]: op.attributes["source"] for op in main.symbols.values()}
    found = []
    for op in main.named("symshape.assume"):
        if ORIGIN in op.where:
            text = op.condition
            for name, source in names.items():
                text = text.replace(name, source)
            found.append((text, op.where))
    return found


def test_an_assumption_is_a_fact_with_its_origin() -> None:
    assert _facts("x.size(0) <= 64", "x.size(1) % 8 == 0") == [
        ("L['x'].size()[0] <= 64", f"{ORIGIN}:1"),
        ("L['x'].size()[1] % 8 == 0", f"{ORIGIN}:2"),
    ]


def test_the_compiler_uses_it() -> None:
    graph = _graph("x.size(0) <= 64", "x.size(1) % 8 == 0")
    rows = {row.source: row for row in graph.symbols}
    assert rows["L['x'].size()[0]"].max == 64
    assert f"{ORIGIN}:2" in {c.source for c in graph.constraints}
    torch._dynamo.reset()
    assert _known_in_kernel(graph) > _known_in_kernel(_graph())


def _known_in_kernel(graph: GraphReport) -> int:
    _, _, kernel = graph.stage("kernels").partition("@kernel_0")
    return kernel.count("symshape.assume")


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("x.shape[0] <= 64", "x.size(0) <= 64"),
        ("x.size(-1) >= 4", "x.size(1) >= 4"),
        ("3 < x.size(0) <= 64", "x.size(0) > 3 and x.size(0) <= 64"),
        ("not x.size(0) > 64", "x.size(0) <= 64"),
        ("x.size(0) == 6 or x.size(1) % 2 == 0", "x.size(1) % 2 == 0 or 6 == x.size(0)"),
        ("max(x.size(0), 4) * 2 // 3 <= min(9, x.size(1)) - 1", "2 * max(4, x.size(0)) // 3 - min(x.size(1), 9) <= -1"),
        ("-x.size(0) != 4 - 3 * 5", "x.size(0) - 11 != 0"),
    ],
)
def test_what_can_be_said(text: str, same: str) -> None:
    ((fact, _),) = _facts(text)
    torch._dynamo.reset()
    ((other, _),) = _facts(same)
    assert {*fact.split(" or ")} == {*other.split(" or ")}


def test_integers_and_parts_of_arguments() -> None:
    def fn(xs: list[torch.Tensor], d: dict[str, torch.Tensor], n: int) -> torch.Tensor:
        return xs[1] * d["k"][0] * n

    args = ([torch.randn(3), torch.randn(5)], {"k": torch.randn(4, 5)}, 7)
    facts = _facts("d['k'].size(0) < 100", "n <= 9", fn=fn, args=args)
    assert [text for text, _ in facts] == ["L['d']['k'].size()[0] <= 99", "L['n'] <= 9"]
    torch._dynamo.reset()
    # Sizes that tracing made equal, and pinned ones, are known by all of their names.
    assert _facts("xs[1].size(0) == d['k'].size(1)", "xs[1].size(0) >= 0", fn=fn, args=args) == []


def test_a_module() -> None:
    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    assert len(_facts("x.size(0) <= 64", fn=Module())) == 1
    torch._dynamo.reset()
    assert len(_facts("args[0].size(0) <= 64", fn=torch.nn.Sequential(Module()))) == 1


def test_a_wrong_assumption_is_an_error_at_the_call() -> None:
    compiled = symshape.compile(_fn, assume=["x.size(1) % 8 == 0", "x.size(0) <= 64"])
    with Graphs() as graphs:
        for shape in ((6, 16), (64, 8), (2, 24)):
            x = torch.randn(shape)
            torch.testing.assert_close(compiled(x), _fn(x))
        assert graphs.read().graphs == 1
        for shape, words in (((6, 12), "x.size(1) is 12"), ((65, 16), "x.size(0) is 65")):
            with pytest.raises(ShapeConstraintError, match="the assumption `") as raised:
                compiled(torch.randn(shape))
            assert words in str(raised.value) and ORIGIN in str(raised.value)
        x = torch.randn(6, 16)
        torch.testing.assert_close(compiled(x), _fn(x))


def test_a_wrong_assumption_is_an_error_at_the_first_call() -> None:
    compiled = symshape.compile(_fn, assume=["x.size(0) >= 8"])
    with pytest.raises(ShapeConstraintError, match=r"`x.size\(0\) >= 8` does not hold: x.size\(0\) is 1"):
        compiled(torch.randn(1, 16))


def test_with_torch_compile() -> None:
    compiled = torch.compile(_fn, backend="symshape", dynamic=True, options={"assume": ["x.size(0) <= 8"]})
    x = torch.randn(6, 16)
    torch.testing.assert_close(compiled(x), _fn(x))
    with pytest.raises(ShapeConstraintError, match="the assumption `x.size"):
        compiled(torch.randn(9, 16))
    torch._dynamo.reset()
    with pytest.raises(OptionError, match=r"y.size\(0\) in .* is no argument, or no size of one"):
        torch.compile(_fn, backend="symshape", dynamic=True, options={"assume": ["y.size(0) <= 8"]})(x)


def test_backward_knows_it() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1)

    x = torch.randn(6, 16, requires_grad=True)
    report = symshape.explain(fn, x, options={"assume": ["x.size(1) % 8 == 0"]})
    assert [graph.kind for graph in report.graphs] == ["forward", "backward"]
    for graph in report.graphs:
        assert any(ORIGIN in op.where for op in read(graph.stage("imported")).named("symshape.assume"))


def test_after_a_graph_break() -> None:
    """The second graph does not take x: it knows nothing of the assumption, which is no error."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x.sum(0)
        torch._dynamo.graph_break()
        return y * 2

    x = torch.randn(6, 16)
    compiled = symshape.compile(fn, assume=["x.size(0) <= 8"])
    torch.testing.assert_close(compiled(x), fn(x))
    with pytest.raises(ShapeConstraintError, match="the assumption `x.size"):
        compiled(torch.randn(9, 16))


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("x.size(0) <=", "is no expression"),
        ("x.size(0)", "`x.size(0)` of"),
        ("x.size(0) + 1.5 > 2", "`1.5` of"),
        ("x.size(n) == 2", "`n` of"),
        ("x.stride(0) == 2", "`x.stride(0)` of"),
        ("__import__('os').system('true') == 0", "is not allowed"),
        ("x.size(0) in (1, 2)", "is not allowed"),
        ("x.size(0) ** 2 == 4", "is not allowed"),
        ("x.size(0) / 2 == 4", "is not allowed"),
        ("[x][0].size(0) == 1", "is not allowed"),
        ("x.size(0) % 0 == 1", "divides by zero"),
    ],
)
def test_texts_that_are_no_conditions(text: str, part: str) -> None:
    with pytest.raises(OptionError) as raised:
        symshape.compile(_fn, assume=["x.size(0) >= 1", text])
    message = str(raised.value)
    assert part in message and text in message and f"{ORIGIN}:2" in message and "next: use x.size(0)" in message


def test_unknown_arguments_are_listed() -> None:
    with pytest.raises(OptionError, match="batch in `batch <= 64` is no argument") as raised:
        symshape.compile(_fn, assume=["batch <= 64"])
    assert "names: x, n" in str(raised.value)


def test_unknown_sizes_are_listed() -> None:
    with pytest.raises(OptionError, match=r"x.size\(2\) in .* is no argument, or no size of one") as raised:
        symshape.compile(_fn, assume=["x.size(2) <= 64"])(torch.randn(6, 16))
    assert "names: x.size(0), x.size(1)" in str(raised.value)


def test_contradictions_name_a_smallest_set() -> None:
    with pytest.raises(ContradictionError) as raised:
        symshape.compile(_fn, assume=["x.size(0) >= 2 * x.size(1)", "n > 0", "x.size(1) >= 3", "x.size(0) <= 5"])
    assert [reason.text for reason in raised.value.reasons] == [
        "x.size(0) >= 2*x.size(1)",
        "x.size(1) >= 3",
        "x.size(0) <= 5",
    ]


def test_a_size_is_not_negative() -> None:
    with pytest.raises(ContradictionError):
        Assumptions(["x.size(0) < 0"])
    Assumptions(["n < 0"])


def test_it_is_a_list_of_texts() -> None:
    with pytest.raises(OptionError, match="assume cannot be 'x.size"):
        symshape.compile(_fn, assume="x.size(0) > 2")
