"""Reads the bodies and parameters of API requests, within limits. Invalid values raise `HTTPException` (400)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from lycosa.proxies.api.schemas import AVOID_MAX, TAGS_MAX, TARGET_MAX, WORD_MAX, RequestBody
from lycosa.proxies.core.pool.target import ProxyRequest

BODY_MAX = 8_000_000
"""Maximum bytes of a JSON body."""

LIST_MAX = 64_000_000
"""Maximum bytes of a list of proxies."""

BODY_TIMEOUT_S = 60.0
JSON = "application/json"

B = TypeVar("B", bound=RequestBody)
T = TypeVar("T")


def json_response(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response."""
    return Response(msgspec.json.encode(value), status, headers, JSON)


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Return the body. Raises `HTTPException` if it is too large (413) or too slow (408)."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):  # a slow client occupies a connection and memory
            async for part in request.stream():
                body += part
                if len(body) > max_bytes:
                    raise HTTPException(413, f"the body is larger than {max_bytes:,} bytes")
    except TimeoutError:
        raise HTTPException(408, f"the body was not received within {BODY_TIMEOUT_S:g} s") from None
    return bytes(body)


async def decode_body(request: Request, kind: type[B]) -> B:
    """Decode the body. An empty body counts as {}."""
    body = await read_body(request, BODY_MAX)
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise HTTPException(400, _one_line(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HTTPException(400, f"the body is not JSON: {_one_line(error)}") from None


def text_param(request: Request, name: str, *, max_length: int = WORD_MAX, required: bool = False) -> str:
    """Return a parameter; "" if missing."""
    text = request.query_params.get(name, "")
    if len(text) > max_length:
        raise HTTPException(400, f"{name} has {len(text):,} characters: write at most {max_length}")
    if required and not text:
        raise HTTPException(400, f"{name} is missing: write ?{name}=...")
    return text


def target_param(request: Request, *, required: bool = False) -> str:
    """Return the parameter `target`; "" if missing."""
    return text_param(request, "target", max_length=TARGET_MAX, required=required)


def int_param(request: Request, name: str, default: int, low: int, high: int) -> int:
    """Return a number from `low` to `high`."""
    text = request.query_params.get(name, str(default))
    # int() also accepts "1_000", " 1" and non-ASCII digits, and is slow for long texts.
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 12 else -1
    if not low <= number <= high:
        raise HTTPException(400, f"{name} {text[:20]!r}: write a whole number from {low:,} to {high:,}")
    return number


def choice_param(request: Request, name: str, choices: Collection[str], default: str = "") -> str:
    """Return a parameter that must be one of `choices`."""
    text = text_param(request, name) or default
    if text and text not in choices:
        raise HTTPException(400, f"{name} {text[:20]!r}: write one of {', '.join(choices)}")
    return text


def tags_param(request: Request) -> dict[str, str]:
    """Return the parameters `tag=NAME=VALUE`."""
    tags = {}
    texts = [text for text in request.query_params.getlist("tag") if text.strip()]
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or len(text) > 2 * WORD_MAX:
            raise HTTPException(400, f"tag {text[:40]!r}: write tag=NAME=VALUE")
        tags[name.strip()] = value.strip()
    if len(texts) > TAGS_MAX:
        raise HTTPException(400, f"{len(texts)} tags: write at most {TAGS_MAX}")
    return tags


def proxy_request_params(request: Request) -> ProxyRequest:
    """Return the request that `tag`, `session` and `avoid` describe."""
    avoid = request.query_params.getlist("avoid")
    if len(avoid) > AVOID_MAX:
        raise HTTPException(400, f"avoid is given {len(avoid):,} times: write it at most {AVOID_MAX:,} times")
    return ProxyRequest(tags_param(request), text_param(request, "session"), frozenset(avoid))


async def run_while_connected(request: Request, work: Coroutine[Any, Any, T]) -> tuple[T | None, bool]:
    """Run `work`, and cancel it if the client disconnects. Return the result, and whether the client has disconnected.

    The client may disconnect just as the work ends: then there is a result that nobody receives.
    """
    working, leaving = asyncio.create_task(work), asyncio.create_task(_wait_for_disconnect(request))
    try:
        await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
        left = leaving.done()
        if left:
            working.cancel()
            await asyncio.wait([working])  # `work` may have ended before the cancellation
        return (None if working.cancelled() else working.result()), left
    finally:
        working.cancel()
        leaving.cancel()


async def _wait_for_disconnect(request: Request) -> None:
    with suppress(ClientDisconnect):
        while (await request.receive())["type"] != "http.disconnect":
            pass


def _one_line(error: Exception) -> str:
    """Return a message of msgspec in our style: one line, lower case."""
    text = " ".join(str(error).split())
    return (text if text[1:2].isupper() else text[:1].lower() + text[1:])[:300]
