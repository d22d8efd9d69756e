"""Graphs from the cache: the same results, requirements and messages as if they had been compiled."""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import pkgutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import symshape
from symshape.cache import compiled_graphs
from symshape.cache.own_files import digest_of_modules, own_digest
from symshape.errors import ShapeConstraintError
from symshape.passes.framework import registry
from symshape.runtime.cpu.load_objects import Library
from symshape.runtime.store import Cache
from symshape.tools import cli
from symshape.tools.measure import Graphs

ROOT = Path(__file__).resolve().parents[2]
PASS = str(Path(__file__).parents[1] / "support" / "need_blocks.py")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SYMSHAPE_CACHE", "1")
    monkeypatch.setenv("SYMSHAPE_CACHE_DIR", str(tmp_path / "cache"))
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def _again(fn: Any, *inputs: Any, **options: Any) -> Any:
    """As the first call in a process: nothing of Dynamo's is known."""
    torch._dynamo.reset()
    return symshape.compile(fn, **options)(*inputs)


# --- hits -------------------------------------------------------------------------------------------------------------


def _layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = torch.nn.functional.gelu(x @ w)
    return torch.softmax(y, -1) + torch.tensor([1.0, 2.0, 3.0])


def _other_constant(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = torch.nn.functional.gelu(x @ w)
    return torch.softmax(y, -1) + torch.tensor([4.0, 5.0, 6.0])


@pytest.mark.parametrize("target", ["cpu", "triton"])
def test_a_hit_computes_what_was_compiled(target: str, outcomes: Callable[[], list[str]]) -> None:
    w = torch.randn(4, 3, requires_grad=True)

    def check(fn: Any, rows: int) -> None:
        x = torch.randn(rows, 4)
        actual = _again(fn, x, w, target=target)
        (gradient,) = torch.autograd.grad(actual.sum(), w)
        torch.testing.assert_close(actual, fn(x, w))
        torch.testing.assert_close(gradient, torch.autograd.grad(fn(x, w).sum(), w)[0])

    check(_layer, 5)
    assert outcomes() == ["miss", "stored"] * 2
    check(_other_constant, 7)  # a constant is the graph's, not the entry's
    assert outcomes() == ["hit"] * 2
    if target == "cpu":
        return
    for file in (Path(os.environ["SYMSHAPE_CACHE_DIR"]) / "graphs").iterdir():
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    check(_layer, 5)
    assert outcomes() == ["miss", "stored"] * 2


def test_what_an_entry_requires_is_required_again(outcomes: Callable[[], list[str]]) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return (x.exp() * 2).sum()

    def gradient(fn: Any, size: int) -> torch.Tensor:
        x = torch.linspace(0, 1, size).requires_grad_()
        return torch.autograd.grad(fn(x), x)[0]

    options = {"pass_files": [PASS], "passes": ["need-blocks"]}
    gradient(symshape.compile(fn, **options), 8)  # backward works in blocks of 4
    assert outcomes() == ["miss", "stored"] * 2
    with Graphs() as graphs:
        compiled = symshape.compile(fn, **options)
        for size, known in ((12, 1), (16, 1), (6, 2), (4, 1)):
            torch.testing.assert_close(gradient(compiled, size), gradient(fn, size))
            assert graphs.read().graphs >= known, size
        assert graphs.read().graphs == 2
    # 6 rows cannot be required to be blocks of 4: backward is compiled for blocks of 2, and that is what is kept.
    assert outcomes() == ["hit", "hit", "hit", "miss", "stored"]


def test_passes_from_elsewhere_are_not_cached(outcomes: Callable[[], list[str]]) -> None:
    registry.load_pass_file(PASS)
    try:
        _again(lambda x: x + 1, torch.ones(4), passes=["need-blocks"])
    finally:
        registry._plugins.pop("need-blocks")
    (outcome,) = outcomes()
    assert outcome.startswith("not cached: the pass need-blocks is defined outside of pass_files; name its file in")


def test_options_of_passes_are_in_the_key(outcomes: Callable[[], list[str]]) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.exp().sum(-1)

    x = torch.randn(3, 4)
    for options in ("max-points=2", "max-points=8", "max-points=2"):
        actual = _again(fn, x, pass_options={"unroll-reductions": options})
        torch.testing.assert_close(actual, fn(x))
    assert outcomes() == ["miss", "stored"] * 2 + ["hit"]


CHECKED = """
import torch

def fn(x):
    n = x.sum().to(torch.int64).item()
    torch._check(n >= 2, lambda: "too few")
    return torch.zeros(n) + x.mean()
"""


def test_a_message_names_the_line_as_it_is_now(tmp_path: Path, outcomes: Callable[[], list[str]]) -> None:
    """An edit above an assertion moves it: the entry that knows the old line is not taken."""
    file = tmp_path / "user_code.py"

    def place(text: str) -> str:
        file.write_text(text)
        spec = importlib.util.spec_from_file_location("user_code", file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        torch._dynamo.reset()
        compiled = symshape.compile(module.fn, fullgraph=True)
        torch.testing.assert_close(compiled(torch.ones(3)), module.fn(torch.ones(3)))
        with pytest.raises(ShapeConstraintError) as raised:
            compiled(torch.zeros(3))
        return raised.value.where.rpartition("user_code.py:")[2].partition(":")[0]

    first = place(CHECKED)
    assert place(CHECKED) == first and outcomes() == ["miss", "stored", "hit"]
    assert place("# a line more\n" + CHECKED) == str(int(first) + 1) and outcomes() == ["miss", "stored"]


def test_entries_of_jit_are_kept(outcomes: Callable[[], list[str]]) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x + y, -1)

    reports = []
    for sizes in ((5, 7), (6, 9)):
        jitted = symshape.jit(fn)
        for rows, columns in (sizes, (3, 4)):
            x, y = torch.randn(rows, columns), torch.randn(columns)
            torch.testing.assert_close(jitted(x, y), fn(x, y))
        (entry,) = jitted.entries
        reports.append((entry.guards, entry.graphs[0]))
    assert outcomes() == ["miss", "stored", "hit"]
    (guards, cold), (warm_guards, warm) = reports
    assert guards == warm_guards and (cold.cache, warm.cache) == ("stored", "hit")
    assert cold.kernels[0].source == warm.kernels[0].source
    sizes_ = dict.fromkeys((row.name for row in warm.symbols), 8)
    assert cold.bytes_accessed(**sizes_) == warm.bytes_accessed(**sizes_)
    hints = [row.hint for row in warm.symbols]
    assert 6 in hints and 5 not in hints


def test_explain_compiles_and_says_what_is_kept(
    outcomes: Callable[[], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    report = symshape.explain(lambda x: x * 2 + 1, torch.ones(3))
    assert report.graphs[0].cache == "stored" and report.graphs[0].stage("kernels")
    assert outcomes() == ["miss", "stored"]
    report = symshape.explain(lambda x: x * 2 + 1, torch.ones(3))
    assert report.graphs[0].cache == "stored" and report.graphs[0].stage("kernels")
    _again(lambda x: x * 2 + 1, torch.ones(3))
    assert outcomes()[-1] == "hit"
    _again(lambda x: x * 2 + 1, torch.ones(3), cache=False)
    assert outcomes() == []
    for command, said in (("show", "graphs: 1 entries"), ("clear", "1 entries removed"), ("show", "graphs: 0 entries")):
        assert cli.main(["cache", command]) == 0 and said in capsys.readouterr().out


def test_machine_code_leaves_with_its_entries() -> None:
    torch.compiler.reset()
    gc.freeze()  # what other tests have left is neither counted nor walked, which took longer than all the rest

    def loaded() -> int:
        gc.collect()
        return sum(type(one) is Library for one in gc.get_objects())

    for turn in range(2):  # compiled, then from the cache
        symshape.compile(lambda x: x * 2)(torch.ones(3 + turn))
        assert loaded() == 1
        torch.compiler.reset()
        assert loaded() == 0


# --- other versions of symshape ---------------------------------------------------------------------------------------


def _zipped(archive: Path, folder: Path) -> str:
    """The path of a package that an archive holds."""
    with zipfile.ZipFile(archive, "w") as opened:
        for file in folder.rglob("*"):
            opened.write(file, Path("lib/package") / file.relative_to(folder))
        opened.writestr("lib/package_of_others/__init__.py", "")
    return str(archive / "lib/package")


def test_code_is_told_apart_however_it_is_installed(tmp_path: Path) -> None:
    folder = tmp_path / "package"
    (folder / "inner").mkdir(parents=True)

    def digests(suffix: str, text: str) -> list[str]:
        for file in folder.rglob("module.*"):
            file.unlink()
        (folder / "inner" / f"module{suffix}").write_text(text)
        name = f"{abs(hash((suffix, text)))}.zip"  # Python knows what was in an archive of the same name
        return [digest_of_modules([str(folder)]), digest_of_modules([_zipped(tmp_path / name, folder)])]

    found = [digests(suffix, text) for suffix in (".py", ".pyc", ".abi3.so") for text in ("1", "2")]
    assert all(folder_ == archive != "" for folder_, archive in found)
    assert len({one for one, _ in found}) == len(found)
    moved = digests(".py", "1")[0]
    (folder / "inner").rename(folder / "other")
    assert digest_of_modules([str(folder)]) not in ("", moved)


def test_code_that_cannot_be_read_has_no_digest(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no module")
    gone = _zipped(tmp_path / "gone.zip", tmp_path)
    assert pkgutil.get_importer(gone) is not None
    (tmp_path / "gone.zip").unlink()
    for paths in ([], [str(tmp_path)], [str(tmp_path / "missing")], ["<frozen>"], [gone]):
        assert digest_of_modules(paths) == ""


def test_without_a_digest_nothing_is_kept(outcomes: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_graphs, "_IMPORTED", "")
    torch.testing.assert_close(_again(lambda x: x * 3, torch.ones(3)), torch.full((3,), 3.0))
    (outcome,) = outcomes()
    assert outcome.startswith("not cached: symshape's own files cannot be read")


def test_the_version_is_in_the_key() -> None:
    version, digest = compiled_graphs.versions()["symshape"].split()
    assert version == symshape.__version__ and digest == own_digest()


# --- a new process ----------------------------------------------------------------------------------------------------

CHILD = """
import json, sys, torch, symshape

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(8, 4)

    def forward(self, x, y):
        z = self.linear(x)
        return torch.softmax(z, -1) * y[:, None], torch.relu(z)

torch.manual_seed(1)
net, x, y = Net(), torch.randn(int(sys.argv[1]), 8), torch.randn(int(sys.argv[1]))

def run(fn):
    outputs = fn(x, y)
    sum(t.square().sum() for t in outputs).backward()
    gradients = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    return [*outputs, *gradients]

actual, expected = run(symshape.compile(net)), run(net)
torch.testing.assert_close(actual, expected)
print(json.dumps([name for name in ("torch_mlir", "symshape.compiler") if name in sys.modules]))
"""


def test_a_new_process_starts_warm(tmp_path: Path) -> None:
    """Forward and backward, at another size: equal to eager, and neither MLIR nor the compiler is imported."""
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])

    def run(size: int) -> list[str]:
        command = [sys.executable, "-c", CHILD, str(size)]
        done = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        found: list[str] = json.loads(done.stdout.splitlines()[-1])
        return found

    assert run(5) == ["torch_mlir", "symshape.compiler"]
    cache = Cache(tmp_path / "cache" / "graphs")
    assert len(cache.entries()) == 2
    assert run(9) == []
