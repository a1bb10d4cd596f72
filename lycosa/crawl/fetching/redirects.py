"""From a request to the one that is fetched in its place: redirects, and whatever a middleware returns instead."""

from __future__ import annotations

from lycosa.core.url import host_key
from lycosa.http.core.referrer import referrer
from lycosa.http.core.request import HeaderMap, Request

SECRETS = frozenset({"authorization", "cookie"})
"""Header fields that another host must not see. A Proxy-Authorization is told to the proxy alone, which stays."""

REDIRECT_URLS = "redirect_urls"
"""The key of `meta` under which the URLs are kept that were redirected to this one, oldest first (as in Scrapy)."""

REDIRECT_REASONS = "redirect_reasons"
"""The key of `meta` for the statuses of these redirects."""

REPLACEMENTS_MAX = 20
"""Requests one after the other that a middleware may put in the place of one."""


def replacement_count(request: Request) -> int:
    """Return how many requests were replaced to come to this one."""
    return request.record.redirects if request.record is not None else len(request.asked(REDIRECT_URLS, ()))


def redirect_request(request: Request, target: str, status: int | str) -> Request:
    """Return the request for the target of a redirect: same callback, GET where RFC 9110 §15.4 says so.

    The canonical `target` of another host is not told credentials and cookies, and of a Referer from elsewhere only the
    origin: the page that redirects may not tell others what its policy kept from them. `status` is "meta refresh" for
    one.
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
    """Leave out what `elsewhere`, a URL of another host, must not see, and what described a body that is gone."""
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
