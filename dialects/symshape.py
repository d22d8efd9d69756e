"""The base class of all ops of the dialect, and the registration of the dialect.

The op files have no ``from __future__ import annotations``: the base class reads the fields' types when a class is
made.
"""

# mypy: disable-error-code="call-arg,assignment,misc,var-annotated,method-assign"
# (classes are made by class keywords and setattr, which it cannot follow)

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from torch_mlir import ir
from torch_mlir.dialects import ext
from torch_mlir.dialects._ods_common import _cext

# The bindings look for a module named like the dialect each time they wrap an op, until they find one: this file,
# host.py, and linalg.py before theirs. Without it every op wrapped costs a failing import (40 us).
_cext.globals.dialect_search_modules = ["symshape.dialects", *_cext.globals.dialect_search_modules]


class SymShape(ext.Dialect, name="symshape"):
    """Symbolic sizes, facts about them, library calls and kernels."""


class Op(ext.Operation, dialect=SymShape):
    """Base of all ops: fields plus a docstring.

    It differs from ``ext.Operation`` in four ways:
    - the last operand field may be a ``Sequence``: it takes the rest (all of one type), without
      ``operandSegmentSizes``;
    - ``optional=("domain",)`` in the class header names attributes that may be absent (the property is then None);
    - the constructor takes Python values for attributes: str, int, lists, AffineMap, IntegerSet.
    - ``verify_invariants`` only sees ops whose fields are there and of their types: MLIR calls it first, and checks the
      fields afterwards.
    A field called ``name`` has no property, since ``op.name`` is the op's own name: use ``symbol_name``.
    """

    _optional = ()  # not annotated: annotations are fields

    @classmethod
    def __init_subclass__(cls, *, optional: tuple[str, ...] = (), **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._optional = optional
        if "verify_invariants" in cls.__dict__:
            cls.verify_invariants = _only_if_well_formed(cls.verify_invariants, cls._fields)
        for key in optional:
            setattr(cls, key, property(lambda self, key=key: optional_attribute(self, key)))

    @classmethod
    def _generate_class_attributes(cls, dialect_name: str, op_name: str, fields: Any) -> None:
        super()._generate_class_attributes(dialect_name, op_name, fields)
        cls._ODS_OPERAND_SEGMENTS = cls._ODS_RESULT_SEGMENTS = None

    @classmethod
    def _generate_attr_properties(cls, attrs: Any) -> None:
        super()._generate_attr_properties([attr for attr in attrs if attr.name != "name"])

    @classmethod
    def _generate_operand_properties(cls, operands: Any) -> None:
        for i, field in enumerate(operands):
            setattr(cls, field.name, property(_slot("operands", i, field.variadicity)))

    @classmethod
    def _generate_result_properties(cls, results: Any) -> None:
        for i, field in enumerate(results):
            setattr(cls, field.name, property(_slot("results", i, field.variadicity)))

    @classmethod
    def _generate_init_method(cls, fields: Any) -> None:
        operands, attrs, results, _ = ext.partition_fields(fields)
        signature = cls._generate_init_signature(fields)

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            extra = {key: kwargs.pop(key) for key in cls._optional if key in kwargs}
            bound = signature.bind(self, *args, **kwargs)
            bound.apply_defaults()
            given = bound.arguments
            attributes = {a.name: attribute(a.process_attr(given[a.name])) for a in attrs}
            attributes |= {key: attribute(value) for key, value in extra.items() if value is not None}
            ir.OpView.__init__(
                self,
                cls.OPERATION_NAME,
                cls._ODS_REGIONS,
                None,
                None,
                attributes=attributes,
                operands=list(_flat(given[o.name] for o in operands)),
                results=list(_flat(r.process_type(given[r.name]) for r in results)),
                loc=given["loc"],
                ip=given["ip"],
            )

        __init__.__signature__ = signature  # type: ignore[attr-defined]
        cls.__init__ = __init__


# Those of the IR of a compile, with what they depend on; a parser loads others. A context that is told nothing loads
# all dialects of MLIR, GPUs' and the transform dialect among them.
_USED: Final = ("affine", "arith", "func", "irdl", "linalg", "math", "scf", "tensor")


def context_of_compile() -> ir.Context:
    """A new context with the dialects that the compiler creates ops of, and ours. Ops of others, created by name, would
    be unregistered, which ``verify`` rejects."""
    return load(ir.Context(load_on_create_dialects=_USED))


def load(ctx: ir.Context) -> ir.Context:
    """Registers the dialect in ``ctx``; calling it again has no effect. There is no other registration.

    Multithreading is switched off: verifiers written in Python would wait for the interpreter lock, which the calling
    thread holds while it waits for them. Unregistered ops are allowed for ``host.*``; ``verify`` rejects others.
    """
    if not ctx.is_dialect_loaded(SymShape.DIALECT_NAMESPACE):
        ctx.enable_multithreading(False)
        ctx.allow_unregistered_dialects = True
        with ctx:
            SymShape.load()
    return ctx


def attribute(value: Any) -> ir.Attribute:
    """A Python value as an attribute: 3 is ``3 : i64``, "a" a string, [..] an array; attributes are returned as
    they are.
    """
    match value:
        case ir.Attribute():
            return value
        case str():
            return ir.StringAttr.get(value)
        case bool():
            return ir.BoolAttr.get(value)
        case int():
            return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
        case ir.AffineMap():
            return ir.AffineMapAttr.get(value)
        case ir.IntegerSet():
            return ir.IntegerSetAttr.get(value)
        case _:
            return ir.ArrayAttr.get([attribute(v) for v in value])


def optional_attribute(op: ir.OpView, key: str) -> ir.Attribute | None:
    attributes = op.operation.attributes
    return attributes[key] if key in attributes else None


_SET = re.compile(r"affine_set<(\(.*?\)(?:\[.*?\])?) : \((.*)\)>")


def set_constraints(domain: ir.Attribute) -> tuple[ir.AffineMap, list[bool]]:
    """The constraints of an integer set, as the results of a map: each is >= 0, or == 0 if the flag is True.

    The bindings cannot decompose an IntegerSetAttr, so its text is parsed: ``affine_set<(d0) : (d0 - 1 >= 0)>``.
    """
    match = _SET.fullmatch(str(domain))
    if match is None:
        raise ValueError(f"not an integer set: {domain}")
    parts = match[2].split(", ")
    exprs = ", ".join(part.rsplit(" ", 2)[0] for part in parts)
    text = f"affine_map<{match[1]} -> ({exprs})>"
    return ir.AffineMapAttr(ir.Attribute.parse(text, domain.context)).value, [part.endswith("== 0") for part in parts]


def bad(op: ir.OpView, message: str) -> bool:
    """Reports ``message`` at ``op`` and returns False, for the verifiers."""
    op.operation.location.emit_error(f"'{op.operation.name}' op {message}")
    return False


def enclosing_function(op: ir.OpView) -> ir.OpView | None:
    parent = op.operation.parent
    while parent is not None and parent.operation.name != "func.func":
        parent = parent.operation.parent
    return parent.opview if parent is not None else None


# MLIR's BoolAttr is an IntegerAttr of i1; the bindings' is a class of its own, which IRDL has no constraint for.
_WITH_BOOLS = (ir.IntegerAttr, ir.BoolAttr)


def _only_if_well_formed(verify: Any, fields: Sequence[Any]) -> Any:
    operands, attrs, results, _ = ext.partition_fields(fields)
    kinds = [(a.name, _WITH_BOOLS if a.constraint is ir.IntegerAttr else a.constraint) for a in attrs]
    operands_fit, results_fit = _fitting(operands), _fitting(results)

    def verify_invariants(self: ir.OpView) -> bool:
        op = self.operation
        attributes = op.attributes
        for name, kind in kinds:
            if name not in attributes or not isinstance(attributes[name], kind):
                return True  # MLIR is about to report it
        return not operands_fit(op.operands) or not results_fit(op.results) or bool(verify(self))

    return verify_invariants


def _fitting(fields: Sequence[Any]) -> Callable[[Sequence[ir.Value]], bool]:
    """A test whether values have the number and types that the fields declare."""
    rest = bool(fields) and fields[-1].variadicity == ext.Variadicity.variadic
    # The rest is only counted by verifiers; MLIR checks its types afterwards.
    kinds = [field.constraint for field in (fields[:-1] if rest else fields)]
    typed = [(i, kind) for i, kind in enumerate(kinds) if isinstance(kind, type)]

    def fits(values: Sequence[ir.Value]) -> bool:
        given = len(values)
        if given < len(kinds) or (given > len(kinds) and not rest):
            return False
        return all(isinstance(values[i].type, kind) for i, kind in typed)

    return fits


def _slot(group: str, i: int, variadicity: Any) -> Any:
    if variadicity == ext.Variadicity.variadic:
        return lambda self: list(getattr(self.operation, group))[i:]
    return lambda self: getattr(self.operation, group)[i]


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, Sequence):
            yield from value
        else:
            yield value
