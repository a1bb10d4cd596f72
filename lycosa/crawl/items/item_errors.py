"""Explains in one line what is wrong with an item: `price: expected float, got "n/a" (Book on https://...)`."""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from lycosa.core.errors import BadItem

SHOWN_MAX = 40

PROBLEMS_MAX = 3
"""Further problems of an item are only counted."""

QUOTED_TYPE = re.compile(r"`([^`]*)`")
ITEM_CLASS_AT_END = re.compile(r"(.*) \(([^\W\d][\w.<>]*)\)", re.DOTALL)
QUOTED_FIELD_AT_START = re.compile(r"^'(\w+)' ")
MSGSPEC_ERROR = re.compile(r"(.*?)(?: - at `\$\.?(.*)`)?", re.DOTALL)


def explain(error: BaseException, url: str = "") -> str | None:
    """Explain a validation error of pydantic, msgspec or attrs, or a `BadItem`, with the URL of the page.

    Returns None for any other error.
    """
    if (problems := _problems(error)) is not None:
        item_class, text = problems[0], _join(problems[1])
    elif isinstance(error, BadItem):
        found = ITEM_CLASS_AT_END.fullmatch(str(error))
        text, item_class = found.groups() if found else (str(error), "")
    else:
        return None
    where = " ".join(filter(None, [item_class, url and f"on {url}"]))
    return f"{text} ({where})" if where else text


def build_item(item_class: Any, values: Mapping[str, Any]) -> Any:
    """Return a validated item of the class. Raises `BadItem`."""
    name = getattr(item_class, "__name__", "item")
    try:
        if isinstance(item_class, type) and issubclass(item_class, msgspec.Struct):
            return msgspec.convert(dict(values), item_class, strict=False)
        return item_class(**values)
    except Exception as error:
        problems = _problems(error, values)
        if problems is None and isinstance(error, TypeError):
            problems = name, [_argument_problem(str(error))]
        if problems is None:
            raise
        raise BadItem(f"{_join(problems[1])} ({problems[0] or name})") from error


def _join(problems: Sequence[str]) -> str:
    more = len(problems) - PROBLEMS_MAX
    return "; ".join(problems[:PROBLEMS_MAX]) + (f"; and {more} more" if more > 0 else "")


def _problems(error: BaseException, values: Mapping[str, Any] | None = None) -> tuple[str, list[str]] | None:
    """Return the name of the item class ("" if unknown) and what is wrong with each field; None for other errors."""
    if isinstance(error, msgspec.ValidationError):
        return "", [_msgspec_problem(str(error), values)]
    module = type(error).__module__.partition(".")[0]
    if type(error).__name__ == "ValidationError" and module in {"pydantic", "pydantic_core"}:
        model: Any = error
        name = getattr(model, "title", "") or getattr(getattr(model, "model", None), "__name__", "")
        return name, [_pydantic_problem(each) for each in model.errors()]
    if isinstance(error, (TypeError, ValueError)):
        problem = _attrs_problem(error)
        return None if problem is None else ("", [problem])
    return None


def _msgspec_problem(text: str, values: Mapping[str, Any] | None) -> str:
    found = MSGSPEC_ERROR.fullmatch(text)
    assert found is not None
    problem, path = QUOTED_TYPE.sub(r"\1", found[1]), found[2] or ""
    missing = re.fullmatch(r"Object missing required field (\S+)", problem)
    if missing:
        return f"{path}.{missing[1]}: is missing" if path else f"{missing[1]}: is missing"
    if values is not None and ", got " in problem:  # msgspec names only the type of the value
        problem = f"{problem.partition(', got ')[0]}, got {_shown(_value_at(values, path))}"
    problem = problem[:1].lower() + problem[1:]
    return f"{path}: {problem}" if path else problem


def _value_at(values: Any, path: str) -> Any:
    for name, number in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path):
        try:
            values = values[int(number)] if number else values[name]
        except (KeyError, IndexError, TypeError, ValueError):
            return values
    return values


def _pydantic_problem(error: Mapping[str, Any]) -> str:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"]).removeprefix(".")
    if error["type"] in {"missing", "value_error.missing"}:
        return f"{path}: is missing"
    problem = error["msg"][:1].lower() + error["msg"][1:]
    value = f", got {_shown(error['input'])}" if "input" in error else ""
    return f"{path}: {problem}{value}" if path else f"{problem}{value}"


def _attrs_problem(error: Exception) -> str | None:
    """Explain an error of an attrs validator: its arguments are (message,) or (message, attribute, type, value)."""
    frames = list(traceback.walk_tb(error.__traceback__))
    if not frames or frames[-1][0].f_globals.get("__name__") != "attr.validators":
        return None
    if len(error.args) == 4 and isinstance(error.args[2], type):
        _, attribute, expected, value = error.args
        return f"{attribute.name}: expected {expected.__qualname__}, got {_shown(value)}"
    return QUOTED_FIELD_AT_START.sub(r"\1: ", str(error.args[0]), count=1)


def _argument_problem(text: str) -> str:
    text = re.sub(r"^\S*__init__\(\) ", "", text)
    name = re.search(r"'([^']*)'", text)
    if name and "unexpected" in text:
        return f"{name[1]}: is not a field"
    if name and "missing" in text:
        return f"{name[1]}: is missing"
    return text


def _shown(value: Any) -> str:
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    return text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "..."
