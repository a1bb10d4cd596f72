"""`Request` and its header fields. Names and meanings follow Scrapy where the concept is the same.

A request may be changed until it is stored as a `UrlRecord`. Dictionaries and header fields are created on first use,
since most requests are just a URL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, Self

from lycosa.core.public import public

Callback = Callable[..., Any] | str | None
HeadersLike = Mapping[str, Any] | Iterable[tuple[str, Any]]
CookiesLike = Mapping[str, str] | list[dict[str, Any]]

SHORTHANDS = {
    "timeout": "download_timeout",
    "proxy": "proxy",
    "retries": "max_retry_times",
    "delay": "download_delay",
    "cookiejar": "cookiejar",
}
"""Arguments of `Request` that are stored in `meta`, and their keys there."""


class HeaderMap(MutableMapping[str, str]):
    """Header fields to send. Names are case-insensitive and keep the case in which they were last written.

    Values become text: bytes are decoded as Latin-1, numbers formatted, lists joined with commas. None removes a field.
    """

    __slots__ = ("_fields",)

    def __init__(self, fields: HeadersLike = ()) -> None:
        self._fields: dict[str, tuple[str, str]] = {}
        for name, value in fields.items() if isinstance(fields, Mapping) else fields:
            if type(name) is str and type(value) is str:
                self._fields[name.lower()] = (name, value)
            else:
                self[name] = value

    def __getitem__(self, name: str) -> str:
        return self._fields[_name(name)][1]

    def __setitem__(self, name: str, value: Any) -> None:
        written = _written(name)
        if value is None:
            self._fields.pop(written.lower(), None)
        else:
            self._fields[written.lower()] = (written, _value(value))

    def __delitem__(self, name: str) -> None:
        del self._fields[_name(name)]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, (str, bytes)) and _name(name) in self._fields

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._fields.values())

    def __len__(self) -> int:
        return len(self._fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and self._compared() == HeaderMap(other)._compared()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(dict(self._fields.values()))

    def to_dict(self) -> dict[str, str]:
        return dict(self._fields.values())

    def lone(self, name: str) -> str:
        """Return the value of the field `name` (in lower case) if it is the only field, else ""."""
        return self._fields[name][1] if len(self._fields) == 1 and name in self._fields else ""

    def _compared(self) -> dict[str, str]:
        return {name: value for name, (_, value) in self._fields.items()}


@public
class Request:
    """A request of a spider.

    `callback` and `errback` are methods of the spider (or their names); no callback means `parse`. `params` are added
    to the query of `url`. `not_before` is in unix seconds. `meta` and `cb_kwargs` hold plain data (numbers, strings,
    bytes, lists, dicts), since they are stored. `timeout` and `delay` are in seconds. `record` is the frontier's record
    of a leased request, else None.
    """

    __slots__ = (
        "__weakref__", "_cb_kwargs", "_headers", "_meta", "body", "callback", "cookies", "dont_filter",
        "encoding", "errback", "flags", "method", "not_before", "params", "priority", "record", "url",
    )  # fmt: skip

    def __init__(
        self,
        url: str,
        callback: Callback = None,
        method: str = "GET",
        headers: HeadersLike | None = None,
        body: bytes | str | None = None,
        cookies: CookiesLike | None = None,
        meta: Mapping[str, Any] | None = None,
        encoding: str = "utf-8",
        priority: int = 0,
        dont_filter: bool = False,
        errback: Callback = None,
        flags: Iterable[str] | None = None,
        cb_kwargs: Mapping[str, Any] | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        not_before: float = 0.0,
        **shorthands: Any,
    ) -> None:
        self.url = url
        self.callback = callback
        self.method = method if method == "GET" else method.upper()
        self.body = body if type(body) is bytes else _body(body, encoding)
        self.cookies = cookies
        self.encoding = encoding
        self.priority = priority
        self.dont_filter = dont_filter
        self.errback = errback
        self.params = params
        self.not_before = not_before
        self.record: Any = None  # a UrlRecord
        self.flags = list(flags) if flags else []
        self._headers = HeaderMap(headers) if headers else None
        self._meta = dict(meta) if meta else None
        self._cb_kwargs = dict(cb_kwargs) if cb_kwargs else None
        if shorthands:
            self._set_shorthands(shorthands)

    @property
    def headers(self) -> HeaderMap:
        if self._headers is None:
            self._headers = HeaderMap()
        return self._headers

    @headers.setter
    def headers(self, fields: HeadersLike) -> None:
        self._headers = HeaderMap(fields)

    @property
    def meta(self) -> dict[str, Any]:
        """User data, and options under the keys listed in `docs/requests.md`."""
        if self._meta is None:
            self._meta = {}
        return self._meta

    @property
    def cb_kwargs(self) -> dict[str, Any]:
        if self._cb_kwargs is None:
            self._cb_kwargs = {}
        return self._cb_kwargs

    @property
    def is_plain(self) -> bool:
        """Whether this is a GET of a URL without headers, body or data. Callback, priority and times do not matter."""
        return self.method == "GET" and not (
            self._headers or self._meta or self._cb_kwargs or self.body or self.cookies or self.flags
        )

    @property
    def has_headers(self) -> bool:
        return bool(self._headers)

    @property
    def has_no_data(self) -> bool:
        return not (self._meta or self._cb_kwargs or self.cookies or self.flags)

    @property
    def has_ascii_headers(self) -> bool:
        return self._headers is None or all(value.isascii() for value in self._headers.values())

    @property
    def lone_referer(self) -> str:
        """The Referer of a GET that sends no other header field and has no meta, body or cookies; else ""."""
        if self._meta or self.body or self.cookies or self.method != "GET" or self._headers is None:
            return ""
        return self._headers.lone("referer")

    def get_meta(self, key: str, default: Any = None) -> Any:
        """Return a value of `meta`, without creating the dict."""
        return default if self._meta is None else self._meta.get(key, default)

    def callback_arguments(self) -> Mapping[str, Any]:
        """Return `cb_kwargs`, without creating the dict."""
        return self._cb_kwargs or {}

    def has_header(self, name: str) -> bool:
        """Does not create the map of headers."""
        return self._headers is not None and name in self._headers

    def replace(self, **changes: Any) -> Self:
        """Return a copy with these arguments changed; `cls` sets the class of the copy."""
        cls = changes.pop("cls", None) or type(self)
        request: Self = cls.__new__(cls)
        Request.__init__(request, **{**self.to_arguments(), **changes})
        request.record = self.record
        return request

    @classmethod
    def from_curl(cls, command: str, *, ignore_unknown_options: bool = False, **overrides: Any) -> Self:
        """Return the request that a curl command sends ("Copy as cURL" in a browser), with `overrides` applied.

        Raises `BadCurl` for an invalid command, and for unknown options unless `ignore_unknown_options`.
        """
        from lycosa.http.core.curl_command import from_curl

        return cls(**{**from_curl(command, ignore_unknown_options=ignore_unknown_options), **overrides})

    def to_curl(self) -> str:
        """Return the curl command for bash. Raises `BadCurl` for a body with NUL bytes."""
        from lycosa.http.core.curl_command import to_curl

        return to_curl(self)

    def copy(self) -> Self:
        return self.replace()

    def to_arguments(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ARGUMENTS}

    def _set_shorthands(self, shorthands: Mapping[str, Any]) -> None:
        for name, value in shorthands.items():
            if name not in SHORTHANDS:
                raise TypeError(f"Request takes no argument {name!r}: put your own data into meta or cb_kwargs")
            if value is not None:
                self.meta[SHORTHANDS[name]] = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Request) and self.to_arguments() == other.to_arguments()

    def __hash__(self) -> int:
        return hash((self.url, self.method, self.body))

    def __repr__(self) -> str:
        return f"<{self.method} {self.url}>"


_CODE = Request.__init__.__code__
ARGUMENTS = _CODE.co_varnames[1 : _CODE.co_argcount + _CODE.co_kwonlyargcount]
"""The arguments of `Request`, without `self` and the shorthands."""


def _name(name: Any) -> str:
    return _written(name).lower()


def _written(name: Any) -> str:
    return name.decode("latin-1") if isinstance(name, bytes) else str(name)


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, Iterable):
        return ", ".join(map(_value, value))
    return str(value)


def _body(body: bytes | str | None, encoding: str) -> bytes:
    if body is None:
        return b""
    return body.encode(encoding) if isinstance(body, str) else bytes(body)
