"""Says what is wrong with an item in one line: `price: expected float, got "n/a" (Book on https://...)`.

`explain` does so for what pydantic, msgspec and attrs raise when they validate, and for items that cannot be written;
`build_item` makes an item of a class from the values of its fields, and raises `BadItem` with such a line.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from lycosa.core.errors import BadItem

SHOWN_MAX = 40
"""Characters of a value that are shown."""

COMPLAINTS_MAX = 3
"""Complaints about one item that are told; of the others, how many there are."""

TYPES = re.compile(r"`([^`]*)`")
ENDS_WITH_KIND = re.compile(r"(.*) \(([^\W\d][\w.<>]*)\)", re.DOTALL)
QUOTED = re.compile(r"^'(\w+)' ")
AT = re.compile(r"(.*?)(?: - at `\$\.?(.*)`)?", re.DOTALL)


def explain(error: BaseException, url: str = "") -> str | None:
    """Return the line about the item, with the page if it is told; None when the error is about no item."""
    told = _complaints(error)
    if told is not None:
        kind, text = told[0], _joined(told[1])
    elif isinstance(error, BadItem):
        found = ENDS_WITH_KIND.fullmatch(str(error))
        text, kind = found.groups() if found else (str(error), "")
    else:
        return None
    where = " ".join(filter(None, [kind, url and f"on {url}"]))
    return f"{text} ({where})" if where else text


def build_item(item_class: Any, values: Mapping[str, Any]) -> Any:
    """Return an item of the class with these values, validated as the class does. Raises `BadItem`."""
    kind = getattr(item_class, "__name__", "item")
    try:
        if isinstance(item_class, type) and issubclass(item_class, msgspec.Struct):
            return msgspec.convert(dict(values), item_class, strict=False)
        return item_class(**values)
    except Exception as error:
        told = _complaints(error, values)
        if told is None and isinstance(error, TypeError):
            told = kind, [_about_arguments(str(error))]
        if told is None:
            raise
        raise BadItem(f"{_joined(told[1])} ({told[0] or kind})") from error


def _joined(lines: Sequence[str]) -> str:
    more = len(lines) - COMPLAINTS_MAX
    return "; ".join(lines[:COMPLAINTS_MAX]) + (f"; and {more} more" if more > 0 else "")


def _complaints(error: BaseException, values: Mapping[str, Any] | None = None) -> tuple[str, list[str]] | None:
    """Return the class of the item, as far as the error knows it, and what is wrong with its fields."""
    if isinstance(error, msgspec.ValidationError):
        return "", [_of_msgspec(str(error), values)]
    module = type(error).__module__.partition(".")[0]
    if type(error).__name__ == "ValidationError" and module in {"pydantic", "pydantic_core"}:
        return _of_pydantic(error)
    if isinstance(error, (TypeError, ValueError)):
        return _of_attrs(error)
    return None


def _of_msgspec(text: str, values: Mapping[str, Any] | None) -> str:
    found = AT.fullmatch(text)
    assert found is not None
    what, path = TYPES.sub(r"\1", found[1]), found[2] or ""
    missing = re.fullmatch(r"Object missing required field (\S+)", what)
    if missing:
        return f"{path}.{missing[1]}: is missing" if path else f"{missing[1]}: is missing"
    if values is not None and ", got " in what:
        what = f"{what.partition(', got ')[0]}, got {_shown(_at(values, path))}"
    what = what[:1].lower() + what[1:]
    return f"{path}: {what}" if path else what


def _at(values: Any, path: str) -> Any:
    for name, number in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path):
        try:
            values = values[int(number)] if number else values[name]
        except (KeyError, IndexError, TypeError, ValueError):
            return values
    return values


def _of_pydantic(error: Any) -> tuple[str, list[str]]:
    kind = getattr(error, "title", "") or getattr(getattr(error, "model", None), "__name__", "")
    return kind, [_one_of_pydantic(each) for each in error.errors()]


def _one_of_pydantic(each: Mapping[str, Any]) -> str:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in each["loc"]).removeprefix(".")
    if each["type"] in {"missing", "value_error.missing"}:
        return f"{path}: is missing"
    what = each["msg"][:1].lower() + each["msg"][1:]
    value = f", got {_shown(each['input'])}" if "input" in each else ""
    return f"{path}: {what}{value}" if path else f"{what}{value}"


def _of_attrs(error: Exception) -> tuple[str, list[str]] | None:
    """Read what the validators of attrs raise: a message, often with the attribute, what was wanted, and the value."""
    frames = list(traceback.walk_tb(error.__traceback__))
    if not frames or frames[-1][0].f_globals.get("__name__") != "attr.validators":
        return None
    if len(error.args) == 4 and isinstance(error.args[2], type):
        _, attribute, wanted, value = error.args
        return "", [f"{attribute.name}: expected {wanted.__qualname__}, got {_shown(value)}"]
    return "", [QUOTED.sub(r"\1: ", str(error.args[0]), count=1)]


def _about_arguments(text: str) -> str:
    """Read what Python says about arguments that a class does not have, or needs."""
    text = re.sub(r"^\S*__init__\(\) ", "", text)
    name = re.search(r"'([^']*)'", text)
    if name and "unexpected" in text:
        return f"{name[1]}: is no field"
    if name and "missing" in text:
        return f"{name[1]}: is missing"
    return text


def _shown(value: Any) -> str:
    text = '"' + value + '"' if isinstance(value, str) else repr(value)
    return text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "..."
