"""A real server for the search site, in a thread, on a free port."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import uvicorn

from lycosa.search.core.results import Document
from lycosa.search.ports import Index
from lycosa.search.site.app import build_site

DEADLINE_S = 30.0


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str


class Server(NamedTuple):
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> Answer:
        return self.ask("GET", path)

    def ask(self, method: str, path: str, body: str | bytes | None = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            response = connection.getresponse()
            headers = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, headers, response.read().decode())
        finally:
            connection.close()


def serving(index: Index, **options: str) -> AbstractContextManager[Server]:
    """Serve the site over this index."""
    return running(build_site(index, **options), lifespan="off")


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


def sample_pages() -> list[Document]:
    """Pages with what a site has to cope with."""
    at = "2026-11-21T07:00:00Z"
    pages = [
        Document(
            "1", "http://docs.example.org/a%20b/%E7%88%AC%E8%99%AB.html?x=1", "DHT爬虫", "关于爬虫的说明", "", "zh", at
        ),
        Document("2", "javascript:alert(1)", "Trap <img src=x onerror=alert(2)>", "a trap <script>alert(3)</script>"),
        Document(
            "3",
            "http://user:secret@h.example/\u202eevil",
            "",
            "untitled page about spiders",
            "",
            'en" onclick="x',
            "soon",
        ),
        Document("4", "http://[broken/", "Broken address", "a trap as well"),
    ]
    many = (Document(f"n{n}", f"http://h.example/{n}", f"Page {n}", f"common words, page {n}") for n in range(95))
    return [*pages, *many]
