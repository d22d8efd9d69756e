"""What a program writes to its inputs: eager's values, in the caller's memory, and no copies of what stays as it is."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import symshape

SHAPES = ((5,), (4, 3), (1,), (2, 1), (31, 17))


def swap(x: Tensor, y: Tensor) -> None:
    kept = x.clone()
    x.copy_(y)
    y.copy_(kept)


def shift(x: Tensor, y: Tensor) -> None:
    y.copy_(x)
    x.sub_(x.sum())


def at_other_points(x: Tensor, y: Tensor) -> None:
    y.copy_(x)
    x.copy_(x.flip(0).cumsum(0))


def roll(x: Tensor, y: Tensor) -> Any:
    x[:-1] = x[1:].clone()
    x[-1] = y[0]
    return x, x.sum()


def one_value(x: Tensor, y: Tensor) -> Tensor:
    """The result is in memory of its own: the caller may write to it."""
    z = x + 1
    x.copy_(z)
    y.copy_(z)
    return z


def views(x: Tensor, y: Tensor) -> Any:
    x.mul_(2)
    part = x[1:]
    y.add_(part.sum())
    return part, x.unsqueeze(0)


def transposed(x: Tensor, y: Tensor) -> None:
    x.t().add_(1)
    y[::2].zero_()


def old_values(x: Tensor, y: Tensor) -> Tensor:
    kept = x * 1
    x.zero_()
    y.copy_(kept)
    return kept


def in_steps(x: Tensor, y: Tensor) -> None:
    x[0] = 1
    x[-1] = 2
    x.mul_(2)
    x[0] += 3
    y.copy_(x)


def indexed(x: Tensor, y: Tensor) -> Tensor:
    positions = torch.arange(x.shape[0])
    x.index_copy_(0, positions.flip(0), y)
    x.index_add_(0, positions, y)
    return x.amax()


def read_between(x: Tensor, y: Tensor) -> Any:
    first = x.sum()
    x.add_(1)
    second = x.sum()
    x.add_(y)
    return first, second, x.sum()


def exchanged_parts(x: Tensor, y: Tensor) -> None:
    kept = x[:1].clone()
    x.copy_(y)
    y[:1] = kept


def lists_that_share_memory(x: Tensor, y: Tensor) -> None:
    torch._foreach_mul_([x, y], [y, x])
    torch._foreach_add_([x, x], 1)
    torch._foreach_addcmul_([x[:1], y[:1], x], [y[:1], x[:1], y], [x[-1:], y[-1:], x], [1.0, 2.0, 3.0])
    torch._foreach_copy_([x, y], [y, x])


PROGRAMS = (
    swap,
    shift,
    at_other_points,
    roll,
    one_value,
    views,
    transposed,
    old_values,
    in_steps,
    indexed,
    read_between,
    exchanged_parts,
    lists_that_share_memory,
)


def layouts(shape: tuple[int, ...]) -> list[Callable[[], Tensor]]:
    """Contiguous, with transposed strides, and in the middle of other memory."""
    count = torch.Size(shape).numel()
    found: list[Callable[[], Tensor]] = [lambda: torch.randn(shape)]
    found += [lambda: torch.randn(shape[::-1]).t()] * (len(shape) == 2)
    return [*found, lambda: torch.randn(3 * count + 2)[2 : 2 + count].view(shape)]


def shares(result: Tensor, inputs: tuple[Tensor, ...]) -> list[bool]:
    return [result.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for x in inputs]


@pytest.mark.sample(2)
@pytest.mark.parametrize("entry", ["compile", "backend"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_inputs_are_written_to_as_in_eager_mode(program: Callable[..., Any], entry: str) -> None:
    compiled: Any = symshape.compile(program)
    if entry == "backend":
        compiled = torch.compile(program, backend="symshape", dynamic=True)
    for shape in SHAPES:
        for make in layouts(shape):
            torch.manual_seed(0)
            inputs = make(), torch.randn(shape)
            theirs = inputs[0].clone(memory_format=torch.preserve_format), inputs[1].clone()
            versions = [x._version for x in inputs]
            expected = program(*theirs)
            actual = compiled(*inputs)
            torch.testing.assert_close(inputs, theirs)
            torch.testing.assert_close(actual, expected)
            assert all(x._version > old for x, old in zip(inputs, versions) if x is inputs[0])
            tensors = [() if found is None else pytree.tree_leaves(found) for found in (actual, expected)]
            assert [shares(x, inputs) for x in tensors[0]] == [shares(x, theirs) for x in tensors[1]]


def solved(x: Tensor, y: Tensor) -> Tensor:
    """Errors of ``torch.linalg`` are ordered by tokens, which AOTAutograd describes, though they are no results."""
    result = torch.linalg.solve(y, x)
    x.mul_(2)
    y.add_(1)
    return result


def inverted(x: Tensor, y: Tensor) -> Any:
    y.add_(torch.eye(y.shape[0]))
    return torch.linalg.inv(y), torch.linalg.cholesky(y), x.add_(y)


@pytest.mark.parametrize("program", [solved, inverted])
@pytest.mark.parametrize("entry", [symshape.compile, symshape.jit])
def test_results_beside_the_token_of_an_error_check(program: Callable[..., Any], entry: Callable[..., Any]) -> None:
    compiled = entry(program)
    for size in (3, 1, 8):
        torch.manual_seed(0)
        inputs = torch.randn(size, size), torch.eye(size) * 3
        theirs = inputs[0].clone(), inputs[1].clone()
        expected, actual = program(*theirs), compiled(*inputs)
        torch.testing.assert_close(actual, expected)
        torch.testing.assert_close(inputs, theirs)
        pairs = [pytree.tree_leaves(found) for found in (actual, expected)]
        assert [shares(x, inputs) for x in pairs[0]] == [shares(x, theirs) for x in pairs[1]]


def test_a_step_that_writes_a_row_of_a_cache_copies_none_of_it() -> None:
    def step(cache: Tensor, position: Tensor, row: Tensor, query: Tensor) -> Tensor:
        cache.index_copy_(2, position, row)
        return (query * cache).sum(-1)

    def inputs(length: int) -> tuple[Tensor, ...]:
        torch.manual_seed(0)
        cache, row, query = torch.randn(1, 8, length, 32), torch.randn(1, 8, 1, 32), torch.randn(1, 8, 1, 32)
        return cache, torch.tensor([length // 2]), row, query

    (graph,) = symshape.explain(step, *inputs(100)).graphs
    assert graph.statistics["write-inputs"] == {"written": 1, "copies": 1, "left": 0}
    allocated = [line for line in graph.program_source.splitlines() if "empty_strided" in line]
    assert len(allocated) == 2  # the position, and the result
    compiled = symshape.compile(step)
    for length in (100, 7, 1):
        mine, theirs = inputs(length), inputs(length)
        torch.testing.assert_close(compiled(*mine), step(*theirs))
        torch.testing.assert_close(mine[0], theirs[0])


def test_a_compiled_optimizer_writes_its_parameters_and_moments_in_place() -> None:
    def optimizer() -> tuple[list[nn.Parameter], torch.optim.Optimizer]:
        torch.manual_seed(0)
        parameters = [nn.Parameter(torch.randn(50, 40)) for _ in range(3)]
        for one in parameters:
            one.grad = torch.randn_like(one)
        made = torch.optim.AdamW(parameters, lr=1e-2)
        made.step()
        return parameters, made

    mine, compiled = optimizer()
    theirs, eager = optimizer()
    (graph,) = symshape.explain(compiled.step).graphs
    assert graph.statistics["write-inputs"] == {"written": 12, "copies": 0, "left": 0}
    step = symshape.compile(compiled.step)
    for _ in range(4):
        step()
    for _ in range(5):  # explain has made one
        eager.step()
    torch.testing.assert_close([one.data for one in mine], [one.data for one in theirs])


def test_running_statistics_change_twice_in_a_checkpoint_as_in_eager_mode() -> None:
    """Recomputing ends as soon as all is saved that is needed: what is written after that is not written again."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
    theirs = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
    theirs.load_state_dict(module.state_dict())
    compiled = symshape.compile(module)
    for batch in (4, 1, 7):
        x = torch.randn(batch, 3, 9, 9)
        for each in (compiled, theirs):
            checkpoint(each, x, use_reentrant=False).square().sum().backward()
        torch.testing.assert_close(dict(module.state_dict()), dict(theirs.state_dict()))


class Counting(nn.Module):
    """Backward of a checkpoint counts again, and computes with what it has counted."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("variance", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        y = nn.functional.batch_norm(self.linear(x), self.mean, self.variance, training=True)
        return torch.relu(y) * self.count


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_inside_writes_twice_as_in_eager_mode(reentrant: bool) -> None:
    def run(module: nn.Module, x: Tensor) -> Tensor:
        x = checkpoint(module, x * 2, use_reentrant=reentrant)
        return checkpoint(module, x, use_reentrant=reentrant).square().sum()

    torch.manual_seed(0)
    mine, theirs = Counting(), Counting()
    theirs.load_state_dict(mine.state_dict())
    compiled = symshape.compile(run)
    for batch in (4, 7):
        x = torch.randn(batch, 4)
        found = []
        for each, module in ((compiled, mine), (run, theirs)):
            leaf = x.clone().requires_grad_()
            each(module, leaf).backward()
            found.append((leaf.grad, module.linear.weight.grad, dict(module.named_buffers())))
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)
    with torch.no_grad():  # nothing is computed again
        symshape.compile(run, fullgraph=True)(mine, x)
    assert mine.count == 10


def test_what_is_saved_for_backward_stays() -> None:
    def run(x: Tensor, weight: Tensor, state: Tensor) -> Tensor:
        y = (x * state.exp()) @ weight
        state.mul_(0.5)
        return y

    compiled = symshape.compile(run)
    for size in (5, 2, 1):
        torch.manual_seed(0)
        x, weight, state = torch.randn(size, 4), torch.randn(4, 3), torch.randn(size, 4)
        found = []
        for each in (compiled, run):
            leaves = x.clone().requires_grad_(), weight.clone().requires_grad_()
            own = state.clone()
            each(*leaves, own).square().sum().backward()
            found.append((own, *(leaf.grad for leaf in leaves)))
        torch.testing.assert_close(found[0], found[1])


def test_an_error_of_a_later_layer_is_known_before_the_first_writes() -> None:
    def step(caches: list[Tensor], positions: Tensor, row: Tensor, table: Tensor) -> Tensor:
        for cache in caches:
            row = row + table[positions]
            cache[positions] = row
            row = (cache.softmax(0) * cache).sum(0) + row
        return row

    def inputs(length: int, *positions: int) -> tuple[Any, ...]:
        torch.manual_seed(0)
        caches = [torch.randn(length, 4) for _ in range(3)]
        return caches, torch.tensor(positions), torch.randn(len(positions), 4), torch.randn(length, 4)

    (graph,) = symshape.explain(step, *inputs(9, 2, 3)).graphs
    assert graph.statistics["write-inputs"]["written"] >= 1
    compiled = symshape.compile(step)
    for good in ((9, 2, 3), (7, -1), (5, 4, 0, 1)):
        mine, theirs = inputs(*good), inputs(*good)
        torch.testing.assert_close(compiled(*mine), step(*theirs))
        torch.testing.assert_close(mine, theirs)
    for bad in ((9, 2, 9), (7, -8), (5, 0, 100)):
        mine = inputs(*bad)
        with pytest.raises(IndexError):
            compiled(*mine)
        torch.testing.assert_close(mine, inputs(*bad))


def test_a_decoder_that_writes_a_row_of_each_cache() -> None:
    def step(keys: list[Tensor], values: list[Tensor], row: Tensor, position: Tensor) -> Tensor:
        for key, value in zip(keys, values):
            key.index_copy_(1, position, row[:, None])
            value.index_copy_(1, position, row[:, None] * 2)
            scores = (row[:, None] * key).sum(-1).softmax(-1)
            row = (scores[..., None] * value).sum(1)
        position.add_(1)
        return row

    def inputs(length: int) -> tuple[Any, ...]:
        torch.manual_seed(0)
        keys, values = ([torch.randn(2, length, 4) for _ in range(4)] for _ in range(2))
        return keys, values, torch.randn(2, 4), torch.tensor([length - 1])

    compiled = symshape.compile(step)
    for length in (4, 1, 8):
        mine, theirs = inputs(length), inputs(length)
        torch.testing.assert_close(compiled(*mine), step(*theirs))
        torch.testing.assert_close(mine, theirs)


def test_indices_made_of_what_is_written_may_be_out_of_range_after_it_is() -> None:
    def step(cache: Tensor, count: Tensor, row: Tensor, table: Tensor) -> Tensor:
        cache.index_copy_(0, count, row)
        return table[cache.sum(1).long()]

    compiled = symshape.compile(step)
    for value in (1.0, 0.0, 90.0):
        found = []
        for run in (compiled, step):
            cache, count, table = torch.zeros(6, 2), torch.tensor([3]), torch.arange(12.0).view(6, 2)
            try:
                found.append((run(cache, count, torch.full((1, 2), value), table), cache))
            except IndexError:
                found.append(("error", cache))
        torch.testing.assert_close(found[0][1], found[1][1])
        assert type(found[0][0]) is type(found[1][0])


@pytest.mark.parametrize("shape", [(5, 0), (0, 3), (0, 0), (4, 2)])
def test_an_index_is_checked_where_eager_mode_does(shape: tuple[int, ...]) -> None:
    def step(x: Tensor, i: Tensor) -> None:
        x[i] = 1.0

    compiled = symshape.compile(step)
    for index in ([], [0], [3], [-1], [9]):
        found = []
        for run in (compiled, step):
            x = torch.zeros(shape)
            try:
                run(x, torch.tensor(index, dtype=torch.int64))
                found.append((x, "written"))
            except IndexError:
                found.append((torch.zeros(shape), "error"))
        torch.testing.assert_close(found[0][0], found[1][0])
        assert found[0][1] == found[1][1], (shape, index, found)


def read_after_adding(cache: Tensor, i: Tensor, row: Tensor) -> Tensor:
    cache[:, i] += row
    return cache[:, i] * 2


def changed_twice(cache: Tensor, i: Tensor, row: Tensor) -> Tensor:
    cache[:, i] *= 2
    cache[:, i] += row
    return row + 1


def copied_and_read(cache: Tensor, i: Tensor, row: Tensor) -> Tensor:
    cache.index_copy_(1, i, row)
    return cache[:, i] + cache[:, i - cache.shape[1]]


def added_and_selected(cache: Tensor, i: Tensor, row: Tensor) -> Tensor:
    cache.index_add_(1, i, row)
    return cache.index_select(1, i)


@pytest.mark.parametrize("step", [read_after_adding, changed_twice, copied_and_read, added_and_selected])
def test_what_is_read_at_the_index_of_a_write_copies_nothing(step: Callable[..., Tensor]) -> None:
    """The second check of the index could end the program after the write: it was made before."""

    def inputs(length: int, positions: list[int], lines: int = 3, width: int = 4) -> tuple[Tensor, ...]:
        torch.manual_seed(0)
        index = torch.tensor(positions, dtype=torch.int64)
        return torch.randn(lines, length, width), index, torch.randn(lines, len(positions), width)

    (graph,) = symshape.explain(step, *inputs(50, [4, 7])).graphs
    if step is not copied_and_read:  # what is computed of the index is checked behind the write
        assert graph.statistics["write-inputs"]["left"] == 0
        assert graph.statistics["drop-repeated-checks"]["dropped"] >= 1
        lines = graph.program_source.splitlines()
        (length,) = (line.split()[0] for line in lines if line.endswith("= arg0.size(1)"))
        assert not [x for x in lines if "empty_strided" in x and re.search(rf"\b{length}\b", x)]
    compiled = symshape.compile(step)
    good = [(50, [4, 7]), (9, [8]), (9, []), (5, [0, 4, 2, 1]), (2, [1, 0]), (0, []), (1, [0])]
    good += [(50, [-4, 7]), (9, [-9])] * (step in (read_after_adding, changed_twice))
    for length, positions in good:
        for lines, width in ((3, 4), (1, 1), (0, 4), (3, 0), (2, 17)):
            mine, theirs = (inputs(length, positions, lines, width) for _ in range(2))
            torch.testing.assert_close(compiled(*mine), step(*theirs))
            torch.testing.assert_close(mine, theirs)
    for length, positions in ((50, [4, 50]), (9, [9]), (9, [-10, 0]), (0, [0])):
        mine = inputs(length, positions)
        with pytest.raises((IndexError, RuntimeError)):
            compiled(*mine)
        torch.testing.assert_close(mine, inputs(length, positions))
