"""Rows and columns that one launch reduces, in both forms, and where they are launched apart, against eager mode."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest
import torch
from gpu_machine import Machine, same

import symshape
from symshape.tools.report import Report

Program = Callable[..., Any]

# Options of mix-reductions under which a small size has each form.
FORMS: Final = {
    "mixed": "rows=1 points=1 ratio=0 shortest=1 tile=1,1 least=3",
    "mixed_split": "rows=1000000 longest=2 part=16 blocks=0",
    "separate": "rows=1000000 longest=1000000",
}
SHAPES: Final = ((5, 37), (1, 20), (33, 3), (13, 1), (0, 5))


def layer_norm(grad: torch.Tensor, x: torch.Tensor, w: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor) -> Any:
    sizes, saved = (x.shape[-1],), (mean[:, None], rstd[:, None])
    return torch.ops.aten.native_layer_norm_backward(grad, x, sizes, *saved, w, w, (True, True, True))


def softmax_and_bias(grad: torch.Tensor, x: torch.Tensor, w: torch.Tensor, *_: torch.Tensor) -> Any:
    """What columns are summed of is what has been written: it goes along in registers."""
    y = torch.ops.aten._softmax_backward_data(grad, x, -1, x.dtype)
    return y, y.sum(0), (y * w).sum(0).tanh() + w


def rows_alone(grad: torch.Tensor, x: torch.Tensor, w: torch.Tensor, *_: torch.Tensor) -> Any:
    """Nothing is stored but the results of reductions."""
    return (grad * x).sum(-1), grad.sum(0) * w, (x + w).sum(0)


def written(grad: torch.Tensor, x: torch.Tensor, *_: torch.Tensor) -> Any:
    """The rows are stored before they are reduced as well as after."""
    y = grad * 2 + x
    z = y - y.mean(-1, keepdim=True)
    return y, z, y.sum(0), (z * x).sum(0)


def in_the_middle(grad: torch.Tensor, x: torch.Tensor, *_: torch.Tensor) -> Any:
    """A product of the rows comes before the sums of columns."""
    y = grad - grad.mean(-1, keepdim=True)
    product = y.t() @ x
    return product, y, y.sum(0), (grad * x).sum(0) + product.sum(0)


PROGRAMS: Final[Sequence[Program]] = (layer_norm, softmax_and_bias, rows_alone, written, in_the_middle)


def inputs(rows: int, columns: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Exact in every type; the rows are neither of mean 0 nor of variance 1."""
    generator = torch.Generator().manual_seed(rows + 1000 * columns)
    sizes = ((rows, columns), (rows, columns), (columns,), (rows,), (rows,))
    return [torch.randint(-8, 9, size, generator=generator).to(dtype) / 8 for size in sizes]


def explained(program: Program, tensors: list[torch.Tensor], options: Any, report: Report | None = None) -> Report:
    """The report of a program, all sizes of which are symbols, after a call."""
    if report is not None:
        report.run(*tensors)
        return report
    for x in tensors:
        for dim in range(x.dim()):
            torch._dynamo.maybe_mark_dynamic(x, dim)
    return symshape.explain(program, *tensors, options=options)


def forms(source: str) -> set[str]:
    """The functions of mixtures: of the first form, or of both launches of the second."""
    return set(re.findall(r"def \w+_(rows|tiles)\(", source))


CASES: Final = [(program, torch.float32, form) for program in PROGRAMS for form in FORMS] + [
    (program, dtype, form)
    for program in (layer_norm, softmax_and_bias)
    for dtype in (torch.bfloat16, torch.float64)
    for form in ("mixed", "mixed_split")
]


@pytest.mark.sample(5)
@pytest.mark.parametrize(("program", "dtype", "form"), CASES, ids=lambda p: getattr(p, "__name__", str(p)))
def test_equals_eager_mode(machine: Machine, program: Program, dtype: torch.dtype, form: str) -> None:
    """At most twice eager's error, or rounding; two runs are equal."""
    options = {**machine.options, "pass_options": {"mix-reductions": FORMS[form]}}
    report = None
    for shape in SHAPES:
        own = machine.put(inputs(*shape, dtype))
        if machine.is_gpu and program is layer_norm and dtype == torch.bfloat16:  # there its statistics are float32
            own[3:] = [saved.float() for saved in own[3:]]
        report = explained(program, own, options, report)
        every = report.result, program(*own), program(*(x.double() for x in own)), report.compiled(*own)
        for actual, eager, exact, again in zip(*every, strict=True):
            assert actual.dtype == dtype and actual.shape == eager.shape and torch.equal(actual, again)
            if exact.numel():
                scale = exact.abs().max().clamp(min=1.0)  # terms that cancel have rounding errors too
                ours, theirs = ((value.double() - exact).abs().max() / scale for value in (actual, eager))
                assert ours <= max(2 * theirs, 8 * torch.finfo(dtype).eps), (shape, ours, theirs)
    assert report is not None
    graph = report.graphs[0]
    assert graph.statistics["mix-reductions"]["mixed"] == 1, graph.statistics["mix-reductions"]
    assert any(kernel.kind == "mixed" for kernel in graph.kernels)


def test_chosen_by_sizes(machine: Machine) -> None:
    """Many rows that a program can hold; rows that none can; others, launched one kernel after the other."""
    report = explained(layer_norm, machine.put(inputs(5, 37)), machine.options)
    (kernel,) = (k for k in report.graphs[0].kernels if k.kind == "mixed")
    assert forms(kernel.source) == {"rows", "tiles"}
    chosen = {}
    for shape in ((1_000_003, 31), (100_000, 128), (8192, 2049), (4096, 4096), (8, 1 << 20), (1, 10**8), (64, 512)):
        numbers = {"s0": shape[0], "s1": shape[1], "processors": 132} | {f"address{i}": 0 for i in range(8)}
        chosen[shape] = next(v.name for v in kernel.plans if v.condition.evaluate(numbers))
    assert chosen == {
        (1_000_003, 31): "mixed32",
        (100_000, 128): "mixed128_aligned",
        (8192, 2049): "mixed4096",
        (4096, 4096): "separate",
        (8, 1 << 20): "split_aligned",
        (1, 10**8): "split_aligned",
        (64, 512): "separate",
    }


def test_layers_share_their_mixture(machine: Machine) -> None:
    """Gradients of two layers: two launches of one kernel, and with it a bias's."""

    def step(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
        for _ in range(2):
            x = torch.layer_norm(x, (16,), w, b)
            x = torch.relu(x @ torch.ones(16, 16, device=x.device) * 0.1 + b)
        return x.square().sum()

    x, w, b = machine.put([torch.randn(7, 16), torch.randn(16), torch.randn(16)])
    leaves = [t.requires_grad_() for t in (x, w, b)]
    options = {**machine.options, "pass_options": {"mix-reductions": FORMS["mixed"]}}
    report = symshape.explain(step, *leaves, options=options)
    gradients = torch.autograd.grad(report.result, leaves)
    same(gradients, torch.autograd.grad(step(*leaves), leaves), rtol=1e-4, atol=1e-5)
    (backward,) = (graph for graph in report.graphs if graph.kind == "backward")
    assert backward.statistics["mix-reductions"]["mixed"] == 2, backward.statistics


def random_program(seed: int) -> tuple[str, Program]:
    """Rows and columns are reduced, of what is given and of what was computed before."""
    draw = random.Random(seed)
    points, rows, columns = ["a", "b"], ["m", "n"], ["w", "v"]
    forms = {
        "{p} * {q} + {p}": points,
        "{p} - {r}[..., None]": points,
        "{p} * {c}": points,
        "torch.softmax({p}, -1)": points,
        "torch.nn.functional.layer_norm({p}, (a.shape[-1],), w)": points,
        "{p}.sum(-1)": rows,
        "{p}.amax(-1)": rows,
        "{p}.var(-1, correction=0)": rows,
        "{p}.sum(0)": columns,
    }
    lines = []
    for number in range(draw.randint(4, 10)):
        form = "({p} * {q}).sum(0) * 2 + {c}" if number < 2 else draw.choice(list(forms))
        text = form.format(p=draw.choice(points), q=draw.choice(points), r=draw.choice(rows), c=draw.choice(columns))
        lines.append(f"t{number} = {text}")
        forms.get(form, columns).append(f"t{number}")
    results = draw.sample([line.split()[0] for line in lines], draw.randint(2, len(lines)))
    source = "\n    ".join(["def program(a, b, w, m, n, v):", *lines, f"return {', '.join(results)},"])
    names: dict[str, Any] = {"torch": torch}
    exec(source, names)
    return source, names["program"]


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 24))])
def test_random_programs(machine: Machine, seed: int) -> None:
    source, program = random_program(seed)
    form = list(FORMS)[seed % 2]
    options = {**machine.options, "strict": True, "pass_options": {"mix-reductions": FORMS[form]}}
    report = None
    for shape in ((7, 9), (11, 3), (2, 17)):
        own = machine.put([*inputs(*shape, torch.float64), torch.ones(shape[1], dtype=torch.float64)])
        report = explained(program, own, options, report)
        for actual, expected in zip(report.result, program(*own), strict=True):
            scale = expected.abs().max().item()
            torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10 * (1 + scale), msg=lambda m: m + source)
