"""JsonRequest: a request with a JSON body. The frontier stores it as a plain Request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Self
from warnings import warn

from lycosa.core.public import public
from lycosa.http.core.request import Callback, Request

ACCEPTED = "application/json, text/javascript, */*; q=0.01"


@public
class JsonRequest(Request):
    """A request whose body is `data` as JSON. With `data` the default method is POST. `body` overrides `data`.

    `dumps_kwargs` are arguments of `json.dumps`. Keys are sorted, so equal data give equal requests.
    """

    __slots__ = ("_dumps_kwargs",)

    def __init__(
        self,
        url: str,
        callback: Callback = None,
        method: str | None = None,
        *,
        data: Any = None,
        dumps_kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        body = options.pop("body", None)
        implied = "POST" if data is not None and body is None else "GET"
        super().__init__(url, callback, method or implied, body=_body(body, data, dumps_kwargs), **options)
        self._dumps_kwargs = dumps_kwargs
        self.headers.setdefault("Content-Type", "application/json")
        self.headers.setdefault("Accept", ACCEPTED)

    def replace(self, **changes: Any) -> Self:
        """`data`, encoded with `dumps_kwargs`, replaces the body."""
        data, dumps_kwargs = changes.pop("data", None), changes.pop("dumps_kwargs", self._dumps_kwargs)
        if data is not None:
            changes["body"] = _body(changes.get("body"), data, dumps_kwargs)
        request = super().replace(**changes)
        if isinstance(request, JsonRequest):
            request._dumps_kwargs = dumps_kwargs  # noqa: SLF001  our own class
        return request


def _body(body: bytes | str | None, data: Any, dumps_kwargs: Mapping[str, Any] | None) -> bytes | str | None:
    if data is None:
        return body
    if body is not None:
        warn("a JsonRequest has both body and data: data is ignored", stacklevel=3)
        return body
    return json.dumps(data, **{"sort_keys": True, **(dumps_kwargs or {})})
