"""The short form of our ops: ``symshape.symbol "s0" in [2, inf)`` for ``"symshape.symbol"() {name = "s0", ...}``.

It is a translation of text, line by line: other lines stay as MLIR prints them, and line numbers stay the same. An op
whose short form could not be read back (invalid IR) stays in generic form; one text may have both forms.

``FORMS`` is the table that printer and parser share. In a form, words and punctuation are literal, and

- ``$name`` is an attribute (``@$name``: a string, without quotes), ``$low..$high`` are two as a range,
- ``%name`` is the next operand, ``%name...`` the rest of them, ``%name(of)...`` as many as ``of`` has dims,
- ``&name`` is the text of a call with its operands inserted,
- ``{...}`` is omitted if it is empty: no operands, no attribute, or the default (``$name=default``); ``{word}`` is a
  unit attribute.

Attributes that a form does not name follow in braces; then the types that the op's declaration leaves open.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from torch_mlir import ir
from torch_mlir.dialects import ext

from symshape import dialects
from symshape.dialects.generic_form import (
    VALUE,
    GenericOp,
    attributes_text,
    end_of,
    read_attributes,
    read_generic,
    split,
    types_text,
)
from symshape.errors import CompileError
from symshape.prover.numbers.facts import INT64_MAX

FORMS: Final[Mapping[str, str]] = {
    "symshape.symbol": '$name in $min..$max {divisor $divisor=1} {hint $hint=-1} {at $binding=""} {from $source=""}',
    "symshape.unbacked_symbol": "$name in $min..$max is $kind {$dim} of %source",
    "symshape.bind": "%tensor [%layout(tensor)...] strides [%layout(tensor)...] offset %layout {on $device} {negated}",
    "symshape.assume": "%condition",
    "symshape.expect_true": "%condition, $message",
    "symshape.guard": "%condition, $reason",
    "symshape.view": "%source at $map sizes [%indices(result)...] {symbols [%indices...]} {where $domain}",
    "symshape.store": "%value into %dest at $map {symbols [%symbols...]}",
    "symshape.scatter": "$combiner %value into %source to %dest along $dims {at [%indices...]}",
    "symshape.space": "[%sizes...] $iterators",
    "symshape.check_index": "%index below %size, $message {error $error}",
    "symshape.reuse": "%source",
    "symshape.processors": "",
    "symshape.address": "%source",
    "symshape.variant": "$name if %condition form $form xblock $xblock {yblock $yblock=0} {rblock $rblock=0} "
    "warps $num_warps {stages $num_stages=1} {one_launch $one_launch=false} bits $index_bits "
    "{splits [%splits...]} {dims $dims=[]} {aligned $aligned=[]}",
    "host.call": "@$target&arguments {results $result_indices} {fresh} {draws} {checked} {collective $collective} "
    "{since $reason}",
    "host.launch": "$callee(%args...)",
    "host.cond": "%predicate then $true else $false (%args...)",
    "host.while": "$cond do $body (%args...) carried $carried {stacked}",
    "host.scan": "$body(%args...) carried $carried sliced $sliced {written $written}",
    "host.associative_scan": "$combine(%args...) carried $carried sliced $sliced {written $written}",
    "host.attention": "$scores then $weights {or $whole} (%args...) lists $lists {written $written}",
    "host.layer": "$callee(%args...)",
}
_INFINITE: Final = str(INT64_MAX)
_LINE: Final = re.compile(r"(\s*(?:%[\w$.:, %-]+ = )?)([\w.]+)(?![\w.])")
_VALUE_OR_TEXT: Final = re.compile(rf"'[^']*'|{VALUE.pattern}")
_PART: Final = re.compile(
    r" ?\{(?P<group>[^}]*)\}|@\$(?P<bare>\w+)|&(?P<call>\w+)|\$(?P<low>\w+)\.\.\$(?P<high>\w+)"
    r"|\$(?P<attribute>\w+)(?:=(?P<default>\S+))?|%(?P<operand>\w+)(?:\((?P<of>\w+)\))?(?P<rest>\.\.\.)?"
    r"|(?P<literal>[\w]+|\S)| +"
)


class _Unlike(Exception):
    """The op has something that its form cannot express, or the text does not match the form: what was expected."""


def print_short(text: str) -> str:
    """IR as MLIR prints it, with our ops in short form."""
    return "\n".join(_shortened(line) for line in text.split("\n"))


def read_short(text: str, name: str = "the text") -> str:
    """IR with ops in short form or in generic form, as MLIR reads it. CompileError with the line of ``name``."""
    return "\n".join(_lengthened(line, f"{name}, line {i}") for i, line in enumerate(text.split("\n"), 1))


def _shortened(line: str) -> str:
    op = read_generic(line)
    if op is None or op.name not in FORMS:
        return line
    try:
        short = _show(op)
        return short if _read(short) == op else line
    except _Unlike:
        return line


def _lengthened(line: str, where: str) -> str:
    match = _LINE.match(line)
    if match is None or match[2] not in FORMS:
        return line
    try:
        return str(_read(line))
    except (_Unlike, ValueError) as error:
        raise CompileError(
            f"this is no {match[2]}: {error}", where=where, next_step=f"its form: {match[2]} {FORMS[match[2]]}".rstrip()
        ) from None


# --- an op as text ----------------------------------------------------------------------------------------------------


def _show(op: GenericOp) -> str:
    declared = _declared(op.name)
    printer = _Printer(op, declared)
    body = printer.shown(_parts(FORMS[op.name]))
    others = {key: value for key, value in op.attributes.items() if key not in printer.used}
    if len(printer.left):
        raise _Unlike
    braces = f" {{{attributes_text(others)}}}" if others else ""
    given = [type_ for type_, fixed in zip(op.operand_types, declared.types(len(op.operands))) if fixed is None]
    types = f" : {', '.join(given)}" if given else ""
    if declared.result is None and op.result_types:
        types += f" -> {types_text(op.result_types)}"
    return f"{op.head}{op.name} {body}".rstrip() + f"{braces}{types}{op.tail}"


class _Printer:
    def __init__(self, op: GenericOp, declared: _Declared) -> None:
        self.op, self.declared = op, declared
        self.left = list(op.operands)
        self.used: set[str] = set()

    def shown(self, parts: Sequence[_Part]) -> str:
        return "".join(self._part(part) for part in parts)

    def _part(self, part: _Part) -> str:
        match part.kind:
            case "literal":
                return part.text
            case "group":
                return f" {self.shown(part.parts)}" if self._says_something(part) else self._skipped(part)
            case "unit":
                is_set = self.op.attributes.get(part.text) == ""
                self.used |= {part.text} if is_set else set()
                return f" {part.text}" if is_set else ""
            case "operand":
                return ", ".join(self._operands(part))
            case "call":
                return self._call(part.text)
            case "range":
                low, high = (self._attribute(key) for key in (part.text, part.of))
                return f"[{low}, inf)" if high == _INFINITE else f"[{low}, {high}]"
            case "bare":
                text = self._attribute(part.text)
                return f"@{text[1:-1]}" if re.fullmatch(r'"[A-Za-z_][\w.$-]*"', text) else f"@{text}"
            case _:
                return self._attribute(part.text)

    def _attribute(self, key: str) -> str:
        if not self.op.attributes.get(key):
            raise _Unlike
        self.used.add(key)
        return self.op.attributes[key].removesuffix(" : i64")

    def _operands(self, part: _Part) -> list[str]:
        count = 1 if not part.rest else len(self.left) if not part.of else self._rank(part.of)
        if count > len(self.left):
            raise _Unlike
        taken, self.left = self.left[:count], self.left[count:]
        return taken

    def _rank(self, of: str) -> int:
        """The number of dims of the type of the operand ``of``, or of the result."""
        names = [name for name, _ in self.declared.operands]
        type_ = self.op.result_types[0] if of == "result" else self.op.operand_types[names.index(of)]
        sizes = re.match(r"tensor<((?:[?\d]+x)*)", type_)
        if sizes is None:
            raise _Unlike
        return sizes[1].count("x")

    def _call(self, key: str) -> str:
        """The arguments with operands in the places of ``$i``; where one is missing, or comes twice, or out of order,
        as they are, with the operands behind."""
        text = self._attribute(key)
        operands, self.left = self.left, []
        order = [int(i) for i in re.findall(r"\$(\d+)", text)]
        if order == list(range(len(operands))) and not re.search(r"[%\\]", text):
            return re.sub(r"\$(\d+)", lambda found: operands[int(found[1])], text[1:-1])
        return f" {text} of ({', '.join(operands)})"

    def _says_something(self, group: _Part) -> bool:
        for part in group.parts:
            if part.kind == "attribute":
                return self.op.attributes.get(part.text, part.default).removesuffix(" : i64") != part.default
            if part.kind == "operand":
                return bool(self.left)
        raise AssertionError(group)

    def _skipped(self, group: _Part) -> str:
        self.used.update(part.text for part in group.parts if part.kind == "attribute" and part.default)
        return ""


# --- text as an op ----------------------------------------------------------------------------------------------------


def _read(line: str) -> GenericOp:
    match = _LINE.match(line)
    assert match is not None
    declared = _declared(match[2])
    reader = _Reader(line, match.end())
    reader.read(_parts(FORMS[match[2]]))
    if reader.at("{"):
        reader.attributes |= read_attributes(reader.until("")[1:])
        reader.expect("}")
    fixed = declared.types(len(reader.operands))
    given = reader.types(fixed.count(None)) if None in fixed else []
    results = reader.results() if declared.result is None else list(declared.result)
    location = reader.location()
    left = iter(given)
    types = tuple(next(left) if type_ is None else type_ for type_ in fixed)
    return GenericOp(match[1], match[2], tuple(reader.operands), reader.attributes, types, tuple(results), location)


@dataclass
class _Reader:
    line: str
    position: int
    operands: list[str] = field(default_factory=list)
    attributes: dict[str, str] = field(default_factory=dict)

    def read(self, parts: Sequence[_Part]) -> None:
        for part in parts:
            self._part(part)

    def _part(self, part: _Part) -> None:
        match part.kind:
            case "literal":
                self.expect(part.text)
            case "group":
                self._group(part)
            case "unit":
                if self.at(part.text):
                    self.expect(part.text)
                    self.attributes[part.text] = ""
            case "operand":
                self._operands(part)
            case "call":
                self._call(part.text)
            case "range":
                self.expect("[")
                self.attributes[part.text] = self._number(part.text)
                self.expect(",")
                infinite = self.at("inf)")
                self.attributes[part.of] = f"{_INFINITE} : i64" if infinite else self._number(part.of)
                self.expect("inf)" if infinite else "]")
            case "bare":
                self.expect("@")
                value = self._value(part.text)
                self.attributes[part.text] = value if value.startswith('"') else f'"{value}"'
            case _:
                self.attributes[part.text] = self._value(part.text)

    def _group(self, group: _Part) -> None:
        first = group.parts[0]
        present = self.at(first.text) if first.kind == "literal" else bool(re.match(r"-?\d", self._rest()))
        if present:
            return self.read(group.parts)
        for part in group.parts:
            if part.kind == "attribute" and part.default:
                self.attributes[part.text] = _typed(part.default)
        return None

    def _operands(self, part: _Part) -> None:
        """As many as there are up to a bracket, where several may be; else one."""
        if part.rest and self.at(("]", ")")):
            return
        self.operands.append(self._operand(part.text))
        while part.rest and self.at(","):
            self.expect(",")
            self.operands.append(self._operand(part.text))

    def _operand(self, what: str) -> str:
        match = VALUE.match(self.line, self._start())
        if match is None:
            raise _Unlike(f"expected a value (%{what}) at `{self._rest()}`")
        self.position = match.end()
        return match[0]

    def _call(self, key: str) -> None:
        if self.at('"'):
            self.attributes[key] = self._value(key)
            self.expect("of")
            self.expect("(")
            self._operands(_Part("operand", "argument", rest=True))
            return self.expect(")")
        if not self.at("("):
            raise _Unlike(f"expected the arguments of a call at `{self._rest()}`")
        start = self._start()
        self.position = _end_of_call(self.line, start)
        text = self.line[start : self.position]
        if re.search(r'["\\]', text):
            raise _Unlike(f'expected texts in single quotes, without escapes, in `{text}`; else `"($0)" of (%a)`')
        self.attributes[key] = '"' + _VALUE_OR_TEXT.sub(self._numbered, text) + '"'
        return None

    def _numbered(self, found: re.Match[str]) -> str:
        if found[0].startswith("'"):
            return found[0]
        self.operands.append(found[0])
        return f"${len(self.operands) - 1}"

    def _value(self, what: str) -> str:
        start = self._start()
        end = end_of(self.line, start, ", (")
        if end == start:
            raise _Unlike(f"expected {what} at `{self._rest()}`")
        self.position = end
        return _typed(self.line[start:end])

    def _number(self, what: str) -> str:
        value = self._value(what)
        if not value.endswith(" : i64"):
            raise _Unlike(f"expected {what}, a number, not `{value}`")
        return value

    def types(self, count: int) -> list[str]:
        what = f"{count} type{'s' * (count != 1)}"
        if not self.at(":"):
            raise _Unlike(f"expected `: ` and {what} at `{self._rest()}`")
        self.expect(":")
        given = split(self._until_arrow())
        if len(given) != count:
            raise _Unlike(f"expected {what}, not {len(given)}")
        return given

    def results(self) -> list[str]:
        if not self.at("->"):
            return []
        self.expect("->")
        if self.at("("):
            self.expect("(")
            given = split(self.until(""))
            self.expect(")")
            return given
        return [self.until(" ")]

    def location(self) -> str:
        """Parses the end of a line: a location, and a comment, which is dropped."""
        found = ""
        if self.at("loc("):
            start = self._start()
            self.position = end_of(self.line, start + len("loc("), "") + 1
            found = f" {self.line[start : self.position]}"
        if not self.at("//") and self.line[self.position :].strip():
            raise _Unlike(f"expected the end of the line at `{self._rest()}`")
        return found

    def until(self, stops: str) -> str:
        start = self._start()
        self.position = end_of(self.line, start + self.line.startswith("{", start), stops)
        return self.line[start : self.position]

    def _until_arrow(self) -> str:
        start = self._start()
        found = re.search(r" -> | loc\(| //|$", self.line[start:])
        assert found is not None
        self.position = start + found.start()
        return self.line[start : self.position]

    def at(self, text: str | tuple[str, ...]) -> bool:
        return self.line.startswith(text, self._start())

    def expect(self, text: str) -> None:
        start = self._start()
        if not self.line.startswith(text.strip(), start):
            raise _Unlike(f"expected `{text.strip()}` at `{self._rest()}`")
        self.position = start + len(text.strip())

    def _start(self) -> int:
        """Where the next part begins."""
        while self.line.startswith(" ", self.position):
            self.position += 1
        return self.position

    def _rest(self) -> str:
        return self.line[self.position :].strip() or "the end of the line"


def _typed(value: str) -> str:
    return f"{value} : i64" if re.fullmatch(r"-?\d+", value) else value


def _end_of_call(line: str, start: int) -> int:
    """The position of the bracket that closes the one at ``start``, in Python source."""
    depth = 0
    for mark in re.finditer(r"'[^']*'|[()\[\]{}]", line[start:]):
        depth += (mark[0] in "([{") - (mark[0] in ")]}")
        if depth == 0 and mark[0] in ")]}":
            return start + mark.end()
    raise _Unlike(f"expected `)` at the end of `{line[start:].strip()}`")


# --- forms and declarations -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """``kind``: "literal", "attribute", "bare", "range", "operand", "call", "group", "unit". ``text``: the word, or the
    name."""

    kind: str
    text: str = ""
    of: str = ""
    default: str = ""
    rest: bool = False
    parts: tuple[_Part, ...] = ()


@cache
def _parts(form: str) -> tuple[_Part, ...]:
    return tuple(_read_form(form))


def _read_form(form: str) -> Iterator[_Part]:
    for found in _PART.finditer(form):
        key = found.lastgroup
        if found["group"] is not None:
            parts = _parts(found["group"])
            yield (
                _Part("group", parts=parts)
                if len(parts) > 1 or parts[0].kind != "literal"
                else _Part("unit", parts[0].text)
            )
        elif key in ("low", "high"):
            yield _Part("range", found["low"], of=found["high"])
        elif found["operand"]:
            yield _Part("operand", found["operand"], of=found["of"] or "", rest=bool(found["rest"]))
        elif found["attribute"]:
            yield _Part("attribute", found["attribute"], default=found["default"] or "")
        elif found["bare"] or found["call"]:
            yield _Part("bare" if found["bare"] else "call", found["bare"] or found["call"])
        else:
            yield _Part("literal", found[0])


@dataclass(frozen=True)
class _Declared:
    """The operands of an op's class (name, and the type if it is fixed) and its results (fixed types)."""

    operands: tuple[tuple[str, str | None], ...]
    variadic: bool
    result: tuple[str, ...] | None

    def types(self, count: int) -> list[str | None]:
        """For each of so many operands the type, if it can only be one."""
        types = [type_ for _, type_ in self.operands]
        return (types + [types[-1]] * (count - len(types)) if self.variadic and types else types)[:count]


@cache
def _declared(name: str) -> _Declared:
    if name in dialects.HOST_OPS:
        return _Declared((("args", None),), True, None)
    found = (getattr(dialects, one) for one in dialects.__all__)
    (cls,) = (one for one in found if getattr(one, "OPERATION_NAME", None) == name)
    operands, _, results, _ = ext.partition_fields(cls._fields)
    types = [_only_type(result.constraint) for result in results]
    return _Declared(
        tuple((operand.name, _only_type(operand.constraint)) for operand in operands),
        bool(operands) and operands[-1].variadicity == ext.Variadicity.variadic,
        None if None in types else tuple(str(type_) for type_ in types),
    )


def _only_type(constraint: Any) -> str | None:
    if constraint is ir.IndexType:
        return "index"
    return "i1" if constraint == ir.IntegerType[1] else None
