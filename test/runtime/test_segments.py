"""cut_segments: which lines of a host program become a function, and with which names."""

from __future__ import annotations

import ast
import traceback
from typing import Any

import pytest

from symshape.runtime.segments import Native, cut_segments

NATIVE = Native(["conv"], ["kernel_0", "kernel_1"])
PROGRAM = """def program(args):
    arg0, arg1, arg2 = args
    args.clear()
    s0 = arg0.size(0)
    t0 = conv(arg0, arg1, None, [1, 1])
    del arg0
    n0 = s0 // 2
    t1 = empty_strided((n0, 3), (3, 1), float32)
    kernel_0(t0.data_ptr(), t1.data_ptr(), n0)
    del t0
    t2 = foreign(t1, arg2)
    del t1
    t3 = conv(t2, arg1, None, [1, 1])
    slot = error_slot()
    kernel_1(t3.data_ptr(), n0, address(slot))
    return (t3,)
"""
CUT = """def program(args):
    arg0, arg1, arg2 = args
    args.clear()
    s0 = arg0.size(0)
    (n0, t1) = segment_0(arg0, arg1, s0)
    del arg0
    t2 = foreign(t1, arg2)
    del t1
    t3 = conv(t2, arg1, None, [1, 1])
    slot = error_slot()
    kernel_1(t3.data_ptr(), n0, address(slot))
    return (t3,)

def segment_0(arg0, arg1, s0):
    t0 = conv(arg0, arg1, None, [1, 1])
    del arg0
    n0 = s0 // 2
    t1 = empty_strided((n0, 3), (3, 1), float32)
    kernel_0(t0.data_ptr(), t1.data_ptr(), n0)
    del t0
    return (n0, t1)
"""


def test_what_is_cut() -> None:
    tree, names = cut_segments(PROGRAM, NATIVE)
    assert names == ["segment_0"]
    assert ast.unparse(tree) == ast.unparse(ast.parse(CUT))


@pytest.mark.parametrize(
    "line",
    [
        "kernel_0(t0.data_ptr(), address(slot))",
        "kernel_0(t0.data_ptr(), number_of(arg1))",
        "kernel_0(bits_of(arg1))",
        "t1 = reinterpret(t0, (4,), (1,), 0).view(int32)",
        "if s0 > 3: fail(0, 1, {})",
        "t1 = with_layout(t0, (4,), (1,))",
        "t1 = other(t0)",
        "s1 = t0.size(0)",
    ],
)
def test_what_is_not(line: str) -> None:
    """Each cuts a run of two in halves that are too short."""
    conv = "    t0 = conv(arg0, arg1)\n"
    source = f"def program(args):\n    arg0, arg1 = args\n{conv}    {line}\n{conv}    return (t0,)\n"
    tree, names = cut_segments(source, NATIVE)
    assert not names and ast.unparse(tree) == ast.unparse(ast.parse(source))


def test_lines_of_errors_are_those_of_the_program() -> None:
    tree, _ = cut_segments(PROGRAM, NATIVE)

    def fail(*_: Any) -> None:
        raise ValueError

    class Sized:
        def size(self, _: int) -> int:
            return 4

    given: dict[str, Any] = {"conv": lambda *_: 0, "empty_strided": fail, "float32": 0}
    exec(compile(tree, "<program>", "exec"), given)
    with pytest.raises(ValueError) as caught:
        given["program"]([Sized(), 0, 0])
    lines = [line for frame, line in traceback.walk_tb(caught.value.__traceback__)]
    assert lines[1:3] == [5, 8], "the call is where the segment begins"
