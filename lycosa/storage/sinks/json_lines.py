"""Encodes an item as one line of JSON, and makes the errors of sinks.

An item may be a dict, a msgspec struct, a dataclass, or an attrs, pydantic or Scrapy item. It may hold text, numbers,
dates (ISO 8601), decimals and UUIDs (as text), bytes (base64), enums, sets and sequences. NaN and infinity become null,
and a lone surrogate becomes U+FFFD. For other values `BadItem` names the field.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from numbers import Integral, Real
from typing import Any

import msgspec

from lycosa.core.errors import BadItem, StateError, StorageError, StorageFull
from lycosa.infra.disk import NO_ROOM

SEARCH_DEPTH_MAX = 50


def to_line(item: Any) -> bytes:
    """Return the item as JSON without newlines. Raises `BadItem`."""
    try:
        return _ENCODER.encode(item)
    except UnicodeEncodeError:
        pass
    except Exception as error:
        raise BadItem(_error_text(item)) from error
    try:
        return _encode_with_surrogates(item)
    except Exception as error:
        raise BadItem(_error_text(item)) from error


def write_error(where: str, error: OSError) -> StateError:
    """Return the error for a system call that failed on the output."""
    if error.errno in NO_ROOM:
        return StorageFull(f"{where}: no space left for items ({error.strerror}); free some and run the command again")
    return StorageError(f"{where}: items cannot be written: {error.strerror or error}")


def not_open_error(where: str) -> StateError:
    """Return the error for an output that is not open."""
    return StorageError(f"{where} is not open: items cannot be written to it before `open` or after `close`")


def _encode_with_surrogates(item: Any) -> bytes:
    """Several times slower than `_ENCODER`."""
    return _ENCODER.encode(_without_surrogates(msgspec.to_builtins(item, str_keys=True, enc_hook=_convert)))


def _without_surrogates(value: Any) -> Any:
    """Join surrogate pairs, and replace lone surrogates: UTF-8 has none."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_surrogates(each) for each in value]
    return value


def _convert(value: Any) -> Any:
    if isinstance(value, Mapping):  # Scrapy's items and our own are mappings
        return dict(value)
    if isinstance(value, (Sequence, AbstractSet)):
        return list(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    from itemadapter import ItemAdapter  # slow to import: it loads every installed item library, even Scrapy

    if ItemAdapter.is_item(value):
        return ItemAdapter(value).asdict()
    raise TypeError


_ENCODER = msgspec.json.Encoder(enc_hook=_convert)


def _error_text(item: Any) -> str:
    path, value = _unencodable_part(item, "", 0)
    where = f"{path}: " if path else ""
    kind = type(item).__qualname__
    if isinstance(value, Mapping):
        return f"{where}cannot be written; the keys of a dict must be text or numbers ({kind})"
    what = f"a {type(value).__qualname__!r} cannot be written"
    return f"{where}{what}; only text, numbers, dates, bytes, lists, dicts and items can ({kind})"


def _unencodable_part(value: Any, path: str, depth: int) -> tuple[str, Any]:
    """Return the innermost value that cannot be encoded, and its path."""
    for name, part in _parts(value) if depth < SEARCH_DEPTH_MAX else ():
        try:
            _encode_with_surrogates(part)
        except Exception:  # noqa: BLE001  whatever its class, this part cannot be encoded
            return _unencodable_part(part, f"{path}{name}" if path else name.removeprefix("."), depth + 1)
    return path, value


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((f".{key}", each) for key, each in value.items())
    elif isinstance(value, (Sequence, AbstractSet)) and not isinstance(value, (str, bytes)):
        yield from ((f"[{number}]", each) for number, each in enumerate(value))
    elif isinstance(value, msgspec.Struct):
        yield from ((f".{name}", getattr(value, name)) for name in value.__struct_fields__)
    elif is_dataclass(value):
        yield from ((f".{field.name}", getattr(value, field.name, None)) for field in fields(value))
    else:
        from itemadapter import ItemAdapter

        if ItemAdapter.is_item(value):
            yield from ((f".{name}", each) for name, each in ItemAdapter(value).items())
