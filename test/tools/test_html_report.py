"""The HTML report: what is on a page, that it needs nothing else, and that its expressions are the report's."""

from __future__ import annotations

import base64
import itertools
import json
import math
import random
import re
import shutil
import subprocess
import sys
import time
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch

import symshape
from symshape.codegen.cpu.objects.target import default
from symshape.codegen.cpu.schedule.forms import forms_of, in_order
from symshape.errors import OptionError
from symshape.passes.stages import STAGES
from symshape.prover.numbers.condition import Condition, all_of, any_of, at_least, differs, equals, real
from symshape.prover.numbers.expr import Expr, ceildiv, maximum, minimum
from symshape.tools import cli, zoo
from symshape.tools.html_report.graph_data import graph_data
from symshape.tools.html_report.javascript import javascript, javascript_condition
from symshape.tools.html_report.operations import read_operations
from symshape.tools.html_report.program_steps import read_program
from symshape.tools.html_report.sources import Highlighter, SourceLines
from symshape.tools.html_report.timeline import compile_seconds, timeline
from symshape.tools.report import GraphReport, Report
from symshape.tools.traffic import item_size, kernel_bytes

TEMPLATES = Path(symshape.__file__).parent / "tools" / "html_report" / "templates"


def normalised(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    torch._check(x.size(0) <= 4096, lambda: "too many rows")
    y = torch.softmax(x, -1) @ w
    return torch.nn.functional.layer_norm(y, (y.size(1),)) + y.t().contiguous().sum() * (x < 3).sum()


@pytest.fixture(scope="module")
def report() -> Report:
    return symshape.explain(normalised, torch.randn(5, 7), torch.randn(7, 9))


@pytest.fixture(scope="module")
def page(report: Report, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = report.html(tmp_path_factory.mktemp("page") / "page.html", "a <title> & more")
    return path.read_text(encoding="utf-8")


class _Elements(HTMLParser):
    """All elements with their attributes, and what is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "input", "br", "rect"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag != "rect":
            assert self.open.pop() == tag


def _packed(page: str) -> Any:
    (text,) = re.findall(r'id="packed">([^<]*)<', page)
    return json.loads(zlib.decompress(base64.b64decode(text)))


def _data(page: str) -> Any:
    (text,) = re.findall(r'id="data">([^<]*)<', page)
    return json.loads(text)


# --- the page ---------------------------------------------------------------------------------------------------------


def test_all_sections_are_there(page: str) -> None:
    elements = _Elements(page)
    assert elements.open == []
    ids = [attributes["id"] for _, attributes in elements.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {"summary", "graphs", "timeline", "graph-0"} <= set(ids)
    classes = {attributes.get("class") for tag, attributes in elements.found if tag == "section"}
    assert classes >= {"graph", "kernels", "memory", "map", "stages", "constraints", "masks"}
    for name in ("aria-labelledby", "for"):
        assert {attributes[name] for _, attributes in elements.found if name in attributes} <= set(ids)
    assert "a &lt;title&gt; &amp; more" in page


def test_nothing_else_is_loaded(page: str) -> None:
    for tag, attributes in _Elements(page).found:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base")
        assert "src" not in attributes and "srcset" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
    assert not re.search(r"@import|url\(|@font-face", page)
    own = (TEMPLATES / "page.js").read_text() + (TEMPLATES / "expressions.js").read_text()
    assert not re.search(r"\bfetch\(|XMLHttpRequest|\bimport\b|WebSocket|sendBeacon", own)
    assert re.findall(r"https?://[^\"]*", own) == ["http://www.w3.org/2000/svg"]  # the name of a namespace


def test_each_kernel_has_its_stages(report: Report, page: str) -> None:
    (packed,) = _packed(page)["graphs"]
    (graph,) = report.graphs
    assert list(packed["stages"]) == list(STAGES)
    assert packed["stages"]["planned"] == "kernels"  # nothing is planned for a CPU
    assert set(packed["kernels"]) == {kernel.name for kernel in graph.kernels}
    for kernel in graph.kernels:
        own = packed["kernels"][kernel.name]
        assert own["code"] == kernel.source
        assert all(own["stages"][stage] for stage in STAGES), kernel.name
        rows = [packed["stages"]["kernels"][i] for i in own["stages"]["kernels"]]
        assert sum(f"private @{kernel.name}(" in row[2] for row in rows) == 1
        assert sum(f"host.launch @{kernel.name}(" in row[2] for row in rows) == sum(
            name == kernel.name for name, _ in graph.launched
        )


def test_what_becomes_a_kernel_is_followed_by_the_users_lines(page: str) -> None:
    packed = _packed(page)
    texts = {number: re.sub(r"<[^>]*>", "", row["html"]) for number, row in enumerate(packed["lines"])}
    (graph,) = packed["graphs"]
    found = [number for number, text in texts.items() if "torch.softmax(x, -1)" in text]
    for stage in ("imported", "shaped", "linalg", "kernels"):
        rows = [row[2] for row in graph["stages"][stage] if set(row[1]) & set(found)]
        assert rows, stage
    assert any("exp" in row[2] for row in graph["stages"]["imported"] if set(row[1]) & set(found))


def test_locations_are_taken_out_of_operations() -> None:
    text = "\n".join(
        [
            '#loc1 = loc("/a b/f.py":3:1)',
            "module {",
            '  func.func @main(%arg0: index loc("x"(#loc1))) {',
            "    %0 = linalg.generic {a = 1} {",
            '    ^bb0(%in: f32 loc("m(1)"(#loc2))):',
            "      linalg.yield %in : f32 loc(#loc2)",
            "    } -> f32 loc(#loc2)",
            "    return loc(#loc)",
            "  } loc(#loc)",
            "} loc(#loc)",
            "#loc = loc(unknown)",
            '#loc2 = loc(fused["y"(#loc1), callsite("z"("g.py":4:1 to :7) at #loc)])',
        ]
    )
    head, generic, returned = read_operations(text)
    assert (head.is_head, head.text, head.origin.nodes) == (True, "func.func @main(%arg0: index) {", ("x",))
    assert generic.text.splitlines()[2:] == ["  linalg.yield %in : f32", "} -> f32"]
    assert generic.origin.lines == (("/a b/f.py", 3), ("g.py", 4))
    assert set(generic.origin.nodes) == {"m(1)", "y", "z"}
    assert (returned.number, returned.text, returned.origin.lines) == (8, "return", ())


# --- expressions ------------------------------------------------------------------------------------------------------


def _exprs(generator: random.Random, count: int) -> list[Expr]:
    made = [Expr.symbol(name) for name in ("s0", "s1", "u2")] + [Expr.const(n) for n in (-3, 0, 1, 2, 16)]
    for _ in range(count):
        a, b = generator.choice(made), generator.choice(made)
        divisor = maximum(b * b, 1) if generator.random() < 0.5 else Expr.const(generator.choice((-7, -2, 3, 16)))
        kinds = (a + b, a - b, a * generator.choice((2, -5)), a // divisor, a % divisor)
        made.append(generator.choice((*kinds, ceildiv(a, 4), maximum(a, b, 3), minimum(a, b))))
    return made


def _conditions(exprs: list[Expr]) -> list[Condition]:
    pairs = list(itertools.pairwise(exprs))
    simple = [at_least(a, b) for a, b in pairs] + [equals(a % 4, 0) for a in exprs] + [differs(a, b) for a, b in pairs]
    joined = [all_of(a, any_of(b, c)) for a, b, c in zip(simple, simple[3:], simple[7:])]
    return simple + joined


class _Math:
    max, min = staticmethod(max), staticmethod(min)


def _in_python(text: str, values: dict[str, int]) -> Any:
    """A second evaluator of the emitted text."""
    replaced = text.replace("!==", "!=").replace("===", "==").replace("&&", "and").replace("||", "or")
    names = {"fdiv": lambda a, b: a // b, "mod": lambda a, b: a % b, "Math": _Math, "true": True, "false": False}
    return eval(replaced, names, {"v": values})


def _cases() -> tuple[list[str], list[dict[str, int]], list[list[int]]]:
    generator = random.Random(0)
    exprs = [expr for expr in _exprs(generator, 300) if len(expr.python()) < 400]
    conditions = _conditions(exprs)
    texts = [*map(javascript, exprs), *(text for c in conditions if (text := javascript_condition(c)) is not None)]
    assert len(texts) == len(exprs) + len(conditions)
    values = [{name: generator.choice((0, 1, 2, 7, 63, 4096, -5)) for name in ("s0", "s1", "u2")} for _ in range(12)]
    wanted = [[int(one.evaluate(v)) for v in values] for one in (*exprs, *conditions)]
    return texts, values, wanted


def test_expressions_are_what_python_evaluates() -> None:
    texts, values, wanted = _cases()
    assert [[int(_in_python(text, v)) for v in values] for text in texts] == wanted


@pytest.mark.skipif(shutil.which("node") is None, reason="no node")
def test_expressions_are_what_javascript_evaluates(tmp_path: Path) -> None:
    texts, values, wanted = _cases()
    exact = [all(abs(value) < 1 << 40 for value in row) for row in wanted]
    assert sum(exact) > 400
    script = (TEMPLATES / "expressions.js").read_text() + (
        "const [texts, values] = JSON.parse(require('fs').readFileSync(0));"
        "const row = text => { const run = compiled(text); return values.map(v => Number(run(v))); };"
        "console.log(JSON.stringify(texts.map(row)));"
    )
    file = tmp_path / "run.js"
    file.write_text(script)
    done = subprocess.run(
        ["node", str(file)], input=json.dumps([texts, values]), text=True, capture_output=True, check=True
    )
    for text, row, right, whole in zip(texts, json.loads(done.stdout), wanted, exact, strict=True):
        assert not whole or row == right, text


def test_what_floats_decide_is_not_translated() -> None:
    s0 = Expr.symbol("s0")
    assert javascript_condition(all_of(at_least(s0, 2), real("{0} * 0.5 > 3.0", [s0]))) is None


def test_bytes_of_kernels_as_expressions(report: Report) -> None:
    generator = random.Random(1)
    (graph,) = report.graphs
    assert len(graph.kernels) > 2
    for kernel in graph.kernels:
        for _ in range(50):
            values = {name: generator.choice((0, 1, 2, 5, 9)) for name in kernel.loops.symbols}
            assert kernel_bytes(kernel.loops, values) == _counted_bytes(kernel.loops, values), (kernel.name, values)


def _counted_bytes(loops: Any, values: dict[str, int]) -> int:
    """Bytes of a launch, counted point by point: of each argument what its addresses tell apart, once for each text of
    an address, and no more than there is."""
    reached: dict[int, set[Any]] = {}
    points = itertools.product(*(range(dim.size.evaluate(values)) for dim in loops.dims))
    for point in [dict(zip((dim.name for dim in loops.dims), one)) for one in points]:
        for instr in loops.code:
            if instr.op in ("load", "store"):
                used = tuple(sorted((name, i) for name, i in point.items() if name in instr.address.symbols))
                reached.setdefault(instr.arg, set()).add((instr.address, used))
            assert instr.op not in ("extract", "scatter")
    sizes = {i: math.prod(size.evaluate(values) for size in loops.args[i].sizes) for i in reached}
    return sum(min(sizes[i], len(found)) * item_size(loops.args[i].dtype) for i, found in reached.items())


def _with_branches(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    def larger(v: torch.Tensor) -> torch.Tensor:
        inner = torch.cond(v.amax() > 9, lambda u: torch.sort(u, 0)[0].tanh(), lambda u: u @ u.t() @ u, (v,))
        return inner.softmax(-1)

    y = torch.cond(x.sum() > 0, larger, lambda v: v @ (v.t() @ v).exp(), (x,))
    return (y @ w).relu()


def test_branches_are_in_the_steps_and_in_the_totals() -> None:
    with torch.no_grad():
        (graph,) = symshape.explain(_with_branches, torch.randn(5, 7), torch.randn(7, 9)).graphs
    program = read_program(graph)
    assert len({step.branch for step in program.steps}) == 5  # main, and two branches of two
    _check_figures(graph)
    data = graph_data(graph, SourceLines(Highlighter()))
    assert data["totals"]["branches"] and data["symbols"]
    calls = [step.name for branch in program.functions for step in program.steps if step.branch == branch]
    assert [name for name in calls if name.startswith("aten.")] == [call.target for call in graph.called]
    # The symbols of the page are all that its expressions are of.
    values = {row["name"]: 3 for row in data["symbols"]}
    assert all(_in_python(buffer["bytes"]["js"], values) > 0 for buffer in data["buffers"])


def test_figures_of_a_graph_are_those_of_the_report(report: Report) -> None:
    (graph,) = report.graphs
    _check_figures(graph)


def _check_figures(graph: GraphReport) -> None:
    """Totals are the report's, and the sums of the steps'."""
    data = graph_data(graph, SourceLines(Highlighter()))
    values = {row["name"]: row["value"] + 3 for row in data["symbols"]}
    totals = data["totals"]
    assert _in_python(totals["kernels"]["js"], values) == graph.bytes_accessed(**values)
    assert _in_python(totals["calls"]["js"], values) == graph.library_bytes_accessed(**values)
    assert totals["launches"] == graph.launches == sum(kernel["launches"] for kernel in data["kernels"])
    moved = {"kernel": 0, "call": 0}
    kernels = {kernel["name"]: kernel for kernel in data["kernels"]}
    for step in data["steps"]:
        if step["kind"] == "kernel":
            own = [_in_python(one["js"], values) for one in step["arguments"]]
            kernel = kernels[step["name"]]
            moved["kernel"] += _in_python(kernel["bytes"]["js"], dict(zip(kernel["symbols"], own, strict=True)))
        elif step["kind"] == "call":
            moved["call"] += _in_python(step["bytes"]["js"], values)
    assert moved == {
        "kernel": graph.bytes_accessed(**values),
        "call": graph.library_bytes_accessed(**values),
    }


# --- the program ------------------------------------------------------------------------------------------------------


def test_memory_is_that_of_the_host_program(report: Report) -> None:
    (graph,) = report.graphs
    program = read_program(graph)
    assert [step.name for step in program.steps if step.kind == "kernel"] == [name for name, _ in graph.launched]
    assert [step.name for step in program.steps if step.kind == "call"] == graph.library_calls
    made = graph.program_source.count("empty_strided(") + len(graph.library_calls)
    assert len(program.buffers) == made
    assert sum(buffer.returned for buffer in program.buffers) == 1
    (x, w) = (5 * 7 * 4, 7 * 9 * 4)
    assert program.given.evaluate({row.name: row.hint for row in graph.symbols}) == x + w
    for buffer in program.buffers:
        assert buffer.first <= buffer.last < len(program.steps)


def test_buffers_die_at_their_last_use() -> None:
    def chain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = x @ w
        return x

    report = symshape.explain(chain, torch.randn(5, 8), torch.randn(8, 8))
    (graph,) = report.graphs
    spans = [(buffer.first, buffer.last) for buffer in read_program(graph).buffers]
    assert spans == [(0, 1), (1, 2), (2, 3), (3, 3)]
    size = read_program(graph).buffers[0]
    assert size.bytes.evaluate({row.name: row.hint for row in graph.symbols}) == 5 * 8 * item_size("f32")


# --- which form runs --------------------------------------------------------------------------------------------------


def test_choices_are_the_forms_that_the_entry_tries(report: Report) -> None:
    kernels = [kernel for kernel in report.graphs[0].kernels if len(kernel.choices) > 1]
    assert kernels
    for kernel in kernels:
        forms = in_order(forms_of(kernel.loops, default()))
        assert [choice.condition for choice in kernel.choices] == [form.condition for form in forms]
        assert kernel.choices[-1].condition.as_bool() is True
        for form in forms[:-1]:
            inside = [size.as_int() for size, _, _ in form.bounds]
            assert form.condition.as_bool() is None or None not in inside
            for size, least, most in form.bounds:
                name = size.as_symbol()
                if name is None or len(form.bounds) > 1:
                    continue
                for value in range(0, 3000):
                    right = value >= least and (most is None or value <= most)
                    assert form.condition.evaluate({name: value}) == right


def test_choices_of_a_gpu_kernel_are_its_variants(tmp_path: Path) -> None:
    report = symshape.explain(lambda x: torch.softmax(x, -1), torch.randn(3, 5), options={"target": "triton"})
    (kernel,) = report.graphs[0].kernels
    assert [choice.name for choice in kernel.choices] == list(kernel.variants)
    page = report.html(tmp_path / "page.html").read_text()
    (data,) = _data(page)
    (own,) = data["kernels"]
    assert own["map"]["addresses"] and data["processors"] == 132
    rows = [row for row in own["map"]["choices"] if row["js"] is not None]
    assert len(rows) == len(kernel.variants) and rows[-1]["js"] == "true"
    for size, addresses in itertools.product((1, 16, 100, 512, 5000, 1 << 20), (0, 4)):
        given = {row["name"]: 64 for row in data["symbols"]} | {data["symbols"][1]["name"]: size}
        values = {name: _in_python(js, given) for name, js, _ in own["map"]["launches"][0]["values"]}
        values |= {"processors": 132, **dict.fromkeys(own["map"]["addresses"], addresses)}
        taken = next(row["name"] for row in rows if _in_python(row["js"], values))
        assert taken == next(c.name for c in kernel.choices if c.condition.evaluate(values))


# --- time, size, command ----------------------------------------------------------------------------------------------


def test_the_timeline_is_all_of_the_time(report: Report) -> None:
    bars = timeline(report)
    frames = sum(frame.seconds for frame in report.frames)
    assert compile_seconds(bars) == pytest.approx(frames, rel=1e-6)
    assert {bar.group for bar in bars} >= {"tracing", "imported", "linalg", "kernels", "kernel code", "program"}
    for before, after in itertools.pairwise(bars):
        assert after.start == pytest.approx(before.start + before.seconds)


def test_a_page_is_small(page: str) -> None:
    assert len(page.encode()) < 300_000


@pytest.mark.long
def test_the_page_of_a_model_is_small_and_made_in_seconds(tmp_path: Path) -> None:
    model = zoo.MODELS["t5"]
    report = symshape.explain(model.build(), **model.inputs(model.first_shapes[0]))
    started = time.process_time()
    path = report.html(tmp_path / "page.html")
    assert time.process_time() - started < 4  # measured: 1.1
    assert path.stat().st_size < 5_000_000


def test_a_missing_library_is_said(report: Report, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(OptionError, match=r"needs jinja2(.|\n)*pip install 'symshape\[report\]'"):
        report.html(tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_a_report_without_graphs(tmp_path: Path) -> None:
    text = Report().html(tmp_path / "page.html").read_text()
    assert _Elements(text).open == [] and _data(text) == []


def test_further_graphs_and_their_reasons(tmp_path: Path) -> None:
    def scaled(x: torch.Tensor, n: str) -> torch.Tensor:
        return x * 2 if n == "two" else x + 1

    report = symshape.explain(scaled, torch.randn(3), "two")
    report.run(torch.randn(3), "one")
    assert len(report.graphs) == 2 and len(report.further) == 1
    text = report.html(tmp_path / "page.html").read_text()
    assert _Elements(text).open == []
    assert "graph 2 of <code>" in text and report.further[0].reasons[0].condition.replace("'", "&#39;") in text


def test_graph_breaks_and_their_reasons(tmp_path: Path) -> None:
    def told(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        print(y.sum().item())
        return y + 1

    report = symshape.explain(told, torch.randn(3))
    (broken,) = report.breaks
    text = report.html(tmp_path / "page.html").read_text()
    assert _Elements(text).open == []
    assert "Where a graph was broken" in text and "Failed to trace builtin operator" in text
    assert f"{Path(__file__).name}:{broken.line.rpartition(':')[2]}" in text
    whole = symshape.explain(torch.sin, torch.randn(3)).html(tmp_path / "page.html").read_text()
    assert "Where a graph was broken" not in whole


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    source = (
        "import torch\ndef inputs(): return (torch.randn(4),)\ndef f(x): return x.exp()\ndef g(x): return x.sin()\n"
    )
    (tmp_path / "own_subject.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert cli.main(["report", "own_subject.py:f", "-o", "one.html"]) == 0
    assert capsys.readouterr().out == "one.html\n"
    assert cli.main(["report", "own_subject.py:f", "own_subject:g"]) == 0
    assert capsys.readouterr().out == "own_subject-f.html\nown_subject-g.html\n"
    assert "sin" in json.dumps(_packed((tmp_path / "own_subject-g.html").read_text()))
    assert cli.main(["report", "own_subject.py:f", "own_subject:g", "-o", "none"]) == 1
    assert cli.main(["report", "no_such_module:f"]) == 1
    assert "no model, file or module is called 'no_such_module:f'" in capsys.readouterr().err
