"""The short form of our ops: what is printed is read back as it was; what is of no form is an error with its line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_mlir import ir
from torch_mlir.dialects import ext

import symshape
from symshape import dialects
from symshape.dialects.generic_form import GenericOp, read_generic
from symshape.dialects.short_form import FORMS, print_short, read_short
from symshape.errors import CompileError
from symshape.tools import opt

ROOT = Path(__file__).resolve().parents[2]

# Generic form, and the short one: each op, with all that its form may leave out there and not there.
PAIRS = {
    '%0 = "symshape.symbol"() {binding = "arg0.size(0)", divisor = 4 : i64, hint = 8 : i64, max = 64 : i64, '
    'min = 2 : i64, name = "s0", source = "L[\'x\'].size()[0]"} : () -> index': '%0 = symshape.symbol "s0" in [2, 64] '
    'divisor 4 hint 8 at "arg0.size(0)" from "L[\'x\'].size()[0]"',
    '%0 = "symshape.symbol"() {binding = "", divisor = 1 : i64, hint = -1 : i64, max = 9223372036854775807 : i64, '
    'min = -3 : i64, name = "s0", source = ""} : () -> index': '%0 = symshape.symbol "s0" in [-3, inf)',
    '%1 = "symshape.unbacked_symbol"(%x) {dim = 1 : i64, kind = "size", max = 9 : i64, min = 0 : i64, name = "u1"} : '
    "(tensor<2x?xi64>) -> index": '%1 = symshape.unbacked_symbol "u1" in [0, 9] is "size" 1 of %x : tensor<2x?xi64>',
    '%1 = "symshape.unbacked_symbol"(%n) {kind = "number", max = 9 : i64, min = 0 : i64, name = "u1"} : '
    "(index) -> index": '%1 = symshape.unbacked_symbol "u1" in [0, 9] is "number" of %n : index',
    '"symshape.bind"(%x, %s0, %c4, %c4, %c1, %c0) : (tensor<?x4xf32, #a>, index, index, index, index, index) -> ()': ""
    "symshape.bind %x [%s0, %c4] strides [%c4, %c1] offset %c0 : tensor<?x4xf32, #a>",
    '"symshape.bind"(%3#1, %c0) : (tensor<f32>, index) -> ()': ""
    "symshape.bind %3#1 [] strides [] offset %c0 : tensor<f32>",
    '"symshape.bind"(%x, %c0) {device = "cpu"} : (tensor<f32>, index) -> ()': ""
    'symshape.bind %x [] strides [] offset %c0 on "cpu" : tensor<f32>',
    '"symshape.bind"(%x, %c0) {negated} : (tensor<f32>, index) -> ()': ""
    "symshape.bind %x [] strides [] offset %c0 negated : tensor<f32>",
    '"symshape.assume"(%c) : (i1) -> () loc(fused["a", "b":1:2])': 'symshape.assume %c loc(fused["a", "b":1:2])',
    '"symshape.expect_true"(%c) {message = "a, \\22b\\22 // : {"} : (i1) -> ()': ""
    'symshape.expect_true %c, "a, \\22b\\22 // : {"',
    '"symshape.guard"(%c) {reason = "r"} : (i1) -> ()': 'symshape.guard %c, "r"',
    '%v = "symshape.view"(%x, %n, %m, %s0) {map = affine_map<(d0, d1)[s0] -> (d0 * s0 + d1)>, domain = affine_set<(d0, '
    "d1)[s0] : (d0 - 1 >= 0)>} : (tensor<?xf32>, index, index, index) -> tensor<?x?xf32>": "%v = symshape.view %x at "
    "affine_map<(d0, d1)[s0] -> (d0 * s0 + d1)> sizes [%n, %m] symbols [%s0] where affine_set<(d0, d1)[s0] : "
    "(d0 - 1 >= 0)> : tensor<?xf32> -> tensor<?x?xf32>",
    '%v = "symshape.view"(%x) {map = #map} : (tensor<f32>) -> tensor<f32>': ""
    "%v = symshape.view %x at #map sizes [] : tensor<f32> -> tensor<f32>",
    '%o = "symshape.store"(%v, %d, %s) {map = #map} : (tensor<?xf32>, tensor<?xf32>, index) -> tensor<?xf32>': ""
    "%o = symshape.store %v into %d at #map symbols [%s] : tensor<?xf32>, tensor<?xf32> -> tensor<?xf32>",
    '%o = "symshape.scatter"(%v, %x, %d, %i) {combiner = "add", dims = [-1, 1]} : (tensor<?x2xf32>, tensor<?x2xf32>, '
    "tensor<?x2xf32>, tensor<?x2xi64>) -> tensor<?x2xf32>": '%o = symshape.scatter "add" %v into %x to %d along '
    "[-1, 1] at [%i] : tensor<?x2xf32>, tensor<?x2xf32>, tensor<?x2xf32>, tensor<?x2xi64> -> tensor<?x2xf32>",
    '"symshape.space"(%n, %m) {iterators = ["parallel", "reduction"]} : (index, index) -> ()': ""
    'symshape.space [%n, %m] ["parallel", "reduction"]',
    '%j = "symshape.check_index"(%i, %n) {message = "m"} : (index, index) -> index': ""
    '%j = symshape.check_index %i below %n, "m"',
    '%j = "symshape.check_index"(%i, %n) {error = "offsets", message = "m"} : (index, index) -> index': ""
    '%j = symshape.check_index %i below %n, "m" error "offsets"',
    '%d = "symshape.reuse"(%x) : (tensor<?xf32>) -> tensor<4x?xf32>': ""
    "%d = symshape.reuse %x : tensor<?xf32> -> tensor<4x?xf32>",
    '%p = "symshape.processors"() : () -> index': "%p = symshape.processors",
    '%a = "symshape.address"(%x) : (tensor<?xf32>) -> index': "%a = symshape.address %x : tensor<?xf32>",
    '"symshape.variant"(%c, %n) {aligned = ["in0", "s1"], dims = ["d0", "d1"], form = "split", index_bits = 32 : i64, '
    'name = "v", num_stages = 1 : i64, num_warps = 4 : i64, one_launch = true, rblock = 2 : i64, xblock = 1 : i64, '
    "yblock = 8 : i64} : (i1, index) -> ()": ""
    'symshape.variant "v" if %c form "split" xblock 1 yblock 8 rblock 2 warps 4 one_launch true bits 32 splits [%n] '
    'dims ["d0", "d1"] aligned ["in0", "s1"] : i1',
    '"symshape.variant"(%c) {aligned = [], dims = [], form = "pointwise", index_bits = 32 : i64, name = "v", '
    "num_stages = 1 : i64, num_warps = 4 : i64, one_launch = false, rblock = 0 : i64, xblock = 1 : i64, "
    "yblock = 0 : i64} : (i1) -> ()": 'symshape.variant "v" if %c form "pointwise" xblock 1 warps 4 bits 32 : i1',
    '"symshape.variant"(%c, %n) {aligned = [], dims = [], form = "mixed", index_bits = 32 : i64, name = "v", '
    "num_stages = 3 : i64, num_warps = 4 : i64, one_launch = false, rblock = 2 : i64, xblock = 1 : i64, "
    "yblock = 1 : i64} : (i1, index) -> ()": ""
    'symshape.variant "v" if %c form "mixed" xblock 1 yblock 1 rblock 2 warps 4 stages 3 bits 32 splits [%n] : i1',
    '%3:2 = "host.call"(%x) {arguments = "($0, [2], correction=0)", checked, draws, fresh, result_indices = array<i64: '
    '0, 1>, symshape.own = {a = 1 : i64}, target = "aten.var_mean.correction"} : (tensor<?xf32>) -> (tensor<f32>, '
    "tensor<f32>)": "%3:2 = host.call @aten.var_mean.correction(%x, [2], correction=0) results array<i64: 0, 1> fresh "
    "draws checked {symshape.own = {a = 1 : i64}} : tensor<?xf32> -> (tensor<f32>, tensor<f32>)",
    '%3 = "host.call"(%x) {arguments = "($0)", checked, collective = 1 : i64, target = "a.b"} : (f32) -> f32': ""
    "%3 = host.call @a.b(%x) checked collective 1 : f32 -> f32",
    '%3 = "host.call"(%x, %n) {arguments = "($1, $0)", target = "a.b"} : (f32, index) -> f32': ""
    '%3 = host.call @a.b "($1, $0)" of (%x, %n) : f32, index -> f32',
    '%3 = "host.call"(%x) {arguments = "($0, $0)", target = "a::b"} : (f32) -> f32': ""
    '%3 = host.call @"a::b" "($0, $0)" of (%x) : f32 -> f32',
    '%3 = "host.call"(%x, %x) {arguments = "($0, \'a)\', $1)", target = "a.b"} : (f32, f32) -> f32': ""
    "%3 = host.call @a.b(%x, 'a)', %x) : f32, f32 -> f32",
    '%3 = "host.call"(%x) {arguments = "($0, \'%d\')", target = "a.b"} : (f32) -> f32': ""
    "%3 = host.call @a.b \"($0, '%d')\" of (%x) : f32 -> f32",
    '%3 = "host.call"() {arguments = "(4, \\22q\\22)", target = "a.b"} : () -> f32': ""
    '%3 = host.call @a.b "(4, \\22q\\22)" of () -> f32',
    '"host.call"() {arguments = "()", target = "a.b"} : () -> ()': "host.call @a.b()",
    '%r:2 = "host.launch"(%x, %n) {callee = @kernel_0} : (tensor<?xf32>, index) -> (f32, f32)': ""
    "%r:2 = host.launch @kernel_0(%x, %n) : tensor<?xf32>, index -> (f32, f32)",
    '%r = "host.cond"(%p, %x) {draws, false = @b, true = @a} : (tensor<i1>, f32) -> f32': ""
    "%r = host.cond %p then @a else @b (%x) {draws} : tensor<i1>, f32 -> f32",
    '%r = "host.call"(%x) {arguments = "($0)", reason = "no graph", target = "higher_order.scan"} : (f32) -> f32': ""
    '%r = host.call @higher_order.scan(%x) since "no graph" : f32 -> f32',
    '%r:2 = "host.while"(%n, %x) {body = @b, carried = 2 : i64, cond = @c} : (index, f32) -> (index, f32)': ""
    "%r:2 = host.while @c do @b (%n, %x) carried 2 : index, f32 -> (index, f32)",
    '%r = "host.while"(%x) {body = @b, carried = 1 : i64, cond = @c, draws, stacked} : (f32) -> tensor<?xf32>': ""
    "%r = host.while @c do @b (%x) carried 1 stacked {draws} : f32 -> tensor<?xf32>",
    '%r = "host.scan"(%x) {body = @b, carried = 0 : i64, sliced = 1 : i64, written = array<i64: 0>} : (f32) -> f32': ""
    "%r = host.scan @b(%x) carried 0 sliced 1 written array<i64: 0> : f32 -> f32",
    '%r = "host.associative_scan"(%x) {carried = 0 : i64, combine = @f, sliced = 1 : i64} : (f32) -> f32': ""
    "%r = host.associative_scan @f(%x) carried 0 sliced 1 : f32 -> f32",
    '%r = "host.attention"(%q, %n) {lists = 2 : i64, scores = @a, weights = @b} : (f32, index) -> f32': ""
    "%r = host.attention @a then @b (%q, %n) lists 2 : f32, index -> f32",
    '%r = "host.attention"(%q, %n) {lists = 2 : i64, scores = @a, weights = @b, whole = @c} : (f32, index) -> f32': ""
    "%r = host.attention @a then @b or @c (%q, %n) lists 2 : f32, index -> f32",
    '%r = "host.layer"(%x) {callee = @layer_0} : (f32) -> f32': "%r = host.layer @layer_0(%x) : f32 -> f32",
}


@pytest.mark.parametrize("generic", PAIRS)
def test_an_op_is_printed_and_read(generic: str) -> None:
    assert print_short(f"    {generic}") == f"    {PAIRS[generic]}"
    op = read_generic(generic)
    assert op is not None and op == read_generic(read_short(PAIRS[generic]))
    assert op == read_generic(read_short(f'{PAIRS[generic]}  // a remark, "quoted"'))


def test_every_op_has_a_form_and_is_tested() -> None:
    assert set(FORMS) == set(dialects.OPS) == {_op(generic).name for generic in PAIRS}
    for cls in dialects.OPS.values():
        if hasattr(cls, "_fields"):
            operands, attributes, _, _ = ext.partition_fields(cls._fields)
            form = FORMS[cls.OPERATION_NAME]
            missing = [one.name for one in operands if f"%{one.name}" not in form]
            names = (*(one.name for one in attributes), *cls._optional)
            missing += [one for one in names if f"${one}" not in form and f"{{{one}}}" not in form]
            assert not missing, cls


def _op(generic: str) -> GenericOp:
    op = read_generic(generic)
    assert op is not None
    return op


@pytest.mark.parametrize(
    ("line", "expected"),
    {
        'symshape.symbol "s0" in [2, 9': "expected `]` at `the end of the line`",
        'symshape.symbol "s0" between [2, 9]': "expected `in` at `between [2, 9]`",
        "symshape.bind %x [%n] strides %c1 : tensor<?xf32>": "expected `[` at `%c1 : tensor<?xf32>`",
        "symshape.bind %x [n] strides [%c1] offset %c0 : tensor<?xf32>": "expected a value (%layout) at `n] strides",
        "symshape.bind %x [%n] strides [%c1] offset %c0": "expected `: ` and 1 type at `the end of the line`",
        "symshape.assume %c, 4": "expected the end of the line at `, 4`",
        "symshape.guard %c,": "expected reason at `the end of the line`",
        "host.call @aten.mm(%a, %b : f32 -> f32": "expected `)` at the end of",
        "host.call @aten.mm : f32 -> f32": "expected the arguments of a call at `: f32 -> f32`",
        'host.call @a.b(%x, "a") : f32 -> f32': "expected texts in single quotes",
        "host.launch @kernel_0(%a, %b) : f32 -> f32": "expected 2 types, not 1",
        "host.launch @kernel_0(%a) {3 4 : f32 -> f32": "this is no host.launch",
    }.items(),
)
def test_errors_name_the_line_and_what_was_expected(line: str, expected: str) -> None:
    with pytest.raises(CompileError, match=re.escape(expected)) as raised:
        read_short(f"func.func @f() {{\n  {line}\n}}", "edited.mlir")
    assert "edited.mlir, line 2" in str(raised.value) and "its form: " in str(raised.value)


def test_other_lines_stay() -> None:
    lines = [
        "  symshape.kernel,",
        "  %0 = arith.addi %a, %b : index",
        '  "symshape.bind"(%x,',
        "// symshape.assume %c",
        "",
    ]
    assert print_short("\n".join(lines)) == read_short("\n".join(lines)) == "\n".join(lines)


def test_what_a_form_cannot_say_stays_generic() -> None:
    for line in (
        '"symshape.bind"(%x, %c0) : (tensor<?xf32>, index) -> ()',  # too few operands
        '"host.call"(%x) {arguments = "($0)"} : (f32) -> f32',  # no target
        '%0 = "symshape.check_index"(%i, %n) {message = "m"} : (index, i64) -> index',  # another type
    ):
        assert print_short(line) == line


def _modules() -> list[Any]:
    files = [*sorted((ROOT / "test").rglob("*.mlir")), *sorted((ROOT / "examples").rglob("*.mlir"))]
    return [pytest.param(file, id=str(file.relative_to(ROOT))) for file in files]


def _check_text(text: str) -> int:
    """Reads what is printed, in short form and as it is; both are the same module. How many ops became short."""
    short = print_short(text)
    read = [_generic(ir.Module.parse(one)) for one in (text, read_short(short))]
    assert read[0] == read[1]
    return sum(a != b for a, b in zip(text.split("\n"), short.split("\n")))


def _generic(module: ir.Module) -> str:
    text: str = module.operation.get_asm(enable_debug_info=True, print_generic_op_form=True)
    return text


@pytest.mark.parametrize("file", _modules())
def test_files_of_the_tests_are_printed_and_read(file: Path) -> None:
    for part in re.split(r"^// -----.*$", file.read_text(), flags=re.MULTILINE):
        with dialects.load(ir.Context()) as context:
            context.attach_diagnostic_handler(lambda _: True)
            try:
                module = ir.Module.parse(part)
            except ir.MLIRError:
                continue  # of tests of errors
            for located in (True, False):
                _check_text(module.operation.get_asm(enable_debug_info=located))


PROGRAM = """// stage: imported
func.func @main(%n: index, %x: tensor<?xf32>) -> tensor<?xf32> {
  %s = symshape.symbol "s0" in [0, inf) at "arg0"  // the only size
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "symshape.bind"(%x, %s, %c1, %c0) : (tensor<?xf32>,
      index, index, index) -> ()
  %y = host.call @aten.mul.Tensor(%x, 3) fresh : tensor<?xf32> -> tensor<?xf32>
  symshape.bind %y [%s] strides [%c1] offset %c0 : tensor<?xf32>
  return {symshape.outputs = "($0,)"} %y : tensor<?xf32>
}
"""


def test_what_runs_ir_takes_either_form() -> None:
    (y,) = symshape.run_ir(PROGRAM, torch.ones(5))
    assert y.tolist() == [3.0] * 5
    wrong = PROGRAM.replace("strides [%c1] offset", "strides [%c1], offset")
    with pytest.raises(CompileError, match=r"(?s)expected `offset` at `, offset %c0.*the text, line 9"):
        symshape.run_ir(wrong, torch.ones(5))


def test_opt_prints_it_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "in.mlir"
    file.write_text(PROGRAM)
    assert opt.main([str(file)]) == 0
    generic = capsys.readouterr().out
    assert opt.main([str(file), "--pretty"]) == 0
    file.write_text(capsys.readouterr().out)
    assert "host.call @aten.mul.Tensor(%arg1, 3)" in file.read_text()
    assert opt.main([str(file)]) == 0
    assert capsys.readouterr().out == generic and '"host.call"(%arg1)' in generic
    file.write_text(PROGRAM.replace("in [0, inf)", "in [0, inf]"))
    assert opt.main([str(file)]) == 1
    assert f"{file}, line 3" in capsys.readouterr().err
    assert opt.main([str(file), "--pretty", "--mlir-print-op-generic"]) == 1
    assert "two forms" in capsys.readouterr().err


def _masked(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    picked = x[x.sum(1) > 0]
    return torch.nn.functional.gelu(picked @ w).sum(0) + torch.cat([w, w])[:1].relu()


def _chosen(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = torch.cond(x.sum() > 0, lambda v: v.softmax(-1), lambda v: v - v.mean(), (x,))
    return y @ w + torch.zeros(w.size(1)).scatter_add(0, torch.arange(w.size(1)), w[0])


def _steps(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    n = int(w.abs().sum()) + 1
    torch._check(n >= 1, lambda: "a number of rows")
    rows = torch.zeros(n, x.size(1)).index_add(0, torch.zeros(x.size(0), dtype=torch.int64), x)
    return torch.dropout(rows, 0.5, True).t().contiguous() + rows.amax()


@pytest.mark.parametrize("fn", [pytest.param(_masked, marks=pytest.mark.long), _chosen, _steps])
def test_every_stage_of_programs_is_printed_and_read(fn: Callable[..., Any]) -> None:
    report = symshape.explain(
        fn, torch.randn(5, 7, requires_grad=True), torch.randn(7, 9), options={"target": "triton"}
    )
    assert report.graphs
    for graph in report.graphs:
        for text in graph.stages.values():
            with dialects.load(ir.Context()):
                assert _check_text(text)
                assert not re.search(r'^ *(%[\w:]+ = )?"(symshape|host)\.', print_short(text), re.MULTILINE)
