"""What a request shares with the one that is made of it."""

from __future__ import annotations

from typing import Any

import pytest

from lycosa.http.core.request import Request


class Wide(Request):
    """A class of a user, with attributes of its own."""


@pytest.mark.parametrize("kind", [Request, Wide])
@pytest.mark.parametrize("meta", [None, {"depth": 2}, {"proxy": "http://b/", "depth": 2}])
def test_the_request_beside_another_has_one_more_key_in_its_meta_and_shares_the_rest(
    kind: type[Request], meta: dict[str, Any] | None
) -> None:
    request = kind(
        "http://a.example/", method="POST", body="x", headers={"X-Y": "z"}, cookies={"a": "b"}, meta=meta, flags=["f"]
    )
    request.record = object()
    beside = request.beside("proxy", "http://c/")
    assert beside.meta == {**(meta or {}), "proxy": "http://c/"}
    assert request.meta == (meta or {})
    assert beside.replace(meta=meta) == request
    assert beside.headers is request.headers
    assert (beside.record, beside.cookies, beside.flags) == (request.record, request.cookies, request.flags)
