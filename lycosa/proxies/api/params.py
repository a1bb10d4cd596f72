"""What a request to the API holds, with a bound for everything: its body, its parameters, its patience."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from lycosa.proxies.api.schemas import AVOID_MAX, TAGS_MAX, TARGET_MAX, WORD_MAX, RequestBody
from lycosa.proxies.core.pool.target import ProxyRequest
from lycosa.proxies.core.proxy import PORTS

BODY_MAX = 8_000_000
"""Bytes of a question, or of what is given back."""

LIST_MAX = 64_000_000
"""Bytes of a list of proxies."""

BODY_TIMEOUT_S = 60.0
"""A body has to be here after so long."""

A = TypeVar("A", bound=RequestBody)
T = TypeVar("T")


async def read_body(request: Request, most: int) -> bytes:
    """Return the body. Raises `HTTPException`."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for part in request.stream():
                body += part
                if len(body) > most:
                    raise HTTPException(413, f"a body of more than {most:,} bytes")
    except TimeoutError:
        raise HTTPException(408, f"the body did not come within {BODY_TIMEOUT_S:g} s") from None
    return bytes(body)


async def decode_body(request: Request, kind: type[A]) -> A:
    """Return what the body says. Raises `HTTPException`."""
    body = await read_body(request, BODY_MAX)
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.ValidationError as wrong:
        raise HTTPException(400, _one_line(wrong)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise HTTPException(400, f"the body is not JSON: {_one_line(wrong)}") from None


def text_param(request: Request, name: str, *, most: int = WORD_MAX, needed: bool = False) -> str:
    """Return a parameter as text, "" when it is not there."""
    text = request.query_params.get(name, "")
    if len(text) > most:
        raise HTTPException(400, f"{name} has {len(text):,} characters: write at most {most}")
    if needed and not text:
        raise HTTPException(400, f"{name} is missing: write ?{name}=...")
    return text


def target_param(request: Request, *, needed: bool = False) -> str:
    """Return the parameter `target`."""
    return text_param(request, "target", most=TARGET_MAX, needed=needed)


def int_param(request: Request, name: str, default: int, least: int, most: int) -> int:
    """Return a parameter as a number."""
    text = request.query_params.get(name, str(default))
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 12 else -1
    if not least <= number <= most:
        raise HTTPException(400, f"{name} {text[:20]!r}: write a whole number from {least:,} to {most:,}")
    return number


def scheme_param(request: Request) -> str:
    """Return which kind of proxy is meant where a list does not say."""
    scheme = text_param(request, "scheme") or "http"
    if scheme not in PORTS:
        raise HTTPException(400, f"scheme {scheme[:20]!r}: write one of {', '.join(PORTS)}")
    return scheme


def tags_param(request: Request) -> dict[str, str]:
    """Return the parameters `tag=NAME=VALUE`."""
    tags = {}
    given = [each for each in request.query_params.getlist("tag") if each.strip()]
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name or len(each) > 2 * WORD_MAX:
            raise HTTPException(400, f"tag {each[:40]!r}: write tag=NAME=VALUE")
        tags[name.strip()] = value.strip()
    if len(given) > TAGS_MAX:
        raise HTTPException(400, f"{len(given)} tags: write at most {TAGS_MAX}")
    return tags


def proxy_request_params(request: Request) -> ProxyRequest:
    """Return the wish that parameters tell: `tag`, `session`, `avoid`."""
    avoid = request.query_params.getlist("avoid")
    if len(avoid) > AVOID_MAX:
        raise HTTPException(400, f"avoid {len(avoid):,} times: write at most {AVOID_MAX:,}")
    return ProxyRequest(tags_param(request), text_param(request, "session"), frozenset(avoid))


async def run_while_connected(request: Request, answer: Coroutine[Any, Any, T]) -> tuple[T | None, bool]:
    """Wait for an answer as long as who asked is there. Return it, if there is one, and whether he has left."""
    working, leaving = asyncio.create_task(answer), asyncio.create_task(_left(request))
    try:
        await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
        left = leaving.done()
        if left:
            working.cancel()
            await asyncio.wait([working])
        return (None if working.cancelled() else working.result()), left
    finally:
        working.cancel()
        leaving.cancel()


async def _left(request: Request) -> None:
    with suppress(ClientDisconnect):
        while (await request.receive())["type"] != "http.disconnect":
            pass


def _one_line(wrong: Exception) -> str:
    text = " ".join(str(wrong).split())
    return (text if text[1:2].isupper() else text[:1].lower() + text[1:])[:300]
