"""One libcurl easy handle, reused for many transfers: options in, header lines and body chunks out."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Protocol

import pycurl

from lycosa.core.errors import BodyTooLarge, FetchError
from lycosa.core.headers import Headers
from lycosa.core.model import Request, Response, Timings
from lycosa.ports import Accept

ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
BUFFER_BYTES = 128 << 10
DNS_CACHE_S = 300
HTTP_VERSIONS = {
    pycurl.CURL_HTTP_VERSION_1_0: "1.0",
    pycurl.CURL_HTTP_VERSION_1_1: "1.1",
    pycurl.CURL_HTTP_VERSION_2_0: "2",
    30: "3",
}
TIMES = (
    pycurl.NAMELOOKUP_TIME,
    pycurl.CONNECT_TIME,
    pycurl.APPCONNECT_TIME,
    pycurl.STARTTRANSFER_TIME,
    pycurl.TOTAL_TIME,
)


class HandleSettings(Protocol):
    """The settings a handle reads. See `curl.FetchSettings`."""

    @property
    def user_agent(self) -> str:
        """What the crawler calls itself."""
        ...

    @property
    def timeout_s(self) -> float:
        """Seconds for a whole transfer."""
        ...

    @property
    def connect_timeout_s(self) -> float:
        """Seconds until connected."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Fields sent with every request."""
        ...

    @property
    def proxy(self) -> str:
        """Proxy URL, empty for none."""
        ...

    @property
    def insecure(self) -> bool:
        """Accept any certificate."""
        ...


class Handle:
    """A pooled easy handle and the transfer it is doing."""

    __slots__ = (
        "_accept",
        "_chunks",
        "_head",
        "_limit",
        "_plain",
        "_settings",
        "_size",
        "_url",
        "curl",
        "error",
        "skipped",
    )

    def __init__(self, settings: HandleSettings) -> None:
        self.curl = pycurl.Curl()
        self._settings = settings
        self._accept: Accept | None = None
        self._configure()
        self.clear()

    def prepare(self, request: Request, accept: Accept | None, limit: int) -> None:
        """Set what this transfer needs. Raises `FetchError` for a request that cannot be sent."""
        self._accept = accept
        self._limit = limit
        self._url = request.url
        self.curl.setopt(pycurl.URL, request.url)
        if request.method != "GET" or request.headers or request.body or request.meta:
            self._plain = False
            self._set_options(request)

    def clear(self) -> None:
        """Forget the transfer; a handle with special options gets the usual ones back."""
        self._head = BytesIO()
        self._chunks: list[bytes] = []
        self._size = 0
        self._accept = None
        self.error: Exception | None = None
        self.skipped = False
        self.curl.setopt(pycurl.HEADERFUNCTION, self._head.write)
        if not self._plain:
            self.curl.reset()
            self._configure()
            self.curl.setopt(pycurl.HEADERFUNCTION, self._head.write)

    def result(self, code: int) -> Response | Exception | None:
        """Return the response, or our own reason to have stopped; None when libcurl failed with `code`."""
        if self.error is not None:
            return self.error
        if code and not self.skipped:
            return None
        curl = self.curl
        status, fields = final_head(self._head.getvalue())
        return Response(
            self._url,
            status,
            Headers(fields),
            b"" if self.skipped else self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks),
            Timings(*map(curl.getinfo, TIMES)),
            curl.getinfo(pycurl.PRIMARY_IP),
            HTTP_VERSIONS.get(curl.getinfo(pycurl.INFO_HTTP_VERSION), ""),
            int(curl.getinfo(pycurl.SIZE_DOWNLOAD)),
            self.skipped,
        )

    def _configure(self) -> None:
        curl, settings = self.curl, self._settings
        self._plain = True
        curl.setopt(pycurl.NOSIGNAL, 1)
        curl.setopt(pycurl.PATH_AS_IS, 1)
        curl.setopt(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        curl.setopt(pycurl.USERAGENT, settings.user_agent)
        curl.setopt(pycurl.ACCEPT_ENCODING, "")
        curl.setopt(pycurl.HTTPHEADER, _header_lines(settings.headers))
        curl.setopt(pycurl.TIMEOUT_MS, round(settings.timeout_s * 1000))
        curl.setopt(pycurl.CONNECTTIMEOUT_MS, round(settings.connect_timeout_s * 1000))
        curl.setopt(pycurl.BUFFERSIZE, BUFFER_BYTES)
        curl.setopt(pycurl.DNS_CACHE_TIMEOUT, DNS_CACHE_S)
        curl.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_2TLS)
        curl.setopt(pycurl.WRITEFUNCTION, self._take)
        # An empty proxy also silences http_proxy of the environment: what a crawl does stands in its settings.
        curl.setopt(pycurl.PROXY, settings.proxy)
        bundle = ca_bundle()
        if bundle:
            curl.setopt(pycurl.CAINFO, bundle)
        if settings.insecure:
            curl.setopt(pycurl.SSL_VERIFYPEER, 0)
            curl.setopt(pycurl.SSL_VERIFYHOST, 0)

    def _set_options(self, request: Request) -> None:
        curl = self.curl
        if request.method == "HEAD":
            curl.setopt(pycurl.NOBODY, 1)
        elif request.body or request.method in {"POST", "PUT", "PATCH"}:
            curl.setopt(pycurl.POSTFIELDSIZE, len(request.body))
            curl.setopt(pycurl.COPYPOSTFIELDS, request.body)
        if request.method not in {"GET", "HEAD", "POST"} or (request.body and request.method == "GET"):
            curl.setopt(pycurl.CUSTOMREQUEST, request.method)
        if request.headers:
            curl.setopt(pycurl.HTTPHEADER, _header_lines({**self._settings.headers, **request.headers}))
        if "proxy" in request.meta:
            curl.setopt(pycurl.PROXY, str(request.meta["proxy"] or ""))
        if "download_timeout" in request.meta:
            curl.setopt(pycurl.TIMEOUT_MS, round(float(request.meta["download_timeout"]) * 1000))

    def _take(self, chunk: bytes) -> int:
        """Take a piece of the decompressed body; anything but its length ends the transfer."""
        try:
            if not self._chunks and not self._begin():
                return 0
        except Exception as error:  # noqa: BLE001  whatever `accept` raises belongs to the caller of `fetch`
            self.error = error
            return 0
        self._size += len(chunk)
        if self._size > self._limit:
            self.error = BodyTooLarge(f"body over {self._limit} bytes")
            return 0
        self._chunks.append(chunk)
        return len(chunk)

    def _begin(self) -> bool:
        if self._accept is None:
            return True
        status, fields = final_head(self._head.getvalue())  # libcurl answers no getinfo within a callback
        self.skipped = not self._accept(status, Headers(fields))
        return not self.skipped


def final_head(head: bytes) -> tuple[int, bytes]:
    """Return status and fields of the last response head: not those of 1xx answers and proxies, nor the trailers."""
    start = 0
    while (end := head.find(b"\r\n\r\n", start)) >= 0 and head.startswith(b"HTTP/", end + 4):
        start = end + 4
    line, _, fields = head[start : end if end >= 0 else len(head)].partition(b"\r\n")
    code = line.split(b" ", 2)[1:2]
    return int(code[0]) if code and code[0].isdigit() else 0, fields


def ca_bundle() -> str:
    """Return the file of trusted certificates: SSL_CERT_FILE, or where this system keeps it; empty to use libcurl's."""
    places = ssl.get_default_verify_paths()
    candidates = (
        os.environ.get("SSL_CERT_FILE"),
        places.cafile,
        places.openssl_cafile,
        "/etc/ssl/certs/ca-certificates.crt",
    )
    return next((path for path in candidates if path and Path(path).is_file()), "")


def _header_lines(headers: Mapping[str, str]) -> list[bytes]:
    lines = {"accept": f"Accept: {ACCEPT}", "expect": "Expect:"}
    for name, value in headers.items():
        if any(char in "\r\n\0" for char in name + value) or not name or ":" in name:
            raise FetchError(f"the request header {name!r} holds a line break or is no header", retry=False)
        lines[name.lower()] = f"{name}: {value}" if value else f"{name};"
    return [line.encode("utf-8") for line in lines.values()]
