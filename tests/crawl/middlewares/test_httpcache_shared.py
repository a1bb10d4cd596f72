"""An HTTP cache shared by several crawls does not serve the pages of one user to another (C10)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import lycosa
from tests.servers.misbehaving import running


class Member(lycosa.Spider):
    name = "member"

    async def start(self):
        yield lycosa.Request(self.url, headers={"Cookie": self.cookie}, meta={"dont_merge_cookies": True})

    def parse(self, response):
        return {"flags": response.flags}


def test_responses_to_requests_with_cookies_are_not_shared_between_crawls(tmp_path: Path) -> None:
    async def flags(url: str, cookie: str, state: str) -> list[str]:
        spider = Member(url=url, cookie=cookie)
        settings = {"http_cache": "rfc9111", "http_cache_dir": tmp_path / "cache", "robots": False}
        crawl = lycosa.Crawl(spider, state=tmp_path / state, overwrite=False, **settings)
        await crawl.run()
        return crawl.items[0]["flags"]

    async def scenario(url: str) -> None:
        first = await flags(url, "who=ann", "ann")
        (tmp_path / "ann").rename(tmp_path / "ann-before")  # a new state under the same path belongs to the same user
        assert (first, await flags(url, "who=ann", "ann")) == ([], ["cached"])
        assert await flags(url, "who=bob", "bob") == [], "the response for bob comes from the host"

    with running() as server:
        asyncio.run(scenario(server.url("/cached?control=max-age=600")))
        assert len(server.hits) == 2
