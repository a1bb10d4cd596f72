"""A site of a few files of any type, which records every request. Standard library only.

with serve({"/sitemap.xml.gz": ("application/gzip", packed), "/1": ("text/html", b"<h1>One</h1>")}) as site:
    ... site.url ...             # http://127.0.0.1:PORT
    site.hits                    # the paths asked for, in order

`{site}` in a text file is replaced by the URL of the site. Other paths are 404.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class FileSite:
    """The files by path: content type and body."""

    files: Mapping[str, tuple[str, bytes | str]]
    url: str = ""
    hits: list[str] = field(default_factory=list)


def handler_of(site: FileSite) -> type[BaseHTTPRequestHandler]:
    """Return the request handler of the site."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            site.hits.append(self.path)
            status = 200 if self.path in site.files else 404
            kind, body = site.files.get(self.path, ("text/plain", "not here"))
            content = body.replace("{site}", site.url).encode() if isinstance(body, str) else body
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: object) -> None:
            """Do not log."""

    return Handler


@contextmanager
def serve(files: Mapping[str, tuple[str, bytes | str]]) -> Iterator[FileSite]:
    """Serve the files while the block runs."""
    site = FileSite(files)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(site))
    server.daemon_threads = True
    site.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
