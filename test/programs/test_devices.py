"""Programs of tensors on several devices: each operation runs where eager mode runs it. Without a GPU: the devices are
emulated (test/support/emulated_devices.py), the kernels interpreted."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from emulated_devices import Compiled, WrongDevice, compile_on, memory, on

from symshape.errors import StepFailure

aten, prims = torch.ops.aten, torch.ops.prims
GPU, OTHER = "cuda:0", "cuda:1"
SIZES = ((5, 7), (2, 3), (17, 4), (1, 1), (0, 3))


@dataclass(frozen=True)
class Case:
    """``function(gpu, other, *tensors)``: the devices as arguments, "cpu" where eager mode computes what is expected.

    ``inputs``: of the sizes (n, m); ``devices``: where each lies; ``launches``: kernels; ``calls``: what is left to
    library calls.
    """

    function: Callable[..., Any]
    inputs: Callable[[int, int], Sequence[torch.Tensor]]
    devices: tuple[str, ...]
    launches: int
    calls: tuple[str, ...] = ()


def _one(n: int, m: int) -> Sequence[torch.Tensor]:
    return [torch.randn(n, m), torch.tensor(2.5)]


def _two(n: int, m: int) -> Sequence[torch.Tensor]:
    return [torch.randn(n, m), torch.randn(n, m)]


def _scalar(dtype: torch.dtype, value: Any = 3) -> Callable[[int, int], Sequence[torch.Tensor]]:
    return lambda n, m: [torch.randn(n, m), torch.tensor(value, dtype=dtype)]


def _index(n: int, m: int) -> Sequence[torch.Tensor]:
    return [torch.randn(n + 2, m), torch.randint(0, n + 2, (n,))]


def _mask(n: int, m: int) -> Sequence[torch.Tensor]:
    return [torch.randn(n, m), torch.randn(n, m) > 0]


def _linear(n: int, m: int) -> Sequence[torch.Tensor]:
    return [torch.randn(n, m), torch.randn(6, m), torch.randn(6), torch.tensor(0.5)]


def _training(gpu: str, other: str, x: Any, w: Any, b: Any, scale: Any) -> Any:
    """A loss and its gradient, as AOTAutograd writes it: autograd has no threads for a GPU that is not there."""
    hidden = F.linear(x, w, b).tanh()
    gradient = torch.ops.aten.tanh_backward((scale * torch.ones_like(hidden)), hidden)
    return (hidden * scale).sum(), gradient.t() @ x, gradient.sum(0)


# The operators themselves: Python's indexing of a GPU's tensor needs PyTorch with support for it.
_read, _write, _copy = torch.ops.aten.index.Tensor, torch.ops.aten.index_put.default, torch.ops.aten.copy.default


CASES = {
    # Numbers of the CPU in kernels of a GPU.
    "number": Case(lambda g, o, x, s: x * s + 1, _one, (GPU, "cpu"), 1),
    "number first": Case(lambda g, o, x, s: s - x, _one, (GPU, "cpu"), 1),
    "number twice": Case(lambda g, o, x, s: ((x + s) / s).sum(1) * s, _one, (GPU, "cpu"), 1),
    "float64": Case(lambda g, o, x, s: x.double() * s, _scalar(torch.float64, 1 / 3), (GPU, "cpu"), 1),
    "float64 of float32": Case(lambda g, o, x, s: x * s, _scalar(torch.float64, 1e-3), (GPU, "cpu"), 1),
    "float16": Case(lambda g, o, x, s: x * s, _scalar(torch.float16, 1 / 3), (GPU, "cpu"), 1),
    "bfloat16": Case(lambda g, o, x, s: x.bfloat16() * s, _scalar(torch.bfloat16, 1 / 3), (GPU, "cpu"), 1),
    "int64": Case(lambda g, o, x, s: x.long() + s, _scalar(torch.int64, 2**40 + 1), (GPU, "cpu"), 1),
    "int32": Case(lambda g, o, x, s: x.int() * s, _scalar(torch.int32, -7), (GPU, "cpu"), 1),
    "uint8": Case(lambda g, o, x, s: x * s, _scalar(torch.uint8, 200), (GPU, "cpu"), 1),
    "bool": Case(lambda g, o, x, s: torch.where(s, x, -x), _scalar(torch.bool, True), (GPU, "cpu"), 1),
    "infinity": Case(lambda g, o, x, s: x.clamp(max=s).exp(), _scalar(torch.float32, float("inf")), (GPU, "cpu"), 1),
    "masked_fill": Case(lambda g, o, x, s: x.masked_fill(x > 0, s), _one, (GPU, "cpu"), 1),
    "constant": Case(lambda g, o, x, s: x * torch.tensor(3.0) + s, _one, (GPU, "cpu"), 1),
    "softmax of a scaled": Case(lambda g, o, x, s: (x * s).exp() / (x * s).exp().sum(1, True), _one, (GPU, "cpu"), 1),
    "lerp": Case(lambda g, o, x, s: torch.lerp(x, x + 1, s), _one, (GPU, "cpu"), 1),
    # Numbers that are computed on the CPU.
    "number of a call": Case(
        lambda g, o, x, y: x * y.sum(), _two, (GPU, "cpu"), 1, ("aten.sum.default",)
    ),
    "element": Case(lambda g, o, x, y: x + y.reshape(-1)[:1].sum(), _two, (GPU, "cpu"), 1, ("aten.sum.default",)),
    # Transfers.
    "to the GPU": Case(lambda g, o, x, y: x + (y * 2).to(g), _two, (GPU, "cpu"), 1, ("prims.device_put.default",)),
    "to the CPU": Case(lambda g, o, x, y: (x * 2).to("cpu") + y, _two, (GPU, "cpu"), 1, ("prims.device_put.default",)),
    "there and back": Case(
        lambda g, o, x, y: ((x + 1).to("cpu") * y).to(g) * 3, _two, (GPU, "cpu"), 2, ("prims.device_put.default",)
    ),
    "a number to the GPU": Case(lambda g, o, x, s: (x * s.to(g)).sum(), _one, (GPU, "cpu"), 1),
    "copy": Case(lambda g, o, x, y: _copy(x * 2, y) + x, _two, (GPU, "cpu"), 2, ("aten.copy.default",)),
    "results on both": Case(lambda g, o, x, y: (x.relu(), y.relu()), _two, (GPU, "cpu"), 1, ("aten.relu.default",)),
    # What is made.
    "arange": Case(
        lambda g, o, x, y: (torch.arange(x.shape[0], device=g) + 1, torch.arange(y.shape[1]) + 1),
        _two, (GPU, "cpu"), 1, ("prims.iota.default",),
    ),
    "zeros on the CPU": Case(
        lambda g, o, x, s: (x * 2, torch.zeros(x.shape[0]) + s), _one, (GPU, "cpu"), 1, ("aten.add.Tensor",)
    ),
    # Indices and masks on the CPU.
    "index": Case(lambda g, o, x, i: _read(x, [i]) * 2, _index, (GPU, "cpu"), 1, ("aten.index.Tensor",)),
    "index_put": Case(
        lambda g, o, x, i: _write(x, [i], x.sum() + 0) + 1, _index, (GPU, "cpu"), 2, ("aten.index_put.default",)
    ),
    "mask": Case(lambda g, o, x, m: (_read(x, [m]) * 2).sum(), _mask, (GPU, "cpu"), 1, ("aten.index.Tensor",)),
    "mask on the GPU": Case(lambda g, o, x, m: torch.where(m.to(g), x, 0), _mask, (GPU, "cpu"), 1),
    # Several GPUs, and meta.
    "two GPUs": Case(
        lambda g, o, x, y: (x.exp() + y.to(g), x.to(o) * y), _two, (GPU, OTHER), 1, ("prims.device_put.default",)
    ),
    "two GPUs and a number": Case(
        lambda g, o, x, y, s: (x * s, (y * s).sum(), (x.sum() * s).to(o) + y.sum()),
        lambda n, m: [*_two(n, m), torch.tensor(1.5)], (GPU, OTHER, "cpu"), 1, ("aten.mul.Tensor",),
    ),
    "most on the second": Case(
        lambda g, o, x, y: (x + 1).to(o) + (y.exp() + y.log1p()).tanh().sum(), _two, (GPU, OTHER), 2, (),
    ),
    # Training, and library calls that are kept anyway.
    "training": Case(_training, _linear, (GPU, GPU, GPU, "cpu"), 2, ()),
    "product": Case(lambda g, o, x, w, b, s: F.linear(x * s, w, b).relu() * s, _linear, (GPU, GPU, GPU, "cpu"), 2),
    "reduction to a number": Case(lambda g, o, x, s: (x.mean() * s, x.amax(1) - s), _one, (GPU, "cpu"), 2),
}  # fmt: skip


def compiled(case: Case) -> Compiled:
    inputs = case.inputs(*SIZES[0])
    return compile_on(lambda *tensors: case.function(GPU, OTHER, *tensors), inputs, case.devices)


def test_numbers_on_the_cpu_are_read_when_they_are_used() -> None:
    program = compiled(CASES["number"])
    (kernel,) = program.built.kernels.image.triton
    assert kernel.by_value == ("in1",) and "in1.data_ptr()" not in kernel.launcher
    assert "kernel_0(arg0, number_of(arg1), " in program.source
    x, scale = torch.randn(4, 4), torch.tensor(2.0)
    (given,) = program(on(x, GPU), scale)
    scale += 1
    (changed,) = program(on(x, GPU), scale)
    torch.testing.assert_close([memory(given), memory(changed)], [x * 2 + 1, x * 3 + 1])


@pytest.mark.parametrize("name", ["number", "number first", "reduction to a number"])
def test_tuned_kernels_take_numbers(name: str) -> None:
    program = compiled(CASES[name])
    program.autotune = True
    inputs = CASES[name].inputs(5, 7)
    expected = CASES[name].function("cpu", "cpu", *inputs)
    actual = program(*[on(x, device) for x, device in zip(inputs, CASES[name].devices, strict=True)])
    expected = expected if isinstance(expected, tuple) else (expected,)
    torch.testing.assert_close([memory(value) for value in actual], list(expected))


def test_kernels_that_read_another_device_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the verifier, and by the emulated device where the program was made all the same."""
    monkeypatch.setattr("symshape.passes.lowering.lower_aten._foreign_tensor", lambda _op, _devices: "")
    with pytest.raises(StepFailure, match="reads a tensor that is on cpu, which kernels cannot"):
        compiled(CASES["to the GPU"])
    monkeypatch.setattr("symshape.dialects.foreign_tensors.bound_device", lambda _bind: "")
    program = compiled(CASES["to the GPU"])
    with pytest.raises(WrongDevice, match="a kernel on cuda:0 is on cpu"):
        program(on(torch.randn(3, 4), GPU), torch.randn(3, 4))


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", CASES)
def test_each_operation_runs_where_eager_mode_runs_it(name: str) -> None:
    case = CASES[name]
    program = compiled(case)
    assert len(re.findall(r"^ +kernel_\d+\(", program.source, re.M)) == case.launches, program.source
    assert set(case.calls) <= set(program.kept), program.kept
    returned = next(iter(program.graph.graph.find_nodes(op="output"))).args[0]
    promised = [node.meta["val"].device for node in (returned if isinstance(returned, (tuple, list)) else [returned])]
    for n, m in SIZES:
        inputs = case.inputs(n, m)
        expected = case.function("cpu", "cpu", *inputs)
        expected = expected if isinstance(expected, tuple) else (expected,)
        actual = program(*[on(x, device) for x, device in zip(inputs, case.devices, strict=True)])
        assert [value.device for value in actual] == promised
        torch.testing.assert_close([memory(value) for value in actual], list(expected), equal_nan=True)


def _mean_of_selected(x: torch.Tensor, m: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The factor as AOTAutograd's graphs have it: a number of Python's that has become tensors on the host."""
    at = aten.squeeze.dim(aten.nonzero.default(m), 1)  # as what x[m] is traced to where PyTorch has no CUDA
    selected = aten.index.Tensor(x, [at])
    two, count = (aten.scalar_tensor.default(n, dtype=torch.float64) for n in (2.0, torch.sym_float(selected.shape[0])))
    factor = prims.convert_element_type.default(aten.div.Tensor(two, count), torch.float32)
    return aten.index_put.default(aten.mul.Tensor(x, 0), [at], aten.mul.Tensor(selected, factor)), factor


def test_the_number_of_selected_elements_is_not_waited_for() -> None:
    """It is counted on the GPU, where what is computed of it stays; what is returned goes to where eager has it."""
    inputs = [torch.randn(9), torch.arange(9) % 3 > 0]
    compiled = compile_on(lambda x, m: _mean_of_selected(x, m)[0], inputs, [GPU, GPU])
    assert not {call for call in compiled.kept if "copy" in call}, compiled.source
    (actual,) = compiled(*(on(x, GPU) for x in inputs))  # the host reads no number on the GPU: that is WrongDevice
    torch.testing.assert_close(memory(actual), _mean_of_selected(*inputs)[0])
    returned = compile_on(lambda x, m: _mean_of_selected(x, m), inputs, [GPU, GPU])
    both = returned(*(on(x, GPU) for x in inputs))
    assert [str(t.device) for t in both] == [GPU, "cpu"]
    torch.testing.assert_close([memory(t) for t in both], list(_mean_of_selected(*inputs)))


def test_a_number_of_selected_elements_with_more_than_numbers_on_the_host() -> None:
    """It stays where a vector on the host can be multiplied by it."""

    def function(x: torch.Tensor, m: torch.Tensor, host: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        selected, factor = _mean_of_selected(x, m)
        return selected, aten.mul.Tensor(host, factor)

    inputs, devices = [torch.randn(9), torch.arange(9) % 3 > 0, torch.randn(4)], [GPU, GPU, "cpu"]
    both = compile_on(function, inputs, devices)(*(on(x, device) for x, device in zip(inputs, devices, strict=True)))
    assert [str(t.device) for t in both] == [GPU, "cpu"]
    torch.testing.assert_close([memory(t) for t in both], list(function(*inputs)))
