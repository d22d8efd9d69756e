"""The pages of docs/reference say what the declarations say, and the declarations say enough."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path

import pytest

from symshape import dialects
from symshape.options import Options
from symshape.passes.framework import registry
from symshape.passes.framework.base import Pass
from symshape.tools import reference, report
from symshape.tools.reference import _split_fields

PAGES = reference.pages()
of_a_checkout = pytest.mark.skipif(not reference.FOLDER.is_dir(), reason="a wheel has no pages")


@of_a_checkout
@pytest.mark.parametrize("name", PAGES)
def test_pages_are_up_to_date(name: str) -> None:
    assert (reference.FOLDER / f"{name}.md").read_text() == PAGES[name], "make docs writes them"


@of_a_checkout
def test_no_page_is_left_over() -> None:
    assert {path.stem for path in reference.FOLDER.glob("*.md")} == set(PAGES)


def test_check_finds_a_stale_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reference.main(["--folder", str(tmp_path)]) == 0
    assert reference.main(["--folder", str(tmp_path), "--check"]) == 0
    (tmp_path / "options.md").write_text("old")
    assert reference.main(["--folder", str(tmp_path), "--check"]) == 1
    assert "options.md is out of date" in capsys.readouterr().err
    assert (tmp_path / "options.md").read_text() == "old"


@pytest.mark.parametrize("name", registry.TABLE)
def test_passes_show_the_ir_before_and_after(name: str) -> None:
    cls = registry.lookup(name)
    assert cls is not None
    text = inspect.getdoc(cls) or ""
    assert "Before::" in text and "After::" in text


@pytest.mark.parametrize(
    "cls",
    [*(cls for name in registry.TABLE if (cls := registry.lookup(name))), Options]
    + [cls for cls in vars(report).values() if inspect.isclass(cls) and cls.__module__ == report.__name__],
    ids=lambda cls: cls.__name__,
)
def test_every_field_is_described(cls: type[Pass]) -> None:
    names = [field.name for field in dataclasses.fields(cls) if not field.name.startswith("_")]
    _, meanings = _split_fields(inspect.getdoc(cls) or "", names)
    assert list(meanings) == names


def test_ops_have_an_example() -> None:
    sections = PAGES["ops"].split("\n### ")[1:]
    assert len(sections) == len(dialects.OPS)
    for section in sections:
        name = section.split("`")[1]
        assert f'"{name}"' in section.split("```mlir")[1]
