"""``flex_attention`` on CPUs: one graph over all lengths, functions in kernels of ours, results as in eager mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, create_block_mask, flex_attention

from symshape.backend import symshape_backend
from symshape.frame_compiler import compile_with
from symshape.tools.report import GraphReport

Tensor = torch.Tensor
LENGTHS = (17, 1, 2, 128, 129, 1000, 1025)
HEADS = 4
SLOPES = torch.exp2(-torch.arange(1.0, HEADS + 1))
DOCUMENTS = torch.arange(1025) // 60


def causal(b: Any, h: Any, q: Any, k: Any) -> Any:
    return q >= k


def window(b: Any, h: Any, q: Any, k: Any) -> Any:
    return (q >= k) & (q - k <= 70)


def document(b: Any, h: Any, q: Any, k: Any) -> Any:
    return DOCUMENTS[q] == DOCUMENTS[k]


def sinks_and_window(b: Any, h: Any, q: Any, k: Any) -> Any:
    return (q >= k) & ((k < 4) | (q - k <= 70))


def alibi(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return score + SLOPES[h] * (k - q)


def cap(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return 20 * torch.tanh(score / 20)


KINDS: dict[str, tuple[Any, Any]] = {
    "causal": (None, causal),
    "window": (None, window),
    "alibi": (alibi, None),
    "document": (None, document),
    "cap": (cap, causal),
}


def compiled(function: Callable[..., Any], **options: Any) -> tuple[Callable[..., Any], list[GraphReport]]:
    reports: list[GraphReport] = []

    def backend(graph: Any, inputs: Any) -> Any:
        return symshape_backend(graph, inputs, options={"strict": True, **options}, reports=reports)

    return compile_with(function, backend, fullgraph=True), reports


def attention(kind: str) -> Callable[..., Any]:
    score = KINDS[kind][0]

    def function(q: Tensor, k: Tensor, v: Tensor, mask: BlockMask | None) -> Any:
        return flex_attention(q, k, v, score_mod=score, block_mask=mask)

    return function


def inputs(length: int, *, heads: int = HEADS, batch: int = 1, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    torch.manual_seed(length)
    return [torch.randn(batch, heads, length, 16).to(dtype) for _ in range(3)]


def block_mask(mask: Any, length: int, *, batch: int | None = None, heads: int | None = None) -> Any:
    return None if mask is None else create_block_mask(mask, batch, heads, length, length, device="cpu")


def check_own_kernels(reports: Sequence[GraphReport], written: int = 3) -> None:
    (report,) = reports
    assert "tiled_attention(scores, weights, whole, " in report.program_source, report.program_source
    assert not report.library_calls
    assert report.statistics["write-slices"]["tiles"] == written


def check_lengths(kind: str, lengths: Sequence[int]) -> None:
    function = attention(kind)
    program, reports = compiled(function)
    for length in lengths:
        given = [*inputs(length), block_mask(KINDS[kind][1], length)]
        torch.testing.assert_close(program(*given), function(*given), msg=f"{kind}, {length}")
    check_own_kernels(reports)


@pytest.mark.parametrize("kind", ["document", "cap"])
def test_lengths(kind: str) -> None:
    check_lengths(kind, (17, 1, 129))


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_all_lengths(kind: str) -> None:
    check_lengths(kind, LENGTHS)


def test_shared_keys_logsumexp_and_captured_tensors() -> None:
    """What a function reads besides its indices is read at each call; the layout of the query is that of the output."""

    def function(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor) -> Any:
        def bias(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            return torch.where(i >= j, score + slopes[b, h] * (j - i), -float("inf"))

        return flex_attention(q, k, v, bias, enable_gqa=True, scale=0.3, return_aux=AuxRequest(lse=True))

    program, reports = compiled(function)
    for length, batch in ((17, 2), (150, 3), (1, 1)):
        q = inputs(length, heads=6, batch=batch)[0].transpose(1, 2).contiguous().transpose(1, 2)
        k, v = inputs(length, heads=2, batch=batch)[:2]
        for seed in (0, 1):
            torch.manual_seed(seed)
            slopes = torch.rand(batch, 6)
            found, expected = (f(q, k, v, slopes) for f in (program, function))
            torch.testing.assert_close(found, expected)
            assert length == 1 or found[0].stride() == expected[0].stride()
    check_own_kernels(reports)


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many products the library has computed, in its only item."""
    count, usual = [0], torch.bmm

    def bmm(*args: Any, **options: Any) -> Tensor:
        count[0] += 1
        return usual(*args, **options)

    monkeypatch.setattr(torch, "bmm", bmm)
    return count


def sparse(b: Any, h: Any, q: Any, k: Any) -> Any:
    """Some rows are masked as a whole."""
    return (q % 3 > 0) & (k <= q)


def test_short_attention_is_kernels_alone(products: list[int]) -> None:
    """With heads that share keys, rows that are masked, any order of dims, and results besides the output."""

    def function(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor, mask: BlockMask) -> Any:
        def bias(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            return score + slopes[b, h] * (j - i)

        return flex_attention(q, k, v, bias, mask, enable_gqa=True, return_aux=AuxRequest(lse=True))

    program, reports = compiled(function)
    for length, batch, called in ((19, 2, 0), (1, 3, 0), (2, 1, 0), (7, 2, 0), (125, 2, 2), (131, 1, 4)):
        q = inputs(length, heads=6, batch=batch)[0].transpose(1, 2).contiguous().transpose(1, 2)
        k, v = (x[..., :16] for x in inputs(length, heads=2, batch=batch)[:2])
        given = q, k, v, torch.rand(batch, 6), create_block_mask(sparse, None, None, length, length, device="cpu")
        products[0] = 0
        found = program(*given)
        assert products[0] == called, f"{length}"
        torch.testing.assert_close(found, function(*given), msg=f"{length}")
    check_own_kernels(reports)


@pytest.mark.long
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_short_attention_of_half_types(dtype: torch.dtype, products: list[int]) -> None:
    """Computed in float32, and rounded once."""
    function = attention("cap")
    program, reports = compiled(function)
    for length in (5, 1, 30):
        given, mask = inputs(length, dtype=dtype), block_mask(causal, length)
        precise = function(*(x.float() for x in given), mask)
        products[0] = 0
        torch.testing.assert_close(program(*given, mask), precise.to(dtype))
        assert products[0] == 0
    check_own_kernels(reports)


@pytest.mark.long
def test_one_block_that_is_not_listed() -> None:
    """Everything is masked: no tile is computed, and the output is 0."""

    def function(q: Tensor, k: Tensor, v: Tensor, mask: BlockMask) -> Any:
        return flex_attention(q, k, v, block_mask=mask, return_aux=AuxRequest(lse=True))

    def nothing(b: Any, h: Any, q: Any, k: Any) -> Any:
        return q < k - 200

    program, _ = compiled(function)
    for length in (4, 1, 9):
        for mask in (nothing, causal):
            given = [*inputs(length), block_mask(mask, length)]
            found, expected = program(*given), function(*given)
            torch.testing.assert_close(found, expected)
            assert found[0].any() == (mask is causal)


@pytest.mark.long
def test_a_row_of_queries(products: list[int]) -> None:
    """A row of queries and a few keys are kernels alone; keys that all batches share, with blocks for each, are not."""

    def few(b: Any, h: Any, q: Any, k: Any) -> Any:
        return k < 50 + q

    function = attention("alibi")
    program, _ = compiled(function)
    q = inputs(1, batch=2)[0]
    for columns, batch, called in ((40, 2, 0), (1, 2, 0), (77, 2, 0), (40, 1, 4)):
        k, v = inputs(columns, batch=batch)[:2]
        mask = create_block_mask(few, 2 if batch == 1 else None, None, 1, columns, device="cpu")
        products[0] = 0
        torch.testing.assert_close(program(q, k, v, mask), function(q, k, v, mask), msg=f"{columns}, {batch}")
        assert products[0] == called


@pytest.mark.long
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_types(dtype: torch.dtype) -> None:
    """Half types are computed in float32, and rounded once; eager mode rounds the weights as well."""
    function = attention("cap")
    program, reports = compiled(function)
    for length in (17, 1, 200):
        given, mask = inputs(length, dtype=dtype), block_mask(causal, length)
        precise = function(*(x if dtype == torch.float64 else x.float() for x in given), mask)
        torch.testing.assert_close(program(*given, mask), precise.to(dtype))
    check_own_kernels(reports)


@pytest.mark.long
def test_masks_of_each_batch_and_head() -> None:
    """Lists of blocks that differ, runs with gaps between them, and rows of which all is masked."""

    def each(b: Any, h: Any, q: Any, k: Any) -> Any:
        return (q >= k) & (q - k <= 40 * (h + 1)) & (k >= b * 130)

    function = attention("causal")
    program, reports = compiled(function)
    for length in (300, 17, 700):
        tensors = inputs(length, batch=2)
        for mask in (block_mask(each, length, batch=2, heads=HEADS), block_mask(sinks_and_window, length)):
            torch.testing.assert_close(program(*tensors, mask), function(*tensors, mask))
    assert len(reports) == 2  # another mask function is another graph


@pytest.mark.long
def test_long_keys_and_a_shared_batch() -> None:
    """More columns than a tile has, of keys and values that all batches share."""

    def function(q: Tensor, k: Tensor, v: Tensor, mask: BlockMask) -> Any:
        return flex_attention(q, k, v, alibi, mask, return_aux=AuxRequest(lse=True))

    def before(b: Any, h: Any, q: Any, k: Any) -> Any:
        return k <= 4000 + q

    program, reports = compiled(function)
    for rows, columns in ((5, 4500), (130, 4200)):
        q = inputs(rows, batch=2)[0]
        k, v = inputs(columns)[:2]
        mask = create_block_mask(before, 2, None, rows, columns, device="cpu")
        torch.testing.assert_close(program(q, k, v, mask), function(q, k, v, mask))
    check_own_kernels(reports)


@pytest.mark.long
def test_a_block_mask_made_by_the_compiled_function() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor) -> Any:
        mask = create_block_mask(causal, None, None, q.size(2), k.size(2), device="cpu")
        return flex_attention(q, k, v, block_mask=mask)

    program, reports = compiled(function)
    for length in (17, 129, 1, 300):
        given = inputs(length)
        torch.testing.assert_close(program(*given), function(*given))
    assert len(reports) == 2  # PyTorch asks whether there is one block of rows
    assert all("tiled_attention(" in report.program_source for report in reports)


@pytest.mark.long
def test_with_kernels_for_a_gpu() -> None:
    function = attention("cap")
    program, reports = compiled(function, target="triton")
    for length in (17, 150):
        given = [*inputs(length), block_mask(causal, length)]
        torch.testing.assert_close(program(*given), function(*given))
    assert len(reports) == 1


def test_gradients_are_pytorchs_error() -> None:
    q, k, v = (x.requires_grad_() for x in inputs(17))
    program, _ = compiled(attention("causal"))
    with pytest.raises(Exception, match="does not support backward on CPU"):
        program(q, k, v, block_mask(causal, 17))


def test_no_keys_are_an_error() -> None:
    program, _ = compiled(attention("alibi"))
    program(*inputs(17), None)
    for run in (program, attention("alibi")):
        with pytest.raises(IndexError):
            run(*inputs(0), None)


@pytest.mark.long
def test_gradients_of_what_functions_capture() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor) -> Any:
        return flex_attention(q, k, v, lambda score, b, h, i, j: score + slopes[h] * (j - i))

    program, reports = compiled(function)
    for length in (17, 130):
        found = []
        for run in (program, function):
            slopes = SLOPES.clone().requires_grad_()
            run(*inputs(length), slopes).square().sum().backward()
            found.append(slopes.grad)
        torch.testing.assert_close(*found)
    assert "tiled_attention(" in reports[0].program_source


@pytest.mark.long
def test_functions_that_cannot_be_mapped_stay_pytorchs() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return flex_attention(q, k, v, lambda score, b, h, i, j: score if b.item() == 0 else -score)

    for run in (compiled(function)[0], function):
        with pytest.raises(Exception, match="item|vmap"):
            run(*inputs(17))
