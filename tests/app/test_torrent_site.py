"""The torrent site as `lycosa site` opens it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lycosa.app import torrent_site
from lycosa.app.dht_state import RecordsLocation, open_records
from lycosa.app.torrent_search import torrent_indexer
from lycosa.app.torrent_site import (
    DAY_S,
    WARMING,
    open_child_site,
    open_site_store,
    open_torrent_site,
    set_admin_password,
)
from lycosa.core.errors import UsageError
from lycosa.infra.web.pages import HEADERS
from lycosa.infra.web.site_processes import SiteProcesses, SiteResponse
from lycosa.storage.ports import RecordStore
from tests.storage.torrents import torrent

NOW = 1_790_000_000.0
DEADLINE_S = 60
SHOWN, REMOVED = torrent(1), torrent(2)


async def fill(store: RecordStore, location: RecordsLocation, folder: Path) -> None:
    async with torrent_indexer(store, location, folder) as indexer:
        await store.put([SHOWN, REMOVED], NOW)
        await indexer.catch_up()


def test_takedown_requests_are_deleted_some_days_after_their_decision(tmp_path) -> None:
    location, folder = RecordsLocation(str(tmp_path), None), tmp_path / "index"

    async def run() -> None:
        async with open_records(location, create=True) as store:
            await fill(store, location, folder)
        with closing(open_site_store(folder)) as site:
            site.add_takedown(["a" * 40], "old", "", "accepted", time.time() - 3 * DAY_S)
            site.add_takedown(["b" * 40], "young", "", "accepted", time.time() - DAY_S)
            async with open_torrent_site(location, folder, "x", keep_requests_days=2), asyncio.timeout(DEADLINE_S):
                while [each.reason for each in site.takedowns()] != ["young"]:  # noqa: ASYNC110 (another thread)
                    await asyncio.sleep(0.01)

    asyncio.run(run())


def scope_of(path: str) -> dict[str, Any]:
    path, _, query = path.partition("?")
    headers = [(b"host", b"localhost"), (b"accept-encoding", b"gzip")]
    scope = {"type": "http", "method": "GET", "scheme": "http", "path": path, "query_string": query.encode()}
    return scope | {"root_path": "", "headers": headers, "client": ("127.0.0.1", 1), "server": ("localhost", 80)}


async def answer_of(site: Any, path: str) -> SiteResponse:
    """Return what a site in this process responds."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    await site(scope_of(path), receive, send)
    return SiteResponse(sent[0]["status"], sent[0]["headers"], b"".join(part["body"] for part in sent[1:]))


def test_child_processes_answer_like_the_site_and_know_a_takedown_at_once(tmp_path) -> None:
    location, folder = RecordsLocation(str(tmp_path), None), tmp_path / "index"
    paths = ["/", "/browse", f"/torrent/{SHOWN.infohash_v1.hex()}", "/nowhere", "/search.csv?q=torrent", "/search?q=-x"]
    paths += ["/torznab/api?t=caps", "/healthz"]
    removed = f"/torrent/{REMOVED.infohash_v1.hex()}"

    async def run() -> None:
        async with open_records(location, create=True) as store:
            await fill(store, location, folder)
            children = SiteProcesses(partial(open_child_site, location, folder, "x", ""), 1)
            children.start()
            try:
                async with open_torrent_site(location, folder, "x", keep_requests_days=2) as site:
                    async with asyncio.timeout(DEADLINE_S):
                        while not (response := await children.respond(scope_of(removed))):  # noqa: ASYNC110
                            await asyncio.sleep(0.01)
                    assert response.status == 200
                    for path in paths:
                        own, response = await answer_of(site, path), await children.respond(scope_of(path))
                        headers = [each for each in own.headers if each[0].decode() not in HEADERS]
                        assert response == own._replace(headers=headers), path
                    assert [(await answer_of(site, path)).status for path in WARMING] == [200] * len(WARMING)
                    await store.deny([REMOVED.infohash_v1])
                    assert (await children.respond(scope_of(removed))).status == 410
            finally:
                await children.close()

    asyncio.run(run())


def test_the_site_and_its_processes_answer_requests_before_those_of_visitors(tmp_path, monkeypatch) -> None:
    location, folder = RecordsLocation(str(tmp_path), None), tmp_path / "index"
    warmed: list[Sequence[str]] = []

    async def warm_up(_site: Any, paths: Sequence[str]) -> None:
        warmed.append(paths)

    monkeypatch.setattr(torrent_site, "warm_up", warm_up)

    async def run() -> None:
        async with open_records(location, create=True) as store:
            await fill(store, location, folder)
            async with open_torrent_site(location, folder, "x", base="/t", keep_requests_days=2):
                assert warmed == [["/t/search?q=a"]]
            async with open_child_site(location, folder, "x", "/t"):
                assert warmed[1:] == [[f"/t{path}" for path in WARMING]]

    asyncio.run(run())


def test_only_new_administrators_need_a_valid_name(tmp_path):
    pytest.importorskip("argon2")
    folder, odd = tmp_path / "state" / "index", " " + "x" * 100
    with pytest.raises(UsageError, match="cannot be the name of an administrator"):
        set_admin_password(folder, odd, lambda: pytest.fail("it asks for a password"))
    assert not list(tmp_path.iterdir())
    with closing(open_site_store(folder)) as site:
        site.set_password(odd, "of an earlier version")
    set_admin_password(folder, odd, lambda: "correct horse battery")
    with pytest.raises(UsageError, match="cannot be the name of an administrator"):
        set_admin_password(folder, f"{odd}y", lambda: pytest.fail("it asks for a password"))
