"""A libcurl easy handle, reused for many transfers."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pycurl

from lycosa.core.addresses import is_public
from lycosa.core.errors import BadResponse, BadUrl, BodyTooLarge, ConnectionLost, FetchError, StopDownload
from lycosa.core.headers import Headers
from lycosa.core.url import add_params, canonicalize
from lycosa.http.core.codings import decode_body
from lycosa.http.core.model import HttpResponse, Timings
from lycosa.http.core.request import Request
from lycosa.http.curl.errors import HTTP2_STREAM, UNDECODABLE, latency_s
from lycosa.http.curl.guard import AddressGuard, MayConnect, check_url
from lycosa.http.curl.options import (
    PER_REQUEST,
    body_max,
    for_hosts,
    set_bind_address,
    set_proxy,
    timeout_s,
    to_address,
)
from lycosa.http.ports import Accept, Into

ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
BODY_MAX = 16 << 20
CONNECTIONS_MAX = 1024
BUFFER_BYTES = 128 << 10
DNS_CACHE_S = 300
DRAIN_MAX = 64 << 10
"""An unwanted body of at most this many bytes is read and discarded: that is cheaper than a new connection."""

TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
"""Names of methods and header fields (RFC 9110 §5.6.2)."""

TRUNCATED_BODY = frozenset({pycurl.E_PARTIAL_FILE, pycurl.E_RECV_ERROR, pycurl.E_HTTP2, HTTP2_STREAM})
"""libcurl's codes for a connection or HTTP/2 stream that ended in the middle of the body."""

HTTP_VERSIONS = {
    pycurl.CURL_HTTP_VERSION_1_0: "1.0",
    pycurl.CURL_HTTP_VERSION_1_1: "1.1",
    pycurl.CURL_HTTP_VERSION_2_0: "2",
    pycurl.CURL_HTTP_VERSION_3: "3",
}
TIMES = (
    pycurl.NAMELOOKUP_TIME,
    pycurl.CONNECT_TIME,
    pycurl.APPCONNECT_TIME,
    pycurl.STARTTRANSFER_TIME,
    pycurl.TOTAL_TIME,
)


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """The settings of a fetcher.

    timeout_s                  maximum time for a whole transfer
    connect_timeout_s          maximum time for name lookup, connection and TLS handshake together
    max_body_bytes             size limit of a body after decompression
    headers                    sent with every request; Proxy-Authorization only to `proxy`
    proxy                      URL, or "" for none
    connections_per_host_max   0: no limit
    insecure                   accept any certificate
    fail_on_dataloss           treat a truncated body as an error
    may_connect(ip)            whether `public_only` transfers may connect to this address
    pins                       public keys in libcurl's format ("sha256//BASE64;..."); the certificate of a host must
                               have one of these keys, which replaces the usual verification; "" for no pins. The
                               certificates of proxies are verified as usual
    """

    user_agent: str = "Lycosa"
    timeout_s: float = 30.0
    connect_timeout_s: float = 10.0
    max_body_bytes: int = BODY_MAX
    headers: Mapping[str, str] = field(default_factory=dict)
    proxy: str = ""
    connections_max: int = CONNECTIONS_MAX
    connections_per_host_max: int = 0
    insecure: bool = False
    fail_on_dataloss: bool = True
    may_connect: MayConnect = is_public
    pins: str = ""


class Handle:
    """A pooled easy handle and its current transfer."""

    def __init__(self, settings: FetchSettings, bundle: str) -> None:
        self.curl = pycurl.Curl()
        self._settings = settings
        self._bundle = bundle
        self._guard = AddressGuard(self.curl, settings.may_connect)
        self._default_headers = for_hosts(settings.headers)
        self._default_lines = _header_lines(self._default_headers)
        self._has_default_referer = any(name.lower() == "referer" for name in self._default_headers)
        self._accept: Accept | None = None
        self._into: Into | None = None
        self._cut = self._headers_set = self._referer_set = False
        self._address = ""
        self._head: list[bytes] = []
        self._chunks: list[bytes] = []
        self._configure()
        self.clear()

    def prepare(
        self,
        request: Request,
        *,
        accept: Accept | None = None,
        max_body: int | None = None,
        cut: bool = False,
        address: str = "",
        public_only: bool = False,
        into: Into | None = None,
        proxy: str | None = None,
        undecoded: bool = False,
    ) -> None:
        """Set the options of a transfer (`FetchOptions`). Raises `FetchError` for a request that cannot be sent.

        With `undecoded`, the body is decompressed by `codings.decode_body`, which is more lenient than libcurl.
        """
        self._accept, self._cut, self._into = accept, cut, into
        self._url = url = request.url
        self._limit = self._settings.max_body_bytes if max_body is None else max_body
        used_proxy = request.get_meta("proxy", self._settings.proxy) if proxy is None else proxy
        overrides_proxy = proxy is not None
        try:
            if self._referer_set and (overrides_proxy or not request.lone_referer):
                self._reset()  # libcurl cannot unset CURLOPT_REFERER
            if request.params or not url.isascii():
                url = canonicalize(add_params(url, request.params))
            self.curl.setopt(pycurl.URL, url)
            if overrides_proxy or not request.is_plain:
                if max_body is None:
                    self._limit = body_max(request.get_meta("download_maxsize"), self._limit)
                self._set_options(request, used_proxy, overrides_proxy=overrides_proxy)
            if undecoded:
                self._undecoded, self._plain = True, False
                self.curl.setopt(pycurl.ACCEPT_ENCODING, "identity")
                self.curl.setopt(pycurl.HTTP_CONTENT_DECODING, 0)
            self.proxied = bool(used_proxy)
            if address or self._address:
                self._connect_to("" if self.proxied else address)
            if public_only or self._guard.is_on:
                self._guard_against_private(url, public_only=public_only)
        except (BadUrl, pycurl.error, UnicodeError, ValueError, TypeError) as error:
            raise FetchError(f"the request cannot be sent: {error}", retry=False) from error

    def clear(self) -> None:
        """Forget the transfer, and restore the default options."""
        self._accept = self._into = None
        self._head.clear()
        self._chunks = []
        self._size = 0
        self._received: tuple[int, Headers] | None = None
        self._error: Exception | None = None
        self._skipped = False
        self._was_truncated = False
        self._undecoded = False
        if not self._plain:
            self._reset()
        elif self._headers_set:
            self._headers_set = False
            self.curl.setopt(pycurl.HTTPHEADER, self._default_lines)

    def _reset(self) -> None:
        self.curl.reset()
        self._guard.forget()
        self._configure()

    def result(self, code: int) -> HttpResponse | Exception | None:
        """Return the response, or our own error that ended the transfer; None if libcurl itself failed with `code`."""
        partial = code in TRUNCATED_BODY and self._accepts_partial and self._head[-1:] == [b"\r\n"] if code else False
        if self._received is None and (partial or not code):
            if not head_is_complete(self._head):  # libcurl accepts a truncated head as complete
                return ConnectionLost("connection lost within the head")
            self._on_head()  # not called yet, because there was no body
        if self._error is not None:
            return self._error
        if code and (reason := self._guard.reason(code)) is not None:
            return reason
        if self._received is None or (code and not (self._skipped or self._was_truncated or partial)):
            return None
        status, headers = self._received
        get = self.curl.getinfo
        body = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)  # usually one chunk: avoids a copy
        if self._undecoded and body:
            try:
                body = self._decoded(body, headers)
            except FetchError as error:
                return error
        return HttpResponse(
            self._url,
            status,
            headers,
            body,
            Timings._make(map(get, TIMES)),
            "" if self.proxied else get(pycurl.PRIMARY_IP),
            HTTP_VERSIONS.get(get(pycurl.INFO_HTTP_VERSION), ""),
            get(pycurl.SIZE_DOWNLOAD_T),
            self._skipped,
            partial,
            latency_s(self.curl) if self.proxied else None,
        )

    def _configure(self) -> None:
        setopt, settings = self.curl.setopt, self._settings
        self._plain = True
        self._headers_set = self._referer_set = False
        self._accepts_partial = not settings.fail_on_dataloss
        self._address = ""
        self.timeout_s = settings.timeout_s
        setopt(pycurl.NOSIGNAL, 1)  # otherwise libcurl uses SIGALRM for name lookup timeouts
        setopt(pycurl.PATH_AS_IS, 1)  # URLs are already canonical
        setopt(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        setopt(pycurl.USERAGENT, settings.user_agent)
        setopt(pycurl.ACCEPT_ENCODING, "")  # accept every coding that this libcurl can decompress
        setopt(pycurl.HTTPHEADER, self._default_lines)
        setopt(pycurl.TIMEOUT_MS, round(settings.timeout_s * 1000))
        setopt(pycurl.CONNECTTIMEOUT_MS, round(settings.connect_timeout_s * 1000))
        setopt(pycurl.BUFFERSIZE, BUFFER_BYTES)
        setopt(pycurl.DNS_CACHE_TIMEOUT, DNS_CACHE_S)
        setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_2TLS)
        setopt(pycurl.HEADERFUNCTION, self._head.append)
        setopt(pycurl.WRITEFUNCTION, self._on_chunk)
        # Empty values override http_proxy and no_proxy in the environment: a crawl depends only on its settings.
        set_proxy(self.curl, settings.proxy, settings.headers)
        setopt(pycurl.NOPROXY, "")
        if self._bundle:
            setopt(pycurl.CAINFO, self._bundle)
            setopt(pycurl.PROXY_CAINFO, self._bundle)
        if settings.pins:
            setopt(pycurl.PINNEDPUBLICKEY, settings.pins)
        if settings.pins or settings.insecure:
            setopt(pycurl.SSL_VERIFYPEER, 0)
            setopt(pycurl.SSL_VERIFYHOST, 0)
        if settings.insecure:
            setopt(pycurl.PROXY_SSL_VERIFYPEER, 0)
            setopt(pycurl.PROXY_SSL_VERIFYHOST, 0)

    def _set_options(self, request: Request, proxy: Any, *, overrides_proxy: bool) -> None:
        referer = "" if overrides_proxy else request.lone_referer
        if referer and referer.isascii() and referer.isprintable() and not self._has_default_referer:
            # Most requests of a spider set only a Referer. The option REFERER is cheaper than a list of header lines.
            self._referer_set = True
            self.curl.setopt(pycurl.REFERER, referer)
            return
        setopt, method, body = self.curl.setopt, request.method, request.body
        headers: Mapping[str, str] = request.headers
        if method != "GET" or body:
            self._plain = False
            _set_method(self.curl, method, body)
        if overrides_proxy or not PER_REQUEST.isdisjoint(request.meta) or "proxy-authorization" in headers:
            self._plain = False
            headers = self._set_special_options(request, str(proxy or ""))
        if headers:
            self._headers_set = True
            setopt(pycurl.HTTPHEADER, _header_lines({**self._default_headers, **headers}))

    def _set_special_options(self, request: Request, proxy: str) -> Mapping[str, str]:
        """Return the header fields for the host."""
        get_meta = request.get_meta
        if get_meta("download_timeout") is not None:
            self.timeout_s = timeout_s(get_meta("download_timeout"))
            self.curl.setopt(pycurl.TIMEOUT_MS, max(1, round(self.timeout_s * 1000)))
        if get_meta("bindaddress"):
            set_bind_address(self.curl, get_meta("bindaddress"))
        if get_meta("download_fail_on_dataloss") is not None:
            self._accepts_partial = not get_meta("download_fail_on_dataloss")
        # The default Proxy-Authorization is for the default proxy only.
        defaults = self._settings.headers if proxy == self._settings.proxy else {}
        set_proxy(self.curl, proxy, {**defaults, **request.headers})
        return for_hosts(request.headers)

    def _guard_against_private(self, url: str, *, public_only: bool) -> None:
        if self.proxied:
            if public_only:
                check_url(url, self._settings.may_connect)
            public_only = False
        self._guard.set(on=public_only)

    def _connect_to(self, address: str) -> None:
        """Connect to this address; "" resolves the name instead.

        Unlike an entry in libcurl's DNS cache (CURLOPT_RESOLVE), this applies to one transfer only, and connections to
        other addresses are not reused for it.
        """
        if address == self._address:
            return
        if address:
            self.curl.setopt(pycurl.CONNECT_TO, [to_address(address)])
        else:
            self.curl.unsetopt(pycurl.CONNECT_TO)
        self._address = address

    def _on_chunk(self, chunk: bytes) -> int | None:
        """Return 0 to end the transfer."""
        if self._received is None and not self._on_head():
            return 0
        if self._skipped:
            return None
        self._size += len(chunk)
        if self._size > self._limit:
            return self._end_at_limit(chunk)
        if self._into is not None:
            return self._store(chunk)
        self._chunks.append(chunk)
        return None

    def _store(self, chunk: bytes) -> int | None:
        if self._into is None:
            self._chunks.append(chunk)
            return None
        try:
            self._into(chunk)
        except StopDownload as stop:
            self._was_truncated = not stop.fail
            self._error = stop if stop.fail else None
            return 0
        except Exception as error:  # noqa: BLE001  `fetch` raises it
            self._error = error
            return 0
        return None

    def _end_at_limit(self, chunk: bytes) -> int:
        if self._cut:
            self._was_truncated = True
            self._store(chunk[: self._limit - self._size + len(chunk)])
        else:
            self._error = BodyTooLarge(f"body over {self._limit} bytes")
        return 0

    def _decoded(self, body: bytes, headers: Headers) -> bytes:
        text = headers.get("content-type").lower().startswith("text/")
        found = decode_body(body, headers.getlist("content-encoding"), self._limit, text=text)
        if found is None:
            raise BadResponse(UNDECODABLE)
        if len(found) > self._limit and not self._cut:
            raise BodyTooLarge(f"body over {self._limit} bytes")
        return found[: self._limit]

    def _on_head(self) -> bool:
        """Return False to end the transfer."""
        try:
            status, fields = final_head(b"".join(self._head))  # within a callback libcurl refuses getinfo
            headers = Headers(fields)
            self._received = status, headers
            if self._accept is not None and not self._accept(status, headers):
                self._skipped = True
                return _has_short_body(headers)
        except StopDownload as stop:
            self._skipped = not stop.fail
            self._error = stop if stop.fail else None
            return False
        except Exception as error:  # noqa: BLE001  `fetch` raises it
            self._error = error
            return False
        return True


def final_head(head: bytes) -> tuple[int, bytes]:
    """Return the status and fields of the final head, skipping 1xx responses, proxy responses and trailers."""
    start = 0
    while (end := head.find(b"\r\n\r\n", start)) >= 0 and head.startswith(b"HTTP/", end + 4):
        start = end + 4
    line, _, fields = head[start : end if end >= 0 else len(head)].partition(b"\r\n")
    code = line.split(b" ", 2)[1:2]
    return int(code[0]) if code and code[0].isdigit() else 0, fields


def head_is_complete(lines: Sequence[bytes]) -> bool:
    """Whether the last of these response heads ends with an empty line."""
    last = max((place for place, line in enumerate(lines) if line.startswith(b"HTTP/")), default=0)
    return any(not line.strip() for line in lines[last:])


def ca_bundle() -> str:
    """Return SSL_CERT_FILE or the system's CA bundle; "" for libcurl's default."""
    places = ssl.get_default_verify_paths()
    candidates = (
        os.environ.get("SSL_CERT_FILE"),
        places.cafile,
        places.openssl_cafile,
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/ssl/cert.pem",
    )
    return next((path for path in candidates if path and Path(path).is_file()), "")


def _has_short_body(headers: Headers) -> bool:
    length = headers.get("content-length")
    return (
        length.isascii()
        and length.isdigit()
        and len(length) < 10
        and int(length) <= DRAIN_MAX
        and not headers.get("content-encoding")
    )


def _set_method(curl: pycurl.Curl, method: str, body: bytes) -> None:
    if not TOKEN.fullmatch(method):
        raise ValueError(f"{method!r} is not a valid HTTP method")
    if method == "HEAD":
        curl.setopt(pycurl.NOBODY, 1)
    elif body or method in {"POST", "PUT", "PATCH"}:
        curl.setopt(pycurl.POSTFIELDS, body)
    if method not in {"GET", "HEAD", "POST"} or (body and method == "GET"):  # POSTFIELDS implies POST
        curl.setopt(pycurl.CUSTOMREQUEST, method)


def _header_lines(headers: Mapping[str, str]) -> list[bytes]:
    # "NAME:" suppresses the field that libcurl would send by default; "NAME;" sends the field without a value.
    lines = {"accept": f"Accept: {ACCEPT}", "expect": "Expect:", "content-type": "Content-Type:"}
    for name, value in headers.items():
        if not TOKEN.fullmatch(name) or any(char in "\r\n\0" for char in value):
            raise ValueError(f"the header {name!r} has an invalid name, or its value contains a line break or NUL")
        lines[name.lower()] = f"{name}: {value}" if value else f"{name};"
    return [line.encode("utf-8") for line in lines.values()]
