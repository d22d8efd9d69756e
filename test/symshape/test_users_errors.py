"""Errors of the user's arrive as themselves under symshape.compile, explain and torch.compile(backend="symshape")."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed

import symshape
from symshape.errors import ContradictionError, OptionError, ShapeConstraintError, SymshapeError
from symshape.frame_compiler import compile_with
from symshape.frontend.patches.checks.dynamo_errors import passing, users_error
from symshape.runtime.eager_errors import copy_of_tensor, with_eager_errors
from symshape.tools.measure import Graphs


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def with_message(x: torch.Tensor) -> torch.Tensor:
    torch._check(x.size(0) > 5, lambda: f"more than 5 wanted, got {x.size(0)} of {tuple(x.shape)}")
    return x * 2


def without_message(x: torch.Tensor) -> torch.Tensor:
    torch._check(x.size(0) % 2 == 0 and x.size(0) > 5)
    return x * 2


def with_size(x: torch.Tensor) -> torch.Tensor:
    n = x.shape[0]
    torch._check(n > 5, lambda: f"n is {n}")
    return x * 2


def of_rank(x: torch.Tensor) -> torch.Tensor:
    torch._check(x.dim() == 2, lambda: f"rank {x.dim()}")
    return x * 2


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("fn", [with_message, without_message, with_size])
def test_a_broken_check(fn: Callable[..., Any], fullgraph: bool) -> None:
    compiled = symshape.compile(fn, fullgraph=fullgraph)
    with Graphs() as graphs:
        for size in (3, 8, 1, 0, 12, 4):
            x = torch.ones(size, 2)
            if size > 5:
                torch.testing.assert_close(compiled(x), fn(x))
                continue
            with pytest.raises(RuntimeError) as eager:
                fn(x)
            with pytest.raises(ShapeConstraintError) as raised:
                compiled(x)
            if "Expected cond" not in str(eager.value):
                assert str(raised.value).startswith(str(eager.value))  # the sizes of the call at hand
            assert f"{__file__}:" in str(raised.value) and "next: pass inputs" in str(raised.value)
    assert graphs.graphs == 1 and not graphs.breaks


def test_a_broken_check_of_a_value() -> None:
    def fn(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        n = i.sum().item()
        torch._check(n > 2, lambda: f"n was {n}")
        return x * n

    compiled, x = symshape.compile(fn, fullgraph=True), torch.ones(2)
    torch.testing.assert_close(compiled(x, torch.tensor([5])), x * 5)
    with pytest.raises(ShapeConstraintError):
        compiled(x, torch.tensor([1]))
    torch.testing.assert_close(compiled(x, torch.tensor([7])), x * 7)


def test_a_broken_check_names_its_sizes() -> None:
    with pytest.raises(ShapeConstraintError) as raised:
        symshape.compile(with_message)(torch.ones(3, 2))
    assert raised.value.constraint == "x.size(0) >= 6" and raised.value.values == {"x.size(0)": 3}


def test_a_broken_check_of_what_is_static() -> None:
    with pytest.raises(ShapeConstraintError, match="rank 1"):
        symshape.compile(of_rank)(torch.ones(3))
    with pytest.raises(ShapeConstraintError, match="n is 3"):
        symshape.compile(with_size, dynamic=False)(torch.ones(3))

    def handled(x: torch.Tensor) -> torch.Tensor:
        try:
            torch._check(x.dim() == 2)
        except RuntimeError:
            return x - 1
        return x

    torch.testing.assert_close(symshape.compile(handled)(torch.ones(3)), torch.zeros(3))


@pytest.mark.parametrize(("check", "kind"), [(torch._check_value, ValueError), (torch._check_index, IndexError)])
def test_checks_with_types_of_their_own(check: Callable[..., Any], kind: type[Exception]) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        check(x.size(0) > 5, lambda: f"got {x.size(0)}")
        return x * 2

    compiled = symshape.compile(fn)
    for size in (3, 8, 4):
        x = torch.ones(size)
        if size > 5:
            torch.testing.assert_close(compiled(x), fn(x))
        else:
            with pytest.raises(kind, match=f"got {size}"):
                compiled(x)


def by_name(fn: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(fn, backend="symshape", dynamic=True, options=options)


def explained(fn: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return lambda x: symshape.explain(fn, x, options=options).result


@pytest.mark.parametrize("compile", [symshape.compile, by_name, explained], ids=["compile", "by name", "explain"])
def test_a_broken_assumption(compile: Callable[..., Any]) -> None:
    compiled = compile(lambda x: x * 2, assume=["x.size(0) >= 8"])
    for size in (3, 9, 4, 1, 10):
        x = torch.ones(size)
        if size >= 8:
            torch.testing.assert_close(compiled(x), x * 2)
        else:
            with pytest.raises(ShapeConstraintError, match=rf"x.size\(0\) is {size}"):
                compiled(x)


@pytest.mark.parametrize("compile", [symshape.compile, by_name, explained], ids=["compile", "by name", "explain"])
def test_wrong_options(compile: Callable[..., Any]) -> None:
    def use(**options: Any) -> None:
        compile(lambda x: x * 2, **options)(torch.ones(3))

    with pytest.raises(OptionError, match="unknown option 'tarket'"):
        use(tarket="cpu")
    with pytest.raises(OptionError, match=r"x.size\(2\) in .* is no argument, or no size of one"):
        use(assume=["x.size(2) > 3"])
    with pytest.raises(ContradictionError):
        use(assume=["x.size(0) > 3", "x.size(0) < 2"])


def test_a_name_means_the_argument_and_no_other_tensor() -> None:
    """After a graph break x is another tensor; a function that is called has an x of its own."""

    def helper(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x.sin()

    def rebound(x: torch.Tensor) -> torch.Tensor:
        y = x.sum(0)
        torch._dynamo.graph_break()
        x = y + 1
        torch._dynamo.graph_break()
        return helper(x)

    def kept(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x.sin()

    x = torch.ones(6, 16)
    torch.testing.assert_close(symshape.compile(rebound, assume=["x.size(0) <= 8"])(x), rebound(x))
    with pytest.raises(ShapeConstraintError):
        symshape.compile(kept, assume=["x.size(0) <= 8"])(torch.ones(9))


def test_errors_that_are_not_the_users_are_dynamos() -> None:
    def fail(gm: Any, inputs: Any) -> Any:
        raise KeyError("no such thing")

    with pytest.raises(ShapeConstraintError):
        symshape.compile(with_message)(torch.ones(3, 2))
    try:
        symshape.compile(with_message)(torch.ones(3, 2))
    except ShapeConstraintError:  # what is being handled is no cause of what happens next
        with pytest.raises(BackendCompilerFailed, match="no such thing"):
            compile_with(lambda x: x * 2, fail)(torch.ones(3))


def test_passing_errors_are_copied_as_what_they_are() -> None:
    errors: list[SymshapeError] = [
        OptionError("what", where="here", next_step="there"),
        ShapeConstraintError("what", constraint="n > 2", values={"n": 1}),
        ContradictionError(["n > 3", "n < 2"]),
    ]
    for error in errors:
        let_through = passing(error)
        assert isinstance(let_through, type(error)) and str(let_through) == str(error)
        assert users_error(let_through, None) is None  # it stands for no other
        for again in (pickle.loads(pickle.dumps(let_through)), copy.copy(let_through)):
            assert type(again) is type(error) and str(again) == str(error)
            assert vars(again) == vars(error)


def test_eager_errors_keep_their_types() -> None:
    def raises(x: torch.Tensor) -> torch.Tensor:
        if x.size(0) > 2:
            raise KeyError("users")
        return x

    x = torch.ones(3, 4)
    for fn, kind in (
        (raises, KeyError),
        (lambda x: x[7], IndexError),
        (lambda x: torch.cat([x, x], 3), IndexError),
        (lambda x: x @ x, RuntimeError),
        (lambda x: torch.add(x, "a"), TypeError),
        (lambda x: x.no_such_thing(), AttributeError),
    ):
        with pytest.raises(kind):
            fn(x)
        with pytest.raises(kind):
            symshape.compile(fn)(x)


def test_an_error_without_a_message_is_eager_modes() -> None:
    def fails(*_args: Any) -> Any:
        raise IndexError("index out of range")

    def unfinished(x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    graph = torch.fx.Graph()
    graph.output(graph.call_function(unfinished, (graph.placeholder("x"),)))
    run = with_eager_errors(fails, torch.fx.GraphModule(torch.nn.Module(), graph))
    with pytest.raises(NotImplementedError) as caught:
        run(torch.ones(2))
    assert caught.value.args == () and isinstance(caught.value.__cause__, IndexError)


@pytest.mark.parametrize(
    "x",
    [
        torch.arange(24.0).reshape(4, 6)[1:, ::2].t(),
        torch.ones(3, 1).expand(3, 5),
        torch.ones(0, 3),
        torch.eye(3).to_sparse(),
    ],
    ids=["strided", "expanded", "empty", "sparse"],
)
def test_a_graph_is_run_again_on_copies_of_any_layout(x: torch.Tensor) -> None:
    copied = copy_of_tensor(x)
    assert copied.layout == x.layout and torch.equal(copied.to_dense(), x.to_dense())
    if x.layout == torch.strided:
        assert copied.stride() == x.stride() and (copied.data_ptr() != x.data_ptr() or not x.numel())
