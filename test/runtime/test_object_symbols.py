"""What object files need from outside: an error that says which kernel needs what, never a call to nowhere."""

from __future__ import annotations

import pytest
import torch
from loop_builder import D0, SYMBOLS, Builder

from symshape.codegen.cpu.emit.kernel import emit_cpu
from symshape.codegen.cpu.objects.compile_objects import compile_objects
from symshape.errors import KernelError
from symshape.machine.object_symbols import kernels_that_need, undefined
from symshape.runtime.cpu.load_objects import load_object


def kernel(name: str, operation: str) -> str:
    b = Builder(name, SYMBOLS[:1], symbols=1)
    x, out = b.arg("f64", SYMBOLS[:1]), b.arg("f64", SYMBOLS[:1], output=True)
    b.store(b.add(operation, b.load(x, D0), dtype="f64"), out, D0)
    return emit_cpu(b.kernel())


@pytest.fixture(scope="module")
def data() -> bytes:
    texts = [kernel("roots", "math.sqrt"), kernel("tangents", "math.tan"), kernel("sines", "math.asinh")]
    return compile_objects(texts)[0]


def test_which_kernels_need_what(data: bytes) -> None:
    assert {"tan", "asinh", "GOMP_parallel"} <= set(undefined(data))
    assert kernels_that_need(data, "tan") == ["tangents"]
    assert kernels_that_need(data, "asinh") == ["sines"]
    assert kernels_that_need(data, "GOMP_parallel") == ["roots", "sines", "tangents"]
    assert kernels_that_need(data, "malloc") == []


def test_a_function_that_no_library_has(data: bytes) -> None:
    """In an object, as it may come from a cache, and while it is compiled."""
    counts = {"roots": 3, "tangents": 3, "sines": 3}
    x, out = torch.rand(5, dtype=torch.float64), torch.zeros(5, dtype=torch.float64)
    load_object(data, counts)["tangents"](x.data_ptr(), out.data_ptr(), 5)
    torch.testing.assert_close(out, torch.tan(x))
    assert data.count(b"\0tan\0") == 1
    with pytest.raises(KernelError, match="process: tqn\n  at: tangents\n"):
        load_object(data.replace(b"\0tan\0", b"\0tqn\0"), counts)
    with pytest.raises(KernelError, match="process: no_tan\n  at: tangents\n"):
        compile_objects([kernel("roots", "math.sqrt"), kernel("tangents", "math.tan").replace("@tan(", "@no_tan(")])


@pytest.mark.parametrize("size", [0, 63, 100, 3000])
def test_what_is_no_object(data: bytes, size: int) -> None:
    for broken in (data[:size], bytes(size)):
        with pytest.raises(KernelError, match="no ELF object"):
            load_object(broken, {})
