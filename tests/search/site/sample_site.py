"""The search site on a real server, and pages for it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from lycosa.search.core.results import Document
from lycosa.search.pages import PageIndex
from lycosa.search.site.app import build_site
from tests.servers.web_server import Server, running


def serving(index: PageIndex, **options: Any) -> AbstractContextManager[Server]:
    """Serve the search site over this index."""
    return running(build_site(index, **options), lifespan="off")


def sample_pages() -> list[Document]:
    """Return pages with hostile titles, URLs and languages, and many ordinary ones."""
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
