"""Meta keys of the transfer in a crawl: size limit, timeout, data loss, local address (C1)."""

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


class CrawlResult(NamedTuple):
    items: list[Any]
    summary: Summary
    server: Server

    @property
    def reasons(self) -> dict[str, str]:
        """The reasons of dead URLs, by path."""
        return {url.removeprefix(self.server.url("")): reason for url, reason in self.summary.dead}


def crawl_paths(*requests: tuple[str, dict[str, Any]], **settings: Any) -> CrawlResult:
    """Crawl these paths, each with its meta."""

    class RequestsPaths(Spider):
        name = "requests-paths"

        async def start(self):
            for path, meta in requests:
                yield Request(server.url(path), meta=meta)

        def parse(self, response):
            yield {
                "path": response.url.removeprefix(server.url("")),
                "size": len(response.body),
                **_text_and_flags(response),
            }

    async def main() -> CrawlResult:
        nonlocal server
        async with (
            asyncio.timeout(60),
            serving() as server,
            lycosa.Crawl(RequestsPaths, **{**QUICK, **settings}) as crawl,
        ):
            summary = await crawl.run()
            return CrawlResult(sorted(crawl.items, key=lambda item: item["path"]), summary, server)

    server: Any = None
    return asyncio.run(main())


def _text_and_flags(response: Any) -> dict[str, Any]:
    return {"flags": response.flags, "text": response.text[:100]}


async def client_address(x: Exchange) -> None:
    """Answer with the address of the client."""
    await x.answer(200, "{}:{}".format(*x.writer.get_extra_info("peername")[:2]))


def test_bindaddress_is_the_local_address_of_the_transfer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SINS, "/client", client_address)
    result = crawl_paths(
        ("/client?1", {"bindaddress": "127.0.0.77"}),
        ("/client?2", {}),
        ("/client?3", {"bindaddress": "127.0.0.78"}),
        ("/client?4", {"bindaddress": ("127.0.0.79", 0)}),
        ("/client?5", {"bindaddress": "8.8.8.8"}),
        ("/client?6", {"bindaddress": "nowhere"}),
    )
    addresses = [item["text"].partition(":")[0] for item in result.items]
    assert addresses == ["127.0.0.77", "127.0.0.1", "127.0.0.78", "127.0.0.79"]
    assert result.reasons["/client?5"] == "cannot send from this bindaddress"
    assert result.reasons["/client?6"].endswith("bindaddress 'nowhere': write an IP address of this machine")
    assert "retry/count" not in result.summary.stats


def test_download_maxsize_limits_the_body() -> None:
    """A larger body is dead at once: a retry would not make it smaller. Without the key `max_body` applies."""
    result = crawl_paths(
        ("/gzip?1", {"download_maxsize": 1000}),  # 9,000 bytes, compressed to less than 1,000
        ("/gzip?2", {"download_maxsize": 100_000}),
        ("/gzip?3", {"download_maxsize": 0}),
        ("/gzip?4", {}),
        ("/endless", {"download_maxsize": 50_000}),
        ("/gzip?5", {"download_maxsize": "many"}),
        max_body=5000,
    )
    assert [(item["path"], item["size"] > 9000) for item in result.items] == [("/gzip?2", True), ("/gzip?3", True)]
    wrong = "the request cannot be sent: download_maxsize 'many': write bytes, 0 for no limit"
    assert result.reasons == {
        "/gzip?1": "body over 1000 bytes",
        "/gzip?4": "body over 5000 bytes",
        "/endless": "body over 50000 bytes",
        "/gzip?5": wrong,
    }
    assert "retry/count" not in result.summary.stats


def test_download_timeout_limits_the_transfer() -> None:
    """The timeout applies to the whole transfer; a slower transfer is retried."""
    result = crawl_paths(
        ("/slow?ms=400&1", {"download_timeout": 0.2}),
        ("/slow?ms=400&2", {"download_timeout": 5}),
        ("/drip", {"download_timeout": 0.3}),
        ("/slow?ms=400&3", {}),
        ("/good", {"download_timeout": -1}),
        timeout=0.25,
    )
    assert [item["path"] for item in result.items] == ["/slow?ms=400&2"]
    wrong = result.reasons.pop("/good")
    assert result.reasons == {
        "/slow?ms=400&1": "timed out after 0.2 s",
        "/drip": "timed out after 0.3 s",
        "/slow?ms=400&3": "timed out after 0.25 s",
        "/good": wrong,
    }
    assert "download_timeout -1: write seconds" in wrong
    assert result.summary.stats["retry/count"] == 3


def test_download_fail_on_dataloss_fails_or_flags_a_truncated_body() -> None:
    """A truncated page is a failure and is retried, unless the request accepts it: then the response has a flag."""
    result = crawl_paths(
        ("/short?1", {"download_fail_on_dataloss": False}),
        ("/short?2", {}),
        ("/short?3", {"download_fail_on_dataloss": True}),
        ("/cut-chunks", {"download_fail_on_dataloss": False}),
        ("/drop", {"download_fail_on_dataloss": False}),
        ("/good", {"download_fail_on_dataloss": False}),
    )
    assert [(item["path"], item["flags"]) for item in result.items] == [
        ("/cut-chunks", ["dataloss"]),
        ("/good", []),
        ("/short?1", ["dataloss"]),
    ]
    assert result.items[-1]["text"] == "only this"
    lost = "connection lost within the body"
    assert result.reasons == {"/short?2": lost, "/short?3": lost, "/drop": "connection closed without an answer"}
    assert result.summary.stats["retry/count"] == 3
