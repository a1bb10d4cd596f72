"""Builds the request that replaces another one after a redirect or meta refresh."""

from __future__ import annotations

from lycosa.core.url import host_key
from lycosa.http.core.referrer import referrer
from lycosa.http.core.request import HeaderMap, Request

SECRETS = frozenset({"authorization", "cookie"})
"""Header fields that other hosts must not receive. Proxy-Authorization is kept: only the proxy gets it."""

REDIRECT_URLS = "redirect_urls"
"""The key of `meta` for the URLs of the redirects that led to this request, oldest first (as in Scrapy)."""

REDIRECT_REASONS = "redirect_reasons"
"""The key of `meta` for the statuses of these redirects ("meta refresh" for a meta refresh)."""

REPLACEMENTS_MAX = 20


def replacement_count(request: Request) -> int:
    """Return how many replacements led to this request."""
    return request.record.redirects if request.record is not None else len(request.get_meta(REDIRECT_URLS, ()))


def redirect_request(request: Request, target: str, status: int | str) -> Request:
    """Return the request for the target (a canonical URL) of a redirect, with the same callback.

    The method changes to GET where RFC 9110 §15.4 says so. `status` is "meta refresh" for a meta refresh. A target on
    another host gets no credentials or cookies, and only the origin of a Referer: a redirect must not reveal what the
    referrer policy hid.
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
    """Return the header without the fields that the new request must not have.

    `elsewhere` is the target if it is on another host, else "": such a host gets no secrets. `body_gone`: the fields
    that describe the body are dropped with it.
    """
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
