"""A truncated body is a failure, unless the setting or the request accepts it (C2)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lycosa import Request, Spider
from tests.crawl.small_crawl import run_crawl
from tests.servers.misbehaving import serving

TRUNCATED = {"text": "only this", "flags": ["dataloss"]}


class Reading(Spider):
    name = "reading"
    meta: dict[str, Any] = {}
    url = ""

    async def start(self):
        yield Request(self.url, meta=self.meta)

    def parse(self, response):
        yield {"text": response.text, "flags": response.flags}


@pytest.mark.parametrize(
    ("settings", "meta", "items"),
    [
        ({}, {}, []),
        ({"fail_on_dataloss": False}, {}, [TRUNCATED]),
        ({"fail_on_dataloss": False}, {"download_fail_on_dataloss": True}, []),
        ({}, {"download_fail_on_dataloss": False}, [TRUNCATED]),
    ],
    ids=str,
)
def test_a_truncated_body_fails_unless_allowed(settings: dict[str, Any], meta: dict[str, Any], items: list[Any]):
    async def scenario() -> list[Any]:
        async with serving() as server:
            spider = Reading(url=server.url("/short"), meta=meta)  # type: ignore[arg-type]
            return (await run_crawl(server, spider, **settings)).items

    assert asyncio.run(scenario()) == items
