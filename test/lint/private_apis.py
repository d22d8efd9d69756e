"""Private PyTorch APIs live in ``frontend/bridge/``, ``frontend/patches/`` and ``runtime/torch_c.py``: the check of it.

Run by ``make lint``; prints ``file:line: what`` of each use elsewhere, and fails if there is one. What counts:

* an import from ``torch``, or an attribute chain on it (through aliases and names that are bound to one), with a part
  that begins with an underscore;
* a text that is such a dotted name (``import_module("torch._dynamo")``);
* an attribute with an underscore in front of any other object, or ``getattr`` and its like with such a name as text,
  unless a class of the package has an attribute of that name, or it is one of another library (`OTHERS`);
* attributes in which PyTorch's tracer keeps its state, which have no underscore (`STATE`), and of ``.node`` of a
  symbolic number (`OF_SYMBOLS`).

What stands behind ``torch.ops.`` is the name of an operator, not a Python API: ``torch.ops.aten._to_copy`` is fine, and
so is ``aten._to_copy`` where the file has ``aten`` from another one. Names with two underscores in front are Python's.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("frontend", "analysis", "dialects", "passes", "codegen", "runtime", "prover", "symshape")
PLACES = ("frontend/bridge/", "frontend/patches/", "runtime/torch_c.py")

# The closed list of exceptions: what has no public equivalent, and is used by PyTorch's own documentation.
ALLOWED = re.compile(
    r"torch\.("
    r"ops\b.*"
    r"|_check\w*"
    r"|_assert_async"
    r"|_dynamo(\.mark_\w+|\.reset)?$"  # the module alone: `import torch._dynamo`, for what is allowed of it
    r"|_ops(\.[A-Z]\w*)?$"
    r"|utils\._pytree(\.[a-z]\w*)*$"
    r"|_logging(\.[a-z]\w*)*$"
    r")"
)

# State of ShapeEnv, FakeTensorMode, FakeTensor, operators and frames.
STATE = frozenset(
    {
        "backed_var_to_val",
        "create_symbol",
        "create_symboolnode",
        "create_symintnode",
        "create_unbacked_symint",
        "deferred_runtime_asserts",
        "evaluate_expr",
        "f_locals",
        "fake_impl",
        "fake_mode",
        "fake_tensor_converter",
        "framework_loc",
        "fw_metadata",
        "guard_or_defer_runtime_assert",
        "ignore_fresh_unbacked_symbols",
        "item_memo",
        "maybe_user_loc",
        "pending_fresh_unbacked_symbols",
        "py_kernels",
        "python_key_table",
        "replacements_slocs",
        "shape_env",
        "source_to_var",
        "symbolic_context",
        "tracked_fakes",
        "unbacked_renamings",
        "var_to_range",
        "var_to_sources",
        "var_to_val",
    }
)
OF_SYMBOLS = frozenset({"constant", "expr", "has_hint", "hint", "maybe_as_int", "pytype", "require_hint", "shape_env"})
# Of other libraries, on objects whose type no checker of names can know.
OTHERS = frozenset({"_actions", "_fields", "_from_config", "_getframe", "_replace"})
_OPERATORS = frozenset({"aten", "prims"})
_BY_NAME = frozenset({"getattr", "setattr", "hasattr", "delattr"})
_DOTTED = re.compile(r"torch(\.\w+)+")


@dataclass(frozen=True, order=True)
class Use:
    """A private API, and the line of a file on which it is used."""

    line: int
    name: str


def is_private(part: str) -> bool:
    return part.startswith("_") and not part.startswith("__") and part != "_"


def is_private_path(path: str) -> bool:
    """Whether a dotted name of torch's is private, and none of the exceptions."""
    return any(map(is_private, path.split("."))) and not ALLOWED.match(path)


def private_uses(source: str, own: frozenset[str] = frozenset()) -> list[Use]:
    """Private APIs of PyTorch in the text of a module. ``own``: names of attributes that are the package's."""
    tree = ast.parse(source)
    found = _Uses(own | attributes_defined(tree), _docstrings(tree))
    found.visit(tree)
    return sorted(found.uses)


def attributes_defined(tree: ast.AST) -> frozenset[str]:
    """What a module gives its classes: methods, fields, attributes of ``self``."""
    names: set[str] = set()
    for node in ast.walk(tree):
        for one in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)):
                names.add(one.name)
            elif isinstance(one, (ast.Assign, ast.AnnAssign)):
                targets = one.targets if isinstance(one, ast.Assign) else [one.target]
                names.update(target.id for target in targets if isinstance(target, ast.Name))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_own(node.value):
            names.add(node.attr)
    return frozenset(names)


def _is_own(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _docstrings(tree: ast.AST) -> frozenset[int]:
    """The expressions that stand for themselves: texts among them are documentation."""
    return frozenset(id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr))


class _Uses(ast.NodeVisitor):
    """Walks a module with what its names stand for: dotted names of torch's, in each function those of its own."""

    def __init__(self, own: frozenset[str], documentation: frozenset[int]) -> None:
        self.own, self.documentation = own, documentation
        self.scopes: list[dict[str, str | None]] = [{}]
        self.uses: set[Use] = set()

    def add(self, node: ast.stmt | ast.expr, name: str) -> None:
        self.uses.add(Use(node.lineno, name))

    # --- what names stand for ----------------------------------------------------------------------------------------

    def visit_Import(self, node: ast.Import) -> None:
        for one in node.names:
            if one.name.partition(".")[0] != "torch":
                continue
            if is_private_path(one.name):
                self.add(node, one.name)
            self.scopes[-1][one.asname or "torch"] = one.name if one.asname else "torch"

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level or module.partition(".")[0] != "torch":
            own = [one.asname or one.name for one in node.names if one.name in _OPERATORS]
            self.scopes[-1] |= dict.fromkeys(own, "torch.ops")
            return
        for one in node.names:
            path = f"{module}.{one.name}"
            if is_private_path(path):
                self.add(node, path)
            self.scopes[-1][one.asname or one.name] = path

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        arguments = node.args
        names = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
        self.scopes.append({one.arg: None for one in names if one is not None})
        self.generic_visit(node)
        self.scopes.pop()

    visit_AsyncFunctionDef = visit_FunctionDef
    visit_Lambda = visit_FunctionDef

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self._bind(target, node.value)
            self.visit(target)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.visit(node.annotation)
        if node.value is not None:
            self.visit(node.value)
            self._bind(node.target, node.value)
        self.visit(node.target)

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for one, own in zip(target.elts, value.elts, strict=True):
                self._bind(one, own)
        elif isinstance(target, ast.Name):
            self.scopes[-1][target.id] = self._path(value)

    def _path(self, node: ast.expr) -> str | None:
        """The dotted name of torch's that an expression is; None if it is something else."""
        if isinstance(node, ast.Name):
            return next((scope[node.id] for scope in reversed(self.scopes) if node.id in scope), None)
        if isinstance(node, ast.Attribute):
            owner = self._path(node.value)
            return None if owner is None else f"{owner}.{node.attr}"
        return None

    # --- uses --------------------------------------------------------------------------------------------------------

    def visit_Attribute(self, node: ast.Attribute) -> None:
        path = self._path(node)
        if path is not None:
            if is_private_path(path):
                self.add(node, path)
            return
        of_node = isinstance(node.value, ast.Attribute) and node.value.attr == "node" and node.attr in OF_SYMBOLS
        if of_node or node.attr in STATE or self._is_foreign(node):
            self.add(node, f"{'.node' if of_node else ''}.{node.attr}")
        self.generic_visit(node)

    def _is_foreign(self, node: ast.Attribute) -> bool:
        return not _is_own(node.value) and self._is_private_attribute(node.attr)

    def _is_private_attribute(self, name: str) -> bool:
        return is_private(name) and name not in OTHERS and name not in self.own

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in _BY_NAME and len(node.args) > 1:
            name = node.args[1]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                if name.value in STATE or self._is_private_attribute(name.value):
                    self.add(node, f"{node.func.id} {name.value}")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if id(node) in self.documentation or not isinstance(node.value, str):
            return
        if _DOTTED.fullmatch(node.value) and is_private_path(node.value):
            self.add(node, f'"{node.value}"')


def checked_files(root: Path = ROOT) -> Iterator[Path]:
    """The package's modules, but for those in which private APIs live."""
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            if not any(one.is_symlink() for one in (path, *path.parents)) and not name.startswith(PLACES):
                yield path


def package_uses(root: Path = ROOT) -> Iterator[tuple[str, Use]]:
    """Every use in the package outside of the three places: file, and what."""
    texts = {path: path.read_text(encoding="utf-8") for path in checked_files(root)}
    own = frozenset[str]().union(*(attributes_defined(ast.parse(text)) for text in texts.values()))
    for path, text in texts.items():
        for use in private_uses(text, own):
            yield path.relative_to(root).as_posix(), use


def main() -> int:
    uses = list(package_uses())
    for file, use in uses:
        print(f"{file}:{use.line}: private PyTorch API: {use.name}")
    return 1 if uses else 0


if __name__ == "__main__":
    sys.exit(main())
