"""A pass from a file, in a compile: the same file that test/tools/plugin.mlir runs by symshape-opt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import symshape
from symshape.backend import symshape_backend
from symshape.dialects import context_of_compile
from symshape.errors import OptionError
from symshape.passes.framework import registry
from symshape.passes.framework.base import Pass
from symshape.tools.report import GraphReport

ROOT = Path(__file__).resolve().parents[2]
FILE = str(ROOT / "examples" / "drop_noop_views.py")
FAILING = str(ROOT / "test" / "tools" / "Inputs" / "failing_passes.py")


def _compile(options: dict[str, Any]) -> list[GraphReport]:
    torch._dynamo.reset()
    reports: list[GraphReport] = []

    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        return symshape_backend(gm, inputs, options=options, reports=reports)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) + 1

    compiled = torch.compile(fn, backend=backend, dynamic=True)
    for rows in (3, 5):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(compiled(x), fn(x))
    return reports


def test_a_pass_from_a_file_runs_in_a_compile() -> None:
    (report,) = _compile({"pass_files": [FILE], "passes": ["drop-noop-views{limit=3}"]})
    assert "dropped" in report.statistics["drop-noop-views"]


OF_ANOTHER_DIALECT = """
from typing import ClassVar
from torch_mlir import ir
from symshape.passes.framework.base import Pass

class ReadThread(Pass):
    \"\"\"Creates an op of a dialect that the compiler itself has no ops of, and removes it.\"\"\"

    name: ClassVar[str] = "read-thread"
    statistics: ClassVar[dict[str, str]] = {"registered": "ops that MLIR knows"}

    def run(self, module, context):
        block = module.body.operations[0].regions[0].blocks[0]
        with module.context, ir.Location.unknown(), ir.InsertionPoint.at_block_begin(block):
            op = ir.Operation.create("nvvm.read.ptx.sreg.tid.x", [ir.IntegerType.get_signless(32)])
        self.count(context, registered=int("= nvvm.read.ptx.sreg.tid.x" in str(op)))  # others are printed with quotes
        op.erase()
"""


def test_a_pass_may_create_ops_of_any_dialect(tmp_path: Path) -> None:
    """Unless a user's passes run, a compile loads the dialects of its own ops only."""
    file = tmp_path / "passes.py"
    file.write_text(OF_ANOTHER_DIALECT)
    (report,) = _compile({"pass_files": [str(file)], "passes": ["read-thread"], "strict": True})
    assert report.statistics["read-thread"] == {"registered": 1}
    assert not context_of_compile().is_dialect_loaded("nvvm")


def test_a_pass_can_be_switched_off() -> None:
    options = {"pass_files": [FILE], "passes": ["drop-noop-views"], "disable_passes": ["drop-noop-views"]}
    (report,) = _compile(options)
    assert "drop-noop-views" not in report.statistics


def test_the_example_drops_products_of_products() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.elu(x * 1.0 * 1.0) * 1.0

    options = {"pass_files": [str(ROOT / "examples" / "drop_mul_by_one.py")], "passes": ["drop-mul-by-one"]}
    x = torch.randn(3, 5)
    report = symshape.explain(fn, x, options={**options, "strict": True})
    torch.testing.assert_close(report.result, fn(x))
    assert report.graphs[0].statistics["drop-mul-by-one"]["dropped"] >= 3


def test_a_failing_pass_is_named_with_a_replay_command(tmp_path: Path) -> None:
    options = {"pass_files": [FAILING], "passes": ["fail-at-op"], "debug_dir": str(tmp_path)}
    with pytest.raises(Exception, match="pass 'fail-at-op' failed: 'func.func' op is not welcome") as raised:
        _compile(options)
    assert f"symshape-opt {tmp_path}/fail-at-op-0.mlir" in str(raised.value)
    assert "func.func" in (tmp_path / "fail-at-op-0.mlir").read_text()


def test_names_of_built_in_passes_are_taken() -> None:
    class Taken(Pass):
        name = "lower-aten"

    with pytest.raises(OptionError, match="'lower-aten' is the name of a built-in pass"):
        registry.register(Taken)
