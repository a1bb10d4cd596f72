"""Converts TOML tables to a type, and checks them. An error is one line that says what is accepted.

    proxies.checks.timeout: 'soon' is not a number from 0.1 to 300, or a duration such as "10m"
    proxies.sources[2]: there is no 'evry': did you mean every?

The type is a dataclass or `msgspec.Struct`. Its constraints are `msgspec.Meta`; a `description` there replaces the
generated text in errors. Beyond what msgspec accepts, a single value may replace a list of one value, a duration
such as "10m" a number of seconds, and a whole number a text in a table of texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, inspect

from lycosa.core.errors import BadProxy, BadSetting
from lycosa.core.units import parse_duration

T = TypeVar("T")

SHOWN_MAX = 60

Text = Annotated[str, Meta(max_length=4096)]
Texts = Annotated[tuple[Text, ...], Meta(max_length=1000)]
TextTable = Annotated[dict[str, Text], Meta(max_length=1000)]
DURATION: Final = {"duration": True}
"""The `extra` of a `msgspec.Meta` for seconds that may be written as a text such as "10m"."""

SEQUENCES = (inspect.ListType, inspect.VarTupleType, inspect.FrozenSetType)
RECORDS = (inspect.StructType, inspect.DataclassType)
ERROR = re.compile(r"(?P<what>.*?)(?: - at (?:`key` in )?`\$(?P<path>.*)`)?", re.DOTALL)
STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
MISSING = re.compile(r"Object missing required field `(\w+)`")

Parsers = Mapping[type, Callable[[str], object]]


def read_table(values: object, kind: type[T], place: str, *, secret: bool = False, parsers: Parsers | None = None) -> T:
    """Convert a table to a type. Raises `BadSetting`.

    `place` names the table in errors. Errors of a `secret` table do not quote its values. `parsers` maps a dataclass to
    a function that converts text to it, or raises `BadProxy`.
    """
    node = inspect.type_info(kind)
    prepared = _prepared(values, node, place, parsers or {})
    try:
        return msgspec.convert(prepared, kind)
    except msgspec.ValidationError as error:
        raise _mistake(str(error), prepared, node, place, secret=secret) from None


def refuse_unknown(keys: Collection[object], known: Collection[str], place: str) -> None:
    """Raise `BadSetting` for the first unknown key. The message has the most similar known key, or all known keys."""
    unknown = next((str(key) for key in keys if key not in known), None)
    if unknown is not None:
        near = get_close_matches(unknown, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"write {', '.join(known)}"
        raise BadSetting(f"{place}: there is no {shown(unknown)}: {hint}")


def shown(value: object) -> str:
    """Return a wrong value for an error message, shortened."""
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def _prepared(value: object, node: inspect.Type, place: str, parsers: Parsers) -> object:
    """Return a value in the form that msgspec accepts. Raises `BadSetting`."""
    if isinstance(node, inspect.Metadata):
        seconds = parse_duration(value) if node.extra == DURATION and isinstance(value, str) else None
        return _prepared(value, node.type, place, parsers) if seconds is None else seconds
    if isinstance(node, RECORDS) and isinstance(value, Mapping):
        fields = {field.encode_name: field.type for field in node.fields}
        refuse_unknown(value, fields, place)
        return {key: _prepared(each, fields[key], f"{place}.{key}", parsers) for key, each in value.items()}
    if isinstance(node, inspect.DictType) and isinstance(value, Mapping):
        is_text = isinstance(_plain(node.value_type), inspect.StrType)  # accepts { asn = 64512 }
        return {
            key: str(each) if is_text and type(each) is int else _prepared(each, node.value_type, place, parsers)
            for key, each in value.items()
        }
    if isinstance(node, SEQUENCES):
        item = _plain(node.item_type)
        stands_alone = isinstance(value, str | int) and (not isinstance(item, RECORDS) or item.cls in parsers)
        several = [value] if stands_alone else value
        if isinstance(several, list | tuple):
            each_of = enumerate(several, 1)
            return [_prepared(each, node.item_type, f"{place}[{number}]", parsers) for number, each in each_of]
    if isinstance(node, inspect.DataclassType) and node.cls in parsers and isinstance(value, str):
        try:
            return parsers[node.cls](value)
        except BadProxy as error:
            raise BadSetting(f"{place}: {error}") from None
    return value


def _mistake(error: str, value: Any, node: Any, place: str, *, secret: bool) -> BadSetting:
    """Turn a message of msgspec, such as "Expected ... - at `$.rules[0].blame`", into our own."""
    found = ERROR.fullmatch(error)
    path = found["path"] if found else ""
    for name, index in STEP.findall((path or "").partition("[...]")[0]):  # [...] is any key of a dict
        node = _plain(node)
        if name:
            node = next(field.type for field in node.fields if field.encode_name == name)
            value, place = value[name], f"{place}.{name}"
        else:
            node, value, place = node.item_type, value[int(index)], f"{place}[{int(index) + 1}]"
    if missing := MISSING.match(error):
        node = next(field.type for field in _plain(node).fields if field.encode_name == missing[1])
        return BadSetting(f"{place}.{missing[1]}: it is missing: write {_expected(node, place)}")
    return BadSetting(f"{place}: {'this' if secret else shown(value)} is not {_expected(node, place)}")


def _plain(node: Any) -> Any:
    """Return a type without metadata; of a union, the first type that is not None."""
    if isinstance(node, inspect.Metadata):
        return _plain(node.type)
    if isinstance(node, inspect.UnionType):
        return _plain(next(each for each in node.types if not isinstance(each, inspect.NoneType)))
    return node


def _is_table(node: inspect.Type) -> bool:
    return isinstance(_plain(node), RECORDS)


def _expected(node: inspect.Type, place: str) -> str:
    if isinstance(node, inspect.Metadata):
        text = (node.extra_json_schema or {}).get("description") or _expected(node.type, place)
        return f'{text}, or a duration such as "10m"' if node.extra == DURATION else text
    node = _plain(node)
    if isinstance(node, inspect.IntType | inspect.FloatType):
        kind = "a whole number" if isinstance(node, inspect.IntType) else "a number"
        return f"{kind} from {node.ge or 0:g} to {node.le or 0:,.0f}"
    if isinstance(node, inspect.StrType):
        return f"a text of {node.min_length or 0} to {node.max_length or 0:,} characters"
    if isinstance(node, inspect.EnumType | inspect.LiteralType):
        values = [each.value for each in node.cls] if isinstance(node, inspect.EnumType) else node.values
        return f"one of {', '.join(map(str, values))}"
    if isinstance(node, RECORDS):
        return f"a table: write [{place}]"
    if isinstance(node, SEQUENCES):
        most = "" if node.max_length is None else f"at most {node.max_length:,} "
        return f"a list of {most}tables: write [[{place}]]" if _is_table(node.item_type) else f"a list of {most}values"
    return 'a table: write { name = "value" }' if isinstance(node, inspect.DictType) else "true or false"
