"""Every file and folder that the documentation or a comment names exists."""

from __future__ import annotations

import io
import re
import subprocess
import tokenize
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("frontend", "analysis", "dialects", "passes", "codegen", "runtime", "prover")
OWN = (*PACKAGES, "cache", "jitted", "tools")
PATH = re.compile(r"(?<![\w/.{}<>*$~@%-])((?:[\w.-]+/)+[\w-]+\.(?:py|md|mlir|toml|json))\b")
# In text a folder, or a module without its ending; what goes on with a pattern or a dot is none.
FOLDER = re.compile(
    rf"(?<![\w/.{{}}<>*$~@%-])((?:{'|'.join((*PACKAGES, 'symshape', 'test', 'docs', 'bench', 'examples', 'corpus'))})"
    r"(?:/[\w-]+)+)/?(?![\w.*<{/-])"
)
BARE = re.compile(r"`(\w+\.py)`")
MODULE = re.compile(rf"(?<![\w.])symshape((?:\.(?:{'|'.join(OWN)}))(?:\.[a-z_]\w*)*)")
# Files of others, and of users in examples.
FOREIGN = ("torch/", "triton/", "llvm/", "mlir/", "torch_mlir/", "transformers/", "aten/")
USERS = ("train.py", "model.py", "my_pass.py")
ANY = ("symshape/X",)  # any folder of the package


@cache
def _files() -> frozenset[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return frozenset(name for name in listed if (ROOT / name).exists())


def _pages() -> list[str]:
    return sorted(name for name in _files() if name.endswith(".md") and not name.startswith("bench/results/"))


def _sources() -> list[str]:
    return sorted(name for name in _files() if name.endswith(".py"))


def _others() -> list[str]:
    """Files besides whose comments name some."""
    return sorted(name for name in _files() if name.endswith((".mlir", ".toml", ".cfg", "Makefile", ".txt")))


def _exists(path: str, at: str) -> bool:
    """A path is given from the root of the repository, from ``test/``, from the package, or from where it is named."""
    plain = path.removeprefix("./").removeprefix("symshape/") if path.split("/")[1:2] != [] else path
    here = Path(at).parent
    candidates = (
        path,
        plain,
        f"symshape/{plain}",
        f"test/{path}",
        str(here / path),
        f"{here.parts[0] if here.parts else ''}/{path}",
    )
    return any((ROOT / candidate).resolve().exists() for candidate in candidates)


def _prose(source: str) -> Iterator[str]:
    """Comments and docstrings of a module, and its other texts of several lines."""
    for token in tokenize.generate_tokens(io.StringIO((ROOT / source).read_text()).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and '"""' in token.string[:5]):
            yield token.string


def _module_exists(tail: str) -> bool:
    """Whether ``symshape`` + tail is a module, or a name in one."""
    parts = tail.strip(".").split(".")
    for used in range(len(parts), 0, -1):
        base = ROOT / "symshape" / Path(*parts[:used])
        if base.with_suffix(".py").is_file():
            return True
        if base.is_dir():
            rest = parts[used:]
            if not rest:
                return True
            text = (base / "__init__.py").read_text()
            return rest[0] in text
    return False


def _missing(text: str, at: str) -> list[str]:
    paths = [p for p in PATH.findall(text) if not p.startswith(FOREIGN) and not _exists(p, at)]
    folders = [p for p in FOLDER.findall(text) if p not in ANY and not _exists(p, at) and not _exists(f"{p}.py", at)]
    return paths + folders + [f"symshape{m}" for m in MODULE.findall(text) if not _module_exists(m)]


@pytest.mark.parametrize("page", _pages())
def test_pages_name_files_that_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    basenames = {name.rsplit("/", 1)[-1] for name in _files()}
    bare = [name for name in BARE.findall(text) if name not in basenames and name not in USERS]
    assert not _missing(text, page) + bare


@pytest.mark.parametrize("page", _pages())
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", (ROOT / page).read_text()):
        if "://" not in target:
            assert (ROOT / page).parent.joinpath(target).exists(), target


def _anchors(page: Path) -> set[str]:
    """Of each heading, as GitHub makes them."""
    headings = re.findall(r"(?m)^#+ (.+)$", re.sub(r"(?ms)^```.*?^```", "", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", _pages())
def test_links_into_pages_lead_to_a_heading(page: str) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)]+)\)", (ROOT / page).read_text()):
        if "://" not in target:
            there = (ROOT / page).parent / target if target else ROOT / page
            assert there.suffix != ".md" or anchor in _anchors(there), f"{target}#{anchor}"


def test_decisions_that_comments_quote_have_an_entry() -> None:
    titles = set(re.findall(r"(?m)^### (.+)$", (ROOT / "docs" / "decisions.md").read_text()))
    quoted = {
        title
        for source in _sources()
        for text in _prose(source)
        for title in re.findall(r'decisions\.md, "([^"]+)"', re.sub(r"\n\s*#?\s*", " ", text))
    }
    assert quoted
    assert not quoted - titles


def test_comments_name_files_that_exist() -> None:
    missing = {
        f"{source}: {path}" for source in _sources() for text in _prose(source) for path in _missing(text, source)
    }
    assert not {one for one in missing if "bench/results/" not in one}  # which scripts write when they run


def test_other_files_name_files_that_exist() -> None:
    named = {other: _missing((ROOT / other).read_text(), other) for other in _others()}
    assert not {other: missing for other, missing in named.items() if missing}


def test_a_path_of_before_a_move_is_found() -> None:
    gone = "from the tables of ``passes/aten``, see `passes/aten/bits.py`, symshape.passes.aten and test/no/such/"
    assert _missing(gone, "README.md") == ["passes/aten/bits.py", "passes/aten", "test/no/such", "symshape.passes.aten"]
    there = "`passes/lowering/aten`, passes/lowering/aten/, test/passes, `codegen/cpu/emit/sorted_scatter`, passes/*/x"
    assert not _missing(there, "README.md")


def test_the_architecture_names_every_package() -> None:
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    text = (ROOT / "docs" / "architecture.md").read_text()
    for package in packages:
        path = package.replace(".", "/") + "/"
        plain = path.removeprefix("symshape/") or path
        assert f"`{path}" in text or f"`{plain}" in text, package
