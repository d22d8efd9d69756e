"""The atoms of expressions: symbols and functions, interned so that comparing and hashing are cheap."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, final
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from symshape.prover.numbers.expr import Expr

Kind = Literal["floordiv", "mod", "max", "min"]

_serial = count()
_lock = threading.RLock()


def natural_key(text: str) -> tuple[str | int, ...]:
    """Orders s2 before s10."""
    return tuple(int(part) if part.isdigit() else part for part in re.split(r"([0-9]+)", text))


@final
class Symbol:
    """An integer variable, by name. Interned: equal symbols are the same object."""

    __slots__ = ("__weakref__", "key", "name")
    __match_args__ = ("name",)
    _interned: ClassVar[WeakValueDictionary[str, Symbol]] = WeakValueDictionary()
    opaque: Final = False
    depth: Final = 0
    name: str
    key: tuple[Any, ...]

    def __new__(cls, name: str) -> Symbol:
        found = cls._interned.get(name)
        if found is not None:
            return found
        with _lock:
            self = super().__new__(cls)
            self.name = name
            self.key = (0, natural_key(name), name)
            return cls._interned.setdefault(name, self)

    @property
    def symbols(self) -> frozenset[str]:
        """Its name, as of a function the names of all its symbols."""
        return frozenset({self.name})

    def __reduce__(self) -> tuple[Any, ...]:
        return Symbol, (self.name,)

    def __repr__(self) -> str:
        return f"Symbol({self.name!r})"


@final
class Function:
    """An opaque function of expressions: floordiv(a, b), mod(a, b), max(a, b, ...) or min(a, b, ...).

    Interned like symbols. Build them with the operators of `Expr`, which simplify; this constructor does not.
    """

    __slots__ = ("__weakref__", "_key", "args", "depth", "kind", "symbols")
    __match_args__ = ("kind", "args")
    _interned: ClassVar[WeakValueDictionary[tuple[Kind, tuple[Expr, ...]], Function]] = WeakValueDictionary()
    opaque: Final = True
    kind: Kind
    args: tuple[Expr, ...]
    symbols: frozenset[str]
    depth: int
    _key: tuple[Any, ...] | None

    def __new__(cls, kind: Kind, args: tuple[Expr, ...]) -> Function:
        found = cls._interned.get((kind, args))
        if found is not None:
            return found
        symbols: frozenset[str] = frozenset().union(*(arg.symbols for arg in args))
        depth = 1 + max((atom.depth for arg in args for atom in arg.atoms), default=0)
        with _lock:
            self = super().__new__(cls)
            self.depth = depth
            self.kind, self.args, self.symbols, self._key = kind, args, symbols, None
            return cls._interned.setdefault((kind, args), self)

    @property
    def key(self) -> tuple[Any, ...]:
        """The sort key; the serial number only separates functions that print alike."""
        if self._key is None:
            text = ",".join(arg.python() for arg in self.args)
            self._key = (1, self.kind, natural_key(text), next(_serial))
        return self._key

    def rebuild(self, args: Iterable[Expr]) -> Expr:
        """The same function of other arguments, simplified."""
        match self.kind:
            case "floordiv":
                left, right = args
                return left // right
            case "mod":
                left, right = args
                return left % right
            case "max":
                from symshape.prover.numbers.expr import maximum

                return maximum(*args)
            case "min":
                from symshape.prover.numbers.expr import minimum

                return minimum(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        return Function, (self.kind, self.args)

    def __repr__(self) -> str:
        return f"Function({self.kind!r}, ({', '.join(map(str, self.args))}))"


Atom = Symbol | Function
