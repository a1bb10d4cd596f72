"""404, 503, timeouts, TLS errors and other failures have the outcome in the table of `docs/middlewares.md`, with and
without the meta keys that change it (C2, C5, C8). Each cell is a crawl of the misbehaving server.
"""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from lycosa import Request, Spider
from tests.conftest import ROOT, need
from tests.crawl.failure_table import (
    AGAIN,
    AGAIN_CALLBACK,
    AGAIN_ERRBACK,
    AGAIN_ONCE,
    CALLBACK,
    COLUMNS,
    DEAD,
    DONE,
    ERRBACK,
    FAILURES,
    FOLLOWED,
    LEFT,
    TOLD,
    Failing,
)
from tests.crawl.small_crawl import CrawlResult, run_crawl
from tests.servers.misbehaving import Server, serving
from tests.servers.ports import closed_port

RETRIES = 2
METAS: dict[str, dict[str, Any]] = {
    "by default": {},
    "`handle_httpstatus_list` has it": {"handle_httpstatus_list": [302, 404, 500, 503]},
    "`dont_retry`": {"dont_retry": True},
    "`dont_redirect`": {"dont_redirect": True},
    "`max_retry_times: 1`": {"max_retry_times": 1},
    "with an errback": {},
}
TIMEOUT_S = 0.1
REASONS_WITH_LIMITS = {
    "timed out after 30 s": "timed out after 0.1 s",
    "body over 16777216 bytes": "body over 100000 bytes",
}
"""Reasons that contain a limit, which is smaller in this test than by default."""


class Failed(Spider):
    """Its items record whether the callback or the errback was called."""

    name = "failed"
    url = ""
    meta: dict[str, Any] = {}
    has_errback = False

    async def start(self):
        yield Request(self.url, meta=self.meta, errback=self.on_error if self.has_errback else None)

    def parse(self, response):
        yield {"callback": response.status}

    def on_error(self, failure):
        yield {"errback": True}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need("openssl", shutil.which("openssl") is not None)
    file = tmp_path_factory.mktemp("tls") / "self-signed.pem"
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    arguments = ["req", "-x509", *key, "-keyout", file, "-out", f"{file}.crt", "-days", "2", "-subj", "/CN=127.0.0.1"]
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=30)
    file.write_text(file.read_text() + Path(f"{file}.crt").read_text())
    return file


@asynccontextmanager
async def servers(certificate: Path, failing: Failing, after: int) -> AsyncIterator[tuple[Server, str]]:
    """Start the servers for the failure. Yield the server and the URL that fails."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    no_tls = await asyncio.start_server(_no_tls, "127.0.0.1", 0)
    async with serving() as server, serving(tls=context) as secure, no_tls:
        ports = {"tls": secure.address.rpartition(":")[2], "no_tls": no_tls.sockets[0].getsockname()[1]}
        path = failing.path.format(after=after, closed=closed_port(), **ports)
        yield server, path if "://" in path else server.url(path)


async def _no_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    writer.close()


async def crawled(certificate: Path, failing: Failing, column: str, after: int = 0, **settings: Any) -> CrawlResult:
    async with servers(certificate, failing, after) as (server, url):
        spider = Failed(url=url, meta=METAS[column], has_errback=column == "with an errback")  # type: ignore[arg-type]
        return await run_crawl(server, spider, **{**limits(failing), "retries": RETRIES, **settings})


def limits(failing: Failing) -> dict[str, Any]:
    """Return small limits. Only a request that hangs has TIMEOUT_S: on a busy machine any other may take longer."""
    return {"timeout": TIMEOUT_S if failing.path == "/hang" else 5, "max_body": 100_000}


def expected(failing: Failing, text: str) -> tuple[str, str, list[Any], int]:
    """Return state, reason, items and number of requests for the words of a cell."""
    reason = REASONS_WITH_LIMITS.get(failing.reason, failing.reason)
    status = "302" if "redirect" in failing.path else failing.reason
    status_item = [{"callback": int(status)}] if status.isdigit() else []
    return {
        DONE: ("done", reason, [], 1),
        FOLLOWED: ("done", reason, [{"callback": 200}], 2),
        LEFT: ("done", "302", [], 1),
        CALLBACK: ("done", status, status_item, 1),
        AGAIN_CALLBACK: ("done", status, status_item, 1 + RETRIES),
        DEAD: ("dead", reason, [], 1),
        AGAIN: ("dead", reason, [], 1 + RETRIES),
        AGAIN_ONCE: ("dead", reason, [], 2),
        ERRBACK: ("done", reason, [{"errback": True}], 1),
        AGAIN_ERRBACK: ("done", reason, [{"errback": True}], 1 + RETRIES),
    }[text]


@pytest.mark.parametrize("column", METAS)
@pytest.mark.parametrize("failing", FAILURES.values(), ids=FAILURES)
def test_each_failure_has_the_documented_outcome(certificate: Path, failing: Failing, column: str):
    text = failing.cells[list(METAS).index(column)]
    result = asyncio.run(crawled(certificate, failing, column))
    state, reason, items, requests = expected(failing, text)
    first = next(iter(result.rows.values()))
    assert (first.state, first.reason if text != ERRBACK or not first.reason.isdigit() else reason) == (state, reason)
    assert result.items == items
    assert result.stats["downloader/request_count"] == requests
    retries = requests - 1 if text != FOLLOWED else 0
    assert result.stats.get("retry/count", 0) == retries
    assert result.stats.get(f"retry/reason_count/{reason}", 0) == retries


@pytest.mark.parametrize("failing", FAILURES.values(), ids=FAILURES)
def test_a_host_is_blocked_when_it_is_overloaded_or_unreachable(certificate: Path, failing: Failing):
    settings = {"backoff_base": 100, "max_backoff": 100, "retries": 0}
    blocked_s: list[float] = []

    class ReadsBlocks(Failed):
        async def closed(self, reason):
            blocked_s.append(await blocked_until())

    async def run() -> None:
        nonlocal blocked_until
        async with servers(certificate, failing, 1000) as (server, url):
            spider = ReadsBlocks(url=url)
            blocked_until = lambda: host_of(spider)  # noqa: E731
            await run_crawl(server, spider, **limits(failing), **settings)

    async def host_of(spider: Spider) -> float:
        hosts = await spider.crawl._run.operations.hosts("", 10)  # type: ignore[attr-defined]
        return max((view.blocked_until for view in hosts), default=0.0) - time.time()

    blocked_until: Any = None
    asyncio.run(run())
    low, high = {"no": (-1e12, 0), "for the back-off": (40, 100), TOLD: (900, 1000)}[failing.rests]
    assert low <= blocked_s[0] <= high


def test_the_document_matches_the_tested_table():
    page = (ROOT / "docs" / "middlewares.md").read_text(encoding="utf-8")
    head = f"| what fails | {' | '.join(COLUMNS)} |\n"
    assert head in page, head
    lines = page.split(head, 1)[1].split("\n\n", 1)[0].split("\n")[1:]
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]
    assert rows == [(name, f"`{each.reason}`", each.rests, *each.cells) for name, each in FAILURES.items()]
