"""Functions of ``runtime/`` that are called while a frame is traced and compiled: inference, training and
``symshape.jit`` of the six models.

    python bench/runtime_calls.py [--model NAME] [--all]

``runtime/`` is for compiled code: what traces, lowers and generates it should call none of it. A call counts where the
nearest function of the package below it on the stack is in one of the compiler's folders. Two kinds are shown with
``--all`` only: ``torch_c`` and what PyTorch's dispatcher calls (schemas, fake rules and gradients of our
operators); and what the rest of the package calls, which keeps finished programs and loads them, and adds entries. What
makes the calls around finished programs counts as the latter, though a change to AOTAutograd asks for it.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import symshape
from symshape.tools.zoo import MODELS

# Inside of these a frame is traced and compiled: under torch.compile, and by symshape.jit.
COMPILING = frozenset({"FrameCompiler.__call__", "trace_call"})
_TRANSPARENT = ("contextlib", "functools")  # stand between a function and what it calls
EXCEPTED = "torch_c, and operators called by PyTorch"
REST = "loads, keeps and adds programs"
AROUND_PROGRAMS = "symshape.runtime.autograd_calls"
ROOT = Path(__file__).parents[1]

Call = tuple[str, str, str]  # the part of the package that calls, its module, the function of the runtime


@contextlib.contextmanager
def calls_of_the_runtime() -> Iterator[Counter[Call]]:
    """Yields the calls of functions of ``runtime/`` that this thread makes while it compiles, inside of the block."""
    found: Counter[Call] = Counter()
    depth = 0

    def profile(frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal depth
        if event not in ("call", "return"):
            return
        name = frame.f_globals.get("__name__", "")
        if not name.startswith("symshape."):
            return
        if frame.f_code.co_qualname in COMPILING:
            depth += 1 if event == "call" else -1
        elif depth and event == "call" and name.startswith("symshape.runtime."):
            call = _call_of(frame, name)
            if call is not None:
                found[call] += 1

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield found
    finally:
        sys.setprofile(before)


def _call_of(frame: FrameType, module: str) -> Call | None:
    """None for a call from inside of the runtime, for the body of a module, and for one by the garbage collector."""
    function = f"{module.removeprefix('symshape.')}.{frame.f_code.co_qualname}"
    caller = frame.f_back
    while caller is not None and _module(caller) in _TRANSPARENT:
        caller = caller.f_back
    by_torch = caller is not None and _module(caller).partition(".")[0] == "torch"
    while caller is not None and _module(caller).partition(".")[0] != "symshape":
        caller = caller.f_back
    if caller is None or frame.f_code.co_name in ("<module>", "__del__"):
        return None
    name = _module(caller)
    part = name.split(".")[1] if name.count(".") else ""
    if part == "runtime":
        return None
    if by_torch or module == "symshape.runtime.torch_c":
        part = EXCEPTED
    elif not _is_folder(part) or module == AROUND_PROGRAMS:
        part = REST
    return part, name, function


@functools.cache
def _is_folder(part: str) -> bool:
    """Whether a part of the package is one of the folders beside ``symshape/``, which know nothing of what is in it."""
    return (ROOT / part).is_dir()


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def counted(calls: Counter[Call]) -> Counter[Call]:
    """Those that the runtime should not get."""
    return Counter({call: number for call, number in calls.items() if call[0] not in (EXCEPTED, REST)})


def calls_while_compiling(make: Callable[[], torch.nn.Module], inputs: Mapping[str, torch.Tensor]) -> Counter[Call]:
    """The calls while a module is compiled: inference, training, and by ``symshape.jit``."""
    torch._dynamo.reset()
    with calls_of_the_runtime() as found:
        with torch.no_grad():
            symshape.compile(make().eval(), cache=False)(**inputs)
            symshape.jit(make().eval(), options={"cache": False})(**inputs)
        symshape.compile(make().train(), cache=False)(**inputs)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", choices=list(MODELS))
    parser.add_argument("--all", action="store_true", help="show what does not count, too")
    given = parser.parse_args()
    total = 0
    for name in [given.model] if given.model else list(MODELS):
        model = MODELS[name]
        calls = calls_while_compiling(functools.partial(model.build, "tiny"), model.inputs(model.tiny_shapes[0]))
        wrong = counted(calls)
        total += sum(wrong.values())
        print(f"{name}: {len({call[2] for call in wrong})} functions, {sum(wrong.values())} calls")
        for call, number in sorted((calls if given.all else wrong).items()):
            print(f"  {number:6} {call[0]:24} {call[1]} -> {call[2]}")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
