"""What a scraper writer subclasses: where to start, and what to make of a page.

    class Quotes(Spider):
        name = "quotes"
        start_urls = ["https://quotes.example/"]

        def parse(self, response):
            for quote in response.css(".quote"):
                yield {"text": quote.css(".text::text").get()}
            yield from response.follow_all(response.css("a.next::attr(href)").getall())

A callback may be a generator, an async generator, a coroutine, or a function that returns one result, a list or None.
It yields items (dict, dataclass, attrs, pydantic, msgspec) and `Request`s. What it yields counts when it has ended
without an exception: then the items are written and the requests queued in one step.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from lycosa.core.errors import BadSpider
from lycosa.core.model import Request
from lycosa.engine.response import Response


class Spider:
    """Base class. Arguments given with `-a` become attributes. Raises `BadSpider` when it has no name."""

    name: str = ""
    start_urls: Sequence[str] = ()
    allowed_domains: Sequence[str] = ()
    custom_settings: Mapping[str, Any] = {}
    pipelines: Sequence[Any] = ()

    def __init__(self, **arguments: str) -> None:
        self.__dict__.update(arguments)
        if not self.name:
            raise BadSpider(f"{type(self).__name__} has no name: write name = '...' in the class")

    @property
    def logger(self) -> logging.Logger:
        """A logger with the spider's name."""
        return logging.getLogger(self.name)

    async def start(self) -> AsyncIterator[Request]:
        """Yield the first requests: one for each of `start_urls`."""
        for url in self.start_urls:
            yield Request(url)

    def parse(self, response: Response) -> Any:
        """Make items and requests of a response. The callback of requests that name no other."""
        raise NotImplementedError(f"{type(self).__name__}.parse is not written")

    def closed(self, reason: str) -> Any:
        """Called at the end with "finished", "interrupted" or "failed"."""


def domains_as_urls(domains: Iterable[str]) -> list[str]:
    """Return the seeds whose `domain` scope is what `allowed_domains` means."""
    return [f"http://{domain.strip().removeprefix('.')}/" for domain in domains]
