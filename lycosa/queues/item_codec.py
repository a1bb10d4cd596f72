"""Convert items to bytes and back.

Without a type, items become msgpack, and `put` refuses an item that this would change. Tuples, sets, datetimes and ints
of more than 64 bits become extensions, as do dicts with such keys. With a type (a dataclass, a msgspec Struct, ...),
msgspec writes the fields, and checks them when the item is read. Pickle accepts nearly anything, but loading a pickle
runs the code that it names.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import datetime
from io import BytesIO
from typing import Any, NamedTuple

import msgspec

from lycosa.core.errors import UsageError

ITEM_MAX_BYTES = 256 << 20
INT_MIN, INT_MAX = -(1 << 63), (1 << 64) - 1
TUPLE, SET, DICT, DATETIME, BIG_INT = 1, 2, 3, 4, 5
OPT_IN = (
    "give the queue type=... for a dataclass or Struct, "
    "or serializer='pickle' if you trust everyone who can write to it"
)

MOVED = {
    **dict.fromkeys(
        (
            "lycosa.app.crawl.run_crawl",
            "lycosa.app.live",
            "lycosa.core.model.PageItem",
            "lycosa.engine.failure",
            "lycosa.engine.forms",
            "lycosa.engine.items",
            "lycosa.engine.jsonrequest",
            "lycosa.engine.loader",
            "lycosa.engine.media.files",
            "lycosa.engine.media.images.ImagesPipeline",
            "lycosa.engine.response",
            "lycosa.engine.spider",
            "lycosa.engine.spiders.crawlspider",
            "lycosa.engine.spiders.feeds",
            "lycosa.engine.spiders.sitemap",
            "lycosa.engine.stats",
            "lycosa.engine.statscollector",
        ),
        "lycosa",
    ),
    "lycosa.core.curl": "lycosa.http.core.curl_command",
    "lycosa.core.formdata": "lycosa.html.forms",
    "lycosa.core.model": "lycosa.frontier.core.model",
    "lycosa.core.model.Kind": "lycosa.frontier.core.model RecordKind",
    "lycosa.core.model.Response": "lycosa.http.core.model HttpResponse",
    "lycosa.core.model.Timings": "lycosa.http.core.model",
    "lycosa.core.model.Validators": "lycosa.http.core.model",
    "lycosa.core.proxies.outcome": "lycosa.proxies.core.outcomes.outcome",
    "lycosa.core.proxies.outcome.Rule": "lycosa.proxies.core.outcomes.outcome OutcomeRule",
    "lycosa.core.proxies.proxy": "lycosa.proxies.core.proxy",
    "lycosa.core.request": "lycosa.http.core.request",
    "lycosa.frontier.core.model.Kind": "lycosa.frontier.core.model RecordKind",
    "lycosa.http.core.model.Response": "lycosa.http.core.model HttpResponse",
    "lycosa.crawl.spiders.link_extractor._InDocument": "lycosa.crawl.spiders.link_extractor _XPathSearch",
    "lycosa.crawl.spiders.link_extractor._InTree": "lycosa.crawl.spiders.link_extractor _LexborSearch",
    "lycosa.crawl.spiders.link_extractor._Names": "lycosa.crawl.spiders.link_extractor _NameFilter",
    "lycosa.engine.linkextractor": "lycosa.crawl.spiders.link_extractor",
    "lycosa.engine.linkextractor._InDocument": "lycosa.crawl.spiders.link_extractor _XPathSearch",
    "lycosa.engine.linkextractor._InTree": "lycosa.crawl.spiders.link_extractor _LexborSearch",
    "lycosa.engine.linkextractor._Names": "lycosa.crawl.spiders.link_extractor _NameFilter",
    "lycosa.engine.media.images": "lycosa.crawl.items.media.images",
    "lycosa.engine.media.store": "lycosa.crawl.items.media.store",
}
"""Old modules and names in stored pickles -> where they are now: "module", or "module new_name"."""

Ext = msgspec.msgpack.Ext
encode = msgspec.msgpack.Encoder().encode


class CorruptItem(Exception):
    """Stored bytes cannot be decoded into an item."""


class ItemCodec(NamedTuple):
    """`name` is stored with the queue. `pack` raises `TypeError`, `unpack` raises `CorruptItem`."""

    name: str
    pack: Callable[[Any], bytes]
    unpack: Callable[[bytes], Any]


def item_codec(serializer: str, type_: Any = None) -> ItemCodec:
    """Raise `UsageError` for an unknown serializer, or for pickle with a type."""
    if serializer == "pickle" and type_ is None:
        return ItemCodec("pickle", _checked_pack(pickle.dumps), _checked_unpack(_unpickle))
    if serializer != "msgpack":
        raise UsageError(f"serializer={serializer!r}: write 'msgpack', or 'pickle' without a type=")
    if type_ is None:
        return ItemCodec("msgpack", _checked_pack(lambda item: encode(_plain(item))), _checked_unpack(_decode))
    return ItemCodec(
        "msgpack with type=", _checked_pack(encode), _checked_unpack(msgspec.msgpack.Decoder(type_).decode)
    )


def _checked_pack(pack: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    def checked(item: Any) -> bytes:
        try:
            packed = pack(item)
        except RecursionError as error:
            raise TypeError("a queue cannot store an item that is nested too deeply or contains itself") from error
        except (TypeError, ValueError, OverflowError, AttributeError, pickle.PicklingError) as error:
            raise TypeError(f"a queue cannot store {type(item).__qualname__} ({error}): {OPT_IN}") from error
        if len(packed) > ITEM_MAX_BYTES:
            raise TypeError(f"a queue cannot store an item of {len(packed)} bytes: the maximum is {ITEM_MAX_BYTES}")
        return packed

    return checked


def _checked_unpack(unpack: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def checked(packed: bytes) -> Any:
        try:
            return unpack(packed)
        except Exception as error:  # a pickle may raise anything
            raise CorruptItem(f"{type(error).__name__}: {error}") from error

    return checked


class _Unpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        home = MOVED.get(f"{module_name}.{global_name}") or MOVED.get(module_name, module_name)
        module, _, renamed = home.partition(" ")
        return super().find_class(module, renamed or global_name)


def _unpickle(packed: bytes) -> Any:
    return _Unpickler(BytesIO(packed)).load()


def _plain(item: Any) -> Any:
    convert = _CONVERTERS.get(type(item))
    if convert is None:
        raise TypeError(f"msgpack cannot encode the type {type(item).__module__}.{type(item).__qualname__}")
    return convert(item)


def _itself(item: Any) -> Any:
    return item


def _plain_list(item: Any) -> list[Any]:
    return [_plain(each) for each in item]


def _plain_dict(item: dict[Any, Any]) -> Any:
    pairs = [(_plain(key), _plain(value)) for key, value in item.items()]
    if any(type(key) is Ext for key, _ in pairs):
        return Ext(DICT, encode(pairs))
    return dict(pairs)


def _plain_int(item: int) -> Any:
    if INT_MIN <= item <= INT_MAX:
        return item
    return Ext(BIG_INT, item.to_bytes(item.bit_length() // 8 + 1, "big", signed=True))


_CONVERTERS: dict[type, Callable[[Any], Any]] = {
    **dict.fromkeys((type(None), bool, float, str, bytes), _itself),
    int: _plain_int,
    list: _plain_list,
    dict: _plain_dict,
    tuple: lambda item: Ext(TUPLE, encode(_plain_list(item))),
    set: lambda item: Ext(SET, encode(_plain_list(item))),
    datetime: lambda item: Ext(DATETIME, item.isoformat().encode()),
}


_EXTENSIONS: dict[int, Callable[[memoryview], Any]] = {
    TUPLE: lambda data: tuple(_decode(data)),
    SET: lambda data: set(_decode(data)),
    DICT: lambda data: dict(_decode(data)),
    DATETIME: lambda data: datetime.fromisoformat(str(data, "ascii")),
    BIG_INT: lambda data: int.from_bytes(data, "big", signed=True),
}
_decode: Callable[[bytes | memoryview], Any] = msgspec.msgpack.Decoder(
    ext_hook=lambda code, data: _EXTENSIONS[code](data)
).decode
