"""Writes the text of a repro file."""

from __future__ import annotations

import dataclasses
import inspect
import keyword
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import torch

from symshape.errors import CompileError
from symshape.frontend.bridge.fake_tensors import is_fake
from symshape.options import Options
from symshape.tools.repro.problem import Argument

RECORD_INSTEAD: Final = "SYMSHAPE_RECORD=DIR writes the graph as IR, which symshape reduce and symshape replay read"
_INLINE: Final = 256  # constants with at most so many elements are written out; larger ones become random numbers
_KNOWN: Final = ("torch", "device", "inf", "nan", "NoneType")  # names that FX's code uses and the template imports

_FILE: Final = '''"""{title}

{about}

    python FILE          fails as the graph did, or says that nothing fails
    python FILE minify   writes a file with less of the graph, whose sizes are as dynamic
"""

from math import inf, nan  # noqa: F401

import torch
import torch._dynamo
from torch import device  # noqa: F401

import symshape
from symshape.tools.repro import Argument, Problem, main
{imports}
NoneType = type(None)


{classes}


ARGUMENTS = [
{arguments}
]
SIZES = [  # the first are those of the call that failed
{sizes}
]


def inputs(sizes):
    """The arguments at these sizes, with random numbers. What is no constant is dynamic."""
    {names} = [argument.at(sizes, seed) for seed, argument in enumerate(ARGUMENTS)]
{marks}
    return [{names_in_list}]


def compiled(fn):
    return {compiled}


if __name__ == "__main__":
    main(Problem(Repro(), ARGUMENTS, SIZES, inputs, compiled, accuracy={accuracy}, grad={grad}))
'''


@dataclasses.dataclass(frozen=True)
class GraphFailure:
    """The failure of a graph. ``entry``: "symshape.compile" or "torch.compile"; ``error``: its text; ``accuracy``:
    numbers are compared; ``grad``: gradients too; ``compiled``: the expression that compiles the graph."""

    entry: str
    error: str
    accuracy: bool
    grad: bool
    compiled: str


def compiled_text(entry: str, options: Options) -> str:
    """The expression that compiles, with fallbacks and the cache disabled."""
    kept = ("policy", "stage", "pass_options", "cache", "strict", "debug_dir")
    given: dict[str, Any] = {"cache": False, "strict": True}
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if field.name not in kept and value != getattr(Options(), field.name):
            given[field.name] = list(map(str, value)) if isinstance(value, tuple) else value
    for name in ("stage", "pass_options"):
        if getattr(options, name):
            given[name] = dict(getattr(options, name))
    if entry == "torch.compile":
        return f'torch.compile(fn, backend="symshape", options={given!r})'
    return f"symshape.compile(fn, options={given!r})"


def file_text(
    gm: torch.fx.GraphModule,
    arguments: Sequence[Argument],
    sizes: Sequence[Mapping[str, int]],
    graph_failure: GraphFailure,
) -> str:
    """The text of a repro file. CompileError if a part of the graph cannot be written as source."""
    imports: dict[str, str] = {}
    classes = list(_classes(gm, "Repro", imports))
    names = [one.name for one in arguments]
    return _FILE.format(
        title="What symshape failed with on this graph."
        if not graph_failure.accuracy
        else "A graph with other numbers.",
        about="\n".join(f"    {line}".rstrip() for line in _in_docstring(graph_failure.error).splitlines()[:20]),
        imports="".join(f"{line}\n" for line in imports.values()),
        classes="\n\n\n".join(classes),
        arguments="\n".join(f"    {_argument_text(one)}," for one in arguments),
        sizes="\n".join(f"    {dict(one)!r}," for one in sizes),
        names=f"[{', '.join(names)}]",
        names_in_list=", ".join(names),
        marks="\n".join(_marks(arguments)) or "    # there is nothing to mark",
        compiled=graph_failure.compiled,
        accuracy=graph_failure.accuracy,
        grad=graph_failure.grad,
    )


def _in_docstring(text: str) -> str:
    """Escapes text for use in a docstring."""
    return text.replace("\\", "\\\\").replace('"""', "'''")


def _argument_text(one: Argument) -> str:
    parts = [repr(one.name), repr(list(one.sizes)), repr(list(one.strides)), str(one.dtype)]
    parts += [f"device={one.device!r}"] if one.device != "cpu" else []
    parts += [f"offset={one.offset!r}"] if one.offset != 0 else []
    parts += ["requires_grad=True"] if one.requires_grad else []
    return f"Argument({', '.join(parts)})"


def _marks(arguments: Sequence[Argument]) -> Iterator[str]:
    for one in arguments:
        for d, size in enumerate(one.sizes):
            kind = "dynamic" if d in one.dynamic else "static"
            yield f"    torch._dynamo.mark_{kind}({one.name}, {d})  # {size}"


# --- modules ------------------------------------------------------------------------------------------------------


def _classes(gm: torch.fx.GraphModule, name: str, imports: dict[str, str]) -> Iterator[str]:
    """Source of a class for each nested graph, then for the graph itself."""
    lines: list[str] = []
    for path in dict.fromkeys(str(n.target) for n in gm.graph.nodes if n.op in ("get_attr", "call_module")):
        value = getattr(gm, path, None)
        if isinstance(value, torch.fx.GraphModule):
            yield from _classes(value, f"{name}_{path}", imports)
            lines.append(f"        self.{path} = {name}_{path}()")
        elif isinstance(value, torch.Tensor) and path.isidentifier():
            lines.append(f"        self.{path} = {_constant_text(path, value)}")
        else:
            raise CompileError(f"the graph has a {type(value).__name__} in it", where=path, next_step=RECORD_INSTEAD)
    code = gm.graph.python_code("self")
    for global_name, value in code.globals.items():
        _import(global_name, value, imports)
    init = ["    def __init__(self):", "        super().__init__()", *lines, ""] if lines else []
    body = [f"    {line}".rstrip() for line in code.src.strip().splitlines()]
    yield "\n".join([f"class {name}(torch.nn.Module):", *init, *body])


def _constant_text(path: str, value: torch.Tensor) -> str:
    if is_fake(value) or value.layout != torch.strided or value.numel() > _INLINE:
        sizes, strides = list(map(int, value.size())), list(map(int, value.stride()))
        return f"{_argument_text(Argument(path, sizes, strides, value.dtype, str(value.device)))}.at({{}})"
    values = value.detach().cpu().tolist()
    return f"torch.tensor({values!r}, dtype={value.dtype}, device={str(value.device)!r}).reshape({list(value.shape)})"


def _import(name: str, value: Any, imports: dict[str, str]) -> None:
    """Adds the import that defines a global name of FX's code. CompileError if ``value`` cannot be imported."""
    if name in _KNOWN or keyword.iskeyword(name):
        return
    if isinstance(value, types.ModuleType):
        imports[name] = f"import {value.__name__} as {name}"
        return
    module, path = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    found = inspect.getmodule(value) if module is None else None
    module = module or (found.__name__ if found is not None else None)
    if module in (None, "__main__") or path is None or not path.isidentifier():
        raise CompileError(
            f"the graph calls {value!r}, which no file can import",
            where=name,
            next_step=f"define it in a module; or {RECORD_INSTEAD}",
        )
    imports[name] = f"from {module} import {path} as {name}"
