"""A site of a few files of any type, which records every request. Standard library only.

with serve({"/sitemap.xml.gz": ("application/gzip", packed), "/1": ("text/html", b"<h1>One</h1>")}) as shelf:
    ... shelf.url ...             # http://127.0.0.1:PORT
    shelf.hits                    # the paths asked for, in order

`{site}` in a text file is replaced by the URL of the site. Other paths are 404.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Shelf:
    """The files by path: content type and body."""

    files: Mapping[str, tuple[str, bytes | str]]
    url: str = ""
    hits: list[str] = field(default_factory=list)


def handler_of(shelf: Shelf) -> type[BaseHTTPRequestHandler]:
    """Return the request handler of the site."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            shelf.hits.append(self.path)
            status = 200 if self.path in shelf.files else 404
            kind, body = shelf.files.get(self.path, ("text/plain", "not here"))
            content = body.replace("{site}", shelf.url).encode() if isinstance(body, str) else body
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: object) -> None:
            """Do not log."""

    return Handler


@contextmanager
def serve(files: Mapping[str, tuple[str, bytes | str]]) -> Iterator[Shelf]:
    """Serve the files while the block runs."""
    shelf = Shelf(files)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(shelf))
    server.daemon_threads = True
    shelf.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield shelf
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
