"""Converts plain data to JSON and back: dataclasses of this package, expressions, tuples, lists, dicts, bytes, scalars.

Other objects raise CacheError, with their type and path. Unlike a pickle, a record can only become such data again.
Values keep their types: tuples stay tuples, keys of dicts may be of any of these types, and a dict keeps its order.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from symshape.errors import CacheError
from symshape.prover.numbers.expr import Expr, Symbol, maximum, minimum, product

_OTHER_VERSION: Final = "another version has written it: symshape cache clear"
_PACKAGE: Final = "symshape."
_SCALARS: Final = (bool, int, float, str, type(None))


def to_json(value: Any) -> bytes:
    """UTF-8 text. CacheError for a value that is not plain data."""
    return json.dumps(_encode(value, ""), separators=(",", ":")).encode()


def from_json(data: bytes) -> Any:
    """The value that ``to_json`` was given. CacheError for a record of a class that has changed."""
    return _decode(json.loads(data))


# A tuple is a JSON array; everything else that is no scalar is an object with one key that says what it is.


def _encode(value: Any, path: str) -> Any:
    if type(value) in _SCALARS:
        return value
    if type(value) is tuple:
        return [_encode(item, f"{path}[{i}]") for i, item in enumerate(value)]
    if type(value) is list:
        return {"list": [_encode(item, f"{path}[{i}]") for i, item in enumerate(value)]}
    if type(value) is bytes:
        return {"bytes": value.hex()}
    if type(value) is Expr:
        return {"expr": _encode_expr(value)}
    if isinstance(value, Mapping):
        pairs = [[_encode(key, f"{path}.keys()"), _encode(item, f"{path}[{key!r}]")] for key, item in value.items()]
        return {"dict": pairs}
    cls: Any = type(value)
    if hasattr(cls, "__dataclass_fields__") and cls.__module__.startswith(_PACKAGE):
        fields = [_encode(getattr(value, name), f"{path}.{name}") for name in _fields(cls)]
        return {f"{cls.__module__}:{cls.__qualname__}": fields}
    hint = "keep numbers, texts, bytes, tuples, lists, mappings, Expr and dataclasses of symshape"
    raise CacheError(f"a {cls.__module__}.{cls.__qualname__} is not plain data", where=path, next_step=hint)


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_decode, value))
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    known = _DECODERS.get(kind)
    if known is not None:
        return known(content)
    cls = _class(kind)
    names = _fields(cls)
    if len(names) != len(content):
        what = f"a record of {kind} has {len(content)} fields, the class has {len(names)}"
        raise CacheError(what, next_step=_OTHER_VERSION)
    return cls(**{name: _decode(item) for name, item in zip(names, content)})


_DECODERS: Final[dict[str, Callable[[Any], Any]]] = {
    "list": lambda items: [_decode(item) for item in items],
    "dict": lambda pairs: {_decode(key): _decode(item) for key, item in pairs},
    "bytes": bytes.fromhex,
    "expr": lambda terms: _decode_expr(terms),
}


@functools.cache
def _fields(cls: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(cls) if field.init)


@functools.cache
def _class(name: str) -> Any:
    module, _, path = name.partition(":")
    if not module.startswith(_PACKAGE):
        raise CacheError(f"a record of {name}, which is not of this package", next_step=_OTHER_VERSION)
    cls = functools.reduce(getattr, path.split("."), importlib.import_module(module))
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        raise CacheError(f"a record of {name}, which is no dataclass", next_step=_OTHER_VERSION)
    return cls


def _encode_expr(expr: Expr) -> Any:
    """An int, a symbol's name, or terms: each a coefficient and its atoms, names or functions with their operands."""
    number = expr.as_int()
    if number is not None:
        return number
    return [
        [
            coefficient,
            *(atom.name if isinstance(atom, Symbol) else [atom.kind, *map(_encode_expr, atom.args)] for atom in atoms),
        ]
        for coefficient, atoms in expr.terms
    ]


def _decode_expr(terms: Any) -> Expr:
    if isinstance(terms, int):
        return Expr.const(terms)
    parts = [product([coefficient, *map(_decode_atom, atoms)]) for coefficient, *atoms in terms]
    return functools.reduce(Expr.__add__, parts)


def _decode_atom(atom: Any) -> Expr:
    if isinstance(atom, str):
        return Expr.symbol(atom)
    kind, *operands = atom
    return _FUNCTIONS[kind](*map(_decode_expr, operands))


_FUNCTIONS: Final[dict[str, Callable[..., Expr]]] = {
    "floordiv": Expr.__floordiv__,
    "mod": Expr.__mod__,
    "max": maximum,
    "min": minimum,
}
