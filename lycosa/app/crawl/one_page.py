"""Fetch one page through the downloader middlewares, for `lycosa fetch` and `lycosa shell`.

Nothing is stored, except in the HTTP cache.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from lycosa.app.crawl.frontier import open_in_memory, temporary_folder
from lycosa.app.crawl.parts import policy_of
from lycosa.app.crawl.spec import crawl_spec
from lycosa.app.crawl.wiring import open_run
from lycosa.config import Settings
from lycosa.core.errors import IgnoreRequest
from lycosa.crawl.spiders.response import Response
from lycosa.crawl.spiders.spider import Spider
from lycosa.frontier.state_dir import StateDir
from lycosa.http.core.request import Request
from lycosa.storage.sinks.memory import MemorySink


class OnePageSpider(Spider):
    """The spider of a fetch without --spider."""

    name = "fetch"


def fetch(settings: Settings, request: Request, spider_class: type[Any] | None = None) -> Response:
    """Fetch a request as a crawl with this spider would. The response may have any status.

    Blocks. Raises `FetchError`, `IgnoreRequest` (robots.txt), `BadUrl`, or any other error of a crawl.
    """
    return asyncio.run(_fetch(settings, request, spider_class or OnePageSpider))


async def _fetch(settings: Settings, request: Request, spider_class: type[Any]) -> Response:
    settings = replace(settings, index=None, output=(), overwrite=False, state=None, processes=1)
    crawl = crawl_spec(settings, spider_class)
    async with AsyncExitStack() as stack:
        state = StateDir(stack.enter_context(temporary_folder()) / "state")
        stack.callback(state.close)
        opened = open_in_memory(stack, policy_of(settings))
        await stack.enter_async_context(open_run(crawl, state, opened, [MemorySink()]))
        try:
            response: Response = await crawl.target.crawler.download(request)
        except IgnoreRequest as ignored:
            if str(ignored) != "robots":
                raise
            raise IgnoreRequest(
                f"robots.txt forbids {request.url}: if you have permission, write -s robots=false"
            ) from None
        return response
