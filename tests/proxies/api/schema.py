"""Checks values against a JSON Schema, for the keywords in the description of the API. Other keywords are an error."""

from __future__ import annotations

import re
from typing import Any

KINDS = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict,
    "null": type(None),
}  # fmt: skip
ANNOTATIONS = {"title", "description", "default"}


def problems(value: Any, schema: dict[str, Any], document: dict[str, Any], path: str = "$") -> list[str]:
    """Return the problems of a value."""
    found: list[str] = []
    for name, rule in schema.items():
        if name not in ANNOTATIONS:
            found += _violations(name, rule, value, schema, document, path)
    return found


def _violations(
    name: str, rule: Any, value: Any, schema: dict[str, Any], document: dict[str, Any], path: str
) -> list[str]:
    match name:
        case "$ref":
            return problems(value, resolve(rule, document), document, path)
        case "type":
            return [] if _is(value, rule) else [f"{path}: {value!r} is no {rule}"]
        case "enum":
            return [] if value in rule else [f"{path}: {value!r} is none of {rule}"]
        case "anyOf":
            alternatives = [problems(value, each, document, path) for each in rule]
            return [] if [] in alternatives else [f"{path}: {value!r} is none of {alternatives}"]
        case "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum":
            return _bounded(name, rule, value, path)
        case "minLength" | "minItems" | "minProperties":
            return [] if not hasattr(value, "__len__") or len(value) >= rule else [f"{path}: shorter than {rule}"]
        case "maxLength" | "maxItems" | "maxProperties":
            return [] if not hasattr(value, "__len__") or len(value) <= rule else [f"{path}: longer than {rule}"]
        case "pattern":
            good = not isinstance(value, str) or re.search(rule, value)
            return [] if good else [f"{path}: {value!r} does not match {rule}"]
        case "items":
            entries = value if isinstance(value, list) else []
            return [each for at, one in enumerate(entries) for each in problems(one, rule, document, f"{path}[{at}]")]
        case "required":
            return [f"{path}: {each} is missing" for each in rule if isinstance(value, dict) and each not in value]
        case "properties":
            fields = value if isinstance(value, dict) else {}
            known = [(key, rule[key]) for key in fields if key in rule]
            return [each for key, one in known for each in problems(fields[key], one, document, f"{path}.{key}")]
        case "propertyNames":
            return [each for key in value for each in problems(key, rule, document, f"{path} name")]
        case "additionalProperties":
            more = [key for key in value if key not in schema.get("properties", {})] if isinstance(value, dict) else []
            if rule is False:
                return [f"{path}: {key} is not known" for key in more]
            return [each for key in more for each in problems(value[key], rule, document, f"{path}.{key}")]
    raise AssertionError(f"{path}: the keyword {name} is not supported")


def resolve(reference: str, document: dict[str, Any]) -> dict[str, Any]:
    """Return the schema that a reference names."""
    found: Any = document
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    return dict(found)


def _is(value: Any, kind: str) -> bool:
    is_boolean = isinstance(value, bool)
    return isinstance(value, KINDS[kind]) and (kind == "boolean" or not is_boolean)  # type: ignore[arg-type]


def _bounded(name: str, rule: float, value: Any, path: str) -> list[str]:
    if not isinstance(value, int | float):
        return []
    good = {
        "minimum": value >= rule,
        "maximum": value <= rule,
        "exclusiveMinimum": value > rule,
        "exclusiveMaximum": value < rule,
    }[name]
    return [] if good else [f"{path}: {value} breaks {name} {rule}"]
