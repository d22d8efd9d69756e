"""``symshape.run_ir`` and the option ``stage``: IR as text is compiled from its stage on, and run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch_mlir import ir

import symshape
from symshape import dialects
from symshape.errors import CompileError, OptionError, ShapeConstraintError
from symshape.ir_text import parse_module, stage_of
from symshape.passes.stages import STAGES
from symshape.signature import difference


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    torch._check(x.size(0) > 2)
    return torch.clamp(x @ w, min=0.25).sum(1)


def edited_program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    torch._check(x.size(0) > 1)
    return torch.clamp(x @ w, min=2.5).sum(1)


def inputs(rows: int = 5) -> tuple[torch.Tensor, ...]:
    return torch.randn(rows, 7), torch.randn(7, 9)


@pytest.fixture(scope="module")
def stages() -> dict[str, str]:
    torch._dynamo.reset()
    (graph,) = symshape.explain(program, *inputs()).graphs
    return graph.stages


@pytest.fixture
def edited(stages: dict[str, str], tmp_path: Path) -> str:
    """The file of stage ``linalg`` with another constant."""
    assert "2.500000e-01" in stages["linalg"]
    file = tmp_path / "edited.mlir"
    file.write_text(stages["linalg"].replace("2.500000e-01", "2.5"))
    return str(file)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("target", ["cpu", "triton"])
def test_every_stage_runs(stage: str, target: str, stages: dict[str, str]) -> None:
    """At other sizes than the first; integers are left out, or given."""
    x, w = inputs(11)
    (result,) = symshape.run_ir(stages[stage], x, w, options={"target": target})
    torch.testing.assert_close(result, program(x, w))
    (result,) = symshape.run_ir(stages[stage], 11, x, w, options={"target": target})
    torch.testing.assert_close(result, program(x, w))


def test_an_edited_file_runs(edited: str) -> None:
    x, w = inputs()
    (result,) = symshape.run_ir(edited, x, w)
    torch.testing.assert_close(result, edited_program(x, w))


def test_results_need_no_gradient(stages: dict[str, str]) -> None:
    x, w = inputs()
    (result,) = symshape.run_ir(stages["imported"], x, w.requires_grad_())
    assert not result.requires_grad


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, w: (x,), "1 inputs were given, and the graph takes 2, or 3 with the integers"),
        (lambda x, w: (x[0], w), "its rank is 1, not 2"),
        (lambda x, w: (x.double(), w), "its type is torch.float64, not torch.float32"),
        (lambda x, w: (x, w[:3]), "its size 0 is 3, not s"),
        (lambda x, w: (x, w.t().contiguous().t()), "its stride 0 is 1, not s"),
        (lambda x, w: (x[:2], w), "is 2, and the graph is for 3 or more"),
        (lambda x, w: (5.0, x, w), "a int is wanted, not 5.0"),
        (lambda x, w: (x.to_sparse(), w), "a dense tensor is wanted"),
        (lambda x, w: (x, None), "a dense tensor is wanted"),
    ],
)
def test_inputs_are_checked(change: Any, message: str, stages: dict[str, str]) -> None:
    with pytest.raises(ShapeConstraintError, match=message) as raised:
        symshape.run_ir(stages["kernels"], *change(*inputs()))
    assert isinstance(raised.value, RuntimeError)


def test_inputs_have_memory(stages: dict[str, str]) -> None:
    mode = FakeTensorMode()
    with pytest.raises(ShapeConstraintError, match="a FakeTensor without memory cannot be read"):
        symshape.run_ir(stages["kernels"], *map(mode.from_tensor, inputs()))


def test_what_is_taken_for_granted_is_checked() -> None:
    def checked(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        torch._check(x.size(0) * 2 <= y.size(0) + 3)
        return x.sum() + y.sum()

    (graph,) = symshape.explain(checked, torch.randn(4), torch.randn(6)).graphs
    for stage, text in graph.stages.items():
        symshape.run_ir(text, torch.randn(5), torch.randn(7))
        with pytest.raises(ShapeConstraintError):
            symshape.run_ir(text, torch.randn(5), torch.randn(6))
        assert stage in STAGES


def test_constants_are_given() -> None:
    def with_constant(x: torch.Tensor) -> torch.Tensor:
        return x + torch.tensor([1.5, 2.5])

    (graph,) = symshape.explain(with_constant, torch.randn(3, 2)).graphs
    x, constant = torch.randn(4, 2), torch.tensor([3.0, 4.0])
    for text in graph.stages.values():
        torch.testing.assert_close(symshape.run_ir(text, x, constants=[constant])[0], x + constant)
        negated = torch.complex(constant, constant).conj().imag
        fake = FakeTensorMode().from_tensor(constant)
        for wrong in (
            [],
            [fake],
            [constant.double()],
            [constant[:1]],
            [torch.ones(4)[::2]],
            [negated],
            [constant.to("meta")],
        ):
            with pytest.raises(OptionError, match="constant 0 of the graph is tensor<2xf32>"):
                symshape.run_ir(text, x, constants=wrong)


def test_wrong_text(stages: dict[str, str]) -> None:
    with pytest.raises(CompileError, match="invalid IR.*'oops'") as raised:
        symshape.run_ir("func.func @main() {\n oops \n}")
    assert "line 2" in str(raised.value)
    for nothing in (3, None, b"bytes"):
        with pytest.raises(OptionError, match="no IR can be read from"):
            symshape.run_ir(nothing)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="no_such.mlir' cannot be read"):
        symshape.run_ir("no_such.mlir")
    with pytest.raises(CompileError, match="one main function, not of 0"):
        symshape.run_ir("module {\n}")
    with pytest.raises(OptionError, match="unknown stage 'lnialg'"):
        symshape.run_ir(stages["linalg"], *inputs(), stage="lnialg")


# --- which stage ------------------------------------------------------------------------------------------------------


def told(text: str) -> str:
    return stage_of(text, parse_module(text, dialects.load(ir.Context()), "the text"), "the text")


def test_the_stage_is_told(stages: dict[str, str]) -> None:
    found = {stage: told(text) for stage, text in stages.items()}
    # Library calls alone, and kernels without variants, are in either of two stages.
    assert found == {**{stage: stage for stage in stages}, "shaped": "imported", "planned": "kernels"}
    (graph,) = symshape.explain(program, *inputs(), options={"target": "triton"}).graphs
    assert told(graph.stages["planned"]) == "planned"
    assert told(f"// stage: shaped\n{stages['shaped']}") == "shaped"
    with pytest.raises(OptionError, match="the header names no stage: 'other'"):
        told(f"// stage: other\n{stages['shaped']}")


def test_a_stage_that_cannot_be_told(stages: dict[str, str]) -> None:
    """Kernels beside what is in none."""
    both = ir.Context()
    module = parse_module(stages["linalg"], dialects.load(both), "linalg")
    other = parse_module(stages["kernels"], both, "kernels")
    with both, ir.Location.unknown():
        moved = [op for op in other.body.operations if "kernel_0" in str(op.attributes["sym_name"])]
        module.body.append(moved[0].operation.clone())
    with pytest.raises(CompileError, match="the stage is ambiguous.*\n.*\n.*stage=") as raised:
        told(str(module))
    assert "// stage: NAME" in str(raised.value)


# --- the option -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [symshape.compile, symshape.jit], ids=["compile", "jit"])
def test_a_stage_from_a_file(wrap: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYMSHAPE_RECORD", str(tmp_path))
    wrap(program)(*inputs())
    monkeypatch.delenv("SYMSHAPE_RECORD")
    (file,) = tmp_path.glob("*/linalg.mlir")
    file.write_text(file.read_text().replace("2.500000e-01", "2.5"))
    torch._dynamo.reset()
    compiled = wrap(program, options={"stage": {"linalg": str(file)}})
    for rows in (5, 3, 20):
        x, w = inputs(rows)
        torch.testing.assert_close(compiled(x, w), edited_program(x, w))
    with pytest.raises(ShapeConstraintError):
        compiled(*inputs(2))


def test_a_stage_is_for_one_graph_of_several(stages: dict[str, str], tmp_path: Path) -> None:
    """Forward is taken from the file, backward is not."""

    def squared(x: torch.Tensor) -> torch.Tensor:
        return (x * 0.25).square().sum()

    x = torch.randn(6, requires_grad=True)
    report = symshape.explain(squared, x)
    file = tmp_path / "kernels.mlir"
    (forward,) = (graph for graph in report.graphs if graph.kind == "forward")
    file.write_text(forward.stage("kernels"))
    report = symshape.explain(squared, x, options={"stage": {"kernels": str(file)}})
    assert {g.kind: [bool(f.difference) for f in g.stage_files] for g in report.graphs} == {
        "forward": [False],
        "backward": [True],
    }
    assert f"stage kernels was taken from {file}" in str(report)


def test_a_file_that_fits_no_graph(edited: str) -> None:
    options = {"stage": {"linalg": edited}}
    with pytest.raises(OptionError, match="fits no graph: the signature differs") as raised:
        symshape.compile(lambda x: x + 1, options=options)(torch.randn(3, 2))
    assert f"{edited}: (index, tensor<?x?xf32>" in str(raised.value) and "the graph: (" in str(raised.value)
    torch._dynamo.reset()
    with pytest.raises(OptionError, match="does not guarantee: s.* is 3 or more"):
        symshape.compile(edited_program, options=options)(*inputs())


def test_a_file_of_the_first_stage(tmp_path: Path) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.relu() + 1

    x = torch.randn(3, 4)
    file = tmp_path / "imported.mlir"
    text = symshape.explain(program, x).graphs[0].stage("imported")
    file.write_text(text.replace("aten.relu.default", "aten.sin.default"))
    torch._dynamo.reset()
    compiled = symshape.compile(program, options={"stage": {"imported": str(file)}})
    torch.testing.assert_close(compiled(x), x.sin() + 1)


def test_files_that_are_wrong(edited: str, tmp_path: Path) -> None:
    """Errors at once, also where failures of ours are not: an edit is not left out in silence."""
    broken = tmp_path / "broken.mlir"
    broken.write_text(Path(edited).read_text().replace("arith.addf", "arith.addq"))
    for stage, message in (
        ({"linalg": str(broken)}, "stage linalg cannot be taken from .*broken.mlir.*invalid IR"),
        ({"kernels": edited}, "is IR of stage linalg, not of kernels"),
        ({"lnialg": edited}, "unknown stage 'lnialg'"),
        ({"linalg": str(tmp_path / "none.mlir")}, "there is no file"),
        (edited, "stage cannot be"),
        ((1,), "stage cannot be"),
    ):
        torch._dynamo.reset()
        with pytest.raises(OptionError, match=message):
            symshape.compile(program, options={"stage": stage, "strict": False})(*inputs())


def test_an_edited_file_is_compiled_anew(edited: str) -> None:
    x, w = inputs()
    options = {"stage": {"linalg": edited}}
    torch.testing.assert_close(symshape.compile(program, options=options)(x, w), edited_program(x, w))
    text = Path(edited).read_text()
    Path(edited).write_text(text.replace(" 2.5", " 12.5") + "\n")
    torch.testing.assert_close(symshape.compile(program, options=options)(x, w), torch.clamp(x @ w, min=12.5).sum(1))


FOREIGN = """
func.func @main(%x: tensor<?xf32>, %s: tensor<f64>) -> tensor<?xf32> {
  %n = symshape.symbol "s0" in [2, 64] hint 8 at "arg0.size(0)"
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  symshape.bind %x [%n] strides [%c1] offset %c0 : tensor<?xf32>
  symshape.bind %s [] strides [] offset %c0 FOREIGN : tensor<f64>
  %r = host.call @aten.mul.Tensor(%x, %s) : tensor<?xf32>, tensor<f64> -> tensor<?xf32>
  symshape.bind %r [%n] strides [%c1] offset %c0 : tensor<?xf32>
  return %r : tensor<?xf32>
}
"""


@pytest.mark.parametrize("options", [{"target": "cpu"}, {"target": "triton"}, {"target": "triton", "autotune": True}])
@pytest.mark.parametrize("foreign", ['on "cpu"', "negated"])
def test_tensors_that_kernels_cannot_read(options: dict[str, Any], foreign: str) -> None:
    """A number of the host, and a negative view."""
    x, value = torch.randn(5), torch.tensor(1 / 3, dtype=torch.float64)
    number = torch.complex(value, -value).conj().imag if foreign == "negated" else value
    (result,) = symshape.run_ir(FOREIGN.replace("FOREIGN", foreign), x, number, options=options)
    torch.testing.assert_close(result, x * number)


def test_inputs_on_other_devices_are_refused() -> None:
    x, number = torch.randn(5), torch.tensor(2.0, dtype=torch.float64)
    for foreign in ('on "meta"', 'on "meta" negated'):
        with pytest.raises(ShapeConstraintError, match="it is on cpu, not on meta"):
            symshape.run_ir(FOREIGN.replace("FOREIGN", foreign), x, number)
    with pytest.raises(ShapeConstraintError, match="a tensor without the negative bit is wanted"):
        symshape.run_ir(FOREIGN.replace("FOREIGN", ""), x, torch.complex(number, number).conj().imag)


@pytest.mark.parametrize(
    ("foreign", "shown"),
    [('on "cpu"', "on cpu"), ("negated", "a negative view"), ('on "cpu" negated', "a negative view on cpu")],
)
def test_a_file_says_of_the_same_inputs_that_kernels_cannot_read_them(foreign: str, shown: str) -> None:
    """One that says it of none would be compiled to kernels that read memory of the host, or with the wrong sign."""
    context = ir.Context()
    dialects.load(context)
    file, graph = (parse_module(FOREIGN.replace("FOREIGN", own), context, "it") for own in ("", foreign))
    with context:
        assert f"tensor<f64> of sizes [], strides [], {shown}" in difference(file, graph, "the file")
        assert difference(graph, graph, "the file") == ""


def test_results_that_name_one_allocation() -> None:
    """Two equal ``tensor.empty`` are one value to MLIR, also in IR written by hand: each result has its own memory."""
    torch._dynamo.reset()
    (graph,) = symshape.explain(lambda x: (x + 1, x * 2), torch.ones(5, 3)).graphs
    lines = graph.stages["kernels"].splitlines()
    both = [line.split(" = ")[0].strip() for line in lines if "tensor.empty" in line][:2]
    (launch,) = [line for line in lines if "host.launch" in line]
    text = graph.stages["kernels"].replace(launch, launch.replace(", ".join(both), f"{both[0]}, {both[0]}"))
    assert f"{both[0]}, {both[0]}" in text
    x = torch.randn(4, 3)
    torch.testing.assert_close(symshape.run_ir(text, x, stage="kernels"), (x + 1, x * 2))
