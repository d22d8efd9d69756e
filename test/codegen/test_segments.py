"""cut_segments: which lines of a host program become a function, and with which names."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

from symshape.codegen.host.program_text import ProgramText
from symshape.codegen.host.segments import Native, cut_segments, with_segments

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
    n0, t1 = segment_0(arg0, arg1, s0)
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
    cut = cut_segments(PROGRAM, NATIVE)
    assert cut.names == ["segment_0"] and "".join(cut.lines) == CUT
    pairs = zip(CUT.splitlines(), cut.before, strict=True)
    new = [line for line, before in pairs if line != PROGRAM.splitlines()[before - 1]]
    assert [line.split()[0] for line in new] == ["n0,", "del", "def", "return"]


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
    cut = cut_segments(source, NATIVE)
    assert not cut.names and "".join(cut.lines) == source


def test_lines_of_errors_are_the_users() -> None:
    lines = [(5, "a.py:1"), (9, "a.py:2"), (11, "a.py:3"), (15, "a.py:4")]
    targets = {"conv": "symshape.packed_convolution.default", "foreign": "aten.foreign.default"}
    text = with_segments(ProgramText(PROGRAM, ["kernel_0", "kernel_1"], targets, user_lines=lines))
    assert text.segments == ["segment_0"]

    def user_line(failing: str) -> str:
        """The user's line for an error of the last line that calls a function."""

        def fail(*_: Any) -> None:
            raise ValueError

        class Tensor:
            def size(self, _: int) -> int:
                return 4

            def data_ptr(self) -> int:
                return 0

        names = ("conv", "empty_strided", "kernel_0", "kernel_1", "foreign", "error_slot", "address")
        given: dict[str, Any] = {name: lambda *_: Tensor() for name in names} | {"float32": 0, failing: fail}
        exec(compile(text.source, "<program>", "exec"), given)
        with pytest.raises(ValueError) as caught:
            given["program"]([Tensor(), Tensor(), Tensor()])
        frames = traceback.walk_tb(caught.value.__traceback__)
        last = [line for frame, line in frames if frame.f_code.co_filename == "<program>"][-1]
        return max(pair for pair in text.user_lines if pair[0] <= last)[1]

    found = [user_line(name) for name in ("conv", "empty_strided", "kernel_0", "foreign", "kernel_1")]
    assert found == ["a.py:1", "a.py:1", "a.py:2", "a.py:3", "a.py:4"]
