"""Reads and writes ``symshape.view`` and index maps of other ops as expressions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch_mlir import ir

from symshape.dialects.accessors import domain_of, index_map
from symshape.dialects.affine_maps import affine_map, integer_set, read_exprs, read_set
from symshape.dialects.sizes import Sizes
from symshape.prover.numbers.expr import Expr


def create_view(
    known: Sizes,
    source: ir.Value,
    type_: ir.Type,
    sizes: Sequence[Expr],
    exprs: Sequence[Expr],
    conditions: Sequence[Expr] = (),
) -> ir.Value:
    """Writes ``result[d...] = source[exprs(d...)]`` at the current insertion point; the result has ``sizes``.

    ``exprs`` and ``conditions`` are over d0, d1, ... and symbols; where a condition is negative nothing is read.
    """
    rank = len(sizes)
    whole, symbols = affine_map(rank, [*exprs, *conditions])
    results = list(whole.results)
    map_ = ir.AffineMap.get(rank, len(symbols), results[: len(exprs)])
    attributes: dict[str, ir.Attribute] = {"map": ir.AffineMapAttr.get(map_)}
    if conditions:
        attributes["domain"] = integer_set(rank, len(symbols), results[len(exprs) :])
    operands = [source, *(known.value(e) for e in (*sizes, *symbols))]
    return ir.Operation.create("symshape.view", [type_], operands, attributes).result


def read_map(op: Any, dims: Sequence[Expr], symbols: Sequence[Expr]) -> list[Expr]:
    """The results of an op's map, with dims and symbols replaced by expressions."""
    return read_exprs(index_map(op).results, dims, symbols)


def read_domain(view: Any, dims: Sequence[Expr], symbols: Sequence[Expr]) -> list[Expr]:
    """Expressions that are all >= 0 at the points where a view is defined; empty if it is defined everywhere."""
    domain = domain_of(view)
    return [] if domain is None else read_set(domain, dims, symbols)
