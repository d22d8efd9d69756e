"""Programs whose launches are CUDA graphs, with a stand-in for the GPU: results are those of the program itself."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_graphs import FakeDevice
from torch_mlir import ir

import symshape
from symshape import compiler, dialects
from symshape.cache import compiled_graphs
from symshape.codegen.host.uncaptured import why_uncaptured
from symshape.dialects.accessors import main_functions
from symshape.runtime.triton import cuda_device, cuda_graphs
from symshape.runtime.triton.cuda_graphs import GraphedProgram, Uncaptured
from symshape.runtime.triton.graph_policy import GraphPolicy


class Always(GraphPolicy):
    """Captures whatever it costs."""

    def pays(self, launches: int, copies: int, size: int) -> bool:
        return True


ALWAYS = Always(calls=1)
Run = Callable[[list[Any]], Any]


def program(args: list[Any]) -> Any:
    """Results of each kind: new memory, twice in two ways; an input, and a view of it; a size; nothing."""
    x, w, n = args
    args.clear()
    y = torch.mm(x, w)
    z = torch.relu(y) * n
    return z, y, y.t(), w, x, x.t(), torch.exp(z)[:, 1:], n, None


def graphed(run: Run = program, device: FakeDevice | None = None, policy: GraphPolicy = ALWAYS, **more: Any) -> Any:
    given = {"lasting": {1}, "launches": 50, **more}
    return GraphedProgram(Uncaptured(run, **given), device or FakeDevice(), policy)


def check(run: Any, *args: Any, plain: Run = program) -> Any:
    """One call, compared with the program."""
    given = list(args)
    result = run(given)
    assert given == []
    compare(result, plain(list(args)))
    return result


def compare(result: Any, expected: Any) -> None:
    assert len(result) == len(expected)
    for found, wanted in zip(result, expected, strict=True):
        if isinstance(wanted, torch.Tensor):
            torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
            assert found.stride() == wanted.stride()
        else:
            assert repr(found) == repr(wanted)


def inputs(rows: int) -> list[torch.Tensor]:
    """Of each layout: contiguous, transposed, with gaps, expanded."""
    return [
        torch.randn(rows, 4),
        torch.randn(4, rows).t(),
        torch.randn(rows, 9)[:, 1::2],
        torch.randn(1, 4).expand(rows, 4),
        torch.randn(rows, 1).expand(rows, 4),
    ]


@pytest.mark.parametrize("rows", [0, 1, 2, 5])
def test_results_are_the_programs(rows: int) -> None:
    run, w = graphed(), torch.randn(4, 5)
    kept = []
    for _ in range(4):
        for x in inputs(rows):
            kept.append((check(run, x, w, 2), program([x, w, 2])))
    for found, expected in kept:  # whoever holds a result has it for good
        compare(found, expected)
    assert all(graph.replays for graph in run.device.graphs)
    assert len(run.graphs) == len({(tuple(x.shape), x.stride()) for x in inputs(rows)})


def test_results_are_what_they_are_to_autograd_and_to_each_other() -> None:
    def views(args: list[Any]) -> Any:
        (x,) = args
        args.clear()
        y = x + 1
        with torch.enable_grad():
            return y, y.as_strided((2,), (1,), 1), x.as_strided((2,), (1,), 1), torch.ops.aten.alias(y.detach())[1:]

    run, x = graphed(views, lasting=set()), torch.randn(4)
    for _ in range(3):
        y, of_y, of_x, own = check(run, x, plain=views)
        assert of_y.data_ptr() == own.data_ptr() == y.data_ptr() + 4 and of_x.data_ptr() == x.data_ptr() + 4
        assert of_y._base is not None and of_x._base is x and y._base is None
    assert run.graphs


def test_inputs_may_lie_anywhere() -> None:
    run, w = graphed(), torch.randn(4, 5)
    kept = [torch.randn(3, 4) for _ in range(6)]  # all alive: no two at one address
    for x in kept:
        check(run, x, w, 1)
    (graph,) = run.device.graphs
    assert graph.replays == 5


def test_an_input_that_stays_is_not_copied_until_it_moves() -> None:
    run, w, x = graphed(policy=Always(calls=2)), torch.randn(4, 5), torch.randn(3, 4)
    for _ in range(5):
        x.normal_()
        check(run, x, w, 1)
    (recording,) = run.graphs.values()
    assert recording.copies.inputs == [] and recording.graph.replays == 3
    for other in (torch.randn(3, 4), x, torch.randn(3, 4), torch.randn(3, 4), x):
        check(run, other, w, 1)
    (again,) = run.graphs.values()
    assert (
        recording.graph.is_reset
        and [at for _, positions in again.copies.inputs for at in positions] == [0]
        and again.graph.replays == 3
    )
    for _ in range(6):  # and for good
        check(run, x, w, 1)
    assert len(run.device.graphs) == 2


def test_what_runs_as_it_is_holds_no_lock() -> None:
    """Other threads may replay meanwhile, and the program may wait for one."""
    device = FakeDevice()
    free: list[bool] = []

    def other(args: list[Any]) -> Any:
        def take() -> None:
            free.append(device.lock.acquire(timeout=5))
            if free[-1]:
                device.lock.release()

        thread = threading.Thread(target=take)
        thread.start()
        thread.join()
        return program(args)

    run, w, x = graphed(other, device, Always(calls=3)), torch.randn(4, 5), torch.randn(3, 4)
    run([x, w, 1])
    run([x, w, 2j])  # nothing that a graph is found by
    assert free == [True, True] and any("complex" in remark for remark in run.remarks)


def test_arguments_like_those_before_need_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    run, w, x = graphed(), torch.randn(4, 5), torch.randn(3, 4)
    for _ in range(2):
        check(run, x, w, 1)
    made: list[int] = []
    key_of = run._key
    monkeypatch.setattr(run, "_key", lambda args: made.append(1) or key_of(args))
    check(run, torch.randn(3, 4), w, 1)
    assert not made
    others = [(x, w, 2), (x, w, True), (torch.randn(4, 3).t(), w, 1), (torch.randn(2, 4), w, 1), (x, w.clone(), 1)]
    for count, one in enumerate(others, 1):  # another value, type, strides, sizes, address
        check(run, *one)
        assert len(made) == count


@pytest.mark.parametrize("number", [0.0, float("nan")])
def test_floats_are_told_apart(number: float) -> None:
    run, w, x = graphed(), torch.randn(4, 5), torch.randn(3, 4)
    for _ in range(3):
        check(run, x, w, number)
        check(run, x, w, -number)
    assert len(run.graphs) == (2 if number == 0 else 1)


def test_a_parameter_is_read_where_it_is() -> None:
    run, x = graphed(), torch.randn(3, 4)
    first, second = torch.randn(4, 5), torch.randn(4, 5)
    for w in [first, first, second, second, first, second]:
        check(run, x, w, 1)
        w.add_(1)  # by an optimiser
        check(run, x, w, 1)
    assert len(run.graphs) == 2  # one for each set of parameters: layers share a program
    before = len(run.device.graphs)
    first.data = torch.randn(4, 5)  # another one under the same name
    for _ in range(3):
        check(run, x, first, 1)
    assert len(run.device.graphs) == before + 1


def test_every_combination_of_sizes_and_numbers_has_its_own() -> None:
    run, w = graphed(), torch.randn(4, 5)
    numbers = (1, True, 1.0, -0.0, 0.0, 2, float("inf"), float("nan"))
    for n in numbers * 3:
        check(run, torch.randn(2, 4), w, n)
    assert len(run.graphs) == len(numbers)


def test_calls_come_before_a_capture() -> None:
    run, w = graphed(policy=Always(calls=3)), torch.randn(4, 5)
    for i in range(8):
        check(run, torch.randn(2, 4), w, 1)
        check(run, torch.randn(3 + i, 4), w, 1)
        assert len(run.device.graphs) == (i >= 3)


def test_the_least_recently_used_graph_goes() -> None:
    policy = Always(calls=1, graphs=2)
    run, w = graphed(policy=policy), torch.randn(4, 5)
    for rows in (1, 1, 2, 2, 1, 3, 3, 1):
        check(run, torch.randn(rows, 4), w, 1)
    first, second, third = run.device.graphs
    assert second.is_reset and not first.is_reset and not third.is_reset and run.device.waits == 1
    assert len(run.graphs) == 2


def test_more_sizes_than_graphs_are_not_captured_over_and_over() -> None:
    run, w = graphed(policy=Always(calls=1, graphs=2)), torch.randn(4, 5)
    for _ in range(60):
        for rows in range(6):
            check(run, torch.randn(rows, 4), w, 1)
    assert len(run.device.graphs) < 20


def test_counts_of_calls_are_bounded() -> None:
    run, w = graphed(policy=GraphPolicy(calls=5, buckets=3)), torch.randn(4, 5)
    for rows in range(10):
        check(run, torch.randn(rows, 4), w, 1)
    assert len(run.buckets) == 3


def test_what_saves_nothing_is_not_captured() -> None:
    assert GraphPolicy().pays(launches=50, copies=2, size=1 << 20)
    assert not GraphPolicy().pays(launches=3, copies=2, size=0)
    assert not GraphPolicy().pays(launches=50, copies=2, size=1 << 30)
    run = graphed(policy=GraphPolicy(calls=1), launches=2)
    for _ in range(4):
        check(run, torch.randn(3, 4), torch.randn(4, 5), 1)
    for _ in range(4):
        check(run, torch.randn(3, 4), WEIGHT, 1)
    assert not run.device.graphs and "2 launches are no more work than copies" in run.remarks[0]


WEIGHT = torch.randn(4, 5)


def test_a_call_in_somebody_elses_capture_runs_as_it_is() -> None:
    run, w = graphed(), torch.randn(4, 5)
    run.device.foreign = True
    for _ in range(4):
        check(run, torch.randn(3, 4), w, 1)
    assert not run.device.graphs and not run.buckets
    run.device.foreign = False
    for _ in range(3):
        check(run, torch.randn(3, 4), w, 1)
    run.device.foreign = True
    check(run, torch.randn(3, 4), w, 1)
    (graph,) = run.device.graphs
    assert graph.replays == 2


def test_a_program_that_calls_another_is_one_graph() -> None:
    device = FakeDevice()
    inner = graphed(device=device)

    def outer(args: list[Any]) -> Any:
        x, w = args
        args.clear()
        return (inner([x, w, 2])[0] + 1,)

    def plain(args: list[Any]) -> Any:
        return (program([*args, 2])[0] + 1,)

    run, w = graphed(outer, device, Always(calls=0)), torch.randn(4, 5)
    for _ in range(3):
        check(run, torch.randn(3, 4), w, plain=plain)
    assert [graph.replays for graph in device.graphs] == [3]
    assert not inner.graphs


def test_an_error_in_a_capture_ends_the_attempts() -> None:
    device, failing = FakeDevice(), [True]

    def run_(args: list[Any]) -> Any:
        if device.tape is not None and failing:
            torch.zeros(3)
            raise RuntimeError("operation not permitted when stream is capturing")
        return program(args)

    run, w = graphed(run_, device), torch.randn(4, 5)
    for _ in range(4):
        check(run, torch.randn(3, 4), w, 1)
    assert device.tape is None and not device.recording and not device.graphs
    assert run.remarks == [
        "runs as it is: the capture failed: RuntimeError: operation not permitted when stream is capturing"
    ]


def test_an_error_of_the_program_is_its_own() -> None:
    def fails(args: list[Any]) -> Any:
        raise ValueError("sizes")

    run = graphed(fails)
    for _ in range(4):
        with pytest.raises(ValueError, match="sizes"):
            run([torch.randn(2)])
    assert not run.graphs


def test_what_a_kernel_finds_is_raised_after_the_replay() -> None:
    found = [0]

    def look() -> None:
        if found[0]:
            raise IndexError("index out of range")

    run, w = graphed(check=look), torch.randn(4, 5)
    for _ in range(3):
        check(run, torch.randn(3, 4), w, 1)
    found[0] = 1
    with pytest.raises(IndexError):
        run([torch.randn(3, 4), w, 1])


def test_what_a_kernel_has_found_before_a_capture_is_raised() -> None:
    word = [0]

    def look() -> None:
        found, word[0] = word[0], 0
        if found:
            raise IndexError("index out of range")

    def looks(args: list[Any]) -> Any:  # as compiled code does behind each launch
        look()
        return program(args)

    run, w = graphed(looks, check=look), torch.randn(4, 5)
    check(run, torch.randn(3, 4), w, 1)
    word[0] = 1
    with pytest.raises(IndexError):
        run([torch.randn(3, 4), w, 1])
    for _ in range(3):
        check(run, torch.randn(3, 4), w, 1)
    assert [graph.replays for graph in run.device.graphs] == [3]


class Odd(torch.Tensor):
    """A subclass has rules of its own."""


@pytest.mark.parametrize(
    ("x", "reason"),
    [
        (torch.randn(6).as_strided((2, 4), (1, 1)), "elements of argument 0 overlap"),
        (torch.randn(2, 4).as_subclass(Odd), "argument 0 is a Odd"),
        (torch.randn(2, 4, device="meta"), "argument 0 lies on meta"),
        (torch.randn(9, 9)[:, :1], "argument 0 is spread over much memory"),
    ],
)
def test_inputs_that_cannot_be_copied(x: torch.Tensor, reason: str) -> None:
    run = graphed(lambda args: (args[0] + 1,))
    for _ in range(4):
        assert run([x])[0].shape == x.shape
    assert not run.graphs and run.remarks == [f"runs as it is: {reason}"]


@pytest.mark.parametrize(
    ("results", "reason"),
    [
        (lambda y: (y, y.view(torch.int32)), "results of several types share memory"),
        (lambda y: (y, torch.empty(2, device="meta")), "a result lies on meta"),
    ],
)
def test_results_that_cannot_be_made_again(results: Callable[[torch.Tensor], Any], reason: str) -> None:
    """What is found out in a capture ends it, and those of other sizes are not affected."""
    run = graphed(lambda args: results(args[0] + 1) if len(args[0]) == 2 else (args[0] + 1,), lasting=set())
    for rows in (2, 3) * 4:
        x = torch.randn(rows)
        assert torch.equal(run([x])[0], x + 1)
    assert len(run.graphs) == 1 and not run.device.recording
    assert run.remarks == [f"runs as it is: {reason}", "captured for each combination of sizes that recurs"]


def test_whether_elements_overlap() -> None:
    for seed in range(200):
        generator = random.Random(seed)
        sizes = [generator.choice((0, 1, 2, 3)) for _ in range(3)]
        x = torch.arange(64).as_strided(sizes, [generator.choice((1, 2, 3, 4, 6, 9, 12)) for _ in range(3)])
        repeats = len(set(x.flatten().tolist())) < x.numel()
        assert cuda_graphs.overlaps(x) or not repeats
        assert not cuda_graphs.overlaps(torch.empty(sizes).permute(generator.sample(range(3), 3)))


def test_random_numbers_are_drawn_at_each_replay() -> None:
    def draws(args: list[Any]) -> Any:
        (x,) = args
        args.clear()
        return (x + torch.rand(x.shape),)

    run, x = graphed(draws, lasting=set()), torch.zeros(5)
    torch.manual_seed(0)
    found = [run([x])[0] for _ in range(5)]
    torch.manual_seed(0)
    expected = [draws([x])[0] for _ in range(5)]
    assert run.graphs
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


def test_constants_are_read_where_they_are() -> None:
    constant = torch.randn(4)

    def adds(args: list[Any]) -> Any:
        (x,) = args
        args.clear()
        return x + constant, constant, constant[1:]

    run = graphed(adds, lasting=set(), constants=[constant])
    for _ in range(3):
        result = check(run, torch.randn(4), plain=adds)
        assert result[1] is constant and result[2].data_ptr() == constant[1:].data_ptr()
    constant.data = torch.randn(4)
    for _ in range(3):
        check(run, torch.randn(4), plain=adds)


def test_threads_take_turns() -> None:
    run, w = graphed(), torch.randn(4, 5)
    errors: list[BaseException] = []

    def work(rows: int) -> None:
        try:
            for _ in range(20):
                check(run, torch.randn(rows, 4), w, rows)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(1 + i % 3,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and len(run.graphs) == 3


def test_inference_mode_and_gradients_are_the_callers() -> None:
    run, w = graphed(), torch.randn(4, 5)
    for mode in (torch.inference_mode, torch.no_grad, torch.inference_mode, torch.enable_grad, torch.no_grad):
        with mode():
            result = run([torch.randn(3, 4), w, 1])
            assert result[0].is_inference() == (mode is torch.inference_mode) and not result[0].requires_grad
    assert run.graphs


# --- compiled programs ------------------------------------------------------------------------------------------------


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDevice]:
    """Graphs of programs whose kernels Triton interprets."""
    fake, load_kernels = FakeDevice(), compiler.load_kernels

    def launched(*args: Any, **kwargs: Any) -> Any:
        return {name: fake.launched(kernel) for name, kernel in load_kernels(*args, **kwargs).items()}

    monkeypatch.setattr(compiler, "load_kernels", launched)
    monkeypatch.setattr(compiled_graphs, "load_kernels", launched)
    monkeypatch.setattr(cuda_device, "device_of_graphs", lambda _device: fake)
    monkeypatch.setattr(cuda_device, "why_no_graphs", lambda _device: "")
    monkeypatch.setattr(cuda_graphs, "GraphPolicy", lambda: ALWAYS)
    torch._dynamo.reset()  # what was compiled has the device of another test
    yield fake


OPTIONS = {"target": "triton", "cuda_graphs": True, "cache": False, "strict": True}


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 7), torch.nn.Linear(7, 6)
        self.norm = torch.nn.LayerNorm(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.second(torch.nn.functional.gelu(self.first(x))))


def test_a_compiled_model(device: FakeDevice) -> None:
    model = torch.nn.Sequential(Layer(), Layer())
    compiled = symshape.compile(model, **OPTIONS)
    with torch.no_grad():
        kept = []
        for rows in [3, 3, 3, 1, 1, 5, 1, 3, 0, 0, 0, 5]:
            x = torch.randn(rows, 6) if rows % 2 else torch.randn(6, rows).t()
            kept.append((compiled(x), model(x)))
        for found, expected in kept:
            torch.testing.assert_close(found, expected)
    assert sum(graph.replays for graph in device.graphs) >= 4


@pytest.mark.parametrize("calls", [1, 2])
def test_training(device: FakeDevice, calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward and backward are programs of their own. What is saved between them lives as long as it is held: two
    forwards come before their backwards. After two calls what is saved may be read where it lies."""
    monkeypatch.setattr(cuda_graphs, "GraphPolicy", lambda: Always(calls=calls))
    model, other = Layer(), Layer()
    other.load_state_dict(model.state_dict())
    compiled = symshape.compile(model, **OPTIONS)
    steps = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, other)]
    for rows in (4, 4, 4, 2, 4, 4):
        x, y = torch.randn(rows, 6), torch.randn(rows, 6)
        for run, step in zip((compiled, other), steps, strict=True):
            step.zero_grad()
            first, second = run(x), run(y)
            second.square().mean().backward()
            first.square().mean().backward()
            step.step()
        for one, wanted in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(one, wanted)
    assert len(device.graphs) >= 4 // calls and all(graph.replays for graph in device.graphs)  # rows of 2 come twice


def test_parameters_are_not_copied(device: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []
    record = cuda_graphs.record

    def noted(program: Any, at: Any, args: Any, moving: Any, fixed: Any) -> Any:
        copied.extend(len(args[i].shape) and args[i].numel() for i in moving)
        return record(program, at, args, moving, fixed)

    monkeypatch.setattr(cuda_graphs, "record", noted)
    for compile_ in (lambda m: symshape.compile(m, **OPTIONS), lambda m: symshape.jit(m, options=OPTIONS)):
        model = Layer()
        run = compile_(model)
        with torch.no_grad():
            for _ in range(3):
                x = torch.randn(50, 6)
                torch.testing.assert_close(run(x), model(x))
        assert copied == [300]
        copied.clear()
        for _ in range(3):
            run(torch.randn(50, 6)).sum().backward()
        if isinstance(run, torch._dynamo.OptimizedModule):  # without Dynamo transposed weights are saved for backward
            assert copied and set(copied) <= {50 * 6, 50 * 7, 50}  # saved rows and gradients of rows
        copied.clear()


def test_a_kernel_that_checks_indices(device: FakeDevice) -> None:
    table = torch.nn.Embedding(10, 4)
    run = symshape.compile(table, **OPTIONS)
    with torch.no_grad():
        for i in (torch.randint(10, (3,)) for _ in range(4)):
            torch.testing.assert_close(run(i), table(i))
    assert device.graphs


def test_inputs_that_are_written_to(device: FakeDevice) -> None:
    """AOTAutograd writes them after the graph."""

    def count(x: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        steps.add_(1)
        x.mul_(2)
        return x.sum(1) + steps

    run = symshape.compile(count, **OPTIONS)
    for rows in (3, 3, 3, 1, 3):
        x = torch.randn(rows, 4)
        given, plain = [x.clone(), torch.zeros(1)], [x.clone(), torch.zeros(1)]
        torch.testing.assert_close(run(*given), count(*plain))
        torch.testing.assert_close(given, plain)
    assert device.graphs


@pytest.mark.parametrize("jit", [False, True])
def test_offsets_of_inputs_in_their_memory(device: FakeDevice, jit: bool) -> None:
    """Dynamo makes an argument of an offset, which a graph is found by; else a copy would show another one."""

    def scaled(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * x.storage_offset(), x[1:]

    run = symshape.jit(scaled, options=OPTIONS) if jit else symshape.compile(scaled, **OPTIONS)
    memory = torch.randn(40)
    for offset in (3, 3, 5, 3, 5, 5, 7, 0, 3):
        x = memory[offset : offset + 6]
        found, rest = run(x)
        torch.testing.assert_close(found, x * offset)
        assert rest.data_ptr() == x[1:].data_ptr() and rest.storage_offset() == offset + 1
    assert bool(device.graphs) != jit


def test_slices_of_one_memory(device: FakeDevice) -> None:
    run = symshape.compile(lambda x: (x.exp(), x[1:]), **OPTIONS)
    memory = torch.randn(40)
    for offset in (3, 3, 5, 3, 5, 5, 7, 0, 3):
        x = memory[offset : offset + 6]
        found, rest = run(x)
        torch.testing.assert_close(found, x.exp())
        assert rest.data_ptr() == x[1:].data_ptr() and rest.storage_offset() == offset + 1
    assert device.graphs


def test_sizes_that_are_refused_are_errors_of_the_program(device: FakeDevice) -> None:
    def halves(x: torch.Tensor) -> torch.Tensor:
        torch._check(x.size(0) % 2 == 0, lambda: "pairs")
        return x.reshape(-1, 2).exp()

    run = symshape.compile(halves, **OPTIONS)
    for rows in (4, 4, 4, 3, 4, 3):
        x = torch.randn(rows)
        if rows % 2:
            with pytest.raises(symshape.ShapeConstraintError, match="pairs"):
                run(x)
        else:
            torch.testing.assert_close(run(x), halves(x))
    assert device.graphs


TEXT = """
func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c0 = arith.constant 0 : index
  BODY
  return %r : tensor<4x4xf32>
}
func.func private @kernel_0(%x: tensor<4x4xf32>, %dest: tensor<4x4xf32>) -> tensor<4x4xf32>
    attributes {symshape.kernel, symshape.num_inputs = 1 : i64, symshape.num_outputs = 1 : i64} {
  return %dest : tensor<4x4xf32>
}
"""
_CALL = '%r = "host.call"(%x) {target = "TARGET", arguments = "($0)"MORE} : (tensor<4x4xf32>) -> tensor<4x4xf32>'
_ATTENTION = (
    '%r, %l, %s, %o = "host.call"(%x) {target = "aten._scaled_dot_product_efficient_attention.default", '
    'arguments = "($0, $0, $0, None, True)", fresh, result_indices = array<i64: 0, 1, 2, 3>} : '
    "(tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4xf32>, tensor<i64>, tensor<i64>)"
)
_BIND = (
    '"symshape.bind"(%r, %c4, %c4, %c4, %c1, %c0) {MORE} : (tensor<4x4xf32>, index, index, index, index, index) -> ()'
)
_EXP = _CALL.replace("TARGET", "aten.mm.default").replace("MORE", ", fresh")
_USED = '\n"host.call"(%s) {target = "aten.clone.default", arguments = "($0)"} : (tensor<i64>) -> ()'
BODIES = [
    (_EXP, ""),
    (_CALL.replace("TARGET", "aten.mm.default").replace("MORE", ""), "changes memory that is not its own"),
    (
        _CALL.replace("TARGET", "_c10d_functional.all_reduce.default").replace("MORE", ", collective = 0 : i64"),
        "meets other processes",
    ),
    (_CALL.replace("TARGET", "python.operator.pos").replace("MORE", ", fresh"), "not known to do nothing"),
    (_EXP + "\n" + _BIND.replace("MORE", 'device = "cpu"'), "a tensor is on cpu"),
    (_EXP + "\n" + _BIND.replace("{MORE}", ""), ""),
    (
        '%r = "host.launch"(%x, %x) {callee = @kernel_0} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>',
        "an input",
    ),
    (_ATTENTION, ""),
    (_ATTENTION + _USED, "returns a random state"),
]


@pytest.mark.parametrize(("body", "reason"), BODIES, ids=range(len(BODIES)))
def test_what_the_text_says(body: str, reason: str) -> None:
    with dialects.load(ir.Context()), ir.Location.unknown():
        module = ir.Module.parse(TEXT.replace("BODY", body))
        found = why_uncaptured(main_functions(module))
    assert (reason in found) if reason else not found, found


def test_graphs_from_the_cache(device: FakeDevice, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SYMSHAPE_CACHE", "1")
    monkeypatch.setenv("SYMSHAPE_CACHE_DIR", str(tmp_path))
    for captures, found in ((False, "stored"), (True, "hit"), (False, "hit")):
        run = symshape.jit(lambda x: x.softmax(1), options={**OPTIONS, "cache": True, "cuda_graphs": captures})
        for rows in (2, 2, 2, 0):
            x = torch.randn(rows, 5)
            torch.testing.assert_close(run(x), x.softmax(1))
        reports = [report for entry in run.entries for report in entry.graphs]
        assert {report.cache for report in reports} == {found}
        captured = ["captured for each combination of sizes that recurs"]
        assert reports[0].cuda_graphs == (captured if captures else [])


UNCAPTURED: list[tuple[str, Callable[..., Any], str]] = [
    ("mask", lambda x: x[x > 1.5].exp(), "mask_positions.default is not known to do nothing but to enqueue work"),
    ("item", lambda x: x.new_zeros(x.sum().int().item()) + 1, "the host reads a size"),
    ("cond", lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), "which branch is taken"),
    ("unknown", lambda x: torch.linalg.inv(x[:1, :1].contiguous()), "not known to do nothing but to enqueue work"),
    ("memory", lambda x: torch.fft.fft(x), "not known to do nothing but"),
]


@pytest.mark.parametrize(("name", "function", "reason"), UNCAPTURED, ids=[row[0] for row in UNCAPTURED])
def test_what_is_not_captured(device: FakeDevice, name: str, function: Callable[..., Any], reason: str) -> None:
    x = torch.rand(3, 3) + 1
    report = symshape.explain(function, x, options=OPTIONS)
    for _ in range(4):
        torch.testing.assert_close(report.compiled(x), function(x))
    assert not device.graphs
    assert any(reason in said for graph in report.graphs for said in graph.cuda_graphs), report.graphs[0].cuda_graphs
