"""What the gateway answers itself, to requests that are not for a proxy: reports of clients."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from lycosa.core.errors import Forbidden, LycosaError
from lycosa.core.http1.head import Request
from lycosa.core.proxies.reports import read_report
from lycosa.gateway.answers import status_of
from lycosa.gateway.parts import Parts

REPORT = b"/v1/report"
JSON = "application/json"
WHAT = "this is a proxy: send requests through it, and reports to POST /v1/report\n"


class Said(NamedTuple):
    """An answer."""

    status: int
    text: str
    kind: str = "text/plain; charset=utf-8"


async def respond(parts: Parts, head: Request, body: bytes) -> Said:
    """Return the answer to a request."""
    try:
        if head.target != REPORT:
            return Said(404, WHAT)
        if head.method != b"POST":
            return Said(405, "POST only\n")
        return await _reported(parts, head, body)
    except LycosaError as error:
        return Said(status_of(error), _json(error=str(error)), JSON)


async def _reported(parts: Parts, head: Request, body: bytes) -> Said:
    """Take a report. JSON only: a page in a browser of this machine could send a form, but no JSON without asking."""
    kinds = [value.partition(b";")[0].strip().lower() for value in head.values(b"content-type")]
    if kinds != [JSON.encode()]:
        return Said(415, _json(error=f"send {JSON}"), JSON)
    try:
        asked = parts.accounts.basic(head.values(b"authorization") or head.values(b"proxy-authorization"))
    except Forbidden as error:
        return Said(401, _json(error=str(error)), JSON)
    return Said(200, _json(result=await parts.holds.report(asked, read_report(body))), JSON)


def _json(**values: str) -> str:
    return msgspec.json.encode(values).decode() + "\n"
