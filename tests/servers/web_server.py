"""A real HTTP server for an ASGI application, in a thread, on a free port."""

from __future__ import annotations

import gzip
import http.client
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import uvicorn

DEADLINE_S = 30.0


class Response(NamedTuple):
    """Headers have lower-case names."""

    status: int
    headers: dict[str, str]
    text: str


class Server(NamedTuple):
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> Response:
        return self.request("GET", path)

    def request(self, method: str, path: str, body: str | bytes | None = None, **headers: str) -> Response:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            response = connection.getresponse()
            headers = {name.lower(): value for name, value in response.getheaders()}
            body = response.read()
            if headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            return Response(response.status, headers, body.decode())
        finally:
            connection.close()


@contextmanager
def running(app: Any, lifespan: str = "on") -> Iterator[Server]:
    """Serve an application."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, log_level="critical", lifespan=lifespan, access_log=False)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            end = time.monotonic() + DEADLINE_S
            while not server.started:
                assert thread.is_alive(), "the server did not start"
                assert time.monotonic() < end, "the server takes too long to start"
                time.sleep(0.01)
            yield Server(listener.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join()
