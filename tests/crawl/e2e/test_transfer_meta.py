"""Meta keys about the transfer, in a crawl: sizes, times, data loss, local address (C1)."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import pytest

import lycosa
from lycosa import Request, Spider
from lycosa.crawl.events.stats import Summary
from tests.servers.misbehaving import Server, serving
from tests.servers.sins import SINS, Exchange

QUICK = {"robots": False, "retries": 1, "backoff_base": 0, "log_level": "CRITICAL"}


class Got(NamedTuple):
    items: list[Any]
    summary: Summary
    server: Server

    @property
    def reasons(self) -> dict[str, str]:
        """Why the dead URLs are dead, by path."""
        return {url.removeprefix(self.server.url("")): reason for url, reason in self.summary.dead}


def got(*asked: tuple[str, dict[str, Any]], **settings: Any) -> Got:
    """Crawl these paths, each with its meta."""

    class Asks(Spider):
        name = "asks"

        async def start(self):
            for path, meta in asked:
                yield Request(server.url(path), meta=meta)

        def parse(self, response):
            yield {"path": response.url.removeprefix(server.url("")), "size": len(response.body), **_seen(response)}

    async def main() -> Got:
        nonlocal server
        async with asyncio.timeout(60), serving() as server, lycosa.Crawl(Asks, **{**QUICK, **settings}) as crawl:
            summary = await crawl.run()
            return Got(sorted(crawl.items, key=lambda item: item["path"]), summary, server)

    server: Any = None
    return asyncio.run(main())


def _seen(response: Any) -> dict[str, Any]:
    return {"flags": response.flags, "text": response.text[:100]}


async def whoever(x: Exchange) -> None:
    """Answer with the address of the client."""
    await x.answer(200, "{}:{}".format(*x.writer.get_extra_info("peername")[:2]))


def test_bindaddress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SINS, "/whoever", whoever)
    found = got(
        ("/whoever?1", {"bindaddress": "127.0.0.77"}),
        ("/whoever?2", {}),
        ("/whoever?3", {"bindaddress": "127.0.0.78"}),
        ("/whoever?4", {"bindaddress": ("127.0.0.79", 0)}),
        ("/whoever?5", {"bindaddress": "8.8.8.8"}),
        ("/whoever?6", {"bindaddress": "nowhere"}),
    )
    came_from = [item["text"].partition(":")[0] for item in found.items]
    assert came_from == ["127.0.0.77", "127.0.0.1", "127.0.0.78", "127.0.0.79"]
    assert found.reasons["/whoever?5"] == "cannot send from this bindaddress"
    assert found.reasons["/whoever?6"].endswith("bindaddress 'nowhere': write an IP address of this machine")
    assert "retry/count" not in found.summary.stats


def test_download_maxsize() -> None:
    """A larger body is dead at once: a retry would not make it smaller. `max_body` applies to other requests."""
    found = got(
        ("/gzip?1", {"download_maxsize": 1000}),  # 9,000 bytes, 100 as they are sent
        ("/gzip?2", {"download_maxsize": 100_000}),
        ("/gzip?3", {"download_maxsize": 0}),
        ("/gzip?4", {}),
        ("/endless", {"download_maxsize": 50_000}),
        ("/gzip?5", {"download_maxsize": "many"}),
        max_body=5000,
    )
    assert [(item["path"], item["size"] > 9000) for item in found.items] == [("/gzip?2", True), ("/gzip?3", True)]
    wrong = "a request that cannot be sent: download_maxsize 'many': write bytes, 0 for no limit"
    assert found.reasons == {
        "/gzip?1": "body over 1000 bytes",
        "/gzip?4": "body over 5000 bytes",
        "/endless": "body over 50000 bytes",
        "/gzip?5": wrong,
    }
    assert "retry/count" not in found.summary.stats


def test_download_timeout() -> None:
    """It covers the whole transfer; a slower one is retried."""
    found = got(
        ("/slow?ms=400&1", {"download_timeout": 0.2}),
        ("/slow?ms=400&2", {"download_timeout": 5}),
        ("/drip", {"download_timeout": 0.3}),
        ("/slow?ms=400&3", {}),
        ("/good", {"download_timeout": -1}),
        timeout=0.25,
    )
    assert [item["path"] for item in found.items] == ["/slow?ms=400&2"]
    wrong = found.reasons.pop("/good")
    assert found.reasons == {
        "/slow?ms=400&1": "timed out after 0.2 s",
        "/drip": "timed out after 0.3 s",
        "/slow?ms=400&3": "timed out after 0.25 s",
        "/good": wrong,
    }
    assert "download_timeout -1: write seconds" in wrong
    assert found.summary.stats["retry/count"] == 3


def test_download_fail_on_dataloss() -> None:
    """Half a page is a failure that is retried, unless the request accepts it: then it has a flag."""
    found = got(
        ("/short?1", {"download_fail_on_dataloss": False}),
        ("/short?2", {}),
        ("/short?3", {"download_fail_on_dataloss": True}),
        ("/cut-chunks", {"download_fail_on_dataloss": False}),
        ("/drop", {"download_fail_on_dataloss": False}),
        ("/good", {"download_fail_on_dataloss": False}),
    )
    assert [(item["path"], item["flags"]) for item in found.items] == [
        ("/cut-chunks", ["dataloss"]),
        ("/good", []),
        ("/short?1", ["dataloss"]),
    ]
    assert found.items[-1]["text"] == "only this"
    lost = "connection lost within the body"
    assert found.reasons == {"/short?2": lost, "/short?3": lost, "/drop": "connection closed without an answer"}
    assert found.summary.stats["retry/count"] == 3
