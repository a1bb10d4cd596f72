"""The gateway's own endpoints: clients report outcomes of their leases, and read why proxies were chosen."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qs

import msgspec

from lycosa.core.errors import BadMessage, Forbidden, LycosaError
from lycosa.http.core.destination import parse_authority
from lycosa.http.core.http1.head import RequestHead
from lycosa.proxies.core.gateway.username import GatewayUser
from lycosa.proxies.core.outcomes.reports import read_report
from lycosa.proxies.gateway.responses import TEXT, status_of
from lycosa.proxies.gateway.routing import GatewayContext

REPORT, CHOICES = b"/v1/report", b"/v1/choices"
METHODS = {REPORT: b"POST", CHOICES: b"GET"}
JSON = "application/json"
HELP = (
    "this is a proxy: send requests through it; POST /v1/report reports an outcome, "
    "GET /v1/choices?site=SITE shows why proxies were chosen\n"
)


class EndpointResponse(NamedTuple):
    """The response of an endpoint."""

    status: int
    text: str
    content_type: str = TEXT


async def respond(context: GatewayContext, head: RequestHead, body: bytes) -> EndpointResponse:
    """Return the response to a request."""
    path, _, query = head.target.partition(b"?")
    if path not in METHODS:
        return EndpointResponse(404, HELP)
    if head.method != METHODS[path]:
        return EndpointResponse(405, f"{METHODS[path].decode()} only\n")
    try:
        user = context.accounts.log_in_basic(head.values(b"authorization") or head.values(b"proxy-authorization"))
    except Forbidden as error:
        return _json(401, error=str(error))
    try:
        return await _report(context, user, head, body) if path == REPORT else _choices(context, user, head, query)
    except LycosaError as error:
        return _json(status_of(error), error=str(error))


async def _report(context: GatewayContext, user: GatewayUser, head: RequestHead, body: bytes) -> EndpointResponse:
    # Forms are refused, because any page in a browser on this machine can post one here. To post JSON, a page of
    # another site would need our permission (CORS).
    types = [value.partition(b";")[0].strip().lower() for value in head.values(b"content-type")]
    if types != [JSON.encode()]:
        raise Forbidden(f"send {JSON}", 415)
    return _json(200, result=await context.leases.report(user, read_report(body)))


def _choices(context: GatewayContext, user: GatewayUser, head: RequestHead, query: bytes) -> EndpointResponse:
    """Return the last choices of proxies for a site, with the reason for each choice.

    These are the choices for the account, or for all clients if the gateway has no accounts.
    """
    if not context.accounts and not _is_local(head):
        raise Forbidden("use the address of this machine, or localhost, in the URL")
    site = parse_qs(query.decode("latin-1")).get("site", [""])[0]
    if not site:
        raise BadMessage("no site: write /v1/choices?site=SITE")
    choices = [
        {"at": each.at, "proxy": each.proxy, "why": each.why(), "result": each.result}
        for each in context.leases.choices.of(site.lower(), user.account)
    ]
    return _json(200, choices=choices)


def _is_local(head: RequestHead) -> bool:
    """Return whether the Host is an address or localhost. Other names may be hostile (DNS rebinding)."""
    to = parse_authority(b"".join(head.values(b"host")), 80)
    return to.is_address or to.host == "localhost"


def _json(status: int, **values: object) -> EndpointResponse:
    return EndpointResponse(status, msgspec.json.encode(values).decode() + "\n", JSON)
