"""Builds the request that replaces another one: after a redirect or meta refresh, or from a middleware."""

from __future__ import annotations

from lycosa.core.url import host_key
from lycosa.http.core.referrer import referrer
from lycosa.http.core.request import HeaderMap, Request

SECRETS = frozenset({"authorization", "cookie"})
"""Header fields that another host must not receive. Proxy-Authorization only goes to the proxy, which stays."""

REDIRECT_URLS = "redirect_urls"
"""The key of `meta` for the URLs that were redirected to this one, oldest first (as in Scrapy)."""

REDIRECT_REASONS = "redirect_reasons"
"""The key of `meta` for the statuses of these redirects."""

REPLACEMENTS_MAX = 20
"""How many times in a row middlewares may replace a request."""


def replacement_count(request: Request) -> int:
    """Return how many requests this one has replaced, one after the other."""
    return request.record.redirects if request.record is not None else len(request.get_meta(REDIRECT_URLS, ()))


def redirect_request(request: Request, target: str, status: int | str) -> Request:
    """Return the request for the target of a redirect: same callback, GET where RFC 9110 §15.4 says so.

    `target` is canonical; `status` is "meta refresh" for one of those. A target on another host gets no credentials or
    cookies, and only the origin of a Referer: a redirect must not reveal what the referrer policy withheld.
    """
    keep = request.method in {"GET", "HEAD"} or (status in {301, 302} and request.method != "POST")
    keep = keep or status in {307, 308}
    elsewhere = host_key(target) != host_key(request.url)
    meta = dict(request.meta)
    meta[REDIRECT_URLS] = [*meta.get(REDIRECT_URLS, ()), request.url]
    meta[REDIRECT_REASONS] = [*meta.get(REDIRECT_REASONS, ()), status]
    return request.replace(
        url=target,
        method=request.method if keep else "GET",
        body=request.body if keep else b"",
        headers=_headers_after(request, target if elsewhere else "", body_gone=not keep),
        cookies=None if elsewhere else request.cookies,
        meta=meta,
        params=None,
        not_before=0.0,
    )


def _headers_after(request: Request, elsewhere: str, *, body_gone: bool) -> HeaderMap:
    """Drop what another host, that of `elsewhere`, must not receive, and with `body_gone` what described the body."""
    headers = HeaderMap(
        {
            name: value
            for name, value in request.headers.items()
            if not (elsewhere and name.lower() in SECRETS) and not (body_gone and name.lower().startswith("content-"))
        }
    )
    if elsewhere and "Referer" in headers:
        headers["Referer"] = referrer("strict-origin-when-cross-origin", headers["Referer"], elsewhere) or None
    return headers
