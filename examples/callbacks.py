"""All forms of callbacks, an errback, data for callbacks, a fetch inside a callback, and the state of a spider.

lycosa runspider examples/callbacks.py -a site=https://example.com/ -o items.jsonl
"""

from __future__ import annotations

import lycosa


class Callbacks(lycosa.Spider):
    name = "callbacks"

    async def start(self):
        yield lycosa.Request(self.site, errback=self.failed)

    async def parse(self, response):  # an async generator
        robots = await self.fetch(response.urljoin("/robots.txt"))
        yield {"by": "parse", "title": response.css("title::text").get(), "robots": robots.status}
        for number, request in enumerate(response.follow_all(css="a"), 1):
            yield request.replace(callback=self.generator, cb_kwargs={"number": number}, errback=self.failed)
        yield response.follow("/no-such-page", self.generator, errback=self.failed, meta={"why": "to see it fail"})

    def generator(self, response, number):
        self.state["pages"] = self.state.get("pages", 0) + 1  # kept from run to run
        yield {"by": "generator", "number": number, "depth": response.depth}
        if number == 1:
            yield response.follow("?again", self.plain)

    def plain(self, response):  # a list, or one item or request, or nothing
        return [{"by": "plain"}, response.follow("?and-again", "coroutine")]

    async def coroutine(self, response):
        return {"by": "coroutine", "seen": self.state["pages"]}

    def failed(self, failure):
        if failure.check(lycosa.HttpError):
            yield {"by": "failed", "status": failure.response.status, **failure.request.meta}
        else:
            self.logger.warning("%s: %s", failure.request.url, failure.getErrorMessage())

    def closed(self, reason):
        self.logger.info("%s after %d pages", reason, self.state.get("pages", 0))
