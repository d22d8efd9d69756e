"""`symshape reduce`: planted faults in graphs of hundreds of operations are found, and nothing but them is left."""

from __future__ import annotations

import functools
import os
import re
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_mlir import ir

from symshape.dialects import load, verify
from symshape.errors import CompileError
from symshape.ir_text import main_function, text_of
from symshape.passes.framework import registry
from symshape.passes.framework.manager import run_pipeline
from symshape.passes.framework.pipeline_text import parse_step
from symshape.passes.stages import passes_between
from symshape.random_tensors import Draw
from symshape.stage_header import headed_stage, with_header, without_header
from symshape.tools import cli
from symshape.tools.reduce import interpreter
from symshape.tools.reduce.edits import copied, operations_in
from symshape.tools.reduce.failing_checks import Raises, SameFailure, error_line, pattern_of
from symshape.tools.reduce.inputs import inputs_of
from symshape.tools.reduce.reducer import Reduction
from symshape.tools.reduce.trial_process import Trial, TrialProcess
from symshape.tools.reduce.wrong_numbers import WrongNumbers

FILE = Path(__file__).parent / "Inputs" / "faulty_passes.py"
CALLS, BODIES, LAYERS = "faulty-calls", "faulty-bodies", "outline-layers"
MOST_LEFT, SECONDS = 10, 300


@dataclass(frozen=True)
class Fault:
    """``graph``: of those below. ``options``: of the pass. ``wrong``: numbers are; else the pass raises. ``native``:
    the compiler's own passes run too."""

    graph: str
    options: dict[str, str]
    wrong: bool = False
    native: bool = False
    element: str = CALLS


def _calls(graph: str, wrong: bool = False, native: bool = False, **options: str) -> Fault:
    return Fault(graph, options, wrong, native)


def _bodies(graph: str, **options: str) -> Fault:
    return Fault(graph, options, wrong=True, native=True, element=BODIES)


ERF, RSQRT, SUB, MUL, ADD = (
    f"aten.{name}" for name in ("erf.default", "rsqrt.default", "sub.Tensor", "mul.Tensor", "add.Tensor")
)
MM, ADDMM, VIEW, PERMUTE, VAR = (f"aten.{name}.default" for name in ("mm", "addmm", "view", "permute", "var_mean"))
VAR = "aten.var_mean.correction"
TANH, SUM = "aten.tanh.default", "aten.sum.dim_IntList"
ATTENTION = "aten._scaled_dot_product_flash_attention_for_cpu"

QUICK = {
    "fails at a gelu after a layer norm": _calls("blocks", target=ERF, upstream=RSQRT, depth="6"),
    "invalid product of a product": _calls("blocks", target=MM, upstream=MUL, action="invalid"),
    "exchanged operands after a variance": _calls("blocks", True, target=SUB, upstream=VAR, action="exchange"),
    "a scale dropped in kernels": _calls(
        "blocks", True, True, target=MUL, upstream=ERF, depth="2", action="arguments", old="0.5", new="1.0"
    ),
}
LONG = {
    "fails at attention": _calls("forward", target=f"{ATTENTION}.default"),
    "fails at a sum of a product": _calls("backward", target=SUM, upstream=MUL),
    "fails at an attention's gradient after views": _calls(
        "backward", target=f"{ATTENTION}_backward.default", upstream=MM, depth="5"
    ),
    "fails at an exponential": _calls("backward", target="aten.exp.default", upstream=MUL),
    "crashes at a number": _calls("forward", target=MUL, action="crash", old="0.7071"),
    "crashes at a shape": _calls("backward", target=VIEW, action="crash", old="[32]", upstream=SUM),
    "crashes at a scatter": _calls("backward", target="aten.select_scatter.default", action="crash"),
    "invalid view of a transpose": _calls("forward", target=VIEW, upstream=PERMUTE, action="invalid"),
    "invalid error function": _calls("backward", target=ERF, action="invalid"),
    "exchanged difference": _calls("forward", True, target=SUB, upstream=VAR, action="exchange"),
    "another function": _calls("forward", True, target=ERF, action="target", new=TANH, upstream=ADDMM, depth="4"),
    "another correction": _calls("forward", True, target=VAR, action="arguments", old="n=0", new="n=1"),
    "a scale dropped": _calls("backward", True, target=MUL, action="arguments", old="0.70710", new="0.9"),
    "exchanged gradients": _calls("backward", True, target=SUB, upstream=SUM, action="exchange", depth="2"),
    "exchanged in bodies": _bodies("blocks", old="arith.subf"),
    "sum instead of a product in bodies": _bodies("blocks", old="arith.mulf", new="arith.addf"),
}


class _Text:
    """Writes the ``imported`` stage of layers that look like a transformer's, without tracing one."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.arguments = ["%arg0: tensor<?x16xf32>"]

    def weight(self, type_: str) -> str:
        self.arguments.append(f"%arg{len(self.arguments)}: {type_}")
        name = f"%arg{len(self.arguments) - 1}"
        layout = "%c16, %c1, %c0" if type_.count("16") == 1 else "%c16, %c16, %c16, %c1, %c0"
        self.bind(name, layout, type_)
        return name

    def bind(self, name: str, layout: str, type_: str) -> None:
        types = ", ".join([type_, *["index"] * (layout.count(",") + 1)])
        self.lines.append(f'"symshape.bind"({name}, {layout}) : ({types}) -> ()')

    def call(self, target: str, arguments: str, *operands: tuple[str, str], column: bool = False) -> tuple[str, str]:
        name, type_ = f"%v{len(self.lines)}", "tensor<?x1xf32>" if column else "tensor<?x16xf32>"
        given, types = ", ".join(o for o, _ in operands), ", ".join(t for _, t in operands)
        self.lines.append(
            f'{name} = "host.call"({given}) {{target = "{target}", arguments = "{arguments}", fresh}} '
            f': ({types}) -> {type_} loc("node_{len(self.lines)}")'
        )
        self.bind(name, "%s0, %c1, %c1, %c1, %c0" if column else "%s0, %c16, %c16, %c1, %c0", type_)
        return name, type_

    def variance(self, x: tuple[str, str]) -> list[tuple[str, str]]:
        name = f"%v{len(self.lines)}"
        column = "tensor<?x1xf32>"
        self.lines.append(
            f'{name}:2 = "host.call"({x[0]}) {{target = "{VAR}", arguments = "($0, [1], correction=0, keepdim=True)", '
            f"result_indices = array<i64: 0, 1>, fresh}} : ({x[1]}) -> ({column}, {column})"
        )
        for i in range(2):
            self.bind(f"{name}#{i}", "%s0, %c1, %c1, %c1, %c0", column)
        return [(f"{name}#{i}", column) for i in range(2)]

    def layer(self, x: tuple[str, str]) -> tuple[str, str]:
        vector, matrix = "tensor<16xf32>", "tensor<16x16xf32>"
        variance, mean = self.variance(x)
        centred = self.call(SUB, "($0, $1)", x, mean)
        scale = self.call(RSQRT, "($0)", self.call(ADD, "($0, 1e-05)", variance, column=True), column=True)
        normal = self.call(MUL, "($0, $1)", self.call(MUL, "($0, $1)", centred, scale), (self.weight(vector), vector))
        normal = self.call(ADD, "($0, $1)", normal, (self.weight(vector), vector))
        inner = self.call(MM, "($0, $1)", normal, (self.weight(matrix), matrix))
        erf = self.call(ERF, "($0)", self.call(MUL, "($0, 0.7071067811865476)", inner))
        half = self.call(MUL, "($0, 0.5)", self.call(ADD, "($0, 1)", erf))
        gelu = self.call(MUL, "($0, $1)", inner, half)
        outer = self.call(MM, "($0, $1)", gelu, (self.weight(matrix), matrix))
        return self.call(ADD, "($0, $1)", x, outer)


@functools.cache
def blocks(layers: int = 34) -> str:
    """16 calls a layer."""
    text = _Text()
    text.lines += [f"%c{n} = arith.constant {n} : index" for n in (0, 1, 16)]
    text.lines.append(
        '%s0 = "symshape.symbol"() {name = "s0", min = 2 : i64, max = 4096 : i64, divisor = 1 : i64, hint = 8 : i64, '
        'source = "x.size(0)", binding = "arg0.size(0)"} : () -> index'
    )
    text.bind("%arg0", "%s0, %c16, %c16, %c1, %c0", "tensor<?x16xf32>")
    x = ("%arg0", "tensor<?x16xf32>")
    for _ in range(layers):
        x = text.layer(x)
    body = "\n  ".join(text.lines)
    head = f"func.func @main({', '.join(text.arguments)}) -> tensor<?x16xf32>"
    return f"{head} {{\n  {body}\n  return {x[0]} : tensor<?x16xf32>\n}}\n"


@functools.cache
def bert() -> Sequence[str]:
    """Forward and backward graph of a narrow BERT of ten layers."""
    from transformers import BertConfig, BertModel

    import symshape

    sizes: dict[str, Any] = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
    config = BertConfig(vocab_size=50, max_position_embeddings=64, num_hidden_layers=10, **sizes)
    model = BertModel._from_config(config, attn_implementation="sdpa").eval()
    ids = torch.randint(0, 50, (2, 8))
    report = symshape.explain(model, input_ids=ids, attention_mask=torch.ones_like(ids))
    return [graph.stage("imported") for graph in report.graphs]


GRAPHS: dict[str, Callable[[], str]] = {
    "blocks": blocks,
    "forward": lambda: bert()[0],
    "backward": lambda: bert()[1],
}


def _steps(fault: Fault) -> list[Any]:
    found = registry.lookup(fault.element)
    if found is None:
        registry.load_pass_file(FILE)
        found = registry.lookup(fault.element)
    assert found is not None
    planted = found.from_options(fault.options)

    def own(start: str, end: str) -> list[Any]:
        return [parse_step(element) for element in passes_between(start, end) if element != "outline-layers"]

    if fault.element == BODIES:
        return [*own("imported", "linalg"), planted, *own("linalg", "planned")]
    return [planted, *(own("imported", "planned") if fault.native else [])]


def reduce_fault(fault: Fault) -> tuple[int, Reduction]:
    """How many operations there were, and the reduction, which has ended."""
    with load(ir.Context()), ir.Location.unknown():
        module = ir.Module.parse(GRAPHS[fault.graph]())
        observe = WrongNumbers(_steps(fault)) if fault.wrong else Raises(_steps(fault))
        reduction = Reduction(module, SameFailure(observe, copied(module)), SECONDS)
        reduction.run()
        assert reduction.finished
        assert verify(reduction.module) and reduction.check.fails(copied(reduction.module))
        return len(operations_in(module)), reduction


def _check(name: str, fault: Fault) -> None:
    start = time.process_time()
    before, reduction = reduce_fault(fault)
    left = len(operations_in(reduction.module))
    print(f"| {name} | {before} | {left} | {time.process_time() - start:.1f} | {reduction.tries} |")
    assert before >= 500 and left <= MOST_LEFT, reduction.module


@pytest.mark.parametrize("name", QUICK)
def test_planted_faults(name: str) -> None:
    _check(name, QUICK[name])


@pytest.mark.long
@pytest.mark.parametrize("name", LONG)
def test_more_planted_faults(name: str) -> None:
    _check(name, LONG[name])


# --- the command, and the parts ----------------------------------------------------------------------------------

PIPELINE = f"builtin.module({CALLS}{{target={ERF}}})"


def _file(tmp_path: Path, layers: int = 2) -> Path:
    file = tmp_path / "in.mlir"
    file.write_text(blocks(layers))
    return file


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = _file(tmp_path)
    assert cli.main(["reduce", str(file), f"--load-pass={FILE}", f"--pass-pipeline={PIPELINE}"]) == 0
    assert "1 of 30 operations" in capsys.readouterr().out
    assert file.read_text() == blocks(2)
    small = (tmp_path / "in.reduced.mlir").read_text()
    assert small.count("host.call") == 1 and ERF in small and "loc(" not in small and "mm" not in small


def test_a_command_is_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = _file(tmp_path), tmp_path / "out.mlir"
    script = f"if grep -q {MM} {{}}; then echo error: a product of 16 >&2; exit 3; fi"
    assert cli.main(["reduce", str(file), "-o", str(out), "--match=error: a pro", "--", "sh", "-c", script]) == 0
    assert out.read_text().count("host.call") == 1 and f'"{MM}"' in out.read_text()


def test_the_best_so_far_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = _file(tmp_path)
    arguments = ["reduce", str(file), f"--load-pass={FILE}", f"--pass-pipeline={PIPELINE}", "--time-limit=0"]
    assert cli.main(arguments) == 0
    assert "30 of 30 operations" in (out := capsys.readouterr().out) and "not finished" in out
    assert (tmp_path / "in.reduced.mlir").read_text().count("host.call") == 30


REFUSED = [  # arguments -> what is said
    ([], "give one check"),
    (["--wrong", "--", "false"], "give one check"),
    (["--wrong", "--pass-pipeline=builtin.module(no-such-pass)"], "no such pass or option: 'no-such-pass'"),
    (["--wrong", "--load-pass=no-such-file.py"], "no-such-file.py"),
    (["--passes=canonicalize", "--to-stage=shaped"], "--passes does nothing without --wrong"),
    (["--wrong", "--from-stage=kernels", "--passes=canonicalize"], "--passes are run at the end of stage linalg"),
    (["--timeout=3", "--to-stage=shaped"], "--timeout does nothing without a command"),
    (["--to-stage=shaped"], "the input does not fail"),
    (["--wrong", "--to-stage=shaped"], "the input does not fail"),
    (["--", "true"], "the input does not fail"),
    (["--match=another", "--", "sh", "-c", "echo error: this; false"], "does not match 'another': error: this"),
    (["--", "no-such-command"], "the command cannot be run"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_what_is_refused(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["reduce", str(_file(tmp_path, 1)), *arguments]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "in.reduced.mlir").exists()


def test_the_line_that_says_what_is_wrong() -> None:
    line = error_line("Traceback (most recent call last):\n  File x\nKeyError: 'a b 3'\n")
    assert line == "KeyError: 'a b 3'"
    first = error_line("/tmp/a.mlir:3:4: error: 'arith.addf' op %12 has 3 uses\n ^\nerror: more")
    assert re.search(pattern_of(first), "/tmp/other.mlir:30:1: error: 'arith.addf' op %x has 14 uses")
    assert not re.search(pattern_of(first), "/tmp/other.mlir:30:1: error: 'arith.mulf' op %x has 14 uses")


def test_what_is_promised_and_not_so_has_no_result() -> None:
    text = blocks(1).replace("%s0, %c16, %c16, %c1, %c0", "%c16, %c16, %c16, %c1, %c0")
    with load(ir.Context()), ir.Location.unknown():
        module = ir.Module.parse(text)
        main = main_function(module, "the module").operation
        with pytest.raises(CompileError, match="promises the sizes"):
            interpreter.run(module, [torch.ones(8, 16), *inputs_of(main, Draw(2))[1:]])


def test_no_fault_is_no_difference() -> None:
    with load(ir.Context()), ir.Location.unknown():
        module = ir.Module.parse(blocks(2))
        steps = [parse_step(element) for element in passes_between("imported", "planned")]
        assert WrongNumbers(steps).difference(module) == ""


# --- wrong numbers through the command ----------------------------------------------------------------------------


def _wrong(file: Path, pass_: str, flag: str = "--pass-pipeline") -> list[str]:
    return ["reduce", str(file), "--wrong", f"--load-pass={FILE}", f"{flag}=builtin.module({pass_})"]


def test_wrong_numbers_through_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "in.mlir"
    file.write_text(with_header("imported", blocks(1)))
    # bodies of linalg: the pass runs where the compiler runs it, after lower-aten
    assert cli.main(_wrong(file, f"{BODIES}{{old=arith.subf}}", "--passes")) == 0
    assert re.search(r"in.reduced.mlir: [12] of 15 operations", capsys.readouterr().out)
    small = (tmp_path / "in.reduced.mlir").read_text()
    assert small.startswith("// stage: imported\n") and SUB in small and MM not in small


@pytest.mark.long
def test_a_program_that_ends_the_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = _file(tmp_path, 1)
    assert cli.main(_wrong(file, f"{CALLS}{{target={MM} action=target new=faulty.crash.default}}")) == 0
    assert "1 of 15 operations" in capsys.readouterr().out
    assert MM in (tmp_path / "in.reduced.mlir").read_text()


@pytest.mark.long
def test_the_process_that_tries_goes_on_after_a_death() -> None:
    passes = (f"builtin.module({CALLS}{{target={MM} action=target new=faulty.crash.default}})",)
    with load(ir.Context()), ir.Location.unknown():
        dies, lives = ir.Module.parse(blocks(1)), ir.Module.parse(blocks(1).replace(MM, "aten.matmul.default"))
        with TrialProcess(Trial(passes, (str(FILE),), 1.0, "planned")) as check:
            for _ in range(2):
                found = check(dies)
                assert found is not None and found.kind == "died of SIGSEGV"
                assert check(lives) is None


@pytest.mark.long
def test_a_death_after_an_answer_is_no_later_answer() -> None:
    with load(ir.Context()), ir.Location.unknown():
        module = ir.Module.parse(blocks(1).replace(MM, "aten.matmul.default"))
        with TrialProcess(Trial((), (), 1.0, "planned")) as check:
            parent = check._process.pid
            for _ in range(3):
                assert check(module) is None
                (fork,) = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
                os.kill(int(fork), signal.SIGSEGV)


@pytest.mark.long
def test_what_dies_before_it_tries_anything_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise ValueError('this file is broken')")
    with load(ir.Context()), ir.Location.unknown():
        with TrialProcess(Trial((), (str(tmp_path / "broken.py"),), 1.0, "planned")) as check:
            with pytest.raises(CompileError, match="this file is broken"):
                check(ir.Module.parse(blocks(1)))


# --- the interpreter ----------------------------------------------------------------------------------------------


def test_layers_are_functions_that_are_called() -> None:
    text = (Path(__file__).parents[1] / "passes" / "outline-layers.mlir").read_text().split("// -----")[0]
    with load(ir.Context()), ir.Location.unknown():
        plain, layered = ir.Module.parse(text), ir.Module.parse(text)
        run_pipeline(layered, [parse_step(LAYERS)])
        assert "host.layer" in text_of(layered)
        inputs = inputs_of(main_function(plain, "text").operation, Draw())
        wanted, found = interpreter.run(plain, inputs), interpreter.run(layered, inputs)
        assert torch.equal(torch.as_tensor(found[0]), torch.as_tensor(wanted[0]))


def test_branches_are_functions_of_which_one_is_called() -> None:
    import symshape

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x - 1, (x,))

    report = symshape.explain(fn, torch.ones(5))
    with load(ir.Context()), ir.Location.unknown():
        module = ir.Module.parse(report.graphs[0].stage("imported"))
        assert "host.cond" in text_of(module)
        for x in (torch.ones(4), -torch.ones(3)):
            arguments = [x if isinstance(a.type, ir.RankedTensorType) else len(x) for a in _arguments(module)]
            (found,) = interpreter.run(module, arguments)
            assert torch.equal(found, fn(x))


def _arguments(module: ir.Module) -> Any:
    return main_function(module, "text").regions[0].blocks[0].arguments


def test_a_text_may_name_constants() -> None:
    assert interpreter._compiled("(constant[1], $0)", 1)(None, ["a", "b"], 3) == ("b", 3)


def test_the_first_line_says_the_stage() -> None:
    assert headed_stage(with_header("linalg", "module {}")) == "linalg"
    assert without_header(with_header("linalg", "module {}")) == "module {}\n"
    assert headed_stage("module {}\n// stage: linalg\n") is None
    assert without_header("module {}\n") == "module {}\n"
