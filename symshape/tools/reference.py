"""Generates the pages of docs/reference from declarations: ``python -m symshape.tools.reference`` (``make docs``).

``ops``          the op classes of ``dialects/``: fields and docstrings
``passes``       the passes of the registry: docstrings, and dataclass fields as options; the stages that run them
``options``      ``symshape.options.Options``
``environment``  ``symshape.knobs``
``report``       the dataclasses of ``symshape.tools.report``
``patches``      the tables of ``frontend/patches/registry.py``
``operators``    which ATen operators have a lowering rule, are decomposed, or stay library calls
``files``        the modules, with the first paragraph of each docstring

With ``--check`` nothing is written, and the exit status is 1 if a page differs from its declarations.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import re
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference"
_GENERATED = "<!-- Written by `make docs` from {source}. Do not edit. -->"


def main(argv: Sequence[str] | None = None) -> int:
    """Writes all pages. With ``--check``, prints which are out of date and returns 1 if there are any."""
    parser = argparse.ArgumentParser(prog="python -m symshape.tools.reference", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 where a page is out of date")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the pages are")
    given = parser.parse_args(argv)
    stale = 0
    for name, text in pages().items():
        file: Path = given.folder / f"{name}.md"
        if file.is_file() and file.read_text() == text:
            continue
        stale += 1
        if given.check:
            print(f"{file} is out of date: make docs", file=sys.stderr)
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    return 1 if given.check and stale else 0


def pages(*names: str) -> dict[str, str]:
    """The pages ``names`` (default: all) as Markdown, by name."""
    return {name: "\n".join(_PAGES[name]()).rstrip() + "\n" for name in names or _PAGES}


# --- pages ------------------------------------------------------------------------------------------------------------


def _ops() -> Iterable[str]:
    from symshape import dialects

    ops = sorted(dialects.OPS.values(), key=_line)
    yield from _head("Operations", "dialects/")
    yield "The ops of the dialects `symshape` and `host`, in generic assembly. Sizes are `index` values, and arithmetic"
    yield "on them is `arith`; unsigned bytes are `ui8` in tensor types, booleans `i1`. `dialects/short_form.py` says"
    yield "how a short form is written: `$name` is an attribute, `%name` an operand, what is in braces may be left out."
    for module in sorted({cls.__module__ for cls in ops}, key=_op_file_order):
        yield f"\n## {_file_of(module)}\n"
        yield _markdown(sys.modules[module].__doc__ or "")
        for cls in (cls for cls in ops if cls.__module__ == module):
            yield f"\n### `{cls.OPERATION_NAME}`\n"
            yield _markdown(inspect.getdoc(cls) or "")
            yield from _op_fields(cls)


# What an op of another file may be made of comes before it; files that are not named here come last.
_FIRST_OP_FILES = ("symbols", "constraints", "host", "kernels", "plans")


def _op_file_order(module: str) -> tuple[int, str]:
    name = module.rpartition(".")[2]
    return _FIRST_OP_FILES.index(name) if name in _FIRST_OP_FILES else len(_FIRST_OP_FILES), name


def _line(cls: type) -> int:
    return inspect.getsourcelines(cls)[1]


def _op_fields(cls: Any) -> Iterable[str]:
    """An op's short form, attributes, operands and results. Ops of ``host`` have no declared fields: they take operands
    of any type."""
    from torch_mlir.dialects import ext

    from symshape.dialects.short_form import FORMS

    fields = getattr(cls, "_fields", None)
    yield f"\n- short form: `{f'{cls.OPERATION_NAME} {FORMS[cls.OPERATION_NAME]}'.strip()}`"
    if fields is None:
        return
    operands, attributes, results, _ = ext.partition_fields(fields)
    optional = list(getattr(cls, "_optional", ()))
    rows = [
        ("attributes", [f"`{one.name}`" for one in attributes] + [f"`{name}` (optional)" for name in optional]),
        ("operands", [f"`{one.name}`" + ("..." if one.variadicity.name == "variadic" else "") for one in operands]),
        ("results", [f"`{one.name}`" for one in results]),
    ]
    for title, names in rows:
        if names:
            yield f"- {title}: {', '.join(names)}"


def _passes() -> Iterable[str]:
    from symshape.passes.framework import registry
    from symshape.passes.stages import STAGES
    from symshape.pipeline import OPTIONAL

    yield from _head("Passes", "passes/")
    yield "`symshape-opt in.mlir --NAME`, `--pass-pipeline='builtin.module(NAME{option=value})'`, and the options"
    yield "`passes`, `pass_options` and `disable_passes` take these names.\n"
    yield from _table(
        ("stage", "passes that make it, in order"),
        [(f"`{stage}`", ", ".join(_link(name) for name in names) or "the importer") for stage, names in STAGES.items()],
    )
    others = [name for name in OPTIONAL if name not in registry.TABLE]
    yield f"\nSteps besides passes that can be left out: {', '.join(f'`{name}`' for name in others)}."
    staged = [name for names in STAGES.values() for name in names]
    for name in [*staged, *(name for name in registry.TABLE if name not in staged)]:
        cls = registry.lookup(name)
        assert cls is not None
        fields = dataclasses.fields(cls)
        text, meanings = _split_fields(inspect.getdoc(cls) or "", [field.name for field in fields])
        yield f"\n## {name}\n"
        yield f"[{_file_of(cls.__module__)}]({_from_pages(cls.__module__)})" + _targets(cls) + "\n"
        yield _markdown(text)
        if cls.statistics:
            yield "\nStatistics:\n"
            yield from _table(("statistic", "meaning"), [(f"`{n}`", text) for n, text in cls.statistics.items()])
        if fields:
            yield "\nOptions:\n"
            rows = [
                (f"`{f.name.replace('_', '-')}`", f"`{f.type}`", _default(f), _inline(meanings.get(f.name, "")))
                for f in fields
            ]
            yield from _table(("option", "type", "default", "meaning"), rows)


def _targets(cls: Any) -> str:
    only = f"; only for the targets {', '.join(cls.targets)}" if cls.targets else ""
    instead = f"; where it is left out, `{cls.instead}` runs" if cls.instead else ""
    return only + instead


def _options() -> Iterable[str]:
    from symshape.options import MODES, Options
    from symshape.policy import SpecialisationPolicy

    _, meanings = _split_fields(inspect.getdoc(Options) or "", [field.name for field in dataclasses.fields(Options)])
    yield from _head("Options", "symshape/options.py")
    yield "`symshape.compile(fn, NAME=value)`, `symshape.compile(fn, options={...})`,"
    yield '`torch.compile(fn, backend="symshape", options={...})`, `symshape.jit(fn, options={...})` and'
    yield "`symshape.explain` take them. An unknown name or a value of another type is an `OptionError`.\n"
    rows = [
        (f"`{f.name}`", f"`{f.type}`", _default(f), _inline(meanings.get(f.name, "")))
        for f in dataclasses.fields(Options)
    ]
    yield from _table(("option", "type", "default", "meaning"), rows)
    yield f"\nModes: {', '.join(f'`{mode}`' for mode in MODES)}."
    yield "\n## SpecialisationPolicy\n"
    yield "`symshape.SpecialisationPolicy(...)`, the option `policy` (symshape/policy.py).\n"
    fields = dataclasses.fields(SpecialisationPolicy)
    _, meanings = _split_fields(inspect.getdoc(SpecialisationPolicy) or "", [field.name for field in fields])
    rows = [(f"`{f.name}`", f"`{f.type}`", _default(f), _inline(meanings.get(f.name, ""))) for f in fields]
    yield from _table(("field", "type", "default", "meaning"), rows)


def _environment() -> Iterable[str]:
    from symshape import knobs

    yield from _head("Environment variables", "symshape/knobs.py")
    yield "A variable is read when it is needed. One that is empty counts as not set.\n"
    for title, tests_only in (("", False), ("\nThe tests read these, the package does not:\n", True)):
        if title:
            yield title
        rows = [
            (
                f"`{v.name}`",
                _type_of(v.default),
                v.values,
                f"`{v.default}`" if v.default is not None else "",
                v.description,
            )
            for v in knobs.VARIABLES
            if v.tests_only == tests_only
        ]
        yield from _table(("variable", "type", "values", "default", "meaning"), rows)
    yield "\nOf others' variables, `TRITON_INTERPRET=1` (Triton) runs GPU kernels on the CPU; it must be set before"
    yield "Triton is imported. `NO_COLOR` is respected. See [cache.md](../cache.md) for the cache."


def _report() -> Iterable[str]:
    from symshape.tools import report

    own = [cls for cls in vars(report).values() if dataclasses.is_dataclass(cls) and isinstance(cls, type)]
    first = (report.Report, report.GraphReport)
    yield from _head("The report", "symshape/tools/report.py")
    yield "`symshape.explain(fn, *inputs)` returns a `Report`."
    for cls in (*first, *(cls for cls in own if cls not in first)):
        fields = [field for field in dataclasses.fields(cls) if not field.name.startswith("_")]
        text, meanings = _split_fields(inspect.getdoc(cls) or "", [field.name for field in fields])
        yield f"\n## {cls.__name__}\n"
        yield _markdown(text) + "\n"
        rows = [(f"`{f.name}`", f"`{f.type}`", _inline(meanings.get(f.name, ""))) for f in fields]
        rows += _members(cls)
        told = any(meaning for _, _, meaning in rows)  # no column of meanings if the docstring describes no field
        yield from _table(("field", "type", "meaning")[: 2 + told], [row[: 2 + told] for row in rows])


def _members(cls: type) -> Iterable[tuple[str, str, str]]:
    """Table rows of the public properties and methods: name, return type, first paragraph of the docstring."""
    for name, member in vars(cls).items():
        function = member.fget if isinstance(member, property) else member
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        signature = inspect.signature(function)
        shown = name
        if not isinstance(member, property):
            parameters = [str(p).split(":")[0].split(" =")[0] for p in list(signature.parameters.values())[1:]]
            shown = f"{name}({', '.join(parameters)})"
        yield f"`{shown}`", f"`{signature.return_annotation}`", _inline(inspect.getdoc(function) or "")


def _patches() -> Iterable[str]:
    from symshape.frontend.patches import registry

    yield from _head("Patches", "frontend/patches/")
    yield "Every change that symshape makes to PyTorch; each is in force only while it traces. `symshape patches`"
    yield "prints this table. `symshape patches --probe` checks whether the installed PyTorch is what each row relies"
    yield "on; the first compile of a process checks the rows that it uses, and raises a `PatchError` if something"
    yield "has changed."
    for title, table in registry.TABLES:
        yield f"\n## {title}\n\n{table.__doc__} (`{_file_of(table.__name__)}`)"
        for patch in table.ROWS:
            yield f"\n### {patch.name}\n"
            yield f"{patch.why}.\n"
            for label, text in patch.facts():
                yield f"- {label}: {text}"


def _operators() -> Iterable[str]:
    import torch

    from symshape.frontend.bridge.operators import tagged_operators
    from symshape.frontend.decompositions.table import CHANGED, OURS, decomposition_table
    from symshape.passes.lowering.lower_aten import TABLES, rules, rules_of

    core, apart, native = tagged_operators(torch.Tag.core), {str(op) for op in decomposition_table()}, rules()
    left, pointwise = (
        [name for name in names if name not in native and name not in apart]
        for names in (core, tagged_operators(torch.Tag.pointwise))
    )
    yield from _head("Operators", "passes/lowering/ and frontend/decompositions/table.py")
    yield "What becomes of an operator: where there is a decomposition, others take its place while it is traced; where"
    yield "there is a rule, `lower-aten` makes native code of it; else it stays a call of PyTorch's. A rule or a"
    yield "decomposition may leave single calls alone: the report says which and why. Search this page for an operator"
    yield "from the top: a decomposition comes before a rule."
    yield "[CONTRIBUTING.md](../../CONTRIBUTING.md#a-rule-for-an-aten-operator) says how to add a rule.\n"
    yield f"Of PyTorch's core operators (`torch.Tag.core`) {len(core)} return tensors and write to none; {len(left)} of"
    yield "them are always library calls.\n"
    yield "## Core operators that are library calls\n"
    yield _listed(left)
    yield "\n## Pointwise operators that are library calls\n"
    yield "(`torch.Tag.pointwise`.) A rule of one of these is a function of numbers.\n"
    yield _listed(pointwise)
    yield "\n## Core operators without a rule that are taken apart\n"
    yield _listed(name for name in core if name not in native and name in apart)
    yield "\n## Operators with a decomposition of ours\n"
    yield "(`frontend/decompositions/table.py`; others have PyTorch's.)\n"
    files: dict[str, dict[str, None]] = {}
    for op, rule in (*OURS, *CHANGED):
        files.setdefault(_file_of(rule.__module__), {})[str(op)] = None
    rows = [(f"[{Path(file).name}](../../{file})", _listed(sorted(ops))) for file, ops in sorted(files.items())]
    yield from _table(("file of `frontend/decompositions/`", "operators"), rows)
    yield "\n## Operators with a rule that are taken apart first\n"
    yield "A change of one of these rules shows only where the decomposition leaves a call alone, in calls that graph"
    yield "rewrites and other decompositions write, and in IR that is read as text.\n"
    yield _listed(sorted(name for name in native if name in apart))
    yield "\n## Operators with a rule\n"
    rows = [(_rules_file(table), _listed(sorted(rules_of(table)))) for table in TABLES]
    yield from _table(("file of `passes/lowering/aten/`", "operators"), rows)


def _files() -> Iterable[str]:
    yield from _head("Files", "the first paragraph of each module's docstring")
    yield "The modules by folder. [architecture.md](../architecture.md#the-tree) says when the code of a folder runs,"
    yield "and [where to look](../architecture.md#where-to-look) for an idea or a question."
    root = FOLDER.parents[1]
    for folder in _folders(root):
        files = [file for file in sorted(folder.glob("*.py")) if file.name != "__init__.py"]
        if files:
            yield f"\n## {folder.relative_to(root)}/\n"
            yield _first_paragraph(folder / "__init__.py") + "\n"
            rows = [(f"[{file.name}](../../{file.relative_to(root)})", _first_paragraph(file)) for file in files]
            yield from _table(("file", "what is in it"), rows)


def _folders(root: Path) -> Iterable[Path]:
    """The folders of the package, in the order of ``pyproject.toml``."""
    settings = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]
    mapped = settings["package-dir"]
    for package in settings["packages"]:
        parts = package.split(".")
        top = ".".join(parts[:2])
        yield root.joinpath(mapped[top], *parts[2:]) if top in mapped else root.joinpath(*parts)


def _first_paragraph(file: Path) -> str:
    """The first paragraph of a module's docstring in one line, read without importing the module."""
    return _inline(ast.get_docstring(ast.parse(file.read_text())) or "")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _rules_file(table: str) -> str:
    return f"[{table}.py](../../passes/lowering/aten/{table}.py)"


_PAGES: Mapping[str, Callable[[], Iterable[str]]] = {
    "ops": _ops,
    "passes": _passes,
    "options": _options,
    "environment": _environment,
    "report": _report,
    "patches": _patches,
    "operators": _operators,
    "files": _files,
}

# --- text -------------------------------------------------------------------------------------------------------------


def _head(title: str, source: str) -> Iterable[str]:
    return f"# {title}\n", _GENERATED.format(source=source) + "\n"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    yield "| " + " | ".join(header) + " |"
    yield "|" + "---|" * len(header)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def _markdown(docstring: str) -> str:
    """A docstring as Markdown: double backticks become single ones, and a block after ``::`` a fenced block of MLIR."""
    parts = re.split(r"\n\n(?=    )|\n\n(?! )", inspect.cleandoc(docstring))
    lines: list[str] = []
    code = False
    for part in parts:
        if code and part.startswith("    "):
            lines.append(f"```mlir\n{textwrap.dedent(part)}\n```")
            continue
        code = part.endswith("::")
        lines.append(_code_marks(part[:-1] if code else part))
    return "\n\n".join(lines)


def _code_marks(text: str) -> str:
    return re.sub(r"(?<!`)``(?!`)(.+?)(?<!`)``(?!`)", r"`\1`", text)


def _inline(text: str) -> str:
    """The first paragraph of ``text`` in one line, for a cell of a table."""
    return _code_marks(" ".join(text.split("\n\n")[0].split()))


def _split_fields(docstring: str, names: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Splits a docstring into its text and its descriptions of fields, by name of the field.

    A description begins in the first column with the field in double backticks and two spaces, and continues in
    indented lines.
    """
    kept: list[str] = []
    found: dict[str, str] = {}
    current = ""
    for line in docstring.splitlines():
        match = re.match(r"``(\w+)``  +(.*)", line)
        if match and match[1] in names:
            current = match[1]
            found[current] = match[2]
        elif current and line.startswith(" "):
            found[current] += " " + line.strip()
        else:
            current = ""
            kept.append(line)
    return "\n".join(kept).strip(), found


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return f"`{field.default!r}`"
    return "of the environment"


def _type_of(default: Any) -> str:
    return f"`{'str' if default is None else type(default).__name__}`"


def _file_of(module: str) -> str:
    path = module.replace(".", "/").removeprefix("symshape/") + ".py"
    return path if (FOLDER.parents[1] / path).is_file() else f"symshape/{path}"


def _from_pages(module: str) -> str:
    return f"../../{_file_of(module)}"


def _link(name: str) -> str:
    return f"[{name}](#{name})"


if __name__ == "__main__":
    sys.exit(main())
