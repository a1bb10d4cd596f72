"""A site whose pages have validators and may change while it runs; requests are recorded. Standard library only.

with serve({"/": "<a href=/a>a</a>", "/a": "old"}) as site:
    ... site.url ...                   # http://127.0.0.1:PORT
    site.pages["/a"] = "new"           # the next conditional request for it is answered with the page
    site.take()                        # [("/", 200), ("/a", 200), ...] since the last call, without robots.txt
"""

from __future__ import annotations

import hashlib
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Site:
    """The pages by path. `validators` is the kind of validator sent: "etag", "modified" or "none"."""

    pages: dict[str, str]
    validators: str = "etag"
    url: str = ""
    hits: list[tuple[str, int]] = field(default_factory=list)

    def take(self) -> list[tuple[str, int]]:
        """Return path and status of the requests since the last call, sorted by path."""
        hits, self.hits = self.hits, []
        return sorted(hits)

    def answer(self, path: str, headers: Any) -> tuple[int, dict[str, str], str]:
        """Return status, headers and body."""
        if path not in self.pages:
            return 404, {}, "not here"
        body = self.pages[path]
        if self.validators == "modified":
            modified = formatdate(zlib.crc32(body.encode()) / 4, usegmt=True)
            if headers["If-Modified-Since"] == modified:
                return 304, {}, ""
            return 200, {"Last-Modified": modified}, body
        etag = f'W/"{hashlib.sha256(body.encode()).hexdigest()[:16]}"'
        if self.validators == "etag" and headers["If-None-Match"] == etag:
            return 304, {"ETag": etag}, ""
        return 200, {"ETag": etag} if self.validators == "etag" else {}, body


def handler_of(site: Site) -> type[BaseHTTPRequestHandler]:
    """Return the request handler of the site."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, headers, body = site.answer(self.path, self.headers)
            content = f"<!doctype html><title>{self.path}</title><body>{body}".encode()
            if self.path != "/robots.txt":
                site.hits.append((self.path, status))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if status != 304:
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if status != 304:
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Do not log."""

    return Handler


@contextmanager
def serve(pages: dict[str, str], validators: str = "etag") -> Iterator[Site]:
    """Serve these pages while the block runs."""
    site = Site(dict(pages), validators)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler_of(site)) as server:
        server.daemon_threads = True
        site.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()
