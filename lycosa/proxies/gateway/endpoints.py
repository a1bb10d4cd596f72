"""What the gateway answers itself, to requests that are not for a proxy: reports of clients, and why they got which."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qs

import msgspec

from lycosa.core.errors import Forbidden, LycosaError
from lycosa.http.core.destination import parse_authority
from lycosa.http.core.http1.head import RequestHead
from lycosa.proxies.core.gateway.username import GatewayUser
from lycosa.proxies.core.outcomes.reports import read_report
from lycosa.proxies.gateway.responses import status_of
from lycosa.proxies.gateway.routing import Parts

REPORT, CHOICES = b"/v1/report", b"/v1/choices"
JSON = "application/json"
WHAT = "this is a proxy: send requests through it, and reports to POST /v1/report; GET /v1/choices?site=SITE says why\n"


class EndpointResponse(NamedTuple):
    """An answer."""

    status: int
    text: str
    kind: str = "text/plain; charset=utf-8"


async def respond(parts: Parts, head: RequestHead, body: bytes) -> EndpointResponse:
    """Return the answer to a request."""
    try:
        path, _, query = head.target.partition(b"?")
        if path not in (REPORT, CHOICES):
            return EndpointResponse(404, WHAT)
        method = b"POST" if path == REPORT else b"GET"
        if head.method != method:
            return EndpointResponse(405, f"{method.decode()} only\n")
        return await _reported(parts, head, body) if path == REPORT else _chosen(parts, head, query)
    except LycosaError as error:
        return EndpointResponse(status_of(error), _json(error=str(error)), JSON)


async def _reported(parts: Parts, head: RequestHead, body: bytes) -> EndpointResponse:
    """Take a report. JSON only: a page in a browser of this machine could send a form, but no JSON without asking."""
    kinds = [value.partition(b";")[0].strip().lower() for value in head.values(b"content-type")]
    if kinds != [JSON.encode()]:
        return EndpointResponse(415, _json(error=f"send {JSON}"), JSON)
    try:
        asked = _who(parts, head)
    except Forbidden as error:
        return EndpointResponse(401, _json(error=str(error)), JSON)
    return EndpointResponse(200, _json(result=await parts.holds.report(asked, read_report(body))), JSON)


def _chosen(parts: Parts, head: RequestHead, query: bytes) -> EndpointResponse:
    """Tell which proxies were lent last for a site, and why: to an account its own, without accounts all of them."""
    try:
        asked = _who(parts, head)
    except Forbidden as error:
        return EndpointResponse(401, _json(error=str(error)), JSON)
    if not parts.accounts and not _by_address(head):
        return EndpointResponse(403, _json(error="ask by the address of this machine, or as localhost"), JSON)
    site = parse_qs(query.decode("latin-1")).get("site", [""])[0]
    if not site:
        return EndpointResponse(400, _json(error="which site? Write /v1/choices?site=SITE"), JSON)
    told = [
        {"at": each.at, "proxy": each.proxy, "why": each.why(), "came": each.result}
        for each in parts.holds.choices.of(site.lower(), asked.account)
    ]
    return EndpointResponse(200, _json(choices=told), JSON)


def _by_address(head: RequestHead) -> bool:
    """Whether no name was used that leads here for a page of another site (DNS rebinding)."""
    to = parse_authority(b"".join(head.values(b"host")), 80)
    return to.is_address or to.host == "localhost"


def _who(parts: Parts, head: RequestHead) -> GatewayUser:
    return parts.accounts.log_in_basic(head.values(b"authorization") or head.values(b"proxy-authorization"))


def _json(**values: object) -> str:
    return msgspec.json.encode(values).decode() + "\n"
