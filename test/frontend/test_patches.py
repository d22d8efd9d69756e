"""Patches of PyTorch: each is reverted whatever is raised, and its probes fail if PyTorch has changed."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import re
import subprocess
import sys
import threading
import tomllib
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._config_module import ConfigModule

import symshape
from symshape.errors import PatchError
from symshape.frame_compiler import compile_with
from symshape.frontend.patches import patch as patch_module
from symshape.frontend.patches import probes, registry, settings_rows
from symshape.frontend.patches.patch import Changes, Patch, Scope, Versions
from symshape.frontend.patches.probes import Behaves, Documents, Exists, HasLocal, Says, Takes
from symshape.frontend.patches.registry import CURRENT, PATCHES, in_force
from symshape.frontend.patches.settings import configured
from symshape.tools.cli import main
from symshape.tools.reference import pages

PHASES = ("plain", "frame", "graph", "jit", "split", "function")
X = torch.arange(6.0).reshape(2, 3)


def state() -> dict[str, Any]:
    """Every target as it is."""
    targets = [(patch.name, target) for patch in CURRENT for target in patch.all_targets]
    return {f"{name}: {target}": current_value(target) for name, target in targets}


def current_value(target: probes.Target) -> Any:
    """What a target is now, for comparisons: the object itself, a copy of a table, ``MISSING``."""
    if isinstance(target, probes.Named):
        return target.read()
    if "[" in target:
        table, key = probes.entry_of(target)
        return table.get(key, probes.MISSING)
    owner, name = probes.owner_of(target)
    if isinstance(owner, ConfigModule):
        return getattr(owner, name)
    found = (
        vars(owner).get(name, probes.MISSING) if isinstance(owner, type | types.ModuleType) else getattr(owner, name)
    )
    return dict(found) if isinstance(found, dict) else found


def changed(before: dict[str, Any]) -> list[str]:
    """The targets that are other objects than before."""
    return [name for name, value in state().items() if not is_same(before[name], value)]


def is_same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(a[key] is b[key] for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(x is y for x, y in zip(a, b))
    return a is b


@pytest.fixture(autouse=True)
def _everything_is_put_back() -> Iterator[None]:
    before = state()
    yield
    assert changed(before) == []
    assert not registry._in_force and not patch_module._SCOPES
    torch._dynamo.reset()


# --- restoration -----------------------------------------------------------------------------------------------------


def test_rows_are_told_apart() -> None:
    names = [patch.name for patch in PATCHES]
    assert len(set(names)) == len(names)
    assert {phase for patch in PATCHES for phase in patch.phases} == set(PHASES)
    for patch in PATCHES:
        assert patch.all_targets and patch.why and patch.versions, patch.name


def test_every_file_of_rows_is_a_table() -> None:
    files = Path(settings_rows.__file__).parent.rglob("*_rows.py")
    assert {file.stem for file in files} == {table.__name__.rpartition(".")[2] for _, table in registry.TABLES}


def test_versions() -> None:
    """A row is for its own versions; one that nothing is known for is taken for the nearest that is."""
    old, new, every = Versions(last="2.12"), Versions(first="2.13"), Versions()
    for version in ("2.9.1", "2.11.0", "2.12.1+cu130", "2.12"):
        assert old.has(version) and not new.has(version) and every.has(version)
    for version in ("2.13.0+cpu", "2.15.0", "2.15.0a0+git1234", "2.16.0", "3.0"):
        assert new.has(version) and not old.has(version) and every.has(version)
    middle = Versions(first="2.12", last="2.14")
    found = [minor for minor in (10, 11, 12, 14, 15, 16) if middle.has(f"2.{minor}.0")]
    assert found == [12, 14]


def test_a_newer_pytorch_is_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "9.9.0")
    (row,) = (row for row in PATCHES if row.name == "storage offsets")
    gone = dataclasses.replace(row, targets=("torch.nothing_of_this_name",))
    assert (
        gone.is_for_this_version and not dataclasses.replace(gone, versions=Versions(last="2.13")).is_for_this_version
    )
    with pytest.raises(PatchError, match="PyTorch 9.9.0 .*nothing_of_this_name is missing"):
        gone.require_known()


def test_the_metadata_has_the_range_of_the_patches() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    (torch_range,) = (one for one in project["dependencies"] if re.match(r"torch\b(?!-)", one))
    known = Versions()
    beyond = int(known.last.partition(".")[2]) + 1
    assert torch_range == f"torch>={known.first},<2.{beyond}"
    assert all(known.has(str(bound)) for row in PATCHES for bound in (row.versions.first, row.versions.last))


@pytest.mark.parametrize("phase", PHASES)
def test_a_scope_makes_its_changes(phase: Any) -> None:
    before = state()
    with in_force(Scope(phase)):
        found = changed(before)
        for patch in CURRENT:
            if patch.is_for(Scope(phase)) and not patch.is_setting and patch.name != "count of frames":  # a number in C
                assert any(name.startswith(f"{patch.name}: ") for name in found), patch.name
    assert changed(before) == []


@pytest.mark.parametrize("phase", PHASES)
def test_what_was_changed_is_reverted_if_the_kth_row_raises(phase: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before, rows = state(), registry._rows(Scope(phase))
    for failing in rows:

        def change(changes: Changes, failing: Patch = failing) -> None:
            failing.change(changes)
            raise ZeroDivisionError(failing.name)

        broken = tuple(dataclasses.replace(row, change=change) if row is failing else row for row in rows)
        monkeypatch.setattr(registry, "_rows", lambda _scope, broken=broken: broken)
        with pytest.raises(ZeroDivisionError), in_force(Scope(phase)):
            pytest.fail("entered")
        assert changed(before) == [], failing.name


@pytest.mark.sample(5)
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_what_was_changed_is_reverted_if_a_part_of_a_row_raises(
    phase: Any, kind: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after each single change."""
    before = state()
    for late in (False, True):
        for limit in itertools.count():
            with monkeypatch.context() as context:
                _raise_at(limit, late, kind, context)
                try:
                    with in_force(Scope(phase)):
                        break  # there are no more
                except kind:
                    pass
            assert changed(before) == []
            assert not registry._in_force and not patch_module._SCOPES
        assert limit > 0


def _raise_at(limit: int, late: bool, kind: type[BaseException], context: pytest.MonkeyPatch) -> None:
    left = [limit]

    def raising(usual: Callable[..., None]) -> Callable[..., None]:
        def change(self: Changes, *args: Any) -> None:
            left[0] -= 1
            if left[0] == -1 and not late:
                raise kind("stopped")
            usual(self, *args)
            if left[0] == -1:
                raise kind("stopped")

        return change

    for name in ("attribute", "items", "without", "callback"):
        context.setattr(Changes, name, raising(getattr(Changes, name)))


def test_an_interrupt_of_the_reverting_is_no_end_of_it() -> None:
    before = state()
    with pytest.raises(KeyboardInterrupt), in_force(Scope("frame")) as _:
        pass_on = [KeyboardInterrupt("again")]

        def interrupted() -> None:
            if pass_on:
                raise pass_on.pop()

        with in_force(Scope("graph"), [lambda changes: changes.callback(interrupted)]):
            pass
    assert changed(before) == []


def test_an_error_of_the_reverting_is_raised_when_all_is_reverted() -> None:
    before = state()

    def fail() -> None:
        raise ValueError("no way back")

    with (
        pytest.raises(ValueError, match="no way back"),
        in_force(Scope("frame"), [lambda changes: changes.callback(fail)]),
    ):
        pass
    # A revert that raises would raise again: it is left out, all others are made.
    assert changed(before) == []


def test_a_scope_inside_of_another_one_changes_once() -> None:
    usual = torch._dynamo.utils.run_node
    with in_force(Scope("frame", run_operators=False)):
        outer = torch._dynamo.utils.run_node
        assert outer is not usual and not patch_module.may_run_operators()
        with in_force(Scope("frame")):
            assert torch._dynamo.utils.run_node is outer
            assert patch_module.may_run_operators()
            with in_force(Scope("graph")):
                assert patch_module.may_run_operators()
        assert torch._dynamo.utils.run_node is outer and not patch_module.may_run_operators()
    assert torch._dynamo.utils.run_node is usual


def test_settings_are_set_again_inside() -> None:
    config = torch._dynamo.config
    with in_force(Scope("frame"), [configured("torch._dynamo.config", assume_static_by_default=True)]):
        assert config.assume_static_by_default
        with in_force(Scope("frame")):
            assert not config.assume_static_by_default
        assert config.assume_static_by_default


def test_only_settings() -> None:
    before = state()
    with in_force(Scope("frame", only_settings=True)):
        assert {name.partition(": ")[0] for name in changed(before)} <= {one.name for one in settings_rows.ROWS}


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, symshape.errors.ShapeConstraintError])
def test_an_exception_while_compiling(kind: type[BaseException]) -> None:
    before = state()

    def fail(_gm: Any, _inputs: Any) -> Any:
        assert changed(before)
        raise kind("stopped")

    with pytest.raises(BaseException, match="stopped"):
        compile_with(lambda x: x + 1, fail)(X)
    assert changed(before) == []


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_an_exception_while_a_jitted_function_is_traced(kind: type[BaseException]) -> None:
    before = state()
    seen: list[bool] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        seen.append(bool(changed(before)) and torch.compiler.is_compiling())
        raise kind("stopped")

    with pytest.raises(kind, match="stopped"):
        symshape.jit(function)(X)
    assert seen[0]  # a second call is eager mode's, whose error is raised
    assert changed(before) == []
    assert not torch.compiler.is_compiling()


@pytest.mark.parametrize("phase", ["frame", "graph"])
def test_fake_results_of_other_rules_are_not_taken(phase: Any) -> None:
    """PyTorch's rule gives the gradient of a threshold the type of its input where it counts as higher."""
    backward = torch.ops.aten.threshold_backward.default
    gradient, x = torch.ones(3, dtype=torch.int64), torch.tensor(1.0)
    exact = backward(gradient, x, 0).dtype

    def traced(env: ShapeEnv | None) -> torch.dtype:
        mode = modes.setdefault(env, FakeTensorMode(shape_env=env, static_shapes=env is None))
        fakes = inputs.setdefault(env, [mode.from_tensor(one) for one in (gradient, x)])
        with mode:
            found: torch.Tensor = backward(*fakes, 0)
            return found.dtype

    modes: dict[Any, FakeTensorMode] = {}
    inputs: dict[Any, list[Any]] = {}
    for env in (None, ShapeEnv()):
        before = traced(env)
        with in_force(Scope(phase)):
            assert traced(env) == exact == traced(env)
        assert traced(env) == before


def test_errors_of_opaque_calls_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    with caplog.at_level(logging.DEBUG, logger.name):
        with in_force(Scope("frame")):
            logger.error("raised as well")
            logger.warning("said")
        logger.error("as ever")
    assert [record.getMessage() for record in caplog.records] == ["said", "as ever"]


def test_jit_in_compile_and_compile_in_jit() -> None:
    before = state()
    jitted = symshape.jit(lambda x: x.exp() + 1)
    compiled = symshape.compile(lambda x: x.sin() * 2)
    both = symshape.compile(lambda x: jitted(x) - 1)(X), symshape.jit(lambda x: compiled(x) - 1)(X)
    torch.testing.assert_close(both, (X.exp(), X.sin() * 2 - 1))
    assert changed(before) == []


def _function(number: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function with code of its own."""
    found: dict[str, Any] = {}
    exec(f"def f{number}(x):\n return x * {number} + x.size(0)", found)
    function: Callable[[torch.Tensor], torch.Tensor] = found[f"f{number}"]
    return function


@pytest.mark.parametrize("count", [16, pytest.param(200, marks=pytest.mark.long)])
def test_threads(count: int) -> None:
    """They compile and jit at once; each gets its result, and PyTorch is what it was."""
    before, wrong = state(), []
    start = threading.Barrier(8)

    def work(first: int) -> None:
        start.wait()
        for number in range(first, count, 8):
            function = _function(number)
            run = symshape.jit(function) if number % 16 < 8 else symshape.compile(function)
            try:
                torch.testing.assert_close(run(X), X * number + 2)
            except BaseException as error:  # noqa: BLE001 - shown below
                wrong.append(f"{number}: {error!r}")

    threads = [threading.Thread(target=work, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert changed(before) == []


# --- probes ----------------------------------------------------------------------------------------------------------


def test_pytorch_is_what_the_patches_were_made_for() -> None:
    assert [f"{name}: {text}" for name, text in registry.probe_all().items() if text] == []


ROWS = [pytest.param(patch, id=patch.name) for patch in CURRENT]


@pytest.mark.parametrize("patch", ROWS)
def test_a_renamed_target_is_found(patch: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    named = [target for target in patch.all_targets if isinstance(target, str)]
    for target in named:
        with monkeypatch.context() as context:
            if target.endswith("]"):
                context.delitem(*probes.entry_of(target))
            else:
                context.delattr(*probes.owner_of(target))
            with pytest.raises(PatchError, match="is missing"):
                patch.require_known()
    assert named or patch.probes
    assert not patch.wrong()


SINGLE = [
    pytest.param(patch, probe, id=f"{patch.name}-{probe.name}-{i}")  # type: ignore[attr-defined]
    for patch in CURRENT
    for i, probe in enumerate(patch.probes)
]


@pytest.mark.parametrize(("patch", "probe"), SINGLE)
def test_a_change_of_what_a_patch_relies_on_is_found(patch: Patch, probe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gone, and changed: another signature, another name of a local variable, another text."""
    with monkeypatch.context() as context:
        usual = probes.resolved

        def resolved(name: str) -> Any:
            if name == probe.name:
                raise AttributeError(f"no {name}")
            return usual(name)

        context.setattr(probes, "resolved", resolved)
        assert "is missing" in probe.wrong()
        assert any("is missing" in text for text in patch.wrong())
    fake = _changed(probe)
    if fake is not None:
        with monkeypatch.context() as context:
            if probe.name.endswith("]"):
                table, key = probes.entry_of(probe.name)
                context.setitem(table, key, fake)
            else:
                context.setattr(*probes.owner_of(probe.name), fake)
            assert probe.wrong()
            assert probe.wrong() in patch.wrong()
    assert not patch.wrong()


def _changed(probe: Any) -> Any:
    """What stands for the thing in a version of PyTorch that has changed it; None where there is only its name."""
    if isinstance(probe, Takes):
        return lambda of_another_name: None
    if isinstance(probe, HasLocal):
        code = probes._code_of(probes.resolved(probe.name))
        assert code is not None
        return types.FunctionType(_without(code, probe.local), {})
    if isinstance(probe, Says):
        code = probes._code_of(probes.resolved(probe.name))
        assert code is not None
        cells = tuple(types.CellType() for _ in code.co_freevars)
        return types.FunctionType(_without(code, probe.text), {}, "f", None, cells)
    if isinstance(probe, Documents):
        return lambda: None
    if isinstance(probe, Behaves):
        return _other_words
    assert isinstance(probe, Exists)
    return types.SimpleNamespace() if probe.kind and not isinstance(probes.resolved(probe.name), bool) else None


def _other_words(*_: Any) -> None:
    raise RuntimeError("these sizes are symbolic")


def _without(code: types.CodeType, text: str) -> types.CodeType:
    """The code with other words for a text, where it reads or says it."""

    def other(value: Any) -> Any:
        if isinstance(value, types.CodeType):
            return _without(value, text)
        return value.replace(text, "other") if isinstance(value, str) else value

    names = {name: tuple(map(other, getattr(code, name))) for name in ("co_names", "co_varnames", "co_cellvars")}
    return code.replace(co_consts=tuple(map(other, code.co_consts)), **names)


def test_every_foreign_frame_and_message_that_is_read_has_a_probe() -> None:
    """What the package reads off frames of PyTorch, and of its errors' texts."""
    every = [probe for row in CURRENT for probe in row.probes]
    read = {(probe.name.rpartition(".")[2], probe.local) for probe in every if isinstance(probe, HasLocal)}
    checks = {("_check_with", "message"), ("_check_with", "cond")}
    asking = {("run_node", "n"), ("run_node", "node"), ("__torch_dispatch__", "func")}
    compiling = {("_compile", name) for name in ("code", "compiler_fn", "globals", "locals", "one_graph")}
    assert read == {*checks, *asking, *compiling, ("forward", "self")}
    root = Path(patch_module.__file__).parents[1]
    lines = [line for file in root.rglob("*.py") for line in file.read_text().splitlines() if "f_locals" in line]
    # Two more: those of the user's frame that Dynamo is called for, and of a function inside of `_compile`.
    assert sum("f_locals" in line and "import" not in line for line in lines) == len(read) + 2, lines


def test_a_changed_pytorch_is_an_error_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a fallback: nothing is said of what is traced by other rules than those that were meant."""
    from torch._functorch import partitioners

    monkeypatch.setattr(registry, "_probed", set())
    monkeypatch.setattr(partitioners, "functionalize_rng_ops", lambda joint: joint)
    for run in (symshape.compile(lambda x: x + 1), symshape.jit(lambda x: x + 1)):
        with pytest.raises(PatchError, match="'states of checkpoints' was made for") as raised:
            run(X)
        assert raised.value.where and raised.value.next_step
    monkeypatch.undo()
    assert symshape.compile(lambda x: x + 2)(X).equal(X + 2)


def test_the_page_is_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "patches.md"
    assert page.read_text() == pages("patches")["patches"], "make docs"


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str) -> str:
        assert main(["patches", *arguments]) == 0
        return capsys.readouterr().out

    assert f"{len(PATCHES)} changes of PyTorch" in run()
    assert f"{len(CURRENT)} of {len(CURRENT)} patches find what they rely on" in run("--probe")
    assert run("--markdown") == pages("patches")["patches"]


@pytest.mark.long
def test_inductors_table_has_pytorchs_own_rules() -> None:
    """It is filled when it is imported, from the table that is changed while a frame is traced; the import lists the
    composite operators once (the row "lists of composite operators" is in force by then)."""
    script = """
import torch, symshape
symshape.compile(lambda x: torch.cat([x, x.squeeze(0)]).logsumexp(0).expand(2, 4))(torch.randn(3, 4))
from symshape.frontend.patches.speed import needless_work
from torch._inductor.decomposition import select_decomp_table
print(len(needless_work._listed))
print([str(op) for op, rule in select_decomp_table().items() if rule.__module__.startswith("symshape")])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-2:] == ["1", "[]"], done.stdout + done.stderr
