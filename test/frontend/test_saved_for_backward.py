"""What a caller may write to between forward and backward, as in eager mode."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import symshape

COMPILERS = {"compile": symshape.compile, "jit": symshape.jit}


def _returned(x):
    y = x + 1
    return y, y.tanh()


def _returned_view(x):
    y = x + 1
    return y.reshape(-1)[1:], y.t().tanh()


def _normalised(x):
    y = x + 1
    return y, F.layer_norm(y * 2, (x.shape[1],)) * x


def _loss(x):
    logits = x @ x.t()
    return logits, F.cross_entropy(logits, torch.arange(x.shape[0]))


def _several_results(x):
    y = x * 2
    return y, y.var(0) + (y + y).max(0)[0]


def _selected(x):
    y = x * 2
    return y, y[y > 0] ** 2


PROGRAMS = {f.__name__.strip("_"): f for f in (_returned, _returned_view, _normalised, _loss, _selected)}


def _gradient(function, x):
    x = x.clone().requires_grad_()
    first, second = function(x)
    with torch.no_grad():
        first.mul_(0.3)
    (first.sum() + second.sum()).backward()
    return x.grad


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("how", COMPILERS)
def test_a_result_is_written_to(how, name):
    compiled = COMPILERS[how](PROGRAMS[name])
    for n in (2, 5, 13):
        x = torch.randn(n, 4)
        torch.testing.assert_close(_gradient(compiled, x), _gradient(PROGRAMS[name], x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("how", COMPILERS)
def test_what_eager_mode_saves_is_still_an_error(how):
    """``max`` and ``var`` read ``y`` in backward."""
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        _gradient(_several_results, torch.randn(5, 4))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        _gradient(COMPILERS[how](_several_results), torch.randn(5, 4))


@pytest.mark.parametrize("how", COMPILERS)
def test_several_results_of_an_input_that_the_program_writes_to(how):
    def program(x, m):
        variance, mean = torch.var_mean(m, 0)
        y = x * (variance + mean)
        m.mul_(2)
        return y

    compiled = COMPILERS[how](program)
    for n in (2, 5):
        grads = []
        for function in (compiled, program):
            x, m = torch.ones(n, 4, requires_grad=True), torch.arange(n * 4.0).reshape(n, 4)
            function(x, m).sum().backward()
            grads.append((x.grad, m))
        torch.testing.assert_close(*grads)


def _observed(x, frame):
    pixels = frame.float() / 255
    return (x * pixels).tanh() + pixels.sin() * x


@pytest.mark.parametrize("how", COMPILERS)
def test_an_input_is_written_to_by_numpy(how):
    """Autograd does not see it: eager mode has saved what it made of the input."""
    compiled = COMPILERS[how](_observed)
    for n in (2, 7, 31):
        frame = np.arange(n * 4, dtype=np.uint8).reshape(n, 4)
        grads = []
        for function in (compiled, _observed):
            x, buffer = torch.ones(n, 4, requires_grad=True), frame.copy()
            y = function(x, torch.from_numpy(buffer))
            buffer[:] = 0
            y.sum().backward()
            grads.append(x.grad)
        torch.testing.assert_close(*grads)


def test_the_result_of_an_earlier_graph_is_written_to():
    """An input that requires a gradient, and is no parameter."""

    def program(x):
        y = x + 1
        torch._dynamo.graph_break()
        z = (y + 1).tanh()
        torch._dynamo.graph_break()
        y.mul_(0.5)
        return y, z

    compiled = symshape.compile(program)
    for n in (2, 5):
        x = torch.randn(n, 4)
        torch.testing.assert_close(_gradient(compiled, x), _gradient(program, x))


def _counted(x, counts):
    first = x.clone()
    counts.scatter_add_(0, torch.zeros_like(counts), counts.clone())
    return first


@pytest.mark.parametrize("how", COMPILERS)
def test_an_input_that_only_forward_reads_is_written_to(how):
    compiled = COMPILERS[how](_counted)
    for n in (0, 1, 3):
        x, counts = torch.randn(4, requires_grad=True), torch.arange(n)
        expected = counts.clone()
        _counted(x, expected)
        compiled(x, counts).sum().backward()
        assert torch.equal(x.grad, torch.ones(4)) and torch.equal(counts, expected)
